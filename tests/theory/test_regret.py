import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from streamboost import theory
from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.descents import (
    Ball,
    FrankWolfe,
    GradientDescent,
    Nesterov,
    ResidualProjection,
    theoretical_step,
)
from streamboost.losses import Absolute, Hinge, Logistic, Poisson, Softmax, Squared
from streamboost.replay import Replay
from streamboost.stacks import LinearStack, TreeStack
from streamboost.theory import (
    RegretMeter,
    answer_bound,
    comparator_scores,
    contraction,
    diagnose,
    measure_regret,
    nonsmooth_bound,
    prefix_scores,
    residual_bound,
    smooth_bound,
)

edges_above_0 = st.floats(0.01, 1.0)


# The bounds.


@given(edges_above_0, st.floats(0.01, 1.0), st.floats(1.0, 100.0), st.floats(0.0, 10.0), st.integers(0, 40))
def test_the_smooth_bound_is_theorem_1_multiplied_out(gamma, lam, beta, B, N):
    bound = 2 * B
    for _ in range(N):
        bound *= 1 - gamma**2 * lam / (16 * beta)
    assert smooth_bound(N, gamma, lam, beta, B) == pytest.approx(bound, rel=1e-9)


@given(edges_above_0, st.floats(0.01, 10.0), st.floats(0.0, 10.0), st.integers(1, 1000))
def test_the_nonsmooth_bound_is_the_last_line_of_its_proof(gamma, lam, G, N):
    c = 2 / gamma - 1
    proof = 4 * c**2 * G**2 / (N * lam) * (1 + math.log(N)) + c**2 * G**2 / (2 * N**2 * lam)
    assert nonsmooth_bound(N, gamma, lam, G) == pytest.approx(proof, rel=1e-9)


def test_bounds_take_several_numbers_of_learners_and_edges_at_once():
    N, gamma = np.array([1, 5, 9]), np.array([0.9, 0.5, 0.1])
    smooth, nonsmooth = smooth_bound(N, gamma, 1.0, 2.0, 3.0), nonsmooth_bound(N, gamma, 1.0, 2.0)
    for k in range(3):
        assert smooth[k] == smooth_bound(N[k], gamma[k], 1.0, 2.0, 3.0)
        assert nonsmooth[k] == nonsmooth_bound(N[k], gamma[k], 1.0, 2.0)


@given(edges_above_0, st.floats(0.01, 1.0), st.floats(1.0, 50.0), st.floats(1e-4, 10.0))
def test_no_step_contracts_more_than_the_one_of_theorem_1(gamma, lam, beta, other):
    eta = theoretical_step(np.array([gamma]), beta)[0]
    best = contraction(gamma, eta, lam, beta)
    assert best == pytest.approx(1 - gamma**2 * lam / (beta * (16 - 8 * gamma)))
    assert best <= contraction(gamma, other, lam, beta) + 1e-12
    assert 2 * 1.0 * best**7 <= smooth_bound(7, gamma, lam, beta, 1.0) + 1e-12


@given(edges_above_0, st.floats(0.1, 10.0), st.floats(0.0, 5.0))
def test_the_residual_ratio_is_the_positive_root_of_the_lemmas_quadratic(gamma, G, excess):
    roots = np.roots([gamma, 2 * gamma - 2, gamma - 1 - excess / G**2])
    c = max(roots.real.max(), 0.0)
    assert residual_bound(gamma, G, excess) == pytest.approx((c * G) ** 2, rel=1e-6, abs=1e-6)
    assert answer_bound(gamma, G, excess) == pytest.approx((4 - 2 * gamma) * (1 + c) ** 2 * G**2 + 2 * excess, rel=1e-6)


