"""Dates in streams: learned by their calendar, one column to whoever asks, the same in every dialect."""

import copy
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import streamboost
from streamboost import KeyedModel, SGBClassifier, SGBRegressor
from streamboost.estimators.describe import describe
from streamboost.features.dates import PARTS
from streamboost.persistence.object_graph import same_state

SMALL = {"n_estimators": 5, "max_depth": 3, "memory": (32, 128), "random_state": 0}


@pytest.fixture(scope="module")
def stream():
    """Moments of three months, a number and a text, and a target of all of them."""
    rng = np.random.default_rng(0)
    n = 300
    at = [datetime(2024, 1, 1) + timedelta(minutes=int(m)) for m in np.sort(rng.integers(0, 90 * 1440, n))]
    x, place = rng.normal(size=n), rng.choice(["a", "b"], n)
    y = np.array([moment.hour > 12 for moment in at]) * 3.0 + x + (place == "a") + 0.1 * rng.normal(size=n)
    return pa.table({"x": x, "at": at, "place": place}), y


@pytest.mark.parametrize("options", [{}, {"learner": "mlp"}, {"learner": "linear"}, {"max_features": 0.5}], ids=str)
def test_a_chunk_is_learned_as_row_by_row_saved_and_loaded(stream, options, tmp_path):
    X, y = stream
    chunk, rows = SGBRegressor(**SMALL | options), SGBRegressor(**SMALL | options)
    said = chunk.learn(X, y)
    for i in range(len(y)):
        assert rows.learn(X.slice(i, 1), y[i : i + 1])[0] == said[i]
        if i == 150:
            rows.save(tmp_path / "model")
            rows = streamboost.load(tmp_path / "model")
    assert same_state(chunk, rows)


@pytest.mark.parametrize("make", [SGBRegressor, SGBClassifier])
def test_a_date_column_that_comes_late_is_learned_in_a_chunk_as_one_by_one(make, stream):
    """The column is new, or has been missing so far; another comes after it."""
    X, y = stream
    rows = X.to_pylist()
    for i, row in enumerate(rows):
        row["early"] = date(2024, 1, 1) + timedelta(days=i % 40) if i >= 70 else None
        if i < 100:
            del row["at"]
        if i >= 130:
            row["late"] = row["x"]
    y = y if make is SGBRegressor else (y > 1).astype(int)
    chunk, one_by_one = make(**SMALL), make(**SMALL)
    chunk.learn(rows, y)
    for row, target in zip(rows, y, strict=True):
        one_by_one.learn_one(row, target)
    assert same_state(chunk, one_by_one)
    assert chunk.encoder_.kinds.count("date") == 2
    assert [event.detail for event in chunk.events_ if event.kind == "new column"] == ["early", "at", "late"]
    assert chunk.n_features_in_ == len(chunk.feature_importances_) == 5


