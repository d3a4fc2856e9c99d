"""A refit over many rows that holds nobody up: begun at one row, it takes effect at a later one.

Where learners rest between refits and partial sums are carried (see :mod:`streamboost.replay`), the next tree is grown
from a sample of the rows, and what its leaves say is then told by *all* rows. Rows that did not choose the splits tell
it without flattering them, so that such a tree is better than one that was grown from all rows, besides being cheaper.
Both are done in slices, some with every row that comes in, and at the next turn the tree takes the place of the one
before. When that is depends on the rows alone, so that the result is the same however rows are cut into chunks.

Trees after one that has changed were fitted to what it left over before. So most trees keep their splits at their turn,
and only what their leaves say is told anew, by the rows of now: one in :data:`REGROWN` is grown afresh, and of the
first ones, which all others build on, none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.boosting.loops import choose
from streamboost.kernels import carrying
from streamboost.kernels.layout import AT
from streamboost.stacks.growing_tree import GrowingTree
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.replay import PastSums, Replay

FEWEST_DRAWN, MOST_DRAWN, DRAWN_SHARE = 8192, 32768, 2  # rows a tree is grown from: one in two, within these
REGROWN, FIRST_SHARE = 3, 10  # one in so many trees is grown afresh at its turn, but none of the first tenth
GROWN, TOLD = 8, 4  # shares of the rows until the next turn: one in so many while it grows, and while rows tell leaves


def n_drawn(n_rows: int) -> int:
    """How many of so many rows a tree is grown from; of few rows, half."""
    return max(1, min(n_rows // 2, max(n_rows // DRAWN_SHARE, FEWEST_DRAWN), MOST_DRAWN))


class SlicedRefit:
    """Tree ``learner`` as it will be ``interval`` rows after this was begun."""

    # A tree half grown, and the leaves of rows, follow from the rows: they are not part of the state.
    __slots__ = ("__dict__", "_growing", "_leaf_ids")
    encodes, key = False, 0  # of those of older files

    def __init__(self, booster: Booster, learner: int, interval: int) -> None:
        replay, stack = booster.replay, booster.stack
        assert replay is not None
        assert replay.window is not None
        assert isinstance(stack, TreeStack)
        self.learner, self.interval, self.n_rows, self.done = learner, interval, replay.fill, 0
        # Rows to come are written over the oldest when the window is full: those do not count.
        self.gone = int(replay.counts[AT]) if replay.fill == replay.window else 0
        self.n_gone = max(0, replay.fill + interval - replay.window)
        booster.cost.add(self.n_rows, 0, 1)
        self.tree: TreeStack
        self.cut: NDArray[np.uint8] | None  # None: the tree has not been grown yet
        is_first = learner < stack.n_learners // FIRST_SHARE
        if stack.feature[learner, 0] < 0 or ((learner + replay.sweeps) % REGROWN == 0 and not is_first):
            self.key = booster.seed * 2**32 + replay.n_turns
            self.tree, self.cut = stack.one_alike(), None
            replay.encode_stale()
        else:
            self.tree, self.cut = stack.copy_of(learner, replay.bins)
        self.encodes = replay.is_stale  # rows are coded by the new cut points before they tell leaves
        self.sums = np.zeros((2**stack.max_depth, 2 * stack.n_outputs + 1))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def work(self, booster: Booster, waited: int) -> None:
        """Grow the tree, and then let rows tell what its leaves say, as far as is due after so many rows have come."""
        n_grown = self.interval // GROWN
        if self.cut is None and not self._grow(booster, (waited + 1) / (n_grown + 1)):
            return
        n_told = self.interval - n_grown if self.encodes else self.interval // TOLD
        stop = min(self.n_rows, self.n_rows * (waited - n_grown) // max(n_told, 1))
        if stop <= self.done:
            return
        replay = booster.replay
        assert replay is not None
        assert replay.window is not None
        if self.encodes:
            replay.encode_rows(self.done, stop)
        gradient, curvature = choose(booster).slopes(booster, slice(self.done, stop))
        leaf_ids = self._leaves(replay)
        self._find_leaves(replay, self.done, stop, leaf_ids)
        carrying.add_up_rows(
            leaf_ids, self.done, replay.window, self.gone, self.n_gone, gradient, curvature, replay.weight,
            self.sums,
        )  # fmt: skip
        self.done = stop

    def _grow(self, booster: Booster, share: float) -> bool:
        """Do this share of growing, or all of it; return whether the tree is grown."""
        replay = booster.replay
        assert replay is not None
        growing: GrowingTree | None = getattr(self, "_growing", None)
        if growing is None:
            n_stay = max(self.n_rows - self.n_gone, 1)  # of those to be written over none is drawn
            rows = carrying.draw_rows(n_stay, n_drawn(n_stay), self.key, self.gone + self.n_gone, self.n_rows)
            gradient, _ = choose(booster).slopes(booster, rows)
            growing = GrowingTree(self.tree, replay.code_ring, replay.X, rows, gradient, replay.weight[rows])
            self._growing = growing
        if share < 1.0 and not growing.go_on(share):
            return False
        self.tree, self.cut = growing.finish(replay.bins)
        del self._growing
        return True

    def add_features(self, k: int) -> None:
        """Make room for k more columns, in which the rows held have nothing; a tree half grown is grown again."""
        self.tree.add_features(k)
        if hasattr(self, "_growing"):
            del self._growing

    def finish(self, booster: Booster, step: float) -> None:
        """Put the tree in its place, with this step, and carry the sums of all rows past it."""
        self.work(booster, 2 * self.interval + GROWN)  # all that is left
        replay, stack = booster.replay, booster.stack
        assert replay is not None
        assert replay.window is not None
        assert isinstance(stack, TreeStack)
        leaf_ids = self._leaves(replay)
        if replay.fill > self.n_rows:  # rows that have come since, at the end, or over others
            leaf_ids = np.concatenate([leaf_ids, np.zeros(replay.fill - self.n_rows, np.uint16)])
            self._find_leaves(replay, self.n_rows, replay.fill, leaf_ids)
        if self.n_gone:
            end = self.gone + self.n_gone
            self._find_leaves(replay, self.gone, min(end, replay.window), leaf_ids)
            self._find_leaves(replay, 0, max(end - replay.window, 0), leaf_ids)
        if self.encodes:
            replay.is_stale = False
        m = stack.n_outputs
        weight = self.sums[:, 2 * m :]
        self.tree.stats[0] = np.concatenate([self._values(stack.l2) * (weight + stack.l2), weight], axis=1)
        stack.take_tree(self.learner, self.tree)
        booster.eta[self.learner] = step
        carrying.take_steps(leaf_ids, stack.leaf_values(self.learner), step, replay.carried)

    def _leaves(self, replay: Replay) -> NDArray[np.uint16]:
        """Return the leaf of each row in the tree, (n_rows,), as far as rows have told their leaves."""
        leaf_ids: NDArray[np.uint16] | None = getattr(self, "_leaf_ids", None)
        if leaf_ids is None:
            self._leaf_ids = leaf_ids = np.zeros(self.n_rows, np.uint16)
            self._find_leaves(replay, 0, self.done, leaf_ids)
        return leaf_ids

    def _find_leaves(self, replay: Replay, start: int, stop: int, leaf_ids: NDArray[np.uint16]) -> None:
        assert self.cut is not None
        find_leaves(replay, start, stop, self.tree, self.cut, leaf_ids)

    def _values(self, l2: float) -> FloatArray:
        """Return what leaves say, (leaves, m): a step of Newton's, where the loss curves."""
        m = self.sums.shape[1] // 2
        curvature = self.sums[:, m : 2 * m] + l2
        return np.divide(self.sums[:, :m], curvature, out=np.zeros_like(curvature), where=curvature > 0)


