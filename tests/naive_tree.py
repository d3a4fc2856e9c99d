"""A slow and obvious regression tree: every cut of every column tried on the raw values, recursively.

What the fast one promises, spelled out: rows of weight 0 are as good as absent; a cut has numbers on both of
its sides or parts all numbers from the missing; ties go to the first column, the lowest cut and the missing on
the right; a node that saw nothing missing sends it with the greater weight.

Of levels the first so many go left, from the lowest mean on; levels a node has not seen go with the greater weight.
Where a column has a sign, a cut between numbers against it is refused, and both sides keep to what lies on their
side of the middle between them.
"""

import itertools

import numpy as np

FREE = (-np.inf, np.inf)
ALL = None  # the test that every number and every level passes


def fit(X, target, weight, *, max_depth, min_samples_leaf, l2, cat_l2=0.0, levels=(), signs=None):
    """Return a function from rows (n, d) to the predictions (n, m) of the tree."""
    noise = 1e-12 * np.sum(weight[:, None] * target**2)
    cuts = [midpoints(column) for column in X.T]

    def said(rows, bounds, penalty=l2):
        total = weight[rows].sum() + penalty
        return np.clip(weight[rows] @ target[rows] / total if total > 0 else np.zeros(target.shape[1]), *bounds)

    def score(rows, bounds, penalty=l2):
        value, total = said(rows, bounds, penalty), weight[rows].sum() + penalty
        return np.sum(value * (2 * (weight[rows] @ target[rows]) - total * value))

    def is_allowed(j, test, left, right, bounds):
        sign = (signs or {}).get(j, 0)
        return test is ALL or not (sign * (said(right, bounds) - said(left, bounds)) < 0).any()

    def best_split(rows, bounds):
        best, best_gain = None, 0.0
        for j in range(X.shape[1]):
            tests = prefixes(X[rows, j], target[rows], weight[rows]) if j in levels else cuts[j]
            penalty = l2 + cat_l2 if j in levels else l2
            for test, missing_left, is_left in candidates(X[rows, j], tests):
                left, right = rows[is_left], rows[~is_left]
                if min(len(left), len(right)) < min_samples_leaf or not is_allowed(j, test, left, right, bounds):
                    continue
                gain = score(left, bounds, penalty) + score(right, bounds, penalty) - score(rows, bounds)
                if gain > best_gain * (1 + 1e-10) + noise:
                    best, best_gain = (j, test, missing_left, left, right), gain
        return best

    def grow(rows, depth, bounds):
        split = best_split(rows, bounds) if depth > 0 else None
        if split is None:
            value = said(rows, bounds)
            return lambda x: value
        j, test, missing_left, left, right = split
        left_is_larger = weight[left].sum() >= (1 - 1e-10) * weight[right].sum()
        if not np.isnan(X[rows, j]).any():
            missing_left = left_is_larger
        seen = set(X[rows, j])
        low, high = bounds_of_both(bounds, said(left, bounds), said(right, bounds), (signs or {}).get(j, 0), test)
        on_left, on_right = grow(left, depth - 1, low), grow(right, depth - 1, high)

        def say(x):
            if np.isnan(x[j]):
                goes_left = missing_left
            elif j in levels and test is not ALL and x[j] not in seen:
                goes_left = left_is_larger
            else:
                goes_left = passes(x[j], test)
            return on_left(x) if goes_left else on_right(x)

        return say

    tree = grow(np.flatnonzero(weight > 0), max_depth, FREE)
    return lambda rows: np.array([tree(x) for x in rows])


def candidates(x, tests):
    """Every way to part a column: the test, whether missing goes left, and who does."""
    missing = np.isnan(x)
    for test in tests:
        left = passes(x, test)
        if left.any() and (~left & ~missing).any():
            yield test, False, left
            if missing.any():
                yield test, True, left | missing
    yield ALL, False, ~missing


def passes(x, test):
    if test is ALL:
        return ~np.isnan(x)
    return np.isin(x, list(test)) if isinstance(test, frozenset) else x <= test


def midpoints(column):
    values = np.unique(column[~np.isnan(column)])
    return values[:-1] / 2 + values[1:] / 2


def prefixes(x, target, weight):
    """The levels of lowest mean, one after the other; of several outputs along the direction of greatest variance."""
    seen = np.unique(x[~np.isnan(x)])
    if len(seen) == 0:
        return []
    weights = np.array([weight[x == level].sum() for level in seen])
    means = np.array([weight[x == level] @ target[x == level] / weight[x == level].sum() for level in seen])
    along = means[:, 0]
    if target.shape[1] > 1:
        means = means - np.average(means, axis=0, weights=weights)
        scatter = (weights[:, None] * means).T @ means
        direction = np.linalg.matrix_power(scatter, 4)[:, scatter.diagonal().argmax()]
        along = means @ direction
    order = seen[np.argsort(along, kind="stable")]
    return [frozenset(order[: k + 1]) for k in range(len(order) - 1)]


def bounds_of_both(bounds, on_left, on_right, sign, test):
    if sign == 0 or test is ALL:
        return bounds, bounds
    (low, high), middle = bounds, float(on_left[0] + on_right[0]) / 2
    return ((low, middle), (middle, high)) if sign > 0 else ((middle, high), (low, middle))


def best_subset_gain(x, target, weight, l2):
    """What the best of all ways to part the levels, and the missing, of a column takes off the loss."""
    groups = [np.isnan(x) if np.isnan(level) else x == level for level in np.unique(x[weight > 0])]

    def score(is_in):
        total = weight[is_in].sum() + l2
        return np.sum((weight[is_in] @ target[is_in]) ** 2) / total if total > 0 else 0.0

    everything = np.ones(len(x), bool)
    best = 0.0
    for size in range(1, len(groups)):
        for members in itertools.combinations(groups, size):
            left = np.any(members, axis=0)
            best = max(best, score(left) + score(~left) - score(everything))
    return best
