"""The line of a base, y⁰ of one row, and what levels add to it: what :mod:`streamboost.bases` and all loops call."""

from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inline, compiled_inside
from streamboost.kernels.layout import KEEP, RATE, SPREAD
from streamboost.kernels.linear import (
    CLIP,
    Signs,
    adagrad_step,
    apply_row,
    inverse_deviation,
    learn_moment,
    least_squares_row,
    standard,
)  # fmt: skip
from streamboost.kernels.losses import Rule, add_gradient

STILL, LEAST_SQUARES, ADAGRAD = range(3)  # how a base learns
SHRINK = 2.0  # rows of 0 that the mean of a level begins with
YOUNG = 256.0  # values of a column until which its coordinate follows the moments of what was seen
MOVED = 0.1  # by how much of a deviation the mean, or the deviation itself, moves before a coordinate follows
NARROW, NARROWING = 60.0, 1.5  # columns beyond which adaptive steps become shorter, and by which power of them
MOST_RESCALED = 1e50  # times by which a deviation may have grown or shrunk for a line to be followed into it
REACH = 0.1  # of the range seen: how far beyond it a line may be followed


class Line(NamedTuple):
    """A linear base; those of R boosters have one more axis, in front."""

    counts: FloatArray  # (d,), moments of the inputs
    mean: FloatArray
    m2: FloatArray
    center: FloatArray  # (d,), the coordinates of the weights: they are of (x - center) * inverse
    inverse: FloatArray
    low: FloatArray  # (d,), the range of the inputs, infinite and upside down before the first
    high: FloatArray
    signs: Signs  # (d,) or (0,), which weights must have
    weights: FloatArray  # (d + 1, m)
    effects: FloatArray  # (categories, levels, m), what each level adds


class Slopes(NamedTuple):
    """What a base needs to learn, beside its line."""

    squares: FloatArray  # (d + 1, m), of its gradients
    covariance: FloatArray  # (d + 1, d + 1), inverse
    effect_sizes: FloatArray  # (categories, levels, m)


@compiled_inline
def line_of(lines: Line, r: int) -> Line:
    """Return the line of booster r."""
    return Line(
        lines.counts[r], lines.mean[r], lines.m2[r], lines.center[r], lines.inverse[r], lines.low[r], lines.high[r],
        lines.signs[r], lines.weights[r], lines.effects[r],
    )  # fmt: skip


@compiled_inline
def coordinate(x: float, center: float, inverse: float, low: float, high: float) -> float:
    """Return where a value stands in the coordinate of its column, held to a little more than the range seen.

    A line knows nothing beyond: where a date or a row number goes on rising, it would run away.
    """
    if low <= high:
        reach = REACH * (high - low)
        x = low - reach if x < low - reach else x
        x = high + reach if x > high + reach else x
    return standard(x, center, inverse, CLIP)


@compiled_inline
def place_row(x: FloatArray, line: Line, z: FloatArray) -> None:
    """Write the coordinates of a row, and a last 1; missing values and constant columns become 0."""
    d = x.shape[0]
    for j in range(d):
        z[j] = coordinate(x[j], line.center[j], line.inverse[j], line.low[j], line.high[j])
    z[d] = 1.0


@compiled_inline
def standardize_row(x: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray, z: FloatArray) -> None:
    """Write (x - mean) / sd, clipped, and a last 1; missing values and constant columns become 0."""
    d = x.shape[0]
    for j in range(d):
        z[j] = standard(x[j], mean[j], inverse_deviation(count[j], mean[j], m2[j]), CLIP)
    z[d] = 1.0


@compiled
def place_rows(X: FloatArray, line: Line, Z: FloatArray) -> None:
    """Write the coordinates of rows, (n, d + 1)."""
    for s in range(X.shape[0]):
        place_row(X[s], line, Z[s])


@compiled_inline
def set_base(x: FloatArray, line: Line, cat_at: IntArray, z: FloatArray, out: FloatArray) -> None:
    """y⁰ of a row, (m,)."""
    place_row(x, line, z)
    apply_row(z, line.weights, line.signs, out)
    add_effects(x, cat_at, line.effects, out)


@compiled_inside
def level_of(x: float, n_levels: int) -> int:
    """The level a value stands for; all beyond the last one known share it."""
    return int(x) if 0.0 <= x < n_levels else n_levels - 1


@compiled_inline
def add_effects(x: FloatArray, cat_at: IntArray, effects: FloatArray, out: FloatArray) -> None:
    """Add what the levels of a row add to y⁰."""
    if effects.shape[0] == 0:
        return
    for j in range(x.shape[0]):
        if cat_at[j] >= 0 and x[j] == x[j]:
            level = level_of(x[j], effects.shape[1])
            for k in range(out.shape[0]):
                out[k] += effects[cat_at[j], level, k]


