"""The window of rows in compiled loops: what :mod:`streamboost.replay` remembers, and its targets now."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.kernels import layout
from streamboost.kernels.bases import Line, base_scores
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.losses import RESIDUAL, Rule, add_gradient, row_curvature, set_gradients
from streamboost.kernels.tree_rows import Leaves, LevelBins, leaf_steps

Codes = NDArray[np.uint8]


class Windows(NamedTuple):
    """Bins of R boosters, and the rows that each of them holds, end to end."""

    edges: FloatArray  # (R, d, n_bins - 1)
    n_edges: IntArray  # (R, d)
    level_bins: LevelBins  # (R, categories, levels)
    X: FloatArray  # (rows, d)
    y: FloatArray  # (rows, targets)
    weight: FloatArray  # (rows,)
    leaf_ids: Leaves  # (rows * trees,)
    codes: Codes  # (d * rows,)


@compiled
def interval(fill: int, room: int, every: int, soonest: int) -> int:
    """Rows between two refits, as full as the window is now."""
    share = fill / room
    return max(soonest, int(every * share * math.sqrt(share)))


@compiled_inside
def remember_row(
    x: FloatArray, y: FloatArray, w: float, plan: IntArray, counts: IntArray, leaf: Leaves, cat_at: IntArray, r: int,
    windows: Windows,
) -> bool:  # fmt: skip
    """Write the row over the oldest in the window; return whether a refit is due."""
    edges, n_edges, level_bins = windows.edges[r], windows.n_edges[r], windows.level_bins[r]
    d = x.shape[0]
    n_trees, at = plan[layout.N_TREES], counts[layout.AT]
    row = plan[layout.ROW] + at
    for j in range(d):
        windows.X[row, j] = x[j]
    for k in range(y.shape[0]):
        windows.y[row, k] = y[k]
    windows.weight[row] = w
    start = plan[layout.LEAF_ID] + at * n_trees
    for i in range(n_trees):
        windows.leaf_ids[start + i] = leaf[i]
    if counts[layout.WARM]:
        missing = edges.shape[1] + 1
        for j in range(d):
            below = 0
            for b in range(n_edges[j]):  # all of them: vectorised, faster than halving
                below += edges[j, b] < x[j]
            if cat_at[j] >= 0:
                below = (
                    int(level_bins[cat_at[j], int(x[j])]) if 0.0 <= x[j] < level_bins.shape[1] else plan[layout.OTHER]
                )
            windows.codes[plan[layout.CODE] + j * plan[layout.ROOM] + at] = missing if x[j] != x[j] else below
    counts[layout.AT] = (at + 1) % plan[layout.ROOM]
    counts[layout.FILL] = min(counts[layout.FILL] + 1, plan[layout.ROOM])
    counts[layout.WAITED] += 1
    counts[layout.SEEN] += 1
    if counts[layout.WARM]:
        counts[layout.DUE] = counts[layout.WAITED] >= interval(
            counts[layout.FILL], plan[layout.ROOM], plan[layout.EVERY], plan[layout.SOONEST]
        )
    else:
        counts[layout.DUE] = counts[layout.FILL] >= plan[layout.WARMUP]
    return bool(counts[layout.DUE] != 0)


@compiled
def fresh_target(
    rule: Rule, X: FloatArray, y: FloatArray, line: Line, cat_at: IntArray, eta: FloatArray, stats: FloatArray,
    bounds: FloatArray, l2: float, leaf_ids: Leaves, i: int, newton: float, target: FloatArray, curvature: FloatArray,
) -> None:  # fmt: skip
    """What learner i should say of remembered rows, as the base and the learners before it stand now, into (n, m).

    Where ``newton``, the natural step, is above 0 that is the gradient over the curvature, written as well, (n,).
    """
    kind, option, ridge = rule.kind, rule.option, rule.ridge
    n, m = target.shape
    steps = leaf_steps(stats, bounds, l2, eta, i)
    scores = np.empty((n, m))
    base_scores(X, line, cat_at, scores)
    if rule.descent == RESIDUAL:
        for s in range(n):
            for k in range(m):
                target[s, k] = 0.0
            for j in range(i + 1):
                add_gradient(kind, option, ridge, scores[s], y[s], target[s])
                for k in range(m if j < i else 0):
                    moved = steps[j, leaf_ids[s, j], k]
                    target[s, k] -= moved / eta[j] if eta[j] > 0.0 else 0.0
                    scores[s, k] -= moved
        return
    whole = i - i % 4
    if m == 1:
        for s in range(n):
            a, b, c, e = 0.0, 0.0, 0.0, 0.0  # four sums at a time: one would wait for itself
            for j in range(0, whole, 4):
                a += steps[j, leaf_ids[s, j], 0]
                b += steps[j + 1, leaf_ids[s, j + 1], 0]
                c += steps[j + 2, leaf_ids[s, j + 2], 0]
                e += steps[j + 3, leaf_ids[s, j + 3], 0]
            for j in range(whole, i):
                a += steps[j, leaf_ids[s, j], 0]
            scores[s, 0] -= (a + b) + (c + e)
    else:
        for s in range(n):
            for j in range(i):
                for k in range(m):
                    scores[s, k] -= steps[j, leaf_ids[s, j], k]
    set_gradients(kind, option, ridge, scores, y, target)
    if newton > 0.0:
        for s in range(n):
            curvature[s] = row_curvature(rule, newton, y[s], scores[s], target[s])
            for k in range(m):
                target[s, k] /= curvature[s]
