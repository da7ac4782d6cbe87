"""gpu_reduce.torch: PyTorch operators. Skipped without PyTorch; what needs a GPU is skipped where there is none."""

import ctypes
import doctest
import gc
import math
import os
import subprocess
import sys
import weakref
from fractions import Fraction

import numpy as np
import pytest

import gpu_reduce
from gpu_reduce._native import reduce_tensor

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
gt = pytest.importorskip("gpu_reduce.torch")

# PyTorch's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*:UserWarning")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
needs_exchange = pytest.mark.skipif(
    "__dlpack_c_exchange_api__" not in vars(torch.Tensor), reason="PyTorch before 2.10 has no C exchange API"
)
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
NAMES = ["sum", "mean", "logsumexp", "exact_sum"]


def sample(dtype, shape, device="cpu", seed=1):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return (torch.rand(shape, generator=generator) < 0.5).to(device)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device)
    return torch.randint(0 if dtype == torch.uint8 else -100, 100, shape, generator=generator, dtype=dtype).to(device)


def assert_same(got, expected):
    """Asserts that two tensors have the same type, shape and bits; NaNs are equal."""
    got, expected = got.detach().cpu(), expected.detach().cpu()
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.is_floating_point():
        integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.itemsize]
        got, expected = [torch.where(x.isnan(), torch.nan, x).view(integers) for x in (got, expected)]
    assert torch.equal(got, expected)


class Foreign(torch.Tensor):
    """A tensor that gpu_reduce takes as another library's: by DLPack, and not by gpu_reduce.torch."""


def of_host(name, x, dim=None, keepdim=False):
    """The result of gpu_reduce's function, which has the same bits on every device."""
    array = getattr(gpu_reduce, name)(x.cpu().as_subclass(Foreign), axis=dim, keepdims=keepdim)
    result = torch.from_numpy(np.asarray(array))
    if x.dtype == torch.bfloat16 and name != "exact_sum":
        return result.to(torch.bfloat16)
    return result.to(torch.int64) if x.dtype == torch.uint8 else result


def test_importing_the_package_does_not_import_pytorch():
    check = "import gpu_reduce, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_examples():
    assert doctest.testmod(gt).failed == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_bits_are_those_of_the_functions(name, device):
    function = getattr(gt, name)
    for dtype in FLOATS + (INTEGERS if "sum" in name and "log" not in name else []):
        if (name, dtype) == ("exact_sum", torch.int64):
            continue
        for shape in [(), (1,), (5000,), (300, 70), (7, 11, 13), (2, 1, 40)]:
            x = sample(dtype, shape, device)
            for dim in [None, *range(len(shape)), (0, -1) if len(shape) > 1 else None]:
                got = function(x, dim)
                assert got.device == x.device and got.is_contiguous()
                assert_same(got, of_host(name, x, dim))
                assert_same(function(x, dim, True), of_host(name, x, dim, True))


@pytest.mark.parametrize("device", DEVICES)
def test_layouts(device):
    x = sample(torch.float32, (6, 7, 8, 9), device)
    for y in [
        x.permute(3, 1, 0, 2),
        x.transpose(0, 1),
        x[:, 1:, ::2],
        x[..., 0],
        x[:1].expand(5, 7, 8, 9),
        x.to(memory_format=torch.channels_last),
        x.flip(0),
    ]:
        for dim in [None, 0, 1, -1, (0, 2), (1, 2), (2, 1, 0)]:
            assert_same(gt.sum(y, dim), of_host("sum", y.contiguous(), dim))
            assert_same(gt.logsumexp(y, dim, True), of_host("logsumexp", y.contiguous(), dim, True))


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_and_types_are_those_of_pytorch(device):
    for shape in [(), (0,), (3, 0), (0, 3), (2, 3), (2, 1, 4)]:
        dims = [None, -1, 0, (), (-1,)] + ([1, (0, 1), [1, 0]] if len(shape) > 1 else [])
        for dim in dims:
            for keepdim in [False, True]:
                # torch.logsumexp fails for no dimension.
                for name in ["sum", "mean"] + ["logsumexp"] * (dim != ()):
                    of_torch = getattr(torch, name)
                    for dtype in [torch.float64, torch.bfloat16] + [torch.int32, torch.bool] * (name == "sum"):
                        x = sample(dtype, shape, device)
                        if dim is None and name == "logsumexp":
                            expected = of_torch(x, tuple(range(x.dim())), keepdim)
                        elif dim is None and not keepdim:
                            expected = of_torch(x)
                        else:
                            expected = of_torch(x, dim, keepdim)
                        got = getattr(gt, name)(x, dim, keepdim)
                        assert (got.shape, got.dtype, got.device) == (expected.shape, expected.dtype, expected.device)
                        torch.testing.assert_close(got, expected, equal_nan=True)


