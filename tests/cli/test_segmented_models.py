"""Commands on a directory whose checkpoints have segments do what they do where each checkpoint is one file."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from small_tiles import shrink

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.serving.open_model import open_live

SMALL = ["--option", "n_estimators=3", "--option", "max_depth=2", "--option", "memory=[32,128]", "--seed", "0"]
OFTEN = ["--checkpoint-every", "50", "-q"]


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=800), rng.normal(size=800)
    table = pa.table({"x": x, "z": z, "city": rng.choice(["Oslo", "Rome"], 800), "y": x * z + rng.normal(size=800)})
    pa.csv.write_csv(table.slice(0, 500), tmp_path / "first.csv")
    pa.csv.write_csv(table.slice(500), tmp_path / "second.csv")
    return str(tmp_path / "first.csv"), str(tmp_path / "second.csv")


def journey(first, second, where, capsys):
    """Learn, resume, inspect, predict, start from it, go on with other rows, serve; return what came of it all."""
    where.mkdir()
    directory, other, out = str(where / "m"), str(where / "other"), str(where / "said.csv")
    run = ["run", first, "--target", "y", "--model", directory, *SMALL, *OFTEN]
    assert main([*run, "--max-rows", "200"]) == 0
    assert main([*run, "--resume"]) == 0
    capsys.readouterr()
    assert main(["inspect", directory, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["checkpoint"]["rows"] == 500
    assert main(["predict", second, "--model", directory, "--out", out]) == 0
    assert main(["run", second, "--start-from", directory, "--model", other, "--target", "y", *OFTEN]) == 0
    assert main(["run", second, "--model", directory, "--continue", *OFTEN]) == 0
    shutil.copytree(directory, where / "copy")
    with open_live(where / "copy", checkpoint_every=20) as live:
        for part in range(3):
            live.learn(pa.csv.read_csv(second).slice(50 * part, 50))
    with open_live(where / "copy") as live:
        served = live.model, live.rows
    learned = [(found.model, found.rows) for found in map(read_latest, (other, directory))]
    return told["checkpoint"], pa.csv.read_csv(out).to_pydict(), *learned, served


def test_commands_do_the_same_with_and_without_segments(files, tmp_path, capsys, monkeypatch):
    plain = journey(*files, tmp_path / "plain", capsys)
    shrink(monkeypatch.setattr)
    segmented = journey(*files, tmp_path / "segmented", capsys)
    assert same_state(plain, segmented)
    assert [n_rows for _, n_rows in segmented[2:]] == [300, 800, 950]
    for name in ("m", "other", "copy", "copy/live"):
        assert not (tmp_path / "plain" / name / "segments").exists()
        assert any((tmp_path / "segmented" / name / "segments").iterdir())
