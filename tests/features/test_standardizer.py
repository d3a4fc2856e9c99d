import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from streamboost.features.standardizer import Raw, Standardizer


def learned(X, weight=None, clip=1e9):
    scaler = Standardizer(X.shape[1], clip)
    scaler.learn(X, np.ones(len(X)) if weight is None else weight)
    return scaler


def moments(X, weight):
    """The weighted mean and standard deviation of each column's numbers, by numpy."""
    mean, deviation = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for j, column in enumerate(X.T):
        counts = ~np.isnan(column) & (weight > 0)
        if counts.any():
            mean[j] = np.average(column[counts], weights=weight[counts])
            deviation[j] = np.sqrt(np.average((column[counts] - mean[j]) ** 2, weights=weight[counts]))
    return mean, deviation


numbers = st.one_of(st.floats(-100, 100), st.just(np.nan))


@given(
    X=arrays(float, st.tuples(st.integers(1, 12), st.just(3)), elements=numbers),
    data=st.data(),
)
@settings(deadline=None)
def test_the_moments_are_those_of_the_numbers_seen(X, data):
    weight = data.draw(arrays(float, len(X), elements=st.sampled_from([0.0, 0.5, 1.0, 7.0])))
    scaler = learned(X, weight)
    mean, deviation = moments(X, weight)
    assert_allclose(scaler.mean, mean, atol=1e-10)
    seen = scaler.count > 0
    assert_allclose(np.sqrt(scaler.m2[seen] / scaler.count[seen]), deviation[seen], atol=1e-5)


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-12, 13, 4))
@pytest.mark.parametrize("offset", [0.0, 1.0, -50.0])
def test_any_scale_comes_out_as_mean_0_and_deviation_1(scale, offset):
    rng = np.random.default_rng(0)
    X = scale * (offset + rng.normal(size=(500, 2)))
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    weight = rng.uniform(0.1, 3.0, size=500)
    Z = learned(X, weight).transform(X)
    mean, deviation = moments(X, weight)
    assert_allclose(Z[:, :2], np.where(np.isnan(X), 0.0, (X - mean) / deviation), rtol=1e-9, atol=1e-9)
    assert_array_equal(Z[:, 2], 1.0)


@pytest.mark.parametrize("value", [0.0, 1e-12, 0.1, -3.7, 1e12])
def test_a_constant_column_is_0_and_stays_0_for_values_to_come(value):
    scaler = learned(np.full((1000, 1), value))
    assert_array_equal(scaler.transform(np.array([[value], [value + 1.0], [np.nan]]))[:, 0], 0.0)


def test_a_small_spread_beside_a_large_mean_is_still_seen():
    rng = np.random.default_rng(0)
    X = 1.7e9 + 3600 * rng.uniform(size=(300, 1))  # an hour of seconds since 1970
    Z = learned(X).transform(X)[:, 0]
    assert abs(Z.mean()) < 1e-6
    assert Z.std() == pytest.approx(1.0, rel=1e-6)


def test_rows_in_chunks_are_rows_one_by_one():
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(50, 3)), rng.uniform(size=50)
    whole, apart = learned(X, weight), Standardizer(3)
    for t in range(50):
        apart.learn(X[t : t + 1], weight[t : t + 1])
    for name in ("count", "mean", "m2"):
        assert_array_equal(getattr(whole, name), getattr(apart, name))


def test_a_weight_of_2_counts_a_row_twice():
    X = np.random.default_rng(0).normal(size=(30, 2))
    once, twice = learned(X, np.full(30, 2.0)), learned(np.repeat(X, 2, axis=0))
    assert_allclose(once.transform(X), twice.transform(X), rtol=1e-12, atol=1e-12)


def test_before_the_first_row_and_for_a_column_never_seen_everything_is_0():
    X = np.array([[1.0, np.nan], [2.0, np.nan]])
    assert_array_equal(Standardizer(2).transform(X), [[0, 0, 1], [0, 0, 1]])
    assert_array_equal(learned(X).transform(np.array([[1.0, 5.0]]))[:, 1], 0.0)


def test_wild_values_are_cut_off():
    X = np.random.default_rng(0).normal(size=(500, 1))
    Z = learned(X, clip=5.0).transform(np.array([[1e300], [-1e300], [X.mean()]]))[:, 0]
    assert_allclose(Z, [5.0, -5.0, 0.0], atol=1e-12)


def test_the_largest_floats_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = learned(np.array([[1e150], [-1e150], [3e149]])).transform(np.array([[1e150]]))
    assert np.isfinite(Z).all()


def test_transform_leaves_rows_and_moments_alone():
    X = np.array([[1.0, np.nan], [3.0, 4.0]])
    scaler = learned(X)
    before = X.copy(), scaler.mean.copy(), scaler.m2.copy()
    scaler.transform(X)[:] = 9.0
    for ours, theirs in zip((X, scaler.mean, scaler.m2), before, strict=True):
        assert_array_equal(ours, theirs)


def test_new_columns_start_from_nothing():
    X = np.random.default_rng(0).normal(size=(40, 3))
    scaler = learned(X[:20, :2])
    old = scaler.transform(X[:20, :2])
    scaler.add_features(1)
    assert_array_equal(scaler.transform(X[:20])[:, [0, 1, 3]], old)
    scaler.learn(X[20:], np.ones(20))
    assert_allclose(scaler.transform(X)[:, 2], (X[:, 2] - X[20:, 2].mean()) / X[20:, 2].std())


def test_raw_inputs_are_the_rows_themselves_with_a_column_of_ones():
    X = np.array([[1e9, np.nan], [-3.0, 4.0]])
    raw = Raw(n_features=X.shape[1])
    raw.learn(X, np.ones(2))
    raw.add_features(0)
    assert_array_equal(raw.transform(X), [[1e9, 0.0, 1.0], [-3.0, 4.0, 1.0]])
