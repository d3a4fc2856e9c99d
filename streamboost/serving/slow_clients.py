"""Close connections that bring no request in time, and heads that have no end.

uvicorn has a time-out for idle connections, but none for a head that comes letter by letter, nor for the rest of a body
that was refused already; its parser keeps a head of any length, and as many headers as follow a body; of a client
that waits for no response it reads requests faster than it responds; and it keeps for ever what nobody reads.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from streamboost.serving.errors import RETRY
from streamboost.serving.responses import error_response

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nRetry-After: 1\r\n"
MANY = 1_000_000  # connections, where nothing bounds them
HEALTH = ("/livez", "/readyz", "/healthz")
RESERVED = 256  # descriptors of the process that are left for files, and for connections that are being refused
BEYOND = 64  # connections above the limit that may ask for health
BACKLOG = 64  # connections that the system takes before the server does: no more come at a time
OVERLOADED = {**RETRY, "Connection": "close"}


def most_connections() -> int:
    """Return how many connections may be open, so that descriptors are left for files."""
    try:
        import resource

        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):  # not on this system
        return MANY
    return MANY if descriptors < 0 else descriptors - min(RESERVED, descriptors * 3 // 4)


def _overloaded(app: Any, n: int) -> Any:
    """Return an application for connections beyond the limit: health is answered as ever, the rest refused."""
    refuse = error_response(f"{n} connections are open already. Close some, or try again later.", 503, OVERLOADED)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope.get("path") in HEALTH else refuse)(scope, receive, send)

    return answer


def protocol_class(
    seconds: float, n_bytes: int = 65_536, write_seconds: float = 30.0, connections: int = MANY
) -> type[asyncio.Protocol]:
    """Return a uvicorn protocol that closes connections after so many bytes, or seconds, without request or body.

    One whose client has read nothing of a response for ``write_seconds`` is cut off. Beyond so many connections one
    on which nothing is being answered makes room; where there is none, only health is answered, the rest with 503.
    """

    class TimeoutProtocol(HttpToolsProtocol):
        _idle_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None
        _n_unread = 0  # bytes of responses, when last looked at
        _n_bytes = 0  # of a head, of what may follow a body, of whatever stands between its parts

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            n = len(self.connections)
            if n > connections and not self._make_room():
                self.app = _overloaded(self.app, n)
                if n > connections + BEYOND:
                    self._write_refusal(BUSY, f"{n} connections are open already. Try again later.")
                    self.transport.close()
            self._update_timer()

        def _make_room(self) -> bool:
            """Close a connection on which nothing is being answered, at best one that has asked for nothing yet."""
            others: list[Any] = [one for one in self.connections if one is not self and not one.transport.is_closing()]
            silent = [one for one in others if one.cycle is None]
            for one in silent or [one for one in others if one.cycle.response_complete]:
                one.transport.abort()
                return True
            return False

        def data_received(self, data: bytes) -> None:
            self._n_bytes += len(data)
            super().data_received(data)
            self._update_timer()
            if self._n_bytes > n_bytes:
                self._refuse()

        # The parser calls these when something has come to its end, or a part of a body is there.

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self._n_bytes = 0

        def on_body(self, body: bytes) -> None:
            super().on_body(body)
            self._n_bytes = 0

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._n_bytes = 0

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # Requests that have come already are answered before more are read.
            if self.pipeline and not self.transport.is_closing():
                self.flow.pause_reading()

        # The transport calls these when more is written than the client reads, and when it has read.

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stop_write_timer()
            self._n_unread = self.transport.get_write_buffer_size()
            self._write_timer = self.loop.call_later(write_seconds, self._check_unread)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_write_timer()

        def _check_unread(self) -> None:
            n_unread = self.transport.get_write_buffer_size()
            if n_unread >= self._n_unread:
                self.transport.abort()
                return
            self._n_unread = n_unread
            self._write_timer = self.loop.call_later(write_seconds, self._check_unread)

        def _stop_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _refuse(self) -> None:
            is_head = self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)
            if is_head and not self.transport.is_closing():  # else there is a response already, or one to come
                told = f"the head is larger than {n_bytes:,} bytes. Send fewer or shorter headers."
                self._write_refusal(TOO_LARGE, told)
            self.transport.close()

        def _write_refusal(self, head: bytes, told: str) -> None:
            body = json.dumps({"error": told}).encode()
            self.transport.write(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop_timer()
            self._stop_write_timer()

        def _update_timer(self) -> None:
            """Run the timer as long as no request is being answered; bytes do not start it anew."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self._idle_timer is None:
                self._idle_timer = self.loop.call_later(seconds, self._time_out)

        def _time_out(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _stop_timer(self) -> None:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None

    return TimeoutProtocol
