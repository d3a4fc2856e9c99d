"""The application, asked over HTTP."""

import copy
import gc
import io
import json
import socket
import tempfile
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.checkpoints import CheckpointStore, read_latest
from streamboost.dashboard import Feed, serve_in_thread
from streamboost.live import LiveModel
from streamboost.serving import Limits, Tokens, create_app
from streamboost.serving import writer as writer_module
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.patience import protocol_class
from streamboost.serving.writer import Writer
from streamboost.states import flatten

SMALL = {"n_estimators": 4, "max_depth": 3, "memory": (64, 256), "new_columns": "grow", "random_state": 0}
ARROW = {"Content-Type": ARROW_TYPE}
READER, TEACHER, BOTH, ADMIN = (letter * 20 for letter in "rtba")
TOKENS = {READER: ["predict"], TEACHER: ["learn"], BOTH: ["predict", "learn"], ADMIN: ["admin"]}


def friedman(n, seed=0):
    X, y, *_ = datasets.friedman(n, noise=1.0, seed=seed)
    return [
        {f"x{j}": float(v) for j, v in enumerate(x[:5])} | {"y": float(target)} for x, target in zip(X, y, strict=True)
    ]


def arrow(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def wait_for(claim, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Served:
    """A live model, its server, and a client."""

    def __init__(self, live, running, client):
        self.live, self.running, self.client = live, running, client
        self.post, self.get = client.post, client.get

    def learn(self, rows, **more):
        answer = self.post("/learn", json={"rows": rows, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def catch_up(self):
        wait_for(lambda: self.get("/healthz").json()["rows"] == self.live.rows)

    def state(self):
        """Everything a refused request must not change."""
        live = self.live
        counts = (live.rows, live.n_pending, live.n_early, live.n_corrected, live.n_quarantined, live.journal_length)
        return counts, same_as(live.model)


def same_as(model):
    """What a model is made of, bit for bit."""
    parts = flatten(model).items()
    return {name: part.tobytes() if isinstance(part, np.ndarray) else repr(part) for name, part in parts}


@contextmanager
def serving(directory, model, **options):
    live = LiveModel(directory, model, target="y", **options.pop("live", {}))
    feed = options.setdefault("feed", Feed("test"))
    headers = options.pop("headers", {})
    app = create_app(live, **options)
    try:
        with (
            serve_in_thread(app, feed=feed) as running,
            httpx.Client(base_url=running.url, headers=headers, timeout=180) as client,
        ):
            yield Served(live, running, client)
    finally:
        live.close()


@pytest.fixture
def regression(tmp_path):
    with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
        yield served


@pytest.fixture
def classes(tmp_path):
    with serving(tmp_path / "m", SGBClassifier(**SMALL)) as served:
        yield served


# Predicting and learning.


def test_nothing_can_be_predicted_before_anything_was_learned(regression):
    answer = regression.post("/predict", json={"row": {"x0": 1.0}})
    assert answer.status_code == 409
    assert "has not learned any row yet" in answer.json()["error"]


def test_the_server_learns_and_predicts_what_the_bare_model_does(regression):
    rows = friedman(300)
    for start in range(0, 300, 50):
        assert regression.learn(rows[start : start + 50]) == {"learned": 50, "quarantined": [], "repeated": False}
    regression.catch_up()
    bare = SGBRegressor(**SMALL)
    columns = {f"x{j}": [row[f"x{j}"] for row in rows] for j in range(5)}
    bare.learn(pa.table(columns), np.array([row["y"] for row in rows]))
    asked = [{name: value for name, value in row.items() if name != "y"} for row in friedman(40, seed=1)]
    expected = bare.predict(asked).tolist()
    assert regression.post("/predict", json={"rows": asked}).json() == {"predictions": expected, "model_rows": 300}
    one = regression.post("/predict", json={"row": asked[7]}).json()
    assert one == {"predictions": [expected[7]], "model_rows": 300}


def test_classes_come_with_their_probabilities_and_keep_their_kind(classes):
    classes.learn([{"x": float(i % 2), "y": ["no", "yes"][i % 2]} for i in range(100)])
    classes.catch_up()
    for body in ({"row": {"x": 1.0}}, {"rows": [{"x": 1.0}] * 20}):
        said = classes.post("/predict", json=body).json()
        assert set(said["predictions"]) == {"yes"}
        assert said["probabilities"][0].keys() == {"no", "yes"}
        assert sum(said["probabilities"][0].values()) == pytest.approx(1)


@pytest.mark.parametrize(("labels", "names"), [([0, 1], {"0", "1"}), ([False, True], {"false", "true"})])
def test_labels_that_are_no_text_are_names_as_json_writes_them(classes, labels, names):
    classes.learn([{"x": float(i % 2)} for i in range(100)], targets=[labels[i % 2] for i in range(100)])
    classes.catch_up()
    said = classes.post("/predict", json={"row": {"x": 1.0}}).json()
    assert said["predictions"] == [labels[1]]
    assert type(said["predictions"][0]) is type(labels[1])
    assert said["probabilities"][0].keys() == names


def test_targets_beside_the_rows_are_as_good_as_inside(tmp_path):
    rows = friedman(100)
    with (
        serving(tmp_path / "a", SGBRegressor(**SMALL)) as inside,
        serving(tmp_path / "b", SGBRegressor(**SMALL)) as beside,
    ):
        inside.learn(rows)
        beside.learn([{k: v for k, v in row.items() if k != "y"} for row in rows], targets=[row["y"] for row in rows])
        assert same_as(inside.live.model) == same_as(beside.live.model)


def test_columns_the_model_does_not_know_are_named(regression):
    regression.learn(friedman(50))
    regression.catch_up()
    known = {"x0": 0.5}
    plain = regression.post("/predict", json={"row": known}).json()
    slip = regression.post("/predict", json={"row": known | {"x_1": 3.0, "a": "b"}}).json()
    assert slip == plain | {"unknown_columns": ["a", "x_1"]}


def test_bad_rows_are_put_aside_with_their_reasons_and_the_others_learned(regression):
    rows = friedman(20)
    rows[3]["y"] = None
    rows[5]["x1"] = 1e999
    answer = regression.post(
        "/learn",
        content=json.dumps({"rows": rows}).replace("Infinity", "1e999"),
        headers={"Content-Type": "application/json"},
    ).json()
    assert answer["learned"] == 18
    assert [bad["row"] for bad in answer["quarantined"]] == [3, 5]
    assert "missing" in answer["quarantined"][0]["reason"]
    assert "'x1' is inf" in answer["quarantined"][1]["reason"]
    assert regression.live.n_quarantined == 2


def test_a_request_with_an_id_is_learned_once(regression):
    rows = friedman(30)
    first = regression.learn(rows, id="one")
    before = same_as(regression.live.model)
    assert regression.learn(rows, id="one") == first | {"repeated": True}
    assert regression.post("/learn?id=one", json={"rows": rows}).json()["repeated"]
    assert same_as(regression.live.model) == before
    assert not regression.learn(rows, id="two")["repeated"]
    differing = regression.post("/learn?id=a", json={"rows": rows, "id": "b"})
    assert (differing.status_code, regression.live.rows) == (422, 60)


# Labels that come late.


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
    writer = Writer(live)
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


# Arrow.


def test_arrow_bodies_do_the_same_as_json(tmp_path):
    rows = friedman(80)
    table = pa.Table.from_pylist(rows)
    asked = table.drop_columns(["y"])
    with (
        serving(tmp_path / "a", SGBRegressor(**SMALL)) as spoken,
        serving(tmp_path / "b", SGBRegressor(**SMALL)) as packed,
    ):
        spoken.learn(rows)
        answer = packed.post("/learn?id=7", content=arrow(table), headers=ARROW).json()
        assert answer == {"learned": 80, "quarantined": [], "repeated": False}
        assert packed.post("/learn?id=7", content=arrow(table), headers=ARROW).json()["repeated"]
        assert same_as(spoken.live.model) == same_as(packed.live.model)
        spoken.catch_up()
        packed.catch_up()
        expected = spoken.post("/predict", json={"rows": asked.to_pylist()}).json()
        assert packed.post("/predict", content=arrow(asked), headers=ARROW).json() == expected
        said = packed.post("/predict", content=arrow(asked), headers=ARROW | {"Accept": ARROW_TYPE})
        read = pa.ipc.open_stream(said.content).read_all()
        assert said.headers["content-type"] == ARROW_TYPE
        assert read["prediction"].to_pylist() == expected["predictions"]
        assert read.schema.metadata[b"model_rows"] == b"80"


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


# Refusals: the right status, one sentence, and nothing changed.


REFUSED = [
    ("/predict", {"json": {"rows": []}}, 422),
    ("/predict", {"json": {"row": {"x0": "text"}}}, 422),
    ("/predict", {"json": {"rows": [{"x0": 1}], "key": ["a"]}}, 422),
    ("/predict", {"json": {"rows": [{"x0": 1}], "keys": ["a", "b"]}}, 422),
    ("/predict", {"json": {"rows": [{"x0": 1, "y": 2}], "keys": ["a"]}}, 422),
    ("/predict", {"json": {"rows": [{}], "keys": ["a"]}}, 422),
    ("/predict", {"json": {"rows": [{"x0": 1}, {"x0": "a"}], "keys": ["a", "b"]}}, 422),
    ("/predict", {"json": {"rows": [{"x0": 1}] * 101}}, 413),
    ("/predict", {"content": b'{"row": {"x0": 1e999}}', "headers": {"Content-Type": "application/json"}}, 422),
    ("/predict", {"content": b"{", "headers": {"Content-Type": "application/json"}}, 400),
    ("/predict", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
    ("/predict", {"content": b"{}"}, 415),
    ("/predict", {"content": b"nonsense", "headers": ARROW}, 400),
    ("/predict?key=k", {"content": arrow(pa.table({"x0": [1.0]})), "headers": ARROW}, 422),
    ("/learn", {"json": {"rows": [{"x0": 1.0}]}}, 422),
    ("/learn", {"json": {"rows": [{"x0": "text", "y": 1.0}]}}, 422),
    ("/learn", {"json": {"rows": [{"x0": 1.0, "y": 1.0}], "id": ""}}, 422),
    ("/learn", {"json": {"rows": [{"x0": 1.0, "y": 1.0}], "id": None}}, 422),
    ("/learn", {"json": {"rows": [{f"c{j}": 1.0} for j in range(40)], "targets": [1.0] * 40}}, 422),
    ("/learn", {"json": {"rows": [{"x0": [1], "y": 1.0}]}}, 422),
    ("/learn", {"content": b"x" * 20_001, "headers": {"Content-Type": "application/json"}}, 413),
    ("/learn", {"content": b"{}", "headers": {"Content-Type": "application/json", "Content-Encoding": "gzip"}}, 415),
    ("/learn", {"content": arrow(pa.table({"x0": [1.0]})), "headers": ARROW}, 422),
    ("/label", {"json": {"labels": [{"key": "k"}]}}, 422),
    ("/label", {"json": {"labels": [{"key": "k" * 300, "target": 1.0}]}}, 422),
    ("/label", {"json": {"labels": [{"key": "a", "target": 1.0}, {"key": "b", "target": "x"}]}}, 422),
    ("/label", {"json": {"labels": [{"key": "a", "target": 1.0}] * 2}}, 422),
    ("/nowhere", {"json": {}}, 404),
    ("/predict/", {"json": {}}, 404),
    ("/../etc/passwd", {"json": {}}, 404),
    ("/dashboard/..%2f..%2fpyproject.toml", {}, 404),
    ("/model", {"json": {}}, 405),
]


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """A server that has learned something, and rows that wait."""
    limits = Limits(rows=100, columns=20, body_bytes=20_000)
    with serving(tmp_path_factory.mktemp("settled"), SGBRegressor(**SMALL), limits=limits) as served:
        served.learn(friedman(50))
        served.post("/predict", json={"row": {"x0": 1.0}, "keys": ["waiting"]})
        served.catch_up()
        yield served


@pytest.mark.parametrize(("path", "request_", "status"), REFUSED)
def test_a_refusal_is_one_sentence_and_changes_nothing(settled, path, request_, status):
    before = settled.state()
    answer = settled.post(path, **request_)
    assert answer.status_code == status, answer.text
    if answer.headers["content-type"] == "application/json":
        assert answer.json().keys() == {"error"}
        assert answer.json()["error"].endswith(".")
    assert settled.state() == before


def test_the_method_that_is_known_is_told(settled):
    answer = settled.get("/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


names = st.sampled_from(["x0", "x1", "y", "new", ""]) | st.text(max_size=5)
values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
rows = st.lists(st.dictionaries(names, values, max_size=4) | values, max_size=4)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "rows": rows | values,
        "row": st.dictionaries(names, values, max_size=4),
        "keys": st.lists(st.text(max_size=3) | values, max_size=4),
        "targets": st.lists(values, max_size=4),
        "labels": st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "target": values}) | values, max_size=4),
        "id": st.text(max_size=3) | values,
    },
)


@pytest.mark.parametrize("kind", [SGBRegressor, SGBClassifier])
def test_whatever_json_comes_is_answered_and_what_is_refused_changes_nothing(tmp_path, kind):
    with serving(tmp_path / "m", kind(**SMALL), limits=Limits(columns=10, classes=5)) as served:

        @settings(max_examples=150, suppress_health_check=list(HealthCheck))
        @given(st.sampled_from(["/predict", "/learn", "/label"]), bodies)
        def ask(path, body):
            before = served.state()
            answer = served.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
            assert answer.status_code in (200, 400, 409, 413, 422), answer.text
            assert json.loads(answer.content) is not None
            if answer.status_code != 200:
                assert served.state() == before

        ask()
        assert served.get("/healthz").status_code == 200


def test_a_model_does_not_grow_without_bounds(tmp_path):
    with serving(tmp_path / "m", SGBClassifier(**SMALL), limits=Limits(columns=3, classes=4)) as served:
        for i in range(4):
            assert served.post("/learn", json={"row": {"a": i, "y": i}}).status_code == 200
        refused = served.post("/learn", json={"row": {"a": 4, "y": 4}})
        assert (refused.status_code, "5 classes" in refused.text) == (422, True)
        served.post("/predict", json={"row": {"a": 1}, "keys": ["k"]})
        labelled = served.post("/label", json={"labels": [{"key": "k", "target": 9}]}).json()
        assert (labelled["learned"], "5 classes" in labelled["quarantined"][0]["reason"]) == (0, True)
        assert served.post("/learn", json={"row": {"b": 1, "c": 1, "y": 0}}).status_code == 200
        refused = served.post("/learn", json={"row": {"d": 1, "y": 0}})
        assert (refused.status_code, "4 columns" in refused.text) == (422, True)
        assert served.live.rows == 5


def test_neither_rows_that_wait_nor_early_labels_let_a_model_grow_without_bounds(tmp_path):
    with serving(tmp_path / "m", SGBClassifier(**SMALL), limits=Limits(columns=3, classes=4)) as served:

        def ask(name, key):
            return served.post("/predict", json={"row": {"a": 1.0, name: 1.0}, "keys": [key]}).status_code

        served.learn([{"a": 1.0, "y": 0}, {"a": 2.0, "y": 1}])
        assert served.post("/predict", json={"row": dict.fromkeys("abcd", 1.0), "keys": ["k"]}).status_code == 422
        assert [ask(name, name) for name in "bcd"] == [200] * 3  # each would fit
        labels = [{"key": name, "target": 0} for name in "bcd"]
        told = served.post("/label", json={"labels": labels}).json()
        assert (told["learned"], "4 columns" in told["quarantined"][0]["reason"]) == (2, True)
        early = [{"key": f"early {i}", "target": i} for i in range(2, 6)]
        told = [served.post("/label", json={"labels": [label]}).json() for label in early]
        assert [len(one["quarantined"]) for one in told] == [0, 0, 1, 1]
        assert [ask("b", label["key"]) for label in early] == [200] * 4
        wait_for(lambda: served.live.rows == 6)
        assert served.live.model.encoder_.names == ["a", "b", "c"]
        assert served.live.model.classes_.tolist() == [0, 1, 2, 3]
        assert served.learn([{"a": 1.0, "y": 3}])["learned"] == 1, "what is known is learned as ever"


@pytest.mark.parametrize("body", [{"rows": [{"x0": 0.5}] * 101}, arrow(pa.table({"x0": [0.5] * 101}))])
def test_rows_times_the_columns_of_the_model_are_limited(tmp_path, body):
    """A row of a few bytes is one with all columns to the model."""
    with serving(tmp_path / "m", SGBRegressor(**SMALL), limits=Limits(cells=505)) as served:
        served.learn(friedman(50))
        served.catch_up()
        request = {"json": body} if isinstance(body, dict) else {"content": body, "headers": ARROW}
        assert served.post("/predict", **request).status_code == 200
        served.learn([{"one more": 1.0, "y": 1.0}])
        served.catch_up()
        assert served.post("/predict", **request).status_code == 413


NUMBERS = [(2**63 - 1, 200), (2**63, 422), (2**64 - 1, 422), (-(2**63), 200), (-(2**63) - 1, 422)]


@pytest.mark.parametrize(("label", "status"), NUMBERS)
@pytest.mark.parametrize("is_late", [False, True])
def test_classes_beyond_64_bits_are_refused_in_json(classes, label, status, is_late):
    classes.post("/predict", json={"row": {"x": 1.0}, "keys": ["k"]})
    before = classes.state()
    if is_late:
        answer = classes.post("/label", json={"labels": [{"key": "k", "target": label}]})
    else:
        answer = classes.post("/learn", json={"row": {"x": 1.0}, "targets": [label]})
    assert answer.status_code == status, answer.text
    if status == 200:
        assert classes.live.model.classes_.tolist() == [label]
    else:
        assert str(label) in answer.json()["error"]
        assert classes.state() == before


@pytest.mark.parametrize("is_coded", [False, True])
def test_classes_beyond_64_bits_are_refused_in_arrow(classes, is_coded):
    largest = pa.array([2**64 - 1, 0], pa.uint64())
    targets = largest.dictionary_encode() if is_coded else largest
    before = classes.state()
    for path, columns in (("/learn", {"x": [1.0, 2.0]}), ("/label", {"key": ["a", "b"]})):
        answer = classes.post(path, content=arrow(pa.table({**columns, "y": targets})), headers=ARROW)
        assert (answer.status_code, str(2**64 - 1) in answer.text) == (422, True)
    assert classes.state() == before
    fine = pa.table({"x": [1.0, 2.0], "y": pa.array([2**63 - 1, 0], pa.uint64())})
    assert classes.post("/learn", content=arrow(fine), headers=ARROW).json()["learned"] == 2


def test_a_number_to_be_predicted_may_be_as_large_as_it_is(regression):
    assert regression.learn([{"x": 1.0, "y": 2**64 - 1}])["learned"] == 1


# Limits of what is read and held.


def raw(served, data, seconds=120.0, then=None):
    """Send bytes, and give all that comes back until the server closes or says nothing more."""
    with socket.create_connection(("127.0.0.1", served.running.port), timeout=seconds) as line:
        line.sendall(data)
        if then is not None:
            then(line)
        found = b""
        try:
            while part := line.recv(65536):
                found += part
                if b"\r\n\r\n" in found and found.endswith(b"}"):
                    break
        except TimeoutError:
            pass
        return found


HEAD = b"POST /learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_without_a_length_is_counted_as_it_comes(settled):
    before = settled.state()
    chunks = b"".join(b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(6))
    found = raw(settled, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert found.startswith(b"HTTP/1.1 413")
    assert settled.state() == before


def test_an_announced_length_that_is_too_large_is_refused_before_it_comes(settled):
    assert raw(settled, HEAD + b"Content-Length: 99999999999\r\n\r\n").startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_given_up(tmp_path):
    with serving(tmp_path / "m", SGBRegressor(**SMALL), limits=Limits(body_seconds=0.3)) as served:
        found = raw(served, HEAD + b'Content-Length: 100\r\n\r\n{"rows"')
        assert found.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in found.lower()
        assert b"within 0.3 seconds" in found


def test_a_client_that_hangs_up_while_sending_changes_nothing(settled):
    before = settled.state()
    with socket.create_connection(("127.0.0.1", settled.running.port)) as line:
        line.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"rows"')
    assert settled.get("/healthz").status_code == 200
    assert settled.state() == before
    wait_for(lambda: "streamboost_held_bytes 0.0" in settled.get("/metrics").text.splitlines())


def test_what_a_client_sent_is_learned_even_if_it_hangs_up_before_the_answer(regression):
    body = json.dumps({"rows": friedman(20)}).encode()
    with socket.create_connection(("127.0.0.1", regression.running.port)) as line:
        line.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    wait_for(lambda: regression.live.rows == 20)


def test_when_too_much_waits_or_is_held_requests_are_turned_away_whole(tmp_path):
    limits = Limits(waiting=2, held_bytes=60_000)
    with serving(tmp_path / "m", SGBRegressor(**SMALL), limits=limits) as served:
        served.learn(friedman(10))
        served.catch_up()
        gate, entered = threading.Event(), threading.Event()
        learn = served.live.learn

        def slow(table, **more):
            entered.set()
            assert gate.wait(300)
            return learn(table, **more)

        served.live.learn = slow
        answers = []

        def send(i):
            with httpx.Client(base_url=served.running.url, timeout=180) as client:
                answers.append(client.post("/learn", json={"rows": friedman(10, seed=i)}))

        threads = [threading.Thread(target=send, args=(i,)) for i in range(6)]
        threads[0].start()
        assert entered.wait(180)
        for thread in threads[1:]:
            thread.start()
        wait_for(lambda: len(answers) == 3)  # one is being learned, two wait, three were turned away
        assert {answer.status_code for answer in answers} == {503}
        assert all(answer.headers["retry-after"] for answer in answers)
        assert served.post("/predict", json={"row": {"x0": 0.5}}).status_code == 200
        assert not gate.is_set(), "predictions do not wait for learning"
        large = served.post("/predict", json={"rows": [{"x0": 0.5}] * 6000})
        assert (large.status_code, "as many requests as it can" in large.text) == (503, True)
        gate.set()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers[3:]] == [200] * 3
        assert served.live.rows == 40


def test_a_disk_that_fails_is_a_503_and_nothing_is_taken(regression, monkeypatch):
    regression.learn(friedman(20))
    before = regression.state()
    monkeypatch.setattr(regression.live, "learn", fail)
    answer = regression.post("/learn", json={"rows": friedman(5)})
    assert answer.status_code == 503
    assert "No space left" in answer.json()["error"]
    assert "retry-after" in answer.headers
    assert regression.state() == before


def fail(*_, **__):
    raise OSError(28, "No space left on device")


def is_failing(served):
    answer = served.get("/healthz")
    assert answer.status_code in (200, 503)
    assert answer.json()["status"] == {200: "ok", 503: "failing"}[answer.status_code]
    if answer.status_code == 503:
        assert "No space left" in answer.json()["error"]
    return answer.status_code == 503


def test_expiry_that_fails_shows_in_the_health(regression, monkeypatch):
    assert not is_failing(regression)
    monkeypatch.setattr(regression.live, "expire", fail)
    wait_for(lambda: is_failing(regression))
    monkeypatch.undo()
    wait_for(lambda: not is_failing(regression))


REQUESTS = {
    "learn": ("/learn", {"row": {"x0": 1.0}, "targets": [1.0]}),
    "label": ("/label", {"labels": [{"key": "k", "target": 1.0}]}),
    "remember": ("/predict", {"row": {"x0": 1.0}, "keys": ["k"]}),
}


def fill_disk(patch, directory):
    """Let attempts to write into a directory fail, and note them; Numba may write what it compiled elsewhere."""
    make, looks = tempfile.TemporaryFile, []

    def refuse(*options, dir=None, **more):
        if dir != directory:
            return make(*options, dir=dir, **more)
        looks.append(dir)
        return fail()

    patch.setattr(tempfile, "TemporaryFile", refuse)
    return looks


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_could_not_be_written_down_shows_in_the_health_until_the_disk_is_well(
    regression, monkeypatch, name
):
    monkeypatch.setattr(writer_module, "PAUSE", 0.05)
    path, body = REQUESTS[name]
    with pytest.MonkeyPatch.context() as full:
        full.setattr(regression.live, name, fail)
        looks = fill_disk(full, regression.live.directory)
        assert regression.post(path, json=body).status_code == 503
        assert is_failing(regression)
        wait_for(lambda: len(looks) > 2)
        assert is_failing(regression), "the disk is still full, though nobody asks for anything"
    wait_for(lambda: not is_failing(regression))
    assert not list(regression.live.directory.glob("tmp*"))


def test_the_next_request_that_is_written_down_makes_all_well_at_once(regression, monkeypatch):
    fill_disk(monkeypatch, regression.live.directory)
    with pytest.MonkeyPatch.context() as full:
        full.setattr(regression.live, "learn", fail)
        assert regression.post("/learn", json={"rows": friedman(5)}).status_code == 503
        assert is_failing(regression)
    regression.learn(friedman(5))
    assert not is_failing(regression)


def test_a_checkpoint_that_fails_shows_in_the_health_and_is_tried_again(regression, monkeypatch):
    monkeypatch.setattr(writer_module, "RETRY_CHECKPOINT", 0.0)
    regression.learn(friedman(30))
    with pytest.MonkeyPatch.context() as full:
        full.setattr(CheckpointStore, "save", fail)
        assert regression.post("/checkpoint").status_code == 503
        wait_for(lambda: "checkpoint" in regression.get("/healthz").text)  # and the disk takes other things
        assert is_failing(regression)
    wait_for(lambda: not is_failing(regression))
    assert read_latest(regression.live.directory).rows == 30


def test_a_connection_that_brings_no_request_is_closed(tmp_path):
    import uvicorn

    config = uvicorn.Config(lambda: None, http=protocol_class(0.3), log_config=None)
    live = LiveModel(tmp_path / "m", SGBRegressor(**SMALL), target="y")
    app = create_app(live)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, http=config.http, log_config=None, access_log=False, timeout_keep_alive=30)
    )
    sock = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        for pieces in ([], [b"GET /hea", b"lthz", b" HTTP/1.1\r\n", b"Host: "]):  # says nothing; a letter at a time
            with (
                suppress(BrokenPipeError, ConnectionResetError),  # closed while it is written to
                socket.create_connection(sock.getsockname(), timeout=120) as line,
            ):
                for piece in pieces:
                    line.sendall(piece)
                    time.sleep(0.05)
                assert line.recv(100) == b""
        with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=180) as client:
            for _ in range(3):  # one that brings requests is kept
                assert client.get("/healthz").status_code == 200
                time.sleep(0.35)
    finally:
        server.should_exit = True
        thread.join()
        sock.close()
        live.close()


