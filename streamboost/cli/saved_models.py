"""Saved models as commands name them: a file, or a directory of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamboost.cli.arguments import UsageError
from streamboost.estimators.base import StreamEstimator
from streamboost.keyed import KeyedModel
from streamboost.persistence.checkpoints import Checkpoint, checkpoint_paths, read_latest
from streamboost.persistence.snapshots import load


def load_model(
    path: Path, *, must_have_learned: bool = False, must_learn: bool = False, takes_keyed: bool = False
) -> Any:
    """Load the model of a file, or of the newest checkpoint of a directory."""
    model = load_file(path)
    model = model.model if isinstance(model, Checkpoint) else model
    if isinstance(model, KeyedModel) and not takes_keyed:
        told = "expected one model for all rows. Take that of one key, in Python: load(...).model(key)"
        raise UsageError(f"{str(path)!r} has a model for each {model.key!r}, {told}.")
    if not isinstance(model, (StreamEstimator, KeyedModel)):
        raise ValueError(f"{str(path)!r} holds a {type(model).__name__}, expected an SGBRegressor or SGBClassifier.")
    if must_have_learned and not (model.n_keys if isinstance(model, KeyedModel) else hasattr(model, "committee_")):
        raise UsageError(f"{str(path)!r} has learned no row yet. Run it on a stream first.")
    if must_learn and model.is_frozen:
        raise UsageError(f"{str(path)!r} is frozen: it predicts, and learns no more. Name the model it was made of.")
    return model


def known_columns(model: Any, table: Any) -> Any:
    """Return the columns of a table that a model has learned with."""
    names = model.encoder_.names
    return table.select([name for name in table.column_names if names is None or name in names])


def load_file(path: Path) -> Any:
    """Load a file, or the newest checkpoint of a directory: of a run, else of a server."""
    if not path.exists():
        told = "expected a run's directory or a file of model.save. Look for a typo."
        raise FileNotFoundError(f"{str(path)!r} does not exist, {told}")
    if not path.is_dir():
        return load(path)
    live = path / "live"
    is_served = live.is_dir() and bool(checkpoint_paths(live))
    return read_latest(live if is_served and not checkpoint_paths(path) else path)
