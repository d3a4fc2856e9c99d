"""What stacks of anyone's neural modules have in common, whichever library runs them.

Into a :class:`ModuleStack` flow float64 rows; the modules see standardised float32 rows with 0 for a missing value,
and what they say comes back as float64. The modules lie in blocks: rectangles of learners and outputs that were made
at the same time, each with an optimiser of its own. :meth:`~ModuleStack.open` makes the first block,
:meth:`~ModuleStack.grow` and :meth:`~ModuleStack.add_outputs` each append one, so that what has learned stays as it
is, state of the optimiser included.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import FloatArray
from streamboost.stacks.base import Stack
from streamboost.standardize import Raw, Standardizer

Float32Array: TypeAlias = NDArray[np.float32]

TRIAL_ROWS = 3  # of the call that shows, before anything is learned, what a module makes of rows


class Place(NamedTuple):
    """Which learners and outputs a block answers for, and how many columns it sees."""

    learners: slice
    outputs: slice
    n_features: int

    @property
    def n_learners(self) -> int:
        """The learners of the block."""
        return int(self.learners.stop - self.learners.start)

    @property
    def n_outputs(self) -> int:
        """The outputs of the block."""
        return int(self.outputs.stop - self.outputs.start)


class Fault(NamedTuple):
    """Who said or wanted what is no finite number, and at which of the rows given."""

    learner: int
    what: str
    row: int = 0


class Block(ABC):
    """Modules for a rectangle of learners and outputs; they say 0 until they are taught."""

    taught = False
    bend: float | None = None  # of the average, if one is kept
    steps = 0  # that are in the average

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def say(self, Z: Float32Array) -> Float32Array:
        """What the modules say, (n, k, m), without changing anything."""

    @abstractmethod
    def keep_average(self, bend: float) -> None:
        """Average the parameters from now on."""

    @abstractmethod
    def averaged(self) -> Block:
        """A copy with the mean of the parameters; before the first step that is what they are now."""

    def share(self) -> float:
        """The share of the present parameters in their average, counting the step just made."""
        assert self.bend is not None
        self.steps += 1
        return (self.bend + 1.0) / (self.steps + self.bend)


class ModuleStack(Stack):
    """N modules in blocks. A subclass makes blocks (:meth:`_block`) and lets them make steps."""

    averages = True
    step_share = 0.5
    rows_at_once = 1  # how many rows :meth:`_rows` is given
    kind = "module"  # what a learner is called when it is complained about
    _blocks: list[Any]
    _is_average = False

    def __init__(self, n_learners: int, standardize: bool) -> None:
        super().__init__(n_learners)
        self.standardize = standardize

    # What a subclass has to say.

    @property
    @abstractmethod
    def fixed_width(self) -> str:
        """Why modules take no shapes but those they were written for; empty if they take any."""

    @abstractmethod
    def _block(self, place: Place, seeds: Sequence[int]) -> Block:
        """Make fresh modules, one for each seed, and try them."""

    @abstractmethod
    def _rows(self, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        """One step for each row; at a fault the rows before it are learned, and no other."""

    @abstractmethod
    def _batch(self, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        """One step on the sum over the rows; at a fault none."""

    # The contract.

    def _open(self, seed: int) -> None:
        self._seed = seed
        self._made = 0  # blocks so far: each has seeds of its own
        self._bend: float | None = None
        self._width = self.n_features
        self.inputs = Standardizer(self.n_features) if self.standardize else Raw(self.n_features)
        self._blocks = []
        self._append(slice(0, self.n_learners), slice(0, self.n_outputs))

    def _append(self, learners: slice, outputs: slice) -> None:
        place = Place(learners, outputs, self._width if self.fixed_width else self.n_features)
        seeds = [
            int(np.random.SeedSequence((self._seed, self._made, i)).generate_state(1)[0])
            for i in range(place.n_learners)
        ]
        block = self._block(place, seeds)
        if self._bend is not None:
            block.keep_average(self._bend)
        self._blocks.append(block)
        self._made += 1

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m): 0 before its first row."""
        said = np.zeros((len(X), self.n_learners, self.n_outputs))
        if not len(X):
            return said
        Z = _seen(self.inputs, X)
        for block in self._blocks:
            if block.taught:
                said[:, block.place.learners, block.place.outputs] = block.say(Z[:, : block.place.n_features])
        if not np.isfinite(said).all():
            row, learner, output = np.argwhere(~np.isfinite(said))[0]
            raise FloatingPointError(
                f"learner {learner} ({self.kind}) said {said[row, learner, output]} of row {row}, expected a finite "
                "number. It may have diverged: use a smaller learning rate, or standardize=True."
            )
        return said

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step of the optimisers for each row, in order; a weight multiplies the gradient of its row."""
        kept = weight > 0
        X, targets, weight = X[kept], targets[kept], weight[kept]
        for start in range(0, len(X), self.rows_at_once):
            rows = slice(start, start + self.rows_at_once)
            self._learn_rows(X[rows], targets[rows], weight[rows])

    def _learn_rows(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        self._refuse_average()
        inputs = copy.deepcopy(self.inputs)
        fault = self._rows(_flow(inputs, X, weight), targets.astype(np.float32), weight.astype(np.float32))
        if fault is not None:
            _flow(self.inputs, X[: fault.row], weight[: fault.row])  # those were learned
            raise self._not_finite(fault)
        self.inputs = inputs

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step of the optimisers on the weighted mean of the rows' gradients."""
        self._refuse_average()
        kept = weight > 0
        if not kept.any():
            return
        share = weight[kept] / weight[kept].sum()
        fault = self._batch(_seen(self.inputs, X[kept]), targets[kept].astype(np.float32), share.astype(np.float32))
        if fault is not None:
            raise self._not_finite(fault)
        self.inputs.learn(X[kept], weight[kept])

    def _refuse_average(self) -> None:
        if self._is_average:
            raise TypeError("these learners are the averages of others: they can be asked, not taught. Teach those.")

    def _not_finite(self, fault: Fault) -> FloatingPointError:
        return FloatingPointError(
            f"learner {fault.learner} ({self.kind}) {fault.what} that is not finite, so the step was not taken. "
            "Use a smaller learning rate, standardize=True, or check the module for a division or a logarithm."
        )

    def grow(self, k: int) -> None:
        """Append k learners that say 0 until they learn."""
        self._append(slice(self.n_learners, self.n_learners + k), slice(0, self.n_outputs))
        self.n_learners += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns: modules see those they were made with, so these are for modules made later."""
        self.inputs.add_features(k)
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Append k outputs, for which every learner gets one module more."""
        if self.fixed_width:
            raise TypeError(f"{k} outputs cannot be added: {self.fixed_width}")
        self._append(slice(0, self.n_learners), slice(self.n_outputs, self.n_outputs + k))
        self.n_outputs += k

    def keep_average(self, bend: float) -> None:
        """Keep the mean of the parameters over the steps from now on."""
        self._bend = bend
        for block in self._blocks:
            block.keep_average(bend)

    def averaged(self) -> ModuleStack:
        """The same learners with the mean of their parameters: to be asked, not to be taught."""
        if self._bend is None:
            raise TypeError("no average has been kept: call keep_average before the rows to be averaged over.")
        twin = copy.copy(self)
        twin._is_average = True
        twin.inputs = copy.deepcopy(self.inputs)
        twin._blocks = [block.averaged() for block in self._blocks]
        return twin


