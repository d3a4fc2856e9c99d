"""A server beside the work: uvicorn in a thread of its own."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from streamboost.dashboard.feed import Feed
from streamboost.dashboard.routes import routes
from streamboost.errors import require

if TYPE_CHECKING:
    import uvicorn

DRAIN = 5  # seconds for open requests when it goes down
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")  # of this machine, as a Host header has them


class Running:
    """A server that runs at ``url`` and ``port``, made by :func:`serve_in_thread`; a context manager closes it."""

    def __init__(self, server: uvicorn.Server, sock: socket.socket, feed: Feed | None) -> None:
        host, self.port = sock.getsockname()[:2]
        self.url = url_of({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), self.port)
        self._server, self._sock, self._feed = server, sock, feed
        self._thread = threading.Thread(target=self._run, name="streamboost-dashboard", daemon=True)

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):  # how uvicorn takes an application that does not start
            self._server.run(sockets=[self._sock])

    def _start(self) -> None:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                self.close()
                raise OSError(f"the server at {self.url} did not start. Does the application fail as it starts?")
            time.sleep(0.01)

    def close(self) -> None:
        """Let open requests finish, end the streams of messages, and stop."""
        self._server.should_exit = True
        while self._thread.is_alive():
            if self._feed is not None:
                self._feed.disconnect()  # again and again: one may have come after the last
            self._thread.join(0.05)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def serve_in_thread(
    app_or_feed: Any, host: str = "127.0.0.1", port: int = 0, *, feed: Feed | None = None, public: bool = False
) -> Running:
    """Serve an application, or the page of a feed, beside the work of this process.

    Parameters
    ----------
    app_or_feed : ASGI application or Feed
    host : str
        An address of this machine; 127.0.0.1 by default.
    port : int
        0, the default, for any that is free; see ``url`` of the :class:`Running` server that is returned.
    feed : Feed, optional
        The feed whose :func:`routes` an application has, so that closing ends its streams; None by default.
    public : bool
        Must be True for addresses that other machines can reach: the page knows no password. False by default.

    Examples
    --------
    >>> from urllib.request import urlopen
    >>> with serve_in_thread(Feed("prices")) as running:
    ...     urlopen(running.url).status
    200
    """
    require("starlette", extra="serve", by="the dashboard")
    uvicorn = require("uvicorn", extra="serve", by="the dashboard")
    is_ours_alone = is_loopback(host)
    if not is_ours_alone and not public:
        raise ValueError(
            f"host is {host!r}, which other machines may reach, and the page knows no password. "
            "Leave host out to serve this machine alone, or pass public=True if you mean it."
        )
    app = app_or_feed
    if isinstance(app, Feed):
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        feed = app
        names = [*LOCAL_NAMES, host] if is_ours_alone else ["*"]  # this machine's names alone, whatever a DNS says
        app = Starlette(routes=routes(feed), middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names)])
    sock = bound(host, port)
    quiet = {"log_config": None, "log_level": "warning", "access_log": False, "ws": "none"}
    config = uvicorn.Config(app, timeout_graceful_shutdown=DRAIN, **quiet)
    running = Running(uvicorn.Server(config), sock, feed)
    running._start()
    return running


def url_of(host: str, port: int) -> str:
    """Return the address of a server."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to this address; an ``OSError`` says why there is none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OSError(error.errno, f"host is {host!r}, which is no address of this machine ({error}).") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left may be taken again
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, _why(error, host, port)) from None
    return sock


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another process. Choose another port, or 0 for any that is free."
    if error.errno == errno.EACCES:
        return f"port {port} of {host} is not for ordinary users. Choose one above 1023, or 0 for any that is free."
    return f"cannot serve at {host}, port {port}: {error.strerror}. Leave both out for a free port of this machine."
