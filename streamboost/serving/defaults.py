"""The label of rows that waited too long, said as text: what it is depends on what the other labels are."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from streamboost.labels import LabelKind
from streamboost.live import LiveModel

WHOLE = re.compile(r"([+-]?[0-9]+)(\.0*)?")


class ServedModel(LiveModel):
    """A live model whose default may be text, as a command line has it: it is read whenever it is needed.

    The model's classes decide: where they are texts it is text, where they are numbers a number, where they are
    booleans ``true`` or ``false``. Before any class is known it is whatever it looks like. In double quotes it is text
    in any case.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from streamboost import SGBClassifier
    >>> with ServedModel(tempfile.mkdtemp(), SGBClassifier(), target="sold", default="0") as live:
    ...     before = live.default
    ...     learned = live.learn(pa.table({"price": [1.0, 2.0], "sold": ["0", "1"]}))
    ...     before, live.default
    (0, '0')
    """

    @property
    def default(self) -> Any:
        """What rows are learned with that waited too long; None if they are dropped."""
        if not isinstance(self._said, str):
            return self._said
        if self.task == "regression":
            with contextlib.suppress(ValueError):
                return float(self._said)
            return self._said
        return read_default(self._said, self.label_kind)

    @default.setter
    def default(self, said: Any) -> None:
        self._said = said

    @property
    def label_kind(self) -> LabelKind | None:
        """Of what kind the model's classes are; None if it has none, or none yet."""
        labels = getattr(self.model, "labels_", None)
        return None if labels is None else labels.kind


def read_default(said: str, kind: LabelKind | None) -> Any:
    """A class out of text, if classes are of a kind; the text itself if it cannot be one of that kind.

    Examples
    --------
    >>> read_default("-1", "number"), read_default("-1", "string"), read_default("false", None)
    (-1, '-1', False)
    >>> read_default("no", None), read_default('"0"', None)
    ('no', '0')
    """
    if len(said) > 1 and said[0] == said[-1] == '"':
        with contextlib.suppress(ValueError):
            return json.loads(said)
    if kind in ("boolean", None) and said.lower() in ("true", "false"):
        return said.lower() == "true"
    if kind in ("number", None) and (found := WHOLE.fullmatch(said)):
        return int(found[1])
    return said
