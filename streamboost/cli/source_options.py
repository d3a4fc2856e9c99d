"""The source of a command: opened as its options say, looked at before it is read, and ended early if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from streamboost.cli.usage_errors import Refused
from streamboost.sources import BadRow, Batch, FileSource, Position, Source

Format = Annotated[str | None, typer.Option(help="csv, tsv, jsonl, parquet or arrow, if names do not tell.")]
Types = Annotated[
    list[str] | None, typer.Option(metavar="COL=TYPE", help="A column's type, such as zip=string; may be repeated.")
]

NOT_FILES = ("synthetic:", "kafka:", "redis:", "rediss:", "unix:")


class Peeked(Source):
    """A source whose first rows can be looked at before they are read, and which may end early.

    Parameters
    ----------
    source : Source
    strict : bool
        Whether a bad row is an error at once.
    end_after : int, optional
        How many rows there are to be; all if left out.
    """

    def __init__(self, source: Source, strict: bool = False, *, end_after: int | None = None) -> None:
        self.source, self.end_after = source, end_after
        self.on_bad: Any = "raise"  # what hears of bad rows, once somebody is there for them
        self._unheard: list[BadRow] = []
        if not strict and getattr(source, "on_bad", None) == "raise":
            source.on_bad = self._hear  # type: ignore[attr-defined]
        self._held: tuple[Position, Batch | None, Iterator[Batch]] | None = None

    def first(self, position: Position, n_rows: int = 1000) -> Any:
        """The first rows after ``position``, a table; None if there are none."""
        batches = self._batches(position, n_rows)
        batch = next(batches, None)
        self._held = (position, batch, batches)
        return None if batch is None else batch.table

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """The rows after ``position``, those looked at among them."""
        unheard, self._unheard = self._unheard, []
        for bad in unheard:
            self._hear(bad)
        held, self._held = self._held, None
        batches, left = self._after(held, position, n_rows), self.end_after
        while (batch := next(batches, None)) is not None:
            if left is not None and batch.table.num_rows > left:
                # A position within a batch is the source's to tell: it is asked again, for no more than what is left.
                batches.close()
                batches = self._after(None, position, left)
                continue
            yield batch
            position = batch.position
            if left is not None and (left := left - batch.table.num_rows) == 0:
                return

    def _after(self, held: Any, position: Position, n_rows: int) -> Any:
        if held is None or held[0] != position:
            yield from self._batches(position, n_rows)
        elif held[1] is not None:
            yield held[1]
            yield from held[2]

    def _batches(self, position: Position, n_rows: int) -> Iterator[Batch]:
        if self.end_after is not None and isinstance(self.source, FileSource):  # a pipe cannot be asked again
            return self.source.read_first(self.end_after, position, n_rows)
        return iter(self.source.read(position, n_rows))

    def acknowledge(self, position: Position) -> None:
        """Pass it on."""
        self.source.acknowledge(position)

    def progress(self, position: Position) -> float | None:
        """Ask the source."""
        return self.source.progress(position)

    @property
    def stop(self) -> Any:
        """What the source asks, while it waits, whether to stop; False if it never asks."""
        return getattr(self.source, "stop", False)

    @stop.setter
    def stop(self, asked: Callable[[], bool] | None) -> None:
        self.source.stop = asked  # type: ignore[attr-defined]

    def _hear(self, bad: BadRow) -> None:
        if callable(self.on_bad):
            self.on_bad(bad)
        else:
            self._unheard.append(bad)


def source_options(
    where: Sequence[str], *, format: str | None = None, types: Sequence[str] = (), follow: bool = False
) -> dict[str, Any]:
    """The options that a source of this kind takes."""
    options: dict[str, Any] = {}
    is_generated = any(part.startswith("synthetic:") for part in where)
    if format is not None:
        if any(part.startswith(NOT_FILES) for part in where):
            raise Refused("--format is for files.")
        options["format"] = format
    if follow:
        if is_generated:
            raise Refused("--follow is for files and brokers; generated rows have no end anyway.")
        options["follow"] = True
    if types:
        if is_generated:
            raise Refused("--type is for files and brokers; generated rows have their types.")
        options["types"] = parse_types(types)
    return options


def parse_types(words: Sequence[str]) -> dict[str, str]:
    """Types by column.

    Examples
    --------
    >>> parse_types(["zip=string", "a=b=float64"])
    {'zip': 'string', 'a=b': 'float64'}
    """
    types: dict[str, str] = {}
    for word in words:
        name, _, kind = word.rpartition("=")
        if not name or not kind:
            raise Refused(f"--type is {word!r}, expected COL=TYPE, such as zip=string or price=float64.")
        if types.get(name, kind) != kind:
            raise Refused(f"--type gives column {name!r} two types, {types[name]} and {kind}. Drop one of them.")
        types[name] = kind
    return types
