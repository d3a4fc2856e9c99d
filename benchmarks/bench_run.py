"""What a run costs beside the bare loop: ``streamboost run`` on a file against ``model.learn`` on the same rows.

    python -m benchmarks.bench_run [--quick] [--rows N] [--grown ROWS]

The Parquet file holds Friedman's stream. The bare loop has all rows in memory as arrays and learns them in chunks of
1,000; the run reads the file, checks the rows, keeps score, writes predictions and a checkpoint every 30 s. Both in
processes of their own, in turn, three times; the ratio is of the medians of CPU seconds, and of wall seconds besides.
With ``--grown`` both models have been fitted to so many other rows before, and a booster that holds all rows learns
with the others; it stays, whatever it earns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.bench_flat import yes
from benchmarks.report import table
from streamboost import datasets

GOAL = 0.7
REPEATS = 3
BARE = """
import json, sys, time
import numpy as np
import pyarrow.parquet as pq
from streamboost import SGBRegressor, datasets
from streamboost.boosting import growth
table = pq.read_table(sys.argv[1])
y = table["y"].to_numpy()
X = np.column_stack([table[name].to_numpy() for name in table.column_names if name != "y"])
model = SGBRegressor(random_state=0)
if n_grown := int(sys.argv[2]):
    growth.EARNED = growth.HOPELESS = growth.FORGOTTEN = 0.0
    model.fit(*datasets.friedman(n_grown, seed=0)[:2])
model.learn(X[:1000], y[:1000])  # compiled and open
cpu, wall = time.process_time(), time.perf_counter()
for start in range(1000, len(y), 1000):
    model.learn(X[start : start + 1000], y[start : start + 1000])
seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
print(json.dumps({**seconds, "held": model.committee_.boosters[0].replay.fill}))
"""
RUN = """
import json, sys, time
import pyarrow as pa
from streamboost import SGBRegressor, datasets
from streamboost.boosting import growth
from streamboost.runs.run import Options, Run
from streamboost.sources import open_source
model = SGBRegressor(random_state=0, new_columns="grow")
if n_grown := int(sys.argv[2]):
    growth.EARNED = growth.HOPELESS = growth.FORGOTTEN = 0.0
    X, y, *_ = datasets.friedman(n_grown, seed=0)
    model.fit(pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])}), y)
options = Options("y", "regression", predictions=sys.argv[3] + "/said.parquet")
with Run(open_source(sys.argv[1]), model, options, sys.argv[3]) as run:
    reports = run.reports()
    next(reports)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in reports:
        pass
    seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({**seconds, "held": run.model.committee_.boosters[0].replay.fill}))
"""


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_run", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--grown", type=int, default=0, metavar="ROWS", help="fit the models to so many rows first")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.grown = options.rows // 50, options.grown // 50
    taken: dict[str, list[dict[str, float]]] = {"bare": [], "run": []}
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder, "rows.parquet"), options.rows, options.seed)
        for repeat in range(1 if options.quick else REPEATS):
            taken["bare"].append(timed(BARE, file, options.grown))
            taken["run"].append(timed(RUN, file, options.grown, str(Path(folder, f"model{repeat}"))))
    ratios = {
        clock: median(one[clock] for one in taken["bare"]) / median(one[clock] for one in taken["run"])
        for clock in ("cpu", "wall")
    }
    rows = [
        [f"the run's speed over the bare loop's, {clock} time", f"{ratio:.2f}", f"at least {GOAL}", yes(ratio >= GOAL)]
        for clock, ratio in ratios.items()
    ]
    held = median(one["held"] for one in taken["run"])
    rows.append(["rows held at the end", f"{held:,.0f}", "", ""])
    print(table([f"{options.rows:,} rows", "figure", "goal", "reached"], rows))
    name = "run_beside_bare_grown" if options.grown else "run_beside_bare"
    keep(options, name, {"rows": options.rows, "ratios": ratios, "seconds": taken})
    return 0


def write(file: Path, n_rows: int, seed: int) -> Path:
    """Friedman's stream, block by block."""
    writer = None
    for start in range(0, n_rows, 50_000):
        X, y, *_ = datasets.friedman(min(50_000, n_rows - start), seed=seed + start)
        rows = pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})
        writer = writer or pq.ParquetWriter(file, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
    return file


def timed(script: str, *words: object) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
