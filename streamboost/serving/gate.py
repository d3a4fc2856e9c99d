"""What every request passes before any route, and every answer after it: names, origins, headers, times."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamboost.serving.answers import answer
from streamboost.serving.bodies import RETRY

SECURITY = [
    (b"content-security-policy", b"default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
Note = Callable[[str, int, float], None]


class Gate:
    """An ASGI middleware.

    Parameters
    ----------
    app : ASGI application
    hosts : collection of str, optional
        The names this server answers to, without port. A web page that has a name of its own resolve to this machine
        (DNS rebinding) is kept out by this. None: to all.
    routes : collection of str
        Paths that are counted by themselves.
    note : callable
        Told of every request: its path, the status and the seconds it took.
    limit : int
        Requests that may be open at a time.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] | None, routes: Collection[str], note: Note, limit: int = 1000
    ) -> None:
        self.app = app
        self.limit = limit
        self.n_open = 0
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.routes = frozenset(routes)
        self.note = note

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
                _add_headers(message)
            await send(message)

        refusal = self._refusal(scope)
        self.n_open += 1
        try:
            await (self.app if refusal is None else refusal)(scope, receive, send_on)
        finally:
            self.n_open -= 1
            path = scope["path"]
            self.note(path if path in self.routes else "other", status, time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        if self.n_open >= self.limit:
            return answer({"error": f"{self.limit} requests are open already. Try again later."}, 503, RETRY)
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and host_name(host) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            return answer({"error": f"the Host header is {host[:100]!r}, expected one of {names}."}, 400)
        origin = headers.get("origin")
        # A browser sends along what it knows of this server (a cookie, or being on this machine) whoever asks it to;
        # a token in a header is only sent by someone who has it.
        is_sent_by_any = scope["method"] == "POST" and origin is not None and "authorization" not in headers
        if is_sent_by_any and _netloc(origin or "") != host.lower():
            sentence = f"the request comes from a page of {(origin or '')[:100]!r}, expected one of this server."
            return answer({"error": sentence}, 403)
        return None


def host_name(host: str) -> str:
    """A Host header without its port."""
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _add_headers(message: MutableMapping[str, Any]) -> None:
    headers = message["headers"] = list(message.get("headers", ()))
    there = {name.lower() for name, _ in headers}
    headers += [header for header in SECURITY if header[0] not in there]