# Copies.


def test_predictions_while_learning_are_those_of_the_model_after_some_whole_request(tmp_path):
    """Each answer says how many rows its copy had learned, and is, bit for bit, what a model of these rows says."""
    rows, asked = friedman(1500), [{"x0": 0.3, "x1": 0.6, "x2": 0.1, "x3": 0.9, "x4": 0.5}]
    size = 50
    expected, bare = {}, SGBRegressor(**SMALL)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns = {f"x{j}": [row[f"x{j}"] for row in part] for j in range(5)}
        bare.learn(pa.table(columns), np.array([row["y"] for row in part]))
        expected[start + size] = bare.predict(asked).tolist()[0]
    with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
        served.learn(rows[:size])
        served.catch_up()
        seen, done = [], threading.Event()

        def watch(n):
            with httpx.Client(base_url=served.running.url, timeout=180) as client:
                while not done.is_set():
                    said = client.post("/predict", json={"rows": asked * n}).json()
                    seen.extend((said["model_rows"], one) for one in said["predictions"])

        threads = [threading.Thread(target=watch, args=(n,)) for n in (1, 1, 30)]  # at once, and in a thread
        for thread in threads:
            thread.start()
        for start in range(size, len(rows), size):
            served.learn(rows[start : start + size])
            if start % 250 == 0:  # now and then a copy is waited for, for they are made when there is time
                wait_for(lambda n=start + size: (n, expected[n]) in seen)
        served.catch_up()
        wait_for(lambda: seen[-1][0] == len(rows))
        done.set()
        for thread in threads:
            thread.join()
    assert len({n for n, _ in seen}) > 3
    assert all(expected[n] == said for n, said in seen)


