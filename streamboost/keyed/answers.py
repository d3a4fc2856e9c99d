"""What the models of several keys say of the rows of a chunk, put together in the order of the rows."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost import SGBClassifier
from streamboost._types import IntArray
from streamboost.estimators.base import StreamEstimator
from streamboost.features.labels import Labels

Method: TypeAlias = Literal["predict", "predict_proba"]


class Answers:
    """Predictions of n rows: numbers, 0 where nobody knew; or labels, None there; or probabilities, 0 there.

    Parameters
    ----------
    n : int
    width : int
        How many numbers a row has, of regressors.
    labels : Labels, optional
        Of classifiers: all that are known.
    method : {"predict", "predict_proba"}
    """

    def __init__(self, n: int, width: int, labels: Labels | None, method: Method) -> None:
        self.labels, self.method = labels, method
        if labels is None:
            self.values: NDArray[Any] = np.zeros(n if width == 1 else (n, width))
        elif method == "predict":
            self.values = np.full(n, -1)
        else:
            self.values = np.zeros((n, len(labels)))

    def add(self, places: IntArray, model: StreamEstimator, said: NDArray[Any]) -> None:
        """Note what a model said of some rows."""
        if self.labels is None:
            self.values[places] = said
        elif self.method == "predict":
            numbers = self.labels.numbers
            self.values[places] = [-1 if label is None else numbers[label] for label in said.tolist()]
        else:
            columns = [self.labels.numbers[label] for label in model.labels_.numbers]
            self.values[places[:, None], columns] = said

    def all(self) -> NDArray[Any]:
        """Return everything that was said."""
        if self.labels is None or self.method != "predict":
            return self.values
        if len(self.values) and (self.values >= 0).all():
            return self.labels.classes[self.values]  # type: ignore[no-any-return]
        labels, known = np.full(len(self.values), None, dtype=object), list(self.labels.numbers)
        for row in np.flatnonzero(self.values >= 0).tolist():
            labels[row] = known[self.values[row]]
        return labels


def predict(model: StreamEstimator, rows: Any, method: Method) -> NDArray[Any]:
    """What a model says of rows, encoded or not."""
    scores = model.raw_scores(rows)
    return model.predict_from_scores(scores, method) if isinstance(model, SGBClassifier) else (
        model.predict_from_scores(scores)
    )  # fmt: skip
