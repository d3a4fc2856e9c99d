"""What both engines share: the rows of some keys learned by their models, which are bytes in the engine's state.

::

    rows of a group of keys ──▶ KeyLearner.learn ──▶ predictions made before learning, and why rows were refused
                                   │        ▲
                        state: a mark, and the model of each key ── kept, restored and moved by the engine
                                   │        ▲
                        HotModels: the models last used, as objects, in this process alone

A model learns the same however its rows are cut into chunks, so after a failure an engine may cut them anew. What is
in this process is of use only if it is what the engine has committed: each visit writes eight random bytes beside the
models, the mark, and hot models count only under the mark that is in the state. So those of an attempt that failed, or
of another worker, are never taken for the committed ones.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.base import is_classifier

from streamboost._types import BoolArray, Task
from streamboost.estimators.base import StreamEstimator
from streamboost.evaluation.predictions import Predictions, concatenate, no_predictions, predict_then_learn
from streamboost.persistence import snapshots
from streamboost.runs.guard import Guard

MARK = 8  # bytes


class KeyModel(NamedTuple):
    """The model of a key, and what its targets have been like."""

    model: StreamEstimator
    guard: Guard


def dump_model(held: KeyModel) -> bytes:
    """Return the model of a key as bytes, some 44 kB for a small one."""
    return zlib.compress(snapshots.pack([held.model, held.guard]), 1)


def load_model(data: bytes) -> StreamEstimator:
    """Return the model that is in the bytes of a state; no pickle.

    Examples
    --------
    >>> from streamboost import SGBRegressor
    >>> model = SGBRegressor(n_estimators=4, memory=64, random_state=0).fit([[1.0], [2.0]], [3.0, 4.0])
    >>> load_model(dump_model(KeyModel(model, Guard()))).n_samples_seen_
    2
    """
    return _read(data).model


def _read(data: bytes) -> KeyModel:
    return KeyModel(*snapshots.unpack(zlib.decompress(data)))


class State(Protocol):
    """The state of a group of keys, as an engine keeps it: a mark, and bytes for each key."""

    def get_mark(self) -> bytes | None:
        """Return the mark of the last visit; None before the first."""

    def put_mark(self, mark: bytes) -> None:
        """Write a mark."""

    def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key; None if it is new."""

    def put(self, key: Any, model: bytes) -> None:
        """Write the bytes of a key."""


