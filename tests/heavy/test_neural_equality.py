"""Our networks beside PyTorch's derivatives and optimisers, from the same parameters on the same rows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamboost.stacks.conv import ConvStack  # noqa: E402
from streamboost.stacks.neural import TwoLayerStack  # noqa: E402
from streamboost.stacks.update_rules import SGD, AdaGrad, Adam, Momentum  # noqa: E402

N, M, STEPS = 3, 2, 100
NAMES = ("W1", "b1", "W2", "b2")
SLOPE = 0.01  # of the leaky ReLU
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}

TORCH_ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, SLOPE),
}
# Each with the same rule in PyTorch.
RULES = {
    "adam": (Adam(0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
    "sgd": (SGD(0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
    "momentum": (Momentum(0.003, 0.9), lambda p: torch.optim.SGD(p, lr=0.003, momentum=0.9)),
    "adagrad": (AdaGrad(0.05, 1e-8), lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-8)),
}


def dense(activation, dtype, rule):
    stack = TwoLayerStack(N, 4, activation=activation, update=rule, standardize=False, dtype=dtype, scale_targets=False)
    stack.open(5, M, 0)
    return stack


def conv(activation, dtype, rule):
    stack = ConvStack(
        (2, 6, 5), N, kernel=3, stride=2, padding=1, channels=2, activation=activation, update=rule, dtype=dtype,
        scale_targets=False,
    )  # fmt: skip
    stack.open(60, M, 0)
    return stack


def randomised(stack):
    """Output layers start at 0, where hidden layers have no gradient: start elsewhere."""
    rng = np.random.default_rng(5)
    for name in NAMES:
        view = getattr(stack, name)
        view[...] = 0.4 * rng.normal(size=view.shape)
    return stack


def numbers(stack):
    return {name: np.array(getattr(stack, name)) for name in NAMES}


def rows(stack, n):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, stack.n_features))
    return X, rng.normal(size=(n, N, M)), rng.uniform(0.5, 2.0, size=n)


def teach(stack, X, targets, weight, batch):
    if batch == 1:
        stack.learn(X, targets, weight)
    else:
        for t in range(0, len(X), batch):
            stack.learn_batch(X[t : t + batch], targets[t : t + batch], weight[t : t + batch])


def factors(weight, batch):
    return weight if batch == 1 else weight / weight.reshape(-1, batch).sum(axis=1).repeat(batch)


def torch_says(kind, act, p, x):
    if kind == "dense":
        hidden = act(torch.einsum("nd,ihd->nih", x, p["W1"]) + p["b1"])
        return torch.einsum("nih,imh->nim", hidden, p["W2"]) + p["b2"]
    images = x.reshape(-1, 2, 6, 5)
    said = []
    for i in range(N):
        hidden = act(torch.nn.functional.conv2d(images, p["W1"][i], p["b1"][i], stride=2, padding=1))
        said.append(torch.einsum("ncrs,mcrs->nm", hidden, p["W2"][i]) + p["b2"][i])
    return torch.stack(said, dim=1)


def with_torch(kind, activation, dtype, start, data, batch, make):
    X, targets, factor = (torch.tensor(array, dtype=getattr(torch, dtype)) for array in data)
    p = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
    optimizer = make(list(p.values()))
    for t in range(0, len(X), batch):
        part = slice(t, t + batch)
        optimizer.zero_grad()
        said = torch_says(kind, TORCH_ACTIVATIONS[activation], p, X[part])
        (factor[part, None, None] * 0.5 * (targets[part] - said) ** 2).sum().backward()
        optimizer.step()
    return {name: value.detach().numpy() for name, value in p.items()}


def expect_equal(ours, theirs, dtype):
    for name in NAMES:
        assert ours[name].dtype == theirs[name].dtype == np.dtype(dtype)
        assert np.abs(ours[name] - theirs[name]).max() < TOLERANCE[dtype], name


@pytest.mark.pairwise(
    kind=[dense, conv], activation=TORCH_ACTIVATIONS, dtype=["float32", "float64"], rule=RULES, batch=[1, 4]
)
def test_a_hundred_steps_are_those_of_pytorch(kind, activation, dtype, rule, batch):
    ours, make = RULES[rule]
    stack = randomised(kind(activation, dtype, ours))
    start = numbers(stack)
    X, targets, weight = rows(stack, STEPS * batch)
    teach(stack, X, targets, weight, batch)
    data = X, targets, factors(weight, batch)
    expect_equal(numbers(stack), with_torch(kind.__name__, activation, dtype, start, data, batch, make), dtype)


@pytest.mark.pairwise(kind=[dense, conv], activation=TORCH_ACTIVATIONS, batch=[1, 4])
def test_one_step_of_gradient_descent_shows_the_gradient(kind, activation, batch):
    stack = randomised(kind(activation, "float64", SGD(1.0)))
    start = numbers(stack)
    X, targets, weight = rows(stack, batch)
    teach(stack, X, targets, weight, batch)
    ours = {name: start[name] - value for name, value in numbers(stack).items()}
    data = X, targets, factors(weight, batch)
    theirs = with_torch(kind.__name__, activation, "float64", start, data, batch, lambda p: torch.optim.SGD(p, lr=1.0))
    for name in NAMES:
        assert np.allclose(ours[name], start[name] - theirs[name], rtol=1e-9, atol=1e-12), name
        assert np.abs(ours[name]).max() > 1e-3
