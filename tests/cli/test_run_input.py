"""``streamboost run`` and ``predict`` with files as people have them: bad rows, other encodings, tomorrow's file."""

import io
import json
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from killed_runs import OFTEN, check_same, killed

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state

SMALL = ["--option", "n_estimators=4", "--option", "max_depth=3", "--option", "memory=[64,256]"]
CITIES = ["Köln", "Zürich", "Graz"]


def said(capsys, *words):
    """The exit code and the JSON object of a command."""
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def write(path, n=300, *, seed=0, encoding="utf-8", delimiter=",", decimal=".", header=True):
    x = np.random.default_rng(seed).normal(size=n)
    rows = [(f"{v:.4f}", CITIES[k % 3], f"{2 * v + k % 3:.4f}7") for k, v in enumerate(x)]
    lines = [delimiter.join(["größe", "ort", "preis"])] * header
    lines += [delimiter.join([a.replace(".", decimal), b, c.replace(".", decimal)]) for a, b, c in rows]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


def run(file, model, *more):
    return ["run", file, "--target", "preis", "--model", model, "-q", *SMALL, *more]


# Bad rows.


def test_a_run_in_which_nothing_is_learned_fails_and_says_why_and_can_be_begun_anew(tmp_path, capsys):
    file, quarantine = write(tmp_path / "rows.csv"), tmp_path / "m" / "quarantine.jsonl"
    code, summary = said(capsys, *run(file, tmp_path / "m", "--task", "classification"))
    assert (code, summary["code"], summary["rows"], summary["bad_rows"]) == (1, 1, 0, 300)
    assert summary["quarantine"] == str(quarantine)
    [found] = summary["bad_reasons"]
    assert found["rows"] == 300
    assert "expected a class" in found["reason"]
    assert "300 bad rows of 300 are more than --max-bad 50%" in summary["error"]
    assert summary["error"].endswith("If the targets are numbers: --task regression.")
    assert len(quarantine.read_text().splitlines()) == 300
    code, summary = said(capsys, *run(file, tmp_path / "m"))
    assert (code, summary["rows"], summary["bad_rows"], summary["bad_reasons"]) == (0, 300, 0, [])