@given(edges_above_0)
def test_the_triangle_inequality_gives_theorem_2_what_the_lemma_promised_it(gamma):
    # The lemma ends with (4 − 2γ)(1 + c)² ≤ 4c², which is false; the proof needs its claim for c = 2/γ − 1 only.
    c = math.sqrt(residual_bound(gamma, 1.0))
    assert answer_bound(gamma, 1.0) > 4 * c**2
    assert (1 + 2 * c) ** 2 <= answer_bound(gamma, 1.0) * (1 + 1e-9)
    assert (1 + 2 * c) ** 2 <= 4 * (2 / gamma - 1) ** 2 * (1 + 1e-9)
    assert c <= 2 / gamma - 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: smooth_bound(3, 0.0, 1.0, 1.0, 1.0), "edge is 0.0"),
        (lambda: smooth_bound(3, 1.1, 1.0, 1.0, 1.0), "edge is 1.1"),
        (lambda: smooth_bound(3, math.nan, 1.0, 1.0, 1.0), "edge is nan"),
        (lambda: smooth_bound(-1, 0.5, 1.0, 1.0, 1.0), "n_learners is -1"),
        (lambda: smooth_bound(2.5, 0.5, 1.0, 1.0, 1.0), "n_learners is 2.5"),
        (lambda: smooth_bound(3, 0.5, 0.0, 1.0, 1.0), "strong_convexity is 0.0"),
        (lambda: smooth_bound(3, 0.5, 2.0, 1.0, 1.0), "strong_convexity is 2.0 and smoothness 1.0"),
        (lambda: smooth_bound(3, 0.5, 1.0, math.inf, 1.0), "use nonsmooth_bound"),
        (lambda: smooth_bound(3, 0.5, 1.0, 1.0, -1.0), "loss_bound is -1.0"),
        (lambda: nonsmooth_bound(0, 0.5, 1.0, 1.0), "n_learners is 0"),
        (lambda: nonsmooth_bound(1, 0.5, 0.0, 1.0), "strong_convexity is 0.0"),
        (lambda: nonsmooth_bound(1, 0.5, 1.0, math.inf), "gradient_bound is inf"),
        (lambda: residual_bound(0.5, 0.0), "gradient_bound is 0.0"),
        (lambda: residual_bound(0.5, 1.0, excess=-1.0), "excess is -1.0"),
        (lambda: contraction(0.5, 0.0, 1.0, 1.0), "step is 0.0"),
    ],
)
def test_impossible_constants_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# The theorems, on learners made up to have an edge and nothing more: each says its target plus an error of random
# direction whose length makes Definition 1 an equality.


def say(target, gamma, rng):
    error = rng.normal(size=target.shape)
    error *= np.linalg.norm(target, axis=1, keepdims=True) / np.linalg.norm(error, axis=1, keepdims=True)
    return target + math.sqrt(1 - gamma) * error


def made_up_run(descent, loss, y, gamma, N, eta, seed):
    """Algorithm 1 or 2, learner by learner: the walk (n, N + 1, m) and the answers (n, N, m)."""
    rng = np.random.default_rng(seed)
    h = np.zeros((len(y), 0, y.shape[1]))
    y0 = np.zeros_like(y)
    for i in range(N):
        target = descent.next_target(descent.walk(y0, h, eta[:i]), h, loss, y)
        h = np.concatenate([h, say(target, gamma, rng)[:, None]], axis=1)
    return descent.walk(y0, h, eta), h


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 1.0), st.integers(1, 3))
def test_theorem_1_holds_for_any_learners_with_an_edge(seed, gamma, m):
    loss, descent, N = Squared(n_outputs=m), GradientDescent(), 12
    y = np.random.default_rng(seed).normal(size=(20, m))
    walk, _ = made_up_run(descent, loss, y, gamma, N, theoretical_step(np.full(N, gamma), 1.0), seed)
    values = loss.value(walk, y[:, None])  # the least loss is 0, at y
    bound = smooth_bound(np.arange(N + 1), gamma, 1.0, 1.0, values.max())
    assert (values.mean(axis=0) <= bound).all()
    best = contraction(gamma, theoretical_step(np.array([gamma]), 1.0)[0], 1.0, 1.0)
    assert (values.mean(axis=0)[1:] <= best * values.mean(axis=0)[:-1] * (1 + 1e-9)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 1.0), st.sampled_from([None, Ball(2.5)]), st.integers(1, 3))
def test_theorem_2_and_its_lemma_hold_for_any_learners_with_an_edge(seed, gamma, domain, m):
    loss, N = Absolute(n_outputs=m, l2=0.25), 20
    descent = ResidualProjection(domain=domain)
    y = np.random.default_rng(seed).uniform(-1, 1, size=(20, m))
    eta = 2.0 / np.arange(1, N + 1)  # 1/(λ i) with λ = 0.5
    walk, h = made_up_run(descent, loss, y, gamma, N, eta, seed)
    G = np.linalg.norm(loss.gradient(walk[:, :-1], y[:, None]), axis=2).max()
    residuals = descent.residuals(walk, h, loss, y)
    assert (np.mean(residuals**2, axis=0).sum(axis=1) <= residual_bound(gamma, G) + 1e-9).all()
    assert (np.mean(h**2, axis=0).sum(axis=1) <= answer_bound(gamma, G) + 1e-9).all()
    for k in range(1, N + 1):
        regret = loss.mean(walk[:, :k].mean(axis=1), y) - loss.mean(y, y)  # y itself is the best score here
        assert regret <= nonsmooth_bound(k, gamma, 0.5, G)


