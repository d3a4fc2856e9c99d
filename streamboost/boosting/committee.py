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
from streamboost.boosting import memory_budget as limits
from streamboost.boosting.booster import BLOCK, Booster
from streamboost.boosting.drift_replacement import REVIEW_EVERY, DriftReplacement, Event
from streamboost.boosting.hedge import HALF_LIVES, NO_PAIRED_TEST, Expert, Hedge
from streamboost.boosting.loops import nets as net_native
from streamboost.boosting.loops import trees as native
from streamboost.descents import GradientDescent
from streamboost.features.chunk import Chunk, check_chunk, check_rows
from streamboost.losses import Loss

STEPS = (0,)  # the partial sums that are experts, beside the last of each booster: the base alone


class Committee:
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

    __slots__ = ("__dict__", "_buffers")  # the buffers follow from the rest: they are not part of the state

    def __init__(
        self,
        boosters: Sequence[Booster],
        *,
        readout: Literal["hedge", "last", "mean"] = "hedge",
        steps: Sequence[int] = STEPS,
        half_lives: Sequence[float] = HALF_LIVES,
        memory_limit_mb: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.boosters = list(boosters)
        if not self.boosters or any(booster.loss != self.boosters[0].loss for booster in self.boosters):
            raise ValueError(f"boosters is {self.boosters!r}, expected one or more, all under the same loss.")
        if len({booster.update_mode for booster in self.boosters}) > 1:
            raise ValueError("some boosters are sequential and some take mini-batches, expected all of them to agree.")
        if readout not in ("hedge", "last", "mean"):
            raise ValueError(f"readout is {readout!r}, expected 'hedge', 'last' or 'mean'. If unsure, leave it out.")
        if memory_limit_mb is not None and not memory_limit_mb > 0:
            raise ValueError(
                f"memory_limit_mb is {memory_limit_mb!r}, expected a number above 0. For no limit, leave it out."
            )
        if n_jobs is not None and not (isinstance(n_jobs, int) and (n_jobs > 0 or n_jobs == -1)):
            raise ValueError(f"n_jobs is {n_jobs!r}, expected a whole number above 0, or -1 for all cores.")
        self.readout = readout
        self.steps = tuple(steps)
        self.half_lives = tuple(half_lives)
        self.memory_limit_mb = memory_limit_mb
        self.n_jobs = n_jobs
        self.hedge = Hedge(self._experts(), half_lives)
        has_ladder = len(self.boosters) > 1 and readout == "hedge" and all(booster.replay for booster in self.boosters)
        self.drift_replacement = DriftReplacement() if has_ladder else None
        self.events: list[Event] = []
        self.categorical: tuple[int, ...] = ()
        self.n_levels = 0
        self.is_open = False

    def _experts(self) -> list[Expert]:
        sizes = [booster.stack.n_learners for booster in self.boosters]
        return [Expert(b, step) for b, n in enumerate(sizes) for step in (*(s for s in self.steps if s < n), n)]

    @property
    def loss(self) -> Loss:
        """The loss of all boosters."""
        return self.boosters[0].loss

    @property
    def n_rows(self) -> int:
        """Rows learned so far."""
        return self.boosters[0].n_rows

    def allocate(self, n_features: int, n_targets: int) -> None:
        """Make room for rows of ``n_features`` columns and ``n_targets`` target columns; :meth:`learn` does it."""
        if self._fit(n_features, self.loss.n_outputs):
            self.hedge = Hedge(self._experts(), self.half_lives)
        for booster in self.boosters:
            booster.allocate(n_features, n_targets)
        self.hedge.open(self.loss)
        self.is_open = True
        self.set_categorical(self.categorical, self.n_levels)

    def _fit(self, n_features: int, n_outputs: int) -> bool:
        """Shrink to fit the memory limit, and say so; return whether that was needed."""
        shape = limits.Shape(n_features, n_outputs, self.loss.n_targets)
        if self.memory_limit_mb is None:
            limits.check(self.boosters, shape)
            return False
        change = limits.fit(self.boosters, self.memory_limit_mb, shape)
        if change is not None:
            self.events.append(Event(self.n_rows, "memory limited", change))
            warnings.warn(f"to stay within memory_limit_mb={self.memory_limit_mb}, {change}.", stacklevel=2)
        return change is not None

    # Predicting.

    def score(self, X: FloatArray) -> FloatArray:
        """The raw score of every row, (n, m)."""
        return self.score_checked(self._rows(X))

    def score_checked(self, X: FloatArray) -> FloatArray:
        """The same for rows (n, d) that were checked already."""
        buffers = self._native() if self.n_rows else None
        if buffers is not None:
            return native.score(buffers, self.hedge, self.readout, X)
        if self._is_net():
            return net_native.score(self.boosters[0], self.hedge, self.readout, X)
        scores = np.empty((len(X), self.loss.n_outputs))
        for start in range(0, len(X), BLOCK):
            walks = [booster.walk(X[start : start + BLOCK]) for booster in self.boosters]
            scores[start : start + BLOCK] = self._read_out(walks)
        return scores

    def predict(self, X: FloatArray) -> FloatArray:
        """The prediction of every row: its score through the loss's link."""
        return self.loss.predict(self.score(X))

    def staged_scores(self, X: FloatArray) -> Any:
        """The raw scores (n, m) with the first learner of each booster, the first two, and so on."""
        X = self._rows(X)
        walks = [booster.walk(X) for booster in self.boosters]
        for i in range(1, max(walk.shape[1] for walk in walks)):
            yield self._read_out([walk[:, : i + 1] for walk in walks])

    def _read_out(self, walks: Sequence[FloatArray]) -> FloatArray:
        """Walks (n, N + 1, m) of all boosters, or the first steps of them, to scores (n, m)."""
        if self.readout == "last":
            return walks[0][:, -1].copy()
        if self.readout == "mean":
            steps = walks[0][:, 1:] if walks[0].shape[1] > 1 else walks[0]
            return steps.mean(axis=1)  # type: ignore[no-any-return]
        return self.hedge.mix(self._say(walks), self.loss)

    def _say(self, walks: Sequence[FloatArray]) -> FloatArray:
        """What every expert says, (n, E, m)."""
        return np.stack(
            [self.boosters[b].descent.score(walks[b][:, : step + 1]) for b, step in self.hedge.experts], axis=1
        )

    # Learning.

    def learn(self, X: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """Predict each row, then learn it; return the scores made before learning, (n, m).

        Arguments as in :meth:`streamboost.boosting.booster.Booster.learn`.
        """
        X, y, weight = check_chunk(X, y, weight, self.loss, self.n_features)
        self.check_weight(weight)
        return self.learn_checked(X, y, weight)

    def learn_checked(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
        """The same for rows (n, d), targets (n, k) and weights (n,) that were checked already."""
        if len(X) and not self.is_open:
            self.allocate(X.shape[1], y.shape[1])
        chunk, scores = Chunk(X, y, weight), np.empty((len(X), self.loss.n_outputs))
        step = self.boosters[0].step_rows(len(X))
        start = 0
        while start < len(X):
            if self._is_net():
                rest = Chunk(X[start:], y[start:], weight[start:])
                net_native.learn(self.boosters[0], self.hedge, self.readout, rest, scores[start:])
                break
            buffers = self._native()
            size = step if buffers is None else REVIEW_EVERY - self.n_rows % REVIEW_EVERY
            stop = min(start + size, len(X))
            if buffers is None:
                scores[start:stop] = self._step(X[start:stop], y[start:stop], weight[start:stop])
            else:
                native.learn(buffers, self.hedge, self.readout, chunk, scores, start, stop, self._paired_test)
            self._review(stop - start)
            start = stop
        return scores

    @property
    def _paired_test(self) -> FloatArray:
        return NO_PAIRED_TEST if self.drift_replacement is None else self.drift_replacement.paired_test

    def _review(self, n: int) -> None:
        """Look after the longest memory whenever so many rows have passed."""
        if self.drift_replacement is not None and self.n_rows // REVIEW_EVERY > (self.n_rows - n) // REVIEW_EVERY:
            event = self.drift_replacement.review(self)
            if event is not None:
                self.events.append(event)

    def _step(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Let everybody predict the rows, then everybody learn them."""
        answers = [booster.forward(X, y) for booster in self.boosters]
        walks = [answer.walk for answer in answers]
        scores = self._read_out(walks)
        if self.readout == "hedge":
            for expert_scores, target, w in zip(self._say(walks), y, weight, strict=True):
                self.hedge.learn(expert_scores, target, self.loss, float(w), self._paired_test)
        for booster, answer in zip(self.boosters, answers, strict=True):
            booster.update(X, y, weight, answer)
        return scores

    def check_weight(self, weight: FloatArray) -> None:
        """Refuse weights the learners cannot make use of, before anything is learned."""
        for booster in self.boosters:
            booster.stack.check_weight(weight)

    # What it says of itself.

    def weights(self) -> dict[tuple[int | None, int], float]:
        """The weight of every expert in the vote, by its memory and its number of learners, the most trusted first."""
        weights: dict[tuple[int | None, int], float] = {}
        for (b, step), voice in zip(self.hedge.experts.tolist(), self.hedge.weights.tolist(), strict=True):
            replay = self.boosters[b].replay
            key = (None if replay is None else replay.window, step)
            weights[key] = weights.get(key, 0.0) + voice
        return dict(sorted(weights.items(), key=lambda item: -item[1]))

    def feature_gains(self) -> FloatArray:
        """Each column's share in what the splits gain, in the trees as they stand, of those the hedge listens to."""
        gains = np.zeros(self.boosters[0].stack.n_features)
        for b, booster in enumerate(self.boosters):
            own: FloatArray = booster.stack.feature_gains()  # type: ignore[attr-defined]
            heard = self.hedge.weights[(self.hedge.experts == [b, booster.stack.n_learners]).all(axis=1)].sum()
            if own.sum() > 0:
                gains += own / own.sum() * (heard + 1e-9)  # even where none is heard, say what there is
        return gains / (gains.sum() or 1.0)

    # Growing.

    def check_growth(self, n_features: int, n_outputs: int, n_categorical: int, n_levels: int) -> None:
        """Refuse to grow so far if there is no memory for it; change nothing."""
        shape = limits.Shape(n_features, n_outputs, self.loss.n_targets, n_categorical, n_levels)
        if self.memory_limit_mb is None:
            limits.check(self.boosters, shape)
        else:
            limits.check_fit(self.boosters, self.memory_limit_mb, shape)

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
        assert self.n_features is not None
        self._fit(self.n_features + k, self.loss.n_outputs)
        for booster in self.boosters:
            booster.add_features(k)

    def set_categorical(self, columns: Sequence[int], n_levels: int) -> None:
        """Learn that columns hold the numbers of levels, of which ``n_levels`` are to be told apart."""
        self.categorical, self.n_levels = tuple(columns), n_levels
        if self.is_open and columns:
            for booster in self.boosters:
                booster.set_categorical(np.array(columns, np.int32), n_levels)
            assert self.n_features is not None
            self._fit(self.n_features, self.loss.n_outputs)

    def add_outputs(self, loss: Loss, score: float) -> None:
        """Go on with a loss of more outputs, whose y⁰ starts at ``score``: what a new class needs."""
        assert self.n_features is not None
        self._fit(self.n_features, loss.n_outputs)
        for booster in self.boosters:
            booster.add_outputs(loss, score)

    def split_output(self, loss: Loss) -> None:
        """Go on with a score a class instead of one score for two; see :meth:`Booster.split_output`."""
        for booster in self.boosters:
            booster.split_output(loss)

    @property
    def splits(self) -> bool:
        """Whether :meth:`split_output` is there."""
        return all(
            booster.stack.splits
            and booster.base.splits
            and type(booster.descent) is GradientDescent
            and not booster.descent.adaptive
            for booster in self.boosters
        )

    @property
    def n_features(self) -> int | None:
        """How many columns rows have; None before the first."""
        return self.boosters[0].stack.n_features if self.is_open else None

    def _rows(self, X: FloatArray) -> FloatArray:
        if not self.is_open:
            raise ValueError("the committee has seen no row yet. Call learn(X, y) first.")
        return check_rows(X, self.n_features)

    # The native path: see streamboost.boosting.loops.trees.

    def _native(self) -> native.SharedBuffers | None:
        """The arrays of all boosters as the compiled loop wants them; None if it does not know one of them."""
        buffers: native.SharedBuffers | None = getattr(self, "_buffers", None)
        if buffers is not None and buffers.owns(self.boosters):
            return buffers
        self._buffers = native.SharedBuffers(self.boosters, self.n_jobs) if native.suit(self.boosters) else None
        return self._buffers

    def _is_net(self) -> bool:
        """Whether it is one booster of networks, for which there is a loop too."""
        return len(self.boosters) == 1 and net_native.suits(self.boosters[0])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
