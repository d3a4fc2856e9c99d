"""What can be asked of a live model from any thread: what it is, and how much of everything there is."""

from __future__ import annotations

from typing import Any

from streamboost.guards import Task
from streamboost.journal import Journal
from streamboost.live.learner import Learner


def _count(name: str, told: str) -> property:
    return property(lambda self: self._journal.counts[name], doc=told)


class Figures:
    """Figures of a live model; nothing is changed by looking at them."""

    _learner: Learner
    _journal: Journal

    @property
    def model(self) -> Any:
        """The estimator; only the writer may use it while there are requests to learn."""
        return self._learner.model

    @property
    def rows(self) -> int:
        """Rows learned, corrections included."""
        return self._learner.rows

    @property
    def target(self) -> str:
        """The name of the column with targets."""
        return self._learner.target

    @property
    def task(self) -> Task:
        """Whether targets are numbers or classes."""
        return self._learner.task

    @property
    def state(self) -> dict[str, Any]:
        """Whatever else is saved with the model."""
        return self._learner.state

    @property
    def last_checkpoint_error(self) -> str | None:
        """Why the last checkpoint could not be written."""
        return self._learner.checkpoint_error

    n_pending = _count("waiting", "Rows that wait for their labels.")
    n_early = _count("early", "Labels that wait for their rows.")
    n_corrected = _count("corrected", "Rows that were learned again with another label.")
    n_expired = _count("expired", "Rows that waited too long, or had to make room.")
    n_crowded = _count("crowded", "Rows that had to make room for others.")
    n_dropped = _count("dropped", "Rows that left without being learned.")
    n_quarantined = _count("quarantined", "Rows and labels that could not be learned.")
    journal_length = _count("entries", "Entries in the journal.")
