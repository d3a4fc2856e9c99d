"""The appendix: a loss that is not smooth, learners that speak along one axis, and Algorithm 1 stuck for ever.

python -m experiments.counter_example [--quick]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from examples.counter_example import SLOPES, START, along_one_axis, lopsided, path
from experiments import charts
from experiments.records import Mode, Progress, Record, Row, rounded
from streamboost._types import FloatArray
from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.descents import Ball, GradientDescent, ResidualProjection
from streamboost.replay import Replay
from streamboost.stacks.refitted import FunctionStack

TITLE = "Appendix: the counter-example to Algorithm 1"
INTRODUCTION = (
    "The loss is 2·abs(y₁) + abs(y₂), least at the origin, and a weak learner can only say [α, 0] or [0, α]. The paper "
    "lets every learner follow the leader over the gradients it was given, row after row, and argues: whichever of the "
    "four gradients [±2, ±1] were among them, the best answer lies along the first axis, so that y₂ stays at b, where "
    "it started, and the regret is at least bT for any N. The argument has a gap. Once y₁ has been on both sides of 0, "
    "gradients [2, 1] and [−2, 1] are both on record; their mean is [0, 1], and the best answer lies along the "
    "second axis. So it is run in two ways. With recorded gradients, to the letter of the appendix, y₂ does move and "
    "the average loss is below b: as printed, the example does not show that Algorithm 1 fails (nor does this run show "
    "that it always works). With gradients taken afresh at the present partial sums, all gradients of a learner are "
    "the same one, the argument holds, and y₂ never moves: so Algorithm 1 has no guarantee for losses that are not "
    "smooth, which is the paper's point. Algorithm 2 carries along what the learners failed to say, until the second "
    "axis is the better one. Nothing here is random."
)
FULL = {"learners": 200, "step": 0.1, "radius": 2.0, "stream_rows": 400, "stream_learners": 40}
QUICK = {"learners": 40, "step": 0.1, "radius": 2.0, "stream_rows": 100, "stream_learners": 20}


def run(mode: Mode, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Walk both paths, and a stream of rows under Algorithm 1 with both kinds of targets."""
    sizes = QUICK if mode == "quick" else FULL
    N = int(sizes["learners"])
    progress.expect(4)
    first = progress.part("Algorithm 1", lambda: rounded(path(GradientDescent(sizes["step"]), N)))
    second = progress.part(
        "Algorithm 2", lambda: rounded(predictions(path(ResidualProjection(1.0, domain=Ball(sizes["radius"])), N)))
    )
    rows, learners, step = int(sizes["stream_rows"]), int(sizes["stream_learners"]), sizes["step"]
    streamed = {
        targets: progress.part(f"{targets} targets", lambda targets=targets: stream(targets, rows, learners, step))  # type: ignore[misc]
        for targets in ("recorded", "fresh")
    }
    return {
        "start": START,
        "paths": {"1": first, "2": second},
        "losses": {"1": _losses(first), "2": _losses(second)},
        "streams": {"rows": rows, "learners": learners, **streamed},
    }


def stream(targets: Literal["recorded", "fresh"], n_rows: int, n_learners: int, step: float) -> dict[str, Any]:
    """Algorithm 1 row by row: where it ends, and the loss of each prediction made before its row was learned."""
    replay = Replay(None, refit_every=1, targets=targets, learners="all", warmup=1, soonest=1)
    stack = FunctionStack(along_one_axis, n_learners)
    booster = Booster(lopsided(), GradientDescent(step), stack, base=Constant(START), replay=replay)
    said = booster.learn(np.zeros((n_rows, 1)), np.zeros((n_rows, 2)))
    losses = np.abs(said) @ SLOPES
    return {
        "end": rounded(booster.score(np.zeros((1, 1)))[0]),
        "second": rounded([said[:, 1].min(), said[:, 1].max()]),
        "average": rounded(losses.mean()),
        "averages": rounded(np.cumsum(losses) / np.arange(1, n_rows + 1), 4),
    }


def predictions(walk: FloatArray) -> FloatArray:
    """What Algorithm 2 predicts with 0, 1, … N learners, (N + 1, 2): the start, and means of the partial sums."""
    means = np.cumsum(walk[1:], axis=0) / np.arange(1, len(walk))[:, None]
    return np.vstack([walk[:1], means])


def _losses(walk: Any) -> Any:
    return rounded(np.abs(np.array(walk)) @ SLOPES)


def draw(record: Record, folder: Path) -> list[tuple[str, str]]:
    """Draw the paths over the contours of the loss, and the loss over learners."""
    looks = {"2": ("Algorithm 2", charts.COLOURS[0]), "1": ("Algorithm 1, fresh gradients", charts.COLOURS[1])}
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
        (_draw_streams(record, folder), "Algorithm 1 over rows, with the gradients on record and with fresh ones."),
        (
            paths,
            "Partial sums of Algorithm 1 with fresh gradients, and predictions of Algorithm 2, after two rows.",
        ),
        (losses, "The loss of the prediction over the number of learners, after two rows."),
    ]


def _draw_streams(record: Record, folder: Path) -> str:
    found = record["streams"]
    drawing, axes = charts.blank(
        "rows T", "average loss, and regret", f"Algorithm 1, N = {found['learners']}", height=3.8
    )
    for targets, colour in (("recorded", charts.COLOURS[2]), ("fresh", charts.COLOURS[1])):
        averages = found[targets]["averages"]
        axes.plot(np.arange(1, len(averages) + 1), averages, color=colour, label=f"{targets} gradients")
    b = record["start"][1]
    axes.axhline(b, color=charts.INK, linewidth=0.8, linestyle="--", label="b, the least the paper expects")
    charts.logarithmic(axes.xaxis)
    charts.logarithmic(axes.yaxis)
    charts.legend(axes)
    return charts.save(drawing, folder, "counter_example_rows")


def compare(record: Record) -> list[Row]:
    """Tell where both ended."""
    N = len(record["losses"]["1"]) - 1
    ends = {key: record["paths"][key][-1] for key in ("1", "2")}
    streams = record["streams"]
    recorded, fresh = streams["recorded"], streams["fresh"]
    setting = f"{streams['learners']} learners, {streams['rows']} rows"
    return [
        Row(
            "Algorithm 1, recorded gradients, to the letter of the appendix",
            "y₂ never moves: average regret of at least b = y₂ of the start, for any N",
            f"{setting}: y₂ ranges from {recorded['second'][0]:.2f} to {recorded['second'][1]:.2f}; average loss "
            f"{recorded['average']:.3f}, where b is {record['start'][1]:.2f}; ends at ({recorded['end'][0]:.3f}, "
            f"{recorded['end'][1]:.3f})",
            "The argument overlooks that gradients recorded on both sides of 0 cancel along the first axis: a learner "
            "then speaks along the second one.",
        ),
        Row(
            "Algorithm 1, fresh gradients",
            "–",
            f"{setting}: y₂ ranges from {fresh['second'][0]:.2f} to {fresh['second'][1]:.2f}; average loss "
            f"{fresh['average']:.3f}. After two rows y₂ is {ends['1'][1]:.2f}, and the loss "
            f"{min(record['losses']['1']):.3f} at best over N = 0 to {N}",
            "Gradients taken at the present partial sums: here the paper's conclusion holds.",
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
