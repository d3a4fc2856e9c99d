"""CPU milliseconds to grow one tree, beside LightGBM on one thread in the same run.

    python -m benchmarks.bench_tree_kernels [--quick]

Both boost the same rows under the square loss: grow a tree from histograms of 64 bins (LightGBM: 63 and one for the
missing), take a tenth of it off the residuals, and so on. Binning and compiling come before and are told apart.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost.errors import require
from streamboost.features.binning import Bins
from streamboost.stacks.tree import TreeStack

FloatArray = NDArray[np.float64]
GOAL = 1.3  # times LightGBM's CPU time, at most
MIN_SAMPLES_LEAF = 20
L2 = 1.0
STEP = 0.1


class Job(NamedTuple):
    """What a tree is grown from, and how deep."""

    rows: int
    features: int
    depth: int


JOBS = (Job(16_384, 10, 5), Job(65_536, 20, 6), Job(16_384, 100, 6))
QUICK = (Job(2_048, 10, 5), Job(4_096, 20, 6), Job(1_024, 100, 6))


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_tree_kernels", __doc__).parse_args(arguments)
    trees, repeats, jobs = (3, 1, QUICK) if options.quick else (20, 5, JOBS)
    figures: dict[str, Any] = {"first_tree_s": first_tree_seconds(options.seed), "trees": trees, "repeats": repeats}
    rows = []
    for job in track(jobs, "measuring", console=Console(stderr=True)):
        X, y = data(job, options.seed)
        # in turn, so that a busy moment of the machine meets both
        pairs = [[ours(X, y, job, trees), lightgbm(X, y, job, trees)] for _ in range(repeats)]
        mine, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
        name = f"{job.rows:,} x {job.features}, depth {job.depth}"
        reached = "yes" if mine <= GOAL * theirs else "no"
        rows.append([name, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{GOAL}", reached])
        figures[name] = {"streamboost_ms": mine, "lightgbm_ms": theirs, "ratio": mine / theirs, "pairs": pairs}
    print(table(["rows x features", "streamboost (ms)", "LightGBM (ms)", "ratio", "goal, at most", "reached"], rows))
    print(f"\nCPU time a tree, {trees} in a row, the median of {repeats}. Compiling the kernels, or loading them")
    print(f"compiled, took {figures['first_tree_s']:.1f} s and is not part of it.")
    keep(options, "tree_kernels", figures)
    return 0


def data(job: Job, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(job.rows, job.features))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(job.rows)


def first_tree_seconds(seed: int) -> float:
    job = Job(256, 3, 3)
    started = time.perf_counter()
    ours(*data(job, seed), job, trees=1)
    return time.perf_counter() - started


def ours(X: FloatArray, y: FloatArray, job: Job, trees: int) -> float:
    stack = TreeStack(1, max_depth=job.depth, min_samples_leaf=MIN_SAMPLES_LEAF, l2=L2)
    stack.open(job.features, 1)
    bins = Bins(stack.n_bins)
    bins.fit(X)
    window = SimpleNamespace(X=X, codes=bins.encode(X), bins=bins)
    target, weight = (y - y.mean())[:, None], np.ones(job.rows)

    def boost() -> None:
        for _ in range(trees):
            leaf = stack.refit(0, window, target, weight)
            np.subtract(target, STEP * stack.recall(leaf[:, None])[:, 0], out=target)

    return milliseconds(boost, trees)


def lightgbm(X: FloatArray, y: FloatArray, job: Job, trees: int) -> float:
    package = require("lightgbm", extra="bench", by="The comparison")
    options = {
        "objective": "l2",
        "num_threads": 1,
        "max_bin": 63,
        "max_depth": job.depth,
        "num_leaves": 2**job.depth,
        "min_data_in_leaf": MIN_SAMPLES_LEAF,
        "min_sum_hessian_in_leaf": 0.0,
        "lambda_l2": L2,
        "learning_rate": STEP,
        "force_col_wise": True,
        "verbosity": -1,
    }
    booster = package.Booster(options, package.Dataset(X, y, params=options))

    def boost() -> None:
        for _ in range(trees):
            booster.update()

    return milliseconds(boost, trees)


def milliseconds(boost: Callable[[], None], trees: int) -> float:
    """CPU time of one tree."""
    started = time.process_time()
    boost()
    return 1000.0 * (time.process_time() - started) / trees


if __name__ == "__main__":
    sys.exit(main())
