"""Class labels to class numbers, in the order they appear: new ones may come at any time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamboost.arrays import FloatArray


class Labels:
    """The classes known so far.

    Labels may be numbers, booleans or strings, but of one of these kinds only. Nothing here changes in place: to
    know more labels is to be another object, so that a refused chunk leaves everything as it was.

    Examples
    --------
    >>> labels = Labels()
    >>> codes, new = labels.encode(["up", "down", "up"])
    >>> codes.tolist(), new
    ([0.0, 1.0, 0.0], ['up', 'down'])
    >>> labels.extended(new).classes.tolist()
    ['up', 'down']
    """

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.kind: str | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def classes(self) -> Any:
        """The labels in the order of their numbers."""
        return np.array(list(self.numbers))

    def encode(self, y: Sequence[Any]) -> tuple[FloatArray, list[Any]]:
        """The number of each label, and the labels never seen before, in order of appearance."""
        new: dict[Any, int] = {}
        kind = self.kind
        codes = np.empty(len(y))
        for row, label in enumerate(y):
            plain = label.item() if isinstance(label, np.generic) else label
            here = kind_of(plain, row)
            if kind is None:
                kind = here
            elif here != kind:
                raise ValueError(
                    f"the label in row {row} is {plain!r}, a {here}, but labels so far were of kind {kind}. "
                    "Convert them all to one kind."
                )
            number = self.numbers.get(plain)
            if number is None:
                number = new.setdefault(plain, len(self.numbers) + len(new))
            codes[row] = number
        return codes, list(new)

    def extended(self, new: Iterable[Any]) -> Labels:
        """The same labels and new ones after them."""
        more = Labels()
        more.numbers = dict(self.numbers)
        for label in new:
            more.numbers[label] = len(more.numbers)
        more.kind = kind_of(next(iter(more.numbers)), 0) if more.numbers else None
        return more


def kind_of(label: Any, row: int) -> str:
    """Whether a label is a number, a boolean or a string; anything else is refused."""
    if isinstance(label, bool):
        return "boolean"
    if isinstance(label, str):
        return "string"
    if isinstance(label, int) or (isinstance(label, float) and label.is_integer()):
        return "number"
    raise ValueError(
        f"Unknown label type: the label in row {row} is {label!r}, expected a string, a boolean or a whole number. "
        "For real-valued targets use SGBRegressor."
    )
