"""The file of cold keys, against a dict of dicts."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from streamboost.cluster.key_store import KeyStore, Packed
from streamboost.errors import SnapshotError


def test_the_store_goes_back_and_forth_between_cuts(tmp_path):
    """Against a dict of dicts, through branches and dropped cuts."""
    rng = np.random.default_rng(0)
    path = tmp_path / "keys.sqlite"
    store, present, cuts, number = KeyStore(path), {}, {}, 0
    for _ in range(400):
        act = rng.choice(["put", "forget", "cut", "back", "keep", "open"], p=[0.5, 0.1, 0.2, 0.1, 0.05, 0.05])
        key = b"s%d" % rng.integers(12)
        if act == "put":
            store.put([Packed(key, number, rng.bytes(20))])
            present = {**present, key: store.get(key)}
        elif act == "forget":
            store.put([Packed(key, 0, None)])
            present = {other: packed for other, packed in present.items() if other != key}
        elif act == "cut":
            number += 1
            more = Packed(key, number, rng.bytes(20))
            store.cut(number, {"n": number}, [more])
            present = {**present, key: more}
            cuts[number] = present
        elif act == "keep" and cuts:
            kept = [cut for cut in cuts if rng.uniform() < 0.5 or cut == number]
            store.keep(kept)
            cuts = {cut: cuts[cut] for cut in kept if cut in cuts}
        elif act in ("back", "open") and cuts:
            if act == "open":
                store.close()
                store = KeyStore(path)
                assert store.keys() == []  # stands on nothing until it goes back
            chosen = int(rng.choice(list(cuts)))
            assert store.go_back(chosen) == {"n": chosen}
            present = cuts[chosen]
        known = store.keys()
        assert {one: store.get(one) for one in known} == present
        assert sorted(store.cuts()) == sorted(cuts)
    n_states = store._db.execute("SELECT count(*) FROM states").fetchone()[0]
    n_needed = store._db.execute("SELECT count(*) FROM models WHERE state IS NOT NULL").fetchone()[0]
    assert n_states == n_needed
    store.close()


def test_old_versions_do_not_pile_up(tmp_path):
    store = KeyStore(tmp_path / "keys.sqlite")
    for number in range(1, 60):
        store.cut(number, {}, [Packed(b"s%d" % i, number, bytes(5000)) for i in range(20)])
        store.keep([number - 1, number])
    assert store._db.execute("SELECT count(*) FROM models").fetchone()[0] == 40
    assert len(store._chain) <= 4
    store.close()
    assert (tmp_path / "keys.sqlite").stat().st_size < 1_000_000


def test_a_file_in_use_by_another_process_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "keys.sqlite"
    code = f"import streamboost.cluster.key_store as k; s = k.KeyStore({str(path)!r}); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"1\n"
        monkeypatch.setattr("streamboost.cluster.key_store.PATIENCE", 0.1)
        with pytest.raises(BlockingIOError, match="in use by another process"):
            KeyStore(path)
        other.kill()
    KeyStore(path).close()


def test_a_file_of_a_newer_format_is_refused(tmp_path):
    KeyStore(tmp_path / "keys.sqlite").close()
    db = sqlite3.connect(tmp_path / "keys.sqlite")
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(SnapshotError, match="format 9"):
        KeyStore(tmp_path / "keys.sqlite")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OSError, match="could not be read or written"):
        KeyStore(tmp_path / "no such folder" / "keys.sqlite")
