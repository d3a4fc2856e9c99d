"""A journal in its file: opened, checked, read, and changed in transactions."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamboost.errors import NewerFormat, SnapshotError
from streamboost.live.journal.last_change import LastChange
from streamboost.live.journal.records import Damaged, Entry, PackedRow, read_refusal, read_table, seal, unsealed
from streamboost.live.journal.transactions import Transaction
from streamboost.live.journal.upgrade import upgrade

APPLICATION = 0x5347424A  # "SGBJ", by which SQLite tells our files from others
VERSION = 3
BUSY_TIMEOUT = 10.0  # seconds that a tool which looks into the file may hold it
SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, rows BLOB NOT NULL, first TEXT, refused TEXT,
                      origin TEXT, seal INTEGER NOT NULL);
CREATE TABLE schemas (number INTEGER PRIMARY KEY, schema BLOB NOT NULL UNIQUE, seal INTEGER NOT NULL);
CREATE TABLE rows (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, time REAL NOT NULL, label TEXT,
                   schema INTEGER NOT NULL, row BLOB NOT NULL, first TEXT, seal INTEGER NOT NULL);
CREATE INDEX waiting ON rows (time, number) WHERE label IS NULL;
CREATE INDEX learned ON rows (time, number) WHERE label IS NOT NULL;
CREATE TABLE ripe (place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL, key TEXT NOT NULL,
                   time REAL NOT NULL, label TEXT, schema INTEGER NOT NULL, row BLOB NOT NULL, first TEXT,
                   why TEXT NOT NULL, since REAL NOT NULL, seal INTEGER NOT NULL);
CREATE TABLE early (key TEXT PRIMARY KEY, time REAL NOT NULL, label TEXT NOT NULL, seal INTEGER NOT NULL);
CREATE INDEX oldest ON early (time);
CREATE TABLE ids (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, verb TEXT NOT NULL,
                  answer TEXT NOT NULL, seal INTEGER NOT NULL);
"""
SEALED = {  # columns of each table that its seal covers
    "about": "name, value",
    "counts": "name, value",
    "entries": "number, kind, rows, first, refused, origin",
    "schemas": "schema",
    "rows": "key, time, label, schema, row, first",
    "ripe": "number, key, time, label, schema, row, first, why, since",
    "early": "key, time, label",
    "ids": "id, verb, answer",
}
COUNTED = {  # how many there are, for those that are counted
    "entries": "SELECT count(*) FROM entries",
    "waiting": "SELECT count(*) FROM rows WHERE label IS NULL",
    "learned": "SELECT count(*) FROM rows WHERE label IS NOT NULL",
    "ripe": "SELECT count(*) FROM ripe",
    "early": "SELECT count(*) FROM early",
}


