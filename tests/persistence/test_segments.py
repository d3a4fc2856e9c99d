"""Long arrays beside checkpoints: written where they changed, removed when nobody needs them, whole or named."""

import contextlib
import errno
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from safetensors import safe_open
from small_tiles import ROWS, shrink

import streamboost
from streamboost import SGBRegressor
from streamboost.errors import NewerFormat, SnapshotError
from streamboost.persistence import segments, snapshots, tiles
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, checkpoint_paths, read_latest
from streamboost.persistence.object_graph import same_state


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    shrink(monkeypatch.setattr)


class Window:
    """The arrays of a long memory: a ring of rows, codes across, and leaves that are written anew in columns."""

    def __init__(self, n_rows=40 * ROWS, d=3, n_learners=10):
        self.rng = np.random.default_rng(0)
        self.at = 0
        self.arrays = {
            "X": np.zeros((n_rows, d)),
            "weight": np.zeros(n_rows),
            "codes": np.zeros((d, n_rows), np.uint8),
            "leaf_ids": np.zeros((n_rows, n_learners), np.uint16),
        }

    def append(self, n):
        X, rng = self.arrays["X"], self.rng
        where = (self.at + np.arange(n)) % len(X)
        X[where] = rng.normal(size=(n, X.shape[1]))
        self.arrays["weight"][where] = rng.uniform(size=n)
        self.arrays["codes"][:, where] = rng.integers(0, 64, size=(len(self.arrays["codes"]), n))
        self.arrays["leaf_ids"][where] = rng.integers(0, 128, size=(n, self.arrays["leaf_ids"].shape[1]))
        self.at = (self.at + n) % len(X)

    def refit(self, learner):
        column = self.arrays["leaf_ids"][:, learner % self.arrays["leaf_ids"].shape[1]]
        column[:] = self.rng.integers(0, 128, size=len(column))

    def rebin(self):
        codes = self.arrays["codes"]
        codes[:] = self.rng.integers(0, 64, size=codes.shape)

    def add_feature(self):
        self.arrays["X"] = np.pad(self.arrays["X"], ((0, 0), (0, 1)), constant_values=np.nan)

    def copy(self):
        return {name: array.copy() for name, array in self.arrays.items()}


def sizes(directory):
    return {path: path.stat().st_size for path in Path(directory).rglob("*.*") if path.is_file()}


def segment_files(directory):
    folder = Path(directory) / segments.FOLDER
    return sorted(folder.iterdir()) if folder.is_dir() else []


def needed(directory):
    return {name for path in checkpoint_paths(Path(directory)) for name in snapshots.segments_of(path)}


def model(n=300, memory=256):
    rng = np.random.default_rng(n)
    fitted = SGBRegressor(n_estimators=4, max_depth=3, memory=(memory, 32), random_state=0)
    X = rng.normal(size=(n, 3))
    fitted.learn(X, X[:, 0] * X[:, 1])
    return fitted


def two_apart(directory):
    """Two checkpoints that share nothing; return the segments that only the newer needs."""
    with CheckpointStore(directory) as store:
        window = Window()
        window.append(len(window.arrays["X"]))
        window.rebin()
        store.save(Checkpoint(window.arrays, rows=1))
        before = set(segment_files(directory))
        for name, array in window.arrays.items():
            array += np.ones_like(array) if name != "codes" else np.uint8(100)
        store.save(Checkpoint(window.arrays, rows=2))
    only_newer = [path for path in segment_files(directory) if path not in before]
    assert only_newer
    return only_newer


# What comes back.


def test_a_model_with_a_long_memory_comes_back_bit_for_bit_and_goes_on_the_same(tmp_path):
    fitted = model()
    with CheckpointStore(tmp_path) as store:
        path = store.save(Checkpoint(fitted, {"row": 300}, 300))
    assert segment_files(tmp_path)
    for found in (read_latest(tmp_path), streamboost.load(path)):
        assert (found.position, found.rows) == ({"row": 300}, 300)
        assert same_state(found.model, fitted)
    X = np.random.default_rng(1).normal(size=(200, 3))
    for one in (fitted, found.model):
        one.learn(X, X[:, 0])
    assert same_state(found.model, fitted)


