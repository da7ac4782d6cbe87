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


def test_what_is_not_had():
    x = samples("c16", 5)
    for name in ["min", "prod", "var", "argmax", "minmax"]:
        with pytest.raises(TypeError, match=f"{name} of complex numbers is not had"):
            getattr(gpu_reduce, name)(x)
    with pytest.raises(TypeError, match="of complex numbers is not had"):
        gpu_reduce.vector_norm(x, ord=1)
    for call in [
        lambda: gpu_reduce.vecdot(x, x),
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
