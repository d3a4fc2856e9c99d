"""A stack that is spread keeps the contract of a stack, also when it grows mid-stream."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import Ridge
from spread_models import (
    PIXELS,
    STACKS,
    N,
    booster,
    plain_path,  # noqa: F401 - a fixture
    scores_of,
    spread,
    stream,
)

from streamboost import SGBRegressor, testing
from streamboost.cluster.crew import LocalCrew
from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.descents import GradientDescent
from streamboost.errors import SnapshotError
from streamboost.losses import Logistic, Softmax
from streamboost.stacks import ChainStack, LinearStack, TwoLayerStack
from streamboost.stacks.base import Stack
from streamboost.testing.stack_checks import StackCase


@pytest.mark.parametrize("check", testing.STACK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["linear", "trees", "networks", "river", "batch", "chain that draws"])
def test_a_spread_stack_keeps_the_contract_of_a_stack(kind, check):
    check(StackCase(lambda: spread(STACKS[kind]())))


@pytest.mark.parametrize("kind", ["linear", "trees", "networks", "partial_fit", "batch", "chain that draws"])
def test_growing_new_columns_and_new_outputs_give_the_same(kind):
    X, y = stream(300)
    boosters = [booster(stack, Softmax(n_classes=2)) for stack in (STACKS[kind](), spread(STACKS[kind]()))]
    y = (y > 0).astype(float)
    said = []
    for model in boosters:
        parts = [scores_of(model, X[:100], y[:100])]
        model.grow(2)
        parts.append(scores_of(model, X[100:150], y[100:150]))
        model.add_features(1)
        wide = np.column_stack([X, X[:, 0] ** 2])
        parts.append(scores_of(model, wide[150:200], y[150:200]))
        model.add_outputs(Softmax(n_classes=3), -3.0)
        parts.append(scores_of(model, wide[200:], y[200:] + (X[200:, 1] > 1)))
        said.append([part.ravel() for part in parts])
    assert boosters[1].stack.n_learners == N + 2
    assert_array_equal(np.concatenate(said[1]), np.concatenate(said[0]))
    assert list(boosters[1].stack.refittable) == list(boosters[0].stack.refittable)


@pytest.mark.parametrize("kind", ["trees", "trees that draw columns", "networks", "chain"])
def test_categories_give_the_same(kind):
    rng = np.random.default_rng(0)
    X, y = stream(300)
    X[:, 2] = rng.integers(5, size=300)
    y = y + 10 * (X[:, 2] == 3)
    boosters = [booster(stack) for stack in (STACKS[kind](), spread(STACKS[kind]()))]
    said = []
    for model in boosters:
        model.open(PIXELS, 1)
        model.set_categorical(np.array([2], np.int32), 8)
        said.append(scores_of(model, X, y))
    assert_array_equal(said[1], said[0])
    assert_array_equal(boosters[1].stack.categorical, boosters[0].stack.categorical)


@pytest.mark.parametrize("kind", ["trees", "linear", "networks"])
def test_splitting_the_output_gives_the_same(kind):
    X, y = stream(200)
    said = []
    for stack in (STACKS[kind](), spread(STACKS[kind]())):
        model = booster(stack, Logistic(), GradientDescent(0.3))
        first = scores_of(model, X[:100], np.where(y[:100] > 0, 1.0, -1.0))
        model.split_output(Softmax(n_classes=2))
        said.append([first.ravel(), scores_of(model, X[100:], (y[100:] > 0).astype(float)).ravel()])
    assert_array_equal(np.concatenate(said[1]), np.concatenate(said[0]))


def test_a_copy_of_an_open_one_is_the_plain_stack_and_goes_on_alone():
    X, y = stream(200)
    divided = booster(spread(STACKS["networks"]()))
    scores_of(divided, X[:100], y[:100])
    home = copy.deepcopy(divided)
    assert type(home.stack) is TwoLayerStack
    assert_array_equal(scores_of(home, X[100:], y[100:]), scores_of(divided, X[100:], y[100:]))


def test_what_cannot_be_divided_is_refused_at_once():
    class Loner(LinearStack):
        _held = Stack._held

    with pytest.raises(TypeError, match="Loner cannot be divided"):
        spread(Loner(4))
    with pytest.raises(TypeError, match="Loner cannot be divided"):
        spread(ChainStack([LinearStack(2), Loner(4)]))
    with pytest.raises(ValueError, match="workers is 5, expected a whole number from 1 to 4"):
        spread(LinearStack(4), 5)
    with pytest.raises(TypeError, match=r"use streamboost.stacks.wrap"):
        spread(Ridge())
    opened = LinearStack(4)
    opened.open(2, 1)
    with pytest.raises(ValueError, match="open already"):
        spread(opened)
    with pytest.raises(TypeError, match="expected an SGBRegressor"):
        SpreadBooster(Ridge(), engine="local")
    with pytest.raises(ValueError, match="has learned rows already"):
        SpreadBooster(SGBRegressor().fit([[1.0], [2.0]], [1.0, 2.0]), engine="local")


def test_an_open_one_is_neither_pickled_nor_saved(tmp_path):
    X, y = stream(40)
    model = SGBRegressor(learner=spread(LinearStack(4)), semantics="minibatch").fit(X, y)
    with pytest.raises(TypeError, match=r"Use gather\(\) for the plain"):
        pickle.dumps(model)
    with pytest.raises(SnapshotError):
        model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())
    assert pickle.loads(pickle.dumps(spread(LinearStack(4)))).n_learners == 4


def test_marks_of_rows_just_learned_are_not_asked_for_again(monkeypatch):
    X, y = stream(200)
    divided = booster(spread(STACKS["trees"]()))
    scores_of(divided, X, y)
    asked = []
    ask_all = LocalCrew.ask_all
    monkeypatch.setattr(
        LocalCrew, "ask_all", lambda crew, method, *args: asked.append(method) or ask_all(crew, method, *args)
    )
    divided.stack.learn(X[:5], np.zeros((5, N, 1)), np.ones(5))
    known = divided.stack.marks(X[:5])
    assert asked == []
    assert_array_equal(known, divided.stack.gather().marks(X[:5]))
    other = X[:5].copy()
    other[0] += 1.0
    assert_array_equal(divided.stack.marks(other), divided.stack.gather().marks(other))
    divided.stack.refit(0, divided.replay, np.zeros((divided.replay.fill, 1)), divided.replay.weight)
    assert_array_equal(divided.stack.marks(X[:5]), divided.stack.gather().marks(X[:5]))
