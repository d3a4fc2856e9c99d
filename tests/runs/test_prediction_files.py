"""Predictions: the parts of a run, and what a model is asked to write into a file."""

import csv
import datetime
import json
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_parts import read_parts

from streamboost import SGBClassifier, SGBRegressor
from streamboost.cli import main
from streamboost.runs import prediction_files as predictions
from streamboost.runs.prediction_files import PredictionParts

ENDINGS = ["csv", "parquet"]
SCHEMA = pa.schema([("row", pa.int64()), ("said", pa.string())])
SMALL = {"n_estimators": 3, "max_depth": 2, "memory": 64, "random_state": 0}


def table_of(rows):
    return pa.table({"row": rows, "said": [f"a,{k}\n" for k in rows]}, schema=SCHEMA)


def rows_in(path):
    """The rows of a file, read by whoever's reader."""
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            return [int(row["row"]) for row in csv.DictReader(file)]
    return pq.read_table(path)["row"].to_pylist()


def written(directory, cuts):
    """Parts of the rows between cuts."""
    parts = PredictionParts(directory, SCHEMA)
    parts.begin()
    for start, stop in pairwise(cuts):
        parts.add(table_of(range(start, stop)))
        parts.write()
    return parts


# The parts of a run.


@pytest.mark.parametrize("name", ["said", "said.parquet", "said.csv"])
@settings(max_examples=25, deadline=None)
@given(turns=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), min_size=1, max_size=6))
def test_a_run_killed_and_gone_on_with_has_every_row_once(name, turns, tmp_path_factory):
    """Each turn writes rows up to a checkpoint, then some that are lost, and dies before or after their part."""
    directory = tmp_path_factory.mktemp("turns") / name
    parts, n_rows = PredictionParts(directory, SCHEMA), 0
    parts.begin()
    state = parts.state()
    for n_safe, n_lost, is_written in turns:
        parts = PredictionParts.resumed(directory, state, n_rows)
        parts.add(table_of(range(n_rows, n_rows + n_safe)))
        parts.write()
        n_rows, state = n_rows + n_safe, parts.state()
        parts.add(table_of(range(n_rows, n_rows + n_lost)))
        if is_written:
            parts.write()
        (directory / ".0123456789abcdef.tmp").write_bytes(b"killed while it wrote")
    assert PredictionParts.resumed(directory, state, n_rows).schema == SCHEMA
    assert all(path.name.startswith("part-") for path in directory.iterdir())
    if n_rows:
        assert read_parts(directory)["row"].to_pylist() == list(range(n_rows))
        assert read_parts(directory)["said"].to_pylist() == table_of(range(n_rows))["said"].to_pylist()


def test_parts_are_named_by_their_first_row(tmp_path):
    parts = written(tmp_path / "said", [0, 5, 5, 12])
    parts.add(table_of([20]))  # those before were bad
    parts.write()
    names = sorted(path.name for path in parts.directory.iterdir())
    assert names == [f"part-{first:012d}.parquet" for first in (0, 5, 20)]


def test_whoever_reads_the_directory_finds_one_table(tmp_path):
    said = written(tmp_path / "said", [0, 4, 7]).directory
    commas = written(tmp_path / "said.csv", [0, 4, 7]).directory
    for half in (said, commas):
        (half / ".0123456789abcdef.tmp").write_bytes(b"a part that is being written")
    expected = table_of(range(7))
    assert pa.Table.from_pandas(pd.read_parquet(said), SCHEMA, preserve_index=False) == expected
    assert ds.dataset(said).to_table() == pq.read_table(said) == expected
    assert ds.dataset(commas, format="csv").to_table() == expected
    assert pl.read_parquet(said / "*.parquet").to_dicts() == expected.to_pylist()
    assert pl.read_csv(commas / "*.csv").to_dicts() == expected.to_pylist()
    (said / ".0123456789abcdef.tmp").unlink()
    assert pl.read_parquet(said).to_dicts() == expected.to_pylist()


def test_duckdb_finds_one_table(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    said, expected = written(tmp_path / "said", [0, 4, 7]).directory, table_of(range(7))
    found = duckdb.sql(f"SELECT * FROM '{said}/*.parquet'").fetchall()
    assert found == [tuple(row.values()) for row in expected.to_pylist()]


def test_what_is_held_in_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "PART_BYTES", 1000)
    parts = PredictionParts(tmp_path / "said", pa.schema([("row", pa.int64())]))
    parts.begin()
    for start in range(0, 5000, 50):
        parts.add(pa.table({"row": range(start, start + 50)}))
        assert sum(held.nbytes for held in parts._held) < 1000
    parts.write()
    assert read_parts(parts.directory)["row"].to_pylist() == list(range(5000))


def test_a_directory_that_holds_something_is_refused_and_left_as_it_is(tmp_path):
    written(tmp_path / "said", [0, 5])
    with pytest.raises(FileExistsError, match=r"'[^']*/said' is there already, expected a new or empty directory"):
        PredictionParts(tmp_path / "said", SCHEMA).begin()
    (tmp_path / "said" / "notes.txt").write_text("mine")
    (tmp_path / "said" / "part-7.parquet").write_text("mine")
    PredictionParts.resumed(tmp_path / "said", PredictionParts(tmp_path / "said", SCHEMA).state(), 0)
    assert sorted(path.name for path in (tmp_path / "said").iterdir()) == ["notes.txt", "part-7.parquet"]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [("said.jsonl", ValueError, "expected a directory: such as .* said.csv for CSV"),
     ("file.csv", NotADirectoryError, "which is a file, expected a new directory"),
     ("no/said", FileNotFoundError, "no' is no directory. Make it.")],
)  # fmt: skip
def test_a_place_where_no_parts_can_be_is_refused(name, error, words, tmp_path):
    (tmp_path / "file.csv").write_text("row\n")
    with pytest.raises(error, match=words):
        PredictionParts(tmp_path / name, SCHEMA)


