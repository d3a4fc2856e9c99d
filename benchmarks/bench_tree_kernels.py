"""CPU milliseconds to grow one tree, beside LightGBM on one thread in the same run.

    python benchmarks/bench_tree_kernels.py [--quick]

Both boost the same rows under the square loss: grow a tree from histograms of 64 bins (LightGBM: 63 and one for the
missing), take a tenth of it off the residuals, and so on. Binning and compiling come before and are told apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from bench_throughput import SEED, markdown, versions
from rich.console import Console
from rich.progress import track

from streamboost.arrays import FloatArray
from streamboost.binning import Bins
from streamboost.errors import require
from streamboost.stacks.tree import TreeStack

MIN_SAMPLES_LEAF = 20
L2 = 1.0
STEP = 0.1


class Job(NamedTuple):
    """What a tree is grown from, and how deep."""

    rows: int
    features: int
    depth: int


JOBS = (Job(16_384, 10, 5), Job(65_536, 20, 6))
QUICK = (Job(2_048, 10, 5), Job(4_096, 20, 6))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows and trees: to see that it works")
    quick = parser.parse_args(arguments).quick
    trees, repeats, jobs = (3, 1, QUICK) if quick else (20, 5, JOBS)
    print(f"Uniform rows, seed {SEED}; milliseconds of CPU a tree, {trees} trees in a row, the median of {repeats}.")
    print(versions("numpy", "numba", "lightgbm"))
    print(f"Compiling, or loading what was compiled before: {compile_seconds():.1f} s.\n")
    lines = []
    for job in track(jobs, "measuring", console=Console(stderr=True)):
        X, y = data(job)
        # in turn, so that a busy moment of the machine meets both
        pairs = [(ours(X, y, job, trees), lightgbm(X, y, job, trees)) for _ in range(repeats)]
        mine, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
        name = f"{job.rows:,} x {job.features}, depth {job.depth}"
        lines.append((name, f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}"))
    print(markdown(("rows x features", "streamboost (ms)", "LightGBM (ms)", "ratio"), lines))
    return 0


def data(job: Job) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(SEED)
    X = rng.uniform(size=(job.rows, job.features))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(job.rows)


def compile_seconds() -> float:
    job = Job(256, 3, 3)
    started = time.perf_counter()
    ours(*data(job), job, trees=1)
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
        "seed": SEED,
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
    raise SystemExit(main())
