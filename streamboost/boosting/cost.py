"""Unit cost, the x-axis of the paper's Figure 2: one prediction of one weak learner for one row is 1, one update 2."""

from dataclasses import dataclass


@dataclass
class CostMeter:
    """Counts weak-learner predictions and updates."""

    predictions: int = 0
    updates: int = 0

    def add(self, rows: int, predictions: int, updates: int) -> None:
        """Count so many predictions and updates for each of ``rows`` rows."""
        self.predictions += rows * predictions
        self.updates += rows * updates

    @property
    def units(self) -> int:
        """The unit cost so far."""
        return self.predictions + 2 * self.updates
