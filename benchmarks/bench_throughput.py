"""Rows per CPU second, each predicted, then learned, beside other streaming learners: ratios within one run.

    python -m benchmarks.bench_throughput [--quick] [--models NAME ...]

Friedman's stream of 10 columns; for classes, whether its target is above the median. Everyone has learned 20,000
rows before the clock starts: more than streamboost's longest memory holds (SGBT only 2,000, LightGBM none). Each
measurement is a process of its own on one core, and the CPU time of all its threads counts. Everyone in turn, and
again: a busy moment meets them all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from benchmarks import prequential, streams
from benchmarks.bench_accuracy import error, keep, parser_of
from benchmarks.peers import PEERS, Learner, River
from benchmarks.report import ratio, table
from benchmarks.run import FOLDER, ONE_THREAD

QUICK = 20  # a quick run has so many times fewer rows


class Course(NamedTuple):
    """Who is measured, and over what."""

    task: streams.Task
    warm_up: int
    rows: int
    make: Callable[[streams.Stream, int], Learner]


def one_by_one(stream: streams.Stream, seed: int) -> River:
    """Streamboost in River's dialect, driven as River's models are."""
    from streamboost import SGBRegressor

    return River(SGBRegressor(random_state=seed), stream)


COURSES = {
    "streamboost": Course("regression", 20_000, 30_000, PEERS["streamboost"].make),
    "streamboost, classes": Course("classification", 20_000, 30_000, PEERS["streamboost"].make),
    "streamboost, one by one": Course("regression", 20_000, 5_000, one_by_one),
    "river_ht": Course("regression", 20_000, 5_000, PEERS["river_ht"].make),
    "river_arf": Course("regression", 20_000, 3_000, PEERS["river_arf"].make),
    "capymoa_sgbr": Course("regression", 20_000, 3_000, PEERS["capymoa_sgbr"].make),
    "capymoa_sgbt": Course("classification", 2_000, 3_000, PEERS["capymoa_sgbt"].make),  # a warm-up takes it minutes
    "lightgbm": Course("regression", 0, 100_000, PEERS["lightgbm"].make),  # from the start: its cost grows
}
AGAINST = {  # whom each peer is compared with, and how many times faster that one should be
    "river_arf": ("streamboost", 100.0),
    "capymoa_sgbr": ("streamboost", 30.0),
    "capymoa_sgbt": ("streamboost, classes", 30.0),
    "lightgbm": ("streamboost", 10.0),
    "river_ht": ("streamboost, one by one", 1.0),
}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_throughput", __doc__)
    parser.add_argument("--models", nargs="+", metavar="NAME", choices=AGAINST, default=list(AGAINST))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", metavar="NAME", choices=COURSES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        output = prequential.own_output()
        print(json.dumps(measure(COURSES[options.measure], options)), file=output)
        return 0
    console = Console(stderr=True)
    for absence in filter(None, (PEERS[name].absence() for name in options.models)):
        console.print(f"left out: {absence}.", highlight=False, markup=False)
    found = [name for name in options.models if not PEERS[name].absence()]
    names = [name for name in COURSES if name in found or name in {AGAINST[peer][0] for peer in found}]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name in track(names * (1 if options.quick else options.repeats), "measuring", console=console):
        runs[name].append(in_a_process(name, options))
    rate = {name: statistics.median(run["rate"] for run in of_one) for name, of_one in runs.items()}
    ratios = {peer: rate[AGAINST[peer][0]] / rate[peer] for peer in found}
    rows = []
    for peer, times in ratios.items():
        ours, goal = AGAINST[peer]
        cells = [f"{rate[peer]:,.0f}", ours, f"{rate[ours]:,.0f}", ratio(times), f"{goal:g}"]
        rows.append([PEERS[peer].title, *cells, "yes" if times >= goal else "no"])
    print(table(["peer", "rows / CPU s", "beside", "rows / CPU s", "times faster", "goal", "reached"], rows))
    keep(options, "throughput", {"ratios": ratios, "rates": rate, "runs": runs})
    return 0


def in_a_process(name: str, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_throughput", "--measure", name, "--seed", str(options.seed)]
    command += ["--quick"] * options.quick
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=FOLDER.parent, env=os.environ | ONE_THREAD, check=True)
    return dict(json.loads(done.stdout))


def measure(course: Course, options: argparse.Namespace) -> dict[str, float]:
    """Rows per CPU second after the warm-up, and the error over the same rows."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warm_up, n = (size // (QUICK if options.quick else 1) for size in (course.warm_up, course.warm_up + course.rows))
    X, y = streams.friedman(n, options.seed)
    if course.task == "classification":
        y = (y > np.median(y)).astype(int)
    learner = course.make(streams.Stream("friedman", X, y, course.task), options.seed)
    chunk = getattr(learner, "every", learner.chunk)  # LightGBM's rows between two trainings: one call each

    def learn(start: int, stop: int) -> NDArray[np.float64]:
        stops = [*range(start + chunk, stop, chunk), stop]
        return np.concatenate([learner.learn(X[s:e], y[s:e]) for s, e in pairwise([start, *stops])])

    if warm_up:
        learn(0, warm_up)
    before = prequential.cpu_seconds()
    said = learn(warm_up, n)
    return {"rate": len(said) / (prequential.cpu_seconds() - before), "error": error(said, y[warm_up:])}


if __name__ == "__main__":
    sys.exit(main())
