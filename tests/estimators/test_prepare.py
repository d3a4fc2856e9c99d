"""Rows are prepared, which changes nothing, and then learned, which cannot fail: together that is learning."""

import copy
import re
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import SGDRegressor

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.features.encoder import Encoder
from streamboost.persistence.object_graph import same_state

SMALL = {"n_estimators": 3, "max_depth": 2, "memory": (12, 24), "budget": 8.0, "random_state": 0}
MAKERS = {
    "regressor": lambda: SGBRegressor(**SMALL),
    "log loss": lambda: SGBClassifier(**SMALL),
    "one versus rest": lambda: SGBClassifier("logistic", **SMALL),
    "limited": lambda: SGBClassifier(**SMALL, memory_limit_mb=1.3),
    "monotone": lambda: SGBRegressor(**SMALL, monotonic_cst={"a": 1}),
    "wrapped": lambda: SGBRegressor(learner=SGDRegressor(), n_estimators=2, random_state=0),
}

values = st.one_of(st.none(), st.floats(-3, 3), st.sampled_from(["red", "blue"]), st.just(np.inf))
rows = st.dictionaries(st.sampled_from("abc"), values)
targets = {
    "regressor": st.one_of(st.floats(-9, 9), st.just(np.nan), st.just("text")),
    "classifier": st.sampled_from(["x", "y", "z", 1]),
}
weights = st.sampled_from([None, 1.0, 0.0, -1.0])


