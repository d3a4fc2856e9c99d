"""What the server tells of itself and its model: scores, Prometheus, health, the dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from streamboost.dashboard import Feed, observe
from streamboost.estimators.describe import describe
from streamboost.evaluation.metrics import BY_NAME
from streamboost.evaluation.scorebook import DEFAULTS, ScoreBook, Scored
from streamboost.live import FrozenModel, LearnedBatch, LiveModel
from streamboost.persistence.checkpoints import checkpoint_paths
from streamboost.serving.errors import RETRY
from streamboost.serving.json_bodies import InFlightBytes
from streamboost.serving.replica import ReplicaModel
from streamboost.serving.responses import json_response
from streamboost.serving.writer import ModelCopy, Writer

SCORES = "scores"  # where the live model's state keeps them
FOREVER = 2**62  # rows between reports of scores: they are asked for, not waited for
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
LATENCIES = 2000  # of predictions, that are kept
EVERY = 1.0  # seconds between observations for the dashboard
LOOKS = 10  # of them, over which the rows per second are counted
logger = logging.getLogger(__name__)


class ScoreKeeper:
    """Keeps score of a live model, as its ``on_learned``.

    Scored are the predictions that were answered, or else those made just before each row was learned. The score is
    part of the live model's state: it is saved with the model, and after a crash it goes on with it.

    Parameters
    ----------
    window : int
        Over how many of the latest rows windowed metrics look (default 1000), if no score was kept before.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from streamboost import SGBRegressor
    >>> keeper = ScoreKeeper()
    >>> with LiveModel(tempfile.mkdtemp(), SGBRegressor(), target="y", on_learned=keeper) as live:
    ...     _ = live.learn(pa.table({"x": [1.0, 2.0], "y": [3.0, 3.0]}))
    ...     sorted(keeper.scores(live.state)[0])
    ['mae', 'r2', 'rmse']
    """

    def __init__(self, window: int = 1000) -> None:
        self.window = window
        self._lock = threading.Lock()  # the writer adds, others read

    def __call__(self, state: dict[str, Any], batch: LearnedBatch) -> None:
        """Score a batch; a corrected row was scored before."""
        predicted = batch.honest()
        if batch.kind == "correct" or not predicted.known.any():
            return
        with self._lock:
            if SCORES not in state:
                answers = batch.answers  # numbers are predicted as floats, classes never are
                is_number = answers.probabilities is None and np.asarray(answers.values).dtype.kind == "f"
                kinds = [BY_NAME[name] for name in DEFAULTS["regression" if is_number else "classification"]]
                metrics = [kind for kind in kinds if answers.probabilities is not None or kind.need != "probability"]
                state[SCORES] = ScoreBook(metrics, every=FOREVER, window=self.window)
            list(state[SCORES].add(Scored(batch.y, predicted, 0.0)))

    def scores(self, state: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
        """Return metrics by name, over all rows and over the latest; NaN where one has no meaning yet."""
        with self._lock:
            report = state[SCORES].report() if SCORES in state else None
        return ({}, {}) if report is None else (report.running, report.windowed)


class Monitoring:
    """Counters, the routes that change nothing, and what the dashboard is told."""

    def __init__(
        self, live: LiveModel | FrozenModel, writer: Writer, keeper: ScoreKeeper, in_flight: InFlightBytes, feed: Feed
    ) -> None:
        self.live, self.writer, self.keeper, self.in_flight, self.feed = live, writer, keeper, in_flight, feed
        self.registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        since = "since the server started."
        self.learned = counter("streamboost_rows_learned", f"Rows learned {since}")
        self.predicted = counter("streamboost_predictions", f"Rows predicted {since}")
        self.quarantined = counter("streamboost_rows_quarantined", f"Rows refused and kept apart {since}")
        name, told = "streamboost_request_seconds", "How long requests took, by route and status."
        self.requests = Histogram(name, told, ("route", "status"), registry=registry, buckets=BUCKETS)
        registry.register(self)
        self._lock = threading.Lock()
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._n_timed = 0  # predictions whose latency was noted
        self._began = time.time()
        self._looks = deque([(live.rows, time.monotonic())], maxlen=LOOKS + 1)
        self._n_events = 0  # that the dashboard was told of
        self._n_before = len(_events(writer.published))  # that happened before this server started, nobody knows when
        self._told: tuple[Any, ...] = ()
        self._rests = False  # whether nothing was being learned, as far as the dashboard knows

    async def model(self, request: Request) -> Response:
        """Describe the model."""
        published = self.writer.published
        described = await asyncio.to_thread(describe, published.model)
        return json_response(described | published.about | {"target": self.live.target})

    async def metrics(self, request: Request) -> Response:
        """Return all numbers, for Prometheus."""
        text = await asyncio.to_thread(generate_latest, self.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def health(self, request: Request) -> Response:
        """Tell whether the server takes requests; as anyone may ask, files are named without saying where they are."""
        rows, failure = self.writer.published.rows, self.writer.failure
        if failure is None:
            return json_response({"status": "ok", "rows": rows} | self._of_replica())
        told = without_paths(failure, self.live.directory)
        return json_response({"status": "failing", "rows": rows, "error": told}, 503, RETRY)

    async def live_health(self, request: Request) -> Response:
        """Tell whether the process is of any use, or is to be started again."""
        if self.writer.has_ended:
            return json_response({"status": "failing", "error": "the writer has ended"}, 503, RETRY)
        return json_response({"status": "ok"})

    def _of_replica(self) -> dict[str, Any]:
        """Return what a replica tells of its learner."""
        live = self.live
        if not isinstance(live, ReplicaModel):
            return {}
        told = {"age_seconds": round(live.age, 3), "seen_seconds": round(max(time.time() - live.seen, 0.0), 3)}
        return told if live.fault is None else told | {"learner": without_paths(live.fault, live.directory)}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(route, str(status)).observe(seconds)
        if route == "/predict" and status == 200:
            with self._lock:
                self._latencies.append(seconds)
                self._n_timed += 1

    def collect(self) -> Iterable[Metric]:
        """Yield numbers of this moment, as Prometheus' client wants them."""
        for name, told, value in self._gauges():
            if isinstance(value, dict):
                family = GaugeMetricFamily(f"streamboost_{name}", told, labels=["metric"])
                for metric, number in value.items():
                    if not math.isnan(number):  # one that has no meaning, or none yet
                        family.add_metric([metric], number)
                yield family
            else:
                yield GaugeMetricFamily(f"streamboost_{name}", told, value=value)

    def _gauges(self) -> Iterable[tuple[str, str, Any]]:
        live, published = self.live, self.writer.published
        running, windowed = self.keeper.scores(live.state)
        yield "model_rows", "Rows the model has learned, ever.", live.rows
        yield "published_rows", "Rows known to the copy that predicts.", published.rows
        yield "published_age_seconds", "Since the copy that predicts was made.", time.monotonic() - published.time
        yield "pending_rows", "Rows that wait for their labels.", live.n_pending
        yield "early_labels", "Labels that wait for their rows.", live.n_early
        yield "expired_rows", "Rows that waited too long, ever.", live.n_expired
        yield "quarantine_rows", "Rows and labels in quarantine, ever.", live.n_quarantined
        yield "queue_length", "Requests that wait for the writer.", self.writer.n_waiting
        yield "held_bytes", "Of requests in memory.", self.in_flight.n_bytes
        yield "checkpoint_age_seconds", "Since the newest checkpoint.", self._checkpoint_age()
        yield "checkpoint_failing", "1 if the latest could not be written.", float(bool(live.last_checkpoint_error))
        yield "journal_entries", "Entries in the journal.", live.journal_length
        if isinstance(live, ReplicaModel):
            yield "replica_age_seconds", "Since the model was made by the learner.", live.age
            yield "replica_seen_seconds", "Since the learner was last seen without a fault.", time.time() - live.seen
        yield "metric_running", "Over all rows.", running
        yield "metric_windowed", "Over the latest rows.", windowed

    def _checkpoint_age(self) -> float:
        times: list[float] = []
        for path in checkpoint_paths(self.live.directory) if self.live.directory.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # the writer has just put a newer one in its place
                times.append(path.stat().st_mtime)
        return time.time() - max(times, default=self._began)

    async def watch(self) -> None:
        """Tell the dashboard every second how things stand, if anything changed."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await asyncio.to_thread(self._tell)
            except Exception:
                logger.exception("the dashboard could not be told how the model stands")

    def _tell(self) -> None:
        live, published = self.live, self.writer.published
        state = (published.number, live.n_pending, live.n_quarantined, self._n_timed)
        self._looks.append((live.rows, time.monotonic()))
        (rows, began), (rows_now, now) = self._looks[0], self._looks[-1]
        pace = (rows_now - rows) / (now - began)
        if state == self._told and self._rests:
            return
        self._told, self._rests = state, pace == 0
        running, windowed = self.keeper.scores(live.state)
        events = _events(published)
        new, self._n_events = events[self._n_events :], len(events)
        n_old = max(self._n_before - (len(events) - len(new)), 0)
        new[:n_old] = [{**event._asdict(), "time": None} for event in new[:n_old]]
        with self._lock:
            latest = sorted(self._latencies)
        quantiles = {"p50": 0.5, "p99": 0.99} if latest else {}
        latency = {name: 1e3 * latest[int(len(latest) * q)] for name, q in quantiles.items()} or None
        learned: dict[str, Any] = {"rows": published.rows, "running": running, "windowed": windowed, "events": new}
        apart: dict[str, Any] = {"pending": live.n_pending, "quarantined": live.n_quarantined}
        self.feed.publish(observe(published.model, rows_per_second=pace, latency_ms=latency, **learned, **apart))


def _events(copy: ModelCopy) -> list[Any]:
    return list(copy.model.events_) if copy.is_ready else []


def without_paths(told: str, directory: str | os.PathLike[str]) -> str:
    """Return a sentence that names files without saying where they are."""
    for path in (os.path.abspath(directory), os.fspath(directory)):
        told = told.replace(os.path.join(path, ""), "").replace(path, "the model's directory")
    return told
