"""What was said of a row when it was first asked about: kept as JSON with the row, and read again with its label."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from streamboost.answers import Answers, joined, no_answers
from streamboost.guards import Task
from streamboost.metric_base import Probabilities


def write_first(predictions: Any, n: int) -> list[Any]:
    """Predictions of n rows, each as JSON can say it; None where there is none."""
    if isinstance(predictions, Probabilities):
        classes = [one.item() if isinstance(one, np.generic) else one for one in predictions.classes]
        rows = np.asarray(predictions.values, dtype=float).tolist()
        said: list[Any] = [{"classes": classes, "probabilities": row} if any(row) else None for row in rows]
    else:
        said = predictions.tolist() if hasattr(predictions, "tolist") else list(predictions)
        said = [one.item() if isinstance(one, np.generic) else one for one in said]
    if len(said) != n or not all(isinstance(one, (bool, int, float, str, dict, type(None))) for one in said):
        raise ValueError(
            f"predictions are not {n} numbers or classes, expected one a row. Pass probabilities of classes as "
            "Probabilities(classes, values)."
        )
    return said


def read_first(said: Sequence[Any], task: Task) -> Answers:
    """Undo :func:`write_first`.

    Examples
    --------
    >>> read_first(write_first(np.array([2.5, 3.0]), 2), "regression")
    Answers(known=array([ True,  True]), values=array([2.5, 3. ]), probabilities=None)
    """
    parts = []
    for classes, run in groupby(said, key=_classes_of):
        rows = list(run)
        known, values = np.ones(len(rows), dtype=bool), np.empty(len(rows), float if task == "regression" else object)
        if rows[0] is None:
            parts.append(no_answers(len(rows)))
        elif classes is None:
            values[:] = rows
            parts.append(Answers(known, values))
        else:
            table = np.array([row["probabilities"] for row in rows])
            values[:] = [classes[i] for i in table.argmax(axis=1)]
            parts.append(Answers(known, values, Probabilities(list(classes), table)))
    return parts[0] if len(parts) == 1 else joined(parts)


def _classes_of(said: Any) -> Any:
    """What rows must share to be read together."""
    if isinstance(said, dict):
        return tuple(said["classes"])
    return False if said is None else None
