"""TorchStack beside N modules with N optimisers, written out; and what it says of bad modules."""

import copy
import pickle
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamboost import SGBRegressor, testing  # noqa: E402
from streamboost.bases import Constant  # noqa: E402
from streamboost.boosting.booster import Booster  # noqa: E402
from streamboost.descents import GradientDescent  # noqa: E402
from streamboost.errors import MissingDependency, SnapshotError  # noqa: E402
from streamboost.losses import Squared  # noqa: E402
from streamboost.persistence import snapshots  # noqa: E402
from streamboost.stacks.torch_stack import TorchStack  # noqa: E402

N, D = 3, 4
MODES = ["vmap", "list"]


def net(n_features, n_outputs):
    return torch.nn.Sequential(torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Linear(5, n_outputs))


def net_with_dropout(n_features, n_outputs):
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Dropout(), torch.nn.Linear(5, n_outputs)
    )


def net_with_statistics(n_features, n_outputs):
    return torch.nn.Sequential(torch.nn.BatchNorm1d(n_features), torch.nn.Linear(n_features, n_outputs))


def opened(factory=net, n_outputs=1, seed=0, n_learners=N, **options):
    stack = TorchStack(factory, n_learners, **options)
    stack.open(D, n_outputs, seed)
    return stack


def rows(n, n_outputs=1, n_learners=N, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.normal(size=(n, n_learners, n_outputs)), rng.uniform(0.5, 2.0, size=n)


def modules_of(stack, make=net):
    """The modules as they are, each by itself."""
    modules = []
    for i in range(stack.n_learners):
        module = make(D, stack.n_outputs)
        held = stack._blocks[0].parameters
        names = dict(module.named_parameters())
        at = {name: held[name][i] if stack.mode == "vmap" else held[f"{i}.{name}"] for name in names}
        with torch.no_grad():
            for name, parameter in names.items():
                parameter.copy_(at[name])
        modules.append(module)
    return modules


def say(modules, X):
    with torch.no_grad():
        return torch.stack([m(torch.tensor(X, dtype=torch.float32)) for m in modules], dim=1).double().numpy()


def photograph(stack):
    """Everything that learning could change, bit for bit."""
    blocks = [
        (block.parameters, block.buffers, block.optimizer.state_dict(), block.average, block.steps)
        for block in stack._blocks
    ]
    return repr(plain((blocks, vars(stack.inputs), stack._dice, [block.taught for block in stack._blocks])))


def plain(thing):
    if isinstance(thing, torch.Tensor):
        return thing.detach().numpy().tobytes()
    if isinstance(thing, np.ndarray):
        return thing.tobytes()
    if isinstance(thing, dict):
        return {name: plain(value) for name, value in thing.items()}
    return [plain(part) for part in thing] if isinstance(thing, (list, tuple)) else thing


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize(("mode", "factory"), [("vmap", net), ("list", net), ("list", net_with_dropout)])
def test_it_keeps_the_contract(mode, factory, n_outputs):
    testing.check_stack(lambda: TorchStack(factory, N, mode=mode), n_outputs=n_outputs)


# Beside modules and optimisers written out

OPTIMIZERS = {
    "default": None,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
}


@pytest.mark.pairwise(mode=MODES, optimizer=OPTIMIZERS, batch=[1, 8])
def test_it_is_n_modules_with_n_optimisers(mode, optimizer, batch):
    stack = opened(n_outputs=2, mode=mode, optimizer=OPTIMIZERS[optimizer], standardize=False)
    modules = modules_of(stack)
    make = OPTIMIZERS[optimizer] or (lambda parameters: torch.optim.Adam(parameters, lr=3e-3))
    optimizers = [make(module.parameters()) for module in modules]
    X, targets, weight = rows(50 * batch, n_outputs=2)
    for t in range(0, len(X), batch):
        part = slice(t, t + batch)
        if batch == 1:
            stack.learn(X[part], targets[part], weight[part])
            factor = weight[part]
        else:
            stack.learn_batch(X[part], targets[part], weight[part])
            factor = weight[part] / weight[part].sum()
        x, goal, w = (torch.tensor(a, dtype=torch.float32) for a in (X[part], targets[part], factor))
        for i, (module, own) in enumerate(zip(modules, optimizers, strict=True)):
            own.zero_grad()
            (w * 0.5 * ((goal[:, i] - module(x)) ** 2).sum(dim=1)).sum().backward()
            own.step()
    assert np.abs(stack.predict(X) - say(modules, X)).max() < 1e-6
    for ours, theirs in zip(modules_of(stack), modules, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert float((a - b).detach().abs().max()) < 1e-6


def test_both_modes_are_the_same_also_after_growing():
    one, other = (opened(mode=mode) for mode in MODES)
    for stack in (one, other):
        stack.learn(*rows(20))
        stack.grow(2)
        stack.learn(*rows(20, n_learners=N + 2, seed=2))
    X = rows(10)[0]
    assert np.abs(one.predict(X) - other.predict(X)).max() < 1e-6
    assert np.abs(one.predict(X)).min() > 0


def test_how_a_stream_is_cut_into_chunks_changes_nothing():
    X, targets, weight = rows(30)
    whole, cut = opened(), opened()
    whole.learn(X, targets, weight)
    for part in np.split(np.arange(30), [1, 7, 20]):
        cut.learn(X[part], targets[part], weight[part])
    assert np.array_equal(whole.predict(X), cut.predict(X))


def test_in_a_batch_a_row_of_weight_two_is_the_row_twice():
    X, targets, _ = rows(3)
    weighted, repeated = opened(standardize=False), opened(standardize=False)
    twice = [0, 1, 1, 2]
    for _ in range(5):
        weighted.learn_batch(X, targets, np.array([1.0, 2.0, 1.0]))
        repeated.learn_batch(X[twice], targets[twice], np.ones(4))
    assert np.abs(weighted.predict(X) - repeated.predict(X)).max() < 1e-6


class Witness(torch.nn.Module):
    """Remembers the rows it was taught."""

    seen: list = []  # noqa: RUF012

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layer = torch.nn.Linear(n_features, n_outputs)

    def forward(self, x):
        if self.training:
            self.seen.append(x.numpy().copy())
        return self.layer(x)


def test_modules_see_rows_standardised_by_the_rows_before_and_zero_for_what_is_missing():
    Witness.seen.clear()
    X, targets, _ = rows(20)
    X = 100.0 + 3.0 * X
    X[5, 1] = X[9, 2] = np.nan
    opened(Witness, mode="list", n_learners=1).learn(X, targets[:, :1], np.ones(20))
    for t in range(2, 20):
        past = X[:t]  # as when it was predicted
        expected = (X[t] - np.nanmean(past, axis=0)) / np.nanstd(past, axis=0)
        assert np.allclose(Witness.seen[t][0], np.nan_to_num(np.clip(expected, -5, 5)), atol=1e-4)


@pytest.mark.parametrize("averaging_power", [0.0, 8.0])
@pytest.mark.parametrize("mode", MODES)
def test_the_average_is_that_of_the_parameters_after_every_step(mode, averaging_power):
    stack = opened(mode=mode, standardize=False)
    X, targets, weight = rows(40)
    stack.learn(X[:10], targets[:10], weight[:10])
    stack.keep_average(averaging_power)
    before = stack.averaged().predict(X)
    assert np.array_equal(before, stack.predict(X))
    mean = None
    for t in range(10, 40):
        stack.learn(X[t : t + 1], targets[t : t + 1], weight[t : t + 1])
        now = [p.detach().double() for m in modules_of(stack) for p in m.parameters()]
        share = (averaging_power + 1) / (t - 9 + averaging_power)
        mean = now if mean is None else [a + (p - a) * share for a, p in zip(mean, now, strict=True)]
    modules = modules_of(stack)
    with torch.no_grad():
        for parameter, value in zip((p for m in modules for p in m.parameters()), mean, strict=True):
            parameter.copy_(value)
    averaged = stack.averaged()
    assert np.abs(averaged.predict(X) - say(modules, X)).max() < 1e-6
    kept = averaged.predict(X)
    stack.learn(X, targets, weight)
    assert np.array_equal(averaged.predict(X), kept)
    with pytest.raises(TypeError, match="can be asked, not taught"):
        averaged.learn(X, targets, weight)


def test_without_an_average_there_is_none_to_ask_for():
    with pytest.raises(TypeError, match="call keep_average before"):
        opened().averaged()


# State


@pytest.mark.parametrize("mode", MODES)
def test_the_random_numbers_of_others_are_left_alone(mode):
    torch.manual_seed(5)
    ours, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    stack = opened(net_with_dropout if mode == "list" else net, mode=mode)
    stack.learn(*rows(5))
    stack.predict(rows(5)[0])
    stack.grow(1)
    assert torch.equal(torch.get_rng_state(), ours)
    assert np.array_equal(np.random.get_state()[1], numpys)  # noqa: NPY002


def test_every_learner_starts_from_a_seed_of_its_own():
    stack = opened()
    stack.grow(2)
    weights = torch.cat([block.parameters["0.weight"] for block in stack._blocks])
    assert len({tuple(weight.flatten().tolist()) for weight in weights}) == N + 2
    assert not torch.equal(opened(seed=1)._blocks[0].parameters["0.weight"], weights[:N])


def test_dropout_is_drawn_when_taught_and_not_when_asked():
    stack = opened(net_with_dropout, mode="list")
    plain = opened(net, mode="list")
    X, targets, weight = rows(20)
    for one in (stack, plain):
        one.learn(X, targets, weight)
    assert not np.allclose(stack.predict(X), plain.predict(X))
    assert np.array_equal(stack.predict(X), stack.predict(X))


def test_batch_normalisation_learns_from_batches_and_not_from_asking():
    stack = opened(net_with_statistics, mode="list", standardize=False)
    X, targets, weight = rows(30)
    stack.learn_batch(X, targets, weight)
    mean = stack._blocks[0].modules[0][0].running_mean
    assert np.allclose(mean.numpy(), 0.1 * X.mean(axis=0), atol=1e-6)
    before = photograph(stack)
    stack.predict(X + 10)
    assert photograph(stack) == before
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        stack.learn(X[:1], targets[:1], weight[:1])
    assert photograph(stack) == before


def test_what_is_frozen_in_a_module_stays():
    def half_frozen(n_features, n_outputs):
        module = net(n_features, n_outputs)
        module[0].requires_grad_(False)
        return module

    for mode in MODES:
        stack = opened(half_frozen, mode=mode)
        before = modules_of(stack)
        stack.learn(*rows(10))
        after = modules_of(stack)
        assert torch.equal(before[1][0].weight, after[1][0].weight)
        assert not torch.equal(before[1][2].weight, after[1][2].weight)


def test_learners_made_later_see_the_columns_that_came_up_since():
    stack = opened()
    X, targets, weight = rows(20)
    stack.learn(X, targets, weight)
    stack.add_features(1)
    stack.grow(1)
    wide = np.hstack([X, X[:, :1]])
    stack.learn(wide, np.repeat(targets, [1, 1, 2], axis=1), weight)
    other = wide.copy()
    other[:, -1] += 1.0
    moved = np.abs(stack.predict(other) - stack.predict(wide)).max(axis=(0, 2))
    assert (moved[:N] == 0).all()
    assert moved[N] > 0


def test_modules_of_different_architectures_go_into_a_list():
    sizes = iter([2, 3, 4, 2, 3, 4])

    def other_every_time():
        hidden = next(sizes)
        return torch.nn.Sequential(torch.nn.Linear(D, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))

    stack = opened(other_every_time, mode="list")
    stack.learn(*rows(10))
    assert np.abs(stack.predict(rows(10)[0])).max() > 0
    with pytest.raises(ValueError, match=r"are not alike .* Use mode='list'"):
        opened(other_every_time)


@pytest.mark.parametrize("mode", MODES)
def test_it_pickles_where_its_factory_does_and_a_snapshot_says_why_not(mode, tmp_path):
    stack = opened(mode=mode)
    stack.keep_average(8.0)
    X, targets, weight = rows(10)
    stack.learn(X, targets, weight)
    loaded = pickle.loads(pickle.dumps(stack))
    for one in (stack, loaded):
        one.learn(X, targets, weight)
    assert np.array_equal(stack.predict(X), loaded.predict(X))
    assert np.array_equal(stack.averaged().predict(X), loaded.averaged().predict(X))
    with pytest.raises(SnapshotError, match=r"factory is a function, which cannot be saved without pickle"):
        snapshots.save(stack, tmp_path / "stack")


# In a booster


@pytest.mark.parametrize("iterate", ["last", "polynomial"])
@pytest.mark.parametrize("mode", MODES)
def test_a_booster_of_modules_learns_a_curve(mode, iterate):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    stack = TorchStack(net, 5, mode=mode, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2))
    booster = Booster(Squared(), GradientDescent(0.5), stack, base=Constant(0), semantics=8, iterate=iterate)
    before = booster.learn(X, y)
    assert np.mean((before[-500:, 0] - y[-500:]) ** 2) < 0.15 * np.var(y)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("iterate", ["last", "polynomial"])
def test_frozen_it_says_the_same_without_its_optimisers(mode, iterate):
    X = np.random.default_rng(0).normal(size=(120, D))
    model = SGBRegressor(learner=TorchStack(net, N, mode=mode), iterate=iterate, random_state=0).fit(X, X[:, 0])
    frozen = model.freeze()
    expected = model.predict(X)
    assert (frozen.predict(X) == expected).all()
    assert (pickle.loads(pickle.dumps(frozen)).predict(X) == expected).all()
    assert len(pickle.dumps(frozen)) < len(pickle.dumps(model))
    assert all(block.optimizer is None for block in frozen.booster_.stack._blocks)
    model.partial_fit(X, -X[:, 0])
    assert (frozen.predict(X) == expected).all()
    with pytest.raises(RuntimeError, match="frozen"):
        frozen.partial_fit(X, X[:, 0])


def test_an_estimator_takes_it_as_learner():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = X[:, 0] * X[:, 1]
    stack = TorchStack(net, 3, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2))
    model = SGBRegressor(learner=stack).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.score(X, y) > 0.1
    assert not hasattr(stack, "_blocks")  # it is a pattern


