"""What both estimators share: parameters, rows to arrays, one pass through the booster.

Rows of any kind come in; here they are checked, all of them before anything changes, turned into arrays and
handed to a :class:`~streamboost.boosting.committee.Committee`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from os import PathLike
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamboost._types import FloatArray
from streamboost.boosting.booster import Booster, Iterate, UpdateMode
from streamboost.boosting.committee import Committee
from streamboost.boosting.drift_replacement import Event
from streamboost.errors import require
from streamboost.estimators import defaults as recipes
from streamboost.features.chunk import check_weight
from streamboost.features.encoder import Encoded, Encoder
from streamboost.features.labels import Labels
from streamboost.features.reading import Dialect
from streamboost.losses import Loss
from streamboost.persistence import snapshots

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
        max_features: float | str | None = None,
        monotonic_cst: Any = None,
        learner: Any = "tree",
        base: Any = "linear",
        descent: Any = None,
        memory: int | Sequence[int] | None = (256, 1024, 4096, 16384),
        budget: float = 1.0,
        readout: Literal["hedge", "last", "mean"] = "hedge",
        iterate: Iterate = "last",
        semantics: UpdateMode = "sequential",
        new_columns: Literal["error", "grow"] = "error",
        memory_limit_mb: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.l2 = l2
        self.max_features = max_features
        self.monotonic_cst = monotonic_cst
        self.learner = learner
        self.base = base
        self.descent = descent
        self.memory = memory
        self.budget = budget
        self.readout = readout
        self.iterate = iterate
        self.semantics = semantics
        self.new_columns = new_columns
        self.memory_limit_mb = memory_limit_mb
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "committee_")

    # Learning: first everything is checked, then everything is changed.

    def _restart(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Forget everything and learn the rows; if they are refused, nothing is forgotten."""
        if sample_weight is not None and not np.asarray(sample_weight, dtype=float).any():
            raise ValueError("sample_weight is zero in every row, expected one above 0: there is nothing to learn.")
        fresh = type(self)(**self.get_params(deep=False))
        fresh._learn(X, y, sample_weight, classes=classes)
        self._forget()
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
        committee = self.committee_ if hasattr(self, "committee_") else self._make_committee(targets, encoded)
        self._check_targets(targets, committee.loss)
        committee.check_weight(weight)
        self._check_signs(encoded, committee)
        try:
            self._take_in(encoded, committee)
            return self._advance(encoded.X, targets, weight)
        except ValueError:
            if committee.n_rows == 0:  # options that do not fit the first rows: as if they had never come
                self._forget()
            raise

    def _check_signs(self, encoded: Encoded, committee: Committee) -> None:
        """Refuse text in a column that predictions must rise or fall with."""
        signs = getattr(committee.boosters[0].stack, "monotone", ())
        kinds = {} if encoded.changes is None else encoded.changes.kinds
        for j in [j for j, kind in kinds.items() if kind == "category" and j < len(signs) and signs[j]]:
            raise ValueError(
                f"column {self.encoder_.names[j] if self.encoder_.names else j!r} holds text, but monotonic_cst gives "
                "it a sign, expected numbers: levels have no order in which to rise or fall. Leave it out there."
            )

    def _forget(self) -> None:
        """Be as if nothing had been learned."""
        for name in [name for name in self.__dict__ if name.endswith("_")]:
            delattr(self, name)

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

    def _take_in(self, encoded: Encoded, committee: Committee) -> None:
        """Make the names, categories and columns of encoded rows known."""
        if encoded.changes is None and hasattr(self, "encoder_"):
            return
        if not hasattr(self, "encoder_"):
            self.encoder_ = Encoder(new_columns=self.new_columns)
            self.committee_ = committee
        added = 0 if encoded.changes is None else encoded.changes.n_features - self.encoder_.n_features
        if added and committee.is_open:
            committee.add_features(added)  # first, as it may refuse
        self.encoder_.commit(encoded)
        width = self.encoder_.n_features
        self.silent_ = [*getattr(self, "silent_", ()), *range(width - added, width)]
        if added or not committee.is_open:
            self.n_features_in_ = self.encoder_.n_features
            names = self.encoder_.names
            if names is not None and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)

    def _learn_rows(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Learn checked rows; a column counts from the row that first has a value there, in a chunk as one by one."""
        committee = self.committee_
        if not self.silent_:
            return committee.learn_checked(X, y, weight)
        present = {j: np.flatnonzero(~np.isnan(X[:, j])) for j in self.silent_}
        begins = sorted((int(rows[0]), j) for j, rows in present.items() if len(rows))
        stops = [*sorted({row for row, _ in begins if row > 0}), len(X)]
        parts, start = [], 0
        for stop in stops:
            self._announce([j for row, j in begins if row == start])
            parts.append(committee.learn_checked(X[start:stop], y[start:stop], weight[start:stop]))
            start = stop
        return np.concatenate(parts)

    def _announce(self, columns: Sequence[int]) -> None:
        """Say that columns have their first values, and which of them hold categories."""
        committee, encoder = self.committee_, self.encoder_
        self.silent_ = [j for j in self.silent_ if j not in columns]
        for j in columns if committee.n_rows else ():
            committee.events.append(
                Event(committee.n_rows, "new column", str(encoder.names[j] if encoder.names else j))
            )
        categories = [j for j in columns if encoder.kinds[j] == "category"]
        if categories:
            committee.set_categorical([*committee.categorical, *categories], encoder.max_categories + 1)

    def _make_committee(self, targets: Targets, encoded: Encoded) -> Committee:
        loss = self._make_loss(targets)
        seed = int(self._random().randint(2**31 - len(recipes.RUNGS)))
        names = None if encoded.changes is None else encoded.changes.names
        return recipes.make_committee(self._options(names), loss, seed)

    def _random(self) -> np.random.RandomState:
        try:
            return check_random_state(self.random_state)  # type: ignore[no-any-return]
        except ValueError:
            raise ValueError(
                f"random_state is {self.random_state!r}, expected a whole number from 0 to 2 ** 32 - 1, a RandomState, "
                "or None for a different run each time."
            ) from None

    def _options(self, names: Sequence[Hashable] | None) -> SimpleNamespace:
        """The parameters, with columns by their numbers."""
        signs = recipes.number_columns(self.monotonic_cst, names)
        return SimpleNamespace(**{**self.get_params(deep=False), "monotonic_cst": signs})

    @abstractmethod
    def _encode_targets(self, y: Any, classes: Any = None) -> Targets:
        """Targets as floats; nothing is changed."""

    def _check_targets(self, targets: Targets, loss: Loss) -> None:
        """Refuse targets the loss cannot learn from."""

    @abstractmethod
    def _make_loss(self, targets: Targets) -> Loss:
        """The loss for targets such as these."""

    @abstractmethod
    def _advance(self, X: FloatArray, targets: Targets, weight: FloatArray) -> FloatArray:
        """Learn checked rows; return the scores made before."""

    @abstractmethod
    def _answers(self, scores: FloatArray) -> NDArray[Any]:
        """What the scores (n, m) mean: a target or a label for every row."""

    # Predicting never changes anything.

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the target of every row, (n,) or (n, m), or its class."""
        return self._answers(self._scores(X))

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """Predict with the first learner, the first two, and so on."""
        return map(self._answers, self._staged_scores(X))

    def predict_many(self, X: Any) -> Any:
        """Predict a frame of rows; a pandas Series with the frame's index."""
        pandas = require("pandas", extra="river", by="predict_many")
        return pandas.Series(self._answers(self._scores(X, "dict")), index=getattr(X, "index", None))

    def _scores(self, X: Any, dialect: Dialect = "array") -> FloatArray:
        """The raw score of every row, (n, m)."""
        rows = self._rows(X, dialect)
        return self._class_scores(self.committee_.score_checked(rows))

    def _class_scores(self, scores: FloatArray) -> FloatArray:
        """Scores as the answers are read from them."""
        return scores

    def _rows(self, X: Any, dialect: Dialect = "array") -> FloatArray:
        check_is_fitted(self)
        return self._encode(X, dialect, learning=False).X

    def _score_one(self, x: Row) -> FloatArray:
        """The raw score of one dict row, (1, m)."""
        return self._class_scores(self.committee_.score_checked(self.encoder_.encode_one(x, known_only=True).X))

    def _staged_scores(self, X: Any) -> Iterator[FloatArray]:
        """The raw scores after the first learner, the first two, and so on."""
        return map(self._class_scores, self.committee_.staged_scores(self._rows(X)))

    # What the model says of itself.

    @property
    def booster_(self) -> Booster:
        """The booster with the longest memory."""
        check_is_fitted(self)
        return self.committee_.boosters[0]

    @property
    def edges_(self) -> FloatArray:
        """The measured edge of every weak learner over the latest rows: the share of its targets it explains.

        Those of the longest memory first, (N,), then those of the next.
        """
        check_is_fitted(self)
        return np.concatenate([booster.edges.recent for booster in self.committee_.boosters])

    @property
    def weights_(self) -> dict[tuple[int | None, int], float]:
        """Whom the hedge trusts: the weight of each expert, by its memory and how many of its learners it adds up."""
        check_is_fitted(self)
        return self.committee_.weights()

    @property
    def events_(self) -> list[Event]:
        """What happened so far: memory dropped, new classes, new columns, each with its row."""
        check_is_fitted(self)
        return list(self.committee_.events)

    @property
    def feature_importances_(self) -> FloatArray:
        """Each column's share in the gain of all splits, as the trees that are listened to stand now, (d,)."""
        check_is_fitted(self)
        if not hasattr(self.booster_.stack, "feature_gains"):
            raise AttributeError(f"feature_importances_ needs trees, but the learner is {self.learner!r}.")
        return self.committee_.feature_gains()

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
        known = hasattr(self, "encoder_")
        encoder = self.encoder_ if known else Encoder(new_columns=self.new_columns)
        encoded = encoder.encode_one(x)
        if known and w == 1.0 and encoded.changes is None and not self.silent_:  # nothing new: nothing to be checked
            target = self._plain_target(y)
            if target is not None:
                self.committee_.learn_checked(encoded.X, target, np.ones(1))
                return
        self._learn_encoded(encoded, [y], None if w == 1.0 else [w])

    @abstractmethod
    def _plain_target(self, y: Any) -> FloatArray | None:
        """A target (1, k) as the loss codes it, if it is as plain as most are; None if it has to be looked at."""

    def learn_many(self, X: Any, y: Any, *, w: Any = None) -> None:
        """Learn a frame of rows; columns are matched by name, and new ones may come."""
        self._learn(X, y, w, dialect="dict")
