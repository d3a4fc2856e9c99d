"""The workers of a spread stack: started when they are needed, handed on from one fit to the next, torn by a failure.

Copies of a stack share what they have started, since estimators copy the learner they are given. A *lease* says whose
the workers are: whoever begins anew, or attaches a cut, takes it over, and the one before says so when it is asked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from streamboost.cluster.crew import Crew, Ticket, WorkerLost, WrongState, make_crew
from streamboost.cluster.stack_worker import StackWorker
from streamboost.stacks.base import Stack


class SpreadWorkers:
    """The part of a :class:`~streamboost.cluster.spread.SpreadStack` that has the workers.

    Parameters
    ----------
    stack : Stack
        The learners, not opened yet.
    workers : int
        Among how many they are divided.
    options : dict
        Of the crew.
    """

    n_learners: int
    _is_restarted = False  # whether cuts that lie in the directory are to be passed over
    _is_alone = False  # whether of this one and its copies only the latest is in use
    _torn = ""  # why workers no longer agree
    n_steps = 0  # how often all workers were changed

    def __init__(self, stack: Stack, workers: int, options: dict[str, Any]) -> None:
        self.stack, self.workers, self.options = stack, workers, options
        self._starts = _starts(stack.n_learners, workers)
        self._crew: Crew | None = None
        self._lease: object = None  # as the crew's, as long as nobody else took it over
        self._started: list[Crew] = []  # by this one and its copies

    @property
    def crew(self) -> Crew:
        """The workers; they start when they are first needed."""
        return self._get_crew(is_new=True)

    def _get_crew(self, *, is_new: bool) -> Crew:
        """The workers; new ones, or as good as new if so asked."""
        if self._crew is None:
            self._starts = _starts(self.n_learners, self.workers)
            crew = self._left_over()
            is_used = self._is_restarted or (crew is not None and crew.has_begun)
            if crew is None:
                parts = [{"stack": self.stack.part(own.start, own.stop)} for own in self._ranges()]
                crew = make_crew(StackWorker, parts, workers=self.workers, **self.options)
                self._started.append(crew)
            self._crew = crew
            if is_new:
                crew.lease = self._lease = object()
            if is_new and is_used:
                crew.load(0)
        return self._crew

    def _left_over(self) -> Crew | None:
        """The workers of the one before, where there is but one at a time."""
        while self._is_alone and self._started:
            if not self._started[-1].is_over:
                return self._started[-1]
            self._started.pop().close()
        return None

    @property
    def is_started(self) -> bool:
        """Whether there are workers, of this one or of a copy."""
        return bool(self._started)

    def for_one(self) -> Self:
        """A copy for a model that uses one of its copies at a time: each takes over the workers of the one before."""
        twin = copy.copy(self)
        twin._started, twin._is_alone = [], True
        return twin

    def _ranges(self) -> Iterator[slice]:
        """The learners of each worker."""
        yield from map(slice, self._starts, [*self._starts[1:], self.n_learners])

    def _change(self, send: Callable[[], Sequence[Ticket]], *, is_step: bool = False) -> list[Any]:
        """What workers answer to operations; after a step that was not taken by all, they are no longer of one stack.

        What is no step may be refused by all of them, and nothing has changed then.
        """
        self._check_whole()
        crew, answers, errors = self.crew, [], []
        try:
            for ticket in send():
                try:
                    answers.append(crew.result(ticket))
                except WorkerLost:
                    raise
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]
        except WorkerLost:
            raise
        except BaseException as error:
            if answers or is_step or isinstance(error, (MemoryError, WrongState)) or not isinstance(error, Exception):
                self.tear(error)
            raise
        self.n_steps += 1
        return answers

    def tear(self, error: BaseException) -> None:
        """Hear that something failed in the middle of a chunk: what the learners are now is nobody's model."""
        self._torn = self._torn or f"{type(error).__name__}: {error}"

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError(
                f"a chunk was not learned to its end by all workers ({self._torn}), so that their learners are no "
                "longer of one model. Go back to the last checkpoint (attach; --resume on the command line), or begin "
                "anew (open, or fit)."
            )
        if self._crew is not None and self._crew.lease is not self._lease:
            raise RuntimeError(
                "the workers have begun anew for another fit, so that what they had learned before is gone. "
                "Go back to the last checkpoint (attach), or fit again."
            )

    def close(self) -> None:
        """End the workers, those of copies too."""
        while self._started:
            self._started.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _starts(n_learners: int, workers: int) -> list[int]:
    """The first learner of each worker, so that no two have numbers of learners that differ by more than one."""
    return [worker * n_learners // workers for worker in range(workers)]
