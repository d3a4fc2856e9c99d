import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamboost.boosting.reservoir import Reservoir


def filled(capacity, n, seed=0):
    sample = Reservoir(capacity, seed)
    for t in range(n):
        sample.offer(lambda t=t: t)
    return sample


@given(capacity=st.integers(1, 20), n=st.integers(0, 60), seed=st.integers(0, 5))
def test_a_reservoir_holds_as_many_different_things_as_it_can(capacity, n, seed):
    sample = filled(capacity, n, seed)
    assert sample.seen == n
    assert len(set(sample.kept)) == len(sample.kept) == min(capacity, n)
    assert set(sample.kept) <= set(range(n))


@given(n=st.integers(0, 20))
def test_with_room_for_all_everything_is_kept_in_order(n):
    assert filled(20, n).kept == list(range(n))


def test_every_thing_has_the_same_chance():
    """A chi-squared test over 4,000 runs: each of 20 things is kept in about 5 of 20 runs."""
    counts = np.zeros(20)
    for seed in range(4000):
        counts[filled(5, 20, seed).kept] += 1
    # sampling without replacement: the counts vary less than multinomial ones, by (n - 1) / (n - k)
    statistic = np.sum((counts - 1000) ** 2 / 1000) * 19 / 15
    assert 0.001 < stats.chi2.sf(statistic, df=19) < 0.999


def test_pairs_have_the_same_chance_too():
    together = np.zeros((8, 8))
    for seed in range(4000):
        kept = filled(2, 8, seed).kept
        together[min(kept), max(kept)] += 1
    counts = together[np.triu_indices(8, 1)]
    assert counts.sum() == 4000
    assert 0.001 < stats.chisquare(counts).pvalue < 0.999


def test_things_that_are_not_kept_are_never_made():
    made = []
    sample = Reservoir(3, seed=0)
    for t in range(1000):
        sample.offer(lambda t=t: made.append(t) or t)
    assert set(sample.kept) <= set(made)
    assert len(made) < 40  # 3 (1 + ln(1000 / 3)) is about 20


def test_the_same_seed_keeps_the_same_things():
    assert filled(5, 200, seed=1).kept == filled(5, 200, seed=1).kept
    assert filled(5, 200, seed=1).kept != filled(5, 200, seed=2).kept


@pytest.mark.parametrize("capacity", [0, -1, 1.5, "64"])
def test_a_capacity_that_is_no_count_is_refused(capacity):
    with pytest.raises(ValueError, match=r"capacity is .*, expected a whole number of at least 1"):
        Reservoir(capacity)
