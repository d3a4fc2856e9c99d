"""A slow and obvious regression tree: every cut of every column tried on the raw values, recursively.

What the fast one promises, spelled out: rows of weight 0 are as good as absent; a cut has numbers on both of
its sides or parts all numbers from the missing; ties go to the first column, the lowest cut and the missing on
the right; a node that saw nothing missing sends it with the greater weight.
"""

import numpy as np


def fit(X, target, weight, *, max_depth, min_samples_leaf, l2):
    """Return a function from rows (n, d) to the predictions (n, m) of the tree."""
    noise = 1e-12 * np.sum(weight[:, None] * target**2)
    cuts = [midpoints(column) for column in X.T]

    def score(rows):
        total = weight[rows].sum() + l2
        return np.sum((weight[rows] @ target[rows]) ** 2) / total if total > 0 else 0.0

    def candidates(rows):
        for j in range(X.shape[1]):
            x = X[rows, j]
            missing = np.isnan(x)
            for cut in cuts[j]:
                if (x <= cut).any() and (x > cut).any():
                    yield j, cut, False, x <= cut
                    if missing.any():
                        yield j, cut, True, (x <= cut) | missing
            yield j, np.inf, False, ~missing

    def best_split(rows):
        best, best_gain = None, 0.0
        for j, cut, missing_left, left in candidates(rows):
            if min(left.sum(), (~left).sum()) < min_samples_leaf:
                continue
            gain = score(rows[left]) + score(rows[~left]) - score(rows)
            if gain > best_gain * (1 + 1e-10) + noise:
                if not np.isnan(X[rows, j]).any():
                    missing_left = weight[rows[left]].sum() >= (1 - 1e-10) * weight[rows[~left]].sum()
                best, best_gain = (j, cut, missing_left, left), gain
        return best

    def grow(rows, depth):
        split = best_split(rows) if depth > 0 else None
        if split is None:
            total = weight[rows].sum() + l2
            said = weight[rows] @ target[rows] / total if total > 0 else np.zeros(target.shape[1])
            return lambda x: said
        j, cut, missing_left, left = split
        on_left, on_right = grow(rows[left], depth - 1), grow(rows[~left], depth - 1)

        def say(x):
            goes_left = missing_left if np.isnan(x[j]) else x[j] <= cut
            return on_left(x) if goes_left else on_right(x)

        return say

    tree = grow(np.flatnonzero(weight > 0), max_depth)
    return lambda rows: np.array([tree(x) for x in rows])


def midpoints(column):
    values = np.unique(column[~np.isnan(column)])
    return values[:-1] / 2 + values[1:] / 2
