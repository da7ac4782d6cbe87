"""Reductions of arrays that come in pieces."""

import numpy as np
import pyarrow
import pytest

import gpu_reduce
from gpu_reduce import Reducer

OPERATORS = ["sum", "mean", "var", "min", "argmax", "minmax", "logsumexp", "exact_sum", "kurtosis", "count_nonzero"]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u8", "?"])
@pytest.mark.parametrize("cuts", [[], [1], [0, 7, 7, 300], [50_000, 120_000]])
def test_any_cut(dtype, cuts):
    x = (np.random.default_rng(1).standard_normal(140_001) * 9).astype(dtype)
    whole, open_ended = Reducer(OPERATORS, dtype, x.size), [Reducer(op, dtype) for op in OPERATORS]
    for piece in np.split(x, cuts):
        whole.push(piece)
        for reducer in open_ended:
            reducer.push(piece[::-1][::-1])
    assert whole.count == x.size
    for op, found, of_any_len in zip(OPERATORS, whole.finish(), open_ended):
        expected = getattr(gpu_reduce, op)(x)
        assert repr(found) == repr(expected), op
        np.testing.assert_allclose(np.asarray(of_any_len.finish(), "f8"), np.asarray(expected, "f8"), rtol=1e-5)


def test_results_on_the_way():
    reducer = Reducer("var", np.float64, ddof=1)
    reducer.push([[1.0], [2.0]])
    assert reducer.finish() == 0.5
    reducer.push(pyarrow.array([3.0, None]))
    assert reducer.finish() == 1.0 and reducer.count == 3
    assert repr(reducer) == 'Reducer("var", "float64"): 3 elements'
    assert repr(Reducer(["sum"], "i4")) == 'Reducer(["sum"], "int32"): 0 elements'


def test_what_cannot_be():
    assert Reducer("sum", "i4").finish() == 0
    with pytest.raises(ValueError, match="zero-size array"):
        Reducer("max", "i4").finish()
    with pytest.raises(TypeError, match="takes integers"):
        Reducer("bit_or", "f8")
    with pytest.raises(ValueError, match="there is no operator"):
        Reducer("median", "f8")
    with pytest.raises(TypeError, match="not reduced"):
        Reducer("sum", "c8")
    reducer = Reducer(["sum", "argmin"], "f8", len=2)
    with pytest.raises(ValueError, match="only 0 of 2 items"):
        reducer.finish()
    with pytest.raises(TypeError, match="the elements are not float64"):
        reducer.push(np.ones(3, "f4"))
    with pytest.raises(TypeError, match="has no places"):
        reducer.push(pyarrow.array([1.0, None]))
    reducer.push(np.array([4.0]))
    with pytest.raises(ValueError):
        reducer.push(np.ones(2))
    assert reducer.count == 1
    reducer.push(np.array([3.0]))
    assert reducer.finish() == [7.0, 1]
