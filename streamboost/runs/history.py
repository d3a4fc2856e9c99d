"""The history of a run: rows that are fitted as a table before the run goes on with its source.

In flow validated rows, chunk by chunk; out flows one table of the newest that there is room for.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.sources import Source

MOST_ROWS = 1 << 20  # that are held: a fit sweeps over no more
MOST_MB = 1024  # of them, where the model has no memory_limit_mb


class Rows(NamedTuple):
    """Rows, their targets, and their numbers in the run."""

    X: Any  # pyarrow.Table
    y: NDArray[Any]
    numbers: NDArray[Any]

    def since(self, first: int) -> Rows:
        """Return the rows from one on."""
        return Rows(self.X.slice(first), self.y[first:], self.numbers[first:])

    def where(self, chosen: NDArray[Any]) -> Rows:
        """Return those for which a mask is true."""
        return Rows(self.X.filter(pa.array(chosen)), self.y[chosen], self.numbers[chosen])


class NewestRows:
    """Holds the newest rows that there is room for.

    Examples
    --------
    >>> held = NewestRows(most_rows=3)
    >>> for start in (0, 2):
    ...     numbers = np.arange(start, start + 2)
    ...     held.add(Rows(pa.table({"x": numbers}), 2.0 * numbers, numbers))
    >>> held.rows().X["x"].to_pylist(), len(held), held.n_dropped
    ([1, 2, 3], 3, 1)
    """

    def __init__(self, most_rows: int = MOST_ROWS, most_mb: float = MOST_MB) -> None:
        self.most_rows, self.most_bytes = most_rows, most_mb * 1e6
        self._n = self._n_added = self._n_bytes = 0
        self._parts: deque[Rows] = deque()

    def __len__(self) -> int:
        return self._n

    @property
    def n_dropped(self) -> int:
        """How many older rows there was no room for."""
        return self._n_added - self._n

    def add(self, rows: Rows) -> None:
        """Add rows; the oldest go, if there is no room for all."""
        if not len(rows.y):
            return
        self._parts.append(rows)
        self._count(rows, 1)
        self._n_added += len(rows.y)
        while self._n > self.most_rows or (self._n_bytes > self.most_bytes and len(self._parts) > 1):
            oldest = self._parts.popleft()
            self._count(oldest, -1)
            room = self.most_rows - self._n  # for some of its rows, if it is not too many bytes
            if 0 < room < len(oldest.y) and self._n_bytes + oldest.X.nbytes <= self.most_bytes:
                self._parts.appendleft(oldest.since(len(oldest.y) - room))
                self._count(self._parts[0], 1)

    def _count(self, rows: Rows, sign: int) -> None:
        self._n, self._n_bytes = self._n + sign * len(rows.y), self._n_bytes + sign * rows.X.nbytes

    def rows(self) -> Rows:
        """Return all as one table, a column that some have not missing there."""
        X = pa.concat_tables([part.X for part in self._parts], promote_options="permissive")
        return Rows(X, *(np.concatenate([part[i] for part in self._parts]) for i in (1, 2)))


def find_refused(model: Any, rows: Rows, chunk: int) -> dict[int, str]:
    """Return why a model that has learned nothing refuses rows, by their places, if they come one after the other."""
    after, reasons = None, {}
    for start in range(0, len(rows.y), chunk):
        try:
            after = model.prepare(rows.X.slice(start, chunk), rows.y[start : start + chunk], after=after)
        except (TypeError, ValueError):
            for row in range(start, min(start + chunk, len(rows.y))):
                try:
                    after = model.prepare(rows.X.slice(row, 1), rows.y[row : row + 1], after=after)
                except (TypeError, ValueError) as error:
                    reasons[row] = str(error)
    return reasons


def check_history(history: Source, model: Any) -> None:
    """Refuse a history that has no end, and a model that cannot fit one."""
    if history.progress(None) is None:
        found = f"history is a {type(history).__name__} that may have no end, expected one that ends, such as files"
        raise ValueError(f"{found}. Learn it row by row instead, as the source of a run.")
    if model is not None and not hasattr(model, "fit_learn"):
        raise ValueError(f"a {type(model).__name__} cannot fit a history. Leave history out, or use SGBRegressor.")
    if hasattr(model, "committee_"):
        raise ValueError("model has learned rows already, which to fit a history would forget. Pass a new one.")
