"""``streamboost predict``: what a saved model says of the rows of a source."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer

from streamboost.cli.display import terminal
from streamboost.cli.model_commands import AsJson, ModelPath, load_model
from streamboost.cli.source_options import Format, Types, source_options
from streamboost.cli.usage_errors import Refused, asked, check_column
from streamboost.estimators import SGBClassifier
from streamboost.estimators.base import StreamEstimator
from streamboost.runs.prediction_files import as_column, label_type
from streamboost.sources import open_source


def predict(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Rows to predict; as in run.")],
    model: ModelPath,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv or .parquet file; CSV to stdout if left out."),
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(metavar="COL", help="A column to copy; may be repeated.")] = None,
    type: Types = None,
    format: Format = None,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a source with a saved model; the model stays as it is."""
    with asked():
        asked_model = load_model(model)
        if out is not None:
            check_out(out)
        batches = iter(open_source(*source, **source_options(source, format=format, types=type or ())).read())
        first = next(batches, None)
        said = Said(asked_model, keep or [], None if first is None else first.table.schema, str(model))
        if out is None or out.suffix == ".csv":
            check_columns(said.schema)
    n_rows = 0
    with _writing(out, said.schema, is_silent=as_json) as write:
        while first is not None:
            write(said.of(first.table, n_rows))
            n_rows += first.table.num_rows
            first = next(batches, None)
    if as_json:
        typer.echo(json.dumps({"rows": n_rows, "out": None if out is None else str(out)}))
    elif out is not None:
        terminal(stderr=True).print(f"{n_rows:,} rows: {out}")


class Said:
    """What a model says of tables of rows, as columns to be written.

    Parameters
    ----------
    model : StreamEstimator
    keep : sequence of str
        Columns to copy.
    schema : pyarrow.Schema, optional
        Of the rows; None if there are none.
    name : str
        Of the model, for people.
    """

    def __init__(self, model: StreamEstimator, keep: Sequence[str], schema: Any, name: str) -> None:
        if not hasattr(model, "committee_"):
            raise Refused(f"{name!r} has learned no row yet. Run it on a stream first.")
        self.model, self.keep = model, list(dict.fromkeys(keep))
        self.kind, self.probabilities = pa.float64(), []
        if isinstance(model, SGBClassifier):
            self.kind = label_type(pa.array(model.classes_.tolist()).type)
            if hasattr(model, "predict_proba"):
                self.probabilities = [f"probability_{label}" for label in model.classes_]
        for column in {"row", "prediction", *self.probabilities}.intersection(self.keep):
            raise Refused(
                f"--keep is {column!r}, but a column of this name says what the model says. Rename it in the source."
            )
        kept = []
        for name in self.keep:
            if schema is not None:
                check_column(name, schema.names, "--keep")
            kept.append((name, pa.null() if schema is None else schema.field(name).type))
        numbers = [(name, pa.float64()) for name in self.probabilities]
        self.schema = pa.schema([("row", pa.int64()), *kept, ("prediction", self.kind), *numbers])

    def of(self, table: Any, start: int) -> Any:
        """The columns for rows whose first is number ``start``."""
        names = self.model.encoder_.names
        X = table.select([name for name in table.column_names if names is None or name in names])
        rows = np.arange(start, start + table.num_rows)
        said = self._ask(X, start)
        kept = [table[name].cast(self.schema.field(name).type) for name in self.keep]
        return pa.table([pa.array(rows), *kept, *said], schema=self.schema)

    def _ask(self, X: Any, start: int) -> list[Any]:
        try:
            return self._columns(X)
        except (TypeError, ValueError):
            for row in range(X.num_rows):
                try:
                    self._columns(X.slice(row, 1))
                except (TypeError, ValueError) as error:
                    raise ValueError(f"row {start + row} cannot be predicted: {error}") from error
            raise

    def _columns(self, X: Any) -> list[Any]:
        values, n = self.model.predict(X), X.num_rows
        if not isinstance(self.model, SGBClassifier):
            return [pa.array(np.asarray(values, dtype=float))]
        said = [as_column(values, np.ones(n, dtype=bool), self.kind)]
        if self.probabilities:
            said += [pa.array(share) for share in np.ascontiguousarray(self.model.predict_proba(X).T)]
        return said


def check_out(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix not in (".csv", ".parquet"):
        raise Refused(f"--out is {str(path)!r}, expected a name that ends in .csv or .parquet.")
    if not path.parent.is_dir():
        raise Refused(f"--out is {str(path)!r}, but {str(path.parent)!r} is no directory. Make it.")
    if path.exists():
        raise Refused(f"--out is {str(path)!r}, which is there already. Name another file.")


def check_columns(schema: Any) -> None:
    """Refuse columns that CSV cannot hold."""
    for field in schema:
        try:
            pa.csv.write_csv(pa.table({field.name: pa.nulls(1, field.type)}), pa.BufferOutputStream())
        except pa.ArrowException:
            raise Refused(
                f"column {field.name!r} is of type {field.type}, which CSV cannot hold. Leave it out, or write to a "
                ".parquet file."
            ) from None


@contextmanager
def _writing(path: Path | None, schema: Any, *, is_silent: bool) -> Iterator[Callable[[Any], None]]:
    """What to call with each table: it goes to a new file, which is there once it is whole, or to standard output."""
    if path is None:
        if is_silent:
            yield lambda table: None
            return
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
