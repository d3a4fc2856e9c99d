"""The loop of trees: what ``Booster.forward``, the hedge and ``Booster.update`` do for a row, for all boosters at once.

The arrays of all boosters lie end to end (see :mod:`streamboost.boosting.loops.trees`); ``plan`` (R, :data:`PLAN`) and
``rates`` (R, :data:`RATES`) tell where those of each booster begin and what it was told to do (see
:mod:`streamboost.kernels.layout`). A row is first walked through every booster, then the hedge mixes what their partial
sums say, and only then anything learns.
"""

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.bases import STILL, Line, Slopes, learn_base, line_of, set_base
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.edges import Meters, count_edges
from streamboost.kernels.hedge import READ_HEDGE, Hedging, learn_hedge, read_out, recall
from streamboost.kernels.layout import (
    BASE,
    DEPTH,
    FORGET,
    LEAF,
    N_TREES,
    NEWTON,
    RESTS,
    SAMPLED,
    SEEN_BEFORE,
    TREE,
    TURN,
    WARM,
)  # fmt: skip
from streamboost.kernels.losses import LARGEST, Rule, set_curvatures, set_targets
from streamboost.kernels.replay import Windows, remember_row
from streamboost.kernels.tree_rows import Trees, learn_leaves, walk_row, walk_rows

BLOCK = 128  # rows that are walked together through trees that rest


@compiled
def learn_rows(
    X: FloatArray, y: FloatArray, weight: FloatArray, start: int, stop: int, scores: FloatArray, rule: Rule,
    readout: int, plan: IntArray, counts: IntArray, rates: FloatArray, hedge: Hedging, paired_test: FloatArray,
    early: FloatArray, signature: float, trees: Trees, meters: Meters, lines: Line, slopes: Slopes, windows: Windows,
    steps: IntArray, ahead: FloatArray, carried: FloatArray,
) -> int:  # fmt: skip
    """Predict and learn rows from ``start`` to ``stop``, or until a refit is due; return the row after the last one.

    Writes ``scores`` (n, m) and all state. The trees of the first booster may rest: then ``ahead`` (n, steps, m) are
    its partial sums after ``steps`` trees (:func:`walk_ahead`), and those up to the tree whose turn is next are written
    to ``carried`` (n, m); one in so many rows is walked through all of its trees, to tell their edges. The combination
    learns from what experts said ``early``, where they are those of the ``signature``. A row whose gradient is not
    finite is not learned: then the answer is -1 - row.
    """
    R, d, m, T = plan.shape[0], X.shape[1], scores.shape[1], trees.eta.shape[0]
    first = starts(plan)
    leaf, all_h, all_targets = np.empty(T, np.uint16), np.empty((1, T, m)), np.empty((1, T, m))
    h, targets, walks, z = all_h[0], all_targets[0], np.empty((T + R, m)), np.empty((R, d + 1))
    expert_scores, prediction = np.empty((hedge.experts.shape[0], m)), np.empty(m)
    early_scores = np.empty_like(expert_scores)
    curvature = np.ones(T)
    for s in range(start, stop):
        x, target, w = X[s], y[s], weight[s]
        is_finite = True
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            set_base(x, line_of(lines, r), trees.cat_at, z[r], walk[0])
            if plan[r, RESTS]:
                for t in range(steps.shape[0]):
                    for k in range(m):
                        walk[steps[t], k] = ahead[s - start, t, k]
                        is_finite &= abs(ahead[s - start, t, k]) <= LARGEST
                        if steps[t] == plan[r, TURN]:
                            carried[s - start, k] = ahead[s - start, t, k]
                if (plan[r, SEEN_BEFORE] + s - start) % SAMPLED != 0:
                    h[a:b], targets[a:b] = 0.0, 0.0
                    continue
            walk_row(x, plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
            is_finite &= set_targets(rule, target, h[a:b], walk, targets[a:b])
            if rates[r, NEWTON] > 0.0:
                set_curvatures(rule, rates[r, NEWTON], target, walk[:-1], targets[a:b], curvature[a:b])
                for i in range(a, b):  # what they say of the gradient
                    for k in range(m):
                        h[i, k] *= curvature[i]
        if not is_finite:
            return -1 - s
        read_out(readout, rule.kind, hedge, walks, first, plan[0, N_TREES], expert_scores, prediction, scores[s])
        if readout >= READ_HEDGE and w > 0.0:
            recall(early[s], signature, expert_scores, early_scores)
            learn_hedge(rule, expert_scores, early_scores, target, w, hedge, paired_test)
        count_edges(all_targets, all_h, weight[s : s + 1], meters)
        is_due = False
        for r in range(R):
            a, b = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES]
            if w > 0.0 and counts[r, WARM] and not plan[r, RESTS]:
                stats, n_leaves = trees.stats[plan[r, LEAF] :], 1 << plan[r, DEPTH]
                learn_leaves(stats, n_leaves, rates[r, FORGET], leaf[a:b], targets[a:b], w, curvature[a:b])
            if w > 0.0 and plan[r, BASE] != STILL:
                own = Slopes(slopes.squares[r], slopes.covariance[r], slopes.effect_sizes[r])
                learn_base(
                    rule, plan[r, BASE], X[s : s + 1], y[s : s + 1], weight[s : s + 1], rates[r], trees.cat_at,
                    z[r : r + 1], line_of(lines, r), own,
                )  # fmt: skip
            if not plan[r, RESTS]:
                is_due |= remember_row(x, target, w, plan[r], counts[r], leaf[a:b], trees.cat_at, r, windows)
        if is_due:
            return s + 1
    return stop


