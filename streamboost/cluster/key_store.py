"""The models of cold keys in one file: SQLite, in layers, so that a worker can go back to a cut.

What changed between one cut and the next is a layer, and every layer stands upon another::

    cut 1 ── layer 1   all keys so far
    cut 2 ── layer 2   the keys that changed since
             layer 3   the keys that changed since and had to make room: no cut yet

What a key's model is, the topmost layer that knows the key says. Going back to cut 1 is to stand upon layer 1 again,
and deletes nothing that another cut needs. A cut that is no longer kept gives its layer to the one above it, at the
cost of the smaller of the two. Between cuts nothing has to be durable; a cut is, when :meth:`KeyStore.cut` returns.

Every row carries a checksum of its key, its count and its bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamboost.errors import SnapshotError

FORMAT = 1
PATIENCE = 60.0  # seconds for a process that is being ended to let go of the file
CACHE_KB = 8192
SCHEMA = """
CREATE TABLE layers (layer INTEGER PRIMARY KEY AUTOINCREMENT, below INTEGER);
CREATE TABLE cuts (cut INTEGER PRIMARY KEY, layer INTEGER NOT NULL, facts TEXT NOT NULL);
CREATE TABLE states (id INTEGER PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE models (layer INTEGER, key BLOB, n_rows INTEGER, digest BLOB, state INTEGER);
CREATE UNIQUE INDEX by_key ON models (key, layer);
CREATE INDEX by_layer ON models (layer);
CREATE TRIGGER gone AFTER DELETE ON models BEGIN DELETE FROM states WHERE id = OLD.state; END;
"""  # states apart from the rest: a model that changes its layer is not written again
_open_stores: weakref.WeakValueDictionary[Path, KeyStore] = weakref.WeakValueDictionary()  # of this process


class Packed(NamedTuple):
    """A key's model as bytes; None if the key was forgotten."""

    key: bytes
    n_rows: int
    state: bytes | None

    def digest(self) -> bytes:
        """What tells whether a row is as it was written."""
        head = b"%d:%d:%d:" % (len(self.key), self.n_rows, -1 if self.state is None else len(self.state))
        return hashlib.blake2b(head + self.key + (self.state or b""), digest_size=16).digest()


class KeyStore:
    """Models by key, in a file that one process has for itself, made if it is not there.

    Examples
    --------
    >>> import tempfile
    >>> store = KeyStore(f"{tempfile.mkdtemp()}/keys.sqlite")
    >>> store.put([Packed(b"sBonn", 10, b"model of 10 rows")])
    >>> store.cut(1, {})
    >>> store.put([Packed(b"sBonn", 20, b"model of 20 rows")])
    >>> store.get(b"sBonn").n_rows
    20
    >>> store.go_back(1)
    {}
    >>> store.get(b"sBonn").n_rows
    10
    >>> store.close()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        given_up = _open_stores.pop(self.path, None)
        if given_up is not None:  # by a worker that is gone: an error's traceback may hold it for long
            given_up.close()
        self._is_writing = False
        self._chain: list[int] = []  # the layers that are stood upon, the lowest first
        with self._explaining():
            self._db = self._connect()
            self._end = weakref.finalize(self, self._db.close)
            _open_stores[self.path] = self
            self._sweep()
            self._stand_on(None)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (
                "locking_mode = EXCLUSIVE",  # two writers would never be noticed otherwise
                "journal_mode = WAL",
                "synchronous = NORMAL",
                f"cache_size = -{CACHE_KB}",
                "recursive_triggers = ON",  # also where a row is replaced, its state goes
            ):
                db.execute(f"PRAGMA {pragma}").fetchall()
            db.execute("BEGIN EXCLUSIVE")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT:
                raise SnapshotError(
                    f"{str(self.path)!r} is of format {version}, and this streamboost reads formats up to {FORMAT}. "
                    "Upgrade: pip install --upgrade streamboost"
                )
            if version == 0:
                for statement in SCHEMA.strip().split("\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {FORMAT}")
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db

    # Reading and writing the present.

    def get(self, key: bytes) -> Packed | None:
        """What is known of a key; None if there is nothing, or it was forgotten."""
        marks = ", ".join("?" * len(self._chain))
        sql = "SELECT n_rows, digest, models.state, states.state FROM models LEFT JOIN states ON id = models.state "
        rows = self._rows(sql + f"WHERE key = ? AND layer IN ({marks}) ORDER BY layer DESC LIMIT 1", key, *self._chain)
        if not rows:
            return None
        n_rows, digest, number, state = rows[0]
        found = Packed(key, n_rows, state)
        if (number is None) != (state is None) or not isinstance(n_rows, int) or found.digest() != digest:
            raise self._damaged(f"the checksum of key {key!r} does not match")
        return None if state is None else found

    def put(self, models: Iterable[Packed]) -> None:
        """Write models into the topmost layer; to forget a key, write None."""
        layer, db = self._chain[-1], self._db
        with self._transaction():
            for one in models:
                state = None
                if one.state is not None:
                    state = db.execute("INSERT INTO states (state) VALUES (?)", (one.state,)).lastrowid
                row = (layer, one.key, one.n_rows, one.digest(), state)
                db.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?)", row)

    def keys(self) -> list[bytes]:
        """The keys that have a model here."""
        marks = ", ".join("?" * len(self._chain))
        sql = f"SELECT key, state IS NULL, max(layer) FROM models WHERE layer IN ({marks}) GROUP BY key"
        return [bytes(key) for key, is_forgotten, _ in self._rows(sql, *self._chain) if not is_forgotten]

    # Cuts.

    def cut(self, number: int, facts: dict[str, Any], models: Iterable[Packed] = ()) -> None:
        """Write models and make everything there is the state of a cut; it is durable when this returns."""
        self._rows("PRAGMA synchronous = FULL")
        try:
            with self._transaction():
                self.put(models)
                row = (number, self._chain[-1], json.dumps(facts))
                self._db.execute("INSERT OR REPLACE INTO cuts VALUES (?, ?, ?)", row)
                chain = [*self._chain, self._new_layer(self._chain[-1])]
            self._chain = chain
            _sync_folder(self.path.parent)
        finally:
            self._rows("PRAGMA synchronous = NORMAL")

    def cuts(self) -> list[int]:
        """The cuts there are."""
        return [row[0] for row in self._rows("SELECT cut FROM cuts")]

    def go_back(self, number: int) -> dict[str, Any]:
        """Stand where a cut was made, and return its facts."""
        rows = self._rows("SELECT layer, facts FROM cuts WHERE cut = ?", number)
        if not rows:
            there = ", ".join(map(str, self.cuts())) or "none at all"
            raise SnapshotError(
                f"there is no cut {number} in {str(self.path)!r}, only {there}. Is it the directory it was made in?"
            )
        with self._transaction():
            self._stand_on(rows[0][0])
            self._sweep(keep=self._chain[-1])
        facts: dict[str, Any] = json.loads(rows[0][1])
        return facts

    def keep(self, cuts: Sequence[int]) -> None:
        """Forget all other cuts."""
        with self._transaction():
            marks = ", ".join("?" * len(cuts))
            self._db.execute(f"DELETE FROM cuts WHERE cut NOT IN ({marks})", list(cuts))
            self._sweep(keep=self._chain[-1])
            self._merge()

    def close(self) -> None:
        """Let another process have the file."""
        self._end()

    # Layers.

    def _new_layer(self, below: int | None) -> int:
        number = self._db.execute("INSERT INTO layers (below) VALUES (?)", (below,)).lastrowid
        assert number is not None
        return number

    def _stand_on(self, layer: int | None) -> None:
        """Begin a new layer upon another, or upon nothing."""
        self._chain = [*self._layers_below(layer), self._new_layer(layer)]

    def _layers_below(self, layer: int | None) -> list[int]:
        """A layer and those it stands upon, the lowest first."""
        below = dict(self._db.execute("SELECT layer, below FROM layers").fetchall())
        chain: list[int] = []
        while layer is not None:
            if layer in chain or layer not in below:
                raise SnapshotError(f"the layers in {str(self.path)!r} do not fit together. Take an earlier copy.")
            chain.insert(0, layer)
            layer = below[layer]
        return chain

    def _sweep(self, keep: int | None = None) -> None:
        """Delete layers that no cut needs: what a process that was killed left behind, and cuts gone."""
        tops = [row[0] for row in self._db.execute("SELECT DISTINCT layer FROM cuts")]
        needed = {layer for top in [*tops, keep] for layer in self._layers_below(top)}
        for (layer,) in self._db.execute("SELECT layer FROM layers").fetchall():
            if layer not in needed:
                self._db.execute("DELETE FROM models WHERE layer = ?", (layer,))
                self._db.execute("DELETE FROM layers WHERE layer = ?", (layer,))

    def _merge(self) -> None:
        """Let every layer that no cut names, and that carries only one other, take that one in."""
        named = {row[0] for row in self._db.execute("SELECT layer FROM cuts")}
        below = dict(self._db.execute("SELECT layer, below FROM layers").fetchall())
        for layer in sorted(below):
            upon = [other for other, under in below.items() if under == layer]
            while layer not in named and len(upon) == 1 and upon[0] != self._chain[-1]:
                taken = upon[0]
                self._take_in(layer, taken)
                del below[taken]
                if taken in named:
                    named.add(layer)
                upon = [other for other, under in below.items() if under == taken]
                below.update(dict.fromkeys(upon, layer))
        self._chain = self._layers_below(self._chain[-1])

    def _take_in(self, layer: int, taken: int) -> None:
        """Make one layer of two, of which one stands upon the other: as much work as the upper one is large."""
        db = self._db
        both = "key IN (SELECT key FROM models WHERE layer = ?) AND layer = ?"
        db.execute(f"DELETE FROM models INDEXED BY by_key WHERE {both}", (taken, layer))
        db.execute("UPDATE models SET layer = ? WHERE layer = ?", (layer, taken))
        db.execute("UPDATE layers SET below = ? WHERE below = ?", (layer, taken))
        db.execute("UPDATE cuts SET layer = ? WHERE layer = ?", (layer, taken))
        db.execute("DELETE FROM layers WHERE layer = ?", (taken,))

    # What can go wrong.

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it, or nothing; within another it is part of that."""
        if self._is_writing:
            yield
            return
        with self._explaining():
            self._db.execute("BEGIN")
            self._is_writing = True
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # after some errors there is nothing to be undone
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._is_writing = False

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._explaining():
            return self._db.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say in plain words what SQLite complains about."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                why = "is in use by another process, expected one worker at a time. Stop that one first."
                raise BlockingIOError(f"{str(self.path)!r} {why}") from error
            if "malformed" not in str(error):
                why = f"could not be read or written ({error}). Is the disk full, or the folder not writable?"
                raise OSError(f"{str(self.path)!r} {why}") from error
            raise self._damaged(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> SnapshotError:
        return SnapshotError(
            f"{str(self.path)!r} is damaged: {why}. Bring it back from a copy, or begin anew in another directory."
        )


def _sync_folder(folder: Path) -> None:
    """Bring to disk that there are these files in it."""
    if os.name == "posix":  # elsewhere a directory cannot be opened
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