@compiled
def add_all_effects(X: FloatArray, cat_at: IntArray, effects: FloatArray, out: FloatArray) -> None:
    """The same for rows, (n, m)."""
    for s in range(X.shape[0]):
        add_effects(X[s], cat_at, effects, out[s])


@compiled_inside
def learn_inputs(
    x: FloatArray, w: float, cat_at: IntArray, count: FloatArray, mean: FloatArray, m2: FloatArray
) -> None:
    """Take a row into the running moments; levels have none, and so are all 0 to a line."""
    for j in range(x.shape[0]):
        if cat_at[j] < 0:
            learn_moment(x[j], w, j, count, mean, m2)


@compiled_inside
def set_priors(x: FloatArray, cat_at: IntArray, counts: FloatArray, P: FloatArray) -> None:
    """Give columns that have their first value the prior of their weights: as many rows as columns have had values.

    So all of them together may move y⁰ as far, however many there are; and as no column is asked before it has a value,
    it does not matter whether others of its chunk, or of the stream, are still to come.
    """
    n_known, n_new = 0, 0
    for j in range(x.shape[0]):
        n_known += 1 if counts[j] > 0.0 else 0
        n_new += 1 if counts[j] <= 0.0 and cat_at[j] < 0 and x[j] == x[j] else 0
    if n_new > 0 and P.shape[0] == x.shape[0] + 1:
        for j in range(x.shape[0]):
            if counts[j] <= 0.0 and cat_at[j] < 0 and x[j] == x[j]:
                P[j, j] = 1.0 / (n_known + n_new)


@compiled
def take_rows(X: FloatArray, weight: FloatArray, cat_at: IntArray, line: Line, slopes: Slopes, Z: FloatArray) -> None:
    """Take rows into the moments and the range of the inputs; write their coordinates, which follow, (n, d + 1)."""
    low, high = line.low, line.high
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            set_priors(X[s], cat_at, line.counts, slopes.covariance)
            learn_inputs(X[s], weight[s], cat_at, line.counts, line.mean, line.m2)
            for j in range(X.shape[1]):
                low[j] = X[s, j] if X[s, j] < low[j] else low[j]
                high[j] = X[s, j] if X[s, j] > high[j] else high[j]
    follow_moments(line, slopes)
    place_rows(X, line, Z)


@compiled_inside
def follow_moments(line: Line, slopes: Slopes) -> None:
    """Bring the coordinates of columns up to date; of least squares where they have moved, the line staying the same.

    Other lines, which do not know how sure they are of a slope, keep their weights: were a slope kept that a narrow
    range has taught, a jump of the column would throw them.
    """
    counts, center, inverse = line.counts, line.center, line.inverse
    youth = YOUNG if slopes.covariance.shape[0] == line.weights.shape[0] else np.inf
    for j in range(counts.shape[0]):
        if counts[j] <= 0.0:
            continue
        if counts[j] >= youth and inverse[j] > 0.0:
            ratio = line.m2[j] / counts[j] * (inverse[j] * inverse[j])
            moved = (line.mean[j] - center[j]) * inverse[j]
            if (1.0 - MOVED) ** 2 < ratio < (1.0 + MOVED) ** 2 and -MOVED < moved < MOVED:
                continue
        new = inverse_deviation(counts[j], line.mean[j], line.m2[j])
        if counts[j] >= youth and inverse[j] > 0.0 and new > 0.0:
            a, b = new / inverse[j], (center[j] - line.mean[j]) * new
            if 1.0 / MOST_RESCALED < a < MOST_RESCALED:
                change_coordinate(j, a, b, line.weights, slopes.covariance)
        center[j], inverse[j] = line.mean[j], new


@compiled_inside
def change_coordinate(j: int, a: float, b: float, W: FloatArray, P: FloatArray) -> None:
    """Write weights for z' = a z + b in place of z in column j: those of the same line, with their covariance."""
    p = W.shape[0] - 1
    for k in range(W.shape[1]):
        W[p, k] -= W[j, k] * (b / a)
        W[j, k] /= a
    for c in range(p + 1):
        P[p, c] -= P[j, c] * (b / a)
        P[j, c] /= a
    for c in range(p + 1):
        P[c, p] -= P[c, j] * (b / a)
        P[c, j] /= a


