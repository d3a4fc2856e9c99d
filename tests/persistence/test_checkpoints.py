"""A directory of checkpoints: the last two kept, the newest whole one found, one writer at a time."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost import SGBRegressor
from streamboost.errors import NewerFormat, SnapshotError
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, checkpoint_paths, read_latest
from streamboost.persistence.object_graph import same_state


def model(n=50):
    rng = np.random.default_rng(n)
    fitted = SGBRegressor(n_estimators=2, max_depth=2, memory=32, random_state=0)
    fitted.learn(rng.normal(size=(n, 2)), rng.normal(size=n))
    return fitted


def saved(directory, n=3):
    with CheckpointStore(directory) as store:
        for k in range(1, n + 1):
            store.save(Checkpoint(model(10 * k), {"offset": k}, 10 * k, {"seen": np.arange(k)}))
    return checkpoint_paths(directory)


def test_what_was_saved_last_comes_back_whole(tmp_path):
    saved(tmp_path)
    found = read_latest(tmp_path)
    assert (found.rows, found.position, found.state["seen"].tolist()) == (30, {"offset": 3}, [0, 1, 2])
    assert same_state(found.model, model(30))


def test_the_last_two_are_kept(tmp_path):
    assert [path.name for path in saved(tmp_path, 5)] == [f"checkpoint-0000000{k}.safetensors" for k in (4, 5)]


def test_an_older_one_is_deleted_only_when_the_newer_is_there(tmp_path, monkeypatch):
    saved(tmp_path)
    before = checkpoint_paths(tmp_path)

    def replace(source, target):
        assert checkpoint_paths(tmp_path) == before
        raise OSError(28, "No space left on device")

    with CheckpointStore(tmp_path) as store, monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="No space left"):
            store.save(Checkpoint(model(99)))
    assert checkpoint_paths(tmp_path) == before
    assert read_latest(tmp_path).rows == 30


@settings(max_examples=60)
@given(data=st.data())
def test_any_byte_changed_or_cut_gives_the_one_before_and_says_so(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("store")
    newest = saved(directory)[-1]
    content = bytearray(newest.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    newest.write_bytes(content)
    with CheckpointStore(directory) as store:
        try:
            found = store.latest()
        except NewerFormat:  # a flipped version number is all it is
            return
        assert found.rows == 20
        assert newest.name in store.damaged[0]
        store.save(Checkpoint(model(40), rows=40))
        assert [path.name for path in store.paths()] == [newest.name.replace("3", k) for k in ("2", "3")]
    assert newest.with_suffix(".damaged").exists()


def test_where_not_one_is_whole_nothing_is_begun_anew(tmp_path):
    for path in saved(tmp_path):
        path.write_bytes(path.read_bytes()[:-1])
    with CheckpointStore(tmp_path) as store, pytest.raises(SnapshotError, match=r"no checkpoint in .* can be loaded"):
        store.latest()


def test_a_newer_format_is_no_damage(tmp_path):
    newest = saved(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes().replace(rb"\"version\":2,", rb"\"version\":4,"))
    with CheckpointStore(tmp_path) as store, pytest.raises(NewerFormat, match="Upgrade"):
        store.latest()
    assert newest.exists()


def test_a_saved_model_under_the_name_of_a_checkpoint_is_passed_over(tmp_path):
    newest = saved(tmp_path)[-1]
    model().save(newest)
    with CheckpointStore(tmp_path) as store:
        assert store.latest().rows == 20


def test_what_a_killed_process_left_half_written_is_cleared(tmp_path):
    saved(tmp_path)
    (tmp_path / ".0123456789abcdef.tmp").write_bytes(b"half")
    CheckpointStore(tmp_path).close()
    assert not (tmp_path / ".0123456789abcdef.tmp").exists()


def test_another_process_is_kept_out_until_the_first_is_gone(tmp_path):
    opened = (
        "from streamboost.persistence.checkpoints import CheckpointStore; import sys; s = CheckpointStore(sys.argv[1])"
    )
    words = [sys.executable, "-c", opened, str(tmp_path)]
    with CheckpointStore(tmp_path):
        refused = subprocess.run(words, capture_output=True, text=True)
        assert f"in use by process {os.getpid()}" in refused.stderr
    assert subprocess.run(words, capture_output=True).returncode == 0


def test_an_empty_directory_has_none_and_a_missing_one_is_named(tmp_path):
    with CheckpointStore(tmp_path / "new") as store:
        assert store.latest() is None
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        read_latest(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="is no directory"):
        read_latest(tmp_path / "nowhere")
