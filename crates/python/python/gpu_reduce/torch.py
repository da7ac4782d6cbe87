"""PyTorch operators: reductions of tensors on the CPU and on CUDA GPUs, with gradients.

They take part in autograd, torch.compile, vmap and CUDA graphs. On a GPU a call enqueues its work on PyTorch's
current stream and returns. The results have the bits of gpu_reduce's functions: the same on every device.

>>> import torch
>>> import gpu_reduce.torch
>>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
>>> gpu_reduce.torch.sum(x, dim=1)
tensor([3., 7.], grad_fn=<sumBackward>)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ._native import index_add_into, reduce_into, reduce_tensor

__all__ = ["exact_sum", "index_add", "logsumexp", "mean", "sum"]

_Dim = int | Sequence[int] | None
_Grads = tuple[Tensor | None, ...]

# What each call asks, without looking it up again.
_is_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_transformation = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state

# Whether PyTorch has DLPack's C exchange API: from 2.10 on.
_exchanges = "__dlpack_c_exchange_api__" in vars(Tensor)

# The name of each type in Rust, and the type of its sums.
_TYPES = {
    torch.float16: ("f16", torch.float32),
    torch.bfloat16: ("bf16", torch.float32),
    torch.float32: ("f32", torch.float32),
    torch.float64: ("f64", torch.float64),
    torch.bool: ("u8", torch.int64),
    torch.uint8: ("u8", torch.int64),
    torch.int8: ("i8", torch.int64),
    torch.int16: ("i16", torch.int64),
    torch.int32: ("i32", torch.int64),
    torch.int64: ("i64", torch.int64),
}


class _Reduction:
    """An operator that reduces over some axes. `save` keeps what `backward` needs."""

    def __init__(
        self,
        name: str,
        of_none: float,
        backward: Callable[[Any, Tensor], _Grads],
        save: Callable[[Any, Any, Any], None],
        takes_integers: bool = False,
        is_exact: bool = False,
    ):
        self.name = name
        self.of_none = of_none
        self.backward = backward
        self.save = save

        def forward(ctx: Any, input: Tensor, dim: _Dim, keepdim: bool) -> Tensor:
            output = self.run_plain(input, dim, keepdim)
            save(ctx, (input, dim, keepdim), output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        # Takes a third of the dispatcher's time.
        function: Any = type(name, (torch.autograd.Function,), members)
        self.with_gradient: Callable[..., Tensor] = function.apply
        # By the type of the elements: the operator's and the type's name in Rust, and the types in which the
        # result is computed and returned.
        self.types: dict[torch.dtype, tuple[str, str, torch.dtype, torch.dtype]] = {}
        for dtype, (of_rust, wide) in _TYPES.items():
            if dtype.is_floating_point:
                self.types[dtype] = (name, of_rust, wide, wide if is_exact else dtype)
            elif takes_integers and not (is_exact and dtype == torch.int64):
                self.types[dtype] = ("sum", of_rust, wide, wide)

    def refused(self, dtype: torch.dtype) -> Exception:
        if dtype.is_complex or dtype not in _TYPES:
            return NotImplementedError(f'"gpu_reduce::{self.name}" not implemented for {dtype}')
        if dtype == torch.int64 and self.name == "exact_sum":
            return RuntimeError("exact_sum(): a sum of torch.int64 may not fit a tensor: use gpu_reduce.exact_sum")
        return RuntimeError(f"{self.name}(): Input dtype must be a floating point dtype. Got: {dtype}")

    def result_type(self, dtype: torch.dtype) -> torch.dtype:
        if dtype not in self.types:
            raise self.refused(dtype)
        return self.types[dtype][3]

    def run(self, input: Tensor, dim: _Dim = None, keepdim: bool = False) -> Tensor:
        """Reduces a tensor with elements on the CPU or a GPU."""
        try:
            op, dtype, wide, result = self.types[input.dtype]
        except KeyError:
            raise self.refused(input.dtype) from None
        if dim is None and not keepdim and input.is_contiguous():
            shape: tuple[int, ...] = ()
            strides = shape
            outer, length, inner = 1, input.numel(), 1
        else:
            given = dim if dim is None or isinstance(dim, int) else tuple(dim)
            shape, strides, (outer, length, inner), order = _plan(input.shape, input.stride(), given, keepdim)
            if order is not None:
                input = input.permute(order).contiguous()
        if not outer * length * inner:
            return input.new_full(shape, self.of_none, dtype=result)
        # Takes half the time of `new_empty`.
        if wide is input.dtype:
            out = input.new_empty_strided(shape, strides)
        else:
            out = input.new_empty_strided(shape, strides, dtype=wide)
        device, stream = _place(input)
        arguments = (op, dtype, device, stream, input.data_ptr(), outer, length, inner, out.data_ptr())
        needed = reduce_into(*arguments)
        if needed is not None:
            scratch = input.new_empty(needed, dtype=torch.uint8)
            reduce_into(*arguments, (scratch.data_ptr(), needed))
        return out if wide is result else out.to(result)

    def run_plain(self, input: Tensor, dim: _Dim, keepdim: bool) -> Tensor:
        """As `run`, for a plain tensor. The extension reads it and makes the result by PyTorch's C functions, which
        takes less time."""
        if _exchanges and (types := self.types.get(input.dtype)) is not None:
            op, _, wide, result = types
            out: Tensor | None = reduce_tensor(op, input, dim, keepdim, wide)
            if out is not None:
                return out if wide is result else out.to(result)
        return self.run(input, dim, keepdim)

    def fake(self, input: Tensor, dim: _Dim = None, keepdim: bool = False) -> Tensor:
        shape = _shape(input.shape, _axes(dim, input.dim()), keepdim)
        return input.new_empty(shape, dtype=self.result_type(input.dtype))

    def batched(
        self, info: object, in_dims: tuple[int | None, ...], input: Tensor, dim: _Dim = None, keepdim: bool = False
    ) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        input = input.movedim(in_dims[0], 0)
        axes = [axis + 1 for axis in _axes(dim, input.dim() - 1)]
        if input.dim() == 1:
            input, axes, keepdim = input.unsqueeze(1), [1], False
        return self.call(input, axes, keepdim), 0

    def call(self, input: Tensor, dim: _Dim, keepdim: bool) -> Tensor:
        if _is_plain(input):
            if input.requires_grad and torch.is_grad_enabled():
                return self.with_gradient(input, dim, keepdim)
            return self.run_plain(input, dim, keepdim)
        # The dispatcher's errors for these are of other types than PyTorch's functions raise.
        if not isinstance(input, Tensor):
            raise TypeError(f"{self.name}(): argument 'input' must be Tensor, not {type(input).__name__}")
        if not (dim is None or isinstance(dim, int) or all(isinstance(axis, int) for axis in dim)):
            raise TypeError(f"{self.name}(): argument 'dim' must be tuple of ints, not {dim!r}")
        # It would drop the tangent without a word.
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(input).tangent is not None:
            raise NotImplementedError(f"{self.name}(): forward-mode differentiation is not supported")
        op: Callable[..., Tensor] = getattr(torch.ops.gpu_reduce, self.name).default
        return op(input, dim, keepdim)


def _is_plain(input: Tensor) -> bool:
    """Whether the dispatcher, which takes longer than a small reduction, would only call the kernel, and keep
    what its gradient needs."""
    return (
        not _is_compiling()
        and type(input) is Tensor
        and (input.is_cuda or input.is_cpu)
        and input.layout is torch.strided
        and not input.is_neg()
        and _modes() == 0
        and _transformation() is None
        and _tracing() is None
        and forward_ad._current_level < 0
    )


def _place(tensor: Tensor) -> tuple[int, int]:
    """The number of a tensor's GPU and the current stream there; -1 and none for the CPU."""
    if tensor.is_cuda:
        index = tensor.get_device()
        return index, torch._C._cuda_getCurrentRawStream(index)
    return -1, 0


