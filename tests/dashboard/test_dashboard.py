"""The dashboard without a browser: observations, the feed, the routes, the server, the file."""

import asyncio
import base64
import hashlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import SGDRegressor
from starlette.applications import Starlette

from streamboost import Booster, SGBClassifier, SGBRegressor
from streamboost.boosting.drift_replacement import Event
from streamboost.dashboard import Feed, observe, observe_report, routes, serve_in_thread, write_page
from streamboost.dashboard import feed as feed_module
from streamboost.dashboard import observation as observing
from streamboost.dashboard.assets import FILES, SCRIPTS, text
from streamboost.datasets import load_electricity
from streamboost.descents import GradientDescent
from streamboost.evaluation.reports import Report
from streamboost.losses import Squared
from streamboost.stacks import LinearStack

with warnings.catch_warnings():  # it would rather have the next httpx
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

routes_module, serving_module = (sys.modules[f"streamboost.dashboard.{name}"] for name in ("routes", "server"))
X = np.random.default_rng(0).uniform(size=(600, 4))
Y = X[:, 0] + (X[:, 1] > 0.5)
NUMBERS = {"rows": 600, "running": {"rmse": 0.5}, "windowed": {"rmse": 0.25}, "rows_per_second": 1000.0}


def strict(value):
    """The value after a trip through JSON as the standard has it."""
    return json.loads(json.dumps(value, allow_nan=False))


def observation(rows, **more):
    return {"rows": rows, "time": 10.0, "metrics": {"rmse": {"running": 1.0 / rows, "windowed": 2.0}}, **more}


# Observing.


@pytest.mark.parametrize(
    ("model", "has_importances", "has_weights"),
    [
        (SGBRegressor(n_estimators=8, random_state=0), True, True),
        (SGBRegressor(n_estimators=8, memory=None, random_state=0), True, True),
        (SGBRegressor(learner="linear", n_estimators=5, random_state=0), False, True),
        (SGBRegressor(learner="mlp", n_estimators=12, random_state=0), False, True),
        (SGBRegressor(learner="linear", n_estimators=5, memory=64, readout="last", random_state=0), False, False),
        (SGBRegressor(learner=SGDRegressor(random_state=0), n_estimators=3, random_state=0), False, True),
    ],
)
def test_an_observation_says_of_a_model_what_the_model_says_of_itself(model, has_importances, has_weights):
    model.partial_fit(X, Y)
    seen = strict(observe(model, **NUMBERS))
    edges = [edge for stack in seen["edges"] for edge in stack["edges"]]
    np.testing.assert_allclose(np.array(edges, float), model.edges_, atol=5.1e-5)
    assert [stack["learners"] for stack in seen["edges"]] == [b.stack.n_learners for b in model.committee_.boosters]
    weights = {(w["memory"], w["learners"]): w["weight"] for w in seen["weights"]}
    assert weights == (pytest.approx(model.weights_, rel=1e-3) if has_weights else {})
    if has_importances:
        shares = [seen["importances"].get(str(j), 0.0) for j in range(4)]
        np.testing.assert_allclose(shares, model.feature_importances_, atol=1e-3)
    else:
        assert seen["importances"] == {}


def test_a_report_is_observed_with_rows_counted_from_the_models_first():
    report = Report(20, {"mae": 2.0}, {"mae": 1.0}, 10, 0.5, 40.0, events=[Event(25, "drift", "x")], rows_before=10)
    seen = observe_report(None, report, quarantined=3, time=5.0)
    assert (seen["rows"], seen["rows_per_second"], seen["quarantined"], seen["time"]) == (30, 40.0, 3, 5.0)
    assert seen["metrics"] == {"mae": {"running": 2.0, "windowed": 1.0}}
    assert seen["events"] == [{"row": 25, "kind": "drift", "detail": "x"}]


