"""Rows of many keys: a chunk split by key, and read once for all of them.

To :func:`split` flow tables, frames, arrays and lists of dicts with a key for every row; out flow the rows without it,
one key's after the other's. Of these a :class:`Batch` reads each column once, and every key's model gets its rows as
its own encoder would have them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamboost._types import FloatArray, IntArray
from streamboost.features.dates import spread
from streamboost.features.encoder import Encoded, Encoder
from streamboost.features.reading import Dates, Distinct, distinct, read
from streamboost.keyed.keys import plain_key, token_of

Rows = Any  # pyarrow.Table, array, or list of dicts


class Split(NamedTuple):
    """A chunk by key: one key's rows after the other's, each key's in the order they came."""

    rows: Rows  # without the key
    tokens: list[bytes]  # of the keys, in the order of their first rows
    sizes: IntArray  # how many rows each has
    order: IntArray  # (n,), the places of these rows in the chunk


def split(X: Any, name: str | None, keys: Any = None) -> Split:
    """Divide a chunk by key: the values of a column of that name, or the keys given beside the rows.

    A ValueError says which row has no key.

    Examples
    --------
    >>> found = split([{"store": 7, "x": 1.0}, {"store": "7", "x": 2.0}, {"store": 7, "x": 3.0}], "store")
    >>> found.tokens, found.sizes.tolist(), found.order.tolist(), found.rows[1]
    ([b'i7', b's7'], [2, 1], [0, 2, 1], {'x': 3.0})
    """
    rows, tokens, codes = _without_key(X, name) if keys is None else _beside_key(X, name, keys)
    order = np.argsort(codes, kind="stable")
    if len(tokens) > 1:
        rows = take(rows, order)
    return Split(rows, tokens, np.bincount(codes, minlength=len(tokens)), order)


def _beside_key(X: Any, name: str | None, keys: Any) -> tuple[Rows, list[bytes], IntArray]:
    """Rows whose keys were given by themselves."""
    if isinstance(X, Mapping):
        X, keys = [X], [keys]
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(X, pandas.DataFrame):
        X = _as_table(X)
    elif hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__"):
        X = pa.table(X)
    elif not isinstance(X, list):
        X = np.asarray(X)
    n, keys = X.num_rows if isinstance(X, pa.Table) else len(X), [keys] if isinstance(keys, (str, int)) else keys
    tokens, codes = _by_value(keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys), name or "key")
    if len(codes) != n:
        raise ValueError(f"key has {len(codes)} values and X has {n} rows. Pass one key a row.")
    return X, tokens, codes


