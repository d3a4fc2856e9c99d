"""A frozen model where a live one is expected: it is asked, and nothing is learned, remembered or written."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self

from sklearn.base import is_classifier

from streamboost._types import Task
from streamboost.errors import frozen
from streamboost.live.results import LearnedBatch


class FrozenModel:
    """What a server asks of a :class:`~streamboost.live.LiveModel`, for a model that predicts only.

    Parameters
    ----------
    path : path
        Where the model is from.
    model : frozen estimator
    target : str, optional
        The name of the target, "target" by default.

    Examples
    --------
    >>> from streamboost import SGBRegressor
    >>> model = SGBRegressor().fit([[1.0], [2.0]], [3.0, 4.0])
    >>> with FrozenModel("prices.safetensors", model.freeze()) as live:
    ...     live.rows, live.task, live.n_pending
    (2, 'regression', 0)
    """

    n_pending = n_early = n_expired = n_quarantined = journal_length = 0
    last_checkpoint_error: str | None = None
    is_inconsistent = False
    default = None
    max_columns: int | None = None
    max_classes: int | None = None
    max_column_classes: int | None = None
    on_learned: Callable[[dict[str, Any], LearnedBatch], None] | None = None

    def __init__(self, path: str | PathLike[str], model: Any, target: str | None = None) -> None:
        self.directory, self.model, self.target = Path(path), model, target or "target"
        self.rows, self.state = int(model.n_samples_seen_), dict[str, Any]()
        self.task: Task = "classification" if is_classifier(model) else "regression"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what would change something."""
        raise frozen("model")

    learn = learn_together = label = remember = checkpoint = _refuse

    def expire(self, now: float | None = None, *, limit: int | None = None) -> int:
        """Return how many rows have waited too long: none."""
        return 0

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
