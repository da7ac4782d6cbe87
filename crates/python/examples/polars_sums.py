"""Operators of gpu_reduce in polars' expressions.

A plugin in Rust would have to be compiled with polars. `map_batches` hands over the column as Arrow arrays.

pip install polars && python polars_sums.py
"""

import numpy as np
import polars as pl

import gpu_reduce


def reduced(column, op):
    """An expression with the result of an operator on a column."""
    function = getattr(gpu_reduce, op)
    return pl.col(column).map_batches(lambda series: function(series), returns_scalar=True, return_dtype=pl.Float64)


def groups(table, by, column, op):
    """As table.group_by(by).agg(...).sort(by): sums and means do not depend on the order of the rows."""
    keys, results = gpu_reduce.group_by([table[name] for name in by], table[column], op)
    return pl.DataFrame(dict(zip(by, keys, strict=True)) | {column: results})


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    x = generator.standard_normal(5000) * 1e10
    table = pl.DataFrame({"city": generator.choice(["oslo", "rome"], 5000), "year": np.arange(5000) % 7, "x": x})
    for table in [table, table.sort("x"), table.sample(fraction=1.0, shuffle=True, seed=1), table.reverse()]:
        total = table.lazy().select(reduced("x", "exact_sum")).collect().item()
        print(repr(total), groups(table, ["city", "year"], "x", "sum")["x"].to_numpy().tobytes().hex())
