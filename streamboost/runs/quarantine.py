"""The bad rows of a run: each counted once, put into quarantine with reason and place, and no more than are allowed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamboost.errors import writing
from streamboost.runs.guard import Quarantine
from streamboost.sources import BadRow

PLACES_KEPT = 100_000  # of bad rows, so that none is counted twice after a resume


class TooManyBadRows(ValueError):
    """More rows were refused than the run was allowed."""


class BadRows:
    """Where a run puts rows that cannot be learned.

    Parameters
    ----------
    quarantine : Quarantine, optional
        Without it they are only counted.
    strict : bool
        Whether the first one is an error.
    limit : int, optional
        How many may come since the run began or was resumed.

    Attributes
    ----------
    n : int
        How many there were, those before a resume among them.
    heard : list of BadRow
        Those a source could not read, and that are not put aside yet.

    Examples
    --------
    >>> bad = BadRows(limit=1)
    >>> for row in range(2):
    ...     bad.bury("the target is missing.", '{"x": 1}', position=row, row=row)
    >>> bad.check()
    Traceback (most recent call last):
        ...
    streamboost.runs.quarantine.TooManyBadRows: 2 bad rows are more than max_bad=1; the last one: ...
    """

    def __init__(self, quarantine: Quarantine | None = None, *, strict: bool = False, limit: int | None = None) -> None:
        self.quarantine, self.strict, self.limit = quarantine, strict, limit
        self.n = self._n_before = 0
        self.heard: list[BadRow] = []
        self._places: dict[int, None] = {}  # the latest last
        self._last_reason = ""

    @property
    def places(self) -> NDArray[np.uint64]:
        """Where those of the source were, as numbers."""
        return np.array(list(self._places), dtype=np.uint64)

    def go_on(self, n: int, places: Any) -> None:
        """Begin with those of the run that is resumed."""
        self.n = self._n_before = n
        self._places = dict.fromkeys(map(_fingerprint, places))

    def bury_heard(self) -> None:
        """Put aside what the source could not read; what it comes upon again after a resume counts once."""
        for bad in self.heard:
            place = _fingerprint(bad.place)
            if place not in self._places:
                self._places[place] = None
                if len(self._places) > PLACES_KEPT:
                    del self._places[next(iter(self._places))]
                self.bury(f"{bad.place}: {bad.reason}", bad.text, bad.position, None)
        self.heard.clear()

    def bury(self, reason: str, text: str, position: Any, row: int | None) -> None:
        """Put a row aside."""
        if self.strict:
            raise ValueError(f"row {row}: {reason} Its chunk was not learned. Leave out --strict to go on without it.")
        self.n += 1
        self._last_reason = reason
        if self.quarantine is not None:
            with writing(self.quarantine.path, "resume: no row is lost"):
                self.quarantine.add(reason, text=text, position=position, row=row)

    def check(self) -> None:
        """End the run if there were too many since it began or was resumed."""
        n = self.n - self._n_before
        if self.limit is not None and n > self.limit:
            raise TooManyBadRows(
                f"{n} bad rows are more than max_bad={self.limit}; the last one: {self._last_reason} "
                "Look into quarantine.jsonl, mend the source, and resume: the good rows are learned."
            )


def _fingerprint(place: Any) -> int:
    """A number for the place of a bad row; what is one already stays as it is."""
    if not isinstance(place, str):
        return int(place)
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "little")
