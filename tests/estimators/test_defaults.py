import math
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, SGDRegressor
from sklearn.tree import DecisionTreeRegressor

from streamboost import SGBRegressor
from streamboost.bases import Constant, Frozen, Linear
from streamboost.descents import GradientDescent, Nesterov, ResidualProjection
from streamboost.estimators import defaults
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.stacks import BatchStack, LinearStack, PartialFitStack, TreeStack

MODEL = SGBRegressor(n_estimators=12, max_depth=5, min_samples_leaf=2, l2=0.5, memory=(64, 16384, 1024))


def with_options(**options):
    return SimpleNamespace(**MODEL.get_params(deep=False) | options)


def committee(loss=None, **options):
    return defaults.make_committee(with_options(**options), loss or Squared(), seed=3)


# The ladder


def test_memories_make_a_ladder_with_the_longest_first(monkeypatch):
    levels = [defaults.Level(1.0, 0, 1.0, None), defaults.Level(0.5, 1, 2.0, 20.0), defaults.Level(0.25, 3, 3.0, 50.0)]
    monkeypatch.setattr(defaults, "LEVELS", levels)
    boosters = committee(learning_rate=0.1).boosters
    assert [booster.replay.window for booster in boosters] == [16384, 1024, 64]
    assert [booster.stack.n_learners for booster in boosters] == [12, 6, 3]
    assert [booster.stack.max_depth for booster in boosters] == [5, 4, 2]
    assert [booster.stack.forget for booster in boosters] == [None, 20.0, 50.0]
    assert [booster.descent.step_size for booster in boosters] == pytest.approx([0.1, 0.2, 0.3])
    assert len({booster.seed for booster in boosters}) == 3
    assert all(booster.stack.min_samples_leaf == 2 and booster.stack.l2 == 0.5 for booster in boosters)


def test_the_first_rung_is_what_was_asked_for_and_none_below_it_is_larger():
    (learners, depth, steps, forget), *below = defaults.LEVELS
    assert (learners, depth, steps, forget) == (1.0, 0, 1.0, None)
    assert all(0 < level.learners <= 1.0 and level.depth >= 0 for level in below)


def test_a_ladder_longer_than_the_recipe_goes_on_as_its_last_rung():
    last, beyond = committee(memory=(16384, 4096, 1024, 256, 64, 32)).boosters[3:5]
    assert (beyond.stack.n_learners, beyond.stack.max_depth) == (last.stack.n_learners, last.stack.max_depth)
    assert beyond.descent == last.descent


def test_the_shortest_ladder_is_a_single_memory():
    for memory in (512, [512], None, (None,)):
        (booster,) = committee(memory=memory).boosters
        assert booster.replay.window == (None if memory in (None, (None,)) else 512)
        assert booster.stack.n_learners == 12


def test_even_the_smallest_booster_has_a_learner_and_a_split():
    boosters = committee(n_estimators=1, max_depth=1, memory=(16384, 4096, 1024, 256)).boosters
    assert all(booster.stack.n_learners == booster.stack.max_depth == 1 for booster in boosters)


def test_a_short_memory_forgets_in_its_base_and_a_long_one_does_not():
    forgets = [booster.base.forget for booster in committee().boosters]
    assert forgets[0] == 1.0
    assert forgets[0] > forgets[1] > forgets[2] >= 0.5
    assert defaults.make_base("linear", None).forget == 1.0
    assert defaults.make_base("linear", 1).forget == 0.5


def test_a_budget_buys_refits():
    usual, twice = committee(), committee(budget=2.0)
    for one, other in zip(usual.boosters, twice.boosters, strict=True):
        assert one.replay.refit_every == 2 * other.replay.refit_every
    assert committee(budget=1e9).boosters[0].replay.refit_every == 1


@pytest.mark.parametrize("budget", [0, -1.0, "much", None, math.nan])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ValueError, match=r"budget is .*, expected a number above 0"):
        committee(budget=budget)


