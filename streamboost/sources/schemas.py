"""The columns of a source: their types are found once, and then hold for all rows and files to come."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from streamboost.errors import did_you_mean, refused
from streamboost.features.reading import Kind
from streamboost.features.reading import is_text as is_text_type


def checked_types(types: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return types by column as ``pyarrow.DataType``; names such as ``"float64"`` and ``"string"`` will do."""
    checked = {}
    for name, kind in (types or {}).items():
        with suppress(ValueError):
            checked[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        if not isinstance(checked.get(name), pa.DataType):
            way_out = "Use 'float64', 'int64', 'string', 'bool' or 'timestamp[ns]', for example."
            raise refused(f"types[{name!r}]", kind, f"a pyarrow type or its name. {way_out}")
    return checked


def with_kinds(schema: Any, kinds: Mapping[str, Kind], *, is_text: bool) -> Any:
    """Return a schema in which columns are of the kinds that a model knows, wherever that can be said of them.

    Out of text (``is_text``) anything can be read as it stands; of values that have a type, numbers are their text.
    """
    types = pa.types
    numbers = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)

    def agreed(name: str, kind: Any) -> Any:
        known = kinds.get(name)
        if known == "category" and not is_text_type(kind) and (is_text or any(test(kind) for test in numbers)):
            return pa.string()
        if is_text and is_text_type(kind) and known in ("number", "date"):
            return pa.float64() if known == "number" else pa.timestamp("ns", "UTC")
        return kind

    return pa.schema([(field.name, agreed(field.name, field.type)) for field in schema])


def plain_schema(schema: Any, types: Mapping[str, Any], file: str) -> Any:
    """Return names and types alone, the latter replaced by those of ``types``."""
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{file} has two columns named {twice!r}, expected distinct names. Rename one of them.")
    unknown = [name for name in types if name not in names]
    if unknown:
        meant = did_you_mean(unknown[0], names)
        raise ValueError(f"types names column {unknown[0]!r}, but {file} has only {brief_names(names)}.{meant}")
    return pa.schema([(field.name, types.get(field.name, field.type)) for field in schema])


def check_same(expected: Any, found: Any, file: str) -> None:
    """Refuse a file whose columns are not those of the files before it; their order does not matter."""
    check_same_names(expected.names, found.names, file)
    for field in expected:
        kind = found.field(field.name).type
        if kind != field.type:
            found = f"{file}: column {field.name!r} is {kind}, but it was {field.type} in the rows before"
            way_out = f"pass {type_advice(field.name, 'float64')} or another that fits."
            raise ValueError(f"{found}. To read both as one type, {way_out}")


def check_same_names(expected: list[str], found: list[str], file: str) -> None:
    """Refuse a file that lacks a column or has another one."""
    lacks = [name for name in expected if name not in found]
    has = [name for name in found if name not in expected]
    if lacks or has:
        parts = [f"lacks {brief_names(lacks)}"] * bool(lacks) + [f"has {brief_names(has)} besides"] * bool(has)
        way_out = "Read files of different columns one after another, as sources of their own."
        raise ValueError(f"{file} {' and '.join(parts)}, expected the columns of the rows before. {way_out}")


def brief_names(names: list[str]) -> str:
    """Return a few names, and how many more there are."""
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def type_advice(name: str, kind: str) -> str:
    """Return how to pin a column's type: types={'price': 'float64'} (--type price=float64)."""
    return f"types={{{name!r}: {kind!r}}} (--type {shlex.quote(f'{name}={kind}')})"


def to_text(schema: Any) -> str:
    """Return a schema as text, for a position."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def from_text(text: str) -> Any:
    """Read a schema that :func:`to_text` wrote."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, binascii.Error, OSError, TypeError) as error:
        raise ValueError("the schema in this position is damaged. Resume from another snapshot.") from error