def test_classes_named_columns_and_events_are_told_as_text():
    model = SGBClassifier(n_estimators=8, random_state=0)
    for i in range(300):
        model.learn_one({"<b>size": X[i, 0], 7: X[i, 1]}, "<i>big" if X[i, 0] > 0.5 else "small")
    model.learn_one({"<b>size": 0.1, 7: 0.2}, "x" * 5000)
    seen = strict(observe(model, **NUMBERS, events=model.events_))
    assert set(seen["importances"]) <= {"<b>size", "7"}
    kinds = [(event["kind"], event["row"]) for event in seen["events"]]
    assert kinds == [(event.kind, event.row) for event in model.events_]
    assert max(len(event["detail"]) for event in seen["events"]) == observing.LONGEST_TEXT


def test_what_is_no_finite_number_becomes_null_and_a_metric_without_any_is_left_out():
    seen = observe(
        None,
        rows=np.int64(3),
        running={"rmse": float("nan"), "r2": np.float32(0.5)},
        windowed={"rmse": float("-inf")},
        rows_per_second=float("inf"),
        latency_ms={"p50": 1.5, "p99": float("nan")},
        time=12.3456,
    )
    assert strict(seen) == {
        "time": 12.346,
        "rows": 3,
        "metrics": {"r2": {"running": 0.5, "windowed": None}},
        "rows_per_second": None,
        "latency_ms": {"p50": 1.5, "p99": None},
        "edges": [],
        "weights": [],
        "importances": {},
        "events": [],
        "pending": None,
        "quarantined": 0,
        "partitions": [],
    }


def test_models_that_have_not_learned_and_models_of_others_have_numbers_only():
    for model in (SGBRegressor(), SGDRegressor(), Booster(Squared(), GradientDescent(0.1), LinearStack(3))):
        seen = strict(observe(model, **NUMBERS))
        assert seen["metrics"] == {"rmse": {"running": 0.5, "windowed": 0.25}}
        assert (seen["edges"], seen["weights"], seen["importances"]) == ([], [], {})


def test_a_booster_by_itself_has_edges():
    booster = Booster(Squared(), GradientDescent(0.1), LinearStack(3))
    booster.learn(X, Y[:, None])
    (stack,) = strict(observe(booster, **NUMBERS))["edges"]
    assert stack["memory"] is None
    np.testing.assert_allclose(stack["edges"], booster.edges.recent, atol=5.1e-5)


def test_of_very_many_learners_neighbours_are_averaged():
    edges = np.random.default_rng(1).normal(size=1000)
    edges[:20] = np.nan
    told = observing._gathered(edges)
    assert len(told) == observing.LEARNERS
    starts = np.linspace(0, 1000, observing.LEARNERS + 1).astype(int)
    for i, (start, stop) in enumerate(pairwise(starts)):
        known = edges[start:stop][~np.isnan(edges[start:stop])]
        assert (np.isnan(told[i]) and not len(known)) or told[i] == pytest.approx(known.mean())


def test_a_challenger_is_told_apart_from_the_memory_it_challenges():
    electricity = load_electricity()
    model, seen_some = SGBClassifier(n_estimators=20, random_state=0), 0
    for start in range(0, 3000, 300):
        model.learn(electricity.X[start : start + 300], electricity.y[start : start + 300])
        edges = observe(model, **NUMBERS)["edges"]
        challengers = [stack.get("challenger", False) for stack in edges]
        assert challengers == [b >= 4 for b in range(len(model.committee_.boosters))]
        seen_some += len(challengers) > 4
    assert seen_some


# The feed.


class NaiveFeed:
    """All observations, thinned from scratch whenever they are asked for: as slow as it is plain."""

    def __init__(self, kept, dense):
        self.kept, self.dense, self.all, self.stride = kept, dense, [], 1

    def publish(self, rows):
        self.all = [(number, row) for number, row in self.all if row < rows]
        self.all.append((self.all[-1][0] + 1 if self.all else 0, rows))
        self.all = self.thinned()
        if len(self.all) > self.kept:
            self.stride *= 2
            self.all = self.thinned()

    def thinned(self):
        newest = self.all[-self.dense :]
        return [one for one in self.all if one in newest or one[0] % self.stride == 0]


