"""What a new key begins with: a small model, and the prior it may stand upon.

A prior is a fitted estimator that new keys start from. What it says of a row goes before the row as further columns,
as scores; the key's model starts there, ``base=PriorLine(...)``, and learns what the prior gets wrong for its key. So
no key's model holds the prior, the prior is asked once for all keys of a chunk, and it reads text with its own codes.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost import SGBClassifier, SGBRegressor
from streamboost._types import FloatArray
from streamboost.bases import Linear
from streamboost.errors import SnapshotError
from streamboost.estimators import defaults
from streamboost.estimators.base import StreamEstimator
from streamboost.features.reading import in_order
from streamboost.keyed.rows import Rows
from streamboost.losses import Softmax
from streamboost.persistence import snapshots

SMALL: dict[str, Any] = {
    "n_estimators": 20, "max_depth": 4, "memory": 256, "new_columns": "grow", "random_state": 0,
}  # fmt: skip


def small_regressor(**options: Any) -> SGBRegressor:
    """A regressor of some tens of kilobytes, for one of very many keys; options as in SGBRegressor."""
    return SGBRegressor(**{**SMALL, **options})


def small_classifier(**options: Any) -> SGBClassifier:
    """A classifier of some tens of kilobytes, for one of very many keys; options as in SGBClassifier."""
    return SGBClassifier(**{**SMALL, **options})


def check_template(model: Any, prior: Any) -> StreamEstimator:
    """The model all keys begin as: the one given, or a small one for what the prior is for."""
    if prior is not None and not (isinstance(prior, StreamEstimator) and hasattr(prior, "committee_")):
        raise TypeError(
            f"prior is {_shown(prior)}, expected an SGBRegressor or SGBClassifier that has learned rows. "
            "Fit one to the rows of many keys first."
        )
    if model is None:
        model = small_classifier() if isinstance(prior, SGBClassifier) else small_regressor()
    if not isinstance(model, StreamEstimator):
        raise TypeError(
            f"model is {_shown(model)}, expected an SGBRegressor or SGBClassifier, such as small_regressor(). "
            "Others can be its learner, or wrapped in one."
        )
    if hasattr(model, "committee_"):
        raise ValueError(
            "model has learned rows already, expected a new one, of which every key gets a copy. "
            "Pass it as prior to have keys start from it."
        )
    if prior is not None and isinstance(prior, SGBClassifier) != isinstance(model, SGBClassifier):
        raise TypeError(f"prior is {_shown(prior)} and model is {_shown(model)}, expected two of a kind.")
    if prior is not None and defaults.is_one_versus_rest(model.loss):
        raise ValueError(f"loss is {model.loss!r} beside a prior, expected 'log_loss'. Leave one of them out.")
    template = copy.deepcopy(model)
    if template.random_state is None:
        template.set_params(random_state=0)  # so that a key's model is the same wherever it lives
    try:
        snapshots.pack(template)
    except SnapshotError as error:
        raise TypeError(f"model cannot be stored: {error}") from error
    return template


def _shown(model: Any) -> str:
    return f"a {type(model).__name__}"


class PriorLine(Linear):
    """What the prior said of a row, which stands in columns of the row itself, and a line that learns what it misses.

    A line begins at 0 everywhere, so a new key begins with the prior's answers; and what sets the key apart from
    others, such as an offset, it knows after a few rows, long before the first tree is grown. ``places`` are the
    columns with the prior's scores, one an output.

    Examples
    --------
    >>> from streamboost.losses import Scale, Squared
    >>> base = PriorLine([0])
    >>> base.open(n_features=1, n_outputs=1)
    >>> X = np.array([[3.0], [4.0], [3.0], [5.0]])
    >>> base.predict(X[:2]).tolist()
    [[3.0], [4.0]]
    >>> base.learn(X, X + 2.0, np.ones(4), Squared(), Scale(1.0, 1.0))
    >>> bool(base.predict(X[:1])[0, 0] > 4)
    True
    """

    splits = shifts = False

    def __init__(self, places: list[int], forget: float = 1.0) -> None:
        super().__init__(forget=forget)
        self.places = places

    def known(self, X: FloatArray) -> FloatArray:
        """What the prior says."""
        added = np.zeros((len(X), self.weights.shape[1]))
        added[:, : len(self.places)] = X[:, self.places]  # it knows nothing of classes that came later
        return added


class Prior:
    """A fitted estimator that new keys start from; their models are copies of the template."""

    def __init__(self, model: StreamEstimator, template: StreamEstimator) -> None:
        self.model = model
        usual = defaults.make_base("linear", defaults.check_memory(template.memory)[0])
        assert isinstance(usual, Linear)
        self.forget = usual.forget
        loss = model.committee_.loss
        self.classes: list[Any] | None = None
        if isinstance(model, SGBClassifier):
            self.classes = sorted(model.labels_.numbers)
            self.link: Any = Softmax.link
            labels = [str(label) for label in self.classes]
        else:
            self.link = defaults.make_regression_loss(template.loss, loss.n_outputs).link
            labels = [""] if loss.n_outputs == 1 else [str(i) for i in range(loss.n_outputs)]
        self.names = [f"(prior {label})" if label else "(prior)" for label in labels]

    def scores(self, rows: Rows) -> FloatArray:
        """What it says of rows, as scores of the template's loss, (n, m)."""
        if self.classes is None:
            said = self.model.predict(rows)
            return np.asarray(self.link.score(said.reshape(len(said), -1)))
        order = [self.model.labels_.numbers[label] for label in self.classes]
        return np.asarray(self.link.score(self.model.predict_proba(rows)[:, order]))

    def widen(self, rows: Rows) -> Rows:
        """Rows with its scores before the other columns."""
        known = {name for row in rows for name in row} if isinstance(rows, list) else set(rows.column_names)
        if not known.isdisjoint(self.names):
            raise ValueError(f"X has a column called {self.names[0]!r}, as the prior's scores are. Rename it.")
        scores = self.scores(rows)
        if isinstance(rows, list):
            said = [dict(zip(self.names, row, strict=True)) for row in scores.tolist()]
            return [{**first, **row} for first, row in zip(said, rows, strict=True)]
        columns = [pa.array(column) for column in scores.T.copy()]
        return pa.table([*columns, *rows.columns], names=[*self.names, *rows.column_names])

    def base(self, rows: Rows) -> PriorLine:
        """The base of a new key, whose first rows are these, widened."""
        names: list[Any] = in_order(rows[0]) if isinstance(rows, list) else rows.column_names
        return PriorLine([names.index(name) for name in self.names], self.forget)


def new_model(template: StreamEstimator, prior: Prior | None, rows: Rows) -> StreamEstimator:
    """The model of a new key, whose first rows are these."""
    model = copy.deepcopy(template)
    if prior is not None:
        model.base = prior.base(rows)
    return model


class KeyModel:
    """One key's model and the prior of all keys: what :meth:`KeyedModel.model` gives where there is a prior."""

    def __init__(self, model: StreamEstimator, prior: StreamEstimator) -> None:
        self.model, self.prior = model, prior

    def __sklearn_tags__(self) -> Any:
        return self.model.__sklearn_tags__()

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes the key's model knows."""
        return self.model.classes_  # type: ignore[no-any-return]

    def learn(self, X: Any, y: Any, **options: Any) -> NDArray[Any]:
        """Predict each row, then learn it; arguments as of the key's model."""
        return self.model.learn(self._widen(X), y, **options)  # type: ignore[no-any-return]

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict every row."""
        return self.model.predict(self._widen(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probability of every class."""
        return self.model.predict_proba(self._widen(X))  # type: ignore[no-any-return]

    def _widen(self, X: Any) -> Rows:
        return Prior(self.prior, self.model).widen(X if isinstance(X, list) else pa.table(X))