# The meter.


def random_walk(seed, n=30, N=4, m=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, N + 1, m)), rng.normal(size=(n, m)), rng.uniform(0.5, 2.0, size=n)


@pytest.mark.parametrize("descent", [GradientDescent(), ResidualProjection(), Nesterov(), FrankWolfe(readout="mean")])
def test_prefix_scores_are_the_scores_of_every_prefix(descent):
    walk, _, _ = random_walk(0)
    scores = prefix_scores(descent, walk)
    for k in range(walk.shape[1]):
        np.testing.assert_allclose(scores[:, k], descent.score(walk[:, : k + 1]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([GradientDescent(), ResidualProjection()]), st.integers(1, 30))
def test_the_meter_gives_the_average_regret_of_every_prefix_and_row(seed, descent, chunk):
    walk, y, weight = random_walk(seed)
    loss, best = Absolute(n_outputs=2, l2=0.1), np.zeros((30, 2))
    meter = RegretMeter(loss, descent)
    for start in range(0, 30, chunk):
        rows = slice(start, start + chunk)
        meter.add(walk[rows], y[rows], weight[rows])
    regret = meter.against(best, np.zeros((30, 1)), y, weight)
    assert regret.rows[-1] == 30
    for n, averages in zip(regret.rows, regret.averages, strict=True):
        for k, average in enumerate(averages):
            mine = loss.mean(descent.score(walk[:n, : k + 1]), y[:n], weight[:n])
            assert average == pytest.approx(mine - loss.mean(best[:n], y[:n], weight[:n]))


def test_the_meter_remembers_the_largest_loss_gradient_and_score():
    walk, y, _ = random_walk(3)
    loss = Squared(n_outputs=2)
    meter = RegretMeter(loss, GradientDescent())
    meter.add(walk[:10], y[:10])
    meter.add(walk[10:], y[10:])
    assert meter.loss_bound == max(loss.value(walk[t, i], y[t]) for t in range(30) for i in range(5))
    assert meter.gradient_bound == pytest.approx(
        max(np.linalg.norm(loss.gradient(walk[t, i], y[t])) for t in range(30) for i in range(4))
    )
    assert meter.radius == pytest.approx(max(np.linalg.norm(walk[t, i]) for t in range(30) for i in range(5)))


def test_the_meter_keeps_few_points_of_a_long_stream():
    walk, y, _ = random_walk(4, n=20_000, N=1, m=1)
    meter = RegretMeter(Squared(), GradientDescent())
    meter.add(walk, y)
    rows = meter.losses.rows
    assert len(rows) < 250
    assert rows[0] == 1
    assert rows[-1] == 20_000
    assert (np.diff(rows) <= np.maximum(1, np.ceil(0.05 * rows[:-1]))).all()


def test_rows_without_weight_do_not_count_and_none_at_all_average_to_nothing():
    walk, y, _ = random_walk(5, n=3)
    meter = RegretMeter(Squared(n_outputs=2), GradientDescent())
    meter.add(walk, y, np.array([0.0, 1.0, 0.0]))
    assert np.isnan(meter.losses.averages[0]).all()
    np.testing.assert_allclose(meter.losses.averages[-1], Squared(n_outputs=2).value(walk[1], y[1]))


def test_a_single_target_needs_no_column_of_its_own():
    walk, y, _ = random_walk(6, m=1)
    flat, column = (RegretMeter(Squared(), GradientDescent()) for _ in range(2))
    flat.add(walk, y[:, 0])
    column.add(walk, y)
    X, best = np.zeros((30, 1)), np.ones(30)
    np.testing.assert_array_equal(flat.against(best, X, y[:, 0]).averages, column.against(best, X, y).averages)


def test_the_meter_wants_rows_and_the_same_ones_again():
    meter = RegretMeter(Squared(), GradientDescent())
    with pytest.raises(ValueError, match="no row yet"):
        _ = meter.losses
    meter.add(np.zeros((0, 3, 1)), np.zeros((0, 1)))
    assert meter.n_rows == 0
    meter.add(np.zeros((2, 3, 1)), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="y has 3 rows, expected the 2"):
        meter.against(np.zeros(3), np.zeros((3, 1)), np.zeros((3, 1)))


# Comparators.


def classes(seed=0, n=120):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)


