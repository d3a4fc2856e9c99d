"""Whenever a Ctrl-C comes, whole rows are learned; and one thread learns at a time."""

import copy
import itertools
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import SGDRegressor

import streamboost
from streamboost import Booster, SGBClassifier, SGBRegressor
from streamboost.boosting import critical_section
from streamboost.boosting.committee import Committee
from streamboost.losses import Absolute, Squared
from streamboost.persistence.object_graph import same_state
from streamboost.replay import Replay
from streamboost.stacks import LinearStack, TreeStack

PACKAGE = str(Path(streamboost.__file__).parent)
N = 150
X = np.random.default_rng(0).normal(size=(N, 3))
Y = X[:, 0] + np.sin(3 * X[:, 1])
SMALL = {"n_estimators": 3, "max_depth": 2, "random_state": 0}


@pytest.fixture(autouse=True)
def handled():
    """Python's own handler, also where a shell in the background had SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def trees(window):
    return Booster(Squared(), stack=TreeStack(3, max_depth=2), replay=Replay(window, refit_every=8, warmup=16))


MAKERS = {
    "ladder of trees": lambda: SGBRegressor(**SMALL, memory=(16, 64), budget=8.0),
    "refits side by side": lambda: SGBRegressor(**SMALL, memory=(16, 64), budget=8.0, n_jobs=2),
    "plain loop": lambda: SGBRegressor(**SMALL, memory=None),
    "minibatch": lambda: SGBRegressor(**SMALL, memory=32, update_mode=7),
    "networks": lambda: SGBRegressor(learner="mlp", n_estimators=12, random_state=0),
    "networks in steps": lambda: SGBRegressor(learner="mlp", n_estimators=12, update_mode=7, random_state=0),
    "models in a model": lambda: SGBRegressor(
        learner=SGBRegressor(**SMALL, memory=16), n_estimators=2, memory=64, random_state=0
    ),
    "wrapped": lambda: SGBRegressor(learner=SGDRegressor(random_state=0), n_estimators=2, random_state=0),
    "booster": lambda: trees(64),
    "committee": lambda: Committee([trees(64), trees(16)]),
    "linear booster": lambda: Booster(Absolute(), stack=LinearStack(3)),
}


class InterruptAt:
    """While it is open, a SIGINT comes before a certain line of the package is run, or before each of several."""

    def __init__(self, *lines):
        self.lines, self.count = lines, 0

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *error):
        sys.settrace(None)

    def trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.count += 1
            if self.count in self.lines:
                signal.raise_signal(signal.SIGINT)
        return self.trace


def n_rows(model):
    return getattr(model, "n_samples_seen_", 0) if hasattr(model, "partial_fit") else model.n_rows


def moments(make, learn, how_many=25):
    """So many moments while rows are learned, evenly spread: numbers of lines run before."""
    learn(make())  # the first time there are modules to be imported and kernels to be loaded
    model = make()
    with InterruptAt() as meter:
        learn(model)
    return np.linspace(1, meter.count, how_many).astype(int).tolist()


def interrupted(make, learn, *moment):
    model = make()
    with pytest.raises(KeyboardInterrupt), InterruptAt(*moment):
        learn(model)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not critical_section.SECTIONS
    assert not critical_section.LEARNING
    assert not critical_section.Held.is_pending
    return model


@pytest.mark.parametrize("kind", MAKERS)
def test_an_interrupt_leaves_whole_rows_whenever_it_comes(kind):
    make, counts = MAKERS[kind], set()
    for moment in moments(make, lambda model: model.learn(X, Y)):
        model, twin = interrupted(make, lambda model: model.learn(X, Y), moment), make()
        n = n_rows(model)
        counts.add(n)
        if n:
            twin.learn(X[:n], Y[:n])
        assert same_state(model, twin)
    assert 0 in counts
    assert len(counts) > (2 if "networks" in kind else 5)  # it is not put off until all rows are learned


def test_rows_learned_one_by_one_are_whole_rows_too():
    rows = [dict(zip("abc", x, strict=True)) for x in X.tolist()]

    def learn(model):
        for row, target in zip(rows, Y.tolist(), strict=True):
            model.learn_one(row, target)

    make = MAKERS["ladder of trees"]
    for moment in moments(make, learn):
        model, twin = interrupted(make, learn, moment), make()
        for row, target in zip(rows[: n_rows(model)], Y.tolist(), strict=False):
            twin.learn_one(row, target)
        assert same_state(model, twin)


@pytest.mark.parametrize("loss", ["log_loss", "logistic"])
def test_new_columns_and_classes_come_whole_and_the_rest_can_be_learned_later(loss):
    first, new = [{"a": x, "b": "u"} for x in X[:40, 0]], [{"a": x, "c": "new"} for x in X[40:80, 0]]
    rows, labels = first + new, ["low"] * 30 + ["high"] * 10 + ["low", "high"] * 20
    if loss == "log_loss":
        labels[60:] = ["huge"] * 20

    def make():
        return SGBClassifier(loss, **SMALL, memory=(16, 64), budget=8.0)

    whole, counts = make().partial_fit(rows, labels), set()
    for moment in moments(make, lambda model: model.partial_fit(rows, labels), 40):
        model = interrupted(make, lambda model: model.partial_fit(rows, labels), moment)
        n = n_rows(model)
        counts.add(n)
        if n < len(rows):
            model.partial_fit(rows[n:], labels[n:], classes=None if n or loss == "log_loss" else ["high", "low"])
        assert model.n_samples_seen_ == len(rows)
        assert same_state(model.committee_, whole.committee_)
        assert model.classes_.tolist() == whole.classes_.tolist()
    assert len(counts) > 5


def test_an_interrupted_fit_forgets_nothing():
    make = MAKERS["ladder of trees"]
    before, after = make().fit(X[:50], Y[:50]), make().fit(X, Y)
    for moment in moments(lambda: copy.deepcopy(before), lambda model: model.fit(X, Y)):
        model = interrupted(lambda: copy.deepcopy(before), lambda model: model.fit(X, Y), moment)
        assert same_state(model, before) or same_state(model, after)


def test_a_challenger_that_is_interrupted_comes_all_the_same():
    # the newest rows are learned by the challenger while the committee learns one: no place for an interrupt
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1600, 2))
    target = np.where(np.arange(1600) < 800, 1, -1) * np.sign(rows[:, 0]) + 0.1 * rng.normal(size=1600)

    def make():
        return SGBRegressor(**SMALL, base="constant", memory=(64, 1024))

    n = next(n for n in itertools.count(1024, 64) if len(_learned(make, rows[:n], target[:n]).committee_.boosters) > 2)
    before = _learned(make, rows[: n - 1], target[: n - 1])
    after = copy.deepcopy(before)
    after.learn(rows[n - 1 : n], target[n - 1 : n])

    def learn(model):
        model.learn(rows[n - 1 : n], target[n - 1 : n])

    for moment in moments(lambda: copy.deepcopy(before), learn, 15):
        model = interrupted(lambda: copy.deepcopy(before), learn, moment)
        assert same_state(model, after if model.n_samples_seen_ == n else before)


def _learned(make, rows, target):
    return make().partial_fit(rows, target)


def test_a_handler_of_ones_own_is_called_between_rows_and_learning_goes_on():
    make, seen = MAKERS["ladder of trees"], []
    model, twin = make(), make().partial_fit(X, Y)

    def handler(number, frame):
        assert number == signal.SIGINT
        if hasattr(model, "committee_"):
            seen.append(model.n_samples_seen_)
            assert same_state(model, make().partial_fit(X[: seen[-1]], Y[: seen[-1]]))

    lines = moments(make, lambda model: model.partial_fit(X, Y), 8)[1:-1]
    before = signal.signal(signal.SIGINT, handler)
    try:
        with InterruptAt(*lines):
            model.partial_fit(X, Y)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) >= len(lines) - 1
    assert same_state(model, twin)


def test_a_handler_may_hand_over_to_another():
    # "press Ctrl-C again to end it at once": what the handler installs stays
    model, second = MAKERS["ladder of trees"](), []
    later = lambda number, frame: second.append(number)  # noqa: E731
    lines = moments(MAKERS["ladder of trees"], lambda model: model.partial_fit(X, Y), 5)[1:-1]
    before = signal.signal(signal.SIGINT, lambda number, frame: signal.signal(signal.SIGINT, later))
    try:
        with InterruptAt(*lines):
            model.partial_fit(X, Y)
        assert signal.getsignal(signal.SIGINT) is later
        assert second
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_are_none_stay_as_they_are(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        MAKERS["ladder of trees"]().partial_fit(X[:5], Y[:5])
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


class Slow(Absolute):
    """A loss that takes its time at one row: both threads are known to be there."""

    inside, go_on = threading.Event(), threading.Event()

    def gradient(self, score, y):
        if (y == 7.0).any():
            self.inside.set()
            assert self.go_on.wait(60)
        return super().gradient(score, y)


@pytest.mark.parametrize("kind", ["estimator", "booster"])
def test_a_second_thread_is_refused_and_changes_nothing(kind):
    Slow.inside.clear(), Slow.go_on.clear()
    loss = Slow()
    model = Booster(loss, stack=LinearStack(2)) if kind == "booster" else SGBRegressor(loss, learner=LinearStack(2))
    model.learn(X[:5], Y[:5])
    twin = copy.deepcopy(model)
    thread = threading.Thread(target=model.learn, args=(X[5:7], np.array([1.0, 7.0])))
    thread.start()
    try:
        assert Slow.inside.wait(60)
        with pytest.raises(RuntimeError, match="another thread is learning this model"):
            model.learn(X[:2], Y[:2])
        copy.deepcopy(model).learn(X[:2], Y[:2])  # a copy is another model
    finally:
        Slow.go_on.set()
        thread.join()
    twin.learn(X[5:7], np.array([1.0, 7.0]))
    assert same_state(model, twin)
    assert_array_equal(model.learn(X[:2], Y[:2]), twin.learn(X[:2], Y[:2]))
