"""Requests that predict, learn and label: read, checked, done and answered.

Predictions are made by the newest published copy, at once if there are few, else in a thread. Requests that learn wait
for the writer, and are answered when their rows are durable.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from streamboost.dashboard import Feed
from streamboost.errors import SnapshotError
from streamboost.evaluation.metric_base import Probabilities
from streamboost.live import Labelled, Learned, LiveModel, NotTogether
from streamboost.runs.guard import brief
from streamboost.serving import arrow_bodies
from streamboost.serving import json_bodies as bodies
from streamboost.serving import responses as answers
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.errors import RETRY, Limits, Refused
from streamboost.serving.json_bodies import JSON_TYPE, LARGEST_INT, InFlightBytes, read_body
from streamboost.serving.monitoring import Monitoring
from streamboost.serving.responses import Answers, answer
from streamboost.serving.score_keeper import ScoreKeeper
from streamboost.serving.writer import Writer

T = TypeVar("T")

SMALL_BYTES = 65_536  # a body that is read and answered at once, without a thread
SMALL_ROWS = 16
THREADS = 2
logger = logging.getLogger(__name__)


class ParsedRequest(NamedTuple):
    """What a request brought."""

    rows: Any  # dicts or a table; of labels, keys and targets
    id: str | None
    keys: list[str] | None = None


class Handlers:
    """What requests do to a live model, and what they share."""

    def __init__(self, live: LiveModel, feed: Feed, limits: Limits, keeper: ScoreKeeper) -> None:
        self.live, self.limits = live, limits
        self.in_flight = InFlightBytes(limits.held_bytes)
        self.writer = Writer(live, self._learn_together, waiting=limits.waiting)
        self.monitoring = Monitoring(live, self.writer, keeper, self.in_flight, feed)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="streamboost-predict")

    # Predicting.

    async def predict(self, request: Request) -> Response:
        """Predict rows; those with keys are kept until their labels come."""
        is_arrow = _is_arrow(request)
        body = await read_body(request, self.limits, self.in_flight)
        try:
            rows, id, keys = await self._call(
                len(body) <= SMALL_BYTES, lambda: self._rows_to_predict(request, is_arrow, body)
            )
            published, n = self.writer.published, len(rows)
            if published.is_ready:
                found = await self._call(n <= SMALL_ROWS, lambda: answers.predict(published, rows))
            elif keys is not None:
                found = Answers([None] * n, [], None)
            else:
                raise Refused(
                    409, "the model has not learned any row yet, so it cannot predict. Send rows to /learn first."
                )
            if keys is not None:
                await self._call(False, lambda: self._remember(keys, rows, found, id))
        finally:
            self.in_flight.give_back(len(body))
        self.monitoring.predicted.inc(n)
        names = rows.column_names if is_arrow else {name for row in rows for name in row}
        unknown = [name for name in names if name not in published.columns] if published.is_ready else []
        if ARROW_TYPE in request.headers.get("accept", "").lower():
            return Response(answers.as_arrow(found, published, unknown), media_type=ARROW_TYPE)
        return answer(answers.as_json(found, published, unknown))

    def _rows_to_predict(self, request: Request, is_arrow: bool, body: bytes) -> ParsedRequest:
        limits = self.limits
        key = bodies.take_parameter(request, "key", limits.name_length)
        if is_arrow:
            table = arrow_bodies.parse_table(body, limits)
            self._check_cells(table.num_rows)
            id = bodies.take_id(request, UNSET, limits)
            if key is None:
                return ParsedRequest(table, id)
            rest, keys = arrow_bodies.take_key_column(table, key, limits)
            return ParsedRequest(rest, id, keys)
        parsed = bodies.decode(body, "Rows", limits)
        rows = bodies.take_rows(parsed, limits)
        known = self.writer.published.columns
        if not all(row.keys() <= known for row in rows):
            bodies.check_names({name for row in rows for name in row}, limits)
        self._check_cells(len(rows))
        checked = None if parsed.keys is UNSET else bodies.check_keys(parsed.keys, len(rows), limits)
        return ParsedRequest(rows, bodies.take_id(request, parsed.id, limits), checked)

    def _check_cells(self, n: int) -> None:
        """Refuse rows that would be too large a table with all the columns that the model has."""
        if n * len(self.writer.published.columns) > self.limits.cells:
            raise Refused(413, f"{n:,} rows are too many for this model. Send fewer at a time.")

    def _remember(self, keys: list[str], rows: Any, found: Answers, id: str | None) -> None:
        table = bodies.table_of(rows, self.limits) if isinstance(rows, list) else rows
        said: Any = found.predictions
        if found.probabilities is not None:
            said = Probabilities(found.classes, np.array(found.probabilities))
        self._writing(lambda: self.live.remember(keys, table, said, id=id))

    async def _call(self, at_once: bool, work: Callable[[], T]) -> T:
        """Do something here and now, or in a thread so that others need not wait."""
        return work() if at_once else await asyncio.get_running_loop().run_in_executor(self.threads, work)

    # Learning: read in whatever thread, done in the writer's.

    async def learn(self, request: Request) -> Response:
        """Learn rows."""
        return await self._write(
            request, self._rows_to_learn, lambda given: self.writer.submit_together(given, given.rows.num_rows)
        )

    async def label(self, request: Request) -> Response:
        """Take labels of rows that were predicted with a key."""
        return await self._write(
            request, self._labels_to_take, lambda given: self.writer.submit(lambda: self._take_labels(given))
        )

    async def checkpoint(self, request: Request) -> Response:
        """Write a checkpoint now."""
        done = self.writer.submit(lambda: self._writing(self._checkpoint))
        return answer(await asyncio.wrap_future(done))

    def _checkpoint(self) -> answers.Saved:
        self.live.checkpoint()
        return {"rows": self.live.rows}

    async def _write(
        self,
        request: Request,
        read: Callable[[Request, bool, bytes], ParsedRequest],
        submit: Callable[[ParsedRequest], Future[Any]],
    ) -> Response:
        is_arrow = _is_arrow(request)
        body = await read_body(request, self.limits, self.in_flight)
        try:
            given = await self._call(len(body) <= SMALL_BYTES, lambda: read(request, is_arrow, body))
            return answer(await asyncio.wrap_future(submit(given)))
        finally:
            self.in_flight.give_back(len(body))

    def _rows_to_learn(self, request: Request, is_arrow: bool, body: bytes) -> ParsedRequest:
        """A table with the target among its columns."""
        target, limits = self.live.target, self.limits
        if is_arrow:
            table = arrow_bodies.parse_table(body, limits)
            if target not in table.column_names:
                raise Refused(422, f"the table has no column {target!r}, the target. Add it.")
            self._check_classes(arrow_bodies.largest_numbers(table[target]))
            return ParsedRequest(table, bodies.take_id(request, UNSET, limits))
        parsed = bodies.decode(body, "LabelledRows", limits)
        rows = bodies.take_rows(parsed, limits)
        table = bodies.learning_table(parsed, rows, target, limits)
        self._check_classes(parsed.targets or (row.get(target) for row in rows))
        return ParsedRequest(table, bodies.take_id(request, parsed.id, limits))

    def _labels_to_take(self, request: Request, is_arrow: bool, body: bytes) -> ParsedRequest:
        """Keys and targets."""
        target, limits = self.live.target, self.limits
        key = bodies.take_parameter(request, "key", limits.name_length)
        if is_arrow:
            table = arrow_bodies.parse_table(body, limits)
            keys, targets = arrow_bodies.take_labels(table, key or "key", target, limits)
            self._check_classes(arrow_bodies.largest_numbers(targets))
            return ParsedRequest(targets, bodies.take_id(request, UNSET, limits), keys)
        parsed = bodies.decode(body, "Labels", limits)
        keys, targets = bodies.take_labels(parsed, target, limits)
        self._check_classes(label.target for label in parsed.labels)
        return ParsedRequest(targets, bodies.take_id(request, parsed.id, limits), keys)

    def _check_classes(self, values: Iterable[Any]) -> None:
        """Refuse whole numbers as classes that no model could tell apart."""
        if self.live.task != "classification":
            return
        for i, value in enumerate(values):
            if type(value) is int and not -LARGEST_INT <= value < LARGEST_INT:
                raise Refused(
                    422,
                    f"the target {brief(self.live.target)} is {value} in row {i}, expected a class within the whole "
                    "numbers of 64 bits with a sign. Send it as text.",
                )

    def _learn_together(self, given: Sequence[ParsedRequest]) -> Sequence[answers.Learned | Exception]:
        """Learn what requests brought, as one or in parts as large as possible; an answer or an error for each."""
        try:
            learned = self._writing(lambda: self._learn(given))
        except NotTogether:
            half = len(given) // 2
            return [*self._learn_together(given[:half]), *self._learn_together(given[half:])]
        except Exception as error:  # a value, not raised: the other half may have been learned
            return [error] * len(given)
        return [
            {"learned": one.rows, "quarantined": self._count(one.rows, one), "repeated": one.repeated}
            for one in learned
        ]

    def _learn(self, given: Sequence[ParsedRequest]) -> Sequence[Learned]:
        if len(given) == 1:
            return [self.live.learn(given[0].rows, id=given[0].id)]
        tables = [one.rows for one in given]
        if not all(table.schema.equals(tables[0].schema) for table in tables):
            raise NotTogether("their columns differ")
        return self.live.learn_together(tables, [one.id for one in given])

    def _take_labels(self, given: ParsedRequest) -> answers.Labelled:
        assert given.keys is not None
        keys = given.keys
        labelled = self._writing(lambda: self.live.label(keys, given.rows, id=given.id))
        return {
            "learned": labelled.learned,
            "corrected": labelled.corrected,
            "unchanged": labelled.unchanged,
            "early": labelled.early,
            "quarantined": self._count(labelled.learned + labelled.corrected, labelled),
            "repeated": labelled.repeated,
        }

    def _count(self, n: int, outcome: Learned | Labelled) -> list[answers.Quarantined]:
        """Count rows that were learned or refused; return those refused, as the answer has them."""
        if not outcome.repeated:
            self.monitoring.learned.inc(n)
            self.monitoring.quarantined.inc(outcome.quarantined)
        return [{"row": row, "reason": reason} for row, reason in sorted(outcome.reasons.items())]

    def _writing(self, work: Callable[[], T]) -> T:
        """What a live model refuses, and what the disk does, as answers; /healthz hears of the disk."""
        try:
            done = work()
        except (OSError, sqlite3.Error, SnapshotError) as error:
            logger.exception("a request could not be written down")
            self.writer.failures["disk"] = str(error)
            raise Refused(
                503,
                f"it could not be written down ({error}), so nothing was taken. Look after the disk, and send it "
                "again.",
                RETRY,
            ) from None
        except (TypeError, ValueError) as error:
            raise Refused(422, str(error)) from None
        self.writer.failures.pop("disk", None)
        return done


def _is_arrow(request: Request) -> bool:
    """Whether the body is in Arrow's format, not in JSON; others are refused."""
    said = request.headers.get("content-type", "")
    media_type = said.partition(";")[0].strip().lower()
    if media_type not in (JSON_TYPE, ARROW_TYPE):
        raise Refused(415, f"the body is of type {said[:100]!r}, expected {JSON_TYPE} or {ARROW_TYPE}.")
    return media_type == ARROW_TYPE
