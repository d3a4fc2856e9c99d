"""Cuts: which of them are kept, which can be gone back to, and what becomes of those that fail."""

import os

import pytest
from mortal_crews import (
    Chain,
    Fate,
    MortalCrew,
    Starving,
    call_all,
    nobody_is_killed_at_first,  # noqa: F401 - a fixture
    refuse_to_save,
    set_fate,
)
from snapshot_workers import SnapshotWorker, cut_path

from streamboost.cluster import Cut, LocalCrew, WorkerLost, WrongState
from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots
from streamboost.persistence.checkpoints import CheckpointStore


def test_a_torn_cut_is_never_loaded_and_its_files_go_with_the_next(tmp_path):
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:
        call_all(crew, "add", 1)
        first = crew.cut()
        crew.results(call_all(crew, "add", 2))
        set_fate(Fate([8]))  # worker 0 has saved, worker 1 has half saved
        second = crew.cut()
        assert second > first + 1
        assert [line["restarts"] for line in crew.metrics()] == [0, 1]
        names = {path.name.split(".")[0] for path in tmp_path.glob("worker-*/cut-*")}
        assert names == {f"cut-{number:010d}" for number in crew.cuts}
        crew.load(first)
        assert crew.results(crew.ask_all("numbers")) == [[1], [1]]


def test_a_cut_that_was_loaded_in_part_is_not_gone_on_from(tmp_path):
    with LocalCrew(Starving, {}, 2, tmp_path) as crew:
        crew.results(call_all(crew, "grow"))
        first = crew.cut()
        crew.results(call_all(crew, "grow"))
        second = crew.cut()
        cut_path(crew.folder(1), second).unlink()
        with pytest.raises(SnapshotError, match="is missing"):
            crew.load(second)
        with pytest.raises(WrongState, match=f"cut {second} was not loaded to its end"):
            crew.ask(0, "size")
        crew.load(first)
        assert crew.results(crew.ask_all("size")) == [1, 1]


def test_a_cut_that_fails_leaves_the_one_before_and_all_that_came_after_it():
    with MortalCrew(Unsavable, {}, 2) as crew:
        call_all(crew, "put", 1)
        before = crew.cut()
        call_all(crew, "put", object)
        with pytest.raises(SnapshotError, match="cannot be saved"):
            crew.cut()
        assert crew.cuts[-1] == before
        call_all(crew, "put", 2)
        del crew._stations[1]  # killed
        assert crew.results(crew.ask_all("got")) == [2, 2]
        assert crew.cut() > before


def test_a_manifest_that_cannot_be_written_changes_nothing(monkeypatch, tmp_path):
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:
        call_all(crew, "add", 1)
        before = crew.detach("chain").number
        call_all(crew, "add", 2)
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointStore, "save", refuse_to_save)
            for attempt in (crew.cut, lambda: crew.detach("chain")):
                with pytest.raises(OSError, match="No space left"):
                    attempt()
        assert crew.cuts[-1] == before
        crew._stations.clear()  # all killed
        assert crew.results(call_all(crew, "add", 3)) == [3, 3]
        for number in (4, 5, 6):
            call_all(crew, "add", number)
            crew.cut()
        assert before in crew.cuts  # still kept for its checkpoint


class Unsavable(SnapshotWorker):
    def put(self, value):
        self.state = value

    def got(self):
        return self.state


def test_only_the_last_two_cuts_are_kept():
    with MortalCrew(Chain, {}, 1) as crew:
        numbers = []
        for number in range(6):
            crew.call(0, "add", number)
            numbers.append(crew.cut())
        assert crew.cut() == numbers[-1]  # nothing happened since
        assert crew.cuts == numbers[-2:]
        assert len(list(crew.folder(0).glob("*.safetensors"))) == 2
        crew.load(numbers[4])
        assert crew.result(crew.ask(0, "numbers")) == [0, 1, 2, 3, 4]
        with pytest.raises(ValueError, match=f"there is no cut {numbers[5]} in"):
            crew.load(numbers[5])
        crew.load(0)
        assert crew.result(crew.ask(0, "numbers")) == []


def test_a_second_driver_is_kept_out_and_a_later_one_has_to_say_what_it_wants(tmp_path):
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:
        with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
            MortalCrew(Chain, {}, 2, tmp_path)
        crew.call(0, "add", 1)
        cut = crew.detach("chain")
        snapshots.save(cut, tmp_path / "kept.safetensors")
    cut = snapshots.load(tmp_path / "kept.safetensors")
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:
        with pytest.raises(FileExistsError, match=r"holds the cuts \[\d+, \d+\] already"):
            crew.call(0, "add", 1)
        with pytest.raises(FileExistsError, match=r"call load\(0\) to begin anew"):  # nor does an empty one answer
            crew.ask(0, "numbers")
        crew.attach(cut, "chain")
        assert crew.result(crew.call(0, "add", 2)) == 2
        with pytest.raises(ValueError, match="a cut of a 'chain', expected one of a 'keyed'"):
            crew.attach(cut, "keyed")
    with (
        MortalCrew(Chain, {}, 3, tmp_path) as crew,
        pytest.raises(ValueError, match=r"of 2 workers, and there are 3. Use workers=2"),
    ):
        crew.attach(cut, "chain")
    with (
        MortalCrew(Chain, {}, 2, tmp_path / "other") as crew,
        pytest.raises(ValueError, match="which holds others"),
    ):
        crew.attach(cut, "chain")


