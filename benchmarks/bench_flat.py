"""Whether cost and memory per row stay what they are: a long stream, block by block.

    python -m benchmarks.bench_flat [--quick] [--rows N]

Rows of Friedman's stream are made block by block, so that no more of them is held than one block. Compares the rows per
CPU second of the last tenth of the stream with those of the second, and the memory held at the end with that after two
tenths (the first tenth fills the longest memory). Draws both over the rows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks.bench_accuracy import error, keep, parser_of
from benchmarks.prequential import resident_mb
from benchmarks.report import table
from streamboost import SGBRegressor, datasets

BLOCKS = 100
CHUNK = 500
RATE_GOAL, MEMORY_GOAL = 0.9, 5.0  # the share of the early rate, at least; MB, less than


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_flat", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows //= 50
    size = max(options.rows // BLOCKS, 1)
    seconds, memory, errors = run(size, options.seed)
    early, late = (size * 10 / sum(seconds[start : start + 10]) for start in (10, 90))
    growth = memory[-1] - memory[19]
    rows = [
        [f"rows / CPU s, rows {10 * size:,} to {20 * size:,}", f"{early:,.0f}", "", ""],
        [f"rows / CPU s, rows {90 * size:,} to {100 * size:,}", f"{late:,.0f}", "", ""],
        ["late over early", f"{late / early:.2f}", f"at least {RATE_GOAL}", yes(late >= RATE_GOAL * early)],
        ["memory growth between them, MB", f"{growth:.1f}", f"below {MEMORY_GOAL:g}", yes(growth < MEMORY_GOAL)],
        ["RMSE of the last block", f"{errors[-1]:.3f}", "", ""],
    ]
    print(table(["", "figure", "goal", "reached"], rows))
    folder = keep(
        options,
        "flat",
        {
            "ratio": late / early,
            "growth_mb": growth,
            "block": size,
            "seconds": seconds,
            "memory_mb": memory,
            "rmse": errors,
        },
    )
    draw(size, seconds, memory, folder / "flat.png")
    return 0


def yes(is_reached: bool) -> str:
    return "yes" if is_reached else "no"


def run(size: int, seed: int) -> tuple[list[float], list[float], list[float]]:
    """Learn so many blocks; give the CPU seconds of each, the memory held after it in MB, and its RMSE."""
    model = SGBRegressor(random_state=seed)
    seconds, memory, errors = [], [], []
    for block in track(range(BLOCKS), "learning", console=Console(stderr=True)):
        X, y, *_ = datasets.friedman(size, seed=seed + block)
        said = np.empty(size)
        started = time.process_time()
        for rows in (slice(start, start + CHUNK) for start in range(0, size, CHUNK)):
            said[rows] = model.learn(X[rows], y[rows])
        seconds.append(time.process_time() - started)
        errors.append(error(said, y))
        memory.append(resident_mb())
    return seconds, memory, errors


def draw(size: int, seconds: list[float], memory: list[float], file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    rate, held = figure.subplots(2, 1, sharex=True)
    rows = size * np.arange(1, BLOCKS + 1)
    rate.plot(rows, size / np.array(seconds), color="#0b5cad")
    held.plot(rows, memory, color="#d1495b")
    rate.set(ylabel="rows / CPU s", ylim=(0, None))
    held.set(ylabel="memory held, MB", xlabel="rows", ylim=(0, None))
    for axes in (rate, held):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
