"""Seconds that pass one by one, whatever is done to the clock of the machine."""

from __future__ import annotations

import logging
import time

LONGEST_PAUSE = 30 * 86_400.0  # seconds between two processes that are believed
logger = logging.getLogger(__name__)


class SteadyClock:
    """A clock that begins with the machine's and never jumps.

    It goes on after the latest time that is known from before, also where the machine's clock was put back since; where
    that is more than 30 days ahead of it, it is not believed. Rows then wait longer than they should, and none expires
    because somebody set a clock.
    """

    def __init__(self, latest: float | None = None) -> None:
        began = time.time()
        if latest is not None and not latest <= began <= latest + LONGEST_PAUSE:
            told = "%.0f seconds %s the latest time in the journal. The journal's is believed, and goes on."
            logger.warning(f"the clock is {told}", abs(began - latest), "after" if began > latest else "before")
            began = latest
        self._began, self._monotonic = began, time.monotonic()

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        return self._began + time.monotonic() - self._monotonic
