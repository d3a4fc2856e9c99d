"""Unit cost, the x-axis of the paper's Figure 2: one prediction of one weak learner for one row is 1, one update 2.

Streaming boosting and batch boosting carry the same meter, so that their training can be compared.
"""

from dataclasses import dataclass


@dataclass
class CostMeter:
    """Counts weak-learner predictions and updates."""

    predictions: int = 0
    updates: int = 0

    def predicted(self, rows: int, learners: int) -> None:
        """Count ``learners`` predictions for each of ``rows`` rows."""
        self.predictions += rows * learners

    def updated(self, rows: int, learners: int) -> None:
        """Count ``learners`` updates for each of ``rows`` rows."""
        self.updates += rows * learners

    @property
    def units(self) -> int:
        """The unit cost so far."""
        return self.predictions + 2 * self.updates
