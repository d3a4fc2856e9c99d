"""Bodies of requests: read within limits, then rows, keys and targets out of JSON.

In flow bytes that anyone may have sent; out flow plain rows, or an Arrow table with one kind of value a column. What
cannot be taken is refused with a sentence that names the column and the row. The same for Arrow's own format is in
:mod:`streamboost.serving.arrow_bodies`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from streamboost.guards import brief
from streamboost.serving.refusals import Limits, Refused

JSON_TYPE = "application/json"
NUMBERS = frozenset({int, float, bool})
SCALARS = NUMBERS | {str, NoneType}
LARGEST_INT = 2**63
Row = dict[str, Any]


class Held:
    """How many bytes of bodies are in memory at the moment; to be used from the event loop's thread only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.n_bytes = 0

    def take(self, n: int) -> None:
        """Make room for more, or refuse."""
        if self.n_bytes + n > self.limit:
            raise Refused(503, "the server holds as many requests as it can at the moment. Try again later.", RETRY)
        self.n_bytes += n

    def give_back(self, n: int) -> None:
        """Say that they are gone."""
        self.n_bytes -= n


RETRY = {"Retry-After": "1"}
CLOSE = {"Connection": "close"}  # nobody waits for the rest of the body


async def read_body(request: Request, limits: Limits, held: Held) -> bytes:
    """The whole body; whoever calls gives its length back to ``held`` when it is done with it.

    What is too large is refused as soon as that is known: by its announced length, or while it is read.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "the body is compressed, which is not taken. Send it as it is.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.body_bytes:
        raise _too_large(limits)
    parts: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                if length + len(part) > limits.body_bytes:
                    raise _too_large(limits)
                held.take(len(part))
                length += len(part)
                parts.append(part)
    except BaseException as error:
        held.give_back(length)
        if isinstance(error, TimeoutError):
            raise Refused(
                408, f"the body did not come within {limits.body_seconds:g} seconds. Send it faster, or less.", CLOSE
            ) from None
        if isinstance(error, ClientDisconnect):
            raise Refused(400, "the connection was closed before the body had come.", CLOSE) from None
        raise
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the body is larger than {limits.body_bytes:,} bytes. Send fewer rows at a time.")


# JSON.


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object; names that come twice, NaN and Infinity are refused."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except Refused:
        raise
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8 at byte {error.start}. JSON is sent in UTF-8.") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f'the body is not JSON: {error}. Send an object such as {{"rows": [...]}}.') from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply, expected an object with a list of flat rows.") from None
    except ValueError:  # a whole number of thousands of digits
        raise Refused(400, "the body holds a whole number with too many digits. Send it as a decimal.") from None
    if not isinstance(value, dict):
        raise Refused(422, f'the body is {_kind(value)}, expected an object such as {{"rows": [...]}}.')
    return value


def _once(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Refused(400, f"the name {brief(twice)} comes twice in one object, expected each once.")
    return row


def _no_constant(text: str) -> None:
    raise Refused(400, f"the body holds {text}, which is not JSON. Send null for a missing value.")


def take_rows(body: Mapping[str, Any], limits: Limits) -> list[Row]:
    """The rows of a request, ``rows`` or a single ``row``: each a flat object."""
    if ("row" in body) == ("rows" in body):
        raise Refused(422, "expected either rows, a list of objects, or row, a single object.")
    rows = body["rows"] if "rows" in body else [body["row"]]
    if not isinstance(rows, list):
        raise Refused(422, f"rows is {_kind(rows)}, expected a list of objects.")
    check_count(len(rows), limits)
    for i, row in enumerate(rows):
        if type(row) is not dict:
            raise Refused(422, f"row {i} is {_kind(row)}, expected an object of columns and their values.")
        if not SCALARS.issuperset(map(type, row.values())):
            name = next(name for name, value in row.items() if type(value) not in SCALARS)
            raise Refused(
                422,
                f"column {brief(name)} is {_kind(row[name])} in row {i}, expected a number, text, true, false or "
                "null. Spread it over columns of these.",
            )
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
        raise Refused(
            413,
            f"{n_rows:,} rows with {n_columns:,} columns in all are {n_rows * n_columns:,} values, expected at most "
            f"{limits.cells:,}. Send fewer rows at a time.",
        )


def check_names(names: Iterable[str], limits: Limits) -> None:
    """Refuse too many columns, and names too long or unwritable."""
    names = list(names)
    if len(names) > limits.columns:
        raise Refused(422, f"there are {len(names):,} columns, expected at most {limits.columns:,}. Send fewer.")
    for name in names:
        check_text(name, "the name of a column", limits.name_length)


def check_text(value: Any, what: str, longest: int) -> str:
    """Refuse what is no text, empty, too long, or half a surrogate pair, which UTF-8 has no bytes for."""
    if type(value) is not str:
        raise Refused(422, f"{what} is {_kind(value)}, expected text.")
    if not 0 < len(value) <= longest:
        raise Refused(422, f"{what} has {len(value):,} letters, expected 1 to {longest}.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused(422, f"{what} is {brief(value)}, which is no whole text. Send valid Unicode.") from None
    return value


def take_parameter(request: Request, name: str, longest: int) -> str | None:
    """A text of the address, checked even where nobody needs it."""
    found = request.query_params.get(name)
    return None if found is None else check_text(found, name, longest)


def take_id(request: Request, body: Mapping[str, Any] | None, limits: Limits) -> str | None:
    """The request's id, from the body or the address."""
    found = [take_parameter(request, "id", limits.id_length)]
    if body is not None and "id" in body:
        found.append(check_text(body["id"], "id", limits.id_length))
    given = [id for id in found if id is not None]
    if len(set(given)) > 1:
        raise Refused(422, "the body and the address have different ids, expected one. Leave one out.")
    return given[0] if given else None


