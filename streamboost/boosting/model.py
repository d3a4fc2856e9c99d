"""What a booster and a committee of them share: rows are checked, then the loop that knows the model takes them."""

from __future__ import annotations

import copy
import zlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.boosting import critical_section
from streamboost.boosting.drift_replacement import REVIEW_EVERY, DriftReplacement
from streamboost.boosting.hedge import NO_PAIRED_TEST, Hedge, not_kept
from streamboost.boosting.importances import Sample, measure_importances
from streamboost.boosting.intervals import Intervals
from streamboost.boosting.loops import choose
from streamboost.boosting.undo import Undo, is_needed
from streamboost.errors import frozen
from streamboost.features.chunk import Chunk, check_chunk, check_rows
from streamboost.losses import Loss
from streamboost.persistence.array_specs import check_model
from streamboost.persistence.object_graph import make_writable
from streamboost.stacks.base import Stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamboost.boosting.booster import Booster
    from streamboost.boosting.growth import Growth
    from streamboost.boosting.loops.trees import SharedBuffers


class BoostedModel(ABC):
    """One or more boosters, and how their walks are read out."""

    __slots__ = ("__dict__", "_buffers")  # the buffers follow from the rest: they are not part of the state

    noun: ClassVar[str]
    boosters: Sequence[Booster]
    loss: Loss
    hedge: Hedge
    readout: str
    n_jobs: int | None = None
    drift_replacement: DriftReplacement | None = None
    growth: Growth | None = None
    intervals: Intervals | None = None
    is_open: bool
    origin: FloatArray | None = None  # (m,), what scores are measured from within; None: from 0
    is_frozen: bool = False  # whether it predicts only
    importances: FloatArray | Sample | None = None  # of a frozen one: those of its last moment, or rows to find them by
    _buffers: SharedBuffers | None

    @abstractmethod
    def allocate(self, n_features: int, n_targets: int) -> None:
        """Make room for rows of ``n_features`` columns and ``n_targets`` target columns; :meth:`learn` does it."""

    def learn(self, X: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """Predict each row, then learn it; return the scores made before learning, (n, m).

        Whatever is raised, but for an interrupt, which comes between whole rows, the model is then what it was before.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN is a missing value.
        y : array of shape (n,) or (n, k)
            Targets, coded as the loss wants them.
        weight : array of shape (n,), optional
            1 for every row if left out.
        """
        if self.is_frozen:
            raise frozen(self.noun)
        X, y, weight = check_chunk(X, y, weight, self.loss, self.n_features)
        self.check_weight(weight)
        section = object()
        try:
            critical_section.enter(self, section)
            undo = Undo(self, len(X)) if len(X) and is_needed(self, len(X)) else None
            try:
                return self.learn_checked(X, y, weight, not_kept(len(X)))
            except Exception:
                if undo is not None:
                    undo.restore()
                raise
        finally:
            critical_section.leave(self, section)

    def learn_checked(self, X: FloatArray, y: FloatArray, weight: FloatArray, early: FloatArray) -> FloatArray:
        """Learn rows (n, d), targets (n, k) and weights (n,) that were checked already, in a critical section.

        ``early`` (n, k) is what :meth:`score_experts` gave when they were predicted; k is 0 if nobody kept it.
        """
        if self.origin is None:
            return self.learn_relative(X, y, weight, early)
        return self.learn_relative(X, y - self.origin, weight, early) + self.origin

    def learn_relative(self, X: FloatArray, y: FloatArray, weight: FloatArray, early: FloatArray) -> FloatArray:
        """Do the same with targets that are measured from the origin; return scores that are."""
        if self.is_frozen:
            raise frozen(self.noun)
        if len(X) and not self.is_open:
            self.allocate(X.shape[1], y.shape[1])
        chunk, scores = Chunk(X, y, weight), np.empty((len(X), self.boosters[0].loss.n_outputs))
        start = 0
        while start < len(X):
            stop = choose(self).learn(self, chunk, early, scores, start)
            if self.intervals is not None:
                rows = slice(start, stop)
                self.intervals.learn(X[rows], self.loss.predict(scores[rows]), y[rows], weight[rows])
            if self.drift_replacement is not None and self.boosters[0].n_rows % REVIEW_EVERY < stop - start:
                self.drift_replacement.review(self)  # type: ignore[arg-type]  # only a committee has one
                if self.growth is not None:
                    self.growth.review(self)  # type: ignore[arg-type]
            start = stop
            if critical_section.Held.is_pending:
                critical_section.interrupt_point()
        return scores

    def score(self, X: FloatArray) -> FloatArray:
        """Return the raw score of every row, (n, m)."""
        return self.score_checked(self._rows(X))

    def score_checked(self, X: FloatArray) -> FloatArray:
        """Score rows (n, d) that were checked already."""
        scores = choose(self).score(self, X)
        return scores if self.origin is None else scores + self.origin

    def score_experts(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Score rows (n, d) that were checked already; return also what the experts say of each, (n, 1 + E·m).

        That is to be handed back with the labels of these rows, should they come late. In front of it stands the
        :attr:`signature`.
        """
        n_experts = len(self.hedge.experts) if self.readout == "hedge" else 0
        said = np.empty((len(X), n_experts, self.loss.n_outputs))
        scores = choose(self).score(self, X, said)
        told = np.concatenate([np.full((len(X), 1), self.signature), said.reshape(len(X), -1)], axis=1)
        return scores if self.origin is None else scores + self.origin, told

    @property
    def signature(self) -> float:
        """A number that tells sets of experts apart: what some have said is not taken for what others would have."""
        told = self.boosters[0].seed, self.loss.n_outputs, self.hedge.generation, self.hedge.experts.tolist()
        return float(zlib.crc32(repr(told).encode()))

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the prediction of every row: its score through the loss's link."""
        return self.loss.predict(self.score(X))

    def feature_importances(self, owners: IntArray | None = None) -> FloatArray | None:
        """Return the share of each column in how far predictions move with it, (c,); None if learners are no trees.

        ``owners`` says to which column each place in a row belongs, if they are not columns by themselves. A frozen
        model says what the model it was made of said.
        """
        if isinstance(self.importances, np.ndarray):
            return self.importances.copy()
        return measure_importances(self, owners, self.importances)

    def _twin(self) -> Self:
        """Return a shallow copy, which has no buffers yet."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def n_features(self) -> int | None:
        """How many columns rows have; None before the first."""
        return self.boosters[0].stack.n_features if self.is_open else None

    @property
    def paired_test(self) -> FloatArray:
        """What is counted of two experts: see :class:`~streamboost.boosting.drift_replacement.DriftReplacement`."""
        return NO_PAIRED_TEST if self.drift_replacement is None else self.drift_replacement.paired_test

    def check_weight(self, weight: FloatArray) -> None:
        """Refuse weights the learners cannot make use of, before anything is learned."""
        for booster in self.boosters:
            if type(booster.stack).check_weight is not Stack.check_weight:  # most stacks take any
                booster.stack.check_weight(weight)

    def _rows(self, X: FloatArray) -> FloatArray:
        if not self.is_open:
            raise ValueError(f"the {self.noun} has seen no row yet. Call learn(X, y) first.")
        return check_rows(X, self.n_features)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = memo[id(self)] = object.__new__(type(self))  # arrays of a copy can be written to: no need to look
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(make_writable(state))
        check_model(self)
