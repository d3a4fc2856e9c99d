"""Figure 2: test loss against unit cost, streaming beside batch boosting, and streaming boosting with several N.

    python -m experiments.figure_2 [--quick]

The runs are those of Table 1, which is run first if it has not been; only those with other N are made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import charts, nets, table_1
from experiments.records import Mode, Progress, Record, Row, rounded, summary

TITLE = "Figure 2: test loss against the cost of training"
INTRODUCTION = (
    "A prediction of a weak learner for one row costs 1 unit, an update 2: streaming boosting spends 3N a row, batch "
    "boosting i + 2 while it trains learner i. The runs of Table 1, and for ABALONE other numbers of learners."
)
FULL: dict[str, Any] = {**table_1.FULL, "numbers": [2, 4, 8, 16, 32]}
QUICK: dict[str, Any] = {**table_1.QUICK, "numbers": [2, 8, 32]}


def run(mode: Mode, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Take over the curves of Table 1, and train ABALONE with other N."""
    from experiments import runner

    table = runner.run("table_1", mode)
    sizes = QUICK if mode == "quick" else FULL
    progress.expect(len(seeds) * len(sizes["numbers"]))
    varied = {}
    for n in sizes["numbers"]:
        runs = [progress.part(f"ABALONE, N = {n}, seed {seed}", lambda: abalone(n, seed, sizes)) for seed in seeds]  # noqa: B023
        varied[str(n)] = {"last": summary([run["last"] for run in runs]), "curve": runs[0]["curve"]}
    curves = {
        name: {k: one["runs"][0]["runs"][k]["curve"] for k in one["runs"][0]["runs"]}
        for name, one in table["sets"].items()
    }
    crossings = {
        name: [crossing(run["runs"]["SGB"]["curve"], run["runs"]["GB"]["curve"]) for run in one["runs"]]
        for name, one in table["sets"].items()
    }
    added = {name: one["runs"][0]["runs"]["GB"].get("added", []) for name, one in table["sets"].items()}
    return {"curves": curves, "added": added, "crossings": crossings, "varied": varied, "not_run": table["not_run"]}


def abalone(n: int, seed: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """Streaming boosting of n networks at the steps of Table 1, the rate chosen for N = 8."""
    one = nets.SETS["ABALONE"]
    training, test = one.split(seed)
    n_shown = min(one.rows, sizes["shown"])
    choice, _ = nets.choose(one, training, seed, n_shown, sizes["tried"])
    found, _ = nets.stream(one, n, choice, training, test, seed, n_shown)
    return {"last": rounded(found.last), "curve": rounded(found.curve)}


def crossing(streaming: list[list[float]], batch: list[list[float]]) -> dict[str, Any]:
    """The cost at which streaming boosting first is as good as batch boosting in the end; None if it never is."""
    cost, goal = batch[-1]
    reached = [units for units, error in streaming if error <= goal]
    return {"batch": cost, "streaming": reached[0] if reached else None}


def additions(curve: list[list[float]], added: list[float]) -> list[tuple[float, float]]:
    """Where on a curve learners were added: at their cost, and the error that was measured last before it."""
    costs, errors = (np.array(column) for column in zip(*curve, strict=True))
    places = np.maximum(np.searchsorted(costs, added, side="right") - 1, 0)
    return [(max(cost, float(costs[0])), float(error)) for cost, error in zip(added, errors[places], strict=True)]


def draw(record: Record, folder: Path) -> list[tuple[str, str]]:
    """A picture for each set, and one of the varied N."""
    pictures = []
    for name, curves in record["curves"].items():
        drawing, axes = charts.blank("unit cost", nets.SETS[name].measure, name, height=3.4)
        for colour, kind in zip(charts.COLOURS, ("SGB", "GB", "SGB, last iterate"), strict=False):
            axes.plot(*np.array(curves[kind]).T, color=colour, label=kind, linewidth=1.2)
            if kind == "GB":
                marks = additions(curves[kind], record["added"][name])
                axes.plot(*np.array(marks).T, "o", color=colour, markersize=5, label="GB adds a learner")
        charts.logarithmic(axes.xaxis)
        charts.logarithmic(axes.yaxis)
        charts.legend(axes)
        caption = f"{name}: test loss over unit cost, and where GB adds a learner."
        pictures.append((charts.save(drawing, folder, f"figure_2_{name.lower()}"), caption))
    drawing, axes = charts.blank("unit cost", nets.SQUARE, "ABALONE, several N", height=3.4)
    for number, (n, one) in enumerate(record["varied"].items()):
        axes.plot(*np.array(one["curve"]).T, color=charts.COLOURS[number % len(charts.COLOURS)], label=f"N = {n}")
    charts.logarithmic(axes.xaxis)
    charts.logarithmic(axes.yaxis)
    charts.legend(axes)
    pictures.append((charts.save(drawing, folder, "figure_2_numbers"), "Streaming boosting with N networks."))
    return pictures


def compare(record: Record) -> list[Row]:
    """Who is cheaper, set by set; and what N costs."""
    rows = []
    for name, found in record["crossings"].items():
        shares = [one["streaming"] / one["batch"] for one in found if one["streaming"] is not None]
        told = f"reached in {len(shares)} of {len(found)} runs"
        if shares:
            told += f", at {np.median(shares):.2g} of the cost of batch boosting (median)"
        claim = "SGB reaches it with less" if name in ("ABALONE", "MNIST", "YEAR", "SLICE") else "–"
        why = "" if shares else "batch boosting ends lower than streaming boosting does in as many rows as it was given"
        rows.append(Row(f"{name}: the final error of GB", claim, told, why))
    for n, one in record["varied"].items():
        rows.append(Row(f"ABALONE, N = {n}", "–", f"{one['last']['mean']:.4g} ± {one['last']['spread']:.2g}"))
    return rows


if __name__ == "__main__":
    from experiments.runner import main

    main(only="figure_2")
