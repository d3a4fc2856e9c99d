"""Files of every format version that was ever released: they load, say what they said, and go on learning."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

from streamboost.persistence.checkpoints import Checkpoint, checkpoint_paths, read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.persistence.snapshots import VERSION, VERSION_WITH_SEGMENTS, load

FOLDER = Path(__file__).parents[1] / "golden"
DIRECTORIES = sorted(path for path in FOLDER.glob("regressor-v*") if path.is_dir())  # with segments, since version 3
FILES = sorted(FOLDER.glob("*.safetensors"), key=lambda file: (file.stem.split("-")[1], file.stem))


def test_there_are_five_files_of_every_version():
    counts = Counter(file.stem.split("-")[1] for file in FILES)
    assert counts["v1"] == 5
    assert set(counts.values()) == {5}
    assert all((FOLDER / f"answers-{version}.parquet").exists() for version in counts)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_file_is_of_the_version_in_its_name(file):
    with safe_open(file, "numpy") as opened:
        header = json.loads(opened.metadata()["streamboost"])
    assert f"v{header['version']}" == file.stem.split("-")[1]


def test_files_of_the_present_version_can_be_made_and_load(tmp_path):
    spec = importlib.util.spec_from_file_location("golden_make", FOLDER / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.main(tmp_path)
    made = sorted(tmp_path.glob(f"*-v{VERSION}.safetensors"))
    assert [file.stem.split("-")[0] for file in made] == [file.stem.split("-")[0] for file in FILES[: len(made)]]
    assert all(isinstance(load(file), Checkpoint) for file in made)
    assert (tmp_path / DIRECTORIES[-1].name / "segments").is_dir()
    assert isinstance(read_latest(tmp_path / DIRECTORIES[-1].name), Checkpoint)
    with pytest.raises(SystemExit, match="is there already"):
        make.main(tmp_path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_file_loads_and_says_what_it_said(file):
    name, version = file.stem.split("-")
    rows = pq.read_table(FOLDER / f"answers-{version}.parquet")
    checkpoint = load(file)
    assert isinstance(checkpoint, Checkpoint)
    assert (checkpoint.rows, checkpoint.position) == (400, {"file": "rows.csv", "row": 400})
    said = checkpoint.model.predict(rows.select(["x", "gaps", "place"]))
    if name == "classifier":
        assert said.tolist() == rows[name].to_pylist()
    else:
        # networks hold single precision, whose last digits are the processor's
        np.testing.assert_allclose(said, rows[name].to_numpy(), rtol=1e-5 if name == "networks" else 1e-9)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_file_goes_on_learning(file):
    model = load(file).model
    rows = pq.read_table(FOLDER / f"answers-{file.stem.split('-')[1]}.parquet").select(["x", "gaps", "place"])
    y = np.array(["new"] * 40) if file.stem.startswith("classifier") else np.full(40, 7.0)
    before = model.committee_.n_rows
    model.learn(rows, y)
    assert model.committee_.n_rows == before + 40


def test_there_is_a_directory_of_every_version_with_segments():
    assert [path.name for path in DIRECTORIES] == [f"regressor-v{k}" for k in range(3, VERSION_WITH_SEGMENTS + 1)]


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_a_golden_directory_loads_says_what_it_said_and_goes_on_learning(directory):
    [path] = checkpoint_paths(directory)
    with safe_open(path, "numpy") as opened:
        header = json.loads(opened.metadata()["streamboost"])
    assert f"v{header['version']}" == directory.name.split("-")[1]
    assert "tiles" in {node["kind"] for node in header["nodes"]}
    found, beside = read_latest(directory), load(FOLDER / "regressor-v2.safetensors")  # the same model in one file
    assert same_state(found, beside)
    rows = pq.read_table(FOLDER / "answers-v2.parquet")
    X = rows.select(["x", "gaps", "place"])
    np.testing.assert_allclose(found.model.predict(X), rows["regressor"].to_numpy(), rtol=1e-9)
    for one in (found, beside):
        one.model.learn(X, np.full(40, 7.0))
    assert same_state(found, beside)