def test_arrays_functions_and_regressors_are_taken_at_their_word():
    X = np.random.default_rng(0).normal(size=(10, 2))
    model = LinearRegression().fit(X, X[:, 0])
    expected = model.predict(X)[:, None]
    for comparator in (model, model.predict, expected, expected[:, 0]):
        np.testing.assert_array_equal(comparator_scores(comparator, X, Squared()), expected)


def test_a_classifier_speaks_in_log_odds_for_the_logistic_loss():
    X, y = classes()
    model = LogisticRegression().fit(X, y)
    np.testing.assert_allclose(comparator_scores(model, X, Logistic())[:, 0], model.decision_function(X), rtol=1e-6)


def test_a_classifier_speaks_in_log_probabilities_for_softmax():
    X, y = classes()
    model = GaussianNB().fit(X, y)
    scores = comparator_scores(model, X, Softmax(n_classes=2))
    np.testing.assert_allclose(Softmax(n_classes=2).predict(scores), model.predict_proba(X), atol=1e-12)


def test_a_margin_loss_listens_to_margins_or_else_log_odds():
    X, y = classes()
    svm, bayes = LinearSVC().fit(X, y), GaussianNB().fit(X, y)
    np.testing.assert_array_equal(comparator_scores(svm, X, Hinge())[:, 0], svm.decision_function(X))
    odds = np.log(bayes.predict_proba(X)[:, 1] / bayes.predict_proba(X)[:, 0])
    np.testing.assert_allclose(comparator_scores(bayes, X, Hinge())[:, 0], odds, rtol=1e-6)


def test_a_mean_becomes_a_score_behind_a_logarithmic_link():
    X, _ = classes()
    model = PoissonRegressor().fit(X, np.random.default_rng(0).poisson(np.exp(X[:, 0])))
    np.testing.assert_allclose(np.exp(comparator_scores(model, X, Poisson())[:, 0]), model.predict(X))


def test_a_comparator_of_the_wrong_shape_is_refused_before_the_booster_learns():
    booster = linear_booster()
    with pytest.raises(ValueError, match=r"scores of shape \(5, 2\), expected \(5, 1\)"):
        measure_regret(booster, np.zeros((5, 1)), np.zeros(5), np.zeros((5, 2)))
    assert booster.n_rows == 0


# A measured run.


def linear_booster(N=5, descent=None, loss=None, **options):
    descent = GradientDescent(0.1) if descent is None else descent
    return Booster(loss or Squared(), descent, LinearStack(N), base=Constant(0), **options)


def tree_booster(N=5):
    replay = Replay(None, refit_every=20, targets="recorded", learners="all", warmup=20)
    return Booster(Squared(), GradientDescent(0.2), TreeStack(N, max_depth=2), base=Constant(0), replay=replay)


