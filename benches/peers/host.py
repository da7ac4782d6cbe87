"""Times PyTorch's and NumPy's reductions of data in host memory.

PyTorch runs with all threads and with one, NumPy with one. The cases are sums of f32 at four lengths, and all
of the library's operators that PyTorch or NumPy has, of f32 and f64, at 10^5 and 10^7 elements.

Run: python3 host.py
Libraries that cannot be imported are skipped.

Prints a JSON line per case, like `cargo bench --bench host`. Times are medians of 15 runs after 2 to warm up.
A run of a short input has as many calls as read 2^20 elements.
"""
import json
import sys
import time


def run(name, n, call, op="sum", dtype="f32"):
    calls = max(1, (1 << 20) // n)
    us = []
    for _ in range(17):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        us.append((time.perf_counter_ns() - start) / 1e3 / calls)
    us = sorted(us[2:])[7]
    print(json.dumps({"impl": name, "op": "host_" + op, "dtype": dtype, "n": n, "segment": 0, "us": round(us, 3),
                      "gbps": round(n * int(dtype[1:]) / 8 / us / 1e3, 1)}, separators=(",", ":")), flush=True)


def torch_sums(n):
    x = torch.arange(n).remainder(1000).to(torch.float32).mul(1e-3).sub(0.5)
    name, threads = "torch-" + torch.__version__.split("+")[0], torch.get_num_threads()
    run(name, n, x.sum)
    torch.set_num_threads(1)
    run(name + "-1-thread", n, x.sum)
    torch.set_num_threads(threads)


def numpy_sum(n):
    x = (numpy.arange(n) % 1000).astype(numpy.float32) * numpy.float32(1e-3) - numpy.float32(0.5)
    run("numpy-" + numpy.__version__, n, x.sum)


def numpy_operators(n, dtype):
    x = ((numpy.arange(n) % 1000 - 499.5) * 1e-6 + 1).astype("f%d" % (int(dtype[1:]) // 8))
    norm = numpy.linalg.norm
    calls = {
        "sum": x.sum, "prod": x.prod, "sumsq": lambda: numpy.dot(x, x), "min": x.min, "max": x.max,
        "argmin": x.argmin, "argmax": x.argmax, "argminmax": lambda: (x.argmin(), x.argmax()),
        "minmax": lambda: (x.min(), x.max()), "mean": x.mean, "var": x.var, "std": x.std,
        "norm_l1": lambda: norm(x, 1), "norm_l2": lambda: norm(x), "norm_max": lambda: norm(x, numpy.inf),
        "any": x.any, "all": x.all, "count_nonzero": lambda: numpy.count_nonzero(x),
        "count_nan": lambda: numpy.count_nonzero(numpy.isnan(x)), "nansum": lambda: numpy.nansum(x),
        "nanmin": lambda: numpy.nanmin(x), "nanmax": lambda: numpy.nanmax(x),
        "nanargmin": lambda: numpy.nanargmin(x), "nanargmax": lambda: numpy.nanargmax(x),
        "nanmean": lambda: numpy.nanmean(x), "nanvar": lambda: numpy.nanvar(x), "nanstd": lambda: numpy.nanstd(x),
    }
    for op, call in calls.items():
        run("numpy-" + numpy.__version__, n, call, op, dtype)


def torch_operators(n, dtype):
    x = torch.arange(n, dtype=torch.float64).remainder(1000).sub(499.5).mul(1e-6).add(1)
    x = x.to(getattr(torch, "float" + dtype[1:]))
    norm = torch.linalg.vector_norm
    calls = {
        "sum": x.sum, "prod": x.prod, "sumsq": lambda: torch.dot(x, x), "min": x.min, "max": x.max,
        "argmin": x.argmin, "argmax": x.argmax, "argminmax": lambda: (x.argmin(), x.argmax()),
        "minmax": x.aminmax, "mean": x.mean, "var": lambda: x.var(correction=0), "std": lambda: x.std(correction=0),
        "norm_l1": lambda: norm(x, 1), "norm_l2": lambda: norm(x), "norm_max": lambda: norm(x, float("inf")),
        "any": x.any, "all": x.all, "count_nonzero": x.count_nonzero, "count_nan": lambda: x.isnan().sum(),
        "nansum": x.nansum, "nanmean": x.nanmean,
    }
    name, threads = "torch-" + torch.__version__.split("+")[0], torch.get_num_threads()
    for op, call in calls.items():
        run(name, n, call, op, dtype)
        torch.set_num_threads(1)
        run(name + "-1-thread", n, call, op, dtype)
        torch.set_num_threads(threads)


peers, operators = [], []
try:
    import torch
    peers.append(torch_sums)
    operators.append(torch_operators)
    print(f"PyTorch on {torch.get_num_threads()} threads", file=sys.stderr)
except ImportError as why:
    print(f"PyTorch skipped: {why}", file=sys.stderr)
try:
    import numpy
    peers.append(numpy_sum)
    operators.append(numpy_operators)
except ImportError as why:
    print(f"NumPy skipped: {why}", file=sys.stderr)

for peer in peers:
    for n in [1000, 1 << 16, 1 << 20, 1 << 28]:
        peer(n)
for peer in operators:
    for dtype in ["f32", "f64"]:
        for n in [10**5, 10**7]:
            peer(n, dtype)
