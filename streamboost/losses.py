"""Losses: how wrong a score is, and which way to move it.

Into a loss flow scores (..., m) and targets (..., k); out of it flow values (...) and gradients (..., m).
Leading axes broadcast, so the partial sums of a whole stack (n, N + 1, m) meet the targets (n, 1, k) in one
call. A link turns scores into predictions. The rest are facts: where to start, how large one unit of score is,
and the constants the paper's theorems speak of.

Every formula is written once and holds at extremes: scores of ±1000 give finite numbers and no warnings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamboost.arrays import BoolArray, FloatArray
from streamboost.links import LARGEST_EXPONENT, Identity, Link, Log, Logit, Margin, SoftmaxLink


class Facts(NamedTuple):
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
    Hu et al., *Gradient Boosting on Stochastic Data Streams*, AISTATS 2017, section 2 and appendix
    "Details of Implementation".
    """

    name: ClassVar[str]
    smooth: ClassVar[bool]
    # A loss has a link rather than being one: four losses share Identity, and a user's pair of functions takes
    # any link. Inheritance would need a class for every pair.
    link: ClassVar[Link] = Identity()
    coding: ClassVar[str] = "a finite number."  # what check_targets says it expected; {m} is n_outputs

    _: KW_ONLY
    n_outputs: int = 1
    l2: float = 0.0

    def __post_init__(self) -> None:
        self._keep("n_outputs", _whole("n_outputs", self.n_outputs))
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
        return bare + self.l2 * _summed(np.square(score)) if self.l2 else bare

    def gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative (..., m) of :meth:`value`; at a kink of the bare loss, which has several slopes, its 0."""
        bare = self.bare_gradient(score, y)
        return bare + 2.0 * self.l2 * score if self.l2 else bare

    def predict(self, score: FloatArray) -> FloatArray:
        """What the scores (..., m) mean to a user: the link's answer."""
        return self.link.predict(score)

    def mean(self, score: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> float:
        """The weighted mean loss of rows with scores (n, m) and targets (n, k); NaN if nothing weighs."""
        weight = _weights(y, weight)
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

    def check_targets(self, y: FloatArray) -> None:
        """Raise a ``ValueError`` that names the first row of targets (n, k) this loss cannot learn from."""
        if y.ndim != 2 or y.shape[1] != self.n_targets:
            raise ValueError(
                f"targets have shape {y.shape}, expected (n, {self.n_targets}) for {self!r}. "
                "For a single column pass y[:, None]; for more outputs say so when making the loss."
            )
        finite = np.isfinite(y)  # (n, k)
        if not finite.all():
            way_out = "Drop the row or fill in the target before learning."
            raise ValueError(f"{_first(y, ~finite)}, expected a finite number. {way_out}")
        coded = self.is_coded(y)  # (n, k)
        if not coded.all():
            raise ValueError(f"{_first(y, ~coded)}, expected {self.coding.format(m=self.n_outputs)}")

    def start(self, y: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """The constant score (m,) with the least mean loss over targets (n, k); 0 if nothing weighs."""
        weight = _weights(y, weight)
        if weight.sum() <= 0:
            return np.zeros(self.n_outputs)
        return self._search(y, weight) if self.l2 else self.bare_start(y, weight)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The same without the ridge; in closed form where a loss has one."""
        return self._search(y, weight)

    def _search(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Find the best constant score (m,) by bisecting the mean gradient, every output by itself.

        That is exact for a convex sum over outputs. Where a user's loss ties its outputs together it is a
        guess, kept only if it beats 0.
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
            # A loss that only tends to its least value, as exp(-s) does, counts as flat below a millionth: it
            # stops at a moderate score rather than where its gradient underflows.
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
        if self.link != Identity() or len(y) < 2:
            return 1.0
        weight = _weights(y, weight)
        if weight.sum() <= 0:
            return 1.0
        # Measured from a row that counts, equal targets are exactly 0 apart, whatever the rounding.
        apart = y - y[np.argmax(weight)]  # (n, k)
        variance = np.average((apart - np.average(apart, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
        return math.sqrt(variance.mean()) or 1.0

    def scale(self, y: FloatArray, weight: FloatArray | None = None) -> Scale:
        """The natural sizes told by targets (n, k): a step of 1/β, or of one unit where no β bounds the curvature."""
        unit = self.unit(y, weight)
        beta = self.smoothness()
        return Scale(step=1.0 / beta if math.isfinite(beta) else unit, spread=unit)

    # What the theory needs

    def bare_facts(self, radius: float) -> Facts:
        """λ, β and G without the ridge, while the norms of scores and targets stay within the radius."""
        return Facts()

    def strong_convexity(self, radius: float = math.inf) -> float:
        """λ: the loss curves at least this much in every direction, within the radius."""
        return self.bare_facts(radius).strong_convexity + 2.0 * self.l2

    def smoothness(self, radius: float = math.inf) -> float:
        """β: it curves at most this much; infinite where there is no bound, as at a kink."""
        return self.bare_facts(radius).smoothness + 2.0 * self.l2

    def gradient_bound(self, radius: float = math.inf) -> float:
        """G: no gradient is longer; infinite where there is no bound."""
        ridge = 2.0 * self.l2 * radius if self.l2 else 0.0
        return self.bare_facts(radius).gradient_bound + ridge


@dataclass(frozen=True)
class Squared(Loss):
    """Half the squared distance, ½‖s − y‖², for means. Starts at the mean; λ = β = 1.

    Examples
    --------
    >>> Squared().start(np.array([[1.0], [2.0], [6.0]]))
    array([3.])
    """

    name = "squared_error"
    smooth = True

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """½‖s − y‖²."""
        return _summed(0.5 * np.square(score - y))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The error s − y."""
        return score - y

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The mean."""
        return np.average(y, axis=0, weights=weight)

    def bare_facts(self, radius: float) -> Facts:
        """A score and a target on opposite sides of the ball are twice its radius apart."""
        return Facts(strong_convexity=1.0, smoothness=1.0, gradient_bound=2.0 * radius)


@dataclass(frozen=True)
class Absolute(Loss):
    """The sum of absolute errors (L1), for medians; not smooth. Starts at the weighted median.

    Examples
    --------
    >>> Absolute().start(np.array([[1.0], [2.0], [6.0]]))
    array([2.])
    """

    name = "absolute_error"
    smooth = False

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ abs(s − y)."""
        return _summed(np.abs(score - y))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The sign of s − y; 0 at the kink s = y."""
        return np.sign(score - y)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The weighted median."""
        return _quantile(y, weight, 0.5)

    def bare_facts(self, radius: float) -> Facts:
        """The gradient is ±1 in every output."""
        return Facts(gradient_bound=math.sqrt(self.n_outputs))


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

    name = "quantile"
    smooth = False

    tau: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tau < 1:
            raise ValueError(f"tau is {self.tau!r}, expected a number between 0 and 1. For the median pass 0.5.")
        self._keep("tau", float(self.tau))

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ τ (y − s) where the score is too low, (1 − τ)(s − y) where it is too high."""
        lack = y - score
        return _summed(np.maximum(self.tau * lack, (self.tau - 1.0) * lack))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """−τ where the score is too low, 1 − τ where it is too high; 0 at the kink s = y."""
        return (1.0 - self.tau) * (score > y) - self.tau * (score < y)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The weighted quantile."""
        return _quantile(y, weight, self.tau)

    def bare_facts(self, radius: float) -> Facts:
        """The gradient is that of the steeper side in every output."""
        return Facts(gradient_bound=max(self.tau, 1.0 - self.tau) * math.sqrt(self.n_outputs))


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

    name = "huber"
    smooth = True

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < math.inf:
            raise ValueError(
                f"delta is {self.delta!r}, expected a finite number above 0. Without a limit it is Squared()."
            )
        self._keep("delta", float(self.delta))

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ ½r² for r = abs(s − y) up to δ, δ(r − ½δ) beyond."""
        error = np.abs(score - y)
        curved = np.minimum(error, self.delta)
        return _summed(curved * (error - 0.5 * curved))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The error s − y, clipped to ±δ."""
        return np.clip(score - y, -self.delta, self.delta)

    def scale(self, y: FloatArray, weight: FloatArray | None = None) -> Scale:
        """Where targets spread wider than δ most gradients are ±δ: then a step must make up for it."""
        unit = self.unit(y, weight)
        return Scale(step=max(1.0 / self.smoothness(), unit / self.delta), spread=unit)

    def bare_facts(self, radius: float) -> Facts:
        """Curvature 1 on the parabola and none beyond; a gradient up to ±δ in every output."""
        return Facts(smoothness=1.0, gradient_bound=self.delta * math.sqrt(self.n_outputs))


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

    name = "poisson"
    smooth = True
    link = Log()
    coding = "a count of at least 0. For targets of either sign use Squared()."

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ eˢ − y s, with the tangent of eˢ beyond the largest exponent."""
        exponent = np.minimum(score, LARGEST_EXPONENT)
        return _summed(np.exp(exponent) * (1.0 + (score - exponent)) - y * score)

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The predicted mean eˢ minus y."""
        return np.exp(np.minimum(score, LARGEST_EXPONENT)) - y

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

    def bare_facts(self, radius: float) -> Facts:
        """The curvature is eˢ, and so is the gradient at its longest: a target within the radius is below it."""
        if radius > LARGEST_EXPONENT:
            return Facts()
        return Facts(math.exp(-radius), math.exp(radius), math.sqrt(self.n_outputs) * math.exp(radius))


@dataclass(frozen=True)
class Logistic(Loss):
    """The logistic loss ln(1 + exp(−y s)) for y of −1 or +1; with m > 1, one class against the rest per output.

    Starts at the log-odds of the classes, after adding one row shared evenly between them: a class not seen yet
    has a finite score.

    Examples
    --------
    >>> loss = Logistic()
    >>> loss.predict(loss.start(np.array([[1.0]] * 69 + [[-1.0]] * 30)))
    array([0.695])
    """

    name = "logistic"
    smooth = True
    link = Logit()
    coding = "-1 or +1. For other classes use SGBClassifier."

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ ln(1 + exp(−y s))."""
        return _summed(np.logaddexp(0.0, -y * score))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """−y times the probability of the other class."""
        return -y * Logistic.link.predict(-y * score)

    def is_coded(self, y: FloatArray) -> BoolArray:
        """±1."""
        return np.equal(np.abs(y), 1.0)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The log-odds with half a row more of each class."""
        return np.log(weight @ (y > 0) + 0.5) - np.log(weight @ (y < 0) + 0.5)

    def bare_facts(self, radius: float) -> Facts:
        """The curvature p(1 − p) is at most ¼, and at least 1/(2 + 2 exp(radius)) as in the paper's appendix."""
        flattest = math.exp(-radius) / (2.0 * math.exp(-radius) + 2.0)  # the same, where exp(radius) overflows
        return Facts(flattest, smoothness=0.25, gradient_bound=math.sqrt(self.n_outputs))


@dataclass(frozen=True)
class Hinge(Loss):
    """The hinge loss max(0, 1 − y s) for y of −1 or +1; not smooth. With m > 1, one class against the rest.

    Starts at +1 or −1 with the weighted majority, at 0 on a tie.

    Examples
    --------
    >>> Hinge().value(np.array([[0.25], [2.0]]), np.array([[1.0], [1.0]]))
    array([0.75, 0.  ])
    """

    name = "hinge"
    smooth = False
    link = Margin()
    coding = Logistic.coding

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ max(0, 1 − y s)."""
        return _summed(np.maximum(0.0, 1.0 - y * score))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """−y inside the margin, 0 outside; 0 also at the kink y s = 1."""
        return np.where(y * score < 1.0, -y, 0.0)

    def is_coded(self, y: FloatArray) -> BoolArray:
        """±1."""
        return np.equal(np.abs(y), 1.0)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The side of the weighted majority."""
        return np.sign(weight @ y)

    def bare_facts(self, radius: float) -> Facts:
        """The gradient is ±1 in every output."""
        return Facts(gradient_bound=math.sqrt(self.n_outputs))


@dataclass(frozen=True)
class Softmax(Loss):
    """The multinomial log-loss −ln p(y) over m classes; a target is one column that holds the class index.

    Starts at the centred log-frequencies, after adding one row shared evenly among the classes: a class not seen
    yet has a finite score. With a ridge it starts there too, since the outputs move together and the best start
    has no closed form.

    Parameters
    ----------
    n_classes : int
        How many classes; there are as many outputs.

    Examples
    --------
    >>> loss = Softmax(n_classes=3)
    >>> loss.value(np.array([[0.0, 0.0, 2.0]]), np.array([[2.0]]))
    array([0.24])
    """

    name = "log_loss"
    smooth = True
    link = SoftmaxLink()
    coding = "a class index, a whole number from 0 and below {m}. For other classes use SGBClassifier."

    n_outputs: int = field(init=False, repr=False)
    n_classes: int

    def __post_init__(self) -> None:
        self._keep("n_classes", _whole("n_classes", self.n_classes))
        self._keep("n_outputs", self.n_classes)
        super().__post_init__()

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The logarithm of Σ exp(s), minus s[y]."""
        below = score - np.max(score, axis=-1, keepdims=True)  # (..., m), the largest is 0
        return np.log(_summed(np.exp(below))) - _summed(np.where(self._one_hot(y), below, 0.0))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The probabilities minus the one-hot row of the class."""
        return Softmax.link.predict(score) - self._one_hot(y)

    def _one_hot(self, y: FloatArray) -> BoolArray:
        """A row (..., m) that is true at the class index y (..., 1)."""
        return np.asarray(np.arange(self.n_classes) == y)

    @property
    def n_targets(self) -> int:
        """One column, whatever the number of classes."""
        return 1

    def is_coded(self, y: FloatArray) -> BoolArray:
        """A whole number from 0 to m − 1."""
        return np.asarray((y >= 0) & (y < self.n_classes) & (y == np.floor(y)))

    def start(self, y: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """The centred log-frequencies (m,) with one row more, shared evenly."""
        counts = _weights(y, weight) @ self._one_hot(y) + 1.0 / self.n_classes  # (m,)
        return Softmax.link.score(counts / counts.sum())

    def bare_facts(self, radius: float) -> Facts:
        """The curvature diag(p) − p pᵀ is ½ between two classes of probability ½ each, and 0 along (1, …, 1).

        The gradient is longest when all but certain of one class while another is true.
        """
        return Facts(smoothness=0.5, gradient_bound=math.sqrt(2.0))


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
    known_strong_convexity: float
    known_smoothness: float
    known_gradient_bound: float

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """What the user's function says, once its shape is right."""
        value = np.asarray(self.value_function(score, y), dtype=np.float64)
        expected = np.broadcast_shapes(score.shape[:-1], y.shape[:-1])
        if value.shape != expected:
            raise ValueError(
                f"the value function of loss {self.name!r} returned shape {value.shape}, expected {expected}: "
                "one number per row. Sum over the outputs with .sum(axis=-1)."
            )
        return value

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """What the user's function says, once its shape is right, in an array of our own."""
        gradient = np.array(self.gradient_function(score, y), dtype=np.float64)
        expected = (*np.broadcast_shapes(score.shape[:-1], y.shape[:-1]), self.n_outputs)
        if gradient.shape != expected:
            raise ValueError(
                f"the gradient function of loss {self.name!r} returned shape {gradient.shape}, "
                f"expected {expected}: one number per output. Keep the last axis of the score."
            )
        return gradient

    def bare_facts(self, radius: float) -> Facts:
        """What the user knows."""
        return Facts(self.known_strong_convexity, self.known_smoothness, self.known_gradient_bound)


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
    return FunctionLoss(
        value,
        gradient,
        name=name,
        smooth=bool(smooth),
        link=Identity() if link is None else link,
        n_outputs=n_outputs,
        l2=l2,
        known_strong_convexity=float(strong_convexity),
        known_smoothness=math.inf if smoothness is None else float(smoothness),
        known_gradient_bound=math.inf if gradient_bound is None else float(gradient_bound),
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
        raise ValueError(f"loss is {name!r}, expected one of {', '.join(map(repr, NAMES))}, or a Loss.")
    return NAMES[name](**options)


def _whole(argument: str, value: object) -> int:
    """Return a count as a plain int, or say what is wrong with it."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(
            f"{argument} is {value!r}, expected a whole number of at least 1. "
            f"Pass as many as the targets have, such as {argument}=3."
        )
    return int(value)


def _summed(terms: FloatArray) -> FloatArray:
    """Sum terms (..., m) over the outputs."""
    total: FloatArray = terms.sum(axis=-1)
    return total


def _weights(y: FloatArray, weight: FloatArray | None) -> FloatArray:
    """The weight (n,) of every row: 1 unless given."""
    return np.ones(len(y)) if weight is None else weight


def _first(y: FloatArray, bad: BoolArray) -> str:
    """Say where the first bad target is, and what."""
    row, column = np.argwhere(bad)[0]
    where = f"row {row}" if y.shape[1] == 1 else f"row {row}, column {column}"
    return f"target in {where} is {y[row, column]:g}"


def _quantile(y: FloatArray, weight: FloatArray, tau: float) -> FloatArray:
    """The weighted quantile (m,) of every column: the middle of the two rows it falls between, if it does."""
    order = np.argsort(y, axis=0)  # (n, m)
    y = np.take_along_axis(y, order, axis=0)
    passed = np.cumsum(weight[order], axis=0)  # (n, m), the weight up to and with each row
    goal = tau * passed[-1]  # (m,)
    rows = np.stack([np.argmax(passed >= goal, axis=0), np.argmax(passed > goal, axis=0)])  # (2, m)
    return np.asarray(np.take_along_axis(y, rows, axis=0).mean(axis=0))
