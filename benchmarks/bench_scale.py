"""Accuracy that grows with the rows, beside LightGBM trained on all rows so far: long streams, and shuffled tables.

    python -m benchmarks.bench_scale [--quick] [--most N] [--streams NAME ...] [--tables NAME ...] [--seeds N]
                                     [--trees N ...] [--peers NAME ...] [--peer-seconds S] [--fresh]
    python -m benchmarks.bench_scale [--throughput] [--latency [--window N]] [--memory] [--quick]

Streams (``scale_streams``) are learned row by row by the default model. At each mark it is tested on 5,000 other rows,
without noise (RMSE; on covtype, a file, log loss), beside LightGBM with 200, 500 and 2,000 trees of 127 leaves at 0.1
on one thread, trained on all rows up to there; on the drifting stream also on the latest 100,000. Streaming peers learn
the same rows in processes of their own until their time is up; strings are numbers for them, categories for LightGBM.
Beside the CPU time of all rows learned so far stands that of one training of the LightGBM it is level with: the
cheapest whose error is at most 1.02 times ours; where there is none, that with the nearest error.

Tables are shuffled: ``fit`` on four fifths, RMSE or log loss of the rest, beside the better of LightGBM's defaults and
500 trees of 63 leaves at 0.05. Errors and CPU times are ratios to LightGBM's.

Results of LightGBM and the peers are kept (``benchmarks/cache/scale.jsonl``, or beside ``--results``) and not run
again without ``--fresh``. A machine is not always equally fast, so one small LightGBM training, always the same, is
timed at every mark, as it was beside each kept result: kept CPU times are multiplied by the ratio of the two.

``--throughput``, ``--latency`` and ``--memory`` run these parts alone (``scale_costs``): the default, which grows,
beside memory=(256, 1024, 4096, 16384).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import scale_costs, scale_peers, scale_streams, streams
from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.peers import PEERS
from benchmarks.report import figure, ratio, table
from benchmarks.scale_costs import LADDER
from benchmarks.scale_peers import Cache, Record, error_on_test, time_yardstick, timed
from benchmarks.scale_streams import Rows, Source
from streamboost import SGBClassifier, SGBRegressor

MARKS, QUICK_MARKS = (30_000, 100_000, 300_000, 1_000_000), (1_000, 2_000)
TREES, QUICK_TREES = (200, 500, 2_000), (10, 20, 40)
MANY_TREES, MANY_ROWS = 2_000, 100_000  # so many trees are trained on so many rows, or more
LATEST = 100_000  # rows of a LightGBM that forgets
DRIFTING = ("drift",)
LEVEL = 1.02  # times our error
TABLES = ("cal_housing", "cpu_act", "wine", "bike_sharing", "metro_traffic", "electricity", "covtype", "a9a", "abalone")
LARGEST_TABLE = 60_000  # rows of a table, drawn where it has more


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        asked = [part for part in scale_costs.PARTS if getattr(options, part)]
        for part in asked:
            text, figures = scale_costs.PARTS[part](options, progress)
            print(text)
            keep(options, f"scale_{part}", figures)
        if not asked:
            run(options, progress)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = parser_of("bench_scale", __doc__)
    parser.add_argument("--streams", nargs="*", default=list(scale_streams.NAMES), choices=scale_streams.NAMES)
    parser.add_argument("--most", type=int, default=MARKS[-1], metavar="N", help="rows of a stream, at most")
    parser.add_argument("--trees", nargs="*", type=int, default=list(TREES), help="of LightGBM")
    parser.add_argument("--peers", nargs="*", metavar="NAME", choices=PEERS, help="by default three a task")
    parser.add_argument("--peer-seconds", type=float, default=900.0, help="of learning, for each peer and stream")
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--seeds", type=int, default=3, help="shuffles of each table")
    parser.add_argument("--fresh", action="store_true", help="run LightGBM and the peers again")
    for part in scale_costs.PARTS:
        parser.add_argument(f"--{part}", action="store_true", help=(scale_costs.PARTS[part].__doc__ or "").strip())
    parser.add_argument("--window", type=int, default=1_000_000, help="rows learned before latency is measured")
    parser.add_argument("--memory-rows", type=int, default=2_000_000)
    options = parser.parse_args(arguments)
    marks = QUICK_MARKS if options.quick else MARKS
    options.marks = sorted({min(mark, options.most) for mark in marks})
    if options.quick:
        options.trees, options.tables, options.seeds = list(QUICK_TREES), ["abalone"], 1
        options.peers = ["river_linear"] if options.peers is None else options.peers
    return options


def run(options: argparse.Namespace, progress: Progress) -> None:
    """Streams, then tables; what is found is kept after each."""
    cache = Cache((options.results or streams.CACHE) / "scale.jsonl", options.fresh)
    found: Record = {"streams": [], "peers": [], "tables": []}
    for name in options.streams:
        try:
            source = scale_streams.load(name, options.seed)
        except streams.MissingData as missing:
            print(missing, file=sys.stderr)
            continue
        marks = sorted({min(mark, source.n_rows) for mark in options.marks})
        for figures in over_rows(source, marks, options, cache, progress):
            found["streams"].append(figures)
        found["peers"] += beside_peers(source, marks, options, cache, progress)
        folder = keep(options, "scale", found)
        draw(found, folder / "scale.png")
    for name in options.tables:
        try:
            data = scale_streams.load_table(name)
        except streams.MissingData as missing:
            print(missing, file=sys.stderr)
            continue
        shuffles = [on_table(data, seed, cache, progress) for seed in range(options.seeds)]
        found["tables"].append({"table": name, **{key: mean(one[key] for one in shuffles) for key in shuffles[0]}})
    keep(options, "scale", found)
    print("\n\n".join(tell(found)))


# Streams.


def make(n_classes: int, **settings: Any) -> Any:
    return (SGBClassifier if n_classes else SGBRegressor)(random_state=0, **settings)


def over_rows(
    source: Source, marks: list[int], options: argparse.Namespace, cache: Cache, progress: Progress
) -> Iterator[Record]:
    """Learn a stream up to each mark; tell the errors there, and what all of it has cost."""
    X, y = next(source.rows(0, 2_000))
    make(source.n_classes).fit(X, y)  # what is compiled or loaded is not counted
    model, spent, paces = make(source.n_classes), 0.0, []
    bar = progress.add_task(source.name, total=marks[-1])
    for last, mark in pairwise([0, *marks]):
        for X, y in source.rows(last, mark):
            spent += timed(lambda: model.learn(X, y))  # noqa: B023 (called at once)
            progress.advance(bar, len(y))
        paces.append(time_yardstick())
        test = source.test(mark)
        figures = {
            "error": error_on_test(model, *test, source.n_classes),
            "cpu": spent,
            "trees": model.committee_.boosters[0].stack.n_learners,
            "events": [list(event) for event in model.events_],
        }
        windows = [None, LATEST] if source.name in DRIFTING and mark > LATEST else [None]
        for window in windows:
            theirs = batch(source, mark, window, test, options.trees, cache, progress)
            now = statistics.median(paces)
            for one in theirs.values():
                one["cpu"] *= now / one["yardstick"]
            head = {"stream": source.name, "rows": mark, "window": window}
            yield head | figures | {"lightgbm": theirs} | compared(figures, theirs)
    progress.remove_task(bar)


def batch(
    source: Source, mark: int, window: int | None, test: Rows, trees: Iterable[int], cache: Cache, progress: Progress
) -> dict[str, Record]:
    """Train LightGBM on the rows up to a mark, all or the latest; give its results by the number of trees."""
    start = mark - window if window else 0
    held: list[Rows] = []  # made once for all trainings, and only if there are any

    def rows() -> Rows:
        held[:] = held or [scale_streams.whole(source, start, mark)]
        return held[0]

    key, found = f"{source.name} {source.digest} {start}-{mark}", {}
    for n_trees in trees:
        if n_trees < MANY_TREES or mark >= MANY_ROWS:
            shape = {"n_estimators": n_trees, "num_leaves": 127, "learning_rate": 0.1}
            record = scale_peers.train(cache, key, rows, test, source.n_classes, progress, **shape)
            found[str(n_trees)] = {name: record[name] for name in ("error", "cpu", "yardstick")}
    return found


def compared(ours: Record, theirs: dict[str, Record]) -> Record:
    """Ratios of our error to the better of the smaller LightGBMs and to the largest, and of CPU to a level one."""
    if not theirs:
        return {"beside_better": None, "beside_most": None, "level_with": None, "cpu_ratio": None}
    largest = str(MANY_TREES) if str(MANY_TREES) in theirs else None
    smaller = [one["error"] for n_trees, one in theirs.items() if n_trees != largest]
    level = level_with(ours["error"], theirs)
    return {
        "beside_better": ours["error"] / min(smaller) if smaller else None,
        "beside_most": ours["error"] / theirs[largest]["error"] if largest else None,
        "level_with": level,
        "cpu_ratio": ours["cpu"] / theirs[level]["cpu"],
    }


def level_with(error: float, theirs: dict[str, Record]) -> str:
    """The cheapest whose error is at most 1.02 times this one; where there is none, that with the nearest error."""
    able = [name for name, one in theirs.items() if one["error"] <= LEVEL * error]
    if able:
        return min(able, key=lambda name: theirs[name]["cpu"])
    return min(theirs, key=lambda name: abs(theirs[name]["error"] - error))


def beside_peers(
    source: Source, marks: list[int], options: argparse.Namespace, cache: Cache, progress: Progress
) -> list[Record]:
    """Results of streaming peers at the marks they reach, and where they stop."""
    usual = scale_peers.CLASSIFICATION if source.n_classes else scale_peers.REGRESSION
    job, found = {"marks": marks, "seconds": options.peer_seconds, "seed": options.seed}, []
    task = "classification" if source.n_classes else "regression"
    asked = usual if options.peers is None else options.peers
    for name in (name for name in asked if task in PEERS[name].tasks):
        absence = PEERS[name].absence()
        if absence:
            print(f"left out: {absence}.", file=sys.stderr)
            continue
        for one in scale_peers.run_peer(cache, source, name, job, progress):
            kept = {key: one[key] for key in ("rows", "error", "cpu", "stopped")}
            found.append({"stream": source.name, "model": name, **kept})
    return found


# Tables.


def on_table(data: streams.Stream, seed: int, cache: Cache, progress: Progress) -> dict[str, float]:
    """Fit four fifths of a table; tell the errors on the rest and the CPU time, as ratios to LightGBM's."""
    order = np.random.default_rng(seed).permutation(len(data.y))[:LARGEST_TABLE]
    train, test = (Rows(data.X[part], data.y[part]) for part in np.split(order, [int(0.8 * len(order))]))
    k, key = data.n_classes, f"table {data.name} {data.digest} shuffle {seed}"
    shapes: tuple[dict[str, Any], ...] = ({}, {"n_estimators": 500, "num_leaves": 63, "learning_rate": 0.05})
    theirs = [scale_peers.train(cache, key, lambda: train, test, k, progress, **shape) for shape in shapes]
    best = min(theirs, key=lambda one: one["error"])
    bar = progress.add_task(f"{data.name}, shuffle {seed}", total=2)
    one_pass, swept = make(k, memory=LADDER), make(k)
    one_pass.fit(*train)
    progress.advance(bar)
    seconds = timed(lambda: swept.fit(*train))
    progress.remove_task(bar)
    first, second = (error_on_test(model, *test, k) / best["error"] for model in (one_pass, swept))
    cost = best["cpu"] * time_yardstick() / best["yardstick"]
    return {"one_pass": first, "fit": second, "cpu": seconds / cost}


