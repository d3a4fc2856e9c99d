"""Growth: a booster that holds all rows joins where the longest memory is believed, and becomes larger with the rows.

Its trees rest between refits, which come one at a time and in slices while rows come, so that nothing stalls: all of
them have had their turn when the rows held have grown by half. With the rows steps become smaller and trees more,
twice as many again where the latest doubling shows that it pays, and half where fewer do. It has a vote from the end of
its first sweep on. If it has not earned one by the end of a trial its trees go, while it goes on taking in rows; the
next ones come when there are four times as many. If it loses its vote later, as after a drift, its rows go, too.

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
from streamboost.losses import Loss
from streamboost.replay import Replay
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.committee import Committee

FEWEST_ROWS = 1000  # of a table: with fewer, what is learned in one pass is as good
HELD_BACK, MOST_HELD_BACK = 8, 4096  # one in so many rows, and no more than so many, tell how far to believe
BEGIN = 2048  # rows that the longest memory holds where growth begins
STEP, STEP_ROWS, LEAST_STEP, MOST_STEP = 0.1, 30_000, 0.03, 0.1  # the step at so many rows; it falls as rows ** -1/4
LENGTH, LENGTH_OF_MANY = 50.0, 40.0  # of all steps together, unless more or fewer pay; of trees for many classes
FEWEST_TREES, MOST_TREES = 32, 2000
PAYS, MOST_TIMES = 0.02, 2.0  # of the loss, that twice as many must be expected to take off; as many at most
TRIAL_TREES, TRIAL_STEPS = 4, 2.0  # one in so many of them, with twice the steps, before it has earned a vote
PART, LARGER = 3, 1.5  # one in so many of the trees, with larger steps, are fitted to the rows before those held back
WAIT = 4  # times as many rows as there were when a booster left, before the next one comes
STEPS = (4, 2, 1)  # a vote for the first quarter of the trees, for the first half, and for all
CAT_L2 = 30.0  # rows' worth of caution about levels
DEPTH, DEPTH_OF_MANY, MIN_SAMPLES_LEAF, BINS = 8, 10, 5, 254  # deeper where one tree speaks for many classes
WIDE, BINS_OF_WIDE = 200, 64  # of rows with more columns, fewer bins: splits are looked for among both
MOST_ROWS = 1 << 20  # that are held
BELIEVED = 0.5  # of the vote: what the longest memory has where growth begins
HOPE_ROWS, TRIAL_ROWS = 2048, 4096  # with a vote, until it must have earned HOPELESS of it, and EARNED
EARNED, HOPELESS, FORGOTTEN = 0.25, 0.05, 0.02  # of the vote: after the trial, in it, and whenever it leaves later
WORTH = 0.1  # of the vote, by the rows held back of a table: with less it is not swept over


class Growth:
    """Watches over the booster of a committee that holds all rows, if there is one: it is the first then."""

    factor, sweeps, is_full = 1.0, 0, False  # of those of older files

    def __init__(self) -> None:
        self.rest_until = 0  # nobody comes before that row
        self.joined_at = -1  # the row from which on it has a vote; -1: none yet
        self.is_proven = False  # whether it has earned its vote
        self.factor = 1.0  # times as many trees as rows are worth by themselves
        self.sweeps = 0  # of the booster, when its size was looked at last
        self.is_full = False  # whether it holds as many rows as it may

    def review(self, committee: Committee) -> None:
        """Let a booster come, have a vote, or leave; to be called between rows."""
        first = committee.boosters[0]
        if committee.drift_replacement is None or committee.drift_replacement.is_on:
            return
        if first.sleeps:
            if committee.n_rows >= self.rest_until and self._is_wanted(committee):
                self._wake(committee)
        elif first.rests:
            self._judge(committee)
            self._tell_when_full(committee)
            if self.is_proven and first.rests and first.replay is not None and first.replay.sweeps > self.sweeps:
                self.sweeps = first.replay.sweeps
                self._resize(committee)
        elif committee.n_rows >= self.rest_until and self._is_wanted(committee):
            assert first.replay is not None
            rows = Chunk(*first.replay.newest(first.replay.fill))
            booster = make_booster(committee, rows, n_on_trial(committee.loss, len(rows.X)), TRIAL_STEPS)
            if booster is None:
                self.rest_until = WAIT * committee.n_rows
                detail = "there is no room for a booster that holds all rows"
                committee.events.append(Event(committee.n_rows, "memory limited", detail))
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
        trial = make_booster(committee, before, n_trees(committee.loss, n) // PART, times=LARGER)
        booster = make_booster(committee, rows, n_trees(committee.loss, n))
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
        if _trust(committee, 0) < WORTH:
            self._sleep(committee)
            return
        committee.hedge.combination.restart()  # beside a vote that has become another
        booster.sweep(lambda done, _: tell(n_first + done, n_all))
        self.sweeps = 1
        detail = f"{n:,} rows, {booster.stack.n_learners} trees"
        committee.events.append(Event(committee.n_rows, "history studied", detail))

    def leave(self, committee: Committee) -> None:
        """Let the booster that holds all rows go, and its rows with it."""
        if committee.boosters[0].rests:
            for booster in committee.boosters:
                booster.detach()
            committee.hedge.leave(0)
            committee.boosters.pop(0)
            committee.hedge.experts[:, 0] -= 1
            self._start_anew(WAIT * committee.n_rows)

    def _sleep(self, committee: Committee) -> None:
        """Let all trees of the booster that holds all rows go; rows go on coming in, for those that come later."""
        committee.hedge.leave(0)
        committee.boosters[0].fall_asleep()
        self._start_anew(WAIT * committee.n_rows)

    def _wake(self, committee: Committee) -> None:
        """Let trees grow on all rows held, on trial."""
        booster = committee.boosters[0]
        assert booster.replay is not None
        n = booster.replay.fill
        booster.wake(n_on_trial(booster.loss, n), step_of(booster.loss, n, TRIAL_STEPS))

    def _start_anew(self, rest_until: int) -> None:
        self.joined_at, self.is_proven, self.rest_until = -1, False, rest_until
        self.factor, self.sweeps, self.is_full = 1.0, 0, False

    def _is_wanted(self, committee: Committee) -> bool:
        """Whether the longest memory of the ladder is full and believed."""
        place = int(committee.boosters[0].rests)
        held = committee.boosters[place].replay
        is_full = held is not None and held.window is not None and held.fill >= min(held.window, BEGIN)
        return is_full and _trust(committee, place) >= BELIEVED and can_grow(committee)

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
                committee.hedge.combination.restart()
                detail = f"{booster.replay.fill:,} rows, {booster.stack.n_learners} trees"
                committee.events.append(Event(committee.n_rows, "memory grown", detail))
            return
        waited, trust = committee.n_rows - self.joined_at, _trust(committee, 0)
        told = waited * committee.hedge.pace  # rows of rare classes tell less
        if self.is_proven and trust < FORGOTTEN:  # the rows are out of date: others take their place at once
            self.leave(committee)
            self.rest_until = committee.n_rows
        elif not self.is_proven and (
            (told >= TRIAL_ROWS and trust < EARNED) or (told >= HOPE_ROWS and _slowest_trust(committee, 0) < HOPELESS)
        ):
            self._sleep(committee)
        else:
            self.is_proven |= waited >= TRIAL_ROWS and trust >= EARNED
            return
        committee.events.append(Event(committee.n_rows, "memory shrunk", "what holds all rows was not believed"))

    def _tell_when_full(self, committee: Committee) -> None:
        """Say, once, that no more rows are held than now."""
        held = committee.boosters[0].replay
        if held is not None and held.is_carried and held.fill == held.window and not self.is_full:
            self.is_full = True
            detail = f"{held.fill:,} rows are held, the newest from now on"
            committee.events.append(Event(committee.n_rows, "memory full", detail))

    def _resize(self, committee: Committee) -> None:
        """Let steps and trees follow the rows, and what the latest rows tell of more or fewer trees."""
        booster, hedge = committee.boosters[0], committee.hedge
        assert booster.replay is not None
        mine = np.flatnonzero(hedge.experts[:, 0] == 0)
        quarter, half, whole = hedge.losses[len(hedge.decays) - 2, mine]  # of the voter that forgets last
        gain, gain_before = half - whole, quarter - half
        if gain <= 0.0:
            self.factor /= 2.0
        elif gain * min(gain / gain_before if gain_before > 0.0 else 1.0, 1.0) > PAYS * whole:
            self.factor *= 2.0
        n, before = booster.replay.fill, booster.stack.n_learners
        booster.descent, usual = step_of(booster.loss, n), n_trees(booster.loss, n)
        wanted = int(min(max(usual * min(self.factor, MOST_TIMES), FEWEST_TREES), MOST_TREES))
        self.factor = wanted / usual
        if wanted > before:
            booster.grow(wanted - before)
        elif wanted < before:
            booster.drop_last(before - wanted)
        else:
            return
        steps = np.array([max(wanted // part, 1) for part in STEPS])
        nearest = np.abs(np.log(steps[:, None] / hedge.experts[mine, 1])).argmin(axis=1)
        hedge.losses[:-1, mine] = hedge.losses[:-1][:, mine[nearest]]
        hedge.experts[mine, 1] = steps
        hedge.reweigh()

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
            lost = vote[v] + more @ (weight * decay ** (hedge.pace * age))
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


def step(n_rows: int) -> float:
    """Return the share of the natural step that trees take with so many rows."""
    return min(max(STEP * math.sqrt(math.sqrt(STEP_ROWS / n_rows)), LEAST_STEP), MOST_STEP)


def step_of(loss: Loss, n_rows: int, times: float = 1.0) -> GradientDescent:
    """Return a descent by these steps: by Newton's where the loss tells how it curves, else by its natural ones."""
    share = step(n_rows) * times
    return GradientDescent(share) if loss.curves else GradientDescent(share=share)


