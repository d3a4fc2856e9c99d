"""A refit over many rows that holds nobody up: begun at one row, it takes effect at a later one.

Where learners rest between refits and partial sums are carried (see :mod:`streamboost.replay`), the next tree is grown
at once, but from a sample of the rows. What its leaves say is then told by *all* rows, in slices, some with every row
that comes in; rows that did not choose the splits tell it without flattering them, so that such a tree is better than
one that was grown from all rows, besides being cheaper. At the next turn the tree takes the place of the one before.
When that is depends on the rows alone, so that the result is the same however rows are cut into chunks.

Trees after one that has changed were fitted to what it left over before. So most trees keep their splits at their turn,
and only what their leaves say is told anew, by the rows of now: one in :data:`REGROWN` is grown afresh, and of the
first ones, which all others build on, none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamboost._types import FloatArray
from streamboost.boosting.loops import choose
from streamboost.kernels import carrying
from streamboost.kernels.layout import AT
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.replay import Replay

FEWEST_DRAWN, MOST_DRAWN, DRAWN_SHARE = 8192, 32768, 2  # rows a tree is grown from: one in two, within these
REGROWN, FIRST_SHARE = 3, 10  # one in so many trees is grown afresh at its turn, but none of the first tenth
EARLY = 2  # the work is done when one in so many of the rows until the next turn have come


def n_drawn(n_rows: int) -> int:
    """How many of so many rows a tree is grown from; of few rows, half."""
    return max(1, min(n_rows // 2, max(n_rows // DRAWN_SHARE, FEWEST_DRAWN), MOST_DRAWN))


class SlicedRefit:
    """Tree ``learner`` as it will be ``interval`` rows after this was begun."""

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
        is_first = learner < stack.n_learners // FIRST_SHARE
        if stack.feature[learner, 0] < 0 or ((learner + replay.sweeps) % REGROWN == 0 and not is_first):
            rows = carrying.draw_rows(self.n_rows, n_drawn(self.n_rows), booster.seed * 2**32 + replay.n_turns)
            gradient, _ = choose(booster).slopes(booster, rows)
            self.tree = stack.one_alike()
            self.cut = self.tree.grow_from(replay.code_ring, replay.bins, rows, gradient, replay.weight[rows])
        else:
            self.tree, self.cut = stack.copy_of(learner, replay.bins)
        self.leaf_ids = np.zeros(self.n_rows, np.uint16)
        self.sums = np.zeros((2**stack.max_depth, 2 * stack.n_outputs + 1))

    def work(self, booster: Booster, waited: int) -> None:
        """Let as many rows tell what the leaves say as is due after so many rows have come."""
        stop = min(self.n_rows, self.n_rows * waited * EARLY // self.interval)
        if stop <= self.done:
            return
        replay = booster.replay
        assert replay is not None
        assert replay.window is not None
        gradient, curvature = choose(booster).slopes(booster, slice(self.done, stop))
        self._find_leaves(replay, self.done, stop)
        carrying.add_up_rows(
            self.leaf_ids, self.done, replay.window, self.gone, self.n_gone, gradient, curvature, replay.weight,
            self.sums,
        )  # fmt: skip
        self.done = stop

    def finish(self, booster: Booster, step: float) -> None:
        """Put the tree in its place, with this step, and carry the sums of all rows past it."""
        self.work(booster, self.interval)
        replay, stack = booster.replay, booster.stack
        assert replay is not None
        assert replay.window is not None
        assert isinstance(stack, TreeStack)
        if replay.fill > self.n_rows:  # rows that have come since, at the end, or over others
            self.leaf_ids = np.concatenate([self.leaf_ids, np.zeros(replay.fill - self.n_rows, np.uint16)])
            self._find_leaves(replay, self.n_rows, replay.fill)
        if self.n_gone:
            end = self.gone + self.n_gone
            self._find_leaves(replay, self.gone, min(end, replay.window))
            self._find_leaves(replay, 0, max(end - replay.window, 0))
        m = stack.n_outputs
        weight = self.sums[:, 2 * m :]
        self.tree.stats[0] = np.concatenate([self._values(stack.l2) * (weight + stack.l2), weight], axis=1)
        stack.take_tree(self.learner, self.tree)
        booster.eta[self.learner] = step
        carrying.take_steps(self.leaf_ids, stack.leaf_values(self.learner), step, replay.carried)

    def _find_leaves(self, replay: Replay, start: int, stop: int) -> None:
        tree = self.tree
        carrying.find_leaves_by_code(
            replay.code_ring, start, stop, tree.n_bins, tree.max_depth, tree.cat_at >= 0, tree.feature[0], self.cut,
            tree.subset[0], tree.missing_left[0], self.leaf_ids,
        )  # fmt: skip

    def _values(self, l2: float) -> FloatArray:
        """Return what leaves say, (leaves, m): a step of Newton's, where the loss curves."""
        m = self.sums.shape[1] // 2
        curvature = self.sums[:, m : 2 * m] + l2
        return np.divide(self.sums[:, :m], curvature, out=np.zeros_like(curvature), where=curvature > 0)
