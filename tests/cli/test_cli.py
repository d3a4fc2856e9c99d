"""The command line as people and programs use it: what it prints, what it writes, how it ends."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from prediction_parts import read_parts

from streamboost import SGBRegressor, load
from streamboost.cli import main
from streamboost.cli.display import Screen, terminal
from streamboost.cli.rows import PeekableSource
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.sources import FileSource, MemorySource, Source

SMALL = ["--option", "n_estimators=5", "--option", "max_depth=3", "--option", "memory=[64,256]"]
SAME = {"n_estimators": 5, "max_depth": 3, "memory": [64, 256], "new_columns": "grow", "random_state": 0}
PROGRAM = [sys.executable, "-m", "streamboost"]


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=500), rng.normal(size=500)
    table = pa.table({"x": x, "z": z, "city": rng.choice(["Bonn", "Graz"], 500), "price": 2 * x + z})
    pq.write_table(table, tmp_path / "rows.parquet")
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return table


def said(capsys, *words):
    """The exit code and the JSON object of a command."""
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_run_learns_what_the_bare_model_learns_from_any_kind_of_file(ending, rows, tmp_path, capsys):
    file = tmp_path / f"rows.{ending}"
    code, summary = said(capsys, "run", file, "--target", "price", "--model", tmp_path / "m", *SMALL)
    assert code == 0
    assert summary["rows"] == 500
    assert summary["task"] == "regression"
    bare = SGBRegressor(**SAME)
    before = bare.learn(rows.drop_columns(["price"]), rows["price"].to_numpy())
    assert same_state(read_latest(tmp_path / "m").model, bare)
    rmse = np.sqrt(np.mean((before - rows["price"].to_numpy()) ** 2))
    assert summary["metrics"]["rmse"]["running"] == pytest.approx(rmse)


def test_run_goes_on_where_it_stopped(rows, tmp_path, capsys):
    common = ["run", tmp_path / "rows.csv", "--target", "price", "--predictions"]
    said(capsys, *common, tmp_path / "one.csv", "--model", tmp_path / "one", *SMALL)
    for _ in range(8):
        words = [*common, tmp_path / "two.csv", "--model", tmp_path / "two", *SMALL]
        code, summary = said(capsys, *words, "--resume", "--max-rows", 77)
        assert code == 0
    assert summary["rows"] == 500
    assert summary["rows_of_this_run"] == 0
    assert same_state(read_latest(tmp_path / "one").model, read_latest(tmp_path / "two").model)
    assert read_parts(tmp_path / "one.csv") == read_parts(tmp_path / "two.csv")
    code, error = refused(capsys, *words, "--resume", "--option", "n_estimators=6")
    assert code == 2
    assert "the model to be resumed has 5" in error


def test_json_is_one_object_on_standard_output_and_progress_goes_to_standard_error(rows, tmp_path):
    done = subprocess.run(
        [*PROGRAM, "run", str(tmp_path / "rows.csv"), "--target", "price", "--json", *SMALL],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["rows"] == 500
    assert "4 columns" in done.stderr
    assert "city" in done.stderr


def test_rows_come_from_standard_input(rows, tmp_path):
    done = subprocess.run(
        [*PROGRAM, "run", "-", "--format", "csv", "--target", "price", "--json", "-q", *SMALL],
        input=(tmp_path / "rows.csv").read_bytes(), capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["rows"] == 500
    assert done.stderr == b""


def test_predict_says_what_the_model_says_and_leaves_it_alone(rows, tmp_path, capsysbinary):
    assert main(["run", str(tmp_path / "rows.csv"), "--target", "price", "--model", str(tmp_path / "m"), *SMALL]) == 0
    capsysbinary.readouterr()
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    model = read_latest(tmp_path / "m").model
    right = model.predict(rows.drop_columns(["price"]))
    assert main(["predict", str(tmp_path / "rows.csv"), "--model", str(tmp_path / "m"), "--keep", "city"]) == 0
    table = pa.csv.read_csv(pa.BufferReader(capsysbinary.readouterr().out))
    assert table.column_names == ["row", "city", "prediction"]
    np.testing.assert_allclose(table["prediction"].to_numpy(), right)
    model.save(tmp_path / "saved.safetensors")
    out = ["--out", str(tmp_path / "said.parquet")]
    assert main(["predict", str(tmp_path / "rows.csv"), "--model", str(tmp_path / "saved.safetensors"), *out]) == 0
    np.testing.assert_array_equal(pq.read_table(tmp_path / "said.parquet")["prediction"].to_numpy(), right)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before


def test_inspect_tells_what_the_model_is(rows, tmp_path, capsys):
    main(["run", str(tmp_path / "rows.csv"), "--target", "price", "--model", str(tmp_path / "m"), *SMALL])
    capsys.readouterr()
    code, about = said(capsys, "inspect", tmp_path / "m")
    assert code == 0
    assert about["rows"] == about["checkpoint"]["rows"] == 500
    assert {column["name"]: column["kind"] for column in about["columns"]}["city"] == "category"
    assert sum(about["importances"].values()) == pytest.approx(1)
    assert max(about["importances"], key=about["importances"].get) == "x"
    assert sum(weight["weight"] for weight in about["weights"]) == pytest.approx(1)
    assert main(["inspect", str(tmp_path / "m")]) == 0
    shown = capsys.readouterr().out
    assert "Importances" in shown
    assert "500" in shown


def test_compare_scores_both_models_on_the_same_rows(rows, tmp_path, capsys):
    for name, n in (("short", 60), ("long", 500)):
        words = ["run", str(tmp_path / "rows.csv"), "--target", "price", "--model", str(tmp_path / name)]
        assert main([*words, "--max-rows", str(n)]) == 0
    capsys.readouterr()
    on = ["--on", tmp_path / "rows.parquet", "--target", "price"]
    code, found = said(capsys, "compare", tmp_path / "short", tmp_path / "long", *on)
    assert code == 0
    assert found["rows"] == 500
    for which, name in (("A", "short"), ("B", "long")):
        misses = read_latest(tmp_path / name).model.predict(rows.drop_columns(["price"])) - rows["price"].to_numpy()
        assert found["metrics"]["rmse"][which] == pytest.approx(np.sqrt(np.mean(misses**2)))
    assert found["metrics"]["rmse"]["B"] < found["metrics"]["rmse"]["A"]


def test_a_run_may_begin_with_a_saved_model(rows, tmp_path, capsys):
    model = SGBRegressor(**SAME)
    model.learn(rows.drop_columns(["price"]), rows["price"].to_numpy())
    model.save(tmp_path / "saved.safetensors")
    words = ["run", tmp_path / "rows.csv", "--target", "price", "--model", tmp_path / "m"]
    code, _ = said(capsys, *words, "--start-from", tmp_path / "saved.safetensors")
    assert code == 0
    model.learn(rows.drop_columns(["price"]), rows["price"].to_numpy())
    assert same_state(read_latest(tmp_path / "m").model, model)
    assert load(tmp_path / "saved.safetensors").committee_.n_rows == 500


def test_what_travels_with_the_package_can_be_run(capsys):
    code, summary = said(capsys, "run", "shipped:abalone", "--target", "target", "--max-rows", 300, *SMALL)
    assert (code, summary["rows"], summary["task"]) == (0, 300, "regression")


@pytest.mark.parametrize(
    ("targets", "task"),
    [([0.5, 1.0, 2.5], "regression"), (["a", "b", "a"], "classification"), ([0, 1, 1], "classification")],
)
def test_the_task_is_told_by_the_first_targets(targets, task, tmp_path, capsys):
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "y": targets}), tmp_path / "rows.parquet")
    assert said(capsys, "run", tmp_path / "rows.parquet", "--target", "y")[1]["task"] == task


def test_one_slip_among_the_targets_makes_no_classes_of_them(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{k},{k}.5\n" for k in range(300)) + "300,oops\n")
    code, summary = said(capsys, "run", tmp_path / "rows.csv", "--target", "y", *SMALL)
    assert (code, summary["task"], summary["rows"], summary["bad_rows"]) == (0, "regression", 300, 1)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "arrow"])
@pytest.mark.parametrize("n", [50, 77, 1000, 1009, 1500, 2999])
def test_the_first_rows_of_a_pipe_are_those_of_a_file(n, ending, tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=3000), "y": np.arange(3000.0)})
    if ending == "csv":
        pa.csv.write_csv(table, tmp_path / "rows.csv")
    elif ending == "jsonl":
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with pa.ipc.new_stream(tmp_path / "rows.arrow", table.schema) as writer:
            writer.write_table(table)
    words = ["--target", "y", "--max-rows", n, *SMALL]
    _, whole = said(capsys, "run", tmp_path / f"rows.{ending}", *words, "--predictions", tmp_path / "file.csv")
    with open(tmp_path / f"rows.{ending}", "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Once(pipe)))
        words += ["--format", ending, "--predictions", tmp_path / "pipe.csv", "--model", tmp_path / "m"]
        code, summary = said(capsys, "run", "-", *words)
    assert code == 0, summary
    assert summary["rows"] == n
    assert summary["metrics"] == whole["metrics"]
    assert read_parts(tmp_path / "pipe.csv") == read_parts(tmp_path / "file.csv")
    assert read_parts(tmp_path / "pipe.csv")["target"].to_pylist() == list(range(n))
    with open(tmp_path / f"rows.{ending}", "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Once(pipe)))
        code, summary = said(capsys, "run", "-", *words, "--resume")
    assert code == 0, summary
    assert summary["rows"] == min(2 * n, 3000)


class Once:
    """A file of which nothing can be read twice, as of a pipe."""

    closed = False

    def __init__(self, file):
        self.file = file

    def read(self, n=-1):
        return self.file.read(n)

    def read1(self, n=-1):
        return self.file.read(min(n, 10_000))

    def readable(self):
        return True

    def seekable(self):
        return False

    def writable(self):
        return False


class Hesitant(MemorySource):
    """Gives seven rows at most at a time, as a source that waits for more."""

    def read(self, position=None, n_rows=1000):
        return super().read(position, min(n_rows, 7))


@pytest.mark.parametrize("n", [1, 7, 10, 499])
def test_a_source_that_gives_few_rows_at_a_time_ends_after_as_many_as_asked_for(n):
    source = PeekableSource(Hesitant({"x": np.arange(500)}), end_after=n)
    source.first(None)
    batches = list(source.read())
    assert pa.concat_tables([batch.table for batch in batches])["x"].to_pylist() == list(range(n))
    assert batches[-1].position == n


@pytest.mark.parametrize("n", [300, 400, 1000, 1500, 2999])
def test_the_first_rows_of_a_pipe_in_which_a_column_begins_late_are_those_asked_for(n, monkeypatch):
    parts = [b"a,b,y\n" + 300 * b"1,,2.5\n", 3000 * b"2,7,3.5\n"]  # b has no type until its first value
    pipe = SimpleNamespace(read1=lambda size: parts.pop(0) if parts else b"")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
    source = PeekableSource(FileSource("-", format="csv"), end_after=n)
    source.first(None)
    batches = list(source.read())
    assert [value for batch in batches for value in batch.table["b"].to_pylist()] == [None] * 300 + [7.0] * (n - 300)
    assert batches[-1].position["row"] == n
    assert all(batch.table.num_rows == 1000 for batch in batches[1:-1])


ODD = ["[/b]", "[bold]", ":smile:", "\\[/x]", "[", "a,b"]


def test_text_with_brackets_is_shown_as_it_stands(tmp_path, capsys):
    rows = [{"te[/C]": ODD[k % 6], "[red]": k % 5, "y": f"[/{k % 2}]"} for k in range(60)]
    folder = tmp_path / "["
    folder.mkdir()
    file, model, out = folder / "i]rows.jsonl", str(folder / "m]"), str(folder / "said].csv")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ["run", str(file), "--target", "y", *SMALL]
    assert main([*common, "--model", model]) == 0
    shown = capsys.readouterr()
    for text in ("te[/C]", "[red]", "[/b]", "classification of 'y'"):
        assert text in shown.err
    assert f"streamboost inspect {model}" in shown.out
    assert main(["inspect", model]) == 0
    shown = "".join(capsys.readouterr().out.split())
    for text in ("te[/C]", "[/0]", "[/1]", "[/m]"):
        assert text in shown
    assert main(["compare", model, model, "--on", str(file), "--target", "y"]) == 0
    capsys.readouterr()
    assert main(["predict", str(file), "--model", model, "--out", out]) == 0
    assert "[/said].csv" in capsys.readouterr().err.replace("\n", "")
    assert pa.csv.read_csv(out).column_names == ["row", "prediction", "probability_[/0]", "probability_[/1]"]
    assert main([*common, "--ignore", "[/y]", "--json"]) == 2
    assert "'te[/C]'" in json.loads(capsys.readouterr().out)["error"]


class Told:
    """A report that says something of its own."""

    events = (SimpleNamespace(row=3, kind="new class", detail="[/x] :smile:"),)

    def __str__(self):
        return "[/z] :smile:"


def test_text_with_brackets_is_shown_as_it_stands_beside_a_progress_bar(capsys):
    console = terminal()
    console._force_terminal = True
    run = SimpleNamespace(progress=lambda: 0.0, history=None, bad=SimpleNamespace(n=0), book=None)
    with Screen(console, run) as screen:
        screen.see(Told())
    shown = capsys.readouterr().out
    assert "new class, [/x] :smile:" in shown
    assert "[/z] :smile:" in shown


def test_a_progress_bar_stays_whole_where_the_terminal_is_narrow(capsys):
    console = terminal()
    console._force_terminal, console._width = True, 80
    run = SimpleNamespace(progress=lambda: 0.5, history=None, bad=SimpleNamespace(n=0), book=None)
    report = type("Long", (), {"events": (), "__str__": lambda self: "1,000 rows: " + "rmse 1.234, " * 20})()
    with Screen(console, run) as screen:
        screen.see(report)
    shown = capsys.readouterr().out
    for part in ("━" * 9, " 50 % ", "1,000 rows: rmse", "…", "0:00:00"):
        assert part in shown


def test_a_run_that_begins_with_a_model_has_its_task(rows, tmp_path, capsys):
    whole = rows.set_column(3, "price", pa.array(np.round(np.abs(rows["price"].to_numpy()))))  # look like classes
    whole = whole.filter(pa.compute.less(whole["price"], 4))
    pq.write_table(whole, tmp_path / "whole.parquet")
    model = SGBRegressor(**SAME)
    model.learn(rows.drop_columns(["price"]), rows["price"].to_numpy())
    model.save(tmp_path / "saved.safetensors")
    words = ["run", tmp_path / "whole.parquet", "--target", "price", "--start-from", tmp_path / "saved.safetensors"]
    code, summary = said(capsys, *words)
    assert (code, summary["task"], summary["bad_rows"]) == (0, "regression", 0)
    code, error = refused(capsys, *words, "--task", "classification", "--model", tmp_path / "m")
    assert code == 2
    assert "the model of --start-from is one for regression" in error
    assert not (tmp_path / "m").exists()


@pytest.fixture
def classes(tmp_path):
    """A file of 1,200 rows of which the first 1,000, as many as are read at a time, have two classes, then three."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1200)
    y = np.where(x > 0.5, "up", "down").astype(object)
    y[1000:][x[1000:] < -0.5] = "same"
    pq.write_table(pa.table({"x": x, "y": y.tolist()}), tmp_path / "classes.parquet")
    pq.write_table(pa.table({"x": x[:300], "y": y[:300].tolist()}), tmp_path / "two.parquet")
    return ["run", str(tmp_path / "classes.parquet"), "--target", "y", "--every", "200", *SMALL]


