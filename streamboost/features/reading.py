"""One chunk of rows of any kind, read into columns; nothing here knows of earlier rows.

In flow NumPy arrays, lists, frames (pandas, polars, pyarrow: anything that speaks Arrow's C stream), structured arrays
and dicts; out flow :class:`Rows`: the names of the columns, and each column as floats, as :class:`Distinct` if it is
text, or as :class:`Dates`. NaN, ``None``, ``NA`` and an absent key all become NaN; times become seconds, dates those
since 1970. What is neither number, text nor time is refused. Frames are read a column at a time: Python looks at
distinct texts, and at rows only where a column holds Python's objects that are neither numbers nor text, nor times of
one type.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import compress, repeat
from numbers import Complex, Real
from operator import is_
from reprlib import repr as brief
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.features.dates import DATE, WAYS, is_date_value, seconds_of, seconds_of_texts

Dialect: TypeAlias = Literal["array", "dict"]
Kind: TypeAlias = Literal["number", "category", "date"]

NAN = math.nan
EPOCH = datetime(1970, 1, 1)
MICROSECONDS = re.compile(DATE.replace("{1,9}", "{1,6}"), re.ASCII)  # dates that Python can hold
TIMES = (date, time, timedelta, np.datetime64, np.timedelta64)
NUMBERS = {float, int, bool, Decimal, np.float64, np.float32, np.int64, np.int32, np.bool_}
PANDAS_MISSING = {"NAType", "NaTType"}  # NA and NaT, without importing pandas
# How Arrow reads Python's times, all at once; a moment without a zone counts as UTC everywhere.
ARROW_TIMES = {
    date: pa.date32(),
    datetime: pa.timestamp("us", "UTC"),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
}


class Distinct(NamedTuple):
    """A column by its distinct values."""

    codes: IntArray  # (n,), positions in levels; -1 where missing
    levels: list[Any]  # in order of first appearance; of a column of text all are strings
    is_categorical: bool = False  # whether the container calls them categories


class Dates(NamedTuple):
    """A column of dates or timestamps."""

    seconds: FloatArray  # (n,), since 1970 in UTC; NaN where missing


_Column: TypeAlias = FloatArray | Distinct | Dates
_Reader: TypeAlias = Callable[..., _Column]  # is_date=... says what is known of the column: text among dates is one


class Rows(NamedTuple):
    """A chunk of rows, read but not yet compared with earlier ones."""

    n_rows: int
    names: Sequence[Hashable]  # 0, 1, 2, ... for a bare array
    columns: Sequence[_Reader] | FloatArray  # a reader for each column, or (n, d) where all are numbers
    named: bool  # whether someone chose these names, and they tell the columns apart
    by_name: bool = False  # River's dialect: columns may come and go
    since: Sequence[int] = ()  # the row that brings each column; the first, if left out


def read(X: Any, dialect: Dialect) -> Rows:
    """Read a chunk of rows of any kind; a single dict is a single row."""
    if isinstance(X, Mapping):
        return _read_dicts([X])
    if isinstance(X, (list, tuple)) and (isinstance(X[0], Mapping) if X else dialect == "dict"):
        return _read_dicts(X)
    pandas = sys.modules.get("pandas")  # whoever holds a pandas frame has imported pandas already
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return _read_pandas(X, dialect)
    is_array = isinstance(getattr(X, "dtype", None), np.dtype)  # even if it speaks Arrow too, as those of xarray do
    if not is_array and (hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")):
        return _read_table(X, dialect)
    if is_array and X.dtype.names and X.ndim == 1:
        names = list(X.dtype.names)
        return _arrange(len(X), names, [partial(_read_field, X, name) for name in names], dialect)
    return _read_array(X)


def select_rows(X: Any, is_kept: BoolArray) -> Any:
    """Return some rows of a chunk, or some targets, as the same kind of container."""
    if isinstance(X, (list, tuple)):
        return list(compress(X, is_kept))
    module = type(X).__module__.partition(".")[0]
    if module in ("pyarrow", "polars"):
        return X.filter(pa.array(is_kept) if module == "pyarrow" else is_kept)
    return X[is_kept]


def _read_dicts(rows: Sequence[Mapping[Hashable, object]]) -> Rows:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {i} of X is {brief(row)}, expected a dict like the rows before it.")
    names: dict[Hashable, int] = {}
    for i, row in enumerate(rows):
        if not row.keys() <= names.keys():
            names.update(dict.fromkeys(in_order(row.keys() - names.keys()), i))
    readers = [partial(_read_objects, [row.get(name) for row in rows], name) for name in names]
    return Rows(len(rows), list(names), readers, named=True, by_name=True, since=list(names.values()))


def in_order(names: Iterable[Hashable]) -> list[Hashable]:
    """Sort what names one row brings: it means the same in whatever order it is written."""
    return sorted(names, key=lambda x: (type(x).__qualname__, x if isinstance(x, (str, int)) else repr(x)))


def _arrange(n_rows: int, names: list[Hashable], columns: Sequence[_Reader] | FloatArray, dialect: Dialect) -> Rows:
    """The columns of a frame, as its dialect names and orders them."""
    types = sorted({type(name).__qualname__ for name in names})
    if dialect == "array" and "str" in types and len(types) > 1:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{types} as feature name / column name types. Use X.columns = X.columns.astype(str), for example."
        )
    is_distinct = len(set(names)) == len(names)
    if dialect == "array" and "str" not in types and (names == list(range(len(names))) or not is_distinct):
        return Rows(n_rows, range(len(names)), columns, named=False)  # what a frame calls columns nobody named
    if not is_distinct:
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"X has two columns named {twice!r}, expected distinct names. Rename or drop one of them.")
    if dialect == "array":
        return Rows(n_rows, names, columns, named=True)
    ordered = in_order(names)  # as its rows would be, one dict at a time
    if ordered != names:
        places = [names.index(name) for name in ordered]
        columns = columns[:, places] if isinstance(columns, np.ndarray) else [columns[j] for j in places]
    return Rows(n_rows, ordered, columns, named=True, by_name=True)


def _read_pandas(X: Any, dialect: Dialect) -> Rows:
    names = list(X.columns)
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in X.dtypes):
        with np.errstate(over="ignore"):  # as in _floats
            return _arrange(len(X), names, X.to_numpy(np.float64), dialect)
    return _arrange(len(X), names, [partial(_read_series, series, name) for name, series in X.items()], dialect)


def _read_series(series: Any, name: Hashable, *, is_date: bool | None = None) -> _Column:
    """Read a column of a pandas frame."""
    if hasattr(series.dtype, "categories"):
        return _as_text(distinct_categories(series))
    if isinstance(series.dtype, np.dtype):
        return _read_values(series.to_numpy(), name, is_date=is_date)
    try:
        column = pa.array(series, from_pandas=True)
    except pa.ArrowException:  # some extension dtypes, such as Sparse, know nothing of Arrow
        return _read_objects(series.tolist(), name, is_date=is_date)
    return _read_arrow(column, name)


def _read_values(values: NDArray[Any], name: Hashable, *, is_date: bool | None = None) -> _Column:
    """Read a column that is a NumPy array, (n,)."""
    if values.dtype.kind in "OUT":
        return _read_objects(values.tolist(), name, is_date=is_date)
    return Dates(seconds_of(values)) if values.dtype.kind == "M" else _floats(values, f"column {name!r}")


def _read_table(X: Any, dialect: Dialect) -> Rows:
    if len(getattr(X, "shape", ())) == 1 or isinstance(X, (pa.Array, pa.ChunkedArray)):
        raise _not_two_dimensional(X, 1)
    try:
        table = pa.table(X)
    except pa.ArrowException as error:
        raise TypeError(
            f"X is a {type(X).__name__} that Arrow cannot read: {error}. "
            "Cast the column in question to int64, float64 or a string type first."
        ) from error
    readers = [partial(_read_arrow, *column) for column in zip(table.columns, table.column_names, strict=True)]
    return _arrange(table.num_rows, table.column_names, readers, dialect)


def _read_arrow(column: Any, name: Hashable, *, is_date: bool | None = None) -> _Column:
    """Read an Arrow array, chunked or not."""
    kind, types = column.type, pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind):
        return _numpy(column if types.is_float64(kind) else column.cast(pa.float64(), safe=False))
    if types.is_run_end_encoded(kind):
        return _read_arrow(pc.run_end_decode(column), name)
    refusals = (types.is_nested, types.is_binary, types.is_large_binary)  # a column of such values is refused, too
    if is_text(kind) or (types.is_dictionary(kind) and not any(is_such(kind.value_type) for is_such in refusals)):
        return _as_text(distinct(column))
    if types.is_decimal(kind):
        return _numpy(column.cast(pa.string()).cast(pa.float64()))  # straight to float64 rounds less well
    if types.is_time(kind):
        ticks = column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.int64())
        return seconds_of(_numpy(ticks.cast(pa.duration(kind.unit))))
    if types.is_duration(kind):
        return seconds_of(_numpy(column))
    if types.is_date(kind) or types.is_timestamp(kind):
        return Dates(seconds_of(_numpy(column)))
    raise TypeError(
        f"column {name!r} holds {kind}, expected numbers, text, booleans or times. "
        "Spread it over columns of these, convert it to text, or leave it out."
    )


def _numpy(column: Any) -> NDArray[Any]:
    """An Arrow array, chunked or not, as NumPy has it; null is NaN or NaT."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of its three types of text."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def distinct(column: Any) -> Distinct:
    """The distinct values of an Arrow array, chunked or not, dictionary-encoded or not."""
    is_categorical = pa.types.is_dictionary(column.type)
    if len(column) == 0:  # which Arrow before 25 cannot combine
        return Distinct(np.empty(0, np.int32), [], is_categorical)
    if is_categorical:  # which may hold levels that do not occur, and NaN for a missing one
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        values = [_wide(chunk.dictionary).take(chunk.indices) for chunk in chunks]
        column = pa.chunked_array(values)
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
    encoded = _wide(column).dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return Distinct(encoded.indices.fill_null(-1).to_numpy(), encoded.dictionary.to_pylist(), is_categorical)


