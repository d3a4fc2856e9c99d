"""Class labels to class numbers, in the order they appear: new ones may come at any time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from streamboost._types import FloatArray
from streamboost.features.reading import Distinct, distinct, distinct_categories

LabelKind: TypeAlias = Literal["string", "boolean", "number"]

USUAL: dict[type, LabelKind] = {str: "string", bool: "boolean", int: "number"}  # bool before int, as it is one


class Labels:
    """The classes known so far.

    Labels may be numbers, booleans or strings, but of one of these kinds only. Nothing here changes in place: to
    know more labels is to be another object, so that a refused chunk leaves everything as it was. The labels to know
    are given in the order of their numbers.

    Examples
    --------
    >>> labels = Labels()
    >>> codes, new = labels.encode(["up", "down", "up"])
    >>> codes.tolist(), new
    ([0.0, 1.0, 0.0], ['up', 'down'])
    >>> labels.with_new(new).classes.tolist()
    ['up', 'down']
    """

    def __init__(self, labels: Iterable[Any] = ()) -> None:
        self.numbers: dict[Any, int] = {label: code for code, label in enumerate(dict.fromkeys(labels))}
        self.kind: LabelKind | None = next(map(kind_of, self.numbers), None)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def classes(self) -> Any:
        """The labels in the order of their numbers."""
        return np.array(list(self.numbers))

    def encode(self, y: Any) -> tuple[FloatArray, list[Any]]:
        """The number of each label, and the labels never seen before, in order of appearance.

        A list, NumPy array, pandas or polars series, or Arrow array (n,) holds them, or categories of them.
        """
        if self.kind is not None and type(y) is list and len(y) == 1:  # one row of a stream, mostly of a known class
            label = y[0]
            if USUAL.get(type(label)) == self.kind and label in self.numbers:
                return np.array([self.numbers[label]], dtype=np.float64), []
        found = _distinct_labels(y)
        if (found.codes < 0).any():
            raise _unknown(None, _first(found, -1))
        kind, numbers = self.kind, np.empty(len(found.levels))
        new: dict[Any, int] = {}
        for code, plain in enumerate(map(_plain, found.levels)):
            if (here := kind_of(plain)) is None:
                raise _unknown(plain, _first(found, code))
            kind = kind or here
            if here != kind:
                raise ValueError(
                    f"the label in row {_first(found, code)} is {plain!r}, a {here}, but labels so far were of kind "
                    f"{kind}. Convert them all to one kind."
                )
            number = self.numbers.get(plain)
            numbers[code] = new.setdefault(plain, len(self) + len(new)) if number is None else number
        return numbers[found.codes], list(new)

    def with_new(self, new: Sequence[Any]) -> Labels:
        """Return the labels that know new ones after these; the same object if there are none."""
        return Labels([*self.numbers, *new]) if new else self

    def first(self, n: int) -> Labels:
        """Return the labels that know the first ``n`` of these; the same object if there are no more."""
        return self if n == len(self.numbers) else Labels(list(self.numbers)[:n])


def kind_of(label: Any) -> LabelKind | None:
    """Whether a label is a number, a boolean or a string; None for anything else."""
    if isinstance(label, float):
        return "number" if label.is_integer() else None
    return next((kind for cls, kind in USUAL.items() if isinstance(label, cls)), None)


def _distinct_labels(y: Any) -> Distinct:
    """The distinct labels of a column; only where Arrow cannot tell them apart, Python does."""
    if isinstance(y, (list, tuple)):
        return _distinct_objects(list(y))
    pandas = sys.modules.get("pandas")  # whoever holds a pandas series has imported pandas already
    is_series = pandas is not None and isinstance(y, pandas.Series)
    if is_series and hasattr(y.dtype, "categories"):
        return distinct_categories(y)
    with suppress(pa.ArrowException, TypeError, UnicodeError):  # such as foreign byte order, or half a surrogate pair
        if (column := _as_arrow(y, is_series)) is not None:
            return distinct(column)
    return _distinct_objects(y.to_pylist() if hasattr(y, "to_pylist") else list(y))


def _as_arrow(y: Any, is_series: bool) -> Any:
    """A column of labels for Arrow, which is not asked about Python's objects: to it, 1 and 1.0 are the same."""
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        return y
    if is_series and not isinstance(y.dtype, np.dtype):
        return pa.array(y, from_pandas=True)
    column = y if hasattr(y, "shape") else np.asarray(y)
    if len(column.shape) != 1:
        raise ValueError(f"y has shape {column.shape}, expected (n,): one label a row. Pass a single column.")
    if hasattr(y, "to_arrow"):  # as a polars series has it
        return y.to_arrow()
    array = np.asarray(column)
    return pa.array(array) if array.dtype.kind in "biufU" else None


def _distinct_objects(labels: list[Any]) -> Distinct:
    is_mixed = len(set(map(type, labels))) > 1
    keys = list(zip(map(type, labels), labels, strict=True)) if is_mixed else labels  # True is not 1
    try:
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    except TypeError as error:  # there is a list among them, or something else that is never a label
        row = next(row for row, label in enumerate(labels) if kind_of(_plain(label)) is None)
        raise _unknown(labels[row], row) from error
    codes = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys))
    return Distinct(codes, [label for _, label in places] if is_mixed else list(places))


def _plain(label: Any) -> Any:
    """A label as Python has it; NumPy's times would become whole numbers."""
    is_number = isinstance(label, np.generic) and not isinstance(label, (np.datetime64, np.timedelta64))
    return label.item() if is_number else label


def _first(found: Distinct, code: int) -> int:
    """The first row of a label."""
    return int((found.codes == code).argmax())


def _unknown(label: Any, row: int) -> ValueError:
    fault = "Complex data not supported" if isinstance(label, complex) else "Unknown label type"  # scikit-learn's words
    return ValueError(
        f"{fault}: the label in row {row} is {label!r}, expected a string, a boolean or a whole number. "
        "For real-valued targets use SGBRegressor."
    )
