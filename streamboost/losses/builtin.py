"""Losses for real targets and counts, and those made of two functions.

Leading axes broadcast, so the partial sums of a whole stack (n, N + 1, m) meet the targets (n, 1, k) in one call.
Every formula is written once and holds at extremes: scores of ±1000 give finite numbers and no warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from streamboost._types import BoolArray, FloatArray
from streamboost.errors import did_you_mean
from streamboost.kernels.losses import LARGEST_EXPONENT
from streamboost.losses.base import Loss, LossConstants, Scale, row_weights, summed
from streamboost.losses.classes import Hinge, Logistic, Softmax
from streamboost.losses.links import Identity, Link, Log

NORMAL = 1.4826  # the deviation of normal targets over their median distance from the median
LINEAR_STEP = 0.25  # of the unit, where gradients do not become smaller with the error


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared distance, ½‖s − y‖², for means. Starts at the mean; λ = β = 1.

    Examples
    --------
    >>> Squared().start(np.array([[1.0], [2.0], [6.0]]))
    array([3.])
    """

    name, smooth, temperature_scale, is_of_differences = "squared_error", True, 2.0, True

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """½‖s − y‖²."""
        return summed(0.5 * np.square(score - y))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The error s − y."""
        return score - y

    def bare_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """1 everywhere."""
        return np.ones_like(score)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The mean."""
        return np.average(y, axis=0, weights=weight)

    def bare_facts(self, radius: float) -> LossConstants:
        """A score and a target on opposite sides of the ball are twice its radius apart."""
        return LossConstants(strong_convexity=1.0, smoothness=1.0, gradient_bound=2.0 * radius)


@dataclass(frozen=True)
class Absolute(Loss):
    """The sum of absolute errors (L1), for medians; not smooth. Starts at the weighted median.

    Examples
    --------
    >>> Absolute().start(np.array([[1.0], [2.0], [6.0]]))
    array([2.])
    """

    name, smooth, is_of_differences = "absolute_error", False, True

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ abs(s − y)."""
        return summed(np.abs(score - y))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The sign of s − y; 0 at the kink s = y."""
        return np.sign(score - y)

    def unit(self, y: FloatArray, weight: FloatArray | None = None) -> float:
        """1.48 times the median distance from the median: the deviation of normal targets, whatever the tails."""
        return robust_deviation(y, row_weights(y, weight)) or super().unit(y, weight)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The weighted median."""
        return _quantile(y, weight, 0.5)

    def bare_facts(self, radius: float) -> LossConstants:
        """The gradient is ±1 in every output."""
        return LossConstants(gradient_bound=math.sqrt(self.n_outputs))


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss, for the ``tau``-quantile; not smooth. Starts at the weighted quantile.

    Parameters
    ----------
    tau : float, default 0.5
        Which quantile, between 0 and 1.

    Examples
    --------
    >>> Quantile(tau=0.9).start(np.arange(101.0)[:, None])
    array([90.])
    """

    name, smooth, is_of_differences = "quantile", False, True
    tau: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tau < 1:
            raise ValueError(f"tau is {self.tau!r}, expected a number between 0 and 1. For the median pass 0.5.")
        self._keep("tau", float(self.tau))

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ τ (y − s) where the score is too low, (1 − τ)(s − y) where it is too high."""
        lack = y - score
        return summed(np.maximum(self.tau * lack, (self.tau - 1.0) * lack))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """−τ where the score is too low, 1 − τ where it is too high; 0 at the kink s = y."""
        return (1.0 - self.tau) * (score > y) - self.tau * (score < y)

    def unit(self, y: FloatArray, weight: FloatArray | None = None) -> float:
        """1.48 times the median distance from the median: the deviation of normal targets, whatever the tails."""
        return robust_deviation(y, row_weights(y, weight)) or super().unit(y, weight)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The weighted quantile."""
        return _quantile(y, weight, self.tau)

    def bare_facts(self, radius: float) -> LossConstants:
        """The gradient is that of the steeper side in every output."""
        return LossConstants(gradient_bound=max(self.tau, 1.0 - self.tau) * math.sqrt(self.n_outputs))


