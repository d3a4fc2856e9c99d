"""Metrics of classes: of labels, of the order of probabilities, and of probabilities themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.evaluation.metric_base import (
    NAN,
    MeanMetric,
    Metric,
    Probabilities,
    label_lists,
    read_probabilities,
)

FLOOR = float(np.finfo(float).eps)  # what a probability is worth at least, as in scikit-learn
N_BINS = 4096  # of the running AUC
LARGEST_LOGIT = 20.0
CALIBRATION_BINS = 15


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
        columns = _columns_of(labels, predicted)
        p = np.concatenate([predicted.values, np.zeros((len(labels), 1))], axis=1)  # 0 for classes without a column
        surprise: FloatArray = -np.log(np.clip(p[np.arange(len(labels)), columns], FLOOR, 1.0))
        return surprise[:, None]


class ConfusionMetric(Metric[FloatArray]):
    """A metric made of how often which label was predicted for which."""

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


class Kappa(ConfusionMetric):
    """Cohen's κ: by how much labels are right more often than by chance. NaN if all are of one class.

    Examples
    --------
    >>> metric = Kappa()
    >>> metric.add(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    >>> metric.value
    0.5
    """

    name = "kappa"

    def _score(self, summary: FloatArray) -> float:
        total = summary.sum()
        if np.count_nonzero(summary.sum(axis=0) + summary.sum(axis=1)) < 2:
            return NAN
        by_chance = float(summary.sum(axis=0) @ summary.sum(axis=1)) / total**2
        return float((summary.trace() / total - by_chance) / (1.0 - by_chance))


class BalancedAccuracy(ConfusionMetric):
    """The mean, over the classes that came, of the share of their rows that were right.

    Examples
    --------
    >>> metric = BalancedAccuracy()
    >>> metric.add(["a", "a", "a", "b"], ["a", "a", "a", "a"])
    >>> metric.value
    0.5
    """

    name = "balanced_accuracy"

    def _score(self, summary: FloatArray) -> float:
        came = summary.sum(axis=1)
        if not came.any():
            return NAN
        return float((summary.diagonal()[came > 0] / came[came > 0]).mean())


class F1(ConfusionMetric):
    """2 TP / (2 TP + FP + FN): of two classes that of the rarer one, of more the mean over classes. NaN with one only.

    Examples
    --------
    >>> metric = F1()
    >>> metric.add([0, 0, 0, 1, 1], [0, 0, 1, 1, 0])
    >>> metric.value
    0.5
    """

    name = "f1"

    def _score(self, summary: FloatArray) -> float:
        came, said = summary.sum(axis=1), summary.sum(axis=0)
        some = came + said > 0
        if some.sum() < 2:
            return NAN
        each = 2.0 * summary.diagonal()[some] / (came + said)[some]
        return float(each[came[some].argmin()] if some.sum() == 2 else each.mean())


class Counts(NamedTuple):
    """Weights of rows by class and bin of probability, from the least likely to the likeliest; (bins,) both."""

    positive: FloatArray
    negative: FloatArray
    others: float  # of neither class


class RankMetric(Metric[Counts]):
    """A metric of two classes made of the order of their probabilities.

    With a window it is exact. Without, probabilities are counted in 4,096 bins, equally wide in log-odds from -20 to
    20, and rows of one bin count as tied. NaN with one class only, and with more than two.
    """

    need = "probability"

    def __init__(self, window: int | None = None) -> None:
        super().__init__(window)
        self.codes: dict[Any, int] = {}  # of the classes met; 0 is the one whose probability is looked at

    @property
    def inapplicable(self) -> str:
        """Return what to say once there are more than two classes."""
        n = len(self.codes)
        return (
            f"{self.name} is for two classes, and there are {n}: it is not shown. Use log_loss or kappa."
            if n > 2
            else ""
        )

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


class AUC(RankMetric):
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

    @property
    def error_bound(self) -> float:
        """Return how far the value can be off: half the share of pairs in one bin; 0 with a window."""
        if self.summary is None:
            return 0.0
        positive, negative, _ = self.summary
        n_pairs = positive.sum() * negative.sum()
        return float(0.5 * (positive @ negative) / n_pairs) if n_pairs else 0.0

    def _score(self, summary: Counts) -> float:
        positive, negative, others = summary
        n_pairs = positive.sum() * negative.sum()
        if others or not n_pairs:
            return NAN
        below = np.cumsum(negative) - 0.5 * negative  # a tie is half right
        return float(positive @ below / n_pairs)


class PRAUC(RankMetric):
    """The area under the curve of precision over recall, for the rarer of two classes: average precision.

    Examples
    --------
    >>> metric = PRAUC()
    >>> metric.add([1, 0, 0, 1, 0], [0.9, 0.1, 0.5, 0.4, 0.2])
    >>> metric.value
    0.8333
    """

    name = "pr_auc"

    def _score(self, summary: Counts) -> float:
        rare, usual, others = summary
        if others or not rare.sum() or not usual.sum():
            return NAN
        if rare.sum() > usual.sum():
            rare, usual = usual[::-1], rare[::-1]
        found, taken = np.cumsum(rare[::-1]), np.cumsum((rare + usual)[::-1])  # from the likeliest on
        some = taken > 0
        return float((rare[::-1][some] * found[some] / taken[some]).sum() / rare.sum())


class Brier(MeanMetric):
    """The mean squared distance of probabilities from what came: of two classes that of one, of more the sum of all.

    Examples
    --------
    >>> metric = Brier()
    >>> metric.add([1, 0], [0.8, 0.4])
    >>> metric.value
    0.1
    """

    name = "brier"
    need = "probability"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        labels, predicted = read_probabilities(y, prediction)
        columns = _columns_of(labels, predicted)
        p = predicted.values
        came = np.arange(p.shape[1]) == columns[:, None]
        distance = ((p - came) ** 2).sum(axis=1) + (columns < 0)  # a class without a column has probability 0
        counted: FloatArray = distance * (0.5 if p.shape[1] == 2 else 1.0)
        return counted[:, None]


class ECE(Metric[FloatArray]):
    """The expected calibration error: how far the share of labels that were right is from the probability said.

    The largest probability of each row is counted in 15 bins of equal width; the distance of both means in a bin
    counts as many times as it has rows (Guo et al., 2017).

    Examples
    --------
    >>> metric = ECE()
    >>> metric.add([1, 1, 1, 0], [0.9, 0.9, 0.9, 0.9])
    >>> metric.value
    0.15
    """

    name = "ece"
    need = "probability"

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        labels, predicted = read_probabilities(y, prediction)
        if not len(predicted.classes):
            return np.zeros((len(labels), 2))
        best = predicted.values.argmax(axis=1)
        right = [predicted.classes[k] == label for k, label in zip(best.tolist(), labels, strict=True)]
        return np.stack([predicted.values.max(axis=1), np.array(right, dtype=float)], axis=1)

    def _summarise(self, rows: FloatArray, weight: FloatArray) -> FloatArray:
        """Return weights, and sums of probabilities and of what was right, by bins, (3, bins)."""
        bins = np.clip((rows[:, 0] * CALIBRATION_BINS).astype(int), 0, CALIBRATION_BINS - 1)
        return np.stack([_weigh(bins, weight * each, CALIBRATION_BINS) for each in (1.0, rows[:, 0], rows[:, 1])])

    def _merge(self, one: FloatArray, other: FloatArray) -> FloatArray:
        return one + other

    def _score(self, summary: FloatArray) -> float:
        weight, said, right = summary
        return float(np.abs(said - right).sum() / weight.sum()) if weight.sum() else NAN


def _log_odds_bins(p: FloatArray) -> IntArray:
    """Return the bin of each probability, (n,)."""
    with np.errstate(divide="ignore"):
        log_odds = np.log(p) - np.log1p(-np.minimum(p, 1.0))
    share = (np.clip(log_odds, -LARGEST_LOGIT, LARGEST_LOGIT) + LARGEST_LOGIT) / (2.0 * LARGEST_LOGIT)
    bins: IntArray = np.minimum((share * N_BINS).astype(int), N_BINS - 1)
    return bins


def _columns_of(labels: list[Any], predicted: Probabilities) -> IntArray:
    """Return the column of the class that came, (n,); -1 for a class without one."""
    places = {label: place for place, label in enumerate(predicted.classes)}
    return np.array([places.get(label, -1) for label in labels], dtype=int)


def _codes(known: dict[Any, int], labels: list[Any]) -> list[int]:
    return [known.setdefault(label, len(known)) for label in labels]


def _weigh(places: IntArray, weight: FloatArray, n_places: int) -> FloatArray:
    """Return the sum of the weights at each place."""
    return np.bincount(places, weight, n_places).astype(float)
