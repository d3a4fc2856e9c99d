from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamboost.features.binning import Bins

finite = st.floats(allow_nan=False, allow_infinity=False)
numbers_or_missing = st.lists(finite | st.just(np.nan), min_size=1, max_size=30)


def fitted(X, n_bins=64, levels=(), n_levels=1):
    bins = Bins(n_bins)
    bins.set_categorical(levels, n_levels)
    bins.fit(X)
    return bins


@given(numbers_or_missing, st.integers(2, 12))
@example([1.7e308, -1.7e308, 1.79e308, 0.0], 8)  # the sum of two of them overflows
@settings(deadline=None)
def test_a_code_is_at_most_b_exactly_where_the_value_is_at_most_edge_b(column, n_bins):
    X = np.array(column)[:, None]
    bins = fitted(X, n_bins)
    codes, edges = bins.encode(X)[0], bins.edges[0, : bins.n_edges[0]]
    is_number = ~np.isnan(X[:, 0])
    assert np.isfinite(edges).all()
    assert (np.diff(edges) > 0).all()
    assert (bins.edges[0, bins.n_edges[0] :] == np.inf).all()
    assert np.array_equal(codes[is_number], np.searchsorted(edges, X[is_number, 0], side="left"))
    assert (codes[~is_number] == n_bins).all()
    for b, edge in enumerate(edges):
        assert np.array_equal(codes[is_number] <= b, X[is_number, 0] <= edge)


@given(numbers_or_missing)
@example([1.7e308, -1.7e308, 1.79e308, 0.0])
@example([15e-324, 20e-324])  # halved and added up again they give the upper one
@example([1 + 2.0**-52, 1 + 2.0**-51])  # neighbours, whose mean rounds to the upper one
@settings(deadline=None)
def test_a_column_of_few_values_gives_each_its_own_bin_and_no_bin_is_empty(column):
    X = np.array(column)[:, None]
    numbers = X[~np.isnan(X)]
    codes = fitted(X, 30).encode(X)[0][~np.isnan(X[:, 0])]
    assert np.array_equal(codes, np.searchsorted(np.unique(numbers), numbers))


@pytest.mark.parametrize("n", [200, 2048, 5000])
def test_the_bins_of_a_continuous_column_hold_about_equally_many_rows(n):
    X = np.random.default_rng(0).lognormal(sigma=3, size=(n, 1))
    counts = np.bincount(fitted(X, 16).encode(X)[0])
    assert len(counts) == 16
    assert counts.min() > 0.75 * n / 16
    assert counts.max() < 1.25 * n / 16


def test_the_edges_of_many_rows_are_close_to_their_quantiles():
    x = np.sort(np.random.default_rng(1).normal(size=20_000))  # sorted: a sample of the first rows would fail
    bins = fitted(x[:, None], 8)
    ranks = np.searchsorted(x, bins.edges[0]) / len(x)
    assert ranks == pytest.approx(np.arange(1, 8) / 8, abs=0.002)


def test_a_frequent_value_costs_one_bin_and_leaves_the_others_to_the_rest():
    rng = np.random.default_rng(2)
    x = np.concatenate([np.zeros(500), rng.uniform(1, 2, size=500)])
    codes = fitted(rng.permutation(x)[:, None], 16).encode(x[:, None])[0]
    assert (codes[:500] == 0).all()
    assert np.bincount(codes[500:])[1:].max() <= 1.25 * 500 / 15


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40, 2.0**900])
def test_the_codes_do_not_depend_on_the_scale(scale):
    X = np.random.default_rng(3).normal(size=(300, 2))
    assert np.array_equal(fitted(scale * X).encode(scale * X), fitted(X).encode(X))


def test_a_constant_or_wholly_missing_column_has_no_edges():
    X = np.column_stack([np.full(5, 7.0), np.full(5, np.nan)])
    bins = fitted(X, 4)
    assert bins.n_edges.tolist() == [0, 0]
    assert bins.encode(X).tolist() == [[0] * 5, [4] * 5]


def test_infinities_keep_their_order():
    X = np.array([[-np.inf], [-1.0], [2.0], [np.inf]])
    codes = fitted(X).encode(X)[0]
    assert codes.tolist() == sorted(codes.tolist())
    assert codes[1] < codes[2]


def test_added_columns_have_no_edges_and_the_old_ones_keep_theirs():
    X = np.random.default_rng(4).normal(size=(50, 2))
    bins = fitted(X, 8)
    before = bins.encode(X)
    bins.add_features(2)
    wider = np.column_stack([X, np.full(50, np.nan), np.ones(50)])
    assert bins.n_features == 4
    assert np.array_equal(bins.encode(wider)[:2], before)
    assert (bins.encode(wider)[2] == 8).all()
    assert (bins.encode(wider)[3] == 0).all()


def test_no_rows_are_no_trouble():
    bins = fitted(np.empty((0, 3)))
    assert bins.encode(np.empty((0, 3))).shape == (3, 0)
    assert bins.n_edges.tolist() == [0, 0, 0]


