"""Descriptors that run out, and modules that are first needed when they have."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import httpx
from started import PATIENCE, Started

LIMITED = """
import resource, sys
from streamboost import SGBRegressor
from streamboost.serving import serve
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
model = SGBRegressor(n_estimators=4, max_depth=3, memory=64, new_columns="grow", random_state=0)
sys.exit(serve(sys.argv[1], port=0, model=model, target="y", checkpoint_every=20))
"""


def test_silent_connections_beyond_the_descriptors_give_way_and_the_rest_goes_on(tmp_path):
    descriptors = 256
    with Started(LIMITED, tmp_path / "m", descriptors, log=tmp_path / "log") as process, ExitStack() as stack:
        url = process.address()
        known = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE))
        answer = known.post("/learn", json={"rows": [{"a": 1.0, "y": 2.0}]})
        assert answer.json()["learned"] == 1
        place = known.base_url.host, known.base_url.port
        for _ in range(descriptors + 100):  # more than the server could ever take
            stack.enter_context(socket.create_connection(place, timeout=PATIENCE))
        for _ in range(5):
            assert httpx.post(f"{url}/predict", json={"row": {"a": 1.0}}, timeout=PATIENCE).status_code == 200
        for i in range(30):  # checkpoints and the quarantine are written meanwhile
            answer = known.post("/learn", json={"rows": [{"a": float(i), "y": 2.0}, {"a": 1.0}]})
            assert (answer.status_code, len(answer.json()["quarantined"])) == (200, 1)
        assert known.get("/healthz").json()["status"] == "ok"
        assert known.get("/metrics").status_code == 200
        stack.close()
        assert process.end(signal.SIGTERM) == 0
        assert "Too many open files" not in process.said()


IMPORTS = """
import http.client, io, json, sys, tempfile, threading, time
import pyarrow as pa
from streamboost import SGBClassifier
from streamboost.dashboard import Feed, serve_in_thread
from streamboost.live import LiveModel
from streamboost.serving import create_app
from streamboost.serving.auth import Tokens
from streamboost.serving.server import _warm_up

def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()

model = SGBClassifier(n_estimators=4, memory=64, new_columns="grow", random_state=0)
live = LiveModel(tempfile.mkdtemp(), model, target="y", checkpoint_every=10)
_warm_up(live.model)
TOKEN = "t" * 20
feed = Feed("x")
app = create_app(live, feed=feed, tokens=Tokens({TOKEN: ["admin"]}))
JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
with serve_in_thread(app, feed=feed) as running:
    def ask(method, path, body=None, kind=JSON, accept="*/*", token=TOKEN):
        line = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        body = json.dumps(body) if isinstance(body, (dict, list)) else body
        headers = {"Content-Type": kind, "Accept": accept, "Authorization": "Bearer " + token}
        line.request(method, path, body, headers)
        answer = line.getresponse()
        answer.read(100 if path == "/events" else None)
        line.close()
        return answer.status
    ask("GET", "/livez")
    time.sleep(0.5)
    before = set(sys.modules)
    row, table = {"a": 1.5, "b": "x", "d": "2024-05-01T13:30:00Z"}, pa.table({"a": [1.0, 2.0], "b": ["u", None]})
    labelled = table.append_column("y", pa.array(["p", "q"]))
    asked = [
        ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/healthz"), ("GET", "/openapi.json"), ("GET", "/docs"),
        ("GET", "/none"), ("PUT", "/learn"), ("GET", "/"),
        ("POST", "/predict", {"rows": [row]}), ("POST", "/predict", {"rows": [row], "keys": ["k0"]}),
        ("POST", "/learn", {"rows": [{**row, "y": "p"}, {**row, "y": "q"}, row], "id": "i"}),
        ("POST", "/learn", {"rows": [{**row, "y": "p"}], "id": "i"}),
        ("POST", "/learn", {"rows": [{"a": i, "y": "p"} for i in range(40)]}),
        ("POST", "/learn", stream(labelled), ARROW), ("POST", "/learn", b"nothing", ARROW),
        ("POST", "/learn", "{", JSON), ("POST", "/learn", "[" * 5000, JSON), ("POST", "/learn", "a", "text/csv"),
        ("POST", "/predict", {"rows": [row]}), ("POST", "/predict", {"rows": [row] * 100}),
        ("POST", "/predict", stream(table), ARROW, ARROW),
        ("POST", "/predict", {"rows": [row], "keys": ["k1"], "id": "j"}),
        ("POST", "/label", {"labels": [{"key": "k1", "target": "p"}, {"key": "early", "target": "q"}]}),
        ("POST", "/label", {"labels": [{"key": "k1", "target": "q"}], "id": "l"}),
        ("POST", "/checkpoint"), ("GET", "/model"), ("GET", "/metrics"), ("GET", "/events"),
        ("GET", "/model", None, JSON, "*/*", "wrong" * 5),
    ]
    statuses = [ask(*one) for one in asked]
    time.sleep(1.5)  # the dashboard and the writer look after things
    new = sorted(set(sys.modules) - before)
print(json.dumps([statuses, new]))
live.close()
"""


def test_no_request_imports_anything():
    ran = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stderr
    statuses, new = json.loads(ran.stdout.splitlines()[-1])
    assert new == []
    assert 500 not in statuses
    assert {200, 400, 401, 404, 405, 409, 415} <= set(statuses)
