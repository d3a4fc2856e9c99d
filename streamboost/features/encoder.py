"""Rows of any kind to float arrays, learned as they flow.

In flow rows, as :mod:`streamboost.features.reading` reads them; out flow float64 arrays (n, d), C-contiguous, sharing
no memory with what came in. What is missing is NaN. Text becomes codes 0, 1, 2, ... in order of first appearance. A
date becomes its seconds since 1970 and, with ``date_parts``, beside them what a calendar says of it.

:class:`Encoder` knows names, kinds and categories. It never changes: ``encode`` returns, beside the rows, the encoder
that knows what was new in them, so that an error changes nothing, and predicting never does.
"""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import itemgetter
from reprlib import repr as brief
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from streamboost._types import FloatArray, IntArray
from streamboost.errors import refused
from streamboost.features.dates import PARTS, is_date_value, owners_of, places_of, seconds_of_texts, spread, width_of
from streamboost.features.numeric_text import MANY_LEVELS, NumericText, looks_numeric
from streamboost.features.reading import (
    Dates,
    Dialect,
    Distinct,
    Kind,
    Rows,
    cell,
    in_order,
    kind_differs,
    no_date,
    read,
    read_date,
    read_value,
)
from streamboost.features.sparse_rows import SparseRows, is_sparse

NAN, LARGEST = math.nan, sys.float_info.max
PLAIN_NUMBERS = frozenset({float, int, bool, np.float64})
ARROW_NUMBERS = {pa.float64(), pa.float32(), pa.int64(), pa.int32(), pa.int16(), pa.int8()}


class Encoded(NamedTuple):
    """Rows as floats, and the encoder that knows them: the same object if nothing was new."""

    X: FloatArray | SparseRows  # (n, width)
    encoder: Encoder


class _Index(NamedTuple):
    """What a single row is looked up in; it follows from an encoder's names, kinds and categories."""

    positions: dict[Hashable, int]
    numbers: dict[Hashable, int]  # the positions of columns of numbers alone
    texts: dict[Hashable, tuple[int, dict[str, int]]]  # a column's position, and its categories
    dates: dict[Hashable, int]
    pick: Callable[[Any], Any] | None  # all values of a dict in the order of the columns, if all are known
    is_numeric: bool  # whether all columns hold numbers, and a bare array has them in their order


