"""The application: routes that predict, learn and tell, around one live model.

Requests that predict are answered from the newest published copy, at once if they are small, else in a thread.
Requests that learn wait for the writer, and are answered when their rows are durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.authentication import requires
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamboost.dashboard import Feed, routes
from streamboost.dashboard.serving import LOCAL_NAMES
from streamboost.errors import SnapshotError
from streamboost.live import LiveModel, NotTogether
from streamboost.metric_base import Probabilities
from streamboost.serving import arrow_bodies, bodies
from streamboost.serving.answers import Answers, Learned, answer, arrow_answer, as_arrow, as_json, no_answers, predict
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.auth import TokenBackend, Tokens, no_access
from streamboost.serving.bodies import JSON_TYPE, Held, read_body
from streamboost.serving.learning import Given, Learning
from streamboost.serving.middleware import KnownHosts, RequestMiddleware
from streamboost.serving.openapi import document
from streamboost.serving.refusals import Limits, Refused
from streamboost.serving.scoring import ScoreKeeper
from streamboost.serving.telling import Telling
from streamboost.serving.writer import Writer

T = TypeVar("T")

SMALL_BYTES = 65_536  # a body that is read and answered at once, without a thread
SMALL_ROWS = 16
THREADS = 2
logger = logging.getLogger(__name__)


def create_app(
    live: LiveModel,
    *,
    feed: Feed | None = None,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = LOCAL_NAMES,
    window: int = 1000,
) -> Starlette:
    """An application around a live model, which must not be used otherwise as long as it runs.

    Parameters
    ----------
    live : LiveModel
        The application changes it, and lets it grow no further than the limits, but does not close it. With a
        :class:`~streamboost.serving.ScoreKeeper` as its ``on_learned`` the metrics go on where they were; else they
        begin anew.
    feed : Feed, optional
        For the dashboard.
    tokens : Tokens, optional
        Who may do what; without them everyone may do everything.
    limits : Limits, optional
    hosts : sequence of str, optional
        The names it answers to, IPv6 addresses in brackets; None for all, which is only safe with tokens.
    window : int
        Over how many of the latest rows windowed metrics look.

    Examples
    --------
    >>> import tempfile
    >>> from streamboost import SGBRegressor
    >>> from streamboost.live import LiveModel
    >>> with LiveModel(tempfile.mkdtemp(), SGBRegressor(new_columns="grow"), target="price") as live:
    ...     app = create_app(live)
    >>> [route.path for route in app.routes][:4]
    ['/predict', '/learn', '/label', '/checkpoint']
    """
    if not isinstance(live.on_learned, ScoreKeeper):
        live.on_learned = ScoreKeeper(window)
    limits = limits or Limits()
    live.max_columns = min(limits.columns, live.max_columns or limits.columns)
    live.max_classes = min(limits.classes, live.max_classes or limits.classes)
    server = ModelServer(live, feed or Feed(), tokens, limits, live.on_learned)
    app = Starlette(
        routes=server.routes(),
        middleware=[
            Middleware(RequestMiddleware, routes=PATHS, note=server.telling.gauges.note, limit=limits.connections),
            *([] if hosts is None else [Middleware(KnownHosts, hosts)]),
            Middleware(AuthenticationMiddleware, backend=TokenBackend(tokens)),
        ],
        exception_handlers={Refused: _refused, HTTPException: _http_error, Exception: _failed},
        lifespan=server.lifespan,
    )
    app.router.redirect_slashes = False
    return app


PATHS = ("/", "/predict", "/learn", "/label", "/checkpoint", "/model", "/metrics", "/healthz", "/openapi.json")


class ModelServer:
    """The routes, and what they share."""

    def __init__(self, live: LiveModel, feed: Feed, tokens: Tokens | None, limits: Limits, keeper: ScoreKeeper) -> None:
        self.live, self.feed, self.limits = live, feed, limits
        self.held = Held(limits.held_bytes)
        self.writer = Writer(live, self._learn_together, waiting=limits.waiting)
        self.telling = Telling(live, self.writer, keeper, self.held, feed, document(limits, tokens is not None))
        self.learning = Learning(live, limits, self.telling.gauges)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="streamboost-predict")

    def routes(self) -> list[Route]:
        """All there is."""
        telling = self.telling
        page, file, events = routes(self.feed)
        return [
            Route("/predict", requires("predict")(self.predict), methods=["POST"]),
            Route("/learn", requires("learn")(self.learn), methods=["POST"]),
            Route("/label", requires("learn")(self.label), methods=["POST"]),
            Route("/checkpoint", requires("admin")(self.checkpoint), methods=["POST"]),
            Route("/model", requires("predict")(telling.model)),
            Route("/metrics", requires("predict")(telling.metrics)),
            Route("/healthz", telling.health),
            Route("/openapi.json", telling.openapi),
            Route(page.path, requires("predict")(page.endpoint)),
            Route(events.path, requires("predict")(events.endpoint)),
            file,  # scripts and styles are no secret
        ]

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the writer as long as the application runs; in the end, finish what was taken."""
        self.writer.start()
        watch = asyncio.create_task(self.telling.watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await asyncio.to_thread(self.writer.stop)
            self.feed.disconnect()
            self.threads.shutdown()

    # Predicting.

    async def predict(self, request: Request) -> Response:
        """Predict rows; those with keys are kept until their labels come."""
        media_type = _media_type(request)
        wants_arrow = ARROW_TYPE in request.headers.get("accept", "").lower()
        body = await read_body(request, self.limits, self.held)
        try:
            is_small = len(body) <= SMALL_BYTES
            rows, keys, id = await self._call(is_small, lambda: self._rows_to_predict(request, media_type, body))
            published = self.writer.published
            if not published.is_ready and keys is None:
                raise Refused(
                    409, "the model has not learned any row yet, so it cannot predict. Send rows to /learn first."
                )
            n = len(rows)
            if published.is_ready:
                answers = await self._call(n <= SMALL_ROWS, lambda: predict(published, rows))
            else:
                answers = no_answers(n)
            if keys is not None:
                await self._call(False, lambda: self._remember(keys, rows, answers, id))
        finally:
            self.held.give_back(len(body))
        self.telling.gauges.predicted.inc(n)
        names = rows.column_names if media_type == ARROW_TYPE else {name for row in rows for name in row}
        unknown = [] if not published.is_ready else [name for name in names if name not in published.columns]
        if wants_arrow:
            return arrow_answer(as_arrow(answers, published, unknown))
        return answer(as_json(answers, published, unknown))

    def _rows_to_predict(
        self, request: Request, media_type: str, body: bytes
    ) -> tuple[Any, list[str] | None, str | None]:
        """Dicts or a table, keys if there are any, and the request's id if it has one."""
        key = bodies.take_parameter(request, "key", self.limits.name_length)
        if media_type == ARROW_TYPE:
            table = arrow_bodies.parse_table(body, self.limits)
            self._check_cells(table.num_rows)
            id = bodies.take_id(request, UNSET, self.limits)
            return (table, None, id) if key is None else (*arrow_bodies.take_key_column(table, key, self.limits), id)
        parsed = bodies.decode(body, "Rows", self.limits)
        rows = bodies.take_rows(parsed, self.limits)
        known = self.writer.published.columns
        if not all(row.keys() <= known for row in rows):
            bodies.check_names({name for row in rows for name in row}, self.limits)
        self._check_cells(len(rows))
        keys = None if parsed.keys is UNSET else bodies.check_keys(parsed.keys, len(rows), self.limits)
        return rows, keys, bodies.take_id(request, parsed.id, self.limits)

    def _check_cells(self, n: int) -> None:
        """Refuse rows that would be too large a table with all the columns that the model has."""
        if n * len(self.writer.published.columns) > self.limits.cells:
            raise Refused(413, f"{n:,} rows are too many for this model. Send fewer at a time.")

    def _remember(self, keys: list[str], rows: Any, answers: Answers, id: str | None) -> None:
        table = bodies.table_of(rows, self.limits) if isinstance(rows, list) else rows
        said: Any = answers.predictions
        if answers.probabilities is not None:
            said = Probabilities(answers.classes, np.array(answers.probabilities))
        self._writing(lambda: self.live.remember(keys, table, said, id=id))

    async def _call(self, at_once: bool, work: Callable[[], T]) -> T:
        """Do something here and now, or in a thread so that others need not wait."""
        return work() if at_once else await asyncio.get_running_loop().run_in_executor(self.threads, work)

    # Learning.

    async def learn(self, request: Request) -> Response:
        """Learn rows."""
        media_type = _media_type(request)
        return await self._write(
            request,
            lambda body: self.learning.rows_to_learn(request, media_type, body),
            lambda given: self.writer.submit_together(given, given.rows.num_rows),
        )

    async def label(self, request: Request) -> Response:
        """Take labels of rows that were predicted with a key."""
        media_type = _media_type(request)
        return await self._write(
            request,
            lambda body: self.learning.labels_to_take(request, media_type, body),
            lambda given: self.writer.submit(lambda: self._writing(lambda: self.learning.label(given))),
        )

    async def _write(
        self,
        request: Request,
        read: Callable[[bytes], Given],
        submit: Callable[[Given], Future[Any]],
    ) -> Response:
        body = await read_body(request, self.limits, self.held)
        try:
            given = await self._call(len(body) <= SMALL_BYTES, lambda: read(body))
            return answer(await asyncio.wrap_future(submit(given)))
        finally:
            self.held.give_back(len(body))

    def _learn_together(self, given: Sequence[Given]) -> list[Learned | Exception]:
        """Learn what requests brought, as one or in parts as large as possible; an answer or an error for each."""
        try:
            if len(given) == 1:
                return [self._writing(lambda: self.learning.learn(given[0]))]
            return [*self._writing(lambda: self.learning.learn_together(given))]
        except NotTogether:
            half = len(given) // 2
            return self._learn_together(given[:half]) + self._learn_together(given[half:])
        except Exception as error:  # a value, not raised: the other half may have been learned
            return [error] * len(given)

    async def checkpoint(self, request: Request) -> Response:
        """Write a checkpoint now."""
        done = self.writer.submit(lambda: self._writing(self._checkpoint))
        return answer(await asyncio.wrap_future(done))

    def _checkpoint(self) -> dict[str, Any]:
        self.live.checkpoint()
        return {"rows": self.live.rows}

    def _writing(self, work: Callable[[], T]) -> T:
        """What a live model refuses, and what the disk does, as answers; /healthz hears of the disk."""
        try:
            done = work()
        except (OSError, sqlite3.Error, SnapshotError) as error:
            logger.exception("a request could not be written down")
            self.writer.troubles["disk"] = str(error)
            raise Refused(
                503,
                f"it could not be written down ({error}), so nothing was taken. Look after the disk, and send it "
                "again.",
                bodies.RETRY,
            ) from None
        except (TypeError, ValueError) as error:
            raise Refused(422, str(error)) from None
        self.writer.troubles.pop("disk", None)
        return done


def _media_type(request: Request) -> str:
    said = request.headers.get("content-type", "")
    media_type = said.partition(";")[0].strip().lower()
    if media_type not in (JSON_TYPE, ARROW_TYPE):
        raise Refused(415, f"the body is of type {said[:100]!r}, expected {JSON_TYPE} or {ARROW_TYPE}.")
    return media_type


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answer({"error": error.sentence}, error.status, error.headers)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 403:  # as `requires` has it
        return no_access(request)
    said = {404: "there is nothing at this path", 405: "this path does not know this method"}
    sentence = f"{said.get(error.status_code, error.detail)}. See /openapi.json."
    return answer({"error": sentence}, error.status_code, dict(error.headers or {}))


def _failed(request: Request, error: Exception) -> Response:
    return answer({"error": "the server failed, which is a fault of its own. Its log says more."}, 500)
