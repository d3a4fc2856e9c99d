"""Why a score is what it is: what each column contributes, in the units of the score, exactly.

An expert is a base, of which each column adds its term, and trees, of which path-dependent Shapley values tell what
each column has to do with what they say (:mod:`streamboost.kernels.contributions`). The vote and the combination mix
experts, and contributions are mixed as they do it:

- where scores are mixed linearly, with the same coefficients; of an expert that counts as no farther from the vote than
  some errors, and of a score that is held to the range of targets, in proportion to what is left of it;
- where probabilities or means are mixed, each expert counts by the derivative of the vote, averaged over the straight
  way from what experts say of no row in particular to what they say of this one (the value of Aumann and Shapley).

What no column contributes comes last: what is said of no row in particular, a base that is no sum over columns, the
step towards the vote's own choice, and the little that averaging leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.combining import FAR, OWN, SLOPE
from streamboost.losses import Squared
from streamboost.losses.links import Identity, Link, Log, SoftmaxLink
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.boosting.combining import Combination
    from streamboost.boosting.model import BoostedModel

POINTS = 16  # on the way along which the derivative of a vote is averaged
BLOCK = 1 << 20  # numbers that are held at once
TINY = float(np.finfo(np.float64).tiny)


def explain_scores(model: BoostedModel, X: FloatArray, owners: IntArray) -> FloatArray:
    """Return what each column contributes to the score of each row, and last what none does, (n, c + 1, m).

    ``owners`` (d,) says to which of the c columns each place in a row belongs. A ``TypeError`` says so if learners are
    no trees.
    """
    for booster in model.boosters:
        if not isinstance(booster.stack, TreeStack) or booster.past is not None:
            raise TypeError("contributions are those of trees that predict with the present hypothesis")
    n_columns, m = int(owners.max(initial=-1)) + 1, model.loss.n_outputs
    n_experts = len(model.hedge.experts) if model.readout == "hedge" else 1
    explained = np.empty((len(X), n_columns + 1, m))
    size = max(1, BLOCK // (n_experts * m * max(n_columns + 1, m)))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        explained[rows] = _explain_block(model, X[rows], owners, n_columns)
    return explained


def _explain_block(model: BoostedModel, X: FloatArray, owners: IntArray, n_columns: int) -> FloatArray:
    hedged = model.readout == "hedge"
    experts = model.hedge.experts.tolist() if hedged else [[0, model.boosters[0].stack.n_learners]]
    parts = np.zeros((len(X), len(experts), n_columns, model.loss.n_outputs))  # (n, E, c, m)
    start = np.zeros((len(X), len(experts), model.loss.n_outputs))  # what no column contributes, (n, E, m)
    for b, booster in enumerate(model.boosters):
        mine = [e for e, (owner, _) in enumerate(experts) if owner == b]
        if mine:
            steps = [experts[e][1] for e in mine]
            own = booster.descent.readout if model.readout in ("hedge", "descent") else model.readout
            parts[:, mine], start[:, mine] = explain_booster(booster, X, owners, n_columns, steps, own)
    mixed = _mix(model, parts, start) if hedged else parts[:, 0]
    rest = model.score_checked(X) - mixed.sum(axis=1)
    return np.concatenate([mixed, rest[:, None]], axis=1)


def explain_booster(
    booster: Booster, X: FloatArray, owners: IntArray, n_columns: int, steps: list[int], readout: str
) -> tuple[FloatArray, FloatArray]:
    """Return what columns contribute to partial sums after these steps, (n, E, c, m), and what none does, (n, E, m)."""
    stack, m = booster.stack, booster.loss.n_outputs
    assert isinstance(stack, TreeStack)
    base, y0 = np.zeros((len(X), n_columns, m)), booster.base.predict(X)
    terms = booster.base.terms(X)
    if terms is not None:
        for place, column in enumerate(owners.tolist()):
            base[:, column] += terms[:, place]
    nothing = y0 - base.sum(axis=1)
    parts, start = np.zeros((len(X), len(steps), n_columns, m)), np.zeros((len(X), len(steps), m))
    said, expected, before = base, np.zeros(m), 0
    for e in np.argsort(steps):
        step = steps[e]
        if readout == "last":  # each goes on from the one before
            stack.add_contributions(X, slice(before, step), booster.eta[before:step], owners, said, expected)
            before = step
        else:  # the mean of y¹ ... yⁿ: the first learner is in all of them, the last in one
            said, expected = base.copy(), np.zeros(m)
            share = np.arange(step, 0, -1) / max(step, 1)
            stack.add_contributions(X, slice(0, step), booster.eta[:step] * share, owners, said, expected)
        parts[:, e], start[:, e] = said, nothing + expected
    return parts, start


def _mix(model: BoostedModel, parts: FloatArray, start: FloatArray) -> FloatArray:
    """Return the contributions (n, c, m) to the score of the combination."""
    hedge, loss = model.hedge, model.loss
    combination, own = hedge.combination, hedge.combination.coefficients[OWN:]
    said, held = _hold(hedge.combination, parts, start)
    score_parts, vote_start = _mix_vote(loss.link, hedge.weights, parts, held, said), hedge.mix(held, loss)
    if not len(own):
        return score_parts
    vote = hedge.mix(said, loss)
    if isinstance(loss.link, SoftmaxLink):  # as the vote's, the scores of classes sum to 0
        parts, said, held = (each - each.mean(axis=-1, keepdims=True) for each in (parts, said, held))
    far = _far(combination.residual_ss) if type(loss) is Squared else np.array(FAR)
    left = own[:, None] * _share(said - vote[:, None], np.clip(said - vote[:, None], -far, far))  # (n, E, m)
    whole = 1.0 + combination.coefficients[SLOPE] - left.sum(axis=1)
    score_parts *= whole[:, None]
    score_parts += _sum("nem,necm->ncm", left, parts)
    score_start = whole * vote_start + (left * held).sum(axis=1)
    _hold(combination, score_parts[:, None], score_start[:, None])
    return score_parts


def _hold(combination: Combination, parts: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave of the contributions (n, E, c, m), in place, what holding scores to the range of targets leaves of them.

    Return the scores, held, and where they start (n, E, m).
    """
    moves = parts.sum(axis=2)
    said, held = combination.hold(start + moves), combination.hold(start)
    parts *= _share(moves, said - held)[:, :, None]
    return said, held


