"""Where ``streamboost predict`` writes: the columns, and the file or standard output that takes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from sklearn.base import is_classifier

from streamboost.boosting.intervals import check_coverage
from streamboost.cli.arguments import UsageError, check_column
from streamboost.cli.saved_models import known_columns
from streamboost.runs.prediction_files import as_column, label_type
from streamboost.runs.quarantine import plain_values


class PredictionColumns:
    """The columns to be written: row number, copied columns, prediction, probabilities; without rows, no schema.

    With a coverage also the ends of intervals, ``low`` and ``high``, or of classes the labels that cover, ``set``.
    """

    def __init__(self, model: Any, keep: Sequence[str], schema: Any, coverage: float | None = None) -> None:
        self.model, self.keep, self.coverage = model, list(dict.fromkeys(keep)), coverage
        self.kind, self.probabilities = pa.float64(), []
        if is_classifier(model):
            self.kind = label_type(pa.array(model.classes_.tolist()).type)
            if hasattr(model, "predict_proba"):
                self.probabilities = [f"probability_{label}" for label in model.classes_]
        covering = self._covering()
        for column in {"row", "prediction", *self.probabilities, *(field.name for field in covering)}.intersection(
            self.keep
        ):
            told = "but a column of this name says what the model says. Rename it in the source."
            raise UsageError(f"--keep is {column!r}, {told}")
        kept = []
        for name in self.keep:
            if schema is not None:
                check_column(name, schema.names, "--keep")
            kept.append((name, pa.null() if schema is None else schema.field(name).type))
        numbers = [(name, pa.float64()) for name in self.probabilities]
        self.schema = pa.schema([("row", pa.int64()), *kept, ("prediction", self.kind), *numbers, *covering])

    def _covering(self) -> list[Any]:
        """Return the columns of intervals, or of sets."""
        if self.coverage is None:
            return []
        check_coverage(self.coverage)
        if not hasattr(self.model, "committee_"):
            raise UsageError("--interval is for one model. Of a model for each key: model.model(key) in Python.")
        if is_classifier(self.model):
            if not self.probabilities:
                raise UsageError("--interval is for models that tell probabilities, and this one does not.")
            return [pa.field("set", pa.string())]
        if self.model.committee_.loss.n_outputs > 1:
            raise UsageError("--interval is for one target. Of several: model.predict_interval(X) in Python.")
        return [pa.field("low", pa.float64()), pa.field("high", pa.float64())]

    def predict(self, table: Any, start: int) -> Any:
        """Return the columns for rows whose first is number ``start``."""
        X, rows = known_columns(self.model, table), np.arange(start, start + table.num_rows)
        try:
            predicted = self._predict(X)
        except (TypeError, ValueError):
            for row in range(X.num_rows):
                try:
                    self._predict(X.slice(row, 1))
                except (TypeError, ValueError) as error:
                    raise ValueError(f"row {start + row} cannot be predicted: {error}") from error
            raise
        kept = [table[name].cast(self.schema.field(name).type) for name in self.keep]
        return pa.table([pa.array(rows), *kept, *predicted], schema=self.schema)

    def _predict(self, X: Any) -> list[Any]:
        columns = [as_column(self.model.predict(X), np.ones(X.num_rows, dtype=bool), self.kind)]
        if self.probabilities:
            columns += [pa.array(each) for each in np.ascontiguousarray(self.model.predict_proba(X).T)]
        if self.coverage is not None and self.probabilities:
            columns.append(pa.array(["|".join(map(str, own)) for own in self.model.predict_set(X, self.coverage)]))
        elif self.coverage is not None:
            columns += [
                pa.array(each) for each in np.ascontiguousarray(self.model.predict_interval(X, self.coverage).T)
            ]
        return columns


def check_out(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--out is {str(path)!r}, expected a name that ends in .csv or .parquet.")
    if not path.parent.is_dir():
        raise UsageError(f"--out is {str(path)!r}, but {str(path.parent)!r} is no directory. Make it.")
    if path.exists():
        raise UsageError(f"--out is {str(path)!r}, which is there already. Name another file.")


def check_csv_columns(schema: Any) -> None:
    """Refuse columns that CSV cannot hold."""
    for field in schema:
        try:
            pa.csv.write_csv(pa.table({field.name: pa.nulls(1, field.type)}), pa.BufferOutputStream())
        except pa.ArrowException:
            told = "which CSV cannot hold. Leave it out, or write to a .parquet file."
            raise UsageError(f"column {field.name!r} is of type {field.type}, {told}") from None


def write_json_lines(table: Any) -> None:
    """Write rows to standard output, an object a line; what JSON has no word for as text."""
    lines = [json.dumps(plain_values(row), ensure_ascii=False, default=str) + "\n" for row in table.to_pylist()]
    sys.stdout.buffer.write("".join(lines).encode("utf-8", "backslashreplace"))


@contextmanager
def writing(path: Path | None, schema: Any, *, as_json: bool) -> Iterator[Callable[[Any], None]]:
    """Yield a function that writes tables to a new file, which appears once it is whole, or to standard output.

    There they are CSV, or with ``as_json`` JSON lines.
    """
    if path is None and as_json:
        yield write_json_lines
        return
    if path is None:
        with pa.csv.CSVWriter(sys.stdout.buffer, schema) as writer:
            yield writer.write_table
        return
    half = path.with_name(f".half.{path.name}")
    make = pa.csv.CSVWriter if path.suffix == ".csv" else pa.parquet.ParquetWriter
    try:
        with make(half, schema) as writer:
            yield writer.write_table
        half.rename(path)
    finally:
        half.unlink(missing_ok=True)
