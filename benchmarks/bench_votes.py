"""What vote and combination make of rare classes, late labels, trends and columns of many levels, beside LightGBM.

    python -m benchmarks.bench_votes [--quick] [--points NAME ...]

Every row is predicted before it is learned; figures are those of the last half. LightGBM is retrained on all rows so
far, a twentieth of the stream apart, with its defaults and with settings for the case: small steps and trees for rare
classes, less smoothing for many levels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from sklearn.datasets import make_friedman1
from sklearn.metrics import average_precision_score

from benchmarks import streams
from benchmarks.bench_accuracy import error, keep, parser_of
from benchmarks.report import figure, table
from streamboost import SGBClassifier, SGBRegressor
from streamboost.boosting.combining import Combination

Values = NDArray[Any]
Figure = dict[str, Any]  # stream, measure, and a figure of each model
RETRAININGS = 20
LEAST = 1e-4  # a probability counts as no less
CAREFUL = {"learning_rate": 0.03, "n_estimators": 200, "num_leaves": 15}
MANY_LEVELS = {"cat_smooth": 1, "min_data_per_group": 5, "max_cat_threshold": 256}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_votes", __doc__)
    parser.add_argument("--points", nargs="+", choices=POINTS, default=list(POINTS), metavar="NAME")
    options = parser.parse_args(arguments)
    figures: dict[str, list[Figure]] = {}
    for point in options.points:
        found = track(POINTS[point](20 if options.quick else 1, options.seed), point, console=Console(stderr=True))
        figures[point] = list(found)
        models = [name for name in figures[point][0] if name not in ("stream", "measure")]
        rows = [[one["stream"], one["measure"], *(figure(one[name]) for name in models)] for one in figures[point]]
        print(table([point, "measure", *models], rows), end="\n\n")
    keep(options, "votes", figures)
    return 0


# Rare classes: one in 500, in 100, in 50.


def rare(share: int, seed: int) -> Iterator[Figure]:
    for odds, n, log_odds in ((500, 50_000, boxes), (100, 20_000, waves), (50, 20_000, products)):
        n //= share
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (n, 10))
        truth = with_mean(1.5 * log_odds(X.T), 1 / odds)
        y = (rng.random(n) < truth).astype(int)
        for part in (y[: n // 2], y[n // 2 :]):
            part[0] |= not part.any()  # of few rows, in a quick run
        said = {"streamboost": learned(SGBClassifier(random_state=seed), X, y)[:, -1]}
        for name, settings in (("LightGBM", {}), ("LightGBM, careful", CAREFUL)):
            said[name] = retrained(X, y, seed, settings)[:, -1]
        said["the truth"] = truth
        half = slice(n // 2, None)
        what = f"1:{odds}, {n:,} rows"
        scores = {name: average_precision_score(y[half], p[half]) for name, p in said.items()}
        yield {"stream": what, "measure": "PR-AUC", **scores}
        scores = {name: log_loss(np.column_stack([1 - p, p])[half], y[half]) for name, p in said.items()}
        yield {"stream": what, "measure": "log loss", **scores}


def boxes(x: Values) -> Values:
    return 6.0 * ((x[0] > 0.2) & (x[1] < -0.1) & (x[2] > 0)) + 3.0 * np.maximum(x[3], x[4]) * (x[5] > 0)


def waves(x: Values) -> Values:
    return 3.0 * np.sin(3 * x[0] * x[1]) + 4.0 * np.maximum(x[2], x[3]) * (x[4] > 0) + 2.0 * np.abs(x[5])


def products(x: Values) -> Values:
    return 6.0 * x[0] * x[1] + 3.0 * x[2] * np.sign(x[3]) - 2.0 * x[4] ** 2


def with_mean(log_odds: Values, mean: float) -> Values:
    """Return probabilities of these log-odds, moved so that their mean is as given."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        is_high = np.mean(1 / (1 + np.exp(-log_odds - middle))) > mean
        low, high = (low, middle) if is_high else (middle, high)
    return 1 / (1 + np.exp(-log_odds - low))


# Labels that come late.

LATE = ("abalone", "friedman", "friedman_drift", "bike_sharing", "agrawal_drift", "sea_drift", "electricity")