# Complaints


class Writes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(D, 1))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    ("factory", "error", "words"),
    [
        (lambda: torch.nn.Linear(D, 2), ValueError, r"said an array of shape \(3, 2\) of 3 rows, expected \(3, 1\)"),
        (lambda: torch.nn.Linear(D + 1, 1), ValueError, r"rows of shape \(3, 4\).*first layer"),
        (Writes, ValueError, "wrote into the rows it was given.*inplace=False"),
        (lambda: "a module", TypeError, "factory returned 'a module' for learner 0, expected a torch.nn.Module"),
        (lambda: torch.nn.Flatten(), ValueError, "shape|parameters to learn"),
        (lambda module=torch.nn.Linear(D, 1): module, ValueError, "the same module twice"),  # noqa: B008
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_bad_module_is_refused_when_opened(mode, factory, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        opened(factory, mode=mode)


def test_a_list_names_the_learner_that_is_wrong():
    widths = iter([1, 1, 2])
    with pytest.raises(ValueError, match=r"learner 2 \(Linear\) said an array of shape \(3, 2\)"):
        opened(lambda: torch.nn.Linear(D, next(widths)), mode="list")


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (net_with_dropout, "do not run as one.*use mode='list'"),
        (net_with_statistics, "changes its buffers.*mode='list'"),
    ],
)
def test_modules_that_do_not_run_as_one_are_sent_to_the_list(factory, words):
    stack = opened(factory)
    before = photograph(stack)
    with pytest.raises((ValueError, TypeError), match=f"(?s){words}"):
        stack.learn_batch(*rows(8))
    assert photograph(stack) == before


