"""What a model predicted of rows before it learned them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from streamboost._types import BoolArray
from streamboost.evaluation.metric_base import Probabilities


class Predictions(NamedTuple):
    """Predictions of n rows; where ``known`` is False the model had none, and the values mean nothing."""

    known: BoolArray  # (n,)
    values: NDArray[Any]  # numbers (n,) or (n, m), or labels (n,)
    probabilities: Probabilities | None = None

    def rows(self, which: Any) -> Predictions:
        """Return those of some rows, given by a slice or a mask."""
        every = self.probabilities
        part = None if every is None else Probabilities(every.classes, every.values[which])
        return Predictions(self.known[which], self.values[which], part)


def predict_then_learn(model: Any, X: Any, y: NDArray[Any], probabilities: bool | None = None) -> Predictions:
    """Let a model with ``learn`` learn rows; return what it predicted of each just before.

    Probabilities, and the likeliest labels, are predicted by default if the model has ``predict_proba``.
    """
    return _predictions(model, partial(model.learn, X, y), probabilities)


def predict_then_fit(model: Any, X: Any, y: NDArray[Any]) -> Predictions:
    """Let a streamboost estimator fit a table; return what it predicted of each row just before it learned it."""
    return _predictions(model, partial(model.fit_learn, X, y), None)


def learn_prepared(model: Any, prepared: Any) -> Predictions:
    """Let a streamboost estimator learn rows it has prepared; return what it predicted of each just before."""
    return _predictions(model, partial(model.learn_prepared, prepared), None)


def _predictions(model: Any, learn: Callable[..., Any], probabilities: bool | None) -> Predictions:
    if hasattr(model, "predict_proba") if probabilities is None else probabilities:
        return from_probabilities(learn(method="predict_proba"), model.classes_.tolist())
    return from_values(learn())


def predict(model: Any, X: Any, probabilities: bool | None = None) -> Predictions:
    """Predict rows, as in :func:`predict_then_learn`; a model has no predictions before it has learned."""
    try:
        if hasattr(model, "predict_proba") if probabilities is None else probabilities:
            return from_probabilities(model.predict_proba(X), model.classes_.tolist())
        return from_values(model.predict(X))
    except NotFittedError:
        return no_predictions(X.shape[0] if hasattr(X, "shape") else len(X))


def from_values(values: Any) -> Predictions:
    """Make predictions of numbers, or of labels where None is unknown."""
    read = np.asarray(values)
    if read.dtype.kind == "f":
        return Predictions(np.ones(read.shape[:1], dtype=bool), read)
    return Predictions(np.array([value is not None for value in np.atleast_1d(read).tolist()], dtype=bool), read)


def from_probabilities(shares: Any, classes: Sequence[Any]) -> Predictions:
    """Predict the likeliest labels; a row of zeros is one before any class was known."""
    values = np.asarray(shares, dtype=float)
    labels = np.empty(len(classes), dtype=object)
    labels[:] = classes
    return Predictions(values.sum(axis=1) > 0, labels[values.argmax(axis=1)], Probabilities(classes, values))


def no_predictions(n: int) -> Predictions:
    """Return unknown predictions of n rows."""
    return Predictions(np.zeros(n, dtype=bool), np.full(n, None))


def concatenate(parts: Sequence[Predictions]) -> Predictions:
    """Join predictions end to end; the classes are those of all parts."""
    known = np.concatenate([part.known for part in parts])
    if not known.any():
        return no_predictions(len(known))
    found = np.concatenate([part.values[part.known] for part in parts if part.known.any()])
    values = np.zeros((len(known), *found.shape[1:]), dtype=found.dtype if found.dtype.kind == "f" else object)
    values[known] = found
    if not any(part.probabilities for part in parts):
        return Predictions(known, values)
    classes = list(dict.fromkeys(label for part in parts if part.probabilities for label in part.probabilities.classes))
    table, start = np.zeros((len(known), len(classes))), 0
    for part in parts:
        stop = start + len(part.known)
        if part.probabilities is not None:
            columns = [classes.index(label) for label in part.probabilities.classes]
            table[start:stop, columns] = part.probabilities.values
        start = stop
    return Predictions(known, values, Probabilities(classes, table))
