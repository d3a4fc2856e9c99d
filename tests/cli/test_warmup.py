"""``streamboost warmup`` compiles everything that models call later on, and says where it left it."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from streamboost.cli import main
from streamboost.kernels import caching

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def test_warmup_says_where_compiled_code_is_kept(capsys):
    assert main(["warmup"]) == 0
    out, err = capsys.readouterr()
    (where,) = {str(folder) for folder in caching.folders_used}
    assert out == f"Compiled code is kept in {where}\n"
    assert "1 of 3: models of trees" in err


def test_a_warmup_that_keeps_nothing_fails(monkeypatch, capsys):
    monkeypatch.setattr("streamboost.cli.warmup_command._trees", lambda: caching.folders_used.add(None))
    monkeypatch.setattr(caching, "folders_used", set())
    assert main(["warmup"]) == 1
    assert "could not be kept. Set NUMBA_CACHE_DIR" in capsys.readouterr().err


def test_two_processes_warm_up_as_one_does():
    program = [sys.executable, "-m", "streamboost", "warmup"]
    said = [
        subprocess.run([*program, "--jobs", jobs], env=os.environ, check=True, capture_output=True, text=True).stdout
        for jobs in "12"
    ]
    assert said[0] == said[1] != ""


# What people do first: none of it may need another kernel, or a kernel for other arrays, than warmup has compiled.
USED = """
import importlib, pkgutil
import numpy as np, pandas as pd, pyarrow as pa
from sklearn.linear_model import LinearRegression
from streamboost import SGBClassifier, SGBRegressor, cli, datasets, kernels

def compiled():
    names = [found.name for found in pkgutil.walk_packages(kernels.__path__, "streamboost.kernels.") if not found.ispkg]
    members = [(name, member) for name in names for member in vars(importlib.import_module(name)).values()]
    return {
        f"{name}.{member.__name__}": set(member.signatures)
        for name, member in members
        if getattr(member, "__module__", None) == name and hasattr(member, "targetoptions")
        and "no_cpython_wrapper" not in member.targetoptions
    }

assert cli.main(["warmup", "--networks"]) == 0
before = compiled()
never = {name for name, signatures in before.items() if not signatures}
assert never == {"streamboost.kernels.hedge.reweigh"}, never  # which kernels alone call

X, y, *_ = datasets.friedman(300)
X, classes, words = X[:, :4], np.digitize(y, [10, 15]), np.where(X[:, 0] > 0.5, "high", "low")
frame = pd.DataFrame({"x": X[:, 1], "word": words, "at": pd.date_range("2024-05-01", periods=300, freq="h")})
tables = [X, X[:, :1], np.asfortranarray(X), X[:, ::2], X.astype("f4"), (9 * X).astype(int), frame, frame[["word"]]]
for table in [*tables, pa.table({"x": X[:, 0]}), frame.to_dict("records")]:
    for model, target in ((SGBRegressor(), y), (SGBClassifier(), classes > 0), (SGBClassifier(), classes)):
        model.learn(table, target, sample_weight=np.arange(1.0, 301.0))
        model.predict(table), model.feature_importances_, model.explain(table)
        isinstance(model, SGBRegressor) and model.predict_interval(table)
for loss in ("absolute_error", "huber", "quantile", "poisson"):
    SGBRegressor(loss=loss).fit(X, y - y.min()).predict(X)
parts = {"base": "constant"}, {"monotonic_cst": {0: 1}}, {"max_features": 0.5, "n_jobs": 2}, {"memory": 64}
for part in (*parts, {"readout": "last", "memory": 64}, {"base": LinearRegression().fit(X, y)}, {"learner": "linear"}):
    SGBRegressor(**part).fit(X, y).predict(X)
SGBClassifier(learner="linear").fit(frame, classes).predict(frame)
SGBRegressor().fit(X, np.stack([y, y], axis=1)).predict(X)
for model, target in ((SGBRegressor(learner="mlp"), y), (SGBClassifier(learner="mlp"), classes)):
    list(model.fit(X, target).staged_predict(X))
frame.assign(y=y, quoted='a "word", and more').to_csv("rows.csv", index=False)
assert cli.main(["run", "rows.csv", "--target", "y", "--model", "model", "-q"]) == 0
assert cli.main(["inspect", "model"]) == 0
assert cli.main(["predict", "rows.csv", "--model", "model", "--out", "said.csv"]) == 0

new = {name: signatures - before.get(name, set()) for name, signatures in compiled().items()}
assert not any(new.values()), {name: found for name, found in new.items() if found}
"""


def test_after_a_warmup_nothing_is_left_to_compile(tmp_path):
    settings = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", USED], cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
