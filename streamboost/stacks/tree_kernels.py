"""The loops behind :class:`streamboost.stacks.tree.TreeStack`: Numba functions on plain arrays.

A tree is a complete heap: node p has the children 2p + 1 (left) and 2p + 2 (right). A node whose feature
is -1 sends everything left, so that a leaf is a number below 2 ** depth wherever growing stopped.
The statistics of a leaf are the sums of weight * target, one for each output, and then of weight.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamboost.arrays import BoolArray, FloatArray, IntArray

Codes = NDArray[np.uint8]
Leaves = NDArray[np.uint16]
Rows = NDArray[np.uint32]


@njit(cache=True, nogil=True)
def grow(
    codes: Codes,
    target: FloatArray,
    weight: FloatArray,
    n_bins: int,
    depth: int,
    min_samples_leaf: int,
    l2: float,
    feature: IntArray,
    cut: Codes,
    missing_left: BoolArray,
    gain: FloatArray,
    stats: FloatArray,
    leaf: Leaves,
) -> None:
    """Grow one regression tree under weighted square loss, and write it into the last six arrays.

    ``codes`` (d, n) tell the bin of each value, ``n_bins`` where it is missing; ``target`` is (n, m).
    Of each node are told: the ``feature`` it splits on; the ``cut``, the last bin to go left, where
    ``n_bins - 1`` parts the numbers from the missing; whether ``missing_left``; and the ``gain``, what the
    split takes off the loss. ``leaf`` (n,) is the leaf of each row and ``stats`` (2 ** depth, m + 1) are the
    leaves' sums. A row of weight 0 is given its leaf and otherwise counts as absent.
    """
    feature[:], cut[:], missing_left[:], gain[:] = -1, n_bins - 1, True, 0.0
    values = _values(target, weight)  # (n, c)
    rows, n_rows = _rows_that_count(weight)  # grouped by node as the tree grows
    spare, gathered = np.empty_like(rows), np.empty_like(values)
    noise = 1e-12 * _sum_of_squares(target, weight)  # well above what rounding makes of a gain
    hists = np.empty((depth, codes.shape[0], n_bins + 1, values.shape[1]))  # (depth, d, n_bins + 1, c)
    _fill(hists[0], codes, rows[:n_rows], values, gathered)
    highest = _highest_bins(hists[0])

    # Depth first: beside the node at hand at most one sibling a level waits, so that a histogram a level
    # is room enough. The smaller child's is filled, the larger one's is what the parent's then has left.
    todo = np.empty((depth + 1, 5), np.int64)
    n_todo = _note(todo, 0, 0, 0, 0, 0, n_rows)
    while n_todo > 0:
        n_todo -= 1
        p, level, at = todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2]
        start, stop = todo[n_todo, 3], todo[n_todo, 4]
        j, b, left, g = -1, 0, True, 0.0
        if level < depth and stop - start >= 2 * min_samples_leaf:
            j, b, left, g = _best_cut(hists[at], highest, target.shape[1], min_samples_leaf, l2, noise)
        if j < 0:
            for s in range(start, stop):
                leaf[rows[s]] = ((p + 1) << (depth - level)) - (1 << depth)
            continue
        feature[p], cut[p], missing_left[p], gain[p] = j, b, left, g
        middle = _part(rows, start, stop, spare, codes[j], b, left, n_bins)
        left_at, right_at = level + 1, at
        small = rows[start:middle]
        if middle - start > stop - middle:
            left_at, right_at = at, level + 1
            small = rows[middle:stop]
        if level + 1 < depth and stop - start - small.shape[0] >= 2 * min_samples_leaf:
            _fill(hists[level + 1], codes, small, values, gathered)
            _subtract(hists[at], hists[level + 1])
        n_todo = _note(todo, n_todo, 2 * p + 1, level + 1, left_at, start, middle)
        n_todo = _note(todo, n_todo, 2 * p + 2, level + 1, right_at, middle, stop)
    _add_up_leaves(codes, values, n_bins, depth, feature, cut, missing_left, stats, leaf)


@njit(cache=True, nogil=True)
def _note(todo: IntArray, n_todo: int, p: int, level: int, at: int, start: int, stop: int) -> int:
    """Note a node, its histogram and its rows for later; return how many are noted."""
    todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = p, level, at
    todo[n_todo, 3], todo[n_todo, 4] = start, stop
    return n_todo + 1


@njit(cache=True, nogil=True)
def _values(target: FloatArray, weight: FloatArray) -> FloatArray:
    """Return what histograms add up: weight * target, weight and 1, the number of rows, in the last column.

    Where all weights are 1 the last two are the same and kept once.
    """
    n, m = target.shape
    values = np.ones((n, m + 1 if np.all(weight == 1.0) else m + 2))
    for s in range(n):
        for k in range(m):
            values[s, k] = weight[s] * target[s, k]
        values[s, m] = weight[s]
    return values


@njit(cache=True, nogil=True)
def _rows_that_count(weight: FloatArray) -> tuple[Rows, int]:
    """Return room for the rows, led by those of weight above 0, and how many these are."""
    rows = np.empty(weight.shape[0], np.uint32)
    n_rows = 0
    for s in range(weight.shape[0]):
        if weight[s] > 0.0:
            rows[n_rows] = s
            n_rows += 1
    return rows, n_rows


@njit(cache=True, nogil=True)
def _sum_of_squares(target: FloatArray, weight: FloatArray) -> float:
    total = 0.0
    for s in range(target.shape[0]):
        for k in range(target.shape[1]):
            total += weight[s] * target[s, k] * target[s, k]
    return total


@njit(cache=True, nogil=True)
def _fill(hist: FloatArray, codes: Codes, rows: Rows, values: FloatArray, gathered: FloatArray) -> None:
    """Add up the ``values`` of ``rows`` by feature and bin into ``hist`` (d, n_bins + 1, c)."""
    hist[:] = 0.0
    d, c = codes.shape[0], values.shape[1]
    for s in range(rows.shape[0]):  # once, so that all columns read them in sequence
        for k in range(c):
            gathered[s, k] = values[rows[s], k]
    paired = d - d % 2 if c == 2 else 0
    for j in range(0, paired, 2):
        _fill_pair(hist[j], hist[j + 1], codes[j], codes[j + 1], rows, gathered)
    for j in range(paired, d):
        column, bins = codes[j], hist[j]
        for s in range(rows.shape[0]):
            at, more = bins[column[rows[s]]], gathered[s]
            for k in range(c):
                at[k] += more[k]


@njit(cache=True, nogil=True)
def _fill_pair(
    bins: FloatArray, bins2: FloatArray, column: Codes, column2: Codes, rows: Rows, gathered: FloatArray
) -> None:
    """Fill two columns at a time where only two sums are kept: the common case at half the time."""
    for s in range(rows.shape[0]):
        row, g, w = rows[s], gathered[s, 0], gathered[s, 1]
        b, b2 = column[row], column2[row]
        sum_g, sum_w = bins[b, 0] + g, bins[b, 1] + w  # both, before either is stored: one vector instruction
        bins[b, 0], bins[b, 1] = sum_g, sum_w
        sum_g, sum_w = bins2[b2, 0] + g, bins2[b2, 1] + w
        bins2[b2, 0], bins2[b2, 1] = sum_g, sum_w


@njit(cache=True, nogil=True)
def _subtract(hist: FloatArray, part: FloatArray) -> None:
    ours, theirs = hist.reshape(-1), part.reshape(-1)
    for t in range(ours.shape[0]):
        ours[t] -= theirs[t]


@njit(cache=True, nogil=True)
def _part(
    rows: Rows, start: int, stop: int, spare: Rows, column: Codes, cut: int, missing_left: bool, n_bins: int
) -> int:
    """Bring the rows that go left to the front of their range, each side in order; return where they end."""
    rows = rows[start:stop]
    n_left = n_right = np.uint64(0)  # unsigned: an index that need not be checked for counting from the end
    for s in range(rows.shape[0]):
        row = rows[s]
        goes_left = np.uint64(_goes_left(column[row], cut, missing_left, n_bins))
        rows[n_left] = row  # stored on both sides, kept on one: no branch to mispredict
        spare[n_right] = row
        n_left += goes_left
        n_right += np.uint64(1) - goes_left
    middle = int(n_left)
    for s in range(middle, rows.shape[0]):
        rows[s] = spare[s - middle]
    return start + middle


@njit(cache=True, nogil=True)
def _goes_left(code: int, cut: int, missing_left: bool, n_bins: int) -> int:
    return int((code <= cut) | (missing_left & (code == n_bins)))


@njit(cache=True, nogil=True)
def _highest_bins(hist: FloatArray) -> IntArray:
    """Return the highest bin of each column that holds a number: many columns need far fewer than all."""
    d, n_bins, c = hist.shape[0], hist.shape[1] - 1, hist.shape[2]
    highest = np.zeros(d, np.int64)
    for j in range(d):
        for b in range(n_bins):
            if hist[j, b, c - 1] > 0.0:
                highest[j] = b
    return highest


@njit(cache=True, nogil=True)
def _best_cut(
    hist: FloatArray, highest: IntArray, m: int, min_samples_leaf: int, l2: float, noise: float
) -> tuple[int, int, bool, float]:
    """Return the feature, the cut, whether missing goes left, and the gain of a node's best split.

    Feature -1: nothing gains. Ties go to the first feature, and there to the first candidate (:func:`_pick`).
    Where the node has seen no missing value, it will go with the greater weight.
    """
    d, n_bins, c = hist.shape[0], hist.shape[1] - 1, hist.shape[2]
    feature, cut, missing_left, gain = -1, 0, True, 0.0
    total, parent = _total(hist, m, l2)
    nothing = np.zeros(c)
    left = np.empty((c, n_bins))  # the sums over all bins up to this one
    scores = np.empty((3, n_bins))  # with the missing on the right, and on the left; and room to reckon
    for j in range(d):
        n, missing = highest[j] + 1, hist[j, n_bins]
        n_missing = missing[c - 1]
        _running_sums(hist[j], n, left)
        _score(left, nothing, total, n, m, min_samples_leaf, l2, scores[0], scores[2])
        if n_missing > 0.0:
            _score(left, missing, total, n, m, min_samples_leaf, l2, scores[1], scores[2])
        n_numbers = total[c - 1] - n_missing
        b, side, g = _pick(left[c - 1, :n], n_numbers, n_missing, scores, parent, gain, noise)
        if b >= 0:
            feature, gain = j, g
            cut = n_bins - 1 if left[c - 1, b] == n_numbers else b
            missing_left = side == 1
            if n_missing == 0.0:
                missing_left = left[m, b] >= (1.0 - 1e-10) * (total[m] - left[m, b])
    return feature, cut, missing_left, gain


@njit(cache=True, nogil=True)
def _total(hist: FloatArray, m: int, l2: float) -> tuple[FloatArray, float]:
    """Return the node's sums, the same in all columns, and the score of not splitting it."""
    c = hist.shape[2]
    total, score = np.zeros(c), 0.0
    for b in range(hist.shape[1] if hist.shape[0] > 0 else 0):
        for k in range(c):
            total[k] += hist[0, b, k]
    for k in range(m):
        score += total[k] * total[k]
    weight = total[m] + l2
    return total, score / (weight if weight > 0.0 else 1.0)


