"""One writer a directory, whatever is deleted there; and no path of the machine in what a server says."""

import pytest
from live_models import regressor, rows_of

from streamboost.live import LiveModel
from streamboost.persistence.checkpoints import CheckpointStore
from streamboost.serving.monitoring import without_paths


def test_a_deleted_lock_lets_no_second_writer_in(tmp_path):
    with LiveModel(tmp_path / "live", regressor()) as live:
        live.learn(rows_of(3))
        (tmp_path / "live" / "lock").unlink()
        with pytest.raises(BlockingIOError, match="in use by process"):
            LiveModel(tmp_path / "live")
    LiveModel(tmp_path / "live").close()


def test_a_lock_is_let_go_with_its_store(tmp_path):
    CheckpointStore(tmp_path / "a").close()
    store = CheckpointStore(tmp_path / "a")
    del store
    CheckpointStore(tmp_path / "a").close()


def test_sentences_name_files_without_their_place(tmp_path):
    told = f"the journal '{tmp_path}/m/journal.db' and the checkpoints in '{tmp_path}/m' are gone"
    assert without_paths(told, tmp_path / "m") == (
        "the journal 'journal.db' and the checkpoints in 'the model's directory' are gone"
    )
