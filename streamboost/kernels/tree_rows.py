"""Leaves of trees: found by rows, read and taught; one row at a time in the loop of trees, many for a stack alone."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inline, compiled_inside
from streamboost.kernels.layout import DEPTH, L2, LEAF, N_TREES, NODE, OTHER, TREE

FEW = 8  # rows that are walked through all trees at a time
Leaves = NDArray[np.uint16]
LevelBins = NDArray[np.uint8]


class Trees(NamedTuple):
    """Trees end to end: of each its step, its nodes and its leaves."""

    eta: FloatArray  # (trees,)
    feature: IntArray  # (nodes,)
    threshold: FloatArray  # (nodes,)
    missing_left: BoolArray  # (nodes,)
    subset: NDArray[np.uint64]  # (nodes,), or (0,) without categories
    stats: FloatArray  # (leaves, m + 1)
    bounds: FloatArray  # (leaves, 2), or (0, 2) without signs
    level_bins: LevelBins  # (trees, categories, levels)
    cat_at: IntArray  # (d,)


@compiled_inline
def find_leaves(x: FloatArray, tree: int, node: int, depth: int, trees: Trees, other: int, leaf: Leaves) -> None:
    """Find the leaf of a row in each tree from ``tree`` on; nodes of all trees lie end to end, theirs from ``node`` on.

    A value at or below the threshold goes left. A threshold of NaN, which nothing is at or below, tells that levels
    are parted instead: bit ``level_bins[i, cat_at[j], level]`` of the subset says whether a level goes left, and bit
    ``other`` where the tree has no bin for it.
    """
    n_trees, n_nodes = leaf.shape[0], (1 << depth) - 1
    feature, threshold, missing_left = trees.feature, trees.threshold, trees.missing_left
    subset, level_bins, cat_at = trees.subset, trees.level_bins, trees.cat_at
    has_levels = level_bins.shape[1] > 0
    for i in range(n_trees):
        leaf[i] = 0
    for level in range(depth):
        first = node + (1 << level) - 1
        for i in range(n_trees):  # all trees a level down: steps that neither wait for one another nor branch
            p = first + i * n_nodes + int(leaf[i])
            v, cut = x[max(feature[p], 0)], threshold[p]
            goes_left = (v <= cut) | (missing_left[p] & (v != v))
            if has_levels and cut != cut and v == v:
                bins = level_bins[tree + i, cat_at[feature[p]]]
                bin_ = np.uint64(bins[int(v)] if 0.0 <= v < bins.shape[0] else other)
                goes_left = (subset[p] >> bin_) & np.uint64(1) != 0
            leaf[i] = 2 * int(leaf[i]) + 1 - int(goes_left)


@compiled_inside
def walk_row(
    x: FloatArray, plan: IntArray, rates: FloatArray, trees: Trees, leaf: Leaves, h: FloatArray, walk: FloatArray
) -> None:
    """Walk a row through one booster: its leaf in each tree, what they say, and the partial sums from y⁰ = walk[0]."""
    n_trees, depth, tree = plan[N_TREES], plan[DEPTH], plan[TREE]
    n_leaves, m = 1 << depth, walk.shape[1]
    eta, stats, bounds = trees.eta, trees.stats, trees.bounds
    find_leaves(x, tree, plan[NODE], depth, trees, plan[OTHER], leaf)
    l2, has_bounds = rates[L2], bounds.shape[0] > 0
    for i in range(n_trees):
        q = plan[LEAF] + i * n_leaves + int(leaf[i])
        weight = stats[q, m] + l2
        scale = 1.0 / weight if weight > 0.0 else 0.0
        step = eta[tree + i]
        for k in range(m):
            said = stats[q, k] * scale
            if has_bounds:
                said = min(max(said, bounds[q, 0]), bounds[q, 1])
            h[i, k] = said
            walk[i + 1, k] = walk[i, k] - step * said


@compiled_inside
def walk_rows(
    X: FloatArray, start: int, stop: int, y0: FloatArray, plan: IntArray, rates: FloatArray, trees: Trees,
    steps: IntArray, sums: FloatArray,
) -> None:  # fmt: skip
    """Walk rows from ``start`` to ``stop`` through one booster on a constant; write some partial sums, (n, steps, m).

    ``steps`` tell, in ascending order, after how many trees; the same as :func:`walk_row`, bit for bit. Many rows go
    through one tree after the other, whose nodes are near at hand then; few go through all trees at a time.
    """
    depth, tree, node, m = plan[DEPTH], plan[TREE], plan[NODE], y0.shape[0]
    n, n_trees, n_nodes, n_leaves = stop - start, steps[steps.shape[0] - 1], (1 << depth) - 1, 1 << depth
    feature, threshold, missing_left = trees.feature, trees.threshold, trees.missing_left
    subset, level_bins, cat_at, bounds = trees.subset, trees.level_bins, trees.cat_at, trees.bounds
    has_levels, has_bounds, other, l2 = level_bins.shape[1] > 0, bounds.shape[0] > 0, plan[OTHER], rates[L2]
    few, flat, from_row, width = n < FEW, X.reshape(X.size), np.uint64(start), np.uint64(X.shape[1])
    below, one = np.empty(n, np.uint64), np.uint64(1)
    levels = levels_of(X, start, stop, cat_at, level_bins.shape[1], level_bins.shape[2])
    near = np.empty(levels.size, np.uint8)  # bins of these levels, of the tree at hand
    leaf = np.zeros((n, n_trees if few else 1), np.uint16)
    now = np.empty((n, m))
    for s in range(n):
        if few:
            find_leaves(X[start + s], tree, node, depth, trees, other, leaf[s])
        for k in range(m):
            now[s, k] = y0[k]
    t = 0
    for i in range(n_trees + 1):
        while t < steps.shape[0] and steps[t] == i:
            for s in range(n):
                for k in range(m):
                    sums[s, t, k] = now[s, k]
            t += 1
        if i == n_trees:
            break
        at = 0
        if few:
            at = i
        else:
            for s in range(n):
                below[s] = np.uint64(0)
            if has_levels:
                take_bins(level_bins[tree + i], levels, other, near)
            for level in range(depth):
                first = np.uint64(node + i * n_nodes + (1 << level) - 1)
                for s in range(np.uint64(n)):  # without a sign: no check for numbers that count from the end
                    p = first + below[s]
                    j = np.uint64(max(feature[p], 0))
                    v, cut = flat[(from_row + s) * width + j], threshold[p]
                    goes_left = np.uint64((v <= cut) | (missing_left[p] & (v != v)))
                    if has_levels:
                        in_set = (subset[p] >> np.uint64(near[np.uint64(max(cat_at[j], 0)) * np.uint64(n) + s])) & one
                        goes_left = in_set if (cut != cut) & (v == v) else goes_left
                    below[s] = below[s] + below[s] + one - goes_left
            for s in range(n):
                leaf[s, 0] = below[s]
        step = trees.eta[tree + i]
        for s in range(n):
            q = plan[LEAF] + i * n_leaves + int(leaf[s, at])
            weight = trees.stats[q, m] + l2
            scale = 1.0 / weight if weight > 0.0 else 0.0
            for k in range(m):
                said = trees.stats[q, k] * scale
                if has_bounds:
                    said = min(max(said, bounds[q, 0]), bounds[q, 1])
                now[s, k] = now[s, k] - step * said


@compiled_inside
def levels_of(X: FloatArray, start: int, stop: int, cat_at: IntArray, n_cat: int, n_levels: int) -> IntArray:
    """Return the levels of rows, (n_cat, n), -1 where there is none that a tree could know."""
    levels = np.full((n_cat, stop - start), -1)
    for j in range(cat_at.shape[0] if n_cat > 0 else 0):
        if cat_at[j] >= 0:
            for s in range(start, stop):
                levels[cat_at[j], s - start] = int(X[s, j]) if 0.0 <= X[s, j] < n_levels else -1
    return levels


@compiled_inside
def take_bins(level_bins: LevelBins, levels: IntArray, other: int, near: LevelBins) -> None:
    """Write the bins of one tree for levels (n_cat, n), end to end."""
    n_cat, n = levels.shape
    for c in range(n_cat):
        for s in range(n):
            near[c * n + s] = level_bins[c, levels[c, s]] if levels[c, s] >= 0 else other


@compiled_inside
def learn_leaves(
    stats: FloatArray, n_leaves: int, forget: float, leaf: Leaves, targets: FloatArray, w: float, curvature: FloatArray
) -> None:
    """Add a row's targets (N, m) and curvatures (N,) to its leaves; a leaf that weighs ``forget`` fades first."""
    n_trees, m = targets.shape
    for i in range(n_trees):
        at = i * n_leaves + int(leaf[i])
        weight = stats[at, m]
        fade = (forget - 1.0) / weight if weight >= forget else 1.0
        for k in range(m):
            stats[at, k] = stats[at, k] * fade + w * targets[i, k]
        stats[at, m] = weight * fade + w * curvature[i]


