"""One model per key, against a plain dict of models fed by hand."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed_streams import features, frame, states, stream, tiny, twins
from sklearn.exceptions import NotFittedError

import streamboost
from streamboost import KeyedModel
from streamboost.keyed import from_bytes, small_classifier, to_bytes
from streamboost.keyed.keys import key_of, token_of
from streamboost.persistence.object_graph import same_state


@settings(max_examples=15)
@given(
    chunks=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    hot=st.sampled_from([1, 2, 1000]),
    kind=st.sampled_from(["dicts", "pandas", "table"]),
    task=st.sampled_from(["regression", "classification"]),
    seed=st.integers(0, 50),
)
def test_every_key_has_the_model_it_would_have_alone(chunks, hot, kind, task, seed):
    keys, columns, y = stream(sum(chunks), task, seed)
    if kind == "table":  # a column of a table has one type
        keys = [str(key) for key in keys]
    template = tiny(task)
    models, expected = twins(template, keys, columns, y, chunks, "dicts" if kind == "dicts" else "table")
    model, said, start = KeyedModel(template, key="key", hot=hot), [], 0
    for size in chunks:
        places = range(start, start + size)
        said += model.learn(frame(keys, columns, kind, places), y[list(places)]).tolist()
        start += size
    assert said == expected.tolist()
    assert set(zip(map(type, model.keys()), model.keys(), strict=True)) == set(models)
    assert model.n_keys == len(models)
    assert model.n_samples_seen_ == sum(chunks)
    for (_, key), alone in models.items():
        assert same_state(model.model(key), alone)
        assert model.rows(key) == alone.committee_.n_rows
    if kind != "dicts":
        rows = frame(keys, columns, kind, range(sum(chunks)))
        assert model.predict(rows).tolist() == [
            models[type(key), key].predict(features(columns, kind, [i])).tolist()[0] for i, key in enumerate(keys)
        ]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_chunks_are_row_by_row_whatever_is_hot(task):
    keys, columns, y = stream(240, task, n_keys=15)
    found = []
    for hot, size in ((1, 60), (1000, 60), (3, 1), (1000, 240)):
        model, said = KeyedModel(tiny(task), key="key", hot=hot), []
        for s in range(0, 240, size):
            said += model.learn(frame(keys, columns, "dicts", range(s, s + size)), y[s : s + size]).tolist()
            assert model.n_hot <= hot
        found.append((said, states(model)))
    assert found[0] == found[1] == found[2] == found[3]


def test_one_row_at_a_time_is_the_same_model():
    keys, columns, y = stream(80, "classification", text=False)
    rows = frame(keys, columns, "dicts", range(80))
    one, whole = (KeyedModel(tiny("classification"), key="key", hot=2) for _ in range(2))
    for i, row in enumerate(rows):
        beside = {name: value for name, value in row.items() if name != "key"}
        if i % 2:
            one.learn_one(row, y[i])
        else:
            one.learn_one(beside, y[i], key=keys[i])
    whole.partial_fit(rows, y)
    assert states(one) == states(whole)
    assert [one.predict_one(row) for row in rows] == whole.predict(rows).tolist()
    table = whole.predict_proba(rows)
    assert [list(one.predict_proba_one(row).values()) for row in rows] == table.tolist()
    assert list(one.predict_proba_one(rows[0])) == whole.classes_.tolist()


@pytest.mark.parametrize("kind", ["array", "table", "pandas", "dicts"])
def test_keys_may_stand_beside_the_rows(kind):
    keys, columns, y = stream(60, text=False)
    named = KeyedModel(tiny("regression"), key="key")
    said = named.learn(frame(list(map(str, keys)), columns, "table", range(60)), y)
    X = {"array": np.column_stack([*columns.values()]), "table": pa.table(columns)}
    X |= {"pandas": X["table"].to_pandas(), "dicts": X["table"].to_pylist()}
    beside = KeyedModel(tiny("regression"))
    assert beside.learn(X[kind], y, key=pa.array(list(map(str, keys)))).tolist() == said.tolist()
    assert beside.predict(X[kind], key=list(map(str, keys))).shape == (60,)
    with pytest.raises(ValueError, match="key has 59 values and X has 60 rows"):
        beside.learn(X[kind], y, key=keys[1:])
    with pytest.raises(ValueError, match="there is no key, expected one for each row"):
        beside.learn(X[kind], y)


def test_the_key_is_no_feature():
    keys, columns, y = stream(50)
    model = KeyedModel(tiny("regression"), key="key")
    model.learn(frame(keys, columns, "table", range(50)), y)
    assert model.model("Bonn").feature_names_in_.tolist() == ["a", "b", "city"]
    assert dict(zip(model.encoder_.names, model.encoder_.kinds, strict=True)) == {
        "a": "number", "b": "number", "city": "category", "key": "category",
    }  # fmt: skip


def test_several_targets_a_row():
    rng = np.random.default_rng(0)
    X, y = pa.table({"key": ["u", "v"] * 20, "x": rng.normal(size=40)}), rng.normal(size=(40, 2))
    model = KeyedModel(tiny("regression"), key="key")
    assert model.learn(X, y).shape == (40, 2)
    assert model.predict([{"key": "unknown", "x": 1.0}]).tolist() == [[0.0, 0.0]]
    alone = tiny("regression")
    alone.learn(pa.table({"x": X["x"].to_numpy()[::2]}), y[::2])
    assert same_state(model.model("u"), alone)


@pytest.mark.parametrize("width", [1, 2])
def test_all_keys_have_as_many_targets_and_answers_one_shape(width):
    wide = {1: [[1.0], [2.0]], 2: [[1.0, 2.0], [3.0, 4.0]], 3: [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]}
    model, shape = KeyedModel(tiny("regression"), key="key"), (width,) * (width > 1)
    assert model.learn([{"key": "u", "x": 1.0}, {"key": "v", "x": 2.0}], wide[width]).shape == (2, *shape)
    before = states(model)
    for y in [wide[other] for other in wide if other != width] + ([[1.0, 2.0]] if width > 1 else []):
        with pytest.raises(ValueError, match=f"numbers a row, expected {width}, as the rows before.*Nothing was"):
            model.learn([{"key": "new", "x": 1.0}, {"key": "newer", "x": 2.0}], y)
    assert states(model) == before
    assert model.learn([], []).shape == (0, *shape)
    for asked in (["u"], ["unknown"], ["u", "unknown"], ["unknown", "u", "v"], []):
        assert model.predict([{"key": key, "x": 1.0} for key in asked]).shape == (len(asked), *shape)


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
    model = KeyedModel(tiny("regression"), key="key")
    model.learn(pa.table({"key": column, "x": [1.0, 2.0, 3.0, 4.0]}), [1.0, 2.0, 3.0, 4.0])
    first = column.to_pylist()[0]
    assert model.rows(first) == column.to_pylist().count(first)
    assert model.n_keys == len(set(column.to_pylist()))


@given(st.one_of(st.text(), st.integers(), st.booleans()), st.one_of(st.text(), st.integers(), st.booleans()))
def test_a_token_tells_a_key_from_all_others(one, other):
    assert (key_of(token_of(one)), type(key_of(token_of(one)))) == (one, type(one))
    assert (token_of(one) == token_of(other)) == (one == other and type(one) is type(other))


def test_an_empty_chunk_is_a_no_op():
    model = KeyedModel(tiny("regression"), key="key")
    empty = pa.table({"key": pa.array([], pa.string()), "x": pa.array([], pa.float64())})
    assert model.learn(empty, []).shape == (0,)
    assert model.predict([]).shape == (0,)
    assert model.n_keys == 0


def test_predicting_makes_no_model_and_changes_nothing():
    keys, columns, y = stream(100)
    model = KeyedModel(tiny("regression"), key="key", hot=2)
    assert model.predict([{"key": "new", "a": 1.0}]).tolist() == [0.0]
    model.learn(frame(keys, columns, "dicts", range(100)), y)
    before = states(model)
    assert model.predict([{"key": "new", "a": 1.0}]).tolist() == [0.0]
    model.predict(frame(keys, columns, "dicts", range(100)))
    assert states(model) == before
    assert model.rows("new") == 0
    with pytest.raises(KeyError, match="no model for the key 'new'"):
        model.model("new")


def test_a_label_nobody_knows_is_none_and_has_no_probability():
    model = KeyedModel(tiny("classification"), key="key")
    assert model.predict([{"key": 1, "x": 1.0}]).tolist() == [None]
    assert model.predict_proba_one({"key": 1, "x": 1.0}) == {}
    for ask in (lambda: model.predict_proba([{"key": 1, "x": 1.0}]), lambda: model.classes_):
        with pytest.raises(NotFittedError):
            ask()
    model.learn([{"key": i % 2, "x": float(i)} for i in range(40)], ["ab"[i % 2] for i in range(40)])
    rows = [{"key": 0, "x": 1.0}, {"key": "new", "x": 1.0}]
    assert model.predict(rows).tolist() == ["a", None]
    assert model.predict_proba(rows).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_classes_are_those_of_all_keys_and_unseen_ones_have_probability_0():
    X = [{"key": "uv"[i % 2], "x": float(i % 5)} for i in range(60)]
    y = np.array([["no", "yes"][i % 4 == 0] if i % 2 == 0 else ["maybe", "no"][i % 3 == 0] for i in range(60)])
    model = KeyedModel(tiny("classification"), key="key")
    said = model.learn(X, y, method="predict_proba")
    assert model.classes_.tolist() == list(dict.fromkeys(y.tolist()))
    table = model.predict_proba(X)
    for start in (0, 1):
        alone = tiny("classification")
        expected = alone.learn([{"x": row["x"]} for row in X[start::2]], y[start::2], method="predict_proba")
        columns = [model.classes_.tolist().index(label) for label in alone.classes_]
        others = [i for i in range(len(model.classes_)) if i not in columns]
        assert (said[start::2][:, columns] == expected).all()
        assert (said[start::2][:, others] == 0).all()
        assert (table[start::2][:, columns] == alone.predict_proba([{"x": row["x"]} for row in X[start::2]])).all()


def test_weights_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(60, 2)), rng.normal(size=60), rng.choice([0.0, 0.5, 2.0], 60)
    model, alone = KeyedModel(tiny("regression")), tiny("regression")
    model.learn(X, y, w, key=np.arange(60) % 3)
    alone.learn(X[1::3], y[1::3], w[1::3])
    assert same_state(model.model(1), alone)


def test_a_forgotten_key_begins_anew():
    rows, y = [{"key": "uv"[i % 2], "x": float(i)} for i in range(20)], np.arange(20.0)
    model = KeyedModel(tiny("regression"), key="key", hot=1)
    model.learn(rows, y)
    assert [model.forget(key) for key in ("u", "u", "never seen")] == [True, False, False]
    assert (model.n_keys, model.rows("u"), model.keys(), model.n_samples_seen_) == (1, 0, ["v"], 10)
    model.learn(rows, y)
    alone = tiny("regression")
    alone.learn([{"x": row["x"]} for row in rows[::2]], y[::2])
    assert same_state(model.model("u"), alone)


# Rows on their way.


def test_rows_are_prepared_as_if_those_before_had_been_learned():
    keys, columns, y = stream(90, "classification", n_keys=8)
    whole, chained = (KeyedModel(small_classifier(), key="key", hot=2) for _ in range(2))
    parts = [(frame(keys, columns, "dicts", range(s, s + 30)), y[s : s + 30]) for s in (0, 30, 60)]
    said = [whole.learn(*part).tolist() for part in parts]
    before, prepared = None, []
    for part in parts:
        before = chained.prepare(*part, after=before)
        prepared.append(before)
    assert chained.n_keys == 0
    assert [chained.learn_prepared(one).tolist() for one in prepared] == said
    assert states(chained) == states(whole)


def test_rows_prepared_for_other_models_are_refused():
    rows, y = [{"key": i % 2, "x": float(i)} for i in range(6)], list("ababab")
    model = KeyedModel(tiny("classification"), key="key")
    first, second = model.prepare(rows, y), model.prepare(rows, y)
    model.learn_prepared(first)
    before = states(model)
    with pytest.raises(ValueError, match="Call prepare again"):
        model.learn_prepared(second)
    stale = model.prepare(rows, y)
    assert states(model) == before
    model.forget(0)
    with pytest.raises(ValueError, match="Call prepare again"):
        model.learn_prepared(stale)


# Files.


@pytest.mark.parametrize("hot", [2, 1000])
def test_a_saved_model_goes_on_as_if_nothing_had_happened(tmp_path, hot):
    keys, columns, y = stream(200, "classification", n_keys=12)
    model = KeyedModel(tiny("classification"), key="key", hot=hot)
    model.learn(frame(keys, columns, "dicts", range(100)), y[:100])
    model.save(tmp_path / "model.safetensors")
    twins = [streamboost.load(tmp_path / "model.safetensors"), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    rows = frame(keys, columns, "dicts", range(100, 200))
    said = model.learn(rows, y[100:]).tolist()
    for twin in twins:
        assert (twin.hot, twin.key, twin.n_samples_seen_) == (hot, "key", 100)
        assert twin.learn(rows, y[100:]).tolist() == said
        assert states(twin) == states(model)
        assert twin.classes_.tolist() == model.classes_.tolist()


def test_a_model_as_bytes_is_the_model():
    model = tiny("regression").fit([[0.0], [1.0]], [1.0, 2.0])
    data = to_bytes(model)
    assert same_state(from_bytes(data), model)
    for bad in (data[:-1], data[:20], b"", data[:8] + b"x" * 40, b"\xff" * 8 + data[8:]):
        with pytest.raises(streamboost.errors.SnapshotError):
            from_bytes(bad)
