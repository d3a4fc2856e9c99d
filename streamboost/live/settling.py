"""What is to become of rows and their labels: learned, put aside, or left to wait."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.live.intake import label_column
from streamboost.live.journal import KeyedRow
from streamboost.live.learner import Learner, split
from streamboost.live.request_checks import (
    REFUSALS,
    Bounds,
    Foreseen,
    check,
    known_classes,
    known_columns,
    strange_rows,
)
from streamboost.runs.guard import Sifted


class Settled(NamedTuple):
    """Rows with their labels, sorted by what is to become of them."""

    rows: Sequence[KeyedRow]
    labels: Sequence[Any]
    parts: list[tuple[list[int], Any]]  # the places of rows to be learned, and a table of them, the target last
    bad: dict[int, str]  # labels that cannot be learned, by place, and why
    strange: dict[int, str]  # rows that cannot be


def settle(learner: Learner, rows: Sequence[KeyedRow], labels: Sequence[Any], foreseen: Foreseen) -> Settled:
    """Sort rows whose labels have come; labels that the model would refuse are refused, all of them.

    Each part is checked against what the model will know after the parts before it.
    """
    settled, bounds = Settled(rows, labels, [], {}, {}), learner.bounds
    places = _fitting(settled, bounds, foreseen, range(len(rows)))
    schemas = [rows[place].batch.schema for place in places]
    for group in bounds.groups(known_columns(foreseen.model), schemas) if places else ():
        fitting = _fitting(settled, bounds, foreseen, [places[i] for i in group])
        for part, table in _join([rows[place] for place in fitting]):
            _settle_part(learner, settled, [fitting[i] for i in part], table, foreseen)
    return settled


def settle_each(learner: Learner, rows: Sequence[KeyedRow], labels: Sequence[Any]) -> Settled:
    """The same where nobody can be told of a refusal: it becomes the reason of the labels in question."""
    try:
        return settle(learner, rows, labels, Foreseen(learner.model))
    except REFUSALS:
        foreseen = Foreseen(learner.model)
    merged = Settled(rows, labels, [], {}, {})
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        try:
            alone = settle(learner, [row], [label], foreseen)
        except REFUSALS as error:
            merged.bad[i] = str(error)
            continue
        merged.parts.extend(([i], table) for _, table in alone.parts)
        for all_of_them, of_this in ((merged.bad, alone.bad), (merged.strange, alone.strange)):
            if of_this:
                all_of_them[i] = of_this[0]
    return merged


def _fitting(settled: Settled, bounds: Bounds, foreseen: Foreseen, places: Sequence[int]) -> list[int]:
    """The rows that the model has room for; the others are noted."""
    if bounds.columns is None:
        return list(places)
    known = known_columns(foreseen.model)
    reasons = {place: bounds.why_not_columns(known, settled.rows[place].batch.schema.names) for place in places}
    settled.strange.update({place: why for place, why in reasons.items() if why is not None})
    return [place for place, why in reasons.items() if why is None]


def _settle_part(learner: Learner, settled: Settled, places: list[int], table: Any, foreseen: Foreseen) -> None:
    """Sort rows of one table."""
    target = learner.target
    table = table.append_column(target, label_column([settled.labels[place] for place in places]))
    sifted = learner.guard.sift(table, target, learner.task, learner.model)
    settled.bad.update({places[i]: reason for i, reason in sifted.reasons.items()})
    good = np.array(places)[sifted.good].tolist()
    strange = strange_rows(foreseen.model, sifted.X)
    settled.strange.update({good[i]: reason for i, reason in strange.items()})
    fine = [i for i in range(len(good)) if i not in strange]
    fine = _within(settled, sifted, fine, good, learner.bounds, foreseen)
    if not fine:
        return
    X, y = _chosen(settled, sifted, fine, good) if len(fine) < len(places) else (sifted.X, sifted.y)
    part = X.append_column(target, pa.array(y))
    check(foreseen.model, *split(part))
    foreseen.expect(*split(part))
    settled.parts.append(([good[i] for i in fine], part))


def _within(
    settled: Settled, sifted: Sifted, fine: list[int], places: list[int], bounds: Bounds, foreseen: Foreseen
) -> list[int]:
    """Those rows of a table after which the model is no larger than it may be; the others are noted."""
    columns, classes, labels = known_columns(foreseen.model), known_classes(foreseen.model), sifted.y.tolist()
    all_at_once = bounds.why_not_columns(columns, sifted.X.column_names), bounds.why_not_classes(classes, labels)
    if all_at_once == (None, None):
        return fine
    kept = []
    for i in fine:
        names = settled.rows[places[i]].batch.schema.names
        too_wide, too_many = bounds.why_not_columns(columns, names), bounds.why_not_classes(classes, [labels[i]])
        if too_wide is not None:
            settled.strange[places[i]] = too_wide
        elif too_many is not None:
            settled.bad[places[i]] = too_many
        else:
            columns.update(names)
            classes.add(labels[i])
            kept.append(i)
    return kept


def _chosen(settled: Settled, sifted: Sifted, fine: list[int], places: list[int]) -> tuple[Any, NDArray[Any]]:
    """Some rows of a table, without the columns that none of them brought: the model has no use for these."""
    names = {name for i in fine for name in settled.rows[places[i]].batch.schema.names}
    return sifted.X.select([name for name in sifted.X.column_names if name in names]).take(fine), sifted.y[fine]


def _join(rows: Sequence[KeyedRow]) -> list[tuple[list[int], Any]]:
    """Tables of rows, as few as their columns allow, and the places of these rows."""
    if not rows:
        return []
    batches = [row.batch for row in rows]
    if all(batch.schema is batches[0].schema or batch.schema == batches[0].schema for batch in batches):
        return [(list(range(len(rows))), pa.Table.from_batches(batches).combine_chunks())]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        return [(list(range(len(rows))), pa.concat_tables(tables, promote_options="default").combine_chunks())]
    except pa.ArrowException:  # a column of numbers here and of text there
        runs = [list(run) for _, run in groupby(range(len(rows)), key=lambda place: tables[place].schema)]
        return [(run, pa.concat_tables([tables[place] for place in run]).combine_chunks()) for run in runs]
