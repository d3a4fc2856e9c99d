"""The loop of networks: whole chunks take one call of a kernel, the first rows, which tell the scales, one a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamboost._types import FloatArray
from streamboost.bases import Constant, Linear
from streamboost.boosting.hedge import NO_PAIRED_TEST
from streamboost.boosting.loops import compiled
from streamboost.boosting.loops.plain import NOBODY, PlainLoop
from streamboost.features.binning import cat_positions
from streamboost.features.chunk import Chunk
from streamboost.features.standardizer import Standardizer
from streamboost.kernels import layout, net_loop
from streamboost.kernels.bases import Slopes
from streamboost.stacks.conv import ConvStack
from streamboost.stacks.neural import NeuralStack, TwoLayerStack

if TYPE_CHECKING:
    from streamboost.boosting.model import BoostedModel

BLOCK = 256  # rows a call takes, so that an interrupt need not wait for many


class NetLoop(PlainLoop):
    """The compiled loop of one booster of networks."""

    def suits(self, model: BoostedModel) -> bool:
        """Return whether it knows everything the booster is made of."""
        booster = model.boosters[0]
        return (
            type(booster.stack) in (TwoLayerStack, ConvStack)
            and len(model.boosters) == 1
            and compiled.knows_parts(booster)
            and booster.replay is None
            and booster.iterate != "average"
            and booster.is_open
        )

    def learn(self, model: BoostedModel, chunk: Chunk, early: FloatArray, scores: FloatArray, start: int) -> int:
        """Predict and learn rows from ``start`` on: whole steps, up to :data:`BLOCK` rows if they are smaller."""
        booster, nothing, estimate = model.boosters[0], np.zeros((1, 1)), None
        stack, base, step = booster.stack, booster.base, booster.step_rows(len(chunk.X) - start)
        n_steps, rates = max(BLOCK // step, 1) if booster.is_scale_known else 1, compiled.rates(booster)
        rows = slice(start, start + step * n_steps)
        X, y, weight = (each[rows] for each in chunk)
        if not booster.is_scale_known:  # of the first rows, every step may change those that follow
            estimate = booster.estimate_scale(y, weight)
            rates[layout.SPREAD] = estimate[1].spread
        assert isinstance(stack, NeuralStack)
        base_rule = compiled.base_rule(booster)  # before the slopes, some of which it may have to make
        slopes = base.slopes if isinstance(base, Linear) else Slopes(nothing, nothing, np.zeros((0, 0, 1)))
        trouble = np.zeros(2, np.int64)
        learned = net_loop.learn_nets(
            X, y, weight, step, booster.update_mode != "sequential", scores[rows], compiled.rule(booster),
            compiled.READOUTS[model.readout, booster.descent.readout], base_rule, rates,
            cat_positions(stack.categorical, stack.n_features), booster.eta, model.hedge.arrays, NO_PAIRED_TEST,
            early[rows], model.signature if early.shape[1] else 0.0, booster.edges.arrays,
            compiled.line(base, stack), slopes, _inputs(stack), stack.arrays, trouble,
        )  # fmt: skip
        booster.count(learned)
        if learned < len(X):
            raise booster.not_finite() if trouble[0] == net_loop.NOT_FINITE else stack.lost(int(trouble[1]))
        if estimate is not None:
            booster.apply_scale(*estimate)
            if isinstance(base, Constant):
                base.learn(X, y, weight, booster.loss, booster.scale)
        return start + learned

    def score(self, model: BoostedModel, X: FloatArray, said: FloatArray = NOBODY) -> FloatArray:
        """Return the score of checked rows, (n, m); write what experts say to ``said`` (n, E, m), if it is given."""
        booster, stack = model.boosters[0], model.boosters[0].stack
        assert isinstance(stack, NeuralStack)
        scores = np.empty((len(X), booster.loss.n_outputs))
        net_loop.score_nets(
            X, scores, compiled.rule(booster), compiled.READOUTS[model.readout, booster.descent.readout],
            cat_positions(stack.categorical, stack.n_features), booster.eta, model.hedge.arrays,
            compiled.line(booster.base, stack), _inputs(stack), stack.arrays, said,
        )  # fmt: skip
        return scores


def _inputs(stack: NeuralStack) -> net_loop.Inputs:
    if isinstance(stack.inputs, Standardizer):
        return net_loop.Inputs(stack.inputs.count, stack.inputs.mean, stack.inputs.m2)
    return net_loop.Inputs(np.zeros(0), np.zeros(0), np.zeros(0))
