"""Labelled rows of any kind in chunks of one size; the rows themselves stay what they are.

A stream is read a batch at a time, so it may be longer than memory, or without end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Target: TypeAlias = str | Sequence[str] | None

SOURCE_ROWS = 256  # to ask a source for at once, however small the chunks


class LabelledRows(NamedTuple):
    """Rows without their targets, and the targets, (n,) or (n, m)."""

    X: Any  # a pandas frame, an Arrow table, an array or another matrix, or a list of dicts
    y: NDArray[Any]


def rechunk(rows: Any, target: Target, chunk: int) -> Iterator[LabelledRows]:
    """Yield rows of any kind :func:`~streamboost.prequential.prequential` takes in chunks of at most so many."""
    for X, y in _pieces(rows, target, chunk):
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        if n != len(y):
            raise ValueError(f"X has {n} rows and y has {len(y)}, expected one target a row.")
        for start in range(0, n, chunk):
            yield LabelledRows(slice_rows(X, start, min(start + chunk, n)), y[start : start + chunk])


def slice_rows(X: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop``, of the same kind."""
    if hasattr(X, "iloc"):
        return X.iloc[start:stop]
    return X.slice(start, stop - start) if hasattr(X, "slice") else X[start:stop]


def as_targets(y: Any) -> NDArray[Any]:
    """Return targets as an array, (n,) or (n, m); labels of several types stay what they are."""
    if hasattr(y, "to_numpy"):
        y = y.to_numpy(zero_copy_only=False) if isinstance(y, pa.Array) else y.to_numpy()
    if isinstance(y, np.ndarray):
        return y
    values = list(y)
    kinds = set(map(type, values))
    return np.array(values, dtype=object if str in kinds or type(None) in kinds else None)


def _pieces(rows: Any, target: Target, chunk: int) -> Iterator[LabelledRows]:
    """Yield rows in pieces of the sizes they come in; gather single rows to chunks."""
    if _is_pair(rows) and target is not None:
        raise ValueError(f"target is {target!r}, but rows is (X, y), which holds the targets already. Leave it out.")
    if (whole := split_targets(rows, target)) is not None:
        yield whole
        return
    if hasattr(rows, "read") and hasattr(rows, "acknowledge"):  # a source
        rows = rows.read(n_rows=max(chunk, SOURCE_ROWS))
    if isinstance(rows, (np.ndarray, str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise TypeError(
            f"rows is a {type(rows).__name__}, expected (X, y), a frame or Arrow table with a target column, a "
            "source, or an iterable of (dict, y) pairs or tables. For arrays pass (X, y)."
        )
    held: list[tuple[Any, Any]] = []
    for item in rows:
        piece = None
        if isinstance(item, Mapping):
            names = _check_target(target, list(item))
            x = {name: value for name, value in item.items() if name not in names}
            held.append((x, item[target] if isinstance(target, str) else [item[name] for name in names]))
        elif isinstance(item, tuple) and len(item) >= 2 and isinstance(item[0], Mapping):
            held.append(item[:2])
        elif (piece := split_targets(item, target)) is None:
            raise TypeError(
                f"rows brings a {type(item).__name__}, expected (dict, y) pairs, frames or Arrow tables with a target "
                "column, or (X, y) pairs of arrays."
            )
        if held and (piece is not None or len(held) == chunk):
            yield _gathered(held)
            held = []
        if piece is not None:
            yield piece
    if held:
        yield _gathered(held)


def _gathered(held: list[tuple[Any, Any]]) -> LabelledRows:
    return LabelledRows([x for x, _ in held], as_targets([y for _, y in held]))


def split_targets(rows: Any, target: Target) -> LabelledRows | None:
    """Split a frame, a table, a source's batch or (X, y) from its targets; None for anything else."""
    if isinstance(rows, tuple) and hasattr(rows, "table"):
        rows = rows.table
    if _is_pair(rows):
        X, y = rows
        if _speaks_arrow(X) and not hasattr(X, "iloc"):
            X = pa.table(X)
        elif hasattr(X, "tocsr"):  # of the sparse formats some cannot be sliced
            X = X.tocsr()
        elif not hasattr(X, "shape") and not (isinstance(X, list) and X and isinstance(X[0], Mapping)):
            X = np.asarray(X)
        return LabelledRows(X, as_targets(y))
    is_pandas = hasattr(rows, "iloc") and hasattr(rows, "columns")
    if not (is_pandas or _speaks_arrow(rows)):
        return None
    table = rows if is_pandas else pa.table(rows)
    names = _check_target(target, list(table.columns) if is_pandas else table.column_names)
    parts = [as_targets(table[name]) for name in names]
    y = parts[0] if isinstance(target, str) else np.column_stack(parts)
    return LabelledRows(table.drop(columns=names) if is_pandas else table.drop_columns(names), y)


def _is_pair(rows: Any) -> bool:
    return isinstance(rows, tuple) and len(rows) == 2 and not isinstance(rows[0], (Mapping, tuple))


def _check_target(target: Target, columns: list[Any]) -> list[str]:
    """Return the names of the targets; refuse those that are not there."""
    if target is None:
        raise ValueError(f"target is None, expected the name of the column to predict, one of {columns}.")
    names = [target] if isinstance(target, str) else list(target)
    if not names or any(name not in columns for name in names):
        raise ValueError(f"target is {target!r}, but there is no such column. The rows have {columns}.")
    return names


def _speaks_arrow(rows: Any) -> bool:
    """Return True for a frame or a table that is all there; a reader of batches is an iterable."""
    has_stream = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    return has_stream and not isinstance(rows, pa.RecordBatchReader)
