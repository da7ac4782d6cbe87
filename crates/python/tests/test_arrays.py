"""Arrays of other libraries, and what a call leaves behind."""

import array
import datetime
import gc
import threading
import tracemalloc

import ml_dtypes
import numpy as np
import pandas
import polars
import pyarrow
import pytest

import gpu_reduce


class Tensor:
    """A tensor that has DLPack only."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **more):
        return self.x.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_buffers():
    assert gpu_reduce.sum(array.array("d", [1.5, 2.5])) == 4.0
    assert gpu_reduce.max(bytearray(b"az")) == 122
    grid = memoryview(bytes(range(6))).cast("B", (2, 3))
    assert gpu_reduce.sum(grid, axis=0).tolist() == [3, 5, 7]


def test_tensors():
    x = np.arange(12.0).reshape(3, 4)
    for tensor in [Tensor(x), Tensor(x.T), Tensor(x[:, ::2])]:
        assert np.array_equal(gpu_reduce.sum(tensor, axis=0), tensor.x.sum(axis=0))
    assert gpu_reduce.argmax(Tensor(x)) == 11
    assert gpu_reduce.sum(Tensor(np.array([1j, 2.0]))) == 2 + 1j


def test_data_frames():
    columns = {"a": [1.0, 2.5], "b": [3.0, -4.0]}
    for frame in [pandas.DataFrame(columns), polars.DataFrame(columns), pyarrow.table(columns)]:
        assert gpu_reduce.sum(frame) == 2.5
        assert gpu_reduce.sum(frame, axis=0).tolist() == [3.5, -1.0]
        assert gpu_reduce.argmin(frame, axis=1).tolist() == [0, 1]
    for series in [pandas.Series([1, 2, 4]), pandas.Series([1, None, 6], dtype="Int64")]:
        assert gpu_reduce.sum(series) == 7


def test_arrow():
    for make in [pyarrow.array, lambda x: pyarrow.chunked_array([x[:2], x[2:]]), polars.Series]:
        x = make([3.0, 1.5, None, 4.0])
        assert gpu_reduce.sum(x) == 8.5 and gpu_reduce.min(x) == 1.5 and gpu_reduce.mean(x) == 8.5 / 3
        assert gpu_reduce.argmax(x) == 3 and gpu_reduce.var(x) == np.var([3.0, 1.5, 4.0])
    assert gpu_reduce.sum(pyarrow.array([1, 2, 3], pyarrow.int8())[1:]) == 5
    for dtype in [pyarrow.uint8(), pyarrow.int32(), pyarrow.float64()]:
        whole = pyarrow.array([*range(100), None, 3], dtype)
        chunks = pyarrow.chunked_array([whole[5:9], whole[:0], whole[9:], whole[1:4]])
        assert gpu_reduce.sum(chunks) == sum(range(5, 100)) + 3 + 6 and gpu_reduce.argmin(chunks) == 97
        assert gpu_reduce.sum(pyarrow.chunked_array([whole[5:9], whole[9:12]])) == sum(range(5, 12))
    assert gpu_reduce.sum(pyarrow.array([None], pyarrow.int8())) == 0
    with pytest.raises(ValueError, match="zero-size array"):
        gpu_reduce.max(pyarrow.array([None], pyarrow.int8()))
    for dtype in [pyarrow.float16(), pyarrow.uint16(), pyarrow.int64(), pyarrow.uint64()]:
        assert gpu_reduce.max(pyarrow.array(np.array([2, 3]), pyarrow.int64()).cast(dtype)) == 3
    for make in [pyarrow.array, lambda x: pyarrow.chunked_array([x[:1], x[1:]]), polars.Series]:
        flags = make([True, None, False, True, True, False, False, True, True, True])
        assert gpu_reduce.any(flags) and not gpu_reduce.all(flags) and gpu_reduce.all(flags[7:])
        assert gpu_reduce.sum(flags) == 6 and gpu_reduce.sum(flags[3:]) == 5 and gpu_reduce.min(flags).dtype == bool
        assert gpu_reduce.count_nonzero(flags[2:3]) == 0
    for bad in [["a"], [None], [datetime.date(2020, 1, 1)]]:
        with pytest.raises(TypeError, match="Arrow arrays of .* are not reduced"):
            gpu_reduce.sum(pyarrow.array(bad))
    keys, sums = gpu_reduce.group_by(polars.Series([2, 1, 2]), polars.Series([1.0, 2.0, 4.0]), "sum")
    assert keys.tolist() == [1, 2] and sums.tolist() == [2.0, 5.0]
    keys, sums = gpu_reduce.group_by([2, 1, 2, 3], polars.Series([1.0, 2.0, None, None]), "sum")
    assert keys.tolist() == [1, 2, 3] and sums.tolist() == [2.0, 1.0, 0.0]
    nulls = pyarrow.array([1, None])
    for bad in [
        lambda: gpu_reduce.group_by(nulls, [1, 2], "sum"),
        lambda: gpu_reduce.segment_reduce(nulls, np.array([0, 2]), "sum"),
        lambda: gpu_reduce.bincount(nulls),
        lambda: gpu_reduce.histogram(nulls),
        lambda: gpu_reduce.index_add(np.zeros(2, "i8"), np.array([0, 1]), nulls),
    ]:
        with pytest.raises(ValueError, match="has nulls"):
            bad()


def test_bfloat16():
    x = np.array([1.5, 2.5, -4.0], ml_dtypes.bfloat16)
    for name, expected in [("sum", 0.0), ("max", 2.5), ("min", -4.0), ("mean", 0.0)]:
        found = getattr(gpu_reduce, name)(x)
        assert found.dtype == x.dtype and float(found) == expected
    assert gpu_reduce.max(x.reshape(1, 3), axis=0).tolist() == x.tolist()


def test_thousands_of_calls_keep_no_memory():
    x, bad = np.ones((50, 40)), np.array(["text"])

    def calls():
        for _ in range(5000):
            gpu_reduce.sum(x, axis=0)
            gpu_reduce.sum(x.T, axis=(0, 1))
            gpu_reduce.var(Tensor(x), axis=1)
            with pytest.raises(TypeError):
                gpu_reduce.sum(bad)

    calls()
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    calls()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 100_000


def test_threads():
    x = np.random.default_rng(0).standard_normal(1 << 20)
    expected, found = gpu_reduce.sum(x), []
    threads = [threading.Thread(target=lambda: found.append(gpu_reduce.sum(x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_docstrings():
    import doctest

    runner = doctest.DocTestRunner()
    for name in gpu_reduce.__all__:
        function = getattr(gpu_reduce, name)
        if callable(function):
            assert ">>>" in function.__doc__, name
            examples = doctest.DocTestParser().get_doctest(function.__doc__, vars(gpu_reduce).copy(), name, None, 0)
            assert runner.run(examples).failed == 0, name
