"""A file of predictions that grows with a run and can be cut back to where a checkpoint was taken.

CSV, JSON lines and Arrow streams grow at their end. A Parquet file cannot: its rows are gathered in an Arrow stream
beside it, ``.NAME.rows``, and the file is written whole whenever the run comes to an end.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
ROWS_A_GROUP = 100_000


def label_type(kind: Any) -> Any:
    """How labels of an Arrow type are written: every label of that type, and any that may come later, fits."""
    for test, chosen in (
        (pa.types.is_boolean, pa.bool_()),
        (pa.types.is_integer, pa.int64()),
        (pa.types.is_floating, pa.float64()),
    ):
        if test(kind):
            return chosen
    return pa.string()


class PredictionFile(ABC):
    """Rows of predictions in a file.

    Parameters
    ----------
    path : path
        Its ending tells the format: ``.csv``, ``.jsonl``, ``.arrow`` or ``.parquet``; see :func:`open_predictions`.
    schema : pyarrow.Schema

    Attributes
    ----------
    n_rows, length : int
        Rows and bytes so far: what :meth:`cut` goes back to.
    """

    def __init__(self, path: Path, schema: Any) -> None:
        self.path = path
        self.schema = schema
        self.n_rows = self.length = 0
        self._file: IO[bytes] | None = None

    @property
    def written(self) -> Path:
        """The file that rows are added to."""
        return self.path

    def begin(self) -> None:
        """Begin with no rows; a file that has some is not touched, but refused."""
        head = self._head()
        for path in {self.path, self.written}:
            if path.exists() and not head.startswith(path.read_bytes()[: len(head) + 1]):
                raise FileExistsError(
                    f"{str(path)!r} is there already, expected a new file for predictions. Name another one or move it."
                )
        self._file = open(self.written, "wb")  # noqa: SIM115 - open for as long as the run
        self._append(head)

    def cut(self, n_rows: int, length: int) -> None:
        """Go on after the first ``n_rows`` rows: those that a checkpoint knows."""
        found = self.written.stat().st_size if self.written.exists() else -1
        if found < length:
            raise ValueError(
                f"{str(self.written)!r} has {max(found, 0)} bytes, expected at least the {length} of the checkpoint. "
                "Bring the file back, or begin anew with other file names."
            )
        self._file = open(self.written, "r+b")  # noqa: SIM115
        self._file.truncate(length)
        self._file.seek(length)
        self.n_rows, self.length = n_rows, length

    def add(self, table: Any) -> None:
        """Add rows."""
        self._append(self._lines(table.cast(self.schema)))
        self.n_rows += table.num_rows

    def flush(self) -> None:
        """Bring all rows to disk."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Be a whole file, at the end of a run."""
        self.flush()
        assert self._file is not None
        self._file.close()

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self.length += len(data)

    @abstractmethod
    def _head(self) -> bytes:
        """What stands before the first row."""

    @abstractmethod
    def _lines(self, table: Any) -> bytes:
        """Rows as they stand in the file."""


class _Csv(PredictionFile):
    def _head(self) -> bytes:
        return (",".join(self.schema.names) + "\n").encode()

    def _lines(self, table: Any) -> bytes:
        sink = pa.BufferOutputStream()
        pa.csv.write_csv(table, sink, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))
        return bytes(sink.getvalue())


class _JsonLines(PredictionFile):
    def _head(self) -> bytes:
        return b""

    def _lines(self, table: Any) -> bytes:
        return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


class _Arrow(PredictionFile):
    """A stream: the schema, and then one message for every record batch."""

    def _head(self) -> bytes:
        return bytes(self.schema.serialize())

    def _lines(self, table: Any) -> bytes:
        return b"".join(bytes(batch.serialize()) for batch in table.combine_chunks().to_batches())

    def finish(self) -> None:
        assert self._file is not None
        self._file.write(END_OF_STREAM)  # not counted: the next run begins before it
        super().finish()


class _Parquet(_Arrow):
    @property
    def written(self) -> Path:
        return self.path.with_name(f".{self.path.name}.rows")

    def finish(self) -> None:
        super().finish()
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        with pa.OSFile(str(self.written)) as source, pa.parquet.ParquetWriter(temporary, self.schema) as writer:
            gathered: list[Any] = []
            for batch in pa.ipc.open_stream(source):
                gathered.append(batch)
                if sum(part.num_rows for part in gathered) >= ROWS_A_GROUP:
                    writer.write_table(pa.Table.from_batches(gathered))
                    gathered = []
            writer.write_table(pa.Table.from_batches(gathered, self.schema))
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


FORMATS: dict[str, type[PredictionFile]] = {
    ".csv": _Csv,
    ".jsonl": _JsonLines,
    ".arrow": _Arrow,
    ".parquet": _Parquet,
}


def check_ending(path: str | os.PathLike[str]) -> Path:
    """A path whose ending tells a format that is known."""
    checked = Path(path)
    if checked.suffix not in FORMATS:
        raise ValueError(f"predictions is {str(path)!r}, expected a name that ends in one of {list(FORMATS)}.")
    if not checked.parent.is_dir():
        raise FileNotFoundError(f"predictions is {str(path)!r}, but {str(checked.parent)!r} is no directory. Make it.")
    return checked


def open_predictions(path: str | os.PathLike[str], schema: Any) -> PredictionFile:
    r"""The file for predictions that a name asks for.

    Examples
    --------
    >>> import tempfile
    >>> file = open_predictions(Path(tempfile.mkdtemp(), "said.csv"), pa.schema([("row", pa.int64())]))
    >>> file.begin()
    >>> file.add(pa.table({"row": [0, 1]}))
    >>> kept = file.n_rows, file.length
    >>> file.add(pa.table({"row": [2]}))
    >>> file.finish()
    >>> file.cut(*kept)
    >>> file.finish()
    >>> file.path.read_text()
    'row\n0\n1\n'
    """
    checked = check_ending(path)
    return FORMATS[checked.suffix](checked, schema)


def prediction_schema(is_classes: bool, target: Any, has_probabilities: bool) -> Any:
    """The columns of a file of predictions: the row's number, its target, what was said, and how surely."""
    kind = label_type(target) if is_classes else pa.float64()
    fields = [("row", pa.int64()), ("target", kind), ("prediction", kind)]
    return pa.schema([*fields, ("probability", pa.float64())] if has_probabilities else fields)


def names_of(schema: Any) -> list[list[str]]:
    """Columns and their types as text, as a checkpoint keeps them."""
    return [[field.name, str(field.type)] for field in schema]


def schema_of(names: list[list[str]]) -> Any:
    """The schema that :func:`names_of` wrote down."""
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in names])


def as_column(values: Any, known: Any, kind: Any) -> Any:
    """Labels or numbers as a column; null where there is none."""
    plain = [value if is_known else None for value, is_known in zip(np.asarray(values).tolist(), known, strict=True)]
    if pa.types.is_string(kind):
        plain = [None if value is None else str(value) for value in plain]
    return pa.array(plain, kind)
