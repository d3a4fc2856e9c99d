"""Crashes, restarts and kills: a live model goes on as if nothing had happened."""

import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import small_growth
import small_tiles
from live_models import Clock, classifier, columns_of, crash, features, regressor, rows_of

from streamboost import SGBClassifier
from streamboost.errors import SnapshotError
from streamboost.live import LiveModel
from streamboost.live.journal import Journal
from streamboost.persistence import snapshots
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, checkpoint_paths
from streamboost.persistence.object_graph import same_state


def test_what_is_kept_in_state_is_as_exact_as_the_model(tmp_path):
    def count(state, batch):
        state["rows"] = state.get("rows", 0) + len(batch.y)
        state["replayed"] = state.get("replayed", 0) + len(batch.y) * batch.is_replay

    live = LiveModel(tmp_path / "live", regressor(), on_learned=count)
    live.learn(rows_of(10))
    live.checkpoint()
    live.learn(rows_of(7))
    live = LiveModel(crash(live, tmp_path), on_learned=count)
    live.learn(rows_of(3))
    assert live.state == {"rows": 20, "replayed": 7}
    live.close()


def test_a_seed_that_was_left_out_is_the_same_after_a_crash(tmp_path):
    live = LiveModel(tmp_path / "live", regressor(random_state=None, max_features=1))
    live.learn(rows_of(100))
    model = live.model
    again = LiveModel(crash(live, tmp_path))
    assert same_state(again.model, model)
    again.close()


@pytest.mark.parametrize(
    "model",
    [
        regressor(loss="absolute_error", iterate="average"),
        regressor(loss="poisson", memory=(32, 64), update_mode="minibatch"),
        regressor(learner="linear"),
        regressor(learner="mlp", n_estimators=12),
        classifier(),
        classifier(loss="logistic", n_jobs=2),
    ],
    ids=["absolute", "poisson", "linear", "mlp", "softmax", "logistic"],
)
def test_a_replay_is_bit_equal_whatever_the_model(tmp_path, model):
    table = rows_of(300)
    target = np.abs(np.round(table["target"].to_numpy()))
    if isinstance(model, SGBClassifier):
        target = target > 0 if model.loss == "logistic" else np.array(["low", "mid", "high"])[target.astype(int) % 3]
    table = table.set_column(2, "target", pa.array(target))
    live = LiveModel(tmp_path / "live", model)
    for start in range(0, 200, 40):
        live.learn(table.slice(start, 40))
    live.checkpoint()
    X = table.drop_columns(["target"])
    live.remember([str(i) for i in range(100)], X.slice(200))
    live.label([str(i) for i in range(0, 100, 2)], table["target"].slice(200).take(list(range(0, 100, 2))))
    left = live.model
    again = LiveModel(crash(live, tmp_path))
    assert again.rows == 250
    assert same_state(again.model, left)
    again.close()


def test_a_new_directory_needs_a_model_and_an_old_one_does_not(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no model yet\. Pass one"):
        LiveModel(tmp_path)
    with LiveModel(tmp_path, regressor(), target="price") as live:
        live.learn(rows_of(10, target="price"))
        model = live.model
    with LiveModel(tmp_path, regressor(n_estimators=1)) as live:  # ignored
        assert same_state(live.model, model)
        assert live.target == "price"
    with pytest.raises(ValueError, match=r"target is 'cost', but the model in .* learns 'price'"):
        LiveModel(tmp_path, target="cost")


def test_a_model_that_a_run_has_left_goes_on_live(tmp_path):
    model, twin = regressor(), regressor()
    for seen in (model, twin):
        seen.learn(*columns_of(rows_of(50)))
    with CheckpointStore(tmp_path / "run") as store:
        store.save(Checkpoint(model, position={"file": 77}, rows=50, state={"score": [1.0]}))
    live = LiveModel(tmp_path / "run", target="target")
    assert (live.rows, live.state) == (50, {"score": [1.0]})
    live.learn(rows_of(10, seed=1))
    twin.learn(*columns_of(rows_of(10, seed=1)))
    directory = crash(live, tmp_path)
    newest = max(directory.glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-1])  # back to that of the run
    again = LiveModel(directory)
    assert same_state(again.model, twin)
    assert (again.rows, again.target) == (60, "target")
    again.close()


def test_a_model_that_was_learned_elsewhere_meanwhile_is_not_mixed_with_an_old_journal(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.learn(rows_of(10))
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(regressor(), position=5, rows=99))
    with pytest.raises(SnapshotError, match="do not belong together"):
        LiveModel(tmp_path)


