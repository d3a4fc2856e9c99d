"""Anyone's model as the prequential loop sees it: predict rows, learn rows, or both at once.

Three dialects are spoken: ``learn(X, y)``, which returns what was predicted before learning (streamboost's own);
``partial_fit`` and ``predict`` (scikit-learn's); ``learn_one`` and ``predict_one`` (River's).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from streamboost._types import Task
from streamboost.evaluation.metric_base import Probabilities
from streamboost.evaluation.predictions import Answers, no_answers, of_probabilities, of_values


class Contender:
    """A model with ``learn(X, y)`` that returns what it predicted before, as streamboost's have it.

    Parameters
    ----------
    model : object
    task : {"regression", "classification"}
    wants_probabilities : bool
        Whether the probabilities of classes are asked for; the label is then the likeliest class, so that every row
        is predicted once.
    classes : sequence, optional
        All classes, for a model that must be told before the first row.
    """

    verbs: ClassVar[tuple[str, str]] = ("learn", "predict")
    at_once = False  # whether a chunk is predicted as a whole before any of it is learned

    def __init__(self, model: Any, task: Task, wants_probabilities: bool, classes: Sequence[Any] | None = None) -> None:
        self.model = model
        self.task = task
        self.wants_probabilities = wants_probabilities

    def rows(self, X: Any) -> Any:
        """Rows as the model takes them."""
        return X

    def step(self, X: Any, y: NDArray[Any]) -> Answers:
        """Predict the rows, then learn them; return what the model said."""
        if self.wants_probabilities:
            return of_probabilities(self.model.learn(X, y, method="predict_proba"), self.model.classes_.tolist())
        return self._read(self.model.learn(X, y), len(y))

    def predict(self, X: Any) -> Answers:
        """What the model says."""
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        try:
            if self.wants_probabilities:
                return of_probabilities(np.asarray(self.model.predict_proba(X), float), self.model.classes_.tolist())
            return self._read(self.model.predict(X), n)
        except NotFittedError:
            return no_answers(n)

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        """Learn the rows."""
        self.model.learn(X, y)

    def _read(self, said: Any, n: int) -> Answers:
        values = np.asarray(said)
        if values.shape[:1] != (n,):
            raise ValueError(
                f"{type(self.model).__name__} returned predictions of shape {values.shape} for {n} rows, expected one "
                "a row."
            )
        return of_values(values.astype(float) if self.task == "regression" else values)


class _PartialFit(Contender):
    """A model with ``partial_fit`` and ``predict``, as scikit-learn's have it."""

    verbs = ("partial_fit", "predict")
    at_once = True

    def __init__(self, model: Any, task: Task, wants_probabilities: bool, classes: Sequence[Any] | None = None) -> None:
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
        if isinstance(X, pa.Table):
            return np.column_stack([column.to_numpy() for column in X.columns])
        if isinstance(X, list):  # of dicts
            self.names = self.names or list(X[0])
            return np.array([[row.get(name, np.nan) for name in self.names] for row in X])
        return X

    def step(self, X: Any, y: NDArray[Any]) -> Answers:
        said = self.predict(X)
        self.learn(X, y)
        return said

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        self.model.partial_fit(X, y, **self.first)
        self.first = {}


class _OneByOne(Contender):
    """A model with ``learn_one`` and ``predict_one``, as River's have it."""

    verbs = ("learn_one", "predict_one")

    def rows(self, X: Any) -> Any:
        if isinstance(X, list):
            return X
        if hasattr(X, "iloc"):
            return X.to_dict("records")
        if isinstance(X, pa.Table):
            return X.to_pylist()
        return [dict(enumerate(row)) for row in np.asarray(X).tolist()]  # columns without a name are 0, 1, 2, ...

    def step(self, X: Any, y: NDArray[Any]) -> Answers:
        said = []
        for x, target in zip(X, y.tolist(), strict=True):
            said.append(self._predict_one(x))
            self.model.learn_one(x, target)
        return self._read(said, len(y))

    def predict(self, X: Any) -> Answers:
        return self._read([self._predict_one(x) for x in X], len(X))

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        for x, target in zip(X, y.tolist(), strict=True):
            self.model.learn_one(x, target)

    def _predict_one(self, x: dict[Any, Any]) -> Any:
        return self.model.predict_proba_one(x) if self.wants_probabilities else self.model.predict_one(x)

    def _read(self, said: Any, n: int) -> Answers:
        if self.task == "regression":
            known = np.array([value is not None for value in said], dtype=bool)
            return Answers(known, np.array([0.0 if value is None else value for value in said], dtype=float))
        labels = np.empty(n, dtype=object)
        if not self.wants_probabilities:
            labels[:] = said
            return of_values(labels)
        classes = list(dict.fromkeys(label for row in said for label in row))
        table = np.array([[row.get(label, 0.0) for label in classes] for row in said]).reshape(n, len(classes))
        labels[:] = [max(row, key=row.get) if row else None for row in said]  # as River's predict_one
        return Answers(np.array([bool(row) for row in said], dtype=bool), labels, Probabilities(classes, table))


# Which dialect, which task.


def dialect_of(model: Any) -> type[Contender]:
    """How to speak to a model, or a ``TypeError`` that says what it lacks."""
    for dialect in (Contender, _PartialFit, _OneByOne):
        if all(callable(getattr(model, verb, None)) for verb in dialect.verbs):
            return dialect
    raise TypeError(
        f"model is a {type(model).__name__}, expected learn and predict (streamboost), partial_fit and predict "
        "(scikit-learn), or learn_one and predict_one (River). Wrap it in a class that has one of these pairs."
    )


def gives_probabilities(model: Any) -> bool:
    """Whether a classifier can be asked for probabilities."""
    dialect = dialect_of(model)
    if dialect is Contender and "method" not in inspect.signature(model.learn).parameters:
        return False
    if dialect is not _OneByOne:
        return hasattr(model, "predict_proba")
    last, river = _last_step(model), sys.modules.get("river.base")
    if river is not None and isinstance(last, river.Classifier):
        return type(last).predict_proba_one is not river.Classifier.predict_proba_one
    return hasattr(last, "predict_proba_one")


def task_of(model: Any, y: NDArray[Any]) -> Task:
    """What a model is for: by what it says of itself, else by the first targets."""
    if hasattr(model, "__sklearn_tags__"):
        kind = model.__sklearn_tags__().estimator_type
        if kind in ("classifier", "regressor"):
            return "classification" if kind == "classifier" else "regression"
    last, river = _last_step(model), sys.modules.get("river.base")  # imported by whoever holds one of River's models
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


def _last_step(model: Any) -> Any:
    """The last step of one of River's pipelines, or the model itself."""
    return getattr(model, "_last_step", model)
