"""``streamboost run``: a source learned row after row, watched, and safe to kill."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from streamboost.checkpoints import checkpoint_paths, read_latest
from streamboost.cli.model_commands import load_model
from streamboost.cli.refusals import Refused, asked, check_column
from streamboost.cli.screens import Screen, print_columns, print_summary
from streamboost.cli.watching import Watchers
from streamboost.cluster.crew import Cut
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.guards import label_kind
from streamboost.inspection import plain_metrics
from streamboost.metrics import BY_NAME
from streamboost.reports import Report
from streamboost.running import Interrupted, Options, Run
from streamboost.sources import BadRow, Batch, Position, Source, open_source

Seconds = float
ESTIMATORS: dict[str, Any] = {"regression": SGBRegressor, "classification": SGBClassifier}
STEP = 200  # rows that learners on workers learn at once


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
        typer.Option(metavar="FILE", help="Write what was predicted of every row: .parquet, .csv, .jsonl or .arrow."),
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
    window: Annotated[int, typer.Option(min=1, help="How many of the latest rows windowed metrics look at.")] = 1000,
    ignore: Annotated[list[str] | None, typer.Option(metavar="COL", help="A column to leave out.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more rows at the end, like tail -f.")] = False,
    max_rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many more rows.")] = None,
    format: Annotated[str | None, typer.Option(help="csv, tsv, jsonl, parquet or arrow, if names do not tell.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first bad row.")] = False,
    max_bad: Annotated[int | None, typer.Option(min=0, help="End when there are more bad rows than this.")] = None,
    seed: Annotated[int, typer.Option(help="The model's random state.")] = 0,
    key: Annotated[
        str | None, typer.Option(metavar="COL", help="A model of its own for each value of this column.")
    ] = None,
    shards: Annotated[
        bool, typer.Option("--shards", help="Let each of --workers learn a share of the rows, and ask all of them.")
    ] = False,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread", help=f"Put the weak learners of one model on --workers; it learns {STEP} rows at a time."
        ),
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, metavar="K", help="Of --key, --shards or --spread.")] = None,
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
    console = Console(stderr=True, quiet=quiet)
    with asked():
        rows_between, seconds_between = parse_interval(checkpoint_every)
        opened = Peeked(open_source(*source, **source_options(source, follow=follow, format=format)), strict)
        before = read_before(model) if resume and model is not None else None
        names = opened.first(None if before is None else before.position)
        if names is not None:
            check_column(target, names.column_names, "--target")
        chosen = choose_task(task, before, names, target, console)
        parameters = parse_options(chosen, option or [])
        if before is not None and not isinstance(before.model, Cut):
            check_same_options(before.model, parameters)
        crew = CrewOptions(key, shards, spread, workers, ray, model)
        if crew.is_asked_for:
            learner = crew.make(chosen, start_from, parameters, seed)
        else:
            learner = None if before else make_model(chosen, start_from, parameters, seed)
        options = Options(
            target,
            chosen,  # type: ignore[arg-type]
            every=every,
            window=window,
            metrics=metric,
            checkpoint_rows=rows_between,
            checkpoint_seconds=seconds_between,
            predictions=predictions,
            strict=strict,
            max_bad=max_bad,
            ignore=ignore or (),
        )
        if max_rows is not None:
            opened.end_after = max_rows
        one = Run(opened, learner, options, model, resume=resume)
    with one, nullcontext() if learner is None or not crew.is_asked_for else closing(learner):
        if names is not None:
            print_columns(console, names, target, chosen, ignore or ())
        if one.rows:
            console.print(f"Resumed after {one.rows:,} rows.", highlight=False)
        for sentence in one.store.damaged if one.store else ():
            console.print(f"Passed over: {sentence}", style="yellow", markup=False, highlight=False)
        with asked():
            watchers = Watchers(one, title=" ".join(source), target=target, port=dashboard_port if dashboard else None)
        with watchers, Screen(console, opened, one) as screen:
            summary = go(one, [watchers.see, screen.see])
            if report is not None:
                watchers.write(report)
        summary |= {"predictions": predictions and str(predictions), "report": report and str(report)}
        summary |= {"model": model and str(model)}
        if as_json:
            typer.echo(json.dumps(summary, default=str))
        else:
            print_summary(Console(), summary)
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
    metrics = {} if latest is None else plain_metrics(latest)
    return {
        "rows": one.rows,
        "rows_of_this_run": one.rows - resumed_at,
        "resumed_at": resumed_at,
        "bad_rows": one.n_bad,
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


class Peeked(Source):
    """A source whose first rows can be looked at before they are read, and which may end early."""

    def __init__(self, source: Source, strict: bool = False) -> None:
        self.source = source
        self.end_after: int | None = None
        self._hears: Callable[[BadRow], object] | None = None
        self._unheard: list[BadRow] = []
        if not strict and getattr(source, "on_bad", None) == "raise":
            source.on_bad = self._hear  # type: ignore[attr-defined]
        self._held: tuple[Position, Batch | None, Iterator[Batch]] | None = None

    def first(self, position: Position, n_rows: int = 1000) -> Any:
        """The first rows after ``position``, a table; None if there are none."""
        batches = iter(self.source.read(position, n_rows))
        batch = next(batches, None)
        self._held = (position, batch, batches)
        return None if batch is None else batch.table

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """The rows after ``position``, those looked at among them."""
        held, self._held = self._held, None
        left = self.end_after
        for batch in self._all(held, position, n_rows):
            if left is not None and batch.table.num_rows > left:
                cut = next(iter(self.source.read(position, left)))  # a position within a batch is the source's to tell
                yield cut
                return
            yield batch
            position = batch.position
            if left is not None and (left := left - batch.table.num_rows) == 0:
                return

    def _all(self, held: Any, position: Position, n_rows: int) -> Iterator[Batch]:
        if held is None or held[0] != position:
            yield from self.source.read(position, n_rows)
        elif held[1] is not None:
            yield held[1]
            yield from held[2]

    def acknowledge(self, position: Position) -> None:
        """Pass it on."""
        self.source.acknowledge(position)

    def share(self, position: Position) -> float | None:
        """Ask the source."""
        return self.source.share(position)

    @property
    def on_bad(self) -> Any:
        """What hears of bad rows; "raise" until somebody is there for them."""
        return self._hears or "raise"

    @on_bad.setter
    def on_bad(self, handler: Callable[[BadRow], object]) -> None:
        self._hears = handler
        while self._unheard:
            handler(self._unheard.pop(0))

    def _hear(self, bad: BadRow) -> None:
        if self._hears is None:
            self._unheard.append(bad)
        else:
            self._hears(bad)


def read_before(directory: Path) -> Any:
    """The newest checkpoint of a run that is to be resumed; None if there is none."""
    if not directory.is_dir() or not checkpoint_paths(directory):
        return None
    return read_latest(directory)


def choose_task(task: str, before: Any, table: Any, target: str, console: Console) -> str:
    """The task asked for, that of the run before, or the one the first targets tell."""
    if task not in ("auto", "regression", "classification"):
        raise Refused(f"--task is {task!r}, expected regression, classification or auto.")
    if task != "auto":
        return task
    if before is not None:
        return str(before.state["task"])
    if table is None:
        raise Refused("the source has no rows yet, so --task auto cannot tell. Pass --task regression, for example.")
    kind, reason = label_kind(table[target])
    console.print(f"Task: {kind} ({reason}; --task says otherwise).", highlight=False)
    return kind


class CrewOptions(NamedTuple):
    """Whether the model is to live on workers, and on which."""

    key: str | None
    shards: bool
    spread: bool
    workers: int | None
    ray: str | None
    directory: Path | None

    @property
    def is_asked_for(self) -> bool:
        """Whether there is anything to be put on workers."""
        given = [("--key", self.key is not None), ("--shards", self.shards), ("--spread", self.spread)]
        shapes = [name for name, is_given in given if is_given]
        if len(shapes) > 1:
            raise Refused(f"{' and '.join(shapes)} are given, expected one of them.")
        if not shapes and (self.workers is not None or self.ray is not None):
            raise Refused(
                "--workers and --ray are given, but neither --key COL nor --shards nor --spread says what for."
            )
        return bool(shapes)

    def make(self, task: str, start_from: Path | None, parameters: dict[str, Any], seed: int) -> Any:
        """A model on workers; of keys each begins small, with the model to begin with as its prior."""
        from streamboost import cluster
        from streamboost.cluster import key_models

        named: dict[str, Any] = {
            "workers": self.workers or (2 if self.key is None or self.ray else None),
            "engine": "local" if self.ray is None else "ray",
            "address": None if self.ray in (None, "local") else self.ray,
            "directory": None if self.directory is None else self.directory / "cluster",
        }
        if self.shards:
            return cluster.ShardedBooster(make_model(task, start_from, parameters, seed), **named)
        if self.spread:
            if start_from is not None:
                raise Refused("--spread and --start-from are both given, but only a new model can be spread. Drop one.")
            return cluster.SpreadBooster(make_model(task, None, {"semantics": STEP} | parameters, seed), **named)
        assert self.key is not None
        small = key_models.small_classifier if task == "classification" else key_models.small_regressor
        template = small(**{"new_columns": "grow", "random_state": seed} | parameters)
        prior = None if start_from is None else load_model(start_from)
        return cluster.KeyedBooster(self.key, template, prior=prior, **named)


def make_model(task: str, start_from: Path | None, parameters: dict[str, Any], seed: int) -> Any:
    """A new model, or the one to begin with."""
    if start_from is None:
        return ESTIMATORS[task](**{"new_columns": "grow", "random_state": seed} | parameters)
    if parameters:
        raise Refused("--option and --start-from are both given, but a saved model keeps its parameters. Drop one.")
    return load_model(start_from)


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


def check_same_options(model: Any, parameters: dict[str, Any]) -> None:
    """Refuse parameters that a resumed model does not have."""
    for name, value in parameters.items():
        if getattr(model, name) != value:
            raise Refused(
                f"--option {name}={value!r} is given, but the model to be resumed has {getattr(model, name)!r}. "
                "Leave it out, or begin in another directory."
            )


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


def source_options(where: Sequence[str], *, follow: bool, format: str | None) -> dict[str, Any]:
    """The options that a source of this kind takes."""
    options: dict[str, Any] = {}
    is_file = not any(part.startswith(("synthetic:", "kafka:", "redis:", "rediss:", "unix:")) for part in where)
    if format is not None:
        if not is_file:
            raise Refused("--format is for files.")
        options["format"] = format
    if follow:
        if any(part.startswith("synthetic:") for part in where):
            raise Refused("--follow is for files and brokers; generated rows have no end anyway.")
        options["follow"] = True
    return options