def mean(values: Iterable[float]) -> float:
    """The geometric mean of ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


# Tables in Markdown, and the picture.


def tell(found: Record) -> Iterator[str]:
    """Write what was found."""
    trees = list(dict.fromkeys(n for one in found["streams"] for n in one["lightgbm"]))
    head = ["stream", "rows", "streamboost", *(f"LightGBM, {int(n):,} trees" for n in trees)]
    head += ["beside the better", "beside 2,000", "CPU s", "level with", "its CPU s", "CPU, ratio", "our trees"]
    lines = []
    for one in found["streams"]:
        name = one["stream"] + (f", LightGBM on the latest {one['window']:,}" if one["window"] else "")
        errors = [figure(one["lightgbm"][n]["error"]) if n in one["lightgbm"] else "–" for n in trees]
        level = one["level_with"]
        cpu = [f"{one['cpu']:.1f}", f"{int(level):,}" if level else "–"]
        cpu += [f"{one['lightgbm'][level]['cpu']:.1f}" if level else "–", or_dash(one["cpu_ratio"], ratio)]
        ratios = [or_dash(one[key], "{:.3f}".format) for key in ("beside_better", "beside_most")]
        lines.append([name, f"{one['rows']:,}", figure(one["error"]), *errors, *ratios, *cpu, str(one["trees"])])
    if lines:
        yield table(head, lines)
    ours = {(one["stream"], one["rows"]): one["error"] for one in found["streams"]}
    lines = []
    for one in found["peers"]:
        there = ours.get((one["stream"], one["rows"]))
        cells = [one["stream"], PEERS[one["model"]].title, f"{one['rows']:,}", figure(one["error"])]
        lines.append([*cells, or_dash(there, figure), f"{one['cpu']:.1f}", one["stopped"] or ""])
    if lines:
        yield table(["stream", "peer", "rows", "error", "streamboost", "CPU s", "stopped"], lines)
    lines = [[str(one["table"]), *(f"{one[key]:.3f}" for key in ("one_pass", "fit", "cpu"))] for one in found["tables"]]
    if lines:
        means = [f"{mean(one[key] for one in found['tables']):.3f}" for key in ("one_pass", "fit", "cpu")]
        yield table(["table", "one pass", "fit", "CPU of fit"], [*lines, ["geometric mean", *means]])


def or_dash(value: float | None, write: Callable[[float], str]) -> str:
    return "–" if value is None else write(value)


NAME_HEIGHT = 0.06  # of a panel
Line = tuple[str, str, str, float, list[tuple[int, float]]]  # name, colour, dash, width, points


def lines_of(found: Record, name: str) -> list[Line]:
    """The lines of a panel: streamboost, LightGBM with 500 and 2,000 trees, and the peers."""
    from benchmarks import pictures

    grown = [one for one in found["streams"] if one["stream"] == name]
    points = [(one["rows"], one["error"]) for one in grown if not one["window"]]
    lines: list[Line] = [("streamboost", pictures.COLOURS["streamboost"], "-", 2.0, points)]
    trees = list(dict.fromkeys(n for one in grown for n in one["lightgbm"]))[-2:]
    for n, colour in zip(trees, (pictures.COLOURS["lightgbm"], pictures.INK), strict=False):
        for window, dash in ((None, "--"), (LATEST, ":")):
            of_this = [one for one in grown if one["window"] == window and n in one["lightgbm"]]
            title = f"LightGBM, {int(n):,} trees" + (f", latest {LATEST // 1000}k rows" if window else "")
            points = [(one["rows"], one["lightgbm"][n]["error"]) for one in of_this]
            lines += [(title, colour, dash, 1.2, points)] if points else []
    met = list(dict.fromkeys(one["model"] for one in found["peers"] if one["stream"] == name))
    for model, colour in zip(met, (pictures.BEST, pictures.SECOND, "#8d6a9f"), strict=False):
        of_this = [one for one in found["peers"] if (one["stream"], one["model"]) == (name, model)]
        points = [(one["rows"], one["error"]) for one in of_this]
        lines.append((PEERS[model].title, colour, "-", 1.4, points))
    return lines


def draw(found: Record, file: Path) -> None:
    """Draw the error over the rows, a panel a stream; dotted lines are of LightGBM on the latest rows."""
    import matplotlib
    from matplotlib.figure import Figure

    from benchmarks import pictures

    style: Any = pictures.STYLE
    names = list(dict.fromkeys(one["stream"] for one in found["streams"]))
    n_lines = math.ceil(len(names) / 3)
    with matplotlib.rc_context(style):
        picture = Figure(figsize=(11.6, 3.1 * n_lines + 0.5), layout="constrained")
        panels = picture.subplots(n_lines, 3, squeeze=False).ravel()
        for panel, name in zip(panels, names, strict=False):
            draw_panel(panel, name, lines_of(found, name))
        for panel in panels[len(names) :]:
            panel.set_axis_off()
        picture.suptitle("Test error (RMSE; covtype: log loss) over the rows learned so far", fontsize=10)
        picture.savefig(file, dpi=120)


def limit(panel: Any, lines: list[Line], n_names: int) -> None:
    """Leave room for so many names on top of a logarithmic axis, without ticks there."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    errors = [error for *_, points in lines for _, error in points]
    low, high = min(errors) / 1.05, max(errors) * 1.05
    share = 0.96 - NAME_HEIGHT * n_names  # of the height, for the lines
    panel.set_yscale("log")
    panel.set_ylim(low, low * (high / low) ** (1 / share))
    finest = (1, 1.5, 2, 3, 5, 7) if high > 3 * low else np.arange(1, 10, 0.5)
    ticks = [digit * 10.0**power for power in range(-8, 9) for digit in finest]
    panel.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def draw_panel(panel: Any, name: str, lines: list[Line]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from benchmarks import pictures

    is_peer = [not title.startswith(("streamboost", "LightGBM")) for title, *_ in lines]
    for place, (title, colour, dash, width, points) in enumerate(lines):
        rows, errors = zip(*points, strict=True)
        panel.plot(rows, errors, color=colour, linestyle=dash, linewidth=width, marker=".", zorder=20 - place)
        panel.text(
            0.98 if is_peer[place] else 0.02,
            0.98 - NAME_HEIGHT * is_peer[:place].count(is_peer[place]),
            title,
            color=colour,
            fontsize=6.5,
            ha="right" if is_peer[place] else "left",
            va="top",
            transform=panel.transAxes,
            zorder=30,
            path_effects=pictures.HALO,
        )
    limit(panel, lines, max(sum(is_peer), len(lines) - sum(is_peer)))
    marks = [rows for rows, _ in lines[0][-1]]
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(marks))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}k"))
    panel.set_title(name, fontsize=9, loc="left", fontweight="bold")
    panel.tick_params(length=2)
    panel.grid(axis="y", color=pictures.FAINT, linewidth=0.5)


if __name__ == "__main__":
    sys.exit(main())
