"""Groups of an xarray array by flox: the same bits for any chunks.

pip install flox xarray 'dask[array]' && python xarray_flox.py
"""

import numpy as np
import xarray as xr
from flox import Aggregation
from flox.xarray import xarray_reduce

from gpu_reduce import Partial


def aggregation(op, dtype):
    """flox's aggregation by an operator of gpu_reduce that has parts, of arrays of a type."""

    # The elements of each group along the last axis, in a part.
    def chunk(codes, array, *, size, **_):
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(1, size))
        parts = np.empty((*array.shape[:-1], size), object)
        for row in np.ndindex(array.shape[:-1]):
            for group, elements in enumerate(np.split(array[row][order], starts)):
                parts[(*row, group)] = part = Partial(op, dtype)
                part.add(elements)
        return parts

    def merged(parts):
        whole = Partial(op, dtype)
        for part in parts:
            # flox fills in 0 for groups that a chunk does not have.
            if isinstance(part, Partial):
                whole.merge(part)
        return whole

    def combine(parts, axis, keepdims):
        kept = np.delete(np.arange(parts.ndim), axis)
        rows = parts.transpose(*kept, *axis).reshape(*np.take(parts.shape, kept), -1)
        wholes = np.empty(rows.shape[:-1], object)
        for row in np.ndindex(wholes.shape):
            wholes[row] = merged(rows[row])
        return np.expand_dims(wholes, axis)

    def finalize(parts):
        return np.array([part.finish() for part in parts.flat], dtype).reshape(parts.shape)

    def whole(codes, array, **more):
        return finalize(chunk(codes, array, **more))

    steps = {"numpy": whole, "chunk": chunk, "combine": combine, "finalize": finalize}
    return Aggregation(op, **steps, fill_value=0, dtypes=object, final_dtype=dtype)


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    x = xr.DataArray(generator.standard_normal((3, 600)) * 1e10, dims=["place", "time"], name="x")
    month = xr.DataArray(generator.integers(1, 13, 600), dims="time", name="month")
    chunked = [x.chunk(chunks) for chunks in [{"time": 600}, {"time": 70}, {"place": 1, "time": 201}]]
    for array in [x, *chunked]:
        print(xarray_reduce(array, month, func=aggregation("sum", x.dtype)).values.tobytes().hex())
