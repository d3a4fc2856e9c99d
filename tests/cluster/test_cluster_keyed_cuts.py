"""One model per key: cuts, checkpoints, keys that move, workers that vanish, damaged files."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from keyed_streams import frame, states, stream, tiny

from streamboost.cluster import LocalCrew
from streamboost.cluster.crew import Cut
from streamboost.cluster.keyed import KeyedBooster
from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots
from streamboost.persistence.checkpoints import Checkpoint


def test_what_was_detached_is_attached_by_another_process(tmp_path):
    keys, columns, y = stream(200, "classification")
    rows = frame(keys, columns, "dicts", range(200))
    with KeyedBooster("key", tiny("classification"), workers=3, engine="local", hot=2, directory=tmp_path) as booster:
        booster.learn(rows[:100], y[:100])
        snapshots.save(Checkpoint(booster.detach()), tmp_path / "checkpoint")
        cut_states, classes = states(booster), booster.classes_.tolist()
        booster.learn(rows[100:], y[100:])
        final = states(booster)
    cut = snapshots.load(tmp_path / "checkpoint").model
    with KeyedBooster("key", tiny("classification"), workers=3, engine="local", hot=4, directory=tmp_path) as booster:
        booster.attach(cut)
        assert states(booster) == cut_states
        assert booster.classes_.tolist() == classes
        assert booster.n_keys == len(cut_states)
        booster.learn(rows[100:], y[100:])
        assert states(booster) == final
        booster.attach(cut)  # again, in the same process
        assert states(booster) == cut_states


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 5), (1, 3), (4, 1)])
def test_keys_move_when_the_number_of_workers_changes(tmp_path, before, after):
    keys, columns, y = stream(300, n_keys=30)
    rows = frame(keys, columns, "dicts", range(300))
    options = {"engine": "local", "hot": 3, "directory": tmp_path}
    with KeyedBooster("key", tiny("regression"), workers=before, **options) as booster:
        booster.learn(rows[:200], y[:200])
        booster.forget(keys[0])
        cut, cut_states = booster.detach(), states(booster)
        booster.learn(rows[200:], y[200:])
        final = states(booster)
    with KeyedBooster("key", tiny("regression"), workers=after, **options) as booster:
        booster.attach(cut)
        assert states(booster) == cut_states
        assert booster.n_keys == len(cut_states)
        assert sum(worker["rows"] for worker in booster.metrics()) == sum(map(booster.key_rows, booster.keys()))
        booster.learn(rows[200:], y[200:])
        assert states(booster) == final
        cuts = [booster.detach(), booster.detach()]
        booster.confirm(cuts[0])
        booster.learn(rows[200:], y[200:])
        cuts.append(booster.detach())
        assert list(tmp_path.glob(f"worker-*/keys-of-{before}.sqlite"))  # one of the last two checkpoints needs them
        booster.confirm(cuts[2])
        booster.detach()
    assert not list(tmp_path.glob(f"worker-*/keys-of-{before}.sqlite*"))  # once no checkpoint needs them
    with KeyedBooster("key", tiny("regression"), workers=before, **options) as booster:
        booster.attach(cuts[0])
        assert states(booster) == final


def test_wrong_cuts_are_refused(tmp_path):
    with KeyedBooster("key", tiny("regression"), directory=tmp_path / "a") as booster:
        booster.learn([{"key": 1, "x": 1.0}], [1.0])
        cut = booster.detach()
        with pytest.raises(ValueError, match="expected one of a 'keyed'"):
            booster.attach(Cut("other"))
        with pytest.raises(ValueError, match="expected one of a 'keyed'"):
            booster.attach("something else")
    options = {"directory": tmp_path / "b", "workers": 2, "engine": "local"}
    with (
        KeyedBooster("key", tiny("regression"), **options) as booster,
        pytest.raises(ValueError, match="Name the directory it was made in"),
    ):
        booster.attach(cut)


def test_without_a_directory_nothing_can_be_detached():
    with KeyedBooster("key") as booster, pytest.raises(ValueError, match="directory is None"):
        booster.detach()


def test_a_cut_writes_only_what_changed(tmp_path):
    with KeyedBooster("key", tiny("regression"), directory=tmp_path) as booster:
        booster.learn([{"key": i, "x": 1.0} for i in range(50)], np.ones(50))
        booster.detach()
        assert booster.metrics()[0]["packed"] == 50
        booster.learn([{"key": i, "x": 1.0} for i in range(3)], np.ones(3))
        booster.detach()
        assert booster.metrics()[0]["packed"] == 53


def read_all(directory, cut):
    with KeyedBooster("key", tiny("regression"), directory=directory) as booster:
        booster.attach(cut)
        return states(booster)


def test_damaged_files_are_noticed(tmp_path):
    with KeyedBooster("key", tiny("regression"), directory=tmp_path) as booster:
        booster.learn([{"key": i, "x": 1.0} for i in range(20)], np.ones(20))
        cut = booster.detach()
    path = tmp_path / "worker-00000" / "keys-of-1.sqlite"
    whole = path.read_bytes()

    with sqlite3.connect(path) as db:
        state = db.execute("SELECT state FROM states WHERE id = 5").fetchone()[0]
        db.execute("UPDATE states SET state = ? WHERE id = 5", (state[:-9] + bytes(9),))
    db.close()
    with pytest.raises(SnapshotError, match="is damaged: the checksum of key"):
        read_all(tmp_path, cut)

    for damage in (whole[: len(whole) // 2], bytes(100) + whole[100:], b"no database at all" * 100):
        path.write_bytes(damage)
        with pytest.raises(SnapshotError, match=r"damaged|no cut"):
            read_all(tmp_path, cut)

    path.unlink()
    with pytest.raises(SnapshotError, match="there is no cut"):
        read_all(tmp_path, cut)


class FragileCrew(LocalCrew):
    """A local crew whose workers vanish at random, between two messages."""

    can_die = True

    def __init__(self, *args, seed: int, **named) -> None:
        self.dice = np.random.default_rng(seed)
        self.n_deaths = 0
        super().__init__(*args, **named)

    def _send(self, worker, message):
        if message[0] in ("call", "ask", "save") and self.dice.uniform() < 0.08:
            self._stations[worker] = None  # its memory is gone, its file stays
        station = self._stations[worker]
        return None if station is None else station.handle(*message)

    def _wait(self, worker, handle):
        if handle is None:
            from streamboost.cluster.recovery import WorkerDied

            self.n_deaths += 1
            raise WorkerDied("gone")
        return handle


@pytest.mark.parametrize("seed", range(2))
def test_workers_that_vanish_at_random_change_nothing(tmp_path, monkeypatch, seed):
    keys, columns, y = stream(240, n_keys=12)
    rows = frame(keys, columns, "dicts", range(240))
    crews = []

    def fragile(cls, options, *, workers, directory, **_):
        crews.append(FragileCrew(cls, options, workers, directory, cut_every=5, seed=seed))
        return crews[-1]

    found = []
    for is_fragile in (False, True):
        with monkeypatch.context() as patch:
            if is_fragile:
                patch.setattr("streamboost.cluster.keyed.make_crew", fragile)
            with KeyedBooster("key", tiny("regression"), workers=2, engine="local", hot=3,
                              directory=tmp_path / str(is_fragile)) as booster:  # fmt: skip
                said = [booster.learn(rows[s : s + 8], y[s : s + 8]).tolist() for s in range(0, 240, 8)]
                found.append((said, states(booster), list(map(booster.key_rows, booster.keys()))))
    assert crews[0].n_deaths > 5
    assert found[0] == found[1]


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    keys, columns, y = stream(100)
    rows = frame(keys, columns, "dicts", range(100))
    with KeyedBooster("key", tiny("regression"), hot=2, directory=tmp_path) as booster:
        booster.learn(rows[:60], y[:60])
        booster.detach()
        booster.learn(rows[60:], y[60:])
        before = states(booster)

        def full(*_):
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr("streamboost.cluster.key_store.KeyStore.put", full)
            with pytest.raises(OSError, match="disk full"):
                booster.predict(rows)
            with pytest.raises(OSError, match="disk full"):
                booster.detach()
        assert states(booster) == before
        cut = booster.detach()
        booster.learn(rows, y)
        booster.attach(cut)
        assert states(booster) == before
