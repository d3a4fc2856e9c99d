"""How workers keep their state: as a snapshot, and as a pickle inside one where it holds anyone's models."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamboost import snapshots
from streamboost.cluster.workers import SnapshotWorker, cut_path
from streamboost.errors import SnapshotError


@dataclass
class Pickled:
    """The pickle of what a snapshot cannot hold, under the same checksum."""

    data: NDArray[np.uint8]


class KeepingWorker(SnapshotWorker):
    """A worker whose whole state is one object, ``state``, of which a part may be anyone's.

    Loading a pickle runs what is in it: the directory of a crew should be as well kept as the program itself.
    """

    def save(self, directory: str, number: int) -> None:
        """Make the state of a cut durable."""
        try:
            super().save(directory, number)
        except SnapshotError:
            snapshots.save(Pickled(np.frombuffer(_pickle(self.state), np.uint8)), cut_path(directory, number))

    def load(self, directory: str, number: int) -> None:
        """Go back to a cut."""
        super().load(directory, number)
        if isinstance(self.state, Pickled):
            self.state = pickle.loads(self.state.data.tobytes())


def _pickle(state: Any) -> bytes:
    """The pickle of a state; functions made on the spot need cloudpickle."""
    pickler = import_module("cloudpickle" if find_spec("cloudpickle") else "pickle")
    try:
        data: bytes = pickler.dumps(state)
    except Exception as error:  # pickle fails in as many ways as there are things it cannot take
        raise SnapshotError(
            f"the learners of a worker can be neither saved nor pickled ({error}). "
            "Define functions and classes at the top of a module, or pip install cloudpickle."
        ) from error
    return data
