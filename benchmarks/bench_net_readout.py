"""What leaving harmful networks out of the read-out is worth: yᴺ beside a vote over all partial sums, for several N.

    python -m benchmarks.bench_net_readout [--quick]

Two-layer networks of ten units with ADAM at a rate of 0.01, which late learners find too fast; each row is predicted,
then learned. ``reduced`` sets the step of a learner whose edge over the latest rows is below 0 to 0 until it recovers.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import datasets
from streamboost.boosting import Booster
from streamboost.boosting.committee import Committee
from streamboost.descents import GradientDescent
from streamboost.losses import Logistic, Loss, Squared
from streamboost.stacks import TwoLayerStack

SIZES = (8, 16, 32)
WAYS = {
    "yᴺ": ("last", False),
    "yᴺ, reduced": ("last", True),
    "vote": ("hedge", False),
    "vote, reduced": ("hedge", True),
}
CHUNK, FIRST = 100, 1000  # rows between two looks at the edges, and before the first


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_net_readout", __doc__).parse_args(arguments)
    share = 20 if options.quick else 1
    jobs = [(name, n, way) for name in STREAMS for n in SIZES for way in WAYS]
    errors = {
        job: prequential_error(*STREAMS[job[0]](share, options.seed), job[1], *WAYS[job[2]])
        for job in track(jobs, "streams", console=Console(stderr=True))
    }
    rows = [[f"{name}, N = {n}", *(f"{errors[name, n, way]:.4g}" for way in WAYS)] for name in STREAMS for n in SIZES]
    print(table(["stream", *WAYS], rows))
    keep(options, "net_readout", {"errors": [[*job, error] for job, error in errors.items()]})
    return 0


def friedman(share: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], Loss]:
    data = datasets.friedman(20_000 // share, seed=seed)
    return data.X, data.y, Squared()


def abalone(share: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], Loss]:
    data = datasets.load_abalone()
    return data.X[:: max(share // 4, 1)], data.y[:: max(share // 4, 1)].astype(float), Squared()


def electricity(share: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], Loss]:
    data = datasets.load_electricity()
    n = 20_000 // share
    return data.X[:n], np.where(data.y[:n] == data.y.max(), 1.0, -1.0), Logistic()


STREAMS = {"friedman, RMSE": friedman, "abalone, RMSE": abalone, "electricity, share wrong": electricity}


def prequential_error(
    X: NDArray[np.float64], y: NDArray[np.float64], loss: Loss, n: int, readout: str, is_reduced: bool
) -> float:
    booster = Booster(loss, GradientDescent(share=0.5), TwoLayerStack(n, 10, rate=0.01))
    committee = Committee([booster], readout=readout, steps=range(n))  # type: ignore[arg-type]
    said = []
    for start in range(0, len(X), CHUNK):
        said.append(committee.learn(X[start : start + CHUNK], y[start : start + CHUNK])[:, 0])
        if is_reduced and start >= FIRST:
            full = booster.descent.schedule(n, loss, booster.scale, booster.edges.running)
            booster.eta[:] = full * (booster.edges.recent > 0)
    scores = np.concatenate(said)
    if isinstance(loss, Logistic):
        return float(np.mean(scores * y <= 0))
    return float(np.sqrt(np.mean((scores - y) ** 2)))


if __name__ == "__main__":
    sys.exit(main())
