"""Sums of a dask array: the same bits for any chunks, workers and order.

pip install 'dask[array]' && python dask_sums.py
"""

import dask.array as da
import numpy as np

from gpu_reduce import Partial


def reduction(x, op):
    """Reduces a dask array as a whole by an operator of gpu_reduce that has parts."""

    # Without elements, dask only asks for the kind of result.
    def chunk(piece, axis, keepdims, computing_meta=False):
        if computing_meta:
            return piece
        part = Partial(op, piece.dtype)
        part.add(piece)
        return part

    def merged(parts):
        parts = list(flattened(parts))
        whole = Partial(op, x.dtype)
        for part in parts:
            whole.merge(part)
        return whole

    def combine(parts, axis, keepdims, computing_meta=False):
        return parts if computing_meta else merged(parts)

    def aggregate(parts, axis, keepdims, computing_meta=False):
        return parts if computing_meta else np.asarray(merged(parts).finish())

    dtype = np.asarray(Partial("sum", x.dtype).finish()).dtype
    return da.reduction(
        x, chunk=chunk, combine=combine, aggregate=aggregate, concatenate=False, dtype=dtype, meta=np.empty((), dtype)
    )


def flattened(parts):
    if isinstance(parts, Partial):
        yield parts
    else:
        for part in parts:
            yield from flattened(part)


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((2000, 700)) * 1e10
    for chunks in [(2000, 700), (13, 700), (500, 99), "auto"]:
        print(repr(float(reduction(da.from_array(x, chunks=chunks), "sum").compute())))
