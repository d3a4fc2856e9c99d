"""Bad rows of a run: counted once, with their reasons, written to a file, and limited in number."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamboost.errors import writing
from streamboost.sources import BadRow

TEXT_KEPT = 1_000_000  # letters of a bad row
QUARANTINE_BYTES = 100_000_000
PLACES_KEPT = 100_000  # of bad rows, so that none is counted twice after a resume
KINDS_KEPT = 50  # of reasons
OTHER = "other reasons"
ROWS_FOR_A_SHARE = 1000  # read before a share of them tells anything
WHERE = ("file", "row", "line", "offset")  # of a position in a file; the rest of it is for the source alone


class TooManyBadRows(ValueError):
    """More rows were refused than the run was allowed."""


class Quarantine:
    r"""Bad rows in a file, a JSON object a line: why, where, when, and the row itself.

    A row that was read stands in ``values``; one that was not as ``text``, byte for byte: what is no UTF-8 in it, a
    JSON escape such as ``\udce9`` stands for, which ``text.encode("utf-8", "surrogateescape")`` takes back. Without
    a path, and beyond ``limit_bytes`` (100 MB by default), rows are counted and not written.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "quarantine.jsonl")
    >>> quarantine = Quarantine(path)
    >>> quarantine.add("the target is missing", values={"x": 1, "y": None}, row=7)
    >>> print(path.read_text())  # doctest: +ELLIPSIS
    {"reason": "the target is missing", "row": 7, "values": {"x": 1, "y": null}, "time": "..."}
    <BLANKLINE>
    """

    def __init__(self, path: str | os.PathLike[str] | None, limit_bytes: int = QUARANTINE_BYTES) -> None:
        self.path = None if path is None else Path(path)
        self.limit_bytes = limit_bytes
        self.n = 0
        self.length = self.path.stat().st_size if self.path is not None and self.path.exists() else 0

    def add(
        self,
        reason: str,
        *,
        text: str | None = None,
        values: Mapping[str, Any] | None = None,
        place: str | None = None,
        position: Any = None,
        row: int | None = None,
    ) -> None:
        """Write a bad row."""
        self.n += 1
        if self.path is None:
            return
        if isinstance(position, Mapping) and "schema" in position:
            position = {name: position[name] for name in WHERE if name in position} or {
                name: value for name, value in position.items() if name != "schema"
            }
        known = {"row": row, "place": place, "position": position, "values": values and plain_values(values)}
        entry = {"reason": reason} | {name: value for name, value in known.items() if value is not None}
        if text is not None:
            entry["text"] = text[:TEXT_KEPT]
            if len(text) > TEXT_KEPT:
                entry["cut_from"] = len(text)
        entry["time"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = (json.dumps(entry, ensure_ascii=False, default=str) + "\n").encode("utf-8", "backslashreplace")
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

    If strict, the first one is an error, else one beyond the ``limit`` since the run began or was resumed: a number of
    rows, or if it is a float a share of all rows, which counts once 1,000 were read and at the end.

    Examples
    --------
    >>> bad = BadRows(limit=1)
    >>> for row in range(2):
    ...     bad.quarantine("the target is missing.", row=row)
    >>> bad.check(n_good=10)
    Traceback (most recent call last):
        ...
    streamboost.runs.quarantine.TooManyBadRows: 2 bad rows are more than max_bad=1; most of them, 2: the target ...
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, strict: bool = False, limit: int | float | None = None
    ) -> None:
        super().__init__(path)
        self.strict, self.limit, self._n_before = strict, limit, 0
        self.unread: list[BadRow] = []  # by the source, and not in quarantine yet
        self.reasons: dict[str, list[Any]] = {}  # how many rows, and the first one's reason, by kind
        self._places: dict[int, None] = {}  # the latest last

    @property
    def places(self) -> NDArray[np.uint64]:
        """Return the places of unreadable rows as numbers."""
        return np.array(list(self._places), dtype=np.uint64)

    @property
    def n_new(self) -> int:
        """Return how many there are since the run began or was resumed."""
        return self.n - self._n_before + len(self.unread)

    def resume(self, kept: tuple[int, int], places: Any, reasons: dict[str, list[Any]]) -> None:
        """Go on from the count, the length, the places and the reasons of a checkpoint."""
        self.truncate(*kept)
        self._n_before = self.n
        self._places = dict.fromkeys(map(_fingerprint, places))
        self.reasons = {kind: list(found) for kind, found in reasons.items()}

    def hold(self, bad: BadRow) -> None:
        """Keep a row that the source could not read; what it meets again after a resume counts once."""
        if _fingerprint(bad.place) not in self._places:
            self.unread.append(bad)

    def quarantine_unread(self) -> None:
        """Quarantine what the source could not read."""
        unread, self.unread = self.unread, []
        for bad in unread:
            place = _fingerprint(bad.place)
            if place not in self._places:
                self._places[place] = None
                if len(self._places) > PLACES_KEPT:
                    del self._places[next(iter(self._places))]
                self.quarantine(bad.reason, place=bad.place, position=bad.position, text=bad.text)

    def quarantine(self, reason: str, **row: Any) -> None:
        """Quarantine a row, described as :meth:`add` takes it."""
        if self.strict:
            told = "Its chunk was not learned. Leave out --strict to go on without it."
            raise ValueError(f"row {row.get('row')}: {reason} {told}")
        kind = _kind(reason)
        if kind not in self.reasons and len(self.reasons) >= KINDS_KEPT:
            kind = reason = OTHER
        self.reasons.setdefault(kind, [0, reason])[0] += 1
        with writing(self.path or "", "resume: no row is lost"):
            self.add(reason, **row)

    def most_frequent(self, n: int = 3) -> list[dict[str, Any]]:
        """Return the most frequent reasons, each as its first row had it, and how many rows had one like it."""
        found = sorted(self.reasons.values(), key=lambda each: -each[0])
        return [{"rows": count, "reason": reason} for count, reason in found[:n]]

    def check(self, n_good: int, *, is_end: bool = True) -> None:
        """Raise :class:`TooManyBadRows` if there were too many since then, beside so many good ones."""
        n, limit = self.n_new, self.limit
        if isinstance(limit, float):
            if n <= limit * (n + n_good) or not (is_end or n + n_good >= ROWS_FOR_A_SHARE):
                return
            found = f"{n:,} bad rows of {n + n_good:,} are more than max_bad={limit:.4g}"
        elif limit is None or n <= limit:
            return
        else:
            found = f"{n:,} bad rows are more than max_bad={limit}"
        self.quarantine_unread()
        [most] = self.most_frequent(1)
        kept = "" if self.path is None else f" They are in {self.path}."
        way_out = "Mend the source or how it is read, and resume: the good rows are learned. Or allow for more of them."
        raise TooManyBadRows(f"{found}; most of them, {most['rows']:,}: {most['reason']}{kept} {way_out}")


def _kind(reason: str) -> str:
    """Return a reason without numbers and quoted values, but for the first, which is the column's name."""
    name = re.search(r"'[^']*'", reason)
    start = name.end() if name else 0
    return reason[:start] + re.sub(r"'[^']*'|[-+.\d][-+.,\de]*", "…", reason[start:])


def plain_values(value: Any) -> Any:
    """Return a value as JSON has it; bytes as text, infinite numbers as words, NaN as null."""
    if isinstance(value, Mapping):
        return {name: plain_values(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _fingerprint(place: Any) -> int:
    """Return a number for the place of a bad row; what is one already stays as it is."""
    if not isinstance(place, str):
        return int(place)
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "little")
