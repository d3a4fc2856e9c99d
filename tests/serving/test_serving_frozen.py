"""Copies that predict hold no rows and tell what the model would; a frozen model is served to predict only."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx
import numpy as np
import pyarrow as pa
import pytest
import small_growth
from served import ARROW, SMALL, arrow, friedman, numbers, serving

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.boosting import growth
from streamboost.dashboard import Feed, observe, serve_in_thread
from streamboost.estimators.describe import describe, size
from streamboost.live import FrozenModel, LiveModel
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore
from streamboost.serving import create_app, open_live
from streamboost.serving.open_model import Unusable
from streamboost.serving.writer import ModelCopy

TABLE = pa.Table.from_pylist(friedman(300))
ROWS, Y = TABLE.drop_columns(["y"]), TABLE["y"].to_numpy()
OBSERVED = {"rows": 300, "running": {}, "windowed": {}, "rows_per_second": None, "time": 0.0}


@pytest.fixture
def model():
    model = SGBRegressor(**SMALL)
    model.learn(ROWS, Y)
    return model


@pytest.mark.parametrize("learner", ["tree", "linear", "mlp"])
@pytest.mark.parametrize("kind", [SGBRegressor, SGBClassifier])
def test_a_copy_tells_all_that_the_model_would(kind, learner):
    model = kind(**SMALL | {"learner": learner, "n_estimators": 8})
    y = Y if kind is SGBRegressor else np.where(Y.mean() < Y, "high", "low")
    model.learn(ROWS, y)
    model.learn_one({"x0": 1.0, "late": "a"}, y[0].item())
    copied = ModelCopy(model, 301, 1, 0.0)
    assert describe(copied.model) | copied.about == describe(model)
    assert describe(model)["frozen"] is False
    assert observe(copied.model, **OBSERVED) == observe(model, **OBSERVED)
    assert copied.model.events_ == model.events_
    assert copied.columns == {*ROWS.column_names, "late"}
    rows = ROWS.to_pylist()
    np.testing.assert_array_equal(copied.model.raw_scores(rows), model.raw_scores(rows))


def test_a_copy_is_as_small_whatever_the_memory():
    sizes = []
    for memory in (64, 1000):
        model = SGBRegressor(**SMALL | {"memory": memory})
        model.learn(ROWS, Y)
        sizes.append(size(ModelCopy(model, 300, 1, 0.0).model))
        assert sizes[-1] < size(model)
    some_rows = (300 - 64) * (5 + 1) * 8  # of those held, by which importances are found: at most 512
    assert sizes[1] - sizes[0] == some_rows


def test_a_copy_of_a_model_that_has_grown_is_as_small_however_many_rows_it_holds(monkeypatch):
    small_growth.shrink(monkeypatch.setattr)
    monkeypatch.setattr(growth, "MOST_ROWS", 1 << 20)
    monkeypatch.setattr(growth.Growth, "_resize", lambda *_: None)  # as many trees throughout
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    y = X[:, 0] + np.sin(3 * X[:, 1])
    monkeypatch.setattr(growth.Growth, "leave", lambda *_: None)
    model, sizes, whole = SGBRegressor(**SMALL | {"memory": "grow"}), [], []
    for start, stop in ((0, 1000), (1000, 10_000)):
        model.partial_fit(X[start:stop], y[start:stop])
        assert model.committee_.boosters[0].replay.fill == stop
        sizes.append(size(ModelCopy(model, stop, 1, 0.0).model))
        whole.append(size(model))
    assert sizes[0] == sizes[1]
    assert whole[1] > 5 * whole[0]


def test_the_model_over_http_is_what_the_model_says(model, tmp_path):
    with serving(tmp_path / "m", model) as served:
        assert served.get("/model").json() == describe(model) | {"target": "y"}
        served.learn(friedman(50, seed=1))
        served.catch_up()
        assert served.get("/model").json() == describe(served.live.model) | {"target": "y"}


@contextmanager
def frozen_server(path, **options):
    feed = Feed("test")
    with (
        open_live(path, **options) as live,
        serve_in_thread(create_app(live, feed=feed), feed=feed) as running,
        httpx.Client(base_url=running.url, timeout=180) as client,
    ):
        yield client


def test_a_frozen_model_predicts_and_nothing_is_written(model, tmp_path):
    model.freeze().save(tmp_path / "frozen.safetensors")
    with frozen_server(tmp_path / "frozen.safetensors", target="price") as client:
        expected = model.predict(ROWS).tolist()
        assert client.post("/predict", json={"rows": ROWS.to_pylist()}).json()["predictions"] == expected
        said = client.post("/predict", json={"row": ROWS.to_pylist()[3]}).json()
        assert said == {"predictions": expected[3:4], "model_rows": 300}
        assert client.post("/predict", content=arrow(ROWS), headers=ARROW).json()["predictions"] == expected
        assert client.get("/healthz").json() == {"status": "ok", "rows": 300}
        about = client.get("/model").json()
        assert about == describe(model.freeze()) | {"target": "price"}
        assert about["frozen"] is True
        assert numbers(client)["streamboost_model_rows"] == 300
        assert client.get("/").status_code == client.get("/docs").status_code == 200
        for path, body in (
            ("/learn", {"row": {"x0": 1.0}, "targets": [1.0]}),
            ("/label", {"labels": [{"key": "k", "target": 1.0}]}),
            ("/predict", {"row": {"x0": 1.0}, "keys": ["k"]}),
            ("/checkpoint", {}),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code == 409
            assert "is frozen: it predicts, and learns no more" in answer.json()["error"]
            assert "409" in client.get("/openapi.json").json()["paths"][path]["post"]["responses"]
    assert [path.name for path in tmp_path.iterdir()] == ["frozen.safetensors"]
    model.learn(ROWS, Y)
    model.freeze().save(tmp_path / "frozen.safetensors")  # a newer one in its place is served from then on
    with frozen_server(tmp_path / "frozen.safetensors") as client:
        assert client.post("/predict", json={"row": {"x0": 1.0}}).json()["model_rows"] == 600


def test_classes_of_a_frozen_model_have_probabilities(tmp_path):
    model = SGBClassifier(**SMALL)
    model.learn(ROWS, np.where(Y.mean() < Y, "high", "low"))
    model.freeze().save(tmp_path / "frozen.safetensors")
    with frozen_server(tmp_path / "frozen.safetensors", task="classification") as client:
        said = client.post("/predict", json={"row": {"x0": 0.5}}).json()
    assert said["probabilities"] == [model.predict_proba_one({"x0": 0.5})]


def test_what_makes_no_sense_for_a_frozen_model_is_refused(model, tmp_path):
    frozen, path = model.freeze(), tmp_path / "frozen.safetensors"
    frozen.save(path)
    with pytest.raises(Unusable, match="one for regression"):
        open_live(path, task="classification")
    for options in ({"default": "0"}, {"expire_after": 5.0}):
        with pytest.raises(Unusable, match="no row waits for a label"):
            open_live(path, **options)
    for directory in ("new", "live"):
        with pytest.raises(ValueError, match=r"model is frozen, expected one that learns\. Pass the one it was made"):
            (open_live if directory == "new" else LiveModel)(tmp_path / directory, model=frozen)
    with CheckpointStore(tmp_path / "run") as store:
        store.save(Checkpoint(frozen, rows=300, state={"target": "price"}))
    with open_live(tmp_path / "run") as live:
        assert isinstance(live, FrozenModel)
        assert (live.target, live.rows) == ("price", 300)
        with pytest.raises(RuntimeError, match="frozen"):
            live.learn(TABLE)


def test_the_program_says_that_it_serves_a_frozen_model(model, tmp_path):
    model.freeze().save(tmp_path / "frozen.safetensors")
    words = [sys.executable, "-m", "streamboost", "serve", "--model", "frozen.safetensors", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ) as server:
        said = server.stderr.readline()
        url = re.search(r"serving (http://[^\s,]+), a frozen model of 300 rows, which learns no more", said)[1]
        assert httpx.post(f"{url}predict", json={"row": {"x0": 0.5}}, timeout=180).json()["predictions"] == [
            streamboost.load(tmp_path / "frozen.safetensors").predict_one({"x0": 0.5})
        ]
        server.send_signal(signal.SIGINT)
        assert server.stderr.read().splitlines()[-1] == "streamboost serve: ended"
    assert server.returncode == 0
