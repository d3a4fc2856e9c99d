"""Learners spread over workers: the stack, booster and estimator of one process, to the last bit."""

import copy
import dataclasses
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.tree import ExtraTreeRegressor
from small_learners import nearest, river_line

from streamboost import Booster, SGBClassifier, SGBRegressor, load, net_native, testing
from streamboost.bases import Constant
from streamboost.checkpoints import Checkpoint, CheckpointStore
from streamboost.cluster.crew import LocalCrew
from streamboost.cluster.spread import SpreadStack
from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.cluster.stack_worker import StackWorker
from streamboost.datasets import friedman
from streamboost.descents import AdaGrad, FrankWolfe, GradientDescent, Nesterov, ResidualProjection
from streamboost.errors import SnapshotError
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.prequential import run
from streamboost.replay import Replay
from streamboost.running import Options, Run
from streamboost.sources import open_source
from streamboost.stacks import ChainStack, ConvStack, LinearStack, TreeStack, TwoLayerStack
from streamboost.stacks.base import Stack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack
from streamboost.states import same_state
from streamboost.testing.stack_checks import StackCase

N = 7
COMPILED = net_native.suits


STACKS = {
    "linear": lambda: LinearStack(N),
    "linear, adagrad": lambda: LinearStack(N, update="adagrad", forget=0.99),
    "trees": lambda: TreeStack(N, max_depth=3, n_bins=16),
    "trees that draw columns": lambda: TreeStack(N, max_depth=3, n_bins=16, max_features=2, forget=20.0),
    "networks": lambda: TwoLayerStack(N, 4),
    "networks, momentum": lambda: TwoLayerStack(N, 3, update="momentum", dtype="float64", standardize=False),
    "convolutions": lambda: ConvStack((3, 3), N, kernel=2, stride=1, channels=2),
    "river": lambda: RiverStack(river_line(), N),
    "partial_fit": lambda: PartialFitStack(SGDRegressor(), N),
    "batch": lambda: BatchStack(Ridge(), N),
    "batch, random": lambda: BatchStack(ExtraTreeRegressor(max_depth=3), N),
    "function": lambda: FunctionStack(nearest, N),
    "chain": lambda: ChainStack([LinearStack(2), TreeStack(3, max_depth=2, n_bins=16), TwoLayerStack(2, 3)]),
    "chain that draws": lambda: ChainStack(
        [
            TreeStack(4, max_depth=2, max_features=1, n_bins=16),
            ChainStack([TreeStack(2, max_depth=2, max_features=2, n_bins=16), BatchStack(Ridge(), 1)]),
        ]
    ),
}
PIXELS = 9
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


def stream(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, PIXELS))
    X[rng.uniform(size=X.shape) < 0.05] = np.nan
    return X, 50 * np.tanh(np.nan_to_num(X[:, :3]).sum(axis=1)) + 3


def spread(stack, workers=3, **options):
    return SpreadStack(stack, workers, engine="local", **options)


def booster(stack, loss=Squared(), descent=None, **options):  # noqa: B008 (a loss never changes)
    replay = Replay(128, refit_every=16, warmup=32) if len(stack.refittable) else None
    return Booster(loss, descent, stack, **{"replay": replay, "semantics": "minibatch", **options})


def scores_of(model, X, y, size=50):
    return np.concatenate([model.learn(X[a : a + size], y[a : a + size]) for a in range(0, len(X), size)])


@pytest.fixture(autouse=True)
def plain_path(monkeypatch):
    """Networks beside networks on the same path: the compiled loop rounds logarithms in its own way."""
    monkeypatch.setattr(net_native, "suits", lambda booster: False)


# The same, to the last bit.


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


# The contract of a stack, and what happens mid-stream.


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


# Estimators.


@pytest.mark.parametrize("learner", ["linear", "networks", "trees", "chain"])
def test_an_estimator_takes_a_spread_stack_as_learner(learner):
    X, y = stream(300)
    plain, divided = (
        SGBRegressor(learner=stack, semantics="minibatch", random_state=0)
        for stack in (STACKS[learner](), spread(STACKS[learner]()))
    )
    assert_array_equal(scores_of(divided, X, y), scores_of(plain, X, y))
    assert_array_equal(divided.predict(X), plain.predict(X))
    if learner == "trees":
        assert_array_equal(divided.feature_importances_, plain.feature_importances_)
    else:
        assert not hasattr(divided, "feature_importances_")


def table(n=300):
    X, y = stream(n)
    names = [f"x{j}" for j in range(PIXELS - 1)]
    city = pa.array(np.array(["Bonn", "Graz", "Wien"])[(np.nan_to_num(X[:, -1]) * 7).astype(int) % 3])
    return pa.table([*X[:, :-1].T, city], names=[*names, "city"]), np.digitize(y, [-20.0, 25.0]).astype(str)


