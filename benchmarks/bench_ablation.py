"""What each ingredient of the default is worth: its error where one thing is left out or changed, over that with it.

    python -m benchmarks.bench_ablation [--quick] [--streams NAME ...] [--variants NAME ...] [--jobs N]

Streams and measures are those of ``benchmarks.run``. Above 1 a change makes things worse. The last line tells what it
costs: CPU time over that of the default (recorded targets and chunks leave the compiled loop, so theirs is another).
What stands in compiled code is changed in a copy of the package, which is compiled anew, and has no CPU time.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from benchmarks import scores, streams
from benchmarks.bench_accuracy import error, keep, parser_of
from benchmarks.peers import Streamboost
from benchmarks.report import figure, table
from streamboost.boosting.committee import Committee
from streamboost.estimators import defaults
from streamboost.replay import Replay

Change = Callable[[Committee], Committee]
ROOT = Path(__file__).parents[1]


class Edit(NamedTuple):
    """A change to a file of the package: what stands there once, and what is to stand there."""

    file: str
    old: str
    new: str


class Variant(NamedTuple):
    """The default but for arguments of the estimator, a change to its committee before the first row, or its source."""

    settings: dict[str, Any] | None = None
    change: Change = lambda committee: committee
    chunk: int = Streamboost.chunk
    edits: tuple[Edit, ...] = ()


def edited(file: str, *changes: tuple[str, str]) -> Variant:
    return Variant(edits=tuple(Edit(file, old, new) for old, new in changes))


def without(memory: int) -> Change:
    """Leave a booster out; the others stay what they are, which a shorter ``memory=`` would not promise."""
    return lambda committee: Committee([b for b in committee.boosters if b.replay.window != memory])


def hedge(**settings: Any) -> Change:
    return lambda committee: Committee(committee.boosters, **settings)


def without_succession(committee: Committee) -> Committee:
    committee.drift_replacement = None
    return committee


def without_combination(committee: Committee) -> Committee:
    committee.hedge.combination.combines = False
    return committee


def without_range(committee: Committee) -> Committee:
    committee.hedge.combination.holds = False
    return committee


def as_before(committee: Committee) -> Committee:
    """The vote alone, wherever it leads."""
    return without_range(without_combination(committee))


def record_targets(committee: Committee) -> Committee:
    for booster in committee.boosters:
        old = booster.replay
        booster.replay = Replay(old.window, refit_every=old.refit_every, targets="recorded", soonest=old.soonest)
    return committee


COMBINING, HEDGE = "kernels/combining.py", "kernels/hedge.py"
DEFAULT = "default"
TINY = 1e-12  # an error of 0 counts as this in a ratio
VARIANTS = {
    DEFAULT: Variant(),
    "one memory": Variant({"memory": 16384}),
    "one memory, last sum": Variant({"memory": 16384, "readout": "last"}),
    "without 256": Variant(change=without(256)),
    "without 1,024": Variant(change=without(1024)),
    "without 4,096": Variant(change=without(4096)),
    "without 16,384": Variant(change=without(16384)),
    "vote alone": Variant(change=without_combination),
    "no range": Variant(change=without_range),
    "vote alone, no range": Variant(change=as_before),
    "ties count as right": edited(
        HEDGE,
        ("wrong = max(wrong, 1.0 - 1.0 / n_equal)", "pass"),
        ("0.5 if abs(score[k]) <= TIE else 1.0 if", "1.0 if"),
    ),
    "no slope, no step": edited(
        COMBINING,
        ("if kind == SOFTMAX:\n        top", "if kind == -2:\n        top"),
        ("elif kind == LOGISTIC:\n        for k", "elif kind == -2:\n        for k"),
    ),
    "a ridge of 1": edited("kernels/bases.py", ("P[j, j] = 1.0 / (n_known + n_new)", "P[j, j] = 1.0")),
    "no growth": Variant({"memory": [256, 1024, 4096, 16384]}),
    # the constants of vote and combination
    "caution 1": edited("boosting/hedge.py", ("CAUTION = 4.0", "CAUTION = 1.0")),
    "by log loss alone": edited(HEDGE, ("WRONG_SHARE, SURPRISE = 0.1, 0.5,", "WRONG_SHARE, SURPRISE = 1.0, 0.0,")),
    "rows of the combination stay": edited(COMBINING, ("\nHALF_LIFE = 1000.0", "\nHALF_LIFE = 1e9")),
    "one scale for the combination": edited(COMBINING, ("SCALE_HALF_LIFE = 100.0", "SCALE_HALF_LIFE = 1e9")),
    "hardly a prior": edited(COMBINING, ("RIDGE = 20.0", "RIDGE = 1.0")),
    "however far": edited(COMBINING, ("FAR = 4.0", "FAR = 1e9")),
    "no margin": edited(COMBINING, ("MARGIN = 0.1", "MARGIN = 0.0")),
    "one half-life, 100": Variant(change=hedge(half_lives=(100.0,))),
    "no vote for the bases": Variant(change=hedge(steps=())),
    "votes after 0, 3, 10": Variant(change=hedge(steps=(0, 3, 10))),
    "no succession": Variant(change=without_succession),
    "constant base": Variant({"base": "constant"}),
    "budget 0.5": Variant({"budget": 0.5}),
    "budget 2": Variant({"budget": 2.0}),
    "budget 4": Variant({"budget": 4.0}),
    "half the columns": Variant({"max_features": 0.5}),
    "recorded targets": Variant(change=record_targets),
    "chunks of 16": Variant({"update_mode": "minibatch"}, chunk=16),
}


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_ablation", __doc__)
    parser.add_argument("--streams", nargs="+", metavar="NAME", choices=streams.NAMES, default=list(streams.NAMES))
    parser.add_argument("--variants", nargs="+", metavar="NAME", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; above 1 the CPU times mean little")
    options = parser.parse_args(arguments)
    if options.quick:
        options.streams, options.rows = ["friedman", "electricity"], min(options.rows, 500)
    options.variants = [DEFAULT, *(name for name in options.variants if name != DEFAULT)]
    found: dict[str, dict[str, dict[str, float]]] = {}
    pool = nullcontext() if options.jobs == 1 else ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"))
    with Progress(console=Console(stderr=True)) as progress, pool as workers:
        for name in progress.track(options.streams, description="streams"):
            try:
                streams.load(name, options.rows, options.seed)
            except (streams.MissingData, ModuleNotFoundError) as absence:
                progress.console.print(f"left out: {absence}", highlight=False, markup=False)
                continue
            jobs = [(name, options.rows, options.seed, variant) for variant in options.variants]
            runs = progress.track((workers.map if workers else map)(run, jobs), len(jobs), description=name)
            found[name] = dict(zip(options.variants, runs, strict=True))
            keep(options, "ablation", found)
    if found:
        print(markdown(found, options.variants))
    return 0 if found else 1


def run(job: tuple[str, int, int, str]) -> dict[str, float]:
    """The error of a variant on a stream, for classes its log loss and calibration error, and its CPU seconds."""
    name, rows, seed, variant = job
    settings, change, chunk, edits = VARIANTS[variant]
    if edits:
        return in_a_copy(job)
    stream = streams.load(name, rows, seed)
    with changed(change):
        learner = Streamboost(stream, seed, settings or {})
        started = time.process_time()
        parts = [slice(start, start + chunk) for start in range(0, len(stream.y), chunk)]
        said = np.concatenate([learner.learn(stream.X[part], stream.y[part]) for part in parts])
    found = {"error": error(said, stream.y), "cpu_s": time.process_time() - started}
    return found if stream.task == "regression" else found | probability_losses(said, stream.y)


def in_a_copy(job: tuple[str, int, int, str]) -> dict[str, float]:
    """Run the default of a copy of the package that is edited as the variant says."""
    *what, variant = job
    folder = copy_with(variant)
    code = (
        "import json, sys; from benchmarks.bench_ablation import run; print(json.dumps(run(json.loads(sys.argv[1]))))"
    )
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "compiled")}
    command = [sys.executable, "-c", code, json.dumps([*what, DEFAULT])]
    said = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return {name: value for name, value in found.items() if name != "cpu_s"}


@functools.cache
def copy_with(variant: str) -> Path:
    """Copy the package to a folder that lives as long as this process, and edit it."""
    folder = Path(made := tempfile.mkdtemp(prefix="ablation-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    shutil.copytree(ROOT / "streamboost", folder / "streamboost", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    for file, old, new in VARIANTS[variant].edits:
        path = folder / "streamboost" / file
        if path.read_text().count(old) != 1:
            raise ValueError(f"{old!r} does not stand once in {file}: the source has changed, and so must the edit.")
        path.write_text(path.read_text().replace(old, new))
    return folder


def probability_losses(said: NDArray[np.float64], y: NDArray[Any]) -> dict[str, float]:
    """The log loss, and the calibration error."""
    own = np.maximum(said[np.arange(len(y)), y], 1e-15)
    return {"log_loss": float(-np.log(own).mean()), "calibration": scores.calibration_error(said, y)}


@contextmanager
def changed(change: Change) -> Iterator[None]:
    """Let every new committee go through a change."""
    make = defaults.make_committee
    defaults.make_committee = lambda *arguments, **named: change(make(*arguments, **named))
    try:
        yield
    finally:
        defaults.make_committee = make


def markdown(found: dict[str, dict[str, dict[str, float]]], variants: list[str]) -> str:
    def ratios(variant: str, what: str) -> list[float]:
        runs = [each for each in found.values() if what in each[DEFAULT] and what in each[variant]]
        return [max(run[variant][what], TINY) / max(run[DEFAULT][what], TINY) for run in runs]

    def means(what: str, digits: int = 3) -> list[str]:
        columns = [ratios(variant, what) for variant in variants[1:]]
        return [f"{statistics.geometric_mean(column):.{digits}f}" if column else "–" for column in columns]

    columns = [ratios(variant, "error") for variant in variants[1:]]
    errors = [figure(runs[DEFAULT]["error"]) for runs in found.values()]
    lines = zip(found, errors, *([f"{value:.3f}" for value in column] for column in columns), strict=True)
    totals = {
        "geometric mean": means("error"),
        "log loss": means("log_loss"),
        "calibration error": means("calibration"),
    }
    totals["CPU time"] = means("cpu_s", 2)
    rows = [*map(list, lines), *([name, "–", *values] for name, values in totals.items())]
    return table(["stream", "error of the default", *variants[1:]], rows)


if __name__ == "__main__":
    sys.exit(main())
