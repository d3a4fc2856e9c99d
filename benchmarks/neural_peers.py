"""The loops one would write by hand: Algorithm 1 over N small networks with ADAM, in PyTorch and in JAX.

Each trainer takes batches (x, y) of float32, predicts, sets the targets and lets every learner take one step on its
own; ``train(X, Y)`` does so for all batches (k, b, d) in order and returns the predictions made before each step.
Square loss for the two-layer networks, softmax for the convolutions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Train = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
ETA, RATE = 0.5, 3e-3
SIDE = 28


def naive_torch(n_learners: int, hidden: int, d: int) -> Train:
    """N modules, N optimisers: the paper's pseudo-code, line by line."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(d, hidden), nn.Sigmoid(), nn.Linear(hidden, 1)) for _ in range(n_learners)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=RATE) for net in nets]

    def train(X: NDArray[Any], Y: NDArray[Any]) -> NDArray[Any]:
        said = []
        for x, y in zip(torch.from_numpy(X), torch.from_numpy(Y), strict=True):
            score = torch.zeros(len(x), 1)
            for net, optimizer in zip(nets, optimizers, strict=True):
                h = net(x)
                loss = 0.5 * ((h - (score - y)) ** 2).sum(dim=1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                score = score - ETA * h.detach()
            said.append(score.numpy())
        return np.stack(said)

    return train


def naive_torch_conv(n_learners: int, channels: int) -> Train:
    """The same with convolutions (5 × 5, stride 2) and softmax over ten classes."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    side = (SIDE - 5) // 2 + 1

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, channels, 5, stride=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(channels * side * side, 10)
        )

    nets = [make() for _ in range(n_learners)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=RATE) for net in nets]

    def train(X: NDArray[Any], Y: NDArray[Any]) -> NDArray[Any]:
        said = []
        for x, y in zip(torch.from_numpy(X), torch.from_numpy(Y), strict=True):
            images, score, hot = x.reshape(-1, 1, SIDE, SIDE), torch.zeros(len(x), 10), torch.eye(10)[y.long()]
            for net, optimizer in zip(nets, optimizers, strict=True):
                h = net(images)
                loss = 0.5 * ((h - (score.softmax(dim=1) - hot)) ** 2).sum(dim=1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                score = score - 2 * ETA * h.detach()
            said.append(score.numpy())
        return np.stack(said)

    return train


def jax_scan(n_learners: int, hidden: int, d: int) -> Train:
    """All learners in one vmap, all batches in one scan, one compiled call."""
    import jax
    import jax.numpy as jnp
    import optax

    def init(key: Any) -> dict[str, Any]:
        first, second = jax.random.split(key)
        return {
            "W1": jax.random.normal(first, (d, hidden)) / np.sqrt(d),
            "b1": jnp.zeros(hidden),
            "W2": jax.random.normal(second, (hidden, 1)) / np.sqrt(hidden),
            "b2": jnp.zeros(1),
        }

    def apply(params: dict[str, Any], x: Any) -> Any:
        return jax.nn.sigmoid(x @ params["W1"] + params["b1"]) @ params["W2"] + params["b2"]

    optimizer = optax.adam(RATE)

    def step(state: Any, batch: Any) -> Any:
        params, memory = state
        x, y = batch

        def loss(params: Any) -> Any:
            h = jax.vmap(apply, in_axes=(0, None))(params, x)  # (N, b, 1)
            before = -ETA * (jnp.cumsum(h, axis=0) - h)
            targets = jax.lax.stop_gradient(before - y)
            return 0.5 * ((h - targets) ** 2).sum(axis=(0, 2)).mean(), -ETA * h.sum(axis=0)

        gradient, said = jax.grad(loss, has_aux=True)(params)
        update, memory = optimizer.update(gradient, memory)
        return (optax.apply_updates(params, update), memory), said

    params = jax.vmap(init)(jax.random.split(jax.random.key(0), n_learners))
    state = [(params, optimizer.init(params))]
    scan = jax.jit(lambda state, X, Y: jax.lax.scan(step, state, (X, Y)))

    def train(X: NDArray[Any], Y: NDArray[Any]) -> NDArray[Any]:
        state[0], said = scan(state[0], X, Y)
        return np.asarray(said)

    return train
