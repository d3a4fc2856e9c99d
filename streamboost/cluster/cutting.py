"""Cuts: the states of all workers after the same operations, saved together, numbered, and gone back to.

Of a crew this is the part that saves and loads: :class:`~streamboost.cluster.cuts.CutBook` knows which cuts there are,
:class:`~streamboost.cluster.recovery.Recovery` brings back a worker that dies on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamboost.cluster.cuts import CutBook
from streamboost.cluster.recovery import Recovery


class Cutting(Recovery):
    """Workers that save the same cut; arguments as for :class:`~streamboost.cluster.crew.Crew`, which uses them."""

    def __init__(
        self,
        cls: type,
        options: Mapping[str, Any],
        n_workers: int,
        book: CutBook,
        in_flight: int,
        cut_every: int,
        cut_bytes: int,
    ) -> None:
        super().__init__(cls, options, n_workers, book, in_flight)
        self.cut_every, self.cut_bytes = cut_every, cut_bytes
        self._bytes = 0  # of the operations since the last cut
        self._has_begun = False

    @property
    def directory(self) -> Path:
        """Where the cuts are."""
        return self._book.directory

    @property
    def mark(self) -> str:
        """Tells the cuts of this directory from those of another."""
        return self._book.manifest.mark

    @property
    def is_lasting(self) -> bool:
        """Whether the directory outlives the driver."""
        return self._book.is_lasting

    @property
    def cuts(self) -> list[int]:
        """The numbers of the cuts there are, the newest last."""
        return list(self._book.manifest.cuts)

    def folder(self, worker: int) -> Path:
        """Where a worker saves; also of one that only an earlier, larger crew had."""
        return self._book.folder(worker)

    def cut(self) -> int:
        """Have all workers save the state after all operations sent so far; return the number of the cut.

        It is durable when this returns. If nothing was sent since the last one, that is it. Of the cuts that are not
        made for checkpoints only the last two are kept.
        """
        self._check((), "save")
        self._check_whole()
        self._begin()
        return self._cut()

    def load(self, number: int) -> None:
        """Go back to a cut, on all workers; 0: to workers as they are made. What is on its way is given up."""
        self._check((), "load")
        cuts = self._book.manifest.cuts
        if number and number not in cuts:
            raise self._book.unknown(number)
        done = cuts[number] if number else [0] * self.n_workers
        if len(done) != self.n_workers:
            raise ValueError(
                f"cut {number} is of {len(done)} workers, and there are {self.n_workers}. "
                f"Use workers={len(done)} (--workers {len(done)} on the command line)."
            )
        for line, at in zip(self._lines, done, strict=True):
            line.abandon(f"the operation was given up: the crew went back to cut {number}.")
            line.sent = at
        self._base, self._base_done, self._bytes, self._has_begun = number, list(done), 0, True
        self._book.go_back(number)
        self._torn = f"cut {number} was not loaded to its end"
        everyone = range(self.n_workers)
        alive = self._gather({worker: ("load", number, done[worker]) for worker in everyone})
        self._bring_up([worker for worker in everyone if worker not in alive])
        self._torn = None

    # When cuts are made, and how.

    def _begin(self, kind: str = "call") -> None:
        """See that nobody takes new workers for those of the directory; before the first operation, make a cut."""
        if self._has_begun:
            return
        if self._book.manifest.cuts:
            raise FileExistsError(
                f"{str(self.directory)!r} holds the cuts {self.cuts} already. Attach or load one to go on with it, "
                "name another directory, or call load(0) to begin anew."
            )
        if kind == "call":
            self._has_begun = True
            if self.can_die:
                self._cut()

    def _make_room(self, worker: int) -> None:
        """Make a cut if the operations since the last one have become too many."""
        n_since = self._lines[worker].sent - self._base_done[worker]
        if self.can_die and (n_since >= self.cut_every or self._bytes >= self.cut_bytes):
            self._cut()

    def _cut(self, *, is_detached: bool = False) -> int:
        everyone = range(self.n_workers)
        sent = [line.sent for line in self._lines]
        number, is_new = self._base, False
        if not self._base or sent != self._base_done:
            number, is_new = self._save_all(), True
        if is_new or is_detached:
            kept = self._book.note(number, sent, is_detached=is_detached)
            self._base, self._base_done, self._bytes = number, sent, 0
            for line in self._lines:
                line.forget_log()
            if hasattr(self.cls, "drop"):
                alive = self._gather(dict.fromkeys(everyone, ("drop", kept)))
                self._bring_up([worker for worker in everyone if worker not in alive])
        return number

    def _save_all(self) -> int:
        """Have all workers save; whenever one dies in it, all save once more, under another number."""
        everyone = range(self.n_workers)
        while True:
            for worker in everyone:
                while self._lines[worker].pending:
                    self._collect(worker)
            self._check_whole()
            number = self._book.reserve()
            alive = self._gather({worker: ("save", number, self._lines[worker].sent) for worker in everyone})
            if len(alive) == self.n_workers:
                for line in self._lines:
                    line.deaths = 0  # a whole cut gets the crew on as much as an answer does
                return number
            self._bring_up([worker for worker in everyone if worker not in alive])
