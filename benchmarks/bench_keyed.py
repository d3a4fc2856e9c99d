"""What one model per key costs: beside a plain dict of models, in memory and on disk, and at a checkpoint.

    python -m benchmarks.bench_keyed [--quick]

Rows have eight columns, and keys are drawn with equal chances, in chunks: the more keys, the fewer rows each has in a
chunk. The plain dict is what one would write by hand: rows grouped by key, ``models[key].learn(rows, targets)``. Both
learn the same chunks in turn, and CPU time is compared. 100,000 keys have a memory of 32 rows, as two times as many
models are in memory; where nine of ten keys live on disk, they have the usual 256.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import KeyedModel
from streamboost.keyed import small_regressor, to_bytes
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, read_latest
from streamboost.persistence.object_graph import count_bytes

COLUMNS = 8


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_keyed", __doc__)
    options = parser.parse_args(arguments)
    quick, seed = options.quick, options.seed
    small = {"n_estimators": 5, "memory": 32}
    beside = {
        "200 keys, 50 rows a visit": against_dict(
            20 if quick else 200, 1000 if quick else 10_000, 3 if quick else 10, seed
        ),
        "100,000 keys, 1 row a visit": against_dict(
            1000 if quick else 100_000, 1000, 3 if quick else 150, seed, **small
        ),
    }
    memory = bytes_of_a_key(seed)
    disk = on_disk(200 if quick else 10_000, 3 if quick else 30, seed)
    saved = checkpoints(100 if quick else 2000, seed)
    print(
        table(
            ["beside a plain dict", "dict, rows/s of CPU", "KeyedModel", "ratio"],
            [[what, f"{b['dict']:,.0f}", f"{b['keyed']:,.0f}", f"{b['ratio']:.2f}"] for what, b in beside.items()],
        ),
        end="\n\n",
    )
    for title, found in (("a key", memory), ("nine of ten keys on disk", disk), ("checkpoints", saved)):
        print(table([title, ""], [[what, f"{value:,.4g}"] for what, value in found.items()]), end="\n\n")
    figures = {"beside": beside, "memory": memory, "disk": disk, "checkpoints": saved, "cores": os.cpu_count()}
    keep(options, "keyed", figures)
    return 0


def chunk(rng: np.random.Generator, keys: Any) -> tuple[pa.Table, Any]:
    """Rows of given keys, each with an offset of its own."""
    X = rng.uniform(size=(len(keys), COLUMNS))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 10 * X[:, 3] + keys % 7 + rng.normal(size=len(keys))
    return pa.table({"key": keys, **{f"x{j}": X[:, j] for j in range(COLUMNS)}}), y


def by_hand(models: dict[int, Any], X: pa.Table, y: Any, options: dict[str, Any]) -> Any:
    """A plain dict of models."""
    keys, rows, said = X["key"].to_numpy(), X.drop_columns(["key"]), np.empty(len(y))
    order = np.argsort(keys, kind="stable")
    rows, ends = rows.take(pa.array(order)), np.flatnonzero(np.diff(keys[order], append=-1)) + 1
    start = 0
    for stop in ends.tolist():
        own = order[start:stop]
        model = models.get(key := int(keys[own[0]]))
        if model is None:
            model = models[key] = small_regressor(**options)
        said[own] = model.learn(rows.slice(start, stop - start), y[own])
        start = stop
    return said


def against_dict(n_keys: int, size: int, n_chunks: int, seed: int, **options: Any) -> dict[str, float]:
    """Rows a second of CPU of both, on the same chunks in turn; the answers must be the same."""
    rng = np.random.default_rng(seed)
    keyed, models, taken = KeyedModel(small_regressor(**options), key="key", hot=n_keys), {}, np.zeros(2)
    first = chunk(rng, np.arange(n_keys))  # every key has a model before anything is timed
    for start in range(0, n_keys, 1000):
        some = first[0].slice(start, 1000), first[1][start : start + 1000]
        keyed.learn(*some)
        by_hand(models, *some, options)
    for number in range(n_chunks):
        X, y = chunk(rng, rng.integers(0, n_keys, size))
        said: dict[int, Any] = {}
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            said[which] = keyed.learn(X, y) if which else by_hand(models, X, y, options)
            taken[which] += time.process_time() - began
        assert (said[0] == said[1]).all()
    rows = n_chunks * size
    return {"dict": rows / taken[0], "keyed": rows / taken[1], "ratio": float(taken[0] / taken[1])}


def bytes_of_a_key(seed: int) -> dict[str, float]:
    """Bytes of a key once its memory of 256 rows is full, in the process and as packed."""
    rng = np.random.default_rng(seed)
    model = KeyedModel(key="key")
    model.learn(*chunk(rng, np.zeros(400, int)))
    one = model.model(0)
    return {"kB in memory": count_bytes(one) / 1000, "kB on disk": len(to_bytes(one)) / 1000}


def on_disk(n_keys: int, n_chunks: int, seed: int) -> dict[str, float]:
    """One key in ten in memory: the rate, and how much memory that takes beside the keys that are there."""
    rng = np.random.default_rng(seed)
    model = KeyedModel(key="key", hot=n_keys // 10)
    before = resident()
    for start in range(0, n_keys, 100):
        model.learn(*chunk(rng, np.repeat(np.arange(start, min(start + 100, n_keys)), 20)))
    began = time.process_time()
    for _ in range(n_chunks):
        model.learn(*chunk(rng, rng.integers(0, n_keys, 1000)))
    seconds = time.process_time() - began
    gc.collect()
    return {
        "rows/s of CPU, equal chances": 1000 * n_chunks / seconds,
        "keys": n_keys,
        "keys in memory": model.n_hot,
        "MB of memory": (resident() - before) / 1e6,
        "MB if all were in memory": n_keys * count_bytes(model.model(0)) / 1e6,
    }


def checkpoints(n_keys: int, seed: int) -> dict[str, float]:
    """What a checkpoint writes and how long it takes, of all keys and of one in ten; and going back."""
    rng, found = np.random.default_rng(seed), {}
    with tempfile.TemporaryDirectory() as folder, CheckpointStore(folder) as store:
        model = KeyedModel(key="key", hot=n_keys)
        for start in range(0, n_keys, 100):
            model.learn(*chunk(rng, np.repeat(np.arange(start, min(start + 100, n_keys)), 100)))
        for what, n in (("all keys changed", n_keys), ("one key in ten changed", n_keys // 10)):
            model.learn(*chunk(rng, np.arange(n)))
            before, began = written(), time.process_time()
            store.save(Checkpoint(model))
            found[f"{what}, ms a changed key"] = 1000 * (time.process_time() - began) / n
            found[f"{what}, kB a changed key"] = (written() - before) / n / 1000
        began = time.process_time()
        again = read_latest(Path(folder)).model
        found["opening, ms"] = 1000 * (time.process_time() - began)
        began = time.process_time()
        again.predict(chunk(rng, np.arange(n_keys))[0])
        found["a key brought to memory, ms"] = 1000 * (time.process_time() - began) / n_keys
    return found


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def written() -> int:
    """Bytes that this process has written."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


if __name__ == "__main__":
    sys.exit(main())
