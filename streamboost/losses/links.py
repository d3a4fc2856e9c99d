"""Links: what a score means. Scores (..., m) flow in, predictions such as probabilities or counts flow out, and back.

Both ways give finite numbers and no warnings, at extremes too: scores of ±1000, probabilities of 0 and 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.losses import LARGEST_EXPONENT

_SMALLEST_PROBABILITY = float(np.finfo(np.float64).tiny)
_LARGEST_PROBABILITY = 1.0 - float(np.finfo(np.float64).epsneg)


class Link(ABC):
    """The way from scores to predictions and back."""

    @abstractmethod
    def predict(self, score: FloatArray) -> FloatArray:
        """Turn scores (..., m) into predictions of the same shape: a new array."""

    @abstractmethod
    def score(self, prediction: FloatArray) -> FloatArray:
        """Turn predictions back into finite scores: a new array."""


@dataclass(frozen=True)
class Identity(Link):
    """The prediction is the score."""

    def predict(self, score: FloatArray) -> FloatArray:
        """Copy the scores."""
        return np.array(score, dtype=np.float64)

    def score(self, prediction: FloatArray) -> FloatArray:
        """Copy the predictions."""
        return np.array(prediction, dtype=np.float64)


@dataclass(frozen=True)
class Margin(Identity):
    """The prediction is the score, of which only the sign decides: there is no probability behind it."""


@dataclass(frozen=True)
class Log(Link):
    """The prediction is exp(score), a mean above 0; scores are clipped to ±:data:`LARGEST_EXPONENT` first.

    Examples
    --------
    >>> Log().predict(np.array([0.0, 2.0]))
    array([1.  , 7.389])
    """

    def predict(self, score: FloatArray) -> FloatArray:
        """Raise e to the scores: above 0 and finite, whatever the score."""
        return np.exp(np.clip(score, -LARGEST_EXPONENT, LARGEST_EXPONENT))

    def score(self, prediction: FloatArray) -> FloatArray:
        """Take logarithms; a prediction of 0 gives -:data:`LARGEST_EXPONENT`."""
        return np.log(np.maximum(prediction, math.exp(-LARGEST_EXPONENT)))


@dataclass(frozen=True)
class Logit(Link):
    """The prediction is the probability of the positive class, of each output by itself.

    Examples
    --------
    >>> Logit().predict(np.array([0.0, 2.0]))
    array([0.5  , 0.881])
    """

    def predict(self, score: FloatArray) -> FloatArray:
        """Turn scores into probabilities 1 / (1 + exp(-score))."""
        small = np.exp(-np.abs(score))  # never above 1, so nothing overflows
        return np.where(np.asarray(score) >= 0, 1.0, small) / (1.0 + small)

    def score(self, prediction: FloatArray) -> FloatArray:
        """Turn probabilities into log-odds, finite even for 0 and 1."""
        p = np.clip(prediction, _SMALLEST_PROBABILITY, _LARGEST_PROBABILITY)
        return np.log(p) - np.log1p(-p)


@dataclass(frozen=True)
class SoftmaxLink(Link):
    """The predictions are the probabilities of m classes (the multinomial logit).

    Scores that differ by a constant give the same probabilities; :meth:`score` returns those that sum to 0.

    Examples
    --------
    >>> SoftmaxLink().predict(np.array([0.0, 0.0, 2.0]))
    array([0.107, 0.107, 0.787])
    """

    def predict(self, score: FloatArray) -> FloatArray:
        """Turn scores into probabilities that sum to 1 over the last axis."""
        odds: FloatArray = np.exp(score - np.max(score, axis=-1, keepdims=True))  # (..., m), the largest is 1
        return odds / odds.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]

    def score(self, prediction: FloatArray) -> FloatArray:
        """Turn probabilities into centred log-probabilities, finite even for 0."""
        logs = np.log(np.maximum(prediction, _SMALLEST_PROBABILITY))
        return logs - np.mean(logs, axis=-1, keepdims=True, dtype=np.float64)
