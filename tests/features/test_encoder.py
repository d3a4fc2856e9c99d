"""Rows of every kind, against a slow reference and against pandas, scikit-learn and the standard library."""

import collections
import copy
import pickle
import re
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import _check_feature_names, _check_n_features

from streamboost.features.encoder import Encoder

NAN = float("nan")


def state(encoder):
    return copy.deepcopy(vars(encoder))


def taught(*chunks, dialect="array", **options):
    """An encoder that has taken in these chunks."""
    encoder = Encoder(**options)
    for chunk in chunks:
        encoder = encoder.encode(chunk, dialect=dialect).encoder
    return encoder


def column(values, **options):
    """The codes or numbers that a fresh encoder gives to a single column."""
    return Encoder().encode(values, **options).X[:, 0]


def naive(rows, max_categories=8192):
    """Encode dict rows one value at a time: the reference."""
    names, codes = [], {}
    for row in rows:
        fresh = [name for name in row if name not in names]
        names += sorted(name for name in fresh if isinstance(name, int))
        names += sorted(name for name in fresh if isinstance(name, str))
        for name, value in row.items():
            if isinstance(value, str) and value not in codes.setdefault(name, {}):
                codes[name][value] = min(len(codes[name]), max_categories)

    def number(name, value):
        if value is None:
            return NAN
        if isinstance(value, str):
            return codes[name][value]
        if isinstance(value, datetime):
            return (value - datetime(1970, 1, 1)) / timedelta(seconds=1)
        if isinstance(value, date):
            return (value - date(1970, 1, 1)).days * 86400.0
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, time):
            return value.hour * 3600 + value.minute * 60 + value.second
        return float(value)

    return np.array([[number(name, row.get(name)) for name in names] or [NAN] for row in rows])


# ---------------------------------------------------------------- one content, many containers

TYPES = {
    "float": (st.floats(allow_nan=False, allow_infinity=False), pa.float64(), pl.Float64),
    "int": (st.integers(-(2**63), 2**63 - 1), pa.int64(), pl.Int64),
    "bool": (st.booleans(), pa.bool_(), pl.Boolean),
    "text": (st.text(max_size=3), pa.string(), pl.String),
    "category": (st.sampled_from(["red", "green", "", "blue"]), pa.dictionary(pa.int32(), pa.string()), pl.Categorical),
    "decimal": (st.decimals(-(10**9), 10**9, places=4), pa.decimal128(20, 4), pl.Decimal(20, 4)),
    "duration": (
        st.integers(-(10**9), 10**9).map(lambda s: timedelta(seconds=s)),
        pa.duration("us"),
        pl.Duration("us"),
    ),
    "time": (st.times().map(lambda t: t.replace(microsecond=0)), pa.time64("us"), pl.Time),
    "date": (st.dates(date(1800, 1, 1), date(2200, 1, 1)), pa.date32(), pl.Date),
    # whole seconds: the reference rounds fractions once, Encoder perhaps twice
    "datetime": (
        st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)).map(lambda t: t.replace(microsecond=0)),
        pa.timestamp("us"),
        pl.Datetime("us"),
    ),
}


@st.composite
def contents(draw):
    """A type for each column, and dict rows of these types with None here and there."""
    types = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    names = [f"{j} {kind}" for j, kind in enumerate(types)]  # sorted as they stand
    row = st.tuples(*(st.none() | TYPES[kind][0] for kind in types))
    rows = draw(st.lists(row.map(lambda values: dict(zip(names, values, strict=True))), min_size=1, max_size=8))
    return dict(zip(names, types, strict=True)), rows


def as_table(types, rows, chunk=3):
    schema = pa.schema({name: TYPES[kind][1] for name, kind in types.items()})
    batches = [pa.RecordBatch.from_pylist(rows[i : i + chunk], schema) for i in range(0, len(rows), chunk)]
    return pa.Table.from_batches(batches, schema)


def as_polars(types, rows):
    return pl.DataFrame(rows, schema={name: TYPES[kind][2] for name, kind in types.items()})


CONTAINERS = {
    "dicts": lambda types, rows: rows,
    "arrow": as_table,
    "record batch": lambda types, rows: as_table(types, rows, chunk=len(rows)).to_batches()[0],
    "reader": lambda types, rows: as_table(types, rows).to_reader(),
    "polars": as_polars,
    "pandas objects": lambda types, rows: pd.DataFrame(rows, dtype=object),
    "pandas inferred": lambda types, rows: pd.DataFrame(rows),
    "pandas nullable": lambda types, rows: pd.DataFrame(rows, dtype=object).convert_dtypes(),
    "pandas arrow": lambda types, rows: as_table(types, rows).to_pandas(types_mapper=pd.ArrowDtype),
    "odd index": lambda types, rows: pd.DataFrame(rows, index=[7 * i + 3 for i in range(len(rows))]),
    "object array": lambda types, rows: np.array([list(row.values()) for row in rows], dtype=object),
    "lists": lambda types, rows: [list(row.values()) for row in rows],
}


@pytest.mark.parametrize("container", CONTAINERS)
@settings(deadline=None, max_examples=40)
@given(content=contents())
def test_the_same_content_gives_the_same_matrix_from_every_container(container, content):
    types, rows = content
    encoded = Encoder().encode(CONTAINERS[container](types, rows))
    assert_array_equal(encoded.X, naive(rows))
    assert encoded.X.dtype == np.float64
    assert encoded.X.flags.c_contiguous


sparse_rows = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", 3]), st.none() | st.floats(-9, 9), max_size=3).flatmap(
        lambda numbers: st.dictionaries(
            st.sampled_from(["t", "u"]), st.none() | st.sampled_from("vwxyz"), max_size=2
        ).map(lambda texts: numbers | texts)
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(rows=sparse_rows, cuts=st.sets(st.integers(1, 11)), bound=st.integers(1, 5))
def test_rechunking_dict_rows_changes_neither_codes_nor_state(rows, cuts, bound):
    whole, chunked, single = (Encoder(max_categories=bound) for _ in range(3))
    expected = whole.encode(rows)
    whole = expected.encoder
    assert_array_equal(expected.X, naive(rows, bound))

    width = expected.X.shape[1]
    ends = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    pieces = []
    for start, end in pairwise(ends):
        pieces.append(chunked.encode(rows[start:end]))
        chunked = pieces[-1].encoder
    for row in rows:
        pieces.append(single.encode_one(row))
        single = pieces[-1].encoder
    padded = [np.pad(p.X, ((0, 0), (0, width - p.X.shape[1])), constant_values=NAN) for p in pieces]
    assert_array_equal(np.concatenate(padded), np.concatenate([expected.X, expected.X]))
    for other in (chunked, single):
        assert state(other) == state(whole)


@settings(deadline=None, max_examples=60)
@given(content=contents(), cuts=st.sets(st.integers(1, 7)), bound=st.integers(1, 3), data=st.data())
def test_a_table_cut_into_chunks_of_any_containers_is_the_table_at_once(content, cuts, bound, data):
    types, rows = content
    whole, chunked = Encoder(max_categories=bound), Encoder(max_categories=bound)
    expected = whole.encode(as_polars(types, rows))
    whole = expected.encoder
    assert_array_equal(expected.X, naive(rows, bound))
    pieces = []
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]):
        container = data.draw(
            st.sampled_from(["dicts", "arrow", "polars", "pandas inferred", "pandas nullable", "pandas arrow"])
        )
        pieces.append(chunked.encode(CONTAINERS[container](types, rows[start:end])))
        chunked = pieces[-1].encoder
    assert_array_equal(np.concatenate([piece.X for piece in pieces]), expected.X)
    assert state(chunked) == state(whole)