class Encoder:
    """Turn rows of any kind into float64 arrays, keeping columns and categories in place as rows flow by.

    Bare arrays have a fixed width, and so have frames whose columns nobody named (pandas calls them 0, 1, 2, ...).
    Other frames, in scikit-learn's dialect (``dialect="array"``), must repeat the names of the first one in the same
    order, unless ``new_columns="grow"``. In River's dialect (``dialect="dict"``), and for dict rows always, columns
    are matched by name, new ones are appended and absent ones are missing; those that one row brings are appended in
    the order of their names, as a dict has no order that matters.

    Parameters
    ----------
    new_columns : {"error", "grow"}, default="error"
        What a frame with other names than the first one means in scikit-learn's dialect.
    max_categories : int, default=8192
        How many levels of a text column get a code of their own; all later ones share the code
        ``max_categories``, so memory stays bounded.
    date_parts : bool, default=False
        Whether a date brings, besides its seconds since 1970, its hour (with the fraction), weekday, day of month and
        day of year in UTC, each a column of the encoded rows. They follow all columns of the row that first has a
        date there. A date among numbers stays a number, and a number among dates is seconds.

    Attributes
    ----------
    names : list of hashable, or None
        The columns' names, strings mostly; None when only bare arrays were seen.
    n_features : int
        How many columns there are; 0 until the first rows.
    width : int
        How many columns encoded rows have: more than ``n_features`` if there are parts of dates.
    places : array of int
        Where in the encoded rows each column stands; of a date, its seconds.
    owners : array of int
        The column that each column of the encoded rows stands for.
    kinds : list of {"number", "category", "date", None}
        What each column holds; None while it has only been missing.
    categories : dict of dict
        For each text column, under its position as a string, the code of each level.
    dates : dict of int
        For each date column with parts, under its position as a string, where these begin in the encoded rows.
    categorical : tuple of int
        Where in the encoded rows the text columns stand.

    Examples
    --------
    >>> encoder = Encoder()
    >>> rows = encoder.encode([{"price": 2.5, "color": "red"}, {"price": None, "color": "blue"}])
    >>> rows.X
    array([[0. , 2.5],
           [1. , nan]])
    >>> rows.encoder.encode_one({"stock": 3, "color": "blue"}).X
    array([[ 1., nan,  3.]])
    """

    # The index follows from the rest: a slot keeps it out of __dict__, which holds the state and nothing else.
    __slots__ = ("__dict__", "_index")
    date_parts = False  # as encoders of older files have it, which have no own
    dates: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self, *, new_columns: Literal["error", "grow"] = "error", max_categories: int = 8192, date_parts: bool = False
    ) -> None:
        if new_columns not in ("error", "grow"):
            raise refused("new_columns", new_columns, "'error' or 'grow'. If unsure, leave it out.")
        if not isinstance(max_categories, (int, np.integer)) or max_categories < 1:
            expected = "a whole number of at least 1. If unsure, leave it out: the default is 8192."
            raise refused("max_categories", max_categories, expected)
        if not isinstance(date_parts, (bool, np.bool_)):
            raise refused("date_parts", date_parts, "True or False. If unsure, leave it out.")
        self.new_columns = new_columns
        self.max_categories = int(max_categories)
        self.date_parts = bool(date_parts)
        self.names: list[Hashable] | None = None
        self.n_features = 0
        self.kinds: list[Kind | None] = []
        self.categories: dict[str, dict[str, int]] = {}
        self.dates = {}
        self._index: _Index | None = None

    @property
    def categorical(self) -> tuple[int, ...]:
        """Where in the encoded rows the columns stand that hold text."""
        return tuple(j for j, kind in zip(self.places.tolist(), self.kinds, strict=True) if kind == "category")

    @property
    def width(self) -> int:
        """How many columns encoded rows have."""
        return width_of(self.n_features, self.dates)

    @property
    def places(self) -> IntArray:
        """Where in the encoded rows each column stands, (n_features,)."""
        return places_of(self.n_features, self.dates)

    @property
    def owners(self) -> IntArray:
        """The column that each column of the encoded rows stands for, (width,)."""
        return owners_of(self.n_features, self.dates)

    def name_at(self, place: int) -> Hashable:
        """The name of the column at a place in the encoded rows, or its number if it has none."""
        j = int(self.owners[place])
        return j if self.names is None else self.names[j]

    def encode(
        self, X: Any, *, dialect: Dialect = "array", known_only: bool = False, owner: str = "the model"
    ) -> Encoded:
        """Encode a chunk of rows without changing the encoder.

        Parameters
        ----------
        X : array-like, sparse matrix, frame, dict or list of dicts
            The rows; a single dict is a single row. Those of a sparse matrix come out as :class:`SparseRows`.
        dialect : {"array", "dict"}, default="array"
            How a frame's columns are matched, see :class:`Encoder`.
        known_only : bool, default=False
            For predicting: an unknown level of a text column is missing (or, once ``max_categories`` are known,
            one of the others), and new columns matched by name are left out.
        owner : str
            Who is expecting these rows, for error messages.
        """
        if dialect not in ("array", "dict"):
            raise ValueError(f"dialect is {dialect!r}, expected 'array' or 'dict'. If unsure, leave it out.")
        if (plain := self._known_numbers(X)) is not None:
            return Encoded(plain, self)
        draft = _Draft(self, known_only=known_only)
        if is_sparse(X):  # before dicts: one sparse format is a dict too
            return self._encode_sparse(SparseRows(X, copy=not known_only), draft, owner)
        rows = read(X, dialect)
        encoded = draft.fill(rows, self._match(rows, draft, owner))
        if (infinite := np.isinf(encoded)).any():
            i, j = np.argwhere(infinite)[0]
            raise _infinite(draft.name(j), float(encoded[i, j]), int(i))
        grown = draft.grown()
        return Encoded(spread(encoded, grown.dates), grown)

    def encode_one(self, x: Mapping[Any, object], *, known_only: bool = False) -> Encoded:
        """Encode a single dict row, quickly, without changing the encoder.

        An empty dict is a row with everything missing: one missing value as long as no column is known.
        """
        if not hasattr(x, "items"):
            raise TypeError(f"x is {brief(x)}, expected a dict of one row. For many rows use encode.")
        index = getattr(self, "_index", None) or self._lookup()
        # most rows of a stream miss nothing; of a plain dict only, as to look something up changes a defaultdict
        if index.pick is not None and type(x) is dict and len(x) == self.n_features:
            try:
                values = index.pick(x)
                if index.texts:
                    values = [*values]
                    for j, levels in index.texts.values():
                        values[j] = levels[values[j]]
                if PLAIN_NUMBERS.issuperset(map(type, values)) and True not in map(math.isinf, values):
                    return Encoded(np.array([values], dtype=np.float64), self)  # (1, d)
            except (KeyError, TypeError, OverflowError):
                pass
        row: list[float] = [NAN] * (self.n_features or 1)
        rest = []
        for name, value in x.items():
            if (j := index.numbers.get(name)) is not None:
                if isinstance(value, (float, int)) and -LARGEST <= value <= LARGEST:
                    row[j] = value
                elif value is not None:
                    row[j] = _number(name, value)
            elif (j := index.dates.get(name)) is not None:
                if value is not None:
                    row[j] = _number(name, value, is_date=True)
            elif (text := index.texts.get(name)) is None:
                rest.append((name, value))
            elif not isinstance(value, str):
                if value is not None and (plain := _number(name, value)) == plain:
                    raise kind_differs(name, "date" if is_date_value(value) else "number", plain, None)
            elif (code := self._code(text[1], value, known_only)) is None:
                rest.append((name, value))
            else:
                row[text[0]] = code
        if not rest:
            return Encoded(spread(np.array([row], dtype=np.float64), self.dates), self)  # (1, width)
        return self._encode_rest(row, rest, known_only=known_only)

    def array_specs(self) -> dict[str, Any]:
        """Refuse names and kinds that are not of the same columns; there are no arrays."""
        n_names = self.n_features if self.names is None else len(self.names)
        if not self.n_features == len(self.kinds) == n_names:
            told = f"it knows {self.n_features} columns, {n_names} names and {len(self.kinds)} kinds"
            raise ValueError(f"{told}, expected as many of each")
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__  # without the index

    def _lookup(self) -> _Index:
        """Make the index of names."""
        # the columns of bare arrays go by 0, 1, 2, ..., as River names them
        names: Sequence[Hashable] = range(self.n_features) if self.names is None else self.names
        places = list(zip(names, range(self.n_features), self.kinds, strict=True))
        numbers = {name: j for name, j, kind in places if kind == "number"}
        texts = {name: (j, self.categories[str(j)]) for name, j, kind in places if kind == "category"}
        dates = {name: j for name, j, kind in places if kind == "date"}
        # of a single name, itemgetter makes no tuple
        pick = itemgetter(*names) if len(numbers) + len(texts) == len(names) > 1 else None
        positions = {name: j for name, j, _ in places}
        is_ordered = self.names is None or positions.keys() != set(range(self.n_features))
        self._index = _Index(positions, numbers, texts, dates, pick, is_ordered and len(numbers) == len(names) > 0)
        return self._index

    def _known_numbers(self, X: Any) -> FloatArray | None:
        """Return a copy of an array or Arrow table of numbers in the known columns; None if it has to be looked at."""
        if not (getattr(self, "_index", None) or self._lookup()).is_numeric:
            return None
        rows = None
        if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.shape[1] == self.n_features:
            rows = np.array(X, order="C")
        elif type(X) is pa.Table and X.column_names == self.names and ARROW_NUMBERS.issuperset(X.schema.types):
            rows = np.empty((len(X), self.n_features))
            for j, column in enumerate(X.columns):
                rows[:, j] = column.to_numpy()
        return None if rows is None or np.isinf(rows).any() else rows

    def _code(self, levels: dict[str, int], level: str, known_only: bool) -> float | None:
        """The code of a level of a known column; None for a new one that is to be learned."""
        code = levels.get(level)
        if code is None and len(levels) >= self.max_categories:
            return self.max_categories
        return NAN if code is None and known_only else code

    def _encode_rest(self, row: list[float], rest: list[tuple[Hashable, object]], *, known_only: bool) -> Encoded:
        """Add to a row values of new columns, of columns only ever missing, and new categories."""
        draft = _Draft(self, known_only=known_only)
        for name in in_order(name for name, _ in rest if name not in draft.known):
            draft.place(name)
        for name, value in rest:
            if (place := draft.place(name)) is None:
                continue
            plain = read_value(value, name)
            if isinstance(plain, str):
                draft.claim(place, "category", plain)
                plain = float(draft.codes(place, Distinct(np.zeros(1, dtype=np.int64), [plain]))[0])
            elif math.isinf(plain):
                raise _infinite(name, plain)
            elif plain == plain:
                draft.claim(place, "date" if is_date_value(value) else "number", plain)
            row += [NAN] * (draft.n_features - len(row))
            row[place] = plain
        grown = draft.grown()
        return Encoded(spread(np.array([row], dtype=np.float64), grown.dates), grown)  # (1, width)

    def _encode_sparse(self, X: SparseRows, draft: _Draft, owner: str) -> Encoded:
        """Check sparse rows without making all of them dense at once; they stay sparse."""
        n, d = X.shape
        rows = Rows(n, range(d), np.empty((0, d)), named=False)
        places = [place for place in self._match(rows, draft, owner) if place is not None]
        if places != list(range(d)):  # whole numbers for names, in another order
            X = X.reordered(np.argsort(places))
        if (found := X.infinite) is not None:
            row, j, value = found
            raise _infinite(draft.name(j), value, row)
        for where, block in X.blocks():
            for j in [j for j in range(d) if draft.kind(j) != "number"]:
                draft.numbers(j, block[:, j], first_row=where.start)
        if self.dates:  # of which none is here: a number would have been refused
            return Encoded(spread(np.asarray(X), self.dates), draft.grown())
        return Encoded(X, draft.grown())

    @property
    def _is_unnamed(self) -> bool:
        return self.names is None and self.n_features > 0

    def _expected(self) -> str:
        """Name the columns known so far, for error messages."""
        if self.names is None:
            return f"the {self.n_features} columns it learned from" if self.n_features else ""
        shown = ", ".join(map(repr, self.names[:10])) + (", ..." if self.n_features > 10 else "")
        return f"the {self.n_features} columns it learned from: {shown}"

    def _match(self, rows: Rows, draft: _Draft, owner: str) -> list[int | None]:
        """Say where in the encoded rows each column goes; None for a column left out."""
        if not rows.names and not rows.by_name:
            found = f"Found array with 0 feature(s) (shape=({rows.n_rows}, 0)) while a minimum of 1 is required"
            raise ValueError(f"{found}. Pass {self._expected() or 'at least one column'}.")
        if rows.by_name or (rows.named and self.new_columns == "grow" and not self._is_unnamed):
            places = [draft.place(name) for name in rows.names]
            draft.since = dict(zip(places, rows.since, strict=False))
            return places
        width, positions = len(rows.names), (getattr(self, "_index", None) or self._lookup()).positions
        if width == self.n_features and (not rows.named or self.names is None) and positions.keys() == set(rows.names):
            return [positions[name] for name in rows.names]  # whole numbers: the names of columns without any
        if rows.named and self.names is not None and list(rows.names) != self.names:
            raise _names_differ(self.names, rows.names)
        if self.n_features == 0 and not draft.known_only:
            draft.n_features = width
        elif width != self.n_features:
            raise ValueError(
                f"X has {width} features, but {owner} is expecting {self.n_features} features as input. Pass "
                f"{self._expected() or 'dict rows'}; only named columns may come and go, with new_columns='grow'."
            )
        if rows.named:
            draft.names = list(rows.names)
        return list(range(width))