def outcome(do):
    """What is returned, or how it is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that memory was limited
            return do()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", MAKERS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_what_is_prepared_one_after_another_is_learned_as_if_one_by_one(kind, data):
    model, twin = MAKERS[kind](), MAKERS[kind]()
    y = targets["classifier" if isinstance(model, SGBClassifier) else "regressor"]
    waiting, said = [], []
    for _ in range(data.draw(st.integers(1, 6))):
        chunk = data.draw(st.lists(st.tuples(rows, y), min_size=1, max_size=4))
        given = [row for row, _ in chunk], [target for _, target in chunk], data.draw(weights)
        before = copy.deepcopy(model)
        after = waiting[-1] if waiting else None
        prepared = outcome(lambda given=given, after=after: model.prepare(*given, after=after))
        assert same_state(model, before)
        alone = outcome(lambda given=given, after=after: model.check_rows(given[0], after=after))
        expected = outcome(lambda given=given: twin.learn(*given))
        if isinstance(expected, np.ndarray):
            waiting.append(prepared)
            said.append(expected)
            assert alone is None
        else:
            assert prepared == expected
        if data.draw(st.booleans()):
            learned = [outcome(lambda one=one: model.learn_prepared(one)) for one in waiting]
            for ours, theirs in zip(learned, said, strict=True):
                assert_array_equal(ours, theirs)
            assert same_state(model, twin)
            waiting, said = [], []


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_a_classifier_returns_of_prepared_rows_what_it_is_asked_for(method):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 3
    model, twin = SGBClassifier(**SMALL), SGBClassifier(**SMALL)
    assert_array_equal(model.learn_prepared(model.prepare(X, y), method=method), twin.learn(X, y, method=method))
    with pytest.raises(ValueError, match="method is 'nonsense', expected 'predict'"):
        model.learn_prepared(model.prepare(X, y), method="nonsense")
    assert same_state(model, twin)


@pytest.mark.parametrize(
    ("X", "y"),
    [([{"new": 1.0}], ["x"]), ([{"a": 1.0, "t": "new"}], ["x"]), ([{"a": 1.0}], ["new"])],
    ids=["column", "category", "class"],
)
def test_rows_prepared_for_a_model_that_knew_less_are_refused(X, y):
    model = SGBClassifier(**SMALL)
    first = model.prepare([{"a": 1.0, "t": "u"}], ["x"])
    model.learn_prepared(first)
    old = model.prepare([{"a": 2.0}], ["x"])
    model.learn([{"a": 2.0}], ["x"])  # brings nothing new
    model.learn_prepared(old)
    model.learn(X, y)
    before = copy.deepcopy(model)
    for stale in (first, old, SGBClassifier(**SMALL).prepare([{"a": 1.0}], ["x"])):
        with pytest.raises(ValueError, match=r"prepared for a model that knew other columns or classes.*prepare again"):
            model.learn_prepared(stale)
    assert same_state(model, before)


def test_first_rows_are_learned_by_one_model_only():
    model, other = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    first = model.prepare([[1.0]], [2.0])
    model.learn_prepared(first)
    with pytest.raises(ValueError, match="prepare again"):
        other.learn_prepared(first)
    assert not hasattr(other, "committee_")


def test_options_that_do_not_fit_the_first_rows_are_refused_when_these_are_prepared():
    X, y = [[1.0, 2.0]], [3.0]
    for options, words in (
        ({"monotonic_cst": [1]}, "monotonic_cst"),
        ({"memory_limit_mb": 0.001}, "memory_limit_mb"),
        ({"learner": SGDRegressor(penalty="nonsense")}, "penalty"),
    ):
        model = SGBRegressor(**options)
        with pytest.raises(ValueError, match=words):
            model.prepare(X, y)
        assert vars(model).keys() == SGBRegressor().get_params().keys()


@pytest.mark.parametrize("grow", ["columns", "classes", "levels"])
def test_a_growth_there_is_no_memory_for_is_refused_when_rows_are_prepared(grow):
    few = [{"a": 1.0, "b": 2.0}] * 4
    model = SGBClassifier(**SMALL, memory_limit_mb=1.2, new_columns="grow")
    model.learn(few, ["x", "y"] * 2)
    X, y = {
        "columns": (pa.table({f"c{i}": [1.0] for i in range(400)}), ["x"]),
        "classes": ([{"a": 1.0}] * 600, [f"class {i}" for i in range(600)]),
        "levels": ([{"a": 1.0, **{f"t{i}": "text" for i in range(20)}}], ["x"]),
    }[grow]
    before = copy.deepcopy(model)
    for refuse in (lambda: model.prepare(X, y), lambda: model.learn(X, y)):
        with pytest.raises(ValueError, match=r"memory_limit_mb is 1.2, but rows of \d+ columns with \d+ outputs need"):
            refuse()
    assert same_state(model, before)


def test_preparing_draws_no_seed_and_learning_draws_one():
    random, twin = np.random.RandomState(0), np.random.RandomState(0)
    model = SGBRegressor(random_state=random)
    prepared = [model.prepare([[1.0]], [2.0]) for _ in range(2)]
    assert same_state(random, twin)
    assert prepared[0].committee.boosters[0].seed == prepared[1].committee.boosters[0].seed
    model.learn_prepared(prepared[0])
    twin.randint(5)
    assert same_state(random, twin)


def test_rows_that_the_encoder_has_encoded_are_taken():
    model, twin = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    for row in ({"a": 1.0}, {"a": 2.0, "b": "text"}):
        encoder = getattr(model, "encoder_", Encoder(date_parts=True))
        assert_array_equal(model.learn_prepared(model.prepare(encoder.encode([row]), [1.0])), twin.learn([row], [1.0]))
        known = model.encoder_.encode([row], known_only=True)
        assert_array_equal(model.predict_from_scores(model.raw_scores(known)), twin.predict([row]))
    assert same_state(model, twin)


def test_update_mode_goes_by_its_former_name_too():
    X, y = np.random.default_rng(0).normal(size=(64, 2)), np.arange(64.0)
    named, former = SGBRegressor(update_mode=8, **SMALL), SGBRegressor(semantics=8, **SMALL)
    assert_array_equal(named.learn(X, y), clone(former).learn(X, y))
    assert_array_equal(SGBRegressor(**SMALL).set_params(semantics=8).learn(X, y), clone(named).learn(X, y))


def test_nobody_outside_calls_a_private_method_of_an_estimator():
    package = Path(streamboost.__file__).parent
    private = {
        name
        for cls in (SGBRegressor, SGBClassifier)
        for base in cls.__mro__
        if base.__module__.startswith("streamboost.")
        for name in vars(base)
        if name.startswith("_") and not name.startswith("__")
    }
    assert {"_prepare", "_encode_targets"} <= private
    owner = re.compile(r"(\w*(?:model|estimator|template|prior|fresh|trial))\.(_\w+)\(")
    found = [
        f"{path.relative_to(package)}: {match.group()}"
        for path in package.rglob("*.py")
        if path.parent.name != "estimators"
        for match in owner.finditer(path.read_text())
        if match.group(2) in private
    ]
    assert found == []
