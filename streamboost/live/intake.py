"""What requests bring: tables, keys and labels, checked and made plain before anything is written down."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from streamboost.features.encoder import Encoder
from streamboost.features.reading import is_text
from streamboost.live.journal import PackedRow

NUMBER, TEXT = pa.float64(), pa.string()


def as_table(table: Any) -> Any:
    """A table, or an error that says how to make one."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise TypeError(f"table is a {type(table).__name__}, expected a pyarrow.Table, as pyarrow.table makes one.")
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"table has two columns named {twice!r}, expected distinct names. Rename or drop one of them.")
    return table


def plain(table: Any) -> Any:
    """A table with columns that go together with those of other rows: any number is float64, and categories are text.

    This is how a model reads them anyway.

    Examples
    --------
    >>> plain(pa.table({"n": pa.array([1], "int8"), "c": pa.array(["a"]).dictionary_encode()})).schema.types
    [DataType(double), DataType(string)]
    """
    if table.schema.metadata is None and all(kind in (NUMBER, TEXT) for kind in table.schema.types):
        return table
    return pa.Table.from_arrays([_plain_column(column) for column in table.columns], names=table.column_names)


def _plain_column(column: Any) -> Any:
    kind, types = column.type, pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return column.cast(NUMBER, safe=False)
    if types.is_dictionary(kind) and not is_text(kind.value_type):
        texts = [None if value is None or value != value else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, TEXT)])
    if types.is_dictionary(kind) or is_text(kind):
        return column.cast(TEXT)
    return column


def pack_rows(keys: Sequence[str], table: Any, time: float, first: Sequence[Any] | None = None) -> list[PackedRow]:
    """Every row of a plain table by itself, as :meth:`streamboost.live.journal.Journal.put` takes them."""
    schema = _checked_schema(table.schema)
    [batch] = table.combine_chunks().to_batches()
    texts = [None if said is None else json.dumps(said) for said in first or [None] * len(keys)]
    return [
        PackedRow(key, time, schema, batch.slice(i, 1).serialize().to_pybytes(), text)
        for i, (key, text) in enumerate(zip(keys, texts, strict=True))
    ]


@lru_cache(maxsize=256)
def _checked_schema(schema: Any) -> bytes:
    """A schema as bytes, unless no model could learn such columns."""
    Encoder(new_columns="grow").encode(schema.empty_table())
    data: bytes = schema.serialize().to_pybytes()
    return data


def check_keys(keys: Sequence[str], name: str = "key") -> list[str]:
    """Keys as a list, each there once."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys is {keys!r}, expected a list of texts. For one row pass [{keys!r}].")
    keys = list(keys)
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"{name} {key!r} is a {type(key).__name__}, expected text. Convert it with str.")
        if any("\ud800" <= letter <= "\udfff" for letter in key):
            raise ValueError(f"{name} {key!r} holds half a character, expected text that UTF-8 can say.")
    if len(set(keys)) < len(keys):
        seen: set[str] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice!r} is there twice, expected each key once in a request. Send two requests.")
    return keys


def check_labels(targets: Any, n: int) -> list[Any]:
    """Labels as Python has them, one for each of n keys."""
    to_list = next((getattr(targets, name) for name in ("to_pylist", "tolist") if hasattr(targets, name)), None)
    labels = targets if to_list is None else to_list()
    if not isinstance(labels, Sequence) or isinstance(labels, (str, bytes)):
        raise TypeError(f"targets is {targets!r}, expected a list or an array. For one key pass [{targets!r}].")
    if len(labels) != n:
        raise ValueError(f"there are {n} keys and {len(labels)} targets, expected a target for each key.")
    labels = [label.item() if isinstance(label, np.generic) else label for label in labels]
    for label in labels:
        if label is not None and not isinstance(label, (bool, int, float, str)):
            raise TypeError(f"target {label!r} is a {type(label).__name__}, expected a number, text or a boolean.")
    label_column(labels)
    return labels


def label_column(labels: Sequence[Any]) -> Any:
    """Labels as a column."""
    try:
        return pa.array(labels)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"targets do not fit into one column ({error}), expected all numbers, all texts or all booleans."
        ) from error


def is_nothing(label: Any) -> bool:
    """Whether a label says nothing."""
    return label is None or (isinstance(label, float) and not math.isfinite(label))


def is_same(a: Any, b: Any) -> bool:
    """Whether two labels are the same; True is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
