"""Losses: how wrong a score is, and which way to move it; those of the paper and more, or one of your own."""

from streamboost.losses.base import Loss, LossConstants, Scale
from streamboost.losses.builtin import (
    NAMES,
    Absolute,
    FunctionLoss,
    Huber,
    Poisson,
    Quantile,
    Squared,
    by_name,
    from_functions,
)
from streamboost.losses.classes import Hinge, Logistic, Softmax

Facts = LossConstants  # its former name

__all__ = ["NAMES", "Absolute", "FunctionLoss", "Hinge", "Huber", "Logistic", "Loss", "LossConstants", "Poisson",
           "Quantile", "Scale", "Softmax", "Squared", "by_name", "from_functions"]  # fmt: skip
