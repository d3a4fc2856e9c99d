"""Estimators and boosters whose learners are spread: the model of one process, on one set of workers."""

import copy
import dataclasses
import pickle

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from spread_models import (
    PIXELS,
    STACKS,
    booster,
    plain,
    plain_path,  # noqa: F401 - a fixture
    scores_of,
    spread,
    stream,
)

from streamboost import SGBClassifier, SGBRegressor, load
from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.datasets import friedman
from streamboost.prequential import run
from streamboost.stacks import LinearStack, TreeStack
from streamboost.states import same_state


@pytest.mark.parametrize("learner", ["linear", "networks", "trees", "chain"])
def test_an_estimator_takes_a_spread_stack_as_learner(learner):
    X, y = stream(300)
    plain, divided = (
        SGBRegressor(learner=stack, semantics="minibatch", random_state=0)
        for stack in (STACKS[learner](), spread(STACKS[learner]()))
    )
    assert_array_equal(scores_of(divided, X, y), scores_of(plain, X, y))
    assert_array_equal(divided.predict(X), plain.predict(X))
    if learner == "trees":
        assert_array_equal(divided.feature_importances_, plain.feature_importances_)
    else:
        assert not hasattr(divided, "feature_importances_")


def table(n=300):
    X, y = stream(n)
    names = [f"x{j}" for j in range(PIXELS - 1)]
    city = pa.array(np.array(["Bonn", "Graz", "Wien"])[(np.nan_to_num(X[:, -1]) * 7).astype(int) % 3])
    return pa.table([*X[:, :-1].T, city], names=[*names, "city"]), np.digitize(y, [-20.0, 25.0]).astype(str)


def test_a_classifier_of_tables_with_text_and_a_late_class_is_the_same():
    X, y = table()
    late = np.where(y == "2", np.where(np.arange(len(y)) < 150, "0", "2"), y)
    template = SGBClassifier(learner=TreeStack(6, max_depth=3), semantics=25, random_state=0)
    with SpreadBooster(template, workers=2, engine="local") as divided:
        before = [divided.learn(X.slice(a, 50), late[a : a + 50], method="predict_proba") for a in range(0, 300, 50)]
        expected = [template.learn(X.slice(a, 50), late[a : a + 50], method="predict_proba") for a in range(0, 300, 50)]
        for ours, theirs in zip(before, expected, strict=True):
            assert_array_equal(ours, theirs)
        assert divided.classes_.tolist() == template.classes_.tolist() == ["0", "1", "2"]
        assert_array_equal(divided.predict(X), template.predict(X))


def test_a_spread_model_comes_home_and_is_saved_as_usual(tmp_path):
    X, y = stream(300)
    template = SGBRegressor(learner="mlp", semantics="minibatch", random_state=0)
    with SpreadBooster(template, workers=2, engine="local") as divided:
        scores_of(divided, X, y)
        divided.save(tmp_path / "model.safetensors")
        scores_of(template, X, y)
        loaded = load(tmp_path / "model.safetensors")
        assert same_state(loaded, template)
        assert_array_equal(loaded.learn(X, y), divided.learn(X, y))


def test_prequential_takes_a_spread_model():
    made = friedman(1200, seed=0)
    template = SGBRegressor(learner="linear", n_estimators=6, semantics=32, random_state=0)
    with SpreadBooster(template, workers=3, engine="local") as divided:
        ours, theirs = (run(model, (made.X, made.y), every=400).last for model in (divided, template))
    assert ours.running == theirs.running
    assert ours.rows == 1200


@pytest.mark.parametrize(
    "model", [plain("linear"), booster(LinearStack(6), semantics=20)], ids=["estimator", "booster"]
)
def test_a_used_directory_is_refused_and_then_attached_by_the_same_object(model, tmp_path):
    X, y = stream(100)
    with SpreadBooster(model, workers=2, engine="local", directory=tmp_path) as first:
        first.learn(X, y)
        cut = first.detach()
        said = first.learn(X, y)
    with SpreadBooster(model, workers=2, engine="local", directory=tmp_path) as second:
        for _ in range(2):
            with pytest.raises(FileExistsError, match="Attach or load one"):
                second.learn(X, y)
        with pytest.raises(ValueError, match="Name the directory it was made in"):
            second.attach(dataclasses.replace(cut, mark="another"))
        with pytest.raises(FileExistsError, match="Attach or load one"):
            second.learn(X, y)
        second.attach(cut)
        assert_array_equal(second.learn(X, y), said)
        assert len(second._spread._started) == 1


@pytest.mark.parametrize("has_directory", [False, True])
def test_another_fit_takes_the_workers_over(has_directory, tmp_path):
    X, y = stream(100)
    with SpreadBooster(
        plain("linear"), workers=2, engine="local", directory=tmp_path if has_directory else None
    ) as divided:
        divided.learn(X, y)
        if has_directory:
            cut = divided.detach()
            said = divided.predict(X)
        old, crew = divided.stack_, divided.stack_.crew
        assert divided.fit(X, y) is divided
        assert_array_equal(divided.predict(X), plain("linear").fit(X, y).predict(X))
        assert divided.stack_.crew is crew
        assert divided._spread._started == [crew]
        with pytest.raises(RuntimeError, match="begun anew for another fit"):
            old.predict(X)
        with pytest.raises(ValueError, match="target in row 0 is nan"):
            divided.fit(X, np.full(100, np.nan))
        assert_array_equal(divided.predict(X), plain("linear").fit(X, y).predict(X))  # nothing was forgotten
        if has_directory:
            divided.attach(cut)
            assert_array_equal(divided.predict(X), said)


def test_first_rows_that_are_refused_late_leave_the_workers_to_the_next(monkeypatch):
    X, y = stream(100)
    with SpreadBooster(plain("linear"), workers=2, engine="local") as divided:
        with monkeypatch.context() as patch:
            patch.setattr(LinearStack, "learn_batch", refuse)
            with pytest.raises(ValueError, match="no such"):
                divided.learn(X, y)
        assert_array_equal(divided.learn(X, y), plain("linear").learn(X, y))
        assert len(divided._spread._started) == 1


def refuse(*args):
    raise ValueError("no such")


def test_a_copy_that_has_learned_is_a_plain_model_and_one_that_has_not_has_its_own_workers():
    X, y = stream(100)
    with SpreadBooster(plain("linear"), workers=2, engine="local") as divided:
        with copy.deepcopy(divided) as twin:
            assert_array_equal(twin.learn(X, y), divided.learn(X, y))
            assert twin.stack_.crew is not divided.stack_.crew
        home = copy.deepcopy(divided)
        assert type(home) is SGBRegressor
        assert type(home.booster_.stack) is LinearStack
        assert home.learner == "linear"
        assert_array_equal(home.learn(X, y), divided.learn(X, y))
        assert_array_equal(home.predict(X), divided.predict(X))
        with pytest.raises(TypeError, match=r"Use gather\(\) for the plain"):
            pickle.dumps(divided)