def test_a_metric_that_does_not_apply_is_not_shown_and_null_for_programs(classes, tmp_path, capsys):
    report, model = tmp_path / "page.html", tmp_path / "m"
    assert main([*classes, "--report", str(report), "--model", str(model)]) == 0
    out = capsys.readouterr().out
    assert "log_loss" in out
    assert "auc" not in out
    history = json.loads(report.read_text().partition('id="history">')[2].partition("</script>")[0])
    assert "auc" not in history["observations"][-1]["metrics"]
    assert "auc" in history["observations"][0]["metrics"]  # while there were two classes
    assert main(["inspect", str(model)]) == 0
    assert "auc" not in capsys.readouterr().out
    code, summary = said(capsys, *classes)
    assert code == 0
    assert summary["metrics"]["auc"] == {"running": None, "windowed": None}
    code, summary = said(capsys, "run", tmp_path / "two.parquet", "--target", "y", *SMALL)
    assert 0.5 < summary["metrics"]["auc"]["running"] <= 1


def test_a_metric_asked_for_that_does_not_apply_is_told(classes, capsys):
    assert main([*classes, "--metric", "auc", "--metric", "accuracy"]) == 0  # the third class comes late
    shown = capsys.readouterr()
    assert shown.err.count("auc is for two classes, and there are 3: it is not shown.") == 1
    assert "auc" not in shown.out
    table = pq.read_table(classes[1])
    pq.write_table(table.slice(900), classes[1])
    code, error = refused(capsys, *classes, "--metric", "auc")
    assert code == 2
    assert "--metric is auc, which is for two classes, but 'y' has 3. Use log_loss or kappa." in error


