"""The two pictures of the report: error over rows, and error against cost."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from benchmarks import compare, peers
from benchmarks.compare import BATCH, OURS, Record
from benchmarks.scores import BLOCK

Runs = dict[str, dict[str, Record]]

INK, FAINT = "#333333", "#d9d9d9"
COLOURS = {
    "streamboost": "#0b5cad",
    "river": "#2e8b57",
    "capymoa": "#d1495b",
    "vowpalwabbit": "#8d6a9f",
    "lightgbm": "#7a7a7a",
}
BEST, SECOND = "#d97706", "#e7b56a"
STYLE = {
    "font.size": 8,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
HALO = [withStroke(linewidth=2, foreground="white")]
SMOOTH = 3  # blocks a point of the first picture looks back over
N_COLUMNS = 4


# Error over rows.


def error_over_rows(runs: Runs, names: list[str], file: Path) -> None:
    """Draw a panel a stream: streamboost, the two best peers, and LightGBM.

    Parameters
    ----------
    runs : dict of dicts
        Records by stream and model.
    names : list of str
        The streams, in the order of the panels.
    file : Path
        A PNG.
    """
    with matplotlib.rc_context(STYLE):
        n_lines = math.ceil(len(names) / N_COLUMNS)
        picture = Figure(figsize=(2.9 * N_COLUMNS, 2.15 * n_lines + 0.5), layout="constrained")
        panels = np.atleast_1d(picture.subplots(n_lines, N_COLUMNS, squeeze=False)).ravel()
        for panel, name in zip(panels, names, strict=False):
            _draw_stream(panel, name, runs[name])
        for panel in panels[len(names) :]:
            panel.set_axis_off()
        picture.suptitle(
            f"Error over the {SMOOTH * BLOCK:,} rows before (RMSE, or share of rows wrong), as the stream goes on",
            fontsize=10,
        )
        picture.savefig(file, dpi=120)


def _draw_stream(panel: Axes, name: str, runs: dict[str, Record]) -> None:
    best = compare.ranked_peers(runs)[:2]
    lines = [(runs.get(OURS), COLOURS[OURS], 2.0, "-")]
    lines += [(record, colour, 1.4, "-") for record, colour in zip(best, (BEST, SECOND), strict=False)]
    lines += [(runs.get(BATCH), COLOURS["lightgbm"], 1.0, "--")]
    drawn = [(record, *look) for record, *look in lines if record is not None]
    for place, (record, colour, width, dash) in enumerate(drawn):
        panel.plot(*recent_error(record), color=colour, linewidth=width, linestyle=dash, zorder=9 - place)
        panel.text(
            0.98,
            0.98 - 0.095 * place,
            peers.PEERS[record["model"]].title,
            color=colour,
            fontsize=6.5,
            ha="right",
            va="top",
            transform=panel.transAxes,
            zorder=10,
            path_effects=HALO,
        )
    _limit(panel, [recent_error(record)[1] for record, *_ in drawn])
    panel.set_title(name, fontsize=9, loc="left", fontweight="bold")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x else "0"))
    panel.tick_params(length=2)
    panel.grid(axis="y", color=FAINT, linewidth=0.5)


def recent_error(record: Record) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the ends of the blocks, and the error over the last few blocks up to each."""
    kind = compare.measure(record)
    blocks = np.array(record["blocks"][kind])
    values = blocks**2 if kind == "rmse" else 1 - blocks
    rows = np.minimum(BLOCK * np.arange(1, len(blocks) + 1), record["done"])
    sizes = np.diff(rows, prepend=0)
    means = [
        np.average(values[max(0, i - SMOOTH + 1) : i + 1], weights=sizes[max(0, i - SMOOTH + 1) : i + 1])
        for i in range(len(blocks))
    ]
    return rows, np.sqrt(means) if kind == "rmse" else np.array(means)


def _limit(panel: Axes, errors: list[NDArray[np.float64]]) -> None:
    """Leave room for the names on top, and let a line leave the panel rather than flatten the first two."""
    if not errors:
        return
    high = min(max(line.max() for line in errors[:2]), 4 * min(float(np.median(line)) for line in errors[:2]))
    high = max(high, min(max(line.max() for line in errors), 1.5 * high))
    low = min(line.min() for line in errors)
    room = high - low or 1.0
    panel.set_ylim(max(0.0, low - 0.08 * room), high + 0.5 * room)


