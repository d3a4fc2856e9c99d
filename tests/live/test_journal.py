"""The journal alone: what a transaction promises, what is counted, what is kept apart."""

import json
import sqlite3
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost.errors import NewerFormat, SnapshotError
from streamboost.live.journal import Journal, read_table, table_bytes
from streamboost.live.journal.records import sealed
from streamboost.live.request_checks import pack_rows, plain

TABLE = pa.table({"a": [1.0, 2.0], "b": ["x", None]})


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.db", limit=3, ids=4)
    yield journal
    journal.close()


def packed(*keys, time=0.0, first=None):
    table = pa.table({"a": [float(i) for i in range(len(keys))]})
    return pack_rows(keys, table, time, first)


def counted(journal):
    """What a count of the tables says."""
    queries = {
        "entries": "SELECT count(*) FROM entries",
        "waiting": "SELECT count(*) FROM rows WHERE label IS NULL",
        "learned": "SELECT count(*) FROM rows WHERE label IS NOT NULL",
        "early": "SELECT count(*) FROM early",
        "ripe": "SELECT count(*) FROM ripe",
    }
    found = {name: journal._db.execute(query).fetchone()[0] for name, query in queries.items()}
    return Counter({name: n for name, n in found.items() if n})


def told(journal):
    """What the journal says of the same, and what was dropped."""
    return Counter({name: n for name, n in journal.counts.items() if name not in ("changes", "numbered")})


