"""What metrics share: a summary of all rows or a ring of the latest, and how targets and predictions are read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from streamboost._types import FloatArray
from streamboost.features.chunk import check_weight

Need: TypeAlias = Literal["number", "label", "probability"]
NAN = math.nan


class Probabilities(NamedTuple):
    """The probability of every class: ``values`` (n, K), its columns in the order of ``classes``."""

    classes: Sequence[Any]
    values: FloatArray


Summary = TypeVar("Summary")


class Metric(ABC, Generic[Summary]):
    """One number that says how good predictions are, over the latest ``window`` rows, or over all by default."""

    name: ClassVar[str]
    need: ClassVar[Need]  # what the predictions are

    def __init__(self, window: int | None = None) -> None:
        if window is not None and (not isinstance(window, (int, np.integer)) or window < 1):
            raise ValueError(f"window is {window!r}, expected a whole number above 0, or None for all rows.")
        self.ring = None if window is None else Ring(int(window))
        self.summary: Summary | None = None

    def add(self, y: Any, prediction: Any, weight: Any = None) -> None:
        """Add rows.

        Parameters
        ----------
        y : array of shape (n,) or (n, m), or a single target
        prediction : array of the same shape, or :class:`Probabilities`
        weight : array of shape (n,) or number, optional
            Of each row; 1 by default. A row of weight 0 takes its place in a window and counts nothing.
        """
        rows = self._encode(y, prediction)
        self.add_encoded(rows, check_weight(weight, len(rows)))

    def add_encoded(self, rows: FloatArray, weight: FloatArray) -> None:
        """Add encoded rows (n, k) with checked weights."""
        if len(rows) == 0:
            return
        if self.ring is not None:
            self.ring.add(rows, weight)
        else:
            summary = self._summarise(rows[weight > 0], weight[weight > 0])
            self.summary = summary if self.summary is None else self._merge(self.summary, summary)

    @property
    def value(self) -> float:
        """Return the metric; NaN where it has no meaning."""
        summary = self.summary
        if self.ring is not None:
            rows, weight = self.ring.held()
            summary = None if rows is None else self._summarise(rows[weight > 0], weight[weight > 0])
        return NAN if summary is None else self._score(summary)

    @property
    def inapplicable(self) -> str:
        """Return why the metric has no meaning for these targets, and never will; empty if it has, or may have."""
        return ""

    def __repr__(self) -> str:
        window = "" if self.ring is None else f"window={len(self.ring.weight)}"
        return f"{type(self).__name__}({window})"

    @abstractmethod
    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        """Return what matters of each row, as numbers (n, k)."""

    @abstractmethod
    def _summarise(self, rows: FloatArray, weight: FloatArray) -> Summary:
        """Summarise rows, of which there may be none."""

    @abstractmethod
    def _merge(self, one: Summary, other: Summary) -> Summary:
        """Return the summary of the rows of both."""

    @abstractmethod
    def _score(self, summary: Summary) -> float:
        """Return the metric."""


class Mean(NamedTuple):
    """A weighted mean, by columns."""

    weight: float
    mean: FloatArray  # (m,)


class MeanMetric(Metric[Mean]):
    """A metric made of the mean of some number a row."""

    def _summarise(self, rows: FloatArray, weight: FloatArray) -> Mean:
        total = float(weight.sum())
        return Mean(total, weight @ rows / total if total else np.zeros(rows.shape[1]))

    def _merge(self, one: Mean, other: Mean) -> Mean:
        total = one.weight + other.weight
        share = other.weight / total if total else 0.0
        return Mean(total, one.mean + share * (other.mean - one.mean))

    def _score(self, summary: Mean) -> float:
        return float(summary.mean.mean()) if summary.weight else NAN


class Ring:
    """The latest rows, (W, k), the oldest overwritten first."""

    def __init__(self, size: int) -> None:
        self.rows: FloatArray | None = None  # born with the first row, which tells k
        self.weight = np.zeros(size)
        self.n_seen = 0

    def add(self, rows: FloatArray, weight: FloatArray) -> None:
        """Add rows."""
        size = len(self.weight)
        if self.rows is None:
            self.rows = np.zeros((size, rows.shape[1]))
        places = np.arange(self.n_seen, self.n_seen + len(rows))[-size:] % size
        self.rows[places] = rows[-size:]
        self.weight[places] = weight[-size:]
        self.n_seen += len(rows)

    def held(self) -> tuple[FloatArray | None, FloatArray]:
        """Return the rows, in no particular order, and their weights."""
        n = min(self.n_seen, len(self.weight))
        return None if self.rows is None else self.rows[:n], self.weight[:n]


def errors_of(y: Any, prediction: Any) -> FloatArray:
    """Return prediction minus target, (n, m)."""
    target, predicted = np.atleast_1d(np.asarray(y, dtype=float)), np.atleast_1d(np.asarray(prediction, dtype=float))
    if target.shape != predicted.shape or target.ndim > 2:
        shapes = f"y has shape {target.shape} and prediction {predicted.shape}"
        raise ValueError(f"{shapes}, expected the same: (n,), or (n, m) for m outputs.")
    errors: FloatArray = predicted - target
    return errors[:, None] if errors.ndim == 1 else errors


def label_lists(y: Any, prediction: Any) -> tuple[list[Any], list[Any]]:
    """Return labels and predicted labels as Python has them."""
    labels, other = _labels(y), _labels(prediction)
    if len(labels) != len(other):
        raise ValueError(f"y has {len(labels)} labels and prediction {len(other)}, expected one prediction a label.")
    return labels, other


def _labels(y: Any) -> list[Any]:
    if hasattr(y, "tolist"):
        y = y.tolist()  # an array, a number of NumPy's, or a series
    return list(y) if isinstance(y, Sequence) and not isinstance(y, str) else [y]


def read_probabilities(y: Any, prediction: Any) -> tuple[list[Any], Probabilities]:
    """Return labels and probabilities, whose columns are classes as Python has them."""
    labels = _labels(y)
    if isinstance(prediction, Probabilities):
        classes, values = _labels(prediction.classes), np.asarray(prediction.values, dtype=float)
    else:
        p = np.atleast_1d(np.asarray(prediction, dtype=float))
        if p.ndim != 1:
            expected = "(n,), the probabilities of class 1. For other classes pass Probabilities(classes, values)."
            raise ValueError(f"prediction has shape {p.shape}, expected {expected}")
        strange = next((label for label in labels if label not in (0, 1)), None)
        if strange is not None:
            raise ValueError(f"y holds {strange!r}, expected 0 or 1. Else pass Probabilities(classes, values).")
        classes, values = [0, 1], np.stack([1.0 - p, p], axis=1)
    if values.shape != (shape := (len(labels), len(classes))):
        raise ValueError(f"probabilities have shape {values.shape}, expected {shape}: rows and classes.")
    return labels, Probabilities(classes, values)
