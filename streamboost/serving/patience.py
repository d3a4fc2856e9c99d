"""A connection that brings no request is not kept for ever, nor is a head that has no end.

uvicorn has a time-out for idle connections, but none for a head that comes letter by letter, nor for the rest of a body
that was refused already; and its faster parser keeps a head of any length. Bodies that are read have their own limits,
see :mod:`streamboost.serving.bodies`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def protocol_class(seconds: float, n_bytes: int = 65_536) -> type[asyncio.Protocol]:
    """A protocol for uvicorn that closes connections on which bytes, but no request, have come.

    Parameters
    ----------
    seconds : float
        For how long they may come.
    n_bytes : int
        How many may; what the connection brings at once may be a little more.
    """

    class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        _timer: asyncio.TimerHandle | None = None
        _n_head = 0  # bytes of a head that has not come to its end

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wind_up()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._wind_up()
            self._n_head = self._n_head + len(data) if self._is_head_awaited() else 0
            if self._n_head > n_bytes and not self.transport.is_closing():
                self.transport.write(_too_long(n_bytes))
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop()

        def _is_head_awaited(self) -> bool:
            """Whether what comes is part of a head; what follows an early answer is the rest of a body."""
            return self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)

        def _wind_up(self) -> None:
            """Run the timer as long as no request is being answered; bytes do not wind it up again."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()
            elif self._timer is None:
                self._timer = self.loop.call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return PatientProtocol


def _too_long(n_bytes: int) -> bytes:
    body = json.dumps({"error": f"the head is larger than {n_bytes:,} bytes. Send fewer or shorter headers."}).encode()
    head = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
