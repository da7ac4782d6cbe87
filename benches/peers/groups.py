"""Times sums by index of data in host memory: NumPy, polars, DuckDB.

The indices and values are those of `cargo bench --bench groups -- --device cpu`, which prints the same lines:
uniform indices, values uniform in ±1 (of integers 0..128).

Run: python3 groups.py [THREADS [LOG2 [GROUPS,...]]]
Libraries that cannot be imported are skipped. NumPy has one thread. polars and DuckDB get groups without an
order, and do not know the number of groups.

Prints a JSON line per case. Times are medians of 5 runs after 1 to warm up.
"""
import json
import os
import sys
import time

threads = sys.argv[1] if len(sys.argv) > 1 else str(os.cpu_count())
n = 1 << int(sys.argv[2] if len(sys.argv) > 2 else 26)
counts = [int(count) for count in (sys.argv[3] if len(sys.argv) > 3 else "10,10000,1000000").split(",")]
os.environ["POLARS_MAX_THREADS"] = threads

import numpy


def run(name, groups, call):
    us = []
    for _ in range(6):
        start = time.perf_counter_ns()
        call()
        us.append((time.perf_counter_ns() - start) / 1e3)
    us = sorted(us[1:])[2]
    print(json.dumps({"impl": name, "data": "uniform", "skew": 0, "groups": groups, "n": n, "us": round(us, 1),
                      "Gitems": round(n / us / 1e3, 2)}, separators=(",", ":")), flush=True)


def hashes(first):
    """As in benches/common/kinds.rs."""
    h = (numpy.arange(first, first + n, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return h ^ (h >> numpy.uint64(31))


def numpy_sums(indices, values, dtype, groups):
    name = "numpy-" + numpy.__version__
    sums = numpy.zeros(groups, values.dtype)
    for index in [indices, indices.astype(numpy.int64)]:
        run(f"{name} add.at {dtype} by i{8 * index.itemsize}", groups, lambda: numpy.add.at(sums, index, values))
        if dtype[0] == "f":
            run(f"{name} bincount {dtype} by i{8 * index.itemsize}", groups,
                lambda: numpy.bincount(index, weights=values, minlength=groups))


def polars_sums(indices, values, dtype, groups):
    import polars
    frame = polars.DataFrame({"i": indices, "x": values})
    for op in ["sum", "mean"]:
        aggregate = getattr(polars.col("x"), op)()
        run(f"polars-{polars.__version__} {op} {dtype}", groups, lambda: frame.group_by("i").agg(aggregate))


def duckdb_sums(indices, values, dtype, groups):
    import duckdb
    connection = duckdb.connect()
    connection.execute(f"set threads = {threads}")
    columns = {"i": indices, "x": values}
    connection.execute("create table items as select i, x from columns")
    for op in ["sum", "avg"]:
        query = f"select i, {op}(x) from items group by i"
        run(f"duckdb-{duckdb.__version__} {op} {dtype}", groups, lambda: connection.execute(query).fetchnumpy())


print(f"{threads} threads", file=sys.stderr)
uniform = (hashes(0) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-52 - 1
integers = (hashes(0) & numpy.uint64(0xFF)) >> numpy.uint64(1)
parts = (hashes(77) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53
for count in counts:
    of_items = (parts * count).astype(numpy.int32)
    for dtype, items in [("f32", uniform.astype(numpy.float32)), ("f64", uniform),
                         ("i32", integers.astype(numpy.int32)), ("i64", integers.astype(numpy.int64))]:
        for peer in [numpy_sums, polars_sums, duckdb_sums]:
            try:
                peer(of_items, items, dtype, count)
            except ImportError as why:
                print(f"skipped: {why}", file=sys.stderr)
