"""``streamboost inspect``, ``freeze``, ``compare`` and ``theory``: what a saved model is, a small one of it, which of
two is better, its regret.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamboost.cli.arguments import (
    AsJson,
    Decimal,
    Delimiter,
    Encoding,
    Format,
    ModelPath,
    Names,
    Types,
    UsageError,
    check_column,
    examples,
    file_option,
    option,
    usage_errors,
)
from streamboost.cli.completion import complete_columns, complete_models, complete_nothing, complete_sources
from streamboost.cli.display import number, print_metrics, print_pairs, terminal

if TYPE_CHECKING:
    from rich.console import Console

FROZEN = examples(
    "streamboost freeze prices prices.safetensors",
    "streamboost predict today.csv --model prices.safetensors --out said.parquet",
)
COMPARED = examples("streamboost compare prices other --on today.csv --target price")
MEASURED = examples("streamboost theory today.csv --model prices --target price --out theory.html")


def inspect(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A run's directory, or a file that model.save wrote.", autocompletion=complete_models
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Say what a model is: its size, its columns, whom it trusts, how good its learners are, what happened to it."""
    from streamboost.cli.saved_models import load_file, load_model
    from streamboost.estimators.describe import describe, plain_metrics
    from streamboost.evaluation.scorebook import ScoreBook
    from streamboost.keyed import KeyedModel
    from streamboost.keyed.describe import describe_keyed
    from streamboost.persistence.checkpoints import Checkpoint

    with usage_errors():
        found = load_file(model)
        learned = load_model(model, takes_keyed=True)
        is_keyed = isinstance(learned, KeyedModel)
        about = describe_keyed(learned) if is_keyed else describe(learned)
    if isinstance(found, Checkpoint):
        about["checkpoint"] = {"rows": found.rows, "position": found.position, "bad_rows": found.state.get("n_bad", 0)}
        if history := found.state.get("history"):
            about["checkpoint"]["history"] = {key: has for key, has in history.items() if key != "position"}
        if isinstance(book := found.state.get("book"), ScoreBook):
            about["metrics"] = plain_metrics(book.report())
    if as_json:
        typer.echo(json.dumps(about, default=str))
        return
    print_pairs(terminal(), str(model), _facts(about))
    if about.get("metrics"):
        print_metrics(terminal(), "Prequential metrics", about["metrics"])
    _print_learners(terminal(), about)


def _facts(about: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("kind", about["kind"] + (", frozen: it predicts, and learns no more" if about["frozen"] else "")),
        ("rows", f"{about['rows']:,}"),
        *([("keys", f"{about['keys']:,}, by {about['key']}")] if "keys" in about else []),
        ("loss", about.get("loss", "")),
        ("size", f"{about.get('bytes', 0) / 1e6:.1f} MB of arrays"),
        ("parameters", ", ".join(f"{key}={value}" for key, value in about["parameters"].items()) or "the defaults"),
        ("columns", ", ".join(f"{column['name']} ({column['kind']})" for column in about["columns"])),
    ]
    if history := about.get("checkpoint", {}).get("history"):
        facts.append(("history", f"{history['rows']:,} rows, fitted" if history["is_fitted"] else "not fitted yet"))
    if about["classes"] is not None:
        facts.append(("classes", ", ".join(map(str, about["classes"]))))
    return facts


def _print_learners(console: Console, about: dict[str, Any]) -> None:
    if memories := about.get("memories"):
        lines = []
        for one in memories:
            memory = "all" if one["memory"] is None else f"{one['memory']:,}"
            trusted = sum(w["weight"] for w in about["weights"] if w["memory"] == one["memory"])
            lines.append((memory, f"{one['learners']} x {one['learner']}", _edges(one["edges"]), f"{trusted:.3f}"))
        print_pairs(console, "Memories", lines, ("rows", "learners", "edges: mean, least, last", "trusted"))
    if shares := about.get("importances"):
        rows = [(key, f"{share:.3f}", "█" * round(40 * share)) for key, share in list(shares.items())[:20]]
        print_pairs(console, "Importances", rows, ("column", "share", ""))
    if events := about.get("events"):
        rows = [(f"{event['row']:,}", event["kind"], event["detail"]) for event in events[-20:]]
        print_pairs(console, f"Events (the latest of {len(events)})", rows, ("row", "kind", "detail"))


def _edges(edges: list[float | None]) -> str:
    known = [edge for edge in edges if edge is not None]
    return f"{sum(known) / len(known):.3f}, {min(known):.3f}, {known[-1]:.3f}" if known else ""


