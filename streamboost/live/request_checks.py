"""Check what requests bring, before anything is written down: tables, keys, labels, and how far a model may grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.features.encoder import Encoder
from streamboost.features.reading import is_text
from streamboost.live.journal import PackedRow

REFUSALS = (TypeError, ValueError, pa.ArrowException)  # what a model raises of rows it does not take
NUMBER, TEXT = pa.float64(), pa.string()


def as_table(table: Any) -> Any:
    """Return a table of distinct columns, or raise an error that says how to make one."""
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
    """Cast a table as a model reads it anyway: any number is float64, and categories are text."""
    schema = table.schema
    if schema.metadata is None and {NUMBER, TEXT}.issuperset(schema.types):
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


def split(table: Any) -> tuple[Any, NDArray[Any]]:
    """Split a table into columns and targets, the last column, as the model takes them now and in a replay."""
    width = table.num_columns - 1
    column = table.column(width).combine_chunks()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return table.remove_column(width), column.to_numpy(zero_copy_only=False)
    labels = np.empty(len(column), dtype=object)
    labels[:] = column.to_pylist()
    return table.remove_column(width), labels


def pack_rows(keys: Sequence[str], table: Any, time: float, first: Sequence[Any] | None = None) -> list[PackedRow]:
    """Return every row of a plain table by itself, as :meth:`streamboost.live.journal.Journal.put` takes them."""
    schema = _checked_schema(table.schema)
    [batch] = table.combine_chunks().to_batches()
    texts = [None if said is None else json.dumps(said) for said in first or [None] * len(keys)]
    return [
        PackedRow(key, time, schema, batch.slice(i, 1).serialize().to_pybytes(), text)
        for i, (key, text) in enumerate(zip(keys, texts, strict=True))
    ]


@lru_cache(maxsize=256)
def _checked_schema(schema: Any) -> bytes:
    """Return a schema as bytes, unless no model could learn such columns."""
    Encoder(new_columns="grow").encode(schema.empty_table())
    data: bytes = schema.serialize().to_pybytes()
    return data


def check_keys(keys: Sequence[str], name: str = "key") -> list[str]:
    """Return keys as a list; refuse what is no text, and a key that is there twice."""
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
    """Return labels as Python objects, one for each of n keys."""
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
    """Return labels as an Arrow array."""
    try:
        return pa.array(labels)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"targets do not fit into one column ({error}), expected all numbers, all texts or all booleans."
        ) from error


class Bounds(NamedTuple):
    """How many columns and classes a model may know, and how many columns times classes; None for any number.

    Only growth is refused: a model that knows more already goes on learning what it knows.
    """

    columns: int | None
    classes: int | None
    column_classes: int | None = None

    def why_not(self, columns: set[str], names: Sequence[str], classes: set[Any], labels: Sequence[Any]) -> str | None:
        """Return why a model that knows some columns and classes must not learn rows of others; None if it may."""
        reason = self.why_not_columns(columns, names)
        if reason is None and self.classes is not None:
            reason = self.why_not_classes(classes, labels)
        if reason is not None or self.column_classes is None:
            return reason
        if columns.issuperset(names) and classes.issuperset(labels):
            return None
        n_columns, n_classes = len(columns.union(names)), len(classes.union(labels))
        if n_columns * n_classes <= self.column_classes:
            return None
        told = f"the model would have {n_columns:,} columns and {n_classes:,} classes, {n_columns * n_classes:,} times"
        way_out = "Leave columns out, or join classes: what a row costs to be learned grows with both."
        return f"{told} in all, expected at most {self.column_classes:,}. {way_out}"

    def why_not_columns(self, known: set[str], names: Sequence[str]) -> str | None:
        """Return why a model that knows some columns must not learn rows of others; None if it may."""
        return _why_not("columns", self.columns, known, names, "Leave columns out whose names are data.")

    def why_not_classes(self, known: set[Any], labels: Sequence[Any]) -> str | None:
        """Return why a model that knows some classes must not learn others; None if it may."""
        way_out = "Send targets that are classes, or learn numbers with a regressor."
        return _why_not("classes", self.classes, known, labels, way_out)

    def groups(self, known: set[str], schemas: Sequence[Any]) -> Iterator[list[int]]:
        """Group row indices so that no group has more columns than the limit, even if rows have none in common."""
        if self.columns is None or all(schema == schemas[0] for schema in schemas):
            yield list(range(len(schemas)))
            return
        group: list[int] = []
        new: set[str] = set()
        for i, schema in enumerate(schemas):
            names = {name for name in schema.names if name not in known}
            if group and names and len(known) + len(new | names) > self.columns:
                yield group
                group, new = [], set()
            group.append(i)
            new |= names
        yield group


def _why_not(what: str, most: int | None, known: set[Any], coming: Sequence[Any], way_out: str) -> str | None:
    if most is None or known.issuperset(coming):
        return None
    new = [one for one in dict.fromkeys(coming) if one not in known]
    n = len(known) + len(new)
    if n <= most:
        return None
    return f"the model would have {n:,} {what} with {new[-1]!r}, expected at most {most:,}. {way_out}"


def known_columns(model: Any, after: Any = None) -> set[str]:
    """Return the names of the columns that a model knows, or will know after prepared rows; for any thread."""
    encoder = getattr(model, "encoder_", None) if after is None else after.encoder
    if encoder is None:
        return set()
    names = encoder.names
    return set(map(str, range(encoder.n_features) if names is None else names))


def known_classes(model: Any, after: Any = None) -> set[Any]:
    """Return the classes that a model knows, or will know after prepared rows; none, if it predicts numbers."""
    labels = getattr(model, "labels_", None) if after is None else after.targets.labels
    return set() if labels is None else set(labels.numbers)


def unlearnable_rows(model: Any, X: Any, after: Any = None) -> dict[int, str]:
    """Return the rows that a model cannot learn whatever their labels are, and why."""
    if not X.num_rows:
        return {}
    try:
        model.check_rows(X, after=after)
    except REFUSALS as error:
        if X.num_rows == 1:
            return {0: str(error)}
        alone = ((i, unlearnable_rows(model, X.slice(i, 1), after)) for i in range(X.num_rows))
        return {i: found[0] for i, found in alone if found}
    return {}
