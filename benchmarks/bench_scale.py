"""Accuracy that grows with the rows, beside LightGBM trained on all rows so far: long streams, and shuffled tables.

    python -m benchmarks.bench_scale [--quick] [--streams NAME ...] [--tables NAME ...] [--seeds N]

Streams are learned row by row by the default model; at each mark it is tested on 5,000 other rows, without noise,
beside LightGBM with 127 leaves (the better of 200 and 500 trees at 0.1) trained on all rows up to there. Tables are
shuffled: ``fit`` on four fifths, RMSE or log loss of the rest, beside the better of LightGBM's defaults and 500 trees
of 63 leaves at 0.05. Errors and CPU times are ratios to LightGBM's.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks import streams
from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import SGBClassifier, SGBRegressor

Array = NDArray[Any]
MARKS = (16_384, 30_000, 50_000, 100_000, 200_000, 300_000)
TABLES = ("cal_housing", "cpu_act", "wine", "bike_sharing", "metro_traffic", "electricity", "abalone", "covtype")
LARGEST_TABLE = 60_000  # rows of a table, drawn where it has more
LADDER = (256, 1024, 4096, 16384)


def sines(n: int, seed: int) -> tuple[Array, Array, Array]:
    """Rows, the truth and the targets: a sum of twelve waves of two columns each, of fifteen, and noise of 0.5."""
    shape, rows = np.random.default_rng(7), np.random.default_rng(seed)
    speeds, columns = shape.uniform(1, 4, (12, 2)) * np.pi, shape.integers(0, 15, (12, 2))
    X, heights = rows.uniform(size=(n, 15)), shape.uniform(1, 3, 12)
    truth = np.sin((X[:, columns] * speeds).sum(axis=2)) @ heights
    return X, truth, truth + 0.5 * rows.normal(size=n)


def friedman(n: int, seed: int) -> tuple[Array, Array, Array]:
    """Friedman's function of five columns, five more that are noise, and noise of 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 10))
    truth = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, truth, truth + rng.normal(size=n)


STREAMS: dict[str, Callable[[int, int], tuple[Array, Array, Array]]] = {"sines": sines, "friedman": friedman}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_scale", __doc__)
    parser.add_argument("--streams", nargs="*", default=list(STREAMS), choices=STREAMS)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--seeds", type=int, default=3, help="shuffles of each table")
    options = parser.parse_args(arguments)
    if options.quick:
        options.tables, options.streams, options.seeds = ["abalone"], ["friedman"], 1
    marks = (2_000,) if options.quick else MARKS
    console, grown, tables = Console(stderr=True), [], []
    for name in options.streams:
        grown += [
            {"stream": name, **figures} for figures in track(over_rows(name, marks), name, len(marks), console=console)
        ]
    for name in options.tables:
        try:
            shuffles = [on_table(name, seed) for seed in track(range(options.seeds), name, console=console)]
        except streams.MissingData as missing:
            print(missing, file=sys.stderr)
            continue
        tables.append({"table": name, **{key: mean(one[key] for one in shuffles) for key in shuffles[0]}})
    head = ["stream", "rows", "error", "LightGBM's", "ratio", "CPU, ratio", "trees"]
    print(table(head, [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in one.values()] for one in grown]))
    head = ["table", "one pass", "fit", "CPU of fit"]
    print(table(head, [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in one.values()] for one in tables]))
    if tables:
        print(f"geometric mean of fit: {mean(one['fit'] for one in tables):.3f}")
    keep(options, "scale", {"streams": grown, "tables": tables})
    return 0


def over_rows(name: str, marks: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Learn a stream up to each mark; tell the errors there, and what all of it has cost."""
    X, _, y = STREAMS[name](marks[-1], 0)
    X_test, truth, _ = STREAMS[name](5_000, 99)
    model, spent, last = SGBRegressor(random_state=0), 0.0, 0
    model.learn(X[:300], y[:300])  # what is compiled is not counted
    model = SGBRegressor(random_state=0)
    for mark in marks:
        seconds, _ = timed(lambda: model.learn(X[last:mark], y[last:mark]))  # noqa: B023 (called at once)
        spent, last = spent + seconds, mark
        theirs = [lightgbm(X[:mark], y[:mark], X_test, truth, 0, n_estimators=n, num_leaves=127) for n in (200, 500)]
        error, cost = min(theirs)
        ours, trees = rmse(model.predict(X_test), truth), model.committee_.boosters[0].stack.n_learners
        yield {
            "rows": mark,
            "error": ours,
            "lightgbm": error,
            "ratio": ours / error,
            "cpu": spent / cost,
            "trees": trees,
        }


def on_table(name: str, seed: int) -> dict[str, float]:
    """Fit four fifths of a table; tell the errors on the rest and the CPU time, as ratios to LightGBM's."""
    stream = streams.load(name, 10**9, 0)
    order = np.random.default_rng(seed).permutation(len(stream.y))[:LARGEST_TABLE]
    train, test = np.split(order, [int(0.8 * len(order))])
    X, y, X_test, y_test = stream.X[train], stream.y[train], stream.X[test], stream.y[test]
    k = stream.n_classes
    shapes: tuple[dict[str, Any], ...] = ({}, {"n_estimators": 500, "num_leaves": 63, "learning_rate": 0.05})
    error, cost = min(lightgbm(X, y, X_test, y_test, k, **shape) for shape in shapes)
    make: Any = SGBClassifier if k else SGBRegressor
    one_pass, swept = make(memory=LADDER, random_state=0), make(random_state=0)
    one_pass.fit(X, y)
    seconds, _ = timed(lambda: swept.fit(X, y))
    errors = [log_loss(m, X_test, y_test) if k else rmse(m.predict(X_test), y_test) for m in (one_pass, swept)]
    return {"one_pass": errors[0] / error, "fit": errors[1] / error, "cpu": seconds / cost}


def lightgbm(X: Array, y: Array, X_test: Array, y_test: Array, k: int, **shape: Any) -> tuple[float, float]:
    """The error of LightGBM on one core, and its CPU time."""
    import lightgbm as lgb

    model = (lgb.LGBMClassifier if k else lgb.LGBMRegressor)(n_jobs=1, verbose=-1, **shape)
    seconds, _ = timed(lambda: model.fit(X, y))
    return (log_loss(model, X_test, y_test) if k else rmse(model.predict(X_test), y_test)), seconds


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def rmse(said: Array, y: Array) -> float:
    return float(np.sqrt(np.mean((said - y) ** 2)))


def log_loss(model: Any, X: Array, y: Array) -> float:
    places = {label: k for k, label in enumerate(model.classes_)}
    shares = model.predict_proba(X)[np.arange(len(y)), [places[label] for label in y]]
    return float(-np.mean(np.log(np.maximum(shares, 1e-15))))


def mean(values: Any) -> float:
    """The geometric mean of ratios."""
    return math.exp(np.mean([math.log(value) for value in values]))


if __name__ == "__main__":
    sys.exit(main())
