"""Small live models and their rows, for tests."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamboost import SGBClassifier, SGBRegressor

SMALL = {"n_estimators": 5, "max_depth": 3, "memory": 64, "random_state": 0, "new_columns": "grow"}
SCHEMA = pa.schema([("a", pa.float64()), ("b", pa.string())])


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def regressor(**options):
    return SGBRegressor(**SMALL | options)


def classifier(**options):
    return SGBClassifier(**SMALL | options)


def features(*rows):
    return pa.Table.from_pylist([dict(zip("ab", row, strict=True)) for row in rows], SCHEMA)


def rows_of(n, seed=0, target="target"):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.choice(["x", "y", "z"], n)
    return pa.table({"a": a, "b": b, target: a + (b == "x") + rng.normal(size=n) / 10})


def columns_of(table, target="target"):
    return table.drop_columns([target]), table[target].to_numpy()


def crash(live, tmp_path):
    """What a process leaves behind that is killed now: a copy of its files."""
    copied = Path(tempfile.mkdtemp(dir=tmp_path))
    shutil.copytree(live.directory, copied, ignore=shutil.ignore_patterns("lock"), dirs_exist_ok=True)
    live._let_go()
    live._is_closed = True
    return copied
