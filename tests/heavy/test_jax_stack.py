"""JaxStack beside jax.grad and Optax for each learner by itself; and what it says of bad models."""

import copy
import pickle
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
eqx = pytest.importorskip("equinox")
linen = pytest.importorskip("flax.linen")

from streamboost import SGBRegressor, snapshots, testing  # noqa: E402
from streamboost.bases import Constant  # noqa: E402
from streamboost.boosting import Booster  # noqa: E402
from streamboost.descents import GradientDescent  # noqa: E402
from streamboost.errors import MissingDependency, SnapshotError  # noqa: E402
from streamboost.losses import Squared  # noqa: E402
from streamboost.stacks import jax_stack  # noqa: E402
from streamboost.stacks.jax_stack import JaxStack  # noqa: E402

N, D = 3, 4
jnp = jax.numpy


def init(key, n_features, n_outputs):
    first, second = jax.random.split(key)
    return {
        "inner": jax.random.normal(first, (n_features, 5)),
        "bias": jnp.zeros(5),
        "outer": (jax.random.normal(second, (5, n_outputs)), jnp.zeros(n_outputs)),
    }


def apply(parameters, x):
    weights, bias = parameters["outer"]
    return jnp.tanh(x @ parameters["inner"] + parameters["bias"]) @ weights + bias


def mlp(key, n_features, n_outputs):
    return eqx.nn.MLP(n_features, n_outputs, 5, 1, activation=jnp.tanh, key=key)


def dense(n_features, n_outputs):
    return linen.Sequential([linen.Dense(5), linen.tanh, linen.Dense(n_outputs)])


# One of each: copies share what is compiled.
STACKS = {
    "raw": JaxStack(init, apply, N),
    "equinox": JaxStack.equinox(mlp, N),
    "flax": JaxStack.flax(dense, N),
}


def opened(stack=None, n_outputs=1, seed=0, **options):
    stack = JaxStack(init, apply, N, **options) if stack is None else copy.deepcopy(stack)
    stack.open(D, n_outputs, seed)
    return stack


def rows(n, n_outputs=1, n_learners=N, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.normal(size=(n, n_learners, n_outputs)), rng.uniform(0.5, 2.0, size=n)


def learner(stack, i):
    """The parameters of one learner."""
    return jax.tree.map(lambda leaf: leaf[i], stack._blocks[0].state.parameters)


def photograph(stack):
    """Everything that learning could change."""
    states = [(jax.tree.map(np.asarray, block.state), block.taught) for block in stack._blocks]
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((states, vars(stack.inputs)))]


@pytest.mark.parametrize("check", testing.STACK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("kind", STACKS)
def test_it_keeps_the_contract(kind, n_outputs, check):
    check(testing.StackCase(lambda: copy.deepcopy(STACKS[kind]), n_outputs=n_outputs))


# Beside each learner by itself

OPTIMIZERS = {
    "default": None,
    "sgd": optax.sgd(0.005, momentum=0.9),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.01)),
}


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_is_n_models_with_n_optimisers(optimizer, batch):
    stack = opened(n_outputs=2, optimizer=OPTIMIZERS[optimizer], standardize=False)
    rule = OPTIMIZERS[optimizer] or optax.adam(3e-3)
    alone = [learner(stack, i) for i in range(N)]
    X, targets, weight = rows(50 * batch, n_outputs=2)

    def loss(parameters, x, goal, factor):
        return jnp.sum(factor * 0.5 * jnp.sum((goal - apply(parameters, x)) ** 2, axis=1))

    slope = jax.jit(jax.grad(loss))
    factor = weight if batch == 1 else (weight / weight.reshape(-1, batch).sum(axis=1).repeat(batch))
    for i in range(N):
        state = rule.init(alone[i])
        for t in range(0, len(X), batch):
            part = slice(t, t + batch)
            x, goal, w = (jnp.asarray(a, np.float32) for a in (X[part], targets[part, i], factor[part]))
            updates, state = rule.update(slope(alone[i], x, goal, w), state, alone[i])
            alone[i] = optax.apply_updates(alone[i], updates)
    if batch == 1:
        stack.learn(X, targets, weight)
    else:
        for t in range(0, len(X), batch):
            stack.learn_batch(X[t : t + batch], targets[t : t + batch], weight[t : t + batch])
    for i in range(N):
        for ours, theirs in zip(jax.tree.leaves(learner(stack, i)), jax.tree.leaves(alone[i]), strict=True):
            assert np.abs(ours - theirs).max() < 2e-6
        said = apply(alone[i], jnp.asarray(X, np.float32))
        assert np.abs(stack.predict(X)[:, i] - said).max() < 5e-6