def test_a_classifier_of_tables_with_text_and_a_late_class_is_the_same():
    X, y = table()
    late = np.where(y == "2", np.where(np.arange(len(y)) < 150, "0", "2"), y)
    template = SGBClassifier(learner=TreeStack(6, max_depth=3), semantics=25, random_state=0)
    with SpreadBooster(template, workers=2, engine="local") as divided:
        before = [divided.learn(X.slice(a, 50), late[a : a + 50], method="predict_proba") for a in range(0, 300, 50)]
        expected = [template.learn(X.slice(a, 50), late[a : a + 50], method="predict_proba") for a in range(0, 300, 50)]
        for ours, theirs in zip(before, expected, strict=True):
            assert_array_equal(ours, theirs)
        assert divided.classes_.tolist() == template.classes_.tolist() == ["0", "1", "2"]
        assert_array_equal(divided.predict(X), template.predict(X))


def test_a_spread_model_comes_home_and_is_saved_as_usual(tmp_path):
    X, y = stream(300)
    template = SGBRegressor(learner="mlp", semantics="minibatch", random_state=0)
    with SpreadBooster(template, workers=2, engine="local") as divided:
        scores_of(divided, X, y)
        divided.save(tmp_path / "model.safetensors")
        scores_of(template, X, y)
        loaded = load(tmp_path / "model.safetensors")
        assert same_state(loaded, template)
        assert_array_equal(loaded.learn(X, y), divided.learn(X, y))


def test_prequential_takes_a_spread_model():
    made = friedman(1200, seed=0)
    template = SGBRegressor(learner="linear", n_estimators=6, semantics=32, random_state=0)
    with SpreadBooster(template, workers=3, engine="local") as divided:
        ours, theirs = (run(model, (made.X, made.y), every=400).last for model in (divided, template))
    assert ours.running == theirs.running
    assert ours.rows == 1200


# Checkpoints.


@pytest.mark.parametrize(
    "template",
    [
        lambda: SGBRegressor(learner=TreeStack(6, max_depth=3), semantics=20, random_state=0),
        lambda: SGBRegressor(learner="mlp", semantics=20, iterate="polynomial", random_state=0),
        lambda: SGBRegressor(learner=Ridge(), n_estimators=4, semantics=20, random_state=0),
        lambda: SGBRegressor(learner=nearest, n_estimators=4, semantics=20, random_state=0),
        lambda: booster(ChainStack([LinearStack(3), TreeStack(3, max_depth=2)]), semantics=20),
    ],
    ids=["trees", "networks", "wrapped", "a function", "a booster"],
)
def test_what_was_detached_is_attached_by_another_driver_and_goes_on(template, tmp_path):
    X, y = stream(300)
    undisturbed = template()
    expected = scores_of(undisturbed, X, y)
    with SpreadBooster(template(), workers=2, engine="local", directory=tmp_path / "cuts") as first:
        first.attach(first.detach())  # before the first row
        said = [scores_of(first, X[:100], y[:100])]
        with CheckpointStore(tmp_path / "run") as store:
            store.save(Checkpoint(first.detach()))
        scores_of(first, X[200:], y[200:])  # of this nothing is to be left
    with CheckpointStore(tmp_path / "run") as store:
        cut = store.latest().model
    with SpreadBooster(template(), workers=2, engine="local", directory=tmp_path / "cuts") as second:
        second.attach(cut)
        said.append(scores_of(second, X[100:], y[100:]))
        assert_array_equal(np.concatenate(said), expected)
        again = scores_of(second, X[:50], y[:50])
        second.attach(second.detach())
        assert_array_equal(scores_of(undisturbed, X[:50], y[:50]), again)


def test_a_run_that_was_stopped_and_resumed_is_that_of_one_process(tmp_path):
    source, options = (
        open_source("synthetic:friedman", total_rows=1000),
        Options("y", "regression", chunk=50, every=250),
    )
    template = SGBRegressor(learner=TreeStack(6, max_depth=3), semantics="minibatch", random_state=0)
    with Run(source, template, options, tmp_path / "plain") as going:
        *_, expected = going.reports()
    for stop in (250, 500, None):
        model = SpreadBooster(clone(template), workers=2, engine="local", directory=tmp_path / "cuts")
        with model, Run(source, model, options, tmp_path / "run", resume=stop != 250) as going:
            for report in going.reports():
                if report.rows == stop:
                    going.stop()
            assert model.committee_.n_rows == (stop or 1000)
            home = model.gather()
    assert (report.rows, report.running) == (expected.rows, expected.running)
    assert same_state(home, template)


