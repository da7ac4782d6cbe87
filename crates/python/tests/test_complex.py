"""Complex numbers."""

import numpy as np
import pytest

import gpu_reduce


def samples(dtype, shape):
    generator = np.random.default_rng(7)
    return (generator.integers(-5, 5, shape) + 1j * generator.integers(-5, 5, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_sums_as_numpy(dtype):
    x = samples(dtype, (4, 5, 6))
    for array in [x, x.T, x[:, ::2], x[::-1], np.asfortranarray(x), x[0, 0, 0], x[:0]]:
        for axis in [None, *range(array.ndim), tuple(range(array.ndim))[:2] or None]:
            for name in ["sum", "mean"]:
                if name == "mean" and array.size == 0:
                    continue
                for keepdims in [False, True]:
                    found = getattr(gpu_reduce, name)(array, axis=axis, keepdims=keepdims)
                    theirs = getattr(np, name)(array, axis=axis, keepdims=keepdims)
                    assert type(found) is type(theirs) and found.dtype == theirs.dtype
                    assert np.shape(found) == np.shape(theirs)
                    np.testing.assert_allclose(found, theirs, rtol=1e-6, atol=1e-6)
            assert np.array_equal(gpu_reduce.count_nonzero(array, axis=axis), np.count_nonzero(array, axis=axis))
            assert np.array_equal(gpu_reduce.any(array, axis=axis), np.any(array, axis=axis))


def test_norms_and_exact_sums():
    x = samples("c16", (4, 5))
    for axis in [None, 0, 1, (0, 1)]:
        for keepdims in [False, True]:
            found = gpu_reduce.vector_norm(x, axis=axis, keepdims=keepdims)
            theirs = np.linalg.vector_norm(x, axis=axis, keepdims=keepdims)
            assert np.shape(found) == np.shape(theirs) and found.dtype == theirs.dtype
            np.testing.assert_allclose(found, theirs, rtol=1e-14)
    assert gpu_reduce.vector_norm(x, ord=0) == np.count_nonzero(x)
    assert gpu_reduce.exact_sum(np.array([1e300 + 1j, 1.0, -1e300 - 1e-300j])) == 1 + 1j
    assert gpu_reduce.exact_mean(np.array([1j, 3j], "c8")) == 2j


def test_arguments():
    x = samples("c16", (4, 5))
    mask = x.real > 0
    assert gpu_reduce.sum(x, where=mask) == x.sum(where=mask)
    assert np.array_equal(gpu_reduce.sum(x, axis=1, where=mask[:, :1]), x.sum(axis=1, where=mask[:, :1]))
    assert gpu_reduce.count_nonzero(x, where=mask) == mask.sum()
    assert gpu_reduce.sum(x, initial=2j) == x.sum() + 2j
    assert gpu_reduce.sum(x.real, dtype="c8") == np.complex64(x.real.sum())
    assert gpu_reduce.sum(x.astype(">c16")) == x.sum()
    out = np.empty(5, "c16")
    assert gpu_reduce.sum(x, axis=0, out=out) is out and np.array_equal(out, x.sum(axis=0))
    total, count = gpu_reduce.reduce(x, ["sum", "count_nonzero"])
    assert (total, count) == (x.sum(), np.count_nonzero(x))
    assert gpu_reduce.sum([1j, 2.0]) == 2 + 1j


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_products_and_spreads(dtype):
    x = samples(dtype, (4, 5, 6)) / 4
    close = {"rtol": 1e-5 if dtype == "c8" else 1e-13, "atol": 1e-12}
    for array in [x, x.T, x[:, ::2], x[::-1], np.asfortranarray(x), x[0, 0, 0], x[:0], x[0, 0]]:
        for axis in [None, *range(array.ndim), tuple(range(array.ndim))[:2] or None]:
            for keepdims in [False, True]:
                for name in ["prod", "var", "std"]:
                    if name != "prod" and array.size == 0:
                        continue
                    found = getattr(gpu_reduce, name)(array, axis=axis, keepdims=keepdims)
                    theirs = getattr(np, name)(array, axis=axis, keepdims=keepdims)
                    assert type(found) is type(theirs) and found.dtype == theirs.dtype, name
                    assert np.shape(found) == np.shape(theirs), name
                    np.testing.assert_allclose(found, theirs, **close)
    np.testing.assert_allclose(gpu_reduce.var(x, axis=0, ddof=1.5), x.var(axis=0, ddof=1.5), **close)
    mask = x.real > 0
    np.testing.assert_allclose(gpu_reduce.prod(x, axis=1, where=mask), x.prod(axis=1, where=mask), **close)
    np.testing.assert_allclose(gpu_reduce.prod(x[0], initial=2j), x[0].prod(initial=2j), **close)
    product, count = gpu_reduce.reduce(x[0], ["prod", "count_nonzero"])
    assert product == gpu_reduce.prod(x[0]) and count == np.count_nonzero(x[0])
    # A lane has the bits that it has alone.
    lanes = gpu_reduce.prod(x, axis=0)
    assert lanes[1, 2] == gpu_reduce.prod(x[:, 1, 2].copy())


@pytest.mark.parametrize("ord", [2, 1, 0, 3, 1.5, -1, -2, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["c8", "c16", "f4", "f8", "i4", "i1", "?"])
def test_norms(dtype, ord):
    x = (samples("c16", (3, 4, 5)) + 7 - 7j).astype(dtype) if "c" in dtype else samples("c16", (3, 4, 5)).real.astype(dtype)
    x[x == 0] = 1
    if dtype == "i1":
        x[0, 0, 0] = -128
    for axis in [None, 0, 2, (0, 1)]:
        for keepdims in [False, True]:
            found = gpu_reduce.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)
            theirs = np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)
            assert np.shape(found) == np.shape(theirs)
            np.testing.assert_allclose(found, theirs, rtol=1e-5 if dtype in ("c8", "f4") else 1e-13)
            if dtype[0] in "cf":
                assert found.dtype == theirs.dtype


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_dot_products(dtype):
    a, b = samples(dtype, (3, 4, 5)), samples(dtype, (4, 5)) * np.array(1j, dtype)
    for x, y in [(a, b), (a[0], b), (a[0, 0], b[0]), (a[:, ::2, ::-1], b[::2]), (a[:, :, :0], b[:, :0]), (a[:0], b)]:
        found, theirs = gpu_reduce.vecdot(x, y), np.vecdot(x, y)
        assert type(found) is type(theirs) and found.dtype == theirs.dtype
        assert np.array_equal(found, theirs)
    assert np.array_equal(gpu_reduce.vecdot(a, a, axis=1), np.vecdot(a, a, axis=1))
    real = a.real.copy()
    assert np.array_equal(gpu_reduce.vecdot(a, real), np.vecdot(a, real))
    assert gpu_reduce.vecdot([1j, 2.0], [1.0, 2j]) == 3j


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_without_nans():
    x = samples("c16", (4, 5))
    x[0, 0], x[2, 3], x[3, 3] = complex(np.nan, 1), complex(1, np.nan), np.nan
    mask = np.ones((4, 5), bool)
    mask[1] = False
    for name in ["nansum", "nanmean", "nanvar", "nanstd"]:
        for axis in [None, 0, 1]:
            found, theirs = getattr(gpu_reduce, name)(x, axis=axis), getattr(np, name)(x, axis=axis)
            assert type(found) is type(theirs) and found.dtype == theirs.dtype
            np.testing.assert_allclose(found, theirs, rtol=1e-13)
            theirs = getattr(np, name)(x, axis=axis, where=mask)
            np.testing.assert_allclose(getattr(gpu_reduce, name)(x, axis=axis, where=mask), theirs, rtol=1e-13)
    assert gpu_reduce.nansum(x, initial=2j) == np.nansum(x) + 2j
    for axis in [None, 0, 1]:
        for keepdims in [False, True]:
            more = {"axis": axis, "keepdims": keepdims, "ddof": 0.5}
            np.testing.assert_allclose(gpu_reduce.nanvar(x, **more), np.nanvar(x, **more), rtol=1e-13)
            theirs = np.std(x[:2, 1:], where=mask[:2, 1:], **more)
            found = gpu_reduce.std(x[:2, 1:], where=mask[:2, 1:], **more)
            np.testing.assert_allclose(found, theirs, rtol=1e-13)


def test_what_is_not_had():
    x = samples("c16", 5)
    for name in ["min", "argmax", "minmax"]:
        with pytest.raises(TypeError, match=f"{name} of complex numbers is not had"):
            getattr(gpu_reduce, name)(x)
    for call in [
        lambda: gpu_reduce.exact_dot(x, x),
        lambda: gpu_reduce.segment_reduce(x, [0, 5], "sum"),
        lambda: gpu_reduce.histogram(x),
    ]:
        with pytest.raises(TypeError, match="complex numbers are not reduced by this function"):
            call()


def test_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = samples("c8", (3, 4))
    total = gpu_reduce.sum(torch.from_numpy(x), axis=0)
    assert isinstance(total, torch.Tensor) and np.array_equal(total.numpy(), x.sum(axis=0))
    assert gpu_reduce.count_nonzero(torch.from_numpy(x)).item() == np.count_nonzero(x)
    assert gpu_reduce.vector_norm(torch.from_numpy(x)).dtype == torch.float32
    for tensor in [torch.from_numpy(x), torch.arange(1, 5), torch.arange(1.0, 5)]:
        for ord in [0, 1, 3, -1, np.inf, -np.inf]:
            norm, theirs = gpu_reduce.vector_norm(tensor, ord=ord), np.linalg.vector_norm(tensor.numpy(), ord=ord)
            assert isinstance(norm, torch.Tensor) and np.isclose(norm.item(), theirs)
    assert gpu_reduce.vecdot(torch.from_numpy(x), torch.from_numpy(x))[0].item() == np.vecdot(x[0], x[0])
    assert gpu_reduce.prod(torch.from_numpy(x), axis=1).tolist() == gpu_reduce.prod(x, axis=1).tolist()
    assert gpu_reduce.std(torch.from_numpy(x), axis=1).dtype == torch.float32