class Breaks(torch.nn.Module):
    """Its gradient, or what it says, is no number where the first input is 1 and its own weight is large."""

    def __init__(self, how, n_outputs):
        super().__init__()
        self.how = how
        self.layer = torch.nn.Linear(D, n_outputs)

    def forward(self, x):
        said = self.layer(x)
        guilty = (x[:, :1] > 1e6) & (self.layer.bias.sum() > 5)
        if self.how == "says":
            return torch.where(guilty, torch.nan, said)
        return said + torch.sqrt(torch.where(guilty, 0.0, 1.0) * (1 + self.layer.bias.sum() ** 2)) - 1.0


@pytest.mark.parametrize(("how", "what"), [("says", "a loss"), ("feels", "a gradient")])
@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_is_no_number_is_not_taken(mode, how, what):
    stack = opened(lambda d, m: Breaks(how, m), mode=mode, standardize=False)
    with torch.no_grad():
        held = stack._blocks[0].parameters
        (held["layer.bias"][1] if mode == "vmap" else held["1.layer.bias"]).fill_(10.0)
    X, targets, weight = rows(6)
    stack.learn(X, targets, weight)
    twin = copy.deepcopy(stack)
    bad = X.copy()
    bad[4, 0] = 1e7
    with pytest.raises(FloatingPointError, match=rf"learner 1 \(Breaks\) has {what} that is not finite"):
        stack.learn(bad, targets, weight)
    twin.learn(bad[:4], targets[:4], weight[:4])
    assert photograph(stack) == photograph(twin)  # as if the rows had ended there
    with pytest.raises(FloatingPointError, match="learner 1"):
        stack.learn_batch(bad, targets, weight)
    assert photograph(stack) == photograph(twin)
    if how == "says":
        with pytest.raises(FloatingPointError, match=r"learner 1 \(Breaks\) said nan of row 4"):
            stack.predict(bad)


