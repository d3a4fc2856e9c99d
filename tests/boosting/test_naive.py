"""The booster against the paper, line by line: every loss, every stack, Algorithms 1, 2 and 3."""

import math

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose
from river import linear_model
from sklearn.linear_model import Ridge, SGDRegressor

from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.descents import AdaGrad, Ball, Box, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.replay import Replay
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack

D, N = 2, 3
TREE = {"max_depth": 2, "min_samples_leaf": 2, "l2": 0.5}

# Losses, each beside its gradient by hand

BARE = [
    (Squared(), naive.squared),
    (Squared(n_outputs=2), naive.squared),
    (Absolute(), naive.absolute),
    (Huber(delta=0.7), naive.huber(0.7)),
    (Quantile(tau=0.3), naive.quantile(0.3)),
    (Poisson(), naive.poisson),
    (Logistic(), naive.logistic),
    (Hinge(), naive.hinge),
    (Softmax(n_classes=3), naive.softmax),
]
L2 = 0.6
RIDGED = [
    (Squared(n_outputs=2, l2=L2), naive.squared, lambda radius: 1.0),
    (Absolute(n_outputs=2, l2=L2), naive.absolute, lambda radius: 0.0),
    (Huber(delta=0.7, l2=L2), naive.huber(0.7), lambda radius: 0.0),
    (Quantile(tau=0.3, l2=L2), naive.quantile(0.3), lambda radius: 0.0),
    (Poisson(l2=L2), naive.poisson, lambda radius: math.exp(-radius)),
    (Logistic(n_outputs=2, l2=L2), naive.logistic, lambda radius: 1 / (2 + 2 * math.exp(radius))),
    (Hinge(l2=L2), naive.hinge, lambda radius: 0.0),
    (Softmax(n_classes=3, l2=L2), naive.softmax, lambda radius: 0.0),
]


