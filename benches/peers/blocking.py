"""Times PyTorch's and CuPy's sum as a blocking call, with f32 on the device and the result on the host.

Run: python3 blocking.py
Libraries that cannot be imported are skipped.

Prints a JSON line per case, like the `blocking_sum` of `cargo bench --bench latency`. Times are by the host's
clock: medians of 1,000 calls after 100 to warm up, or of 100 after 10 for the longest input.
"""
import json
import sys
import time


def median_us(call, times):
    us = []
    for _ in range(times + times // 10):
        start = time.perf_counter_ns()
        call()
        us.append((time.perf_counter_ns() - start) / 1e3)
    return sorted(us[times // 10:])[times // 2]


def torch_sum(n):
    x = torch.arange(n, device="cuda").remainder(1000).to(torch.float32).mul(1e-3).sub(0.5)
    torch.cuda.synchronize()
    return lambda: x.sum().item()


def cupy_sum(n):
    x = (cupy.arange(n) % 1000).astype(cupy.float32) * cupy.float32(1e-3) - cupy.float32(0.5)
    cupy.cuda.Device().synchronize()
    return lambda: x.sum().get()


peers = []
try:
    import torch
    torch.empty(1, device="cuda")
    peers.append(("torch-" + torch.__version__.split("+")[0], torch_sum))
except Exception as why:
    print(f"PyTorch skipped: {why}", file=sys.stderr)
try:
    import cupy
    cupy.empty(1)
    peers.append(("cupy-" + cupy.__version__, cupy_sum))
except Exception as why:
    print(f"CuPy skipped: {why}", file=sys.stderr)

for name, peer in peers:
    for n in [1, 1 << 10, 1 << 14, 1 << 20, 1 << 24]:
        us = median_us(peer(n), 100 if n == 1 << 24 else 1000)
        print(json.dumps({"impl": name, "op": "blocking_sum", "dtype": "f32", "n": n, "segment": 0, "us": round(us, 3),
                          "gbps": round(n * 4 / us / 1e3, 1)}, separators=(",", ":")), flush=True)
