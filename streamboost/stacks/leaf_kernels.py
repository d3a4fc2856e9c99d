"""How :class:`streamboost.stacks.tree.TreeStack` finds leaves, reads and teaches them: Numba functions on plain arrays.

Nodes, leaves and their statistics are laid out as in :mod:`streamboost.stacks.tree_kernels`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import BoolArray, FloatArray, IntArray
from streamboost.compiled import compiled

Leaves = NDArray[np.uint16]
LevelBins = NDArray[np.uint8]
Sets = NDArray[np.uint64]


@compiled
def route(
    X: FloatArray,
    feature: IntArray,
    threshold: FloatArray,
    missing_left: BoolArray,
    subset: Sets,
    level_bins: LevelBins,
    cat_at: IntArray,
    other: int,
    depth: int,
) -> Leaves:
    """Return the leaf (n, N) of each row (n, d) in each tree.

    A value at or below the threshold goes left. A threshold of NaN, which nothing is at or below, tells that levels
    are parted instead: bit ``level_bins[i, cat_at[j], level]`` of the subset says whether a level goes left, and bit
    ``other`` where the tree has no bin for it.
    """
    n, d = X.shape
    n_trees = feature.shape[0]
    has_levels = level_bins.shape[1] > 0
    leaf = np.zeros((n, n_trees), np.uint16)
    for s in range(n):
        row, at = X[s], leaf[s]
        for level in range(depth if d > 0 else 0):
            first = (1 << level) - 1
            for i in range(n_trees):  # all trees a level down: steps that wait for none other and rarely branch
                p = first + int(at[i])
                j = feature[i, p]
                x = row[max(j, 0)]
                cut = threshold[i, p]
                goes_left = (j < 0) | (x <= cut) | (missing_left[i, p] & (x != x))
                if has_levels and cut != cut and x == x:
                    bins = level_bins[i, cat_at[j]]
                    b = np.uint64(bins[int(x)] if 0.0 <= x < bins.shape[0] else other)
                    goes_left = (subset[i, p] >> b) & np.uint64(1) != 0
                at[i] = 2 * int(at[i]) + 1 - int(goes_left)
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
    m = targets.shape[2]
    for s in range(leaf.shape[0]):
        if weight[s] == 0.0:
            continue
        for i in range(leaf.shape[1]):
            at = stats[i, leaf[s, i]]
            if at[m] >= forget:
                at *= (forget - 1.0) / at[m]
            for k in range(m):
                at[k] += weight[s] * targets[s, i, k]
            at[m] += weight[s]