class _Draft:
    """What the rows at hand would change, kept apart from the encoder."""

    def __init__(self, encoder: Encoder, *, known_only: bool) -> None:
        self.encoder = encoder
        self.known_only = known_only
        self.n_features = encoder.n_features
        self.known = (getattr(encoder, "_index", None) or encoder._lookup()).positions
        self.names: list[Hashable] | None = None  # given by a frame to columns that had none
        self.added: dict[Hashable, int] = {}
        self.kinds: dict[int, Kind] = {}
        self.levels: dict[int, dict[str, int]] = {}
        self.since: dict[int | None, int] = {}  # the row that brings a column, if not the first
        self.dated: dict[int, int] = {}  # the row that first has a date in a column
        self.numeric_texts: list[Hashable] = []

    def place(self, name: Hashable) -> int | None:
        """Find the column called ``name``, or make room for it; None if it is to be left out."""
        if (j := self.known.get(name, self.added.get(name))) is not None:
            return j
        if self.encoder._is_unnamed and not isinstance(name, (int, np.integer)):
            raise ValueError(
                f"column {name!r} cannot be matched by name: the {self.encoder.n_features} columns seen so far came "
                "as bare arrays. Learn from frames or dicts from the start, or call the columns 0, 1, 2, ..."
            )
        if self.known_only:
            return None
        self.added[name] = self.n_features
        self.n_features += 1
        return self.added[name]

    def name(self, j: int) -> Hashable:
        known = self.names or [*(self.encoder.names or range(self.encoder.n_features)), *self.added]
        return known[j] if j < len(known) else int(j)

    def kind(self, j: int) -> Kind | None:
        known = self.encoder.kinds
        return self.kinds.get(j) or (known[j] if j < len(known) else None)

    def claim(self, j: int, kind: Kind, value: object, row: int | None = None) -> None:
        """Note that column ``j`` holds values of this kind, or refuse if it held another; dates are numbers, too."""
        known = self.kind(j)
        if known is None:
            self.kinds[j] = kind
            if kind == "date" and self.encoder.date_parts and not self.known_only:
                self.dated[j] = row or 0
        elif known != kind and "category" in (known, kind):
            raise kind_differs(self.name(j), kind, value, row)

    def fill(self, rows: Rows, places: Sequence[int | None]) -> FloatArray:
        """The encoded rows, (n, d)."""
        columns = rows.columns
        if isinstance(columns, np.ndarray) and list(places) == list(range(self.n_features)):
            encoded = np.array(columns, dtype=np.float64, order="C")
            if self.encoder.kinds.count("number") < self.n_features:
                for j, column in enumerate(encoded.T):
                    self.numbers(j, column)
            return encoded
        encoded = np.full((rows.n_rows, self.n_features or 1), NAN)
        for i, place in enumerate(places):
            if place is not None:
                encoded[:, place] = self.column(place, columns[:, i] if isinstance(columns, np.ndarray) else columns[i])
        return encoded

    def column(self, j: int, column: Any) -> FloatArray:
        if isinstance(column, np.ndarray):
            return self.numbers(j, column)
        known = self.kind(j)
        read = column(is_date=None if known is None else known == "date")
        if isinstance(read, Distinct):
            return self.moments(j, read) if known == "date" else self.codes(j, read)
        return self.numbers(j, read.seconds, "date") if isinstance(read, Dates) else self.numbers(j, read)

    def moments(self, j: int, texts: Distinct) -> FloatArray:
        """Dates that are written as text."""
        seconds = seconds_of_texts(texts.levels)
        for code in np.flatnonzero(np.isnan(seconds))[:1].tolist():
            raise no_date(self.name(j), texts.levels[code], int((texts.codes == code).argmax()))
        return np.append(seconds, NAN)[texts.codes]  # the last entry, NaN, answers for code -1

    def numbers(self, j: int, column: FloatArray, kind: Kind = "number", first_row: int = 0) -> FloatArray:
        if self.kind(j) != kind:
            for part in (column[:1], column):  # mostly the first row tells
                present = ~np.isnan(part)
                if present.any():
                    row = int(present.argmax())
                    self.claim(j, kind, float(column[row]), first_row + row)
                    break
        return column

    def codes(self, j: int, texts: Distinct) -> FloatArray:
        known, bound = self.encoder.categories.get(str(j), {}), self.encoder.max_categories
        if texts.levels:
            self.claim(j, "category", texts.levels[0], int((texts.codes == 0).argmax()))
        codes = dict(known)
        if not self.known_only:
            fresh = [level for level in texts.levels if level not in known]
            self.levels[j] = dict(zip(fresh, range(len(known), bound), strict=False))  # as long as there is room
            codes.update(self.levels[j])
            if len(known) < MANY_LEVELS <= len(codes) and not texts.is_categorical and looks_numeric(codes):
                self.numeric_texts.append(self.name(j))
        others = NAN if len(codes) < bound else bound
        table = np.array([*(codes.get(level, others) for level in texts.levels), NAN])
        return table[texts.codes]  # the last entry, NaN, answers for code -1

    def grown(self) -> Encoder:
        """Return the encoder that knows what these rows brought; the same one if that is nothing."""
        encoder = self.encoder
        added = self.n_features - encoder.n_features
        renamed = self.names is not None and self.names != encoder.names
        levels = {j: new for j, new in self.levels.items() if new}
        if self.known_only or not (added or renamed or self.kinds or levels):
            return encoder
        if self.numeric_texts and not any(map(looks_numeric, encoder.categories.values())):  # once, of the first
            warnings.warn(NumericText(self.numeric_texts), stacklevel=2)
        grown = copy.copy(encoder)  # without the index
        grown.n_features = self.n_features
        if self.added:
            grown.names = [*(encoder.names or range(encoder.n_features)), *self.added]
        elif self.names is not None:
            grown.names = self.names
        grown.kinds = [self.kinds.get(j, kind) for j, kind in enumerate([*encoder.kinds, *[None] * added])]
        known = encoder.categories
        grown.categories = known | {str(j): known.get(str(j), {}) | new for j, new in levels.items()}
        if self.dated:
            grown.dates = self.dates()
        return grown

    def dates(self) -> dict[str, int]:
        """Where the parts of dates begin, in the order in which rows one by one would have brought them."""
        dates, width = dict(self.encoder.dates), self.encoder.width
        added = [(self.since.get(j, 0), 0, j) for j in range(self.encoder.n_features, self.n_features)]
        for _, is_date, j in sorted([*added, *((row, 1, j) for j, row in self.dated.items())]):
            if is_date:
                dates[str(j)] = width
            width += len(PARTS) if is_date else 1
        return dates


