"""The plain loop: everybody predicts, the hedge hears, everybody learns. It knows every loss, stack, base and descent.

What happens inside a booster is in :mod:`streamboost.boosting.booster`, the paper in hand. The compiled loops do the
same, faster, for the models they know; tests hold them equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamboost import descents
from streamboost._types import FloatArray
from streamboost.features.chunk import Chunk

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.boosting.model import BoostedModel

BLOCK = 1024  # rows whose walks are held at once: N + 1 partial sums each
NOBODY: FloatArray = np.zeros((0, 0, 0))  # who is asked for what experts say


class PlainLoop:
    """A loop over rows: it learns them and scores them. A compiled one does so for the models that suit it."""

    def suits(self, model: BoostedModel) -> bool:
        """Return whether this loop knows everything the model is made of."""
        return True

    def learn(self, model: BoostedModel, chunk: Chunk, early: FloatArray, scores: FloatArray, start: int) -> int:
        """Predict and learn rows of a checked chunk from ``start`` on; return the row after the last one learned.

        The combination learns from what experts said ``early``, if that is known: see
        :meth:`BoostedModel.score_experts`. The scores made before learning are written to ``scores`` (n, m).
        """
        boosters = model.boosters
        rows = slice(start, start + boosters[0].step_rows(len(chunk.X)))
        X, y, weight = chunk.X[rows], chunk.y[rows], chunk.weight[rows]
        answers = [booster.forward(X, y) for booster in boosters]
        walks = [answer.walk for answer in answers]
        scores[rows] = read_out(model, walks)
        if model.readout == "hedge":
            signature = model.signature if early.shape[1] else 0.0
            each_row = zip(expert_scores(model, walks), early[rows], y, weight, strict=True)
            for said, kept, target, w in each_row:
                is_theirs = len(kept) > said.size and kept[0] == signature
                then = kept[1 : 1 + said.size].reshape(said.shape) if is_theirs else said
                model.hedge.learn(said, target, boosters[0].loss, float(w), model.paired_test, then)
        for booster, answer in zip(boosters, answers, strict=True):
            booster.update(X, y, weight, answer)
        return start + len(X)

    def score(self, model: BoostedModel, X: FloatArray, said: FloatArray = NOBODY) -> FloatArray:
        """Return the score of checked rows, (n, m); write what experts say to ``said`` (n, E, m), if it is given."""
        scores = np.empty((len(X), model.loss.n_outputs))
        for start in range(0, len(X), BLOCK):
            block = X[start : start + BLOCK]
            walks = [booster.walk_checked(block) for booster in model.boosters]
            scores[start : start + BLOCK] = read_out(model, walks)
            if said.size:
                said[start : start + BLOCK] = expert_scores(model, walks)
        return scores

    def fresh_target(self, booster: Booster, i: int) -> tuple[FloatArray, FloatArray]:
        """Return what learner i should say of the rows held, (n, m), as the base and learners 1 … i - 1 stand now.

        Where steps are Newton's it is the gradient over the curvature, (n,), by which rows weigh more then.
        """
        replay, descent = booster.replay, booster.descent
        assert replay is not None
        target, curvature = np.empty((replay.fill, booster.loss.n_outputs)), np.ones(replay.fill)
        for start in range(0, replay.fill, BLOCK):
            rows = slice(start, start + BLOCK)
            X, leaf_ids, stack = replay.X[rows], replay.leaf_ids, booster.stack
            h = stack.predict_first(X, i) if leaf_ids is None else stack.predict_leaves(leaf_ids[rows, :i])
            walk = descent.walk(booster.base.predict(X), h, booster.eta[:i])
            target[rows] = descent.next_target(walk, h, booster.loss, replay.y[rows])
            if descent.newton:
                curvature[rows] = booster.curvature(walk[:, -1], replay.y[rows])
                target[rows] /= curvature[rows, None]
        return target, curvature

    def slopes(self, booster: Booster, rows: slice | NDArray[np.uint32]) -> tuple[FloatArray, FloatArray]:
        """Return gradient and curvature (n, m) of the loss at the partial sums carried of some rows."""
        replay, loss = booster.replay, booster.loss
        assert replay is not None
        scores, y = replay.carried[rows], replay.y[rows]
        curvature = loss.curvature(scores, y)
        return loss.gradient(scores, y), np.ones_like(scores) if curvature is None else curvature


def read_out(model: BoostedModel, walks: Sequence[FloatArray]) -> FloatArray:
    """Return the scores (n, m) of walks (n, N + 1, m) of all boosters, or of the first steps of them."""
    if model.readout == "hedge":
        return model.hedge.score(expert_scores(model, walks), model.loss)
    if model.readout == "descent":
        return model.boosters[0].descent.score(walks[0])
    return descents.read_out(walks[0], model.readout)


def expert_scores(model: BoostedModel, walks: Sequence[FloatArray]) -> FloatArray:
    """Return the score of every expert, held to the range of targets, (n, E, m)."""
    boosters, hedge = model.boosters, model.hedge
    scores = [boosters[b].descent.score(walks[b][:, : step + 1]) for b, step in hedge.experts]
    return hedge.combination.hold(np.stack(scores, axis=1))
