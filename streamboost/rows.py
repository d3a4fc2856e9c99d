"""One chunk of rows of any kind, read into columns; nothing here knows of earlier rows.

In flow NumPy arrays, lists, frames (pandas, polars, pyarrow: anything that speaks Arrow's C stream) and dicts; out
flow :class:`Rows`: the names of the columns, and each column as floats or as :class:`Texts`. NaN, ``None``, ``NA``
and an absent key all become NaN; times become seconds since 1970. What is neither number, text nor time is refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from numbers import Complex, Real
from reprlib import repr as brief
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamboost.arrays import FloatArray, IntArray

Dialect: TypeAlias = Literal["array", "dict"]
Kind: TypeAlias = Literal["number", "category"]

NAN = math.nan
EPOCH = datetime(1970, 1, 1)
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Texts(NamedTuple):
    """A column of text."""

    codes: IntArray  # (n,), positions in levels; -1 where missing
    levels: list[str]  # in order of first appearance


_Column: TypeAlias = FloatArray | Texts
_Reader: TypeAlias = Callable[[], _Column]


class Rows(NamedTuple):
    """A chunk of rows, read but not yet compared with earlier ones."""

    n_rows: int
    names: Sequence[Hashable]  # 0, 1, 2, ... for a bare array
    columns: Sequence[_Reader] | FloatArray  # a reader for each column, or (n, d) where all are numbers
    named: bool  # in scikit-learn's sense: a frame with strings for names
    by_name: bool = False  # River's dialect: columns may come and go


def read(X: Any, dialect: Dialect) -> Rows:
    """Read a chunk of rows of any kind; a single dict is a single row."""
    if hasattr(X, "tocsr"):  # before dicts: one sparse format is a dict too
        raise TypeError(
            f"X is a sparse {type(X).__name__}, expected dense rows: sparse data is not supported. Pass X.toarray()."
        )
    if isinstance(X, Mapping):
        return _read_dicts([X])
    if isinstance(X, (list, tuple)) and (isinstance(X[0], Mapping) if X else dialect == "dict"):
        return _read_dicts(X)
    pandas = sys.modules.get("pandas")  # whoever holds a pandas frame has imported pandas already
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return _read_frame(len(X), list(X.columns), [series for _, series in X.items()], _read_series, dialect)
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__"):
        table = _arrow_table(X)
        return _read_frame(table.num_rows, table.column_names, table.columns, _read_arrow, dialect)
    return _read_array(X)


def _read_dicts(rows: Sequence[Mapping[Hashable, object]]) -> Rows:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {i} of X is {brief(row)}, expected a dict like the rows before it.")
    names: dict[Hashable, None] = {}
    for row in rows:
        names.update(dict.fromkeys(in_order(row.keys() - names.keys())))
    readers = [partial(_read_objects, [row.get(name) for row in rows], name) for name in names]
    return Rows(len(rows), list(names), readers, named=True, by_name=True)


def in_order(names: Iterable[Hashable]) -> list[Hashable]:
    """Sort what names one row brings: it means the same in whatever order it is written."""
    return sorted(
        names, key=lambda name: (type(name).__qualname__, name if isinstance(name, (str, int)) else repr(name))
    )


def _read_frame(
    n_rows: int,
    names: list[Hashable],
    columns: list[Any],
    read_column: Callable[[Any, Hashable], _Column],
    dialect: Dialect,
) -> Rows:
    if not columns and dialect == "array":
        raise _no_columns(n_rows)
    readers = [partial(read_column, column, name) for column, name in zip(columns, names, strict=True)]
    types = sorted({type(name).__qualname__ for name in names})
    if dialect == "array" and "str" not in types:
        return Rows(n_rows, names, readers, named=False)
    if dialect == "array" and len(types) > 1:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{types} as feature name / column name types. Use X.columns = X.columns.astype(str), for example."
        )
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"X has two columns named {twice!r}, expected distinct names. Rename or drop one of them.")
    if dialect == "array":
        return Rows(n_rows, names, readers, named=True)
    reader_of = dict(zip(names, readers, strict=True))
    ordered = in_order(names)  # as its rows would be, one dict at a time
    return Rows(n_rows, ordered, [reader_of[name] for name in ordered], named=True, by_name=True)


def _read_series(series: Any, name: Hashable) -> _Column:
    """Read a column of a pandas frame."""
    if hasattr(series.dtype, "categories"):
        codes = series.cat.codes.to_numpy()
        levels = pa.array([str(level) for level in series.cat.categories], pa.large_string())
        return _read_texts(levels.take(pa.array(codes, mask=codes < 0)))
    if isinstance(series.dtype, np.dtype):
        values = series.to_numpy()
        return _read_objects(values.tolist(), name) if values.dtype == object else _floats(values)
    try:
        column = pa.array(series, from_pandas=True)
    except pa.ArrowException:  # some extension dtypes, such as Sparse, know nothing of Arrow
        return _read_objects(series.tolist(), name)
    return _read_arrow(column, name)


def _arrow_table(X: Any) -> Any:
    if len(getattr(X, "shape", ())) == 1 or isinstance(X, (pa.Array, pa.ChunkedArray)):
        raise _not_two_dimensional(X, 1)
    try:
        return pa.table(X)
    except pa.ArrowException as error:
        raise TypeError(
            f"X is a {type(X).__name__} that Arrow cannot read: {error}. "
            "Cast the column in question to int64, float64 or a string type first."
        ) from error


def _read_arrow(column: Any, name: Hashable) -> _Column:
    """Read an Arrow array, chunked or not."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    kind, types = column.type, pa.types
    if types.is_run_end_encoded(kind):
        return _read_arrow(pc.run_end_decode(column), name)
    if types.is_dictionary(kind):
        return _read_texts(pa.chunked_array(map(_decode, column.chunks), pa.large_string()))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _read_texts(column.cast(pa.large_string()))
    if types.is_decimal(kind):
        return _floats(column.cast(pa.string()).cast(pa.float64()).to_numpy())  # straight to float64 rounds less well
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind):
        return _floats(column.cast(pa.float64(), safe=False).to_numpy())
    if types.is_time(kind):
        ticks = column.cast(pa.int32() if types.is_time32(kind) else pa.int64()).cast(pa.int64())
        return _floats(ticks.cast(pa.duration(kind.unit)).to_numpy())
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return _floats(column.to_numpy())
    raise TypeError(
        f"column {name!r} holds {kind}, expected numbers, text, booleans or times. "
        "Spread it over columns of these, convert it to text, or leave it out."
    )


