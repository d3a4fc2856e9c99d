"""What checkpoints write for a learned row, and how long they take, while a memory grows to hold a million rows.

    python -m benchmarks.bench_checkpoints [--quick] [--rows N] [--every N]

Friedman's stream, ten columns, learned by the default model, of which a checkpoint is saved every 10,000 rows as a run
does. The booster that holds all rows joins as soon as it can, and stays whatever it has earned: what is measured is its
checkpoint. Bytes are those of new files; of each tenth of the rows the mean is told, and the median of seconds. At the
end of each tenth the newest checkpoint is loaded, too.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.progress import track

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.bench_flat import yes
from benchmarks.report import table
from streamboost import SGBRegressor, datasets
from streamboost.boosting import growth
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, read_latest
from streamboost.persistence.segments import FOLDER
from streamboost.replay import NEVER

TENTHS = 10
GOAL = 1.25  # times the bytes of the second tenth, at most


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_checkpoints", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=10_000, help="rows between two checkpoints")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.every = options.rows // 25, options.every // 5
    with mock.patch.multiple(growth, BELIEVED=0.0, HOPE_ROWS=NEVER, TRIAL_ROWS=NEVER):
        saved = run(options.rows, options.every, options.seed)
    size = max(len(saved) // TENTHS, 1)
    tenths = [summary(saved[start : start + size], options.every) for start in range(0, len(saved), size)]
    lines = [
        [f"{one['rows']:,}", *(f"{one[name]:,.0f}" for name in ("segments", "file", "bytes"))]
        + [f"{one[name]:.3f}" for name in ("seconds", "loading")]
        for one in tenths
    ]
    print(table(["up to row", "in segments", "beside them", "bytes a row", "s a checkpoint", "s to load it"], lines))
    ratio = tenths[-1]["bytes"] / tenths[1]["bytes"]
    told = "bytes a row, the last tenth over the second"
    print(table(["", "figure", "goal", "reached"], [[told, f"{ratio:.2f}", f"at most {GOAL}", yes(ratio <= GOAL)]]))
    keep(options, "checkpoints", {"ratio": ratio, "tenths": tenths})
    return 0


def run(n_rows: int, every: int, seed: int) -> list[dict[str, float]]:
    """Learn, and save a checkpoint after every so many rows; return what each took."""
    model, saved = SGBRegressor(random_state=seed), []
    with tempfile.TemporaryDirectory() as folder, CheckpointStore(folder) as store:
        there: dict[Path, int] = {}
        for start in track(range(0, n_rows, every), "checkpoints", console=Console(stderr=True), transient=True):
            X, y, *_ = datasets.friedman(every, noise=1.0, seed=seed + start)
            model.partial_fit(X, y)
            began = time.perf_counter()
            store.save(Checkpoint(model, start + every, start + every))
            seconds, before = time.perf_counter() - began, there
            there = {path: path.stat().st_size for path in Path(folder).rglob("*.*") if path.is_file()}
            new = {path: size for path, size in there.items() if path not in before}
            in_segments = sum(size for path, size in new.items() if path.parent.name == FOLDER)
            sizes = {"segments": in_segments, "file": sum(new.values()) - in_segments}
            saved.append({"rows": start + every, "seconds": seconds, **sizes})
            if (start + every) % (n_rows // TENTHS) == 0:
                began = time.perf_counter()
                read_latest(Path(folder))
                saved[-1]["loading"] = time.perf_counter() - began
    return saved


def summary(saved: list[dict[str, float]], every: int) -> dict[str, Any]:
    """Return bytes for each row, and the seconds of a checkpoint."""
    sizes = {name: statistics.mean(one[name] for one in saved) / every for name in ("segments", "file")}
    seconds = statistics.median(one["seconds"] for one in saved)
    loading = saved[-1].get("loading", math.nan)
    return {"rows": saved[-1]["rows"], "seconds": seconds, "loading": loading, "bytes": sum(sizes.values()), **sizes}


if __name__ == "__main__":
    sys.exit(main())
