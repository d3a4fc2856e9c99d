"""The contract of a base."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamboost.arrays import FloatArray
from streamboost.bases import Base
from streamboost.losses import Loss, Scale, Squared
from streamboost.testing.loss_checks import targets_for
from streamboost.testing.promises import expect, expect_close, expect_same, pickled


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
        X, y = rng.normal(size=(n, self.n_features + columns)), targets_for(self.loss)[:n]
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
            expect(said.shape == expected, base, f"predict answers (n, m) = {expected}; it was {said.shape}")
            is_sound = said.dtype == np.float64 and bool(np.isfinite(said).all())
            expect(is_sound, base, "predict answers finite numbers in float64")


def check_base_predicting(case: BaseCase) -> None:
    """Predicting changes nothing, and what it returned belongs to the caller."""
    base = case.trained()
    silent = copy.deepcopy(base)
    said = base.predict(case.probes())
    kept = said.copy()
    said[:] = 1e6
    expect_same(base.predict(case.probes()), kept, base, "asked twice, a base says the same twice")
    for one in (base, silent):
        case.teach(one, 2)
    ours, theirs = base.predict(case.probes()), silent.predict(case.probes())
    expect_same(ours, theirs, base, "a base that predicts goes on as one that does not")


def check_base_empty_chunk(case: BaseCase) -> None:
    """Learning no rows changes nothing."""
    base = case.trained()
    before = base.predict(case.probes())
    case.teach(base, 2, n=0)
    expect_same(base.predict(case.probes()), before, base, "learning no rows changes nothing")


def check_base_growing(case: BaseCase) -> None:
    """More columns and more outputs leave the old answers; the new outputs stand at the score given."""
    base = case.trained()
    before = base.predict(case.probes())
    base.add_features(2)
    wide = np.pad(case.probes(), ((0, 0), (0, 2)), constant_values=np.nan)
    expect_close(base.predict(wide), before, base, "more columns, all missing, leave answers as they were")
    case.teach(base, 2, columns=2)
    before = base.predict(wide)
    base.add_outputs(2, -0.5)
    after = base.predict(wide)
    expect_close(after[:, :-2], before, base, "more outputs leave old answers as they were")
    expect_close(after[:, -2:], np.full((7, 2), -0.5), base, "new outputs stand at the score given")


def check_base_copies(case: BaseCase) -> None:
    """A deep copy, and what comes out of pickle, share nothing with the original and go on as it would have."""
    base = case.trained()
    twins = [copy.deepcopy(base), pickled(base)]
    before = base.predict(case.probes())
    for twin in twins:
        if twin is not None:
            case.teach(twin, 2)
    expect_same(base.predict(case.probes()), before, base, "teaching a copy leaves the original as it was")
    case.teach(base, 2)
    for twin in twins:
        if twin is not None:
            expect_same(
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