def test_functions_of_the_package():
    """They keep what differs from PyTorch."""
    x = sample(torch.float32, (4, 5))
    for name in NAMES:
        for axis in [None, 0, (0, 1), -1]:
            of_numpy = torch.as_tensor(getattr(gpu_reduce, name)(x.numpy(), axis=axis))
            assert_same(getattr(gpu_reduce, name)(x, axis=axis), of_numpy)
    assert_same(gpu_reduce.sum(x, axis=()), x)
    assert gpu_reduce.mean(x.int()).dtype == torch.float64
    assert gpu_reduce.sum(torch.ones(3, dtype=torch.uint8)).dtype == torch.uint64
    with pytest.raises(np.exceptions.AxisError):
        gpu_reduce.sum(x, axis=2)
    with pytest.raises(TypeError, match="detach"):
        gpu_reduce.sum(x.clone().requires_grad_())


@pytest.mark.parametrize("device", DEVICES)
def test_results_of_the_package_are_tensors_like_pytorch_s(device):
    """Integers, whose sums are the same in any order; types, shapes and layouts of all kinds."""
    unsigned = [torch.uint16, torch.uint32, torch.uint64]
    for dtype in FLOATS + INTEGERS + unsigned:
        of_sum = torch.uint64 if dtype in [torch.uint8, *unsigned] else torch.int64
        of_sum = dtype if dtype.is_floating_point else of_sum
        for shape in [(), (1,), (7,), (0,), (3, 0), (0, 3), (4, 5), (2, 3, 4)]:
            x = (sample(torch.int64, shape).abs() % 3).to(dtype).to(device)
            # On a GPU the elements lie without gaps, and an axis of none is not kept.
            views = [x.mT if x.dim() > 1 else x, x[..., :1] if x.dim() else x] if device == "cpu" else []
            for y in [x, *views]:
                for axis in [None, *range(y.dim() if device == "cpu" or y.numel() else 0)]:
                    expected = y.cpu().double().sum(axis if axis is not None else tuple(range(y.dim()))).to(of_sum)
                    got = gpu_reduce.sum(y, axis=axis)
                    assert (got.device, got.requires_grad) == (y.device, False)
                    assert got.dtype == of_sum and got.shape == expected.shape
                    assert got.tolist() == expected.tolist()
                    if y.shape.numel():
                        assert gpu_reduce.any(y, axis=axis).tolist() == (y.cpu() != 0).sum(axis).bool().tolist()
                        low, high = gpu_reduce.minmax(y, axis=axis)
                        ends = (
                            y.cpu().double().reshape(-1).aminmax()
                            if axis is None
                            else y.cpu().double().aminmax(dim=axis)
                        )
                        assert (low.tolist(), high.tolist()) == (ends.min.tolist(), ends.max.tolist())
                        assert low.dtype == high.dtype == dtype


