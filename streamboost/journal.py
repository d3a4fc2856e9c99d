"""The journal of a live model: rows to be learned, rows that wait for their labels, labels that wait for their rows.

One SQLite file in WAL mode. What belongs together is written in one transaction: a row leaves those that wait in the
moment in which it enters the entries to be learned. Entries are numbered 1, 2, 3, ... for ever; whoever learns them
remembers the number of the last one, learns the later ones again after a crash, and has the older ones deleted.

::

    entries    rows with targets, to be learned in this order
    rows       by key: those that wait for a label, and those learned a while ago, should the label be corrected
    early      labels by key that came before their row
    ids        of requests that were answered, with the answers
    counts     how many there are of everything, so that nobody has to count

The journal knows no model. All threads share one connection, and one lock: whoever has a :class:`Transaction` is alone.
Everything that is read again after a crash carries a checksum.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import threading
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from streamboost.errors import NewerFormat, SnapshotError

APPLICATION = 0x5347424A  # "SGBJ", by which SQLite tells our files from others
VERSION = 2
LARGEST = 500_000_000  # bytes of an entry; SQLite itself takes twice as many
PATIENCE = 10.0  # seconds that a tool which looks into the file may hold it
SHORT = 500  # letters of an answer that is kept as it is; longer ones are compressed
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


class Entry(NamedTuple):
    """Rows to be learned."""

    number: int
    kind: str
    table: Any  # pyarrow.Table, whose last column is the target
    first: list[Any] | None  # what was said of each row when it was first asked about
    refused: str | None  # why the model did not take it
    origin: Any = None  # where the rows came from, as whoever wrote them says


class KeyedRow(NamedTuple):
    """A row that waits for its label, or one that was learned with it."""

    key: str
    time: float  # when it came, or was learned
    label: Any  # None: it waits
    batch: Any  # pyarrow.RecordBatch of one row
    first: Any


class EarlyLabel(NamedTuple):
    """A label that came before its row."""

    time: float
    label: Any


class PackedRow(NamedTuple):
    """A row on its way in."""

    key: str
    time: float
    schema: bytes
    row: bytes
    first: str | None


class Journal:
    """A journal in a file, which is made if it is not there.

    Parameters
    ----------
    path : path
    durable : bool
        Whether every transaction is brought to disk before it is over, and so survives a power cut; a crash of the
        process it survives always.
    limit : int
        How many rows wait at most, how many learned ones are kept, and how many early labels. Whoever learns has to
        see to the first; rows in excess of twice as many are dropped here.
    ids : int
        How many ids of requests are kept.

    Examples
    --------
    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp(), "journal.db"))
    >>> with journal.transaction() as changes:
    ...     changes.add_entry("learn", pa.table({"x": [1.0], "y": [2.0]}))
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
        self._queue: deque[_Parcel] = deque()
        self._db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            with self._explained():
                self._open(durable)
        except (KeyError, TypeError) as error:
            self._db.close()
            raise self._damage(f"it does not hold what it should: {error!r}") from error
        except BaseException:
            self._db.close()
            raise

    def _open(self, durable: bool) -> None:
        application, version, n_tables = (
            self._db.execute(f"SELECT * FROM {source}").fetchone()[0]
            for source in ("pragma_application_id", "pragma_user_version", "(SELECT count(*) FROM sqlite_master)")
        )
        if application != APPLICATION and n_tables:
            raise self._damage("it is a database of something else")
        if version > VERSION:
            raise NewerFormat(
                f"{str(self.path)!r} is a journal of format version {version}, and this streamboost reads versions up "
                f"to {VERSION}. Upgrade: pip install --upgrade streamboost"
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("PRAGMA journal_size_limit = 67108864")  # of the file beside it, after a burst
        if not n_tables:
            self._create()
        found = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if missing := TABLES - found:
            raise self._damage(f"the table {min(missing)!r} is missing")
        report = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if report != "ok":
            raise self._damage(report)
        if n_tables and version < VERSION:
            self._upgrade()
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

    def _upgrade(self) -> None:
        """Version 1 did not say where entries came from."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("ALTER TABLE entries ADD COLUMN origin TEXT")
        self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @property
    def last_number(self) -> int:
        """The number of the last entry ever written; 0 if there was none."""
        with self._lock, self._explained():
            found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
            return int(found[0]) if found else 0

    @property
    def first_number(self) -> int:
        """The number of the oldest entry that is still there; one more than the last if there is none."""
        with self._lock, self._explained():
            found = self._db.execute("SELECT min(number) FROM entries").fetchone()[0]
            return self.last_number + 1 if found is None else int(found)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written."""
        with self._lock, self._explained():
            return self._db.execute("SELECT count(*) FROM sqlite_sequence").fetchone()[0] == 0 and not self.counts

    def begin(self, rows: int, target: str) -> None:
        """Note how many rows the model had learned before its first entry, and what the target is called."""
        with self.transaction() as changes:
            about = [(str(rows), "rows_before"), (target, "target")]
            changes.db.executemany("UPDATE about SET value = ? WHERE name = ?", about)
        self.rows_before, self.target = rows, target

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All changes made in here come to be together, or none does if there is an error."""
        with self._lock, self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            changes = Transaction(self)
            try:
                yield changes
                changes.write_counts()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self.counts = self._read_counts()  # an interrupt may have come after all was done
                raise
            self.counts = self.counts + changes.counts  # a sum of Counters leaves out what is 0

    def find_id(self, id: str) -> tuple[str, Any] | None:
        """What a request with this id asked for, and what was answered; None if there was none lately."""
        with self._lock, self._explained():
            found = self._db.execute("SELECT verb, answer FROM ids WHERE id = ?", (id,)).fetchone()
            return None if found is None else (found[0], json.loads(_unfolded(found[1])))

    def entries(self, after: int) -> Iterator[Entry]:
        """The entries after a number, one by one."""
        while True:
            with self._lock, self._explained():
                query = "SELECT number, kind, rows, first, refused, origin FROM entries WHERE number > ?"
                found = self._db.execute(query + " ORDER BY number LIMIT 1", (after,)).fetchone()
            if found is None:
                return
            number, kind, rows, *texts = found
            if number != after + 1:
                raise self._damage(f"entry {after + 1} is missing")
            table = read_table(self._unsealed(rows, f"entry {number}"))
            first, refused, origin = texts
            first, origin = (None if text is None else json.loads(text) for text in (first, origin))
            yield Entry(number, kind, table, first, refused, origin)
            after = number

    def put(self, rows: Sequence[PackedRow], id: str | None = None) -> None:
        """Let rows wait for their labels, unless a request with this id was answered before.

        One commit serves all threads that come while another is under way.
        """
        parcel = _Parcel(rows, id)
        self._queue.append(parcel)
        with self._lock:
            if parcel.is_waiting:  # the first of those who waited writes for all of them
                self._put_all()
        if parcel.failure is not None:
            raise OSError(parcel.failure)

    def _put_all(self) -> None:
        parcels = [self._queue.popleft() for _ in range(len(self._queue))]
        failure: str | None = "the rows could not be written, as another thread was interrupted. Send them again."
        try:
            with self.transaction() as changes:
                for parcel in parcels:
                    if parcel.id is None or changes.add_id(parcel.id, "remember", {}):
                        changes.put(parcel.rows)
                changes.drop_oldest(changes.n("waiting") - 2 * self.limit)
            failure = None
        except OSError as error:
            failure = str(error)
        finally:
            for parcel in parcels:
                parcel.is_waiting, parcel.failure = False, failure

    # What goes wrong.

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in our words what SQLite complains of."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise ValueError(f"the journal {str(self.path)!r} cannot be used ({error}). Open it again.") from error
        except sqlite3.OperationalError as error:
            raise OSError(
                f"the journal {str(self.path)!r} could not be read or written ({error}), so nothing was changed. See "
                "to room on the disk and to who else holds the file, then send the request again."
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damage(str(error)) from error

    def _damage(self, what: str) -> SnapshotError:
        return SnapshotError(
            f"{str(self.path)!r} is no journal that can be read: {what}. Expected the file that was written beside the "
            "checkpoints. Bring it back from a copy. Without one, what was learned up to the newest checkpoint is not "
            "lost: begin in a new directory with its model."
        )

    def _unsealed(self, data: bytes, what: str) -> bytes:
        if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
            raise self._damage(f"the checksum of {what} does not match")
        return data[4:]

    def _read_counts(self) -> Counter[str]:
        return Counter({name: value for name, value in self._db.execute("SELECT name, value FROM counts") if value})


class _Parcel:
    """Rows on their way in, of one thread."""

    def __init__(self, rows: Sequence[PackedRow], id: str | None) -> None:
        self.rows, self.id = rows, id
        self.is_waiting = True
        self.failure: str | None = None


class Transaction:
    """What can be changed in a journal; made by :meth:`Journal.transaction`.

    Counts are those of ``waiting``, ``learned`` (and kept), ``early``, ``due`` (early labels whose row has come),
    ``entries``, and whatever else the caller counts.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.db = journal._db
        self.counts: Counter[str] = Counter()  # what is added to each

    def n(self, name: str) -> int:
        """How many there are."""
        return self.journal.counts[name] + self.counts[name]

    def count(self, **changes: int) -> None:
        """Add to counts."""
        self.counts.update(changes)

    def write_counts(self) -> None:
        """Write down what was counted."""
        upsert = "INSERT INTO counts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"
        self.db.executemany(upsert, [(name, change) for name, change in self.counts.items() if change])

    # Entries and ids.

    def add_entry(self, kind: str, table: Any, first: list[Any] | None = None, origin: Any = None) -> int:
        """Add rows to be learned; return the number of the entry."""
        data = _sealed(table_bytes(table))
        if len(data) > LARGEST:
            raise ValueError(
                f"the request has {len(data):,} bytes, expected at most {LARGEST:,}. "
                f"Send its {table.num_rows:,} rows in several requests."
            )
        texts = (None if value is None else json.dumps(value) for value in (first, origin))
        self.count(entries=1)
        insert = "INSERT INTO entries (kind, rows, first, origin) VALUES (?, ?, ?, ?)"
        return int(self.db.execute(insert, (kind, data, *texts)).lastrowid or 0)

    def refuse(self, number: int, reason: str) -> None:
        """Note that an entry cannot be learned."""
        self.db.execute("UPDATE entries SET refused = ? WHERE number = ?", (reason, number))

    def trim(self, number: int) -> None:
        """Delete entries up to a number, and schemas that no row has."""
        self.count(entries=-self.db.execute("DELETE FROM entries WHERE number <= ?", (number,)).rowcount)
        self.db.execute("DELETE FROM schemas WHERE number NOT IN (SELECT schema FROM rows)")

    def add_id(self, id: str, verb: str, answer: Mapping[str, Any]) -> bool:
        """Keep what was answered to a request, and forget the oldest; return False if it was answered before."""
        insert = "INSERT INTO ids (id, verb, answer) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
        cursor = self.db.execute(insert, (id, verb, _folded(json.dumps(answer))))
        if cursor.rowcount:
            self.db.execute("DELETE FROM ids WHERE number <= ?", ((cursor.lastrowid or 0) - self.journal.ids,))
        return bool(cursor.rowcount)

    def change_answer(self, id: str, answer: Mapping[str, Any]) -> None:
        """Keep another answer to a request, if it is one of those that are remembered."""
        self.db.execute("UPDATE ids SET answer = ? WHERE id = ?", (_folded(json.dumps(answer)), id))

    # Rows that wait, and rows that were learned.

    def put(self, rows: Iterable[PackedRow]) -> None:
        """Let rows wait for their labels, in place of earlier ones of the same key."""
        numbers: dict[bytes, int] = {}
        for row in rows:
            if row.schema not in numbers:
                numbers[row.schema] = self._schema_number(row.schema)
            self.remove([row.key])
            values = (row.key, row.time, numbers[row.schema], _sealed(row.row), row.first)
            self.db.execute("INSERT INTO rows (key, time, schema, row, first) VALUES (?, ?, ?, ?, ?)", values)
            self.count(waiting=1)
            if self.n("early"):
                self.count(
                    due=self.db.execute("UPDATE early SET due = 1 WHERE key = ? AND NOT due", (row.key,)).rowcount
                )

    def _schema_number(self, schema: bytes) -> int:
        found = self.db.execute("SELECT number FROM schemas WHERE schema = ?", (schema,)).fetchone()
        if found:
            return int(found[0])
        return int(self.db.execute("INSERT INTO schemas (schema) VALUES (?)", (schema,)).lastrowid or 0)

    def find(self, keys: Iterable[str]) -> dict[str, KeyedRow]:
        """The rows of those keys that are known."""
        query = f"{ROWS} WHERE key = ?"
        found = (self.db.execute(query, (key,)).fetchone() for key in keys)
        return {row.key: row for row in self._read_rows(values for values in found if values)}

    def oldest(self, n: int, until: float | None = None) -> list[KeyedRow]:
        """Up to n rows that have waited longest; only those that came by a certain time, if one is given.

        Rows whose label is there, so that they are about to be learned with it, do not count as waiting.
        """
        query = f"{ROWS} WHERE label IS NULL AND time <= ? {self._without_label} ORDER BY time, rows.number LIMIT ?"
        return self._read_rows(self.db.execute(query, (float("inf") if until is None else until, n)))

    @property
    def _without_label(self) -> str:
        """The condition that a row has no early label; most of the time there is nothing to look up."""
        return "AND key NOT IN (SELECT key FROM early WHERE due)" if self.n("due") else ""

    def _read_rows(self, found: Iterable[Any]) -> list[KeyedRow]:
        schemas: dict[bytes, Any] = {}
        rows = []
        for key, time, label, schema, row, first in found:
            if schema not in schemas:
                schemas[schema] = pa.ipc.read_schema(pa.py_buffer(schema))
            data = self.journal._unsealed(row, f"the row of key {key!r}")
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), schemas[schema])
            label, first = (None if text is None else json.loads(text) for text in (label, first))
            rows.append(KeyedRow(key, time, label, batch, first))
        return rows

    def set_labels(self, labels: Mapping[str, Any], time: float) -> None:
        """Note that rows are learned: those that waited, at this time; others keep theirs. Early labels are used up."""
        values = [(json.dumps(label), time, key) for key, label in labels.items()]
        update = "UPDATE rows SET label = ?, time = ? WHERE key = ? AND label IS NULL"
        waited = self.db.executemany(update, values).rowcount
        self.count(waiting=-waited, learned=waited)
        if waited < len(values):  # those that waited have their label by now: it does them no harm
            self.db.executemany("UPDATE rows SET label = ? WHERE key = ?", [(text, key) for text, _, key in values])
        self.remove_early(labels)
        surplus = self.n("learned") - self.journal.limit
        if surplus > 0:
            self._delete_learned("ORDER BY time, number LIMIT ?", surplus)

    def take_back(self, labels: Mapping[str, Any]) -> None:
        """Undo :meth:`set_labels`: a row has the earlier label again, or goes if that is None.

        A row that has come anew under the same key stays as it is.
        """
        for key, label in labels.items():
            if label is None:
                gone = self.db.execute("DELETE FROM rows WHERE key = ? AND label IS NOT NULL", (key,)).rowcount
                self.count(learned=-gone)
            else:
                update = "UPDATE rows SET label = ? WHERE key = ? AND label IS NOT NULL"
                self.db.execute(update, (json.dumps(label), key))

    def remove(self, keys: Iterable[str]) -> None:
        """Forget rows."""
        for key in keys:
            found = self.db.execute("DELETE FROM rows WHERE key = ? RETURNING label IS NULL", (key,)).fetchone()
            if found:
                self.count(**{"waiting" if found[0] else "learned": -1})

    def drop_oldest(self, n: int) -> None:
        """Forget rows that have waited longest, if n is above 0; not those whose label is there."""
        if n > 0:
            query = f"SELECT number FROM rows WHERE label IS NULL {self._without_label} ORDER BY time, number LIMIT ?"
            n = self.db.execute(f"DELETE FROM rows WHERE number IN ({query})", (n,)).rowcount
            self.count(waiting=-n, dropped=n)

    def forget(self, before: float) -> None:
        """Forget learned rows and early labels from before a time; not labels whose row has come."""
        self._delete_learned("AND time < ?", before)
        self._delete_early("WHERE time < ? AND NOT due", before)

    def _delete_learned(self, which: str, value: float) -> None:
        query = f"SELECT number FROM rows WHERE label IS NOT NULL {which}"
        self.count(learned=-self.db.execute(f"DELETE FROM rows WHERE number IN ({query})", (value,)).rowcount)

    # Labels that came before their rows.

    def add_early(self, labels: Mapping[str, Any], time: float) -> None:
        """Keep labels until their rows come; the oldest go if there are too many, but not those whose row has come."""
        self.remove_early(labels)
        values = [(key, time, json.dumps(label)) for key, label in labels.items()]
        self.db.executemany("INSERT INTO early (key, time, label) VALUES (?, ?, ?)", values)
        self.count(early=len(values))
        surplus = self.n("early") - self.journal.limit
        if surplus > 0:
            self._delete_early("WHERE NOT due ORDER BY time, rowid LIMIT ?", surplus)

    def early_labels(self) -> list[Any]:
        """The different labels that wait for their rows."""
        return [json.loads(label) for (label,) in self.db.execute("SELECT DISTINCT label FROM early")]

    def due(self, n: int) -> dict[str, EarlyLabel]:
        """Up to n early labels whose rows have come, in the order of the rows."""
        query = (
            "SELECT key, early.time, early.label FROM early JOIN rows USING (key) WHERE due AND rows.label IS NULL "
            "ORDER BY rows.number LIMIT ?"
        )
        found = {key: EarlyLabel(time, json.loads(label)) for key, time, label in self.db.execute(query, (n,))}
        if not found:  # their rows have gone again
            self.count(due=-self.db.execute("UPDATE early SET due = 0 WHERE due").rowcount)
        return found

    def remove_early(self, keys: Iterable[str]) -> None:
        """Forget early labels."""
        if self.n("early"):
            for key in keys:
                self._delete_early("WHERE key = ?", key)

    def _delete_early(self, which: str, value: float | str) -> None:
        query = f"DELETE FROM early WHERE rowid IN (SELECT rowid FROM early {which}) RETURNING due"
        gone = [due for (due,) in self.db.execute(query, (value,))]
        self.count(early=-len(gone), due=-sum(gone))


ROWS = "SELECT key, time, label, schemas.schema, row, first FROM rows JOIN schemas ON schemas.number = rows.schema"


# Rows and answers as bytes.


def _sealed(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little") + data


def _folded(text: str) -> str | bytes:
    return text if len(text) <= SHORT else zlib.compress(text.encode())


def _unfolded(kept: str | bytes) -> str:
    return kept if isinstance(kept, str) else zlib.decompress(kept).decode()


def table_bytes(table: Any) -> bytes:
    """A table in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_table(data: bytes) -> Any:
    """Undo :func:`table_bytes`."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
