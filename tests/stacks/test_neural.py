"""The neural stacks against networks written out one by one, and against what they promise."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost import testing
from streamboost.boosting import Booster, loops
from streamboost.boosting.loops.nets import NetLoop
from streamboost.descents import GradientDescent
from streamboost.losses import Squared
from streamboost.persistence import object_graph as states
from streamboost.persistence import snapshots
from streamboost.stacks.conv import ConvStack
from streamboost.stacks.neural import TwoLayerStack
from streamboost.stacks.update_rules import SGD, AdaGrad, Adam, Momentum, update_rule

ACTIVATIONS = ["sigmoid", "tanh", "relu", "leaky_relu"]
RULES = [SGD(0.05), Momentum(0.01, 0.8), AdaGrad(0.05, 1e-6), Adam(0.01, 0.8, 0.95, 1e-7)]


# Networks written out one by one, in plain NumPy.

VALUE = {
    "sigmoid": lambda u: 1 / (1 + np.exp(-u)),
    "tanh": np.tanh,
    "relu": lambda u: np.maximum(u, 0),
    "leaky_relu": lambda u: np.where(u > 0, u, 0.01 * u),
}
SLOPE = {
    "sigmoid": lambda u: np.exp(-u) / (1 + np.exp(-u)) ** 2,
    "tanh": lambda u: 1 / np.cosh(u) ** 2,
    "relu": lambda u: (u > 0) * 1.0,
    "leaky_relu": lambda u: np.where(u > 0, 1.0, 0.01),
}


class Descent:
    """One array, and the textbook's update of it."""

    def __init__(self, rule, start):
        self.rule, self.p, self.t = rule, np.array(start, float), 0
        self.m, self.v = np.zeros_like(self.p), np.zeros_like(self.p)

    def step(self, g):
        rule, self.t = self.rule, self.t + 1
        match rule:
            case SGD():
                self.p -= rule.rate * g
            case Momentum():
                self.m = rule.momentum * self.m + g
                self.p -= rule.rate * self.m
            case AdaGrad():
                self.v += g**2
                self.p -= rule.rate * g / (np.sqrt(self.v) + rule.eps)
            case Adam():
                self.m = rule.beta1 * self.m + (1 - rule.beta1) * g
                self.v = rule.beta2 * self.v + (1 - rule.beta2) * g**2
                m, v = self.m / (1 - rule.beta1**self.t), self.v / (1 - rule.beta2**self.t)
                self.p -= rule.rate * m / (np.sqrt(v) + rule.eps)


class NaiveNetwork:
    """h(x) = W2 a(W1 x + b1) + b2, one row at a time."""

    def __init__(self, rule, activation, W1, b1, W2, b2):
        self.W1, self.b1, self.W2, self.b2 = (Descent(rule, start) for start in (W1, b1, W2, b2))
        self.value, self.slope = VALUE[activation], SLOPE[activation]

    def predict(self, x):
        return self.W2.p @ self.value(self.W1.p @ x + self.b1.p) + self.b2.p

    def gradient(self, x, target):
        u = self.W1.p @ x + self.b1.p
        error = self.predict(x) - target
        back = (self.W2.p.T @ error) * self.slope(u)
        return [np.outer(back, x), back, np.outer(error, self.value(u)), error]

    def learn(self, X, targets, weight):
        """One step on the weighted sum of the gradients."""
        gradients = [self.gradient(x, target) for x, target in zip(X, targets, strict=True)]
        for layer, *parts in zip((self.W1, self.b1, self.W2, self.b2), *gradients, strict=True):
            layer.step(sum(w * part for w, part in zip(weight, parts, strict=True)))


