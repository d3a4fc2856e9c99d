"""The bounded memory behind lazy FTRL: recent rows, and whose turn it is to be fitted to them afresh.

Follow-the-regularised-leader asks each learner to be, at every row, the best fit to all rows so far. To the letter
(:meth:`Replay.exact`) that means keeping every row and refitting all learners at each. A bounded window with one
learner refitted in turn is its lazy form: constant memory, constant cost per row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.features.binning import Bins
from streamboost.kernels.layout import AT, FILL, SEEN, WAITED, WARM
from streamboost.kernels.replay import interval
from streamboost.persistence.array_specs import ArraySpec
from streamboost.stacks.base import LeafIds, Stack

NEVER = 1 << 62  # more rows than will come
SOONEST_TURN = 4  # rows between two refits where sums are carried, at least
SWEEP_SHARE = 0.5  # of the rows held come in while all learners have their turn
FIRST_SWEEP = 8  # times as fast, as learners have nothing to say before
HELD = ("_X", "_y", "_weight", "_leaf_ids", "_recorded", "_carried")  # what there is row after row, beside the codes
REBIN_SHARE = 2  # the cut points are placed anew once one in so many of the rows held is new


class PastSums(NamedTuple):
    """Sums that were carried a while ago: those of now follow from them, and from the learners passed since.

    They stay what they are while those of now change at every turn, and so a checkpoint does not write them again.
    """

    sums: FloatArray  # (room, m): as they were, or as they were when the row came in, if that was later
    since: NDArray[np.int32]  # (room,): the turn from which on steps are taken from them
    turn: int  # the first of these


class Replay:
    """A ring of recent rows and the order of refits.

    Parameters
    ----------
    window : int or None
        How many rows are remembered; ``None`` for all of them.
    refit_every : int
        Rows between two refits when the window is full. A refit costs as much as the window holds, so while it
        fills the interval is shorter, by the share that is filled to the power of 1.5, but never below ``soonest``.
    targets : {"fresh", "recorded", "carried"}
        What a refitted learner is fitted to: the targets recomputed at the present partial sums, or those
        each row gave when it arrived (the letter of FTRL). ``"carried"`` is for learners that rest between refits: the
        partial sums of every row are then carried from one turn to the next, so that a refit costs O(rows), whatever
        the number of learners, and takes effect at the next turn (:mod:`streamboost.boosting.sliced_refit`). Room is
        made as rows come, the first refit is that of one learner, and all learners have had their turn when the rows
        held have doubled; ``refit_every`` is not looked at.
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

    __slots__ = ("__dict__", "__weakref__", "_past")  # what a checkpoint was told is not part of the state
    _past: PastSums | None

    def __init__(
        self,
        window: int | None = 16384,
        *,
        refit_every: int = 256,
        targets: Literal["fresh", "recorded", "carried"] = "fresh",
        learners: Literal["next", "all"] = "next",
        warmup: int = 64,
        soonest: int = 16,
    ) -> None:
        counts = {"window": window, "refit_every": refit_every, "warmup": warmup, "soonest": soonest}
        for name, value in counts.items():
            if not (name == "window" and value is None) and (not isinstance(value, (int, np.integer)) or value < 1):
                raise ValueError(f"{name} is {value!r}, expected a whole number above 0. If unsure, leave it out.")
        if targets not in ("fresh", "recorded", "carried"):
            expected = "'fresh', 'recorded' or 'carried'"
            raise ValueError(f"targets is {targets!r}, expected {expected}. If unsure, leave it out.")
        if learners not in ("next", "all"):
            raise ValueError(f"learners is {learners!r}, expected 'next' or 'all'. If unsure, leave it out.")
        if targets == "carried" and (learners != "next" or window is None):
            raise ValueError("targets is 'carried', expected a window, and learners='next' beside it.")
        self.window, self.refit_every, self.targets, self.learners = window, refit_every, targets, learners
        self.warmup, self.soonest = warmup if window is None else min(warmup, window), min(soonest, refit_every)

    @classmethod
    def exact(cls) -> Replay:
        """FTRL as in the paper: everything kept, every learner refitted at every row to its recorded targets."""
        return cls(None, refit_every=1, targets="recorded", learners="all", warmup=1, soonest=1)

    def __repr__(self) -> str:
        names = ("window", "refit_every", "targets", "learners", "warmup", "soonest")
        return f"Replay({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def open(self, stack: Stack, n_targets: int) -> None:
        """Make room for the rows of ``stack``, with ``n_targets`` target columns."""
        room = min(self.window or 256, 256) if self.window is None or self.is_carried else self.window
        self._X, self._y, self._weight = np.zeros((room, stack.n_features)), np.zeros((room, n_targets)), np.zeros(room)
        leaf_ids = None if self.is_carried else stack.leaf_ids(np.zeros((0, stack.n_features)))
        self._carried = np.zeros((room, stack.n_outputs)) if self.is_carried else None
        self._leaf_ids = None if leaf_ids is None else np.zeros((room, stack.n_learners), dtype=leaf_ids.dtype)
        self._recorded = np.zeros((room, stack.n_learners, stack.n_outputs)) if self.targets == "recorded" else None
        self._bins = Bins(stack.n_bins) if stack.n_bins else None
        if self._bins is not None:
            self._bins.add_features(stack.n_features)
        self._codes = np.zeros((stack.n_features, room), dtype=np.uint8) if stack.n_bins else None
        self.counts = np.zeros(6, np.int64)  # fill, at, waited, seen, warm and due, in one array for the compiled loop
        self.binned = 0  # rows taken in when the cut points were placed
        self.turn = 0  # position, among the refittable learners, of the next one
        self.sweeps = 0  # how often all of them have had their turn, where sums are carried
        self.n_turns = 0  # how many turns there were in all
        self.is_stale = False  # whether rows are coded by cut points of before
        self.sleeps = False  # whether nobody is to be fitted to the rows for now, which therefore are not coded

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be, beside what the booster says of them."""
        if "counts" not in self.__dict__:
            return {}
        room = len(self._weight)
        if room and not (0 <= self.fill <= room and 0 <= self.counts[AT] < room and min(self.turn, self.binned) >= 0):
            raise ValueError(f"{self.fill} rows are held, the next at {self.counts[AT]}, with room for {room}")
        if room and self.window is not None and not self.is_carried and room != self.window:
            raise ValueError(f"there is room for {room} rows of {self.window}")
        return {
            "_weight": ArraySpec("f8", (room,), 0),
            "_y": ArraySpec("f8", (room, None)),
            "_codes": ArraySpec("u1", (None, room), 0, None if self._bins is None else self.bins.n_bins + 1),
            "counts": ArraySpec("i8", (6,), 0),
        }

    _carried: FloatArray | None = None  # of those of older files, none
    _past_sums: PastSums | None = None  # in a file, in place of the sums carried
    n_turns, is_stale, sleeps = 0, False, False

    @property
    def is_carried(self) -> bool:
        """Whether partial sums are carried from one turn to the next."""
        return self.targets == "carried"

    @property
    def fill(self) -> int:
        """Rows held."""
        return int(self.counts[FILL])

    @property
    def seen(self) -> int:
        """Rows taken in so far."""
        return int(self.counts[SEEN])

    @property
    def warm(self) -> bool:
        """Whether the learners have been fitted once."""
        return bool(self.counts[WARM])

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
    def leaf_ids(self) -> LeafIds | None:
        """Their leaves in each learner, (n, N)."""
        return None if self._leaf_ids is None else self._leaf_ids[: self.fill]

    @property
    def carried(self) -> FloatArray:
        """Their partial sums up to the learner whose turn is next, (n, m)."""
        assert self._carried is not None
        return self._carried[: self.fill]

    @property
    def past(self) -> PastSums | None:
        """Sums carried as they were at the last checkpoint or before, if those of now follow from them."""
        found: PastSums | None = getattr(self, "_past", None)
        return found

    def keep_past(self) -> PastSums:
        """Let the sums carried now be those that later ones follow from."""
        assert self._carried is not None
        since = np.full(len(self._carried), self.turn, np.int32)
        self._past = PastSums(self._carried.copy(), since, self.turn)
        return self._past

    def forget_past(self) -> None:
        """Let nothing follow from sums of before: rows, columns or learners passed have become others."""
        self._past = None

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
    def code_ring(self) -> NDArray[np.uint8]:
        """The codes with the room for rows to come, (d, room)."""
        assert self._codes is not None
        return self._codes

    @property
    def bins(self) -> Bins:
        """The cut points, which follow the window."""
        assert self._bins is not None
        return self._bins

    def append(
        self, X: FloatArray, y: FloatArray, weight: FloatArray, leaf_ids: LeafIds | None, targets: FloatArray
    ) -> None:
        """Take in rows, over the oldest ones when the window is full.

        ``targets`` (n, N, m) are those to be recorded, or (n, m) partial sums to be carried.
        """
        if self.window is not None and len(X) > self.window:
            newest = slice(-self.window, None)
            X, y, weight, targets = X[newest], y[newest], weight[newest], targets[newest]
            leaf_ids = None if leaf_ids is None else leaf_ids[newest]
        most = np.inf if self.window is None else self.window
        if self.fill + len(X) > len(self._X) and len(self._X) < most:  # room is made as rows come
            room = min(max(self.fill + len(X), 2 * len(self._X)), most)
            self._hold(self._newest(self.fill), int(room))
        at, n = int(self.counts[AT]), len(X)
        where: slice | IntArray = slice(at, at + n)
        if at + n > len(self._X):  # round the end of the ring
            where = (at + np.arange(n)) % len(self._X)
        self._X[where], self._y[where], self._weight[where] = X, y, weight
        if self._leaf_ids is not None and leaf_ids is not None:
            self._leaf_ids[where] = leaf_ids
        if self._recorded is not None:
            self._recorded[where] = targets
        if self._carried is not None:
            self._carried[where] = targets
        if self.past is not None:
            self.past.sums[where], self.past.since[where] = targets, self.turn
        if self._codes is not None and self.warm and not self.sleeps:
            self._codes[:, where] = self.bins.encode(X)
        self.counts[AT] = (at + n) % len(self._X)
        self.counts[FILL] = min(len(self._X), self.fill + n)
        self.counts[WAITED] += n
        self.counts[SEEN] += n

    def turns(self, stack: Stack) -> Iterator[int]:
        """The learners to be refitted now, one by one."""
        learners = stack.refittable
        if not self.warm:
            if self.fill < self.warmup:
                return
            self.counts[WARM], self.counts[WAITED] = True, 0
            yield from (self._prepared(i) for i in learners)
        interval = self.interval
        while self.counts[WAITED] >= interval:
            self.counts[WAITED] -= interval
            if self.learners == "all":
                yield from (self._prepared(i) for i in learners)
            else:
                learner = learners[self.turn % len(learners)]
                self.turn = (self.turn + 1) % len(learners)
                yield self._prepared(learner)

    def rows_a_turn(self, stack: Stack) -> int:
        """Rows between two refits where sums are carried."""
        share = SWEEP_SHARE / (1 if self.sweeps else FIRST_SWEEP)
        return max(SOONEST_TURN, int(self.fill * share / len(stack.refittable)))

    def begin_turn(self) -> int:
        """The learner whose turn is next, where sums are carried; before the first of them the cut points follow.

        The codes do not yet (:attr:`is_stale`): rows are coded in the course of that turn.
        """
        self.n_turns += 1
        if self.turn == 0:
            self.forget_past()
            self.counts[WARM] = True
            self._place_cut_points()
            self.is_stale = True
        else:
            self.encode_stale()
        return self.turn

    def encode_rows(self, start: int, stop: int) -> None:
        """Code some of the rows held by the cut points there are now."""
        self.code_ring[:, start:stop] = self.bins.encode(self._X[start:stop])

    def encode_stale(self) -> None:
        """Code all rows held, if the cut points have followed and the codes have not."""
        if self.is_stale:
            self.encode_rows(0, self.fill)
            self.is_stale = False

    def end_turn(self, stack: Stack) -> None:
        """Hand over to the next learner."""
        self.turn = (self.turn + 1) % len(stack.refittable)
        self.sweeps += self.turn == 0

    def remember(self, i: int, leaf_ids: LeafIds | None) -> None:
        """Keep the leaf of each row in a refitted learner."""
        if self._leaf_ids is not None and leaf_ids is not None:
            self._leaf_ids[: self.fill, i] = leaf_ids

    @property
    def interval(self) -> int:
        """Rows between two refits, as full as the window is now."""
        if self.window is None:
            return self.refit_every
        return int(interval(self.fill, self.window, self.refit_every, self.soonest))

    def _prepared(self, learner: int) -> int:
        """Let the cut points follow the window before a learner is refitted; exact FTRL makes them for every row."""
        is_stale = self.window is None or REBIN_SHARE * (self.seen - self.binned) >= self.fill
        if self._codes is not None and (is_stale or self.binned == 0):
            self._place_cut_points()
            self.encode_rows(0, self.fill)
        return learner

    def _place_cut_points(self) -> None:
        X, counts = self.X, self.weight > 0  # a row of weight 0 leaves no trace, not even a cut point beside it
        self.bins.fit(X if counts.all() else X[counts])
        self.binned = self.seen

    def _hold(self, rows: IntArray, room: int) -> None:
        """Go on with these of the rows held, in this order, and room for so many."""
        n = len(rows)
        self.forget_past()
        for name in HELD:
            held = getattr(self, name)
            if held is not None:
                setattr(self, name, np.zeros((room, *held.shape[1:]), held.dtype))
                getattr(self, name)[:n] = held[rows]
        if self._codes is not None:
            codes, self._codes = self._codes, np.zeros((len(self._codes), room), self._codes.dtype)
            self._codes[:, :n] = codes[:, rows]
        self.counts[FILL], self.counts[AT] = n, n % room

    def set_categorical(self, columns: IntArray, n_levels: int) -> None:
        """Learn that columns hold the numbers of levels."""
        self.forget_past()
        if self._codes is not None and len(columns):
            self.bins.set_categorical(columns, n_levels)
            self.encode_rows(0, self.fill)
            self.binned, self.is_stale = 0, False  # no level has been counted yet

    def recode(self, code: Callable[[FloatArray], FloatArray]) -> None:
        """Write the targets held in another coding; recorded ones were for learners that are gone, and stay as two."""
        self._y = code(self._y)
        self.forget_past()
        if self._carried is not None:
            self._carried = np.concatenate([-self._carried / 2, self._carried / 2], axis=1)
        if self._recorded is not None:
            self._recorded = np.concatenate([-self._recorded, self._recorded], axis=2)

    def newest(self, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The newest n rows with their targets and weights, oldest first."""
        rows = self._newest(n)
        return self._X[rows], self._y[rows], self._weight[rows]

    def _newest(self, n: int) -> IntArray:
        n = min(n, self.fill)
        return (int(self.counts[AT]) - n + np.arange(n)) % len(self._X)

    def resize(self, window: int) -> None:
        """Go on with a shorter window, and the newest rows it has room for."""
        self._hold(self._newest(window), window)
        self.window, self.warmup = window, min(self.warmup, window)
        self.binned = 0  # cut points for rows that are gone

    def without_rows(self) -> Replay:
        """Return a replay that says how long and how full the window is, and holds none of its rows."""
        twin = copy.copy(self)
        for name in HELD:
            held = getattr(self, name)
            setattr(twin, name, None if held is None else np.zeros((0, *held.shape[1:]), held.dtype))
        if self._codes is not None:
            twin._codes, twin._bins = np.zeros((len(self._codes), 0), self._codes.dtype), Bins(self.bins.n_bins)
        return twin

    def grow(self, k: int) -> None:
        """Make room for k more learners; they have seen none of the rows."""
        if self._leaf_ids is not None:
            self._leaf_ids = np.pad(self._leaf_ids, ((0, 0), (0, k)))
        if self._recorded is not None:
            self._recorded = np.pad(self._recorded, ((0, 0), (0, k), (0, 0)))

    def add_features(self, k: int) -> None:
        """Make room for k more columns; the rows held have nothing there."""
        self._X = np.pad(self._X, ((0, 0), (0, k)), constant_values=np.nan)
        self.forget_past()
        if self._codes is not None:
            self.bins.add_features(k)
            self._codes = np.pad(self._codes, ((0, k), (0, 0)), constant_values=self.bins.n_bins)

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs."""
        self.forget_past()
        if self._carried is not None:
            self._carried = np.pad(self._carried, ((0, 0), (0, k)))
        if self._recorded is not None:
            self._recorded = np.pad(self._recorded, ((0, 0), (0, 0), (0, k)))
