"""Segments, groups, bins, sums by index."""

import math

import numpy as np
import pytest

import gpu_reduce


def test_segments():
    x, offsets = np.arange(10.0), np.array([0, 3, 3, 10])
    sums, counts = gpu_reduce.segment_reduce(x, offsets, ["sum", "count_nonzero"])
    assert sums.tolist() == [3, 0, 42] and counts.tolist() == [2, 0, 7]
    assert gpu_reduce.segment_reduce(x[::-1], offsets.astype("u4"), "sum").tolist() == [24, 0, 21]
    with pytest.raises(ValueError, match="zero-size array"):
        gpu_reduce.segment_reduce(x, offsets, "min")
    for bad in [[0, 11], [3, 2], [-1, 2], []]:
        with pytest.raises(ValueError):
            gpu_reduce.segment_reduce(x, np.array(bad, "i8"), "sum")
    with pytest.raises(TypeError, match="offsets are integers"):
        gpu_reduce.segment_reduce(x, np.array([0.0, 1.0]), "sum")
    with pytest.raises(ValueError, match="x has 2 axes"):
        gpu_reduce.segment_reduce(x.reshape(2, 5), offsets, "sum")


@pytest.mark.parametrize("kind", ["i1", "u8", "i8", "f4", "f8", "?", "U3"])
def test_groups(kind):
    generator = np.random.default_rng(1)
    keys = generator.integers(0, 7, 1000).astype(kind)
    x = generator.standard_normal(1000)
    found, (sums, largest) = gpu_reduce.group_by(keys, x, ["sum", "max"])
    assert found.dtype == keys.dtype and found.tolist() == sorted(set(keys.tolist()))
    assert sums.tolist() == [math.fsum(x[keys == key]) for key in found]
    assert largest.tolist() == [x[keys == key].max() for key in found]
    # Any order of the rows gives the same bits.
    order = generator.permutation(1000)
    assert gpu_reduce.group_by(keys[order], x[order], "sum")[1].tobytes() == sums.tobytes()


def test_groups_of_several_columns():
    a, b, c = ["x", "y", "x", "x"], np.array([2, 1, 1, 2]), np.array([0.5, 0.5, 0.5, 1.5])
    keys, sums = gpu_reduce.group_by((a, b, c), np.array([1, 2, 4, 8]), "sum")
    assert [column.tolist() for column in keys] == [["x", "x", "x", "y"], [1, 2, 2, 1], [0.5, 0.5, 1.5, 0.5]]
    assert sums.tolist() == [4, 1, 8, 2]
    with pytest.raises(ValueError, match="columns of keys have 4 and 3 elements"):
        gpu_reduce.group_by((b, b[:3]), b, "sum")


def test_bincount():
    index, weights = np.array([2, 0, 2, 5]), np.array([0.5, 1, 2, 4])
    for dtype in ["i1", "u2", "i4", "u8"]:
        found = gpu_reduce.bincount(index.astype(dtype), minlength=8)
        assert found.dtype == np.int64 and found.tolist() == np.bincount(index, minlength=8).tolist()
    assert gpu_reduce.bincount(index, weights).tolist() == np.bincount(index, weights).tolist()
    assert gpu_reduce.bincount(np.array([], "i8")).tolist() == []
    with pytest.raises(ValueError, match="negative"):
        gpu_reduce.bincount(np.array([1, -1]))


def test_histogram():
    x = np.random.default_rng(2).standard_normal(10_000)
    for more in [{}, {"bins": 7}, {"bins": 5, "range": (-1.0, 2.0)}, {"bins": [-1.0, 0.0, 0.25, 3.0]}]:
        counts, edges = gpu_reduce.histogram(x, **more)
        theirs, of_numpy = np.histogram(x, **more)
        assert counts.tolist() == theirs.tolist()
        np.testing.assert_allclose(edges, of_numpy, rtol=1e-14, atol=1e-14)
    weights = np.arange(10_000.0)
    sums, _ = gpu_reduce.histogram(x, bins=3, weights=weights)
    assert sums.tolist() == np.histogram(x, bins=3, weights=weights)[0].tolist()
    with pytest.raises(ValueError):
        gpu_reduce.histogram(x, bins=0)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8", "f2", "f4", "f8"])
def test_index_add(dtype):
    generator = np.random.default_rng(3)
    out, x = generator.integers(0, 9, 20).astype(dtype), generator.integers(0, 9, 500).astype(dtype)
    index = generator.integers(0, 20, 500)
    expected = out.copy()
    np.add.at(expected, index, x)
    assert gpu_reduce.index_add(out, index, x) is out and out.tolist() == expected.tolist()
    rows, of_rows = np.zeros((4, 3), dtype), np.ones((5, 3), dtype)
    assert gpu_reduce.index_add(rows, np.array([0, 3, 3, 3, 0]), of_rows)[:, 1].tolist() == [2, 0, 0, 3]
    before = out.copy()
    with pytest.raises(IndexError):
        gpu_reduce.index_add(out, np.array([20]), x[:1])
    with pytest.raises(ValueError, match="does not have a row for each"):
        gpu_reduce.index_add(out, index, x[:3])
    with pytest.raises(ValueError, match="does not have a row for each"):
        gpu_reduce.index_add(out, index[:1], x[0])
    assert out.tolist() == before.tolist()


@pytest.mark.parametrize("op", ["minmax", "moments"])
def test_several_numbers_of_no_groups(op):
    keys, results = gpu_reduce.group_by(np.zeros(0, "i8"), np.zeros(0), op)
    assert keys.shape == (0,) and [numbers.shape for numbers in results] == [(0,)] * len(results)
    results = gpu_reduce.reduce(np.zeros((0, 3)), op, axis=1)
    assert [numbers.shape for numbers in results] == [(0,)] * len(results)
