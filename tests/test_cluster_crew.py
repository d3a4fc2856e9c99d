"""Crews whose workers and drivers are killed at random points, against lists of what was asked for."""

import copy
import errno
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost import cluster, snapshots
from streamboost.checkpoints import Checkpoint, CheckpointStore
from streamboost.cluster import Cut, LocalCrew, WorkerLost, WrongState, make_crew
from streamboost.cluster.crew import SnapshotWorker, cut_path
from streamboost.cluster.cuts import CutBook
from streamboost.cluster.recovery import WorkerDied
from streamboost.cluster.station import Station, owned, size_of, versions
from streamboost.errors import MissingDependency, SnapshotError
from streamboost.states import same_state


class Killed(BaseException):
    """What SIGKILL is to a process."""


class Fate:
    """Says at which of the points that are passed somebody is killed."""

    def __init__(self, moments=()):
        self.moments, self.passed, self.is_off = set(moments), 0, False

    def point(self):
        self.passed += not self.is_off
        if not self.is_off and self.passed in self.moments:
            raise Killed


FATE = Fate()


class Chain(SnapshotWorker):
    """Its state depends on every operation, on their order and on their number; killed in the middle, it is torn."""

    def __init__(self, seed=0):
        FATE.point()
        self.state = {"numbers": [], "sum": np.full(2, float(seed)), "torn": False}
        self.n_rows = 0

    def add(self, number):
        self.state["torn"] = True
        self.state["numbers"].append(number)
        FATE.point()
        self.state["sum"] = self.state["sum"] * 3 + number
        self.n_rows += 1
        self.state["torn"] = False
        FATE.point()
        return len(self.state["numbers"])

    def refuse(self, number):
        FATE.point()
        raise KeyError(number)

    def numbers(self):
        FATE.point()
        assert not self.state["torn"]
        return self.state["numbers"]

    def whole(self):
        return self.state

    def save(self, directory, number):
        FATE.point()
        Path(directory, f"cut-{number:010d}.part").write_bytes(b"half of it")
        FATE.point()
        super().save(directory, number)
        FATE.point()

    def load(self, directory, number):
        FATE.point()
        super().load(directory, number)
        self.n_rows = len(self.state["numbers"])
        FATE.point()


class DroppingChain(Chain):
    """One that tidies up by itself, and has a folder from the beginning."""

    def settle(self, directory):
        FATE.point()
        assert Path(directory).is_dir()

    def drop(self, directory, kept):
        FATE.point()
        there = {path.name for path in Path(directory).iterdir() if path.suffix == ".safetensors"}
        assert there == {cut_path(directory, number).name for number in kept}


class MortalCrew(LocalCrew):
    """Workers that take messages in late, as in another process, and may be killed at any point."""

    can_die = True
    most_deaths = 1000

    def __init__(self, *args, **named):
        self.queues, self.most_waiting = {}, 0
        super().__init__(*args, **named)

    def _start(self, worker):
        super()._start(worker)
        self.queues[worker] = deque()

    def _send(self, worker, message):
        box = []
        if worker in self._stations:
            self.queues[worker].append((message, box))
            waiting = [kind for (kind, *_), _ in self.queues[worker] if kind in ("call", "ask")]
            self.most_waiting = max(self.most_waiting, len(waiting))
        return box

    def _wait(self, worker, handle):
        while not handle:
            if worker not in self._stations:
                raise WorkerDied("killed")
            message, box = self.queues[worker].popleft()
            try:
                FATE.point()
                box.append(self._stations[worker].handle(*message))
                FATE.point()
            except Killed:
                del self._stations[worker]
                box.clear()
        return handle[0]

    def die(self):
        """What becomes of a driver that is killed: the system takes its lock back, and nothing is tidied up."""
        self._book._store.close()


