"""What every request passes before any route, and every response after it: hosts, origins, headers, timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamboost.serving.errors import RETRY
from streamboost.serving.responses import json_response

SECURITY = {
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class RequestMiddleware:
    """Limits how many requests are open, refuses those of other sites, adds headers, and takes times.

    Parameters
    ----------
    app : ASGI application
    routes : collection of str
        Paths that are counted by themselves.
    observe : callable
        Called after every request with its path, the status and the seconds it took.
    limit : int
        Requests that may be open at a time.
    """

    def __init__(
        self, app: ASGIApp, *, routes: Collection[str], observe: Callable[[str, int, float], None], limit: int
    ) -> None:
        self.app, self.routes, self.observe, self.limit = app, frozenset(routes), observe, limit
        self.n_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self.app
        if self.n_open >= self.limit:
            app = json_response({"error": f"{self.limit} requests are open already. Try again later."}, 503, RETRY)
        elif is_cross_site(scope["method"], Headers(scope=scope)):
            sentence = "the request comes from a page of another site, expected one of this server."
            app = json_response({"error": sentence}, 403)
        self.n_open += 1
        try:
            await app(scope, receive, send_with_headers)
        finally:
            self.n_open -= 1
            path = scope["path"]
            self.observe(path if path in self.routes else "other", status, time.perf_counter() - started)


def is_cross_site(method: str, headers: Headers) -> bool:
    """Return whether a page of another site has a browser ask for something that may change the model.

    A browser sends along what opens this server (a password that was typed in once, or being on this machine) whoever
    asks it to. A ``Bearer`` token is only sent by someone who has it.

    Examples
    --------
    >>> is_cross_site("POST", Headers({"host": "localhost:8000", "origin": "http://evil.example"}))
    True
    """
    if method in ("GET", "HEAD") or headers.get("authorization", "").lower().startswith("bearer "):
        return False
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")  # of a page: scheme, host and port, or "null"
    return origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower()


class KnownHosts:
    """Starlette's check of the Host header against DNS rebinding, refused in a JSON sentence like everything else.

    Parameters
    ----------
    app : ASGI application
    hosts : sequence of str
        The names this server answers to, without port; IPv6 addresses in brackets.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""

        async def passed(*_: object) -> None:
            await self.app(scope, receive, send)

        async def refused(message: Message) -> None:
            if message["type"] == "http.response.start":
                host, names = Headers(scope=scope).get("host", ""), ", ".join(sorted(set(self.hosts)))
                sentence = f"the Host header is {host[:100]!r}, expected one of {names}."
                await json_response({"error": sentence}, 400)(scope, receive, send)

        await TrustedHostMiddleware(passed, self.hosts, www_redirect=False)(scope, receive, refused)