def _wide(column: Any) -> Any:
    """Text of any Arrow type as the one that every function of Arrow takes."""
    return column.cast(pa.large_string()) if is_text(column.type) else column


def distinct_categories(series: Any) -> Distinct:
    """The distinct values of a pandas series of dtype category."""
    codes, levels = series.factorize()
    return Distinct(codes, levels.tolist(), is_categorical=True)


def _as_text(found: Distinct) -> Distinct:
    """Know levels by their text."""
    if set(map(type, found.levels)) <= {str}:
        return found
    places: dict[str, int] = {}
    table = [places.setdefault(str(level), len(places)) for level in found.levels]
    return Distinct(np.array([*table, -1])[found.codes], list(places), found.is_categorical)


def _read_array(X: Any) -> Rows:
    array = _as_array(X)
    if array.ndim != 2:
        raise _not_two_dimensional(X, array.ndim)
    n, d = array.shape
    if array.dtype.kind in "OUT":
        readers = [partial(_read_objects, array[:, j].tolist(), j) for j in range(d)]
        return Rows(n, range(d), readers, named=False)
    if array.dtype.kind == "M":
        return Rows(n, range(d), [partial(_read_times, array[:, j]) for j in range(d)], named=False)
    return Rows(n, range(d), _floats(array, "X"), named=False)


