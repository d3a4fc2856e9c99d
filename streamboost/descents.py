"""The paper's algorithms: how the answers of N weak learners become one score, and what each should have said.

Legend, after the paper (one row t of the stream; every array here carries n such rows):

========  =====================  ==========================================================
paper     here                   shape
========  =====================  ==========================================================
y⁰        ``y0``                 (n, m), what the base says
hᵢ(x)     ``h[:, i - 1]``        (n, N, m), what the learners say
ηᵢ        ``eta[i - 1]``         (N,), the schedule of step sizes
yⁱ        ``walk[:, i]``         (n, N + 1, m), the partial sums y⁰ … yᴺ
∇ᵢ        gradient at yⁱ⁻¹       (n, N, m)
========  =====================  ==========================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from streamboost._types import FloatArray
from streamboost.losses import Loss, Scale


@dataclass(frozen=True)
class Ball:
    """𝒴 = {y : ‖y‖ ≤ radius}."""

    radius: float

    def __post_init__(self) -> None:
        _check_positive("radius", self.radius)

    def project(self, y: FloatArray) -> FloatArray:
        """Return the nearest point of the ball, along the last axis."""
        norm = np.linalg.norm(y, axis=-1, keepdims=True)
        return y * (self.radius / np.maximum(norm, self.radius))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Box:
    """𝒴 = {y : low ≤ y ≤ high}, coordinate by coordinate."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"Box is [{self.low}, {self.high}], expected low < high. Swap the two.")

    @property
    def radius(self) -> float:
        """The largest absolute value in the box."""
        return max(abs(self.low), abs(self.high))

    def project(self, y: FloatArray) -> FloatArray:
        """Return the nearest point of the box."""
        return np.clip(y, self.low, self.high)


