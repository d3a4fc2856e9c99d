"""What the server tells of itself: numbers, the model, the dashboard."""

import json

import httpx
import numpy as np
import pyarrow as pa
import pytest
from served import SMALL, friedman, numbers, serving, wait_for

from streamboost import SGBRegressor


def test_prometheus_is_told_what_happened(regression):
    rows = friedman(100)
    rows[7]["y"] = None
    regression.learn(rows)
    regression.catch_up()
    for _ in range(3):
        regression.post("/predict", json={"rows": [{"x0": 1.0}] * 2})
    regression.post("/predict", json={"row": {"x0": 1.0}, "keys": ["k"]})
    regression.post("/predict", json={"row": []})
    found = numbers(regression)
    expected = {
        "rows_learned_total": 99,
        "rows_quarantined_total": 1,
        "predictions_total": 7,
        "model_rows": 99,
        "published_rows": 99,
        "pending_rows": 1,
        "quarantine_rows": 1,
        "queue_length": 0,
        "held_bytes": 0,
        "checkpoint_failing": 0,
        'request_seconds_count{route="/predict",status="200"}': 4,
        'request_seconds_count{route="/predict",status="422"}': 1,
        'request_seconds_count{route="/learn",status="200"}': 1,
    }
    assert {name: found[f"streamboost_{name}"] for name in expected} == expected
    assert 0 <= found["streamboost_checkpoint_age_seconds"] < 600
    bare, y = SGBRegressor(**SMALL), np.array([row["y"] for row in rows if row["y"] is not None])
    columns = {f"x{j}": [row[f"x{j}"] for row in rows if row["y"] is not None] for j in range(5)}
    said = bare.learn(pa.table(columns), y)
    rmse = float(np.sqrt(np.mean((said - y) ** 2)))
    assert found['streamboost_metric_running{metric="rmse"}'] == pytest.approx(rmse)
    assert found['streamboost_metric_windowed{metric="rmse"}'] == pytest.approx(rmse)


def test_prometheus_is_told_no_metric_that_has_no_value(classes):
    classes.learn([{"x": float(k), "y": "only"} for k in range(20)])
    told = {name for name in numbers(classes) if name.startswith("streamboost_metric_running")}
    assert told == {f'streamboost_metric_running{{metric="{name}"}}' for name in ("accuracy", "log_loss")}  # no kappa


def test_the_score_goes_on_after_a_restart(tmp_path):
    found = []
    for part in (slice(0, 100), slice(100, 150)):
        with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
            served.learn(friedman(150)[part])
            found.append(numbers(served)['streamboost_metric_running{metric="mae"}'])
    with serving(tmp_path / "n", SGBRegressor(**SMALL)) as served:
        served.learn(friedman(150))
        whole = numbers(served)['streamboost_metric_running{metric="mae"}']
        assert whole == pytest.approx(found[1], rel=1e-12)  # as sums of other portions round
        assert whole != pytest.approx(found[0], rel=1e-3)


def test_the_model_says_what_it_is(regression):
    assert regression.get("/model").json()["rows"] == 0
    regression.learn(friedman(50))
    regression.catch_up()
    about = regression.get("/model").json()
    assert (about["kind"], about["task"], about["rows"], about["target"]) == ("SGBRegressor", "regression", 50, "y")
    assert [column["name"] for column in about["columns"]] == [f"x{j}" for j in range(5)]


def test_the_dashboard_hears_of_what_was_learned(regression):
    with regression.client.stream("GET", "/events") as events:
        lines = events.iter_lines()
        assert any(line == "event: history" for line in lines)
        with httpx.Client(base_url=regression.running.url, timeout=180) as other:
            other.post("/learn", json={"rows": friedman(70)})
        told = (json.loads(line[len("data: ") :]) for line in lines if line.startswith('data: {"number"'))
        seen = next(one for one in told if one["rows"])  # a slow machine tells of 0 rows first
    assert seen["rows"] == 70
    assert seen["metrics"].keys() == {"rmse", "mae", "r2"}


def newest(served):
    """What the dashboard was told last; nothing at all, before that."""
    return next(iter(served.feed.history()["observations"][-1:]), {"rows": None})


def test_the_dashboard_hears_of_predictions_though_nothing_is_learned(regression):
    regression.learn(friedman(70))
    wait_for(lambda: newest(regression)["rows"] == 70)
    told = len(regression.feed.history()["observations"])
    assert newest(regression)["latency_ms"] is None
    regression.post("/predict", json={"row": {"x0": 0.5}})
    wait_for(lambda: newest(regression)["latency_ms"] is not None)
    assert len(regression.feed.history()["observations"]) == told, "at the same row"


def test_what_happened_before_the_server_started_has_no_time(tmp_path):
    for part, new in ((friedman(70), "first"), (friedman(70, seed=1), "second")):
        with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
            served.learn(part[:40])
            served.learn([{**row, new: 1.0} for row in part[40:]])
            wait_for(lambda served=served: newest(served)["rows"] == served.live.rows)
            events = {event["detail"]: event["time"] for event in served.feed.history()["events"]}
    assert events.keys() == {"first", "second"}
    assert events["first"] is None
    assert events["second"] > 0


def test_the_pace_that_the_dashboard_hears_of_falls_when_nothing_more_is_learned(regression):
    regression.learn(friedman(70))
    wait_for(lambda: newest(regression)["rows"] == 70)
    pace = newest(regression)["rows_per_second"]
    wait_for(lambda: newest(regression)["rows_per_second"] < pace / 2)


def test_a_checkpoint_can_be_asked_for(regression):
    regression.learn(friedman(30))
    before = {path.name for path in regression.live.directory.glob("checkpoint-*")}
    assert regression.post("/checkpoint").json() == {"rows": 30}
    assert {path.name for path in regression.live.directory.glob("checkpoint-*")} != before
