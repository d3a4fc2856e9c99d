"""One model per key, against a plain dict of models fed by hand."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from streamboost import SGBClassifier, SGBRegressor, snapshots
from streamboost.checkpoints import Checkpoint
from streamboost.cluster import LocalCrew, WorkerLost
from streamboost.cluster.crew import Cut
from streamboost.cluster.hashing import token_of
from streamboost.cluster.key_models import KeyModel, small_classifier, small_regressor
from streamboost.cluster.key_shard import KeyShard
from streamboost.cluster.key_store import KeyStore, Packed
from streamboost.cluster.keyed import KeyedBooster
from streamboost.errors import SnapshotError
from streamboost.prequential import run
from streamboost.running import Options, Run
from streamboost.sources import open_source
from streamboost.states import same_state

TINY = {"n_estimators": 3, "max_depth": 2, "memory": 32, "random_state": 0}
KEYS = ["Bonn", 7, "7", True, -3, ""]


def tiny(task: str) -> SGBRegressor | SGBClassifier:
    return (SGBRegressor if task == "regression" else SGBClassifier)(**TINY)


def stream(n: int, task: str = "regression", seed: int = 0, n_keys: int = len(KEYS), text: bool = True):
    """Keys, columns and targets of a stream in which every key has its own offset."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, n_keys, n)
    keys = [KEYS[i] if i < len(KEYS) else f"key {i}" for i in numbers]
    columns = {"a": rng.uniform(size=n), "b": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.normal(size=n))}
    if text:
        columns["city"] = rng.choice(["x", "y", "z"], n).tolist()
    y = 3 * columns["a"] + numbers + rng.normal(size=n) / 10
    return keys, columns, y if task == "regression" else np.where(y > 4, "high", np.where(y > 2.5, "mid", "low"))


def frame(keys, columns, kind: str, places):
    """Some rows as a table, a pandas frame or dicts, with keys of any type where the kind can hold them."""
    own = {name: [values[i] for i in places] for name, values in columns.items()}
    own_keys = [keys[i] for i in places]
    if kind == "dicts":
        return [{"key": key, **{n: own[n][i] for n in own}} for i, key in enumerate(own_keys)]
    if kind == "pandas":
        pandas = pytest.importorskip("pandas")
        return pandas.DataFrame({"key": pandas.Series(own_keys, dtype=object), **own})
    return pa.table({"a": own["a"], "key": list(map(str, own_keys)), **{n: own[n] for n in own if n != "a"}})


def features(columns, kind: str, places):
    own = {name: [values[i] for i in places] for name, values in columns.items()}
    return [{n: own[n][i] for n in own} for i in range(len(places))] if kind == "dicts" else pa.table(own)


def twins(template, keys, columns, y, chunks, kind: str = "dicts"):
    """The naive twin: a dict of models, each fed its own rows by hand, and what they said."""
    models, said, start = {}, np.full(len(keys), None, dtype=object), 0
    for size in chunks:
        places = range(start, min(start + size, len(keys)))
        for key in dict.fromkeys((type(keys[i]), keys[i]) for i in places):
            own = [i for i in places if (type(keys[i]), keys[i]) == key]
            model = models.setdefault(key, clone(template))
            said[own] = model.learn(features(columns, kind, own), y[own]).tolist()
        start += size
    return models, said


def states(booster: KeyedBooster) -> dict:
    known = booster.keys()
    return {token_of(key): snapshots.pack(booster.model_of(key)) for key in known}


