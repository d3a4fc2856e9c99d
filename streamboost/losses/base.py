"""What a loss is: value, gradient, start, link, and the facts the theory needs. Import it from streamboost.losses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import ClassVar, NamedTuple

import numpy as np

from streamboost._types import BoolArray, FloatArray
from streamboost.losses.links import Identity, Link

LARGEST_TARGET = 1e100  # whose square is a number still, and so is a sum of many such


class LossConstants(NamedTuple):
    """The constants in the paper's theorems; these defaults hold for every convex loss."""

    strong_convexity: float = 0.0
    smoothness: float = math.inf
    gradient_bound: float = math.inf


class Scale(NamedTuple):
    """The natural sizes of a stream: how far one unit of gradient should move a score, and how far scores spread."""

    step: float
    spread: float


@dataclass(frozen=True)
class Loss(ABC):
    """How wrong a score (..., m) is for a target (..., k): convex in the score.

    To write your own, give a subclass the class attributes ``name`` and ``smooth`` and the methods
    :meth:`bare_value` and :meth:`bare_gradient`, or hand two functions to :func:`from_functions`. The ``bare``
    methods leave out the ridge, which is added here for every loss alike. A subclass with parameters of its own
    is a frozen dataclass, as the losses below are: then equality, hashing and printing follow.

    Parameters
    ----------
    n_outputs : int, default 1
        m, the number of scores per row.
    l2 : float, default 0.0
        Adds ``l2 * sum(score**2)`` to the value: the paper's ridge, which makes any of these strongly convex.

    Attributes
    ----------
    name : str
        What :func:`by_name` calls it.
    smooth : bool
        Whether the gradient changes continuously: this chooses the descent when the user does not.
    link : Link
        From scores to predictions.

    Examples
    --------
    The loss of the paper's counter-example, 2·abs(s₁) + abs(s₂), which pulls towards 0:

    >>> class Lopsided(Loss):
    ...     name, smooth = "lopsided", False
    ...
    ...     def bare_value(self, score, y):
    ...         return np.abs(score) @ [2.0, 1.0]
    ...
    ...     def bare_gradient(self, score, y):
    ...         return np.sign(score) * [2.0, 1.0]
    >>> Lopsided(n_outputs=2).value(np.array([[3.0, -4.0]]), np.zeros((1, 2)))
    array([10.])

    References
    ----------
    Hu et al., *Gradient Boosting on Stochastic Data Streams*, AISTATS 2017, section 2 and appendix.
    """

    name: ClassVar[str]
    smooth: ClassVar[bool]
    # A loss has a link rather than being one: inheritance would need a class for every pair of a loss and a link.
    link: ClassVar[Link] = Identity()
    # By how much of the best expert's mean loss a hedge divides a loss to make a log-likelihood of it; 0: it is one.
    temperature_scale: ClassVar[float] = 1.0
    coding: ClassVar[str] = "a finite number."  # what check_targets says it expected; {m} is n_outputs

    _: KW_ONLY
    n_outputs: int = 1
    l2: float = 0.0

    def __post_init__(self) -> None:
        self._keep("n_outputs", whole("n_outputs", self.n_outputs))
        if not 0 <= self.l2 < math.inf:
            raise ValueError(f"l2 is {self.l2!r}, expected a finite number of at least 0. For no ridge, leave it out.")
        self._keep("l2", float(self.l2))

    def _keep(self, attribute: str, value: object) -> None:
        """Store a checked parameter as a plain number, past the lock that makes a loss immutable."""
        object.__setattr__(self, attribute, value)

    # What a loss is

    @abstractmethod
    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss (...) summed over outputs, without the ridge."""

    @abstractmethod
    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Its derivative (..., m) by the score, or a subgradient, 0 wherever 0 is one: a new array."""

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss (...) of every score (..., m), summed over outputs."""
        bare = self.bare_value(score, y)
        return bare + self.l2 * summed(np.square(score)) if self.l2 else bare

    def gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative (..., m) of :meth:`value`; at a kink of the bare loss, which has several slopes, its 0."""
        bare = self.bare_gradient(score, y)
        return bare + 2.0 * self.l2 * score if self.l2 else bare

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray | None:
        """The second derivative by each score (..., m), by which steps of Newton's are taken; None if it tells none."""
        bare = self.bare_curvature(score, y)
        return bare + 2.0 * self.l2 if bare is not None and self.l2 else bare

    def bare_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray | None:
        """The same without the ridge. A loss of one's own may leave it out."""
        return None

    def step_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray | None:
        """What leaves that learn at every row divide gradients by, (..., m): the curvature, unless that can be tiny."""
        return self.curvature(score, y)

    @property
    def curves(self) -> bool:
        """Whether it tells its second derivative."""
        return type(self).bare_curvature is not Loss.bare_curvature

    def predict(self, score: FloatArray) -> FloatArray:
        """What the scores (..., m) mean to a user: the link's answer."""
        return self.link.predict(score)

    def wrong(self, score: FloatArray, y: FloatArray) -> FloatArray | None:
        """How many outputs (...) say the wrong class, where targets are classes; None where they are not."""
        return None

    def mean(self, score: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> float:
        """The weighted mean loss of rows with scores (n, m) and targets (n, k); NaN if nothing weighs."""
        weight = row_weights(y, weight)
        total = weight.sum()
        return float(weight @ self.value(score, y) / total) if total > 0 else math.nan

    # What the targets tell

    @property
    def n_targets(self) -> int:
        """k, the number of target columns."""
        return self.n_outputs

    def is_coded(self, y: FloatArray) -> BoolArray:
        """Which of the finite targets (n, k) mean something to this loss; all do unless a loss says otherwise."""
        return np.ones(y.shape, dtype=np.bool_)

    takes_any_number: ClassVar[bool] = True  # whether every finite number is a target
    is_of_differences: ClassVar[bool] = False  # whether, without a ridge, it is a function of score - target alone

    @property
    def shifts(self) -> bool:
        """Whether a number added to score and target alike changes nothing."""
        return self.is_of_differences and not self.l2

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.takes_any_number = cls.is_coded is Loss.is_coded
        cls.is_of_differences = cls.__dict__.get("is_of_differences", False)  # a formula of one's own has to say so

    def check_targets(self, y: FloatArray) -> None:
        """Raise a ``ValueError`` that names the first row of targets (n, k) this loss cannot learn from."""
        if y.ndim != 2 or y.shape[1] != self.n_targets:
            raise ValueError(
                f"targets have shape {y.shape}, expected (n, {self.n_targets}) for {self!r}. "
                "For a single column pass y[:, None]; for more outputs say so when making the loss."
            )
        expected = "a finite number. Drop the row or fill in the target before learning."
        good = np.isfinite(y)  # (n, k)
        if good.all() and not self.takes_any_number:
            good, expected = self.is_coded(y), self.coding.format(m=self.n_outputs)
        if not good.all():
            row, column = np.argwhere(~good)[0]
            where = f"row {row}" if y.shape[1] == 1 else f"row {row}, column {column}"
            raise ValueError(f"target in {where} is {y[row, column]:g}, expected {expected}")

    def start(self, y: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """The constant score (m,) with the least mean loss over targets (n, k); 0 if nothing weighs."""
        weight = row_weights(y, weight)
        if weight.sum() <= 0:
            return np.zeros(self.n_outputs)
        return self._search(y, weight) if self.l2 else self.bare_start(y, weight)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The same without the ridge; in closed form where a loss has one."""
        return self._search(y, weight)

    def _search(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Find the best constant score (m,) by bisecting the mean gradient, every output by itself.

        Where a user's loss ties its outputs together that is a guess, kept only if it beats 0.
        """
        y, weight = y[weight > 0], weight[weight > 0]  # 0 times an overflow would be NaN
        share = weight / np.sum(weight)  # (n,)

        def everywhere(constant: FloatArray) -> FloatArray:
            return np.broadcast_to(constant, (len(y), self.n_outputs))

        def pull(constant: FloatArray) -> FloatArray:
            return share @ self.gradient(everywhere(constant), y)  # (m,)

        def crossing(level: FloatArray, reach: FloatArray) -> FloatArray:
            low, high = -reach, reach
            for _ in range(60):
                middle = (low + high) / 2.0
                is_above = pull(middle) > level
                low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
            return (low + high) / 2.0  # (m,)

        zero = np.zeros(self.n_outputs)
        with np.errstate(over="ignore", invalid="ignore"):  # a user's loss may overflow far out
            scale = share @ np.abs(self.gradient(everywhere(zero), y))  # (m,)
            # A loss that only tends to its least value, as exp(-s) does, counts as flat below a millionth.
            reach = np.full(self.n_outputs, 1.0 + np.abs(y).max())
            for _ in range(60):
                short = (pull(-reach) > 1e-6 * scale) | (pull(reach) < -1e-6 * scale)
                if not short.any():
                    break
                reach = np.where(short, 2.0 * reach, reach)
            # Where a whole interval is best, take its middle; its ends are safe from rounding at this margin.
            best = (crossing(-1e-12 * scale, reach) + crossing(1e-12 * scale, reach)) / 2.0
            best = np.where(short, 0.0, best)  # unbounded below: no start is better than another
            reached, idle = self.mean(everywhere(best), y, weight), self.mean(everywhere(zero), y, weight)
        # With room for rounding: where 0 is as good as the middle of the interval, take the middle still.
        return best if reached <= idle + 1e-9 * abs(idle) else zero

    def unit(self, y: FloatArray, weight: FloatArray | None = None) -> float:
        """How large one unit of score is: the standard deviation of real targets, 1 behind other links."""
        weight = row_weights(y, weight)
        if self.link != Identity() or len(y) < 2 or weight.sum() <= 0:
            return 1.0
        # Measured from a row that counts, equal targets are exactly 0 apart, whatever the rounding.
        apart = y - y[np.argmax(weight)]  # (n, k)
        variance = np.average((apart - np.average(apart, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
        return math.sqrt(variance.mean()) or 1.0

    def scale(self, y: FloatArray, weight: FloatArray | None = None) -> Scale:
        """The natural sizes told by targets (n, k): a step of 1/β, or of one unit where no β bounds the curvature."""
        unit, beta = self.unit(y, weight), self.smoothness()
        return Scale(step=1.0 / beta if math.isfinite(beta) else unit, spread=unit)

    # What the theory needs

    def bare_facts(self, radius: float) -> LossConstants:
        """λ, β and G without the ridge, while the norms of scores and targets stay within the radius."""
        return LossConstants()

    def strong_convexity(self, radius: float = math.inf) -> float:
        """λ: the loss curves at least this much in every direction, within the radius."""
        return self.bare_facts(radius).strong_convexity + 2.0 * self.l2

    def smoothness(self, radius: float = math.inf) -> float:
        """β: it curves at most this much; infinite where there is no bound, as at a kink."""
        return self.bare_facts(radius).smoothness + 2.0 * self.l2

    def gradient_bound(self, radius: float = math.inf) -> float:
        """G: no gradient is longer; infinite where there is no bound."""
        return self.bare_facts(radius).gradient_bound + (2.0 * self.l2 * radius if self.l2 else 0.0)


def whole(argument: str, value: object) -> int:
    """Return a count as a plain int, or say what is wrong with it."""
    if not isinstance(value, Integral) or value < 1:
        way_out = f"Pass as many as the targets have, such as {argument}=3."
        raise ValueError(f"{argument} is {value!r}, expected a whole number of at least 1. {way_out}")
    return int(value)


def summed(terms: FloatArray) -> FloatArray:
    """Sum terms (..., m) over the outputs."""
    return terms.sum(axis=-1)  # type: ignore[no-any-return]


def row_weights(y: FloatArray, weight: FloatArray | None) -> FloatArray:
    """The weight (n,) of every row: 1 unless given."""
    return np.ones(len(y)) if weight is None else weight