def _axes(dim: _Dim, axes: int) -> tuple[int, ...]:
    """The axes that are reduced, in ascending order. As in PyTorch, no axis means all of them."""
    if dim is None:
        return tuple(range(axes))
    given = (dim,) if isinstance(dim, int) else tuple(dim)
    most = max(axes, 1)
    reduced = set()
    for axis in map(operator.index, given):
        if not -most <= axis < most:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {axis})"
            )
        axis %= most
        if axis in reduced:
            raise RuntimeError(f"dim {axis} appears multiple times in the list of dims")
        reduced.add(axis)
    return tuple(sorted(reduced))[:axes] if given else tuple(range(axes))


def _shape(shape: Sequence[int], reduced: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """The shape of the result."""
    if keepdim:
        return tuple(1 if axis in reduced else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in reduced)


@lru_cache(maxsize=1024)
def _plan(
    shape: tuple[int, ...], strides: tuple[int, ...], dim: int | tuple[int, ...] | None, keepdim: bool
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, int, int], list[int] | None]:
    """The shape and the strides of the result; three axes, of which the middle one is reduced; and the order into
    which the axes are copied first, if they do not lie like this."""
    reduced = _axes(dim, len(shape))
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    result = _shape(shape, reduced, keepdim)
    # As PyTorch counts them, axes of no elements have one.
    of_result = tuple(prod(max(length, 1) for length in result[axis + 1 :]) for axis in range(len(result)))
    order = sorted((axis for axis, length in enumerate(shape) if length != 1), key=lambda axis: -strides[axis])
    start = next((place for place, axis in enumerate(order) if axis in reduced), len(order))
    within = [axis for axis in order if axis in reduced]
    after = order[start + len(within) :]
    before = order[:start]
    is_dense = all(strides[axis] == prod(shape[inner] for inner in order[i + 1 :]) for i, axis in enumerate(order))
    is_in_order = order == before + within + after and within == sorted(within)
    if is_dense and is_in_order and before + after == sorted(before + after):
        lengths = [prod(shape[axis] for axis in axes) for axes in (before, within, after)]
        return result, of_result, (lengths[0], lengths[1], lengths[2]), None
    lengths = [prod(shape[axis] for axis in axes) for axes in (kept, reduced)]
    return result, of_result, (lengths[0], lengths[1], 1), [*kept, *reduced]


