"""Losses: derivatives, convexity, links, starts and constants, against numerical and scikit-learn's answers."""

import copy
import math
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pairwise import pairwise
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax
from sklearn._loss.loss import (
    AbsoluteError,
    HalfBinomialLoss,
    HalfMultinomialLoss,
    HalfPoissonLoss,
    HalfSquaredError,
    HuberLoss,
    PinballLoss,
)

from streamboost import testing
from streamboost.losses import (
    NAMES,
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    by_name,
    from_functions,
)
from streamboost.losses.links import LARGEST_EXPONENT, Identity, Link, Log, Logit, Margin, SoftmaxLink


def log_cosh_value(score, y):
    return np.log(np.cosh(score - y)).sum(axis=-1)


def log_cosh_gradient(score, y):
    return np.tanh(score - y)


def log_cosh(**options):
    return from_functions(
        log_cosh_value, log_cosh_gradient, smooth=True, smoothness=1.0, gradient_bound=2.0, name="log_cosh", **options
    )


KINDS = [
    Squared,
    Absolute,
    partial(Huber, delta=0.7),
    partial(Quantile, tau=0.2),
    Poisson,
    Logistic,
    Hinge,
    lambda n_outputs, l2: Softmax(n_outputs, l2=l2),
    log_cosh,
]
LOSSES = [kind(n_outputs=m, l2=l2) for kind, m, l2 in pairwise(KINDS, [1, 3], [0.0, 0.3])]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}-{loss.n_outputs}-{loss.l2}")
every_built_in_loss = pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.name in NAMES], ids=repr)
fast = settings(max_examples=12, deadline=None)


def matrix(n, m, limit=5.0):
    return arrays(np.float64, (n, m), elements=st.floats(-limit, limit, allow_subnormal=False))


def targets(loss, n, limit=5.0):
    """Targets (n, k) that the loss accepts."""
    shape = (n, loss.n_targets)
    if isinstance(loss, Softmax):
        elements = st.integers(0, loss.n_classes - 1).map(float)
    elif isinstance(loss, (Logistic, Hinge)):
        elements = st.sampled_from([-1.0, 1.0])
    elif isinstance(loss, Poisson):
        elements = st.floats(0.0, limit, allow_subnormal=False)
    else:
        elements = st.floats(-limit, limit, allow_subnormal=False)
    return arrays(np.float64, shape, elements=elements)


