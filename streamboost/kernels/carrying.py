"""Partial sums of many rows, carried past one tree: a sample to grow it from, the rows' leaves, and what these say.

The rows lie in a ring (see :mod:`streamboost.replay`), and their bin codes column after column, (d, room). What is
added up is added in the order of the rows, so that the result is the same however the work is cut into slices.
"""

import numpy as np

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.histograms import Codes, Rows
from streamboost.kernels.losses import LOGISTIC, POISSON, SOFTMAX, SQUARED, Rule, set_gradients
from streamboost.kernels.tree_growing import Leaves, Sets
from streamboost.kernels.tree_rows import LevelBins

TOGETHER = 64  # rows that go through a tree at a time


@compiled
def draw_rows(n: int, n_drawn: int, key: int, first: int, room: int) -> Rows:
    """Return the numbers of ``n_drawn`` of n rows: one, at random, of each of as many stretches.

    The rows lie in a ring of this ``room``, from the ``first`` on.
    """
    rows, own = np.empty(n_drawn, np.uint32), _mixed(np.uint64(key), np.uint64(1))
    for k in range(n_drawn):
        start, stop = k * n // n_drawn, (k + 1) * n // n_drawn
        rows[k] = (first + start + int(_mixed(own, np.uint64(k)) % np.uint64(stop - start))) % room
    return rows


@compiled_inside
def _mixed(key: np.uint64, k: np.uint64) -> np.uint64:
    """Return bits that look random for each key and number: the finaliser of SplitMix64 (Steele et al. 2014)."""
    z = (key + k) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def take_codes(codes: Codes, columns: IntArray, rows: Rows) -> Codes:
    """Return the codes of some rows in some columns, (columns, rows)."""
    taken = np.empty((columns.shape[0], rows.shape[0]), np.uint8)
    for c in range(columns.shape[0]):
        column, into = codes[columns[c]], taken[c]
        for s in range(rows.shape[0]):
            into[s] = column[rows[s]]
    return taken


@compiled
def bin_levels(
    levels: FloatArray, target: FloatArray, weight: FloatArray, l2: float, missing: int, other: int,
    level_bins: LevelBins, codes: Codes,
) -> None:  # fmt: skip
    """Give each level of a column a bin, (n_levels,), and each row the code of its own, (n,).

    Bin ``other`` is for levels that did not come. If more came than there are bins before it, those with like means of
    the target share one: in the order of these means, each bin takes its share of the rows.
    """
    n_levels, m = level_bins.shape[0], target.shape[1]
    sums, weights = np.zeros((n_levels, m)), np.zeros(n_levels)
    for s in range(levels.shape[0]):
        if 0.0 <= levels[s] < n_levels and weight[s] > 0.0:
            weights[int(levels[s])] += weight[s]
            for k in range(m):
                sums[int(levels[s]), k] += weight[s] * target[s, k]
    came = np.flatnonzero(weights > 0.0)
    level_bins[:] = other
    if came.shape[0] <= other:
        for b in range(came.shape[0]):
            level_bins[came[b]] = b
    else:
        said, most = 0, -1.0  # the output of which the levels tell most
        for k in range(m):
            told = (sums[came, k] * sums[came, k] / (weights[came] + l2)).sum()
            if told > most:
                said, most = k, told
        ordered = came[np.argsort(sums[came, said] / (weights[came] + l2), kind="mergesort")]
        total, done, b, inside = weights.sum(), 0.0, 0, 0
        for i in range(ordered.shape[0]):
            # the next bin, where this one has its share, or where those left need one each
            is_full = done >= total * (b + 1) / other or ordered.shape[0] - i <= other - b - 1
            if is_full and inside > 0 and b < other - 1:
                b, inside = b + 1, 0
            level_bins[ordered[i]] = b
            done += weights[ordered[i]]
            inside += 1
    for s in range(levels.shape[0]):
        v = levels[s]
        codes[s] = missing if v != v else level_bins[int(v)] if 0.0 <= v < n_levels else other


@compiled
def snap_splits(feature: IntArray, threshold: FloatArray, edges: FloatArray, n_edges: IntArray, cut: Codes) -> None:
    """Let a tree split at the cut points there are now: move its thresholds to the nearest, and write the ``cut``.

    Splits of levels stay as they are.
    """
    n_bins = edges.shape[1] + 1
    for p in range(feature.shape[0]):
        j, t = feature[p], threshold[p]
        cut[p] = n_bins - 1
        if j >= 0 and t < np.inf and n_edges[j] > 0:
            b = np.searchsorted(edges[j, : n_edges[j]], t)
            if b == n_edges[j] or (b > 0 and t - edges[j, b - 1] < edges[j, b] - t):
                b -= 1
            cut[p], threshold[p] = b, edges[j, b]


@compiled
def set_slopes(rule: Rule, scores: FloatArray, y: FloatArray, gradient: FloatArray, curvature: FloatArray) -> None:
    """Write the gradient of the loss at scores (n, m), and its second derivative by each score, 1 if it tells none."""
    set_gradients(rule.kind, rule.option, 0.0, scores, y, gradient)
    n, m = scores.shape
    pairs = m / (m - 1.0) if m > 1 else 1.0  # as scores of classes say the same if all of them move
    for s in range(n):
        for k in range(m):
            g = gradient[s, k]
            if rule.kind == SOFTMAX:
                curvature[s, k] = pairs * abs(g) * (1.0 - abs(g))
            elif rule.kind == LOGISTIC:
                curvature[s, k] = abs(g) * (1.0 - abs(g))
            elif rule.kind == POISSON:
                curvature[s, k] = g + y[s, k]
            else:
                curvature[s, k] = 1.0
            if rule.ridge != 0.0 and rule.kind in (SOFTMAX, LOGISTIC, POISSON, SQUARED):
                curvature[s, k] += 2.0 * rule.ridge
    if rule.ridge != 0.0:
        for s in range(n):
            for k in range(m):
                gradient[s, k] += 2.0 * rule.ridge * scores[s, k]


