"""The loops of linear learning: running moments, recursive least squares, diagonal AdaGrad. Plain arrays in and out.

All learners that see the same rows with the same weights share one inverse covariance ``P``, so q of them
cost little more than one.
"""

import math

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled, compiled_inline, compiled_inside

Signs = NDArray[np.int8]

BIAS_VARIANCE = 1e3  # the intercept is next to free: it should not be pulled towards 0
NOISE = 1e-14  # of a mean: what rounding may make of a deviation
LARGEST_INPUT = 1e100  # what a value counts as, at most: its square is a number still, and so is a sum of many such
CLIP = 5.0  # standard deviations beyond which a value is cut off
NO_SIGNS: Signs = np.zeros(0, np.int8)


@compiled_inside
def learn_moment(x: float, w: float, j: int, count: FloatArray, mean: FloatArray, m2: FloatArray) -> None:
    """Take a value into the weighted running moments of column j, NaN passed over; they stay finite for any number."""
    if x == x:
        x = min(max(x, -LARGEST_INPUT), LARGEST_INPUT)
        count[j] += w
        away = x - mean[j]
        mean[j] += away * (w / count[j])
        m2[j] += w * away * (x - mean[j])


@compiled_inline
def inverse_deviation(count: float, mean: float, m2: float) -> float:
    """1 / sd of a column, or 0 where its spread is rounding noise of its mean."""
    variance = m2 / count if count > 0.0 else 0.0
    return 1.0 / math.sqrt(variance) if variance > NOISE * NOISE * mean * mean else 0.0


@compiled_inline
def standard(x: float, mean: float, inverse: float, clip: float) -> float:
    """(x - mean) / sd, clipped; a missing value becomes 0."""
    there = (x - mean) * inverse
    there = clip if there > clip else there
    there = -clip if there < -clip else there
    return there if x == x else 0.0


@compiled
def learn_moments(X: FloatArray, weight: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray) -> None:
    """Take rows into the weighted running moments of each column."""
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            for j in range(X.shape[1]):
                learn_moment(X[s, j], weight[s], j, count, mean, m2)


@compiled
def running_means(weight: FloatArray, mean: float, n: int) -> FloatArray:
    """Return the mean of n weights and those up to each row, (rows,); equal weights have exactly themselves as mean."""
    means = np.empty(weight.shape[0])
    for s in range(weight.shape[0]):
        mean = weight[s] if n == 0 else mean + (weight[s] - mean) / (n + 1)
        means[s], n = mean, n + 1
    return means


@compiled
def standardize(
    X: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray, clip: float, out: FloatArray
) -> None:
    """Write (x - mean) / sd, clipped, and a last column of ones; missing values and constant columns become 0."""
    n, d = X.shape
    for j in range(d):
        inverse = inverse_deviation(count[j], mean[j], m2[j])
        for s in range(n):
            out[s, j] = standard(X[s, j], mean[j], inverse, clip)
    for s in range(n):
        out[s, d] = 1.0


@compiled
def plain_inputs(X: FloatArray, out: FloatArray) -> None:
    """Write the rows as they are, missing values as 0, and a last column of ones."""
    n, d = X.shape
    for s in range(n):
        for j in range(d):
            out[s, j] = X[s, j] if X[s, j] == X[s, j] else 0.0
        out[s, d] = 1.0


@compiled
def apply(Z: FloatArray, W: FloatArray, signs: Signs) -> FloatArray:
    """Z W, every row by itself: unlike a BLAS product, the same to the last bit however many rows are asked at once."""
    out = np.empty((Z.shape[0], W.shape[1]))
    for s in range(Z.shape[0]):
        apply_row(Z[s], W, signs, out[s])
    return out


@compiled_inline
def apply_row(z: FloatArray, W: FloatArray, signs: Signs, out: FloatArray) -> None:
    """Wᵀ z, where a weight of the wrong sign counts as 0."""
    for k in range(out.shape[0]):
        out[k] = 0.0
    for a in range(z.shape[0]):
        for k in range(out.shape[0]):
            if signs.shape[0] == 0 or a == signs.shape[0] or signs[a] * W[a, k] >= 0.0:
                out[k] += z[a] * W[a, k]


