"""Refusals: the right status, one sentence, and nothing changed."""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import ARROW, SMALL, arrow, serving

from streamboost import SGBClassifier, SGBRegressor
from streamboost.serving import Limits

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


def test_the_document_knows_every_route_and_every_status_that_was_met(settled):
    document = settled.get("/openapi.json").json()
    known = {path: set(operations) for path, operations in document["paths"].items()}
    assert {"/predict", "/learn", "/label", "/checkpoint", "/model", "/metrics", "/healthz", "/events"} < known.keys()
    for path, _, status in REFUSED:
        path = path.partition("?")[0]
        if path in known and "post" in known[path]:
            assert str(status) in document["paths"][path]["post"]["responses"]
