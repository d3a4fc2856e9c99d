"""How :class:`streamboost.stacks.tree.TreeStack` grows a tree: Numba functions on plain arrays.

A tree is a complete heap: node p has the children 2p + 1 (left) and 2p + 2 (right). A node whose feature
is -1 sends everything left, so that a leaf is a number below 2 ** depth wherever growing stopped.
The statistics of a leaf are the sums of weight * target, one for each output, and then of weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inside

Codes = NDArray[np.uint8]
Leaves = NDArray[np.uint16]
Rows = NDArray[np.uint32]
Sets = NDArray[np.uint64]
Signs = NDArray[np.int8]


@compiled
def grow(
    codes: Codes,
    target: FloatArray,
    weight: FloatArray,
    n_bins: int,
    depth: int,
    min_samples_leaf: int,
    l2: float,
    cat_l2: float,
    is_level: BoolArray,
    monotone: Signs,
    feature: IntArray,
    cut: Codes,
    subset: Sets,
    missing_left: BoolArray,
    gain: FloatArray,
    stats: FloatArray,
    bounds: FloatArray,
    leaf: Leaves,
) -> None:
    """Grow one regression tree under weighted square loss, and write it into the last eight arrays.

    ``codes`` (d, n) tell the bin of each value, ``n_bins`` where it is missing; ``target`` is (n, m). Where
    ``is_level`` (d,) a bin is a level: these have no order, and their splits are judged with ``cat_l2`` more.
    ``monotone`` (d,) is the sign of what more of a column must do to what the tree says, or empty; it needs m = 1.
    Of each node are told: the ``feature`` it splits on; the ``cut``, the last bin to go left, where
    ``n_bins - 1`` parts the numbers from the missing; of levels instead the ``subset`` that goes left, bit b for
    bin b; whether ``missing_left``; and the ``gain``, what the split takes off the loss. ``leaf`` (n,) is the leaf
    of each row, ``stats`` (2 ** depth, m + 1) are the leaves' sums and ``bounds`` (2 ** depth, 2) what they keep
    to. ``subset`` may be empty without levels, and ``bounds`` without signs. A row of weight 0 is given its leaf
    and otherwise counts as absent.
    """
    feature[:], cut[:], missing_left[:], gain[:] = -1, n_bins - 1, True, 0.0
    subset[:], bounds[:, 0], bounds[:, 1] = 0, -np.inf, np.inf
    values = _values(target, weight)  # (n, c)
    rows, n_rows = _rows_that_count(weight)  # grouped by node as the tree grows
    spare, gathered = np.empty_like(rows), np.empty_like(values)
    noise = 1e-12 * _sum_of_squares(target, weight)  # well above what rounding makes of a gain
    hists = np.empty((depth, codes.shape[0], n_bins + 1, values.shape[1]))  # (depth, d, n_bins + 1, c)
    _fill(hists[0], codes, rows[:n_rows], values, gathered)
    highest = _highest_bins(hists[0])
    goes_left = np.empty(n_bins + 1, np.uint8)  # by code, of the node at hand

    # Depth first: beside the node at hand at most one sibling a level waits, so that a histogram a level
    # is room enough. The smaller child's is filled, the larger one's is what the parent's then has left.
    todo, limits = np.empty((depth + 1, 5), np.int64), np.empty((depth + 1, 2))
    n_todo = _note(todo, limits, 0, 0, 0, 0, 0, n_rows, -np.inf, np.inf)
    while n_todo > 0:
        n_todo -= 1
        p, level, at = todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2]
        start, stop = todo[n_todo, 3], todo[n_todo, 4]
        low, high = limits[n_todo, 0], limits[n_todo, 1]
        j, b, levels, left, g = -1, 0, np.uint64(0), True, 0.0
        if level < depth and stop - start >= 2 * min_samples_leaf:
            j, b, levels, left, g = _best_split(
                hists[at], highest, is_level, monotone, low, high, target.shape[1], min_samples_leaf, l2, cat_l2, noise
            )
        if j < 0:
            q = ((p + 1) << (depth - level)) - (1 << depth)
            for s in range(start, stop):
                leaf[rows[s]] = q
            if bounds.shape[0] > 0:
                bounds[q, 0], bounds[q, 1] = low, high
            continue
        feature[p], cut[p], missing_left[p], gain[p] = j, b, left, g
        by_level = is_level[j]
        if by_level:
            subset[p] = levels
        for code in range(n_bins + 1):
            goes_left[code] = _goes_left(code, by_level, b, levels, left, n_bins)
        middle = _part(rows, start, stop, spare, codes[j], goes_left)
        left_at, right_at = level + 1, at
        small = rows[start:middle]
        if middle - start > stop - middle:
            left_at, right_at = at, level + 1
            small = rows[middle:stop]
        sign = monotone[j] if monotone.shape[0] > 0 and b < n_bins - 1 else 0
        left_low, left_high, right_low, right_high = _share_bounds(hists[at, j], goes_left, sign, l2, low, high)
        if level + 1 < depth and stop - start - small.shape[0] >= 2 * min_samples_leaf:
            _fill(hists[level + 1], codes, small, values, gathered)
            _subtract(hists[at], hists[level + 1])
        n_todo = _note(todo, limits, n_todo, 2 * p + 1, level + 1, left_at, start, middle, left_low, left_high)
        n_todo = _note(todo, limits, n_todo, 2 * p + 2, level + 1, right_at, middle, stop, right_low, right_high)
    _add_up_leaves(codes, values, n_bins, depth, is_level, feature, cut, subset, missing_left, stats, leaf)


@compiled
def set_thresholds(feature: IntArray, cut: Codes, n_bins: int, edges: FloatArray, threshold: FloatArray) -> None:
    """Write the raw values behind the cuts of a tree; inf where there is no split, or one that parts the missing."""
    for p in range(feature.shape[0]):
        is_cut = feature[p] >= 0 and cut[p] < n_bins - 1
        threshold[p] = edges[feature[p], cut[p]] if is_cut else np.inf


@compiled_inside
def _note(
    todo: IntArray,
    limits: FloatArray,
    n_todo: int,
    p: int,
    level: int,
    at: int,
    start: int,
    stop: int,
    low: float,
    high: float,
) -> int:
    """Note a node, its histogram, its rows and its bounds for later; return how many are noted."""
    todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = p, level, at
    todo[n_todo, 3], todo[n_todo, 4] = start, stop
    limits[n_todo, 0], limits[n_todo, 1] = low, high
    return n_todo + 1


@compiled_inside
def _values(target: FloatArray, weight: FloatArray) -> FloatArray:
    """Return what histograms add up: weight * target, weight and 1, the number of rows, in the last column.

    Where all weights are 1 the last two are the same and kept once.
    """
    n, m = target.shape
    are_ones = True
    for s in range(n):
        are_ones &= weight[s] == 1.0
    values = np.ones((n, m + 1 if are_ones else m + 2))
    for s in range(n):
        for k in range(m):
            values[s, k] = weight[s] * target[s, k]
        values[s, m] = weight[s]
    return values


@compiled_inside
def _rows_that_count(weight: FloatArray) -> tuple[Rows, int]:
    """Return room for the rows, led by those of weight above 0, and how many these are."""
    rows = np.empty(weight.shape[0], np.uint32)
    n_rows = 0
    for s in range(weight.shape[0]):
        if weight[s] > 0.0:
            rows[n_rows] = s
            n_rows += 1
    return rows, n_rows


@compiled_inside
def _sum_of_squares(target: FloatArray, weight: FloatArray) -> float:
    total = 0.0
    for s in range(target.shape[0]):
        for k in range(target.shape[1]):
            total += weight[s] * target[s, k] * target[s, k]
    return total


@compiled_inside
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


@compiled_inside
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


@compiled_inside
def _subtract(hist: FloatArray, part: FloatArray) -> None:
    ours, theirs = hist.reshape(-1), part.reshape(-1)
    for t in range(ours.shape[0]):
        ours[t] -= theirs[t]


@compiled_inside
def _part(rows: Rows, start: int, stop: int, spare: Rows, column: Codes, goes_left: Codes) -> int:
    """Bring the rows that go left to the front of their range, each side in order; return where they end."""
    rows = rows[start:stop]
    n_left = n_right = np.uint64(0)  # unsigned: an index that need not be checked for counting from the end
    for s in range(rows.shape[0]):
        row = rows[s]
        is_left = np.uint64(goes_left[column[row]])
        rows[n_left] = row  # stored on both sides, kept on one: no branch to mispredict
        spare[n_right] = row
        n_left += is_left
        n_right += np.uint64(1) - is_left
    middle = int(n_left)
    for s in range(middle, rows.shape[0]):
        rows[s] = spare[s - middle]
    return start + middle


@compiled_inside
def _goes_left(code: int, is_level: bool, cut: int, levels: np.uint64, missing_left: bool, n_bins: int) -> bool:
    if code == n_bins:
        return missing_left
    if is_level:
        return bool((levels >> np.uint64(code)) & np.uint64(1))  # all unsigned: mixed, they would become floats
    return code <= cut


@compiled_inside
def _highest_bins(hist: FloatArray) -> IntArray:
    """Return the highest bin of each column that holds a number: many columns need far fewer than all."""
    d, n_bins, c = hist.shape[0], hist.shape[1] - 1, hist.shape[2]
    highest = np.zeros(d, np.int64)
    for j in range(d):
        for b in range(n_bins):
            if hist[j, b, c - 1] > 0.0:
                highest[j] = b
    return highest


@compiled_inside
def _best_split(
    hist: FloatArray,
    highest: IntArray,
    is_level: BoolArray,
    monotone: Signs,
    low: float,
    high: float,
    m: int,
    min_samples_leaf: int,
    l2: float,
    cat_l2: float,
    noise: float,
) -> tuple[int, int, np.uint64, bool, float]:
    """Return the feature, the cut, the levels on the left, whether missing goes left, and the gain of the best split.

    Feature -1: nothing gains. Ties go to the first feature, and there to the first candidate (:func:`_pick`).
    Where the node has seen no missing value, it will go with the greater weight, and so will levels not seen.
    """
    d, n_bins, c = hist.shape[0], hist.shape[1] - 1, hist.shape[2]
    feature, cut, levels, missing_left, gain = -1, 0, np.uint64(0), True, 0.0
    total, parent = _total(hist, m, l2)
    if monotone.shape[0] > 0:
        parent = _bounded_score(total[0], total[m] + l2, low, high)
    nothing = np.zeros(c)
    left = np.empty((c, n_bins))  # the sums over all bins up to this one
    scores = np.empty((3, n_bins))  # with the missing on the right, and on the left; and room to reckon
    ordered, order = np.empty((n_bins, c)), np.empty(n_bins, np.int64)
    for j in range(d):
        n, missing, penalty = highest[j] + 1, hist[j, n_bins], l2
        n_missing = missing[c - 1]
        if is_level[j]:
            n, penalty = _sort_levels(hist[j], n, m, order, ordered), l2 + cat_l2
            _running_sums(ordered, n, left)
        else:
            _running_sums(hist[j], n, left)
        if monotone.shape[0] > 0:
            sign = monotone[j]
            _score_bounded(left, nothing, total, n, min_samples_leaf, penalty, low, high, sign, scores[0])
            _score_bounded(left, missing, total, n, min_samples_leaf, penalty, low, high, sign, scores[1])
        else:
            _score(left, nothing, total, n, m, min_samples_leaf, penalty, scores[0], scores[2])
            if n_missing > 0.0:
                _score(left, missing, total, n, m, min_samples_leaf, penalty, scores[1], scores[2])
        n_numbers = total[c - 1] - n_missing
        b, side, g = _pick(left[c - 1, :n], n_numbers, n_missing, scores, parent, gain, noise)
        if b >= 0:
            feature, gain = j, g
            on_left = left[m, b] + (missing[m] if side == 1 else 0.0)
            left_is_larger = on_left >= (1.0 - 1e-10) * (total[m] - on_left)
            missing_left = left_is_larger if n_missing == 0.0 else side == 1
            parts_missing = left[c - 1, b] == n_numbers
            cut = n_bins - 1 if parts_missing or is_level[j] else b
            if is_level[j]:
                levels = _left_levels(order, b + 1, n, left_is_larger or parts_missing)
    return feature, cut, levels, missing_left, gain


@compiled_inside
def _sort_levels(bins: FloatArray, n_bins: int, m: int, order: IntArray, ordered: FloatArray) -> int:
    """Write the levels seen into ``order``, and their sums into ``ordered``, by their mean; return how many there are.

    The best subset is then one of the first so many (Fisher 1958; with l2 too, as the score is convex in the sums
    of a side). Of several outputs the means are seen along the direction in which they differ most (Coppersmith,
    Hong and Hosking 1999).
    """
    c, n = bins.shape[1], 0
    for b in range(n_bins):
        if bins[b, c - 1] > 0.0:
            order[n] = b
            n += 1
    along = _along_main_direction(bins, order[:n], m)
    for s in range(1, n):  # by insertion, so that equal means stay in the order of their bins
        b, here, t = order[s], along[s], s
        while t > 0 and along[t - 1] > here:
            order[t], along[t] = order[t - 1], along[t - 1]
            t -= 1
        order[t], along[t] = b, here
    for t in range(n):
        for k in range(c):
            ordered[t, k] = bins[order[t], k]
    return n


@compiled_inside
def _along_main_direction(bins: FloatArray, order: IntArray, m: int) -> FloatArray:
    """Return how far each level's mean lies along the direction in which these means differ most."""
    n = order.shape[0]
    along, means, direction = np.empty(n), np.empty((n, m)), np.zeros(m)
    best, longest, total = 0, -1.0, 0.0
    for t in range(n):
        total += bins[order[t], m]
    for k in range(m):
        center, spread = 0.0, 0.0
        for t in range(n):
            center += bins[order[t], k] / total
        for t in range(n):
            weight = bins[order[t], m]
            means[t, k] = bins[order[t], k] / weight - center
            spread += weight * means[t, k] * means[t, k]
        if spread > longest:
            best, longest = k, spread
    direction[best] = 1.0
    for step in range(1 if m == 1 else 5):  # power steps: four bring the order within a percent of the best
        if step > 0:
            length = 0.0
            for k in range(m):
                direction[k] = 0.0
                for t in range(n):
                    direction[k] += bins[order[t], m] * along[t] * means[t, k]
                length = max(length, abs(direction[k]))
            for k in range(m):
                direction[k] /= length if length > 0.0 else 1.0
        for t in range(n):
            along[t] = 0.0
            for k in range(m):
                along[t] += means[t, k] * direction[k]
    return along


