"""Arrays that are reduced after a copy, and what is read of arrays that have __cuda_array_interface__ only."""

import numpy as np
import pytest

import gpu_reduce


class Elsewhere:
    """A tensor on a device of another kind, as Apple's GPUs are, which gives copies on the CPU."""

    def __init__(self, x):
        self.x, self.copies = x, 0

    def __dlpack_device__(self):
        return (8, 0)

    def __dlpack__(self, *, dl_device=None, copy=None, **more):
        if dl_device != (1, 0) or copy is not True:
            raise BufferError("the tensor is not on the CPU")
        self.copies += 1
        return self.x.copy().__dlpack__(**more)


def test_tensors_elsewhere():
    x = np.arange(12.0).reshape(3, 4)
    tensor = Elsewhere(x)
    with pytest.raises(TypeError, match="type 8 cannot be reduced where it lies: copy=True copies it"):
        gpu_reduce.sum(tensor)
    assert tensor.copies == 0
    assert gpu_reduce.sum(tensor, copy=True) == 66.0
    assert gpu_reduce.max(tensor, axis=0, copy=True).tolist() == [8, 9, 10, 11]
    assert gpu_reduce.reduce(tensor, ["min", "mean"], where=x > 5, copy=True) == [6.0, 8.5]
    assert gpu_reduce.vector_norm(Elsewhere(np.array([3.0, 4.0])), copy=True) == 5.0
    assert tensor.copies == 3


def test_arrays_that_need_no_copy():
    x = np.arange(12.0).reshape(3, 4)
    for name in ["sum", "min", "mean", "std", "argmax", "any", "exact_sum", "minmax"]:
        function = getattr(gpu_reduce, name)
        assert np.array_equal(function(x, axis=0, copy=True), function(x, axis=0))
    assert gpu_reduce.vecdot(x, x[0], copy=True).tolist() == gpu_reduce.vecdot(x, x[0]).tolist()
    assert gpu_reduce.segment_reduce(x[0], [0, 4], "sum", copy=True).tolist() == [6.0]
    assert gpu_reduce.group_by([1, 1, 2, 2], x[0], "sum", copy=True)[1].tolist() == [1.0, 5.0]


class Described:
    def __init__(self, **more):
        described = {"version": 3, "shape": (0,), "typestr": "<f8", "data": (0, False), "strides": None}
        self.__cuda_array_interface__ = {
            name: value for name, value in (described | more).items() if value is not Ellipsis
        }


def test_cuda_array_interface():
    # Without elements there is nothing to read on a GPU.
    assert gpu_reduce.sum(Described()) == 0.0
    assert gpu_reduce.sum(Described(typestr="|i1", version=2, stream=None)).dtype == np.int64
    assert gpu_reduce.sum(Described(typestr="<c8")).dtype == np.complex64
    assert gpu_reduce.sum(Described(shape=(3, 0), strides=(16, 8), stream=2), axis=1).tolist() == [0.0] * 3
    assert gpu_reduce.count_nonzero(Described(shape=(0, 3), typestr="<V2"), axis=0).tolist() == [0] * 3
    with pytest.raises(ValueError, match="zero-size array"):
        gpu_reduce.max(Described())
    for error, match, more in [
        (TypeError, "version 1 of __cuda_array_interface__ is not read", {"version": 1}),
        (TypeError, "with a mask", {"mask": Described()}),
        (TypeError, "'>f8'|\">f8\"", {"typestr": ">f8"}),
        (TypeError, "not reduced", {"typestr": "<M8"}),
        (TypeError, "not reduced", {"typestr": ""}),
        (TypeError, "not reduced", {"typestr": "<f16"}),
        (ValueError, 'has no "typestr"', {"typestr": ...}),
        (ValueError, 'has no "data"', {"data": ...}),
        (ValueError, "strides .* do not fit shape", {"strides": (3,)}),
        (ValueError, "strides .* do not fit shape", {"strides": (8, 8)}),
        (ValueError, "stream 0 is ambiguous", {"stream": 0}),
        (TypeError, None, {"shape": "none"}),
        ((OverflowError, TypeError, ValueError), None, {"shape": (-1,)}),
    ]:
        with pytest.raises(error, match=match):
            gpu_reduce.sum(Described(**more))


def test_without_a_gpu():
    if len(gpu_reduce.devices()) > 1:
        pytest.skip("there is a GPU: tests/test_cuda.py")
    with pytest.raises(RuntimeError):
        gpu_reduce.sum(Described(shape=(2,), data=(4096, True)))