@pytest.mark.parametrize("memory", [0, -5, 1.5, "long", (16, 0), (16, "x"), (), (16, 16), (None, None)])
def test_memories_that_are_none_are_refused(memory):
    with pytest.raises(ValueError, match=r"memory is .*, expected"):
        committee(memory=memory)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_only_the_hedge_listens_to_more_than_one_memory(readout):
    made = committee(readout=readout)
    assert [booster.replay.window for booster in made.boosters] == [16384]
    assert made.readout == readout


def test_learners_that_are_no_trees_are_kept_once():
    (linear,) = committee(learner="linear").boosters
    assert isinstance(linear.stack, LinearStack)
    assert linear.replay is None  # which cannot be refitted
    (batch,) = committee(learner=DecisionTreeRegressor()).boosters
    assert batch.replay.window == 16384


def test_two_classes_on_one_score_take_twice_the_step():
    """What counts is how far apart the scores of two classes are: two scores would each take one."""
    for rate in (0.25, None):
        options = with_options(learning_rate=rate)
        one = defaults.make_committee(options, Logistic(), seed=0, one_score=True)
        two = defaults.make_committee(options, Softmax(n_classes=2), seed=0)
        for on_one, on_two in zip(one.boosters, two.boosters, strict=True):
            on_one.allocate(2, 1)
            on_two.allocate(2, 1)
            on_one.apply_scale(*on_one.estimate_scale(np.array([[-1.0], [1.0]]), np.ones(2)))
            on_two.apply_scale(*on_two.estimate_scale(np.array([[0.0], [1.0]]), np.ones(2)))
            np.testing.assert_allclose(on_one.eta, 2.0 * on_two.eta)


@pytest.mark.parametrize("signs", [{0: 1, 2: -1}, [1, 0, -1]])
def test_learners_must_fall_for_predictions_to_rise(signs):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 3))
    there = 3 * X + np.sin(12 * X)  # it rises, but not all the way
    y = there[:, 0] - there[:, 2]
    made = committee(monotonic_cst=signs)
    made.learn(X, y)
    grid = np.tile(rng.uniform(size=(20, 1, 3)), (1, 30, 1))
    for column, sign in ((0, 1.0), (2, -1.0)):
        rows = grid.copy()
        rows[:, :, column] = np.linspace(-0.2, 1.2, 30)
        said = made.predict(rows.reshape(-1, 3)).reshape(20, 30)
        assert (sign * np.diff(said, axis=1) >= -1e-9).all()
        assert np.ptp(said, axis=1).max() > 0.1


@pytest.mark.parametrize("options", [{"learner": "linear"}, {"learner": LinearStack(2)}, {"base": LinearRegression()}])
def test_what_could_not_be_promised_is_refused(options):
    with pytest.raises(ValueError, match="monotonic_cst is given beside learner="):
        committee(monotonic_cst={0: 1}, **options)


def test_columns_are_constrained_by_name_or_number():
    assert defaults.number_columns({"b": 1, "a": -1}, ["a", "b"]) == {1: 1, 0: -1}
    assert defaults.number_columns({1: 1}, None) == {1: 1}
    assert defaults.number_columns([0, 1], ["a", "b"]) == [0, 1]
    assert defaults.number_columns(None, ["a"]) is None
    with pytest.raises(
        ValueError, match=r"monotonic_cst names the column 'c', expected names the first rows have: 'a'"
    ):
        defaults.number_columns({"c": 1}, ["a", "b"])
    with pytest.raises(ValueError, match="they have none, so use numbers"):
        defaults.number_columns({"c": 1}, None)


# The parts


@pytest.mark.parametrize(
    ("learner", "kind"),
    [
        ("tree", TreeStack),
        ("linear", LinearStack),
        (SGDRegressor(), PartialFitStack),
        (DecisionTreeRegressor(), BatchStack),
    ],
)
def test_learners_go_by_name_or_are_wrapped(learner, kind):
    stack = defaults.make_stack(with_options(learner=learner))
    assert isinstance(stack, kind)
    assert stack.n_learners == 12


def test_a_stack_given_is_copied_so_that_two_models_do_not_share_it():
    given = LinearStack(7)
    stack = defaults.make_stack(with_options(learner=given))
    assert stack is not given
    assert stack.n_learners == 7


