"""Runs on workers that ended before they had learned anything: they leave nothing in the way of the next."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prediction_parts import read_parts
from snapshot_workers import SnapshotWorker

from streamboost.cli import main
from streamboost.cluster import Cut, LocalCrew
from streamboost.persistence.checkpoints import CheckpointStore, read_latest

ROWS = 300
SMALL = ["--option", "n_estimators=3", "--option", "max_depth=2"]
SHAPES = {"keyed": ["--key", "store"], "plain": []}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    x, store = rng.normal(size=ROWS), rng.choice(["Bonn", "Graz"], ROWS)
    y = np.abs(x) + (store == "Graz")
    y[0] = np.nan  # with --strict this ends a run
    pq.write_table(pa.table({"store": store, "x": x, "y": y}), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def run(file, name, *words):
    where = file.parent / name
    said = ["--predictions", f"{where}.csv", "--task", "regression", "-q"]
    return main(["run", str(file), "--target", "y", "--model", str(where), *said, *words])


def check_like_a_new_one(file, name, words, *more):
    """A command goes through in a used directory, and says what it says in a new one."""
    assert run(file, name, *words, *more) == 0
    assert run(file, "new", *words) == 0
    assert read_parts(file.parent / f"{name}.csv") == read_parts(file.parent / "new.csv")
    assert read_latest(file.parent / name).rows == read_latest(file.parent / "new").rows == ROWS - 1
    assert run(file, name, *words) != 0  # from here on there is something to lose


@shapes
@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["", "resumed"])
def test_a_run_refused_at_its_first_row_is_followed_by_one_with_other_options(shape, more, file, capsys):
    assert run(file, "used", *shape, "--strict", "--option", "loss=huber", "--seed", "7") != 0
    assert "Its chunk was not learned" in capsys.readouterr().err
    assert run(file, "used", *shape, "--strict", "--option", "loss=poisson") != 0
    assert "Its chunk was not learned" in capsys.readouterr().err
    check_like_a_new_one(file, "used", [*shape, *SMALL], *more)


@shapes
def test_a_run_refused_at_its_first_row_is_followed_by_one_of_any_shape(shape, file):
    for other in (["--key", "store", "--workers", "3"], []):
        assert run(file, "used", *other, "--strict") != 0
    check_like_a_new_one(file, "used", [*shape, *SMALL])


@shapes
@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["", "resumed"])
def test_what_was_learned_since_a_checkpoint_of_nothing_is_let_go(shape, more, file, monkeypatch):
    save, where = CheckpointStore.save, file.parent / "used"

    def save_the_first(store, checkpoint):
        if store.directory == where and store.paths():
            raise OSError(28, "No space left on device")
        return save(store, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "save", save_the_first)
        assert run(file, "used", *shape, "--option", "loss=huber") != 0
    assert read_latest(where).rows == 0
    shutil.rmtree(file.parent / "used.csv")
    check_like_a_new_one(file, "used", [*shape, *SMALL], *more)


class Sum(SnapshotWorker):
    def __init__(self):
        self.state = 0

    def add(self, number):
        self.state += number
        return self.state


def test_a_crew_that_has_done_nothing_detaches_without_a_cut_and_comes_back_so(tmp_path):
    with LocalCrew(Sum, {}, 2, tmp_path) as crew:
        cut = crew.detach("sum", "memory")
        assert (cut.number, cut.n_workers, cut.mark, cut.memory, crew.cuts) == (0, 2, crew.mark, "memory", [])
        crew.call(0, "add", 5)
        assert crew.detach("sum").number in crew.cuts
        crew.attach(cut, "sum")
        assert crew.result(crew.call(0, "add", 1)) == 1


def test_cuts_are_let_go_only_by_the_checkpoint_of_nothing_before_them(tmp_path):
    with LocalCrew(Sum, {}, 1, tmp_path / "a") as crew:
        empty = crew.detach("sum")
        crew.call(0, "add", 5)
        cut = crew.detach("sum")
        crew.begin_anew(empty)  # it has begun already
        assert crew.result(crew.call(0, "add", 1)) == 6
    with LocalCrew(Sum, {}, 1, tmp_path / "b") as crew:
        foreign = crew.detach("sum")
    with LocalCrew(Sum, {}, 1, tmp_path / "a") as crew:
        for other in (foreign, cut, Cut("sum"), "a model"):
            crew.begin_anew(other)
            with pytest.raises(FileExistsError, match="holds the cuts"):
                crew.call(0, "add", 1)
            with pytest.raises(FileExistsError, match="holds the cuts"):
                crew.detach("sum")
        with pytest.raises(ValueError, match="Name the directory it was made in"):
            crew.attach(foreign, "sum")
        crew.begin_anew(empty)
        assert crew.result(crew.call(0, "add", 1)) == 1
