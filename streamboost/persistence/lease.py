"""The lease on a directory: who may write there, until when; and one who was replaced can write no more.

::

    DIR/lease-1794949494949    the owner: who that is, and until when the lease runs unless it is renewed
    DIR/lock                   locked by the owner's process, where the file system knows locks

Whoever takes a directory makes a file with the next number (the time, if there is none), which only one can, and
removes those before it. So the number is a fence: an owner who was paused for longer than his lease finds his file
gone, and from then on refuses to write. What he may have been about to put in place at that very moment has the number
of a checkpoint that his successors leave out, ``void``.

On one machine the lock tells whether an owner who has it is still there, and after a crash nobody waits. Elsewhere, and
where a former owner who was paused has the lock, his lease has to run out. Clocks of machines that share a directory
must agree to some seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import IO, Any

from streamboost.errors import LeaseLost
from streamboost.persistence.durable_files import sync_directory, temporary_file

NAME = re.compile(r"lease-(\d+)")
SECONDS = 30.0  # that a lease runs; it is renewed three times as often


class Lease:
    """The lease on a directory, renewed until it is closed.

    Parameters
    ----------
    directory : path
    seconds : float, default=30
        How long it runs without being renewed.
    wait : float, default=0
        How many seconds to wait for an owner to leave; then a ``BlockingIOError`` says who that is.
    """

    def __init__(self, directory: Path, *, seconds: float | None = None, wait: float = 0.0) -> None:
        self.directory, self.seconds = directory, SECONDS if seconds is None else seconds
        self._lock: _Lock | None = None
        self.void: int | None = None  # the number of a checkpoint that a former owner may put in place at any moment
        until = time.monotonic() + wait
        while not self._take():
            if time.monotonic() >= until:
                raise BlockingIOError(
                    f"{str(directory)!r} is in use by {_shown(directory)}, expected one writer at a time. Stop that "
                    "one first, or name another directory."
                )
            time.sleep(min(0.2, wait))
        self._ended = threading.Event()
        self._end = weakref.finalize(self, self._ended.set)
        renewing = threading.Thread(target=_renew, args=(weakref.ref(self), self._ended, self.seconds / 3), daemon=True)
        renewing.start()

    def _take(self) -> bool:
        number, held = newest_lease(self.directory)
        lock = _Lock.take(self.directory)
        is_running = held.get("until", 0.0) > time.time()
        if lock is None and (is_running or not held):
            return False
        is_gone = _is_here(held) and _Lock.is_known and held.get("locked", True)  # else it would be locked still
        if lock is not None and is_running and not is_gone:
            lock.close()
            return False
        self.number = number + 1 if number else time.time_ns() // 1_000_000  # all who saw that one try for the same
        self._path = self.directory / f"lease-{self.number}"
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # one alone can make it
        except FileExistsError:
            if lock is not None:
                lock.close()
            return False
        if set(_numbers(self.directory)) - {number, self.number}:  # another one, at the same moment
            self._path.unlink(missing_ok=True)
            if lock is not None:
                lock.close()
            return False
        self._lock = lock
        self.void = number_in(held)
        with contextlib.suppress(OSError):
            for entry in self.directory.iterdir():
                if (found := NAME.fullmatch(entry.name)) and int(found[1]) < self.number:
                    entry.unlink()
        self.is_replacing = bool(held) and not (lock is not None and _is_here(held))  # its owner may still be there
        self.renew()
        return True

    def renew(self) -> None:
        """Let it run for longer."""
        told: dict[str, Any] = {"process": os.getpid(), "host": socket.gethostname(), "boot": _boot()}
        told |= {"until": time.time() + self.seconds, "seconds": self.seconds, "void": self.void}
        told["locked"] = self._lock is not None
        with temporary_file(self.directory) as file:
            file.write(json.dumps(told).encode())
            file.close()
            os.replace(file.name, self._path)
        sync_directory(self.directory)

    def check(self) -> None:
        """Refuse to write where somebody else has taken the directory."""
        if _newest_number(self.directory) != self.number:
            raise LeaseLost(
                f"{str(self.directory)!r} was taken by {_shown(self.directory)} meanwhile, as this process had not "
                f"renewed its lease for {self.seconds:g} seconds. Nothing more is written. Go on with that one."
            )

    def close(self) -> None:
        """Let another process write."""
        if self._end.detach() is None:
            return
        self._ended.set()
        with contextlib.suppress(OSError):
            if self.void is None and self._lock is not None:
                self._path.unlink()
            elif _newest_number(self.directory) == self.number:  # a former owner may still be there
                self.seconds = 0.0
                self.renew()
        if self._lock is not None:
            self._lock.close()


def _numbers(directory: Path) -> list[int]:
    return [int(found[1]) for name in os.listdir(directory) if (found := NAME.fullmatch(name))]


def _newest_number(directory: Path) -> int:
    return max(_numbers(directory), default=0)


def newest_lease(directory: Path) -> tuple[int, dict[str, Any]]:
    """Return the number of the newest lease and what it says; 0 and nothing if there is none."""
    number = _newest_number(directory)
    try:
        told = json.loads((directory / f"lease-{number}").read_bytes())
        return number, told if isinstance(told, dict) else {}
    except FileNotFoundError:
        return newest_lease(directory) if number else (0, {})
    except (OSError, ValueError):  # it has only just been made
        return number, {"until": time.time() + 1.0} if number else {}


def void_number(directory: Path) -> int | None:
    """Return the number of the checkpoint that does not count, if there is one."""
    return number_in(newest_lease(directory)[1])


def number_in(held: dict[str, Any]) -> int | None:
    """Return the number of that checkpoint as a lease tells it."""
    number = held.get("void")
    return number if isinstance(number, int) else None


def _renew(lease: weakref.ref[Lease], ended: threading.Event, seconds: float) -> None:
    while not ended.wait(seconds):
        one = lease()
        if one is None:
            return
        with contextlib.suppress(OSError, LeaseLost):  # a full disk, say: tried again soon
            one.check()
            one.renew()
        del one


def _shown(directory: Path) -> str:
    """Say who holds a directory."""
    _, held = newest_lease(directory)
    if not held.get("process"):
        with contextlib.suppress(OSError):
            return f"process {(directory / 'lock').read_text(encoding='utf-8').strip() or 'unknown'}"
        return "another process"
    until = time.strftime("%H:%M:%S", time.localtime(held.get("until", 0.0)))
    where = "" if _is_here(held) else f" on {held.get('host')}"
    return f"process {held['process']}{where} until {until}, when its lease ends unless it is renewed"


def _is_here(held: dict[str, Any]) -> bool:
    """Whether a lease is of this machine."""
    return bool(held.get("boot")) and held["boot"] == _boot()


def _boot() -> str:
    """What tells this machine, since it was started, from all others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


class _Lock:
    """The lock on a directory: a file that tells who holds it, and the directory itself.

    Whoever deletes the file lets nobody in.
    """

    is_known = True  # whether there are such locks

    def __init__(self, file: IO[str] | None, directory: int) -> None:
        self.file, self.directory = file, directory

    def close(self) -> None:
        """Release it."""
        if self.file is not None and not self.file.closed and self.directory >= 0:
            self.file.close()
            os.close(self.directory)

    def __del__(self) -> None:
        self.close()

    @classmethod
    def take(cls, directory: Path) -> _Lock | None:
        """Take the lock; None if somebody else holds it."""
        try:
            import fcntl
        except ImportError:  # there are no such locks: the lease alone tells
            cls.is_known = False
            return cls(None, -1)
        file = open(directory / "lock", "a+", encoding="utf-8")  # noqa: SIM115 - held until close
        held = os.open(directory, os.O_RDONLY)
        try:
            for one in (held, file.fileno()):
                fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            file.close()
            return None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return cls(file, held)