def check_members(body: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse members nobody looks at: most are slips."""
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        raise Refused(422, f"{brief(unknown)} is unknown here, expected some of: {', '.join(known)}.")


def take_keys(body: Mapping[str, Any], n: int, limits: Limits) -> list[str] | None:
    """The keys of the rows, if there are any."""
    if "keys" not in body:
        return None
    keys = body["keys"]
    if not isinstance(keys, list):
        raise Refused(422, f"keys is {_kind(keys)}, expected a list of texts.")
    return check_keys(keys, n, limits)


def check_keys(keys: list[Any], n: int, limits: Limits) -> list[str]:
    """Refuse keys that are not one a row, or one twice."""
    if len(keys) != n:
        raise Refused(422, f"there are {len(keys):,} keys and {n:,} rows, expected a key for every row.")
    checked = [check_text(key, f"key {i}", limits.key_length) for i, key in enumerate(keys)]
    if len(set(checked)) < n:
        raise Refused(422, "two rows have the same key, expected each key once in a request.")
    return checked


# Rows to columns.


class Labels(NamedTuple):
    """Keys and their targets, an Arrow array of one kind."""

    keys: list[str]
    targets: Any


def table_of(rows: Sequence[Row], limits: Limits) -> Any:
    """Rows as an Arrow table, columns in the order in which they first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    check_names(names, limits)
    if not names:
        raise Refused(422, "the rows are empty, expected at least one column.")
    check_cells(len(rows), len(names), limits)
    return pa.table({name: column_of([row.get(name) for row in rows], name) for name in names})


def learning_table(body: Mapping[str, Any], rows: list[Row], target: str, limits: Limits) -> Any:
    """Rows with their targets, which came in a column of the rows or beside them."""
    if "targets" in body:
        targets = body["targets"]
        if not isinstance(targets, list) or len(targets) != len(rows):
            said = f"{len(targets):,} targets" if isinstance(targets, list) else _kind(targets)
            raise Refused(422, f"targets is {said}, expected a list with one for each of the {len(rows):,} rows.")
        if any(target in row for row in rows):
            raise Refused(422, f"the rows have a column {target!r} and targets are given besides. Leave one out.")
        rows = [{**row, target: value} for row, value in zip(rows, targets, strict=True)]
    elif not any(target in row for row in rows):
        raise Refused(
            422, f"the rows have no column {target!r}, the target. Send it in the rows, or a list called targets."
        )
    return table_of(rows, limits)


def take_labels(body: Mapping[str, Any], target: str, limits: Limits) -> Labels:
    """Keys and targets of a request that brings labels."""
    labels = body.get("labels")
    if not isinstance(labels, list):
        raise Refused(422, f"labels is {_kind(labels)}, expected a list of objects with a key and a target.")
    check_count(len(labels), limits)
    for i, label in enumerate(labels):
        if type(label) is not dict or label.keys() != {"key", "target"}:
            raise Refused(422, f"label {i} is {brief(label)}, expected an object with a key and a target.")
    keys = check_keys([label["key"] for label in labels], len(labels), limits)
    return Labels(keys, column_of([label["target"] for label in labels], target))


def check_classes(values: Iterable[Any], name: str) -> None:
    """Refuse whole numbers as classes that no model could tell apart."""
    for i, value in enumerate(values):
        if type(value) is int and not -LARGEST_INT <= value < LARGEST_INT:
            raise Refused(
                422,
                f"the target {brief(name)} is {value} in row {i}, expected a class within the whole numbers of 64 "
                "bits with a sign. Send it as text.",
            )


def column_of(values: list[Any], name: str) -> Any:
    """Values of one kind as an Arrow array: numbers, truths, texts, or nothing at all."""
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {str}:
        for value in values:
            if value is not None and not value.isascii():
                _check_encodable(value, name)
        return pa.array(values, pa.string())
    if kinds == {float}:  # most columns
        return pa.array(values, pa.float64())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds <= NUMBERS:
        if kinds == {int} and all(value is None or -LARGEST_INT <= value < LARGEST_INT for value in values):
            return pa.array(values, pa.int64())
        return pa.array([None if value is None else _number(value) for value in values], pa.float64())
    raise _mixed(values, name)


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number too large for a float, as the rows of any source are read
        return math.inf if value > 0 else -math.inf


def _check_encodable(value: str, name: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused(422, f"column {brief(name)} is {brief(value)}, which is no whole text. Send Unicode.") from None


def _mixed(values: list[Any], name: str) -> Refused:
    strange = next((i for i, value in enumerate(values) if type(value) not in SCALARS), None)
    if strange is not None:
        kind = _kind(values[strange])
        return Refused(422, f"column {brief(name)} is {kind} in row {strange}, expected a number or text.")
    first = next(value for value in values if value is not None)
    row = next(
        i for i, value in enumerate(values) if value is not None and isinstance(value, str) != (type(first) is str)
    )
    return Refused(
        422,
        f"column {brief(name)} is {brief(values[row])} in row {row} and {brief(first)} before, expected numbers only "
        "or text only. Convert it, or give the new kind a new column name.",
    )


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", NoneType: "null or absent"}
    return kinds.get(type(value), "a number")