values_of_any_kind = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.floats(),
    st.floats(-9, 9).map(np.float64),
    st.sampled_from(["v", "w", "x", "y", np.str_("z"), 10**400, pd.NA, pd.NaT, Decimal("1.5"), Fraction(1, 4)]),
    st.sampled_from([date(2020, 1, 1), datetime(2020, 1, 1, 12), timedelta(hours=1), np.datetime64("2020-01-01")]),
    st.sampled_from(["2020-01-01", "2020-01-01 12:00:00.5+01:00"]),
    st.sampled_from([[1], 2j, b"bytes", np.int8(3), np.bool_(True), {}, np.array(1.0), np.timedelta64(5, "ns")]),
)


def outcome(encode, *args, **options):
    """What encoding gives, or the refusal, apart from the row it speaks of."""
    try:
        encoded = encode(*args, **options)
    except (TypeError, ValueError) as error:
        return type(error), str(error).replace(" in row 0", "")
    return encoded.X.tobytes(), encoded.X.shape, state(encoded.encoder)


@settings(deadline=None, max_examples=300)
@given(
    rows=sparse_rows,
    odd=st.dictionaries(st.sampled_from(["a", "b", 3, "t", "u", "new"]), values_of_any_kind, max_size=2),
    absent=st.sets(st.sampled_from(["a", "b", 3, "t", "u"]), max_size=1),
    bound=st.integers(1, 4),
    known_only=st.booleans(),
    has_dates=st.booleans(),
)
def test_one_row_is_encoded_as_a_chunk_of_one(rows, odd, absent, bound, known_only, has_dates):
    days = [{"b": date(2020, 1, 1), "new": None}] * has_dates
    encoder = taught(days + rows, max_categories=bound, date_parts=True)
    usual = {name: "v" if name in ("t", "u") else 1.5 for name in encoder.names or () if name not in absent}
    one = outcome(encoder.encode_one, usual | odd, known_only=known_only)
    many = outcome(encoder.encode, [usual | odd], known_only=known_only)
    if isinstance(one[0], bytes) or isinstance(many[0], bytes):  # of several faults, each names the one it meets first
        assert one == many


@pytest.mark.parametrize("value", [np.timedelta64(5, "ns"), np.array(1.0), Decimal("0.5"), np.bool_(True)], ids=repr)
def test_unusual_values_in_a_complete_row_are_read_as_in_a_chunk(value):
    encoder = taught([{"a": 1.0, "b": 2.0, "t": "x"}])
    row = {"a": value, "b": 2.0, "t": "x"}
    assert outcome(encoder.encode_one, row) == outcome(encoder.encode, [row])


def test_looking_a_row_up_does_not_change_it():
    encoder = taught([{"a": 1.0, "b": 2.0}])
    x = collections.defaultdict(float, {"a": 1.0, "c": 5.0})
    assert_array_equal(encoder.encode_one(x, known_only=True).X, [[1, NAN]])
    assert dict(x) == {"a": 1.0, "c": 5.0}


@settings(deadline=None)
@given(rows=sparse_rows, random=st.randoms(use_true_random=False))
def test_the_order_in_which_a_dict_is_written_has_no_impact(rows, random):
    shuffled = [dict(random.sample(list(row.items()), len(row))) for row in rows]
    assert_array_equal(Encoder().encode(shuffled).X, Encoder().encode(rows).X)
    ours, theirs = Encoder(), Encoder()
    for row, other in zip(rows, shuffled, strict=True):
        ours = ours.encode_one(row).encoder
        theirs = theirs.encode_one(other).encoder
    assert vars(ours) == vars(theirs)


@settings(deadline=None)
@given(rows=sparse_rows, later=sparse_rows, known_only=st.booleans())
def test_encoding_never_changes_the_encoder(rows, later, known_only):
    encoder = taught(rows)
    before = state(encoder)
    many = encoder.encode(later, known_only=known_only).X
    ones = [encoder.encode_one(row, known_only=known_only).X for row in later]
    assert vars(encoder) == before
    if known_only:
        assert_array_equal(many, np.concatenate(ones))


@settings(deadline=None)
@given(values=st.lists(st.none() | st.text(max_size=2), min_size=1))
def test_text_codes_are_those_of_pandas_factorize(values):
    codes, levels = pd.factorize(np.array(values, dtype=object))
    encoder = Encoder()
    encoded = encoder.encode(pa.table({"t": pa.array(values, pa.string())}))
    encoder = encoded.encoder
    assert_array_equal(encoded.X[:, 0], np.where(codes < 0, NAN, codes))
    assert list(encoder.categories.get("0", {})) == list(levels)


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", "g", ">f8", ">i4", ">f4"])
def test_numeric_arrays_of_every_dtype_pass_unchanged_in_value(dtype):
    X = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    encoded = Encoder().encode(X).X
    assert_array_equal(encoded, [[0, 1], [1, 0], [1, 1]])
    assert encoded.dtype == np.dtype("=f8")


def test_layout_and_writability_of_the_input_do_not_matter():
    X = np.arange(24.0).reshape(4, 6)
    read_only = X.copy()
    read_only.flags.writeable = False
    for given_array in (
        X,
        np.asfortranarray(X),
        read_only,
        np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1][::-1],
        X.T.copy().T,
    ):
        encoded = Encoder().encode(given_array).X
        assert_array_equal(encoded, X)
        assert encoded.flags.c_contiguous
        assert encoded.flags.writeable
        assert not np.shares_memory(encoded, given_array)


def test_lists_and_things_that_become_arrays_are_read_as_arrays():
    class Arrayable:
        def __array__(self, dtype=None, copy=None):
            return np.array([[1.0, 2.0]])

    for rows in ([[1, 2]], [(1.0, True + 1)], ((1, 2),), [np.array([1, 2])], Arrayable()):
        assert_array_equal(Encoder().encode(rows).X, [[1.0, 2.0]])


def test_numbers_beside_strings_in_a_list_stay_numbers():
    encoder = Encoder()
    encoded = encoder.encode([[1.5, "a"], [2, "b"]])
    encoder = encoded.encoder
    assert_array_equal(encoded.X, [[1.5, 0], [2, 1]])
    assert encoder.kinds == ["number", "category"]


def test_string_arrays_are_text_even_where_they_look_like_numbers():
    for rows in (np.array([["2", "x"], ["1", "x"]]), np.array([["2", "x"], ["1", "x"]], dtype=np.dtypes.StringDType())):
        assert_array_equal(Encoder().encode(rows).X, [[0, 0], [1, 0]])


def test_object_arrays_are_read_column_by_column():
    X = np.array([[1, "a", None], [NAN, None, True], [Decimal("2.5"), "a", np.float32(0.5)]], dtype=object)
    assert_array_equal(Encoder().encode(X).X, [[1, 0, NAN], [NAN, NAN, 1], [2.5, 0, 0.5]])


