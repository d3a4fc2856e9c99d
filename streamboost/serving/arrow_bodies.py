"""Bodies in Arrow's stream format: read without trusting a single byte of them, and written.

Arrow itself checks the frame of every message. What it does not check unasked is done here, before anything looks at
the values: whether buffers are compressed (a few bytes could claim to become gigabytes, so they are refused), how many
rows and columns there are, how many values that makes, and whether offsets and codes stay inside their buffers.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from streamboost.runs.guard import brief
from streamboost.serving.errors import Limits, Refused
from streamboost.serving.json_bodies import check_cells, check_count, check_keys, check_names

ARROW_TYPE = "application/vnd.apache.arrow.stream"
# Fields of Arrow's tables in Message.fbs, by their place.
HEADER, COMPRESSION, DICTIONARY_DATA = 2, 3, 1


def parse_table(body: bytes, limits: Limits) -> Any:
    """A table out of an Arrow stream."""
    try:
        _refuse_compressed(body)
        with pa.ipc.open_stream(body) as reader:
            check_names(reader.schema.names, limits)
            _check_schema(reader.schema)
            batches, n_rows = [], 0
            for batch in reader:
                n_rows += batch.num_rows
                if n_rows > limits.rows:
                    check_count(n_rows, limits)
                check_cells(n_rows, len(reader.schema), limits)  # columns of nothing are many values in few bytes
                batch.validate(full=True)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, EOFError, UnicodeError, OverflowError, struct.error) as error:
        raise Refused(
            400, f"the body is not an Arrow stream: {str(error)[:200]}. Write it with pyarrow.ipc.new_stream."
        ) from None
    check_count(n_rows, limits)
    return table


def _check_schema(schema: Any) -> None:
    if len(set(schema.names)) < len(schema.names):
        raise Refused(422, "two columns have the same name, expected each once.")
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        if not (is_time or is_text or is_number or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise Refused(
                422,
                f"column {brief(field.name)} is of type {brief(str(field.type))}, expected numbers, texts, truths or "
                "times. Spread it over columns of these.",
            )


def take_key_column(table: Any, name: str, limits: Limits) -> tuple[Any, list[str]]:
    """The table without the column of keys, and the keys."""
    if name not in table.column_names:
        raise Refused(422, f"there is no column {brief(name)} of keys. Name the one that is with ?key=NAME.")
    keys = table[name].to_pylist()
    return table.drop_columns([name]), check_keys(keys, len(keys), limits)


def take_labels(table: Any, key: str, target: str, limits: Limits) -> tuple[list[str], Any]:
    """Keys and targets, each a column."""
    rest, keys = take_key_column(table, key, limits)
    if rest.column_names != [target]:
        raise Refused(422, f"the columns are {brief(table.column_names)}, expected {key!r} and {target!r}.")
    return keys, rest[target].combine_chunks()


def largest_numbers(column: Any) -> list[Any]:
    """The values of a column, if they may be whole numbers too large for 64 bits with a sign; else none."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return list(column.to_pylist()) if pa.types.is_uint64(kind) else []


def write_table(columns: dict[str, Any], facts: dict[str, str]) -> bytes:
    """Columns as an Arrow stream, with facts in the schema's metadata."""
    table = pa.table(columns).replace_schema_metadata(facts)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# A look into Arrow's messages: FlatBuffers, whose form Arrow has verified when it opened the message.


def _refuse_compressed(body: bytes) -> None:
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in ("record batch", "dictionary"):
            continue
        metadata = bytes(message.metadata)
        batch = _follow(metadata, _follow(metadata, 0), HEADER)
        if message.type == "dictionary" and batch is not None:
            batch = _follow(metadata, batch, DICTIONARY_DATA)
        if batch is not None and _place(metadata, batch, COMPRESSION) is not None:
            raise Refused(415, "the Arrow buffers are compressed, which is not taken. Write them uncompressed.")


def _follow(data: bytes, table: int | None, field: int | None = None) -> int | None:
    """Where the table begins that a field of a table points at, or the root of all."""
    place = 0 if field is None else _place(data, table or 0, field)
    return None if place is None else place + int(struct.unpack_from("<I", data, place)[0])


def _place(data: bytes, table: int, field: int) -> int | None:
    """Where a field of a table is; None if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    if 4 + 2 * field + 2 > size:
        return None
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * field)[0]
    return table + offset if offset else None
