"""Losses for classes: the logistic and hinge losses of signs, and softmax over any number of classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from streamboost._types import BoolArray, FloatArray
from streamboost.kernels.losses import TIE
from streamboost.losses.base import Loss, LossConstants, row_weights, summed, whole
from streamboost.losses.links import Logit, Margin, SoftmaxLink


class SignLoss(Loss):
    """A loss for targets of −1 and +1, where the sign of a score decides."""

    coding = "-1 or +1. For other classes use SGBClassifier."

    def wrong(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """How many scores are on the other side of 0; one so near it that rounding decides is half wrong."""
        return summed(np.where(np.abs(score) <= TIE, 0.5, y * score < 0.0))

    def is_coded(self, y: FloatArray) -> BoolArray:
        """±1."""
        return np.equal(np.abs(y), 1.0)


@dataclass(frozen=True)
class Logistic(SignLoss):
    """The logistic loss ln(1 + exp(−y s)) for y of −1 or +1; with m > 1, one class against the rest per output.

    Starts at the log-odds of the classes, after adding one row shared evenly between them: a class not seen yet
    has a finite score.

    Examples
    --------
    >>> loss = Logistic()
    >>> loss.predict(loss.start(np.array([[1.0]] * 69 + [[-1.0]] * 30)))
    array([0.695])
    """

    name, smooth, temperature_scale, link = "logistic", True, 0.0, Logit()

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ ln(1 + exp(−y s))."""
        return summed(np.logaddexp(0.0, -y * score))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """−y times the probability of the other class."""
        return -y * Logistic.link.predict(-y * score)

    def bare_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The product of the probabilities of both classes."""
        other = Logistic.link.predict(-y * score)
        return other * (1.0 - other)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The log-odds with half a row more of each class."""
        return np.log(weight @ (y > 0) + 0.5) - np.log(weight @ (y < 0) + 0.5)

    def bare_facts(self, radius: float) -> LossConstants:
        """The curvature p(1 − p) is at most ¼, and at least 1/(2 + 2 exp(radius)) as in the paper's appendix."""
        flattest = math.exp(-radius) / (2.0 * math.exp(-radius) + 2.0)  # the same, where exp(radius) overflows
        return LossConstants(flattest, smoothness=0.25, gradient_bound=math.sqrt(self.n_outputs))


@dataclass(frozen=True)
class Hinge(SignLoss):
    """The hinge loss max(0, 1 − y s) for y of −1 or +1; not smooth. With m > 1, one class against the rest.

    Starts at +1 or −1 with the weighted majority, at 0 on a tie.

    Examples
    --------
    >>> Hinge().value(np.array([[0.25], [2.0]]), np.array([[1.0], [1.0]]))
    array([0.75, 0.  ])
    """

    name, smooth, link = "hinge", False, Margin()

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Σ max(0, 1 − y s)."""
        return summed(np.maximum(0.0, 1.0 - y * score))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """−y inside the margin, 0 outside; 0 also at the kink y s = 1."""
        return np.where(y * score < 1.0, -y, 0.0)

    def bare_start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The side of the weighted majority."""
        return np.sign(weight @ y)

    def bare_facts(self, radius: float) -> LossConstants:
        """The gradient is ±1 in every output."""
        return LossConstants(gradient_bound=math.sqrt(self.n_outputs))


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

    name, smooth, temperature_scale, link = "log_loss", True, 0.0, SoftmaxLink()
    coding = "a class index, a whole number from 0 and below {m}. For other classes use SGBClassifier."

    n_outputs: int = field(init=False, repr=False)
    n_classes: int

    def __post_init__(self) -> None:
        self._keep("n_classes", whole("n_classes", self.n_classes))
        self._keep("n_outputs", self.n_classes)
        super().__post_init__()

    def bare_value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The logarithm of Σ exp(s), minus s[y]."""
        below = score - np.max(score, axis=-1, keepdims=True)  # (..., m), the largest is 0
        return np.log(summed(np.exp(below))) - summed(np.where(self._one_hot(y), below, 0.0))

    def bare_gradient(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The probabilities minus the one-hot row of the class."""
        return Softmax.link.predict(score) - self._one_hot(y)

    def bare_curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """P (1 - p), and by k / (k - 1) more: of k scores one is redundant, as moving all alike changes nothing."""
        p = Softmax.link.predict(score)
        return p * (1.0 - p) * (self.n_classes / max(self.n_classes - 1, 1))

    def wrong(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Whether another class has a higher score; of classes level with one another all but one would be wrong."""
        own = summed(np.where(self._one_hot(y), score, 0.0))[..., None]
        n_equal = np.count_nonzero(score >= own - TIE, axis=-1)
        return np.where((score > own + TIE).any(axis=-1), 1.0, 1.0 - 1.0 / n_equal)

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
        counts = row_weights(y, weight) @ self._one_hot(y) + 1.0 / self.n_classes  # (m,)
        return Softmax.link.score(counts / counts.sum())

    def bare_facts(self, radius: float) -> LossConstants:
        """The curvature is ½ between two classes of ½ each; the gradient is longest if certain of a wrong class."""
        return LossConstants(smoothness=0.5, gradient_bound=math.sqrt(2.0))