@njit(cache=True, nogil=True)
def _running_sums(bins: FloatArray, n: int, left: FloatArray) -> None:
    for k in range(left.shape[0]):
        so_far = 0.0
        for b in range(n):
            so_far += bins[b, k]
            left[k, b] = so_far


@njit(cache=True, nogil=True, error_model="numpy")
def _score(
    left: FloatArray,
    missing: FloatArray,
    total: FloatArray,
    n: int,
    m: int,
    min_samples_leaf: int,
    l2: float,
    score: FloatArray,
    right: FloatArray,
) -> None:
    """Score the first n cuts where also the ``missing`` go left; -1 where a side has too few rows.

    The score is the sum of squared sums / (weight + l2) over both sides: what a split adds to it is its gain.
    """
    last = left.shape[0] - 1
    for b in range(n):
        score[b], right[b] = 0.0, 0.0
    for k in range(m):
        for b in range(n):
            here = left[k, b] + missing[k]
            there = total[k] - here
            score[b] += here * here
            right[b] += there * there
    for b in range(n):
        n_left, w_left = left[last, b] + missing[last], left[m, b] + missing[m]
        n_right, w_right = total[last] - n_left, total[m] - w_left + l2
        w_left += l2
        both = score[b] / (w_left if w_left > 0.0 else 1.0) + right[b] / (w_right if w_right > 0.0 else 1.0)
        score[b] = both if (n_left >= min_samples_leaf) & (n_right >= min_samples_leaf) else -1.0


