"""The regression of experts on top of the vote (:mod:`streamboost.boosting.combining`): apply it, and learn a row.

The score is that of the vote plus a linear function of features (n, m): for classes the vote's own score and its
choice, then for every expert how far its score is from that of the vote. The coefficients minimise the discounted loss
of all rows so far and a ridge. For the square loss that is exact; else a row counts as a parabola about the
coefficients it met, as in online Newton steps.
"""

import math
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.losses import LARGEST, LOGISTIC, SOFTMAX, SQUARED, TIE, to_prediction

HALF_LIFE = 1000.0  # rows after which a row counts half
SCALE_HALF_LIFE = 100.0  # the same for the scale of what the vote misses, in units of which rows count
KEEP, KEEP_SCALE = 0.5 ** (1.0 / HALF_LIFE), 0.5 ** (1.0 / SCALE_HALF_LIFE)
RIDGE = 20.0  # the precision of what is believed at first: that the vote is right
FAR = 4.0  # an expert counts as no farther from the vote: in standard errors of the vote, or in log-odds
MARGIN = 0.1  # of the range of targets seen, by which a prediction may leave it
SLOPE, STEP, OWN = 0, 1, 2  # features of the vote itself, before those of the experts


class Combining(NamedTuple):
    """The state of a regression on E experts: n = E + 2 features, or 0 if there is none."""

    coefficients: FloatArray  # (n,)
    curvature: FloatArray  # (n, n), the lower triangle: discounted sums of second derivatives
    pull: FloatArray  # (n,), curvature times where each row would have them, summed
    residual_ss: FloatArray  # (m + 1,), discounted squares of what the vote missed; last the number of rows
    target_range: FloatArray  # (2, m), of the targets seen, or (2, 0) where predictions are not held to it


@compiled_inside
def hold(target_range: FloatArray, score: FloatArray) -> None:
    """Hold a score (m,) to the range of targets seen, a little widened."""
    for k in range(target_range.shape[1]):
        low, high = target_range[0, k], target_range[1, k]
        if low <= high:
            margin = MARGIN * (high - low)
            score[k] = min(max(score[k], low - margin), high + margin)


@compiled_inside
def set_features(
    kind: int, expert_scores: FloatArray, vote: FloatArray, residual_ss: FloatArray, features: FloatArray
) -> None:
    """Write the features (n, m) of a row."""
    E, m = expert_scores.shape
    features[:OWN] = 0.0
    if kind == SOFTMAX:
        top, n_equal = np.max(vote), 0.0
        for k in range(m):
            features[SLOPE, k] = vote[k]
            features[STEP, k] = 1.0 if vote[k] >= top - TIE else 0.0
            n_equal += features[STEP, k]
        features[STEP] /= n_equal
    elif kind == LOGISTIC:
        for k in range(m):
            features[SLOPE, k] = vote[k]
            features[STEP, k] = 0.0 if abs(vote[k]) <= TIE else math.copysign(1.0, vote[k])
    for e in range(E):
        mean = 0.0
        if kind == SOFTMAX:  # as the vote's, the scores of classes sum to 0
            for k in range(m):
                mean += expert_scores[e, k] / m
        for k in range(m):
            far = FAR
            if kind == SQUARED:
                far *= math.sqrt(residual_ss[k] / residual_ss[m]) if residual_ss[m] > 0.0 else 0.0
            features[OWN + e, k] = min(max(expert_scores[e, k] - mean - vote[k], -far), far)


@compiled_inside
def combine(kind: int, expert_scores: FloatArray, combining: Combining, score: FloatArray) -> None:
    """Turn the score of the vote (m,) into that of the combination, in place."""
    coefficients, m = combining.coefficients, score.shape[0]
    if coefficients.shape[0] > 0:
        features = np.empty((coefficients.shape[0], m))
        set_features(kind, expert_scores, score, combining.residual_ss, features)
        for i in range(coefficients.shape[0]):
            for k in range(m):
                score[k] += coefficients[i] * features[i, k]
    hold(combining.target_range, score)


