"""Tensors and arrays on a GPU. Skipped where there is none."""

import gc

import numpy as np
import pytest

import gpu_reduce

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

TYPES = ["bool", "float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"]
FUNCTIONS = ["sum", "prod", "min", "max", "argmin", "argmax", "count_nonzero", "mean", "var", "exact_sum"]
OTHERS = [
    "sumsq", "nansum", "compensated_sum", "nanmin", "nanmax", "nanargmin", "nanargmax", "nanmean", "exact_mean", "std",
    "nanvar", "nanstd", "minmax", "moments", "skewness", "kurtosis", "logsumexp", "any", "all", "count_nan",
]  # fmt: skip


def sample(dtype, shape, seed=1):
    numbers = torch.from_numpy(np.random.default_rng(seed).integers(-9, 9, shape)).to(getattr(torch, dtype))
    return numbers / 4 if numbers.is_floating_point() else numbers


def same(got, expected):
    """Whether two results have the same type and bits; NaNs are equal."""
    if isinstance(got, tuple):
        return len(got) == len(expected) and all(map(same, got, expected))
    return got.dtype == expected.dtype and torch.equal(got.cpu().nan_to_num(3), expected.cpu().nan_to_num(3))


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name, dtype):
    function = getattr(gpu_reduce, name)
    for shape in [(1,), (300, 70)]:
        host = sample(dtype, shape)
        if name.startswith("nan") and dtype != "int32":
            host.view(-1)[1::11] = torch.nan
        for axis in [None, *range(len(shape))]:
            for keepdims in [False, True]:
                got = function(host.cuda(), axis=axis, keepdims=keepdims)
                assert same(got, function(host, axis=axis, keepdims=keepdims)), (shape, axis)
                assert all(one.is_cuda and one.is_contiguous() for one in (got if type(got) is tuple else [got]))


def test_orders_in_memory():
    host = sample("float32", (7, 11, 13))
    x = host.cuda()
    for axes in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        there, here = x.permute(axes), host.permute(axes)
        for axis in [0, 1, 2]:
            for name in ["sum", "max", "argmin", "moments"]:
                for keepdims in [False, True]:
                    function = getattr(gpu_reduce, name)
                    got = function(there, axis=axis, keepdims=keepdims)
                    assert same(got, function(here, axis=axis, keepdims=keepdims)), (axes, axis, name)
    assert same(gpu_reduce.sum(x[3:], axis=0).cpu(), gpu_reduce.sum(host[3:], axis=0))
    assert same(gpu_reduce.sum(x[0, 0].neg(), axis=0), gpu_reduce.sum(-host[0, 0], axis=0))
    imaginary = torch.complex(x, x).conj().imag
    assert imaginary.is_neg() and same(gpu_reduce.sum(imaginary.contiguous(), axis=0), gpu_reduce.sum(-host, axis=0))
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


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3)])
def test_arrays_without_elements(shape):
    host = torch.empty(shape)
    for here in [host, torch.empty(shape[::-1]).movedim(0, -1)]:
        x = here.cuda()
        for name in ["sum", "prod", "count_nonzero", "any", "all", "mean", "min", "argmax"]:
            function = getattr(gpu_reduce, name)
            for axis in [None, *range(len(shape))]:
                try:
                    expected = function(here, axis=axis)
                except ValueError:
                    with pytest.raises(ValueError, match="zero-size"):
                        function(x, axis=axis)
                else:
                    got = function(x, axis=axis)
                    assert got.is_cuda and got.shape == expected.shape and same(got, expected), (name, axis)


def test_arguments():
    host = sample("float32", (30, 40))
    x = host.cuda()
    for initial in [3, 0.5, np.float32(2), np.float64(4)]:
        for axis in [None, 0, 1]:
            got = gpu_reduce.sum(x, axis=axis, initial=initial)
            expected = gpu_reduce.sum(host.numpy(), axis=axis, initial=np.float32(initial))
            assert got.is_cuda and same(got, torch.as_tensor(expected)), (initial, axis)
    assert gpu_reduce.prod(x[:1], axis=0, initial=2).tolist() == (2 * host[0]).tolist()
    assert gpu_reduce.sum(x.int(), initial=3).item() == host.int().sum().item() + 3
    assert gpu_reduce.bitwise_and(torch.tensor([6, 3], device="cuda"), initial=10).item() == 2
    got = gpu_reduce.sum(x, axis=1, dtype=torch.float64)
    assert same(got, gpu_reduce.sum(host, axis=1, dtype=torch.float64))
    out = torch.zeros(30, device="cuda")
    assert gpu_reduce.sum(x, axis=1, out=out) is out and same(out, gpu_reduce.sum(host, axis=1))
    with pytest.raises(TypeError, match="out is an object of numpy, but the results are of torch"):
        gpu_reduce.sum(x, axis=1, out=np.zeros(30, "float32"))


