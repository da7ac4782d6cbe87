"""Arrays of JAX, on a GPU if JAX finds one. Skipped where JAX is missing."""

import numpy as np
import pytest

import gpu_reduce

jax = pytest.importorskip("jax", reason="JAX is not installed", exc_type=ImportError)
jnp = jax.numpy

TYPES = ["bool", "bfloat16", "float16", "float32", "int8", "int16", "int32", "uint8", "uint16", "uint32"]
FUNCTIONS = ["sum", "prod", "min", "max", "argmin", "argmax", "count_nonzero", "mean", "var", "exact_sum", "minmax"]
# JAX's types of 64 bits, which it has only if they are enabled.
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def sample(dtype, shape, seed=1):
    numbers = np.random.default_rng(seed).integers(-2, 3, shape)
    numbers = numbers / 4 if "float" in dtype else numbers
    return numbers.astype(jnp.dtype(dtype))


def same(got, expected, x):
    """Whether results are JAX's, on the device of x, with the values that NumPy's results have; NaNs are equal."""
    if isinstance(expected, tuple):
        return len(got) == len(expected) and all(same(*both, x) for both in zip(got, expected))
    assert isinstance(got, jax.Array) and got.devices() == x.devices()
    expected = np.asarray(expected)
    if expected.dtype == object:  # exact sums of integers
        expected = expected.astype("int64")
    if str(expected.dtype) in NARROW and not jax.config.jax_enable_x64:
        expected = expected.astype(NARROW[str(expected.dtype)])
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    return np.array_equal(np.asarray(got, "float64"), np.asarray(expected, "float64"), equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_numpy(name, dtype):
    function = getattr(gpu_reduce, name)
    for shape in [(1,), (5000,), (30, 7), (5, 3, 4)]:
        host = sample(dtype, shape)
        x = jnp.asarray(host)
        for axis in [None, *range(len(shape))]:
            for keepdims in [False, True]:
                got = function(x, axis=axis, keepdims=keepdims)
                assert same(got, function(host, axis=axis, keepdims=keepdims), x), (shape, axis)


def test_types():
    x = jnp.ones((3, 4), "bfloat16")
    assert gpu_reduce.sum(x).dtype == gpu_reduce.sum(x, axis=1).dtype == gpu_reduce.mean(x, axis=0).dtype == "bfloat16"
    assert gpu_reduce.exact_sum(x, axis=0).dtype == "float32"
    assert gpu_reduce.sum(x > 0, axis=1).tolist() == [4, 4, 4]
    assert gpu_reduce.sum(jnp.full(300, 100, "int8")).item() == 30_000


def test_arguments():
    host = sample("float32", (30, 40))
    x = jnp.asarray(host)
    for initial in [3, 0.5]:
        for axis in [None, 0, 1]:
            got = gpu_reduce.sum(x, axis=axis, initial=initial)
            assert same(got, gpu_reduce.sum(host, axis=axis, initial=initial), x)
    assert same(gpu_reduce.prod(x, axis=0, initial=2), gpu_reduce.prod(host, axis=0, initial=2), x)
    assert same(gpu_reduce.max(x, axis=0, initial=0, copy=True), gpu_reduce.max(host, axis=0, initial=0), x)
    got = gpu_reduce.sum(x.astype("bfloat16"), axis=1, dtype="float32")
    assert same(got, gpu_reduce.sum(sample("bfloat16", (30, 40)).astype("float32"), axis=1), x)
    with pytest.raises(TypeError, match="immutable"):
        gpu_reduce.sum(x, axis=1, out=jnp.zeros(30))
    got, expected = (gpu_reduce.reduce(of, ["sum", "max"]) for of in [x, host])
    assert all(same(*both, x) for both in zip(got, expected))


def test_arrays_without_elements():
    x = jnp.zeros((0, 3))
    assert same(gpu_reduce.sum(x, axis=0), np.zeros(3, "float32"), x)
    assert same(gpu_reduce.max(x, axis=1), np.zeros(0, "float32"), x)
    with pytest.raises(ValueError, match="zero-size"):
        gpu_reduce.min(x, axis=0)


def test_groups():
    keys, host = sample("int32", 500, 2), sample("float32", 500)
    x = jnp.asarray(host)
    expected_keys, expected = gpu_reduce.group_by(keys, host, ["sum", "max"])
    got_keys, got = gpu_reduce.group_by(jnp.asarray(keys), x, ["sum", "max"])
    assert same(got_keys, expected_keys, x) and all(same(*both, x) for both in zip(got, expected))
    expected_keys, expected = gpu_reduce.group_by((keys, keys > 0), host, "sum")
    got_keys, got = gpu_reduce.group_by((jnp.asarray(keys), jnp.asarray(keys > 0)), x, "sum")
    assert same(got_keys, expected_keys, x) and same(got, expected, x)
    halves = sample("bfloat16", 500, 2)
    expected_keys, _ = gpu_reduce.group_by(halves, host, "sum")
    assert same(gpu_reduce.group_by(jnp.asarray(halves), x, "sum")[0], expected_keys, x)


def test_index_add():
    # JAX's arrays are not written in place.
    with pytest.raises(TypeError):
        gpu_reduce.index_add(jnp.zeros(3), jnp.zeros(2, "int32"), jnp.ones(2))
    out = np.zeros(3, "float32")
    if jax.default_backend() == "cpu":
        gpu_reduce.index_add(out, jnp.asarray([2, 0, 2]), jnp.asarray([1.0, 2.0, 4.0]))
        assert out.tolist() == [2, 0, 5]
