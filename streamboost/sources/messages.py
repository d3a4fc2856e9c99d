"""Messages of a broker as rows: JSON objects, or fields of text, each column of the type that its first value had.

Every rule here looks at one message after another, never at how many came at once, so that the rows are the same
however the broker dealt them out: a key becomes a column when it first has a value, at the end, and a batch ends before
the row that brings a new column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from streamboost.features.dates import ticks_of_texts
from streamboost.features.reading import Kind
from streamboost.sources.base import BadRow, Piece, Position
from streamboost.sources.schemas import to_text, type_advice

Content: TypeAlias = bytes | Mapping[bytes, bytes] | None
Decoder: TypeAlias = Callable[[Any], dict[str, Any]]  # from a content to values by key
MOST_COLUMNS = 10_000  # beyond this the keys are data, not names
NAMES_IN_JSON = {str: "a string", float: "a number", int: "a number", bool: "a boolean", list: "an array"}
KINDS = {bool: pa.bool_(), int: pa.float64(), float: pa.float64(), str: pa.string()}
TRUTHS = {"true": True, "True": True, "false": False, "False": False}
SKIP = "or pass on_bad='skip'"
UNFIT = (ValueError, TypeError, OverflowError, KeyError, pa.ArrowException)  # how a value does not fit its column


class Unreadable(ValueError):
    """What is wrong with a message."""


class MessageBatch(NamedTuple):
    """Messages in the order in which they are to be learned."""

    contents: Sequence[Content]
    before: Callable[[int], dict[str, Any]]  # the position before message i, without the schema
    place: Callable[[int], str]  # of message i, for people

    def position(self, i: int, schema: str) -> Position:
        """Return the position before message i."""
        return {**self.before(i), "schema": schema}


class RowReader:
    """Makes rows of messages; ``schema``, from an earlier position or new, grows with the keys that they bring.

    Columns of ``types`` are there from the start; only keys of ``columns`` count, or all. ``is_text`` says that values
    come as text, so that their column alone says what they are. ``kinds`` is what a model knows of columns.

    Examples
    --------
    >>> reader = RowReader({})
    >>> messages = [b'{"x": 1}', b'{"x": 2, "city": "Oslo"}', b"[3]"]
    >>> batch = MessageBatch(messages, lambda i: {"offset": i}, lambda i: f"offset {i}")
    >>> for piece in reader.pieces(batch, print):
    ...     if piece is not None:
    ...         print(piece.table.to_pylist(), piece.after(1)["offset"])
    [{'x': 1.0}] 1
    offset 2: the message is an array, not an object such as {"x": 1}, which every message has to be. ...
    [{'x': 2.0, 'city': 'Oslo'}] 2
    """

    def __init__(
        self,
        types: Mapping[str, Any],
        columns: Sequence[str] | None = None,
        schema: Any = None,
        *,
        decode: Decoder | None = None,
        is_text: bool = False,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        self.types, self.is_text, self.kinds = types, is_text, kinds or {}
        self.decode: Decoder = decode or json_values
        self.columns = None if columns is None else frozenset(columns)
        self.schema = pa.schema(list(types.items())) if schema is None else schema
        self._converters: dict[str, Callable[[Any], Any]] = {}
        self._update_schema(())

    def pieces(self, batch: MessageBatch, bad: Callable[[BadRow], None]) -> Iterator[Piece | None]:
        """Yield tables of rows, and None where a new column begins; ``bad`` gets bad messages and may raise."""
        rows: list[dict[str, Any]] = []
        ends: list[int] = []  # messages up to and with each row
        for i, content in enumerate(batch.contents):
            if not content:  # as blank lines are in a file
                continue
            try:
                row, new = self._row(content)
            except Unreadable as error:
                position, text = batch.position(i, self._schema_text), _as_text(content)
                try:
                    bad(BadRow(batch.place(i), str(error), position=position, text=text))
                except BadRow:
                    if rows:  # those before it are good
                        yield self._piece(rows, batch, ends)
                    raise
                continue
            if new:
                if rows:
                    yield self._piece(rows, batch, ends)
                yield None
                rows, ends = [], []
                self._update_schema(new)
            rows.append(row)
            ends.append(i + 1)
        if rows:
            yield self._piece(rows, batch, ends)

    def _piece(self, rows: list[dict[str, Any]], batch: MessageBatch, ends: list[int]) -> Piece:
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.schema]
        schema = self._schema_text  # as it is now
        return Piece(pa.Table.from_arrays(arrays, schema=self.schema), lambda k: batch.position(ends[k - 1], schema))

    def _update_schema(self, new: Sequence[Any]) -> None:
        self.schema = pa.schema([*self.schema, *new])
        self._schema_text = to_text(self.schema)
        for field in self.schema:
            if field.name not in self._converters:
                self._converters[field.name] = self._converter(field.name, field.type)

    def _row(self, content: Content) -> tuple[dict[str, Any], list[Any]]:
        """Return values as their columns hold them, and the fields that are new."""
        row, new = {}, []
        for name, value in self.decode(content).items():
            if value is None or (self.columns is not None and name not in self.columns):
                continue
            converter = self._converters.get(name)
            if converter is None:
                kind = self.types.get(name) or self._known_type(name, value) or _kind_of(name, value, self.is_text)
                converter = self._converter(name, kind)
                new.append(pa.field(name, kind))
            try:
                row[name] = converter(value)
            except UNFIT:
                raise Unreadable(self._misfit(name, value)) from None
        if not row:
            raise Unreadable(f"the message has no value for any column. Mend it, {SKIP}.")
        if len(self.schema) + len(new) > MOST_COLUMNS:
            found = f"the key {new[0].name!r} would be column {len(self.schema) + 1:,}"
            way_out = f"Name those that count with columns=[...], {SKIP}."
            raise Unreadable(f"{found}, and {MOST_COLUMNS:,} are the most. {way_out}")
        return row, new

    def _known_type(self, name: str, value: Any) -> Any:
        """Return the type of a column that a model knows; dates may be written or seconds, and are told apart there."""
        is_truth = value in TRUTHS if self.is_text else type(value) is bool  # which are numbers to a model, too
        if self.kinds.get(name) == "number" and not is_truth:
            return pa.float64()
        return pa.string() if self.kinds.get(name) == "category" else None

    def _converter(self, name: str, kind: Any) -> Callable[[Any], Any]:
        """Return the function that makes a value fit a column, or raises an error."""
        if not self.is_text and kind == pa.string() and (name in self.types or self.kinds.get(name) == "category"):
            return _any_as_text
        return (CONVERTERS_OF_TEXT if self.is_text else CONVERTERS).get(kind) or partial(_cast, kind)

    def _misfit(self, name: str, value: Any) -> str:
        found = repr(value) if self.is_text else NAMES_IN_JSON.get(type(value), "an object")
        if name not in self.schema.names:
            expected = f"{self.types[name]} as types says" if name in self.types else "what the model knows it to hold"
            return f"column {name!r} holds {found}, expected {expected}. Mend it, {SKIP}."
        text = f"or read the column as text from the start with {type_advice(name, 'string')}."
        found = f"column {name!r} holds {found}, but it is {self.schema.field(name).type} in the first rows"
        return f"{found}. Mend the message, pass on_bad='skip', {text}"


# From bytes to values


def json_values(content: bytes) -> dict[str, Any]:
    """Read the values of a JSON object by key."""
    try:
        text = content.decode()
        values = json.loads(text)
    except UnicodeDecodeError:
        raise Unreadable(f"the message is not UTF-8. Write it as UTF-8, {SKIP}.") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"this is not JSON ({error}). Mend the message, {SKIP}.") from None
    if type(values) is not dict:
        found = NAMES_IN_JSON.get(type(values), "null")
        told = f"which every message has to be. Write a list as one message for each of its objects, {SKIP}."
        raise Unreadable(f'the message is {found}, not an object such as {{"x": 1}}, {told}')
    if "\\u" in text:
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Unreadable(f"the message holds half a character, which no text can. Mend it, {SKIP}.") from None
    return values


def json_field_values(name: str, content: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Read the values of the JSON object in one of the fields."""
    try:
        return json_values(content[name.encode()])
    except KeyError:
        found = ", ".join(repr(key.decode(errors="replace")) for key in list(content)[:5])
        way_out = f"Write the JSON there, pass another field=..., {SKIP}."
        raise Unreadable(f"the entry has no field {name!r}, but {found}. {way_out}") from None