def _index_add(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    dim = _check_index_add(input, dim, index, source)
    dtype, wide = _TYPES[input.dtype]
    rows, items = input.movedim(dim, 0), source.movedim(dim, 0).contiguous()
    sums = torch.empty(rows.shape, dtype=wide, device=input.device).copy_(rows)
    at = index.reshape(-1).to(torch.int64).contiguous()
    columns = prod(rows.shape[1:])
    if columns != 1:
        at = (at.unsqueeze(1) * columns + torch.arange(columns, device=at.device)).reshape(-1)
    if items.numel():
        device, stream = _place(input)
        places = (items.data_ptr(), at.data_ptr(), items.numel(), sums.data_ptr(), sums.numel())
        needed = index_add_into(dtype, device, stream, *places)
        if needed is not None:
            scratch = input.new_empty(needed, dtype=torch.uint8)
            index_add_into(dtype, device, stream, *places, (scratch.data_ptr(), needed))
    return sums.to(input.dtype).movedim(0, dim).contiguous()


def _fake_index_add(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    _check_index_add(input, dim, index, source)
    return input.new_empty(input.shape)


def _check_index_add(input: Tensor, dim: int, index: Tensor, source: Tensor) -> int:
    """Checks the arguments, and returns the axis."""
    if input.dtype not in _TYPES or input.dtype == torch.bool:
        raise NotImplementedError(f'"gpu_reduce::index_add" not implemented for {input.dtype}')
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"index_add(): self ({input.dtype}) and source ({source.dtype}) must have the same scalar type"
        )
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"index_add(): Expected dtype int32/int64 for index but got: {index.dtype}")
    if index.dim() > 1:
        raise IndexError("index_add(): Index is supposed to be a vector")
    if not input.device == index.device == source.device:
        raise RuntimeError(
            f"index_add(): all tensors are on one device, not {input.device}, {index.device}, {source.device}"
        )
    if input.dim() == 0:
        raise IndexError("index_add(): self has no dimensions")
    (axis,) = _axes(dim, input.dim())
    expected = (*input.shape[:axis], index.numel(), *input.shape[axis + 1 :])
    if tuple(source.shape) != expected:
        raise RuntimeError(
            f"index_add(): source has the shape {tuple(source.shape)}, but self and index need {expected}"
        )
    return axis


_library = torch.library.Library("gpu_reduce", "DEF")


def _define(
    name: str,
    arguments: str,
    kernel: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    backward: Callable[..., _Grads],
    save: Callable[..., None],
) -> None:
    _library.define(f"{name}({arguments}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
    for device in ("CPU", "CUDA"):
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"gpu_reduce::{name}", fake, lib=_library)
    torch.library.register_autograd(f"gpu_reduce::{name}", backward, setup_context=save, lib=_library)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    input, dim, keepdim = inputs
    ctx.shape, ctx.dtype = input.shape, input.dtype
    ctx.axes, ctx.keepdim = _axes(dim, input.dim()), keepdim


