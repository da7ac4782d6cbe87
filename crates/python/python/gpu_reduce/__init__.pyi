from collections.abc import Sequence
from typing import Any, Self, TypeAlias, final, overload

from numpy.typing import ArrayLike, DTypeLike

__version__: str
__all__ = [
    "Partial",
    "Reducer",
    "__version__",
    "all",
    "any",
    "argmax",
    "argmin",
    "bincount",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "compensated_sum",
    "count_nan",
    "count_nonzero",
    "devices",
    "exact_dot",
    "exact_mean",
    "exact_sum",
    "group_by",
    "histogram",
    "index_add",
    "kurtosis",
    "logsumexp",
    "max",
    "mean",
    "min",
    "minmax",
    "moments",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "reduce",
    "segment_reduce",
    "show_config",
    "skewness",
    "std",
    "sum",
    "sumsq",
    "var",
    "vecdot",
    "vector_norm",
]

# Arrays are NumPy's, buffers, DLPack tensors, Arrow arrays, or what NumPy makes an array of. Results are NumPy's scalars
# and arrays, or tensors of the input's library. With copy=True, an array that cannot be reduced where it lies is copied.
_Array: TypeAlias = Any
_Axis: TypeAlias = int | tuple[int, ...] | None
_Where: TypeAlias = ArrayLike | None

def sum(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def prod(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def sumsq(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def nansum(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def compensated_sum(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def bitwise_and(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def bitwise_or(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def bitwise_xor(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def min(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def max(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def nanmin(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def nanmax(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    initial: float | None = None,
    where: _Where = None,
    *,
    copy: bool = False,
) -> _Array: ...
def exact_sum(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def mean(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def nanmean(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def exact_mean(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def skewness(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def kurtosis(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def logsumexp(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def moments(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> tuple[_Array, _Array, _Array, _Array]: ...
def var(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    ddof: float = 0.0,
    keepdims: bool = False,
    *,
    where: _Where = None,
    correction: float | None = None,
    copy: bool = False,
) -> _Array: ...
def std(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    ddof: float = 0.0,
    keepdims: bool = False,
    *,
    where: _Where = None,
    correction: float | None = None,
    copy: bool = False,
) -> _Array: ...
def nanvar(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    ddof: float = 0.0,
    keepdims: bool = False,
    *,
    where: _Where = None,
    correction: float | None = None,
    copy: bool = False,
) -> _Array: ...
def nanstd(
    x: _Array,
    axis: _Axis = None,
    dtype: DTypeLike | None = None,
    out: _Array | None = None,
    ddof: float = 0.0,
    keepdims: bool = False,
    *,
    where: _Where = None,
    correction: float | None = None,
    copy: bool = False,
) -> _Array: ...
def argmin(
    x: _Array,
    axis: int | None = None,
    out: _Array | None = None,
    *,
    keepdims: bool = False,
    copy: bool = False,
) -> _Array: ...
def argmax(
    x: _Array,
    axis: int | None = None,
    out: _Array | None = None,
    *,
    keepdims: bool = False,
    copy: bool = False,
) -> _Array: ...
def nanargmin(
    x: _Array,
    axis: int | None = None,
    out: _Array | None = None,
    *,
    keepdims: bool = False,
    copy: bool = False,
) -> _Array: ...
def nanargmax(
    x: _Array,
    axis: int | None = None,
    out: _Array | None = None,
    *,
    keepdims: bool = False,
    copy: bool = False,
) -> _Array: ...
def any(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def all(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def count_nonzero(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def count_nan(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
def minmax(
    x: _Array,
    axis: _Axis = None,
    out: _Array | None = None,
    keepdims: bool = False,
    *,
    where: _Where = None,
    copy: bool = False,
) -> tuple[_Array, _Array]: ...
@overload
def reduce(
    x: _Array,
    ops: str,
    axis: _Axis = None,
    keepdims: bool = False,
    *,
    ddof: float = 0.0,
    where: _Where = None,
    copy: bool = False,
) -> _Array: ...
@overload
def reduce(
    x: _Array,
    ops: Sequence[str],
    axis: _Axis = None,
    keepdims: bool = False,
    *,
    ddof: float = 0.0,
    where: _Where = None,
    copy: bool = False,
) -> list[_Array]: ...
def vector_norm(
    x: _Array, axis: _Axis = None, keepdims: bool = False, ord: float = 2.0, *, copy: bool = False
) -> _Array: ...
def vecdot(x1: _Array, x2: _Array, axis: int = -1, *, copy: bool = False) -> _Array: ...
def exact_dot(x1: _Array, x2: _Array, axis: int = -1, *, copy: bool = False) -> _Array: ...
@overload
def segment_reduce(x: _Array, offsets: _Array, ops: str, *, ddof: int = 0, copy: bool = False) -> _Array: ...
@overload
def segment_reduce(
    x: _Array, offsets: _Array, ops: Sequence[str], *, ddof: int = 0, copy: bool = False
) -> list[_Array]: ...
@overload
def group_by(keys: _Array, x: _Array, ops: str, *, ddof: int = 0, copy: bool = False) -> tuple[_Array, _Array]: ...
@overload
def group_by(
    keys: _Array, x: _Array, ops: Sequence[str], *, ddof: int = 0, copy: bool = False
) -> tuple[_Array, list[_Array]]: ...
def bincount(x: _Array, weights: _Array | None = None, minlength: int = 0) -> _Array: ...
def histogram(
    x: _Array,
    bins: int | ArrayLike | None = None,
    range: tuple[float, float] | None = None,
    weights: _Array | None = None,
) -> tuple[_Array, _Array]: ...
def index_add(out: _Array, index: _Array, x: _Array) -> _Array: ...

@final
class Partial:
    def __new__(cls, op: str, dtype: DTypeLike, size: int | None = None) -> Self: ...
    def add(self, x: _Array, index: _Array | None = None) -> None: ...
    def merge(self, other: Partial) -> None: ...
    def finish(self) -> _Array: ...

@final
class Reducer:
    def __new__(cls, op: str | Sequence[str], dtype: DTypeLike, len: int | None = None, *, ddof: int = 0) -> Self: ...
    def push(self, x: _Array) -> None: ...
    @property
    def count(self) -> int: ...
    def finish(self) -> Any: ...

def devices() -> list[str]: ...
def show_config() -> dict[str, Any]: ...
