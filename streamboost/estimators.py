"""The two estimators, fluent in scikit-learn's dialect and in River's, on the same state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamboost import recipes
from streamboost._types import FloatArray
from streamboost.boosting.committee import Committee
from streamboost.boosting.drift_replacement import Event
from streamboost.errors import require
from streamboost.estimator_base import Row, StreamEstimator, Targets
from streamboost.features.encoder import Encoded
from streamboost.features.labels import Labels
from streamboost.losses import Logistic, Loss, Softmax
from streamboost.losses.base import LARGEST_TARGET


class SGBRegressor(RegressorMixin, StreamEstimator):  # type: ignore[misc]
    """Streaming gradient boosting for real-valued targets, one or several.

    Parameters
    ----------
    loss : str or Loss
        ``"squared_error"`` (which ``"auto"`` stands for), ``"absolute_error"``, ``"huber"``, ``"quantile"`` (the
        median), ``"poisson"``, or any loss of :mod:`streamboost.losses`, such as ``Quantile(0.9)``.
    n_estimators : int
        N, the number of weak learners of the longest memory; shorter memories have fewer.
    learning_rate : float or "theory", optional
        η, the step size of the longest memory. ``"theory"`` takes it from each learner's measured edge. Left out, the
        loss suggests one.
    max_depth : int
        Depth of the trees of the longest memory.
    min_samples_leaf : int
        Rows a leaf must hold when it is grown.
    l2 : float
        The ridge that pulls a leaf towards 0.
    max_features : int, float, "sqrt" or None
        Among how many columns, drawn anew each time, a refitted tree looks for splits: a number, or a share of them.
    monotonic_cst : array of shape (d,) or dict, optional
        For each column, or for some by name or number, 1, 0 or -1: whether predictions must rise with it, are free, or
        must fall. Of a classifier this is the score of the second of two classes.
    learner : "tree", "linear", "mlp", stack, or a model to wrap
        The weak learners: any stack, River regressor, scikit-learn regressor or fitting function. ``"mlp"`` are
        two-layer networks, a sixth as many as ``n_estimators`` says.
    base : "linear", "constant", number, base, or fitted model
        y⁰, where the boosting starts. A fitted model is frozen, and boosted from there.
    descent : Descent, optional
        Left out, the loss picks it: Algorithm 1 of the paper if it is smooth, Algorithm 2 if not.
    memory : int, sequence of int, or None
        How many recent rows learners are refitted to; ``None`` for all. Several numbers make a ladder of boosters with
        different memories. Learners other than trees use the longest only.
    budget : float
        How much refitting is done per row: 2 is twice the usual work.
    readout : {"hedge", "last", "mean"}
        A vote over partial sums of all boosters, weighed by what each lost on the latest rows; or, of a single booster,
        yᴺ as in Algorithm 1 or the mean of the partial sums as in Algorithm 2.
    iterate : {"last", "average", "uniform", "polynomial"}
        Predict with the present hypothesis or with the average of past ones; the last two average the parameters of
        networks instead, all alike or the later the more.
    semantics : {"sequential", "minibatch"} or int
        Whether a chunk is learned row by row, as if given one row at a time, or in one step, or in steps of so many.
    new_columns : {"error", "grow"}
        Whether frames may bring new named columns; dict rows always may.
    memory_limit_mb : float, optional
        What the model may take: memories and numbers of learners shrink to fit, and say so.
    n_jobs : int, optional
        With 2 or more, boosters due at the same row are refitted side by side; the result is the same.
    random_state : int, RandomState or None

    Attributes
    ----------
    committee_ : Committee
        What is behind it.
    booster_ : Booster
        The booster with the longest memory.
    weights_ : dict
        Whom the hedge trusts, by memory and number of learners.
    events_ : list of Event
        What happened when: memory dropped, new classes, new columns, memory limited.
    edges_, feature_importances_ : arrays of shape (all learners,) and (d,)
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from streamboost import SGBRegressor
    >>> X, y = make_friedman1(2000, noise=1.0, random_state=0)
    >>> model = SGBRegressor()
    >>> before = model.learn(X, y)  # each row predicted, then learned
    >>> rmse = ((before[1000:] - y[1000:]) ** 2).mean() ** 0.5
    >>> bool(rmse < 0.5 * y.std())
    True
    >>> model.learn_one({0: 0.5, 3: 0.2}, 14.0)  # River's dialect, on the same state
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Forget everything and learn the rows in one pass.

        Parameters
        ----------
        X : array, frame, Arrow table or list of dicts of shape (n, d)
        y : array of shape (n,) or (n, m)
        sample_weight : array of shape (n,), optional
        """
        return self._restart(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows after all those learned before; arguments as in :meth:`fit`."""
        self._learn(X, y, sample_weight)
        return self

    def learn(self, X: Any, y: Any, sample_weight: Any = None) -> FloatArray:
        """Predict each row, then learn it; return the predictions made before learning."""
        return self._answers(self._learn(X, y, sample_weight))

    def predict_one(self, x: Row) -> Any:
        """Predict one row; 0 before anything was learned."""
        if not hasattr(self, "committee_"):
            return 0.0
        return self._answers(self._score_one(x))[0].tolist()

    def _answers(self, scores: FloatArray) -> FloatArray:
        prediction = self.committee_.loss.predict(scores)
        return prediction[:, 0] if prediction.shape[1] == 1 else prediction

    def _encode_targets(self, y: Any, classes: Any = None) -> Targets:
        try:
            targets = np.array(y, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"y holds something that is not a number ({error}). For classes use SGBClassifier."
            ) from None
        if targets.ndim not in (1, 2):
            raise ValueError(f"y has shape {targets.shape}, expected (n,), or (n, m) for m outputs.")
        return Targets(targets[:, None] if targets.ndim == 1 else targets)

    def _plain_target(self, y: Any) -> FloatArray | None:
        loss = self.committee_.loss
        if type(y) is not float or not abs(y) <= LARGEST_TARGET or loss.n_targets != 1 or not loss.takes_any_number:
            return None
        return np.array([[y]])

    def _check_targets(self, targets: Targets, loss: Loss) -> None:
        loss.check_targets(targets.values)
        largest = np.abs(targets.values).max(initial=0.0)
        if largest > LARGEST_TARGET:
            raise ValueError(
                f"y holds a target of size {largest:.3g}, expected at most {LARGEST_TARGET}: the square of a larger "
                "one would spoil the model. Drop the row, or scale the targets."
            )

    def _make_loss(self, targets: Targets) -> Loss:
        return recipes.make_regression_loss(self.loss, targets.values.shape[1])

    def _advance(self, X: FloatArray, targets: Targets, weight: FloatArray) -> FloatArray:
        return self._learn_rows(X, targets.values, weight)


