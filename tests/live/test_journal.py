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
        "due": "SELECT count(*) FROM early WHERE due",
    }
    found = {name: journal._db.execute(query).fetchone()[0] for name, query in queries.items()}
    return Counter({name: n for name, n in found.items() if n})


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
    assert journal.counts == before == counted(journal)
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
    assert (again.first_number, again.last_number, again.is_new, again.counts) == (3, 2, False, Counter())
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
    with journal.transaction() as changes:
        changes.add_early({"d": 4, "e": 5}, 5.0)
        changes.forget(5.0)
    assert journal.counts == Counter(early=3, due=1, waiting=1) == counted(journal)
    journal.put(packed(*"stuvwxyz", time=2.0))
    assert journal.counts == Counter(early=3, due=1, waiting=6, dropped=3)
    with journal.transaction() as changes:
        assert sorted(changes.early_labels()) == [1, 4, 5]
        assert [row.key for row in changes.oldest(10)] == ["v", "w", "x", "y", "z"]
        assert list(changes.due(10)) == ["a"]


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
    assert journal.counts == Counter(learned=1, waiting=1) == counted(journal)


def test_rows_with_an_id_are_put_once(journal):
    for _ in range(2):
        journal.put(packed("k"), id="i")
        with journal.transaction() as changes:
            changes.set_labels({"k": 1}, 1.0)
    assert journal.counts == Counter(learned=1) == counted(journal)


def test_a_file_that_cannot_be_written_is_told_and_nothing_is_counted(journal):
    journal._db.execute("PRAGMA query_only = 1")
    with pytest.raises(OSError, match="could not be read or written"):
        journal.put(packed("k"))
    journal._db.execute("PRAGMA query_only = 0")
    assert counted(journal) == journal.counts == Counter()


def test_rows_in_excess_of_twice_the_limit_are_dropped_the_oldest_first(journal):
    journal.put(packed("a", "b", time=2.0))
    journal.put(packed("c", time=1.0))
    journal.put(packed("d", "e", "f", "g", time=3.0))
    assert journal.counts == Counter(waiting=6, dropped=1)
    with journal.transaction() as changes:
        assert [row.key for row in changes.oldest(10)] == ["a", "b", "d", "e", "f", "g"]
        assert [row.key for row in changes.oldest(10, until=2.0)] == ["a", "b"]


ACTIONS = {
    "put": lambda changes, key, n, time: changes.put(packed(key, time=time)),
    "label": lambda changes, key, n, time: changes.set_labels({key: time}, time),
    "early": lambda changes, key, n, time: changes.add_early({key: time}, time),
    "remove": lambda changes, key, n, time: changes.remove([key]),
    "take back": lambda changes, key, n, time: changes.revert_labels({key: n % 2 or None}),
    "entry": lambda changes, key, n, time: changes.add_entry("learn", TABLE),
    "trim": lambda changes, key, n, time: changes.trim(n % 10),
    "drop": lambda changes, key, n, time: changes.drop_oldest(min(n % 2, changes.n("waiting"))),
    "forget": lambda changes, key, n, time: changes.forget(n),
    "due": lambda changes, key, n, time: changes.due(2),
}


@given(st.lists(st.tuples(st.sampled_from([*ACTIONS]), st.sampled_from("abcdef"), st.integers(0, 20)), max_size=25))
@settings(max_examples=60, deadline=None)
def test_what_is_counted_is_what_is_there(tmp_path_factory, steps):
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.db", limit=3, durable=False)
    for time, (action, key, n) in enumerate(steps):
        with journal.transaction() as changes:
            ACTIONS[action](changes, key, n, time)
        there = counted(journal)
        assert {name: n for name, n in journal.counts.items() if name != "dropped"} == there
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