def _read_times(times: NDArray[Any], *, is_date: bool | None = None) -> Dates:
    return Dates(seconds_of(times))


def _read_field(X: NDArray[Any], name: str, *, is_date: bool | None = None) -> _Column:
    """Read a column of a structured array."""
    values = _as_array(X[name])
    if values.ndim > 1:
        raise TypeError(f"column {name!r} holds arrays, expected one value a row. Spread it over columns.")
    return _read_values(values, name, is_date=is_date)


def _as_array(X: Any) -> NDArray[Any]:
    if isinstance(X, np.ma.MaskedArray):  # what it hides is missing
        missing: Any = NAN if X.dtype.kind in "biuf" else None
        return np.asarray(np.where(X.mask, np.array("NaT", X.dtype) if X.dtype.kind in "mM" else missing, X.data))
    if not isinstance(X, (list, tuple)):
        return np.asarray(X)
    try:
        array = np.asarray(X)
        # among strings NumPy turns numbers to strings too: keep them apart
        return np.array(X, dtype=object) if array.dtype.kind in "US" else array
    except ValueError as error:
        raise ValueError(
            f"X is {brief(X)}, a list whose rows differ in length, expected rows of one length. "
            "Fill the gaps with None, or pass a list of dicts."
        ) from error


def _floats(array: NDArray[Any], what: str) -> FloatArray:
    """Numbers, booleans or times of any shape as floats."""
    if array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # what is too large for float64 is refused as infinite later on
            return array.astype(np.float64, copy=False)
    if array.dtype.kind == "m":
        return seconds_of(array)
    if array.dtype.kind == "c":
        raise _complex(f"{what} is complex")
    raise TypeError(
        f"{what} has dtype {array.dtype}, expected numbers, text, booleans or times. Convert it with astype(...), "
        "or pass a frame."
    )


