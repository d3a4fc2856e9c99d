"""Tables as people have them, through the estimators: every container, awkward columns, and chunks gone wrong."""

import copy
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.features.encoder import Encoder
from streamboost.features.labels import Labels
from streamboost.persistence.object_graph import same_state

NAN = float("nan")
SMALL = {"n_estimators": 8, "max_depth": 3, "memory": 512, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    """Columns of every kind under names in alphabetical order, as lists, and a target that needs most of them."""
    rng = np.random.default_rng(0)
    n = 500
    city = rng.choice(["Graz", "Bonn", "Linz"], n)
    days = rng.integers(0, 1000, n)
    size = rng.normal(size=n)
    y = np.where(city == "Bonn", 3.0, -1.0) + size + days / 500 + 0.1 * rng.normal(size=n)
    missing = rng.uniform(size=n) < 0.1
    columns = {
        "city": [None if rng.uniform() < 0.05 else str(name) for name in city],
        "day": [datetime(2020, 1, 1) + timedelta(days=int(day), seconds=1) for day in days],
        "member": (rng.uniform(size=n) < 0.5).tolist(),
        "price": [Decimal(int(cents)) / 100 for cents in rng.integers(0, 10_000, n)],
        "rooms": rng.integers(1, 9, n).tolist(),
        "size": [None if gone else float(value) for gone, value in zip(missing, size, strict=True)],
    }
    return columns, y


def as_rows(columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def as_reader(columns):
    """A reader of record batches: whoever looks at it twice finds it empty."""
    table = pa.table(columns)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))


class Relation:
    """Speaks Arrow's stream, and has the attributes of a frame, as DuckDB's relations do; can be read once."""

    def __init__(self, columns):
        self.reader, self.columns, self.shape = as_reader(columns), list(columns), (500, len(columns))

    def __len__(self):
        return 500

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


