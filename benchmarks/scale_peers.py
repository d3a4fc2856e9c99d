"""Whom ``bench_scale`` compares with: LightGBM trained on all rows so far, and streaming peers as far as they get.

What they have come to is kept as JSON lines, by stream, rows and model, and not run again. A peer runs in a process of
its own, ``python -m benchmarks.scale_peers JSON``, which tells on standard output how many rows are done, and its error
at each mark and where it stopped.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from benchmarks import prequential, run, scale_streams, scores
from benchmarks.peers import PEERS
from benchmarks.scale_streams import Array, Rows, Source
from benchmarks.streams import Stream, Task

Record = dict[str, Any]
REGRESSION = ("capymoa_sgbr", "river_arf", "river_linear")  # the best ones of ``benchmarks.run``, and a linear model
CLASSIFICATION = ("capymoa_arf", "river_amf", "river_linear")


class Cache:
    """Results in a file of JSON lines; of two with the same key the later one counts.

    Parameters
    ----------
    file : Path
    is_fresh : bool
        Whether results of earlier runs are left aside.
    """

    def __init__(self, file: Path, is_fresh: bool = False) -> None:
        self.file = file
        self.records = {} if is_fresh else {record["key"]: record for record in run.read_results(file)}

    def get(self, key: str) -> Record | None:
        """Give the record of a key, or None."""
        return self.records.get(key)

    def put(self, key: str, record: Record) -> Record:
        """Keep a record and give it."""
        self.records[key] = {"key": key, **prequential.rounded(record)}
        run.append(self.file, self.records[key])
        return self.records[key]


# Errors and costs.


def error_of(answers: Array, y: Array) -> float:
    """RMSE of numbers, log loss of class weights."""
    answers, _ = scores.tidy(answers)
    if answers.ndim == 1:
        return float(np.sqrt(np.mean((answers - y) ** 2)))
    return float(-np.mean(np.log(np.clip(answers[np.arange(len(y)), y], scores.FLOOR, 1.0))))


def error_on_test(model: Any, X: Any, y: Array, n_classes: int) -> float:
    """The error of an estimator in scikit-learn's dialect; a class it has not met has weight 0."""
    if not n_classes:
        return error_of(model.predict(X), y)
    answers = np.zeros((len(y), n_classes))
    answers[:, model.classes_] = model.predict_proba(X)
    return error_of(answers, y)


def timed(call: Callable[[], Any]) -> float:
    """CPU seconds of a call, all threads."""
    before = time.process_time()
    call()
    return time.process_time() - before


def lightgbm(n_classes: int, **shape: Any) -> Any:
    """Make a LightGBM of one thread."""
    import lightgbm as lgb  # type: ignore[import-not-found, unused-ignore]

    return (lgb.LGBMClassifier if n_classes else lgb.LGBMRegressor)(n_jobs=1, verbose=-1, **shape)


