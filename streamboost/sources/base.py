"""What a source is: rows in batches, and after each batch a position to go on from.

A position goes into a snapshot with the model that learned the rows before it. ``None`` is the beginning; anything
else is for the source alone to understand. The order of events in a run::

    batch  ─▶  learn  ─▶  snapshot with batch.position, durable  ─▶  source.acknowledge(batch.position)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from streamboost.errors import SKIP

Position: TypeAlias = Any  # what JSON can hold: dict, list, str, int, float, bool or None


class Batch(NamedTuple):
    """Some rows, and the position after them."""

    table: Any  # pyarrow.Table
    position: Position


class Source(ABC):
    """Rows that come in batches and can be read again from any position.

    A source of one's own has :meth:`read`, and :meth:`acknowledge` and :attr:`schema` where there is something to
    say. Of many partitions, such as a broker's, a position may be a dict with one offset for each.

    Examples
    --------
    >>> from streamboost.sources import MemorySource
    >>> source = MemorySource({"x": [1, 2, 3, 4, 5]})
    >>> first, *rest = source.read(n_rows=2)
    >>> first.table["x"].to_pylist(), first.position
    ([1, 2], 2)
    >>> [batch.table["x"].to_pylist() for batch in source.read(first.position, n_rows=10)]
    [[3, 4, 5]]
    """

    @abstractmethod
    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Yield the rows after ``position`` in batches of ``n_rows``; the last may be smaller, none is empty.

        Reading from the position of any batch gives the rows after it, each once and in order, whatever ``n_rows``
        is then; the default position, None, is the beginning. A source that waits for rows may yield smaller batches.
        """

    def acknowledge(self, position: Position) -> None:  # noqa: B027 - most sources have nothing to do here
        """Commit a position, never None: its snapshot is durable, nothing before it will be read again."""

    @property
    def schema(self) -> Any:
        """Return the ``pyarrow.Schema`` of the rows, or None while it is not known."""
        return None

    def progress(self, position: Position) -> float | None:
        """Return the share of all rows before ``position``, from 0 to 1; None for a stream without end."""
        return None


class ForeignPosition(ValueError):
    """A position that was taken in another source, or in a file that was exchanged since; ``found`` says in which."""

    def __init__(self, found: str, way_out: str) -> None:
        super().__init__(f"{found}. {way_out}")
        self.found = found


class BadRow(ValueError):
    """A row that cannot be read.

    Attributes
    ----------
    position : Position
        Where it starts: reading from here meets it again.
    text : str
        The row as it stands in the source; bytes that are no text are surrogates, as ``os.fsdecode`` has them.
    reason : str
        What is wrong with it, and how to mend it; of the error, the message also says how to pass over it.
    place : str
        Where that is, for people: a file and a line.
    """

    def __init__(self, place: str, reason: str, *, position: Position, text: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place, self.position, self.text = place, position, text
        self.reason = SKIP.sub(lambda found: found[2] or "", reason)

    def handle(self, on_bad: OnBad) -> None:
        """Raise the row, pass over it, or hand it to a function."""
        if on_bad == "raise":
            raise self
        if callable(on_bad):
            on_bad(self)


OnBad: TypeAlias = Literal["raise", "skip"] | Callable[[BadRow], object]


class Piece(NamedTuple):
    """Rows as a reader found them, and the position after the first k; without rows, it has moved past what is none."""

    table: Any  # pyarrow.Table
    after: Callable[[int], Position]


def rebatch(pieces: Iterator[Piece | None], n_rows: int) -> Iterator[Batch]:
    """Join and split pieces to batches of ``n_rows``; a None, for "no more soon", flushes what is gathered.

    Examples
    --------
    >>> table = pa.table({"x": [0, 1, 2]})
    >>> pieces = [Piece(table, lambda k: k), Piece(table, lambda k: 3 + k)]
    >>> [(batch.table["x"].to_pylist(), batch.position) for batch in rebatch(iter(pieces), 4)]
    [([0, 1, 2, 0], 4), ([1, 2], 6)]
    """
    if not isinstance(n_rows, int) or n_rows < 1:
        raise ValueError(f"n_rows is {n_rows!r}, expected a whole number of at least 1. If unsure, leave it out.")
    return _rebatched(pieces, n_rows)


def _rebatched(pieces: Iterator[Piece | None], n_rows: int) -> Iterator[Batch]:
    gathered: list[Any] = []
    count, position = 0, None
    try:
        for piece in pieces:
            if piece is None:
                if gathered:
                    yield Batch(pa.concat_tables(gathered), position)
                    gathered, count = [], 0
                continue
            if not piece.table.num_rows and gathered:
                position = piece.after(0)
            start = 0
            while start < piece.table.num_rows:
                taken = min(n_rows - count, piece.table.num_rows - start)
                gathered.append(piece.table.slice(start, taken))
                start, count, position = start + taken, count + taken, piece.after(start + taken)
                if count == n_rows:
                    yield Batch(pa.concat_tables(gathered), position)
                    gathered, count = [], 0
    except Exception:  # whatever is wrong with the next row, those before it are good
        if gathered:
            yield Batch(pa.concat_tables(gathered), position)
        raise
    if gathered:
        yield Batch(pa.concat_tables(gathered), position)


def check_row_number(position: Position, n_rows: float, what: str) -> int:
    """Return a position that is a row number, at most ``n_rows``; None is row 0."""
    if position is None:
        return 0
    if not isinstance(position, int) or not 0 <= position <= n_rows:
        way_out = "Resume with the data that the position was taken from, or start from None."
        raise ForeignPosition(f"position is {position!r}, expected a row of {what}, from 0 to {n_rows}", way_out)
    return position


def bad_position(position: Position) -> ValueError:
    """Return the error for a position of another kind of source."""
    found = f"position is {position!r}, expected one of a batch of this source"
    return ForeignPosition(found, "To start anew pass None.")


def check_on_bad(on_bad: object) -> None:
    """Refuse an ``on_bad`` that is neither "raise" nor "skip" nor callable."""
    if on_bad not in ("raise", "skip") and not callable(on_bad):
        raise ValueError(f"on_bad is {on_bad!r}, expected 'raise', 'skip' or a function of the bad row.")
