"""Both dialects on one state; errors that change nothing."""

import copy
import math
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, SGDRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import cross_val_predict

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.descents import AdaGrad, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.estimators.parameters import ELSEWHERE
from streamboost.losses import Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.persistence.object_graph import same_state

SMALL = {"n_estimators": 5, "max_depth": 3, "memory": (64, 256)}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    return X, X[:, 0] * X[:, 1] + 2 * X[:, 2] + 0.1 * rng.normal(size=300)


@pytest.fixture
def labelled(rows):
    X, y = rows
    return X, np.array(["low", "mid", "high"])[np.digitize(y, [-1, 1])]


# One state, two dialects


def test_both_dialects_say_the_same_of_the_same_rows(rows):
    X, y = rows
    ours, rivers = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    ours.partial_fit(X, y)
    for x, target in zip(X, y, strict=True):
        rivers.learn_one(dict(enumerate(x)), target)
    queries = [rivers.predict_one(dict(enumerate(x))) for x in X[:20]]
    np.testing.assert_array_equal(ours.predict(X[:20]), queries)


def test_dialects_can_be_mixed_mid_stream(rows):
    X, y = rows
    names = list("abcd")
    frame = pd.DataFrame(X, columns=names)
    mixed, plain = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    mixed.partial_fit(frame[:100], y[:100])
    for record, target in zip(frame[100:200].to_dict("records"), y[100:200], strict=True):
        mixed.learn_one(record, target)
    mixed.learn_many(frame[200:], pd.Series(y[200:]))
    plain.partial_fit(frame, y)
    np.testing.assert_array_equal(mixed.predict(frame), plain.predict(frame))


def test_a_chunk_is_learned_exactly_as_row_by_row(labelled):
    X, y = labelled
    at_once, by_row = SGBClassifier(**SMALL, random_state=0), SGBClassifier(**SMALL, random_state=0)
    together = at_once.learn(X, y, method="predict_proba")
    apart = [by_row.learn(X[t : t + 1], y[t : t + 1], method="predict_proba") for t in range(len(X))]
    for t, row in enumerate(apart):
        np.testing.assert_array_equal(together[t, : row.shape[1]], row[0])
    assert same_state(at_once.booster_, by_row.booster_)


def test_learn_returns_what_predict_would_have_said(labelled):
    X, y = labelled
    model = SGBClassifier(**SMALL).partial_fit(X[:200], y[:200])
    for t in range(200, 220):
        before = model.predict(X[t : t + 1])
        assert model.learn(X[t : t + 1], y[t : t + 1])[0] == before[0]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table, lambda c: pd.DataFrame(c).to_dict("records")])
def test_every_kind_of_frame_gives_the_same_model(rows, frame):
    X, y = rows
    columns = {name: X[:, j] for j, name in enumerate("abcd")}
    model = SGBRegressor(**SMALL).fit(frame(columns), y)
    expected = SGBRegressor(**SMALL).fit(X, y).predict(X)
    np.testing.assert_array_equal(model.predict(frame(columns)), expected)
    assert list(model.feature_names_in_) == list("abcd")


def test_a_polars_frame_has_names_without_the_protocol_that_polars_2_gave_up(rows, monkeypatch):
    monkeypatch.delattr(pl.DataFrame, "__dataframe__", raising=False)
    X, y = rows
    frame = pl.DataFrame({name: X[:, j] for j, name in enumerate("abcd")})
    model = SGBRegressor(**SMALL).fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), SGBRegressor(**SMALL).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(frame.select("b", "a", "c", "d"))


def test_text_and_missing_values_are_handled():
    rng = np.random.default_rng(1)
    city = rng.choice(["Graz", "Bonn", "Linz"], 600)
    size = rng.normal(size=600)
    y = np.where(city == "Bonn", 3.0, -1.0) + size
    size[rng.uniform(size=600) < 0.2] = np.nan
    frame = pd.DataFrame({"city": city, "size": size})
    model = SGBRegressor().fit(frame, y)
    asked = pd.DataFrame({"city": ["Bonn", "Graz", None], "size": [0.0, 0.0, np.nan]})
    bonn, graz, unknown = model.predict(asked)
    assert bonn - graz > 2
    assert np.isfinite(unknown)


