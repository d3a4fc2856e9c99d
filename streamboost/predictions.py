"""A file of predictions that grows with a run and can be cut back to where a checkpoint was taken.

CSV, JSON lines and Arrow streams grow at their end. A Parquet file cannot: while a run goes on, its rows are gathered
in an Arrow stream beside it, ``.NAME.rows``; when it ends, the file is written whole and the stream removed.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
        return self.growing(self.path)

    @staticmethod
    def growing(path: Path) -> Path:
        """The file that rows are added to, of a file of predictions."""
        return path

    @classmethod
    def takes(cls, kind: Any) -> bool:
        """Whether a column of an Arrow type can be written."""
        return True

    def begin(self) -> None:
        """Begin with no rows; a file that has some is not touched, but refused."""
        head = self._head()
        for path in (self.path, self.written):
            if path.exists() and not head.startswith(_first_bytes(path, len(head) + 1)):
                what = "" if path == self.path else ", with the rows of a run that did not come to its end"
                raise FileExistsError(
                    f"{str(path)!r} is there already{what}, expected a new file for predictions. Go on with the run "
                    "that wrote it, move it away, or name another one."
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
        if not self._is_ours(length):
            raise ValueError(
                f"{str(self.written)!r} does not hold the predictions that the checkpoint knows of, so nothing is cut "
                "off from it. Bring the file back, or begin anew with other file names."
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

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._file is not None:
            self._file.close()
        for path in (self.path, self.written, self.path.with_name(f".{self.path.name}.tmp")):
            path.unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self.length += len(data)

    @abstractmethod
    def _head(self) -> bytes:
        """What stands before the first row."""

    @abstractmethod
    def _is_ours(self, length: int) -> bool:
        """Whether the file that is there begins as one of these columns does, with ``length`` bytes of whole rows."""

    @abstractmethod
    def _lines(self, table: Any) -> bytes:
        """Rows as they stand in the file."""

    def _has_line_end_at(self, length: int) -> bool:
        with open(self.written, "rb") as file:
            file.seek(max(length - 1, 0))
            return length == 0 or file.read(1) == b"\n"


class _Csv(PredictionFile):
    @classmethod
    def takes(cls, kind: Any) -> bool:
        try:
            pa.csv.write_csv(pa.table({"column": pa.nulls(1, kind)}), pa.BufferOutputStream())
        except pa.ArrowException:
            return False
        return True

    def _head(self) -> bytes:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(self.schema.names)
        return line.getvalue().encode()

    def _is_ours(self, length: int) -> bool:
        head = self._head()
        return _first_bytes(self.written, len(head)) == head and self._has_line_end_at(length)

    def _lines(self, table: Any) -> bytes:
        sink = pa.BufferOutputStream()
        pa.csv.write_csv(table, sink, pa.csv.WriteOptions(include_header=False, quoting_style="needed"))
        return bytes(sink.getvalue())


class _JsonLines(PredictionFile):
    @classmethod
    def takes(cls, kind: Any) -> bool:
        if pa.types.is_nested(kind):
            return all(cls.takes(kind.field(i).type) for i in range(kind.num_fields))
        tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view,
                 pa.types.is_duration, pa.types.is_interval)  # fmt: skip
        return not any(test(kind) for test in tests)

    def _head(self) -> bytes:
        return b""

    def _is_ours(self, length: int) -> bool:
        with open(self.written, "rb") as file:
            first = file.readline()
        try:
            is_same = length == 0 or list(json.loads(first)) == self.schema.names
        except (ValueError, TypeError):
            return False
        return is_same and self._has_line_end_at(length)

    def _lines(self, table: Any) -> bytes:
        names = table.column_names
        plain = pa.table([_whole_moments(column) for column in table.columns], names)
        return "".join(json.dumps(row, default=_as_json) + "\n" for row in plain.to_pylist()).encode()


def _whole_moments(column: Any) -> Any:
    """Moments finer than what Python has, as text; any other column as it is."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return column
    try:
        return column.cast(pa.timestamp("us", kind.tz))
    except pa.ArrowInvalid:
        return pc.strftime(column, format="%Y-%m-%dT%H:%M:%S" + ("" if kind.tz is None else "%z"))


def _as_json(value: Any) -> Any:
    """What JSON has no word for: moments as ISO 8601 writes them, decimals as numbers."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(f"{value!r} is a {type(value).__name__}, which JSON cannot hold. Write .parquet or .arrow instead.")


class _Arrow(PredictionFile):
    """A stream: the schema, and then one message for every record batch."""

    def _head(self) -> bytes:
        return bytes(self.schema.serialize())

    def _is_ours(self, length: int) -> bool:
        try:
            with pa.OSFile(str(self.written)) as source, pa.ipc.open_stream(source) as reader:
                return bool(reader.schema.equals(self.schema))
        except pa.ArrowInvalid:
            return False

    def _lines(self, table: Any) -> bytes:
        return b"".join(bytes(batch.serialize()) for batch in table.combine_chunks().to_batches())

    def finish(self) -> None:
        assert self._file is not None
        self._file.write(END_OF_STREAM)  # not counted: the next run begins before it
        super().finish()


class _Parquet(_Arrow):
    @staticmethod
    def growing(path: Path) -> Path:
        return path.with_name(f".{path.name}.rows")

    def cut(self, n_rows: int, length: int) -> None:
        """Go on after the first ``n_rows`` rows: of the whole file, if it has them, else of those gathered so far."""
        if not self.path.exists():
            return super().cut(n_rows, length)
        with pa.parquet.ParquetFile(self.path) as file:
            if not file.schema_arrow.equals(self.schema):
                raise ValueError(
                    f"{str(self.path)!r} does not hold the predictions that the checkpoint knows of. "
                    "Bring the file back, or begin anew with other file names."
                )
            if file.metadata.num_rows < n_rows:
                return super().cut(n_rows, length)
            self._file = open(self.written, "wb")  # noqa: SIM115
            self._append(self._head())
            for batch in file.iter_batches(ROWS_A_GROUP):
                self.add(pa.Table.from_batches([batch.slice(0, n_rows - self.n_rows)]))
                if self.n_rows == n_rows:
                    return None

    def finish(self) -> None:
        super().finish()
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        with pa.OSFile(str(self.written)) as source, pa.parquet.ParquetWriter(temporary, self.schema) as writer:
            for table in _groups(pa.ipc.open_stream(source), self.schema):
                writer.write_table(table)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
        self.written.unlink()


def _groups(batches: Any, schema: Any) -> Iterator[Any]:
    """Rows in tables of one size, so that a file does not tell how often its run was resumed; at least one table."""
    gathered: list[Any] = []
    count, is_first = 0, True
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        while count >= ROWS_A_GROUP:
            table = pa.Table.from_batches(gathered)
            yield table.slice(0, ROWS_A_GROUP).combine_chunks()
            gathered, is_first = table.slice(ROWS_A_GROUP).to_batches(), False
            count -= ROWS_A_GROUP
    if count or is_first:
        yield pa.Table.from_batches(gathered, schema).combine_chunks()


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


def check_columns(ending: str, schema: Any) -> None:
    """Refuse columns that a format cannot hold."""
    for field in schema:
        if not FORMATS[ending].takes(field.type):
            raise ValueError(
                f"column {field.name!r} is of type {field.type}, which {ending} files cannot hold. Leave it out, or "
                "write .parquet or .arrow instead."
            )


def _first_bytes(path: Path, n: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(n)


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
