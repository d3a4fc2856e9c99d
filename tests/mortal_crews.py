"""Crews in this process whose workers and drivers are killed at points that a test chooses."""

import contextlib
import copy
import errno
import os
from collections import deque

import numpy as np
import pytest
from snapshot_workers import SnapshotWorker, cut_path

from streamboost.cluster import LocalCrew
from streamboost.cluster.recovery import WorkerDied


class Killed(BaseException):
    """What SIGKILL is to a process."""


class Fate:
    """Says at which of the points that are passed somebody is killed."""

    def __init__(self, moments=()):
        self.moments, self.passed, self.is_off = set(moments), 0, False

    def point(self):
        self.passed += not self.is_off
        if not self.is_off and self.passed in self.moments:
            raise Killed


FATE = Fate()


class Chain(SnapshotWorker):
    """Its state depends on every operation, on their order and on their number; killed in the middle, it is torn."""

    def __init__(self):
        FATE.point()
        self.state = {"numbers": [], "sum": np.ones(2), "torn": False}
        self.n_rows = 0

    def add(self, number):
        self.state["torn"] = True
        self.state["numbers"].append(number)
        FATE.point()
        self.state["sum"] = self.state["sum"] * 3 + number
        self.n_rows += 1
        self.state["torn"] = False
        FATE.point()
        return len(self.state["numbers"])

    def refuse(self, number):
        FATE.point()
        raise KeyError(number)

    def numbers(self):
        FATE.point()
        assert not self.state["torn"]
        return list(self.state["numbers"])

    def whole(self):
        return copy.deepcopy(self.state)

    def settle(self, directory):
        FATE.point()
        super().settle(directory)

    def save(self, number):
        FATE.point()
        (self.directory / f"cut-{number:010d}.part").write_bytes(b"half of it")
        FATE.point()
        super().save(number)
        FATE.point()

    def load(self, number):
        FATE.point()
        super().load(number)
        self.n_rows = len(self.state["numbers"])
        FATE.point()

    def drop(self, kept):
        FATE.point()
        super().drop(kept)
        there = {path.name for path in self.directory.glob("*.safetensors")}
        assert there == {cut_path(self.directory, number).name for number in kept}
        FATE.point()


class MortalCrew(LocalCrew):
    """Workers that take messages in late, as in another process, and may be killed at any point."""

    can_die = True
    most_deaths = 1000

    def __init__(self, *args, **named):
        self.queues, self.most_waiting = {}, 0
        super().__init__(*args, **named)

    def _start(self, worker):
        super()._start(worker)
        self.queues[worker] = deque()

    def _send(self, worker, message):
        box = []
        if worker in self._stations:
            self.queues[worker].append((message, box))
            waiting = [kind for (kind, *_), _ in self.queues[worker] if kind in ("call", "ask")]
            self.most_waiting = max(self.most_waiting, len(waiting))
        return box

    def _wait(self, worker, handle):
        while not handle:
            if worker not in self._stations:
                raise WorkerDied("killed")
            message, box = self.queues[worker].popleft()
            try:
                FATE.point()
                box.append(self._stations[worker].handle(*message))
                FATE.point()
            except Killed:
                del self._stations[worker]
                box.clear()
        return handle[0]

    def die(self):
        """What becomes of a driver that is killed: the system takes its lock back, and nothing is tidied up."""
        self._book._store.close()


@pytest.fixture(autouse=True)
def nobody_is_killed_at_first(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # here only processes die, not the machine, and it is slow
    yield
    set_fate(Fate())


def set_fate(fate):
    global FATE
    FATE = fate


def call_all(crew, method, *args):
    """Send the same operation to all workers."""
    return [crew.call(worker, method, *args) for worker in range(crew.n_workers)]


def expected_state(numbers):
    total = np.ones(2)
    for number in numbers:
        total = total * 3 + number
    return {"numbers": list(numbers), "sum": total, "torn": False}


def final_states(crew):
    FATE.is_off = True
    return crew.results(crew.ask_all("whole"))


@contextlib.contextmanager
def nobody_is_killed():
    """Let no point count."""
    before, FATE.is_off = FATE.is_off, True
    yield
    FATE.is_off = before


class Starving(SnapshotWorker):
    """Runs out of memory, or is interrupted, at what it is told to."""

    state = 0

    def __init__(self):
        self.fails_at = ""

    def starve(self, where):
        self.fails_at = where

    def grow(self):
        self.state += 1
        self.fail("grow")
        return self.state

    def size(self):
        self.fail("size")
        return self.state

    def save(self, number):
        self.fail("save")
        super().save(number)

    def fail(self, where):
        if self.fails_at == where:
            self.fails_at = ""
            raise MemoryError("Unable to allocate 80 GiB")
        if self.fails_at == f"{where}, interrupted":
            self.fails_at = ""
            raise KeyboardInterrupt


class LimitedCrew(MortalCrew):
    most_deaths = 5


def refuse_to_save(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
