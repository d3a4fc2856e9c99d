"""What fails in the middle of a chunk that workers learn together."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from spread_models import (
    PIXELS,
    STACKS,
    booster,
    plain,
    plain_path,  # noqa: F401 - a fixture
    scores_of,
    spread,
    starve,
    stream,
)

from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.cluster.stack_worker import StackWorker
from streamboost.stacks import ConvStack, TreeStack, TwoLayerStack


@pytest.mark.parametrize("method", ["learn", "refit", "said"])
@pytest.mark.parametrize("error", [FloatingPointError, AttributeError, MemoryError, KeyboardInterrupt])
def test_a_chunk_that_fails_half_way_is_not_gone_on_from(method, error, tmp_path, monkeypatch):
    X, y = stream(300)
    template = plain(TreeStack(6, max_depth=2), memory=64)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path) as divided:
        divided.learn(X, y)
        cut, said = divided.detach(), divided.predict(X)
        n_left = [3]  # in the middle of the chunk
        real = getattr(StackWorker, method)

        def fail(*args):
            n_left[0] -= 1
            if not n_left[0]:
                raise error("on the way")
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(StackWorker, method, fail)
            with pytest.raises(error, match="on the way"):
                divided.learn(X, y)
        for act in (divided.detach, divided.gather, lambda: divided.predict(X), lambda: divided.learn(X, y)):
            with pytest.raises(RuntimeError, match=r"no longer of one model.*attach; --resume"):
                act()
        divided.attach(cut)
        assert_array_equal(divided.predict(X), said)
        n_left[0] = 3
        with monkeypatch.context() as patch:
            patch.setattr(StackWorker, method, fail)
            with pytest.raises(error, match="on the way"):
                divided.learn(X, y)
        divided.fit(X, y)  # begins anew
        assert_array_equal(divided.predict(X), said)


def test_memory_that_runs_out_in_a_question_costs_nothing(monkeypatch):
    X, y = stream(100)
    with SpreadBooster(plain("linear"), workers=2, engine="local") as divided:
        divided.learn(X, y)
        said = divided.predict(X)
        with monkeypatch.context() as patch:
            patch.setattr(StackWorker, "said", starve)
            for ask in (divided.predict, lambda X: divided.learn(X, y)):
                with pytest.raises(MemoryError, match="80 GiB"):
                    ask(X)
        assert_array_equal(divided.predict(X), said)
        template = plain("linear")
        template.learn(X, y)
        assert_array_equal(divided.learn(X, y), template.learn(X, y))


def test_a_refit_that_fails_leaves_a_stack_torn_until_it_is_opened_anew():
    X, y = stream(200)
    divided = booster(spread(STACKS["trees that draw columns"]()))
    scores_of(divided, X, y)
    stack = divided.stack
    with pytest.raises(Exception, match=r"shape|broadcast|index|out of bounds"):
        stack.refit(0, divided.replay, np.zeros((3, 1)), divided.replay.weight)
    with pytest.raises(RuntimeError, match="no longer of one model"):
        stack.gather()
    stack.open(PIXELS, 1)
    assert not stack.predict(X).any()


def test_errors_of_a_stack_come_back_as_they_are():
    stack = spread(ConvStack((3, 3), 4, kernel=2, stride=1), 2)
    with pytest.raises(ValueError, match="n_features is 5, expected 9"):
        stack.open(5, 1)
    stack.open(9, 1)
    with pytest.raises(TypeError, match="cannot take 2 more columns"):
        stack.add_features(2)
    with pytest.raises(ValueError, match=r"targets have shape \(1, 2, 1\), expected \(1, 4, 1\)"):
        stack.learn(np.zeros((1, 9)), np.zeros((1, 2, 1)), np.ones(1))
    assert stack.predict(np.zeros((1, 9))).shape == (1, 4, 1)  # whole all the time


def test_workers_that_no_longer_agree_are_not_asked_on():
    X, _ = stream(20)
    divided = spread(TwoLayerStack(4, 3), 2)
    divided.open(PIXELS, 1)
    targets = np.zeros((20, 4, 1))
    targets[3, 3] = math.inf  # the last learner alone refuses its step
    with pytest.raises(FloatingPointError, match="learner 3 of TwoLayerStack"):
        divided.learn_batch(X, targets, np.ones(20))
    for ask in (divided.predict, divided.marks, lambda X: divided.grow(1)):
        with pytest.raises(RuntimeError, match="no longer of one model"):
            ask(X)
    divided.open(PIXELS, 1)
    assert not divided.predict(X).any()
