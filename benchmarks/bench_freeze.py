"""What a frozen model takes beside the whole one: the file, and the copy that a server predicts with.

    python -m benchmarks.bench_freeze [--quick]

The files are those of the default model after 20,000 rows of Friedman's stream, ten columns. The copies are made of
models whose longest memory is ever longer, and full, of rows of twenty columns: a deep copy and the copy that
``streamboost serve`` publishes, in turn, each with its first prediction; medians of CPU time.
"""

from __future__ import annotations

import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import SGBRegressor, datasets
from streamboost.estimators.describe import size
from streamboost.serving.writer import ModelCopy

ROWS, COLUMNS = 20_000, 20
SHORT, MEMORIES = (128, 256, 512), (8192, 16384, 65536)  # those that stay, and the longest
TURNS = 51


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_freeze", __doc__).parse_args(arguments)
    n_rows, memories = (2000, [1024]) if options.quick else (ROWS, MEMORIES)
    files = saved(n_rows, options.seed)
    copies = [published(memory, options.seed) for memory in memories]
    rows = [[f"file, {n_rows:,} rows x 10 columns, MB", *(f"{files[name] / 1e6:.2f}" for name in ("whole", "frozen"))]]
    for one in copies:
        kinds = one["whole"], one["frozen"]
        rows.append([f"copy, memory {one['memory']:,}, MB", *(f"{kind['bytes'] / 1e6:.2f}" for kind in kinds)])
        rows.append([f"copy, memory {one['memory']:,}, CPU ms", *(f"{1e3 * kind['seconds']:.2f}" for kind in kinds)])
    lines = [[*row, f"{float(row[2]) / float(row[1]):.2f}"] for row in rows]
    print(table(["", "whole", "frozen", "frozen over whole"], lines))
    keep(options, "freeze", {"files": files, "copies": copies})
    return 0


def saved(n_rows: int, seed: int) -> dict[str, int]:
    """Return the bytes of the files of a model and of its frozen form."""
    X, y, *_ = datasets.friedman(n_rows, noise=1.0, seed=seed)
    model = SGBRegressor(random_state=seed).partial_fit(X, y)
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, one in (("whole", model), ("frozen", model.freeze())):
            one.save(file := Path(folder, name))
            sizes[name] = file.stat().st_size
    return sizes


def published(memory: int, seed: int) -> dict[str, Any]:
    """Return the bytes and the CPU time of a deep copy and of the copy that is published."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(memory, COLUMNS))
    y = 3.0 * X[:, 0] + np.sin(3.0 * X[:, 1]) + X[:, 2] * X[:, 3] + rng.normal(size=len(X))
    model = SGBRegressor(memory=(*SHORT, memory), random_state=seed).fit(X, y)

    def whole() -> SGBRegressor:
        made = copy.deepcopy(model)
        made.predict_one({})
        return made

    def frozen() -> SGBRegressor:
        made: SGBRegressor = ModelCopy(model, len(X), 0, 0.0).model
        return made

    ways: dict[str, Callable[[], SGBRegressor]] = {"whole": whole, "frozen": frozen}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, make in ways.items():
            started = time.process_time()
            make()
            seconds[name].append(time.process_time() - started)
    told = {name: {"bytes": size(ways[name]()), "seconds": statistics.median(seconds[name])} for name in ways}
    return {"memory": memory, **told}


if __name__ == "__main__":
    sys.exit(main())
