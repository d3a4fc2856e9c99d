"""Record what users see, so that a change of the code can be shown to have changed none of it.

``python -m benchmarks.behaviour record FILE`` writes hashes of predictions of both estimators on the 19 streams (3,000
rows each) and of many options, of the golden files, of a run that was killed and resumed, and a server's answers to a
fixed list of requests. ``python -m benchmarks.behaviour compare FILE FILE`` lists what differs, and ends with 1 if
anything does. Real streams come from the folder ``STREAMBOOST_DATA``; those that are missing are left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

import streamboost
from benchmarks import streams
from streamboost import SGBClassifier, SGBRegressor

ROWS, SEED = 3000, 1
GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
SMALL = {"n_estimators": 4, "max_depth": 3, "memory": (64, 256), "random_state": 0}


def digest(*arrays: Any) -> str:
    """A fingerprint of arrays, bit for bit; of texts by their letters."""
    found = hashlib.sha256()
    for array in map(np.asarray, arrays):
        found.update(array.tobytes() if array.dtype.kind in "biuf" else repr(array.tolist()).encode())
    return found.hexdigest()[:16]


def said(model: Any, X: Any, y: Any, weight: Any = None) -> str:
    """What a model predicts before it learns each row, and of the rows once it has learned them."""
    before = model.learn(X, y, weight)
    last = model.predict_proba(X[-200:]) if hasattr(model, "predict_proba") else model.predict(X[-200:])
    return digest(before, last)


def of_streams() -> Iterator[tuple[str, str]]:
    """Both estimators on the streams of the benchmark; classes are numbers for the regressor."""
    for name in streams.NAMES:
        try:
            stream = streams.load(name, ROWS, SEED)
        except streams.MissingData:
            continue
        yield f"regressor {name}", said(SGBRegressor(random_state=0), stream.X, stream.y.astype(float))
        if stream.task == "classification":
            yield f"classifier {name}", said(SGBClassifier(random_state=0), stream.X, stream.y)


def of_options() -> Iterator[tuple[str, str]]:
    """Losses, learners, bases, weights, missing values and text."""
    from streamboost.losses import Quantile

    stream, flow = streams.load("friedman", ROWS, SEED), streams.load("electricity", ROWS, SEED)
    X, y = stream.X[:1000], stream.y[:1000]
    E, c = flow.X[:1000], flow.y[:1000]
    for loss in ("absolute_error", "huber", "quantile", "poisson", Quantile(0.9)):
        yield f"loss {loss}", said(SGBRegressor(loss, random_state=0), X, np.abs(y))
    for loss in ("hinge", "logistic"):
        yield f"loss {loss}", said(SGBClassifier(loss, random_state=0), E, c)
    for options in (
        {"learner": "linear"}, {"learner": "mlp"}, {"learner": "mlp", "semantics": 32}, {"base": "constant"},
        {"memory": 500, "readout": "last"}, {"memory": 500, "readout": "mean"}, {"learning_rate": "theory"},
        {"semantics": "minibatch"}, {"n_jobs": 2}, {"max_features": 0.5}, {"monotonic_cst": {0: 1}},
    ):  # fmt: skip
        yield f"options {options}", said(SGBRegressor(random_state=0, **options), X, y)
    yield "classes mlp", said(SGBClassifier(learner="mlp", random_state=0), E, c)
    rng = np.random.default_rng(0)
    yield "weights", said(SGBRegressor(random_state=0), X, y, rng.lognormal(size=len(X)))
    gaps = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    yield "gaps", said(SGBRegressor(random_state=0), gaps, y)
    yield "two targets", said(SGBRegressor(random_state=0), X, np.column_stack([y, -2 * y]))
    place = rng.choice(["north", "south", "west"], len(X))
    table = pa.table({"x": X[:, 0], "place": place, "gaps": gaps[:, 1]})
    model = SGBRegressor(random_state=0)
    yield "text", digest(model.learn(table, y + 5 * (place == "west")), model.predict(table))
    model = SGBClassifier(random_state=0)
    for row, label in zip(table.to_pylist()[:300], place, strict=False):
        model.learn_one({"x": row["x"], "gaps": row["gaps"]}, str(label))
    yield "row by row", digest([[*model.predict_proba_one(row).values()] for row in table.to_pylist()[:50]])


def of_golden_files() -> Iterator[tuple[str, str]]:
    """What golden files predict, and go on to predict after more rows."""
    rows = pq.read_table(GOLDEN / "answers-v1.parquet")
    X = rows.select(["x", "gaps", "place"])
    for file in sorted(GOLDEN.glob("*.safetensors")):
        model: Any = streamboost.load(file).model
        y = rows[file.stem.split("-")[0]].to_pylist()
        yield f"golden {file.stem}", digest(model.predict(X), model.learn(X, np.array(y)), model.predict(X))


def of_a_killed_run() -> Iterator[tuple[str, str]]:
    """A run that is killed after some of its checkpoints and resumed: its model, its figures and its predictions."""
    stream = streams.load("friedman", 20_000, SEED)
    with tempfile.TemporaryDirectory() as folder:
        rows, model, table = f"{folder}/rows.parquet", Path(folder, "model"), Path(folder, "predictions.parquet")
        pq.write_table(pa.table({f"x{j}": stream.X[:, j] for j in range(10)} | {"y": stream.y}), rows)
        words = [
            sys.executable,
            "-m",
            "streamboost",
            "run",
            rows,
            "--target",
            "y",
            "--model",
            str(model),
            "--json",
            "-q",
        ]
        words += ["--predictions", str(table), "--checkpoint-every", "1000", "--every", "500", "--resume"]
        words += [word for name in ("n_estimators=4", "max_depth=3", "memory=[64,256]") for word in ("--option", name)]
        for goal in (2, 5, 9):
            child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            while len(list(model.glob("checkpoint-*"))) < 1 or newest(model) < goal:
                time.sleep(0.002)
            child.send_signal(signal.SIGKILL)
            child.wait()
        report = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        yield "run metrics", json.dumps(report.get("metrics"), sort_keys=True)
        found: Any = streamboost.load(max(model.glob("checkpoint-*.safetensors")))
        yield "run rows", str(found.rows)
        yield "run model", digest(found.model.predict([{f"x{j}": row[j] for j in range(10)} for row in stream.X[:200]]))
        predictions = pyarrow.dataset.dataset(table).to_table()
        yield "run predictions", digest(*[column.to_numpy() for column in predictions.columns])


def newest(model: Path) -> int:
    """The number of the newest checkpoint."""
    return max((int(file.name[11:19]) for file in model.glob("checkpoint-*.safetensors")), default=0)


def requests() -> Iterator[tuple[str, str, Any]]:
    """Name, path and body of requests: good ones, odd ones and bad ones."""
    stream = streams.load("friedman", ROWS, SEED)
    rows = [{f"x{j}": float(v) for j, v in enumerate(x[:5])} for x in stream.X[:300]]
    full = [row | {"y": float(y)} for row, y in zip(rows, stream.y, strict=False)]
    yield "too early", "/predict", {"row": rows[0]}
    yield "first rows", "/learn", {"rows": full[:100], "id": "a"}
    yield "repeated", "/learn", {"rows": full[:100], "id": "a"}
    yield "one row", "/learn", {"row": full[100]}
    yield "targets beside", "/learn", {"rows": rows[101:200], "targets": [row["y"] for row in full[101:200]]}
    yield "weights", "/learn", {"rows": full[200:210], "weights": [2.0] * 10}
    yield "some without target", "/learn", {"rows": [*full[210:215], rows[215], {**rows[216], "y": None}]}
    yield "predict", "/predict", {"rows": rows[:40]}
    yield "predict one", "/predict", {"row": rows[41]}
    yield "missing and unknown", "/predict", {"rows": [{"x0": None}, {"x9": 1.0}, {}]}
    yield "whole numbers", "/predict", {"rows": [{"x0": 1, "x1": True}, {"x0": 2**53 + 1}]}
    yield "keys", "/predict", {"rows": rows[220:223], "keys": ["k1", "k2", "k3"]}
    yield "labels", "/label", {"labels": [{"key": "k1", "target": 3.5}, {"key": "k9", "target": 1.0}]}
    yield "label again", "/label", {"labels": [{"key": "k1", "target": 4.5}]}
    yield "text for a number", "/learn", {"rows": [{"x0": "high", "y": 1.0}]}
    yield "text for a target", "/learn", {"rows": [{"x0": 1.0, "y": "high"}]}
    yield "new column", "/learn", {"rows": [{**full[230], "place": "north"}, {**full[231], "place": "south"}]}
    yield "after the new column", "/predict", {"rows": [{**rows[232], "place": "south"}]}
    yield "no rows", "/predict", {}
    yield "empty", "/predict", {"rows": []}
    yield "both", "/predict", {"row": rows[0], "rows": rows[:1]}
    yield "unknown member", "/predict", {"row": rows[0], "colour": 1}
    yield "nested", "/predict", {"row": {"x0": {"a": 1}}}
    yield "a list", "/predict", {"row": {"x0": [1]}}
    yield "no object", "/predict", [1, 2]
    yield "too few targets", "/learn", {"rows": rows[:3], "targets": [1.0]}
    yield "bad weight", "/learn", {"rows": full[:1], "weights": [-1.0]}
    yield "too few keys", "/predict", {"rows": rows[:3], "keys": ["a"]}
    for name, value in {
        "not a number": b"NaN",
        "infinite": b"Infinity",
        "huge": b"1e999",
        "no utf-8": b'"\xff"',
        "digits": b"9" * 5000,
        "deep": b"[" * 100_000,
    }.items():
        yield name, "/predict", b'{"row": {"x0": ' + value + b"}}"
    yield "no json", "/predict", b"{"


def of_a_server() -> Iterator[tuple[str, Any]]:
    """Status and answer of every request, and the document that tells which there are."""
    from starlette.testclient import TestClient

    from streamboost.live import LiveModel
    from streamboost.serving import create_app

    with tempfile.TemporaryDirectory() as folder:
        live = LiveModel(folder, SGBRegressor(new_columns="grow", **SMALL), target="y")
        with TestClient(create_app(live), base_url="http://localhost") as client:
            for name, path, body in requests():
                content = body if isinstance(body, bytes) else json.dumps(body)
                answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
                yield f"request {name}", {"status": answer.status_code, "body": answer.json()}
                while client.get("/healthz").json()["rows"] != live.rows:
                    time.sleep(0.01)
            yield "openapi", client.get("/openapi.json").json()
        live.close()


def compare(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Print what differs; return how much."""
    differs = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    for name in differs:
        print(f"{name}\n  {json.dumps(one.get(name))[:600]}\n  {json.dumps(other.get(name))[:600]}")
    print(f"{len({**one, **other}) - len(differs)} equal, {len(differs)} different")
    return len(differs)


def main(words: list[str]) -> int:
    if len(words) == 3 and words[0] == "compare":
        one, other = (json.loads(Path(word).read_text()) for word in words[1:])
        return 1 if compare(one, other) else 0
    if len(words) != 2 or words[0] != "record":
        print(__doc__, file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    for part in (of_golden_files, of_a_server, of_options, of_streams, of_a_killed_run):
        for name, value in part():
            print(name, file=sys.stderr)
            found[name] = value
    Path(words[1]).write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
