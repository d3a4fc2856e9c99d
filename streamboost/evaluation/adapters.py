"""Models of three libraries behind one interface: predict rows, learn rows, or both at once."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost._types import Task
from streamboost.evaluation.metric_base import Probabilities
from streamboost.evaluation.predictions import Predictions, from_values, predict, predict_then_learn
from streamboost.features.reading import Kind

NO_TARGETS = np.zeros(0)


class ModelAdapter:
    """A model with ``learn(X, y)`` that returns what it predicted before, as streamboost's have it.

    If probabilities are asked for, the label is the likeliest class, so that every row is predicted once. ``classes``
    are for a model that must be told all before the first row.
    """

    methods: ClassVar[tuple[str, str]] = ("learn", "predict")
    predicts_whole_chunks = False  # before any of it is learned

    def __init__(self, model: Any, task: Task, wants_probabilities: bool, classes: Sequence[Any] | None = None) -> None:
        self.model, self.task, self.wants_probabilities = model, task, wants_probabilities

    def convert(self, X: Any) -> Any:
        """Return rows as the model takes them."""
        return X

    def predict_then_learn(self, X: Any, y: NDArray[Any]) -> Predictions:
        """Learn rows; return what the model predicted before."""
        return self._checked(predict_then_learn(self.model, X, y, self.wants_probabilities), len(y))

    def predict(self, X: Any) -> Predictions:
        """Predict rows."""
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        return self._checked(predict(self.model, X, self.wants_probabilities), n)

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        """Learn rows."""
        self.model.learn(X, y)

    def _checked(self, found: Predictions, n: int) -> Predictions:
        if (shape := found.values.shape)[:1] != (n,):
            name = type(self.model).__name__
            raise ValueError(f"{name} returned predictions of shape {shape} for {n} rows, expected one a row.")
        is_known = self.task == "regression" and found.known.all()
        return found._replace(values=found.values.astype(float)) if is_known else found


class _SklearnAdapter(ModelAdapter):
    """A model with ``partial_fit`` and ``predict``."""

    methods = ("partial_fit", "predict")
    predicts_whole_chunks = True

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

    def convert(self, X: Any) -> Any:
        if isinstance(X, pa.Table):
            return np.column_stack([column.to_numpy() for column in X.columns])
        if isinstance(X, list):  # of dicts
            self.names = self.names or list(X[0])
            return np.array([[row.get(name, np.nan) for name in self.names] for row in X])
        return X

    def predict_then_learn(self, X: Any, y: NDArray[Any]) -> Predictions:
        predicted = self.predict(X)
        self.learn(X, y)
        return predicted

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        self.model.partial_fit(X, y, **self.first)
        self.first = {}


class _RiverAdapter(ModelAdapter):
    """A model with ``learn_one`` and ``predict_one``."""

    methods = ("learn_one", "predict_one")

    def convert(self, X: Any) -> Any:
        if isinstance(X, list):
            return X
        if hasattr(X, "iloc"):
            return X.to_dict("records")
        if isinstance(X, pa.Table):
            return X.to_pylist()
        return [dict(enumerate(row)) for row in np.asarray(X).tolist()]  # columns without a name are 0, 1, 2, ...

    def predict_then_learn(self, X: Any, y: NDArray[Any]) -> Predictions:
        found = []
        for x, target in zip(X, y.tolist(), strict=True):
            found.append(self._predict_one(x))
            self.model.learn_one(x, target)
        return self._read(found)

    def predict(self, X: Any) -> Predictions:
        return self._read([self._predict_one(x) for x in X])

    def learn(self, X: Any, y: NDArray[Any]) -> None:
        for x, target in zip(X, y.tolist(), strict=True):
            self.model.learn_one(x, target)

    def _predict_one(self, x: dict[Any, Any]) -> Any:
        return self.model.predict_proba_one(x) if self.wants_probabilities else self.model.predict_one(x)

    def _read(self, found: list[Any]) -> Predictions:
        if self.task == "regression":
            known = np.array([value is not None for value in found], dtype=bool)
            return Predictions(known, np.array([0.0 if value is None else value for value in found], dtype=float))
        labels = np.empty(n := len(found), dtype=object)
        if not self.wants_probabilities:
            labels[:] = found
            return from_values(labels)
        classes = list(dict.fromkeys(label for row in found for label in row))
        table = np.array([[row.get(label, 0.0) for label in classes] for row in found]).reshape(n, len(classes))
        labels[:] = [max(row, key=row.get) if row else None for row in found]  # as River's predict_one
        return Predictions(np.array([bool(row) for row in found], dtype=bool), labels, Probabilities(classes, table))


def adapter_for(model: Any) -> type[ModelAdapter]:
    """Return the adapter a model needs; a ``TypeError`` says which methods it lacks."""
    for adapter in (ModelAdapter, _SklearnAdapter, _RiverAdapter):
        if all(callable(getattr(model, method, None)) for method in adapter.methods):
            return adapter
    raise TypeError(
        f"model is a {type(model).__name__}, expected learn and predict (streamboost), partial_fit and predict "
        "(scikit-learn), or learn_one and predict_one (River). Wrap it in a class that has one of these pairs."
    )


def gives_probabilities(model: Any) -> bool:
    """Return True if a classifier can be asked for probabilities."""
    adapter = adapter_for(model)
    if adapter is ModelAdapter and "method" not in inspect.signature(model.learn).parameters:
        return False
    if adapter is not _RiverAdapter:
        return hasattr(model, "predict_proba")
    last, river = getattr(model, "_last_step", model), sys.modules.get("river.base")
    if river is not None and isinstance(last, river.Classifier):
        return type(last).predict_proba_one is not river.Classifier.predict_proba_one
    return hasattr(last, "predict_proba_one")


def column_kinds(model: Any) -> dict[str, Kind]:
    """What a model knows of columns by name: number, category or date; nothing, as long as it has learned nothing."""
    encoder = getattr(model, "encoder_", None)
    named = zip(getattr(encoder, "names", None) or (), getattr(encoder, "kinds", ()), strict=False)
    return {str(name): kind for name, kind in named if kind is not None}


def known_kinds(model: object, target: str | None = None) -> dict[str, Kind]:
    """Return what a model knows of columns by name, the target among them if its classes are text."""
    has_text = getattr(getattr(model, "labels_", None), "kind", None) == "string"
    return column_kinds(model) | ({target: "category"} if target is not None and has_text else {})


def task_of(model: Any, y: NDArray[Any] = NO_TARGETS) -> Task:
    """Return the task of a model: by its own tags, else by the first targets; none by default."""
    if hasattr(model, "__sklearn_tags__"):
        kind = model.__sklearn_tags__().estimator_type
        if kind in ("classifier", "regressor"):
            return "classification" if kind == "classifier" else "regression"
    last = getattr(model, "_last_step", model)  # of a pipeline
    river = sys.modules.get("river.base")  # imported by whoever holds one of River's models
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
