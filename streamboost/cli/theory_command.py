"""``streamboost theory``: what the theory says of a saved model on rows it has not learned, as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from streamboost.cli.display import terminal
from streamboost.cli.model_commands import AsJson, ModelPath, load_model
from streamboost.cli.source_options import Format, Peeked, Types, source_options
from streamboost.cli.usage_errors import Refused, asked, check_column
from streamboost.estimators import SGBClassifier
from streamboost.estimators.describe import plain
from streamboost.runs.guard import Guard, Sifted
from streamboost.sources import BadRow, open_source


def theory(
    source: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Rows the model has not learned; as in run.")
    ],
    model: ModelPath,
    target: Annotated[str, typer.Option(metavar="COL", help="The column to predict.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page; it is written over.")] = Path("theory.html"),
    max_rows: Annotated[int, typer.Option(min=1, metavar="N", help="How many rows to take at the most.")] = 10_000,
    type: Types = None,
    format: Format = None,
    as_json: AsJson = False,
) -> None:
    """Measure regret, edges and bounds of a saved model, and write them as a page; the model stays as it is."""
    bad: list[BadRow] = []
    console = terminal(stderr=True, quiet=as_json)
    with asked():
        from streamboost.theory.report import report

        estimator = load_model(model)
        if not hasattr(estimator, "committee_"):
            raise Refused(f"{str(model)!r} has learned no row yet. Run it on a stream first.")
        options = source_options(source, format=format, types=type or ())
        rows = Peeked(open_source(*source, **options), end_after=max_rows)
        rows.on_bad = bad.append
        sifted = _sifted(rows, target, estimator)
        names = estimator.encoder_.names
        X = sifted.X.select([name for name in sifted.X.column_names if names is None or name in names])
        with console.status(f"{len(sifted.y):,} rows are predicted and learned by a copy of the model ..."):
            regret = report(estimator, X, sifted.y, out)
    best, n_bad = int(regret.by_learners.argmin()), len(bad) + len(sifted.reasons)
    if as_json:
        found = {
            "rows": len(sifted.y),
            "bad_rows": n_bad,
            "regret": [plain(value) for value in regret.by_learners.tolist()],
            "edges": [plain(value) for value in regret.edges.tolist()],
            "best_learners": best,
            "out": str(out),
        }
        typer.echo(json.dumps(found))
        return
    passed_over = f"; {n_bad:,} bad rows passed over" if n_bad else ""
    console.print(
        f"{len(sifted.y):,} rows{passed_over}: average regret {regret.by_learners[-1]:.4g} with all "
        f"{len(regret.edges)} learners, {regret.by_learners[best]:.4g} with {best}. The page: {out}"
    )


def _sifted(rows: Peeked, target: str, model: Any) -> Sifted:
    """All rows that can be learned."""
    tables = [batch.table for batch in rows.read()]
    if not tables:
        raise Refused("the source has no rows, expected some that the model has not learned.")
    table = pa.concat_tables(tables, promote_options="default")
    check_column(target, table.column_names, "--target")
    task = "classification" if isinstance(model, SGBClassifier) else "regression"
    sifted = Guard().sift(table, target, task, model)  # type: ignore[arg-type]
    if not len(sifted.y):
        reason = next(iter(sifted.reasons.values()))
        raise Refused(f"none of the {table.num_rows:,} rows can be learned; of the first it is said: {reason}")
    return sifted
