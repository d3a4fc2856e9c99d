"""A committee: boosters with different memories side by side, and the hedge that reads out over all their walks.

A long memory is accurate while the stream stays as it is; a short one is soon right again when it changes. Short
memories are cheap, so there may be several, and the hedge learns row by row whom to believe.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from streamboost._types import FloatArray
from streamboost.bases import Constant, Linear
from streamboost.boosting import memory_budget
from streamboost.boosting.booster import Booster
from streamboost.boosting.drift_replacement import DriftReplacement, Event
from streamboost.boosting.growth import Growth
from streamboost.boosting.hedge import HALF_LIVES, Expert, Hedge
from streamboost.boosting.intervals import Intervals, has_intervals
from streamboost.boosting.loops import choose
from streamboost.boosting.loops.plain import read_out
from streamboost.boosting.model import BoostedModel
from streamboost.descents import GradientDescent
from streamboost.kernels.linear import running_means
from streamboost.losses import Loss
from streamboost.persistence.array_specs import ArraySpec

STEPS = (0,)  # the partial sums that are experts, beside the last of each booster: the base alone


class Committee(BoostedModel):
    """Several boosters over the same rows, and one score read out of all their walks.

    Parameters
    ----------
    boosters : sequence of Booster
        Under the same loss; the first one, with the longest memory, is the one that ``"last"`` and ``"mean"`` read.
    readout : {"hedge", "last", "mean"}
        ``"hedge"`` is a vote over partial sums of all boosters, by what each lost on the latest rows. ``"last"`` is
        yᴺ of the first booster, as in Algorithm 1, and ``"mean"`` the mean of its yⁱ, as in Algorithm 2.
    steps : sequence of int
        Which partial sums of each booster are experts, beside the last.
    half_lives : sequence of float
        After how many rows a loss counts half, for each of the hedge's voters.
    memory_limit_mb : float, optional
        What all of it may take: windows and numbers of learners shrink to fit, and say so.
    grows : bool
        Whether a booster that holds all rows may join where the longest memory is full and believed: see
        :mod:`~streamboost.boosting.growth`.
    n_jobs : int, optional
        With more than one, boosters that are due at the same row are refitted at the same time; the result is the same.

    Attributes
    ----------
    hedge : Hedge
        Who is believed: see ``hedge.weights``.
    n_rows : int
        Rows learned so far.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost.boosting import Booster
    >>> from streamboost.losses import Squared
    >>> from streamboost.replay import Replay
    >>> from streamboost.stacks import TreeStack
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 3))
    >>> y = np.sin(6 * X[:, 0])
    >>> y[1000:] = -y[1000:]  # from here on everything is different
    >>> boosters = [Booster(Squared(), stack=TreeStack(20), replay=Replay(window)) for window in (4096, 256)]
    >>> before = Committee(boosters).learn(X, y)
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(1))
    0.1
    """

    noun = "committee"
    boosters: list[Booster]
    mean_weight = 1.0  # of the rows learned

    def __init__(
        self,
        boosters: Sequence[Booster],
        *,
        readout: Literal["hedge", "last", "mean"] = "hedge",
        steps: Sequence[int] = STEPS,
        half_lives: Sequence[float] = HALF_LIVES,
        memory_limit_mb: float | None = None,
        n_jobs: int | None = None,
        grows: bool = False,
    ) -> None:
        self.boosters = list(boosters)
        if not self.boosters or any(booster.loss != self.boosters[0].loss for booster in self.boosters):
            raise ValueError(f"boosters is {self.boosters!r}, expected one or more, all under the same loss.")
        if len({booster.update_mode for booster in self.boosters}) > 1:
            raise ValueError("some boosters are sequential and some take mini-batches, expected all of them to agree.")
        if readout not in ("hedge", "last", "mean"):
            raise ValueError(f"readout is {readout!r}, expected 'hedge', 'last' or 'mean'. If unsure, leave it out.")
        if memory_limit_mb is not None and not memory_limit_mb > 0:
            way_out = "For no limit, leave it out."
            raise ValueError(f"memory_limit_mb is {memory_limit_mb!r}, expected a number above 0. {way_out}")
        if n_jobs is not None and not (isinstance(n_jobs, int) and (n_jobs > 0 or n_jobs == -1)):
            raise ValueError(f"n_jobs is {n_jobs!r}, expected a whole number above 0, or -1 for all cores.")
        self.readout, self.steps, self.half_lives = readout, tuple(steps), tuple(half_lives)
        self.memory_limit_mb, self.n_jobs = memory_limit_mb, n_jobs
        self.hedge = self._make_hedge()
        has_ladder = len(self.boosters) > 1 and readout == "hedge" and all(booster.replay for booster in self.boosters)
        self.drift_replacement = DriftReplacement() if has_ladder else None
        self.growth = Growth() if grows and self.drift_replacement is not None else None
        self.events: list[Event] = []
        self.mean_weight = 1.0
        self.categorical: tuple[int, ...] = ()
        self.n_levels, self.is_open = 0, False

    def _experts(self) -> list[Expert]:
        sizes = [booster.stack.n_learners for booster in self.boosters]
        return [Expert(b, step) for b, n in enumerate(sizes) for step in (*(s for s in self.steps if s < n), n)]

    def _make_hedge(self) -> Hedge:
        hedge = Hedge(self._experts(), self.half_lives)
        if any(getattr(booster.stack, "monotonic_cst", None) is not None for booster in self.boosters):
            hedge.combination.combines = False  # a vote keeps to constraints that all experts keep to, a sum does not
        if not all(type(booster.base) in (Linear, Constant) for booster in self.boosters):
            hedge.combination.holds = False  # somebody's model has seen targets that this one has not
        return hedge

    @property
    def loss(self) -> Loss:  # type: ignore[override]
        """The loss of all boosters."""
        return self.boosters[0].loss

    @property
    def origin(self) -> FloatArray | None:  # type: ignore[override]
        """What scores are measured from within, (m,): the first target; None: from 0."""
        return self.boosters[0].origin

    @property
    def n_rows(self) -> int:
        """Rows learned so far."""
        return self.boosters[0].n_rows

    def allocate(self, n_features: int, n_targets: int) -> None:
        """Make room for rows of ``n_features`` columns and ``n_targets`` target columns; :meth:`learn` does it."""
        if self._fit(n_features):
            self.hedge = self._make_hedge()
        for booster in self.boosters:
            booster.allocate(n_features, n_targets)
        self.hedge.open(self.loss)
        self.intervals = Intervals(self.loss, n_features) if has_intervals(self.loss) else None
        self.is_open = True
        self.set_categorical(self.categorical, self.n_levels)

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what arrays that speak of several boosters have to be."""
        E, sizes = len(self.hedge.experts), np.array([booster.stack.n_learners for booster in self.boosters])
        which, steps = self.hedge.experts.T
        if E and self.readout == "hedge" and (which.max() >= len(sizes) or (steps > sizes[which]).any()):
            raise ValueError("the hedge has experts that no booster has")
        shapes = {(b.stack.n_features, b.stack.n_outputs, type(b.loss)) for b in self.boosters}
        if len(shapes) > 1:
            raise ValueError(f"the boosters are of different columns or outputs: {shapes}")
        if any(booster.is_frozen is not self.is_frozen for booster in self.boosters):
            raise ValueError("some boosters are frozen and some are not")
        if any(booster.is_open is not self.is_open for booster in self.boosters):
            raise ValueError("some boosters have learned and some have not")
        if self.drift_replacement is not None and not (self.paired_test[:2] < E).all():
            raise ValueError(f"a paired test is of experts {self.paired_test[:2].tolist()}, of which there are {E}")
        return {"drift_replacement.paired_test": ArraySpec("f8", (6,))}

    def _fit(self, n_features: int | None = None, n_outputs: int | None = None) -> bool:
        """Shrink to fit the memory limit with so many columns and outputs, and say so; return whether it was needed."""
        n_features = self.boosters[0].stack.n_features if n_features is None else n_features
        shape = memory_budget.Shape(n_features, n_outputs or self.loss.n_outputs, self.loss.n_targets)
        if self.memory_limit_mb is None:
            memory_budget.check(self.boosters, shape)
            return False
        change = memory_budget.fit(self.boosters, self.memory_limit_mb, shape)
        if change is not None:
            self.events.append(Event(self.n_rows, "memory limited", change))
            warnings.warn(f"to stay within memory_limit_mb={self.memory_limit_mb}, {change}.", stacklevel=2)
        return change is not None

    def learn_checked(self, X: FloatArray, y: FloatArray, weight: FloatArray, early: FloatArray) -> FloatArray:
        """Learn rows (n, d), targets (n, k) and weights (n,) that were checked already, in a critical section.

        Weights count relative to the mean of those seen so far, this row's among them, so that of a first row every
        weight is 1. A row of weight 0 is scored, and otherwise as if it had not come.
        """
        if not weight.all():
            return self._learn_those_that_count(X, y, weight, early)
        before, means = self.n_rows, weight
        if not (weight == self.mean_weight).all():
            means = running_means(weight, self.mean_weight, before)
        if not before and len(y) and self._can_shift():
            for booster in self.boosters:
                booster.origin = y[0].copy()
        if self.intervals is None and self.is_open and has_intervals(self.loss):  # of an older file
            self.intervals = Intervals(self.loss, X.shape[1])
        try:
            scores = super().learn_checked(X, y, weight / means, early)
        finally:
            if (learned := self.n_rows - before) > 0:  # all of them, or as many as were
                self.mean_weight = float(means[learned - 1])
        if not before and self.origin is not None:
            scores[: self.boosters[0].step_rows(len(X))] = 0.0  # of a first step nothing was known, not even the origin
        return scores

    def _learn_those_that_count(
        self, X: FloatArray, y: FloatArray, weight: FloatArray, early: FloatArray
    ) -> FloatArray:
        """Learn the rows of weights above 0; score the others as they come, or first where rows share a step."""
        scores, counts = np.zeros((len(X), self.loss.n_outputs)), weight > 0
        is_sequential = self.boosters[0].step_rows(len(X)) == 1
        runs = np.split(np.arange(len(X)), np.flatnonzero(np.diff(counts)) + 1) if is_sequential else []
        for rows in runs or [np.flatnonzero(~counts), np.flatnonzero(counts)]:
            if len(rows) and counts[rows[0]]:
                scores[rows] = self.learn_checked(X[rows], y[rows], weight[rows], early[rows])
            elif len(rows) and self.n_rows:
                scores[rows] = self.score_checked(X[rows])
        return scores

    def _can_shift(self) -> bool:
        """Whether a number added to all targets is added to all predictions, since no part is told where to start."""
        return self.loss.shifts and all(booster.base.shifts and booster.descent.shifts for booster in self.boosters)

    def staged_scores(self, X: FloatArray) -> Any:
        """The raw scores (n, m) with the first learner of each booster, the first two, and so on."""
        X = self._rows(X)
        walks = [booster.walk_checked(X) for booster in self.boosters]
        for i in range(1, max(walk.shape[1] for walk in walks)):
            scores = read_out(self, [walk[:, : i + 1] for walk in walks])
            yield scores if self.origin is None else scores + self.origin

    def predict_intervals(self, X: FloatArray, coverage: float) -> FloatArray:
        """Return the ends of the interval around every prediction, (n, m, 2), of rows (n, d) that were checked."""
        relative = self.loss.predict(choose(self).score(self, X))
        intervals = self.intervals or Intervals(self.loss, X.shape[1])
        ends = intervals.predict(X, relative, coverage)
        return ends if self.origin is None else ends + self.origin[:, None]

    def for_prediction(self) -> Committee:
        """Return a committee of frozen boosters; see :meth:`Booster.for_prediction`."""
        twin = self._twin()
        twin.is_frozen, twin.boosters = True, [booster.for_prediction() for booster in self.boosters]
        return twin

    # What it says of itself.

    def weights(self) -> dict[tuple[int | None, int], float]:
        """The weight of every expert in the vote, by its memory and its number of learners, the most trusted first."""
        weights: dict[tuple[int | None, int], float] = {}
        for key, weight in zip(self._expert_keys(), self.hedge.weights.tolist(), strict=True):
            weights[key] = weights.get(key, 0.0) + weight
        return dict(sorted(weights.items(), key=lambda item: -item[1]))

    def _expert_keys(self) -> list[tuple[int | None, int]]:
        windows = [None if booster.replay is None else booster.replay.window for booster in self.boosters]
        return [(windows[b], step) for b, step in self.hedge.experts.tolist()]

    def coefficients(self) -> dict[tuple[int | None, int] | str, float]:
        """The coefficients of the combination, by memory and number of learners; for classes also of the vote itself.

        Empty where the vote stands by itself. See :mod:`streamboost.boosting.combining`.
        """
        slope, step, *own = self.hedge.combination.coefficients.tolist() or [0.0, 0.0]
        coefficients: dict[tuple[int | None, int] | str, float] = {}
        if self.loss.temperature_scale == 0.0 and own:
            coefficients = {"slope": slope, "step": step}
        for key, coefficient in zip(self._expert_keys(), own, strict=False):
            coefficients[key] = coefficients.get(key, 0.0) + coefficient
        return coefficients

    # Growing.

    def check_growth(self, n_features: int, n_outputs: int, n_categorical: int, n_levels: int) -> None:
        """Refuse to grow so far if there is no memory for it; change nothing."""
        shape = memory_budget.Shape(n_features, n_outputs, self.loss.n_targets, n_categorical, n_levels)
        memory_budget.check(self.boosters, shape, self.memory_limit_mb)

    def grow(self, k: int) -> None:
        """Add k learners to every booster, mid-stream; its whole sum stays an expert."""
        before = [booster.stack.n_learners for booster in self.boosters]
        for booster in self.boosters:
            booster.grow(k)
        for expert in self.hedge.experts:
            if expert[1] == before[expert[0]]:
                expert[1] += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns; rows seen so far had nothing there."""
        self._fit(self.boosters[0].stack.n_features + k)
        for booster in self.boosters:
            booster.add_features(k)
        if self.intervals is not None:
            self.intervals.add_features(k)

    def set_categorical(self, columns: Sequence[int], n_levels: int) -> None:
        """Learn that columns hold the numbers of levels, of which ``n_levels`` are to be told apart."""
        self.categorical, self.n_levels = tuple(columns), n_levels
        if self.is_open and columns:
            for booster in self.boosters:
                booster.set_categorical(np.array(columns, np.int32), n_levels)
            self._fit()

    def add_outputs(self, loss: Loss, score: float) -> None:
        """Go on with a loss of more outputs, whose y⁰ starts at ``score``: what a new class needs."""
        self._fit(n_outputs=loss.n_outputs)
        for booster in self.boosters:
            booster.add_outputs(loss, score)
        self.hedge.add_classes(loss)

    def split_output(self, loss: Loss) -> None:
        """Go on with a score a class instead of one score for two; see :meth:`Booster.split_output`."""
        for booster in self.boosters:
            booster.split_output(loss)

    @property
    def splits(self) -> bool:
        """Whether :meth:`split_output` is there."""
        whole = all(booster.stack.splits and booster.base.splits for booster in self.boosters)
        kinds = {(type(booster.descent), booster.descent.adaptive) for booster in self.boosters}
        return whole and kinds == {(GradientDescent, False)}
