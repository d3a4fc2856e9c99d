"""The classifier: labels and their probabilities, from rows that keep coming."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamboost._types import FloatArray
from streamboost.boosting.committee import Committee
from streamboost.boosting.drift_replacement import Event
from streamboost.errors import refused, require
from streamboost.estimators import defaults
from streamboost.estimators.base import Row, StreamEstimator
from streamboost.estimators.prepared import Prepared, Targets
from streamboost.estimators.undo import Undo
from streamboost.features.encoder import Encoder
from streamboost.features.labels import Labels
from streamboost.features.sparse_rows import SparseRows
from streamboost.losses import Logistic, Loss, Softmax
from streamboost.losses.links import Logit

HALVES: FloatArray = np.array([-0.5, 0.5])  # of one score for two classes: the score of each
Method: TypeAlias = Literal["predict", "predict_proba", "decision_function"]


def _has_probabilities(estimator: Any) -> bool:
    return bool(getattr(estimator.loss, "name", estimator.loss) != "hinge")


class SGBClassifier(ClassifierMixin, StreamEstimator):  # type: ignore[misc]
    """Streaming gradient boosting for classes, any number of them; new ones may appear mid-stream.

    Parameters
    ----------
    loss : str or Loss, default="auto"
        ``"log_loss"`` (which ``"auto"`` stands for; softmax over all classes seen), or the paper's ``"logistic"`` and
        ``"hinge"``: on one score for two classes, one versus the rest if more are declared at the start.
    n_estimators, learning_rate, max_depth, min_samples_leaf, l2, max_features, monotonic_cst, learner, base, descent
        As in :class:`SGBRegressor`.
    memory, budget, readout, iterate, update_mode, new_columns, date_parts, memory_limit_mb, max_columns, max_classes
        As in :class:`SGBRegressor`.
    n_jobs, random_state
        As in :class:`SGBRegressor`.

    Attributes
    ----------
    classes_ : array
        The classes known so far: sorted at the first call, new ones at the end.
    committee_, booster_, n_samples_seen_, weights_, coefficients_, events_, edges_, feature_importances_
        As in :class:`SGBRegressor`.
    n_features_in_, feature_names_in_
        As in :class:`SGBRegressor`.

    Examples
    --------
    >>> from streamboost import SGBClassifier
    >>> model = SGBClassifier()
    >>> for t in range(300):
    ...     model.learn_one({"price": t % 7, "city": "Bonn" if t % 2 else "Graz"}, "buy" if t % 7 > 3 else "wait")
    >>> model.predict_one({"price": 6, "city": "Graz"})
    'buy'
    >>> model.learn_one({"price": 2}, "sell")  # a class never seen before
    >>> sorted(model.predict_proba_one({"price": 2}))
    ['buy', 'sell', 'wait']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn the rows; arguments, and what becomes of them, as in :meth:`SGBRegressor.fit`.

        The labels ``y``, of shape (n,), are strings, booleans or whole numbers. If those of the last tenth of the rows
        are unlike the others, as after over-sampling, which appends copies, or in a table sorted by class, a warning
        says so: shuffle such rows first. In a pipeline of imbalanced-learn the step after the sampler does it:
        ``FunctionSampler(func=sklearn.utils.shuffle, validate=False)``.
        """
        self._restart(X, y, sample_weight, classes=_classes_of(y))
        return self

    def fit_learn(self, X: Any, y: Any, sample_weight: Any = None, *, method: Method = "predict") -> NDArray[Any]:
        """Fit; return what was predicted of each row before it was learned, as :meth:`learn` does.

        Arguments as in :meth:`fit`; ``method``, ``"predict"`` by default, as in :meth:`learn`.
        """
        self._check_method(method)
        scores = self._restart(X, y, sample_weight, classes=_classes_of(y))
        return self.predict_from_scores(self._class_scores(scores), method)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Learn the rows after all those learned before; arguments as in :meth:`fit`.

        ``classes``, None by default, are classes to expect: good to know at the first call, never needed.
        """
        self._learn_prepared(self._prepare(X, y, sample_weight, classes=classes))
        return self

    def learn(
        self, X: Any, y: Any, sample_weight: Any = None, *, method: Method = "predict", expert_scores: Any = None
    ) -> NDArray[Any]:
        """Predict each row, then learn it; return the predictions made before learning. Arguments as in :meth:`fit`.

        ``method``, ``"predict"`` by default, says what to return. A class not known when a row was predicted has
        probability 0 there; the label of a row predicted before any class was known is None. ``expert_scores`` are
        what :meth:`expert_scores` gave of these rows earlier, if their labels come late.
        """
        return self.learn_prepared(self._prepare(X, y, sample_weight, expert_scores=expert_scores), method=method)

    def learn_prepared(
        self, prepared: Prepared, *, method: Method = "predict", undo: Undo | None = None
    ) -> NDArray[Any]:
        """Predict each prepared row, then learn it; return the predictions made before learning.

        A ``ValueError`` says so if the model has met other columns or classes since the rows were prepared. ``method``
        is as in :meth:`learn`; ``undo``, None by default, is what :meth:`undo` returned of these rows.
        """
        self._check_method(method)
        scores = self._learn_prepared(prepared, undo)
        if prepared.targets.n_declared == len(self.labels_):
            scores = self._class_scores(scores)
        return self.predict_from_scores(scores, method)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes known so far."""
        check_is_fitted(self)
        return self.labels_.classes  # type: ignore[no-any-return]

    def decision_function(self, X: Any) -> FloatArray:
        """The raw scores: (n,) for two classes, (n, K) for more."""
        return self._decision(self.raw_scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probability of every class, (n, K), in the order of ``classes_``."""
        return self._probabilities(self.raw_scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Predict the logarithm of every class's probability, (n, K): finite even where the probability rounds to 0."""
        return self._log_probabilities(self.raw_scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def staged_predict_proba(self, X: Any) -> Iterator[FloatArray]:
        """Predict probabilities with the first learner, the first two, and so on."""
        return map(self._probabilities, self._staged_scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_set(self, X: Any, coverage: float = 0.9) -> list[tuple[Any, ...]]:
        """Return for every row the labels among which its class is, the most probable first; never none.

        In the long run the share ``coverage`` (0.5 to 0.99) of classes is among them, or more: one label is enough
        where the model is right as often. It is learned from the predictions made before each row was learned.
        """
        probabilities, labels = self.predict_proba(X), self.classes_.tolist()
        intervals = self.committee_.intervals
        least = 0.0 if intervals is None else intervals.least_probability(coverage)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        sizes = np.maximum((probabilities >= least).sum(axis=1), 1)
        return [tuple(labels[k] for k in row[:n]) for row, n in zip(order.tolist(), sizes.tolist(), strict=True)]

    def predict_one(self, x: Row) -> Any:
        """Predict one row; None before anything was learned."""
        if not hasattr(self, "committee_"):
            return None
        return self.predict_from_scores(self._score_one(x)).tolist()[0]

    def predict_proba_one(self, x: Row) -> dict[Any, float]:
        """Predict the probability of every class known so far."""
        self._check_has_probabilities()
        if not hasattr(self, "committee_"):
            return {}
        return dict(zip(self.labels_.numbers, self._probabilities(self._score_one(x))[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Predict probabilities for a frame of rows; a pandas DataFrame with one column per class."""
        self._check_has_probabilities()
        pandas = require("pandas", extra="river", by="predict_proba_many")
        probabilities = self._probabilities(self._scores_of_frame(X))
        return pandas.DataFrame(probabilities, index=getattr(X, "index", None), columns=list(self.labels_.numbers))

    # Scores to answers. A score of -inf belongs to a class that was not known yet.

    def _class_scores(self, scores: FloatArray) -> FloatArray:
        """One score for two classes as a score for each, where new classes may come."""
        if type(self.committee_.loss) is Softmax or not self._is_log_loss():
            return scores
        return scores * HALVES[: len(self.labels_)]

    def _decision(self, scores: FloatArray) -> FloatArray:
        if scores.shape[1] == 2:
            with np.errstate(invalid="ignore"):
                return scores[:, 1] - scores[:, 0]
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_from_scores(self, scores: FloatArray, method: Method = "predict") -> NDArray[Any]:
        """Return what raw scores (n, m) mean, as ``method`` would: a label for every row, say."""
        if method != "predict":
            return self._decision(scores) if method == "decision_function" else self._probabilities(scores)
        classes = self.labels_.classes
        if self._is_one_score() and len(classes) == 2:
            return classes[(scores[:, 0] > 0).astype(int)]  # type: ignore[no-any-return]
        labels = classes[scores.argmax(axis=1)]
        unknown = np.isneginf(scores).all(axis=1)
        if unknown.any():
            labels = labels.astype(object)
            labels[unknown] = None
        return labels  # type: ignore[no-any-return]

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        if self._is_log_loss():
            unknown = np.isneginf(scores).all(axis=1, keepdims=True)
            return np.where(unknown, 0.0, Softmax.link.predict(np.where(unknown, 0.0, scores)))
        p = self.committee_.loss.predict(scores)
        if self._is_one_score():
            return np.concatenate([1.0 - p, p], axis=1) if len(self.labels_) == 2 else np.ones_like(p)
        normalised: FloatArray = p / p.sum(axis=1, keepdims=True)
        return normalised

    def _log_probabilities(self, scores: FloatArray) -> FloatArray:
        """Log-probabilities from the scores themselves: of odds, up to what they sum to."""
        if self._is_log_loss():
            odds = scores
        elif not isinstance(self.committee_.loss.link, Logit):  # a loss of the user's own
            with np.errstate(divide="ignore"):
                return np.log(self._probabilities(scores))
        elif self._is_one_score():
            odds = scores * HALVES[: len(self.labels_)]
        else:
            odds = -np.logaddexp(0.0, -scores)
        normalised: FloatArray = odds - np.logaddexp.reduce(odds, axis=1, keepdims=True)
        return normalised

    def _is_log_loss(self) -> bool:
        return not defaults.is_one_versus_rest(self.loss)

    def _is_one_score(self) -> bool:
        """Whether the answer is the sign of one score, as the paper's binary losses have it."""
        return self.committee_.loss.n_outputs == 1 and not self._is_log_loss()

    def _check_method(self, method: str) -> None:
        if method not in ("predict", "predict_proba", "decision_function"):
            raise refused("method", method, f"'predict', 'predict_proba' or 'decision_function'. {defaults.UNSURE}")
        if method == "predict_proba":
            self._check_has_probabilities()

    def _check_has_probabilities(self) -> None:
        if not _has_probabilities(self):
            raise NotImplementedError(f"loss {self.loss!r} gives no probabilities. Use 'log_loss' or 'logistic'.")

    # Labels to targets.

    def _encode_targets(self, y: Any, classes: Any, labels: Labels | None, committee: Committee | None) -> Targets:
        labels = Labels() if labels is None else labels
        column = _label_column(y)
        if classes is not None:
            labels = labels.with_new(sorted(labels.encode(_label_column(classes))[1]))
        codes, new = labels.encode(column)
        if self.monotonic_cst is not None and len(labels) + len(new) > 2:
            given = f"y has the classes {[*labels.numbers, *new]!r}, but monotonic_cst is given"
            raise ValueError(f"{given}, expected two classes: of more it is not clear which should rise. Leave it out.")
        if not self._is_log_loss():
            if committee is None:  # the classes of the first chunk are the classes
                labels = labels.with_new(sorted(new))
                codes, new = labels.encode(column)
            room = max(len(labels) if committee is None else committee.loss.n_outputs, 2)
            if len(labels) + len(new) > room:
                one_more, limit = [*labels.numbers, *new][room], f"loss {self.loss!r} has room for {room} classes"
                way_out = "Declare all classes at the first call (classes=...), or use loss='log_loss'."
                raise ValueError(f"y brings the class {one_more!r}, but {limit}. {way_out}")
        return Targets(codes[:, None], labels.with_new(new), len(labels))

    def _plain_targets(self, y: Any, labels: Labels | None, loss: Loss) -> Targets | None:
        if labels is None or type(y) is not list or len(y) != 1:
            return None
        numbers = labels.numbers
        code = numbers.get(y[0]) if numbers and type(y[0]) is type(next(iter(numbers))) else None
        return None if code is None else Targets(np.array([[float(code)]]), labels, len(numbers))

    def _make_loss(self, targets: Targets) -> Loss:
        n_first = max(targets.n_declared, int(targets.y[0, 0]) + 1)  # the first row brings its own class
        return defaults.make_classification_loss(self.loss, n_first)

    def _n_outputs(self, targets: Targets, loss: Loss) -> int:
        assert targets.labels is not None
        n_classes = len(targets.labels)
        is_fixed = not self._is_log_loss() or (isinstance(loss, Logistic) and n_classes <= 2)
        return loss.n_outputs if is_fixed else max(n_classes, loss.n_outputs)

    def _make_committee(self, targets: Targets, encoder: Encoder) -> Committee:
        """One score is enough for two classes, at half the work, if it can be split should a third class come."""
        committee = super()._make_committee(targets, encoder)
        if self._is_log_loss() and committee.loss.n_outputs <= 2 and committee.splits:
            loss = Logistic(l2=committee.loss.l2 / 2.0)
            committee = defaults.make_committee(
                self._options(encoder), loss, committee.boosters[0].seed, one_score=True
            )
        return committee

    def _learn_classes(
        self, X: FloatArray | SparseRows, targets: Targets, weight: FloatArray, early: FloatArray
    ) -> FloatArray:
        y, labels, known = targets
        committee = self.committee_
        assert labels is not None
        if not self._is_log_loss():
            self.labels_ = labels
            return self._learn_rows(X, defaults.margins(y[:, 0], committee.loss.n_outputs), weight, early)
        if not hasattr(self, "labels_") or self.labels_ is not labels:
            self.labels_ = labels.first(known)
            self._make_room()
        if known == len(labels):
            return self._learn_codes(X, y, weight, early)  # learn_prepared makes class scores of them, if asked for
        scores = np.full((len(X), len(labels)), -math.inf)
        start = 0
        while start < len(X):  # up to the first row of a class not known yet; that row brings it
            stop = start + int(np.argmax(np.append(y[start:], math.inf) >= known))
            if stop > start:
                rows = slice(start, stop)
                learned = self._learn_codes(X[rows], y[rows], weight[rows], early[rows])
                scores[rows, :known] = self._class_scores(learned)
            if stop < len(X):
                row = slice(stop, stop + 1)
                x = np.asarray(X[row])
                if known and committee.n_rows:  # before its class is known
                    scores[row, :known] = self._class_scores(committee.score(x))
                known += 1
                self.labels_ = labels.first(known)
                if committee.n_rows:
                    committee.events.append(Event(committee.n_rows, "new class", str(self.classes_[-1])))
                self._make_room(x)
                self._learn_codes(x, y[row], weight[row], early[row])
                stop += 1
            start = stop
        return scores

    def _coded(self, y: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        loss = self.committee_.loss
        if not self._is_log_loss():
            return defaults.margins(y[:, 0], loss.n_outputs), scores
        if isinstance(loss, Softmax):
            worst = np.where(np.isfinite(scores), scores, 0.0).min(axis=1, keepdims=True) - math.log(len(y))
            return y, np.where(np.isneginf(scores), worst, scores)
        if scores.shape[1] == 2:  # of classes that were not known from the first row on
            scores = np.where(np.isfinite(scores).all(axis=1), np.diff(scores, axis=1)[:, 0], 0.0)[:, None]
        return 2.0 * y - 1.0, scores

    def _learn_codes(
        self, X: FloatArray | SparseRows, codes: FloatArray, weight: FloatArray, early: FloatArray
    ) -> FloatArray:
        """Learn rows of known classes."""
        is_coded = type(self.committee_.loss) is Softmax
        return self._learn_rows(X, codes if is_coded else 2.0 * codes - 1.0, weight, early)

    def _make_room(self, x: FloatArray | None = None) -> None:
        """Give new classes an output, as unlikely on the rows remembered as a class never seen so far is."""
        committee = self.committee_
        n_classes = len(self.labels_)
        if not isinstance(committee.loss, Softmax):
            if n_classes <= 2:
                return
            committee.split_output(Softmax(n_classes=2, l2=2.0 * committee.loss.l2))
        if n_classes <= committee.loss.n_outputs:
            return
        loss = Softmax(n_classes=n_classes, l2=committee.loss.l2)
        replay = committee.boosters[-1].replay
        remembered = [] if replay is None else [replay.newest(256)[0]]
        rows = np.concatenate([*remembered, *([] if x is None else [x])])
        others = np.logaddexp.reduce(committee.score(rows), axis=1)  # (rows,)
        committee.add_outputs(loss, float(others.min()) - math.log(committee.n_rows + 1))


def _classes_of(y: Any) -> Any:
    return None if y is None else Labels().encode(_label_column(y))[1]


def _label_column(y: Any) -> Any:
    return y if getattr(y, "ndim", 1) == 1 else column_or_1d(y, warn=True)
