"""Rows per CPU second, learned and predicted row after row, beside two of River's models in the same run.

    python benchmarks/bench_throughput.py [--quick]

Every model first learns a warm-up that is not timed; the default one fills the memory, so that what is timed is the
steady state. Compile time is told apart. On a shared machine the ratios are worth more than the rates.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from streamboost import SGBRegressor
from streamboost.arrays import FloatArray
from streamboost.datasets import friedman
from streamboost.errors import require

SEED = 0

Learn = Callable[[FloatArray, FloatArray], FloatArray]  # rows and targets to the predictions made before learning


class Sizes(NamedTuple):
    """How much is learned before and during a measurement, and how often."""

    warm_up: int
    rows: int
    repeats: int


class Result(NamedTuple):
    """What a model achieved."""

    name: str
    rate: float  # rows per CPU second, the median over the repeats
    rmse: float  # over the timed rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows, once: to see that it works")
    sizes = Sizes(500, 1000, 1) if parser.parse_args(arguments).quick else Sizes(16_384, 10_000, 3)
    print(f"Friedman's stream, 10 features, seed {SEED}: {sizes.warm_up:,} rows to warm up, then {sizes.rows:,} rows,")
    print(f"the median of {sizes.repeats}. {versions('numpy', 'numba', 'river')}")
    print(f"Compiling, or loading what was compiled before: {compile_seconds():.1f} s.\n")
    makers = {
        "SGBRegressor, learn (chunks)": our_chunks,
        "SGBRegressor, predict_one and learn_one": our_rows,
        "River HoeffdingTreeRegressor": river_tree,
        "River LinearRegression, scaled": river_line,
    }
    jobs = [(name, make) for name, make in makers.items() for _ in range(sizes.repeats)]
    measured: dict[str, list[Result]] = {}
    for name, make in track(jobs, "measuring", console=Console(stderr=True)):
        measured.setdefault(name, []).append(measure(name, make(), sizes))
    results = [Result(name, statistics.median(r.rate for r in runs), runs[0].rmse) for name, runs in measured.items()]
    tree = next(result.rate for result in results if "Hoeffding" in result.name)
    rows = [(r.name, f"{r.rate:,.0f}", f"{r.rate / tree:.2f}", f"{r.rmse:.2f}") for r in results]
    print(markdown(("model", "rows / CPU s", "over the Hoeffding tree", "RMSE"), rows))
    return 0


def compile_seconds() -> float:
    """Time for the first rows of a process, which meet every kernel."""
    X, y, *_ = friedman(200, seed=SEED + 1)
    started = time.perf_counter()
    our_chunks()(X, y)
    return time.perf_counter() - started


def measure(name: str, learn: Learn, sizes: Sizes) -> Result:
    X, y, *_ = friedman(sizes.warm_up + sizes.rows, seed=SEED)
    learn(X[: sizes.warm_up], y[: sizes.warm_up])
    X, y = X[sizes.warm_up :], y[sizes.warm_up :]
    started = time.process_time()
    said = learn(X, y)
    seconds = time.process_time() - started
    return Result(name, len(X) / seconds, float(np.sqrt(np.mean((said - y) ** 2))))


# The models: each a function that predicts rows, then learns them.


def our_chunks() -> Learn:
    model = SGBRegressor(random_state=SEED)

    def learn(X: FloatArray, y: FloatArray) -> FloatArray:
        return np.concatenate([model.learn(X[i : i + 256], y[i : i + 256]) for i in range(0, len(X), 256)])

    return learn


def our_rows() -> Learn:
    return row_by_row(SGBRegressor(random_state=SEED))


def river_tree() -> Learn:
    tree = require("river.tree", extra="river", by="The comparison")
    return row_by_row(tree.HoeffdingTreeRegressor())


def river_line() -> Learn:
    linear_model = require("river.linear_model", extra="river", by="The comparison")
    preprocessing = require("river.preprocessing", extra="river", by="The comparison")
    return row_by_row(preprocessing.StandardScaler() | linear_model.LinearRegression())


def row_by_row(model: Any) -> Learn:
    """River's dialect, the making of the dict included, which every caller with arrays pays for."""

    def learn(X: FloatArray, y: FloatArray) -> FloatArray:
        said = []
        for x, target in zip(X.tolist(), y.tolist(), strict=True):
            row = dict(enumerate(x))
            said.append(model.predict_one(row))
            model.learn_one(row, target)
        return np.array(said)

    return learn


# What is printed; bench_tree_kernels.py prints the same way.


def versions(*packages: str) -> str:
    named = ", ".join(f"{package} {version(package)}" for package in ("streamboost", *packages))
    return f"Python {platform.python_version()}, {named}; {platform.machine()}, {platform.system()}."


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    marks = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, marks, *rows))


if __name__ == "__main__":
    raise SystemExit(main())