TABLES = {
    "dicts": as_rows,
    "pandas": pd.DataFrame,
    "pandas objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas category": lambda columns: pd.DataFrame(columns).astype({"city": "category"}),
    "pandas zoned": lambda columns: pd.DataFrame(columns).assign(
        day=lambda frame: frame["day"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    ),
    "polars": pl.DataFrame,
    "polars category": lambda columns: pl.DataFrame(columns).with_columns(pl.col("city").cast(pl.Categorical)),
    "arrow": pa.table,
    "arrow reader": as_reader,
    "relation": Relation,
    "arrow dictionary": lambda columns: pa.table(columns | {"city": pa.array(columns["city"]).dictionary_encode()}),
    "arrow nanoseconds": lambda columns: pa.table(
        columns | {"day": pa.array(columns["day"], pa.timestamp("ns", "UTC"))}
    ),
}


@pytest.mark.parametrize("container", TABLES)
def test_every_container_makes_the_same_model(container, table):
    columns, y = table
    reference, model = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    expected = [reference.learn([x], [target])[0] for x, target in zip(as_rows(columns), y, strict=True)]
    np.testing.assert_array_equal(model.learn(TABLES[container](columns), y), expected)
    np.testing.assert_array_equal(
        model.predict(TABLES[container](columns)), [reference.predict_one(x) for x in as_rows(columns)]
    )
    assert np.mean((np.array(expected[250:]) - y[250:]) ** 2) < 0.5 * y.var()


def test_containers_may_change_from_chunk_to_chunk(table):
    columns, y = table
    reference, model = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    before = []
    for start, container in zip(range(0, 500, 50), TABLES, strict=False):
        chunk = {name: values[start : start + 50] for name, values in columns.items()}
        before.append(model.learn(TABLES[container](chunk), y[start : start + 50]))
    np.testing.assert_array_equal(np.concatenate(before), reference.learn(pl.DataFrame(columns), y))
    assert model.encoder_.categorical == (0,)


LABELS = {
    "list": list,
    "array": np.array,
    "pandas": pd.Series,
    "pandas category": lambda y: pd.Series(y, dtype="category"),
    "polars": pl.Series,
    "polars category": lambda y: pl.Series(y, dtype=pl.Categorical if isinstance(y[0], str) else None),
    "arrow": pa.array,
    "arrow dictionary": lambda y: pa.array(y).dictionary_encode(),
    "arrow chunks": lambda y: pa.chunked_array([y]),
}


@pytest.mark.parametrize("container", LABELS)
@pytest.mark.parametrize("names", [("down", "up"), (3, 7), (False, True)], ids=str)
def test_labels_of_every_container_make_the_same_model(container, names, table):
    columns, y = table
    labels = [names[int(value > 1)] for value in y]
    frame = pd.DataFrame(columns)
    reference, model = SGBClassifier(**SMALL), SGBClassifier(**SMALL)
    expected = reference.learn(frame, labels)
    np.testing.assert_array_equal(model.learn(frame, LABELS[container](labels)), expected)
    assert set(model.predict(frame)) <= set(names)
    for x, label in zip(as_rows(columns)[:5], labels, strict=False):
        model.learn_one(x, label)
        reference.partial_fit([x], [label])
    np.testing.assert_array_equal(model.predict_proba(frame), reference.predict_proba(frame))
    assert np.mean(expected[250:] == np.array(labels)[250:]) > 0.8


# ---------------------------------------------------------------- chunks gone wrong


NAMES = ["city", "day", "member", "price", "rooms", "size"]
FAULTS = {
    "numbers turn to text": ({"size": ["big"] * 500}, "column 'size' is 'big' in row 0, text, but it held numbers"),
    "text turns to numbers": ({"city": [1.0] * 500}, r"column 'city' is 1.0 in row 0, a number, but it held text"),
    "infinity": ({"size": [1.0] * 499 + [np.inf]}, "column 'size' is inf in row 499, expected no infinity"),
    "lists": ({"size": [[1.0]] * 500}, "column 'size' .*(expected numbers|must be a string or a number)"),
    "one more": ({"zeal": [1.0] * 500}, "unseen at fit time:\n- zeal"),
    "one less": (NAMES[:-1], "yet now missing:\n- size"),
    "another order": (NAMES[::-1], "must be in the same order"),
}


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_frame_is_refused_by_name_and_changes_nothing(fault, library, table):
    columns, y = table
    bad, words = FAULTS[fault]
    faulty = library(columns | bad if isinstance(bad, dict) else {name: columns[name] for name in bad})
    model = SGBRegressor(**SMALL).partial_fit(library(columns), y)
    before = copy.deepcopy(model)
    for call in (model.learn, model.partial_fit, lambda X, _: model.predict(X)):
        with pytest.raises((TypeError, ValueError), match=words):
            call(faulty, y)
    assert same_state(model, before)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"size": "big"}, "column 'size' is 'big', text, but it held numbers so far"),
        ({"city": 1}, r"column 'city' is 1.0, a number, but it held text so far"),
        ({"size": -np.inf}, "column 'size' is -inf, expected no infinity"),
        ({"rooms": 10**400}, "column 'rooms' is inf, .* nothing too large for float64"),
        ({"size": [1.0]}, r"column 'size' is \[1.0\]: argument must be a string or a number, not a list"),
    ],
    ids=str,
)
def test_a_faulty_row_is_refused_by_name_and_changes_nothing(bad, words, table):
    columns, y = table
    model = SGBRegressor(**SMALL).partial_fit(pd.DataFrame(columns), y)
    before = copy.deepcopy(model)
    x = as_rows(columns)[0] | bad
    for call in (lambda: model.learn_one(x, 1.0), lambda: model.predict_one(x)):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
    assert same_state(model, before)


def test_with_growing_columns_a_reordered_frame_is_the_same_frame(table):
    columns, y = table
    model = SGBRegressor(new_columns="grow", **SMALL).partial_fit(pl.DataFrame(columns), y)
    expected = model.predict(pl.DataFrame(columns))
    backwards = dict(reversed(columns.items()))
    for library in (pd.DataFrame, pl.DataFrame, pa.table):
        np.testing.assert_array_equal(model.predict(library(backwards)), expected)
    without = {name: values for name, values in columns.items() if name != "size"}
    all_missing = columns | {"size": [NAN] * 500}
    np.testing.assert_array_equal(model.predict(pa.table(without)), model.predict(pa.table(all_missing)))


