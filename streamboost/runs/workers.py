"""A run in a process of its own, on this machine or where Ray puts it: started, asked how it is, and ended.

The process is told to end by the end of its standard input, so it ends with whoever started it, whatever became of
that. On its standard output it says how far it is, a JSON object a line; the last one is its summary.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA")  # several processes share a machine


class Seen(NamedTuple):
    """How a process is."""

    told: Mapping[str, Any]  # the last line it has said
    code: int | None = None  # once it has ended: 0, or what of
    error: str = ""  # the last it has said on standard error
    node: str = ""
    pid: int = 0


class WorkerGone(Exception):
    """The place that a process was in is gone, and it with it."""


class Worker(Protocol):
    """A process that runs."""

    def see(self) -> Seen:
        """How it is, without waiting for it; raises WorkerGone."""

    def stop(self) -> None:
        """Let it end with a checkpoint."""

    def kill(self) -> None:
        """End it at once."""


class Process:
    """A run in a process on this machine: ``streamboost`` with these words."""

    def __init__(self, words: Sequence[str]) -> None:
        own = {f"{name}_NUM_THREADS": "1" for name in THREADS}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamboost", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**own, **os.environ},
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for whoever watches over it
        )
        self._told: dict[str, Any] = {}
        self._errors: collections.deque[str] = collections.deque(maxlen=12)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                self._told = {**self._told, **json.loads(line)}

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.strip())

    def see(self) -> Seen:
        """How it is."""
        code = self._process.poll()
        if code is not None:
            for reader in self._readers:
                reader.join(10)
        return Seen(self._told, code, " ".join(filter(None, self._errors)), platform.node(), self._process.pid)

    def stop(self) -> None:
        """Let it end with a checkpoint."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def end_with_parent() -> None:
    """End this process like a SIGTERM once its standard input ends, as that of a worker does."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):  # not sys.stdin, whose lock would be held as Python ends
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
