"""Rows of many keys: a chunk split by key on the driver's side, and read once for all keys on the worker's.

To :func:`split` flow tables, frames and lists of dicts with a key in every row; out flow the rows without it, and whose
row is whose. To a worker they go as one :class:`Batch`, one key's rows after the other's. Its columns are read once,
and every key's model gets its rows as its own encoder would have them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamboost._types import FloatArray, IntArray
from streamboost.cluster.hashing import plain_key, token_of, workers_of
from streamboost.features.dates import spread
from streamboost.features.encoder import Encoded, Encoder
from streamboost.features.reading import Dates, Distinct, distinct, read

Rows = Any  # pyarrow.Table, or list of dicts


class Split(NamedTuple):
    """A chunk by key."""

    rows: Rows  # without the key
    tokens: list[bytes]  # of the keys, in the order of their first rows
    codes: IntArray  # (n,), for each row the position of its key in tokens


def split(X: Any, key: str) -> Split:
    """Take the key out of every row; a ValueError says which row has none.

    Examples
    --------
    >>> rows, tokens, codes = split([{"store": 7, "x": 1.0}, {"store": "7", "x": 2.0}, {"store": 7, "x": 3.0}], "store")
    >>> tokens, codes.tolist(), rows[0]
    ([b'i7', b's7'], [0, 1, 0], {'x': 1.0})
    """
    if isinstance(X, Mapping):
        X = [X]
    if isinstance(X, (list, tuple)) and all(isinstance(row, Mapping) for row in X):
        rows = [{name: value for name, value in row.items() if name != key} for row in X]
        return Split(rows, *_by_value([row.get(key) for row in X], key))
    pandas = sys.modules.get("pandas")  # whoever holds a pandas frame has imported pandas already
    if pandas is not None and isinstance(X, pandas.DataFrame):
        _check_key(key, list(X.columns))
        found = _by_value(X[key].tolist(), key)
        return Split(_as_table(X.drop(columns=[key])), *found)
    if not (hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")):
        raise TypeError(
            f"X is a {type(X).__name__}, expected a frame, an Arrow table or a list of dicts, as the key {key!r} has a "
            "name. Put arrays into a frame with a column for the key."
        )
    table = pa.table(X)
    _check_key(key, table.column_names)
    return Split(table.drop_columns([key]), *_by_level(table[key], key))


def take(rows: Rows, places: IntArray) -> Rows:
    """Some of the rows, in the given order."""
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


class Part(NamedTuple):
    """What one worker gets of a chunk, one key's rows after the other's."""

    worker: int
    places: IntArray  # (n,), of its rows in the chunk
    rows: Rows
    tokens: list[bytes]
    sizes: IntArray


def parts_of(chunk: Split, n_workers: int) -> list[Part]:
    """A chunk by worker: for each the rows of its keys, one key's after the other's, in the order they came."""
    workers = workers_of(chunk.tokens, n_workers)
    order = np.lexsort((chunk.codes, workers[chunk.codes]))
    codes = chunk.codes[order]
    firsts = np.flatnonzero(np.diff(codes, prepend=-1))  # where another key begins
    sizes = np.diff(firsts, append=len(codes))
    owners = workers[codes[firsts]]
    ends = np.append(firsts, len(codes))
    parts = []
    borders = [*np.flatnonzero(np.diff(owners, prepend=-1)).tolist(), len(owners)]  # where another worker's keys begin
    for first, last in pairwise(borders):
        places = order[ends[first] : ends[last]]
        tokens = [chunk.tokens[code] for code in codes[firsts[first:last]].tolist()]
        parts.append(Part(int(owners[first]), places, take(chunk.rows, places), tokens, sizes[first:last]))
    return parts


class Batch:
    """Rows of several keys, one key's after the other's; ``sizes`` says how many each key has."""

    def __init__(self, rows: Rows, sizes: IntArray) -> None:
        self.rows = rows
        self.ends = np.cumsum(sizes).tolist()
        self.starts = [0, *self.ends[:-1]]
        self.names: list[Hashable] = []
        self.columns: Sequence[FloatArray | Distinct | Dates] = ()
        if not isinstance(rows, list):
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
        return self.rows[start:stop] if isinstance(self.rows, list) else self.rows.slice(start, stop - start)

    def encode(self, i: int, encoder: Encoder, *, known_only: bool) -> Encoded | None:
        """The rows of the i-th key as a model's encoder would encode them, if nothing about them is new; else None."""
        start, stop = self.starts[i], self.ends[i]
        if isinstance(self.rows, list):
            is_single = stop - start == 1 and encoder.n_features > 0
            return encoder.encode_one(self.rows[start], known_only=known_only) if is_single else None
        if not self.is_finite or encoder.names != self.names:
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


def first_refusal(parts: list[Part], refusals: Sequence[tuple[int, str] | None]) -> ValueError:
    """Of what workers refuse, by rows of their parts, the first by the rows of the chunk."""
    row, reason = min(
        (int(part.places[refused[0]]), refused[1])
        for part, refused in zip(parts, refusals, strict=True)
        if refused is not None
    )
    return ValueError(f"row {row}: {reason} Nothing was changed.")
