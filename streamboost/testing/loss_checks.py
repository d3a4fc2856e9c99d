"""The contract of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.losses import Loss
from streamboost.testing.assertions import expect, expect_close, expect_same, fail, pickled


class LossCase(NamedTuple):
    """A loss to be checked, and targets (n, k) it can learn from."""

    loss: Loss
    y: FloatArray

    def scores(self, salt: int = 0) -> FloatArray:
        """Scores (n, m) on both sides of every target; another ``salt``, other scores."""
        return np.random.default_rng((1, salt)).normal(scale=2.0, size=(len(self.y), self.loss.n_outputs))

    def value(self, score: FloatArray) -> FloatArray:
        """The loss of every row, (n,)."""
        return self.loss.value(score, self.y)

    def gradient(self, score: FloatArray) -> FloatArray:
        """Its derivative, (n, m)."""
        return self.loss.gradient(score, self.y)


def check_loss(loss: Loss, y: FloatArray | None = None) -> None:
    """Check that a loss keeps all that :class:`~streamboost.losses.Loss` promises.

    Parameters
    ----------
    loss : Loss
    y : array of shape (n, k), optional
        Targets to check it with, a few dozen of them. Left out: numbers, ±1, counts or class indices, whichever
        the loss takes first.

    Examples
    --------
    >>> from streamboost.losses import from_functions
    >>> def cubed(score, y):
    ...     return (np.abs(score - y) ** 3).sum(axis=-1)
    >>> check_loss(from_functions(cubed, lambda s, y: 3 * np.abs(s - y) * (s - y), smooth=True))
    >>> check_loss(from_functions(cubed, lambda s, y: 3 * (s - y) ** 2, smooth=True))
    Traceback (most recent call last):
        ...
    AssertionError: FunctionLoss: gradient is the derivative of value; it was ... where the slope is ...
    """
    case = LossCase(loss, targets_for(loss) if y is None else y)
    for check in LOSS_CHECKS:
        check(case)


def check_loss_shapes(case: LossCase) -> None:
    """Scores (n, m) give values (n,), gradients and predictions (n, m); float64 and finite."""
    n, m = case.scores().shape
    results = {"value": (case.value(case.scores()), (n,)), "gradient": (case.gradient(case.scores()), (n, m))}
    results["predict"] = (case.loss.predict(case.scores()), (n, m))
    results["start"] = (case.loss.start(case.y), (m,))
    for name, (result, expected) in results.items():
        expect(result.shape == expected, case.loss, f"{name} has shape {expected}; it was {result.shape}")
        expect(result.dtype == np.float64, case.loss, f"{name} is float64; it was {result.dtype}")
        expect(bool(np.isfinite(result).all()), case.loss, f"{name} is finite; some of it was not")


def check_loss_broadcasting(case: LossCase) -> None:
    """Walks (n, N + 1, m) meet targets (n, 1, k) in one call, and every step is as if it were alone."""
    steps = [case.scores(salt) for salt in range(3)]
    walk = np.stack(steps, axis=1)  # (n, 3, m)
    value, gradient = case.loss.value(walk, case.y[:, None]), case.loss.gradient(walk, case.y[:, None])
    for i, step in enumerate(steps):
        expect_close(value[:, i], case.value(step), case.loss, "value broadcasts over the steps of a walk")
        expect_close(gradient[:, i], case.gradient(step), case.loss, "gradient broadcasts over the steps of a walk")


def check_loss_aliases(case: LossCase) -> None:
    """Scores and targets are left as they were, and the results are new arrays."""
    score, y, loss = case.scores(), case.y.copy(), case.loss
    results = {"value": loss.value(score, y), "gradient": loss.gradient(score, y), "predict": loss.predict(score)}
    for name, result in results.items():
        is_new = not (np.shares_memory(result, score) or np.shares_memory(result, y))
        expect(is_new, case.loss, f"{name} returns a new array; it returned its argument")
    expect_same(score, case.scores(), case.loss, "scores are left as they were")
    expect_same(y, case.y, case.loss, "targets are left as they were")


def check_slope(case: LossCase) -> None:
    """The gradient is the numerical derivative of the value, away from kinks."""
    score, step, n_smooth = case.scores(), 1e-6, 0
    gradient = case.gradient(score)
    for k in range(score.shape[1]):
        ahead, behind = score.copy(), score.copy()
        ahead[:, k] += step
        behind[:, k] -= step
        up, down = (case.value(ahead) - case.value(score)) / step, (case.value(score) - case.value(behind)) / step
        slope, size = (up + down) / 2, 1.0 + np.abs(up) + np.abs(down)
        is_smooth = np.abs(up - down) < 1e-3 * size
        n_smooth += is_smooth.sum()
        for row in np.flatnonzero(is_smooth & (np.abs(gradient[:, k] - slope) > 1e-4 * size)):
            told = f"it was {gradient[row, k]:.4g} where the slope is {slope[row]:.4g}"
            fail(case.loss, f"gradient is the derivative of value; {told}")
    expect(n_smooth > score.size / 2, case.loss, "value has a slope nearly everywhere; it was all kinks")


def check_convexity(case: LossCase) -> None:
    """Halfway between two scores the loss is at most halfway between their losses."""
    a, b = case.scores(1), case.scores(2)
    excess = case.value((a + b) / 2) - (case.value(a) + case.value(b)) / 2
    room = 1e-9 * (1 + np.abs(case.value(a)) + np.abs(case.value(b)))
    expect(bool((excess <= room).all()), case.loss, f"value is convex; halfway it was higher by {excess.max():.4g}")


def check_subgradient(case: LossCase) -> None:
    """The loss stays above its tangents, and by as much as its strong convexity says."""
    a, b = case.scores(1), case.scores(2)
    bend = 0.5 * case.loss.strong_convexity(_radius(case, a, b)) * np.sum((b - a) ** 2, axis=1)
    lack = case.value(a) + np.sum(case.gradient(a) * (b - a), axis=1) + bend - case.value(b)
    room = 1e-9 * (1 + np.abs(case.value(a)) + np.abs(case.value(b)))
    promise = "value lies above its tangents, by ½λ‖b − a‖²"
    expect(bool((lack <= room).all()), case.loss, f"{promise}; it was lower by {lack.max():.4g}")


def check_constants(case: LossCase) -> None:
    """β bounds how fast the gradient changes, and G its length."""
    a, b = case.scores(1), case.scores(2)
    radius = _radius(case, a, b)
    change = np.linalg.norm(case.gradient(a) - case.gradient(b), axis=1)
    most = case.loss.smoothness(radius) * np.linalg.norm(a - b, axis=1) if case.loss.smooth else np.inf
    expect(bool((change <= most * (1 + 1e-9)).all()), case.loss, "smoothness bounds how fast the gradient changes")
    longest = np.linalg.norm(case.gradient(a), axis=1).max()
    bound = case.loss.gradient_bound(radius)
    expect(longest <= bound * (1 + 1e-9), case.loss, f"gradients are at most {bound:.4g} long; one was {longest:.4g}")


def check_link(case: LossCase) -> None:
    """The link takes predictions back to scores that predict the same."""
    prediction = case.loss.predict(case.scores())
    again = case.loss.predict(case.loss.link.score(prediction))
    expect_close(again, prediction, case.loss, "link.score undoes link.predict")


def check_scale(case: LossCase) -> None:
    """The natural sizes are finite numbers above 0."""
    scale = case.loss.scale(case.y, np.ones(len(case.y)))
    is_sound = all(np.isfinite(size) and size > 0 for size in scale)
    expect(is_sound, case.loss, f"scale gives finite numbers above 0; it gave {scale}")


def check_loss_pickles(case: LossCase) -> None:
    """What comes out of pickle says the same; a loss that refuses to be pickled has said so."""
    loaded = pickled(case.loss)
    if loaded is not None:
        ours, theirs = case.gradient(case.scores()), case._replace(loss=loaded).gradient(case.scores())
        expect_same(theirs, ours, case.loss, "a loss out of pickle says the same as the one that went in")


LOSS_CHECKS: tuple[Callable[[LossCase], None], ...] = (
    check_loss_shapes, check_loss_aliases, check_loss_broadcasting, check_slope, check_convexity, check_subgradient,
    check_constants, check_link, check_scale, check_loss_pickles,
)  # fmt: skip
"""What :func:`check_loss` runs."""


def targets_for(loss: Loss, n: int = 60) -> FloatArray:
    """Targets (n, k) the loss takes: the first of several codings that it does not refuse."""
    rng, shape = np.random.default_rng(0), (n, loss.n_targets)
    numbers, signs = rng.normal(size=shape), rng.choice([-1.0, 1.0], size=shape)
    counts, classes = rng.poisson(2.0, size=shape), rng.integers(loss.n_outputs, size=shape)
    for y in (numbers, signs, counts.astype(float), classes.astype(float)):
        try:
            loss.check_targets(y)
        except ValueError:
            continue
        return y
    raise ValueError(
        f"{loss!r} takes neither numbers, nor ±1, nor counts, nor class indices. Give check_loss targets y it takes."
    )


def _radius(case: LossCase, *scores: FloatArray) -> float:
    """A radius that holds all these scores, and the targets."""
    return float(max(np.linalg.norm(array, axis=1).max() for array in (*scores, case.y)))
