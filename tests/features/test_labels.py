"""Labels of every kind of column, against a loop over rows."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamboost.features.labels import Labels

one_kind = st.one_of(
    st.lists(st.text(max_size=3), min_size=1),
    st.lists(st.integers(-5, 5), min_size=1),
    st.lists(st.booleans(), min_size=1),
)

CONTAINERS = {
    "tuple": tuple,
    "array": np.array,
    "array of objects": lambda y: np.array(y, dtype=object),
    "NumPy scalars": lambda y: list(np.array(y)),
    "pandas": pd.Series,
    "pandas objects": lambda y: pd.Series(y, dtype=object),
    "pandas nullable": lambda y: pd.Series(y).convert_dtypes(),
    "pandas category": lambda y: pd.Series(y, dtype="category", index=[7 * i for i in range(len(y))]),
    "pandas arrow": lambda y: pd.Series(y, dtype=pd.ArrowDtype(pa.array(y).type)),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow dictionary": lambda y: pa.array(y).dictionary_encode(),
    "arrow chunks": lambda y: pa.chunked_array([y[:1], [], y[1:]], pa.array(y).type),
}
TEXT_CONTAINERS = {
    "polars categorical": lambda y: pl.Series(y, dtype=pl.Categorical),
    "polars enum": lambda y: pl.Series(y, dtype=pl.Enum(["unused", *sorted(set(y))])),
    "arrow large": lambda y: pa.array(y, pa.large_string()),
    "arrow views": lambda y: pa.array(y, pa.string_view()),
    "NumPy strings": lambda y: np.array(y, dtype=np.dtypes.StringDType()),
}


def naive(y, known=()):
    """One label at a time: the reference."""
    numbers = {label: number for number, label in enumerate(known)}
    codes = [numbers.setdefault(label, len(numbers)) for label in y]
    return codes, list(numbers)[len(known) :]


@given(one_kind)
def test_numbers_are_handed_out_in_order_of_appearance(y):
    codes, new = Labels().encode(y)
    assert new == list(dict.fromkeys(y))
    assert [new[int(code)] for code in codes] == y


@given(one_kind, st.integers(0, 20))
def test_rechunking_gives_the_same_numbers(y, cut):
    whole, _ = Labels().encode(y)
    first, new = Labels().encode(y[:cut])
    second, _ = Labels(new).encode(y[cut:])
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@pytest.mark.parametrize("container", CONTAINERS)
@given(y=one_kind, n_known=st.integers(0, 3))
def test_every_container_gives_the_same_numbers(container, y, n_known):
    if isinstance(y[0], str):
        y = [label.replace("\0", "") for label in y]  # NumPy's strings end there
    known = list(dict.fromkeys(y))[:n_known]
    codes, new = Labels(known).encode(CONTAINERS[container](y))
    expected, expected_new = naive(y, known)
    assert codes.tolist() == expected
    assert codes.dtype == np.float64
    assert new == expected_new
    assert all(type(label) is type(y[0]) for label in new)


@pytest.mark.parametrize("container", TEXT_CONTAINERS)
@given(y=st.lists(st.sampled_from(["up", "down", "", "sideways"]), min_size=1))
def test_every_container_of_text_gives_the_same_numbers(container, y):
    codes, new = Labels().encode(TEXT_CONTAINERS[container](y))
    assert (codes.tolist(), new) == naive(y)
    assert all(type(label) is str for label in new)


@pytest.mark.parametrize("dtype", ["i1", "u8", ">i4", "f2", "f4", "f8", ">f8"])
def test_whole_numbers_of_every_dtype_are_labels(dtype):
    codes, new = Labels([2]).encode(np.array([3, 2, 0, 3], dtype=dtype))
    assert codes.tolist() == [1, 0, 2, 1]
    assert new == [3, 0]


def test_zero_is_zero_whatever_its_sign():
    assert Labels().encode(np.array([0.0, -0.0, 1.0]))[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("container", ["pandas category", "arrow dictionary"])
def test_categories_of_numbers_are_numbers(container):
    codes, new = Labels([1]).encode(CONTAINERS[container]([3, 1, 3]))
    assert codes.tolist() == [1, 0, 1]
    assert new == [3]


def test_knowing_more_is_being_another_object():
    labels = Labels(["a"])
    more = labels.with_new(["b"])
    labels.encode(["c"])
    assert labels.classes.tolist() == ["a"]
    assert more.classes.tolist() == ["a", "b"]
    assert more.with_new(["b", "c", "b"]).numbers == {"a": 0, "b": 1, "c": 2}
    assert more.with_new([]).kind == "string"


def test_numpy_scalars_are_the_labels_they_hold():
    labels = Labels([True, False])
    assert labels.encode(np.array([False, True]))[0].tolist() == [1.0, 0.0]
    assert Labels([3]).encode(np.array([3.0]))[1] == []


def test_equal_labels_of_one_kind_are_one_label():
    class Color(StrEnum):
        RED = "red"

    assert Labels().encode([1, 1.0, np.int8(1), np.float32(2)])[1] == [1, 2]
    assert Labels().encode(["red", Color.RED, np.str_("red")])[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "y", [[1, "a"], ["a", True], [True, 1], [1, True], [1.5], [None], [float("nan")], [("a",)], [["a"]], [b"a"]]
)
def test_labels_of_no_kind_or_of_two_are_refused(y):
    with pytest.raises(ValueError, match=rf"the label in row {len(y) - 1} is"):
        Labels().encode(y)


@pytest.mark.parametrize("label", [True, "1", 1.5, None, [1], np.bool_(True)], ids=repr)
def test_one_label_of_another_kind_is_refused_although_it_may_equal_a_known_one(label):
    with pytest.raises(ValueError, match="the label in row 0 is"):
        Labels([1, 2]).encode([label])


@pytest.mark.parametrize("container", CONTAINERS)
def test_another_kind_than_before_is_refused_in_the_same_words_from_every_container(container):
    labels = Labels(["up", "down"])
    words = "the label in row 0 is 1, a number, but labels so far were of kind string. Convert them all to one kind."
    with pytest.raises(ValueError, match=words):
        labels.encode(CONTAINERS[container]([1, 2]))
    assert labels.numbers == {"up": 0, "down": 1}


@pytest.mark.parametrize(
    "y",
    [
        ["a", "b", None],
        pd.Series(["a", "b", None]),
        pd.Series(["a", "b", None], dtype=object),
        pd.Series(["a", "b", None], dtype="category"),
        pd.Series([1, 2, None], dtype="Int64"),
        pl.Series(["a", "b", None]),
        pl.Series(["a", "b", None], dtype=pl.Categorical),
        pa.array([1, 2, None]),
        pa.array(["a", "b", None]).dictionary_encode(),
        np.array([1.0, 2.0, np.nan]),
        pd.Series([1.0, 2.0, None]),
    ],
    ids=lambda y: f"{type(y).__module__} {getattr(y, 'dtype', '')}",
)
def test_a_missing_label_is_refused_with_its_row(y):
    with pytest.raises(ValueError, match=r"Unknown label type: the label in row 2 is (None|nan), expected a string"):
        Labels().encode(y)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["2020-01-01"], dtype="M8[ns]"),
        [np.timedelta64(3, "ns")],
        pd.Series([datetime(2020, 1, 1)]),
        pa.array([datetime(2020, 1, 1)]),
        pa.array([[1]]),
        pa.DictionaryArray.from_arrays([0], pa.array([[1]])),
        pl.Series([[1]]),
        np.array([b"x"]),
        [Decimal(1)],
        pd.Series(pd.arrays.SparseArray([1.5])),
    ],
    ids=lambda y: f"{type(y).__module__} {getattr(y, 'dtype', '')}",
)
def test_times_and_other_things_are_no_labels(y):
    with pytest.raises(ValueError, match=r"Unknown label type: the label in row 0 is (?s:.*)expected a string"):
        Labels().encode(y)


def test_complex_labels_are_refused_in_scikit_learns_words():
    for y in ([1j], np.array([1j]), np.array([1j], dtype=np.complex64)):
        with pytest.raises(ValueError, match="Complex data not supported: the label in row 0 is 1j"):
            Labels().encode(y)


@pytest.mark.parametrize(
    "y",
    [np.zeros((2, 2)), "up", 3, None, pl.DataFrame({"a": [1]}), pa.table({"a": [1]}), pd.DataFrame({"a": [1]})],
    ids=repr,
)
def test_what_is_no_column_is_refused(y):
    with pytest.raises(ValueError, match=r"y has shape .*, expected \(n,\): one label a row. Pass a single column."):
        Labels().encode(y)


def test_text_that_arrow_cannot_hold_is_a_label_too():
    for y in (np.array(["\ud800", "a"]), ["\ud800", "a"], pd.Series(["\ud800", "a"], dtype=object)):
        assert Labels().encode(y)[1] == ["\ud800", "a"]
