"""Whether one server holds its pace: predictions on a schedule while it learns, on this machine.

    python -m benchmarks.bench_serve [--quick] [--seconds S] [--predictions P] [--rows R] [--grown ROWS]

One server process learns Friedman's stream (10 features) from one client, ``--rows`` a second in requests of 100, while
another client asks for ``--predictions`` single-row predictions a second, both in JSON over connections that stay open.
The schedule is open: a request is sent when its time has come, whether or not earlier ones were answered, and its
latency counts from that time, so that a server that stands still is not spared. Everything that was answered is
durable, as in production. Each client is a process of its own. On a virtual machine, others on the same host may take
processor time away (steal): where that is not next to nothing, latencies tell of the host. With ``--grown`` the model
is fitted to so many rows before it is served, and a booster that holds all rows learns and predicts with the others; it
stays, whatever it earns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import datasets

BATCH = 100  # rows of a request to learn
WARM_ROWS = 20_000  # learned before the clock starts: the longest memory is full then
P99_GOAL = 50.0  # ms
IDLE = 10.0  # seconds, after which a client uses a connection no more: servers close those that nobody uses
MEMORY_GOAL = 10.0  # MB of growth over the second half
SERVER = """
import sys
import pyarrow as pa
from streamboost import SGBRegressor, datasets
from streamboost.boosting import growth
from streamboost.serving import serve
if n_grown := int(sys.argv[2]):
    growth.EARNED = growth.HOPELESS = growth.FORGOTTEN = 0.0
    X, y, *_ = datasets.friedman(n_grown, noise=1.0, seed=0)
    model = SGBRegressor(random_state=0, new_columns="grow")
    model.fit(pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])}), y)
    sys.exit(serve(sys.argv[1], port=0, model=model, target="y"))
sys.exit(serve(sys.argv[1], port=0, task="regression", target="y"))
"""


class Answered(NamedTuple):
    """How a client fared."""

    latencies: list[float]  # seconds from the scheduled moment
    errors: list[str]
    seconds: float
    cpu: float


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_serve", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--predictions", type=float, default=500.0, help="a second")
    parser.add_argument("--rows", type=float, default=5000.0, help="a second")
    parser.add_argument("--grown", type=int, default=0, metavar="ROWS", help="fit the model to so many rows first")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds, options.predictions, options.rows = 3.0, 50.0, 500.0
    warm_rows = WARM_ROWS // 20 if options.quick else WARM_ROWS
    with server(options.grown) as (port, pid):
        console = Console(stderr=True)
        console.print(f"learning {warm_rows:,} rows first")
        learn = multiprocessing.get_context("spawn").Process(target=_warm, args=(port, warm_rows, options.seed))
        learn.start()
        learn.join()
        console.print(f"{options.seconds:g} s of load")
        stolen = stolen_seconds()
        memory, predicted, learned, cpu = under_load(port, pid, options)
        stolen = stolen_seconds() - stolen
        held = {"rows_held": rows_held(port)} if options.grown else {}
    figures = {**summary(options, memory, predicted, learned, cpu), "stolen_cores": stolen / options.seconds, **held}
    print(table(["", "figure", "goal", "reached"], lines(figures)))
    keep(options, "serve_grown" if options.grown else "serve", figures)
    return 0 if not figures["n_errors"] else 1


def lines(figures: dict[str, Any]) -> list[list[str]]:
    """The table's rows."""

    def yes(is_reached: bool) -> str:
        return "yes" if is_reached else "no"

    latency, p99 = figures["latency_ms"], figures["latency_ms"]["p99"]
    growth, pace, wanted = figures["memory_growth_mb"], figures["rows_per_second"], figures["rows_wanted"]
    return [
        ["predictions a second", f"{figures['predictions_per_second']:.0f}", "", ""],
        *[[f"latency, {name}, ms", f"{latency[name]:.1f}", "", ""] for name in ("p50", "p90")],
        ["latency, p99, ms", f"{p99:.1f}", f"below {P99_GOAL:g}", yes(p99 < P99_GOAL)],
        ["latency, longest, ms", f"{latency['max']:.1f}", "", ""],
        ["rows learned a second", f"{pace:,.0f}", f"{wanted:,.0f}", yes(pace > 0.98 * wanted)],
        ["latency of learning, p99, ms", f"{figures['learn_latency_ms']['p99']:.1f}", "", ""],
        ["errors", str(figures["n_errors"]), "0", yes(not figures["n_errors"])],
        ["memory at the start, MB", f"{figures['memory_mb'][0]:.0f}", "", ""],
        ["memory at the end, MB", f"{figures['memory_mb'][-1]:.0f}", "", ""],
        ["growth over the second half, MB", f"{growth:.1f}", f"below {MEMORY_GOAL:g}", yes(growth < MEMORY_GOAL)],
        ["server's share of a core", f"{figures['server_cores']:.2f}", "", ""],
        ["cores taken by others on the host", f"{figures['stolen_cores']:.2f}", "", ""],
        *([["rows held at the end", f"{figures['rows_held']:,}", "", ""]] if "rows_held" in figures else []),
    ]


def summary(options: Any, memory: list[float], predicted: Answered, learned: Answered, cpu: float) -> dict[str, Any]:
    half = len(memory) // 2
    return {
        "seconds": options.seconds,
        "rows_wanted": options.rows,
        "predictions_per_second": len(predicted.latencies) / predicted.seconds,
        "rows_per_second": BATCH * len(learned.latencies) / learned.seconds,
        "latency_ms": percentiles(predicted.latencies),
        "learn_latency_ms": percentiles(learned.latencies),
        "n_errors": len(predicted.errors) + len(learned.errors),
        "errors": sorted({*predicted.errors, *learned.errors})[:10],
        "memory_mb": memory,
        "memory_growth_mb": max(memory[-3:]) - max(memory[half - 1 : half + 2]),
        "server_cores": cpu / options.seconds,
        "client_cores": (predicted.cpu + learned.cpu) / options.seconds,
    }


