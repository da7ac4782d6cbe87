"""Microseconds a call of gpu_reduce.torch.sum, gpu_reduce.sum and torch.sum takes, on the CPU and on a GPU.

On a GPU, as long as it takes to enqueue: the median of batches, between which the GPU is waited for.

    pip install . && python benches/torch_calls.py
"""

import statistics
import time

import torch

import gpu_reduce
import gpu_reduce.torch

BATCH = 200
BATCHES = 50


def microseconds(call, synchronize):
    for _ in range(BATCH):
        call()
    batches = []
    for _ in range(BATCHES):
        synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        batches.append((time.perf_counter() - start) / BATCH * 1e6)
    synchronize()
    return statistics.median(batches)


def main():
    print(f"PyTorch {torch.__version__}, {gpu_reduce.devices()}")
    print(f"{'device':8}{'elements':>10}  {'call':40}{'µs':>8}")
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        for len in [10, 10**3, 10**6]:
            x = torch.ones(len, device=device)
            rows = x.reshape(-1, min(len, 100))
            with_grad = x.clone().requires_grad_()
            calls = {
                "torch.sum(x)": lambda: torch.sum(x),
                "gpu_reduce.torch.sum(x)": lambda: gpu_reduce.torch.sum(x),
                "gpu_reduce.sum(x)": lambda: gpu_reduce.sum(x),
                "torch.sum(rows, 1)": lambda: torch.sum(rows, 1),
                "gpu_reduce.torch.sum(rows, 1)": lambda: gpu_reduce.torch.sum(rows, 1),
                "torch.sum(x), with gradient": lambda: torch.sum(with_grad),
                "gpu_reduce.torch.sum(x), with gradient": lambda: gpu_reduce.torch.sum(with_grad),
            }
            for name, call in calls.items():
                print(f"{device:8}{len:10}  {name:40}{microseconds(call, synchronize):8.2f}")


if __name__ == "__main__":
    main()
