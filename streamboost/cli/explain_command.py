"""``streamboost explain``: what each column contributes to what a saved model says of the rows of a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamboost.cli.arguments import (
    Decimal,
    Delimiter,
    Encoding,
    Format,
    ModelPath,
    Names,
    Types,
    UsageError,
    examples,
    file_option,
    flag,
    option,
    usage_errors,
)
from streamboost.cli.completion import complete_sources
from streamboost.cli.display import number, print_pairs, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from streamboost._types import FloatArray
    from streamboost.estimators.base import StreamEstimator

EXAMPLES = examples(
    "streamboost explain today.csv --model prices",
    "streamboost explain today.csv --model prices --row 7 --picture why.png",
    "streamboost explain today.csv --model prices --out why.parquet",
)
REST = "(rest)"  # what no column contributes
SHOWN = 20  # columns of a row on a terminal
BAR = 24  # letters of the longest bar


def explain(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Rows to explain; as in run.", autocompletion=complete_sources),
    ],
    model: ModelPath,
    row: Annotated[int, option("Which row to show or draw, from 0 on.", "N", min=0)] = 0,
    picture: Annotated[Path | None, file_option("Draw the row, as .png or .svg; it is written over.")] = None,
    out: Annotated[Path | None, file_option("All rows, to a .csv or .parquet file.")] = None,
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
    """Say what each column contributes to the score of a row, or of all rows; they add up to it exactly.

    The score is the prediction; of classes the log-odds of the second, or the score of the class that is predicted.
    """
    from streamboost.cli.prediction_output import check_csv_columns, check_out, writing
    from streamboost.cli.rows import open_rows
    from streamboost.cli.saved_models import known_columns, load_model
    from streamboost.estimators.waterfall import draw_waterfall
    from streamboost.evaluation.adapters import known_kinds

    with usage_errors():
        estimator = load_model(model, must_have_learned=True)
        if not hasattr(estimator, "explain"):
            raise UsageError(
                "explain is for one model. Of a model for each key: model.model(key).explain(X) in Python."
            )
        if out is not None:
            check_out(out)
        rows = open_rows(source, context.params, kinds=known_kinds(estimator))
        schema = contribution_schema(estimator)
        if out is not None and out.suffix == ".csv":
            check_csv_columns(schema)
    if out is None and not as_json:
        n_before, found = 0, None
        for batch in rows.read():
            if row < n_before + batch.table.num_rows:
                found = contribution_table(
                    estimator, known_columns(estimator, batch.table.slice(row - n_before, 1)), row
                )
                break
            n_before += batch.table.num_rows
        if found is None:
            raise UsageError(f"--row is {row}, but the source has {n_before:,} rows. Count from 0.")
        said = found.to_pylist()[0]
        if picture is not None:
            contributions = {name: said[name] for name in schema.names[3:]}
            draw_waterfall(contributions, said["score"], picture, rest=REST, title=_title(said))
            terminal(stderr=True).print(f"Picture: {picture}")
        _print_row(terminal(), said)
        return
    if picture is not None:
        raise UsageError("--picture draws one row. Leave --out and --json out.")
    n_rows = 0
    with writing(out, schema, as_json=as_json) as write:
        for batch in rows.read():
            write(contribution_table(estimator, known_columns(estimator, batch.table), n_rows))
            n_rows += batch.table.num_rows
    if as_json and out is not None:
        typer.echo(json.dumps({"rows": n_rows, "out": str(out)}))
    else:
        terminal(stderr=True).print(f"{n_rows:,} rows: {out or 'on standard output'}")


def contribution_schema(model: StreamEstimator) -> Any:
    """Return the columns of an explanation: row, prediction, score, one for each column of the model, the rest."""
    import pyarrow as pa

    from streamboost.estimators import SGBClassifier
    from streamboost.estimators.explaining import column_names
    from streamboost.runs.prediction_files import label_type

    kind = pa.float64()
    if isinstance(model, SGBClassifier):
        kind = label_type(pa.array(model.classes_.tolist()).type)
    names = [str(name) for name in column_names(model)]
    taken = {"row", "prediction", "score", REST}.intersection(names)
    if taken:
        raise UsageError(
            f"the model has a column {taken.pop()!r}, a name that explanations use. Rename it in the source."
        )
    numbers = [(name, pa.float64()) for name in ("score", *names, REST)]
    return pa.schema([("row", pa.int64()), ("prediction", kind), *numbers])


def contribution_table(model: StreamEstimator, X: Any, start: int) -> Any:
    """Return the explanation of rows whose first is number ``start``."""
    import numpy as np
    import pyarrow as pa

    from streamboost.runs.prediction_files import as_column

    schema, explained = contribution_schema(model), model.explain(X)
    predicted = model.predict(X)
    if explained.ndim == 3:
        explained = of_predicted(model, explained, predicted)
    said = as_column(predicted, np.ones(len(explained), dtype=bool), schema.field("prediction").type)
    columns = [explained.sum(axis=1), *explained.T]
    rows = np.arange(start, start + len(explained))
    return pa.table([pa.array(rows), said, *(pa.array(np.ascontiguousarray(each)) for each in columns)], schema=schema)


def of_predicted(model: StreamEstimator, explained: FloatArray, predicted: Any) -> FloatArray:
    """Return the contributions (n, c + 1) to the score of the class that is predicted."""
    import numpy as np

    if not hasattr(model, "classes_"):
        raise UsageError("the model has several targets: explain it in Python, by model.explain(X).")
    places = {label: k for k, label in enumerate(model.classes_.tolist())}
    own = np.array([places[label] for label in predicted.tolist()])
    chosen: FloatArray = np.take_along_axis(explained, own[:, None, None], axis=2)[..., 0]
    return chosen


def _print_row(console: Console, said: dict[str, Any]) -> None:
    """Print the contributions to one score, the largest first, as numbers and bars."""
    columns = {name: value for name, value in said.items() if name not in ("row", "prediction", "score", REST)}
    ordered = sorted(columns.items(), key=lambda item: -abs(item[1]))
    largest = max((abs(value) for value in columns.values()), default=0.0) or 1.0
    lines = [
        (
            name,
            f"{'+' if value > 0 else ''}{number(value)}",
            ("█" if value > 0 else "░") * round(BAR * abs(value) / largest),
        )
        for name, value in ordered[:SHOWN]
    ]
    if len(ordered) > SHOWN:
        others = sum(value for _, value in ordered[SHOWN:])
        lines.append((f"{len(ordered) - SHOWN} more", f"{'+' if others > 0 else ''}{number(others)}", ""))
    lines += [("what no column contributes", number(said[REST]), ""), ("score", number(said["score"]), "")]
    print_pairs(console, _title(said), lines, ("column", "contributes", "█ up, ░ down"))


def _title(said: dict[str, Any]) -> str:
    predicted = said["prediction"]
    return f"Row {said['row']}: {number(predicted) if isinstance(predicted, float) else predicted}"
