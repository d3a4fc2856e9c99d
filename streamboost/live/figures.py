"""What can be asked of a live model from any thread: what it is, and how much of everything there is."""

from __future__ import annotations

from typing import Any

from streamboost.contenders import Task
from streamboost.journal import Journal
from streamboost.live.learner import Learner


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

    @property
    def n_pending(self) -> int:
        """Rows that wait for their labels."""
        return self._journal.counts["waiting"]

    @property
    def n_early(self) -> int:
        """Labels that wait for their rows."""
        return self._journal.counts["early"]

    @property
    def n_corrected(self) -> int:
        """Rows that were learned again with another label."""
        return self._journal.counts["corrected"]

    @property
    def n_expired(self) -> int:
        """Rows that waited too long, or had to make room."""
        return self._journal.counts["expired"]

    @property
    def n_crowded(self) -> int:
        """Rows that had to make room for others."""
        return self._journal.counts["crowded"]

    @property
    def n_dropped(self) -> int:
        """Rows that left without being learned."""
        return self._journal.counts["dropped"]

    @property
    def n_quarantined(self) -> int:
        """Rows and labels that could not be learned."""
        return self._journal.counts["quarantined"]

    @property
    def journal_length(self) -> int:
        """Entries in the journal."""
        return self._journal.counts["entries"]