def test_new_columns_may_come_with_dict_rows(rows):
    X, y = rows
    model = SGBRegressor(**SMALL)
    for x, target in zip(X[:150], y[:150], strict=True):
        model.learn_one({"a": x[0]}, target)
    before = model.predict_one({"a": 0.3})
    assert model.predict_one({"a": 0.3, "b": 9.0}) == before  # not known yet
    for x, target in zip(X[150:], y[150:], strict=True):
        model.learn_one({"a": x[0], "b": x[2]}, target)
    assert model.n_features_in_ == 2
    assert model.predict_one({"a": 0.3, "b": 2.0}) > model.predict_one({"a": 0.3, "b": -2.0})


def test_frames_may_bring_new_columns_only_if_told_so(rows):
    X, y = rows
    narrow, wide = pd.DataFrame(X[:, :2], columns=["a", "b"]), pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="feature names"):
        SGBRegressor(**SMALL).partial_fit(narrow, y).partial_fit(wide, y)
    model = SGBRegressor(**SMALL, new_columns="grow").partial_fit(narrow, y).partial_fit(wide, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]


# Classes


def test_new_classes_may_appear_and_old_predictions_are_unharmed():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] > 0, "a", "b")
    model = SGBClassifier(**SMALL).partial_fit(X, y)
    before = model.predict_proba(X)
    model.partial_fit(np.array([[9.0, 9.0]]), ["c"])
    after = model.predict_proba(X)
    assert set(model.classes_) == {"a", "b", "c"}
    assert after.shape == (400, 3)
    assert after[:, 2].max() < 0.05
    assert np.abs(after[:, :2] - before).mean() < 0.02
    for _ in range(100):
        model.partial_fit(np.array([[9.0, 9.0]]), ["c"])
    assert model.predict([[9.0, 9.0]])[0] == "c"


def test_classes_can_be_declared_and_are_sorted(labelled):
    X, y = labelled
    model = SGBClassifier(**SMALL).partial_fit(X[:1], y[:1], classes=["mid", "low", "high"])
    assert list(model.classes_) == ["high", "low", "mid"]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_the_first_row_of_a_stream_is_predicted_as_nothing(labelled):
    X, y = labelled
    model = SGBClassifier(**SMALL)
    before = model.learn(X[:10], y[:10])
    assert before[0] is None
    assert set(before[1:]) <= set(y[:10])
    assert SGBClassifier().predict_one({"a": 1}) is None
    assert SGBClassifier().predict_proba_one({"a": 1}) == {}
    assert SGBRegressor().predict_one({"a": 1}) == 0.0


@pytest.mark.parametrize("labels", [[True, False], ["x", "y"], [1, 2], [1.0, 2.0]])
def test_labels_come_back_as_they_were(labels):
    model = SGBClassifier(**SMALL)
    for t in range(100):
        model.learn_one({"a": t % 2}, labels[t % 2])
    assert model.predict_one({"a": 0}) == labels[0]
    assert type(model.predict_one({"a": 1})) is type(labels[1])
    assert model.predict_proba_one({"a": 1})[labels[1]] > 0.8


@pytest.mark.parametrize(
    "loss", ["logistic", "hinge", Logistic(l2=0.01), Hinge(l2=0.01), "log_loss", Softmax(n_classes=3)]
)
def test_every_classification_loss_learns_three_classes(labelled, loss):
    X, y = labelled
    model = SGBClassifier(loss, **SMALL | {"n_estimators": 20}).fit(X, y)
    assert model.score(X, y) > 0.6
    assert model.decision_function(X).shape == (300, 3)
    assert hasattr(model, "predict_proba") is (getattr(loss, "name", loss) != "hinge")