class NaiveConvolution(NaiveNetwork):
    """The same with kernels (C, channels, k, k) moved over the image, position by position."""

    def __init__(self, stack, i, rule):
        self.geometry = stack.shape if len(stack.shape) == 3 else (1, *stack.shape)
        self.k, self.stride, self.padding = stack.kernel, stack.stride, stack.padding
        super().__init__(rule, stack.activation, stack.W1[i], stack.b1[i], stack.W2[i], stack.b2[i])

    def patches(self, x):
        p = self.padding
        image = np.pad(x.reshape(self.geometry), ((0, 0), (p, p), (p, p)))
        for row in range(0, image.shape[1] - self.k + 1, self.stride):
            for column in range(0, image.shape[2] - self.k + 1, self.stride):
                place = row // self.stride, column // self.stride
                yield *place, image[:, row : row + self.k, column : column + self.k]

    def sums(self, x):
        u = np.zeros(self.W2.p.shape[1:])  # (C, rows, columns)
        for row, column, patch in self.patches(x):
            for c in range(len(u)):
                u[c, row, column] = np.sum(self.W1.p[c] * patch) + self.b1.p[c]
        return u

    def predict(self, x):
        return np.tensordot(self.W2.p, self.value(self.sums(x)), axes=3) + self.b2.p

    def gradient(self, x, target):
        u, error = self.sums(x), self.predict(x) - target
        back = np.tensordot(error, self.W2.p, axes=1) * self.slope(u)
        kernels = np.zeros_like(self.W1.p)
        for row, column, patch in self.patches(x):
            kernels += back[:, row, column, None, None, None] * patch
        return [kernels, back.sum(axis=(1, 2)), np.multiply.outer(error, self.value(u)), error]


def opened(stack, d, m, seed=0):
    """An opened stack whose output layer is no longer 0, so that every gradient counts."""
    stack.open(d, m, seed)
    rng = np.random.default_rng(seed + 1)
    stack.W2[:] = rng.normal(size=stack.W2.shape) / np.sqrt(stack.W2[0, 0].size)
    stack.b2[:] = rng.normal(size=stack.b2.shape)
    return stack


def stream(stack, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, stack.n_features))
    targets = np.sin(X @ rng.normal(size=(stack.n_features, stack.n_learners * stack.n_outputs)))
    return X, targets.reshape(n, stack.n_learners, stack.n_outputs), rng.uniform(0.1, 2, size=n)


def learn_in_chunks(stack, X, targets, size=20):
    """Inputs are standardised by what earlier calls brought: one call of all rows would see nothing."""
    for start in range(0, len(X), size):
        chunk = slice(start, start + size)
        stack.learn(X[chunk], targets[chunk], np.ones(len(X[chunk])))


def plain(kind, n_learners=3, **options):
    """A stack that does nothing beyond the formula."""
    options = {"dtype": "float64", "scale_targets": False, "standardize": False, **options}
    if kind == "dense":
        return opened(TwoLayerStack(n_learners, 4, **options), 5, 2)
    return opened(ConvStack((2, 6, 5), n_learners, kernel=3, stride=2, channels=2, padding=1, **options), 60, 2)


def twins(stack):
    """The learners of a stack, one by one."""
    if isinstance(stack, ConvStack):
        return [NaiveConvolution(stack, i, stack.rule) for i in range(stack.n_learners)]
    layers = stack.W1, stack.b1, stack.W2, stack.b2
    return [
        NaiveNetwork(stack.rule, stack.activation, *(layer[i] for layer in layers)) for i in range(stack.n_learners)
    ]


def said_by(networks, X):
    return np.array([[network.predict(x) for network in networks] for x in X])


# The same steps.


