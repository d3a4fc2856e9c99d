"""What a command shows: errors, columns, the progress of a run on the terminal and the dashboard, its summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from streamboost.kernels.progress import Stage, WorkStage
from streamboost.terminal_text import escaped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from streamboost.evaluation.reports import Report
    from streamboost.runs.run import Run

COLUMNS_SHOWN = 40
SECONDS_BETWEEN_LINES = 5.0  # where there is no terminal to draw on


def terminal(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that shows text as it is, brackets and colons included."""
    from rich.console import Console
    from rich.text import Text

    class SafeConsole(Console):
        """A console that writes out what a terminal would obey, wherever text comes from."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escaped(text), **options)

    return SafeConsole(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)


def sentence_of(error: BaseException) -> str:
    """Return the message of an error, of the system's without number and brackets."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + "." if error.filename is None else f"{error.filename}: {error.strerror}."
    return str(error) or type(error).__name__


def print_error(sentence: str, *, style: str = "red") -> None:
    """Print why a command failed, or a warning."""
    terminal(stderr=True).print(f"streamboost: {sentence}", style=style, soft_wrap=True)


def print_columns(
    console: Console, table: Any, target: str, task: str, ignored: Sequence[str], described: str = ""
) -> None:
    """Print how the rows are written, and the columns of the first ones with types and roles."""
    from rich.table import Table

    if described:
        console.print(f"{described}.", soft_wrap=True)
    shown = Table(title=f"{table.num_columns} columns; {task} of {target!r}", title_justify="left")
    for heading in ("column", "type", "role", "first value"):
        shown.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=40)
    for field in list(table.schema)[:COLUMNS_SHOWN]:
        role = "target" if field.name == target else "ignored" if field.name in ignored else "feature"
        shown.add_row(field.name, str(field.type), role, str(table[field.name][0].as_py()))
    if table.num_columns > COLUMNS_SHOWN:
        shown.add_row(f"and {table.num_columns - COLUMNS_SHOWN} more")
    console.print(shown)


class Screen:
    """A progress bar on a terminal, elsewhere a line every few seconds; events are printed above."""

    def __init__(self, console: Console, run: Run) -> None:
        self.console, self.run = console, run
        self.is_history = run.history is not None  # what is learned at present
        self.bar: Progress | None = None
        self.last_line = time.monotonic()
        self.told: set[str] = set()  # metrics that do not apply

    def __enter__(self) -> Self:
        self._begin_bar()
        return self

    def _begin_bar(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        if self.console.is_terminal and not self.console.quiet:
            has_end = self.run.progress() is not None
            words = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # which give way where it is narrow
            self.bar = Progress(
                *([BarColumn(bar_width=20), TextColumn("{task.percentage:3.0f} %")] if has_end else [SpinnerColumn()]),
                TextColumn("{task.fields[said]}", markup=False, table_column=words),
                TimeElapsedColumn(),
                *([TimeRemainingColumn()] if has_end else []),
                console=self.console,
                expand=True,
            )
            said = "reading the history" if self.is_history else "waiting for rows"
            self.task = self.bar.add_task("rows", total=1.0 if has_end else None, said=said)
            self.bar.start()

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def _end_history(self) -> None:
        """Say what was learned of the history; the source that comes now has a bar of its own."""
        self.is_history, state = False, self.run.history_state or {}
        older = f"; for {state['n_dropped']:,} older ones there was no room" if state["n_dropped"] else ""
        self.console.print(f"History: {state['rows']:,} rows learned{older}.")
        if self.bar is not None:
            self.bar.update(self.task, completed=1.0, said="history learned")
            self.bar.stop()
            self._begin_bar()

    def hear(self, stage: Stage | WorkStage | None) -> None:
        """Show that kernels are being compiled, or a history fitted, where there is a bar to show it on."""
        if self.bar is None:
            return
        share = stage.done / stage.total if isinstance(stage, WorkStage) else None  # None: as it was
        self.bar.update(self.task, completed=share, said="learning rows" if stage is None else str(stage))

    def see(self, report: Report) -> None:
        """Show a report."""
        if self.is_history:
            self._end_history()
        for metric in self.run.book.running if self.run.book and self.run.options.metrics else ():  # those asked for
            if metric.inapplicable and metric.name not in self.told:
                self.told.add(metric.name)
                self.console.print(metric.inapplicable, style="yellow")
        for event in report.events:
            self.console.print(f"row {event.row:,}: {event.kind}, {event.detail}", style="cyan")
        if self.bar is not None:
            bad = f", {self.run.bad.n:,} bad" if self.run.bad.n else ""
            self.bar.update(self.task, completed=self.run.progress(), said=f"{report}{bad}")
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.console.print(str(report), soft_wrap=True)
            self.last_line = time.monotonic()


class Dashboard:
    """Publishes the reports of a run to a feed, and serves its page if a port is given."""

    def __init__(self, run: Run, *, title: str, target: str, port: int | None) -> None:
        from streamboost.dashboard.feed import Feed
        from streamboost.dashboard.observation import observe_report

        self.run, self.observe = run, observe_report
        self.feed = Feed(title, {"source": title, "target": target, "task": run.options.task})
        self.page = None
        if port is not None:
            from streamboost.dashboard.server import serve_in_thread

            self.page = serve_in_thread(self.feed, port=port)
            print(f"Dashboard: {self.page.url}", file=sys.stderr, flush=True)

    def see(self, report: Report) -> None:
        """Publish a report."""
        self.feed.publish(self.observe(self.run.model, report, quarantined=self.run.bad.n))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.end()
        if self.page is not None:
            self.page.close()


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """Print the summary of a run."""
    resumed = f", {summary['rows_of_this_run']:,} of them now" if summary["resumed_at"] else ""
    stopped = "stopped early; " if summary["stopped"] else ""
    print_metrics(console, f"{summary['rows']:,} rows learned{resumed}", summary["metrics"])
    lines = [f"{stopped}{summary['rows_per_second']:,.0f} rows/s, {summary['bad_rows']:,} bad rows"]
    if summary["history"] and not summary["history"]["is_fitted"]:
        lines.append("the history is not learned yet: the same command with --resume begins it again")
    lines += [f"  {found['rows']:,}, such as: {found['reason']}" for found in summary["bad_reasons"]]
    if summary["bad_rows"]:
        lines.append(f"  all in {summary['quarantine']}" if summary["quarantine"] else "  --model DIR keeps them")
    where = {"model": "streamboost inspect {}", "predictions": "predictions: {}", "report": "report: {}"}
    lines += [text.format(summary[name]) for name, text in where.items() if summary.get(name)]
    for line in lines:
        console.print(line, soft_wrap=True)


def print_metrics(console: Console, title: str, metrics: dict[str, Any]) -> None:
    """Print metrics over all rows and over the latest."""
    found = {name: (values["running"], values["windowed"]) for name, values in metrics.items()}
    rows = [(name, *map(number, pair)) for name, pair in found.items() if pair != (None, None)]
    if rows:
        print_pairs(console, title, rows, ("metric", "all rows", "latest rows"))
    else:  # nothing was learned
        console.print(title)


def number(value: float | None) -> str:
    """Format a number with four digits; a dash for None."""
    return "-" if value is None else f"{value:.4g}"


def print_pairs(console: Console, title: str, pairs: Sequence[tuple[str, ...]], headings: Sequence[str] = ()) -> None:
    """Print a table of names and values."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=bool(headings))
    for heading in headings or [""] * len(pairs[0]):
        table.add_column(heading, overflow="fold")
    for pair in pairs:
        table.add_row(*pair)
    console.print(table)
