"""Reductions in parts."""

import math
import pickle

import numpy as np
import pyarrow
import pytest

import gpu_reduce
from gpu_reduce import Partial


@pytest.mark.parametrize("cuts", [[], [1], [500, 501], [10, 10, 400, 999]])
@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f4", "f8", "?"])
def test_any_cut_and_order(cuts, dtype):
    generator = np.random.default_rng(4)
    x = (generator.standard_normal(1000) * 40).astype(dtype)
    for op in ["exact_sum", "min", "max", "minmax", "exact_mean", "count_nonzero", "any", "sum"]:
        parts = []
        for piece in np.split(x, cuts):
            part = Partial(op, dtype)
            part.add(piece)
            parts.append(pickle.loads(pickle.dumps(part)))
        generator.shuffle(parts)
        for part in parts[1:]:
            parts[0].merge(part)
        found = parts[0].finish()
        expected = getattr(gpu_reduce, op)(x)
        if op == "sum" and dtype[0] == "f":
            assert found == x.dtype.type(math.fsum(x.astype("f8")))
        else:
            found, expected = np.asarray(found), np.asarray(expected)
            assert np.array_equal(found, expected) and found.dtype == expected.dtype, op


def test_groups():
    generator = np.random.default_rng(5)
    index, x = generator.integers(0, 6, (20, 50)), generator.standard_normal((20, 50))
    parts = [Partial("sum", "f8", size=7) for _ in range(3)]
    for row in range(20):
        parts[row % 3].add(x[row], index[row])
    parts[2].merge(parts[0])
    parts[2].merge(parts[1])
    assert parts[2].finish().tolist() == [math.fsum(x[index == group]) for group in range(7)]
    least = Partial("min", "f8", size=7)
    least.add(x[:, ::2], index[:, ::2])
    with pytest.raises(ValueError, match="zero-size array"):
        least.finish()
    least.add(np.array([0.5]), np.array([6]))
    assert least.finish()[6] == 0.5
    least.add(np.array([0.5]), np.array([7]))
    with pytest.raises(IndexError):
        least.finish()


def test_what_cannot_be():
    assert Partial("sum", "i4").finish() == 0
    with pytest.raises(ValueError, match="zero-size array"):
        Partial("max", "i4").finish()
    for op in ["var", "argmax", "logsumexp"]:
        with pytest.raises(TypeError, match=f"{op} of f64 has no parts that merge in any order"):
            Partial(op, "f8")
    with pytest.raises(TypeError, match="takes integers"):
        Partial("bit_or", "f8")
    with pytest.raises(ValueError, match="there is no operator"):
        Partial("median", "f8")
    with pytest.raises(TypeError, match="not reduced"):
        Partial("sum", "c8")
    part = Partial("sum", "f8")
    with pytest.raises(TypeError, match="the elements are not float64"):
        part.add(np.ones(3, "f4"))
    with pytest.raises(ValueError, match="takes no index"):
        part.add(np.ones(3), np.zeros(3, "i8"))
    with pytest.raises(ValueError, match="3 elements and 2 indices"):
        Partial("sum", "f8", size=1).add(np.ones(3), np.zeros(2, "i8"))
    with pytest.raises(ValueError, match="differ in their type or size"):
        part.merge(Partial("sum", "f8", size=1))
    with pytest.raises(ValueError, match="does not merge"):
        part.merge(Partial("max", "f8"))
    assert repr(Partial("sum", "f8", size=2)) == 'Partial("sum", "float64", size=2)'
    part.add(pyarrow.array([1.5, None, 2.0]))
    part.merge(part)
    assert part.finish() == 7.0
