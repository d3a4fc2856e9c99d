"""How many learners? Growing in blocks, and a read-out learned over all partial sums, beside fixed numbers.

    python -m experiments.growing [--quick]

The paper leaves N to the user: too few do worse, too many are slow at first (its Figure 2f), and where there is no good
guess it suggests to add several learners at a time. Both ways out are tried here on trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import charts, streams
from experiments.records import Mode, Progress, Record, Row, rounded, summary
from streamboost._types import FloatArray
from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.boosting.committee import Committee
from streamboost.descents import GradientDescent
from streamboost.losses import Logistic, Loss, Squared
from streamboost.replay import Replay
from streamboost.stacks import TreeStack

TITLE = "Growing: need one guess the number of learners?"
INTRODUCTION = (
    "Average loss of every row just before it was learned, for fixed N, for a booster that starts with two learners "
    "and doubles whenever its newer half earns an edge (γ of at least 0.01 on the mean over the latest rows), and for "
    "32 learners whose partial sums y⁰ … y³² vote, each by what it lost lately. Trees of depth 3, a fixed step, start "
    "at 0; of ABALONE, which is noisy, the step is large on purpose, so that too many learners can do harm."
)
FULL: dict[str, Any] = {
    "rows": 6000,
    "fixed": [2, 4, 8, 16, 32],
    "most": 32,
    "look_every": 250,
    "depth": 3,
    "blocks": 12,
}
QUICK: dict[str, Any] = {"rows": 1200, "fixed": [2, 8, 32], "most": 32, "look_every": 150, "depth": 3, "blocks": 6}
STEPS = {"Friedman": 0.3, "ABALONE": 0.5, "A9A": 1.0, "electricity": 1.0, "cpu_act": 0.3}
EARNS = 0.01  # an edge below this explains nothing worth a learner
AS_GOOD = 0.03  # more loss, as a share of the least, that nobody would choose N for
GROWING, VOTING = "growing", "voting"


def run(mode: Mode, seeds: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Let everyone learn every stream."""
    sizes = QUICK if mode == "quick" else FULL
    regression, _ = streams.regression_set()
    names = [*dict.fromkeys(["Friedman", regression, "A9A", "electricity", "ABALONE"])]
    if mode == "quick":
        names = ["Friedman", "A9A"]
    everyone = [*(f"N = {N}" for N in sizes["fixed"]), GROWING, VOTING]
    progress.expect(len(names) * len(everyone) * len(seeds))
    panels = []
    for data in names:
        lines, losses = [], {}
        for who in everyone:
            found = [
                progress.part(
                    f"{who} on {data}, seed {seed}",
                    lambda who=who, data=data, seed=seed: measure(who, data, seed, sizes),  # type: ignore[misc]
                )
                for seed in seeds
            ]
            losses[who] = [run["loss"] for run in found]
            lines.append(
                {
                    "who": who,
                    "loss": summary([run["loss"] for run in found]),
                    "last": summary([run["blocks"][-1] for run in found]),
                    "blocks": summary([run["blocks"] for run in found]),
                    "rows": found[0]["rows"],
                    "learners": summary([run["learners"] for run in found]),
                    "units": summary([run["units"] for run in found]),
                }
            )
        panels.append({"set": data, "lines": lines, "gaps": gaps(losses)})
    return {"panels": panels}


def gaps(losses: dict[str, list[float]]) -> dict[str, Any]:
    """How much more growing and voting lose than the fixed number that is best on average, stream by stream."""
    fixed = [who for who in losses if who.startswith("N")]
    best = np.array(losses[min(fixed, key=lambda who: float(np.mean(losses[who])))])
    return {who: summary(np.array(losses[who]) / best - 1.0) for who in (GROWING, VOTING)}


def measure(who: str, data: str, seed: int, sizes: dict[str, Any]) -> dict[str, Any]:
    """One run: the loss of every row before it was learned, averaged over all rows and over blocks of them."""
    X, y = streams.draw_rows(data, sizes["rows"], seed)
    loss: Loss = Logistic(l2=0.02) if data in streams.CLASSES else Squared()
    n_learners = {GROWING: 2, VOTING: sizes["most"]}.get(who) or int(who.split()[-1])
    booster = Booster(
        loss,
        GradientDescent(STEPS.get(data, 0.3)),
        TreeStack(n_learners, max_depth=sizes["depth"]),
        base=Constant(0),
        replay=Replay(4096, refit_every=64),
        seed=seed,
    )
    if who == VOTING:
        scores = Committee([booster], steps=range(n_learners)).learn(X, y)
    elif who == GROWING:
        scores = learn_and_grow(booster, X, y, sizes["look_every"], sizes["most"])
    else:
        scores = booster.learn(X, y)
    losses = loss.value(scores, y[:, None])
    ends = np.linspace(0, len(y), sizes["blocks"] + 1).astype(int)
    return {
        "loss": rounded(losses.mean()),
        "blocks": rounded([losses[start:stop].mean() for start, stop in pairwise(ends)]),
        "rows": ends[1:],
        "learners": booster.stack.n_learners,
        "units": booster.cost.units,
    }


