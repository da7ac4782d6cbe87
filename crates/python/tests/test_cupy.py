"""Arrays of CuPy. Skipped where CuPy or a GPU is missing."""

import gc
import threading

import numpy as np
import pytest

import gpu_reduce

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
try:
    GPUS = cupy.cuda.runtime.getDeviceCount()
except Exception as error:
    pytest.skip(f"CuPy finds no GPU: {error}", allow_module_level=True)

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES = ["bool", "float16", "float32", "float64", *INTEGERS]
FUNCTIONS = ["sum", "prod", "min", "max", "argmin", "argmax", "count_nonzero", "mean", "var", "exact_sum", "minmax"]
OTHERS = [
    "sumsq", "nansum", "compensated_sum", "nanmin", "nanmax", "nanargmin", "nanargmax", "nanmean", "exact_mean", "std",
    "nanvar", "nanstd", "moments", "skewness", "kurtosis", "logsumexp", "any", "all", "count_nan",
]  # fmt: skip
ONE_AXIS = ["argmin", "argmax", "nanargmin", "nanargmax"]


def sample(dtype, shape, seed=1, nans=False):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-9, 9, shape).astype(dtype)
    if numbers.dtype.kind != "f":
        return numbers
    numbers = (numbers / 4).astype(dtype)
    if nans:
        numbers.flat[1::11] = np.nan
    return numbers


def same(got, expected):
    """Whether CuPy's results have the type, the shape and the bits of NumPy's; NaNs are equal."""
    if isinstance(expected, tuple):
        return type(got) is tuple and len(got) == len(expected) and all(map(same, got, expected))
    assert type(got) is cupy.ndarray
    got, expected = got.get(), np.asarray(expected)
    if expected.dtype == object:  # exact sums of integers
        expected = expected.astype("int64")
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return False
    if got.dtype.kind == "f":
        if not np.array_equal(np.isnan(got), np.isnan(expected)):
            return False
        got, expected = np.nan_to_num(got, nan=3), np.nan_to_num(expected, nan=3)
    return got.tobytes() == expected.tobytes()