def late(share: int, seed: int) -> Iterator[Figure]:
    for name in LATE:
        stream = streams.load(name, 8000 // share, seed)
        make = SGBClassifier if stream.n_classes else SGBRegressor
        measure = log_loss if stream.n_classes else error
        for rows in (0, 24, 1000 // share):
            said = {"streamboost": learned_late(make(random_state=seed), stream, rows)}
            said["scores handed back"] = learned_late(make(random_state=seed), stream, rows, keeps=True)
            try:
                Combination.combines = False
                said["the vote alone"] = learned_late(make(random_state=seed), stream, rows)
            finally:
                Combination.combines = True
            said["LightGBM"] = retrained(stream.X, stream.y, seed, {}, rows)
            half = slice(len(stream.y) // 2, None)
            found = {model: measure(each[half], stream.y[half]) for model, each in said.items()}
            what = "log loss" if stream.n_classes else "RMSE"
            yield {"stream": f"{name}, {rows:,} rows late", "measure": what, **found}


def learned_late(model: Any, stream: streams.Stream, late: int, keeps: bool = False) -> Values:
    """Return what a model says of each row when the label of the row so far before it is the latest it has.

    If it ``keeps`` what experts said of a row when it was predicted, that is handed back with the label.
    """
    if late == 0:
        return learned(model, stream.X, stream.y)
    n, step, known = len(stream.y), max(late // 8, 1), 0
    said, kept = np.zeros((n, stream.n_classes) if stream.n_classes else n), [None] * n
    for start in range(0, n, step):
        if start - late > known:
            rows = slice(known, start - late)
            model.learn(stream.X[rows], stream.y[rows], expert_scores=kept[rows] if keeps else None)
            known = start - late
        if known:
            rows = slice(start, min(start + step, n))
            scores, experts = model.raw_and_expert_scores(stream.X[rows])
            kept[rows] = list(experts)
            if stream.n_classes:
                said[rows, model.classes_] = model.predict_from_scores(scores, "predict_proba")
            else:
                said[rows] = model.predict_from_scores(scores)
    return said


# Trends.


def trend(share: int, seed: int) -> Iterator[Figure]:
    n = 3000 // min(share, 3)
    rows, target = make_friedman1(n, noise=1.0, random_state=seed)
    X, time = np.column_stack([rows, np.arange(n)]), np.arange(n)
    for name, way in (("0.02 a row", 0.02 * time), ("-0.5 a row", -0.5 * time), ("squares", 1e-4 * time**2)):
        y = target + way
        said = {"streamboost": learned(SGBRegressor(random_state=seed), X, y), "LightGBM": retrained(X, y, seed, {})}
        half = slice(n // 2, None)
        yield {"stream": name, "measure": "RMSE", **{model: error(each[half], y[half]) for model, each in said.items()}}


# Columns of many levels.


def levels(share: int, seed: int) -> Iterator[Figure]:
    for n_levels, n, power in ((2000, 20_000, 0.0), (5000, 30_000, 0.7), (8000, 40_000, 0.0)):
        n //= share
        rng = np.random.default_rng(seed)
        effects, odds = 2.0 * rng.standard_normal(n_levels), np.arange(1, n_levels + 1.0) ** -power
        codes = rng.choice(n_levels, size=n, p=odds / odds.sum())
        x = rng.random((4, n))
        y = effects[codes] + 3 * np.sin(6 * x[0]) * (x[1] > 0.5) + x[2] + rng.standard_normal(n)
        X = pd.DataFrame({"who": [f"u{code}" for code in codes]} | {f"x{j}": x[j] for j in range(4)})
        said = {"streamboost": learned(SGBRegressor(random_state=seed), X, y)}
        X["who"] = pd.Categorical(X["who"])
        for name, settings in (("LightGBM", {}), ("LightGBM, for many levels", MANY_LEVELS)):
            said[name] = retrained(X, y, seed, settings)
        half = slice(n // 2, None)
        found = {model: error(each[half], y[half]) for model, each in said.items()}
        yield {"stream": f"{n_levels:,} levels, {n:,} rows", "measure": "RMSE", **found}


def learned(model: Any, X: Any, y: Values) -> Values:
    """Return what a model says of each row before it learns it, of classes their probabilities."""
    said: Values = model.learn(X, y, method="predict_proba") if hasattr(model, "predict_proba") else model.learn(X, y)
    return said


def retrained(X: Any, y: Values, seed: int, settings: dict[str, Any], late: int = 0) -> Values:
    """Return what LightGBM says of the last half, each twentieth by a model of all rows whose labels are there."""
    import lightgbm

    is_classes, n = np.issubdtype(y.dtype, np.integer), len(y)
    kind = lightgbm.LGBMClassifier if is_classes else lightgbm.LGBMRegressor
    said = np.zeros((n, int(y.max()) + 1) if is_classes else n)
    step = max(n // RETRAININGS, 1)
    for start in range(n // 2, n, step):
        model = kind(n_jobs=1, random_state=seed, verbose=-1, **settings).fit(X[: start - late], y[: start - late])
        rows = slice(start, start + step)
        if is_classes:
            said[rows, model.classes_] = model.predict_proba(X[rows])
        else:
            said[rows] = model.predict(X[rows])
    return said


def log_loss(said: Values, y: Values) -> float:
    """Return the mean log loss of probabilities (n, K)."""
    return float(-np.mean(np.log(np.maximum(said[np.arange(len(y)), y], LEAST))))


POINTS: dict[str, Callable[[int, int], Iterator[Figure]]] = {
    "rare": rare,
    "late": late,
    "trend": trend,
    "levels": levels,
}

if __name__ == "__main__":
    sys.exit(main())
