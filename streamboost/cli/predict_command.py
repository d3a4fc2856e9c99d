"""``streamboost predict``: the predictions of a saved model for the rows of a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from streamboost.cli.arguments import (
    Decimal,
    Delimiter,
    Encoding,
    Format,
    ModelPath,
    Names,
    Types,
    examples,
    file_option,
    flag,
    option,
    usage_errors,
)
from streamboost.cli.completion import complete_columns, complete_sources
from streamboost.cli.display import terminal

EXAMPLES = examples(
    "streamboost predict today.csv --model prices --out said.parquet",
    "streamboost predict today.csv --model prices --keep id > said.csv",
    "streamboost predict today.csv --model prices --interval 0.9 --out said.parquet",
    "streamboost predict today.csv --model prices --json > said.jsonl",
)


def predict(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Rows to predict; as in run.", autocompletion=complete_sources),
    ],
    model: ModelPath,
    out: Annotated[Path | None, file_option("A .csv or .parquet file; CSV to stdout if left out.")] = None,
    keep: Annotated[
        list[str] | None, option("A column to copy; may be repeated.", "COL", complete=complete_columns)
    ] = None,
    interval: Annotated[
        float | None, option("Columns low and high, or set: what covers this share of targets.", "SHARE")
    ] = None,
    type: Types = None,
    format: Format = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    names: Names = None,
    as_json: Annotated[
        bool, flag("Print an object a row; with --out, one that says how many there were.", "--json")
    ] = False,
) -> None:
    """Predict the rows of a source with a saved model; the model stays as it is."""
    from streamboost.cli.prediction_output import PredictionColumns, check_csv_columns, check_out, writing
    from streamboost.cli.rows import open_rows
    from streamboost.cli.saved_models import load_model
    from streamboost.evaluation.adapters import known_kinds

    with usage_errors():
        estimator = load_model(model, must_have_learned=True, takes_keyed=True)
        if out is not None:
            check_out(out)
        rows = open_rows(source, context.params, kinds=known_kinds(estimator))
        first = rows.first()
        columns = PredictionColumns(estimator, keep or [], None if first is None else first.schema, interval)
        if (out is None and not as_json) or (out is not None and out.suffix == ".csv"):
            check_csv_columns(columns.schema)
    n_rows = 0
    with writing(out, columns.schema, as_json=as_json) as write:
        for batch in rows.read():
            write(columns.predict(batch.table, n_rows))
            n_rows += batch.table.num_rows
    if as_json and out is not None:
        typer.echo(json.dumps({"rows": n_rows, "out": str(out)}))
    elif as_json or out is not None:
        terminal(stderr=True).print(f"{n_rows:,} rows: {out or 'on standard output'}")
