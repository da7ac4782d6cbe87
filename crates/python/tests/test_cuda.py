"""Tensors and arrays on a GPU. Skipped where there is none."""

import gc

import numpy as np
import pytest

import gpu_reduce

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

TYPES = ["float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"]
FUNCTIONS = ["sum", "prod", "min", "max", "argmin", "argmax", "count_nonzero", "mean", "var", "exact_sum"]


def sample(dtype, shape, seed=1):
    numbers = torch.from_numpy(np.random.default_rng(seed).integers(-9, 9, shape)).to(getattr(torch, dtype))
    return numbers / 4 if numbers.is_floating_point() else numbers


def same(got, expected):
    """Whether two results have the same type and bits; NaNs are equal."""
    if isinstance(got, tuple):
        return len(got) == len(expected) and all(map(same, got, expected))
    return got.dtype == expected.dtype and torch.equal(got.nan_to_num(3), expected.cpu().nan_to_num(3))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_those_of_the_host(name, dtype):
    function = getattr(gpu_reduce, name)
    for shape in [(1,), (5000,), (300, 70), (7, 11, 13)]:
        host = sample(dtype, shape)
        x = host.cuda()
        for axis in [None, *range(len(shape))]:
            got = function(x, axis=axis)
            assert got.device == x.device
            assert same(got.cpu(), function(host, axis=axis)), (shape, axis)


def test_orders_in_memory():
    host = sample("float32", (40, 50))
    x = host.cuda()
    assert same(gpu_reduce.sum(x.T, axis=0).cpu(), gpu_reduce.sum(host.T, axis=0))
    assert same(gpu_reduce.sum(x[3:], axis=0).cpu(), gpu_reduce.sum(host[3:], axis=0))
    with pytest.raises(ValueError, match="contiguous"):
        gpu_reduce.sum(x[:, ::2])
    with pytest.raises(TypeError, match="without a mask"):
        gpu_reduce.sum(x, where=x > 0)


def test_keepdims_and_several():
    x = sample("float64", (30, 40)).cuda()
    total = gpu_reduce.sum(x, axis=1, keepdims=True)
    assert total.shape == (30, 1) and total.device == x.device
    total, least = gpu_reduce.reduce(x, ["sum", "min"])
    assert total.item() == x.sum().item() and least.item() == x.min().item()
    least, most = gpu_reduce.minmax(x)
    assert (least.item(), most.item()) == (x.min().item(), x.max().item())
    assert gpu_reduce.vecdot(x, x).device == x.device


@pytest.mark.parametrize("dtype", TYPES)
def test_several_have_the_bits_of_one(dtype):
    # Some of these share a kernel.
    names = ["max", "mean", "argmin", "sum", "std", "min", "argmax", "count_nonzero"]
    for shape in [(1,), (70_000,), (7, 5000), (5, 11, 13)]:
        host = sample(dtype, shape)
        x = host.cuda()
        for axis in [None, *range(len(shape))]:
            for some in [names, ["min", "max"], ["mean", "var"], ["argmax", "argmin"]]:
                found = gpu_reduce.reduce(x, some, axis=axis)
                for name, got in zip(some, found):
                    assert got.device == x.device
                    assert same(got.cpu(), gpu_reduce.reduce(host, name, axis=axis)), (name, some, shape, axis)


def test_the_current_stream():
    x = torch.zeros(1 << 24, device="cuda")
    side = torch.cuda.Stream()
    for number in range(5):
        with torch.cuda.stream(side):
            for _ in range(20):
                x += 1
            assert gpu_reduce.max(x).item() == 20 * (number + 1)


def test_parts():
    host = sample("float32", (5000,))
    x = host.cuda()
    offsets = np.array([0, 10, 10, 4000, 5000])
    assert same(gpu_reduce.segment_reduce(x, offsets, "sum").cpu(), gpu_reduce.segment_reduce(host, offsets, "sum"))
    on_device = torch.from_numpy(offsets).cuda()
    got = gpu_reduce.segment_reduce(x, on_device, "sum")
    assert same(got.cpu(), gpu_reduce.segment_reduce(host, offsets, "sum"))
    keys = sample("int32", (5000,), 2)
    got, of_host = gpu_reduce.group_by(keys.cuda(), x, "sum"), gpu_reduce.group_by(keys, host, "sum")
    assert all(np.array_equal(torch.as_tensor(a).cpu(), torch.as_tensor(b)) for a, b in zip(got, of_host))
    index = torch.arange(5000, device="cuda") % 7
    assert np.array_equal(torch.as_tensor(gpu_reduce.bincount(index)).cpu(), np.bincount(np.arange(5000) % 7))
    with pytest.raises(TypeError, match="arrays on the CPU"):
        gpu_reduce.index_add(torch.zeros(7, device="cuda"), index, x)
    part = gpu_reduce.Partial("sum", "float32")
    part.add(x[:3000])
    part.add(host[3000:])
    assert part.finish() == gpu_reduce.exact_sum(x).item()


def test_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    x = cupy.arange(24.0).reshape(4, 6)
    total = gpu_reduce.sum(x, axis=0)
    assert isinstance(total, cupy.ndarray) and cupy.array_equal(total, x.sum(axis=0))
    assert int(gpu_reduce.argmax(x)) == 23