def _without_key(X: Any, key: str | None) -> tuple[Rows, list[bytes], IntArray]:
    """Rows that hold their key in a column."""
    if key is None:
        raise ValueError("there is no key, expected one for each row: pass key=, here or to KeyedModel.")
    if isinstance(X, Mapping):
        X = [X]
    if isinstance(X, (list, tuple)) and all(isinstance(row, Mapping) for row in X):
        rows = [{name: value for name, value in row.items() if name != key} for row in X]
        return rows, *_by_value([row.get(key) for row in X], key)
    pandas = sys.modules.get("pandas")  # whoever holds a pandas frame has imported pandas already
    if pandas is not None and isinstance(X, pandas.DataFrame):
        _check_key(key, list(X.columns))
        found = _by_value(X[key].tolist(), key)
        return _as_table(X.drop(columns=[key])), *found
    if not (hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")):
        raise TypeError(
            f"X is a {type(X).__name__}, expected a frame, an Arrow table or a list of dicts, as the key {key!r} has a "
            "name. Put arrays into a frame with a column for the key, or pass the keys beside them, key=."
        )
    table = pa.table(X)
    _check_key(key, table.column_names)
    return table.drop_columns([key]), *_by_level(table[key], key)


def take(rows: Rows, places: IntArray) -> Rows:
    """Some of the rows, in the given order."""
    if isinstance(rows, np.ndarray):
        return rows[places]
    return [rows[i] for i in places.tolist()] if isinstance(rows, list) else rows.take(pa.array(places))


def _check_key(key: str, columns: list[Any]) -> None:
    if columns.count(key) > 1:
        raise ValueError(
            f"there are {columns.count(key)} columns called {key!r}, expected one with the key. Rename one."
        )
    if key not in columns:
        raise ValueError(f"there is no key column {key!r}, expected one among {columns}. Is it spelt right?")


def _as_table(frame: Any) -> Any:
    """A pandas frame as it travels."""
    others = [name for name in frame.columns if not isinstance(name, str)]
    if others:
        raise TypeError(
            f"a column of X is called {others[0]!r}, expected text. Use X.columns = X.columns.astype(str), for example."
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException as error:
        raise TypeError(
            f"X is a frame that Arrow cannot read: {error}. Convert the column in question to numbers or text first."
        ) from error


def _by_value(values: list[Any], key: str) -> tuple[list[bytes], IntArray]:
    places: dict[bytes, int] = {}
    codes = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        codes[row] = places.setdefault(_token(value, key, lambda row=row: row), len(places))  # type: ignore[misc]
    return list(places), codes


def _by_level(column: Any, key: str) -> tuple[list[bytes], IntArray]:
    """The same of an Arrow column, whose distinct values alone are looked at."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    try:
        found = distinct(column)
    except pa.ArrowException as error:
        raise TypeError(
            f"the key column {key!r} holds {column.type}, expected text, whole numbers or booleans."
        ) from error
    if (found.codes < 0).any():
        raise _no_key(key, int((found.codes < 0).argmax()), None)
    places: dict[bytes, int] = {}
    table = np.empty(len(found.levels), np.int64)
    for code, level in enumerate(found.levels):
        token = _token(level, key, lambda code=code: int((found.codes == code).argmax()))  # type: ignore[misc]
        table[code] = places.setdefault(token, len(places))
    return list(places), table[found.codes]


def _token(value: Any, key: str, row_of: Callable[[], int]) -> bytes:
    """The token of a key; its row is worked out only if something is wrong with it."""
    try:
        plain = plain_key(value)
    except TypeError as error:
        raise ValueError(f"the key {key!r} of row {row_of()} is no key: {error} Nothing was changed.") from None
    if plain is None:
        raise _no_key(key, row_of(), value)
    return token_of(plain)


def _no_key(key: str, row: int, value: Any) -> ValueError:
    return ValueError(
        f"row {row} has no key: its {key!r} is {value!r}, expected text, a whole number or a boolean. Nothing was "
        "changed. Fill it in, or leave the row out."
    )


class Batch:
    """Rows of several keys, one key's after the other's; ``sizes`` says how many each key has."""

    def __init__(self, rows: Rows, sizes: IntArray) -> None:
        self.rows = rows
        self.ends = np.cumsum(sizes).tolist()
        self.starts = [0, *self.ends[:-1]]
        self.names: list[Hashable] = []
        self.columns: Sequence[FloatArray | Distinct | Dates] = ()
        if isinstance(rows, pa.Table):
            found = read(rows, "array")
            self.names = list(found.names)
            self.columns = [column() for column in found.columns]
        numbers = [column for column in self.columns if isinstance(column, np.ndarray)]
        self.matrix: FloatArray | None = None  # (n, d), if all columns are numbers
        if numbers and len(numbers) == len(self.columns):
            self.matrix = np.column_stack(numbers)
        self.is_finite = not any(np.isinf(column).any() for column in numbers)

    def __len__(self) -> int:
        return len(self.ends)

    def part(self, i: int) -> Rows:
        """The rows of the i-th key."""
        start, stop = self.starts[i], self.ends[i]
        return self.rows.slice(start, stop - start) if isinstance(self.rows, pa.Table) else self.rows[start:stop]

    def encode(self, i: int, encoder: Encoder, *, known_only: bool) -> Encoded | None:
        """The rows of the i-th key as a model's encoder would encode them, if nothing about them is new; else None."""
        start, stop = self.starts[i], self.ends[i]
        if isinstance(self.rows, list):
            is_single = stop - start == 1 and encoder.n_features > 0
            return encoder.encode_one(self.rows[start], known_only=known_only) if is_single else None
        if not isinstance(self.rows, pa.Table) or not self.is_finite or encoder.names != self.names:
            return None
        if self.matrix is not None and encoder.kinds.count("number") == len(self.names):
            return Encoded(np.array(self.matrix[start:stop], order="C"), encoder)
        encoded = np.empty((stop - start, len(self.names)))
        for j, column in enumerate(self.columns):
            values = _known(column, start, stop, encoder, j)
            if values is None:
                return None
            encoded[:, j] = values
        return Encoded(spread(encoded, encoder.dates), encoder)


def _known(column: FloatArray | Distinct | Dates, start: int, stop: int, encoder: Encoder, j: int) -> Any:
    """Some values of a column as an encoder has them; None if it has not seen the like of them."""
    if not isinstance(column, Distinct):
        numbers = column.seconds if isinstance(column, Dates) else column
        return numbers[start:stop] if encoder.kinds[j] in ("number", "date") else None
    if encoder.kinds[j] != "category":
        return None
    known = encoder.categories[str(j)]
    codes = [known.get(column.levels[code]) if code >= 0 else np.nan for code in column.codes[start:stop].tolist()]
    return None if None in codes else codes