@given(st.lists(st.integers(-3, 4).map(lambda k: k if k > -3 else -30), max_size=150))
def test_the_history_is_that_of_a_naive_twin_even_when_rows_stand_still_or_go_back(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_module, "KEPT", 20)
        patch.setattr(feed_module, "DENSE", 6)
        feed, naive, rows = Feed(), NaiveFeed(20, 6), 100
        for step in steps:
            rows = max(1, rows + step)
            feed.publish({"rows": rows})
            naive.publish(rows)
            kept = [(one["number"], one["rows"]) for one in feed.history()["observations"]]
            assert kept == naive.all
            assert len(kept) <= 20


def test_the_newest_part_of_a_long_history_is_whole():
    feed = Feed()
    for i in range(1, 1001):
        feed.publish(observation(500 * i))
    rows = np.array([one["rows"] for one in feed.history()["observations"]])
    assert len(rows) <= feed_module.KEPT
    np.testing.assert_array_equal(rows[-feed_module.DENSE :], 500 * np.arange(901, 1001))


def test_events_outlive_the_observations_they_came_with_and_the_newest_are_kept():
    feed = Feed()
    for i in range(1, 2001):
        feed.publish(observation(i, events=[Event(i, "new column", f"x{i}")] if i % 3 == 0 else []))
    events = feed.history()["events"]
    assert [event["row"] for event in events] == [i for i in range(1, 2001) if i % 3 == 0][-feed_module.EVENTS :]
    assert events[-1] == {"row": 1998, "kind": "new column", "detail": "x1998", "time": 10.0}
    assert all("events" not in one for one in feed.history()["observations"])


@given(
    st.sets(st.integers(0, 300), max_size=30),
    st.lists(st.tuples(st.integers(1, 40), st.none() | st.integers(0, 60)), max_size=40),
)
def test_a_run_that_goes_back_tells_every_event_once(happened, steps):
    """What happens, happens at a row; each observation brings what did since the one before, or since a checkpoint."""
    feed, rows, told = Feed(), 0, 0
    for forward, back in steps:
        if back is not None:  # to a checkpoint at any row, after which the same happens again
            rows = told = max(0, rows - back)
        rows += forward
        feed.publish(observation(rows, events=[Event(row, "k", "d") for row in sorted(happened) if told < row <= rows]))
        told = rows
        assert [event["row"] for event in feed.history()["events"]] == [r for r in sorted(happened) if 0 < r <= rows]


def test_different_events_at_one_row_are_all_kept_while_rows_stand_still():
    feed = Feed()
    feed.publish(observation(5, events=[Event(5, "new column", "a"), Event(5, "new column", "b")]))
    feed.publish(observation(5))
    feed.publish(observation(5, events=[Event(5, "new class", "a")]))
    told = [(event["kind"], event["detail"]) for event in feed.history()["events"]]
    assert told == [("new column", "a"), ("new column", "b"), ("new class", "a")]


def test_an_event_keeps_the_time_that_it_brings_and_is_told_once_whatever_that_is():
    feed = Feed()
    told = {"row": 3, "kind": "new class", "detail": "b"}
    for when in (None, 7.5):
        feed.publish(observe(None, **NUMBERS, events=[told | {"time": when}]))
        assert feed.history()["events"] == [told | {"time": when}]


def test_a_listener_gets_the_history_and_then_each_observation():
    feed = Feed("title", {"target": "y", "n": 3})
    feed.publish(observation(1))
    listener = feed.subscribe()
    (first,) = listener.take()
    history = json.loads(first.data)
    assert (first.event, history["title"], history["about"]) == ("history", "title", {"target": "y", "n": "3"})
    assert [one["rows"] for one in history["observations"]] == [1]
    feed.publish(observation(2, events=[{"row": 2, "kind": "new class", "detail": "b"}]))
    feed.end()
    second, third = listener.take()
    assert json.loads(second.data)["events"] == [{"row": 2, "kind": "new class", "detail": "b", "time": 10.0}]
    assert json.loads(second.data)["number"] == 1
    assert (third.event, first.id < second.id < third.id) == ("ended", True)
    assert listener.take() == []
    assert feed.history()["ended"]
    feed.publish(observation(3))
    assert not feed.history()["ended"]


