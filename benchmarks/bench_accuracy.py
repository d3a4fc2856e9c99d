"""How accurate the defaults are over whole streams, and what ``benchmarks.run`` does not tell: one pass, then a test.

    python -m benchmarks.bench_accuracy [--quick]

Each row of a stream is predicted, then learned, by everyone; abalone is learned in one pass over 90 % of it and tested
on the rest, five times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks import prequential, streams
from benchmarks.peers import PEERS, Learner
from benchmarks.report import table
from benchmarks.run import RESULTS
from streamboost import SGBRegressor
from streamboost.descents import GradientDescent, ResidualProjection

Figure = tuple[str, str, list[float]]  # what is measured, of whom, once or several times


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_accuracy", __doc__).parse_args(arguments)
    share = 20 if options.quick else 1
    rows, figures = [], []
    for results in (
        friedman(20_000 // share, options.seed),
        absolute(20_000 // share, options.seed),
        electricity(45_312 // share, options.seed),
        abalone(1 if options.quick else 5),
    ):
        for what, who, values in results:
            spread = f" ± {np.std(values):.3f}" if len(values) > 1 else ""
            rows.append([what, who, f"{np.mean(values):.4f}{spread}"])
            figures.append({"measure": what, "model": who, "values": values})
    print(table(["stream, measure", "model", ""], rows))
    keep(options, "accuracy", {"figures": figures})
    return 0


def friedman(n: int, seed: int) -> Iterator[Figure]:
    stream = streams.Stream("Friedman", *streams.friedman(n, seed), "regression")
    for name in ("streamboost", "river_hat", "river_linear"):
        said = through(stream, PEERS[name].make(stream, seed), PEERS[name].title)
        yield "Friedman, RMSE (noise alone: 1)", PEERS[name].title, [error(said, stream.y)]


def absolute(n: int, seed: int) -> Iterator[Figure]:
    X, y = streams.friedman(n, seed)
    models = {
        "absolute error, Algorithm 2": SGBRegressor("absolute_error", descent=ResidualProjection(), random_state=seed),
        "absolute error, Algorithm 1, step 0.2": SGBRegressor(
            "absolute_error", descent=GradientDescent(0.2), random_state=seed
        ),
        "squared error": SGBRegressor(random_state=seed),
    }
    for name, model in track(models.items(), "absolute error", console=Console(stderr=True)):
        yield "Friedman, mean absolute error", name, [float(np.mean(np.abs(model.learn(X, y) - y)))]


def electricity(n: int, seed: int) -> Iterator[Figure]:
    stream = streams.load("electricity", n, seed)
    for name in ("streamboost", "river_hat", "river_ht"):
        said = through(stream, PEERS[name].make(stream, seed), PEERS[name].title)
        yield "electricity, accuracy", PEERS[name].title, [1 - error(said, stream.y)]
    yield "electricity, accuracy", "the label of the row before", [float(np.mean(stream.y[1:] == stream.y[:-1]))]


def abalone(splits: int) -> Iterator[Figure]:
    stream = streams.load("abalone", 10_000, 0)
    errors = []
    for seed in track(range(splits), "abalone", console=Console(stderr=True)):
        order = np.random.default_rng(seed).permutation(len(stream.y))
        train, test = np.split(order, [int(0.9 * len(order))])
        model = SGBRegressor(random_state=seed).fit(stream.X[train], stream.y[train])
        errors.append(error(model.predict(stream.X[test]), stream.y[test]))
    yield "abalone 90/10, test RMSE", "streamboost", errors


def through(stream: streams.Stream, learner: Learner, title: str) -> NDArray[np.float64]:
    """What a learner says of every row of a stream before it learns it."""
    starts = range(0, len(stream.y), learner.chunk)
    parts = [slice(start, start + learner.chunk) for start in starts]
    told = track(parts, f"{stream.name} · {title}", console=Console(stderr=True))
    return np.concatenate([learner.learn(stream.X[part], stream.y[part]) for part in told])


# What all bench_*.py share: what an error is, how they are called, and how they keep what they found.


def error(said: NDArray[np.float64], y: NDArray[Any]) -> float:
    """RMSE, or the share of rows whose class was not the one with most weight."""
    return float(np.sqrt(np.mean((said - y) ** 2)) if said.ndim == 1 else np.mean(said.argmax(axis=1) != y))


def parser_of(name: str, doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="seconds: to see that it works")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="by default benchmarks/results")
    return parser


def keep(options: argparse.Namespace, name: str, figures: dict[str, Any]) -> Path:
    """Write figures and circumstances as JSON, those of a quick run where they replace nothing; give the folder."""
    folder: Path = options.results or (streams.CACHE / "quick" if options.quick else RESULTS.parent)
    folder.mkdir(parents=True, exist_ok=True)
    versions = {"python": sys.version.split()[0], "source": prequential.source_digest()}
    for package in ("streamboost", "numpy", "numba", "river", "lightgbm", "capymoa", "ray"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    asked = {key: value for key, value in vars(options).items() if key != "results" and value is not None}
    record = {"asked": asked, "figures": figures, "versions": versions, "cpu": prequential.cpu_model()}
    (folder / f"{name}.json").write_text(json.dumps(prequential.rounded(record), indent=1) + "\n")
    return folder


if __name__ == "__main__":
    sys.exit(main())
