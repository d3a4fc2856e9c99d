"""Tells that kernels are being compiled, or that a table is being fitted, and how far that is.

Compiling happens once: what was compiled is kept (:mod:`streamboost.kernels.caching`); its seconds are counted, as they
are no work on rows. Fitting is told of once it takes long. Where somebody watches, on a terminal or in a notebook, a
line on standard error says so; elsewhere nothing does. A program with a display of its own listens instead:
``with clock.heard_by(listener)``.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self, TextIO, TypeAlias

# what compiles for long, in seconds of a common processor, and what is compiled one after the other as rows are learned
SECONDS = {
    "learn_rows": 10.0,
    "grow": 5.0,
    "fresh_target": 1.5,
    "score_rows": 1.0,
    "learn_nets": 9.0,
    "score_nets": 1.5,
}
TOGETHER = (("learn_rows", "fresh_target", "grow", "score_rows"), ("learn_nets", "score_nets"))
OTHERS = 0.3  # every other kernel
SOON = 0.5  # what compiles no longer is not worth a word
DELAY = 2.0  # seconds of work on rows before it is told of
EVERY = 0.5  # seconds between two looks
WIDTH = 60  # of the line, so that a shorter one leaves nothing of a longer one


class Stage(NamedTuple):
    """How far compiling is: seconds so far, and about how many it takes; once it is over, as many as it took."""

    passed: float
    expected: float
    is_over: bool = False

    def __str__(self) -> str:
        if self.is_over:
            return f"compiled once, in {self.passed:.0f} s"
        return f"compiling once, about {self.expected:.0f} s: {100 * min(self.passed / self.expected, 0.99):.0f} %"


class WorkStage(NamedTuple):
    """How far work on rows is: what is done, and how much of how much."""

    what: str
    done: float
    total: float
    is_over: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {100 * min(self.done / max(self.total, 1), 0.99):.0f} %"


Listener: TypeAlias = Callable[[Stage | WorkStage | None], object]  # None: it pauses, as others have to say something
Progress: TypeAlias = Callable[[int, int], object]  # called now and then with how much is done, and of how much


class CompileClock:
    """Counts the seconds of compiling, and has a listener told of them."""

    def __init__(self) -> None:
        self.seconds = 0.0  # spent by this process
        self.listener: Listener = say
        self._before = 0.0  # spent on what is compiled together, before the kernel at hand
        self._to_come: Sequence[str] | None = None  # after the kernel at hand; None if there is none
        self._began = 0.0
        self._watching: threading.Thread | None = None
        self._done = threading.Event()

    @contextmanager
    def heard_by(self, listener: Listener) -> Iterator[None]:
        """Tell another listener meanwhile."""
        before, self.listener = self.listener, listener
        try:
            yield
        finally:
            self.listener = before

    @property
    def is_compiling(self) -> bool:
        """Whether a kernel is being compiled right now."""
        return self._to_come is not None

    def begin(self, name: str, to_come: Sequence[str]) -> None:
        """Begin to compile a kernel, after which others will be."""
        self._began, self._to_come = time.perf_counter(), to_come
        left = sum(SECONDS.get(each, OTHERS) for each in (name, *to_come))
        if left > SOON and multiprocessing.parent_process() is None:
            self._done.clear()
            times = (self._began - self._before, self._before + left)
            self._watching = threading.Thread(target=self._watch, args=times, daemon=True)
            self._watching.start()

    def end(self) -> None:
        """End what was begun, if anything was."""
        if self._to_come is None:
            return
        to_come, self._to_come = self._to_come, None
        taken = time.perf_counter() - self._began
        self.seconds += taken
        if self._watching is None:
            return
        self._done.set()
        self._watching.join()
        self._watching, self._before = None, self._before + taken
        self.listener(None if to_come else Stage(self._before, self._before, is_over=True))
        if not to_come:
            self._before = 0.0

    def _watch(self, began: float, expected: float) -> None:
        while not self._done.is_set():
            self.listener(Stage(time.perf_counter() - began, expected))
            self._done.wait(EVERY)

    def working_time(self) -> float:
        """Return a time in seconds that stands still while kernels are compiled."""
        return time.perf_counter() - self.seconds


class WorkMeter:
    """Has the listener of a clock told how far work on rows is, once it has taken ``DELAY`` seconds.

    A thread looks now and then, as the work itself may be within a kernel for long. There is none where nobody would be
    told, and of several meters at the same time only the first one tells.

    Examples
    --------
    >>> heard = []
    >>> with clock.heard_by(heard.append), WorkMeter() as meter:
    ...     meter.begin("sweeping over 9 rows")
    ...     meter.count(1, 4)  # done within two seconds: nobody is told
    >>> heard
    []
    """

    _busy = threading.Lock()

    def __init__(self) -> None:
        self._stage: tuple[str, Callable[[], float], float] | None = None
        self._watching: threading.Thread | None = None
        self._done = threading.Event()

    def begin(self, what: str, total: float = 1, done: Callable[[], float] = float) -> None:
        """Begin a stage; ``done`` is asked how much of the total is done, unless :meth:`count` tells."""
        self._stage = (what, done, total)

    def count(self, done: int, total: int) -> None:
        """Take note that so much of a stage is done: a :data:`Progress`."""
        if self._stage is not None:
            self._stage = (self._stage[0], lambda: done, total)

    def __enter__(self) -> Self:
        listener = clock.listener
        is_heard = watched_stream() is not None if listener is say else listener is not ignore
        if is_heard and multiprocessing.parent_process() is None and self._busy.acquire(blocking=False):
            self._watching = threading.Thread(target=self._watch, args=(listener,), daemon=True)
            self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._watching is not None:
            self._done.set()
            self._watching.join()
            self._watching = None
            self._busy.release()

    def _watch(self, listener: Listener) -> None:
        is_told, begins = False, clock.working_time() + DELAY
        while not self._done.wait(EVERY if is_told else min(EVERY, DELAY)):
            is_long = not clock.is_compiling and clock.working_time() >= begins  # compiling is told of itself
            if self._stage is not None and is_long:
                what, done, total = self._stage
                listener(WorkStage(what, done(), total))
                is_told = True
        if is_told:
            listener(None)


def watched_stream() -> TextIO | None:
    """Return standard error if that is a terminal or a notebook that nobody else draws on, else None."""
    out, kind = sys.stderr, type(sys.stderr).__module__
    if out is None or not (out.isatty() or kind.startswith("ipykernel")) or kind.startswith("rich"):
        return None
    return out


def say(stage: Stage | WorkStage | None) -> None:
    """Say on standard error how far compiling or fitting is, if somebody watches."""
    out = watched_stream()
    if out is None:
        return
    line = "" if stage is None else f"streamboost: {stage}"
    end = "\r" if stage is None else "\n" if stage.is_over else ""
    out.write(f"\r{line:{WIDTH}}{end}")
    out.flush()


def ignore(stage: Stage | WorkStage | None) -> None:
    """Say nothing."""


clock = CompileClock()