def test_the_fields_of_a_structured_array_are_named_columns():
    fields = [("size", "i4"), ("city", "U4"), ("day", "M8[D]"), ("note", object)]
    rows = np.array([(1, "Graz", "1970-01-02", None), (2, "Bonn", "NaT", 3.5)], dtype=fields)
    frame = pd.DataFrame({"size": [1, 2], "city": ["Graz", "Bonn"], "day": [86400.0, NAN], "note": [NAN, 3.5]})
    for array in (rows, rows.view(np.recarray)):
        assert_array_equal(Encoder().encode(array).X, Encoder().encode(frame).X)
        assert taught(array).names == ["size", "city", "day", "note"]
    masked = np.ma.array(rows[["size"]], mask=[(True,), (False,)])
    assert_array_equal(Encoder().encode(masked).X, [[NAN], [2]])
    with pytest.raises(TypeError, match=r"column 'xy' holds arrays, expected one value a row. Spread"):
        Encoder().encode(np.zeros(3, dtype=[("xy", "f8", (2,))]))


def test_an_array_that_speaks_arrow_too_is_an_array():
    class LongForm(np.ndarray):  # as xarray's arrays do: every cell a row, beside its coordinates
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"values": self.ravel()}).__arrow_c_stream__(requested_schema)

    assert_array_equal(Encoder().encode(np.eye(3).view(LongForm)).X, np.eye(3))


def test_masked_values_are_missing():
    mask = [[False, True], [True, False]]
    for values, expected in (
        (np.array([[1, 2], [3, 4]]), [[1, NAN], [NAN, 4]]),
        (np.array([["a", "b"], ["c", "d"]]), [[0, NAN], [NAN, 0]]),
        (np.array([[1, 2], [3, 4]], dtype="M8[s]"), [[1, NAN], [NAN, 4]]),
    ):
        assert_array_equal(Encoder().encode(np.ma.array(values, mask=mask)).X, expected)


def test_one_dimensional_input_is_refused_in_scikit_learns_words():
    words = re.compile("Expected 2D array, got 1D array instead.*Reshape your data", re.DOTALL)
    with pytest.raises(ValueError, match=words):
        check_array([1.0, 2.0])
    series = (pd.Series([1.0]), pl.Series([1.0]), pa.array([1.0]), pa.chunked_array([[1.0]]))
    for rows in (np.arange(3.0), [1.0, 2.0], [], *series):
        with pytest.raises(ValueError, match=words):
            Encoder().encode(rows)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="got scalar array"):
        Encoder().encode(3.0)
    with pytest.raises(ValueError, match="Found array with dim 3, expected 2"):
        Encoder().encode(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"rows differ in length.*Fill the gaps"):
        Encoder().encode([[1, 2], [3]])


@pytest.mark.parametrize(
    "rows", [np.empty((3, 0)), pd.DataFrame(index=range(3)), pa.table({"a": [1, 2, 3]}).select([])], ids=type
)
def test_no_columns_are_refused_in_scikit_learns_words(rows):
    words = re.escape("0 feature(s) (shape=(3, 0)) while a minimum of 1 is required.")
    with pytest.raises(ValueError, match=words):
        check_array(np.empty((3, 0)))
    with pytest.raises(ValueError, match=words):
        Encoder().encode(rows)
    with pytest.raises(ValueError, match=words + " Pass the 2 columns it learned from: 'a', 'b'"):
        taught(named("a", "b")).encode(rows)


def test_zero_rows_tell_the_columns_and_nothing_of_their_kinds():
    for rows, names in (
        (np.empty((0, 2)), None),
        (np.empty((0, 2), dtype=object), None),
        (pd.DataFrame({"a": [], "b": []}), ["a", "b"]),
        (pl.DataFrame(schema={"a": pl.String, "b": pl.Categorical}), ["a", "b"]),
        (pa.schema({"a": pa.date32(), "b": pa.time32("s")}).empty_table(), ["a", "b"]),
        (
            pa.table({"a": pa.chunked_array([], pa.decimal128(5, 2)), "b": pa.chunked_array([], pa.string())}),
            ["a", "b"],
        ),
    ):
        encoder = taught(rows)
        assert encoder.encode(rows).X.shape == (0, 2)
        assert (encoder.names, encoder.n_features, encoder.kinds) == (names, 2, [None, None])


def test_complex_data_is_refused_in_scikit_learns_words():
    for rows in (np.array([[1j]]), [[1.0, 1j]], np.array([[1j]], dtype=object), {"a": 1j}, pd.DataFrame({"a": [1j]})):
        with pytest.raises(ValueError, match="Complex data not supported"):
            Encoder().encode(rows)
    with pytest.raises(ValueError, match="column 'b' is complex"):
        Encoder().encode(pd.DataFrame({"a": [1.0], "b": [1j]}))


def test_things_that_are_no_rows_are_refused_with_what_is_expected():
    for rows in ((row for row in [[1.0]]), pl.LazyFrame({"a": [1]}), object(), None):
        with pytest.raises(TypeError, match=f"X is a {type(rows).__name__}, expected rows.*Collect a lazy frame"):
            Encoder().encode(rows)
    with pytest.raises(TypeError, match=r"dtype.*expected numbers"):
        Encoder().encode(np.zeros((2, 2), dtype="S3"))
    with pytest.raises(TypeError, match="row 1 of X is 5, expected a dict"):
        Encoder().encode([{"a": 1}, 5])
    with pytest.raises(TypeError, match="expected a dict of one row"):
        Encoder().encode_one([1.0])


@pytest.mark.parametrize(
    "value", [{"foo": "bar"}, [1], object(), b"bytes", (1, 2)], ids=lambda value: type(value).__name__
)
def test_other_objects_are_refused_in_scikit_learns_words(value):
    X = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=object)
    X[1, 0] = value
    words = "column 0 is .* in row 1: argument must be a string or a number"
    with pytest.raises(TypeError, match=words):
        Encoder().encode(X)
    with pytest.raises(TypeError, match=r"column 'a' is .*: argument must be a string or a number"):
        Encoder().encode_one({"a": value})


# ---------------------------------------------------------------- infinity


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[0, 1], [2, np.inf]]),
        np.array([[0, 1], [2, -np.inf]], dtype=np.float32),
        np.array([[0, 1], [2, 10**400]], dtype=object),
        np.array([[0, 1], [2, Decimal("-Infinity")]], dtype=object),
        np.array([[0, 1], [2, np.float16("inf")]], dtype=object),
    ],
    ids=lambda rows: str(rows.dtype),
)
def test_infinity_in_an_array_is_refused_by_column_and_row(rows):
    with pytest.raises(ValueError, match=r"column 1 is -?inf in row 1, expected no infinity.*Replace it with NaN"):
        Encoder().encode(rows)


@pytest.mark.skipif(np.finfo("g").max == np.finfo("d").max, reason="long doubles are doubles here")
def test_a_long_double_too_large_for_float64_is_refused():
    with pytest.raises(ValueError, match="too large for float64"):
        Encoder().encode(np.array([[np.finfo("g").max]]))


