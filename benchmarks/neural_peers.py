"""The loops one would write by hand: Algorithm 1 over N small networks with ADAM, in PyTorch.

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
