import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_friedman1
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDRegressor
from sklearn.tree import DecisionTreeRegressor

from experiments.batch import GradientBoosting
from streamboost.bases import Constant, Linear
from streamboost.boosting import Booster
from streamboost.descents import FrankWolfe, GradientDescent, ResidualProjection, theoretical_step
from streamboost.losses import Absolute, Logistic, Softmax, Squared
from streamboost.replay import Replay
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import FunctionStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import wrap


def grid_data(n=600, d=4, seed=0):
    """Columns of few values, so that bins lose nothing; targets all different, so that no two splits tie."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 25, size=(n, d)).astype(float)
    return X, np.sin(X[:, 0] / 4) + X[:, 1] * X[:, 2] / 100 + rng.normal(scale=0.3, size=n)


def tree(**options):
    return lambda: TreeStack(1, **{"max_depth": 3, "min_samples_leaf": 10, "l2": 0.0, **options})


def mean_square(a, b):
    return float(np.mean((np.ravel(a) - np.ravel(b)) ** 2))


# Against somebody else's boosting.


@pytest.mark.parametrize(("base", "init"), [(Constant(0), "zero"), (None, None)])
@pytest.mark.parametrize("step", [0.1, 0.7])
def test_square_loss_and_trees_give_the_same_predictions_as_scikit_learn(base, init, step):
    X, y = grid_data()
    theirs = GradientBoostingRegressor(
        n_estimators=12, learning_rate=step, max_depth=3, min_samples_leaf=10, init=init
    ).fit(X, y)
    ours = GradientBoosting(Squared(), GradientDescent(step), tree(), n_learners=12, base=base).fit(X, y)
    staged = np.column_stack(list(theirs.staged_predict(X)))
    assert ours.walk(X)[:, 1:, 0] == pytest.approx(staged, abs=1e-8)


def test_the_residual_rule_equals_residual_boosting_written_by_hand():
    X, y = grid_data()

    def fit(X, target, weight):
        return DecisionTreeRegressor(max_depth=2, random_state=0).fit(X, target[:, 0]).predict

    descent = ResidualProjection(step_size=2.0)
    model = GradientBoosting(Absolute(), descent, lambda: FunctionStack(fit, 1), n_learners=10).fit(X, y)

    F, residual, partial_sums = np.full(len(y), np.median(y)), np.zeros(len(y)), []
    for i in range(1, 11):
        target = residual + np.sign(F - y)
        h = fit(X, target[:, None], None)(X)
        F = F - 2.0 / i * h
        residual = target - h
        partial_sums.append(F)
    assert model.walk(X)[:, 1:, 0] == pytest.approx(np.array(partial_sums).T, abs=1e-9)
    assert model.score(X)[:, 0] == pytest.approx(np.mean(partial_sums, axis=0), abs=1e-9)


# What convergence means.


@pytest.mark.parametrize("step", [0.3, 0.6])
def test_learners_that_say_exactly_what_they_should_shrink_the_error_by_one_step_a_stage(step):
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = X @ [2.0, -1.0, 0.5]
    model = GradientBoosting(
        Squared(),
        GradientDescent(step),
        lambda: LinearStack(1, ridge=1e-8, standardize=False),
        n_learners=5,
        base=Constant(0),
    ).fit(X, y)
    assert [stage.edge for stage in model.history] == pytest.approx([1.0] * 5, abs=1e-6)
    assert all(stage.converged for stage in model.history)
    for i in range(1, 6):
        assert y - model.walk(X)[:, i, 0] == pytest.approx((1 - step) ** i * y, abs=1e-4)


def test_a_learner_shown_chunk_after_chunk_ends_where_least_squares_does():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 2))
    y = X @ [3.0, -2.0] + 1.0 + rng.normal(scale=0.5, size=400)
    sgd = SGDRegressor(learning_rate="invscaling", eta0=0.05, power_t=0.25)
    model = GradientBoosting(
        Squared(),
        GradientDescent(1.0),
        lambda: wrap(sgd, 1),
        n_learners=1,
        base=Constant(0),
        tolerance=1e-4,
    ).fit(X, y)
    solution = np.column_stack([X, np.ones(400)])
    best = solution @ np.linalg.lstsq(solution, y, rcond=None)[0]
    assert mean_square(model.score(X), y) < 1.01 * mean_square(best, y)
    assert model.history[0].converged
    assert model.history[0].rows >= 3 * 400  # one pass to improve and two that do not


def test_a_stage_that_does_not_converge_is_ended_with_a_warning():
    X, y = grid_data(200)
    model = GradientBoosting(
        Squared(), GradientDescent(0.5), lambda: LinearStack(1, update="adagrad", rate=1e-4), n_learners=1, max_passes=2
    )
    with pytest.warns(ConvergenceWarning, match="learner 1 had not converged after max_passes=2"):
        model.fit(X, y)
    assert not model.history[0].converged
    assert model.history[0].rows == 400


def test_nothing_left_to_learn_ends_every_stage():
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = GradientBoosting(Squared(), GradientDescent(0.5), lambda: LinearStack(1), n_learners=3).fit(
        X, np.full(100, 4.0)
    )
    assert model.score(X) == pytest.approx(np.full((100, 1), 4.0))
    assert len(model.history) == 3


# Unit cost.


def counting(kind, counts):
    """A kind of stack that counts by itself what it is asked and told."""

    class Counting(kind):
        def predict(self, X):
            counts["predicted"] += len(X)
            return super().predict(X)

        def learn(self, X, targets, weight):
            counts["learned"] += len(X)
            super().learn(X, targets, weight)

        def refit(self, i, window, target, weight):
            counts["learned"] += len(target)
            return super().refit(i, window, target, weight)

    return lambda: Counting(1)


@pytest.mark.parametrize("kind", [TreeStack, LinearStack])
def test_the_cost_is_what_the_learners_were_told_and_would_be_asked_without_a_memory_of_it(kind):
    X, y = grid_data(300)
    counts = {"predicted": 0, "learned": 0}
    model = GradientBoosting(Squared(), GradientDescent(0.5), counting(kind, counts), n_learners=4).fit(X, y)
    assert model.cost.updates == counts["learned"]
    shown = [stage.rows for stage in model.history]
    assert model.cost.predictions == sum(i * rows for i, rows in enumerate(shown, start=1))  # the paper's Σ i T_i
    # a finished learner is really asked once: when it is done
    assert counts["predicted"] == sum(shown) + 4 * len(X)


@given(n=st.integers(1, 80), n_learners=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_the_cost_is_the_papers_formula_where_every_learner_sees_as_many_rows(n, n_learners):
    X, y = grid_data(n)
    model = GradientBoosting(Squared(), GradientDescent(0.5), tree(), n_learners=n_learners).fit(X, y)
    assert model.cost.units == n * sum(range(1, n_learners + 1)) + 2 * n * n_learners


def test_the_cost_of_learners_that_need_several_passes_is_the_sum_over_their_rows():
    X, y = grid_data(250)
    model = GradientBoosting(Squared(), GradientDescent(0.5), lambda: LinearStack(1), n_learners=4).fit(X, y)
    assert model.cost.units == sum(stage.rows * (stage.number + 2) for stage in model.history)
    assert all(stage.rows % 250 == 0 and stage.rows > 250 for stage in model.history)


def test_the_history_tells_at_which_cost_each_learner_was_added():
    X, y = grid_data(100)
    model = GradientBoosting(Squared(), GradientDescent(0.5), tree(), n_learners=3).fit(X, y)
    assert [(stage.number, stage.started, stage.finished) for stage in model.history] == [
        (1, 0, 300),
        (2, 300, 700),
        (3, 700, 1200),
    ]


def test_the_callback_sees_the_model_grow_at_rising_cost():
    X, y = grid_data(200)
    seen = []

    def watch(stage, units, model):
        seen.append((stage, units, len(model.stages), mean_square(model.score(X), y)))

    model = GradientBoosting(Squared(), GradientDescent(0.5), lambda: LinearStack(1), n_learners=3, chunk_size=50)
    model.fit(X, y, callback=watch)
    stages, units, learners, errors = map(list, zip(*seen, strict=True))
    assert stages == learners == sorted(stages)
    assert set(stages) == {1, 2, 3}
    assert units == sorted(set(units))
    assert units[-1] == model.cost.units
    assert units[0] == 50 * 3  # one chunk: predicted once and learned once
    assert errors[-1] == mean_square(model.score(X), y)


# Any loss, any descent, any base.


def test_the_measured_edges_set_the_step_sizes_of_the_theory():
    X, y = grid_data()
    model = GradientBoosting(Squared(), GradientDescent("theory"), tree(), n_learners=6).fit(X, y)
    edges = np.array([stage.edge for stage in model.history])
    assert ((edges > 0) & (edges < 1)).all()
    assert model.eta == pytest.approx(theoretical_step(edges, beta=1.0))
    assert mean_square(model.score(X), y) < np.var(y)


@pytest.mark.parametrize("descent", [ResidualProjection(), FrankWolfe()])
@pytest.mark.parametrize("make_stack", [tree(), lambda: LinearStack(1)])
def test_classes_are_learned_whatever_the_descent_and_the_learners(descent, make_stack):
    X, _ = grid_data()
    labels = np.digitize(X[:, 0], [8, 16]).astype(float)
    loss = Softmax(n_classes=3)
    model = GradientBoosting(loss, descent, make_stack, n_learners=8).fit(X, labels)
    start = np.tile(loss.start(labels[:, None]), (len(X), 1))
    assert loss.mean(model.score(X), labels[:, None]) < 0.9 * loss.mean(start, labels[:, None])


def test_the_base_learns_every_row_once_and_then_stays():
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = X @ [1.0, 2.0, -3.0] + 5.0
    learned = []

    class Watched(Linear):
        def learn(self, X, y, weight, loss, scale):
            learned.append(len(X))
            super().learn(X, y, weight, loss, scale)

    pattern = Watched()
    model = GradientBoosting(Squared(), GradientDescent(0.1), tree(), n_learners=3, base=pattern).fit(X, y)
    assert sum(learned) == 500
    assert mean_square(model.walk(X)[:, 0], y) < 0.01 * np.var(y)
    assert not hasattr(pattern, "weights")  # so that the model can be fitted again


def test_the_first_learners_do_not_depend_on_those_that_follow():
    X, y = grid_data()
    labels = np.where(y > np.median(y), 1.0, -1.0)
    for make_stack in (tree(), lambda: LinearStack(1)):
        few, many = (
            GradientBoosting(Logistic(), GradientDescent(1.0), make_stack, n_learners=k, seed=5).fit(X, labels)
            for k in (3, 6)
        )
        assert np.array_equal(few.walk(X), many.walk(X)[:, :4])


def test_the_same_seed_gives_the_same_model_and_another_one_another_order():
    X, y = grid_data(200)

    def scores(seed):
        lines = lambda: LinearStack(1, update="adagrad")  # noqa: E731
        make = GradientBoosting(Squared(), GradientDescent(0.5), lines, n_learners=2, seed=seed, tolerance=0.01)
        return make.fit(X, y).score(X)

    assert np.array_equal(scores(1), scores(1))
    assert not np.array_equal(scores(1), scores(2))


# Streaming boosting converges to it.


@pytest.mark.parametrize("blocks", [(10,), (4, 3, 3)], ids=["all at once", "growing in blocks"])
def test_streaming_boosting_converges_to_the_loss_of_batch_boosting(blocks):
    X, y = make_friedman1(3000, noise=1.0, random_state=0)
    X, y, X_test, y_test = X[:1500], y[:1500], X[1500:], y[1500:]
    step = GradientDescent(0.5)
    gb = GradientBoosting(Squared(), step, lambda: TreeStack(1, max_depth=4), n_learners=10, base=Constant(0)).fit(X, y)
    stack = TreeStack(blocks[0], max_depth=4)
    sgb = Booster(Squared(), step, stack, base=Constant(0), replay=Replay(1500, refit_every=50, soonest=50))
    for block in blocks:
        if block is not blocks[0]:
            sgb.grow(block)
        sgb.learn(X, y)
    batch, stream = mean_square(gb.score(X_test), y_test), mean_square(sgb.score(X_test), y_test)
    assert batch < 0.3 * np.var(y_test)
    assert abs(stream - batch) < 0.1 * batch


def test_a_step_so_large_that_scores_leave_all_bounds_is_an_error():
    X, y = grid_data(100)
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(FloatingPointError, match="is not finite at learner"),
    ):
        GradientBoosting(Squared(), GradientDescent(1e200), tree(), n_learners=5).fit(X, y)