@compiled
def recursive_least_squares(
    Z: FloatArray, targets: FloatArray, weight: FloatArray, forget: float, count: FloatArray, W: FloatArray,
    P: FloatArray,
) -> None:  # fmt: skip
    """Row after row: W (p, q) to the weighted, discounted ridge solution, P (p, p) to the inverse covariance."""
    for s in range(Z.shape[0]):
        if weight[s] > 0.0:
            least_squares_row(Z[s], targets[s], weight[s], forget, count, W, P)


@compiled_inside
def least_squares_row(
    z: FloatArray, target: FloatArray, w: float, forget: float, count: FloatArray, W: FloatArray, P: FloatArray
) -> None:
    """One step of recursive least squares. An input of which no value was seen yet (``count`` is 0) forgets nothing."""
    p, q = W.shape
    Pz = np.empty(p)
    if forget < 1.0:
        trace, n_seen = 0.0, 0
        for a in range(p):
            if a == p - 1 or count[a] > 0.0:
                trace += P[a, a]
                n_seen += 1
        if trace < 10.0 * n_seen:  # directions no row excites would otherwise grow without bound
            grown = 1.0 / forget
            for a in range(p):
                if a == p - 1 or count[a] > 0.0:
                    for b in range(p):
                        P[a, b] *= grown
    zPz = 0.0
    for a in range(p):
        total = 0.0
        for b in range(p):
            total += P[a, b] * z[b]
        Pz[a] = total
        zPz += total * z[a]
    gain = w / (1.0 + w * max(zPz, 0.0))
    for k in range(q):
        error = target[k]
        for a in range(p):
            error -= z[a] * W[a, k]
        for a in range(p):
            W[a, k] += gain * error * Pz[a]
    for a in range(p):
        for b in range(a + 1):
            P[a, b] -= gain * Pz[a] * Pz[b]
            P[b, a] = P[a, b]


@compiled
def adagrad(
    Z: FloatArray, targets: FloatArray, weight: FloatArray, rate: float, forget: float, W: FloatArray, G: FloatArray
) -> None:
    """Row after row: one AdaGrad step of W (p, q) on the square loss; G (p, q) is the discounted sum of squares."""
    p, q = W.shape
    for s in range(Z.shape[0]):
        if weight[s] <= 0.0:
            continue
        for k in range(q):
            error = -targets[s, k]
            for a in range(p):
                error += Z[s, a] * W[a, k]
            for a in range(p):
                g = weight[s] * error * Z[s, a]
                G[a, k] = forget * G[a, k] + g * g
                W[a, k] -= adagrad_step(g, G[a, k], rate)


@compiled_inside
def adagrad_step(g: float, squares: float, rate: float) -> float:
    """How far to go along a gradient; ``squares`` is the sum of their squares, this one's among them."""
    return rate * g / math.sqrt(squares) if squares > 0.0 else 0.0


def prior_covariance(n_features: int, ridge: float) -> FloatArray:
    """P before any row: I/ridge, and a free intercept last."""
    return np.diag(np.r_[np.full(n_features, 1.0 / ridge), BIAS_VARIANCE])


def widen_covariance(P: FloatArray, k: int, ridge: float) -> FloatArray:
    """P with k new inputs before the intercept, uncorrelated with all that was learned."""
    d = len(P) - 1
    wide = np.insert(np.insert(P, [d] * k, 0.0, axis=0), [d] * k, 0.0, axis=1)
    wide[range(d, d + k), range(d, d + k)] = 1.0 / ridge
    return wide


def check_linear_options(update: str, ridge: float, forget: float, rate: float) -> None:
    """Refuse options no linear learner could work with."""
    if update not in ("rls", "adagrad"):
        raise ValueError(f"update is {update!r}, expected 'rls' or 'adagrad'. If unsure, leave it out.")
    if not ridge > 0:
        raise ValueError(f"ridge is {ridge!r}, expected a number above 0. If unsure, leave it out.")
    if not 0 < forget <= 1:
        raise ValueError(f"forget is {forget!r}, expected a number in (0, 1]. To keep everything, pass 1.")
    if not rate > 0:
        raise ValueError(f"rate is {rate!r}, expected a number above 0. If unsure, leave it out.")