def test_nans():
    x = torch.tensor([[torch.nan, 2.0], [torch.nan, torch.nan]], device="cuda")
    assert gpu_reduce.nanargmin(x[:1]).item() == 1
    with pytest.raises(ValueError, match="All-NaN"):
        gpu_reduce.nanargmin(x, axis=1)


@pytest.mark.parametrize("is_side", [False, True])
def test_the_current_stream(is_side):
    with torch.cuda.stream(torch.cuda.Stream() if is_side else torch.cuda.default_stream()):
        x = torch.zeros(1 << 24, device="cuda")
        index = torch.zeros(1 << 24, dtype=torch.int64, device="cuda")
        for number in range(1, 5):
            for _ in range(20):
                x += 1
            total = gpu_reduce.sum(x)
            rows = gpu_reduce.sum(x.reshape(-1, 1024), axis=1)
            twice = total * 2
            # Results go to other calls, in the order of the stream.
            most, of_rows = gpu_reduce.max(rows), gpu_reduce.sum(rows)
            out = torch.zeros(1, device="cuda")
            gpu_reduce.index_add(out, index, x)
            n = 20 * number
            assert total.item() == n << 24 and twice.item() == 2 * (n << 24)
            assert most.item() == n * 1024 and of_rows.item() == n << 24 and out.item() == n << 24


def test_a_call_does_not_wait():
    x = torch.zeros(1 << 27, device="cuda")
    index = torch.zeros(1 << 10, dtype=torch.int64, device="cuda")
    out = torch.zeros(2, device="cuda")
    calls = [
        lambda: gpu_reduce.sum(x),
        lambda: gpu_reduce.sum(x.reshape(-1, 128), axis=1),
        lambda: gpu_reduce.minmax(x),
        lambda: gpu_reduce.mean(x, keepdims=True),
        lambda: gpu_reduce.sum(x, initial=1.0),
        lambda: gpu_reduce.argmax(x),
        lambda: gpu_reduce.index_add(out, index, x[: 1 << 10]),
    ]
    for call in calls:
        call()  # the first one compiles the kernel
    torch.cuda.synchronize()
    for place, call in enumerate(calls):
        for _ in range(100):
            x += 1
        result = call()
        assert not torch.cuda.current_stream().query(), place
        torch.cuda.synchronize()
        del result


def test_graphs():
    x = torch.zeros(1 << 20, device="cuda")
    half = torch.zeros(1 << 20, device="cuda", dtype=torch.float16)
    index = torch.arange(1 << 20, device="cuda") % 4

    def calls():
        sums = gpu_reduce.index_add(torch.zeros(4, device="cuda"), index, x)
        rows = gpu_reduce.sum(x.reshape(-1, 1024), axis=1)
        return gpu_reduce.sum(x), rows, gpu_reduce.minmax(x)[1], gpu_reduce.mean(half), sums

    calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total, rows, most, mean, sums = calls()
    for n in [1, 2, 5]:
        x.fill_(n)
        half.fill_(n)
        graph.replay()
        # Outside of the graph, the same calls do not disturb it.
        assert gpu_reduce.sum(x).item() == n << 20
        assert total.item() == n << 20 and rows.tolist() == [n << 10] * 1024
        assert most.item() == n and mean.item() == n and sums.tolist() == [n << 18] * 4


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
    assert got[0].is_cuda and same(got[0], of_host[0]) and same(got[1], of_host[1])
    texts = np.array(["b", "a"])[keys.numpy() % 2]
    got, of_host = gpu_reduce.group_by([keys.cuda(), texts], x, "sum"), gpu_reduce.group_by([keys, texts], host, "sum")
    assert got[0][0].is_cuda and same(got[0][0], of_host[0][0]) and np.array_equal(got[0][1], of_host[0][1])
    halves = keys.bfloat16()
    assert same(gpu_reduce.group_by(halves.cuda(), x, "sum")[0], gpu_reduce.group_by(halves, host, "sum")[0])
    index = torch.arange(5000, device="cuda") % 7
    assert np.array_equal(torch.as_tensor(gpu_reduce.bincount(index)).cpu(), np.bincount(np.arange(5000) % 7))
    part = gpu_reduce.Partial("sum", "float32")
    part.add(x[:3000])
    part.add(host[3000:])
    assert part.finish() == gpu_reduce.exact_sum(x).item()


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_index_add(dtype):
    rng = np.random.default_rng(3)
    index = torch.from_numpy(rng.integers(0, 7, 3000))
    for columns in [(), (3,)]:
        host, before = sample(dtype, (3000, *columns)), sample(dtype, (7, *columns), 2)
        if dtype in ["float32", "float64"]:
            host = host * torch.from_numpy(rng.random(host.shape)).to(host.dtype)
        expected = gpu_reduce.index_add(before.clone(), index, host)
        for index_type in [torch.int64, torch.int32]:
            for order in [torch.arange(3000), torch.from_numpy(rng.permutation(3000))]:
                out = before.cuda()
                assert gpu_reduce.index_add(out, index[order].to(index_type).cuda(), host[order].cuda()) is out
                assert same(out, expected), (columns, index_type)