# Error against cost.


def error_against_cost(runs: Runs, file: Path) -> None:
    """Draw every model once, at its median cost and error beside streamboost's, and faintly on every stream.

    Without runs of streamboost there is nothing to compare with, and nothing is drawn.
    """
    points = beside_ours(runs)
    if not points:
        return
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(8.6, 5.4), layout="constrained")
        panel = picture.subplots()
        panel.axhline(1.0, color=COLOURS[OURS], linewidth=0.8, alpha=0.6, zorder=1)
        for model, (costs, errors) in points.items():
            colour = COLOURS[peers.PEERS[model].package]
            panel.scatter(costs, np.clip(errors, *BOUNDS), s=9, color=colour, alpha=0.28, linewidth=0, zorder=2)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylim(BOUNDS[0] * 0.95, BOUNDS[1] * 1.06)
        panel.yaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.5, 2, 3, 4]))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} ×" if y < BOUNDS[1] else f"≥ {y:g} ×"))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f} µs" if x < 1e4 else f"{x / 1e3:,.0f} ms"))
        panel.set_xlabel("CPU time a row")
        panel.set_ylabel(f"error over {OURS}'s, same rows")
        panel.grid(color=FAINT, linewidth=0.5)
        panel.set_title(
            "Error against cost: large dots are medians over the streams, small ones single streams; "
            "down and left is better",
            fontsize=9,
            loc="left",
        )
        FigureCanvasAgg(picture).draw()  # places everything, so that names can keep out of each other's way
        _draw_medians(panel, points)
        picture.savefig(file, dpi=130)


BOUNDS = (0.5, 4.0)  # of the error beside streamboost's; what lies beyond is drawn on the edge


def beside_ours(runs: Runs) -> dict[str, tuple[list[float], list[float]]]:
    """Give the costs (µs of CPU a row) and errors (over streamboost's on the same rows) of every peer, by stream."""
    points: dict[str, tuple[list[float], list[float]]] = {}
    for by_model in runs.values():
        ours = by_model.get(OURS)
        for model, record in by_model.items():
            if ours is None or model not in peers.PEERS or not (rows := compare.shared_rows(ours, record)):
                continue
            costs, errors = points.setdefault(model, ([], []))
            costs.append(max(record["cpu_s"] / record["done"] * 1e6, 1.0))
            errors.append(compare.error(record, rows) / max(compare.error(ours, rows), 1e-12))
    return points


def _draw_medians(panel: Axes, points: dict[str, tuple[list[float], list[float]]]) -> None:
    taken: list[Bbox] = []
    for model, (costs, errors) in points.items():
        colour = COLOURS[peers.PEERS[model].package]
        x, y = statistics.median(costs), float(np.clip(statistics.median(errors), *BOUNDS))
        size = 110 if model == OURS else 46  # square points
        panel.scatter([x], [y], s=size, color=colour, edgecolor="white", linewidth=0.8, zorder=4)
        radius = math.sqrt(size) / 2 * panel.get_figure(root=True).dpi / 72
        middle = panel.transData.transform((x, y))
        taken.append(Bbox([middle - radius, middle + radius]))
    for model, (costs, errors) in points.items():
        x, y = statistics.median(costs), float(np.clip(statistics.median(errors), *BOUNDS))
        _name(panel, model, (x, y), taken)


def _name(panel: Axes, model: str, point: tuple[float, float], taken: list[Bbox]) -> None:
    """Write a model's name beside its dot, where nothing else is written yet if there is such a place."""
    text = panel.annotate(
        peers.PEERS[model].title,
        point,
        xytext=(7, 0),
        textcoords="offset points",
        fontsize=7.5,
        color=COLOURS[peers.PEERS[model].package],
        fontweight="bold" if model == OURS else "normal",
        va="center",
        zorder=5,
        path_effects=HALO,
    )
    for drop in (0, 9, -9, 18, -18, 27, -27, 36, -36):
        for side, across in (("left", 7), ("right", -7)):
            text.set_horizontalalignment(side)
            text.xyann = (across, drop)
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                return
    text.set_horizontalalignment("left")
    text.xyann = (7, 0)