def test_a_published_copy_shares_nothing_with_the_model_that_learns(regression):
    regression.learn(friedman(300))
    regression.catch_up()
    row = {"x0": 0.5, "x1": 0.5}
    before = regression.post("/predict", json={"row": row}).json()
    copied = copy.deepcopy(regression.live.model)
    assert before["predictions"] == [copied.predict_one(row)]


def test_a_copy_is_gone_when_nobody_predicts_with_it_any_more_and_needs_no_collector(tmp_path):
    table = pa.Table.from_pylist(friedman(200))
    with LiveModel(tmp_path / "m", SGBRegressor(**SMALL), target="y") as live:
        live.learn(table)
        writer = Writer(live)
        in_use = writer.published
        kept, seen = weakref.ref(in_use.model), []
        gc.disable()
        try:
            writer.start()
            for _ in range(5):
                number = writer.published.number
                writer.submit(lambda: live.learn(table)).result()
                wait_for(lambda number=number: writer.published.number > number)
                seen.append(weakref.ref(writer.published.model))
            writer.stop()
            assert [copied() is None for copied in seen] == [True] * 4 + [False]
            assert kept().predict_one({"x0": 0.5}) == in_use.model.predict_one({"x0": 0.5})
            del in_use
            assert kept() is None
        finally:
            gc.enable()


