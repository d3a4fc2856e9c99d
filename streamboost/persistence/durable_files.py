"""Files that are there whole or not at all: written beside their place, brought to disk, renamed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

LEFTOVER = re.compile(r"\.[0-9a-f]{16}\.tmp")  # what a process that was killed while writing leaves behind


def replace_file(target: Path, data: Any, *, before: Callable[[], object] | None = None) -> None:
    """Write bytes to a file that is there whole or not at all, and durable when this returns.

    ``before``, None by default, is called just before it is renamed.
    """
    with temporary_file(target.parent) as file:
        file.write(data)
        bring_to_disk(file)
        if target.exists():
            shutil.copymode(target, file.name)
        if before is not None:
            before()
        os.replace(file.name, target)
    sync_directory(target.parent)


@contextmanager
def temporary_file(directory: Path) -> Iterator[IO[bytes]]:
    """Open a new file to write to, which is to be renamed: it is removed at the end, if it is still there."""
    path = directory / f".{secrets.token_hex(8)}.tmp"
    try:
        with open(path, "xb") as file:
            yield file
    finally:
        path.unlink(missing_ok=True)


def bring_to_disk(file: IO[bytes]) -> None:
    """Wait until what was written to a file would survive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory would survive a power cut."""
    if os.name != "posix":  # elsewhere a directory cannot be opened
        return
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def remove_leftovers(directory: Path) -> None:
    """Remove what processes that were killed have left half written."""
    for entry in directory.iterdir():
        if LEFTOVER.fullmatch(entry.name):
            entry.unlink(missing_ok=True)
