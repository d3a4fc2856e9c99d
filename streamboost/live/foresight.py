"""What a model takes: its own checks are asked before anything is written down."""

from __future__ import annotations

import copy
from typing import Any

from numpy.typing import NDArray

from streamboost.live.learner import REFUSALS


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
        self._model = model
        self._is_own = False
        self._expected: list[tuple[Any, NDArray[Any]]] = []

    def expect(self, X: Any, y: NDArray[Any]) -> None:
        """Hear of rows that passed all checks."""
        self._expected.append((X, y))

    @property
    def model(self) -> Any:
        """For checks only: it knows the columns and classes of rows to come, and has learned nothing from them."""
        for X, y in self._expected:
            self._take_in(X, y)
        self._expected = []
        return self._model

    def _take_in(self, X: Any, y: NDArray[Any]) -> None:
        if not hasattr(self._model, "committee_"):
            self._model, self._is_own = copy.deepcopy(self._model), True
            self._model.learn(X, y)
            return
        if not self._is_own:
            self._model, self._is_own = _with_own_encoder(self._model), True
        model = self._model
        encoded = model._encode(X, "array", learning=True)
        if hasattr(model, "labels_"):
            targets = model._encode_targets(y)
            model.labels_ = targets.labels.extended(targets.new)
        model.encoder_.commit(encoded)


def _with_own_encoder(model: Any) -> Any:
    model = copy.copy(model)
    model.encoder_ = copy.copy(model.encoder_)  # which changes nothing in place but these
    model.encoder_.categories = {j: dict(levels) for j, levels in model.encoder_.categories.items()}
    return model


def check(model: Any, X: Any, y: NDArray[Any]) -> None:
    """Refuse what the model would refuse."""
    check_columns(model, X)
    check_targets(model, X, y)


def check_columns(model: Any, X: Any) -> None:
    """Refuse columns that the model would refuse."""
    encoded = model._encode(X, "array", learning=True)
    if hasattr(model, "committee_"):
        model._check_signs(encoded, model.committee_)


def check_targets(model: Any, X: Any, y: NDArray[Any]) -> None:
    """Refuse targets that the model would refuse."""
    if hasattr(model, "committee_"):
        model._check_targets(model._encode_targets(y), model.committee_.loss)
    else:
        copy.deepcopy(model).learn(X, y)  # whether its options fit the first rows, only trying tells


def strange_rows(model: Any, X: Any) -> dict[int, str]:
    """The rows that a model cannot learn whatever their labels are, and why."""
    if not X.num_rows:
        return {}
    try:
        check_columns(model, X)
    except REFUSALS as error:
        if X.num_rows == 1:
            return {0: str(error)}
        alone = ((i, strange_rows(model, X.slice(i, 1))) for i in range(X.num_rows))
        return {i: found[0] for i, found in alone if found}
    return {}