def test_the_writer_does_what_waits_together_but_never_past_something_else_or_too_many_rows():
    done = []

    def together(given):
        done.append(list(given))
        return [ValueError("not this one") if one == "bad" else one.upper() for one in given]

    writer = Writer(
        SimpleNamespace(model=SimpleNamespace(), rows=0, expire=lambda limit: 0, last_checkpoint_error=None), together
    )
    jobs = [writer.submit_together(name, 300) for name in ("a", "bad", "c", "d")]  # the fourth is too many
    alone = writer.submit(lambda: done.append("alone"))
    jobs += [writer.submit_together(name, n) for name, n in (("e", 5000), ("f", 1), ("g", 1))]
    cancelled = writer.submit_together("nobody waits for it", 1)
    assert cancelled.cancel()
    assert writer.n_waiting == 9
    writer.start()
    writer.stop()
    assert done == [["a", "bad", "c"], ["d"], "alone", ["e"], ["f", "g"]]
    assert alone.done()
    assert [job.result() for job in jobs if job is not jobs[1]] == ["A", "C", "D", "E", "F", "G"]
    with pytest.raises(ValueError, match="not this one"):
        jobs[1].result()


def test_requests_that_wait_are_learned_together_and_a_bad_one_among_them_is_refused_alone(regression):
    rows = friedman(200)
    live, held, entered, groups = regression.live, threading.Event(), threading.Event(), []
    learn, learn_together = live.learn, live.learn_together

    def slow(table, **more):
        entered.set()
        assert held.wait(300)
        return learn(table, **more)

    def watched(tables, ids):
        learned = learn_together(tables, ids)
        groups.append(len(tables))
        return learned

    live.learn, live.learn_together = slow, watched
    bodies = [{"rows": rows[i : i + 20], "id": f"rows {i}"} for i in range(0, 200, 20)]
    bodies[4] = {"rows": [{**rows[0], "x0": "text"}]}  # in a column of numbers
    bodies[6]["rows"] = [{**row, "x0": int(10 * row["x0"])} for row in bodies[6]["rows"]]  # which are numbers as well
    answers = [None] * len(bodies)

    def send(i):
        answers[i] = regression.post("/learn", json=bodies[i])

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(bodies))]
    for i, thread in enumerate(threads):
        thread.start()
        assert entered.wait(180)
        wait_for(lambda i=i: f"streamboost_queue_length {float(i)}" in regression.get("/metrics").text)  # in this order
    held.set()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 4 + [422] + [200] * 5
    assert "text" in answers[4].json()["error"]
    assert all(answer.json()["learned"] == 20 for answer in answers if answer.status_code == 200)
    good = [row for i, body in enumerate(bodies) if i != 4 for row in body["rows"]]
    X = pa.Table.from_pylist([{name: float(value) for name, value in row.items()} for row in good])
    expected = SGBRegressor(**SMALL)
    expected.learn(X.drop_columns(["y"]), X["y"].to_numpy())
    assert same_as(live.model) == same_as(expected)
    assert groups == [2, 3], "those next to each other that are alike"


