"""``streamboost predict --interval``: the ends that the model gives in Python, and clear refusals."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.cli import main

COLUMNS = [f"x{j}" for j in range(10)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intervals")
    X, y, *_ = datasets.friedman(600, noise=1.0, seed=0)
    rows = pa.table(dict(zip(COLUMNS, X.T, strict=True)))
    models = {
        "numbers": SGBRegressor(random_state=0).partial_fit(rows, y),
        "classes": SGBClassifier(random_state=0).partial_fit(rows, np.where(y > 14, "high", "low")),
        "hinge": SGBClassifier(loss="hinge", random_state=0).partial_fit(rows, np.where(y > 14, "high", "low")),
        "two": SGBRegressor(random_state=0).partial_fit(rows, np.c_[y, y]),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.safetensors")
    pa.csv.write_csv(rows.slice(0, 40), folder / "rows.csv")
    return folder, models, rows.slice(0, 40)


def predict(folder, model, *more):
    return main(["predict", str(folder / "rows.csv"), "--model", str(folder / f"{model}.safetensors"), *more])


def test_ends_of_intervals(saved, capsys):
    folder, models, rows = saved
    assert predict(folder, "numbers", "--interval", "0.8", "--json") == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = [[line["low"], line["high"]] for line in said]
    np.testing.assert_allclose(ends, models["numbers"].predict_interval(rows, 0.8))


def test_sets_of_labels(saved, capsys):
    folder, models, rows = saved
    assert predict(folder, "classes", "--interval", "0.95", "--json") == 0
    said = [json.loads(line)["set"] for line in capsys.readouterr().out.splitlines()]
    assert said == ["|".join(labels) for labels in models["classes"].predict_set(rows, 0.95)]


@pytest.mark.parametrize(
    ("model", "interval", "told"),
    [
        ("numbers", "90", "expected a number from 0.5 to 0.99"),
        ("hinge", "0.9", "for models that tell probabilities"),
        ("two", "0.9", "--interval is for one target"),
    ],
)
def test_what_has_no_interval(saved, capsys, model, interval, told):
    folder, *_ = saved
    assert predict(folder, model, "--interval", interval) in (1, 2)
    assert told in capsys.readouterr().err
