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


class Line(NamedTuple):
    """A linear base; those of R boosters have one more axis, in front."""

    counts: FloatArray  # (d,), moments of the inputs
    mean: FloatArray
    m2: FloatArray
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
    return Line(lines.counts[r], lines.mean[r], lines.m2[r], lines.signs[r], lines.weights[r], lines.effects[r])


@compiled_inline
def standardize_row(x: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray, z: FloatArray) -> None:
    """Write (x - mean) / sd, clipped, and a last 1; missing values and constant columns become 0."""
    d = x.shape[0]
    for j in range(d):
        z[j] = standard(x[j], mean[j], inverse_deviation(count[j], mean[j], m2[j]), CLIP)
    z[d] = 1.0


@compiled_inline
def set_base(x: FloatArray, line: Line, cat_at: IntArray, z: FloatArray, out: FloatArray) -> None:
    """y⁰ of a row, (m,)."""
    standardize_row(x, line.counts, line.mean, line.m2, z)
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


@compiled
def take_rows(X: FloatArray, weight: FloatArray, cat_at: IntArray, line: Line, Z: FloatArray) -> None:
    """Take rows into the moments of the inputs, and standardise them by these, (n, d + 1)."""
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            learn_inputs(X[s], weight[s], cat_at, line.counts, line.mean, line.m2)
    for s in range(X.shape[0]):
        standardize_row(X[s], line.counts, line.mean, line.m2, Z[s])


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
    n = X.shape[0]
    kept = keep**n
    for a in range(W.shape[0]):
        for k in range(W.shape[1]):
            G[a, k] = kept * G[a, k] + slope[a, k] * slope[a, k]
            W[a, k] -= adagrad_step(slope[a, k], G[a, k], rate)
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
    take_rows(X, weight, cat_at, line, Z)
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


@compiled_inside
def base_scores(X: FloatArray, line: Line, cat_at: IntArray, scores: FloatArray) -> None:
    """y⁰ of remembered rows, (n, m)."""
    mean, signs = line.mean, line.signs
    n, d = X.shape
    m = scores.shape[1]
    W = np.empty((d + 1, m))
    for j in range(d + 1):
        for k in range(m):
            is_wrong = j < signs.shape[0] and signs[j] * line.weights[j, k] < 0.0
            W[j, k] = 0.0 if is_wrong else line.weights[j, k]
    inverse = np.empty(d)
    for j in range(d):
        inverse[j] = inverse_deviation(line.counts[j], mean[j], line.m2[j])
    z = np.empty(d)
    for s in range(n):
        for j in range(d):
            z[j] = standard(X[s, j], mean[j], inverse[j], CLIP)
        for k in range(m):
            total = W[d, k]
            for j in range(d):
                total += z[j] * W[j, k]
            scores[s, k] = total
        add_effects(X[s], cat_at, line.effects, scores[s])