def check(name, host, x, axes):
    function = getattr(gpu_reduce, name)
    for axis in axes:
        if axis == () or (isinstance(axis, tuple) and name in ONE_AXIS):
            continue
        for keepdims in [False, True]:
            got = function(x, axis=axis, keepdims=keepdims)
            assert same(got, function(host, axis=axis, keepdims=keepdims)), (name, host.dtype, host.shape, axis)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_those_of_the_host(name, dtype):
    if (name, dtype) == ("exact_sum", "uint64"):
        pytest.skip("the sums do not fit int64")
    for shape in [(1,), (5000,), (300, 70), (7, 11, 13)]:
        host = sample(dtype, shape)
        check(name, host, cupy.asarray(host), [None, *range(len(shape)), (0, 1)[: len(shape) - 1]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name, dtype):
    for shape in [(1,), (300, 70)]:
        host = sample(dtype, shape, nans=name.startswith("nan"))
        check(name, host, cupy.asarray(host), [None, *range(len(shape))])


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_of_integers(name):
    for dtype in ["uint8", "int64"]:
        host = sample(dtype, (300, 70))
        check(name, host, cupy.asarray(host), [None, 0, 1])


def test_degrees_of_freedom():
    host = sample("float32", (30, 40))
    for ddof in [0, 1, 2]:
        assert same(gpu_reduce.var(cupy.asarray(host), axis=1, ddof=ddof), gpu_reduce.var(host, axis=1, ddof=ddof))
    got = gpu_reduce.std(cupy.asarray(host), axis=0, correction=0.5)
    np.testing.assert_allclose(got.get(), gpu_reduce.std(host, axis=0, correction=0.5), rtol=1e-6)


def test_orders_in_memory():
    host = sample("float32", (7, 11, 13))
    x = cupy.asarray(host)
    for axes in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        there, here = x.transpose(axes), host.transpose(axes)
        for axis in [0, 1, 2]:
            for name in ["sum", "max", "argmin", "moments"]:
                function = getattr(gpu_reduce, name)
                got, expected = function(there, axis=axis), function(here, axis=axis)
                assert same(got, expected), (axes, axis, name)
                assert same(function(there, axis=axis, keepdims=True), function(here, axis=axis, keepdims=True))
    assert same(gpu_reduce.sum(x[3:], axis=1), gpu_reduce.sum(host[3:], axis=1))
    with pytest.raises(ValueError, match="contiguous"):
        gpu_reduce.sum(x[:, ::2])
    for view in [lambda x: x[:, ::2], lambda x: x[:, :, 3:7]]:
        for axis in [None, 0, 1, 2, (0, 2)]:
            assert same(gpu_reduce.sum(view(x), axis=axis, copy=True), gpu_reduce.sum(view(host), axis=axis))


def test_masks():
    host = sample("float32", (7, 11, 13), nans=True)
    x, flags = cupy.asarray(host), np.random.default_rng(4).random((7, 11, 13)) < 0.4
    flags[3] = False
    masks = [flags, flags[0], flags[:, :1], np.zeros((7, 1, 1), bool), np.ones(13, bool), np.array(False)]
    for mask in masks:
        for view in [lambda x: x, lambda x: x.transpose(2, 0, 1)] if mask.shape == flags.shape else [lambda x: x]:
            for name in ["sum", "count_nonzero", "mean", "nansum", "var", "min"]:
                function = getattr(gpu_reduce, name)
                for axis in [None, 0, 1, 2, (0, 2), (1, 2)]:
                    on_gpu = {"axis": axis, "where": cupy.asarray(view(mask).copy()), "copy": True}
                    try:
                        expected = function(view(host), axis=axis, where=view(mask))
                    except ValueError:
                        with pytest.raises(ValueError, match="zero-size"):
                            function(view(x), **on_gpu)
                    else:
                        assert same(function(view(x), **on_gpu), expected), (name, axis)
    mask = cupy.asarray(flags)
    got = gpu_reduce.sum(x[:, ::2], axis=1, where=mask[:, ::2], copy=True)
    assert same(got, gpu_reduce.sum(host[:, ::2], axis=1, where=flags[:, ::2]))
    # A mask on the CPU: the elements are copied there.
    assert same(gpu_reduce.sum(x, axis=1, where=flags, copy=True), gpu_reduce.sum(host, axis=1, where=flags))
    got = gpu_reduce.sum(x, axis=1, where=mask, initial=2, copy=True)
    assert same(got, gpu_reduce.sum(host, axis=1, where=flags, initial=2))
    with pytest.raises(TypeError, match="booleans"):
        gpu_reduce.sum(x, where=mask.astype("int32"), copy=True)
    with pytest.raises(ValueError, match="does not fit"):
        gpu_reduce.sum(x, where=mask[:, :, :5], copy=True)
    with pytest.raises(TypeError, match="without a mask"):
        gpu_reduce.sum(x, where=mask)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3)])
def test_arrays_without_elements(shape):
    host = np.empty(shape, "float32")
    for x in [cupy.empty(shape, "float32"), cupy.empty(shape[::-1], "float32").T]:
        for name in ["sum", "prod", "count_nonzero", "any", "all", "mean", "min", "argmax"]:
            function = getattr(gpu_reduce, name)
            for axis in [None, *range(len(shape))]:
                try:
                    expected = function(host, axis=axis)
                except ValueError:
                    with pytest.raises(ValueError, match="zero-size"):
                        function(x, axis=axis)
                else:
                    assert same(function(x, axis=axis), expected), (name, axis)
    with pytest.raises(ValueError, match="zero-size"):
        gpu_reduce.min(cupy.empty((0, 3)), axis=0)
    assert same(gpu_reduce.sum(cupy.empty((0, 3)), axis=0), np.zeros(3))
    assert same(gpu_reduce.max(cupy.empty((3, 0)), axis=0), np.empty(0))


