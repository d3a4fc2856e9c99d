"""Labelled rows of any kind, cut into chunks for a loop; the rows themselves stay what they are.

In flow arrays, frames, Arrow tables, dicts, sources, or any iterable of these; out flow :class:`LabelledRows`. A stream
is read a batch at a time, so it may be longer than memory, or without end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Target: TypeAlias = str | Sequence[str] | None

SOURCE_ROWS = 256  # to ask a source for at once, however small the chunks


class LabelledRows(NamedTuple):
    """Rows as they came, without their targets, and the targets, (n,) or (n, m)."""

    X: Any
    y: NDArray[Any]


def count_rows(rows: Any) -> int | None:
    """How many rows there are, if that is known from the start."""
    if _is_pair_of_arrays(rows):
        return len(rows[1])
    return len(rows) if _is_frame(rows) or (isinstance(rows, list) and _is_dict_row(rows[:1])) else None


def targets_at_hand(rows: Any, target: Target) -> NDArray[Any] | None:
    """All targets, if all are there from the start."""
    if _is_pair_of_arrays(rows):
        return as_targets(rows[1])
    return _split(rows, target).y if _is_frame(rows) else None


def cut(rows: Any, target: Target, chunk: int) -> Iterator[LabelledRows]:
    """Rows of any kind in chunks of at most so many.

    Parameters
    ----------
    rows : (X, y), frame, Arrow table, source, or iterable
        An iterable brings (dict, y) pairs, dicts that hold the target, frames or Arrow tables that do, or (X, y)
        pairs of arrays.
    target : str or sequence of str, optional
        The column or columns of the targets, where rows hold them.
    chunk : int

    Examples
    --------
    >>> table = pa.table({"size": [1, 2, 3], "price": [10.0, 20.0, 30.0]})
    >>> [part.y.tolist() for part in cut(table, "price", 2)]
    [[10.0, 20.0], [30.0]]
    """
    for piece in _pieces(rows, target, chunk):
        n = len(piece.y)
        if _length(piece.X) != n:
            raise ValueError(f"X has {_length(piece.X)} rows and y has {n}, expected one target a row.")
        for start in range(0, n, chunk):
            stop = min(start + chunk, n)
            yield LabelledRows(slice_rows(piece.X, start, stop), piece.y[start:stop])


def slice_rows(X: Any, start: int, stop: int) -> Any:
    """Some of the rows, of the same kind."""
    if hasattr(X, "iloc"):
        return X.iloc[start:stop]
    return X.slice(start, stop - start) if hasattr(X, "slice") else X[start:stop]


def as_dicts(X: Any) -> list[dict[Any, Any]]:
    """Rows as River has them; columns without a name are 0, 1, 2, ..."""
    if isinstance(X, list) and _is_dict_row(X[:1]):
        return X
    if hasattr(X, "iloc"):
        return list(X.to_dict("records"))
    if hasattr(X, "to_pylist"):
        return list(X.to_pylist())
    if hasattr(X, "to_dicts"):
        return list(X.to_dicts())
    return [dict(enumerate(row)) for row in np.asarray(X).tolist()]


def as_matrix(X: Any, names: Sequence[Any] | None) -> Any:
    """Rows as scikit-learn has them; of dicts the values of the given names, NaN where absent."""
    if isinstance(X, pa.Table):
        return np.column_stack([column.to_numpy() for column in X.columns])
    if names is not None:
        return np.array([[row.get(name, np.nan) for name in names] for row in X])
    return X


def names_of(X: Any) -> list[Any] | None:
    """The names in the first of some dicts; None for rows of another kind."""
    return list(X[0]) if isinstance(X, list) and _is_dict_row(X[:1]) else None


def as_targets(y: Any) -> NDArray[Any]:
    """Targets of any kind as an array, (n,) or (n, m); labels of several types stay what they are."""
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        y = y.to_numpy(zero_copy_only=False) if isinstance(y, pa.Array) else y.to_numpy()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, np.ndarray):
        return y
    values = list(y)
    kinds = set(map(type, values))
    return np.array(values, dtype=object if str in kinds or type(None) in kinds else None)


# What may come in.


def _pieces(rows: Any, target: Target, chunk: int) -> Iterator[LabelledRows]:
    """Rows in pieces of the sizes they come in."""
    if _is_pair_of_arrays(rows):
        _refuse_target(target)
        yield LabelledRows(_indexable(rows[0]), as_targets(rows[1]))
    elif _is_frame(rows):
        yield _split(rows, target)
    elif hasattr(rows, "read") and hasattr(rows, "acknowledge"):  # a source
        for batch in rows.read(n_rows=max(chunk, SOURCE_ROWS)):
            yield _split(batch.table, target)
    elif isinstance(rows, (np.ndarray, str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise TypeError(
            f"rows is a {type(rows).__name__}, expected (X, y), a frame or Arrow table with a target column, a "
            "source, or an iterable of (dict, y) pairs or tables. For arrays pass (X, y)."
        )
    else:
        yield from _gather(rows, target, chunk)


def _gather(items: Iterable[Any], target: Target, chunk: int) -> Iterator[LabelledRows]:
    """What an iterable brings; single rows are gathered to a chunk."""
    held: list[tuple[dict[Any, Any], Any]] = []
    for item in items:
        is_single = _is_dict_row([item])
        if held and (not is_single or len(held) == chunk):
            yield _joined(held)
            held = []
        if is_single:
            held.append(_split_dict(item, target) if isinstance(item, Mapping) else (item[0], item[1]))
        elif _is_frame(item):
            yield _split(item, target)
        elif hasattr(item, "table") and hasattr(item, "position"):  # a source's batch
            yield _split(item.table, target)
        elif isinstance(item, tuple) and len(item) == 2:
            yield LabelledRows(_indexable(item[0]), as_targets(item[1]))
        else:
            raise TypeError(
                f"rows brings a {type(item).__name__}, expected (dict, y) pairs, frames or Arrow tables with a target "
                "column, or (X, y) pairs of arrays."
            )
    if held:
        yield _joined(held)


def _joined(held: list[tuple[dict[Any, Any], Any]]) -> LabelledRows:
    return LabelledRows([x for x, _ in held], as_targets([y for _, y in held]))


def _is_pair_of_arrays(rows: Any) -> bool:
    return isinstance(rows, tuple) and len(rows) == 2 and not isinstance(rows[0], (Mapping, tuple))


def _is_frame(rows: Any) -> bool:
    """Whether it is a frame or a table, all there; a reader of batches is an iterable."""
    pandas = sys.modules.get("pandas")  # whoever holds a pandas frame has imported pandas already
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return True
    speaks_arrow = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    return speaks_arrow and not isinstance(rows, pa.RecordBatchReader)


def _is_dict_row(items: Sequence[Any]) -> bool:
    """Whether the first of some items is a dict, with its target inside or beside it."""
    first = items[0] if items else None
    return isinstance(first, Mapping) or (
        isinstance(first, tuple) and len(first) >= 2 and isinstance(first[0], Mapping)
    )


def _split(frame: Any, target: Target) -> LabelledRows:
    """A frame or table without its targets, and these."""
    is_known = hasattr(frame, "iloc") or hasattr(frame, "to_dicts")
    frame = frame if is_known else pa.table(frame)
    columns = list(frame.columns if is_known else frame.column_names)
    names = _check_target(target, columns)
    parts = [as_targets(frame[name]) for name in names]
    y = parts[0] if isinstance(target, str) else np.column_stack(parts)
    if hasattr(frame, "iloc"):
        return LabelledRows(frame.drop(columns=names), y)
    return LabelledRows(frame.drop(names) if is_known else frame.drop_columns(names), y)


def _split_dict(row: Mapping[Any, Any], target: Target) -> tuple[dict[Any, Any], Any]:
    names = _check_target(target, list(row))
    values = [row[name] for name in names]
    x = {name: value for name, value in row.items() if name not in names}
    return x, values[0] if isinstance(target, str) else values


def _check_target(target: Target, columns: list[Any]) -> list[str]:
    """The names of the targets, all of them there."""
    if target is None:
        raise ValueError(f"target is None, expected the name of the column to predict, one of {columns}.")
    names = [target] if isinstance(target, str) else list(target)
    absent = [name for name in names if name not in columns]
    if absent or not names:
        raise ValueError(f"target is {target!r}, but there is no such column. The rows have {columns}.")
    return names


def _refuse_target(target: Target) -> None:
    if target is not None:
        raise ValueError(f"target is {target!r}, but rows is (X, y), which holds the targets already. Leave it out.")


def _indexable(X: Any) -> Any:
    """Rows that can be cut, and told what they are."""
    if isinstance(X, pa.RecordBatch):
        return pa.table(X)
    if hasattr(X, "shape") or hasattr(X, "num_rows") or (isinstance(X, list) and _is_dict_row(X[:1])):
        return X
    return np.asarray(X)


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
