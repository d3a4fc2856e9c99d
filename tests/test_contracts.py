"""The contracts, run over everything we ship, and over broken things that must be caught."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
from river import forest, tree
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR
from sklearn.tree import ExtraTreeRegressor
from small_learners import nearest, river_line

from streamboost import losses, testing
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared, links
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack
from streamboost.testing import loss_checks

N = 3


def named(value):
    if isinstance(value, tuple):
        return type(value[0]).__name__
    return value.__name__ if callable(value) else None


# Stacks


STACKS = {
    "linear": lambda: LinearStack(N),
    "linear, forgetting": lambda: LinearStack(N, forget=0.9, standardize=False),
    "linear, adagrad": lambda: LinearStack(N, update="adagrad", forget=0.99),
    "trees": lambda: TreeStack(N, max_depth=3, n_bins=16),
    "trees, forgetting": lambda: TreeStack(N, max_depth=2, forget=5, min_samples_leaf=1, l2=0),
    "river": lambda: RiverStack(river_line(), N),
    "river tree": lambda: RiverStack(tree.HoeffdingTreeRegressor(grace_period=10), N),
    "river forest": lambda: RiverStack(forest.ARFRegressor(n_models=2), N),
    "partial_fit": lambda: PartialFitStack(SGDRegressor(), N),
    "partial_fit, random": lambda: PartialFitStack(MLPRegressor(hidden_layer_sizes=(3,)), N),
    "batch": lambda: BatchStack(Ridge(), N),
    "batch, one output": lambda: BatchStack(SVR(), N),
    "batch, random": lambda: BatchStack(ExtraTreeRegressor(max_depth=3), N),
    "function": lambda: FunctionStack(nearest, N),
}


@pytest.mark.pairwise(kind=STACKS, n_outputs=[1, 2])
def test_our_stacks_keep_the_contract(kind, n_outputs):
    testing.check_stack(STACKS[kind], n_outputs=n_outputs)


class LearnsOnPredict(LinearStack):
    def predict(self, X):
        said = super().predict(X)
        self._weights *= 1.01
        return said


class HandsOutItsState(LinearStack):
    """Answers from an array it keeps."""

    def predict(self, X):
        if not hasattr(self, "kept") or self.kept.shape != (len(X), self.n_learners, self.n_outputs):
            self.kept = super().predict(X)
        return self.kept

    def learn(self, X, targets, weight):
        super().learn(X, targets, weight)
        self.__dict__.pop("kept", None)


class KeepsWhatItWasGiven(FunctionStack):
    """Learns late, from arrays that are no longer its own."""

    def learn(self, X, targets, weight):
        if hasattr(self, "rows"):
            old_X, old_targets = self.rows
            for i in range(self.n_learners if len(old_X) else 0):
                bias = old_targets[:, i].mean(axis=0)
                self.bias = self.bias + bias if hasattr(self, "bias") else bias
        self.rows = X, targets

    def predict(self, X):
        return super().predict(X) + getattr(self, "bias", 0.0)


class WritesIntoItsInput(LinearStack):
    def predict(self, X):
        np.nan_to_num(X, copy=False)
        return super().predict(X)


class SaysSomethingUntaught(LinearStack):
    def _open(self, seed):
        super()._open(seed)
        self._weights[-1] = 1.0


class NeverLearns(LinearStack):
    def learn(self, X, targets, weight):
        pass


class ForgetsItsSeed(LinearStack):
    def learn(self, X, targets, weight):
        super().learn(X, targets + np.random.default_rng().normal(size=targets.shape), weight)


class LearnsRowsOfWeightZero(LinearStack):
    def learn(self, X, targets, weight):
        super().learn(X, targets, np.maximum(weight, 0.1))


class ShrinksOnEveryCall(LinearStack):
    def learn(self, X, targets, weight):
        self._weights *= 0.9
        super().learn(X, targets, weight)


class LearnersListenToEachOther(LinearStack):
    def learn(self, X, targets, weight):
        super().learn(X, targets + 0.1 * targets.mean(axis=1, keepdims=True), weight)


class SharesItsWeightsWithCopies(LinearStack):
    def __deepcopy__(self, memo):
        return copy.copy(self)


class PicklesHalf(LinearStack):
    def __getstate__(self):
        return self.__dict__ | {"_covariance": np.eye(self.n_features + 1)}

    def __deepcopy__(self, memo):
        twin = type(self)(self.n_learners)
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin


class ForgetsOnGrowing(LinearStack):
    def grow(self, k):
        super().grow(k)
        self._weights[:] = 0.0


class ForgetsOnNewColumns(LinearStack):
    def add_features(self, k):
        super().add_features(k)
        self._weights[-1] = 0.0


class ForgetsOnNewOutputs(LinearStack):
    def add_outputs(self, k):
        super().add_outputs(k)
        self._weights[:] = np.roll(self._weights, 1, axis=1)


class AnswersFlat(LinearStack):
    def predict(self, X):
        return super().predict(X)[..., 0]


class RecallsBadly(TreeStack):
    def predict_leaves(self, leaf_ids):
        said = super().predict_leaves(leaf_ids)
        return said if leaf_ids.shape[1] == self.n_learners else 0.5 * said


class AnswersWithTheLast(LinearStack):
    def predict_first(self, X, k):
        return self.predict(X)[:, self.n_learners - k :]


BROKEN_STACKS = [
    (LearnsOnPredict, "asked twice, a stack says the same twice"),
    (HandsOutItsState, "writing into what predict returned"),
    (lambda n: KeepsWhatItWasGiven(nearest, n), "writing into arrays after they were learned"),
    (WritesIntoItsInput, "X is left as it was given"),
    (SaysSomethingUntaught, "a learner that has learned nothing says 0; one said 1"),
    (NeverLearns, "learning changes what learners say"),
    (ForgetsItsSeed, "the same|goes on as"),
    (LearnsRowsOfWeightZero, "rows of weight 0 teach nothing"),
    (ShrinksOnEveryCall, "learning no rows changes nothing"),
    (LearnersListenToEachOther, "the last learner is told does not change what the others say"),
    (SharesItsWeightsWithCopies, "also later|deep copy"),
    (PicklesHalf, "a stack out of pickle goes on"),
    (ForgetsOnGrowing, "growing leaves old answers"),
    (ForgetsOnNewColumns, "more columns, all missing"),
    (ForgetsOnNewOutputs, "more outputs leave old answers"),
    (AnswersFlat, r"predict answers \(n, N, m\) = \(0, 3, 2\); it was \(0, 3\)"),
    (RecallsBadly, "the leaves of 1 learners tell"),
    (AnswersWithTheLast, "the first 1 learners say the same"),
]


@pytest.mark.parametrize(("kind", "promise"), BROKEN_STACKS)
def test_a_broken_stack_is_caught(kind, promise):
    with pytest.raises(AssertionError, match=promise):
        testing.check_stack(lambda: kind(N))


def test_a_stack_that_cannot_be_pickled_is_excused():
    testing.check_stack(lambda: FunctionStack(lambda X, target, weight: nearest(X, target, weight), 2))


# Losses

LOSSES = [  # each of one output, and of several with a ridge
    (Squared(), Squared(n_outputs=2, l2=0.3)),
    (Absolute(), Absolute(n_outputs=2, l2=0.3)),
    (Huber(delta=0.8), Huber(n_outputs=2, l2=0.3)),
    (Quantile(tau=0.2), Quantile(n_outputs=2, tau=0.7, l2=0.3)),
    (Poisson(), Poisson(n_outputs=2, l2=0.3)),
    (Logistic(), Logistic(n_outputs=2, l2=0.3)),
    (Hinge(), Hinge(n_outputs=2, l2=0.3)),
    (Softmax(n_classes=2), Softmax(n_classes=4, l2=0.3)),
]


@pytest.mark.parametrize("loss", [loss for forms in LOSSES for loss in forms], ids=repr)
def test_our_losses_keep_the_contract(loss):
    testing.check_loss(loss, loss_checks.targets_for(loss))


def test_every_built_in_loss_is_among_them():
    assert {type(loss) for forms in LOSSES for loss in forms} == set(losses.NAMES.values())


class WrongSlope(Squared):
    def bare_gradient(self, score, y):
        return 2.0 * (score - y)


class WrongSign(Absolute):
    def bare_gradient(self, score, y):
        return np.sign(y - score)


class NotConvex(Squared):
    def bare_value(self, score, y):
        return np.minimum(super().bare_value(score, y), 1.0)

    def bare_gradient(self, score, y):
        return np.where(super().bare_value(score, y)[..., None] < 1.0, score - y, 0.0)


class SteepAtItsKink(Absolute):
    """Where score and target meet, here after rounding, it gives a slope that is no subgradient."""

    def bare_gradient(self, score, y):
        return np.where(np.abs(score - y) < 0.5, 2.0, np.sign(score - y))


class KeepsOutputsApart(Squared):
    def bare_value(self, score, y):
        return 0.5 * (score - y) ** 2


class TakesFlatRowsOnly(Squared):
    def bare_value(self, score, y):
        return 0.5 * np.sum((score.reshape(len(score), -1) - y.reshape(len(y), -1)) ** 2, axis=-1)


class ReturnsTheScore(Squared):
    def bare_gradient(self, score, y):
        np.subtract(score, y, out=score)
        return score


class WritesIntoTargets(Squared):
    def bare_value(self, score, y):
        value = super().bare_value(score, y)
        y += 1e-9
        return value


@dataclass(frozen=True)
class BoastsOfStrength(Huber):
    def bare_facts(self, radius):
        return super().bare_facts(radius)._replace(strong_convexity=1.0)


@dataclass(frozen=True)
class BoastsOfSmoothness(Poisson):
    def bare_facts(self, radius):
        return super().bare_facts(radius)._replace(smoothness=0.1)


@dataclass(frozen=True)
class BoastsOfSmallGradients(Squared):
    def bare_facts(self, radius):
        return super().bare_facts(radius)._replace(gradient_bound=0.1)


class WrongWayBack(links.Logit):
    def score(self, prediction):
        return np.log(prediction)


class LosesItsWay(Logistic):
    link = WrongWayBack()


class KnowsNoScale(Squared):
    def scale(self, y, weight=None):
        return losses.Scale(0.0, 1.0)


BROKEN_LOSSES = [
    (WrongSlope(), "gradient is the derivative of value; it was"),
    (WrongSign(), "gradient is the derivative of value; it was"),
    (NotConvex(), "value is convex; halfway it was higher by"),
    (SteepAtItsKink(), "gradient is the derivative of value"),
    (KeepsOutputsApart(n_outputs=2), r"value has shape \(60,\); it was \(60, 2\)"),
    (TakesFlatRowsOnly(n_outputs=2), "value broadcasts over the steps of a walk|could not be broadcast"),
    (ReturnsTheScore(), "gradient returns a new array|broadcasts over"),
    (WritesIntoTargets(), "targets are left as they were"),
    (BoastsOfStrength(), "value lies above its tangents"),
    (BoastsOfSmoothness(), "smoothness bounds how fast the gradient changes"),
    (BoastsOfSmallGradients(), "gradients are at most 0.1 long"),
    (LosesItsWay(), "link.score undoes link.predict"),
    (KnowsNoScale(), "scale gives finite numbers above 0"),
]


@pytest.mark.parametrize(("loss", "promise"), BROKEN_LOSSES, ids=lambda value: type(value).__name__)
def test_a_broken_loss_is_caught(loss, promise):
    with pytest.raises((AssertionError, ValueError), match=promise):
        testing.check_loss(loss)


def test_a_subgradient_that_is_none_is_caught_at_the_kink():
    class Upright(Absolute):
        def bare_gradient(self, score, y):
            return np.where(score == y, 3.0, np.sign(score - y))

    class AtTheKink(testing.LossCase):
        def scores(self, salt=0):
            return self.y.copy() if salt == 1 else super().scores(salt)

    case = AtTheKink(Upright(), np.zeros((10, 1)))
    with pytest.raises(AssertionError, match="value lies above its tangents"):
        loss_checks.check_subgradient(case)
    loss_checks.check_subgradient(AtTheKink(Absolute(), np.zeros((10, 1))))


def test_a_loss_with_targets_of_its_own_coding_says_what_it_needs():
    class Shares(Squared):
        def is_coded(self, y):
            return (y > 0) & (y < 1)

    with pytest.raises(ValueError, match="Give check_loss targets y it takes"):
        testing.check_loss(Shares())
    testing.check_loss(Shares(), np.random.default_rng(0).uniform(0.1, 0.9, size=(50, 1)))
