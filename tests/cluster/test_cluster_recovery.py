"""Workers that die, starve or come back as others: made anew, or given up with a word on why."""

from pathlib import Path

import pytest
from mortal_crews import (
    Chain,
    LimitedCrew,
    MortalCrew,
    Starving,
    call_all,
    nobody_is_killed_at_first,  # noqa: F401 - a fixture
)
from snapshot_workers import SnapshotWorker

from streamboost.cluster import LocalCrew, WorkerLost, WrongState
from streamboost.cluster.station import Station, versions


def test_a_worker_that_was_swapped_for_an_empty_one_is_made_anew_and_not_believed():
    with MortalCrew(Chain, {}, 1) as crew:
        crew.results([crew.call(0, "add", number) for number in (1, 2, 3)])
        crew._stations[0] = Station()  # as an engine does that restarts what died by itself
        crew._stations[0].handle("build", Chain, {}, str(crew.folder(0)), crew._book.manifest.mark)
        assert crew.result(crew.call(0, "add", 4)) == 4
        assert crew.metrics()[0]["restarts"] == 1


class Hungry(SnapshotWorker):
    """Runs out of memory half-way, as often as it is told to."""

    def __init__(self, times):
        self.state, self.times = 0, times

    def grow(self, path):
        self.state += 1
        tried = len(Path(path).read_text())
        if tried < self.times:
            Path(path).write_text("x" * (tried + 1))
            raise MemoryError("no room")
        return self.state


def test_running_out_of_memory_half_way_is_undone_and_told_if_it_happens_again_and_again(tmp_path):
    path = tmp_path / "tried"
    path.write_text("")
    with MortalCrew(Hungry, {"times": 3}, 1) as crew:
        assert crew.result(crew.call(0, "grow", str(path))) == 1
    with LimitedCrew(Hungry, {"times": 100}, 1) as crew:
        ticket = crew.call(0, "grow", str(path))
        with pytest.raises(WorkerLost, match=r"died 5 times in a row.*operation 1, 'grow': MemoryError: no room"):
            crew.result(ticket)
        with pytest.raises(WorkerLost, match="died 5 times"):
            crew.call(0, "grow", str(path))


@pytest.mark.parametrize("crew_class", [LocalCrew, MortalCrew])
@pytest.mark.parametrize("question", ["size", "save"])
def test_running_out_of_memory_where_nothing_changes_is_told_as_such_and_costs_nothing(crew_class, question):
    with crew_class(Starving, {}, 2) as crew:
        crew.results([*call_all(crew, "grow"), *call_all(crew, "grow")])
        crew.results([crew.call(1, "starve", question)])
        with pytest.raises(MemoryError, match="80 GiB"):
            crew.cut() if question == "save" else crew.results(crew.ask_all("size"))
        assert crew.results(crew.ask_all("size")) == [2, 2]
        number = crew.cut()
        assert crew.results(call_all(crew, "grow")) == [3, 3]
        crew.load(number)
        assert crew.results(crew.ask_all("size")) == [2, 2]
        assert [line["restarts"] for line in crew.metrics()] == [0, 0]


@pytest.mark.parametrize("end", [MemoryError, KeyboardInterrupt])
def test_a_local_worker_that_stops_half_way_says_so_until_a_cut_is_loaded(end, tmp_path):
    with LocalCrew(Starving, {}, 2, tmp_path) as crew:
        crew.results(call_all(crew, "grow"))
        cut = crew.detach("starving")
        crew.results(call_all(crew, "grow"))
        crew.call(1, "starve", "grow" if end is MemoryError else "grow, interrupted")
        with pytest.raises(end):
            crew.results(call_all(crew, "grow"))
        words = (
            f"worker 1 stopped in the middle of operation 4, 'grow', with {end.__name__}.*Attach the last checkpoint"
        )
        for act in (lambda: crew.call(0, "grow"), lambda: crew.ask(0, "size"), crew.cut, lambda: crew.detach("it")):
            with pytest.raises(WrongState, match=words):
                act()
        crew.attach(cut, "starving")
        assert crew.results(crew.ask_all("size")) == [1, 1]
        assert crew.results(call_all(crew, "grow")) == [2, 2]
        crew.load(0)
        assert crew.results(call_all(crew, "grow")) == [1, 1]


def test_a_worker_may_die_any_number_of_times_as_long_as_it_gets_on():
    with LimitedCrew(Chain, {}, 1) as crew:
        for number in range(12):
            del crew._stations[0]  # killed
            assert crew.result(crew.call(0, "add", number)) == number + 1
        assert crew.metrics()[0]["restarts"] == 12


def test_a_worker_that_dies_once_at_every_cut_gets_on_though_it_is_asked_nothing_else():
    with LimitedCrew(Chain, {}, 2) as crew:
        for number in range(12):
            crew.call(1, "add", number)
            del crew._stations[0]  # killed
            crew.cut()
        assert [line["restarts"] for line in crew.metrics()] == [12, 0]


class ShortOfMemory(LimitedCrew):
    """Of two workers that save at once the system kills one, now this, now that."""

    n_tries = 0

    def _send(self, worker, message):
        if message[0] == "save":
            self.n_tries += worker == 0
            assert self.n_tries < 100
            if worker == self.n_tries % 2:
                self._stations.pop(worker, None)
        return super()._send(worker, message)


def test_workers_that_can_never_save_all_together_end_the_crew_though_each_saves_now_and_then():
    with ShortOfMemory(Chain, {}, 2) as crew, pytest.raises(WorkerLost, match="died 5 times in a row"):
        crew.call(0, "add", 1)


class ElsewhereCrew(MortalCrew):
    """Workers on a machine with other versions."""

    theirs = None

    def _wait(self, worker, handle):
        answer = super()._wait(worker, handle)
        if isinstance(answer.value, dict) and "versions" in answer.value:
            answer.value["versions"].update(self.theirs)
        return answer


def test_workers_with_other_versions_are_refused_before_anything_happens(tmp_path, monkeypatch):
    for theirs in ({"numpy": "1.26.4"}, {"python": "3.14", "streamboost": "0.0.9"}):
        monkeypatch.setattr(ElsewhereCrew, "theirs", theirs)
        words = " and ".join(f"{name} {version} instead of {versions()[name]}" for name, version in theirs.items())
        with pytest.raises(RuntimeError, match=f"worker 0 on node .* has {words}"):
            ElsewhereCrew(Chain, {}, 2, tmp_path)
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:  # the lock was let go
        crew.call(0, "add", 1)
