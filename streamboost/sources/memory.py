"""Rows that are in memory already."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamboost.sources.base import Batch, Piece, Position, Source, check_row_number, rebatch


class MemorySource(Source):
    """The rows of an array, a frame, an Arrow table, a dict of columns or a list of dicts; a position is a row number.

    Parameters
    ----------
    data : array-like (n, d), frame (pandas, polars, pyarrow), dict of columns, or list of dicts
        Columns of a bare array are named x0, x1, ...
    y : array-like (n,), optional
        The targets, if they are not among the columns; None by default.
    target : str
        The name of the column that ``y`` becomes; "y" by default.

    Examples
    --------
    >>> import numpy as np
    >>> source = MemorySource(np.eye(3), [1.0, 2.0, 3.0])
    >>> source.schema.names
    ['x0', 'x1', 'x2', 'y']
    >>> [batch.table["y"].to_pylist() for batch in source.read(n_rows=2)]
    [[1.0, 2.0], [3.0]]
    """

    def __init__(self, data: Any, y: Any = None, *, target: str = "y") -> None:
        table = _table(data)
        if y is not None:
            column = pa.array(np.asarray(y))
            if len(column) != table.num_rows:
                raise ValueError(f"data has {table.num_rows} rows and y has {len(column)}, expected one y a row.")
            if target in table.column_names:
                raise ValueError(f"data has a column {target!r} already. Leave y out, or choose another target=...")
            table = table.append_column(target, column)
        self.table = table

    @property
    def schema(self) -> Any:
        """Return names and types of the columns."""
        return self.table.schema

    def progress(self, position: Position) -> float:
        """Return the share of rows before ``position``."""
        return float((position or 0) / max(self.table.num_rows, 1))

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Yield the rows from number ``position`` on."""
        start = check_row_number(position, self.table.num_rows, "data")
        return rebatch(iter([Piece(self.table.slice(start), start.__add__)]), n_rows)


def _table(data: Any) -> Any:
    try:
        pandas = sys.modules.get("pandas")  # whoever holds a pandas frame has imported pandas already
        if pandas is not None and isinstance(data, pandas.DataFrame):
            return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__") or isinstance(data, Mapping):
            return pa.table(data)
        if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
            names = dict.fromkeys(name for row in data for name in row)
            return pa.table({name: [row.get(name) for row in data] for name in names})
        array = np.asarray(data)
        if array.ndim == 2:
            return pa.table({f"x{j}": np.ascontiguousarray(array[:, j]) for j in range(array.shape[1])})
    except (pa.ArrowException, ValueError, TypeError) as error:
        found = f"data is a {type(data).__name__} that Arrow cannot read: {error}"
        raise ValueError(f"{found}. Give each column values of one type.") from error
    raise TypeError(
        f"data is a {type(data).__name__}, expected an array of two dimensions, a frame (pandas, polars, pyarrow), "
        "a dict of columns or a list of dicts. Collect a lazy frame, and make a list of an iterator, first."
    )
