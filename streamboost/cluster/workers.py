"""What a worker of a crew is.

A worker is a plain class, made as ``cls(**options)`` in its own process::

    save(directory, number)   make the state durable as cut `number`, in its own folder (a shared file system)
    load(directory, number)   go back to exactly that cut
    settle(directory)         optional: called once after it is made, with the folder, e.g. to spill there
    drop(directory, kept)     optional: delete what only other cuts than those in the list `kept` need
    n_rows                    optional: how many rows it has learned, shown by Crew.metrics
    any other method          an operation: deterministic, given the state and the arguments

Of what it saves, files and folders named ``cut-NUMBER`` (``cut-NUMBER.anything``) are deleted for it when the cut is no
longer kept; see :func:`cut_path`, and :class:`SnapshotWorker` for the usual case. Numbers of cuts are never used twice
in a directory. What a worker writes between cuts must have names of its own as well (``secrets.token_hex``): one that
was given up for dead may still be writing. An operation that raises counts as done, and its error is what
:meth:`Crew.result` raises.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from streamboost import snapshots
from streamboost.errors import SnapshotError


def cut_path(directory: str | os.PathLike[str], number: int) -> Path:
    """The file of a cut, for a worker with one file per cut."""
    return Path(directory) / f"cut-{number:010d}.safetensors"


class SnapshotWorker:
    """A worker whose whole state is one object, ``state``, saved as one snapshot per cut."""

    state: Any = None

    def save(self, directory: str, number: int) -> None:
        """Save the state."""
        snapshots.save(self.state, cut_path(directory, number))

    def load(self, directory: str, number: int) -> None:
        """Load the state."""
        path = cut_path(directory, number)
        if not path.exists():
            raise SnapshotError(f"{str(path)!r} is missing, which cut {number} needs. Go back to another cut.")
        self.state = snapshots.load(path)
