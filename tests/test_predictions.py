"""Files of predictions: what they hold, how they are cut back, and what a model is asked to write into one."""

import csv
import datetime
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost import SGBClassifier, SGBRegressor, predictions
from streamboost.cli import main
from streamboost.predictions import check_columns, open_predictions

ENDINGS = ["csv", "jsonl", "arrow", "parquet"]
SCHEMA = pa.schema([("row", pa.int64()), ("said", pa.string())])
SMALL = {"n_estimators": 3, "max_depth": 2, "memory": 64, "random_state": 0}


def table_of(start, stop):
    return pa.table({"row": range(start, stop), "said": [f"a,{k}\n" for k in range(start, stop)]}, schema=SCHEMA)


def rows_in(path):
    """The rows of a file, read by whoever's reader."""
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            return [int(row["row"]) for row in csv.DictReader(file)]
    if path.suffix == ".jsonl":
        return [json.loads(line)["row"] for line in path.read_text().splitlines()]
    if path.suffix == ".arrow":
        return pa.ipc.open_stream(path).read_all()["row"].to_pylist()
    return pq.read_table(path)["row"].to_pylist()


# Going back to what a checkpoint knows.


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=25, deadline=None)
@given(turns=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), min_size=1, max_size=6))
def test_a_file_cut_back_and_gone_on_with_has_every_row_once(ending, turns, tmp_path_factory):
    """Each turn writes some rows, notes where it is, writes some more that are lost, and ends in order or is killed."""
    path = tmp_path_factory.mktemp("said") / f"said.{ending}"
    kept = None
    for n_safe, n_lost, is_killed in turns:
        file = open_predictions(path, SCHEMA)
        if kept is None:
            file.begin()
        else:
            file.cut(*kept)
        file.add(table_of(file.n_rows, file.n_rows + n_safe))
        kept = file.n_rows, file.length
        file.add(table_of(file.n_rows, file.n_rows + n_lost))
        if is_killed:
            file.flush()
            file._file.close()
        else:
            file.finish()
            assert rows_in(path) == list(range(kept[0] + n_lost))
    file = open_predictions(path, SCHEMA)
    file.cut(*kept)
    file.finish()
    assert rows_in(path) == list(range(kept[0]))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_parquet_file_does_not_tell_how_its_rows_came(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "ROWS_A_GROUP", 10)
    for name, steps in (("one", [37]), ("other", [4, 0, 9, 23, 1])):
        file = open_predictions(tmp_path / f"{name}.parquet", SCHEMA)
        file.begin()
        for n in steps:
            file.add(table_of(file.n_rows, file.n_rows + n))
        file.finish()
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()
    groups = pq.read_metadata(tmp_path / "one.parquet")
    assert [groups.row_group(k).num_rows for k in range(groups.num_row_groups)] == [10, 10, 10, 7]
    again = open_predictions(tmp_path / "one.parquet", SCHEMA)
    again.cut(25, 12345)  # whatever the length was: the file is whole
    again.add(table_of(25, 37))
    again.finish()
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()


def test_a_new_run_may_use_the_name_of_a_parquet_file_that_was_deleted(tmp_path):
    path = tmp_path / "said.parquet"
    for _ in range(2):
        file = open_predictions(path, SCHEMA)
        file.begin()
        file.add(table_of(0, 5))
        file.finish()
        with pytest.raises(FileExistsError, match=r"'[^']*/said\.parquet' is there already, expected"):
            open_predictions(path, SCHEMA).begin()
        path.unlink()


def test_rows_of_a_run_that_was_killed_are_not_overwritten_by_another(tmp_path):
    killed = open_predictions(tmp_path / "said.parquet", SCHEMA)
    killed.begin()
    killed.add(table_of(0, 5))
    kept = killed.n_rows, killed.length
    killed.flush()
    killed._file.close()
    with pytest.raises(FileExistsError, match=r"\.said\.parquet\.rows' is there already, with the rows of a run"):
        open_predictions(tmp_path / "said.parquet", SCHEMA).begin()
    killed.cut(*kept)
    killed.finish()
    assert rows_in(tmp_path / "said.parquet") == list(range(5))


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_cut_off_from_a_file_that_holds_something_else(ending, tmp_path):
    path = tmp_path / f"said.{ending}"
    other = open_predictions(path, pa.schema([("id", pa.int64()), ("text", pa.string())]))
    other.begin()
    other.add(pa.table({"id": range(100), "text": ["important"] * 100}))
    other.finish()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="does not hold the predictions that the checkpoint knows of"):
        open_predictions(path, SCHEMA).cut(2, 40)
    assert path.read_bytes() == before


# What is written.


def test_json_lines_hold_moments_as_text_and_decimals_as_numbers(tmp_path):
    moment = datetime.datetime(2024, 2, 29, 13, 0, 5)
    columns = {
        "day": pa.array([moment.date(), None]),
        "second": pa.array([moment, None], pa.timestamp("s")),
        "nano": pa.array([moment, None], pa.timestamp("ns")),
        "finer": pa.array([1_000_000_001, None], pa.timestamp("ns")),
        "zone": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "clock": pa.array([moment.time(), None]),
        "price": pa.array([Decimal("1.25"), None]),
        "count": pa.array([Decimal("7"), None]),
        "list": pa.array([[moment.date()], None]),
    }
    table = pa.table(columns)
    check_columns(".jsonl", table.schema)
    file = open_predictions(tmp_path / "said.jsonl", table.schema)
    file.begin()
    file.add(table)
    file.finish()
    first, second = map(json.loads, (tmp_path / "said.jsonl").read_text().splitlines())
    assert first == {
        "day": "2024-02-29",
        "second": "2024-02-29T13:00:05",
        "nano": "2024-02-29T13:00:05",
        "finer": "1970-01-01T00:00:01.000000001",
        "zone": "2024-02-29T13:00:05+00:00",
        "clock": "13:00:05",
        "price": 1.25,
        "count": 7,
        "list": ["2024-02-29"],
    }
    assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("ending", "kind"),
    [(".csv", pa.list_(pa.int64())), (".csv", pa.struct([("a", pa.int64())])), (".jsonl", pa.binary()),
     (".jsonl", pa.list_(pa.duration("s")))],
)  # fmt: skip
def test_columns_that_a_format_cannot_hold_are_refused(ending, kind):
    with pytest.raises(ValueError, match=f"column 'what' is of type .* which {ending} files cannot hold"):
        check_columns(ending, pa.schema([("row", pa.int64()), ("what", kind)]))
    check_columns(".parquet", pa.schema([("what", kind)]))


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
    code, _ = ask(capsys, tmp_path, "numbers", tmp_path / "rows.parquet", *keep, tmp_path / "said.jsonl")
    assert code == 0
    row = json.loads((tmp_path / "said.jsonl").read_text().splitlines()[2])
    assert (row["day"], row["list"]) == ("2024-01-03", [2])
