"""Crews whose workers and drivers are killed at random points, against lists of what was asked for."""

import itertools
import shutil
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mortal_crews import (
    Chain,
    Fate,
    Killed,
    MortalCrew,
    call_all,
    expected_state,
    final_states,
    nobody_is_killed,
    nobody_is_killed_at_first,  # noqa: F401 - a fixture
    refuse_to_save,
    set_fate,
)

from streamboost.cluster import Cut
from streamboost.cluster.cuts import CutBook
from streamboost.persistence.checkpoints import CheckpointStore
from streamboost.persistence.object_graph import same_state

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
@given(STEPS, MOMENTS, st.integers(1, 8), st.integers(1, 4))
def test_whenever_workers_are_killed_every_operation_happens_once_and_in_order(steps, moments, every, ahead):
    set_fate(Fate(moments))
    lists, cuts, waiting = [[], [], []], {}, []
    with MortalCrew(Chain, {}, 3, cut_every=every, in_flight=ahead) as crew:
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
        assert same_state(final_states(crew), [expected_state(numbers) for numbers in lists])
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
                crew = MortalCrew(Chain, {}, 2, directory, cut_every=every)
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
        assert same_state(states, [expected_state(numbers[worker::2]) for worker in range(2)])
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
            call_all(crew, "add", count)
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
    crew = MortalCrew(Chain, {}, 2, directory, cut_every=every)
    crew.attach(kept[-1][0] if kept else Cut("chain"), "chain")
    return crew


def check_attachable(directory, kept):
    """See, in a copy of the directory, that all of these can be attached, and are as they were."""
    with nobody_is_killed(), tempfile.TemporaryDirectory() as copy:
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        for cut, numbers in kept:
            with MortalCrew(Chain, {}, 2, copy) as crew:
                crew.attach(cut, "chain")
                assert crew.results(crew.ask_all("numbers")) == [numbers, numbers]