class Journal:
    """A journal in a file, which is made if it is not there.

    If ``durable``, every transaction survives a power cut; a crash of the process it survives always. Up to ``limit``
    rows wait, as many are ripe or learned, as many labels are early; and ``ids`` ids of requests are kept.

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
        self._last = LastChange(self.path.with_name(self.path.name + "-last"))
        self._db = _connect(self.path)
        try:
            with self._reading():
                self._open(durable)
        except SnapshotError:
            self._leave()
            raise
        except (KeyError, TypeError, ValueError) as error:
            self._leave()
            raise self._damage(f"it does not hold what it should: {error!r}") from error
        except BaseException:
            self._leave()
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
        if n_tables and version < 2:
            raise self._damage(f"it is of format version {version}, from before the first release")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("PRAGMA journal_size_limit = 67108864")  # of the file beside it, after a burst
        if not n_tables:
            self._create()
        elif version < VERSION:
            upgrade(self._db, SCHEMA, VERSION)
        self._check()
        about = dict(self._db.execute("SELECT name, value FROM about"))
        self.name, self.rows_before, self.target = about["name"], int(about["rows_before"]), about["target"]
        self.counts = self._read_counts()
        self._last.open(self.counts["changes"], self.counts["numbered"], self.path, is_certain=durable)

    def _check(self) -> None:
        """Look whether everything is what was written: the file, each line of each table, and how many there are."""
        if self._tables(self._db) != self._tables_as_made():
            raise Damaged("its tables are not those that were made")
        if (report := self._one("PRAGMA integrity_check(1)")) != "ok":
            raise Damaged(report)
        for table, columns in SEALED.items():
            changed = f"SELECT {columns.split(',')[0]} FROM {table} WHERE seal != seal({columns}) LIMIT 1"
            if (found := self._db.execute(changed).fetchone()) is not None:
                raise Damaged(f"the seal of {found[0]!r} in the table {table!r} does not match")
        counts = self._read_counts()
        for name, query in COUNTED.items():
            if (n := self._one(query)) != counts[name]:
                raise Damaged(f"it holds {n} of what is {name}, expected {counts[name]}")
        last_id = self._one("SELECT coalesce(max(number), 0) FROM ids")
        if self._one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'ids'") != last_id:
            raise Damaged("the number of the last id is not that of the last request")
        first, last = self._db.execute("SELECT min(number), max(number) FROM entries").fetchone()
        if first is not None and (last != counts["numbered"] or last - first + 1 != counts["entries"]):
            raise Damaged(f"entries between {first} and {counts['numbered']} are missing")

    @staticmethod
    def _tables(db: sqlite3.Connection) -> set[Any]:
        query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"
        return set(db.execute(query))

    def _tables_as_made(self) -> set[Any]:
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            db.executescript(SCHEMA)
            return self._tables(db)

    def _create(self) -> None:
        """Make the tables, all or none."""
        self._db.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.split(";"):
            self._db.execute(statement)
        about = [("name", secrets.token_hex(8)), ("rows_before", "0"), ("target", "")]
        self._db.executemany("INSERT INTO about VALUES (?1, ?2, seal(?1, ?2))", about)
        self._db.execute(f"PRAGMA application_id = {APPLICATION}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
            self._last.close()

    def _leave(self) -> None:
        """Close a file that could not be opened, and leave it as it is, damage and all."""
        option = getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE", None)  # from Python 3.12 on
        if option is not None:
            with contextlib.suppress(sqlite3.Error):
                getattr(self._db, "setconfig")(option, True)  # noqa: B009 - not there before
        self._db.close()
        self._last.close()

    def _one(self, query: str) -> Any:
        """Return the only value of a query."""
        with self._reading():
            return self._db.execute(query).fetchone()[0]

    @property
    def last_number(self) -> int:
        """The number of the last entry ever written; 0 if there was none."""
        return self.counts["numbered"]

    @property
    def first_number(self) -> int:
        """The number of the oldest entry that is still there; one more than the last if there is none."""
        return int(self._one("SELECT min(number) FROM entries") or self.last_number + 1)

    @property
    def latest_time(self) -> float | None:
        """The latest time in it, of rows or labels; None if there is none."""
        queries = ("rows WHERE label IS NULL", "rows WHERE label IS NOT NULL", "early", "ripe")
        times = [self._one(f"SELECT max(time) FROM {query}") for query in queries]
        return max((time for time in times if time is not None), default=None)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written."""
        return not self.counts.keys() - {"changes"}

    def begin(self, rows: int, target: str) -> None:
        """Note how many rows the model had learned before its first entry, and what the target is called."""
        with self.transaction() as changes:
            about = [(str(rows), "rows_before"), (target, "target")]
            changes.db.executemany("UPDATE about SET value = ?1, seal = seal(?2, ?1) WHERE name = ?2", about)
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
            self._last.note(self.counts["changes"], self.counts["numbered"])

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
        self._db = _connect(self.path)
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
                query = f"SELECT {SEALED['entries']} FROM entries WHERE number > ?"
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

    def put(
        self,
        rows: Sequence[PackedRow],
        id: str | None = None,
        fingerprint: str | None = None,
        *,
        within: float = math.inf,
        expire_after: float | None = None,
    ) -> None:
        """Let rows wait for their labels, unless a request with this id was answered before."""
        with self.transaction() as changes:
            answer = {} if fingerprint is None else {"fingerprint": fingerprint}
            if id is None or changes.add_id(id, "remember", answer):
                changes.put(rows, within, expire_after)
            changes.drop_ripe(changes.n("ripe") - self.limit)

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
            "checkpoints. Bring it back from a copy. Without one, rows and labels after the newest checkpoint are "
            "lost, and what was learned up to it is not: begin in a new directory with its model, and send them again."
        )

    def _read_counts(self) -> Counter[str]:
        return Counter({name: value for name, value in self._db.execute("SELECT name, value FROM counts") if value})


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file, with the function that seals what stands in it."""
    db = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    db.create_function("seal", -1, seal, deterministic=True)
    return db
