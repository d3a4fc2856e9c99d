"""How good the predictions were: those that were answered, or else those made just before each row was learned.

The score is part of the live model's state: it is saved with the model, and after a crash it goes on with it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from streamboost.evaluation.metrics import BY_NAME
from streamboost.evaluation.scorebook import DEFAULTS, ScoreBook, Scored
from streamboost.live import LearnedBatch

NAME = "scores"
FOREVER = 2**62  # rows between reports: they are asked for, not waited for


class ScoreKeeper:
    """Keeps score of a live model, as its ``on_learned``.

    Parameters
    ----------
    window : int
        Over how many of the latest rows windowed metrics look, if no score was kept before.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from streamboost import SGBRegressor
    >>> from streamboost.live import LiveModel
    >>> keeper = ScoreKeeper()
    >>> with LiveModel(tempfile.mkdtemp(), SGBRegressor(), target="y", on_learned=keeper) as live:
    ...     _ = live.learn(pa.table({"x": [1.0, 2.0], "y": [3.0, 3.0]}))
    ...     sorted(keeper.scores(live.state)[0])
    ['mae', 'r2', 'rmse']
    """

    def __init__(self, window: int = 1000) -> None:
        self.window = window
        self._lock = threading.Lock()  # the writer adds, others read

    def __call__(self, state: dict[str, Any], batch: LearnedBatch) -> None:
        """Take in what was learned; a corrected row was scored before."""
        if batch.kind == "correct":
            return
        answers = batch.honest()
        if not answers.known.any():
            return
        with self._lock:
            if NAME not in state:
                state[NAME] = ScoreBook(_kinds(batch), every=FOREVER, window=self.window)
            for _ in state[NAME].add(Scored(batch.y, answers, 0.0)):
                pass

    def scores(self, state: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
        """Metrics by name, over all rows and over the latest; NaN where one has no meaning yet."""
        with self._lock:
            book: ScoreBook | None = state.get(NAME)
            if book is None:
                return {}, {}
            report = book.report()
        return report.running, report.windowed


def _kinds(batch: LearnedBatch) -> list[Any]:
    """The usual metrics for what was learned: numbers are predicted as floats, classes never are."""
    answers = batch.answers
    is_number = answers.probabilities is None and np.asarray(answers.values).dtype.kind == "f"
    kinds = [BY_NAME[name] for name in DEFAULTS["regression" if is_number else "classification"]]
    return [kind for kind in kinds if answers.probabilities is not None or kind.need != "probability"]