@njit(cache=True, nogil=True)
def _pick(
    n_left: FloatArray,
    n_numbers: float,
    n_missing: float,
    scores: FloatArray,
    parent: float,
    gain: float,
    noise: float,
) -> tuple[int, int, float]:
    """Return the best cut of a column, the side of its missing (1: left) and its gain, if above ``gain``.

    Tried in this order: the cuts between numbers from below, each with the missing on the right and then on
    the left; last all numbers left, the missing right. A later candidate must be better than the best so far
    by more than rounding explains, so that on every machine ties go to the first.
    """
    cut, side = -1, 0
    for b in range(n_left.shape[0]):
        if n_left[b] == 0.0:
            continue
        is_last = n_left[b] == n_numbers
        for missing_left in range(1 if is_last or n_missing == 0.0 else 2):
            g = scores[missing_left, b] - parent
            if g > gain * (1.0 + 1e-10) + noise:
                cut, side, gain = b, missing_left, g
        if is_last:
            break
    return cut, side, gain


@njit(cache=True, nogil=True)
def _add_up_leaves(
    codes: Codes,
    values: FloatArray,
    n_bins: int,
    depth: int,
    feature: IntArray,
    cut: Codes,
    missing_left: BoolArray,
    stats: FloatArray,
    leaf: Leaves,
) -> None:
    """Put the rows of weight 0 into their leaves, and add up all of them in order, as learning would."""
    m = stats.shape[1] - 1
    stats[:] = 0.0
    for s in range(leaf.shape[0]):
        if values[s, m] == 0.0:
            p, level = 0, 0
            while level < depth and feature[p] >= 0:
                p = 2 * p + 2 - _goes_left(codes[feature[p], s], cut[p], missing_left[p], n_bins)
                level += 1
            leaf[s] = ((p + 1) << (depth - level)) - (1 << depth)
        for k in range(m + 1):
            stats[leaf[s], k] += values[s, k]


@njit(cache=True, nogil=True)
def route(X: FloatArray, feature: IntArray, threshold: FloatArray, missing_left: BoolArray, depth: int) -> Leaves:
    """Return the leaf (n, N) of each row (n, d) in each tree; a value at or below the threshold goes left."""
    n, d = X.shape
    n_trees = feature.shape[0]
    leaf = np.zeros((n, n_trees), np.uint16)
    for s in range(n):
        row, at = X[s], leaf[s]
        for level in range(depth if d > 0 else 0):
            first = (1 << level) - 1
            for i in range(n_trees):  # all trees a level down: steps that neither wait for one another nor branch
                p = first + int(at[i])
                j = feature[i, p]
                x = row[max(j, 0)]
                goes_left = (j < 0) | (x <= threshold[i, p]) | (missing_left[i, p] & (x != x))
                at[i] = 2 * int(at[i]) + 1 - int(goes_left)
    return leaf


@njit(cache=True, nogil=True)
def read(leaf: Leaves, stats: FloatArray, l2: float) -> FloatArray:
    """Return what the leaves (n, k) of the first k trees say, (n, k, m)."""
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
    return said


@njit(cache=True, nogil=True)
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
