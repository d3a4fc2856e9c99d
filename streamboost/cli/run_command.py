"""``streamboost run``: a source learned row after row, watched, and safe to kill."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from streamboost._types import Task
from streamboost.cli.display import Dashboard, Screen, print_columns, print_summary, terminal
from streamboost.cli.model_commands import load_model
from streamboost.cli.resume_checks import (
    check_resumed,
    check_same_predictions,
    check_same_scores,
    read_before,
    same_ignored,
)
from streamboost.cli.source_options import Format, Peeked, Types, source_options
from streamboost.cli.usage_errors import Refused, asked, check_column, sentence_of
from streamboost.dashboard.export import write_page
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.estimators.describe import plain_metrics
from streamboost.evaluation.metrics import BY_NAME
from streamboost.evaluation.reports import Report
from streamboost.evaluation.scorebook import choose_metrics
from streamboost.runs.guard import Guard, label_kind
from streamboost.runs.run import Interrupted, Options, Run
from streamboost.sources import open_source

Seconds = float
ESTIMATORS: dict[str, Any] = {"regression": SGBRegressor, "classification": SGBClassifier}
WINDOW = 1000
ROWS_TRIED = 20  # to tell parameters that are wrong from rows that are


def run(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files, globs, -, kafka://host/topic, redis://host/0/stream, synthetic:friedman, shipped:abalone.",
        ),
    ],
    target: Annotated[str, typer.Option(metavar="COL", help="The column to predict.")],
    task: Annotated[str, typer.Option(help="regression, classification, or auto: as the first targets look.")] = "auto",
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where checkpoints and quarantine live; without it, nowhere."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")
    ] = False,
    checkpoint_every: Annotated[
        str, typer.Option(metavar="N", help="Rows (10000) or time (30s, 5m) between checkpoints.")
    ] = "30s",
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write what was predicted of every row: Parquet parts, or CSV if the name ends in .csv.",
        ),
    ] = None,
    start_from: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Begin with a saved model, or with that of another run.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A parameter of the model, such as n_estimators=100; may be repeated."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"One of {', '.join(BY_NAME)}; may be repeated.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Rows between reports.")] = 1000,
    window: Annotated[
        int | None,
        typer.Option(min=1, help=f"How many of the latest rows windowed metrics look at; {WINDOW} if left out."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="A column to leave out; may be repeated.")
    ] = None,
    type: Types = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more rows at the end, like tail -f.")] = False,
    max_rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many more rows.")] = None,
    format: Format = None,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first bad row.")] = False,
    max_bad: Annotated[int | None, typer.Option(min=0, help="End when there are more bad rows than this.")] = None,
    seed: Annotated[int | None, typer.Option(help="The model's random state; 0 if left out.")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="COL", help="A model of its own for each value of this column.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="How many workers the models of --key live on.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Put them on Ray: host:port, auto, or local to start one.")
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Serve a page to watch the run on.")] = False,
    dashboard_port: Annotated[int, typer.Option(min=0, max=65535, help="Where; 0 for any free port.")] = 8765,
    report: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Write the dashboard as one file at the end.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on the way.")] = False,
) -> None:
    """Learn a stream: predict every row, then learn it, and say how that goes.

    Ctrl-C ends the run with a checkpoint; the same command with --resume goes on.
    """
    console = terminal(stderr=True, quiet=quiet)
    with asked():
        rows_between, seconds_between = parse_interval(checkpoint_every)
        check_report(report)
        if key is None and (workers is not None or ray is not None):
            raise Refused("--workers and --ray are given, but no --key COL says what for. Add it.")
        before = read_before(model) if resume else None
        if before is not None:
            check_same_scores(before, metric, window)
            check_same_predictions(before, predictions, console)
        given = source_options(source, format=format, types=type or (), follow=follow)
        opened = Peeked(open_source(*source, **given), strict, end_after=max_rows)
        if follow:
            console.print("Waiting for rows; Ctrl-C ends.")
        first = opened.first(None if before is None else before.position)
        ignored = list(dict.fromkeys(ignore or ())) if before is None else same_ignored(before, ignore, console)
        check_columns(first, target, key, ignored, is_new=before is None)
        start = None if start_from is None or (before and key is None) else load_model(start_from)
        chosen = choose_task(task, before, start, first, target, console)
        parameters = parse_options(chosen, option or [])
        if before is not None:
            seeded = {} if seed is None or start_from is not None else {"random_state": seed}
            check_resumed(before, parameters | seeded, is_keyed=key is not None)
        else:
            if metric is not None:  # refuse those that are unknown, or not for this task and model
                like = start or ESTIMATORS[chosen](**parameters)
                choose_metrics(like, chosen, metric, hasattr(like, "predict_proba"))
            check_parameters(chosen, parameters, first, target, [*ignored, key])
        if key is not None:
            learner = make_keyed(key, chosen, start, parameters, seed or 0, workers=workers, ray=ray, directory=model)
        else:
            learner = None if before else make_model(chosen, start, parameters, seed or 0)
        options = Options(
            target,
            chosen,
            every=every,
            window=window or WINDOW,
            metrics=metric,
            checkpoint_rows=rows_between,
            checkpoint_seconds=seconds_between,
            predictions=predictions,
            strict=strict,
            max_bad=max_bad,
            ignore=ignored,
        )
        one = Run(opened, learner, options, model, resume=resume)
    with one, nullcontext() if key is None else closing(learner):
        if first is not None:
            print_columns(console, first, target, chosen, ignored)
        if one.rows:
            console.print(f"Resumed after {one.rows:,} rows.")
        for sentence in one.store.damaged if one.store else ():
            console.print(f"Passed over: {sentence}", style="yellow")
        with asked():
            board = Dashboard(one, title=" ".join(source), target=target, port=dashboard_port if dashboard else None)
        with board, Screen(console, opened, one) as screen:
            summary = go(one, [board.see, screen.see])
            if report is not None:
                write_page(board.feed, report)
        summary |= {"predictions": predictions and str(predictions), "report": report and str(report)}
        summary |= {"model": model and str(model)}
        if not as_json:
            print_summary(terminal(), summary)
        elif not one.checkpoint_error:  # of which the error is the one object
            typer.echo(json.dumps(summary, default=str))
    if one.checkpoint_error:
        raise OSError(one.checkpoint_error)


def go(one: Run, watchers: Sequence[Callable[[Report], None]]) -> dict[str, Any]:
    """Run to the end, or until a signal; return what there is to say."""
    resumed_at, began, latest = one.rows, time.perf_counter(), None
    with ending_by_signals(one) as heard:
        for latest in one.reports():
            for see in watchers:
                see(latest)
    seconds = time.perf_counter() - began
    if latest is None and one.book is not None:  # no row came, but there were some before
        latest = one.book.report()
    metrics = {} if latest is None else plain_metrics(latest)
    return {
        "rows": one.rows,
        "rows_of_this_run": one.rows - resumed_at,
        "resumed_at": resumed_at,
        "bad_rows": one.bad.n,
        "stopped": bool(heard),
        "seconds": round(seconds, 3),
        "rows_per_second": round((one.rows - resumed_at) / max(seconds, 1e-9), 1),
        "task": one.options.task,
        "target": one.options.target,
        "metrics": metrics,
        "events": [event._asdict() for event in getattr(one.model, "events_", ())] if one.rows else [],
    }


@contextmanager
def ending_by_signals(one: Run) -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM ends the run in order; a second Ctrl-C ends it at once."""
    heard: list[int] = []

    def end(number: int, frame: object) -> None:
        heard.append(number)
        if len(heard) > 1 and number == signal.SIGINT:
            raise KeyboardInterrupt
        one.stop()
        if one.is_waiting:
            raise Interrupted

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_report(path: Path | None) -> None:
    """Refuse a page that could not be written in the end."""
    if path is not None and path.is_dir():
        raise Refused(f"--report is {str(path)!r}, which is a directory, expected a file. Name one in it.")
    if path is not None and not path.parent.is_dir():
        raise Refused(f"--report is {str(path)!r}, but {str(path.parent)!r} is no directory. Make it.")


