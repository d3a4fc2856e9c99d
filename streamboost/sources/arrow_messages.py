"""Messages of Arrow's stream format, looked at before Arrow unpacks them: a few bytes may claim to become gigabytes.

Arrow itself checks the frame of every message, which is a FlatBuffer. Read here is what it says of its columns, of its
buffers and of what these become; ``decoded_bytes`` is what the values of a batch are once each is written out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

HEADER, BATCH_OF_DICTIONARY = 2, 1  # places of fields, as Message.fbs and Schema.fbs have them
BUFFERS, COMPRESSION = 2, 3  # of a record batch
FIELDS, CHILDREN = 1, 5  # of a schema, and of a field
DELTA = (HEADER, 2)  # of a dictionary: it is the rest of one
CODE_BYTES = 64  # that a value of a dictionary other than text is written out in, at most


def is_compressed(message: Any) -> bool:
    """Return whether the buffers of a message are compressed."""
    batch = _batch_fields(message)
    return batch is not None and _place(bytes(message.metadata), (*batch, COMPRESSION)) is not None


def is_delta(message: Any) -> bool:
    """Return whether a message is the rest of a dictionary that came before."""
    return message.type == "dictionary" and _place(bytes(message.metadata), DELTA) is not None


def claimed_bytes(message: Any) -> int:
    """Return how many bytes the compressed buffers of a message say they become."""
    batch = _batch_fields(message)
    if batch is None or message.body is None or not is_compressed(message):
        return 0
    data, body, claimed = bytes(message.metadata), memoryview(message.body), 0
    place = _place(data, (*batch, BUFFERS))
    for offset, length in () if place is None else _structs(data, place):
        if length >= 8:
            claimed += max(struct.unpack_from("<q", body, offset)[0], 0)
    return claimed


def count_columns(message: Any, most: int) -> int:
    """Return how many columns a schema has, those within others too; it is not counted on beyond ``most``."""
    data, n = bytes(message.metadata), 0
    place = _place(data, (HEADER, FIELDS))
    waiting = [] if place is None else [_tables(data, place)]
    while waiting:
        table = next(waiting[-1], None)
        if table is None:
            waiting.pop()
            continue
        if (n := n + 1) > most:
            break
        if (place := _field(data, table, CHILDREN)) is not None:
            waiting.append(_tables(data, place))
    return n


def decoded_bytes(batch: Any) -> int:
    """Return how many bytes the values of a validated batch are, each written out: a code or a view may be of many."""
    return sum(map(_decoded_bytes, batch.columns))


def _decoded_bytes(column: Any) -> int:
    kind, types = column.type, pa.types
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_decoded_bytes, column.chunks))
    if types.is_dictionary(kind):
        lengths = _lengths(column.dictionary)
        if lengths is None:
            return CODE_BYTES * len(column)
        codes = column.indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.bincount(codes, minlength=len(lengths))
        return int(counts @ lengths) + 8 * len(column)
    if types.is_run_end_encoded(kind):
        first, n = column.find_physical_offset(), column.find_physical_length()
        ends = column.run_ends.slice(first, n).to_numpy().astype(np.int64) - column.offset
        runs = np.diff(np.minimum(ends, len(column)), prepend=0)
        lengths = _lengths(column.values.slice(first, n))
        return 8 * len(column) + (0 if lengths is None else int(runs @ lengths))
    if types.is_struct(kind) or types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
        inner = column.flatten()
        return 8 * len(column) + sum(map(_decoded_bytes, inner if types.is_struct(kind) else [inner]))
    lengths = _lengths(column)
    return 8 * len(column) if lengths is None else int(lengths.sum()) + 8 * len(column)


def _lengths(texts: Any) -> NDArray[np.int64] | None:
    """Return how many bytes each text has; None if these are no texts."""
    kind, types = texts.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):  # views of 16 bytes, which begin with the length
        views = np.frombuffer(texts.buffers()[1] or b"", np.int32).reshape(-1, 4)
        known = texts.is_valid().to_numpy(zero_copy_only=False)  # where nothing is, any length may stand
        told: NDArray[np.int64] = views[texts.offset : texts.offset + len(texts), 0].astype(np.int64) * known
        return told
    if any(test(kind) for test in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)):
        lengths: NDArray[np.int64] = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
        return lengths.astype(np.int64)
    return None


def _batch_fields(message: Any) -> tuple[int, ...] | None:
    """Return the fields that lead to the record batch of a message; None if it has none."""
    return {"record batch": (HEADER,), "dictionary": (HEADER, BATCH_OF_DICTIONARY)}.get(message.type)


def _place(data: bytes, fields: Sequence[int]) -> int | None:
    """Return where the last of these fields lies, each of a table that the one before leads to; None without it."""
    place: int | None = 0
    for field in fields:
        assert place is not None
        place = _field(data, place + struct.unpack_from("<I", data, place)[0], field)
        if place is None:
            return None
    return place


def _field(data: bytes, table: int, field: int) -> int | None:
    """Return where a field of a table lies; None if it has none."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    is_told = 4 + 2 * field + 2 <= struct.unpack_from("<H", data, vtable)[0]
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * field)[0] if is_told else 0
    return table + offset if offset else None


def _tables(data: bytes, place: int) -> Iterator[int]:
    """Yield where the tables of a vector lie."""
    start = place + struct.unpack_from("<I", data, place)[0]
    for k in range(struct.unpack_from("<I", data, start)[0]):
        at = start + 4 + 4 * k
        yield at + struct.unpack_from("<I", data, at)[0]


def _structs(data: bytes, place: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of each buffer in a vector."""
    start = place + struct.unpack_from("<I", data, place)[0]
    n = struct.unpack_from("<I", data, start)[0]
    for k in range(n):
        offset, length = struct.unpack_from("<qq", data, start + 4 + 16 * k)
        yield offset, length