def test_a_listener_that_falls_behind_gets_a_fresh_history_instead_of_what_it_missed():
    feed = Feed()
    slow, quick = feed.subscribe(), feed.subscribe()
    slow.take(), quick.take()
    heard = 0
    for i in range(1, feed_module.LATEST + 2):
        feed.publish(observation(i))
        heard += len(quick.take())
    assert heard == feed_module.LATEST + 1
    (message,) = slow.take()
    assert message.event == "history"
    assert json.loads(message.data) == feed.history()
    feed.publish(observation(1000))
    assert [message.event for message in slow.take()] == ["observation"]


def test_a_listener_whose_event_loop_is_gone_does_not_disturb_the_publisher():
    feed, heard = Feed(), []
    loop = asyncio.new_event_loop()
    feed.subscribe(lambda: loop.call_soon_threadsafe(print))
    feed.subscribe(lambda: heard.append(1))
    loop.close()
    feed.publish(observation(1))
    feed.disconnect()
    assert len(heard) == 2


def test_an_observation_that_is_no_strict_json_is_refused_and_changes_nothing():
    feed = Feed()
    feed.publish(observation(5))
    before = feed.history()
    for wrong in ({"rows": 2.5}, {"rows": 7, "rows_per_second": float("nan")}, {"rows": 7, "when": Path("x")}):
        with pytest.raises((TypeError, ValueError)):
            feed.publish(wrong)
    assert feed.history() == before


# The routes.


@pytest.fixture
def client_and_feed():
    feed = Feed("prices")
    return TestClient(Starlette(routes=routes(feed))), feed


def test_the_page_and_its_files_are_served_with_a_strict_policy(client_and_feed):
    client, _ = client_and_feed
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    wanted = re.findall(r'(?:src|href)="(?!#)([^"]+)"', page.text)
    imported = [f"dashboard/{name}" for script in SCRIPTS for name in re.findall(r'from "\./(.+)"', text(script))]
    assert len(wanted) == 5
    for path in {*wanted, *imported}:
        answer = client.get(f"/{path}")
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff")


@pytest.mark.parametrize("path", ["feed.py", "..%2Ffeed.py", "../routes.py", "%2e%2e/%2e%2e/errors.py", "page.html~"])
def test_no_other_file_can_be_had(client_and_feed, path):
    client, _ = client_and_feed
    assert client.get(f"/dashboard/{path}").status_code == 404


def test_the_page_names_no_other_host_and_has_nothing_inline():
    for name in FILES:
        hosts = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", text(name)))
        assert hosts <= {"http://www.w3.org", "https://github.com"}, name  # a namespace, and a remark of uPlot's
    page = text("page.html")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)
    for script in SCRIPTS:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text(script))


def test_scripts_need_only_scripts_before_them_and_say_so_in_one_line_each():
    for i, script in enumerate(SCRIPTS):
        imports = re.findall(r'^import .* from "\./(.+)";$', text(script), re.MULTILINE)
        assert set(imports) <= set(SCRIPTS[:i])
        assert len(re.findall(r"\bimport\b", text(script))) == len(imports)


def events_of(body):
    """The messages of a stream: (event, id, data), and its comments."""
    messages, comments = [], []
    for block in body.strip().split("\n\n"):
        fields = [line.partition(": ")[::2] for line in block.split("\n")]
        comments += [value for name, value in fields if name == ""]
        found = dict(fields)
        if "data" in found:
            messages.append((found["event"], int(found["id"]), json.loads(found["data"])))
    return messages, comments


