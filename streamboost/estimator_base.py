"""What both estimators share: parameters, rows to arrays, one pass through the booster.

Rows of any kind come in; here they are checked, all of them before anything changes, turned into arrays and
handed to a :class:`~streamboost.boosting.Booster`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamboost import recipes, snapshots
from streamboost.arrays import FloatArray
from streamboost.boosting import Booster
from streamboost.chunks import check_weight
from streamboost.encoding import Encoded, Encoder
from streamboost.labels import Labels
from streamboost.losses import Loss
from streamboost.rows import Dialect

Row = Mapping[Hashable, Any]


class Targets(NamedTuple):
    """Checked targets (n, k); for classes also the labels known once they are taken in, and those yet to come."""

    values: FloatArray
    labels: Labels = Labels()
    new: Sequence[Any] = ()


class StreamEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The part of an estimator that does not depend on what its targets are."""

    def __init__(
        self,
        loss: Any = "auto",
        *,
        n_estimators: int = 60,
        learning_rate: float | Literal["theory"] | None = None,
        max_depth: int = 7,
        min_samples_leaf: int = 5,
        l2: float = 1.0,
        learner: Any = "tree",
        base: Any = "linear",
        descent: Any = None,
        memory: int | None = 16384,
        refit_every: int = 256,
        iterate: Literal["last", "average"] = "last",
        semantics: Literal["sequential", "minibatch"] = "sequential",
        new_columns: Literal["error", "grow"] = "error",
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.l2 = l2
        self.learner = learner
        self.base = base
        self.descent = descent
        self.memory = memory
        self.refit_every = refit_every
        self.iterate = iterate
        self.semantics = semantics
        self.new_columns = new_columns
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "booster_")

    # Learning: first everything is checked, then everything is changed.

    def _restart(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Forget everything and learn the rows; if they are refused, nothing is forgotten."""
        if sample_weight is not None and not np.asarray(sample_weight, dtype=float).any():
            raise ValueError("sample_weight is zero in every row, expected one above 0: there is nothing to learn.")
        fresh = type(self)(**self.get_params(deep=False))
        fresh._learn(X, y, sample_weight, classes=classes)
        for name in [name for name in self.__dict__ if name.endswith("_")]:
            delattr(self, name)
        self.__dict__.update(fresh.__dict__)
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any, dialect: Dialect = "array", classes: Any = None) -> FloatArray:
        """Learn rows of any kind; return the scores made before each was learned, (n, m)."""
        return self._learn_encoded(self._encode(X, dialect, learning=True), y, sample_weight, classes=classes)

    def _learn_encoded(self, encoded: Encoded, y: Any, sample_weight: Any, classes: Any = None) -> FloatArray:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        n, width = encoded.X.shape
        if width == 0:
            raise ValueError("x is empty, and no column is known yet. Begin with a row that has at least one value.")
        weight = check_weight(sample_weight, n, name="sample_weight")
        targets = self._encode_targets(y, classes)
        if len(targets.values) != n:
            raise ValueError(
                f"y has {len(targets.values)} rows and X has {n}: inconsistent numbers of samples. "
                "Pass one target a row."
            )
        booster = self.booster_ if hasattr(self, "booster_") else self._make_booster(targets)
        self._check_targets(targets, booster.loss)
        booster.stack.check_weight(weight)
        self._take_in(encoded, booster)
        return self._advance(encoded.X, targets, weight)

    def _encode(self, X: Any, dialect: Dialect, *, learning: bool) -> Encoded:
        """Rows as floats; nothing is changed."""
        known = hasattr(self, "encoder_")
        encoder = self.encoder_ if known else Encoder(new_columns=self.new_columns)
        encoded = encoder.encode(X, dialect=dialect, known_only=not learning, owner=type(self).__name__)
        if dialect == "array" and self.new_columns == "error" and not isinstance(X, (pa.Table, pa.RecordBatch, list)):
            # scikit-learn's own words on widths and names; it looks for no names in Arrow tables and lists of dicts
            validate_data(self if known else BaseEstimator(), X, reset=not known, skip_check_array=True)
        if len(encoded.X) == 0:
            raise ValueError(
                f"X is empty: Found array with 0 sample(s) (shape={encoded.X.shape}) while a minimum of 1 is required. "
                "Skip empty chunks."
            )
        return encoded

    def _take_in(self, encoded: Encoded, booster: Booster) -> None:
        """Make the names, categories and columns of encoded rows known."""
        if not hasattr(self, "encoder_"):
            self.encoder_ = Encoder(new_columns=self.new_columns)
            self.booster_ = booster
        added = self.encoder_.commit(encoded)
        if added and booster.is_open:
            booster.add_features(added)
        if added or not booster.is_open:
            self.n_features_in_ = self.encoder_.n_features
            names = self.encoder_.names
            if names is not None and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)

    def _make_booster(self, targets: Targets) -> Booster:
        loss = self._make_loss(targets)
        stack = recipes.make_stack(self.learner, self.n_estimators, self.max_depth, self.min_samples_leaf, self.l2)
        return Booster(
            loss,
            recipes.make_descent(self.descent, self.learning_rate, loss),
            stack,
            base=recipes.make_base(self.base),
            replay=recipes.make_replay(self.memory, self.refit_every, stack),
            iterate=self.iterate,
            semantics=self.semantics,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    @abstractmethod
    def _encode_targets(self, y: Any, classes: Any = None) -> Targets:
        """Targets as floats; nothing is changed."""

    @abstractmethod
    def _check_targets(self, targets: Targets, loss: Loss) -> None:
        """Refuse targets the loss cannot learn from."""

    @abstractmethod
    def _make_loss(self, targets: Targets) -> Loss:
        """The loss for targets such as these."""

    @abstractmethod
    def _advance(self, X: FloatArray, targets: Targets, weight: FloatArray) -> FloatArray:
        """Learn checked rows; return the scores made before."""

    # Predicting never changes anything.

    def _scores(self, X: Any, dialect: Dialect = "array") -> FloatArray:
        """The raw score of every row, (n, m)."""
        rows = self._rows(X, dialect)
        return self.booster_.score(rows)

    def _rows(self, X: Any, dialect: Dialect = "array") -> FloatArray:
        check_is_fitted(self)
        return self._encode(X, dialect, learning=False).X

    def _score_one(self, x: Row) -> FloatArray:
        """The raw score of one dict row, (1, m)."""
        return self.booster_.score(self.encoder_.encode_one(x, known_only=True).X)

    def _staged_scores(self, X: Any) -> Iterator[FloatArray]:
        """The raw scores after the first learner, the first two, and so on."""
        rows = self._rows(X)
        walk = self.booster_.walk(rows)
        for i in range(1, walk.shape[1]):
            yield self.booster_.descent.score(walk[:, : i + 1])

    # What the model says of itself.

    @property
    def edges_(self) -> FloatArray:
        """The measured edge of every weak learner over the latest rows, (N,): the share of its targets it explains."""
        check_is_fitted(self)
        return self.booster_.edges.recent

    @property
    def feature_importances_(self) -> FloatArray:
        """Each column's share in the gain of all splits, as the trees stand now, (d,)."""
        check_is_fitted(self)
        stack = self.booster_.stack
        if not hasattr(stack, "feature_gains"):
            raise AttributeError(f"feature_importances_ needs trees, but the learner is {self.learner!r}.")
        gains: FloatArray = stack.feature_gains()
        return gains / (gains.sum() or 1.0)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file that :func:`streamboost.load` reads; no pickle."""
        snapshots.save(self, path)

    # River's dialect: what both estimators share.

    def learn_one(self, x: Row, y: Any, *, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Column name to value; an absent name is a missing value, a new one a new column.
        y : target
        w : float
            The row's weight.
        """
        encoder = self.encoder_ if hasattr(self, "encoder_") else Encoder(new_columns=self.new_columns)
        self._learn_encoded(encoder.encode_one(x), [y], [w])

    def learn_many(self, X: Any, y: Any, *, w: Any = None) -> None:
        """Learn a frame of rows; columns are matched by name, and new ones may come."""
        self._learn(X, y, w, dialect="dict")
