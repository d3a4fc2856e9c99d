"""The main job in a minute: ``python -m streamboost.demo`` learns the electricity stream, row after row.

Every contender predicts each half hour before it is told the answer, and then learns it: the table counts those
predictions, the picture shows how the errors come and go as the market changes, and the page shows what went on inside:
edges, whom the hedge trusted, importances, events.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from streamboost import SGBClassifier
from streamboost.arrays import BoolArray, FloatArray, IntArray
from streamboost.contenders import Answers
from streamboost.dashboard.export import write_page
from streamboost.dashboard.feed import Feed
from streamboost.dashboard.observing import observe
from streamboost.datasets import load_electricity
from streamboost.errors import MissingDependency, require
from streamboost.metrics import Accuracy, Kappa
from streamboost.reports import Report
from streamboost.scores import ScoreBook, Scored

OURS = "streamboost"
SINGLE = "streamboost, one memory"
CHUNK = 256  # rows between two looks of the progress bar; the model takes them one by one
WINDOW = 2000  # rows the picture's error rates look back
ALPHA = 1e-4  # the ridge of scikit-learn's SGDClassifier
NEXT = (
    "your own rows, with SGBClassifier().learn(X, y), or from a file: streamboost run FILE --target COLUMN.",
    "Watch a stream live: streamboost run shipped:electricity --target target --dashboard",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    X, y, names, _ = load_electricity()
    parser = argparse.ArgumentParser(prog="python -m streamboost.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=len(X), help=f"rows of the stream, 1 to {len(X)} (all)")
    parser.add_argument("--no-picture", action="store_true", help="draw no demo.png, write no demo.html")
    options = parser.parse_args(arguments)
    if not 1 <= options.rows <= len(X):
        parser.error(f"--rows is {options.rows}, expected 1 to {len(X)}. Leave it out for all.")
    X, y = X[: options.rows], y[: options.rows]

    named = pa.table(dict(zip(names, X.T, strict=True)))
    feed = Feed("Electricity", {"source": "shipped:electricity", "target": "target", "task": "classification"})
    started = time.perf_counter()
    predictions = {
        OURS: learn_with_progress(named, y, OURS, SGBClassifier(random_state=0), Watcher(feed)),
        SINGLE: learn_with_progress(X, y, SINGLE, single_booster()),
        "logistic regression": online_logistic(X, y),
        "same as last row": same_as_last(y),
        "majority so far": majority_so_far(y),
    }
    right = {name: predicted == y for name, predicted in predictions.items()}
    seconds = time.perf_counter() - started
    console = Console()
    console.print(accuracy_table(right))
    lines = [f"All learned the same rows in this run, one by one; {seconds:.0f} s in all."]
    if not options.no_picture:
        feed.end()
        lines.append(picture_line(right, Path("demo.png")))
        lines.append(f"Page: {write_page(feed, Path('demo.html')).resolve()}")
    lines += [f"Next: {NEXT[0]}", NEXT[1]]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


# The contenders: what each said of every row before it was told the answer.


def single_booster() -> SGBClassifier:
    """Algorithm 1 on one long memory, without a committee: what the ladder of memories and the hedge are worth."""
    return SGBClassifier(memory=16384, readout="last", random_state=0)


class Watcher:
    """Puts down on a feed how a model stands, every few hundred rows."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.book = ScoreBook([Accuracy, Kappa], every=2 * CHUNK, window=WINDOW)

    def see(self, model: SGBClassifier, y: IntArray, said: NDArray[Any], seconds: float) -> None:
        """Take in a chunk that was predicted and learned."""
        known = np.array([label is not None for label in said.tolist()])
        self._publish(model, self.book.take_in(Scored(y, Answers(known, said), seconds), model))

    def close(self, model: SGBClassifier) -> None:
        """Put down how it stands in the end."""
        self._publish(model, self.book.close(model))

    def _publish(self, model: SGBClassifier, reports: Iterator[Report]) -> None:
        for report in reports:
            speed, events = report.rows_per_second, report.events
            seen = observe(model, rows=report.rows, running=report.running, windowed=report.windowed,
                           rows_per_second=speed, events=events)  # fmt: skip
            self.feed.publish(seen)


def learn_with_progress(
    X: Any, y: IntArray, name: str, model: SGBClassifier, watcher: Watcher | None = None
) -> IntArray:
    """What the model says of each row before it learns it; the progress bar goes to standard error."""
    columns = (
        TextColumn(f"{name:<{len(SINGLE)}}"),
        BarColumn(),
        MofNCompleteColumn(),
        RowsPerSecond(),
        TimeRemainingColumn(),
    )
    said = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("rows", total=len(X))
        for start in range(0, len(X), CHUNK):
            rows = slice(start, start + CHUNK)
            began = time.perf_counter()
            said.append(model.learn(X[rows] if isinstance(X, np.ndarray) else X.slice(start, CHUNK), y[rows]))
            if watcher is not None:
                watcher.see(model, y[rows], said[-1], time.perf_counter() - began)
            progress.advance(task, len(said[-1]))
    if watcher is not None:
        watcher.close(model)
    return np.array([-1 if label is None else label for part in said for label in part])