def check_columns(table: Any, target: str, key: str | None, ignored: Sequence[str], *, is_new: bool) -> None:
    """Refuse columns that the first rows do not have; a run that goes on has met those it leaves out."""
    for option, column in (("--target", target), ("--key", key)):
        if column is not None and column in ignored:
            raise Refused(f"--ignore is {column!r}, which {option} names, too. Drop one of them.")
        if column is not None and table is not None:
            check_column(column, table.column_names, option)
    if key == target:
        raise Refused(f"--key is {key!r}, which --target names, too. Name the column that tells whose row it is.")
    if table is None:
        return
    for name in ignored if is_new else ():
        check_column(name, table.column_names, "--ignore")


def choose_task(task: str, before: Any, start: Any, table: Any, target: str, console: Console) -> Task:
    """The task asked for, that of the run before or of the model to begin with, or the one the first targets tell."""
    if task not in ("auto", "regression", "classification"):
        raise Refused(f"--task is {task!r}, expected regression, classification or auto.")
    of_start: Task | None = None
    if start is not None:
        of_start = "classification" if isinstance(start, SGBClassifier) else "regression"
    if task != "auto":
        if of_start not in (None, task):
            raise Refused(f"--task is {task}, but the model of --start-from is one for {of_start}. Drop one of them.")
        return task  # type: ignore[return-value]
    if before is not None:
        return before.state["task"]  # type: ignore[no-any-return]
    if of_start is not None:
        return of_start
    if table is None:
        raise Refused("the source has no rows yet, so --task auto cannot tell. Pass --task regression, for example.")
    kind, reason = label_kind(table[target])
    console.print(f"Task: {kind} ({reason}; --task says otherwise).")
    return kind