@compiled_inside
def leaf_steps(stats: FloatArray, bounds: FloatArray, l2: float, eta: FloatArray, n: int) -> FloatArray:
    """How far each leaf of the first n trees moves a score, η h, (n, leaves, m)."""
    n_leaves, m = stats.shape[1], stats.shape[2] - 1
    steps = np.empty((n, n_leaves, m))
    for j in range(n):
        for q in range(n_leaves):
            weight = stats[j, q, m] + l2
            for k in range(m):
                said = stats[j, q, k] / weight if weight > 0.0 else 0.0
                if bounds.shape[1] > 0:
                    said = min(max(said, bounds[j, q, 0]), bounds[j, q, 1])
                steps[j, q, k] = eta[j] * said
    return steps


@compiled
def route(X: FloatArray, trees: Trees, depth: int, other: int) -> Leaves:
    """Return the leaf (n, N) of each row (n, d) in each tree."""
    n, d = X.shape
    leaf = np.zeros((n, trees.level_bins.shape[0]), np.uint16)
    for s in range(n if d > 0 else 0):
        find_leaves(X[s], 0, 0, depth, trees, other, leaf[s])
    return leaf


@compiled_inside
def mark_left(columns: FloatArray, i: int, depth: int, trees: Trees, other: int, left: BoolArray) -> None:
    """Mark which rows would go left at each node of tree i, (nodes, n), by the same rule as :func:`find_leaves`."""
    first, n_nodes = i * ((1 << depth) - 1), (1 << depth) - 1
    feature, threshold, missing_left = trees.feature, trees.threshold, trees.missing_left
    subset, level_bins, cat_at = trees.subset, trees.level_bins, trees.cat_at
    for p in range(n_nodes):
        j, cut, missing, n = feature[first + p], threshold[first + p], missing_left[first + p], columns.shape[1]
        if j < 0:
            left[p] = True
        elif cut == cut or level_bins.shape[1] == 0:
            for s in range(n):
                v = columns[j, s]
                left[p, s] = (v <= cut) | (missing & (v != v))
        else:
            bins, levels = level_bins[i, cat_at[j]], subset[first + p]
            for s in range(n):
                v = columns[j, s]
                bin_ = np.uint64(bins[int(v)] if 0.0 <= v < bins.shape[0] else other)
                left[p, s] = (levels >> bin_) & np.uint64(1) != 0 if v == v else missing


