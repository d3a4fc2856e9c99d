"""Parquet and Arrow files: tables that know their types, read batch by batch."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from mmap import ACCESS_READ, mmap
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamboost.features.reading import Kind
from streamboost.sources.arrow_messages import claimed_bytes, count_columns, decoded_bytes
from streamboost.sources.parquet_pages import read_pages
from streamboost.sources.schemas import check_same, plain_schema, with_kinds
from streamboost.sources.text_files import Span
from streamboost.sources.text_formats import MOST_COLUMNS

ROWS = 1 << 14  # at a time
MOST_BYTES, MOST_GROWTH = 1 << 28, 32  # what bytes of a file may become at once: so many, or so many times as many
ARROW_FILE = b"ARROW1\0\0"  # what the file format starts with; a stream follows, and then an index we do not need


def read_parquet(
    path: str, types: Mapping[str, Any], schema: Any, start_row: int, kinds: Mapping[str, Kind]
) -> Iterator[Span]:
    """Yield the rows of a Parquet file from ``start_row`` on; row groups before it are not read."""
    with _open_parquet(path) as file, open(path, "rb") as plain, mmap(plain.fileno(), 0, access=ACCESS_READ) as data:
        _check_width(file.metadata.num_columns, path)
        found = _checked(file.schema_arrow, types, schema, path, kinds)
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        after = np.cumsum([0, *sizes])  # rows before each group, and at last all
        first = int(np.searchsorted(after[1:], start_row, side="right"))
        for g in range(first, len(sizes)):  # of groups asked for together Arrow would load more than one
            n_rows, coded = _plan(file, data, g, path)
            with _open_parquet(path, file.metadata, coded) as group:
                batches = group.iter_batches(n_rows, row_groups=[g], use_threads=False)
                yield from _spans(batches, found, int(after[g]), start_row, path)


def _open_parquet(path: str, metadata: Any = None, coded: Sequence[str] = ()) -> Any:
    """Open a Parquet file; its footer may not name more parts of any kind than some for each column there may be."""
    try:
        most = {"thrift_container_size_limit": 4 * MOST_COLUMNS}
        return pq.ParquetFile(path, metadata=metadata, read_dictionary=[*coded], pre_buffer=False, **most)
    except OSError as error:
        if "size limit" not in str(error):
            raise
        told = f"its index lists more than {4 * MOST_COLUMNS:,} columns or row groups"
        raise ValueError(f"{path}: {told}, expected fewer. Leave columns out, or write larger row groups.") from error


def _plan(file: Any, data: mmap, g: int, path: str) -> tuple[int, list[str]]:
    """Return how many rows of a row group to read at a time, and which columns as codes; refuse what becomes huge."""
    try:
        with memoryview(data) as view:
            columns = read_pages(view, file.metadata.row_group(g), file.schema)
    except (IndexError, ValueError) as error:
        raise OSError(f"row group {g} is damaged ({error})") from error
    _check_growth(sum(each.unpacked for each in columns), sum(each.packed for each in columns), path)
    n_rows = max(min(ROWS, MOST_BYTES // (8 * max(len(columns), 1))), 1)
    coded = []
    if n_rows * sum(each.shared for each in columns) > MOST_BYTES:
        coded = [each.path for each in columns if each.is_coded]
        n_rows = max(min(n_rows, MOST_BYTES // max(sum(each.shared for each in columns if not each.is_coded), 1)), 1)
    return n_rows, coded


def _check_width(n_columns: int, name: str) -> None:
    if n_columns > MOST_COLUMNS:
        found = f"{name} has {n_columns:,} columns, those within others counted, expected at most {MOST_COLUMNS:,}"
        raise ValueError(f"{found}. Leave some out.")


def _check_growth(n_bytes: int, n_stored: int, name: str) -> None:
    """Refuse bytes that are few and become many."""
    if n_bytes > (most := max(MOST_BYTES, MOST_GROWTH * n_stored)):
        found = f"{name}: {n_stored:,} bytes of it become {n_bytes:,} at once, expected at most {most:,}"
        raise ValueError(f"{found}. If these are data, write them in smaller batches or pages, or shorter texts.")


def read_arrow(
    stream: Any, name: str, types: Mapping[str, Any], schema: Any, start_row: int, kinds: Mapping[str, Kind]
) -> Iterator[Span]:
    """Yield the rows of an Arrow file or stream from ``start_row`` on, which is mapped if it can be."""
    head = stream.read(len(ARROW_FILE))
    if head != ARROW_FILE and stream.seekable():
        stream.seek(stream.tell() - len(head))
    elif head != ARROW_FILE:
        stream = _Unread(head, stream)
    messages: Iterator[Any]
    if isinstance(stream, pa.MemoryMappedFile):  # what is looked at costs nothing: it is looked at twice
        ahead = pa.py_buffer(b"") if stream.size() == 0 else stream.read_buffer()
        messages, source = _checked_messages(ahead, name), pa.BufferReader(ahead)
    else:
        messages, source = iter(()), _CheckedStream(_checked_messages(stream, name))
    next(messages, None)  # the schema
    with pa.ipc.open_stream(source) as reader:
        found = _checked(reader.schema, types, schema, name, kinds)
        yield from _spans(_valid(reader, messages), found, 0, start_row, name)


def _checked_messages(stream: Any, name: str) -> Iterator[Any]:
    """Yield messages that become no more than they may, before Arrow unpacks them."""
    for message in pa.ipc.MessageReader.open_stream(stream):
        if message.type == "schema":
            _check_width(count_columns(message, MOST_COLUMNS + 1), name)
        _check_growth(claimed_bytes(message), 0 if message.body is None else message.body.size, name)
        yield message


def _valid(reader: Any, messages: Iterator[Any]) -> Iterator[Any]:
    """Validate batches: Arrow trusts the offsets it reads, and wrong ones lead out of the buffer."""
    while True:
        for message in messages:  # up to that of the next batch
            if message.type == "record batch":
                break
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
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
        n_stored = batch.get_total_buffer_size()
        for start in range(max(start_row - row, 0), batch.num_rows, ROWS):
            part = batch.slice(start, ROWS)
            _check_growth(decoded_bytes(part), n_stored, f"{name}, row {row + start} and those after it")
            table = pa.Table.from_batches([part]).select(schema.names)
            try:
                table = table.cast(schema)
            except pa.ArrowException as error:
                found = f"{name} cannot be read as types=... says: {error}"
                raise ValueError(f"{found}. Choose a type that fits.") from error
            yield Span(table, row + start)
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


class _CheckedStream(io.RawIOBase):
    """The bytes of messages that were checked, for Arrow to read."""

    def __init__(self, messages: Iterator[Any]) -> None:
        self._messages, self._data = messages, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._data and (message := next(self._messages, None)) is not None:
            self._data = memoryview(message.serialize())
        n = min(len(buffer), len(self._data))
        buffer[:n], self._data = self._data[:n], self._data[n:]
        return n


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
