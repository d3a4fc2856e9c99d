"""``streamboost explain``: what it writes adds up to what ``predict`` says; what it draws is drawn."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.cli import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    X, y, *_ = datasets.friedman(600, noise=1.0, seed=0)
    rows = pa.table({f"x{j}": X[:, j] for j in range(5)} | {"place": np.where(X[:, 5] > 0.5, "a", "b")})
    SGBRegressor(random_state=0).partial_fit(rows, y).save(folder / "numbers.safetensors")
    labels = np.array(["low", "mid", "high"])[np.digitize(y, [11, 17])]
    SGBClassifier(random_state=0).partial_fit(rows, labels).save(folder / "classes.safetensors")
    pa.csv.write_csv(rows.slice(0, 50).append_column("other", pa.array(range(50))), folder / "rows.csv")
    return folder


@pytest.mark.parametrize("model", ["numbers", "classes"])
def test_a_file_of_all_rows(saved, tmp_path, model, capsys):
    path, rows = saved / f"{model}.safetensors", str(saved / "rows.csv")
    assert main(["explain", rows, "--model", str(path), "--out", str(tmp_path / "why.parquet")]) == 0
    assert main(["predict", rows, "--model", str(path), "--out", str(tmp_path / "said.parquet")]) == 0
    why, said = (pa.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("why", "said"))
    assert why.column_names == ["row", "prediction", "score", "x0", "x1", "x2", "x3", "x4", "place", "(rest)"]
    assert why["prediction"].equals(said["prediction"])
    total = sum(why[name].to_numpy() for name in why.column_names[3:])
    np.testing.assert_allclose(total, why["score"].to_numpy(), atol=1e-9)
    if model == "numbers":
        np.testing.assert_allclose(total, why["prediction"].to_numpy(), atol=1e-9)


def test_one_row_on_the_terminal_and_as_a_picture(saved, tmp_path, capsys):
    arguments = ["explain", str(saved / "rows.csv"), "--model", str(saved / "numbers.safetensors"), "--row", "49"]
    assert main([*arguments, "--picture", str(tmp_path / "why.svg")]) == 0
    told = capsys.readouterr().out
    assert "Row 49" in told
    assert told.index("x3") < told.index("place")  # x3 says most, of places nothing is to be said
    drawn = (tmp_path / "why.svg").read_text()
    assert drawn.startswith("<?xml")


def test_json_lines(saved, capsys):
    assert main(["explain", str(saved / "rows.csv"), "--model", str(saved / "classes.safetensors"), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["row"] for line in lines] == list(range(50))
    assert {line["prediction"] for line in lines} <= {"low", "mid", "high"}


def test_a_row_that_is_not_there(saved, capsys):
    arguments = ["explain", str(saved / "rows.csv"), "--model", str(saved / "numbers.safetensors"), "--row", "50"]
    assert main(arguments) == 2
    assert "--row is 50, but the source has 50 rows" in capsys.readouterr().err