@compiled
def learn_least_squares(
    X: FloatArray, Z: FloatArray, y: FloatArray, known: FloatArray, weight: FloatArray, keep: float, cat_at: IntArray,
    line: Line, slopes: Slopes,
) -> None:  # fmt: skip
    """Least squares, row by row, of what is not ``known`` (n, m); levels add the mean of what is left, pulled to 0."""
    W, effects, sizes = line.weights, line.effects, slopes.effect_sizes
    rest = np.empty(W.shape[1])
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            for k in range(W.shape[1]):
                rest[k] = y[s, k] - known[s, k]
            least_squares_row(Z[s], rest, weight[s], keep, line.counts, W, slopes.covariance)
    if effects.shape[0] == 0:
        return
    error = np.empty(W.shape[1])
    for s in range(X.shape[0]):
        apply_row(Z[s], W, line.signs, error)
        for j in range(X.shape[1]):
            if weight[s] > 0.0 and cat_at[j] >= 0 and X[s, j] == X[s, j]:
                c, level = cat_at[j], level_of(X[s, j], effects.shape[1])
                for k in range(W.shape[1]):
                    sizes[c, level, k] = keep * sizes[c, level, k] + weight[s]
                    left = error[k] + (known[s, k] - y[s, k])
                    effects[c, level, k] -= weight[s] * left / (sizes[c, level, k] + SHRINK)


@compiled
def descend(
    X: FloatArray, slope: FloatArray, gradient: FloatArray, weight: FloatArray, keep: float, rate: float,
    cat_at: IntArray, line: Line, slopes: Slopes,
) -> None:  # fmt: skip
    """One adaptive step of the weights along their slope; of what levels add one a row, along its gradient (m,)."""
    W, effects, G, sizes = line.weights, line.effects, slopes.squares, slopes.effect_sizes
    n, d = X.shape
    kept = keep**n
    together = (NARROW / d) ** NARROWING if d > NARROW else 1.0  # as all columns move the score at once
    for a in range(W.shape[0]):
        step = rate * together if a < d else rate
        for k in range(W.shape[1]):
            G[a, k] = kept * G[a, k] + slope[a, k] * slope[a, k]
            W[a, k] -= adagrad_step(slope[a, k], G[a, k], step)
    if effects.shape[0] == 0:
        return
    for s in range(n):
        for j in range(X.shape[1]):
            if weight[s] > 0.0 and cat_at[j] >= 0 and X[s, j] == X[s, j]:
                c, level = cat_at[j], level_of(X[s, j], effects.shape[1])
                for k in range(W.shape[1]):
                    g = gradient[s, k]
                    sizes[c, level, k] = keep * sizes[c, level, k] + g * g
                    effects[c, level, k] -= adagrad_step(g, sizes[c, level, k], rate)


@compiled_inside
def learn_base(
    rule: Rule, base: int, X: FloatArray, y: FloatArray, weight: FloatArray, rates: FloatArray, cat_at: IntArray,
    Z: FloatArray, line: Line, slopes: Slopes,
) -> None:  # fmt: skip
    """Let a line learn rows that share a step, under a loss that is compiled: ``Linear.learn`` in one call."""
    W = line.weights
    n, m = y.shape[0], W.shape[1]
    known = np.zeros((n, m))
    add_all_effects(X, cat_at, line.effects, known)
    take_rows(X, weight, cat_at, line, slopes, Z)
    if base == LEAST_SQUARES:
        learn_least_squares(X, Z, y, known, weight, rates[KEEP], cat_at, line, slopes)
        return
    gradient, slope, score, total = np.zeros((n, m)), np.zeros((W.shape[0], m)), np.empty(m), 0.0
    for s in range(n):
        total += weight[s]
    for s in range(n):
        apply_row(Z[s], W, line.signs, score)
        for k in range(m):
            score[k] += known[s, k]
        add_gradient(rule.kind, rule.option, rule.ridge, score, y[s], gradient[s])
        for a in range(W.shape[0]):
            for k in range(m):
                slope[a, k] += Z[s, a] * gradient[s, k] * (weight[s] / total)
    descend(X, slope, gradient, weight, rates[KEEP], rates[RATE] * rates[SPREAD], cat_at, line, slopes)


@compiled
def base_scores(X: FloatArray, line: Line, cat_at: IntArray, scores: FloatArray) -> None:
    """y⁰ of rows, (n, m): to the last bit as :func:`set_base` has it, faster for many."""
    signs, center, inverse = line.signs, line.center, line.inverse
    n, d = X.shape
    m = scores.shape[1]
    W = np.empty((d + 1, m))
    for j in range(d + 1):
        for k in range(m):
            is_wrong = j < signs.shape[0] and signs[j] * line.weights[j, k] < 0.0
            W[j, k] = 0.0 if is_wrong else line.weights[j, k]
    z = np.empty(d)
    for s in range(n):
        for j in range(d):
            z[j] = coordinate(X[s, j], center[j], inverse[j], line.low[j], line.high[j])
        for k in range(m):
            total = 0.0
            for j in range(d):
                total += z[j] * W[j, k]
            scores[s, k] = total + W[d, k]
        add_effects(X[s], cat_at, line.effects, scores[s])
