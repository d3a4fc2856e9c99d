"""Learners spread over Ray actors: the model of one process to the last bit, whoever is killed on the way."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from ray_nodes import Murderer, local_ray, no_worker_is_hopeless, two_nodes  # noqa: F401 - fixtures
from river import linear_model, preprocessing
from sklearn.linear_model import Ridge, SGDRegressor

from streamboost import Booster, SGBRegressor, net_native
from streamboost.cluster.spread import SpreadStack
from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.losses import Logistic, Softmax, Squared
from streamboost.replay import Replay
from streamboost.stacks import ChainStack, ConvStack, LinearStack, TreeStack, TwoLayerStack
from streamboost.stacks.refitted import BatchStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack
from streamboost.states import same_state

ROWS, CHUNK, D, N = 20_000, 500, 9, 8
KILLS = 10

STACKS = {
    "trees": lambda: TreeStack(N, max_depth=4),
    "linear": lambda: LinearStack(N),
    "networks": lambda: TwoLayerStack(N, 5),
    "chain": lambda: ChainStack(
        [LinearStack(2), TreeStack(4, max_depth=3, max_features=3, n_bins=32), TwoLayerStack(2, 4)]
    ),
    "every kind": lambda: ChainStack(
        [
            LinearStack(2, update="adagrad"),
            TreeStack(3, max_depth=3, max_features=3, n_bins=32),
            TwoLayerStack(2, 4, update="momentum"),
            ConvStack((3, 3), 3, kernel=2, stride=1, channels=2),
            PartialFitStack(SGDRegressor(), 2),
            BatchStack(Ridge(), 2),
            RiverStack(preprocessing.StandardScaler() | linear_model.LinearRegression(), 2),
        ]
    ),
}
LOSSES = {"trees": (Softmax(n_classes=3), "classes"), "linear": (Logistic(), "signs")}


@pytest.fixture(autouse=True)
def plain_path(monkeypatch):
    """Networks beside networks on the same path: the compiled loop rounds logarithms in its own way."""
    monkeypatch.setattr(net_native, "suits", lambda booster: False)


def stream(n=ROWS):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    X[rng.uniform(size=X.shape) < 0.02] = np.nan
    return X, 5 * np.tanh(np.nan_to_num(X[:, :3]).sum(axis=1)) + rng.normal(size=n)


def odd(X, number):
    """The same rows in one of several layouts."""
    layouts = [
        np.ascontiguousarray,
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1].copy()[::-1],
        lambda X: X.astype(">f8"),
        read_only,
    ]
    return layouts[number % len(layouts)](X)


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def booster(kind, stack):
    loss, _ = LOSSES.get(kind, (Squared(), "numbers"))
    replay = Replay(2048, refit_every=200) if len(stack.refittable) else None
    return Booster(loss, stack=stack, replay=replay, semantics="minibatch")


def targets(kind, y):
    coding = LOSSES.get(kind, (None, "numbers"))[1]
    return {"numbers": y, "signs": np.where(y > 0, 1.0, -1.0), "classes": np.digitize(y, [-2.0, 2.0]).astype(float)}[
        coding
    ]


def scores_of(model, X, y, layout=lambda X, number: X):
    starts = range(0, len(X), CHUNK)
    return np.concatenate([model.learn(layout(X[a : a + CHUNK], a // CHUNK), y[a : a + CHUNK]) for a in starts])


@pytest.mark.parametrize("kind", ["trees", "linear", "networks", "every kind"])
def test_learners_on_two_and_four_actors_are_those_of_one_process(local_ray, kind):  # noqa: F811
    X, y = stream()
    y = targets(kind, y)
    plain = booster(kind, STACKS[kind]())
    expected = scores_of(plain, X, y)
    for workers in (2, 4):
        resources = {"num_cpus": 0.5}
        with SpreadStack(STACKS[kind](), workers, address=local_ray, resources=resources) as stack:
            divided = booster(kind, stack)
            assert_array_equal(scores_of(divided, X, y, odd), expected)
            assert len({worker["pid"] for worker in stack.crew.metrics()}) == workers
            home = stack.gather()
            assert_array_equal(home.predict(X[:500]), plain.stack.predict(X[:500]))
            if kind != "every kind":  # of some of which pickles would be compared
                assert same_state(home, plain.stack)
        assert_array_equal(divided.edges.running, plain.edges.running)


def test_learners_on_two_nodes_are_those_of_one_process(two_nodes, tmp_path):  # noqa: F811
    X, y = stream(4000)
    template = SGBRegressor(learner=TreeStack(N, max_depth=4), semantics="minibatch", random_state=0)
    options = {"workers": 2, "address": two_nodes.address, "directory": tmp_path, "resources": {"num_cpus": 3}}
    with SpreadBooster(template, **options) as divided:
        said = scores_of(divided, X, y)
        home = divided.gather()
    assert_array_equal(said, scores_of(template, X, y))
    assert same_state(home, template)


@pytest.mark.usefixtures("no_worker_is_hopeless")
def test_ten_actors_killed_at_random_moments_change_nothing(local_ray, tmp_path):  # noqa: F811
    X, y = stream(6000)
    plain = booster("chain", STACKS["chain"]())
    starts = range(0, 6000, 100)
    expected = np.concatenate([plain.learn(X[a : a + 100], y[a : a + 100]) for a in starts])
    when = set(np.random.default_rng(1).choice(np.arange(1, 60), KILLS, replace=False).tolist())
    options = {"address": local_ray, "directory": tmp_path, "cut_every": 11, "resources": {"num_cpus": 0.5}}
    with SpreadStack(STACKS["chain"](), 2, **options) as stack:
        divided, said, murderer = booster("chain", stack), [], Murderer(stack.crew, 1)
        for number, start in enumerate(starts):  # while a chunk is learned, between its first message and its last
            killing = murderer.soon(within=0.03) if number in when else None
            said.append(divided.learn(X[start : start + 100], y[start : start + 100]))
            if killing is not None:
                killing.join()
        home = stack.gather()  # by which a death after the last chunk is noticed as well
        restarts = sum(worker["restarts"] for worker in stack.crew.metrics())
        rows = [worker["rows"] for worker in stack.crew.metrics()]
    assert restarts >= len(murderer.killed) == KILLS
    assert_array_equal(np.concatenate(said), expected)
    assert same_state(home, plain.stack)
    assert rows[0] == rows[1]


def test_a_driver_that_is_gone_is_taken_over_from(local_ray, tmp_path):  # noqa: F811
    X, y = stream(3000)
    template = SGBRegressor(learner="mlp", semantics=100, random_state=0)
    options = {"workers": 2, "address": local_ray, "directory": tmp_path, "resources": {"num_cpus": 0.5}}
    with SpreadBooster(template, **options) as first:
        said = [scores_of(first, X[:1500], y[:1500])]
        cut = first.detach()
        scores_of(first, X[:500], y[:500])
    with SpreadBooster(template, **options) as second:
        second.attach(cut)
        said.append(scores_of(second, X[1500:], y[1500:]))
    assert_array_equal(np.concatenate(said), scores_of(template, X, y))


def test_another_fit_takes_the_actors_over(local_ray, tmp_path):  # noqa: F811
    X, y = stream(1000)
    template = SGBRegressor(learner="linear", n_estimators=6, semantics=100, random_state=0)
    options = {"workers": 2, "address": local_ray, "directory": tmp_path, "resources": {"num_cpus": 2}}
    with SpreadBooster(template, **options) as divided:  # twice as many would not fit
        scores_of(divided, X, y)
        cut, pids = divided.detach(), [worker["pid"] for worker in divided.metrics()]
        divided.fit(X[:500], y[:500])
        assert [worker["pid"] for worker in divided.metrics()] == pids
        assert_array_equal(divided.predict(X), SGBRegressor(**template.get_params()).fit(X[:500], y[:500]).predict(X))
        again = divided.learn(X, y)
        divided.attach(cut)
        scores_of(template, X, y)
        assert_array_equal(divided.learn(X, y), template.learn(X, y))
        divided.fit(X[:500], y[:500])
        assert_array_equal(divided.learn(X, y), again)
    with SpreadBooster(template.__class__(**template.get_params()), **options) as second:
        with pytest.raises(FileExistsError, match="Attach or load one"):
            second.learn(X, y)
        second.attach(cut)
        assert second.committee_.n_rows == 1000
