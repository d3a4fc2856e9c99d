"""``streamboost inspect`` and ``compare``: what a model that was saved is, and which of two is better."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from streamboost.checkpoints import Checkpoint, checkpoint_paths, read_latest
from streamboost.cli.reading import Format, source_options
from streamboost.cli.refusals import Refused, asked, check_column
from streamboost.cli.screens import number, print_pairs, terminal
from streamboost.cluster.crew import Cut
from streamboost.contenders import gives_probabilities, speak_to
from streamboost.estimator_base import StreamEstimator
from streamboost.estimators import SGBClassifier
from streamboost.guards import Guard
from streamboost.inspection import describe, plain, plain_metrics
from streamboost.scores import ScoreBook, Scored, choose_metrics
from streamboost.snapshots import load
from streamboost.sources import Batch, open_source

ModelPath = Annotated[Path, typer.Option(metavar="MODEL", help="A run's directory, or a file that model.save wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def load_model(path: Path) -> StreamEstimator:
    """The model of a file, or of the newest checkpoint of a directory."""
    model = _load(path)
    model = model.model if isinstance(model, Checkpoint) else model
    if isinstance(model, Cut):
        raise ValueError(
            f"{str(path)!r} is of a model that lives on {model.n_workers} workers ({model.kind}). Go on with it by "
            "streamboost run --resume, or attach it in Python: see docs/scale.md."
        )
    if not isinstance(model, StreamEstimator):
        raise ValueError(f"{str(path)!r} holds a {type(model).__name__}, expected an SGBRegressor or SGBClassifier.")
    return model


def _load(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(
            f"{str(path)!r} does not exist, expected a run's directory or a file of model.save. Look for a typo."
        )
    if not path.is_dir():
        return load(path)
    live = path / "live"
    is_served = live.is_dir() and bool(checkpoint_paths(live))
    return read_latest(live if is_served and not checkpoint_paths(path) else path)


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run's directory, or a file that model.save wrote.")],
    as_json: AsJson = False,
) -> None:
    """Say what a model is: its size, its columns, whom it trusts, how good its learners are, what happened to it."""
    with asked():
        found = _load(model)
        on_workers = isinstance(found, Checkpoint) and isinstance(found.model, Cut)
        about = _describe_cut(found) if on_workers else describe(load_model(model))
    if isinstance(found, Checkpoint):
        about["checkpoint"] = {"rows": found.rows, "position": found.position, "bad_rows": found.state.get("n_bad", 0)}
        book = found.state.get("book")
        if isinstance(book, ScoreBook):
            about["metrics"] = plain_metrics(book.report())
    if as_json:
        typer.echo(json.dumps(about, default=str))
        return
    if on_workers:
        print_pairs(terminal(), str(model), [(what, str(about[what])) for what in ("kind", "rows", "workers", "files")])
        _print_metrics(terminal(), about)
    else:
        _print_model(terminal(), about, str(model))


def _describe_cut(found: Checkpoint) -> dict[str, Any]:
    """What a checkpoint tells of a model that lives on workers: what the workers have stays where it is."""
    cut = found.model
    return {"kind": cut.kind, "rows": found.rows, "workers": cut.n_workers, "files": cut.directory}


def _print_model(console: Console, about: dict[str, Any], name: str) -> None:
    facts = [
        ("kind", about["kind"]),
        ("rows", f"{about['rows']:,}"),
        ("loss", about.get("loss", "")),
        ("size", f"{about.get('bytes', 0) / 1e6:.1f} MB of arrays"),
        ("parameters", ", ".join(f"{key}={value}" for key, value in about["parameters"].items()) or "the defaults"),
        ("columns", ", ".join(f"{column['name']} ({column['kind']})" for column in about["columns"])),
    ]
    if about["classes"] is not None:
        facts.append(("classes", ", ".join(map(str, about["classes"]))))
    print_pairs(console, name, facts)
    _print_metrics(console, about)
    if memories := about.get("memories"):
        lines = [
            (
                "all" if one["memory"] is None else f"{one['memory']:,}",
                f"{one['learners']} x {one['learner']}",
                _edges(one["edges"]),
                f"{sum(w['weight'] for w in about['weights'] if w['memory'] == one['memory']):.3f}",
            )
            for one in memories
        ]
        print_pairs(console, "Memories", lines, ("rows", "learners", "edges: mean, least, last", "trusted"))
    if shares := about.get("importances"):
        rows = [(key, f"{share:.3f}", "█" * round(40 * share)) for key, share in list(shares.items())[:20]]
        print_pairs(console, "Importances", rows, ("column", "share", ""))
    if events := about.get("events"):
        rows = [(f"{event['row']:,}", event["kind"], event["detail"]) for event in events[-20:]]
        print_pairs(console, f"Events (the latest of {len(events)})", rows, ("row", "kind", "detail"))


def _print_metrics(console: Console, about: dict[str, Any]) -> None:
    if metrics := about.get("metrics"):
        rows = [(key, number(value["running"]), number(value["windowed"])) for key, value in metrics.items()]
        print_pairs(console, "Prequential metrics", rows, ("metric", "all rows", "latest rows"))


def _edges(edges: list[float | None]) -> str:
    known = [edge for edge in edges if edge is not None]
    return f"{np.mean(known):.3f}, {min(known):.3f}, {known[-1]:.3f}" if known else ""


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run's directory, or a saved model.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    on: Annotated[list[str] | None, typer.Option(metavar="SOURCE", help="Rows to predict with both.")] = None,
    target: Annotated[str | None, typer.Option(metavar="COL", help="Their target.")] = None,
    format: Format = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models: what they are, and with --on SOURCE --target COL what they say of the same rows."""
    with asked():
        models = {"A": load_model(a), "B": load_model(b)}
        abouts = {name: describe(model) for name, model in models.items()}
        if (on is None) != (target is None):
            raise Refused("--on and --target belong together: rows, and the column to predict.")
        if len({about["task"] for about in abouts.values()}) > 1:
            raise Refused("A and B have different tasks, so there is nothing to compare.")
        batches = None if on is None else _opened(on, format)
    found: dict[str, Any] = {"A": abouts["A"], "B": abouts["B"], "on": None}
    if batches is not None and target is not None:
        found["on"] = _contest(models, batches, target)
    if as_json:
        typer.echo(json.dumps(found, default=str))
        return
    console = terminal()
    rows = [
        (name, str(abouts["A"].get(name)), str(abouts["B"].get(name)))
        for name in ("kind", "rows", "loss", "parameters", "bytes", "classes")
    ]
    print_pairs(console, f"{a} and {b}", rows, ("", "A", "B"))
    if found["on"]:
        scores = found["on"]
        rows = [(name, number(v["A"]), number(v["B"])) for name, v in scores["metrics"].items()]
        rows += [("rows nearer to the target", f"{scores['nearer']['A']:,}", f"{scores['nearer']['B']:,}")]
        print_pairs(console, f"On {scores['rows']:,} rows", rows, ("", "A", "B"))


