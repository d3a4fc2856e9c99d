"""CSV and JSON lines: split bytes into rows, infer the types, and read rows of known types. No files here."""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from streamboost._types import IntArray
from streamboost.features.dates import ticks_of_texts
from streamboost.features.reading import Kind
from streamboost.kernels.records import NEWLINE, quoted_ends
from streamboost.sources.dialects import UTF_8, Dialect, is_bytewise, sniff_delimiter, sniff_encoding
from streamboost.sources.inference import NUMBER, is_nearly_numbers, with_dates
from streamboost.sources.schemas import check_same_names, plain_schema, type_advice, with_kinds

# A column that is whole so far may have a fraction later on, and one that is empty numbers.
WIDER = {pa.null(): pa.float64(), pa.int64(): pa.float64()}
UNREADABLE = (pa.ArrowException, UnicodeDecodeError)
ENCODINGS = "Say which encoding it is in, such as encoding='latin-1' (--encoding latin-1), or convert it to UTF-8"
LINE_ENDS = (
    "Lines have to end in a line feed, alone or after a carriage return; a carriage return alone ends none. "
    "Convert the file: tr '\\r' '\\n' < old > new."
)
MOST_COLUMNS = 50_000  # of a row; Arrow aborts the process where there is no memory for more
DEEPEST = 100  # levels of a JSON value; Arrow's parser calls itself for each
QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"?')
TOO_MUCH = "the row"


class TextFormat(ABC):
    """One row a line; ``schema`` is None until :meth:`infer_types`."""

    has_header = False
    may_be_legacy = False  # encoded as before UTF-8, though nobody says so

    def __init__(
        self,
        types: Mapping[str, Any],
        schema: Any = None,
        dialect: Dialect = Dialect(),  # noqa: B008
        *,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        self.types = types
        self.schema = schema
        self.dialect = dialect
        self.kinds = kinds or {}
        self.row_encoding = UTF_8  # in which rows come here: that of the file, if its bytes tell rows apart

    def settle(self, data: bytes, file: str) -> None:
        """Tell the dialect of a file by its first bytes, where it is not known."""
        encoding = self.dialect.encoding or sniff_encoding(data, file, may_be_legacy=self.may_be_legacy)
        self.dialect = self.dialect._replace(encoding=encoding)
        self.row_encoding = encoding if is_bytewise(encoding) else UTF_8

    def to_utf8(self, data: bytes) -> bytes:
        """Return rows in UTF-8, which they may be anyway."""
        return data if self.row_encoding == UTF_8 else data.decode(self.row_encoding).encode()

    def to_text(self, data: bytes) -> str:
        """Return a row as text from which its bytes can be had back."""
        try:
            return data.decode(self.row_encoding)
        except UnicodeDecodeError:
            return data.decode("utf-8", "surrogateescape")

    def ends(self, data: bytes) -> IntArray:
        """Return the position after each row of ``data``."""
        return np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE) + 1

    def read_header(self, header: bytes, file: str) -> None:
        """Read the first line of a file, if ``has_header``."""
        raise NotImplementedError

    def infer_types(self, data: bytes, file: str) -> None:
        """Fix the types by those of the first rows ``data`` that can be read."""
        try:
            found = self._infer_schema(self._readable_utf8(data))
        except UNREADABLE as error:
            or_types = ", or other types=... (--type)" if self.types else ""
            way_out = f"Pass format=... (--format) if the file is of another kind than its name says{or_types}."
            raise ValueError(f"{file}: none of the first rows can be read; they say: {error}. {way_out}") from error
        wider = pa.schema([(field.name, WIDER.get(field.type, field.type)) for field in found])
        self.schema = plain_schema(with_kinds(wider, self.kinds, is_text=True), self.types, file)

    def _readable_utf8(self, data: bytes) -> bytes:
        """Return first rows in UTF-8; what cannot be decoded makes a bad row later, and is left for that."""
        return data if self.row_encoding == UTF_8 else data.decode(self.row_encoding, "replace").encode()

    @abstractmethod
    def _infer_schema(self, data: bytes) -> Any:
        """Return the schema of the first rows, bad ones left out, or raise ``UNREADABLE``."""

    @abstractmethod
    def parse(self, data: bytes) -> Any:
        """Return rows as a table of ``schema``, or raise one of ``UNREADABLE``."""

    @abstractmethod
    def explain(self, error: Exception) -> str:
        """Return what Arrow's error about a single row means to a user."""


