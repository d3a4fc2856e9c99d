"""What the server tells of itself and its model: to people, to Prometheus, to the dashboard."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from streamboost.checkpoints import checkpoint_paths
from streamboost.dashboard import Feed, observe
from streamboost.inspection import describe
from streamboost.live import LiveModel
from streamboost.serving.answers import answer
from streamboost.serving.bodies import RETRY, Held
from streamboost.serving.gauges import CONTENT_TYPE, Gauges
from streamboost.serving.scoring import ScoreKeeper
from streamboost.serving.writer import Published, Writer

EVERY = 1.0  # seconds between observations for the dashboard
LOOKS = 10  # of them, over which the rows per second are counted
logger = logging.getLogger(__name__)


class Telling:
    """Routes that change nothing.

    Parameters
    ----------
    live : LiveModel
    writer : Writer
    keeper : ScoreKeeper
    held : Held
    feed : Feed
    document : dict
        The OpenAPI document.
    """

    def __init__(
        self, live: LiveModel, writer: Writer, keeper: ScoreKeeper, held: Held, feed: Feed, document: dict[str, Any]
    ) -> None:
        self.live, self.writer, self.keeper, self.held, self.feed = live, writer, keeper, held, feed
        self.document = document
        self.gauges = Gauges(self._numbers)
        self._began = time.time()
        self._looks = deque([(live.rows, time.monotonic())], maxlen=LOOKS + 1)
        self._n_events = 0  # that the dashboard was told of
        self._n_before = len(_events(writer.published))  # that happened before this server started, nobody knows when
        self._told: tuple[Any, ...] = ()
        self._rests = False  # whether nothing was being learned, as far as the dashboard knows

    async def model(self, request: Request) -> Response:
        """What the model is."""
        published = self.writer.published
        return answer(await asyncio.to_thread(describe, published.model) | {"target": self.live.target})

    async def metrics(self, request: Request) -> Response:
        """All numbers, for Prometheus."""
        return Response(await asyncio.to_thread(self.gauges.exposition), media_type=CONTENT_TYPE)

    async def health(self, request: Request) -> Response:
        """Whether the server is well; as anyone may ask, files are named without saying where they are."""
        state = {"status": "ok", "rows": self.writer.published.rows}
        failure = self.writer.failure
        if failure is None:
            return answer(state)
        named = failure.replace(os.path.join(self.live.directory, ""), "")
        return answer({**state, "status": "failing", "error": named}, 503, RETRY)

    async def openapi(self, request: Request) -> Response:
        """The description of all this."""
        return answer(self.document)

    async def watch(self) -> None:
        """Tell the dashboard every second how things stand, if anything changed."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await asyncio.to_thread(self.tell)
            except Exception:
                logger.exception("the dashboard could not be told how the model stands")

    def tell(self) -> None:
        """Tell the dashboard how things stand, if anything changed."""
        live, published = self.live, self.writer.published
        state = (published.number, live.n_pending, live.n_quarantined, self.gauges.n_timed)
        self._looks.append((live.rows, time.monotonic()))
        (rows, began), (rows_now, now) = self._looks[0], self._looks[-1]
        pace = (rows_now - rows) / (now - began)
        if state == self._told and self._rests:
            return
        self._told, self._rests = state, pace == 0
        self.feed.publish(self._observation(published, pace))

    def _observation(self, published: Published, pace: float) -> dict[str, Any]:
        live, scores = self.live, self.keeper.scores(self.live.state)
        events = [{**event._asdict(), "time": None} for event in _events(published)[: self._n_before]]
        events += _events(published)[self._n_before :]
        new, self._n_events = events[self._n_events :], len(events)
        return observe(
            published.model,
            rows=published.rows,
            running=scores.running,
            windowed=scores.windowed,
            rows_per_second=pace,
            latency_ms=self.gauges.latency_ms(),
            events=new,
            pending=live.n_pending,
            quarantined=live.n_quarantined,
        )

    def _numbers(self) -> Iterable[tuple[str, str, Any]]:
        live, published = self.live, self.writer.published
        scores = self.keeper.scores(live.state)
        yield "model_rows", "Rows the model has learned, ever.", live.rows
        yield "published_rows", "Rows known to the copy that predicts.", published.rows
        yield "published_age_seconds", "Since the copy that predicts was made.", time.monotonic() - published.time
        yield "pending_rows", "Rows that wait for their labels.", live.n_pending
        yield "early_labels", "Labels that wait for their rows.", live.n_early
        yield "expired_rows", "Rows that waited too long, ever.", live.n_expired
        yield "quarantine_rows", "Rows and labels in quarantine, ever.", live.n_quarantined
        yield "queue_length", "Requests that wait for the writer.", self.writer.n_waiting
        yield "held_bytes", "Of requests in memory.", self.held.n_bytes
        yield "checkpoint_age_seconds", "Since the newest checkpoint.", self._checkpoint_age()
        yield "checkpoint_failing", "1 if the latest could not be written.", float(bool(live.last_checkpoint_error))
        yield "journal_entries", "Entries in the journal.", live.journal_length
        yield "metric_running", "Over all rows.", scores.running
        yield "metric_windowed", "Over the latest rows.", scores.windowed

    def _checkpoint_age(self) -> float:
        times = []
        for path in checkpoint_paths(self.live.directory):
            try:
                times.append(path.stat().st_mtime)
            except FileNotFoundError:  # the writer has just put a newer one in its place
                continue
        return time.time() - max(times, default=self._began)


def _events(published: Published) -> list[Any]:
    return list(published.model.events_) if published.is_ready else []