def test_arguments():
    host = sample("float32", (30, 40))
    x = cupy.asarray(host)
    assert same(gpu_reduce.sum(x, axis=1, dtype="float64"), gpu_reduce.sum(host, axis=1, dtype="float64"))
    for initial in [3, 0.5, np.float32(2)]:
        assert same(gpu_reduce.sum(x, axis=1, initial=initial), gpu_reduce.sum(host, axis=1, initial=initial))
        assert same(gpu_reduce.sum(x, initial=initial), gpu_reduce.sum(host, initial=initial))
    assert same(gpu_reduce.prod(x[:1], axis=0, initial=2), gpu_reduce.prod(host[:1], axis=0, initial=2))
    flags = np.array([6, 3])
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
        function, ufunc = getattr(gpu_reduce, name), getattr(np, name)
        assert function(flags, initial=10) == ufunc.reduce(flags, initial=10)
        assert same(function(cupy.asarray(flags), initial=10), ufunc.reduce(flags, initial=10))
    with pytest.raises(ValueError, match="copy=True"):
        gpu_reduce.max(x, initial=9)
    assert same(gpu_reduce.max(x, axis=1, initial=1, copy=True), gpu_reduce.max(host, axis=1, initial=1))
    out = cupy.zeros(30, "float32")
    assert gpu_reduce.sum(x, axis=1, out=out) is out
    assert same(out, gpu_reduce.sum(host, axis=1))
    with pytest.raises(TypeError, match="out is an object of numpy, but the results are of cupy"):
        gpu_reduce.sum(x, axis=1, out=np.zeros(30, "float32"))
    with pytest.raises(ValueError, match="shape"):
        gpu_reduce.sum(x, axis=1, out=cupy.zeros(3, "float32"))


def test_several():
    host = sample("float32", (30, 40))
    x = cupy.asarray(host)
    names = ["sum", "min", "argmax", "var"]
    for axis in [None, 0, 1]:
        assert all(map(same, gpu_reduce.reduce(x, names, axis=axis), gpu_reduce.reduce(host, names, axis=axis)))
    assert same(gpu_reduce.reduce(x, "sum", axis=1), gpu_reduce.sum(host, axis=1))
    assert same(gpu_reduce.vecdot(x, x), gpu_reduce.vecdot(host, host))
    for ord in [0, 1, 2, np.inf]:
        assert same(gpu_reduce.vector_norm(x, axis=1, ord=ord), gpu_reduce.vector_norm(host, axis=1, ord=ord))


def test_nans():
    x = cupy.asarray(np.array([[np.nan, 2.0], [np.nan, np.nan]]))
    assert int(gpu_reduce.nanargmin(x[:1])) == 1
    with pytest.raises(ValueError, match="All-NaN"):
        gpu_reduce.nanargmin(x, axis=1)


def test_complex_numbers():
    host = (sample("float32", (30, 40)) + 1j * sample("float32", (30, 40), 2)).astype("complex64")
    x = cupy.asarray(host)
    for axis in [None, 0, 1]:
        got, expected = gpu_reduce.sum(x, axis=axis), gpu_reduce.sum(host, axis=axis)
        assert got.dtype == expected.dtype and np.array_equal(got.get(), expected)
    for name in ["nansum", "nanmean", "nanvar", "nanstd"]:
        with pytest.raises(TypeError, match=f"{name} of complex numbers on a GPU .* copy=True"):
            getattr(gpu_reduce, name)(x)
        got = getattr(gpu_reduce, name)(x, axis=1, copy=True)
        np.testing.assert_allclose(got.get(), getattr(gpu_reduce, name)(host, axis=1), rtol=1e-6)


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    host = sample("float32", (300, 70)).astype(bfloat16)
    try:
        x = cupy.asarray(host)
        x.astype("float32")
    except (TypeError, ValueError, NotImplementedError):
        pytest.skip("this CuPy has no bfloat16")
    for name in ["sum", "max", "mean", "argmax", "exact_sum", "count_nonzero"]:
        for axis in [None, 0, 1]:
            got, expected = (getattr(gpu_reduce, name)(of, axis=axis) for of in [x, host])
            assert got.dtype == expected.dtype, (name, axis)
            assert got.get().tobytes() == np.asarray(expected).tobytes(), (name, axis)


