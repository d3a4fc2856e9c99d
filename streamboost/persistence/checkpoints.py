"""A directory of checkpoints: the model and the place in its source together, so that neither is ever ahead.

::

    DIR/checkpoint-00000041.safetensors     the one before, in case the newest is damaged
    DIR/checkpoint-00000042.safetensors     the newest
    DIR/segments/                           their long arrays, if there are any
    DIR/lease-00000007, DIR/lock            of the process that writes here: see :mod:`streamboost.persistence.lease`

A checkpoint is a snapshot like any saved model, see :mod:`streamboost.persistence.snapshots`: written beside its place,
brought to disk, renamed. Only then is an older one deleted, so at every moment at least one whole checkpoint is there.
Of long arrays, such as the window of a long memory, only what has changed is written, before the checkpoint itself: see
:mod:`streamboost.persistence.segments`.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from streamboost.errors import LeaseLost, NewerFormat, SnapshotError
from streamboost.persistence import snapshots
from streamboost.persistence.durable_files import remove_leftovers
from streamboost.persistence.lease import Lease, void_number
from streamboost.persistence.segments import SegmentStore

NAME = re.compile(r"checkpoint-(\d{8,})\.safetensors")


@dataclass
class Checkpoint:
    """A model, and everything needed to go on as if it had never stopped.

    Parameters
    ----------
    model : object
        Anything :func:`streamboost.persistence.snapshots.save` takes.
    position : JSON value
        Where its source goes on.
    rows : int
        How many rows were learned.
    state : dict
        What else goes on: metrics, counters, the lengths of outputs.
    """

    model: Any
    position: Any = None
    rows: int = 0
    state: dict[str, Any] = field(default_factory=dict)


class CheckpointStore:
    """The checkpoints of one model, the last two kept, written by one process at a time.

    Parameters
    ----------
    directory : path
        Made if it is not there.
    wait : float, default=0
        How many seconds to wait for another process to leave the directory.

    Attributes
    ----------
    damaged : list of str
        What :meth:`latest` had to pass over, and why.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, CheckpointStore(directory) as store:
    ...     for rows in (100, 200, 300):
    ...         path = store.save(Checkpoint(model={"any": "model"}, position=rows, rows=rows))
    ...     path.name, [path.name for path in store.paths()], store.latest().position
    ('checkpoint-00000003.safetensors', ['checkpoint-00000002.safetensors', 'checkpoint-00000003.safetensors'], 300)
    """

    keep = 2

    def __init__(self, directory: str | os.PathLike[str], *, wait: float = 0.0) -> None:
        self.directory = Path(directory)
        if self.directory.exists() and not self.directory.is_dir():
            raise NotADirectoryError(
                f"{str(directory)!r} is a file, expected a directory for checkpoints. Name another, or a new one."
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.damaged: list[str] = []
        self._lease = Lease(self.directory, wait=wait)
        if self._lease.is_replacing:  # what its former owner may be writing does not count
            self._lease.void = 1 + max(map(_number, self.paths()), default=0)
            self._lease.renew()
        remove_leftovers(self.directory)
        self._segments = SegmentStore(self.directory)
        self._segments.remove_leftovers()

    def paths(self) -> list[Path]:
        """The checkpoints there are, the newest last."""
        return checkpoint_paths(self.directory)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; it is durable when this returns, and only then are older ones deleted.

        Raises
        ------
        LeaseLost
            If another process has taken the directory meanwhile; nothing was changed.
        """
        paths = self.paths()
        number = 1 + max(self._lease.void or 0, *map(_number, paths), 0)
        self.check_lease()
        path = self.directory / f"checkpoint-{number:08d}.safetensors"
        try:
            snapshots.save(checkpoint, path, self._segments, before=self.check_lease)
        except LeaseLost:  # nothing here is this process's any more
            raise
        except BaseException:  # such as a full disk, where what was written for nothing is in the way
            self._remove_segments()
            raise
        self.check_lease()
        self._lease.void = None  # this one is newer
        for old in paths[: len(paths) + 1 - self.keep]:
            old.unlink(missing_ok=True)
        self._remove_segments()
        if hasattr(checkpoint.model, "confirm_saved"):  # it has files of its own, some of which may go now
            checkpoint.model.confirm_saved()
        return path

    def check_lease(self) -> None:
        """Refuse to go on where another process has taken the directory, by a ``LeaseLost``."""
        self._lease.check()

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; None if there is none at all.

        One that is damaged is put aside under the name ``*.damaged``, and the one before it taken.

        Raises
        ------
        SnapshotError
            If there are checkpoints, but not one can be loaded.
        """
        found, self.damaged = _newest(self.directory, self._segments, put_aside=True)
        return found

    def _remove_segments(self) -> None:
        """Remove the segments that no checkpoint refers to; none, if there is one of which this is not known.

        What could not be removed is tried again after the next checkpoint.
        """
        if not self._segments.directory.is_dir():
            return
        with contextlib.suppress(OSError, SnapshotError):
            self._segments.keep_only({name for path in self.paths() for name in snapshots.segments_of(path)})

    def close(self) -> None:
        """Let another process write here."""
        self._lease.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_latest(directory: str | os.PathLike[str]) -> Checkpoint:
    """The newest whole checkpoint of a directory, which another process may be writing to meanwhile."""
    if not Path(directory).is_dir():
        raise FileNotFoundError(f"{str(directory)!r} is no directory. Name the one a run was given with --model.")
    found, _ = _newest(Path(directory), SegmentStore(Path(directory)), put_aside=False)
    if found is None:
        raise FileNotFoundError(f"{str(directory)!r} holds no checkpoint. Is it the directory a run was given?")
    return found


def checkpoint_paths(directory: Path) -> list[Path]:
    """The checkpoints in a directory, the newest last."""
    found = sorted((entry for entry in directory.iterdir() if NAME.fullmatch(entry.name)), key=_number)
    void = void_number(directory) if found else None
    return [path for path in found if _number(path) != void]


def _newest(directory: Path, segments: SegmentStore, *, put_aside: bool) -> tuple[Checkpoint | None, list[str]]:
    damaged: dict[Path, str] = {}
    for path in reversed(checkpoint_paths(directory)):
        try:
            checkpoint = snapshots.load_with(segments, path)
            if not isinstance(checkpoint, Checkpoint):
                raise SnapshotError(f"{str(path)!r} holds a {type(checkpoint).__name__}, expected a checkpoint.")
            for other in damaged if put_aside else ():
                other.rename(other.with_suffix(".damaged"))
            return checkpoint, [*damaged.values()]
        except FileNotFoundError:  # its writer has just put a newer one in its place
            return _newest(directory, segments, put_aside=put_aside)
        except NewerFormat:  # whole, and no reason to go back to an older one
            raise
        except SnapshotError as error:
            if not path.exists():  # as above, and then removed its segments
                return _newest(directory, segments, put_aside=put_aside)
            damaged[path] = str(error)
    if damaged:
        raise SnapshotError(
            f"no checkpoint in {str(directory)!r} can be loaded: {' '.join(damaged.values())} "
            "Bring one back from a copy, or begin anew in another directory."
        )
    return None, []


def _number(path: Path) -> int:
    return int(path.name.split("-")[1].split(".")[0])
