"""Any bit of a journal that is flipped on disk is noticed, or does no harm: no row goes without a word."""

import logging
import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from live_models import Clock, crash, features, regressor, rows_of

from streamboost.errors import SnapshotError
from streamboost.live import LiveModel
from streamboost.live.journal import Journal
from streamboost.live.journal.file import SEALED
from streamboost.persistence.object_graph import same_state


def leave_files(tmp_path, *, checkpoints_log):
    """Files of a live model that was killed: entries, rows that wait, rows learned, early labels, ids."""
    live = LiveModel(tmp_path / "live", regressor(), clock=Clock(), expire_after=1e6, default=0.0)
    live.learn(rows_of(5), id="first")
    live.checkpoint()
    if checkpoints_log:
        live._journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for i in range(6):
        live.learn(rows_of(3, seed=i), id=f"learn {i}")
        live.remember([f"p{i}", f"q{i}"], features((float(i), "x"), (1.0, "y")), id=f"remember {i}")
        live.label([f"p{i}", f"e{i}"], [1.0, 2.0], id=f"label {i}")
    live.remember(["e0"], features((7.0, "x")))
    if checkpoints_log:
        live._journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return crash(live, tmp_path)


def contents(directory):
    """All that a journal holds, and the model that was learned from it."""
    with LiveModel(directory, clock=Clock(), expire_after=1e6, default=0.0) as live:
        live.expire()
        tables = {
            table: sorted(map(repr, live._journal._db.execute(f"SELECT {columns} FROM {table}")))
            for table, columns in SEALED.items()
            if table not in ("counts", "about")  # of changes, of which closing makes some
        }
        return tables, live.model, live.rows


def flips(data, n, seed):
    """Places of bits: one in every region, and many at random."""
    rng = random.Random(seed)
    return [*(8 * at + rng.randrange(8) for at in range(0, len(data), max(len(data) // n, 1))), *(
        rng.randrange(8 * len(data)) for _ in range(n)
    )]  # fmt: skip


def attack(tmp_path, name, checkpoints_log, n, seed=0):
    """Flip bits one by one; return how many were noticed, and how many did no harm."""
    directory = leave_files(tmp_path, checkpoints_log=checkpoints_log)
    data = (directory / name).read_bytes()
    assert data
    shutil.copytree(directory, tmp_path / "calm")
    expected = contents(tmp_path / "calm")
    noticed, harmless, told = 0, 0, list[str]()
    for bit in flips(data, n, seed):
        copied = tmp_path / "flipped"
        shutil.copytree(directory, copied)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (copied / name).write_bytes(flipped)
        try:
            found = contents(copied)
        except (SnapshotError, OSError) as error:
            noticed += 1
            told.append(str(error))
        else:
            harmless += 1
            assert found[0] == expected[0], f"bit {bit} of {name}"
            assert found[2] == expected[2]
            assert same_state(found[1], expected[1])
        shutil.rmtree(copied)
    assert all("copy" in sentence or "Upgrade" in sentence or "disk" in sentence for sentence in told)
    return noticed, harmless


@pytest.mark.parametrize(("name", "checkpoints_log"), [("journal.db", True), ("journal.db-wal", False)])
def test_a_flipped_bit_is_noticed_or_does_no_harm(tmp_path, name, checkpoints_log, request):
    n = 2000 if request.config.getoption("--long") else 40
    noticed, _ = attack(tmp_path, name, checkpoints_log, n)
    assert noticed > n / 4


def test_a_log_that_was_cut_off_is_told_with_what_is_lost(tmp_path):
    directory = leave_files(tmp_path, checkpoints_log=False)
    path = directory / "journal.db-wal"
    path.write_bytes(path.read_bytes()[: -5 * 4120])
    for _ in range(2):  # looking does not make it worse
        with pytest.raises(SnapshotError, match=r"the last \d+ acknowledged changes .* are lost.*delete .*-last"):
            LiveModel(directory)
    (directory / "journal.db-last").unlink()
    LiveModel(directory).close()


def test_where_nothing_was_brought_to_disk_it_goes_on_and_tells(tmp_path, caplog):
    directory = leave_files(tmp_path, checkpoints_log=False)
    path = directory / "journal.db-wal"
    path.write_bytes(path.read_bytes()[: -5 * 4120])
    with caplog.at_level(logging.ERROR):
        LiveModel(directory, durable=False).close()
    assert "acknowledged changes" in caplog.text
    LiveModel(directory).close()


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"1 2 3"])
def test_a_damaged_note_of_the_last_change_is_told_and_does_not_stop_anything(tmp_path, content, caplog):
    directory = leave_files(tmp_path, checkpoints_log=False)
    (directory / "journal.db-last").write_bytes(content)
    LiveModel(directory).close()
    assert "journal.db-last is damaged" in caplog.text


@pytest.mark.parametrize("table", [*SEALED])
def test_every_column_of_every_line_is_sealed(tmp_path, table):
    directory = leave_files(tmp_path, checkpoints_log=True)
    line = "name" if table in ("about", "counts") else "rowid"
    for column in SEALED[table].split(", "):
        copied = tmp_path / f"{table} {column}"
        shutil.copytree(directory, copied)
        value = "77" if column in ("number", "time", "since", "value") else "'other'"
        with closing(sqlite3.connect(copied / "journal.db")) as db:
            update = f"UPDATE {table} SET {column} = {value} WHERE {line} = (SELECT max({line}) FROM {table})"
            assert db.execute(update).rowcount == 1
            db.commit()
        with pytest.raises(SnapshotError, match=f"seal of .* in the table '{table}'"):
            Journal(copied / "journal.db")