@compiled
def find_leaves_by_code(
    codes: Codes, X: FloatArray, start: int, stop: int, n_bins: int, other: int, depth: int, cat_at: IntArray,
    feature: IntArray, cut: Codes, subset: Sets, level_bins: LevelBins, missing_left: BoolArray, leaf: Leaves,
) -> None:  # fmt: skip
    """Write the leaf of the rows from ``start`` to ``stop`` in one tree, by their bin codes (d, room).

    Only levels are looked up in ``X`` (room, d): their bins, (categories, levels), are the tree's own.
    Some rows at a time go a level down, so that no step waits for the one before; numbers without a sign spare the
    check for those that count from the end.
    """
    n_nodes, room, d, flat = feature.shape[0], codes.shape[1], codes.shape[0], codes.reshape(codes.size)
    column, last, missing = np.empty(n_nodes, np.uint64), np.empty(n_nodes, np.uint8), np.empty(n_nodes, np.uint8)
    is_set, is_used, has_levels = np.zeros(n_nodes, np.uint8), np.zeros(d, np.uint8), False
    for p in range(n_nodes):  # without a split all go left
        j = max(feature[p], 0)
        last[p] = cut[p] if feature[p] >= 0 else 255
        missing[p] = n_bins if missing_left[p] else 255  # the code that goes left besides
        is_set[p], is_used[j] = feature[p] >= 0 and cat_at[j] >= 0, 1
        has_levels |= is_set[p] == 1
    for p in range(n_nodes):
        column[p] = max(feature[p], 0) * (TOGETHER if has_levels else room)
    one, at, near = np.uint64(1), np.empty(TOGETHER, np.uint64), np.empty(d * TOGETHER, np.uint8)
    for start_of_block in range(start, stop, TOGETHER):
        first, n = np.uint64(start_of_block), np.uint64(min(TOGETHER, stop - start_of_block))
        for s in range(n):
            at[s] = np.uint64(0)
        if has_levels:
            _take_near(codes, X, start_of_block, int(n), n_bins, other, cat_at, is_used, level_bins, near)
        for _ in range(depth if has_levels else 0):
            for s in range(n):
                p = at[s]
                code = near[column[p] + s]
                goes_right = np.uint64((code > last[p]) & (code != missing[p]))
                in_set = (subset[p] >> np.uint64(code & 63)) & one
                at[s] = p + p + one + (one - in_set if (is_set[p] == 1) & (code != n_bins) else goes_right)
        for _ in range(0 if has_levels else depth):
            for s in range(n):
                p = at[s]
                code = flat[column[p] + first + s]
                at[s] = p + p + one + np.uint64((code > last[p]) & (code != missing[p]))
        for s in range(n):
            leaf[first + s] = at[s] - np.uint64(n_nodes)


@compiled_inside
def _take_near(
    codes: Codes, X: FloatArray, start: int, n: int, n_bins: int, other: int, cat_at: IntArray, is_used: Codes,
    level_bins: LevelBins, near: Codes,
) -> None:  # fmt: skip
    """Write the codes of a block of rows, of the columns used, side by side; of levels the bins of one tree."""
    n_levels = level_bins.shape[1]
    for j in range(codes.shape[0]):
        if is_used[j] == 0:
            continue
        into = near[j * TOGETHER : j * TOGETHER + n]
        if cat_at[j] < 0:
            into[:] = codes[j, start : start + n]
            continue
        bins = level_bins[cat_at[j]]
        for s in range(n):
            level = X[start + s, j]
            into[s] = (bins[int(level)] if 0.0 <= level < n_levels else other) if level == level else n_bins


@compiled
def add_up_rows(
    leaf: Leaves, start: int, window: int, gone: int, n_gone: int, gradient: FloatArray, curvature: FloatArray,
    weight: FloatArray, sums: FloatArray,
) -> None:  # fmt: skip
    """Add weight * gradient (n, m), weight * curvature (n, m) and weight of rows from ``start`` on to their leaves.

    ``sums`` are (leaves, 2 m + 1). The ``n_gone`` places from ``gone`` on, in a ring of ``window``, do not count.
    """
    m = gradient.shape[1]
    for s in range(gradient.shape[0]):
        if (start + s - gone) % window < n_gone or weight[start + s] == 0.0:
            continue
        w, at = weight[start + s], sums[leaf[start + s]]
        for k in range(m):
            at[k] += w * gradient[s, k]
            at[m + k] += w * curvature[s, k]
        at[2 * m] += w


@compiled
def take_steps(leaf: Leaves, values: FloatArray, step: float, carried: FloatArray) -> None:
    """Take a step from the partial sums of rows (n, m) by what their leaves say, (leaves, m)."""
    n, m = carried.shape
    for s in range(n):
        for k in range(m):
            carried[s, k] -= step * values[leaf[s], k]
