"""What a model said of rows before it learned them, and how one of streamboost's own is asked.

Other people's models are asked by :mod:`streamboost.evaluation.adapters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from streamboost._types import BoolArray, FloatArray
from streamboost.evaluation.metric_base import Probabilities


class Answers(NamedTuple):
    """What a model said of n rows; of rows it had no answer to, whatever stands there means nothing."""

    known: BoolArray  # (n,), whether there was an answer
    values: NDArray[Any]  # numbers (n,) or (n, m), or labels (n,)
    probabilities: Probabilities | None = None

    def rows(self, which: Any) -> Answers:
        """Those of some rows, given by a slice or a mask."""
        said = self.probabilities
        part = None if said is None else Probabilities(said.classes, said.values[which])
        return Answers(self.known[which], self.values[which], part)


def learn(model: Any, X: Any, y: NDArray[Any]) -> Answers:
    """Let an estimator of streamboost's learn rows; return what it said of each just before.

    Examples
    --------
    >>> from streamboost import SGBClassifier
    >>> learn(SGBClassifier(), [[1.0], [2.0]], np.array(["up", "up"])).known  # no class was known before the first row
    array([False,  True])
    """
    if hasattr(model, "predict_proba"):
        return of_probabilities(model.learn(X, y, method="predict_proba"), model.classes_.tolist())
    return of_values(model.learn(X, y))


def predict(model: Any, X: Any) -> Answers:
    """Ask an estimator of streamboost's for n rows; it has no answer before it has learned any."""
    try:
        if hasattr(model, "predict_proba"):
            return of_probabilities(model.predict_proba(X), model.classes_.tolist())
        return of_values(model.predict(X))
    except NotFittedError:
        return no_answers(len(X))


def of_values(values: Any) -> Answers:
    """Numbers, or labels where None is no answer."""
    read = np.asarray(values)
    return Answers(np.array([value is not None for value in read.tolist()], dtype=bool), read)


def of_probabilities(values: FloatArray, classes: Sequence[Any]) -> Answers:
    """The likeliest labels; a row of zeros is one before any class was known."""
    labels = np.empty(len(classes), dtype=object)
    labels[:] = classes
    return Answers(values.sum(axis=1) > 0, labels[values.argmax(axis=1)], Probabilities(classes, values))


def no_answers(n: int) -> Answers:
    """A model that does not know yet what to say."""
    return Answers(np.zeros(n, dtype=bool), np.full(n, None), None)


def joined(parts: Sequence[Answers]) -> Answers:
    """Answers one after the other."""
    known = np.concatenate([part.known for part in parts])
    if not known.any():
        return no_answers(len(known))
    said = np.concatenate([part.values[part.known] for part in parts if part.known.any()])
    values = np.zeros((len(known), *said.shape[1:]), dtype=said.dtype if said.dtype.kind == "f" else object)
    values[known] = said
    if not any(part.probabilities for part in parts):
        return Answers(known, values)
    classes = list(dict.fromkeys(label for part in parts if part.probabilities for label in part.probabilities.classes))
    table, start = np.zeros((len(known), len(classes))), 0
    for part in parts:
        stop = start + len(part.known)
        if part.probabilities is not None:
            columns = [classes.index(label) for label in part.probabilities.classes]
            table[start:stop, columns] = part.probabilities.values
        start = stop
    return Answers(known, values, Probabilities(classes, table))
