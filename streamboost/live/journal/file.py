"""A journal in its file: opened, checked, read, and changed in transactions."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamboost.errors import NewerFormat, SnapshotError
from streamboost.live.journal.records import Damaged, Entry, PackedRow, read_refusal, read_table, unsealed
from streamboost.live.journal.transactions import Transaction

APPLICATION = 0x5347424A  # "SGBJ", by which SQLite tells our files from others
VERSION = 2
BUSY_TIMEOUT = 10.0  # seconds that a tool which looks into the file may hold it
SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, rows BLOB NOT NULL, first TEXT,
                      refused TEXT, origin TEXT);
CREATE TABLE schemas (number INTEGER PRIMARY KEY, schema BLOB NOT NULL UNIQUE);
CREATE TABLE rows (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, time REAL NOT NULL, label TEXT,
                   schema INTEGER NOT NULL, row BLOB NOT NULL, first TEXT);
CREATE INDEX waiting ON rows (time, number) WHERE label IS NULL;
CREATE INDEX learned ON rows (time, number) WHERE label IS NOT NULL;
CREATE TABLE early (key TEXT PRIMARY KEY, time REAL NOT NULL, label TEXT NOT NULL, due INTEGER NOT NULL DEFAULT 0);
CREATE INDEX oldest ON early (time);
CREATE INDEX due ON early (due) WHERE due;
CREATE TABLE ids (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, verb TEXT NOT NULL,
                  answer TEXT NOT NULL);
"""
TABLES = {"about", "counts", "entries", "schemas", "rows", "early", "ids"}