def learned_behind(served, bodies):
    """The answers to requests to learn that came, in this order, while the writer was busy with something else."""
    held, entered, checkpoint = threading.Event(), threading.Event(), served.live.checkpoint

    def slow():
        entered.set()
        assert held.wait(300)
        return checkpoint()

    served.live.checkpoint = slow
    with ThreadPoolExecutor(len(bodies) + 1) as threads:
        threads.submit(served.post, "/checkpoint")
        assert entered.wait(180)
        answers = []
        for n, body in enumerate(bodies, start=1):
            answers.append(threads.submit(served.post, "/learn", json=body))
            wait_for(lambda n=n: numbers(served)["streamboost_queue_length"] == n)
        held.set()
        served.live.checkpoint = checkpoint
        return [answer.result(180) for answer in answers]


def one_row(name, id):
    return {"row": {name: 1.0}, "targets": [2.0], "id": id}


GROUPS = {  # names of columns, one a request; the request whose id another used before
    "one of many, the last": ("aaaaa", 4),
    "one of many, in the middle": ("aaaaa", 2),
    "the first": ("aaa", 0),
    "unlike columns": ("aabb", 3),
    "unlike columns each": ("abab", 1),
}


@pytest.mark.parametrize("group", GROUPS)
def test_of_requests_learned_together_each_gets_its_own_answer(regression, group):
    names, bad = GROUPS[group]
    regression.post("/label", json={"labels": [{"key": "k", "target": 1.0}], "id": "used"})
    bodies = [one_row(name, "used" if i == bad else f"id {i}") for i, name in enumerate(names)]
    answers = learned_behind(regression, bodies)
    assert [answer.status_code for answer in answers] == [422 if i == bad else 200 for i in range(len(names))]
    assert "'used'" in answers[bad].json()["error"]
    assert regression.live.rows == len(names) - 1
    again = [regression.post("/learn", json=body) for i, body in enumerate(bodies) if i != bad]
    assert all(answer.json()["repeated"] for answer in again), "what was answered with 200 was learned"


