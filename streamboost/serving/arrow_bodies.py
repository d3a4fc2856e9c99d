"""Read and write bodies in Arrow's stream format, without trusting a single byte of what comes in.

Arrow itself checks the frame of every message. What it does not check unasked is done here, before anything looks at
the values: whether buffers are compressed (a few bytes could claim to become gigabytes, so they are refused), how many
rows, columns and values there are, and whether offsets and codes stay inside their buffers.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from streamboost.live.journal import table_bytes
from streamboost.runs.guard import brief
from streamboost.serving.errors import Limits, Refused
from streamboost.serving.json_bodies import check_cells, check_count, check_keys, check_names

ARROW_TYPE = "application/vnd.apache.arrow.stream"
HEADER, COMPRESSION, DICTIONARY_DATA = 2, 3, 1  # fields of Arrow's tables in Message.fbs, by their place


def parse_table(body: bytes, limits: Limits) -> Any:
    """Read a table from an Arrow stream."""
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
    types = pa.types
    tests = (types.is_floating, types.is_integer, types.is_decimal, types.is_boolean, types.is_null,
             types.is_string, types.is_large_string, types.is_string_view)  # fmt: skip
    for field in schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        is_time = types.is_temporal(kind) and not types.is_interval(kind)
        if not is_time and not any(test(kind) for test in tests):
            raise Refused(
                422,
                f"column {brief(field.name)} is of type {brief(str(field.type))}, expected numbers, texts, truths or "
                "times. Spread it over columns of these.",
            )


def take_key_column(table: Any, name: str, limits: Limits) -> tuple[Any, list[str]]:
    """Split off the column of keys: the table without it, and the keys."""
    if name not in table.column_names:
        raise Refused(422, f"there is no column {brief(name)} of keys. Name the one that is with ?key=NAME.")
    keys = table[name].to_pylist()
    return table.drop_columns([name]), check_keys(keys, len(keys), limits)


def take_labels(table: Any, key: str, target: str, limits: Limits) -> tuple[list[str], Any]:
    """Return keys and targets, each a column."""
    rest, keys = take_key_column(table, key, limits)
    if rest.column_names != [target]:
        raise Refused(422, f"the columns are {brief(table.column_names)}, expected {key!r} and {target!r}.")
    return keys, rest[target].combine_chunks()


def largest_numbers(column: Any) -> list[Any]:
    """Return the values of a column if they may be whole numbers beyond 64 bits with a sign; else none."""
    kind = getattr(column.type, "value_type", column.type)
    return list(column.to_pylist()) if pa.types.is_uint64(kind) else []


def write_table(columns: dict[str, Any], metadata: dict[str, str]) -> bytes:
    """Write columns as an Arrow stream, with metadata in its schema."""
    return table_bytes(pa.table(columns).replace_schema_metadata(metadata))


# A look into Arrow's messages: FlatBuffers, whose form Arrow has verified when it opened the message.


def _refuse_compressed(body: bytes) -> None:
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in ("record batch", "dictionary"):
            continue
        metadata = bytes(message.metadata)
        batch = _follow(metadata, _follow(metadata, 0), HEADER)
        if message.type == "dictionary" and batch is not None:
            batch = _follow(metadata, batch, DICTIONARY_DATA)
        if batch is not None and _field_offset(metadata, batch, COMPRESSION) is not None:
            raise Refused(415, "the Arrow buffers are compressed, which is not taken. Write them uncompressed.")


def _follow(data: bytes, table: int | None, field: int | None = None) -> int | None:
    """Return where the table begins that a field of a table points at, or the root table."""
    offset = 0 if field is None else _field_offset(data, table or 0, field)
    return None if offset is None else offset + int(struct.unpack_from("<I", data, offset)[0])


def _field_offset(data: bytes, table: int, field: int) -> int | None:
    """Return where a field of a table is; None if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * field + 2 > struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * field)[0]
    return table + offset if offset else None