def test_groups():
    keys, host = sample("int32", 5000, 2), sample("float32", 5000)
    x = cupy.asarray(host)
    expected_keys, expected = gpu_reduce.group_by(keys, host, ["sum", "max"])
    got_keys, got = gpu_reduce.group_by(cupy.asarray(keys), x, ["sum", "max"])
    assert same(got_keys, expected_keys) and all(map(same, got, expected))
    # Keys are of their own library.
    got_keys, got = gpu_reduce.group_by(keys, x, ["sum", "max"])
    assert type(got_keys) is np.ndarray and all(map(same, got, expected))
    got_keys, got = gpu_reduce.group_by(cupy.asarray(keys), host, "sum")
    assert same(got_keys, expected_keys) and type(got) is np.ndarray
    texts = np.array(["b", "a"])[keys % 2]
    expected_keys, expected = gpu_reduce.group_by([keys, texts], host, "sum")
    got_keys, got = gpu_reduce.group_by([cupy.asarray(keys), texts], x, "sum")
    assert same(got_keys[0], expected_keys[0]) and np.array_equal(got_keys[1], expected_keys[1])
    assert same(got, expected)


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_index_add(dtype):
    rng = np.random.default_rng(3)
    index = rng.integers(0, 7, 3000)
    for columns in [(), (3,)]:
        host, before = sample(dtype, (3000, *columns)), sample(dtype, (7, *columns), 2)
        if dtype in ["float32", "float64"]:
            host = (host * rng.random(host.shape)).astype(dtype)
        expected = gpu_reduce.index_add(before.copy(), index, host)
        for index_type in ["int64", "int32", "uint32"]:
            for order in [np.arange(3000), rng.permutation(3000)]:
                out = cupy.asarray(before)
                at, x = cupy.asarray(index[order].astype(index_type)), cupy.asarray(host[order])
                assert gpu_reduce.index_add(out, at, x) is out
                assert same(out, expected), (columns, index_type)


def test_index_add_refuses():
    out, x = cupy.zeros(7, "float32"), cupy.asarray(sample("float32", 20))
    index = cupy.asarray(np.arange(20) % 7)
    for arguments in [(out, np.arange(20) % 7, x), (np.zeros(7, "float32"), index, x), (out, index, x.get())]:
        with pytest.raises(TypeError, match="on one GPU"):
            gpu_reduce.index_add(*arguments)
    with pytest.raises(TypeError, match="one type"):
        gpu_reduce.index_add(out, index, x.astype("float64"))
    with pytest.raises(ValueError, match="20 indices"):
        gpu_reduce.index_add(out, index, x[1:])
    with pytest.raises(ValueError, match="contiguous"):
        gpu_reduce.index_add(cupy.zeros((7, 2), "float32")[:, 0], index, x)
    # A wrong index is found when the GPU gets there: nothing is added.
    for wrong in [-1, 7, 1 << 40]:
        places = index.get()
        places[11] = wrong
        gpu_reduce.index_add(out, cupy.asarray(places), x)
        assert not out.get().any()
        rows = cupy.zeros((7, 4), "float32")
        gpu_reduce.index_add(rows, cupy.asarray(places), cupy.asarray(np.ones((20, 4), "float32")))
        assert not rows.get().any()
    assert gpu_reduce.index_add(cupy.zeros(0, "float32"), index, x).size == 0
    # Elements that are added to themselves.
    x = cupy.asarray(np.ones(7, "float32"))
    gpu_reduce.index_add(x, cupy.asarray(np.zeros(7, "int64")), x)
    assert x.get().tolist() == [8, 1, 1, 1, 1, 1, 1]
    assert gpu_reduce.index_add(out, index[:0], x[:0]) is out


