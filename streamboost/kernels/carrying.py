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
def snap_splits(
    feature: IntArray, threshold: FloatArray, subset: Sets, level_bins: LevelBins, edges: FloatArray, n_edges: IntArray,
    cat_at: IntArray, now: LevelBins, cut: Codes,
) -> None:  # fmt: skip
    """Let a tree split at the cut points there are now: move its thresholds to the nearest, and write the ``cut``.

    A set of levels goes left as it did: ``level_bins`` (categories, levels) are the bins the tree knows, ``now`` those
    it will know.
    """
    n_bins = edges.shape[1] + 1
    for p in range(feature.shape[0]):
        j, t = feature[p], threshold[p]
        cut[p] = n_bins - 1
        if j < 0:
            continue
        if t != t:  # levels
            before, after, sides = level_bins[cat_at[j]], now[cat_at[j]], np.uint64(0)
            for level in range(after.shape[0]):  # of levels that share a bin, the last decides
                bit = np.uint64(1) << np.uint64(after[level])
                if (subset[p] >> np.uint64(before[level])) & np.uint64(1) != 0:
                    sides |= bit
                else:
                    sides &= ~bit
            subset[p] = sides
        elif t < np.inf and n_edges[j] > 0:
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
    codes: Codes, start: int, stop: int, n_bins: int, depth: int, is_level: BoolArray, feature: IntArray, cut: Codes,
    subset: Sets, missing_left: BoolArray, leaf: Leaves,
) -> None:  # fmt: skip
    """Write the leaf of the rows from ``start`` to ``stop`` in one tree, by their bin codes (d, room).

    Some rows at a time go a level down, so that no step waits for the one before; numbers without a sign spare the
    check for those that count from the end.
    """
    n_nodes, room, flat = feature.shape[0], codes.shape[1], codes.reshape(codes.size)
    column, last, missing = np.empty(n_nodes, np.uint64), np.empty(n_nodes, np.uint8), np.empty(n_nodes, np.uint8)
    has_levels = False
    for p in range(n_nodes):  # without a split all go left
        column[p], last[p] = max(feature[p], 0) * room, cut[p] if feature[p] >= 0 else 255
        missing[p] = n_bins if missing_left[p] else 255  # the code that goes left besides
        has_levels |= feature[p] >= 0 and is_level[feature[p]]
    one, at = np.uint64(1), np.empty(TOGETHER, np.uint64)
    for start_of_block in range(start, stop, TOGETHER):
        first, n = np.uint64(start_of_block), np.uint64(min(TOGETHER, stop - start_of_block))
        for s in range(n):
            at[s] = np.uint64(0)
        for _ in range(depth):
            for s in range(n):
                p = at[s]
                code = flat[column[p] + first + s]
                goes_right = np.uint64((code > last[p]) & (code != missing[p]))
                if has_levels and feature[p] >= 0 and is_level[feature[p]] and code != n_bins:
                    goes_right = one - ((subset[p] >> np.uint64(code)) & one)
                at[s] = p + p + one + goes_right
        for s in range(n):
            leaf[first + s] = at[s] - np.uint64(n_nodes)


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