@compiled_inside
def _left_levels(order: IntArray, n_left: int, n: int, takes_unseen: bool) -> np.uint64:
    """Return the first ``n_left`` of n ordered levels as bits; and those not among the n, if it ``takes_unseen``."""
    bits, one = np.uint64(0), np.uint64(1)
    for t in range(n_left, n) if takes_unseen else range(n_left):
        bits |= one << np.uint64(order[t])
    return ~bits if takes_unseen else bits


@compiled_inside
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


@compiled_inside
def _running_sums(bins: FloatArray, n: int, left: FloatArray) -> None:
    if left.shape[0] == 2:  # two sums side by side: neither waits for the other
        g, w = 0.0, 0.0
        for b in range(n):
            g += bins[b, 0]
            w += bins[b, 1]
            left[0, b], left[1, b] = g, w
        return
    for k in range(left.shape[0]):
        so_far = 0.0
        for b in range(n):
            so_far += bins[b, k]
            left[k, b] = so_far


@compiled_inside
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
    """Score the first n cuts where also the ``missing`` go left; -inf where a side has too few rows.

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
        score[b] = both if (n_left >= min_samples_leaf) & (n_right >= min_samples_leaf) else -np.inf


@compiled_inside
def _score_bounded(
    left: FloatArray,
    missing: FloatArray,
    total: FloatArray,
    n: int,
    min_samples_leaf: int,
    l2: float,
    low: float,
    high: float,
    sign: int,
    score: FloatArray,
) -> None:
    """As :func:`_score`, of one output, where both sides keep to bounds and must not go against ``sign``."""
    last = left.shape[0] - 1
    for b in range(n):
        here, w_left, n_left = left[0, b] + missing[0], left[1, b] + missing[1], left[last, b] + missing[last]
        there, w_right, n_right = total[0] - here, total[1] - w_left + l2, total[last] - n_left
        w_left += l2
        rise = _bounded(there, w_right, low, high) - _bounded(here, w_left, low, high)
        parts_numbers = left[last, b] < left[last, n - 1]  # what the missing get is free
        score[b] = -np.inf
        if n_left >= min_samples_leaf and n_right >= min_samples_leaf and not (parts_numbers and sign * rise < 0.0):
            score[b] = _bounded_score(here, w_left, low, high) + _bounded_score(there, w_right, low, high)


@compiled_inside
def _bounded(total: float, weight: float, low: float, high: float) -> float:
    """Return what a leaf of these sums says, ``l2`` being part of the weight."""
    said = total / weight if weight > 0.0 else 0.0
    return min(max(said, low), high)


@compiled_inside
def _bounded_score(total: float, weight: float, low: float, high: float) -> float:
    """Return what such a leaf takes off the loss: total ** 2 / weight within its bounds, less at one of them."""
    said = _bounded(total, weight, low, high)
    return said * (2.0 * total - weight * said)


@compiled_inside
def _share_bounds(
    bins: FloatArray, goes_left: Codes, sign: int, l2: float, low: float, high: float
) -> tuple[float, float, float, float]:
    """Return the bounds of both sides of a split: where a ``sign`` asks for it, they part midway between the two."""
    if sign == 0:
        return low, high, low, high
    here = there = 0.0
    w_left = w_right = l2
    for b in range(bins.shape[0]):
        if goes_left[b]:
            here, w_left = here + bins[b, 0], w_left + bins[b, 1]
        else:
            there, w_right = there + bins[b, 0], w_right + bins[b, 1]
    midway = 0.5 * _bounded(here, w_left, low, high) + 0.5 * _bounded(there, w_right, low, high)
    return (low, midway, midway, high) if sign > 0 else (midway, high, low, midway)


@compiled_inside
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
    n, least, n_above = n_left.shape[0], parent + gain, 0  # below what counts by more than rounding: by the noise
    for b in range(n):  # vectorised: most columns hold nothing better
        n_above += scores[0, b] >= least
    if n_missing > 0.0:
        for b in range(n):
            n_above += scores[1, b] >= least
    if n_above == 0:
        return cut, side, gain
    for b in range(n):
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


@compiled_inside
def _add_up_leaves(
    codes: Codes,
    values: FloatArray,
    n_bins: int,
    depth: int,
    is_level: BoolArray,
    feature: IntArray,
    cut: Codes,
    subset: Sets,
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
                j = feature[p]
                levels = subset[p] if is_level[j] else np.uint64(0)
                p = 2 * p + 2 - int(_goes_left(codes[j, s], is_level[j], cut[p], levels, missing_left[p], n_bins))
                level += 1
            leaf[s] = ((p + 1) << (depth - level)) - (1 << depth)
        for k in range(m + 1):
            stats[leaf[s], k] += values[s, k]
