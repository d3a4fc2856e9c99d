"""The directory of a crew: which cuts there are, and what each worker saved of them.

::

    DIR/lock, DIR/checkpoint-*.safetensors   the manifest: which cuts are whole, and how far each worker was
    DIR/worker-00000/                        what worker 0 saved, by itself, under the numbers of cuts

A cut is whole once all workers have saved it and the manifest, written after them, names it. Numbers of cuts are never
used twice, not even by another driver on the same directory: whoever saves late saves beside, never over.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamboost.errors import SnapshotError
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore

KEPT = 2  # cuts, beside those that were ...
DETACHED_KEPT = 2  # ... made for checkpoints, which may be on their way to disk, and ...
CONFIRMED_KEPT = 2  # ... named by checkpoints that are there: as many as a directory of checkpoints keeps
NUMBERS = 1_000_000  # of cuts for each driver that opens a directory


@dataclass
class Manifest:
    """Which cuts of a directory are whole."""

    mark: str  # tells this directory's cuts from another's
    incarnation: int = 0  # how many drivers have opened it
    cuts: dict[int, list[int]] = field(default_factory=dict)  # number: operations of each worker; the newest last
    detached: list[int] = field(default_factory=list)  # those made for checkpoints; the newest last
    confirmed: list[int] = field(default_factory=list)  # those that checkpoints on disk refer to; the newest last

    def spared(self) -> set[int]:
        """The cuts that are kept however many newer ones there are."""
        return {*self.detached, *self.confirmed}


class CutBook:
    """The directory of a crew, made if it is not there, or a temporary one; written by one driver at a time."""

    def __init__(self, directory: str | os.PathLike[str] | None) -> None:
        self.is_lasting = directory is not None
        self.directory = Path(tempfile.mkdtemp(prefix="streamboost-") if directory is None else directory).absolute()
        self._store = CheckpointStore(self.directory)
        self._end = weakref.finalize(self, _end, self._store, "" if self.is_lasting else str(self.directory))
        found = self._store.latest()
        if found is not None and not isinstance(found.model, Manifest):
            self._end()
            raise SnapshotError(
                f"{str(directory)!r} holds checkpoints of a run, expected a directory for a crew alone. "
                "Name another, for example one inside it."
            )
        self.manifest = Manifest(secrets.token_hex(8)) if found is None else found.model
        self._open()

    def _open(self) -> None:
        manifest = replace(self.manifest, incarnation=self.manifest.incarnation + 1)
        self._write(manifest)
        self._next = manifest.incarnation * NUMBERS

    def folder(self, worker: int) -> Path:
        """Where a worker saves."""
        return self.directory / f"worker-{worker:05d}"

    def reserve(self) -> int:
        """A number for a cut that nobody has used, nor ever will."""
        self._next += 1
        if self._next % NUMBERS == 0:
            self._open()
            self._next += 1
        return self._next

    def note(self, number: int, done: Sequence[int], *, is_detached: bool = False) -> list[int]:
        """Write down that a cut is whole, and whether it is for a checkpoint; return the cuts that are left."""
        manifest = self.manifest
        cuts = {other: at for other, at in manifest.cuts.items() if other != number} | {number: list(done)}
        if is_detached:
            manifest = replace(manifest, detached=_with_last(manifest.detached, number, DETACHED_KEPT))
        kept = {*list(cuts)[-KEPT:], *manifest.spared()}
        cuts = {other: at for other, at in cuts.items() if other in kept}
        self._write(replace(manifest, cuts=cuts))
        return list(cuts)

    def confirm(self, number: int) -> None:
        """Take a cut as named by a checkpoint on disk. Written with the next cut: until then nothing is deleted."""
        if number not in self.manifest.cuts:
            raise self.unknown(number)
        self.manifest.confirmed = _with_last(self.manifest.confirmed, number, CONFIRMED_KEPT)

    def go_back(self, number: int) -> None:
        """Take a cut as the newest: what came after it did not happen. Written with the next cut."""
        cuts = self.manifest.cuts
        later = list(cuts)[list(cuts).index(number) + 1 :] if number else list(cuts)
        for other in set(later) - self.manifest.spared():
            del cuts[other]
        if number:
            cuts[number] = cuts.pop(number)

    def unknown(self, number: int) -> ValueError:
        """Say that there is no such cut."""
        there = ", ".join(map(str, self.manifest.cuts)) or "none at all"
        return ValueError(
            f"there is no cut {number} in {str(self.directory)!r}, only {there}. Was it made in another directory?"
        )

    def close(self) -> None:
        """Let another driver use the directory; a temporary one is deleted."""
        self._end()

    def _write(self, manifest: Manifest) -> None:
        """Only what is on disk is believed."""
        self._store.save(Checkpoint(manifest))
        self.manifest = manifest


def _with_last(numbers: Sequence[int], number: int, kept: int) -> list[int]:
    """So many numbers of cuts, this one as the last."""
    return [*(other for other in numbers if other != number), number][-kept:]


def _end(store: CheckpointStore, temporary: str) -> None:
    store.close()
    if temporary:
        shutil.rmtree(temporary, ignore_errors=True)
