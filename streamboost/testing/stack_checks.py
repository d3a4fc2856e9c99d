"""The contract of a stack."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.replay import Replay
from streamboost.stacks.base import Stack
from streamboost.testing.assertions import expect, expect_close, expect_same, largest, pickled


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
        replay.append(rows.X, rows.targets[:, 0, :1], rows.weight, stack.leaf_ids(rows.X), rows.targets)
        for i in replay.turns(stack):
            replay.remember(i, stack.refit(i, replay, replay.recorded[:, i], replay.weight))
    stack.learn(*rows)


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
    18
    """
    for check in STACK_CHECKS:
        check(StackCase(make, n_features, n_outputs, seed))


def check_shapes(case: StackCase) -> None:
    """Answers are float64 arrays (n, N, m) of finite numbers, for no rows and for missing values too."""
    for stack in (case.opened(), case.trained()):
        for n in (0, 1, 7):
            said, expected = stack.predict(case.probes()[:n]), (n, stack.n_learners, case.n_outputs)
            expect(said.shape == expected, stack, f"predict answers (n, N, m) = {expected}; it was {said.shape}")
            expect(said.dtype == np.float64, stack, f"predict answers in float64; it was {said.dtype}")
            expect(bool(np.isfinite(said).all()), stack, "predict answers finite numbers; some were not")


def check_untrained(case: StackCase) -> None:
    """A learner that has learned nothing says 0."""
    stack = case.opened()
    most = largest(stack.predict(case.probes()))
    expect(most == 0, stack, f"a learner that has learned nothing says 0; one said {most:g}")


def check_learning(case: StackCase) -> None:
    """A stack that was taught says something: otherwise the checks below would be empty."""
    stack = case.trained()
    expect(largest(stack.predict(case.probes())) > 0, stack, "learning changes what learners say; all said 0 still")


def check_predicting(case: StackCase) -> None:
    """Predicting changes nothing: not the next answer, and not what is learned afterwards."""
    for stack in (case.opened(), case.trained()):
        silent = copy.deepcopy(stack)
        first, again = stack.predict(case.probes()), stack.predict(case.probes())
        expect_same(again, first, stack, "asked twice, a stack says the same twice")
        _expect_same_future(case, stack, silent, "a stack that predicts goes on as one that does not")


def check_inputs(case: StackCase) -> None:
    """Neither predicting nor learning writes into the arrays given."""
    stack = case.trained()
    rows = case.rows(stack, 5, 2)
    kept = copy.deepcopy(rows)
    stack.predict(rows.X)
    teach(stack, rows)
    for name, given, before in zip(Rows._fields, rows, kept, strict=True):
        expect_same(given, before, stack, f"{name} is left as it was given")


def check_results(case: StackCase) -> None:
    """What predict returned belongs to the caller: writing into it changes nothing."""
    stack = case.trained()
    said = stack.predict(case.probes())
    kept = said.copy()
    said[:] = 1e6
    expect_same(stack.predict(case.probes()), kept, stack, "writing into what predict returned changes no answer")


def check_aliases(case: StackCase) -> None:
    """What was learned stays learned: writing into the arrays afterwards changes nothing, now or later."""
    stack = case.trained()
    twin, rows = copy.deepcopy(stack), case.rows(stack, 5, 2)
    teach(twin, copy.deepcopy(rows))
    teach(stack, rows)
    for array in rows:
        array[:] = 1e6
    _expect_same_future(case, stack, twin, "writing into arrays after they were learned changes nothing")


def check_seed(case: StackCase) -> None:
    """The same seed and the same rows give the same stack."""
    _expect_same_future(case, case.trained(), case.trained(), "the same seed gives the same run")


def check_empty_chunk(case: StackCase) -> None:
    """Learning no rows changes nothing."""
    for stack in (case.opened(), case.trained()):
        twin = copy.deepcopy(stack)
        teach(stack, case.rows(stack, 0, 2))
        _expect_same_future(case, stack, twin, "learning no rows changes nothing")


def check_zero_weight(case: StackCase) -> None:
    """Rows of weight 0 are never learned."""
    stack = case.trained()
    before, rows = stack.predict(case.probes()), case.rows(stack, 5, 2)
    stack.learn(rows.X, rows.targets, np.zeros(5))
    expect_same(stack.predict(case.probes()), before, stack, "rows of weight 0 teach nothing")


def check_independence(case: StackCase) -> None:
    """What one learner is told does not change what another says."""
    stack = case.trained()
    twin, rows = copy.deepcopy(stack), case.rows(stack, 20, 2)
    teach(stack, rows)
    other = rows.targets.copy()
    other[:, -1] += 1.0
    teach(twin, rows._replace(targets=other))
    ours, theirs = stack.predict(case.probes())[:, :-1], twin.predict(case.probes())[:, :-1]
    expect_same(theirs, ours, stack, "what the last learner is told does not change what the others say")


