"""Runs over partitions: each the run it would be by itself, whoever is killed on the way."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from killed_runs import SMALL
from partitioned_runs import check_same, rows, words_of

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.runs import supervisor as supervisors
from streamboost.runs.partitions import Partition, list_partitions
from streamboost.runs.supervisor import GIVEN_UP, Supervisor
from streamboost.runs.workers import Process, Seen, WorkerGone

PROGRAM = [sys.executable, "-m", "streamboost"]


@pytest.fixture
def parts(tmp_path):
    def write(n_rows, n=3):
        for k in range(n):
            pq.write_table(rows(n_rows + 100 * k, k), tmp_path / f"part-{k}.parquet", row_group_size=300)
        return [f"part-{k}.parquet" for k in range(n)]

    return write


@pytest.mark.slow
@pytest.mark.parametrize("shape", [["--key", "user"]], ids=["by key"])
def test_whoever_is_killed_each_is_the_run_it_would_be_by_itself(parts, shape, kills, tmp_path, capsys):
    """Workers and the supervisor are killed at random; what is left of the last one ends by itself."""
    names, dice, n_killed = parts(250 * kills, 3), random.Random(3), 0
    command = [*PROGRAM, *words_of(tmp_path, *shape, "--workers", "2", "--resume")]
    while True:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            victim = None
            if n_killed < kills:
                until = time.monotonic() + 120
                time.sleep(dice.uniform(1.0, 4.0))
                while running.poll() is None and victim is None and time.monotonic() < until:
                    children = children_of(running.pid)
                    if dice.random() < 0.4:
                        victim = running.pid
                    elif children:
                        victim = dice.choice(children)
                if victim is not None:
                    try:
                        os.kill(victim, signal.SIGKILL)
                        n_killed += 1
                    except ProcessLookupError:
                        pass
                if victim != running.pid and n_killed < kills and running.poll() is None:
                    time.sleep(dice.uniform(0.5, 2.0))
                    running.kill()
                    n_killed += 1
            told = running.communicate(timeout=600)[0]
        if running.returncode != -signal.SIGKILL:
            break
    summary = json.loads(told)
    assert (running.returncode, summary["stopped"]) == (0, False), summary
    assert n_killed >= 3
    check_same(tmp_path, names, *SMALL, *shape)


def children_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(entry))
            except OSError:
                pass
    return found


def test_ctrl_c_ends_all_with_checkpoints_and_resuming_goes_on(parts, tmp_path, capsys):
    names = parts(1500, 2)
    command = [*PROGRAM, *words_of(tmp_path, "--workers", "2")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 120
        while not all((tmp_path / "m" / name).is_dir() and any((tmp_path / "m" / name).glob("checkpoint-*"))
                      for name in names) and time.monotonic() < until:  # fmt: skip
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        told = json.loads(running.communicate(timeout=120)[0])
    assert (running.returncode, told["stopped"]) == (0, True)
    assert main(words_of(tmp_path, "--workers", "2")) == 2  # what is there is not begun anew
    assert "Add --resume" in capsys.readouterr().err
    assert main(words_of(tmp_path, "--workers", "2", "--resume")) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3100
    check_same(tmp_path, names, *SMALL)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "2"], "without --model DIR"),
        (["--workers", "2", "--model", "m"], "Missing option '--target'"),
        (
            ["--workers", "2", "--model", "m", "--target", "y", "--continue"],
            "--continue is given, which is for one run",
        ),
        (["--workers", "1", "--model", "m", "--target", "y", "--follow"], "each needs a worker of its own"),
        (["--workers", "2", "--model", "m", "--target", "nothing"], "'nothing'"),
    ],
)
def test_what_makes_no_sense_is_refused(parts, words, told, tmp_path, capsys, monkeypatch):
    parts(10, 2)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "part-*.parquet", *words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "m").exists()


# What is listed.


def test_partitions_are_files_by_their_names(tmp_path, monkeypatch):
    for name in ("a/x.csv", "a/y.csv", "b/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")
    monkeypatch.chdir(tmp_path)
    assert list_partitions(["a"]) == list_partitions(["a/*.csv"])
    assert list_partitions(["a/*.csv"]) == [Partition("x.csv", "a/x.csv"), Partition("y.csv", "a/y.csv")]
    assert list_partitions(["a/x.csv"], is_absolute=True)[0].source == str(tmp_path / "a" / "x.csv")
    assert list_partitions(["c/*.csv"], follow=True) == []
    with pytest.raises(ValueError, match=r"would both be kept as .x\.csv."):
        list_partitions(["a", "b"])
    for place in ("-", "synthetic:friedman"):
        with pytest.raises(ValueError, match="cannot be divided"):
            list_partitions([place])


# The supervisor, with workers that die when they are told to.


class Scripted:
    """A worker that goes through a list: numbers are rows told, 'ok' and 'die' its end, 'gone' that of its place."""

    def __init__(self, script):
        self.script, self.told, self.is_stopped = list(script), {}, False

    def see(self):
        if self.is_stopped:
            return Seen(self.told, 0)
        step = self.script.pop(0) if self.script else "ok"
        if step == "gone":
            raise WorkerGone("a node is gone")
        if step in ("ok", "die", "usage"):
            return Seen(self.told, {"ok": 0, "die": -9, "usage": 2}[step], "what it said")
        self.told = {"rows": step, "resumed_at": self.told.get("resumed_at", step)}
        return Seen(self.told)

    def stop(self):
        self.is_stopped = True

    def kill(self):
        pass


def supervised(scripts, n_workers=2, monkeypatch=None, **options):
    """Run a supervisor over scripts by partition, a list of lives each; return it, its commands and its tables."""
    begun = []

    def start(words):
        begun.append(words)
        return Scripted(scripts[words[0]].pop(0))

    monkeypatch.setattr(supervisors, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(supervisors, "LONGEST_PAUSE", 0.01)
    names = list(scripts)
    supervisor = Supervisor(
        lambda: [Partition(name, name) for name in names],
        lambda partition, is_begun: [partition.name, *(["again"] if is_begun else [])],
        start, n_workers, **options,
    )  # fmt: skip
    return supervisor, begun, names


def test_one_that_dies_is_started_again_and_goes_on(monkeypatch):
    scripts = {"a": [[0, 10, "die"], [10, 20, "gone"], [20, "ok"]], "b": [[0, "ok"]], "c": [[0, "ok"]]}
    one, begun, _ = supervised(scripts, monkeypatch=monkeypatch)
    most = max(sum(row["state"] == "running" for row in table) for table in one.watch())
    assert most == 2
    assert begun.count(["a"]) == 1
    assert begun.count(["a", "again"]) == 2
    assert [(row["state"], row["restarts"], row["rows"]) for row in one.table()] == [
        ("ended", 2, 20), ("ended", 0, 0), ("ended", 0, 0),
    ]  # fmt: skip


def test_one_that_dies_at_one_spot_again_and_again_is_given_up_with_the_reason(monkeypatch):
    scripts = {"a": [[0, 10, "die"], [10, "die"], *[[10, 12, "die"]] * 4, ["never"]], "b": [[0, "ok"]]}
    one, begun, _ = supervised(scripts, monkeypatch=monkeypatch)
    list(one.watch())
    assert len([words for words in begun if words[0] == "a"]) == 6  # one at 0, five at 10
    a, b = one.table()
    assert (a["state"], b["state"]) == (GIVEN_UP, "ended")
    assert re.search("killed by signal 9. what it said", a["reason"])
    one, begun, _ = supervised({"a": [["usage"], ["never"]]}, monkeypatch=monkeypatch)
    list(one.watch())
    assert one.table()[0]["state"] == GIVEN_UP  # trying again would not help


def test_partitions_that_are_added_are_followed(monkeypatch):
    scripts = {"a": [[0] * 10**6], "b": [[0] * 10**6]}
    one, begun, names = supervised(scripts, n_workers=1, monkeypatch=monkeypatch, follow=True)
    monkeypatch.setattr(supervisors, "LIST_SECONDS", 0.0)
    names.remove("b")
    for i, table in enumerate(one.watch()):
        if i == 3:
            names.append("b")
        if i > 3 and len(table) == 2 and all(row["state"] == "running" for row in table):
            one.stopping = 1
    assert begun == [["a"], ["b"]]


def test_a_process_ends_with_whoever_started_it(tmp_path):
    pq.write_table(rows(200, 0), tmp_path / "rows.parquet")
    source = ["run", str(tmp_path / "rows.parquet"), "--target", "y", "--model", str(tmp_path / "m"), *SMALL]
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n3,4.5\n")
    source[1] = str(tmp_path / "rows.csv")
    one = Process([*source, "--follow", "--supervised", "--task", "regression"])
    until = time.monotonic() + 120
    while one.see().told.get("rows") is None and one.see().code is None and time.monotonic() < until:
        time.sleep(0.05)
    assert one.see().code is None, one.see()
    one.stop()  # its standard input ends, as it does where its parent is gone
    while one.see().code is None and time.monotonic() < until:
        time.sleep(0.05)
    assert one.see().code == 0, one.see()
    assert read_latest(tmp_path / "m").rows == 2
    one.kill()
