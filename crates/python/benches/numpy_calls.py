"""Microseconds that a call takes for small NumPy arrays: gpu_reduce's functions, and NumPy's.

pip install . && python benches/numpy_calls.py
"""

import time

import numpy as np

import gpu_reduce

OPERATORS = ["sum", "max", "mean", "var", "argmax", "any"]
CALLS = 1000
BATCHES = 20


def microseconds(call):
    """The least of several batches: what other programs do on the machine counts less."""
    least = float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        least = min(least, (time.perf_counter() - start) / CALLS)
    return least * 1e6


def main():
    print(f"{'type':10}{'shape':>10}{'axis':>6}  {'function':10}{'gpu_reduce':>12}{'NumPy':>8}")
    for dtype in ["float64", "float32", "int64", "int32"]:
        for shape, axis in [((10,), None), ((100,), None), ((1000,), None), ((10, 10), 0), ((10, 10), 1)]:
            x = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
            for name in OPERATORS:
                ours, theirs = getattr(gpu_reduce, name), getattr(np, name)
                figures = microseconds(lambda: ours(x, axis=axis)), microseconds(lambda: theirs(x, axis=axis))
                print(f"{dtype:10}{shape!s:>10}{axis!s:>6}  {name:10}{figures[0]:12.2f}{figures[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
