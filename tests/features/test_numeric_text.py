"""Numbers written as text are told of once, and codes are left alone."""

import copy
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamboost import SGBRegressor
from streamboost.persistence.object_graph import same_state

SMALL = {"n_estimators": 2, "max_depth": 2, "memory": 64, "random_state": 0}
WORDS = r"hold numbers as text.*X\.astype\(float\).*--type a=float64.*astype\('category'\)"


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return {"a": [f"{x:.3f}" for x in rng.normal(size=200)], "b": [str(x) for x in rng.integers(17, 90, 200)]}


CONTAINERS = {
    "pandas": pd.DataFrame,
    "objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "dicts": lambda columns: pd.DataFrame(columns).to_dict("records"),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_table_read_as_text_is_told_of_once_by_its_columns(container, texts):
    rows, y, model = CONTAINERS[container](texts), np.zeros(200), SGBRegressor(**SMALL)
    with pytest.warns(UserWarning, match="columns 'a', 'b' " + WORDS) as told:
        model.learn(rows, y)
    assert len(told) == 1
    model.learn(rows, y)  # warnings are errors here
    model.predict(rows)


def test_an_array_of_text_is_told_of_by_number(texts):
    with pytest.warns(UserWarning, match=r"columns 0, 1 hold numbers as text.*--type 0=float64"):
        SGBRegressor(**SMALL).fit(np.array([*texts.values()]).T, np.zeros(200))


def test_rows_learned_one_by_one_are_told_of_once(texts):
    model = SGBRegressor(**SMALL)
    rows = [*map(dict, (zip(texts, values, strict=True) for values in zip(*texts.values(), strict=True)))]
    for x in rows[:31]:
        model.learn_one(x, 0.0)
    with pytest.warns(UserWarning, match="column 'a' holds numbers as text"):
        model.learn_one(rows[31], 0.0)
    for x in rows[32:]:  # of 'b' the 32nd level comes here, and warnings are errors
        model.learn_one(x, 0.0)
    assert len(model.encoder_.categories["1"]) > 32


def test_a_warning_made_an_error_leaves_the_model_as_it_was(texts):
    model = SGBRegressor(**SMALL).partial_fit(pd.DataFrame(texts)[:20], np.zeros(20))
    before = copy.deepcopy(model)
    with pytest.raises(UserWarning, match="numbers as text"):
        model.learn(pd.DataFrame(texts), np.zeros(200))
    assert same_state(model, before)


numbers = [str(k) for k in range(1000, 1200)]
CODES = {
    "few levels": [str(k % 31 + 1) for k in range(200)],
    "leading zeros": [f"{k:05d}" for k in range(200)],
    "names": [f"city {k}" for k in range(200)],
    "half are numbers": [str(k) if k % 2 else f"A{k}" for k in range(200)],
    "pandas category": pd.Series(numbers, dtype="category"),
    "categories of numbers": pd.Series(range(200)).astype("category"),
    "arrow dictionary": pa.array(numbers).dictionary_encode(),
    "polars categorical": pl.Series(numbers, dtype=pl.Categorical),
}


@pytest.mark.parametrize("codes", CODES)
def test_codes_are_left_alone(codes):
    column = CODES[codes]
    make = {pl.Series: pl.DataFrame, pd.Series: pd.DataFrame}.get(type(column), pa.table)
    with warnings.catch_warnings(action="error"):
        SGBRegressor(**SMALL).fit(make({"code": column}), np.zeros(200))


def test_some_words_for_missing_among_numbers_make_no_difference():
    column = ["?", "n/a", *map(str, range(100))]
    with pytest.warns(UserWarning, match="column 'x' holds numbers as text"):
        SGBRegressor(**SMALL).fit(pd.DataFrame({"x": column}), np.zeros(102))