def _number(name: Hashable, value: object, *, is_date: bool = False) -> float:
    """One value of a column of numbers, or of dates."""
    plain = read_value(value, name)
    if is_date:
        plain = read_date(plain, name)
    if isinstance(plain, str):
        raise kind_differs(name, "category", plain, None)
    if math.isinf(plain):
        raise _infinite(name, plain)
    return plain


def _infinite(name: Hashable, value: object, row: int | None = None) -> ValueError:
    return ValueError(
        f"{cell(name, value, row)}, expected no infinity and nothing too large for float64. "
        "Replace it with NaN, which means missing."
    )


def _names_differ(known: Sequence[Hashable], given: Sequence[Hashable]) -> ValueError:
    """Say in scikit-learn's words, which its own checks look for, how the names differ."""
    lines = ["The feature names should match those that were passed during fit."]
    unseen, missing = set(given) - set(known), set(known) - set(given)
    for when, names in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
        if names:
            shown = [f"- {name}" for name in sorted(map(str, names))[:5]]
            lines += [f"Feature names {when}:", *shown, *(["- ..."] if len(names) > 5 else [])]
    if not unseen and not missing:
        lines.append("Feature names must be in the same order as they were in fit.")
    return ValueError("\n".join([*lines, "To match columns by name instead, set new_columns='grow'."]))