@pytest.mark.parametrize(("names", "learned"), [("aabb", 2), ("aab", 2), ("abb", 1), ("aaaabb", 4)])
def test_a_disk_that_fails_midway_is_told_only_to_those_it_concerns(regression, names, learned):
    """Those with a column "b" come after the others; from the first of them on the disk is full."""
    live, full = regression.live, pytest.MonkeyPatch()
    learn, learn_together = live.learn, live.learn_together

    def learn_until_b(table, id):
        return fail() if "b" in table.column_names else learn(table, id=id)

    def learn_together_until_b(tables, ids):
        return fail() if "b" in tables[0].column_names else learn_together(tables, ids)

    full.setattr(live, "learn", learn_until_b)
    full.setattr(live, "learn_together", learn_together_until_b)
    bodies = [one_row(name, f"id {i}") for i, name in enumerate(names)]
    answers = learned_behind(regression, bodies)
    assert [answer.status_code for answer in answers] == [200] * learned + [503] * (len(names) - learned)
    assert live.rows == learned
    full.undo()
    again = [regression.post("/learn", json=body).json()["repeated"] for body in bodies]
    assert again == [True] * learned + [False] * (len(names) - learned)
    assert live.rows == len(names)


def test_a_copy_that_cannot_be_made_is_made_later_and_the_older_one_predicts_meanwhile(regression, monkeypatch):
    regression.learn(friedman(50))
    regression.catch_up()

    def too_large(*_):
        raise MemoryError("no room")

    with pytest.MonkeyPatch.context() as crowded:
        crowded.setattr(Writer, "_copy", too_large)
        regression.learn(friedman(20, seed=1))
        wait_for(lambda: regression.get("/healthz").status_code == 503)
        assert "no room" in regression.get("/healthz").json()["error"]
        regression.learn(friedman(20, seed=2))
        said = regression.post("/predict", json={"row": {"x0": 0.5}}).json()
        assert said["model_rows"] == 50
    wait_for(lambda: regression.get("/healthz").json() == {"status": "ok", "rows": 90})
    assert regression.post("/predict", json={"row": {"x0": 0.5}}).json()["model_rows"] == 90