def _seen(inputs: Standardizer | Raw, X: FloatArray) -> Float32Array:
    """The rows as modules see them, without the column of ones: modules have biases of their own."""
    return inputs.transform(X)[:, :-1].astype(np.float32)


def _flow(inputs: Standardizer | Raw, X: FloatArray, weight: FloatArray) -> Float32Array:
    """The rows as modules see them, each by the moments of the rows before it, as when it was predicted.

    So it does not matter how a stream is cut into chunks.
    """
    Z = np.empty(X.shape, np.float32)
    for t in range(len(X)):
        Z[t] = _seen(inputs, X[t : t + 1])
        inputs.learn(X[t : t + 1], weight[t : t + 1])
    return Z


def takes_shapes(name: str, make: Callable[..., Any]) -> bool:
    """Whether a function is to be called with (n_features, n_outputs), or with nothing; refuse any other."""
    if not callable(make):
        raise TypeError(f"{name} is {make!r}, expected a function that returns a fresh module at every call.")
    try:
        signature = inspect.signature(make)
    except ValueError:  # of something compiled
        return True
    for n_arguments in (0, 2):
        try:
            signature.bind(*range(n_arguments))
        except TypeError:
            continue
        return n_arguments == 2
    raise TypeError(
        f"{name} takes {signature}, expected no argument or (n_features, n_outputs). Write a lambda around it."
    )


def check_said(shape: tuple[int, ...], n: int, n_outputs: int, who: str) -> None:
    """Refuse a shape other than (n, m), or (n,) for a single output."""
    if shape != (n, n_outputs) and not (shape == (n,) and n_outputs == 1):
        raise ValueError(
            f"{who} said an array of shape {shape} of {n} rows, expected {(n, n_outputs)}: one row for each of X, one "
            "column for each output. Check the last layer."
        )
