"""From the words of an estimator's parameters to the parts of a booster."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from streamboost import descents, losses
from streamboost.arrays import FloatArray
from streamboost.bases import Base, Constant, Frozen, Linear
from streamboost.descents import Descent, GradientDescent, ResidualProjection
from streamboost.losses import Loss, Softmax
from streamboost.replay import Replay
from streamboost.stacks.base import Stack
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import wrap

ONE_VERSUS_REST = ("logistic", "hinge")


def make_regression_loss(loss: str | Loss, n_outputs: int) -> Loss:
    """A loss by name for targets of ``n_outputs`` columns, or the one given."""
    if isinstance(loss, Loss):
        return loss
    name = "squared_error" if loss == "auto" else loss
    if name not in losses.NAMES or name in ("log_loss", *ONE_VERSUS_REST):
        names = [name for name in losses.NAMES if name not in ("log_loss", *ONE_VERSUS_REST)]
        raise ValueError(
            f"loss is {loss!r}, expected one of {', '.join(map(repr, names))}, or a Loss. "
            "For classes use SGBClassifier."
        )
    return losses.by_name(name, n_outputs=n_outputs)


def make_classification_loss(loss: str | Loss, n_classes: int) -> Loss:
    """Softmax over all classes, or a margin loss: on one score for two classes, one a class for more."""
    name = loss.name if isinstance(loss, Loss) else "log_loss" if loss == "auto" else loss
    l2 = loss.l2 if isinstance(loss, Loss) else 0.0
    if name == "log_loss":
        return Softmax(n_classes=n_classes, l2=l2)
    if name in ONE_VERSUS_REST:
        return losses.by_name(name, n_outputs=1 if n_classes <= 2 else n_classes, l2=l2)
    raise ValueError(
        f"loss is {loss!r}, expected 'log_loss', 'logistic', 'hinge', or the loss object of one of these. "
        "For real-valued targets use SGBRegressor."
    )


def is_one_versus_rest(loss: str | Loss) -> bool:
    """Whether a classifier's loss has one score a class and a fixed number of them."""
    return (loss.name if isinstance(loss, Loss) else loss) in ONE_VERSUS_REST


def margins(codes: FloatArray, n_outputs: int) -> FloatArray:
    """Class numbers (n,) as the ±1 targets of a margin loss, (n, m)."""
    positive = codes[:, None] == (np.array([1.0]) if n_outputs == 1 else np.arange(n_outputs))
    return np.where(positive, 1.0, -1.0)


def make_stack(learner: Any, n_estimators: int, max_depth: int, min_samples_leaf: int, l2: float) -> Stack:
    """``"tree"``, ``"linear"``, a stack, or anything :func:`streamboost.stacks.wrap` takes."""
    if isinstance(learner, str):
        if learner == "tree":
            return TreeStack(n_estimators, max_depth=max_depth, min_samples_leaf=min_samples_leaf, l2=l2)
        if learner == "linear":
            return LinearStack(n_estimators)
        raise ValueError(
            f"learner is {learner!r}, expected 'tree', 'linear', a stack, or a model to wrap. If unsure, leave it out."
        )
    return wrap(copy.deepcopy(learner), n_estimators)


def make_base(base: Any) -> Base:
    """``"linear"``, ``"constant"``, a number, a base, or a fitted model to be frozen."""
    if isinstance(base, str):
        if base == "linear":
            return Linear()
        if base == "constant":
            return Constant()
        raise ValueError(
            f"base is {base!r}, expected 'linear', 'constant', a number, a base or a fitted model. "
            "If unsure, leave it out."
        )
    if isinstance(base, Base):
        return copy.deepcopy(base)
    if isinstance(base, (int, float)):
        return Constant(base)
    return Frozen(base)


def make_descent(descent: Descent | None, learning_rate: Any, loss: Loss) -> Descent:
    """The descent given, or the one the loss picks, at the given learning rate."""
    if descent is not None:
        if not isinstance(descent, Descent):
            raise TypeError(
                f"descent is {descent!r}, expected one of streamboost.descents, such as GradientDescent(0.1). "
                "If unsure, leave it out."
            )
        if learning_rate is not None:
            raise ValueError(
                f"learning_rate is {learning_rate!r} beside a descent, which has a step of its own. Leave one out."
            )
        return descent
    if learning_rate is None:
        return descents.for_loss(loss)
    if loss.smooth:
        return GradientDescent(learning_rate)
    if learning_rate == "theory":
        return ResidualProjection()
    return ResidualProjection(learning_rate)


def make_replay(memory: int | None, refit_every: int, stack: Stack) -> Replay | None:
    """A memory, if the stack can make use of one."""
    return Replay(memory, refit_every=refit_every) if len(stack.refittable) else None
