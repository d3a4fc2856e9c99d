"""One model per key in the loops: prequential scores, runs of files, quarantine, resuming, the command line."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as parquet
import pytest
from keyed_streams import shared_stream, states
from prediction_parts import read_parts

import streamboost
from streamboost import KeyedModel
from streamboost.cli import main
from streamboost.errors import SnapshotError
from streamboost.keyed import small_classifier, small_regressor
from streamboost.persistence import registry
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.prequential import run
from streamboost.runs.run import Options, Run
from streamboost.sources import open_source


@pytest.fixture
def file(tmp_path):
    X, y = shared_stream(12, 600, seed=11)
    parquet.write_table(X.append_column("y", pa.array(y)), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_prequential_scores_it_like_any_estimator():
    X, y = shared_stream(5, 800, seed=8)
    pandas = pytest.importorskip("pandas")
    history = run(KeyedModel(key="key"), X.append_column("y", pa.array(y)), "y", every=400)
    assert set(history.last.running) == {"rmse", "mae", "r2"}
    assert history.last.running["r2"] > 0.3
    labels = np.where(y > 2, "up", "down")
    rows = pandas.DataFrame(X.to_pydict()).assign(y=labels)
    history = run(KeyedModel(small_classifier(), key="key"), rows, "y", every=400)
    assert set(history.last.running) == {"accuracy", "kappa", "log_loss"}
    assert history.last.running["accuracy"] > 0.6
    rows = X.append_column("y", pa.array(labels)).slice(0, 100)
    assert run(KeyedModel(small_classifier(), key="key"), rows, "y", every=100, delay=10).last.rows == 100


def test_a_run_puts_rows_without_a_key_into_quarantine(tmp_path):
    X, y = shared_stream(5, 300, seed=12)
    keys = [None if i in (150, 217) else key for i, key in enumerate(X["key"].to_pylist())]
    X = X.set_column(0, "key", pa.array(keys)).append_column("y", pa.array(y))
    parquet.write_table(X, tmp_path / "rows.parquet")
    options = Options("y", "regression", chunk=50, every=100)
    with Run(open_source(str(tmp_path / "rows.parquet")), KeyedModel(key="key"), options, tmp_path / "model") as one:
        assert list(one.reports())[-1].rows == 298
        assert one.bad.n == 2
    assert "has no key" in (tmp_path / "model" / "quarantine.jsonl").read_text()
    own = [i for i, key in enumerate(keys) if key == "k1"]
    alone = small_regressor()
    alone.learn(X.take(own).drop_columns(["key", "y"]), y[own])
    assert same_state(one.model.model("k1"), alone)


def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_been(tmp_path, file):
    def go(name: str, resume: bool, stop_after: int | None) -> dict:
        options = Options("y", "regression", chunk=50, every=150, predictions=tmp_path / f"{name}.csv")
        model = None if resume else KeyedModel(key="key", hot=4)
        with Run(open_source(str(file)), model, options, tmp_path / name, resume=resume) as one:
            for report in one.reports():
                if report.rows == stop_after:
                    one.stop()
            return states(one.model)

    whole = go("whole", False, None)
    go("halved", False, 300)
    assert go("halved", True, None) == whole
    assert read_parts(tmp_path / "halved.csv") == read_parts(tmp_path / "whole.csv")


def test_the_commands_take_it(tmp_path, file, capsys):
    words = ["run", str(file), "--target", "y", "--model", str(tmp_path / "m"), "-q", "--json"]
    assert main([*words, "--key", "key", "--max-rows", "400", "--option", "max_depth=3"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 400
    assert main([*words, "--resume"]) == 0  # it knows its key
    assert json.loads(capsys.readouterr().out)["rows"] == 600
    X, y = shared_stream(12, 600, seed=11)
    model = KeyedModel(small_regressor(max_depth=3), key="key")
    model.learn(X, y)
    assert states(read_latest(tmp_path / "m").model) == states(model)

    assert main(["inspect", str(tmp_path / "m"), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["kind"], about["key"], about["keys"], about["rows"]) == ("KeyedModel", "key", model.n_keys, 600)
    assert {column["name"] for column in about["columns"]} == {"city", "a", "b"}
    assert main(["inspect", str(tmp_path / "m")]) == 0
    assert f"{model.n_keys}, by key" in capsys.readouterr().out

    said = tmp_path / "said.csv"
    assert main(["predict", str(file), "--model", str(tmp_path / "m"), "--out", str(said), "--keep", "key"]) == 0
    assert pc.read_csv(said)["prediction"].to_pylist() == pytest.approx(model.predict(X).tolist(), rel=1e-12)

    model.save(tmp_path / "one.safetensors")
    assert states(streamboost.load(tmp_path / "one.safetensors")) == states(model)
    for words, told in (
        (["run", str(file), "--target", "y", "--model", str(tmp_path / "m"), "--key", "city", "--resume"],
         "has a model for each 'key'"),
        (["freeze", str(tmp_path / "m"), str(tmp_path / "f")], "Take that of one key"),
    ):  # fmt: skip
        assert main([*words]) == 2
        assert told in " ".join(capsys.readouterr().err.split())


def test_keys_may_begin_with_a_saved_model(tmp_path, file, capsys):
    X, y = shared_stream(12, 600, seed=12)
    prior = small_regressor().fit(X.drop_columns(["key"]), y)
    prior.save(tmp_path / "prior.safetensors")
    words = ["run", str(file), "--target", "y", "--model", str(tmp_path / "m"), "-q", "--json", "--key", "key"]
    assert main([*words, "--start-from", str(tmp_path / "prior.safetensors")]) == 0
    found = read_latest(tmp_path / "m").model
    assert same_state(found.prior, prior)
    assert found.n_samples_seen_ == 600


def test_a_directory_of_the_former_crew_says_how_to_go_on():
    for name in registry.FORMER:
        with pytest.raises(SnapshotError, match=r"folder 'cluster' beside it.*Learn its rows again"):
            registry.find_class(name)
