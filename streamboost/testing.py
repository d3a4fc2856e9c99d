"""The contracts of stacks, losses, descents and bases, runnable by anyone on their own.

Each contract is a row of small ``check_*`` functions. One call runs them all and raises an ``AssertionError`` that
says what was promised and what happened instead; to see them one by one, loop over :data:`STACK_CHECKS` and its
sisters, with pytest's ``parametrize`` for example.

Examples
--------
A stack that learns while it predicts breaks its promise:

>>> from streamboost.stacks import LinearStack
>>> check_stack(lambda: LinearStack(3))
>>> class Restless(LinearStack):
...     def predict(self, X):
...         self._weights += 0.01
...         return super().predict(X)
>>> check_stack(lambda: Restless(3))
Traceback (most recent call last):
    ...
AssertionError: Restless: a learner that has learned nothing says 0; one said 0.01.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streamboost.arrays import FloatArray
from streamboost.bases import Base
from streamboost.descents import Descent
from streamboost.losses import Loss, Scale, Squared
from streamboost.replay import Replay
from streamboost.stacks.base import Stack

T = TypeVar("T")


class Rows(NamedTuple):
    """What a stack learns from."""

    X: FloatArray  # (n, d)
    targets: FloatArray  # (n, N, m)
    weight: FloatArray  # (n,)


class StackCase(NamedTuple):
    """A stack to be checked: how to make a fresh one, and the shapes to open it with."""

    make: Callable[[], Stack]
    n_features: int = 3
    n_outputs: int = 2
    seed: int = 0

    def opened(self) -> Stack:
        """A stack that has seen nothing."""
        stack = self.make()
        stack.open(self.n_features, self.n_outputs, self.seed)
        return stack

    def trained(self) -> Stack:
        """A stack in the middle of its stream."""
        stack = self.opened()
        teach(stack, self.rows(stack, 40, 1))
        return stack

    def rows(self, stack: Stack, n: int, salt: int) -> Rows:
        """Rows with a few missing values, and targets that depend on them; another ``salt``, other rows."""
        rng = np.random.default_rng((self.seed, salt))
        X = rng.normal(size=(n, stack.n_features))
        slopes = rng.normal(size=(stack.n_features, stack.n_learners * stack.n_outputs))
        targets = np.tanh(X @ slopes).reshape(n, stack.n_learners, stack.n_outputs)
        X[rng.uniform(size=X.shape) < 0.1] = np.nan
        return Rows(X, targets, np.ones(n))

    def probes(self) -> FloatArray:
        """Rows to ask about."""
        X = np.random.default_rng((self.seed, 0)).normal(size=(7, self.n_features))
        X[0, 0] = np.nan
        return X


def teach(stack: Stack, rows: Rows) -> None:
    """Let a stack learn rows in every way it can: by a refit of all that can be refitted, and one after another."""
    if len(stack.refittable) and len(rows.X):
        replay = Replay(None, refit_every=1, targets="recorded", learners="all", warmup=1)
        replay.open(stack, 1)
        replay.append(rows.X, rows.targets[:, 0, :1], rows.weight, stack.marks(rows.X), rows.targets)
        for i in replay.turns(stack):
            replay.remember(i, stack.refit(i, replay, replay.recorded[:, i], replay.weight))
    stack.learn(*rows)


# Stacks


def check_stack(make: Callable[[], Stack], *, n_features: int = 3, n_outputs: int = 2, seed: int = 0) -> None:
    """Check that a stack keeps all that :class:`~streamboost.stacks.base.Stack` promises.

    Parameters
    ----------
    make : callable
        Returns a fresh stack, not opened yet.
    n_features, n_outputs, seed : int
        What to open it with.

    Examples
    --------
    >>> from streamboost.stacks import TreeStack
    >>> check_stack(lambda: TreeStack(3, max_depth=2), n_outputs=1)
    >>> len(STACK_CHECKS)
    17
    """
    for check in STACK_CHECKS:
        check(StackCase(make, n_features, n_outputs, seed))


def check_shapes(case: StackCase) -> None:
    """Answers are float64 arrays (n, N, m) of finite numbers, for no rows and for missing values too."""
    for stack in (case.opened(), case.trained()):
        for n in (0, 1, 7):
            said = stack.predict(case.probes()[:n])
            expected = (n, stack.n_learners, case.n_outputs)
            _expect(said.shape == expected, stack, f"predict answers (n, N, m) = {expected}; it was {said.shape}")
            _expect(said.dtype == np.float64, stack, f"predict answers in float64; it was {said.dtype}")
            _expect(bool(np.isfinite(said).all()), stack, "predict answers finite numbers; some were not")


def check_untrained(case: StackCase) -> None:
    """A learner that has learned nothing says 0."""
    stack = case.opened()
    most = _largest(stack.predict(case.probes()))
    _expect(most == 0, stack, f"a learner that has learned nothing says 0; one said {most:g}")


def check_learning(case: StackCase) -> None:
    """A stack that was taught says something: otherwise the checks below would be empty."""
    stack = case.trained()
    _expect(_largest(stack.predict(case.probes())) > 0, stack, "learning changes what learners say; all said 0 still")


def check_predicting(case: StackCase) -> None:
    """Predicting changes nothing: not the next answer, and not what is learned afterwards."""
    for stack in (case.opened(), case.trained()):
        silent = copy.deepcopy(stack)
        first, again = stack.predict(case.probes()), stack.predict(case.probes())
        _expect_same(again, first, stack, "asked twice, a stack says the same twice")
        _expect_same_future(case, stack, silent, "a stack that predicts goes on as one that does not")


def check_inputs(case: StackCase) -> None:
    """Neither predicting nor learning writes into the arrays given."""
    stack = case.trained()
    rows = case.rows(stack, 5, 2)
    kept = copy.deepcopy(rows)
    stack.predict(rows.X)
    teach(stack, rows)
    for name, given, before in zip(Rows._fields, rows, kept, strict=True):
        _expect_same(given, before, stack, f"{name} is left as it was given")


def check_results(case: StackCase) -> None:
    """What predict returned belongs to the caller: writing into it changes nothing."""
    stack = case.trained()
    said = stack.predict(case.probes())
    kept = said.copy()
    said[:] = 1e6
    _expect_same(stack.predict(case.probes()), kept, stack, "writing into what predict returned changes no answer")


def check_aliases(case: StackCase) -> None:
    """What was learned stays learned: writing into the arrays afterwards changes nothing, now or later."""
    stack = case.trained()
    twin = copy.deepcopy(stack)
    rows = case.rows(stack, 5, 2)
    teach(twin, copy.deepcopy(rows))
    teach(stack, rows)
    for array in rows:
        array[:] = 1e6
    _expect_same_future(case, stack, twin, "writing into arrays after they were learned changes nothing")


def check_seed(case: StackCase) -> None:
    """The same seed and the same rows give the same stack."""
    stack = case.trained()
    _expect_same_future(case, stack, case.trained(), "the same seed gives the same run")


def check_empty_chunk(case: StackCase) -> None:
    """Learning no rows changes nothing."""
    for stack in (case.opened(), case.trained()):
        twin = copy.deepcopy(stack)
        teach(stack, case.rows(stack, 0, 2))
        _expect_same_future(case, stack, twin, "learning no rows changes nothing")


def check_zero_weight(case: StackCase) -> None:
    """Rows of weight 0 are never learned."""
    stack = case.trained()
    before = stack.predict(case.probes())
    rows = case.rows(stack, 5, 2)
    stack.learn(rows.X, rows.targets, np.zeros(5))
    _expect_same(stack.predict(case.probes()), before, stack, "rows of weight 0 teach nothing")


def check_independence(case: StackCase) -> None:
    """What one learner is told does not change what another says."""
    stack = case.trained()
    twin = copy.deepcopy(stack)
    rows = case.rows(stack, 20, 2)
    teach(stack, rows)
    other = rows.targets.copy()
    other[:, -1] += 1.0
    teach(twin, rows._replace(targets=other))
    ours, theirs = stack.predict(case.probes())[:, :-1], twin.predict(case.probes())[:, :-1]
    _expect_same(theirs, ours, stack, "what the last learner is told does not change what the others say")


def check_marks(case: StackCase) -> None:
    """Marks, where a stack keeps any, recall what predict says of the same rows, for any number of first learners."""
    stack = case.trained()
    marks = stack.marks(case.probes())
    if marks is None:
        return
    said = stack.predict(case.probes())
    for k in range(stack.n_learners + 1):
        _expect_same(stack.recall(marks[:, :k]), said[:, :k], stack, f"the marks of {k} learners recall what they say")


def check_growing(case: StackCase) -> None:
    """Growing leaves the learners as they are; the new ones say 0, and learn."""
    stack = case.trained()
    before = stack.predict(case.probes())
    n_learners = stack.n_learners
    stack.grow(2)
    _expect(stack.n_learners == n_learners + 2, stack, f"grow(2) makes {n_learners + 2} of {n_learners} learners")
    after = stack.predict(case.probes())
    _expect_close(after[:, :n_learners], before, stack, "growing leaves old answers as they were")
    _expect(_largest(after[:, n_learners:]) == 0, stack, "learners grown anew say 0")
    teach(stack, case.rows(stack, 20, 2))
    _expect(_largest(stack.predict(case.probes())[:, n_learners:]) > 0, stack, "learners grown anew can learn")


def check_adding_features(case: StackCase) -> None:
    """Room for more columns leaves the answers for rows that have nothing there."""
    stack = case.trained()
    before = stack.predict(case.probes())
    stack.add_features(2)
    wide = case._replace(n_features=case.n_features + 2)
    _expect(stack.n_features == wide.n_features, stack, "add_features(2) makes n_features larger by 2")
    X = np.pad(case.probes(), ((0, 0), (0, 2)), constant_values=np.nan)
    _expect_close(stack.predict(X), before, stack, "more columns, all missing, leave answers as they were")
    teach(stack, case.rows(stack, 20, 2))
    _expect(bool(np.isfinite(stack.predict(wide.probes())).all()), stack, "a stack goes on after add_features")


def check_adding_outputs(case: StackCase) -> None:
    """Room for more outputs leaves the answers for the old ones; the new ones are 0, and are learned."""
    stack = case.trained()
    before = stack.predict(case.probes())
    m = case.n_outputs
    stack.add_outputs(2)
    _expect(stack.n_outputs == m + 2, stack, "add_outputs(2) makes n_outputs larger by 2")
    after = stack.predict(case.probes())
    _expect_close(after[..., :m], before, stack, "more outputs leave old answers as they were")
    _expect(_largest(after[..., m:]) == 0, stack, "new outputs are 0")
    teach(stack, case.rows(stack, 20, 2))
    _expect(_largest(stack.predict(case.probes())[..., m:]) > 0, stack, "new outputs can be learned")


def check_copies(case: StackCase) -> None:
    """A deep copy shares nothing with its original, and goes on exactly as it would have."""
    stack = case.trained()
    before = stack.predict(case.probes())
    teach(copy.deepcopy(stack), case.rows(stack, 20, 3))
    _expect_same(stack.predict(case.probes()), before, stack, "teaching a deep copy leaves the original as it was")
    _expect_same_future(case, stack, copy.deepcopy(stack), "a deep copy goes on as the original does")


def check_pickles(case: StackCase) -> None:
    """What comes out of pickle goes on exactly as what went in; a stack that refuses to be pickled has said so."""
    stack = case.trained()
    loaded = _pickled(stack)
    if loaded is not None:
        _expect_same_future(case, stack, loaded, "a stack out of pickle goes on as the one that went in")


STACK_CHECKS: tuple[Callable[[StackCase], None], ...] = (
    check_untrained,
    check_shapes,
    check_learning,
    check_predicting,
    check_inputs,
    check_results,
    check_aliases,
    check_seed,
    check_empty_chunk,
    check_zero_weight,
    check_independence,
    check_marks,
    check_growing,
    check_adding_features,
    check_adding_outputs,
    check_copies,
    check_pickles,
)
"""What :func:`check_stack` runs."""


def _expect_same_future(case: StackCase, stack: Stack, twin: Stack, promise: str) -> None:
    """Both must say the same now, and after learning the same rows."""
    _expect_same(twin.predict(case.probes()), stack.predict(case.probes()), stack, promise)
    for one in (stack, twin):
        teach(one, case.rows(one, 20, 9))
    _expect_same(twin.predict(case.probes()), stack.predict(case.probes()), stack, f"{promise}, also later")


# Losses


class LossCase(NamedTuple):
    """A loss to be checked, and targets (n, k) it can learn from."""

    loss: Loss
    y: FloatArray

    def scores(self, salt: int = 0) -> FloatArray:
        """Scores (n, m) on both sides of every target; another ``salt``, other scores."""
        rng = np.random.default_rng((1, salt))
        return rng.normal(scale=2.0, size=(len(self.y), self.loss.n_outputs))

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
    case = LossCase(loss, _targets_for(loss) if y is None else y)
    for check in LOSS_CHECKS:
        check(case)


def check_loss_shapes(case: LossCase) -> None:
    """Scores (n, m) give values (n,), gradients and predictions (n, m); float64 and finite."""
    n, m = case.scores().shape
    results = {"value": (case.value(case.scores()), (n,)), "gradient": (case.gradient(case.scores()), (n, m))}
    results["predict"] = (case.loss.predict(case.scores()), (n, m))
    results["start"] = (case.loss.start(case.y), (m,))
    for name, (result, expected) in results.items():
        _expect(result.shape == expected, case.loss, f"{name} has shape {expected}; it was {result.shape}")
        _expect(result.dtype == np.float64, case.loss, f"{name} is float64; it was {result.dtype}")
        _expect(bool(np.isfinite(result).all()), case.loss, f"{name} is finite; some of it was not")


def check_loss_broadcasting(case: LossCase) -> None:
    """Walks (n, N + 1, m) meet targets (n, 1, k) in one call, and every step is as if it were alone."""
    steps = [case.scores(salt) for salt in range(3)]
    walk = np.stack(steps, axis=1)  # (n, 3, m)
    value, gradient = case.loss.value(walk, case.y[:, None]), case.loss.gradient(walk, case.y[:, None])
    for i, step in enumerate(steps):
        _expect_close(value[:, i], case.value(step), case.loss, "value broadcasts over the steps of a walk")
        _expect_close(gradient[:, i], case.gradient(step), case.loss, "gradient broadcasts over the steps of a walk")


def check_loss_aliases(case: LossCase) -> None:
    """Scores and targets are left as they were, and the results are new arrays."""
    score, y = case.scores(), case.y.copy()
    results = {
        "value": case.loss.value(score, y),
        "gradient": case.loss.gradient(score, y),
        "predict": case.loss.predict(score),
    }
    for name, result in results.items():
        is_new = not (np.shares_memory(result, score) or np.shares_memory(result, y))
        _expect(is_new, case.loss, f"{name} returns a new array; it returned its argument")
    _expect_same(score, case.scores(), case.loss, "scores are left as they were")
    _expect_same(y, case.y, case.loss, "targets are left as they were")


def check_slope(case: LossCase) -> None:
    """The gradient is the numerical derivative of the value, away from kinks."""
    score, step = case.scores(), 1e-6
    gradient = case.gradient(score)
    n_smooth = 0
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
            _fail(case.loss, f"gradient is the derivative of value; {told}")
    _expect(n_smooth > score.size / 2, case.loss, "value has a slope nearly everywhere; it was all kinks")


def check_convexity(case: LossCase) -> None:
    """Halfway between two scores the loss is at most halfway between their losses."""
    a, b = case.scores(1), case.scores(2)
    excess = case.value((a + b) / 2) - (case.value(a) + case.value(b)) / 2
    room = 1e-9 * (1 + np.abs(case.value(a)) + np.abs(case.value(b)))
    _expect(bool((excess <= room).all()), case.loss, f"value is convex; halfway it was higher by {excess.max():.4g}")


def check_subgradient(case: LossCase) -> None:
    """The loss stays above its tangents, and by as much as its strong convexity says."""
    a, b = case.scores(1), case.scores(2)
    radius = _radius(case, a, b)
    bend = 0.5 * case.loss.strong_convexity(radius) * np.sum((b - a) ** 2, axis=1)
    lack = case.value(a) + np.sum(case.gradient(a) * (b - a), axis=1) + bend - case.value(b)
    room = 1e-9 * (1 + np.abs(case.value(a)) + np.abs(case.value(b)))
    promise = "value lies above its tangents, by ½λ‖b − a‖²"
    _expect(bool((lack <= room).all()), case.loss, f"{promise}; it was lower by {lack.max():.4g}")


def check_constants(case: LossCase) -> None:
    """β bounds how fast the gradient changes, and G its length."""
    a, b = case.scores(1), case.scores(2)
    radius = _radius(case, a, b)
    change = np.linalg.norm(case.gradient(a) - case.gradient(b), axis=1)
    most = case.loss.smoothness(radius) * np.linalg.norm(a - b, axis=1) if case.loss.smooth else np.inf
    _expect(bool((change <= most * (1 + 1e-9)).all()), case.loss, "smoothness bounds how fast the gradient changes")
    longest = np.linalg.norm(case.gradient(a), axis=1).max()
    bound = case.loss.gradient_bound(radius)
    _expect(longest <= bound * (1 + 1e-9), case.loss, f"gradients are at most {bound:.4g} long; one was {longest:.4g}")


def check_link(case: LossCase) -> None:
    """The link takes predictions back to scores that predict the same."""
    prediction = case.loss.predict(case.scores())
    again = case.loss.predict(case.loss.link.score(prediction))
    _expect_close(again, prediction, case.loss, "link.score undoes link.predict")


def check_scale(case: LossCase) -> None:
    """The natural sizes are finite numbers above 0."""
    scale = case.loss.scale(case.y, np.ones(len(case.y)))
    is_sound = all(np.isfinite(size) and size > 0 for size in scale)
    _expect(is_sound, case.loss, f"scale gives finite numbers above 0; it gave {scale}")


def check_loss_pickles(case: LossCase) -> None:
    """What comes out of pickle says the same; a loss that refuses to be pickled has said so."""
    loaded = _pickled(case.loss)
    if loaded is not None:
        ours, theirs = case.gradient(case.scores()), case._replace(loss=loaded).gradient(case.scores())
        _expect_same(theirs, ours, case.loss, "a loss out of pickle says the same as the one that went in")


LOSS_CHECKS: tuple[Callable[[LossCase], None], ...] = (
    check_loss_shapes,
    check_loss_aliases,
    check_loss_broadcasting,
    check_slope,
    check_convexity,
    check_subgradient,
    check_constants,
    check_link,
    check_scale,
    check_loss_pickles,
)
"""What :func:`check_loss` runs."""


def _targets_for(loss: Loss, n: int = 60) -> FloatArray:
    """Targets (n, k) the loss takes: the first of several codings that it does not refuse."""
    rng = np.random.default_rng(0)
    shape = (n, loss.n_targets)
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


# Descents


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
    _expect(eta.shape == (4,), case.descent, f"schedule has shape (N,) = (4,); it was {eta.shape}")
    is_sound = bool((np.isfinite(eta) & (eta >= 0)).all())
    _expect(is_sound, case.descent, f"step sizes are finite and at least 0; they were {eta}")
    _expect_same(case.schedule(y, 7)[:4], eta, case.descent, "the first step sizes do not depend on how many follow")


def check_walk(case: DescentCase) -> None:
    """Walks are (n, N + 1, m), start at y⁰, and take every row and every first few learners for themselves."""
    y0, h, eta, _ = case.step()
    walk = case.descent.walk(y0, h, eta)
    _expect(walk.shape == (6, 5, 2), case.descent, f"walk has shape (n, N + 1, m) = (6, 5, 2); it was {walk.shape}")
    _expect_same(walk[:, 0], y0, case.descent, "a walk starts at y⁰")
    for k in range(5):
        prefix = case.descent.walk(y0, h[:, :k], eta[:k])
        _expect_close(prefix, walk[:, : k + 1], case.descent, "a walk of the first learners is the first of the walk")
    _expect_close(case.descent.walk(y0[2:3], h[2:3], eta), walk[2:3], case.descent, "rows walk by themselves")


def check_score(case: DescentCase) -> None:
    """Every walk, and every first part of one, has a score (n, m) linear in it; that of y⁰ alone is y⁰."""
    y0, h, eta, _ = case.step()
    walk = case.descent.walk(y0, h, eta)
    for k in range(1, 6):
        score = case.descent.score(walk[:, :k])
        _expect(score.shape == (6, 2), case.descent, f"score has shape (n, m) = (6, 2); it was {score.shape}")
    _expect_same(case.descent.score(walk[:, :1]), y0, case.descent, "the score of y⁰ alone is y⁰")
    mean = (case.descent.score(walk) + case.descent.score(walk[::-1])) / 2
    _expect_close(case.descent.score((walk + walk[::-1]) / 2), mean, case.descent, "the mean walk has the mean score")


def check_targets(case: DescentCase) -> None:
    """What learner i should say follows from y⁰ and learners 1 … i − 1; for the first it is the gradient at y⁰."""
    y0, h, eta, y = case.step()
    walk = case.descent.walk(y0, h, eta)
    targets = case.descent.targets(walk, h, case.loss, y)
    _expect(targets.shape == h.shape, case.descent, f"targets have shape {h.shape}; it was {targets.shape}")
    gradient = case.loss.gradient(y0, y)
    _expect_close(targets[:, 0], gradient, case.descent, "the first learner should say the gradient at y⁰")
    for i in range(4):
        following = case.descent.next_target(walk[:, : i + 1], h[:, :i], case.loss, y)
        promise = "targets are what next_target says after each of the first learners"
        _expect_close(targets[:, i], following, case.descent, promise)


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
    _expect(after < before, case.descent, f"{promise}; it went from {before:.4g} to {after:.4g}")


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
        _expect(is_new, case.descent, f"{name} returns a new array; it returned one of its arguments")
    for name, array, before in zip(("y0", "h", "eta", "y"), (y0, h, eta, y), case.step(), strict=True):
        _expect_same(array, before, case.descent, f"{name} is left as it was")
    _expect_same(walk, kept, case.descent, "a walk is left as it was")
    _expect_same(case.descent.walk(y0, h, eta), kept, case.descent, "a descent remembers nothing")


DESCENT_CHECKS: tuple[Callable[[DescentCase], None], ...] = (
    check_schedule,
    check_descent_aliases,
    check_walk,
    check_score,
    check_targets,
    check_descending,
)
"""What :func:`check_descent` runs."""


# Bases


class BaseCase(NamedTuple):
    """A base to be checked: how to make a fresh one, and the loss it starts for."""

    make: Callable[[], Base]
    loss: Loss
    n_features: int

    def opened(self) -> Base:
        """A base that has seen nothing."""
        base = self.make()
        base.open(self.n_features, self.loss.n_outputs)
        return base

    def trained(self) -> Base:
        """A base in the middle of its stream."""
        base = self.opened()
        self.teach(base, 1)
        return base

    def teach(self, base: Base, salt: int, columns: int = 0, n: int = 30) -> None:
        """Let it learn some rows; another ``salt``, other rows."""
        rng = np.random.default_rng((2, salt))
        X, y = rng.normal(size=(n, self.n_features + columns)), _targets_for(self.loss)[:n]
        base.learn(X, y, np.ones(n), self.loss, Scale(1.0, 1.0))

    def probes(self) -> FloatArray:
        """Rows to ask about."""
        return np.random.default_rng(2).normal(size=(7, self.n_features))


def check_base(make: Callable[[], Base], loss: Loss | None = None, *, n_features: int = 3) -> None:
    """Check that a base keeps all that :class:`~streamboost.bases.Base` promises.

    Parameters
    ----------
    make : callable
        Returns a fresh base, not opened yet.
    loss : Loss, optional
        The loss it starts for. Left out: the square loss.
    n_features : int
        How many columns to open it with.

    Examples
    --------
    >>> from streamboost.bases import Frozen, Linear
    >>> check_base(Linear)
    >>> check_base(lambda: Frozen(lambda X: X[:, 0]))
    """
    for check in BASE_CHECKS:
        check(BaseCase(make, Squared() if loss is None else loss, n_features))


def check_base_shapes(case: BaseCase) -> None:
    """Answers are float64 arrays (n, m) of finite numbers, for no rows too."""
    for base in (case.opened(), case.trained()):
        for n in (0, 1, 7):
            said, expected = base.predict(case.probes()[:n]), (n, case.loss.n_outputs)
            _expect(said.shape == expected, base, f"predict answers (n, m) = {expected}; it was {said.shape}")
            is_sound = said.dtype == np.float64 and bool(np.isfinite(said).all())
            _expect(is_sound, base, "predict answers finite numbers in float64")


def check_base_predicting(case: BaseCase) -> None:
    """Predicting changes nothing, and what it returned belongs to the caller."""
    base = case.trained()
    silent = copy.deepcopy(base)
    said = base.predict(case.probes())
    kept = said.copy()
    said[:] = 1e6
    _expect_same(base.predict(case.probes()), kept, base, "asked twice, a base says the same twice")
    for one in (base, silent):
        case.teach(one, 2)
    ours, theirs = base.predict(case.probes()), silent.predict(case.probes())
    _expect_same(ours, theirs, base, "a base that predicts goes on as one that does not")


def check_base_empty_chunk(case: BaseCase) -> None:
    """Learning no rows changes nothing."""
    base = case.trained()
    before = base.predict(case.probes())
    case.teach(base, 2, n=0)
    _expect_same(base.predict(case.probes()), before, base, "learning no rows changes nothing")


def check_base_growing(case: BaseCase) -> None:
    """More columns and more outputs leave the old answers; the new outputs stand at the score given."""
    base = case.trained()
    before = base.predict(case.probes())
    base.add_features(2)
    wide = np.pad(case.probes(), ((0, 0), (0, 2)), constant_values=np.nan)
    _expect_close(base.predict(wide), before, base, "more columns, all missing, leave answers as they were")
    case.teach(base, 2, columns=2)
    before = base.predict(wide)
    base.add_outputs(2, -0.5)
    after = base.predict(wide)
    _expect_close(after[:, :-2], before, base, "more outputs leave old answers as they were")
    _expect_close(after[:, -2:], np.full((7, 2), -0.5), base, "new outputs stand at the score given")


def check_base_copies(case: BaseCase) -> None:
    """A deep copy, and what comes out of pickle, share nothing with the original and go on as it would have."""
    base = case.trained()
    twins = [copy.deepcopy(base), _pickled(base)]
    before = base.predict(case.probes())
    for twin in twins:
        if twin is not None:
            case.teach(twin, 2)
    _expect_same(base.predict(case.probes()), before, base, "teaching a copy leaves the original as it was")
    case.teach(base, 2)
    for twin in twins:
        if twin is not None:
            _expect_same(
                twin.predict(case.probes()), base.predict(case.probes()), base, "a copy goes on as its original"
            )


BASE_CHECKS: tuple[Callable[[BaseCase], None], ...] = (
    check_base_shapes,
    check_base_predicting,
    check_base_empty_chunk,
    check_base_growing,
    check_base_copies,
)
"""What :func:`check_base` runs."""


# Saying what was promised


def _fail(who: object, message: str) -> None:
    raise AssertionError(f"{type(who).__name__}: {message}.")


def _expect(kept: bool, who: object, promise: str) -> None:
    if not kept:
        _fail(who, promise)


def _expect_same(ours: FloatArray, theirs: FloatArray, who: object, promise: str) -> None:
    """To the last bit."""
    if not np.array_equal(ours, theirs, equal_nan=True):
        _fail(who, f"{promise}; {_difference(ours, theirs)}")


def _expect_close(ours: FloatArray, theirs: FloatArray, who: object, promise: str) -> None:
    """Up to rounding: arrays of another shape may be added up in another order."""
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-9, atol=1e-12):
        _fail(who, f"{promise}; {_difference(ours, theirs)}")


def _difference(ours: FloatArray, theirs: FloatArray) -> str:
    if ours.shape != theirs.shape:
        return f"shapes were {ours.shape} and {theirs.shape}"
    return f"they differed by up to {np.nanmax(np.abs(ours - theirs)):.4g}"


def _largest(array: FloatArray) -> float:
    return float(np.abs(array).max())


def _pickled(thing: T) -> T | None:
    """The thing after a round trip through pickle; None if it says it cannot go."""
    try:
        data = pickle.dumps(thing)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    loaded: Any = pickle.loads(data)
    return loaded  # type: ignore[no-any-return]
