"""The rows a command is given: a source, with a look at its first rows, and an early end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamboost.cli.arguments import UsageError, parse_types
from streamboost.features.reading import Kind
from streamboost.sources import BadRow, Batch, FileSource, Position, Source, open_source

TAB = {"tab": "\t", "\\t": "\t"}  # what no shell lets one type
NOT_FILES = ("synthetic:", "kafka:", "redis:", "rediss:", "unix:")


class PeekableSource(Source):
    """A source whose first rows can be peeked at, and which ends after some rows; if strict, a bad one is an error."""

    def __init__(self, source: Source, strict: bool = False, *, end_after: int | None = None) -> None:
        self.source, self.end_after = source, end_after
        self.on_bad: Any = "raise"  # or a callable that gets bad rows, those met before it was set among them
        self._unread: list[BadRow] = []
        if not strict and getattr(source, "on_bad", None) == "raise":
            source.on_bad = self._keep_bad  # type: ignore[attr-defined]
        self._held: tuple[Position, Batch | None, Iterator[Batch]] | None = None

    def first(self, position: Position = None, n_rows: int = 1000) -> Any:
        """Return the first rows after ``position`` as a table; None if there are none."""
        batches = self._batches(position, n_rows)
        batch = next(batches, None)
        self._held = (position, batch, batches)
        return None if batch is None else batch.table

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Yield the rows after ``position``, those peeked at among them."""
        unread, self._unread = self._unread, []
        for bad in unread:
            self._keep_bad(bad)
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
        """Commit a position."""
        self.source.acknowledge(position)

    def progress(self, position: Position) -> float | None:
        """Return the share of rows before ``position``."""
        return self.source.progress(position)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return what the source is told of columns; it may be told before it is read."""
        return getattr(self.source, "kinds", None) or {}

    @kinds.setter
    def kinds(self, kinds: Mapping[str, Kind]) -> None:
        self.source.kinds = kinds  # type: ignore[attr-defined]

    @property
    def stop(self) -> Any:
        """Return what the source calls while it waits, to know whether to stop; False if it never does."""
        return getattr(self.source, "stop", False)

    @stop.setter
    def stop(self, asked: Callable[[], bool] | None) -> None:
        self.source.stop = asked  # type: ignore[attr-defined]

    def describe(self) -> str:
        """Return how the rows are written; nothing, if there is nothing to say."""
        return self.source.describe() if isinstance(self.source, FileSource) else ""

    def _keep_bad(self, bad: BadRow) -> None:
        (self.on_bad if callable(self.on_bad) else self._unread.append)(bad)


def open_rows(
    where: Sequence[str],
    given: Mapping[str, Any],
    waits: tuple[bool, bool] = (False, False),
    *,
    kinds: Mapping[str, Kind] | None = None,
    strict: bool = True,
    end_after: int | None = None,
) -> PeekableSource:
    """Open a source with the options that a command was given; refuse those that one of this kind does not take.

    ``waits`` says whether to follow, and that through rotation; ``kinds`` is what a model knows of columns.
    """
    follow, follow_rotation = waits
    is_generated = any(part.startswith("synthetic:") for part in where)
    types, names, delimiter = given.get("type"), given.get("names"), given.get("delimiter")
    of_files = {name: given.get(name) for name in ("format", "encoding", "decimal")}
    of_files |= {"delimiter": TAB.get(delimiter or "", delimiter), "names": names and names.split(",")}
    for name, value in of_files.items():
        if value is not None and any(part.startswith(NOT_FILES) for part in where):
            raise UsageError(f"--{name} is for files.")
    if follow and is_generated:
        raise UsageError("--follow is for files and brokers; generated rows have no end anyway.")
    if follow_rotation and any(part.startswith(NOT_FILES) for part in where):
        raise UsageError("--follow-rotation is for a file.")
    if types and is_generated:
        raise UsageError("--type is for files and brokers; generated rows have their types.")
    options = {**of_files, "follow": follow, "follow_rotation": follow_rotation, "types": parse_types(types or ())}
    options["kinds"] = None if is_generated else kinds
    opened = open_source(*where, **{name: value for name, value in options.items() if value})
    return PeekableSource(opened, strict, end_after=end_after)
