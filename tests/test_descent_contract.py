"""What every descent promises, held for each of ours."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from streamboost import descents
from streamboost.descents import AdaGrad, Ball, Box, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import Squared

LOSS = Squared(n_outputs=2)
DESCENTS = [
    GradientDescent(),
    GradientDescent(0.3),
    GradientDescent("theory"),
    GradientDescent(0.3, readout="mean"),
    ResidualProjection(),
    ResidualProjection(0.5, Ball(2.0)),
    ResidualProjection(0.5, Box(-1.0, 2.0)),
    ResidualProjection(readout="last"),
    FrankWolfe(),
    FrankWolfe(1.5),
    Nesterov(),
    Nesterov(0.2, momentum=0.7),
    AdaGrad(),
    AdaGrad(0.4),
]


@pytest.fixture(params=DESCENTS, ids=repr)
def descent(request):
    return request.param


def schedule(descent, y, n_learners):
    """The step sizes when half of the edges are known."""
    edges = np.where(np.arange(n_learners) % 2, 0.5, np.nan)
    return descent.schedule(n_learners, LOSS, LOSS.scale(y), edges)


def step(descent):
    """y⁰ (n, m), answers h (n, N, m), step sizes (N,) and targets y (n, m)."""
    rng = np.random.default_rng(0)
    y0, h, y = 0.1 * rng.normal(size=(6, 2)), rng.normal(size=(6, 4, 2)), rng.normal(size=(6, 2))
    return y0, h, schedule(descent, y, 4), y


def assert_close(ours, theirs):
    assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_every_descent_is_among_them():
    ours = {kind for kind in descents.Descent.__subclasses__() if kind.__module__ == descents.__name__}
    assert {type(descent) for descent in DESCENTS} == ours


def test_step_sizes_are_finite_and_do_not_depend_on_how_many_follow(descent):
    *_, eta, y = step(descent)
    assert eta.shape == (4,)
    assert (np.isfinite(eta) & (eta >= 0)).all()
    assert_array_equal(schedule(descent, y, 7)[:4], eta)


def test_arguments_are_left_as_they_were_and_results_are_new_arrays(descent):
    y0, h, eta, y = given = step(descent)
    walk = descent.walk(y0, h, eta)
    kept = walk.copy()
    results = [
        descent.score(walk),
        descent.targets(walk, h, LOSS, y),
        descent.next_target(walk, h, LOSS, y),
    ]
    assert not any(np.shares_memory(walk, array) for array in given)
    assert not any(np.shares_memory(result, array) for result in results for array in (*given, walk))
    for array, before in zip(given, step(descent), strict=True):
        assert_array_equal(array, before)
    assert_array_equal(walk, kept)
    assert_array_equal(descent.walk(y0, h, eta), kept)  # nothing is remembered


def test_walks_start_at_y0_and_take_every_row_and_every_first_few_learners_for_themselves(descent):
    y0, h, eta, _ = step(descent)
    walk = descent.walk(y0, h, eta)
    assert walk.shape == (6, 5, 2)
    assert_array_equal(walk[:, 0], y0)
    for k in range(5):
        assert_close(descent.walk(y0, h[:, :k], eta[:k]), walk[:, : k + 1])
    assert_close(descent.walk(y0[2:3], h[2:3], eta), walk[2:3])


def test_scores_are_linear_in_the_walk_and_that_of_y0_alone_is_y0(descent):
    y0, h, eta, _ = step(descent)
    walk = descent.walk(y0, h, eta)
    assert all(descent.score(walk[:, :k]).shape == (6, 2) for k in range(1, 6))
    assert_array_equal(descent.score(walk[:, :1]), y0)
    mean = (descent.score(walk) + descent.score(walk[::-1])) / 2
    assert_close(descent.score((walk + walk[::-1]) / 2), mean)


def test_targets_follow_from_the_learners_before_and_the_first_is_the_gradient_at_y0(descent):
    y0, h, eta, y = step(descent)
    walk = descent.walk(y0, h, eta)
    targets = descent.targets(walk, h, LOSS, y)
    assert targets.shape == h.shape
    assert_close(targets[:, 0], LOSS.gradient(y0, y))
    for i in range(4):
        assert_close(targets[:, i], descent.next_target(walk[:, : i + 1], h[:, :i], LOSS, y))


def test_learners_that_say_what_they_should_reduce_the_loss(descent):
    y0, _, eta, y = step(descent)
    h = np.empty((6, 0, 2))
    for i in range(4):
        said = descent.next_target(descent.walk(y0, h, eta[:i]), h, LOSS, y)
        h = np.concatenate([h, said[:, None]], axis=1)
    assert LOSS.mean(descent.score(descent.walk(y0, h, eta)), y) < LOSS.mean(y0, y)
