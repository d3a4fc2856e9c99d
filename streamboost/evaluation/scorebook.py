"""Score predictions: targets and predictions in, reports out, with metrics over all rows and over the latest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost._types import Task
from streamboost.errors import did_you_mean
from streamboost.evaluation.metric_base import Metric
from streamboost.evaluation.metrics import BY_NAME
from streamboost.evaluation.predictions import Predictions
from streamboost.evaluation.reports import Report

DEFAULTS: dict[Task, tuple[str, ...]] = {
    "regression": ("rmse", "mae", "r2"),
    "classification": ("accuracy", "kappa", "log_loss"),
}
MetricKind: TypeAlias = str | type[Metric[Any]]


class Scored(NamedTuple):
    """Targets, what was predicted of them before, and the seconds that predicting and learning took."""

    y: NDArray[Any]
    predictions: Predictions
    seconds: float


class ScoreBook:
    """Metrics of a run so far, and a report every so many rows, with the ``events_`` of the model from here on.

    Examples
    --------
    >>> import numpy as np
    >>> book = ScoreBook([BY_NAME["mae"]], every=2, window=2)
    >>> y, known = np.array([1.0, 2.0, 3.0]), np.ones(3, dtype=bool)
    >>> [report.running for report in book.add(Scored(y, Predictions(known, y + 0.5), 0.1))]
    [{'mae': 0.5}]
    """

    def __init__(self, kinds: Sequence[type[Metric[Any]]], *, every: int, window: int, model: Any = None) -> None:
        self.every, self.window = every, window
        self.running = [kind() for kind in kinds]
        self.windowed = [kind(window) for kind in kinds]
        self.rows = self.unanswered = 0
        self.seconds = 0.0
        self.reported = (0, 0.0)  # rows and seconds of the last report
        self.rows_before = int(getattr(getattr(model, "committee_", None), "n_rows", 0))
        self.n_events = len(getattr(model, "events_", ()))

    def add(self, scored: Scored, model: Any = None) -> Iterator[Report]:
        """Score rows that a model has learned, and yield the reports due; a chunk's time is spread over its rows."""
        n, began, start = len(scored.y), self.seconds, 0
        while start < n:
            stop = min(start + self.every - self.rows % self.every, n)
            part = scored.predictions if stop - start == n else scored.predictions.rows(slice(start, stop))
            self._count(scored.y[start:stop], part)
            self.rows += stop - start
            self.seconds = began + scored.seconds * stop / n
            if self.rows % self.every == 0:
                yield self.report(self._new_events(model, self.rows if stop < n else None))
            start = stop

    def close(self, model: Any) -> Iterator[Report]:
        """Yield the last report, unless it was given already."""
        if self.rows > self.reported[0]:
            yield self.report(self._new_events(model, None))

    def _count(self, y: NDArray[Any], predictions: Predictions) -> None:
        if not (known := predictions.known).all():
            self.unanswered += int((~known).sum())
            y, predictions = y[known], predictions.rows(known)
        if not len(y):
            return
        values = predictions.values
        if values.shape != y.shape and values.size == y.size:
            values = values.reshape(y.shape)  # (n, 1) is as good as (n,)
        weight = np.ones(len(y))
        for running, windowed in zip(self.running, self.windowed, strict=True):
            if running.need == "number":  # which both encode alike; labels have codes of their own
                rows = running._encode(y, values)
                running.add_encoded(rows, weight)
                windowed.add_encoded(rows, weight)
            else:
                predicted = predictions.probabilities if running.need == "probability" else values
                running.add(y, predicted)
                windowed.add(y, predicted)

    def _new_events(self, model: Any, until: int | None) -> list[Any]:
        """Return what is new in ``events_``, up to a row: a chunk may bring more than one report covers."""
        events = list(getattr(model, "events_", ()))[self.n_events :]
        if until is not None:
            events = [event for event in events if event.row - self.rows_before < until]
        self.n_events += len(events)
        return events

    def report(self, events: Sequence[Any] = ()) -> Report:
        """Return the metrics as they are now."""
        rows, seconds = self.rows - self.reported[0], self.seconds - self.reported[1]
        self.reported = (self.rows, self.seconds)
        running, windowed = ({one.name: one.value for one in kept} for kept in (self.running, self.windowed))
        return Report(
            rows=self.rows, running=running, windowed=windowed, window=self.window, seconds=self.seconds,
            rows_per_second=rows / max(seconds, 1e-9), unanswered=self.unanswered, events=list(events),
            rows_before=self.rows_before,
        )  # fmt: skip


def choose_metrics(
    model: Any, task: Task, metrics: Sequence[MetricKind] | None, has_probabilities: bool
) -> list[type[Metric[Any]]]:
    """Return the metrics asked for, or the usual ones; refuse those that do not fit the task or the model."""
    if metrics is None:
        chosen = [BY_NAME[name] for name in DEFAULTS[task]]
        return [kind for kind in chosen if has_probabilities or kind.need != "probability"]
    kinds = [metric_kind(metric) for metric in metrics]
    for kind in kinds:
        if (kind.need == "number") != (task == "regression"):
            raise ValueError(f"metric {kind.name!r} is not one for {task}, expected such as {DEFAULTS[task]}.")
        if kind.need == "probability" and not has_probabilities:
            fault = f"metric {kind.name!r} needs probabilities, and {type(model).__name__} gives none"
            raise ValueError(f"{fault}. Use 'accuracy', or a model or loss that has them.")
    return kinds


def metric_kind(metric: MetricKind) -> type[Metric[Any]]:
    """Return a metric class by its name, or as it is."""
    if isinstance(metric, type) and issubclass(metric, Metric):
        return metric
    if metric not in BY_NAME:
        told = f"expected one of {', '.join(BY_NAME)}, or a subclass of Metric.{did_you_mean(metric, BY_NAME)}"
        raise ValueError(f"metric {metric!r} is unknown, {told}")
    return BY_NAME[str(metric)]
