"""Anyone's model as the prequential loop sees it: predict rows, learn rows, or both at once.

Three dialects are spoken: ``learn(X, y)``, which returns what was predicted before learning (streamboost's own);
``partial_fit`` and ``predict`` (scikit-learn's); ``learn_one`` and ``predict_one`` (River's).
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import BoolArray
from streamboost.metric_base import Probabilities
from streamboost.row_chunks import as_dicts, as_matrix, names_of

Task: TypeAlias = Literal["regression", "classification"]


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


def no_answers(n: int) -> Answers:
    """A model that does not know yet what to say."""
    return Answers(np.zeros(n, dtype=bool), np.full(n, None), None)


def joined(parts: Sequence[Answers]) -> Answers:
    """Answers one after the other."""
    known = np.concatenate([part.known for part in parts])
    answered = [part for part in parts if part.known.any()]
    if len(answered) < len(parts):  # fill the gaps with something of the right shape
        like = answered[0].values if answered else parts[0].values
        values = np.zeros((len(known), *like.shape[1:]), dtype=like.dtype if like.dtype.kind == "f" else object)
        if answered:
            values[known] = np.concatenate([part.values[part.known] for part in answered])
    else:
        values = np.concatenate([part.values for part in parts])
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


class Contender(ABC):
    """A model in its own dialect.

    Parameters
    ----------
    model : object
    task : {"regression", "classification"}
    wants_probabilities : bool
        Whether the probabilities of classes are asked for; the label is then the likeliest class, so that every row
        is predicted once.
    """

    def __init__(self, model: Any, task: Task, wants_probabilities: bool) -> None:
        self.model = model
        self.task = task
        self.wants_probabilities = wants_probabilities

    @abstractmethod
    def rows(self, X: Any) -> Any:
        """Rows as the model takes them."""

    @abstractmethod
    def step(self, X: Any, y: NDArray[Any]) -> Any:
        """Predict the rows, then learn them; return what the model said."""

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """What the model says; None if it cannot say anything yet."""

    @abstractmethod
    def learn(self, X: Any, y: NDArray[Any]) -> None:
        """Learn the rows."""

    @abstractmethod
    def answers(self, said: Any, n: int) -> Answers:
        """What the model said of n rows, read."""


class _OfArrays(Contender):
    """What models have in common that take a chunk of rows."""

    def predict(self, X: Any) -> Any:
        try:
            if self.wants_probabilities:
                return self.model.predict_proba(X), self.model.classes_.tolist()
            return self.model.predict(X)
        except Exception as error:
            if type(error).__name__ == "NotFittedError":  # whoever's it is
                return None
            raise

    def answers(self, said: Any, n: int) -> Answers:
        if said is None:
            return no_answers(n)
        if self.wants_probabilities:
            return _of_probabilities(Probabilities(said[1], np.asarray(said[0], dtype=float)))
        values = np.asarray(said)
        if values.shape[:1] != (n,):
            raise ValueError(
                f"{type(self.model).__name__} returned predictions of shape {values.shape} for {n} rows, expected one "
                "a row."
            )
        if self.task == "regression":
            return Answers(np.ones(n, dtype=bool), values.astype(float))
        return Answers(np.array([value is not None for value in values.tolist()], dtype=bool), values)


class _Learning(_OfArrays):
    """A model with ``learn(X, y)`` that returns what it predicted before, as streamboost's have it."""

    def rows(self, X: Any) -> Any:
        return X

    def step(self, X: Any, y: NDArray[Any]) -> Any:
        if self.wants_probabilities:
            said = self.model.learn(X, y, method="predict_proba")
            return said, self.model.classes_.tolist()
        return self.model.learn(X, y)

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        self.model.learn(X, y)


class _PartialFit(_OfArrays):
    """A model with ``partial_fit`` and ``predict``, as scikit-learn's have it."""

    def __init__(self, model: Any, task: Task, wants_probabilities: bool, classes: Sequence[Any] | None) -> None:
        super().__init__(model, task, wants_probabilities)
        self.names: list[Any] | None = None  # of the columns, if rows are dicts
        takes_classes = "classes" in inspect.signature(model.partial_fit).parameters
        self.first = {"classes": np.asarray(classes)} if takes_classes and classes is not None else {}
        if takes_classes and classes is None and not hasattr(model, "classes_"):
            raise ValueError(
                f"{type(model).__name__} must be told all classes before the first row, and rows that are streamed do "
                "not tell them. Pass classes=[...]."
            )

    def rows(self, X: Any) -> Any:
        self.names = self.names or names_of(X)
        return as_matrix(X, self.names)

    def step(self, X: Any, y: NDArray[Any]) -> Any:
        said = self.predict(X)
        self.learn(X, y)
        return said

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        self.model.partial_fit(X, y, **self.first)
        self.first = {}


