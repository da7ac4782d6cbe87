"""Groups of a pandas table, and the variables of an xarray dataset.

pip install pandas xarray && python pandas_groups.py
"""

import numpy as np
import pandas as pd
import xarray as xr

import gpu_reduce


def groups(table, by, column, ops):
    """As table.groupby(by)[column].agg(ops): sums and means do not depend on the order of the rows."""
    keys, results = gpu_reduce.group_by([table[name] for name in by], table[column], ops)
    index = pd.MultiIndex.from_arrays(keys, names=by)
    return pd.DataFrame(dict(zip(ops, results, strict=True)), index=index)


def over(array, dims, op):
    """Reduces an xarray array over dimensions."""
    return array.reduce(getattr(gpu_reduce, op), dim=dims)


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "city": generator.choice(["oslo", "rome", "kyoto"], 1000),
            "year": generator.integers(2020, 2023, 1000),
            "price": generator.standard_normal(1000),
        }
    )
    ours = groups(table, ["city", "year"], "price", ["sum", "max"])
    pd.testing.assert_frame_equal(ours, table.groupby(["city", "year"])["price"].agg(["sum", "max"]))
    print(ours)

    field = xr.DataArray(generator.standard_normal((4, 5, 6)), dims=["time", "lat", "lon"])
    np.testing.assert_allclose(over(field, ["time", "lon"], "mean"), field.mean(["time", "lon"]))
    print(over(field, "time", "max").shape)
