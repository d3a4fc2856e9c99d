"""The compiled loop of networks beside the plain path: the same scores, the same state."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from streamboost import SGBClassifier, SGBRegressor, load
from streamboost.bases import Constant, Linear
from streamboost.boosting import Booster, loops
from streamboost.boosting.committee import Committee
from streamboost.boosting.loops.nets import NetLoop
from streamboost.boosting.loops.plain import PlainLoop
from streamboost.datasets import friedman
from streamboost.descents import GradientDescent, Nesterov, ResidualProjection
from streamboost.losses import Absolute, Logistic, Poisson, Softmax, Squared
from streamboost.persistence.object_graph import same_state
from streamboost.stacks import ConvStack, TwoLayerStack

STACKS = {
    "two layers": lambda: TwoLayerStack(4, 5, dtype="float64"),
    "two layers, as they are": lambda: TwoLayerStack(3, 2, activation="tanh", dtype="float64", standardize=False),
    "convolutions": lambda: ConvStack((3, 3), 3, kernel=2, stride=1, channels=2, dtype="float64"),
}
LOSSES = {
    "squared": (Squared(), lambda y: y),
    "two targets": (Squared(n_outputs=2), lambda y: np.column_stack([y, -2 * y])),
    "absolute": (Absolute(), lambda y: y),
    "poisson": (Poisson(), lambda y: np.round(np.abs(y))),
    "logistic": (Logistic(), lambda y: np.where(y > 3, 1.0, -1.0)),
    "softmax": (Softmax(n_classes=3), lambda y: np.digitize(y, [-20.0, 25.0]).astype(float)),
}


def stream(n=240):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 9))
    X[rng.uniform(size=X.shape) < 0.05] = np.nan
    y = 50 * np.tanh(np.nan_to_num(X[:, :3]).sum(axis=1)) + 3
    return X, y, np.where(np.arange(n) % 7 == 0, 0.0, 1.0 + np.arange(n) % 2)


def booster(kind, loss, **options):
    descent = GradientDescent(0.4) if loss.smooth else ResidualProjection(1.0)
    return Booster(loss, descent, STACKS[kind](), **options)


@pytest.fixture
def plainly(monkeypatch):
    """Run something on the plain path."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(loops, "COMPILED", ())
            return function()

    return run


def all_scores(made, loss_name):
    X, y, weight = stream()
    y = LOSSES[loss_name][1](y)
    before = [made.learn(X[a:b], y[a:b], weight[a:b]) for a, b in ((0, 20), (20, 151), (151, 152), (152, 240))]
    return np.concatenate([*before, made.score(X)])


@pytest.mark.pairwise(
    kind=STACKS, loss=LOSSES, base=[Linear, Constant], update_mode=["sequential", 16], iterate=["last", "polynomial"]
)
def test_scores_parameters_and_edges_are_those_of_the_plain_path(kind, loss, base, update_mode, iterate, plainly):
    ours, theirs = (
        booster(kind, LOSSES[loss][0], base=base(), update_mode=update_mode, iterate=iterate) for _ in range(2)
    )
    scores = all_scores(ours, loss)
    assert type(loops.choose(ours)) is NetLoop
    expected = plainly(lambda: all_scores(theirs, loss))
    assert_allclose(scores, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    assert_allclose(ours.stack.parameters, theirs.stack.parameters, rtol=1e-8, atol=1e-10)
    assert_allclose(ours.edges.recent, theirs.edges.recent, rtol=1e-8)
    assert_allclose(ours.edges.running, theirs.edges.running, rtol=1e-8)
    assert (ours.n_rows, ours.cost.units) == (theirs.n_rows, theirs.cost.units)
    if base is Linear:
        assert_allclose(ours.base.weights, theirs.base.weights, rtol=1e-9, atol=1e-12)


@pytest.mark.pairwise(
    loss=["squared", "logistic", "softmax"], update_mode=["sequential", 8], readout=["hedge", "last", "mean"]
)
def test_a_hedge_over_all_partial_sums_is_that_of_the_plain_path(loss, update_mode, readout, plainly):
    made = [
        Committee([booster("two layers", LOSSES[loss][0], update_mode=update_mode)], readout=readout, steps=range(4))
        for _ in range(2)
    ]
    scores = all_scores(made[0], loss)
    assert_allclose(scores, plainly(lambda: all_scores(made[1], loss)), rtol=1e-8, atol=1e-9)
    assert_allclose(made[0].hedge.weights, made[1].hedge.weights, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("kind", STACKS)
def test_a_chunk_is_its_rows_one_by_one_to_the_last_bit(kind):
    X, y, weight = stream()
    at_once, one_by_one = booster(kind, Squared()), booster(kind, Squared())
    scores = at_once.learn(X, y, weight)
    rows = [one_by_one.learn(X[t : t + 1], y[t : t + 1], weight[t : t + 1]) for t in range(len(X))]
    assert_array_equal(scores, np.concatenate(rows))
    assert same_state(at_once, one_by_one)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))], ids=["copy", "pickle"])
