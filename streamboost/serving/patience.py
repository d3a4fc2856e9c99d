"""A connection that brings no request is not kept for ever.

uvicorn has a time-out for idle connections, but none for a head that comes letter by letter, nor for the rest of a body
that was refused already. Bodies that are read have their own time-out, see :mod:`streamboost.serving.bodies`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def protocol_class(seconds: float) -> type[asyncio.Protocol]:
    """A protocol for uvicorn that closes connections on which bytes, but no request, have come for so long."""

    class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wind_up()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._wind_up()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop()

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
