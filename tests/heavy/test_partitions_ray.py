"""Partitioned runs on Ray: processes and a whole node killed; each is the run it would be by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from killed_runs import SMALL  # noqa: E402
from partitioned_runs import check_same, rows, words_of  # noqa: E402
from ray_nodes import descendants, kill, two_nodes  # noqa: E402, F401 - a fixture


@pytest.fixture
def names(tmp_path):
    for k in range(4):
        pq.write_table(rows(2500, k), tmp_path / f"part-{k}.parquet", row_group_size=300)
    return [f"part-{k}.parquet" for k in range(4)]


def started(tmp_path, address, *more):
    words = words_of(tmp_path, "--key", "user", "--workers", "2", "--ray", address, *more)
    return subprocess.Popen([sys.executable, "-m", "streamboost", *words], stdout=subprocess.PIPE, text=True)


def working(pid):
    """The runs among the descendants of a process."""
    found = []
    for child in descendants(pid):
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                if b"--supervised" in file.read():
                    found.append(child)
        except OSError:
            pass
    return found


def wait_for(condition, seconds=180.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def test_runs_that_are_killed_on_a_node_go_on(names, tmp_path, two_nodes, capsys):  # noqa: F811
    nodes = [node.process.pid for node in two_nodes.nodes.values()]

    def runs():
        return [pid for node in nodes for pid in working(node)]

    with started(tmp_path, two_nodes.address, "--resume") as driver:
        assert wait_for(runs)
        assert wait_for(lambda: any((tmp_path / "m").glob("*/checkpoint-*")))
        assert kill(runs()[0])
        assert wait_for(lambda: len(runs()) > 0)
        two_nodes.kill_node("127.0.0.5")
        summary = json.loads(driver.communicate(timeout=900)[0])
    assert driver.returncode == 0, summary
    assert summary["rows"] == 10_000
    assert summary["restarts"] >= 1
    check_same(tmp_path, names, *SMALL, "--key", "user")
