"""What can be changed in a journal, all of it together or nothing."""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from streamboost.live.journal.records import (
    Entry,
    KeyedRow,
    PackedRow,
    RipeRow,
    refusal_text,
    sealed,
    table_bytes,
    unsealed,
)

LARGEST = 500_000_000  # bytes of an entry; SQLite itself takes twice as many
SHORT = 500  # letters of an answer that is kept as it is; longer ones are compressed
RELABEL = "UPDATE rows SET label = ?1, seal = seal(key, time, ?1, schema, row, first)"
ROWS = "SELECT key, time, label, schemas.schema, row, first FROM rows JOIN schemas ON schemas.number = rows.schema"


class Transaction:
    """Changes of a journal; made by :meth:`Journal.transaction`.

    Counts are those of ``waiting``, ``learned`` (and kept), ``early``, ``ripe`` (rows to be learned next), ``entries``,
    ``numbered`` (entries ever written), ``changes`` (transactions ever made), and whatever else the caller counts.
    """

    def __init__(self, db: sqlite3.Connection, before: Counter[str], limit: int, ids: int) -> None:
        self.db, self.limit, self.ids = db, limit, ids
        self.before = before  # how many there were
        self.counts: Counter[str] = Counter()  # what is added to each
        self._began = db.total_changes

    def n(self, name: str) -> int:
        """Return how many there are."""
        return self.before[name] + self.counts[name]

    def count(self, **changes: int) -> None:
        """Add to counts."""
        self.counts.update(changes)

    def write_counts(self) -> None:
        """Write down what was counted, if anything was changed."""
        if self.db.total_changes == self._began and not self.counts:
            return
        self.count(changes=1)
        names = {name: self.n(name) for name in self.counts}
        upsert = "INSERT OR REPLACE INTO counts VALUES (?1, ?2, seal(?1, ?2))"
        self.db.executemany(upsert, names.items())

    # Entries and ids.

    def add_entry(self, kind: str, table: Any, first: list[Any] | None = None, origin: Any = None) -> Entry:
        """Add rows to be learned; return the entry as it will be read."""
        data = sealed(table_bytes(table))
        if len(data) > LARGEST:
            way_out = f"Send its {table.num_rows:,} rows in several requests."
            raise ValueError(f"the request has {len(data):,} bytes, expected at most {LARGEST:,}. {way_out}")
        self.count(entries=1, numbered=1)
        number = self.n("numbered")
        texts = None if first is None else json.dumps(first), None if origin is None else json.dumps(origin)
        insert = "INSERT INTO entries VALUES (?1, ?2, ?3, ?4, NULL, ?5, seal(?1, ?2, ?3, ?4, NULL, ?5))"
        self.db.execute(insert, (number, kind, data, *texts))
        return Entry(number, kind, table, first, None, origin)

    def refuse(self, number: int, reason: str | dict[int, str]) -> None:
        """Note that an entry, or some of its rows, cannot be learned."""
        update = "UPDATE entries SET refused = ?1, seal = seal(number, kind, rows, first, ?1, origin) WHERE number = ?2"
        self.db.execute(update, (refusal_text(reason), number))

    def trim(self, number: int) -> None:
        """Delete entries up to a number, and schemas that no row has."""
        self.count(entries=-self.db.execute("DELETE FROM entries WHERE number <= ?", (number,)).rowcount)
        kept = "SELECT schema FROM rows UNION SELECT schema FROM ripe"
        self.db.execute(f"DELETE FROM schemas WHERE number NOT IN ({kept})")

    def add_id(self, id: str, verb: str, answer: Mapping[str, Any]) -> bool:
        """Keep what was answered to a request, and forget the oldest; return False if it was answered before."""
        insert = "INSERT INTO ids (id, verb, answer, seal) VALUES (?1, ?2, ?3, seal(?1, ?2, ?3)) ON CONFLICT DO NOTHING"
        cursor = self.db.execute(insert, (id, verb, _answer_text(answer)))
        if cursor.rowcount:
            self.db.execute("DELETE FROM ids WHERE number <= ?", ((cursor.lastrowid or 0) - self.ids,))
        return bool(cursor.rowcount)

    def find_id(self, id: str) -> tuple[str, Any] | None:
        """Return what a request with this id asked for, and its answer; None if there was none lately."""
        found = self.db.execute("SELECT verb, answer FROM ids WHERE id = ?", (id,)).fetchone()
        if found is None:
            return None
        verb, answer = found
        return verb, json.loads(answer if isinstance(answer, str) else zlib.decompress(answer))

    def change_answer(self, id: str, answer: Mapping[str, Any]) -> None:
        """Keep another answer to a request, if it is one of those that are remembered."""
        update = "UPDATE ids SET answer = ?1, seal = seal(id, verb, ?1) WHERE id = ?2"
        self.db.execute(update, (_answer_text(answer), id))

    # Rows that wait, and rows that were learned.

    def put(self, rows: Iterable[PackedRow], within: float = math.inf, expire_after: float | None = None) -> None:
        """Let rows wait for their labels, in place of earlier ones of the same key.

        What this settles becomes ripe in this moment, whoever looks when: rows that have waited for ``expire_after``
        seconds, rows whose labels came up to ``within`` seconds before them, and the oldest if too many wait.
        """
        numbers: dict[bytes, int] = {}
        now = None
        for row in rows:
            if row.time != now:
                self.ripen(now := row.time, expire_after)
            if row.schema not in numbers:
                insert = "INSERT INTO schemas (schema, seal) VALUES (?1, seal(?1)) ON CONFLICT DO NOTHING"
                self.db.execute(insert, (row.schema,))
                find = "SELECT number FROM schemas WHERE schema = ?"
                numbers[row.schema] = self.db.execute(find, (row.schema,)).fetchone()[0]
            self.remove([row.key])
            values = (row.key, float(row.time), numbers[row.schema], sealed(row.row), row.first)
            insert = "INSERT INTO rows (key, time, label, schema, row, first, seal)"
            self.db.execute(f"{insert} VALUES (?1, ?2, NULL, ?3, ?4, ?5, seal(?1, ?2, NULL, ?3, ?4, ?5))", values)
            self.count(waiting=1)
            if self.n("early"):
                self._meet_label(row.key, row.time, within)
            if (surplus := self.n("waiting") - self.limit) > 0:
                self._ripen("crowded", "ORDER BY time, number LIMIT ?", surplus, since=row.time)

    def ripen(self, now: float, expire_after: float | None) -> None:
        """Make rows ripe that have waited for so many seconds."""
        if expire_after is None or not self.n("waiting"):
            return
        until = now - expire_after
        first = "SELECT 1 FROM rows WHERE label IS NULL AND time <= ? LIMIT 1"
        if self.db.execute(first, (until,)).fetchone():
            self._ripen("expired", "AND time <= ? ORDER BY time, number", until, wait=expire_after)

    def _meet_label(self, key: str, time: float, within: float) -> None:
        """Make a row ripe if its label came before it, not too long ago; use the label up."""
        found = self.db.execute("SELECT time, label FROM early WHERE key = ?", (key,)).fetchone()
        if found is not None:
            self.remove_early([key])
            if time - found[0] <= within:
                self._ripen("label", "AND key = ?", key, label=found[1], since=time)

    def _ripen(
        self,
        why: str,
        which: str,
        value: Any,
        *,
        label: str | None = None,
        since: float | None = None,
        wait: float = 0.0,
    ) -> None:
        """Move rows that wait to those that are to be learned next."""
        since = None if since is None else float(since)
        moved = f"SELECT * FROM rows WHERE label IS NULL {which}"
        columns = "number, key, time, ?2, schema, row, first, ?3, coalesce(?4, time + ?5)"
        insert = "INSERT INTO ripe (number, key, time, label, schema, row, first, why, since, seal)"
        found = f"SELECT {columns}, seal({columns}) FROM ({moved.replace('?', '?1')}) ORDER BY time, number"
        n = self.db.execute(f"{insert} {found}", (value, label, why, since, wait)).rowcount
        numbers = moved.replace("*", "number", 1)
        self.db.execute(f"DELETE FROM rows WHERE number IN ({numbers})", (value,))
        self.count(waiting=-n, ripe=n)

    def ripe(self, n: int) -> list[RipeRow]:
        """Return up to n rows that are to be learned next, of one sort, and each key once."""
        query = (
            "SELECT place, why, since, ripe.number, key, time, label, schemas.schema, row, first FROM ripe "
            "JOIN schemas ON schemas.number = ripe.schema ORDER BY place LIMIT ?"
        )
        found: list[Any] = []
        keys = set[str]()
        for values in self.db.execute(query, (n,)):
            if values[4] in keys or (found and (values[1] == "label") != (found[0][1] == "label")):
                break
            keys.add(values[4])
            found.append(values)
        rows = self._read_rows(values[4:] for values in found)
        return [RipeRow._make([*values[:4], row]) for values, row in zip(found, rows, strict=True)]

    def take_ripe(self, rows: Iterable[RipeRow]) -> set[str]:
        """Let rows wait that were ripe, if there are no newer ones of their keys; return the keys of those that do."""
        kept = set()
        insert = "INSERT INTO rows (number, key, time, label, schema, row, first, seal)"
        found = (
            "SELECT number, key, time, NULL, schema, row, first, seal(key, time, NULL, schema, row, first) FROM ripe"
        )
        for row in rows:
            done = self.db.execute(f"{insert} {found} WHERE place = ? ON CONFLICT DO NOTHING", (row.place,))
            if done.rowcount:
                kept.add(row.row.key)
                self.count(waiting=1)
            self.count(ripe=-self.db.execute("DELETE FROM ripe WHERE place = ?", (row.place,)).rowcount)
        return kept

    def find(self, keys: Iterable[str]) -> dict[str, KeyedRow]:
        """Return the rows of those keys that are known."""
        found = (self.db.execute(f"{ROWS} WHERE key = ?", (key,)).fetchone() for key in keys)
        return {row.key: row for row in self._read_rows(values for values in found if values)}

    def _read_rows(self, found: Iterable[Any]) -> list[KeyedRow]:
        schemas: dict[bytes, Any] = {}
        rows = []
        for key, time, label, schema, row, first in found:
            if schema not in schemas:
                schemas[schema] = pa.ipc.read_schema(pa.py_buffer(schema))
            data = pa.py_buffer(unsealed(row, f"the row of key {key!r}"))
            batch = pa.ipc.read_record_batch(data, schemas[schema])
            label, first = (None if text is None else json.loads(text) for text in (label, first))
            rows.append(KeyedRow(key, time, label, batch, first))
        return rows

    def set_labels(self, labels: Mapping[str, Any], time: float | Mapping[str, float]) -> None:
        """Note that rows are learned: those that waited, at this time; others keep theirs. Early labels are used up."""
        times = time if isinstance(time, Mapping) else dict.fromkeys(labels, time)
        values = [(json.dumps(label), float(times[key]), key) for key, label in labels.items()]
        update = "UPDATE rows SET label = ?1, time = ?2, seal = seal(key, ?2, ?1, schema, row, first)"
        waited = self.db.executemany(f"{update} WHERE key = ?3 AND label IS NULL", values).rowcount
        self.count(waiting=-waited, learned=waited)
        if waited < len(values):  # those that waited have their label by now: it does them no harm
            self.db.executemany(f"{RELABEL} WHERE key = ?2", [(text, key) for text, _, key in values])
        self.remove_early(labels)
        if (surplus := self.n("learned") - self.limit) > 0:
            self._delete_learned("ORDER BY time, number LIMIT ?", surplus)

    def revert_labels(self, labels: Mapping[str, Any]) -> None:
        """Undo :meth:`set_labels`: a row has the earlier label again, or goes if that is None; a new one stays."""
        for key, label in labels.items():
            if label is None:
                self._delete_learned("AND key = ?", key)
            else:
                self.db.execute(f"{RELABEL} WHERE key = ?2 AND label IS NOT NULL", (json.dumps(label), key))

    def remove(self, keys: Iterable[str]) -> None:
        """Forget rows."""
        for key in keys:
            found = self.db.execute("DELETE FROM rows WHERE key = ? RETURNING label IS NULL", (key,)).fetchone()
            if found:
                self.count(**{"waiting" if found[0] else "learned": -1})

    def drop_ripe(self, n: int) -> None:
        """Forget rows that became ripe first, if n is above 0; not those whose label is there."""
        if n > 0:
            query = "SELECT place FROM ripe WHERE why != 'label' ORDER BY place LIMIT ?"
            n = self.db.execute(f"DELETE FROM ripe WHERE place IN ({query})", (n,)).rowcount
            self.count(ripe=-n, dropped=n)

    def forget(self, before: float) -> None:
        """Forget learned rows and early labels from before a time."""
        self._delete_learned("AND time < ?", before)
        self._delete_early("WHERE time < ?", before)

    def _delete_learned(self, which: str, value: float | str) -> None:
        query = f"SELECT number FROM rows WHERE label IS NOT NULL {which}"
        self.count(learned=-self.db.execute(f"DELETE FROM rows WHERE number IN ({query})", (value,)).rowcount)

    # Labels that came before their rows.

    def add_early(self, labels: Mapping[str, Any], time: float) -> None:
        """Keep labels until their rows come; the oldest go if there are too many."""
        self.remove_early(labels)
        values = [(key, float(time), json.dumps(label)) for key, label in labels.items()]
        insert = "INSERT INTO early (key, time, label, seal) VALUES (?1, ?2, ?3, seal(?1, ?2, ?3))"
        self.db.executemany(insert, values)
        self.count(early=len(values))
        if (surplus := self.n("early") - self.limit) > 0:
            self._delete_early("ORDER BY time, rowid LIMIT ?", surplus)

    def early_labels(self) -> list[Any]:
        """Return the different labels that wait for their rows."""
        return [json.loads(label) for (label,) in self.db.execute("SELECT DISTINCT label FROM early")]

    def remove_early(self, keys: Iterable[str]) -> None:
        """Forget early labels."""
        if self.n("early"):
            for key in keys:
                self._delete_early("WHERE key = ?", key)

    def _delete_early(self, which: str, value: float | str) -> None:
        query = f"DELETE FROM early WHERE rowid IN (SELECT rowid FROM early {which})"
        self.count(early=-self.db.execute(query, (value,)).rowcount)


def _answer_text(answer: Any) -> str | bytes:
    """Return an answer as it is kept: JSON, compressed if it is long."""
    text = json.dumps(answer)
    return text if len(text) <= SHORT else zlib.compress(text.encode())
