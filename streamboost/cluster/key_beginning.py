"""What all keys begin as, their model and their prior: told apart from others, and kept in a file beside the cuts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from streamboost import snapshots
from streamboost.cluster import beginnings
from streamboost.cluster.crew import Cut
from streamboost.estimator_base import StreamEstimator

FILE = "beginning.safetensors"


def describe(template: StreamEstimator, key: str, prior: StreamEstimator | None) -> dict[str, Any]:
    """As :func:`.beginnings.describe`; but a generator in a template never moves on, since each key has a copy."""
    state = beginnings.shown(template.random_state)
    return beginnings.describe(template, key=key, prior=prior, random_state=state)


def write(directory: Path, template: StreamEstimator, prior: StreamEstimator | None) -> None:
    """Put model and prior beside the cuts, unless they are there."""
    path, kept = directory / FILE, {"model": template, "prior": prior}
    if not path.exists() or path.read_bytes() != snapshots.pack(kept):
        snapshots.save(kept, path)


def of_cut(cut: Cut, directory: Path) -> dict[str, Any]:
    """What the keys of a cut began as; early cuts hold but the digest of the file."""
    before = cut.memory["beginning"]
    if isinstance(before, dict):
        return before
    path = directory / FILE
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != before:
        raise ValueError(
            f"the cut was made in {cut.directory!r}, and {str(path)!r} does not tell with which model. "
            "Name the directory it was made in."
        )
    kept = snapshots.load(path)
    return describe(kept["model"], cut.memory["key"], kept["prior"])