@pytest.mark.parametrize("device", DEVICES)
def test_views_that_negate_or_conjugate(device):
    """The package's functions take elements from memory, where those of such views are not."""
    z = torch.complex(sample(torch.int64, (3, 4)).double(), sample(torch.int64, (3, 4), seed=2).double()).to(device)
    for view in [z.conj(), z.conj().imag, torch._neg_view(z.real), torch._neg_view(z.conj())]:
        for axis in [None, 0]:
            expected = torch.sum(view) if axis is None else torch.sum(view, axis)
            got = gpu_reduce.sum(view, axis=axis)
            assert (got.dtype, got.device) == (expected.dtype, expected.device)
            assert not got.is_neg() and torch.equal(got, expected.resolve_neg())
            of_subclass = np.asarray(gpu_reduce.sum(view.cpu().as_subclass(Foreign), axis=axis))
            assert np.array_equal(of_subclass, expected.resolve_neg().cpu())
    assert gpu_reduce.count_nonzero(torch._neg_view(torch.ones(3, device=device))).item() == 3


@needs_exchange
@pytest.mark.parametrize("device", DEVICES)
def test_which_tensors_the_extension_reads(device):
    x = sample(torch.int64, (6, 7, 8)).float().to(device)

    def read(x, dim=None, keepdim=False):
        return reduce_tensor("sum", x, dim, keepdim, torch.float32)

    for dim in [None, 0, 2, -1, (0, 1), [1, 2], (2, 0, 1), (), torch.Size([0])]:
        for keepdim in [False, True]:
            assert_same(read(x, dim, keepdim), torch.sum(x, dim, keepdim))
    one = torch.tensor(3.0, device=device)
    for dim in [None, 0, -1, (), (0,)]:
        assert_same(read(one, dim), one)
    with_gradient = x.clone().requires_grad_()
    assert_same(read(with_gradient), torch.sum(x))
    assert not read(with_gradient).requires_grad
    copied = [(x.transpose(0, 1), None), (x[:, 1:], 1), (x, (0, 2)), (x[:1].expand(5, 7, 8), 0), (x.flip(0)[..., 0], 0)]
    wrong = [(x, 3), (x, -4), (x, (0, 0)), (x, (0, -3)), (x, "x"), (x, 0.5), (x, (0.5,)), (one, 1), (one, (0, 0))]
    others = [x.as_subclass(Foreign), torch.nn.Parameter(x), x.to_sparse(), x.to("meta"), np.ones(3), [1.0], None]
    others += [x[:0], x.to(torch.complex64), x.to(torch.float8_e4m3fn)]
    for y, dim in copied + wrong + [(y, None) for y in others]:
        assert read(y, dim) is None
    seen = []
    torch.vmap(lambda y: (seen.append(read(y)), y)[1])(x)
    assert seen == [None]


@needs_exchange
def test_another_version_of_the_exchange_api_is_not_used():
    """Its functions would end the process."""

    class Api(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("pointers", ctypes.c_void_p * 6)]

    table = Api(2, 0, (ctypes.c_void_p * 6)(0, 1, 1, 1, 1, 1))
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"

    class Newer:
        __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), name, None)

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert np.asarray(gpu_reduce.sum(Newer(np.arange(10.0)))) == 45.0
    assert reduce_tensor("sum", Newer(np.arange(10.0)), None, False, None) is None


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_are_let_go(device):
    x = torch.ones(30, 40, device=device)
    calls = [
        lambda f=f, axis=axis: f(x, axis) for f in (gpu_reduce.sum, gpu_reduce.any, gt.sum) for axis in (None, 0, 1)
    ]
    refused = [x.to("meta"), x.to_sparse(), x.clone().requires_grad_()]
    counts = [sys.getrefcount(y) for y in [x, type(x), *refused]]
    for _ in range(1000):
        for call in calls:
            call()
        for y in refused:
            with pytest.raises((TypeError, RuntimeError, BufferError)):
                gpu_reduce.sum(y)
    del y
    assert [sys.getrefcount(y) for y in [x, type(x), *refused]] == counts
    for call in calls:
        result = weakref.ref(call())
        assert result() is None
    # A result outlives the tensor that was reduced.
    rows = sample(torch.int64, (300, 40)).double().to(device)
    expected = rows.sum(1)
    results = [gpu_reduce.sum(rows, axis=1), gt.sum(rows, 1)]
    del rows
    gc.collect()
    torch.ones(300, 40, dtype=torch.float64, device=device)
    for result in results:
        assert_same(result, expected)


