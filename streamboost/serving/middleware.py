"""What every request passes before any route, and every response after it: hosts, origins, headers, timing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamboost.serving.errors import RETRY
from streamboost.serving.responses import error_response
from streamboost.serving.slow_clients import HEALTH

HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(:[0-9]*)?")
HEALTH_SLOTS = 16  # requests to /livez, /readyz and /healthz beyond all others
Observe = Callable[[str, int, float], None]
SECURITY = {
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class RequestMiddleware:
    """Limits how many requests are open, refuses other hosts and sites, adds headers, and times requests.

    Half of these are for requests whose ``Authorization`` header is good, as ``knows`` tells (by default any is), and a
    few more for health alone. ``/events``, which stay open, may be ``event_streams`` (100) at a time.

    ``observe`` is called after every request with its path (one of ``routes``, or "other"), its status and its seconds;
    ``hosts`` are the names this server answers to, without port, IPv6 addresses in brackets, or None for all.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Collection[str],
        observe: Observe,
        limit: int,
        hosts: Sequence[str] | None,
        knows: Callable[[str], bool] = lambda authorization: True,
        event_streams: int = 100,
    ) -> None:
        self.knows, self.event_streams, self.n_strangers, self.n_streams = knows, event_streams, 0, 0
        self.app, self.routes, self.observe, self.limit = app, frozenset(routes), observe, limit
        self.hosts = None if hosts is None else sorted({host.lower() for host in hosts})
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

        is_stranger = not self.knows(Headers(scope=scope).get("authorization", ""))
        is_stream = scope["path"] == "/events"
        app = self._refusal(scope, is_stranger, is_stream) or self.app
        self.n_open += 1
        self.n_strangers += is_stranger
        self.n_streams += is_stream
        try:
            await app(scope, receive, send_with_headers)
        finally:
            self.n_open -= 1
            self.n_strangers -= is_stranger
            self.n_streams -= is_stream
            path = scope["path"]
            self.observe(path if path in self.routes else "other", status, time.perf_counter() - started)

    def _refusal(self, scope: Scope, is_stranger: bool, is_stream: bool) -> Response | None:
        """Return what a request is refused with before any route; None if it may pass."""
        headers = Headers(scope=scope)
        limit = self.limit + HEALTH_SLOTS if scope["path"] in HEALTH else self.limit
        is_full = self.n_open >= limit or (is_stranger and self.n_strangers >= limit - self.limit // 2)
        if is_full:
            return error_response(f"{self.n_open} requests are open already. Try again later.", 503, RETRY)
        if is_stream and self.n_streams >= self.event_streams:
            told = f"{self.n_streams} pages watch already, expected at most {self.event_streams}"
            return error_response(f"{told}. Close one, or try again later.", 503, RETRY)
        if is_cross_site(scope["method"], headers):
            return error_response("the request comes from a page of another site, expected one of this server.", 403)
        host = headers.get("host", "")
        if self.hosts is not None and not is_known_host(host, self.hosts):
            return error_response(f"the Host header is {host[:100]!r}, expected one of {', '.join(self.hosts)}.", 400)
        return None


def is_cross_site(method: str, headers: Headers) -> bool:
    """Return whether a page of another site has a browser ask for something that may change the model."""
    # A browser sends along what opens this server (a password, or being on this machine) whoever asks it to; a Bearer
    # token is only sent by someone who has it.
    if method in ("GET", "HEAD") or headers.get("authorization", "").lower().startswith("bearer "):
        return False
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")  # of a page: scheme, host and port, or "null"
    return origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower()


def is_known_host(host: str, known: Collection[str]) -> bool:
    """Return whether a Host header names one of the hosts; a page that has its own name resolve to us does not."""
    found = HOST.fullmatch(host)
    name = "" if found is None else found[1].lower()
    return name in known or any([name.endswith(end[1:]) for end in known if end[0] == "*" and name])
