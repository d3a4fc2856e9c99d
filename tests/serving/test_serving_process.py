"""``serve`` as a process of its own: killed, ended, started with all kinds of directories and options."""

import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest
import small_growth
from served import SMALL, same_as

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.live import LiveModel
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, read_latest
from streamboost.persistence.snapshots import save
from streamboost.runs.guard import Guard
from streamboost.serving import open_live, serve
from streamboost.serving import server as server_module

NURSERY = """
import importlib, os, sys
import numpy as np
from streamboost import SGBRegressor
from streamboost.serving import serve
small = dict(n_estimators=4, max_depth=3, memory=(64, 256), new_columns="grow", random_state=0)
if sys.argv[1:]:  # memories grow past several segments
    sys.path.append(sys.argv[1])
    small["memory"] = "grow"
    for name in ("small_tiles", "small_growth"):
        importlib.import_module(name).shrink()
SGBRegressor(**small).learn(np.random.default_rng(0).normal(size=(600, 2)), np.zeros(600))  # kernels are loaded
for directory in sys.stdin:
    child = os.fork()
    if child == 0:
        model = SGBRegressor(**small)
        os._exit(serve(directory.rstrip(), port=0, model=model, target="y", checkpoint_every=100))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("it is gone", file=sys.stderr, flush=True)
"""
SIZE = 20  # rows of a request