def test_arguments_that_are_none_are_refused():
    with pytest.raises(ValueError, match="mode is 'loop', expected 'vmap' or 'list'"):
        TorchStack(net, mode="loop")
    with pytest.raises(TypeError, match=r"factory is a module .* expected a function"):
        TorchStack(torch.nn.Linear(2, 1))
    with pytest.raises(TypeError, match=r"factory takes \(a, b, c\), expected no argument or"):
        TorchStack(lambda a, b, c: None)
    with pytest.raises(TypeError, match="factory is 3, expected a function"):
        TorchStack(3)
    with pytest.raises(TypeError, match=r"optimizer\(parameters\) returned None"):
        opened(optimizer=lambda parameters: None)
    with pytest.raises(ValueError, match="n_learners is 0"):
        TorchStack(net, 0)


def test_outputs_cannot_be_added_to_modules_that_take_no_shapes():
    stack = opened(lambda: torch.nn.Linear(D, 1))
    with pytest.raises(TypeError, match=r"2 outputs cannot be added: factory\(\) takes no shapes"):
        stack.add_outputs(2)
    assert stack.n_outputs == 1


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependency, match=r"TorchStack needs torch, .* pip install 'streamboost\[torch\]'"):
        TorchStack(net)


def test_the_example_runs(run_examples):
    assert run_examples(TorchStack) > 5