@pytest.mark.parametrize("loss", ["log_loss", "logistic"])
@pytest.mark.parametrize("n_classes", [1, 2, 4])
def test_log_probabilities_are_those_of_the_probabilities_and_finite_where_these_are_0(loss, n_classes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.arange(200) % n_classes
    model = SGBClassifier(loss, n_estimators=3, memory=64, random_state=0).fit(X, y)
    logs = model.predict_log_proba(X)
    assert logs.shape == (200, n_classes)
    np.testing.assert_allclose(np.exp(logs), model.predict_proba(X), rtol=1e-12)
    shape = model.raw_scores(X[:1]).shape
    far = model._log_probabilities(np.where(np.arange(shape[1]) % 2, -2000.0, 2000.0)[None])
    assert np.isfinite(far).all()
    if n_classes > 1:
        assert far.min() <= -2000.0
        assert (model._probabilities(np.where(np.arange(shape[1]) % 2, -2000.0, 2000.0)[None]) == 0.0).any()


def test_log_probabilities_are_there_where_probabilities_are():
    assert not hasattr(SGBClassifier("hinge"), "predict_log_proba")
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3
    said = cross_val_predict(SGBClassifier(n_estimators=2, memory=32), X, y, cv=3, method="predict_log_proba")
    np.testing.assert_allclose(np.exp(said).sum(axis=1), 1.0)


def test_a_margin_loss_has_room_for_the_classes_it_was_told_of(labelled):
    X, y = labelled
    model = SGBClassifier("hinge", **SMALL).partial_fit(X[y != "mid"], y[y != "mid"])
    state = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"'mid'.*room for 2 classes.*log_loss"):
        model.partial_fit(X, y)
    assert same_state(model, state)
    with pytest.raises(NotImplementedError, match="no probabilities"):
        model.predict_proba_one({0: 1.0})


# Parameters


@pytest.mark.parametrize(
    ("given", "meant"), [("n_estimator", "n_estimators"), ("n_trees", "n_estimators"), ("eta", "learning_rate")]
)
def test_an_unknown_parameter_is_refused_with_the_one_that_was_meant(given, meant):
    for Model in (SGBRegressor, SGBClassifier):
        with pytest.raises(TypeError, match=f"^{Model.__name__} has no parameter '{given}'. Did you mean '{meant}'"):
            Model(**{given: 5})
        with pytest.raises(ValueError, match=f"^{Model.__name__} has no parameter '{given}'. Did you mean '{meant}'"):
            Model().set_params(**{given: 5})
    assert SGBRegressor(learner=SGDRegressor()).set_params(n_estimators=5, learner__alpha=0.5).learner.alpha == 0.5
    with pytest.raises(TypeError, match=r"SGBRegressor has no parameter 'zzz'\. There are loss, n_estimators, "):
        SGBRegressor(zzz=1)
    with pytest.raises(TypeError, match="SGBRegressor takes its loss alone without a name"):
        SGBRegressor("auto", 5)


def test_names_of_other_libraries_lead_to_parameters_that_there_are():
    assert set(ELSEWHERE.values()) <= set(SGBRegressor().get_params())
    assert not set(ELSEWHERE) & set(SGBRegressor().get_params())


@pytest.mark.parametrize(
    "loss", ["squared_error", "absolute_error", "huber", "quantile", Quantile(0.9), Huber(delta=0.5), Squared(l2=0.001)]
)
def test_every_regression_loss_beats_the_constant(rows, loss):
    X, y = rows
    model = SGBRegressor(loss, n_estimators=20, max_depth=3, memory=512).fit(X, y)
    own = model.booster_.loss
    constant = np.tile(own.start(y[:, None]), (300, 1))
    assert own.mean(model.predict(X)[:, None], y[:, None]) < 0.8 * own.mean(constant, y[:, None])


def test_poisson_predicts_counts():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 2))
    mean = 50 * np.exp(2 * X[:, 0])
    model = SGBRegressor("poisson", n_estimators=20).fit(X, rng.poisson(mean))
    assert (model.predict(X) > 0).all()
    assert np.corrcoef(model.predict(X), mean)[0, 1] > 0.9
    assert isinstance(model.booster_.loss, Poisson)