def rows(n=150, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, X @ [1.0, -2.0, 0.5] + np.sin(3 * X[:, 0])


@pytest.mark.parametrize(
    "make",
    [
        linear_booster,
        tree_booster,
        lambda: linear_booster(descent=ResidualProjection(0.5, domain=Ball(4.0)), loss=Absolute()),
        lambda: linear_booster(iterate="average", snapshots=8),
    ],
)
def test_measured_regret_is_that_of_the_scores_made_before_learning(make):
    X, y = rows()
    booster, twin = make(), make()
    best = np.full(len(y), y.mean())
    regret = measure_regret(booster, X, y, best)
    before = twin.learn(X, y)
    gap = booster.loss.value(before, y[:, None]) - booster.loss.value(best[:, None], y[:, None])
    assert regret.by_learners[-1] == pytest.approx(gap.mean())
    assert regret.comparator_loss == pytest.approx(booster.loss.mean(best[:, None], y[:, None]))
    for n, average in zip(*regret.over_rows, strict=True):
        assert average == pytest.approx(gap[:n].mean())
    np.testing.assert_array_equal(booster.score(X), twin.score(X))


@pytest.mark.parametrize("make", [linear_booster, tree_booster])
def test_one_run_tells_the_regret_of_every_smaller_booster(make):
    X, y = rows()
    long, short = (measure_regret(make(N), X, y, y) for N in (6, 3))
    np.testing.assert_allclose(long.by_learners[:4], short.by_learners)
    np.testing.assert_allclose(long.edges[:3], short.edges)


def test_chunks_are_predicted_before_any_of_their_rows_is_learned():
    X, y = rows(60)
    booster, twin = (linear_booster(update_mode="minibatch") for _ in range(2))
    regret = measure_regret(booster, X, y, y, chunk=20)
    before = np.concatenate([twin.learn(X[s : s + 20], y[s : s + 20]) for s in (0, 20, 40)])
    assert regret.by_learners[-1] == pytest.approx(Squared().mean(before, y[:, None]))


def test_only_the_rows_given_are_measured():
    X, y = rows(200)
    booster = linear_booster()
    booster.learn(X[:100], y[:100])
    twin = copy.deepcopy(booster)
    regret = measure_regret(booster, X[100:], y[100:], y[100:])
    missed, size = np.zeros(5), np.zeros(5)
    for x, target in zip(X[100:], y[100:], strict=True):
        h = twin.stack.predict(x[None])[0, :, 0]
        wanted = twin.walk(x[None])[0, :-1, 0] - target  # the gradient of the square loss
        missed += (wanted - h) ** 2
        size += wanted**2
        twin.learn(x[None], np.array([target]))
    np.testing.assert_allclose(regret.edges, 1 - missed / size)
    assert regret.over_rows.rows[-1] == 100


def test_weights_weigh_the_regret():
    X, y = rows(80)
    weight = np.random.default_rng(1).uniform(0.1, 3.0, size=80)
    regret = measure_regret(linear_booster(), X, y, np.zeros(80), weight=weight)
    before = linear_booster().learn(X, y, weight)
    gap = Squared().value(before, y[:, None]) - Squared().value(np.zeros((80, 1)), y[:, None])
    assert regret.by_learners[-1] == pytest.approx(np.average(gap, weights=weight))


def test_the_bound_is_the_theorem_of_the_descent_at_the_weakest_edge_so_far():
    X, y = rows(400)
    booster = linear_booster(8)
    booster.learn(X[:200], y[:200])
    smooth = measure_regret(booster, X[200:], y[200:], y[200:])
    weakest = [smooth.edges[:k].min() for k in range(1, 9)]
    assert min(weakest) > 0
    expected = [2 * smooth.loss_bound * (1 - g**2 / 16) ** k for k, g in enumerate(weakest, start=1)]
    np.testing.assert_allclose(smooth.bound, [2 * smooth.loss_bound, *expected])

    booster = linear_booster(2, descent=ResidualProjection(domain=Ball(10.0)), loss=Absolute(l2=0.5))
    booster.learn(X[:200], y[:200])
    nonsmooth = measure_regret(booster, X[200:], y[200:], y[200:])
    assert nonsmooth.edges[0] > 0
    assert nonsmooth.bound[0] == math.inf
    c, G = 2 / nonsmooth.edges[0] - 1, nonsmooth.gradient_bound
    assert nonsmooth.bound[1] == pytest.approx(4 * c**2 * G**2 * (1 + 1 / 8))


def test_a_loss_curved_only_nearby_is_judged_by_the_scores_it_met():
    X, y = classes(n=60)
    u = 2.0 * y - 1.0
    regret = measure_regret(linear_booster(2, loss=Logistic()), X, u, 3.0 * u)
    strength = 1 / (2 + 2 * math.exp(3.0))  # the comparator's scores are the longest
    gamma = regret.edges[0]
    assert regret.bound[1] == pytest.approx(2 * regret.loss_bound * (1 - gamma**2 * strength / (16 * 0.25)))


def test_where_no_theorem_speaks_the_bound_is_infinite():
    X, y = rows(30)
    for descent, loss in [
        (FrankWolfe(), Squared()),
        (GradientDescent(readout="mean"), Squared()),
        (GradientDescent(), Absolute(l2=0.1)),
        (ResidualProjection(), Absolute()),
    ]:
        regret = measure_regret(linear_booster(3, descent=descent, loss=loss), X, y, y)
        assert np.isinf(regret.bound).all()


@given(st.lists(edges_above_0 | st.floats(-3.0, 0.0), min_size=1, max_size=8))
def test_a_bound_is_finite_as_long_as_every_edge_is_above_0(edges):
    for loss, descent in ((Squared(), GradientDescent("theory")), (Absolute(l2=0.5), ResidualProjection())):
        meter = RegretMeter(loss, descent)
        meter.add(np.ones((2, len(edges) + 1, 1)), np.zeros((2, 1)))
        bound = theory.regret._theorem_bound(meter, np.array(edges))
        assert bound[0] == (2 * meter.loss_bound if isinstance(loss, Squared) else math.inf)  # no learner that fails
        for k in range(1, len(edges) + 1):
            assert np.isfinite(bound[k]) == all(edge > 0 for edge in edges[:k])


@pytest.mark.parametrize(
    ("X", "y", "options", "words"),
    [
        (np.zeros(3), np.zeros(3), {}, r"X has shape \(3,\)"),
        (np.zeros((3, 1)), np.zeros(2), {}, r"X has 3 rows and y has shape \(2, 1\)"),
        (np.zeros((0, 1)), np.zeros(0), {}, "X has no rows"),
        (np.zeros((3, 1)), np.zeros(3), {"weight": np.ones(2)}, r"weight has shape \(2,\)"),
        (np.zeros((3, 1)), np.zeros(3), {"chunk": 0}, "chunk is 0"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(X, y, options, words):
    with pytest.raises(ValueError, match=words):
        measure_regret(linear_booster(), X, y, lambda X: np.zeros(len(X)), **options)


# Advice.


def booster_with(edges, n_rows=1000):
    return SimpleNamespace(n_rows=n_rows, edges=SimpleNamespace(recent=np.array(edges, dtype=float)))


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([0.5, 0.3, 0.21], "Every learner earns an edge (weakest 0.21): more learners may help."),
        (
            [0.5, 0.3, 0.001, -0.01, 0.0],
            "Learners 1 and 2 earn an edge (weakest 0.30). "
            "Learners 3 to 5 earn no edge: N is larger than this stream needs.",
        ),
        (
            [0.5, 0.2, np.nan],
            "Learners 1 and 2 earn an edge (weakest 0.20). "
            "Learner 3 earns no edge: N is larger than this stream needs.",
        ),
        (
            [0.5, 0.3, -0.12, 0.2],
            "Learners 1, 2 and 4 earn an edge (weakest 0.20). "
            "Learner 3 does harm (edge -0.12): lower the learning rate, or make the learners simpler.",
        ),
        (
            [0.5, 0.0, 0.2, -0.1, -0.3],
            "Learners 1 and 3 earn an edge (weakest 0.20). Learner 2 earns no edge. Learners 4 and 5 do harm "
            "(edges down to -0.30): lower the learning rate, or make the learners simpler.",
        ),
        (
            [0.4, 0.0, 0.3, 0.0, 0.2, 0.0],
            "Learners 1, 3 and 5 earn an edge (weakest 0.20). Learners 2 and 4 earn no edge. "
            "Learner 6 earns no edge: N is larger than this stream needs.",
        ),
        (  # a tail that wavers around 0 is one tail
            [0.5, 0.3, 0.004, 0.02, -0.06, 0.0, 0.015, -0.07],
            "Learners 1 and 2 earn an edge (weakest 0.30). "
            "Learners 3 to 8 earn no edge: N is larger than this stream needs.",
        ),
        ([np.nan, np.nan], "No learner had anything to explain: the base leaves nothing."),
        (
            [0.0, 0.001, np.nan],
            "No learner earns an edge: what the base leaves is noise, or out of these learners' reach.",
        ),
        (
            [-0.2],
            "No learner earns an edge: what the base leaves is noise, or out of these learners' reach. "
            "Learner 1 does harm (edge -0.20): lower the learning rate, or make the learners simpler.",
        ),
    ],
)
def test_the_diagnosis_puts_the_edges_into_words(edges, words):
    assert diagnose(booster_with(edges)) == words


def test_the_diagnosis_waits_for_rows():
    assert diagnose(booster_with([0.5], n_rows=12)).startswith("Too few rows yet (12)")
    fresh = linear_booster()
    assert diagnose(fresh).startswith("Too few rows yet (0)")


def test_the_largest_loss_met_is_that_of_the_comparator_too():
    """B bounds the losses of all that the theorem compares: a comparator that is far off has the largest."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    regret = measure_regret(linear_booster(), X, X[:, 0], comparator=lambda X: X[:, 0] + 100.0)
    assert regret.loss_bound == pytest.approx(Squared().value(np.array([100.0]), np.array([0.0])))