@dataclass(frozen=True)
class Huber(Loss):
    """Squared for errors up to ``delta``, absolute beyond: a mean that outliers cannot drag far.

    Parameters
    ----------
    delta : float, default 1.0
        The error at which the parabola turns into a line, in units of the target.

    Examples
    --------
    >>> Huber(delta=1.0).start(np.array([[0.0], [1.0], [100.0]]))
    array([1.])
    """

    name, smooth, temperature_scale, is_of_differences = "huber", True, 2.0, True
    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < math.inf:
            way_out = "Without a limit it is Squared()."
            raise ValueError(f"delta is {self.delta!r}, expected a finite number above 0. {way_out}")
        self._keep("delta", float(self.delta))

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ ½r² for r = abs(s − y) up to δ, δ(r − ½δ) beyond."""
        error = np.abs(score - y)
        curved = np.minimum(error, self.delta)
        return summed(curved * (error - 0.5 * curved))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The error s − y, clipped to ±δ."""
        return np.clip(score - y, -self.delta, self.delta)

    def unit(self, y: FloatArray, weight: FloatArray | None = None) -> float:
        """1.48 times the median distance from the median: the deviation of normal targets, whatever the tails."""
        return robust_deviation(y, row_weights(y, weight)) or super().unit(y, weight)

    def scale(self, y: FloatArray, weight: FloatArray | None = None) -> Scale:
        """Where targets spread much wider than δ most gradients are ±δ: then a step must make up for it."""
        unit = self.unit(y, weight)
        return Scale(step=max(1.0 / self.smoothness(), LINEAR_STEP * unit / self.delta), spread=unit)

    def bare_facts(self, radius: float) -> LossConstants:
        """Curvature 1 on the parabola and none beyond; a gradient up to ±δ in every output."""
        return LossConstants(smoothness=1.0, gradient_bound=self.delta * math.sqrt(self.n_outputs))


@dataclass(frozen=True)
class Poisson(Loss):
    """For counts and rates y ≥ 0 whose mean is exp(score): eˢ − y s. Starts at the logarithm of the mean.

    This is the negative log-likelihood without its constant log y!, so values may be negative. Beyond a score of
    :data:`LARGEST_EXPONENT` the exponential goes on as its tangent: convex still, and finite.

    Examples
    --------
    >>> loss = Poisson()
    >>> loss.predict(loss.start(np.array([[0.0], [2.0], [4.0]])))
    array([2.])
    """

    name, smooth, temperature_scale, link = "poisson", True, 0.0, Log()
    coding = "a count of at least 0. For targets of either sign use Squared()."

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ eˢ − y s, with the tangent of eˢ beyond the largest exponent."""
        exponent = np.minimum(score, LARGEST_EXPONENT)
        return summed(np.exp(exponent) * (1.0 + (score - exponent)) - y * score)

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The predicted mean eˢ minus y."""
        return np.exp(np.minimum(score, LARGEST_EXPONENT)) - y

    def bare_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The predicted mean eˢ."""
        return np.exp(np.minimum(score, LARGEST_EXPONENT))

    def step_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The mean of eˢ and y, the curvatures at the score and where it should be: no step is longer than 2."""
        return 0.5 * np.exp(np.minimum(score, LARGEST_EXPONENT)) + 0.5 * y + 2.0 * self.l2

    def is_coded(self, y: FloatArray) -> BoolArray:
        """Not below 0."""
        return y >= 0

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The logarithm of the mean; where nothing was counted, of half a count in one row more."""
        mean = np.average(y, axis=0, weights=weight)
        return np.log(np.where(mean > 0, mean, 0.5 / (weight.sum() + 1.0)))

    def scale(self, y: FloatArray, weight: FloatArray | None = None) -> Scale:
        """The curvature at the start is the mean of the targets."""
        return Scale(step=1.0 / (self.predict(self.start(y, weight)).max() + 2.0 * self.l2), spread=1.0)

    def bare_facts(self, radius: float) -> LossConstants:
        """The curvature is eˢ, and so is the gradient at its longest: a target within the radius is below it."""
        if radius > LARGEST_EXPONENT:
            return LossConstants()
        return LossConstants(math.exp(-radius), math.exp(radius), math.sqrt(self.n_outputs) * math.exp(radius))


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """A loss made of two functions: see :func:`from_functions`, which makes it."""

    value_function: Callable[[FloatArray, FloatArray], FloatArray]
    gradient_function: Callable[[FloatArray, FloatArray], FloatArray]
    _: KW_ONLY
    # Facts of the class in the other losses, here of each loss.
    name: str  # type: ignore[misc]
    smooth: bool  # type: ignore[misc]
    link: Link  # type: ignore[misc]
    facts: LossConstants

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the user's values, once their shape is right."""
        advice = "one number per row. Sum over the outputs with .sum(axis=-1)."
        return self._checked("value", np.asarray(self.value_function(score, y), dtype=np.float64), score, y, (), advice)

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the user's gradients, once their shape is right, in an array of our own."""
        given = np.array(self.gradient_function(score, y), dtype=np.float64)
        advice = "one number per output. Keep the last axis of the score."
        return self._checked("gradient", given, score, y, (self.n_outputs,), advice)

    def _checked(
        self, what: str, given: FloatArray, score: FloatArray, y: FloatArray, last: tuple[int, ...], advice: str
    ) -> FloatArray:
        expected = np.broadcast_shapes(score.shape[:-1], y.shape[:-1]) + last
        if given.shape != expected:
            found = f"the {what} function of loss {self.name!r} returned shape {given.shape}"
            raise ValueError(f"{found}, expected {expected}: {advice}")
        return given

    def bare_facts(self, radius: float) -> LossConstants:
        """What the user knows."""
        return self.facts


