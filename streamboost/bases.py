"""The base of a booster: y⁰ as a function of x, where the walk starts.

The paper starts at a constant. An online linear model already knows the line, and leaves the learners what
a line cannot say; anyone's fitted model, frozen, hands a batch model over to a live stream.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.features.binning import cat_positions
from streamboost.features.standardizer import Standardizer
from streamboost.kernels import bases as base_kernels
from streamboost.kernels import linear as kernels
from streamboost.losses import Loss, Scale, Squared
from streamboost.persistence.array_specs import ArraySpec

WIDEST = 200  # columns for which the covariance of all pairs is kept
OPENING_ROWS = 64  # how many rows it takes to know where a constant should stand


class Base(ABC):
    """y⁰(x). Predicting never changes it."""

    @abstractmethod
    def open(self, n_features: int, n_outputs: int) -> None:
        """Make room for rows of ``n_features`` columns and scores of ``n_outputs``."""

    @abstractmethod
    def predict(self, X: FloatArray) -> FloatArray:
        """y⁰ for each row, (n, m)."""

    @abstractmethod
    def learn(self, X: FloatArray, y: FloatArray, weight: FloatArray, loss: Loss, scale: Scale) -> None:
        """Take in rows and their targets; ``scale`` tells the natural sizes of scores on this stream."""

    @abstractmethod
    def add_features(self, k: int) -> None:
        """Make room for k more columns."""

    @abstractmethod
    def add_outputs(self, k: int, score: float) -> None:
        """Make room for k more outputs, which start at ``score``."""

    def terms(self, X: FloatArray) -> FloatArray | None:
        """What each column adds to y⁰, (n, d, m); None if y⁰ is no such sum, or looks at no column."""
        return None

    def for_prediction(self) -> Base:
        """Return a base that says the same and shares its arrays, without those that only learning needs."""
        return self

    def set_categorical(self, columns: IntArray, n_levels: int) -> None:  # noqa: B027 (most take numbers as they are)
        """Learn that columns hold the numbers of levels, of which more is not greater."""

    def hold_range(self, X: FloatArray) -> None:  # noqa: B027 (most answer for any row alike)
        """Learn that no row but these (n, d) is remembered: beyond their range nothing is known."""

    splits: bool = False  # whether split_output is there
    shifts: bool = False  # whether a number added to all targets is added to all it says, from the first row on

    def split_output(self) -> None:
        """Make two scores of one: they differ by what it was; what a third class needs."""
        raise TypeError(f"{type(self).__name__} cannot split its score: give it one score a class from the start.")


class Constant(Base):
    """The same y⁰ for every row.

    Parameters
    ----------
    value : float or array of shape (m,), optional
        y⁰; the paper's experiments take 0. Left out: the loss's own start (mean, median, log-odds …) of the
        first 64 rows, fixed from then on.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost.losses import Absolute, Scale
    >>> base = Constant()
    >>> base.open(n_features=1, n_outputs=1)
    >>> base.learn(np.zeros((3, 1)), np.array([[1.0], [2.0], [9.0]]), np.ones(3), Absolute(), Scale(1.0, 1.0))
    >>> base.predict(np.zeros((2, 1))).tolist()  # the median
    [[2.0], [2.0]]
    """

    def __init__(self, value: float | FloatArray | None = None) -> None:
        if value is not None and not np.all(np.isfinite(value)):
            raise ValueError(f"value is {value!r}, expected finite numbers. For the loss's own start, leave it out.")
        self.value = value

    def open(self, n_features: int, n_outputs: int) -> None:
        """Stand at the given value, or at 0 until the first row."""
        given = 0.0 if self.value is None else np.asarray(self.value, dtype=float)
        self.y0 = np.broadcast_to(given, (n_outputs,)).copy()
        self.opening_y: FloatArray | None = None
        self.opening_weight = np.empty(0)

    def predict(self, X: FloatArray) -> FloatArray:
        """y⁰ for each row, (n, m)."""
        return np.tile(self.y0, (len(X), 1))

    def learn(self, X: FloatArray, y: FloatArray, weight: FloatArray, loss: Loss, scale: Scale) -> None:
        """Find the start from the first rows."""
        room = OPENING_ROWS - len(self.opening_weight)
        if self.value is not None or room <= 0:
            return
        y, weight = y[:room], weight[:room]
        self.opening_y = y.copy() if self.opening_y is None else np.concatenate([self.opening_y, y])
        self.opening_weight = np.concatenate([self.opening_weight, weight])
        if self.opening_weight.sum() > 0:
            self.y0 = loss.start(self.opening_y, self.opening_weight)

    def for_prediction(self) -> Constant:
        """Forget the targets of the first rows."""
        twin = copy.copy(self)
        twin.opening_y, twin.opening_weight = None, np.empty(0)
        return twin

    def add_features(self, k: int) -> None:
        """A constant looks at no column."""

    def add_outputs(self, k: int, score: float) -> None:
        """Append k outputs at ``score``."""
        self.y0 = np.concatenate([self.y0, np.full(k, score)])

    @property
    def shifts(self) -> bool:  # type: ignore[override]
        """Whether nobody has said where it stands."""
        return self.value is None

    splits = True

    def split_output(self) -> None:
        """Half the score, once against and once for."""
        self.y0 = np.concatenate([-self.y0 / 2, self.y0 / 2])


class Linear(Base):
    """An online linear model: recursive least squares for the square loss, adaptive gradient steps for the others.

    Inputs are standardised by their running mean and deviation. Least squares follows these in steps of a tenth, once
    256 rows have told them, and says the same in the new coordinates: so a column that keeps rising stays known.
    Inputs are held to the range of the rows it remembers, and a tenth of it beyond: further out a line would run away.
    In a column of categories every level has an effect of its own.

    Parameters
    ----------
    forget : float
        How much of the past is kept at each row, in (0, 1].
    update : {"auto", "rls", "adagrad"}
        For the square loss; others always take adaptive steps. ``"auto"`` is recursive least squares on up to 200
        columns.
    rate : float
        The adaptive step, in spreads of the targets.
    monotonic_cst : array of shape (d,) or dict, optional
        For each column, or for some by their numbers, -1, 0 or 1: whether y⁰ must fall, is free or must rise with it.
        A weight of the wrong sign counts as 0.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost.losses import Scale, Squared
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> base = Linear()
    >>> base.open(n_features=2, n_outputs=1)
    >>> base.learn(X, X @ [[3.0], [1.0]] + 5, np.ones(500), Squared(), Scale(1.0, 1.0))
    >>> base.predict(np.array([[1.0, 1.0]])).round(1).tolist()
    [[9.0]]
    """

    def __init__(
        self,
        *,
        forget: float = 1.0,
        update: Literal["auto", "rls", "adagrad"] = "auto",
        rate: float = 0.1,
        monotonic_cst: Any = None,
    ) -> None:
        kernels.check_linear_options("rls" if update == "auto" else update, 1.0, forget, rate)
        self.forget = forget
        self.update = update
        self.rate = rate
        self.monotonic_cst = monotonic_cst

    def open(self, n_features: int, n_outputs: int) -> None:
        """Weights 0."""
        self.categorical: IntArray = np.zeros(0, np.int64)
        self.effects = np.zeros((0, 0, n_outputs))  # what a level adds to y⁰
        self.effect_sizes = np.zeros((0, 0, n_outputs))  # how much is behind that: rows, or squares of gradients
        self.signs: NDArray[np.int8] = _signs(self.monotonic_cst, n_features)
        self.inputs = Standardizer(n_features)  # its moments
        self.center, self.inverse = np.zeros(n_features), np.zeros(n_features)  # coordinates: (x - center) * inverse
        self.low, self.high = np.full(n_features, np.inf), np.full(n_features, -np.inf)  # the range of the inputs
        self.weights = np.zeros((n_features + 1, n_outputs))  # the intercept last
        self.squares = np.zeros((n_features + 1, n_outputs))
        self.covariance: FloatArray | None = None

    def predict(self, X: FloatArray) -> FloatArray:
        """y⁰ for each row, (n, m)."""
        scores = np.empty((len(X), self.weights.shape[1]))
        base_kernels.base_scores(X, self.line, self._cat_at, scores)
        return scores + known if (known := self.known(X)) is not None else scores

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be."""
        if "inputs" not in self.__dict__:
            return {}
        p, m = self.weights.shape
        effects = ArraySpec("f8", (len(self.categorical), None, m))
        columns = ("center", "inverse", "low", "high", "inputs.count", "inputs.mean", "inputs.m2")
        return {
            **dict.fromkeys(columns, ArraySpec("f8", (p - 1,))),
            "weights": ArraySpec("f8", (p, m)),
            "squares": ArraySpec("f8", (p, m)),
            "covariance": ArraySpec("f8", (p, p)),
            "categorical": ArraySpec(self.categorical.dtype.str, (None,), 0, p - 1),
            "effects": effects,
            "effect_sizes": effects._replace(shape=self.effects.shape),
            "signs": ArraySpec("i1", (p - 1 if len(self.signs) else 0,), -1, 2),
        }

    def known(self, X: FloatArray) -> FloatArray | None:
        """What is added to the line from elsewhere, (n, m); None for nothing."""
        return None

    def __getattr__(self, name: str) -> Any:
        """Coordinates and range of a line from an older file: as its moments have them, without bounds."""
        if name not in ("center", "inverse", "low", "high") or "inputs" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        count, mean, m2 = self.inputs.count, self.inputs.mean, self.inputs.m2
        variance = np.divide(m2, count, out=np.zeros_like(m2), where=count > 0)
        varies = variance > (kernels.NOISE * mean) ** 2
        self.center, self.inverse = mean.copy(), np.where(varies, 1.0 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
        self.low, self.high = np.full(len(mean), -np.inf), np.full(len(mean), np.inf)
        return self.__dict__[name]

    def hold_range(self, X: FloatArray) -> None:
        """Hold the inputs to the range of rows (n, d), if those before them are forgotten."""
        if self.forget < 1.0 and len(X):
            self.low[:], self.high[:] = np.fmin.reduce(X, axis=0), np.fmax.reduce(X, axis=0)
            empty = np.isnan(self.low)
            self.low[empty], self.high[empty] = np.inf, -np.inf

    def terms(self, X: FloatArray) -> FloatArray:
        """What each column adds to y⁰, (n, d, m): all but the intercept."""
        weights = self.weights[:-1]
        if len(self.signs):
            weights = np.where(self.signs[:, None] * weights < 0.0, 0.0, weights)
        Z = np.empty((len(X), len(self.weights)))
        base_kernels.place_rows(X, self.line, Z)
        terms: FloatArray = Z[:, :-1, None] * weights
        if len(self.categorical):
            levels, last = X[:, self.categorical], self.effects.shape[1] - 1  # all beyond the last one share it
            known = np.where((levels >= 0) & (levels <= last), levels, last).astype(np.int64)
            added = self.effects[np.arange(len(self.categorical)), known]  # (n, categories, m)
            terms[:, self.categorical] += np.where(np.isnan(levels)[..., None], 0.0, added)
        return terms

    def for_prediction(self) -> Linear:
        """Leave out what is behind the weights: covariance, squares of gradients, sizes of effects."""
        twin = copy.copy(self)
        twin.covariance = None
        for name in ("squares", "effect_sizes"):
            twin.__dict__.pop(name, None)
        return twin

    def keep_levels(self, n_levels: int) -> None:
        """Forget all but the first ``n_levels`` levels of each column: no others will come."""
        self.effects = self.effects[:, :n_levels]

    @property
    def _cat_at(self) -> IntArray:
        return cat_positions(self.categorical, len(self.weights) - 1)

    @property
    def line(self) -> base_kernels.Line:
        """What the kernels predict from."""
        moments = self.inputs.count, self.inputs.mean, self.inputs.m2
        inputs = *moments, self.center, self.inverse, self.low, self.high
        return base_kernels.Line(*inputs, self.signs, self.weights, self.effects)

    @property
    def slopes(self) -> base_kernels.Slopes:
        """What they learn with beside that; a covariance that is not kept is one of nothing."""
        covariance = np.zeros((1, 1)) if self.covariance is None else self.covariance
        return base_kernels.Slopes(self.squares, covariance, self.effect_sizes)

    def set_categorical(self, columns: IntArray, n_levels: int) -> None:
        """Give every level of those columns, which may only grow in number, an effect of its own on y⁰, 0 at first."""
        more = (len(columns) - len(self.categorical), max(n_levels - self.effects.shape[1], 0))
        self.categorical = np.asarray(columns, dtype=np.int64)
        room = ((0, more[0]), (0, more[1]), (0, 0))
        self.effects, self.effect_sizes = np.pad(self.effects, room), np.pad(self.effect_sizes, room)

    def learn(self, X: FloatArray, y: FloatArray, weight: FloatArray, loss: Loss, scale: Scale) -> None:
        """One recursive step per row, or one adaptive step per chunk."""
        known, cat_at = np.zeros((len(X), self.weights.shape[1])), self._cat_at
        base_kernels.add_all_effects(X, cat_at, self.effects, known)
        if (more := self.known(X)) is not None:
            known += more
        Z = np.empty((len(X), len(self.weights)))
        if self.rule(loss) == "rls" and self.covariance is None:
            self.covariance = kernels.prior_covariance(Z.shape[1] - 1, 1.0)
        base_kernels.take_rows(X, weight, cat_at, self.line, self.slopes, Z)
        total = weight.sum()
        if total <= 0:
            return
        if self.rule(loss) == "rls":
            base_kernels.learn_least_squares(X, Z, y, known, weight, self.forget, cat_at, self.line, self.slopes)
            return
        gradient = loss.gradient(kernels.apply(Z, self.weights, self.signs) + known, y)  # (n, m)
        slope = Z.T @ (gradient * (weight / total)[:, None])  # (d + 1, m)
        step = self.rate * scale.spread
        base_kernels.descend(X, slope, gradient, weight, self.forget, step, cat_at, self.line, self.slopes)

    def rule(self, loss: Loss) -> Literal["rls", "adagrad"]:
        """How this loss is learned."""
        if self.update == "auto":
            least_squares = isinstance(loss, Squared) and loss.l2 == 0 and len(self.weights) <= WIDEST + 1
        else:
            least_squares = self.update == "rls" and isinstance(loss, Squared)
        return "rls" if least_squares else "adagrad"

    def add_features(self, k: int) -> None:
        """Insert k inputs with weights 0 before the intercept."""
        d = len(self.weights) - 1
        self.weights = np.insert(self.weights, [d] * k, 0.0, axis=0)
        self.squares = np.insert(self.squares, [d] * k, 0.0, axis=0)
        if self.covariance is not None:
            self.covariance = kernels.widen_covariance(self.covariance, k, 1.0)
        self.inputs.add_features(k)
        self.center, self.inverse = np.pad(self.center, (0, k)), np.pad(self.inverse, (0, k))
        self.low = np.pad(self.low, (0, k), constant_values=np.inf)
        self.high = np.pad(self.high, (0, k), constant_values=-np.inf)
        if len(self.signs):
            self.signs = np.pad(self.signs, (0, k))

    def add_outputs(self, k: int, score: float) -> None:
        """Append k outputs whose intercepts are ``score``."""
        new = np.zeros((len(self.weights), k))
        new[-1] = score
        self.weights = np.concatenate([self.weights, new], axis=1)
        self.squares = np.concatenate([self.squares, np.zeros_like(new)], axis=1)
        more = ((0, 0), (0, 0), (0, k))
        self.effects, self.effect_sizes = np.pad(self.effects, more), np.pad(self.effect_sizes, more)

    splits = shifts = True

    def split_output(self) -> None:
        """Half the weights, once against and once for; both gradients are as long as the one was."""
        self.weights = np.concatenate([-self.weights / 2, self.weights / 2], axis=1)
        self.squares = np.repeat(self.squares, 2, axis=1)
        self.effects = np.concatenate([-self.effects / 2, self.effects / 2], axis=2)
        self.effect_sizes = np.repeat(self.effect_sizes, 2, axis=2)


def _signs(monotonic_cst: Any, n_features: int) -> NDArray[np.int8]:
    """One sign a column, or nothing if all are free."""
    if monotonic_cst is None:
        return np.zeros(0, np.int8)
    signs = np.zeros(n_features, np.int8)
    if isinstance(monotonic_cst, Mapping):
        signs[list(monotonic_cst)] = list(monotonic_cst.values())
    else:
        signs[:] = monotonic_cst
    return signs


class Frozen(Base):
    """Anyone's fitted model as y⁰, never touched again: the learners correct what it gets wrong.

    Parameters
    ----------
    model : fitted estimator or callable
        A callable is given the rows (n, d) and returns scores. A classifier's probabilities become
        log-odds (one output) or log-probabilities (several); anything else speaks through ``predict``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(4.0)[:, None]
    >>> base = Frozen(LinearRegression().fit(X, 2 * X[:, 0]))
    >>> base.open(n_features=1, n_outputs=1)
    >>> base.predict(np.array([[10.0]])).round(6).tolist()
    [[20.0]]
    """

    def __init__(self, model: Any) -> None:
        if not (callable(model) or hasattr(model, "predict")):
            raise TypeError(
                f"model is {model!r}, expected a fitted estimator with predict, or a callable X -> scores. "
                "For a fixed number use Constant."
            )
        self.model = model

    def open(self, n_features: int, n_outputs: int) -> None:
        """Remember how many outputs are expected."""
        self.n_features = n_features
        self.n_outputs = n_outputs
        self.new_scores = np.empty(0)

    def predict(self, X: FloatArray) -> FloatArray:
        """y⁰ for each row, (n, m)."""
        if not len(X):  # most models refuse to answer for no rows
            return np.empty((0, self.n_outputs))
        known = self.n_outputs - len(self.new_scores)
        scores = np.asarray(self._ask(X[:, : self.n_features], known), dtype=float).reshape(len(X), -1)
        if scores.shape[1] != known:
            raise ValueError(
                f"the frozen model gives {scores.shape[1]} scores a row, expected {known}. "
                "Wrap it in a function that returns one column per output."
            )
        return np.concatenate([scores, np.tile(self.new_scores, (len(X), 1))], axis=1)

    def _ask(self, X: FloatArray, known: int) -> Any:
        if hasattr(self.model, "predict_proba"):
            floor = np.finfo(float).tiny
            logs = np.log(np.maximum(self.model.predict_proba(X), floor))
            return logs[:, 1] - logs[:, 0] if known == 1 and logs.shape[1] == 2 else logs
        ask: Callable[[FloatArray], Any] = self.model.predict if hasattr(self.model, "predict") else self.model
        return ask(X)

    def learn(self, X: FloatArray, y: FloatArray, weight: FloatArray, loss: Loss, scale: Scale) -> None:
        """Nothing: it is frozen."""

    def add_features(self, k: int) -> None:
        """The model goes on seeing the columns it was fitted to."""

    def add_outputs(self, k: int, score: float) -> None:
        """Outputs the model does not know stand at ``score``."""
        self.new_scores = np.concatenate([self.new_scores, np.full(k, score)])
        self.n_outputs += k
