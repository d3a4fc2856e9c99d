"""A crew: operations and their answers, arguments, metrics, and the names of the room."""

import copy
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from mortal_crews import (
    Chain,
    MortalCrew,
    Starving,
    nobody_is_killed_at_first,  # noqa: F401 - a fixture
)
from snapshot_workers import SnapshotWorker

from streamboost import cluster
from streamboost.cluster import LocalCrew, make_crew, ray_crew
from streamboost.errors import MissingDependency, SnapshotError
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore


def test_a_crew_is_neither_copied_nor_pickled():
    with LocalCrew(Starving, {}, 1) as crew:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"neither copied nor pickled. Use detach\(\)"):
                attempt(crew)


def test_operations_wait_when_too_many_are_unanswered_and_a_cut_bounds_what_is_kept():
    with MortalCrew(Chain, {}, 2, in_flight=3, cut_every=10) as crew:
        tickets = [crew.call(0, "add", number) for number in range(25)]
        assert crew.metrics()[0]["in_flight"] <= 3
        assert crew.most_waiting == 3
        assert len(crew._lines[0].log) + len(crew._lines[0].pending) == 5
        assert [bool(ticket.args) for ticket in tickets] == [False] * 20 + [True] * 5
        assert len(crew.cuts) == 2
    with MortalCrew(Chain, {}, 1, cut_bytes=10_000) as crew:
        crew.call(0, "add", 0)
        before = crew.cuts
        for _ in range(9):
            crew.call(0, "add", np.zeros(1_00))
        assert crew.cuts == before
        for _ in range(10):
            crew.call(0, "add", np.zeros(1_00))
        assert len(crew.cuts) == len(before) + 1


def test_a_failed_operation_counts_as_done_and_an_error_that_cannot_travel_is_told_in_words():
    with MortalCrew(Faulty, {}, 2) as crew:
        with pytest.raises(ValueError, match="no such"):
            crew.results([crew.call(0, "fail", "ValueError"), crew.call(1, "fail", "nothing")])
        with pytest.raises(RuntimeError, match="Odd: cannot be pickled"):
            crew.result(crew.call(0, "fail", "Odd"))
        assert crew.results(crew.ask_all("tries")) == [2, 1]
        assert [line["operations"] for line in crew.metrics()] == [2, 1]


class Odd(Exception):
    def __reduce__(self):
        raise TypeError("no")


class Faulty(SnapshotWorker):
    state = 0

    def fail(self, how):
        self.state += 1
        if how == "ValueError":
            raise ValueError("no such")
        if how == "Odd":
            raise Odd("cannot be pickled")

    def tries(self):
        return self.state


def test_metrics_say_who_does_what():
    with LocalCrew(Chain, {}, 2) as crew:
        crew.results([crew.call(0, "add", 1), crew.call(0, "add", 1), crew.call(1, "add", 1)])
        first, second = crew.metrics()
    assert (first["worker"], first["operations"], first["rows"], first["restarts"]) == (0, 2, 2, 0)
    assert (second["operations"], second["rows"], second["pid"]) == (1, 1, os.getpid())
    assert 10_000_000 < first["memory"] < 100_000_000_000


def test_wrong_arguments_are_explained(tmp_path):
    with pytest.raises(ValueError, match="in_flight is 0, expected a whole number of at least 1"):
        LocalCrew(Chain, {}, 1, in_flight=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        LocalCrew(Chain, {"sed": 1}, 1)
    with LocalCrew(Chain, {}, 1) as crew:
        with pytest.raises(ValueError, match="method is 'ad', which Chain does not have"):
            crew.call(0, "ad", 1)
        with pytest.raises(ValueError, match="worker is 1, expected a whole number from 0 to 0"):
            crew.call(1, "add", 1)
        with pytest.raises(ValueError, match=r"there is no cut 7 in .*, only none at all"):
            crew.load(7)
    with pytest.raises(ValueError, match="engine is 'spark', expected 'auto', 'local' or 'ray'"):
        make_crew(Chain, {}, engine="spark")
    with pytest.raises(ValueError, match="engine='local' uses neither"):
        make_crew(Chain, {}, engine="local", resources={"num_cpus": 2})
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint({"some": "model"}))
    with pytest.raises(SnapshotError, match="holds checkpoints of a run"):
        LocalCrew(Chain, {}, 1, tmp_path)


def test_a_crew_is_local_unless_workers_are_asked_for_and_then_says_what_is_missing(monkeypatch):
    with make_crew(Chain, {}) as crew:
        assert isinstance(crew, LocalCrew)
    with make_crew(Chain, {}, workers=3, engine="local") as crew:
        assert crew.n_workers == 3
    monkeypatch.setitem(sys.modules, "ray", None)
    for named in ({"engine": "ray"}, {"workers": 2}, {"address": "127.0.0.1:6379"}):
        with pytest.raises(MissingDependency, match=r"RayCrew needs ray.*pip install 'streamboost\[cluster\]'"):
            make_crew(Chain, {}, **named)


def test_a_ray_that_does_not_start_is_told_in_a_sentence_and_the_directory_is_let_go(monkeypatch, tmp_path):
    def time_out(**options):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=time_out))
    for _ in range(2):
        with pytest.raises(ConnectionError, match=r"could not be started on this machine: The current node timed out"):
            make_crew(Chain, {}, workers=2, directory=tmp_path)
    with make_crew(Chain, {}, directory=tmp_path) as crew:
        assert crew.result(crew.call(0, "add", 1)) == 1


def test_a_cluster_that_answers_and_cannot_be_joined_is_told_from_one_that_is_down(monkeypatch):
    def fail(**options):
        raise ConnectionError("Failed to connect to Ray cluster.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=fail))
    monkeypatch.setattr(ray_crew, "_knock", lambda host, port: None)
    for address, words in (
        (
            "127.0.0.1:6379",
            r"It answers\. Is this machine one of its nodes\?.*--address=127\.0\.0\.1:6379 --num-cpus=0",
        ),
        ("auto", "Is the cluster up"),
    ):
        with pytest.raises(ConnectionError, match=f"cannot join the Ray cluster at '{address}': Failed.*{words}"):
            make_crew(Chain, {}, address=address)


def test_the_room_is_entered_without_ray_and_knows_its_names():
    code = "import sys, streamboost.cluster; print('ray' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["False"]
    assert all(getattr(cluster, name).__name__ == name for name in cluster.__all__)
