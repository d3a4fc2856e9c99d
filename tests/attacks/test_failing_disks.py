"""Disks that fail while the journal is brought to them: the words say what is known, and nothing is learned twice."""

import sqlite3

import pytest
from live_models import crash, regressor, rows_of

from streamboost.live import LiveModel
from streamboost.live.journal import file


class FailingDisk:
    """A connection whose next COMMIT fails, before or after the data has reached the disk."""

    def __init__(self, db, is_written):
        self.db, self.is_written, self.fails = db, is_written, True

    def __getattr__(self, name):
        return getattr(self.db, name)

    def execute(self, query, *arguments):
        if query == "COMMIT" and self.fails:
            self.fails = False
            if self.is_written:
                self.db.execute(query)
            raise sqlite3.OperationalError("disk I/O error")
        return self.db.execute(query, *arguments)


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_a_request_that_may_be_on_disk_is_learned_once(tmp_path, is_written, dies):
    live = LiveModel(tmp_path / "live", regressor())
    live.learn(rows_of(10))
    live._journal._db = FailingDisk(live._journal._db, is_written)
    with pytest.raises(OSError, match="it is not known whether it holds the request") as caught:
        live.learn(rows_of(3, seed=1), id="again")
    assert "nothing was changed" not in str(caught.value)
    if dies:
        live = LiveModel(crash(live, tmp_path))
    done = live.learn(rows_of(3, seed=1), id="again")
    assert (done.repeated, live.rows) == (is_written, 13)
    live.close()


def test_no_request_is_taken_until_the_journal_was_opened_again(tmp_path, monkeypatch):
    live = LiveModel(tmp_path / "live", regressor())
    live._journal._db = FailingDisk(live._journal._db, is_written=True)
    with pytest.raises(OSError, match="not known"):
        live.learn(rows_of(3), id="one")
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise sqlite3.OperationalError("unable to open database file")

        patch.setattr(file.sqlite3, "connect", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="unable to open"):
                live.learn(rows_of(3, seed=1))
    assert live.learn(rows_of(3), id="one").repeated
    assert live.rows == 3
    live.close()