# Going on.


@pytest.fixture
def half(rows, tmp_path, capsys):
    """A run of 200 rows of 500, with options of its own, and the words to go on with it."""
    words = ["run", tmp_path / "rows.csv", "--target", "price", "--model", tmp_path / "m", *SMALL]
    given = ["--metric", "mae", "--metric", "rmse", "--window", 70, "--ignore", "z", "--seed", 3]
    code, _ = said(capsys, *words, *given, "--max-rows", 200)
    assert code == 0
    return [*words, "--resume"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--metric", "r2"], "keeps score by mae, rmse"),
        (["--metric", "mae"], "keeps score by mae, rmse"),
        (["--window", 71], "looks at the latest 70 rows"),
        (["--ignore", "x"], "has left out z"),
        (["--ignore", "z", "--ignore", "x"], "has left out z"),
        (["--seed", 4], "has 3"),
        (["--key", "city"], "has one model for all rows"),
        (["--task", "classification"], "was made for 'regression'"),
    ],
)
def test_a_run_cannot_go_on_with_other_options(more, sentence, half, tmp_path, capsys):
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    code, error = refused(capsys, *half, *more)
    assert code == 2
    assert sentence in error
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir() if path.name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


@pytest.mark.parametrize("more", [[], ["--metric", "rmse", "--metric", "mae", "--window", 70, "--ignore", "z"]])
def test_a_run_goes_on_with_the_options_it_was_begun_with(more, half, rows, tmp_path, capsys):
    assert main([*map(str, half), *map(str, more)]) == 0
    assert ("Ignored as before: z." in capsys.readouterr().err) == (not more)
    found = read_latest(tmp_path / "m")
    bare = SGBRegressor(**SAME | {"random_state": 3})
    bare.learn(rows.select(["x", "city"]), rows["price"].to_numpy())
    assert same_state(found.model, bare)
    assert [metric.name for metric in found.state["book"].running] == ["mae", "rmse"]
    assert found.state["book"].window == 70