def _share(whole: FloatArray, left: FloatArray) -> FloatArray:
    """Return which share of something is left, 1 of nothing."""
    return np.divide(left, whole, out=np.ones_like(whole), where=whole != 0.0)


def _far(residual_ss: FloatArray) -> FloatArray:
    """How far from the vote an expert counts as, at most, (m,)."""
    n_rows = residual_ss[-1]
    far: FloatArray = FAR * np.sqrt(residual_ss[:-1] / n_rows) if n_rows > 0.0 else np.zeros(len(residual_ss) - 1)
    return far


def _mix_vote(link: Link, weights: FloatArray, parts: FloatArray, start: FloatArray, said: FloatArray) -> FloatArray:
    """Return the contributions (n, c, m) to the score of the vote."""
    if isinstance(link, Identity):
        return _sum("e,necm->ncm", weights, parts)
    n, E, m = said.shape
    crossed = isinstance(link, SoftmaxLink)
    slopes = np.zeros((n, E, m, m) if crossed else (n, E, m))
    points, shares = np.polynomial.legendre.leggauss(POINTS)
    for point, share in zip((points + 1.0) / 2.0, shares / 2.0, strict=True):
        each = link.predict(start + point * (said - start))  # (n, E, m)
        vote = np.maximum(np.einsum("e,nem->nm", weights, each), TINY)[:, None]
        if crossed:
            odds = share * weights[:, None] * each / vote
            slopes += odds[..., None] * (np.eye(m) - each[:, :, None])
        elif isinstance(link, Log):
            slopes += share * weights[:, None] * each / vote
        else:
            slopes += share * weights[:, None] * each * (1.0 - each) / np.maximum(vote * (1.0 - vote), TINY)
    if not crossed:
        return _sum("nem,necm->ncm", slopes, parts)
    mixed = _sum("nekl,necl->nck", slopes, parts)
    return mixed - mixed.mean(axis=2, keepdims=True)  # type: ignore[no-any-return]


def _sum(subscripts: str, *arrays: FloatArray) -> FloatArray:
    total: FloatArray = np.einsum(subscripts, *arrays)
    return total
