"""Replacement after drift: when the longest memory has been overtaken by the stream, a young booster takes its place.

After an abrupt change the rows of the longest memory are stale. Dropping them at an alarm would be a gamble, as many
streams only look as if they had changed (seasons). So nothing is dropped on suspicion. When a shorter memory has been
clearly better for some hundred rows, a *challenger* starts afresh beside the longest memory, votes like everybody else,
and takes its place only once it has proven better on the same rows, by more than chance explains. If it does not, it
leaves, and the next one has to wait twice as long.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamboost.bases import Frozen
from streamboost.boosting import critical_section
from streamboost.boosting.hedge import Expert, not_kept
from streamboost.kernels.hedge import LOST, OLD, ROWS, SQUARES, TOTAL

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.boosting.committee import Committee

REVIEW_EVERY = 64  # rows between two looks
SUSPICION = 0.85  # a shorter memory loses less than this share of what the longest does
HEAD_START = 256  # newest rows that a challenger learns first
PROOF_ROWS = 512  # rows of a paired test before it can be won
PATIENCE = 4096  # rows after which it is lost
SIGMAS = 5.0  # by how many standard errors a winner must be better
MARGIN = 0.03  # and by what share of the loss
WAIT, LONGEST_WAIT = 1024, 65536  # rows after a lost test before the next one


class Event(NamedTuple):
    """Something that happened to a model, and the row before which it did."""

    row: int
    kind: str
    detail: str


class DriftReplacement:
    """Watches over the longest memory of a committee.

    ``paired_test`` (6,): incumbent and challenger (-1: none), n, Σd, Σd², Σ incumbent loss; d is the loss difference.
    """

    def __init__(self) -> None:
        self.paired_test = np.array([-1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
        self.wait = self.rest_until = WAIT  # nobody challenges before that row

    @property
    def is_on(self) -> bool:
        """Whether a challenger is there."""
        return bool(self.paired_test[OLD] >= 0)

    def review(self, committee: Committee) -> None:
        """Let a challenger come, take over, or leave; to be called every :data:`REVIEW_EVERY` rows."""
        if self.is_on:
            self._judge(committee)
        elif committee.n_rows >= self.rest_until and self._suspects(committee):
            self._challenge(committee)

    def _suspects(self, committee: Committee) -> bool:
        """Whether a shorter memory has clearly lost less than the longest over the latest rows."""
        hedge, place = committee.hedge, _place(committee)
        longest = committee.boosters[place].replay
        losses = hedge.losses[(len(hedge.decays) - 1) // 2]  # of the voter in the middle
        lost = {b: losses[e] for e, (b, step) in enumerate(hedge.experts) if step > 0}
        shorter = min(loss for b, loss in lost.items() if b > place)
        return longest is not None and longest.fill > 2 * HEAD_START and bool(shorter < SUSPICION * lost[place])

    def _challenge(self, committee: Committee) -> None:
        old = committee.boosters[_place(committee)]
        assert old.replay is not None
        new = fresh_copy(old)
        if committee.categorical:
            new.set_categorical(np.array(committee.categorical, np.int32), committee.n_levels)
        X, y, weight = old.replay.newest(HEAD_START)
        section = object()
        try:
            critical_section.enter(new, section)
            new.learn_relative(X, y, weight, not_kept(len(X)))
        finally:
            critical_section.leave(new, section)
        new.n_rows = old.n_rows
        committee.boosters.append(new)
        place, hedge = len(committee.boosters) - 1, committee.hedge
        twins = [e for e, (b, _) in enumerate(hedge.experts) if b == _place(committee)]
        hedge.join([Expert(place, int(hedge.experts[e, 1])) for e in twins], twins)
        self.paired_test[:] = twins[-1], len(hedge.experts) - 1, 0.0, 0.0, 0.0, 0.0

    def _judge(self, committee: Committee) -> None:
        rows, total, squares, lost = self.paired_test[[ROWS, TOTAL, SQUARES, LOST]]
        if rows < PROOF_ROWS:
            return
        error = np.sqrt(max(squares - total**2 / rows, 0.0))  # of the total
        if total > SIGMAS * error and total > MARGIN * lost:
            if committee.growth is not None:  # what holds all rows holds those that are out of date
                committee.growth.leave(committee)
            old, young = committee.boosters[0].replay, committee.boosters[-1].replay
            assert old is not None
            assert young is not None
            committee.hedge.leave(0, len(committee.boosters) - 1)
            committee.boosters[0] = committee.boosters.pop()
            self._end(committee, WAIT)
            detail = f"{old.fill - young.fill:,} of {old.fill:,} rows were out of date"
            committee.events.append(Event(committee.n_rows, "memory dropped", detail))
        elif rows >= PATIENCE or total < -SIGMAS * error:
            committee.hedge.leave(len(committee.boosters) - 1)
            committee.boosters.pop()
            self._end(committee, min(2 * self.wait, LONGEST_WAIT))

    def _end(self, committee: Committee, wait: int) -> None:
        self.paired_test[:] = -1.0, -1.0, 0.0, 0.0, 0.0, 0.0
        self.wait, self.rest_until = wait, committee.n_rows + wait


def _place(committee: Committee) -> int:
    """Where the booster with the longest memory stands, of those that do not hold all rows."""
    return int(committee.boosters[0].rests)


def fresh_copy(booster: Booster) -> Booster:
    """A booster of the same make that has seen nothing."""
    twin = copy.copy(booster)
    twin.stack, twin.replay = copy.deepcopy(booster.stack), copy.copy(booster.replay)
    twin.base, twin.n_rows = copy.copy(booster.base), 0
    twin.edges, twin.cost = type(booster.edges)(booster.stack.n_learners), type(booster.cost)()
    if booster.past is not None:
        twin.past = type(booster.past)(booster.past.capacity, booster.seed)
    twin.allocate(booster.stack.n_features, booster.loss.n_targets)
    if isinstance(booster.base, Frozen):  # it has learned nothing, and knows the columns it was fitted to
        twin.base = copy.copy(booster.base)
    return twin
