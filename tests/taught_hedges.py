"""Hedges that have been taught some rows, for tests of the vote and of the combination."""

import numpy as np

from streamboost.boosting.hedge import Hedge
from streamboost.losses import Hinge, Logistic, Poisson, Softmax


def rows_for(loss, seed, n=12, n_experts=4):
    """What experts say of n rows (n, E, m), and the targets (n, k)."""
    rng = np.random.default_rng(seed)
    scores = 2.0 * rng.normal(size=(n, n_experts, loss.n_outputs))
    if isinstance(loss, Softmax):
        return scores, rng.integers(loss.n_classes, size=(n, 1)).astype(float)
    if isinstance(loss, (Logistic, Hinge)):
        return scores, rng.choice([-1.0, 1.0], size=(n, loss.n_outputs))
    if isinstance(loss, Poisson):
        return scores, rng.poisson(2.0, size=(n, loss.n_outputs)).astype(float)
    return scores, rng.normal(size=(n, loss.n_outputs))


def opened(loss, n_experts=4, **options):
    hedge = Hedge([(0, e) for e in range(n_experts)], **options)
    hedge.open(loss)
    return hedge


def taught(loss, seed=0, n=12, n_experts=4, **options):
    hedge = opened(loss, n_experts, **options)
    for said, y in zip(*rows_for(loss, seed, n, n_experts), strict=True):
        hedge.learn(said, y, loss)
    return hedge
