"""How :class:`streamboost.stacks.tree.TreeStack` grows a tree: Numba functions on plain arrays.

A tree is a complete heap: node p has the children 2p + 1 (left) and 2p + 2 (right). A node whose feature
is -1 sends everything left, so that a leaf is a number below 2 ** depth wherever growing stopped.
The statistics of a leaf are the sums of weight * target, one for each output, and then of weight.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.histograms import (
    Codes,
    Rows,
    fill_histogram,
    highest_bins,
    histogram_values,
    part_rows,
    rows_that_count,
    subtract_histogram,
    sum_of_squares,
    usual_bins,
)  # fmt: skip
from streamboost.kernels.splits import Signs, best_split, bounded

Leaves = NDArray[np.uint16]
Sets = NDArray[np.uint64]
NEVER = 1 << 62  # more rows than there are


class Growth(NamedTuple):
    """How trees are grown: bins, depth, rows a side, and what is added to weights, besides where levels are judged."""

    n_bins: int
    depth: int
    min_samples_leaf: int
    l2: float
    cat_l2: float


class Tree(NamedTuple):
    """A tree: of its nodes the split, of its leaves sums and bounds."""

    feature: IntArray  # (nodes,), -1 where there is no split
    cut: Codes  # (nodes,), the last bin to go left; ``n_bins - 1`` parts the numbers from the missing
    subset: Sets  # (nodes,), of levels instead those that go left, bit b for bin b; may be (0,) without levels
    missing_left: BoolArray  # (nodes,)
    gain: FloatArray  # (nodes,), what the split takes off the loss
    stats: FloatArray  # (leaves, m + 1)
    bounds: FloatArray  # (leaves, 2), what leaves keep to; may be (0, 2) without signs


class Growing(NamedTuple):
    """A tree that is being grown: its rows, grouped by node, and the nodes still to be split."""

    values: FloatArray  # (n, c), what histograms add up
    rows: Rows  # (n,)
    spare: Rows  # (n,), room
    gathered: FloatArray  # (n, c), room
    hists: FloatArray  # (depth, d, n_bins + 1, c)
    highest: IntArray  # (d,), bins
    usual: IntArray  # (d,), bins
    todo: IntArray  # (depth + 1, 5): node, level, histogram, and its rows from where to where
    limits: FloatArray  # (depth + 1, 2), bounds of these nodes
    counts: IntArray  # (2,): nodes to do, and rows of all nodes that are done
    noise: float  # well above what rounding makes of a gain


@compiled
def grow(
    codes: Codes, target: FloatArray, weight: FloatArray, growth: Growth, is_level: BoolArray, monotone: Signs,
    tree: Tree, leaf: Leaves,
) -> None:  # fmt: skip
    """Grow one regression tree under weighted square loss, and write it into ``tree``, and the rows' ``leaf`` (n,).

    ``codes`` (d, n) tell the bin of each value, ``n_bins`` where it is missing; ``target`` is (n, m). Where
    ``is_level`` (d,) a bin is a level: these have no order, and their splits are judged with ``cat_l2`` more.
    ``monotone`` (d,) is the sign of what more of a column must do to what the tree says, or empty; it needs m = 1.
    A row of weight 0 is given its leaf and otherwise counts as absent.
    """
    growing = begin_growing(codes, target, weight, growth, tree)
    go_on_growing(growing, codes, target.shape[1], growth, is_level, monotone, tree, leaf, NEVER)
    _add_up_leaves(codes, growing.values, growth.n_bins, growth.depth, is_level, tree, leaf)


@compiled
def begin_growing(codes: Codes, target: FloatArray, weight: FloatArray, growth: Growth, tree: Tree) -> Growing:
    """Return a tree that is about to split its first node; ``tree`` has no splits yet."""
    n_bins, depth = growth.n_bins, growth.depth
    for p in range(tree.feature.shape[0]):
        tree.feature[p], tree.cut[p], tree.missing_left[p], tree.gain[p] = -1, n_bins - 1, True, 0.0
    for p in range(tree.subset.shape[0]):
        tree.subset[p] = 0
    for q in range(tree.bounds.shape[0]):
        tree.bounds[q, 0], tree.bounds[q, 1] = -np.inf, np.inf
    values = histogram_values(target, weight)  # (n, c)
    rows, n_rows = rows_that_count(weight)
    spare, gathered = np.empty(rows.shape[0], np.uint32), np.empty(values.shape)
    hists = np.empty((depth, codes.shape[0], n_bins + 1, values.shape[1]))  # (depth, d, n_bins + 1, c)
    highest, usual = np.full(codes.shape[0], n_bins - 1), np.full(codes.shape[0], -1)
    fill_histogram(hists[0], codes, rows[:n_rows], values, gathered, highest, usual)
    todo, limits, counts = np.zeros((depth + 1, 5), np.int64), np.empty((depth + 1, 2)), np.array([1, 0])
    todo[0, 4], limits[0, 0], limits[0, 1] = n_rows, -np.inf, np.inf
    return Growing(
        values, rows, spare, gathered, hists, highest_bins(hists[0]), usual_bins(hists[0]), todo, limits, counts,
        1e-12 * sum_of_squares(target, weight),
    )  # fmt: skip


@compiled
def go_on_growing(
    growing: Growing, codes: Codes, m: int, growth: Growth, is_level: BoolArray, monotone: Signs, tree: Tree,
    leaf: Leaves, until: int,
) -> bool:  # fmt: skip
    """Split nodes until those that are done have had ``until`` rows, one counted in each; return whether all are done.

    Depth first: beside the node at hand at most one sibling a level waits, so that a histogram a level is room enough.
    The smaller child's is filled, the larger one's is what the parent's then has left.
    """
    n_bins, depth, min_samples_leaf, l2 = growth.n_bins, growth.depth, growth.min_samples_leaf, growth.l2
    values, rows, hists, highest = growing.values, growing.rows, growing.hists, growing.highest
    todo, limits, counts, bounds = growing.todo, growing.limits, growing.counts, tree.bounds
    goes_left = np.empty(n_bins + 1, np.uint8)  # by code, of the node at hand
    n_todo = counts[0]
    while n_todo > 0 and counts[1] < until:
        n_todo -= 1
        p, level, at = todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2]
        start, stop = todo[n_todo, 3], todo[n_todo, 4]
        low, high = limits[n_todo, 0], limits[n_todo, 1]
        j, b, levels, left, g = -1, 0, np.uint64(0), True, 0.0
        if level < depth and stop - start >= 2 * min_samples_leaf:
            counts[1] += stop - start
            j, b, levels, left, g = best_split(
                hists[at], highest, is_level, monotone, low, high, m, min_samples_leaf, l2, growth.cat_l2,
                growing.noise,
            )  # fmt: skip
        if j < 0:
            q = ((p + 1) << (depth - level)) - (1 << depth)
            for s in range(start, stop):
                leaf[rows[s]] = q
            if bounds.shape[0] > 0:
                bounds[q, 0], bounds[q, 1] = low, high
            continue
        tree.feature[p], tree.cut[p], tree.missing_left[p], tree.gain[p] = j, b, left, g
        by_level = is_level[j]
        if by_level:
            tree.subset[p] = levels
        for code in range(n_bins + 1):
            goes_left[code] = _goes_left(code, by_level, b, levels, left, n_bins)
        middle = part_rows(rows, start, stop, growing.spare, codes[j], goes_left)
        left_at, right_at = level + 1, at
        small = rows[start:middle]
        if middle - start > stop - middle:
            left_at, right_at = at, level + 1
            small = rows[middle:stop]
        sign = monotone[j] if monotone.shape[0] > 0 and b < n_bins - 1 else 0
        left_low, left_high, right_low, right_high = share_bounds(
            hists[at, j], highest[j], goes_left, sign, l2, low, high
        )
        if level + 1 < depth and stop - start - small.shape[0] >= 2 * min_samples_leaf:
            fill_histogram(hists[level + 1], codes, small, values, growing.gathered, highest, growing.usual)
            subtract_histogram(hists[at], hists[level + 1], highest)
        n_todo = _note(todo, limits, n_todo, 2 * p + 1, level + 1, left_at, start, middle, left_low, left_high)
        n_todo = _note(todo, limits, n_todo, 2 * p + 2, level + 1, right_at, middle, stop, right_low, right_high)
    counts[0] = n_todo
    return bool(n_todo == 0)


@compiled
def set_thresholds(feature: IntArray, cut: Codes, n_bins: int, edges: FloatArray, threshold: FloatArray) -> None:
    """Write the raw values behind the cuts of a tree; inf where there is no split, or one that parts the missing."""
    for p in range(feature.shape[0]):
        is_cut = feature[p] >= 0 and cut[p] < n_bins - 1
        threshold[p] = edges[feature[p], cut[p]] if is_cut else np.inf


@compiled_inside
def _note(
    todo: IntArray, limits: FloatArray, n_todo: int, p: int, level: int, at: int, start: int, stop: int, low: float,
    high: float,
) -> int:  # fmt: skip
    """Note a node, its histogram, its rows and its bounds for later; return how many are noted."""
    todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = p, level, at
    todo[n_todo, 3], todo[n_todo, 4] = start, stop
    limits[n_todo, 0], limits[n_todo, 1] = low, high
    return n_todo + 1


@compiled_inside
def _goes_left(code: int, is_level: bool, cut: int, levels: np.uint64, missing_left: bool, n_bins: int) -> bool:
    if code == n_bins:
        return missing_left
    if is_level:
        return bool((levels >> np.uint64(code)) & np.uint64(1))  # all unsigned: mixed, they would become floats
    return code <= cut


@compiled_inside
def share_bounds(
    bins: FloatArray, highest: int, goes_left: Codes, sign: int, l2: float, low: float, high: float
) -> tuple[float, float, float, float]:
    """Return the bounds of both sides of a split: where a ``sign`` asks for it, they part midway between the two."""
    if sign == 0:
        return low, high, low, high
    here = there = 0.0
    w_left = w_right = l2
    for t in range(highest + 2):
        b = t if t <= highest else bins.shape[0] - 1  # the missing
        if goes_left[b]:
            here, w_left = here + bins[b, 0], w_left + bins[b, 1]
        else:
            there, w_right = there + bins[b, 0], w_right + bins[b, 1]
    midway = 0.5 * bounded(here, w_left, low, high) + 0.5 * bounded(there, w_right, low, high)
    return (low, midway, midway, high) if sign > 0 else (midway, high, low, midway)


@compiled_inside
def _add_up_leaves(
    codes: Codes, values: FloatArray, n_bins: int, depth: int, is_level: BoolArray, tree: Tree, leaf: Leaves
) -> None:
    """Put the rows of weight 0 into their leaves, and add up all of them in order, as learning would."""
    feature, stats = tree.feature, tree.stats
    m = stats.shape[1] - 1
    for q in range(stats.shape[0]):
        for k in range(m + 1):
            stats[q, k] = 0.0
    for s in range(leaf.shape[0]):
        if values[s, m] == 0.0:
            p, level = 0, 0
            while level < depth and feature[p] >= 0:
                j = feature[p]
                levels = tree.subset[p] if is_level[j] else np.uint64(0)
                p = (
                    2 * p
                    + 2
                    - int(_goes_left(codes[j, s], is_level[j], tree.cut[p], levels, tree.missing_left[p], n_bins))
                )
                level += 1
            leaf[s] = ((p + 1) << (depth - level)) - (1 << depth)
        for k in range(m + 1):
            stats[leaf[s], k] += values[s, k]