def _has_probabilities(estimator: Any) -> bool:
    return bool(getattr(estimator.loss, "name", estimator.loss) != "hinge")


class SGBClassifier(ClassifierMixin, StreamEstimator):  # type: ignore[misc]
    """Streaming gradient boosting for classes, any number of them; new ones may appear mid-stream.

    Parameters
    ----------
    loss : str or Loss
        ``"log_loss"`` (which ``"auto"`` stands for; softmax over all classes seen), or the paper's ``"logistic"`` and
        ``"hinge"``: on one score for two classes, one versus the rest if more are declared at the start.
    n_estimators, learning_rate, max_depth, min_samples_leaf, l2, max_features, monotonic_cst, learner, base, descent
        As in :class:`SGBRegressor`.
    memory, budget, readout, iterate, semantics, new_columns, memory_limit_mb, n_jobs, random_state
        As in :class:`SGBRegressor`.

    Attributes
    ----------
    classes_ : array
        The classes known so far: sorted at the first call, new ones at the end.
    committee_, booster_, weights_, events_, edges_, feature_importances_, n_features_in_, feature_names_in_
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
        """Forget everything and learn the rows in one pass.

        Parameters
        ----------
        X : array, frame, Arrow table or list of dicts of shape (n, d)
        y : array of shape (n,)
            Strings, booleans or whole numbers.
        sample_weight : array of shape (n,), optional
        """
        classes = None if y is None else Labels().encode(_label_column(y))[1]
        return self._restart(X, y, sample_weight, classes=classes)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Learn the rows after all those learned before.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array, optional
            Classes to expect: good to know at the first call, never needed.
        """
        self._learn(X, y, sample_weight, classes=classes)
        return self

    def learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        method: Literal["predict", "predict_proba", "decision_function"] = "predict",
    ) -> NDArray[Any]:
        """Predict each row, then learn it; return the predictions made before learning.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        method : {"predict", "predict_proba", "decision_function"}
            What to return. A class not known when a row was predicted has probability 0 there; the label of a row
            predicted before any class was known is None.
        """
        if method not in ("predict", "predict_proba", "decision_function"):
            raise ValueError(
                f"method is {method!r}, expected 'predict', 'predict_proba' or 'decision_function'. "
                "If unsure, leave it out."
            )
        if method == "predict_proba":
            self._check_has_probabilities()
        scores = self._learn(X, y, sample_weight)
        if method == "decision_function":
            return self._decision(scores)
        return self._answers(scores) if method == "predict" else self._probabilities(scores)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes known so far."""
        check_is_fitted(self)
        classes: NDArray[Any] = self.labels_.classes
        return classes

    def decision_function(self, X: Any) -> FloatArray:
        """The raw scores: (n,) for two classes, (n, K) for more."""
        return self._decision(self._scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probability of every class, (n, K), in the order of ``classes_``."""
        return self._probabilities(self._scores(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def staged_predict_proba(self, X: Any) -> Iterator[FloatArray]:
        """Predict probabilities with the first learner, the first two, and so on."""
        return map(self._probabilities, self._staged_scores(X))

    def predict_one(self, x: Row) -> Any:
        """Predict one row; None before anything was learned."""
        if not hasattr(self, "committee_"):
            return None
        return self._answers(self._score_one(x)).tolist()[0]

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
        probabilities = self._probabilities(self._scores(X, "dict"))
        return pandas.DataFrame(probabilities, index=getattr(X, "index", None), columns=list(self.labels_.numbers))

    # Scores to answers. A score of -inf belongs to a class that was not known yet.

    def _class_scores(self, scores: FloatArray) -> FloatArray:
        """One score for two classes as a score for each, where new classes may come."""
        if not self._is_log_loss() or isinstance(self.committee_.loss, Softmax):
            return scores
        return np.concatenate([-scores / 2, scores / 2], axis=1)[:, : len(self.labels_)]

    def _decision(self, scores: FloatArray) -> FloatArray:
        if scores.shape[1] == 2:
            with np.errstate(invalid="ignore"):
                return scores[:, 1] - scores[:, 0]
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _answers(self, scores: FloatArray) -> NDArray[Any]:
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

    def _is_log_loss(self) -> bool:
        return not recipes.is_one_versus_rest(self.loss)

    def _is_one_score(self) -> bool:
        """Whether the answer is the sign of one score, as the paper's binary losses have it."""
        return self.committee_.loss.n_outputs == 1 and not self._is_log_loss()

    def _check_has_probabilities(self) -> None:
        if not _has_probabilities(self):
            raise NotImplementedError(f"loss {self.loss!r} gives no probabilities. Use 'log_loss' or 'logistic'.")

    # Labels to targets.

    def _encode_targets(self, y: Any, classes: Any = None) -> Targets:
        first = not hasattr(self, "committee_")
        labels = Labels() if first else self.labels_
        column = _label_column(y)
        if classes is not None:
            labels = labels.extended(sorted(labels.encode(_label_column(classes))[1]))
        codes, new = labels.encode(column)
        if self.monotonic_cst is not None and len(labels) + len(new) > 2:
            raise ValueError(
                f"y has the classes {[*labels.numbers, *new]!r}, but monotonic_cst is given, expected two classes: of "
                "more it is not clear which should rise. Leave it out."
            )
        if recipes.is_one_versus_rest(self.loss):
            if first:  # the classes of the first chunk are the classes
                labels = labels.extended(sorted(new))
                codes, new = labels.encode(column)
            room = max(len(labels) if first else self.committee_.loss.n_outputs, 2)
            if len(labels) + len(new) > room:
                raise ValueError(
                    f"y brings the class {[*labels.numbers, *new][room]!r}, but loss {self.loss!r} has room for {room} "
                    "classes. Declare all classes at the first call (classes=...), or use loss='log_loss'."
                )
        return Targets(codes[:, None], labels, new)

    def _plain_target(self, y: Any) -> FloatArray | None:
        numbers = self.labels_.numbers
        if not numbers or type(y) is not type(next(iter(numbers))) or not self._is_log_loss():
            return None
        code = numbers.get(y)
        if code is None:
            return None
        return np.array([[float(code) if isinstance(self.committee_.loss, Softmax) else 2.0 * code - 1.0]])

    def _make_loss(self, targets: Targets) -> Loss:
        return recipes.make_classification_loss(self.loss, max(len(targets.labels), 1))

    def _make_committee(self, targets: Targets, encoded: Encoded) -> Committee:
        """One score is enough for two classes, at half the work, if it can be split should a third class come."""
        committee = super()._make_committee(targets, encoded)
        if self._is_log_loss() and committee.loss.n_outputs <= 2 and committee.splits:
            loss = Logistic(l2=committee.loss.l2 / 2.0)
            names = None if encoded.changes is None else encoded.changes.names
            committee = recipes.make_committee(self._options(names), loss, committee.boosters[0].seed, one_score=True)
        return committee

    def _advance(self, X: FloatArray, targets: Targets, weight: FloatArray) -> FloatArray:
        self.labels_ = labels = targets.labels
        codes = targets.values[:, 0]
        committee = self.committee_
        if not self._is_log_loss():
            self.labels_ = labels.extended(targets.new)
            return self._learn_rows(X, recipes.margins(codes, committee.loss.n_outputs), weight)
        scores = np.full((len(X), len(labels) + len(targets.new)), -math.inf)
        self._make_room()
        start = 0
        while start < len(X):  # up to the first row of a class not known yet; that row brings it
            known = len(self.labels_)
            stop = start + int(np.argmax(np.append(codes[start:], math.inf) >= known))
            if stop > start:
                rows = slice(start, stop)
                scores[rows, :known] = self._learn_codes(X[rows], codes[rows], weight[rows])
            if stop < len(X):
                row = slice(stop, stop + 1)
                if known and committee.is_open:  # before its class is known
                    scores[row, :known] = self._class_scores(committee.score(X[row]))
                self.labels_ = self.labels_.extended([targets.new[known - len(targets.labels)]])
                if committee.n_rows:
                    committee.events.append(Event(committee.n_rows, "new class", str(self.classes_[-1])))
                self._make_room(X[row])
                self._learn_codes(X[row], codes[row], weight[row])
                stop += 1
            start = stop
        return scores

    def _learn_codes(self, X: FloatArray, codes: FloatArray, weight: FloatArray) -> FloatArray:
        """Learn rows of known classes; return a score for each class."""
        if not isinstance(self.committee_.loss, Softmax):
            codes = 2.0 * codes - 1.0
        return self._class_scores(self._learn_rows(X, codes[:, None], weight))

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
        if not committee.is_open:
            for booster in committee.boosters:
                booster.loss = loss
            return
        replay = committee.boosters[-1].replay
        remembered = [] if replay is None else [replay.newest(256)[0]]
        rows = np.concatenate([*remembered, *([] if x is None else [x])])
        others = np.logaddexp.reduce(committee.score(rows), axis=1)  # (rows,)
        committee.add_outputs(loss, float(others.min()) - math.log(committee.n_rows + 1))


def _label_column(y: Any) -> Any:
    return y if getattr(y, "ndim", 1) == 1 else column_or_1d(y, warn=True)