def find_leaves(
    replay: Replay, start: int, stop: int, tree: TreeStack, cut: NDArray[np.uint8], leaf_ids: NDArray[np.uint16]
) -> None:
    """Write the leaf of rows held, from ``start`` to ``stop``, in the first tree of a stack, by their codes."""
    carrying.find_leaves_by_code(
        replay.code_ring, replay.X, start, stop, tree.n_bins, tree.other_bin, tree.max_depth, tree.cat_at,
        tree.feature[0], cut, tree.subset[0], tree.level_bins[0], tree.missing_left[0], leaf_ids,
    )  # fmt: skip


def carry_on(booster: Booster, past: PastSums) -> FloatArray:
    """Return the partial sums of all rows (room, m) as they are now, from those of before.

    The steps of the trees whose turn has come since are taken in order, just as they were when it came.
    """
    replay, stack, sums = booster.replay, booster.stack, past.sums.copy()
    assert replay is not None
    assert isinstance(stack, TreeStack)
    leaf_ids = np.zeros(replay.fill, np.uint16)
    for i in range(past.turn, replay.turn):
        tree, cut = stack.copy_of(i, replay.bins)
        find_leaves(replay, 0, replay.fill, tree, cut, leaf_ids)
        carrying.take_steps(leaf_ids, stack.leaf_values(i), booster.eta[i], sums[: replay.fill])
        came = past.since == i + 1  # their sums are those after this tree
        sums[came] = past.sums[came]
    return sums