def n_trees(loss: Loss, n_rows: int) -> int:
    """Return how many trees so many rows are worth."""
    return int(min((LENGTH_OF_MANY if loss.n_outputs > 2 else LENGTH) / step(n_rows), MOST_TREES))


def n_on_trial(loss: Loss, n_rows: int) -> int:
    """Return how many trees a booster has before it has earned a vote."""
    return max(n_trees(loss, n_rows) // TRIAL_TREES, FEWEST_TREES)


def make_booster(committee: Committee, rows: Chunk, n_trees: int, times: float = 1.0) -> Booster | None:
    """Return a booster of trees that rest, which holds these rows, not swept over yet; None if there is no memory."""
    first = committee.boosters[0]
    like, loss = first.stack, first.loss
    assert isinstance(like, TreeStack)
    depth = (DEPTH_OF_MANY if loss.n_outputs > 2 else DEPTH) - 7 + like.max_depth
    stack = TreeStack(
        n_trees, max_depth=max(depth, 1), l2=like.l2, n_bins=BINS if rows.X.shape[1] <= WIDE else BINS_OF_WIDE,
        cat_l2=CAT_L2,
        min_samples_leaf=max(MIN_SAMPLES_LEAF, like.min_samples_leaf), max_features=like.max_features,
        monotonic_cst=like.monotonic_cst,
    )  # fmt: skip
    booster = Booster(
        loss, step_of(loss, len(rows.X), times), stack, base=Constant(), replay=Replay(MOST_ROWS, targets="carried"),
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


def _slowest_trust(committee: Committee, place: int) -> float:
    """How much of the vote a booster has with the voter that forgets last, and changes its mind least."""
    hedge = committee.hedge
    votes = hedge.posterior[len(hedge.decays) - 2, : len(hedge.experts)]
    return float(votes[hedge.experts[:, 0] == place].sum())


def _trust(committee: Committee, place: int) -> float:
    """How much of the vote a booster has."""
    return float(committee.hedge.weights[committee.hedge.experts[:, 0] == place].sum())
