"""What was said of rows, what became of requests, and how both are kept in the journal as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost._types import BoolArray, Task
from streamboost.evaluation.metric_base import Probabilities
from streamboost.evaluation.predictions import Predictions, concatenate, no_predictions
from streamboost.live.journal import Entry, Transaction
from streamboost.runs.guard import Sifted

BatchKind: TypeAlias = Literal["learn", "label", "correct", "expire"]
Answer: TypeAlias = dict[str, Any]  # the figures of a request, with the reasons of all rows that were not learned

COUNTED = {"label": "learned", "correct": "corrected"}  # what rows are counted as, by the kind of their entry


class LearnedBatch(NamedTuple):
    """Rows that were learned together."""

    kind: BatchKind
    y: NDArray[Any]
    answers: Predictions  # what the model said of them just before
    first: Predictions  # what was said of them when they were first asked about, as far as that is known
    is_replay: bool = False  # whether they had been learned before, by a process that crashed

    def honest(self) -> Predictions:
        """What was said first, where that is known, and else just before learning: what is to be scored."""
        if self.first.known.all() or not self.first.known.any():
            return self.first if self.first.known.any() else self.answers
        each = [self.first if known else self.answers for known in self.first.known]
        return concatenate([said.rows(slice(i, i + 1)) for i, said in enumerate(each)])


class Learned(NamedTuple):
    """What became of a table of rows with their targets."""

    rows: int  # learned
    quarantined: int
    repeated: bool  # a request with this id was answered before: these are its figures, without arrays
    reasons: dict[int, str]  # of rows that were not learned, by row
    y: NDArray[Any] = np.zeros(0)
    answers: Predictions = no_predictions(0)  # made before learning
    good: BoolArray = np.zeros(0, bool)  # (n,) of all rows of the table, whether they were learned

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
    reasons: dict[int, str]  # of those in quarantine, by their place among the keys
    y: NDArray[Any] = np.zeros(0)  # of those learned for the first time
    answers: Predictions = no_predictions(0)  # of these, made just before learning
    first: Predictions = no_predictions(0)  # of these, made when they were first asked about

    @property
    def predictions(self) -> NDArray[Any]:
        """What the model said of the rows that were learned for the first time, just before."""
        return self.answers.values


# Several requests as one.


class NotTogether(Exception):
    """Requests that cannot be learned as one; nothing was changed."""


def promised(sifted: Sifted, sizes: Sequence[int]) -> list[Learned]:
    """What is to become of requests of so many rows each, which were sifted as one."""
    ends = np.cumsum(sizes).tolist()
    learned = [
        Learned(int(good.sum()), int((~good).sum()), False, {}, good=good) for good in np.split(sifted.good, ends[:-1])
    ]
    for row, reason in sifted.reasons.items():
        which = int(np.searchsorted(ends, row, side="right"))
        learned[which].reasons[row - ends[which] + sizes[which]] = reason
    return learned


def fulfilled(promises: Sequence[Learned], batch: LearnedBatch | None, refusal: str) -> list[Learned]:
    """What became of them; there is no batch if there was nothing to learn, or the model refused all."""
    learned, start = [], 0
    for one in promises:
        if batch is None:
            reasons = dict.fromkeys(range(len(one.good)), refusal) | one.reasons
            learned.append(Learned(0, len(reasons), False, reasons, good=one.good & False))
        else:
            rows = slice(start, start := start + one.rows)
            learned.append(one._replace(y=batch.y[rows], answers=batch.answers.rows(rows)))
    return learned


# Answers to requests, kept with their ids, and changed if the model did not take what was promised.


def packed(answer: Mapping[str, Any]) -> Answer:
    """An answer as it is kept: neighbours with the same reason share it.

    Examples
    --------
    >>> packed({"rows": 1, "reasons": {0: "it is missing", 1: "it is missing", 3: "it is infinite"}})
    {'rows': 1, 'reasons': [[0, 2, 'it is missing'], [3, 1, 'it is infinite']]}
    """
    places = enumerate(sorted(answer["reasons"].items()))
    runs = [[one for _, one in run] for _, run in groupby(places, key=lambda at: (at[1][0] - at[0], at[1][1]))]
    return {**answer, "reasons": [[run[0][0], len(run), run[0][1]] for run in runs]}


def unpacked(kept: Mapping[str, Any]) -> Answer:
    """Undo :func:`packed`."""
    runs = kept.get("reasons", [])
    return {**kept, "reasons": {first + i: reason for first, n, reason in runs for i in range(n)}}


def without_labels(answer: Answer, kind: str, places: Sequence[int], reason: str) -> Answer:
    """The answer to labels, if the model did not take some that were to be learned."""
    name, reasons = COUNTED[kind], answer["reasons"] | dict.fromkeys(places, reason)
    return {**answer, name: answer[name] - len(places), "quarantined": len(reasons), "reasons": reasons}


def take_back(changes: Transaction, entry: Entry, reason: str) -> None:
    """Undo what was promised with an entry that the model did not take: labels, counts and answers."""
    keys = entry.origin.get("keys", [])
    changes.take_back(dict(zip(keys, entry.origin.get("were", [None] * len(keys)), strict=True)))
    if entry.kind == "correct":
        changes.count(corrected=-len(keys))
    elif entry.kind == "expire":
        changes.count(dropped=len(keys))
    for id in entry.origin.get("ids", []):
        verb, kept = changes.find_id(id) or ("", {})
        answer = unpacked(kept)
        if verb == "learn":
            n = answer["rows"] + answer["quarantined"]
            reasons = dict.fromkeys(range(n), reason) | answer["reasons"]
            changes.change_answer(id, packed({"rows": 0, "quarantined": n, "reasons": reasons}))
        elif verb == "label":
            changes.change_answer(id, packed(without_labels(answer, entry.kind, entry.origin["places"], reason)))


# What was said of a row when it was first asked about, kept with the row.


def write_first(predictions: Any, n: int) -> list[Any]:
    """Predictions of n rows, each as JSON can say it; None where there is none."""
    if isinstance(predictions, Probabilities):
        classes = [one.item() if isinstance(one, np.generic) else one for one in predictions.classes]
        rows = np.asarray(predictions.values, dtype=float).tolist()
        said: list[Any] = [{"classes": classes, "probabilities": row} if any(row) else None for row in rows]
    else:
        said = predictions.tolist() if hasattr(predictions, "tolist") else list(predictions)
        said = [one.item() if isinstance(one, np.generic) else one for one in said]
    if len(said) != n or not all(isinstance(one, (bool, int, float, str, dict, type(None))) for one in said):
        raise ValueError(
            f"predictions are not {n} numbers or classes, expected one a row. Pass probabilities of classes as "
            "Probabilities(classes, values)."
        )
    return said


def read_first(said: Sequence[Any], task: Task) -> Predictions:
    """Undo :func:`write_first`.

    Examples
    --------
    >>> read_first(write_first(np.array([2.5, 3.0]), 2), "regression")
    Predictions(known=array([ True,  True]), values=array([2.5, 3. ]), probabilities=None)
    """
    parts = []
    for classes, run in groupby(said, key=_classes_of):
        rows = list(run)
        known, values = np.ones(len(rows), dtype=bool), np.empty(len(rows), float if task == "regression" else object)
        if rows[0] is None:
            parts.append(no_predictions(len(rows)))
        elif classes is None:
            values[:] = rows
            parts.append(Predictions(known, values))
        else:
            table = np.array([row["probabilities"] for row in rows])
            values[:] = [classes[i] for i in table.argmax(axis=1)]
            parts.append(Predictions(known, values, Probabilities(list(classes), table)))
    return parts[0] if len(parts) == 1 else concatenate(parts)


def _classes_of(said: Any) -> Any:
    """What rows must share to be read together."""
    if isinstance(said, dict):
        return tuple(said["classes"])
    return False if said is None else None