def test_how_a_stream_is_cut_into_chunks_changes_next_to_nothing():
    X, targets, weight = rows(300)
    whole, cut = opened(STACKS["raw"]), opened(STACKS["raw"])
    whole.learn(X, targets, weight)
    for part in np.split(np.arange(300), [1, 3, 40, 60]):
        cut.learn(X[part], targets[part], weight[part])
    assert np.abs(whole.predict(X) - cut.predict(X)).max() < 1e-5
    assert np.array_equal(whole.inputs.mean, cut.inputs.mean)


def test_little_is_compiled_for_chunks_of_any_length():
    traced = []

    def noted(parameters, x):
        traced.append(x.shape)
        return apply(parameters, x)

    stack = JaxStack(init, noted, N)
    stack.open(D, 1)
    X, targets, weight = rows(200)
    for n in range(1, 200, 7):
        stack.learn(X[:n], targets[:n], weight[:n])
    assert len(traced) <= 1 + 2 * len(jax_stack.LOOPS)  # the rehearsal, and JAX may trace the body of a loop twice
    traced.clear()
    twin = copy.deepcopy(stack)
    twin.learn(X, targets, weight)
    assert not traced


@pytest.mark.parametrize("bend", [0.0, 8.0])
def test_the_average_is_that_of_the_parameters_after_every_step(bend):
    stack = opened(STACKS["raw"])
    X, targets, weight = rows(30)
    stack.learn(X[:10], targets[:10], weight[:10])
    stack.keep_average(bend)
    assert np.array_equal(stack.averaged().predict(X), stack.predict(X))
    mean = None
    for t in range(10, 30):
        stack.learn(X[t : t + 1], targets[t : t + 1], weight[t : t + 1])
        now = [np.asarray(leaf, float) for leaf in jax.tree.leaves(stack._blocks[0].state.parameters)]
        share = (bend + 1) / (t - 9 + bend)
        mean = now if mean is None else [a + (p - a) * share for a, p in zip(mean, now, strict=True)]
    averaged = stack.averaged()
    for ours, theirs in zip(jax.tree.leaves(averaged._blocks[0].state.parameters), mean, strict=True):
        assert np.abs(ours - theirs).max() < 1e-6
    with pytest.raises(TypeError, match="can be asked, not taught"):
        averaged.learn_batch(X, targets, weight)


def test_equinox_and_flax_modules_are_applied_as_they_would_be_by_themselves():
    X, targets, weight = rows(20)
    for kind in ("equinox", "flax"):
        stack = opened(STACKS[kind])
        stack.learn(X, targets, weight)
        Z = stack.inputs.transform(X)[:, :-1].astype(np.float32)
        for i in range(N):
            if kind == "equinox":
                module = eqx.combine(learner(stack, i), mlp(jax.random.key(3), D, 1))
                said = np.stack([module(z) for z in Z])
            else:
                said = dense(D, 1).apply(learner(stack, i), Z)
            assert np.abs(stack.predict(X)[:, i] - said).max() < 1e-5


def test_every_learner_starts_from_a_seed_of_its_own():
    stack = opened(STACKS["raw"])
    stack.grow(2)
    starts = np.concatenate([np.asarray(block.state.parameters["inner"]) for block in stack._blocks])
    assert len({start.tobytes() for start in starts}) == N + 2
    assert not np.array_equal(opened(STACKS["raw"], seed=1)._blocks[0].state.parameters["inner"], starts[:N])


def test_it_pickles_where_its_functions_do_and_a_snapshot_says_why_not(tmp_path):
    stack = opened(STACKS["raw"])
    stack.keep_average(8.0)
    X, targets, weight = rows(10)
    stack.learn(X, targets, weight)
    loaded = pickle.loads(pickle.dumps(stack))
    for one in (stack, loaded):
        one.learn(X, targets, weight)
    assert np.array_equal(stack.predict(X), loaded.predict(X))
    assert np.array_equal(stack.averaged().predict(X), loaded.averaged().predict(X))
    with pytest.raises(SnapshotError, match=r"recipe\.init is a function, which cannot be saved without pickle"):
        snapshots.save(stack, tmp_path / "stack")


def small_adam():
    return optax.adam(1e-3)


def test_an_optimiser_given_as_a_function_can_be_pickled():
    stack = opened(optimizer=small_adam)
    assert pickle.loads(pickle.dumps(stack)).recipe.optimizer is small_adam


# In a booster


@pytest.mark.parametrize("iterate", ["last", "polynomial"])
def test_a_booster_of_models_learns_a_curve(iterate):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    stack = JaxStack(init, apply, 5, optimizer=optax.adam(1e-2))
    booster = Booster(Squared(), GradientDescent(0.5), stack, base=Constant(0), semantics=8, iterate=iterate)
    before = booster.learn(X, y)
    assert np.mean((before[-500:, 0] - y[-500:]) ** 2) < 0.2 * np.var(y)


