import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.boosting.cost import CostMeter
from streamboost.descents import GradientDescent, ResidualProjection
from streamboost.losses import Squared
from streamboost.replay import Replay
from streamboost.stacks.base import Stack
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.tree import TreeStack


def stream(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    return X, X[:, 0]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100), st.booleans())))
def test_a_prediction_costs_1_and_an_update_2(calls):
    meter = CostMeter()
    for rows, learners, is_update in calls:
        meter.add(rows, *((0, learners) if is_update else (learners, 0)))
    assert meter.units == sum(rows * learners * (2 if is_update else 1) for rows, learners, is_update in calls)


@pytest.mark.parametrize("update_mode", ["sequential", "minibatch"])
@pytest.mark.parametrize("descent", [GradientDescent(0.1), ResidualProjection(0.1)])
@pytest.mark.parametrize(("rows", "learners"), [(1, 1), (50, 7)])
def test_streaming_boosting_costs_3TN(rows, learners, descent, update_mode):
    booster = Booster(Squared(), descent, LinearStack(learners), base=Constant(0), update_mode=update_mode)
    booster.learn(*stream(rows))
    assert booster.cost.units == 3 * rows * learners


class Counting(Stack):
    """A stack that counts what it is asked and told."""

    asked = told = 0

    def _open(self, seed):
        pass

    def predict(self, X):
        self.asked += len(X) * self.n_learners
        return np.zeros((len(X), self.n_learners, self.n_outputs))

    def learn(self, X, targets, weight):
        self.told += len(X) * self.n_learners

    def grow(self, k):
        self.n_learners += k

    def add_features(self, k):
        self.n_features += k

    def add_outputs(self, k):
        self.n_outputs += k


def test_the_meter_counts_what_really_happened():
    stack = Counting(5)
    booster = Booster(Squared(), GradientDescent(0.1), stack, base=Constant(0))
    booster.learn(*stream(30))
    assert (booster.cost.predictions, booster.cost.updates) == (stack.asked, stack.told)


def test_growing_costs_from_then_on():
    booster = Booster(Squared(), GradientDescent(0.1), LinearStack(4), base=Constant(0))
    booster.learn(*stream(20))
    booster.grow(3)
    booster.learn(*stream(10))
    assert booster.cost.units == 3 * (20 * 4 + 10 * 7)


def test_predicting_without_learning_is_not_training():
    booster = Booster(Squared(), GradientDescent(0.1), LinearStack(4), base=Constant(0))
    X, y = stream(20)
    booster.learn(X, y)
    booster.predict(X)
    assert booster.cost.units == 3 * 20 * 4


def test_exact_ftrl_pays_for_every_refit():
    n, learners = 12, 3
    booster = Booster(
        Squared(), GradientDescent(0.1), TreeStack(learners, max_depth=2), base=Constant(0), replay=Replay.exact()
    )
    booster.learn(*stream(n))
    refits = sum(t * learners for t in range(1, n + 1))  # row t refits every learner to t rows
    assert booster.cost.units == 3 * n * learners + 2 * refits