def steep_counts(n, seed):
    """Counts whose means lie between a tenth and a hundred."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, rng.poisson(np.exp(1 + X[:, 0] + 0.8 * np.tanh(2 * X[:, 1]) + 0.8 * X[:, 2] * (X[:, 3] > 0)))


def test_poisson_is_as_good_in_one_pass_as_batch_boosting_under_the_same_loss():
    (X, y), (asked, right) = steep_counts(4000, 0), steep_counts(2000, 1)
    deviance = [
        mean_poisson_deviance(right, model.fit(X, y).predict(asked))
        for model in (PoissonRegressor(), HistGradientBoostingRegressor(loss="poisson"))
    ]
    ours = mean_poisson_deviance(right, SGBRegressor("poisson", random_state=0).partial_fit(X, y).predict(asked))
    assert ours < 0.8 * deviance[0]
    assert ours < 1.05 * deviance[1]


def test_rare_counts_do_not_overshoot():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 10))
    y = rng.poisson(np.exp(-2 + 0.6 * X[:, 0]))
    said = SGBRegressor("poisson", random_state=0).learn(X, y)
    assert said[500:].max() < 10 * y.max()
    assert mean_poisson_deviance(y[500:], said[500:]) < mean_poisson_deviance(y[500:], np.full(2500, y.mean()))


class OwnPoisson(Poisson):
    """A loss of one's own, which the compiled loop does not know."""


def test_a_loss_of_ones_own_that_tells_its_curvature_is_learned_by_newton_steps():
    X, y = steep_counts(200, 0)
    ours = SGBRegressor(OwnPoisson(), n_estimators=6, random_state=0).learn(X, y)
    assert_allclose(ours, SGBRegressor("poisson", n_estimators=6, random_state=0).learn(X, y), rtol=1e-6)


@pytest.mark.parametrize(
    "descent",
    [GradientDescent(0.3), ResidualProjection(1.0), FrankWolfe(), Nesterov(), AdaGrad(), GradientDescent("theory")],
)
def test_every_descent_can_be_chosen(rows, descent):
    X, y = rows
    model = SGBRegressor(descent=descent, **SMALL).fit(X, y)
    assert model.score(X, y) > 0.5
    assert model.booster_.descent == descent


def test_under_a_non_smooth_loss_trees_take_gradient_steps_and_others_algorithm_2(rows):
    X, y = rows
    assert isinstance(SGBRegressor("absolute_error", **SMALL).fit(X, y).booster_.descent, GradientDescent)
    others = SGBRegressor("absolute_error", learner="linear", **SMALL).fit(X, y)
    assert isinstance(others.booster_.descent, ResidualProjection)
    chosen = SGBRegressor("absolute_error", descent=ResidualProjection(), **SMALL).fit(X, y)
    assert isinstance(chosen.booster_.descent, ResidualProjection)


@pytest.mark.parametrize("loss", ["absolute_error", "huber"])
def test_under_heavy_tails_a_robust_loss_has_the_least_absolute_error(loss):
    rng = np.random.default_rng(0)
    X = rng.random((6000, 6))
    signal = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y = signal + 1.5 * rng.standard_t(1.5, 6000)
    before, after = slice(0, 4000), slice(4000, None)
    batch = HistGradientBoostingRegressor(loss="absolute_error").fit(X[before], y[before]).predict(X[after])
    errors = [
        np.abs(SGBRegressor(name, random_state=0).partial_fit(X[before], y[before]).predict(X[after]) - signal[after])
        for name in (loss, "squared_error")
    ]
    assert errors[0].mean() < 0.7 * errors[1].mean()
    assert errors[0].mean() < 1.1 * np.abs(batch - signal[after]).mean()


def test_several_outputs_are_learned_together(rows):
    X, y = rows
    both = np.column_stack([y, -3 * y])
    model = SGBRegressor(n_estimators=20, max_depth=3).fit(X, both)
    prediction = model.predict(X)
    assert prediction.shape == (300, 2)
    assert np.corrcoef(prediction[:, 1], both[:, 1])[0, 1] > 0.9
    assert len(model.predict_one(dict(enumerate(X[0])))) == 2


def test_a_fitted_batch_model_is_boosted_from(rows):
    X, y = rows
    batch = RandomForestRegressor(20, random_state=0).fit(X[:100], y[:100])
    model = SGBRegressor(base=batch, **SMALL)
    np.testing.assert_allclose(model.learn(X[100:101], y[100:101]), batch.predict(X[100:101]))
    classifier = LogisticRegression().fit(X[:100], y[:100] > 0)
    model = SGBClassifier(base=classifier, **SMALL)
    model.partial_fit(X[100:101], y[100:101] > 0, classes=[False, True])
    np.testing.assert_allclose(model.predict_proba(X), classifier.predict_proba(X), atol=1e-3)  # one row was learned


