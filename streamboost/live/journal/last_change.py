"""The number of the last change of a journal, in a file of its own: what was cut off the journal's end is noticed.

SQLite takes a damaged write-ahead log to end where the damage begins, and says nothing. So after each transaction, and
before anybody is told of it, its number is written to a small file beside the journal, which is never synced: it may be
behind the journal after a power cut, and is not ahead of it unless something is lost.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from streamboost.errors import SnapshotError
from streamboost.live.journal.records import seal

logger = logging.getLogger(__name__)


class LastChange:
    """The numbers of a journal's last transaction and of its last entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def open(self, change: int, entry: int, journal: Path, *, is_certain: bool) -> None:
        """Compare what the journal says with what was noted; an error tells what is lost."""
        noted = self._read()
        if noted is not None and noted[0] > change:
            self._tell(noted[0] - change, (entry + 1, noted[1]), journal, is_certain)
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.note(change, entry)

    def note(self, change: int, entry: int) -> None:
        """Write numbers down."""
        if self._file is not None:
            text = f"{change:020} {entry:020} {seal(change, entry):010}\n"
            try:
                os.pwrite(self._file, text.encode(), 0)
            except OSError as error:  # what is written there is behind then, which is no lie
                logger.warning("%s could not be written (%s)", self.path.name, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> tuple[int, int] | None:
        try:
            change, entry, checksum = map(int, self.path.read_bytes().split())
        except FileNotFoundError:
            return None
        except ValueError:
            change = entry = checksum = 0
        if checksum != seal(change, entry):
            logger.warning("%s is damaged, so it is not known whether the journal beside it is whole.", self.path.name)
            return None
        return change, entry

    def _tell(self, n: int, entries: tuple[int, int], journal: Path, is_certain: bool) -> None:
        rows = f", and with them entries {entries[0]} to {entries[1]}" if entries[1] >= entries[0] else ""
        told = f"the last {n} acknowledged changes of {str(journal)!r} are lost{rows}: its write-ahead log is damaged"
        way_out = f"Bring both back from a copy; to go on without what is lost, delete {str(self.path)!r}."
        if is_certain:
            raise SnapshotError(f"{told}, or an older copy was put in its place. {way_out}")
        logger.error("%s, or the power failed while it was not durable. It goes on without them.", told)