def test_a_run_that_goes_on_without_new_rows_says_how_it_stands(half, tmp_path, capsys):
    _, finished = said(capsys, *half)
    code, summary = said(capsys, *half)
    assert code == 0
    assert summary["rows_of_this_run"] == 0
    assert summary["metrics"] == finished["metrics"]
    assert set(summary["metrics"]) == {"mae", "rmse"}


def test_predictions_never_have_a_gap(rows, tmp_path, capsys):
    words = ["run", tmp_path / "rows.csv", "--target", "price", "--model", tmp_path / "m", "--resume", *SMALL]
    said(capsys, *words, "--max-rows", 100)
    file = ["--predictions", tmp_path / "said.csv"]
    assert main([*map(str, [*words, *file]), "--max-rows", "100"]) == 0
    assert "Predictions begin with row 100: of those before none were written." in capsys.readouterr().err
    assert refused(capsys, *words, "--predictions", tmp_path / "other.csv")[0] == 2
    code, summary = said(capsys, *words, "--max-rows", 50)  # where, the run knows
    assert (code, summary["predictions"]) == (0, str(tmp_path / "said.csv"))
    code, _ = said(capsys, *words, *file, "--max-rows", 50)
    assert read_parts(tmp_path / "said.csv")["row"].to_pylist() == list(range(100, 300))
    (tmp_path / "said.csv").rename(tmp_path / "kept.csv")
    assert main([*map(str, words), "--max-rows", "100"]) == 0
    assert "No predictions are written from here on" in "".join(capsys.readouterr().err.replace("\n", " "))
    said(capsys, *words, *file)
    assert read_parts(tmp_path / "said.csv")["row"].to_pylist() == list(range(400, 500))


