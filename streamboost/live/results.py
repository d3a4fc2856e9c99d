"""What became of requests, and how answers and predictions are kept in the journal as JSON."""

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
from streamboost.runs.guard import ValidatedRows

BatchKind: TypeAlias = Literal["learn", "label", "correct", "expire"]
Answer: TypeAlias = dict[str, Any]  # the figures of a request, with the reasons of all rows that were not learned

COUNTED = {"label": "learned", "correct": "corrected"}  # what rows are counted as, by the kind of their entry


class LearnedBatch(NamedTuple):
    """Rows that were learned together."""

    kind: BatchKind
    y: NDArray[Any]
    answers: Predictions  # made just before learning
    first: Predictions  # made when they were first asked about, as far as that is known
    is_replay: bool = False  # whether they had been learned before, by a process that crashed

    def honest(self) -> Predictions:
        """Return the predictions to be scored: the first where known, else those made just before learning."""
        known = self.first.known
        if known.all() or not known.any():
            return self.first if known.any() else self.answers
        each = [self.first if is_known else self.answers for is_known in known]
        return concatenate([predictions.rows(slice(i, i + 1)) for i, predictions in enumerate(each)])


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
        """What the model predicted of the rows that were learned, just before."""
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
        """What the model predicted of the rows that were learned for the first time, just before."""
        return self.answers.values


# Several requests as one.


class NotTogether(Exception):
    """Requests that cannot be learned as one; nothing was changed."""


def split_results(valid: ValidatedRows, sizes: Sequence[int]) -> list[Learned]:
    """Return what is to become of requests of so many rows each, which were validated as one."""
    if len(sizes) == 1:
        return [Learned(len(valid.y), len(valid.reasons), False, valid.reasons, good=valid.good)]
    ends = np.cumsum(sizes).tolist()
    results = [
        Learned(int(good.sum()), int((~good).sum()), False, {}, good=good) for good in np.split(valid.good, ends[:-1])
    ]
    for row, reason in valid.reasons.items():
        which = int(np.searchsorted(ends, row, side="right"))
        results[which].reasons[row - ends[which] + sizes[which]] = reason
    return results


def complete_results(
    results: Sequence[Learned], batch: LearnedBatch | None, refused: Mapping[int, str]
) -> list[Learned]:
    """Add what was predicted, and which of the rows written down (all good ones, numbered on) the model refused.

    There is no batch if there was nothing to learn, or the model refused all.
    """
    if batch is not None and len(results) == 1 and not refused:
        return [results[0]._replace(y=batch.y, answers=batch.answers)]
    completed, start, n_before = [], 0, 0
    for one in results:
        places = np.flatnonzero(one.good)
        lost = {int(places[i - start]): why for i, why in refused.items() if start <= i < start + one.rows}
        start, n = start + one.rows, one.rows - len(lost)
        reasons, good = dict(sorted((one.reasons | lost).items())), one.good.copy()
        good[list(lost)] = False
        done = Learned(n, len(reasons), False, reasons, good=good)
        if batch is not None and n:
            rows = slice(n_before, n_before := n_before + n)
            done = done._replace(y=batch.y[rows], answers=batch.answers.rows(rows))
        completed.append(done)
    return completed


class IdTaken(ValueError):
    """The id of a request is that of an earlier one that brought something else."""


# Answers to requests, kept with their ids, and changed if the model did not take what was promised.


def pack_answer(answer: Mapping[str, Any]) -> Answer:
    """Return an answer as it is kept: neighbours with the same reason share it, as [first, how many, reason]."""
    places = enumerate(sorted(answer["reasons"].items()))
    runs = [[one for _, one in run] for _, run in groupby(places, key=lambda at: (at[1][0] - at[0], at[1][1]))]
    return {**answer, "reasons": [[run[0][0], len(run), run[0][1]] for run in runs]}


def unpack_answer(kept: Mapping[str, Any]) -> Answer:
    """Undo :func:`pack_answer`."""
    runs = kept.get("reasons", [])
    return {**kept, "reasons": {first + i: reason for first, n, reason in runs for i in range(n)}}


def without_labels(answer: Answer, entry: Entry, refused: Mapping[int, str]) -> Answer:
    """Return the answer to labels, if the model did not take some rows of an entry that were to be learned."""
    name, places = COUNTED[entry.kind], entry.origin["places"]
    reasons = answer["reasons"] | {places[row]: reason for row, reason in refused.items()}
    return {**answer, name: answer[name] - len(refused), "quarantined": len(reasons), "reasons": reasons}


def without_rows(answer: Answer, refused: Mapping[int, str]) -> Answer:
    """Return the answer to rows, if the model did not take some of those that were to be learned."""
    n = answer["rows"] + answer["quarantined"]
    good = [place for place in range(n) if place not in answer["reasons"]]
    reasons = answer["reasons"] | {good[row]: reason for row, reason in refused.items() if row < len(good)}
    return {**answer, "rows": n - len(reasons), "quarantined": len(reasons), "reasons": dict(sorted(reasons.items()))}


def revert(changes: Transaction, entry: Entry, refused: Mapping[int, str]) -> None:
    """Undo what was written down with rows of an entry that the model did not take: labels, counts and answers."""
    origin, keys = entry.origin, entry.origin.get("keys", [])
    were = origin.get("were", [None] * len(keys))
    changes.revert_labels({keys[row]: were[row] for row in refused if keys})
    if entry.kind == "correct":
        changes.count(corrected=-len(refused))
    elif entry.kind == "expire":
        changes.count(dropped=len(refused))
    start, ids = 0, origin.get("ids", [])
    for id, n in origin.get("requests", [(id, entry.table.num_rows) for id in ids]):  # whose rows these are, in turn
        own = {row - start: reason for row, reason in refused.items() if start <= row < start + n}
        start += n if "requests" in origin else 0
        verb, kept = (changes.find_id(id) if id is not None else None) or ("", {})
        answer = unpack_answer(kept)
        if own and verb == "learn":
            changes.change_answer(id, pack_answer(without_rows(answer, own)))
        elif own and verb == "label":
            changes.change_answer(id, pack_answer(without_labels(answer, entry, own)))


# Predictions made when a row was first asked about, kept with the row.


def encode_predictions(predictions: Any, n: int) -> list[Any]:
    """Return predictions of n rows, each as JSON can say it; None where there is none."""
    if isinstance(predictions, Probabilities):
        classes = [one.item() if isinstance(one, np.generic) else one for one in predictions.classes]
        rows = np.asarray(predictions.values, dtype=float).tolist()
        each: list[Any] = [{"classes": classes, "probabilities": row} if any(row) else None for row in rows]
    else:
        each = predictions.tolist() if hasattr(predictions, "tolist") else list(predictions)
        each = [one.item() if isinstance(one, np.generic) else one for one in each]
    if len(each) != n or not all(isinstance(one, (bool, int, float, str, dict, type(None))) for one in each):
        way_out = "Pass probabilities of classes as Probabilities(classes, values)."
        raise ValueError(f"predictions are not {n} numbers or classes, expected one a row. {way_out}")
    return each


def decode_predictions(each: Sequence[Any], task: Task) -> Predictions:
    """Undo :func:`encode_predictions`."""
    parts = []
    for classes, run in groupby(each, key=_classes_of):
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


def _classes_of(prediction: Any) -> Any:
    """Return what rows must share to be decoded together."""
    if isinstance(prediction, dict):
        return tuple(prediction["classes"])
    return False if prediction is None else None
