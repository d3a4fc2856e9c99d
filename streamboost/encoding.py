"""Rows of any kind to float arrays, learned as they flow.

In flow rows, as :mod:`streamboost.rows` reads them; out flow float64 arrays (n, d), C-contiguous, sharing no memory
with what came in. What is missing is NaN. Text becomes codes 0, 1, 2, ... in order of first appearance.

:class:`Encoder` remembers names, kinds and categories. It works in two steps, so that an error changes nothing and
predicting never does: ``encode`` only looks, ``commit`` takes in what was new.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any, Literal

import numpy as np

from streamboost.arrays import FloatArray
from streamboost.rows import NAN, Dialect, Kind, Rows, Texts, cell, in_order, kind_differs, read, read_value

LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Changes:
    """What a chunk of rows brought that an encoder has not seen before."""

    names: tuple[Hashable, ...] | None  # of all columns; None: as before
    n_features: int
    kinds: dict[int, Kind]
    levels: dict[int, dict[str, int]]
    version: int  # the encoder these changes were worked out against


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as floats, and what :meth:`Encoder.commit` would take in with them."""

    X: FloatArray  # (n, d)
    changes: Changes | None = None  # None: nothing new


class Encoder:
    """Turn rows of any kind into float64 arrays, keeping columns and categories in place as rows flow by.

    Bare arrays have a fixed width. Frames, in scikit-learn's dialect (``dialect="array"``), must repeat the names
    of the first one in the same order, unless ``new_columns="grow"``. In River's dialect (``dialect="dict"``),
    and for dict rows always, columns are matched by name, new ones are appended and absent ones are missing;
    those that one row brings are appended in the order of their names, as a dict has no order that matters.

    Parameters
    ----------
    new_columns : {"error", "grow"}, default="error"
        What a frame with other names than the first one means in scikit-learn's dialect.
    max_categories : int, default=1024
        How many levels of a text column get a code of their own; all later ones share the code
        ``max_categories``, so memory stays bounded.

    Attributes
    ----------
    names : list of hashable, or None
        The columns' names, strings mostly; None when only bare arrays were seen.
    n_features : int
        How many columns there are; 0 until the first rows.
    kinds : list of {"number", "category", None}
        What each column holds; None while it has only been missing.
    categories : dict of dict
        For each text column, under its position as a string, the code of each level.
    version : int
        How many times :meth:`commit` took something in.

    Examples
    --------
    >>> encoder = Encoder()
    >>> rows = encoder.encode([{"price": 2.5, "color": "red"}, {"price": None, "color": "blue"}])
    >>> rows.X
    array([[0. , 2.5],
           [1. , nan]])
    >>> encoder.commit(rows)
    2
    >>> encoder.encode_one({"stock": 3, "color": "blue"}).X
    array([[ 1., nan,  3.]])
    """

    # The index follows from `names`: a slot keeps it out of __dict__, which holds the state and nothing else.
    __slots__ = ("__dict__", "_index")

    def __init__(self, *, new_columns: Literal["error", "grow"] = "error", max_categories: int = 1024) -> None:
        if new_columns not in ("error", "grow"):
            raise ValueError(f"new_columns is {new_columns!r}, expected 'error' or 'grow'. If unsure, leave it out.")
        if not isinstance(max_categories, (int, np.integer)) or max_categories < 1:
            raise ValueError(
                f"max_categories is {max_categories!r}, expected a whole number of at least 1. "
                "If unsure, leave it out: the default is 1024."
            )
        self.new_columns = new_columns
        self.max_categories = int(max_categories)
        self.names: list[Hashable] | None = None
        self.n_features = 0
        self.kinds: list[Kind | None] = []
        self.categories: dict[str, dict[str, int]] = {}
        self.version = 0
        self._index: tuple[list[Hashable] | None, dict[Hashable, int]] = (None, {})

    def feature_names(self) -> list[str] | None:
        """The columns' names as strings, or None when only bare arrays were seen."""
        return None if self.names is None else [str(name) for name in self.names]

    def encode(
        self, X: Any, *, dialect: Dialect = "array", known_only: bool = False, owner: str = "the model"
    ) -> Encoded:
        """Encode a chunk of rows without changing the encoder.

        Parameters
        ----------
        X : array-like, frame, dict or list of dicts
            The rows; a single dict is a single row.
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
        rows = read(X, dialect)
        draft = _Draft(self, known_only=known_only)
        places = self._match(rows, draft, owner)
        encoded = np.full((rows.n_rows, draft.n_features), NAN)  # (n, d)
        if isinstance(rows.columns, np.ndarray):
            encoded[:, np.array(places)] = rows.columns
            draft.all_numbers(encoded)
        else:
            for j, read_column in zip(places, rows.columns, strict=True):
                if j is not None:
                    column = read_column()
                    encoded[:, j] = draft.codes(j, column) if isinstance(column, Texts) else draft.numbers(j, column)
        infinite = np.isinf(encoded)
        if infinite.any():
            i, j = np.argwhere(infinite)[0]
            raise _infinite(draft.name(j), float(encoded[i, j]), int(i))
        return Encoded(encoded, draft.changes())

    def encode_one(self, x: Mapping[Any, object], *, known_only: bool = False) -> Encoded:
        """Encode a single dict row, quickly, without changing the encoder.

        An empty dict is a row with everything missing: of width 0 as long as no column is known.
        """
        if not hasattr(x, "items"):
            raise TypeError(f"x is {brief(x)}, expected a dict of one row. For many rows use encode.")
        positions, kinds = self._positions, self.kinds
        row: list[float] = [NAN] * self.n_features
        rest = []
        for name, value in x.items():
            j = positions.get(name, -1)
            if j >= 0 and isinstance(value, (float, int)) and -LARGEST <= value <= LARGEST and kinds[j] == "number":
                row[j] = value
            else:
                rest.append((name, value))
        if not rest:
            return Encoded(np.array([row], dtype=np.float64))  # (1, d)
        draft = _Draft(self, known_only=known_only)
        for name in in_order(name for name, _ in rest if name not in positions):
            draft.place(name)
        for name, value in rest:
            place = draft.place(name)
            if place is None:
                continue
            plain = read_value(value, name)
            if isinstance(plain, str):
                draft.claim(place, "category", plain)
                plain = draft.code(place, plain)
            elif math.isinf(plain):
                raise _infinite(name, plain)
            elif plain == plain:
                draft.claim(place, "number", plain)
            row += [NAN] * (draft.n_features - len(row))
            row[place] = plain
        return Encoded(np.array([row], dtype=np.float64), draft.changes())  # (1, d)

    def commit(self, encoded: Encoded) -> int:
        """Take in what ``encoded`` brought, and say how many columns that added (at first, all of them)."""
        changes = encoded.changes
        if changes is None:
            return 0
        if changes.version != self.version:
            raise ValueError(
                f"these rows were encoded at version {changes.version} of the encoder, which is now at version "
                f"{self.version}: other rows were committed since. Encode them again."
            )
        n_added = changes.n_features - self.n_features
        self.n_features = changes.n_features
        if changes.names is not None:
            self.names = list(changes.names)
        self.kinds = [*self.kinds, *[None] * n_added]
        for j, kind in changes.kinds.items():
            self.kinds[j] = kind
        for j, levels in changes.levels.items():
            self.categories.setdefault(str(j), {}).update(levels)
        self.version += 1
        return n_added

    @property
    def _positions(self) -> dict[Hashable, int]:
        """Where each name lives; the columns of bare arrays go by 0, 1, 2, ..., as River names them."""
        names, positions = getattr(self, "_index", (None, {}))
        if names is not self.names or len(positions) != self.n_features:
            known: Sequence[Hashable] = range(self.n_features) if self.names is None else self.names
            positions = {name: j for j, name in enumerate(known)}
            self._index = (self.names, positions)
        return positions

    @property
    def _is_unnamed(self) -> bool:
        return self.names is None and self.n_features > 0

    def _match(self, rows: Rows, draft: _Draft, owner: str) -> list[int | None]:
        """Say where in the encoded rows each column goes; None for a column left out."""
        if rows.by_name or (rows.named and self.new_columns == "grow" and not self._is_unnamed):
            return [draft.place(name) for name in rows.names]
        if rows.named and self.names is not None and list(rows.names) != self.names:
            raise _names_differ(self.names, rows.names)
        width = len(rows.names)
        if self.n_features == 0 and not draft.known_only:
            draft.n_features = width
        elif width != self.n_features:
            raise ValueError(
                f"X has {width} features, but {owner} is expecting {self.n_features} features as input. "
                "Pass the columns it learned from; only named columns may come and go, with new_columns='grow'."
            )
        if rows.named:
            draft.names = list(rows.names)
        elif self.names is not None and set(self.names) == set(rows.names):
            return [self._positions[name] for name in rows.names]
        return list(range(width))


class _Draft:
    """What the rows at hand would change, kept apart from the encoder until it commits."""

    def __init__(self, encoder: Encoder, *, known_only: bool) -> None:
        self.encoder = encoder
        self.known_only = known_only
        self.n_features = encoder.n_features
        self.known = encoder._positions
        self.names: list[Hashable] | None = None  # given by a frame to columns that had none
        self.added: dict[Hashable, int] = {}
        self.kinds: dict[int, Kind] = {}
        self.levels: dict[int, dict[str, int]] = {}

    def place(self, name: Hashable) -> int | None:
        """Find the column called ``name``, or make room for it; None if it is to be left out."""
        j = self.known.get(name, self.added.get(name))
        if j is not None:
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
        """Note that column ``j`` holds values of this kind, or refuse if it held the other."""
        known = self.kind(j)
        if known is None:
            self.kinds[j] = kind
        elif known != kind:
            raise kind_differs(self.name(j), kind, value, row)

    def all_numbers(self, X: FloatArray) -> None:
        if self.encoder.kinds.count("number") < X.shape[1]:
            for j, column in enumerate(X.T):
                self.numbers(j, column)

    def numbers(self, j: int, column: FloatArray) -> FloatArray:
        if self.kind(j) != "number":
            present = ~np.isnan(column)
            if present.any():
                row = int(present.argmax())
                self.claim(j, "number", float(column[row]), row)
        return column

    def codes(self, j: int, texts: Texts) -> FloatArray:
        if texts.levels:
            self.claim(j, "category", texts.levels[0], int((texts.codes == 0).argmax()))
        table = np.array([*(self.code(j, level) for level in texts.levels), NAN])
        return table[texts.codes]  # the last entry, NaN, answers for code -1

    def code(self, j: int, level: str) -> float:
        known = self.encoder.categories.get(str(j), {})
        new = self.levels.get(j, {})
        code = known.get(level, new.get(level))
        if code is not None:
            return code
        n_levels = len(known) + len(new)
        if n_levels >= self.encoder.max_categories:
            return self.encoder.max_categories
        if self.known_only:
            return NAN
        self.levels.setdefault(j, {})[level] = n_levels
        return n_levels

    def changes(self) -> Changes | None:
        encoder = self.encoder
        grown = self.n_features > encoder.n_features
        renamed = self.names is not None and self.names != encoder.names
        if self.known_only or not (grown or renamed or self.kinds or self.levels):
            return None
        names = None if self.names is None else tuple(self.names)
        if self.added:
            names = (*(encoder.names or range(encoder.n_features)), *self.added)
        return Changes(names, self.n_features, self.kinds, self.levels, encoder.version)


def _infinite(name: Hashable, value: object, row: int | None = None) -> ValueError:
    return ValueError(
        f"{cell(name, value, row)}, expected no infinity and nothing too large for float64. "
        "Replace it with NaN, which means missing."
    )


def _names_differ(known: Sequence[Hashable], given: Sequence[Hashable]) -> ValueError:
    """Say in scikit-learn's words, which its own checks look for, how the names differ."""
    lines = ["The feature names should match those that were passed during fit."]
    unexpected = sorted(map(str, set(given) - set(known)))
    missing = sorted(map(str, set(known) - set(given)))
    for heading, names in (
        ("Feature names unseen at fit time:", unexpected),
        ("Feature names seen at fit time, yet now missing:", missing),
    ):
        if names:
            lines += [heading, *(f"- {name}" for name in names[:5]), *(["- ..."] if len(names) > 5 else [])]
    if not unexpected and not missing:
        lines.append("Feature names must be in the same order as they were in fit.")
    return ValueError("\n".join([*lines, "To match columns by name instead, set new_columns='grow'."]))
