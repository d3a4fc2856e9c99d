"""Files that are renamed and begun anew from time to time, as logrotate does: which of them comes after which.

::

    rows.csv.2   rows.csv.1   rows.csv          or  rows.csv-20240101   rows.csv-20240102   rows.csv
    oldest                    the one written to

What tells them apart is not their names, which change, but what the file system knows them by.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

from streamboost.sources.base import ForeignPosition

DATE_DIGITS = 6  # a number with so many digits is a date, and the larger the later


class Rotated(NamedTuple):
    """A file as it is called now."""

    path: str
    inode: int
    size: int


def rotated(path: str) -> list[Rotated]:
    """Return the files that have been ``path`` and are still there, oldest first, and at last the one that is now."""
    found = _look(path)
    while found != (again := _look(path)):  # files were renamed while they were listed
        found = again
    return found


def newer(path: str, inode: int) -> list[Rotated]:
    """Return the files after one; if that is gone, the one that is now."""
    files = rotated(path)
    places = [k for k, file in enumerate(files) if file.inode == inode]
    return files[places[-1] + 1 :] if places else [file for file in files if file.path == path]


def resumed(path: str, position: Mapping[str, Any]) -> Rotated:
    """Return the file in which a position was taken, whatever it is called by now."""
    for file in rotated(path):
        if file.inode == position["inode"]:
            return file
    found = f"the position is in a file that was {path} and is not beside it any more, as {path}.1 for example"
    raise ForeignPosition(found, "Put it back unpacked, or start from None.")


def open_rotated(path: str, inode: int) -> IO[bytes]:
    """Open one of these files, though it may be renamed meanwhile."""
    while True:
        for file in rotated(path):
            if file.inode == inode:
                try:
                    stream = open(file.path, "rb")  # noqa: SIM115 - closed by the caller
                except FileNotFoundError:
                    break
                if os.fstat(stream.fileno()).st_ino == inode:
                    return stream
                stream.close()
                break
        else:
            raise FileNotFoundError(f"{path} was rotated away before it was read. Keep more of the older files.")


def _look(path: str) -> list[Rotated]:
    folder, name = os.path.split(path)
    stem, ending = os.path.splitext(name)
    # rows.csv.1, rows.csv-20240101, rows-20240101.csv
    pattern = re.compile(rf"(?:{re.escape(name)}|{re.escape(stem)}(?=[.-]\d+{re.escape(ending)}$))[.-](\d[\d-]*)")
    numbered = []
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            found = pattern.match(entry.name)
            if found and entry.name in (found[0], found[0] + ending) and (status := _status(entry.path)):
                numbered.append((_age(found[1]), _at(entry.path, status)))
    last = [] if (status := _status(path)) is None else [_at(path, status)]
    files = [*(file for _, file in sorted(numbered)), *last]
    return [file for k, file in enumerate(files) if file.inode not in {one.inode for one in files[k + 1 :]}]


def _age(digits: str) -> tuple[bool, str | int]:
    """Return what sorts the oldest first: dates rise, and other numbers fall."""
    is_date = len(digits) >= DATE_DIGITS
    return is_date, digits if is_date else -int(digits.replace("-", ""))


def _at(path: str, status: os.stat_result) -> Rotated:
    return Rotated(path, status.st_ino, status.st_size)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
