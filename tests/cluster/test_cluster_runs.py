"""Runs of models that live on workers: full disks and kills between a cut and its checkpoint, beside a run without."""

import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prediction_parts import read_parts

from streamboost.cli import main
from streamboost.cluster import KeyedBooster, small_regressor
from streamboost.persistence.checkpoints import CheckpointStore, read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.runs.run import Options, Run
from streamboost.sources import open_source

ROWS, CHUNK = 1200, 100
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # who is killed closes no files
SMALL = {"n_estimators": 4, "max_depth": 3, "memory": 64, "random_state": 0}


class Killed(BaseException):
    """What SIGKILL is to a process."""


def keyed(directory):
    return KeyedBooster("store", small_regressor(**SMALL), workers=2, engine="local", hot=2, directory=directory)


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2))
    store = rng.choice(["Bonn", "Graz", "Rome"], ROWS)
    y = X[:, 0] * X[:, 1] + (store == "Graz") + 0.1 * rng.normal(size=ROWS)
    pq.write_table(pa.table({"store": store, "a": X[:, 0], "b": X[:, 1], "y": y}), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def go(file, name):
    """Run, or go on with, the whole file, a checkpoint after every chunk; return what the workers hold at the end."""
    where = file.parent / name
    options = Options("y", "regression", chunk=CHUNK, every=300, checkpoint_rows=1, predictions=f"{where}.csv")
    with keyed(where / "crew") as model, Run(open_source(file), model, options, where, resume=True) as run:
        list(run.reports())
        return [(model.key_rows(key), model.model_of(key)) for key in model.keys()]  # noqa: SIM118


class Fate:
    """Says what becomes of each checkpoint of a run on its way to disk."""

    def __init__(self, patch, where):
        self.coming, self.is_dead, self.is_broken = [], False, False
        save, fsync = CheckpointStore.save, os.fsync

        def save_or_not(store, checkpoint):
            if store.directory != where:
                return save(store, checkpoint)  # a crew's
            coming = self.coming.pop(0) if self.coming else "saved"
            if coming == "full":
                raise OSError(28, "No space left on device")
            if coming == "killed":
                self.is_dead = True
                raise Killed
            self.is_broken = coming == "in its place, then an error"
            try:
                path = save(store, checkpoint)
            finally:
                self.is_broken = False
            if coming == "saved, then killed":
                self.is_dead = True
                raise Killed
            return path

        def fsync_or_not(descriptor):
            if self.is_broken and stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(5, "Input/output error")
            fsync(descriptor)

        patch.setattr(CheckpointStore, "save", save_or_not)
        patch.setattr(os, "fsync", fsync_or_not)
        patch.setattr(KeyedBooster, "detach", self._unless_dead(KeyedBooster.detach))

    def _unless_dead(self, detach):
        def detach_or_not(model):
            if self.is_dead:  # no last checkpoint for it
                raise Killed
            return detach(model)

        return detach_or_not

    def begins(self, *coming):
        """Another process, and what it will meet with; nothing after that."""
        self.coming, self.is_dead = list(coming), False


def check_same(file):
    """The run goes on undisturbed, and comes to the end of one that always was."""
    resumed, straight = go(file, "disturbed"), go(file, "straight")
    assert same_state(resumed, straight)
    where = file.parent
    assert read_latest(where / "disturbed").rows == read_latest(where / "straight").rows == ROWS
    assert read_parts(where / "disturbed.csv") == read_parts(where / "straight.csv")


@pytest.mark.parametrize("last", ["saved", "in its place, then an error"])
def test_a_run_whose_checkpoints_fail_three_times_before_it_is_killed_goes_on_from_the_last_one(
    last, file, tmp_path, monkeypatch
):
    fate = Fate(monkeypatch, tmp_path / "disturbed")
    fate.begins("saved", "saved", "saved", last, "full", "full", "full", "killed")
    with pytest.raises(Killed):
        go(file, "disturbed")
    assert read_latest(tmp_path / "disturbed").rows == 3 * CHUNK  # the first checkpoint comes before the first row
    fate.begins()
    check_same(file)


@pytest.mark.parametrize("n_saved", [1, 4])
@pytest.mark.parametrize("between", [[], ["full"]])
def test_a_run_killed_again_and_again_between_a_cut_and_its_checkpoint_goes_on_from_the_last_one(
    n_saved, between, file, tmp_path, monkeypatch
):
    fate = Fate(monkeypatch, tmp_path / "disturbed")
    for coming in (["saved"] * (n_saved - 1) + ["saved, then killed"], [*between, "killed"], [*between, "killed"]):
        fate.begins(*coming)
        with pytest.raises(Killed):
            go(file, "disturbed")
        assert read_latest(tmp_path / "disturbed").rows == CHUNK * (n_saved - 1)
    fate.begins()
    check_same(file)


def test_a_run_is_resumed_with_the_model_it_was_begun_with_or_not_at_all(file, capsys):
    where = file.parent / "run"
    model = ["--option", "loss=huber", "--option", "n_estimators=12", "--option", "max_depth=3"]
    words = ["run", str(file), "--target", "y", "--model", str(where), "--key", "store"]
    assert main([*words, *model, "--max-rows", "600"]) == 0
    for other in ([], [*model[2:], "--option", "loss=squared_error"], ["--option", "n_estimators=13", *model[:2]]):
        capsys.readouterr()
        assert main([*words, *other, "--resume"]) != 0
        assert "the same --option, --start-from and --seed as before" in " ".join(capsys.readouterr().err.split())
    assert read_latest(where).rows == 600
    assert main([*words, *model, "--resume"]) == 0
    assert read_latest(where).rows == ROWS
