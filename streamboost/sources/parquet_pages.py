"""What the pages of a Parquet file say they become, read before Arrow unpacks any: a few bytes may claim gigabytes.

A column of a row group is a run of pages, each behind a header in Thrift's compact protocol. Arrow holds one page of
each column, unpacked, and reads as many rows of it as it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

DICTIONARY_PAGE = 2
TYPE, UNPACKED, PACKED = 1, 2, 3  # fields of a page's header; of what kind, how long its data are
N_VALUES = {0: (5, 1), 2: (7, 1), 3: (8, 1)}  # by the kind of a page: where its header says how many values it has
DEEPEST = 16  # structs in one another
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12  # Thrift's types
TEXT = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


class ColumnPages(NamedTuple):
    """What reading a column of a row group takes, in bytes."""

    path: str
    packed: int
    unpacked: int  # what is held at once, at most
    shared: int  # what one value may be at most that many rows share; 0 if none can
    is_coded: bool  # whether these are values of a dictionary that can be read as one


def read_pages(file: memoryview, group: Any, schema: Any) -> list[ColumnPages]:
    """Return what reading each column of a row group takes."""
    return [_column_pages(file, group.column(c), schema.column(c)) for c in range(group.num_columns)]


def _column_pages(file: memoryview, column: Any, kind: Any) -> ColumnPages:
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    start, end, n_left = at, at + column.total_compressed_size, column.num_values
    is_delta = any(encoding.startswith("DELTA") for encoding in column.encodings)
    is_nested, is_text = kind.max_repetition_level > 0, column.physical_type in TEXT
    largest = n_values = shared = 0
    while at < end and n_left > 0:
        header, at = _struct(file, at)
        page, unpacked, packed = (_count(header, (field,)) for field in (TYPE, UNPACKED, PACKED))
        n = _count(header, N_VALUES.get(page, ()))
        if min(unpacked, packed, n) < 0 or at + packed > len(file):
            raise ValueError("a page reaches beyond the file")
        at += packed
        largest = max(largest, unpacked, 8 * n if is_delta else 0)  # of deltas Arrow unpacks all counts of a page
        if page == DICTIONARY_PAGE:
            shared = max(shared, unpacked)
        else:
            n_left, n_values = n_left - n, n_values + n
    if is_nested:  # a row may hold all of them
        largest += 8 * n_values
    is_coded = is_text and shared > 0 and column.physical_type == "BYTE_ARRAY"
    if "DELTA_BYTE_ARRAY" in column.encodings:  # each value may begin as the one before it
        shared, is_coded = largest, False
    return ColumnPages(column.path_in_schema, at - start, largest, shared if is_text else 0, is_coded)


def _count(header: Any, fields: Sequence[int]) -> int:
    """Return a number by the fields that lead to it; 0 if there is none."""
    for field in fields:
        header = header.get(field, {}) if isinstance(header, dict) else {}
    return header if isinstance(header, int) else 0


# Thrift's compact protocol


def _struct(data: memoryview, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by their numbers, and where it ends."""
    if depth > DEEPEST:
        raise ValueError("the header of a page is nested too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value, None if it is none that counts here, and where it ends."""
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in (4, 5, 6):
        return _zigzag(data, at)
    if kind in (BYTE, DOUBLE):
        return None, at + (1 if kind == BYTE else 8)
    if kind == BINARY:
        n, at = _varint(data, at)
        return None, at + n
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (LIST, SET, MAP):
        return None, _end_of_elements(data, at, kind, depth)
    raise ValueError("the header of a page holds what Thrift does not know")


def _end_of_elements(data: memoryview, at: int, kind: int, depth: int) -> int:
    """Return where a list, a set or a map ends."""
    if kind == MAP:
        n, at = _varint(data, at)
        kinds: tuple[int, ...] = (data[at] >> 4, data[at] & 15) if n else ()
        at += 1 if n else 0
    else:
        n, kinds = data[at] >> 4, (data[at] & 15,)
        at += 1
        if n == 15:
            n, at = _varint(data, at)
    for _ in range(n):
        if at > len(data):
            raise ValueError("the header of a page ends beyond the file")
        for part in kinds:
            _, at = (None, at + 1) if part in (TRUE, FALSE) else _value(data, at, part, depth + 1)
    return at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError("the header of a page holds a number that is too long")


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at
