"""Keeping score: predictions and labels in, reports out, with metrics over all rows and over the latest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from streamboost._types import Task
from streamboost.evaluation.metrics import BY_NAME, Metric
from streamboost.evaluation.predictions import Answers
from streamboost.evaluation.reports import Report

DEFAULTS: dict[Task, tuple[str, ...]] = {
    "regression": ("rmse", "mae", "r2"),
    "classification": ("accuracy", "kappa", "log_loss"),
}
MetricKind: TypeAlias = str | type[Metric[Any]]


class Scored(NamedTuple):
    """Rows whose labels have come, what was said of them, and how long it took."""

    y: NDArray[Any]
    answers: Answers
    seconds: float


class ScoreBook:
    """Keeps score, and says when a report is due.

    Parameters
    ----------
    kinds : sequence of Metric classes
    every : int
        Rows between reports.
    window : int
        Over how many of the latest rows the windowed metrics look.

    Examples
    --------
    >>> import numpy as np
    >>> book = ScoreBook([BY_NAME["mae"]], every=2, window=2)
    >>> y, known = np.array([1.0, 2.0, 3.0]), np.ones(3, dtype=bool)
    >>> [report.running for report in book.take_in(Scored(y, Answers(known, y + 0.5), 0.1), None)]
    [{'mae': 0.5}]
    """

    def __init__(self, kinds: Sequence[type[Metric[Any]]], *, every: int, window: int) -> None:
        self.every, self.window = every, window
        self.running = [kind() for kind in kinds]
        self.windowed = [kind(window) for kind in kinds]
        self.rows = self.unanswered = 0
        self.seconds = 0.0
        self.reported = (0, 0.0)  # rows and seconds of the last report
        self.rows_before = self.n_events = 0

    def follow(self, model: Any) -> None:
        """Begin with a model as it is now: events from here on are new."""
        self.rows_before = int(getattr(getattr(model, "committee_", None), "n_rows", 0))
        self.n_events = len(getattr(model, "events_", ()))

    def take_in(self, scored: Scored, model: Any) -> Iterator[Report]:
        """Count rows that a model has learned; a chunk's time is spread evenly over its rows."""
        n, began, start = len(scored.y), self.seconds, 0
        while start < n:
            stop = min(start + self.every - self.rows % self.every, n)
            self._count(scored.y[start:stop], scored.answers.rows(slice(start, stop)))
            self.rows += stop - start
            self.seconds = began + scored.seconds * stop / n
            if self.rows % self.every == 0:
                yield self.report(self._new_events(model, self.rows if stop < n else None))
            start = stop

    def close(self, model: Any) -> Iterator[Report]:
        """The last report, unless it was given already."""
        if self.rows > self.reported[0]:
            yield self.report(self._new_events(model, None))

    def _count(self, y: NDArray[Any], answers: Answers) -> None:
        if not answers.known.all():
            self.unanswered += int((~answers.known).sum())
            y, answers = y[answers.known], answers.rows(answers.known)
        if not len(y):
            return
        values = answers.values
        if values.shape != y.shape and values.size == y.size:
            values = values.reshape(y.shape)  # (n, 1) is as good as (n,)
        for metric in chain(self.running, self.windowed):
            metric.add(y, answers.probabilities if metric.need == "probability" else values)

    def _new_events(self, model: Any, until: int | None) -> list[Any]:
        """What is new in ``events_``, up to a row: a chunk may have brought more than is reported on."""
        events = list(getattr(model, "events_", ()))[self.n_events :]
        if until is not None:
            events = [event for event in events if event.row - self.rows_before < until]
        self.n_events += len(events)
        return events

    def report(self, events: Sequence[Any] = ()) -> Report:
        """How it stands now."""
        rows, seconds = self.rows - self.reported[0], self.seconds - self.reported[1]
        self.reported = (self.rows, self.seconds)
        return Report(
            rows=self.rows,
            running={metric.name: metric.value for metric in self.running},
            windowed={metric.name: metric.value for metric in self.windowed},
            window=self.window,
            seconds=self.seconds,
            rows_per_second=rows / max(seconds, 1e-9),
            unanswered=self.unanswered,
            events=list(events),
            rows_before=self.rows_before,
        )


def choose_metrics(
    model: Any, task: Task, kinds: list[type[Metric[Any]]] | None, has_probabilities: bool
) -> list[type[Metric[Any]]]:
    """The metrics asked for, or the usual ones, that fit the task and what the model can say."""
    if kinds is None:
        chosen = [BY_NAME[name] for name in DEFAULTS[task]]
        return [kind for kind in chosen if has_probabilities or kind.need != "probability"]
    for kind in kinds:
        if (kind.need == "number") != (task == "regression"):
            raise ValueError(f"metric {kind.name!r} is not one for {task}, expected such as {DEFAULTS[task]}.")
        if kind.need == "probability" and not has_probabilities:
            raise ValueError(
                f"metric {kind.name!r} needs probabilities, and {type(model).__name__} gives none. Use 'accuracy', or "
                "a model or loss that has them."
            )
    return kinds


def metric_kind(metric: MetricKind) -> type[Metric[Any]]:
    """A metric by its name, or itself."""
    if isinstance(metric, type) and issubclass(metric, Metric):
        return metric
    if metric not in BY_NAME:
        raise ValueError(f"metric {metric!r} is unknown, expected one of {list(BY_NAME)}, or a subclass of Metric.")
    return BY_NAME[str(metric)]
