"""The paper's networks, trained by streaming and by batch boosting: what Table 1 and Figure 2 have in common.

A set tells its rows, its split, its networks and its choices; :func:`train` lets both kinds of boosting choose among
them, each for itself, on a validation part of the training rows, and then trains them on all training rows. Along the
way the test error is noted against the unit cost (a prediction of a learner for a row is 1, an update 2).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from experiments import big_datasets
from experiments.batch import GradientBoosting
from experiments.records import rounded
from streamboost import datasets
from streamboost._types import FloatArray
from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.datasets import Dataset
from streamboost.descents import GradientDescent
from streamboost.losses import Logistic, Loss, Softmax, Squared
from streamboost.stacks import ConvStack, TwoLayerStack
from streamboost.stacks.neural import NeuralStack

FIRST_CALL, CALL = 64, 4096  # rows given to learn at a time: twice as many each time, so that the start can be seen
TOLERANCE = 1e-3  # a network of batch boosting has converged when its loss fell by less in two passes
MARK_GROWTH = 1.25  # a mark on the curve whenever the cost has grown by so much
KEPT_FOR_VALIDATION = 0.1


class Rows(NamedTuple):
    """Rows (n, d) and their targets (n,)."""

    X: FloatArray
    y: FloatArray

    def take(self, rows: Any) -> Rows:
        """Some of them."""
        return Rows(self.X[rows], self.y[rows])


class Choice(NamedTuple):
    """What is chosen on the validation rows: the step η of the boosting, and the rate of ADAM."""

    eta: float
    rate: float


@dataclass(frozen=True)
class Set:
    """A data set of Table 1 and what the paper does with it."""

    name: str
    paper: tuple[float, float, float] | None  # Base, GB, SGB as printed
    measure: str
    loss: Loss
    learners: int  # N of the figure
    batch: int
    make: Callable[[int, float], NeuralStack]  # from N and a rate
    split: Callable[[int], tuple[Rows, Rows]]  # training and test rows of a seed
    choices: tuple[Choice, ...]
    rows: int  # shown to streaming boosting in a full run
    passes: int = 100  # over the rows, after which a network of batch boosting is frozen though it has not converged
    tried_passes: int = 100  # the same, while batch boosting chooses


def two_layers(hidden: int, activation: str = "sigmoid") -> Callable[[int, float], NeuralStack]:
    """Stacks of the paper's two-layer networks."""
    return lambda n, rate: TwoLayerStack(n, hidden, activation=activation, rate=rate)  # type: ignore[arg-type]


def convolutions(n: int, rate: float) -> NeuralStack:
    """5 × 5, stride 2, 5 channels, as for MNIST."""
    return ConvStack((28, 28), n, kernel=5, stride=2, channels=5, rate=rate)


def nine_tenths(load: Callable[[], Dataset], scale: float = 1.0) -> Callable[[int], tuple[Rows, Rows]]:
    """A random 90/10 split, another one for each seed."""

    def split(seed: int) -> tuple[Rows, Rows]:
        rows = _load(load)
        order = np.random.default_rng((seed, 1)).permutation(len(rows.X))
        rows, cut = Rows(rows.X, rows.y / scale), int(0.9 * len(order))
        return rows.take(order[:cut]), rows.take(order[cut:])

    return split


def given(load: Callable[[Any], Dataset], change: Callable[[Rows], Rows]) -> Callable[[int], tuple[Rows, Rows]]:
    """The split the set comes with."""
    return lambda seed: (change(_load(load, "train")), change(_load(load, "test")))


@lru_cache(maxsize=4)
def _load(load: Callable[..., Dataset], *split: str) -> Rows:
    data = load(*split)
    return Rows(np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float))


def _signs(rows: Rows) -> Rows:
    return rows._replace(y=np.where(rows.y > 0, 1.0, -1.0))


def _grey(rows: Rows) -> Rows:
    return rows._replace(X=rows.X / 255.0)


