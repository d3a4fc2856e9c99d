"""N copies of anyone's regressor: River's, scikit-learn's, or a function.

====================  ==========================  ==================================================
a model with          goes into                   and learns
====================  ==========================  ==================================================
``learn_one``         :class:`RiverStack`         row after row
``partial_fit``       :class:`PartialFitStack`    chunk after chunk
``fit``               :class:`BatchStack`         in its turn, from the rows the replay remembers
(a function)          :class:`FunctionStack`      likewise
====================  ==========================  ==================================================

:func:`wrap` chooses. The models given are patterns: they are cloned, never trained. All randomness follows the
seed given to :meth:`Stack.open`, so a ``seed`` or ``random_state`` set in the pattern is replaced, with another
number for every copy.

Rows of weight 0 are never shown to a model. Weights other than 0 and 1 go to models that take weights; the
others refuse them, since a model that counts rows cannot count half of one.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.errors import refused
from streamboost.stacks import refitted
from streamboost.stacks.base import Stack
from streamboost.stacks.refitted import BatchStack, FunctionStack, Habits, has, refuse_class


def wrap(model: Any, n_learners: int = 10) -> Stack:
    """Make a stack of N copies of whatever regresses: a River model, a scikit-learn estimator, or a function.

    Parameters
    ----------
    model : object
        A stack is returned as it is, with as many learners as it has. Otherwise the first that fits:
        ``learn_one`` and ``predict_one`` (River), ``partial_fit`` and ``predict``, ``fit`` and ``predict``, a
        function ``fit(X, target, weight) -> h``.
    n_learners : int

    Examples
    --------
    >>> from sklearn.linear_model import Ridge, SGDRegressor
    >>> type(wrap(SGDRegressor())).__name__, type(wrap(Ridge())).__name__
    ('PartialFitStack', 'BatchStack')
    """
    if isinstance(model, Stack):
        return model
    refuse_class("model", model)
    kinds: list[tuple[bool, Callable[[Any, int], Stack]]] = [
        (_speaks_river(model), RiverStack),
        (has(model, "partial_fit", "predict"), PartialFitStack),
        (has(model, "fit", "predict"), BatchStack),
        (callable(model), FunctionStack),
    ]
    for fits, make in kinds:
        if fits:
            return make(model, n_learners)
    river, sklearn = "a River regressor (learn_one, predict_one, clone)", "(partial_fit or fit, and predict)"
    others = "or a function fit(X, target, weight) that returns h(X). For anything else write a Stack."
    raise refused("model", model, f"a Stack, {river}, a scikit-learn regressor {sklearn}, {others}", TypeError)


class Copy(NamedTuple):
    """A copy of the pattern, and how many columns there were when it was made."""

    model: Any
    n_features: int


class CopiedStack(Stack):
    """N x m independent copies of one model, each made when it is first told something; it says 0 till then."""

    _copies: list[list[Copy | None]]

    def _open(self, seed: int) -> None:
        self._seed = seed
        self._copies = [[None] * self.n_outputs for _ in range(self.n_learners)]

    def grow(self, k: int) -> None:
        """Append k learners that say 0 until they learn."""
        self._copies += [[None] * self.n_outputs for _ in range(k)]
        self.n_learners += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns."""
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs, each with copies of its own."""
        for copies in self._copies:
            copies += [None] * k
        self.n_outputs += k

    def _each(self) -> Iterator[tuple[int, int, Copy | None]]:
        """Learner, output and copy, for each of the N x m."""
        for i, copies in enumerate(self._copies):
            for j, copy in enumerate(copies):
                yield i, j, copy


class RiverStack(CopiedStack):
    """N copies, for every output, of a River regressor, each learning row after row.

    Column j of ``X`` is the feature ``j`` of River's rows; a missing value is an absent feature. A copy that
    has no answer yet (``None`` or NaN) says 0. Columns added mid-stream reach all learners at once.

    Weights are passed on as ``w`` if the model's ``learn_one`` has that parameter (a pipeline's: that of its
    last step); a model without it takes weights 0 and 1 only, and so does a pipeline of River before 0.24.

    Parameters
    ----------
    model : river.base.Regressor
        The pattern, a pipeline too.
    n_learners : int

    Examples
    --------
    >>> import numpy as np
    >>> from river import linear_model, preprocessing
    >>> from streamboost import Booster, bases, descents, losses
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = X @ [1.0, -2.0]
    >>> stack = RiverStack(preprocessing.StandardScaler() | linear_model.LinearRegression(), n_learners=8)
    >>> booster = Booster(losses.Squared(), descents.GradientDescent(0.5), stack, base=bases.Constant(0))
    >>> before = booster.learn(X, y)
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(1))
    0.0
    """

    def __init__(self, model: Any, n_learners: int = 10) -> None:
        super().__init__(n_learners)
        refuse_class("model", model)
        if not _speaks_river(model):
            expected = "a River regressor, with learn_one, predict_one and clone. For other models use wrap."
            raise refused("model", model, expected, TypeError)
        last = _last_step(model)
        if hasattr(last, "predict_proba_one"):
            raise refitted.no_regressor("model", "classifier", type(last).__name__)
        self.model = model
        self.kind = type(last).__name__
        self._takes_weight = "w" in inspect.signature(last.learn_one).parameters and not _drops_weight(model)

    def predict(self, X: FloatArray) -> FloatArray:
        """What each copy says, (n, N, m)."""
        said = np.zeros((len(X), self.n_learners, self.n_outputs))
        rows = list(_dicts(X))
        for i, j, copy in self._each():
            if copy is not None:
                who = f"learner {i} ({self.kind})"
                said[:, i, j] = [_number(copy.model.predict_one(row), t, who) for t, row in enumerate(rows)]
        return said

    def check_weight(self, weight: FloatArray) -> None:
        """Refuse weights other than 0 and 1 if ``learn_one`` takes none."""
        if not self._takes_weight:
            dropped = "a pipeline of River before 0.24 does not pass w on"
            why = dropped if _drops_weight(self.model) else "its learn_one has no w"
            refitted.refuse_weights(weight, self.kind, why)

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One ``learn_one`` per row, learner and output."""
        self.check_weight(weight)
        for row, target, w in zip(_dicts(X), targets.tolist(), weight.tolist(), strict=True):
            if w == 0:
                continue
            extra = {} if w == 1 else {"w": w}
            for i, j, copy in self._each():
                if copy is None:
                    seeds = _new_seeds(self.model, np.random.default_rng((self._seed, i, j)))
                    fresh = self.model.clone(seeds) if seeds else self.model.clone()
                    copy = self._copies[i][j] = Copy(fresh, self.n_features)
                copy.model.learn_one(row, target[i][j], **extra)


