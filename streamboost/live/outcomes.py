"""What became of requests: of rows that were to be learned, one request by itself or several as one, and of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost.answers import Answers, no_answers
from streamboost.arrays import BoolArray
from streamboost.guards import Sifted
from streamboost.live.learner import Lesson


class NotTogether(Exception):
    """Requests that cannot be learned as one; nothing was changed."""


class Learned(NamedTuple):
    """What became of a table of rows with their targets."""

    rows: int  # learned
    quarantined: int
    repeated: bool  # a request with this id was answered before: these are its figures, without arrays
    y: NDArray[Any]
    answers: Answers  # made before learning
    good: BoolArray  # (n,) of all rows of the table, whether they were learned
    reasons: dict[int, str]  # of the others, by row

    @property
    def predictions(self) -> NDArray[Any]:
        """What the model said of the rows that were learned, just before."""
        return self.answers.values


class Labelled(NamedTuple):
    """What became of labels."""

    learned: int  # for the first time
    corrected: int  # learned again, with another label
    unchanged: int  # learned with this label before
    early: int  # for rows that have not come yet
    quarantined: int
    repeated: bool  # as in Learned
    y: NDArray[Any]  # of those learned for the first time
    answers: Answers  # of these, made just before learning
    first: Answers  # of these, made when they were first asked about
    reasons: dict[int, str]  # of those in quarantine, by their place among the keys

    @property
    def predictions(self) -> NDArray[Any]:
        """What the model said of the rows that were learned for the first time, just before."""
        return self.answers.values


# Several requests as one.


class Share(NamedTuple):
    """One request's part of rows that are learned together."""

    start: int
    good: BoolArray
    reasons: dict[int, str]  # of bad rows, counted from the start

    @property
    def n_good(self) -> int:
        """Rows to be learned."""
        return int(self.good.sum())


def shares_of(sifted: Sifted, sizes: Sequence[int]) -> list[Share]:
    """The parts of requests of so many rows each."""
    ends = np.cumsum(sizes).tolist()
    shares = [Share(end - size, sifted.good[end - size : end], {}) for end, size in zip(ends, sizes, strict=True)]
    for row, reason in sifted.reasons.items():
        share = shares[int(np.searchsorted(ends, row, side="right"))]
        share.reasons[row - share.start] = reason
    return shares


def learned_of(shares: Sequence[Share], lesson: Lesson) -> list[Learned]:
    """What became of each, now that the good rows of all were learned."""
    learned, start = [], 0
    for _, good, reasons in shares:
        rows = slice(start, start := start + int(good.sum()))
        answers = lesson.answers.rows(rows)
        learned.append(Learned(len(answers.known), len(reasons), False, lesson.y[rows], answers, good, reasons))
    return learned


def refused_of(shares: Sequence[Share], reason: str) -> list[Learned]:
    """What became of each if there was nothing to learn, or the model refused all."""
    all_reasons = [dict.fromkeys(range(len(good)), reason) | reasons for _, good, reasons in shares]
    return [
        Learned(0, len(reasons), False, np.zeros(0), no_answers(0), share.good & False, reasons)
        for share, reasons in zip(shares, all_reasons, strict=True)
    ]
