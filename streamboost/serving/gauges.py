"""What the server counts, for Prometheus and for the dashboard."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
KEPT = 2000  # latencies of predictions
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Gauges:
    """Counters, a histogram of latencies, and whatever is looked up when someone asks.

    Parameters
    ----------
    now : callable
        Gives the numbers of this moment: by name, help and value, or values by the name of a metric.

    Examples
    --------
    >>> gauges = Gauges(lambda: [("queue_length", "Requests that wait for the writer.", 3)])
    >>> gauges.learned.inc(100)
    >>> text = gauges.exposition().decode()
    >>> "streamboost_rows_learned_total 100.0" in text, "streamboost_queue_length 3.0" in text
    (True, True)
    """

    def __init__(self, now: Callable[[], Iterable[tuple[str, str, Any]]]) -> None:
        self.registry = CollectorRegistry()
        self._now = now

        def counter(name: str, help: str) -> Counter:
            return Counter(f"streamboost_{name}", help, registry=self.registry)

        self.learned = counter("rows_learned", "Rows learned since the server started.")
        self.predicted = counter("predictions", "Rows predicted since the server started.")
        self.quarantined = counter("rows_quarantined", "Rows refused and kept apart since the server started.")
        self.requests = Histogram(
            "streamboost_request_seconds",
            "How long requests took, by route and status.",
            ("route", "status"),
            registry=self.registry,
            buckets=BUCKETS,
        )
        self.registry.register(self)
        self._lock = threading.Lock()
        self._latencies: deque[float] = deque(maxlen=KEPT)
        self.n_timed = 0  # predictions whose latency was noted

    def collect(self) -> Iterable[Metric]:
        """Numbers of this moment, as Prometheus' client wants them."""
        for name, told, value in self._now():
            if isinstance(value, dict):
                family = GaugeMetricFamily(f"streamboost_{name}", told, labels=["metric"])
                for metric, number in value.items():
                    family.add_metric([metric], number)
                yield family
            else:
                yield GaugeMetricFamily(f"streamboost_{name}", told, value=value)

    def note(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(route, str(status)).observe(seconds)
        if route == "/predict" and status == 200:
            with self._lock:
                self._latencies.append(seconds)
                self.n_timed += 1

    def latency_ms(self) -> dict[str, float] | None:
        """The median and the 99th percentile of the latest predictions."""
        with self._lock:
            latest = sorted(self._latencies)
        if not latest:
            return None
        return {
            name: 1e3 * latest[min(int(len(latest) * q), len(latest) - 1)] for name, q in (("p50", 0.5), ("p99", 0.99))
        }

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)
