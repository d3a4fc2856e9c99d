"""Crews on Ray: killed actors, a killed machine, and what bad surroundings get; test_cluster_drivers kills drivers."""

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from ray_nodes import (  # noqa: E402
    ATTEMPTS,
    Murderer,
    are_gone,
    descendants,
    kill_worker,
    local_ray,  # noqa: F401 - a fixture, as are those below
    no_worker_is_hopeless,  # noqa: F401
    two_nodes,  # noqa: F401
)
from snapshot_workers import SnapshotWorker  # noqa: E402

from streamboost.cluster import LocalCrew, RayCrew, WorkerLost, make_crew, recovery  # noqa: E402
from streamboost.cluster import ray_crew as room  # noqa: E402
from streamboost.persistence.object_graph import same_state  # noqa: E402

SMALL = {"num_cpus": 0.5}
ROWS = 5


class Chain(SnapshotWorker):
    """Its state depends on every operation, on their order and on their number."""

    def __init__(self):
        self.state = {"weights": np.ones(3), "n": 0}

    def learn(self, X):
        time.sleep(0.002)  # so that there is something to kill
        for row in X:
            self.state["weights"] = 0.9 * self.state["weights"] + row
            self.state["n"] += 1
        return self.state["n"]

    def whole(self):
        return self.state

    @property
    def n_rows(self):
        return self.state["n"]


def chunk(number):
    return np.random.default_rng(number).normal(size=(ROWS, 3))


def undisturbed(n, n_workers):
    """The same operations in this process."""
    with LocalCrew(Chain, {}, n_workers) as crew:
        for number in range(n):
            crew.call(number % n_workers, "learn", chunk(number))
        return crew.results(crew.ask_all("whole"))


def ray_crew(address, n_workers=2, directory=None, cls=Chain, options=None, **named):
    named = {"resources": SMALL, **named}
    return RayCrew(cls, options or {}, n_workers, directory, address=address, **named)


def call_all(crew, method, *args):
    return [crew.call(worker, method, *args) for worker in range(crew.n_workers)]


