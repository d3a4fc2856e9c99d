"""Read bodies of requests within limits, and rows, keys and targets out of JSON.

What a body may hold is declared once, by :func:`declare`: the decoders and the OpenAPI document both come from there.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from itertools import chain, repeat
from operator import contains
from types import NoneType
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import ClientDisconnect, Request

from streamboost.features.reading import Kind
from streamboost.runs.guard import brief
from streamboost.serving.errors import RETRY, Limits, Refused

JSON_TYPE = "application/json"
NUMBERS = frozenset({int, float, bool})
LARGEST_INT = 2**63
CLOSE = {"Connection": "close"}  # nobody waits for the rest of the body
Row = dict[str, Any]
Value = int | float | str | bool | None


class InFlightBytes:
    """How many bytes of bodies are in memory at the moment; to be used from the event loop's thread only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.n_bytes = 0

    def take(self, n: int) -> None:
        """Make room for more, or refuse."""
        if self.n_bytes + n > self.limit:
            raise Refused(503, "the server holds as many requests as it can at the moment. Try again later.", RETRY)
        self.n_bytes += n

    @contextmanager
    def holding(self, n: int) -> Iterator[None]:
        """Hold what a body has become, or refuse."""
        self.take(n)
        try:
            yield
        finally:
            self.n_bytes -= n


