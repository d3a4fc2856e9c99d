"""The appendix: a loss that is not smooth, learners that speak along one axis, and Algorithm 1 stuck for ever.

python -m experiments.counter_example [--quick]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.counter_example import SLOPES, START, path
from experiments import charts
from experiments.records import Mode, Progress, Record, Row, rounded
from streamboost.arrays import FloatArray
from streamboost.descents import Ball, GradientDescent, ResidualProjection

TITLE = "Appendix: the counter-example to Algorithm 1"
INTRODUCTION = (
    "The loss is 2·abs(y₁) + abs(y₂), least at the origin, and a weak learner can only say [α, 0] or [0, α]. The first "
    "axis always has the steeper slope, so under Algorithm 1 every learner speaks along it. Algorithm 2 carries along "
    "what the learners failed to say, until the second axis is the better one. Nothing here is random."
)
FULL = {"learners": 200, "step": 0.1, "radius": 2.0}
QUICK = {"learners": 40, "step": 0.1, "radius": 2.0}


def run(mode: Mode, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Walk both paths."""
    sizes = QUICK if mode == "quick" else FULL
    N = int(sizes["learners"])
    progress.expect(2)
    first = progress.part("Algorithm 1", lambda: rounded(path(GradientDescent(sizes["step"]), N)))
    second = progress.part(
        "Algorithm 2", lambda: rounded(predictions(path(ResidualProjection(1.0, domain=Ball(sizes["radius"])), N)))
    )
    return {"start": START, "paths": {"1": first, "2": second}, "losses": {"1": _losses(first), "2": _losses(second)}}


def predictions(walk: FloatArray) -> FloatArray:
    """What Algorithm 2 predicts with 0, 1, … N learners, (N + 1, 2): the start, and means of the partial sums."""
    means = np.cumsum(walk[1:], axis=0) / np.arange(1, len(walk))[:, None]
    return np.vstack([walk[:1], means])


def _losses(walk: Any) -> Any:
    return rounded(np.abs(np.array(walk)) @ SLOPES)


def draw(record: Record, folder: Path) -> list[tuple[str, str]]:
    """Draw the paths over the contours of the loss, and the loss over learners."""
    looks = {"2": ("Algorithm 2", charts.COLOURS[0]), "1": ("Algorithm 1", charts.COLOURS[1])}
    drawing, axes = charts.blank("y₁", "y₂", "2·abs(y₁) + abs(y₂), learners along one axis", height=3.8)
    across, up = np.linspace(-1.1, 1.2, 93), np.linspace(-0.4, 1.2, 65)
    heights = 2 * np.abs(across)[None, :] + np.abs(up)[:, None]
    axes.contour(across, up, heights, levels=np.arange(0.25, 4, 0.25), colors=charts.FAINT, linewidths=0.8)
    for key, (label, colour) in looks.items():
        axes.plot(*np.array(record["paths"][key]).T, color=colour, marker=".", markersize=4, linewidth=1, label=label)
    axes.plot(0, 0, marker="+", color=charts.INK, markersize=10)
    axes.plot(*record["start"], marker="o", color=charts.INK, markersize=5, label="y⁰")
    axes.grid(False)
    charts.legend(axes, loc="lower right")
    paths = charts.save(drawing, folder, "counter_example_paths")

    drawing, axes = charts.blank("learners N", "loss of the prediction, and regret", "the least loss is 0", height=3.8)
    for key, (label, colour) in looks.items():
        axes.plot(record["losses"][key], color=colour, label=label)
    charts.logarithmic(axes.yaxis)
    charts.whole_numbers(axes)
    charts.legend(axes)
    losses = charts.save(drawing, folder, "counter_example_losses")
    return [
        (paths, "The partial sums of Algorithm 1 and the predictions of Algorithm 2 as learners are added."),
        (losses, "The loss of the prediction over the number of learners."),
    ]


def compare(record: Record) -> list[Row]:
    """Tell where both ended."""
    N = len(record["losses"]["1"]) - 1
    ends = {key: record["paths"][key][-1] for key in ("1", "2")}
    return [
        Row(
            "Algorithm 1",
            "y₂ never moves: regret of at least b = y₂ of the start, for any N",
            f"y₂ is {ends['1'][1]:.2f} from start to end; loss {min(record['losses']['1']):.3f} at best over "
            f"N = 0 to {N}",
            "As printed, with targets taken at the present partial sums. With targets recorded on both sides of 0 they "
            "cancel along the first axis, which the paper's argument overlooks.",
        ),
        Row(
            "Algorithm 2",
            "no number given: the regret falls like ln N / N",
            f"ends at ({ends['2'][0]:.3f}, {ends['2'][1]:.3f}) with loss {record['losses']['2'][-1]:.4f} at N = {N}",
            "Steps 1/i without a ridge; the prediction is the mean of y¹ … yᴺ.",
        ),
    ]


if __name__ == "__main__":
    from experiments.runner import main

    main(only="counter_example")
