"""The predictions of a run: a directory of part files, one a checkpoint, which readers take as one table.

Tables of rows flow in and are held in memory; with every checkpoint they become a file named by its first row::

    said.parquet/part-000000000000.parquet      whole, or not there: each is written beside its place and renamed
    said.parquet/part-000000012000.parquet

A part never changes. A run that was killed goes on at the row of its checkpoint: parts that begin there or later are
removed, as their rows come again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from streamboost._types import Task
from streamboost.evaluation.predictions import Predictions
from streamboost.persistence.durable_files import LEFTOVER, replace_file

PART = re.compile(r"part-(\d{12,})\.(?:parquet|csv)")
PART_BYTES = 32_000_000  # of Arrow columns held in memory: a million rows of numbers


class PredictionParts:
    """Writes predictions a part file at a time.

    At most ``PART_BYTES`` of rows are held, and their encoding while a part is written: if a checkpoint takes longer to
    come, there are several parts before it. They are CSV if the directory's name ends in ``.csv``, else Parquet; a
    column ``row`` rises.

    Examples
    --------
    >>> import tempfile
    >>> parts = PredictionParts(Path(tempfile.mkdtemp(), "said"), pa.schema([("row", pa.int64())]))
    >>> parts.begin()
    >>> for start in (0, 2):
    ...     parts.add(pa.table({"row": [start, start + 1]}))
    ...     parts.write()
    >>> parts.state()["last"], pyarrow.parquet.read_table(parts.directory)["row"].to_pylist()
    ('part-000000000002.parquet', [0, 1, 2, 3])
    """

    def __init__(self, directory: str | os.PathLike[str], schema: Any) -> None:
        self.directory, self.schema = check_directory(directory), schema
        self._last: str | None = None  # the newest part
        self._ending = self.directory.suffix or ".parquet"
        self._held: list[Any] = []
        self._n_bytes = 0

    def begin(self) -> None:
        """Make the directory; refuse one that holds anything."""
        if self.directory.is_dir() and any(self.directory.iterdir()):
            found = f"{str(self.directory)!r} is there already, expected a new or empty directory for predictions"
            way_out = "Go on with the run that wrote it, move it away, or name another one."
            raise FileExistsError(f"{found}. {way_out}")
        self.directory.mkdir(exist_ok=True)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, for :meth:`resumed`."""
        return {"columns": {field.name: str(field.type) for field in self.schema}, "last": self._last}

    @classmethod
    def resumed(cls, directory: str | os.PathLike[str], state: dict[str, Any], row: int) -> Self:
        """Go on at the row of a checkpoint; parts that begin there or later are removed, as their rows come again."""
        parts = cls(directory, pa.schema([(name, pa.type_for_alias(kind)) for name, kind in state["columns"].items()]))
        parts._last = state["last"]
        if parts._last is not None and not (parts.directory / parts._last).is_file():
            told = "which the checkpoint knows of. Bring the directory back, or begin anew with other names."
            raise ValueError(f"{str(parts.directory / parts._last)!r} is not there, {told}")
        parts.directory.mkdir(exist_ok=True)
        for path in parts.directory.iterdir():
            part = PART.fullmatch(path.name)
            if LEFTOVER.fullmatch(path.name) or (part is not None and int(part[1]) >= row):
                path.unlink()
        return parts

    def add(self, table: Any) -> None:
        """Add rows; they are on disk after the next :meth:`write`."""
        if table.num_rows:
            self._held.append(table.cast(self.schema))
            self._n_bytes += self._held[-1].nbytes
        if self._n_bytes >= PART_BYTES:
            self.write()

    def write(self) -> None:
        """Write the rows that are held as a part."""
        if not self._held:
            return
        table, sink = pa.concat_tables(self._held), pa.BufferOutputStream()
        if self._ending == ".csv":
            pa.csv.write_csv(table, sink)
        else:
            pa.parquet.write_table(table, sink)
        name = f"part-{table['row'][0].as_py():012d}{self._ending}"
        replace_file(self.directory / name, sink.getvalue())
        self._held, self._n_bytes, self._last = [], 0, name


def check_directory(path: str | os.PathLike[str]) -> Path:
    """Return a directory for parts, new or not; refuse other files and unknown formats."""
    checked = Path(path)
    if checked.suffix not in ("", ".parquet", ".csv"):
        told = "expected a directory: such as said or said.parquet for Parquet parts, said.csv for CSV."
        raise ValueError(f"predictions is {str(path)!r}, {told}")
    if checked.exists() and not checked.is_dir():
        told = "which is a file, expected a new directory. Name another, or move it away."
        raise NotADirectoryError(f"predictions is {str(path)!r}, {told}")
    if not checked.parent.is_dir():
        raise FileNotFoundError(f"predictions is {str(path)!r}, but {str(checked.parent)!r} is no directory. Make it.")
    return checked


def prediction_schema(task: Task, target: Any, has_probabilities: bool) -> Any:
    """Return the columns of predictions: row number, target, prediction, and its probability."""
    kind = label_type(target) if task == "classification" else pa.float64()
    fields = [("row", pa.int64()), ("target", kind), ("prediction", kind)]
    return pa.schema([*fields, ("probability", pa.float64())] if has_probabilities else fields)


def prediction_table(schema: Any, rows: NDArray[Any], y: NDArray[Any], predicted: Predictions) -> Any:
    """Return predictions with the numbers and targets of their rows, in these columns."""
    kind = schema.field("target").type
    columns = {
        "row": pa.array(rows, pa.int64()),
        "target": as_column(y, np.ones(len(y), dtype=bool), kind),
        "prediction": as_column(predicted.values, predicted.known, kind),
    }
    if predicted.probabilities is not None:
        columns["probability"] = pa.array(predicted.probabilities.values.max(axis=1), mask=~predicted.known)
    elif "probability" in schema.names:
        columns["probability"] = pa.nulls(len(y), pa.float64())
    return pa.table(columns)


def label_type(kind: Any) -> Any:
    """Return the type in which labels of an Arrow type are written, wide enough for any that may come later."""
    kinds = {pa.types.is_boolean: pa.bool_(), pa.types.is_integer: pa.int64(), pa.types.is_floating: pa.float64()}
    return next((chosen for is_kind, chosen in kinds.items() if is_kind(kind)), pa.string())


def as_column(values: Any, known: Any, kind: Any) -> Any:
    """Return labels or numbers as a column, null where they are not known."""
    if pa.types.is_float64(kind) and np.all(known):
        return pa.array(np.asarray(values, dtype=float))
    plain = [value if is_known else None for value, is_known in zip(np.asarray(values).tolist(), known, strict=True)]
    if pa.types.is_string(kind):
        plain = [None if value is None else str(value) for value in plain]
    return pa.array(plain, kind)
