"""What is to become of rows and their labels: learned, put aside, or left to wait."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.journal import KeyedRow
from streamboost.live.intake import label_column
from streamboost.live.learner import REFUSALS, Learner, split


class Settled(NamedTuple):
    """Rows with their labels, sorted by what is to become of them."""

    rows: Sequence[KeyedRow]
    labels: Sequence[Any]
    parts: list[tuple[list[int], Any]]  # the places of rows to be learned, and a table of them, the target last
    bad: dict[int, str]  # labels that cannot be learned, by place, and why
    strange: dict[int, str]  # rows that cannot be


def settle(learner: Learner, rows: Sequence[KeyedRow], labels: Sequence[Any]) -> Settled:
    """Sort rows whose labels have come; labels that the model would refuse are refused, all of them."""
    settled = Settled(rows, labels, [], {}, {})
    for places, table in _join(rows):
        column = label_column([labels[place] for place in places])
        sifted = learner.guard.sift(
            table.append_column(learner.target, column), learner.target, learner.task, learner.model
        )
        settled.bad.update({places[i]: reason for i, reason in sifted.reasons.items()})
        good = np.array(places)[sifted.good]
        strange = _strange_rows(learner.model, sifted.X)
        settled.strange.update({int(good[i]): reason for i, reason in strange.items()})
        is_fine = np.array([i not in strange for i in range(len(good))], dtype=bool)
        if is_fine.any():
            X = sifted.X.filter(pa.array(is_fine)) if strange else sifted.X
            table = X.append_column(learner.target, pa.array(sifted.y[is_fine]))
            _check_targets(learner.model, *split(table))
            settled.parts.append((good[is_fine].tolist(), table))
    return settled


def settle_each(learner: Learner, rows: Sequence[KeyedRow], labels: Sequence[Any]) -> Settled:
    """The same where nobody can be told of a refusal: it becomes the reason of the labels in question."""
    try:
        return settle(learner, rows, labels)
    except REFUSALS as error:
        if len(rows) == 1:
            return Settled(rows, labels, [], {0: str(error)}, {})
    merged = Settled(rows, labels, [], {}, {})
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        alone = settle_each(learner, [row], [label])
        merged.parts.extend(([i], table) for _, table in alone.parts)
        merged.bad.update(dict.fromkeys([i] * len(alone.bad), alone.bad.get(0, "")))
        merged.strange.update(dict.fromkeys([i] * len(alone.strange), alone.strange.get(0, "")))
    return merged


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


# What a model takes. Its own checks are asked before anything is written down.


def check(model: Any, X: Any, y: NDArray[Any]) -> None:
    """Refuse what the model would refuse."""
    _check_columns(model, X)
    _check_targets(model, X, y)


def _check_columns(model: Any, X: Any) -> None:
    encoded = model._encode(X, "array", learning=True)
    if hasattr(model, "committee_"):
        model._check_signs(encoded, model.committee_)


def _check_targets(model: Any, X: Any, y: NDArray[Any]) -> None:
    if hasattr(model, "committee_"):
        model._check_targets(model._encode_targets(y), model.committee_.loss)
    else:
        copy.deepcopy(model).learn(X, y)  # whether its options fit the first rows, only trying tells


def _strange_rows(model: Any, X: Any) -> dict[int, str]:
    """The rows that a model cannot learn whatever their labels are, and why."""
    if not X.num_rows:
        return {}
    try:
        _check_columns(model, X)
    except REFUSALS as error:
        if X.num_rows == 1:
            return {0: str(error)}
        alone = ((i, _strange_rows(model, X.slice(i, 1))) for i in range(X.num_rows))
        return {i: found[0] for i, found in alone if found}
    return {}