def test_types_of_columns_can_be_said(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("zip,y\n" + "".join(f"0{k % 3},{k / 7}\n" for k in range(60)))
    words = ["run", tmp_path / "rows.csv", "--target", "y", "--model", tmp_path / "m", *SMALL, "--type", "zip=string"]
    assert said(capsys, *words, "--max-rows", 30)[0] == 0
    assert said(capsys, *words, "--resume")[0] == 0
    _, about = said(capsys, "inspect", tmp_path / "m")
    assert about["columns"] == [{"name": "zip", "kind": "category"}]
    code, error = refused(capsys, *words[:-1], "zip=float64", "--resume")
    assert code == 2
    assert "Resume with the same types" in error
    words = ["predict", tmp_path / "rows.csv", "--model", tmp_path / "m", "--keep", "zip", "--type", "zip=string"]
    assert said(capsys, *words, "--out", tmp_path / "said.parquet")[0] == 0
    assert pq.read_table(tmp_path / "said.parquet")["zip"][1].as_py() == "01"


# How it ends.


def refused(capsys, *words):
    code, answer = said(capsys, *words)
    return code, answer["error"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["run", "{}/rows.csv", "--target", "prize"], 2, "Did you mean 'price'?"),
        (["run", "{}/nothing.csv", "--target", "price"], 2, "does not exist"),
        (["run", "{}/rows.xls", "--target", "price"], 2, "does not tell its format"),
        (["run", "{}/rows.csv", "--target", "price", "--key", "price"], 2, "which --target names, too"),
        (["run", "{}/rows.csv", "--target", "price", "--task", "ranking"], 2, "expected auto, regression or"),
        (["run", "{}/rows.csv", "--target", "price", "--option", "depth=3"], 2, "with a name among"),
        (["run", "{}/rows.csv", "--target", "price", "--checkpoint-every", "soon"], 2, "such as 30s"),
        (["run", "{}/rows.csv", "--target", "price", "--predictions", "{}/p.txt"], 2, "said.csv for CSV"),
        (["run", "{}/rows.csv", "--target", "price", "--predictions", "{}/no/p.csv"], 2, "is no directory"),
        (["run", "{}/rows.csv", "--target", "price", "--predictions", "{}/rows.csv"], 2, "which is a file"),
        (["run", "{}/rows.csv", "--target", "price", "--model", "{}/rows.csv"], 2, "is a file, expected a directory"),
        (["run", "{}/rows.csv"], 2, "Missing option '--target'"),
        (["run", "{}/rows.csv", "--target", "price", "--ignore", "citty"], 2, "Did you mean 'city'?"),
        (["run", "{}/rows.csv", "--target", "price", "--key", "citty"], 2, "Did you mean 'city'?"),
        (["run", "{}/rows.csv", "--target", "price", "--ignore", "price"], 2, "which --target names, too"),
        (["run", "{}/rows.csv", "--target", "price", "--resume"], 2, "without --model"),
        (["run", "{}/rows.csv", "--target", "price", "--report", "{}/no/x.html"], 2, "is no directory"),
        (["run", "{}/rows.csv", "--target", "price", "--report", "{}"], 2, "is a directory"),
        (["run", "{}/rows.csv", "--target", "price", "--type", "city"], 2, "expected COL=TYPE"),
        (["run", "{}/rows.csv", "--target", "price", "--type", "city=word"], 2, "expected a type such as"),
        (["run", "{}/rows.csv", "--target", "price", "--type", "z=string", "--type", "z=int64"], 2, "two types"),
        (["run", "{}/rows.csv", "--target", "price", "--type", "citty=string"], 2, "'citty'"),
        (["run", "synthetic:friedman", "--target", "y", "--type", "x=string"], 2, "--type is for files"),
        (["run", "{}/rows.csv", "--target", "price", "--option", "n_estimators=-3"], 2, ": n_estimators is -3"),
        (["run", "{}/rows.csv", "--target", "price", "--option", "max_depth=x"], 2, "max_depth is 'x'"),
        (["run", "{}/rows.csv", "--target", "price", "--option", 'monotonic_cst={{"u":1}}'], 2, "names the column 'u'"),
        (["run", "{}/rows.csv", "--target", "price", "--every", "0"], 2, "Invalid value for '--every'"),
        (["run", "shipped:nothing", "--target", "y"], 2, "expected one of ['a9a_test'"),
        (["run", "synthetic:nothing", "--target", "y"], 2, "not a known stream"),
        (["run", "{}/rows.csv", "--target", "price", "--metric", "f1"], 2, "metric 'f1' is unknown"),
        (["run", "{}/rows.csv", "--target", "price", "--metric", "auc"], 2, "is not one for regression"),
        (["run", "{}/half.csv", "--target", "price", "--strict"], 1, "half.csv, line 3"),
        (["inspect", "{}/nothing"], 2, "does not exist, expected a run's directory"),
        (["compare", "{}/model", "{}/nothing", "--on", "{}/rows.csv", "--target", "price"], 2, "a run's directory"),
        (["compare", "{}/model", "{}/model", "--on", "{}/nothing.csv", "--target", "price"], 2, "does not exist"),
        (["compare", "{}/model", "{}/model", "--on", "{}/rows.xls", "--target", "price"], 2, "not tell its format"),
        (["compare", "{}/model", "{}/model", "--on", "{}/rows.csv", "--target", "prize"], 2, "Did you mean 'price'?"),
        (["inspect", "{}"], 2, "holds no checkpoint"),
        (["inspect", "{}/rows.csv"], 2, "no snapshot"),
        (["predict", "{}/rows.csv", "--model", "{}/rows.csv"], 2, "no snapshot"),
        (["compare", "{}/model", "{}/model"], 2, "Missing option"),
        (["frobnicate"], 2, "No such command"),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly_gets_one_clear_sentence_and_its_exit_code(words, code, sentence, rows, tmp_path, capsys):
    (tmp_path / "half.csv").write_text("x,price\n1,2\n3")
    (tmp_path / "rows.xls").write_text("")
    SGBRegressor().save(tmp_path / "model")
    found, said = refused(capsys, *(word.format(tmp_path) for word in words))
    assert sentence in said
    assert found == code
    assert "\n" not in said.strip()


def test_a_half_line_at_the_end_of_a_file_goes_to_quarantine(tmp_path, capsys):
    (tmp_path / "half.csv").write_text("x,y\n" + "".join(f"{k},{k / 7}\n" for k in range(50)) + "3")
    code, summary = said(capsys, "run", tmp_path / "half.csv", "--target", "y", "--model", tmp_path / "m", *SMALL)
    assert (code, summary["rows"], summary["bad_rows"]) == (0, 50, 1)
    assert json.loads((tmp_path / "m" / "quarantine.jsonl").read_text())["text"] == "3"


def test_a_file_whose_columns_change_midway_fails_with_what_came_before_kept(tmp_path, capsys):
    pq.write_table(pa.table({"x": np.arange(50.0), "y": np.arange(50.0) / 3}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": ["a"], "y": [1.0]}), tmp_path / "2.parquet")
    words = ["run", tmp_path / "*.parquet", "--target", "y", "--model", tmp_path / "m", *SMALL]
    code, error = refused(capsys, *words)
    assert code == 1
    assert "2.parquet" in error
    assert read_latest(tmp_path / "m").rows == 50


def test_a_model_of_a_newer_format_says_to_upgrade(rows, tmp_path, capsys):
    SGBRegressor().save(tmp_path / "m.safetensors")
    data = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(data.replace(rb"\"version\":2,", rb"\"version\":9,"))
    code, error = refused(capsys, "inspect", tmp_path / "m.safetensors")
    assert code == 2
    assert "format version is 9" in error
    assert "Upgrade" in error


def test_too_many_bad_rows_end_a_run_with_exit_code_1(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,2\n" * 20 + "1,\n" * 9)
    code, error = refused(capsys, "run", tmp_path / "rows.csv", "--target", "y", "--task", "regression", "--max-bad", 3)
    assert code == 1
    assert "more than --max-bad 3" in error


def test_a_run_whose_last_checkpoint_fails_says_so_in_its_one_object(rows, tmp_path, capsys, monkeypatch):
    words = ["run", tmp_path / "rows.csv", "--target", "price", "--model", tmp_path / "m", *SMALL]
    assert said(capsys, *words, "--max-rows", 200)[0] == 0

    def fsync(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fsync)
        code, error = refused(capsys, *words, "--resume")
    assert code == 1
    assert "no checkpoint could be written at row 500 ([Errno 28] No space left on device)" in error
    assert said(capsys, *words, "--resume")[1]["rows_of_this_run"] == 300


class Away(Source):
    """A broker that does not answer."""

    def read(self, position=None, n_rows=1000):
        raise ConnectionError("Redis did not answer for 30 s. Start it.")


def test_a_broker_that_is_away_at_the_start_is_a_failure_and_not_a_wrong_question(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("streamboost.cli.rows.open_source", lambda *where, **options: Away())
    assert refused(capsys, "run", "redis://here/0/rows", "--target", "y") == (
        1,
        "Redis did not answer for 30 s. Start it.",
    )


def test_a_run_that_is_cut_short_says_so_and_how_to_go_on(rows, tmp_path, capsys, monkeypatch):
    words = ["run", tmp_path / "rows.csv", "--target", "price", "--model", tmp_path / "m", "--every", 100, *SMALL]

    def see(screen, report):
        raise KeyboardInterrupt  # as a second Ctrl-C

    with monkeypatch.context() as cut_short:
        cut_short.setattr(Screen, "see", see)
        code, error = refused(capsys, *words)
    assert (code, "goes on with --resume" in error) == (130, True)
    assert said(capsys, *words, "--resume")[1]["rows"] == 500


def shown(terminal, until=None):
    """What is shown on a terminal, until these words come or its process ends."""
    seen = b""
    with suppress(OSError):  # how a terminal ends
        while (until is None or until not in seen) and (part := os.read(terminal, 65536)):
            seen += part
    return seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_waits_for_rows_in_order_with_a_checkpoint(number, rows, tmp_path):
    words = ["run", str(tmp_path / "rows.csv"), "--target", "price", "--follow", "--model", str(tmp_path / "m")]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *words, "--every", "100", "--json", *SMALL],
        stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "150"},
    ) as running:  # fmt: skip
        os.close(theirs)
        seen = shown(ours, until=b"500 rows: rmse")
        running.send_signal(number)
        seen += shown(ours)
        out = running.communicate()[0]
    assert running.returncode == 0, seen
    assert seen.startswith(b"Waiting for rows")  # there may be none for long
    summary = json.loads(out)
    assert summary["stopped"]
    assert read_latest(tmp_path / "m").rows == summary["rows"] == 500


def test_on_a_terminal_there_is_a_progress_bar(rows, tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "run", str(tmp_path / "rows.csv"), "--target", "price", "--every", "100", *SMALL],
        stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "150"},
    ) as running:  # fmt: skip
        os.close(theirs)
        seen = shown(ours)
    assert running.returncode == 0
    assert b"500 rows: rmse" in seen
    assert b"100 %" in seen


def test_shell_completion_is_there(monkeypatch):
    done = subprocess.run(
        [*PROGRAM, "--show-completion", "bash"], capture_output=True, text=True, check=False,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )  # fmt: skip
    assert "complete" in done.stdout