def test_index_add_refuses():
    out, x, index = torch.zeros(7, device="cuda"), torch.ones(20, device="cuda"), torch.arange(20, device="cuda") % 7
    for arguments in [(out, index.cpu(), x), (out.cpu(), index, x), (out, index, x.cpu())]:
        with pytest.raises(TypeError, match="on one GPU"):
            gpu_reduce.index_add(*arguments)
    with pytest.raises(TypeError, match="one type"):
        gpu_reduce.index_add(out, index, x.double())
    with pytest.raises(ValueError, match="20 indices"):
        gpu_reduce.index_add(out, index, x[1:])
    with pytest.raises(ValueError, match="contiguous"):
        gpu_reduce.index_add(torch.zeros(7, 2, device="cuda")[:, 0], index, x)
    # A wrong index is found when the GPU gets there: nothing is added.
    for wrong in [-1, 7, 1 << 40, 1 << 62]:
        places = index.clone()
        places[11] = wrong
        assert not gpu_reduce.index_add(out, places, x).any()
        assert not gpu_reduce.index_add(torch.zeros(7, 4, device="cuda"), places, torch.ones(20, 4, device="cuda")).any()
    # PyTorch knows that the elements have changed.
    version = out._version
    assert gpu_reduce.index_add(out, index, x)._version > version
    out.zero_()
    assert gpu_reduce.index_add(torch.zeros(0, device="cuda"), index, x).numel() == 0
    # Elements that are added to themselves.
    x = torch.ones(7, device="cuda")
    assert gpu_reduce.index_add(x, torch.zeros(7, dtype=torch.int64, device="cuda"), x).tolist() == [8, 1, 1, 1, 1, 1, 1]
    assert gpu_reduce.index_add(out, index[:0], x[:0]) is out


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
    host = sample("float64", (7, 11, 13))
    x, flags = host.cuda(), torch.from_numpy(np.random.default_rng(4).random((7, 11, 13)) < 0.4)
    flags[3] = False
    masks = [flags, flags[0], flags[:, :1], torch.zeros(7, 1, 1, dtype=torch.bool), torch.ones(13, dtype=torch.bool)]
    for mask in masks:
        for name in ["sum", "count_nonzero", "mean", "nansum", "var", "min"]:
            function = getattr(gpu_reduce, name)
            for axis in [None, 0, 1, 2, (0, 2), (1, 2)]:
                try:
                    expected = function(host, axis=axis, where=mask)
                except ValueError:
                    with pytest.raises(ValueError, match="zero-size"):
                        function(x, axis=axis, where=mask.cuda(), copy=True)
                else:
                    got = function(x, axis=axis, where=mask.cuda(), copy=True)
                    assert got.device == x.device and same(got, expected), (name, axis)
    got = gpu_reduce.sum(x[:, ::2], axis=1, where=flags.cuda()[:, ::2], copy=True)
    assert same(got, gpu_reduce.sum(host[:, ::2], axis=1, where=flags[:, ::2]))
    assert same(gpu_reduce.sum(x, axis=1, where=flags, copy=True), gpu_reduce.sum(host, axis=1, where=flags))
    with pytest.raises(TypeError, match="booleans"):
        gpu_reduce.sum(x, where=flags.cuda().int(), copy=True)


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
    with pytest.raises(TypeError, match="nansum of complex numbers on a GPU .* copy=True"):
        gpu_reduce.nansum(host.cuda())
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
    x = torch.ones(100, 100, device="cuda")

    def call():
        gpu_reduce.sum(x)
        gpu_reduce.minmax(x, axis=1)
        gpu_reduce.reduce(x, ["sum", "max"], axis=0)

    for _ in range(10):
        call()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(1000):
        call()
    gc.collect()
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]) == before
