"""Reports of a prequential run, and all of them together as a table or a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamboost.errors import require


@dataclass(frozen=True)
class Report:
    """The metrics of a run after some rows.

    Attributes
    ----------
    rows : int
        Rows so far whose label has come.
    running, windowed : dict
        Metrics by name: over all these rows, and over the latest ``window`` of them; NaN where one has no meaning.
    window : int
    seconds : float
        Time spent predicting and learning so far; waiting for rows, keeping score and compiling do not count.
    rows_per_second : float
        Since the last report.
    unanswered : int
        Rows so far that the model could not predict, such as the first of many; they are in no metric.
    events : list
        What is new in the model's ``events_`` since the last report.
    rows_before : int
        Rows the model had learned before the run; the rows of events are counted from its very first.

    Examples
    --------
    >>> print(Report(2000, {"rmse": 1.25}, {"rmse": 0.75}, 500, 0.1, 20000.0))
    2,000 rows: rmse 1.25 (latest 500: 0.75), 20,000 rows/s
    """

    rows: int
    running: dict[str, float]
    windowed: dict[str, float]
    window: int
    seconds: float
    rows_per_second: float
    unanswered: int = 0
    events: list[Any] = field(default_factory=list)
    rows_before: int = 0

    def __str__(self) -> str:
        scores = [
            f"{name} {value:.4g} (latest {self.window:,}: {f'{self.windowed[name]:.4g}'.replace('nan', '-')})"
            for name, value in self.running.items()
            if not math.isnan(value)  # of a metric that has no meaning here, or none yet
        ]
        return f"{self.rows:,} rows: {', '.join([*scores, f'{self.rows_per_second:,.0f} rows/s'])}"


class History(list[Report]):
    """All reports of a run, in order: ``History(prequential(...))`` goes through the run.

    Examples
    --------
    >>> history = History([Report(1000, {"mae": 2.0}, {"mae": 1.5}, 500, 0.5, 2000.0)])
    >>> history.last.windowed["mae"], history.table().column_names[:3]
    (1.5, ['rows', 'mae', 'mae_windowed'])
    """

    @property
    def last(self) -> Report:
        """Return the report on all rows."""
        if not self:
            raise ValueError("there is no report yet, expected at least one. Run the loop first.")
        return self[-1]

    @property
    def metrics(self) -> list[str]:
        """Return the names of the metrics."""
        return list(self.last.running)

    @property
    def events(self) -> list[Any]:
        """Return all events of the model."""
        return [event for report in self for event in report.events]

    def table(self) -> pa.Table:
        """Return an Arrow table, one row a report; events as text."""
        columns: dict[str, list[Any]] = {"rows": [report.rows for report in self]}
        for name in self.metrics:
            columns[name] = [report.running[name] for report in self]
            columns[f"{name}_windowed"] = [report.windowed[name] for report in self]
        for name in ("seconds", "rows_per_second", "unanswered"):
            columns[name] = [getattr(report, name) for report in self]
        columns["events"] = [[f"row {e.row}: {e.kind}, {e.detail}" for e in report.events] for report in self]
        return pa.table(columns)

    def plot(self, metric: str | None = None) -> Any:
        """Plot a metric over rows, of the latest rows and of all, with events on the axis.

        The metric is one of :attr:`metrics`, by default the first. A matplotlib figure is returned:
        ``figure.savefig("run.png")`` writes it.
        """
        name = self.metrics[0] if metric is None else metric
        if name not in self.metrics:
            raise ValueError(f"metric is {name!r}, expected one of {self.metrics}, which this run kept.")
        figure = require("matplotlib.figure", extra="plot", by="History.plot").Figure(figsize=(9, 4.5), dpi=120)
        axes = figure.subplots()
        rows = [report.rows for report in self]
        recent, overall = ([getattr(report, kind)[name] for report in self] for kind in ("windowed", "running"))
        mark = "o" if len(rows) == 1 else None  # a single point makes no line
        axes.plot(rows, recent, color="#c2410c", lw=1.8, marker=mark, label=f"latest {self.last.window:,} rows")
        axes.plot(rows, overall, color="#6b7280", lw=1.3, ls="--", marker=mark, label="all rows so far")
        places: dict[str, list[int]] = {}
        for report in self:
            for event in report.events:
                places.setdefault(event.kind, []).append(event.row - report.rows_before)
        for place, (kind, at) in enumerate(places.items()):  # a triangle on the axis for each, a colour for every kind
            axes.scatter(at, [0.0] * len(at), marker="^", s=36, color=f"C{place}", clip_on=False, zorder=4,
                         transform=axes.get_xaxis_transform(), label=kind)  # fmt: skip
        axes.set(xlabel="rows", ylabel=name, xlim=(0, rows[-1]))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axes.grid(axis="y", color="#e5e7eb")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
        figure.tight_layout()
        return figure
