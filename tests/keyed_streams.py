"""Streams of many keys, and the naive twin of one model per key: a plain dict of models fed by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone

from streamboost import SGBClassifier, SGBRegressor
from streamboost.keyed import KeyedModel, small_regressor
from streamboost.keyed.keys import token_of
from streamboost.persistence import snapshots

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


def states(model: KeyedModel) -> dict:
    return {token_of(key): snapshots.pack(model.model(key)) for key in [*model.keys()]}


def shared_stream(n_keys: int, n: int, seed: int = 0):
    """One function for all keys, and an offset for each."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, n_keys, n)
    offsets = np.random.default_rng(99).normal(size=n_keys)
    a, b = rng.uniform(size=n), rng.uniform(size=n)
    city = rng.choice(["p", "q", "r"], n)
    y = 8 * np.sin(6 * a * b) + 3 * (city == "q") + offsets[numbers] + rng.normal(size=n) / 10
    return pa.table({"key": [f"k{i}" for i in numbers], "city": city, "a": a, "b": b}), y


def fitted_prior():
    """A model of all keys together."""
    X, y = shared_stream(30, 3000, seed=1)
    return small_regressor(n_estimators=40, memory=1024).fit(X.drop_columns(["key"]), y)
