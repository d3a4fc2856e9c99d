"""The weak learning edge, measured live: how much of its targets each learner explains (Definition 1 of the paper)."""

from __future__ import annotations

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.edges import Meters, count_edges


class EdgeMeter:
    """γ̂ᵢ = 1 − Σ‖target − hᵢ(x)‖² / Σ‖target‖² for every learner, over all rows and over the latest ones.

    An edge of 1 is a learner that says what it should, 0 one that might as well say nothing; below 0 it does harm.
    Each row counts with what the learner said before it learned that row. ``window`` is how many rows ``recent`` looks
    back: those further back count less than a twentieth. A chunk learned in one step counts as one row there.
    """

    def __init__(self, n_learners: int, window: int = 1000) -> None:
        self.residual_ss = np.zeros(n_learners)  # Σ w ‖target − h‖²
        self.target_ss = np.zeros(n_learners)  # Σ w ‖target‖²
        self.recent_sums = np.zeros((n_learners, 2))  # the same two, faded
        self.decay = max(0.0, 1.0 - 3.0 / window)  # what is left of them after a row

    def add(self, targets: FloatArray, h: FloatArray, weight: FloatArray) -> None:
        """Count rows: what the learners should have said and what they said, both (n, N, m)."""
        count_edges(targets, h, weight, self.arrays)

    @property
    def arrays(self) -> Meters:
        """What the kernels work on."""
        return Meters(self.decay, self.residual_ss, self.target_ss, self.recent_sums)

    @property
    def running(self) -> FloatArray:
        """The edges since the first row, (N,); NaN where every target was 0 so far."""
        return _edge(self.residual_ss, self.target_ss)

    @property
    def recent(self) -> FloatArray:
        """The edges over the latest rows, (N,)."""
        return _edge(self.recent_sums[:, 0], self.recent_sums[:, 1])

    def grow(self, k: int) -> None:
        """Make room for k more learners."""
        self.residual_ss, self.target_ss = np.pad(self.residual_ss, (0, k)), np.pad(self.target_ss, (0, k))
        self.recent_sums = np.pad(self.recent_sums, ((0, k), (0, 0)))

    def drop_last(self, k: int) -> None:
        """Forget the last k learners."""
        for name in ("residual_ss", "target_ss", "recent_sums"):
            setattr(self, name, getattr(self, name)[:-k].copy())


def _edge(residual_ss: FloatArray, target_ss: FloatArray) -> FloatArray:
    return 1.0 - np.divide(residual_ss, target_ss, out=np.full_like(target_ss, np.nan), where=target_ss > 0)
