"""Losses in compiled loops: the formulas of :mod:`streamboost.losses` for one row, and the targets of learners."""

import math
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled_inline, compiled_inside

SQUARED, ABSOLUTE, QUANTILE, HUBER, POISSON, LOGISTIC, HINGE, SOFTMAX = range(8)
DESCENT, RESIDUAL = range(2)
# e³⁰⁰ is about 10¹³⁰: beyond any count, and its square still fits a float, so that sums of squared gradients
# stay finite too.
LARGEST_EXPONENT = 300.0
LEAST_CURVATURE = 0.05  # of the natural one: what a row weighs at least in a step of Newton's
TIE = 1e-9  # scores nearer than this to one another are equal
SMALLEST, LARGEST = 2.2250738585072014e-308, 1.7976931348623157e308


class Rule(NamedTuple):
    """What is descended, and how: the loss's number, its one option and its ridge; the number of the descent."""

    kind: int
    option: float
    ridge: float
    descent: int


@compiled_inline
def to_prediction(kind: int, score: FloatArray, out: FloatArray) -> None:
    """Where experts are mixed: probabilities and means for log losses, else the scores themselves."""
    m = score.shape[0]
    if kind == SOFTMAX:
        top = score[0]
        for k in range(1, m):
            top = max(top, score[k])
        total = 0.0
        for k in range(m):
            out[k] = math.exp(score[k] - top)
            total += out[k]
        for k in range(m):
            out[k] /= total
    elif kind == LOGISTIC:
        for k in range(m):
            small = math.exp(-abs(score[k]))
            out[k] = (1.0 if score[k] >= 0.0 else small) / (1.0 + small)
    elif kind == POISSON:
        for k in range(m):
            out[k] = math.exp(min(max(score[k], -LARGEST_EXPONENT), LARGEST_EXPONENT))
    else:
        for k in range(m):
            out[k] = score[k]


@compiled_inside
def to_score(kind: int, out: FloatArray) -> None:
    """Back from there, in place."""
    m = out.shape[0]
    if kind == SOFTMAX:
        mean = 0.0
        for k in range(m):
            out[k] = math.log(max(out[k], SMALLEST))
            mean += out[k] / m
        for k in range(m):
            out[k] -= mean
    elif kind == LOGISTIC:
        for k in range(m):
            p = min(max(out[k], SMALLEST), 1.0 - 1.1102230246251565e-16)
            out[k] = math.log(p) - math.log1p(-p)
    elif kind == POISSON:
        for k in range(m):
            out[k] = math.log(max(out[k], math.exp(-LARGEST_EXPONENT)))


