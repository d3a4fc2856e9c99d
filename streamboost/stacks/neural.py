"""N small networks in one flat array of parameters: what all of them share, and the two-layer network."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.features.binning import joined_columns
from streamboost.features.standardizer import Raw, Standardizer
from streamboost.kernels.nets import stacks as kernels
from streamboost.stacks.base import Stack
from streamboost.stacks.update_rules import UpdateRule, update_rule

Activation: TypeAlias = Literal["sigmoid", "tanh", "relu", "leaky_relu"]
Update: TypeAlias = Literal["adam", "sgd", "momentum", "adagrad"] | UpdateRule
Array: TypeAlias = NDArray[Any]
Shapes: TypeAlias = dict[str, tuple[int, ...]]

ACTIVATIONS = {
    "sigmoid": kernels.SIGMOID,
    "tanh": kernels.TANH,
    "relu": kernels.RELU,
    "leaky_relu": kernels.LEAKY_RELU,
}
DTYPES = ("float32", "float64")
FLAT = ("parameters", "first", "second", "average")  # arrays with a place for every parameter


class NeuralStack(Stack):
    """N networks with one hidden layer, trained together; what kind of layer that is, the classes below tell.

    Learner i minimises the weighted mean of ½|target − h_i|², by one step a row (:meth:`learn`) or one step a
    batch (:meth:`learn_batch`). The output layer starts at 0, the hidden layer at random, from a seed of each
    learner's own: what a learner does depends neither on how many others there are nor on what they are told.

    With ``scale_targets`` learner i speaks in its own unit, a power of two near the root mean square of its last
    thousand or so targets, so that one rate suits targets of any size. When the unit changes, the output layer, its
    average and what the update rule remembers are brought to the new unit, which a power of two does without
    rounding: what the learner says stays the same.

    A step whose gradient is out of all bounds is not taken; FloatingPointError then names the learner.
    """

    averages = True
    splits = True
    step_share = 0.5

    def __init__(
        self,
        n_learners: int,
        *,
        activation: Activation,
        update: Update,
        rate: float | None,
        standardize: bool,
        dtype: Literal["float32", "float64"],
        scale_targets: bool,
    ) -> None:
        super().__init__(n_learners)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}, expected one of {sorted(ACTIVATIONS)}.")
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, expected 'float32' or 'float64'. If unsure, leave it out.")
        self.activation = activation
        self.rule = update_rule(update, rate)
        self.standardize = standardize
        self.dtype = dtype
        self.scale_targets = scale_targets
        self.averaging_power: float | None = None  # None while no average is kept

    @abstractmethod
    def _shapes(self, n_learners: int) -> Shapes:
        """The sections of the flat array: "hidden", "out" (m, N, Q) and "intercepts" (N, m)."""

    @abstractmethod
    def _start(self, rng: np.random.Generator) -> Array:
        """A hidden layer for one learner at random, in the shape it has among the others."""

    @property
    @abstractmethod
    def _learner_axis(self) -> int:
        """Which axis of the hidden section is the learners'."""

    @abstractmethod
    def _write_plan(self, plan: NDArray[np.int64]) -> None:
        """Tell the kernels the shape of the hidden layer."""

    # Making room.

    def _open(self, seed: int) -> None:
        self.seed = seed
        self.inputs = Standardizer(self.n_features) if self.standardize else Raw(self.n_features)
        self.parameters = self._fresh(0, self.n_learners)
        nothing = np.zeros(0, self.dtype)
        self.first = np.zeros_like(self.parameters) if self.rule.has_first else nothing
        self.second = np.zeros_like(self.parameters) if self.rule.has_second else nothing
        self.average = self.parameters.copy() if self.averaging_power is not None else nothing
        self.steps = np.zeros((2, self.n_learners), np.int64)
        self.scale = np.zeros((3, self.n_learners))
        self.scale[kernels.UNIT] = 1.0
        self._tell_kernels()

    def _fresh(self, start: int, stop: int) -> Array:
        """The parameters of untrained learners start, ..., stop - 1."""
        hidden = [self._start(np.random.default_rng((self.seed, i))) for i in range(start, stop)]
        shapes = self._shapes(stop - start)
        layers = [np.concatenate(hidden, axis=self._learner_axis), np.zeros(shapes["out"])]
        return np.concatenate([*(layer.ravel() for layer in layers), np.zeros(shapes["intercepts"]).ravel()]).astype(
            self.dtype
        )

    def _tell_kernels(self) -> None:
        plan = np.zeros(kernels.PLAN_SIZE, np.int64)
        plan[kernels.LEARNERS], plan[kernels.OUTPUTS] = self.n_learners, self.n_outputs
        plan[kernels.ACTIVATION], plan[kernels.RULE] = ACTIVATIONS[self.activation], self.rule.code
        plan[kernels.SCALED], plan[kernels.AVERAGED] = self.scale_targets, self.averaging_power is not None
        self._write_plan(plan)
        self._plan = plan
        self._numbers = np.array([self.rule.rate, *self.rule.numbers, self.averaging_power or 0.0])

    def _sections(self, flat: Array) -> dict[str, Array]:
        """The sections of a flat array, as views."""
        views, at = {}, 0
        for name, shape in self._shapes(self.n_learners).items():
            size = int(np.prod(shape))
            views[name] = flat[at : at + size].reshape(shape)
            at += size
        return views

    def _reshape(self, change: Callable[[str, str, Array], Array]) -> None:
        """Put ``change(array, section, view)`` in the place of every section of every flat array there is."""
        for name in FLAT:
            flat = getattr(self, name)
            if flat.size:
                views = self._sections(flat)
                changed = [change(name, section, view).ravel() for section, view in views.items()]
                setattr(self, name, np.concatenate(changed).astype(self.dtype))

    def _axis(self, section: str, of: Literal["learners", "outputs"]) -> int:
        """Which axis of a section is that of the learners, or of the outputs."""
        if section == "hidden":
            return self._learner_axis
        return int((section == "out") == (of == "learners"))

    def grow(self, k: int) -> None:
        """Append k untrained learners."""
        n = self.n_learners
        parameters = self._fresh(n, n + k)
        self.n_learners = k
        fresh = self._sections(parameters)
        self.n_learners = n

        def append(name: str, section: str, view: Array) -> Array:
            start = fresh[section] if name in ("parameters", "average") else np.zeros_like(fresh[section])
            return np.concatenate([view, start], axis=self._axis(section, "learners"))

        self._reshape(append)
        self.n_learners += k
        self.steps = np.pad(self.steps, ((0, 0), (0, k)))
        self.scale = np.pad(self.scale, ((0, 0), (0, k)))
        self.scale[kernels.UNIT, n:] = 1.0
        self._tell_kernels()

    def add_outputs(self, k: int) -> None:
        """Append k outputs with weights 0."""

        def append(name: str, section: str, view: Array) -> Array:
            if section == "hidden":
                return view
            return np.insert(view, [self.n_outputs] * k, 0.0, axis=self._axis(section, "outputs"))

        self._reshape(append)
        self.n_outputs += k
        self._tell_kernels()

    def split_output(self) -> None:
        """Targets of the two outputs are each other's opposite, and so are the weights that follow them."""

        def split(name: str, section: str, view: Array) -> Array:
            if section == "hidden":
                return view
            return np.concatenate([view if name == "second" else -view, view], axis=self._axis(section, "outputs"))

        self._reshape(split)
        self.n_outputs = 2
        self._tell_kernels()

    # Answering and learning.

    def _inputs(self, X: FloatArray) -> Array:
        """The rows as the networks see them, a column of ones last."""
        return self.inputs.transform(self._numbers_of(X)).astype(self.dtype, copy=False)

    def _numbers_of(self, X: FloatArray) -> FloatArray:
        """The rows without their levels, which a network could make nothing of: a base learns what these add."""
        if not len(self.categorical):
            return X
        numbers = X.copy()
        numbers[:, self.categorical] = np.nan
        return numbers

    def set_categorical(self, columns: Sequence[int] | IntArray, n_levels: int) -> None:
        """Pass over columns that hold the numbers of levels."""
        self.categorical = joined_columns(self.categorical, columns, n_levels)

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m)."""
        said = np.empty((len(X), self.n_learners, self.n_outputs))
        kernels.predict(self._inputs(X), self._plan, self.parameters, self.scale, said)
        return said

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step per row. A weight multiplies its row's gradient, which Adam and AdaGrad hardly notice.

        Rows are standardised by what earlier calls brought, so the first call should not bring them all.
        """
        self._learn(X, targets, weight, 1, is_mean=False)

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step for all rows, along the weighted mean of their gradients."""
        self._learn(X, targets, weight, len(X), is_mean=True)

    def _learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray, size: int, *, is_mean: bool) -> None:
        expected = (len(X), self.n_learners, self.n_outputs)
        if targets.shape != expected:
            raise ValueError(
                f"targets have shape {targets.shape}, expected {expected}: "
                "one for each row, learner and output. For a single output pass targets[..., None]."
            )
        lost = kernels.learn(
            self._inputs(X),
            np.ascontiguousarray(targets, np.float64),
            np.ascontiguousarray(weight, np.float64),
            size,
            is_mean,
            *self.arrays,
        )
        if lost >= 0:
            raise self.lost(lost)
        if isinstance(self.inputs, Standardizer):  # last: a step is taken from what the prediction saw
            self.inputs.learn(self._numbers_of(X), weight)

    def lost(self, i: int) -> FloatingPointError:
        """What to say when learner i cannot take its step."""
        return FloatingPointError(
            f"learner {i} of {type(self).__name__}: a target, or the step towards it, is beyond all "
            f"bounds, so that step was not taken. Look for wild targets, or lower the rate (it is {self.rule.rate:g})."
        )

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All that learning changes and reads, as the kernels take it."""
        moments = (self.parameters, self.first, self.second, self.average)
        return self._plan, self._numbers, *moments, self.steps, self.scale

    def set_rate(self, rate: float) -> None:
        """Take steps of another size from now on, as where a rate falls in the course of a run.

        What the update rule remembers of past gradients stays. A rate is read once a call of learn.
        """
        self.rule = dataclasses.replace(self.rule, rate=rate)
        if self.n_features:
            self._tell_kernels()

    # Averaging.

    def keep_average(self, averaging_power: float) -> None:
        """Keep from now on the mean of each learner's parameters over its steps: a ← a + (p − a)(k + 1)/(t + k)."""
        if not averaging_power >= 0:
            raise ValueError(
                f"averaging_power is {averaging_power!r}, expected a number of at least 0. If unsure, take 8."
            )
        self.averaging_power = float(averaging_power)
        if self.n_features:
            self.average = self.parameters.copy()
            self.steps[1] = 0
            self._tell_kernels()

    def averaged(self) -> Stack:
        """The same learners with the mean of their parameters: it shares all arrays, so ask it before learning on."""
        if self.averaging_power is None:
            raise ValueError("no average has been kept. Call keep_average before learning.")
        mean = copy.copy(self)
        mean.parameters = self.average
        return mean

    # The parameters, to be read and to be set.

    @property
    def unit(self) -> FloatArray:
        """The unit each learner speaks in, (N,): what it says is this times what its output layer gives."""
        unit: FloatArray = self.scale[kernels.UNIT]
        return unit

    @property
    def b2(self) -> Array:
        """The intercepts of the output layer (N, m): a view, to be written into as well."""
        return self._sections(self.parameters)["intercepts"]


