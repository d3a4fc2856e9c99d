"""How accurate the defaults are, in one run on the same rows: a Markdown table.

    python benchmarks/bench_accuracy.py [--quick]

Each row of a stream is predicted, then learned (abalone: one pass over 90 %, tested on the rest, five splits).
"""

import argparse
from importlib.metadata import version

import numpy as np
from rich.progress import track
from river import linear_model, preprocessing, tree

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.descents import GradientDescent


def prequential(model, X, y):
    """What a River model says of every row before it learns it."""
    said = []
    for x, target in track(list(zip(X, y, strict=True)), description=type(model).__name__, transient=True):
        row = dict(enumerate(x))
        said.append(model.predict_one(row) or 0)
        model.learn_one(row, target)
    return np.array(said, dtype=float)


def rmse(said, y):
    return f"{np.sqrt(np.mean((said - y) ** 2)):.3f}"


def friedman(n):
    data = datasets.friedman(n, noise=1.0, seed=1)
    X, y = data.X, data.y
    scaled = preprocessing.StandardScaler() | linear_model.LinearRegression()
    yield (
        "Friedman, RMSE (noise alone: 1)",
        {
            "SGBRegressor()": rmse(SGBRegressor().learn(X, y), y),
            "River HoeffdingAdaptiveTree": rmse(prequential(tree.HoeffdingAdaptiveTreeRegressor(seed=1), X, y), y),
            "River linear": rmse(prequential(scaled, X, y), y),
        },
    )
    absolute = {
        "SGBRegressor('absolute_error'), Algorithm 2": SGBRegressor("absolute_error"),
        "the same under Algorithm 1, step 0.2": SGBRegressor("absolute_error", descent=GradientDescent(0.2)),
        "SGBRegressor(), squared loss": SGBRegressor(),
    }
    yield (
        "Friedman, mean absolute error",
        {name: f"{np.mean(np.abs(model.learn(X, y) - y)):.3f}" for name, model in absolute.items()},
    )


def abalone(splits):
    X, y, *_ = datasets.load_abalone()
    errors = []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order, [int(0.9 * len(order))])
        model = SGBRegressor().fit(X[train], y[train])
        errors.append(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))
    yield "abalone 90/10, test RMSE", {"SGBRegressor()": f"{np.mean(errors):.3f} ± {np.std(errors):.3f}"}


def electricity(n):
    X, y, *_ = datasets.load_electricity()
    X, y = X[:n], y[:n]
    trees = {
        "River HoeffdingAdaptiveTree": tree.HoeffdingAdaptiveTreeClassifier(seed=1),
        "River HoeffdingTree": tree.HoeffdingTreeClassifier(),
    }
    figures = {"SGBClassifier()": np.mean(SGBClassifier().learn(X, y) == y)}
    figures |= {name: np.mean(prequential(model, X, y) == y) for name, model in trees.items()}
    yield "electricity, accuracy", {name: f"{accuracy:.4f}" for name, accuracy in figures.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    share = 10 if parser.parse_args().quick else 1
    print(f"streamboost {version('streamboost')}, river {version('river')}; seeds 0 and 1\n")
    print("| stream, measure | model | |\n| --- | --- | ---: |")
    for results in (friedman(20_000 // share), abalone(5 if share == 1 else 1), electricity(45_312 // share)):
        for stream, figures in results:
            for model, figure in figures.items():
                print(f"| {stream} | {model} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
