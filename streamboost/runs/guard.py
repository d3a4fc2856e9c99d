"""Tell rows that can be learned from bad ones.

In flow tables of rows with their targets; out flow the rows that can be learned, and for each of the others a reason.
A row is bad if its target is missing, infinite or no number where one is expected, if a column is infinite, or if its
gradient would be absurd: so large beside all targets so far that a single step would ruin what was learned.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, Task
from streamboost.losses.base import LARGEST_TARGET

ABSURD = 1e6  # times the root mean square of the targets so far: what no gradient may be
FEW = 10  # different whole numbers that are rather classes
SETTLED = 100  # targets after which the guard has an idea of their size
LABELS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean,
          pa.types.is_string, pa.types.is_large_string)  # fmt: skip


class ValidatedRows(NamedTuple):
    """The good rows of a table, and what is wrong with the others."""

    X: Any  # pyarrow.Table, without the target
    y: NDArray[Any]
    good: BoolArray  # (n,) of all rows
    reasons: dict[int, str]  # of the bad ones, by row


class Guard:
    """Tells good rows from bad ones; what is normal it learns from the targets.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = pa.table({"x": [1.0, 2.0, float("inf")], "y": [3.0, None, 4.0]})
    >>> valid = Guard().validate(rows, "y", "regression")
    >>> valid.y, valid.reasons[1]
    (array([3.]), "the target 'y' is missing, expected a number.")
    """

    def __init__(self) -> None:
        self.absurd = ABSURD
        self.n = 0
        self.mean_square = 0.0

    def validate(self, table: Any, target: str, task: Task, model: Any = None) -> ValidatedRows:
        """Tell the good rows of an Arrow table from the bad ones; change nothing.

        Where a target is large, the gradient of the model is looked at; without a model the target itself must not be
        absurd.
        """
        if target not in table.column_names:
            raise ValueError(f"there is no target column {target!r}, expected one among {table.column_names}.")
        X, column = table.drop_columns([target]), table[target]
        reasons: dict[int, str] = {}
        y = _numbers(column, target, reasons) if task == "regression" else _labels(column, target, reasons)
        _find_infinite(X, reasons)
        good = np.ones(len(y), dtype=bool)
        good[list(reasons)] = False
        if task == "regression":
            for row, gradient, size in self._absurd(X, y.astype(float), good, model):
                told = f"which is absurd beside targets of about {size:.3g}."
                reasons[row] = f"the gradient of target {target!r} is {gradient:.3g}, {told}"
                good[row] = False
        if reasons:
            X, y = X.filter(pa.array(good)), y[good]
        return ValidatedRows(X, y, good, dict(sorted(reasons.items())))

    def observe(self, y: NDArray[Any]) -> None:
        """Take note of targets that were learned."""
        if not len(y) or y.dtype.kind not in "fiu":
            return
        self.n += len(y)
        self.mean_square += (float(np.mean(np.square(y, dtype=float))) - self.mean_square) * len(y) / self.n

    def _absurd(self, X: Any, y: FloatArray, good: BoolArray, model: Any) -> list[tuple[int, float, float]]:
        """Return the rows whose gradients are too large, these, and what targets were like before them.

        Gradients are worked out only where a target is large. Each row is seen beside the good ones before it.
        """
        squares = np.where(good & (np.abs(y) <= LARGEST_TARGET), y, 0.0) ** 2
        n_before = self.n + np.cumsum(good) - good
        found: list[tuple[int, float, float]] = []
        start = 0
        while True:
            sums = self.n * self.mean_square + np.cumsum(squares) - squares
            sizes = np.sqrt(sums / np.maximum(n_before, 1))
            limits = np.where(n_before >= SETTLED, self.absurd * np.where(sizes > 0.0, sizes, 1.0), LARGEST_TARGET)
            suspects = np.flatnonzero(good & (np.abs(np.where(good, y, 0.0)) > np.minimum(limits, LARGEST_TARGET)))
            for row in suspects[suspects >= start].tolist():
                gradient = abs(y[row]) if abs(y[row]) > LARGEST_TARGET else _gradient(model, X.slice(row, 1), y[row])
                if not gradient <= limits[row]:
                    found.append((row, gradient, float(sizes[row])))
                    squares[row] = 0.0  # so that it hides none of those after it
                    n_before[row + 1 :] -= 1
                    start = row + 1
                    break
            else:
                return found


def _gradient(model: Any, row: Any, y: float) -> float:
    """The size of the loss's gradient at what the model says of a row."""
    if not hasattr(model, "committee_"):
        return abs(y)
    try:
        return float(np.abs(model.committee_.loss.gradient(model.raw_scores(row), np.array([[y]]))).max())
    except (TypeError, ValueError):  # a row that the model refuses for another reason, which it will tell itself
        return abs(y)


def _numbers(column: Any, name: str, reasons: dict[int, str]) -> FloatArray:
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    if any(test(column.type) for test in is_number):
        numbers = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
    else:
        numbers = np.array([_number(value) for value in column.to_pylist()])
    for row in np.flatnonzero(~np.isfinite(numbers)).tolist():
        value = column[row].as_py()
        said = "missing" if value is None or value != value else brief(value)
        reasons[row] = f"the target {name!r} is {said}, expected a number."
    return numbers


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _labels(column: Any, name: str, reasons: dict[int, str]) -> NDArray[Any]:
    """Classes; numbers that are all whole are whole numbers, in whatever type the source has them."""
    missing = np.asarray(pc.is_null(column, nan_is_null=True).to_numpy()).astype(bool)
    for row in np.flatnonzero(missing).tolist():
        reasons[row] = f"the target {name!r} is missing, expected a class."
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        numbers = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
        whole = (np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))
        for row in np.flatnonzero(~whole & ~missing).tolist():
            reasons[row] = f"the target {name!r} is {numbers[row]}, expected a class: text, or a whole number."
        return np.where(whole, numbers, 0.0).astype(np.int64)
    if (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)) and not missing.any():
        return np.asarray(column.to_numpy())
    labels = np.empty(len(column), dtype=object)
    labels[:] = column.to_pylist()
    return labels


def _find_infinite(X: Any, reasons: dict[int, str]) -> None:
    for name, column in zip(X.column_names, X.columns, strict=True):
        if pa.types.is_floating(column.type):
            for row in np.flatnonzero(np.isinf(column.to_numpy())).tolist():
                reasons.setdefault(row, f"column {name!r} is {column[row].as_py()}, expected a finite number or none.")


def label_kind(column: Any) -> tuple[Task, str]:
    """Tell whether first targets look like numbers or like classes, and why; a ``ValueError`` if like neither."""
    kind = column.type
    if column.null_count == len(column):
        way_out = "Say --task regression or so."
        raise ValueError(f"the first targets are all missing, so they do not tell the task. {way_out}")
    if not any(test(kind.value_type if pa.types.is_dictionary(kind) else kind) for test in LABELS):
        raise ValueError(f"the targets are of type {kind}, expected numbers, or classes: text, numbers or booleans.")
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return "classification", "the targets are not numbers"
    numbers = np.asarray(column.cast(pa.float64(), safe=False).drop_null().to_numpy())
    n_distinct = len(np.unique(numbers))
    if n_distinct > FEW or not np.all(numbers == np.floor(numbers)):
        return "regression", "the targets are numbers"
    return "classification", f"the targets are whole numbers, only {n_distinct} different ones in the first rows"


def brief(value: Any) -> str:
    """A value as a sentence shows it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
