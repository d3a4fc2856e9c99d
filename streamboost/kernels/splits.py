"""The best split of a node, from its histogram: of numbers a cut, of levels a subset, each side within its bounds."""

import numpy as np
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.kernels.compiling import compiled_inside

Signs = NDArray[np.int8]


@compiled_inside
def best_split(
    hist: FloatArray, highest: IntArray, is_level: BoolArray, monotone: Signs, low: float, high: float, m: int,
    min_samples_leaf: int, l2: float, cat_l2: float, noise: float,
) -> tuple[int, int, np.uint64, bool, float]:  # fmt: skip
    """Return the feature, the cut, the levels on the left, whether missing goes left, and the gain of the best split.

    Feature -1: nothing gains. Ties go to the first feature, and there to the first candidate (:func:`_pick`).
    Where the node has seen no missing value, it will go with the greater weight, and so will levels not seen.
    """
    d, n_bins, c = hist.shape[0], hist.shape[1] - 1, hist.shape[2]
    feature, cut, levels, missing_left, gain = -1, 0, np.uint64(0), True, 0.0
    total, parent = _total(hist, highest, m, l2)
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
def _total(hist: FloatArray, highest: IntArray, m: int, l2: float) -> tuple[FloatArray, float]:
    """Return the node's sums, the same in all columns, and the score of not splitting it."""
    c = hist.shape[2]
    total, score = np.zeros(c), 0.0
    for t in range(highest[0] + 2 if hist.shape[0] > 0 else 0):
        b = t if t <= highest[0] else hist.shape[1] - 1  # the missing
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
    left: FloatArray, missing: FloatArray, total: FloatArray, n: int, m: int, min_samples_leaf: int, l2: float,
    score: FloatArray, right: FloatArray,
) -> None:  # fmt: skip
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
    left: FloatArray, missing: FloatArray, total: FloatArray, n: int, min_samples_leaf: int, l2: float, low: float,
    high: float, sign: int, score: FloatArray,
) -> None:  # fmt: skip
    """As :func:`_score`, of one output, where both sides keep to bounds and must not go against ``sign``."""
    last = left.shape[0] - 1
    for b in range(n):
        here, w_left, n_left = left[0, b] + missing[0], left[1, b] + missing[1], left[last, b] + missing[last]
        there, w_right, n_right = total[0] - here, total[1] - w_left + l2, total[last] - n_left
        w_left += l2
        rise = bounded(there, w_right, low, high) - bounded(here, w_left, low, high)
        parts_numbers = left[last, b] < left[last, n - 1]  # what the missing get is free
        score[b] = -np.inf
        if n_left >= min_samples_leaf and n_right >= min_samples_leaf and not (parts_numbers and sign * rise < 0.0):
            score[b] = _bounded_score(here, w_left, low, high) + _bounded_score(there, w_right, low, high)


@compiled_inside
def bounded(total: float, weight: float, low: float, high: float) -> float:
    """Return what a leaf of these sums says, ``l2`` being part of the weight."""
    said = total / weight if weight > 0.0 else 0.0
    return min(max(said, low), high)


@compiled_inside
def _bounded_score(total: float, weight: float, low: float, high: float) -> float:
    """Return what such a leaf takes off the loss: total ** 2 / weight within its bounds, less at one of them."""
    said = bounded(total, weight, low, high)
    return said * (2.0 * total - weight * said)


@compiled_inside
def _pick(
    n_left: FloatArray, n_numbers: float, n_missing: float, scores: FloatArray, parent: float, gain: float, noise: float
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
