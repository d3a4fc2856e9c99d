"""The regressor: numbers, or several of them, from rows that keep coming."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from streamboost._types import FloatArray
from streamboost.boosting.committee import Committee
from streamboost.estimators import defaults
from streamboost.estimators.base import Row, StreamEstimator
from streamboost.estimators.prepared import Targets
from streamboost.features.labels import Labels
from streamboost.losses import Loss
from streamboost.losses.base import LARGEST_TARGET


class SGBRegressor(RegressorMixin, StreamEstimator):  # type: ignore[misc]
    """Streaming gradient boosting for real-valued targets, one or several.

    Parameters
    ----------
    loss : str or Loss, default="auto"
        ``"squared_error"`` (which ``"auto"`` stands for), ``"absolute_error"``, ``"huber"``, ``"quantile"`` (the
        median), ``"poisson"``, or any loss of :mod:`streamboost.losses`, such as ``Quantile(0.9)``.
    n_estimators : int, default=60
        N, the number of weak learners of the longest memory; shorter memories have fewer.
    learning_rate : float or "theory", default=None
        η, the step size of the longest memory; ``"theory"``: from each learner's edge. Left out, the loss suggests one.
    max_depth : int, default=7
        Depth of the trees of the longest memory.
    min_samples_leaf : int, default=5
        Rows a leaf must hold when it is grown.
    l2 : float, default=1.0
        The ridge that pulls a leaf towards 0.
    max_features : int, float, "sqrt" or None, default=None
        Among how many columns, drawn anew each time, a refitted tree looks for splits: a number, or a share of them.
    monotonic_cst : array of shape (d,) or dict, default=None
        For each column, or for some by name or number, 1, 0 or -1: whether predictions must rise with it, are free, or
        must fall. Of a classifier this is the score of the second of two classes.
    learner : "tree", "linear", "mlp", stack, or a model to wrap, default="tree"
        The weak learners: any stack, River regressor, scikit-learn regressor or fitting function. ``"mlp"`` are
        two-layer networks, a sixth as many as ``n_estimators`` says.
    base : "linear", "constant", number, base, or fitted model, default="linear"
        y⁰, where the boosting starts. A fitted model is frozen, and boosted from there.
    descent : Descent, default=None
        Left out, the loss picks it: Algorithm 1 of the paper, with leaves by Newton's method for counts. Learners other
        than trees take Algorithm 2 where the loss is not smooth.
    memory : "grow", int, sequence of int, or None, default="grow"
        How many recent rows learners are refitted to; ``None`` for all. Several numbers make a ladder of boosters with
        different memories. ``"grow"`` is a ladder of 256, 1,024, 4,096 and 16,384 rows, which a booster of up to 2,000
        trees that holds all rows may join: where the longest memory is full and believed, and at the end of
        :meth:`fit`. Learners other than trees use the longest only.
    budget : float, default=1.0
        How much refitting is done per row: 2 is twice the usual work.
    readout : {"hedge", "last", "mean"}, default="hedge"
        A vote over partial sums of all boosters, weighed by what each lost on the latest rows; or, of a single booster,
        yᴺ as in Algorithm 1 or the mean of the partial sums as in Algorithm 2.
    iterate : {"last", "average", "uniform", "polynomial"}, default="last"
        Predict with the present hypothesis or with the average of past ones; the last two average the parameters of
        networks instead, all alike or the later the more.
    update_mode : {"sequential", "minibatch"} or int, default="sequential"
        Whether a chunk is learned row by row, as if given one row at a time, or in one step, or in steps of so many.
    new_columns : {"error", "grow"}, default="error"
        Whether frames may bring new named columns; dict rows always may.
    date_parts : bool, default=True
        Whether a column of dates or timestamps is learned by its hour (with the fraction), weekday, day of month and
        day of year, too, all in UTC; else it is only its seconds since 1970. It stays one column in ``monotonic_cst``,
        which speaks of the seconds, in ``feature_importances_`` and in ``n_features_in_``.
    memory_limit_mb : float, default=None
        What the model may take: memories and numbers of learners shrink to fit, and say so. Left out, the ladder is
        what it is, and whoever holds all rows does so up to 1,024 MB.
    max_columns, max_classes : int, default=10,000 and 1,000
        How many columns, and classes of a classifier, the model may come to know; rows that would bring more are
        refused. First rows may have any number, and then no more come.
    n_jobs : int, default=None
        With 2 or more, boosters due at the same row are refitted side by side; the result is the same.
    random_state : int, RandomState or None, default=None
    semantics
        The former name of ``update_mode``.

    Attributes
    ----------
    committee_, booster_ : Committee and Booster
        What is behind it, and its booster with the longest memory.
    n_samples_seen_ : int
        Rows learned so far. A Ctrl-C while rows are learned leaves whole ones: go on with those after them. The columns
        and categories of all rows of the call are known by then.
    weights_ : dict
        Whom the hedge trusts, by memory and number of learners.
    coefficients_ : dict
        How far the prediction goes beyond the hedge's vote towards each expert, by the same.
    events_ : list of Event
        What happened when: memory dropped, grown or shrunk, history studied, new classes, new columns, memory limited.
    edges_ : array of shape (all learners,)
        The share of its targets that each learner explains on the latest rows; longest memory first.
    feature_importances_ : array of shape (d,)
        Each column's share in how far predictions move with it, base and trees together.
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
        """Forget everything and learn the rows in one pass, in their order: the last ones count most.

        Then, of 1,000 rows or more, all, or the newest that there is memory for, are swept over once more, as batch
        boosting does, if rows held back say that it pays (``memory="grow"``, and not for sparse rows). Rows that are in
        no order of time are better shuffled first: ``X, y = sklearn.utils.shuffle(X, y)``. On a terminal or in a
        notebook a line says how far it is, if that takes long. After Ctrl-C the model is what it was before.

        Parameters
        ----------
        X : array, sparse matrix, frame, Arrow table or reader, or list of dicts, of shape (n, d)
            A sparse matrix is made dense a block of 64 MB at a time, and may have up to 4,096 columns.
        y : array of shape (n,) or (n, m)
        sample_weight : array of shape (n,), default=None
            Weights count relative to the mean of those seen so far; a row of weight 0 is as if it had not come. A row
            of weight 2 is not the same as two rows, which a stream would meet one after the other.
        """
        self._restart(X, y, sample_weight)
        return self

    def fit_learn(self, X: Any, y: Any, sample_weight: Any = None) -> FloatArray:
        """Fit; return what was predicted of each row before it was learned, as :meth:`learn` does.

        Arguments as in :meth:`fit`.
        """
        return self.predict_from_scores(self._restart(X, y, sample_weight))

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows after all those learned before; arguments as in :meth:`fit`."""
        self._learn_prepared(self._prepare(X, y, sample_weight))
        return self

    def learn(self, X: Any, y: Any, sample_weight: Any = None, *, expert_scores: Any = None) -> FloatArray:
        """Predict each row, then learn it; return the predictions made before learning.

        ``expert_scores`` are what :meth:`expert_scores` gave of these rows earlier, if their labels come late.
        """
        return self.learn_prepared(self.prepare(X, y, sample_weight, expert_scores=expert_scores))

    def predict_one(self, x: Row) -> Any:
        """Predict one row; 0 before anything was learned."""
        if not hasattr(self, "committee_"):
            return 0.0
        return self.predict_from_scores(self._score_one(x))[0].tolist()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> FloatArray:
        """Return the ends of an interval for the target of every row, (n, 2), or (n, m, 2) of several targets.

        In the long run the share ``coverage`` (0.5 to 0.99) of targets lies within, on streams that change, too: it is
        learned from the predictions made before each row was learned. How wide an interval is depends on the row.

        Examples
        --------
        >>> from streamboost import SGBRegressor, datasets
        >>> X, y, *_ = datasets.friedman(3000, noise=1.0, seed=0)
        >>> model = SGBRegressor(random_state=0).partial_fit(X[:2000], y[:2000])
        >>> low, high = model.predict_interval(X[2000:]).T
        >>> bool(0.85 < ((low <= y[2000:]) & (y[2000:] <= high)).mean() < 0.95)
        True
        """
        ends = self.committee_.predict_intervals(self.encode(X), coverage)
        return ends[:, 0] if ends.shape[1] == 1 else ends

    def predict_interval_one(self, x: Row, coverage: float = 0.9) -> Any:
        """Return the ends of an interval for the target of one row, a list of two; of several targets, lists of two."""
        if not hasattr(self, "committee_"):
            return [-np.inf, np.inf]
        rows: Any = self.encoder_.encode_one(x, known_only=True).X
        ends = self.committee_.predict_intervals(rows, coverage)[0]
        return ends[0].tolist() if len(ends) == 1 else ends.tolist()

    def predict_from_scores(self, scores: FloatArray) -> FloatArray:
        """Return what raw scores (n, m) mean: a number for every row, (n,), or several, (n, m)."""
        prediction = self.committee_.loss.predict(scores)
        return prediction[:, 0] if prediction.shape[1] == 1 else prediction

    def _encode_targets(self, y: Any, classes: Any, labels: Labels | None, committee: Committee | None) -> Targets:
        return Targets(encode_numbers(y))

    def _plain_targets(self, y: Any, labels: Labels | None, loss: Loss) -> Targets | None:
        if loss.n_targets != 1 or not loss.takes_any_number:
            return None
        if type(y) is list and len(y) == 1 and type(y[0]) is float and abs(y[0]) <= LARGEST_TARGET:
            return Targets(np.array([y]))
        if type(y) is np.ndarray and y.ndim == 1 and y.dtype == float and (np.abs(y) <= LARGEST_TARGET).all():
            return Targets(y[:, None].copy())
        return None

    def _check_targets(self, y: FloatArray, loss: Loss) -> None:
        loss.check_targets(y)
        largest = np.abs(y).max(initial=0.0)
        if largest > LARGEST_TARGET:
            why = "the square of a larger one would spoil the model. Drop the row, or scale the targets."
            raise ValueError(f"y holds a target of size {largest:.3g}, expected at most {LARGEST_TARGET}: {why}")

    def _make_loss(self, targets: Targets) -> Loss:
        return defaults.make_regression_loss(self.loss, targets.y.shape[1])


def encode_numbers(y: Any) -> FloatArray:
    """Return targets that are numbers as floats (n, k), or refuse them."""
    try:
        targets = np.array(y, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y holds something that is not a number ({error}). For classes use SGBClassifier.") from None
    if targets.ndim not in (1, 2):
        raise ValueError(f"y has shape {targets.shape}, expected (n,), or (n, m) for m outputs.")
    return targets[:, None] if targets.ndim == 1 else targets
