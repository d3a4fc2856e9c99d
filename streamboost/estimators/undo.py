"""What a call that learns has to undo if it fails: the estimator as it was, and its committee."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.random import RandomState

from streamboost.boosting import undo
from streamboost.boosting.committee import Committee

if TYPE_CHECKING:
    from streamboost.estimators.base import StreamEstimator


class Undo(undo.Undo):
    """An estimator and a committee as they are now.

    Parameters
    ----------
    estimator : estimator
    committee : Committee
        That is about to learn: the estimator's own, or one it is about to take.
    n_rows, is_known
        As in :class:`streamboost.boosting.undo.Undo`.
    """

    def __init__(self, estimator: StreamEstimator, committee: Committee, n_rows: int, *, is_known: bool) -> None:
        self.estimator, self.attributes = estimator, dict(estimator.__dict__)
        self.random: Any = None
        if "committee_" not in self.attributes and isinstance(estimator.random_state, RandomState):
            self.random = estimator.random_state.get_state()
        super().__init__(committee, n_rows, is_known=is_known)

    def restore(self) -> None:
        """Go back."""
        super().restore()
        self.estimator.__dict__.clear()
        self.estimator.__dict__.update(self.attributes)
        if self.random is not None:
            self.estimator.random_state.set_state(self.random)
