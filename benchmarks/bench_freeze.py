"""What a frozen model takes beside the whole one: the file, and the copy that a server predicts with.

    python -m benchmarks.bench_freeze [--quick]

The files are those of models fitted to 20,000 rows of Friedman's stream, ten columns, with memories that stay as they
are and with those that grow, the default. The copies are made of default models fitted to ever more rows of twenty
columns: a deep copy and the copy that ``streamboost serve`` publishes, in turn, each with its first prediction; medians
of CPU time.
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
LADDER = (256, 1024, 4096, 16384)  # without growth
FITTED = (16384, 32768, 65536)
TURNS = 51


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_freeze", __doc__).parse_args(arguments)
    n_rows, fitted = (2000, [1024]) if options.quick else (ROWS, FITTED)
    files = [saved(memory, n_rows, options.seed) for memory in (LADDER, "grow")]
    copies = [published(n, options.seed) for n in fitted]
    rows = [(f"file, {n_rows:,} rows x 10 columns, {one['trees']:,} trees, MB", one, 1e-6) for one in files]
    for one in copies:
        named = f"copy, {one['rows']:,} rows x {COLUMNS} columns, {one['trees']:,} trees"
        rows += [(f"{named}, MB", one["bytes"], 1e-6), (f"{named}, CPU ms", one["seconds"], 1e3)]
    lines = [
        [name, *(f"{unit * pair[kind]:.2f}" for kind in ("whole", "frozen")), f"{pair['frozen'] / pair['whole']:.2f}"]
        for name, pair, unit in rows
    ]
    print(table(["", "whole", "frozen", "frozen over whole"], lines))
    keep(options, "freeze", {"files": files, "copies": copies})
    return 0


def n_trees(model: SGBRegressor) -> int:
    return sum(booster.stack.n_learners for booster in model.committee_.boosters)


def saved(memory: Any, n_rows: int, seed: int) -> dict[str, Any]:
    """Return the bytes of the files of a model and of its frozen form."""
    X, y, *_ = datasets.friedman(n_rows, noise=1.0, seed=seed)
    model = SGBRegressor(memory=memory, random_state=seed).fit(X, y)
    sizes = {"memory": memory, "trees": n_trees(model)}
    with tempfile.TemporaryDirectory() as folder:
        for name, one in (("whole", model), ("frozen", model.freeze())):
            one.save(file := Path(folder, name))
            sizes[name] = file.stat().st_size
    return sizes


def published(n_rows: int, seed: int) -> dict[str, Any]:
    """Return the bytes and the CPU time of a deep copy and of the copy that is published."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, COLUMNS))
    y = 3.0 * X[:, 0] + np.sin(3.0 * X[:, 1]) + X[:, 2] * X[:, 3] + rng.normal(size=len(X))
    model = SGBRegressor(random_state=seed).fit(X, y)

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
    return {
        "rows": n_rows,
        "trees": n_trees(model),
        "bytes": {name: size(make()) for name, make in ways.items()},
        "seconds": {name: statistics.median(times) for name, times in seconds.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
