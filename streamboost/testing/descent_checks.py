"""The contract of a descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamboost.arrays import FloatArray
from streamboost.descents import Descent
from streamboost.losses import Loss, Squared
from streamboost.testing.promises import expect, expect_close, expect_same


class DescentCase(NamedTuple):
    """A descent to be checked, and one step of boosting to check it on."""

    descent: Descent
    loss: Loss = Squared(n_outputs=2)

    def step(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """y⁰ (n, m), answers h (n, N, m), step sizes (N,) and targets y (n, m)."""
        rng = np.random.default_rng(0)
        y0, h, y = 0.1 * rng.normal(size=(6, 2)), rng.normal(size=(6, 4, 2)), rng.normal(size=(6, 2))
        return y0, h, self.schedule(y, 4), y

    def schedule(self, y: FloatArray, n_learners: int) -> FloatArray:
        """The step sizes when half of the edges are known."""
        edges = np.where(np.arange(n_learners) % 2, 0.5, np.nan)
        return self.descent.schedule(n_learners, self.loss, self.loss.scale(y), edges)


def check_descent(descent: Descent) -> None:
    """Check that a descent keeps all that :class:`~streamboost.descents.Descent` promises.

    Examples
    --------
    >>> from streamboost.descents import GradientDescent, Nesterov
    >>> check_descent(Nesterov())
    >>> class Uphill(GradientDescent):
    ...     def walk(self, y0, h, eta):
    ...         return super().walk(y0, -h, eta)
    >>> check_descent(Uphill(0.1))
    Traceback (most recent call last):
        ...
    AssertionError: Uphill: learners that say what they should reduce the loss; it went from ... to ...
    """
    for check in DESCENT_CHECKS:
        check(DescentCase(descent))


def check_schedule(case: DescentCase) -> None:
    """One finite step size for every learner, not below 0; the first ones do not depend on how many follow."""
    y = case.step()[-1]
    eta = case.schedule(y, 4)
    expect(eta.shape == (4,), case.descent, f"schedule has shape (N,) = (4,); it was {eta.shape}")
    is_sound = bool((np.isfinite(eta) & (eta >= 0)).all())
    expect(is_sound, case.descent, f"step sizes are finite and at least 0; they were {eta}")
    expect_same(case.schedule(y, 7)[:4], eta, case.descent, "the first step sizes do not depend on how many follow")


def check_walk(case: DescentCase) -> None:
    """Walks are (n, N + 1, m), start at y⁰, and take every row and every first few learners for themselves."""
    y0, h, eta, _ = case.step()
    walk = case.descent.walk(y0, h, eta)
    expect(walk.shape == (6, 5, 2), case.descent, f"walk has shape (n, N + 1, m) = (6, 5, 2); it was {walk.shape}")
    expect_same(walk[:, 0], y0, case.descent, "a walk starts at y⁰")
    for k in range(5):
        prefix = case.descent.walk(y0, h[:, :k], eta[:k])
        expect_close(prefix, walk[:, : k + 1], case.descent, "a walk of the first learners is the first of the walk")
    expect_close(case.descent.walk(y0[2:3], h[2:3], eta), walk[2:3], case.descent, "rows walk by themselves")


def check_score(case: DescentCase) -> None:
    """Every walk, and every first part of one, has a score (n, m) linear in it; that of y⁰ alone is y⁰."""
    y0, h, eta, _ = case.step()
    walk = case.descent.walk(y0, h, eta)
    for k in range(1, 6):
        score = case.descent.score(walk[:, :k])
        expect(score.shape == (6, 2), case.descent, f"score has shape (n, m) = (6, 2); it was {score.shape}")
    expect_same(case.descent.score(walk[:, :1]), y0, case.descent, "the score of y⁰ alone is y⁰")
    mean = (case.descent.score(walk) + case.descent.score(walk[::-1])) / 2
    expect_close(case.descent.score((walk + walk[::-1]) / 2), mean, case.descent, "the mean walk has the mean score")


def check_targets(case: DescentCase) -> None:
    """What learner i should say follows from y⁰ and learners 1 … i − 1; for the first it is the gradient at y⁰."""
    y0, h, eta, y = case.step()
    walk = case.descent.walk(y0, h, eta)
    targets = case.descent.targets(walk, h, case.loss, y)
    expect(targets.shape == h.shape, case.descent, f"targets have shape {h.shape}; it was {targets.shape}")
    gradient = case.loss.gradient(y0, y)
    expect_close(targets[:, 0], gradient, case.descent, "the first learner should say the gradient at y⁰")
    for i in range(4):
        following = case.descent.next_target(walk[:, : i + 1], h[:, :i], case.loss, y)
        promise = "targets are what next_target says after each of the first learners"
        expect_close(targets[:, i], following, case.descent, promise)


def check_descending(case: DescentCase) -> None:
    """Learners that say exactly what they should reduce the loss."""
    y0, _, eta, y = case.step()
    h = np.empty((6, 0, 2))
    for i in range(4):
        walk = case.descent.walk(y0, h, eta[:i])
        said = case.descent.next_target(walk, h, case.loss, y)
        h = np.concatenate([h, said[:, None]], axis=1)
    before = case.loss.mean(y0, y)
    after = case.loss.mean(case.descent.score(case.descent.walk(y0, h, eta)), y)
    promise = "learners that say what they should reduce the loss"
    expect(after < before, case.descent, f"{promise}; it went from {before:.4g} to {after:.4g}")


def check_descent_aliases(case: DescentCase) -> None:
    """Arguments are left as they were, the results are new arrays, and nothing is remembered."""
    y0, h, eta, y = case.step()
    walk = case.descent.walk(y0, h, eta)
    kept = walk.copy()
    results = {
        "walk": walk,
        "score": case.descent.score(walk),
        "targets": case.descent.targets(walk, h, case.loss, y),
        "next_target": case.descent.next_target(walk, h, case.loss, y),
    }
    for name, result in results.items():
        given = (y0, h, eta, y) if name == "walk" else (y0, h, eta, y, walk)
        is_new = not any(np.shares_memory(result, array) for array in given)
        expect(is_new, case.descent, f"{name} returns a new array; it returned one of its arguments")
    for name, array, before in zip(("y0", "h", "eta", "y"), (y0, h, eta, y), case.step(), strict=True):
        expect_same(array, before, case.descent, f"{name} is left as it was")
    expect_same(walk, kept, case.descent, "a walk is left as it was")
    expect_same(case.descent.walk(y0, h, eta), kept, case.descent, "a descent remembers nothing")


DESCENT_CHECKS: tuple[Callable[[DescentCase], None], ...] = (
    check_schedule,
    check_descent_aliases,
    check_walk,
    check_score,
    check_targets,
    check_descending,
)
"""What :func:`check_descent` runs."""