@pytest.mark.each(name=["max_depth", "n_estimators"], value=[0, -3, 1.5, "many"])
def test_sizes_that_are_none_are_refused_and_not_rounded(name, value):
    with pytest.raises(ValueError, match="expected a whole number"):
        committee(**{name: value})


@pytest.mark.parametrize(("option", "value"), [("learner", "forest"), ("base", "tree")])
def test_names_that_are_none_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} is '{value}', expected '"):
        committee(**{option: value})


@pytest.mark.parametrize(
    ("base", "kind"), [("linear", Linear), ("constant", Constant), (0, Constant), (LinearRegression(), Frozen)]
)
def test_bases_go_by_name_number_or_model(base, kind):
    assert isinstance(defaults.make_base(base), kind)


@pytest.mark.parametrize(
    ("loss", "rate", "descent"),
    [
        (Squared(), None, GradientDescent(share=defaults.SHARE)),
        (Softmax(n_classes=3), None, GradientDescent(share=defaults.LOG_SHARE)),
        (Logistic(), None, GradientDescent(share=defaults.LOG_SHARE)),
        (Squared(), 0.3, GradientDescent(0.3)),
        (Squared(), "theory", GradientDescent("theory")),
        (Absolute(), None, ResidualProjection()),
        (Absolute(), 0.3, ResidualProjection(0.3)),
        (Absolute(), "theory", ResidualProjection()),  # Theorem 2 needs no edge for its steps
    ],
)
def test_the_loss_picks_the_descent_and_the_learning_rate_its_step(loss, rate, descent):
    assert defaults.make_descent(with_options(learning_rate=rate), loss) == descent


def test_a_rung_takes_longer_steps():
    assert defaults.make_descent(with_options(learning_rate=0.25), Squared(), 2.0) == GradientDescent(0.5)
    assert defaults.make_descent(with_options(learning_rate=None), Squared(), 2.0) == GradientDescent(
        share=2.0 * defaults.SHARE
    )
    assert defaults.make_descent(with_options(learning_rate=0.25), Absolute(), 2.0) == ResidualProjection(0.5)


def test_a_descent_given_is_taken_as_it_is():
    given = Nesterov(0.3)
    assert all(booster.descent == given for booster in committee(descent=given).boosters)
    with pytest.raises(ValueError, match=r"learning_rate is 0\.1 beside a descent.*Leave one out"):
        committee(descent=given, learning_rate=0.1)
    with pytest.raises(TypeError, match=r"descent is 'steepest', expected one of streamboost\.descents"):
        committee(descent="steepest")


def test_losses_are_made_for_the_targets_at_hand():
    assert defaults.make_regression_loss("auto", 2) == Squared(n_outputs=2)
    assert defaults.make_regression_loss(Quantile(tau=0.9), 1) == Quantile(tau=0.9)
    assert defaults.make_classification_loss("auto", 3) == Softmax(n_classes=3)
    assert defaults.make_classification_loss(Softmax(n_classes=2, l2=0.1), 5) == Softmax(n_classes=5, l2=0.1)
    assert defaults.make_classification_loss("hinge", 2) == Hinge()
    assert defaults.make_classification_loss(Logistic(l2=0.1), 4) == Logistic(n_outputs=4, l2=0.1)
    with pytest.raises(ValueError, match=r"loss is 'poisson', expected 'log_loss'.*SGBRegressor"):
        defaults.make_classification_loss("poisson", 2)


def test_margins_are_plus_and_minus_one():
    assert defaults.margins(np.array([0.0, 1.0]), 1).tolist() == [[-1.0], [1.0]]
    assert defaults.margins(np.array([2.0, 0.0]), 3).tolist() == [[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]


def test_newton_leaves_are_for_losses_that_curve_here_more_and_there_less_but_not_of_classes():
    losses = (Poisson(), Squared(), Huber(), Absolute(), Logistic(), Softmax(n_classes=3))
    assert [defaults.takes_newton(loss) for loss in losses] == [True, False, False, False, False, False]
    newton = SGBRegressor("poisson").partial_fit(np.zeros((3, 1)), [1.0, 2.0, 0.0]).committee_.boosters
    assert all(booster.descent.newton for booster in newton)
