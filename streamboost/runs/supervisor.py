"""Runs over the partitions of a stream, each by itself: placed, restarted when they die, and added up.

Every partition is a run like any other, with a directory of its own, and recovers from its own checkpoint. So a death
is a restart, and nothing has to be told to anybody; a second process on the same directory is kept out by its lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamboost.runs.partitions import Partition
from streamboost.runs.workers import Seen, Worker, WorkerGone

POLL_SECONDS = 0.1
LIST_SECONDS = 10.0  # between looks for partitions that were added
MOST_DEATHS = 5  # with nothing saved in between
LONGEST_PAUSE = 30.0  # seconds before one that died is started again
USAGE = 2  # the exit code of what cannot be done, however often it is tried
ENDED, WAITING, RUNNING, GIVEN_UP = "ended", "waiting", "running", "given up"


@dataclass
class _Run:
    """The run of one partition."""

    partition: Partition
    state: str = WAITING
    worker: Worker | None = None
    seen: Seen = field(default_factory=lambda: Seen({}))
    told: dict[str, Any] = field(default_factory=dict)
    starts: int = 0
    deaths: int = 0  # at one spot
    spot: int = -1  # where it went on before it died last
    not_before: float = 0.0
    reason: str = ""


class Supervisor:
    """Runs over partitions, several at a time.

    Parameters
    ----------
    partitions : callable
        Returns those that there are; asked again now and then if ``follow``.
    words : callable
        Returns the words of the command for a partition, given also whether it is begun: (partition, bool).
    start : callable
        Starts a command: a :class:`~streamboost.runs.workers.Worker`.
    n_workers : int
        How many run at a time.
    follow : bool, default=False
        Whether runs do not end by themselves. Then each has a worker, also those of partitions that were added.
    most_deaths : int, default=5
        A partition whose run has died so often, with no checkpoint written in between, is given up.
    """

    def __init__(
        self,
        partitions: Callable[[], Sequence[Partition]],
        words: Callable[[Partition, bool], list[str]],
        start: Callable[[list[str]], Worker],
        n_workers: int,
        *,
        follow: bool = False,
        most_deaths: int = MOST_DEATHS,
    ) -> None:
        self.partitions, self.words, self.start = partitions, words, start
        self.n_workers, self.follow, self.most_deaths = n_workers, follow, most_deaths
        self.list_error = ""  # why partitions that were added could not be looked for
        self.stopping = 0  # 1: with checkpoints; 2: at once
        self._runs: dict[str, _Run] = {}
        self._listed = time.monotonic()
        for partition in partitions():
            self._runs[partition.name] = _Run(partition)

    def watch(self) -> Iterator[list[dict[str, Any]]]:
        """Go on until all have ended; yield a table of the partitions about ten times a second."""
        try:
            while self._step():
                yield self.table()
                time.sleep(POLL_SECONDS)
            yield self.table()
        finally:
            for run in self._runs.values():
                if run.worker is not None:
                    run.worker.kill()

    def _step(self) -> bool:
        """Look after all; False once there is nothing left to do."""
        if self.follow and not self.stopping and time.monotonic() - self._listed > LIST_SECONDS:
            self._list_again()
        runs = [*self._runs.values()]
        for run in runs:
            if run.worker is not None:
                self._look_after(run)
        running = sum(run.worker is not None for run in runs)
        for run in runs if not self.stopping else ():
            is_due = run.state == WAITING and time.monotonic() >= run.not_before
            if is_due and (self.follow or running < self.n_workers):
                self._begin(run)
                running += 1
        return running > 0 or (not self.stopping and any(run.state == WAITING for run in runs))

    def _list_again(self) -> None:
        self._listed = time.monotonic()
        try:
            found = self.partitions()
        except (OSError, ValueError) as error:  # a broker that is away, say
            self.list_error = str(error)
            return
        self.list_error = ""
        for partition in found:
            self._runs.setdefault(partition.name, _Run(partition))

    def _begin(self, run: _Run) -> None:
        run.state, run.starts = RUNNING, run.starts + 1
        run.worker = self.start(self.words(run.partition, run.starts > 1))

    def _look_after(self, run: _Run) -> None:
        assert run.worker is not None
        try:
            seen = run.worker.see()
        except WorkerGone as gone:
            seen = run.seen._replace(code=-1, error=str(gone))
        run.seen = seen
        run.told |= seen.told
        if seen.code is None:
            if self.stopping:
                run.worker.kill() if self.stopping > 1 else run.worker.stop()
            return
        run.worker.kill()
        run.worker = None
        if seen.code == 0:
            run.state, run.reason = ENDED if not self.stopping else WAITING, ""
            return
        if self.stopping:
            run.state = WAITING
            return
        self._note_death(run, seen)

    def _note_death(self, run: _Run, seen: Seen) -> None:
        spot, code = seen.told.get("resumed_at", -1), seen.code or 0
        run.deaths = 1 if spot > run.spot else run.deaths + 1
        run.spot = max(spot, run.spot)
        end = f"it was killed by signal {-code}" if code < -1 else f"it ended with code {code}"
        run.reason = f"{end}. {seen.error}".strip()
        if seen.code == USAGE or run.deaths >= self.most_deaths:
            run.state = GIVEN_UP
            return
        run.state = WAITING
        run.not_before = time.monotonic() + min(LONGEST_PAUSE, 0.25 * 2 ** (run.deaths - 1))

    def table(self) -> list[dict[str, Any]]:
        """Say how each partition is."""
        rows = []
        for name, run in self._runs.items():
            told = run.told
            is_running = run.state == RUNNING
            rows.append(
                {
                    "partition": name,
                    "state": run.state,
                    "rows": int(told.get("rows", 0)),
                    "bad_rows": int(told.get("bad_rows", 0)),
                    "rows_per_second": told.get("rows_per_second") if is_running or run.state == ENDED else None,
                    "done": told.get("progress") if run.state != ENDED else 1.0,
                    "restarts": max(0, run.starts - 1),
                    "node": run.seen.node if is_running else "",
                    "pid": run.seen.pid if is_running else None,
                    "metrics": told.get("metrics", {}),
                    "reason": run.reason,
                }
            )
        return rows
