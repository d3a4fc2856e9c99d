import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost.boosting.edges import EdgeMeter


def slow_edges(targets, h, weight):
    """Definition 1, one learner and one row at a time."""
    n, N, _ = targets.shape
    edges = []
    for i in range(N):
        missed = sum(weight[t] * np.linalg.norm(targets[t, i] - h[t, i]) ** 2 for t in range(n))
        size = sum(weight[t] * np.linalg.norm(targets[t, i]) ** 2 for t in range(n))
        edges.append(1.0 - missed / size if size > 0 else np.nan)
    return np.array(edges)


def random_rows(seed, n, N, m):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, N, m)), rng.normal(size=(n, N, m)), rng.integers(0, 3, size=n).astype(float)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3))
def test_running_edges_are_those_of_the_definition(seed, n, N, m):
    targets, h, weight = random_rows(seed, n, N, m)
    meter = EdgeMeter(N)
    meter.add(targets, h, weight)
    np.testing.assert_allclose(meter.running, slow_edges(targets, h, weight), rtol=1e-9, atol=1e-9)


@given(st.integers(0, 2**32), st.integers(2, 12))
def test_one_chunk_counts_as_its_rows_do(seed, n):
    targets, h, weight = random_rows(seed, n, 3, 2)
    whole, by_row = EdgeMeter(3), EdgeMeter(3)
    whole.add(targets, h, weight)
    for t in range(n):
        by_row.add(targets[t : t + 1], h[t : t + 1], weight[t : t + 1])
    np.testing.assert_allclose(whole.running, by_row.running, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 2**32))
def test_weight_2_counts_a_row_twice_and_weight_0_not_at_all(seed):
    targets, h, _ = random_rows(seed, 3, 2, 1)
    weighted, repeated = EdgeMeter(2), EdgeMeter(2)
    weighted.add(targets, h, np.array([2.0, 0.0, 1.0]))
    repeated.add(targets[[0, 0, 2]], h[[0, 0, 2]], np.ones(3))
    np.testing.assert_allclose(weighted.running, repeated.running, rtol=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 20))
def test_recent_edges_fade_a_row_by_three_in_window_with_every_row_after_it(seed, window, n):
    targets, h, weight = random_rows(seed, n, 2, 1)
    weight += 1.0
    meter = EdgeMeter(2, window=window)
    for t in range(n):
        meter.add(targets[t : t + 1], h[t : t + 1], weight[t : t + 1])
    faded = weight * max(0.0, 1.0 - 3.0 / window) ** np.arange(n)[::-1]
    np.testing.assert_allclose(meter.recent, slow_edges(targets, h, faded), rtol=1e-9, atol=1e-9)


def test_recent_edges_forget_what_running_edges_remember():
    meter = EdgeMeter(1, window=20)
    rng = np.random.default_rng(0)
    for said in (0.0, 1.0):  # a learner that says nothing, and then exactly what it should
        for target in rng.normal(size=(200, 1, 1, 1)):
            meter.add(target, said * target, np.ones(1))
    assert meter.recent[0] > 0.999
    assert 0.3 < meter.running[0] < 0.7


def test_a_chunk_fades_the_past_as_one_row_does():
    targets, h, weight = random_rows(3, 6, 2, 1)
    meter = EdgeMeter(2, window=4)
    meter.add(targets[:2], h[:2], weight[:2])
    meter.add(targets[2:], h[2:], weight[2:])
    faded = weight * np.where(np.arange(6) < 2, 0.25, 1.0)
    np.testing.assert_allclose(meter.recent, slow_edges(targets, h, faded), rtol=1e-9)


@pytest.mark.parametrize(("said", "edge"), [(1.0, 1.0), (0.5, 0.75), (0.0, 0.0), (2.0, 0.0), (-1.0, -3.0)])
def test_a_learner_that_says_a_multiple_of_its_target_has_a_known_edge(said, edge):
    targets = np.random.default_rng(0).normal(size=(10, 1, 2))
    meter = EdgeMeter(1)
    meter.add(targets, said * targets, np.ones(10))
    np.testing.assert_allclose(meter.running, [edge], atol=1e-12)


def test_edges_are_unknown_before_any_target_differs_from_0():
    meter = EdgeMeter(2)
    assert np.isnan(meter.running).all()
    assert np.isnan(meter.recent).all()
    meter.add(np.array([[[0.0], [1.0]]]), np.array([[[0.5], [0.5]]]), np.ones(1))
    assert np.isnan(meter.running[0])
    assert meter.running[1] == 0.75


def test_a_grown_meter_keeps_the_old_edges_and_knows_nothing_of_the_new():
    targets, h, _ = random_rows(1, 4, 2, 1)
    meter = EdgeMeter(2)
    meter.add(targets, h, np.ones(4))
    before = meter.running
    meter.grow(3)
    np.testing.assert_array_equal(meter.running[:2], before)
    assert np.isnan(meter.running[2:]).all()
    assert np.isnan(meter.recent[2:]).all()
    more, said, _ = random_rows(2, 4, 5, 1)
    meter.add(more, said, np.ones(4))
    np.testing.assert_allclose(meter.running[2:], slow_edges(more, said, np.ones(4))[2:], rtol=1e-9)
    both = slow_edges(np.concatenate([targets, more[:, :2]]), np.concatenate([h, said[:, :2]]), np.ones(8))
    np.testing.assert_allclose(meter.running[:2], both, rtol=1e-9)
