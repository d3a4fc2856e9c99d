"""Bases in compiled loops: the line y⁰ of one row and what levels add to it, as :mod:`streamboost.bases` has them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import FloatArray, IntArray
from streamboost.compiled import compiled_inside
from streamboost.linear_kernels import least_squares_row
from streamboost.loss_kernels import Rule, add_gradient
from streamboost.row_plan import KEEP, RATE, SPREAD

Signs = NDArray[np.int8]
# of the inputs: count, mean, m2 and the signs their weights must have; weights; what each level of a category adds
Line = tuple[FloatArray, FloatArray, FloatArray, Signs, FloatArray, FloatArray]
Slopes = tuple[FloatArray, FloatArray, FloatArray]  # what bases know beside that: squares, covariance, effect_sizes

STILL, LEAST_SQUARES, ADAGRAD = range(3)  # how a base learns
CLIP = 5.0
SHRINK = 2.0  # rows of 0 that the mean of a level begins with


@compiled_inside
def standardize_row(x: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray, z: FloatArray) -> None:
    """Write (x - mean) / sd, clipped, and a last 1; missing values and constant columns become 0."""
    d = x.shape[0]
    for j in range(d):
        variance = m2[j] / count[j] if count[j] > 0.0 else 0.0
        inverse = 1.0 / math.sqrt(variance) if variance > 1e-20 * mean[j] * mean[j] else 0.0
        z[j] = min(max((x[j] - mean[j]) * inverse, -CLIP), CLIP) if x[j] == x[j] else 0.0
    z[d] = 1.0


@compiled_inside
def learn_moments_row(
    x: FloatArray, w: float, cat_at: IntArray, count: FloatArray, mean: FloatArray, m2: FloatArray
) -> None:
    """Take a row into the running moments; levels have none, and so are all 0 to a line."""
    for j in range(x.shape[0]):
        if x[j] == x[j] and cat_at[j] < 0:
            count[j] += w
            away = x[j] - mean[j]
            mean[j] += away * (w / count[j])
            m2[j] += w * away * (x[j] - mean[j])


@compiled_inside
def apply_row(z: FloatArray, W: FloatArray, signs: Signs, out: FloatArray) -> None:
    """y⁰ = Wᵀ z, where a weight of the wrong sign counts as 0."""
    for k in range(out.shape[0]):
        out[k] = 0.0
    for a in range(z.shape[0]):
        for k in range(out.shape[0]):
            if signs.shape[0] == 0 or a == signs.shape[0] or signs[a] * W[a, k] >= 0.0:
                out[k] += z[a] * W[a, k]


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


@compiled_inside
def adagrad_row(
    rule: Rule,
    z: FloatArray,
    y: FloatArray,
    known: FloatArray,
    forget: float,
    rate: float,
    signs: Signs,
    W: FloatArray,
    G: FloatArray,
    gradient: FloatArray,
) -> None:
    """One adaptive step on the loss itself, whose gradient is left in ``gradient``."""
    kind, option, ridge, _ = rule
    p, m = W.shape
    score = np.empty(m)
    apply_row(z, W, signs, score)
    for k in range(m):
        score[k] += known[k]
        gradient[k] = 0.0
    add_gradient(kind, option, ridge, score, y, gradient)
    for a in range(p):
        for k in range(m):
            g = z[a] * gradient[k]
            G[a, k] = forget * G[a, k] + g * g
            if G[a, k] > 0.0:
                W[a, k] -= rate * g / math.sqrt(G[a, k])


@compiled_inside
def learn_base_row(
    rule: Rule, base: int, x: FloatArray, y: FloatArray, w: float, rates: FloatArray, cat_at: IntArray, z: FloatArray,
    count: FloatArray, mean: FloatArray, m2: FloatArray, signs: Signs, W: FloatArray, effects: FloatArray,
    G: FloatArray, P: FloatArray, sizes: FloatArray,
) -> None:  # fmt: skip
    """Let a linear base learn a row: its inputs' moments, its weights, and what levels add."""
    m = W.shape[1]
    known, gradient = np.zeros(m), np.empty(m)
    learn_moments_row(x, w, cat_at, count, mean, m2)
    standardize_row(x, count, mean, m2, z)
    add_effects(x, cat_at, effects, known)
    rate = rates[RATE] * rates[SPREAD]
    if base == LEAST_SQUARES:
        least_squares_row(z, y - known, w, rates[KEEP], count, W, P)
    else:
        adagrad_row(rule, z, y, known, rates[KEEP], rate, signs, W, G, gradient)
    if effects.shape[0] == 0:
        return
    if base == LEAST_SQUARES:
        apply_row(z, W, signs, gradient)
        for k in range(m):
            gradient[k] += known[k] - y[k]
    for j in range(x.shape[0]):
        if cat_at[j] >= 0 and x[j] == x[j]:
            c, level = cat_at[j], level_of(x[j], effects.shape[1])
            for k in range(m):
                g = gradient[k]
                if base == LEAST_SQUARES:  # a mean of what is left, pulled towards 0
                    sizes[c, level, k] = rates[KEEP] * sizes[c, level, k] + w
                    effects[c, level, k] -= w * g / (sizes[c, level, k] + SHRINK)
                else:
                    sizes[c, level, k] = rates[KEEP] * sizes[c, level, k] + g * g
                    if sizes[c, level, k] > 0.0:
                        effects[c, level, k] -= rate * g / math.sqrt(sizes[c, level, k])


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
        variance = m2[j] / count[j] if count[j] > 0.0 else 0.0
        inverse[j] = 1.0 / math.sqrt(variance) if variance > 1e-20 * mean[j] * mean[j] else 0.0
    z = np.empty(d)
    for s in range(n):
        for j in range(d):
            x = X[s, j]
            there = (x - mean[j]) * inverse[j]
            there = CLIP if there > CLIP else there
            there = -CLIP if there < -CLIP else there
            z[j] = there if x == x else 0.0
        for k in range(m):
            total = W[d, k]
            for j in range(d):
                total += z[j] * W[j, k]
            scores[s, k] = total
        add_effects(X[s], cat_at, effects, scores[s])