def check_parameters(
    task: Task, parameters: dict[str, Any], table: Any, target: str, without: Sequence[str | None]
) -> None:
    """Refuse parameters with which not one of the first good rows can be learned, if without them one can."""
    if not parameters or table is None:
        return
    rows = table.select([name for name in table.column_names if name not in without])
    sifted = Guard().sift(rows, target, task)
    X, y = sifted.X.slice(0, ROWS_TRIED), sifted.y[:ROWS_TRIED]
    refusal = first_refusal(ESTIMATORS[task](**parameters), X, y)
    if refusal is not None and first_refusal(ESTIMATORS[task](), X, y) is None:
        given = ", ".join(f"{name}={json.dumps(value)}" for name, value in parameters.items())
        raise Refused(f"a model cannot learn with --option {given}: {sentence_of(refusal)}") from refusal


def first_refusal(model: Any, X: Any, y: Any) -> Exception | None:
    """Why a model refuses the first row, if it refuses each of them."""
    refusal: Exception | None = None
    for row in range(len(y)):
        try:
            model.learn(X.slice(row, 1), y[row : row + 1])
        except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
            refusal = refusal or error
        else:
            return None
    return refusal


def make_keyed(
    key: str,
    task: str,
    prior: Any,
    parameters: dict[str, Any],
    seed: int,
    *,
    workers: int | None,
    ray: str | None,
    directory: Path | None,
) -> Any:
    """Make a small model for each key, with the one to begin with as their prior, in this process or on Ray."""
    from streamboost import cluster

    small = cluster.small_classifier if task == "classification" else cluster.small_regressor
    return cluster.KeyedBooster(
        key,
        small(**{"new_columns": "grow", "random_state": seed} | parameters),
        prior=prior,
        workers=workers or (2 if ray else None),
        engine="local" if ray is None else "ray",
        address=None if ray == "local" else ray,
        directory=None if directory is None else directory / "cluster",
    )


def make_model(task: str, start: Any, parameters: dict[str, Any], seed: int) -> Any:
    """A new model, or the one to begin with."""
    if start is None:
        return ESTIMATORS[task](**{"new_columns": "grow", "random_state": seed} | parameters)
    if parameters:
        raise Refused("--option and --start-from are both given, but a saved model keeps its parameters. Drop one.")
    return start


def parse_options(task: str, words: Sequence[str]) -> dict[str, Any]:
    """Parameters of the model; values as in JSON, or text."""
    known, parameters = ESTIMATORS[task]().get_params(deep=False), {}
    for word in words:
        name, _, value = word.partition("=")
        if not value or name not in known:
            raise Refused(f"--option is {word!r}, expected NAME=VALUE with a name among {sorted(known)}.")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def parse_interval(text: str) -> tuple[int | None, Seconds | None]:
    """Rows, or seconds.

    Examples
    --------
    >>> parse_interval("10000"), parse_interval("30s"), parse_interval("1.5m")
    ((10000, None), (None, 30.0), (None, 90.0))
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    try:
        if text[-1:] in units:
            value = float(text[:-1]) * units[text[-1]]
            if value > 0:
                return None, value
        elif int(text) > 0:
            return int(text), None
    except ValueError:
        pass
    raise Refused(f"--checkpoint-every is {text!r}, expected rows such as 10000, or a time such as 30s or 5m.")
