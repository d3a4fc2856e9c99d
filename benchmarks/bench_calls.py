"""How many Python functions a row calls on its way: a count that no busy machine disturbs.

    python -m benchmarks.bench_calls [--quick] [--list]

One row of a model that has seen hundreds: ``learn`` of an array, ``learn_one`` and ``predict_one`` of a dict, and
``/learn`` and ``/predict`` over HTTP, all threads of the server together, from the application's first call to its
last. ``--list`` names the functions.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import SGBRegressor, datasets
from streamboost.live import LiveModel
from streamboost.serving import create_app

MODEL = {"random_state": 0}
GOALS = {"learn": 30, "learn_one": 22, "/learn": 150}  # at most
ROWS = 3000  # learned before, so that most rows bring no refit along


class Counted:
    """Counts calls of Python functions in all threads while it is on."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Take note of a call."""
        if self.is_on and event == "call":
            code = frame.f_code
            self.calls[f"{code.co_filename.partition('site-packages/')[2] or code.co_filename}:{code.co_qualname}"] += 1

    def take(self) -> Counter[str]:
        """Return what was counted, and begin anew."""
        calls, self.calls = self.calls, Counter()
        return calls


def middle(found: list[Counter[str]]) -> Counter[str]:
    """Return the count that is the median of several: some rows bring a refit or a review along."""
    return sorted(found, key=Counter.total)[len(found) // 2]


def of_estimator(n: int) -> dict[str, Counter[str]]:
    """Count the calls of the estimator's own verbs."""
    X, y, *_ = datasets.friedman(ROWS + n)
    model = SGBRegressor(**MODEL)  # type: ignore[arg-type]
    rows = [dict(enumerate(map(float, x))) for x in X]
    model.learn(X[:ROWS], y[:ROWS])
    counted = Counted()
    verbs: dict[str, Callable[[int], Any]] = {
        "learn": lambda i: model.learn(X[i : i + 1], y[i : i + 1]),
        "learn_one": lambda i: model.learn_one(rows[i], float(y[i])),
        "predict_one": lambda i: model.predict_one(rows[i]),
    }
    found: dict[str, list[Counter[str]]] = {name: [] for name in verbs}
    for i in range(ROWS, ROWS + n):
        for name, verb in verbs.items():
            sys.setprofile(counted)
            counted.is_on = True
            verb(i)
            counted.is_on = False
            sys.setprofile(None)
            calls = counted.take()
            calls = Counter({function: k for function, k in calls.items() if "of_estimator.<locals>" not in function})
            found[name].append(calls)
    return {name: middle(counts) for name, counts in found.items()}


async def of_server(n: int) -> dict[str, Counter[str]]:
    """Count the calls of the server for requests of one row."""
    X, y, *_ = datasets.friedman(ROWS + n)
    counted = Counted()
    found: dict[str, list[Counter[str]]] = {"/learn": [], "/predict": []}
    threading.setprofile(counted)  # for the threads that the server starts
    sys.setprofile(counted)
    try:
        with LiveModel(tempfile.mkdtemp(), SGBRegressor(**MODEL), target="y", durable=False) as live:  # type: ignore[arg-type]
            app = create_app(live)
            async with app.router.lifespan_context(app):
                live.learn(pa.table({f"x{j}": X[:ROWS, j] for j in range(X.shape[1])} | {"y": y[:ROWS]}))
                for i in range(ROWS, ROWS + n):
                    row = {f"x{j}": float(value) for j, value in enumerate(X[i])}
                    for path, body in (("/learn", {"row": row | {"y": float(y[i])}}), ("/predict", {"row": row})):
                        body = json.dumps(body).encode()
                        counted.is_on = True
                        await ask(app, path, body, live)
                        counted.is_on = False
                        found[path].append(counted.take())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {path: middle(counts) for path, counts in found.items()}


async def ask(app: Any, path: str, body: bytes, live: Any) -> None:
    """Send one request to an application as a server would, and wait until threads behind it are quiet."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 5000), "server": ("localhost", 80), "root_path": "",
    }  # fmt: skip
    inbox = [{"type": "http.request", "body": body, "more_body": False}]
    status = []

    async def receive() -> Any:
        return inbox.pop() if inbox else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    rows = live.rows
    await app(scope, receive, send)
    assert status == [200], status
    deadline = time.monotonic() + 10
    while path == "/learn" and live.rows == rows and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.005)


def main(arguments: list[str] | None = None) -> int:
    """Count, print and keep."""
    parser = parser_of("bench_calls", __doc__)
    parser.add_argument("--list", action="store_true", help="name the functions that are called")
    options = parser.parse_args(arguments)
    n = 5 if options.quick else 41
    found = of_estimator(n) | asyncio.run(of_server(n))
    rows = []
    for name, calls in found.items():
        ours = sum(k for function, k in calls.items() if "streamboost/" in function)
        goal = GOALS.get(name)
        rows.append([name, str(calls.total()), str(ours), "" if goal is None else f"at most {goal}"])
        if options.list:
            print(f"\n{name}", *(f"{k:4} {function}" for function, k in calls.most_common()), sep="\n")
    print(table(["one row", "Python calls", "of these ours", "goal"], rows))
    keep(options, "calls", {name: calls.total() for name, calls in found.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