def test_a_transaction_that_fails_changes_nothing(journal):
    journal.put(packed("k"))
    before = journal.counts

    def change_and_fail():
        with journal.transaction() as changes:
            changes.add_entry("learn", TABLE)
            changes.set_labels({"k": 1}, 5.0)
            changes.add_early({"l": 1}, 5.0)
            changes.add_id("i", "learn", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_fail()
    assert journal.counts == before
    assert told(journal) == counted(journal)
    assert (journal.last_number, journal.find_id("i"), list(journal.entries(0))) == (0, None, [])


def test_a_row_leaves_those_that_wait_in_the_moment_it_becomes_an_entry(journal, tmp_path):
    journal.put(packed("k"))
    spectator = sqlite3.connect(tmp_path / "journal.db")
    seen = "SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM rows WHERE label IS NULL)"
    with journal.transaction() as changes:
        changes.add_entry("label", TABLE)
        changes.set_labels({"k": 1}, 1.0)
        assert spectator.execute(seen).fetchone() == (0, 1)
    assert spectator.execute(seen).fetchone() == (1, 0)
    spectator.close()


def test_entries_come_back_as_they_were_and_keep_their_numbers(journal, tmp_path):
    with journal.transaction() as changes:
        assert changes.add_entry("learn", TABLE).number == 1
        assert changes.add_entry("label", TABLE.slice(1), [{"classes": [1], "probabilities": [1.0]}]).number == 2
    with journal.transaction() as changes:
        changes.refuse(1, "no")
    first, second = journal.entries(after=0)
    assert first.table.equals(TABLE)
    assert (first.kind, first.refused, first.first) == ("learn", "no", None)
    assert (second.number, second.table.to_pylist(), second.refused) == (2, [{"a": 2.0, "b": None}], None)
    assert second.first == [{"classes": [1], "probabilities": [1.0]}]
    with journal.transaction() as changes:
        changes.trim(2)
    journal.close()
    again = Journal(tmp_path / "journal.db")
    assert (again.first_number, again.last_number, again.is_new, told(again)) == (3, 2, False, Counter())
    with again.transaction() as changes:
        assert changes.add_entry("learn", TABLE).number == 3
    again.close()


def test_a_missing_or_changed_entry_is_noticed(journal):
    for _ in range(3):
        with journal.transaction() as changes:
            changes.add_entry("learn", TABLE)
    data = journal._db.execute("SELECT rows FROM entries WHERE number = 3").fetchone()[0]
    for at in (0, len(data) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        journal._db.execute("UPDATE entries SET rows = ? WHERE number = 3", (bytes(changed),))
        with pytest.raises(SnapshotError, match="checksum of entry 3 does not match"):
            list(journal.entries(after=2))
    journal._db.execute("DELETE FROM entries WHERE number = 2")
    with pytest.raises(SnapshotError, match="entry 2 is missing"):
        list(journal.entries(after=1))


def test_a_request_that_is_too_large_is_refused_in_words(journal, monkeypatch):
    monkeypatch.setattr("streamboost.live.journal.transactions.LARGEST", 200)
    with pytest.raises(ValueError, match=r"expected at most 200\. Send its 2 rows in several requests"):
        add_entry(journal)
    assert journal.counts == Counter()


def add_entry(journal):
    with journal.transaction() as changes:
        changes.add_entry("learn", TABLE)


def test_only_the_latest_ids_are_kept_and_none_twice(journal):
    for i in range(10):
        with journal.transaction() as changes:
            assert changes.add_id(f"i{i}", "learn", {"rows": i})
    assert [journal.find_id(f"i{i}") for i in (5, 6, 9)] == [None, ("learn", {"rows": 6}), ("learn", {"rows": 9})]
    with journal.transaction() as changes:
        assert not changes.add_id("i9", "learn", {"rows": 77})
    assert journal.find_id("i9") == ("learn", {"rows": 9})


def test_answers_come_back_whole_however_long_and_may_be_changed(journal):
    long = {"reasons": [[i, 1, f"reason {i}"] for i in range(3000)]}
    with journal.transaction() as changes:
        changes.add_id("short", "learn", {"rows": 1})
        changes.add_id("long", "label", long)
    assert journal.find_id("long") == ("label", long)
    kept = dict(journal._db.execute("SELECT id, length(answer) FROM ids"))
    assert (kept["short"], kept["long"] < len(json.dumps(long)) / 3) == (len('{"rows": 1}'), True)
    with journal.transaction() as changes:
        changes.change_answer("short", long)
        changes.change_answer("long", {"rows": 2})
        changes.change_answer("unknown", {"rows": 2})
    assert [journal.find_id(id) for id in ("short", "long", "unknown")] == [
        ("learn", long),
        ("label", {"rows": 2}),
        None,
    ]


def test_a_row_and_a_label_that_have_met_stay_until_they_are_learned(journal):
    with journal.transaction() as changes:
        changes.add_early({"a": 1, "b": 2, "c": 3}, 0.0)
    journal.put(packed("a", time=1.0))
    assert told(journal) == Counter(early=2, ripe=1) == counted(journal)
    with journal.transaction() as changes:
        changes.add_early({"d": 4, "e": 5}, 5.0)
        changes.forget(5.0)
    assert told(journal) == Counter(early=2, ripe=1)
    journal.put(packed(*"stuvwxyz", time=2.0))  # 3 wait, 5 are ripe, and 3 of these too many
    assert told(journal) == Counter(early=2, ripe=3, waiting=3, dropped=3)
    with journal.transaction() as changes:
        assert sorted(changes.early_labels()) == [4, 5]
        [row] = changes.ripe(10)
        assert (row.row.key, row.row.label, row.why, row.since) == ("a", 1, "label", 1.0)
        assert changes.take_ripe([row]) == {"a"}
        assert [row.row.key for row in changes.ripe(10)] == ["v", "w"]


def test_a_label_that_is_too_old_is_used_up_and_not_believed(journal):
    with journal.transaction() as changes:
        changes.add_early({"a": 1, "b": 2}, 0.0)
    journal.put(packed("a", time=5.0), within=5.0)
    journal.put(packed("b", time=6.0), within=5.0)
    assert told(journal) == Counter(ripe=1, waiting=1) == counted(journal)


def test_rows_are_ripe_in_the_order_of_their_times_whoever_looks_when(journal):
    journal.put(packed("a", time=1.0), expire_after=10.0)
    with journal.transaction() as changes:
        changes.add_early({"b": 2}, 5.0)
    journal.put(packed("b", time=12.0), expire_after=10.0)
    with journal.transaction() as changes:
        [first] = changes.ripe(10)  # of one sort
        assert (first.row.key, first.why, first.since) == ("a", "expired", 11.0)


def test_a_ripe_row_gives_way_to_a_newer_one_of_its_key(journal):
    with journal.transaction() as changes:
        changes.add_early({"a": 1}, 0.0)
    journal.put(packed("a", time=1.0))
    journal.put(packed("a", time=2.0))
    with journal.transaction() as changes:
        assert changes.take_ripe(changes.ripe(10)) == set()
        assert changes.find(["a"])["a"].time == 2.0
    assert told(journal) == Counter(waiting=1) == counted(journal)


def test_labels_that_are_taken_back_leave_what_was_there_before(journal):
    journal.put(packed("new", "old", "anew"))
    with journal.transaction() as changes:
        changes.set_labels({"old": 1}, 1.0)
        changes.set_labels({"new": 7, "old": 7, "anew": 7}, 2.0)
    journal.put(packed("anew"))
    with journal.transaction() as changes:
        changes.revert_labels({"new": None, "old": 1, "anew": None, "unknown": None})
        found = changes.find(["new", "old", "anew"])
    assert {key: row.label for key, row in found.items()} == {"old": 1, "anew": None}
    assert told(journal) == Counter(learned=1, waiting=1) == counted(journal)


def test_rows_with_an_id_are_put_once(journal):
    for _ in range(2):
        journal.put(packed("k"), id="i")
        with journal.transaction() as changes:
            changes.set_labels({"k": 1}, 1.0)
    assert told(journal) == Counter(learned=1) == counted(journal)


def test_a_file_that_cannot_be_written_is_told_and_nothing_is_counted(journal):
    journal._db.execute("PRAGMA query_only = 1")
    with pytest.raises(OSError, match="could not be read or written"):
        journal.put(packed("k"))
    journal._db.execute("PRAGMA query_only = 0")
    assert counted(journal) == journal.counts == Counter()


def test_rows_in_excess_are_ripe_and_beyond_twice_the_limit_dropped_the_oldest_first(journal):
    journal.put(packed("a", "b", time=2.0))
    journal.put(packed("c", time=1.0))
    journal.put(packed("d", "e", "f", "g", time=3.0))
    assert told(journal) == Counter(waiting=3, ripe=3, dropped=1)
    with journal.transaction() as changes:
        assert [row.row.key for row in changes.ripe(10)] == ["a", "b", "d"]


ACTIONS = {
    "put": lambda changes, key, n, time: changes.put(packed(key, time=time)),
    "label": lambda changes, key, n, time: changes.set_labels({key: time}, time),
    "early": lambda changes, key, n, time: changes.add_early({key: time}, time),
    "remove": lambda changes, key, n, time: changes.remove([key]),
    "take back": lambda changes, key, n, time: changes.revert_labels({key: n % 2 or None}),
    "entry": lambda changes, key, n, time: changes.add_entry("learn", TABLE),
    "trim": lambda changes, key, n, time: changes.trim(n % 10),
    "drop": lambda changes, key, n, time: changes.drop_ripe(n % 2),
    "ripen": lambda changes, key, n, time: changes.ripen(time, n),
    "forget": lambda changes, key, n, time: changes.forget(n),
    "take": lambda changes, key, n, time: changes.take_ripe(changes.ripe(2)),
}


@given(st.lists(st.tuples(st.sampled_from([*ACTIONS]), st.sampled_from("abcdef"), st.integers(0, 20)), max_size=25))
@settings(max_examples=60, deadline=None)
def test_what_is_counted_is_what_is_there(tmp_path_factory, steps):
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.db", limit=3, durable=False)
    for time, (action, key, n) in enumerate(steps):
        with journal.transaction() as changes:
            ACTIONS[action](changes, key, n, time)
        there = counted(journal)
        assert {name: n for name, n in told(journal).items() if name != "dropped"} == there
        assert max(there["learned"], there["early"]) <= 3
    journal.close()
    again = Journal(journal.path)
    assert again.counts == journal.counts
    again.close()


def test_schemas_that_no_row_has_are_deleted(journal):
    for i in range(5):
        journal.put(pack_rows(["k"], pa.table({f"column {i}": [1.0]}), 0.0))
    with journal.transaction() as changes:
        changes.trim(0)
        [row] = changes.find(["k"]).values()
    assert row.batch.to_pylist() == [{"column 4": 1.0}]
    assert journal._db.execute("SELECT count(*) FROM schemas").fetchone()[0] == 1


def test_files_of_others_and_of_other_versions_are_left_alone(tmp_path):
    path = tmp_path / "journal.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE letters (text)")
    database.commit()
    before = path.read_bytes()
    with pytest.raises(SnapshotError, match="it is a database of something else"):
        Journal(path)
    assert path.read_bytes() == before
    path.unlink()
    Journal(path).close()
    future = sqlite3.connect(path)
    future.execute("PRAGMA user_version = 9")
    with pytest.raises(NewerFormat, match=r"format version 9.*Upgrade"):
        Journal(path)
    future.execute("PRAGMA user_version = 1")
    with pytest.raises(SnapshotError, match="from before the first release"):
        Journal(path)
    for connection in (database, future):
        connection.close()


VERSION_2 = """
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
INSERT INTO about VALUES ('name', '0123'), ('rows_before', '5'), ('target', 'y');
INSERT INTO counts VALUES ('waiting', 2), ('learned', 1), ('early', 2), ('due', 1), ('entries', 2), ('expired', 3);
INSERT INTO early VALUES ('met', 1.0, '4', 1), ('alone', 2.0, '5', 0);
INSERT INTO ids (id, verb, answer) VALUES ('i', 'learn', '{"rows": 1}');
PRAGMA application_id = 1397178954;
PRAGMA user_version = 2;
"""


def test_a_journal_of_the_version_before_is_brought_to_this_one_whole(tmp_path):
    old = sqlite3.connect(tmp_path / "journal.db")
    old.executescript(VERSION_2)
    for number in (7, 8):
        values = (number, sealed(table_bytes(TABLE)), "no" if number == 8 else None)
        old.execute("INSERT INTO entries (number, kind, rows, refused) VALUES (?, 'learn', ?, ?)", values)
    for row, label in zip(packed("met", "waits", "known", time=3.0), (None, None, "6"), strict=True):
        old.execute("INSERT INTO schemas (schema) VALUES (?) ON CONFLICT DO NOTHING", (row.schema,))
        values = (row.key, row.time, label, sealed(row.row))
        old.execute("INSERT INTO rows (key, time, label, schema, row) VALUES (?, ?, ?, 1, ?)", values)
    old.commit()
    old.close()
    for _ in range(2):
        journal = Journal(tmp_path / "journal.db")
        assert (journal.name, journal.rows_before, journal.target) == ("0123", 5, "y")
        assert told(journal) == Counter(waiting=1, ripe=1, learned=1, early=1, entries=2, expired=3)
        assert (journal.first_number, journal.last_number) == (7, 8)
        assert [(entry.number, entry.refused) for entry in journal.entries(6)] == [(7, None), (8, "no")]
        assert journal.find_id("i") == ("learn", {"rows": 1})
        with journal.transaction() as changes:
            assert [(row.row.key, row.row.label) for row in changes.ripe(9)] == [("met", 4)]
            assert {key: row.label for key, row in changes.find(["waits", "known"]).items()} == {
                "waits": None,
                "known": 6,
            }
        journal.close()


def test_damaged_pages_are_noticed_when_the_file_is_opened(tmp_path):
    path = tmp_path / "journal.db"
    journal = Journal(path, limit=1000)
    journal.put(packed(*map(str, range(500))))
    journal.close()
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 4096):
        if at:
            data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="no journal that can be read"):
        Journal(path)