def test_infinity_in_named_columns_is_refused_by_name():
    rows = [{"a": 1.0, "price": 2.0}, {"a": 1.0, "price": float("inf")}]
    for frame in (rows, pd.DataFrame(rows), pl.DataFrame(rows), pa.Table.from_pylist(rows)):
        with pytest.raises(ValueError, match="column 'price' is inf in row 1, expected no infinity"):
            Encoder().encode(frame)
    encoder = taught(rows[:1])
    for value in (float("inf"), -float("inf"), 10**400, -(10**5000), np.float32("inf")):
        for x in ({"a": 1.0, "price": value}, {"fresh": value}):
            with pytest.raises(ValueError, match=r"column '(price|fresh)' is -?inf, expected no infinity"):
                encoder.encode_one(x)


def test_the_largest_floats_are_not_infinite():
    largest = sys.float_info.max
    encoder = taught([{"a": 1.0}])
    assert_array_equal(encoder.encode_one({"a": -largest}).X, [[-largest]])
    assert_array_equal(encoder.encode_one({"a": int(largest)}).X, [[largest]])
    assert_array_equal(encoder.encode(np.array([[largest], [-largest]]), dialect="dict").X, [[largest], [-largest]])


# ---------------------------------------------------------------- column types of the frame libraries

TEXT_COLUMNS = {
    "pandas str": pd.Series(["b", "a", None, "b"]),
    "pandas object": pd.Series(["b", "a", NAN, "b"], dtype=object),
    "pandas string": pd.Series(["b", "a", None, "b"], dtype="string[python]"),
    "pandas string[pyarrow]": pd.Series(["b", "a", None, "b"], dtype="string[pyarrow]"),
    "pandas category": pd.Series(["b", "a", None, "b"], dtype=pd.CategoricalDtype(["unused", "a", "b"])),
    "pandas arrow dictionary": pd.Series(
        ["b", "a", None, "b"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    ),
    "polars String": pl.Series(["b", "a", None, "b"]),
    "polars Categorical": pl.Series(["b", "a", None, "b"], dtype=pl.Categorical),
    "polars Enum": pl.Series(["b", "a", None, "b"], dtype=pl.Enum(["unused", "a", "b"])),
    "arrow string": pa.array(["b", "a", None, "b"], pa.string()),
    "arrow large_string": pa.array(["b", "a", None, "b"], pa.large_string()),
    "arrow string_view": pa.array(["b", "a", None, "b"], pa.string_view()),
    "arrow dictionary": pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), ["a", "b"]),
    "arrow dictionary holding null": pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, 2]), [None, "a", "b"]),
    "arrow dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1], pa.uint8()), pa.array(["a", "b"], pa.string_view())
    ),
    "arrow chunks": pa.chunked_array(
        [pa.array(["b"]), pa.array(["a", None]), pa.array([], pa.string()), pa.array(["b"])]
    ),
    "arrow dictionary chunks": pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["b", "a"]),
            pa.DictionaryArray.from_arrays(pa.array([None, 1]), ["a", "b"]),
        ]
    ),
    "arrow run ends": pc.run_end_encode(pa.array(["b", "a", None, "b"])),
}


def frame_of(values, name="c"):
    library = {pd.Series: pd.DataFrame, pl.Series: pl.DataFrame}.get(type(values), pa.table)
    return library({name: values})


@pytest.mark.parametrize("name", TEXT_COLUMNS)
def test_text_columns_of_every_type_get_codes_by_first_appearance(name):
    encoder = Encoder()
    encoded = encoder.encode(frame_of(TEXT_COLUMNS[name]))
    encoder = encoded.encoder
    assert_array_equal(encoded.X, [[0], [1], [NAN], [0]])
    assert encoder.categories == {"0": {"b": 0, "a": 1}}
    assert all(type(level) is str for level in encoder.categories["0"])
    assert encoder.kinds == ["category"]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([2, 1, None, 2], ["2", "1"]),
        ([True, False, None, True], ["True", "False"]),
        ([date(2020, 1, 2), date(2020, 1, 1), None, date(2020, 1, 2)], ["2020-01-02", "2020-01-01"]),
    ],
)
def test_categories_that_are_no_strings_are_known_by_their_text(levels, expected):
    arrow = pa.array(levels).dictionary_encode()
    for frame in (pd.DataFrame({"c": pd.Categorical(levels)}), pa.table({"c": arrow})):
        encoder = taught(frame)
        assert_array_equal(encoder.encode(frame).X, [[0], [1], [NAN], [0]])
        assert list(encoder.categories["0"]) == expected


def test_a_level_that_is_nan_is_missing():
    assert_array_equal(column(pa.table({"c": pa.array([1.5, NAN, None, 1.5]).dictionary_encode()})), [0, NAN, NAN, 0])


def test_intervals_from_pandas_cut_are_categories():
    frame = pd.DataFrame({"c": pd.cut(pd.Series([9.0, 1.0, NAN, 8.0]), [0, 5, 10])})
    assert_array_equal(Encoder().encode(frame).X, [[0], [1], [NAN], [0]])


NUMBER_COLUMNS = {
    "pandas Int64": pd.Series([3, None, 1], dtype="Int64"),
    "pandas UInt8": pd.Series([3, None, 1], dtype="UInt8"),
    "pandas Float32": pd.Series([3, None, 1], dtype="Float32"),
    "pandas float16": pd.Series([3, NAN, 1], dtype="float16"),
    "pandas int64[pyarrow]": pd.Series([3, None, 1], dtype="int64[pyarrow]"),
    "pandas Sparse": pd.Series(pd.arrays.SparseArray([3, NAN, 1.0])),
    "pandas object with NA": pd.Series([3, pd.NA, 1.0], dtype=object),
    "pandas object with None": pd.Series([np.int8(3), None, Fraction(1)], dtype=object),
    "polars UInt16": pl.Series([3, None, 1], dtype=pl.UInt16),
    "polars Float32": pl.Series([3, None, 1], dtype=pl.Float32),
    "polars Decimal": pl.Series([Decimal(3), None, Decimal(1)]),
    "arrow halffloat": pa.array([np.float16(3), None, np.float16(1)]),
    "arrow uint64": pa.array([3, None, 1], pa.uint64()),
    "arrow decimal256": pa.array([Decimal(3), None, Decimal(1)], pa.decimal256(50, 4)),
    "arrow run ends": pc.run_end_encode(pa.array([3, None, 1])),
    "arrow chunks": pa.chunked_array([pa.array([3, None]), pa.array([1])]),
}


@pytest.mark.parametrize("name", NUMBER_COLUMNS)
def test_number_columns_of_every_type_keep_their_values(name):
    encoder = Encoder()
    encoded = encoder.encode(frame_of(NUMBER_COLUMNS[name]))
    encoder = encoded.encoder
    assert_array_equal(encoded.X, [[3], [NAN], [1]])
    assert encoder.kinds == ["number"]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([True, None, False], dtype=object),
        pd.Series([True, None, False], dtype="bool[pyarrow]"),
        pl.Series([True, None, False]),
        pa.array([True, None, False]),
    ],
    ids=lambda values: f"{type(values).__module__} {getattr(values, 'dtype', '')}",
)
def test_booleans_are_zero_and_one(values):
    assert_array_equal(column(frame_of(values)), [1, NAN, 0])


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**17), 10**17, places=9), min_size=1))
def test_decimals_are_rounded_as_python_rounds_them(values):
    expected = [float(value) for value in values]
    table = pa.table({"a": pa.array(values, pa.decimal128(30, 9))})
    assert_array_equal(column(table), expected)
    assert_array_equal(column([{"a": value} for value in values]), expected)