class Nursery(subprocess.Popen):
    """A process that has all imported, and gives birth to one server after the other."""

    def __init__(self, *, grows=False):
        super().__init__(
            [sys.executable, "-c", NURSERY, *([str(Path(small_growth.__file__).parent)] if grows else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.child, self.said = None, []

    def start(self, directory):
        """The address of a new server, once it listens."""
        print(directory, file=self.stdin, flush=True)
        self.child, said = int(self.stdout.readline()), ""
        for line in self.stderr:
            said += line
            if found := re.search(r"serving (http://\S+)", line):
                return found[1]
        raise AssertionError(said)

    def end(self, number):
        """How the server ended, waited for; it may have been killed already. What it said meanwhile is in ``said``."""
        self.signal(number)
        self.child = None
        self.said = list(itertools.takewhile(lambda line: line != "it is gone\n", self.stderr))
        return int(self.stdout.readline())

    def signal(self, number):
        with suppress(ProcessLookupError):
            os.kill(self.child, number)

    def __exit__(self, *failure):
        if self.child is not None:
            self.signal(signal.SIGKILL)
        self.communicate()


def friedman(n, seed=0):
    X, y, *_ = datasets.friedman(n, noise=1.0, seed=seed)
    return [{f"x{j}": float(v) for j, v in enumerate(x[:5])} for x in X], y.tolist()


def learned_directly(rows, y, model=None):
    model = model or SGBRegressor(**SMALL)
    model.learn(pa.Table.from_pylist(rows), np.array(y))
    return model


def requests(rows, y):
    """All rows in order, learned by two kinds of requests in turn: with their targets, or first asked about."""
    for i in range(0, len(y), SIZE):
        part, targets = rows[i : i + SIZE], y[i : i + SIZE]
        if i // SIZE % 3 == 1:
            keys = [f"row {i + j}" for j in range(SIZE)]
            yield "/predict", {"rows": part, "keys": keys, "id": f"asked {i}"}
            labels = [{"key": key, "target": target} for key, target in zip(keys, targets, strict=True)]
            yield "/label", {"labels": labels, "id": f"labels {i}"}
        else:
            yield "/learn", {"rows": part, "targets": targets, "id": f"rows {i}"}


@pytest.mark.slow
@pytest.mark.parametrize("memory", [(64, 256), "grow"], ids=["fixed", "grows"])
def test_a_server_killed_again_and_again_learns_every_row_once(tmp_path, kills, memory, monkeypatch):
    """SIGKILL at random moments while requests come; each one that was not answered is sent again."""
    if grows := memory == "grow":
        small_growth.shrink(monkeypatch.setattr)
    rows, y = friedman(300 * kills)
    rng = random.Random(0)
    todo = list(requests(rows, y))
    answered, sent_again, killer = 0, 0, None
    with Nursery(grows=grows) as nursery:
        for life in range(kills + 1):
            url = nursery.start(tmp_path / "m")
            last = len(todo) if life == kills else answered + rng.randrange(1, 12)  # after it, the end comes any moment
            with httpx.Client(base_url=url, timeout=180) as client:
                while answered < len(todo):
                    path, body = todo[answered]
                    if answered == last:
                        killer = threading.Timer(rng.uniform(0.0, 0.02), nursery.signal, (signal.SIGKILL,))
                        killer.start()
                    elif answered == last + 5:
                        killer.join()  # it is late: the kills have to be spread over the requests
                    try:
                        answer = client.post(path, json=body)
                    except httpx.TransportError:
                        sent_again += 1
                        break
                    assert answer.status_code == 200, answer.text
                    answered += 1
            if life == kills:
                assert answered == len(todo)
                assert nursery.end(signal.SIGTERM) == 0
            else:
                killer.join()
                assert nursery.end(signal.SIGKILL) == -signal.SIGKILL
    assert sent_again == kills, "each time the server was killed under load"
    found = read_latest(tmp_path / "m" / "live")
    assert found.rows == len(y)
    assert same_as(found.model) == same_as(learned_directly(rows, y, SGBRegressor(**SMALL | {"memory": memory})))
    assert ("memory grown" in [event.kind for event in found.model.events_]) is grows
    assert len([*tmp_path.glob("m/live/segments/*")]) > 3 or not grows


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_all_that_was_taken_in_a_checkpoint(tmp_path, number):
    rows, y = friedman(3000)
    with Nursery() as server:
        url, taken = server.start(tmp_path / "m"), []

        def send(mine):
            with httpx.Client(base_url=url, timeout=180) as client:
                for i in itertools.cycle(mine):  # until it takes no more
                    try:
                        body = {"rows": rows[i : i + SIZE], "targets": y[i : i + SIZE]}
                        if client.post("/learn", json=body).status_code != 200:
                            return
                        taken.append(i)
                    except httpx.TransportError:
                        return

        starts = range(0, len(y), SIZE)
        threads = [threading.Thread(target=send, args=(starts[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        while len(taken) < 10 and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        assert server.end(number) == 0
        for thread in threads:
            thread.join()
    assert len(taken) >= 10
    found = read_latest(tmp_path / "m" / "live")
    assert found.rows == found.model.committee_.n_rows
    assert found.rows >= SIZE * len(taken)
    with open_live(tmp_path / "m") as live:
        assert live.journal_length == 0 or live.rows == found.rows, "nothing is left to be learned again"
    assert any("ended with a checkpoint" in line for line in server.said)


def test_a_second_signal_ends_it_without_waiting_for_clients_and_nothing_is_lost(tmp_path):
    rows, y = friedman(40)
    with Nursery() as server, socket.socket() as slow:
        with httpx.Client(base_url=server.start(tmp_path / "m"), timeout=180) as client:
            assert client.post("/learn", json={"rows": rows, "targets": y}).status_code == 200
            slow.connect(("127.0.0.1", client.base_url.port))
            slow.sendall(b"POST /learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            slow.sendall(b"Content-Length: 1000\r\n\r\n{")
            while "streamboost_held_bytes 1.0" not in client.get("/metrics").text.splitlines():
                time.sleep(0.01)
        server.signal(signal.SIGINT)
        before = list(itertools.takewhile(lambda line: "shutting down" not in line, server.stderr))
        assert server.end(signal.SIGINT) == 0
    assert not any("Traceback" in line for line in before + server.said)
    assert "ended with a checkpoint at 40 rows" in server.said[-1]


def test_an_open_dashboard_does_not_keep_it_from_ending(tmp_path):
    with (
        Nursery() as server,
        httpx.Client(base_url=server.start(tmp_path / "m"), timeout=180) as client,
        client.stream("GET", "/events") as events,
    ):
        assert next(events.iter_lines())
        started = time.monotonic()
        assert server.end(signal.SIGTERM) == 0
        assert time.monotonic() - started < server_module.DRAIN - 5  # after which it would end anyway


# Starting, or not. These return before anything is served.


@pytest.fixture
def refused(capsys, monkeypatch):
    def run(open_model, *_):
        open_model(None)
        raise AssertionError("it is served")

    monkeypatch.setattr(server_module, "_run", run)

    def call(*arguments, **options):
        code = serve(*arguments, **options)
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1, "one sentence"
        return code, said[0]

    return call


def test_a_directory_without_a_model_needs_to_be_told_the_task(tmp_path, refused):
    code, said = refused(tmp_path / "none", port=0)
    assert (code, "holds no model" in said, "--task regression" in said) == (2, True, True)
    assert not (tmp_path / "none").exists()


def test_a_port_in_use_is_one_sentence_and_leaves_no_trace(tmp_path, refused):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = refused(tmp_path / "new", port=port, task="regression")
    assert (code, said.startswith(f"streamboost serve: port {port} of 127.0.0.1 is in use")) == (1, True)
    assert not (tmp_path / "new").exists()


def test_other_hosts_need_a_token_file(tmp_path, refused):
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        code, said = refused(tmp_path / "new", host=host, task="regression")
        assert (code, "--token-file" in said) == (2, True)
    code, said = refused(tmp_path / "new", host="0.0.0.0", task="regression", token_file=tmp_path / "absent")
    assert (code, "no token file" in said) == (2, True)
    file = tmp_path / "tokens"
    file.write_text("short predict\n")
    code, said = refused(tmp_path / "new", host="0.0.0.0", task="regression", token_file=file)
    assert (code, "line 1" in said) == (2, True)


def test_a_directory_in_use_is_refused(tmp_path, refused):
    with open_live(tmp_path / "m", task="regression"):
        code, said = refused(tmp_path / "m", port=0)
    assert (code, "in use by process" in said) == (1, True)


def test_a_damaged_checkpoint_is_one_sentence(tmp_path, refused):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "checkpoint-00000001.safetensors").write_bytes(b"nonsense")
    code, said = refused(tmp_path / "m", port=0)
    assert (code, "can be loaded" in said) == (1, True)
    assert not (tmp_path / "m" / "live").exists()


def test_the_wrong_task_or_target_or_default_is_told(tmp_path, refused):
    open_live(tmp_path / "m", task="regression", target="y").close()
    assert "one for regression" in refused(tmp_path / "m", port=0, task="classification")[1]
    assert "learns 'y'" in refused(tmp_path / "m", port=0, target="z")[1]
    code, said = refused(tmp_path / "m", port=0, default="yes", expire_after=1.0)
    assert (code, "expected a number" in said) == (2, True)
    code, said = refused(tmp_path / "new", port=0, task="ranking")
    assert (code, "'ranking'" in said) == (2, True)


@pytest.mark.parametrize("name", ["live", "clicks"])
def test_the_live_files_themselves_are_no_beginning(tmp_path, refused, name):
    """Their newest checkpoint may be older than what was answered."""
    with LiveModel(tmp_path / name, SGBRegressor(**SMALL)) as live:
        live.learn(pa.table({"x": [1.0], "target": [2.0]}))
    before = sorted(path.name for path in (tmp_path / name).iterdir())
    code, said = refused(tmp_path / name, port=0)
    way_out = f"Say --model {tmp_path}." if name == "live" else f"Move them to {tmp_path / 'clicks' / 'live'}."
    assert (code, said.endswith(way_out)) == (2, True)
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == before


def test_a_file_of_something_else_is_refused_and_leaves_no_trace(tmp_path, refused):
    save(Guard(), tmp_path / "guard.safetensors")
    code, said = refused(tmp_path / "guard.safetensors", port=0)
    assert (code, "holds a Guard" in said) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["guard.safetensors"]


def test_a_target_that_is_not_the_one_of_the_run_is_refused_and_leaves_no_trace(tmp_path, refused):
    rows, y = friedman(50)
    with CheckpointStore(tmp_path / "m") as store:
        store.save(Checkpoint(learned_directly(rows, y), 50, 50, {"target": "price", "task": "regression"}))
    for other in ("x0", "nonsense"):
        code, said = refused(tmp_path / "m", port=0, target=other)
        assert (code, repr(other) in said, "'price'" in said) == (2, True, True)
    assert not (tmp_path / "m" / "live").exists()
    with open_live(tmp_path / "m", target="price") as live:
        assert live.target == "price"


# What a directory begins with.


def test_the_directory_of_a_run_is_served_from_its_newest_checkpoint_and_stays_as_it_was(tmp_path):
    rows, y = friedman(300)
    model = learned_directly(rows[:200], y[:200])
    with CheckpointStore(tmp_path / "m") as store:
        store.save(Checkpoint(model, position=200, rows=200, state={"target": "price", "task": "regression"}))
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").glob("checkpoint-*")}
    with open_live(tmp_path / "m") as live:
        assert (live.target, live.rows) == ("price", 200)
        table = pa.Table.from_pylist([{**row, "price": target} for row, target in zip(rows, y, strict=True)][200:])
        live.learn(table)
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").glob("checkpoint-*")} == before
    with open_live(tmp_path / "m") as live:
        assert (live.target, live.rows) == ("price", 300)
        assert same_as(live.model) == same_as(learned_directly(rows, y))
    assert read_latest(tmp_path / "m").position == 200


def test_a_saved_model_is_served_from_its_file(tmp_path):
    rows, y = friedman(100)
    learned_directly(rows, y).save(tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    with open_live(tmp_path / "model.safetensors", target="y") as live:
        assert live.directory == tmp_path / "model.safetensors.live"
        assert (live.rows, live.target) == (100, "y")
    assert (tmp_path / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "labels", "said", "read"),
    [
        (SGBRegressor, [1.0, 2.0], "0", 0.0),
        (SGBRegressor, [1.0, 2.0], "-1.5", -1.5),
        (SGBClassifier, [0, 1], "0", 0),
        (SGBClassifier, [1, -1], "-1", -1),
        (SGBClassifier, [1, 2], "2.0", 2),
        (SGBClassifier, ["1", "-1"], "-1", "-1"),
        (SGBClassifier, ["false", "true"], "false", "false"),
        (SGBClassifier, [False, True], "False", False),
        (SGBClassifier, [False, True], "false", False),
        (SGBClassifier, ["0", "1"], "0", "0"),
        (SGBClassifier, ["no", "yes"], "no", "no"),
        (SGBClassifier, None, "0", 0),
        (SGBClassifier, None, "-1", -1),
        (SGBClassifier, None, "true", True),
        (SGBClassifier, None, '"0"', "0"),
        (SGBClassifier, None, "no", "no"),
        (SGBClassifier, None, None, None),
    ],
)
def test_a_default_from_the_command_line_is_what_the_labels_are(tmp_path, kind, labels, said, read):
    model = kind(**SMALL)
    if labels is not None:
        model.learn(pa.table({"x": [1.0, 2.0]}), np.array(labels))
    with open_live(tmp_path / "m", model=model, default=said, expire_after=1.0) as live:
        assert live.default == read
        assert type(live.default) is type(read)


@pytest.mark.parametrize(
    ("labels", "said", "read"),
    [
        ([1, -1], "-1", -1),
        (["0", "1"], "0", "0"),
        (["false", "true"], "false", "false"),
        ([False, True], "false", False),
        ([0, 1], "0", 0),
    ],
)
def test_a_default_is_what_the_labels_are_that_came_after_the_start(tmp_path, labels, said, read):
    """In a new directory: nothing but the labels themselves can tell of what kind they are."""
    now, batches = [0.0], []
    options = {"model": SGBClassifier(**SMALL), "target": "y", "default": said, "expire_after": 10.0}
    with open_live(tmp_path / "m", **options, clock=lambda: now[0]) as live:
        live.learn(pa.table({"x": [1.0, 2.0] * 5, "y": labels * 5}))
        live.remember(["k"], pa.table({"x": [1.0]}))
        live.on_learned = lambda state, batch: batches.append((batch.kind, batch.y.tolist()))
        now[0] = 11.0
        assert live.expire() == 1
        assert (live.n_quarantined, live.rows) == (0, 11)
    assert batches == [("expire", [read])]
    assert type(batches[0][1][0]) is type(read)


@pytest.mark.parametrize(("labels", "said"), [([0, 1], "no"), ([False, True], "0"), ([0, 1], "true")])
def test_a_default_that_is_no_class_like_those_of_the_model_is_refused(tmp_path, refused, labels, said):
    model = SGBClassifier(**SMALL)
    model.learn(pa.table({"x": [1.0, 2.0]}), np.array(labels))
    open_live(tmp_path / "m", model=model).close()
    code, sentence = refused(tmp_path / "m", port=0, default=said, expire_after=1.0)
    assert (code, repr(said) in sentence, f"such as {labels[0]!r}" in sentence) == (2, True, True)


def test_a_token_file_that_others_can_read_is_warned_of(tmp_path, capsys):
    file = tmp_path / "tokens"
    file.write_text("t" * 20 + " predict\n")
    file.chmod(0o644)
    assert serve(tmp_path / "none", port=0, token_file=file) == 2
    assert "warning: others can read" in capsys.readouterr().err
    file.chmod(0o600)
    assert serve(tmp_path / "none", port=0, token_file=file) == 2
    assert "warning" not in capsys.readouterr().err