SQUARE, WRONG = "half the mean square error", "error rate"
SETS = {
    one.name: one
    for one in (
        Set("ABALONE", (8.2848, 2.1411, 2.1532), SQUARE, Squared(), 8, 16, two_layers(1),
            nine_tenths(datasets.load_abalone),
            (Choice(2 / 3, 0.003), Choice(2 / 3, 0.01), Choice(2 / 3, 0.03)), 500_000),
        Set("YEAR", (4.99e5, 42.8976, 43.0573), SQUARE, Squared(), 10, 32, two_layers(10),
            given(big_datasets.load_year, lambda rows: rows), (Choice(0.5, 0.003), Choice(0.5, 0.01)), 1_500_000),
        Set("SLICE", (0.036045, 0.000755, 0.000713), SQUARE, Squared(), 8, 32, two_layers(10, "leaky_relu"),
            nine_tenths(big_datasets.load_slice, 100.0), (Choice(0.5, 0.001), Choice(0.5, 0.003)), 1_500_000),
        Set("cpu_act", None, SQUARE, Squared(), 8, 32, two_layers(10, "leaky_relu"),
            nine_tenths(big_datasets.load_cpu_act, 100.0), (Choice(0.5, 0.001), Choice(0.5, 0.003)), 400_000),
        Set("cal_housing", None, SQUARE, Squared(), 10, 32, two_layers(10),
            nine_tenths(big_datasets.load_cal_housing, 1e5), (Choice(0.5, 0.003), Choice(0.5, 0.01)), 400_000),
        Set("A9A", (0.1547, 0.1579, 0.1523), WRONG, Logistic(), 4, 32, two_layers(1),
            given(datasets.load_a9a, _signs), (Choice(2.0, 0.001), Choice(2.0, 0.003), Choice(4.0, 0.001)), 300_000),
        Set("MNIST", (0.16328, 0.01932, 0.01632), WRONG, Softmax(n_classes=10), 10, 32, convolutions,
            given(big_datasets.load_mnist, _grey),
            (Choice(2.0, 0.004), Choice(3.0, 0.004), Choice(4.0, 0.004), Choice(4.0, 0.001)), 3_600_000, 40, 4),
    )
}  # fmt: skip


class Run(NamedTuple):
    """A finished training: marks (unit cost, test error), and errors of partial sums on the test rows."""

    curve: list[tuple[int, float]]
    base: float  # y¹
    last: float  # yᴺ
    edges: list[float]
    stages: list[dict[str, Any]]  # of batch boosting: when each learner was added, and how it ended


class Tried(NamedTuple):
    """What one kind of boosting chose, and all it tried."""

    choice: Choice
    tried: list[dict[str, float]]


Trainer = Callable[[Choice, Rows, Rows], float]  # from training and validation rows to an error on the latter


def train(one: Set, seed: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """Choose, train both kinds of boosting, and tell what they came to on the test rows."""
    training, test = one.split(seed)
    training, test = _at_most(training, sizes["train"], seed), _at_most(test, sizes["test"], seed)
    n_shown = min(one.rows, sizes["shown"])
    streaming = choose_streaming(one, training, seed, int(sizes["tried"] * n_shown))
    batching = choose_batch(one, training, seed, min(one.tried_passes, sizes["tried_passes"]))
    last, averaged = stream(one, one.learners, streaming.choice, training, test, seed, n_shown)
    most = min(one.passes, sizes["passes"])
    runs = {
        "SGB": last,
        "GB": batch(one, batching.choice, training, test, seed, most),
        "SGB, averaged": averaged,
    }
    return {
        "chosen": {
            kind: {**found.choice._asdict(), "tried": found.tried}
            for kind, found in (("SGB", streaming), ("GB", batching))
        },
        "rows": {"train": len(training.X), "test": len(test.X), "shown": n_shown},
        "passes": {"most": most, "tolerance": TOLERANCE},
        "base": rounded(last.base),
        "runs": {
            name: {
                "last": rounded(run.last),
                "curve": rounded(run.curve),
                "edges": rounded(run.edges, 3),
                "stages": run.stages,
            }
            for name, run in runs.items()
        },
    }


def choose_streaming(one: Set, training: Rows, seed: int, n_shown: int) -> Tried:
    """What does best for streaming boosting after so many rows, by its last iterate."""

    def trained(choice: Choice, rest: Rows, kept: Rows) -> float:
        return stream(one, one.learners, choice, rest, kept, seed, n_shown, marks=False)[0].last

    return choose(one, training, seed, trained)


def choose_batch(one: Set, training: Rows, seed: int, passes: int) -> Tried:
    """What does best for batch boosting where no network gets more than so many passes."""

    def trained(choice: Choice, rest: Rows, kept: Rows) -> float:
        return batch(one, choice, rest, kept, seed, passes, marks=False).last

    return choose(one, training, seed, trained)


def choose(one: Set, training: Rows, seed: int, trained: Trainer) -> Tried:
    """The choice that does best on a tenth of the training rows, trained on the others."""
    order = np.random.default_rng((seed, 2)).permutation(len(training.X))
    cut = int(KEPT_FOR_VALIDATION * len(order))
    kept, rest = training.take(order[:cut]), training.take(order[cut:])
    tried = [{**choice._asdict(), "validation": rounded(trained(choice, rest, kept))} for choice in one.choices]
    best = min(range(len(tried)), key=lambda k: tried[k]["validation"])
    return Tried(one.choices[best], tried)


def stream(
    one: Set,
    n_learners: int,
    choice: Choice,
    training: Rows,
    test: Rows,
    seed: int,
    n_shown: int,
    *,
    marks: bool = True,
) -> tuple[Run, Run]:
    """Streaming boosting from y⁰ = 0, as the paper: passes over the training rows, each in an order of its own.

    The rate of ADAM falls linearly, from call to call, so that it would be 0 after the last row: the last parameters
    are then no noisier than their average. Told twice: with the last parameters, and with their polynomial average.
    """
    stack = one.make(n_learners, choice.rate)
    booster = Booster(
        one.loss,
        GradientDescent(choice.eta),
        stack,
        base=Constant(0.0),
        iterate="polynomial",
        update_mode=one.batch,
        seed=seed,
    )
    curves: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])
    next_mark, shown = 0.0, 0
    for rows in calls(len(training.X), n_shown, one.batch, seed):
        stack.set_rate(choice.rate * (1.0 - shown / n_shown))
        booster.learn(training.X[rows], training.y[rows])
        shown += len(rows)
        if marks and booster.cost.units >= next_mark:
            for curve, walk in zip(curves, _walks(booster, test.X), strict=True):
                curve.append((booster.cost.units, error(one.loss, walk[:, -1], test.y)))
            next_mark = MARK_GROWTH * booster.cost.units
    found = []
    for curve, walk in zip(curves, _walks(booster, test.X), strict=True):
        last = error(one.loss, walk[:, -1], test.y)
        curve.append((booster.cost.units, last))
        found.append(Run(curve, error(one.loss, walk[:, 1], test.y), last, booster.edges.running.tolist(), []))
    return found[0], found[1]


