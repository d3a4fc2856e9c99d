"""Rows that wait for labels, and labels that wait for rows: in time, early, late and never."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from streamboost.guards import Quarantine
from streamboost.journal import KeyedRow, Transaction
from streamboost.live.bounds import Bounds, known_classes
from streamboost.live.foresight import Foreseen
from streamboost.live.intake import is_nothing, is_same, label_column
from streamboost.live.learner import Learner, LessonKind
from streamboost.live.settling import Settled, settle, settle_each


class Rules(NamedTuple):
    """What holds at the moment of a request."""

    now: float
    correct_within: float  # seconds in which labels may be corrected, or wait for their rows
    default: Any  # the label of rows that waited too long; None if they are dropped
    bounds: Bounds


class Waiting:
    """Writes down what becomes of rows and labels; whatever is to be learned enters the journal's entries."""

    def __init__(self, learner: Learner, quarantine: Quarantine) -> None:
        self.learner, self.quarantine = learner, quarantine

    def take_labels(
        self, changes: Transaction, keys: Sequence[str], labels: Sequence[Any], id: str | None, rules: Rules
    ) -> dict[str, Any]:
        """Labels that have come: of rows that wait, of rows learned already, or of rows yet to come."""
        rows = changes.find(keys)
        places = _meanings(rows, keys, labels, rules)
        reasons: dict[int, str] = {}
        foreseen = Foreseen(self.learner.model)
        kinds: dict[str, LessonKind] = {"learned": "label", "corrected": "correct"}
        for name, kind in kinds.items():
            which = places[name]
            rows_, labels_ = [rows[keys[i]] for i in which], [labels[i] for i in which]
            settled = settle(self.learner, rows_, labels_, rules.bounds, foreseen)
            origin = {"ids": [] if id is None else [id], "places": which}
            reasons |= {which[i]: why for i, why in self._write(changes, kind, settled, rules.now, origin).items()}
        early = {i: labels[i] for i in places["early"]}
        reasons |= self._bad_early(changes, early, known_classes(foreseen.model), rules.bounds)
        for i in [i for i in early if i in reasons]:
            table = pa.table({self.learner.target: label_column([labels[i]])})
            put_aside(self.quarantine, changes, [(i, reasons[i], keys[i], table)])
        changes.add_early({keys[i]: label for i, label in early.items() if i not in reasons}, rules.now)
        figures = {name: sum(i not in reasons for i in which) for name, which in places.items()}
        changes.count(corrected=figures["corrected"])
        return {**figures, "quarantined": len(reasons), "reasons": reasons}

    def _bad_early(
        self, changes: Transaction, labels: Mapping[int, Any], classes: set[Any], bounds: Bounds
    ) -> dict[int, str]:
        """Why labels need not wait for their rows. Those that wait count as classes, though no row may ever come."""
        reasons, classes = {}, set(classes)
        if bounds.classes is not None and not classes.issuperset(labels.values()):
            classes.update(changes.early_labels())
        for i, label in labels.items():
            if is_nothing(label):
                reasons[i] = f"the label is {label!r}, expected a number or a class."
            elif (too_many := bounds.why_not_classes(classes, [label])) is not None:
                reasons[i] = too_many
            else:
                classes.add(label)
        return reasons

    def expire(self, changes: Transaction, n: int, until: float | None, rules: Rules) -> int:
        """Learn or drop up to n of the rows that have waited longest; return how many there were."""
        rows = changes.oldest(n, until)
        gone: Iterable[int] = range(len(rows))
        if rules.default is not None:
            settled = settle_each(self.learner, rows, [rules.default] * len(rows), rules.bounds)
            gone = self._write(changes, "expire", settled, rules.now)
        gone = list(gone)
        changes.remove(rows[i].key for i in gone)
        changes.count(expired=len(rows), dropped=len(gone), crowded=len(rows) if until is None else 0)
        return len(rows)

    def join_early(self, changes: Transaction, n: int, rules: Rules) -> None:
        """Learn up to n rows whose labels came before them; a label that waited too long for its row is forgotten."""
        due = changes.due(n)
        rows = changes.find(due)
        timely = [key for key, label in due.items() if rows[key].time - label.time <= rules.correct_within]
        labels = [due[key].label for key in timely]
        settled = settle_each(self.learner, [rows[key] for key in timely], labels, rules.bounds)
        self._write(changes, "label", settled, rules.now)
        changes.remove_early(due)

    def _write(
        self,
        changes: Transaction,
        kind: LessonKind,
        settled: Settled,
        now: float,
        origin: Mapping[str, Any] | None = None,
    ) -> dict[int, str]:
        """Write down rows to be learned; return the reasons of those that are not. A row with a bad label waits on."""
        rows, labels = settled.rows, settled.labels
        for places, table in settled.parts:
            first = [rows[i].first for i in places]
            asked = {} if origin is None else {**origin, "places": [origin["places"][i] for i in places]}
            were = [rows[i].label for i in places]
            changes.add_entry(
                kind,
                table,
                first if any(said is not None for said in first) else None,
                {**asked, "keys": [rows[i].key for i in places], **({"were": were} if kind == "correct" else {})},
            )
            changes.set_labels({rows[i].key: labels[i] for i in places}, now)
        changes.remove(rows[i].key for i in settled.strange)
        reasons = settled.bad | settled.strange
        tables = (
            pa.Table.from_batches([rows[i].batch]).append_column(self.learner.target, label_column([labels[i]]))
            for i in reasons
        )
        put_aside(
            self.quarantine,
            changes,
            ((i, why, rows[i].key, table) for (i, why), table in zip(reasons.items(), tables, strict=True)),
        )
        return reasons


def put_aside(quarantine: Quarantine, changes: Transaction, rows: Iterable[tuple[int, str, Any, Any]]) -> None:
    """Put rows into the quarantine: the place, the reason, the position and a table of the row itself of each."""
    for row, reason, position, table in rows:
        quarantine.add(reason, text=json.dumps(table.to_pylist()[0], default=str), position=position, row=row)
        changes.count(quarantined=1)


def _meanings(
    rows: Mapping[str, KeyedRow], keys: Sequence[str], labels: Sequence[Any], rules: Rules
) -> dict[str, list[int]]:
    """The places of labels by what they mean."""
    places: dict[str, list[int]] = {"learned": [], "corrected": [], "unchanged": [], "early": []}
    for place, (key, label) in enumerate(zip(keys, labels, strict=True)):
        row = rows.get(key)
        if row is not None and row.label is None:
            places["learned"].append(place)
        elif row is None or rules.now - row.time > rules.correct_within:
            places["early"].append(place)
        else:
            places["unchanged" if is_same(row.label, label) else "corrected"].append(place)
    return places
