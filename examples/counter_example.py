"""Where Algorithm 1 fails and Algorithm 2 does not: the counter-example in the paper's appendix.

The loss is 2·abs(y₁) + abs(y₂), which is not smooth, and a weak learner can only speak along one axis: it says
[α, 0] or [0, α] with abs(α) ≤ 2, whichever fits its targets best. The first axis always has the steeper slope, so
under Algorithm 1 every learner speaks along it, and y₂ never moves. Algorithm 2 carries along what the learners
failed to say, until the second axis is the better one.

Run: python examples/counter_example.py [--learners 60] [--picture paths.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from streamboost._types import FloatArray
from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.descents import Ball, Descent, GradientDescent, ResidualProjection
from streamboost.errors import require
from streamboost.losses import Loss, from_functions
from streamboost.replay import Replay
from streamboost.stacks.refitted import FunctionStack

START = np.array([1.03, 1.0])  # not a multiple of the steps: on the kink itself 0 is a slope too
SLOPES = np.array([2.0, 1.0])


def lopsided(l2: float = 0.0) -> Loss:
    """2·abs(y₁) + abs(y₂), with a ridge if Theorem 2 is to apply; the least loss is 0, at the origin."""
    return from_functions(
        lambda score, y: np.abs(score) @ SLOPES,
        lambda score, y: np.sign(score) * SLOPES,
        smooth=False,
        name="lopsided",
        n_outputs=2,
        l2=l2,
        gradient_bound=float(np.linalg.norm(SLOPES)),
    )


def along_one_axis(X: FloatArray, target: FloatArray, weight: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Follow the leader: the best of all [α, 0] and [0, α] with abs(α) ≤ 2 for the targets so far."""
    mean = np.average(target, axis=0, weights=weight)
    alpha = np.clip(mean, -2.0, 2.0)
    explained = alpha * (2.0 * mean - alpha)  # how much square loss [α, 0] and [0, α] take off a row
    answer = np.where(np.arange(2) == explained.argmax(), alpha, 0.0)
    return lambda X: np.tile(answer, (len(X), 1))


def path(descent: Descent, n_learners: int, *, l2: float = 0.0, n_rows: int = 2) -> FloatArray:
    """The partial sums y⁰ … yᴺ, (N + 1, 2), after learning a stream of equal rows."""
    every_row = Replay(None, refit_every=1, learners="all", warmup=1, soonest=1)
    stack = FunctionStack(along_one_axis, n_learners)
    booster = Booster(lopsided(l2), descent, stack, base=Constant(START), replay=every_row)
    booster.learn(np.zeros((n_rows, 1)), np.zeros((n_rows, 2)))  # the loss is the same at every row: y has no say
    walk: FloatArray = booster.walk(np.zeros((1, 1)))[0]
    return walk


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", type=int, default=60, help="N (default: %(default)s)")
    parser.add_argument("--picture", metavar="FILE", help="draw both paths into this file (needs matplotlib)")
    options = parser.parse_args(arguments)

    first = path(GradientDescent(0.1), options.learners)
    second = path(ResidualProjection(1.0, domain=Ball(2.0)), options.learners)
    means = np.cumsum(second[1:], axis=0) / np.arange(1, len(second))[:, None]  # what Algorithm 2 predicts

    print("           Algorithm 1              Algorithm 2")
    print("   N     y₁     y₂    loss        y₁     y₂    loss")
    for n in sorted({1, 2, 5, 10, 20, 50, options.learners} & set(range(1, options.learners + 1))):
        cells = [(*y, np.abs(y) @ SLOPES) for y in (first[n], means[n - 1])]
        print(f"{n:4d}", "    ".join("{:6.2f} {:6.2f} {:7.3f}".format(*cell) for cell in cells))
    if options.picture:
        draw(options.picture, {"Algorithm 2: mean of y¹ … yⁱ": np.vstack([START, means]), "Algorithm 1: yⁱ": first})


def draw(file: str, paths: dict[str, FloatArray]) -> None:
    """Draw paths (N + 1, 2) over the contours of the loss."""
    require("matplotlib", extra="plot", by="--picture")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    side = np.linspace(-1.25, 1.25, 101)
    axes.contour(side, side, 2 * np.abs(side)[None, :] + np.abs(side)[:, None], levels=12, cmap="Greys", alpha=0.5)
    for label, points in paths.items():
        axes.plot(*points.T, marker=".", label=label)
    axes.set(xlabel="y₁", ylabel="y₂", title="2·abs(y₁) + abs(y₂), learners along one axis only")
    axes.legend(loc="lower right")
    figure.savefig(file)


if __name__ == "__main__":
    main()
