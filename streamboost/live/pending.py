"""Rows that wait for labels, and labels that wait for rows: in time, early, late and never."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.live import request_checks
from streamboost.live.journal import KeyedRow, RipeRow, Transaction
from streamboost.live.learner import Learner
from streamboost.live.request_checks import REFUSALS, known_classes, known_columns, label_column
from streamboost.live.results import Answer, BatchKind
from streamboost.runs.guard import ValidatedRows

CHUNK = 1000  # rows that are dealt with in one transaction, where nobody asked for more


class PendingRows(Learner):
    """Writes down what becomes of rows and labels; whatever is to be learned enters the journal's entries."""

    expire_after: float | None  # seconds a row waits for its label
    default: Any  # the label of rows that waited too long; None if they are dropped

    def _take_labels(
        self, changes: Transaction, keys: Sequence[str], labels: Sequence[Any], id: str | None, now: float
    ) -> Answer:
        """Write down labels that have come: of rows that wait, of rows learned already, or of rows yet to come."""
        rows = changes.find(keys)
        changes.forget(now - self.correct_within)
        places: dict[str, list[int]] = {"learned": [], "corrected": [], "unchanged": [], "early": []}  # by meaning
        for place, (key, label) in enumerate(zip(keys, labels, strict=True)):
            row = rows.get(key)
            if row is not None and row.label is None:
                places["learned"].append(place)
            elif row is None or now - row.time > self.correct_within:
                places["early"].append(place)
            else:
                places["unchanged" if _is_same(row.label, label) else "corrected"].append(place)
        reasons: dict[int, str] = {}
        after = None
        kinds: dict[str, BatchKind] = {"learned": "label", "corrected": "correct"}
        for name, kind in kinds.items():
            which = places[name]
            joined = LabelledRows(self, [rows[keys[i]] for i in which], [labels[i] for i in which], after).sort()
            after, origin = joined.after, {"ids": [] if id is None else [id], "places": which}
            reasons |= {which[i]: why for i, why in self._write_parts(changes, kind, joined, now, origin).items()}
        early = {i: labels[i] for i in places["early"]}
        bad = self._bad_early(changes, early, known_classes(self.model, after))
        tables = {i: pa.table({self.target: label_column([labels[i]])}) for i in bad}
        self._quarantine_rows(changes, ((i, why, keys[i], tables[i]) for i, why in bad.items()))
        changes.add_early({keys[i]: label for i, label in early.items() if i not in bad}, now)
        reasons |= bad
        counts = {name: sum(i not in reasons for i in which) for name, which in places.items()}
        changes.count(corrected=counts["corrected"])
        return {**counts, "quarantined": len(reasons), "reasons": reasons}

    def _bad_early(self, changes: Transaction, labels: Mapping[int, Any], classes: set[Any]) -> dict[int, str]:
        """Return why labels need not wait for their rows; those that wait count as classes, even if no row comes."""
        reasons, bounds = {}, self.bounds
        if bounds.classes is not None and not classes.issuperset(labels.values()):
            classes = classes.union(changes.early_labels())
        for i, label in labels.items():
            if label is None or (isinstance(label, float) and not math.isfinite(label)):
                reasons[i] = f"the label is {label!r}, expected a number or a class."
            elif (too_many := bounds.why_not_classes(classes, [label])) is not None:
                reasons[i] = too_many
            else:
                classes.add(label)
        return reasons

    def _settle(self, now: float, limit: float = math.inf) -> int:
        """Learn or drop what became ripe up to now, in that order; return how many rows waited too long.

        There is a limit to those for which no label came.
        """
        n_expired = 0
        if self.expire_after is not None and self._journal.counts["waiting"]:
            with self._journal.transaction() as changes:
                changes.ripen(now, self.expire_after)
        while self._journal.counts["ripe"] and limit > 0:
            with self._journal.transaction() as changes:
                rows = changes.ripe(int(min(CHUNK, limit)))
                if rows and rows[0].why == "label":
                    self._write_ripe(changes, "label", rows, [row.row.label for row in rows])
                else:
                    limit -= len(rows)
                    n_expired += sum(row.why == "expired" for row in rows)
                    self._give_up(changes, rows)
            self._learn_written()
        return n_expired

    def _give_up(self, changes: Transaction, rows: Sequence[RipeRow]) -> None:
        """Write down rows for which no label came, to be learned with the default, or drop them."""
        n_crowded = sum(row.why == "crowded" for row in rows)
        gone = {row.row.key for row in rows}
        if self.default is None:
            changes.remove(changes.take_ripe(rows))
        else:
            gone = self._write_ripe(changes, "expire", rows, [self.default] * len(rows))
        changes.count(expired=len(rows), dropped=len(gone), crowded=n_crowded)

    def _write_ripe(
        self, changes: Transaction, kind: BatchKind, ripe: Sequence[RipeRow], labels: Sequence[Any]
    ) -> set[str]:
        """Write down ripe rows to be learned; return the keys of those that are not.

        One with a bad label waits again, unless it was the default. Of a key with a newer row nothing is kept.
        """
        kept = changes.take_ripe(ripe)
        rows = [row.row for row in ripe]
        joined = _sort_each(self, rows, labels)
        times = {row.row.key: row.since for row in ripe}
        bad = {rows[i].key for i in self._write_parts(changes, kind, joined, times, among=kept)}
        if kind == "expire":
            changes.remove(bad & kept)
        return bad

    def _write_parts(
        self,
        changes: Transaction,
        kind: BatchKind,
        joined: LabelledRows,
        times: float | Mapping[str, float],
        origin: Answer | None = None,
        among: Container[str] | None = None,
    ) -> dict[int, str]:
        """Write down rows to be learned, at these times; return the reasons of those that are not.

        A row with a bad label waits on. Labels are noted for keys that are ``among`` those given, by default all.
        """
        rows, labels = joined.rows, joined.labels
        kept = {row.key for row in rows if among is None or row.key in among}
        for part in joined.parts:
            first = [rows[i].first for i in part.places]
            asked = {} if origin is None else {**origin, "places": [origin["places"][i] for i in part.places]}
            asked["keys"] = [rows[i].key if rows[i].key in kept else None for i in part.places]
            if kind == "correct":
                asked["were"] = [rows[i].label for i in part.places]
            entry = changes.add_entry(kind, part.table, first if any(one is not None for one in first) else None, asked)
            self._written.append((entry, part.y, part.prepared))
            changes.set_labels({rows[i].key: labels[i] for i in part.places if rows[i].key in kept}, times)
        changes.remove(rows[i].key for i in joined.bad_rows if rows[i].key in kept)
        reasons = joined.bad_labels | joined.bad_rows
        tables = {
            i: pa.Table.from_batches([rows[i].batch]).append_column(self.target, label_column([labels[i]]))
            for i in reasons
        }
        self._quarantine_rows(changes, ((i, why, rows[i].key, tables[i]) for i, why in reasons.items()))
        return reasons


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two labels are the same; True is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