# ---------------------------------------------------------------- times


@settings(deadline=None)
@given(moment=st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)))
def test_the_same_instant_is_the_same_number_in_every_unit_and_container(moment):
    paris = timezone(timedelta(hours=2))
    aware = moment.replace(tzinfo=UTC)
    numbers = [
        column({"t": moment})[0],
        column({"t": aware})[0],
        column({"t": aware.astimezone(paris)})[0],
        column({"t": pd.Timestamp(moment)})[0],
        column({"t": pd.Timestamp(moment).as_unit("ns")})[0],
        column({"t": np.datetime64(moment)})[0],
        column(np.array([[np.datetime64(moment, "ns")]]))[0],
        column(np.array([[moment]], dtype=">M8[us]"))[0],
        column(pa.table({"t": pa.array([moment], pa.timestamp("ns"))}))[0],
        column(pa.table({"t": pa.array([aware], pa.timestamp("us", "Europe/Paris"))}))[0],
        column(pl.DataFrame({"t": [moment]}, schema={"t": pl.Datetime("ns")}))[0],
        column(pd.DataFrame({"t": [moment]}))[0],
        column(pd.DataFrame({"t": [aware]}))[0],
    ]
    assert len(set(numbers)) == 1
    assert numbers[0] == pytest.approx(aware.timestamp(), rel=1e-15, abs=1e-6)


@pytest.mark.parametrize("moment", [datetime.min, datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.max], ids=str)
def test_the_first_and_last_moments_of_the_calendar_are_the_same_number_everywhere(moment):
    frames = (
        {"t": moment},
        [{"t": moment}, {"t": None}],
        [[moment]],
        np.array([[moment]], dtype="M8[us]"),
        pa.table({"t": [moment]}),
        pl.DataFrame({"t": [moment]}),
        pd.DataFrame({"t": [moment]}),
        pd.DataFrame({"t": [moment]}, dtype=object),
    )
    assert len({column(frame)[0] for frame in frames}) == 1
    assert column({"t": moment})[0] == pytest.approx((moment - datetime(1970, 1, 1)).total_seconds(), abs=1e-9)


def test_the_hour_that_a_clock_repeats_is_two_hours():
    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
    second = first.replace(fold=1)
    assert first == second  # as Python has it
    expected = [first.timestamp(), first.timestamp() + 3600]
    rows = [{"t": first}, {"t": second}]
    for frame in (rows, pd.DataFrame(rows), pd.DataFrame(rows, dtype=object), pa.Table.from_pylist(rows)):
        assert_array_equal(column(frame), expected)
    assert [column(row)[0] for row in rows] == expected
    assert_array_equal(column([*rows, {"t": date(1970, 1, 1)}]), [*expected, 0])


def test_times_beside_nan_are_times_and_beside_other_numbers_keep_their_own_value():
    day, moment = date(1970, 1, 2), datetime(1970, 1, 3)
    for missing in (NAN, pd.NaT, pd.NA):
        assert_array_equal(column(pd.DataFrame({"t": [day, missing]}, dtype=object)), [86400, NAN])
        assert_array_equal(column(pd.DataFrame({"t": [moment, missing, moment]}, dtype=object)), [172800, NAN, 172800])
    assert_array_equal(column(pd.DataFrame({"t": [day, 2.5, NAN]}, dtype=object)), [86400, 2.5, NAN])
    assert_array_equal(column([{"t": moment}, {"t": pd.Timestamp(moment)}, {"t": day}]), [172800, 172800, 86400])
    assert_array_equal(column([{"t": 5}, {"t": np.timedelta64(5, "ms")}]), [5, 0.005])
    assert_array_equal(column([{"t": timedelta.max}, {"t": timedelta(1)}]), [timedelta.max.total_seconds(), 86400])


def test_dates_times_and_durations_are_seconds():
    day, clock, span = date(1970, 1, 3), time(1, 2, 3, 500_000), timedelta(days=-1, seconds=1.5)
    expected = [[2 * 86400.0, 3723.5, -86398.5], [NAN, NAN, NAN]]
    rows = [{"a": day, "b": clock, "c": span}, {"a": None, "b": None, "c": None}]
    for frame in (rows, pd.DataFrame(rows), pl.DataFrame(rows), pa.Table.from_pylist(rows)):
        assert_array_equal(Encoder().encode(frame).X, expected)
    coarse = pa.table({"day": pa.array([day], pa.date64()), "clock": pa.array([time(1, 2, 3)], pa.time32("s"))})
    assert_array_equal(Encoder().encode(coarse).X, [[2 * 86400, 3723]])


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "10ms"])
def test_numpy_datetimes_of_every_unit_are_seconds_since_1970(unit):
    X = np.array([["1970-01-01", "NaT"]], dtype="M8[D]").astype(f"M8[{unit}]")
    assert_array_equal(Encoder().encode(X).X, [[0, NAN]])
    later = np.datetime64("1971-01-01").astype(f"M8[{unit}]")
    if unit != "W":  # no week begins on that day
        assert_array_equal(Encoder().encode_one({"a": later}).X, [[365 * 86400]])


def test_nanoseconds_count():
    span = pd.Timedelta(nanoseconds=1)
    expected = [1e-9]
    assert_array_equal(column({"t": span}), expected)
    assert_array_equal(column(pd.DataFrame({"t": [span]})), expected)
    assert_array_equal(column({"t": pd.Timestamp(0) + span}), expected)


def test_every_word_for_missing_is_nan():
    missing = [
        None,
        NAN,
        np.nan,
        np.float32("nan"),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT", "s"),
        np.timedelta64("NaT", "s"),
        Decimal("NaN"),
        Decimal("sNaN"),
    ]
    encoder = taught([{"n": 1.0, "t": "a"}])
    for value in missing:
        assert_array_equal(encoder.encode_one({"n": value, "t": value}).X, [[NAN, NAN]])
        assert_array_equal(encoder.encode([{"n": value, "t": value}, {}]).X, np.full((2, 2), NAN))
        assert encoder.encode_one({"n": value, "t": value}).encoder is encoder


# ---------------------------------------------------------------- what cannot be a column


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([[1, 2]]), "list<"),
        (pa.array([{"x": 1}]), "struct<"),
        (pa.array([b"x"]), "binary"),
        (pa.array([b"x"]).dictionary_encode(), "dictionary<values=binary"),
        (pa.DictionaryArray.from_arrays([0], pa.array([[1]])), "dictionary<values=list"),
        (pl.Series([[1, 2]]), "list<"),
        (pl.Series([object()], dtype=pl.Object), "binary"),
        (pd.Series(pd.period_range("2020", periods=1)), "period"),
        (pd.Series(pd.interval_range(0, 1)), "interval"),
        (pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), "list<"),
    ],
    ids=[
        "list",
        "struct",
        "binary",
        "binaries",
        "lists",
        "polars list",
        "polars object",
        "period",
        "interval",
        "pandas list",
    ],
)
def test_other_column_types_are_refused_by_name_and_type(values, words):
    with pytest.raises(TypeError, match=f"column 'tags' holds .*{words}.*expected numbers.*leave it out"):
        Encoder().encode(frame_of(values, "tags"))