@pytest.mark.parametrize("name", FUNCTIONS)
def test_copies(name):
    function = getattr(gpu_reduce, name)
    host = sample("float32", (6, 40, 50))
    for view in [lambda x: x[:, :, ::2], lambda x: x[:, 5:9], lambda x: x]:
        x = view(host.cuda())
        for axis in [None, 0, 1] if name in ("argmin", "argmax") else [None, 0, 1, (0, 2), (1, 2)]:
            got = function(x, axis=axis, copy=True)
            assert got.device == x.device
            assert same(got.cpu(), function(view(host), axis=axis)), axis
    x = host[:, :, ::2].cuda()[:, ::2]
    assert gpu_reduce.vecdot(x, x[:1], copy=True).device == x.device
    line = host.flatten()[::3]
    offsets = np.array([0, 100, 4000])
    got = gpu_reduce.segment_reduce(host.cuda().flatten()[::3], offsets, "sum", copy=True)
    assert same(got.cpu(), gpu_reduce.segment_reduce(line, offsets, "sum"))


def test_copies_with_a_mask():
    host = sample("float64", (30, 40))
    x = host.cuda()
    got = gpu_reduce.sum(x, axis=1, where=x > 0, copy=True)
    assert got.device == x.device and same(got.cpu(), gpu_reduce.sum(host, axis=1, where=host > 0))


def test_copies_with_an_initial():
    host = sample("float32", (30, 40))
    with pytest.raises(ValueError, match="copy=True"):
        gpu_reduce.max(host.cuda(), axis=1, initial=1.5)
    got = gpu_reduce.max(host.cuda(), axis=1, initial=1.5, copy=True)
    assert got.device.type == "cuda" and same(got.cpu(), gpu_reduce.max(host, axis=1, initial=1.5))
    got = gpu_reduce.var(host.cuda(), axis=1, where=host.cuda() > 0, ddof=0.5, copy=True)
    assert got.device.type == "cuda" and same(got.cpu(), gpu_reduce.var(host, axis=1, where=host > 0, ddof=0.5))


def test_norms():
    host = sample("float32", (30, 40)) + 3
    for ord in [0, 1, 2, np.inf]:
        got = gpu_reduce.vector_norm(host.cuda(), axis=1, ord=ord)
        assert got.device.type == "cuda" and same(got.cpu(), gpu_reduce.vector_norm(host, axis=1, ord=ord))
    with pytest.raises(TypeError, match="copy=True"):
        gpu_reduce.vector_norm(host.cuda(), ord=3)
    for ord in [3, -1, -np.inf]:
        got = gpu_reduce.vector_norm(host.cuda(), axis=1, ord=ord, copy=True)
        assert got.device.type == "cuda"
        torch.testing.assert_close(got.cpu(), torch.linalg.vector_norm(host, ord, dim=1))


class Described:
    """An array that has __cuda_array_interface__ only."""

    def __init__(self, x, **more):
        self.x, self.__cuda_array_interface__ = x, x.__cuda_array_interface__ | more


def test_cuda_array_interface():
    host = sample("float32", (40, 50))
    x = host.cuda()
    for axis in [None, 0, 1]:
        got = gpu_reduce.sum(Described(x), axis=axis)
        assert np.array_equal(got, gpu_reduce.sum(host, axis=axis).numpy())
        if axis is not None:
            assert np.array_equal(gpu_reduce.max(Described(x.T), axis=axis), host.T.numpy().max(axis=axis))
    with pytest.raises(ValueError, match="contiguous"):
        gpu_reduce.sum(Described(x[:, ::2]))
    # The array's stream comes first.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(1000):
            x += 1
    assert gpu_reduce.min(Described(x, stream=side.cuda_stream)) == (host + 1000).min().item()


def test_complex():
    host = torch.complex(sample("float32", (30, 40)), sample("float32", (30, 40), 2))
    for axis in [None, 0, 1]:
        got = gpu_reduce.sum(host.cuda(), axis=axis)
        assert got.is_cuda and torch.equal(got.cpu(), gpu_reduce.sum(host, axis=axis))
    assert gpu_reduce.count_nonzero(host.cuda()).item() == int((host != 0).sum())
    assert same(gpu_reduce.vector_norm(host.cuda()).cpu(), gpu_reduce.vector_norm(host))


def test_products_of_complex_numbers():
    x = torch.complex(sample("float64", (6, 5)), sample("float64", (6, 5), seed=2))
    with pytest.raises(ValueError, match="copy=True"):
        gpu_reduce.prod(x.cuda())
    for got, host in [
        (gpu_reduce.prod(x.cuda(), axis=0, copy=True), gpu_reduce.prod(x, axis=0)),
        (gpu_reduce.vecdot(x.cuda(), x.cuda(), copy=True), gpu_reduce.vecdot(x, x)),
        (gpu_reduce.var(x.cuda(), axis=1), gpu_reduce.var(x, axis=1)),
        (gpu_reduce.vector_norm(x.cuda(), ord=1, copy=True), gpu_reduce.vector_norm(x, ord=1)),
    ]:
        assert got.device.type == "cuda" and got.dtype == host.dtype
        torch.testing.assert_close(got.cpu(), host)


def test_gradients_are_refused():
    with pytest.raises(TypeError, match="detach"):
        gpu_reduce.sum(torch.ones(3, device="cuda", requires_grad=True))


def test_nothing_leaks():
    x = torch.ones(1000, device="cuda")
    for _ in range(10):
        gpu_reduce.sum(x)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(1000):
        gpu_reduce.sum(x)
    gc.collect()
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]) == before
