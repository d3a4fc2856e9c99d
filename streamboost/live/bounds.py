"""How large a model may grow: each column and each class it comes to know stays with it for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Bounds(NamedTuple):
    """How many columns and classes a model may know; None for any number.

    Only growth is refused: a model that knows more already goes on learning what it knows.

    Examples
    --------
    >>> Bounds(columns=2, classes=None).why_not_columns({"a", "b"}, ["b", "c"])
    "the model would have 3 columns with 'c', expected at most 2. Leave columns out whose names are data."
    >>> Bounds(columns=2, classes=None).why_not_columns({"a", "b", "c"}, ["b", "c"])
    """

    columns: int | None
    classes: int | None

    def why_not_columns(self, known: set[str], names: Iterable[str]) -> str | None:
        """Why a model that knows some columns must not learn rows of others; None if it may."""
        if self.columns is None:
            return None
        new = [name for name in names if name not in known]
        n = len(known) + len(new)
        if not new or n <= self.columns:
            return None
        return (
            f"the model would have {n:,} columns with {new[-1]!r}, expected at most {self.columns:,}. Leave columns "
            "out whose names are data."
        )

    def why_not_classes(self, known: set[Any], labels: Iterable[Any]) -> str | None:
        """Why a model that knows some classes must not learn others; None if it may."""
        if self.classes is None:
            return None
        new = [label for label in dict.fromkeys(labels) if label not in known]
        n = len(known) + len(new)
        if not new or n <= self.classes:
            return None
        return (
            f"the model would have {n:,} classes with {new[-1]!r}, expected at most {self.classes:,}. Send targets "
            "that are classes, or learn numbers with a regressor."
        )

    def groups(self, known: set[str], schemas: Sequence[Any]) -> Iterator[list[int]]:
        """Places of rows that may stand in one table: one that is not much wider than the model may be.

        Without this, rows that have no column in common would make a table as wide as all of them together.
        """
        if self.columns is None or all(schema == schemas[0] for schema in schemas):
            yield list(range(len(schemas)))
            return
        room = self.columns - len(known)
        group: list[int] = []
        new: set[str] = set()
        for place, schema in enumerate(schemas):
            names = {name for name in schema.names if name not in known}
            if group and names and len(new | names) > room:
                yield group
                group, new = [], set()
            group.append(place)
            new |= names
        yield group


def known_columns(model: Any) -> set[str]:
    """The names of the columns that a model knows; for any thread."""
    encoder = getattr(model, "encoder_", None)
    if encoder is None:
        return set()
    names = encoder.names
    return set(map(str, range(encoder.n_features) if names is None else names))


def known_classes(model: Any) -> set[Any]:
    """The classes that a model knows; none, if it predicts numbers."""
    labels = getattr(model, "labels_", None)
    return set() if labels is None else set(labels.numbers)