def test_what_arrow_cannot_read_is_refused_with_a_way_out():
    with pytest.raises(TypeError, match=r"DataFrame that Arrow cannot read.*Cast the column"):
        Encoder().encode(pl.DataFrame({"a": [1]}, schema={"a": pl.Int128}))


def test_mixed_pandas_objects_are_refused_by_column_value_and_row():
    with pytest.raises(ValueError, match="column 'a' is 'x' in row 2, text, but it held numbers so far"):
        Encoder().encode(pd.DataFrame({"a": pd.Series([1, None, "x"], dtype=object)}))
    with pytest.raises(ValueError, match=r"column 'a' is 2.0 in row 1, a number, but it held text so far"):
        Encoder().encode(pd.DataFrame({"a": pd.Series(["x", 2, "y"], dtype=object)}))


# ---------------------------------------------------------------- kinds


def test_a_column_only_ever_missing_may_become_either_kind():
    missing = pd.DataFrame({"a": [NAN, NAN], "b": [None, None], "c": pd.Series([pd.NA, pd.NA], dtype="string")})
    encoder = taught(missing)
    assert encoder.kinds == [None, None, None]
    encoder = encoder.encode(pd.DataFrame({"a": ["x"], "b": [1.0], "c": [True]})).encoder
    assert encoder.kinds == ["category", "number", "number"]
    assert encoder.categories == {"0": {"x": 0}}


def test_a_change_of_kind_is_refused_and_changes_nothing():
    encoder = taught([{"size": 1.5, "color": "red"}])
    before = state(encoder)
    text = "column 'size' is 'big'.*text, but it held numbers so far. Convert it before, or .*new column name"
    number = r"column 'color' is 7.0.*a number, but it held text so far. Convert it before"
    for known_only in (False, True):
        for rows in ([{"size": 1.0}, {"size": "big"}], pd.DataFrame({"size": ["big"]}), np.array([["red", "big"]])):
            with pytest.raises(ValueError, match=text):
                encoder.encode(rows, dialect="dict", known_only=known_only)
        for rows in ([{"color": 7}], pl.DataFrame({"color": [7]}), np.array([[7.0, 1.0]])):
            with pytest.raises(ValueError, match=number):
                encoder.encode(rows, dialect="dict", known_only=known_only)
        with pytest.raises(ValueError, match=text):
            encoder.encode_one({"fresh": "new", "size": "big"}, known_only=known_only)
        with pytest.raises(ValueError, match=number):
            encoder.encode_one({"fresh": "new", "color": 7}, known_only=known_only)
    assert vars(encoder) == before


def test_the_row_of_a_change_of_kind_is_told():
    encoder = taught(pd.DataFrame({"n": [1.0], "t": ["x"]}))
    with pytest.raises(ValueError, match="column 'n' is 'late' in row 2"):
        encoder.encode(pd.DataFrame({"n": [None, None, "late"], "t": ["x", "x", "x"]}))
    with pytest.raises(ValueError, match=r"column 't' is 4.0 in row 1"):
        encoder.encode(pd.DataFrame({"n": [1.0, 1.0], "t": [NAN, 4.0]}))


def test_columns_of_a_bare_array_keep_their_kind_too():
    encoder = taught(np.array([[1.0, "a"]], dtype=object))
    with pytest.raises(ValueError, match=r"column 1 is 2.0 in row 0, a number, but it held text so far"):
        encoder.encode(np.array([[1.0, 2.0]]))
    assert_array_equal(encoder.encode(np.array([[3.0, NAN]])).X, [[3, NAN]])


# ---------------------------------------------------------------- categories


def test_levels_beyond_the_bound_share_one_code():
    encoder = Encoder(max_categories=2)
    encoded = encoder.encode(pd.DataFrame({"c": ["w", "x", "y", "z", "x"]}))
    encoder = encoded.encoder
    assert_array_equal(encoded.X[:, 0], [0, 1, 2, 2, 1])
    assert encoder.categories == {"0": {"w": 0, "x": 1}}
    for known_only in (False, True):
        later = encoder.encode_one({"c": "new"}, known_only=known_only)
        assert_array_equal(later.X, [[2]])
        assert later.encoder is encoder


def test_the_text_columns_are_known_by_their_positions():
    encoder = Encoder()
    assert encoder.categorical == ()
    encoder = encoder.encode([{"a": 1.0, "b": "x", "c": None, "d": "y"}]).encoder
    assert encoder.categorical == (1, 3)
    encoder = encoder.encode_one({"c": "late"}).encoder
    assert encoder.categorical == (1, 2, 3)


@pytest.mark.parametrize("known", [0, 700])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_ten_thousand_new_levels_in_one_chunk_fill_the_room_there_is(library, known):
    levels = [f"user {i}" for i in range(10_000)]
    encoder = Encoder()
    if known:
        encoder = encoder.encode(library({"c": levels[:known]})).encoder
    encoded = encoder.encode(library({"c": levels}))
    assert_array_equal(encoded.X[:, 0], np.minimum(np.arange(10_000), 8192))
    encoder = encoded.encoder
    assert encoder.categories["0"] == {level: code for code, level in enumerate(levels[:8192])}
    assert_array_equal(encoder.encode(library({"c": levels[::-1]}), known_only=True).X, encoded.X[::-1])


def test_unknown_levels_are_missing_when_predicting():
    encoder = taught(pd.DataFrame({"c": ["a", "b"]}))
    assert_array_equal(encoder.encode(pd.DataFrame({"c": ["b", "new"]}), known_only=True).X, [[1], [NAN]])
    assert_array_equal(encoder.encode_one({"c": "new"}, known_only=True).X, [[NAN]])


def test_strings_of_a_subclass_are_plain_levels():
    class Color(StrEnum):
        RED = "red"

    encoder = taught([{"c": Color.RED}])
    assert_array_equal(encoder.encode([{"c": "red"}, {"c": np.str_("red")}]).X, [[0], [0]])
    assert list(encoder.categories["0"]) == ["red"]
    assert type(next(iter(encoder.categories["0"]))) is str


# ---------------------------------------------------------------- names and widths


def named(*names):
    return pd.DataFrame([[float(j) for j in range(len(names))]], columns=list(names))


class Fitted(BaseEstimator):
    """What scikit-learn's own checks need to know of an estimator."""

    def __init__(self, names):
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)


@pytest.mark.parametrize(
    "names", [("b", "a"), ("a", "c"), ("a",), ("a", "b", "c"), ("p", "q", "r", "s", "t", "u", "v")], ids=str
)
@pytest.mark.parametrize("known_only", [False, True])
def test_other_names_than_the_first_are_refused_in_scikit_learns_words(names, known_only):
    encoder = taught(named("a", "b"))
    before = state(encoder)
    with pytest.raises(ValueError, match="The feature names should match") as theirs:
        _check_feature_names(Fitted(["a", "b"]), named(*names), reset=False)
    for frame in (named(*names), pl.from_pandas(named(*names)), pa.Table.from_pandas(named(*names))):
        with pytest.raises(ValueError, match="new_columns='grow'") as ours:
            encoder.encode(frame, known_only=known_only)
        assert str(ours.value).startswith(str(theirs.value))
    assert vars(encoder) == before


