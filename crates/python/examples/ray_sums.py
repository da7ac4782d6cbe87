"""Sums over Ray's workers: the same bits for any pieces, workers and order.

pip install ray && python ray_sums.py
"""

import numpy as np
import ray

from gpu_reduce import Partial


@ray.remote
def reduced(piece, op):
    """The part of a piece of the data."""
    part = Partial(op, piece.dtype)
    part.add(piece)
    return part


@ray.remote
def merged(part, other):
    # What Ray hands to a task is pickled, so that no other task sees the change.
    part.merge(other)
    return part


def reduction(pieces, op):
    """Reduces arrays of one type, or Ray's references to them, by an operator that has parts."""
    parts = [reduced.remote(piece, op) for piece in pieces]
    while len(parts) > 1:
        # Those merge first that are there first.
        ready, waiting = ray.wait(parts, num_returns=2)
        parts = [*waiting, merged.remote(*ready)]
    return ray.get(parts[0]).finish()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    x = np.random.default_rng(0).standard_normal(100_000) * 1e10
    for pieces in [1, 2, 7, 20]:
        print(repr(float(reduction(np.array_split(x, pieces), "sum"))))
    ray.shutdown()
