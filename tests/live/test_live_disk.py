"""Disks that are full, and files that are damaged, missing or of something else."""

import os
import sqlite3

import pytest
from live_models import columns_of, crash, features, regressor, rows_of

from streamboost.errors import NewerFormat, SnapshotError
from streamboost.live import LiveModel
from streamboost.live.journal import Journal, Transaction
from streamboost.live.journal.records import seal
from streamboost.persistence.object_graph import same_state


def test_a_request_that_is_written_down_is_answered_even_if_nothing_more_can_be(tmp_path, monkeypatch, caplog):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with LiveModel(tmp_path, regressor()) as live:
        live.label(["k"], [1.0])
        with monkeypatch.context() as patch:
            patch.setattr("streamboost.live.journal.Transaction.ripe", full)
            assert live.predict(features((1.0, "x")), ["k"]).tolist() == [0.0]
            assert (live.n_early, live.n_pending, live.rows) == (0, 1, 0)
            assert "could not be learned yet ([Errno 28] No space left" in caplog.text
            with pytest.raises(OSError, match="No space left"):  # what comes after it must not be learned before it
                live.learn(rows_of(3))
        live.learn(rows_of(3))
        assert (live.n_early, live.n_pending, live.rows) == (0, 0, 4)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_checkpoint_that_cannot_be_written_loses_nothing(tmp_path, monkeypatch, caplog, call):
    live, twin = LiveModel(tmp_path / "live", regressor(), checkpoint_every=20), regressor()

    def learn(seed):
        live.learn(rows_of(10, seed))
        twin.learn(*columns_of(rows_of(10, seed)))

    def full(*arguments):
        raise OSError(28, "No space left on device")

    for seed in range(5):
        learn(seed)
    files = {path.name: path.read_bytes() for path in live.directory.glob("checkpoint-*")}
    monkeypatch.setattr(os, call, full)
    for seed in range(5, 10):
        learn(seed)
    assert "No space left on device" in live.last_checkpoint_error
    assert caplog.text.count("Nothing is lost") == 3  # after 60, 80 and 100 rows, not at every request
    assert {path.name: path.read_bytes() for path in live.directory.glob("checkpoint-*")} == files
    with pytest.raises(OSError, match="No space left"):
        live.checkpoint()
    monkeypatch.undo()  # to open it, there has to be room for a lease
    live = LiveModel(crash(live, tmp_path))
    assert same_state(live.model, twin)
    live.checkpoint()
    assert live.last_checkpoint_error is None
    live.close()


def test_a_checkpoint_whose_tidying_failed_is_well_again_once_that_succeeds(tmp_path, monkeypatch):
    live = LiveModel(tmp_path, regressor())
    live.learn(rows_of(5))

    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Transaction, "trim", full)
    with pytest.raises(OSError, match="No space left"):
        live.checkpoint()
    monkeypatch.undo()
    assert live.last_checkpoint_error is not None
    path = live.checkpoint()
    assert live.last_checkpoint_error is None
    assert path == live.checkpoint()
    live.close()


def test_closing_with_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    live = LiveModel(tmp_path, regressor())
    live.learn(rows_of(30))
    model = live.model
    monkeypatch.setattr(os, "replace", lambda *arguments: (_ for _ in ()).throw(OSError(28, "No space left")))
    live.close()
    monkeypatch.undo()
    with LiveModel(tmp_path) as again:
        assert same_state(again.model, model)


def test_a_journal_without_room_refuses_and_changes_nothing(tmp_path):
    live, twin = LiveModel(tmp_path, regressor()), regressor()
    live.learn(rows_of(30))
    twin.learn(*columns_of(rows_of(30)))
    pages = live._journal._db.execute("PRAGMA page_count").fetchone()[0]
    live._journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match=r"could not be read or written \(database or disk is full\), so nothing"):
        live.learn(rows_of(3000, seed=1), id="i")
    with pytest.raises(OSError, match="disk is full"):
        live.remember([str(i) for i in range(3000)], columns_of(rows_of(3000))[0])
    assert same_state(live.model, twin)
    assert (live.rows, live.n_pending, live.journal_length) == (30, 0, 1)
    live._journal._db.execute("PRAGMA max_page_count = 1000000")
    assert not live.learn(rows_of(3000, seed=1), id="i").repeated
    twin.learn(*columns_of(rows_of(3000, seed=1)))
    assert same_state(live.model, twin)
    live.close()


def leave_a_journal(directory):
    """A directory with two entries after its checkpoint."""
    live = LiveModel(directory / "live", regressor())
    live.learn(rows_of(10))
    live.remember(["k"], features((1.0, "x")))
    live.label(["k"], [1.0])
    return crash(live, directory)


def trim(directory):
    journal = Journal(directory / "journal.db")
    with journal.transaction() as changes:
        changes.trim(1)
    journal.close()


def edit(directory, statement):
    database = sqlite3.connect(directory / "journal.db")
    database.create_function("seal", -1, seal)
    database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "journal.db").write_bytes(b"not a database, for sure" * 1000), "file is not a database"),
        (lambda d: [file.unlink() for file in d.glob("journal.db*")], "is missing, and what was learned after"),
        (lambda d: [file.unlink() for file in d.glob("checkpoint-*")], "a journal but no checkpoint"),
        (lambda d: edit(d, "PRAGMA user_version = 4"), "format version 4, and this streamboost reads .* up to 3"),
        (
            lambda d: edit(d, "UPDATE entries SET rows = zeroblob(9) WHERE number = 2"),
            "seal of 2 in the table",
        ),
        (lambda d: edit(d, "DELETE FROM entries WHERE number = 1"), "it holds 1 of what is entries, expected 2"),
        (trim, "holds entries 2 to 2, and the checkpoint"),
        (lambda d: edit(d, "DELETE FROM about"), "does not hold what it should"),
        (
            lambda d: edit(d, "UPDATE about SET value = 'other', seal = seal('name', 'other') WHERE name = 'name'"),
            "do not belong together",
        ),
        (lambda d: edit(d, "DROP TABLE rows"), "its tables are not those that were made"),
    ],
)
def test_a_damaged_or_foreign_journal_is_never_begun_anew(tmp_path, damage, words):
    directory = leave_a_journal(tmp_path)
    edit(directory, "PRAGMA wal_checkpoint(TRUNCATE)")
    damage(directory)
    before = {path.name: path.read_bytes() for path in directory.glob("checkpoint-*")}
    with pytest.raises((SnapshotError, FileNotFoundError, OSError), match=words) as caught:
        LiveModel(directory, regressor()).remember(["new"], features((1.0, "x")))
    if "format version" in words:
        assert caught.type is NewerFormat
    assert {path.name: path.read_bytes() for path in directory.glob("checkpoint-*")} == before


def test_a_row_that_was_damaged_while_it_waited_is_not_learned(tmp_path):
    live = LiveModel(tmp_path, regressor())
    live.remember(["k"], features((1.0, "x")))
    edit(tmp_path, "UPDATE rows SET row = zeroblob(length(row))")
    with pytest.raises(SnapshotError, match="checksum of the row of key 'k' does not match"):
        live.label(["k"], [1.0])
    assert (live.rows, live.n_pending) == (0, 1)
    live.close()
