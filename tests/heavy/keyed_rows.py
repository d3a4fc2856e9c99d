"""Rows of some keys, a few of them bad, and what a plain dict of models makes of them."""

import copy
import math

import numpy as np
import pyarrow as pa

from streamboost import SGBClassifier, SGBRegressor
from streamboost.evaluation.predictions import predict_then_learn

SMALL = {"n_estimators": 20, "max_depth": 4, "memory": 256, "random_state": 0}
COLUMNS = [f"x{j}" for j in range(4)]


def keyed_rows(n_keys, rows_per_key, seed=0):
    """Rows in order: key, place, columns, and a target that depends on the key; every 97th is bad."""
    rng = np.random.default_rng(seed)
    n = n_keys * rows_per_key
    X = rng.normal(size=(n, len(COLUMNS)))
    keys = rng.integers(n_keys, size=n)
    y = X[:, 0] * (keys % 5 - 2) + np.abs(X[:, 1])
    rows = []
    for i in range(n):
        rows.append({"key": f"k{keys[i]}", "place": i} | dict(zip(COLUMNS, X[i].tolist(), strict=True)) | {"y": y[i]})
        if i % 97 == 31:
            rows[-1][("y", "x2")[i % 2]] = (None, math.inf)[i % 2]
    return rows


def as_classes(rows):
    """The same with text for targets."""
    return [row | {"y": None if row["y"] is None else ("high" if row["y"] > 0 else "low")} for row in rows]


def is_bad(row):
    return row["y"] is None or math.isinf(row["x2"])


def new_model(kind, rows=()):
    """A small model; with rows, one that has learned them."""
    model = {"regression": SGBRegressor, "classification": SGBClassifier}[kind](**SMALL)
    good = [row for row in rows if not is_bad(row)]
    if good:
        model.learn(table(good), np.array([row["y"] for row in good]))
    return model


def table(rows):
    return pa.table({name: [row[name] for row in rows] for name in COLUMNS})


def plain_dict(model, rows):
    """What a dict of models predicts of every row, by place, and the models, by key."""
    models, said = {}, {}
    for key in sorted({row["key"] for row in rows}):
        of_key = [row for row in rows if row["key"] == key and not is_bad(row)]
        models[key] = copy.deepcopy(model)
        found = predict_then_learn(models[key], table(of_key), np.array([row["y"] for row in of_key]))
        values = zip(found.values.tolist(), found.known.tolist(), strict=True)
        said |= {row["place"]: value if known else None for row, (value, known) in zip(of_key, values, strict=True)}
    return said, models


def check_same(told, loaded, model, rows):
    """Every row is told of once, bad ones with a reason, and all is as a dict of models has it."""
    said, models = plain_dict(model, rows)
    assert sorted(one["place"] for one in told) == [row["place"] for row in rows]
    by_place = {one["place"]: one for one in told}
    assert {place for place, one in by_place.items() if one["refused"]} == {row["place"] for row in rows if is_bad(row)}
    assert {place: one["prediction"] for place, one in by_place.items() if not one["refused"]} == said
    assert loaded.keys() == models.keys()
    from streamboost.persistence.object_graph import same_state

    assert [key for key, model in models.items() if not same_state(loaded[key], model)] == []