def test_anyones_regressor_can_be_the_weak_learner(rows):
    X, y = rows
    model = SGBRegressor(learner=SGDRegressor(random_state=0), base="constant", n_estimators=5, learning_rate=0.5).fit(
        X, y
    )
    assert model.score(X, y) > 0.5
    linear = SGBRegressor(learner="linear", base=0, learning_rate=0.5, n_estimators=8).fit(X, y)
    assert linear.score(X, y) > 0.5


def test_staged_predictions_end_at_the_prediction(rows, labelled):
    X, y = rows
    model = SGBRegressor(**SMALL).fit(X, y)
    stages = list(model.staged_predict(X))
    assert len(stages) == 5
    np.testing.assert_allclose(stages[-1], model.predict(X), rtol=1e-12, atol=1e-12)
    X, y = labelled
    classifier = SGBClassifier(**SMALL).fit(X, y)
    np.testing.assert_allclose(list(classifier.staged_predict_proba(X))[-1], classifier.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(list(classifier.staged_predict(X))[-1], classifier.predict(X))


def test_importances_and_edges_tell_what_matters(rows):
    X, y = rows
    model = SGBRegressor(base="constant", n_estimators=20, max_depth=3).fit(X, y)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_.argmin() == 3
    assert model.edges_.shape == (20 + 13 + 7 + 3,)  # the longest memory first
    assert model.edges_[0] > 0.3


# Copies


def test_clone_pickle_and_save_round_trip_exactly(labelled, tmp_path):
    X, y = labelled
    model = SGBClassifier(**SMALL, random_state=3).fit(X[:200], y[:200])
    again = clone(model).fit(X[:200], y[:200])
    pickled = pickle.loads(pickle.dumps(model))
    model.save(tmp_path / "model.sb")
    loaded = streamboost.load(tmp_path / "model.sb")
    for other in (again, pickled, loaded):
        assert same_state(model, other)
    expected = model.learn(X[200:], y[200:], method="predict_proba")
    for other in (again, pickled, loaded):
        np.testing.assert_array_equal(other.learn(X[200:], y[200:], method="predict_proba"), expected)
        assert same_state(model, other)


def test_predicting_changes_nothing(labelled):
    X, y = labelled
    model = SGBClassifier(**SMALL, iterate="average").fit(X, y)
    state = copy.deepcopy(model)
    model.predict(X), model.predict_proba(X), model.decision_function(X), list(model.staged_predict(X))
    model.predict_one({0: 1.0}), model.predict_proba_one({2: 1.0}), model.predict_many(pd.DataFrame(X))
    assert same_state(model, state)


# Bad input: an error in plain words, and the state as it was

BAD_CHUNKS = {
    "wrong width": (lambda X, y: (X[:, :2], y, None), "X has 2 features, but SGBRegressor is expecting 4"),
    "one dimension": (lambda X, y: (X[0], y, None), "Expected 2D array, got 1D array instead"),
    "no rows": (lambda X, y: (X[:0], y[:0], None), "X is empty.*0 sample.*Skip empty chunks"),
    "text for numbers": (lambda X, y: (np.full(X.shape, "a", dtype=object), y, None), "column"),
    "wrong dtype": (lambda X, y: (X + 1j, y, None), "Complex data not supported"),
    "infinity": (lambda X, y: (np.full_like(X, np.inf), y, None), "infinity"),
    "target nan": (lambda X, y: (X, np.where(y == y[3], np.nan, y), None), "row 3 is nan.*Drop the row"),
    "target infinite": (lambda X, y: (X, np.where(y == y[3], np.inf, y), None), "row 3 is inf"),
    "target text": (lambda X, y: (X, ["a"] * len(y), None), "y holds something that is not a number.*SGBClassifier"),
    "target of two columns": (lambda X, y: (X, np.column_stack([y, y]), None), r"shape \(300, 2\), expected \(n, 1\)"),
    "target missing": (lambda X, y: (X, None, None), "requires y to be passed"),
    "too few targets": (lambda X, y: (X, y[:5], None), "y has 5 rows and X has 300"),
    "negative weight": (lambda X, y: (X, y, np.r_[-1.0, np.ones(299)]), r"sample_weight in row 0 is -1.0.*weigh it 0"),
    "weight nan": (lambda X, y: (X, y, np.r_[np.nan, np.ones(299)]), "sample_weight in row 0 is nan"),
    "too few weights": (lambda X, y: (X, y, np.ones(7)), r"sample_weight has shape \(7,\), expected \(300,\)"),
}


GOOD_FOR_A_FRESH_START = {"wrong width", "text for numbers", "target of two columns"}


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        (name, verb)
        for name in BAD_CHUNKS
        for verb in ("partial_fit", "learn", "fit")
        if not (verb == "fit" and name in GOOD_FOR_A_FRESH_START)
    ],
)
def test_a_refused_chunk_leaves_the_model_as_it_was(rows, name, verb):
    X, y = rows
    model = SGBRegressor(**SMALL).partial_fit(X, y)
    state = copy.deepcopy(model)
    spoil, words = BAD_CHUNKS[name]
    with pytest.raises((ValueError, TypeError), match=f"(?s){words}"):
        getattr(model, verb)(*spoil(X, y))
    assert same_state(model, state)
    np.testing.assert_array_equal(model.partial_fit(X, y).predict(X), state.partial_fit(X, y).predict(X))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1] * 300, "row 0 is 1, a number, but labels so far were of kind string"),
        ([True] * 300, "a boolean, but labels so far were of kind string"),
        ([1.5] * 300, "Unknown label type.*SGBRegressor"),
        ([None] * 300, "Unknown label type"),
    ],
)
def test_a_label_type_that_changed_is_refused(labelled, labels, words):
    X, y = labelled
    model = SGBClassifier(**SMALL).partial_fit(X, y)
    state = copy.deepcopy(model)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, labels)
    assert same_state(model, state)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_estimators": 0}, "^n_estimators is 0, expected a whole number of at least 1"),
        ({"learning_rate": 0.0}, "^learning_rate is 0.0, expected a finite number above 0"),
        ({"learning_rate": -0.1}, "^learning_rate is -0.1"),
        ({"learning_rate": 0.0, "loss": "absolute_error"}, "^learning_rate is 0.0"),
        ({"max_depth": 0}, "max_depth is 0"),
        ({"min_samples_leaf": 0}, "min_samples_leaf is 0"),
        ({"memory": 0}, "^memory is 0"),
        ({"monotonic_cst": [2, 0, 0, 0]}, r"^monotonic_cst is \[2, 0, 0, 0\], expected for each column -1, 0 or 1"),
        ({"learner": Ridge}, r"^learner is the class Ridge, expected an instance of it"),
        ({"base": Ridge}, r"^base is the class Ridge, expected an instance of it"),
        ({"budget": 0}, "budget is 0"),
        ({"loss": "log_loss"}, "loss is 'log_loss'.*SGBClassifier"),
        ({"loss": "sqared"}, "loss is 'sqared', expected one of 'squared_error'"),
        ({"learner": "forest"}, "learner is 'forest', expected 'tree'"),
        ({"base": "mean"}, "base is 'mean', expected 'linear'"),
        ({"iterate": "best"}, "iterate is 'best'"),
        ({"update_mode": "batch"}, "update_mode is 'batch'"),
        ({"new_columns": "yes"}, "new_columns is 'yes'"),
        ({"descent": "sgd"}, "descent is 'sgd'.*GradientDescent"),
        ({"descent": GradientDescent(0.1), "learning_rate": 0.1}, "learning_rate is 0.1 beside a descent"),
    ],
)
def test_a_bad_parameter_is_named_before_anything_is_learned(rows, parameters, words):
    model = SGBRegressor(**parameters)
    with pytest.raises((ValueError, TypeError), match=words):
        model.fit(*rows)
    with pytest.raises(NotFittedError):
        model.predict(rows[0])