class Journal:
    """A journal in a file, which is made if it is not there.

    If ``durable``, every transaction survives a power cut; a crash of the process it survives always. Up to ``limit``
    learned rows and early labels are kept, twice as many rows that wait, and ``ids`` ids of requests.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> journal = Journal(Path(tempfile.mkdtemp(), "journal.db"))
    >>> with journal.transaction() as changes:
    ...     changes.add_entry("learn", pa.table({"x": [1.0], "y": [2.0]})).number
    1
    >>> [entry.table.to_pylist() for entry in journal.entries(after=0)], journal.counts["entries"]
    ([[{'x': 1.0, 'y': 2.0}]], 1)
    >>> journal.close()
    """

    def __init__(self, path: str | Path, *, durable: bool = True, limit: int = 1_000_000, ids: int = 100_000) -> None:
        self.path = Path(path)
        self.limit, self.ids = limit, ids
        self.counts: Counter[str] = Counter()  # replaced as a whole after each transaction: any thread may look
        self._lock = threading.RLock()
        self._is_durable, self._is_uncertain = durable, False
        self._db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            with self._reading():
                self._open(durable)
        except (KeyError, TypeError) as error:
            self._db.close()
            raise self._damage(f"it does not hold what it should: {error!r}") from error
        except BaseException:
            self._db.close()
            raise

    def _open(self, durable: bool) -> None:
        application, version = self._one("PRAGMA application_id"), self._one("PRAGMA user_version")
        n_tables = self._one("SELECT count(*) FROM sqlite_master")
        if application != APPLICATION and n_tables:
            raise self._damage("it is a database of something else")
        if version > VERSION:
            raise NewerFormat(
                f"{str(self.path)!r} is a journal of format version {version}, and this streamboost reads versions up "
                f"to {VERSION}. Upgrade: pip install --upgrade streamboost"
            )
        if n_tables and version < VERSION:
            raise self._damage(f"it is of format version {version}, from before the first release")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("PRAGMA journal_size_limit = 67108864")  # of the file beside it, after a burst
        if not n_tables:
            self._create()
        found = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if missing := TABLES - found:
            raise self._damage(f"the table {min(missing)!r} is missing")
        if (report := self._one("PRAGMA quick_check(1)")) != "ok":
            raise self._damage(report)
        about = dict(self._db.execute("SELECT name, value FROM about"))
        self.name, self.rows_before, self.target = about["name"], int(about["rows_before"]), about["target"]
        self.counts = self._read_counts()

    def _create(self) -> None:
        """Make the tables, all or none."""
        self._db.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.split(";"):
            self._db.execute(statement)
        about = [("name", secrets.token_hex(8)), ("rows_before", "0"), ("target", "")]
        self._db.executemany("INSERT INTO about VALUES (?, ?)", about)
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _one(self, query: str) -> Any:
        """Return the only value of a query."""
        with self._reading():
            return self._db.execute(query).fetchone()[0]

    @property
    def last_number(self) -> int:
        """The number of the last entry ever written; 0 if there was none."""
        return int(self._one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'"))

    @property
    def first_number(self) -> int:
        """The number of the oldest entry that is still there; one more than the last if there is none."""
        return int(self._one("SELECT min(number) FROM entries") or self.last_number + 1)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written."""
        return self._one("SELECT count(*) FROM sqlite_sequence") == 0 and not self.counts

    def begin(self, rows: int, target: str) -> None:
        """Note how many rows the model had learned before its first entry, and what the target is called."""
        with self.transaction() as changes:
            about = [(str(rows), "rows_before"), (target, "target")]
            changes.db.executemany("UPDATE about SET value = ? WHERE name = ?", about)
        self.rows_before, self.target = rows, target

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Make changes that all come to be together, or none of them if there is an error."""
        with self._reading():
            self._db.execute("BEGIN IMMEDIATE")
            changes = Transaction(self._db, self.counts, self.limit, self.ids)
            try:
                yield changes
                changes.write_counts()
                self._commit()
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self.counts = self._read_counts()  # an interrupt may have come after all was done
                raise
            self.counts = self.counts + changes.counts  # a sum of Counters leaves out what is 0

    def _commit(self) -> None:
        """Bring a transaction to disk; if that fails, nobody knows what is there until the file was opened again."""
        try:
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._is_uncertain = True
            told = f"the journal {str(self.path)!r} could not be brought to disk ({error})"
            way_out = "See to the disk, then send the request again under the same id: it is taken once."
            raise OSError(f"{told}, and it is not known whether it holds the request. {way_out}") from error

    def _reopen(self) -> None:
        """Open the file again, after which it is known what it holds."""
        self._db.close()
        self._db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        self._is_uncertain = False
        try:
            self._open(self._is_durable)
        except BaseException:
            self._is_uncertain = True
            raise

    def find_id(self, id: str) -> tuple[str, Any] | None:
        """Return what a request with this id asked for, and its answer; None if there was none lately."""
        with self._reading():
            return Transaction(self._db, self.counts, self.limit, self.ids).find_id(id)

    def entries(self, after: int) -> Iterator[Entry]:
        """Read the entries after a number, one by one."""
        while True:
            with self._reading():
                query = "SELECT number, kind, rows, first, refused, origin FROM entries WHERE number > ?"
                found = self._db.execute(query + " ORDER BY number LIMIT 1", (after,)).fetchone()
                if found is None:
                    return
                after += 1
                number, kind, rows, first, refused, origin = found
                if number != after:
                    raise Damaged(f"entry {after} is missing")
                table = read_table(unsealed(rows, f"entry {number}"))
            first, origin = (None if text is None else json.loads(text) for text in (first, origin))
            yield Entry(number, kind, table, first, read_refusal(refused), origin)

    def put(self, rows: Sequence[PackedRow], id: str | None = None, fingerprint: str | None = None) -> None:
        """Let rows wait for their labels, unless a request with this id was answered before."""
        with self.transaction() as changes:
            answer = {} if fingerprint is None else {"fingerprint": fingerprint}
            if id is None or changes.add_id(id, "remember", answer):
                changes.put(rows)
            changes.drop_oldest(changes.n("waiting") - 2 * self.limit)

    # What goes wrong.

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Take the lock, and raise errors of SQLite in our words."""
        with self._lock:
            try:
                if self._is_uncertain:
                    self._reopen()
                yield
            except (sqlite3.Error, Damaged) as error:
                raise self._explain(error) from error

    def _explain(self, error: Exception) -> Exception:
        """Return an error of SQLite in our words."""
        if isinstance(error, sqlite3.ProgrammingError):
            return ValueError(f"the journal {str(self.path)!r} cannot be used ({error}). Open it again.")
        if isinstance(error, sqlite3.OperationalError):
            return OSError(
                f"the journal {str(self.path)!r} could not be read or written ({error}), so nothing was changed. See "
                "to room on the disk and to who else holds the file, then send the request again."
            )
        return self._damage(str(error))

    def _damage(self, what: str) -> SnapshotError:
        return SnapshotError(
            f"{str(self.path)!r} is no journal that can be read: {what}. Expected the file that was written beside the "
            "checkpoints. Bring it back from a copy. Without one, what was learned up to the newest checkpoint is not "
            "lost: begin in a new directory with its model."
        )

    def _read_counts(self) -> Counter[str]:
        return Counter({name: value for name, value in self._db.execute("SELECT name, value FROM counts") if value})
