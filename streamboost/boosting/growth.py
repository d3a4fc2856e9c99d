"""Growth: where the longest memory is full and believed, a booster that holds all rows joins, swept over them in turn.

Its trees rest between refits, which come one at a time while rows come, so that nothing stalls: all of them have had
their turn when the rows held have grown by half. Their number follows the rows. It has a vote from the end of its first
sweep on. If it has not earned one by the end of a trial it leaves, and the next one waits until there are twice as many
rows; if it loses it later, as after a drift, it leaves, too.

After a table (:meth:`Growth.study`) the same booster is swept over its rows at once, as batch boosting would be. How
far to believe it is told by rows held back: a smaller one, fitted to the rows before them, is compared there with what
the vote had said before it learned them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from streamboost._types import FloatArray
from streamboost.bases import Constant, Linear
from streamboost.boosting import memory_budget
from streamboost.boosting.booster import Booster
from streamboost.boosting.drift_replacement import Event
from streamboost.boosting.hedge import Expert, expert_losses
from streamboost.descents import GradientDescent
from streamboost.features.chunk import Chunk
from streamboost.kernels.progress import Progress
from streamboost.replay import Replay
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.committee import Committee

FEWEST_ROWS = 1000  # of a table: with fewer, what is learned in one pass is as good
HELD_BACK, MOST_HELD_BACK = 8, 4096  # one in so many rows, and no more than so many, tell how far to believe
TREES, MOST_TREES = 8.0, 1000  # times the square root of the rows
PART = 3  # one in so many of the trees, with steps as much larger, are fitted to the rows before those held back
SHARE, LOG_SHARE = 0.06, 0.1  # of the natural step: for real targets, and for log losses
STEPS = (4, 2, 1)  # a vote for the first quarter of the trees, for the first half, and for all
DEPTH, MIN_SAMPLES_LEAF, BINS = 8, 10, 254
MOST_ROWS = 1 << 20  # that are held
BELIEVED = 0.5  # of the vote: what the longest memory has where growth begins
TRIAL_ROWS = 4096  # with a vote, until it must have earned EARNED of it
NEVER = 1 << 62  # a row that does not come
EARNED, FORGOTTEN = 0.25, 0.02  # of the vote: after the trial, and whenever it leaves later


class Growth:
    """Watches over the booster of a committee that holds all rows, if there is one: it is the first then."""

    def __init__(self) -> None:
        self.rest_until = 0  # nobody comes before that row
        self.joined_at = -1  # the row from which on it has a vote; -1: none yet
        self.is_proven = False  # whether it has earned its vote

    def review(self, committee: Committee) -> None:
        """Let a booster come, have a vote, or leave; to be called between rows."""
        first = committee.boosters[0]
        if committee.drift_replacement is None or committee.drift_replacement.is_on:
            return
        if first.rests:
            self._judge(committee)
        elif committee.n_rows >= self.rest_until and self._is_wanted(committee):
            assert first.replay is not None
            rows = Chunk(*first.replay.newest(first.replay.fill))
            booster = make_booster(committee, rows, n_trees(len(rows.X)))
            if booster is None:
                self.rest_until = 2 * committee.n_rows
            else:
                self._insert(committee, booster)

    def study(self, committee: Committee, rows: Chunk, said: FloatArray, progress: Progress | None = None) -> None:
        """Sweep over all rows of a table, which the committee has learned; ``progress`` is called after each tree.

        Targets, and the scores ``said`` (n, m) of the vote before it learned each row, are measured from the origin.
        """
        n = len(rows.X)
        if n < FEWEST_ROWS or not can_grow(committee) or committee.boosters[0].rests:
            return
        n_back = min(n // HELD_BACK, MOST_HELD_BACK)
        before, back = (Chunk(*(each[part] for each in rows)) for part in (slice(None, -n_back), slice(-n_back, None)))
        trial = make_booster(committee, before, n_trees(n) // PART, steps=PART)
        booster = make_booster(committee, rows, n_trees(n))
        if trial is None or booster is None:
            return
        tell = progress or (lambda done, total: None)
        n_first, n_all = trial.stack.n_learners, trial.stack.n_learners + booster.stack.n_learners
        trial.sweep(lambda done, _: tell(done, n_all))
        walk, loss = trial.walk_checked(back.X), committee.loss
        sums = [walk[:, trial.stack.n_learners // part] for part in STEPS]
        lost = np.stack([expert_losses(scores, back.y, loss) for scores in (*sums, said[-n_back:])])
        self._insert(committee, booster)
        self._vote(committee, lost[:-1] - lost[-1], back.weight)
        if _trust(committee, 0) < FORGOTTEN:
            self.leave(committee)
            return
        booster.sweep(lambda done, _: tell(n_first + done, n_all))
        detail = f"{n:,} rows, {booster.stack.n_learners} trees"
        committee.events.append(Event(committee.n_rows, "history studied", detail))

    def leave(self, committee: Committee) -> None:
        """Let the booster that holds all rows go."""
        if committee.boosters[0].rests:
            for booster in committee.boosters:
                booster.detach()
            committee.hedge.leave(0)
            committee.boosters.pop(0)
            committee.hedge.experts[:, 0] -= 1
            self.joined_at, self.is_proven, self.rest_until = -1, False, 2 * committee.n_rows

    def _is_wanted(self, committee: Committee) -> bool:
        """Whether the longest memory is full and believed."""
        held = committee.boosters[0].replay
        is_full = held is not None and held.window is not None and held.fill >= held.window
        return is_full and _trust(committee, 0) >= BELIEVED and can_grow(committee)

    def _insert(self, committee: Committee, booster: Booster) -> None:
        for one in committee.boosters:
            one.detach()
        committee.boosters.insert(0, booster)
        committee.hedge.experts[:, 0] += 1

    def _judge(self, committee: Committee) -> None:
        booster = committee.boosters[0]
        assert booster.replay is not None
        if self.joined_at < 0:
            if booster.replay.sweeps > 0:
                self._vote(committee, np.zeros((len(STEPS), 1)), np.ones(1))
                detail = f"{booster.replay.fill:,} rows, {booster.stack.n_learners} trees"
                committee.events.append(Event(committee.n_rows, "memory grown", detail))
            return
        if committee.n_rows - self.joined_at < TRIAL_ROWS:
            return
        if _trust(committee, 0) < (FORGOTTEN if self.is_proven else EARNED):
            self.leave(committee)
            committee.events.append(Event(committee.n_rows, "memory shrunk", "what holds all rows was not believed"))
        else:
            self.is_proven = True

    def _vote(self, committee: Committee, more: FloatArray, weight: FloatArray) -> None:
        """Give partial sums of the booster that holds all rows a vote.

        ``more`` (experts, rows) is what they lost more than the vote on the latest rows.
        """
        hedge, N = committee.hedge, committee.boosters[0].stack.n_learners
        n_voters, n_known = len(hedge.decays) - 1, len(hedge.experts)
        age = np.cumsum(weight[::-1])[::-1] - weight  # of each row: the weights of those after it
        vote = (hedge.posterior[:n_voters, :n_known] * hedge.losses[:n_voters, :n_known]).sum(axis=1)  # (V,)
        hedge.join([Expert(0, N // part) for part in STEPS], [0] * len(STEPS))
        for v, decay in enumerate(hedge.decays[:-1]):
            lost = vote[v] + more @ (weight * decay**age)
            hedge.losses[v, n_known : n_known + len(STEPS)] = np.maximum(lost, 0.0)
        hedge.reweigh()
        self.joined_at = committee.n_rows


def can_grow(committee: Committee) -> bool:
    """Return whether a committee is one of trees on lines that learn row by row, by plain gradient steps."""
    return all(
        type(booster.stack) is TreeStack
        and type(booster.base) is Linear
        and type(booster.descent) is GradientDescent
        and not booster.descent.adaptive
        and (booster.update_mode, booster.iterate, booster.descent.readout) == ("sequential", "last", "last")
        for booster in committee.boosters
        if not booster.rests
    )


def n_trees(n_rows: int) -> int:
    """How many trees so many rows are worth."""
    return int(min(TREES * math.sqrt(n_rows), MOST_TREES))


def make_booster(committee: Committee, rows: Chunk, n_trees: int, steps: float = 1.0) -> Booster | None:
    """Return a booster of trees that rest, which holds these rows, not swept over yet; None if there is no memory."""
    first = committee.boosters[0]
    like, loss = first.stack, first.loss
    assert isinstance(like, TreeStack)
    stack = TreeStack(
        n_trees, max_depth=max(DEPTH - 7 + like.max_depth, 1), l2=like.l2, n_bins=BINS,
        min_samples_leaf=max(MIN_SAMPLES_LEAF, like.min_samples_leaf), max_features=like.max_features,
        monotonic_cst=like.monotonic_cst,
    )  # fmt: skip
    share = (SHARE if loss.temperature_scale else LOG_SHARE) * steps
    booster = Booster(
        loss, GradientDescent(share=share), stack, base=Constant(), replay=Replay(MOST_ROWS, targets="carried"),
        seed=first.seed,
    )  # fmt: skip
    replay, base = booster.replay, booster.base
    assert replay is not None
    assert isinstance(base, Constant)
    shape = memory_budget.Shape(rows.X.shape[1], loss.n_outputs, loss.n_targets)
    replay.window = memory_budget.longest_window(committee.boosters, booster, shape, committee.memory_limit_mb)
    if replay.window < len(rows.X):
        return None
    booster.allocate(rows.X.shape[1], rows.y.shape[1])
    if committee.categorical:
        booster.set_categorical(np.array(committee.categorical, np.int32), committee.n_levels)
    booster.opening, booster.scale = first.opening.copy(), first.scale
    booster.eta = booster.descent.schedule(n_trees, loss, first.scale, booster.edges.running)
    base.y0 = loss.start(rows.y, rows.weight)
    base.opening_y, base.opening_weight = first.opening[:, :-1].copy(), first.opening[:, -1].copy()  # and so it stays
    replay.append(rows.X, rows.y, rows.weight, None, base.predict(rows.X))
    booster.origin, booster.n_rows = first.origin, first.n_rows
    return booster


def _trust(committee: Committee, place: int) -> float:
    """How much of the vote a booster has."""
    return float(committee.hedge.weights[committee.hedge.experts[:, 0] == place].sum())
