"""Bad rows of a run: counted once, written to a file with reason and place, and limited in number."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamboost.errors import writing
from streamboost.sources import BadRow

TEXT_KEPT = 10_000  # letters of a bad row
QUARANTINE_BYTES = 100_000_000
PLACES_KEPT = 100_000  # of bad rows, so that none is counted twice after a resume


class TooManyBadRows(ValueError):
    """More rows were refused than the run was allowed."""


class Quarantine:
    """Bad rows in a file, a JSON object a line: when, where, why, and the row itself.

    Without a path, and beyond ``limit_bytes`` (100 MB by default), they are counted and not written.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "quarantine.jsonl")
    >>> quarantine = Quarantine(path)
    >>> quarantine.add("the target is missing", text='{"x": 1}', position=7, row=7)
    >>> json.loads(path.read_text())["reason"], quarantine.n
    ('the target is missing', 1)
    """

    def __init__(self, path: str | os.PathLike[str] | None, limit_bytes: int = QUARANTINE_BYTES) -> None:
        self.path = None if path is None else Path(path)
        self.limit_bytes = limit_bytes
        self.n = 0
        self.length = self.path.stat().st_size if self.path is not None and self.path.exists() else 0

    def add(self, reason: str, *, text: str, position: Any = None, row: int | None = None) -> None:
        """Write a bad row."""
        self.n += 1
        if self.path is None:
            return
        entry = {"time": time.time(), "row": row, "position": position, "reason": reason, "text": text[:TEXT_KEPT]}
        line = (json.dumps(entry, default=str) + "\n").encode()
        if self.length + len(line) > self.limit_bytes:
            return
        with open(self.path, "ab") as file:
            file.write(line)
        self.length += len(line)

    def flush(self) -> None:
        """Sync the file to disk."""
        if self.path is not None and self.path.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())

    def truncate(self, n: int, length: int) -> None:
        """Go back to an earlier length; the rows after it come again."""
        if self.path is not None and self.length > length:
            os.truncate(self.path, length)
        self.n, self.length = n, min(self.length, length)


class BadRows(Quarantine):
    """The rows of a run that cannot be learned.

    If strict, the first one is an error, else one beyond the ``limit`` since the run began or was resumed.

    Examples
    --------
    >>> bad = BadRows(limit=1)
    >>> for row in range(2):
    ...     bad.quarantine("the target is missing.", '{"x": 1}', position=row, row=row)
    >>> bad.check()
    Traceback (most recent call last):
        ...
    streamboost.runs.quarantine.TooManyBadRows: 2 bad rows are more than max_bad=1; the last one: ...
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, strict: bool = False, limit: int | None = None
    ) -> None:
        super().__init__(path)
        self.strict, self.limit, self._n_before = strict, limit, 0
        self.unread: list[BadRow] = []  # by the source, and not in quarantine yet
        self._places: dict[int, None] = {}  # the latest last
        self._last_reason = ""

    @property
    def places(self) -> NDArray[np.uint64]:
        """Return the places of unreadable rows as numbers."""
        return np.array(list(self._places), dtype=np.uint64)

    def resume(self, kept: tuple[int, int], places: Any) -> None:
        """Go on from the count, the length and the places of a checkpoint."""
        self.truncate(*kept)
        self._n_before = self.n
        self._places = dict.fromkeys(map(_fingerprint, places))

    def quarantine_unread(self) -> None:
        """Quarantine what the source could not read; what it meets again after a resume counts once."""
        for bad in self.unread:
            place = _fingerprint(bad.place)
            if place not in self._places:
                self._places[place] = None
                if len(self._places) > PLACES_KEPT:
                    del self._places[next(iter(self._places))]
                self.quarantine(f"{bad.place}: {bad.reason}", bad.text, bad.position, None)
        self.unread.clear()

    def quarantine(self, reason: str, text: str, position: Any, row: int | None) -> None:
        """Quarantine a row."""
        if self.strict:
            raise ValueError(f"row {row}: {reason} Its chunk was not learned. Leave out --strict to go on without it.")
        self._last_reason = reason
        with writing(self.path or "", "resume: no row is lost"):
            self.add(reason, text=text, position=position, row=row)

    def check(self) -> None:
        """Raise :class:`TooManyBadRows` if there were too many since the run began or was resumed."""
        n = self.n - self._n_before
        if self.limit is not None and n > self.limit:
            found = f"{n} bad rows are more than max_bad={self.limit}; the last one: {self._last_reason}"
            way_out = "Look into quarantine.jsonl, mend the source, and resume: the good rows are learned."
            raise TooManyBadRows(f"{found} {way_out}")


def _fingerprint(place: Any) -> int:
    """Return a number for the place of a bad row; what is one already stays as it is."""
    if not isinstance(place, str):
        return int(place)
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "little")
