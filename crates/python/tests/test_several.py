"""Several operators in one call, and calls that signals interrupt."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import gpu_reduce

OPERATORS = [name for name in gpu_reduce.show_config()["operators"] if not name.startswith("bit_")]


def same(found, expected):
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    found, expected = np.asarray(found), np.asarray(expected)
    # (The bytes of an array of Python's integers are addresses.)
    bits = [x.tolist() if x.dtype == object else x.tobytes() for x in (found, expected)]
    return (found.dtype, found.shape, bits[0]) == (expected.dtype, expected.shape, bits[1])


def check(x, **more):
    found = gpu_reduce.reduce(x, OPERATORS, **more)
    assert isinstance(found, list) and len(found) == len(OPERATORS)
    for name, results in zip(OPERATORS, found):
        assert same(results, gpu_reduce.reduce(x, name, **more)), (name, more)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "?"])
def test_the_bits_of_one_call_each(dtype):
    x = (np.random.default_rng(1).standard_normal((40, 25)) * 5).astype(dtype)
    for more in [{}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"where": x > 0}]:
        check(x, **more)
    check(x[:, ::2], axis=1)
    check(np.asfortranarray(x))


def test_one_pass():
    # More than a mebibyte, from which on several threads reduce.
    check(np.random.default_rng(1).standard_normal(140_001))


def test_rows_in_parts():
    # More than several operators reduce at a time.
    x = np.random.default_rng(2).standard_normal((3, 9, (1 << 17) + 1))
    for axis in [1, 2, (1, 2)]:
        low, total, place = gpu_reduce.reduce(x, ["min", "sum", "count_nonzero"], axis=axis)
        assert np.array_equal(low, x.min(axis=axis)) and np.array_equal(place, np.count_nonzero(x, axis=axis))
        assert same(total, gpu_reduce.sum(x, axis=axis))
    low, high = gpu_reduce.reduce(x, ["min", "argmax"], axis=2)
    assert np.array_equal(low, x.min(axis=2)) and np.array_equal(high, x.argmax(axis=2))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i4", "f2"])
def test_columns_in_one_pass(dtype):
    # Columns of one chunk and of several, which are of different lengths for different operators; on one thread and
    # on several.
    for shape in [(3, 700_001), (1500, 33), (300_000, 3), (70_000, 2, 5)]:
        x = (np.random.default_rng(3).standard_normal(shape) * 5).astype(dtype)
        few = ["sum", "var", "argmax", "exact_sum", "minmax", "logsumexp", "moments", "nansum", "any", "prod"]
        with np.errstate(all="ignore"):
            found = gpu_reduce.reduce(x, few, axis=0)
            for name, results in zip(few, found):
                assert same(results, gpu_reduce.reduce(x, name, axis=0)), (name, shape)
        # Each column has the bits of its elements alone.
        last = np.ascontiguousarray(x[:, -1] if x.ndim == 2 else x[:, -1, -1])
        total = np.asarray(gpu_reduce.sum(last))
        assert np.asarray(found[0]).reshape(-1)[-1:].tobytes() == total.tobytes(), shape


def test_columns_without_elements():
    for op in ["sum", "prod", "any", "mean"]:
        one, two = gpu_reduce.reduce(np.empty((0, 3)), [op, "count_nonzero"], axis=0)
        assert same(one, gpu_reduce.reduce(np.empty((0, 3)), op, axis=0)) and np.array_equal(two, [0, 0, 0])
    with pytest.raises(ValueError):
        gpu_reduce.reduce(np.empty((0, 3)), ["sum", "max"], axis=0)
    assert [len(r) for r in gpu_reduce.reduce(np.empty((3, 0)), ["sum", "count_nan"], axis=0)] == [0, 0]


def test_names():
    x = np.array([1.0, 2.0])
    assert gpu_reduce.reduce(x, []) == []
    assert gpu_reduce.reduce(x, ("sum",)) == [3.0]
    assert gpu_reduce.reduce(x, ["sum", "sum", "max"]) == [3.0, 3.0, 2.0]
    assert gpu_reduce.reduce(x, ["var", "mean"], ddof=0.5) == [np.var(x, ddof=0.5), 1.5]
    assert gpu_reduce.reduce(np.array([]), ["sum", "any"]) == [0.0, False]
    with pytest.raises(ValueError, match="zero-size array to reduction operation max"):
        gpu_reduce.reduce(np.array([]), ["sum", "max"])
    with pytest.raises(TypeError, match="bit_or takes integers"):
        gpu_reduce.reduce(x, ["sum", "bit_or"])


class Pressed(Exception):
    """What a handler of Ctrl-C raises."""


def press(*_):
    raise Pressed


@pytest.mark.parametrize("axis", [None, 1])
def test_signals_interrupt(axis):
    # Handlers run after 32 MiB, or more for many threads.
    x = np.zeros((3, max(1 << 22, os.cpu_count() << 17)))
    start = time.perf_counter()
    expected = gpu_reduce.sum(x, axis=axis)
    delay = (time.perf_counter() - start) / 4
    before = signal.signal(signal.SIGINT, press)
    try:
        for _ in range(20):
            out = np.full_like(expected, -1.0)
            timer = threading.Timer(delay, os.kill, [os.getpid(), signal.SIGINT])
            timer.start()
            with pytest.raises(Pressed):
                gpu_reduce.sum(x, axis=axis, out=out)
                # It came too late.
                timer.join()
                time.sleep(1)
            # A call that was interrupted has written nothing.
            if np.all(out == -1.0):
                break
        else:
            pytest.fail("no call was interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    assert np.array_equal(gpu_reduce.sum(x, axis=axis), expected)