def percentiles(seconds: list[float]) -> dict[str, float]:
    found = 1e3 * np.quantile(seconds, [0.5, 0.9, 0.99, 0.999, 1.0]) if seconds else np.full(5, np.nan)
    return dict(zip(("p50", "p90", "p99", "p99.9", "max"), found.tolist(), strict=True))


# The server.


@contextlib.contextmanager
def server(n_grown: int) -> Iterator[tuple[int, int]]:
    """A server process with a new model, or one fitted to so many rows; its port and process id."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", SERVER, str(Path(directory) / "model"), str(n_grown)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            found = None
            for line in process.stderr:
                found = re.search(r"http://[^ ]*:(\d+)/", line)
                if found:
                    break
            if found is None:
                raise RuntimeError("the server did not start")
            yield int(found[1]), process.pid
        finally:
            process.terminate()
            process.communicate(timeout=60)


def rows_held(port: int) -> int:
    """How many rows the longest memory of the model holds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/model") as answer:
        return max(one["held"] for one in json.load(answer)["memories"])


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stolen_seconds() -> float:
    """Of processor time that this machine wanted and its host gave to others, on all cores."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


def under_load(port: int, pid: int, options: Any) -> tuple[list[float], Answered, Answered, float]:
    """Let both clients loose; look at the server's memory every second meanwhile."""
    spawn = multiprocessing.get_context("spawn")
    rates = {"predict": options.predictions, "learn": options.rows / BATCH}
    ways = {name: spawn.Pipe() for name in rates}
    clients = [
        spawn.Process(target=_client, args=(way, name, port, rates[name], options.seconds, options.seed))
        for name, (_, way) in ways.items()
    ]
    for client in clients:
        client.start()
    for way, _ in ways.values():
        way.recv()  # it is ready
    begin = time.time() + 0.5
    for way, _ in ways.values():
        way.send(begin)
    time.sleep(max(begin - time.time(), 0.0))
    memory, cpu = [resident_mb(pid)], cpu_seconds(pid)
    while time.time() < begin + options.seconds:
        time.sleep(1.0)
        memory.append(resident_mb(pid))
    cpu = cpu_seconds(pid) - cpu
    found = {name: way.recv() for name, (way, _) in ways.items()}
    for client in clients:
        client.join()
    return memory, found["predict"], found["learn"], cpu


# The clients: plain HTTP over asyncio's streams, so that they cost little beside the server they measure.


def _bodies(kind: str, seed: int) -> Callable[[int], bytes]:
    """Ready-made bodies, used in turn."""
    X, y, *_ = datasets.friedman(5000, noise=1.0, seed=seed)
    rows = [dict(zip([f"x{j}" for j in range(X.shape[1])], map(float, x), strict=True)) for x in X]
    if kind == "predict":
        made = [json.dumps({"rows": [row]}).encode() for row in rows[:1000]]
    else:
        labelled = [{**row, "y": float(target)} for row, target in zip(rows, y, strict=True)]
        made = [json.dumps({"rows": labelled[i : i + BATCH]}).encode() for i in range(0, len(rows), BATCH)]
    return lambda i: made[i % len(made)]


class Lines:
    """Connections that stay open for a while; a new one where none is free."""

    def __init__(self, port: int, path: str) -> None:
        self.port, self.path = port, path
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = []  # and when last used

    async def post(self, body: bytes) -> int:
        """Send a request and read the answer; give its status."""
        reader, writer = await self._line()
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", answer)[1])  # type: ignore[index]
        await reader.readexactly(length)
        self.free.append((reader, writer, time.monotonic()))
        return int(answer.split(b" ", 2)[1])

    async def _line(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self.free:
            reader, writer, used = self.free.pop()
            if time.monotonic() - used < IDLE:
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self.port)


def _client(way: Any, kind: str, port: int, rate: float, seconds: float, seed: int) -> None:
    body_of = _bodies(kind, seed)
    way.send("ready")
    way.send(asyncio.run(_on_schedule(kind, port, body_of, rate, way.recv(), seconds)))


async def _on_schedule(
    kind: str, port: int, body_of: Callable[[int], bytes], rate: float, begin: float, seconds: float
) -> Answered:
    lines = Lines(port, f"/{kind}")
    latencies: list[float] = []
    errors: list[str] = []
    tasks: set[asyncio.Task[None]] = set()

    async def ask(body: bytes, due: float) -> None:
        try:
            status = await lines.post(body)
            if status == 200:
                latencies.append(time.time() - due)
            else:
                errors.append(f"{kind}: status {status}")
        except (OSError, EOFError) as error:
            errors.append(f"{kind}: {error!r}")

    cpu = time.process_time()
    for i in range(int(rate * seconds)):
        due = begin + i / rate
        wait = due - time.time()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(ask(body_of(i), due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    while tasks:
        await asyncio.wait(tasks)
    return Answered(latencies, errors, time.time() - begin, time.process_time() - cpu)


def _warm(port: int, rows: int, seed: int) -> None:
    """Let the model learn, one request after the other, and wait until it is published."""

    async def learn() -> None:
        lines, body_of = Lines(port, "/learn"), _bodies("learn", seed + 1)
        for i in range(rows // BATCH):
            if await lines.post(body_of(i)) != 200:
                raise RuntimeError("the server does not learn")
        await asyncio.sleep(1.0)

    asyncio.run(learn())


if __name__ == "__main__":
    sys.exit(main())