def test_copies_that_fail_are_tried_about_once_a_second():
    now, tried = [0.0], []
    live = SimpleNamespace(rows=0, expire=lambda limit: 0, last_checkpoint_error=None, model=SimpleNamespace())
    writer = Writer(live, waiting=1000, clock=lambda: now[0])

    def work():
        now[0] += 0.02

    def no_copy(number):
        tried.append(now[0])
        raise MemoryError

    writer._copy = no_copy
    jobs = [writer.submit(work) for _ in range(500)]
    writer.start()
    for job in jobs:
        job.result(180)
    writer.stop()
    assert 9 <= len(tried) <= 12
    assert np.diff(tried[:-1]).min() >= 1.0 - 1e-9  # the last is tried at the end, whatever was before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_died_refuses_at_once_what_waits_and_what_comes(regression):
    entered, held = threading.Event(), threading.Event()

    def die(limit):
        entered.set()
        assert held.wait(300)
        raise SystemExit

    regression.live.expire = die
    assert entered.wait(180)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(regression.post, "/learn", json={"rows": friedman(5)}, timeout=180)
        wait_for(lambda: numbers(regression)["streamboost_queue_length"] == 1)
        held.set()
        answers = [waiting.result(180)]
    answers += [regression.post(path, json=body, timeout=180) for path, body in (REQUESTS["learn"], REQUESTS["label"])]
    assert [answer.status_code for answer in answers] == [503] * 3
    assert all("retry-after" in answer.headers for answer in answers)
    assert regression.get("/healthz").status_code == 503
    assert regression.live.rows == 0


def test_copies_take_no_more_than_their_share_of_the_writers_time(tmp_path):
    """The clock is told what copying costs: of a busy writer's time a twentieth is spent on it, or one a second."""
    for cost, most in ((0.01, 0.05), (0.5, 0.5)):
        now = [0.0]
        live = SimpleNamespace(rows=0, expire=lambda limit: 0, last_checkpoint_error=None, model=Costly(now, cost))
        writer = Writer(live, waiting=1000, clock=lambda now=now: now[0])

        def work(now=now):
            now[0] += 0.02

        jobs = [writer.submit(work) for _ in range(500)]
        writer.start()
        for job in jobs:
            job.result(180)
        writer.stop()
        spent = cost * writer.published.number
        assert 0.05 * most < spent / now[0] <= most * 1.05


class Costly:
    """A model that takes its time to be copied."""

    def __init__(self, now, cost):
        self.now, self.cost = now, cost

    def __deepcopy__(self, memo):
        self.now[0] += self.cost
        return self


# Tokens.


