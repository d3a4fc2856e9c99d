"""Importances: what they are, told slowly; what they promise; and that permutation importance agrees."""

import copy
import pickle
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.boosting import Booster, importances
from streamboost.dashboard.observation import observe
from streamboost.estimators.describe import describe
from streamboost.losses import Squared
from streamboost.replay import Replay
from streamboost.stacks import LinearStack, TreeStack

SMALL = {"n_estimators": 6, "memory": (512, 64), "random_state": 0}


def rows(n=700, seed=0):
    """Two columns that matter, one of them to trees only, a column of levels, and noise, with values missing."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["line", "bend", "noise"])
    X["place"] = rng.choice(list("uvw"), n)
    y = 2 * X["line"] + X["bend"] ** 2 + (X["place"] == "u") + 0.3 * rng.normal(size=n)
    return X.mask(rng.uniform(size=X.shape) < 0.05), y.to_numpy()


def measured_slowly(model):
    """Exchange one column after the other, and predict."""
    committee = model.committee_
    X, weight = importances.sample_rows(committee.boosters[0].replay)
    said, moved = committee.predict(X), []
    for j in range(X.shape[1]):
        there = X.copy()
        there[:, j] = np.roll(X[:, j], 1)
        moved.append((weight * np.roll(weight, 1)) @ ((committee.predict(there) - said) ** 2).sum(axis=1))
    return np.array(moved) / np.sum(moved)


# What they are


@pytest.mark.pairwise(
    base=["linear", "constant"],
    loss=["auto", "huber", "absolute_error"],
    readout=["hedge", "last", "mean"],
    memory=[(512, 64), 256, None],
)
def test_they_are_shares_in_the_squares_that_predictions_move(base, loss, readout, memory):
    X, y = rows(400)
    model = SGBRegressor(loss, n_estimators=5, memory=memory, base=base, readout=readout, random_state=0)
    weight = np.random.default_rng(1).integers(0, 3, 400).astype(float)
    model.fit(X, y, sample_weight=weight)
    assert_allclose(model.feature_importances_, measured_slowly(model), rtol=1e-5, atol=1e-9)


def test_outputs_are_added_up():
    X, y = rows()
    model = SGBRegressor(**SMALL).fit(X, np.column_stack([y, -3 * X["noise"].fillna(0)]))
    assert_allclose(model.feature_importances_, measured_slowly(model), rtol=1e-3)  # what is held to a range moves less
    assert model.feature_importances_.argmax() == 2


@pytest.mark.parametrize(("loss", "n_classes"), [("auto", 2), ("auto", 3), ("logistic", 2), ("logistic", 3)])
def test_of_classes_it_is_the_probabilities_that_move(loss, n_classes):
    X, y = rows()
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    one = SGBClassifier(loss, **SMALL, readout="last").fit(X, labels)
    assert_allclose(one.feature_importances_, measured_slowly(one), rtol=1e-6)
    hedged = SGBClassifier(loss, **SMALL).fit(X, labels)  # here experts are mixed by their probabilities
    assert_allclose(hedged.feature_importances_, measured_slowly(hedged), atol=0.05)


def test_counts_are_measured_by_their_means():
    X, y = rows()
    counts = np.random.default_rng(0).poisson(np.exp(y / 4))
    model = SGBRegressor("poisson", **SMALL, readout="last").fit(X, counts)
    assert_allclose(model.feature_importances_, measured_slowly(model), rtol=1e-6)


def test_the_parts_of_a_date_are_exchanged_together():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"x": rng.normal(size=600), "at": [datetime(2024, 1, 1) + timedelta(hours=7 * k) for k in range(600)]}
    )
    y = 3.0 * (X["at"].dt.hour >= 12) + 0.5 * X["x"]
    model = SGBRegressor(**SMALL).fit(X, y)
    committee, owners = model.committee_, model.encoder_.owners
    rows, _ = importances.sample_rows(committee.boosters[0].replay)
    moved = [
        committee.score(np.where(owners == j, np.roll(rows, 1, axis=0), rows)) - committee.score(rows) for j in (0, 1)
    ]
    squares = np.square(moved).sum(axis=(1, 2))
    assert_allclose(model.feature_importances_, squares / squares.sum(), rtol=1e-3)
    assert model.feature_importances_[1] > 0.7


def test_many_numbers_are_measured_in_blocks(monkeypatch):
    X, y = rows()
    model = SGBRegressor(**SMALL).fit(X, y)
    whole = model.feature_importances_
    monkeypatch.setattr(importances, "BLOCK", 100)  # 25 rows: in each of them the first comes after the last
    assert_allclose(model.feature_importances_, whole, atol=0.05)
    monkeypatch.setattr(importances, "BLOCK", 1)
    assert model.feature_importances_.sum() == pytest.approx(1.0)


# What they promise


def test_a_booster_by_itself_has_them_too():
    X, y, *_ = datasets.friedman(600)
    booster = Booster(Squared(), stack=TreeStack(8, max_depth=3), replay=Replay(512))
    assert booster.feature_importances().tolist() == []
    booster.learn(X, y)
    shares = booster.feature_importances()
    assert shares[:5].min() > shares[5:].max()
    assert booster.feature_importances(np.zeros(10, int)).tolist() == [1.0]
    assert Booster(Squared(), stack=LinearStack(2)).feature_importances() is None
    assert set(observe(booster, rows=600, running={}, windowed={}, rows_per_second=None)["importances"]) >= set("01234")


def test_asking_changes_nothing_and_gives_the_same_again():
    X, y = rows()
    for model, target in ((SGBRegressor(**SMALL), y), (SGBClassifier(**SMALL), y > 0)):
        model.fit(X, target)
        before, twin = pickle.dumps(model), copy.deepcopy(model)
        first, again = model.feature_importances_, model.feature_importances_
        assert_array_equal(first, again)
        assert_array_equal(first, twin.feature_importances_)
        assert pickle.dumps(model) == before
        assert (first >= 0).all()
        assert first.sum() == pytest.approx(1.0)


def test_everybody_who_tells_them_tells_the_same():
    X, y = rows()
    model = SGBRegressor(**SMALL).fit(X, y)
    shares = dict(zip(X.columns, model.feature_importances_.tolist(), strict=True))
    assert describe(model)["importances"] == shares
    seen = observe(model, rows=700, running={}, windowed={}, rows_per_second=None)["importances"]
    assert seen == pytest.approx({name: share for name, share in shares.items() if share > 0}, rel=1e-3)
    assert list(seen) == sorted(seen, key=seen.get, reverse=True)


def test_where_nothing_was_learned_all_are_0():
    model = SGBRegressor(**SMALL)
    model.learn_one({"a": 1.0, "b": "x"}, 0.0)
    assert model.feature_importances_.tolist() == [0.0, 0.0]
    model.learn([{"a": float(k), "b": "xy"[k % 2]} for k in range(100)], np.zeros(100))
    assert model.feature_importances_.tolist() == [0.0, 0.0]
    empty = SGBRegressor(**SMALL)
    empty.learn_one({}, 1.0)
    assert empty.feature_importances_.shape == (0,)


def test_new_columns_start_at_0():
    X, y = rows(100)
    model = SGBRegressor(**SMALL)
    model.learn_many(X, y)
    model.learn_one({"line": 1.0, "new": 3.0}, 2.0)
    assert model.feature_importances_.shape == (5,)
    assert model.feature_importances_[4] < 0.01


def test_rows_of_weight_0_do_not_count():
    X = np.random.default_rng(0).normal(size=(400, 2))
    y, weight = X[:, 0] + 0.1 * X[:, 1], np.ones(400)
    weight[::2], X[1::2, 1] = 0.0, 7.0  # where rows count, the second column is always the same
    assert SGBRegressor(**SMALL).fit(X, y, sample_weight=weight).feature_importances_.tolist() == [1.0, 0.0]


def test_a_column_with_a_rhythm_is_not_missed():
    t = np.arange(2048)
    X = np.column_stack([t % 2, t // 2 % 4, np.random.default_rng(0).normal(size=2048)]).astype(float)
    model = SGBRegressor(n_estimators=6, memory=2048, random_state=0).fit(X, X[:, 0] + np.sin(2 * X[:, 1]))
    assert model.feature_importances_[:2].min() > 0.3


def test_a_frozen_base_is_not_asked_and_trees_tell_what_they_correct():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = 3 * X[:, 0] + 2 * np.abs(X[:, 1])
    asked = []
    line = LinearRegression().fit(X, 3 * X[:, 0])
    model = SGBRegressor(base=lambda X: asked.append(len(X)) or line.predict(X), **SMALL).fit(X, y)
    asked.clear()
    assert model.feature_importances_.argmax() == 1
    assert model.feature_importances_[0] < 0.1
    assert asked == []


def test_on_a_constant_trees_alone_tell():
    X, y, *_ = datasets.friedman(1500)
    model = SGBRegressor(base="constant", memory=2048, n_estimators=20, random_state=0).fit(X, y)
    gains = model.booster_.stack.feature_gains()
    assert spearmanr(model.feature_importances_[:5], gains[:5]).statistic > 0.8
    assert model.feature_importances_[:5].min() > model.feature_importances_[5:].max()


# Permutation importance agrees


def mixed(rng, n):
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["signal", *"abc"])
    X["place"] = rng.choice(list("uvw"), n)
    return X, 2 * X["signal"] + 3 * (X["place"] == "u") + rng.normal(size=n), ["signal", "place"]


def friedman(rng, n):
    X, y, *_ = datasets.friedman(n, seed=int(rng.integers(1000)))
    return pd.DataFrame(X), y, [3, 0, 1, 2, 4]


def line(rng, n):
    X = pd.DataFrame(rng.normal(size=(n, 8)) * [1, 10, 0.1, 1, 1, 5, 1, 1])
    return X, X[0] * 3 + X[1] * 0.2 + X[2] * 10 + X[3] * 0.5 + rng.normal(size=n), [0, 1, 2, 3]


def interaction(rng, n):
    X = pd.DataFrame(rng.normal(size=(n, 6)))
    return X, 2 * X[0] * X[1] + 0.5 * rng.normal(size=n), [0, 1]


def three_classes(rng, n):
    X = pd.DataFrame(rng.normal(size=(n, 7)))
    scores = np.column_stack([2 * X[0], 2 * X[1] - X[0], 1.5 * X[2].abs()]) + 0.5 * rng.gumbel(size=(n, 3))
    return X, np.array(["one", "two", "three"])[scores.argmax(axis=1)], [0, 1, 2]


def categories(rng, n):
    X, y = {}, 0.5 * rng.normal(size=n)
    for name, n_levels, size in (("a", 4, 2.0), ("b", 20, 1.0), ("c", 100, 0.7), ("none", 5, 0.0), ("never", 100, 0.0)):
        level = rng.integers(n_levels, size=n)
        X[name] = level.astype(str)
        y += size * np.linspace(-1.7, 1.7, n_levels)[rng.permutation(n_levels)][level]
    X["x"], X["noise"] = rng.normal(size=(2, n))
    return pd.DataFrame(X).rename(columns=str), y + 0.35 * X["x"], ["a", "b", "c", "x"]


@pytest.mark.filterwarnings("ignore:.*numbers.*:UserWarning")  # levels that look like numbers
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stream", [mixed, friedman, line, interaction, three_classes, categories])
def test_permutation_importance_agrees(stream, seed):
    X, y, informative = stream(np.random.default_rng(seed), 2500)
    y = np.asarray(y)
    model = (SGBClassifier if y.dtype.kind == "U" else SGBRegressor)(random_state=seed)
    model.partial_fit(X[:2000], y[:2000])
    theirs = permutation_importance(model, X[2000:], y[2000:], n_repeats=3, random_state=0).importances_mean
    theirs, ours = (
        pd.Series(found, X.columns) for found in (np.maximum(theirs, 0) / theirs.sum(), model.feature_importances_)
    )
    noise = [name for name in X.columns if name not in informative]
    assert ours[informative].min() > 1.5 * ours[noise].max()
    for a in informative:
        for b in informative:
            if theirs[a] > 1.5 * theirs[b]:
                assert ours[a] > ours[b]
    assert (ours - theirs).abs().sum() < 0.4
