"""Running and windowed metrics: targets and predictions in, a chunk at a time; one number out, :attr:`Metric.value`.

Without ``window`` it is over all rows, from a summary of fixed size, merged chunk by chunk as Chan, Golub and LeVeque
do it (Welford's rule for chunks), so that neither many rows nor large targets cost digits. With ``window=W`` it is
computed anew from the latest W rows, which are kept: exact. Where it has no meaning, as before any row, it is NaN.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.evaluation.metric_base import NAN, Metric, errors_of, label_lists, read_probabilities

FLOOR = float(np.finfo(float).eps)  # what a probability is worth at least, as in scikit-learn
N_BINS = 4096  # of the running AUC
LARGEST_LOGIT = 20.0


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


class RMSE(MeanMetric):
    """The root of the mean squared error; of several outputs, the mean of their roots.

    Examples
    --------
    >>> metric = RMSE(window=2)
    >>> metric.add([1.0, 2.0, 3.0], [9.0, 5.0, 7.0])
    >>> metric.value
    3.5355
    """

    name = "rmse"
    need = "number"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        return errors_of(y, prediction) ** 2

    def _score(self, summary: Mean) -> float:
        return super()._score(summary._replace(mean=np.sqrt(summary.mean)))


class MAE(MeanMetric):
    """The mean absolute error, over rows and outputs.

    Examples
    --------
    >>> metric = MAE()
    >>> metric.add([1.0, 2.0], [1.0, 5.0], weight=[1, 3])
    >>> metric.value
    2.25
    """

    name = "mae"
    need = "number"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        return np.abs(errors_of(y, prediction))


class Accuracy(MeanMetric):
    """The share of labels that were right.

    Examples
    --------
    >>> metric = Accuracy()
    >>> metric.add(["up", "down", "up", "up"], ["up", "up", "up", "up"])
    >>> metric.value
    0.75
    """

    name = "accuracy"
    need = "label"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        pairs = zip(*label_lists(y, prediction), strict=True)
        return np.array([[float(label == predicted)] for label, predicted in pairs]).reshape(-1, 1)


class LogLoss(MeanMetric):
    """The mean of -log p, p the probability given to the class that came: at least 2.2e-16, as in scikit-learn.

    Predictions are :class:`Probabilities`, or of two classes called 0 and 1 (or False and True) the probability of the
    second, (n,). A class without a column has probability 0.

    Examples
    --------
    >>> metric = LogLoss()
    >>> metric.add([1, 0], [0.5, 0.5])
    >>> metric.value
    0.6931
    """

    name = "log_loss"
    need = "probability"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        labels, predicted = read_probabilities(y, prediction)
        places = {label: place for place, label in enumerate(predicted.classes)}
        columns = np.array([places.get(label, -1) for label in labels], dtype=int)
        p = np.concatenate([predicted.values, np.zeros((len(labels), 1))], axis=1)  # 0 for classes without a column
        surprise: FloatArray = -np.log(np.clip(p[np.arange(len(labels)), columns], FLOOR, 1.0))
        return surprise[:, None]


class Spread(NamedTuple):
    """How targets and errors are spread, by outputs."""

    weight: float
    mean: FloatArray  # (m,), of the targets, as are the next three
    squares: FloatArray  # of the distances to the mean
    low: FloatArray
    high: FloatArray
    errors: FloatArray  # the sum of squared errors


class R2(Metric[Spread]):
    """R², the share of the targets' variance that is explained; of several outputs, the mean. NaN if one is constant.

    Examples
    --------
    >>> metric = R2()
    >>> metric.add([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    >>> metric.value
    0.5
    """

    name = "r2"
    need = "number"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        errors = errors_of(y, prediction)
        return np.concatenate([np.asarray(y, dtype=float).reshape(errors.shape), errors], axis=1)  # (n, 2 m)

    def _summarise(self, rows: FloatArray, weight: FloatArray) -> Spread:
        m = rows.shape[1] // 2
        y, errors = rows[:, :m], rows[:, m:]
        total = float(weight.sum())
        mean = weight @ y / total if total else np.zeros(m)
        low, high = y.min(axis=0, initial=math.inf), y.max(axis=0, initial=-math.inf)
        return Spread(total, mean, weight @ (y - mean) ** 2, low, high, weight @ errors**2)

    def _merge(self, one: Spread, other: Spread) -> Spread:
        total = one.weight + other.weight
        if not total:
            return one
        apart, share = other.mean - one.mean, other.weight / total
        squares = one.squares + other.squares + apart**2 * one.weight * share
        low, high = np.minimum(one.low, other.low), np.maximum(one.high, other.high)
        return Spread(total, one.mean + share * apart, squares, low, high, one.errors + other.errors)

    def _score(self, summary: Spread) -> float:
        if not summary.weight or not (summary.low < summary.high).all() or not summary.squares.all():
            return NAN
        return float((1.0 - summary.errors / summary.squares).mean())


class Kappa(Metric[FloatArray]):
    """Cohen's κ: by how much labels are right more often than by chance. NaN if all are of one class.

    Examples
    --------
    >>> metric = Kappa()
    >>> metric.add(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    >>> metric.value
    0.5
    """

    name = "kappa"
    need = "label"

    def __init__(self, window: int | None = None) -> None:
        super().__init__(window)
        self.codes: dict[Any, int] = {}

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        return np.array([_codes(self.codes, side) for side in label_lists(y, prediction)], dtype=float).T

    def _summarise(self, rows: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the confusion matrix, (K, K)."""
        size = len(self.codes)
        cells = (rows[:, 0] * size + rows[:, 1]).astype(int)
        return _weigh(cells, weight, size * size).reshape(size, size)

    def _merge(self, one: FloatArray, other: FloatArray) -> FloatArray:
        merged = other.copy()  # the later, so at least as large
        merged[: len(one), : len(one)] += one
        return merged

    def _score(self, summary: FloatArray) -> float:
        total = summary.sum()
        if np.count_nonzero(summary.sum(axis=0) + summary.sum(axis=1)) < 2:
            return NAN
        by_chance = float(summary.sum(axis=0) @ summary.sum(axis=1)) / total**2
        return float((summary.trace() / total - by_chance) / (1.0 - by_chance))


class Counts(NamedTuple):
    """Weights of rows by class and bin of probability, from the least likely to the likeliest; (bins,) both."""

    positive: FloatArray
    negative: FloatArray
    others: float  # of neither class


class AUC(Metric[Counts]):
    """The area under the ROC curve, for two classes: of two rows of different classes, how often the order is right.

    With a window it is exact. Without, probabilities are counted in 4,096 bins, equally wide in log-odds from -20 to
    20, and rows of one bin count as tied: :attr:`error_bound` says how far off the value can be. NaN with one class
    only, and with more than two.

    Examples
    --------
    >>> metric = AUC()
    >>> metric.add([1, 0, 1, 0], [0.9, 0.1, 0.4, 0.6])
    >>> metric.value, metric.error_bound
    (0.75, 0.0)
    """

    name = "auc"
    need = "probability"

    def __init__(self, window: int | None = None) -> None:
        super().__init__(window)
        self.codes: dict[Any, int] = {}  # of the classes met; 0 is the one whose probability is looked at

    @property
    def inapplicable(self) -> str:
        """Return what to say once there are more than two classes."""
        n = len(self.codes)
        return f"auc is for two classes, and there are {n}: it is not shown. Use log_loss or kappa." if n > 2 else ""

    @property
    def error_bound(self) -> float:
        """Return how far the value can be off: half the share of pairs in one bin; 0 with a window."""
        if self.summary is None:
            return 0.0
        positive, negative, _ = self.summary
        n_pairs = positive.sum() * negative.sum()
        return float(0.5 * (positive @ negative) / n_pairs) if n_pairs else 0.0

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        labels, predicted = read_probabilities(y, prediction)
        if not self.codes and len(predicted.classes):
            self.codes[predicted.classes[-1]] = 0
        codes = np.array(_codes(self.codes, labels), dtype=float)
        positive = [label == next(iter(self.codes), None) for label in predicted.classes]
        return np.stack([codes, predicted.values[:, positive].sum(axis=1)], axis=1)

    def _summarise(self, rows: FloatArray, weight: FloatArray) -> Counts:
        codes, p = rows.T
        if self.ring is None:
            places, n_bins = _log_odds_bins(p), N_BINS
        else:
            levels, places = np.unique(p, return_inverse=True)
            n_bins = len(levels)
        positive, negative = (_weigh(places, weight * (codes == code), n_bins) for code in (0, 1))
        return Counts(positive, negative, float(weight[codes > 1].sum()))

    def _merge(self, one: Counts, other: Counts) -> Counts:
        return Counts(one.positive + other.positive, one.negative + other.negative, one.others + other.others)

    def _score(self, summary: Counts) -> float:
        positive, negative, others = summary
        n_pairs = positive.sum() * negative.sum()
        if others or not n_pairs:
            return NAN
        below = np.cumsum(negative) - 0.5 * negative  # a tie is half right
        return float(positive @ below / n_pairs)


BY_NAME: dict[str, type[Metric[Any]]] = {cls.name: cls for cls in (RMSE, MAE, R2, Accuracy, Kappa, LogLoss, AUC)}


def _log_odds_bins(p: FloatArray) -> IntArray:
    """Return the bin of each probability, (n,)."""
    with np.errstate(divide="ignore"):
        log_odds = np.log(p) - np.log1p(-np.minimum(p, 1.0))
    share = (np.clip(log_odds, -LARGEST_LOGIT, LARGEST_LOGIT) + LARGEST_LOGIT) / (2.0 * LARGEST_LOGIT)
    bins: IntArray = np.minimum((share * N_BINS).astype(int), N_BINS - 1)
    return bins


def _codes(known: dict[Any, int], labels: list[Any]) -> list[int]:
    return [known.setdefault(label, len(known)) for label in labels]


def _weigh(places: IntArray, weight: FloatArray, n_places: int) -> FloatArray:
    """Return the sum of the weights at each place."""
    return np.bincount(places, weight, n_places).astype(float)
