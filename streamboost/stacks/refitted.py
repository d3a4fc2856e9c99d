"""Learners that exist only as fits to a window of rows: 0 before the first fit, unchanged between two.

Into such a stack flow the rows the booster's replay remembers; out of a refit comes a whole new hypothesis. The
hypothesis may be anyone's batch regressor (:class:`BatchStack`) or a plain function (:class:`FunctionStack`).
"""

from __future__ import annotations

import inspect
import reprlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streamboost._types import FloatArray
from streamboost.errors import refused
from streamboost.stacks.base import LeafIds, Stack, Window

Rule: TypeAlias = Callable[[FloatArray], FloatArray]

LARGEST_SEED = 2**31  # what both River and scikit-learn take


class Fitted(NamedTuple):
    """A hypothesis, with the columns it was shown and the outputs it was fitted to."""

    model: Any
    n_features: int
    n_outputs: int


class RefittedStack(Stack):
    """N learners that are fitted from scratch, each in its turn, and do nothing in between."""

    kind: str  # what a learner is called when it is complained about
    _fitted: list[Fitted | None]

    def _open(self, seed: int) -> None:
        self._seed = seed
        self._fitted = [None] * self.n_learners

    @abstractmethod
    def _fit(self, i: int, X: FloatArray, target: FloatArray, weight: FloatArray) -> Any:
        """Fit learner i to rows of weight above 0, which it may keep."""

    @abstractmethod
    def _ask(self, fitted: Fitted, X: FloatArray, who: str) -> FloatArray:
        """What a fitted learner says of the rows, checked, (n, fitted.n_outputs)."""

    @property
    def refittable(self) -> Sequence[int]:
        """All of them."""
        return range(self.n_learners)

    @property
    def needs_replay(self) -> bool:
        """They do nothing between refits."""
        return True

    def refit(self, i: int, window: Window, target: FloatArray, weight: FloatArray) -> LeafIds | None:
        """Fit learner i afresh to the window's rows; those of weight 0 do not count."""
        kept = weight > 0
        if kept.any():
            # indexing copies: the window will write over its rows, and a model may hold on to what it was shown
            model = self._fit(i, window.X[kept], target[kept], weight[kept])
            self._fitted[i] = Fitted(model, self.n_features, self.n_outputs)
        return None

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m): 0 before its first refit."""
        return self.predict_first(X, self.n_learners)

    def predict_first(self, X: FloatArray, k: int) -> FloatArray:
        """What the first k learners say, (n, k, m); the others are not asked."""
        said = np.zeros((len(X), k, self.n_outputs))
        for i, fitted in enumerate(self._fitted[:k]):
            if fitted is not None and len(X):
                who = f"learner {i} ({self.kind})"
                said[:, i, : fitted.n_outputs] = self._ask(fitted, X[:, : fitted.n_features], who)
        return said

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Nothing: the rows are learned when the replay hands them over."""

    def grow(self, k: int) -> None:
        """Append k learners that say 0 until their first refit."""
        self._fitted += [None] * k
        self.n_learners += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns; a learner sees them from its next refit on."""
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs; a learner says 0 there until its next refit."""
        self.n_outputs += k