def test_memory_of_large_results_is_freed():
    resource = pytest.importorskip("resource")
    x = torch.ones(1 << 18, 2)
    for call in [lambda: gpu_reduce.sum(x, axis=1), lambda: gt.sum(x, 1)]:
        call()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(300):  # of 1 MiB
            call()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_dtype():
    x = torch.full((1000,), 100, dtype=torch.int8)
    assert_same(gt.sum(x, dtype=torch.float64), torch.tensor(1e5, dtype=torch.float64))
    assert_same(gt.mean(x, dtype=torch.float32), torch.tensor(100.0))
    assert gt.sum(torch.ones(3, dtype=torch.float16), dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("arguments", [(2,), (-3,), ((0, 0),), ((0, 2),), ((0, -2),), ("x",), (0.5,), ((0.5,),)])
def test_errors_are_those_of_pytorch(arguments):
    x = torch.ones(2, 3)
    for of_torch, function in [(torch.sum, gt.sum), (torch.logsumexp, gt.logsumexp)]:
        for y in [x, x.clone().requires_grad_()]:
            with pytest.raises(Exception) as expected:
                of_torch(y, *arguments)
            # PyTorch before 2.12 has names of axes, so that no axis of that name is a RuntimeError.
            with pytest.raises(TypeError if arguments == ("x",) else expected.type):
                function(y, *arguments)


def test_types_that_are_refused():
    for dtype in [torch.int64, torch.bool]:
        with pytest.raises(RuntimeError, match=r"mean\(\): .*int64|bool"):
            gt.mean(torch.ones(3, dtype=dtype))
    with pytest.raises(RuntimeError, match="may not fit"):
        gt.exact_sum(torch.ones(3, dtype=torch.int64))
    for x in [torch.ones(3, dtype=torch.complex64), torch.ones(3, dtype=torch.uint32)]:
        with pytest.raises(NotImplementedError, match="not implemented"):
            gt.sum(x)
    with pytest.raises(NotImplementedError):
        gt.sum(torch.ones(3).to_sparse())
    with pytest.raises(TypeError, match="must be Tensor"):
        gt.sum([1.0, 2.0])


def calls(device, dtype=torch.float64):
    """The operators with arguments."""
    ops = torch.ops.gpu_reduce
    shapes = [((), None, False), ((5,), [0], True), ((3, 4, 5), [0, 2], False), ((3, 4), None, False)]
    for shape, dim, keepdim in shapes:
        for name in NAMES:
            yield getattr(ops, name).default, (sample(dtype, shape, device), dim, keepdim)
    index = torch.tensor([2, 0, 2, 1], device=device)
    yield ops.index_add.default, (sample(dtype, (3,), device), 0, index, sample(dtype, (4,), device))
    yield ops.index_add.default, (sample(dtype, (2, 3), device), 1, index, sample(dtype, (2, 4), device))


def with_gradients(arguments):
    return tuple(x.clone().requires_grad_() if torch.is_tensor(x) and x.is_floating_point() else x for x in arguments)


@pytest.mark.parametrize("device", DEVICES)
def test_operators_are_well_made(device):
    for op, arguments in calls(device):
        torch.library.opcheck(op, arguments)
        torch.library.opcheck(op, with_gradients(arguments))
    torch.library.opcheck(torch.ops.gpu_reduce.sum.default, (sample(torch.float16, (3, 4), device).t(), [0]))
    torch.library.opcheck(torch.ops.gpu_reduce.exact_sum.default, (sample(torch.bfloat16, (3, 4), device), [0]))
    torch.library.opcheck(torch.ops.gpu_reduce.sum.default, (sample(torch.bool, (3, 4), device),))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    for op, arguments in calls(device):
        arguments = with_gradients(arguments)
        assert torch.autograd.gradcheck(op, arguments)
        assert torch.autograd.gradgradcheck(op, arguments)
        # The same without the dispatcher.
        function = getattr(gt, op.name().removeprefix("gpu_reduce::"))
        assert torch.autograd.gradcheck(function, arguments)
        assert torch.autograd.gradgradcheck(function, arguments)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_pytorch(device):
    inf = math.inf
    rows = [[1.0, 2.0, -3.0], [0.0, -inf, 1.0], [-inf, -inf, -inf], [inf, 1.0, 2.0], [math.nan, 1.0, 2.0]]
    for dtype in [torch.float32, torch.float64]:
        for name in ["sum", "mean", "logsumexp"]:
            grads = []
            for function in [getattr(torch, name), getattr(gt, name)]:
                x = torch.tensor(rows, dtype=dtype, device=device, requires_grad=True)
                (function(x, 1) * torch.arange(1.0, 6.0, dtype=dtype, device=device)).nan_to_num(0).sum().backward()
                grads.append(x.grad)
            torch.testing.assert_close(grads[1], grads[0], equal_nan=True)
    x = sample(torch.float16, (4, 5), device).requires_grad_()
    gt.exact_sum(x, 1).sum().backward()
    assert_same(x.grad, torch.ones(4, 5, dtype=torch.float16))
    with torch.no_grad():
        assert not gt.sum(x).requires_grad


def model(x, index, source):
    """Every operator once."""
    parts = [gt.sum(x * 2, 1), gt.mean(x, 0, True).squeeze(0), gt.logsumexp(x, (0, 1)), gt.exact_sum(x, 1)]
    added = gt.index_add(x, 0, index, source)
    return [*parts, added], gt.sum(added.sin() * parts[0].unsqueeze(1) + parts[1] * parts[2] * parts[3].unsqueeze(1))


def operands(device, dtype=torch.float32, rows=6):
    index = torch.tensor([0, 3, 3, 1, 0, 5, 5], device=device)
    return sample(dtype, (rows, 50), device), index, sample(dtype, (7, 50), device, 2)


def assert_model_is_same(compiled, arguments):
    of_eager, of_compiled = with_gradients(arguments), with_gradients(arguments)
    (expected, loss), (got, of_loss) = model(*of_eager), compiled(*of_compiled)
    for a, b in zip(got, expected):
        assert_same(a, b)
    loss.backward()
    of_loss.backward()
    for a, b in zip(of_compiled, of_eager):
        if a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("device", DEVICES)
def test_compile(device):
    torch._dynamo.reset()
    backend = "aot_eager" if device == "cpu" else "inductor"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    assert_model_is_same(compiled, operands(device))
    dynamic = torch.compile(model, fullgraph=True, backend=backend, dynamic=True)
    for rows in [6, 9, 20]:
        assert_model_is_same(dynamic, operands(device, rows=rows))
    whole = torch.compile(lambda x: (gt.sum(x), gt.sum(x.t(), 0), gt.sum(x.half())), fullgraph=True, backend=backend)
    x = sample(torch.float32, (300, 400), device)
    for got, expected in zip(whole(x), [gt.sum(x), gt.sum(x, 1), gt.sum(x.half())]):
        assert_same(got, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_vmap(device):
    x = sample(torch.float32, (5, 6, 7), device)
    for name in NAMES:
        function = getattr(gt, name)
        for in_dim in range(3):
            y = x.movedim(in_dim, 0)
            for dim in [None, 0, (0, -1)]:
                for keepdim in [False, True]:
                    got = torch.vmap(lambda x: function(x, dim, keepdim), in_dims=in_dim)(x)
                    assert_same(got, torch.stack([function(one, dim, keepdim) for one in y]))
        assert_same(torch.vmap(function)(x[0, 0]), torch.stack([function(one) for one in x[0, 0]]))


def test_what_is_more_than_a_plain_tensor_is_dispatched():
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.arange(6.0).reshape(2, 3)
    with FakeTensorMode():
        assert gt.sum(torch.ones(2, 3), 0).shape == (3,)
    assert gt.sum(torch.ones(2, 3, device="meta"), 1).shape == (2,)
    traced = make_fx(lambda x: gt.sum(x, 1))(x)
    assert any("gpu_reduce" in str(node.target) for node in traced.graph.nodes)
    assert_same(traced(x + 1), gt.sum(x + 1, 1))
    negated = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert negated.is_neg() and gt.sum(negated).item() == -6.0
    assert_same(gt.sum(torch.nn.Parameter(x)), gt.sum(x))
    with torch.inference_mode():
        assert gt.sum(x).item() == 15.0
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="forward-mode"):
            gt.sum(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


def exactly(input, index, source):
    """The sums by index as fractions, rounded once."""
    sums = [Fraction(value) for value in input.tolist()]
    for place, value in zip(index.tolist(), source.tolist()):
        sums[place] += Fraction(value)
    return torch.tensor([float(total) for total in sums], dtype=torch.float64)


@pytest.mark.parametrize("device", DEVICES)
def test_index_add_is_exact_in_any_order(device):
    input, source = sample(torch.float64, (20,)), sample(torch.float64, (3000,), seed=2)
    source *= torch.logspace(-12, 12, 3000, dtype=torch.float64)
    index = torch.randint(0, 20, (3000,), generator=torch.Generator().manual_seed(3))
    expected = exactly(input, index, source)
    for seed in range(5):
        order = torch.randperm(3000, generator=torch.Generator().manual_seed(seed))
        got = gt.index_add(input.to(device), 0, index[order].to(device), source[order].to(device))
        assert_same(got, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_index_add(device):
    for dtype in FLOATS + INTEGERS[1:]:
        for shape, dim in [((9,), 0), ((9, 4), 0), ((4, 9), 1), ((4, 9), -1), ((2, 9, 3), 1), ((9, 1), 0)]:
            input = sample(dtype, shape, device)
            before = input.clone()
            of_source = [30 if length == 9 else length for length in shape]
            source = sample(dtype, of_source, device, 2)
            index = sample(torch.int64, (30,), device, 3) % 9
            expected = torch.index_add(input.double(), dim, index, source.double())
            got = gt.index_add(input, dim, index, source)
            assert (got.dtype, got.shape, got.device) == (input.dtype, input.shape, input.device)
            assert got.is_contiguous() and torch.equal(input, before)
            if dtype.is_floating_point:
                tolerance = 4 * torch.finfo(dtype).eps
                torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=20 * tolerance)
            else:
                assert_same(got, torch.index_add(input, dim, index, source))
            assert_same(gt.index_add(input, dim, index.int(), source), got)
            of_strides = gt.index_add(input.transpose(0, -1), -1 - dim % len(shape), index, source.transpose(0, -1))
            assert_same(of_strides, got.transpose(0, -1))
    empty = torch.ones(3, 0, device=device)
    assert gt.index_add(empty, 0, torch.tensor([1], device=device), empty[:1]).shape == (3, 0)
    none = torch.zeros(0, dtype=torch.int64, device=device)
    assert_same(gt.index_add(torch.ones(3, device=device), 0, none, torch.ones(0, device=device)), torch.ones(3))


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 2},
        {"dim": -3},
        {"index": torch.zeros(2, 2, dtype=torch.int64)},
        {"index": torch.zeros(4)},
        {"index": torch.zeros(3, dtype=torch.int64)},
        {"source": torch.ones(4, 3)},
        {"source": torch.ones(4, 2, dtype=torch.float64)},
    ],
)
def test_errors_of_index_add_are_those_of_pytorch(change):
    index = torch.tensor([0, 1, 2, 0])
    arguments = {"input": torch.ones(3, 2), "dim": 0, "index": index, "source": torch.ones(4, 2)} | change
    with pytest.raises(Exception) as expected:
        torch.index_add(**arguments)
    with pytest.raises(expected.type):
        gt.index_add(**arguments)


