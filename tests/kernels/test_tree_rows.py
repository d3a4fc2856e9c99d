"""Leaves that rows come to, beside a rule that is read off the splits one by one."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from streamboost.kernels import tree_rows

VALUES = [-np.inf, -1e308, -1.0, -0.0, 0.0, 5e-324, 0.5, np.nextafter(0.5, 1), 1.0, 2.0, 1e308, np.inf]
OTHER = 3


def drawn_trees(rng, n_trees, depth, d, n_levels=0):
    """Trees whose thresholds are values that rows have; with levels, those of the first column are split into sets."""
    n_nodes = n_trees * (2**depth - 1)
    feature, threshold = rng.integers(-1, d, n_nodes).astype(np.int32), rng.choice(VALUES, n_nodes)
    missing_left, cat_at = rng.uniform(size=n_nodes) < 0.5, np.full(d, -1, np.int32)
    subset = rng.integers(0, 16, n_nodes if n_levels else 0).astype(np.uint64)
    if n_levels:
        cat_at[0], threshold[feature == 0] = 0, np.nan
    return tree_rows.Trees(
        eta=np.zeros(n_trees), feature=feature, threshold=threshold, missing_left=missing_left, subset=subset,
        stats=np.zeros((n_trees * 2**depth, 2)), bounds=np.zeros((0, 2)), cat_at=cat_at,
        level_bins=rng.integers(0, OTHER, (n_trees, int(n_levels > 0), n_levels)).astype(np.uint8),
    )  # fmt: skip


def goes_left(trees, tree, p, x):
    v = x[max(trees.feature[p], 0)]
    if np.isnan(v):
        return bool(trees.missing_left[p])
    if np.isnan(trees.threshold[p]):
        bins = trees.level_bins[tree, 0]
        return bool(int(trees.subset[p]) >> int(bins[int(v)] if 0 <= v < len(bins) else OTHER) & 1)
    return bool(v <= trees.threshold[p])


def leaf_of(trees, tree, depth, x):
    at = 0
    for _ in range(depth):
        at = 2 * at + (1 if goes_left(trees, tree, tree * (2**depth - 1) + at, x) else 2)
    return at - (2**depth - 1)


@pytest.mark.parametrize("n_levels", [0, 6])
@pytest.mark.parametrize(("n_trees", "depth", "d"), [(1, 1, 1), (32, 2, 3), (33, 4, 5), (70, 5, 4)])
def test_a_row_comes_to_the_leaf_that_its_splits_tell(n_trees, depth, d, n_levels):
    rng = np.random.default_rng(n_trees)
    trees, X = drawn_trees(rng, n_trees, depth, d, n_levels), rng.choice([*VALUES, np.nan], (40, d))
    if n_levels:
        X[:, 0] = rng.choice([*range(-1, n_levels + 2), np.nan], 40)
    wanted = [[leaf_of(trees, i, depth, x) for i in range(n_trees)] for x in X]
    assert_array_equal(tree_rows.route(X, trees, depth, OTHER), wanted)