class Part(NamedTuple):
    """Rows to be learned together."""

    places: list[int]
    table: Any  # the target last
    y: NDArray[Any]
    prepared: Any


class LabelledRows:
    """Rows that have met their labels, sorted into parts to be learned, bad labels and bad rows.

    Each part is prepared as if those before it had been learned, ``after`` (None by default) first of all.
    """

    def __init__(self, learner: Learner, rows: Sequence[KeyedRow], labels: Sequence[Any], after: Any = None) -> None:
        self.learner, self.rows, self.labels, self.after = learner, rows, labels, after
        self.parts: list[Part] = []
        self.bad_labels: dict[int, str] = {}  # by place, and why; their rows wait on
        self.bad_rows: dict[int, str] = {}

    def sort(self, places: Sequence[int] | None = None) -> Self:
        """Sort rows, all by default; if the model would refuse labels, they are refused with an error."""
        places = self._fitting(range(len(self.rows)) if places is None else places)
        schemas = [self.rows[place].batch.schema for place in places]
        known = known_columns(self.learner.model, self.after)
        for group in self.learner.bounds.groups(known, schemas) if places else ():
            fitting = self._fitting([places[i] for i in group])
            for part, table in _tables([self.rows[place] for place in fitting]):
                self._sort_table([fitting[i] for i in part], table)
        return self

    def _fitting(self, places: Sequence[int]) -> list[int]:
        """Return the rows that the model has room for; note the others."""
        bounds, known = self.learner.bounds, known_columns(self.learner.model, self.after)
        reasons = {place: bounds.why_not_columns(known, self.rows[place].batch.schema.names) for place in places}
        self.bad_rows.update({place: why for place, why in reasons.items() if why is not None})
        return [place for place, why in reasons.items() if why is None]

    def _sort_table(self, places: list[int], table: Any) -> None:
        learner, model, target = self.learner, self.learner.model, self.learner.target
        table = table.append_column(target, label_column([self.labels[place] for place in places]))
        valid = learner.guard.validate(table, target, learner.task, model)
        self.bad_labels.update({places[i]: reason for i, reason in valid.reasons.items()})
        good, bounds, labels = np.array(places)[valid.good].tolist(), learner.bounds, valid.y.tolist()
        columns, classes = known_columns(model, self.after), known_classes(model, self.after)
        if good and bounds.why_not(columns, valid.X.column_names, classes, labels) is None:
            with suppress(*REFUSALS):  # else it is looked which rows are meant
                return self._add_part(valid, list(range(len(good))), good)
        bad = request_checks.unlearnable_rows(model, valid.X, self.after)
        self.bad_rows.update({good[i]: reason for i, reason in bad.items()})
        fine = []
        for i in [i for i in range(len(good)) if i not in bad]:
            names = self.rows[good[i]].batch.schema.names
            too_wide, too_many = bounds.why_not_columns(columns, names), bounds.why_not_classes(classes, [labels[i]])
            if too_wide is not None:
                self.bad_rows[good[i]] = too_wide
            elif too_many is not None or (too_many := bounds.why_not(columns, names, classes, [labels[i]])):
                self.bad_labels[good[i]] = too_many
            else:
                columns.update(names)
                classes.add(labels[i])
                fine.append(i)
        if fine:
            self._add_part(valid, fine, good)

    def _add_part(self, valid: ValidatedRows, fine: list[int], places: list[int]) -> None:
        """Prepare some rows of a table, or raise what the model says to their labels."""
        X, y = valid.X, valid.y
        if len(fine) < len(valid.good):  # leave out columns that none of these rows brought
            names = {name for i in fine for name in self.rows[places[i]].batch.schema.names}
            X, y = X.select([name for name in X.column_names if name in names]).take(fine), y[fine]
        table = X.append_column(self.learner.target, pa.array(y))
        X, y = request_checks.split(table)
        self.after = self.learner.model.prepare(X, y, after=self.after)
        self.parts.append(Part([places[i] for i in fine], table, y, self.after))