def streams():
    return [cupy.cuda.Stream.null, cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)]


def test_the_current_stream():
    for stream in streams():
        with stream:
            x = cupy.zeros(1 << 24, "float32")
            index = cupy.zeros(1 << 24, "int64")
            for number in range(1, 4):
                for _ in range(20):
                    x += 1
                total = gpu_reduce.sum(x)
                rows = gpu_reduce.sum(x.reshape(-1, 1024), axis=1)
                twice = total * 2
                # Results go to other calls, in the order of the stream.
                most, of_rows = gpu_reduce.max(rows), gpu_reduce.sum(rows)
                out = cupy.zeros(1, "float32")
                gpu_reduce.index_add(out, index, x)
                n = 20 * number
                assert float(total) == n << 24 and float(twice) == 2 * (n << 24)
                assert float(most) == n * 1024 and float(of_rows) == n << 24 and float(out[0]) == n << 24


def test_a_call_does_not_wait():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(1 << 27, "float32")
        index = cupy.zeros(1 << 10, "int64")
        out = cupy.zeros(2, "float32")
        calls = [
            lambda: gpu_reduce.sum(x),
            lambda: gpu_reduce.sum(x.reshape(-1, 128), axis=1),
            lambda: gpu_reduce.minmax(x),
            lambda: gpu_reduce.mean(x, keepdims=True),
            lambda: gpu_reduce.sum(x, initial=1.0),
            lambda: gpu_reduce.index_add(out, index, x[: 1 << 10]),
        ]
        for call in calls:
            call()  # the first one compiles the kernel
        stream.synchronize()
        for place, call in enumerate(calls):
            for _ in range(100):
                x += 1
            result = call()
            assert not stream.done, place
            stream.synchronize()
            del result


def test_threads_with_streams_of_their_own():
    host = sample("float32", (200, 300))
    expected, failed = gpu_reduce.sum(host, axis=1), []

    def work():
        with cupy.cuda.Stream(non_blocking=True):
            x = cupy.asarray(host)
            for _ in range(200):
                if not same(gpu_reduce.sum(x, axis=1), expected):
                    failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_captured_stream_is_refused():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(1000, "float32")
        gpu_reduce.sum(x)
        stream.begin_capture()
        try:
            with pytest.raises(RuntimeError, match="CUDA graph"):
                gpu_reduce.sum(x)
        finally:
            stream.end_capture()
        assert float(gpu_reduce.sum(x)) == 0


@pytest.mark.skipif(GPUS < 2, reason="there is one GPU")
def test_another_gpu_than_the_current_one():
    host = sample("float32", (30, 40))
    with cupy.cuda.Device(1):
        x = cupy.asarray(host)
    for name in ["sum", "minmax", "mean"]:
        got = getattr(gpu_reduce, name)(x, axis=1)
        with cupy.cuda.Device(1):
            assert same(got, getattr(gpu_reduce, name)(host, axis=1))
    assert gpu_reduce.sum(x).device.id == 1 and gpu_reduce.reduce(x, ["sum", "max"])[0].device.id == 1
    with pytest.raises(TypeError, match="one GPU"):
        gpu_reduce.index_add(cupy.zeros(2, "float32"), cupy.zeros(2, "int64"), x[0, :2])


def test_nothing_leaks():
    x = cupy.ones((100, 100), "float32")
    pool = cupy.get_default_memory_pool()
    stream = cupy.cuda.Stream(non_blocking=True)

    def call():
        gpu_reduce.sum(x)
        gpu_reduce.minmax(x, axis=1)
        with stream:
            gpu_reduce.sum(x, axis=0)

    def memory():
        gc.collect()
        cupy.cuda.Device().synchronize()
        return pool.used_bytes(), cupy.cuda.runtime.memGetInfo()[0]

    for _ in range(10):
        call()
    before = memory()
    for _ in range(1000):
        call()
    assert memory() == before
