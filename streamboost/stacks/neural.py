"""N small networks in one flat array of parameters: what all of them share, and the two-layer network."""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.errors import refused
from streamboost.features.binning import joined_columns
from streamboost.features.standardizer import Raw, Standardizer
from streamboost.kernels.nets import layout, stacks
from streamboost.kernels.nets.activations import LEAKY_RELU, RELU, SIGMOID, TANH
from streamboost.persistence.array_specs import ArraySpec
from streamboost.stacks.base import Stack
from streamboost.stacks.update_rules import UpdateRule, update_rule

Activation: TypeAlias = Literal["sigmoid", "tanh", "relu", "leaky_relu"]
Update: TypeAlias = Literal["adam", "sgd", "momentum", "adagrad"] | UpdateRule
Array: TypeAlias = NDArray[Any]
Precision: TypeAlias = Literal["float32", "float64"]

ACTIVATIONS = {"sigmoid": SIGMOID, "tanh": TANH, "relu": RELU, "leaky_relu": LEAKY_RELU}
OUTPUT_AXES = {"out": 0, "intercepts": 1}  # the axis of the outputs, in the sections that have one
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
    _learner_axis: int  # of the hidden layer: 1 of (inputs, N, units), 0 of (N, units, inputs)

    def __init__(
        self, n_learners: int, activation: Activation, update: Update, rate: float | None, standardize: bool,
        dtype: Precision, scale_targets: bool,
    ) -> None:  # fmt: skip
        super().__init__(n_learners)
        if activation not in ACTIVATIONS:
            raise refused("activation", activation, f"one of {sorted(ACTIVATIONS)}.")
        if dtype not in ("float32", "float64"):
            raise refused("dtype", dtype, "'float32' or 'float64'. If unsure, leave it out.")
        self.activation = activation
        self.rule = update_rule(update, rate)
        self.standardize = standardize
        self.dtype = dtype
        self.scale_targets = scale_targets
        self.averaging_power: float | None = None  # None while no average is kept

    @property
    @abstractmethod
    def _layer(self) -> tuple[int, int, int]:
        """How many units a learner's hidden layer has, at how many positions, and of how many inputs, with the 1."""

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
        self.scale[layout.UNIT] = 1.0
        self._tell_kernels()

    def _fresh(self, start: int, stop: int) -> Array:
        """The parameters of untrained learners start, ..., stop - 1: inputs of size 1 give sums of size 1."""
        units, positions, inputs = self._layer
        gain = np.sqrt(2.0) if self.activation in ("relu", "leaky_relu") else 1.0
        hidden = []
        for i in range(start, stop):
            rng = np.random.default_rng((self.seed, i))
            weights = rng.normal(scale=gain / np.sqrt(max(inputs - 1, 1)), size=(units, inputs - 1))
            weights = np.column_stack([weights, rng.uniform(-0.5, 0.5, size=units)])
            hidden.append(weights.T[:, None] if self._learner_axis else weights[None])
        n_others = (stop - start) * self.n_outputs * (units * positions + 1)
        return np.pad(np.concatenate(hidden, axis=self._learner_axis).ravel(), (0, n_others)).astype(self.dtype)

    def _tell_kernels(self) -> None:
        plan = self._plan = np.zeros(layout.PLAN_SIZE, np.int64)
        plan[layout.LEARNERS], plan[layout.OUTPUTS] = self.n_learners, self.n_outputs
        plan[layout.UNITS], plan[layout.POSITIONS], plan[layout.INPUTS] = self._layer
        plan[layout.ACTIVATION], plan[layout.RULE] = ACTIVATIONS[self.activation], self.rule.code
        plan[layout.SCALED], plan[layout.AVERAGED] = self.scale_targets, self.averaging_power is not None
        self._numbers = np.array([self.rule.rate, *self.rule.numbers, self.averaging_power or 0.0])

    def _sections(self, flat: Array, n_learners: int | None = None) -> dict[str, Array]:
        """The sections of a flat array, as views: the layer "hidden", "out" (m, N, Q) and "intercepts" (N, m)."""
        N, m = n_learners or self.n_learners, self.n_outputs
        units, positions, inputs = self._layer
        hidden = (inputs, N, units) if self._learner_axis else (N, units, inputs)
        shapes = {"hidden": hidden, "out": (m, N, units * positions), "intercepts": (N, m)}
        parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes.values()]))
        return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=False)}

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be; what the kernels are told is worked out anew."""
        power = self.averaging_power
        if power is not None and not (isinstance(power, (int, float)) and 0.0 <= power < np.inf):
            raise ValueError(f"averaging_power is {power!r}, expected a number of at least 0, or None")
        if not self.n_features:
            return {}
        n, N = len(self._fresh(0, self.n_learners)), self.n_learners
        self._tell_kernels()
        has = {"parameters": True, "first": self.rule.has_first, "second": self.rule.has_second}
        if not self.first.size and not self.second.size:  # of a frozen one
            has |= {"first": False, "second": False}
        has["average"] = self.averaging_power is not None
        flat = {name: ArraySpec(self.dtype, (n if there else 0,)) for name, there in has.items()}
        moments = {f"inputs.{name}": ArraySpec("f8", (self.n_features,)) for name in ("count", "mean", "m2")}
        return {
            **flat,
            **moments,
            "steps": ArraySpec("i8", (2, N), 0),
            "scale": ArraySpec("f8", (3, N)),
            "categorical": ArraySpec("i4", (None,), 0, self.n_features),
        }

    def _reshape(self, axes: dict[str, int], change: Callable[[str, str, Array, int], Array]) -> None:
        """Put ``change(array, section, view, axis)`` in the place of these sections of every flat array there is."""
        for name in FLAT:
            flat = getattr(self, name)
            if flat.size:
                views = self._sections(flat)
                for section, axis in axes.items():
                    views[section] = change(name, section, views[section], axis)
                setattr(self, name, np.concatenate([view.ravel() for view in views.values()]).astype(self.dtype))

    def grow(self, k: int) -> None:
        """Append k untrained learners."""
        n = self.n_learners
        fresh = self._sections(self._fresh(n, n + k), k)

        def append(name: str, section: str, view: Array, axis: int) -> Array:
            start = fresh[section] if name in ("parameters", "average") else np.zeros_like(fresh[section])
            return np.concatenate([view, start], axis=axis)

        self._reshape({"hidden": self._learner_axis, "out": 1, "intercepts": 0}, append)
        self.n_learners += k
        self.steps, self.scale = np.pad(self.steps, ((0, 0), (0, k))), np.pad(self.scale, ((0, 0), (0, k)))
        self.scale[layout.UNIT, n:] = 1.0
        self._tell_kernels()

    def add_outputs(self, k: int) -> None:
        """Append k outputs with weights 0."""
        last = [self.n_outputs] * k
        self._reshape(OUTPUT_AXES, lambda name, section, view, axis: np.insert(view, last, 0.0, axis=axis))
        self.n_outputs += k
        self._tell_kernels()

    def split_output(self) -> None:
        """Targets of the two outputs are each other's opposite, and so are the weights that follow them."""

        def split(name: str, section: str, view: Array, axis: int) -> Array:
            return np.concatenate([view if name == "second" else -view, view], axis=axis)

        self._reshape(OUTPUT_AXES, split)
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
        stacks.predict(self._inputs(X), self._plan, self.parameters, self.scale, said)
        return said

    def for_prediction(self) -> NeuralStack:
        """Leave out what the update rule remembers of gradients."""
        twin = copy.copy(self)
        twin.first = twin.second = np.zeros(0, self.dtype)
        return twin

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step per row. A weight multiplies its row's gradient, which Adam and AdaGrad hardly notice.

        Rows are standardised by what earlier calls brought, so the first call should not bring them all.
        """
        self._learn(X, targets, weight, 1, is_mean=False)

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step for all rows, along the weighted mean of their gradients."""
        self._learn(X, targets, weight, len(X), is_mean=True)

    def _learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray, size: int, *, is_mean: bool) -> None:
        self._check_targets(X, targets)
        lost = stacks.learn(
            self._inputs(X),
            np.ascontiguousarray(targets, np.float64),
            np.ascontiguousarray(weight, np.float64),
            size,
            is_mean,
            self.arrays,
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
    def arrays(self) -> layout.Nets:
        """All that learning changes and reads, as the kernels take it."""
        moments = (self.parameters, self.first, self.second, self.average)
        return layout.Nets(self._plan, self._numbers, *moments, self.steps, self.scale)

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
            raise refused("averaging_power", averaging_power, "a number of at least 0. If unsure, take 8.")
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
        unit: FloatArray = self.scale[layout.UNIT]
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
        dtype: Precision = "float32",
        scale_targets: bool = True,
    ) -> None:
        super().__init__(n_learners, activation, update, rate, standardize, dtype, scale_targets)
        self.hidden = whole_number("hidden", hidden, 1)

    @property
    def _layer(self) -> tuple[int, int, int]:
        return self.hidden, 1, self.n_features + 1

    def add_features(self, k: int) -> None:
        """Insert k inputs with weights 0 before the intercepts."""
        last = [self.n_features] * k
        self._reshape({"hidden": 0}, lambda name, section, view, axis: np.insert(view, last, 0.0, axis=axis))
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


def whole_number(name: str, value: int, least: int) -> int:
    """The value, if it is a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise refused(name, value, f"a whole number of at least {least}.")
    return int(value)