def test_fitting_leaves_the_rows_as_they_were():
    X = np.random.default_rng(5).normal(size=(20, 2))
    before = X.copy()
    fitted(X)
    assert np.array_equal(X, before)


@pytest.mark.parametrize("n_bins", [1, 255, 8.0, "64"])
def test_an_impossible_number_of_bins_is_refused(n_bins):
    with pytest.raises(ValueError, match=r"n_bins is .*, expected a whole number from 2 to 254"):
        Bins(n_bins)


def test_rows_of_another_width_are_refused():
    bins = fitted(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="X has 3 columns, expected 2"):
        bins.encode(np.zeros((1, 3)))


# Categories


@given(st.lists(st.integers(0, 9).map(float) | st.just(np.nan), max_size=40), st.integers(2, 8), st.integers(1, 12))
@settings(deadline=None)
def test_the_most_frequent_levels_have_a_bin_each_and_the_others_share_one(column, n_bins, n_levels):
    X = np.array(column).reshape(-1, 1)
    bins = fitted(X, n_bins, [0], n_levels)
    counts = Counter(x for x in column if x < n_levels)  # neither NaN nor levels beyond those told apart
    frequent = sorted(sorted(counts), key=lambda level: -counts[level])[: n_bins - 1]
    codes = bins.encode(np.r_[np.arange(-1.0, 14.0), np.nan][:, None])[0]
    expected = [sorted(frequent).index(x) if x in frequent else n_bins - 1 for x in np.arange(-1.0, 14.0)]
    assert codes.tolist() == [*expected, n_bins]
    assert bins.level_bins.shape == (1, n_levels)


def test_levels_are_counted_in_all_rows_and_not_in_the_sample_that_places_edges():
    x = np.arange(4096.0)
    x[1::2] = 7.0  # the sample is every other row: the even ones, all different
    assert fitted(x[:, None], 2, [0], 4096).encode(np.array([[0.0], [7.0]])).tolist() == [[1, 0]]


def test_more_than_64_bins_are_for_numbers_only():
    X = np.column_stack([np.arange(200.0), np.arange(200.0)])
    codes = fitted(X, 200, [1], 200).encode(X)
    assert codes[0].max() == 199
    assert codes[1].tolist() == [*range(63), *[63] * 137]
    assert fitted(X, 200, [1], 200).encode(np.full((1, 2), np.nan)).tolist() == [[200], [200]]


def test_columns_of_numbers_are_cut_as_if_no_other_held_levels():
    X = np.random.default_rng(6).integers(0, 100, size=(300, 3)).astype(float)
    mixed, plain = fitted(X, 16, [1], 100), fitted(X, 16)
    assert np.array_equal(mixed.encode(X)[[0, 2]], plain.encode(X)[[0, 2]])
    assert np.array_equal(mixed.edges[[0, 2]], plain.edges[[0, 2]])
    assert mixed.n_edges[1] == 0


def test_a_column_that_turns_out_to_hold_levels_has_bins_for_the_first_ones_until_fitted():
    X = np.column_stack([np.arange(30.0), np.full(30, np.nan)])
    bins = fitted(X, 8)
    before = bins.encode(X)
    bins.set_categorical([1], 20)
    assert np.array_equal(bins.encode(X), before)
    probes = np.column_stack([np.zeros(4), [0.0, 6.0, 15.0, 25.0]])
    assert bins.encode(probes)[1].tolist() == [0, 6, 7, 7]
    level_bins = bins.level_bins
    X[:, 1] = 15.0
    bins.fit(X)
    assert bins.encode(probes)[1].tolist() == [7, 7, 0, 7]
    assert bins.level_bins is level_bins  # in place: others may be looking on


def test_categories_and_columns_come_in_any_order():
    X = np.column_stack([np.arange(30.0) % 4, np.arange(30.0), np.arange(30.0) % 7])
    at_once = fitted(X, 8, [0, 2], 9)
    in_steps = Bins(8)
    in_steps.set_categorical([0], 5)
    in_steps.fit(X[:, :2])
    in_steps.add_features(1)
    in_steps.set_categorical([2], 9)
    in_steps.fit(X)
    assert np.array_equal(in_steps.encode(X), at_once.encode(X))
    assert in_steps.cat_at.tolist() == [0, -1, 1]
    assert in_steps.level_bins.shape == (2, 9)


def test_rows_without_a_column_of_levels_are_refused_before_anything_changes():
    X = np.column_stack([np.arange(9.0), np.arange(9.0)])
    bins = fitted(X, 8, [1], 9)
    before = bins.encode(X)
    with pytest.raises(ValueError, match="X has 1 columns, expected more than 1: that column is categorical"):
        bins.fit(X[:, :1])
    assert np.array_equal(bins.encode(X), before)


@pytest.mark.parametrize(
    ("columns", "n_levels", "message"),
    [([-1], 5, r"columns is \[-1\], expected"), (["a"], 5, r"columns is \['a'\]"), ([0], 0, "n_levels is 0, expected")],
)
def test_impossible_categories_are_refused(columns, n_levels, message):
    with pytest.raises(ValueError, match=message):
        Bins().set_categorical(columns, n_levels)