class _OneByOne(Contender):
    """A model with ``learn_one`` and ``predict_one``, as River's have it."""

    def __init__(self, model: Any, task: Task, wants_probabilities: bool) -> None:
        super().__init__(model, task, wants_probabilities)
        self.predict_one = model.predict_proba_one if wants_probabilities else model.predict_one

    def rows(self, X: Any) -> Any:
        return as_dicts(X)

    def step(self, X: Any, y: NDArray[Any]) -> Any:
        said = []
        for x, target in zip(X, y.tolist(), strict=True):
            said.append(self.predict_one(x))
            self.model.learn_one(x, target)
        return said

    def predict(self, X: Any) -> Any:
        return [self.predict_one(x) for x in X]

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        for x, target in zip(X, y.tolist(), strict=True):
            self.model.learn_one(x, target)

    def answers(self, said: Any, n: int) -> Answers:
        if self.task == "regression":
            known = np.array([value is not None for value in said], dtype=bool)
            return Answers(known, np.array([0.0 if value is None else value for value in said], dtype=float))
        if not self.wants_probabilities:
            values = np.empty(n, dtype=object)
            values[:] = said
            return Answers(np.array([value is not None for value in said], dtype=bool), values)
        classes = list(dict.fromkeys(label for row in said for label in row))
        table = np.array([[row.get(label, 0.0) for label in classes] for row in said]).reshape(n, len(classes))
        labels = np.empty(n, dtype=object)
        labels[:] = [max(row, key=row.get) if row else None for row in said]  # as River's predict_one
        return Answers(np.array([bool(row) for row in said], dtype=bool), labels, Probabilities(classes, table))


def _of_probabilities(said: Probabilities) -> Answers:
    """The likeliest labels; a row of zeros is one before any class was known."""
    classes = np.empty(len(said.classes), dtype=object)
    classes[:] = said.classes
    return Answers(said.values.sum(axis=1) > 0, classes[said.values.argmax(axis=1)], said)


# Which dialect, which task.


def speak_to(
    model: Any, task: Task, *, wants_probabilities: bool, has_dicts: bool, classes: Sequence[Any] | None
) -> Contender:
    """A model as the loop sees it."""
    dialect = dialect_of(model, has_dicts)
    if dialect is _PartialFit:
        return _PartialFit(model, task, wants_probabilities, classes)
    return dialect(model, task, wants_probabilities)


def learns_chunks_at_once(model: Any, has_dicts: bool = False) -> bool:
    """Whether a chunk is predicted as a whole before any of it is learned."""
    return dialect_of(model, has_dicts) is _PartialFit


def dialect_of(model: Any, has_dicts: bool = False) -> type[Contender]:
    """How to speak to a model, or a ``TypeError`` that says what it lacks."""

    def has(*verbs: str) -> bool:
        return all(callable(getattr(model, verb, None)) for verb in verbs)

    if has("learn", "predict"):
        return _Learning
    if has("learn_one", "predict_one") and (has_dicts or not has("partial_fit", "predict")):
        return _OneByOne
    if has("partial_fit", "predict"):
        return _PartialFit
    raise TypeError(
        f"model is a {type(model).__name__}, expected learn and predict (streamboost), partial_fit and predict "
        "(scikit-learn), or learn_one and predict_one (River). Wrap it in a class that has one of these pairs."
    )


def gives_probabilities(model: Any, has_dicts: bool = False) -> bool:
    """Whether a classifier can be asked for probabilities."""
    dialect = dialect_of(model, has_dicts)
    if dialect is _Learning and "method" not in inspect.signature(model.learn).parameters:
        return False
    if dialect is not _OneByOne:
        return hasattr(model, "predict_proba")
    last = getattr(model, "_last_step", model)  # of a pipeline
    river = sys.modules.get("river.base")
    if river is not None and isinstance(last, river.Classifier):
        return type(last).predict_proba_one is not river.Classifier.predict_proba_one
    return hasattr(last, "predict_proba_one")


def task_of(model: Any, y: NDArray[Any]) -> Task:
    """What a model is for: by what it says of itself, else by the first targets."""
    if hasattr(model, "__sklearn_tags__"):
        kind = model.__sklearn_tags__().estimator_type
        if kind in ("classifier", "regressor"):
            return "classification" if kind == "classifier" else "regression"
    river = sys.modules.get("river.base")  # whoever holds one of River's models has imported River already
    last = getattr(model, "_last_step", model)  # of a pipeline
    if river is not None and isinstance(last, (river.Classifier, river.Regressor)):
        return "classification" if isinstance(last, river.Classifier) else "regression"
    if y.dtype.kind in "OUSb":
        return "classification"
    if y.dtype.kind == "f" and not (y == np.round(y)).all():
        return "regression"
    raise ValueError(
        f"task is 'auto', but neither {type(model).__name__} nor targets such as {y[:3].tolist()} tell whether these "
        "are numbers or classes. Pass task='regression' or task='classification'."
    )
