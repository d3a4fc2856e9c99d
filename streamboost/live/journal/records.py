"""What a journal holds, and how it is written."""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

import pyarrow as pa


class Damaged(Exception):
    """What is wrong with the file."""


class Entry(NamedTuple):
    """Rows to be learned."""

    number: int
    kind: Any  # "learn", "label", "correct" or "expire"
    table: Any  # pyarrow.Table, whose last column is the target
    first: list[Any] | None  # what was said of each row when it was first asked about
    refused: str | dict[int, str] | None  # why the model did not take it, or some of its rows
    origin: Any = None  # where the rows came from, as whoever wrote them says


class KeyedRow(NamedTuple):
    """A row that waits for its label, or one that was learned with it."""

    key: str
    time: float  # when it came, or was learned
    label: Any  # None: it waits
    batch: Any  # pyarrow.RecordBatch of one row
    first: Any


class RipeRow(NamedTuple):
    """A row that is to be learned next."""

    place: int  # in their order
    why: str  # "label": it came before the row; "expired": none came in time; "crowded": too many waited
    since: float  # when that was
    number: int  # of the row, among those that wait
    row: KeyedRow  # with its label, if that is there


class PackedRow(NamedTuple):
    """A row on its way in."""

    key: str
    time: float
    schema: bytes
    row: bytes
    first: str | None


def refusal_text(refused: str | dict[int, str]) -> str:
    """Return why an entry, or some of its rows, were refused, as it is kept."""
    return refused if isinstance(refused, str) else json.dumps({"rows": refused})


def read_refusal(text: str | None) -> str | dict[int, str] | None:
    """Undo :func:`refusal_text`."""
    if text is None or not text.startswith('{"rows": {'):
        return text
    return {int(row): reason for row, reason in json.loads(text)["rows"].items()}


def seal(*values: Any) -> int:
    """Return a checksum of what stands in a line of a table, by which a changed bit is noticed."""
    checksum = 0
    for value in values:
        checksum = zlib.crc32(value if isinstance(value, bytes) else repr(value).encode(), checksum)
    return checksum


def sealed(data: bytes) -> bytes:
    """Return bytes with their checksum."""
    return zlib.crc32(data).to_bytes(4, "little") + data


def unsealed(data: bytes, name: str) -> bytes:
    """Undo :func:`sealed`."""
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise Damaged(f"the checksum of {name} does not match")
    return data[4:]


def table_bytes(table: Any) -> bytes:
    """Return a table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_table(data: bytes) -> Any:
    """Undo :func:`table_bytes`."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