def into_ball(rows, radius):
    """Shorten the rows that are longer than the radius."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.minimum(1.0, radius / np.maximum(length, 1e-300))


def near_a_kink(loss, score, y):
    if isinstance(loss, (Absolute, Quantile)):
        return np.abs(score - y) < 1e-3
    if isinstance(loss, Hinge):
        return np.abs(y * score - 1) < 1e-3
    return np.zeros(score.shape, dtype=bool)


# Values and gradients


@every_loss
@fast
@given(data=st.data())
def test_the_gradient_is_the_derivative_of_the_value_away_from_kinks(loss, data):
    score, y = data.draw(matrix(3, loss.n_outputs)), data.draw(targets(loss, 3))
    slope = np.empty_like(score)
    for j, step in enumerate(1e-5 * np.eye(loss.n_outputs)):
        slope[:, j] = (loss.value(score + step, y) - loss.value(score - step, y)) / 2e-5
    gradient = loss.gradient(score, y)
    away = ~near_a_kink(loss, score, y)
    np.testing.assert_allclose(gradient[away], slope[away], rtol=1e-4, atol=1e-4)


@every_loss
@fast
@given(data=st.data())
def test_the_value_lies_above_every_tangent_also_at_kinks(loss, data):
    y = data.draw(targets(loss, 4))
    a, b = data.draw(matrix(4, loss.n_outputs)), data.draw(matrix(4, loss.n_outputs))
    if data.draw(st.booleans(), label="a sits on the kink") and not isinstance(loss, Softmax):
        a = y.copy()
    tangent = loss.value(a, y) + (loss.gradient(a, y) * (b - a)).sum(axis=-1)
    assert (loss.value(b, y) >= tangent - 1e-9).all()


@pytest.mark.parametrize("loss", [Absolute(), Quantile(tau=0.9), Hinge()], ids=lambda loss: loss.name)
def test_the_gradient_at_a_kink_is_zero(loss):
    y = np.array([[1.0], [-1.0]])
    np.testing.assert_array_equal(loss.gradient(y, y), np.zeros((2, 1)))


@every_loss
def test_the_ridge_adds_its_square_to_the_value_and_its_double_to_the_gradient(loss):
    rng = np.random.default_rng(0)
    score, y = rng.normal(size=(5, loss.n_outputs)), np.ones((5, loss.n_targets)) * (loss.n_outputs > 1)
    np.testing.assert_allclose(loss.value(score, y) - loss.bare_value(score, y), loss.l2 * (score**2).sum(axis=1))
    np.testing.assert_allclose(loss.gradient(score, y) - loss.bare_gradient(score, y), 2 * loss.l2 * score, atol=1e-12)


@pytest.mark.parametrize("kind", [Squared, Absolute, Huber, Quantile, Poisson, Logistic, Hinge])
def test_the_value_is_the_sum_of_what_each_output_loses_alone(kind):
    score, y = np.array([[0.3, -2.0, 4.0]]), np.array([[1.0, 1.0, 1.0]])
    alone = [kind(l2=0.1).value(score[:, [j]], y[:, [j]]) for j in range(3)]
    np.testing.assert_allclose(kind(n_outputs=3, l2=0.1).value(score, y), np.sum(alone, axis=0))
    np.testing.assert_allclose(kind(n_outputs=3, l2=0.1).value(score, y[:, :1]), np.sum(alone, axis=0))


@every_loss
def test_no_result_aliases_its_input_and_inputs_stay_as_they_were(loss):
    score, y = np.full((4, loss.n_outputs), 0.5), np.ones((4, loss.n_targets)) * (loss.n_outputs > 1)
    kept_score, kept_y = score.copy(), y.copy()
    results = [
        loss.value(score, y),
        loss.gradient(score, y),
        loss.predict(score),
        loss.link.score(score),
        loss.start(y),
    ]
    for result in results:
        assert not np.shares_memory(result, score)
        assert not np.shares_memory(result, y)
        result[...] = 7.0
    np.testing.assert_array_equal(score, kept_score)
    np.testing.assert_array_equal(y, kept_y)


@every_built_in_loss
def test_scores_of_a_thousand_give_finite_numbers_and_no_warnings(loss):
    m = loss.n_outputs
    ys = {Softmax: [0.0, m - 1.0], Logistic: [-1.0, 1.0], Hinge: [-1.0, 1.0], Poisson: [0.0, 1e3]}
    corners = np.array(np.meshgrid(*[[-1e3, 0.0, 1e3]] * m)).reshape(m, -1).T  # (3ᵐ, m)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for target in ys.get(type(loss), [-1e3, 1e3]):
            y = np.full((len(corners), loss.n_targets), target)
            value, gradient = loss.value(corners, y), loss.gradient(corners, y)
            assert np.isfinite(value).all()
            assert np.isfinite(gradient).all()
            assert np.isfinite((gradient**2).sum())
            assert math.isfinite(loss.mean(corners, y))
        prediction = loss.predict(corners)
        assert np.isfinite(prediction).all()
        assert np.isfinite(loss.link.score(prediction)).all()


def test_logistic_and_softmax_keep_their_precision_in_the_tails():
    np.testing.assert_allclose(Logistic().value(np.array([[40.0]]), np.array([[1.0]])), math.exp(-40), rtol=1e-12)
    np.testing.assert_allclose(Logistic().gradient(np.array([[40.0]]), np.array([[1.0]])), -math.exp(-40), rtol=1e-12)
    np.testing.assert_allclose(Softmax(3).value(np.array([[1e3, 0.0, -1e3]]), np.array([[2.0]])), 2e3)


@fast
@given(score=st.floats(LARGEST_EXPONENT - 5, LARGEST_EXPONENT + 5), y=st.floats(0, 10))
def test_poisson_goes_on_as_a_tangent_beyond_the_largest_exponent(score, y):
    loss, s, t = Poisson(), np.array([[score]]), np.array([[y]])
    edge = np.array([[LARGEST_EXPONENT]])
    tangent = loss.value(edge, t) + (loss.gradient(edge, t) * (s - edge)).sum(axis=-1)
    if score >= LARGEST_EXPONENT:
        np.testing.assert_allclose(loss.value(s, t), tangent, rtol=1e-12)
    else:
        np.testing.assert_allclose(loss.value(s, t), np.exp(score) - y * score, rtol=1e-12)


def test_a_single_class_is_certain():
    loss = Softmax(1)
    score, y = np.array([[3.0], [-3.0]]), np.zeros((2, 1))
    np.testing.assert_array_equal(loss.predict(score), np.ones((2, 1)))
    np.testing.assert_array_equal(loss.gradient(score, y), np.zeros((2, 1)))
    np.testing.assert_array_equal(loss.start(y), np.zeros(1))


# Agreement with scikit-learn, which nobody here wrote


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Squared(), HalfSquaredError()),
        (Absolute(), AbsoluteError()),
        (Quantile(tau=0.2), PinballLoss(quantile=0.2)),
        (Quantile(tau=0.9), PinballLoss(quantile=0.9)),
        (Huber(delta=0.7), HuberLoss(delta=0.7)),
        (Poisson(), HalfPoissonLoss()),
        (Logistic(), HalfBinomialLoss()),
        (Softmax(4), HalfMultinomialLoss(n_classes=4)),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_values_gradients_and_predictions_agree_with_scikit_learn(ours, theirs):
    rng = np.random.default_rng(7)
    n, m = 200, ours.n_outputs
    score = rng.normal(scale=3.0, size=(n, m))
    if isinstance(ours, Softmax):
        y = rng.integers(m, size=n).astype(float)
    elif isinstance(ours, Logistic):
        y = rng.integers(2, size=n).astype(float)
    else:
        y = rng.poisson(2.0, size=n).astype(float)
    our_y = 2 * y - 1 if isinstance(ours, Logistic) else y  # scikit-learn codes the two classes 0 and 1
    raw = score if m > 1 else score[:, 0].copy()
    value, gradient = theirs.loss_gradient(y_true=y, raw_prediction=raw)
    np.testing.assert_allclose(ours.value(score, our_y[:, None]), value, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.gradient(score, our_y[:, None]), gradient.reshape(n, m), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.predict(score), theirs.link.inverse(raw).reshape(n, m), rtol=1e-10)


@fast
@given(score=matrix(4, 1), y=arrays(np.float64, (4, 1), elements=st.sampled_from([-1.0, 1.0])))
def test_two_classes_lose_the_same_under_softmax_as_under_logistic(score, y):
    both = np.hstack([np.zeros_like(score), score])
    np.testing.assert_allclose(Softmax(2).value(both, (y + 1) / 2), Logistic().value(score, y), atol=1e-12)


# Links


@pytest.mark.parametrize("link", [Identity(), Margin(), Log(), Logit()], ids=repr)
@fast
@given(score=arrays(np.float64, (3, 2), elements=st.floats(-15, 15)))
def test_a_link_undoes_itself(link, score):
    np.testing.assert_allclose(link.score(link.predict(score)), score, rtol=1e-6, atol=1e-6)
    prediction = link.predict(score)
    np.testing.assert_allclose(link.predict(link.score(prediction)), prediction, rtol=1e-9)


@fast
@given(score=arrays(np.float64, (3, 4), elements=st.floats(-15, 15)))
def test_the_softmax_link_undoes_itself_up_to_a_constant(score):
    link = SoftmaxLink()
    prediction = link.predict(score)
    np.testing.assert_allclose(prediction, softmax(score, axis=-1), rtol=1e-9)
    np.testing.assert_allclose(prediction.sum(axis=-1), 1.0)
    centred = score - score.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(link.score(prediction), centred, atol=1e-9)
    np.testing.assert_allclose(link.predict(link.score(prediction)), prediction, rtol=1e-9)


@fast
@given(score=arrays(np.float64, (5,), elements=st.floats(-700, 700)))
def test_the_logit_link_agrees_with_scipy(score):
    np.testing.assert_allclose(Logit().predict(score), expit(score), rtol=1e-12)


@pytest.mark.parametrize("link", [Identity(), Margin(), Log(), Logit(), SoftmaxLink()], ids=repr)
def test_links_are_finite_both_ways_at_the_extremes(link):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert np.isfinite(link.predict(np.array([[-1e3, 0.0, 1e3]]))).all()
        assert np.isfinite(link.score(np.array([[0.0, 0.0, 1.0]]))).all()


def test_links_are_equal_by_kind_and_a_margin_is_not_an_identity():
    assert Identity() == Identity()
    assert Margin() != Identity()
    assert len({Log(), Log(), Logit()}) == 2


# Starts, means and units


def weights(n):
    return arrays(np.float64, (n,), elements=st.integers(1, 5).map(float))


def with_one_row_more(loss, y, weight):
    """The rows that the start is best for: the class losses add one row, shared evenly among the classes."""
    if isinstance(loss, Softmax):
        extra, share = np.arange(float(loss.n_classes))[:, None], 1.0 / loss.n_classes
    elif isinstance(loss, Logistic) and not loss.l2:
        extra, share = np.array([[-1.0], [1.0]]) * np.ones(loss.n_outputs), 0.5
    else:
        return y, weight
    return np.vstack([y, extra]), np.concatenate([weight, np.full(len(extra), share)])


@every_loss
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_no_constant_score_beats_the_start(loss, data):
    if isinstance(loss, Softmax) and loss.l2:
        loss = Softmax(loss.n_classes)  # with a ridge it keeps the same start: tested below
    y, weight = data.draw(targets(loss, 6)), data.draw(weights(6))
    if isinstance(loss, Poisson):
        y[0] = 1.0  # something was counted
    start = loss.start(y, weight)
    assert start.shape == (loss.n_outputs,)
    rows, rows_weight = with_one_row_more(loss, y, weight)

    def mean(constant):
        return loss.mean(np.broadcast_to(constant, (len(rows), loss.n_outputs)), rows, rows_weight)

    for j, axis in enumerate(np.eye(loss.n_outputs)):
        along = minimize_scalar(lambda s, axis=axis, j=j: mean(start + axis * (s - start[j])), bounds=(-20, 20))
        assert mean(start) <= along.fun + 1e-9


def test_softmax_with_a_ridge_starts_where_it_does_without():
    y = np.array([[0.0], [1.0], [1.0], [3.0]])
    np.testing.assert_array_equal(Softmax(4, l2=0.5).start(y), Softmax(4).start(y))
    np.testing.assert_allclose(Softmax(4).start(y).sum(), 0.0, atol=1e-12)


@fast
@given(y=matrix(9, 2), tau=st.sampled_from([0.1, 0.25, 0.5, 0.8]), weight=weights(9))
def test_the_start_of_quantile_and_absolute_is_what_numpy_says(y, tau, weight):
    np.testing.assert_allclose(Absolute(n_outputs=2).start(y), np.median(y, axis=0))
    np.testing.assert_allclose(Absolute(n_outputs=2).start(y[:8]), np.median(y[:8], axis=0))
    unweighted = np.quantile(y[:8], tau, axis=0, method="averaged_inverted_cdf")
    np.testing.assert_allclose(Quantile(tau, n_outputs=2).start(y[:8]), unweighted)
    # numpy's weighted quantile takes the lower end where the quantile falls between two rows, ours the middle
    ends = [np.quantile(y, t, axis=0, method="inverted_cdf", weights=weight) for t in (tau - 1e-9, tau + 1e-9)]
    np.testing.assert_allclose(Quantile(tau, n_outputs=2).start(y, weight), np.mean(ends, axis=0))


def test_starts_in_closed_form():
    y = np.array([[1.0], [1.0], [4.0]])
    np.testing.assert_allclose(Squared().start(y), [2.0])
    np.testing.assert_allclose(Squared(l2=0.5).start(y), [1.0])  # the mean / (1 + 2 l2)
    np.testing.assert_allclose(Poisson().start(y), [math.log(2.0)])
    signs = np.array([[1.0], [1.0], [-1.0]])
    np.testing.assert_allclose(Logistic().start(signs), [math.log(2.5 / 1.5)])
    np.testing.assert_allclose(Softmax(2).predict(Softmax(2).start((signs + 1) / 2)), [1.5 / 4, 2.5 / 4])
    np.testing.assert_array_equal(Hinge().start(signs), [1.0])
    np.testing.assert_array_equal(Hinge().start(-signs), [-1.0])
    np.testing.assert_array_equal(Hinge().start(signs, np.array([1.0, 1.0, 2.0])), [0.0])


def test_a_class_or_count_not_seen_yet_has_a_finite_and_low_start():
    assert -10 < Poisson().start(np.zeros((50, 1)))[0] < math.log(1 / 50)
    assert -10 < Logistic().start(-np.ones((50, 1)))[0] < -3
    start = Softmax(3).start(np.zeros((50, 1)))
    assert np.isfinite(start).all()
    np.testing.assert_allclose(Softmax(3).predict(start), [1 - 2 / 153, 1 / 153, 1 / 153])


@every_loss
def test_nothing_to_learn_from_starts_at_zero(loss):
    np.testing.assert_array_equal(loss.start(np.empty((0, loss.n_targets))), np.zeros(loss.n_outputs))
    y = np.ones((3, loss.n_targets)) * (loss.n_outputs > 1)
    np.testing.assert_allclose(loss.start(y, np.zeros(3)), np.zeros(loss.n_outputs), atol=1e-12)
    assert math.isnan(loss.mean(np.zeros((0, loss.n_outputs)), np.empty((0, loss.n_targets))))
    assert loss.unit(np.empty((0, loss.n_targets))) == 1.0
    assert loss.unit(y, np.zeros(3)) == 1.0


@every_loss
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_weight_two_counts_a_row_twice_and_weight_zero_not_at_all(loss, data):
    y, score = data.draw(targets(loss, 5)), data.draw(matrix(5, loss.n_outputs))
    weight = data.draw(arrays(np.float64, (5,), elements=st.sampled_from([0.0, 1.0, 2.0])))
    weight[0] = 2.0
    times = weight.astype(int)
    often, often_score = np.repeat(y, times, axis=0), np.repeat(score, times, axis=0)
    np.testing.assert_allclose(loss.mean(score, y, weight), loss.mean(often_score, often), rtol=1e-9)
    np.testing.assert_allclose(loss.start(y, weight), loss.start(often), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(loss.unit(y, weight), loss.unit(often), rtol=1e-6)


@fast
@given(y=matrix(8, 2), weight=weights(8))
def test_the_unit_of_real_targets_is_their_standard_deviation(y, weight):
    expected = math.sqrt(np.mean([np.cov(column, fweights=weight.astype(int), ddof=0) for column in y.T]))
    for loss in (Squared(n_outputs=2), log_cosh(n_outputs=2)):
        unit = loss.unit(y, weight)
        assert unit == pytest.approx(expected, rel=1e-6) if expected > 1e-12 else unit > 0


def test_the_unit_of_equal_targets_one_row_or_another_link_is_one():
    assert Squared().unit(np.full((1000, 1), 0.1)) == 1.0
    assert Squared().unit(np.array([[7.0]])) == 1.0
    assert Squared().unit(np.array([[7.0], [0.1], [0.1]]), np.array([0.0, 1.0, 2.0])) == 1.0
    signs = np.array([[1.0], [1.0], [-1.0]])
    for loss in (Logistic(), Hinge(), Softmax(2), Poisson()):
        assert loss.unit(np.abs(signs) if isinstance(loss, (Softmax, Poisson)) else signs) == 1.0


def test_mean_is_the_weighted_mean_of_the_values():
    loss, rng = Huber(n_outputs=2), np.random.default_rng(3)
    score, y, weight = rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), rng.random(20)
    assert loss.mean(score, y) == pytest.approx(loss.value(score, y).mean())
    assert loss.mean(score, y, weight) == pytest.approx(np.average(loss.value(score, y), weights=weight))


def test_a_start_far_from_the_unit_scale_is_found():
    y = 1e9 + np.array([[0.0], [0.25], [1.0]])
    assert Huber(delta=10.0).start(y)[0] == pytest.approx(y.mean(), abs=1e-3)
    assert Huber(delta=1e-3).start(1e-9 * np.array([[1.0], [2.0], [9.0]]))[0] == pytest.approx(4e-9, rel=1e-3)


def test_where_a_whole_interval_is_best_the_start_is_its_middle():
    y = np.array([[0.0], [0.0], [0.0], [10.0]])
    weight = np.array([1.0, 1.0, 1.0, 3.0]) / 7
    assert Huber(delta=0.7).start(y, weight)[0] == pytest.approx(5.0)
    assert Absolute().start(y, np.array([1.0, 1.0, 1.0, 3.0]))[0] == 5.0
    # Also where 0 itself lies in the interval.
    assert Huber(delta=0.7).start(np.array([[-1.0], [3.5]]))[0] == pytest.approx(1.25)


def test_a_loss_that_only_tends_to_its_least_value_starts_at_a_moderate_score():
    adaboost = from_functions(
        lambda score, y: np.exp(-y * score).sum(axis=-1), lambda score, y: -y * np.exp(-y * score), smooth=True
    )
    assert 5 < adaboost.start(np.ones((10, 1)))[0] < 40
    y = np.array([[1.0], [1.0], [1.0], [-1.0]])
    assert adaboost.start(y)[0] == pytest.approx(0.5 * math.log(3))
    assert adaboost.start(y, np.array([1.0, 0.0, 1.0, 2.0]))[0] == pytest.approx(0.0, abs=1e-9)


def test_a_loss_without_a_least_value_starts_at_zero():
    falling = from_functions(
        lambda score, y: -score.sum(axis=-1), lambda score, y: -np.ones(score.shape), smooth=True, n_outputs=2
    )
    np.testing.assert_array_equal(falling.start(np.zeros((3, 2))), np.zeros(2))


def test_a_start_that_tied_outputs_lead_astray_is_not_worse_than_zero():
    """½(s₁ − 5s₂)² + ½s₂² + 4s₁: the slope along s₂ changes its sign as s₁ moves, which misleads a bisection."""
    tied = from_functions(
        lambda score, y: 0.5 * (score @ [1.0, -5.0]) ** 2 + 0.5 * score[..., 1] ** 2 + 4 * score[..., 0],
        lambda score, y: score @ np.array([[1.0, -5.0], [-5.0, 26.0]]) + [4.0, 0.0],
        smooth=True,
        n_outputs=2,
    )
    y = np.zeros((4, 2))
    start = np.broadcast_to(tied.start(y), (4, 2))
    assert tied.mean(start, y) <= tied.mean(np.zeros((4, 2)), y)


def test_a_row_of_weight_zero_does_not_lead_the_search_into_overflow():
    loss = from_functions(
        lambda score, y: (np.exp(score) - y * score).sum(axis=-1), lambda score, y: np.exp(score) - y, smooth=True
    )
    y, weight = np.array([[2.0], [4.0], [1e4]]), np.array([1.0, 1.0, 0.0])
    assert loss.start(y, weight)[0] == pytest.approx(math.log(3.0))


# What the theory needs


@every_loss
@settings(max_examples=20, deadline=None)
@given(data=st.data(), radius=st.floats(0.05, 4.0))
def test_convexity_smoothness_and_gradient_bound_hold_within_the_radius(loss, data, radius):
    a, b = (into_ball(data.draw(matrix(3, loss.n_outputs)), radius) for _ in range(2))
    y = data.draw(targets(loss, 3))
    if not isinstance(loss, (Logistic, Hinge, Softmax)):
        y = into_ball(y, radius)
    bend = loss.value(a, y) - loss.value(b, y) - (loss.gradient(b, y) * (a - b)).sum(axis=-1)
    half_square = 0.5 * ((a - b) ** 2).sum(axis=-1)
    assert (loss.strong_convexity(radius) * half_square <= bend + 1e-9).all()
    if math.isfinite(loss.smoothness(radius)):
        assert (bend <= loss.smoothness(radius) * half_square + 1e-9).all()
    assert (np.linalg.norm(loss.gradient(a, y), axis=-1) <= loss.gradient_bound(radius) + 1e-9).all()


def curvature(loss, at, direction, y):
    """The second difference of the value at a point, along a direction."""
    at, y = np.array(at, dtype=float), np.array(y, dtype=float)
    step = 1e-3 * np.array(direction) / np.linalg.norm(direction)
    return float(loss.value(at + step, y) - 2 * loss.value(at, y) + loss.value(at - step, y)) / 1e-6


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize(
    ("kind", "options", "radius", "most", "least"),
    [
        (Squared, {"n_outputs": 2}, 2.0, ([0, 0], [1, 1], [1, 0]), ([0, 0], [0, 1], [1, 0])),
        (Huber, {"n_outputs": 2}, 2.0, ([0, 0], [1, 1], [0, 0]), ([2, 0], [1, 0], [0, 0])),
        (Poisson, {"n_outputs": 2}, 2.0, ([2, 0], [1, 0], [1, 1]), ([-2, 0], [1, 0], [1, 1])),
        (Logistic, {"n_outputs": 2}, 2.0, ([0, 0], [1, 1], [1, -1]), ([2, 0], [1, 0], [1, -1])),
        (Softmax, {"n_classes": 3}, 9.0, ([3.6, 3.6, -7.2], [1, -1, 0], [0]), ([1, 2, 0], [1, 1, 1], [0])),
    ],
)
def test_smoothness_and_convexity_are_nearly_reached_somewhere(kind, options, radius, most, least, l2):
    loss = kind(**options, l2=l2)
    assert curvature(loss, *most) == pytest.approx(loss.smoothness(radius), rel=0.01)
    # The paper's λ of the logistic loss is within a factor of 2 of the least curvature.
    reached = curvature(loss, *least)
    assert loss.strong_convexity(radius) - 1e-6 <= reached <= 2 * loss.strong_convexity(radius) + 1e-6


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize(
    ("kind", "options", "score", "y"),
    [
        (Squared, {"n_outputs": 2}, [2.0, 0.0], [-2.0, 0.0]),
        (Absolute, {"n_outputs": 2}, [1.4, 1.4], [0.0, 0.0]),
        (Quantile, {"tau": 0.2, "n_outputs": 2}, [1.4, 1.4], [0.0, 0.0]),
        (Huber, {"delta": 0.5, "n_outputs": 2}, [1.4, 1.4], [0.0, 0.0]),
        (Hinge, {"n_outputs": 2}, [1.4, 1.4], [-1.0, -1.0]),
        (Poisson, {}, [2.0], [0.0]),
        (Logistic, {}, [2.0], [-1.0]),
        (Softmax, {"n_classes": 2}, [1.4, -1.4], [1.0]),
    ],
)
def test_the_gradient_bound_is_nearly_reached_somewhere(kind, options, score, y, l2):
    loss = kind(**options, l2=l2)
    length = np.linalg.norm(loss.gradient(np.array(score), np.array(y)))
    assert 0.85 * loss.gradient_bound(2.0) <= length <= loss.gradient_bound(2.0)


def test_without_a_radius_the_facts_are_those_of_the_whole_space():
    ridge = 2 * 0.25
    assert (Squared().strong_convexity(), Squared().smoothness(), Squared().gradient_bound()) == (1, 1, math.inf)
    assert (Logistic().strong_convexity(), Logistic().smoothness()) == (0.0, 0.25)
    assert Logistic(l2=0.25).strong_convexity() == ridge
    assert Logistic(l2=0.25).smoothness() == 0.25 + ridge
    assert Poisson().smoothness() == Poisson().gradient_bound() == Poisson().gradient_bound(1e6) == math.inf
    assert Poisson().strong_convexity() == 0.0
    assert Hinge(n_outputs=4).gradient_bound() == 2.0
    assert Hinge(l2=0.25).gradient_bound() == math.inf
    assert Hinge(l2=0.25).gradient_bound(8.0) == 1 + ridge * 8
    for loss in LOSSES:
        assert math.isfinite(loss.smoothness()) <= loss.smooth


def test_the_logistic_convexity_is_the_one_in_the_papers_appendix():
    for radius in (0.0, 1.0, 5.0):
        assert Logistic().strong_convexity(radius) == pytest.approx(1 / (2 + 2 * math.exp(radius)))
    assert Logistic().strong_convexity(1e6) == 0.0


# Checking targets and parameters


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (Squared(), [[0], [1], [2], [np.nan]], r"target in row 3 is nan, expected a finite number\. Drop the row"),
        (Squared(n_outputs=2), [[0, 1], [0, -np.inf]], r"row 1, column 1 is -inf, expected a finite number"),
        (Poisson(), [[0], [2], [-1], [-2]], r"row 2 is -1, expected a count of at least 0\. .*Squared\(\)"),
        (Logistic(), [[1], [-1], [0]], r"row 2 is 0, expected -1 or \+1\. .*SGBClassifier"),
        (Hinge(n_outputs=2), [[1, -1], [1, 2]], r"row 1, column 1 is 2, expected -1 or \+1"),
        (Softmax(3), [[0], [3]], r"row 1 is 3, expected a class index, a whole number from 0 and below 3"),
        (Softmax(3), [[0.5]], r"row 0 is 0\.5, expected a class index"),
        (Softmax(3), [[0], [-1]], r"row 1 is -1, expected a class index"),
        (Softmax(3), [[0, 0, 1]], r"targets have shape \(1, 3\), expected \(n, 1\) for Softmax\("),
        (Squared(), [[1, 2]], r"targets have shape \(1, 2\), expected \(n, 1\) for Squared\("),
        (Squared(n_outputs=3), [1, 2, 3], r"targets have shape \(3,\), expected \(n, 3\).*pass y\[:, None\]"),
    ],
)
def test_targets_that_a_loss_cannot_learn_from_are_refused_by_row(loss, y, message):
    with pytest.raises(ValueError, match=message):
        loss.check_targets(np.array(y, dtype=float))


@every_loss
@fast
@given(data=st.data())
def test_targets_in_the_right_coding_pass(loss, data):
    assert loss.check_targets(data.draw(targets(loss, 4))) is None
    assert loss.check_targets(np.empty((0, loss.n_targets))) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Squared(l2=-1), r"l2 is -1, expected a finite number of at least 0"),
        (lambda: Squared(l2=math.nan), r"l2 is nan"),
        (lambda: Hinge(n_outputs=0), r"n_outputs is 0, expected a whole number of at least 1"),
        (lambda: Hinge(n_outputs=1.5), r"n_outputs is 1\.5, expected a whole number"),
        (lambda: Quantile(tau=1), r"tau is 1, expected a number between 0 and 1"),
        (lambda: Quantile(tau=0.0), r"tau is 0\.0"),
        (lambda: Huber(delta=0), r"delta is 0, expected a finite number above 0"),
        (lambda: Huber(delta=math.inf), r"delta is inf, .*Squared\(\)"),
        (lambda: Softmax(0), r"n_classes is 0, expected a whole number of at least 1"),
        (lambda: by_name("squared"), r"loss is 'squared', expected one of 'squared_error', .*'hinge'"),
    ],
)
def test_impossible_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# A loss as a value


@every_loss
def test_a_loss_survives_pickle_and_copy_and_cannot_be_changed(loss):
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert twin == loss
        assert hash(twin) == hash(loss)
        assert vars(twin) == vars(loss)
    with pytest.raises(AttributeError):
        loss.l2 = 5.0
    with pytest.raises(AttributeError):
        loss.anything = 5.0


def test_losses_are_equal_by_type_and_parameters():
    assert len(set(LOSSES)) == len(LOSSES)
    assert Quantile(0.5) == Quantile(tau=0.5)
    assert Quantile(0.5) != Quantile(0.6)
    assert Squared() != Huber()
    assert Squared(n_outputs=2) != Squared()
    assert eval(repr(Softmax(3, l2=0.5))) == Softmax(3, l2=0.5)
    assert eval(repr(Huber(0.3, n_outputs=2))) == Huber(0.3, n_outputs=2)


def test_parameters_are_kept_as_plain_numbers():
    made = [
        Quantile(np.float32(0.5), l2=np.float64(1)),
        Huber(2, n_outputs=np.int64(3)),
        Softmax(np.int32(3), l2=1),
    ]
    for loss in made:
        assert {type(value) for value in vars(loss).values()} == {int, float}


@pytest.mark.parametrize("name", NAMES)
def test_by_name_makes_the_class_of_that_name(name):
    options = {"n_classes": 3} if name == "log_loss" else {"n_outputs": 3}
    loss = by_name(name, l2=0.1, **options)
    assert type(loss) is NAMES[name]
    assert (loss.name, loss.n_outputs, loss.l2) == (name, 3, 0.1)


def test_the_names_are_those_of_scikit_learn_where_it_has_one():
    assert set(NAMES) == {
        "squared_error", "absolute_error", "huber", "quantile", "poisson", "log_loss", "logistic", "hinge",
    }  # fmt: skip


def test_only_losses_with_kinks_are_not_smooth():
    assert {name for name, kind in NAMES.items() if not kind.smooth} == {"absolute_error", "quantile", "hinge"}


# Anyone's own loss


def test_a_pair_of_functions_is_a_loss_like_any_other():
    ours = Squared(n_outputs=2, l2=0.1)
    theirs = from_functions(
        lambda score, y: 0.5 * ((score - y) ** 2).sum(axis=-1),
        lambda score, y: score - y,
        smooth=True,
        n_outputs=2,
        l2=0.1,
        strong_convexity=1.0,
        smoothness=1.0,
    )
    rng = np.random.default_rng(5)
    score, y = rng.normal(size=(6, 4, 2)), rng.normal(size=(6, 1, 2))
    np.testing.assert_allclose(theirs.value(score, y), ours.value(score, y))
    np.testing.assert_allclose(theirs.gradient(score, y), ours.gradient(score, y))
    np.testing.assert_allclose(theirs.start(y[:, 0]), ours.start(y[:, 0]))
    assert theirs.strong_convexity() == ours.strong_convexity()
    assert theirs.smoothness() == ours.smoothness()
    assert theirs.gradient_bound() == math.inf
    assert theirs.unit(y[:, 0]) == ours.unit(y[:, 0])
    assert (theirs.name, theirs.smooth, theirs.link) == ("custom", True, Identity())
    testing.check_loss(log_cosh(n_outputs=3, l2=0.3))


def test_functions_of_the_wrong_shape_are_refused_with_that_shape():
    unsummed = from_functions(
        lambda score, y: (score - y) ** 2, lambda score, y: (score - y)[..., 0], smooth=True, name="mine", n_outputs=3
    )
    score, y = np.zeros((5, 3)), np.zeros((5, 3))
    with pytest.raises(ValueError, match=r"loss 'mine' returned shape \(5, 3\), expected \(5,\).*\.sum\(axis=-1\)"):
        unsummed.value(score, y)
    with pytest.raises(ValueError, match=r"loss 'mine' returned shape \(5,\), expected \(5, 3\)"):
        unsummed.gradient(score, y)


def test_a_gradient_function_that_returns_its_input_is_copied():
    loss = from_functions(lambda score, y: 0.5 * (score**2).sum(axis=-1), lambda score, y: score, smooth=True)
    score = np.ones((3, 1))
    assert not np.shares_memory(loss.gradient(score, np.zeros((3, 1))), score)


def test_a_link_of_ones_own_turns_scores_into_predictions():
    class Root(Link):
        def predict(self, score):
            return np.square(score)

        def score(self, prediction):
            return np.sqrt(prediction)

    loss = from_functions(log_cosh_value, log_cosh_gradient, smooth=True, link=Root())
    np.testing.assert_array_equal(loss.predict(np.array([[3.0]])), [[9.0]])
    assert loss.unit(np.array([[1.0], [5.0]])) == 1.0


def test_a_subclass_needs_only_the_two_bare_methods():
    class FirstClass(Loss):
        name, smooth = "first_class", True

        def bare_value(self, score, y):
            return -log_softmax(score, axis=-1)[..., 0]

        def bare_gradient(self, score, y):
            return softmax(score, axis=-1) - [1.0, 0.0]

    loss, score, y = FirstClass(n_outputs=2, l2=0.5), np.array([[0.0, 1.0]]), np.zeros((1, 2))
    np.testing.assert_allclose(loss.value(score, y), math.log(1 + math.e) + 0.5)
    np.testing.assert_allclose(loss.gradient(score, y), [[-math.e / (1 + math.e), math.e / (1 + math.e) + 1]])
    assert (loss.strong_convexity(), loss.smoothness(), loss.gradient_bound(1.0)) == (1.0, math.inf, math.inf)
    assert repr(loss).endswith("FirstClass(n_outputs=2, l2=0.5)")
    assert loss == FirstClass(n_outputs=2, l2=0.5) != FirstClass(n_outputs=2)


@pytest.mark.parametrize("loss", [Absolute(n_outputs=2), Quantile(n_outputs=2, tau=0.8), Huber(n_outputs=2)], ids=repr)
def test_the_unit_of_a_robust_loss_is_the_deviation_of_normal_targets_whatever_the_tails(loss):
    y = np.random.default_rng(0).normal(5.0, 3.0, size=(20_000, 2))
    assert loss.unit(y) == pytest.approx(3.0, rel=0.03)
    y[:200] = 1e9
    assert loss.unit(y) == pytest.approx(3.0, rel=0.05)
    assert loss.unit(y, np.r_[np.zeros(200), np.ones(19_800)]) == pytest.approx(3.0, rel=0.03)
    assert loss.unit(np.array([[0.0, 0.0]] * 9 + [[10.0, 10.0]])) == pytest.approx(3.0)  # most are equal: as others do


@given(st.floats(-30, 30), st.integers(0, 10**6))
def test_a_newton_step_of_poisson_is_never_longer_than_2(score, count):
    s, y = np.array([score]), np.array([float(count)])
    assert abs(Poisson().gradient(s, y)[0]) <= 2.0 * Poisson().step_curvature(s, y)[0] * (1 + 1e-12)
