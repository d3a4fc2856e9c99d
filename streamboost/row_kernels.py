"""The native row loop: what ``Booster.ask``, the hedge and ``Booster.tell`` do for a row, for all boosters at once.

The arrays of all boosters lie end to end (see :mod:`streamboost.native`); ``plan`` (R, :data:`PLAN`) and ``rates``
(R, :data:`RATES`) tell where those of each booster begin and what it was told to do (see :mod:`streamboost.row_plan`).
A row is first walked through every booster, then the hedge mixes what their partial sums say, and only then anything
learns.
"""

from __future__ import annotations

import numpy as np

from streamboost import (
    base_kernels,
    hedge_kernels,
    linear_kernels,
    loss_kernels,
    replay_kernels,
    row_plan,
    walk_kernels,
)
from streamboost.arrays import FloatArray, IntArray
from streamboost.base_kernels import STILL, Line, Slopes, add_effects, apply_row, learn_base_row, standardize_row
from streamboost.hedge_kernels import (
    READ_HEDGE,
    READ_HEDGE_OF_MEANS,
    READ_MEAN,
    Hedging,
    learn_hedge,
    mix,
    read_experts,
    read_walk,
)  # fmt: skip
from streamboost.kernel_files import compiled_with
from streamboost.loss_kernels import Rule, set_targets
from streamboost.replay_kernels import Windows, remember_row
from streamboost.row_plan import BASE, N_TREES, TREE, WARM, Meters
from streamboost.walk_kernels import Trees, learn_leaves, walk_row

ROOMS = (base_kernels, hedge_kernels, linear_kernels, loss_kernels, replay_kernels, row_plan, walk_kernels)


@compiled_with(*ROOMS)
def learn_rows(
    X: FloatArray, y: FloatArray, weight: FloatArray, start: int, stop: int, scores: FloatArray,
    rule: Rule, readout: int, plan: IntArray, counts: IntArray, rates: FloatArray, hedge: Hedging, duel: FloatArray,
    trees: Trees, meters: Meters, lines: Line, slopes: Slopes, windows: Windows,
) -> int:  # fmt: skip
    """Predict and learn rows from ``start`` to ``stop``, or until a refit is due; return the row after the last one.

    A row whose gradient is not finite is not learned: then the answer is -1 - row.
    """
    kind = rule[0]
    experts, voices = hedge[0], hedge[6]
    stats, (recall, missed, size, recent) = trees[5], meters
    (count, mean, m2, signs, W, effects), (G, P, sizes) = lines, slopes
    cat_at = trees[8]
    R, d, m = plan.shape[0], X.shape[1], scores.shape[1]
    T = missed.shape[0]
    first = np.empty(R, np.int64)
    for r in range(R):
        first[r] = plan[r, TREE] + r
    leaf, h, targets = np.empty(T, np.uint16), np.empty((T, m)), np.empty((T, m))
    walks = np.empty((T + R, m))
    z = np.empty((R, d + 1))
    said, prediction = np.empty((experts.shape[0], m)), np.empty(m)
    for s in range(start, stop):
        x, target, w = X[s], y[s], weight[s]
        is_finite = True
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            standardize_row(x, count[r], mean[r], m2[r], z[r])
            apply_row(z[r], W[r], signs[r], walk[0])
            add_effects(x, cat_at, effects[r], walk[0])
            walk_row(x, plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
            is_finite &= set_targets(rule, target, h[a:b], walk, targets[a:b])
        if not is_finite:
            return -1 - s
        if readout < READ_HEDGE:
            read_walk(walks, plan[0, N_TREES], readout == READ_MEAN, scores[s])
        else:
            read_experts(readout == READ_HEDGE_OF_MEANS, experts, walks, first, said)
            mix(kind, voices, said, scores[s], prediction)
            if w > 0.0:
                learn_hedge(rule, said, target, w, hedge, duel)
        is_due = False
        for r in range(R):
            a, b = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES]
            for i in range(a, b):
                lack, whole = 0.0, 0.0
                for k in range(m):
                    lack += (targets[i, k] - h[i, k]) * (targets[i, k] - h[i, k])
                    whole += targets[i, k] * targets[i, k]
                missed[i] += w * lack
                size[i] += w * whole
                recent[i, 0] = recall * recent[i, 0] + w * lack
                recent[i, 1] = recall * recent[i, 1] + w * whole
            if w > 0.0:
                if counts[r, WARM]:
                    learn_leaves(plan[r], rates[r], stats, leaf[a:b], targets[a:b], w)
                if plan[r, BASE] != STILL:
                    learn_base_row(
                        rule, plan[r, BASE], x, target, w, rates[r], cat_at, z[r], count[r], mean[r], m2[r], signs[r],
                        W[r], effects[r], G[r], P[r], sizes[r],
                    )  # fmt: skip
            is_due |= remember_row(x, target, w, plan[r], counts[r], leaf[a:b], cat_at, r, windows)
        if is_due:
            return s + 1
    return stop


@compiled_with(*ROOMS)
def score_rows(
    X: FloatArray, scores: FloatArray, rule: Rule, readout: int, plan: IntArray, rates: FloatArray,
    experts: IntArray, voices: FloatArray, trees: Trees, lines: Line,
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
    z, said, prediction = np.empty(d + 1), np.empty((experts.shape[0], m)), np.empty(m)
    for s in range(n):
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            standardize_row(X[s], count[r], mean[r], m2[r], z)
            apply_row(z, W[r], signs[r], walk[0])
            add_effects(X[s], trees[8], effects[r], walk[0])
            walk_row(X[s], plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
        if readout < READ_HEDGE:
            read_walk(walks, plan[0, N_TREES], readout == READ_MEAN, scores[s])
        else:
            read_experts(readout == READ_HEDGE_OF_MEANS, experts, walks, first, said)
            mix(kind, voices, said, scores[s], prediction)
