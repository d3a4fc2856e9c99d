"""The application: routes, and what every request passes, around one live model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from html import escape

from starlette.applications import Starlette
from starlette.authentication import requires
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streamboost.dashboard import Feed, routes
from streamboost.dashboard.server import LOCAL_NAMES
from streamboost.live import FrozenModel, LiveModel
from streamboost.serving import docs_page
from streamboost.serving.auth import TokenBackend, Tokens, no_access
from streamboost.serving.errors import Limits, Refused
from streamboost.serving.handlers import Handlers
from streamboost.serving.middleware import RequestMiddleware
from streamboost.serving.monitoring import ScoreKeeper
from streamboost.serving.openapi import document
from streamboost.serving.responses import error_response, json_response

PATHS = (
    "/",
    "/predict",
    "/learn",
    "/label",
    "/checkpoint",
    "/model",
    "/frozen",
    "/metrics",
    "/livez",
    "/readyz",
    "/healthz",
    "/openapi.json",
    "/docs",
)


def create_app(
    live: LiveModel | FrozenModel,
    *,
    feed: Feed | None = None,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = LOCAL_NAMES,
    window: int = 1000,
) -> Starlette:
    """Make an application around a live model, which must not be used otherwise as long as it runs.

    Parameters
    ----------
    live : LiveModel, or FrozenModel to predict only
        The application lets it grow no further than the limits, and does not close it. With a
        :class:`~streamboost.serving.ScoreKeeper` as its ``on_learned`` metrics go on where they were; else they begin.
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
    limits, feed = limits or Limits(), feed or Feed()
    live.max_columns = min(limits.columns, live.max_columns or limits.columns)
    live.max_classes = min(limits.classes, live.max_classes or limits.classes)
    live.max_column_classes = min(limits.column_classes, live.max_column_classes or limits.column_classes)
    handlers = Handlers(live, feed, limits, live.on_learned)
    monitoring = handlers.monitoring
    learn, label = (partial(handlers.learn, parse=parse) for parse in (handlers.rows_to_learn, handlers.labels_to_take))
    page, file, events = routes(feed)
    described = document(limits, tokens is not None)
    told = docs_page.render(described)

    async def openapi(request: Request) -> Response:
        return json_response(described)

    async def docs(request: Request) -> Response:
        text = told.replace(docs_page.BASE, escape(str(request.base_url).rstrip("/")))
        return HTMLResponse(text, headers={"Content-Security-Policy": docs_page.POLICY})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        """Run the writer as long as the application runs; in the end, finish what was taken."""
        await run_in_threadpool(int)  # what is imported for the first call should not be when descriptors have run out
        handlers.writer.start()
        watch = asyncio.create_task(monitoring.watch())
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await asyncio.to_thread(handlers.writer.stop)
            feed.disconnect()
            handlers.threads.shutdown()

    backend = TokenBackend(tokens)
    app = Starlette(
        routes=[
            Route("/predict", requires("predict")(handlers.predict), methods=["POST"]),
            Route("/learn", requires("learn")(learn), methods=["POST"]),
            Route("/label", requires("learn")(label), methods=["POST"]),
            Route("/checkpoint", requires("admin")(handlers.checkpoint), methods=["POST"]),
            Route("/model", requires("predict")(monitoring.model)),
            Route("/frozen", requires("predict")(handlers.frozen)),
            Route("/metrics", requires("predict")(monitoring.metrics)),
            Route("/livez", monitoring.live_health),
            Route("/readyz", monitoring.health),
            Route("/healthz", monitoring.health),
            Route("/openapi.json", openapi),
            Route("/docs", docs),
            Route(page.path, requires("predict")(page.endpoint)),
            Route(events.path, requires("predict")(events.endpoint)),
            file,  # scripts and styles are no secret
        ],
        middleware=[
            Middleware(
                RequestMiddleware,
                PATHS,
                monitoring.observe,
                limits.connections,
                hosts,
                backend.knows,
                limits.event_streams,
            ),
            Middleware(AuthenticationMiddleware, backend=backend),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _failed},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 403 and not isinstance(error, Refused):  # as `requires` has it
        return no_access(request)
    sentence = error.detail
    if not isinstance(error, Refused):
        said = {404: "there is nothing at this path", 405: "this path does not know this method"}
        sentence = f"{said.get(error.status_code, sentence)}. See /docs."
    return error_response(sentence, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return error_response("the server failed, which is a fault of its own. Its log says more.", 500)
