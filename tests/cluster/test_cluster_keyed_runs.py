"""One model per key in the loops: prequential scores, runs of files, quarantine, resuming."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from keyed_streams import shared_stream, states
from prediction_parts import read_parts

from streamboost.cluster.key_models import small_classifier, small_regressor
from streamboost.cluster.keyed import KeyedBooster
from streamboost.persistence.object_graph import same_state
from streamboost.prequential import run
from streamboost.runs.run import Options, Run
from streamboost.sources import open_source


def test_prequential_scores_it_like_any_estimator():
    X, y = shared_stream(5, 800, seed=8)
    pandas = pytest.importorskip("pandas")
    with KeyedBooster("key") as booster:
        history = run(booster, X.append_column("y", pa.array(y)), "y", every=400)
        assert set(history.last.running) == {"rmse", "mae", "r2"}
        assert history.last.running["r2"] > 0.3
    labels = np.where(y > 2, "up", "down")
    with KeyedBooster("key", small_classifier()) as booster:
        rows = pandas.DataFrame(X.to_pydict()).assign(y=labels)
        history = run(booster, rows, "y", every=400)
        assert set(history.last.running) == {"accuracy", "kappa", "log_loss"}
        assert history.last.running["accuracy"] > 0.6
    with KeyedBooster("key", small_classifier()) as booster:
        late = run(booster, X.append_column("y", pa.array(labels)).slice(0, 100), "y", every=100, delay=10)
        assert late.last.rows == 100


def test_a_run_learns_a_file_with_it(tmp_path):
    X, y = shared_stream(5, 600, seed=9)
    labels = np.where(y > 2, "up", "down")
    parquet.write_table(X.append_column("y", pa.array(labels)), tmp_path / "rows.parquet")
    with KeyedBooster("key", small_classifier()) as booster:
        options = Options("y", "classification", chunk=100, every=300, predictions=tmp_path / "said.csv")
        with Run(open_source(str(tmp_path / "rows.parquet")), booster, options) as run_:
            reports = list(run_.reports())
        assert reports[-1].rows == 600
        assert {"accuracy", "auc"} <= set(reports[-1].running)
        assert sum(map(booster.key_rows, booster.keys())) == 600


def test_a_run_puts_rows_without_a_key_into_quarantine(tmp_path):
    X, y = shared_stream(5, 300, seed=12)
    keys = [None if i in (150, 217) else key for i, key in enumerate(X["key"].to_pylist())]
    X = X.set_column(0, "key", pa.array(keys)).append_column("y", pa.array(y))
    parquet.write_table(X, tmp_path / "rows.parquet")
    with KeyedBooster("key", directory=tmp_path / "keys") as booster:
        options = Options("y", "regression", chunk=50, every=100)
        with Run(open_source(str(tmp_path / "rows.parquet")), booster, options, tmp_path / "model") as run_:
            assert list(run_.reports())[-1].rows == 298
            assert run_.bad.n == 2
        assert "has no key" in (tmp_path / "model" / "quarantine.jsonl").read_text()
        own = [i for i, key in enumerate(keys) if key == "k1"]
        alone = small_regressor()
        alone.learn(X.take(own).drop_columns(["key", "y"]), y[own])
        assert same_state(booster.model_of("k1"), alone)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_been(tmp_path, workers):
    X, y = shared_stream(12, 900, seed=11)
    parquet.write_table(X.append_column("y", pa.array(y)), tmp_path / "rows.parquet")

    def go(name: str, resume: bool, stop_after: int | None) -> dict:
        booster = KeyedBooster("key", hot=4, directory=tmp_path / name / "keys", workers=workers, engine="local")
        options = Options("y", "regression", chunk=50, every=300, predictions=tmp_path / f"{name}.csv")
        source = open_source(str(tmp_path / "rows.parquet"))
        with booster, Run(source, booster, options, tmp_path / name, resume=resume) as run_:
            for report in run_.reports():
                if report.rows == stop_after:
                    run_.stop()
            return states(booster)

    whole = go("whole", False, None)
    go("halved", False, 300)
    assert go("halved", True, None) == whole
    assert read_parts(tmp_path / "halved.csv") == read_parts(tmp_path / "whole.csv")