def wait_for(claim, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_taken_all(feed):
    """Whether somebody listens, and has taken whatever was published."""
    return any(listener._taken == feed._published for listener in feed._listeners)


def test_the_stream_begins_with_the_history_and_ends_when_the_feed_disconnects(client_and_feed, monkeypatch):
    client, feed = client_and_feed
    monkeypatch.setattr(routes_module, "HEARTBEAT", 0.05)
    wait, silences = asyncio.wait_for, []

    async def noted(awaitable, seconds):
        try:
            return await wait(awaitable, seconds)
        except TimeoutError:
            silences.append(seconds)
            raise

    monkeypatch.setattr(asyncio, "wait_for", noted)
    feed.publish(observation(1))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.get("/events")))
    thread.start()
    for published in (False, True):
        if published:
            feed.publish(observation(2))
        wait_for(lambda: has_taken_all(feed))
        before = len(silences)
        wait_for(lambda n=before: len(silences) > n)
    feed.disconnect()
    thread.join(180)
    (answer,) = answers
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: 2000\n\n")
    messages, comments = events_of(answer.text)
    assert [(event, id) for event, id, _ in messages] == [("history", 1), ("observation", 2)]
    assert messages[1][2]["rows"] == 2
    assert "still here" in comments
    assert answer.text.endswith(": still here\n\n")  # quiet again after the last message, not spinning
    assert feed.n_listeners == 0


def test_what_was_said_just_before_the_end_is_still_heard(client_and_feed):
    client, feed = client_and_feed
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.get("/events")))
    thread.start()
    wait_for(lambda: has_taken_all(feed))
    feed.publish(observation(1))
    feed.end()
    feed.disconnect()
    thread.join(180)
    messages, _ = events_of(answers[0].text)
    assert [event for event, _, _ in messages] == ["history", "observation", "ended"]


# The server.