@asynccontextmanager
async def read_body(request: Request, limits: Limits, in_flight: InFlightBytes) -> AsyncIterator[bytes]:
    """Read the whole body, which is in flight until it is done with; what is too large is refused as soon as known."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "the body is compressed, which is not taken. Send it as it is.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.body_bytes:
        raise _too_large(limits)
    parts, length = [], 0
    try:
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for part in request.stream():
                    if length + len(part) > limits.body_bytes:
                        raise _too_large(limits)
                    in_flight.take(len(part))
                    length += len(part)
                    parts.append(part)
        except TimeoutError:
            told = f"the body did not come within {limits.body_seconds:g} seconds. Send it faster, or less."
            raise Refused(408, told, CLOSE) from None
        except ClientDisconnect:
            raise Refused(400, "the connection was closed before the body had come.", CLOSE) from None
        yield b"".join(parts)
    finally:
        in_flight.n_bytes -= length


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the body is larger than {limits.body_bytes:,} bytes. Send fewer rows at a time.")


def declare(limits: Limits) -> dict[str, type[Struct]]:
    """Declare what bodies of requests may hold; ``extra_json_schema`` is refused elsewhere, in sentences of its own."""

    def text(longest: int, told: str) -> Any:
        return Annotated[str, Meta(min_length=1, max_length=longest, description=told)]

    def many(kind: Any, told: str, **more: Any) -> Any:
        extra = {"maxItems": limits.rows, **more}
        return Annotated[list[kind], Meta(min_length=1, description=told, extra_json_schema=extra)]

    def struct(name: str, *required: tuple[str, Any], **optional: Any) -> type[Struct]:
        members = [(member, kind | UnsetType, UNSET) for member, kind in optional.items()]
        return msgspec.defstruct(name, [*required, *members], forbid_unknown_fields=True)

    key, id = text(limits.key_length, "Of a row."), text(limits.id_length, "Of this request.")
    target = Annotated[Value, Meta(description="A number or a class; null is refused.")]
    names = {"propertyNames": {"minLength": 1, "maxLength": limits.name_length}, "maxProperties": limits.columns}
    told = "A flat row: columns and their values; null or absent is missing."
    row = Annotated[dict[str, Value], Meta(description=told, extra_json_schema=names)]
    rows, keys = many(row, "In their order."), many(key, "One a row.", uniqueItems=True)
    targets = many(target, "One a row, if not in the rows.")
    labels = many(struct("Label", ("key", key), ("target", target)), "Of rows that were predicted with a key.")
    return {
        "Rows": struct("Rows", rows=rows, row=row, keys=keys, id=id),
        "LabelledRows": struct("LabelledRows", rows=rows, row=row, targets=targets, id=id),
        "Labels": struct("Labels", ("labels", labels), id=id),
    }


@cache
def _decoders(limits: Limits) -> dict[str, msgspec.json.Decoder[Any]]:
    return {name: msgspec.json.Decoder(kind) for name, kind in declare(limits).items()}


def decode(body: bytes, name: str, limits: Limits) -> Any:
    """Decode a body of the declared name; absent members are ``UNSET``, of those that come twice the last counts."""
    _check_size(body, limits)
    try:
        try:
            return _decoders(limits)[name].decode(body)
        except msgspec.ValidationError as error:
            msgspec.json.decode(body, type=Raw)  # what is no JSON further on is refused as that
            fault, _, place = str(error).partition(" - at ")
            told = f"the body does not fit /openapi.json at {_with_column(place, body) or '`$`'}: {fault}."
            raise Refused(422, told) from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply, expected an object with a list of flat rows.") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        told = f'the body cannot be read: {error}. Send JSON such as {{"rows": [{{"x": 1.5, "y": null}}]}}.'
        raise Refused(400, told) from None


def _check_size(body: bytes, limits: Limits) -> None:
    """Refuse rows and values that are too many before they are made, each of which takes far more than its bytes."""
    if body.count(b"{") <= limits.rows + 1 and body.count(b",") <= limits.values:
        return
    letters = np.frombuffer(body.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
    is_text = np.logical_xor.accumulate(letters == ord('"'))
    n_objects, n_values = (int(np.count_nonzero((letters == ord(mark)) & ~is_text)) for mark in "{,")
    check_count(min(n_objects - 1, n_values + 1) or 1, limits)  # not those that are one in the other
    if n_values > limits.values:
        found = f"there are {n_values:,} values, expected at most {limits.values:,}"
        raise Refused(413, f"{found}. Send fewer rows at a time, or send them as Arrow.")


class _RawRows(Struct):
    rows: list[dict[str, Raw]] = []
    row: dict[str, Raw] = {}


def _with_column(place: str, body: bytes) -> str:
    """Name the column in a place such as ``$.rows[3][...]``, instead of the dots."""
    row, dots, _ = place.partition("[...]")
    if dots:
        with suppress(msgspec.ValidationError, IndexError):  # the fault was in rows that came twice
            found = msgspec.json.decode(body, type=_RawRows)
            number = re.search(r"\d+", row)
            for name, value in (found.rows[int(number[0])] if number else found.row).items():
                try:
                    msgspec.json.decode(value, type=Value)
                except msgspec.ValidationError:
                    return f"{row}[{brief(name)}]`"
    return place


def take_rows(parsed: Any, limits: Limits, kinds: Mapping[str, Kind] | None = None) -> list[Row]:
    """Return the rows of a request, ``rows`` or a single ``row``; numbers in columns of known text are their text."""
    if (parsed.row is UNSET) == (parsed.rows is UNSET):
        raise Refused(422, "expected either rows, a list of objects, or row, a single object.")
    rows: list[Row] = [parsed.row] if parsed.rows is UNSET else parsed.rows
    check_count(len(rows), limits)
    if texts := {name for name, kind in (kinds or {}).items() if kind == "category"}:
        for row in rows:
            row.update((name, json.dumps(row[name])) for name in texts & row.keys() if type(row[name]) in NUMBERS)
    return rows


def check_count(n: int, limits: Limits) -> None:
    """Refuse no rows, and too many."""
    if n == 0:
        raise Refused(422, "there is no row, expected at least one.")
    if n > limits.rows:
        raise Refused(413, f"there are {n:,} rows, expected at most {limits.rows:,}. Send them in several requests.")


def check_cells(n_rows: int, n_columns: int, limits: Limits) -> None:
    """Refuse too many values, whether they are there or missing."""
    if n_rows * n_columns > limits.cells:
        found = f"{n_rows:,} rows with {n_columns:,} columns in all are {n_rows * n_columns:,} values"
        raise Refused(413, f"{found}, expected at most {limits.cells:,}. Send fewer rows at a time.")


def check_names(names: Sequence[str], limits: Limits) -> None:
    """Refuse too many columns, and names that are empty or too long."""
    if len(names) > limits.columns:
        raise Refused(422, f"there are {len(names):,} columns, expected at most {limits.columns:,}. Send fewer.")
    if not all(names) or max(map(len, names), default=0) > limits.name_length:
        for name in names:
            check_text(name, "the name of a column", limits.name_length)


def check_text(value: Any, what: str, longest: int) -> str:
    """Refuse what is no text, empty or too long."""
    if type(value) is not str:
        raise Refused(422, f"{what} is {brief(value)}, expected text.")
    if not 0 < len(value) <= longest:
        raise Refused(422, f"{what} has {len(value):,} letters, expected 1 to {longest}.")
    return value


def take_parameter(request: Request, name: str, longest: int) -> str | None:
    """Return a text of the address, checked even where nobody needs it."""
    found = request.query_params.get(name) if request.scope["query_string"] else None
    return None if found is None else check_text(found, name, longest)


def take_id(request: Request, in_body: str | UnsetType, limits: Limits) -> str | None:
    """Return the request's id, from the body or the address."""
    found = take_parameter(request, "id", limits.id_length)
    if in_body is UNSET:
        return found
    if found not in (None, in_body):
        raise Refused(422, "the body and the address have different ids, expected one. Leave one out.")
    return in_body


