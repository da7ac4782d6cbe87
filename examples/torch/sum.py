"""Sums PyTorch's tensors in place with gpu_reduce, on PyTorch's current stream: without copies or waits.

    cargo build --release -p gpu_reduce_examples --example torch_sum
    python3 examples/torch/sum.py target/release/examples/libtorch_sum.so

Compares results and times with PyTorch's, and exits with 1 if a sum is wrong. Without PyTorch or a GPU, prints
that it is skipped.
"""

import ctypes
import sys


class Array(ctypes.Structure):
    _fields_ = [
        ("shape", ctypes.POINTER(ctypes.c_size_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("axes", ctypes.c_size_t),
        ("typestr", ctypes.c_char_p),
        ("data", ctypes.c_size_t),
        ("is_read_only", ctypes.c_bool),
        ("stream", ctypes.c_size_t),
    ]

    def __init__(self, tensor):
        said = tensor.__cuda_array_interface__
        shape, strides = said["shape"], said.get("strides")
        super().__init__(
            (ctypes.c_size_t * len(shape))(*shape),
            None if strides is None else (ctypes.c_ssize_t * len(shape))(*strides),
            len(shape),
            said["typestr"].encode(),
            said["data"][0] or 0,
            said["data"][1],
            said.get("stream") or 0,
        )


def bind(path):
    library = ctypes.CDLL(path)
    array = ctypes.POINTER(Array)
    library.gpu_reduce_sum.argtypes = [array, array, ctypes.c_size_t, ctypes.c_void_p]
    library.gpu_reduce_sum.restype = ctypes.c_char_p
    return library.gpu_reduce_sum


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} LIBRARY")
    enqueue = bind(sys.argv[1])
    try:
        import torch
    except ImportError as why:
        return print(f"skipped: {why}")
    if not torch.cuda.is_available():
        return print("skipped: PyTorch finds no GPU")

    def gpu_sum(tensor):
        """Enqueues the sum on the current stream; returns its tensor of one element."""
        dtype = tensor.dtype if tensor.is_floating_point() else torch.int64
        result = torch.empty((), dtype=dtype, device=tensor.device)
        stream = torch.cuda.current_stream(tensor.device).cuda_stream
        why = enqueue(Array(tensor.detach()), Array(result), tensor.device.index, stream)
        if why is not None:
            raise ValueError(why.decode())
        return result

    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    ok = True

    def check(what, tensor):
        nonlocal ok
        got, exact = gpu_sum(tensor).item(), tensor.double().sum().item()
        error = abs(got - exact) / max(tensor.double().abs().sum().item(), 1e-300)
        right = error < 1e-6 if tensor.is_floating_point() else got == tensor.sum().item()
        ok = ok and right
        print(f"{what:44} {got:24} {'right' if right else f'WRONG, {exact}'}")

    x = torch.rand(1 << 26, device="cuda")
    before = torch.cuda.memory_allocated()
    kept = gpu_sum(x)
    allocated = torch.cuda.memory_allocated() - before
    print(f"memory allocated for the sum of {x.nbytes >> 20} MiB: {allocated} bytes, for the result")
    check("float32", x)
    check("float32, a slice from element 3 on", x[3:])
    check("float32, a matrix", x[: 1000 * 1000].view(1000, 1000))
    check("float32, one row", x[:10000].view(100, 100)[7])
    check("float32, no elements", x[:0])
    check("float32, no axes", x[5])
    check("float64", x[: 1 << 20].double())
    check("int32", torch.randint(-(1 << 31), (1 << 31) - 1, (1 << 22,), dtype=torch.int32, device="cuda"))
    check("int64", torch.randint(-(1 << 62), 1 << 62, (12345,), dtype=torch.int64, device="cuda"))
    columns = x[: 1 << 20].view(1024, 1024).t()
    for what, tensor in [("columns", columns), ("every second", x[:100:2]), ("half", x[:100].half())]:
        try:
            gpu_sum(tensor)
            print(f"{what}: not refused")
            ok = False
        except ValueError as why:
            print(f"{what}: {why}")

    # On another stream than the default one: writes, sums and uses, in order.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = torch.empty(1 << 26, device="cuda")
        for turn in range(1, 21):
            y.fill_(turn / 2)
            doubled = gpu_sum(y) * 2
            expected = turn * float(1 << 26)
            if turn % 5 == 0 and doubled.item() != expected:
                print(f"WRONG on a stream: {doubled.item()}, not {expected}")
                ok = False
    print("20 times written, summed and used on a stream of its own: right" if ok else "WRONG")

    def microseconds(call, repeats=200):
        for _ in range(20):
            call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / repeats

    ours, theirs = microseconds(lambda: gpu_sum(x)), microseconds(lambda: x.sum())
    print(f"sum of 2^26 float32: {ours:.1f} us, PyTorch's {theirs:.1f} us")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
