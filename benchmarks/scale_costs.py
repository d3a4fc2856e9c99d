"""What the growing default costs beside a ladder that does not grow: rows a second, milliseconds a call, memory.

Parts of ``bench_scale``: ``--throughput``, ``--latency`` and ``--memory``.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from benchmarks import prequential, scale_streams
from benchmarks.report import ratio, table
from benchmarks.scale_peers import timed
from benchmarks.scale_streams import BLOCK, Array
from streamboost import SGBRegressor

LADDER = (256, 1024, 4096, 16384)  # memories of a model that does not grow
SETTINGS: dict[str, dict[str, Any]] = {"grows": {}, "does not grow": {"memory": LADDER}}
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
COLUMNS = 20
Part = tuple[str, dict[str, Any]]  # a table, and the figures in it


def wide(rng: np.random.Generator, at: Array) -> tuple[Array, Array]:
    """Twenty columns, fifteen of which are those of the waves, on which growth pays."""
    X, truth = scale_streams.sines(rng, at)
    return np.concatenate([X, rng.uniform(size=(len(at), COLUMNS - X.shape[1]))], axis=1), truth


def make(way: str, source: scale_streams.Source) -> SGBRegressor:
    """Make a fresh model, after one that has learned a little: what is compiled or loaded is not counted."""
    X, y = source.block(0)
    SGBRegressor(random_state=0, **SETTINGS[way]).fit(X[:2_000], y[:2_000])
    return SGBRegressor(random_state=0, **SETTINGS[way])


def throughput(options: argparse.Namespace, progress: Progress) -> Part:
    """Rows a CPU second over the first rows of Friedman's stream: medians of three runs, in turn."""
    n, repeats = (2_000, 1) if options.quick else (100_000, 3)
    source = scale_streams.load("friedman", options.seed)
    rates: dict[str, list[float]] = {way: [] for way in SETTINGS}
    for way in progress.track([*SETTINGS] * repeats, description="throughput"):
        model = make(way, source)
        seconds = sum(timed(lambda: model.learn(X, y)) for X, y in source.rows(0, n))  # noqa: B023 (called at once)
        rates[way].append(n / seconds)
    rate = {way: statistics.median(found) for way, found in rates.items()}
    share = rate["grows"] / rate["does not grow"]
    lines = [[way, f"{n:,}", f"{value:,.0f}"] for way, value in rate.items()]
    text = table(["the default", "rows", "rows / CPU s"], [*lines, ["ratio", "–", f"{share:.2f}"]])
    return text, {"rows": n, "rates": rates, "ratio": share}


def latency(options: argparse.Namespace, progress: Progress) -> Part:
    """Microseconds of single calls on dicts, once so many rows have been learned from arrays."""
    window, calls = (2_000, 500) if options.quick else (options.window, 20_000)
    source = scale_streams.Generated("wide", wide, 1.0, options.seed)
    figures: dict[str, Any] = {"window": window, "calls": calls, "columns": COLUMNS}
    lines = []
    for way in SETTINGS:
        model = make(way, source)
        for X, y in counted(source.rows(0, window), window, f"latency, {way}", progress):
            model.learn(X, y)
        first: dict[Hashable, float] = dict(enumerate(source.test(0).X[0].tolist()))
        model.predict_one(first)
        model.learn_one(first, 0.0, w=0.0)  # a row that does not count: it loads what single calls need
        learned, predicted = np.empty(calls), np.empty(calls)  # seconds
        i = 0
        for X, y in counted(source.rows(window, window + calls), calls, f"calls, {way}", progress):
            for x, target in zip(X.tolist(), y.tolist(), strict=True):
                row = dict(enumerate(x))
                predicted[i] = clocked(model.predict_one, row)
                learned[i] = clocked(model.learn_one, row, target)
                i += 1
        figures[way] = {"trees": model.committee_.boosters[0].stack.n_learners}
        for call, seconds in (("learn_one", learned), ("predict_one", predicted)):
            found = {name: float(1e6 * np.percentile(seconds, share)) for name, share in PERCENTILES.items()}
            figures[way][call] = found
            lines.append([call, way, f"{window:,}", *(ratio(value) for value in found.values())])
    head = ["call", "the default", "rows before", *(f"{name}, µs" for name in PERCENTILES)]
    return table(head, sorted(lines, key=lambda line: line[0])), figures


def memory(options: argparse.Namespace, progress: Progress) -> Part:
    """Resident memory while a long stream is learned, made block by block."""
    n, every = (40_000, 10_000) if options.quick else (options.memory_rows, 100_000)
    source = scale_streams.Generated("wide", wide, 1.0, options.seed)
    model = make("grows", source)
    held = [{"rows": 0, "rss_mb": prequential.resident_mb(), "most_mb": most_mb(), "cpu_s": 0.0}]
    spent = 0.0
    for count, (X, y) in enumerate(counted(source.rows(0, n), n, "memory", progress), 1):
        spent += timed(lambda: model.learn(X, y))  # noqa: B023 (called at once)
        if count * BLOCK % every == 0:
            now = {"rss_mb": prequential.resident_mb(), "most_mb": most_mb(), "cpu_s": spent}
            held.append({"rows": count * BLOCK, **now})
    lines = [[f"{h['rows']:,}", f"{h['rss_mb']:.0f}", f"{h['most_mb']:.0f}", f"{h['cpu_s']:.1f}"] for h in held]
    figures = {"columns": COLUMNS, "held": held, "events": [list(event) for event in model.events_]}
    return table(["rows", "memory held, MB", "most so far, MB", "CPU s"], lines), figures


def clocked(call: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of the wall clock."""
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def counted(
    blocks: Iterator[scale_streams.Rows], total: int, what: str, progress: Progress
) -> Iterator[scale_streams.Rows]:
    """Give blocks, and show how many rows have gone."""
    bar = progress.add_task(what, total=total)
    for rows in blocks:
        yield rows
        progress.advance(bar, len(rows.y))
    progress.remove_task(bar)


def most_mb() -> float:
    """The most memory this process has held, since it began."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    return int(found[1]) / 2**10 if found else prequential.resident_mb()


PARTS: dict[str, Callable[[argparse.Namespace, Progress], Part]] = {
    "memory": memory,  # first: the most held is that of the process
    "throughput": throughput,
    "latency": latency,
}