@pytest.mark.parametrize("known_only", [False, True])
def test_another_width_is_refused_in_scikit_learns_words(known_only):
    with pytest.raises(ValueError, match="X has 3 features, but Fitted is expecting 5 features as input"):
        _check_n_features(Fitted("abcde"), np.zeros((1, 3)), reset=False)
    for encoder in (taught(np.zeros((1, 5))), taught(named(*"abcde")), taught(named(*"abcde"), new_columns="grow")):
        for dialect in ("array", "dict"):
            with pytest.raises(ValueError, match="X has 3 features, but Fitted is expecting 5 features as input"):
                encoder.encode(np.zeros((1, 3)), owner="Fitted", known_only=known_only, dialect=dialect)
    with pytest.raises(ValueError, match="Pass the 5 columns it learned from: 'a', 'b', 'c', 'd', 'e'; only named"):
        taught(named(*"abcde")).encode(np.zeros((1, 3)), known_only=known_only)


def test_a_bare_array_after_a_frame_is_taken_in_order():
    encoder = taught(named("a", "b"))
    encoded = encoder.encode(np.array([[5.0, 6.0]]))
    assert_array_equal(encoded.X, [[5, 6]])
    assert encoded.encoder is encoder


def test_a_frame_after_bare_arrays_names_the_columns_from_then_on():
    encoder = taught(np.zeros((1, 2)))
    assert encoder.names is None
    encoder.encode(named("a", "b"), known_only=True)
    n_before, encoder = encoder.n_features, encoder.encode(named("a", "b")).encoder
    assert encoder.n_features == n_before + 0
    assert encoder.names == ["a", "b"]
    with pytest.raises(ValueError, match="in the same order"):
        encoder.encode(named("b", "a"))


def test_growing_frames_are_matched_by_name():
    encoder = Encoder(new_columns="grow")
    n_before, encoder = encoder.n_features, encoder.encode(pd.DataFrame({"a": [1.0], "t": ["x"]})).encoder
    assert encoder.n_features == n_before + 2
    encoded = encoder.encode(pl.DataFrame({"t": ["y", "x"], "b": [5, 6], "a": [2.0, None]}))
    assert_array_equal(encoded.X, [[2, 1, 5], [NAN, 0, 6]])
    assert encoder.n_features == 2
    n_before, encoder = encoder.n_features, encoded.encoder
    assert encoder.n_features == n_before + 1
    assert encoder.names == ["a", "t", "b"]
    assert_array_equal(encoder.encode(named("b")).X, [[NAN, NAN, 0]])
    assert_array_equal(encoder.encode(named("new", "b"), known_only=True).X, [[NAN, NAN, 1]])


def test_a_growing_frame_keeps_the_order_of_its_columns():
    encoder = taught(named("b", "a"), new_columns="grow")
    assert encoder.names == ["b", "a"]
    assert_array_equal(encoder.encode(named("b", "a").to_numpy()).X, [[0, 1]])


def test_in_rivers_dialect_a_frame_is_its_rows_one_dict_at_a_time():
    frame = pd.DataFrame({"b": [1.0, 2.0], "c": ["x", "y"], "a": [3.0, 4.0], 5: [0.0, 1.0]})
    ours, theirs = taught(frame, dialect="dict"), Encoder()
    for row in frame.to_dict("records"):
        theirs = theirs.encode_one(row).encoder
    assert state(ours) == state(theirs)


def test_in_rivers_dialect_frames_are_matched_by_name_without_growing_being_asked_for():
    encoder = taught(named("a", "b"), dialect="dict")
    encoded = encoder.encode(named("b", "new", "a"), dialect="dict")
    assert_array_equal(encoded.X, [[2, 0, 1]])
    n_before, encoder = encoder.n_features, encoded.encoder
    assert encoder.n_features == n_before + 1
    assert encoder.names == ["a", "b", "new"]
    assert_array_equal(encoder.encode(named("newer", "b"), dialect="dict", known_only=True).X, [[NAN, 1, NAN]])


@pytest.mark.parametrize("dialect", ["array", "dict"])
def test_dict_rows_may_bring_new_columns_in_either_dialect(dialect):
    encoder = taught([{"a": 1.0}], dialect=dialect)
    encoded = encoder.encode([{"b": 2.0}, {"a": 3.0, "c": "x"}], dialect=dialect)
    assert_array_equal(encoded.X, [[NAN, 2, NAN], [3, NAN, 0]])
    n_before, encoder = encoder.n_features, encoded.encoder
    assert encoder.n_features == n_before + 2
    assert encoder.kinds == ["number", "number", "category"]


def test_new_columns_are_left_out_when_predicting_even_if_they_could_not_be_read():
    encoder = taught([{"a": 1.0}])
    assert_array_equal(encoder.encode_one({"tags": ["x"], "a": 2.0}, known_only=True).X, [[2]])
    frame = pl.DataFrame({"tags": [["x"]], "a": [2.0]})
    assert_array_equal(encoder.encode(frame, dialect="dict", known_only=True).X, [[2]])


def test_before_the_first_rows_predicting_knows_no_columns():
    assert_array_equal(Encoder().encode_one({"a": 1.0}, known_only=True).X, [[NAN]])
    assert_array_equal(Encoder().encode(named("a"), dialect="dict", known_only=True).X, [[NAN]])


def test_an_empty_dict_is_a_row_with_everything_missing():
    encoder = Encoder()
    assert_array_equal(encoder.encode_one({}).X, [[NAN]])
    assert_array_equal(encoder.encode([{}, {}]).X, [[NAN], [NAN]])
    n_before, encoder = encoder.n_features, encoder.encode_one({}).encoder
    assert encoder.n_features == n_before + 0
    encoder = encoder.encode([{}, {"a": 1.0}, {}]).encoder
    assert_array_equal(encoder.encode_one({}).X, [[NAN]])
    assert_array_equal(encoder.encode({}).X, [[NAN]])
    assert encoder.encode([], dialect="dict").X.shape == (0, 1)


def test_mixed_names_are_refused():
    with pytest.raises(TypeError, match="Feature names are only supported if all input features have string names"):
        Encoder().encode(named("a", 1))


def test_columns_that_nobody_named_are_taken_in_order():
    encoder = taught(named(0, 1))
    assert encoder.names is None
    assert_array_equal(encoder.encode(np.array([[5.0, 6.0]])).X, [[5, 6]])
    assert_array_equal(taught(named(7, 8)).encode(named(0, 1)).X, [[0, 1]])
    same = taught(named(7, 7))
    assert same.names is None
    assert_array_equal(same.encode(named(8, 8)).X, [[0, 1]])


@pytest.mark.parametrize("known_only", [False, True])
def test_whole_numbers_for_names_are_names(known_only):
    for encoder in (taught(named(0, 1)), taught(np.zeros((1, 2)))):
        assert_array_equal(encoder.encode(named(1, 0), known_only=known_only).X, [[1, 0]])
    encoder = taught(named(7, 8))
    assert_array_equal(encoder.encode(named(7, 8), known_only=known_only).X, [[0, 1]])
    for names in ((8, 7), (7, 9), (7,)):
        with pytest.raises(ValueError, match="feature names should match"):
            encoder.encode(named(*names), known_only=known_only)
    growing = taught(named(7, 8), new_columns="grow")
    assert_array_equal(growing.encode(named(8, 7), known_only=known_only).X, [[1, 0]])


