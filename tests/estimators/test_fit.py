"""Fit: how far it is, interrupted between two trees, what it predicts on its way, and what it sweeps over."""

import signal

import numpy as np
import pytest

from streamboost import SGBClassifier, SGBRegressor
from streamboost.boosting import critical_section, growth
from streamboost.kernels.progress import WorkMeter
from streamboost.persistence.object_graph import same_state


def table(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    return X, 5 * np.sin(9 * X[:, 0]) * np.sin(9 * X[:, 1]) + X[:, 2] + 0.3 * rng.normal(size=n)


@pytest.fixture
def stages(monkeypatch):
    """The stages of all work, each with the counts that it was told of."""
    stages = []

    def begin(meter, what, total=1, done=float):
        stages.append((what, total, done, []))

    monkeypatch.setattr(WorkMeter, "begin", begin)
    monkeypatch.setattr(WorkMeter, "count", lambda meter, done, total: stages[-1][3].append((done, total)))
    return stages


def test_a_fit_tells_of_its_pass_and_of_every_tree_of_its_sweep(stages):
    model = SGBRegressor(random_state=0).fit(*table())
    assert model.events_[-1].kind == "history studied"
    (first, total, done, _), (second, *_, counts) = stages
    assert (first, total, done()) == ("learning 1,200 rows", 1200, 1200)
    assert second == "sweeping over 1,200 rows"
    n_trees = model.committee_.boosters[0].stack.n_learners
    assert [done for done, _ in counts] == list(range(1, n_trees + n_trees // 3 + 1))
    assert {total for _, total in counts} == {len(counts)}


@pytest.mark.parametrize("kind", [SGBRegressor, SGBClassifier])
@pytest.mark.parametrize("tree", [1, 100, 300])
def test_ctrl_c_between_two_trees_leaves_the_model_as_it_was(kind, tree, monkeypatch):
    X, y = table()
    y = y if kind is SGBRegressor else y > 0
    model, twin = (kind(random_state=0, n_estimators=4, memory="grow").fit(X[:300], y[:300]) for _ in range(2))
    seen = []

    def interrupt(meter, done, total):
        seen.append(done)
        if done == tree:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(WorkMeter, "count", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen[-1] == tree
    assert not critical_section.SECTIONS
    assert not critical_section.LEARNING
    assert same_state(model, twin)
    monkeypatch.undo()
    assert same_state(model.fit(X, y), twin.fit(X, y))


@pytest.mark.parametrize("kind", ["regression", "two", "three"])
def test_fit_learn_is_fit_and_returns_what_a_pass_predicts(kind):
    X, y = table()
    if kind == "regression":
        model, twin, one_pass = (SGBRegressor(random_state=0, n_estimators=4) for _ in range(3))
        assert np.array_equal(model.fit_learn(X, y), one_pass.learn(X, y))
    else:
        y = np.array(["low", "high", "mid"])[np.digitize(y, [0.0] if kind == "two" else [-1.0, 1.0])]
        model, twin, one_pass = (SGBClassifier(random_state=0, n_estimators=4) for _ in range(3))
        prepared = one_pass.prepare(X, y, classes=np.unique(y))
        predicted = model.fit_learn(X, y, method="predict_proba")
        assert np.array_equal(predicted, one_pass.learn_prepared(prepared, method="predict_proba"))
        labels = model.fit_learn(X, y)
        assert np.array_equal(labels[1:], model.classes_[predicted.argmax(axis=1)][1:])
    assert same_state(model, twin.fit(X, y))
    assert model.n_samples_seen_ == len(X)


def test_of_a_table_that_is_too_long_the_newest_rows_are_swept_over(monkeypatch):
    X, y = table(4000)
    monkeypatch.setattr(growth, "MOST_ROWS", 2500)
    model = SGBRegressor(random_state=0, n_estimators=4, max_depth=3).fit(X, y)
    booster = model.committee_.boosters[0]
    assert booster.rests
    assert np.array_equal(booster.replay.newest(4000)[0], X[-2500:])
    assert model.events_[-1].detail.startswith("2,500 rows")
    assert model.n_samples_seen_ == 4000