def test_a_driver_that_died_before_the_first_checkpoint_begins_anew(tmp_path):
    X, y = stream(100)
    template = SGBRegressor(learner="linear", n_estimators=4, semantics="minibatch", random_state=0)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path) as first:
        nothing = first.detach()
        first.learn(X, y)
        first.stack_.crew.cut()
    second = SpreadBooster(template, workers=2, engine="local", directory=tmp_path)
    with second, pytest.raises(FileExistsError, match="holds the cuts"):
        second.learn(X, y)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path) as third:
        third.attach(nothing)
        assert_array_equal(third.learn(X, y), template.learn(X, y))


def test_cuts_of_other_models_are_refused(tmp_path):
    X, y = stream(60)
    template = SGBRegressor(learner="linear", n_estimators=4, semantics="minibatch")
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path / "a") as first:
        first.learn(X, y)
        cut = first.detach()
    other = SpreadBooster(template, workers=3, engine="local", directory=tmp_path / "a")
    with other, pytest.raises(ValueError, match=r"workers=2 .--workers 2 on the command line"):
        other.attach(cut)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path / "b") as other:
        with pytest.raises(ValueError, match="Name the directory it was made in"):
            other.attach(cut)
        with pytest.raises(ValueError, match="expected one of a 'spread'"):
            other.attach("nonsense")
    with SpreadBooster(template, workers=2, engine="local") as other:
        other.learn(X, y)
        with pytest.raises(ValueError, match="Pass directory="):
            other.detach()


def plain(learner="tree", **options):
    return SGBRegressor(learner=learner, **{"n_estimators": 12, "semantics": 20, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (plain(), plain("mlp"), "learner is 'mlp', but the cut was made with 'tree'"),
        (plain("mlp"), plain(), "learner is 'tree', but the cut was made with 'mlp'"),
        (plain(), plain(n_estimators=8), "n_estimators is 8, but the cut was made with 12"),
        (plain(), plain(loss="huber"), "loss is 'huber', but the cut was made with"),
        (plain(), SGBClassifier(semantics=20), "model is 'SGBClassifier', but the cut was made with 'SGBRegressor'"),
        (plain(TreeStack(6)), plain(TreeStack(6, max_depth=2)), r"learner is a TreeStack \(\w+\), but .* TreeStack"),
        (plain(Ridge()), plain(Ridge(2.0)), r"learner is a Ridge \(\w+\), but .* with a Ridge"),
        (plain(nearest), plain(math.hypot), "learner is a builtin_function"),
        (plain(BatchStack(Ridge(), 6)), plain(BatchStack(Ridge(2.0), 6)), "learner is a BatchStack"),
        (plain(ChainStack([BatchStack(Ridge(), 6)])), plain(ChainStack([BatchStack(Ridge(3.0), 6)])), "a ChainStack"),
        (booster(LinearStack(6)), booster(LinearStack(6), Huber()), "loss is a Huber"),
        (booster(LinearStack(6)), plain(), "model is 'SGBRegressor', but the cut was made with 'Booster'"),
    ],
)
def test_the_cut_of_another_model_is_refused_before_anything_changes(before, after, words, tmp_path):
    X, y = stream(100)
    with SpreadBooster(before, workers=2, engine="local", directory=tmp_path) as first:
        first.learn(X, y)
        cut = first.detach()
        said = first.learn(X, y)
    with SpreadBooster(after, workers=2, engine="local", directory=tmp_path) as other:
        with pytest.raises(ValueError, match=f"{words}.*the same --option, --start-from and --seed as before"):
            other.attach(cut)
        assert other.stack_ is None
    with SpreadBooster(before, workers=2, engine="local", directory=tmp_path) as second:
        second.attach(cut)
        assert_array_equal(second.learn(X, y), said)


def test_a_stack_refuses_the_cut_of_other_learners(tmp_path):
    with spread(LinearStack(6), directory=tmp_path) as first:
        first.open(PIXELS, 1)
        cut = first.detach()
    for other, words in (
        (TwoLayerStack(6), "model is 'TwoLayerStack', but the cut was made with 'LinearStack'"),
        (LinearStack(7), "n_learners is 7, but the cut was made with 6"),
        (LinearStack(6, update="adagrad"), "update is 'adagrad'"),
    ):
        with spread(other, directory=tmp_path) as second, pytest.raises(ValueError, match=words):
            second.attach(cut)
    with spread(LinearStack(6), directory=tmp_path) as third:
        third.attach(cut)
        assert third.n_features == PIXELS


