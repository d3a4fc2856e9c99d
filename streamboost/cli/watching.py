"""A run's reports, handed on to the dashboard and kept for the page at the end."""

from __future__ import annotations

import os
import sys
from typing import Self

from streamboost.dashboard.export import write_page
from streamboost.dashboard.feed import Feed
from streamboost.dashboard.observing import observe
from streamboost.reports import Report
from streamboost.running import Run


class Watchers:
    """The feed of a run, and the page if one is asked for."""

    def __init__(self, run: Run, *, title: str, target: str, port: int | None) -> None:
        self.run = run
        self.feed = Feed(title, {"source": title, "target": target, "task": run.options.task})
        self.page = None
        if port is not None:
            from streamboost.dashboard.serving import serve_in_thread

            self.page = serve_in_thread(self.feed, port=port)
            print(f"Dashboard: {self.page.url}", file=sys.stderr, flush=True)

    def see(self, report: Report) -> None:
        """Show a report to whoever watches."""
        self.feed.publish(
            observe(
                self.run.model,
                rows=report.rows_before + report.rows,
                running=report.running,
                windowed=report.windowed,
                rows_per_second=report.rows_per_second,
                events=report.events,
                quarantined=self.run.bad.n,
                workers=self.run.model.metrics() if hasattr(self.run.model, "detach") else (),
            )
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """The page as one file."""
        write_page(self.feed, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.end()
        if self.page is not None:
            self.page.close()
