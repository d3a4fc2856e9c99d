"""Metrics that are counted row by row, under the name people use; see :mod:`streamboost.evaluation.metrics`."""

from streamboost.evaluation.metric_base import Metric, Probabilities
from streamboost.evaluation.metrics import AUC, BY_NAME, MAE, R2, RMSE, Accuracy, Kappa, LogLoss, MeanMetric

__all__ = [
    "AUC",
    "BY_NAME",
    "MAE",
    "R2",
    "RMSE",
    "Accuracy",
    "Kappa",
    "LogLoss",
    "MeanMetric",
    "Metric",
    "Probabilities",
]