def test_falling_back_to_the_older_checkpoint_still_replays_to_the_exact_state(tmp_path, caplog):
    live = LiveModel(tmp_path / "live", regressor(), checkpoint_every=40)
    for seed in range(12):
        live.learn(rows_of(15, seed))
    live.remember(["k"], features((1.0, "x")))
    live.label(["k"], [1.0])
    model = live.model
    directory = crash(live, tmp_path)
    [_, newest] = sorted(directory.glob("checkpoint-*"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        again = LiveModel(directory)
    assert "checksum does not match" in caplog.text
    assert same_state(again.model, model)
    again.learn(rows_of(60, seed=20))  # a new checkpoint, and trimming, after the fall
    model = again.model
    again = LiveModel(crash(again, tmp_path))
    assert same_state(again.model, model)
    again.close()


def test_the_journal_stays_short_and_the_older_checkpoint_has_what_it_needs(tmp_path):
    with LiveModel(tmp_path, regressor(), checkpoint_every=50, durable=False) as live:
        longest = 0
        for seed in range(60):
            live.learn(rows_of(10, seed), id=str(seed))
            longest = max(longest, live.journal_length)
        assert longest == 9  # of 4 requests since the last checkpoint, and 5 before it
    older = snapshots.load(min(tmp_path.glob("checkpoint-*")))
    database = sqlite3.connect(tmp_path / "journal.db")
    assert database.execute("SELECT min(number) FROM entries").fetchone()[0] == older.position + 1
    database.close()


def test_the_file_does_not_grow_with_the_stream(tmp_path):
    clock, sizes = Clock(), []
    options = {"checkpoint_every": 100, "remember_ids": 20, "pending_limit": 30, "durable": False, "clock": clock}
    with LiveModel(tmp_path, regressor(), **options) as live:
        for part in range(200):
            keys = [f"{part}-{i}" for i in range(10)]
            live.predict(columns_of(rows_of(10, part))[0], keys)
            live.label(keys[::2], np.ones(5), id=str(part))
            live.label([f"never {part}"], [1.0])
            clock.now += 1
            sizes.append(sum(file.stat().st_size for file in tmp_path.glob("journal.db")))
        assert (live.n_pending, live.n_early) == (25, 30)
        assert live._journal.counts["learned"] == 30
    assert sizes[-1] <= 1.5 * sizes[50]


@pytest.mark.parametrize("memory", ["fixed", "grow"])
def test_a_process_that_is_killed_again_and_again_ends_with_the_same_model(tmp_path, memory):
    script = Path(__file__).with_name("killed_live.py")
    command = [sys.executable, str(script), str(tmp_path), *(["grow"] if memory == "grow" else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 10  # kills
    straight, killed = (LiveModel(tmp_path / name) for name in ("straight", "killed"))
    assert same_state(killed.model, straight.model)
    assert killed.rows == straight.rows > 500
    names = ["n_pending", "n_early", "n_corrected", "n_expired", "n_crowded", "n_quarantined"]
    figures = {name: getattr(straight, name) for name in names}
    assert {name: getattr(killed, name) for name in names} == figures
    assert min(figures.values()) > 0
    assert straight.n_expired > straight.n_crowded
    kept = [live._journal._db.execute("SELECT id, verb, answer FROM ids").fetchall() for live in (straight, killed)]
    assert kept[0] == kept[1]  # answers, too
    reasons = " ".join(str(straight._journal.find_id(id)[1]) for id, *_ in kept[0])
    assert all(words in reasons for words in ("bad luck", "but it held", "the model would have", "is missing"))
    for live in (straight, killed):
        live.close()
    if memory == "grow":
        assert killed.model.committee_.boosters[0].rests
        for name in ("straight", "killed"):
            needed = {segment for path in checkpoint_paths(tmp_path / name) for segment in snapshots.segments_of(path)}
            assert needed == {path.name for path in (tmp_path / name / "segments").iterdir()}
            assert len(needed) > 3


def test_with_a_damaged_segment_the_checkpoint_before_and_the_journal_tell_all(tmp_path, monkeypatch):
    for small in (small_tiles, small_growth):
        small.shrink(monkeypatch.setattr)
    live = LiveModel(tmp_path / "live", regressor(memory="grow"), checkpoint_every=100)
    for seed in range(10):
        live.learn(rows_of(55, seed=seed))
    assert live.model.committee_.boosters[0].rests
    left, directory = live.model, crash(live, tmp_path)
    older, newer = map(snapshots.segments_of, checkpoint_paths(directory))
    victim = directory / "segments" / min(newer - older)
    victim.write_bytes(victim.read_bytes()[::-1])
    again = LiveModel(directory)
    assert victim.name in again._store.damaged[0]
    assert same_state(again.model, left)
    again.close()


def test_what_is_written_down_is_not_read_again_to_be_learned(tmp_path, monkeypatch):
    clock = Clock()
    live = LiveModel(tmp_path / "live", regressor(), expire_after=10.0, default=0.0, clock=clock)
    monkeypatch.setattr(Journal, "entries", lambda *_: pytest.fail("the journal was read"))
    live.learn(rows_of(20), id="i")
    live.learn_together([rows_of(3, seed=1), rows_of(4, seed=2)], [None, "j"])
    live.remember(["k", "l", "m"], features((1.0, "x"), (2.0, "y"), (3.0, "new")))
    assert live.label(["k", "early"], [1.0, 2.0]).learned == 1
    assert live.label(["k", "l"], [3.0, 4.0])[:2] == (1, 1)
    live.remember(["early"], features((1.0, "x")))
    clock.now += 10
    assert live.expire() == 1
    assert live.rows == 27 + 5
    monkeypatch.undo()
    model = live.model
    again = LiveModel(crash(live, tmp_path))
    assert same_state(again.model, model)
    again.close()


def test_a_request_that_breaks_off_once_it_is_written_down_is_learned_with_the_next(tmp_path):
    live, twin = LiveModel(tmp_path, regressor()), regressor()

    def die():
        raise KeyboardInterrupt

    for seed in range(3):
        live._learn_written = die
        with pytest.raises(KeyboardInterrupt):
            live.learn(rows_of(10, seed), id=str(seed))
        del live._learn_written
        assert live.rows == 10 * seed
        assert live.learn(rows_of(10, seed), id=str(seed)).repeated
        twin.learn(*columns_of(rows_of(10, seed)))
        assert (live.rows, same_state(live.model, twin)) == (10 * seed + 10, True)
    live.close()