PARAMETERS = sorted(SGBRegressor().get_params().keys() - {"semantics"})
NONSENSE = [-1, 0, 1.5, "bad", None, True, math.nan, math.inf, [], [7], {}, (256, -1), object()]


@pytest.mark.pairwise(make=[SGBRegressor, SGBClassifier], name=PARAMETERS, learner=["tree", "mlp", Ridge()])
def test_a_value_that_is_refused_is_refused_by_the_name_it_was_given_under(make, name, learner):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.arange(30) % 2
    refusals = {}
    for place, value in enumerate(NONSENSE):
        model = make(**{"n_estimators": 6, "memory": 64, "learner": learner, name: value})
        try:
            model.fit(X, y)
        except (ValueError, TypeError) as error:
            refusals[place] = str(error)
        assert hasattr(model, "committee_") == (place not in refusals)
    assert [words for words in refusals.values() if not re.match(rf"{name} (is|has)\b", words)] == []
    assert refusals or (name in ("max_depth", "min_samples_leaf", "l2", "max_features") and learner != "tree")


def test_any_kind_of_number_is_a_learning_rate_for_all_memories():
    steps = {
        kind: [booster.descent.step_size for booster in made.committee_.boosters]
        for kind in (float, np.float32, np.float64)
        for made in [SGBRegressor(learning_rate=kind(0.25), memory=(64, 32)).fit([[1.0], [2.0]], [1.0, 2.0])]
    }
    assert steps[float] == steps[np.float32] == steps[np.float64] == [0.25, 0.5]


