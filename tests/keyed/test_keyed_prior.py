"""Keys that start from a shared prior."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from keyed_streams import TINY, fitted_prior, shared_stream, states, tiny
from sklearn.base import clone

from streamboost import KeyedModel, SGBRegressor
from streamboost.keyed import small_classifier, small_regressor
from streamboost.keyed.prior import KeyModel
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import same_state


@pytest.fixture(scope="module")
def prior():
    return fitted_prior()


def test_keys_have_as_many_targets_as_their_prior():
    X, y = np.arange(8.0).reshape(4, 2), np.arange(8.0).reshape(4, 2)
    prior = SGBRegressor(**TINY).fit(pa.table({"a": X[:, 0], "b": X[:, 1]}), y)
    rows = [{"key": "u", "a": 1.0, "b": 2.0}]
    booster = KeyedModel(tiny("regression"), prior=prior, key="key")
    assert booster.predict(rows).shape == (1, 2)
    assert booster.predict([]).shape == (0, 2)
    with pytest.raises(ValueError, match="y has 1 numbers a row, expected 2"):
        booster.learn(rows, [1.0])
    assert booster.n_keys == 0
    assert booster.learn(rows, y[:1]).shape == (1, 2)


def test_new_keys_begin_with_the_answers_of_the_prior(prior):
    X, y = shared_stream(20, 20, seed=2)
    booster = KeyedModel(prior=prior, key="key")
    expected = prior.predict(X.drop_columns(["key"]))
    assert (booster.predict(X) == expected).all()  # of keys nobody knows
    _, first = np.unique(X["key"].to_pylist(), return_index=True)
    said = booster.learn(X, y)
    np.testing.assert_allclose(said[first], expected[first], atol=1e-12)
    assert booster.n_keys == len(first)


def test_a_good_prior_makes_new_keys_better(prior):
    X, y = shared_stream(50, 2000, seed=3)
    errors = []
    for given_prior in (None, prior):
        booster = KeyedModel(prior=given_prior, key="key")
        errors.append(np.sqrt(np.mean((booster.learn(X, y) - y) ** 2)))
    frozen = np.sqrt(np.mean((prior.predict(X.drop_columns(["key"])) - y) ** 2))
    assert errors[1] < 0.5 * errors[0]  # better than without
    assert errors[1] < 0.7 * frozen  # and than the prior alone, as every key has an offset


def test_a_keys_state_does_not_grow_with_the_prior(prior):
    X, y = shared_stream(5, 200, seed=4)
    large = SGBRegressor(random_state=0).fit(X.drop_columns(["key"]), y)
    sizes = {}
    for name, one in (("none", None), ("small", prior), ("large", large)):
        booster = KeyedModel(small_regressor(), prior=one, key="key")
        booster.learn(X, y)
        model = booster.model("k1")
        sizes[name] = len(snapshots.pack(model if one is None else model.model))
    assert len(snapshots.pack(large)) > 10 * len(snapshots.pack(prior))
    assert sizes["large"] == pytest.approx(sizes["small"], rel=0.02)
    assert sizes["small"] < 1.3 * sizes["none"]  # one column more


@pytest.mark.parametrize("kind", ["table", "dicts"])
def test_keys_with_a_prior_are_the_models_fed_by_hand(prior, kind):
    X, y = shared_stream(6, 120, seed=5)
    found = []
    for hot in (1000, 1):
        booster = KeyedModel(prior=prior, hot=hot, key="key")
        said = [booster.learn(part if kind == "table" else part.to_pylist(), y[s : s + 40])
                for s in (0, 40, 80) for part in [X.slice(s, 40)]]  # fmt: skip
        found.append((np.concatenate(said).tolist(), states(booster)))
        model = booster.model("k1")
        own = [i for i, key in enumerate(X["key"].to_pylist()) if key == "k1"]
        rows = X.take(own)
        inputs = rows.drop_columns(["key"])
        if kind == "dicts":
            rows, inputs = rows.to_pylist(), inputs.to_pylist()
        assert (model.predict(inputs) == booster.predict(rows)).all()
    assert found[0] == found[1]
    alone = clone(small_regressor())
    twin = KeyModel(alone, prior)
    alone.base = model.model.base
    for s in (0, 40, 80):
        chunk = X.take([i for i in own if s <= i < s + 40]).drop_columns(["key"])
        if chunk.num_rows:
            twin.learn(chunk if kind == "table" else chunk.to_pylist(), y[[i for i in own if s <= i < s + 40]])
    assert same_state(twin.model, model.model)


def test_a_column_called_as_the_priors_scores_are_is_refused(prior):
    X, y = shared_stream(3, 10)
    X = X.append_column("(prior)", pa.array(y))
    booster = KeyedModel(prior=prior, key="key")
    for rows in (X, X.to_pylist()):
        with pytest.raises(ValueError, match="X has a column called"):
            booster.learn(rows, y)


def test_a_prior_for_classes_declares_them():
    X, y = shared_stream(10, 1500, seed=6)
    labels = np.where(y > 4, "high", np.where(y > 0, "mid", "low"))
    prior = small_classifier().fit(X.drop_columns(["key"]), labels)
    X, y = shared_stream(10, 400, seed=7)
    labels = np.where(y > 4, "high", np.where(y > 0, "mid", "low"))
    labels[300:] = np.where(labels[300:] == "mid", "new", labels[300:])
    booster = KeyedModel(prior=prior, hot=2, key="key")
    np.testing.assert_allclose(booster.predict_proba(X), prior.predict_proba(X.drop_columns(["key"])), atol=1e-12)
    said = booster.learn(X, labels, method="predict_proba")
    assert booster.classes_.tolist() == [*prior.classes_.tolist(), "new"]
    assert said.shape == (400, 4)
    np.testing.assert_allclose(said.sum(axis=1), 1)
    first = np.unique(X["key"].to_pylist(), return_index=True)[1]
    np.testing.assert_allclose(said[first, :3], prior.predict_proba(X.drop_columns(["key"]).take(first)), atol=1e-9)
    right = booster.classes_[said.argmax(axis=1)] == labels
    assert right[:300].mean() > 0.6


def test_a_prior_is_asked_in_the_scores_of_the_loss():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=1000)
    counts = rng.poisson(np.exp(1 + x)).astype(float)
    prior = small_regressor().fit(pa.table({"x": x}), counts)
    booster = KeyedModel(small_regressor(loss="poisson"), prior=prior, key="key")
    said = booster.learn([{"key": i, "x": x[i]} for i in range(20)], counts[:20])
    np.testing.assert_allclose(said, np.maximum(prior.predict(pa.table({"x": x[:20]})), 0), rtol=1e-6)
