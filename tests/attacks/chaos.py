"""Random traffic, valid and hostile, against a real server that is killed again and again.

``python tests/attacks/chaos.py DIR SECONDS [SEED]`` sends numbered requests with ids until each was answered, kills the
server at any moment, and in the end sends those that were taken, in their order, to a model that nothing happens to. It
prints as JSON what was sent, what was killed, and whether the two models are the same, bit for bit.
"""

import itertools
import json
import math
import os
import random
import re
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from streamboost import SGBRegressor
from streamboost.live import LiveModel
from streamboost.persistence.object_graph import same_state
from streamboost.serving import serve

KEYS = [f"k{i}" for i in range(40)]
HOSTILE = [
    ("/learn", b"{", "application/json"),
    ("/learn", b"[" * 100_000, "application/json"),
    ("/learn", b'{"rows": [{"a": 1e999, "y": 1}]}', "application/json"),
    ("/learn", b'{"rows": [{"a": {"b": 1}, "y": 1}]}', "application/json"),
    ("/learn", b'{"rows": [{"a": "text", "y": 1}]}', "application/json"),
    ("/learn", os.urandom(2000), "application/vnd.apache.arrow.stream"),
    ("/label", b'{"labels": [{"key": "k1"}, {"key": "k1"}]}', "application/json"),
    ("/predict", b'{"rows": [], "keys": ["k1"]}', "application/json"),
    ("/nothing", b"\x00" * 5000, "text/csv"),
]


def new_model():
    return SGBRegressor(n_estimators=5, max_depth=3, memory=256, random_state=0, new_columns="grow")


def request_of(number, rng):
    """A path and a body that can be taken, or in part."""
    n = rng.randint(1, 12)
    rows = [{"a": rng.gauss(0, 1), "b": rng.choice("xyz")} for _ in range(n)]
    keys, id = rng.sample(KEYS, n), f"request {number}"
    match rng.randint(0, 3):
        case 0:
            rows = [row | {"y": None if rng.random() < 0.03 else row["a"] + (row["b"] == "x")} for row in rows]
            if rng.random() < 0.1:
                rows[0]["a"] = rng.choice([1.7e308, -1.7e308])
            return "/learn", {"rows": rows, "id": id}
        case 1:
            return "/predict", {"rows": rows, "keys": keys, "id": id}
        case _:
            labels = [{"key": key, "target": rng.choice([0.0, 1.0, 2.5])} for key in keys]
            return "/label", {"labels": labels, "id": id}


class Server:
    """A server in a child process, which is begun again as soon as it was killed."""

    current = None

    def __init__(self, directory):
        self.directory, self.kills, self.child = directory, 0, None
        self.start()

    def start(self):
        reader, writer = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(reader)
            os.dup2(writer, 2)
            code = 1
            try:
                code = serve(self.directory, port=0, model=new_model(), target="y", checkpoint_every=500)
            finally:
                os._exit(code)
        os.close(writer)
        Server.current = self.child
        self.said = os.fdopen(reader)
        for line in self.said:
            if found := re.search(r"serving (http://\S+?)/? ", line):
                self.url = found[1]
                break
        else:
            raise SystemExit("the server did not start again")
        self.log = []
        threading.Thread(target=lambda said=self.said: self.log.extend(said), daemon=True).start()

    def end(self, number):
        os.kill(self.child, number)
        _, status = os.waitpid(self.child, 0)
        self.kills += number == signal.SIGKILL
        return status


def chaos(directory, seconds, seed=0):
    """Attack a server for so long; return what was counted."""
    rng = random.Random(seed)
    warm = new_model()
    warm.learn(np.random.default_rng(0).normal(size=(300, 2)), np.zeros(300))  # kernels are loaded before the fork
    server, taken, hostile, again = Server(directory / "served"), [], 0, 0
    ends, next_kill = time.monotonic() + seconds, time.monotonic() + 0.3
    is_killing = threading.Event()

    def kill_later(wait):
        def kill():
            time.sleep(wait)
            server.end(signal.SIGKILL)
            is_killing.clear()

        is_killing.set()
        threading.Thread(target=kill).start()

    client = httpx.Client(timeout=180)
    for number in itertools.count():
        path, body = request_of(number, rng)
        if rng.random() < 0.15:
            where, data, kind = rng.choice(HOSTILE)
            hostile += 1
            try:
                answer = client.post(server.url + where, content=data, headers={"Content-Type": kind})
                assert 400 <= answer.status_code < 500, (answer.status_code, answer.text, where, data[:50])
            except httpx.TransportError:
                pass
        if not is_killing.is_set() and server.child and time.monotonic() > next_kill:
            kill_later(rng.random() * 0.05)
            next_kill = math.inf
        while True:
            try:
                answer = client.post(server.url + path, json=body)
                if answer.status_code != 503:
                    break
                time.sleep(0.05)
            except httpx.TransportError:
                again += 1
                while is_killing.is_set():
                    time.sleep(0.005)
                server.start()
                next_kill = time.monotonic() + rng.random() * 1.5
                client.close()
                client = httpx.Client(timeout=180)
        assert answer.status_code in (200, 409, 422), answer.text
        if answer.status_code == 200:
            taken.append((path, body, answer.json()))
        if time.monotonic() > ends and not is_killing.is_set():
            break
    if server.end(signal.SIGTERM):
        raise SystemExit("".join(server.log))
    return compare(directory, taken) | {
        "requests": number + 1,
        "hostile": hostile,
        "kills": server.kills,
        "again": again,
    }


def compare(directory, taken):
    """Return what a model learned that nothing happened to, and whether the other is the same."""
    rows = 0
    with LiveModel(directory / "calm", new_model(), target="y", durable=False) as calm:
        for path, body, _ in taken:
            table = pa.Table.from_pylist(body["rows"]) if "rows" in body else None
            match path:
                case "/learn":
                    rows += calm.learn(table, id=body["id"]).rows
                case "/predict":
                    calm.remember(body["keys"], table, id=body["id"])
                case "/label":
                    keys, labels = zip(*((one["key"], one["target"]) for one in body["labels"]), strict=True)
                    done = calm.label(list(keys), list(labels), id=body["id"])
                    rows += done.learned + done.corrected
        calm.expire()
        with LiveModel(directory / "served" / "live") as served:
            counts = [
                (one.rows, one.n_pending, one.n_early, one.n_corrected, one.n_quarantined) for one in (calm, served)
            ]
            is_same = same_state(calm.model, served.model)
    learned = sum(answer.get("learned", 0) + answer.get("corrected", 0) for *_, answer in taken)
    return {
        "taken": len(taken),
        "acknowledged": learned,
        "rows": counts[1][0],
        "same": is_same and counts[0] == counts[1],
    }


if __name__ == "__main__":
    try:
        print(json.dumps(chaos(Path(sys.argv[1]), float(sys.argv[2]), int((sys.argv[3:] or [0])[0]))), flush=True)
    except BaseException:
        traceback.print_exc()
        if Server.current:
            os.kill(Server.current, signal.SIGKILL)
        os._exit(1)