def test_a_saved_model_is_one_file_however_long_its_memory(tmp_path):
    fitted = model()
    fitted.save(tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == ["model.safetensors"]
    with CheckpointStore(tmp_path / "run") as store:
        store.save(Checkpoint(fitted))
    read_latest(tmp_path / "run").model.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_a_model_with_the_default_memories_has_no_segments_and_the_older_format(tmp_path, monkeypatch):
    monkeypatch.undo()  # tiles as they are
    fitted = SGBRegressor(random_state=0)
    fitted.learn(np.random.default_rng(0).normal(size=(100, 20)), np.arange(100.0))
    with CheckpointStore(tmp_path) as store:
        path = store.save(Checkpoint(fitted))
    assert sorted(name for name in os.listdir(tmp_path) if "lease" not in name) == [path.name, "lock"]
    assert rb"\"version\":2," in path.read_bytes()


def test_an_older_version_asks_for_an_upgrade(tmp_path, monkeypatch):
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(model()))
    monkeypatch.setattr(snapshots, "VERSION_WITH_SEGMENTS", 2)  # as it was before there were segments
    with pytest.raises(NewerFormat, match=r"its format version is 3, .* up to 2\. Upgrade"):
        read_latest(tmp_path)


def test_arrays_of_every_kind_and_layout_come_back(tmp_path):
    n = 5 * ROWS
    arrays = {
        "float": np.random.default_rng(0).normal(size=(n, 3)),
        "nan": np.full(n, np.nan),
        "strided": np.arange(4 * n).reshape(n, 4)[:, ::2],
        "upside down": np.arange(n)[::-1],
        "Fortran": np.asfortranarray(np.arange(3.0 * n).reshape(n, 3)),
        "text": np.array([f"row {i}" for i in range(n)]),
        "dates": np.arange(n).astype("M8[s]"),
        "big-endian": np.arange(n, dtype=">i8"),
        "bool": np.arange(4 * n).reshape(n, 4) % 3 == 0,
        "cube": np.arange(6 * n).reshape(n, 2, 3),
        "lying cube": np.arange(6 * n).reshape(2, 3, n),
        "shared": (shared := np.arange(n)),
        "again": shared,
    }
    with CheckpointStore(tmp_path) as store:
        path = store.save(Checkpoint(arrays))
    assert len({node["name"] for node in header_nodes(path) if node["kind"] == "tiles"}) == len(arrays) - 1
    found = read_latest(tmp_path).model
    assert same_state(found, arrays)
    assert found["shared"] is found["again"]
    assert all(array.flags.writeable and array.flags.c_contiguous for array in found.values())


def header_nodes(path):
    with safe_open(path, "numpy") as opened:
        return json.loads(opened.metadata()["streamboost"])["nodes"]


# How much is written.


def written(n_rows, n_new, n_times, directory):
    """Append so many rows to a full window, so often; return the bytes written for each checkpoint."""
    window, costs = Window(n_rows), []
    window.append(n_rows)
    with CheckpointStore(directory) as store:
        store.save(Checkpoint(window.arrays))
        for _ in range(n_times):
            before = sizes(directory)
            window.append(n_new)
            store.save(Checkpoint(window.arrays))
            costs.append(sum(size for path, size in sizes(directory).items() if path not in before))
    assert same_state(read_latest(directory).model, window.arrays)
    return np.array(costs)


@pytest.fixture
def middling_tiles(monkeypatch):
    """Tiles that are large beside their line in a table."""
    monkeypatch.setattr(tiles, "ROWS", 256)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1 << 18)