def test_an_estimator_takes_it_as_learner():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = X[:, 0] * X[:, 1]
    stack = JaxStack(init, apply, 3, optimizer=optax.adam(1e-2))
    model = SGBRegressor(learner=stack).fit(X, y)
    assert model.score(X, y) > 0.05  # a line explains 0.003
    assert not hasattr(stack, "_blocks")  # it is a pattern


# Complaints


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: JaxStack(init, lambda p, x: apply(p, x)[:, :, None]),
            ValueError,
            r"said an array of shape \(3, 1, 1\)",
        ),
        (lambda: JaxStack(init, lambda p, x: (x, x)), ValueError, "the model said a tuple, expected one array"),
        (
            lambda: JaxStack(init, lambda p, x: x @ jnp.ones((9, 1))),
            ValueError,
            r"does not run on rows of shape \(3, 4\)",
        ),
        (lambda: JaxStack(lambda key, d, m: {"n": jnp.arange(3)}, apply), TypeError, "no tree of float arrays"),
        (lambda: JaxStack(init, apply, optimizer=3), TypeError, "optimizer is 3, expected one of Optax"),
        (lambda: JaxStack("init", apply), TypeError, "init is 'init', expected a function"),
        (lambda: JaxStack.equinox(3), TypeError, r"make is 3, expected a function make\(key"),
        (lambda: JaxStack.flax(3), TypeError, "module is 3, expected a flax.linen.Module"),
        (lambda: JaxStack.flax(linen.Dense(2)), ValueError, r"shape \(3, 2\) of 3 rows, expected \(3, 1\)"),
        (
            lambda: JaxStack.flax(linen.Sequential([linen.BatchNorm(use_running_average=True), linen.Dense(1)])),
            TypeError,
            "variables beside its parameters: batch_stats",
        ),
    ],
)
def test_a_bad_model_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make().open(D, 1)


def test_models_whose_shapes_depend_on_the_key_are_refused():
    sizes = iter([1, 2])
    with pytest.raises(ValueError, match="parameters of other shapes for other keys"):
        JaxStack(lambda key, d, m: jnp.zeros((d, next(sizes))), apply, 2).open(D, 1)


def breaks(parameters, x):
    """What it says (first input large), or its slope (second input large), is no number for parameters above 5."""
    guilty = parameters["bias"].sum() > 5
    said = x @ parameters["weights"] + parameters["bias"]
    flat = jnp.where(guilty & (x[:, 1:2] > 1e6), 0.0, 1.0)
    said = said + jnp.sqrt(flat * (1 + parameters["bias"].sum() ** 2)) - 1.0
    return jnp.where(guilty & (x[:, :1] > 1e6), jnp.nan, said)


BREAKS = JaxStack(lambda key, d, m: {"weights": jnp.zeros((d, m)), "bias": jnp.zeros(m)}, breaks, N, standardize=False)


@pytest.mark.parametrize(("column", "what"), [(0, "a loss"), (1, "a gradient")])
def test_a_step_that_is_no_number_is_not_taken(column, what):
    stack = opened(BREAKS)
    block = stack._blocks[0]
    bias = block.state.parameters["bias"].at[1].set(10.0)
    block.state = block.state._replace(parameters=block.state.parameters | {"bias": bias})
    X, targets, weight = rows(6)
    stack.learn(X, targets, weight)
    twin = copy.deepcopy(stack)
    bad = X.copy()
    bad[4, column] = 1e7
    with pytest.raises(FloatingPointError, match=rf"learner 1 \(module\) has {what} that is not finite"):
        stack.learn(bad, targets, weight)
    twin.learn(bad[:4], targets[:4], weight[:4])
    assert photograph(stack) == photograph(twin)  # as if the rows had ended there
    with pytest.raises(FloatingPointError, match="learner 1"):
        stack.learn_batch(bad, targets, weight)
    assert photograph(stack) == photograph(twin)
    if column == 0:
        with pytest.raises(FloatingPointError, match=r"learner 1 \(module\) said nan of row 4"):
            stack.predict(bad)


def test_outputs_cannot_be_added_to_a_flax_module_of_fixed_width():
    stack = opened(JaxStack.flax(linen.Dense(1), N))
    with pytest.raises(TypeError, match=r"outputs cannot be added: the Flax module \(Dense\)"):
        stack.add_outputs(1)


@pytest.mark.parametrize(
    ("package", "make", "by"),
    [
        ("jax", lambda: JaxStack(init, apply), "JaxStack"),
        ("optax", lambda: JaxStack(init, apply), "JaxStack"),
        ("equinox", lambda: JaxStack.equinox(mlp), r"JaxStack\.equinox"),
        ("flax", lambda: JaxStack.flax(dense), r"JaxStack\.flax"),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch, package, make, by):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=rf"^{by} needs {package}, .* pip install 'streamboost\[jax\]'"):
        make()


def test_the_example_runs(run_examples):
    assert run_examples(JaxStack) > 5