def test_a_worker_of_a_dead_driver_that_saves_late_does_not_touch_the_cuts_of_the_next(tmp_path):
    dead = MortalCrew(Chain, {}, 1, tmp_path)
    dead.result(dead.call(0, "add", 13))
    late = [dead._book.reserve() for _ in range(3)]
    dead.die()
    with MortalCrew(Chain, {}, 1, tmp_path) as crew:
        crew.load(0)
        crew.result(crew.call(0, "add", 1))
        numbers = []
        for _ in range(3):
            crew.call(0, "add", 1)
            numbers.append(crew.cut())
            for number in late:
                assert dead._stations[0].handle("save", number, 1).error is None
        crew.load(numbers[-1])
        assert crew.result(crew.ask(0, "numbers")) == [1, 1, 1, 1]
        crew.call(0, "add", 1)
        crew.cut()
        assert len(list(crew.folder(0).glob("*.safetensors"))) == 2  # and what came late is gone


def test_of_what_is_detached_the_last_two_stay_whatever_cuts_are_made_meanwhile(tmp_path):
    with MortalCrew(Chain, {}, 1, tmp_path, cut_every=2) as crew:
        kept = []
        for number in range(20):
            crew.call(0, "add", number)
            if number in (3, 9, 12):
                kept.append(crew.detach("chain", memory=[number]))
        assert {cut.number for cut in kept[1:]} < {*crew.cuts}
        assert kept[0].number not in crew.cuts
        crew.attach(kept[1], "chain")
        assert crew.result(crew.ask(0, "numbers")) == list(range(10))
        assert kept[1].memory == [9]
    with MortalCrew(Chain, {}, 1) as crew, pytest.raises(ValueError, match=r"directory is None.*Pass directory="):
        crew.detach("chain")


def test_of_what_is_confirmed_the_last_two_stay_whatever_is_detached_meanwhile(tmp_path):
    with MortalCrew(Chain, {}, 1, tmp_path) as crew:
        cuts = []
        for number in range(12):
            crew.call(0, "add", number)
            cuts.append(crew.detach("chain"))
            if number in (1, 3, 4):
                crew.confirm(cuts[-1])
                crew.confirm(cuts[-1])  # once more changes nothing
        assert crew.cuts == [cuts[place].number for place in (3, 4, 10, 11)]
        with pytest.raises(ValueError, match=f"there is no cut {cuts[1].number} in"):
            crew.confirm(cuts[1])
        crew.confirm(Cut("chain"))  # as the workers were made, which needs no keeping
    with MortalCrew(Chain, {}, 1, tmp_path) as crew:
        crew.attach(cuts[4], "chain")
        for number in range(5):
            crew.call(0, "add", number)
            crew.detach("chain")
        assert [cut.number in crew.cuts for cut in cuts[3:5]] == [True, True]
        crew.attach(cuts[3], "chain")
        assert crew.result(crew.ask(0, "numbers")) == [0, 1, 2, 3]
    with MortalCrew(Chain, {}, 1, tmp_path / "other") as crew, pytest.raises(ValueError, match="which holds others"):
        crew.confirm(cuts[4])


def test_a_local_crew_makes_cuts_only_when_asked_and_leaves_no_temporary_files():
    with LocalCrew(Chain, {}, 2, cut_every=1) as crew:
        crew.results(call_all(crew, "add", 1) + call_all(crew, "add", 2))
        assert crew.cuts == []
        number = crew.cut()
        crew.results(call_all(crew, "add", 3))
        crew.load(number)
        assert crew.results(crew.ask_all("numbers")) == [[1, 2], [1, 2]]
        assert crew.directory.is_dir()
    assert not crew.directory.exists()
    with pytest.raises(WorkerLost, match="the crew is closed"):
        crew.call(0, "add", 1)
    crew.close()


def test_a_damaged_or_missing_cut_is_refused_with_its_name(tmp_path):
    with MortalCrew(Chain, {}, 1, tmp_path) as crew:
        crew.call(0, "add", 1)
        first = crew.cut()
        crew.call(0, "add", 2)
        second = crew.cut()
        cut_path(crew.folder(0), second).write_bytes(b"\x00" * 100)
        with pytest.raises(SnapshotError, match="cannot be loaded"):
            crew.load(second)
        crew.load(first)
        assert crew.result(crew.ask(0, "numbers")) == [1]
        cut_path(crew.folder(0), first).unlink()
        del crew._stations[0]  # killed, and what it was to come back from is gone
        ticket = crew.ask(0, "numbers")
        with pytest.raises(SnapshotError, match=f"is missing, which cut {first} needs"):
            crew.result(ticket)
        with pytest.raises(WorkerLost, match="could not be brought up"):
            crew.call(0, "add", 1)
