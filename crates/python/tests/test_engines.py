"""PyTorch, and the examples with engines; each where its package is installed."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

import gpu_reduce

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_torch():
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 4, 5)
    for axis in [None, 0, 1, -1, (0, 1), (0, 2)]:
        for tensor in [x, x.permute(2, 0, 1), x[:, ::2], x.half(), x.bfloat16(), (x * 9).int()]:
            ours = gpu_reduce.sum(tensor, axis=axis)
            theirs = tensor.sum() if axis is None else tensor.sum(axis)
            assert type(ours) is torch.Tensor and ours.dtype == theirs.dtype and ours.shape == theirs.shape
            assert torch.allclose(ours.double(), theirs.double(), atol=0.1 if tensor.dtype.itemsize == 2 else 1e-5)
    assert gpu_reduce.argmax(x) == x.argmax()
    out = torch.zeros(4)
    assert gpu_reduce.index_add(out, torch.tensor([1, 1, 3]), torch.ones(3)) is out
    assert out.tolist() == [0, 2, 0, 1]
    with pytest.raises(TypeError, match="requires a gradient"):
        gpu_reduce.sum(torch.ones(3, requires_grad=True))


ALL = [
    (["dask"], "dask_sums"),
    (["pandas", "xarray"], "pandas_groups"),
    (["pandas", "polars", "pyarrow"], "polars_sums"),
    (["ray"], "ray_sums"),
    (["dask", "flox", "xarray"], "xarray_flox"),
]


@pytest.mark.parametrize(("packages", "example"), ALL)
def test_examples(packages, example, capsys):
    for package in packages:
        pytest.importorskip(package)
    names = runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    if example == "pandas_groups":
        return
    assert len(lines) == 4 and len(set(lines)) == 1
    x = names["x"]
    if example == "xarray_flox":
        months = [x.values[:, names["month"] == month] for month in range(1, 13)]
        sums = [[math.fsum(place) for place in month] for month in months]
        assert np.array(sums).T.tobytes().hex() == lines[0]
    elif example == "polars_sums":
        table = names["table"].to_pandas()
        sums = table.groupby(["city", "year"])["x"].agg(math.fsum)
        assert lines[0] == f"{math.fsum(x)!r} {sums.to_numpy().tobytes().hex()}"
    else:
        assert float(lines[0]) == math.fsum(x.flat)