def _opened(on: list[str], format: str | None) -> Iterator[Batch]:
    """The batches of a source, of which the first is there: what is wrong with the source shows before it is used."""
    batches = iter(open_source(*on, **source_options(on, format=format)).read())
    return itertools.chain([batch for batch in [next(batches, None)] if batch is not None], batches)


def _contest(models: dict[str, Any], batches: Iterator[Batch], target: str) -> dict[str, Any]:
    """Both models predict the same rows and learn none."""
    task = "classification" if isinstance(models["A"], SGBClassifier) else "regression"
    books, contenders = {}, {}
    for name, model in models.items():
        kinds = choose_metrics(model, task, None, False)  # type: ignore[arg-type]
        books[name] = ScoreBook(kinds, every=2**62, window=1)
        contenders[name] = speak_to(
            model,
            task,  # type: ignore[arg-type]
            wants_probabilities=task == "classification" and gives_probabilities(model),
            has_dicts=False,
            classes=None,
        )
    nearer, n_rows = {"A": 0, "B": 0}, 0
    for batch in batches:
        check_column(target, batch.table.column_names, "--target")
        sifted = Guard().sift(batch.table, target, task)  # type: ignore[arg-type]
        n_rows += len(sifted.y)
        misses = {}
        for name, contender in contenders.items():
            answers = contender.answers(contender.predict(sifted.X), len(sifted.y))
            for _ in books[name].take_in(Scored(sifted.y, answers, 0.0), None):
                pass
            is_number = task == "regression"
            misses[name] = np.abs(answers.values - sifted.y) if is_number else (answers.values != sifted.y) * 1.0
        nearer["A"] += int((misses["A"] < misses["B"]).sum())
        nearer["B"] += int((misses["B"] < misses["A"]).sum())
    reports = {name: book.report() for name, book in books.items()}
    metrics = {name: {who: plain(reports[who].running[name]) for who in reports} for name in reports["A"].running}
    return {"rows": n_rows, "metrics": metrics, "nearer": nearer}
