"""Boosters of networks in compiled code: the arrays of one booster, as :mod:`streamboost.kernels.net_loop` wants them.

The first rows, which tell the scales, go the plain way; then whole chunks take one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamboost._types import FloatArray
from streamboost.bases import Constant, Linear
from streamboost.boosting.hedge import NO_PAIRED_TEST, Hedge
from streamboost.boosting.loops import trees as native
from streamboost.features.binning import cat_positions
from streamboost.features.chunk import Chunk
from streamboost.features.standardizer import Standardizer
from streamboost.kernels import net_loop as kernels
from streamboost.stacks.conv import ConvStack
from streamboost.stacks.neural import NeuralStack, TwoLayerStack

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
        and booster.is_scale_known
    )


def learn(booster: Booster, hedge: Hedge | None, readout: str, chunk: Chunk, scores: FloatArray) -> None:
    """Predict and learn a chunk of checked rows; write the scores made before, (n, m)."""
    X, y, weight = chunk
    stack, base, nothing = booster.stack, booster.base, np.zeros((1, 1))
    assert isinstance(stack, NeuralStack)
    slopes = base.slopes if isinstance(base, Linear) else (nothing, nothing, np.zeros((0, 0, 1)))
    trouble = np.zeros(2, np.int64)
    learned = kernels.learn_nets(
        X, y, weight, booster.step_rows(len(X)), booster.update_mode != "sequential", scores,
        native.rule(booster), native.readout_number(booster, readout), native.base_rule(booster),
        native.rates(booster), cat_positions(stack.categorical, stack.n_features), booster.eta,
        native.NO_HEDGE if hedge is None else hedge.arrays, NO_PAIRED_TEST, booster.edges.arrays,
        native.line(base, stack), slopes, _inputs(stack), stack.arrays, trouble,
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
        X, scores, native.rule(booster), native.readout_number(booster, readout),
        cat_positions(stack.categorical, stack.n_features), booster.eta,
        native.NO_HEDGE if hedge is None else hedge.arrays, native.line(booster.base, stack), _inputs(stack),
        stack.arrays,
    )  # fmt: skip
    return scores


def _inputs(stack: NeuralStack) -> kernels.Inputs:
    if isinstance(stack.inputs, Standardizer):
        return stack.inputs.count, stack.inputs.mean, stack.inputs.m2
    nothing = np.zeros(0)
    return nothing, nothing, nothing