def time_yardstick(repeats: int = 5) -> float:
    """CPU seconds of a small LightGBM training that never changes: how fast the machine is at the moment."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(10_000, 10))
    y = np.sin(5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
    return statistics.median(timed(lambda: lightgbm(0, n_estimators=50).fit(X, y)) for _ in range(repeats))


# LightGBM.


def train(
    cache: Cache, key: str, rows: Callable[[], Rows], test: Rows, n_classes: int, progress: Progress, **shape: Any
) -> Record:
    """Give the error of LightGBM, the CPU seconds of its training and the yardstick beside it, unless known already.

    Parameters
    ----------
    cache : Cache
    key : str
        What the rows are called.
    rows : function of nothing
        Gives the rows to train on; not called where the result is known.
    test : Rows
    n_classes : int
    progress : Progress
        Shows the trees.
    **shape
        Settings of LightGBM.
    """
    settings = " ".join(f"{name}={value}" for name, value in shape.items())
    key = f"{key} lightgbm {version('lightgbm')} {settings}"
    known = cache.get(key)
    if known:
        return known
    X, y = rows()
    pace, model = time_yardstick(), lightgbm(n_classes, **shape)
    bar = progress.add_task(f"LightGBM {settings}", total=shape.get("n_estimators", 100))
    seconds = timed(lambda: model.fit(X, y, callbacks=[lambda _: progress.advance(bar)]))
    progress.remove_task(bar)
    error = error_on_test(model, scale_streams.as_categories(test.X), test.y, n_classes)
    return cache.put(key, {"error": error, "cpu": seconds, "yardstick": (pace + time_yardstick()) / 2})


# Streaming peers.


def run_peer(cache: Cache, source: Source, name: str, job: Record, progress: Progress) -> list[Record]:
    """Give the results of a peer at the marks it reaches in time, and where it stopped; run it unless they are known.

    Parameters
    ----------
    cache : Cache
    source : Source
    name : str
        Of ``PEERS``.
    job : dict
        ``marks``, ``seconds`` (the time limit) and ``seed``.
    progress : Progress
        Shows the rows.
    """
    key = f"{source.name} {source.digest} {name} {version(PEERS[name].package)}"
    known = [record for mark in job["marks"] if (record := cache.get(f"{key} {mark}"))]
    stop = cache.get(f"{key} stopped {job['seconds']:g}s")
    if len(known) == len(job["marks"]):
        return known
    if stop:
        return [*[record for record in known if record["rows"] < stop["rows"]], stop]
    found = []
    bar = progress.add_task(f"{source.name} · {PEERS[name].title}", total=job["marks"][-1])
    for record in in_a_process(
        job | {"stream": source.name, "peer": name}, lambda n: progress.update(bar, completed=n)
    ):
        own = f"stopped {job['seconds']:g}s" if record["stopped"] else record["rows"]
        found.append(cache.put(f"{key} {own}", record))
    progress.remove_task(bar)
    return found


def in_a_process(job: Record, tell: Callable[[int], None]) -> Iterator[Record]:
    """Run a peer in a process of its own; give its records as they come; if it dies, say so."""
    command = [sys.executable, "-m", "benchmarks.scale_peers", json.dumps(job)]
    with tempfile.TemporaryFile("w+") as complaints:
        pipes: Record = {"stdout": subprocess.PIPE, "stderr": complaints, "text": True}
        environment = os.environ | run.ONE_THREAD
        with subprocess.Popen(command, cwd=run.FOLDER.parent, env=environment, **pipes) as process:
            watch = threading.Timer(2 * job["seconds"] + 600, process.kill)  # for one that does not come back
            watch.start()
            try:
                for line in process.stdout or ():
                    message = json.loads(line)
                    tell(message["done"])
                    if "record" in message:
                        yield message["record"]
                process.wait()
            finally:
                watch.cancel()
                process.kill()
        complaints.seek(0)
        if process.returncode:
            print(f"{job['stream']} · {job['peer']} ended early:\n{complaints.read()[-2000:]}", file=sys.stderr)


def learn(job: Record, tell: Callable[[int], None]) -> Iterator[Record]:
    """Learn a stream with a peer until the last mark or the time limit, which counts seconds of learning alone."""
    source = scale_streams.load(job["stream"], job["seed"])
    d = as_rows(source.test(0)).X.shape[1]
    classes = np.arange(source.n_classes) if source.n_classes else np.zeros(1)
    task: Task = "classification" if source.n_classes else "regression"
    learner: Any = PEERS[job["peer"]].make(Stream(source.name, np.zeros((len(classes), d)), classes, task), job["seed"])
    done, cpu, wall = 0, 0.0, 0.0

    def record(stopped: str | None) -> Record:
        X, y = as_rows(source.test(done))
        answers = np.zeros((len(y), source.n_classes) if source.n_classes else len(y))
        for i, x in enumerate(X):
            answers[i] = learner._answer(learner._encode(x))
        return {"rows": done, "error": error_of(answers, y), "cpu": cpu, "stopped": stopped}

    for last, mark in pairwise([0, *job["marks"]]):
        for X, y in map(as_rows, source.rows(last, mark)):
            for start in range(0, len(y), learner.chunk):
                part = slice(start, start + learner.chunk)
                before = prequential.cpu_seconds(), time.perf_counter()
                try:
                    learner.learn(X[part], y[part])
                except Exception as error:  # where and why it ended is part of the picture
                    yield record(f"{type(error).__name__}: {error}"[:200])
                    return
                cpu += prequential.cpu_seconds() - before[0]
                wall += time.perf_counter() - before[1]
                done += len(y[part])
                tell(done)
                if wall > job["seconds"] and done < job["marks"][-1]:
                    yield record("time limit")
                    return
        yield record(None)


def as_rows(rows: Rows) -> Rows:
    return Rows(scale_streams.as_numbers(rows.X), rows.y)


def main() -> None:
    output = prequential.own_output()
    for record in learn(json.loads(sys.argv[1]), lambda n: print(json.dumps({"done": n}), file=output)):
        print(json.dumps({"done": record["rows"], "record": record}), file=output)


if __name__ == "__main__":
    main()
