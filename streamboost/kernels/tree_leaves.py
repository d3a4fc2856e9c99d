"""How :class:`streamboost.stacks.tree.TreeStack` finds leaves, reads and teaches them: Numba functions on plain arrays.

Nodes, leaves and their statistics are laid out as in :mod:`streamboost.kernels.tree_growing`.
"""

from __future__ import annotations

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled
from streamboost.kernels.tree_rows import Leaves, Trees, find_leaves, learn_leaves


@compiled
def route(X: FloatArray, trees: Trees, depth: int, other: int) -> Leaves:
    """Return the leaf (n, N) of each row (n, d) in each tree."""
    n, d = X.shape
    leaf = np.zeros((n, trees.level_bins.shape[0]), np.uint16)
    for s in range(n if d > 0 else 0):
        find_leaves(X[s], 0, 0, depth, trees, other, leaf[s])
    return leaf


@compiled
def read(leaf: Leaves, stats: FloatArray, bounds: FloatArray, l2: float) -> FloatArray:
    """Return what the leaves (n, k) of the first k trees say, (n, k, m), each within its bounds if it has any."""
    n, n_trees = leaf.shape
    m = stats.shape[2] - 1
    said = np.zeros((n, n_trees, m))
    for s in range(n):
        for i in range(n_trees):
            at = stats[i, leaf[s, i]]
            weight = at[m] + l2
            if weight > 0.0:
                for k in range(m):
                    said[s, i, k] = at[k] / weight
            if bounds.shape[1] > 0:
                low, high = bounds[i, leaf[s, i], 0], bounds[i, leaf[s, i], 1]
                for k in range(m):
                    said[s, i, k] = min(max(said[s, i, k], low), high)
    return said


@compiled
def learn(leaf: Leaves, targets: FloatArray, weight: FloatArray, stats: FloatArray, forget: float) -> None:
    """Add ``targets`` (n, N, m) to the leaves (n, N) row after row; a leaf that weighs ``forget`` fades first."""
    n_trees, n_leaves, width = stats.shape
    flat = stats.reshape(n_trees * n_leaves, width)
    for s in range(leaf.shape[0]):
        if weight[s] != 0.0:
            learn_leaves(flat, n_leaves, forget, leaf[s], targets[s], weight[s])