@compiled_inside
def add_gradient(kind: int, option: float, ridge: float, score: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """Add the gradient of the loss at ``score`` (m,) to ``out``."""
    m = score.shape[0]
    if kind == SOFTMAX:
        probability = np.empty(m)
        to_prediction(kind, score, probability)
        for k in range(m):
            out[k] += probability[k]
        out[int(y[0])] -= 1.0
    else:
        for k in range(m):
            out[k] += slope(kind, option, score[k], y[k])
    if ridge != 0.0:
        for k in range(m):
            out[k] += 2.0 * ridge * score[k]


@compiled_inside
def slope(kind: int, option: float, s: float, y: float) -> float:
    """The derivative of a loss that is a sum over outputs."""
    if kind == SQUARED:
        return s - y
    if kind == LOGISTIC:
        small = math.exp(-abs(s))
        return -y * ((small if y * s >= 0.0 else 1.0) / (1.0 + small))
    if kind == ABSOLUTE:
        return 1.0 if s > y else (-1.0 if s < y else 0.0)
    if kind == QUANTILE:
        return 1.0 - option if s > y else (-option if s < y else 0.0)
    if kind == HUBER:
        return min(max(s - y, -option), option)
    if kind == POISSON:
        return math.exp(min(s, LARGEST_EXPONENT)) - y
    return -y if y * s < 1.0 else 0.0  # the hinge


@compiled_inside
def value(kind: int, option: float, ridge: float, score: FloatArray, y: FloatArray) -> float:
    """The loss of ``score`` (m,)."""
    m = score.shape[0]
    total = 0.0
    if kind == SOFTMAX:
        top = score[0]
        for k in range(1, m):
            top = max(top, score[k])
        for k in range(m):
            total += math.exp(score[k] - top)
        total = math.log(total) - (score[int(y[0])] - top)
    for k in range(m):
        s = score[k]
        if ridge != 0.0:
            total += ridge * s * s
        if kind == SQUARED:
            total += 0.5 * (s - y[k]) * (s - y[k])
        elif kind == LOGISTIC:
            total += max(0.0, -y[k] * s) + math.log1p(math.exp(-abs(s)))
        elif kind == ABSOLUTE:
            total += abs(s - y[k])
        elif kind == QUANTILE:
            total += max(option * (y[k] - s), (option - 1.0) * (y[k] - s))
        elif kind == HUBER:
            error = abs(s - y[k])
            curved = min(error, option)
            total += curved * (error - 0.5 * curved)
        elif kind == POISSON:
            exponent = min(s, LARGEST_EXPONENT)
            total += math.exp(exponent) * (1.0 + (s - exponent)) - y[k] * s
        elif kind == HINGE:
            total += max(0.0, 1.0 - y[k] * s)
    return total


@compiled_inside
def set_targets(rule: Rule, y: FloatArray, h: FloatArray, walk: FloatArray, targets: FloatArray) -> bool:
    """What each learner should have said: ∇ᵢ, or Δᵢ₋₁ + ∇ᵢ; return whether all of it is finite."""
    kind, option, ridge = rule.kind, rule.option, rule.ridge
    n_trees, m = h.shape
    if kind == SOFTMAX:
        for i in range(n_trees):
            set_softmax_gradient(walk, targets, i, int(y[0]))
    else:
        for k in range(m):
            goal = y[k]
            if kind == SQUARED:
                for i in range(n_trees):
                    targets[i, k] = walk[i, k] - goal
            elif kind == LOGISTIC:
                for i in range(n_trees):
                    targets[i, k] = slope(LOGISTIC, option, walk[i, k], goal)
            else:
                for i in range(n_trees):
                    targets[i, k] = slope(kind, option, walk[i, k], goal)
    if ridge != 0.0:
        for i in range(n_trees):
            for k in range(m):
                targets[i, k] += 2.0 * ridge * walk[i, k]
    if rule.descent == RESIDUAL:
        for k in range(m):
            carried = 0.0
            for i in range(n_trees):
                targets[i, k] += carried
                carried = targets[i, k] - h[i, k]
    is_finite = True
    for i in range(n_trees):
        for k in range(m):
            is_finite &= abs(targets[i, k]) <= LARGEST
    return is_finite


@compiled_inside
def set_curvatures(
    rule: Rule, natural: float, y: FloatArray, scores: FloatArray, gradients: FloatArray, curvature: FloatArray
) -> None:
    """Write how much the loss curves at scores (N, m) of one target, (N,): the mean over outputs, in natural units.

    ``gradients`` (N, m) are those at the scores, ``natural`` is the step by which a curvature of 1 is measured.
    """
    for i in range(scores.shape[0]):
        curvature[i] = row_curvature(rule, natural, y, scores[i], gradients[i])


@compiled_inside
def row_curvature(rule: Rule, natural: float, y: FloatArray, score: FloatArray, gradient: FloatArray) -> float:
    """The same at one score (m,): never less than a share of the natural curvature."""
    kind, m, total = rule.kind, score.shape[0], 0.0
    for k in range(m):
        g = gradient[k] - 2.0 * rule.ridge * score[k]
        if kind == SOFTMAX:
            total += abs(g) * (1.0 - abs(g)) * (m / (m - 1.0) if m > 1 else 1.0)
        elif kind == LOGISTIC:
            total += abs(g) * (1.0 - abs(g))
        elif kind == POISSON:
            total += 0.5 * (g + y[k]) + 0.5 * y[k]
        else:
            total += 1.0
    mean: float = natural * (total / m + 2.0 * rule.ridge)
    return max(mean, LEAST_CURVATURE)


@compiled_inside
def set_softmax_gradient(walk: FloatArray, targets: FloatArray, i: int, label: int) -> None:
    """The probabilities at one partial sum, minus 1 at the label."""
    m = walk.shape[1]
    top = walk[i, 0]
    for k in range(1, m):
        top = max(top, walk[i, k])
    total = 0.0
    for k in range(m):
        targets[i, k] = math.exp(walk[i, k] - top)
        total += targets[i, k]
    inverse = 1.0 / total
    for k in range(m):
        targets[i, k] *= inverse
    targets[i, label] -= 1.0


@compiled_inside
def set_gradients(
    kind: int, option: float, ridge: float, scores: FloatArray, y: FloatArray, target: FloatArray
) -> None:
    """The gradient of the loss for every row, (n, m)."""
    n, m = target.shape
    if kind == SOFTMAX:
        for s in range(n):
            set_softmax_gradient(scores, target, s, int(y[s, 0]))
    elif kind == SQUARED:
        for s in range(n):
            for k in range(m):
                target[s, k] = scores[s, k] - y[s, k]
    else:
        for s in range(n):
            for k in range(m):
                target[s, k] = slope(kind, option, scores[s, k], y[s, k])
    if ridge != 0.0:
        for s in range(n):
            for k in range(m):
                target[s, k] += 2.0 * ridge * scores[s, k]
