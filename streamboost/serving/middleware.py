"""What every request passes before any route, and every answer after it: hosts, other sites, headers, times."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamboost.serving.errors import RETRY
from streamboost.serving.responses import answer

SECURITY = {
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
Note = Callable[[str, int, float], None]


class RequestMiddleware:
    """Limits how many requests are open, refuses those of other sites, adds headers, and takes times.

    Parameters
    ----------
    app : ASGI application
    routes : collection of str
        Paths that are counted by themselves.
    note : callable
        Told of every request: its path, the status and the seconds it took.
    limit : int
        Requests that may be open at a time.
    """

    def __init__(self, app: ASGIApp, *, routes: Collection[str], note: Note, limit: int) -> None:
        self.app, self.routes, self.note, self.limit = app, frozenset(routes), note, limit
        self.n_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self.app
        if self.n_open >= self.limit:
            app = answer({"error": f"{self.limit} requests are open already. Try again later."}, 503, RETRY)
        elif is_of_another_site(scope["method"], Headers(scope=scope)):
            app = answer({"error": "the request comes from a page of another site, expected one of this server."}, 403)
        self.n_open += 1
        try:
            await app(scope, receive, send_on)
        finally:
            self.n_open -= 1
            path = scope["path"]
            self.note(path if path in self.routes else "other", status, time.perf_counter() - started)


def is_of_another_site(method: str, headers: Headers) -> bool:
    """Whether a page of another site has a browser ask for something that may change the model.

    A browser sends along what opens this server (a password that was typed in once, or being on this machine) whoever
    asks it to. A ``Bearer`` token is only sent by someone who has it.

    Examples
    --------
    >>> is_of_another_site("POST", Headers({"host": "localhost:8000", "origin": "http://evil.example"}))
    True
    """
    if method in ("GET", "HEAD") or headers.get("authorization", "").lower().startswith("bearer "):
        return False
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")  # of a page: scheme, host and port, or "null"
    return origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower()


class KnownHosts:
    """Starlette's check of the Host header, refused in a JSON sentence like everything else.

    A web page that has a name of its own resolve to this machine (DNS rebinding) is kept out by this.

    Parameters
    ----------
    app : ASGI application
    hosts : sequence of str
        The names this server answers to, without port; IPv6 addresses in brackets.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""

        async def passed(*_: object) -> None:
            await self.app(scope, receive, send)

        async def refused(message: Message) -> None:
            if message["type"] == "http.response.start":
                host, names = Headers(scope=scope).get("host", ""), ", ".join(sorted(set(self.hosts)))
                sentence = f"the Host header is {host[:100]!r}, expected one of {names}."
                await answer({"error": sentence}, 400)(scope, receive, send)

        await TrustedHostMiddleware(passed, self.hosts, www_redirect=False)(scope, receive, refused)