def test_a_wrong_index_is_an_error():
    for wrong in [3, -1]:
        with pytest.raises(IndexError, match=f"{wrong}"):
            gt.index_add(torch.ones(3), 0, torch.tensor([0, wrong]), torch.ones(2))


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_leaks(device):
    if device == "cpu":
        resource = pytest.importorskip("resource")

        def used():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 4096
    else:

        def used():
            torch.cuda.synchronize()
            return torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]

    x = torch.ones(30, 40, device=device)
    index = torch.arange(30, device=device) % 7

    def call():
        gt.sum(x), gt.sum(x, 0), gt.sum(x, 1), gt.mean(x.t(), 1), gt.index_add(x, 0, index, x)

    for _ in range(20):
        call()
    gc.collect()
    before = used()
    for _ in range(1000):
        call()
    gc.collect()
    assert used() == before


@needs_gpu
def test_streams():
    x = torch.zeros(1 << 22, device="cuda")
    rows = x.reshape(1 << 11, 1 << 11)
    sides = [torch.cuda.Stream() for _ in range(4)]
    # The first calls compile the kernels.
    gt.sum(x), gt.sum(rows, 0), gt.sum(rows, 1)
    torch.cuda.synchronize()
    for number in range(8):
        side = sides[number % 4]
        side.wait_stream(sides[(number - 1) % 4])
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            x += 1
            results = gt.sum(x), gt.sum(rows, 0), gt.sum(rows, 1)
            # The work before is not done: the calls did not wait. The first ones on a stream allocate.
            assert number < 4 or not side.query()
            side.synchronize()
            for result, len in zip(results, [1 << 22, 1 << 11, 1 << 11]):
                assert (result == len * (number + 1)).all()


