"""Boosters of networks in compiled code: the arrays of one booster, as :mod:`streamboost.net_kernels` wants them.

The first rows, which tell the scales, go the plain way; then whole chunks take one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamboost import base_kernels, native, row_plan
from streamboost import net_kernels as kernels
from streamboost.arrays import FloatArray, IntArray
from streamboost.bases import Constant, Linear
from streamboost.binning import cat_positions
from streamboost.chunks import Chunk
from streamboost.hedge import NO_DUEL, Hedge
from streamboost.stacks.conv import ConvStack
from streamboost.stacks.neural import NeuralStack, TwoLayerStack
from streamboost.standardize import Standardizer

if TYPE_CHECKING:
    from streamboost.boosting import Booster


def suits(booster: Booster) -> bool:
    """Whether the compiled loop knows everything this booster is made of, and its first rows have told the scales."""
    return (
        type(booster.stack) in (TwoLayerStack, ConvStack)
        and type(booster.loss) in native.LOSSES
        and native.knows_descent(booster.descent)
        and type(booster.base) in (Linear, Constant)
        and booster.replay is None
        and booster.iterate != "average"
        and booster.is_open
        and booster.is_settled
        and not (booster.semantics != "sequential" and len(getattr(booster.base, "categorical", ())))
    )


def learn(booster: Booster, hedge: Hedge | None, readout: str, chunk: Chunk, scores: FloatArray) -> None:
    """Predict and learn a chunk of checked rows; write the scores made before, (n, m)."""
    X, y, weight = chunk
    stack, edges = booster.stack, booster.edges
    assert isinstance(stack, NeuralStack)
    trouble = np.zeros(2, np.int64)
    learned = kernels.learn_nets(
        X, y, weight, booster.step_rows(len(X)), booster.semantics != "sequential", scores,
        native.rule(booster), native.readout_number(booster, readout), native.base_rule(booster), _rates(booster),
        _cat_at(booster), booster.eta, native.NO_HEDGE if hedge is None else hedge.arrays, NO_DUEL,
        (edges.recall, edges.missed, edges.size, edges.recent_sums), native.line(booster.base, stack),
        _slopes(booster), _inputs(stack), stack.arrays, trouble,
    )  # fmt: skip
    booster.count(learned)
    if learned < len(X):
        raise booster.not_finite() if trouble[0] == kernels.NOT_FINITE else stack.lost(int(trouble[1]))


def score(booster: Booster, hedge: Hedge | None, readout: str, X: FloatArray) -> FloatArray:
    """The score of checked rows, (n, m)."""
    stack = booster.stack
    assert isinstance(stack, NeuralStack)
    scores = np.empty((len(X), booster.loss.n_outputs))
    kernels.score_nets(
        X, scores, native.rule(booster), native.readout_number(booster, readout), native.base_rule(booster),
        _cat_at(booster), booster.eta,
        native.NO_HEDGE if hedge is None else hedge.arrays, native.line(booster.base, stack), _inputs(stack),
        stack.arrays,
    )  # fmt: skip
    return scores


def _rates(booster: Booster) -> FloatArray:
    rates = np.zeros(row_plan.RATES)
    rates[row_plan.SPREAD] = booster.scale.spread
    if isinstance(booster.base, Linear):
        rates[row_plan.KEEP], rates[row_plan.RATE] = booster.base.forget, booster.base.rate
    return rates


def _cat_at(booster: Booster) -> IntArray:
    categorical = getattr(booster.base, "categorical", np.zeros(0, np.int64))
    return cat_positions(categorical, booster.stack.n_features)


def _slopes(booster: Booster) -> base_kernels.Slopes:
    """What a linear base knows beside its line; what it does without stays a 0 nobody reads."""
    nothing, base = np.zeros((1, 1)), booster.base
    if not isinstance(base, Linear):
        return nothing, nothing, np.zeros((0, 0, 1))
    return base.squares, nothing if base.covariance is None else base.covariance, base.effect_sizes


def _inputs(stack: NeuralStack) -> kernels.Inputs:
    if isinstance(stack.inputs, Standardizer):
        return stack.inputs.count, stack.inputs.mean, stack.inputs.m2
    nothing = np.zeros(0)
    return nothing, nothing, nothing
