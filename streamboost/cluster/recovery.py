"""What makes a crew survive its workers: the operations since the last cut, kept by the driver and sent again.

A :class:`Line` per worker keeps what was sent to it. When a worker is found dead, :class:`Recovery` makes it anew, has
it load the last cut, sends it again what came after, and drops the answers that were delivered before. How a worker is
made and spoken to is left to the engine: five short methods.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from streamboost.cluster.cuts import CutBook
from streamboost.cluster.station import Answer, WrongState, versions

CUT_EVERY = 500
CUT_BYTES = 2**28
IN_FLIGHT = 4
MOST_DEATHS = 5  # of one worker with nothing answered and no cut made in between

Message: TypeAlias = tuple[Any, ...]  # the kind, and what the station wants for it


class WorkerDied(Exception):
    """A worker is gone, or not in the state it should be in: it has to be made anew."""


class WorkerLost(RuntimeError):
    """A worker died again and again, or could not be made anew: the crew cannot go on."""


@dataclass(eq=False)
class Ticket:
    """An operation on its way; give it to :meth:`Crew.result`."""

    worker: int
    kind: str
    number: int  # of the operation; for a question, of the one before it
    method: str
    args: tuple[Any, ...] = field(repr=False)
    handle: Any = field(default=None, repr=False)
    answer: Answer | None = field(default=None, repr=False)


@dataclass(eq=False)
class Line:
    """What the driver knows of one worker: what is on its way, and what happened since the last cut."""

    sent: int = 0
    pending: deque[Ticket] = field(default_factory=deque)
    log: list[Ticket] = field(default_factory=list)  # answered, after the last cut
    facts: dict[str, Any] = field(default_factory=dict)
    memory: int = 0
    n_rows: int | None = None
    restarts: int = 0
    deaths: int = 0  # since something was last answered, or a cut made

    def answered(self, answer: Answer, keep: bool) -> None:
        """Note the answer to what has waited longest; keep what it asked for if it may be needed again."""
        ticket = self.pending.popleft()
        ticket.answer, ticket.handle = answer, None
        self.deaths = 0
        self.note(answer)
        if keep and ticket.kind == "call":
            self.log.append(ticket)
        else:
            ticket.args = ()

    def note(self, answer: Answer) -> None:
        """Note how the worker is."""
        self.memory = answer.memory or self.memory
        self.n_rows = answer.n_rows if answer.n_rows is not None else self.n_rows

    def forget_log(self) -> None:
        """Forget what a cut now holds."""
        for ticket in self.log:
            ticket.args = ()
        self.log.clear()

    def abandon(self, reason: str) -> None:
        """Give up what is on its way."""
        for ticket in self.pending:
            ticket.answer, ticket.args = Answer(error=WrongState(reason)), ()
        self.pending.clear()
        self.forget_log()


class Recovery(ABC):
    """Workers that save the same cuts and come back from them; arguments as for :class:`~streamboost.cluster.Crew`."""

    can_die: ClassVar[bool] = True  # a worker without its driver
    most_deaths: ClassVar[int] = MOST_DEATHS

    def __init__(
        self,
        cls: type,
        options: Mapping[str, Any],
        n_workers: int,
        directory: str | os.PathLike[str] | None = None,
        *,
        cut_every: int = CUT_EVERY,
        cut_bytes: int = CUT_BYTES,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        check_counts(n_workers=n_workers, cut_every=cut_every, cut_bytes=cut_bytes, in_flight=in_flight)
        self.cls, self.n_workers, self._options = cls, n_workers, dict(options)
        self.cut_every, self.cut_bytes, self.in_flight = cut_every, cut_bytes, in_flight
        self._book = CutBook(directory)
        self._lines = [Line() for _ in range(n_workers)]
        self._base = 0  # the cut from which workers are made anew
        self._base_done = [0] * n_workers
        self._bytes = 0  # of the operations since then
        self._has_begun = False
        self._end: str | None = None  # why it cannot go on
        self._torn: str | None = None  # why it has to go back to a cut first
        try:
            for worker in range(n_workers):
                self._book.folder(worker).mkdir(exist_ok=True)
            self._open()
            self._bring_up(range(n_workers))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the workers and let another driver use the directory; what came after the last cut is gone."""
        self._end = self._end or "the crew is closed. Make a new one."
        try:
            for worker in range(self.n_workers):
                self._stop(worker)
            self._shut()
        finally:
            self._book.close()

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

    # Cuts: the states of all workers after the same operations, saved together, numbered, and gone back to.

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

    # What runs the workers.

    @abstractmethod
    def _start(self, worker: int) -> None:
        """Make an empty station for a worker, in place of the one there was."""

    @abstractmethod
    def _send(self, worker: int, message: Message) -> Any:
        """Send a message; return what :meth:`_wait` wants. A dead worker shows only there."""

    @abstractmethod
    def _wait(self, worker: int, handle: Any) -> Answer:
        """Wait for an answer; raises WorkerDied."""

    @abstractmethod
    def _stop(self, worker: int) -> None:
        """End a worker if there is one."""

    def _open(self) -> None:  # noqa: B027 - most have nothing to do
        """Get ready to start workers."""

    def _shut(self) -> None:  # noqa: B027
        """Undo :meth:`_open`."""

    # Recovery.

    def _collect(self, worker: int) -> None:
        """Wait for the oldest answer of a worker; if it died, bring it back: then there is more to wait for."""
        line = self._lines[worker]
        try:
            answer = self._wait(worker, line.pending[0].handle)
            self._check_trust(answer)
        except WorkerDied as death:
            self._note_death(worker, death)
            self._bring_up([worker])
            return
        ticket = line.pending[0]
        line.answered(answer, keep=self.can_die)
        if answer.is_fatal and answer.error is not None:
            self._tear(worker, ticket.number, ticket.method, answer.error)

    def _gather(self, messages: Mapping[int, Message]) -> dict[int, Answer]:
        """Send one message to each of several workers and wait for all; those that died are left out."""
        handles = {worker: self._send(worker, message) for worker, message in messages.items()}
        answers: dict[int, Answer] = {}
        for worker, handle in handles.items():
            try:
                answers[worker] = self._wait(worker, handle)
                self._check_trust(answers[worker])
            except WorkerDied as death:
                answers.pop(worker, None)
                self._note_death(worker, death)
        for worker, answer in answers.items():
            self._lines[worker].note(answer)
            if answer.error is not None:
                raise answer.error
        return answers

    def _note_death(self, worker: int, death: WorkerDied) -> None:
        line = self._lines[worker]
        line.deaths += 1
        line.restarts += 1
        if line.deaths >= self.most_deaths:
            first = line.pending[0] if line.pending else None
            at = "its start or a cut" if first is None else f"operation {first.number}, {first.method!r}"
            self._end = (
                f"worker {worker} died {line.deaths} times in a row, the last time at {at}: {death} "
                f"All up to cut {self._base} is safe in {str(self._book.directory)!r}: remove the cause and load it."
            )
            raise WorkerLost(self._end)

    def _bring_up(self, workers: Collection[int]) -> None:
        """Make workers, anew if need be: empty, then as of the last cut, then with what came after it."""
        left = list(workers)
        try:
            while left:
                for worker in left:
                    self._start(worker)
                alive = self._greet(left)
                recipe = ("build", self.cls, self._options)
                alive = self._gather({worker: (*recipe, str(self.folder(worker)), self.mark) for worker in alive})
                alive = self._gather({worker: ("load", self._base, self._base_done[worker]) for worker in alive})
                up = {worker for worker in alive if self._replay(worker)}
                left = [worker for worker in left if worker not in up]
        except Exception as error:
            self._end = self._end or f"the crew stopped, since a worker could not be brought up: {error}"
            raise

    def _greet(self, workers: Collection[int]) -> Collection[int]:
        """Ask new workers who they are; refuse one that could give other answers than this process would."""
        answers = self._gather(dict.fromkeys(workers, ("hello",)))
        ours = versions()
        for worker, answer in answers.items():
            theirs = answer.value["versions"]
            wrong = [
                f"{name} {theirs.get(name)} instead of {ours[name]}" for name in ours if theirs.get(name) != ours[name]
            ]
            if wrong:
                raise RuntimeError(
                    f"worker {worker} on node {answer.value['node']} has {' and '.join(wrong)}. "
                    "Install the same versions where the driver and the workers run."
                )
            self._lines[worker].facts = answer.value
        return answers

    def _replay(self, worker: int) -> bool:
        """Send a worker again what came after the last cut; False if it died meanwhile."""
        line = self._lines[worker]
        under_way: list[Any] = []
        try:
            for ticket in line.log:
                under_way.append(self._send(worker, (ticket.kind, ticket.number, ticket.method, ticket.args)))
                if len(under_way) >= self.in_flight:
                    self._check_trust(self._wait(worker, under_way.pop(0)))
            for handle in under_way:
                self._check_trust(self._wait(worker, handle))
        except WorkerDied as death:
            self._note_death(worker, death)
            return False
        for ticket in line.pending:
            ticket.handle = self._send(worker, (ticket.kind, ticket.number, ticket.method, ticket.args))
        return True

    # What cannot be sent, and what cannot be undone by making a worker anew.

    def _check(self, workers: Collection[int], method: str) -> None:
        if self._end is not None:
            raise WorkerLost(self._end)
        for worker in workers:
            if not 0 <= worker < self.n_workers:
                raise ValueError(f"worker is {worker!r}, expected a whole number from 0 to {self.n_workers - 1}.")
        if method.startswith("_") or not hasattr(self.cls, method):
            raise ValueError(f"method is {method!r}, which {self.cls.__name__} does not have. Is it spelt right?")

    def _check_trust(self, answer: Answer) -> None:
        """A worker that is not where it should be is as good as dead, where dead ones come back as they were."""
        if answer.is_fatal and self.can_die:
            raise WorkerDied(f"{type(answer.error).__name__}: {answer.error}")

    def _tear(self, worker: int, number: int, method: str, error: BaseException) -> None:
        """Note that a worker stopped half-way, and that nothing was kept to repeat what it had done before."""
        said = f"{type(error).__name__}: {error}"
        torn = f"worker {worker} stopped in the middle of operation {number}, {method!r}, with {said}"
        self._torn = self._torn or torn

    def _check_whole(self) -> None:
        if self._torn is not None:
            raise WrongState(
                f"{self._torn.rstrip('.')}. What the workers hold is not to be trusted. "
                "Attach the last checkpoint, or load a cut, to go on from there; load(0) begins anew."
            )


def check_counts(**counts: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} is {value!r}, expected a whole number of at least 1.")