@pytest.mark.parametrize("limit", ["100%", "1.0", "5000"])
def test_a_run_in_which_nothing_is_learned_fails_however_many_rows_may_be_bad(limit, tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    code, summary = said(capsys, *run(file, tmp_path / "m", "--task", "classification", "--max-bad", limit))
    assert code == 1
    assert "no row was learned: all 300 are bad" in summary["error"]


def test_where_nothing_is_learned_the_other_task_is_named_and_no_metric(tmp_path, capsys):
    file = tmp_path / "rows.csv"
    file.write_text("x,label\n" + "".join(f"{k},{'buy' if k % 2 else 'sell'}\n" for k in range(300)))
    words = ["run", str(file), "--target", "label", "--task", "regression", "-q", *SMALL]
    assert main(words) == 1
    shown = capsys.readouterr()
    assert "If the targets are classes: --task classification." in shown.err
    assert "0 rows learned" in shown.out
    assert "metric" not in shown.out
    file.write_text("x,label\n" + "1,\n" * 300)  # no other task would help
    assert main(words) == 1
    assert "--task" not in capsys.readouterr().err


def test_bad_rows_are_told_by_reason_at_the_end(tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    file.write_text(file.read_text() + "1,Graz,\n" * 5 + "1,2,3,4\n" * 2)
    assert main([*map(str, run(file, tmp_path / "m"))]) == 0
    shown = capsys.readouterr().out
    assert "7 bad rows" in shown
    assert "5, such as: the target 'preis' is missing" in shown
    assert "2, such as: the row has 4 fields, expected 3" in shown
    assert "on_bad" not in shown
    assert f"all in {tmp_path / 'm' / 'quarantine.jsonl'}" in shown
    assert "on_bad" not in (tmp_path / "m" / "quarantine.jsonl").read_text()
    assert main(["run", str(file), "--target", "preis", "-q", *SMALL]) == 0
    assert "--model DIR keeps them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "code"), [("7", 0), ("6", 1), ("3%", 0), ("0.03", 0), ("2%", 1), ("0", 1), ("0%", 1), ("100%", 0)]
)
def test_so_many_rows_may_be_bad_and_no_more(limit, code, tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    file.write_text(file.read_text() + "1,Graz,\n" * 7)
    found, summary = said(capsys, *run(file, tmp_path / "m", "--max-bad", limit))
    assert (found, "error" in summary) == (code, bool(code))
    code, summary = said(capsys, *run(file, tmp_path / "m", "--resume"))
    assert (code, summary["rows"], summary["bad_rows"]) == (0, 300, 7)


@pytest.mark.parametrize("limit", ["-1", "many", "101%", "1.5", "%", "nan"])
def test_a_limit_of_bad_rows_is_a_number_or_a_share(limit, tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    code, answer = said(capsys, *run(file, tmp_path / "m", f"--max-bad={limit}"))
    assert code == 2
    assert "expected a number of rows such as 100, or a share such as 5%" in answer["error"]


def test_a_quarantine_is_mended_and_learned_as_the_documentation_says(tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    file.write_text(file.read_text() + "1.5,Graz,\n" * 5)
    assert said(capsys, *run(file, tmp_path / "m"))[0] == 0
    entries = [json.loads(line) for line in (tmp_path / "m" / "quarantine.jsonl").read_text().splitlines()]
    mended = [entry["values"] | {"preis": 5.0} for entry in entries]
    (tmp_path / "mended.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mended))
    code, summary = said(capsys, "run", tmp_path / "mended.jsonl", "--model", tmp_path / "m", "--continue")
    assert (code, summary["rows"], summary["rows_of_this_run"], summary["bad_rows"]) == (0, 305, 5, 5)


def test_lines_that_were_not_read_come_out_of_the_quarantine_to_the_byte_as_the_documentation_says(tmp_path, capsys):
    good, bad = "7,Köln,8\n".encode() * 300, ["7,Köln,8\n".encode("latin-1"), b'9,"x\ny",\xff\n', b"1,2,3,4\n"]
    (tmp_path / "rows.csv").write_bytes(b"x,ort,preis\n" + good + b"".join(bad))
    assert said(capsys, *run(tmp_path / "rows.csv", tmp_path / "shop"))[1]["bad_rows"] == 3
    docs = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^    (\(head -1 rows\.csv.*?> mended\.csv)$", docs, re.DOTALL | re.MULTILINE)
    subprocess.run(["sh", "-c", textwrap.dedent("    " + command)], cwd=tmp_path, check=True)
    assert (tmp_path / "mended.csv").read_bytes() == b"x,ort,preis\n" + b"".join(bad)


# How files are written.

AS_IN_OFFICES = {"encoding": "latin-1", "delimiter": ";", "decimal": ","}


def test_a_file_of_another_encoding_delimiter_and_decimal_mark_gives_the_same_model(tmp_path, capsys):
    write(tmp_path / "plain.csv")
    assert said(capsys, *run(tmp_path / "plain.csv", tmp_path / "plain"))[0] == 0
    expected = read_latest(tmp_path / "plain").model
    cases = [AS_IN_OFFICES, {"encoding": "utf-16", "delimiter": "\t"}, {"encoding": "utf-8-sig", "delimiter": "|"}]
    for k, how in enumerate(cases):
        file = write(tmp_path / f"{k}.csv", **how)
        code, summary = said(capsys, *run(file, tmp_path / f"found{k}"))
        assert (code, summary["bad_rows"]) == (0, 0)
        assert same_state(read_latest(tmp_path / f"found{k}").model, expected)
    file = write(tmp_path / "bare.csv", header=False, encoding="cp850", delimiter="\t")
    names = ["--names", "größe,ort,preis", "--encoding", "cp850", "--delimiter", "tab", "--decimal", "."]
    assert said(capsys, *run(file, tmp_path / "bare", *names, "--max-rows", 100))[0] == 0
    assert said(capsys, *run(file, tmp_path / "bare", "--resume"))[1]["rows"] == 300
    assert same_state(read_latest(tmp_path / "bare").model, expected)
    code, answer = said(capsys, *run(file, tmp_path / "bare", "--resume", "--delimiter", ";"))
    assert code == 2
    assert "--delimiter is ';', but the rows before the position were read with '\\t'" in answer["error"]


def test_how_a_file_is_written_is_shown_and_every_command_reads_it(tmp_path, capsys):
    file = write(tmp_path / "rows.csv", **AS_IN_OFFICES)
    assert main(["run", str(file), "--target", "preis", "--model", str(tmp_path / "m"), *SMALL]) == 0
    assert "CSV, ';' between values, decimal comma, cp1252." in capsys.readouterr().err
    bare = write(tmp_path / "bare.csv", header=False, **AS_IN_OFFICES)
    how = ["--names", "größe,ort,preis", "--delimiter", ";", "--decimal", ",", "--encoding", "latin-1"]
    on = ["compare", tmp_path / "m", tmp_path / "m", "--target", "preis", "--on"]
    assert said(capsys, *on, file) == said(capsys, *on, bare, *how)
    for words in (["predict", bare, "--out", tmp_path / "said.csv"],
                  ["theory", bare, "--target", "preis", "--out", tmp_path / "t.html"]):  # fmt: skip
        code, summary = said(capsys, *words, "--model", tmp_path / "m", *how)
        assert (code, summary["rows"]) == (0, 300)


@pytest.mark.parametrize("option", ["--delimiter=;", "--decimal=,", "--encoding=latin-1", "--names=a,b"])
def test_how_files_are_written_is_asked_of_files_alone(option, capsys):
    code, answer = said(capsys, "run", "synthetic:friedman", "--target", "y", option)
    assert (code, answer["error"]) == (2, f"{option.partition('=')[0]} is for files.")


def test_a_directory_is_a_source(tmp_path, capsys):
    (tmp_path / "days").mkdir()
    for k, how in enumerate([AS_IN_OFFICES, AS_IN_OFFICES | {"encoding": "utf-8"}]):
        write(tmp_path / "days" / f"{k}.csv", seed=k, **how)
    code, summary = said(capsys, *run(tmp_path / "days", tmp_path / "m"))
    assert (code, summary["rows"]) == (0, 600)
    write(tmp_path / "days" / "2.csv", seed=2, **AS_IN_OFFICES)
    assert said(capsys, *run(tmp_path / "days", tmp_path / "m", "--resume"))[1]["rows_of_this_run"] == 300


@pytest.mark.slow
@pytest.mark.parametrize("how", [AS_IN_OFFICES, {"encoding": "utf-16", "delimiter": ";", "decimal": ","}], ids=str)
def test_a_run_over_such_a_file_killed_many_times_is_the_same_as_one_never_killed(how, kills, tmp_path, capsys):
    file = write(tmp_path / "rows.csv", 2000 * kills, **how)
    lines = file.read_bytes().decode(how["encoding"]).splitlines()
    for k in range(700, len(lines), 997):
        lines[k] = "1,5;Köln;zu;viel" if k % 2 else "1,5;Köln;"
    file.write_bytes(("\n".join(lines) + "\n").encode(how["encoding"]))

    def words(where):
        (tmp_path / where).mkdir()
        return [*map(str, run(file, tmp_path / where / "m", "--predictions", tmp_path / where / "said.parquet")),
                "--json", *OFTEN]  # fmt: skip

    assert main(words("straight")) == 0
    assert killed(len(str(how)), [*words("killed"), "--resume"], most=3) >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "parquet")


# Tomorrow's file.


def test_the_error_says_the_very_command_that_goes_on_with_new_rows(tmp_path, capsys):
    monday, tuesday = write(tmp_path / "monday.csv"), write(tmp_path / "to morrow.csv", seed=1)
    assert said(capsys, *run(monday, tmp_path / "m"))[0] == 0
    code, answer = said(capsys, "run", tuesday, "--model", tmp_path / "m", "-q", "--resume")
    assert code == 2
    assert "None" not in answer["error"]
    name, *command = shlex.split(answer["error"].partition("as new ones: ")[2])
    assert name == "streamboost"
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 600
    pa.csv.write_csv(pa.concat_tables(map(pa.csv.read_csv, (monday, tuesday))), tmp_path / "both.csv")
    assert said(capsys, *run(tmp_path / "both.csv", tmp_path / "both"))[0] == 0
    assert same_state(read_latest(tmp_path / "m").model, read_latest(tmp_path / "both").model)


def test_who_forgets_how_to_go_on_is_told(tmp_path, capsys):
    file, model = write(tmp_path / "rows.csv"), tmp_path / "m"
    assert said(capsys, *run(file, model))[0] == 0
    code, answer = said(capsys, "run", file, "--model", model)
    assert (code, "holds a model already" in answer["error"], "--continue" in answer["error"]) == (2, True, True)
    for option in ("--continue", "--resume"):
        code, answer = said(capsys, "run", file, "--model", tmp_path / "mm", option)
        assert (code, "mm' holds no model yet to go on with" in answer["error"]) == (2, True)
    code, answer = said(capsys, "run", file)
    assert (code, "Missing option '--target'" in answer["error"]) == (2, True)


def test_going_on_with_new_rows_may_be_repeated_and_cut_short_and_learns_each_row_once(tmp_path, capsys):
    monday, tuesday = write(tmp_path / "monday.csv"), write(tmp_path / "tuesday.csv", seed=1)
    assert said(capsys, *run(monday, tmp_path / "m", "--continue"))[1]["rows"] == 300  # there was nothing yet
    words = ["run", tuesday, "--model", tmp_path / "m", "-q", "--continue"]
    seen = [said(capsys, *words, "--max-rows", 120)[1]["rows_of_this_run"] for _ in range(4)]
    assert seen == [120, 120, 60, 0]
    assert read_latest(tmp_path / "m").rows == 600


def test_a_file_that_was_written_over_with_new_rows_is_a_new_one_and_one_cut_short_is_not(tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    assert said(capsys, *run(file, tmp_path / "m"))[0] == 0
    whole = file.read_bytes()
    file.write_bytes(whole[: 9 * len(whole) // 10])
    code, answer = said(capsys, *run(file, tmp_path / "m", "--continue"))
    assert code == 2
    assert "is shorter than when the position was taken" in answer["error"]
    write(file, 200, seed=1)
    code, answer = said(capsys, *run(file, tmp_path / "m", "--resume"))
    assert code == 2
    assert "--continue" in answer["error"]
    assert said(capsys, *run(file, tmp_path / "m", "--continue"))[1]["rows"] == 500


def test_what_comes_through_a_pipe_is_new_if_that_is_said_and_skipped_if_resumed(tmp_path, capsys, monkeypatch):
    files = [write(tmp_path / "monday.csv"), write(tmp_path / "tuesday.csv", 200, seed=1)]
    words = ["run", "-", "--format", "csv", "--target", "preis", "--model", tmp_path / "m", "-q", *SMALL]
    for file, how, rows in [(files[0], "--continue", 300), (files[0], "--resume", 300), (files[1], "--continue", 500)]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
        code, summary = said(capsys, *words, how)
        assert (code, summary["rows"]) == (0, rows)


# Predictions as JSON.


def test_predict_prints_an_object_a_row_and_the_rest_goes_to_standard_error(tmp_path, capsys):
    file = write(tmp_path / "rows.csv")
    assert said(capsys, *run(file, tmp_path / "m"))[0] == 0
    words = ["predict", str(file), "--model", str(tmp_path / "m"), "--keep", "ort", "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    table = pa.csv.read_csv(file)
    right = read_latest(tmp_path / "m").model.predict(table.drop_columns(["preis"]))
    assert [row["prediction"] for row in rows] == right.tolist()
    assert [(row["row"], row["ort"]) for row in rows] == list(enumerate(table["ort"].to_pylist()))
    assert err == "300 rows: on standard output\n"
    code, summary = said(capsys, *words[:-1], "--out", tmp_path / "said.csv")
    assert (code, summary) == (0, {"rows": 300, "out": str(tmp_path / "said.csv")})
