"""The booster as a whole. That its numbers are the paper's is in test_naive.py."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from river import linear_model
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDRegressor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from streamboost.bases import Constant, Frozen, Linear
from streamboost.boosting import Booster, loops
from streamboost.descents import AdaGrad, Box, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    from_functions,
)
from streamboost.persistence.object_graph import same_state
from streamboost.replay import Replay
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack


def stream(n=150, d=3, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = 2 * X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=n)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, y


def coded(loss, y):
    """Targets as the loss wants them."""
    if isinstance(loss, Softmax):
        return np.digitize(y, [-1.0, 1.0]).astype(float)
    if isinstance(loss, (Logistic, Hinge)):
        return np.where(y > 0, 1.0, -1.0)
    return np.floor(np.abs(y)) if isinstance(loss, Poisson) else y


def small_trees(n_learners=4):
    return TreeStack(n_learners, max_depth=2, n_bins=16)


class SomeRefitted(TreeStack):
    """Its first two trees are never refitted: single leaves that learn every row."""

    @property
    def refittable(self):
        return range(2, self.n_learners)


def small_replay(**options):
    return Replay(40, **{"refit_every": 10, "warmup": 15, "soonest": 4, **options})


def rmse(a, b):
    return math.sqrt(np.mean((np.ravel(a) - np.ravel(b)) ** 2))


BOOSTERS = {
    "default": lambda **o: Booster(Squared(), stack=small_trees(), **o),
    "trees on a short memory": lambda **o: Booster(Squared(), stack=small_trees(), replay=small_replay(), **o),
    "exact FTRL": lambda **o: Booster(
        Squared(), GradientDescent(0.3), small_trees(2), base=Constant(0), replay=Replay.exact(), **o
    ),
    "algorithm 1": lambda **o: Booster(Squared(), GradientDescent(0.3), LinearStack(4), base=Constant(0), **o),
    "algorithm 2": lambda **o: Booster(
        Absolute(), ResidualProjection(0.5, Box(-3.0, 3.0)), LinearStack(4), base=Constant(), **o
    ),
    "steps of theorem 1": lambda **o: Booster(Huber(), GradientDescent("theory"), LinearStack(4), **o),
    "averaged": lambda **o: Booster(Squared(), stack=LinearStack(4), iterate="average", snapshots=5, **o),
    "averaged trees": lambda **o: Booster(
        Squared(), stack=small_trees(), replay=small_replay(), iterate="average", snapshots=5, **o
    ),
    "softmax": lambda **o: Booster(Softmax(n_classes=3), stack=small_trees(), replay=small_replay(), **o),
    "recorded targets": lambda **o: Booster(
        Squared(), stack=small_trees(), replay=small_replay(targets="recorded", learners="all"), **o
    ),
    "river": lambda **o: Booster(Squared(), GradientDescent(0.3), RiverStack(linear_model.LinearRegression(), 3), **o),
    "partial_fit": lambda **o: Booster(Squared(), GradientDescent(0.3), PartialFitStack(SGDRegressor(), 3), **o),
    "batch": lambda **o: Booster(
        Squared(), stack=BatchStack(ExtraTreeRegressor(max_depth=3), 3), replay=small_replay(), **o
    ),
    "some refitted": lambda **o: Booster(Logistic(), stack=SomeRefitted(4, max_depth=2), replay=small_replay(), **o),
}


@pytest.fixture(params=BOOSTERS)
def make(request):
    return BOOSTERS[request.param]


def learned(make, n=60, **options):
    booster = make(**options)
    X, y = stream(n)
    booster.learn(X, coded(booster.loss, y))
    return booster


# Rows in order


def test_a_chunk_is_its_rows_one_by_one_to_the_last_bit(make):
    X, y = stream(90, missing=0.05)
    y = coded(make().loss, y)
    weight = np.random.default_rng(1).integers(0, 2, size=90).astype(float)
    whole, apart = make(), make()
    scores = [whole.learn(X[:50], y[:50], weight[:50]), whole.learn(X[50:], y[50:], weight[50:])]
    alone = [apart.learn(X[t : t + 1], y[t : t + 1], weight[t : t + 1]) for t in range(90)]
    assert_array_equal(np.concatenate(scores), np.concatenate(alone))
    assert_array_equal(whole.walk(X), apart.walk(X))
    assert_array_equal(whole.edges.running, apart.edges.running)
    assert whole.cost == apart.cost


@given(cuts=st.lists(st.integers(0, 80), max_size=5))
@settings(deadline=None, max_examples=15)
def test_it_does_not_matter_where_a_stream_is_cut(cuts):
    X, y = stream(80)
    whole, apart = (BOOSTERS["trees on a short memory"]() for _ in range(2))
    expected = whole.learn(X, y)
    parts = [apart.learn(*part) for part in zip(np.split(X, sorted(cuts)), np.split(y, sorted(cuts)), strict=True)]
    assert_array_equal(np.concatenate(parts), expected)
    assert_array_equal(apart.walk(X), whole.walk(X))


def test_learn_returns_what_score_would_have_said_before(make):
    booster = learned(make, 30)
    X, y = stream(40, seed=1)
    y = coded(booster.loss, y)
    for t in range(40):
        before = booster.score(X[t : t + 1])
        assert_array_equal(booster.learn(X[t : t + 1], y[t : t + 1]), before)


def test_predict_is_the_score_through_the_link(make):
    booster = learned(make)
    X, _ = stream(10, seed=1)
    assert_array_equal(booster.predict(X), booster.loss.predict(booster.score(X)))
    assert_allclose(booster.score(X), booster.descent.score(booster.walk(X)), rtol=1e-12, atol=1e-12)
    assert booster.walk(X).shape == (10, booster.stack.n_learners + 1, booster.loss.n_outputs)


def test_predicting_changes_nothing(make):
    booster = learned(make)
    twin, before = copy.deepcopy(booster), pickle.dumps(booster)
    X, y = stream(40, seed=1)
    for said in (booster.predict(X), booster.score(X), booster.walk(X)):
        said[:] = 1e6
    assert pickle.dumps(booster) == before
    y = coded(booster.loss, y)
    assert_array_equal(booster.learn(X, y), twin.learn(X, y))


def test_the_same_seed_gives_the_same_run(make):
    X, y = stream(80)
    y = coded(make().loss, y)
    assert_array_equal(make(seed=3).learn(X, y), make(seed=3).learn(X, y))


def test_another_seed_gives_another_run_where_there_is_chance():
    X, y = stream(80)
    assert not np.array_equal(BOOSTERS["batch"](seed=1).learn(X, y), BOOSTERS["batch"](seed=2).learn(X, y))
    assert not np.array_equal(BOOSTERS["averaged"](seed=1).learn(X, y), BOOSTERS["averaged"](seed=2).learn(X, y))


@pytest.mark.parametrize("how", [copy.deepcopy, lambda booster: pickle.loads(pickle.dumps(booster))])
def test_a_copy_goes_on_as_the_original_would_have(make, how):
    booster = learned(make)
    twin = how(booster)
    X, y = stream(50, seed=1)
    y = coded(booster.loss, y)
    assert_array_equal(twin.learn(X, y), booster.learn(X, y))
    assert_array_equal(twin.walk(X), booster.walk(X))


def test_arrays_may_be_written_over_once_they_were_learned(make):
    booster, twin = make(), make()
    X, y = stream(60)
    y = coded(booster.loss, y)
    twin.learn(X.copy(), y.copy(), np.ones(60))
    weight = np.ones(60)
    booster.learn(X, y, weight)
    for array in (X, y, weight):
        array[:] = 1.0
    X, y = stream(60, seed=1)
    y = coded(booster.loss, y)
    assert_array_equal(booster.learn(X, y), twin.learn(X, y))


def test_an_empty_chunk_is_a_no_op(make):
    booster = make()
    assert booster.learn(np.empty((0, 3)), np.empty(0)).shape == (0, booster.loss.n_outputs)
    assert not booster.is_open
    booster = learned(make)
    before = pickle.dumps(booster)
    assert booster.learn(np.empty((0, 3)), np.empty(0)).shape == (0, booster.loss.n_outputs)
    assert pickle.dumps(booster) == before
    assert booster.predict(np.empty((0, 3))).shape == (0, booster.loss.n_outputs)


def test_forward_changes_nothing_and_update_is_learning(make):
    by_hand, booster = make(), make()
    X, y = stream(60)
    y = coded(booster.loss, y)
    weight = np.random.default_rng(1).integers(0, 2, size=60).astype(float)
    by_hand.allocate(3, 1)
    booster.allocate(3, 1)
    for t in range(60):
        row, target, w = X[t : t + 1], y[t : t + 1, None], weight[t : t + 1]
        before = pickle.dumps(by_hand)
        answer = by_hand.forward(row, target)
        assert pickle.dumps(by_hand) == before
        by_hand.update(row, target, w, answer)
        # the compiled loop may round otherwise
        assert_allclose(by_hand.descent.score(answer.walk), booster.learn(row, target, w), rtol=1e-9, atol=1e-12)
    assert by_hand.n_rows == 60
    assert by_hand.cost == booster.cost
    assert_allclose(by_hand.walk(X), booster.walk(X), rtol=1e-9, atol=1e-12)


def test_the_first_rows_tell_the_scale_and_the_steps_stay():
    X, y = stream(100)
    booster = BOOSTERS["trees on a short memory"]()
    for n in range(1, 101):
        booster.learn(X[n - 1 : n], y[n - 1 : n])
        told = booster.loss.scale(y[: min(n, 64), None])
        assert booster.scale.step == told.step
        assert booster.scale.spread == pytest.approx(told.spread if n > 1 else 0.0)
        assert_array_equal(booster.eta, booster.descent.schedule(4, booster.loss, booster.scale, np.full(4, np.nan)))
        assert booster.is_scale_known == (n >= 64)


def test_update_mode_goes_by_its_former_name_too():
    assert Booster(Squared(), stack=small_trees(), semantics=8).update_mode == 8


def robust_deviation(y):
    return 1.4826 * np.median(np.abs(y - np.median(y)))


def test_a_scale_estimate_changes_nothing_until_it_is_applied():
    X, y = stream(30)
    booster = Booster(Absolute(), stack=small_trees())
    booster.learn(X, y)
    before = pickle.dumps(booster)
    opening, scale = booster.estimate_scale(np.array([[1e3], [-1e3]] * 17), np.ones(34))
    assert pickle.dumps(booster) == before
    assert scale.spread > 100 * booster.scale.spread
    assert len(opening) == 64
    eta = booster.eta.copy()
    booster.apply_scale(opening, scale)
    assert booster.scale == scale
    assert_allclose(booster.eta, eta * (scale.spread / robust_deviation(y)))


def test_rows_of_weight_zero_tell_no_scale():
    X, y = stream(100)
    weight = np.where(np.arange(100) % 2, 1.0, 0.0)
    booster = Booster(Absolute(), stack=small_trees())
    booster.learn(X, np.where(weight > 0, y, 1e6), weight)
    assert booster.scale.spread == pytest.approx(robust_deviation(y[1:64:2]))


# One step for a whole chunk


def test_a_minibatch_is_one_step_for_all_its_rows():
    X, y = stream(40)
    booster = Booster(Squared(), GradientDescent(0.3), LinearStack(3), base=Constant(0.5), update_mode="minibatch")
    booster.learn(X[:20], y[:20])
    h = booster.stack.predict(X[20:])  # all rows meet the same hypotheses
    walk = booster.descent.walk(np.full((20, 1), 0.5), h, np.full(3, 0.3))
    by_hand = copy.deepcopy(booster.stack)
    by_hand.learn(X[20:], walk[:, :-1] - y[20:, None, None], np.ones(20))
    assert_array_equal(booster.learn(X[20:], y[20:]), walk[:, -1])
    assert_array_equal(booster.stack.predict(X), by_hand.predict(X))
    assert booster.n_rows == 40


def test_a_minibatch_is_not_its_rows_one_by_one():
    X, y = stream(40)
    scores = {}
    for update_mode in ("minibatch", "sequential"):
        booster = Booster(Squared(), GradientDescent(0.3), LinearStack(3), base=Constant(0), update_mode=update_mode)
        scores[update_mode] = booster.learn(X, y)
    assert_array_equal(scores["minibatch"], 0.0)
    assert np.abs(scores["sequential"]).max() > 0.5


def test_minibatches_of_one_row_are_sequential(make):
    X, y = stream(60)
    sequential, minibatch = make(), make(update_mode="minibatch")
    y = coded(sequential.loss, y)
    scores = [minibatch.learn(X[t : t + 1], y[t : t + 1]) for t in range(60)]
    # the compiled loop, which takes rows in order only, may round otherwise
    assert_allclose(np.concatenate(scores), sequential.learn(X, y), rtol=1e-9, atol=1e-12)


def test_steps_of_so_many_rows_are_minibatches_of_that_size(make):
    X, y = stream(50)
    in_steps, by_hand = make(update_mode=16), make(update_mode="minibatch")
    y = coded(in_steps.loss, y)
    scores = [by_hand.learn(X[t : t + 16], y[t : t + 16]) for t in range(0, 50, 16)]  # the last one of 2 rows
    assert_array_equal(in_steps.learn(X, y), np.concatenate(scores))
    assert_array_equal(in_steps.walk(X), by_hand.walk(X))


def test_a_minibatch_larger_than_the_memory_leaves_its_latest_rows():
    X, y = stream(100)
    booster = Booster(Squared(), stack=small_trees(), replay=small_replay(), update_mode="minibatch")
    booster.learn(X, y)
    assert_array_equal(np.sort(booster.replay.y[:, 0]), np.sort(y[60:]))
    booster.learn(X, y)
    assert rmse(booster.predict(X), y) < 0.8 * y.std()


# Refused input


def rows_like(X, y, **changes):
    return {"X": X, "y": y, "weight": None} | changes


def put(array, at, value):
    array = array.copy()
    array[at] = value
    return array


X6, Y6 = stream(6)
REFUSED = {
    "too few columns": (rows_like(X6[:, :2], Y6), "X has 2 features, expected 3"),
    "too many columns": (rows_like(np.hstack([X6, X6]), Y6), "X has 6 features, expected 3"),
    "a flat X": (rows_like(X6[0], Y6[:1]), r"X has shape \(3,\), expected \(rows, features\)"),
    "a cube for X": (rows_like(X6[None], Y6[:1]), r"X has shape \(1, 6, 3\)"),
    "infinity in X": (rows_like(put(X6, (4, 1), np.inf), Y6), "X holds infinity in row 4, column 1"),
    "minus infinity in X": (rows_like(put(X6, (4, 1), -np.inf), Y6), "X holds infinity in row 4, column 1"),
    "NaN in y": (rows_like(X6, put(Y6, 5, np.nan)), "target in row 5 is nan"),
    "infinity in y": (rows_like(X6, put(Y6, 5, np.inf)), "target in row 5 is inf"),
    "a short y": (rows_like(X6, Y6[:5]), r"X has 6 rows and y has shape \(5, 1\)"),
    "a number for y": (rows_like(X6, 1.0), r"X has 6 rows and y has shape \(\)"),
    "a wide y": (rows_like(X6, np.tile(Y6[:, None], 2)), r"targets have shape \(6, 2\), expected \(n, 1\)"),
    "a cube for y": (rows_like(X6, Y6[:, None, None]), r"targets have shape \(6, 1, 1\)"),
    "a negative weight": (rows_like(X6, Y6, weight=[1, 1, 1, 1, 1, -0.5]), r"weight in row 5 is -0\.5, expected"),
    "a weight of NaN": (rows_like(X6, Y6, weight=[1, 1, 1, np.nan, 1, 1]), "weight in row 3 is nan"),
    "an infinite weight": (rows_like(X6, Y6, weight=[1, 1, 1, np.inf, 1, 1]), "weight in row 3 is inf"),
    "a short weight": (rows_like(X6, Y6, weight=[1.0, 1.0]), r"weight has shape \(2,\), expected \(6,\)"),
    "a column of weights": (rows_like(X6, Y6, weight=np.ones((6, 1))), r"weight has shape \(6, 1\), expected \(6,\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_rows_leave_no_trace(case):
    rows, complaint = REFUSED[case]
    booster = learned(BOOSTERS["averaged trees"])
    before = pickle.dumps(booster)
    with pytest.raises(ValueError, match=complaint):
        booster.learn(**rows)
    assert pickle.dumps(booster) == before


@pytest.mark.parametrize("case", [name for name in REFUSED if "columns" not in name])
def test_rows_refused_at_first_leave_the_booster_closed(case):
    rows, complaint = REFUSED[case]
    booster = BOOSTERS["trees on a short memory"]()
    before = pickle.dumps(booster)
    with pytest.raises(ValueError, match=complaint):
        booster.learn(**rows)
    assert pickle.dumps(booster) == before
    assert booster.learn(X6[:, :2], Y6).shape == (6, 1)  # any width may still come


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (Logistic(), 0.0),
        (Hinge(), 2.0),
        (Poisson(), -1.0),
        (Softmax(n_classes=3), 3.0),
        (Softmax(n_classes=3), 0.5),
        (Softmax(n_classes=3), -1.0),
    ],
    ids=lambda value: repr(value),
)
def test_a_target_in_the_wrong_code_leaves_no_trace(loss, y):
    booster = Booster(loss, stack=small_trees(), replay=small_replay())
    X, targets = stream(50)
    booster.learn(X, coded(loss, targets))
    before = pickle.dumps(booster)
    wrong = coded(loss, targets)
    wrong[20] = y
    with pytest.raises(ValueError, match=f"target in row 20 is {y:g}, expected"):
        booster.learn(X, wrong)
    assert pickle.dumps(booster) == before


def test_a_weight_the_learners_cannot_take_leaves_no_trace():
    model = linear_model.BayesianLinearRegression()  # it learns without weights
    booster = Booster(Squared(), GradientDescent(0.3), RiverStack(model, 2), iterate="average")
    booster.learn(X6, Y6)
    before = pickle.dumps(booster)
    with pytest.raises(ValueError, match=r"weight holds 0\.5"):
        booster.learn(X6, Y6, np.full(6, 0.5))
    assert pickle.dumps(booster) == before


def test_predicting_refuses_what_learning_refuses():
    booster = learned(BOOSTERS["default"])
    for method in (booster.predict, booster.score, booster.walk):
        with pytest.raises(ValueError, match="X has 2 features, expected 3"):
            method(X6[:, :2])
        with pytest.raises(ValueError, match="X holds infinity in row 0, column 2"):
            method(put(X6, (0, 2), np.inf))
        with pytest.raises(ValueError, match=r"X has shape \(3,\)"):
            method(X6[0])


def test_a_booster_that_has_seen_nothing_says_so(make):
    with pytest.raises(ValueError, match="the booster has seen no row yet"):
        make().predict(X6)
    with pytest.raises(ValueError, match="the booster has seen no row yet"):
        make().grow(2)


@pytest.mark.parametrize("options", [{}, {"iterate": "average"}])
def test_a_gradient_that_is_not_finite_refuses_its_rows(options):
    def gradient(score, y):
        return np.where(y == 13.0, np.inf, score - y)

    loss = from_functions(lambda s, y: 0.5 * ((s - y) ** 2).sum(axis=-1), gradient, smooth=True)
    X, y = stream(30)
    y[20] = 13.0

    def fresh():
        return Booster(loss, GradientDescent(0.3), LinearStack(3), **options)

    booster, before = fresh(), fresh()
    with pytest.raises(FloatingPointError, match="is not finite at row 20, so these rows were not learned"):
        booster.learn(X, y)
    assert same_state(booster, before)  # nothing was learned, nor the rows before it
    booster.learn(X[:20], y[:20])
    before.learn(X[:20], y[:20])
    assert_array_equal(booster.walk(X), before.walk(X))
    assert_array_equal(booster.learn(X[21:], y[21:]), before.learn(X[21:], y[21:]))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"iterate": "best"}, "iterate is 'best', expected 'last', 'average', 'uniform' or 'polynomial'"),
        (
            {"update_mode": "batch"},
            "update_mode is 'batch', expected 'sequential', 'minibatch' or a number of rows above 0",
        ),
        ({"update_mode": 0}, "update_mode is 0, expected"),
        ({"update_mode": True}, "update_mode is True, expected"),
        ({"iterate": "polynomial"}, "a TreeStack has no parameters to average. Use 'average'"),
        ({"iterate": "average", "snapshots": 0}, "capacity is 0"),
        ({"stack": LinearStack(2), "replay": Replay()}, "a LinearStack cannot be refitted. Leave replay out"),
        ({"stack": FunctionStack(lambda X, t, w: None, 2), "replay": None}, "learns from refits alone"),
    ],
)
def test_options_that_cannot_work_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Booster(Squared(), **options)


# What is chosen when nothing is said


@pytest.mark.parametrize("loss", [Absolute(), Quantile(tau=0.3), Hinge()])
def test_a_loss_that_is_not_smooth_picks_residual_projection(loss):
    assert Booster(loss).descent == ResidualProjection()
    assert Booster(loss, GradientDescent(0.1)).descent == GradientDescent(0.1)


@pytest.mark.parametrize("loss", [Squared(), Huber(), Poisson(), Logistic(), Softmax(n_classes=4)])
def test_a_smooth_loss_picks_gradient_descent(loss):
    assert Booster(loss).descent == GradientDescent()
    assert Booster(loss, ResidualProjection(0.1)).descent == ResidualProjection(0.1)


def test_a_memory_is_kept_where_learners_can_be_refitted():
    assert Booster(Squared()).replay is not None
    assert Booster(Squared(), stack=BatchStack(LinearRegression(), 2)).replay is not None
    assert Booster(Squared(), stack=LinearStack(2)).replay is None
    assert Booster(Squared(), stack=TreeStack(2), replay=None).replay is None
    assert isinstance(Booster(Squared()).base, Linear)


@pytest.mark.parametrize("loss", [Squared(), Absolute()])
@pytest.mark.parametrize("factor", [1000.0, 1e-6])
def test_predictions_scale_with_the_targets(loss, factor):
    X, y = stream(300)
    plain, scaled = (Booster(loss, stack=TreeStack(10, max_depth=3)) for _ in range(2))
    before, after = plain.learn(X, y), scaled.learn(X, factor * y)
    assert_allclose(after, factor * before, rtol=1e-6, atol=1e-6 * factor)
    assert_allclose(scaled.predict(X), factor * plain.predict(X), rtol=1e-6, atol=1e-6 * factor)
    assert_array_equal(scaled.stack.feature, plain.stack.feature)
    assert (plain.stack.feature >= 0).any()


@pytest.mark.parametrize("descent", [ResidualProjection(), AdaGrad(), FrankWolfe()])
def test_steps_in_units_of_the_targets_scale_with_them(descent):
    X, y = stream(100)
    plain, scaled = (Booster(Absolute(), descent, LinearStack(4), base=Constant()) for _ in range(2))
    assert_allclose(scaled.learn(X, 1000.0 * y), 1000.0 * plain.learn(X, y), rtol=1e-6, atol=1e-6)


# What it learns


@pytest.mark.parametrize("descent", [GradientDescent(), GradientDescent("theory"), Nesterov(), AdaGrad()])
def test_boosting_learns_what_the_base_cannot(descent):
    X, y = stream(1500)
    booster = Booster(Squared(), descent, TreeStack(20, max_depth=3), replay=Replay(1000, refit_every=40))
    before = booster.learn(X, y)
    line = Booster(Squared(), GradientDescent(1e-12), TreeStack(1, max_depth=1)).learn(X, y)
    assert rmse(before[-500:], y[-500:]) < 0.75 * rmse(line[-500:], y[-500:])


def test_missing_values_are_learned_from():
    X, y = stream(800)
    X[:, 2] = np.where(y > 0, np.nan, 1.0)  # what is missing tells the sign
    booster = Booster(Squared(), GradientDescent(0.7), TreeStack(5, max_depth=2), base=Constant())
    booster.learn(X[:, 2:], y)
    low, high = booster.predict(np.array([[1.0], [np.nan]]))[:, 0]
    assert low == pytest.approx(y[y <= 0].mean(), abs=0.3)
    assert high == pytest.approx(y[y > 0].mean(), abs=0.3)


def test_a_row_of_nothing_but_missing_values_is_a_row_like_others(make):
    booster = make()
    X, y = stream(40)
    X[::5] = np.nan
    assert np.isfinite(booster.learn(X, coded(booster.loss, y))).all()
    assert np.isfinite(booster.predict(np.full((1, 3), np.nan))).all()


def test_a_weight_counts():
    X, _ = stream(400)
    y = np.where(np.arange(400) % 2, 1.0, -1.0)
    weight = np.where(y > 0, 3.0, 1.0)
    booster = Booster(Squared(), GradientDescent(0.5), LinearStack(5), base=Constant(0))
    booster.learn(X, y, weight)
    assert np.mean(booster.predict(X)) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("stack", [lambda: LinearStack(3), small_trees], ids=["linear", "trees"])
def test_rows_of_weight_zero_do_not_count(stack):
    X, y = stream(60)
    skip = np.arange(60) % 3 == 0
    replay = Replay(None, refit_every=1, learners="all", warmup=1)
    plain, skipping = (
        Booster(Squared(), GradientDescent(0.3), s, base=Constant(0), replay=copy.copy(replay) if s.n_bins else None)
        for s in (stack(), stack())
    )
    plain.learn(X[~skip], y[~skip])
    skipping.learn(X, np.where(skip, 1e6, y), np.where(skip, 0.0, 1.0))
    assert_allclose(skipping.predict(X), plain.predict(X), rtol=1e-9, atol=1e-12)


# Lazy FTRL


def spying_booster(targets, log):
    """A booster whose learners tell what they were fitted to, and predict the mean of it."""

    def fit(X, target, weight):
        log.append((X.copy(), target.copy()))
        mean = target.mean(axis=0)
        return lambda X: np.tile(mean, (len(X), 1)) + 0.1 * X[:, :1]

    replay = Replay(None, refit_every=10, targets=targets, learners="all", warmup=10)
    return Booster(Absolute(), ResidualProjection(0.5), FunctionStack(fit, 3), base=Linear(), replay=replay)


def test_fresh_targets_are_those_of_the_present_partial_sums():
    log = []
    booster = spying_booster("fresh", log)
    X, y = stream(29)
    booster.learn(X, y)
    twin = copy.deepcopy(booster)
    log.clear()
    x, z = stream(1, seed=9)
    booster.learn(x, z)
    X, y = np.concatenate([X, x]), np.concatenate([y, z])
    assert len(log) == 3
    fitted = booster.stack.predict(X)
    for i, (rows, target) in enumerate(log):
        assert_array_equal(rows, X)
        h = fitted[:, :i]  # learners before this one were refitted just now
        walk = booster.descent.walk(booster.base.predict(X), h, booster.eta[:i])
        expected = booster.descent.next_target(walk, h, booster.loss, y[:, None])
        assert_allclose(target, expected, atol=1e-12)
    assert not np.array_equal(twin.stack.predict(X), fitted)


def test_recorded_targets_are_those_the_rows_gave_when_they_came():
    log = []
    booster = spying_booster("recorded", log)
    X, y = stream(30)
    given = []
    booster.allocate(3, 1)
    for t in range(30):
        x, z = X[t : t + 1], y[t : t + 1, None]
        h = booster.stack.predict(x)
        walk = booster.descent.walk(booster.base.predict(x), h, booster.eta)
        given.append(booster.descent.targets(walk, h, booster.loss, z)[0])
        booster.learn(x, z)
    assert len(log) == 9  # three refits of three learners
    for number, (rows, target) in enumerate(log):
        seen = 10 * (number // 3 + 1)
        assert_array_equal(rows, X[:seen])
        assert_allclose(target, np.array(given)[:seen, number % 3], atol=1e-12)


@pytest.mark.parametrize("kind", ["trees on a short memory", "batch", "some refitted", "softmax"])
def test_targets_are_recomputed_in_blocks_of_any_size(kind, monkeypatch):
    monkeypatch.setattr(loops, "COMPILED", ())  # the compiled loop knows no blocks
    X, y = stream(80)
    y = coded(BOOSTERS[kind]().loss, y)
    expected = BOOSTERS[kind]().learn(X, y)
    monkeypatch.setattr(loops.plain, "BLOCK", 7)
    assert_allclose(BOOSTERS[kind]().learn(X, y), expected, rtol=1e-9, atol=1e-12)


def test_learners_no_refit_takes_learn_from_the_first_row():
    X, y = stream(10)
    stack = SomeRefitted(4, max_depth=2)
    booster = Booster(Squared(), GradientDescent(0.3), stack, base=Constant(0), replay=small_replay())
    booster.learn(X, y)
    assert not booster.replay.warm
    alone = Booster(Squared(), GradientDescent(0.3), SomeRefitted(2, max_depth=2), base=Constant(0))
    alone.learn(X, y)
    assert np.abs(alone.stack.predict(X)).min() > 0
    assert_array_equal(stack.predict(X)[:, :2], alone.stack.predict(X))


def test_trees_say_nothing_until_the_memory_is_warm():
    X, y = stream(15)
    booster = BOOSTERS["trees on a short memory"]()
    booster.learn(X[:14], y[:14])
    assert_array_equal(booster.stack.predict(X), 0.0)
    booster.learn(X[14:], y[14:])
    assert np.abs(booster.stack.predict(X)).max() > 0


# Averages over hypotheses


@pytest.mark.parametrize("kind", ["averaged", "averaged trees"])
def test_the_average_is_over_the_hypotheses_that_were_kept(kind):
    booster = learned(BOOSTERS[kind])
    X, _ = stream(10, seed=1)
    assert len(booster.past.kept) == 5
    walks = [past.walk(X, booster.descent) for past in booster.past.kept]
    assert_allclose(booster.walk(X), np.mean(walks, axis=0), rtol=1e-12)


def test_with_room_for_all_it_is_over_all_hypotheses():
    X, y = stream(30)
    present = Booster(Squared(), GradientDescent(0.3), LinearStack(3))
    average = Booster(Squared(), GradientDescent(0.3), LinearStack(3), iterate="average", snapshots=30)
    present.allocate(3, 1)
    scores = []
    for t in range(30):
        scores.append(present.score(X))
        present.learn(X[t : t + 1], y[t : t + 1])
    average.learn(X, y)
    assert_allclose(average.score(X), np.mean(scores, axis=0), rtol=1e-10, atol=1e-12)


def test_a_minibatch_counts_its_hypothesis_once_for_each_row():
    X, y = stream(10)
    booster = Booster(Squared(), stack=LinearStack(2), iterate="average", snapshots=10, update_mode="minibatch")
    booster.learn(X[:4], y[:4])
    booster.learn(X[4:], y[4:])
    first, *_, last = booster.past.kept
    expected = 0.4 * first.walk(X, booster.descent) + 0.6 * last.walk(X, booster.descent)
    assert_allclose(booster.walk(X), expected, rtol=1e-12, atol=1e-12)


# Growing


@pytest.mark.parametrize(
    "kind", ["trees on a short memory", "averaged", "averaged trees", "river", "batch", "some refitted"]
)
def test_growing_leaves_predictions_until_the_new_learners_learn(kind):
    booster = learned(BOOSTERS[kind])
    X, y = stream(60, seed=1)
    before, n_learners = booster.predict(X), booster.stack.n_learners
    booster.grow(3)
    assert_allclose(booster.predict(X), before, rtol=1e-12, atol=1e-12)
    assert booster.walk(X).shape[1] == n_learners + 4
    assert len(booster.eta) == len(booster.edges.running) == n_learners + 3
    booster.learn(X, coded(booster.loss, y))
    assert np.abs(booster.stack.predict(X)[:, n_learners:]).max() > 0


def test_a_grown_booster_is_better_than_it_was():
    X, y = stream(3000)
    few, grown = (
        Booster(Squared(), GradientDescent(0.1), TreeStack(2, max_depth=3), replay=Replay(500, refit_every=20))
        for _ in range(2)
    )
    for booster in (few, grown):
        booster.learn(X[:800], y[:800])
    grown.grow(15)
    ours, theirs = grown.learn(X[800:], y[800:]), few.learn(X[800:], y[800:])
    assert rmse(ours[-800:], y[-800:]) < 0.8 * rmse(theirs[-800:], y[-800:])


def test_a_mean_over_steps_counts_new_learners_at_once():
    booster = learned(BOOSTERS["algorithm 2"])
    X, _ = stream(10, seed=1)
    walk = booster.walk(X)
    booster.grow(1)
    assert_allclose(booster.score(X), (walk[:, 1:].sum(axis=1) + walk[:, -1]) / 5, rtol=1e-12)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_growing_by_what_is_no_count_is_refused(k):
    booster = learned(BOOSTERS["default"])
    with pytest.raises(ValueError, match=r"k is .*, expected a whole number of at least 1"):
        booster.grow(k)


def test_new_columns_leave_predictions_and_are_learned(make):
    booster = learned(make)
    X, y = stream(200, d=5, seed=1)
    before = booster.predict(X[:, :3])
    booster.add_features(2)
    gap = X.copy()
    gap[:, 3:] = np.nan
    assert_allclose(booster.predict(gap), before, rtol=1e-9, atol=1e-12)
    assert np.isfinite(booster.learn(X, coded(booster.loss, y))).all()
    with pytest.raises(ValueError, match="X has 3 features, expected 5"):
        booster.predict(X[:, :3])


def test_a_new_class_starts_at_its_score_and_is_learned():
    X, y = stream(300)
    booster = Booster(Softmax(n_classes=2), stack=small_trees(), replay=small_replay())
    booster.learn(X, (y > 0).astype(float))
    before = booster.score(X)
    booster.add_outputs(Softmax(n_classes=3), -4.0)
    after = booster.score(X)
    assert_allclose(after[:, :2], before, rtol=1e-9, atol=1e-12)
    assert_allclose(after[:, 2], -4.0)
    far = X + np.array([8.0, 0.0, 0.0])
    booster.learn(far, np.full(300, 2.0))
    assert (booster.predict(far).argmax(axis=1) == 2).mean() > 0.9


# Frozen models


def test_a_frozen_model_is_boosted_from():
    X, y = stream(1200)
    model = LinearRegression().fit(X[:300], y[:300])
    booster = Booster(
        Squared(), stack=TreeStack(20, max_depth=3), base=Frozen(model), replay=Replay(600, refit_every=20)
    )
    before = booster.learn(X[300:], y[300:])
    assert_array_equal(before[0], model.predict(X[300:301]))
    assert rmse(before[-300:], y[-300:]) < 0.75 * rmse(model.predict(X[-300:]), y[-300:])
    assert_array_equal(booster.walk(X[:5])[:, 0, 0], model.predict(X[:5]))


def test_a_frozen_classifier_is_boosted_from():
    X, _ = stream(1500)
    label = np.where(np.sin(3 * X[:, 1]) + X[:, 0] > 0, 1.0, -1.0)
    model = LogisticRegression().fit(X[:300, :1], label[:300])
    base = Frozen(lambda X: model.decision_function(X[:, :1]))
    booster = Booster(Logistic(), stack=TreeStack(20, max_depth=3), base=base, replay=Replay(800, refit_every=20))
    before = booster.learn(X[300:], label[300:])
    ours, theirs = np.sign(before[-400:, 0]), model.predict(X[-400:, :1])
    assert np.mean(ours != label[-400:]) < 0.75 * np.mean(theirs != label[-400:])
    whole = LogisticRegression().fit(X[:300], label[:300])
    direct = Booster(Logistic(), stack=small_trees(), base=Frozen(whole))
    assert_allclose(direct.learn(X[300:301], label[300:301])[0], whole.decision_function(X[300:301]), rtol=1e-6)


@pytest.mark.parametrize("model", [RandomForestRegressor(3, random_state=0), DecisionTreeRegressor(max_depth=3)])
def test_a_frozen_model_that_is_right_is_left_alone(model):
    X, _ = stream(200)
    y = model.fit(X, stream(200)[1]).predict(X)
    booster = Booster(Squared(), stack=small_trees(), base=Frozen(model), replay=small_replay())
    assert_allclose(booster.learn(X, y)[:, 0], y, atol=1e-12)


def test_learners_added_mid_stream_are_the_next_to_be_fitted():
    X, y = rows_of_a_product(400)
    booster = Booster(
        Squared(), GradientDescent(0.3), TreeStack(6, max_depth=2), replay=Replay(256, refit_every=32), base=Constant(0)
    )
    booster.learn(X[:300], y[:300])
    booster.grow(2)
    assert not booster.stack.stats[6:].any()
    booster.learn(X[300:364], y[300:364])
    assert (booster.stack.feature[6:, 0] >= 0).all()


def rows_of_a_product(n):
    X = np.random.default_rng(5).normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


def test_a_stream_that_begins_with_the_same_target_over_and_over_still_finds_its_scale():
    X, y = rows_of_a_product(400)
    y = np.where(np.arange(400) < 100, 0.0, 1e4 * y)
    booster = Booster(Absolute(), stack=LinearStack(3))
    booster.learn(X, y)
    assert booster.scale.spread == pytest.approx(1e4 * np.std(y[100:] / 1e4), rel=0.5)


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Poisson(l2=0.2)], ids=repr)
def test_a_newton_leaf_takes_the_step_of_newton_reckoned_by_hand(loss):
    y0, n, rng = 0.4, 80, np.random.default_rng(3)
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0) if isinstance(loss, Logistic) else rng.poisson(2.0, n).astype(float)
    booster = Booster(
        loss,
        GradientDescent(share=1.0, newton=True),
        TreeStack(1, max_depth=1, l2=0.0),
        base=Constant(y0),
        replay=Replay(256, refit_every=1000, warmup=64, soonest=1000),
    )
    booster.learn(np.zeros((n, 1)), y)  # 64 rows tell the leaf at once, the others one by one
    if isinstance(loss, Logistic):
        p = 1.0 / (1.0 + math.exp(-y0))
        slope, curvature = sum(p - (target > 0) for target in y), n * p * (1.0 - p)
    else:
        mean = math.exp(y0)  # half of the curvature there, half of that at the target
        slope, curvature = sum(mean - target for target in y), sum((mean + target) / 2 for target in y)
    slope, curvature = slope + n * 2 * loss.l2 * y0, curvature + n * 2 * loss.l2
    assert booster.score(np.zeros((1, 1)))[0, 0] == pytest.approx(y0 - slope / curvature)


def test_newton_steps_have_to_be_asked_for_and_need_a_curvature_and_trees():
    assert not Booster(Poisson()).descent.newton
    newton = GradientDescent(newton=True)
    for loss, stack, replay in (
        (Huber(), small_trees(), "auto"),
        (Poisson(), LinearStack(2), None),
        (Poisson(), small_trees(), Replay.exact()),
    ):
        with pytest.raises(ValueError, match=r"newton=True.*tells its curvature, a TreeStack"):
            Booster(loss, newton, stack, replay=replay)
