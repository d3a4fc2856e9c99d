"""Parquet and Arrow files: tables that know their types, read batch by batch."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamboost.features.reading import Kind
from streamboost.sources.schemas import check_same, plain_schema, with_kinds
from streamboost.sources.text_files import Span

ROWS = 1 << 14  # of a Parquet file at a time
ARROW_FILE = b"ARROW1\0\0"  # what the file format starts with; a stream follows, and then an index we do not need


def read_parquet(
    path: str, types: Mapping[str, Any], schema: Any, start_row: int, kinds: Mapping[str, Kind]
) -> Iterator[Span]:
    """Yield the rows of a Parquet file from ``start_row`` on; row groups before it are not read."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        found = _checked(file.schema_arrow, types, schema, path, kinds)
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        after = np.cumsum([0, *sizes])  # rows before each group, and at last all
        first = int(np.searchsorted(after[1:], start_row, side="right"))
        for g in range(first, len(sizes)):  # of groups asked for together Arrow would load more than one
            batches = file.iter_batches(ROWS, row_groups=[g], use_threads=False)
            yield from _spans(batches, found, int(after[g]), start_row, path)


def read_arrow(
    stream: Any, name: str, types: Mapping[str, Any], schema: Any, start_row: int, kinds: Mapping[str, Kind]
) -> Iterator[Span]:
    """Yield the rows of an Arrow file or stream from ``start_row`` on; a mapped file loads none before it."""
    head = stream.read(len(ARROW_FILE))
    if head != ARROW_FILE and stream.seekable():
        stream.seek(stream.tell() - len(head))
    elif head != ARROW_FILE:
        stream = _Unread(head, stream)
    with pa.ipc.open_stream(stream) as reader:
        found = _checked(reader.schema, types, schema, name, kinds)
        yield from _spans(_valid(reader), found, 0, start_row, name)


def _valid(reader: Any) -> Iterator[Any]:
    """Validate batches: Arrow trusts the offsets it reads, and wrong ones lead out of the buffer."""
    for batch in reader:
        batch.validate(full=True)
        yield batch


def _checked(found: Any, types: Mapping[str, Any], schema: Any, name: str, kinds: Mapping[str, Kind]) -> Any:
    found = plain_schema(with_kinds(found, kinds, is_text=False), types, name)
    if schema is None:
        return found
    check_same(schema, found, name)
    return schema


def _spans(batches: Iterator[Any], schema: Any, row: int, start_row: int, name: str) -> Iterator[Span]:
    for batch in batches:
        end = row + batch.num_rows
        if end > start_row:
            skipped = max(start_row - row, 0)
            table = pa.Table.from_batches([batch.slice(skipped)]).select(schema.names)
            try:
                table = table.cast(schema)
            except pa.ArrowException as error:
                found = f"{name} cannot be read as types=... says: {error}"
                raise ValueError(f"{found}. Choose a type that fits.") from error
            yield Span(table, row + skipped)
        row = end


def mark_last(spans: Iterator[Span]) -> Iterator[Span]:
    """Yield spans, the last of them with ``is_last``."""
    held = None
    try:
        for span in spans:
            if held is not None:
                yield held
            held = span
    except Exception:
        if held is not None:
            yield held
        raise
    if held is not None:
        yield held._replace(is_last=True)


class _Unread(io.RawIOBase):
    """A stream with bytes that were read already put back in front."""

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(data) :] if self._head else b""
        buffer[: len(data)] = data
        return len(data)
