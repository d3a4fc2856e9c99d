"""Shapley values of trees, path-dependent: what each column has to do with what the trees say of a row.

Where the columns of a set are known and others are not, a tree is walked down both sides of a split on an unknown
column, each as often as the rows that taught its leaves went there (Lundberg et al., 2020). For one leaf that makes a
product with one factor for each column on its path: whether the row goes there, o = 0 or 1, if the column is known, and
the share p of rows that do, if not. The Shapley value of a column is the integral over t from 0 to 1 of (o - p) times
the other factors at t o + (1 - t) p: a polynomial, for which a few points of Gauss and Legendre are exact. Products are
passed down the tree, sums over leaves back up, so that a row costs a few operations for each split and point.
"""

from typing import NamedTuple

import numpy as np

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.tree_rows import Trees, leaf_steps, mark_left

TOGETHER = 16  # rows that go through a tree at a time


class Paths(NamedTuple):
    """The branches of one tree that rows can take, each after the one it goes on from; the first is the root."""

    above: IntArray  # (B,), the branch it goes on from
    node: IntArray  # (B,), the split above it: 2 node + 1 if it is the left one, 2 node + 2 if the right one
    leaf: IntArray  # (B,), where it ends, -1 if it goes on
    owner: IntArray  # (B,), the column of that split
    same: IntArray  # (B,), the nearest branch above of the same column, 0 if none
    share: FloatArray  # (B,), of rows that would go there, by the splits on this column alone


