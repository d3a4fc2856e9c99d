"""The bounded memory behind lazy FTRL: recent rows, and whose turn it is to be fitted to them afresh.

Follow-the-regularised-leader asks each learner to be, at every row, the best fit to all rows so far. On a
stream that means keeping rows. ``window=None`` keeps every one, and with a refit of all learners at each row
it is FTRL to the letter (:meth:`Replay.exact`). A bounded window with one learner refitted in turn is its
lazy form: constant memory, constant cost per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import FloatArray
from streamboost.binning import Bins
from streamboost.stacks.base import Marks, Stack

REBIN_EVERY = 8  # refits between two looks at where the cut points should be


class Replay:
    """A ring of recent rows and the order of refits.

    Parameters
    ----------
    window : int or None
        How many rows are remembered; ``None`` for all of them.
    refit_every : int
        Rows between two refits when the window is full. A refit costs as much as the window holds, so while
        it fills the interval is shorter in proportion (constant cost per row), but never below ``soonest``.
    targets : {"fresh", "recorded"}
        What a refitted learner is fitted to: the targets recomputed at the present partial sums, or those
        each row gave when it arrived (the letter of FTRL).
    learners : {"next", "all"}
        Which learners a refit takes: the next in turn, or all of them in order.
    warmup : int
        Rows before the first refit, which takes all learners in order.
    soonest : int
        The shortest interval between refits; ``refit_every``, if that is shorter.

    Examples
    --------
    >>> Replay(window=1024, refit_every=32)
    Replay(window=1024, refit_every=32, targets='fresh', learners='next', warmup=64, soonest=16)
    >>> Replay.exact()
    Replay(window=None, refit_every=1, targets='recorded', learners='all', warmup=1, soonest=1)
    """

    def __init__(
        self,
        window: int | None = 16384,
        *,
        refit_every: int = 256,
        targets: Literal["fresh", "recorded"] = "fresh",
        learners: Literal["next", "all"] = "next",
        warmup: int = 64,
        soonest: int = 16,
    ) -> None:
        counts = {"window": window, "refit_every": refit_every, "warmup": warmup, "soonest": soonest}
        for name, value in counts.items():
            if not (name == "window" and value is None) and (not isinstance(value, (int, np.integer)) or value < 1):
                raise ValueError(f"{name} is {value!r}, expected a whole number above 0. If unsure, leave it out.")
        if targets not in ("fresh", "recorded"):
            raise ValueError(f"targets is {targets!r}, expected 'fresh' or 'recorded'. If unsure, leave it out.")
        if learners not in ("next", "all"):
            raise ValueError(f"learners is {learners!r}, expected 'next' or 'all'. If unsure, leave it out.")
        self.window = window
        self.refit_every = refit_every
        self.targets = targets
        self.learners = learners
        self.warmup = warmup if window is None else min(warmup, window)
        self.soonest = min(soonest, refit_every)

    @classmethod
    def exact(cls) -> Replay:
        """FTRL as in the paper: everything kept, every learner refitted at every row to its recorded targets."""
        return cls(None, refit_every=1, targets="recorded", learners="all", warmup=1, soonest=1)

    def __repr__(self) -> str:
        names = ("window", "refit_every", "targets", "learners", "warmup", "soonest")
        return f"Replay({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def open(self, stack: Stack, n_targets: int) -> None:
        """Make room for the rows of ``stack``, with ``n_targets`` target columns."""
        room = self.window or 256
        self._X = np.zeros((room, stack.n_features))
        self._y = np.zeros((room, n_targets))
        self._weight = np.zeros(room)
        marks = stack.marks(np.zeros((0, stack.n_features)))
        self._marks = None if marks is None else np.zeros((room, stack.n_learners), dtype=marks.dtype)
        self._recorded = np.zeros((room, stack.n_learners, stack.n_outputs)) if self.targets == "recorded" else None
        self._bins = Bins(stack.n_bins) if stack.n_bins else None
        self._codes = np.zeros((stack.n_features, room), dtype=np.uint8) if stack.n_bins else None
        self.fill = 0  # rows held
        self.at = 0  # where the next row goes
        self.waited = 0  # rows since the last refit
        self.refits = 0
        self.turn = 0  # position, among the refittable learners, of the next one
        self.warm = False

    # What a refit sees: the rows held, oldest first until the ring has closed, then in ring order.

    @property
    def X(self) -> FloatArray:  # noqa: N802 (the paper's letter)
        """The rows, (n, d)."""
        return self._X[: self.fill]

    @property
    def y(self) -> FloatArray:
        """Their targets, (n, k)."""
        return self._y[: self.fill]

    @property
    def weight(self) -> FloatArray:
        """Their weights, (n,)."""
        return self._weight[: self.fill]

    @property
    def marks(self) -> Marks | None:
        """What the stack remembers of them, (n, N)."""
        return None if self._marks is None else self._marks[: self.fill]

    @property
    def recorded(self) -> FloatArray:
        """What the learners should have said when the rows arrived, (n, N, m)."""
        assert self._recorded is not None
        return self._recorded[: self.fill]

    @property
    def codes(self) -> NDArray[np.uint8]:
        """Their bin codes, (d, n)."""
        assert self._codes is not None
        return self._codes[:, : self.fill]

    @property
    def bins(self) -> Bins:
        """The cut points, which follow the window."""
        assert self._bins is not None
        return self._bins

    def append(
        self, X: FloatArray, y: FloatArray, weight: FloatArray, marks: Marks | None, targets: FloatArray
    ) -> None:
        """Take in rows, over the oldest ones when the window is full."""
        if self.window is not None and len(X) > self.window:
            newest = slice(-self.window, None)
            X, y, weight, targets = X[newest], y[newest], weight[newest], targets[newest]
            marks = None if marks is None else marks[newest]
        if self.window is None and self.fill + len(X) > len(self._X):
            self._make_room(self.fill + len(X))
        where = (self.at + np.arange(len(X))) % len(self._X)
        self._X[where], self._y[where], self._weight[where] = X, y, weight
        if self._marks is not None and marks is not None:
            self._marks[where] = marks
        if self._recorded is not None:
            self._recorded[where] = targets
        if self._codes is not None and self.warm:
            self._codes[:, where] = self.bins.encode(X)
        self.at = (self.at + len(X)) % len(self._X)
        self.fill = min(len(self._X), self.fill + len(X))
        self.waited += len(X)

    def turns(self, stack: Stack) -> Iterator[int]:
        """The learners to be refitted now, one by one."""
        learners = stack.refittable
        if not self.warm:
            if self.fill < self.warmup:
                return
            self.warm = True
            self.waited = 0
            yield from (self._prepared(i) for i in learners)
        while self.waited >= self.interval:
            self.waited -= self.interval
            if self.learners == "all":
                yield from (self._prepared(i) for i in learners)
            else:
                learner = learners[self.turn % len(learners)]
                self.turn = (self.turn + 1) % len(learners)
                yield self._prepared(learner)

    def remember(self, i: int, marks: Marks | None) -> None:
        """Keep the marks a refitted learner gave the rows."""
        if self._marks is not None and marks is not None:
            self._marks[: self.fill, i] = marks

    @property
    def interval(self) -> int:
        """Rows between two refits, as full as the window is now."""
        if self.window is None:
            return self.refit_every
        return max(self.soonest, self.refit_every * self.fill // self.window)

    def _prepared(self, learner: int) -> int:
        """Let the cut points follow the window before a learner is refitted."""
        # exact FTRL sees every row with cut points made for it
        if self._codes is not None and (self.window is None or self.refits % REBIN_EVERY == 0):
            counts = self.weight > 0  # a row of weight 0 leaves no trace, not even a cut point beside it
            self.bins.fit(self.X if counts.all() else self.X[counts])
            self._codes[:, : self.fill] = self.bins.encode(self.X)
        self.refits += 1
        return learner

    def _make_room(self, rows: int) -> None:
        more = max(rows, 2 * len(self._X)) - len(self._X)
        self._X = np.pad(self._X, ((0, more), (0, 0)))
        self._y = np.pad(self._y, ((0, more), (0, 0)))
        self._weight = np.pad(self._weight, (0, more))
        if self._marks is not None:
            self._marks = np.pad(self._marks, ((0, more), (0, 0)))
        if self._recorded is not None:
            self._recorded = np.pad(self._recorded, ((0, more), (0, 0), (0, 0)))
        if self._codes is not None:
            self._codes = np.pad(self._codes, ((0, 0), (0, more)))
        self.at = self.fill

    def grow(self, k: int) -> None:
        """Make room for k more learners; they have seen none of the rows."""
        if self._marks is not None:
            self._marks = np.pad(self._marks, ((0, 0), (0, k)))
        if self._recorded is not None:
            self._recorded = np.pad(self._recorded, ((0, 0), (0, k), (0, 0)))

    def add_features(self, k: int) -> None:
        """Make room for k more columns; the rows held have nothing there."""
        self._X = np.pad(self._X, ((0, 0), (0, k)), constant_values=np.nan)
        if self._codes is not None:
            self.bins.add_features(k)
            self._codes = np.pad(self._codes, ((0, k), (0, 0)), constant_values=self.bins.n_bins)

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs."""
        if self._recorded is not None:
            self._recorded = np.pad(self._recorded, ((0, 0), (0, 0), (0, k)))
