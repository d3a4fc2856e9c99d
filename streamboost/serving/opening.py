"""What a server answers while its model is still being opened: that it lives, and how far it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from streamboost.serving.errors import RETRY
from streamboost.serving.responses import error_response, json_response


class BrokenOff(Exception):
    """The server was told to stop while the model was being opened."""


class OpeningApp:
    """An application that is there at once, and becomes another once that could be made.

    ``make`` is called in a thread, with a function to be told how many entries of how many were learned again, and
    returns the other application. ``/livez`` is answered meanwhile, ``/readyz`` and all others with 503. If ``make``
    fails, ``error`` is why; ``done`` is called in the end in either case.
    """

    def __init__(self, make: Callable[[Callable[[int, int], None]], Starlette], done: Callable[[], None]) -> None:
        self.make, self.done = make, done
        self.error: BaseException | None = None
        self._app: Starlette | None = None
        self._progress: tuple[int, int] | None = None
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the other application, if that is there."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        else:
            await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        path = scope.get("path")
        if path == "/livez":
            return json_response({"status": "ok"})
        told = "the model is being loaded"
        if self._progress is not None:
            n, of = self._progress
            told = f"the journal is being learned again, {n:,} of {of:,} entries are done"
        if path in ("/readyz", "/healthz"):
            return json_response({"status": "starting", "rows": 0, "error": told}, 503, RETRY)
        return error_response(f"the server is starting: {told}. Try again later; /readyz tells when.", 503, RETRY)

    def _note(self, n: int, of: int) -> None:
        self._progress = (n, of)
        if self._is_stopping:
            raise BrokenOff

    async def _live(self, receive: Receive, send: Send) -> None:
        """Open the model once the server is there, and end what it began when the server ends."""
        await receive()
        context: list[Any] = []
        opening = asyncio.create_task(self._open(context))
        await send({"type": "lifespan.startup.complete"})
        while (await receive())["type"] != "lifespan.shutdown":
            pass
        self._is_stopping = True
        await asyncio.gather(opening, return_exceptions=True)
        for one in context:
            await one.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self, context: list[Any]) -> None:
        try:
            app = await asyncio.to_thread(self.make, self._note)
            entered: contextlib.AbstractAsyncContextManager[Any] = app.router.lifespan_context(app)
            await entered.__aenter__()
            context.append(entered)
            self._app = app
        except BaseException as error:
            self.error = error
        finally:
            self.done()