@compiled_inside
def learn_combining(
    kind: int, expert_scores: FloatArray, vote: FloatArray, y: FloatArray, w: float, elapsed: float,
    combining: Combining,
) -> None:  # fmt: skip
    """Take in a row of weight w: what experts (E, m) and their vote (m,) said, and the target.

    ``elapsed`` is what the row counts for in the half-life.
    """
    target_range, residual_ss = combining.target_range, combining.residual_ss
    for k in range(target_range.shape[1]):
        target_range[0, k] = min(target_range[0, k], y[k])
        target_range[1, k] = max(target_range[1, k], y[k])
    n, m = combining.coefficients.shape[0], vote.shape[0]
    if n == 0:
        return
    keep = KEEP if elapsed == 1.0 else KEEP**elapsed
    features, gradient, curvature = np.empty((n, m)), np.empty(m), np.empty(m)
    set_features(kind, expert_scores, vote, residual_ss, features)
    beyond = np.zeros(m)  # what the combination adds to the vote
    for i in range(n):
        for k in range(m):
            beyond[k] += combining.coefficients[i] * features[i, k]
    if kind == SQUARED:
        keep_scale = KEEP_SCALE if elapsed == 1.0 else KEEP_SCALE**elapsed
        residual_ss[m] = keep_scale * residual_ss[m] + w
        for k in range(m):
            missed = vote[k] - y[k]
            residual_ss[k] = keep_scale * residual_ss[k] + w * missed * missed
            curvature[k] = residual_ss[m] / residual_ss[k] if residual_ss[k] > 0.0 else 0.0
            gradient[k] = curvature[k] * (missed + beyond[k])
    else:
        to_prediction(kind, vote + beyond, gradient)
        for k in range(m):
            p = gradient[k]
            curvature[k] = p * (1.0 - p) if kind == LOGISTIC else p
            if kind == LOGISTIC and y[k] > 0.0:
                gradient[k] = p - 1.0
        if kind == SOFTMAX:
            gradient[int(y[0])] -= 1.0
    take_newton_step(keep, w, features, beyond, gradient, curvature, kind == SOFTMAX, combining)


@compiled_inside
def take_newton_step(
    keep: float, w: float, features: FloatArray, beyond: FloatArray, gradient: FloatArray, curvature: FloatArray,
    is_centred: bool, combining: Combining,
) -> None:  # fmt: skip
    """Add a row's parabola to those before, and go to the least point of all.

    The second derivatives of the loss are a diagonal (m,), or of probabilities p, ``is_centred``, diag(p) - p pᵀ.
    """
    n, m = features.shape
    A, pull = combining.curvature, combining.pull
    for i in range(n):
        for k in range(m):
            pull[i] = (pull[i] if k > 0 else keep * pull[i]) - w * features[i, k] * gradient[k]
    if is_centred:
        mean = 0.0
        for k in range(m):
            mean += curvature[k] * beyond[k]
        beyond -= mean
        for i in range(n):
            mean = 0.0
            for k in range(m):
                mean += curvature[k] * features[i, k]
            for k in range(m):
                features[i, k] -= mean
    for k in range(m):
        root = math.sqrt(curvature[k])
        beyond[k] *= root
        for i in range(n):
            features[i, k] *= root
    for i in range(n):
        for k in range(m):
            pull[i] += w * features[i, k] * beyond[k]
        for j in range(i + 1):
            total = 0.0
            for k in range(m):
                total += features[i, k] * features[j, k]
            A[i, j] = keep * A[i, j] + w * total
    solve(combining)


@compiled_inside
def solve(combining: Combining) -> None:
    """Solve (curvature + ridge) coefficients = pull, by Cholesky's method; begin anew if numbers are too large."""
    A, pull, x = combining.curvature, combining.pull, combining.coefficients
    n = x.shape[0]
    L = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = A[i, j] + (RIDGE if i == j else 0.0)
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = math.sqrt(max(total, RIDGE)) if i == j else total / L[j, j]
    for i in range(n):
        total = pull[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total / L[i, i]
    is_finite = True
    for i in range(n - 1, -1, -1):
        total = x[i]
        for k in range(i + 1, n):
            total -= L[k, i] * x[k]
        x[i] = total / L[i, i]
        is_finite &= abs(x[i]) <= LARGEST
    if not is_finite:
        x[:], pull[:], A[:] = 0.0, 0.0, 0.0


@compiled
def combine_rows(kind: int, expert_scores: FloatArray, combining: Combining, scores: FloatArray) -> None:
    """Turn the vote's scores (n, m) of rows into those of the combination, in place; experts are (n, E, m)."""
    for s in range(scores.shape[0]):
        combine(kind, expert_scores[s], combining, scores[s])


@compiled
def learn_row(
    kind: int, expert_scores: FloatArray, vote: FloatArray, y: FloatArray, w: float, elapsed: float,
    combining: Combining,
) -> None:  # fmt: skip
    """Take in a row: :func:`learn_combining` for the plain loop."""
    learn_combining(kind, expert_scores, vote, y, w, elapsed, combining)
