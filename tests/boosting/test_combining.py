"""The combination: what it is, held against a slow twin, and what it is there for."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from taught_hedges import opened, rows_for, taught

import streamboost
from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.boosting.combining import NO_COMBINATION, Combination
from streamboost.boosting.hedge import Expert
from streamboost.kernels.combining import FAR, HALF_LIFE, MARGIN, RIDGE, SCALE_HALF_LIFE
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.persistence.object_graph import same_state

LOSSES = [
    Squared(),
    Squared(n_outputs=2),
    Logistic(),
    Logistic(n_outputs=3),
    Softmax(n_classes=2),
    Softmax(n_classes=3),
]
seeds = st.integers(0, 2**32)


# What it is


def slow_features(scores, vote, loss, spread):
    """The features (n, m) of a row, in words."""
    deviations = scores - vote
    if isinstance(loss, Softmax):
        deviations = scores - scores.mean(axis=1, keepdims=True) - vote
        own = [vote, (np.arange(loss.n_classes) == vote.argmax()).astype(float)]
    elif isinstance(loss, Logistic):
        own = [vote, np.sign(vote)]
    else:
        own = [0 * vote, 0 * vote]
    far = FAR * spread if isinstance(loss, Squared) else FAR
    return np.vstack([own, np.clip(deviations, -far, far)])


def slow_derivatives(loss, score, y, spread):
    """The gradient (m,) and the second derivatives (m, m) of the loss; of squares, in units of their mean."""
    if isinstance(loss, Squared):
        counts = np.divide(1.0, spread**2, out=np.zeros_like(spread), where=spread > 0)
        return counts * (score - y), np.diag(counts)
    said = loss.predict(score)
    if isinstance(loss, Softmax):
        return said - (np.arange(loss.n_classes) == y[0]), np.diag(said) - np.outer(said, said)
    return said - (y > 0), np.diag(said * (1.0 - said))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@given(seed=seeds, weights=st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=1, max_size=12))
@settings(max_examples=5)
def test_it_is_the_least_point_of_all_parabolas_so_far(loss, seed, weights):
    hedge, E = opened(loss), 4
    A, b, w = np.zeros((E + 2, E + 2)), np.zeros(E + 2), np.zeros(E + 2)
    squares, n, before = np.zeros(loss.n_outputs), 0.0, np.zeros(loss.n_outputs)
    for scores, y, weight in zip(*rows_for(loss, seed, len(weights)), weights, strict=True):
        vote = hedge.mix(scores, loss)
        F = slow_features(scores, vote, loss, before)
        assert_allclose(
            hedge.combination.score(scores[None], vote[None], loss)[0], held(vote + w @ F, hedge), rtol=1e-7
        )
        keep = 0.5 ** (weight / HALF_LIFE)
        follow = 0.5 ** (weight / SCALE_HALF_LIFE)
        squares = follow * squares + weight * (y - vote) ** 2 if y.shape == vote.shape else squares
        n = follow * n + weight
        spread = np.sqrt(squares / n)
        gradient, second = slow_derivatives(loss, vote + w @ F, y, spread)
        hedge.learn(scores, y, loss, weight)
        A = keep * A + weight * F @ second @ F.T
        b = keep * b + weight * F @ (second @ (w @ F) - gradient)
        w, before = np.linalg.solve(A + RIDGE * np.eye(E + 2), b), spread
        assert_allclose(hedge.combination.coefficients, w, rtol=1e-6, atol=1e-10)


def held(score, hedge):
    return hedge.combination.hold(score)


def test_for_squares_it_is_ridge_regression_on_what_the_vote_missed():
    rng, loss = np.random.default_rng(0), Squared()
    combination = Combination()
    combination.open(loss, 3)
    deviations, missed = rng.normal(size=(400, 3)), rng.normal(size=400)
    for d, r in zip(deviations, missed, strict=True):  # a vote that says 0
        combination.learn(d[:, None], np.zeros(1), np.array([r]), loss, 1.0, 1.0)
    keep = 0.5 ** (np.arange(399, -1, -1) / HALF_LIFE)
    follow = 0.5 ** (np.arange(399, -1, -1) / SCALE_HALF_LIFE)
    spread = np.sqrt([np.average(missed[: t + 1] ** 2, weights=follow[-t - 1 :]) for t in range(400)])
    far = FAR * np.concatenate([[0.0], spread[:-1]])[:, None]
    F = np.clip(deviations, -far, far) / spread[:, None]
    expected = np.linalg.solve(F.T @ (keep[:, None] * F) + RIDGE * np.eye(3), F.T @ (keep * missed / spread))
    assert_allclose(combination.coefficients[2:], expected, rtol=1e-6)
    assert_array_equal(combination.coefficients[:2], 0.0)


@pytest.mark.parametrize("loss", [Absolute(), Quantile(tau=0.2), Huber(), Poisson(), Hinge()], ids=repr)
def test_under_other_losses_the_vote_stays_what_it_is(loss):
    hedge = taught(loss)
    assert hedge.combination.coefficients.shape == (0,)
    scores, _ = rows_for(loss, 1)
    scores = hedge.combination.hold(scores)
    assert_allclose(hedge.score(scores, loss), hedge.mix(scores, loss), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_row_of_weight_zero_leaves_no_trace(loss):
    hedge = taught(loss)
    twin = copy.deepcopy(hedge)
    scores, y = rows_for(loss, 5, 1)
    hedge.learn(scores[0], y[0], loss, 0.0)
    assert same_state(hedge, twin)


@given(seed=seeds, factor=st.sampled_from([1e-6, 1e3, 1e9]))
@settings(max_examples=5)
def test_it_does_not_depend_on_the_unit_of_the_targets(seed, factor):
    plain, scaled, loss = opened(Squared()), opened(Squared()), Squared()
    for scores, y in zip(*rows_for(loss, seed), strict=True):
        plain.learn(scores, y, loss)
        scaled.learn(factor * scores, factor * y, loss)
    assert_allclose(scaled.combination.coefficients, plain.combination.coefficients, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_extremes_leave_it_finite(loss):
    hedge, rng = opened(loss), np.random.default_rng(0)
    for t, (scores, y) in enumerate(zip(*rows_for(loss, 0, 30), strict=True)):
        size = [1e3, 1e100, 1e140][t % 3]
        hedge.learn(size * rng.choice([-1.0, 0.0, 1.0], size=scores.shape), y, loss)
        assert np.isfinite(hedge.combination.coefficients).all()


# What it is there for


def test_a_sum_of_experts_that_no_vote_can_say_is_found():
    rng, loss = np.random.default_rng(0), Squared()
    hedge, missed, voted = opened(loss, 3), [], []
    for _ in range(1500):
        scores = rng.normal(size=(3, 1))
        y = 1.5 * scores[0] - 0.5 * scores[1] + 0.1 * rng.normal()
        missed.append(y - hedge.score(scores[None], loss)[0])
        voted.append(y - hedge.mix(scores, loss))
        hedge.learn(scores, y, loss)
    assert np.square(missed[1000:]).mean() < 0.1 * np.square(voted[1000:]).mean()


def log_loss_and_errors(model, X, y):
    said = model.learn(X, y, method="predict_proba")
    own = said[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return -np.log(np.maximum(own, 1e-9))[500:].mean(), (own < 0.5)[500:].mean()


def test_labels_wrong_by_chance_are_taken_into_account():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    y = ((X[:, 0] + X[:, 1] > 0) ^ (rng.uniform(size=4000) < 0.1)).astype(int)
    lost, errors = log_loss_and_errors(SGBClassifier(random_state=0), X, y)
    best = -0.1 * np.log(0.1) - 0.9 * np.log(0.9)
    assert lost < 1.15 * best
    assert errors < 0.125


# The range of targets


def test_predictions_are_held_to_the_range_of_targets_widened_by_a_tenth():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    y = 10 + 3 * X[:, 0]
    model = SGBRegressor(random_state=0)
    model.learn(X, y)
    far = model.predict(np.array([[100.0, 0.0], [-100.0, 0.0]]))
    width = MARGIN * (y.max() - y.min())
    assert y.max() < far[0] <= y.max() + 1.0001 * width
    assert y.min() - 1.0001 * width <= far[1] < y.min()


def test_before_the_first_target_nothing_is_held():
    combination = Combination()
    combination.open(Squared(), 2)
    assert_array_equal(combination.hold(np.array([[7.0], [-1e9]])), [[7.0], [-1e9]])


# Who comes and goes


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_who_comes_has_no_say_yet_and_who_goes_leaves_what_is_known_of_the_others(loss):
    hedge = taught(loss)
    twin = copy.deepcopy(hedge)
    hedge.join([Expert(7, 0), Expert(7, 3)], [0, 2])
    assert_allclose(hedge.combination.coefficients[:6], twin.combination.coefficients)
    assert_array_equal(hedge.combination.coefficients[6:], 0.0)
    hedge.leave(7)
    assert_allclose(hedge.combination.coefficients, twin.combination.coefficients, rtol=1e-9, atol=1e-15)
    for scores, y in zip(*rows_for(loss, 9), strict=True):
        hedge.learn(scores, y, loss)
        twin.learn(scores, y, loss)
    assert_allclose(hedge.combination.coefficients, twin.combination.coefficients, rtol=1e-9, atol=1e-15)


def test_a_successor_keeps_what_is_known_of_it():
    loss = Squared()
    hedge = taught(loss, n=200, n_experts=3)
    hedge.experts[:] = [(0, 0), (1, 0), (2, 0)]
    A = hedge.combination.curvature + np.tril(hedge.combination.curvature, -1).T
    kept, pull = [0, 1, 4, 3], hedge.combination.pull.copy()
    hedge.leave(0, successor=2)
    expected = np.linalg.solve(A[np.ix_(kept, kept)] + RIDGE * np.eye(4), pull[kept])
    assert_allclose(hedge.combination.coefficients, expected, rtol=1e-9)


def test_a_hedge_saved_before_there_was_a_combination_goes_on_without():
    hedge = taught(Squared())
    del hedge.combination
    scores, y = rows_for(Squared(), 3)
    hedge.learn(scores[0], y[0], Squared())
    hedge.join([Expert(1, 0)], [0])
    hedge.leave(1)
    assert_array_equal(hedge.score(scores, Squared()), hedge.mix(scores, Squared()))
    assert same_state(NO_COMBINATION, Combination())


# In a model


@pytest.mark.parametrize("kind", ["real", "two classes", "three classes"])
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_happened(kind, tmp_path):
    X, y, *_ = datasets.friedman(900, seed=0)
    if kind != "real":
        y = np.digitize(y, [14.0] if kind == "two classes" else [11.0, 17.0])
    model = (SGBRegressor if kind == "real" else SGBClassifier)(n_estimators=8, random_state=0)
    model.learn(X[:700], y[:700])
    model.save(tmp_path / "model")
    loaded = streamboost.load(tmp_path / "model")
    assert_array_equal(loaded.learn(X[700:], y[700:]), model.learn(X[700:], y[700:]))
    assert same_state(loaded.committee_, model.committee_)
    assert np.abs(model.committee_.hedge.combination.coefficients).max() > 0.01


def test_coefficients_are_told_by_memory_and_number_of_learners():
    X, y, *_ = datasets.friedman(900, seed=0)
    model = SGBRegressor(random_state=0)
    model.learn(X, y)
    assert model.coefficients_.keys() == model.weights_.keys()
    labels = SGBClassifier(random_state=0)
    labels.learn(X, y > 14)
    assert labels.coefficients_.keys() == {"slope", "step", *labels.weights_}
    assert SGBRegressor("absolute_error", n_estimators=4).partial_fit(X, y).coefficients_ == {}


def test_a_constraint_holds_since_then_the_vote_stands_by_itself():
    X, y, *_ = datasets.friedman(900, seed=0)
    model = SGBRegressor(random_state=0, monotonic_cst={3: 1})
    model.learn(X, y)
    assert model.coefficients_ == {}
    along = np.repeat(X[:20, None], 30, axis=1)
    along[:, :, 3] = np.linspace(-1, 2, 30)
    assert (np.diff(model.predict(along.reshape(-1, 10)).reshape(20, 30), axis=1) >= 0).all()