def _save_exponentials(ctx: Any, inputs: Any, output: Any) -> None:
    _save(ctx, inputs, output)
    ctx.save_for_backward(inputs[0], output)


def _spread(ctx: Any, result: Tensor) -> Tensor:
    """A result or its gradient, for each element that it was reduced from."""
    if not ctx.keepdim:
        for axis in ctx.axes:
            result = result.unsqueeze(axis)
    return result.expand(ctx.shape)


def _sum_backward(ctx: Any, grad: Tensor) -> _Grads:
    return _spread(ctx, grad.to(ctx.dtype)), None, None


def _mean_backward(ctx: Any, grad: Tensor) -> _Grads:
    return _spread(ctx, grad) / prod(ctx.shape[axis] for axis in ctx.axes), None, None


def _logsumexp_backward(ctx: Any, grad: Tensor) -> _Grads:
    input, output = ctx.saved_tensors
    return _spread(ctx, grad) * (input - _spread(ctx, output)).exp(), None, None


def _save_index(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.dim, index, _ = inputs
    ctx.save_for_backward(index)


def _index_add_backward(ctx: Any, grad: Tensor) -> _Grads:
    (index,) = ctx.saved_tensors
    return grad, None, None, grad.index_select(ctx.dim, index.reshape(-1))


_REDUCTIONS = {
    reduction.name: reduction
    for reduction in [
        _Reduction("sum", 0.0, _sum_backward, _save, takes_integers=True),
        _Reduction("mean", float("nan"), _mean_backward, _save),
        _Reduction("logsumexp", float("-inf"), _logsumexp_backward, _save_exponentials),
        _Reduction("exact_sum", 0.0, _sum_backward, _save, takes_integers=True, is_exact=True),
    ]
}

for _name, _of in _REDUCTIONS.items():
    _arguments = "Tensor input, int[1]? dim=None, bool keepdim=False"
    _define(_name, _arguments, _of.run, _of.fake, _of.backward, _of.save)
    torch.library.register_vmap(f"gpu_reduce::{_name}", _of.batched, lib=_library)


_define(
    "index_add",
    "Tensor input, int dim, Tensor index, Tensor source",
    _index_add,
    _fake_index_add,
    _index_add_backward,
    _save_index,
)

_sum, _mean, _logsumexp, _exact_sum = (reduction.call for reduction in _REDUCTIONS.values())


def sum(input: Tensor, dim: _Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum over dimensions, as torch.sum; of integers and booleans in int64.

    >>> import torch
    >>> sum(torch.tensor([[1, 2], [3, 4]]), dim=0)
    tensor([4, 6])
    """
    return _sum(input if dtype is None else input.to(dtype), dim, keepdim)


def mean(input: Tensor, dim: _Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """The arithmetic mean over dimensions, as torch.mean; NaN of no elements.

    >>> import torch
    >>> mean(torch.tensor([1.0, 2.0]))
    tensor(1.5000)
    """
    return _mean(input if dtype is None else input.to(dtype), dim, keepdim)


def logsumexp(input: Tensor, dim: _Dim = None, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials over dimensions, as torch.logsumexp.

    >>> import torch
    >>> logsumexp(torch.tensor([1000.0, 1000.0], dtype=torch.float64), dim=0)
    tensor(1000.6931, dtype=torch.float64)
    """
    return _logsumexp(input, dim, keepdim)


def exact_sum(input: Tensor, dim: _Dim = None, keepdim: bool = False) -> Tensor:
    """The exact sum over dimensions, rounded once to the nearest number: the order of the elements does not
    matter. Of floats of 16 bits it is float32.

    >>> import torch
    >>> exact_sum(torch.tensor([1e30, 1.0, -1e30]))
    tensor(1.)
    """
    return _exact_sum(input, dim, keepdim)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Adds the slices of source along a dimension to those of a copy of input that index names, as
    torch.index_add. Each sum is computed exactly and rounded once (16-bit floats to float32 first): the same bits in any
    order.

    A bad index is an IndexError on the CPU. On a GPU, which the call does not wait for, the result is then a
    copy of input.

    >>> import torch
    >>> index_add(torch.zeros(3), 0, torch.tensor([2, 0, 2]), torch.tensor([1.0, 2.0, 4.0]))
    tensor([2., 0., 5.])
    """
    op: Callable[..., Tensor] = torch.ops.gpu_reduce.index_add.default
    return op(input, dim, index, source)