@needs_gpu
def test_results_may_be_used_on_another_stream():
    """PyTorch does not use their memory again before `record_stream`'s stream is done."""
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, 4, device="cuda")
    gt.sum(x, 1)
    for _ in range(5):
        result = gt.sum(x, 1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            copy = result.clone()
        result.record_stream(side)
        del result
        others = [torch.zeros(1 << 20, device="cuda") for _ in range(4)]
        side.synchronize()
        assert (copy == 4).all() and len(others) == 4


@needs_gpu
def test_functions_of_the_package_wait_for_the_current_stream():
    x = torch.zeros(1 << 22, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for number in range(3):
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            x += 1
            assert gpu_reduce.sum(x).item() == x.numel() * (number + 1)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="PyTorch finds fewer than two GPUs")
def test_the_tensor_s_gpu_need_not_be_the_current_one():
    x = torch.ones(1000, device="cuda:1")
    assert torch.cuda.current_device() == 0
    for function in [gpu_reduce.sum, gt.sum]:
        got = function(x)
        assert got.device == x.device and got.item() == 1000


@needs_gpu
@pytest.mark.parametrize("allocator", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_allocators(allocator):
    # cudaMallocAsync gives addresses in a capture that the driver does not know before the graph is launched.
    check = f"""
import torch, gpu_reduce.torch as gt
x = torch.ones(1 << 26, device="cuda")
for y in [x, torch.ones(3, 1 << 24, device="cuda")[1], x[1 << 20 :]]:
    assert gt.sum(y).item() == y.numel()
if {allocator.startswith("expandable")}:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = gt.sum(x)
    x += 1
    graph.replay()
    assert total.item() == 2 * x.numel()
"""
    environment = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": allocator, "PYTORCH_ALLOC_CONF": allocator}
    subprocess.run([sys.executable, "-c", check], check=True, env=environment)


@needs_gpu
def test_index_add_has_the_same_bits_every_time():
    size, len = 1000, 1 << 20
    index = torch.randint(0, size, (len,), device="cuda")
    source = torch.randn(len, device="cuda") * torch.randn(len, device="cuda").exp()
    input = torch.randn(size, device="cuda")
    expected = gt.index_add(input, 0, index, source)
    assert_same(gt.index_add(input.cpu(), 0, index.cpu(), source.cpu()), expected)
    for _ in range(20):
        order = torch.randperm(len, device="cuda")
        assert_same(gt.index_add(input, 0, index[order], source[order]), expected)
    rows = source.reshape(-1, 64)
    into = torch.zeros(100, 64, device="cuda")
    of_rows = gt.index_add(into, 0, index[: rows.shape[0]] % 100, rows)
    for _ in range(20):
        order = torch.randperm(rows.shape[0], device="cuda")
        assert_same(gt.index_add(into, 0, index[order] % 100, rows[order]), of_rows)


@needs_gpu
def test_a_wrong_index_on_a_gpu_changes_nothing():
    input, source = torch.arange(3.0, device="cuda"), torch.ones(4, device="cuda")
    for wrong in [3, -1]:
        index = torch.tensor([0, 1, 2, wrong], device="cuda")
        assert_same(gt.index_add(input, 0, index, source), input)


def captured(call):
    """Captures a call in a CUDA graph, and returns the graph and the call's results."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    return graph, results


def of_all(x, index, source):
    """Results by every operator, of a whole tensor, of rows and of columns."""
    parts = [function(x, dim) for function in map(gt.__dict__.get, NAMES) for dim in [None, 0, 1]]
    return [*parts, gt.sum(x.half(), 1), gt.index_add(x, 0, index, source)]


@needs_gpu
@pytest.mark.parametrize("shape", [(3, 5), (40, 50), (3000, 1000), (4, 1 << 18), (1 << 18, 4)])
def test_graphs(shape):
    x = torch.randn(shape, device="cuda")
    index = torch.randint(0, shape[0], (100,), device="cuda")
    source = torch.randn(100, shape[1], device="cuda")
    graph, results = captured(lambda: of_all(x, index, source))
    for seed in range(5):
        x.copy_(sample(torch.float32, shape, "cuda", seed))
        source.copy_(sample(torch.float32, source.shape, "cuda", seed + 100))
        index.copy_((index * 7 + seed) % shape[0])
        expected = of_all(x, index, source)
        graph.replay()
        # What is enqueued beside it does not share its memory.
        beside = torch.cuda.Stream()
        with torch.cuda.stream(beside):
            again = of_all(x, index, source)
        torch.cuda.synchronize()
        for got, other, wanted in zip(results, again, expected):
            assert_same(got, wanted)
            assert_same(other, wanted)


@needs_gpu
def test_graphs_run_side_by_side():
    inputs = [torch.randn(4000, 1000, device="cuda") for _ in range(3)]
    graphs = [captured(lambda x=x: (gt.sum(x), gt.sum(x, 0), gt.sum(x, 1))) for x in inputs]
    expected = [[gt.sum(x), gt.sum(x, 0), gt.sum(x, 1)] for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(20):
        for (graph, _), stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for (_, results), wanted in zip(graphs, expected):
        for got, value in zip(results, wanted):
            assert_same(got, value)


@needs_gpu
def test_training_in_a_graph():
    x = torch.randn(64, 100, device="cuda", requires_grad=True)

    def step():
        x.grad = None
        gt.mean(gt.logsumexp(x * 3, 1)).backward()
        return x.grad

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        of_graph = step()
    with torch.no_grad():
        x.copy_(torch.randn(64, 100, device="cuda"))
    graph.replay()
    got = of_graph.clone()
    assert_same(got, step())


@needs_gpu
def test_compile_with_graphs():
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    for seed in range(5):
        arguments = operands("cuda")
        arguments[0].copy_(sample(torch.float32, arguments[0].shape, "cuda", seed))
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            for got, expected in zip(compiled(*arguments)[0], model(*arguments)[0]):
                assert_same(got.clone(), expected)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        assert_model_is_same(compiled, operands("cuda"))
