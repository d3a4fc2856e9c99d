"""Answers to requests, as they are kept with the ids of these, and changed if the model did not take what was promised.

An answer is a dict of figures, with the reasons of all rows that were not learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from streamboost.journal import Entry, Transaction

Answer: TypeAlias = dict[str, Any]

COUNTED = {"label": "learned", "correct": "corrected"}  # what rows are counted as, by the kind of their entry


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
    reasons = kept.get("reasons", [])
    if isinstance(reasons, dict):  # as journals of version 1 have it
        return {**kept, "reasons": {int(place): reason for place, reason in reasons.items()}}
    return {**kept, "reasons": {first + i: reason for first, n, reason in reasons for i in range(n)}}


def without_rows(answer: Answer, reason: str) -> Answer:
    """The answer to a request to learn rows, if the model took none of them."""
    n = answer["rows"] + answer["quarantined"]
    return {"rows": 0, "quarantined": n, "reasons": dict.fromkeys(range(n), reason) | answer["reasons"]}


def without_labels(answer: Answer, kind: str, places: Sequence[int], reason: str) -> Answer:
    """The answer to labels, if the model did not take some that were to be learned."""
    name, reasons = COUNTED[kind], answer["reasons"] | dict.fromkeys(places, reason)
    return {**answer, name: answer[name] - len(places), "quarantined": len(reasons), "reasons": reasons}


def take_back(changes: Transaction, entry: Entry, reason: str) -> None:
    """Undo what was promised with an entry that the model did not take: labels, counts and answers."""
    origin = entry.origin or {}  # journals of version 1 do not say
    keys = origin.get("keys", [])
    changes.take_back(dict(zip(keys, origin.get("were", [None] * len(keys)), strict=True)))
    if entry.kind == "correct":
        changes.count(corrected=-len(keys))
    elif entry.kind == "expire":
        changes.count(dropped=len(keys))
    for id in origin.get("ids", []):
        verb, kept = changes.find_id(id) or ("", {})
        if verb == "learn":
            changes.change_answer(id, packed(without_rows(unpacked(kept), reason)))
        elif verb == "label":
            changes.change_answer(id, packed(without_labels(unpacked(kept), entry.kind, origin["places"], reason)))
