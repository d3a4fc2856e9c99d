"""What a stack is: N weak learners of one kind, held together.

A stack says what each learner predicts and is told what each should have said. It knows neither the loss
nor the descent, so every stack works with every loss. Given ``x`` the answers do not depend on one
another: a stack answers for all N at once.

Into a stack flow float rows ``X`` (n, d), with NaN for a missing value, and targets (n, N, m);
out of it flow predictions (n, N, m).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.errors import refused
from streamboost.features.binning import Bins

LeafIds = NDArray[np.uint16]


class Window(Protocol):
    """The rows a learner is refitted to: what :class:`streamboost.replay.Replay` shows of itself."""

    @property
    def X(self) -> FloatArray:  # noqa: N802 (the paper's letter)
        """The rows, (n, d)."""

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The same rows as bin codes, (d, n): only for a stack that declares ``n_bins``."""

    @property
    def bins(self) -> Bins:
        """The cut points behind ``codes``."""


class Stack(ABC):
    """N weak learners of one kind.

    A stack is made with its options only; :meth:`open` tells it the shapes, once, before the first row.
    Predicting never changes it. All randomness comes from the ``seed`` given to :meth:`open`.

    Attributes
    ----------
    n_learners : int
        N.
    n_features, n_outputs : int
        d and m; 0 until opened.
    refittable : sequence of int
        Which learners can be fitted from scratch to a window of rows (:meth:`refit`).
    n_bins : int
        How many bin codes per column a refit wants; 0 if it wants the raw rows only.
    """

    n_bins: int = 0
    splits: bool = False  # whether split_output is there
    averages: bool = False  # whether keep_average and averaged are there
    step_share: float | None = None  # how much of the natural step suits these learners, if they care
    categorical: IntArray = np.zeros(0, np.int32)  # the columns known to hold levels

    def __init__(self, n_learners: int) -> None:
        if not isinstance(n_learners, (int, np.integer)) or n_learners < 1:
            way_out = "If unsure, leave it out: every stack has a default."
            raise refused("n_learners", n_learners, f"a whole number of at least 1. {way_out}")
        self.n_learners = int(n_learners)
        self.n_features = self.n_outputs = 0

    def open(self, n_features: int, n_outputs: int, seed: int = 0) -> None:
        """Make room for rows of ``n_features`` columns and targets of ``n_outputs`` columns."""
        self.n_features, self.n_outputs = n_features, n_outputs
        self._open(seed)

    @abstractmethod
    def _open(self, seed: int) -> None:
        """Allocate the learners; every learner predicts 0 until it has learned something."""

    def _check_targets(self, X: FloatArray, targets: FloatArray) -> None:
        expected = (len(X), self.n_learners, self.n_outputs)
        if targets.shape != expected:
            told = f"targets have shape {targets.shape}, expected {expected}: one for each row, learner and output."
            raise ValueError(f"{told} For a single output pass targets[..., None].")

    @abstractmethod
    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m): a new array."""

    def predict_first(self, X: FloatArray, k: int) -> FloatArray:
        """What the first k learners say, (n, k, m); worth overriding where each answer has to be asked for."""
        return self.predict(X)[:, :k]

    @abstractmethod
    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Let learner i learn ``targets[:, i]`` (n, m) for the rows ``X``, row after row."""

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Learn rows that share the present hypotheses: row after row, unless learners have one step for them all."""
        self.learn(X, targets, weight)

    @abstractmethod
    def grow(self, k: int) -> None:
        """Append k fresh learners."""

    @abstractmethod
    def add_features(self, k: int) -> None:
        """Make room for k more columns; rows seen so far had nothing (NaN) there."""

    @abstractmethod
    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs; every learner says 0 there until told otherwise."""

    def for_prediction(self) -> Stack:
        """Return learners that say the same and share their arrays, without those that only learning needs."""
        return self

    def set_categorical(self, columns: Sequence[int] | IntArray, n_levels: int) -> None:  # noqa: B027
        """Learn that columns hold the numbers of levels; a stack that does not care takes them for numbers."""

    def split_output(self) -> None:
        """Make two outputs of one: the first says the opposite, the second the same; what a third class needs."""
        raise TypeError(f"{type(self).__name__} cannot split its output: give it one output a class from the start.")

    def keep_average(self, averaging_power: float) -> None:
        """Keep from now on, beside the parameters, their mean over all steps t: a ← a + (p − a)(k + 1)/(t + k).

        Where k, ``averaging_power``, is 0 it is the plain mean; 8 gives the last tenth most of the weight.
        """
        raise TypeError(f"{type(self).__name__} has no parameters to average: use iterate='last' or 'average'.")

    def averaged(self) -> Stack:
        """The same learners with the mean of their parameters: to be asked, not to be taught."""
        raise TypeError(f"{type(self).__name__} has no parameters to average: use iterate='last' or 'average'.")

    @property
    def refittable(self) -> Sequence[int]:
        """The learners that :meth:`refit` takes; none unless a stack says otherwise."""
        return range(0)

    @property
    def needs_replay(self) -> bool:
        """Whether learners learn from refits alone, so that without a replay they would never say anything."""
        return False

    def check_weight(self, weight: FloatArray) -> None:  # noqa: B027 (most stacks take any weight)
        """Refuse weights (n,) these learners cannot make use of; called before anything is learned from a chunk."""

    def refit(self, i: int, window: Window, target: FloatArray, weight: FloatArray) -> LeafIds | None:
        """Fit learner i afresh to the window's rows; return its leaf of each of those rows, if it keeps any.

        ``target`` is (n, m), one row for each row of the window.
        """
        raise TypeError(f"{type(self).__name__} cannot be refitted: give the booster replay=None.")

    def leaf_ids(self, X: FloatArray) -> LeafIds | None:
        """Return the leaf of each row in each learner, (n, N), where :meth:`predict_leaves` is there."""
        return None

    def predict_leaves(self, leaf_ids: LeafIds) -> FloatArray:
        """Return what the first k learners say of rows, (n, k, m), from the rows' leaves in them, (n, k)."""
        raise TypeError(f"{type(self).__name__} has no leaves: use predict.")