def stream_for(loss, n=24, seed=0):
    """Rows without ties, and targets coded as the loss wants them, that depend on the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    signal = X @ rng.normal(size=(D, loss.n_outputs)) + np.sin(3 * X[:, :1]) + 0.3 * rng.normal(size=(n, 1))
    if isinstance(loss, Softmax):
        y = signal.argmax(axis=1, keepdims=True).astype(float)
    elif isinstance(loss, (Logistic, Hinge)):
        y = np.where(signal > 0, 1.0, -1.0)
    elif isinstance(loss, Poisson):
        y = np.floor(np.exp(np.clip(signal, -1, 1.5)))
    else:
        y = signal
    return X, y


# Stacks, each beside N naive learners


def stump(X, target, weight):
    """The weighted mean of the target on either side of x₁ = 0, and a little of x₂."""
    sides = [X[:, 0] <= 0, X[:, 0] > 0]
    means = [weight[side] @ target[side] / (1 + weight[side].sum()) for side in sides]
    return lambda X: np.where(X[:, :1] <= 0, *means) + 0.1 * X[:, 1:2]


def river_line():
    return linear_model.LinearRegression()


def from_scratch(fit, n=N):
    return lambda m: [naive.FromScratch(m, fit) for _ in range(n)]


KINDS = {
    "linear rls": (lambda: LinearStack(N, standardize=False, ridge=0.7), from_scratch(naive.ridge(0.7))),
    "linear adagrad": (
        lambda: LinearStack(N, update="adagrad", standardize=False, rate=0.3, forget=0.9),
        lambda m: [naive.AdaGradLine(m, D, 0.3, 0.9) for _ in range(N)],
    ),
    "trees": (lambda: TreeStack(N, **TREE), from_scratch(naive.tree(**TREE))),
    "river": (lambda: RiverStack(river_line(), N), lambda m: [naive.RiverModels(m, river_line()) for _ in range(N)]),
    "partial_fit": (
        lambda: PartialFitStack(SGDRegressor(eta0=0.1), N),
        lambda m: [naive.PartialFits(m, SGDRegressor(eta0=0.1)) for _ in range(N)],
    ),
    "batch": (lambda: BatchStack(Ridge(alpha=0.4), N), from_scratch(naive.estimator(Ridge(alpha=0.4)))),
    "function": (lambda: FunctionStack(stump, N), from_scratch(stump)),
}

ROWS = dict.fromkeys(KINDS, 24) | {"trees": 16, "partial_fit": 8, "batch": 8}  # as many as are fast

# Algorithms, each beside its projection; None is Algorithm 1

DOMAINS = {
    "algorithm 1": None,
    "algorithm 2": (None, naive.anywhere),
    "algorithm 2 in a ball": (Ball(0.9), naive.onto_ball(0.9)),
    "algorithm 2 in a box": (Box(-0.35, 1.2), naive.onto_box(-0.35, 1.2)),
}


def compare(loss, gradient, kind, algorithm, *, start=0.0, weight=None, c=0.5, lam=None, n=24):
    """Feed both one row at a time; at every row the walks and the scores must be the same."""
    make, make_naive = KINDS[kind]
    X, y = stream_for(loss, n)
    weight = np.ones(n) if weight is None else weight
    stream = list(zip(X.tolist(), y.tolist(), weight.tolist(), strict=True))
    y_0 = [start] * loss.n_outputs
    if DOMAINS[algorithm] is None:
        descent = GradientDescent(c)
        run = naive.algorithm_1(stream, make_naive(loss.n_outputs), c, y_0, gradient)
    else:
        domain, project = DOMAINS[algorithm]
        if lam is not None:
            c = 1 / lam(domain.radius if domain else math.inf)
        descent = ResidualProjection(None if lam else c, domain)
        eta = [c / i for i in range(1, N + 1)]
        run = naive.algorithm_2(stream, make_naive(loss.n_outputs), eta, y_0, gradient, project)
    stack = make()
    replay = Replay.exact() if len(stack.refittable) else None
    booster = Booster(loss, descent, stack, base=Constant(start), replay=replay)
    booster.allocate(D, loss.n_targets)
    for t in range(n):
        walk = booster.walk(X[t : t + 1])[0]
        score = booster.learn(X[t : t + 1], y[t : t + 1], weight[t : t + 1])[0]
        assert_allclose(walk, run.walks[t], rtol=1e-10, atol=1e-10, err_msg=f"the walk at row {t}")
        assert_allclose(score, run.predictions[t], rtol=1e-10, atol=1e-10, err_msg=f"the score at row {t}")
    return run


@pytest.mark.pairwise(loss=BARE, kind=KINDS, algorithm=DOMAINS)
def test_every_row_of_the_booster_is_that_of_the_paper(loss, kind, algorithm):
    run = compare(*loss, kind, algorithm, n=ROWS[kind])
    assert np.ptp(run.predictions, axis=0).max() > 0.1  # something was learned, so something was compared


@pytest.mark.each(ridge=RIDGED, algorithm=DOMAINS)
def test_a_ridge_makes_the_steps_one_over_lambda_i(ridge, algorithm):
    loss, gradient, strength = ridge
    ridged = naive.with_ridge(gradient, L2)
    compare(loss, ridged, "linear rls", algorithm, lam=lambda radius: strength(radius) + 2 * L2)


@pytest.mark.each(kind=KINDS, algorithm=DOMAINS)
def test_the_walk_may_start_anywhere_and_rows_may_weigh_anything(kind, algorithm):
    weight = np.random.default_rng(5).choice([0.0, 0.5, 1.0, 3.0], size=16)
    assert (weight == 0).any()
    compare(Absolute(n_outputs=2), naive.absolute, kind, algorithm, start=0.6, weight=weight, n=16)


# Algorithm 3 and the last lines of Algorithm 1


@pytest.mark.parametrize("algorithm", DOMAINS)
@pytest.mark.parametrize("kind", ["linear rls", "trees"])
def test_averaging_all_hypotheses_is_algorithm_3(kind, algorithm):
    loss, gradient, start, n = Absolute(n_outputs=2), naive.absolute, 0.2, 20
    make, make_naive = KINDS[kind]
    X, y = stream_for(loss, n)
    stream = list(zip(X.tolist(), y.tolist(), np.ones(n).tolist(), strict=True))
    probes = np.random.default_rng(1).normal(size=(10, D))
    if DOMAINS[algorithm] is None:
        descent = GradientDescent(0.3)
        run = naive.algorithm_1(stream, make_naive(2), 0.3, [start] * 2, gradient)
        expected = [naive.average_of_algorithm_1(x, run.hypotheses, 0.3, [start] * 2) for x in probes.tolist()]
    else:
        domain, project = DOMAINS[algorithm]
        descent = ResidualProjection(0.5, domain)
        eta = [0.5 / i for i in range(1, N + 1)]
        run = naive.algorithm_2(stream, make_naive(2), eta, [start] * 2, gradient, project)
        expected = [naive.algorithm_3(x, run.hypotheses, eta, [start] * 2, project) for x in probes.tolist()]
    booster = Booster(
        loss,
        descent,
        make(),
        base=Constant(start),
        replay=Replay.exact() if kind == "trees" else None,
        iterate="average",
        snapshots=n,
    )
    booster.learn(X, y)
    assert_allclose(booster.score(probes), expected, rtol=1e-10, atol=1e-10)


# The other descents, one row at a time


def answers(n=6, n_learners=5, m=2):
    """What learners might say, with rows and coordinates where they say nothing."""
    rng = np.random.default_rng(3)
    h = rng.normal(size=(n, n_learners, m))
    h[0, 0], h[1], h[2, :, 0], h[3, 2] = 0.0, 0.0, 0.0, 0.0
    return h, rng.normal(size=(n, m)), rng.normal(size=(n, m))


@pytest.mark.parametrize("momentum", [None, 0.0, 0.8])
def test_nesterov_is_the_loop(momentum):
    h, y0, y = answers()
    descent = Nesterov(0.3, momentum)
    walk = descent.walk(y0, h, np.full(5, 0.3))
    targets = descent.targets(walk, h, Absolute(n_outputs=2), y)
    mu = (lambda i: min(i / (i + 3), 0.5)) if momentum is None else (lambda i: momentum)
    for t in range(len(h)):
        steps, ahead = naive.nesterov(h[t].tolist(), y0[t].tolist(), 0.3, mu)
        assert_allclose(walk[t], steps, atol=1e-12)
        assert_allclose(targets[t], [naive.absolute(v, y[t]) for v in ahead[:-1]], atol=1e-12)


@pytest.mark.parametrize(
    ("descent", "eta", "loop"),
    [
        (AdaGrad(0.4), np.full(5, 0.4), lambda h, y0: naive.adagrad(h, y0, 0.4)),
        (FrankWolfe(2.0), 2.0 * 2 / np.arange(2, 7), lambda h, y0: naive.frank_wolfe(h, y0, 2.0)),
    ],
    ids=["AdaGrad", "FrankWolfe"],
)
def test_adagrad_and_frank_wolfe_are_the_loop(descent, eta, loop):
    h, y0, y = answers()
    walk = descent.walk(y0, h, eta)
    targets = descent.targets(walk, h, Logistic(n_outputs=2), np.sign(y))
    for t in range(len(h)):
        steps = loop(h[t].tolist(), y0[t].tolist())
        assert_allclose(walk[t], steps, atol=1e-12)
        assert_allclose(targets[t], [naive.logistic(step, np.sign(y[t])) for step in steps[:-1]], atol=1e-12)