@compiled
def add_contributions(
    X: FloatArray, trees: Trees, depth: int, other: int, l2: float, tree: int, n_trees: int, owners: IntArray,
    points: FloatArray, weights: FloatArray, contributions: FloatArray, expected: FloatArray,
) -> None:  # fmt: skip
    """Add what columns contribute to the scores of rows (n, d) by some trees, from ``tree`` on, (n, c, m).

    ``owners`` (d,) says to which of the c columns each place in a row belongs; ``points`` and ``weights`` are those of
    a quadrature on (0, 1) that is exact up to degree ``depth`` - 1. What the trees say of no row in particular is added
    to ``expected`` (m,). A step is taken against what a tree says.
    """
    n, n_leaves, m = X.shape[0], 1 << depth, expected.shape[0]
    stats = trees.stats.reshape(trees.eta.shape[0], n_leaves, m + 1)
    bounds = trees.bounds.reshape(trees.eta.shape[0], trees.bounds.shape[0] // max(trees.eta.shape[0], 1), 2)
    columns, left = np.ascontiguousarray(X.T), np.empty((n_leaves - 1, n), np.bool_)
    Q, n_most = points.shape[0], 2 * n_leaves - 1
    factor, inverse, pull = np.empty((3, n_most, Q, 2))
    product, sums, passes = np.empty((n_most, Q, TOGETHER)), np.empty((n_most, Q, m, TOGETHER)), np.empty((n_most, n))
    for i in range(tree, tree + n_trees):
        steps = leaf_steps(stats[i : i + 1], bounds[i : i + 1], l2, trees.eta[i : i + 1], 1)[0]
        paths = _find_paths(trees.feature[i * (n_leaves - 1) : (i + 1) * (n_leaves - 1)], stats[i, :, m], owners)
        B = paths.above.shape[0]
        for b in range(B):
            if paths.leaf[b] >= 0:
                share = _reach(paths, b)
                for k in range(m):
                    expected[k] -= share * steps[paths.leaf[b], k]
        if B == 1:
            continue
        mark_left(columns, i, depth, trees, other, left)
        for b in range(B):
            for q in range(Q):
                share, t = paths.share[b], points[q]
                without, known = (1.0 - t) * share, t + (1.0 - t) * share
                factor[b, q, 0], factor[b, q, 1] = without, known - without
                inverse[b, q, 0], pull[b, q, 0] = 0.0, 0.0
                if without > 0.0:
                    inverse[b, q, 0], pull[b, q, 0] = 1.0 / without, -share / without
                inverse[b, q, 1] = 1.0 / known - inverse[b, q, 0]
                pull[b, q, 1] = (1.0 - share) / known - pull[b, q, 0]
        _follow(paths, left, passes)
        for start in range(0, n, TOGETHER):
            rows = slice(start, min(start + TOGETHER, n))
            _add_rows(
                paths, passes[:, rows], steps, factor, inverse, pull, weights, product, sums, contributions[rows]
            )  # fmt: skip


@compiled_inside
def _find_paths(feature: IntArray, weight: FloatArray, owners: IntArray) -> Paths:
    """Return the branches of a tree, whose leaves weigh so much."""
    n_leaves = weight.shape[0]
    cover = np.empty(2 * n_leaves - 1)
    cover[n_leaves - 1 :] = np.maximum(weight, 0.0)
    for p in range(n_leaves - 2, -1, -1):
        cover[p] = cover[2 * p + 1] + cover[2 * p + 2]
    places = np.zeros(2 * n_leaves - 1, np.int64)  # of branches, in the numbering of nodes
    above, node, leaf, owner, same = np.zeros((5, 2 * n_leaves - 1), np.int64)
    share = np.ones(2 * n_leaves - 1)
    B, b = 1, 0
    while b < B:
        p = places[b]
        if p >= n_leaves - 1 or feature[p] < 0:  # below what is no split all go left
            while p < n_leaves - 1:
                p = 2 * p + 1
            leaf[b] = p - (n_leaves - 1)
        else:
            leaf[b] = -1
            column, before = owners[feature[p]], b
            while before > 0 and owner[before] != column:
                before = above[before]
            for right in range(2):
                child = 2 * p + 1 + right
                places[B], above[B], node[B], owner[B], same[B] = child, b, 2 * p + 1 + right, column, before
                share[B] = share[before] * (cover[child] / cover[p] if cover[p] > 0.0 else 0.5)
                B += 1
        b += 1
    return Paths(above[:B], node[:B], leaf[:B], owner[:B], same[:B], share[:B])


@compiled_inside
def _reach(paths: Paths, b: int) -> float:
    """The share of rows that come to a branch where no column is known."""
    reach = 1.0
    while b > 0:
        before = paths.share[paths.same[b]]
        reach *= paths.share[b] / before if before > 0.0 else 0.5
        b = paths.above[b]
    return reach


@compiled_inside
def _follow(paths: Paths, left: BoolArray, passes: FloatArray) -> None:
    """Write whether rows would come to each branch, 0 or 1, by the splits on its column alone, (B, n)."""
    passes[0] = 1.0
    for b in range(1, paths.above.shape[0]):
        child, before = paths.node[b], paths.same[b]
        p, is_left = (child - 1) // 2, child % 2 == 1
        for s in range(passes.shape[1]):
            passes[b, s] = passes[before, s] if left[p, s] == is_left else 0.0


@compiled_inside
def _add_rows(
    paths: Paths, passes: FloatArray, steps: FloatArray, factor: FloatArray, inverse: FloatArray, pull: FloatArray,
    weights: FloatArray, product: FloatArray, sums: FloatArray, contributions: FloatArray,
) -> None:  # fmt: skip
    """Add what columns contribute to the scores of some rows by one tree, (rows, c, m).

    Factors, their inverses, and (o - p) over them are a + b o, with (a, b) of each branch and point, (B, Q, 2).
    """
    above, leaf, owner, same = paths.above, paths.leaf, paths.owner, paths.same
    B, Q, (n, _, m) = above.shape[0], weights.shape[0], contributions.shape
    for q in range(Q):
        product[0, q] = weights[q]
    for b in range(B):
        up, before = above[b], same[b]
        for q in range(Q):
            f, df, i, di = factor[b, q, 0], factor[b, q, 1], inverse[before, q, 0], inverse[before, q, 1]
            for s in range(n if b > 0 else 0):
                product[b, q, s] = (
                    product[up, q, s] * ((f + df * passes[b, s]) * (i + di * passes[before, s]))
                )  # fmt: skip
            for k in range(m):
                step = steps[leaf[b], k] if leaf[b] >= 0 else 0.0
                for s in range(n):
                    sums[b, q, k, s] = -product[b, q, s] * step
    for b in range(B - 1, 0, -1):
        up, before, column = above[b], same[b], owner[b]
        for q in range(Q):
            u, du, v, dv = pull[b, q, 0], pull[b, q, 1], pull[before, q, 0], pull[before, q, 1]
            for k in range(m):
                for s in range(n):
                    slope = (u + du * passes[b, s]) - (v + dv * passes[before, s])
                    contributions[s, column, k] += slope * sums[b, q, k, s]
                    sums[up, q, k, s] += sums[b, q, k, s]