@pytest.mark.parametrize(
    ("names", "other"),
    [
        (names, other)
        for names in [("down", "up"), (0, 1), (False, True)]
        for other in ["up", 1, True]
        if type(other) is not type(names[0])
    ],
    ids=str,
)
def test_labels_of_another_kind_are_refused_and_change_nothing(names, other, table):
    columns, y = table
    frame = pd.DataFrame(columns)
    model = SGBClassifier(**SMALL).partial_fit(frame, [names[int(value > 1)] for value in y])
    before = copy.deepcopy(model)
    for column in LABELS.values():
        with pytest.raises(ValueError, match=r"the label in row 0 is .*but labels so far were of kind"):
            model.partial_fit(frame, column([other] * 500))
    with pytest.raises(ValueError, match=r"the label in row 0 is .*but labels so far were of kind"):
        model.learn_one(as_rows(columns)[0], other)
    assert same_state(model, before)


# ---------------------------------------------------------------- awkward columns


def error_of(model, X, y):
    """The root of the mean squared error over the second half, each row predicted before it is learned."""
    before = model.learn(X, y)
    assert np.isfinite(before).all()
    assert np.isfinite(model.predict(X)).all()
    half = len(y) // 2
    return np.sqrt(np.mean((before[half:] - y[half:]) ** 2))


@pytest.fixture(scope="module")
def plain():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 3))
    return X, X[:, 0] * X[:, 1] + np.sin(3 * X[:, 1]) + 2 * X[:, 2] + 0.1 * rng.normal(size=1500)


@pytest.mark.parametrize(
    "scales", [(1e12, 1, 1), (1e-12, 1, 1), (1, 1, 1e12), (1, 1, 1e-12), (1e-12, 1e12, 1e6)], ids=str
)
def test_a_column_in_other_units_is_learned_as_well(plain, scales):
    X, y = plain
    expected = error_of(SGBRegressor(**SMALL), X, y)
    assert expected < 0.8 * y.std()
    assert error_of(SGBRegressor(**SMALL), X * scales, y) == pytest.approx(expected, rel=0.02)


def test_constant_and_repeated_columns_do_no_harm(plain):
    X, y = plain
    expected = error_of(SGBRegressor(**SMALL), X, y)
    constants = np.tile([0.0, 5.0, 1e12, NAN], (len(X), 1))
    assert error_of(SGBRegressor(**SMALL), np.hstack([X, constants]), y) == pytest.approx(expected, rel=0.05)
    assert error_of(SGBRegressor(**SMALL), np.hstack([X, X, X]), y) == pytest.approx(expected, rel=0.15)
    assert np.isfinite(error_of(SGBRegressor(**SMALL), constants, y))


def test_seconds_since_1970_are_learned_as_well_as_days_since_yesterday():
    rng = np.random.default_rng(2)
    minutes = rng.integers(0, 1440, 1500)
    y = np.where(minutes > 720, 4.0, 0.0) + minutes / 720 + 0.1 * rng.normal(size=1500)
    moments = [datetime(2024, 5, 1) + timedelta(minutes=int(minute)) for minute in minutes]
    expected = error_of(SGBRegressor(**SMALL), minutes[:, None] / 1440, y)
    assert expected < 0.5 * y.std()
    assert error_of(SGBRegressor(**SMALL), pd.DataFrame({"at": moments}), y) == pytest.approx(expected, rel=0.1)