@pytest.fixture(autouse=True)
def _nobody_is_killed_at_first(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # here only processes die, not the machine, and it is slow
    yield
    set_fate(Fate())


def set_fate(fate):
    global FATE
    FATE = fate


def expected_state(seed, numbers):
    total = np.full(2, float(seed))
    for number in numbers:
        total = total * 3 + number
    return {"numbers": list(numbers), "sum": total, "torn": False}


def final_states(crew):
    FATE.is_off = True
    return crew.results(crew.ask_all("whole"))


MOMENTS = st.sets(st.integers(1, 400), max_size=40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(-9, 9)),
        st.tuples(st.just("ask"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("refuse"), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("fetch"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("cut"), st.just(0), st.just(0)),
        st.tuples(st.just("back"), st.integers(0, 1), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(STEPS, MOMENTS, st.integers(1, 8), st.integers(1, 4), st.booleans())
def test_whenever_workers_are_killed_every_operation_happens_once_and_in_order(steps, moments, every, ahead, drops):
    set_fate(Fate(moments))
    cls = DroppingChain if drops else Chain
    lists, cuts, waiting = [[], [], []], {}, []
    with MortalCrew(cls, [{"seed": s} for s in range(3)], 3, cut_every=every, in_flight=ahead) as crew:
        for kind, which, number in steps:
            if kind == "add":
                lists[which].append(number)
                waiting.append((crew.call(which, "add", number), len(lists[which])))
            elif kind == "ask":
                waiting.append((crew.ask(which, "numbers"), list(lists[which])))
            elif kind == "refuse":
                waiting.append((crew.call(which, "refuse", number), KeyError(number)))
            elif kind == "fetch" and waiting:
                check(crew, *waiting.pop(which % len(waiting)))
            elif kind == "cut":
                cuts[crew.cut()] = [list(each) for each in lists]
            elif kind == "back" and cuts:
                there = [number for number in crew.cuts if number in cuts]
                if there:
                    back = there[-1 - which % len(there)]
                    crew.load(back)
                    lists, waiting = [list(each) for each in cuts[back]], []
        for ticket, answer in waiting:
            check(crew, ticket, answer)
        for seed, (state, numbers) in enumerate(zip(final_states(crew), lists, strict=True)):
            assert same_state(state, expected_state(seed, numbers))
        assert crew.most_waiting <= ahead
        assert sum(line["restarts"] for line in crew.metrics()) <= len(moments)


def check(crew, ticket, answer):
    if isinstance(answer, KeyError):
        with pytest.raises(KeyError, match=str(answer)):
            crew.result(ticket)
    else:
        assert crew.result(ticket) == answer


@settings(max_examples=100)
@given(MOMENTS, st.sets(st.integers(1, 250), max_size=5), st.integers(1, 7), st.integers(2, 9))
def test_whenever_the_driver_is_killed_it_goes_on_from_its_last_checkpoint(moments, ends, every, checkpoint_every):
    numbers = list(range(40))
    kept, position, kills, seen = Cut("chain"), 0, 0, set()
    deaths = itertools.count()
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        write = CutBook._write

        def write_or_die(book, manifest):
            if next(deaths) in ends:
                raise Killed  # before
            write(book, manifest)
            if next(deaths) in ends:
                raise Killed  # or after the manifest is written

        patch.setattr(CutBook, "_write", write_or_die)
        set_fate(Fate(moments))
        while True:
            crew = None
            try:
                crew = MortalCrew(Chain, [{"seed": 0}, {"seed": 1}], 2, directory, cut_every=every)
                crew.attach(kept, "chain")
                at = position
                while at < len(numbers):
                    crew.call(at % 2, "add", numbers[at])
                    if next(deaths) in ends:
                        raise Killed
                    at += 1
                    if at % checkpoint_every == 0:
                        kept, position = crew.detach("chain", memory={"at": at}), at
                        assert kept.number not in seen
                        seen.add(kept.number)
                states = final_states(crew)
                crew.close()
                break
            except Killed:
                kills += 1
                if crew is not None:
                    crew.die()
        assert kept.memory in (None, {"at": position})
        for seed, state in enumerate(states):
            assert same_state(state, expected_state(seed, numbers[seed::2]))
        assert kills <= len(ends)


RUN_STEPS = st.lists(
    st.sampled_from(
        [
            "saved", "saved", "not saved", "not saved", "no room for the cut", "cut", "killed", "killed before saving",
            "killed before confirming", "the newest is damaged",
        ]
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=80)
@given(RUN_STEPS, st.sets(st.integers(1, 200), max_size=9), st.integers(1, 6))
def test_whatever_becomes_of_checkpoints_the_last_two_on_disk_find_their_cuts(steps, moments, every):
    set_fate(Fate(moments))
    kept, numbers = [], []  # what is on disk: cuts, with what was added until then
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        crew = begun(directory, kept, every)
        for count, step in enumerate(steps):
            numbers.append(count)
            crew.call_all("add", count)
            if step == "cut":
                crew.cut()
            elif step == "no room for the cut":
                with patch.context() as full:
                    full.setattr(CheckpointStore, "save", refuse_to_save)
                    with pytest.raises(OSError, match="No space left"):
                        crew.detach("chain")
            elif step == "the newest is damaged":
                kept = kept[:1]
            elif step != "killed":
                cut = crew.detach("chain")
                if step in ("saved", "killed before confirming"):
                    kept = [*kept, (cut, list(numbers))][-2:]
                if step == "saved":
                    crew.confirm(cut)
            assert len(crew.cuts) <= 6
            if step.startswith("killed") or step == "the newest is damaged":
                crew.die()
                check_attachable(directory, kept)
                crew = begun(directory, kept, every)
                numbers = list(kept[-1][1]) if kept else []
        assert [state["numbers"] for state in final_states(crew)] == [numbers, numbers]
        crew.die()
        check_attachable(directory, kept)


def begun(directory, kept, every):
    """A driver that goes on from the newest checkpoint there is."""
    crew = MortalCrew(DroppingChain, {}, 2, directory, cut_every=every)
    crew.attach(kept[-1][0] if kept else Cut("chain"), "chain")
    return crew


def check_attachable(directory, kept):
    """See, in a copy of the directory, that all of these can be attached, and are as they were."""
    before, FATE.is_off = FATE.is_off, True
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        for cut, numbers in kept:
            with MortalCrew(Chain, {}, 2, copy) as crew:
                crew.attach(cut, "chain")
                assert crew.results(crew.ask_all("numbers")) == [numbers, numbers]
    FATE.is_off = before


def test_a_torn_cut_is_never_loaded_and_its_files_go_with_the_next(tmp_path):
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:
        crew.call_all("add", 1)
        first = crew.cut()
        crew.results(crew.call_all("add", 2))
        set_fate(Fate([8]))  # worker 0 has saved, worker 1 has half saved
        second = crew.cut()
        assert second > first + 1
        assert [line["restarts"] for line in crew.metrics()] == [0, 1]
        names = {path.name.split(".")[0] for path in tmp_path.glob("worker-*/cut-*")}
        assert names == {f"cut-{number:010d}" for number in crew.cuts}
        crew.load(first)
        assert crew.results(crew.ask_all("numbers")) == [[1], [1]]


def test_an_empty_worker_refuses_every_operation_until_it_has_loaded_a_cut(tmp_path):
    book = CutBook(tmp_path / "crew")
    folder = book.folder(0)
    folder.mkdir()
    station = Station()
    assert station.handle("build", Chain, {}, str(folder), book.manifest.mark).error is None
    for message in (("call", 1, "add", (5,)), ("ask", 0, "numbers", ()), ("save", 1, 0)):
        answer = station.handle(*message)
        assert answer.is_fatal
        with pytest.raises(WrongState, match="has loaded no cut, expected it at 0"):
            raise answer.error
    station.handle("load", 0, 0)
    assert station.handle("call", 1, "add", (5,)).value == 1
    assert "is at operation 1, expected it at 6" in str(station.handle("call", 7, "add", (5,)).error)
    assert station.handle("ask", 1, "numbers", ()).is_fatal  # it stays out of turn until a cut is loaded
    book.close()


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


class Starving(SnapshotWorker):
    """Runs out of memory, or is interrupted, at what it is told to."""

    state = 0

    def __init__(self):
        self.fails_at = ""

    def starve(self, where):
        self.fails_at = where

    def grow(self):
        self.state += 1
        self.fail("grow")
        return self.state

    def size(self):
        self.fail("size")
        return self.state

    def save(self, directory, number):
        self.fail("save")
        super().save(directory, number)

    def fail(self, where):
        if self.fails_at == where:
            self.fails_at = ""
            raise MemoryError("Unable to allocate 80 GiB")
        if self.fails_at == f"{where}, interrupted":
            self.fails_at = ""
            raise KeyboardInterrupt


@pytest.mark.parametrize("crew_class", [LocalCrew, MortalCrew])
@pytest.mark.parametrize("question", ["size", "save"])
def test_running_out_of_memory_where_nothing_changes_is_told_as_such_and_costs_nothing(crew_class, question):
    with crew_class(Starving, {}, 2) as crew:
        crew.results([*crew.call_all("grow"), *crew.call_all("grow")])
        crew.results([crew.call(1, "starve", question)])
        with pytest.raises(MemoryError, match="80 GiB"):
            crew.cut() if question == "save" else crew.results(crew.ask_all("size"))
        assert crew.results(crew.ask_all("size")) == [2, 2]
        number = crew.cut()
        assert crew.results(crew.call_all("grow")) == [3, 3]
        crew.load(number)
        assert crew.results(crew.ask_all("size")) == [2, 2]
        assert [line["restarts"] for line in crew.metrics()] == [0, 0]


@pytest.mark.parametrize("end", [MemoryError, KeyboardInterrupt])
def test_a_local_worker_that_stops_half_way_says_so_until_a_cut_is_loaded(end, tmp_path):
    with LocalCrew(Starving, {}, 2, tmp_path) as crew:
        crew.results(crew.call_all("grow"))
        cut = crew.detach("starving")
        crew.results(crew.call_all("grow"))
        crew.call(1, "starve", "grow" if end is MemoryError else "grow, interrupted")
        with pytest.raises(end):
            crew.results(crew.call_all("grow"))
        words = (
            f"worker 1 stopped in the middle of operation 4, 'grow', with {end.__name__}.*Attach the last checkpoint"
        )
        for act in (lambda: crew.call(0, "grow"), lambda: crew.ask(0, "size"), crew.cut, lambda: crew.detach("it")):
            with pytest.raises(WrongState, match=words):
                act()
        crew.attach(cut, "starving")
        assert crew.results(crew.ask_all("size")) == [1, 1]
        assert crew.results(crew.call_all("grow")) == [2, 2]
        crew.load(0)
        assert crew.results(crew.call_all("grow")) == [1, 1]


def test_a_cut_that_was_loaded_in_part_is_not_gone_on_from(tmp_path):
    with LocalCrew(Starving, {}, 2, tmp_path) as crew:
        crew.results(crew.call_all("grow"))
        first = crew.cut()
        crew.results(crew.call_all("grow"))
        second = crew.cut()
        cut_path(crew.folder(1), second).unlink()
        with pytest.raises(SnapshotError, match="is missing"):
            crew.load(second)
        with pytest.raises(WrongState, match=f"cut {second} was not loaded to its end"):
            crew.ask(0, "size")
        crew.load(first)
        assert crew.results(crew.ask_all("size")) == [1, 1]


def test_a_crew_is_neither_copied_nor_pickled():
    with LocalCrew(Starving, {}, 1) as crew:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"neither copied nor pickled. Use detach\(\)"):
                attempt(crew)


class LimitedCrew(MortalCrew):
    most_deaths = 5


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


def test_what_the_caller_does_to_an_array_later_does_not_reach_the_worker_nor_the_other_way():
    array = np.arange(6.0).reshape(2, 3)
    for cls in (LocalCrew, MortalCrew):
        with cls(Keeper, {}, 2) as crew:
            tickets = [*crew.call_all("keep", array.T), crew.call(0, "keep", [array[:, ::2]])]
            array += 100
            first, second, [third] = crew.results(tickets)
            array -= 100
            assert first.flags.c_contiguous
            assert first.base is None
            np.testing.assert_array_equal(first, array.T)
            np.testing.assert_array_equal(third, array[:, ::2])
            first[:] = -1
            second[:] = -1
            np.testing.assert_array_equal(crew.result(crew.ask(1, "kept")), array.T)


class Keeper(SnapshotWorker):
    def keep(self, value):
        self.state = value
        return self.state

    def kept(self):
        return self.state


def test_owned_copies_everything_that_can_change():
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    thing = {"a": [fortran, (np.arange(8)[::2], "text")], "o": np.array([[1], None], dtype=object), "m": masked}
    copied = owned(thing)
    assert copied["a"][0].flags.c_contiguous
    assert isinstance(copied["a"], list)
    assert isinstance(copied["a"][1], tuple)
    np.testing.assert_array_equal(copied["a"][0], fortran)
    np.testing.assert_array_equal(copied["m"].mask, masked.mask)
    thing["o"][0].append(2)
    assert copied["o"][0] == [1]
    big = np.arange(3, dtype=">f8")
    assert owned(big).dtype == big.dtype
    table = pa.table({"x": [1, 2]})
    assert owned(table) is table


def test_sizes_count_arrays_tables_and_text():
    assert size_of(np.zeros((10, 10))) == 800
    assert size_of([np.zeros(10), "four"]) == 16 + 80 + 4
    assert size_of(pa.table({"x": np.arange(100)})) == 800
    assert size_of({"key": b"12345"}) == 8


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


def test_a_cut_that_fails_leaves_the_one_before_and_all_that_came_after_it():
    with MortalCrew(Unsavable, {}, 2) as crew:
        crew.call_all("put", 1)
        before = crew.cut()
        crew.call_all("put", object)
        with pytest.raises(SnapshotError, match="cannot be saved"):
            crew.cut()
        assert crew.cuts[-1] == before
        crew.call_all("put", 2)
        del crew._stations[1]  # killed
        assert crew.results(crew.ask_all("got")) == [2, 2]
        assert crew.cut() > before


def test_a_manifest_that_cannot_be_written_changes_nothing(monkeypatch, tmp_path):
    with MortalCrew(Chain, {}, 2, tmp_path) as crew:
        crew.call_all("add", 1)
        before = crew.detach("chain").number
        crew.call_all("add", 2)
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointStore, "save", refuse_to_save)
            for attempt in (crew.cut, lambda: crew.detach("chain"), lambda: crew.unpin(before)):
                with pytest.raises(OSError, match="No space left"):
                    attempt()
        assert crew.cuts[-1] == before
        crew._stations.clear()  # all killed
        assert crew.results(crew.call_all("add", 3)) == [3, 3]
        for number in (4, 5, 6):
            crew.call_all("add", number)
            crew.cut()
        assert before in crew.cuts  # still pinned


def refuse_to_save(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


class Unsavable(SnapshotWorker):
    def put(self, value):
        self.state = value

    def got(self):
        return self.state


def test_only_two_cuts_and_the_pinned_ones_are_kept():
    with MortalCrew(Chain, {}, 1) as crew:
        numbers = []
        for number in range(6):
            crew.call(0, "add", number)
            numbers.append(crew.cut())
            if number == 1:
                crew.pin(numbers[1])
        assert crew.cut() == numbers[-1]  # nothing happened since
        assert crew.cuts == [numbers[1], *numbers[-2:]]
        assert len(list(crew.folder(0).glob("*.safetensors"))) == 3
        crew.load(numbers[1])
        assert crew.result(crew.ask(0, "numbers")) == [0, 1]
        crew.unpin(numbers[1])
        with pytest.raises(ValueError, match=f"there is no cut {numbers[2]} in"):
            crew.load(numbers[2])
        crew.call(0, "add", 7)
        crew.cut()
        crew.call(0, "add", 8)
        crew.cut()
        assert numbers[1] not in crew.cuts
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
            if number == 0:
                crew.pin(crew.cut())
                pinned = crew.cuts[-1]
            if number in (3, 9, 12):
                kept.append(crew.detach("chain", memory=[number]))
        assert {cut.number for cut in kept[1:]} < {*crew.cuts}
        assert kept[0].number not in crew.cuts
        assert pinned in crew.cuts
        crew.attach(kept[1], "chain")
        assert crew.result(crew.ask(0, "numbers")) == list(range(10))
        assert kept[1].memory == [9]
    with MortalCrew(Chain, {}, 1) as crew, pytest.raises(ValueError, match=r"directory is None.*Pass directory="):
        crew.detach("chain")


def test_of_what_is_confirmed_the_last_two_stay_whatever_is_detached_meanwhile(tmp_path):
    with MortalCrew(DroppingChain, {}, 1, tmp_path) as crew:
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
    with MortalCrew(DroppingChain, {}, 1, tmp_path) as crew:
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
        crew.results(crew.call_all("add", 1) + crew.call_all("add", 2))
        assert crew.cuts == []
        number = crew.cut()
        crew.results(crew.call_all("add", 3))
        crew.load(number)
        assert crew.results(crew.ask_all("numbers")) == [[1, 2], [1, 2]]
        assert crew.directory.is_dir()
    assert not crew.directory.exists()
    with pytest.raises(WorkerLost, match="the crew is closed"):
        crew.call(0, "add", 1)
    crew.close()


def test_metrics_say_who_does_what():
    with LocalCrew(Chain, {}, 2) as crew:
        crew.results([crew.call(0, "add", 1), crew.call(0, "add", 1), crew.call(1, "add", 1)])
        first, second = crew.metrics()
    assert (first["worker"], first["operations"], first["rows"], first["restarts"]) == (0, 2, 2, 0)
    assert (second["operations"], second["rows"], second["pid"]) == (1, 1, os.getpid())
    assert 10_000_000 < first["memory"] < 100_000_000_000


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


def test_a_folder_that_is_not_the_drivers_is_refused(tmp_path):
    station = Station()
    (tmp_path / "elsewhere/worker-00000").mkdir(parents=True)
    answer = station.handle("build", Chain, {}, str(tmp_path / "elsewhere/worker-00000"), "mark")
    with pytest.raises(FileNotFoundError, match="is not the folder that the driver made there"):
        raise answer.error


def test_wrong_arguments_are_explained(tmp_path):
    with pytest.raises(ValueError, match="in_flight is 0, expected a whole number of at least 1"):
        LocalCrew(Chain, {}, 1, in_flight=0)
    with pytest.raises(ValueError, match="options has 1 entries, expected 2"):
        LocalCrew(Chain, [{}], 2)
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


def test_the_room_is_entered_without_ray_and_knows_its_names():
    code = "import sys, streamboost.cluster; print('ray' in sys.modules, 'numba' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["False", "False"]
    assert {*cluster.__all__} <= {*dir(cluster)}
    assert all(getattr(cluster, name).__name__ == name for name in cluster.__all__)
    with pytest.raises(AttributeError, match=r"'streamboost.cluster' has no attribute 'SparkCrew'"):
        _ = cluster.SparkCrew
