"""Replicas take what a learner leaves or gives away, go on with what they have, and tell how old it is."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import httpx
import numpy as np
import pyarrow as pa
import pytest
from served import READER, SMALL, TOKENS, friedman, numbers, serving, wait_for

from streamboost import SGBClassifier, SGBRegressor
from streamboost.dashboard import Feed, serve_in_thread
from streamboost.estimators.describe import size
from streamboost.persistence import snapshots
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, checkpoint_paths
from streamboost.serving import Tokens, create_app
from streamboost.serving.replica import LearnerDirectory, LearnerServer, open_replica

ROWS = friedman(400)
X = [{name: value for name, value in row.items() if name != "y"} for row in ROWS]
Y = np.array([row["y"] for row in ROWS])
ASKED = {"rows": X[:20]}


@contextmanager
def replica_of(source, **options):
    feed = Feed("replica")
    with (
        open_replica(str(source), **options) as replica,
        serve_in_thread(create_app(replica, feed=feed), feed=feed) as running,
        httpx.Client(base_url=running.url, timeout=180) as client,
    ):
        yield client


def health(client):
    answer = client.get("/healthz")
    assert answer.status_code == 200, answer.text
    return answer.json()


def model_of(n):
    model = SGBRegressor(**SMALL)
    model.learn(pa.Table.from_pylist(X[:n]), Y[:n])
    return model


@pytest.fixture
def store(tmp_path):
    with CheckpointStore(tmp_path / "run") as store:
        yield store


def save(store, n):
    store.save(Checkpoint(model := model_of(n), rows=n, state={"target": "y"}))
    return model.predict(pa.Table.from_pylist(X[:20])).tolist()


def other_files(store):
    """What lies beside the checkpoints of a directory."""
    return {path.name for path in store.directory.iterdir()} - {path.name for path in store.paths()}


def test_the_newest_checkpoint_is_taken_and_its_age_told(store):
    expected = save(store, 100)
    path, others = store.paths()[-1], other_files(store)
    os.utime(path, (time.time() - 500,) * 2)
    with replica_of(store.directory) as client:
        answer = client.post("/predict", json=ASKED)
        assert answer.json() == {"predictions": expected, "model_rows": 100}
        for age in (float(answer.headers["Model-Age"]), health(client)["age_seconds"]):
            assert 500 <= age < 5000
        assert numbers(client)["streamboost_replica_age_seconds"] >= 500
        assert client.get("/model").json()["target"] == "y"
        expected = save(store, 200)
        wait_for(lambda: health(client)["rows"] == 200)
        answer = client.post("/predict", json=ASKED)
        assert answer.json() == {"predictions": expected, "model_rows": 200}
        assert float(answer.headers["Model-Age"]) < 400
        assert "learner" not in health(client)
        assert client.post("/learn", json={"rows": ROWS[:1]}).status_code == 409
    assert other_files(store) == others


@pytest.mark.parametrize("harm", ["damaged", "gone", "another task"])
def test_a_replica_goes_on_with_what_it_has(store, harm):
    expected = save(store, 100)
    with replica_of(store.directory) as client:
        if harm == "gone":
            shutil.move(store.directory, store.directory.with_name("moved"))
        elif harm == "damaged":
            save(store, 200)  # which it may see whole
            wait_for(lambda: health(client)["rows"] == 200)
            expected = save(store, 300)
            wait_for(lambda: health(client)["rows"] == 300)
            for path in store.paths():
                data = bytearray(path.read_bytes())
                data[-9] ^= 1
                path.write_bytes(data)
        else:
            classes = SGBClassifier(**SMALL)
            classes.learn(pa.Table.from_pylist(X), Y > 14)
            store.save(Checkpoint(classes, rows=400))
        wait_for(lambda: "learner" in health(client))
        told = health(client)
        assert {"damaged": "checksum", "gone": "No such file", "another task": "classification"}[harm] in told[
            "learner"
        ]
        assert str(store.directory.parent) not in told["learner"]
        assert client.post("/predict", json=ASKED).json()["predictions"] == expected
        wait_for(lambda: health(client)["seen_seconds"] > told["seen_seconds"])
        if harm == "gone":
            shutil.move(store.directory.with_name("moved"), store.directory)
        expected = save(store, 400)
        wait_for(lambda: health(client)["rows"] == 400 and "learner" not in health(client))
        assert client.post("/predict", json=ASKED).json() == {"predictions": expected, "model_rows": 400}


def test_a_damaged_newest_checkpoint_is_passed_over_and_left_where_it_is(store):
    expected = save(store, 100)
    save(store, 200)
    store.paths()[-1].write_bytes(b"not a checkpoint")
    names = sorted(os.listdir(store.directory))
    with replica_of(store.directory) as client:
        assert client.post("/predict", json=ASKED).json() == {"predictions": expected, "model_rows": 100}
    assert sorted(os.listdir(store.directory)) == names


def test_the_files_of_a_server_come_before_those_of_the_run_it_began_with(store):
    save(store, 100)
    with CheckpointStore(store.directory / "live") as live:
        save(live, 200)
    assert LearnerDirectory(store.directory).newer().model.n_samples_seen_ == 200


def test_another_model_with_as_many_rows_is_taken(tmp_path):
    file, twin = tmp_path / "m.safetensors", SGBRegressor(**SMALL)
    model_of(100).save(file)
    twin.learn(pa.Table.from_pylist(X[:100]), -Y[:100])
    with replica_of(file) as client:
        twin.save(file)
        expected = twin.predict(pa.Table.from_pylist(X[:20])).tolist()
        wait_for(lambda: client.post("/predict", json=ASKED).json()["predictions"] == expected)


def test_a_server_gives_its_newest_copy_away_once(tmp_path):
    with serving(tmp_path / "m", SGBRegressor(**SMALL)) as learner:
        assert learner.get("/frozen").status_code == 409
        learner.learn(ROWS[:100])
        learner.catch_up()
        answer = learner.get("/frozen")
        model = snapshots.unpack(answer.content)
        assert model.is_frozen
        assert (
            model.predict(pa.Table.from_pylist(X)).tolist()
            == learner.live.model.predict(pa.Table.from_pylist(X)).tolist()
        )
        assert size(model) == size(learner.live.model.freeze())  # no rows beside it
        again = learner.get("/frozen", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        with replica_of(learner.running.url) as client:
            learner.learn(ROWS[100:150])
            learner.catch_up()
            wait_for(lambda: health(client)["rows"] == 150)
            expected = learner.live.model.predict(pa.Table.from_pylist(X[:20])).tolist()
            answer = client.post("/predict", json=ASKED)
            assert answer.json()["predictions"] == expected
            assert 0 <= float(answer.headers["Model-Age"]) < 400
            with replica_of(str(client.base_url)) as chained:
                assert chained.post("/predict", json=ASKED).json()["predictions"] == expected
                assert health(chained)["age_seconds"] >= float(answer.headers["Model-Age"])
        assert "Model-Age" not in learner.post("/predict", json=ASKED).headers


def test_a_replica_needs_a_token_where_the_learner_has_some(tmp_path):
    with serving(tmp_path / "m", SGBRegressor(**SMALL), tokens=Tokens(TOKENS), hosts=None) as learner:
        learner.client.headers["Authorization"] = f"Bearer {list(TOKENS)[-1]}"
        learner.learn(ROWS[:50])
        learner.catch_up()
        with pytest.raises(ValueError, match=r"no model of .* to begin with \(the learner answered 401 Unauthorized\)"):
            open_replica(learner.running.url)
        assert open_replica(learner.running.url, token=READER).rows == 50


def test_what_no_learner_would_send_is_not_taken(tmp_path):
    file = tmp_path / "m.safetensors"
    model_of(50).save(file)
    for source, words in (
        (str(tmp_path / "nothing"), "No such file"),
        (str(tmp_path), "holds no checkpoint"),
        ("ftp://host/model", "expected a directory or an address"),
        ("http://name:word@host", "expected a directory or an address"),
    ):
        with pytest.raises(ValueError, match=words):
            open_replica(source)
    snapshots.save({"no": "model"}, file)
    with pytest.raises(ValueError, match=r"holds a dict, expected an SGBRegressor or SGBClassifier"):
        open_replica(str(file))
    SGBRegressor().save(file)
    with pytest.raises(ValueError, match="has not learned any row yet"):
        open_replica(str(file))


def test_a_redirection_is_not_followed(tmp_path):
    from starlette.applications import Starlette
    from starlette.responses import RedirectResponse
    from starlette.routing import Route

    asked = []

    async def elsewhere(request):
        asked.append(request.headers.get("authorization"))
        return RedirectResponse("/other")

    async def other(request):
        asked.append("followed")

    feed = Feed("x")
    app = Starlette(routes=[Route("/frozen", elsewhere), Route("/other", other)])
    with serve_in_thread(app, feed=feed) as running:
        learner = LearnerServer(running.url, "secret")
        with pytest.raises(OSError, match="answered 307"):
            learner.newer()
    assert asked == ["Bearer secret"]


LEARNER = """
import sys
from streamboost import SGBRegressor
from streamboost.serving import serve
small = dict(n_estimators=4, max_depth=3, memory=(64, 256), new_columns="grow", random_state=0)
sys.exit(serve(sys.argv[1], port=int(sys.argv[2]), model=SGBRegressor(**small), target="y"))
"""


class Learner:
    """A process that learns, writes a checkpoint every second, is killed, and started again at the same address."""

    def __init__(self, directory, port, period=1.0):
        self.directory, self.port, self.period = directory, port, period
        self.url, self.rows, self.stopping = f"http://127.0.0.1:{port}", 0, threading.Event()
        self.process = None
        self.start()
        self.thread = threading.Thread(target=self.teach)
        self.thread.start()

    def start(self):
        words = [sys.executable, "-c", LEARNER, str(self.directory), str(self.port)]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        while "serving" not in (line := self.process.stderr.readline()):
            assert line
        self.process.stderr.close()  # what it says after that nobody hears

    def teach(self):
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.stopping.wait(self.period / 2):
                with suppress(httpx.HTTPError):  # it was killed
                    client.post("/learn", json={"rows": ROWS[:20]}).raise_for_status()
                    client.post("/checkpoint").raise_for_status()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.stopping.set()
        self.thread.join()
        self.kill()


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Load:
    """Requests to predict on a schedule, whatever their answers take; every answer must be one."""

    def __init__(self, url, rate, n_clients):
        self.url, self.rate, self.n_clients = url, rate, n_clients
        self.answers, self.failures, self.stopping = [], [], threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(n_clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, number):
        due = time.monotonic() + number / self.rate
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.stopping.wait(max(due - time.monotonic(), 0.0)):
                began = time.monotonic()
                try:
                    answer = client.post("/predict", json={"row": X[0]})
                    answer.raise_for_status()
                    told = answer.json()["model_rows"], float(answer.headers["Model-Age"])
                    self.answers.append((time.monotonic() - began, *told))
                except Exception as error:
                    self.failures.append(repr(error))
                due += self.n_clients / self.rate

    def close(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


@contextmanager
def replica_process(source):
    """A replica as a process of its own, and a client of it; it ends well when it is told to."""
    words = [sys.executable, "-m", "streamboost", "serve", "--port", "0", "--replica-of", str(source)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as replica:
        said = replica.stderr.readline()
        try:
            assert f"a replica that follows {source}" in said, said
            with httpx.Client(base_url=said.partition("serving ")[2].partition(",")[0], timeout=60) as client:
                yield client
        finally:
            replica.send_signal(signal.SIGINT)
            said += replica.stderr.read()
    assert replica.returncode == 0, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "rate"),
    [
        (("directory", "address"), 50),
        pytest.param(("directory",), 500, marks=pytest.mark.long),
        pytest.param(("address",), 500, marks=pytest.mark.long),
    ],
)
def test_no_prediction_fails_while_the_learner_checkpoints_and_is_killed(ways, rate, tmp_path):
    n_kills, more_rows = (5, 200) if rate == 500 else (1, 40)
    learner, loads = Learner(tmp_path / "m", free_port()), []
    sources = {"directory": tmp_path / "m", "address": learner.url}
    try:
        wait_for(lambda: (tmp_path / "m" / "live").is_dir() and checkpoint_paths(tmp_path / "m" / "live"))
        with ExitStack() as stack:
            clients = {way: stack.enter_context(replica_process(sources[way])) for way in ways}
            for client in clients.values():
                loads.append(Load(str(client.base_url), rate, 8 if rate == 500 else 2))
                stack.callback(loads[-1].close)

            def on_all(claim):
                wait_for(lambda: all([claim(health(client)) for client in clients.values()]))

            for _ in range(n_kills):
                rows = max(health(client)["rows"] for client in clients.values())
                on_all(lambda told, rows=rows: told["rows"] >= rows + more_rows)
                learner.kill()
                on_all(lambda told: told["age_seconds"] > 2)
                assert {way for way in ways if "learner" in health(clients[way])} == {"address"} & set(ways)
                learner.start()
                rows = max(health(client)["rows"] for client in clients.values())
                on_all(lambda told, rows=rows: told["rows"] > rows and "learner" not in told)
    finally:
        learner.close()
    for way, load in zip(ways, loads, strict=True):
        assert load.failures == []
        assert len({rows for _, rows, _ in load.answers}) > 2
        assert max(age for _, _, age in load.answers) > 2
        took = sorted(seconds for seconds, _, _ in load.answers)
        each = [f"{1000 * took[int(len(took) * q)]:.1f}" for q in (0.5, 0.99, 0.9999)]
        print(f"{way}: {len(took)} predictions answered; p50, p99, p99.99 {', '.join(each)} ms")
