"""The combination: experts regressed on top of their vote.

A vote can only choose among experts; the best linear function of them is better than the best of them wherever their
errors differ. So the score goes on from that of the vote, by coefficients times how far every expert is from it. They
are those of Bayes' rule with a normal prior about 0, where the vote alone is right: for the square loss recursive least
squares, for log losses online Newton steps. Rows fade with a half-life. For classes two features of the vote itself
calibrate it: its score (a slope: too sure, or not sure enough) and its choice (a step: labels that are wrong by chance,
however clear the case).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels import combining as kernels
from streamboost.kernels import losses as loss_kernels
from streamboost.losses import Absolute, Huber, Logistic, Loss, Quantile, Softmax, Squared

COMBINED: dict[type[Loss], int] = {  # under other losses the vote stays what it is
    Squared: loss_kernels.SQUARED, Logistic: loss_kernels.LOGISTIC, Softmax: loss_kernels.SOFTMAX
}  # fmt: skip
HELD: tuple[type[Loss], ...] = (Squared, Absolute, Quantile, Huber)  # real targets, and scores in their units


class Combination:
    """A regression of the target on experts, and the range of targets that predictions are held to.

    Attributes
    ----------
    combines, holds : bool
        Whether there is a regression, and whether predictions are held to the range of the targets seen, widened by a
        tenth; to be set before the first row. Losses that are not made for it do without.
    coefficients : array of shape (E + 2,)
        Of the vote's score and its choice, which are 0 unless targets are classes, then of each expert.
    """

    combines = holds = True

    def __init__(self) -> None:
        self._allocate(0, 0, 0)

    def _allocate(self, n: int, n_outputs: int, n_held: int) -> None:
        self.coefficients, self.pull, self.curvature = np.zeros(n), np.zeros(n), np.zeros((n, n))
        self.residual_ss = np.zeros(n_outputs + 1)
        self.target_range = np.repeat([[np.inf], [-np.inf]], n_held, axis=1)

    def open(self, loss: Loss, n_experts: int) -> None:
        """Make room for a loss and so many experts."""
        n = n_experts + kernels.OWN if self.combines and type(loss) in COMBINED else 0
        self._allocate(n, loss.n_outputs, loss.n_outputs if self.holds and type(loss) in HELD else 0)

    @property
    def arrays(self) -> kernels.Combining:
        """What the kernels work on."""
        return kernels.Combining(self.coefficients, self.curvature, self.pull, self.residual_ss, self.target_range)

    def hold(self, scores: FloatArray) -> FloatArray:
        """Hold scores (..., m) to the range of targets seen."""
        low, high = self.target_range
        if not low.size or (low > high).any():
            return scores
        margin = kernels.MARGIN * (high - low)
        return np.clip(scores, low - margin, high + margin)

    def score(self, scores: FloatArray, votes: FloatArray, loss: Loss) -> FloatArray:
        """The scores of experts (n, E, m) and of their vote (n, m) to those of the combination, (n, m)."""
        combined = votes.copy()
        kernels.combine_rows(COMBINED.get(type(loss), -1), scores, self.arrays, combined)
        return combined

    def learn(
        self, scores: FloatArray, vote: FloatArray, y: FloatArray, loss: Loss, weight: float, elapsed: float
    ) -> None:
        """Take in a row: what experts (E, m) and their vote (m,) said, and the target (k,).

        ``elapsed`` is what the row counts for in the half-life, ``weight`` unless classes are rare.
        """
        kernels.learn_row(COMBINED.get(type(loss), -1), scores, vote, y, weight, elapsed, self.arrays)

    def restart(self) -> None:
        """Forget the coefficients: the vote has become another."""
        self.coefficients[:], self.pull[:], self.curvature[:] = 0.0, 0.0, 0.0

    def join(self, n_experts: int) -> None:
        """Take in more experts, of which nothing is known: their coefficients are 0."""
        if len(self.coefficients):
            self.coefficients, self.pull = (np.pad(each, (0, n_experts)) for each in (self.coefficients, self.pull))
            self.curvature = np.pad(self.curvature, (0, n_experts))

    def keep(self, experts: Sequence[int]) -> None:
        """Go on with these experts, in this order: what is known of them by themselves."""
        if len(self.coefficients):
            kept = [kernels.SLOPE, kernels.STEP, *(kernels.OWN + e for e in experts)]
            full = self.curvature + np.tril(self.curvature, -1).T
            self.curvature = np.tril(full[np.ix_(kept, kept)])
            self.pull = self.pull[kept]
            ridge = kernels.RIDGE * np.eye(len(kept))
            self.coefficients = np.asarray(np.linalg.solve(full[np.ix_(kept, kept)] + ridge, self.pull), np.float64)


NO_COMBINATION = Combination()  # of a hedge that was saved before there was one