def test_a_part_that_the_checkpoint_knows_and_is_gone_is_named(tmp_path):
    state = written(tmp_path / "said", [0, 5, 9]).state()
    (tmp_path / "said" / "part-000000000000.parquet").unlink()  # may be kept elsewhere by now
    PredictionParts.resumed(tmp_path / "said", state, 9)
    (tmp_path / "said" / "part-000000000005.parquet").unlink()
    with pytest.raises(ValueError, match=r"part-000000000005.parquet' is not there, which the checkpoint knows of"):
        PredictionParts.resumed(tmp_path / "said", state, 9)


# streamboost predict.


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=60), "n": rng.normal(size=60)})
    SGBRegressor(**SMALL).fit(table, table["x"].to_numpy()).save(tmp_path / "numbers.safetensors")
    labels = np.where(table["x"].to_numpy() > 0, "up", "do,wn")
    SGBClassifier(**SMALL).fit(table, labels).save(tmp_path / "classes.safetensors")
    return table


def ask(capsys, tmp_path, model, source, *words):
    """The exit code, and the JSON object that predict prints."""
    where = ["predict", str(source), "--model", str(tmp_path / f"{model}.safetensors")]
    code = main([*where, *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def left_in(tmp_path):
    return sorted(entry.name for entry in tmp_path.iterdir() if "said" in entry.name)


@pytest.mark.parametrize("ending", ENDINGS)
def test_of_no_rows_a_file_without_rows_is_written(ending, model, tmp_path, capsys):
    (tmp_path / "none.csv").write_text("x,n\n")
    out = tmp_path / f"said.{ending}"
    code, answer = ask(capsys, tmp_path, "classes", tmp_path / "none.csv", "--out", out, "--keep", "x")
    assert (code, answer) == (0, {"rows": 0, "out": str(out)})
    assert rows_in(out) == []
    names = ["row", "x", "prediction", "probability_do,wn", "probability_up"]
    if ending == "parquet":
        assert pq.read_table(out).column_names == names
    if ending == "csv":
        assert next(csv.reader(out.read_text().splitlines())) == names
    assert left_in(tmp_path) == [out.name]


def test_of_no_rows_standard_output_has_the_header(model, tmp_path, capsysbinary):
    (tmp_path / "none.csv").write_text("x,n\n")
    assert main(["predict", str(tmp_path / "none.csv"), "--model", str(tmp_path / "numbers.safetensors")]) == 0
    assert capsysbinary.readouterr().out == b'"row","prediction"\n'


@pytest.mark.parametrize("name", ["row", "prediction", "probability_up"])
def test_a_column_that_would_hide_what_was_said_is_not_kept(name, model, tmp_path, capsys):
    pq.write_table(model.append_column(name, model["x"]), tmp_path / "rows.parquet")
    out = ["--out", tmp_path / "said.csv", "--keep", name]
    code, answer = ask(capsys, tmp_path, "classes", tmp_path / "rows.parquet", *out)
    assert code == 2
    assert f"--keep is '{name}'" in answer["error"]
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_row_that_cannot_be_read_is_told_and_nothing_half_is_left(ending, model, tmp_path, capsys):
    lines = ["x,n", *("1,2" for _ in range(1500)), "1,2,3", "1,2"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    code, answer = ask(capsys, tmp_path, "numbers", tmp_path / "rows.csv", "--out", tmp_path / f"said.{ending}")
    assert code == 1
    assert "rows.csv, line 1502" in answer["error"]
    assert left_in(tmp_path) == []


def test_a_row_that_the_model_refuses_is_told_and_nothing_half_is_left(model, tmp_path, capsys):
    values = np.ones(1500)
    values[1234] = np.inf
    pq.write_table(pa.table({"x": values, "n": np.ones(1500)}), tmp_path / "rows.parquet")
    code, answer = ask(capsys, tmp_path, "numbers", tmp_path / "rows.parquet", "--out", tmp_path / "said.parquet")
    assert code == 1
    assert "row 1234 cannot be predicted" in answer["error"]
    assert left_in(tmp_path) == []


def test_kept_columns_fit_the_format_or_are_refused_before_anything_is_written(model, tmp_path, capsys):
    days = pa.array([datetime.date(2024, 1, 1 + k % 28) for k in range(60)])
    lists = pa.array([[k] for k in range(60)])
    pq.write_table(model.append_column("day", days).append_column("list", lists), tmp_path / "rows.parquet")
    keep = ["--keep", "day", "--keep", "list", "--out"]
    code, answer = ask(capsys, tmp_path, "numbers", tmp_path / "rows.parquet", *keep, tmp_path / "said.csv")
    assert code == 2
    assert "column 'list' is of type list" in answer["error"]
    assert left_in(tmp_path) == []
    code, _ = ask(capsys, tmp_path, "numbers", tmp_path / "rows.parquet", *keep, tmp_path / "said.parquet")
    assert code == 0
    row = pq.read_table(tmp_path / "said.parquet").to_pylist()[2]
    assert (row["day"], row["list"]) == (datetime.date(2024, 1, 3), [2])
