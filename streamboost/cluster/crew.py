"""A crew: workers that each hold a part of a model, whatever runs them, and that survive being killed.

Operations flow in by :meth:`Crew.call` (they change a worker) and :meth:`Crew.ask` (they do not), answers flow out of
:meth:`Crew.result`. Each worker takes its operations in the order in which they were sent. Now and then all workers
save the same *cut*; one that dies is made anew from the last cut and gets what came after it once more, so that in the
end every operation has happened exactly once.

What a worker is, :mod:`streamboost.cluster.station` says; how cuts are made, :mod:`streamboost.cluster.recovery`.

:meth:`Crew.detach` and :meth:`Crew.attach` are the pair for checkpoints: a cut is made, and attached by whoever finds
the checkpoint. :meth:`Crew.confirm` says between them that the checkpoint is on disk. Of the cuts detached and of those
confirmed the last two stay, so that a checkpoint finds its cut however many later ones failed to be written.
A directory that holds cuts refuses to be begun anew by accident: attach or load one of them, or ``load(0)``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from streamboost.cluster.recovery import Message, Recovery, Ticket, WorkerLost, check_counts
from streamboost.cluster.station import Answer, Station, WrongState, size_of

__all__ = ["Crew", "Cut", "LocalCrew", "Ticket", "WorkerLost", "WrongState", "make_crew"]

Engine: TypeAlias = Literal["auto", "local", "ray"]


@dataclass
class Cut:
    """What a checkpoint keeps of a model that lives on workers: where its state is, and what the driver remembers.

    Parameters
    ----------
    kind : str
        Of what shape the model is.
    number : int
        Of the cut; 0: as the workers were made.
    n_workers : int
    directory : str
        Where it was made.
    mark : str
        Tells the cuts of this directory from those of another.
    memory : object
        What the driver itself must remember; anything :func:`streamboost.persistence.snapshots.save` takes.
    """

    kind: str
    number: int = 0
    n_workers: int = 0
    directory: str = ""
    mark: str = ""
    memory: Any = None


class Crew(Recovery):
    """Workers that are sent operations; what runs them is for subclasses to say.

    Parameters
    ----------
    cls : type
        The class of the workers.
    options : dict
        What to make each of them of.
    n_workers : int
    directory : path, optional
        For cuts; one process at a time. On a cluster it must be the same for all machines. Without it a temporary one
        is used, and nothing survives the driver.
    cut_every : int
        A cut is made by itself when there are this many operations of a worker since the last one ...
    cut_bytes : int
        ... or the operations since then hold this many bytes in the driver's memory.
    in_flight : int
        How many operations of one worker may be unanswered; a further one waits.
    """

    # Operations.

    def call(self, worker: int, method: str, *args: Any) -> Ticket:
        """Send an operation that changes a worker; waits only if too many are unanswered, or for a cut that is due."""
        return self._issue(worker, "call", method, args)

    def ask(self, worker: int, method: str, *args: Any) -> Ticket:
        """Send a question, which changes nothing; it sees all operations sent before it, and none after."""
        return self._issue(worker, "ask", method, args)

    def ask_all(self, method: str) -> list[Ticket]:
        """Send the same question to all workers."""
        return [self.ask(worker, method) for worker in range(self.n_workers)]

    def result(self, ticket: Ticket) -> Any:
        """Wait for an answer; an error that the operation raised is raised here."""
        answer = self._answer(ticket)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def results(self, tickets: Iterable[Ticket]) -> list[Any]:
        """Wait for several answers; all are waited for before the first error is raised."""
        tickets = list(tickets)
        for ticket in tickets:
            self._answer(ticket)
        return [self.result(ticket) for ticket in tickets]

    def _issue(self, worker: int, kind: str, method: str, args: tuple[Any, ...]) -> Ticket:
        self._check([worker], method)
        self._check_whole()
        self._begin(kind)
        size = size_of(args) if self.can_die and kind == "call" else 0
        if kind == "call":
            self._make_room(worker)
        line = self._lines[worker]
        while len(line.pending) >= self.in_flight:
            self._collect(worker)
        number = line.sent + (kind == "call")
        ticket = Ticket(worker, kind, number, method, args)
        ticket.handle = self._send(worker, (kind, number, method, args))
        line.sent = number
        line.pending.append(ticket)
        self._bytes += size
        return ticket

    def _answer(self, ticket: Ticket) -> Answer:
        while ticket.answer is None:
            if self._end is not None:
                raise WorkerLost(self._end)
            self._collect(ticket.worker)
        return ticket.answer

    # Checkpoints.

    def detach(self, kind: str, memory: Any = None) -> Cut:
        """Make a cut for a checkpoint to refer to; of cuts made so, the last two stay.

        Where nothing was done as yet, none is made: its number is 0, and the directory is left to whoever comes next.
        Call :meth:`confirm` once the checkpoint is on disk.

        Raises
        ------
        ValueError
            If the crew has no directory that outlives it.
        """
        if not self.is_lasting:
            raise ValueError(
                "directory is None, expected one for the workers' state, which a checkpoint refers to. Pass directory=."
            )
        self._check((), "save")
        self._check_whole()
        is_new = not self._base and not any(line.sent for line in self._lines)
        self._begin("ask" if is_new else "call")
        number = 0 if is_new else self._cut(is_detached=True)
        return Cut(kind, number, self.n_workers, str(self.directory), self.mark, memory)

    def confirm(self, cut: Cut) -> None:
        """Hear that a checkpoint on disk refers to what was detached; of cuts confirmed so, the last two stay."""
        if cut.number:
            self._check_mark(cut)
            self._book.confirm(cut.number)

    def attach(self, cut: Cut, kind: str) -> None:
        """Become what was detached, which thereby is confirmed: whoever attaches it has found its checkpoint."""
        if not isinstance(cut, Cut) or cut.kind != kind:
            found = f"a cut of a {cut.kind!r}" if isinstance(cut, Cut) else f"a {type(cut).__name__}"
            raise ValueError(
                f"cut is {found}, expected one of a {kind!r}. Attach what the same kind of model detached."
            )
        if cut.number or cut.mark:
            self._check_mark(cut)
        self.confirm(cut)
        self.load(cut.number)

    def begin_anew(self, cut: Any) -> None:
        """Begin in a directory that a checkpoint is of by which nothing had been done: cuts made after it are let go.

        Whatever the checkpoint holds beside such a cut changes nothing, and so do workers that have begun already.
        """
        if isinstance(cut, Cut) and not cut.number and cut.mark == self.mark and not self._has_begun:
            self.load(0)

    def _check_mark(self, cut: Cut) -> None:
        if cut.mark != self.mark:
            raise ValueError(
                f"the cut was made in {cut.directory!r}, and this is {str(self.directory)!r}, which holds others. "
                "Name the directory it was made in."
            )

    # Around it.

    def metrics(self) -> list[dict[str, Any]]:
        """How each worker is, as of its last answer; asks nobody, so it costs next to nothing."""
        return [
            {
                "worker": worker,
                "operations": line.sent,
                "rows": line.n_rows,
                "in_flight": len(line.pending),
                "restarts": line.restarts,
                "node": line.facts.get("node"),
                "pid": line.facts.get("pid"),
                "memory": line.memory,
            }
            for worker, line in enumerate(self._lines)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("workers that run can be neither copied nor pickled. Use detach() for a checkpoint.")


class LocalCrew(Crew):
    """A crew in this process: no copy of a worker can be lost without the driver, so cuts are made only when asked for.

    Where memory runs out in the middle of an operation, or it is interrupted, the error itself comes back; from then on
    one can only go back to a cut.
    """

    can_die = False

    def __init__(self, cls: type, options: Mapping[str, Any], n_workers: int, *args: Any, **named: Any) -> None:
        self._stations: dict[int, Station] = {}
        super().__init__(cls, options, n_workers, *args, **named)

    def _start(self, worker: int) -> None:
        self._stations[worker] = Station()

    def _send(self, worker: int, message: Message) -> Any:
        try:
            return self._stations[worker].handle(*message)
        except BaseException as interrupt:
            if message[0] == "call":
                self._tear(worker, message[1], message[2], interrupt)
            raise

    def _wait(self, worker: int, handle: Any) -> Answer:
        assert isinstance(handle, Answer)
        return handle

    def _stop(self, worker: int) -> None:
        self._stations.pop(worker, None)


def make_crew(
    cls: type,
    options: Mapping[str, Any],
    *,
    workers: int | None = None,
    engine: Engine = "auto",
    address: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    resources: Mapping[str, Any] | None = None,
    **named: Any,
) -> Crew:
    """Make a crew on the engine that is asked for.

    Parameters
    ----------
    cls, options, directory
        As for :class:`Crew`.
    workers : int, optional
        How many; without it one.
    engine : "auto", "local" or "ray"
        "auto" is "ray" if ``workers`` or ``address`` is given, else "local": in this process.
    address : str, optional
        Of a Ray cluster: "auto" or "host:port". Without it Ray is started on this machine, for this crew.
    resources : dict, optional
        What one worker needs of Ray: num_cpus, num_gpus, memory (bytes), and names of your own.
    **named
        Further options of :class:`Crew` or :class:`~streamboost.cluster.ray_crew.RayCrew`.
    """
    if engine not in ("auto", "local", "ray"):
        raise ValueError(f"engine is {engine!r}, expected 'auto', 'local' or 'ray'.")
    n_workers = 1 if workers is None else workers
    check_counts(workers=n_workers)
    if engine == "ray" or (engine == "auto" and (workers is not None or address is not None)):
        from streamboost.cluster.ray_crew import RayCrew

        return RayCrew(cls, options, n_workers, directory, address=address, resources=resources, **named)
    if address is not None or resources is not None:
        raise ValueError(
            f"address is {address!r} and resources is {resources!r}, but engine='local' uses neither. Use engine='ray'."
        )
    return LocalCrew(cls, options, n_workers, directory, **named)
