"""The line of a base, y⁰ of one row, and what levels add to it: what :mod:`streamboost.bases` and all loops call."""

from __future__ import annotations

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

# of the inputs: count, mean, m2 and the signs their weights must have; weights; what each level of a category adds
Line = tuple[FloatArray, FloatArray, FloatArray, Signs, FloatArray, FloatArray]
Slopes = tuple[FloatArray, FloatArray, FloatArray]  # what bases know beside that: squares, covariance, effect_sizes

STILL, LEAST_SQUARES, ADAGRAD = range(3)  # how a base learns
SHRINK = 2.0  # rows of 0 that the mean of a level begins with


@compiled_inside
def standardize_row(x: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray, z: FloatArray) -> None:
    """Write (x - mean) / sd, clipped, and a last 1; missing values and constant columns become 0."""
    d = x.shape[0]
    for j in range(d):
        z[j] = standard(x[j], mean[j], inverse_deviation(count[j], mean[j], m2[j]), CLIP)
    z[d] = 1.0


@compiled_inline
def set_base(x: FloatArray, line: Line, cat_at: IntArray, z: FloatArray, out: FloatArray) -> None:
    """y⁰ of a row, (m,)."""
    count, mean, m2, signs, W, effects = line
    standardize_row(x, count, mean, m2, z)
    apply_row(z, W, signs, out)
    add_effects(x, cat_at, effects, out)


@compiled_inside
def level_of(x: float, n_levels: int) -> int:
    """The level a value stands for; all beyond the last one known share it."""
    return int(x) if 0.0 <= x < n_levels else n_levels - 1


@compiled_inside
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
    count, mean, m2, _, _, _ = line
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            learn_inputs(X[s], weight[s], cat_at, count, mean, m2)
    for s in range(X.shape[0]):
        standardize_row(X[s], count, mean, m2, Z[s])


@compiled
def learn_least_squares(
    X: FloatArray, Z: FloatArray, y: FloatArray, known: FloatArray, weight: FloatArray, keep: float, cat_at: IntArray,
    line: Line, slopes: Slopes,
) -> None:  # fmt: skip
    """Least squares, row by row, of what is not ``known`` (n, m); levels add the mean of what is left, pulled to 0."""
    (count, _, _, signs, W, effects), (_, P, sizes) = line, slopes
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            least_squares_row(Z[s], y[s] - known[s], weight[s], keep, count, W, P)
    if effects.shape[0] == 0:
        return
    error = np.empty(W.shape[1])
    for s in range(X.shape[0]):
        apply_row(Z[s], W, signs, error)
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
    (_, _, _, _, W, effects), (G, _, sizes) = line, slopes
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
    signs, W, effects = line[3], line[4], line[5]
    n, m = y.shape[0], W.shape[1]
    known = np.zeros((n, m))
    add_all_effects(X, cat_at, effects, known)
    take_rows(X, weight, cat_at, line, Z)
    if base == LEAST_SQUARES:
        learn_least_squares(X, Z, y, known, weight, rates[KEEP], cat_at, line, slopes)
        return
    gradient, slope, score, total = np.zeros((n, m)), np.zeros(W.shape), np.empty(m), weight.sum()
    for s in range(n):
        apply_row(Z[s], W, signs, score)
        for k in range(m):
            score[k] += known[s, k]
        add_gradient(rule[0], rule[1], rule[2], score, y[s], gradient[s])
        for a in range(W.shape[0]):
            for k in range(m):
                slope[a, k] += Z[s, a] * gradient[s, k] * (weight[s] / total)
    descend(X, slope, gradient, weight, rates[KEEP], rates[RATE] * rates[SPREAD], cat_at, line, slopes)


@compiled_inside
def base_scores(X: FloatArray, line: Line, cat_at: IntArray, scores: FloatArray) -> None:
    """y⁰ of remembered rows, (n, m)."""
    count, mean, m2, signs, given, effects = line
    n, d = X.shape
    m = scores.shape[1]
    W = given.copy()
    for j in range(signs.shape[0]):
        for k in range(m):
            if signs[j] * W[j, k] < 0.0:
                W[j, k] = 0.0
    inverse = np.empty(d)
    for j in range(d):
        inverse[j] = inverse_deviation(count[j], mean[j], m2[j])
    z = np.empty(d)
    for s in range(n):
        for j in range(d):
            z[j] = standard(X[s, j], mean[j], inverse[j], CLIP)
        for k in range(m):
            total = W[d, k]
            for j in range(d):
                total += z[j] * W[j, k]
            scores[s, k] = total
        add_effects(X[s], cat_at, effects, scores[s])
