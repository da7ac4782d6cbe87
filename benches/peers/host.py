"""Times PyTorch's and NumPy's sum of f32 in host memory: PyTorch's with all threads and with one, NumPy's with one.

Nothing to build; what cannot be imported is skipped. Run: python3 host.py

Prints a JSON line a case, as `cargo bench --bench host` does: medians of 15 after 2 to warm up; of short inputs, so many
calls each time that they read as much as 2^20 elements.
"""
import json
import sys
import time


def run(name, n, call):
    calls = max(1, (1 << 20) // n)
    us = []
    for _ in range(17):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        us.append((time.perf_counter_ns() - start) / 1e3 / calls)
    us = sorted(us[2:])[7]
    print(json.dumps({"impl": name, "op": "host_sum", "dtype": "f32", "n": n, "segment": 0, "us": round(us, 3),
                      "gbps": round(n * 4 / us / 1e3, 1)}, separators=(",", ":")), flush=True)


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


peers = []
try:
    import torch
    peers.append(torch_sums)
    print(f"PyTorch on {torch.get_num_threads()} threads", file=sys.stderr)
except ImportError as why:
    print(f"PyTorch skipped: {why}", file=sys.stderr)
try:
    import numpy
    peers.append(numpy_sum)
except ImportError as why:
    print(f"NumPy skipped: {why}", file=sys.stderr)

for peer in peers:
    for n in [1000, 1 << 16, 1 << 20, 1 << 28]:
        peer(n)
