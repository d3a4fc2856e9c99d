"""Rows that wait for their labels, over HTTP."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from served import ARROW, SMALL, arrow, friedman, wait_for

from streamboost import SGBRegressor
from streamboost.live import LiveModel
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.writer import Writer


def test_rows_with_keys_wait_for_their_labels(regression):
    rows = friedman(60)
    asked = [{k: v for k, v in row.items() if k != "y"} for row in rows]
    keys = [f"row {i}" for i in range(60)]
    said = regression.post("/predict", json={"rows": asked, "keys": keys}).json()
    assert said == {"predictions": [None] * 60, "model_rows": 0}, "before anything was learned they can only wait"
    assert regression.live.n_pending == 60
    labels = [{"key": key, "target": row["y"]} for key, row in zip(keys, rows, strict=True)]
    answer = regression.post("/label", json={"labels": labels[:50], "id": "x"}).json()
    expected = {"learned": 50, "corrected": 0, "unchanged": 0, "early": 0, "quarantined": [], "repeated": False}
    assert answer == expected
    assert regression.post("/label", json={"labels": labels[:50], "id": "x"}).json() == expected | {"repeated": True}
    assert regression.live.n_pending == 10
    again = [{"key": "row 0", "target": 5.0}, labels[1], {"key": "row 99", "target": 1.0}, labels[50]]
    answer = regression.post("/label", json={"labels": again}).json()
    assert answer == expected | {"learned": 1, "corrected": 1, "unchanged": 1, "early": 1}


@pytest.mark.parametrize("is_arrow", [False, True])
def test_a_row_asked_about_again_with_its_id_does_not_wait_again_once_it_was_learned(regression, is_arrow):
    def ask(id):
        if is_arrow:
            body = arrow(pa.table({"x0": [0.1], "k": ["key"]}))
            answer = regression.post(f"/predict?key=k&id={id}", content=body, headers=ARROW)
        else:
            answer = regression.post("/predict", json={"row": {"x0": 0.1}, "keys": ["key"], "id": id})
        assert answer.status_code == 200, answer.text

    regression.learn(friedman(30))
    ask("once")
    assert regression.live.n_pending == 1
    regression.post("/label", json={"labels": [{"key": "key", "target": 3.0}]})
    ask("once")
    assert (regression.live.n_pending, regression.live.rows) == (0, 31)
    ask("another")
    assert regression.live.n_pending == 1


def test_a_flood_of_expired_rows_is_learned_bit_by_bit_with_requests_in_between(tmp_path):
    now = [0.0]
    live = LiveModel(
        tmp_path, SGBRegressor(**SMALL), target="y", expire_after=60.0, default=0.0, clock=lambda: now[0], durable=False
    )
    live.remember([f"key {i}" for i in range(1200)], pa.table({"x0": np.linspace(0, 1, 1200)}))
    now[0] = 61.0
    seen, expire, asked = [], live.expire, threading.Event()

    def watched(**limits):
        seen.append(expire(**limits))
        assert asked.wait(300)
        return seen[-1]

    live.expire = watched
    writer = Writer(live, list)
    writer.start()
    wait_for(lambda: live.rows > 0)
    done = writer.submit(lambda: seen.append("a request"))
    asked.set()
    done.result(180)
    wait_for(lambda: live.rows == 1200)
    writer.stop()
    live.close()
    assert seen[:4] == [500, "a request", 500, 200]


def test_an_early_label_is_learned_when_its_row_comes_without_another_request(regression):
    regression.learn(friedman(30))
    regression.post("/label", json={"labels": [{"key": "k", "target": 3.0}]})
    regression.post("/predict", json={"row": {"x0": 0.1}, "keys": ["k"]})
    wait_for(lambda: regression.live.rows == 31)
    regression.catch_up()


def test_what_was_answered_is_what_is_scored(regression):
    """A label that comes after the model has learned the opposite is held against the answer that was given."""
    regression.learn([{"x": 1.0, "y": 0.0}] * 200)
    regression.catch_up()
    said = regression.post("/predict", json={"row": {"x": 1.0}, "keys": ["k"]}).json()["predictions"][0]
    regression.learn([{"x": 1.0, "y": 10.0}] * 200)
    before = regression.live.state["scores"].running[0].summary
    regression.post("/label", json={"labels": [{"key": "k", "target": 10.0}]})
    after = regression.live.state["scores"].running[0].summary
    added = after.weight * after.mean - before.weight * before.mean
    assert added == pytest.approx((said - 10.0) ** 2, abs=1e-6)
    assert abs(said) < 1.0


def test_keys_and_labels_in_arrow(classes):
    keys = [f"k{i}" for i in range(40)]
    asked = pa.table({"id": keys, "x": [float(i % 2) for i in range(40)]})
    assert classes.post("/predict?key=id", content=arrow(asked), headers=ARROW).json()["predictions"] == [None] * 40
    labels = pa.table({"id": keys, "y": ["even", "odd"] * 20})
    assert classes.post("/label?key=id", content=arrow(labels), headers=ARROW).json()["learned"] == 40
    classes.catch_up()
    said = classes.post("/predict", content=arrow(asked.select(["x"])), headers=ARROW | {"Accept": ARROW_TYPE})
    read = pa.ipc.open_stream(said.content).read_all()
    assert read.column_names == ["prediction", "probability:even", "probability:odd"]
    assert read["prediction"].to_pylist() == ["even", "odd"] * 20
    assert classes.post("/label", content=arrow(labels), headers=ARROW).status_code == 422