def online_logistic(X: FloatArray, y: IntArray) -> IntArray:
    """scikit-learn's ``SGDClassifier(loss="log_loss")`` behind a ``StandardScaler``, both told row after row.

    Called once a row these two take a millisecond or more for it, longer than the model they are compared with: so
    their rules are spelled out here, and a test holds the predictions equal.
    """
    before, after = standardized_as_it_flows(X)
    typical = math.sqrt(1.0 / math.sqrt(ALPHA))
    first = 1.0 / (ALPHA * typical)
    w, b = np.zeros(X.shape[1]), 0.0
    said = np.zeros(len(y), dtype=int)
    for t, sign in enumerate(np.where(y == 1, 1.0, -1.0)):
        said[t] = before[t] @ w + b > 0
        z = after[t]
        eta = 1.0 / (ALPHA * (first + t))
        push = eta * sign / (1.0 + math.exp(min(sign * (z @ w + b), 500.0)))
        w = (1.0 - eta * ALPHA) * w + push * z
        b += push
    return said


def standardized_as_it_flows(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Each row by the mean and deviation of the rows before it, and of those up to it, (n, d) both."""
    counts = np.arange(1, len(X) + 1)[:, None]
    mean = np.cumsum(X, axis=0) / counts
    variance = np.maximum(np.cumsum(X**2, axis=0) / counts - mean**2, 0.0)
    scale = np.where(variance > 1e-12, np.sqrt(variance), 1.0)
    before = np.vstack([X[:1], (X[1:] - mean[:-1]) / scale[:-1]])
    return before, (X - mean) / scale


def same_as_last(y: IntArray) -> IntArray:
    """The answer of the row before: hard to beat where answers come in runs."""
    return np.concatenate([[0], y[:-1]])


def majority_so_far(y: IntArray) -> IntArray:
    """The more frequent class of the rows before; 0 while both are as frequent."""
    ones = np.cumsum(y) - y  # before each row
    return (2 * ones > np.arange(len(y))).astype(int)


# What is shown.


class RowsPerSecond(ProgressColumn):
    """How fast the rows go by."""

    def render(self, task: Task) -> Text:
        """Say it in whole rows."""
        return Text(f"{task.finished_speed or task.speed or 0:,.0f} rows/s")


def accuracy_table(right: dict[str, BoolArray]) -> Table:
    """One line a contender, the best on top."""
    n = len(right[OURS])
    table = Table(title=f"Electricity: {n:,} rows, predicted, then learned")
    table.add_column("contender")
    table.add_column("accuracy", justify="right")
    table.add_column(f"last {n - n // 2:,} rows", justify="right")
    for name in sorted(right, key=lambda name: -right[name].mean()):
        accuracies = (f"{right[name].mean():.4f}", f"{right[name][n // 2 :].mean():.4f}")
        table.add_row(name, *accuracies, style="bold" if name == OURS else None)
    return table


def picture_line(right: dict[str, BoolArray], path: Path) -> str:
    """Draw the picture; say where it is, or why there is none."""
    try:
        draw(right, path)
    except MissingDependency as missing:
        return f"No picture: {missing}"
    return f"Picture: {path.resolve()}"


def draw(right: dict[str, BoolArray], path: Path) -> None:
    """Error rates over the latest rows, one line a contender."""
    figure = require("matplotlib.figure", extra="plot", by="The picture").Figure(figsize=(9, 5), dpi=150)
    axes = figure.subplots()
    colors = {OURS: "#c2410c", SINGLE: "#f59e0b", "logistic regression": "#2563eb", "same as last row": "#4d7c0f"}
    n = len(right[OURS])
    window = min(WINDOW, max(n // 10, 1))
    rows = np.arange(window, n + 1)
    for name, is_right in right.items():
        total = np.concatenate([[0], np.cumsum(~is_right)])
        error = 100.0 * (total[window:] - total[:-window]) / window
        color = colors.get(name, "#9ca3af")
        axes.plot(rows, error, color=color, linewidth=2.2 if name == OURS else 1.3, zorder=3 if name == OURS else 2,
                  label=f"{name} ({is_right.mean():.1%} right)")  # fmt: skip
    axes.set_title("Price of electricity in New South Wales: up or down?", loc="left", fontsize=13, fontweight="bold")
    axes.set_xlabel("half hours seen")
    axes.set_ylabel(f"errors in the latest {window:,} (%)")
    axes.set_xlim(0, n)
    axes.set_ylim(0, None)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.grid(axis="y", color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    raise SystemExit(main())
