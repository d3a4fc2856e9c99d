"""Keys that move to other workers, when there are more or fewer of them than a cut was made with.

Crews of different sizes keep their keys in different files, so the old ones stay as they are until no cut needs them:
if anything goes wrong on the way, the cut is still whole, and can be attached again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamboost.cluster.crew import Crew, Cut
from streamboost.cluster.hashing import workers_of
from streamboost.cluster.key_shard import store_path
from streamboost.cluster.key_store import KeyStore
from streamboost.errors import SnapshotError

MOVED_AT_ONCE = 256  # keys


def check(cut: Cut, crew: Crew) -> None:
    """Refuse a cut that is not all there, before anything is changed."""
    if cut.mark != crew.mark or cut.number not in crew.cuts:
        raise ValueError(
            f"cut {cut.number} was made in {cut.directory!r}, and {str(crew.directory)!r} has no such cut. "
            "Name the directory it was made in."
        )
    for path in _files(cut, crew):
        if not path.exists():
            raise SnapshotError(f"{str(path)!r} is gone, but cut {cut.number} needs it. Bring it back from a copy.")


def rehash(cut: Cut, crew: Crew) -> None:
    """Bring every key of a cut to the worker that it has now."""
    crew.confirm(cut)
    crew.load(0)
    for path in _files(cut, crew):
        store = KeyStore(path)
        try:
            store.go_back(cut.number)
            _move_in(store, crew)
        finally:
            store.close()
    crew.cut()


def clean_up(crew: Crew) -> None:
    """Delete the files of crews of other sizes, once no cut of theirs is kept."""
    sizes = {len(done) for done in crew._book.manifest.cuts.values()}
    needed = {store_path(Path(), size).name for size in sizes}
    for path in crew.directory.glob(f"worker-*/{store_path(Path(), '*').name}"):
        if path.name not in needed:
            for file in path.parent.glob(f"{path.name}*"):
                file.unlink(missing_ok=True)


def _files(cut: Cut, crew: Crew) -> list[Path]:
    return [store_path(crew.folder(worker), cut.n_workers) for worker in range(cut.n_workers)]


def _move_in(store: KeyStore, crew: Crew) -> None:
    tokens = store.keys()
    workers = workers_of(tokens, crew.n_workers)
    for worker in np.unique(workers).tolist():
        own = [token for token, home in zip(tokens, workers.tolist(), strict=True) if home == worker]
        for start in range(0, len(own), MOVED_AT_ONCE):
            models = [packed for token in own[start : start + MOVED_AT_ONCE] if (packed := store.get(token))]
            crew.result(crew.call(worker, "adopt", *map(list, zip(*models, strict=True))))
