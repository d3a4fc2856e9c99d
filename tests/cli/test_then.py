"""``run HISTORY --then LIVE``: files are fitted, then a source is learned, as fit and learn do in Python."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from streamboost import SGBRegressor
from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state

SMALL = ["--option", "n_estimators=4", "--option", "max_depth=3"]
SAME = {"n_estimators": 4, "max_depth": 3, "new_columns": "grow", "random_state": 0}
N = 1500


def rows(n=2100):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    y = 5 * np.sin(9 * X[:, 0]) * np.sin(9 * X[:, 1]) + X[:, 2] + 0.3 * rng.normal(size=n)
    city = np.array(["Bonn", "Graz"])[rng.integers(0, 2, n)]
    return pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "city": city, "price": y})


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A history in two files, and what comes after it."""
    monkeypatch.chdir(tmp_path)
    table = rows()
    pa.csv.write_csv(table.slice(0, 1000), "old-1.csv")
    pa.csv.write_csv(table.slice(1000, N - 1000), "old-2.csv")
    pa.csv.write_csv(table.slice(N), "live.csv")
    return table


def said(capsys, *words):
    code = main([*map(str, words), "--json", "-q"])
    return code, json.loads(capsys.readouterr().out)


def twin(table, stop=None):
    X, y = table.drop_columns("price"), table["price"].to_numpy()
    model = SGBRegressor(**SAME).fit(X.slice(0, N), y[:N])
    model.learn(X.slice(N, stop and stop - N), y[N:stop])
    return model


BEGIN = ["run", "old-*.csv", "--then", "live.csv", "--target", "price", "--model", "m", *SMALL]


def test_a_history_then_a_source_is_fit_then_learn(files, capsys):
    code, summary = said(capsys, *BEGIN)
    assert (code, summary["rows"]) == (0, len(files))
    assert summary["history"] == {"is_fitted": True, "rows": N, "n_dropped": 0}
    assert [event["kind"] for event in summary["events"]] == ["history studied"]
    assert same_state(read_latest("m").model, twin(files))
    assert main(["inspect", "m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"]["history"] == summary["history"]
    assert main(["inspect", "m"]) == 0
    assert "1,500 rows, fitted" in capsys.readouterr().out


@pytest.mark.parametrize("again", [BEGIN, ["run", "live.csv", "--model", "m"]])
def test_a_run_goes_on_with_and_without_its_history(again, files, capsys):
    assert said(capsys, *BEGIN, "--max-rows", 200)[1]["rows"] == N + 200
    assert same_state(read_latest("m").model, twin(files, N + 200))
    code, summary = said(capsys, *again, "--resume")
    assert (code, summary["rows"], summary["resumed_at"]) == (0, len(files), N + 200)
    assert same_state(read_latest("m").model, twin(files))


def test_the_history_may_be_gone_or_have_grown_once_it_is_learned(files, tmp_path, capsys):
    assert said(capsys, *BEGIN, "--max-rows", 200)[0] == 0
    with open("old-2.csv", "a", encoding="utf-8") as file:
        file.write("0.5,0.5,0.5,Bonn,1.0\n")
    assert main([*BEGIN, "--resume", "--max-rows", "100"]) == 0
    assert "The history has more rows than were learned of it" in capsys.readouterr().err
    for name in ("old-1.csv", "old-2.csv"):
        (tmp_path / name).unlink()
    assert said(capsys, *BEGIN, "--resume")[1]["rows"] == len(files)
    assert same_state(read_latest("m").model, twin(files))


def test_new_rows_come_with_continue(files, capsys):
    assert said(capsys, "run", "old-*.csv", "--then", "live.csv", "--target", "price", "--model", "m", *SMALL)[0] == 0
    pa.csv.write_csv(files.slice(0, 100), "tomorrow.csv")
    assert said(capsys, "run", "tomorrow.csv", "--model", "m", "--continue")[1]["rows"] == len(files) + 100
    assert read_latest("m").state["history"]["is_fitted"]


def test_several_sources_and_formats_may_follow(files, capsys):
    pq.write_table(files.slice(0, N), "old.parquet")
    half = len(files) // 7
    for k in (0, 1):
        pa.csv.write_csv(files.slice(N + k * half, half), f"live-{k}.csv", pa.csv.WriteOptions(delimiter=";"))
    words = [
        "run",
        "old.parquet",
        "--then",
        "live-0.csv",
        "--then",
        "live-1.csv",
        "--delimiter",
        ";",
        "--target",
        "price",
    ]
    code, _ = said(capsys, *words, "--model", "m", *SMALL)
    assert code == 0
    assert same_state(read_latest("m").model, twin(files, N + 2 * half))


def test_a_history_is_shown_on_standard_error(files, capsys):
    assert main([*BEGIN, "--metric", "mae"]) == 0
    shown = capsys.readouterr()
    assert "History: 1,500 rows learned." in shown.err
    assert "row 1,500: history studied, 1,500 rows" in shown.err
    assert "2,100 rows learned" in shown.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["synthetic:friedman", "--then", "live.csv"], "may have no end, and a history has to. Name files"),
        (["kafka://nowhere:1/sales", "--then", "live.csv"], "may have no end, and a history has to. Name files"),
        (["-", "--format", "csv", "--then", "live.csv"], "standard input cannot be. Write it to a file."),
        (["empty.csv", "--then", "live.csv"], "the history empty.csv has no rows. Name one that has some"),
        (["gone.csv", "--then", "live.csv"], "gone.csv does not exist"),
        (["old-1.csv", "--then", "gone.csv"], "gone.csv does not exist"),
        (["old-1.csv", "--then", "x.csv"], "in the rows of --then, --target is 'price', expected one of the columns"),
        (["x.csv", "--then", "live.csv"], "--target is 'price', expected one of the columns"),
        (["old-1.csv", "--then", "old-2.csv", "live.csv"], "'live.csv' comes after --then LIVE, which counts as"),
        (["old-1.csv", "--then", "live.csv", "--continue"], "--continue goes on with a model"),
        (["old-1.csv", "--then", "live.csv", "--start-from", "m"], "--start-from begins with one"),
        (["old-1.csv", "--then", "live.csv", "--key", "city"], "--key makes many, and a history is fitted to a new"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_learned(words, told, files, tmp_path, capsys):
    (tmp_path / "empty.csv").write_text("x0,x1,x2,city,price\n")
    (tmp_path / "x.csv").write_text("x0,city\n1,Bonn\n")
    code, answer = said(capsys, "run", *words, "--target", "price", "--model", "new")
    assert code == 2
    assert told in answer["error"]
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").glob("checkpoint*"))


def test_another_history_or_one_that_comes_late_is_refused(files, capsys):
    assert said(capsys, *BEGIN)[0] == 0
    code, answer = said(capsys, "run", "live.csv", "--then", "old-1.csv", "--model", "m", "--resume")
    assert (code, "has learned another history" in answer["error"]) == (2, True)
    code, answer = said(capsys, *BEGIN)
    assert (code, "holds a model of 2,100 rows already. Add --resume" in answer["error"]) == (2, True)
    assert said(capsys, "run", "live.csv", "--target", "price", "--model", "plain", *SMALL)[0] == 0
    code, answer = said(capsys, "run", "old-1.csv", "--then", "live.csv", "--model", "plain", "--resume")
    assert (code, "was begun without a history" in answer["error"]) == (2, True)
