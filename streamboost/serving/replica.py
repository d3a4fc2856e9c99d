"""A replica: a server that only predicts, with the newest model that a learner elsewhere has left or gives away.

::

    learner's directory ── newest whole checkpoint ──┐
    learner's server ───── GET /frozen, if it is new ─┴──▶ checksum ──▶ frozen copy ──▶ Writer.published ──▶ predictions

The server's writer looks once a second and takes what is new: reading, checking and freezing are done beside the
predictions, which go over to the new copy between two of them. While the learner is away, or what it left is damaged,
the replica goes on with the model it has, and tells how old that is.
"""

from __future__ import annotations

import http.client
import math
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from streamboost.errors import SnapshotError
from streamboost.estimators.base import StreamEstimator
from streamboost.live import FrozenModel
from streamboost.persistence import snapshots
from streamboost.persistence.checkpoints import Checkpoint, checkpoint_paths
from streamboost.persistence.segments import SegmentStore

TIMEOUT = 10.0  # seconds for a word of the learner's server
LARGEST = 1_000_000_000  # bytes of a model over HTTP
PATH = "frozen"  # of the learner's server
AGE = "Model-Age"  # the header that tells it, in seconds
FAULTS = (OSError, ValueError, http.client.HTTPException)  # what a look at a learner may meet


class Found(NamedTuple):
    """A model of a learner, when it was made, and the name of its target if that is known."""

    model: Any
    time: float
    target: str | None = None


class Learner(Protocol):
    """Where a replica has its models from."""

    def newer(self) -> Found | None:
        """Return the newest model; None if that is the one returned last. Raises one of ``FAULTS`` if it is away."""


class LearnerDirectory:
    """The directory of a run or of a server that learns, or a saved model."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._known: tuple[Path, int] | None = None  # the file that is loaded, and when it was written

    def newer(self) -> Found | None:
        """Return the model of the newest whole checkpoint."""
        if self.path.is_file():
            paths = [self.path]
        else:
            home = self.path / "live"  # what a server learned is newer than the run that it began with
            paths = checkpoint_paths(home) if home.is_dir() else []
            paths = paths or checkpoint_paths(self.path)
        if not paths:
            raise FileNotFoundError(f"{str(self.path)!r} holds no checkpoint. Is it the directory of a learner?")
        damage: SnapshotError | None = None
        for path in reversed(paths):
            file = path, path.stat().st_mtime_ns
            if file == self._known:
                break
            try:
                found = snapshots.load_with(SegmentStore(path.parent), path)
            except SnapshotError as error:
                damage = damage or error
                continue
            self._known = file
            state = found.state if isinstance(found, Checkpoint) else {}
            model = found.model if isinstance(found, Checkpoint) else found
            return Found(_frozen(model, path.name), file[1] / 1e9, state.get("target"))
        if damage is not None:
            raise damage
        return None


class LearnerServer:
    """A server that learns, or another replica.

    Parameters
    ----------
    url : str
        Such as ``https://host:8000``.
    token : str, optional
        One with the scope ``predict`` there.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError(f"replica_of is {url!r}, expected a directory or an address such as http://host:8000.")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connect: Callable[[], http.client.HTTPConnection] = lambda: kind(
            parts.hostname or "", parts.port, timeout=TIMEOUT
        )
        self.path = f"{parts.path.rstrip('/')}/{PATH}"
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._known: str | None = None  # the ETag of the model returned last

    def newer(self) -> Found | None:
        """Ask for the newest model."""
        connection = self._connect()
        try:
            known = {} if self._known is None else {"If-None-Match": self._known}
            connection.request("GET", self.path, headers=self.headers | known)
            response = connection.getresponse()
            if response.status == HTTPStatus.NOT_MODIFIED:
                return None
            if response.status != HTTPStatus.OK:  # redirections too: a token is for one host
                raise OSError(f"the learner answered {response.status} {response.reason}")
            data = response.read(LARGEST + 1)
            if len(data) > LARGEST:
                raise OSError(f"the learner's model has more than {LARGEST:,} bytes")
            model = _frozen(snapshots.unpack(data), "the learner's model")
            age = float(response.headers.get(AGE, 0.0))
            self._known = response.headers.get("ETag")
            return Found(model, time.time() - (max(age, 0.0) if math.isfinite(age) else 0.0))
        finally:
            connection.close()


def _frozen(model: Any, where: str) -> Any:
    """Return a model without its memories; refuse what is no model that can predict."""
    if not isinstance(model, StreamEstimator):
        raise SnapshotError(f"{where} holds a {type(model).__name__}, expected an SGBRegressor or SGBClassifier.")
    if not hasattr(model, "committee_"):
        raise SnapshotError(f"{where} holds a model that has not learned any row yet.")
    return model if model.is_frozen else model.freeze()


class ReplicaModel(FrozenModel):
    """The newest model of a learner, where a live one is expected; only the server's writer changes it.

    Attributes
    ----------
    name : str
        What it follows.
    made : float
        When the model was made, in seconds since 1970.
    seen : float
        When the learner was last looked at without a fault.
    fault : str or None
        Why the last look failed.
    """

    def __init__(self, name: str, learner: Learner, target: str | None = None) -> None:
        found = learner.newer()
        assert found is not None  # the first time there is always one
        super().__init__(name, found.model, target or found.target)
        self.name, self.learner, self.made, self.seen = name, learner, found.time, time.time()
        self.fault: str | None = None

    @property
    def age(self) -> float:
        """Return how many seconds ago the model was made."""
        return max(time.time() - self.made, 0.0)

    def expire(self, now: float | None = None, *, limit: int | None = None) -> int:
        """Take a newer model if there is one, as this is what a writer calls every second; nothing has expired."""
        try:
            found = self.learner.newer()
            if found is not None:
                other = FrozenModel(self.directory, found.model)
                if other.task != self.task:
                    raise ValueError(f"the learner's model is one for {other.task} now, expected {self.task}.")
                self.model, self.rows, self.made = other.model, other.rows, found.time
            self.fault, self.seen = None, time.time()
        except FAULTS as error:
            self.fault = str(error) or type(error).__name__
        return 0


def open_replica(source: str, *, token: str | None = None, target: str | None = None) -> ReplicaModel:
    """Open a replica of a learner, which must be there at this moment.

    Parameters
    ----------
    source : str
        The directory of a learner, or the address of its server.
    token : str, optional
        For that server.
    target : str, optional
        The name of the target column, if the learner's files do not tell it.

    Examples
    --------
    >>> import tempfile
    >>> from streamboost import SGBRegressor
    >>> file = Path(tempfile.mkdtemp(), "prices.safetensors")
    >>> SGBRegressor().fit([[1.0], [2.0]], [3.0, 4.0]).save(file)
    >>> with open_replica(str(file)) as replica:
    ...     replica.rows, replica.age < 60
    (2, True)
    """
    is_address = "://" in source
    learner = LearnerServer(source, token) if is_address else LearnerDirectory(source)
    try:
        return ReplicaModel(source, learner, target)
    except FAULTS as error:
        raise ValueError(
            f"there is no model of {source!r} to begin with ({error}). Start the learner first."
        ) from error