@pytest.mark.usefixtures("middling_tiles")
def test_a_checkpoint_writes_what_is_new_not_the_window(tmp_path):
    arrays = Window(n_rows=256).arrays.values()
    n_bytes = sum(array.nbytes for array in arrays) / 256  # of a row
    n_tiles = sum(len(list(tiles.tiles(array, tiles.tile_shape(array)))) for array in arrays) / 256
    short = written(8192, 1024, 8, tmp_path / "short").mean()
    long = written(65_536, 1024, 8, tmp_path / "long").mean()
    more = written(65_536, 4096, 8, tmp_path / "more").mean()
    assert short < 2 * 1024 * n_bytes + 8192 * n_tiles * segments.TILE.itemsize + 4000
    longer_table = (65_536 - 8192) * n_tiles * segments.TILE.itemsize
    assert long - short < 1.2 * longer_table + 1000  # eight times the window, and only the list of its tiles is longer
    assert 0.8 < (more - long) / (3072 * n_bytes) < 1.2  # and of more rows, so many


@pytest.mark.usefixtures("middling_tiles")
def test_while_a_window_fills_bytes_for_each_row_stay_flat(tmp_path):
    n_rows, step = 32_768, 2048
    window, costs = Window(n_rows), []
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
        for _ in range(2 * n_rows // step):
            before = sizes(tmp_path)
            window.append(step)
            store.save(Checkpoint(window.arrays))
            costs.append(sum(size for path, size in sizes(tmp_path).items() if path not in before) / step)
    tenths = np.array(costs).reshape(-1, 4).mean(axis=1)
    assert tenths.max() < 2.2 * tenths.min()


@pytest.mark.usefixtures("middling_tiles")
def test_an_array_that_is_written_anew_each_time_costs_itself_and_no_other(tmp_path):
    """As the sums that are carried do: of the rows beside it, only new ones are written."""
    n_rows, step = 65_536, 2048
    window, rng, costs = Window(n_rows), np.random.default_rng(1), []
    window.append(n_rows)
    window.arrays["carried"] = np.zeros(n_rows)
    of_a_row = sum(array.nbytes for array in window.arrays.values()) / n_rows
    n_tiles = sum(len(list(tiles.tiles(array, tiles.tile_shape(array)))) for array in window.arrays.values())
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
        for _ in range(n_rows // step):
            before = sizes(tmp_path)
            window.append(step)
            window.arrays["carried"][:] = rng.normal(size=n_rows)
            store.save(Checkpoint(window.arrays))
            costs.append(sum(size for path, size in sizes(tmp_path).items() if path not in before))
    expected = 8 * n_rows + step * of_a_row + n_tiles * segments.TILE.itemsize
    assert np.mean(costs) < 1.1 * expected
    assert same_state(read_latest(tmp_path).model, window.arrays)


def test_of_many_trees_those_that_were_refitted_are_written(tmp_path, monkeypatch):
    monkeypatch.undo()  # tiles as they are
    rng = np.random.default_rng(0)
    trees = {"threshold": rng.normal(size=(1000, 255)), "stats": rng.normal(size=(1000, 256, 2))}
    n_bytes = sum(array.nbytes for array in trees.values())
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(trees))
        for turn in range(100, 300, 20):
            before = sizes(tmp_path)
            for array in trees.values():
                array[turn : turn + 20] = rng.normal(size=array[:20].shape)
            store.save(Checkpoint(trees))
            cost = sum(size for path, size in sizes(tmp_path).items() if path not in before)
            assert cost < 2.5 * n_bytes * 20 / 1000 + 30_000
    assert same_state(read_latest(tmp_path).model, trees)


def test_what_has_not_changed_is_not_written_again(tmp_path):
    window = Window()
    window.append(100)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
        before = {path: path.stat().st_mtime_ns for path in segment_files(tmp_path)}
        store.save(Checkpoint(window.arrays))
        store.save(Checkpoint(window.arrays))
    with CheckpointStore(tmp_path) as store:  # another process, which has read it
        found = store.latest()
        store.save(found)
    assert {path: path.stat().st_mtime_ns for path in segment_files(tmp_path)} == before


def test_what_nobody_has_checked_is_written_again(tmp_path):
    window = Window()
    window.append(100)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
    for path in segment_files(tmp_path):
        path.write_bytes(bytes(path.stat().st_size))
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
    assert same_state(read_latest(tmp_path).model, window.arrays)


def test_two_checkpoints_share_segments_and_each_comes_back(tmp_path):
    window = Window()
    window.append(400)
    kept = []
    with CheckpointStore(tmp_path) as store:
        for _ in range(2):
            window.append(20)
            kept.append(window.copy())
            store.save(Checkpoint(window.arrays))
    older, newer = checkpoint_paths(tmp_path)
    assert snapshots.segments_of(older) & snapshots.segments_of(newer)
    assert same_state([snapshots.load(path).model for path in (older, newer)], kept)


class Stored(RuleBasedStateMachine):
    """Whatever happens to a window: the checkpoints kept are what they were, and no segment is there for nothing."""

    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.store = CheckpointStore(self.directory)
        self.window = Window(n_rows=6 * ROWS)
        self.kept = []
        self.is_saved = False

    @rule(n=st.integers(1, 7 * ROWS))
    def append(self, n):
        self.window.append(min(n, 6 * ROWS))

    @rule(learner=st.integers(0, 9))
    def refit(self, learner):
        self.window.refit(learner)

    @rule()
    def rebin(self):
        self.window.rebin()

    @rule()
    def add_feature(self):
        self.window.add_feature()

    @rule()
    def save(self):
        self.store.save(Checkpoint(self.window.arrays))
        self.kept = [*self.kept, self.window.copy()][-2:]
        self.is_saved = True

    @rule(is_read=st.booleans())
    def reopen(self, is_read):
        self.store.close()
        self.store = CheckpointStore(self.directory)
        if is_read and self.kept:
            assert same_state(self.store.latest().model, self.kept[-1])

    @precondition(lambda self: segment_files(self.directory))
    @rule(data=st.data())
    def lose_a_segment_and_save(self, data):
        data.draw(st.sampled_from(segment_files(self.directory))).unlink()
        self.save()
        self.save()

    @rule(data=st.data())
    def fail_to_save(self, data):
        countdown = data.draw(st.integers(0, 6))
        replace = os.replace

        def failing(*paths):
            nonlocal countdown
            countdown -= 1
            if countdown < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(*paths)

        os.replace = failing
        try:
            self.save()
        except OSError:
            pass
        finally:
            os.replace = replace

    @invariant()
    def every_checkpoint_is_what_it_was(self):
        paths = checkpoint_paths(self.directory)
        assert same_state([snapshots.load(path).model for path in paths], self.kept)
        if self.is_saved:
            assert {path.name for path in segment_files(self.directory)} == needed(self.directory)

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.directory)