def _decode(chunk: Any) -> Any:
    """Write a dictionary-encoded array out as text."""
    levels = [None if level is None else str(level) for level in chunk.dictionary.to_pylist()]
    return pa.array(levels, pa.large_string()).take(chunk.indices)


def _read_texts(column: Any) -> Texts:
    encoded = column.dictionary_encode()  # in order of first appearance, over all chunks
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return Texts(encoded.indices.fill_null(-1).to_numpy(), encoded.dictionary.to_pylist())


def _read_array(X: Any) -> Rows:
    array = _fill_masked(X) if isinstance(X, np.ma.MaskedArray) else _as_array(X)
    if array.ndim != 2:
        raise _not_two_dimensional(X, array.ndim)
    n, d = array.shape
    if d == 0:
        raise _no_columns(n)
    if array.dtype.kind in "OUT":
        readers = [partial(_read_objects, array[:, j].tolist(), j) for j in range(d)]
        return Rows(n, range(d), readers, named=False)
    return Rows(n, range(d), _floats(array), named=False)


def _as_array(X: Any) -> NDArray[Any]:
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


def _fill_masked(X: Any) -> NDArray[Any]:
    """Turn what a masked array hides into missing values."""
    missing: Any = None
    if X.dtype.kind in "biuf":
        missing = NAN
    elif X.dtype.kind in "mM":
        missing = np.array("NaT", X.dtype)
    return np.asarray(np.where(X.mask, missing, X.data))


