"""What can be changed in a journal, all of it together or nothing."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from streamboost.live.journal.records import Entry, KeyedRow, PackedRow, refusal_text, sealed, table_bytes, unsealed

LARGEST = 500_000_000  # bytes of an entry; SQLite itself takes twice as many
SHORT = 500  # letters of an answer that is kept as it is; longer ones are compressed
ROWS = "SELECT key, time, label, schemas.schema, row, first FROM rows JOIN schemas ON schemas.number = rows.schema"


class Transaction:
    """Changes of a journal; made by :meth:`Journal.transaction`.

    Counts are those of ``waiting``, ``learned`` (and kept), ``early``, ``due`` (early labels whose row has come),
    ``entries``, and whatever else the caller counts.
    """

    def __init__(self, db: sqlite3.Connection, before: Counter[str], limit: int, ids: int) -> None:
        self.db, self.limit, self.ids = db, limit, ids
        self.before = before  # how many there were
        self.counts: Counter[str] = Counter()  # what is added to each

    def n(self, name: str) -> int:
        """Return how many there are."""
        return self.before[name] + self.counts[name]

    def count(self, **changes: int) -> None:
        """Add to counts."""
        self.counts.update(changes)

    def write_counts(self) -> None:
        """Write down what was counted."""
        upsert = "INSERT INTO counts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"
        self.db.executemany(upsert, self.counts.items())

    # Entries and ids.

    def add_entry(self, kind: str, table: Any, first: list[Any] | None = None, origin: Any = None) -> Entry:
        """Add rows to be learned; return the entry as it will be read."""
        data = sealed(table_bytes(table))
        if len(data) > LARGEST:
            way_out = f"Send its {table.num_rows:,} rows in several requests."
            raise ValueError(f"the request has {len(data):,} bytes, expected at most {LARGEST:,}. {way_out}")
        self.count(entries=1)
        insert = "INSERT INTO entries (kind, rows, first, origin) VALUES (?, ?, ?, ?)"
        texts = None if first is None else json.dumps(first), None if origin is None else json.dumps(origin)
        number = int(self.db.execute(insert, (kind, data, *texts)).lastrowid or 0)
        return Entry(number, kind, table, first, None, origin)

    def refuse(self, number: int, reason: str | dict[int, str]) -> None:
        """Note that an entry, or some of its rows, cannot be learned."""
        self.db.execute("UPDATE entries SET refused = ? WHERE number = ?", (refusal_text(reason), number))

    def trim(self, number: int) -> None:
        """Delete entries up to a number, and schemas that no row has."""
        self.count(entries=-self.db.execute("DELETE FROM entries WHERE number <= ?", (number,)).rowcount)
        self.db.execute("DELETE FROM schemas WHERE number NOT IN (SELECT schema FROM rows)")

    def add_id(self, id: str, verb: str, answer: Mapping[str, Any]) -> bool:
        """Keep what was answered to a request, and forget the oldest; return False if it was answered before."""
        insert = "INSERT INTO ids (id, verb, answer) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
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
        self.db.execute("UPDATE ids SET answer = ? WHERE id = ?", (_answer_text(answer), id))

    # Rows that wait, and rows that were learned.

    def put(self, rows: Iterable[PackedRow]) -> None:
        """Let rows wait for their labels, in place of earlier ones of the same key."""
        numbers: dict[bytes, int] = {}
        for row in rows:
            if row.schema not in numbers:
                self.db.execute("INSERT INTO schemas (schema) VALUES (?) ON CONFLICT DO NOTHING", (row.schema,))
                find = "SELECT number FROM schemas WHERE schema = ?"
                numbers[row.schema] = self.db.execute(find, (row.schema,)).fetchone()[0]
            self.remove([row.key])
            values = (row.key, row.time, numbers[row.schema], sealed(row.row), row.first)
            self.db.execute("INSERT INTO rows (key, time, schema, row, first) VALUES (?, ?, ?, ?, ?)", values)
            self.count(waiting=1)
            if self.n("early"):
                update = "UPDATE early SET due = 1 WHERE key = ? AND NOT due"
                self.count(due=self.db.execute(update, (row.key,)).rowcount)

    def find(self, keys: Iterable[str]) -> dict[str, KeyedRow]:
        """Return the rows of those keys that are known."""
        found = (self.db.execute(f"{ROWS} WHERE key = ?", (key,)).fetchone() for key in keys)
        return {row.key: row for row in self._read_rows(values for values in found if values)}

    def oldest(self, n: int, until: float | None = None) -> list[KeyedRow]:
        """Return up to n rows that have waited longest, and came by a time; not those whose label is there."""
        query = f"{ROWS} WHERE label IS NULL AND time <= ? {self._without_label} ORDER BY time, rows.number LIMIT ?"
        return self._read_rows(self.db.execute(query, (float("inf") if until is None else until, n)))

    @property
    def _without_label(self) -> str:
        """The SQL condition that a row has no early label; most of the time there is nothing to look up."""
        return "AND key NOT IN (SELECT key FROM early WHERE due)" if self.n("due") else ""

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

    def set_labels(self, labels: Mapping[str, Any], time: float) -> None:
        """Note that rows are learned: those that waited, at this time; others keep theirs. Early labels are used up."""
        values = [(json.dumps(label), time, key) for key, label in labels.items()]
        update = "UPDATE rows SET label = ?, time = ? WHERE key = ? AND label IS NULL"
        waited = self.db.executemany(update, values).rowcount
        self.count(waiting=-waited, learned=waited)
        if waited < len(values):  # those that waited have their label by now: it does them no harm
            self.db.executemany("UPDATE rows SET label = ? WHERE key = ?", [(text, key) for text, _, key in values])
        self.remove_early(labels)
        if (surplus := self.n("learned") - self.limit) > 0:
            self._delete_learned("ORDER BY time, number LIMIT ?", surplus)

    def revert_labels(self, labels: Mapping[str, Any]) -> None:
        """Undo :meth:`set_labels`: a row has the earlier label again, or goes if that is None; a new one stays."""
        for key, label in labels.items():
            if label is None:
                self._delete_learned("AND key = ?", key)
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

    def _delete_learned(self, which: str, value: float | str) -> None:
        query = f"SELECT number FROM rows WHERE label IS NOT NULL {which}"
        self.count(learned=-self.db.execute(f"DELETE FROM rows WHERE number IN ({query})", (value,)).rowcount)

    # Labels that came before their rows.

    def add_early(self, labels: Mapping[str, Any], time: float) -> None:
        """Keep labels until their rows come; the oldest go if there are too many, but not those whose row has come."""
        self.remove_early(labels)
        values = [(key, time, json.dumps(label)) for key, label in labels.items()]
        self.db.executemany("INSERT INTO early (key, time, label) VALUES (?, ?, ?)", values)
        self.count(early=len(values))
        if (surplus := self.n("early") - self.limit) > 0:
            self._delete_early("WHERE NOT due ORDER BY time, rowid LIMIT ?", surplus)

    def early_labels(self) -> list[Any]:
        """Return the different labels that wait for their rows."""
        return [json.loads(label) for (label,) in self.db.execute("SELECT DISTINCT label FROM early")]

    def due(self, n: int) -> dict[str, tuple[float, Any]]:
        """Return up to n early labels whose rows have come, in the order of the rows: when each came, and the label."""
        query = (
            "SELECT key, early.time, early.label FROM early JOIN rows USING (key) WHERE due AND rows.label IS NULL "
            "ORDER BY rows.number LIMIT ?"
        )
        found = {key: (time, json.loads(label)) for key, time, label in self.db.execute(query, (n,))}
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


def _answer_text(answer: Any) -> str | bytes:
    """Return an answer as it is kept: JSON, compressed if it is long."""
    text = json.dumps(answer)
    return text if len(text) <= SHORT else zlib.compress(text.encode())