@pytest.mark.pairwise(kind=["dense", "conv"], activation=ACTIVATIONS, rule=RULES)
def test_rows_and_batches_teach_as_the_textbook_says(kind, activation, rule):
    stack = plain(kind, 2, activation=activation, update=rule)
    networks = twins(stack)
    X, targets, weight = stream(stack, 100 if kind == "dense" else 40)
    stack.learn(X[:15], targets[:15], weight[:15])
    for s in range(15):
        for i, network in enumerate(networks):
            network.learn(X[s : s + 1], targets[s : s + 1, i], weight[s : s + 1])
    np.testing.assert_allclose(stack.predict(X), said_by(networks, X), rtol=1e-9, atol=1e-11)
    for start in range(15, len(X), 7):
        batch = slice(start, start + 7)
        stack.learn_batch(X[batch], targets[batch], weight[batch])
        for i, network in enumerate(networks):
            network.learn(X[batch], targets[batch, i], weight[batch] / weight[batch].sum())
    np.testing.assert_allclose(stack.predict(X), said_by(networks, X), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_a_step_follows_the_slope_of_the_loss(kind, activation):
    """With SGD at rate 1 the step is the gradient: central differences of what predict says must agree."""
    stack = plain(kind, 2, activation=activation, update=SGD(1.0))
    X, targets, weight = stream(stack, 6)

    def loss():
        squares = ((stack.predict(X) - targets) ** 2).sum(axis=2)
        return 0.5 * (weight @ squares / weight.sum()).sum()

    before = stack.parameters.copy()
    slopes = np.zeros_like(before)
    for j in range(len(before)):
        sides = []
        for e in (1e-5, -1e-5):
            stack.parameters[j] = before[j] + e
            sides.append(loss())
        stack.parameters[j] = before[j]
        slopes[j] = (sides[0] - sides[1]) / 2e-5
    stack.learn_batch(X, targets, weight)
    np.testing.assert_allclose(before - stack.parameters, slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_single_precision_follows_double_precision(kind, activation):
    single, double = (plain(kind, 2, dtype=dtype, activation=activation) for dtype in ("float32", "float64"))
    X, targets, weight = stream(double, 60)
    for stack in (single, double):
        stack.learn(X, targets, weight)
        stack.learn_batch(X, targets, weight)
    np.testing.assert_allclose(single.predict(X), double.predict(X), atol=2e-4)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_activations_in_single_precision_are_right_everywhere(activation):
    stack = TwoLayerStack(1, 1, activation=activation, standardize=False)
    stack.open(1, 1)
    stack.W1[:], stack.b1[:], stack.W2[:] = 1, 0, 1
    x = np.r_[np.linspace(-30, 30, 6001), -1e6, 1e6, 1e-6, 1e30]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(stack.predict(x[:, None]).ravel(), VALUE[activation](x), atol=3e-7)


def test_weight_zero_is_no_step_whatever_stands_there():
    stack = plain("dense")
    twin = copy.deepcopy(stack)
    X, targets, weight = stream(stack, 20)
    kept = weight > 1
    stack.learn(X, np.where(kept[:, None, None], targets, np.nan), weight * kept)
    twin.learn(X[kept], targets[kept], weight[kept])
    assert states.same_state(stack, twin)
    stack.learn_batch(X, targets, np.zeros(20))
    assert states.same_state(stack, twin)


# Company.


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_learner_does_the_same_in_any_company(kind, dtype):
    few, many = (plain(kind, N, dtype=dtype, scale_targets=True) for N in (3, 8))
    for name in ("W1", "b1", "W2", "b2"):
        getattr(many, name)[:3] = getattr(few, name)
    X, targets, weight = stream(many, 50)
    for stack in (few, many):
        stack.learn(X, targets[:, : stack.n_learners], weight)
        stack.learn_batch(X, targets[:, : stack.n_learners], weight)
    np.testing.assert_array_equal(many.predict(X)[:, :3], few.predict(X))


def test_the_start_of_a_learner_does_not_depend_on_their_number():
    few, many = TwoLayerStack(3), TwoLayerStack(8)
    few.open(4, 1, seed=5)
    many.open(4, 1, seed=5)
    np.testing.assert_array_equal(many.W1[:3], few.W1)
    np.testing.assert_array_equal(many.b1[:3], few.b1)
    assert len(np.unique(many.W1)) == many.W1.size
    other = TwoLayerStack(3)
    other.open(4, 1, seed=6)
    assert not np.isin(other.W1, few.W1).any()
    few.grow(5)
    np.testing.assert_array_equal(few.W1, many.W1)


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("n", [1, 31, 33, 70])
def test_a_row_is_answered_the_same_among_others_as_alone(kind, n):
    stack = plain(kind, dtype="float32")
    X, _, _ = stream(stack, n)
    alone = np.concatenate([stack.predict(X[s : s + 1]) for s in range(n)])
    np.testing.assert_array_equal(stack.predict(X), alone)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_learners_grown_later_count_their_own_steps(kind, rule):
    """Old learners go on as if none had come; a new one goes as one in a stack of its own."""
    stack, old = (plain(kind, 2, update=rule) for _ in range(2))
    for one in (stack, old):
        one.keep_average(2.0)
    X, targets, weight = stream(plain(kind, 3), 60)
    for one in (stack, old):
        one.learn(X[:30], targets[:30, :2], weight[:30])
    stack.grow(1)
    fresh = plain(kind, 1, update=rule)
    for name in ("W1", "b1", "W2", "b2"):
        getattr(fresh, name)[:] = getattr(stack, name)[2:]
    fresh.keep_average(2.0)
    stack.learn(X[30:], targets[30:], weight[30:])
    old.learn(X[30:], targets[30:, :2], weight[30:])
    fresh.learn(X[30:], targets[30:, 2:], weight[30:])
    for view in (lambda s: s, lambda s: s.averaged()):
        parts = [view(old).predict(X), view(fresh).predict(X)]
        np.testing.assert_array_equal(view(stack).predict(X), np.concatenate(parts, axis=1))


def test_new_columns_and_new_outputs_are_learned():
    stack = TwoLayerStack(2, rate=0.01)
    stack.open(1, 1)
    X, targets, weight = stream(stack, 50)
    stack.learn(X, targets, weight)
    stack.add_features(1)
    stack.add_outputs(1)
    X = np.random.default_rng(3).normal(size=(2000, 2))
    targets = np.repeat(np.tanh(2 * X[:, ::-1])[:, None], 2, axis=1)  # (n, N, 2): the second output is column 0
    learn_in_chunks(stack, X, targets)
    assert np.mean((stack.predict(X) - targets) ** 2) < 0.2 * np.mean(targets**2)


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_split_output_says_both_sides_and_goes_on_from_there(kind, rule):
    make = {"dense": lambda: TwoLayerStack(2, 3, update=rule), "conv": lambda: ConvStack((5, 5), 2, update=rule)}[kind]
    stack = make()
    stack.open(25, 1)
    stack.keep_average(8.0)
    X, targets, weight = stream(stack, 40)
    stack.learn(X, targets, weight)
    for view in (lambda s: s, lambda s: s.averaged()):
        before = view(stack).predict(X)
        split = copy.deepcopy(stack)
        split.split_output()
        np.testing.assert_array_equal(view(split).predict(X), np.concatenate([-before, before], axis=2))
    split.learn(X, np.concatenate([-targets, targets], axis=2), weight)
    after = split.predict(X)
    np.testing.assert_allclose(after[..., 0], -after[..., 1], atol=1e-6)


# The size of targets.


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("power", [-40, -3, 5, 40])
def test_targets_of_another_size_are_learned_alike(rule, power):
    """2 ** power times the targets give exactly 2 ** power times the answers."""
    stack, large = (TwoLayerStack(2, 4, update=rule) for _ in range(2))
    for one in (stack, large):
        one.open(3, 2)
    X, targets, weight = stream(stack, 80)
    stack.learn(X, targets, weight)
    large.learn(X, targets * 2.0**power, weight)
    np.testing.assert_array_equal(large.predict(X), stack.predict(X) * 2.0**power)


@given(st.integers(-30, 30), st.sampled_from(RULES), st.sampled_from(["dense", "conv"]))
@settings(max_examples=40, deadline=None)
def test_a_change_of_unit_changes_neither_answers_nor_the_average_nor_what_the_rule_remembers(power, rule, kind):
    """A target that is just what was said has no gradient: what is left of its coming is the change of unit."""
    stack = plain(kind, 2, update=rule, scale_targets=True)
    stack.keep_average(0.0)
    X, targets, weight = stream(stack, 40)
    stack.learn(X, targets, weight)
    old, said, unit = copy.deepcopy(stack), stack.predict(X), stack.unit.copy()
    stack.scale[1:] = [(unit * 2.0**power) ** 2 * 1e40, np.full(2, 1e40)]  # as if all targets had been of that size
    stack.learn(X[:1], said[:1], np.ones(1))
    change = stack.unit / unit
    np.testing.assert_array_equal(change, 2.0**power if abs(power) > 1 else change)
    for layer, (ours, before) in enumerate(zip(layers(stack), layers(old), strict=True)):
        r = change.reshape(-1, *[1] * (ours["first"].ndim - 1))  # the unit occurs once in W2, twice in hidden gradients
        moment, kept = r ** -(2.0 if layer < 2 else 1.0), abs(power) <= 10
        if rule.has_first:
            decay = rule.momentum if isinstance(rule, Momentum) else rule.beta1
            np.testing.assert_allclose(ours["first"], kept * decay * moment * before["first"], rtol=1e-12)
        if rule.has_second:
            decay = rule.beta2 if isinstance(rule, Adam) else 1.0
            np.testing.assert_allclose(ours["second"], kept * decay * moment**2 * before["second"], rtol=1e-12)
        in_units = 1.0 if layer < 2 else r
        mean = before["average"] + (ours["parameters"] * in_units - before["average"]) / 41
        np.testing.assert_allclose(ours["average"] * in_units, mean, rtol=1e-9, atol=1e-12)
    if not rule.has_first or abs(power) > 10:  # else the rule coasts on
        np.testing.assert_array_equal(stack.predict(X), said)


def layers(stack):
    """W1, b1, W2 and b2 of every flat array."""
    flats = [name for name in ("parameters", "first", "second", "average") if getattr(stack, name).size]
    views = {}
    for name in flats:
        other = copy.copy(stack)
        other.parameters = getattr(stack, name)
        views[name] = other.W1, other.b1, other.W2, other.b2
    empty = views["parameters"]
    return [
        {name: views.get(name, empty)[k] for name in ("parameters", "first", "second", "average")} for k in range(4)
    ]


def test_units_are_powers_of_two_near_the_size_of_the_targets():
    stack = TwoLayerStack(3)
    stack.open(2, 1)
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(500, 3, 1)) * np.array([1e-5, 1.0, 3e4])[:, None]
    stack.learn(rng.normal(size=(500, 2)), targets, np.ones(500))
    size = np.sqrt((targets**2).mean(axis=(0, 2)))
    assert ((stack.unit / size > 0.45) & (stack.unit / size < 2.2)).all()
    np.testing.assert_array_equal(np.log2(stack.unit), np.round(np.log2(stack.unit)))


def test_years_are_learned_at_the_default_rate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    years = 2000 + 10 * np.tanh(X[:, 0]) + rng.normal(size=20_000)
    stack, plain_one = TwoLayerStack(1), TwoLayerStack(1, scale_targets=False)
    errors = []
    for one in (stack, plain_one):
        one.open(5, 1)
        one.keep_average(8.0)
        for start in range(0, 20_000, 16):
            batch = slice(start, start + 16)
            one.learn_batch(X[batch], years[batch, None, None], np.ones(16))
        errors.append(np.sqrt(np.mean((one.averaged().predict(X)[:, 0, 0] - years) ** 2)))
    assert errors[0] < 20
    assert errors[1] > 500


# Averages.


@pytest.mark.parametrize("averaging_power", [0.0, 3.0])
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_the_average_is_the_formula(kind, averaging_power):
    stack = plain(kind)
    X, targets, weight = stream(stack, 30)
    stack.learn(X[:10], targets[:10], weight[:10])
    stack.keep_average(averaging_power)
    np.testing.assert_array_equal(stack.averaged().predict(X), stack.predict(X))
    mean, seen = np.full_like(stack.parameters, 7.0), []
    for t in range(1, 21):
        s = slice(9 + t, 10 + t)
        stack.learn(X[s], targets[s], weight[s])
        seen.append(stack.parameters.copy())
        mean += (stack.parameters - mean) * (averaging_power + 1) / (t + averaging_power)
    np.testing.assert_allclose(stack.averaged().parameters, mean, rtol=1e-9, atol=1e-12)
    if averaging_power == 0:
        np.testing.assert_allclose(mean, np.mean(seen, axis=0), rtol=1e-9, atol=1e-12)


def test_an_average_asked_for_before_opening_is_kept_from_the_start():
    early, late = TwoLayerStack(2), TwoLayerStack(2)
    early.keep_average(4.0)
    early.open(3, 1)
    late.open(3, 1)
    late.keep_average(4.0)
    assert states.same_state(early, late)
    rows = stream(early, 20)
    early.learn(*rows)
    late.learn(*rows)
    np.testing.assert_array_equal(early.averaged().predict(rows[0]), late.averaged().predict(rows[0]))


# What it is good for.


@pytest.mark.parametrize("update", ["adam", "sgd", "momentum", "adagrad"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_bend_is_learned_at_the_default_rate(update, activation):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(6000, 2))
    y = 100 * (np.abs(X[:, 0]) - X[:, 1])
    line = np.column_stack([X, np.ones(6000)])
    straight = np.mean((line @ np.linalg.lstsq(line, y, rcond=None)[0] - y) ** 2)
    stack = TwoLayerStack(2, update=update, activation=activation)
    stack.open(2, 1)
    learn_in_chunks(stack, X, np.column_stack([y, -y])[..., None])
    assert np.mean((stack.predict(X)[:, 0, 0] - y) ** 2) < 0.6 * straight
    assert np.mean((stack.predict(X)[:, 1, 0] + y) ** 2) < 0.6 * straight


# The contract.

STACKS = {
    **{f"two layers, {a}": (lambda a=a: TwoLayerStack(3, 4, activation=a), 3) for a in ACTIVATIONS},
    **{f"two layers, {r!r}": (lambda r=r: TwoLayerStack(3, 4, update=r), 3) for r in RULES},
    "two layers, double": (lambda: TwoLayerStack(3, 4, dtype="float64", scale_targets=False, standardize=False), 3),
    "one unit": (lambda: TwoLayerStack(2, 1), 3),
    "convolution": (lambda: ConvStack((4, 5), 3, kernel=3, channels=2), 20),
    "convolution, double": (
        lambda: ConvStack((2, 3, 4), 3, kernel=3, stride=1, padding=1, channels=2, dtype="float64", activation="relu"),
        24,
    ),
}


@pytest.mark.pairwise(kind=STACKS, n_outputs=[1, 2])
def test_neural_stacks_keep_the_contract(kind, n_outputs):
    make, d = STACKS[kind]
    for check in testing.STACK_CHECKS:
        case = testing.StackCase(make, n_features=d, n_outputs=n_outputs)
        if kind.startswith("convolution") and check.__name__ == "check_adding_features":
            with pytest.raises(TypeError, match="fixed shape"):
                check(case)
        else:
            check(case)


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_saved_copied_and_pickled_stacks_go_on_alike(kind, rule, tmp_path):
    stack = plain(kind, update=rule, dtype="float32", scale_targets=True, standardize=True)
    stack.keep_average(8.0)
    X, targets, weight = stream(stack, 40)
    stack.learn(X[:20], targets[:20], weight[:20])
    snapshots.save(stack, tmp_path / "stack.safetensors")
    others = [snapshots.load(tmp_path / "stack.safetensors"), copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))]
    stack.learn(X[20:], targets[20:], weight[20:])
    for other in others:
        other.learn(X[20:], targets[20:], weight[20:])
        assert states.same_state(other, stack)