def test_durable_means_that_every_transaction_is_brought_to_disk(tmp_path):
    for durable, level in ((True, 2), (False, 1)):
        journal = Journal(tmp_path / f"{durable}.db", durable=durable)
        assert journal._db.execute("PRAGMA synchronous").fetchone()[0] == level
        assert journal._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        journal.close()


def test_tables_survive_as_bytes_whatever_their_chunks():
    table = pa.concat_tables([TABLE, TABLE.slice(1), TABLE.slice(0, 1)])
    assert read_table(table_bytes(table)).equals(table)


def test_plain_tables_say_what_the_model_would_read():
    table = pa.table(
        {
            "flag": [True, None],
            "small": pa.array([1, None], "int8"),
            "half": pa.array([0.5, 1.5], pa.float32()),
            "text": pa.array(["a", None], pa.large_string()),
            "level": pa.array(["a", "b"]).dictionary_encode(),
            "code": pa.DictionaryArray.from_arrays(pa.array([1, None], "int32"), pa.array([7, 8])),
            "nothing": pa.array([None, None], pa.null()),
            "when": pa.array([0, 1], pa.timestamp("s")),
        },
    ).replace_schema_metadata({"pandas": "long"})
    flat = plain(table)
    kinds = ["double"] * 3 + ["string"] * 3 + ["null", "timestamp[s]"]
    assert [str(kind) for kind in flat.schema.types] == kinds
    assert flat.schema.metadata is None
    assert json.loads(json.dumps(flat.drop_columns(["when"]).to_pylist())) == [
        {"flag": 1.0, "small": 1.0, "half": 0.5, "text": "a", "level": "a", "code": "8", "nothing": None},
        {"flag": None, "small": None, "half": 1.5, "text": None, "level": "b", "code": None, "nothing": None},
    ]
