"""Workers for tests of crews: the whole state is one object, saved as one snapshot per cut."""

from pathlib import Path

from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots


def cut_path(directory, number):
    return Path(directory) / f"cut-{number:010d}.safetensors"


class SnapshotWorker:
    state = None

    def settle(self, directory):
        self.directory = Path(directory)
        assert self.directory.is_dir()

    def save(self, number):
        snapshots.save(self.state, cut_path(self.directory, number))

    def load(self, number):
        path = cut_path(self.directory, number)
        if not path.exists():
            raise SnapshotError(f"{str(path)!r} is missing, which cut {number} needs. Go back to another cut.")
        self.state = snapshots.load(path)

    def drop(self, kept):
        for path in self.directory.glob("cut-*"):
            if int(path.name[4:14]) not in kept:
                path.unlink(missing_ok=True)