@compiled
def walk_ahead(
    X: FloatArray, start: int, stop: int, plan: IntArray, rates: FloatArray, trees: Trees, lines: Line,
    steps: IntArray, sums: FloatArray,
) -> None:  # fmt: skip
    """Write partial sums of the first booster, whose trees rest: of rows from ``start`` on, (n, steps, m)."""
    for s in range(start, stop, BLOCK):
        end = min(s + BLOCK, stop)
        walk_rows(X, s, end, lines.weights[0, X.shape[1]], plan[0], rates[0], trees, steps, sums[s - start :])


@compiled
def score_rows(
    X: FloatArray, scores: FloatArray, rule: Rule, readout: int, plan: IntArray, rates: FloatArray, hedge: Hedging,
    trees: Trees, lines: Line, steps: IntArray, said: FloatArray,
) -> None:  # fmt: skip
    """Write the score of every row, (n, m); nothing else changes. Of trees that rest, sums after ``steps`` are read.

    What experts say is written, too, (n, E, m), if there is room for it.
    """
    R, (n, d), m, T = plan.shape[0], X.shape, scores.shape[1], trees.eta.shape[0]
    first = starts(plan)
    leaf, h, walks, z = np.empty(T, np.uint16), np.empty((T, m)), np.empty((T + R, m)), np.empty((R, d + 1))
    expert_scores, prediction = np.empty((hedge.experts.shape[0], m)), np.empty(m)
    ahead = np.empty((BLOCK, steps.shape[0], m))
    for s in range(n):
        if steps.shape[0] > 0 and s % BLOCK == 0:
            walk_rows(X, s, min(s + BLOCK, n), lines.weights[0, d], plan[0], rates[0], trees, steps, ahead)
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            if plan[r, RESTS]:
                for t in range(steps.shape[0]):
                    for k in range(m):
                        walk[steps[t], k] = ahead[s % BLOCK, t, k]
                continue
            set_base(X[s], line_of(lines, r), trees.cat_at, z[r], walk[0])
            walk_row(X[s], plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
        read_out(readout, rule.kind, hedge, walks, first, plan[0, N_TREES], expert_scores, prediction, scores[s])
        if said.shape[1] > 0:
            said[s] = expert_scores


@compiled_inside
def starts(plan: IntArray) -> IntArray:
    """Return where the partial sums of each booster begin, (R,): it has one more of them than trees."""
    first = np.empty(plan.shape[0], np.int64)
    for r in range(plan.shape[0]):
        first[r] = plan[r, TREE] + r
    return first
