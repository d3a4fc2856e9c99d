"""Algorithms 1 and 2 and their relatives on the same streams: Frank–Wolfe, Nesterov's acceleration, AdaGrad.

    python -m experiments.relatives [--quick]

Frank–Wolfe is the algorithm the paper builds on; the other two are what its conclusion leaves open. Everyone gets the
same trees and rows, and the step size, of a short list, that does best on rows held out for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import charts, streams
from experiments.records import Mode, Progress, Record, Row, rounded, summary
from streamboost._types import FloatArray
from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.descents import AdaGrad, Ball, Descent, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import Absolute, Hinge, Logistic, Loss, Squared
from streamboost.replay import Replay
from streamboost.stacks import TreeStack
from streamboost.theory import prefix_scores

TITLE = "Relatives: five descents on the same streams"
INTRODUCTION = (
    "Loss on rows no learner saw, over the number of learners, after the same stream. All start at 0 with trees of the "
    "same depth, refitted to all rows so far. Each descent takes the best of the same number of step sizes (a radius, "
    "for Frank–Wolfe), chosen on rows held out for that and apart from those it is judged on. The paper shows no such "
    "comparison: it names Frank–Wolfe as what it builds on, and leaves accelerated and adaptive descent open."
)
FULL: dict[str, Any] = {
    "rows": 3000,
    "held_out": 1500,
    "learners": 25,
    "depth": 4,
    "refits": 4,
    "steps": [0.1, 0.3, 1.0, 3.0],
}
QUICK: dict[str, Any] = {"rows": 800, "held_out": 500, "learners": 12, "depth": 3, "refits": 2, "steps": [0.3, 1.0]}

DESCENTS: dict[str, Callable[[float], Descent]] = {
    "Algorithm 1": lambda step: GradientDescent(step),
    "Algorithm 2": lambda step: ResidualProjection(step, domain=Ball(4.0)),
    "Frank–Wolfe": lambda step: FrankWolfe(step),
    "Nesterov": lambda step: Nesterov(step),
    "AdaGrad": lambda step: AdaGrad(step),
}
LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "logistic": Logistic(l2=0.02),
    "absolute": Absolute(l2=0.02),
    "hinge": Hinge(l2=0.02),
}


def run(mode: Mode, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Let everyone learn every stream at every step size."""
    sizes = QUICK if mode == "quick" else FULL
    regression, not_run = streams.regression_set()
    progress.expect(len(LOSSES) * len(DESCENTS) * len(seeds))
    panels = []
    for name, loss in LOSSES.items():
        data = "A9A" if name in ("logistic", "hinge") else regression
        lines = []
        for who in DESCENTS:
            found = [
                progress.part(
                    f"{who}, {name} on {data}, seed {seed}",
                    lambda who=who, name=name, data=data, seed=seed: measure(who, name, data, seed, sizes),  # type: ignore[misc]
                )
                for seed in seeds
            ]
            lines.append(
                {
                    "who": who,
                    "steps": [run["step"] for run in found],
                    "by_learners": summary([run["by_learners"] for run in found]),
                    "loss": summary([run["by_learners"][-1] for run in found]),
                    "units": found[0]["units"],
                }
            )
        panels.append({"loss": name, "set": data, "smooth": loss.smooth, "lines": lines})
    return {"panels": panels, "not_run": not_run}


def measure(who: str, name: str, data: str, seed: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """Try every step size: the loss on the rows for judging, by the number of learners, at the one that did best."""
    n, held_out, loss = sizes["rows"], sizes["held_out"], LOSSES[name]
    X, y = streams.draw_rows(data, n + 2 * held_out, seed)
    tries = []
    for step in sizes["steps"]:
        booster = _booster(loss, DESCENTS[who](step), seed, sizes)
        booster.learn(X[:n], y[:n])
        choosing = _losses(booster, X[n : n + held_out], y[n : n + held_out])
        judging = _losses(booster, X[n + held_out :], y[n + held_out :])
        tries.append((float(choosing[-1]), step, judging, booster.cost.units))
    _, step, judging, units = min(tries, key=lambda attempt: attempt[0])
    return {"step": step, "by_learners": rounded(judging), "units": units}


def _booster(loss: Loss, descent: Descent, seed: int, sizes: dict[str, Any]) -> Booster:
    every = sizes["rows"] // sizes["refits"]
    return Booster(
        loss,
        descent,
        TreeStack(sizes["learners"], max_depth=sizes["depth"]),
        base=Constant(0),
        replay=Replay(None, refit_every=every, learners="all", warmup=every, soonest=1),
        update_mode=50,
        seed=seed,
    )


def _losses(booster: Booster, X: FloatArray, y: FloatArray) -> FloatArray:
    """The average loss with 0, 1, … N learners, (N + 1,)."""
    scores = prefix_scores(booster.descent, booster.walk(X))
    return np.mean(booster.loss.value(scores, y[:, None, None]), axis=0)


def draw(record: Record, folder: Path) -> list[tuple[str, str]]:
    """Draw a picture a loss."""
    pictures = []
    for panel in record["panels"]:
        where = f"{panel['set']}, {panel['loss']} loss"
        drawing, axes = charts.blank("learners N", "loss on held-out rows", where)
        for line, colour in zip(panel["lines"], charts.COLOURS, strict=True):
            N = np.arange(len(line["by_learners"]["mean"]))
            charts.band(axes, N[1:], _without_start(line["by_learners"]), color=colour, label=line["who"])
        charts.logarithmic(axes.yaxis)
        charts.whole_numbers(axes)
        charts.legend(axes)
        pictures.append((charts.save(drawing, folder, f"relatives_{panel['loss']}"), f"{where}, by descent."))
    return pictures


def _without_start(curve: dict[str, Any]) -> dict[str, Any]:
    return {key: values[1:] for key, values in curve.items()}


def compare(record: Record) -> list[Row]:
    """Tell how everyone ended, the best first."""
    rows = []
    for panel in record["panels"]:
        ranked = sorted(panel["lines"], key=lambda line: line["loss"]["mean"])
        ours = "; ".join(
            f"{line['who']} {line['loss']['mean']:.4f} ± {line['loss']['spread']:.4f} "
            f"(step {', '.join(f'{step:g}' for step in sorted(set(line['steps'])))})"
            for line in ranked
        )
        kind = "smooth" if panel["smooth"] else "not smooth"
        rows.append(Row(f"{panel['set']}, {panel['loss']} ({kind})", "not measured", ours, _why(panel, ranked)))
    return rows


def _why(panel: dict[str, Any], ranked: list[dict[str, Any]]) -> str:
    own = "Algorithm 1" if panel["smooth"] else "Algorithm 2"
    place = [line["who"] for line in ranked].index(own) + 1
    text = f"The loss's own descent, {own}, is number {place} of {len(ranked)}."
    if not panel["smooth"] and ranked[0]["who"] != own:
        text += (
            " Where learners are no more than weak in every direction Algorithm 1 does well on such losses too; the "
            "counter-example needs learners that cannot speak along an axis."
        )
    return text


if __name__ == "__main__":
    from experiments.runner import main

    main(only="relatives")
