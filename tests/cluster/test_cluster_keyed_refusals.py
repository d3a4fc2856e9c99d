"""What one model per key refuses, and what fails on the way: nothing is changed, or it is said so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from keyed_streams import TINY, fitted_prior, frame, shared_stream, starve, states, stream, tiny

from streamboost import SGBClassifier, SGBRegressor
from streamboost.cluster import WorkerLost
from streamboost.cluster.keyed import KeyedBooster

BAD = [
    ([{"key": "u", "x": 1.0}, {"x": 2.0}], [1.0, 2.0], "row 1 has no key: its 'key' is None"),
    (pa.table({"key": ["u", "v", None], "x": [1.0, 2.0, 3.0]}), [1.0] * 3, "row 2 has no key"),
    (pa.table({"key": [1.0, float("nan")], "x": [1.0, 2.0]}), [1.0] * 2, "row 1 has no key"),
    (pa.table({"key": pa.nulls(2), "x": [1.0, 2.0]}), [1.0] * 2, "row 0 has no key"),
    ([{"key": "u", "x": 1.0}, {"key": 1.5, "x": 2.0}], [1.0, 2.0], "'key' of row 1 is no key: 1.5 is a float"),
    (pa.table({"key": [[1], [2]], "x": [1.0, 2.0]}), [1.0] * 2, "key"),
    (pa.table({"x": [1.0]}), [1.0], "there is no key column 'key'"),
    (pa.table([[1], [2], [1.0]], names=["key", "key", "x"]), [1.0], "there are 2 columns called 'key'"),
    (pa.table({"key": ["u", "v"], "x": [1.0, 2.0]}), [1.0], "y has 1 rows and X has 2"),
    (pa.table({"key": ["u", "v"], "x": [1.0, 2.0]}), ["one", "two"], "not a number"),
    (pa.table({"key": ["u", "v", "u"], "x": [1.0, 2.0, np.inf]}), [1.0] * 3, "row 2: the model of key 'u' refuses it"),
    (pa.table({"key": ["u", "v", "w"], "x": [1.0, 2.0, 3.0]}), [1.0, np.nan, 1.0], "row 1: the model of key 'v'"),
    (pa.table({"key": ["u", "new"], "x": ["text", "text"]}), [1.0] * 2, "row 0: the model of key 'u' refuses it"),
    (pa.table({"key": ["new", "u"], "z": [1.0, 2.0]}), [1.0] * 2, "row 1: the model of key 'u' refuses it"),
    (np.ones((2, 2)), [1.0] * 2, "expected a frame, an Arrow table or a list of dicts"),
]


@pytest.fixture(scope="module")
def prior():
    return fitted_prior()


@pytest.mark.each(bad=BAD, workers=[1, 4])
def test_a_chunk_with_a_bad_row_is_refused_as_a_whole(bad, workers):
    X, y, words = bad
    with KeyedBooster("key", tiny("regression"), workers=workers, engine="local") as booster:
        good = pa.table({"key": ["u", "v", "w"] * 5, "x": np.arange(15.0)})
        booster.learn(good, np.arange(15.0))
        before = states(booster)
        with pytest.raises((TypeError, ValueError), match=words):
            booster.learn(X, y)
        assert states(booster) == before
        booster.learn(good, np.arange(15.0))  # and goes on
        assert booster.key_rows("u") == 10


@pytest.mark.parametrize("kind", ["dicts", "pandas", "table"])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_first_chunk_with_a_row_without_a_key_leaves_everything_as_it_was(workers, kind):
    keys, columns, y = stream(30, text=False)
    keys = [str(key) for key in keys]
    with KeyedBooster("key", tiny("regression"), workers=workers, engine="local") as booster:
        rows = frame([*keys[:28], None, keys[29]], columns, "dicts", range(30))
        if kind != "dicts":
            rows = pa.Table.from_pylist(rows, schema=pa.schema({"key": pa.string(), "a": pa.float64()}))
        with pytest.raises(ValueError, match=r"row 28 has no key.*Nothing was changed"):
            booster.learn(rows.to_pandas() if kind == "pandas" else rows, y)
        assert (booster.n_keys, [line["operations"] for line in booster.metrics()]) == (0, [0] * workers)
        assert booster.learn(frame(keys, columns, "dicts", range(30)), y).shape == (30,)
        with KeyedBooster("key", tiny("regression"), workers=workers, engine="local") as undisturbed:
            undisturbed.learn(frame(keys, columns, "dicts", range(30)), y)
            assert states(booster) == states(undisturbed)


def test_a_label_of_another_kind_is_refused_before_anything_is_sent():
    with KeyedBooster("key", tiny("classification"), workers=2, engine="local") as booster:
        booster.learn([{"key": 1, "x": 0.0}, {"key": 2, "x": 1.0}], ["up", "down"])
        before = states(booster)
        with pytest.raises(ValueError, match="labels so far were of kind"):
            booster.learn([{"key": 1, "x": 0.0}, {"key": 3, "x": 1.0}], [5, 6])
        assert states(booster) == before
        assert booster.classes_.tolist() == ["up", "down"]


def test_options_that_do_not_fit_are_refused_with_the_first_rows():
    with KeyedBooster("key", SGBRegressor(budget=-1.0), workers=2, engine="local") as booster:
        with pytest.raises(ValueError, match="budget is -1"):
            booster.learn([{"key": i, "x": 0.0} for i in range(8)], np.arange(8.0))
        assert booster.n_keys == 0


def test_a_failure_after_all_checks_ends_it_until_a_checkpoint_is_attached(tmp_path, monkeypatch):
    rows, y = [{"key": i, "x": float(i)} for i in range(6)], np.arange(6.0)
    with KeyedBooster("key", tiny("regression"), workers=2, engine="local", directory=tmp_path) as booster:
        booster.learn(rows, y)
        cut = booster.detach()
        before = states(booster)
        with monkeypatch.context() as patch:
            patch.setattr("streamboost.cluster.key_models.learn", lambda *args: 1 / 0)
            with pytest.raises(RuntimeError, match="failed on rows that had passed all checks"):
                booster.learn(rows, y)
        for act in (
            lambda: booster.learn(rows, y),
            booster.detach,
            lambda: booster.forget(1),
            lambda: booster.predict(rows),
            lambda: booster.model_of(1),
            lambda: booster.key_rows(1),
            booster.keys,
        ):
            with pytest.raises(RuntimeError, match="learned only in part"):
                act()
        booster.attach(cut)
        assert states(booster) == before
        booster.learn(rows, y)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_that_runs_out_is_told_as_such_and_costs_only_the_chunk(tmp_path, monkeypatch, workers):
    rows, y = [{"key": i, "x": float(i)} for i in range(6)], np.arange(6.0)
    with KeyedBooster("key", tiny("regression"), workers=workers, engine="local", directory=tmp_path) as booster:
        booster.learn(rows, y)
        cut = booster.detach()
        before = states(booster)
        booster.learn(rows, y)
        after = states(booster)
        with monkeypatch.context() as patch:
            patch.setattr("streamboost.cluster.key_models.answer", starve)
            with pytest.raises(MemoryError, match="80 GiB"):
                booster.predict(rows)
        assert states(booster) == after
        with monkeypatch.context() as patch:
            patch.setattr("streamboost.cluster.key_models.learn", starve)
            with pytest.raises(MemoryError, match="80 GiB"):
                booster.learn(rows, y)
        for act in (lambda: booster.learn(rows, y), booster.detach, lambda: booster.predict(rows)):
            with pytest.raises(RuntimeError, match="Attach the last checkpoint"):
                act()
        booster.attach(cut)
        assert states(booster) == before
        booster.learn(rows, y)
        assert states(booster) == after


def test_what_was_never_sent_was_not_learned_in_part(tmp_path):
    rows = [{"key": i, "x": float(i)} for i in range(6)]
    with KeyedBooster("key", tiny("regression"), directory=tmp_path) as booster:
        booster.learn(rows, np.arange(6.0))
        cut = booster.detach()
    for act in (lambda: booster.learn(rows, np.arange(6.0)), booster.detach):
        with pytest.raises(WorkerLost, match="the crew is closed"):
            act()
    with KeyedBooster("key", tiny("regression"), directory=tmp_path) as second:
        for act in (lambda: second.learn(rows, np.arange(6.0)), second.detach):
            with pytest.raises(FileExistsError, match="holds the cuts"):
                act()
        second.attach(cut)
        assert second.n_keys == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": 3}, "key is 3, expected the name of a column"),
        ({"hot": 0}, "hot is 0"),
        ({"model": KNOWN} if (KNOWN := SGBRegressor(**TINY).fit([[0.0]], [1.0])) else {}, "has learned rows already"),
        ({"model": object()}, "model is a object, expected an SGBRegressor"),
        ({"prior": SGBRegressor()}, "expected an SGBRegressor or SGBClassifier that has learned rows"),
        ({"prior": KNOWN, "model": SGBClassifier()}, "expected two of a kind"),
        ({"model": SGBRegressor(learner=np.sin)}, "model cannot be stored"),
        ({"workers": 0, "engine": "local"}, "^workers is 0, expected a whole number of at least 1"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        KeyedBooster(**{"key": "key", **options})


def test_probabilities_are_refused_where_there_are_none():
    with KeyedBooster("key") as booster:
        assert not hasattr(booster, "predict_proba")
        with pytest.raises(ValueError, match="method is 'predict_proba'"):
            booster.learn([{"key": 1, "x": 1.0}], [1.0], method="predict_proba")
    with KeyedBooster("key", SGBClassifier(loss="hinge")) as booster:
        assert not hasattr(booster, "predict_proba")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_row_that_cannot_be_predicted_is_named(workers, prior):
    X, y = shared_stream(6, 60, seed=10)
    bad = X.set_column(2, "a", pa.array(np.where(np.arange(60) == 41, np.inf, X["a"].to_numpy())))
    for given_prior, who in (
        (None, f"the model of key {X['key'][41].as_py()!r} refuses it"),
        (prior, "column 'a' is inf"),
    ):
        with KeyedBooster("key", prior=given_prior, workers=workers, engine="local") as booster:
            booster.learn(X, y)
            before = states(booster)
            for act in (lambda: booster.predict(bad), lambda: booster.learn(bad, y)):
                with pytest.raises(ValueError, match=f"row 41: {who}"):
                    act()
            assert states(booster) == before
