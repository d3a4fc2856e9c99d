"""One file of text, read block by block: rows of fixed types, each with its byte, line and number."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from streamboost._types import IntArray
from streamboost.kernels.records import NEWLINE
from streamboost.sources.dialects import is_bytewise, marked_encoding
from streamboost.sources.text_formats import ENCODINGS, LINE_ENDS, UNREADABLE, TextFormat

BLOCK = 1 << 20  # bytes
LONGEST_ROW = 1 << 26  # bytes; more than this is a quote that was never closed
HALF = "the file ends in the middle of this row"

End: TypeAlias = Literal["more", "finished", "stopped"]


class Place(NamedTuple):
    """How much of a file was read: rows (good and bad, without the header), lines, and bytes."""

    row: int = 0
    line: int = 0
    offset: int = 0


class Span(NamedTuple):
    """Rows of a table, and where each of them ends in its file; without rows, a place that was reached."""

    table: Any
    row: int  # of the first
    lines: IntArray | None = None
    offsets: IntArray | None = None
    is_last: bool = False  # whether nothing follows in the file, as it stands now

    def after(self, k: int) -> Place:
        """Return the place after the first k rows."""
        if self.lines is None or self.offsets is None:
            return Place(self.row + k)
        return Place(self.row + k, int(self.lines[k - 1]), int(self.offsets[k - 1]))


class _Records(NamedTuple):
    """Rows not yet read, none of them blank; starts and ends are positions in data."""

    data: bytes
    row: int
    offset: int  # of data in the file
    starts: IntArray
    ends: IntArray
    lines: IntArray  # which each ends
    is_last: bool  # whether nothing follows

    def drop(self, k: int, *, is_header: bool = False) -> _Records:
        row = self.row if is_header else self.row + k
        return self._replace(row=row, starts=self.starts[k:], ends=self.ends[k:], lines=self.lines[k:])

    def text(self, i: int, j: int) -> bytes:
        return self.data[self.starts[i] : self.ends[j - 1]]


@dataclass
class TextReader:
    """Reads the rows of one file of text.

    ``more`` is called at the end of the file with the bytes read, tells what to do, and may wait; without it the end is
    the end. ``bad`` gets the place, text and reason of each bad row, and may raise. Of a stream that ``is_live`` no
    more is read than is needed, so which row is the last is not known.
    """

    name: str
    format: TextFormat
    read: Callable[[int], bytes]
    seek: Callable[[int], object] | None  # None: rows can only be skipped by reading them
    bad: Callable[[Place, str, str], None]
    more: Callable[[int], End] | None = None
    is_live: bool = False

    def spans(self, start: Place) -> Iterator[Span | None]:
        """Yield the rows after ``start``, and None whenever there are no more for now."""
        self._rest, self._place, self._is_behind = b"", Place(), False
        self._is_settled = False  # whether it is known how the file is written
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ahead: bytes | None = None  # read already, to see whether anything follows
        needs_header = self.format.has_header
        if not needs_header:
            self._seek_to(start)
        for records in self._records():
            if records is None:
                yield from self._catch_up()
                yield None
                continue
            if not len(records.ends):
                continue
            if needs_header:
                self.format.read_header(records.text(0, 1), self.name)
                records, needs_header = records.drop(1, is_header=True), False
                self._place = self._place._replace(row=self._place.row - 1)
                if self._seek_to(start):
                    continue
            records = records.drop(min(max(start.row - records.row, 0), len(records.ends)))
            if len(records.ends):
                if self.format.schema is None:
                    self.format.infer_types(records.text(0, len(records.ends)), self.name)
                yield from self._good(records, 0, len(records.ends))
        yield from self._catch_up()

    def _catch_up(self) -> Iterator[Span]:
        """Yield the end of the file, if only bad rows are between it and the last good one."""
        if self._is_behind and not self._rest and self.format.schema is not None:
            self._is_behind = False
            row, line, offset = self._place
            lines, offsets = (None, None) if self._decoder else (np.array([line]), np.array([offset]))
            yield Span(self.format.schema.empty_table(), row, lines, offsets, is_last=True)

    def _seek_to(self, start: Place) -> bool:
        if self.seek is None or not start.offset:
            return False
        self.seek(max(start.offset - 1, 0))
        before, after = self.read(1), self.read(1)
        if before != b"\n" and after not in (b"", b"\n", b"\r"):  # the last line had no end, and went on since
            told = "was read as it stood at the end of the file, and has changed since. Start again from None."
            raise ValueError(f"{self.name}: line {start.line + 1} {told}")
        self.seek(start.offset)
        self._rest, self._place, self._ahead = b"", start, None
        return True

    def _records(self) -> Iterator[_Records | None]:
        """Yield blocks of whole rows."""
        while True:
            block = self._read() if self._ahead is None else self._ahead
            self._ahead = None
            if block:
                data = self._rest + block
                if not self._is_settled:
                    data = self._settle(data)
                ends = self.format.ends(data)
                self._rest = data[ends[-1] :] if len(ends) else data
                if len(self._rest) > LONGEST_ROW:
                    told = f"the row from line {self._place.line + 1} on is longer than {LONGEST_ROW >> 20} MiB"
                    way_out = "Look for a quote that is never closed, or for a file that is not text."
                    raise ValueError(f"{self.name}: {told}. {way_out}")
                if len(ends):
                    self._ahead = None if self.is_live else self._read()
                    yield self._split(data[: ends[-1]], ends, is_last=not (self._rest or self.is_live or self._ahead))
                else:
                    self._check_line_ends()
                continue
            if self.more is not None:
                yield None
            end = "finished" if self.more is None else self.more(self._place.offset + len(self._rest))
            if end == "finished" and self._rest:
                data, self._rest = self._rest, b""
                if not self._is_settled:
                    data = self._settle(data, is_all=True)
                records = self._split(data, np.array([len(data)]), is_last=True)
                if len(self.format.ends(data + b"\n")):
                    yield records
                else:
                    self._report(records, 0, f"{HALF}, within quotes. Close the quotes, or pass on_bad='skip'.")
            if end == "finished" and not self._place.offset:
                raise ValueError(f"{self.name} is empty, expected rows. Remove it, or write it again.")
            if end != "more":
                return

    def _settle(self, data: bytes, *, is_all: bool = False) -> bytes:
        """Tell how the file is written by its first bytes, and return these as they are read from now on."""
        encoding = self.format.dialect.encoding or marked_encoding(data)
        if encoding is not None and not is_bytewise(encoding) and self._decoder is None:
            if self.more is not None:
                told = f"is in {encoding}, of which a file that grows cannot be followed"
                raise ValueError(f"{self.name} {told}. Let it be written in UTF-8.")
            self.format.dialect = self.format.dialect._replace(encoding=encoding)
            self._decoder = codecs.getincrementaldecoder(encoding)()
            data = self._decode(data)
        if is_all or b"\n" in data.lstrip(b"\r\n"):
            self.format.settle(data, self.name)
            self._is_settled = True
        return data

    def _read(self) -> bytes:
        """Read a block; of an encoding whose bytes do not tell rows apart, in UTF-8."""
        while True:
            block = self.read(BLOCK)
            if self._decoder is None:
                return block
            if (decoded := self._decode(block)) or not block:
                return decoded

    def _decode(self, block: bytes) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decode(block, final=not block).encode()
        except UnicodeError as error:
            raise ValueError(
                f"{self.name} is not {self.format.dialect.encoding_name}: {error}. {ENCODINGS}."
            ) from error

    def _check_line_ends(self) -> None:
        """Refuse a file that seems to be all one line, as it ends its lines in carriage returns."""
        if self._place.offset or b"\r" not in self._rest:
            return
        ends = self.format.ends(self._rest.replace(b"\r", b"\n"))
        if len(ends) and self._rest[ends[0] :].strip(b"\r"):
            raise ValueError(f"{self.name} ends its lines in carriage returns alone. {LINE_ENDS}")

    def _split(self, data: bytes, ends: IntArray, *, is_last: bool) -> _Records:
        """Split whole rows, leave blank ones out, and advance the place past them."""
        codes = np.frombuffer(data, np.uint8)
        starts = np.concatenate([[0], ends[:-1]])
        row, line, offset = self._place
        lines = line + np.searchsorted(np.flatnonzero(codes == NEWLINE), ends)
        size, first = ends - starts, codes[starts]
        is_row = ~((size == 1) & (first == NEWLINE)) & ~((size == 2) & (first == ord("\r")))
        self._place = Place(row + int(is_row.sum()), int(lines[-1]), offset + len(data))
        return _Records(data, row, offset, starts[is_row], ends[is_row], lines[is_row], is_last)

    def _good(self, records: _Records, i: int, j: int) -> Iterator[Span]:
        """Yield rows i to j; if some are bad, halve until they are alone."""
        table, reason = self._table(records.text(i, j), j - i)
        if table is not None:
            self._is_behind = False
            is_last = records.is_last and j == len(records.ends)
            lines, offsets = records.lines[i:j], records.offset + records.ends[i:j]
            span = Span(table, records.row + i, lines, offsets, is_last)
            yield span._replace(lines=None, offsets=None) if self._decoder else span
        elif j - i > 1:
            middle = (i + j) // 2
            yield from self._good(records, i, middle)
            yield from self._good(records, middle, j)
        elif reason:
            is_half = not records.text(i, j).endswith(b"\n")
            self._report(records, i, f"{HALF}. Write its rest, or pass on_bad='skip'." if is_half else reason)

    def _table(self, data: bytes, n: int) -> tuple[Any, str]:
        """Return the n rows, or None; and of a single one what is wrong with it."""
        try:
            table = self.format.parse(data)
        except UNREADABLE as error:
            return None, self.format.explain(error) if n == 1 else ""
        if table.num_rows == n:
            return table, ""
        # a line of blanks, in which Arrow finds no row, is not bad
        return None, "the line holds several rows. Put a line feed, not a blank, between them." * bool(table.num_rows)

    def _report(self, records: _Records, i: int, reason: str) -> None:
        """Report that row i is bad."""
        data = records.text(i, i + 1)
        line = int(records.lines[i]) - data.count(b"\n")  # lines before it
        offset = 0 if self._decoder else records.offset + int(records.starts[i])
        self._is_behind = True
        self.bad(Place(records.row + i, line, offset), self.format.to_text(data), reason)
