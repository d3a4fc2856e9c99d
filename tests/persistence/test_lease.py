"""Two owners of one directory are impossible: whoever was paused beyond his lease writes nothing more."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from streamboost.errors import LeaseLost
from streamboost.persistence import durable_files, lease
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore, read_latest
from streamboost.persistence.lease import Lease, newest_lease

PROGRAM = Path(__file__).parent / "leased.py"


class Owner(subprocess.Popen):
    """A process that owns a directory."""

    def __init__(self, directory, name="first", seconds=1.0):
        command = [sys.executable, str(PROGRAM), str(directory), str(seconds), name]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def said(self):
        return self.stdout.readline().strip()

    def go_on(self):
        self.stdin.write("\n")
        self.stdin.flush()

    def __exit__(self, *args):
        self.kill()
        super().__exit__(*args)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if "lease" not in path.name}


def test_a_second_one_is_told_who_holds_it_and_until_when(tmp_path):
    with Owner(tmp_path, seconds=30.0) as owner:
        assert owner.said() == "0"
        with pytest.raises(BlockingIOError, match=rf"in use by process {owner.pid} until (\d\d:\d\d:\d\d), when"):
            CheckpointStore(tmp_path)
        owner.kill()
        owner.wait()
        with CheckpointStore(tmp_path) as store:  # at once: on one machine, a lock tells
            assert store.latest().model["number"] == 0


def test_a_paused_owner_that_wakes_up_after_its_lease_writes_nothing(tmp_path):
    with Owner(tmp_path) as owner:
        assert owner.said() == "0"
        owner.send_signal(signal.SIGSTOP)
        with CheckpointStore(tmp_path, wait=30) as store:  # until the lease has run out
            assert store.latest().model == {"of": "first", "number": 0}
            store.save(Checkpoint("second", rows=7))
            before = files(tmp_path)
            owner.send_signal(signal.SIGCONT)
            owner.go_on()
            told = owner.said()
            assert told.startswith("LeaseLost")
            assert f"taken by process {os.getpid()}" in told
            assert owner.wait(30) == 0
            assert files(tmp_path) == before
            store.save(Checkpoint("second", rows=8))
    assert read_latest(tmp_path).rows == 8
    assert not list(tmp_path.glob("*.tmp"))


def test_a_paused_owner_whom_nobody_replaced_goes_on(tmp_path):
    with Owner(tmp_path, seconds=0.5) as owner:
        assert owner.said() == "0"
        owner.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        owner.send_signal(signal.SIGCONT)
        owner.go_on()
        assert owner.said() == "1"


@pytest.mark.parametrize("writes", [0, 1], ids=["the successor writes nothing", "the successor writes"])
def test_one_who_was_paused_just_before_its_checkpoint_was_in_place_is_left_out(tmp_path, monkeypatch, writes):
    """The very last step: the file is written and checked, and the rename comes after the successor has begun."""
    monkeypatch.setattr(lease, "SECONDS", 0.3)
    first = CheckpointStore(tmp_path)
    first.save(Checkpoint("before", rows=1))
    first._lease._ended.set()  # as one that is paused renews nothing
    reached, replace = threading.Event(), os.replace
    woken = threading.Event()

    def paused(source, target):
        if "checkpoint-" in str(target) and threading.current_thread() is not threading.main_thread():
            reached.set()
            woken.wait(30)
        replace(source, target)

    monkeypatch.setattr(durable_files.os, "replace", paused)
    lost = []

    def save():
        try:
            first.save(Checkpoint("stale", rows=2))
        except LeaseLost as error:
            lost.append(error)

    thread = threading.Thread(target=save)
    monkeypatch.setattr(
        "streamboost.persistence.checkpoints.remove_leftovers", lambda _: None
    )  # it keeps even its file
    thread.start()
    assert reached.wait(30)
    with CheckpointStore(tmp_path, wait=30) as second:
        assert second.latest().model == "before"
        if writes:
            second.save(Checkpoint("second", rows=3))
        woken.set()
        thread.join()
        assert lost
        assert second.latest().model == read_latest(tmp_path).model == ("second" if writes else "before")
    assert read_latest(tmp_path).model == ("second" if writes else "before")
    with CheckpointStore(tmp_path) as third:
        assert third.latest().model == ("second" if writes else "before")
        third.save(Checkpoint("third", rows=4))
    first.close()
    assert read_latest(tmp_path).model == "third"


def elsewhere(directory, seconds):
    """What a lease of another machine looks like, whose locks are not seen here."""
    told = {"process": 123, "host": "far.example", "boot": "another", "until": time.time() + seconds, "void": None}
    (directory / "lease-5").write_text(json.dumps(told))


def test_another_machine_is_waited_for_until_its_lease_has_run_out(tmp_path):
    elsewhere(tmp_path, 60)
    with pytest.raises(BlockingIOError, match=r"in use by process 123 on far\.example until \d\d:\d\d:\d\d"):
        CheckpointStore(tmp_path)
    elsewhere(tmp_path, 0.6)
    began = time.time()
    with CheckpointStore(tmp_path, wait=30) as store:
        assert time.time() - began > 0.4
        assert store._lease.number > 5
        assert store._lease.is_replacing


def test_of_many_who_come_at_once_one_gets_it(tmp_path):
    elsewhere(tmp_path, -1)
    won, start = [], threading.Barrier(8)

    def come():
        start.wait()
        with contextlib.suppress(BlockingIOError):
            won.append(Lease(tmp_path))

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) <= 1
    for one in won:
        one.check()
        assert newest_lease(tmp_path)[0] == one.number
        one.close()


def test_it_is_renewed_while_it_is_held_and_leaves_nothing_behind(tmp_path):
    held = Lease(tmp_path, seconds=0.3)
    numbers = []
    for _ in range(4):
        time.sleep(0.3)
        number, told = newest_lease(tmp_path)
        numbers.append(number)
        assert told["until"] > time.time()
        with pytest.raises(BlockingIOError):
            Lease(tmp_path)
    assert set(numbers) == {held.number}
    held.close()
    assert os.listdir(tmp_path) == ["lock"]


def test_a_copy_of_a_directory_in_use_is_free(tmp_path):
    with CheckpointStore(tmp_path / "a") as store:
        store.save(Checkpoint("model"))
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        with CheckpointStore(tmp_path / "b") as other:
            assert other.latest().model == "model"
            other.save(Checkpoint("other"))
        store.save(Checkpoint("model"))


def test_a_run_that_was_replaced_ends_and_writes_nothing(tmp_path):
    """The same for a run, whose predictions and quarantine are written before its checkpoint."""
    import numpy as np
    import pyarrow as pa

    from streamboost import SGBRegressor
    from streamboost.runs.run import Options, Run
    from streamboost.sources import open_source

    rows = pa.table({"x": np.arange(400.0), "y": [*np.arange(399.0), None]})
    options = Options("y", "regression", chunk=50, every=100, checkpoint_rows=100, predictions=tmp_path / "said")
    with Run(open_source(rows), SGBRegressor(n_estimators=2, memory=32), options, tmp_path / "m") as one:
        reports = one.reports()
        next(reports)
        elsewhere(tmp_path / "m", 60)
        os.rename(tmp_path / "m" / "lease-5", tmp_path / "m" / f"lease-{one.store._lease.number + 1}")
        before, parts = files(tmp_path / "m"), sorted(os.listdir(tmp_path / "said"))
        with pytest.raises(LeaseLost, match=re.escape("process 123 on far.example")):
            list(reports)
    assert files(tmp_path / "m") == before
    assert sorted(os.listdir(tmp_path / "said")) == parts
