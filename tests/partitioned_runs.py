"""Partitions of a stream as files, a command that runs them, and each as a run by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from killed_runs import SMALL
from prediction_parts import read_parts

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state

OFTEN = ["--checkpoint-every", "200", "--every", "100"]


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    user = rng.choice([f"user {i}" for i in range(7)], n)
    columns = {f"x{j}": X[:, j] for j in range(3)}
    return pa.table({"user": user, **columns, "y": X[:, 0] * X[:, 1] + np.sin(X[:, 2])})


def alone(tmp_path, name, *words):
    """The run of one partition by itself."""
    where = tmp_path / "alone" / name
    where.mkdir(parents=True, exist_ok=True)
    said = ["--model", str(where / "m"), "--predictions", str(where / "said.parquet"), "-q", "--json"]
    assert main(["run", str(tmp_path / name), "--target", "y", "--task", "regression", *said, *words]) == 0
    return read_latest(where / "m"), read_parts(where / "said.parquet")


def check_same(tmp_path, names, *words):
    """Models, rows and predictions of each are those of a run of it by itself: each row once."""
    for name in names:
        model, said = alone(tmp_path, name, *words)
        found = read_latest(tmp_path / "m" / name)
        assert found.rows == model.rows
        states = [one.to_saved(None) if hasattr(one, "to_saved") else one for one in (found.model, model.model)]
        if hasattr(states[0], "states"):
            assert sorted(found.model.keys()) == sorted(model.model.keys())
            for key in [*model.model.keys()]:
                assert same_state(found.model.model(key), model.model.model(key))
        else:
            assert same_state(*states)
        assert read_parts(tmp_path / "said" / name) == said


def words_of(tmp_path, *more):
    where = ["--model", str(tmp_path / "m"), "--predictions", str(tmp_path / "said")]
    return ["run", str(tmp_path / "part-*.parquet"), "--target", "y", *where, "--json", "-q", *SMALL, *OFTEN, *more]