class Descent(ABC):
    """How N weak answers become partial sums, a score, and N targets: a recipe without memory."""

    readout: Literal["last", "mean"]
    newton: bool = False  # whether learners weigh rows by the curvature of the loss

    def __post_init__(self) -> None:
        for name in ("step_size", "radius", "share"):
            if not (name == "step_size" and self.adaptive):
                _check_positive(name, getattr(self, name, None))

    @property
    def adaptive(self) -> bool:
        """Whether the schedule follows the measured edges, and so may change at every row."""
        return False

    @property
    def shifts(self) -> bool:
        """Whether a walk that starts a number higher is that much higher all the way, as it is where steps add up."""
        return False

    @abstractmethod
    def schedule(self, n_learners: int, loss: Loss, scale: Scale, edges: FloatArray) -> FloatArray:
        """Return the step sizes η₁ … η_N, (N,), for the scale of the stream and the edges (N,), NaN before any row."""

    @abstractmethod
    def walk(self, y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the partial sums y⁰ … yᴺ, (n, N + 1, m)."""

    def points(self, walk: FloatArray) -> FloatArray:
        """Where the gradient for learner i + 1 is taken, for every yⁱ of the walk: at yⁱ itself."""
        return walk

    def targets(self, walk: FloatArray, h: FloatArray, loss: Loss, y: FloatArray) -> FloatArray:
        """What each learner should have said, (n, N, m): ∇ᵢ = ∇ℓ(yⁱ⁻¹)."""
        return loss.gradient(self.points(walk)[:, :-1], y[:, None])

    def next_target(self, walk: FloatArray, h: FloatArray, loss: Loss, y: FloatArray) -> FloatArray:
        """What a learner placed after the last one should say, (n, m)."""
        return loss.gradient(self.points(walk)[:, -1], y)

    def score(self, walk: FloatArray) -> FloatArray:
        """The prediction of a walk, or of any prefix of it, (n, m): its last step, or the mean of steps 1 … N."""
        return read_out(walk, self.readout)


@dataclass(frozen=True)
class GradientDescent(Descent):
    """Algorithm 1, for smooth losses: yⁱ = yⁱ⁻¹ − η hᵢ(x), predict yᴺ, feed learner i ∇ℓ(yⁱ⁻¹).

    Parameters
    ----------
    step_size : float or "theory", optional
        η. ``"theory"`` gives each learner the η = γ/(β(8 − 4γ)) of Theorem 1 at its own measured edge
        (the proof contracts learner by learner, so each may use its own; one without an edge stands
        still). Left out: ``share`` of the loss's natural step.
    readout : {"last", "mean"}
    share : float
        Of the natural step, 1/β where the loss has one; a tenth by default.
    newton : bool, default False
        Whether leaves of trees say Σ∇ℓ / Σℓ″, a step of Newton's, instead of the mean of ∇ℓ: for a loss that tells
        its curvature. Beyond the paper; the estimators ask for it.

    References
    ----------
    Hu et al., Gradient Boosting on Stochastic Data Streams, section 5.1, Theorem 1.

    Examples
    --------
    >>> h = np.array([[[1.0], [2.0]]])  # one row, two learners, one output
    >>> GradientDescent(0.5).walk(np.zeros((1, 1)), h, np.array([0.5, 0.5])).ravel()
    array([ 0. , -0.5, -1.5])
    """

    step_size: float | Literal["theory"] | None = None
    readout: Literal["last", "mean"] = "last"
    share: float = 0.1
    newton: bool = False
    shifts: ClassVar[bool] = True

    @property
    def adaptive(self) -> bool:
        """Whether the schedule follows the measured edges, and so may change at every row."""
        return self.step_size == "theory"

    def schedule(self, n_learners: int, loss: Loss, scale: Scale, edges: FloatArray) -> FloatArray:
        """η for every learner."""
        if self.step_size == "theory":
            beta = loss.smoothness()
            return theoretical_step(edges, beta if math.isfinite(beta) else 1.0 / scale.step)
        return np.full(n_learners, self.share * scale.step if self.step_size is None else float(self.step_size))

    def walk(self, y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
        """Line 6: yⁱ = yⁱ⁻¹ − η hᵢ(x)."""
        return _cumulative_walk(y0, h, eta)


@dataclass(frozen=True)
class ResidualProjection(Descent):
    """Algorithm 2, for losses that need not be smooth: steps 1/(λ i), a projection, and a residual carried along.

    yⁱ = Π(yⁱ⁻¹ − ηᵢ hᵢ(x)); learner i is fed Δᵢ₋₁ + ∇ᵢ, where Δᵢ = Δᵢ₋₁ + ∇ᵢ − hᵢ(x) keeps what the
    learners so far failed to say; the prediction is the mean of the partial sums y¹ … yᴺ. (Line 8 as
    printed divides the N + 1 terms y⁰ … yᴺ by N, a slip: with y⁰ ≠ 0 the prediction would be too large.)

    Parameters
    ----------
    step_size : float, optional
        c in ηᵢ = c / i. Left out: 1/λ where the loss is λ-strongly convex, as in Theorem 2, and a fifth of
        the spread of the targets where it is not.
    domain : Ball or Box, optional
        𝒴. Left out: all of space.
    readout : {"mean", "last"}

    References
    ----------
    Hu et al., section 5.2, Theorem 2 and Algorithm 3.

    Examples
    --------
    >>> from streamboost.losses import Absolute
    >>> descent = ResidualProjection(step_size=1.0, domain=Ball(2.0))
    >>> h = np.array([[[-3.0], [1.0]]])
    >>> walk = descent.walk(np.zeros((1, 1)), h, np.array([1.0, 0.5]))
    >>> walk.ravel()  # the first step is cut off at 2
    array([0. , 2. , 1.5])
    >>> descent.targets(walk, h, Absolute(), np.array([[5.0]])).ravel()  # the second one carries a residual of 2
    array([-1., 1.])
    """

    step_size: float | None = None
    domain: Ball | Box | None = None
    readout: Literal["last", "mean"] = "mean"

    @property
    def shifts(self) -> bool:
        """Whether it may go anywhere: a domain stays where it is."""
        return self.domain is None

    def schedule(self, n_learners: int, loss: Loss, scale: Scale, edges: FloatArray) -> FloatArray:
        """ηᵢ = 1/(λ i)."""
        c = self.step_size
        if c is None:
            strength = loss.strong_convexity(self.domain.radius if self.domain else math.inf)
            c = 1.0 / strength if strength > 0 else 0.2 * scale.spread
        return c / np.arange(1, n_learners + 1)

    def walk(self, y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
        """Line 6: yⁱ = Π(yⁱ⁻¹ − ηᵢ hᵢ(x))."""
        if self.domain is None:
            return _cumulative_walk(y0, h, eta)
        walk = _begun_walk(y0, h)
        for i in range(1, h.shape[1] + 1):
            walk[:, i] = self.domain.project(walk[:, i - 1] - eta[i - 1] * h[:, i - 1])
        return walk

    def residuals(self, walk: FloatArray, h: FloatArray, loss: Loss, y: FloatArray) -> FloatArray:
        """Line 14: Δᵢ = Δᵢ₋₁ + ∇ᵢ − hᵢ(x) with Δ₀ = 0, for i = 1 … N, (n, N, m)."""
        return np.cumsum(loss.gradient(walk[:, : h.shape[1]], y[:, None]) - h, axis=1)

    def targets(self, walk: FloatArray, h: FloatArray, loss: Loss, y: FloatArray) -> FloatArray:
        """Line 13: Δᵢ₋₁ + ∇ᵢ, which is Δᵢ + hᵢ(x)."""
        return self.residuals(walk, h, loss, y) + h

    def next_target(self, walk: FloatArray, h: FloatArray, loss: Loss, y: FloatArray) -> FloatArray:
        """Δ_N + ∇_{N + 1}."""
        target = loss.gradient(walk[:, -1], y)
        if h.shape[1]:
            target += self.residuals(walk, h, loss, y)[:, -1]
        return target


@dataclass(frozen=True)
class FrankWolfe(Descent):
    """Online gradient boosting by Frank–Wolfe, the algorithm the paper builds on.

    yⁱ = (1 − ηᵢ) yⁱ⁻¹ + ηᵢ vᵢ(x) with ηᵢ = 2/(i + 1), where vᵢ minimises the linear loss ⟨∇ᵢ, v⟩ over a
    ball of the given radius around y⁰. There the learners are asked to minimise that linear loss; here they
    fit ∇ᵢ under square loss like all others, and the vertex is read off their direction,
    vᵢ = −radius · hᵢ/‖hᵢ‖: for the mean gradient given x the two are the same point.

    Parameters
    ----------
    radius : float, optional
        How far from y⁰ a score can go. Left out: three spreads of the targets.

    References
    ----------
    Beygelzimer, Hazan, Kale, Luo, Online Gradient Boosting, NeurIPS 2015, Algorithm 2.
    """

    radius: float | None = None
    readout: Literal["last", "mean"] = "last"

    def schedule(self, n_learners: int, loss: Loss, scale: Scale, edges: FloatArray) -> FloatArray:
        """Radius · ηᵢ: how far step i moves towards its vertex."""
        radius = 3.0 * scale.spread if self.radius is None else self.radius
        return radius * _frank_wolfe_rates(n_learners)

    def walk(self, y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
        """yⁱ − y⁰ = (1 − ηᵢ)(yⁱ⁻¹ − y⁰) − ηᵢ · radius · hᵢ/‖hᵢ‖."""
        size = np.linalg.norm(h, axis=2, keepdims=True)
        direction = np.divide(h, size, out=np.zeros_like(h), where=size > 0)
        walk = _begun_walk(y0, h)
        for i, rate in enumerate(_frank_wolfe_rates(h.shape[1]), start=1):
            walk[:, i] = y0 + (1.0 - rate) * (walk[:, i - 1] - y0) - eta[i - 1] * direction[:, i - 1]
        return walk


@dataclass(frozen=True)
class Nesterov(Descent):
    """Accelerated descent, from the paper's outlook: learner i is fed the gradient a little ahead of yⁱ⁻¹.

    yⁱ = vⁱ⁻¹ − η hᵢ(x) and vⁱ = yⁱ + μᵢ (yⁱ − yⁱ⁻¹); learner i is fed ∇ℓ(vⁱ⁻¹).

    Parameters
    ----------
    step_size : float, optional
        η. Left out: a tenth of the loss's natural step.
    momentum : float, optional
        μ in [0, 1). Left out: i/(i + 3), held at 0.5. Full acceleration heaps up the error that weak
        learners leave at every step, so the ladder is cut short.
    """

    step_size: float | None = None
    momentum: float | None = None
    readout: Literal["last", "mean"] = "last"
    shifts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum is not None and not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum is {self.momentum!r}, expected a number in [0, 1). If unsure, leave it out.")

    def schedule(self, n_learners: int, loss: Loss, scale: Scale, edges: FloatArray) -> FloatArray:
        """η for every learner."""
        return np.full(n_learners, 0.1 * scale.step if self.step_size is None else self.step_size)

    def walk(self, y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
        """yⁱ = vⁱ⁻¹ − η hᵢ(x)."""
        walk, ahead = _begun_walk(y0, h), y0  # yⁱ⁻¹ and vⁱ⁻¹
        for i, mu in enumerate(self._momenta(h.shape[1]), start=1):
            walk[:, i] = ahead - eta[i - 1] * h[:, i - 1]
            ahead = walk[:, i] + mu * (walk[:, i] - walk[:, i - 1])
        return walk

    def points(self, walk: FloatArray) -> FloatArray:
        """vⁱ, a little ahead of yⁱ; v⁰ = y⁰."""
        points = walk.copy()
        points[:, 1:] += self._momenta(walk.shape[1] - 1)[:, None] * (walk[:, 1:] - walk[:, :-1])
        return points

    def _momenta(self, n_learners: int) -> FloatArray:
        if self.momentum is not None:
            return np.full(n_learners, self.momentum)
        i = np.arange(1, n_learners + 1)
        return np.minimum(i / (i + 3.0), 0.5)


@dataclass(frozen=True)
class AdaGrad(Descent):
    """Adaptive descent, from the paper's outlook: each coordinate's step shrinks with what was walked in it.

    yⁱ = yⁱ⁻¹ − η hᵢ(x) / √(Σ_{j ≤ i} hⱼ(x)²), coordinate by coordinate.

    Parameters
    ----------
    step_size : float, optional
        η, in units of the score. Left out: a fifth of the spread of the targets.
    """

    step_size: float | None = None
    readout: Literal["last", "mean"] = "last"
    shifts: ClassVar[bool] = True

    def schedule(self, n_learners: int, loss: Loss, scale: Scale, edges: FloatArray) -> FloatArray:
        """η for every learner; the walk divides by what was walked."""
        return np.full(n_learners, 0.2 * scale.spread if self.step_size is None else self.step_size)

    def walk(self, y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
        """yⁱ = yⁱ⁻¹ − η hᵢ(x) / √(Σ_{j ≤ i} hⱼ(x)²)."""
        walked = np.sqrt(np.cumsum(h**2, axis=1))
        return _cumulative_walk(y0, np.divide(h, walked, out=np.zeros_like(h), where=walked > 0), eta)


def read_out(walk: FloatArray, readout: str) -> FloatArray:
    """Return the last step of a walk, or the mean of steps 1 … N, (n, m)."""
    if readout == "last" or walk.shape[1] == 1:
        return walk[:, -1].copy()
    return walk[:, 1:].mean(axis=1)  # type: ignore[no-any-return]


def theoretical_step(edges: FloatArray, beta: float) -> FloatArray:
    """η = γ/(β(8 − 4γ)) of Theorem 1 for each edge; an edge not measured yet counts as 1, one below 0 as 0."""
    gamma = np.clip(np.nan_to_num(edges, nan=1.0), 0.0, 1.0)
    return gamma / (beta * (8.0 - 4.0 * gamma))


def _begun_walk(y0: FloatArray, h: FloatArray) -> FloatArray:
    walk = np.empty((h.shape[0], h.shape[1] + 1, h.shape[2]))  # (n, N + 1, m)
    walk[:, 0] = y0
    return walk


def _cumulative_walk(y0: FloatArray, h: FloatArray, eta: FloatArray) -> FloatArray:
    """y⁰, y⁰ − η₁h₁, y⁰ − η₁h₁ − η₂h₂, …: the walk of every descent that only adds."""
    walk = _begun_walk(y0, h)
    np.multiply(h, -eta[:, None], out=walk[:, 1:])
    return np.cumsum(walk, axis=1, out=walk)


def _frank_wolfe_rates(n_learners: int) -> FloatArray:
    return 2.0 / np.arange(2, n_learners + 2)


def _check_positive(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, (int, float, np.number)) and 0 < value < math.inf):
        raise ValueError(
            f"{name} is {value!r}, expected a finite number above 0. If unsure, leave it out: the loss suggests one."
        )
