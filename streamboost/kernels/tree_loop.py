"""The native row loop: what ``Booster.forward``, the hedge and ``Booster.update`` do for a row, for all boosters.

The arrays of all boosters lie end to end (see :mod:`streamboost.boosting.loops.trees`); ``plan`` (R, :data:`PLAN`) and
``rates`` (R, :data:`RATES`) tell where those of each booster begin and what it was told to do (see
:mod:`streamboost.kernels.layout`). A row is first walked through every booster, then the hedge mixes what their partial
sums say, and only then anything learns.
"""

from __future__ import annotations

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.bases import STILL, Line, Slopes, learn_base, set_base
from streamboost.kernels.compiling import compiled
from streamboost.kernels.edges import Meters, count_edges
from streamboost.kernels.hedge import (
    READ_HEDGE,
    READ_HEDGE_OF_MEANS,
    READ_MEAN,
    Hedging,
    learn_hedge,
    mix,
    read_experts,
    read_walk,
)  # fmt: skip
from streamboost.kernels.layout import BASE, DEPTH, FORGET, LEAF, N_TREES, TREE, WARM
from streamboost.kernels.losses import Rule, set_targets
from streamboost.kernels.replay import Windows, remember_row
from streamboost.kernels.tree_rows import Trees, learn_leaves, walk_row


@compiled
def learn_rows(
    X: FloatArray, y: FloatArray, weight: FloatArray, start: int, stop: int, scores: FloatArray,
    rule: Rule, readout: int, plan: IntArray, counts: IntArray, rates: FloatArray, hedge: Hedging,
    paired_test: FloatArray, trees: Trees, meters: Meters, lines: Line, slopes: Slopes, windows: Windows,
) -> int:  # fmt: skip
    """Predict and learn rows from ``start`` to ``stop``, or until a refit is due; return the row after the last one.

    A row whose gradient is not finite is not learned: then the answer is -1 - row.
    """
    kind = rule[0]
    experts, weights = hedge[0], hedge[6]
    stats, T = trees[5], trees[0].shape[0]
    (count, mean, m2, signs, W, effects), (G, P, sizes) = lines, slopes
    cat_at = trees[8]
    R, d, m = plan.shape[0], X.shape[1], scores.shape[1]
    first = np.empty(R, np.int64)
    for r in range(R):
        first[r] = plan[r, TREE] + r
    leaf, all_h, all_targets = np.empty(T, np.uint16), np.empty((1, T, m)), np.empty((1, T, m))
    h, targets, walks = all_h[0], all_targets[0], np.empty((T + R, m))
    z = np.empty((R, d + 1))
    expert_scores, prediction = np.empty((experts.shape[0], m)), np.empty(m)
    for s in range(start, stop):
        x, target, w = X[s], y[s], weight[s]
        is_finite = True
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            line = (count[r], mean[r], m2[r], signs[r], W[r], effects[r])
            set_base(x, line, cat_at, z[r], walk[0])
            walk_row(x, plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
            is_finite &= set_targets(rule, target, h[a:b], walk, targets[a:b])
        if not is_finite:
            return -1 - s
        if readout < READ_HEDGE:
            read_walk(walks, plan[0, N_TREES], readout == READ_MEAN, scores[s])
        else:
            read_experts(readout == READ_HEDGE_OF_MEANS, experts, walks, first, expert_scores)
            mix(kind, weights, expert_scores, scores[s], prediction)
            if w > 0.0:
                learn_hedge(rule, expert_scores, target, w, hedge, paired_test)
        count_edges(all_targets, all_h, weight[s : s + 1], meters)
        is_due = False
        for r in range(R):
            a, b = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES]
            if w > 0.0:
                if counts[r, WARM]:
                    learn_leaves(
                        stats[plan[r, LEAF] :], 1 << plan[r, DEPTH], rates[r, FORGET], leaf[a:b], targets[a:b], w
                    )
                if plan[r, BASE] != STILL:
                    line = (count[r], mean[r], m2[r], signs[r], W[r], effects[r])
                    learn_base(
                        rule, plan[r, BASE], X[s : s + 1], y[s : s + 1], weight[s : s + 1], rates[r], cat_at,
                        z[r : r + 1], line, (G[r], P[r], sizes[r]),
                    )  # fmt: skip
            is_due |= remember_row(x, target, w, plan[r], counts[r], leaf[a:b], cat_at, r, windows)
        if is_due:
            return s + 1
    return stop


@compiled
def score_rows(
    X: FloatArray, scores: FloatArray, rule: Rule, readout: int, plan: IntArray, rates: FloatArray,
    experts: IntArray, weights: FloatArray, trees: Trees, lines: Line,
) -> None:  # fmt: skip
    """The score (n, m) of every row; nothing changes."""
    kind = rule[0]
    count, mean, m2, signs, W, effects = lines
    R, (n, d), m = plan.shape[0], X.shape, scores.shape[1]
    T = trees[0].shape[0]
    first = np.empty(R, np.int64)
    for r in range(R):
        first[r] = plan[r, TREE] + r
    leaf, h, walks = np.empty(T, np.uint16), np.empty((T, m)), np.empty((T + R, m))
    z, expert_scores, prediction = np.empty(d + 1), np.empty((experts.shape[0], m)), np.empty(m)
    for s in range(n):
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            set_base(X[s], (count[r], mean[r], m2[r], signs[r], W[r], effects[r]), trees[8], z, walk[0])
            walk_row(X[s], plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
        if readout < READ_HEDGE:
            read_walk(walks, plan[0, N_TREES], readout == READ_MEAN, scores[s])
        else:
            read_experts(readout == READ_HEDGE_OF_MEANS, experts, walks, first, expert_scores)
            mix(kind, weights, expert_scores, scores[s], prediction)
