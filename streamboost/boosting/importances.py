"""How much each column matters: how far predictions move when it takes the value it has in another row.

Base and trees are asked together, on rows the longest memory holds, and each counts as much as the vote listens to it.
What splits gain would say less: where the line of the base explains a column, trees are left with the noise of others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.losses.links import Identity
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.model import BoostedModel
    from streamboost.replay import Replay

ROWS = 512  # of those held, on which columns are exchanged
BLOCK = 1 << 20  # numbers that are held at once
Sample: TypeAlias = tuple[FloatArray, FloatArray]  # rows and their weights
WHISPER = 1e-9  # what counts of an expert nobody listens to: where there are no others, it still tells something


def measure_importances(
    model: BoostedModel, owners: IntArray | None = None, sample: Sample | None = None
) -> FloatArray | None:
    """Return the share of each column in how far predictions move, (c,), or None if the learners cannot tell.

    For a column, every row of a sample takes the value that another row has there, and the squares of how far its
    prediction moves are added up: twice the variance that is due to the column, alone or together with others. The
    shares sum to 1; they are 0 if nothing was learned. Of a base that is no sum over columns (:meth:`Base.terms`), such
    as a frozen model, nothing is known; steps are taken for plain sums, as Algorithm 1 adds them up.

    Parameters
    ----------
    model : Booster or Committee
    owners : array of shape (d,), optional
        To which column each place in a row belongs, as the parts of a date belong to one; those are exchanged
        together. By default each is a column by itself.
    sample : pair of arrays of shape (n, d) and (n,), optional
        Rows and their weights; by default those that :func:`sample_rows` takes from the longest memory.
    """
    boosters, first = model.boosters, model.boosters[0]
    if not all(isinstance(booster.stack, TreeStack) for booster in boosters):
        return None
    owners = np.arange(first.stack.n_features) if owners is None else np.asarray(owners)
    moved = np.zeros(int(owners.max(initial=-1)) + 1)
    if first.replay is None or not len(moved):
        return moved
    X, weight = sample_rows(first.replay) if sample is None else sample
    if len(X) < 2:
        return moved
    shares = _shares(model)
    n_blocks = min(-(-X.size * first.loss.n_outputs // BLOCK), len(X) // 2)
    for rows, w in zip(np.array_split(X, n_blocks), np.array_split(weight, n_blocks), strict=True):
        moves = _moves(model, shares, rows, owners)  # (n, c, m)
        moved += (w * np.roll(w, 1)) @ np.square(_predicted(model, rows, moves)).sum(axis=2)
    return moved / (moved.sum() or 1.0)


def sample_rows(replay: Replay) -> Sample:
    """Return some of the rows held, and their weights: those at the same places each time, drawn once for all."""
    order = _order(1 << (replay.fill - 1).bit_length() if replay.is_carried else replay.window or replay.fill)
    for places in (order[: 2 * ROWS], order):  # the first are enough, as a rule
        places = places[places < replay.fill]
        places = places[replay.weight[places] > 0][:ROWS]
        if len(places) == ROWS:
            break
    return replay.X[places], replay.weight[places]


@lru_cache(maxsize=8)
def _order(n: int) -> IntArray:
    """Return the numbers below n in an order drawn once for all: evenly spaced rows may hit a rhythm."""
    return np.random.default_rng(0).permutation(n)


def _shares(model: BoostedModel) -> list[FloatArray]:
    """Return how much the score listens to the base and to each learner, (N + 1,), of every booster."""
    sizes = [booster.stack.n_learners for booster in model.boosters]
    shares = [np.zeros(size + 1) for size in sizes]
    if model.readout == "hedge":
        heard = model.hedge.experts.tolist(), model.hedge.influence().tolist()
        experts = [(b, step, weight + WHISPER) for (b, step), weight in zip(*heard, strict=True)]
    else:
        experts = [(0, sizes[0], 1.0)]
    for b, step, weight in experts:
        own = model.boosters[b].descent.readout if model.readout in ("hedge", "descent") else model.readout
        shares[b][0] += weight
        if own == "last":
            shares[b][1 : step + 1] += weight
        else:  # the mean of y¹ ... yⁿ: the first learner is in all of them, the last in one
            shares[b][1 : step + 1] += weight * np.arange(step, 0, -1) / max(step, 1)
    return shares


def _moves(model: BoostedModel, shares: list[FloatArray], X: FloatArray, owners: IntArray) -> FloatArray:
    """Return how far the score of a row moves as each column takes the value of the row before, (n, c, m)."""
    by_place = np.zeros((*X.shape, model.loss.n_outputs))
    for booster, share in zip(model.boosters, shares, strict=True):
        terms = booster.base.terms(X)
        if terms is not None:
            by_place += share[0] * (np.roll(terms, 1, axis=0) - terms)
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(owners.max() + 1))
    moves = np.add.reduceat(by_place[:, order], starts, axis=1)
    for booster, share in zip(model.boosters, shares, strict=True):
        assert isinstance(booster.stack, TreeStack)
        booster.stack.add_moves(X, share[1:] * booster.eta, owners, moves)
    return moves


def _predicted(model: BoostedModel, X: FloatArray, moves: FloatArray) -> FloatArray:
    """Return how far predictions move with scores: as far, or as probabilities and means do."""
    link = model.loss.link
    if isinstance(link, Identity):
        return moves
    scores = model.score_checked(X)[:, None]
    return link.predict(scores + moves) - link.predict(scores)
