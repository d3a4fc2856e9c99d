"""Metrics that are counted row by row, under the name people use; see :mod:`streamboost.evaluation.metrics`."""

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
from streamboost.evaluation.metric_base import MeanMetric, Metric, Probabilities
from streamboost.evaluation.metrics import BY_NAME, MAE, R2, RMSE, Pinball

__all__ = [
    "AUC",
    "BY_NAME",
    "ECE",
    "F1",
    "MAE",
    "PRAUC",
    "R2",
    "RMSE",
    "Accuracy",
    "BalancedAccuracy",
    "Brier",
    "Kappa",
    "LogLoss",
    "MeanMetric",
    "Metric",
    "Pinball",
    "Probabilities",
]
