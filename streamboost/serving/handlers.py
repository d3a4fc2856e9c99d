"""Requests that predict, with the newest copy, and that learn and label, by the writer: read, done and answered."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from streamboost.dashboard import Feed
from streamboost.errors import SnapshotError
from streamboost.estimators.freezing import freeze
from streamboost.evaluation.metric_base import Probabilities
from streamboost.live import FrozenModel, IdTaken, Labelled, Learned, LiveModel, NotTogether
from streamboost.persistence import snapshots
from streamboost.runs.guard import brief
from streamboost.serving import arrow_bodies, json_bodies, responses
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.auth import owned_id
from streamboost.serving.errors import RETRY, Limits, Refused
from streamboost.serving.json_bodies import JSON_TYPE, LARGEST_INT, InFlightBytes, read_body, take_id, take_parameter
from streamboost.serving.monitoring import Monitoring, ScoreKeeper, without_paths
from streamboost.serving.replica import AGE, ReplicaModel
from streamboost.serving.responses import Predicted, json_response
from streamboost.serving.writer import Writer
from streamboost.sources.arrow_messages import decoded_bytes

T = TypeVar("T")

SMALL_BYTES = 65_536  # a body that is read and answered at once, without a thread
SMALL_ROWS = 16
SMALL_CELLS = 4096  # of an answer that is written at once
THREADS = 2
logger = logging.getLogger(__name__)


class ParsedRequest(NamedTuple):
    """What a request brought, read and checked."""

    rows: Any  # dicts or a table; of labels, the targets
    id: str | None
    keys: Sequence[str] = ()


class Handlers:
    """What requests do to a live model, and what they share."""

    def __init__(self, live: LiveModel | FrozenModel, feed: Feed, limits: Limits, keeper: ScoreKeeper) -> None:
        self.live, self.limits = live, limits
        self.in_flight = InFlightBytes(limits.held_bytes)
        self.writer = Writer(live, self._learn_together, waiting=limits.waiting)
        self.monitoring = Monitoring(live, self.writer, keeper, self.in_flight, feed)
        self.began = secrets.token_hex(8)  # of copies: their numbers begin anew with every start
        self._packed: tuple[Any, bytes] = None, b""
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="streamboost-predict")

    async def predict(self, request: Request) -> Response:
        """Predict rows; those with keys are kept until their labels come."""
        is_arrow = _is_arrow(request)
        async with read_body(request, self.limits, self.in_flight) as body:
            rows, id, keys = await self._call(len(body) <= SMALL_BYTES, self._rows_to_predict, request, is_arrow, body)
            with self.in_flight.holding(_held_bytes(rows)):
                return await self._predict(request, rows, id, keys)

    async def _predict(self, request: Request, rows: Any, id: str | None, keys: Sequence[str]) -> Response:
        if keys:
            self._check_learns()
            if self.live.default is not None and "learn" not in request.auth.scopes:
                told = f"rows with keys are learned as {self.live.default!r} here unless a label comes"
                raise Refused(403, f"{told}, and the token may not learn. Send them without keys, or a token that may.")
            id = owned_id(request, id)
        copy, n, is_arrow = self.writer.published, len(rows), not isinstance(rows, list)
        n_classes = copy.n_classes
        if n * n_classes > self.limits.answer_cells:
            asked = f"{n:,} rows with {n_classes:,} classes each are {n * n_classes:,} probabilities"
            told = f"expected at most {self.limits.answer_cells:,}. Send fewer rows at a time."
            raise Refused(413, f"{asked}, {told}")
        if copy.is_ready:
            found = await self._call(n <= SMALL_ROWS, responses.predict, copy, rows)
        elif keys:
            found = Predicted([None] * n)
        else:
            told = "the model has not learned any row yet, so it cannot predict. Send rows to /learn first."
            raise Refused(409, told)
        if keys:
            await self._call(False, self._remember, keys, rows, found, id)
        self.monitoring.predicted.inc(n)
        names = rows.column_names if is_arrow else {name for row in rows for name in row}
        unknown = [name for name in names if name not in copy.columns] if copy.is_ready else []
        is_small = n * max(n_classes, 1) <= SMALL_CELLS  # else others would wait while it is written
        if ARROW_TYPE in request.headers.get("accept", "").lower():
            body = await self._call(is_small, responses.predictions_arrow, found, copy, unknown)
            return Response(body, media_type=ARROW_TYPE, headers=self._age())
        return await self._call(
            is_small, lambda: json_response(responses.predictions_json(found, copy, unknown), headers=self._age())
        )

    def _age(self) -> dict[str, str]:
        """Return the header that tells how old the model of a replica is; none if it learns here."""
        return {AGE: f"{self.live.age:.3f}"} if isinstance(self.live, ReplicaModel) else {}

    async def frozen(self, request: Request) -> Response:
        """Give the copy that predicts away, for replicas: frozen, without a single row."""
        copy = self.writer.published
        if not copy.is_ready:
            raise Refused(409, "the model has not learned any row yet. Ask again later.")
        made = self.live.age if isinstance(self.live, ReplicaModel) else self.writer.clock() - copy.time
        headers = {"ETag": f'"{self.began}-{copy.number}"', AGE: f"{made:.3f}"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        if self._packed[0] is not copy:
            self._packed = copy, await self._call(False, lambda: snapshots.pack(freeze(copy.model)))
        return Response(self._packed[1], media_type="application/octet-stream", headers=headers)

    def _rows_to_predict(self, request: Request, is_arrow: bool, body: bytes) -> ParsedRequest:
        limits, columns, kinds = self.limits, self.writer.published.columns, self.writer.published.kinds
        key = take_parameter(request, "key", limits.name_length)
        if is_arrow:
            rows = arrow_bodies.parse_table(body, limits, kinds)
        else:
            parsed = json_bodies.decode(body, "Rows", limits)
            rows = json_bodies.take_rows(parsed, limits, kinds)
            if not all([row.keys() <= columns for row in rows]):
                json_bodies.check_names(list({name for row in rows for name in row}), limits)
        if len(rows) * len(columns) > limits.cells:  # with all the columns that the model has
            raise Refused(413, f"{len(rows):,} rows are too many for this model. Send fewer at a time.")
        if is_arrow:
            id = take_id(request, UNSET, limits)
            rows, keys = (rows, ()) if key is None else arrow_bodies.take_key_column(rows, key, limits)
            return ParsedRequest(rows, id, keys)
        keys = () if parsed.keys is UNSET else json_bodies.check_keys(parsed.keys, len(rows), limits)
        return ParsedRequest(rows, take_id(request, parsed.id, limits), keys)

    def _remember(self, keys: Sequence[str], rows: Any, found: Predicted, id: str | None) -> None:
        table = json_bodies.table_of(rows, self.limits) if isinstance(rows, list) else rows
        values, each = found.predictions, found.probabilities
        predictions = values if each is None else Probabilities(found.classes, np.array(each))
        self._write(self.live.remember, keys, table, predictions, id=id)

    async def _call(self, at_once: bool, work: Callable[..., T], *arguments: Any) -> T:
        """Do something here and now, or in a thread so that others need not wait."""
        if at_once:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def checkpoint(self, request: Request) -> Response:
        """Write a checkpoint now."""
        self._check_learns()

        def save() -> responses.Saved:
            self._write(self.live.checkpoint)
            return {"rows": self.live.rows}

        return json_response(await asyncio.wrap_future(self.writer.submit(save)))

    async def learn(self, request: Request, parse: Callable[[Request, bool, bytes], ParsedRequest]) -> Response:
        """Have the writer learn what is parsed: rows, or labels of rows that were predicted with a key."""
        self._check_learns()
        is_arrow = _is_arrow(request)
        async with read_body(request, self.limits, self.in_flight) as body:
            parsed = await self._call(len(body) <= SMALL_BYTES, parse, request, is_arrow, body)
            parsed = parsed._replace(id=owned_id(request, parsed.id))
            with self.in_flight.holding(_held_bytes(parsed.rows)):
                if parsed.keys:
                    done = self.writer.submit(partial(self._take_labels, parsed))
                else:
                    done = self.writer.submit(None, parsed, len(parsed.rows))
                return json_response(await asyncio.wrap_future(done))

    def _check_learns(self) -> None:
        """Refuse what a frozen model cannot do."""
        if isinstance(self.live, FrozenModel):
            way_out = "Send rows without keys to /predict; to learn, serve the model it was made of."
            raise Refused(409, f"the model is frozen: it predicts, and learns no more. {way_out}")

    def rows_to_learn(self, request: Request, is_arrow: bool, body: bytes) -> ParsedRequest:
        """Read a table with the target among its columns."""
        target, limits, id, kinds = self.live.target, self.limits, UNSET, self.writer.published.kinds
        if is_arrow:
            table = arrow_bodies.parse_table(body, limits, kinds)
            if target not in table.column_names:
                raise Refused(422, f"the table has no column {target!r}, the target. Add it.")
            labels = arrow_bodies.largest_numbers(table[target])
        else:
            parsed = json_bodies.decode(body, "LabelledRows", limits)
            rows, id = json_bodies.take_rows(parsed, limits, kinds), parsed.id
            table = json_bodies.learning_table(parsed, rows, target, limits)
            labels = [] if self.live.task == "regression" else parsed.targets or [row.get(target) for row in rows]
        self._check_classes(labels)
        return ParsedRequest(table, take_id(request, id, limits))

    def labels_to_take(self, request: Request, is_arrow: bool, body: bytes) -> ParsedRequest:
        """Read keys and targets."""
        target, limits, id = self.live.target, self.limits, UNSET
        key = take_parameter(request, "key", limits.name_length) or "key"
        if is_arrow:
            table = arrow_bodies.parse_table(body, limits)
            keys, targets = arrow_bodies.take_labels(table, key, target, limits)
            labels = arrow_bodies.largest_numbers(targets)
        else:
            parsed = json_bodies.decode(body, "Labels", limits)
            id, labels = parsed.id, [label.target for label in parsed.labels]
            json_bodies.check_count(len(labels), limits)
            keys = json_bodies.check_keys([label.key for label in parsed.labels], len(labels), limits)
            targets = json_bodies.column_of(labels, target)
        self._check_classes(labels)
        return ParsedRequest(targets, take_id(request, id, limits), keys)

    def _check_classes(self, values: Sequence[Any]) -> None:
        """Refuse whole numbers as classes that no model could tell apart."""
        if self.live.task == "regression":
            return
        for i, value in enumerate(values):
            if type(value) is int and not -LARGEST_INT <= value < LARGEST_INT:
                told = "expected a class within the whole numbers of 64 bits with a sign. Send it as text."
                raise Refused(422, f"the target {brief(self.live.target)} is {value} in row {i}, {told}")

    def _learn_together(self, requests: Sequence[ParsedRequest]) -> Sequence[responses.Learned | Exception]:
        """Learn what requests brought, as one or in parts as large as possible; an answer or an error for each."""
        tables, ids = [request.rows for request in requests], [request.id for request in requests]
        try:
            if len(requests) == 1:
                learned = [self._write(self.live.learn, tables[0], id=ids[0])]
            elif all(table.schema.equals(tables[0].schema) for table in tables):
                learned = self._write(self.live.learn_together, tables, ids)
            else:
                raise NotTogether("their columns differ")
        except NotTogether:
            half = len(requests) // 2
            return [*self._learn_together(requests[:half]), *self._learn_together(requests[half:])]
        except Exception as error:  # a value, not raised: the other half may have been learned
            return [error] * len(requests)
        answers = [(one.rows, self._count(one.rows, one), one.repeated) for one in learned]
        return [{"learned": n, "quarantined": rows, "repeated": repeated} for n, rows, repeated in answers]

    def _take_labels(self, request: ParsedRequest) -> responses.Labelled:
        labelled = self._write(self.live.label, request.keys, request.rows, id=request.id)
        learned, corrected, unchanged, early, _, repeated, *_ = labelled
        quarantined = self._count(learned + corrected, labelled)
        return {"learned": learned, "corrected": corrected, "unchanged": unchanged, "early": early,
                "quarantined": quarantined, "repeated": repeated}  # fmt: skip

    def _count(self, n: int, result: Learned | Labelled) -> list[responses.Quarantined]:
        """Count rows that were learned or refused; return those refused, as the answer has them."""
        if not result.repeated:
            self.monitoring.learned.inc(n)
            self.monitoring.quarantined.inc(result.quarantined)
        return [{"row": row, "reason": reason} for row, reason in sorted(result.reasons.items())]

    def _write(self, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Turn what a live model refuses, and what the disk does, into refusals; /healthz hears of the disk."""
        try:
            done = work(*arguments, **options)
        except (OSError, sqlite3.Error, SnapshotError) as error:
            logger.exception("a request could not be written down")
            self.writer.failures["disk"] = str(error)
            told = without_paths(str(error), self.live.directory)
            raise Refused(503, f"it could not be written down: {told}", RETRY) from None
        except IdTaken as error:
            raise Refused(409, str(error)) from None
        except (TypeError, ValueError) as error:
            raise Refused(422, str(error)) from None
        self.writer.failures.pop("disk", None)
        return done


def _held_bytes(rows: Any) -> int:
    """Return how many bytes a body has become, beside its own, where that may be far more."""
    return decoded_bytes(rows) if isinstance(rows, pa.Table) else 0


def _is_arrow(request: Request) -> bool:
    """Return whether the body is in Arrow's format, not in JSON; others are refused."""
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in (JSON_TYPE, ARROW_TYPE):
        raise Refused(415, f"the body is of type {content_type[:100]!r}, expected {JSON_TYPE} or {ARROW_TYPE}.")
    return media_type == ARROW_TYPE
