"""How long the first use takes: the import, and compiling (or loading what was compiled before), in fresh processes.

    python -m benchmarks.bench_first_use [--quick]

A model of each kind learns 300 rows and predicts: a regressor, a classifier of two classes and one of more, one after
the other in one process; first with nothing compiled, then again in a new process. ``--quick`` leaves out the first of
these, which takes most of a minute, and uses the cache there is.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.progress import Progress

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from benchmarks.run import FOLDER

IMPORT_GOAL, COMPILE_GOAL = 1.5, 30.0  # seconds on a quiet machine, less than
STOPWATCH = """
import json, time
def lap(what, start=[time.perf_counter(), time.process_time()]):
    now = [time.perf_counter(), time.process_time()]
    print(json.dumps([what, now[0] - start[0], now[1] - start[1]]))
    start[:] = [time.perf_counter(), time.process_time()]
import streamboost
lap("import")
from streamboost import SGBRegressor
lap("names")
"""
ITS_BASE = (
    STOPWATCH.partition("import streamboost")[0]
    + """
import sklearn.base
lap("base")
"""
)
FIRST_USE = """
import numpy as np
from streamboost import SGBClassifier, SGBRegressor, datasets
X, y, *_ = datasets.friedman(300)
classes = np.digitize(y, np.quantile(y, [0.33, 0.67]))
lap("the data")
for what, model, y in (
    ("regressor", SGBRegressor(), y),
    ("two classes", SGBClassifier(), classes // 2),
    ("three classes", SGBClassifier(), classes),
):
    model.learn(X, y)
    model.predict(X[:1])
    lap(what)
"""
KINDS = ("regressor", "two classes", "three classes")
Laps = dict[str, list[float]]  # wall and CPU seconds by what was done


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_first_use", __doc__).parse_args(arguments)
    n_imports = 1 if options.quick else 5
    with Progress(console=Console(stderr=True), transient=True) as progress, tempfile.TemporaryDirectory() as empty:
        bar = progress.add_task("fresh processes", total=2 * n_imports + 2 - options.quick)

        def laps(code: str, cache: str | None) -> Laps:
            progress.advance(bar)
            return in_a_process(code, cache)

        cold = None if options.quick else laps(STOPWATCH + FIRST_USE, empty)
        cache = None if options.quick else empty
        warm = laps(STOPWATCH + FIRST_USE, cache)
        imports = [laps(STOPWATCH, cache) | laps(ITS_BASE, cache) for _ in range(n_imports)]
    rows = [
        line("import streamboost", median(imports, "import"), IMPORT_GOAL),
        line("then SGBRegressor from it", median(imports, "names")),
        line("scikit-learn's base alone, which that needs", median(imports, "base")),
    ]
    for title, found in (("nothing compiled", cold), ("all compiled before", warm)):
        if found is not None:
            rows += [line(f"{kind}, {title}", found[kind]) for kind in KINDS]
            whole = [sum(found[kind][clock] for kind in KINDS) for clock in (0, 1)]
            rows.append(line(f"all three, {title}", whole, COMPILE_GOAL if found is cold else None))
    print(table(["", "wall s", "CPU s", "goal (wall)", "reached"], rows))
    keep(options, "first_use", {"imports": imports, "cold": cold, "warm": warm})
    return 0


def median(runs: list[Laps], what: str) -> list[float]:
    return [statistics.median(times) for times in zip(*(laps[what] for laps in runs), strict=True)]


def line(what: str, seconds: list[float], goal: float | None = None) -> list[str]:
    told = ["", ""] if goal is None else [f"below {goal:g}", "yes" if seconds[0] < goal else "no"]
    return [what, *(f"{value:.2f}" for value in seconds), *told]


def in_a_process(code: str, cache: str | None) -> Laps:
    """Run code in a fresh Python; give the times its stopwatch tells."""
    settings = {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    pipes = {"stdout": subprocess.PIPE, "cwd": FOLDER.parent, "env": os.environ | settings}
    said = subprocess.run([sys.executable, "-c", code], check=True, **pipes).stdout
    return {what: times for what, *times in map(json.loads, said.splitlines())}


if __name__ == "__main__":
    sys.exit(main())