def _floats(array: NDArray[Any]) -> FloatArray:
    """Numbers, booleans or times of any shape as floats."""
    if array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # what is too large for float64 is refused as infinite later on
            return array.astype(np.float64, copy=False)
    if array.dtype.kind in "mM":
        return _seconds(array)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: X is complex. Pass its real and imaginary parts as columns.")
    raise TypeError(
        f"X has dtype {array.dtype}, expected numbers, text, booleans or times. Convert it with X.astype(...), "
        "or pass a frame."
    )


def _seconds(times: NDArray[Any]) -> FloatArray:
    """Datetimes (since 1970) or timedeltas of any shape and unit in seconds."""
    unit, step = np.datetime_data(times.dtype)
    if unit not in TICKS_PER_SECOND or step != 1:
        unit = "ns" if unit in ("ms", "us", "ns", "ps", "fs", "as") else "s"
    times = times.astype(f"{times.dtype.kind}8[{unit}]")
    ticks = TICKS_PER_SECOND[unit]
    # whole seconds apart from the rest, so that the same instant is the same float in every unit
    whole, rest = np.divmod(times.astype(np.int64), ticks)
    return np.where(np.isnat(times), NAN, whole + rest / ticks)


def _read_objects(values: list[object], name: Hashable) -> _Column:
    """Read a column of Python objects."""
    if {type(value) for value in values} <= {float, type(None)}:
        return np.array(values, dtype=np.float64)
    plain = [read_value(value, name, row) for row, value in enumerate(values)]
    first_text = next((row for row, value in enumerate(plain) if isinstance(value, str)), None)
    if first_text is None:
        return np.array(plain, dtype=np.float64)
    first_number = next((row for row, value in enumerate(plain) if isinstance(value, float) and value == value), None)
    if first_number is not None:
        row = max(first_text, first_number)
        raise kind_differs(name, "category" if row == first_text else "number", plain[row], row)
    levels = list(dict.fromkeys(value for value in plain if isinstance(value, str)))
    codes = {level: code for code, level in enumerate(levels)}
    return Texts(np.array([codes[value] if isinstance(value, str) else -1 for value in plain]), levels)


def read_value(value: Any, name: Hashable, row: int | None = None) -> float | str:
    """One Python object as a number (NaN if missing) or as text."""
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)  # plain text even of a subclass such as NumPy's, or an Enum
    if value is None or type(value).__name__ == "NAType":  # the latter is pandas.NA
        return NAN
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return float(_seconds(np.asarray(value)))
    if isinstance(value, (date, time, timedelta)):
        return _seconds_of(value)
    if isinstance(value, (int, np.integer, np.bool_, Decimal, Real)):
        try:
            return float(value)
        except OverflowError:  # a whole number too large for float64
            return math.inf
    if isinstance(value, Complex):
        raise ValueError(
            f"Complex data not supported: {cell(name, value, row)}. Pass its real and imaginary parts as columns."
        )
    raise TypeError(
        f"{cell(name, value, row)}: argument must be a string or a number, not a {type(value).__name__}. "
        "Spread it over columns of these, or leave it out."
    )


def _seconds_of(value: date | time | timedelta) -> float:
    """One time in seconds, to the same float that :func:`_seconds` gives for it."""
    if value != value:  # pandas.NaT passes for a datetime
        return NAN
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
    """Complain of a number among text, or of text among numbers."""
    found, so_far = ("text", "numbers") if kind == "category" else ("a number", "text")
    return ValueError(
        f"{cell(name, value, row)}, {found}, but it held {so_far} so far. "
        "Convert it before, or give the new kind a new column name."
    )


def _no_columns(n_rows: int) -> ValueError:
    return ValueError(
        f"Found array with 0 feature(s) (shape=({n_rows}, 0)) while a minimum of 1 is required. "
        "Pass at least one column."
    )


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
