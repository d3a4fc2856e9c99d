"""``streamboost demo``: the electricity stream, learned row after row, as a table, a picture and a page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskID

from streamboost import SGBClassifier
from streamboost._types import FloatArray, IntArray
from streamboost.dashboard.export import write_page
from streamboost.dashboard.feed import Feed
from streamboost.dashboard.observation import observe_report
from streamboost.datasets import load_electricity
from streamboost.errors import MissingDependency, require
from streamboost.evaluation.prequential import prequential
from streamboost.kernels.progress import Stage, WorkStage, clock

OURS, ONE = "streamboost", "one long memory"  # the second shows what the committee is worth
COLORS = {OURS: "#c2410c", ONE: "#f59e0b", "logistic regression": "#2563eb", "same as last row": "#4d7c0f"}
WINDOW = 2000  # rows the error rates look back
ALPHA = 1e-4  # the ridge of scikit-learn's SGDClassifier
NEXT = """Next: your own rows, with SGBClassifier().learn(X, y), or from a file: streamboost run FILE --target COLUMN.
Watch a stream live: streamboost run shipped:electricity --target target --dashboard"""


def demo(rows: int | None = None, no_picture: bool = False) -> None:
    """Learn the stream, or its first ``rows``, beside simple baselines; print and draw what happened."""
    X, y, names, _ = load_electricity()
    X, y = X[:rows], y[:rows]
    stream = pa.table({**dict(zip(names, X.T, strict=True)), "target": y})

    feed = Feed("Electricity", {"source": "shipped:electricity", "target": "target", "task": "classification"})
    accuracy: dict[str, float] = {}  # over all rows
    errors: dict[str, list[float]] = {}  # over the latest, now and then
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True)) as progress:
        models = {OURS: SGBClassifier(random_state=0), ONE: SGBClassifier(memory=16384, readout="last", random_state=0)}
        for name, model in models.items():
            reports = []
            task = progress.add_task(name, total=len(y))

            def hear(stage: Stage | WorkStage | None, task: TaskID = task, name: str = name) -> None:
                progress.update(task, description=name if stage is None or stage.is_over else f"{name}: {stage}")

            with clock.heard_by(hear):
                for one in prequential(
                    model, stream, "target", every=512, window=WINDOW, metrics=["accuracy", "kappa"]
                ):
                    reports.append(one)
                    progress.update(task, completed=one.rows)
                    if name == OURS:
                        feed.publish(observe_report(model, one))
            seen, accuracy[name] = [one.rows for one in reports], one.running["accuracy"]
            errors[name] = [1 - one.windowed["accuracy"] for one in reports]
    baselines = {"logistic regression": online_logistic(X, y), "same as last row": np.append(0, y[:-1])}
    for name, predicted in baselines.items():
        accuracy[name] = (predicted == y).mean()
        errors[name] = [(predicted != y)[max(0, n - WINDOW) : n].mean() for n in seen]

    print(f"Electricity: {len(y):,} rows, predicted, then learned\n")
    print(f"{'':20}  right  right of the latest {min(WINDOW, len(y)):,}")
    for name in sorted(accuracy, key=lambda name: -accuracy[name]):
        print(f"{name:20} {accuracy[name]:.4f}  {1 - errors[name][-1]:.4f}")
    print()
    if not no_picture:
        feed.end()
        print(draw(seen, errors, accuracy, Path("demo.png")))
        print(f"Page: {write_page(feed, Path('demo.html')).resolve()}")
    print(NEXT)


def online_logistic(X: FloatArray, y: IntArray) -> IntArray:
    """Predict each row as ``SGDClassifier(loss="log_loss")`` behind a ``StandardScaler`` does before both learn it.

    scikit-learn takes a millisecond or more for a single row, so its rules are spelled out here; a test compares.
    """
    counts = np.arange(1, len(X) + 1)[:, None]
    mean = np.cumsum(X, axis=0) / counts
    variance = np.maximum(np.cumsum(X**2, axis=0) / counts - mean**2, 0.0)
    scale = np.where(variance > 1e-12, np.sqrt(variance), 1.0)
    weights, bias, labels = np.zeros(X.shape[1]), 0.0, np.zeros(len(y), dtype=int)
    for t, sign in enumerate(np.where(y == 1, 1.0, -1.0)):
        labels[t] = t > 0 and (X[t] - mean[t - 1]) / scale[t - 1] @ weights + bias > 0
        z = (X[t] - mean[t]) / scale[t]
        rate = 1.0 / (ALPHA * (ALPHA**-0.75 + t))
        push = rate * sign / (1.0 + math.exp(min(sign * (z @ weights + bias), 500.0)))
        weights, bias = (1.0 - rate * ALPHA) * weights + push * z, bias + push
    return labels


def draw(rows: list[int], errors: dict[str, list[float]], accuracy: dict[str, float], path: Path) -> str:
    """Draw error rates over the latest rows, one line a model; return where the picture is, or why there is none."""
    try:
        figure = require("matplotlib.figure", extra="plot", by="The picture").Figure(figsize=(9, 5), dpi=150)
    except MissingDependency as missing:
        return f"No picture: {missing}"
    axes = figure.subplots()
    for name, color in COLORS.items():
        label, width = f"{name} ({accuracy[name]:.1%} right)", 2.2 if name == OURS else 1.3
        axes.plot(rows, 100 * np.array(errors[name]), color=color, linewidth=width, zorder=2 + width, label=label)
    axes.set_title("Price of electricity in New South Wales: up or down?")
    axes.set(xlabel="half hours seen", ylabel=f"errors in the latest {WINDOW:,} (%)", xlim=(0, None), ylim=(0, None))
    axes.legend()
    figure.savefig(path)
    return f"Picture: {path.resolve()}"
