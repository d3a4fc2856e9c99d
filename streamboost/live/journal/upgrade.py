"""A journal that an earlier version wrote, brought to this one: nothing is lost, and all of it is sealed."""

from __future__ import annotations

import sqlite3

MOVED = {
    "about": "name, value",
    "counts": "name, value",
    "entries": "number, kind, rows, first, refused, origin",
    "schemas": "number, schema",
    "rows": "number, key, time, label, schema, row, first",
    "early": "key, time, label",
    "ids": "number, id, verb, answer",
}
UNSEALED = {"schemas": "number", "rows": "number", "ids": "number"}  # the column of a table that its seal leaves out


def upgrade(db: sqlite3.Connection, schema: str, version: int) -> None:
    """Bring a file of format version 2 to this version, all of it or nothing."""
    db.execute("PRAGMA legacy_alter_table = 1")
    db.execute("BEGIN IMMEDIATE")
    try:
        last = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'").fetchone()[0]
        for index in ("waiting", "learned", "oldest", "due"):
            db.execute(f"DROP INDEX {index}")
        for table in MOVED:
            db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        for statement in schema.split(";"):
            db.execute(statement)
        for table, columns in MOVED.items():
            covered = columns.removeprefix(f"{UNSEALED.get(table)}, ")
            db.execute(f"INSERT INTO {table} ({columns}, seal) SELECT {columns}, seal({covered}) FROM old_{table}")
        _ripen(db)
        db.execute("DELETE FROM counts WHERE name = 'due'")
        counts = {
            "numbered": last,
            "waiting": "SELECT count(*) FROM rows WHERE label IS NULL",
            "ripe": "SELECT count(*) FROM ripe",
            "early": "SELECT count(*) FROM early",
        }
        for name, n in counts.items():
            value = n if isinstance(n, int) else db.execute(n).fetchone()[0]
            db.execute("INSERT OR REPLACE INTO counts VALUES (?1, ?2, seal(?1, ?2))", (name, value))
        for table in MOVED:
            db.execute(f"DROP TABLE old_{table}")
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _ripen(db: sqlite3.Connection) -> None:
    """Make rows ripe whose labels are there."""
    columns = "rows.number, rows.key, rows.time, old_early.label, schema, row, first, 'label', rows.time"
    insert = "INSERT INTO ripe (number, key, time, label, schema, row, first, why, since, seal)"
    met = "FROM rows JOIN old_early USING (key) WHERE due AND rows.label IS NULL"
    db.execute(f"{insert} SELECT {columns}, seal({columns}) {met} ORDER BY rows.number")
    db.execute("DELETE FROM rows WHERE number IN (SELECT number FROM ripe)")
    db.execute("DELETE FROM early WHERE key IN (SELECT key FROM old_early WHERE due)")
