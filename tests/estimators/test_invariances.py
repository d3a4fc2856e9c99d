"""What every user takes for granted: units of weights and targets, offsets, rows that weigh nothing, dates ahead.

Where a number is asked for it stands beside scikit-learn's HistGradientBoosting, trained on the same rows.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_friedman1
from sklearn.ensemble import AdaBoostClassifier, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_score

from streamboost import SGBClassifier, SGBRegressor
from streamboost.persistence.object_graph import flatten, same_state

SMALL = {"n_estimators": 6, "max_depth": 3, "memory": (32, 128), "random_state": 0}
X, Y = make_friedman1(3000, noise=1.0, random_state=0)
X_TEST, Y_TEST = make_friedman1(3000, noise=1.0, random_state=1)
CLASSES, CLASSES_TEST = Y > 14, Y_TEST > 14
LOSSES = ["squared_error", "absolute_error", "huber", "quantile"]


# Weights


@pytest.mark.parametrize("make", [SGBRegressor, SGBClassifier])
@given(power=st.integers(-60, 60), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None)
def test_a_common_factor_of_all_weights_changes_nothing(make, power, seed):
    # of a power of two not one bit; of other factors what rounding does
    weight = np.random.default_rng(seed).lognormal(0, 2, 150)
    y = CLASSES[:150] if make is SGBClassifier else Y[:150]
    plain, scaled = (make(**SMALL).partial_fit(X[:150], y, sample_weight=w) for w in (weight, weight * 2.0**power))
    assert_array_equal(plain.committee_.score(X[:50]), scaled.committee_.score(X[:50]))


@pytest.mark.parametrize("make", [SGBRegressor, SGBClassifier])
@pytest.mark.parametrize("constant", [1 / 3000, 1000.0, 1e-300, 1e300])
def test_equal_weights_are_no_weights(make, constant):
    y = CLASSES[:300] if make is SGBClassifier else Y[:300]
    plain, weighted = make(**SMALL), make(**SMALL)
    assert_array_equal(plain.learn(X[:300], y), weighted.learn(X[:300], y, np.full(300, constant)))
    assert plain.committee_.mean_weight == 1.0
    assert weighted.committee_.mean_weight == constant
    assert_array_equal(plain.committee_.score(X[300:]), weighted.committee_.score(X[300:]))


def test_weights_count_relative_to_the_mean_of_those_seen():
    # the first row weighs 1, whatever its weight; the third, of weights 2, 2, 8, twice the mean of 4
    model = SGBRegressor(**SMALL)
    model.learn(X[:3], Y[:3], [2.0, 2.0, 8.0])
    assert model.booster_.replay.weight.tolist() == [1.0, 1.0, 2.0]
    assert model.committee_.mean_weight == 4.0


@pytest.mark.slow
def test_very_uneven_weights_are_as_good_as_those_of_a_batch_learner():
    ours, theirs = [], []
    for seed in range(3):
        weight = np.random.default_rng(seed).lognormal(6, 1.5, len(Y))
        ours.append(SGBRegressor(random_state=0).fit(X, Y, sample_weight=weight).score(X_TEST, Y_TEST))
        theirs.append(HistGradientBoostingRegressor().fit(X, Y, sample_weight=weight).score(X_TEST, Y_TEST))
    assert np.mean(ours) > np.mean(theirs) - 0.01


@pytest.mark.slow
def test_weights_that_sum_to_one_are_as_good_as_none():
    # AdaBoost's do
    alone = SGBClassifier(random_state=0).fit(X, CLASSES).score(X_TEST, CLASSES_TEST)
    boosted = AdaBoostClassifier(SGBClassifier(random_state=0), n_estimators=2).fit(X, CLASSES)
    assert boosted.score(X_TEST, CLASSES_TEST) > alone - 0.05  # whose second model learns what the first has missed
    assert alone > HistGradientBoostingClassifier().fit(X, CLASSES).score(X_TEST, CLASSES_TEST) - 0.03


# Rows of weight 0


@pytest.mark.parametrize("make", [SGBRegressor, SGBClassifier])
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=60, max_size=60).filter(any))
@settings(max_examples=10, deadline=None)
def test_a_row_of_weight_zero_is_as_if_it_had_not_come(make, weights):
    weight = np.array(weights)
    y = CLASSES[:60] if make is SGBClassifier else Y[:60]
    whole, some = make(**SMALL), make(**SMALL)
    whole.partial_fit(X[:60], y, sample_weight=weight)
    some.partial_fit(X[:60][weight > 0], y[weight > 0], sample_weight=weight[weight > 0])
    assert same_state(whole, some)
    assert whole.n_samples_seen_ == (weight > 0).sum()


def text_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "place": rng.choice(["a", "b", "c"], 80)})
    frame.loc[10, "place"], frame.loc[11, "place"] = "never", "late"
    frame.loc[40, "place"] = "late"
    weight = np.ones(80)
    weight[[0, 10, 11, 30, 79]] = 0.0
    return frame, weight


CONTAINERS = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.from_pandas(frame),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "reader": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(max_chunksize=7),
    "dicts": lambda frame: frame.to_dict("records"),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_row_of_weight_zero_brings_no_category_and_no_class(kind):
    frame, weight = text_rows()
    y = np.where(frame["x"] > 0, "up", "down")
    y[11] = "sideways"
    model = SGBClassifier(**SMALL).partial_fit(CONTAINERS[kind](frame), y, sample_weight=weight)
    without = SGBClassifier(**SMALL).partial_fit(CONTAINERS[kind](frame[weight > 0]), y[weight > 0])
    assert same_state(model, without)
    assert sorted(model.classes_) == ["down", "up"]


def test_rows_of_weight_zero_are_predicted_in_their_place():
    weight = np.random.default_rng(0).integers(0, 2, 200).astype(float)
    model, twin = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    said = model.learn(X[:200], Y[:200], weight)
    for t in range(200):
        if weight[t] and not twin.__sklearn_is_fitted__():
            expected = 0.0
        else:
            expected = twin.predict(X[t : t + 1])[0] if twin.__sklearn_is_fitted__() else 0.0
        assert said[t] == pytest.approx(expected, abs=1e-12)
        if weight[t]:
            twin.partial_fit(X[t : t + 1], Y[t : t + 1])


def test_row_by_row_is_the_same_as_a_chunk_with_weights_of_zero():
    frame, weight = text_rows()
    weight[0] = 1.0  # only of a model that has seen nothing the first row's columns are taken, whatever it weighs
    chunk, rows = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    chunk.learn_many(frame, frame["x"], w=weight)
    for row, y, w in zip(frame.to_dict("records"), frame["x"], weight, strict=True):
        rows.learn_one(row, y, w=w)
    assert same_state(chunk, rows)


def test_targets_of_rows_that_weigh_nothing_are_not_looked_at():
    y = Y[:50].copy()
    y[[0, 20]] = np.nan
    model = SGBRegressor(**SMALL).partial_fit(X[:50], y, sample_weight=~np.isnan(y))
    assert model.n_samples_seen_ == 48
    with pytest.raises(ValueError, match="target in row 0 is nan"):
        SGBRegressor(**SMALL).partial_fit(X[:50], y)


def test_sparse_rows_and_arrays_of_encoded_rows_may_weigh_nothing():
    weight = np.arange(50) % 3 > 0
    dense, sparse = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    dense.partial_fit(X[:50], Y[:50], sample_weight=weight)
    sparse.partial_fit(scipy.sparse.csr_array(X[:50]), Y[:50], sample_weight=weight)
    assert same_state(dense, sparse)


def test_a_chunk_that_weighs_nothing_teaches_nothing():
    model = SGBClassifier(**SMALL).fit(X[:100], CLASSES[:100])
    before = flatten(model)
    model.partial_fit(X[100:110], ["other"] * 10, sample_weight=np.zeros(10))
    assert before.keys() == flatten(model).keys()
    assert len(model.learn(X[100:110], CLASSES[100:110], sample_weight=np.zeros(10))) == 10
    assert model.n_samples_seen_ == 100
    assert len(model.classes_) == 2


# Offsets and units


@pytest.mark.parametrize("loss", LOSSES)
@given(offset=st.integers(-(2**50), 2**50).map(float))
@settings(max_examples=8, deadline=None)
def test_an_offset_of_the_targets_is_an_offset_of_the_predictions(loss, offset):
    y = np.round(Y[:200] * 2**10) / 2**10 if abs(offset) < 2**40 else np.round(Y[:200])  # so that sums are exact
    plain, moved = (SGBRegressor(loss, **SMALL).fit(X[:200], target) for target in (y, y + offset))
    assert_array_equal(plain.booster_.replay.y, moved.booster_.replay.y)
    close = {"rtol": 4 * np.finfo(float).eps, "atol": 1e-9}
    assert_allclose(moved.predict(X[200:250]), plain.predict(X[200:250]) + offset, **close)
    stages = zip(moved.staged_predict(X[:5]), plain.staged_predict(X[:5]), strict=True)
    assert all(np.allclose(one, other + offset, **close) for one, other in stages)
    assert_allclose(moved.booster_.predict(X[:5]), plain.booster_.predict(X[:5]) + offset, **close)


@pytest.mark.parametrize("offset", [1e8, 1e9, 1e12])
@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_predictions_are_as_good_at_any_offset(loss, offset):
    plain = SGBRegressor(loss, random_state=0).fit(X, Y).score(X_TEST, Y_TEST)
    moved = SGBRegressor(loss, random_state=0).fit(X, Y + offset).score(X_TEST, Y_TEST + offset)
    assert moved > plain - 0.01


@pytest.mark.parametrize("factor", [2.0**-100, 2.0**100])
@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_the_unit_of_the_targets_is_that_of_the_predictions(loss, factor):
    plain, scaled = (SGBRegressor(loss, **SMALL).fit(X[:300], Y[:300] * f) for f in (1.0, factor))
    assert_allclose(scaled.predict(X[300:400]), plain.predict(X[300:400]) * factor, rtol=1e-9)


@pytest.mark.parametrize("offset", [1e6, 1e9, 1e12])
def test_columns_may_have_an_offset(offset):
    plain = SGBRegressor(random_state=0).fit(X, Y).score(X_TEST, Y_TEST)
    moved = SGBRegressor(random_state=0).fit(X + offset, Y).score(X_TEST + offset, Y_TEST)
    assert moved > plain - 0.01


def test_where_a_part_says_where_to_start_nothing_is_shifted():
    for options in ({"base": 5.0}, {"base": lambda rows: np.full(len(rows), 5.0)}):
        model = SGBRegressor(**SMALL, **options)
        assert model.learn(X[:1], Y[:1])[0] == pytest.approx(5.0)
        assert model.committee_.origin is None
    assert SGBRegressor(**SMALL).fit(X[:5], Y[:5]).committee_.origin == [Y[0]]
    assert SGBRegressor("poisson", **SMALL).fit(X[:5], Y[:5]).committee_.origin is None


# Columns that keep rising


def rising(n, seed, start=0.0, step=1.0):
    rows, target = make_friedman1(n, noise=1.0, random_state=seed)
    return np.column_stack([rows, start + step * np.arange(n)]), target


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_predictions_ahead_of_a_row_number_do_not_run_away(seed):
    rows, target = rising(3000, seed)
    past, ahead = slice(0, 1000), slice(1000, 3000)
    ours = SGBRegressor(random_state=0).fit(rows[past], target[past]).score(rows[ahead], target[ahead])
    theirs = HistGradientBoostingRegressor().fit(rows[past], target[past]).score(rows[ahead], target[ahead])
    assert ours > theirs - 0.03


@pytest.mark.slow
@pytest.mark.parametrize("cv", [2, KFold(5, shuffle=True, random_state=0)], ids=["halves", "shuffled"])
@pytest.mark.parametrize("time", [(0.0, 1.0), (1.7e9, 60.0)], ids=["row number", "unix time"])
def test_folds_of_a_table_with_a_time_column_are_as_good_as_a_batch_learner(time, cv):
    rows, target = rising(4000, 0, *time)
    ours, theirs = (
        cross_val_score(model, rows, target, cv=cv).mean()
        for model in (SGBRegressor(random_state=0), HistGradientBoostingRegressor())
    )
    assert ours > theirs - 0.03


def test_a_trend_is_followed():
    rows, target = rising(3000, 0)
    for trend in (0.02, -0.5):
        said = SGBRegressor(random_state=0).learn(rows, target + trend * np.arange(3000))
        rmse = np.sqrt(np.mean((said[1000:] - target[1000:] - trend * np.arange(1000, 3000)) ** 2))
        assert rmse < 1.5  # the noise alone is 1; without the trend 1.2


def test_beyond_the_range_a_line_goes_on_for_a_tenth_of_it():
    x = np.arange(2000.0)[:, None]
    model = SGBRegressor(readout="last", n_estimators=1, random_state=0).fit(x, 3 * x[:, 0])
    near, edge, far = model.predict([[2100.0], [2198.9], [1e6]])
    assert near == pytest.approx(6300, rel=0.02)
    assert edge == far
    assert far == pytest.approx(3 * 2198.9, rel=0.02)


# Columns of many levels


def people(n, n_levels, seed=0):
    """Rows of a column of levels, each with an effect of its own, and a number."""
    rng = np.random.default_rng(seed)
    codes, effects = rng.integers(n_levels, size=n), 3.0 * rng.normal(size=n_levels)
    x = rng.normal(size=n)
    return [{"who": f"u{code}", "x": v} for code, v in zip(codes, x, strict=True)], effects[codes] + x


@pytest.mark.parametrize("few", [4, 16])
def test_room_for_more_levels_is_made_at_the_row_that_needs_it_however_rows_are_cut(few, monkeypatch):
    monkeypatch.setattr("streamboost.estimators.base.FEW_LEVELS", few)
    rows, target = people(400, 40)
    whole, cut, single = (SGBRegressor(random_state=0, n_estimators=8) for _ in range(3))
    said = whole.learn(rows, target)
    parts = [cut.learn(rows[i : i + 7], target[i : i + 7]) for i in range(0, 400, 7)]
    ones = [single.learn(rows[i : i + 1], target[i : i + 1]) for i in range(400)]
    assert_array_equal(np.concatenate(parts), said)
    assert_array_equal(np.concatenate(ones), said)
    assert same_state(whole.committee_, cut.committee_)


def test_room_for_more_levels_changes_nothing_else(monkeypatch):
    rows, target = people(600, 40)
    usual = SGBRegressor(random_state=0, n_estimators=8).learn(rows, target)
    monkeypatch.setattr("streamboost.estimators.base.FEW_LEVELS", 8)
    model = SGBRegressor(random_state=0, n_estimators=8)
    assert_array_equal(model.learn(rows, target), usual)
    assert model.committee_.n_levels == model.encoder_.max_categories + 1


def test_each_of_two_thousand_levels_is_told_apart():
    rows, target = people(16_000, 2000)
    said = SGBRegressor(random_state=0).learn(rows, target)
    missed = np.sqrt(np.mean((said[8000:] - target[8000:]) ** 2))
    assert missed < 0.5 * target.std()  # half of the levels would be one if there were room for 1,024


def test_a_column_of_few_levels_has_no_room_for_many():
    rows, target = people(500, 40)
    assert SGBRegressor(random_state=0).partial_fit(rows, target).committee_.n_levels == 1025