def _sort_each(learner: Learner, rows: Sequence[KeyedRow], labels: Sequence[Any]) -> LabelledRows:
    """Sort rows where nobody can be told of a refusal: it becomes the reason of the label in question."""
    try:
        return LabelledRows(learner, rows, labels).sort()
    except REFUSALS:
        each = LabelledRows(learner, rows, labels)
    for place in range(len(rows)):
        try:
            each.sort([place])
        except REFUSALS as error:
            each.bad_labels[place] = str(error)
    return each


def _tables(rows: Sequence[KeyedRow]) -> list[tuple[list[int], Any]]:
    """Return tables of rows, as few as their columns allow, and the places of these rows."""
    if not rows:
        return []
    every, batches = list(range(len(rows))), [row.batch for row in rows]
    if all(batch.schema is batches[0].schema or batch.schema == batches[0].schema for batch in batches):
        return [(every, pa.Table.from_batches(batches).combine_chunks())]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        return [(every, pa.concat_tables(tables, promote_options="default").combine_chunks())]
    except pa.ArrowException:  # a column of numbers here and of text there
        runs = [list(run) for _, run in groupby(every, key=lambda place: tables[place].schema)]
        return [(run, pa.concat_tables([tables[place] for place in run]).combine_chunks()) for run in runs]
