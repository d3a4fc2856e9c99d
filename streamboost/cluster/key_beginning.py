"""What all keys begin as, their model and their prior: described in every cut, and kept in a file beside the cuts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from streamboost.errors import SnapshotError
from streamboost.estimators.base import StreamEstimator
from streamboost.persistence import snapshots

FILE = "beginning.safetensors"
PLAIN = (type(None), bool, int, float, str)


def describe(template: StreamEstimator, key: str, prior: StreamEstimator | None) -> dict[str, Any]:
    """Describe the model of every key by its class and parameters: plain values as they are, others by a digest.

    Examples
    --------
    >>> from streamboost import SGBRegressor
    >>> before = describe(SGBRegressor(loss="poisson"), "store", None)
    >>> before["model"], before["loss"], before["key"]
    ('SGBRegressor', 'poisson', 'store')
    >>> check_same(before, describe(SGBRegressor(loss="huber"), "store", None))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: loss is 'huber', but the cut was made with 'poisson'. ...
    """
    values = {**template.get_params(deep=False), "key": key, "prior": prior}
    return {"model": type(template).__name__, **{name: _shown(value) for name, value in values.items()}}


def check_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with another model than the one a cut was made with."""
    for name, was in before.items():
        value = now.get(name)
        if value != was and repr(value) != repr(was):  # NaN is NaN
            options = "--key" if name == "key" else "--option, --start-from and --seed"
            raise ValueError(
                f"{name} is {_quoted(value)}, but the cut was made with {_quoted(was)}. Use the model it was made "
                f"with, that is the same parameters (on the command line the same {options} as before), or name "
                "another directory to begin anew."
            )


def write(directory: Path, template: StreamEstimator, prior: StreamEstimator | None) -> None:
    """Put model and prior beside the cuts, unless they are there."""
    path, kept = directory / FILE, {"model": template, "prior": prior}
    if not path.exists() or path.read_bytes() != snapshots.pack(kept):
        snapshots.save(kept, path)


def _shown(value: Any) -> Any:
    """A plain value as it is, another by its class and a digest, which is the same for equals in every process."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    try:
        return f"a {type(value).__name__} ({hashlib.sha256(snapshots.pack(value)).hexdigest()[:12]})"
    except SnapshotError:  # a prior that no checkpoint can keep
        return f"a {type(value).__name__}"


def _quoted(value: Any) -> str:
    return str(value) if isinstance(value, str) and value.endswith(")") else repr(value)
