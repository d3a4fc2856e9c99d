"""``streamboost theory``: what the theory says of a saved model on rows it has not learned, as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from streamboost.cli.display import terminal
from streamboost.cli.model_commands import AsJson, ModelPath, known_columns, load_model
from streamboost.cli.source_options import Format, PeekableSource, Types, option, source_options
from streamboost.cli.usage_errors import UsageError, check_column, usage_errors
from streamboost.estimators.describe import plain
from streamboost.evaluation.adapters import task_of
from streamboost.runs.guard import Guard
from streamboost.sources import BadRow, open_source


def theory(
    source: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Rows the model has not learned; as in run.")
    ],
    model: ModelPath,
    target: Annotated[str, option("The column to predict.", "COL")],
    out: Annotated[Path, option("The page; it is written over.", "FILE")] = Path("theory.html"),
    max_rows: Annotated[int, option("How many rows to take at the most.", "N", min=1)] = 10_000,
    type: Types = None,
    format: Format = None,
    as_json: AsJson = False,
) -> None:
    """Measure regret, edges and bounds of a saved model, and write them as a page; the model stays as it is."""
    bad: list[BadRow] = []
    console = terminal(stderr=True, quiet=as_json)
    with usage_errors():
        from streamboost.theory.report import report

        estimator = load_model(model, must_have_learned=True)
        options = source_options(source, format=format, types=type or ())
        rows = PeekableSource(open_source(*source, **options), end_after=max_rows)
        rows.on_bad = bad.append
        tables = [batch.table for batch in rows.read()]
        if not tables:
            raise UsageError("the source has no rows, expected some that the model has not learned.")
        table = pa.concat_tables(tables, promote_options="default")
        check_column(target, table.column_names, "--target")
        found = Guard().validate(table, target, task_of(estimator), estimator)
        n = len(found.y)
        if not n:
            reason = next(iter(found.reasons.values()))
            raise UsageError(f"none of the {table.num_rows:,} rows can be learned; of the first it is said: {reason}")
        with console.status(f"{n:,} rows are predicted and learned by a copy of the model ..."):
            regret = report(estimator, known_columns(estimator, found.X), found.y, out)
    best, n_bad = int(regret.by_learners.argmin()), len(bad) + len(found.reasons)
    if as_json:
        numbers = {"regret": regret.by_learners, "edges": regret.edges}
        lists = {name: [plain(value) for value in values.tolist()] for name, values in numbers.items()}
        typer.echo(json.dumps({"rows": n, "bad_rows": n_bad, **lists, "best_learners": best, "out": str(out)}))
        return
    passed_over = f"; {n_bad:,} bad rows passed over" if n_bad else ""
    console.print(
        f"{n:,} rows{passed_over}: average regret {regret.by_learners[-1]:.4g} with all "
        f"{len(regret.edges)} learners, {regret.by_learners[best]:.4g} with {best}. The page: {out}"
    )
