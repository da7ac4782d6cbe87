"""Microseconds that a sum takes: of NumPy, PyTorch, CuPy, and gpu_reduce of arrays of each.

The first figure is the time until the call returns, the second one the time until its result is there. On a GPU a call
returns when its work is enqueued: both are medians of batches, after which the GPU is waited for. Libraries that are
not installed, and GPUs that are not there, are left out.

    pip install . && python benches/gpu_calls.py
"""

import importlib
import statistics
import time
from functools import partial

import numpy as np

import gpu_reduce

ELEMENTS = [10**3, 10**6, 10**8]
ROW = 100
BATCHES = 20


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def no_wait():
    """A CPU is not waited for."""


def microseconds(call, synchronize, batch):
    """The time until a call returns, and the time until it is done."""
    returned, done = [], []
    for _ in range(BATCHES + 2):
        synchronize()
        start = time.perf_counter()
        for _ in range(batch):
            call()
        returned.append(time.perf_counter() - start)
        synchronize()
        done.append(time.perf_counter() - start)
    # The first batches compile kernels and allocate memory.
    return [statistics.median(times[2:]) / batch * 1e6 for times in (returned, done)]


def sums():
    """The name of each sum, what makes an array of zeros and what waits, the sum of all elements and that of rows."""
    ours = (lambda x: gpu_reduce.sum(x), lambda rows: gpu_reduce.sum(rows, axis=1))

    def theirs(module):
        return lambda x: module.sum(x), lambda rows: module.sum(rows, 1)

    yield "numpy.sum", lambda length: np.zeros(length, "float32"), no_wait, *theirs(np)
    yield "gpu_reduce.sum, NumPy", lambda length: np.zeros(length, "float32"), no_wait, *ours
    if (torch := installed("torch")) is not None:
        of_torch = importlib.import_module("gpu_reduce.torch")
        enqueued = (lambda x: of_torch.sum(x), lambda rows: of_torch.sum(rows, 1))
        for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
            wait = torch.cuda.synchronize if device == "cuda" else no_wait
            zeros = partial(torch.zeros, device=device)
            yield f"torch.sum, {device}", zeros, wait, *theirs(torch)
            yield f"gpu_reduce.sum, PyTorch, {device}", zeros, wait, *ours
            yield f"gpu_reduce.torch.sum, {device}", zeros, wait, *enqueued
            zeros = partial(torch.zeros, device=device, requires_grad=True)
            yield f"torch.sum, {device}, with gradient", zeros, wait, *theirs(torch)
            yield f"gpu_reduce.torch.sum, {device}, with gradient", zeros, wait, *enqueued
    cupy = installed("cupy")
    if cupy is not None and cupy.is_available():
        yield "cupy.sum", partial(cupy.zeros, dtype="float32"), cupy.cuda.Device().synchronize, *theirs(cupy)
        yield "gpu_reduce.sum, CuPy", partial(cupy.zeros, dtype="float32"), cupy.cuda.Device().synchronize, *ours


def main():
    print(*gpu_reduce.devices(), sep=", ")
    print(f"{'call':44}{'elements':>12}{'returns':>10}{'done':>10}{'rows':>10}{'done':>10}")
    for name, zeros, synchronize, of_all, of_rows in sums():
        for length in ELEMENTS:
            x = zeros(length)
            rows = x.reshape(-1, ROW)
            # A CPU takes milliseconds for 10^8 elements.
            batch = 200 if length < 10**6 else 50 if length < 10**8 else 2 if synchronize is no_wait else 20
            figures = microseconds(lambda: of_all(x), synchronize, batch)
            figures += microseconds(lambda: of_rows(rows), synchronize, batch)
            print(f"{name:44}{length:12}" + "".join(f"{figure:10.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
