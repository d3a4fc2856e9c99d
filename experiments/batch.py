"""Classic gradient boosting (the paper's GB): the weak learners one after another, each trained to convergence.

It is what streaming boosting is measured against. Rows flow in all at once; stage i trains a learner of its own
on what the frozen learners before it left over, recomputed for every row it is shown, as on a stream nothing may
be kept. That is why it costs

    T_B · (1 + 2 + … + N) + 2 · T_B · N

units when every learner sees T_B rows, where streaming boosting costs 3 · T · N
(:class:`~streamboost.boosting.cost.CostMeter`).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from streamboost._types import FloatArray, IntArray
from streamboost.bases import Base, Constant
from streamboost.boosting.cost import CostMeter
from streamboost.boosting.edges import EdgeMeter
from streamboost.boosting.loops.plain import BLOCK
from streamboost.descents import Descent
from streamboost.features.binning import Bins
from streamboost.features.chunk import check_chunk
from streamboost.losses import Loss
from streamboost.stacks.base import Stack

PATIENCE = 2  # looks in a row that bring nothing, after which a learner has converged


class Stage(NamedTuple):
    """When a learner was added, and what became of it."""

    number: int  # i, counted from 1
    started: int  # unit cost when it was added
    finished: int  # unit cost when it had converged
    rows: int  # T_B: the rows it learned, each counted as often as it was shown
    edge: float  # γ: the share of its target that it explains
    converged: bool


class GradientBoosting:
    """Batch gradient boosting, with any loss, descent and kind of learner that streaming boosting takes.

    A learner that can be refitted (trees, batch models, fitting functions) converges in one fit to all rows. Any
    other is shown chunk after chunk, pass after pass, until its square loss stops falling.

    Parameters
    ----------
    loss : Loss
    descent : Descent
        With :class:`~streamboost.descents.ResidualProjection` this is residual boosting.
    make_stack : callable
        Called without arguments for each stage, returns a new stack of one learner.
    n_learners : int
        N.
    base : Base, optional
        y⁰; it learns all rows once, first, and is frozen like the stages. Left out: the constant of least loss.
    chunk_size : int
        Rows learned at a time by a learner that cannot be refitted.
    tolerance : float
        It has converged when its square loss was not lower by this fraction than the best one so far after two
        passes in a row.
    max_passes : int
        When to give up waiting for that, with a warning.
    seed : int
        Of the learners, and of the order that each pass takes the rows in.

    Attributes
    ----------
    origin : Base
        y⁰ as it was fitted.
    stages : list of Stack
        h₁, h₂ …, as many as there are so far; each holds one learner.
    history : list of Stage
        One record for each finished stage.
    cost : CostMeter
        Weak-learner predictions and updates so far.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost.descents import GradientDescent
    >>> from streamboost.losses import Squared
    >>> from streamboost.stacks import TreeStack
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> y = np.sin(6 * X[:, 0]) + X[:, 1]
    >>> model = GradientBoosting(Squared(), GradientDescent(0.5), lambda: TreeStack(1, max_depth=3), n_learners=8)
    >>> model = model.fit(X, y)
    >>> print(f"RMSE {np.sqrt(np.mean((model.score(X)[:, 0] - y) ** 2)):.2f} for {model.cost.units:,} units")
    RMSE 0.08 for 26,000 units

    References
    ----------
    Hu et al., Gradient Boosting on Stochastic Data Streams, section "Batch Boosting vs. Streaming Boosting".
    Friedman, Greedy function approximation: a gradient boosting machine, 2001.
    Grubb and Bagnell, Generalized boosting algorithms for convex optimization, 2011: the residual rule.
    """

    def __init__(
        self,
        loss: Loss,
        descent: Descent,
        make_stack: Callable[[], Stack],
        *,
        n_learners: int = 10,
        base: Base | None = None,
        chunk_size: int = 32,
        tolerance: float = 1e-3,
        max_passes: int = 100,
        seed: int = 0,
    ) -> None:
        self.loss = loss
        self.descent = descent
        self.make_stack = make_stack
        self.n_learners = n_learners
        self.base = base
        self.chunk_size = chunk_size
        self.tolerance = tolerance
        self.max_passes = max_passes
        self.seed = seed
        self.stages: list[Stack] = []
        self.history: list[Stage] = []
        self.cost = CostMeter()

    # Training.

    def fit(
        self,
        X: FloatArray,
        y: FloatArray,
        callback: Callable[[int, int, GradientBoosting], object] | None = None,
    ) -> Self:
        """Forget everything, and train N learners in order.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN is a missing value.
        y : array of shape (n,) or (n, k)
            Targets, coded as the loss wants them.
        callback : callable, optional
            ``callback(stage, units, self)``, called after every chunk (or fit to all rows) that the learner of this
            stage, counted from 1, has learned: ``units`` is the cost so far, and ``self`` predicts with that learner.
        """
        rows = _Rows(X, y, self.loss)
        self.cost = CostMeter()
        self.stages, self.history = [], []
        self._scale = self.loss.scale(rows.y, rows.weight)
        self._edges = np.full(self.n_learners, math.nan)
        self.origin = self._learn_base(rows)
        rows.y0 = in_blocks(self.origin.predict, rows.X)
        for number in range(1, self.n_learners + 1):
            stack = self._new_stack(rows.X.shape[1])
            self.stages.append(stack)
            for stage in self._train(stack, rows):
                if callback is not None:
                    callback(number, stage.finished, self)
            self._edges[number - 1] = stage.edge
            self.history.append(stage)
            rows.said.append(in_blocks(partial(_first, stack), rows.X))
        return self

    def _learn_base(self, rows: _Rows) -> Base:
        """y⁰, after one pass over the rows."""
        base = Constant(self.loss.start(rows.y, rows.weight)) if self.base is None else copy.deepcopy(self.base)
        base.open(rows.X.shape[1], self.loss.n_outputs)
        for start in range(0, len(rows.X), self.chunk_size):
            chunk = slice(start, start + self.chunk_size)
            base.learn(rows.X[chunk], rows.y[chunk], rows.weight[chunk], self.loss, self._scale)
        return base

    def _new_stack(self, n_features: int) -> Stack:
        stack = self.make_stack()
        seed = np.random.SeedSequence((self.seed, len(self.stages))).generate_state(1)[0]
        stack.open(n_features, self.loss.n_outputs, int(seed))
        return stack

    def _train(self, stack: Stack, rows: _Rows) -> Iterator[Stage]:
        """Train the newest learner; tell after each step how far it has come."""
        if len(stack.refittable):
            yield self._refit(stack, rows)
        else:
            yield from self._descend(stack, rows)

    def _refit(self, stack: Stack, rows: _Rows) -> Stage:
        """Fit the learner to all rows: it converges at once."""
        started = self.cost.units
        n = len(rows.X)
        target = np.empty((n, self.loss.n_outputs))
        for start in range(0, n, BLOCK):
            target[start : start + BLOCK] = self._target(rows, slice(start, start + BLOCK))
        stack.refit(0, rows.window(stack.n_bins), target, rows.weight)
        meter = EdgeMeter(1, window=1)
        meter.add(target[:, None], stack.predict(rows.X), rows.weight)
        self._count(n)
        return Stage(len(self.stages), started, self.cost.units, n, float(meter.running[0]), converged=True)

    def _descend(self, stack: Stack, rows: _Rows) -> Iterator[Stage]:
        """Show the learner chunk after chunk until its square loss stops falling."""
        started = self.cost.units
        best, disappointments = math.inf, 0
        shown, edge, looked = 0, math.nan, 0
        meter = EdgeMeter(1, window=1)
        for chunk in self._chunks(len(rows.X)):
            X, weight = rows.X[chunk], rows.weight[chunk]
            target = self._target(rows, chunk)[:, None]  # (n, 1, m)
            meter.add(target, stack.predict(X), weight)  # what it said before it learned: no second pass
            stack.learn_batch(X, target, weight)
            self._count(len(X))
            shown += len(X)
            if shown - looked >= len(rows.X):
                edge, looked = float(meter.running[0]), shown
                meter = EdgeMeter(1, window=1)
                missed = 1.0 - edge  # its square loss, as a share of its target: NaN, and no better, if that is 0
                improved = missed < best * (1.0 - self.tolerance)
                best, disappointments = min(best, missed), 0 if improved else disappointments + 1
            converged = disappointments >= PATIENCE
            yield Stage(len(self.stages), started, self.cost.units, shown, edge, converged)
            if converged:
                return
        warnings.warn(
            f"learner {len(self.stages)} had not converged after max_passes={self.max_passes} passes. "
            "Raise max_passes, or the tolerance.",
            ConvergenceWarning,
            stacklevel=4,
        )

    def _chunks(self, n: int) -> Iterator[IntArray]:
        """The rows of every chunk, pass after pass."""
        rng = np.random.default_rng((self.seed, len(self.stages)))
        for _ in range(self.max_passes):
            order = rng.permutation(n)
            for start in range(0, n, self.chunk_size):
                yield order[start : start + self.chunk_size]

    def _target(self, rows: _Rows, chunk: slice | IntArray) -> FloatArray:
        """What the newest learner should say of some rows, (n, m), given what the learners before it say."""
        y0 = rows.y0[chunk]
        h = np.stack([said[chunk] for said in rows.said], axis=1) if rows.said else np.empty((len(y0), 0, y0.shape[1]))
        walk = self.descent.walk(y0, h, self.eta[: h.shape[1]])
        target = self.descent.next_target(walk, h, self.loss, rows.y[chunk])
        if not np.isfinite(target).all():
            raise FloatingPointError(
                f"the gradient of {self.loss!r} is not finite at learner {len(self.stages)}. Use a smaller step size."
            )
        return target

    def _count(self, n: int) -> None:
        """Charge the newest learner's rows: a prediction of it and of each one before it, and an update."""
        self.cost.add(n, len(self.stages), 1)

    # Predicting.

    @property
    def eta(self) -> FloatArray:
        """The step sizes of the learners so far; a schedule that follows edges knows those of finished ones."""
        eta = self.descent.schedule(self.n_learners, self.loss, self._scale, self._edges)
        return eta[: len(self.stages)]

    def walk(self, X: FloatArray) -> FloatArray:
        """The partial sums y⁰ … yᴺ of every row, (n, N + 1, m)."""
        h = np.empty((len(X), len(self.stages), self.loss.n_outputs))
        for i, stack in enumerate(self.stages):
            h[:, i] = stack.predict(X)[:, 0]
        return self.descent.walk(self.origin.predict(X), h, self.eta)

    def score(self, X: FloatArray) -> FloatArray:
        """The raw score of every row, (n, m)."""
        return self.descent.score(self.walk(X))