@pytest.mark.usefixtures("no_worker_is_hopeless")
def test_kills_of_actors_at_random_moments_change_nothing(local_ray, kills, tmp_path):  # noqa: F811
    with ray_crew(local_ray, 2, tmp_path, cut_every=20) as crew:
        murderer, n, tickets = Murderer(crew, 7), 0, []
        with murderer.at_work(kills, within=1.2) as killing:
            while n < 20 * kills or killing.is_alive():
                tickets.append(crew.call(n % 2, "learn", chunk(n)))
                n += 1
        assert crew.results(tickets) == [ROWS * (number // 2 + 1) for number in range(n)]
        states = crew.results(crew.ask_all("whole"))
        assert len(murderer.killed) == kills
        assert sum(line["restarts"] for line in crew.metrics()) >= kills
        assert [line["rows"] for line in crew.metrics()] == [ROWS * ((n + 1) // 2), ROWS * (n // 2)]
    assert same_state(states, undisturbed(n, 2))
    assert are_gone([line["pid"] for line in crew.metrics()])


class SelfKiller(SnapshotWorker):
    """Ends itself where it is told to, once."""

    def __init__(self, folder):
        self.folder, self.state = folder, 0

    def _maybe_die(self, point):
        flag = Path(self.folder, point)
        if flag.exists():
            flag.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def add(self, number):
        self.state = 2 * self.state + number
        self._maybe_die("in an operation")
        return self.state

    def now(self):
        self._maybe_die("in a question")
        return self.state

    def save(self, number):
        self._maybe_die("before saving")
        super().save(number)
        self._maybe_die("after saving")

    def load(self, number):
        self._maybe_die("before loading")
        super().load(number)
        self._maybe_die("after loading")


def test_a_worker_that_dies_in_an_operation_a_save_or_a_load_goes_on_where_it_was(local_ray, tmp_path):  # noqa: F811
    with ray_crew(local_ray, 1, cls=SelfKiller, options={"folder": str(tmp_path)}) as crew:
        total = 0
        points = [["in an operation"], ["before saving"], ["after saving", "before loading"]]
        points += [["in a question", "after loading"]]
        for round_, names in enumerate(points):
            for name in names:
                (tmp_path / name).touch()
            total = 2 * total + round_
            assert crew.result(crew.call(0, "add", round_)) == total
            assert crew.result(crew.ask(0, "now")) == total
            crew.cut()
            assert not list(tmp_path.iterdir())
        assert crew.metrics()[0]["restarts"] == 6
        assert crew.result(crew.ask(0, "now")) == total


@pytest.mark.usefixtures("no_worker_is_hopeless")
def test_workers_spread_over_two_nodes_and_survive_one_of_them(two_nodes, tmp_path):  # noqa: F811
    big = np.asfortranarray(np.random.default_rng(0).normal(size=(100_000, 3)))[::-1000]  # odd layout
    there = {"num_cpus": 0, "node:127.0.0.5": 0.01}  # who starts there shows that the first node knows of the second
    with ray_crew(two_nodes.address, 1, resources=there), ray_crew(two_nodes.address, 4, tmp_path) as crew:
        nodes = [line["node"] for line in crew.metrics()]
        assert len({*nodes}) == 2
        for number in range(40):
            crew.call(number % 4, "learn", chunk(number))
        crew.cut()
        call_all(crew, "learn", big)
        two_nodes.kill_node("127.0.0.5")
        crew.results(call_all(crew, "learn", big))
        states = crew.results(crew.ask_all("whole"))
        assert len({line["node"] for line in crew.metrics()}) == 1
        assert {line["restarts"] > 0 for line in crew.metrics()} == {True, False}
    with LocalCrew(Chain, {}, 4) as crew:
        for number in range(40):
            crew.call(number % 4, "learn", chunk(number))
        crew.results(call_all(crew, "learn", big) + call_all(crew, "learn", big))
        assert same_state(states, crew.results(crew.ask_all("whole")))


class Careless(SnapshotWorker):
    """Writes into what it is given, and hands out what it keeps."""

    state = None

    def scale(self, X):
        X *= 2
        self.state = X
        return X

    def kept(self):
        return self.state

    def threads(self):
        import numba
        from threadpoolctl import threadpool_info

        return [numba.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())]


def test_arrays_arrive_as_their_own_and_libraries_use_one_thread(local_ray):  # noqa: F811
    rng = np.random.default_rng(1)
    with ray_crew(local_ray, 2, cls=Careless, options={}) as crew:
        for X in (rng.normal(size=(3, 2)), np.asfortranarray(rng.normal(size=(300, 200))), rng.normal(size=(9, 9)).T):
            tickets = call_all(crew, "scale", X)
            for answer in crew.results(tickets):
                np.testing.assert_array_equal(answer, 2 * X)
                assert answer.flags.c_contiguous
            np.testing.assert_array_equal(crew.result(crew.ask(1, "kept")), 2 * X)
        kill_worker(crew, 0)
        np.testing.assert_array_equal(crew.result(crew.ask(0, "kept")), 2 * X)
        assert crew.metrics()[0]["restarts"] == 1
        assert {*crew.result(crew.ask(0, "threads"))} == {1}
        with pytest.raises(TypeError, match="pickle"):
            crew.call(0, "scale", threading.Lock())
        np.testing.assert_array_equal(crew.result(crew.call(0, "scale", np.ones(2))), [2, 2])


def test_what_does_not_fit_is_refused_at_once_or_after_the_time_that_was_given(local_ray):  # noqa: F811
    with ray_crew(local_ray, 1):  # one connection for all of these
        for n_workers, resources in ((5, {}), (1, {"num_cpus": 64}), (1, {"memory": 1e15}), (1, {"tpu_pod": 1})):
            with pytest.raises(ValueError, match=rf"{n_workers} workers with .* do not fit: the cluster has"):
                ray_crew(local_ray, n_workers, resources=resources)
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=r"worker 0 with .*'num_cpus': 64.* did not start within 2 seconds"):
            ray_crew(local_ray, 1, resources={"num_cpus": 64}, start_seconds=2)
        assert time.monotonic() - started < room.START_SECONDS / 2  # which it would take without the word
        with pytest.raises(ValueError, match=r"resources\['memory'\] is '1GB', expected a number"):
            ray_crew(local_ray, 1, resources={"memory": "1GB"})
        with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
            ray_crew(local_ray, 1, options={"sed": 1})
        with pytest.raises(ValueError, match="this process is connected to"):
            ray_crew("127.0.0.9:6379")


def test_a_worker_with_another_version_is_refused(local_ray, monkeypatch):  # noqa: F811
    other = {**recovery.versions(), "numpy": "1.26.4"}
    monkeypatch.setattr(recovery, "versions", lambda: other)
    with pytest.raises(RuntimeError, match=r"worker 0 on node \w+ has numpy .* instead of 1\.26\.4"):
        ray_crew(local_ray, 1)


class Fatal(SnapshotWorker):
    def crash(self):
        os._exit(3)


def test_an_operation_that_always_ends_its_worker_ends_the_crew_with_a_word(local_ray, monkeypatch):  # noqa: F811
    monkeypatch.setattr(RayCrew, "most_deaths", 2)
    with ray_crew(local_ray, 1, cls=Fatal, options={}) as crew:
        ticket = crew.call(0, "crash")
        with pytest.raises(WorkerLost, match=r"worker 0 died 2 times in a row, the last time at operation 1, 'crash'"):
            crew.result(ticket)


def test_a_cluster_that_does_not_answer_is_refused_within_the_time_limit(local_ray, monkeypatch):  # noqa: F811
    with socket.socket() as silent, socket.socket() as closed, socket.socket() as other:
        for listener in (silent, closed, other):
            listener.bind(("127.0.0.1", 0))
        silent.listen()
        other.listen()
        answering = threading.Thread(target=answer_like_a_web_server, args=(other,))
        answering.start()
        addresses = {
            f"127.0.0.1:{closed.getsockname()[1]}": "Connection refused",
            f"127.0.0.1:{silent.getsockname()[1]}": "no answer within 3 seconds",
            f"127.0.0.1:{other.getsockname()[1]}": "something else than Ray answers",
            "no-such-host.invalid:6379": "",
        }
        for address, reason in addresses.items():
            monkeypatch.setattr(room, "CONNECT_SECONDS", 3.0 if "within" in reason else 60.0)
            started = time.monotonic()
            with pytest.raises(ConnectionError, match=f"no Ray cluster can be reached at '{address}': .*{reason}"):
                ray_crew(address)
            assert time.monotonic() - started < 120  # Ray itself would wait for minutes
        answering.join()
    for address in ("ray://127.0.0.1:10001", "127.0.0.1", "host:port"):
        with pytest.raises(ValueError, match=f"address is '{address}', expected 'host:port'"):
            ray_crew(address)


def answer_like_a_web_server(listener):
    with listener.accept()[0] as connection:
        connection.sendall(b"HTTP/1.0 400 no\r\n\r\n")


def crew_on_a_new_ray(**named):
    """A crew that starts its own Ray, and the processes that are there before; a busy machine may need another try."""
    for attempt in range(ATTEMPTS):
        before = {*descendants(os.getpid())}
        try:
            return make_crew(Chain, {}, **named), before
        except ConnectionError as error:  # Ray itself gives up after 30 seconds
            if "timed out" not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


def test_a_ray_of_its_own_is_started_shared_and_ended():
    import ray

    crew, before = crew_on_a_new_ray(workers=2)
    with crew:
        assert isinstance(crew, RayCrew)
        mine = {*descendants(os.getpid())} - before
        assert crew.metrics()[0]["pid"] in mine
        with pytest.raises(ValueError, match="3 workers"), make_crew(Chain, {}, workers=3):
            pass
        with make_crew(Chain, {}, workers=1, resources={"num_cpus": 0}) as other:
            assert other.result(other.call(0, "learn", chunk(0))) == ROWS
        assert crew.results(call_all(crew, "learn", chunk(1))) == [ROWS, ROWS]
        assert ray.get_runtime_context().gcs_address.startswith("127.0.0.2:" if sys.platform == "linux" else "")
    assert not ray.is_initialized()
    assert are_gone(mine)