class TwoLayerStack(NeuralStack):
    """N networks h(x) = W2 a(W1 z + b1) + b2, where z are the rows, by default brought to a common scale.

    Parameters
    ----------
    n_learners : int
    hidden : int
        How many hidden units each learner has.
    activation : {"sigmoid", "tanh", "relu", "leaky_relu"}
    update : {"adam", "sgd", "momentum", "adagrad"} or an update rule
        How gradients become steps; see :mod:`streamboost.stacks.update_rules`.
    rate : float, optional
        The size of steps; by default the rule's own.
    standardize : bool
        Bring the inputs to running mean 0 and standard deviation 1 first. Missing values are 0 either way.
    dtype : {"float32", "float64"}
    scale_targets : bool
        Let each learner speak in a unit of the size of its targets; see :class:`NeuralStack`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(4000, 1))
    >>> target = 1000 * np.sin(2 * X)[:, None]  # (n, N, m)
    >>> stack = TwoLayerStack(1, hidden=8, rate=0.01, standardize=False)
    >>> stack.open(1, 1)
    >>> stack.learn(X, target, np.ones(4000))
    >>> bool(np.mean((stack.predict(X) - target) ** 2) < 0.1 * np.mean(target**2))
    True
    """

    _learner_axis = 1

    def __init__(
        self,
        n_learners: int = 10,
        hidden: int = 10,
        *,
        activation: Activation = "sigmoid",
        update: Update = "adam",
        rate: float | None = None,
        standardize: bool = True,
        dtype: Literal["float32", "float64"] = "float32",
        scale_targets: bool = True,
    ) -> None:
        super().__init__(
            n_learners,
            activation=activation,
            update=update,
            rate=rate,
            standardize=standardize,
            dtype=dtype,
            scale_targets=scale_targets,
        )
        self.hidden = whole_number("hidden", hidden, 1)

    def _shapes(self, n_learners: int) -> Shapes:
        return {
            "hidden": (self.n_features + 1, n_learners, self.hidden),
            "out": (self.n_outputs, n_learners, self.hidden),
            "intercepts": (n_learners, self.n_outputs),
        }

    def _start(self, rng: np.random.Generator) -> Array:
        return starting_weights(rng, self.hidden, self.n_features, self.activation).T[:, None]  # (d + 1, 1, H)

    def _write_plan(self, plan: NDArray[np.int64]) -> None:
        plan[kernels.UNITS], plan[kernels.POSITIONS], plan[kernels.INPUTS] = self.hidden, 1, self.n_features + 1

    def add_features(self, k: int) -> None:
        """Insert k inputs with weights 0 before the intercepts."""

        def insert(name: str, section: str, view: Array) -> Array:
            return np.insert(view, [self.n_features] * k, 0.0, axis=0) if section == "hidden" else view

        self._reshape(insert)
        self.inputs.add_features(k)
        self.n_features += k
        self._tell_kernels()

    @property
    def W1(self) -> Array:  # noqa: N802 (the letter of the formula)
        """The weights of the hidden layer (N, H, d): a view, to be written into as well."""
        return self._sections(self.parameters)["hidden"][:-1].transpose(1, 2, 0)

    @property
    def b1(self) -> Array:
        """The intercepts of the hidden layer (N, H): a view, to be written into as well."""
        intercepts: Array = self._sections(self.parameters)["hidden"][-1]
        return intercepts

    @property
    def W2(self) -> Array:  # noqa: N802 (the letter of the formula)
        """The weights of the output layer (N, m, H), in the learners' units: a view, to be written into as well."""
        return self._sections(self.parameters)["out"].swapaxes(0, 1)


def starting_weights(rng: np.random.Generator, n_units: int, n_inputs: int, activation: str) -> Array:
    """Random weights (n_units, n_inputs + 1), so that inputs of size 1 give sums of size 1; the intercept last."""
    gain = np.sqrt(2.0) if activation in ("relu", "leaky_relu") else 1.0
    weights = rng.normal(scale=gain / np.sqrt(max(n_inputs, 1)), size=(n_units, n_inputs))
    return np.column_stack([weights, rng.uniform(-0.5, 0.5, size=n_units)])


def whole_number(name: str, value: int, least: int) -> int:
    """The value, if it is a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number of at least {least}.")
    return int(value)