@pytest.mark.parametrize("kind", ["dense", "conv"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rate_set_later_takes_effect_from_there_on_and_is_saved(kind, rule, tmp_path):
    slow, quick = (plain(kind, update=dataclasses.replace(rule, rate=rate)) for rate in (0.001, 0.01))
    X, targets, weight = stream(slow, 40)
    slow.set_rate(0.01)
    for stack in (slow, quick):
        stack.learn(X[:20], targets[:20], weight[:20])
    assert states.same_state(slow, quick)  # as if it had been the rate from the start
    quick.set_rate(0.002)
    assert quick.rule == dataclasses.replace(rule, rate=0.002)
    snapshots.save(quick, tmp_path / "stack.safetensors")
    loaded = snapshots.load(tmp_path / "stack.safetensors")
    for stack in (slow, quick, loaded):
        stack.learn(X[20:], targets[20:], weight[20:])
    assert states.same_state(loaded, quick)
    assert not np.allclose(slow.parameters, quick.parameters)


def test_a_rate_of_nothing_is_refused_and_the_old_one_stays():
    for opened in (False, True):
        stack = TwoLayerStack(2, hidden=3, rate=0.02)
        if opened:
            stack.open(2, 1)
        for rate in (0.0, -1.0, np.nan):
            with pytest.raises(ValueError, match="expected a number above 0"):
                stack.set_rate(rate)
        assert stack.rule.rate == 0.02


@pytest.mark.parametrize("update_mode", ["sequential", 8])
def test_compiled_boosters_follow_a_rate_set_between_calls(update_mode, monkeypatch):
    def learned():
        booster = Booster(
            Squared(), GradientDescent(0.4), TwoLayerStack(3, 4, dtype="float64", rate=0.05), update_mode=update_mode
        )
        rng = np.random.default_rng(0)
        for rate in (0.05, 0.02, 0.001):
            booster.stack.set_rate(rate)
            X = rng.normal(size=(96, 3))
            booster.learn(X, np.tanh(X.sum(axis=1)))
        return booster

    compiled = learned()
    assert type(loops.choose(compiled)) is NetLoop
    monkeypatch.setattr(loops, "COMPILED", ())
    np.testing.assert_allclose(compiled.stack.parameters, learned().stack.parameters, rtol=1e-8, atol=1e-10)
    monkeypatch.setattr(TwoLayerStack, "set_rate", lambda stack, rate: None)
    assert not np.allclose(compiled.stack.parameters, learned().stack.parameters, rtol=1e-3)


@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_parameters_are_views_to_be_written_into(kind):
    stack = plain(kind)
    stack.W1[:], stack.b1[:], stack.W2[:], stack.b2[:] = 0, 0, 0, np.arange(6).reshape(3, 2)
    assert stack.parameters.sum() == 15
    np.testing.assert_array_equal(stack.predict(np.ones((1, stack.n_features)))[0], stack.b2)


# Bad input.


@pytest.mark.parametrize("update", ["sgd", "momentum"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_learner_that_runs_away_is_named_and_not_followed(update, dtype):
    stack = TwoLayerStack(3, activation="relu", update=update, rate=1e3, dtype=dtype, scale_targets=False)
    stack.open(3, 1)
    X, targets, weight = stream(stack, 1)
    targets[:, :2] = 0  # the first two have nothing to learn
    with pytest.raises(FloatingPointError, match=r"learner 2 of TwoLayerStack.*lower the rate"):  # noqa: PT012
        for _ in range(1000):
            before = copy.deepcopy(stack)
            stack.learn(X, targets, weight)
    for name in ("parameters", "first", "second", "steps"):
        np.testing.assert_array_equal(getattr(stack, name), getattr(before, name))
    assert np.isfinite(stack.predict(X)).all()


@pytest.mark.parametrize("make", [lambda: TwoLayerStack(3), lambda: ConvStack((5, 5), 3)])
@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e300])
def test_targets_that_are_no_numbers_are_refused(make, wild):
    stack = make()
    stack.open(25, 1)
    X, targets, weight = stream(stack, 4)
    stack.learn(X, targets, weight)
    before = copy.deepcopy(stack)
    targets[0, 1] = wild
    with pytest.raises(FloatingPointError, match="learner 1 of"):
        stack.learn(X[:1], targets[:1], weight[:1])
    for name in ("parameters", "first", "second", "steps", "scale"):
        np.testing.assert_array_equal(getattr(stack, name), getattr(before, name))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TwoLayerStack(0), "n_learners is 0"),
        (lambda: TwoLayerStack(hidden=0), "hidden is 0"),
        (lambda: TwoLayerStack(activation="swish"), "activation is 'swish'"),
        (lambda: TwoLayerStack(update="lion"), "update is 'lion'"),
        (lambda: TwoLayerStack(rate=0), "rate is 0"),
        (lambda: TwoLayerStack(rate=float("nan")), "rate is nan"),
        (lambda: TwoLayerStack(update=Adam(), rate=0.1), "rate of its own"),
        (lambda: TwoLayerStack(dtype="float16"), "dtype is 'float16'"),
        (lambda: Adam(beta1=1.0), "beta1 is 1.0"),
        (lambda: Momentum(momentum=-0.1), "momentum is -0.1"),
        (lambda: AdaGrad(eps=0), "eps is 0"),
        (lambda: ConvStack((28,)), "shape is"),
        (lambda: ConvStack((28, 0)), "a side of shape is 0"),
        (lambda: ConvStack((4, 8)), "kernel is 5"),
        (lambda: ConvStack((8, 8), stride=0), "stride is 0"),
        (lambda: ConvStack((8, 8), padding=-1), "padding is -1"),
        (lambda: ConvStack((8, 8)).open(63, 1), "n_features is 63, expected 64"),
        (lambda: TwoLayerStack().keep_average(-1), "averaging_power is -1"),
        (lambda: TwoLayerStack().averaged(), "keep_average"),
    ],
)
def test_options_that_cannot_be_met_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_targets_of_another_shape_are_refused():
    stack = plain("dense")
    X, targets, weight = stream(stack, 4)
    with pytest.raises(ValueError, match=r"targets have shape \(4, 3\), expected \(4, 3, 2\)"):
        stack.learn(X, targets[..., 0], weight)


def test_rules_are_named():
    assert update_rule("momentum", 0.3) == Momentum(rate=0.3)
    assert update_rule("adam", None) == Adam()
    assert update_rule(AdaGrad(0.2), None) == AdaGrad(0.2)