def check_keys(keys: list[Any], n: int, limits: Limits) -> list[str]:
    """Refuse keys that are not one a row, or one twice, or no text."""
    if len(keys) != n:
        raise Refused(422, f"there are {len(keys):,} keys and {n:,} rows, expected a key for every row.")
    checked = [check_text(key, f"key {i}", limits.key_length) for i, key in enumerate(keys)]
    if len(set(checked)) < n:
        raise Refused(422, "two rows have the same key, expected each key once in a request.")
    return checked


def table_of(rows: Sequence[Row], limits: Limits) -> Any:
    """Turn rows into an Arrow table, columns in the order in which they first appear."""
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    check_names(names, limits)
    if not names:
        raise Refused(422, "the rows are empty, expected at least one column.")
    check_cells(len(rows), len(names), limits)
    columns = {name: list(map(dict.get, rows, repeat(name))) for name in names}
    if set(map(type, chain.from_iterable(columns.values()))) <= {float, NoneType}:  # no need to look at each column
        return pa.table(columns)
    return pa.table({name: column_of(values, name) for name, values in columns.items()})


def learning_table(parsed: Any, rows: list[Row], target: str, limits: Limits) -> Any:
    """Turn rows with their targets, which came in a column of the rows or beside them, into an Arrow table."""
    targets, is_in_rows = parsed.targets, any(map(contains, rows, repeat(target)))
    if targets is not UNSET:
        if len(targets) != len(rows):
            raise Refused(422, f"there are {len(targets):,} targets and {len(rows):,} rows, expected one for each row.")
        if is_in_rows:
            raise Refused(422, f"the rows have a column {target!r} and targets are given besides. Leave one out.")
        rows = [{**row, target: value} for row, value in zip(rows, targets, strict=True)]
    elif not is_in_rows:
        told = f"the rows have no column {target!r}, the target. Send it in the rows, or a list called targets."
        raise Refused(422, told)
    return table_of(rows, limits)


def column_of(values: list[Any], name: str) -> Any:
    """Turn values of one kind into an Arrow array: numbers, truths, texts, or nothing at all."""
    kinds = set(map(type, values)) - {NoneType}
    if kinds <= {float} or kinds == {bool} or kinds == {str}:
        return pa.array(values)
    if kinds == {int} and all(value is None or -LARGEST_INT <= value < LARGEST_INT for value in values):
        return pa.array(values, pa.int64())
    if kinds <= NUMBERS:
        return pa.array([None if value is None else _number(value) for value in values], pa.float64())
    first = next(value for value in values if value is not None)
    others = NUMBERS if type(first) is str else {str}
    row = next(i for i, value in enumerate(values) if type(value) in others)
    found = f"column {brief(name)} is {brief(values[row])} in row {row} and {brief(first)} before"
    way_out = "Convert it, or give the new kind a new column name."
    raise Refused(422, f"{found}, expected numbers only or text only. {way_out}")


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number too large for a float, as the rows of any source are read
        return math.inf if value > 0 else -math.inf
