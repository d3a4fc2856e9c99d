"""Running and windowed metrics: targets and predictions in, a chunk at a time; one number out, :attr:`Metric.value`.

Without ``window`` it is over all rows, from a summary of fixed size, merged chunk by chunk as Chan, Golub and LeVeque
do it (Welford's rule for chunks), so that neither many rows nor large targets cost digits. With ``window=W`` it is
computed anew from the latest W rows, which are kept: exact. Where it has no meaning, as before any row, it is NaN.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.evaluation.class_metrics import (
    AUC,
    ECE,
    F1,
    PRAUC,
    Accuracy,
    BalancedAccuracy,
    Brier,
    Kappa,
    LogLoss,
)
from streamboost.evaluation.metric_base import NAN, Mean, MeanMetric, Metric, errors_of


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


class Pinball(MeanMetric):
    """The pinball loss of predictions of a quantile, the median by default: a subclass may have another ``level``.

    Examples
    --------
    >>> metric = Pinball()
    >>> metric.add([1.0, 2.0], [3.0, 2.0])
    >>> metric.value
    0.5
    """

    name = "pinball"
    need = "number"
    level: ClassVar[float] = 0.5

    def _encode(self, y: Any, prediction: Any) -> FloatArray:
        errors = errors_of(y, prediction)
        return np.maximum((1.0 - self.level) * errors, -self.level * errors)


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


BY_NAME: dict[str, type[Metric[Any]]] = {cls.name: cls for cls in (
    RMSE, MAE, R2, Pinball, Accuracy, Kappa, LogLoss, AUC, F1, BalancedAccuracy, PRAUC, Brier, ECE
)}  # fmt: skip
