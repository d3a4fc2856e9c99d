"""How much the server takes on: bodies, rows, columns, classes, connections, requests that wait."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import pyarrow as pa
import pytest
import uvicorn
from served import ARROW, HEAD, SMALL, arrow, friedman, raw, serving, wait_for

from streamboost import SGBClassifier, SGBRegressor
from streamboost.live import LiveModel
from streamboost.serving import Limits, create_app
from streamboost.serving.slow_clients import protocol_class


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
        assert served.post("/predict", json={"row": {"d": 1}, "keys": ["l"]}).status_code == 422
        assert served.live.rows == 5


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


@contextmanager
def listening(directory, protocol):
    """The address of a server whose connections are of a protocol."""
    live = LiveModel(directory, SGBRegressor(**SMALL), target="y")
    server = uvicorn.Server(
        uvicorn.Config(create_app(live), http=protocol, log_config=None, access_log=False, timeout_keep_alive=600)
    )
    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield sock.getsockname()
        finally:
            server.should_exit = True
            thread.join()
            live.close()


def answered(line):
    """The head of an answer that comes next; nothing if the line was closed instead."""
    found = b""
    with suppress(ConnectionResetError):
        while b"}" not in found and (part := line.recv(65536)):
            found += part
    return found


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("pieces", [[], [b"GET /hea", b"lthz", b" HTTP/1.1\r\n", b"Host: "]])
def test_a_connection_that_brings_no_request_is_closed(tmp_path, pieces):
    with (
        listening(tmp_path / "m", protocol_class(0.3)) as address,
        suppress(BrokenPipeError, ConnectionResetError),  # closed while it is written to
        socket.create_connection(address, timeout=180) as line,
    ):
        for piece in pieces:  # a few letters at a time, or nothing
            line.sendall(piece)
            time.sleep(0.05)
        assert line.recv(100) == b""


def test_a_connection_that_brought_a_request_is_kept_for_the_next(tmp_path):
    with listening(tmp_path / "m", protocol_class(0.3)) as address:
        first = b""
        while not first:  # on a busy machine it may be closed before its first request has come
            with socket.create_connection(address, timeout=180) as line, suppress(BrokenPipeError):
                line.sendall(GET + b"\r\n")
                first = answered(line)
                for _ in range(2 if first else 0):
                    time.sleep(0.35)
                    line.sendall(GET + b"\r\n")
                    assert answered(line).startswith(b"HTTP/1.1 200")
        assert first.startswith(b"HTTP/1.1 200")


def test_a_head_without_an_end_is_refused(tmp_path):
    with listening(tmp_path / "m", protocol_class(600.0, 1000)) as address:
        for before in (b"", GET + b"\r\n"):
            with socket.create_connection(address, timeout=180) as line:
                if before:  # the head of a later request is a head as well
                    line.sendall(before)
                    assert answered(line).startswith(b"HTTP/1.1 200")
                line.sendall(GET + b"X-Long: " + b"x" * 1000)
                found = answered(line)
                assert found.startswith(b"HTTP/1.1 431")
                assert b"larger than 1,000 bytes" in found
                assert line.recv(100) == b""


@pytest.mark.parametrize(
    "end", [b"0\r\nX-Long: ", b"0\r\n" + b"X: y\r\n" * 100, b"1;long="], ids=["one", "many", "extension"]
)
@pytest.mark.parametrize("kind", [b"json", b"what"])
def test_what_follows_a_body_has_a_limit_too(tmp_path, end, kind):
    with (
        listening(tmp_path / "m", protocol_class(600.0, 1000)) as address,
        socket.create_connection(address, timeout=180) as line,
        suppress(BrokenPipeError, ConnectionResetError),  # closed while it is written to
    ):
        line.sendall(HEAD.replace(b"json", kind) + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + end)
        for _ in range(100_000):  # until it is closed
            line.sendall(b"Z: z\r\n" * 100 if end.endswith(b"\n") else b"z" * 500)
        pytest.fail("it takes whatever comes")


def test_a_body_in_small_parts_is_a_body(tmp_path):
    body = b'{"row": {"x0": 1.0}, "targets": [1.0]}' + b" " * 3000
    with (
        listening(tmp_path / "m", protocol_class(600.0, 1000)) as address,
        socket.create_connection(address, timeout=180) as line,
    ):
        line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), 10):
            line.sendall(b"%x\r\n%s\r\n" % (len(body[i : i + 10]), body[i : i + 10]))
        line.sendall(b"0\r\n\r\n")
        assert answered(line).startswith(b"HTTP/1.1 200")


def test_the_rest_of_a_body_that_was_refused_is_no_head(tmp_path):
    with (
        listening(tmp_path / "m", protocol_class(600.0, 1000)) as address,
        socket.create_connection(address, timeout=180) as line,
    ):
        line.sendall(HEAD.replace(b"json", b"what") + b"Content-Length: 5000\r\n\r\n")
        assert answered(line).startswith(b"HTTP/1.1 415")
        line.sendall(b" " * 5000)
        line.sendall(GET + b"\r\n")
        assert answered(line).startswith(b"HTTP/1.1 200")


def test_of_a_client_that_waits_for_no_answer_no_more_is_read_than_is_answered(tmp_path):
    n, longest = 3000, [0]

    class Watched(protocol_class(600.0)):
        def data_received(self, data):
            super().data_received(data)
            longest[0] = max(longest[0], len(self.pipeline))

    with listening(tmp_path / "m", Watched) as address, socket.create_connection(address, timeout=180) as line:
        sender = threading.Thread(target=line.sendall, args=((GET + b"X: " + b"x" * 1000 + b"\r\n\r\n") * n,))
        sender.start()
        found = b""
        while found.count(b"HTTP/1.1 200") < n and (part := line.recv(1_000_000)):
            found += part
        sender.join()
    assert found.count(b"HTTP/1.1 200") == n
    assert longest[0] < 1000, "some hundreds are read at once"
