"""Rows that wait for labels, and labels that wait for rows: in time, early, late and never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamboost.live.intake import is_nothing, is_same, label_column
from streamboost.live.journal import Transaction
from streamboost.live.learner import Learner
from streamboost.live.request_checks import Foreseen, known_classes
from streamboost.live.results import Answer, BatchKind
from streamboost.live.settling import Settled, settle, settle_each

CHUNK = 1000  # rows that are settled in one transaction, where nobody asked for more


class WaitingRows(Learner):
    """Writes down what becomes of rows and labels; whatever is to be learned enters the journal's entries."""

    default: Any  # the label of rows that waited too long; None if they are dropped

    def _take_labels(self, changes: Transaction, keys: Sequence[str], labels: Sequence[Any], id: str | None) -> Answer:
        """Labels that have come: of rows that wait, of rows learned already, or of rows yet to come."""
        now, rows = self.clock(), changes.find(keys)
        places: dict[str, list[int]] = {"learned": [], "corrected": [], "unchanged": [], "early": []}  # by meaning
        for place, (key, label) in enumerate(zip(keys, labels, strict=True)):
            row = rows.get(key)
            if row is not None and row.label is None:
                places["learned"].append(place)
            elif row is None or now - row.time > self.correct_within:
                places["early"].append(place)
            else:
                places["unchanged" if is_same(row.label, label) else "corrected"].append(place)
        reasons: dict[int, str] = {}
        foreseen = Foreseen(self.model)
        kinds: dict[str, BatchKind] = {"learned": "label", "corrected": "correct"}
        for name, kind in kinds.items():
            which = places[name]
            settled = settle(self, [rows[keys[i]] for i in which], [labels[i] for i in which], foreseen)
            origin = {"ids": [] if id is None else [id], "places": which}
            reasons |= {which[i]: why for i, why in self._write(changes, kind, settled, now, origin).items()}
        early = {i: labels[i] for i in places["early"]}
        bad = self._bad_early(changes, early, known_classes(foreseen.model))
        tables = {i: pa.table({self.target: label_column([labels[i]])}) for i in bad}
        self._quarantine_rows(changes, ((i, why, keys[i], tables[i]) for i, why in bad.items()))
        changes.add_early({keys[i]: label for i, label in early.items() if i not in bad}, now)
        reasons |= bad
        figures = {name: sum(i not in reasons for i in which) for name, which in places.items()}
        changes.count(corrected=figures["corrected"])
        return {**figures, "quarantined": len(reasons), "reasons": reasons}

    def _bad_early(self, changes: Transaction, labels: Mapping[int, Any], classes: set[Any]) -> dict[int, str]:
        """Why labels need not wait for their rows. Those that wait count as classes, though no row may ever come."""
        reasons, bounds = {}, self.bounds
        if bounds.classes is not None and not classes.issuperset(labels.values()):
            classes = classes.union(changes.early_labels())
        for i, label in labels.items():
            if is_nothing(label):
                reasons[i] = f"the label is {label!r}, expected a number or a class."
            elif (too_many := bounds.why_not_classes(classes, [label])) is not None:
                reasons[i] = too_many
            else:
                classes.add(label)
        return reasons

    def _expire_some(self, n: int, now: float, until: float | None = None) -> int:
        """Learn or drop up to n of the rows that have waited longest; return how many there were."""
        with self._journal.transaction() as changes:
            rows = changes.oldest(n, until)
            gone: Iterable[int] = range(len(rows))
            if self.default is not None:
                gone = self._write(changes, "expire", settle_each(self, rows, [self.default] * len(rows)), now)
            gone = list(gone)
            changes.remove(rows[i].key for i in gone)
            changes.count(expired=len(rows), dropped=len(gone), crowded=len(rows) if until is None else 0)
        self._catch_up()
        return len(rows)

    def _settle_due(self) -> None:
        """Learn rows whose labels came before them; a label that waited too long for its row is forgotten."""
        while self._journal.counts["due"]:
            with self._journal.transaction() as changes:
                due = changes.due(CHUNK)
                rows = changes.find(due)
                timely = [key for key, (time, _) in due.items() if rows[key].time - time <= self.correct_within]
                settled = settle_each(self, [rows[key] for key in timely], [due[key][1] for key in timely])
                self._write(changes, "label", settled, self.clock())
                changes.remove_early(due)
            self._catch_up()

    def _write(
        self,
        changes: Transaction,
        kind: BatchKind,
        settled: Settled,
        now: float,
        origin: Mapping[str, Any] | None = None,
    ) -> dict[int, str]:
        """Write down rows to be learned; return the reasons of those that are not. A row with a bad label waits on."""
        rows, labels = settled.rows, settled.labels
        for places, table in settled.parts:
            first = [rows[i].first for i in places]
            asked = {} if origin is None else {**origin, "places": [origin["places"][i] for i in places]}
            asked["keys"] = [rows[i].key for i in places]
            if kind == "correct":
                asked["were"] = [rows[i].label for i in places]
            changes.add_entry(kind, table, first if any(said is not None for said in first) else None, asked)
            changes.set_labels({rows[i].key: labels[i] for i in places}, now)
        changes.remove(rows[i].key for i in settled.strange)
        reasons = settled.bad | settled.strange
        tables = {
            i: pa.Table.from_batches([rows[i].batch]).append_column(self.target, label_column([labels[i]]))
            for i in reasons
        }
        self._quarantine_rows(changes, ((i, why, rows[i].key, tables[i]) for i, why in reasons.items()))
        return reasons
