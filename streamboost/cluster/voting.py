"""The hedge for a chunk at a time: what :class:`streamboost.hedge.Hedge` learns row by row, reckoned side by side.

The weights of a voter follow from what experts have lost, and that is a sum that fades; so only two sums have to be
gone through row after row, and everything else is done for all rows at once.
"""

from __future__ import annotations

import numpy as np

from streamboost.arrays import FloatArray
from streamboost.hedge import Hedge, stakes
from streamboost.losses import Loss

TINY = float(np.finfo(float).tiny)


def learn_chunk(hedge: Hedge, scores: FloatArray, y: FloatArray, loss: Loss, weight: FloatArray) -> None:
    """Let a hedge learn rows one after another: what experts said of them (n, E, m), their targets (n, k), weights.

    Up to rounding it is ``hedge.learn`` for every row.

    Examples
    --------
    >>> from streamboost.losses import Squared
    >>> rng = np.random.default_rng(0)
    >>> scores, y, weight = rng.normal(size=(50, 3, 1)), rng.normal(size=(50, 1)), np.ones(50)
    >>> ours, theirs = (Hedge([(0, 0), (1, 0), (2, 0)]) for _ in range(2))
    >>> learn_chunk(ours, scores, y, Squared(), weight)
    >>> for row in range(50):
    ...     lost = theirs.learn(scores[row], y[row], Squared())
    >>> np.allclose(ours.voices, theirs.voices)
    True
    """
    counts = weight > 0
    if not counts.any():
        return
    scores, y, weight = scores[counts], y[counts], weight[counts]
    n_voters, n = len(hedge.decays) - 1, len(hedge.experts)
    fade = hedge.decays ** weight[:, None]  # (rows, V + 1)
    seen = _fading(hedge.seen, fade, np.broadcast_to(weight[:, None], fade.shape))
    lost = weight[:, None] * stakes(scores, y[:, None], loss)  # (rows, E)
    losses = _fading(
        hedge.losses[:-1, :n], fade[:, :-1, None], np.broadcast_to(lost[:, None], (len(lost), n_voters, n))
    )
    before = np.concatenate([hedge.trust[None, :-1, :n], _trust(losses[:-1], seen[:-1, :-1], hedge.tempering[0])])
    votes = loss.link.score(before @ loss.link.predict(scores))  # (rows, V, m): each vote before it is told
    lost = weight[:, None] * stakes(votes, y[:, None], loss)  # (rows, V)
    hedge.seen[:] = seen[-1]
    hedge.losses[:-1, :n] = losses[-1]
    hedge.losses[-1, :n_voters] = _fading(hedge.losses[-1, :n_voters], fade[:, -1:], lost)[-1]
    hedge._reweigh()


def _fading(start: FloatArray, fade: FloatArray, more: FloatArray) -> FloatArray:
    """The sums s ← fade · s + more after every row."""
    sums = np.empty((len(more), *start.shape))
    total = start
    for row in range(len(more)):
        total = np.multiply(total, fade[row], out=sums[row])
        total += more[row]
    return sums


def _trust(losses: FloatArray, seen: FloatArray, tempering: float) -> FloatArray:
    """The weights (rows, V, E) of experts that have lost so much, as ``Hedge`` has them."""
    best = losses.min(axis=2, keepdims=True)
    temperature = np.maximum(tempering * best / seen[..., None], TINY) if tempering > 0 else 1.0
    with np.errstate(over="ignore"):  # beside a perfect expert the others' odds are 0
        odds = np.exp(-(losses - best) / temperature)
    return odds / odds.sum(axis=2, keepdims=True)  # type: ignore[no-any-return]
