"""Stacks, boosters and estimators to be spread, and the stream they learn."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.tree import ExtraTreeRegressor
from small_learners import nearest, river_line

from streamboost import Booster, SGBRegressor, net_native
from streamboost.cluster.spread import SpreadStack
from streamboost.losses import Squared
from streamboost.replay import Replay
from streamboost.stacks import ChainStack, ConvStack, LinearStack, TreeStack, TwoLayerStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack

N = 7
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


def plain(learner="tree", **options):
    return SGBRegressor(learner=learner, **{"n_estimators": 12, "semantics": 20, "random_state": 0, **options})


def starve(*args):
    raise MemoryError("Unable to allocate 80 GiB")
