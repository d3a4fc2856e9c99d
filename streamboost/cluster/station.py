"""A worker's place in its process: it makes the worker, and lets an operation through only if it is the very next one.

Into :meth:`Station.handle` flow messages, out of it flow answers. A worker is a plain class, made as ``cls(**options)``
in its own process::

    settle(directory)   called once after it is made, with its own folder (on a shared file system)
    save(number)        make the state durable there as cut `number`, a number that is never used twice
    load(number)        go back to exactly that cut
    drop(kept)          delete what only other cuts than those in the list `kept` need
    n_rows              optional: how many rows it has learned, shown by Crew.metrics
    any other method    an operation: deterministic, given the state and the arguments; one that raises counts as done

:class:`~streamboost.cluster.key_shard.KeyShard` is one. Arguments and answers are not copied where worker and driver
share a process: neither may change them.
"""

from __future__ import annotations

import copy
import importlib.metadata
import os
import pickle
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from streamboost.persistence.checkpoints import read_latest

COMPARED = ("streamboost", "numpy", "numba", "pyarrow")
CHANGING = ("build", "load", "call")  # messages after which a worker is not what it was


class WrongState(RuntimeError):
    """A worker was sent an operation that is not the next one after its state."""


class Answer(NamedTuple):
    """What a station answers: a value or an error, and how the worker is."""

    value: Any = None
    error: Exception | None = None
    is_fatal: bool = False  # the worker's state is no longer to be trusted
    memory: int = 0
    n_rows: int | None = None


class Station:
    """A worker's place. Until a cut is loaded (number 0: as it was made) it refuses every operation, so that a worker
    that came back empty cannot go on as if nothing had happened.
    """

    def __init__(self) -> None:
        self._worker: Any = None
        self._make: Callable[[], Any] | None = None
        self._done: int | None = None
        self._memory = (-1.0, 0)

    def handle(self, kind: str, *args: Any) -> Answer:
        """Take a message in; whatever goes wrong is part of the answer."""
        try:
            value, error = getattr(self, f"_{kind}")(*args), None
        except Exception as caught:
            value, error = None, _portable(caught)
            if isinstance(caught, WrongState) or (isinstance(caught, MemoryError) and kind in CHANGING):
                self._done = None  # who knows how far it came
                return Answer(None, error, True, self._memory_used())
        return Answer(value, error, False, self._memory_used(), getattr(self._worker, "n_rows", None))

    def _hello(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "node": platform.node(), "versions": versions()}

    def _build(self, cls: type, options: dict[str, Any], directory: str, mark: str) -> None:
        _check_same_directory(directory, mark)

        def make() -> Any:
            worker = cls(**copy.deepcopy(options))
            worker.settle(directory)
            return worker

        self._make, self._done = make, None
        self._worker = make()

    def _load(self, number: int, done: int) -> None:
        assert self._make is not None
        is_new, self._done = self._done is None, None
        if number:
            self._worker.load(number)
        elif not is_new:
            self._worker = self._make()
        self._done = done

    def _save(self, number: int, done: int) -> None:
        self._check(done)
        self._worker.save(number)

    def _drop(self, kept: list[int]) -> None:
        self._worker.drop(kept)

    def _call(self, number: int, method: str, args: tuple[Any, ...]) -> Any:
        self._check(number - 1)
        self._done = number  # also where it fails: it would fail in the same way again
        return getattr(self._worker, method)(*args)

    def _ask(self, after: int, method: str, args: tuple[Any, ...]) -> Any:
        self._check(after)
        return getattr(self._worker, method)(*args)

    def _check(self, expected: int) -> None:
        if self._done != expected:
            state = "has loaded no cut" if self._done is None else f"is at operation {self._done}"
            raise WrongState(f"the worker {state}, expected it at {expected}. It has to load its last cut first.")

    def _memory_used(self) -> int:
        measured, used = self._memory
        if time.monotonic() - measured > 1:
            used = memory_used()
            self._memory = (time.monotonic(), used)
        return used


def _check_same_directory(directory: str, mark: str) -> None:
    """What a worker saves where the driver does not look would be lost, and found missing only after a death."""
    try:
        seen = read_latest(Path(directory).parent).model.mark
    except FileNotFoundError:
        seen = None
    if seen != mark:
        raise FileNotFoundError(
            f"{directory!r} on {platform.node()} is not the folder that the driver made there. "
            "Name a directory on a file system that all machines share."
        )


def size_of(value: Any) -> int:
    """About how many bytes a value takes: arrays and text exactly, anything unknown as little."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return 8 * len(value) + sum(map(size_of, value))
    if isinstance(value, dict):
        return sum(size_of(key) + size_of(item) for key, item in value.items())
    return int(getattr(value, "nbytes", 64))


def versions() -> dict[str, str]:
    """What a driver and its workers must agree on."""
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in COMPARED:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def memory_used() -> int:
    """The bytes of memory this process holds; 0 where that cannot be read."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _portable(error: Exception) -> Exception:
    """The error itself if it survives the way to the driver, else one that says the same."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:  # whatever a class of an error does when it is pickled
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")