TestStored = pytest.mark.slow(Stored.TestCase)
TestStored.settings = settings(stateful_step_count=12, max_examples=40)


def test_segments_are_not_much_larger_than_what_is_needed_of_them(tmp_path):
    window = Window()
    with CheckpointStore(tmp_path) as store:
        for k in range(150):
            window.append(7)
            if k % 5 == 0:
                window.refit(k)
            path = store.save(Checkpoint(window.arrays))
            used = {}
            for node in header_nodes(path):
                if node["kind"] == "tiles":
                    array = window.arrays[node["name"].split("'")[1]]
                    for tile in tiles.tiles(array, tiles.tile_shape(array)):
                        used[tile.tobytes()] = tile.nbytes
            held = sum((tmp_path / segments.FOLDER / name).stat().st_size for name in snapshots.segments_of(path))
            assert held <= segments.SLACK * sum(used.values())


# Damage.


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"\0")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def make_unreadable(path):
    path.unlink()
    path.mkdir()


def swap(path):
    """Exchange it with another one, of the same size if there is one."""
    others = [other for other in path.parent.iterdir() if other != path]
    other = min(others, key=lambda other: abs(other.stat().st_size - path.stat().st_size))
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)


def put_one_of_another_run(path):
    """As many bytes that are whole by themselves: the same window, a row further on."""
    with tempfile.TemporaryDirectory() as directory, CheckpointStore(directory) as store:
        window = Window()
        window.append(len(window.arrays["X"]) + 1)
        store.save(Checkpoint(window.arrays))
        size = path.stat().st_size
        path.write_bytes(b"".join(other.read_bytes() for other in segment_files(directory))[:size].ljust(size, b"\0"))