def learn_and_grow(booster: Booster, X: FloatArray, y: FloatArray, every: int, most: int) -> FloatArray:
    """Learn rows, and double the learners whenever the newer half of them earns its place, up to ``most``."""
    scores = []
    for start in range(0, len(X), every):
        scores.append(booster.learn(X[start : start + every], y[start : start + every]))
        n_learners = booster.stack.n_learners
        newer = np.nan_to_num(booster.edges.recent[n_learners // 2 :])
        if newer.mean() >= EARNS and n_learners < most:
            booster.grow(min(n_learners, most - n_learners))
    return np.concatenate(scores)


def draw(record: Record, folder: Path) -> list[tuple[str, str]]:
    """Draw the loss over rows, a picture a stream."""
    pictures = []
    for panel in record["panels"]:
        drawing, axes = charts.blank("rows", "loss over the block before", panel["set"])
        fixed = [line for line in panel["lines"] if line["who"].startswith("N")]
        for line in panel["lines"]:
            charts.band(axes, line["rows"], line["blocks"], **_look(line, fixed))
        charts.logarithmic(axes.yaxis)
        charts.legend(axes, ncols=2)
        pictures.append(
            (charts.save(drawing, folder, f"growing_{panel['set'].lower()}"), f"{panel['set']}, over rows.")
        )
    return pictures


def _look(line: dict[str, Any], fixed: list[dict[str, Any]]) -> dict[str, Any]:
    if line in fixed:
        shade = 0.35 + 0.65 * fixed.index(line) / max(len(fixed) - 1, 1)
        return {"color": charts.COLOURS[0], "alpha": shade, "linewidth": 1, "label": line["who"]}
    return {"color": charts.COLOURS[1 if line["who"] == GROWING else 4], "linewidth": 1.8, "label": line["who"]}


def compare(record: Record) -> list[Row]:
    """Tell how far both ways out are from the best fixed number, known only afterwards, and from the worst."""
    rows = []
    for panel in record["panels"]:
        by_name = {line["who"]: line for line in panel["lines"]}
        fixed = {who: line["loss"]["mean"] for who, line in by_name.items() if who.startswith("N")}
        best, worst = min(fixed, key=fixed.__getitem__), max(fixed, key=fixed.__getitem__)
        growing, voting = by_name[GROWING], by_name[VOTING]
        ours = (
            f"best fixed {best}: {fixed[best]:.4f}; worst {worst}: {fixed[worst]:.4f}; growing "
            f"{growing['loss']['mean']:.4f} (to {growing['learners']['mean']:.0f} learners on average); voting "
            f"{voting['loss']['mean']:.4f}. Over the last rows alone: {best} {by_name[best]['last']['mean']:.4f}, "
            f"growing {growing['last']['mean']:.4f}, voting {voting['last']['mean']:.4f}"
        )
        rows.append(
            Row(
                panel["set"],
                "small N does worse, large N converges later; add several at a time if unsure",
                ours,
                _verdict(panel["gaps"], max(fixed.values()), by_name, n_seeds=len(record["seeds"])),
            )
        )
    return rows


def _verdict(gaps: dict[str, Any], worst: float, by_name: dict[str, Any], n_seeds: int) -> str:
    """Who is ahead, as good or behind, measured by the best loss and by how much the seeds differ."""

    def told(who: str) -> str:
        gap, spread = gaps[who]["mean"], gaps[who]["spread"] if n_seeds > 1 else AS_GOOD
        size = f"{100 * gap:+.1f} %" + (f" ± {100 * spread:.1f}" if n_seeds > 1 else "")
        if gap < -spread:
            return f"{who} is ahead of every fixed N ({size})"
        if gap <= max(AS_GOOD, spread):
            return f"{who} is as good as the best guess ({size})"
        behind = "lies between the best and the worst guess"
        if by_name[who]["loss"]["mean"] >= worst:
            behind = "is behind every fixed N"
        return f"{who} {behind} ({size} against the best)"

    text = f"{told(GROWING)}; {told(VOTING)}."
    return text[0].upper() + text[1:]


if __name__ == "__main__":
    from experiments.runner import main

    main(only="growing")
