"""``streamboost run --workers``: each partition of a stream is a run by itself, watched over from here."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from streamboost.cli import run_steps as steps
from streamboost.cli.arguments import UsageError
from streamboost.cli.display import number, print_pairs, terminal
from streamboost.cli.rows import open_rows
from streamboost.dashboard.export import write_page
from streamboost.dashboard.feed import Feed
from streamboost.dashboard.observation import observe
from streamboost.estimators.describe import plain_metrics
from streamboost.evaluation.reports import Report
from streamboost.persistence.checkpoints import checkpoint_paths, read_latest
from streamboost.runs.partitions import Partition, list_partitions
from streamboost.runs.run import Run
from streamboost.runs.supervisor import ENDED, GIVEN_UP, RUNNING, Supervisor
from streamboost.runs.workers import Process

OURS: tuple[str, ...] = (
    "source",
    "then",
    "workers",
    "ray",
    "model",
    "resume",
    "go_on",
    "task",
    "predictions",
)  # options not passed on
OURS += ("as_json", "quiet", "dashboard", "dashboard_port", "report", "supervised")
SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_REPORTS = 10.0, 1.0


def run_partitions(context: typer.Context) -> None:
    """Run every partition of a source."""
    given = context.params
    console = terminal(stderr=True, quiet=given["quiet"])
    _check(given)
    where, directory, follow = given["source"], given["model"], given["follow"]
    on_ray = given["ray"] is not None

    def partitions() -> list[Partition]:
        return list_partitions(where, follow=follow, is_absolute=on_ray)

    found = partitions()
    if not found and not follow:
        raise UsageError(f"{' '.join(where)} has no partition. Look for a typo.")
    n_workers = given["workers"] or 2
    if follow and len(found) > n_workers:
        told = f"and with --follow none of the {len(found)} partitions ends: each needs a worker of its own"
        raise UsageError(f"--workers is {n_workers}, {told}. Say --workers {len(found)}.")
    if not given["resume"]:
        _check_new(found, directory)
    task, common = _task(given, found, directory, console), _words(context)
    directory = directory.absolute() if on_ray else directory
    predictions = given["predictions"]

    def words(partition: Partition, is_begun: bool) -> list[str]:
        own = ["run", partition.source, "--task", task, "--model", str(directory / partition.name), *common]
        if predictions is not None:
            suffix = predictions.suffix
            own += ["--predictions", str(predictions.absolute() / f"{partition.name}{suffix}")]
        return [*own, "--supervised", *(["--resume"] if is_begun or given["resume"] else [])]

    directory.mkdir(parents=True, exist_ok=True)
    if predictions is not None:
        predictions.mkdir(parents=True, exist_ok=True)
    start: Any = Process
    places: Any = contextlib.nullcontext()
    if on_ray:
        from streamboost.runs.ray_workers import RayPlaces

        ray = RayPlaces(given["ray"], n_workers)
        start, places = ray.start, contextlib.closing(ray)
    with places:
        supervisor = Supervisor(partitions, words, start, n_workers, follow=follow)
        console.print(f"{len(found)} partitions, {n_workers} at a time; Ctrl-C ends all with checkpoints.")
        table = _watch(supervisor, given, task, console)
    failed = [row for row in table if row["state"] == GIVEN_UP]
    summary = {
        "rows": sum(row["rows"] for row in table),
        "bad_rows": sum(row["bad_rows"] for row in table),
        "restarts": sum(row["restarts"] for row in table),
        "stopped": bool(supervisor.stopping),
        "task": task,
        "target": given["target"],
        "model": str(given["model"]),
        "partitions": {row["partition"]: row for row in table},
    }
    if failed:
        reasons = "; ".join(f"{row['partition']}: {row['reason']}" for row in failed)
        summary["error"] = f"{len(failed)} of {len(table)} partitions were given up: {reasons}"
    if given["as_json"]:
        typer.echo(json.dumps(summary))
    else:
        _print(table, summary)
    if failed:
        raise typer.Exit(1)


def _watch(supervisor: Supervisor, given: dict[str, Any], task: str, console: Any) -> list[dict[str, Any]]:
    """Watch until the end, or Ctrl-C; return the last table."""
    title = " ".join(given["source"])
    feed, page = Feed(title, {"source": title, "target": given["target"], "task": task}), None
    if given["dashboard"]:
        from streamboost.dashboard.server import serve_in_thread

        page = serve_in_thread(feed, port=given["dashboard_port"])
        print(f"Dashboard: {page.url}", file=sys.stderr, flush=True)

    def stop(*_: object) -> None:  # with checkpoints; a second Ctrl-C at once
        supervisor.stopping += 1

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    table: list[dict[str, Any]] = []
    told = seen = time.monotonic()
    shown = console.status("starting") if console.is_terminal and not given["quiet"] else contextlib.nullcontext()
    try:
        with shown as status:
            for table in supervisor.watch():
                now, line = time.monotonic(), _line(table, supervisor)
                if status is not None:
                    status.update(line)
                elif now - told > SECONDS_BETWEEN_LINES:
                    console.print(line, soft_wrap=True)
                    told = now
                if now - seen > SECONDS_BETWEEN_REPORTS:
                    feed.publish(_observation(table))
                    seen = now
        feed.publish(_observation(table))
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        feed.end()
        if page is not None:
            page.close()
    if given["report"] is not None:
        write_page(feed, given["report"])
    return table


def _observation(table: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [{**row, **{name: each["windowed"] for name, each in row["metrics"].items()}} for row in table]
    for row in rows:
        del row["metrics"]
    speeds = [row["rows_per_second"] for row in table if row["state"] == RUNNING and row["rows_per_second"]]
    total = sum(row["rows"] for row in table)
    return observe(
        None,
        rows=total,
        running={},
        windowed={},
        rows_per_second=sum(speeds) or None,
        quarantined=sum(row["bad_rows"] for row in table),
        partitions=rows,
    )


def _line(table: Sequence[dict[str, Any]], supervisor: Supervisor) -> str:
    ended = sum(row["state"] == ENDED for row in table)
    running = [row for row in table if row["state"] == RUNNING]
    speed = sum(row["rows_per_second"] or 0 for row in running)
    parts = [f"{ended} of {len(table)} partitions done, {len(running)} running"]
    parts += [f"{sum(row['rows'] for row in table):,} rows, {speed:,.0f} rows/s"]
    parts += [f"{row['partition']} restarted: {row['reason']}" for row in table if row["reason"]][:3]
    parts += [f"no new partitions can be looked for: {supervisor.list_error}"] if supervisor.list_error else []
    return "; ".join(parts)


def _print(table: Sequence[dict[str, Any]], summary: dict[str, Any]) -> None:
    console = terminal()
    names = list(dict.fromkeys(name for row in table for name in row["metrics"]))
    lines = [
        (
            row["partition"],
            row["state"],
            f"{row['rows']:,}",
            f"{row['bad_rows']:,}",
            str(row["restarts"]),
            *(number(row["metrics"].get(name, {}).get("running")) for name in names),
        )
        for row in table
    ]
    heads = ("partition", "state", "rows", "bad", "restarts", *names)
    print_pairs(console, f"{summary['rows']:,} rows learned", lines, heads) if lines else None
    for row in table:
        if row["state"] == GIVEN_UP:
            console.print(f"{row['partition']} was given up: {row['reason']}", soft_wrap=True)
    console.print(f"streamboost inspect {summary['model']}/PARTITION")


def _check(given: dict[str, Any]) -> None:
    if given["model"] is None:
        raise UsageError("--workers is given without --model DIR, where each partition has its checkpoints. Add it.")
    if given["target"] is None:
        raise UsageError("Missing option '--target': the column to predict. Partitions that are new do not know it.")
    for name, option in (("then", "--then"), ("go_on", "--continue")):
        if given[name]:
            raise UsageError(f"{option} is given, which is for one run. Leave it out, or --workers.")
    steps.check_report(given["report"])
    steps.parse_interval(given["checkpoint_every"])
    steps.parse_max_bad(given["max_bad"])


def _check_new(found: Sequence[Partition], directory: Path) -> None:
    for partition in found:
        folder = directory / partition.name
        if folder.is_dir() and checkpoint_paths(folder):
            told = f"{str(folder)!r} holds a model already. Add --resume to go on where it stopped"
            raise UsageError(f"{told}, or name another directory.")


def _task(given: dict[str, Any], found: Sequence[Partition], directory: Path, console: Any) -> str:
    """Return one task for all partitions: as given, as begun, or as the first targets look."""
    if given["task"] != "auto":
        return steps.choose_task(given["task"], None, None, None, given["target"], console)
    for partition in found if given["resume"] else ():
        folder = directory / partition.name
        if folder.is_dir() and checkpoint_paths(folder):
            return str(read_latest(folder).state["task"])
    for partition in found:
        first = open_rows([partition.source], given).first()
        if first is not None:
            steps.check_columns(first, given["target"], given["key"], given["ignore"] or (), is_new=True)
            return steps.choose_task("auto", None, None, first, given["target"], console)
    raise UsageError("no partition has rows yet, so --task auto cannot tell. Pass --task regression, for example.")


def _words(context: typer.Context) -> list[str]:
    """Return the options of a command that its partitions are given, too."""
    words: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in OURS or value in (None, False, ()) or value == parameter.default:
            continue
        name = max(parameter.opts, key=len)
        values = value if isinstance(value, (list, tuple)) else [value]
        words += [name] if value is True else [word for one in values for word in (name, str(one))]
    return words


class Teller:
    """Says on standard output how far a run is, for whoever watches over it."""

    def __init__(self, one: Run) -> None:
        self.one, self.at = one, 0.0
        self._say({"rows": one.rows, "bad_rows": one.bad.n, "resumed_at": one.rows_read})

    def see(self, report: Report) -> None:
        """Say it again, now and then."""
        if time.monotonic() - self.at < SECONDS_BETWEEN_REPORTS / 2:
            return
        one = self.one
        speed = {"rows_per_second": report.rows_per_second}
        self._say(
            {
                "rows": one.rows,
                "bad_rows": one.bad.n,
                "progress": one.progress(),
                **speed,
                "metrics": plain_metrics(report),
            }
        )

    def _say(self, told: dict[str, Any]) -> None:
        self.at = time.monotonic()
        with contextlib.suppress(OSError):  # nobody listens any more
            typer.echo(json.dumps(told))