@pytest.mark.parametrize("learner", [Ridge(), nearest, "mlp", BatchStack(ExtraTreeRegressor(max_depth=3), 4)])
def test_a_model_is_known_again_in_another_process(learner, tmp_path):
    X, y = stream(60)
    with SpreadBooster(plain(learner), workers=2, engine="local", directory=tmp_path) as first:
        first.learn(X, y)
        beginning = first.detach().memory["beginning"]
    source = {
        "Ridge": "sklearn.linear_model.Ridge()",
        "function": "__import__('small_learners').nearest",
        "str": "'mlp'",
        "BatchStack": "BatchStack(sklearn.tree.ExtraTreeRegressor(max_depth=3), 4)",
    }[type(learner).__name__]
    code = (
        "import sklearn.linear_model, sklearn.tree\n"
        "from streamboost import SGBRegressor\nfrom streamboost.cluster.beginnings import describe\n"
        "from streamboost.stacks.refitted import BatchStack\n"
        f"print(describe(SGBRegressor(learner={source}, n_estimators=12, semantics=20, random_state=0)))"
    )
    here = {"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "7"}
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **here}, check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == str(beginning)


# One model, one set of workers.


@pytest.mark.parametrize(
    "model", [plain("linear"), booster(LinearStack(6), semantics=20)], ids=["estimator", "booster"]
)
def test_a_used_directory_is_refused_and_then_attached_by_the_same_object(model, tmp_path):
    X, y = stream(100)
    with SpreadBooster(model, workers=2, engine="local", directory=tmp_path) as first:
        first.learn(X, y)
        cut = first.detach()
        said = first.learn(X, y)
    with SpreadBooster(model, workers=2, engine="local", directory=tmp_path) as second:
        for _ in range(2):
            with pytest.raises(FileExistsError, match="Attach or load one"):
                second.learn(X, y)
        with pytest.raises(ValueError, match="Name the directory it was made in"):
            second.attach(dataclasses.replace(cut, mark="another"))
        with pytest.raises(FileExistsError, match="Attach or load one"):
            second.learn(X, y)
        second.attach(cut)
        assert_array_equal(second.learn(X, y), said)
        assert len(second._spread._started) == 1


@pytest.mark.parametrize("has_directory", [False, True])
def test_another_fit_takes_the_workers_over(has_directory, tmp_path):
    X, y = stream(100)
    with SpreadBooster(
        plain("linear"), workers=2, engine="local", directory=tmp_path if has_directory else None
    ) as divided:
        divided.learn(X, y)
        if has_directory:
            cut = divided.detach()
            said = divided.predict(X)
        old, crew = divided.stack_, divided.stack_.crew
        assert divided.fit(X, y) is divided
        assert_array_equal(divided.predict(X), plain("linear").fit(X, y).predict(X))
        assert divided.stack_.crew is crew
        assert divided._spread._started == [crew]
        with pytest.raises(RuntimeError, match="begun anew for another fit"):
            old.predict(X)
        with pytest.raises(ValueError, match="target in row 0 is nan"):
            divided.fit(X, np.full(100, np.nan))
        assert_array_equal(divided.predict(X), plain("linear").fit(X, y).predict(X))  # nothing was forgotten
        if has_directory:
            divided.attach(cut)
            assert_array_equal(divided.predict(X), said)


def test_first_rows_that_are_refused_late_leave_the_workers_to_the_next(monkeypatch):
    X, y = stream(100)
    with SpreadBooster(plain("linear"), workers=2, engine="local") as divided:
        with monkeypatch.context() as patch:
            patch.setattr(LinearStack, "learn_batch", refuse)
            with pytest.raises(ValueError, match="no such"):
                divided.learn(X, y)
        assert_array_equal(divided.learn(X, y), plain("linear").learn(X, y))
        assert len(divided._spread._started) == 1


def refuse(*args):
    raise ValueError("no such")


def test_a_copy_that_has_learned_is_a_plain_model_and_one_that_has_not_has_its_own_workers():
    X, y = stream(100)
    with SpreadBooster(plain("linear"), workers=2, engine="local") as divided:
        with copy.deepcopy(divided) as twin:
            assert_array_equal(twin.learn(X, y), divided.learn(X, y))
            assert twin.stack_.crew is not divided.stack_.crew
        home = copy.deepcopy(divided)
        assert type(home) is SGBRegressor
        assert type(home.booster_.stack) is LinearStack
        assert home.learner == "linear"
        assert_array_equal(home.learn(X, y), divided.learn(X, y))
        assert_array_equal(home.predict(X), divided.predict(X))
        with pytest.raises(TypeError, match=r"Use gather\(\) for the plain"):
            pickle.dumps(divided)


# What fails in the middle of a chunk.


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


def starve(*args):
    raise MemoryError("Unable to allocate 80 GiB")


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


# Bad input.


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