def test_twenty_clients_hear_everything_and_the_server_closes_cleanly_under_them(monkeypatch):
    monkeypatch.setattr(serving_module, "DRAIN", 180)  # a busy machine needs its time
    feed, bodies = Feed("prices"), []

    def listen(url):
        with urlopen(f"{url}events", timeout=180) as stream:
            bodies.append(stream.read().decode())

    running = serve_in_thread(feed)
    threads = [threading.Thread(target=listen, args=(running.url,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_for(lambda: feed.n_listeners == 20)
    for i in range(1, 31):
        feed.publish(observation(i))
    running.close()
    for thread in threads:
        thread.join(180)
    assert len(bodies) == 20
    for body in bodies:
        messages, _ = events_of(body)
        rows = [r["rows"] for _, _, data in messages for r in data.get("observations", [data])]
        assert rows == list(range(1, 31))
    assert feed.n_listeners == 0


def test_who_asks_for_the_head_of_the_stream_gets_it_and_does_not_listen():
    feed = Feed()
    with serve_in_thread(feed) as running, socket.create_connection(("127.0.0.1", running.port), timeout=180) as sock:
        sock.sendall(b"HEAD /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        heard = b""
        while part := sock.recv(1000):
            heard += part
        head, _, body = heard.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"text/event-stream" in head
        assert body == b""
        assert feed.n_listeners == 0


def test_a_client_that_goes_away_is_forgotten():
    feed = Feed()
    with serve_in_thread(feed) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            sock.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heard = b""
            while b"event: history" not in heard:
                heard += sock.recv(1000)
            assert heard.startswith(b"HTTP/1.1 200")
            assert feed.n_listeners == 1
        deadline = time.monotonic() + 180
        while feed.n_listeners and time.monotonic() < deadline:
            feed.publish(observation(1))
            time.sleep(0.02)
        assert feed.n_listeners == 0


def test_an_application_of_ones_own_is_served_on_the_port_asked_for():
    feed = Feed()
    with socket.socket() as held:  # bound, but nobody listens: no other process is given this port meanwhile
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        for application in (feed, Starlette(routes=routes(feed))):  # the second after the first has left it
            with serve_in_thread(application, "localhost", port, feed=feed) as running:
                assert running.url == f"http://127.0.0.1:{port}/"
                assert urlopen(running.url).status == 200


def test_a_port_in_use_is_told_in_one_sentence_with_a_way_out():
    feed = Feed()
    with (
        serve_in_thread(feed) as running,
        pytest.raises(OSError, match=rf"port {running.port} of 127.0.0.1 is in use .* or 0 for any that is free"),
    ):
        serve_in_thread(feed, port=running.port)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.5", "example.com"])
def test_other_machines_are_let_in_only_if_that_was_asked_for(host):
    with pytest.raises(ValueError, match=r"host is .* other machines .* pass public=True"):
        serve_in_thread(Feed(), host)


def test_a_public_server_listens_everywhere_and_a_strange_address_is_refused():
    with serve_in_thread(Feed(), "0.0.0.0", public=True) as running:
        assert urlopen(Request(running.url, headers={"Host": "any.name"})).status == 200
    with pytest.raises(OSError, match=r"cannot serve at 192\.0\.2\.1"):
        serve_in_thread(Feed(), "192.0.2.1", public=True)


def test_a_local_server_answers_to_no_foreign_name():
    with serve_in_thread(Feed()) as running:
        assert urlopen(Request(running.url, headers={"Host": f"localhost:{running.port}"})).status == 200
        with pytest.raises(HTTPError, match="400") as refused:
            urlopen(Request(running.url, headers={"Host": "evil.example"}))
        refused.value.close()


def test_an_application_that_cannot_start_is_told():
    async def broken(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(OSError, match="did not start"):
        serve_in_thread(broken)


# The file.


class Parts(HTMLParser):
    """Scripts, styles and the policy of a page."""

    def __init__(self, page):
        super().__init__()
        self.found, self.policy, self.title, self._open = [], "", "", None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        self._open = (tag, attributes.get("type"))

    def handle_data(self, data):
        if self._open and self._open[0] in ("script", "style", "title"):
            self.found.append((*self._open, data))
            self._open = None


def test_the_file_holds_all_and_allows_nothing_else(tmp_path):
    feed = Feed("<script>alert(1)</script>", {"target": "</script><img src=x onerror=alert(1)>"})
    feed.publish(observation(7, events=[Event(7, "new class", "<!-- </script>")]))
    (tmp_path / "report.html").write_text("old")
    path = write_page(feed, tmp_path / "report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    page = Parts(path.read_text("utf-8"))
    inside = {(tag, kind): body for tag, kind, body in page.found}
    assert inside["title", None] == "<script>alert(1)</script>"
    assert json.loads(inside["script", "application/json"]) == {**feed.history(), "ended": True}
    assert len([1 for tag, kind, _ in page.found if tag == "script" and kind != "application/json"]) == 2
    for tag, kind, body in page.found:
        if (tag, kind) != ("script", "application/json") and tag != "title":
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy
    assert not re.search(r"^(import|export) ", inside["script", "module"], re.MULTILINE)
    assert "Permission is hereby granted" in path.read_text("utf-8")  # uPlot's licence travels along
    assert not feed.history()["ended"]


# Looks that can be checked without looking.


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_text_stands_out_from_what_is_behind_it(theme):
    block = text("page.css").split(theme, 1)[1].split("}", 1)[0]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for ink in ("text", "muted", "accent"):
        for ground in ("page", "panel"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    areas = [name for name in colours if re.match(r"memory-|column-|others", name)]
    assert len(areas) == 15 + 8 + 1
    for area in areas:
        assert contrast(colours["on-area"], colours[area]) >= 4.5, area


# Without the extra.


def test_everything_but_serving_works_without_starlette_and_uvicorn(tmp_path):
    code = f"""
import sys
sys.modules["starlette"] = sys.modules["uvicorn"] = None
from streamboost.dashboard import Feed, observe, observe_report, routes, serve_in_thread, write_page
from streamboost.errors import MissingDependency
feed = Feed("prices")
feed.publish(observe(None, rows=1, running={{}}, windowed={{}}, rows_per_second=None))
write_page(feed, {str(tmp_path / "page.html")!r})
for serve in (routes, serve_in_thread):
    try:
        serve(feed)
    except MissingDependency as error:
        print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.count("pip install 'streamboost[serve]'") == 2
    assert (tmp_path / "page.html").exists()