def field_values(content: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Read fields and their text; what is empty is missing."""
    try:
        return {name.decode(): value.decode() or None for name, value in content.items()}
    except UnicodeDecodeError:
        raise Unreadable(f"the entry is not UTF-8. Write it as UTF-8, {SKIP}.") from None


def _as_text(content: Content) -> str:
    if isinstance(content, Mapping):
        fields = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in content.items()}
        return json.dumps(fields, ensure_ascii=False)
    return (content or b"").decode(errors="replace")


# From values to columns


def _kind_of(name: str, value: Any, is_text: bool) -> Any:
    """Return the type of a column that begins with this value."""
    if is_text:
        for kind in (pa.float64(), pa.bool_()):
            try:
                CONVERTERS_OF_TEXT[kind](value)
            except UNFIT:
                continue
            return kind
        return pa.string()
    if type(value) in KINDS:
        return KINDS[type(value)]
    found = f"key {name!r} holds {NAMES_IN_JSON.get(type(value), 'an object')}"
    way_out = f"Write its parts as keys of their own, leave it out with columns=[...], {SKIP}."
    raise Unreadable(f"{found}, expected a number, a text, true or false. {way_out}")


def _only(*kinds: type) -> Callable[[Any], Any]:
    """Return a function that takes values of these types, and makes the first of them."""

    def convert(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError
        return kinds[0](value)

    return convert


def _any_as_text(value: Any) -> str:
    if isinstance(value, (list, dict)):
        raise TypeError
    return value if type(value) is str else json.dumps(value)


def _number_of_text(value: str) -> float:
    if "_" in value:  # Python alone takes 1_000 for a number
        raise ValueError
    return float(value)


def _cast(kind: Any, value: Any) -> Any:
    if isinstance(value, (list, dict)) or (isinstance(value, bool) and kind != pa.bool_()):
        raise TypeError
    if pa.types.is_timestamp(kind) and isinstance(value, str):  # with a zone or without
        return ticks_of_texts(pa.array([value]), kind.unit)[0].cast(kind)
    return pa.scalar(value).cast(kind)


CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    pa.float64(): _only(float, int),
    pa.bool_(): _only(bool),
    pa.string(): _only(str),
}
CONVERTERS_OF_TEXT: dict[Any, Callable[[str], Any]] = {
    pa.float64(): _number_of_text,
    pa.bool_(): TRUTHS.__getitem__,
    pa.string(): str,
}