def test_every_dialect_gives_the_same_model_and_the_same_predictions(stream):
    X, y = stream
    rows = X.to_pylist()
    model = SGBRegressor(**SMALL, new_columns="grow")
    model.learn(X, y)
    twin = clone(model)
    twin.learn_many(pd.DataFrame(rows)[["x", "at", "place"]], y)
    said = model.predict(X)
    written = [row | {"at": row["at"].isoformat() + "Z"} for row in rows]
    columns = {"x": X["x"], "place": X["place"]}
    for frame in (
        rows,
        written,
        pd.DataFrame(rows),
        pd.DataFrame(written),
        pd.DataFrame(rows).assign(at=lambda frame: frame["at"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        pa.table(columns | {"at": X["at"].cast(pa.timestamp("ns", "UTC"))}),
        pa.table(columns | {"at": X["at"].cast(pa.string())}),
    ):
        assert model.predict(frame).tobytes() == said.tobytes()
    for ways in (rows, written):
        assert [model.predict_one(row) for row in ways] == said.tolist()


def test_a_date_is_one_column_to_whoever_asks(stream):
    X, y = stream
    model = SGBRegressor(**SMALL).fit(X, y)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["x", "at", "place"]
    assert model.encode(X).shape == (len(y), 3 + len(PARTS))
    shares = model.feature_importances_
    assert shares.shape == (3,)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] > 0.3
    assert [column["kind"] for column in describe(model)["columns"]] == ["number", "date", "category"]


def test_constraints_speak_of_input_columns_and_of_a_dates_seconds(stream):
    X, y = stream
    X = X.select(["at", "x", "place"])
    by_name = SGBRegressor(**SMALL, monotonic_cst={"at": -1, "x": 1}).fit(X, y)
    by_place = SGBRegressor(**SMALL, monotonic_cst=[-1, 1, 0]).fit(X, y)
    assert_array_equal(by_name.predict(X), by_place.predict(X))
    assert by_name.booster_.stack.monotone.tolist() == [1, -1, 0, 0, 0, 0, 0]  # a booster subtracts
    at = [datetime(2024 + 400 * k, 1, 1) for k in range(5)]  # after 400 years the calendar is the same
    fall = by_name.predict(pa.table({"at": at, "x": [0.0] * 5, "place": ["a"] * 5}))
    assert np.all(np.diff(fall) <= 0)
    for wrong, words in (([1, 0], r"shape \(2,\), expected \(3,\)"), ({5: 1}, "column 5, expected numbers below 3")):
        with pytest.raises(ValueError, match=words):
            SGBRegressor(**SMALL, monotonic_cst=wrong).fit(X, y)


def test_without_parts_a_date_is_learned_as_its_seconds_are(stream):
    X, y = stream
    seconds = [(moment - datetime(1970, 1, 1)).total_seconds() for moment in X["at"].to_pylist()]
    model, twin = SGBRegressor(**SMALL, date_parts=False), SGBRegressor(**SMALL)
    numbers = X.set_column(1, "at", pa.array(seconds))
    assert_array_equal(model.learn(X, y), twin.learn(numbers, y))
    assert same_state(model.committee_, twin.committee_)
    with pytest.raises(ValueError, match="date_parts is 'hour', expected True or False"):
        SGBRegressor(date_parts="hour").fit(X, y)


def test_a_model_of_an_older_file_goes_on_with_one_number_a_date(stream):
    X, y = stream
    model = SGBRegressor(**SMALL, date_parts=False, new_columns="grow").fit(X, y)
    model.encoder_.kinds[1] = "number"
    del model.date_parts, model.encoder_.date_parts, model.encoder_.dates  # which it knew nothing of
    twin = copy.deepcopy(model)
    seconds = pa.array([(moment - datetime(1970, 1, 1)).total_seconds() for moment in X["at"].to_pylist()])
    assert_array_equal(model.learn(X, y), twin.learn(X.set_column(1, "at", seconds), y))
    model.learn(X.append_column("another", X["at"]), y)
    assert model.encoder_.width == model.n_features_in_ == 4
    assert clone(model).date_parts is False


@pytest.mark.parametrize("kind", ["dicts", "pandas", "table"])
def test_dates_of_many_keys_are_learned_as_by_each_keys_own_model(stream, kind):
    X, y = stream
    keys = np.array(["a", "b", "c"])[np.arange(len(y)) % 3]
    table = X.append_column("key", pa.array(keys))
    model = KeyedModel(SGBRegressor(**SMALL), key="key")
    for start in range(0, len(y), 100):
        rows = table.slice(start, 100)
        given = {"dicts": rows.to_pylist, "pandas": rows.to_pandas, "table": lambda rows=rows: rows}[kind]()
        model.learn(given, y[start : start + 100])
    for key in "abc":
        twin = SGBRegressor(**SMALL)
        for start in range(0, len(y), 100):
            own = start + np.flatnonzero(keys[start : start + 100] == key)
            rows = X.take(own)
            twin.learn(rows.to_pylist() if kind == "dicts" else rows, y[own])
        assert same_state(model.model(key), twin)


def error(X, y, **options):
    said = SGBRegressor(random_state=0, **options).learn(X, y)
    return float(np.abs(said - y)[len(y) // 2 :].mean())


def test_the_hour_of_a_date_is_learned_about_as_well_as_a_column_of_hours():
    rng = np.random.default_rng(1)
    minutes = np.sort(rng.integers(0, 120 * 1440, 3000))
    at = pd.DataFrame({"at": pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes, unit="min")})
    hour = minutes % 1440 / 60
    y = 5 * np.sin(hour / 24 * 2 * np.pi) + 3.0 * (hour > 18) + 0.1 * rng.normal(size=3000)
    explicit = error(pd.DataFrame({"hour": hour}), y)
    assert error(at, y) < 2 * explicit
    assert error(at, y, date_parts=False) > 8 * explicit


def test_weekdays_and_ends_of_months_are_learned_and_dates_that_say_nothing_do_no_harm():
    rng = np.random.default_rng(2)
    days = pd.date_range("2023-01-01", periods=730).repeat(4)
    x = rng.normal(size=len(days))
    frame = pd.DataFrame({"day": days, "x": x})
    y = x + 3.0 * (days.day_of_week >= 5) + 4.0 * (days.day >= 28) + 0.1 * rng.normal(size=len(days))
    assert error(frame, y) < 0.5 * error(frame, y, date_parts=False)
    assert error(frame, x) < 1.2 * error(frame[["x"]], x) + 0.02