def test_columns_of_the_same_name_are_refused():
    for frame in (named("a", "b", "a"), pa.table([pa.array([1.0])] * 3, names=["a", "b", "a"])):
        with pytest.raises(ValueError, match=r"two columns named 'a', expected distinct names. Rename"):
            Encoder().encode(frame)


def test_any_hashable_can_name_a_column_of_dict_rows():
    x = {1: 1.0, "1": 2.0, ("a", 2): "x", None: 4.0}
    encoder = taught([x])
    assert set(encoder.names) == set(x)
    expected = {1: 1.0, "1": 2.0, ("a", 2): 0.0, None: 4.0}
    assert_array_equal(encoder.encode_one(x).X, [[expected[name] for name in encoder.names]])


def test_columns_of_bare_arrays_go_by_whole_numbers_as_in_river():
    encoder = taught(np.array([[1.0, 2.0]]))
    assert_array_equal(encoder.encode_one({1: 5.0}).X, [[NAN, 5]])
    assert_array_equal(encoder.encode(named(1, 0), dialect="dict").X, [[1, 0]])
    n_before, encoder = encoder.n_features, encoder.encode_one({7: 5.0}).encoder
    assert encoder.n_features == n_before + 1
    assert encoder.names == [0, 1, 7]


def test_whole_numbers_as_names_find_their_place_in_a_bare_array():
    encoder = taught([{1: 10.0}, {0: 20.0}])
    assert encoder.names == [1, 0]
    assert_array_equal(encoder.encode(np.array([[20.0, 10.0]])).X, [[10, 20]])
    assert_array_equal(encoder.encode(named(1, 0)).X, [[0, 1]])


@pytest.mark.parametrize("known_only", [False, True])
def test_named_rows_cannot_be_matched_to_columns_without_names(known_only):
    encoder = taught(np.zeros((1, 2)))
    words = "column 'a' cannot be matched by name: the 2 columns seen so far came as bare arrays. Learn from frames"
    with pytest.raises(ValueError, match=words):
        encoder.encode_one({"a": 1.0}, known_only=known_only)
    with pytest.raises(ValueError, match=words):
        encoder.encode(named("a", "b"), dialect="dict", known_only=known_only)


# ---------------------------------------------------------------- the two steps


def test_rows_that_bring_nothing_new_leave_the_encoder_the_same_object():
    encoder = taught([{"a": None, "b": 1.0, "t": "x"}])
    for encoded in (
        encoder.encode_one({"b": 2.0, "t": "x"}),
        encoder.encode([{"b": None, "t": "x"}, {}]),
        encoder.encode_one({"a": 1.0, "t": "y", "new": 2.0}, known_only=True),
        encoder.encode([{"a": 1.0, "t": "y", "new": 2.0}], known_only=True),
    ):
        assert encoded.encoder is encoder


def test_rows_that_bring_something_new_leave_the_encoder_as_it_was():
    encoder = taught([{"a": None, "t": "x"}])
    before = state(encoder)
    for rows in ({"a": 1.0}, {"t": "y"}, {"new": 2.0}, {"new": "text", "a": 1.0}):
        for grown in (encoder.encode_one(rows).encoder, encoder.encode([rows]).encoder):
            assert grown is not encoder
            assert grown.encode_one(rows).encoder is grown
            assert vars(encoder) == before
    first, second = encoder.encode_one({"t": "y"}).encoder, encoder.encode_one({"t": "z"}).encoder
    assert first.categories == {"1": {"x": 0, "y": 1}}
    assert second.categories == {"1": {"x": 0, "z": 1}}


NUMBER_TYPES = {pa.float64(): 1e300, pa.float32(): 0.1, pa.int64(): 2**53 + 1, pa.uint64(): 2**63 + 3, pa.int8(): -7}


@pytest.mark.parametrize("known_only", [False, True])
@pytest.mark.parametrize("dialect", ["array", "dict"])
@pytest.mark.parametrize("names", [["a", "b"], ["b", "a"], [1, 0], ["a", 0], None])
def test_known_columns_of_numbers_are_encoded_as_if_looked_at(names, dialect, known_only, monkeypatch):
    encoder = taught(np.zeros((1, 2)) if names is None else [{name: 1.0} for name in names])
    given = [np.array([[1.5, NAN], [3.0, 4.0]]), np.array([[1.5, np.inf]]), np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])]
    given += [np.array([[1, 2]]), np.array([[1.0]]), pa.table({"a": [1.0, None], "b": [NAN, 2.0]})]
    given += [pa.table({"a": pa.array([value, None, 1], kind), "b": [1.0] * 3}) for kind, value in NUMBER_TYPES.items()]
    given += [
        pa.table({"a": [np.inf], "b": [1]}),
        pa.table({"b": [1.0], "a": [2.0]}),
        pa.table({"a": [1.0], "b": ["t"]}),
    ]
    given += [pa.table({"a": pa.chunked_array([[1], [2, None]]), "b": pa.chunked_array([[1.0, 2.0], [3.0]])})]
    quick = [outcome(encoder.encode, X, dialect=dialect, known_only=known_only) for X in given]
    monkeypatch.setattr(Encoder, "_known_numbers", lambda *_: None)
    assert quick == [outcome(encoder.encode, X, dialect=dialect, known_only=known_only) for X in given]


def test_what_was_encoded_does_not_alias_the_encoder():
    encoder = Encoder()
    encoded = encoder.encode([{"a": "x"}])
    encoded.X[:] = 5.0
    assert_array_equal(encoded.encoder.encode_one({"a": "x"}).X[:, :1], [[0]])


def test_an_encoder_continues_from_its_plain_state_alone():
    encoder = taught([{"a": 1.0, "t": "x"}, {"b": None}])
    rebuilt = Encoder.__new__(Encoder)
    vars(rebuilt).update(state(encoder))
    for other in (rebuilt, copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert_array_equal(other.encode_one({"t": "x", "b": 4.0, "a": 2.0}).X, [[2, 0, 4]])
        other = other.encode_one({"t": "y"}).encoder
        assert other.categories == {"1": {"x": 0, "y": 1}}
    assert encoder.categories == {"1": {"x": 0}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"new_columns": "ignore"}, "new_columns is 'ignore', expected 'error' or 'grow'"),
        ({"max_categories": 0}, "max_categories is 0, expected a whole number of at least 1"),
        ({"max_categories": 2.5}, "max_categories is 2.5, expected a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Encoder(**options)


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ValueError, match="dialect is 'frames', expected 'array' or 'dict'"):
        Encoder().encode([[1.0]], dialect="frames")


def test_neither_pandas_nor_polars_is_needed():
    program = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
import pyarrow as pa
from streamboost.features.encoder import Encoder
encoder = Encoder()
encoder = encoder.encode(pa.table({"a": [1.5], "t": ["x"]})).encoder
print(encoder.encode([{"a": 2.0, "t": "x"}]).X.tolist(), encoder.encode([[3.0, None]]).X[0, 0])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[[2.0,", "0.0]]", "3.0"]
