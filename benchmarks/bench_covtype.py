"""The whole of covtype in one pass: 581,012 rows, 54 columns, 7 classes, each row predicted, then learned.

    STREAMBOOST_DATA=FOLDER python -m benchmarks.bench_covtype [--quick] [--rows N]

Rows come in file order, which is that of the map, so neighbours are alike: beside the accuracy of the model stands that
of saying the class of the row before. Prints accuracy, speed and memory; draws the accuracy over the rows.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from benchmarks import streams
from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.prequential import resident_mb
from benchmarks.report import table
from streamboost import SGBClassifier

CHUNK = 500
BLOCK = 10_000  # rows a point of the curve looks back over


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_covtype", __doc__)
    parser.add_argument("--rows", type=int, default=581_012)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows = min(options.rows, 2_000)
    try:
        stream = streams.load("covtype", options.rows, options.seed)
    except streams.MissingData as absence:
        print(absence, file=sys.stderr)
        return 1
    is_right, figures = run(stream, options.seed)
    n, block = len(is_right), min(BLOCK, max(len(is_right) // 10, 1))
    blocks = [float(is_right[start : start + block].mean()) for start in range(0, n, block)]
    figures |= {"rows": n, "accuracy": float(is_right.mean()), "block": block, "blocks": blocks}
    figures["row_before"] = float(np.mean(stream.y[1:] == stream.y[:-1]))
    rows = [
        ["rows", f"{n:,}"],
        ["accuracy", f"{figures['accuracy']:.4f}"],
        ["accuracy of the class of the row before", f"{figures['row_before']:.4f}"],
        ["rows / CPU s", f"{n / figures['cpu_s']:,.0f}"],
        ["rows / s", f"{n / figures['wall_s']:,.0f}"],
        ["memory held before the first row, MB", f"{figures['rss_mb'][0]:.0f}"],
        ["memory held after a tenth of the rows, MB", f"{figures['rss_mb'][1]:.0f}"],
        ["memory held at the end, MB", f"{figures['rss_mb'][-1]:.0f}"],
        ["memory dropped, times", str(sum(kind == "memory dropped" for _, kind, _ in figures["events"]))],
    ]
    print(table(["covtype", ""], rows))
    folder = keep(options, "covtype", figures)
    draw(is_right, blocks, block, folder / "covtype.png")
    return 0


def run(stream: streams.Stream, seed: int) -> tuple[NDArray[np.bool_], dict[str, Any]]:
    """Which rows were right; and time, memory and events of the pass."""
    n = len(stream.y)
    model = SGBClassifier(random_state=seed)
    is_right = np.zeros(n, dtype=bool)
    gc.collect()
    memory, looks = [resident_mb()], [n // 10, n]
    wall, cpu = time.perf_counter(), time.process_time()
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("learning", total=n)
        for start in range(0, n, CHUNK):
            rows = slice(start, min(start + CHUNK, n))
            is_right[rows] = model.learn(stream.X[rows], stream.y[rows]) == stream.y[rows]
            progress.update(bar, completed=rows.stop)
            if len(memory) <= len(looks) and rows.stop >= looks[len(memory) - 1]:
                memory.append(resident_mb())
    figures = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "rss_mb": memory}
    return is_right, figures | {"events": [list(event) for event in model.events_]}


def draw(is_right: NDArray[np.bool_], blocks: list[float], block: int, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    n = len(is_right)
    ends = np.minimum(block * np.arange(1, len(blocks) + 1), n)
    axes.plot(ends, blocks, color="#e7b56a", label=f"each {block:,} rows")
    so_far = np.cumsum(is_right) / np.arange(1, n + 1)
    axes.plot(ends, so_far[ends - 1], color="#0b5cad", label="all rows so far")
    axes.set(xlabel="rows", ylabel="accuracy")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