def test_predicting_before_learning_is_an_error_in_scikit_learns_dialect():
    for model in (SGBRegressor(), SGBClassifier()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            model.predict([[1.0]])


@pytest.mark.parametrize("Model", [SGBRegressor, SGBClassifier])
def test_rows_before_the_first_column_are_learned_as_rows_with_everything_missing(Model, rows):
    X, y = rows
    y = np.round(y / 4) + 0.0  # no -0.0
    dicts = [{} for _ in range(40)] + [{"a": x[0]} | ({"b": f"{x[1]:.0f}"} if t % 3 else {}) for t, x in enumerate(X)]
    targets = np.concatenate([y[:40], y])
    by_row, at_once, wide = (Model(**SMALL, random_state=0) for _ in range(3))
    for x, target in zip(dicts, targets, strict=True):
        by_row.learn_one(x, target)
    at_once.learn(dicts, targets)
    wide.learn_one({"a": None, "b": None}, targets[0])  # the columns are known, and have no value yet
    wide.learn(dicts[1:], targets[1:])
    assert same_state(by_row.encoder_, at_once.encoder_)
    assert by_row.events_ == at_once.events_
    for other in (at_once, wide):
        np.testing.assert_array_equal(by_row.raw_scores(dicts), other.raw_scores(dicts))
    assert by_row.predict_one({}) == wide.predict_one({})


def test_without_any_column_the_mean_is_learned(tmp_path):
    model, labels = SGBRegressor(random_state=0), SGBClassifier(random_state=0)
    for t in range(200):
        model.learn_one({}, 5.0 + (-1) ** t)
        labels.learn_one({}, "rare" if t % 10 == 0 else "common")
    assert model.predict_one({}) == pytest.approx(5.0, abs=0.3)
    assert labels.predict_proba_one({})["rare"] == pytest.approx(0.1, abs=0.05)
    assert model.predict_one({"new": 3.0}) == model.predict_one({}) == model.predict([{}])[0]
    model.save(tmp_path / "model")
    loaded = streamboost.load(tmp_path / "model")
    for each in (model, loaded):
        each.learn(np.ones((3, 2)), [1.0, 2.0, 3.0])  # columns may come as an array, too
    assert same_state(model, loaded)
    assert model.n_features_in_ == 2


def test_a_bad_dict_row_changes_nothing(labelled):
    model = SGBClassifier(**SMALL)
    for t in range(50):
        model.learn_one({"a": t, "b": "x"}, t % 2)
    state = copy.deepcopy(model)
    for x, y, words in [
        ({"a": "text"}, 1, "'a'"),
        ({"b": 5.0}, 1, "'b'"),
        ({"a": np.inf}, 1, "infinity"),
        ({"new": [1]}, 1, "new"),
        ({"a": 1, "new": 2}, "text", "kind number"),
        ({"a": 1, "new": 2}, 1.5, "Unknown label type"),
    ]:
        with pytest.raises((ValueError, TypeError), match=words):
            model.learn_one(x, y)
        assert same_state(model, state)
    with pytest.raises(ValueError, match="sample_weight in row 0 is -1"):
        model.learn_one({"a": 1}, 1, w=-1)
    assert same_state(model, state)


def test_constraints_the_first_rows_cannot_meet_leave_the_model_unlearned(rows):
    X, y = rows
    model = SGBRegressor(**SMALL, monotonic_cst=[1, 0])
    with pytest.raises(ValueError, match="monotonic_cst has shape"):
        model.partial_fit(X, y)
    assert not hasattr(model, "committee_")
    model.set_params(monotonic_cst=[1, 0, 0, 0]).partial_fit(X, y)
    along = np.tile(X[0], (50, 1))
    along[:, 0] = np.linspace(-3, 3, 50)
    assert (np.diff(model.predict(along)) >= 0).all()


def test_a_third_class_under_a_constraint_is_refused_and_nothing_is_lost(labelled):
    X, y = labelled
    two = y != "mid"
    model = SGBClassifier(**SMALL, monotonic_cst=[0, 0, 1, 0]).partial_fit(X[two], y[two])
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="expected two classes"):
        model.partial_fit(X, y)
    assert same_state(model, before)


