"""Sums, extremes, statistics of NumPy arrays, tensors and Arrow arrays, on NVIDIA GPUs and CPUs with the same bits.

>>> import numpy as np
>>> import gpu_reduce
>>> gpu_reduce.sum(np.array([0.5, 1.5]))
np.float64(2.0)
"""

from . import _native
from ._native import *  # noqa: F403
from ._native import __version__

__all__ = _native.__all__