def freeze(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A run's directory, or a saved model.", autocompletion=complete_models),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file; it is written over.", autocompletion=complete_nothing)
    ],
    as_json: AsJson = False,
) -> None:
    """Write what a model needs to predict as a small file, for predict, serve and streamboost.load.

    It predicts the same, bit for bit, and learns no more. The model stays as it is.
    """
    from streamboost.cli.saved_models import load_model
    from streamboost.estimators.describe import size

    with usage_errors():
        found = load_model(model, must_have_learned=True)
        if out.exists() and model.is_file() and out.samefile(model):
            raise UsageError(f"OUT is {str(out)!r}, the model itself, which would learn no more. Name another file.")
        if out.is_dir() or not out.parent.is_dir():
            raise UsageError(f"OUT is {str(out)!r}, expected a file in a folder that is there. Add a name, or make it.")
    frozen = found.freeze()
    frozen.save(out)
    rows, n_bytes = found.n_samples_seen_, out.stat().st_size
    if as_json:
        typer.echo(json.dumps({"rows": rows, "bytes": n_bytes, "out": str(out)}))
        return
    told = f"{size(frozen) / 1e6:.1f} MB of arrays instead of {size(found) / 1e6:.1f}"
    terminal(stderr=True).print(f"{rows:,} rows learned, {told}: {out}")


def compare(
    context: typer.Context,
    a: Annotated[
        Path, typer.Argument(metavar="A", help="A run's directory, or a saved model.", autocompletion=complete_models)
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.", autocompletion=complete_models)],
    on: Annotated[list[str], option("Rows to predict with both; may be repeated.", "SOURCE")],
    target: Annotated[str, option("Their target.", "COL", complete=complete_columns)],
    format: Format = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    names: Names = None,
    as_json: AsJson = False,
) -> None:
    """Score two models on the same rows, which neither of them learns."""
    from streamboost.cli.rows import open_rows
    from streamboost.cli.saved_models import load_model
    from streamboost.estimators.describe import plain
    from streamboost.evaluation.adapters import known_kinds, task_of
    from streamboost.evaluation.predictions import predict
    from streamboost.evaluation.scorebook import ScoreBook, Scored, choose_metrics
    from streamboost.runs.guard import Guard

    with usage_errors():
        models = {"A": load_model(a), "B": load_model(b)}
        task, other = map(task_of, models.values())
        if task != other:
            raise UsageError("A and B have different tasks, so there is nothing to compare.")
        kinds = known_kinds(models["B"], target) | known_kinds(models["A"], target)
        rows = open_rows(on, context.params, kinds=kinds)
        if (first := rows.first()) is not None:
            check_column(target, first.column_names, "--target")
    books = {
        name: ScoreBook(choose_metrics(model, task, None, hasattr(model, "predict_proba")), every=2**62, window=1)
        for name, model in models.items()
    }
    for batch in rows.read():
        found = Guard().validate(batch.table, target, task)
        for name, model in models.items():
            list(books[name].add(Scored(found.y, predict(model, found.X), 0.0)))
    reports, n_rows = {name: book.report().running for name, book in books.items()}, books["A"].rows
    metrics = {name: {who: plain(scores[name]) for who, scores in reports.items()} for name in reports["A"]}
    if as_json:
        typer.echo(json.dumps({"rows": n_rows, "metrics": metrics}))
        return
    lines = [(name, number(each["A"]), number(each["B"])) for name, each in metrics.items()]
    print_pairs(terminal(), f"{a} and {b} on {n_rows:,} rows", lines, ("", "A", "B"))


def theory(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE", help="Rows the model has not learned; as in run.", autocompletion=complete_sources
        ),
    ],
    model: ModelPath,
    target: Annotated[str, option("The column to predict.", "COL", complete=complete_columns)],
    out: Annotated[Path, file_option("The page; it is written over.")] = Path("theory.html"),
    max_rows: Annotated[int, option("How many rows to take at the most.", "N", min=1)] = 10_000,
    type: Types = None,
    format: Format = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    names: Names = None,
    as_json: AsJson = False,
) -> None:
    """Measure regret, edges and bounds of a saved model, and write them as a page; the model stays as it is."""
    import pyarrow as pa

    from streamboost.cli.rows import open_rows
    from streamboost.cli.saved_models import known_columns, load_model
    from streamboost.estimators.describe import plain
    from streamboost.evaluation.adapters import known_kinds, task_of
    from streamboost.runs.guard import Guard
    from streamboost.sources import BadRow
    from streamboost.theory.report import report

    bad: list[BadRow] = []
    console = terminal(stderr=True, quiet=as_json)
    with usage_errors():
        estimator = load_model(model, must_have_learned=True, must_learn=True)
        kinds = known_kinds(estimator, target)
        rows = open_rows(source, context.params, kinds=kinds, strict=False, end_after=max_rows)
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
    with_all = f"average regret {regret.by_learners[-1]:.4g} with all {len(regret.edges)} learners"
    with_best = f"{regret.by_learners[best]:.4g} with {best}"
    console.print(f"{n:,} rows{passed_over}: {with_all}, {with_best}. The page: {out}")