def _read_objects(values: list[Any], name: Hashable, *, is_date: bool | None = None) -> _Column:
    """Read a column of Python objects, of the usual types all at once; one that begins with a date is of dates."""
    types = set(map(type, values)) - {NoneType}
    if types <= NUMBERS:
        try:
            return np.array(values, dtype=np.float64)
        except (OverflowError, ValueError):  # a whole number too large for float64, or a signalling NaN
            pass
    if types <= {str, float} and not (is_date and float in types):  # pandas writes NaN among text
        return _read_texts(values, name)
    times = {kind for kind in types if kind is not float and kind.__name__ not in PANDAS_MISSING}
    floats = compress(values, map(is_, map(type, values), repeat(float)))
    if len(times) == 1 and times <= ARROW_TIMES.keys() and all(map(math.isnan, floats)):
        with suppress(pa.ArrowException):  # a span of more than 292,000 years
            return _read_arrow(pa.array(values, ARROW_TIMES[times.pop()], from_pandas=True), name)
    plain = [read_value(value, name, row) for row, value in enumerate(values)]
    first = next((row for row, value in enumerate(plain) if value == value), None)
    if first is not None and (is_date or (is_date is None and is_date_value(values[first]))):
        return Dates(np.array([read_date(value, name, row) for row, value in enumerate(plain)]))
    return _read_texts(plain, name) if str in set(map(type, plain)) else np.array(plain, dtype=np.float64)


def _read_texts(values: list[Any], name: Hashable) -> Distinct:
    """Read a column of strings, among which None and NaN are missing, and other floats refused."""
    codes: dict[Any, int] = dict.fromkeys(values, -1)
    levels = [level for level in codes if isinstance(level, str)]
    if any(number == number for number in codes if isinstance(number, float)):
        first_text = next(row for row, value in enumerate(values) if isinstance(value, str))
        first_number = next(row for row, value in enumerate(values) if isinstance(value, float) and value == value)
        row = max(first_text, first_number)
        raise kind_differs(name, "category" if row == first_text else "number", values[row], row)
    codes.update(zip(levels, range(len(levels)), strict=True))
    return Distinct(np.fromiter(map(codes.__getitem__, values), np.int64, len(values)), levels)


