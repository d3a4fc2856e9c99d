import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, SGDRegressor
from sklearn.tree import DecisionTreeRegressor

from streamboost import recipes
from streamboost.bases import Constant, Frozen, Linear
from streamboost.descents import GradientDescent, ResidualProjection
from streamboost.losses import Absolute, Hinge, Logistic, Quantile, Softmax, Squared
from streamboost.stacks import BatchStack, LinearStack, PartialFitStack, TreeStack

TREES = {"n_estimators": 4, "max_depth": 3, "min_samples_leaf": 2, "l2": 0.5}


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
    stack = recipes.make_stack(learner, **TREES)
    assert isinstance(stack, kind)
    assert stack.n_learners == 4


def test_a_stack_given_is_copied_so_that_two_models_do_not_share_it():
    given = LinearStack(7)
    stack = recipes.make_stack(given, **TREES)
    assert stack is not given
    assert stack.n_learners == 7


@pytest.mark.parametrize(
    ("base", "kind"), [("linear", Linear), ("constant", Constant), (0, Constant), (LinearRegression(), Frozen)]
)
def test_bases_go_by_name_number_or_model(base, kind):
    assert isinstance(recipes.make_base(base), kind)


@pytest.mark.parametrize(
    ("loss", "rate", "descent"),
    [
        (Squared(), None, GradientDescent()),
        (Squared(), 0.3, GradientDescent(0.3)),
        (Squared(), "theory", GradientDescent("theory")),
        (Absolute(), None, ResidualProjection()),
        (Absolute(), 0.3, ResidualProjection(0.3)),
        (Absolute(), "theory", ResidualProjection()),  # Theorem 2 needs no edge for its steps
    ],
)
def test_the_loss_picks_the_descent_and_the_learning_rate_its_step(loss, rate, descent):
    assert recipes.make_descent(None, rate, loss) == descent


def test_losses_are_made_for_the_targets_at_hand():
    assert recipes.make_regression_loss("auto", 2) == Squared(n_outputs=2)
    assert recipes.make_regression_loss(Quantile(tau=0.9), 1) == Quantile(tau=0.9)
    assert recipes.make_classification_loss("auto", 3) == Softmax(n_classes=3)
    assert recipes.make_classification_loss(Softmax(n_classes=2, l2=0.1), 5) == Softmax(n_classes=5, l2=0.1)
    assert recipes.make_classification_loss("hinge", 2) == Hinge()
    assert recipes.make_classification_loss(Logistic(l2=0.1), 4) == Logistic(n_outputs=4, l2=0.1)
    with pytest.raises(ValueError, match=r"loss is 'poisson', expected 'log_loss'.*SGBRegressor"):
        recipes.make_classification_loss("poisson", 2)


def test_margins_are_plus_and_minus_one():
    assert recipes.margins(np.array([0.0, 1.0]), 1).tolist() == [[-1.0], [1.0]]
    assert recipes.margins(np.array([2.0, 0.0]), 3).tolist() == [[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]
