"""The models of cold keys on disk: checkpoints that write what changed, and what becomes of damage and of kills."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from keyed_streams import frame, states, stream, tiny

from streamboost import KeyedModel
from streamboost.errors import SnapshotError
from streamboost.keyed import store as stores
from streamboost.keyed.store import KeyStore, Packed
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, read_latest


def taught(n_keys=12, n=150, **options):
    keys, columns, y = stream(n, n_keys=n_keys)
    model = KeyedModel(tiny("regression"), key="key", **options)
    model.learn(frame(keys, columns, "dicts", range(n)), y)
    return model


def more(model, keys, seed=1):
    rng = np.random.default_rng(seed)
    model.learn([{"key": key, "a": rng.uniform()} for key in keys], rng.normal(size=len(keys)))


def size_of(directory):
    return sum(file.stat().st_size for file in (directory / "keys").iterdir())


@pytest.mark.parametrize("hot", [2, 1000])
def test_a_checkpoint_writes_what_changed_and_the_last_two_can_be_gone_back_to(tmp_path, hot):
    model, expected = taught(hot=hot), []
    with CheckpointStore(tmp_path) as store:
        for i in range(5):
            more(model, ["Bonn", "key 7"], seed=i)
            before = size_of(tmp_path) if i else 0
            store.save(Checkpoint(model, rows=i))
            expected.append(states(model))
            if i == 0:
                whole = size_of(tmp_path)
            elif i == 1:
                assert 0 < size_of(tmp_path) - before < whole / 3
    for i in (4, 3):
        found = read_latest(tmp_path)
        assert found.rows == i
        assert states(found.model) == expected[i]
        assert found.model.hot == hot
        sorted(tmp_path.glob("checkpoint-*"))[-1].unlink()


def test_files_do_not_grow_without_end_and_go_when_nobody_needs_them(tmp_path):
    model = taught(n_keys=6)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(model))
        whole = size_of(tmp_path)
        for i in range(30):
            more(model, model.keys(), seed=i)
            store.save(Checkpoint(model))
            assert size_of(tmp_path) < 8 * whole
        expected = states(model)
    assert states(read_latest(tmp_path).model) == expected


def test_what_a_killed_process_wrote_after_its_checkpoint_is_not_there(tmp_path):
    model = taught(hot=1)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(model))
        expected = states(model)
        more(model, model.keys())  # goes to disk, as only one is kept in memory
        model.predict([{"key": key, "a": 1.0} for key in [*model.keys()]])
        again = read_latest(tmp_path).model
        assert states(again) == expected
        assert states(model) != expected
        [first] = [file.name for file in (tmp_path / "keys").iterdir()]
    with CheckpointStore(tmp_path) as store:  # the next process; after two checkpoints the rest is gone
        again = store.latest().model
        for i in range(3):
            more(again, again.keys(), seed=i)
            store.save(Checkpoint(again))
        referred = set().union(*again._store._saved)
        assert {file.name for file in (tmp_path / "keys").iterdir()} == referred
        assert first not in referred
        assert states(store.latest().model) == states(again)


def test_whoever_has_read_a_checkpoint_keeps_it_while_its_files_go(tmp_path):
    model = taught(n_keys=5)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(model))
        reader, expected = read_latest(tmp_path).model, states(model)
        for i in range(12):
            more(model, model.keys(), seed=i)
            store.save(Checkpoint(model))
        assert states(reader) == expected
        more(reader, ["Bonn"])  # and writes nothing there
        reader.hot = 1
        reader.predict([{"key": key, "a": 1.0} for key in [*reader.keys()]])
        assert states(read_latest(tmp_path).model) == states(model)


def test_a_directory_can_be_copied_and_a_model_moved_to_another(tmp_path):
    model = taught()
    with CheckpointStore(tmp_path / "a") as a, CheckpointStore(tmp_path / "b") as b:
        a.save(Checkpoint(model))
        shutil.copytree(tmp_path / "a", tmp_path / "copy", ignore=shutil.ignore_patterns("l*"))
        b.save(Checkpoint(model))
        expected = states(model)
    shutil.rmtree(tmp_path / "a")
    assert states(read_latest(tmp_path / "copy").model) == expected
    assert states(read_latest(tmp_path / "b").model) == expected


@pytest.mark.parametrize("damage", ["flip", "cut", "lose"])
def test_damage_is_told(tmp_path, damage):
    model = taught(n_keys=4)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(model))
    [file] = (tmp_path / "keys").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    if damage == "lose":
        file.unlink()
    with pytest.raises(SnapshotError, match=r"checksum|in no file|cannot be read"):
        states(read_latest(tmp_path).model)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"0" * 100)
    with pytest.raises(SnapshotError, match=r"called '\.\./secret'"):
        KeyStore.opened(tmp_path, ["../secret"], np.zeros(0, np.uint8), np.zeros((0, stores.PLACE.size), np.uint8))


def test_a_new_file_is_begun_where_one_is_large(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "FILE_BYTES", 100)
    store = KeyStore()
    store.move_to(tmp_path)
    for i in range(40):
        store.put([Packed(b"i%d" % (i % 10), i, bytes([i]) * 30)])
    files, tokens, places = store.save_in(tmp_path)
    assert len([name for name in files if name]) >= 3
    again = KeyStore.opened(tmp_path, files, tokens, places)
    assert [again.get(b"i%d" % i) for i in range(10)] == [
        Packed(b"i%d" % i, 30 + i, bytes([30 + i]) * 30) for i in range(10)
    ]