DAMAGES = {
    "missing": (Path.unlink, "is missing"),
    "truncated": (cut_off, r"has [\d,]+ bytes, expected [\d,]+, so it is damaged"),
    "longer": (lengthen, r"has [\d,]+ bytes, expected [\d,]+, so it is damaged"),
    "flipped": (flip, r"does not match at byte [\d,]+, so it is damaged"),
    "swapped": (swap, r"(has [\d,]+ bytes, expected [\d,]+|does not match at byte [\d,]+), so it is damaged"),
    "of another run": (put_one_of_another_run, r"does not match at byte [\d,]+, so it is damaged"),
    "unreadable": (make_unreadable, r"cannot be read \("),
}


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "swapped"])
def test_a_damaged_segment_is_named_and_the_checkpoint_before_is_taken(damage, tmp_path):
    how, message = DAMAGES[damage]
    victim = two_apart(tmp_path)[0]
    newest = checkpoint_paths(tmp_path)[-1]
    how(victim)
    with pytest.raises(SnapshotError, match=f"{newest.name}' cannot be loaded: .*{victim.name}' {message}.* Bring it"):
        streamboost.load(newest)
    assert read_latest(tmp_path).rows == 1
    with CheckpointStore(tmp_path) as store:
        found = store.latest()
        assert found.rows == 1
        assert victim.name in store.damaged[0]
        assert newest.with_suffix(".damaged").exists()
        store.save(found)
    assert same_state(read_latest(tmp_path), found)


def test_segments_that_were_swapped_are_found_out_whichever_is_read(tmp_path):
    newer = two_apart(tmp_path)
    for path in newer[:3]:
        kept = {other: other.read_bytes() for other in segment_files(tmp_path)}
        swap(path)
        with pytest.raises(SnapshotError, match=DAMAGES["swapped"][1]):
            streamboost.load(checkpoint_paths(tmp_path)[-1])
        for other, data in kept.items():
            other.write_bytes(data)
    assert read_latest(tmp_path).rows == 2


def test_of_every_segment_every_byte_counts(tmp_path):
    victims = two_apart(tmp_path)
    assert sum(path.stat().st_size for path in victims) > 20_000
    rng = np.random.default_rng(0)
    for victim in victims:
        data = victim.read_bytes()
        for place in (0, len(data) - 1, *rng.integers(0, len(data), size=5)):
            victim.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
            assert read_latest(tmp_path).rows == 1
        victim.write_bytes(data)
    assert read_latest(tmp_path).rows == 2


def test_what_both_checkpoints_share_is_named_for_both(tmp_path):
    window = Window()
    window.append(400)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
        store.save(Checkpoint(window.arrays))
    victim = segment_files(tmp_path)[0]
    victim.unlink()
    with pytest.raises(SnapshotError, match=r"no checkpoint in .* can be loaded") as caught:
        read_latest(tmp_path)
    assert str(caught.value).count(victim.name) == 2


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_segment_lost_on_the_way_is_made_up_for_by_the_next_checkpoint(damage, tmp_path):
    window = Window()
    window.append(400)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
        DAMAGES[damage][0](segment_files(tmp_path)[0])
        store.save(Checkpoint(window.arrays))
    assert same_state(read_latest(tmp_path).model, window.arrays)


def test_a_segment_found_damaged_by_its_own_writer_is_not_relied_on(tmp_path):
    window = Window()
    window.append(400)
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(window.arrays))
        flip(segment_files(tmp_path)[0])
        with pytest.raises(SnapshotError):
            store.latest()
        store.save(Checkpoint(window.arrays))
    assert same_state(read_latest(tmp_path).model, window.arrays)