def read_value(value: Any, name: Hashable, row: int | None = None) -> float | str:
    """One Python object as a number (NaN if missing) or as text."""
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)  # plain text even of a subclass such as NumPy's, or an Enum
    if value is None or type(value).__name__ in PANDAS_MISSING:
        return NAN
    if isinstance(value, TIMES):
        return _seconds_of(value)
    if isinstance(value, (int, np.integer, np.bool_, Decimal, Real)):
        try:
            return float(value)
        except OverflowError:  # a whole number too large for float64
            return math.inf
        except ValueError:  # the signalling NaN of decimals
            return NAN
    if isinstance(value, Complex):
        raise _complex(cell(name, value, row))
    raise TypeError(
        f"{cell(name, value, row)}: argument must be a string or a number, not a {type(value).__name__}. "
        "Spread it over columns of these, or leave it out."
    )


def read_date(value: float | str, name: Hashable, row: int | None = None) -> float:
    """What :func:`read_value` gives of a column of dates, in seconds since 1970; text is one of them, written."""
    if not isinstance(value, str):
        return value
    if MICROSECONDS.match(value):
        with suppress(ValueError):  # no day of the calendar
            return _seconds_of(datetime.fromisoformat(value.strip()))
    seconds = float(seconds_of_texts([value])[0])
    if seconds != seconds:
        raise no_date(name, value, row)
    return seconds


def _seconds_of(value: Any) -> float:
    """One time in seconds, to the same float that :func:`seconds_of` gives for it."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return float(seconds_of(np.asarray(value)))
    if isinstance(value, datetime):
        since = value - (EPOCH if value.tzinfo is None else EPOCH.replace(tzinfo=UTC))
    elif isinstance(value, date):
        since = value - EPOCH.date()
    elif isinstance(value, time):
        since = datetime.combine(EPOCH, value.replace(tzinfo=None)) - EPOCH
    else:
        since = value
    nanoseconds = 1000 * since.microseconds + getattr(since, "nanoseconds", 0)  # pandas keeps the latter
    return 86400 * since.days + since.seconds + nanoseconds / 10**9


def cell(name: Hashable, value: object, row: int | None) -> str:
    """Say where a value stands, and what it is, to open an error message with."""
    return f"column {name!r} is {brief(value)}" + ("" if row is None else f" in row {row}")


def kind_differs(name: Hashable, kind: Kind, value: object, row: int | None) -> ValueError:
    """Complain of a number or a date among text, or of text among numbers."""
    found, so_far = {"category": ("text", "numbers"), "number": ("a number", "text"), "date": ("a date", "text")}[kind]
    return ValueError(
        f"{cell(name, value, row)}, {found}, but it held {so_far} so far. "
        "Convert it before, or give the new kind a new column name."
    )


def no_date(name: Hashable, value: object, row: int | None) -> ValueError:
    """Complain of text among dates that is none."""
    return ValueError(f"{cell(name, value, row)}, but it held dates so far. Write a date as {WAYS}.")


def _complex(what: str) -> ValueError:
    return ValueError(f"Complex data not supported: {what}. Pass its real and imaginary parts as columns.")


def _not_two_dimensional(X: Any, ndim: int) -> Exception:
    if ndim == 0 and not np.isscalar(X) and not isinstance(X, np.ndarray):
        return TypeError(
            f"X is a {type(X).__name__}, expected rows: an array, a list of lists, a frame (pandas, polars, "
            "pyarrow), a dict or a list of dicts. Collect a lazy frame, and make a list of an iterator, first."
        )
    if ndim > 2:
        return ValueError(f"Found array with dim {ndim}, expected 2. Flatten X with X.reshape(len(X), -1).")
    found = "scalar" if ndim == 0 else "1D"
    return ValueError(
        f"Expected 2D array, got {found} array instead: X is {brief(X)}. Reshape your data either using "
        "array.reshape(-1, 1) if it has a single feature, or array.reshape(1, -1) if it is a single row."
    )