ROUTES = {
    "/predict": ("POST", "predict"),
    "/learn": ("POST", "learn"),
    "/label": ("POST", "learn"),
    "/checkpoint": ("POST", "admin"),
    "/model": ("GET", "predict"),
    "/metrics": ("GET", "predict"),
    "/healthz": ("GET", None),
    "/openapi.json": ("GET", None),
    "/dashboard/page.css": ("GET", None),
    "/login": ("GET", None),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    options = {"tokens": Tokens(TOKENS), "hosts": None}
    with serving(tmp_path_factory.mktemp("guarded"), SGBRegressor(**SMALL), **options) as served:
        yield served


@pytest.mark.parametrize("path", ROUTES)
def test_each_route_opens_to_the_tokens_with_its_scope_and_to_no_other(guarded, path):
    method, scope = ROUTES[path]

    def status(**headers):
        return guarded.client.request(method, path, headers=headers).status_code

    tried = {token: status(Authorization=f"Bearer {token}") for token in TOKENS}
    for token, scopes in TOKENS.items():
        is_open = scope is None or scope in scopes or "admin" in scopes
        assert (tried[token] == 403) is not is_open
        assert tried[token] != 401
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {ADMIN}"}, {"Authorization": ADMIN}):
        assert (status(**headers) == 401) is (scope is not None)


def test_without_a_token_the_answer_says_what_to_send_and_changes_nothing(guarded):
    before = guarded.state()
    answer = guarded.post("/learn", json={"rows": friedman(3)})
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in answer.json()["error"]
    assert guarded.state() == before


def test_a_browser_exchanges_a_token_for_a_cookie_that_opens_only_what_changes_nothing(guarded):
    with httpx.Client(base_url=guarded.running.url, timeout=180) as browser:
        assert browser.get("/").headers["location"] == "login"
        assert "password" in browser.get("/login").text
        for token, status in (("nonsense", 401), (TEACHER, 403)):
            refused = browser.post("/login", data={"token": token})
            assert (refused.status_code, "set-cookie" in refused.headers) == (status, False)
            assert token not in refused.text
        entered = browser.post("/login", data={"token": ADMIN}, headers={"Origin": guarded.running.url.rstrip("/")})
        assert (entered.status_code, entered.headers["location"]) == (303, "./")
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/").status_code == 200
        assert browser.get("/model").status_code == 200
        with browser.stream("GET", "/events") as events:
            assert events.status_code == 200
        assert browser.post("/checkpoint").status_code == 401


def test_pages_of_other_sites_cannot_have_a_browser_post(guarded, settled):
    for origin in ("http://evil.example", "null", "http://["):
        assert settled.post("/checkpoint", headers={"Origin": origin}).status_code == 403
    assert settled.post("/checkpoint", headers={"Origin": settled.running.url.rstrip("/")}).status_code == 200
    headers = {"Origin": "http://elsewhere.example", "Authorization": f"Bearer {ADMIN}"}
    assert guarded.post("/checkpoint", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:80"])
def test_a_name_that_is_not_this_machines_is_refused(settled, host):
    for path in ("/healthz", "/", "/predict"):
        answer = settled.get(path, headers={"Host": host})
        assert (answer.status_code, "Host header" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:80", "[::1]"])
def test_this_machines_own_names_are_fine_with_any_port(settled, host):
    assert settled.get("/healthz", headers={"Host": host}).status_code == 200


# What it tells.


def test_every_answer_tells_browsers_to_be_careful(settled):
    for answer in (settled.get("/healthz"), settled.get("/"), settled.get("/nowhere"), settled.post("/predict")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def numbers(served):
    lines = [line.rsplit(" ", 1) for line in served.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


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
    assert 0 <= found["streamboost_checkpoint_age_seconds"] < 60
    bare, y = SGBRegressor(**SMALL), np.array([row["y"] for row in rows if row["y"] is not None])
    columns = {f"x{j}": [row[f"x{j}"] for row in rows if row["y"] is not None] for j in range(5)}
    said = bare.learn(pa.table(columns), y)
    rmse = float(np.sqrt(np.mean((said - y) ** 2)))
    assert found['streamboost_metric_running{metric="rmse"}'] == pytest.approx(rmse)
    assert found['streamboost_metric_windowed{metric="rmse"}'] == pytest.approx(rmse)


def test_the_score_goes_on_after_a_restart(tmp_path):
    found = []
    for part in (slice(0, 100), slice(100, 150)):
        with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
            served.learn(friedman(150)[part])
            found.append(numbers(served)['streamboost_metric_running{metric="mae"}'])
    with serving(tmp_path / "n", SGBRegressor(**SMALL)) as served:
        served.learn(friedman(150))
        assert numbers(served)['streamboost_metric_running{metric="mae"}'] == found[1] != found[0]


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


def test_the_head_of_the_events_comes_to_an_end(regression):
    started = time.monotonic()
    found = raw(regression, b"HEAD /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in found
    assert time.monotonic() - started < 100, "else it is waited for in vain"


def test_a_checkpoint_can_be_asked_for(regression):
    regression.learn(friedman(30))
    before = {path.name for path in regression.live.directory.glob("checkpoint-*")}
    assert regression.post("/checkpoint").json() == {"rows": 30}
    assert {path.name for path in regression.live.directory.glob("checkpoint-*")} != before


def test_the_document_knows_every_route_and_every_status_that_was_met(settled):
    document = settled.get("/openapi.json").json()
    known = {path: set(operations) for path, operations in document["paths"].items()}
    assert {"/predict", "/learn", "/label", "/checkpoint", "/model", "/metrics", "/healthz", "/events"} < known.keys()
    for path, _, status in REFUSED:
        path = path.partition("?")[0]
        if path in known and "post" in known[path]:
            assert str(status) in document["paths"][path]["post"]["responses"]