def test_a_copy_of_the_directory_is_as_good_and_a_checkpoint_alone_says_what_it_lacks(tmp_path):
    fitted = model()
    with CheckpointStore(tmp_path / "run") as store:
        path = store.save(Checkpoint(fitted))
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    shutil.copy(path, tmp_path / "alone.safetensors")
    (tmp_path / "link.safetensors").symlink_to(path)
    assert same_state(streamboost.load(tmp_path / "link.safetensors").model, fitted)
    with pytest.raises(SnapshotError, match=r"its segment .*segments.* is missing\. Bring it back"):
        streamboost.load(tmp_path / "alone.safetensors")
    with pytest.raises(SnapshotError, match=r"in segments beside it\. Load it from its directory"):
        snapshots.unpack(path.read_bytes())
    shutil.rmtree(tmp_path / "run")
    assert same_state(read_latest(tmp_path / "copy").model, fitted)


def test_nothing_but_segments_is_read_or_removed(tmp_path):
    store = segments.SegmentStore(tmp_path)
    array = np.zeros(ROWS)
    table = np.zeros(1, segments.TILE)
    for name in ("../secret", "/etc/passwd", "", "0" * 32, 7):
        with pytest.raises((SnapshotError, TypeError)):
            store.read([(array, tiles.TileShape(ROWS, 1), table)], [(name, 1)])
    store.directory.mkdir()
    (store.directory / "notes.txt").write_text("mine")
    store.keep_only(set())
    assert (store.directory / "notes.txt").exists()


def test_where_a_checkpoint_does_not_tell_what_it_needs_no_segment_is_removed(tmp_path):
    window = Window()
    with CheckpointStore(tmp_path) as store:
        window.append(400)
        path = store.save(Checkpoint(window.arrays))
        header = path.read_bytes()
        path.write_bytes(b"\0" * 100)
        there = set(segment_files(tmp_path))
        window.append(640)
        store.save(Checkpoint(window.arrays))
        assert there < set(segment_files(tmp_path))
        path.write_bytes(header)
        window.append(640)
        store.save(Checkpoint(window.arrays))
        assert {path.name for path in segment_files(tmp_path)} == needed(tmp_path)


# Failures and kills.


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_disk_that_fails_at_any_time_leaves_the_checkpoint_before_and_nothing_else(function, tmp_path, monkeypatch):
    window = Window()
    window.append(400)
    kept = window.arrays
    newer = Window()
    newer.append(640)
    real, n_calls, nth = getattr(os, function), 0, 0

    def failing(*arguments):
        nonlocal n_calls
        n_calls += 1
        if n_calls == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    while n_calls >= nth:  # until no call is left to fail
        directory, n_calls, nth = tmp_path / f"{nth}", 0, nth + 1
        with CheckpointStore(directory) as store:
            store.save(Checkpoint(kept))
            before = sizes(directory)
            with monkeypatch.context() as patched:
                patched.setattr(os, function, failing)
                with contextlib.suppress(OSError):
                    store.save(Checkpoint(newer.arrays))
            if len(store.paths()) == 1:
                assert sizes(directory) == before
                assert same_state(read_latest(directory).model, kept)
            else:  # it failed when all was in its place, or not at all
                assert same_state(read_latest(directory).model, newer.arrays)
            store.save(Checkpoint(newer.arrays))
        assert same_state(read_latest(directory).model, newer.arrays)
    assert nth > 5


@pytest.mark.skipif(os.name != "posix", reason="directories cannot be opened here")
def test_segments_reach_the_disk_before_the_checkpoint_that_needs_them(tmp_path, monkeypatch):
    steps = []
    fsync, replace, unlink = os.fsync, os.replace, Path.unlink

    def watched_fsync(descriptor):
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}"), is_directory))
        fsync(descriptor)

    def watched_replace(source, target):
        steps.append(("rename", os.fspath(source), os.fspath(target)))
        replace(source, target)

    def watched_unlink(path, missing_ok=False):
        if path.exists():
            steps.append(("remove", os.fspath(path), None))
        unlink(path, missing_ok=missing_ok)

    window = Window()
    with CheckpointStore(tmp_path) as store:
        for _ in range(2):
            window.append(600)
            store.save(Checkpoint(window.arrays))
        window.append(640)
        monkeypatch.setattr(os, "fsync", watched_fsync)
        monkeypatch.setattr(os, "replace", watched_replace)
        monkeypatch.setattr(Path, "unlink", watched_unlink)
        store.save(Checkpoint(window.arrays))
    folder = os.fspath(tmp_path / segments.FOLDER)
    synced, is_folder_synced, is_written, is_removed = set(), True, False, False
    for verb, path, other in steps:
        if verb == "sync":
            synced.add(path)
            is_folder_synced = is_folder_synced or path == folder
        elif verb == "rename":
            assert path in synced, "its bytes are on disk before it has its name"
            if other.endswith(".tiles"):
                assert not is_written
                is_folder_synced = False
            else:
                assert is_folder_synced, "the names of segments are on disk before the checkpoint"
                is_written = True
        else:
            assert is_written, "nothing is removed before the new checkpoint is there"
            assert os.fspath(tmp_path) in synced, "and on disk"
            is_removed = is_removed or path.endswith(".tiles")
            assert path.endswith(".tiles") or not is_removed, "segments go after the checkpoint that needed them"
    assert is_written
    assert is_removed


