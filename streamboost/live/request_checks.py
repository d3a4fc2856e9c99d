"""What a model takes: how far it may grow, and what its own checks say before anything is written down."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from numpy.typing import NDArray

REFUSALS = (TypeError, ValueError, pa.ArrowException)  # what a model raises of rows it does not take


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
        way_out = "Leave columns out whose names are data."
        return _why_not("columns", self.columns, known, names, way_out)

    def why_not_classes(self, known: set[Any], labels: Iterable[Any]) -> str | None:
        """Why a model that knows some classes must not learn others; None if it may."""
        way_out = "Send targets that are classes, or learn numbers with a regressor."
        return _why_not("classes", self.classes, known, labels, way_out)

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


def _why_not(what: str, most: int | None, known: set[Any], coming: Iterable[Any], way_out: str) -> str | None:
    if most is None:
        return None
    new = [one for one in dict.fromkeys(coming) if one not in known]
    n = len(known) + len(new)
    if not new or n <= most:
        return None
    return f"the model would have {n:,} {what} with {new[-1]!r}, expected at most {most:,}. {way_out}"


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


# The checks of the model itself.


class Foreseen:
    """A model as its checks will see it once rows are learned that are about to be; the model itself is not changed.

    Parameters
    ----------
    model : SGBRegressor or SGBClassifier

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from streamboost import SGBRegressor
    >>> model = SGBRegressor(new_columns="grow")
    >>> _ = model.learn(pa.table({"a": [1.0]}), np.array([1.0]))
    >>> foreseen = Foreseen(model)
    >>> foreseen.expect(pa.table({"b": [1.0]}), np.array([1.0]))
    >>> strange_rows(foreseen.model, pa.table({"b": ["text"]}))
    {0: "column 'b' is 'text' in row 0, text, but it held numbers so far. Convert it before, or ..."}
    >>> strange_rows(model, pa.table({"b": ["text"]}))
    {}
    """

    def __init__(self, model: Any) -> None:
        self._given = self._model = model
        self._expected: list[tuple[Any, NDArray[Any]]] = []

    def expect(self, X: Any, y: NDArray[Any]) -> None:
        """Hear of rows that passed all checks."""
        self._expected.append((X, y))

    @property
    def model(self) -> Any:
        """For checks only: it knows the columns and classes of rows to come, and has learned nothing from them."""
        while self._expected:
            self._take_in(*self._expected.pop(0))
        return self._model

    def _take_in(self, X: Any, y: NDArray[Any]) -> None:
        if not hasattr(self._model, "committee_"):
            self._model = copy.deepcopy(self._model)
            self._model.learn(X, y)
            return
        prepared = self._model.prepare(X, y)
        if self._model is self._given:
            self._model = copy.copy(self._model)
        self._model.encoder_ = prepared.encoder
        if prepared.targets.labels is not None:
            self._model.labels_ = prepared.targets.labels


def check(model: Any, X: Any, y: NDArray[Any]) -> None:
    """Refuse what the model would refuse."""
    model.prepare(X, y)


def strange_rows(model: Any, X: Any) -> dict[int, str]:
    """The rows that a model cannot learn whatever their labels are, and why."""
    if not X.num_rows:
        return {}
    try:
        model.check_rows(X)
    except REFUSALS as error:
        if X.num_rows == 1:
            return {0: str(error)}
        alone = ((i, strange_rows(model, X.slice(i, 1))) for i in range(X.num_rows))
        return {i: found[0] for i, found in alone if found}
    return {}
