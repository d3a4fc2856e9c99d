"""One model per key, against a plain dict of models fed by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed_streams import features, frame, states, stream, tiny, twins
from sklearn.exceptions import NotFittedError

from streamboost.cluster.key_models import small_classifier
from streamboost.cluster.keyed import KeyedBooster
from streamboost.persistence.object_graph import same_state


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
