"""Tells that kernels are being compiled, and about how long it takes; counts the seconds, which are no work on rows.

Compiling happens once: what was compiled is kept (:mod:`streamboost.kernels.caching`). Where somebody watches, on a
terminal or in a notebook, a line on standard error says so; elsewhere nothing does. A program with a display of its own
listens instead: ``with clock.heard_by(listener)``.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

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
SOON = 0.5  # what takes no longer is not worth a word
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


Listener: TypeAlias = Callable[[Stage | None], object]  # None: compiling pauses, as there are rows to learn


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


def say(stage: Stage | None) -> None:
    """Say on standard error how far compiling is, if that is a terminal or a notebook that nobody else draws on."""
    out, kind = sys.stderr, type(sys.stderr).__module__
    if out is None or not (out.isatty() or kind.startswith("ipykernel")) or kind.startswith("rich"):
        return
    line = "" if stage is None else f"streamboost: {stage}"
    end = "\r" if stage is None else "\n" if stage.is_over else ""
    out.write(f"\r{line:{WIDTH}}{end}")
    out.flush()


def ignore(stage: Stage | None) -> None:
    """Say nothing."""


clock = CompileClock()
