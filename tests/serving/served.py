"""A server of a small model, its client, and what tests ask of it."""

import io
import socket
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pyarrow as pa

from streamboost import datasets
from streamboost.dashboard import Feed, serve_in_thread
from streamboost.live import LiveModel
from streamboost.persistence.object_graph import flatten
from streamboost.serving import create_app
from streamboost.serving.arrow_bodies import ARROW_TYPE

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

    def __init__(self, live, running, client, feed):
        self.live, self.running, self.client, self.feed = live, running, client, feed
        self.post, self.get = client.post, client.get

    def learn(self, rows, **more):
        answer = self.post("/learn", json={"rows": rows, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def catch_up(self):
        wait_for(lambda: self.get("/healthz").json()["rows"] == self.live.rows)

    def state(self):
        """Everything a refused request must not change, once the writer has done what nobody waits for."""
        live = self.live
        wait_for(lambda: not live._journal.counts["due"] and not live._writing.locked())
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
            yield Served(live, running, client, feed)
    finally:
        live.close()


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


def fail(*_, **__):
    raise OSError(28, "No space left on device")


REQUESTS = {
    "learn": ("/learn", {"row": {"x0": 1.0}, "targets": [1.0]}),
    "label": ("/label", {"labels": [{"key": "k", "target": 1.0}]}),
    "remember": ("/predict", {"row": {"x0": 1.0}, "keys": ["k"]}),
}


def numbers(served):
    lines = [line.rsplit(" ", 1) for line in served.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}
