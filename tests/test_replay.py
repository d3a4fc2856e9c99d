"""The memory by itself: which rows it holds, and whose turn it is. What refits make of it is in test_booster.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from streamboost.features.binning import Bins
from streamboost.kernels.layout import WAITED
from streamboost.replay import Replay
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.tree import TreeStack

N, D = 3, 2


def trees(n_learners=N, m=1):
    stack = TreeStack(n_learners, max_depth=2, n_bins=8)
    stack.open(D, m)
    return stack


def opened(*args, stack=None, **options):
    replay = Replay(*args, **options)
    replay.open(trees() if stack is None else stack, 1)
    return replay


def numbered(start, stop, m=1):
    """Rows that are known by their number, in every array."""
    t = np.arange(start, stop, dtype=float)
    return (
        np.column_stack([t, -t]),
        t[:, None] + 0.5,
        t + 1.0,
        np.tile(t[:, None], (1, N)).astype(np.uint16),
        np.tile(t[:, None, None], (1, N, m)) + 0.25,
    )


def held(replay):
    """The numbers of the rows held, after checking that all arrays agree on them."""
    t = replay.X[:, 0]
    assert_array_equal(replay.X[:, 1], -t)
    assert_array_equal(replay.y[:, 0], t + 0.5)
    assert_array_equal(replay.weight, t + 1.0)
    if replay.leaf_ids is not None:
        assert_array_equal(replay.leaf_ids, np.tile(t[:, None], (1, N)))
    if replay.targets == "recorded":
        assert_array_equal(replay.recorded[..., 0], np.tile(t[:, None], (1, N)) + 0.25)
    return sorted(t.astype(int).tolist())


# The ring


@given(window=st.integers(1, 12), chunks=st.lists(st.integers(0, 30), max_size=8), recorded=st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_window_holds_the_latest_rows(window, chunks, recorded):
    replay = opened(window, targets="recorded" if recorded else "fresh")
    seen = 0
    for size in chunks:
        replay.append(*numbered(seen, seen + size))
        seen += size
        assert held(replay) == list(range(max(0, seen - window), seen))
        assert replay.fill == min(seen, window)


@given(chunks=st.lists(st.integers(0, 400), max_size=6))
@settings(deadline=None, max_examples=30)
def test_without_a_window_everything_is_held_in_order(chunks):
    replay = opened(None, targets="recorded")
    seen = 0
    for size in chunks:
        replay.append(*numbered(seen, seen + size))
        seen += size
        assert held(replay) == list(range(seen))
        assert_array_equal(replay.X[:, 0], np.arange(seen))


def test_a_window_costs_the_same_however_long_the_stream():
    replay = opened(16)
    room = replay._X.nbytes
    for start in range(0, 1000, 10):
        replay.append(*numbered(start, start + 10))
    assert replay._X.nbytes == room


def test_the_memory_is_its_own():
    replay = opened(8, targets="recorded")
    rows = numbered(0, 5)
    replay.append(*rows)
    for array in rows:
        array[:] = 77
    assert held(replay) == [0, 1, 2, 3, 4]


def test_a_stack_without_marks_or_bins_needs_none():
    linear = LinearStack(N)
    linear.open(D, 1)
    replay = opened(8, stack=linear)
    X, y, weight, _, targets = numbered(0, 20)
    replay.append(X, y, weight, None, targets)
    assert replay.leaf_ids is None
    assert held(replay) == list(range(12, 20))


# Whose turn it is


def refits(replay, stack, n, chunk=1, start=0):
    """Append rows and collect (rows seen, learner) for every refit."""
    log = []
    for at in range(start, start + n, chunk):
        replay.append(*numbered(at, at + chunk))
        log += [(at + chunk, i) for i in replay.turns(stack)]
    return log


def test_the_first_refit_takes_all_learners_when_the_memory_is_warm():
    replay = opened(64, warmup=10, refit_every=64, soonest=5)
    assert refits(replay, trees(), 9) == []
    assert not replay.warm
    assert refits(replay, trees(), 1, start=9) == [(10, 0), (10, 1), (10, 2)]
    assert replay.warm


def test_then_they_take_turns():
    replay = opened(64, warmup=1, refit_every=4, soonest=4)
    log = refits(replay, trees(), 30)
    assert log[:3] == [(1, 0), (1, 1), (1, 2)]
    assert log[3:] == [(5, 0), (9, 1), (13, 2), (17, 0), (21, 1), (25, 2), (29, 0)]


def test_whoever_asks_for_refits_sooner_than_soonest_gets_them():
    replay = opened(64, warmup=1, refit_every=2, soonest=16)
    assert refits(replay, trees(), 7)[3:] == [(3, 0), (5, 1), (7, 2)]


def test_or_go_all_together():
    replay = opened(64, warmup=1, refit_every=10, soonest=10, learners="all")
    assert refits(replay, trees(), 25) == [(t, i) for t in (1, 11, 21) for i in range(N)]


def test_a_chunk_brings_as_many_turns_as_it_is_worth():
    replay = opened(None, warmup=1, refit_every=4)
    refits(replay, trees(), 1)
    assert [i for _, i in refits(replay, trees(), 13, chunk=13, start=1)] == [0, 1, 2]
    assert replay.counts[WAITED] == 1


def test_only_learners_that_can_be_refitted_have_turns():
    class SomeRefitted(TreeStack):
        refittable = (1, 2)

    stack = SomeRefitted(3, max_depth=2, n_bins=8)
    stack.open(D, 1)
    replay = opened(None, warmup=2, refit_every=3, stack=stack)
    log = [(t + 1, i) for t in range(11) if replay.append(*numbered(t, t + 1)) is None for i in replay.turns(stack)]
    assert log == [(2, 1), (2, 2), (5, 1), (8, 2), (11, 1)]


def test_refits_keep_to_a_budget_of_rows():
    """A refit costs what the window holds: the interval grows with it, from soonest up to refit_every."""
    window, every, soonest = 200, 40, 6
    replay = opened(window, warmup=10, refit_every=every, soonest=soonest)
    log = refits(replay, trees(), 1000)
    times = np.array(sorted({t for t, _ in log}))
    gaps = np.diff(times)
    assert gaps.min() >= soonest
    assert set(gaps[times[1:] > window + every]) == {every}
    assert (np.diff(gaps) >= 0).all()
    # rows refitted per row seen: window / refit_every, and more only as long as refits are cheap
    held_then = np.minimum(times[1:], window)
    settled = gaps > soonest
    cost = held_then / gaps * np.sqrt(held_then / window)
    assert cost[settled].max() <= 1.25 * window / every
    assert cost[settled].min() >= 0.8 * window / every


def test_the_interval_is_told_by_how_full_the_window_is():
    replay = opened(100, refit_every=50, soonest=5, warmup=1)
    expected = {1: 5, 10: 5, 25: 6, 50: 17, 64: 25, 81: 36, 100: 50, 150: 50}  # 50 share^(3/2)
    for t in range(1, 151):
        replay.append(*numbered(t, t + 1))
        if t in expected:
            assert replay.interval == expected[t]


def test_exact_ftrl_refits_everyone_at_every_row():
    replay = Replay.exact()
    replay.open(trees(), 1)
    assert refits(replay, trees(), 5) == [(t, i) for t in range(1, 6) for i in range(N)]
    assert held(replay) == [0, 1, 2, 3, 4]


def test_the_warmup_is_never_longer_than_the_window():
    assert Replay(16, warmup=64).warmup == 16
    assert Replay(None, warmup=64).warmup == 64


# Bin codes


def test_cut_points_follow_the_window():
    replay = opened(20, warmup=5, refit_every=1, soonest=1)
    stack = trees()
    t = 0
    for shift in (0.0, 1000.0):
        for _ in range(80):
            X, y, weight, leaf_ids, targets = numbered(t, t + 1)
            replay.append(X % 7 + shift, y, weight, leaf_ids, targets)
            for _ in replay.turns(stack):
                # whatever the cut points are, the codes are those of the rows held
                assert_array_equal(replay.codes, replay.bins.encode(replay.X))
            t += 1
    assert replay.bins.edges[0, 0] > 900


@given(window=st.integers(2, 30), warmup=st.integers(1, 8), every=st.integers(1, 6))
@settings(deadline=None, max_examples=40)
def test_cut_points_are_placed_anew_once_half_of_the_rows_held_are_new(window, warmup, every):
    replay = opened(window, warmup=warmup, refit_every=every, soonest=every)
    stack = trees()
    placed = None  # how many rows had come when the cut points were placed
    for t in range(80):
        replay.append(*numbered(t, t + 1))
        for _ in replay.turns(stack):
            seen, is_held = t + 1, min(t + 1, window)
            if placed is None or seen - placed >= is_held / 2:
                placed, expected = seen, Bins(8)
                expected.fit(replay.X)
            assert_array_equal(replay.bins.edges, expected.edges)


def test_exact_ftrl_sees_cut_points_made_for_every_row():
    replay = Replay.exact()
    stack = trees()
    replay.open(stack, 1)
    for t in range(6):
        replay.append(*numbered(t, t + 1))
        for _ in replay.turns(stack):
            fresh = Bins(8)
            fresh.fit(replay.X)
            assert_array_equal(replay.bins.edges, fresh.edges)


def test_rows_of_weight_zero_place_no_cut_points():
    replay = Replay.exact()
    stack = trees()
    replay.open(stack, 1)
    X, y, _, leaf_ids, targets = numbered(0, 5)
    replay.append(X, y, np.array([1.0, 0.0, 1.0, 1.0, 0.0]), leaf_ids, targets)
    list(replay.turns(stack))
    assert replay.bins.edges[0, :2].tolist() == [1.0, 2.5]  # between 0, 2 and 3
    assert replay.bins.n_edges.tolist() == [2, 2]


# The newest rows


def in_order(replay, n):
    """The numbers of the newest rows, after checking that all three arrays agree on them."""
    X, y, weight = replay.newest(n)
    assert_array_equal(y[:, 0], X[:, 0] + 0.5)
    assert_array_equal(weight, X[:, 0] + 1.0)
    return X[:, 0].astype(int).tolist()


rows_in_chunks = st.lists(st.integers(1, 15), min_size=1, max_size=6)


@given(window=st.one_of(st.none(), st.integers(1, 12)), chunks=rows_in_chunks, n=st.integers(0, 20))
@settings(deadline=None, max_examples=60)
def test_the_newest_rows_come_oldest_first(window, chunks, n):
    replay = opened(window)
    seen = 0
    for size in chunks:
        replay.append(*numbered(seen, seen + size))
        seen += size
    n_held = min(n, seen, window or seen)
    assert in_order(replay, n) == list(range(seen - n_held, seen))


def test_the_newest_rows_are_copies():
    replay = opened(4)
    replay.append(*numbered(0, 6))
    for array in replay.newest(3):
        array[:] = 77.0
    assert held(replay) == [2, 3, 4, 5]


def test_after_rows_were_forgotten_a_refit_places_its_own_cut_points():
    replay = opened(40, warmup=4, refit_every=4, soonest=4)
    stack = trees()
    while replay.binned < 80 or replay.binned < replay.seen:  # until they have just been placed
        refits(replay, stack, 1, start=replay.seen)
    replay.resize(20)
    refits(replay, stack, 4, start=replay.seen)
    fresh = Bins(8)
    fresh.fit(replay.X)
    assert_array_equal(replay.bins.edges, fresh.edges)


@given(window=st.integers(2, 12), before=rows_in_chunks, shorter=st.integers(1, 11), after=rows_in_chunks)
@settings(deadline=None, max_examples=60)
def test_a_window_can_go_on_shorter(window, before, shorter, after):
    shorter = min(shorter, window - 1)
    replay = opened(window, targets="recorded", warmup=1)
    stack = trees()
    seen = 0
    for size in before:
        replay.append(*numbered(seen, seen + size))
        list(replay.turns(stack))
        seen += size
    replay.resize(shorter)
    for size in [0, *after]:
        replay.append(*numbered(seen, seen + size))
        seen += size
        assert held(replay) == list(range(max(0, seen - shorter), seen))
        list(replay.turns(stack))
        assert_array_equal(replay.codes, replay.bins.encode(replay.X))
    assert len(replay._X) == len(replay._y) == len(replay._weight) == replay._codes.shape[1] == shorter


def test_a_window_cut_before_it_is_warm_still_gets_warm():
    replay = opened(64, warmup=64)
    refits(replay, trees(), 10)
    replay.resize(8)
    assert [i for _, i in refits(replay, trees(), 1, start=10)] == [0, 1, 2]


def test_targets_can_be_written_in_another_code():
    replay = opened(8, targets="recorded")
    replay.append(*numbered(0, 11))
    before = replay.recorded.copy()
    replay.recode(lambda y: 10.0 * y)
    assert_array_equal(replay.y[:, 0], 10.0 * (replay.X[:, 0] + 0.5))
    assert_array_equal(replay.recorded, np.concatenate([-before, before], axis=2))


# Room for more


def test_new_columns_were_missing_in_the_rows_held():
    replay = opened(8, warmup=4)
    stack = trees()
    refits(replay, stack, 6)
    replay.add_features(2)
    assert np.isnan(replay.X[:, 2:]).all()
    assert (replay.codes[2:] == replay.bins.n_bins).all()
    stack.add_features(2)
    X, *rest = numbered(6, 9)
    replay.append(np.column_stack([X, X]), *rest)
    assert replay.X[replay.X[:, 0] == 8.0].tolist() == [[8.0, -8.0, 8.0, -8.0]]
    assert_array_equal(replay.codes, replay.bins.encode(replay.X))


def test_columns_may_come_before_the_memory_is_warm():
    replay = opened(8, warmup=4)
    stack = trees()
    refits(replay, stack, 2)
    replay.add_features(1)
    stack.add_features(1)
    for t in range(2, 4):
        X, *rest = numbered(t, t + 1)
        replay.append(np.column_stack([X, X[:, 0]]), *rest)
        list(replay.turns(stack))
    assert replay.warm
    assert_array_equal(replay.codes, replay.bins.encode(replay.X))


def test_new_learners_and_outputs_have_room_and_nothing_recorded():
    replay = opened(8, targets="recorded")
    replay.append(*numbered(0, 5))
    replay.grow(2)
    replay.add_outputs(1)
    assert replay.leaf_ids.shape == (5, N + 2)
    assert_array_equal(replay.leaf_ids[:, N:], 0)
    assert replay.recorded.shape == (5, N + 2, 2)
    assert_array_equal(replay.recorded[:, N:], 0.0)
    assert_array_equal(replay.recorded[..., 1], 0.0)
    assert_array_equal(replay.recorded[:, 0, 0], np.arange(5) + 0.25)


def test_the_marks_of_a_refit_are_remembered():
    replay = opened(8)
    replay.append(*numbered(0, 5))
    replay.remember(1, np.full(5, 9, np.uint16))
    assert replay.leaf_ids[:, 1].tolist() == [9] * 5
    assert replay.leaf_ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    replay.remember(1, None)  # a learner that keeps none leaves them
    assert replay.leaf_ids[:, 1].tolist() == [9] * 5


@pytest.mark.each(name=["window", "refit_every", "warmup", "soonest"], value=[0, -3, 1.5, "all"])
def test_counts_that_are_none_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is .*, expected a whole number above 0"):
        Replay(**{name: value})


def test_choices_that_are_none_are_refused():
    with pytest.raises(ValueError, match="targets is 'old', expected 'fresh', 'recorded' or 'carried'"):
        Replay(targets="old")
    with pytest.raises(ValueError, match="learners is 'some', expected 'next' or 'all'"):
        Replay(learners="some")
