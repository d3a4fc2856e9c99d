"""Predicting and learning over HTTP, in JSON and Arrow."""

import html
import json
import re
import shlex
import socket

import numpy as np
import pyarrow as pa
import pytest
from served import ARROW, HEAD, SMALL, arrow, friedman, same_as, serving, wait_for

from streamboost import SGBRegressor
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.writer import Writer


def test_nothing_can_be_predicted_before_anything_was_learned(regression):
    answer = regression.post("/predict", json={"row": {"x0": 1.0}})
    assert answer.status_code == 409
    assert "has not learned any row yet" in answer.json()["error"]


def test_once_the_first_rows_are_answered_they_can_be_predicted(regression, monkeypatch):
    monkeypatch.setattr(Writer, "_is_copy_due", lambda self: False)  # a writer that is busy with others
    assert regression.learn([{"x0": 1.0, "y": None}])["learned"] == 0
    assert regression.post("/predict", json={"row": {"x0": 1.0}}).status_code == 409
    regression.learn(friedman(5))
    assert regression.post("/predict", json={"row": {"x0": 1.0}}).json()["model_rows"] == 5


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
    rows[5]["x1"] = 10**400
    answer = regression.learn(rows)
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


def test_a_number_to_be_predicted_may_be_as_large_as_it_is(regression):
    assert regression.learn([{"x": 1.0, "y": 2**64 - 1}])["learned"] == 1


def test_what_a_client_sent_is_learned_even_if_it_hangs_up_before_the_answer(regression):
    body = json.dumps({"rows": friedman(20)}).encode()
    with socket.create_connection(("127.0.0.1", regression.running.port)) as line:
        line.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    wait_for(lambda: regression.live.rows == 20)


def test_the_page_of_docs_shows_the_whole_document_and_loads_nothing(regression, guarded):
    document = regression.get("/openapi.json").json()
    page = regression.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"<script|src=|@import|url\(|href='http", page.text)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"<b>{method.upper()}</b>{path}<span>{html.escape(operation['summary'])}" in page.text
            for parameter in operation.get("parameters", ()):
                assert f"<td>{parameter['name']} ({parameter['in']})</td>" in page.text
    for name, schema in document["components"]["schemas"].items():
        assert f"id='schema-{name}'" in page.text
        for member in schema.get("properties", ()):
            assert f"<td>{member}" in page.text
    assert set(re.findall(r"href='#([^']*)'", page.text)) <= set(re.findall(r"id='([^']*)'", page.text))
    assert "Authorization" not in page.text
    told = guarded.get("/docs", headers={"Authorization": ""})  # as open as the document itself
    assert told.status_code == guarded.get("/openapi.json", headers={"Authorization": ""}).status_code == 200
    assert "Bearer $TOKEN" in told.text
    strange = regression.get("/docs", headers={"Host": "localhost"})
    assert "http://localhost/predict" in strange.text


def test_the_lines_of_the_page_can_be_run_as_they_are(regression):
    page = regression.get("/docs").text
    learn = next(line for line in re.findall(r"<pre>(.*?)</pre>", page) if "/learn" in line)
    words = shlex.split(html.unescape(learn))
    assert words[:3] == ["curl", "-X", "POST"]
    sent = regression.post(words[3].partition("/learn")[1], content=words[-1], headers=dict([words[5].split(": ")]))
    assert sent.json()["learned"] + len(sent.json()["quarantined"]) == 1