def check_first(case: StackCase) -> None:
    """The first learners say the same whether or not the others are asked."""
    stack = case.trained()
    said = stack.predict(case.probes())
    for k in range(stack.n_learners + 1):
        expect_same(stack.predict_first(case.probes(), k), said[:, :k], stack, f"the first {k} learners say the same")


def check_leaves(case: StackCase) -> None:
    """Leaves, where a stack has any, tell what predict says of the same rows, for any number of first learners."""
    stack = case.trained()
    if (leaf_ids := stack.leaf_ids(case.probes())) is None:
        return
    said = stack.predict(case.probes())
    for k in range(stack.n_learners + 1):
        told = stack.predict_leaves(leaf_ids[:, :k])
        expect_same(told, said[:, :k], stack, f"the leaves of {k} learners tell what they say")


def check_growing(case: StackCase) -> None:
    """Growing leaves the learners as they are; the new ones say 0, and learn."""
    stack = case.trained()
    before, n_learners = stack.predict(case.probes()), stack.n_learners
    stack.grow(2)
    expect(stack.n_learners == n_learners + 2, stack, f"grow(2) makes {n_learners + 2} of {n_learners} learners")
    after = stack.predict(case.probes())
    expect_close(after[:, :n_learners], before, stack, "growing leaves old answers as they were")
    expect(largest(after[:, n_learners:]) == 0, stack, "learners grown anew say 0")
    teach(stack, case.rows(stack, 20, 2))
    expect(largest(stack.predict(case.probes())[:, n_learners:]) > 0, stack, "learners grown anew can learn")


def check_adding_features(case: StackCase) -> None:
    """Room for more columns leaves the answers for rows that have nothing there."""
    stack = case.trained()
    before = stack.predict(case.probes())
    stack.add_features(2)
    wide = case._replace(n_features=case.n_features + 2)
    expect(stack.n_features == wide.n_features, stack, "add_features(2) makes n_features larger by 2")
    X = np.pad(case.probes(), ((0, 0), (0, 2)), constant_values=np.nan)
    expect_close(stack.predict(X), before, stack, "more columns, all missing, leave answers as they were")
    teach(stack, case.rows(stack, 20, 2))
    expect(bool(np.isfinite(stack.predict(wide.probes())).all()), stack, "a stack goes on after add_features")


def check_adding_outputs(case: StackCase) -> None:
    """Room for more outputs leaves the answers for the old ones; the new ones are 0, and are learned."""
    stack, m = case.trained(), case.n_outputs
    before = stack.predict(case.probes())
    stack.add_outputs(2)
    expect(stack.n_outputs == m + 2, stack, "add_outputs(2) makes n_outputs larger by 2")
    after = stack.predict(case.probes())
    expect_close(after[..., :m], before, stack, "more outputs leave old answers as they were")
    expect(largest(after[..., m:]) == 0, stack, "new outputs are 0")
    teach(stack, case.rows(stack, 20, 2))
    expect(largest(stack.predict(case.probes())[..., m:]) > 0, stack, "new outputs can be learned")


def check_copies(case: StackCase) -> None:
    """A deep copy shares nothing with its original, and goes on exactly as it would have."""
    stack = case.trained()
    before = stack.predict(case.probes())
    teach(copy.deepcopy(stack), case.rows(stack, 20, 3))
    expect_same(stack.predict(case.probes()), before, stack, "teaching a deep copy leaves the original as it was")
    _expect_same_future(case, stack, copy.deepcopy(stack), "a deep copy goes on as the original does")


def check_pickles(case: StackCase) -> None:
    """What comes out of pickle goes on exactly as what went in; a stack that refuses to be pickled has said so."""
    stack = case.trained()
    if (loaded := pickled(stack)) is not None:
        _expect_same_future(case, stack, loaded, "a stack out of pickle goes on as the one that went in")


STACK_CHECKS: tuple[Callable[[StackCase], None], ...] = (
    check_untrained, check_shapes, check_learning, check_predicting, check_inputs, check_results, check_aliases,
    check_seed, check_empty_chunk, check_zero_weight, check_independence, check_first, check_leaves, check_growing,
    check_adding_features, check_adding_outputs, check_copies, check_pickles,
)  # fmt: skip
"""What :func:`check_stack` runs."""


def _expect_same_future(case: StackCase, stack: Stack, twin: Stack, promise: str) -> None:
    """Both must say the same now, and after learning the same rows."""
    expect_same(twin.predict(case.probes()), stack.predict(case.probes()), stack, promise)
    for one in (stack, twin):
        teach(one, case.rows(one, 20, 9))
    expect_same(twin.predict(case.probes()), stack.predict(case.probes()), stack, f"{promise}, also later")
