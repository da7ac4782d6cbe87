"""The functions of NumPy's names, against NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpu_reduce

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
INTEGERS = DTYPES[1:9]
LAYOUTS = [
    lambda x: x,
    lambda x: x.T,
    np.asfortranarray,
    lambda x: x[::-1],
    lambda x: x[..., ::2],
    lambda x: np.moveaxis(x, 0, 1) if x.ndim > 1 else x,
    lambda x: np.broadcast_to(x, (2, *x.shape)),
]


def samples(dtype, shape, seed=0):
    """Small numbers, whose sums are exact in every type."""
    whole = np.random.default_rng(seed).integers(0 if dtype[0] in "?u" else -4, 5, size=shape)
    return whole.astype(dtype)


def axes_of(ndim):
    single = list(range(-ndim, ndim))
    pairs = [(a, b) for a in range(ndim) for b in range(ndim) if a < b]
    return [None, (), *single, *pairs, tuple(range(ndim))]


def same(ours, theirs, exact=True):
    assert type(ours) is type(theirs), (type(ours), type(theirs))
    assert np.shape(ours) == np.shape(theirs)
    assert ours.dtype == theirs.dtype
    if exact:
        np.testing.assert_array_equal(ours, theirs)
    else:
        tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-13}[ours.dtype.itemsize]
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 1, 5), (2, 3, 2, 4)])
def test_axes_and_layouts(dtype, layout, shape):
    x = LAYOUTS[layout](samples(dtype, shape))
    for axis in axes_of(x.ndim):
        for keepdims in [False, True]:
            for name in ["sum", "prod", "min", "max", "any", "all"]:
                # Products of floats of 16 bits overflow.
                with np.errstate(all="ignore"):
                    theirs = getattr(np, name)(x, axis=axis, keepdims=keepdims)
                    same(getattr(gpu_reduce, name)(x, axis=axis, keepdims=keepdims), theirs)
            for name in ["mean", "var", "std"] if axis != () else []:
                theirs = getattr(np, name)(x, axis=axis, keepdims=keepdims)
                same(getattr(gpu_reduce, name)(x, axis=axis, keepdims=keepdims), theirs, exact=False)
        if not isinstance(axis, tuple):
            same(gpu_reduce.argmin(x, axis=axis), np.argmin(x, axis=axis))
            same(gpu_reduce.argmax(x, axis=axis, keepdims=True), np.argmax(x, axis=axis, keepdims=True))
        count = np.count_nonzero(x, axis=axis)
        assert np.array_equal(gpu_reduce.count_nonzero(x, axis=axis), count)


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(["f4", "f8"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
    ),
    st.data(),
)
def test_any_floats(x, data):
    axis = data.draw(st.sampled_from(axes_of(x.ndim)))
    with np.errstate(all="ignore"):
        for name in ["min", "max", "nanmin", "nanmax"]:
            try:
                theirs = getattr(np, name[-3:] if name[0] == "n" else name)
                theirs = (
                    (np.fmin if name == "nanmin" else np.fmax).reduce(x, axis=axis)
                    if name[0] == "n"
                    else theirs(x, axis=axis)
                )
            except ValueError:
                with pytest.raises(ValueError, match="zero-size array to reduction operation"):
                    getattr(gpu_reduce, name)(x, axis=axis)
            else:
                same(getattr(gpu_reduce, name)(x, axis=axis), theirs)
        for name in ["any", "all"]:
            same(getattr(gpu_reduce, name)(x, axis=axis), getattr(np, name)(x, axis=axis))
        if axis is None:
            exact = x[np.isfinite(x)].astype("f8")
            assert gpu_reduce.exact_sum(exact) == math.fsum(exact.ravel().tolist())


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        "f8",
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=7),
        elements=st.floats(-50, 50, allow_subnormal=False) | st.sampled_from([0.0, 700.0, -700.0, 1e4]),
    ),
    st.data(),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_statistics_as_scipy(x, data):
    special, stats = (pytest.importorskip(f"scipy.{name}") for name in ["special", "stats"])
    axis = data.draw(st.sampled_from([axis for axis in axes_of(x.ndim) if not isinstance(axis, tuple)]))
    same(gpu_reduce.logsumexp(x, axis=axis), special.logsumexp(x, axis=axis), exact=False)
    mean, *others = gpu_reduce.moments(x, axis=axis)
    scale = np.abs(x).max()
    np.testing.assert_allclose(mean, np.mean(x, axis=axis), atol=1e-14 * scale)
    for order, found in zip([2, 3, 4], others):
        np.testing.assert_allclose(found, stats.moment(x, order, axis=axis), rtol=1e-9, atol=1e-13 * scale**order)
    # Where the elements are not nearly equal, which makes them a quotient of rounding errors.
    spread = np.std(x, axis=axis) > 1e-3 * scale
    for name, of_scipy in [("skewness", stats.skew), ("kurtosis", stats.kurtosis)]:
        found, theirs = getattr(gpu_reduce, name)(x, axis=axis), of_scipy(x, axis=axis)
        assert np.shape(found) == np.shape(theirs)
        np.testing.assert_allclose(np.where(spread, found, 0), np.where(spread, theirs, 0), rtol=1e-6, atol=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(INTEGERS),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6),
        elements=st.integers(0, 100),
    ),
    st.data(),
)
def test_masks_and_initials(x, data):
    axis = data.draw(st.sampled_from(axes_of(x.ndim)))
    mask = data.draw(hnp.arrays("?", data.draw(st.sampled_from([x.shape, x.shape[-1:], (1,) * x.ndim]))))
    initial = data.draw(st.integers(0, 100))
    for name in ["sum", "min", "max"]:
        for more in [{"where": mask, "initial": initial}, {"initial": initial}]:
            same(getattr(gpu_reduce, name)(x, axis=axis, **more), getattr(np, name)(x, axis=axis, **more))
    for name in ["sum", "any", "all"]:
        same(getattr(gpu_reduce, name)(x, axis=axis, where=mask), getattr(np, name)(x, axis=axis, where=mask))
    chosen = np.broadcast_to(mask, x.shape)
    if chosen.any():
        same(gpu_reduce.mean(x, where=mask), np.mean(x, where=mask), exact=False)


def test_types():
    x = samples("i1", (3, 4))
    for dtype in ["f4", np.float64, np.dtype("i2"), "u1"]:
        for axis in [None, 0]:
            same(gpu_reduce.sum(x, axis=axis, dtype=dtype), np.sum(x, axis=axis, dtype=dtype))
    for swapped in [x.astype(">i4"), x.astype(">f8")]:
        same(gpu_reduce.sum(swapped, axis=0), np.sum(swapped, axis=0))
    records = np.zeros(5, dtype=[("a", "u1"), ("b", "<f8")])
    records["b"] = [1, 2, 4, 8, 16]
    same(gpu_reduce.sum(records["b"]), np.float64(31))
    huge = np.array([2**63 - 1, 1])
    assert gpu_reduce.exact_sum(huge) == 2**63
    assert gpu_reduce.exact_sum(np.stack([huge, huge]), axis=1).tolist() == [2**63, 2**63]
    for other in [1.5, [1, 2], (1.0, 2.0), np.float32(3), range(4), memoryview(b"abc"), bytearray(b"xy")]:
        same(gpu_reduce.sum(other), np.sum(np.asarray(other)))
    for bad in [np.array(["a"]), np.array([object()]), np.zeros(2, "M8[D]"), None, "text"]:
        with pytest.raises(TypeError, match="not reduced"):
            gpu_reduce.sum(bad)
    with pytest.raises(TypeError, match="takes integers, not f64"):
        gpu_reduce.bitwise_or(np.ones(3))
    with pytest.raises(TypeError, match="masked array"):
        gpu_reduce.sum(np.ma.masked_array([1, 2], mask=[True, False]))
    assert gpu_reduce.sum(np.ones(3).view(type("Subclass", (np.ndarray,), {}))) == 3
    readonly = np.ones(3)
    readonly.flags.writeable = False
    assert gpu_reduce.sum(readonly) == 3


def test_out_and_axes():
    x = samples("f4", (3, 4))
    out = np.empty(4, "f4")
    assert gpu_reduce.sum(x, axis=0, out=out) is out
    same(out, np.sum(x, axis=0))
    with pytest.raises(ValueError, match="out has the shape"):
        gpu_reduce.sum(x, axis=1, out=out)
    with pytest.raises(TypeError, match="same_kind"):
        gpu_reduce.sum(x, axis=0, out=np.empty(4, "i4"))
    for axis in [2, -3, (0, 5)]:
        with pytest.raises(np.exceptions.AxisError):
            gpu_reduce.sum(x, axis=axis)
    with pytest.raises(ValueError, match="duplicate value in 'axis'"):
        gpu_reduce.sum(x, axis=(0, -2))
    with pytest.raises(TypeError):
        gpu_reduce.sum(x, axis="rows")


@pytest.mark.parametrize("correction", [0, 1, 2, 0.5, 1.25])
def test_corrections(correction):
    x = samples("f8", (5, 6), seed=3) + 0.25
    for axis in [None, 0, 1]:
        for name in ["var", "std"]:
            theirs = getattr(np, name)(x, axis=axis, ddof=correction)
            same(getattr(gpu_reduce, name)(x, axis=axis, correction=correction), theirs, exact=False)
            same(getattr(gpu_reduce, name)(x, axis=axis, ddof=correction), theirs, exact=False)


@pytest.mark.parametrize("ddof", [0.5, 1.25, 7.5])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_corrections_without_some(ddof):
    x = samples("f8", (6, 7, 5))
    x[np.random.default_rng(4).random(x.shape) < 0.3] = np.nan
    mask = np.random.default_rng(5).random(x.shape) < 0.8
    clean = np.nan_to_num(x)
    for axis in [None, 0, 1, (0, 2)]:
        for keepdims in [False, True]:
            more = {"axis": axis, "ddof": ddof, "keepdims": keepdims}
            for name in ["nanvar", "nanstd"]:
                same(getattr(gpu_reduce, name)(x, **more), getattr(np, name)(x, **more), exact=False)
                found = getattr(gpu_reduce, name)(x, where=mask, **more)
                same(found, getattr(np, name)(x, where=mask, **more), exact=False)
            # Without degrees of freedom it is NaN, as the array API says; NumPy divides by 0.
            has_freedom = np.count_nonzero(mask, axis=axis, keepdims=keepdims) > ddof
            for name in ["var", "std"]:
                theirs = np.where(has_freedom, getattr(np, name)(clean, where=mask, **more), np.nan)[()]
                same(getattr(gpu_reduce, name)(clean, where=mask, **more), theirs, exact=False)
                found = getattr(gpu_reduce, name)(clean.astype("f4"), where=mask[0], **more)
                assert found.dtype == np.float32
    same(gpu_reduce.nanvar(x[:, 0, 0], ddof=ddof), np.nanvar(x[:, 0, 0], ddof=ddof), exact=False)
    assert np.isnan(gpu_reduce.nanvar(np.full(3, np.nan), ddof=0.5))


def test_places_among_nans():
    x = np.array([[np.nan, 2.0, 1.0], [0.5, np.nan, 3.0]])
    for name in ["nanargmin", "nanargmax"]:
        for axis in [None, 0, 1]:
            same(getattr(gpu_reduce, name)(x, axis=axis), getattr(np, name)(x, axis=axis))
        for none in [np.full(4, np.nan), np.array([[1.0, np.nan], [2.0, np.nan]])]:
            with pytest.raises(ValueError, match="All-NaN slice encountered"):
                getattr(gpu_reduce, name)(none, axis=0)
        same(getattr(gpu_reduce, name)(np.array([3, 3, 3])), getattr(np, name)(np.array([3, 3, 3])))


def test_products_and_norms():
    x, y = samples("f8", (4, 5)), samples("f8", (4, 5), seed=1)
    same(gpu_reduce.vecdot(x, y), np.einsum("ij,ij->i", x, y))
    same(gpu_reduce.vecdot(x, y, axis=0), np.einsum("ij,ij->j", x, y))
    same(gpu_reduce.vecdot(x, y[0]), np.einsum("ij,j->i", x, y[0]))
    same(gpu_reduce.vecdot(x[0], y[0]), np.dot(x[0], y[0]))
    same(gpu_reduce.vecdot(x[0].astype("i2"), y[0].astype("i4")), np.int32(np.dot(x[0], y[0])))
    with pytest.raises(ValueError, match="vectors have 5 and 4 elements"):
        gpu_reduce.vecdot(x[0], y[:, 0])
    for order in [0, 1, 2, np.inf]:
        for axis in [None, 0, (0, 1)]:
            flat = x.ravel() if axis in (None, (0, 1)) else x
            theirs = np.linalg.norm(flat, ord=order, axis=axis if axis == 0 else None)
            np.testing.assert_allclose(gpu_reduce.vector_norm(x, axis=axis, ord=order), theirs, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_products_of_integers_wrap(dtype):
    largest = np.full((2, 3), np.iinfo(dtype).max, dtype)
    same(gpu_reduce.vecdot(largest, largest), np.vecdot(largest, largest))
    same(gpu_reduce.vecdot(largest[0], largest[0]), np.vecdot(largest[0], largest[0]))


def test_products_of_booleans():
    x = np.random.default_rng(6).random((5, 3, 4)) < 0.4
    for y in [x, x[0], ~x]:
        same(gpu_reduce.vecdot(x, y), np.vecdot(x, y))
    same(gpu_reduce.vecdot(x[0, 0], x[1, 1]), np.vecdot(x[0, 0], x[1, 1]))
    same(gpu_reduce.vecdot(np.ones(600, bool), np.ones(600, bool)), np.True_)
    for call in [gpu_reduce.sum, gpu_reduce.max, gpu_reduce.prod]:
        with pytest.raises(ValueError, match="initial is one number"):
            call(np.ones(3), initial=[1.0, 2.0])


def test_several():
    x = samples("f4", (3, 5))
    total, low, spread = gpu_reduce.reduce(x, ["sum", "min", "var"], axis=1, ddof=1)
    same(total, x.sum(axis=1))
    same(low, x.min(axis=1))
    same(spread, x.var(axis=1, ddof=1), exact=False)
    low, high = gpu_reduce.minmax(x, axis=0)
    same(low, x.min(axis=0))
    same(high, x.max(axis=0))
    with pytest.raises(ValueError, match="there is no operator"):
        gpu_reduce.reduce(x, ["sum", "median"])


def test_large():
    x = np.random.default_rng(0).standard_normal((1000, 3001)).astype("f4")
    same(gpu_reduce.sum(x, axis=1), x.astype("f8").sum(axis=1).astype("f4"), exact=False)
    row = np.array([gpu_reduce.sum(x[i]) for i in range(0, 1000, 97)])
    same(gpu_reduce.sum(x, axis=1)[::97].copy(), row)
    same(gpu_reduce.sum(np.asfortranarray(x), axis=1)[::97].copy(), row)