class BatchStack(RefittedStack):
    """N clones of any batch regressor, refitted in turn to the rows the booster's replay remembers.

    Between its refits a learner stays as it is, and before the first it says 0: give the booster a
    :class:`~streamboost.replay.Replay`. With several outputs one clone answers for all of them if the
    estimator's tags say it can; otherwise each output has its own.

    Missing values become 0 if the estimator's tags say that it takes no NaN; a pipeline gets them as they are,
    for its imputer. Weights are passed on as ``sample_weight`` if ``fit`` has that parameter; otherwise they
    must be 0 or 1. A ``random_state`` is replaced, with another number for every learner.

    Parameters
    ----------
    estimator : scikit-learn regressor
        Anything with ``fit`` and ``predict``. It is cloned, never fitted itself.
    n_learners : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from streamboost import Booster, bases, descents, losses, replay
    >>> X = np.random.default_rng(0).uniform(size=(600, 2))
    >>> y = np.sin(6 * X[:, 0])
    >>> stack = BatchStack(DecisionTreeRegressor(max_depth=3), n_learners=5)
    >>> options = {"base": bases.Constant(0), "replay": replay.Replay(window=256, refit_every=32)}
    >>> before = Booster(losses.Squared(), descents.GradientDescent(0.5), stack, **options).learn(X, y)
    >>> float(np.sqrt(np.mean((before[-300:, 0] - y[-300:]) ** 2)).round(1))
    0.1
    """

    def __init__(self, estimator: Any, n_learners: int = 10) -> None:
        super().__init__(n_learners)
        self.habits = Habits.of(estimator, "fit")
        self.kind = self.habits.kind
        self.estimator = estimator

    def check_weight(self, weight: FloatArray) -> None:
        """Refuse weights other than 0 and 1 if ``fit`` takes none."""
        self.habits.weights(weight)

    def _fit(self, i: int, X: FloatArray, target: FloatArray, weight: FloatArray) -> list[Any]:
        rows, extra = self.habits.rows(X), self.habits.weights(weight)
        columns = [target] if self.habits.takes_several else np.split(target, target.shape[1], axis=1)
        return [
            seeded_clone(self.estimator, (self._seed, i, j)).fit(rows, self.habits.target(column), **extra)
            for j, column in enumerate(columns)
        ]

    def _ask(self, fitted: Fitted, X: FloatArray, who: str) -> FloatArray:
        rows, shape = self.habits.rows(X), (len(X), fitted.n_outputs // len(fitted.model))
        return np.concatenate([checked_answer(part.predict(rows), shape, who) for part in fitted.model], axis=1)


class FunctionStack(RefittedStack):
    """A function that fits, as weak learner: the shortest way to a hypothesis class of one's own.

    Parameters
    ----------
    fit : callable
        ``fit(X, target, weight) -> h``, where ``h(X)`` is (n, m), or (n,) for a single output. It is given the
        remembered rows of weight above 0, with NaN for a missing value, and may keep them. Before its first
        refit a learner says 0.
    n_learners : int

    Examples
    --------
    The hypotheses of the paper's counter-example lie along one axis, so a single learner serves one output only:

    >>> import numpy as np
    >>> from streamboost import Booster, bases, descents, losses, replay
    >>> def along_one_axis(X, target, weight):
    ...     alpha = np.average(target, axis=0, weights=weight)
    ...     alpha[np.abs(alpha) < np.abs(alpha).max()] = 0.0
    ...     return lambda X: np.tile(alpha, (len(X), 1))
    >>> stack = FunctionStack(along_one_axis, n_learners=1)
    >>> options = {"base": bases.Constant(0), "replay": replay.Replay.exact()}
    >>> booster = Booster(losses.Squared(n_outputs=2), descents.GradientDescent(1.0), stack, **options)
    >>> scores = booster.learn(np.zeros((5, 1)), np.tile([2.0, 1.0], (5, 1)))
    >>> scores[-1].tolist()
    [2.0, 0.0]

    References
    ----------
    Hu et al., Gradient Boosting on Stochastic Data Streams, appendix "Counter Example for Alg. 1".
    """

    def __init__(self, fit: Callable[[FloatArray, FloatArray, FloatArray], Rule], n_learners: int = 10) -> None:
        super().__init__(n_learners)
        if not callable(fit):
            raise TypeError(
                f"fit is {fit!r}, expected a function fit(X, target, weight) that returns a function h(X). "
                "For an estimator with fit and predict use BatchStack."
            )
        self.fit = fit
        self.kind = getattr(fit, "__name__", type(fit).__name__)

    def _fit(self, i: int, X: FloatArray, target: FloatArray, weight: FloatArray) -> Rule:
        rule = self.fit(X, target, weight)
        if not callable(rule):
            raise TypeError(
                f"{self.kind} returned {reprlib.repr(rule)} for learner {i}, expected a function h(X) of "
                "the rows. Return a lambda, or an object's predict method."
            )
        return rule

    def _ask(self, fitted: Fitted, X: FloatArray, who: str) -> FloatArray:
        # the same rows go to the other learners too: a function that writes into them should hear about it
        rows = X.view()
        rows.flags.writeable = False
        return checked_answer(fitted.model(rows), (len(X), fitted.n_outputs), who)


def checked_answer(answer: object, shape: tuple[int, int], who: str) -> FloatArray:
    """Return the answer as finite numbers of this shape, or say who answered what instead."""
    try:
        said = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        said = np.empty(())
    if said.ndim == 0:
        told = f"{who} said {reprlib.repr(answer)} of {shape[0]} rows, expected an array of shape {shape}."
        raise ValueError(f"{told} A weak learner must answer every row with a number.")
    if said.shape == shape[:1] and shape[1] == 1:
        said = said[:, None]
    if said.shape != shape:
        told = f"{who} said an array of shape {said.shape}, expected {shape}"
        way_out = "Check what it predicts for several rows."
        raise ValueError(f"{told}: one row for each of X, one column for each output. {way_out}")
    if not np.isfinite(said).all():
        row, output = np.argwhere(~np.isfinite(said))[0]
        raise diverged(who, said[row, output], row)
    return said


def diverged(who: str, answer: object, row: int) -> ValueError:
    """What to say of an answer that is no number."""
    told = f"{who} said {answer} of row {row}, expected a finite number."
    return ValueError(f"{told} It may have diverged: scale the inputs, or take smaller steps.")


# What anyone's models take.


class Habits(NamedTuple):
    """What an estimator takes: read off its tags and the signature of the method that teaches it."""

    kind: str
    method: str
    takes_nan: bool
    takes_weight: bool
    takes_several: bool  # outputs at once
    wants_columns: bool  # even for a single output

    @classmethod
    def of(cls, estimator: Any, method: str) -> Habits:
        """Ask the estimator, or refuse it."""
        refuse_class("estimator", estimator)
        if not has(estimator, method, "predict"):
            expected = f"a regressor with {method} and predict. For other models use wrap."
            raise refused("estimator", estimator, expected, TypeError)
        kind = type(estimator).__name__
        # an estimator without tags has declared nothing, so it gets its rows as they are
        from sklearn.pipeline import Pipeline  # here, since it takes seconds that those who need none of it would wait
        from sklearn.utils import get_tags

        tags = get_tags(estimator) if hasattr(estimator, "__sklearn_tags__") else None
        if tags is not None and tags.estimator_type not in (None, "regressor"):
            raise no_regressor("estimator", tags.estimator_type, kind)
        return cls(
            kind=kind,
            method=method,
            takes_nan=tags is None or isinstance(estimator, Pipeline) or tags.input_tags.allow_nan,
            takes_weight="sample_weight" in inspect.signature(getattr(estimator, method)).parameters,
            takes_several=tags is not None and tags.target_tags.multi_output,
            wants_columns=tags is not None and not tags.target_tags.single_output,
        )

    def rows(self, X: FloatArray) -> FloatArray:
        """The rows as the estimator takes them."""
        return X if self.takes_nan else np.where(np.isnan(X), 0.0, X)

    def target(self, target: FloatArray) -> FloatArray:
        """The target (n, m) as the estimator takes it: flat if it is a single column, unless it wants columns."""
        return target[:, 0] if target.shape[1] == 1 and not self.wants_columns else target

    def weights(self, weight: FloatArray) -> dict[str, FloatArray]:
        """How to pass the weights on: not at all if each is 1, which every estimator takes."""
        if not self.takes_weight:
            refuse_weights(weight, self.kind, f"its {self.method} has no sample_weight")
        return {} if (weight == 1).all() else {"sample_weight": weight}


def seeded_clone(estimator: Any, seed: tuple[int, ...]) -> Any:
    """Return a clone whose ``random_state``, and those of the estimators in it, are drawn afresh."""
    from sklearn.base import clone

    copy, rng = clone(estimator, safe=False), np.random.default_rng(seed)
    names = sorted(copy.get_params()) if hasattr(copy, "get_params") else []
    states = {name: int(rng.integers(LARGEST_SEED)) for name in names if f"__{name}".endswith("__random_state")}
    return copy.set_params(**states) if states else copy


def has(model: object, *names: str) -> bool:
    """Whether the model has all these methods."""
    return all(hasattr(model, name) for name in names)


def no_regressor(argument: str, is_a: str, kind: str) -> TypeError:
    """What to say of a model that predicts something else than numbers."""
    why = "weak learners follow gradients even when the booster classifies"
    return TypeError(f"{argument} is a {is_a} ({kind}), expected a regressor: {why}. Use its regression sibling.")


def refuse_class(argument: str, model: object) -> None:
    """Remind whoever forgot the parentheses."""
    if isinstance(model, type):
        told = f"{argument} is the class {model.__name__}, expected an instance of it."
        raise TypeError(f"{told} Write {model.__name__}(...).")


def refuse_weights(weight: FloatArray, kind: str, why: str) -> None:
    """Refuse weights other than 0 and 1: a model that counts rows cannot count half of one."""
    odd = weight[(weight != 0) & (weight != 1)]
    if len(odd):
        told = f"weight holds {odd[0]}, but {kind} learns without weights ({why}): expected 0 or 1."
        raise ValueError(f"{told} Use a model that takes weights, or leave them out.")