def survives_a_kill(directory, kept, window, at):
    """Save in a process that is killed at its n-th step on the disk; return whether it was, and what is there then."""
    child = os.fork()
    if child == 0:
        n_steps = 0

        def kill(event, _):
            nonlocal n_steps
            if event in ("open", "os.rename", "os.remove", "os.mkdir"):
                n_steps += 1
                if n_steps == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        with CheckpointStore(directory) as store:
            store.latest()
            sys.addaudithook(kill)
            store.save(Checkpoint(window))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    found = read_latest(directory).model
    assert same_state(found, window) or same_state(found, kept)
    return os.WIFSIGNALED(status), same_state(found, window)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_killed_at_any_step_on_the_disk_a_checkpoint_is_the_new_one_or_the_one_before(tmp_path, kills):
    window = Window()
    with CheckpointStore(tmp_path / "begun") as store:
        for _ in range(2):
            window.append(500)
            store.save(Checkpoint(window.arrays))
    kept = window.copy()
    window.append(300)
    window.refit(3)
    outcomes = []
    for at in range(1, 1000):
        directory = tmp_path / f"killed-{at}"
        shutil.copytree(tmp_path / "begun", directory)
        outcomes.append(survives_a_kill(directory, kept, window.arrays, at))
        for again in range(2 if at % (100 // kills) else 0):  # killed once more when the same is tried again
            survives_a_kill(directory, kept, window.arrays, at // (again + 2) + 1)
        with CheckpointStore(directory) as store:
            store.latest()
            store.save(Checkpoint(window.arrays))
            store.save(Checkpoint(window.arrays))
        assert same_state(read_latest(directory).model, window.arrays)
        assert {path.name for path in segment_files(directory)} == needed(directory)
        assert not [path for path in sizes(directory) if path.suffix == ".tmp"]
        shutil.rmtree(directory)
        if not outcomes[-1][0]:
            break
    assert len(outcomes) > 10
    assert {(True, False), (True, True), (False, True)} == set(outcomes)


def test_who_reads_while_another_writes_finds_whole_checkpoints(tmp_path):
    n_rows = 8 * ROWS
    arrays = {"X": np.zeros((n_rows, 3)), "weight": np.zeros(n_rows)}
    found, errors, is_over = [], [], threading.Event()

    def read():
        while not is_over.is_set():
            try:
                found.append(read_latest(tmp_path))
            except Exception as error:  # told below
                errors.append(error)

    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(arrays, rows=0))
        reader = threading.Thread(target=read)
        reader.start()
        for k in range(1, 150):
            arrays["X"][:], arrays["weight"][:] = k, -k
            arrays["X"][:, 0] = np.arange(n_rows) * k  # no two tiles are the same
            store.save(Checkpoint(arrays, rows=k))
        is_over.set()
        reader.join()
    assert not errors
    rows = [one.rows for one in found]
    assert rows == sorted(rows)
    assert len(set(rows)) > 5
    for one in found:
        assert (one.model["X"][:, 1:] == one.rows).all()
        assert (one.model["weight"] == -one.rows).all()
        assert (one.model["X"][:, 0] == np.arange(n_rows) * one.rows).all()