def test_a_copy_made_mid_stream_goes_on_alike(how):
    X, y, weight = stream()
    made = booster("two layers", Squared(), iterate="polynomial", update_mode=8)
    made.learn(X[:150], y[:150], weight[:150])
    twin = how(made)
    assert_array_equal(made.learn(X[150:], y[150:]), twin.learn(X[150:], y[150:]))
    assert same_state(made, twin)


@pytest.mark.parametrize("learner", ["mlp", TwoLayerStack(4, hidden=3)], ids=["by name", "as an object"])
def test_estimators_save_and_load_networks(learner, tmp_path):
    data = friedman(1500, seed=3)
    made = SGBRegressor(learner=learner, iterate="polynomial", random_state=0)
    made.learn(data.X[:1000], data.y[:1000])
    made.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_array_equal(made.learn(data.X[1000:], data.y[1000:]), loaded.learn(data.X[1000:], data.y[1000:]))


def test_a_row_that_cannot_be_learned_leaves_everything_as_it_was_and_names_the_learner():
    X, y, _ = stream()
    made = booster("two layers", Squared(), base=Constant(0.0))
    made.learn(X[:100], y[:100])
    before = copy.deepcopy(made)
    wild = np.concatenate([y[100:105], [1e200], y[106:110]])
    with pytest.raises(FloatingPointError, match="learner 0 of TwoLayerStack"):
        made.learn(X[100:110], wild)
    assert same_state(made, before)  # the rows before it were not learned either


@pytest.mark.parametrize(
    "made",
    [
        Booster(Squared(), Nesterov(), TwoLayerStack(2)),
        Booster(Squared(), GradientDescent(0.4), TwoLayerStack(2), iterate="average"),
    ],
    ids=["another descent", "an average of what is said"],
)
def test_what_the_loop_does_not_know_goes_the_plain_way(made):
    X, y, _ = stream()
    made.learn(X, y)
    assert type(loops.choose(made)) is PlainLoop
    assert np.corrcoef(made.predict(X)[:, 0], y)[0, 1] > 0.5


EFFECTS = {f"shop {k}": effect for k, effect in enumerate([0.1, 0.9, 0.3, 0.7, 0.5, 0.2, 0.8, 0.4])}


def test_networks_pass_over_levels_and_the_base_learns_what_they_add():
    rng = np.random.default_rng(0)
    rows = [{"x": x, "shop": f"shop {k}"} for x, k in zip(rng.normal(size=1500), rng.integers(0, 8, 1500), strict=True)]
    y = [abs(row["x"]) + 5 * EFFECTS[row["shop"]] for row in rows]
    made = SGBRegressor(learner="mlp", random_state=0)
    errors = []
    for row, target in zip(rows, y, strict=True):
        errors.append(made.predict_one(row) - target)
        made.learn_one(row, target)
    assert type(loops.choose(made.booster_)) is NetLoop
    assert_array_equal(made.booster_.stack.categorical, [0])
    assert np.abs(made.booster_.stack.W1[:, :, 0]).max() > 0  # there, but never moved by a level:
    assert made.booster_.stack.inputs.count[0] == 0
    assert np.std(errors[-500:]) < 0.25 * np.std(y)


def test_a_third_class_may_come_to_networks():
    data = friedman(900, seed=0)
    y = (data.y > np.median(data.y)).astype(int)
    y[600:][data.y[600:] > np.quantile(data.y, 0.8)] = 2
    made = SGBClassifier(learner="mlp", random_state=0)
    made.learn(data.X, y)
    assert made.predict_proba(data.X).shape == (900, 3)
    assert np.mean(made.predict(data.X[600:]) == y[600:]) > 0.6


@pytest.mark.parametrize("estimator", [SGBRegressor, SGBClassifier])
def test_networks_need_no_kernel_of_the_plain_loop_from_the_first_row_on(estimator, monkeypatch):
    def learn(*_):
        raise AssertionError("would compile what nobody needs later")

    monkeypatch.setattr(PlainLoop, "learn", learn)
    X, y, _ = stream(30)
    model = estimator(learner="mlp", n_estimators=6)
    model.learn(X, y > 0 if estimator is SGBClassifier else y)
    assert model.predict(X).shape == (30,)
