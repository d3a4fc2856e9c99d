"""What is asked of single losses and odd tables: counts, heavy tails, wide rows, columns far outside what was seen.

    python -m benchmarks.bench_points [--quick] [--points NAME ...]

Three streams for each, beside LightGBM. Of a stream each row is predicted, then learned; LightGBM is retrained on all
rows so far (at rows 100, 200, 400, 700, and every 1,000). For columns outside the range seen all learn the same rows
first and are asked afterwards.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks import peers, streams
from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import SGBRegressor

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats]
Figure = dict[str, Any]  # stream, model, and measures by name


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_points", __doc__)
    parser.add_argument("--points", nargs="+", choices=POINTS, metavar="NAME", help=f"of {', '.join(POINTS)}; or all")
    options = parser.parse_args(arguments)
    found: dict[str, list[Figure]] = {}
    for point in options.points or POINTS:
        runs = POINTS[point](options.quick, options.seed)
        found[point] = list(track(runs, point, console=Console(stderr=True)))
        measures = [name for name in found[point][0] if name not in ("stream", "model")]
        rows = [[run["stream"], run["model"], *(f"{run[name]:.4g}" for name in measures)] for run in found[point]]
        print(table([point.replace("_", " "), "model", *measures], rows), end="\n\n")
    keep(options, "points", found)
    return 0


HAS_LIGHTGBM = find_spec("lightgbm") is not None  # without it there are our figures alone


def through_lightgbm(X: Floats, y: Floats, seed: int, **settings: Any) -> Floats:
    """What LightGBM, retrained on all rows so far, says of each row before it learns it."""
    import lightgbm

    learner = peers.LightGBM(streams.Stream("", X, y, "regression"), seed)
    learner.fresh = lambda: lightgbm.LGBMRegressor(
        n_estimators=100, n_jobs=1, random_state=seed, verbose=-1, **settings
    )
    starts = range(0, len(y), learner.chunk)
    return np.concatenate([learner.learn(X[s : s + learner.chunk], y[s : s + learner.chunk]) for s in starts])


def rmse(said: Floats, y: Floats) -> float:
    return float(np.sqrt(np.mean((said - y) ** 2)))


# Counts: the deviance, and the error of the mean.


def visits(n: int, rng: np.random.Generator) -> Rows:
    """Counts of some ones, by a function that trees have to find."""
    X = rng.random((n, 8))
    rate = 1.2 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 1.5 * (X[:, 2] > 0.5) * X[:, 3] - X[:, 4]
    return X, rng.poisson(np.exp(rate)).astype(float)


def claims(n: int, rng: np.random.Generator) -> Rows:
    """Counts that are mostly 0."""
    X = rng.normal(size=(n, 10))
    rate = -2 + 0.6 * X[:, 0] - 0.5 * np.abs(X[:, 1]) + 0.7 * (X[:, 2] > 1)
    return X, rng.poisson(np.exp(rate)).astype(float)


def steep(n: int, rng: np.random.Generator) -> Rows:
    """Means from a tenth to a hundred."""
    X = rng.normal(size=(n, 6))
    rate = 1 + X[:, 0] + 0.8 * np.tanh(2 * X[:, 1]) + 0.8 * X[:, 2] * (X[:, 3] > 0)
    return X, rng.poisson(np.exp(rate)).astype(float)


def deviance(said: Floats, y: Floats) -> float:
    mean = np.maximum(said, 1e-9)
    logs = y * np.log(np.where(y > 0, y, 1.0) / mean)
    return float(2 * np.mean(logs - (y - mean)))


def counts(quick: bool, seed: int) -> Iterator[Figure]:
    n = 1_000 if quick else 10_000
    for make in (visits, claims, steep):
        X, y = make(n, np.random.default_rng(seed))
        models = {
            "streamboost, poisson": SGBRegressor("poisson", random_state=seed).learn(X, y),
            "streamboost, squares": SGBRegressor(random_state=seed).learn(X, y),
        }
        if HAS_LIGHTGBM:
            models["LightGBM, poisson"] = through_lightgbm(X, y, seed, objective="poisson")
        for name, said in models.items():
            yield {"stream": make.__name__, "model": name, "deviance": deviance(said, y), "RMSE": rmse(said, y)}


# Heavy tails: the mean absolute error.


def _friedman(n: int, rng: np.random.Generator) -> Rows:
    X = rng.random((n, 10))
    return X, 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def student(n: int, rng: np.random.Generator) -> Rows:
    """Noise whose variance is infinite."""
    X, y = _friedman(n, rng)
    return X, y + 1.5 * rng.standard_t(1.5, n)


def outliers(n: int, rng: np.random.Generator) -> Rows:
    """One row in twenty is far off."""
    X, y = _friedman(n, rng)
    return X, y + rng.normal(size=n) * np.where(rng.random(n) < 0.05, 50.0, 1.0)


def amounts(n: int, rng: np.random.Generator) -> Rows:
    """Noise that multiplies, as that of prices does."""
    X, y = _friedman(n, rng)
    return X, y * np.exp(rng.normal(size=n))


def heavy_tails(quick: bool, seed: int) -> Iterator[Figure]:
    n = 1_000 if quick else 10_000
    for make in (student, outliers, amounts):
        X, y = make(n, np.random.default_rng(seed))
        for loss in ("absolute_error", "huber", "squared_error"):
            said = SGBRegressor(loss, random_state=seed).learn(X, y)
            yield {"stream": make.__name__, "model": f"streamboost, {loss}", "MAE": float(np.mean(np.abs(said - y)))}
        for loss in ("mae", "huber") if HAS_LIGHTGBM else ():
            said = through_lightgbm(X, y, seed, objective=loss)
            yield {"stream": make.__name__, "model": f"LightGBM, {loss}", "MAE": float(np.mean(np.abs(said - y)))}


# Wide rows: the error over all rows and over the last fifth, and rows a second.


def dense(n: int, rng: np.random.Generator) -> Rows:
    """300 columns that all matter a little, and two that trees have to find."""
    X = rng.normal(size=(n, 300))
    return X, X @ rng.normal(size=300) / 17.0 + 2.0 * (X[:, 0] > 0) * (X[:, 1] > 0) + rng.normal(size=n)


def one_hot(n: int, rng: np.random.Generator) -> Rows:
    """500 columns that are 1 in one of ten rows at most, and 0 otherwise."""
    X = (rng.random((n, 500)) < rng.uniform(0.005, 0.1, 500)).astype(float)
    weights = rng.normal(size=500) * (rng.random(500) < 0.2)
    return X, X @ weights + 2.0 * X[:, 0] + rng.normal(size=n)


def mostly_noise(n: int, rng: np.random.Generator) -> Rows:
    """1,000 columns of which five matter."""
    X = rng.random((n, 1000))
    y = 4 * np.sin(np.pi * X[:, 100] * X[:, 200]) + 8 * (X[:, 300] - 0.5) ** 2 + 4 * X[:, 400] + 2 * X[:, 500]
    return X, y + rng.normal(size=n)


def wide(quick: bool, seed: int) -> Iterator[Figure]:
    n = 500 if quick else 4_000
    for make in (dense, one_hot, mostly_noise):
        X, y = make(n, np.random.default_rng(seed))
        SGBRegressor(random_state=seed).learn(X[:100], y[:100])  # compiled code is loaded before the clock starts
        models = {
            "streamboost": lambda: SGBRegressor(random_state=seed).learn(X, y),  # noqa: B023
        }
        if HAS_LIGHTGBM:
            models["LightGBM"] = lambda: through_lightgbm(X, y, seed)  # noqa: B023
        for name, learn in models.items():
            before = time.process_time()
            said = learn()
            took, last = time.process_time() - before, slice(n - n // 5, None)
            first = slice(0, 100)
            yield {
                "stream": make.__name__, "model": name, "RMSE, first 100": rmse(said[first], y[first]),
                "RMSE": rmse(said, y), "RMSE, last fifth": rmse(said[last], y[last]), "rows/s of CPU": n / took,
            }  # fmt: skip


# Columns far outside what was seen: rows that are learned, and rows that are asked of afterwards.


def shuffled_time(n: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """A column of seconds since 1970, learned in any order; a fold that nobody has seen is asked of."""
    X, y = _friedman(n, rng)
    seconds = 1.6e9 + 60.0 * np.arange(n)
    order = rng.permutation(n)
    X, y = np.column_stack([seconds, X])[order], (y + np.sin(seconds / 5e4) + rng.normal(size=n))[order]
    return (X[: n * 4 // 5], y[: n * 4 // 5]), (X[n * 4 // 5 :], y[n * 4 // 5 :])


def row_number(n: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """A column of numbers given in turn; the rows asked of come ten times as far on."""
    X, y = _friedman(n, rng)
    number = np.arange(n, dtype=float)
    number[n * 4 // 5 :] += 10.0 * n
    X, y = np.column_stack([number, X]), y + rng.normal(size=n)
    return (X[: n * 4 // 5], y[: n * 4 // 5]), (X[n * 4 // 5 :], y[n * 4 // 5 :])


def spike(n: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """A sensor that says a million times too much in one of twenty rows asked of."""
    X, y = _friedman(n, rng)
    y = y + rng.normal(size=n)
    train, test = (X[: n * 4 // 5], y[: n * 4 // 5]), (X[n * 4 // 5 :].copy(), y[n * 4 // 5 :])
    test[0][::20, 3] *= 1e6
    return train, test


def extrapolation(quick: bool, seed: int) -> Iterator[Figure]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    n = 1_000 if quick else 10_000
    makers: dict[str, Callable[[], Any]] = {
        "streamboost, partial_fit": lambda: SGBRegressor(random_state=seed),
        "HistGradientBoosting": lambda: HistGradientBoostingRegressor(random_state=seed),
    }
    if HAS_LIGHTGBM:
        import lightgbm

        makers["LightGBM"] = lambda: lightgbm.LGBMRegressor(n_jobs=1, random_state=seed, verbose=-1)
    for make in (shuffled_time, row_number, spike):
        (X, y), (asked, right) = make(n, np.random.default_rng(seed))
        for name, maker in makers.items():
            model = maker()
            model = model.partial_fit(X, y) if hasattr(model, "partial_fit") else model.fit(X, y)
            said = model.predict(asked)
            worst = float(np.abs(said - right).max())
            yield {"stream": make.__name__, "model": name, "RMSE": rmse(said, right), "largest error": worst}


POINTS: dict[str, Callable[[bool, int], Iterator[Figure]]] = {
    "counts": counts,
    "heavy_tails": heavy_tails,
    "wide": wide,
    "extrapolation": extrapolation,
}


if __name__ == "__main__":
    sys.exit(main())