@compiled
def add_moves(
    X: FloatArray, trees: Trees, depth: int, other: int, l2: float, owners: IntArray, moves: FloatArray
) -> None:
    """Add how far the score of a row moves as each column takes the value of the row before, to ``moves`` (n, c, m).

    ``owners`` (d,) says to which of the c columns each place in a row belongs. A tree is asked anew only below the
    first node at which the two values part, so that the cost does not grow with the number of columns.
    """
    n, n_trees, n_leaves, m = X.shape[0], trees.level_bins.shape[0], 1 << depth, moves.shape[2]
    stats = trees.stats.reshape(n_trees, n_leaves, m + 1)
    bounds = trees.bounds.reshape(n_trees, trees.bounds.shape[0] // max(n_trees, 1), 2)
    steps = leaf_steps(stats, bounds, l2, trees.eta, n_trees)
    columns, left = np.ascontiguousarray(X.T), np.empty((n_leaves - 1, n), np.bool_)
    owner = np.empty(n_leaves - 1, np.int64)  # of each node
    turns = np.empty((depth, 3), np.int64)  # columns whose exchange changes the way: which, and where it goes then
    for i in range(n_trees):
        mark_left(columns, i, depth, trees, other, left)
        for p in range(n_leaves - 1):
            j = trees.feature[i * (n_leaves - 1) + p]
            owner[p] = owners[j] if j >= 0 else -1
        for s in range(n):
            before, leaf, n_turns = s - 1 if s > 0 else n - 1, 0, 0
            for level in range(depth):
                p = (1 << level) - 1 + leaf
                goes_left = left[p, s]
                if left[p, before] != goes_left:
                    is_new = True
                    for t in range(n_turns):
                        is_new &= turns[t, 0] != owner[p]
                    if is_new:
                        turns[n_turns, 0], turns[n_turns, 1] = owner[p], level + 1
                        turns[n_turns, 2] = 2 * leaf + int(goes_left)
                        n_turns += 1
                leaf = 2 * leaf + 1 - int(goes_left)
            for t in range(n_turns):
                column, there = turns[t, 0], turns[t, 2]
                for level in range(turns[t, 1], depth):
                    p = (1 << level) - 1 + there
                    there = 2 * there + 1 - int(left[p, before if owner[p] == column else s])
                for k in range(m):
                    moves[s, column, k] += steps[i, leaf, k] - steps[i, there, k]


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
def learn(
    leaf: Leaves, targets: FloatArray, weight: FloatArray, curvature: FloatArray, stats: FloatArray, forget: float
) -> None:
    """Add ``targets`` (n, N, m) and curvatures (n, N) to the leaves (n, N) row after row.

    A leaf that weighs ``forget`` fades first.
    """
    n_trees, n_leaves, width = stats.shape
    flat = stats.reshape(n_trees * n_leaves, width)
    for s in range(leaf.shape[0]):
        if weight[s] != 0.0:
            learn_leaves(flat, n_leaves, forget, leaf[s], targets[s], weight[s], curvature[s])