def test_text_in_a_column_with_a_sign_is_refused_and_nothing_is_lost():
    model = SGBRegressor(**SMALL, monotonic_cst={"a": 1})
    for t in range(20):
        model.learn_one({"a": None, "b": float(t)}, float(t))
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="column 'a' holds text"):
        model.learn_one({"a": "high", "b": 1.0}, 1.0)
    assert same_state(model, before)


def test_a_new_column_beyond_the_memory_limit_is_refused_and_nothing_is_lost(rows):
    X, y = rows
    with pytest.warns(UserWarning, match="memory_limit_mb"):
        model = SGBRegressor(memory_limit_mb=1.2).partial_fit(X, y)
    width, queries = model.n_features_in_, model.predict(X[:5])
    with pytest.raises(ValueError, match="memory_limit_mb is"):
        model.learn_one(dict.fromkeys(range(4000), 1.0), 1.0)
    assert model.n_features_in_ == width == model.encoder_.n_features == model.committee_.n_features
    np.testing.assert_array_equal(model.predict(X[:5]), queries)


@pytest.mark.parametrize("memory", [10**10, (256, 10**10)])
def test_memories_that_the_machine_cannot_hold_are_refused_before_anything_is_laid_out(rows, memory):
    X, y = rows
    model = SGBRegressor(memory=memory)
    with pytest.raises(ValueError, match=r"10000000000 rows x 60 learners.* need about .* this machine has .*shorter"):
        model.learn(X, y)
    assert not hasattr(model, "committee_")
    model.set_params(memory=256).learn(X, y)
    assert model.committee_.n_rows == len(X)


def odd_column(kind, n, rng):
    """Rows with a column that is learned in one range and asked of in another; where to part them."""
    X = rng.random((n, 5))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 10 * X[:, 3] + rng.normal(size=n)
    number = np.arange(n, dtype=float)
    if kind == "time in any order":
        order = rng.permutation(n)
        return np.column_stack([1.6e9 + 60.0 * number, X])[order], y[order]
    if kind == "a number far on":
        return np.column_stack([np.where(number < 0.8 * n, number, 100.0 * n), X]), y
    X[n * 4 // 5 :: 20, 2] = 1e6  # a column that tells nothing
    return X, y


@pytest.mark.parametrize("kind", ["time in any order", "a number far on", "a spike"])
def test_a_column_far_outside_what_was_seen_throws_nobody(kind):
    X, y = odd_column(kind, 3000, np.random.default_rng(0))
    before, after = slice(0, 2400), slice(2400, None)
    said = SGBRegressor(random_state=0).partial_fit(X[before], y[before]).predict(X[after])
    batch = HistGradientBoostingRegressor().fit(X[before], y[before]).predict(X[after])
    assert np.sqrt(np.mean((said - y[after]) ** 2)) < 1.1 * np.sqrt(np.mean((batch - y[after]) ** 2))
    assert np.ptp(said) < 1.5 * np.ptp(y)
