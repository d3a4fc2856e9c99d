"""What the compiled loops share: losses, descents, bases and read-outs as the kernels know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamboost import losses
from streamboost._types import FloatArray
from streamboost.bases import Constant, Linear
from streamboost.descents import GradientDescent, ResidualProjection
from streamboost.kernels import bases as base_kernels
from streamboost.kernels import hedge as hedge_kernels
from streamboost.kernels import layout, linear
from streamboost.kernels import losses as loss_kernels
from streamboost.losses import Loss
from streamboost.stacks.base import Stack

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster

LOSSES: dict[type[Loss], int] = {
    losses.Squared: loss_kernels.SQUARED, losses.Absolute: loss_kernels.ABSOLUTE,
    losses.Quantile: loss_kernels.QUANTILE, losses.Huber: loss_kernels.HUBER,
    losses.Poisson: loss_kernels.POISSON, losses.Logistic: loss_kernels.LOGISTIC,
    losses.Hinge: loss_kernels.HINGE, losses.Softmax: loss_kernels.SOFTMAX,
}  # fmt: skip
READOUTS = {  # by the readouts of the model and of its descent
    ("descent", "last"): hedge_kernels.READ_LAST, ("descent", "mean"): hedge_kernels.READ_MEAN,
    ("hedge", "last"): hedge_kernels.READ_HEDGE, ("hedge", "mean"): hedge_kernels.READ_HEDGE_OF_MEANS,
    ("last", "last"): hedge_kernels.READ_LAST, ("last", "mean"): hedge_kernels.READ_LAST,
    ("mean", "last"): hedge_kernels.READ_MEAN, ("mean", "mean"): hedge_kernels.READ_MEAN,
}  # fmt: skip


def knows_parts(booster: Booster) -> bool:
    """Return whether the kernels know its loss, its descent and its base."""
    is_plain = type(booster.descent) in (GradientDescent, ResidualProjection) and not booster.descent.adaptive
    knows_descent = is_plain and getattr(booster.descent, "domain", None) is None
    return knows_descent and type(booster.loss) in LOSSES and type(booster.base) in (Linear, Constant)


def rule(booster: Booster) -> loss_kernels.Rule:
    """Return the loss's number, its one option and its ridge, and the descent's number."""
    loss = booster.loss
    option = getattr(loss, "tau", getattr(loss, "delta", 0.0))
    descent = loss_kernels.DESCENT if isinstance(booster.descent, GradientDescent) else loss_kernels.RESIDUAL
    return loss_kernels.Rule(LOSSES[type(loss)], float(option), float(loss.l2), descent)


def newton(booster: Booster) -> float:
    """Return the natural step by which curvatures are measured; 0 where leaves take plain gradient steps."""
    return booster.scale.step if booster.descent.newton else 0.0


def line(base: Any, stack: Stack) -> base_kernels.Line:
    """Return a base as a line: the moments of its inputs, and its weights."""
    if isinstance(base, Linear):
        return base.line
    nothing = np.zeros(stack.n_features)
    weights = np.zeros((stack.n_features + 1, stack.n_outputs))
    weights[-1] = base.y0
    effects = np.zeros((0, 0, stack.n_outputs))
    return base_kernels.Line(
        nothing, nothing, nothing, nothing, nothing, nothing, nothing, np.zeros(0, np.int8), weights, effects
    )


def rates(booster: Booster) -> FloatArray:
    """Return the rates at which its base learns, where the kernels look for them."""
    rates = np.zeros(layout.RATES)
    rates[layout.SPREAD] = booster.scale.spread
    if isinstance(booster.base, Linear):
        rates[layout.KEEP], rates[layout.RATE] = booster.base.forget, booster.base.rate
    return rates


def base_rule(booster: Booster) -> int:
    """Return how its base learns, as the kernels know it."""
    base = booster.base
    if not isinstance(base, Linear) or booster.is_frozen:
        return base_kernels.STILL
    if base.rule(booster.loss) == "adagrad":
        return base_kernels.ADAGRAD
    if base.covariance is None:
        base.covariance = linear.prior_covariance(len(base.weights) - 1, 1.0)
    return base_kernels.LEAST_SQUARES