def _first(stack: Stack, X: FloatArray) -> FloatArray:
    return stack.predict(X)[:, 0]


def in_blocks(ask: Callable[[FloatArray], FloatArray], X: FloatArray) -> FloatArray:
    """Answers (n, m) to rows, asked for in blocks."""
    return np.concatenate([ask(X[start : start + BLOCK]) for start in range(0, len(X), BLOCK)])


class _Rows:
    """All rows, checked, and seen as the windows that learners are refitted to."""

    def __init__(self, X: FloatArray, y: FloatArray, loss: Loss) -> None:
        self.X, self.y, self.weight = check_chunk(X, y, None, loss)
        self.y0: FloatArray = np.empty((0, 0))  # where the walk of every row starts, (n, m)
        self.said: list[FloatArray] = []  # what finished learners say of them, (n, m): asked once, charged each time
        self._windows: dict[int, _AllRows] = {}

    def window(self, n_bins: int) -> _AllRows:
        """The rows with this many bins; made once for all stages."""
        if n_bins not in self._windows:
            self._windows[n_bins] = _AllRows(self.X, n_bins)
        return self._windows[n_bins]


class _AllRows:
    """A window that holds every row; the bins wait until a learner asks for them."""

    def __init__(self, X: FloatArray, n_bins: int) -> None:
        self.X = X
        self.n_bins = n_bins

    @cached_property
    def bins(self) -> Bins:
        """The cut points."""
        bins = Bins(self.n_bins)
        bins.fit(self.X)
        return bins

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """The rows as bin codes, (d, n)."""
        return self.bins.encode(self.X)
