"""A model for each key on Spark and on Flink: what they predict and what they learn is what a dict of models does.

Their programs run in environments of their own, as both pin versions that the others cannot have.
"""

import base64
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from brokers import free_port, unavailable, wait_for_port
from keyed_rows import as_classes, check_same, keyed_rows, new_model

from streamboost.engines.key_learner import load_model

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 1200  # seconds, on a busy machine


def python_of(engine):
    """The Python of an engine's environment."""
    python = ROOT / f".venv-{engine}" / "bin" / "python"
    if not python.exists():
        unavailable(f"there is no {python.parent} (make test-all)")
    if shutil.which("java") is None:
        unavailable("there is no java")
    return str(python)


def begin(engine, home, *words, cluster=None):
    """Start an engine's program, in a process group of its own; on a cluster of Flink if one is given."""
    python = python_of(engine)
    env = os.environ | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [python, str(HERE / f"{engine}_job.py"), str(home), *map(str, words)]
    if cluster is not None:
        root, conf, address = cluster
        env |= {"FLINK_HOME": str(root), "FLINK_CONF_DIR": str(conf), "PYFLINK_CLIENT_EXECUTABLE": python}
        client = [str(root / "bin" / "flink"), "run", "-m", address, "-pyclientexec", python, "-pyexec", python, "-py"]
        command = ["bash", *client, *command[1:], "cluster"]
    with open(home / "log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)


def finish(process, home, seconds=PATIENCE):
    assert process.wait(seconds) == 0, (home / "log").read_text()[-4000:]


def run(engine, home, *words):
    finish(begin(engine, home, *words), home)


def descendants(pid):
    """All processes that came from one, with their command lines."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            child = int(entry.name)
            parents[child] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, new = {}, {pid}
    while new := {child for child, parent in parents.items() if parent in new and child not in found}:
        for child in new:
            found[child] = ""
            with suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def kill_one(pid, word, *, leaf=False):
    """Kill a process that came from one and has a word in its command line; whether there was one."""
    found = descendants(pid)
    chosen = [child for child, command in found.items() if word in command]
    if leaf:
        chosen = [child for child in chosen if not any(word in of for of in descendants(child).values())]
    for child in random.sample(chosen, min(1, len(chosen))):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return bool(chosen)


def kill_all(process):
    """Kill a program with everything that came from it."""
    for child in [process.pid, *descendants(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    process.wait()


def prepare(engine, home, model, rows, parts=1):
    home.mkdir()
    (home / "in").mkdir()
    model.save(home / "model.safetensors")
    if engine == "flink":
        (home / "in" / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    (home / "models").mkdir()
    size = -(-len(rows) // parts)
    now = time.time()
    for part in range(parts):
        path = home / "in" / f"{part:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[part * size : (part + 1) * size]), path)
        os.utime(path, (now + part - parts,) * 2)  # Spark reads them by age


def outcome(engine, home):
    """What was told of rows, and the models."""
    if engine == "spark":
        told = pq.read_table(home / "told").to_pylist()
        return told, {path.name: load_model(path.read_bytes()) for path in (home / "models").iterdir()}
    lines = {
        name: [json.loads(line) for path in home.glob(f"{name}/*/part-*") for line in path.read_text().splitlines()]
        for name in ("out", "models")
    }
    return lines["out"], {one["key"]: load_model(base64.b64decode(one["model"])) for one in lines["models"]}


@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_classes_in_buckets_from_a_prior(engine, tmp_path):
    rows = as_classes(keyed_rows(12, 60))
    model = new_model("classification", as_classes(keyed_rows(3, 50, seed=1)))
    prepare(engine, tmp_path / "job", model, rows, parts=3)
    run(engine, tmp_path / "job", *(["local[2]", 4] if engine == "spark" else [4]))
    check_same(*outcome(engine, tmp_path / "job"), model, rows)


@contextmanager
def running(engine, home, *words, cluster=None):
    """An engine's program, of which nothing is left in the end."""
    job = begin(engine, home, *words, cluster=cluster)
    try:
        yield job
    finally:
        kill_all(job)


def kill_while_it_runs(job, progress, kill, times=3):
    """Kill something whenever there is progress, some times or until the program ends; return how often."""
    n_killed = 0
    while n_killed < times:
        before, deadline = progress(), time.monotonic() + PATIENCE
        while job.poll() is None and progress() <= before + 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(random.uniform(0, 1.5))
        if job.poll() is not None:
            break
        n_killed += kill()
    return n_killed


@pytest.mark.long
@pytest.mark.parametrize("buckets", [0, 4])
@pytest.mark.parametrize("victim", ["executor", "worker", "driver"])
def test_spark_survives_kills(victim, buckets, tmp_path):
    rows, model, home = keyed_rows(40, 100), new_model("regression"), tmp_path / "job"
    prepare("spark", home, model, rows, parts=10)
    words = ["local-cluster[2,1,1024]", *([buckets] if buckets else [])]

    def progress():
        return len(list(home.glob("checkpoint/commits/[0-9]*")))

    if victim == "driver":
        for _ in range(3):
            with running("spark", home, *words) as job:
                assert kill_while_it_runs(job, progress, lambda: 1, times=1)
        run("spark", home, *words)
    else:
        word = {"executor": "CoarseGrainedExecutorBackend", "worker": "pyspark.daemon"}[victim]
        with running("spark", home, *words) as job:
            assert kill_while_it_runs(job, progress, lambda: kill_one(job.pid, word, leaf=victim == "worker"))
            finish(job, home)
    check_same(*outcome("spark", home), model, rows)


@contextmanager
def flink_cluster(home):
    """A standalone cluster: a job manager and two task managers; yields where it is, these, and how to start one."""
    pyflink = Path(python_of("flink")).parents[1]
    [root] = pyflink.glob("lib/python3*/site-packages/pyflink")
    port, rpc = free_port(), free_port()
    conf = home / "conf"
    shutil.copytree(root / "conf", conf)
    [opens] = re.findall(
        r"^ +all: (.*)$", (conf / "config.yaml").read_text(), re.MULTILINE
    )  # what Java 17 has to allow
    settings = {
        "env.java.opts.all": opens,
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": rpc,
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.memory.process.size": "1g",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.memory.process.size": "1400m",
        "taskmanager.numberOfTaskSlots": 2,
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": port,
        "rest.bind-port": port,
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 5000,
    }
    (conf / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    env = os.environ | {"FLINK_CONF_DIR": str(conf), "FLINK_HOME": str(root), "FLINK_LOG_DIR": str(home)}
    running = []

    def start(kind):
        with open(home / "cluster.log", "ab") as log:
            command = ["bash", str(root / "bin" / f"{kind}.sh"), "start-foreground"]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        running.append(process)
        return process

    try:
        manager = start("jobmanager")
        assert wait_for_port(port, manager), (home / "cluster.log").read_text()[-3000:]
        workers = [start("taskmanager") for _ in range(2)]
        yield (root, conf, f"127.0.0.1:{port}"), workers, start
    finally:
        for process in running:
            kill_all(process)


@pytest.mark.long
@pytest.mark.parametrize("buckets", [0, 4])
@pytest.mark.parametrize("victim", ["task manager", "worker", "driver"])
def test_flink_survives_kills(victim, buckets, tmp_path):
    rows, model, home = keyed_rows(40, 100), new_model("regression"), tmp_path / "job"
    prepare("flink", home, model, rows)
    pause = 0.02  # seconds a row, so that there is time for kills

    def progress():
        return max((int(path.parent.name[4:]) for path in home.glob("checkpoints/*/chk-*/_metadata")), default=0)

    if victim == "driver":  # with its own cluster
        for _ in range(2):
            with running("flink", home, buckets, pause) as job:
                assert kill_while_it_runs(job, progress, lambda: 1, times=1)
        run("flink", home, buckets, pause)
    else:
        with (
            flink_cluster(tmp_path) as (cluster, workers, start),
            running("flink", home, buckets, pause, cluster=cluster) as job,
        ):

            def kill():
                busy = [one for one in workers if any("beam_" in of for of in descendants(one.pid).values())]
                for chosen in random.sample(busy, min(1, len(busy))):
                    if victim == "worker":
                        return kill_one(chosen.pid, "beam_", leaf=True)
                    kill_all(chosen)
                    workers.remove(chosen)
                    workers.append(start("taskmanager"))
                return len(busy) > 0

            assert kill_while_it_runs(job, progress, kill)
            finish(job, home)
    check_same(*outcome("flink", home), model, rows)