class HotModels:
    """The models that this process used last, by their place: as many as ``limit``, of whole groups those used last.

    Examples
    --------
    >>> hot = HotModels(limit=2)
    >>> hot.put("query 1, group 1", b"mark", {"a": 1, "b": 2})
    >>> hot.put("query 1, group 2", b"mark", {"c": 3})
    >>> hot.take("query 1, group 1", b"mark"), hot.take("query 1, group 2", b"other")
    ({'b': 2}, {})
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.n = limit, 0
        self._groups: OrderedDict[Hashable, tuple[bytes, dict[Any, Any]]] = OrderedDict()

    def take(self, place: Hashable, mark: bytes | None) -> dict[Any, Any]:
        """Return the models of a group, and hold them no longer; none if they are not those under this mark."""
        found, models = self._groups.pop(place, (None, {}))
        self.n -= len(models)
        return models if found == mark else {}

    def put(self, place: Hashable, mark: bytes, models: dict[Any, Any]) -> None:
        """Hold the models of a group, the one used last at the end."""
        self._groups[place] = mark, models
        self.n += len(models)
        while self.n > self.limit:
            oldest, (_, others) = next(iter(self._groups.items()))
            del others[next(iter(others))]
            self.n -= 1
            if not others:
                del self._groups[oldest]


def template_of(model: Any) -> bytes:
    """Return the bytes of what every key begins with: a copy of a model, new or one that has learned."""
    if not isinstance(model, StreamEstimator):
        raise TypeError(f"model is a {type(model).__name__}, expected an SGBRegressor or SGBClassifier.")
    if model.is_frozen:
        raise ValueError("model is frozen, expected one that learns. Pass the one it was made of.")
    template = copy.deepcopy(model)
    if template.random_state is None:
        template.set_params(random_state=0)  # so that a key's model is the same wherever it is made
    return dump_model(KeyModel(template, Guard()))


class KeyLearner:
    """Learns rows of some keys, each with its own model.

    Parameters
    ----------
    template : bytes
        What every key begins with, by :func:`template_of`.
    key, target : str
        Names of columns.
    order : str, optional
        The column by which rows are ordered that come together; left out, they are in order as they come.
    features : sequence of str, optional
        The columns to learn from; left out, all others.
    """

    def __init__(
        self, template: bytes, key: str, target: str, order: str | None = None, features: Sequence[str] | None = None
    ) -> None:
        self.template, self.key, self.target, self.order, self.features = template, key, target, order, features
        self.task: Task = "classification" if is_classifier(load_model(template)) else "regression"

    def learn(self, place: Hashable, state: State, rows: pa.Table, hot: HotModels) -> pa.Table:
        """Predict and learn rows of the keys of one group.

        Returns
        -------
        pyarrow.Table
            Of each row its key, its ``order``, the ``prediction`` made before it was learned (None where the model had
            none), and in ``refused`` why it was not learned. Of a classifier the prediction is the class as text, and
            ``probability`` that of this class.
        """
        if self.order is not None:
            rows = rows.take(pc.sort_indices(rows, sort_keys=[(self.order, "ascending")]))  # which is stable
        mark = state.get_mark()
        models = hot.take(place, mark)
        parts = []
        for key, of_key in _by_key(rows, self.key):
            if key is None:
                reasons: list[str | None] = [f"the key {self.key!r} is missing."] * of_key.num_rows
                parts.append(self._told(of_key, no_predictions(of_key.num_rows), reasons))
                continue
            held = models.pop(key, None) or _read(state.get(key) or self.template)
            parts.append(self._told(of_key, *self._learn_key(held, of_key)))
            state.put(key, dump_model(held))
            models[key] = held
            mark = b""
        if mark == b"":
            state.put_mark(mark := os.urandom(MARK))
        if mark is not None:
            hot.put(place, mark, models)
        return pa.concat_tables(parts)

    def learn_dicts(
        self, place: Hashable, state: State, rows: Sequence[Mapping[str, Any]], hot: HotModels
    ) -> list[dict[str, Any]]:
        """Predict and learn rows that are dicts, as :meth:`learn` does; what is told of each row is one, too."""
        names = dict.fromkeys(name for row in (*rows, {self.key: None, self.target: None}) for name in row)
        if (order := self.order) is not None:
            names[order] = None
            with contextlib.suppress(TypeError):  # some of them have no order
                rows = sorted(rows, key=lambda row: (row.get(order) is None, row.get(order)))
        try:
            table = pa.table({name: [row.get(name) for row in rows] for name in names})
        except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError) as error:
            if len(rows) > 1:  # of one of them: each goes by itself
                return [told for row in rows for told in self.learn_dicts(place, state, [row], hot)]
            told = {name: rows[0].get(name) for name in (self.key, self.order) if name is not None}
            return [told | {"prediction": None, "refused": f"the row is no row of a table: {error}."}]
        found: list[dict[str, Any]] = self.learn(place, state, table, hot).to_pylist()
        return found

    def _learn_key(self, held: KeyModel, rows: pa.Table) -> tuple[Predictions, list[str | None]]:
        """Predict and learn rows of one key; return what was predicted of each, and why it was refused."""
        names = [name for name in rows.column_names if name not in (self.key, self.order, self.target)]
        table = rows.select([*(names if self.features is None else self.features), self.target])
        valid = held.guard.validate(table, self.target, self.task, held.model)
        reasons: list[str | None] = [valid.reasons.get(row) for row in range(rows.num_rows)]
        if not len(valid.y):
            return no_predictions(rows.num_rows), reasons
        try:
            found = predict_then_learn(held.model, valid.X, valid.y)
        except Exception as error:  # the model is what it was before
            if isinstance(error, (OSError, MemoryError)):  # not about rows: the engine tries again
                raise
            if rows.num_rows == 1:
                return no_predictions(1), [str(error)]
            each = [self._learn_key(held, rows.slice(row, 1)) for row in range(rows.num_rows)]
            return concatenate([said for said, _ in each]), [reason for _, [reason] in each]
        held.guard.observe(valid.y)
        return found if valid.good.all() else _spread(found, valid.good), reasons

    def _told(self, rows: pa.Table, found: Predictions, reasons: Sequence[str | None]) -> pa.Table:
        """Return the table of what is told of some rows."""
        names = [self.key] if self.order is None else [self.key, self.order]
        told = rows.select(names)
        known, values = found.known.tolist(), found.values.tolist()
        if self.task == "regression":
            told = told.append_column("prediction", [pa.array(_known(values, known), pa.float64())])
        else:
            labels = [label if isinstance(label, str) else json.dumps(label) for label in values]
            shares = [0.0] * len(known) if found.probabilities is None else found.probabilities.values.max(1).tolist()
            told = told.append_column("prediction", [pa.array(_known(labels, known), pa.string())])
            told = told.append_column("probability", [pa.array(_known(shares, known), pa.float64())])
        return told.append_column("refused", [pa.array(reasons, pa.string())])


def _by_key(rows: pa.Table, name: str) -> Iterator[tuple[Any, pa.Table]]:
    """Yield the rows of each key, in the order they have."""
    keys = rows[name].combine_chunks().dictionary_encode()
    codes = np.asarray(keys.indices.fill_null(-1))
    rows = rows.take(pa.array(np.argsort(codes, kind="stable")))
    found, counts = np.unique(codes, return_counts=True)
    for code, start, n in zip(found.tolist(), np.cumsum(counts) - counts, counts, strict=True):
        yield None if code < 0 else keys.dictionary[code].as_py(), rows.slice(start, n)


def _spread(found: Predictions, good: BoolArray) -> Predictions:
    """Return predictions of good rows as those of all; of the others there are none."""
    parts, start = [], 0
    for is_good in good.tolist():
        parts.append(found.rows(slice(start, start + 1)) if is_good else no_predictions(1))
        start += is_good
    return concatenate(parts)


def _known(values: Sequence[Any], known: Sequence[bool]) -> list[Any]:
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]
