"""The page and its stream of messages, as Starlette routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from streamboost.dashboard.assets import FILES, MEDIA_TYPES, content
from streamboost.dashboard.feed import Feed
from streamboost.errors import require

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

HEARTBEAT = 15.0  # seconds of silence after which a comment shows that the line is open
RETRY_MS = 2000  # after which a page that lost the line tries again
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def routes(feed: Feed) -> list[Route]:
    """Return routes: ``/`` (the page), ``/dashboard/{file}`` (what it needs), ``/events`` (its messages).

    ``/events`` are server-sent events: a ``history`` first, then each ``observation`` as it comes. They end when
    :meth:`Feed.disconnect` is called, which a server has to do before it waits for its connections to close.

    Examples
    --------
    >>> from starlette.applications import Starlette
    >>> app = Starlette(routes=routes(Feed("prices")))
    >>> [route.path for route in app.routes]
    ['/', '/dashboard/{file}', '/events']
    """
    require("starlette", extra="serve", by="the dashboard")
    from starlette.exceptions import HTTPException
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    async def file(request: Request) -> Response:
        name = request.path_params.get("file", "page.html")
        if name not in FILES:
            raise HTTPException(404, "There is no such file.")
        media_type = MEDIA_TYPES.get(name.rsplit(".", 1)[1], "text/plain")
        return Response(content(name), media_type=media_type, headers={"Cache-Control": "no-cache", **SECURITY})

    async def events(request: Request) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **SECURITY}
        messages = () if request.method == "HEAD" else _stream(feed)  # whoever asks for headers alone, gets an end
        return StreamingResponse(messages, media_type="text/event-stream", headers=headers)

    return [Route("/", file), Route("/dashboard/{file}", file), Route("/events", events)]


async def _stream(feed: Feed) -> AsyncIterator[str]:
    """Yield messages as they come, until the feed or the client ends it."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    listener = feed.subscribe(lambda: loop.call_soon_threadsafe(ready.set))
    try:
        yield f"retry: {RETRY_MS}\n\n"
        while True:
            ready.clear()  # both first, so that what comes while messages are taken is not missed
            is_over = listener.closed
            for message in listener.take():
                yield f"id: {message.id}\nevent: {message.event}\ndata: {message.data}\n\n"
            if is_over:
                break
            try:
                await asyncio.wait_for(ready.wait(), HEARTBEAT)
            except TimeoutError:
                yield ": still here\n\n"
    finally:
        listener.close()
