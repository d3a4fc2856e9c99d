"""Networks as weak learners: CPU time per step beside the loops one would write by hand, as ratios within one run.

    python -m benchmarks.bench_neural [--quick]

Algorithm 1 over N = 10 two-layer networks (10 hidden units, 90 inputs, square loss, ADAM), in batches of 1, 32 and
256 rows; and over 10 convolutions of the paper (5 × 5, stride 2, 5 channels, softmax over ten classes) in batches of
32. Beside streamboost: N PyTorch modules with an optimiser each. One thread each, a process for each measurement,
everyone in turn and again. Needs the extra ``torch``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks import neural_peers
from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import ratio, table
from benchmarks.run import FOLDER, ONE_THREAD

N, HIDDEN, D, CHANNELS = 10, 10, 90, 5
BATCHES = (1, 32, 256)
GOALS = {("naive torch", 1): 50.0, ("naive torch", 32): 50.0, ("naive torch", 256): 10.0}
CONV_GOAL = 5.0
STEPS = {"naive torch": 150, "naive torch, conv": 40}  # per measurement; everyone else does more, being faster
MANY_STEPS = {1: 6000, 32: 3000, 256: 600}


def streamboost_nets(batch: int) -> neural_peers.Train:
    from streamboost import Booster
    from streamboost.bases import Constant
    from streamboost.descents import GradientDescent
    from streamboost.losses import Squared
    from streamboost.stacks.neural import TwoLayerStack

    stack = TwoLayerStack(N, HIDDEN, rate=neural_peers.RATE, scale_targets=False, standardize=False)
    booster = Booster(Squared(), GradientDescent(neural_peers.ETA), stack, base=Constant(0.0), update_mode=batch)
    return lambda X, Y: booster.learn(X.reshape(-1, D), Y.reshape(-1, 1))


def streamboost_conv(batch: int) -> neural_peers.Train:
    from streamboost import Booster
    from streamboost.bases import Constant
    from streamboost.descents import GradientDescent
    from streamboost.losses import Softmax
    from streamboost.stacks.conv import ConvStack

    stack = ConvStack((neural_peers.SIDE, neural_peers.SIDE), N, channels=CHANNELS, rate=neural_peers.RATE)
    descent = GradientDescent(2 * neural_peers.ETA)
    booster = Booster(Softmax(n_classes=10), descent, stack, base=Constant(0.0), update_mode=batch)
    pixels = neural_peers.SIDE**2
    return lambda X, Y: booster.learn(X.reshape(-1, pixels), Y.reshape(-1, 1))


MAKERS = {
    "streamboost": streamboost_nets,
    "naive torch": lambda batch: neural_peers.naive_torch(N, HIDDEN, D),
    "streamboost, conv": streamboost_conv,
    "naive torch, conv": lambda batch: neural_peers.naive_torch_conv(N, CHANNELS),
}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_neural", __doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "BATCH"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]), options.quick)))
        return 0
    console = Console(stderr=True)
    jobs = [(name, b) for b in BATCHES for name in ("streamboost", "naive torch")]
    jobs += [("streamboost, conv", 32), ("naive torch, conv", 32)]
    if not find_spec("torch"):
        console.print("left out: torch is not installed (pip install 'streamboost[torch]').", highlight=False)
        jobs = [job for job in jobs if job[0].startswith("streamboost")]
    runs: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    for job in track(jobs * (1 if options.quick else options.repeats), "measuring", console=console):
        runs[job].append(in_a_process(*job, options.quick))
    step = {job: statistics.median(of_one) for job, of_one in runs.items()}
    rows, ratios = [], {}
    for (name, batch), seconds in step.items():
        ours = step[("streamboost, conv" if name.endswith("conv") else "streamboost", batch)]
        goal = CONV_GOAL if name.endswith("conv") else GOALS.get((name, batch))
        cells = [f"{name}", str(batch), f"{1e6 * seconds:,.0f}", f"{batch / seconds:,.0f}"]
        if not name.startswith("streamboost"):
            ratios[f"{name} {batch}"] = seconds / ours
            cells += [ratio(seconds / ours), f"{goal:g}", "yes" if seconds / ours >= goal else "no"]
        rows.append(cells + [""] * (7 - len(cells)))
    print(table(["who", "batch", "µs CPU a step", "rows / CPU s", "streamboost is faster", "goal", "reached"], rows))
    figures = {"ratios": ratios, "seconds": {f"{name} {batch}": times for (name, batch), times in runs.items()}}
    keep(options, "neural", figures)
    return 0


def in_a_process(name: str, batch: int, quick: bool) -> float:
    command = [sys.executable, "-m", "benchmarks.bench_neural", "--measure", name, str(batch), *["--quick"] * quick]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=FOLDER.parent, env=os.environ | ONE_THREAD, check=True)
    return float(json.loads(done.stdout))


def measure(name: str, batch: int, quick: bool) -> float:
    """CPU seconds a step, after as many steps that warm up."""
    steps = STEPS.get(name, MANY_STEPS[batch] // (10 if name.endswith("conv") else 1)) // (10 if quick else 1)
    X, Y = data(name, 2 * steps, batch)
    if name.startswith("streamboost"):  # everyone is given rows as it takes them
        X, Y = X.astype(np.float64), Y.astype(np.float64)
    train = MAKERS[name](batch)
    train(X[:steps], Y[:steps])
    before = time.process_time()
    train(X[steps:], Y[steps:])
    return (time.process_time() - before) / steps


def data(name: str, steps: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if name.endswith("conv"):
        X = rng.uniform(size=(steps, batch, neural_peers.SIDE**2)).astype(np.float32)
        return X, rng.integers(0, 10, size=(steps, batch)).astype(np.float32)
    X = rng.normal(size=(steps, batch, D)).astype(np.float32)
    return X, np.tanh(X[..., :5].sum(axis=2, keepdims=True)).astype(np.float32)


if __name__ == "__main__":
    sys.exit(main())
