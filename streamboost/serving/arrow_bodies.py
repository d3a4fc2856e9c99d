"""Read and write bodies in Arrow's stream format, without trusting a single byte of what comes in.

Arrow itself checks the frame of every message. Checked here is whether buffers are compressed (a few bytes could claim
to become gigabytes), how much there is of everything, and whether offsets and codes stay inside their buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamboost.features.reading import Kind
from streamboost.runs.guard import brief
from streamboost.serving.errors import Limits, Refused
from streamboost.serving.json_bodies import check_cells, check_count, check_keys, check_names
from streamboost.sources.arrow_messages import decoded_bytes, is_compressed, is_delta
from streamboost.sources.schemas import with_kinds

ARROW_TYPE = "application/vnd.apache.arrow.stream"


def parse_table(body: bytes, limits: Limits, kinds: Mapping[str, Kind] | None = None) -> Any:
    """Read a table from an Arrow stream; numbers in columns of known text are their text."""
    try:
        for message in pa.ipc.MessageReader.open_stream(body):
            if is_compressed(message):
                raise Refused(415, "the Arrow buffers are compressed, which is not taken. Write them uncompressed.")
            if is_delta(message):  # each is a copy of all
                raise Refused(415, "a dictionary comes in parts, which is not taken. Write it as a whole.")
        with pa.ipc.open_stream(body) as reader:
            check_names(reader.schema.names, limits)
            _check_schema(reader.schema)
            batches, n_rows, n_bytes = [], 0, 0
            for batch in reader:
                n_rows += batch.num_rows
                if n_rows > limits.rows:
                    check_count(n_rows, limits)
                check_cells(n_rows, len(reader.schema), limits)  # columns of nothing are many values in few bytes
                batch.validate(full=True)
                n_bytes += decoded_bytes(batch)
                if n_bytes > limits.decoded_bytes:
                    told = (
                        f"its values are {n_bytes:,} bytes when written out, expected at most {limits.decoded_bytes:,}"
                    )
                    raise Refused(413, f"{told}. Send fewer rows at a time, or shorter texts.")
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, EOFError, UnicodeError, OverflowError, struct.error) as error:
        told = f"the body is not an Arrow stream: {str(error)[:200]}. Write it with pyarrow.ipc.new_stream."
        raise Refused(400, told) from None
    check_count(n_rows, limits)
    agreed = with_kinds(table.schema, kinds or {}, is_text=False)
    return table if agreed.equals(table.schema) else table.cast(agreed)


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
            column = f"column {brief(field.name)} is of type {brief(str(field.type))}"
            told = "expected numbers, texts, truths or times. Spread it over columns of these."
            raise Refused(422, f"{column}, {told}")


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