class CsvFormat(TextFormat):
    """Fields between delimiters, quoted where they hold one, or a line break; the first row holds the names."""

    may_be_legacy = True

    def __init__(
        self,
        types: Mapping[str, Any],
        schema: Any = None,
        dialect: Dialect = Dialect(),  # noqa: B008
        *,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        super().__init__(types, schema, dialect, kinds=kinds)
        self.has_header = dialect.names is None
        self.names = list(dialect.names or [])  # in this file's order

    def settle(self, data: bytes, file: str) -> None:
        """Tell the encoding and the delimiter of a file by its first bytes, where they are not known."""
        super().settle(data, file)
        if self.dialect.delimiter is None:
            delimiter = sniff_delimiter(data, self.row_encoding, self.dialect.names)
            self.dialect = self.dialect._replace(delimiter=delimiter)

    @property
    def delimiter(self) -> str:
        """Return what stands between values; a comma, as long as nothing tells."""
        return self.dialect.delimiter or ","

    def ends(self, data: bytes) -> IntArray:
        """Return the position after each row of ``data``; line breaks within quotes end none."""
        if b'"' not in data:
            return super().ends(data)
        ends: IntArray = quoted_ends(np.frombuffer(data, np.uint8), ord(self.delimiter))
        return ends

    def read_header(self, header: bytes, file: str) -> None:
        """Read the names of the columns, in the order of this file."""
        try:
            text = self.to_utf8(header).removeprefix(b"\xef\xbb\xbf").decode()
        except UnicodeDecodeError as error:
            told = f"does not start with names in {self.dialect.encoding_name}. {ENCODINGS}."
            raise ValueError(f"{file} {told}") from error
        try:
            self.names = next(csv.reader([text], delimiter=self.delimiter))
        except csv.Error as error:
            if "\r" in text.rstrip("\r\n"):
                raise ValueError(f"{file} has a carriage return within its first line. {LINE_ENDS}") from error
            found = f"{file}: the first line cannot be read as names ({error})"
            raise ValueError(f"{found}. Mend it, or pass names=[...] (--names).") from error
        if len(self.names) > MOST_COLUMNS:
            found = f"{file} names {len(self.names):,} columns in its first line, expected at most {MOST_COLUMNS:,}"
            raise ValueError(f"{found}. Is the delimiter another one? Pass delimiter=... (--delimiter).")
        if len(set(self.names)) < len(self.names):
            twice = next(name for i, name in enumerate(self.names) if name in self.names[:i])
            way_out = "Rename one of them; if there are no names in the first line, pass names=[...] (--names)."
            found = f"{file} names two columns {twice!r} in its first line"
            raise ValueError(f"{found}, expected distinct names. {way_out}")
        if self.schema is not None:
            check_same_names(self.schema.names, self.names, file)

    def _readable_utf8(self, data: bytes) -> bytes:
        """Return first rows in UTF-8; what is none is a slip in its column, not a sign that it holds bytes."""
        return data.decode(self.row_encoding, "replace").encode()

    def _infer_schema(self, data: bytes) -> Any:
        """Infer as Arrow does, but take text that is nearly all numbers or dates for these: the others are bad rows.

        Numbers have the decimal mark that makes numbers of more columns; of a CSV with commas between values, a point.
        """
        decimal = self.dialect.decimal
        found = self._schema_with(data, decimal or ".")
        if decimal is None and self.delimiter != ",":
            other = self._schema_with(data, ",")
            is_comma = _n_numeric(other) > _n_numeric(found)
            decimal, found = ("," if is_comma else "."), (other if is_comma else found)
        self.dialect = self.dialect._replace(decimal=decimal or ".")
        return found

    def _schema_with(self, data: bytes, decimal: str) -> Any:
        options = pa.csv.ConvertOptions(strings_can_be_null=True, decimal_point=decimal)
        table = self._read(data, options, on_bad="skip")
        if not table.num_rows:
            raise pa.ArrowInvalid(f"none has {len(self.names)} fields, as there are names")
        is_number = [pa.types.is_string(each.type) and is_nearly_numbers(each, decimal) for each in table.columns]
        fields = zip(with_dates(table), is_number, strict=True)
        return pa.schema([(field.name, pa.float64() if is_it else field.type) for field, is_it in fields])

    def parse(self, data: bytes) -> Any:
        """Return rows as a table of ``schema``."""
        data = self.to_utf8(data)
        try:
            return self._parse(data, self.schema)
        except pa.ArrowInvalid:
            if not any(pa.types.is_timestamp(kind) for kind in self.schema.types):
                raise
        # Arrow wants all dates of a column with a zone, or all without
        fields = [(name, pa.string() if pa.types.is_timestamp(kind) else kind) for name, kind in _pairs(self.schema)]
        table = self._parse(data, pa.schema(fields))
        columns = [self._dates(*pair) for pair in zip(table.columns, self.schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _dates(self, column: Any, field: Any) -> Any:
        if not pa.types.is_timestamp(field.type):
            return column
        try:
            return ticks_of_texts(column, field.type.unit).cast(field.type)
        except pa.ArrowInvalid as error:  # as Arrow's own reader says it
            where = f"In CSV column #{self.names.index(field.name)}: CSV conversion error to {field.type}"
            raise pa.ArrowInvalid(f"{where}: invalid value '{column[0]}'") from error

    def _parse(self, data: bytes, schema: Any) -> Any:
        options = pa.csv.ConvertOptions(
            column_types=schema,
            include_columns=schema.names,
            strings_can_be_null=True,
            decimal_point=self.dialect.decimal or ".",
        )
        return self._read(data, options, on_bad="error")

    def _read(self, data: bytes, options: Any, on_bad: Literal["skip", "error"]) -> Any:
        return pa.csv.read_csv(
            pa.BufferReader(data),
            read_options=pa.csv.ReadOptions(column_names=self.names, use_threads=False, block_size=len(data) + 1),
            parse_options=pa.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=lambda row: on_bad
            ),
            convert_options=options,
        )

    def explain(self, error: Exception) -> str:
        """Return what Arrow's error about a single row means to a user."""
        said = str(error)
        if isinstance(error, UnicodeDecodeError):
            return f"the row is not {self.dialect.encoding_name}. {ENCODINGS}, or pass on_bad='skip'."
        if found := re.search(r"Expected (\d+) columns, got (\d+)", said):
            way_out = "Mend the row (a value that holds the delimiter needs quotes), or pass on_bad='skip'."
            return f"the row has {found[2]} fields, expected {found[1]}. {way_out}"
        if found := re.search(r"column #(\d+): .*invalid value ('.*')", said, re.DOTALL):
            name = self.names[int(found[1])]
            told = f"column {name!r} holds {found[2]}, but it is {self.schema.field(name).type} in the first rows"
            text = f"or read the column as text from the start with {type_advice(name, 'string')}."
            return f"{told}. Mend the row, pass on_bad='skip', {text}"
        if found := re.search(r"column #(\d+): .*invalid UTF8", said):
            name = self.names[int(found[1])]
            return f"column {name!r} is not UTF-8. {ENCODINGS}, or pass on_bad='skip'."
        return f"{said}. Mend the row, or pass on_bad='skip'."


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _n_numeric(schema: Any) -> int:
    return sum(map(_is_number, schema.types))


def _pairs(schema: Any) -> list[tuple[str, Any]]:
    return list(zip(schema.names, schema.types, strict=True))


class JsonLinesFormat(TextFormat):
    """An object a line."""

    def _infer_schema(self, data: bytes) -> Any:
        try:
            return with_dates(self._first_table(data))
        except UNREADABLE:
            lines = self._readable(data.splitlines(keepends=True))
            return with_dates(self._first_table(b"".join(_agreeing(lines)) or data))

    def _first_table(self, data: bytes) -> Any:
        return self._read_pinned(data, pa.schema(list(self.types.items())), "infer")

    def _readable(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines that can be read; halve until those that cannot are alone."""
        try:
            self._first_table(b"".join(lines))
        except UNREADABLE:
            middle = len(lines) // 2
            return [*self._readable(lines[:middle]), *self._readable(lines[middle:])] if middle else []
        return lines

    def parse(self, data: bytes) -> Any:
        """Return rows as a table of ``schema``."""
        return self._read_pinned(self.to_utf8(data), self.schema, "error")

    def _read_pinned(self, data: bytes, schema: Any, unexpected: Literal["infer", "error"]) -> Any:
        """Read rows; numbers are text, and text numbers, where the user or a model has said so of a column."""
        try:
            return self._read(data, schema, unexpected)
        except pa.ArrowInvalid as error:
            found = re.search(r"Column\(/([^/]*?)\) changed from \w+ to (string|number|boolean)", str(error))
            pinned = {name: kind for name, kind in _pairs(schema) if name in self.types or name in self.kinds}
            if found is None or found[1] not in pinned:
                raise
            try:
                lines = [_as_pinned(line, pinned) for line in data.splitlines() if line.strip()]
            except ValueError:  # the row that is no JSON is bad, and found when it is alone
                raise error from None
        return self._read(b"\n".join(lines), schema, unexpected)

    def _read(self, data: bytes, schema: Any, unexpected: Literal["infer", "error"]) -> Any:
        if not data.isascii():
            data.decode()  # Arrow takes any bytes for text here
        _check_nesting(data)
        return pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )

    def explain(self, error: Exception) -> str:
        """Return what Arrow's error about a single row means to a user."""
        said = str(error)
        if isinstance(error, UnicodeDecodeError):
            return f"the row is not {self.dialect.encoding_name}. {ENCODINGS}, or pass on_bad='skip'."
        if "Column()" in said:
            way_out = "Write a list as one line for each of its objects, or pass on_bad='skip'."
            return f'the line is not an object such as {{"x": 1}}, and every line has to be one. {way_out}'
        if found := re.search(r"Column\(/([^/]*?)\) changed from .* to (\w+)", said):
            kind = self.schema.field(found[1]).type if found[1] in self.schema.names else "something else"
            told = f"column {found[1]!r} holds a {found[2]}, but it is {kind} in the first rows"
            text = f"or, if all its values are text, {type_advice(found[1], 'string')}."
            return f"{told}. Mend the row, pass on_bad='skip', {text}"
        if found := re.search(r"convert JSON to (timestamp.*), couldn't parse:(.*)", said, re.DOTALL):
            dates = [name for name, kind in _pairs(self.schema) if str(kind) == found[1]]
            told = f"column {' or '.join(map(repr, dates))} holds {found[2]!r}, but it is {found[1]} in the first rows"
            return f"{told}. Mend the row, or pass on_bad='skip'."
        if "unexpected field" in said:
            names = ", ".join(map(repr, self.schema.names[:5])) + (", ..." if len(self.schema) > 5 else "")
            way_out = f"Name it with its type, as in {type_advice('key', 'float64')}, or pass on_bad='skip'."
            return f"the row has a key besides {names} of the first rows. {way_out}"
        if said.startswith(TOO_MUCH):
            return f"{said}. Mend the row, or pass on_bad='skip'."
        reason = said.removeprefix("JSON parse error: ").replace(" in row 0", "").rstrip(".")
        return f"this is not JSON ({reason}). Mend the row, or pass on_bad='skip'."


def _check_nesting(data: bytes) -> None:
    """Refuse lines that Arrow's parser would follow until it runs out of stack, or of memory for columns."""
    n_lines = data.count(b"\n") + 1
    n_open = data.count(b"{") + data.count(b"[")
    if n_open - n_lines <= DEEPEST and data.count(b":") <= MOST_COLUMNS:
        return
    for line in data.split(b"\n"):
        if line.count(b"{") + line.count(b"[") > DEEPEST or line.count(b":") > MOST_COLUMNS:
            marks = np.frombuffer(QUOTED.sub(b"", line), np.uint8)
            opens, closes = ((marks == pair[0]) | (marks == pair[1]) for pair in (b"{[", b"}]"))
            deepest = int(np.cumsum(opens.astype(np.int64) - closes).max(initial=0))
            if deepest > DEEPEST:
                raise pa.ArrowInvalid(f"{TOO_MUCH} is nested {deepest:,} deep, expected at most {DEEPEST}")
            if (n := int((marks == ord(":")).sum())) > MOST_COLUMNS:
                raise pa.ArrowInvalid(f"{TOO_MUCH} has {n:,} keys, expected at most {MOST_COLUMNS:,}")


def _as_pinned(line: bytes, pinned: Mapping[str, Any]) -> bytes:
    """Return an object with numbers and truths as text, and text that is a number as that, where it should be."""
    values = json.loads(line)
    if not isinstance(values, dict):
        raise ValueError
    for name in pinned.keys() & values.keys():
        value, kind = values[name], pinned[name]
        if kind == pa.string() and isinstance(value, (bool, int, float)):
            values[name] = json.dumps(value)
        elif _is_number(kind) and isinstance(value, str) and re.match(NUMBER, value):
            with suppress(ValueError):  # a fraction, where whole numbers should be
                values[name] = int(value) if pa.types.is_integer(kind) else float(value)
    return json.dumps(values).encode()


def _agreeing(lines: list[bytes]) -> list[bytes]:
    """Return the objects among lines whose values are all of the type that their key had first."""
    kinds: dict[str, type] = {}
    good = []
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:  # several on one line, or none
            continue
        known = {key: type(value) for key, value in values.items() if value is not None}
        found = {key: float if kind is int else kind for key, kind in known.items()}
        if all(kinds.get(key, kind) is kind for key, kind in found.items()):
            kinds.update(found)
            good.append(line)
    return good