def test_thousands_of_levels_stay_bounded_and_the_frequent_ones_are_learned(monkeypatch):
    monkeypatch.setitem(Encoder.__init__.__kwdefaults__, "max_categories", 1024)
    rng = np.random.default_rng(3)
    frequent = rng.uniform(size=3000) < 0.5
    user = np.where(frequent, rng.choice(["ann", "bob"], 3000), [f"user {i}" for i in range(3000)])
    y = np.where(user == "ann", 5.0, np.where(user == "bob", -5.0, 0.0)) + 0.1 * rng.normal(size=3000)
    model = SGBRegressor(**SMALL)
    for start in range(0, 3000, 500):
        model.partial_fit(pl.DataFrame({"user": user[start : start + 500]}), y[start : start + 500])
    assert len(model.encoder_.categories["0"]) == 1024
    ann, bob, never_seen, nobody = (model.predict_one({"user": name}) for name in ("ann", "bob", "zoe", None))
    assert ann - bob > 3
    assert np.isfinite([never_seen, nobody]).all()


# ---------------------------------------------------------------- the work that Python does

PACKAGE = str(Path(streamboost.__file__).parent)


def python_steps(call):
    """How many instructions Python runs in the package's own code; what C does in its stead is not counted."""
    steps = 0

    def trace(frame, event, _):
        nonlocal steps
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


MIXED = {
    "number": [1.5, None, 2.0],
    "int": [1, 2, 3],
    "flag": [True, False, True],
    "text": ["x", None, "y"],
    "day": [date(2020, 1, 1), None, date(2021, 1, 1)],
    "moment": [datetime(2020, 1, 1), None, datetime(2021, 1, 1)],
    "price": [Decimal("1.5"), None, Decimal("2.5")],
}
FRAMES = {
    "pandas": pd.DataFrame,
    "pandas objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "pandas objects with NaN": lambda columns: pd.DataFrame(
        {name: [NAN if value is None else value for value in values] for name, values in columns.items()}, dtype=object
    ),
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas category": lambda columns: pd.DataFrame({"text": pd.Categorical(columns["text"])}),
    "pandas numbers": lambda columns: pd.DataFrame({"int": columns["int"], "flag": columns["flag"]}),
    "polars": pl.DataFrame,
    "polars category": lambda columns: pl.DataFrame({"text": pl.Series(columns["text"], dtype=pl.Categorical)}),
    "arrow": pa.table,
    "arrow dictionary": lambda columns: pa.table({"text": pa.array(columns["text"]).dictionary_encode()}),
    "array of objects": lambda columns: np.array(list(zip(*columns.values(), strict=True)), dtype=object),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_rows_of_a_frame_are_no_loop_in_python(frame, is_first):
    short, long = (FRAMES[frame]({name: values * times for name, values in MIXED.items()}) for times in (10, 1000))
    encoder = Encoder()
    if not is_first:
        encoder = encoder.encode(short).encoder
    encoder.encode(short)  # what is done once, such as building an index, is done here
    assert python_steps(lambda: encoder.encode(long)) == python_steps(lambda: encoder.encode(short)) > 0


@pytest.mark.parametrize("labels", [["up", "down"], [3, 1], [True, False]], ids=str)
@pytest.mark.parametrize("container", LABELS)
def test_the_rows_of_a_column_of_labels_are_no_loop_in_python(container, labels):
    short, long = (LABELS[container](labels * times) for times in (10, 1000))
    known = Labels(labels)
    assert python_steps(lambda: known.encode(long)) == python_steps(lambda: known.encode(short)) > 0


@pytest.mark.parametrize("is_pandas", [True, False])
def test_only_the_levels_that_occur_are_looked_at(is_pandas):
    def steps(n_levels):
        levels = [f"level {i}" for i in range(n_levels)]
        frame = (
            pd.DataFrame({"c": pd.Categorical.from_codes([1, 0, -1], levels)})
            if is_pandas
            else pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), levels)})
        )
        return python_steps(lambda: Encoder().encode(frame))

    assert steps(10_000) == steps(10) > 0


def test_a_reader_that_is_used_up_is_told_of(table):
    columns, y = table
    reader = as_reader(columns)
    model = SGBRegressor(**SMALL).fit(reader, y)
    with pytest.raises(ValueError, match=r"X is empty.*A reader gives its rows once: make a new one"):
        model.predict(reader)
