"""``streamboost theory``: the page of a saved model is the one that Python would write; ``freeze``: a small model."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.cli import main
from streamboost.theory.report import report


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=900), rng.normal(size=900)
    table = pa.table({"x": x, "z": z, "city": rng.choice(["Oslo", "Rome"], 900), "y": x * z + rng.normal(size=900)})
    pa.csv.write_csv(table.slice(600), tmp_path / "rest.csv")
    return table


def said(capsys, *words):
    code = main(["theory", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def saved(model, rows, target, path):
    model.learn(rows.select(["x", "z", "city"]).slice(0, 600), target[:600])
    model.save(path)
    return model


def test_the_page_is_that_of_python(rows, tmp_path, capsys):
    y = rows["y"].to_numpy()
    model = saved(SGBRegressor(n_estimators=8, memory=256, random_state=0), rows, y, tmp_path / "m.safetensors")
    before = (tmp_path / "m.safetensors").read_bytes()
    words = [tmp_path / "rest.csv", "--model", tmp_path / "m.safetensors", "--target", "y"]
    code, found = said(capsys, *words, "--out", tmp_path / "command.html")
    regret = report(model, rows.drop_columns(["y"]).slice(600), y[600:], tmp_path / "python.html")
    assert (code, found["rows"], found["bad_rows"]) == (0, 300, 0)
    assert found["regret"] == pytest.approx(regret.by_learners.tolist())
    assert found["edges"] == pytest.approx(regret.edges.tolist())
    assert found["best_learners"] == regret.by_learners.argmin()
    assert (tmp_path / "command.html").read_text().count("<svg") == (tmp_path / "python.html").read_text().count("<svg")
    assert (tmp_path / "m.safetensors").read_bytes() == before
    code, found = said(capsys, *words, "--out", tmp_path / "few.html", "--max-rows", 120)
    assert (code, found["rows"]) == (0, 120)


def test_bad_rows_are_passed_over_and_people_get_a_sentence(rows, tmp_path, capsys):
    is_up = np.where(rows["y"].to_numpy() > 0, "up", "down")
    saved(SGBClassifier(n_estimators=4, memory=256), rows, is_up, tmp_path / "m.safetensors")
    lines = [f"{x},{z},Oslo,{up}" for x, z, up in zip(*(rows[name] for name in "xz"), is_up, strict=True)][600:]
    lines[3], lines[5] = "1,2", "1,2,Oslo,"
    (tmp_path / "rest.csv").write_text("\n".join(["x,z,city,up", *lines]) + "\n")
    words = ["theory", tmp_path / "rest.csv", "--model", tmp_path / "m.safetensors", "--target", "up"]
    assert main([*map(str, words), "--out", str(tmp_path / "theory.html")]) == 0
    error = " ".join(capsys.readouterr().err.split())
    assert "298 rows; 2 bad rows passed over: average regret" in error
    assert (tmp_path / "theory.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rest.csv", "--target", "yy"], "Did you mean 'y'?"),
        (["none.csv", "--target", "y"], "none.csv"),
        (["rest.csv", "--target", "y", "--out", "no/such/page.html"], "which is no folder"),
        (["rest.csv", "--target", "city"], "can be learned; of the first it is said"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_a_sentence(words, sentence, rows, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(SGBRegressor(n_estimators=4, memory=256), rows, rows["y"].to_numpy(), "m.safetensors")
    code, found = said(capsys, *words, "--model", "m.safetensors")
    assert code == 2
    assert sentence in found["error"]
    assert not (tmp_path / "theory.html").exists()


def test_a_model_that_knows_nothing_has_no_theory(rows, tmp_path, capsys):
    SGBRegressor().save(tmp_path / "new.safetensors")
    code, found = said(capsys, tmp_path / "rest.csv", "--model", tmp_path / "new.safetensors", "--target", "y")
    assert code == 2
    assert "has learned no row yet" in found["error"]


# freeze


def frozen_words(capsys, *words):
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_frozen_file_is_small_and_predicts_as_the_model_does(rows, tmp_path, capsys):
    model = saved(SGBRegressor(memory=4096, random_state=0), rows, rows["y"].to_numpy(), tmp_path / "m.safetensors")
    before, out = (tmp_path / "m.safetensors").read_bytes(), tmp_path / "small.safetensors"
    code, found = frozen_words(capsys, "freeze", tmp_path / "m.safetensors", out)
    assert (code, found) == (0, {"rows": 600, "bytes": out.stat().st_size, "out": str(out)})
    assert out.stat().st_size < len(before) / 2
    assert (tmp_path / "m.safetensors").read_bytes() == before
    assert main(["freeze", str(tmp_path / "m.safetensors"), str(out)]) == 0  # once more, over it
    told = re.search(
        r"600 rows learned, (\S+) MB of arrays instead of (\S+):", " ".join(capsys.readouterr().err.split())
    )
    assert told is not None
    assert float(told[1]) < float(told[2]) / 2
    for file in ("m", "small"):
        words = ["predict", tmp_path / "rest.csv", "--model", tmp_path / f"{file}.safetensors"]
        assert frozen_words(capsys, *words, "--out", tmp_path / f"{file}.csv") == (
            0,
            {"rows": 300, "out": str(tmp_path / f"{file}.csv")},
        )
    assert (tmp_path / "m.csv").read_bytes() == (tmp_path / "small.csv").read_bytes()
    code, about = frozen_words(capsys, "inspect", out)
    assert (code, about["frozen"], about["rows"]) == (0, True, 600)
    _, whole = frozen_words(capsys, "inspect", tmp_path / "m.safetensors")
    assert about["importances"] == whole["importances"]
    assert whole["frozen"] is False
    assert main(["inspect", str(out)]) == 0
    assert "SGBRegressor, frozen: it predicts, and learns no more" in capsys.readouterr().out
    code, compared = frozen_words(
        capsys, "compare", tmp_path / "m.safetensors", out, "--on", tmp_path / "rest.csv", "--target", "y"
    )
    assert compared["metrics"]["rmse"]["A"] == compared["metrics"]["rmse"]["B"]
    assert (streamboost.load(out).predict(rows.drop_columns(["y"])) == model.predict(rows.drop_columns(["y"]))).all()


def test_the_model_of_a_run_is_frozen_as_it_stands_and_the_run_goes_on(rows, tmp_path, capsys):
    run = ["run", tmp_path / "rest.csv", "--target", "y", "--model", tmp_path / "run", "-q"]
    assert frozen_words(capsys, *run, "--max-rows", 200)[1]["rows"] == 200
    code, found = frozen_words(capsys, "freeze", tmp_path / "run", tmp_path / "small.safetensors")
    assert (code, found["rows"]) == (0, 200)
    assert frozen_words(capsys, *run, "--resume")[1]["rows"] == 300


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["freeze", "m.safetensors", "m.safetensors"], "the model itself, which would learn no more"),
        (["freeze", "m.safetensors", "no/such/file"], "expected a file in a folder that is there"),
        (["freeze", "m.safetensors", "."], "expected a file in a folder that is there"),
        (["freeze", "none", "out"], "does not exist"),
        (["freeze", "new.safetensors", "out"], "has learned no row yet"),
        (["theory", "rest.csv", "--model", "small.safetensors", "--target", "y"], "is frozen: it predicts, and learns"),
        (["run", "rest.csv", "--target", "y", "--start-from", "small.safetensors"], "Name the model it was made of"),
    ],
)
def test_what_cannot_be_frozen_or_cannot_learn_is_told_in_a_sentence(
    words, sentence, rows, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = saved(SGBRegressor(n_estimators=4, memory=256), rows, rows["y"].to_numpy(), "m.safetensors")
    model.freeze().save("small.safetensors")
    SGBRegressor().save("new.safetensors")
    code, found = frozen_words(capsys, *words)
    assert code == 2
    assert sentence in found["error"]
    assert len(streamboost.load("m.safetensors").booster_.replay.X) == 256


def test_a_frozen_model_may_be_the_prior_of_keys(rows, tmp_path, capsys):
    model = SGBRegressor(n_estimators=4, memory=256, new_columns="grow")
    saved(model, rows, rows["y"].to_numpy(), tmp_path / "m.safetensors")
    model.freeze().save(tmp_path / "small.safetensors")
    scores = []
    for file in ("m", "small"):
        words = ["run", tmp_path / "rest.csv", "--target", "y", "--key", "city", "-q"]
        code, found = frozen_words(capsys, *words, "--start-from", tmp_path / f"{file}.safetensors")
        assert code == 0, found
        scores.append(found["metrics"])
    assert scores[0] == scores[1]