def batch(one: Set, choice: Choice, training: Rows, test: Rows, seed: int, passes: int, *, marks: bool = True) -> Run:
    """Batch boosting: the same networks, each trained to convergence before the next is added."""
    model = GradientBoosting(
        one.loss,
        GradientDescent(choice.eta),
        lambda: one.make(1, choice.rate),
        n_learners=one.learners,
        base=Constant(0.0),
        chunk_size=one.batch,
        tolerance=TOLERANCE,
        max_passes=passes,
        seed=seed,
    )
    curve: list[tuple[int, float]] = []
    state = {"next": 0.0, "stage": 1}

    def mark(stage: int, units: int, fitted: GradientBoosting) -> None:
        if units >= state["next"] or stage > state["stage"]:
            curve.append((units, error(one.loss, fitted.score(test.X), test.y)))
            state["next"], state["stage"] = MARK_GROWTH * units, stage

    with warnings.catch_warnings():
        # Whoever does not converge in so many passes is frozen then, and its stage says so.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(training.X, training.y, callback=mark if marks else None)
    walk = model.walk(test.X)
    last = error(one.loss, walk[:, -1], test.y)
    curve.append((model.cost.units, last))
    stages = [
        {"started": stage.started, "passes": stage.rows // len(training.X), "converged": stage.converged}
        for stage in model.history
    ]
    return Run(curve, error(one.loss, walk[:, 1], test.y), last, [stage.edge for stage in model.history], stages)


def error(loss: Loss, scores: FloatArray, y: FloatArray) -> float:
    """Half the mean square error, or the share of rows whose class is wrong."""
    if isinstance(loss, Squared):
        return float(0.5 * np.mean((scores[:, 0] - y) ** 2))
    if isinstance(loss, Logistic):
        return float(np.mean(scores[:, 0] * y <= 0))
    return float(np.mean(scores.argmax(axis=1) != y))


def _walks(booster: Booster, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The partial sums of the last parameters, and of the averaged ones."""
    blocks = [X[start : start + 1000] for start in range(0, len(X), 1000)]
    last = np.concatenate([booster.present.walk(block, booster.descent) for block in blocks])
    return last, np.concatenate([booster.walk(block) for block in blocks])


def calls(n: int, n_shown: int, size: int, seed: int) -> Iterator[Any]:
    """The rows of every call, in whole batches, few at first, until so many were shown."""
    rng = np.random.default_rng((seed, 3))
    call, left = FIRST_CALL, n_shown
    while left > 0:
        order = rng.permutation(n)[:left]
        start = 0
        while start < len(order):
            rows = order[start : start + max(call - call % size, size)]
            yield rows
            start, call = start + len(rows), min(2 * call, CALL)
        left -= len(order)


def _at_most(rows: Rows, n: float, seed: int) -> Rows:
    if math.isinf(n) or len(rows.X) <= n:
        return rows
    return rows.take(np.sort(np.random.default_rng((seed, 4)).permutation(len(rows.X))[: int(n)]))