class PartialFitStack(CopiedStack):
    """N copies, for every output, of a scikit-learn regressor with ``partial_fit``.

    A chunk of rows goes to ``partial_fit`` at once, which is what that method means: what it makes of them may
    differ from one call per row.

    If the estimator's tags say that it takes no NaN, missing values become 0. The width of such an estimator
    is fixed: a copy that has learned goes on seeing the columns it knows, and those added since are for copies
    that start later. Weights are passed on as ``sample_weight`` if ``partial_fit`` has that parameter;
    otherwise they must be 0 or 1.

    Parameters
    ----------
    estimator : scikit-learn regressor
        The pattern.
    n_learners : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import SGDRegressor
    >>> from streamboost import Booster, bases, descents, losses
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = X @ [1.0, -2.0]
    >>> stack = PartialFitStack(SGDRegressor(), n_learners=8)
    >>> options = {"base": bases.Constant(0), "update_mode": "minibatch"}
    >>> booster = Booster(losses.Squared(), descents.GradientDescent(0.5), stack, **options)
    >>> for chunk in np.split(np.arange(1000), 20):
    ...     before = booster.learn(X[chunk], y[chunk])
    >>> float(np.sqrt(np.mean((before[:, 0] - y[chunk]) ** 2)).round(1))  # of the last 50 rows
    0.0
    """

    def __init__(self, estimator: Any, n_learners: int = 10) -> None:
        super().__init__(n_learners)
        self.habits = Habits.of(estimator, "partial_fit")
        self.estimator = estimator

    def predict(self, X: FloatArray) -> FloatArray:
        """What each copy says, (n, N, m)."""
        said = np.zeros((len(X), self.n_learners, self.n_outputs))
        rows = self.habits.rows(X)
        for i, j, copy in self._each():
            if copy is not None and len(X):
                answer, who = copy.model.predict(rows[:, : copy.n_features]), f"learner {i} ({self.habits.kind})"
                said[:, i, j, None] = refitted.checked_answer(answer, (len(X), 1), who)
        return said

    def check_weight(self, weight: FloatArray) -> None:
        """Refuse weights other than 0 and 1 if ``partial_fit`` takes none."""
        self.habits.weights(weight)

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One ``partial_fit`` of all the rows per learner and output."""
        kept = weight > 0
        rows, extra = self.habits.rows(X[kept]), self.habits.weights(weight[kept])
        if not kept.any():
            return
        for i, j, copy in self._each():
            if copy is None:
                copy = Copy(refitted.seeded_clone(self.estimator, (self._seed, i, j)), self.n_features)
            target = self.habits.target(targets[kept, i, j : j + 1])
            copy.model.partial_fit(rows[:, : copy.n_features], target, **extra)
            self._copies[i][j] = copy


def _speaks_river(model: object) -> bool:
    return has(model, "learn_one", "predict_one", "clone")


def _last_step(model: Any) -> Any:
    """The model itself, or the one at the end of a pipeline."""
    while isinstance(steps := getattr(model, "steps", None), dict) and steps:
        model = list(steps.values())[-1]
    return model


def _drops_weight(model: Any) -> bool:
    """Whether the model is a pipeline that takes ``w`` and forgets it, as River's did before 0.24."""
    compose = sys.modules.get("river.compose")  # whoever holds a pipeline of River has imported it already
    if compose is None or type(model) is not compose.Pipeline:
        return False
    return tuple(map(int, sys.modules["river"].__version__.split(".")[:2])) < (0, 24)


def _new_seeds(model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """What to tell River's ``clone`` so that every ``seed`` in the model, however deep, is a new one."""
    for group in ("steps", "transformers"):  # of a pipeline, of a union
        parts = getattr(model, group, None)
        if isinstance(parts, dict):
            return {name: seeds for name, part in parts.items() if (seeds := _new_seeds(part, rng))}
    new: dict[str, Any] = {}
    for name in inspect.signature(type(model)).parameters:
        value = getattr(model, name, None)
        if name == "seed":
            new[name] = int(rng.integers(refitted.LARGEST_SEED))
        elif has(value, "clone", "mutate") and (seeds := _new_seeds(value, rng)):
            new[name] = (type(value), seeds)  # how clone is told of a model inside a model
    return new


def _dicts(X: FloatArray) -> Iterator[dict[int, float]]:
    """Rows as River wants them, without what is missing."""
    for row in X.tolist():
        yield {j: value for j, value in enumerate(row) if not math.isnan(value)}


def _number(answer: object, row: int, who: str) -> float:
    if answer is None:
        return 0.0
    if not isinstance(answer, Real) or math.isinf(answer):
        raise refitted.diverged(who, repr(answer), row)
    return 0.0 if math.isnan(answer) else float(answer)
