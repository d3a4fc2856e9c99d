"""Linear learners against ridge regression by the normal equations, by scikit-learn, and against a loop."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge

from streamboost.kernels.linear import BIAS_VARIANCE
from streamboost.stacks.linear import LinearStack

N, M = 3, 2


def rows(n=40, d=3, seed=0, m=M):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    targets = (X @ rng.normal(size=(d, N * m)) + rng.normal(size=N * m)).reshape(n, N, m)
    return X, targets + 0.1 * rng.normal(size=targets.shape), rng.uniform(0.2, 3.0, size=n)


def opened(d=3, m=M, **options):
    stack = LinearStack(N, **options)
    stack.open(d, m)
    return stack


def flat(targets):
    return targets.reshape(len(targets), -1)


def with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


def ridge_solution(X, targets, weight, ridge):
    """By the normal equations; the intercept has a prior of its own."""
    Z = with_ones(X)
    prior = np.diag([ridge] * X.shape[1] + [1 / BIAS_VARIANCE])
    return np.linalg.solve(Z.T @ (weight[:, None] * Z) + prior, Z.T @ (weight[:, None] * flat(targets)))


# Recursive least squares


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_recursive_least_squares_is_ridge_regression(n, ridge):
    X, targets, weight = rows(n)
    stack = opened(ridge=ridge, standardize=False)
    stack.learn(X, targets, weight)
    assert_allclose(stack.weights.reshape(4, -1), ridge_solution(X, targets, weight, ridge), rtol=1e-7, atol=1e-8)


def test_scikit_learn_fits_the_same_line():
    X, targets, weight = rows(200)
    stack = opened(ridge=2.0, standardize=False)
    stack.learn(X, targets, weight)
    theirs = Ridge(alpha=2.0).fit(X, flat(targets), sample_weight=weight)
    probes = rows(20, seed=1)[0]
    # their intercept is free, ours nearly: prior 1/1000 beside a total weight of about 300
    assert_allclose(flat(stack.predict(probes)), theirs.predict(probes), atol=1e-4)


@given(st.lists(st.integers(0, 40), max_size=4))
@settings(deadline=None)
def test_without_scaling_chunks_do_not_matter(cuts):
    X, targets, weight = rows()
    whole, apart = opened(standardize=False), opened(standardize=False)
    whole.learn(X, targets, weight)
    edges = [0, *sorted(cuts), 40]
    for start, stop in itertools.pairwise(edges):
        apart.learn(X[start:stop], targets[start:stop], weight[start:stop])
    assert_array_equal(whole.weights, apart.weights)


@pytest.mark.parametrize("forget", [0.5, 0.9, 0.99])
def test_forgetting_is_weighted_least_squares(forget):
    """A row k steps back weighs forgetᵏ, and so does the prior, from the moment the rows have settled the intercept."""
    X, targets, weight = rows(60)
    stack = opened(forget=forget, standardize=False)
    A, b = np.diag([1.0] * 3 + [1 / BIAS_VARIANCE]), np.zeros((4, N * M))
    held_back = []
    for t in range(60):
        if np.trace(np.linalg.inv(A)) < 10 * 4:  # while a direction is this uncertain, nothing is forgotten
            A, b = forget * A, forget * b
        else:
            held_back.append(t)
        z = with_ones(X[t : t + 1])
        A += weight[t] * z.T @ z
        b += weight[t] * z.T @ flat(targets[t : t + 1])
        stack.learn(X[t : t + 1], targets[t : t + 1], weight[t : t + 1])
        assert_allclose(stack.weights.reshape(4, -1), np.linalg.solve(A, b), rtol=1e-6, atol=1e-8)
    assert held_back == [0]  # the intercept's own prior; from then on all is discounted
    # so that in closed form:
    Z, discount = with_ones(X), forget ** np.arange(59, -1, -1)
    A = Z.T @ ((weight * discount)[:, None] * Z) + forget**59 * np.diag([1.0] * 3 + [1 / BIAS_VARIANCE])
    expected = np.linalg.solve(A, Z.T @ ((weight * discount)[:, None] * flat(targets)))
    assert_allclose(stack.weights.reshape(4, -1), expected, rtol=1e-6, atol=1e-8)


def test_forgetting_does_not_blow_up_where_nothing_moves():
    stack = opened(forget=0.9, standardize=False)
    X = np.zeros((5000, 3))  # only the intercept is ever excited
    stack.learn(X, np.ones((5000, N, M)), np.ones(5000))
    assert np.isfinite(stack.predict(rows(5)[0])).all()
    X, targets, weight = rows(200, seed=3)
    stack.learn(X, targets, weight)
    error = stack.predict(X[-50:]) - targets[-50:]
    assert np.sqrt(np.mean(error**2)) < 0.3


def test_forgetting_follows_a_change():
    X, targets, weight = rows(400)
    targets[200:] *= -1.0
    errors = []
    for forget in (1.0, 0.9):
        stack = opened(forget=forget)
        stack.learn(X, targets, weight)
        errors.append(np.abs(stack.predict(X[-50:]) - targets[-50:]).mean())
    assert errors[1] < 0.2 * errors[0]


# AdaGrad


@pytest.mark.parametrize("forget", [1.0, 0.9])
def test_adagrad_is_the_loop(forget):
    X, targets, weight = rows(30)
    weight[[3, 7]] = 0.0
    stack = opened(update="adagrad", rate=0.2, forget=forget, standardize=False)
    stack.learn(X, targets, weight)
    probes = rows(5, seed=1)[0]
    for i in range(N):
        line = naive.AdaGradLine(M, 3, 0.2, forget)
        for t in range(30):
            line.update(X[t].tolist(), targets[t, i].tolist(), weight[t])
        assert_allclose(stack.predict(probes)[:, i], [line.h(x) for x in probes.tolist()], atol=1e-12)


def test_adagrad_gets_to_the_line_in_the_end():
    X, targets, _ = rows(3000)
    stack = opened(update="adagrad", rate=0.5)
    stack.learn(X, targets, np.ones(3000))
    assert np.sqrt(np.mean((stack.predict(X[-200:]) - targets[-200:]) ** 2)) < 0.2


# What both promise


KINDS = [{"update": "rls"}, {"update": "rls", "forget": 0.95}, {"update": "adagrad"}]


@pytest.mark.parametrize("options", KINDS)
def test_each_learner_learns_as_if_it_were_alone(options):
    X, targets, weight = rows()
    together = opened(**options)
    together.learn(X, targets, weight)
    for i in range(N):
        alone = LinearStack(1, **options)
        alone.open(3, M)
        alone.learn(X, targets[:, i : i + 1], weight)
        assert_allclose(together.predict(X)[:, i], alone.predict(X)[:, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", KINDS)
def test_scaling_the_inputs_changes_nothing_when_they_are_standardised(options):
    X, targets, weight = rows()
    plain, scaled = opened(**options), opened(**options)
    factor = np.array([1e-9, 1.0, 1e9])
    plain.learn(X, targets, weight)
    scaled.learn(X * factor, targets, weight)
    assert_allclose(scaled.predict(X * factor), plain.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("options", KINDS)
def test_missing_values_count_as_the_mean(options):
    X, targets, weight = rows()
    stack = opened(**options)
    stack.learn(X, targets, weight)
    mean = np.average(X[:, 1], weights=weight)
    gap, filled = X.copy(), X.copy()
    gap[:, 1], filled[:, 1] = np.nan, mean
    assert_allclose(stack.predict(gap), stack.predict(filled), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("standardize", [True, False])
def test_a_column_added_later_is_a_column_that_was_missing_before(options, standardize):
    X, targets, weight = rows(d=4)
    late, early = opened(3, standardize=standardize, **options), opened(4, standardize=standardize, **options)
    late.learn(X[:20, :3], targets[:20], weight[:20])
    late.add_features(1)
    gap = X.copy()
    gap[:20, 3] = np.nan
    early.learn(gap[:20], targets[:20], weight[:20])
    for stack in (late, early):
        for t in range(20, 40):
            stack.learn(X[t : t + 1], targets[t : t + 1], weight[t : t + 1])
    if "forget" in options:  # an early column's prior fades before it is ever seen
        assert late.n_features == 4
        assert np.isfinite(late.predict(X)).all()
    else:
        assert_allclose(late.predict(X), early.predict(X), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("options", KINDS)
def test_an_output_added_later_learns_as_a_new_one_beside_the_old(options):
    X, targets, weight = rows(m=3)
    stack, never = opened(m=2, **options), opened(m=2, **options)
    for one in (stack, never):
        one.learn(X[:20], targets[:20, :, :2], weight[:20])
    stack.add_outputs(1)
    stack.learn(X[20:], targets[20:], weight[20:])
    never.learn(X[20:], targets[20:, :, :2], weight[20:])
    assert_allclose(stack.predict(X)[..., :2], never.predict(X), rtol=1e-10, atol=1e-12)
    assert np.abs(stack.predict(X)[..., 2]).max() > 0.1


@pytest.mark.parametrize("options", KINDS)
def test_learners_grown_later_leave_the_old_ones_alone(options):
    X, targets, weight = rows()
    stack, never = opened(**options), opened(**options)
    for one in (stack, never):
        one.learn(X[:20], targets[:20], weight[:20])
    stack.grow(2)
    assert_array_equal(stack.predict(X)[:, N:], 0.0)
    stack.learn(X[20:], np.concatenate([targets, targets[:, :2]], axis=1)[20:], weight[20:])
    never.learn(X[20:], targets[20:], weight[20:])
    assert_allclose(stack.predict(X)[:, :N], never.predict(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"update": "sgd"}, "update is 'sgd', expected 'rls' or 'adagrad'"),
        ({"ridge": 0.0}, "ridge is 0.0, expected a number above 0"),
        ({"ridge": float("nan")}, "ridge is nan"),
        ({"forget": 0.0}, r"forget is 0.0, expected a number in \(0, 1\]"),
        ({"forget": 1.1}, "forget is 1.1"),
        ({"rate": -1.0}, "rate is -1.0, expected a number above 0"),
        ({"n_learners": 0}, "n_learners is 0, expected a whole number of at least 1"),
        ({"n_learners": 2.5}, "n_learners is 2.5"),
    ],
)
def test_options_that_cannot_work_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        LinearStack(**options)
