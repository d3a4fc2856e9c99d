"""The bounds of the paper's theorems and lemmas, as formulas.

Legend, after the paper; what is impossible is refused:

=========  ======================  ==============================================================
paper      here                    meaning
=========  ======================  ==============================================================
N          ``n_learners``          how many weak learners; one number or several
γ          ``edge``                share of its targets a learner explains (Definition 1), in (0, 1];
                                   where several N may be given, that of the weakest, or one for each N
λ, β       ``strong_convexity``,   the least and the most the loss curves
           ``smoothness``
B, G       ``loss_bound``,         the largest loss, the longest gradient
           ``gradient_bound``
η          ``step``                the step size of Algorithm 1
R(T)/T     ``excess``              what a learner misses beyond its edge, per row
=========  ======================  ==============================================================
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from streamboost._types import FloatArray
from streamboost.errors import refused


def contraction(edge: ArrayLike, step: ArrayLike, strong_convexity: float, smoothness: float) -> FloatArray:
    """By how much one learner shrinks the regret of those before it: 1 − (ηγλ − βη²λ(4 − 2γ)).

    The proof of Theorem 1 multiplies these factors learner by learner, and for any step; the theorem's own
    η = γ/(β(8 − 4γ)) makes each as small as can be, 1 − γ²λ/(β(16 − 8γ)). A factor above 1 promises nothing.

    Examples
    --------
    >>> print(f"{contraction(0.5, 1 / 12, strong_convexity=1.0, smoothness=1.0):.4f}")  # 1/12 is the best step
    0.9792
    """
    gamma, eta = _edges(edge), np.asarray(step, dtype=float)
    _check_curvature(strong_convexity, smoothness)
    if not (np.isfinite(eta) & (eta > 0)).all():
        raise ValueError(f"step is {step!r}, expected numbers above 0. For the best one use descents.theoretical_step.")
    return np.asarray(1.0 - strong_convexity * (eta * gamma - smoothness * eta**2 * (4.0 - 2.0 * gamma)))


def smooth_bound(
    n_learners: ArrayLike, edge: ArrayLike, strong_convexity: float, smoothness: float, loss_bound: float
) -> FloatArray:
    """Theorem 1: the average regret of Algorithm 1 is at most 2B(1 − γ²λ/16β)ᴺ.

    Examples
    --------
    >>> smooth_bound([0, 10, 100], edge=0.5, strong_convexity=1.0, smoothness=1.0, loss_bound=1.0).tolist()
    [2.0, 1.709, 0.414]
    """
    N, gamma = _counts(n_learners, least=0), _edges(edge)
    _check_curvature(strong_convexity, smoothness)
    _check_size("loss_bound", loss_bound)
    return np.asarray(2.0 * loss_bound * (1.0 - gamma**2 * strong_convexity / (16.0 * smoothness)) ** N)


def nonsmooth_bound(
    n_learners: ArrayLike, edge: ArrayLike, strong_convexity: float, gradient_bound: float
) -> FloatArray:
    """Theorem 2: the average regret of Algorithm 2 is at most (4c²G²/λN)(1 + ln N + 1/8N) with c = 2/γ − 1.

    The proof takes the mean of y⁰ … yᴺ⁻¹; reading out y¹ … yᴺ instead, as
    :class:`~streamboost.descents.ResidualProjection` does, adds (ℓ(yᴺ) − ℓ(y⁰))/N, which is below 0 once the
    learners help at all.

    Examples
    --------
    >>> nonsmooth_bound([1, 10, 100], edge=0.5, strong_convexity=1.0, gradient_bound=1.0)
    array([40.5 , 11.934, 2.018])
    """
    N, gamma = _counts(n_learners, least=1), _edges(edge)
    _check_size("gradient_bound", gradient_bound)
    if not 0 < strong_convexity < math.inf:
        way_out = "A ridge makes any loss strongly convex: give it an l2."
        raise refused("strong_convexity", strong_convexity, f"a finite number above 0. {way_out}")
    c = 2.0 / gamma - 1.0
    return np.asarray(4.0 * (c * gradient_bound) ** 2 / (strong_convexity * N) * (1.0 + np.log(N) + 1.0 / (8.0 * N)))


def residual_bound(edge: float, gradient_bound: float, excess: float = 0.0) -> float:
    """Residual lemma, first claim: the mean of ‖Δᵢ‖² in Algorithm 2 is at most c²G², whatever i.

    Each learner takes off a share γ of the residual, each gradient adds at most G, and c is where the two
    balance: c² = (1 − γ)(1 + c)² + excess/G².

    Examples
    --------
    >>> residual_bound(edge=0.75, gradient_bound=1.0)
    1.0
    """
    return (_residual_ratio(edge, gradient_bound, excess) * gradient_bound) ** 2


def answer_bound(edge: float, gradient_bound: float, excess: float = 0.0) -> float:
    """Residual lemma, second claim: the mean of ‖hᵢ(x)‖² in Algorithm 2 is at most (4 − 2γ)(1 + c)²G² + 2 excess.

    c is that of :func:`residual_bound`. The paper goes on to "≤ 4c²G²", which does not follow: (1 + c)² is
    c²/(1 − γ) here. What its Theorem 2 uses is true all the same. As hᵢ is a target less a residual, the triangle
    inequality gives at most (1 + 2c)²G², and without excess that is never above 4(2/γ − 1)²G².

    Examples
    --------
    >>> answer_bound(edge=0.75, gradient_bound=1.0)
    10.0
    """
    c = _residual_ratio(edge, gradient_bound, excess)
    return (4.0 - 2.0 * edge) * ((1.0 + c) * gradient_bound) ** 2 + 2.0 * excess


def _residual_ratio(edge: float, gradient_bound: float, excess: float) -> float:
    """c, the positive root of γc² + (2γ − 2)c + (γ − 1 − excess/G²) = 0."""
    gamma = float(_edges(edge))
    _check_size("gradient_bound", gradient_bound, may_be_zero=False)
    _check_size("excess", excess)
    return (1.0 - gamma + math.sqrt(1.0 - gamma * (1.0 - excess / gradient_bound**2))) / gamma


def _edges(edge: ArrayLike) -> FloatArray:
    gamma = np.asarray(edge, dtype=float)
    if not ((gamma > 0) & (gamma <= 1)).all():
        raise ValueError(f"edge is {edge!r}, expected numbers in (0, 1]. Without an edge the theorems promise nothing.")
    return gamma


def _counts(n_learners: ArrayLike, least: int) -> FloatArray:
    N = np.asarray(n_learners, dtype=float)
    if not ((least <= N) & (N % 1 == 0)).all():
        raise ValueError(f"n_learners is {n_learners!r}, expected whole numbers of at least {least}.")
    return N


def _check_size(name: str, value: float, *, may_be_zero: bool = True) -> None:
    if not (0 <= value < math.inf) or (value == 0 and not may_be_zero):
        expected = "of at least 0" if may_be_zero else "above 0"
        raise ValueError(f"{name} is {value!r}, expected a finite number {expected}. Take the largest met on a run.")


def _check_curvature(strong_convexity: float, smoothness: float) -> None:
    if not 0 < strong_convexity <= smoothness < math.inf:
        given = f"strong_convexity is {strong_convexity!r} and smoothness {smoothness!r}"
        way_out = "For a loss that is not smooth use nonsmooth_bound; a ridge (l2) makes any loss strongly convex."
        raise ValueError(f"{given}, expected 0 < λ ≤ β < ∞. {way_out}")