def shared_stream(n_keys: int, n: int, seed: int = 0):
    """One function for all keys, and an offset for each."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, n_keys, n)
    offsets = np.random.default_rng(99).normal(size=n_keys)
    a, b = rng.uniform(size=n), rng.uniform(size=n)
    city = rng.choice(["p", "q", "r"], n)
    y = 8 * np.sin(6 * a * b) + 3 * (city == "q") + offsets[numbers] + rng.normal(size=n) / 10
    return pa.table({"key": [f"k{i}" for i in numbers], "city": city, "a": a, "b": b}), y


@pytest.fixture(scope="module")
def prior():
    X, y = shared_stream(30, 3000, seed=1)
    return small_regressor(n_estimators=40, memory=1024).fit(X.drop_columns(["key"]), y)


# The same as a dict of models.


@settings(max_examples=15)
@given(
    chunks=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    workers=st.sampled_from([1, 3]),
    hot=st.sampled_from([1, 2, 1000]),
    kind=st.sampled_from(["dicts", "pandas", "table"]),
    task=st.sampled_from(["regression", "classification"]),
    seed=st.integers(0, 50),
)
def test_every_key_has_the_model_it_would_have_alone(chunks, workers, hot, kind, task, seed):
    keys, columns, y = stream(sum(chunks), task, seed)
    if kind == "table":  # a column of a table has one type
        keys = [str(key) for key in keys]
    template = tiny(task)
    models, expected = twins(template, keys, columns, y, chunks, "dicts" if kind == "dicts" else "table")
    with KeyedBooster("key", template, hot=hot, workers=workers, engine="local") as booster:
        said, start = [], 0
        for size in chunks:
            places = range(start, start + size)
            said += booster.learn(frame(keys, columns, kind, places), y[list(places)]).tolist()
            start += size
        assert said == expected.tolist()
        assert set(zip(map(type, booster.keys()), booster.keys(), strict=True)) == set(models)
        assert booster.n_keys == len(models)
        for (_, key), model in models.items():
            assert same_state(booster.model_of(key), model)
            assert booster.key_rows(key) == model.committee_.n_rows
        if kind != "dicts":
            rows = frame(keys, columns, kind, range(sum(chunks)))
            assert booster.predict(rows).tolist() == [
                models[type(key), key].predict(features(columns, kind, [i])).tolist()[0] for i, key in enumerate(keys)
            ]


def test_cold_keys_answer_as_if_they_had_never_left_memory():
    keys, columns, y = stream(300, n_keys=25)
    said, found = [], []
    for hot in (2, 1000):
        with KeyedBooster("key", tiny("regression"), hot=hot) as booster:
            said.append([booster.learn(frame(keys, columns, "dicts", range(s, s + 60)), y[s : s + 60]).tolist()
                         for s in range(0, 300, 60)])  # fmt: skip
            found.append(states(booster))
            metrics = booster.metrics()[0]
            assert metrics["hot"] <= hot
            assert metrics["keys"] == 25
            assert (metrics["unpacked"] > 0) == (hot == 2)
    assert said[0] == said[1]
    assert found[0] == found[1]


def test_a_cold_key_is_read_once_for_a_chunk_and_whoever_asks_in_between_changes_nothing(tmp_path):
    rng, tokens, found = np.random.default_rng(0), [token_of(key) for key in ("a", "b", "c", "d")], []
    sizes, chunks = np.full(4, 5), [(rng.uniform(size=(20, 2)), rng.normal(size=20)) for _ in range(4)]
    for hot in (1, 100):
        shard = KeyShard(tiny("regression"), hot=hot)
        shard.settle(str(tmp_path))
        for number, (X, y) in enumerate(chunks):
            rows, before = pa.table({"x": X[:, 0], "z": X[:, 1]}), shard.n_unpacked
            assert shard.check(rows, tokens, sizes, y, number) is None
            if number == 2:
                shard.predict(rows, tokens, sizes)
                before = shard.n_unpacked
            shard.learn(rows, tokens, sizes, y, number)
            assert shard.n_unpacked - before <= (4 if number != 2 else 0)
        assert (shard.n_unpacked > 0) == (hot == 1)
        found.append([shard.state_of(token) for token in tokens])
    assert None not in found[0]
    assert found[0] == found[1]


def test_the_number_of_workers_changes_nothing():
    keys, columns, y = stream(300, "classification", n_keys=20)
    found = []
    for workers in (1, 2, 5):
        with KeyedBooster("key", small_classifier(), workers=workers, engine="local") as booster:
            for s in range(0, 300, 100):
                booster.learn(frame(keys, columns, "dicts", range(s, s + 100)), y[s : s + 100])
            rows = frame(keys, columns, "dicts", range(300))
            found.append((states(booster), booster.predict_proba(rows).tolist(), booster.classes_.tolist()))
            assert set(map(booster.worker_of, booster.keys())) == set(range(workers))
    assert found[0] == found[1] == found[2]


def test_the_key_is_no_feature():
    keys, columns, y = stream(50)
    with KeyedBooster("key", tiny("regression")) as booster:
        booster.learn(frame(keys, columns, "table", range(50)), y)
        assert booster.model_of("Bonn").feature_names_in_.tolist() == ["a", "b", "city"]


def test_several_targets_a_row():
    rng = np.random.default_rng(0)
    X, y = pa.table({"key": ["u", "v"] * 20, "x": rng.normal(size=40)}), rng.normal(size=(40, 2))
    with KeyedBooster("key", tiny("regression"), workers=2, engine="local") as booster:
        assert booster.learn(X, y).shape == (40, 2)
        assert booster.predict([{"key": "unknown", "x": 1.0}]).tolist() == [[0.0, 0.0]]
        alone = tiny("regression")
        alone.learn(pa.table({"x": X["x"].to_numpy()[::2]}), y[::2])
        assert same_state(booster.model_of("u"), alone)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("width", [1, 2])
def test_all_keys_have_as_many_targets(width, workers):
    wide = {1: [[1.0], [2.0]], 2: [[1.0, 2.0], [3.0, 4.0]], 3: [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]}
    with KeyedBooster("key", tiny("regression"), workers=workers, engine="local") as booster:
        booster.learn([{"key": "u", "x": 1.0}, {"key": "v", "x": 2.0}], wide[width])
        before = states(booster)
        refused = [wide[other] for other in wide if other != width] + ([[1.0, 2.0]] if width > 1 else [])
        for y in refused:
            with pytest.raises(ValueError, match=f"numbers a row, expected {width}, as the rows before.*Nothing was"):
                booster.learn([{"key": "new", "x": 1.0}, {"key": "newer", "x": 2.0}], y)
        assert states(booster) == before
        assert booster.predict([{"key": key, "x": 1.0} for key in ("u", "unknown", "v")]).shape[1:] == (width,) * (
            width > 1
        )


@pytest.mark.parametrize("width", [1, 2])
def test_answers_have_one_shape_whoever_is_asked(width, tmp_path):
    shape = (width,) if width > 1 else ()
    y = np.arange(4.0 * width).reshape(4, width)
    with KeyedBooster("key", tiny("regression"), workers=2, engine="local", directory=tmp_path) as booster:
        rows = [{"key": key, "x": 1.0} for key in ("a", "b", "c", "d")]
        assert booster.learn(rows, y).shape == (4, *shape)
        cut = booster.detach()
        assert booster.learn([], []).shape == (0, *shape)
        for asked in (["a"], ["unknown"], ["a", "unknown"], ["unknown", "b", "c"], []):
            assert booster.predict([{"key": key, "x": 1.0} for key in asked]).shape == (len(asked), *shape)
        if width == 1:  # one number is one number
            assert booster.learn(rows, y[:, 0]).shape == booster.learn(rows, y).shape == (4,)
        booster.attach(cut)
        with pytest.raises(ValueError, match=f"expected {width}, as the rows before it had"):
            booster.learn(rows, np.zeros((4, 3)))


def test_keys_have_as_many_targets_as_their_prior():
    X, y = np.arange(8.0).reshape(4, 2), np.arange(8.0).reshape(4, 2)
    prior = SGBRegressor(**TINY).fit(pa.table({"a": X[:, 0], "b": X[:, 1]}), y)
    rows = [{"key": "u", "a": 1.0, "b": 2.0}]
    with KeyedBooster("key", tiny("regression"), prior=prior) as booster:
        assert booster.predict(rows).shape == (1, 2)
        assert booster.predict([]).shape == (0, 2)
        with pytest.raises(ValueError, match="y has 1 numbers a row, expected 2"):
            booster.learn(rows, [1.0])
        assert booster.n_keys == 0
        assert booster.learn(rows, y[:1]).shape == (1, 2)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, 1, 3], pa.int16()),
        pa.array(["a", "b", "a", "c"]).dictionary_encode(),
        pa.array([True, False, True, True]),
        pa.array([1.0, 2.0, 1.0, 3.0]),
        pa.array(["a", "b", "a", "c"], pa.large_string()),
    ],
)
def test_key_columns_of_many_types(column):
    with KeyedBooster("key", tiny("regression")) as booster:
        booster.learn(pa.table({"key": column, "x": [1.0, 2.0, 3.0, 4.0]}), [1.0, 2.0, 3.0, 4.0])
        first = column.to_pylist()[0]
        assert booster.key_rows(first) == column.to_pylist().count(first)
        assert booster.n_keys == len(set(column.to_pylist()))


def test_an_empty_chunk_is_a_no_op():
    with KeyedBooster("key", tiny("regression")) as booster:
        empty = pa.table({"key": pa.array([], pa.string()), "x": pa.array([], pa.float64())})
        assert booster.learn(empty, []).shape == (0,)
        assert booster.predict([]).shape == (0,)
        assert booster.n_keys == 0


# What is refused changes nothing.


BAD = [
    ([{"key": "u", "x": 1.0}, {"x": 2.0}], [1.0, 2.0], "row 1 has no key: its 'key' is None"),
    (pa.table({"key": ["u", "v", None], "x": [1.0, 2.0, 3.0]}), [1.0] * 3, "row 2 has no key"),
    (pa.table({"key": [1.0, float("nan")], "x": [1.0, 2.0]}), [1.0] * 2, "row 1 has no key"),
    (pa.table({"key": pa.nulls(2), "x": [1.0, 2.0]}), [1.0] * 2, "row 0 has no key"),
    ([{"key": "u", "x": 1.0}, {"key": 1.5, "x": 2.0}], [1.0, 2.0], "'key' of row 1 is no key: 1.5 is a float"),
    (pa.table({"key": [[1], [2]], "x": [1.0, 2.0]}), [1.0] * 2, "key"),
    (pa.table({"x": [1.0]}), [1.0], "there is no key column 'key'"),
    (pa.table({"key": ["u", "v"], "x": [1.0, 2.0]}), [1.0], "y has 1 rows and X has 2"),
    (pa.table({"key": ["u", "v"], "x": [1.0, 2.0]}), ["one", "two"], "not a number"),
    (pa.table({"key": ["u", "v", "u"], "x": [1.0, 2.0, np.inf]}), [1.0] * 3, "row 2: the model of key 'u' refuses it"),
    (pa.table({"key": ["u", "v", "w"], "x": [1.0, 2.0, 3.0]}), [1.0, np.nan, 1.0], "row 1: the model of key 'v'"),
    (pa.table({"key": ["u", "new"], "x": ["text", "text"]}), [1.0] * 2, "row 0: the model of key 'u' refuses it"),
    (pa.table({"key": ["new", "u"], "z": [1.0, 2.0]}), [1.0] * 2, "row 1: the model of key 'u' refuses it"),
    (np.ones((2, 2)), [1.0] * 2, "expected a frame, an Arrow table or a list of dicts"),
]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(("X", "y", "words"), BAD)
def test_a_chunk_with_a_bad_row_is_refused_as_a_whole(X, y, words, workers):
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


def starve(*args):
    raise MemoryError("Unable to allocate 80 GiB")


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
        ({"workers": 0, "engine": "local"}, "n_workers is 0"),
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


# Keys that are not known.


def test_predicting_makes_no_model_and_changes_nothing():
    keys, columns, y = stream(100)
    with KeyedBooster("key", tiny("regression"), hot=2) as booster:
        assert booster.predict([{"key": "new", "a": 1.0}]).tolist() == [0.0]
        booster.learn(frame(keys, columns, "dicts", range(100)), y)
        before = states(booster)
        assert booster.predict([{"key": "new", "a": 1.0}]).tolist() == [0.0]
        booster.predict(frame(keys, columns, "dicts", range(100)))
        assert states(booster) == before
        assert booster.key_rows("new") == 0
        with pytest.raises(KeyError, match="no model for the key 'new'"):
            booster.model_of("new")


def test_a_label_nobody_knows_is_none_and_has_no_probability():
    with KeyedBooster("key", tiny("classification")) as booster:
        assert booster.predict([{"key": 1, "x": 1.0}]).tolist() == [None]
        for ask in (lambda: booster.predict_proba([{"key": 1, "x": 1.0}]), lambda: booster.classes_):
            with pytest.raises(NotFittedError):
                ask()
        booster.learn([{"key": i % 2, "x": float(i)} for i in range(40)], ["ab"[i % 2] for i in range(40)])
        rows = [{"key": 0, "x": 1.0}, {"key": "new", "x": 1.0}]
        assert booster.predict(rows).tolist() == ["a", None]
        assert booster.predict_proba(rows).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_classes_are_those_of_all_keys_and_unseen_ones_have_probability_0():
    X = [{"key": "uv"[i % 2], "x": float(i % 5)} for i in range(60)]
    y = np.array([["no", "yes"][i % 4 == 0] if i % 2 == 0 else ["maybe", "no"][i % 3 == 0] for i in range(60)])
    with KeyedBooster("key", tiny("classification"), workers=2, engine="local") as booster:
        said = booster.learn(X, y, method="predict_proba")
        assert booster.classes_.tolist() == list(dict.fromkeys(y.tolist()))
        table = booster.predict_proba(X)
        for start in (0, 1):
            alone = tiny("classification")
            expected = alone.learn([{"x": row["x"]} for row in X[start::2]], y[start::2], method="predict_proba")
            columns = [booster.classes_.tolist().index(label) for label in alone.classes_]
            others = [i for i in range(len(booster.classes_)) if i not in columns]
            assert (said[start::2][:, columns] == expected).all()
            assert (said[start::2][:, others] == 0).all()
            assert (table[start::2][:, columns] == alone.predict_proba([{"x": row["x"]} for row in X[start::2]])).all()


# A prior.


def test_new_keys_begin_with_the_answers_of_the_prior(prior):
    X, y = shared_stream(20, 20, seed=2)
    with KeyedBooster("key", prior=prior, workers=2, engine="local") as booster:
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
        with KeyedBooster("key", prior=given_prior) as booster:
            errors.append(np.sqrt(np.mean((booster.learn(X, y) - y) ** 2)))
    frozen = np.sqrt(np.mean((prior.predict(X.drop_columns(["key"])) - y) ** 2))
    assert errors[1] < 0.5 * errors[0]  # better than without
    assert errors[1] < 0.7 * frozen  # and than the prior alone, as every key has an offset


def test_a_keys_state_does_not_grow_with_the_prior(prior):
    X, y = shared_stream(5, 200, seed=4)
    large = SGBRegressor(random_state=0).fit(X.drop_columns(["key"]), y)
    sizes = {}
    for name, one in (("none", None), ("small", prior), ("large", large)):
        with KeyedBooster("key", small_regressor(), prior=one) as booster:
            booster.learn(X, y)
            model = booster.model_of("k1")
            sizes[name] = len(snapshots.pack(model if one is None else model.model))
    assert len(snapshots.pack(large)) > 10 * len(snapshots.pack(prior))
    assert sizes["large"] == pytest.approx(sizes["small"], rel=0.02)
    assert sizes["small"] < 1.3 * sizes["none"]  # one column more


@pytest.mark.parametrize("kind", ["table", "dicts"])
def test_keys_with_a_prior_are_the_models_fed_by_hand(prior, kind):
    X, y = shared_stream(6, 120, seed=5)
    found = []
    for workers, hot in ((1, 1000), (3, 1)):
        with KeyedBooster("key", prior=prior, workers=workers, engine="local", hot=hot) as booster:
            said = [booster.learn(part if kind == "table" else part.to_pylist(), y[s : s + 40])
                    for s in (0, 40, 80) for part in [X.slice(s, 40)]]  # fmt: skip
            found.append((np.concatenate(said).tolist(), states(booster)))
            model = booster.model_of("k1")
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
    with KeyedBooster("key", prior=prior) as booster:
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
    with KeyedBooster("key", prior=prior, workers=2, engine="local", hot=2) as booster:
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
    with KeyedBooster("key", small_regressor(loss="poisson"), prior=prior) as booster:
        said = booster.learn([{"key": i, "x": x[i]} for i in range(20)], counts[:20])
        np.testing.assert_allclose(said, np.maximum(prior.predict(pa.table({"x": x[:20]})), 0), rtol=1e-6)


# Cuts, checkpoints, and the file they are in.


def test_what_was_detached_is_attached_by_another_process(tmp_path):
    keys, columns, y = stream(200, "classification")
    rows = frame(keys, columns, "dicts", range(200))
    with KeyedBooster("key", tiny("classification"), workers=3, engine="local", hot=2, directory=tmp_path) as booster:
        booster.learn(rows[:100], y[:100])
        snapshots.save(Checkpoint(booster.detach()), tmp_path / "checkpoint")
        cut_states, classes = states(booster), booster.classes_.tolist()
        booster.learn(rows[100:], y[100:])
        final = states(booster)
    cut = snapshots.load(tmp_path / "checkpoint").model
    with KeyedBooster("key", tiny("classification"), workers=3, engine="local", hot=4, directory=tmp_path) as booster:
        booster.attach(cut)
        assert states(booster) == cut_states
        assert booster.classes_.tolist() == classes
        assert booster.n_keys == len(cut_states)
        booster.learn(rows[100:], y[100:])
        assert states(booster) == final
        booster.attach(cut)  # again, in the same process
        assert states(booster) == cut_states


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 5), (1, 3), (4, 1)])
def test_keys_move_when_the_number_of_workers_changes(tmp_path, before, after):
    keys, columns, y = stream(300, n_keys=30)
    rows = frame(keys, columns, "dicts", range(300))
    options = {"engine": "local", "hot": 3, "directory": tmp_path}
    with KeyedBooster("key", tiny("regression"), workers=before, **options) as booster:
        booster.learn(rows[:200], y[:200])
        booster.forget(keys[0])
        cut, cut_states = booster.detach(), states(booster)
        booster.learn(rows[200:], y[200:])
        final = states(booster)
    with KeyedBooster("key", tiny("regression"), workers=after, **options) as booster:
        booster.attach(cut)
        assert states(booster) == cut_states
        assert booster.n_keys == len(cut_states)
        assert sum(worker["rows"] for worker in booster.metrics()) == sum(map(booster.key_rows, booster.keys()))
        booster.learn(rows[200:], y[200:])
        assert states(booster) == final
        cuts = [booster.detach(), booster.detach()]
        booster.confirm(cuts[0])
        booster.learn(rows[200:], y[200:])
        cuts.append(booster.detach())
        assert list(tmp_path.glob(f"worker-*/keys-of-{before}.sqlite"))  # one of the last two checkpoints needs them
        booster.confirm(cuts[2])
        booster.detach()
    assert not list(tmp_path.glob(f"worker-*/keys-of-{before}.sqlite*"))  # once no checkpoint needs them
    with KeyedBooster("key", tiny("regression"), workers=before, **options) as booster:
        booster.attach(cuts[0])
        assert states(booster) == final


def test_wrong_cuts_are_refused(tmp_path, prior):
    with KeyedBooster("key", tiny("regression"), directory=tmp_path / "a") as booster:
        booster.learn([{"key": 1, "x": 1.0}], [1.0])
        cut = booster.detach()
        with pytest.raises(ValueError, match="expected one of a 'keyed'"):
            booster.attach(Cut("sharded"))
        with pytest.raises(ValueError, match="expected one of a 'keyed'"):
            booster.attach("something else")
    for key, options, words in (
        ("other", {}, "key is 'other', but the cut was made with 'key'.*the same --key as before"),
        ("key", {"model": None, "prior": prior}, "but the cut was made with .*the same --option, --start-from"),
        ("key", {"directory": tmp_path / "b"}, "Name the directory it was made in"),
        ("key", {"directory": tmp_path / "b", "workers": 2, "engine": "local"}, "Name the directory it was made in"),
    ):
        options = {"model": tiny("regression"), "directory": tmp_path / "a", **options}
        with KeyedBooster(key, **options) as booster, pytest.raises(ValueError, match=words):
            booster.attach(cut)
    kept = snapshots.load(tmp_path / "a" / "beginning.safetensors")
    with KeyedBooster("key", kept["model"], prior=kept["prior"], directory=tmp_path / "a") as booster:
        booster.attach(cut)
        assert booster.key_rows(1) == 1


def test_without_a_directory_nothing_can_be_detached():
    with KeyedBooster("key") as booster, pytest.raises(ValueError, match="directory is None"):
        booster.detach()


def test_a_forgotten_key_begins_anew(tmp_path):
    rows, y = [{"key": "uv"[i % 2], "x": float(i)} for i in range(20)], np.arange(20.0)
    with KeyedBooster("key", tiny("regression"), hot=1, directory=tmp_path) as booster:
        booster.learn(rows, y)
        cut = booster.detach()
        assert booster.forget("u")
        assert not booster.forget("u")
        assert not booster.forget("never seen")
        assert (booster.n_keys, booster.key_rows("u"), booster.keys()) == (1, 0, ["v"])
        booster.learn(rows, y)
        alone = tiny("regression")
        alone.learn([{"x": row["x"]} for row in rows[::2]], y[::2])
        assert same_state(booster.model_of("u"), alone)
        booster.attach(cut)
        assert booster.key_rows("u") == 10


def test_a_cut_writes_only_what_changed(tmp_path):
    with KeyedBooster("key", tiny("regression"), directory=tmp_path) as booster:
        booster.learn([{"key": i, "x": 1.0} for i in range(50)], np.ones(50))
        booster.detach()
        assert booster.metrics()[0]["packed"] == 50
        booster.learn([{"key": i, "x": 1.0} for i in range(3)], np.ones(3))
        booster.detach()
        assert booster.metrics()[0]["packed"] == 53


def read_all(directory, cut):
    with KeyedBooster("key", tiny("regression"), directory=directory) as booster:
        booster.attach(cut)
        return states(booster)


def test_damaged_files_are_noticed(tmp_path):
    with KeyedBooster("key", tiny("regression"), directory=tmp_path) as booster:
        booster.learn([{"key": i, "x": 1.0} for i in range(20)], np.ones(20))
        cut = booster.detach()
    path = tmp_path / "worker-00000" / "keys-of-1.sqlite"
    whole = path.read_bytes()

    with sqlite3.connect(path) as db:
        state = db.execute("SELECT state FROM states WHERE id = 5").fetchone()[0]
        db.execute("UPDATE states SET state = ? WHERE id = 5", (state[:-9] + bytes(9),))
    db.close()
    with pytest.raises(SnapshotError, match="is damaged: the checksum of key"):
        read_all(tmp_path, cut)

    for damage in (whole[: len(whole) // 2], bytes(100) + whole[100:], b"no database at all" * 100):
        path.write_bytes(damage)
        with pytest.raises(SnapshotError, match=r"damaged|no cut"):
            read_all(tmp_path, cut)

    path.unlink()
    with pytest.raises(SnapshotError, match="there is no cut"):
        read_all(tmp_path, cut)


class FragileCrew(LocalCrew):
    """A local crew whose workers vanish at random, between two messages."""

    can_die = True

    def __init__(self, *args, seed: int, **named) -> None:
        self.dice = np.random.default_rng(seed)
        self.n_deaths = 0
        super().__init__(*args, **named)

    def _send(self, worker, message):
        if message[0] in ("call", "ask", "save") and self.dice.uniform() < 0.08:
            self._stations[worker] = None  # its memory is gone, its file stays
        station = self._stations[worker]
        return None if station is None else station.handle(*message)

    def _wait(self, worker, handle):
        if handle is None:
            from streamboost.cluster.recovery import WorkerDied

            self.n_deaths += 1
            raise WorkerDied("gone")
        return handle


@pytest.mark.parametrize("seed", range(2))
def test_workers_that_vanish_at_random_change_nothing(tmp_path, monkeypatch, seed):
    keys, columns, y = stream(240, n_keys=12)
    rows = frame(keys, columns, "dicts", range(240))
    crews = []

    def fragile(cls, options, *, workers, directory, **_):
        crews.append(FragileCrew(cls, options, workers, directory, cut_every=5, seed=seed))
        return crews[-1]

    found = []
    for is_fragile in (False, True):
        with monkeypatch.context() as patch:
            if is_fragile:
                patch.setattr("streamboost.cluster.keyed.make_crew", fragile)
            with KeyedBooster("key", tiny("regression"), workers=2, engine="local", hot=3,
                              directory=tmp_path / str(is_fragile)) as booster:  # fmt: skip
                said = [booster.learn(rows[s : s + 8], y[s : s + 8]).tolist() for s in range(0, 240, 8)]
                found.append((said, states(booster), list(map(booster.key_rows, booster.keys()))))
    assert crews[0].n_deaths > 5
    assert found[0] == found[1]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    keys, columns, y = stream(100)
    rows = frame(keys, columns, "dicts", range(100))
    with KeyedBooster("key", tiny("regression"), hot=2, directory=tmp_path) as booster:
        booster.learn(rows[:60], y[:60])
        booster.detach()
        booster.learn(rows[60:], y[60:])
        before = states(booster)

        def full(*_):
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr("streamboost.cluster.key_store.KeyStore.put", full)
            with pytest.raises(OSError, match="disk full"):
                booster.predict(rows)
            with pytest.raises(OSError, match="disk full"):
                booster.detach()
        assert states(booster) == before
        cut = booster.detach()
        booster.learn(rows, y)
        booster.attach(cut)
        assert states(booster) == before


# The file itself.


def test_the_store_goes_back_and_forth_between_cuts(tmp_path):
    """Against a dict of dicts, through branches and dropped cuts."""
    rng = np.random.default_rng(0)
    path = tmp_path / "keys.sqlite"
    store, present, cuts, number = KeyStore(path), {}, {}, 0
    for _ in range(400):
        act = rng.choice(["put", "forget", "cut", "back", "keep", "open"], p=[0.5, 0.1, 0.2, 0.1, 0.05, 0.05])
        key = b"s%d" % rng.integers(12)
        if act == "put":
            store.put([Packed(key, number, rng.bytes(20))])
            present = {**present, key: store.get(key)}
        elif act == "forget":
            store.put([Packed(key, 0, None)])
            present = {other: packed for other, packed in present.items() if other != key}
        elif act == "cut":
            number += 1
            more = Packed(key, number, rng.bytes(20))
            store.cut(number, {"n": number}, [more])
            present = {**present, key: more}
            cuts[number] = present
        elif act == "keep" and cuts:
            kept = [cut for cut in cuts if rng.uniform() < 0.5 or cut == number]
            store.keep(kept)
            cuts = {cut: cuts[cut] for cut in kept if cut in cuts}
        elif act in ("back", "open") and cuts:
            if act == "open":
                store.close()
                store = KeyStore(path)
                assert store.keys() == []  # stands on nothing until it goes back
            chosen = int(rng.choice(list(cuts)))
            assert store.go_back(chosen) == {"n": chosen}
            present = cuts[chosen]
        known = store.keys()
        assert {one: store.get(one) for one in known} == present
        assert sorted(store.cuts()) == sorted(cuts)
    n_states = store._db.execute("SELECT count(*) FROM states").fetchone()[0]
    n_needed = store._db.execute("SELECT count(*) FROM models WHERE state IS NOT NULL").fetchone()[0]
    assert n_states == n_needed
    store.close()


def test_old_versions_do_not_pile_up(tmp_path):
    store = KeyStore(tmp_path / "keys.sqlite")
    for number in range(1, 60):
        store.cut(number, {}, [Packed(b"s%d" % i, number, bytes(5000)) for i in range(20)])
        store.keep([number - 1, number])
    assert store._db.execute("SELECT count(*) FROM models").fetchone()[0] == 40
    assert len(store._chain) <= 4
    store.close()
    assert (tmp_path / "keys.sqlite").stat().st_size < 1_000_000


def test_a_file_in_use_by_another_process_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "keys.sqlite"
    code = f"import streamboost.cluster.key_store as k; s = k.KeyStore({str(path)!r}); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"1\n"
        monkeypatch.setattr("streamboost.cluster.key_store.PATIENCE", 0.1)
        with pytest.raises(BlockingIOError, match="in use by another process"):
            KeyStore(path)
        other.kill()
    KeyStore(path).close()


def test_a_file_of_a_newer_format_is_refused(tmp_path):
    KeyStore(tmp_path / "keys.sqlite").close()
    db = sqlite3.connect(tmp_path / "keys.sqlite")
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(SnapshotError, match="format 9"):
        KeyStore(tmp_path / "keys.sqlite")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OSError, match="could not be read or written"):
        KeyStore(tmp_path / "no such folder" / "keys.sqlite")


def test_memory_does_not_hold_cold_keys(tmp_path):
    shard = KeyShard(tiny("regression"), hot=5)
    shard.settle(str(tmp_path))
    for s in range(0, 300, 50):
        tokens = [b"i%d" % i for i in range(s, s + 50)]
        shard.learn([{"x": float(i)} for i in range(50)], tokens, np.ones(50, int), np.ones(50))
        assert shard.sizes()["hot"] <= 5
    assert len(shard.keys()) == shard.n_keys == 300


# With the loops.


def test_prequential_scores_it_like_any_estimator():
    X, y = shared_stream(5, 800, seed=8)
    pandas = pytest.importorskip("pandas")
    with KeyedBooster("key") as booster:
        history = run(booster, X.append_column("y", pa.array(y)), "y", every=400)
        assert set(history.last.running) == {"rmse", "mae", "r2"}
        assert history.last.running["r2"] > 0.3
    labels = np.where(y > 2, "up", "down")
    with KeyedBooster("key", small_classifier()) as booster:
        rows = pandas.DataFrame(X.to_pydict()).assign(y=labels)
        history = run(booster, rows, "y", every=400)
        assert set(history.last.running) == {"accuracy", "kappa", "log_loss"}
        assert history.last.running["accuracy"] > 0.6
    with KeyedBooster("key", small_classifier()) as booster:
        late = run(booster, X.append_column("y", pa.array(labels)).slice(0, 100), "y", every=100, delay=10)
        assert late.last.rows == 100


def test_a_run_learns_a_file_with_it(tmp_path):
    X, y = shared_stream(5, 600, seed=9)
    labels = np.where(y > 2, "up", "down")
    parquet.write_table(X.append_column("y", pa.array(labels)), tmp_path / "rows.parquet")
    with KeyedBooster("key", small_classifier()) as booster:
        options = Options("y", "classification", chunk=100, every=300, predictions=tmp_path / "said.csv")
        with Run(open_source(str(tmp_path / "rows.parquet")), booster, options) as run_:
            reports = list(run_.reports())
        assert reports[-1].rows == 600
        assert {"accuracy", "auc"} <= set(reports[-1].running)
        assert sum(map(booster.key_rows, booster.keys())) == 600


def test_a_run_puts_rows_without_a_key_into_quarantine(tmp_path):
    X, y = shared_stream(5, 300, seed=12)
    keys = [None if i in (150, 217) else key for i, key in enumerate(X["key"].to_pylist())]
    X = X.set_column(0, "key", pa.array(keys)).append_column("y", pa.array(y))
    parquet.write_table(X, tmp_path / "rows.parquet")
    with KeyedBooster("key", directory=tmp_path / "keys") as booster:
        options = Options("y", "regression", chunk=50, every=100)
        with Run(open_source(str(tmp_path / "rows.parquet")), booster, options, tmp_path / "model") as run_:
            assert list(run_.reports())[-1].rows == 298
            assert run_.n_bad == 2
        assert "has no key" in (tmp_path / "model" / "quarantine.jsonl").read_text()
        own = [i for i, key in enumerate(keys) if key == "k1"]
        alone = small_regressor()
        alone.learn(X.take(own).drop_columns(["key", "y"]), y[own])
        assert same_state(booster.model_of("k1"), alone)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_been(tmp_path, workers):
    X, y = shared_stream(12, 900, seed=11)
    parquet.write_table(X.append_column("y", pa.array(y)), tmp_path / "rows.parquet")

    def go(name: str, resume: bool, stop_after: int | None) -> dict:
        booster = KeyedBooster("key", hot=4, directory=tmp_path / name / "keys", workers=workers, engine="local")
        options = Options("y", "regression", chunk=50, every=300, predictions=tmp_path / f"{name}.csv")
        source = open_source(str(tmp_path / "rows.parquet"))
        with booster, Run(source, booster, options, tmp_path / name, resume=resume) as run_:
            for report in run_.reports():
                if report.rows == stop_after:
                    run_.stop()
            return states(booster)

    whole = go("whole", False, None)
    go("halved", False, 300)
    assert go("halved", True, None) == whole
    assert (tmp_path / "halved.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
