"""Runs over partitions: rows a second with one worker and with two, after a death, and arithmetic up to 64 partitions.

    python -m benchmarks.bench_partitions [--quick] [--rows 200000] [--simulate]

Four files of ten columns are learned by ``streamboost run --workers K``, K = 1 and 2, in turn, three times. Then a
worker is killed, and it is timed until its partition has more rows than before.

``--simulate`` measures nothing: it takes the figures that were kept of this and of bench_keyed, and works out what a
million keys and 10⁵ rows a second need, and how long 64 partitions take on K workers. The simulation goes through the
partitions one by one as the supervisor does (the first that is free takes the next), with the measured seconds to start
a run and its measured rows a second and core; it knows of no network, and of no disk that several share.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost.runs.workers import Process

FILES, COLUMNS = 4, 10
KEYS, RATE = 1_000_000, 100_000  # of the arithmetic: keys, and rows a second
RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_partitions", __doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="of each file")
    parser.add_argument("--simulate", action="store_true", help="work out, from the figures that were kept")
    options = parser.parse_args(arguments)
    if not options.simulate:
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(Path(folder), 2000 if options.quick else options.rows, 1 if options.quick else 3)
        print(table(["4 files", ""], [[what, f"{value:,.4g}"] for what, value in measured.items()]), end="\n\n")
        keep(options, "partitions", {**measured, "cores": os.cpu_count()})
        return 0
    folder = options.results or RESULTS
    kept = {name: json.loads((folder / f"{name}.json").read_text())["figures"] for name in ("keyed", "partitions")}
    print(arithmetic(kept["keyed"], kept["partitions"]))
    return 0


def measure(folder: Path, n_rows: int, times: int) -> dict[str, float]:
    """Rows a second with one and with two workers, and seconds after a death."""
    rng = np.random.default_rng(0)
    for k in range(FILES):
        X = rng.uniform(size=(n_rows, COLUMNS))
        y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 10 * X[:, 3] + rng.normal(size=n_rows)
        columns = {f"x{j}": X[:, j] for j in range(COLUMNS)}
        pq.write_table(pa.table({**columns, "y": y}), folder / f"part-{k}.parquet")
    taken: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(times):
        for workers in (1, 2):
            began = time.perf_counter()
            words = ["run", str(folder / "*.parquet"), "--target", "y", "--workers", str(workers), "-q", "--json"]
            where = ["--model", str(folder / f"m-{workers}-{turn}")]
            subprocess.run([sys.executable, "-m", "streamboost", *words, *where], check=True, capture_output=True)
            taken[workers].append(time.perf_counter() - began)
    one, two = median(taken[1]), median(taken[2])
    return {
        "rows": FILES * n_rows,
        "rows/s, 1 worker": FILES * n_rows / one,
        "rows/s, 2 workers": FILES * n_rows / two,
        "2 workers beside 1": one / two,
        **of_one(folder),
    }


def of_one(folder: Path) -> dict[str, float]:
    """Seconds until a run has learned its first rows; and until one that was killed has learned more than before."""
    words = ["run", str(folder / "part-0.parquet"), "--target", "y", "--task", "regression", "--supervised"]
    words += ["--model", str(folder / "killed"), "--checkpoint-every", "1000", "--resume"]
    began = time.perf_counter()
    first = Process(words)
    start = until_rows(first, 1, began)
    os.kill(first.see().pid, signal.SIGKILL)
    began = time.perf_counter()
    while first.see().code is None:
        time.sleep(0.01)
    rows = first.see().told["rows"]
    first.kill()
    second = Process(words)
    recovery = until_rows(second, rows + 1, began)
    second.kill()
    return {"seconds to the first rows": start, "seconds from a kill to further rows": recovery}


def until_rows(one: Process, rows: int, began: float) -> float:
    while one.see().told.get("rows", 0) < rows and one.see().code is None:
        time.sleep(0.01)
    return time.perf_counter() - began


def arithmetic(keyed: dict[str, Any], partitions: dict[str, Any]) -> str:
    """What a million keys and so many rows a second need, and how 64 partitions go on K workers."""
    beside, memory, disk, saved = (keyed[name] for name in ("beside", "memory", "disk", "checkpoints"))
    crowded, usual = beside["100,000 keys, 1 row a visit"]["keyed"], beside["200 keys, 50 rows a visit"]["keyed"]
    per_core, cold = partitions["rows/s, 1 worker"], disk["rows/s of CPU, equal chances"]
    changed = KEYS / 10  # keys, at a checkpoint
    of_key = [saved[f"one key in ten changed, {what} a changed key"] for what in ("kB", "ms")]
    rows = [
        ["cores for plain runs", f"{RATE / per_core:,.0f}"],
        ["cores for models by key, 50 rows a visit", f"{RATE / usual:,.0f}"],
        ["the same, 1 row a visit", f"{RATE / crowded:,.0f}"],
        ["the same, nine of ten keys on disk, equal chances", f"{RATE / cold:,.0f}"],
        ["memory, all keys in it", f"{KEYS * memory['kB in memory'] / 1e6:,.0f} GB"],
        ["memory, one key in ten in it", f"{KEYS * memory['kB in memory'] / 1e7:,.1f} GB"],
        ["disk, each key once", f"{KEYS * memory['kB on disk'] / 1e6:,.0f} GB"],
        ["disk, at most: garbage and two checkpoints", f"{3 * KEYS * memory['kB on disk'] / 1e6:,.0f} GB"],
        ["written at a checkpoint in which a key in ten changed", f"{changed * of_key[0] / 1e6:,.1f} GB"],
        ["the same a row, every 30 s at this rate", f"{changed * of_key[0] / (30 * RATE):,.2f} kB"],
        ["its CPU, on all cores together", f"{changed * of_key[1] / 1000:,.0f} s"],
    ]  # fmt: skip
    told = table([f"{KEYS:,} keys, {RATE:,} rows/s", ""], rows)
    hour = 3600 * RATE / 64
    start, speed = partitions["seconds to the first rows"], per_core
    lines = []
    for workers in (1, 2, 4, 8, 16, 32, 64):
        seconds = simulate(64, workers, hour, start, speed)
        rate = 64 * hour / seconds
        lines.append([str(workers), f"{seconds:,.0f}", f"{rate:,.0f}", f"{rate / RATE:.2f}"])
    return told + "\n\n" + table(["64 partitions of an hour, workers", "s", "rows/s", "of the rate"], lines)


def simulate(n: int, workers: int, rows: float, start: float, speed: float) -> float:
    """Seconds until all partitions are learned, each a core; those that are not equal: a tenth more or less."""
    free = np.zeros(workers)
    for size in rows * np.random.default_rng(0).uniform(0.9, 1.1, n):
        free[free.argmin()] += start + size / speed
    return float(free.max())


if __name__ == "__main__":
    sys.exit(main())
