"""What one model per key costs: memory, speed and checkpoints, measured here; and what that means for a million keys.

    python -m benchmarks.bench_keyed [--quick] [--workers 1 2 4]

Rows have eight columns, and keys are drawn with equal chances, in chunks of 1,000: the more keys, the fewer rows each
has in a chunk. Every key has learned 100 rows before anything is timed. On Ray the workers share the cores of one
machine; where there are fewer cores than workers, more workers cannot be faster, and the figures show what they cost.

The last table is arithmetic, not a measurement: the constants above for 10⁶ keys on 10³ workers, with the loads that
hashing 10⁶ keys really gives. It takes no network into account.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost.cluster import KeyedBooster
from streamboost.cluster.hashing import token_of, workers_of
from streamboost.cluster.key_models import small_regressor
from streamboost.cluster.key_rows import parts_of, split
from streamboost.persistence import snapshots

COLUMNS = 8
CHUNK = 1000
LEARNED = 100  # rows of every key before anything is timed
KEYS, WORKERS = 1_000_000, 1_000  # of the simulation


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_keyed", __doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="numbers of workers on Ray")
    options = parser.parse_args(arguments)
    if options.quick:
        options.workers = options.workers[:1]
    load = os.getloadavg()[0]
    n_keys = [10, 100] if options.quick else [10, 100, 1000, 3000]
    n_chunks = 3 if options.quick else 12
    memory = per_key(5 if options.quick else 30, options.seed)
    cost = checkpoint(20 if options.quick else 300, options.seed)
    driver = driver_seconds(options.seed, 20_000 if options.quick else 200_000)
    speeds = {f"{n} keys": speed(n, n_chunks, options.seed) for n in n_keys}
    middle = n_keys[-2]
    speeds[f"{middle} keys, one in ten in memory"] = speed(middle, n_chunks // 4 or 1, options.seed, hot=middle // 10)
    workers = options.workers if importlib.util.find_spec("ray") else []
    speeds.update(
        {f"{middle} keys on Ray, {w} workers": speed(middle, n_chunks, options.seed, workers=w) for w in workers}
    )
    print(table(["a key", "kB"], [[what, f"{size / 1000:.1f}"] for what, size in memory.items()]), end="\n\n")
    print(table(["of a checkpoint", "ms a key"], [[what, f"{1000 * s:.2f}"] for what, s in cost.items()]), end="\n\n")
    print(
        table(
            [f"chunks of {CHUNK}", "rows/s", "ms a chunk, median", "messages a row"],
            [[what, f"{s['rows']:,.0f}", f"{s['ms']:.1f}", f"{s['messages']:.4f}"] for what, s in speeds.items()],
        ),
        end="\n\n",
    )
    figures = {"memory": memory, "checkpoint": cost, "driver": driver, "speed": speeds}
    figures.update(cores=os.cpu_count(), load_before=load, load_after=os.getloadavg()[0])
    far = simulate(figures, KEYS // 100 if options.quick else KEYS, WORKERS)
    print(table([f"{far['keys']:,} keys on {far['workers']:,} workers", "figure"], far["table"]))
    keep(options, "keyed", {**figures, "simulated": far})
    return 0


def chunk(rng: np.random.Generator, keys: Any) -> tuple[pa.Table, Any]:
    """Rows of given keys, each with an offset of its own."""
    X = rng.uniform(size=(len(keys), COLUMNS))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 10 * X[:, 3] + keys % 7 + rng.normal(size=len(keys))
    return pa.table({"key": keys, **{f"x{j}": X[:, j] for j in range(COLUMNS)}}), y


def taught(booster: KeyedBooster, n_keys: int, rng: np.random.Generator, n_rows: int = LEARNED) -> None:
    """Let every key learn some rows."""
    for start in range(0, n_keys, 50):
        booster.learn(*chunk(rng, np.repeat(np.arange(start, min(start + 50, n_keys)), n_rows)))


def per_key(n_keys: int, seed: int) -> dict[str, float]:
    """Bytes of a key once its memory of 256 rows is full, in the process and in the file."""
    rng = np.random.default_rng(seed)
    prior = small_regressor()
    prior.learn(*(lambda X, y: (X.drop_columns(["key"]), y))(*chunk(rng, np.arange(1000) % 50)))
    sizes = {}
    for what, given in (("", None), (", with a prior", prior)):
        with tempfile.TemporaryDirectory() as folder:
            booster = KeyedBooster("key", prior=given, directory=folder)
            taught(booster, 1, rng, 300)
            tracemalloc.start()
            taught(booster, n_keys, rng, 300)
            sizes["in memory" + what] = tracemalloc.get_traced_memory()[0] / n_keys
            tracemalloc.stop()
            model = booster.model_of(0)
            sizes["as a snapshot" + what] = float(len(snapshots.pack(model if given is None else model.model)))
            booster.detach()
            booster.close()
            size = os.path.getsize(f"{folder}/worker-00000/keys-of-1.sqlite")
            sizes["in the file, compressed" + what] = size / n_keys
    return sizes


def checkpoint(n_keys: int, seed: int) -> dict[str, float]:
    """Seconds a key of cuts in which all keys, and one in ten, have changed; and of going back to one."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder, KeyedBooster("key", directory=folder) as booster:
        taught(booster, n_keys, rng)
        taken = {"all keys changed": timed(booster.detach) / n_keys}
        few = max(n_keys // 10, 1)
        booster.learn(*chunk(rng, np.arange(few)))
        cut: list[Any] = []
        taken["one key in ten changed, a changed key"] = timed(lambda: cut.append(booster.detach())) / few
        taken["going back, a key used then"] = (
            timed(lambda: (booster.attach(cut[0]), booster.predict(chunk(rng, np.arange(n_keys))[0]))) / n_keys
        )
    return taken


def driver_seconds(seed: int, n_rows: int) -> dict[str, float]:
    """What the driver itself does for a row: find its worker, and sort it there."""
    rng = np.random.default_rng(seed)
    X, _ = chunk(rng, rng.integers(0, KEYS, n_rows))
    return {
        f"{n} workers": timed(lambda n=n: parts_of(split(X, "key"), n)) / n_rows  # type: ignore[misc]
        for n in (1, 10, WORKERS)
    }


def speed(
    n_keys: int, n_chunks: int, seed: int, hot: int | None = None, workers: int | None = None
) -> dict[str, float]:
    """Rows a second, a chunk's median time, and messages to workers for a row."""
    rng = np.random.default_rng(seed)
    where: dict[str, Any] = {} if workers is None else {"workers": workers, "engine": "ray"}
    with KeyedBooster("key", hot=hot or n_keys, **where) as booster:
        taught(booster, n_keys, rng)
        chunks = [chunk(rng, rng.integers(0, n_keys, CHUNK)) for _ in range(n_chunks + 1)]
        booster.learn(*chunks.pop())
        seconds = [timed(lambda part=part: booster.learn(*part)) for part in chunks]  # type: ignore[misc]
    messages = 1 if workers in (None, 1) else 2 * int(workers or 1)
    return {
        "rows": CHUNK / float(np.mean(seconds)),
        "ms": 1000 * float(np.median(seconds)),
        "messages": messages / CHUNK,
    }


def timed(act: Any) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def simulate(figures: dict[str, Any], n_keys: int, n_workers: int) -> dict[str, Any]:
    """What the constants come to at another scale."""
    loads = np.bincount(workers_of([token_of(key) for key in range(n_keys)], n_workers), minlength=n_workers)
    memory, cut, driver = figures["memory"], figures["checkpoint"], figures["driver"]
    fullest, mean = int(loads.max()), float(loads.mean())
    rows = [
        ["keys of a worker: mean, fullest", f"{mean:,.0f}, {fullest:,} ({fullest / mean:.2f} times the mean)"],
        ["memory of the fullest worker, all keys hot", f"{fullest * memory['in memory'] / 1e6:,.0f} MB"],
        ["memory of all workers, all keys hot", f"{n_keys * memory['in memory'] / 1e9:,.1f} GB"],
        ["memory of all workers, one key in ten hot", f"{n_keys * memory['in memory'] / 1e10:,.1f} GB"],
        ["files of all workers", f"{n_keys * memory['in the file, compressed'] / 1e9:,.1f} GB"],
        ["checkpoint, all keys changed", f"{fullest * cut['all keys changed']:,.1f} s, as the fullest worker takes"],
        ["checkpoint, one key in ten changed", f"{fullest * cut['all keys changed'] / 10:,.1f} s"],
    ]
    for size in (1_000, 10_000, 100_000):
        reached = n_workers * (1 - (1 - 1 / n_workers) ** size)
        rows.append([f"messages a row, chunks of {size:,}", f"{2 * reached / size:.3f}"])
    per_row = driver[f"{WORKERS} workers"]
    rows.append(["what one driver can sort, at most", f"{1 / per_row:,.0f} rows/s"])
    return {"keys": n_keys, "workers": n_workers, "fullest": fullest, "table": rows}


if __name__ == "__main__":
    sys.exit(main())
