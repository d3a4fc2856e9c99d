"""Losses: how wrong a score is, and which way to move it; those of the paper and more, or one of your own."""

from streamboost.losses.base import Facts, Loss, Scale
from streamboost.losses.builtin import (
    NAMES,
    Absolute,
    FunctionLoss,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    by_name,
    from_functions,
)

__all__ = [
    "NAMES",
    "Absolute",
    "Facts",
    "FunctionLoss",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Poisson",
    "Quantile",
    "Scale",
    "Softmax",
    "Squared",
    "by_name",
    "from_functions",
]
