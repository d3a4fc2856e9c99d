"""Learners spread over workers: the scores and learners of one process, to the last bit."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
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

from streamboost import net_native
from streamboost.bases import Constant
from streamboost.descents import AdaGrad, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.replay import Replay
from streamboost.states import same_state

COMPILED = net_native.suits
LOSSES = {
    "squared": (Squared(), lambda y: y),
    "two targets": (Squared(n_outputs=2), lambda y: np.column_stack([y, -2 * y])),
    "absolute": (Absolute(), lambda y: y),
    "huber": (Huber(), lambda y: y),
    "quantile": (Quantile(0.8), lambda y: y),
    "poisson": (Poisson(), lambda y: np.round(np.abs(y))),
    "logistic": (Logistic(), lambda y: np.where(y > 3, 1.0, -1.0)),
    "hinge": (Hinge(), lambda y: np.where(y > 3, 1.0, -1.0)),
    "softmax": (Softmax(n_classes=3), lambda y: np.digitize(y, [-20.0, 25.0]).astype(float)),
}
DESCENTS = {
    "gradient": GradientDescent(0.3),
    "adaptive": GradientDescent("theory"),
    "nesterov": Nesterov(),
    "adagrad": AdaGrad(),
    "frank-wolfe": FrankWolfe(radius=5.0),
    "residual": ResidualProjection(1.0),
}


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("kind", STACKS)
def test_scores_and_learners_are_those_of_the_undivided_stack(kind, workers):
    X, y = stream()
    plain, divided = booster(STACKS[kind]()), booster(spread(STACKS[kind](), workers))
    assert_array_equal(scores_of(divided, X, y), scores_of(plain, X, y))
    assert_array_equal(divided.score(X), plain.score(X))
    assert_array_equal(divided.edges.running, plain.edges.running)
    home = divided.stack.gather()
    assert type(home) is type(plain.stack)
    assert_array_equal(home.predict(X), plain.stack.predict(X))
    if "batch" not in kind and kind not in ("function", "chain that draws"):  # of which pickles are compared
        assert same_state(home, plain.stack)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["linear", "trees", "networks", "chain"])
def test_every_loss_gives_the_same_scores(kind, loss):
    X, y = stream(200)
    y = LOSSES[loss][1](y)
    plain, divided = (booster(stack, LOSSES[loss][0]) for stack in (STACKS[kind](), spread(STACKS[kind]())))
    assert_array_equal(scores_of(divided, X, y), scores_of(plain, X, y))


@pytest.mark.parametrize("loss", ["squared", "two targets", "logistic", "softmax", "poisson", "absolute"])
@pytest.mark.parametrize("kind", ["networks", "convolutions"])
def test_networks_beside_the_compiled_loop_differ_by_rounding_at_most(kind, loss, monkeypatch):
    monkeypatch.setattr(net_native, "suits", COMPILED)
    X, y = stream()
    y = LOSSES[loss][1](y)
    plain, divided = (booster(stack, LOSSES[loss][0]) for stack in (STACKS[kind](), spread(STACKS[kind]())))
    ours, theirs = scores_of(divided, X, y), scores_of(plain, X, y)
    assert COMPILED(plain)
    assert not COMPILED(divided)
    if loss in ("squared", "two targets"):
        assert_array_equal(ours, theirs)
    else:
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


@pytest.mark.parametrize("semantics", ["minibatch", 16, "sequential"])
@pytest.mark.parametrize("descent", DESCENTS)
def test_every_descent_gives_the_same_scores(descent, semantics):
    X, y = stream(120)
    plain, divided = (
        booster(stack, Squared(), DESCENTS[descent], semantics=semantics)
        for stack in (STACKS["chain"](), spread(STACKS["chain"]()))
    )
    assert_array_equal(scores_of(divided, X, y), scores_of(plain, X, y))


@pytest.mark.parametrize("iterate", ["average", "uniform", "polynomial"])
def test_averages_over_hypotheses_and_parameters_are_the_same(iterate):
    X, y = stream(200)
    plain, divided = (booster(stack, iterate=iterate) for stack in (STACKS["networks"](), spread(STACKS["networks"]())))
    assert_array_equal(scores_of(divided, X, y), scores_of(plain, X, y))
    assert_array_equal(divided.score(X), plain.score(X))


@pytest.mark.parametrize("targets", ["fresh", "recorded"])
@pytest.mark.parametrize("learners", ["next", "all"])
def test_refits_of_every_order_are_the_same(targets, learners):
    X, y = stream(150)
    replay = Replay(64, refit_every=20, warmup=20, targets=targets, learners=learners)
    plain, divided = (
        booster(stack, replay=copy.deepcopy(replay)) for stack in (STACKS["trees"](), spread(STACKS["trees"]()))
    )
    assert_array_equal(scores_of(divided, X, y, 30), scores_of(plain, X, y, 30))


ODD = {
    "fortran": np.asfortranarray,
    "every other row of a larger array": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every other column of a larger array": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
    "big-endian": lambda X: X.astype(">f8"),
    "not aligned": lambda X: unaligned(X),
    "float32": lambda X: X.astype(np.float32),
    "read-only": lambda X: frozen(X),
}


def unaligned(X):
    raw = np.zeros(X.nbytes + 1, np.uint8)
    view = raw[1:].view(np.float64).reshape(X.shape)
    view[:] = X
    return view


def frozen(X):
    X = X.copy()
    X.flags.writeable = False
    return X


@pytest.mark.parametrize("layout", ODD)
@pytest.mark.parametrize("kind", ["linear", "trees", "networks", "chain", "partial_fit", "batch"])
def test_arrays_of_odd_layout_give_the_same(kind, layout):
    X, y = stream(200)
    plain, divided = booster(STACKS[kind]()), booster(spread(STACKS[kind]()))
    odd = ODD[layout](X)
    assert_array_equal(scores_of(divided, odd, ODD["read-only"](y)), scores_of(plain, odd, y))
    assert_array_equal(divided.score(odd), plain.score(odd))


@pytest.mark.parametrize("layout", [layout for layout in ODD if layout not in ("big-endian", "not aligned", "float32")])
@pytest.mark.parametrize("kind", ["linear", "trees", "networks"])
def test_the_stack_itself_takes_arrays_of_odd_layout(kind, layout):
    plain, divided = STACKS[kind](), spread(STACKS[kind]())
    X, _ = stream(40)
    targets = np.random.default_rng(1).normal(size=(40, N, 2))
    for stack in (plain, divided):
        stack.open(PIXELS, 2, seed=3)
        stack.learn_batch(ODD[layout](X), ODD[layout](targets), np.ones(40))
    assert_array_equal(divided.predict(ODD[layout](X)), plain.predict(X))


@pytest.mark.parametrize("kind", STACKS)
def test_opening_a_part_gives_the_part_of_what_was_opened(kind):
    whole = STACKS[kind]()
    whole.open(PIXELS, 2, seed=5)
    for start, stop in ((0, 3), (3, 4), (2, N)):
        part = STACKS[kind]().part(start, stop)
        part.open(PIXELS, 2, seed=5)
        assert same_state(part, whole.part(start, stop))


def test_a_constant_base_and_weights_of_rows_give_the_same():
    X, y = stream(200)
    weight = np.where(np.arange(200) % 7 == 0, 0.0, 1.0 + np.arange(200) % 2)
    said = []
    for stack in (STACKS["trees"](), spread(STACKS["trees"]())):
        model = booster(stack, base=Constant(0))
        said.append(
            np.concatenate([model.learn(X[a : a + 40], y[a : a + 40], weight[a : a + 40]) for a in range(0, 200, 40)])
        )
    assert_array_equal(said[1], said[0])
