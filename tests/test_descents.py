"""Descents by themselves: projections, schedules, and what the theorems and the counter-example say of them.

That each walk is the paper's, line by line, is in test_naive.py; the promises all share are in test_contracts.py.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from streamboost import Booster
from streamboost.descents import AdaGrad, Ball, Box, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Loss, Poisson, Quantile, Scale, Softmax, Squared

points = arrays(float, (4, 3), elements=st.floats(-1e6, 1e6))
SCALE = Scale(step=4.0, spread=2.0)
UNKNOWN = np.full(3, np.nan)


# Domains


@pytest.mark.parametrize("domain", [Ball(0.5), Ball(3e4), Box(-1.0, 2.0), Box(5.0, 7.0)], ids=repr)
@given(a=points, b=points)
def test_a_projection_is_the_nearest_point_of_its_domain(domain, a, b):
    onto = domain.project(a)
    assert_allclose(domain.project(onto), onto, rtol=1e-12)
    inside = domain.project(b)
    # the angle between what was cut off and any point inside is never acute
    assert (np.sum((a - onto) * (inside - onto), axis=1) <= 1e-9 * (1 + np.sum(a**2 + b**2, axis=1))).all()


@given(points)
def test_a_point_inside_a_ball_is_left_to_the_last_bit(a):
    radius = 1.001 * np.linalg.norm(a, axis=1).max() + 1.0
    assert_array_equal(Ball(radius).project(a), a)


@pytest.mark.parametrize("radius", [1e-300, 1.0, 1e300])
def test_the_origin_projects_onto_itself_whatever_the_ball(radius):
    assert_array_equal(Ball(radius).project(np.zeros((2, 3))), np.zeros((2, 3)))


def test_projections_work_on_walks_of_any_shape():
    walk = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert (np.linalg.norm(Ball(0.5).project(walk), axis=-1) <= 0.5 + 1e-12).all()
    assert Box(-0.1, 0.3).project(walk).shape == (2, 3, 4)


def test_the_radius_of_a_box_is_its_farthest_coordinate():
    assert Box(-3.0, 1.0).radius == 3.0
    assert Box(1.0, 4.0).radius == 4.0


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "2"])
def test_a_ball_without_a_radius_is_refused(radius):
    with pytest.raises(ValueError, match=r"radius is .*, expected a finite number above 0"):
        Ball(radius)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0)])
def test_a_box_of_no_size_is_refused(low, high):
    with pytest.raises(ValueError, match="expected low < high"):
        Box(low, high)


# Schedules


def schedule(descent, loss=None, edges=UNKNOWN):
    return descent.schedule(3, Squared() if loss is None else loss, SCALE, edges).tolist()


def test_step_sizes_given_are_step_sizes_taken():
    assert schedule(GradientDescent(0.3)) == [0.3, 0.3, 0.3]
    assert schedule(ResidualProjection(0.6)) == pytest.approx([0.6, 0.3, 0.2])
    assert schedule(Nesterov(0.3)) == [0.3, 0.3, 0.3]
    assert schedule(AdaGrad(0.3)) == [0.3, 0.3, 0.3]
    assert schedule(FrankWolfe(6.0)) == pytest.approx([6.0, 4.0, 3.0])  # radius · 2/(i + 1)


def test_step_sizes_left_out_follow_the_scale():
    assert schedule(GradientDescent()) == pytest.approx([0.4] * 3)
    assert schedule(Nesterov()) == pytest.approx([0.4] * 3)
    assert schedule(AdaGrad()) == pytest.approx([0.4] * 3)
    assert schedule(FrankWolfe()) == pytest.approx([6.0, 4.0, 3.0])
    assert schedule(ResidualProjection(), Absolute()) == pytest.approx([0.4, 0.2, 0.4 / 3])


def test_residual_projection_steps_by_one_over_lambda_i_where_there_is_a_lambda():
    assert schedule(ResidualProjection(), Absolute(l2=0.5)) == pytest.approx([1.0, 1 / 2, 1 / 3])
    assert schedule(ResidualProjection(), Squared()) == pytest.approx([1.0, 1 / 2, 1 / 3])
    inside = schedule(ResidualProjection(domain=Ball(1.0)), Logistic())  # curved only inside a domain
    assert inside == pytest.approx([(2 + 2 * math.e) / i for i in (1, 2, 3)])


def test_the_step_of_theorem_1_is_that_of_each_learners_edge():
    edges = np.array([np.nan, 0.5, -0.2])
    beta = 0.25 + 2 * 0.1
    expected = [1 / (beta * 4), 0.5 / (beta * 6), 0.0]  # γ/(β(8 − 4γ)); unknown counts as 1, harm as 0
    assert schedule(GradientDescent("theory"), Logistic(l2=0.1), edges) == pytest.approx(expected)


def test_without_a_smoothness_bound_the_theory_takes_the_natural_step():
    assert schedule(GradientDescent("theory"), Poisson(), np.full(3, 1.0)) == pytest.approx([SCALE.step / 4] * 3)


def test_only_the_theory_follows_the_edges():
    assert GradientDescent("theory").adaptive
    for descent in (GradientDescent(), GradientDescent(0.1), ResidualProjection(), Nesterov(), AdaGrad(), FrankWolfe()):
        assert not descent.adaptive
        assert schedule(descent) == schedule(descent, edges=np.array([0.1, 0.5, 0.9]))


@pytest.mark.each(
    kind=[GradientDescent, ResidualProjection, Nesterov, AdaGrad, FrankWolfe],
    size=[0, -0.1, math.nan, math.inf, "fast"],
)
def test_a_step_size_that_leads_nowhere_is_refused(kind, size):
    with pytest.raises(ValueError, match=r"(step_size|radius) is .*, expected a finite number above 0"):
        kind(size)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, math.nan])
def test_a_momentum_that_never_ends_is_refused(momentum):
    with pytest.raises(ValueError, match=r"momentum is .*, expected a number in \[0, 1\)"):
        Nesterov(0.1, momentum)


def test_the_loss_picks_the_algorithm():
    for loss in (Squared(), Huber(), Poisson(), Logistic(), Softmax(n_classes=3)):
        assert Booster(loss).descent == GradientDescent()
    for loss in (Absolute(), Quantile(), Hinge()):
        assert Booster(loss).descent == ResidualProjection()


# Walks


def perfect(descent, loss, y0, y, n_learners):
    """The walk when every learner says exactly what it should."""
    eta = descent.schedule(n_learners, loss, Scale(1.0, 1.0), np.ones(n_learners))
    h = np.empty((len(y0), 0, y0.shape[1]))
    for i in range(n_learners):
        said = descent.next_target(descent.walk(y0, h, eta[:i]), h, loss, y)
        h = np.concatenate([h, said[:, None]], axis=1)
    return descent.walk(y0, h, eta)


@pytest.mark.parametrize("step", [0.1, 0.5, 1.0])
def test_perfect_learners_close_the_gap_geometrically(step):
    y0, y = np.zeros((1, 1)), np.full((1, 1), 2.0)
    gap = 2.0 - perfect(GradientDescent(step), Squared(), y0, y, 10)[0, :, 0]
    assert_allclose(gap, 2.0 * (1 - step) ** np.arange(11), atol=1e-12)


def test_the_theorys_step_with_perfect_learners_meets_the_bound_of_theorem_1():
    loss = Logistic(l2=0.05)
    y0, y = np.array([[2.0], [-1.5], [0.3]]), np.array([[-1.0], [1.0], [1.0]])
    best = loss._search(y[:1], np.ones(1))
    radius = 3.0
    lam, beta = loss.strong_convexity(radius), loss.smoothness()
    walk = perfect(GradientDescent("theory"), loss, y0[:1], y[:1], 60)
    excess = loss.value(walk, y[:1, None])[0] - loss.value(best[None], y[:1])
    assert (excess <= 2 * excess[0] * (1 - lam / (16 * beta)) ** np.arange(61) + 1e-12).all()


def test_momentum_gets_perfect_learners_there_sooner():
    y0, y = np.zeros((1, 1)), np.full((1, 1), 2.0)
    plain, ahead = (perfect(d, Squared(), y0, y, 10)[0, -1, 0] for d in (GradientDescent(0.1), Nesterov(0.1)))
    assert abs(2.0 - ahead) < 0.7 * abs(2.0 - plain)


def test_frank_wolfe_never_leaves_its_ball():
    rng = np.random.default_rng(0)
    y0 = rng.normal(size=(50, 2))
    walk = FrankWolfe(1.5).walk(
        y0, rng.normal(size=(50, 20, 2)), FrankWolfe(1.5).schedule(20, Squared(), SCALE, UNKNOWN)
    )
    assert np.linalg.norm(walk - y0[:, None], axis=2).max() <= 1.5 + 1e-9


def test_adagrad_walks_by_the_direction_of_answers_not_by_their_size():
    h = np.random.default_rng(0).normal(size=(3, 5, 2))
    small, large = (AdaGrad().walk(np.zeros((3, 2)), k * h, np.full(5, 0.3)) for k in (1.0, 1000.0))
    assert_allclose(small, large)
    assert_allclose(small[:, 1], -0.3 * np.sign(h[:, 0]))


def test_the_mean_is_over_steps_1_to_N():
    walk = np.array([[[100.0], [1.0], [3.0]]])
    assert ResidualProjection().score(walk).tolist() == [[2.0]]
    assert ResidualProjection(readout="last").score(walk).tolist() == [[3.0]]
    assert GradientDescent(readout="mean").score(walk).tolist() == [[2.0]]


def test_without_residual_or_domain_algorithm_2_walks_like_algorithm_1():
    rng = np.random.default_rng(0)
    y0, h, eta = rng.normal(size=(4, 2)), rng.normal(size=(4, 6, 2)), rng.uniform(size=6)
    assert_array_equal(ResidualProjection().walk(y0, h, eta), GradientDescent().walk(y0, h, eta))


def test_learners_that_say_what_they_should_leave_no_residual():
    rng = np.random.default_rng(0)
    y0, y, loss = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), Absolute(n_outputs=2)
    walk = perfect(ResidualProjection(0.3), loss, y0, y, 5)
    h = (walk[:, :-1] - walk[:, 1:]) / (0.3 / np.arange(1, 6))[:, None]
    assert_allclose(ResidualProjection(0.3).residuals(walk, h, loss, y), 0.0, atol=1e-12)


# The paper's counter-example


class Lopsided(Loss):
    """ℓ(y) = 2·abs(y₁) + abs(y₂)."""

    name, smooth = "lopsided", False

    def bare_value(self, score, y):
        return np.abs(score) @ [2.0, 1.0]

    def bare_gradient(self, score, y):
        return np.sign(score) * [2.0, 1.0]


def along_one_axis(target):
    """The best of the hypotheses that lie along one axis."""
    said = np.zeros_like(target)
    axis = np.abs(target).argmax(axis=1)
    said[np.arange(len(target)), axis] = target[np.arange(len(target)), axis]
    return said


def second_coordinate(descent, n_learners=40):
    loss, y0, y = Lopsided(n_outputs=2), np.array([[3.0, 3.0]]), np.zeros((1, 2))
    eta, h = descent.schedule(n_learners, loss, Scale(1.0, 1.0), np.ones(n_learners)), np.empty((1, 0, 2))
    for i in range(n_learners):
        target = descent.next_target(descent.walk(y0, h, eta[:i]), h, loss, y)
        h = np.concatenate([h, along_one_axis(target)[:, None]], axis=1)
    return descent.walk(y0, h, eta)[0, :, 1]


def test_learners_along_one_axis_never_move_the_other_under_algorithm_1():
    assert_array_equal(second_coordinate(GradientDescent(0.07)), 3.0)


def test_the_residual_moves_it_under_algorithm_2():
    moved = second_coordinate(ResidualProjection(1.0))
    assert moved.min() < 1.0