def from_functions(
    value: Callable[[FloatArray, FloatArray], FloatArray],
    gradient: Callable[[FloatArray, FloatArray], FloatArray],
    *,
    smooth: bool,
    name: str = "custom",
    n_outputs: int = 1,
    l2: float = 0.0,
    link: Link | None = None,
    strong_convexity: float = 0.0,
    smoothness: float | None = None,
    gradient_bound: float | None = None,
) -> Loss:
    """Make a loss of a pair of functions; it pickles if they do.

    Parameters
    ----------
    value : callable
        From scores (..., m) and targets (..., m) to the loss (...): one number per row, convex in the score.
    gradient : callable
        From the same to its derivative (..., m).
    smooth : bool
        Whether the gradient changes continuously.
    name : str, default "custom"
        What error messages call it.
    n_outputs, l2
        As for every :class:`Loss`.
    link : Link, optional
        From scores to predictions; :class:`Identity` unless given.
    strong_convexity, smoothness, gradient_bound : float, optional
        λ, β and G of the bare loss, if known; the ridge is added to them.

    Examples
    --------
    The log-cosh loss, like Huber's but without a corner in its slope:

    >>> log_cosh = from_functions(
    ...     lambda score, y: np.log(np.cosh(score - y)).sum(axis=-1),
    ...     lambda score, y: np.tanh(score - y),
    ...     smooth=True,
    ...     smoothness=1.0,
    ... )
    >>> log_cosh.start(np.array([[0.0], [1.0], [2.0]]))
    array([1.])
    """
    bounds = [math.inf if bound is None else float(bound) for bound in (smoothness, gradient_bound)]
    facts, link = LossConstants(float(strong_convexity), *bounds), Identity() if link is None else link
    return FunctionLoss(
        value, gradient, name=name, smooth=bool(smooth), link=link, n_outputs=n_outputs, l2=l2, facts=facts
    )


NAMES: Mapping[str, type[Loss]] = MappingProxyType(
    {loss.name: loss for loss in (Squared, Absolute, Huber, Quantile, Poisson, Softmax, Logistic, Hinge)}
)
"""The built-in losses by their names, which are scikit-learn's where it has one."""


def by_name(name: str, **options: Any) -> Loss:
    """Make a built-in loss by its name, one of :data:`NAMES`, with the options of its class.

    Examples
    --------
    >>> by_name("quantile", tau=0.9)
    Quantile(n_outputs=1, l2=0.0, tau=0.9)
    """
    if name not in NAMES:
        names = ", ".join(map(repr, NAMES))
        raise ValueError(f"loss is {name!r}, expected one of {names}, or a Loss.{did_you_mean(name, NAMES)}")
    return NAMES[name](**options)


def _quantile(y: FloatArray, weight: FloatArray, tau: float) -> FloatArray:
    """The weighted quantile (m,) of every column: the middle of the two rows it falls between, if it does."""
    order = np.argsort(y, axis=0)  # (n, m)
    y = np.take_along_axis(y, order, axis=0)
    passed = np.cumsum(weight[order], axis=0)  # (n, m), the weight up to and with each row
    goal = tau * passed[-1]  # (m,)
    rows = np.stack([np.argmax(passed >= goal, axis=0), np.argmax(passed > goal, axis=0)])  # (2, m)
    return np.asarray(np.take_along_axis(y, rows, axis=0).mean(axis=0))


def robust_deviation(y: FloatArray, weight: FloatArray) -> float:
    """The root mean square over outputs of 1.48 times the median distance from the median; 0 if most are equal."""
    if len(y) < 2 or weight.sum() <= 0:
        return 0.0
    away = np.abs(y - _quantile(y, weight, 0.5))  # (n, m)
    return NORMAL * math.sqrt(np.mean(np.square(_quantile(away, weight, 0.5))))
