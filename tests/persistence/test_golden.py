"""Files of every format version that was ever released: they load, say what they said, and go on learning."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from streamboost.persistence.checkpoints import Checkpoint
from streamboost.persistence.snapshots import load

FOLDER = Path(__file__).parents[1] / "golden"
FILES = sorted(FOLDER.glob("*.safetensors"))


def test_there_are_files_of_version_1():
    assert sum(file.stem.endswith("-v1") for file in FILES) == 5


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
