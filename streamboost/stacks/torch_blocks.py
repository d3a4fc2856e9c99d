"""Blocks of PyTorch modules: how they are run, what their gradients are, and the steps of their optimiser.

The parameters of learner i occur in the loss of learner i alone, so the gradient of the sum of the N losses holds all
N gradients, and an optimiser that works element by element (SGD, Adam, AdaGrad, RMSProp …) on all parameters does
what N of them would do.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost.errors import require

Tensor: TypeAlias = Any  # PyTorch is not there when this is read
Module: TypeAlias = Any
Tensors: TypeAlias = dict[str, Tensor]
Float32Array: TypeAlias = NDArray[np.float32]

RATE = 3e-3  # of Adam, unless another optimiser is given


class Place(NamedTuple):
    """Which learners and outputs a block answers for, and how many columns it sees."""

    learners: slice
    outputs: slice
    n_features: int

    @property
    def n_learners(self) -> int:
        """The learners of the block."""
        return int(self.learners.stop - self.learners.start)

    @property
    def n_outputs(self) -> int:
        """The outputs of the block."""
        return int(self.outputs.stop - self.outputs.start)


class Block(ABC):
    """Modules for a rectangle of learners and outputs, with one optimiser for all of them.

    They say 0 until they are taught. A subclass tells how modules become tensors and how these are run.
    """

    parameters: Tensors
    buffers: Tensors
    taught = False
    average: Tensors | None = None  # of the parameters, if one is kept
    averaging_power = 0.0  # of the average
    steps = 0  # that are in the average
    is_average = False

    def __init__(self, place: Place, modules: list[Module], optimizer: Callable[[list[Tensor]], Any] | None) -> None:
        self.place = place
        self.modules = modules
        self._take_tensors()
        self.trained = {name: p for name, p in self.parameters.items() if p.requires_grad}
        if not self.trained:
            raise ValueError("factory made a module without parameters to learn. Give it some that require gradients.")
        trained = list(self.trained.values())
        self.optimizer = optimizer(trained) if optimizer else torch_module().optim.Adam(trained, lr=RATE, fused=True)
        if not hasattr(self.optimizer, "step"):
            told = f"optimizer(parameters) returned {self.optimizer!r}, expected a torch.optim.Optimizer."
            raise TypeError(f"{told} Write lambda parameters: torch.optim.Adam(parameters, lr=0.003).")

    @abstractmethod
    def _take_tensors(self) -> None:
        """Find the parameters and buffers of the modules, by name."""

    @abstractmethod
    def _run(self, x: Tensor, buffers: Tensors, *, train: bool) -> Tensor:
        """What the modules say, (n, k, m), writing into the buffers given."""

    @abstractmethod
    def _gradients_of(self, i: int, gradients: Tensors) -> list[Tensor]:
        """Those of learner i of the block."""

    def who(self, i: int) -> str:
        """What learner i of the block is called when it is complained about."""
        module = self.modules[min(i, len(self.modules) - 1)]
        return f"learner {self.place.learners.start + i} ({type(module).__name__})"

    def say(self, Z: Float32Array) -> Float32Array:
        """What the modules say, (n, k, m), in ``eval`` mode; nothing changes."""
        with torch_module().no_grad():
            said: Float32Array = self._run(torch_module().from_numpy(Z), self._copied_buffers(), train=False).numpy()
        return said

    def _copied_buffers(self) -> Tensors:
        return {name: buffer.clone() for name, buffer in self.buffers.items()}

    def work_out(self, x: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensors, Tensors]:
        """The gradients of the sum of all losses and the buffers after the step; nothing changes yet."""
        torch, buffers = torch_module(), self._copied_buffers()
        said = self._run(x, buffers, train=True)
        losses = 0.5 * (weight[:, None, None] * (target - said) ** 2).sum(dim=(0, 2))  # (k,)
        finite = torch.isfinite(losses)
        if not bool(finite.all()):
            raise self._not_finite(int(finite.logical_not().nonzero()[0]), "a loss")
        found = torch.autograd.grad(losses.sum(), list(self.trained.values()), allow_unused=True)
        gradients = {name: g for name, g in zip(self.trained, found, strict=True) if g is not None}
        if not bool(torch.isfinite(torch.nn.utils.get_total_norm(gradients.values()))):  # one number is soon looked at
            for i in range(self.place.n_learners):
                if not all(bool(torch.isfinite(g).all()) for g in self._gradients_of(i, gradients)):
                    raise self._not_finite(i, "a gradient")
        return gradients, buffers

    def _not_finite(self, i: int, what: str) -> FloatingPointError:
        way_out = "Use a smaller learning rate, standardize=True, or check the module for a division or a logarithm."
        return FloatingPointError(f"{self.who(i)} has {what} that is not finite, so the step was not taken. {way_out}")

    def take(self, gradients: Tensors, buffers: Tensors) -> None:
        """Make the step."""
        for name, gradient in gradients.items():
            parameter = self.trained[name]
            if gradient.stride() != parameter.stride():  # fused optimisers walk through both in parallel
                gradient = torch_module().empty_like(parameter).copy_(gradient)
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch_module().no_grad():
            for name, buffer in buffers.items():
                self.buffers[name].copy_(buffer)
            if self.average is not None:
                self.steps += 1
                part = (self.averaging_power + 1.0) / (self.steps + self.averaging_power)
                for name, mean in self.average.items():
                    mean.lerp_(self.parameters[name], part)
        self.taught = True

    def keep_average(self, averaging_power: float) -> None:
        """Average the parameters from now on."""
        self.averaging_power, self.steps = averaging_power, 0
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}

    def averaged(self) -> Block:
        """A copy with the mean of the parameters, which is what they are before the first step."""
        assert self.average is not None
        twin = copy.copy(self)
        means = self.average if self.steps else self.parameters
        twin.parameters = {name: mean.detach().clone() for name, mean in means.items()}
        twin.buffers = self._copied_buffers()
        twin.is_average = True
        return twin

    def for_prediction(self) -> Block:
        """The same modules without their optimiser."""
        twin = copy.copy(self)
        twin.optimizer = None
        return twin

    def _call(self, i: int, tensors: Tensors | None, x: Tensor, who: str) -> Tensor:
        """What module i says as (n, m), with the tensors given in the place of its own; refuse what is no answer."""
        torch, module, version = torch_module(), self.modules[i], x._version
        said = module(x) if tensors is None else torch.func.functional_call(module, tensors, (x,))
        shape = (len(x), self.place.n_outputs)
        if not isinstance(said, torch.Tensor):
            raise ValueError(f"{who} said a {type(said).__name__}, expected a tensor of shape {shape}.")
        if tuple(said.shape) != shape and not (tuple(said.shape) == shape[:1] and shape[1] == 1):
            told = f"{who} said an array of shape {tuple(said.shape)} of {len(x)} rows, expected {shape}: one row for"
            raise ValueError(f"{told} each of X, one column for each output. Check the last layer.")
        if x._version != version:  # every write into a tensor raises it
            told = f"{who} wrote into the rows it was given, which are not its own."
            raise ValueError(f"{told} Use operations that are not in place: inplace=False, x = x * 2.")
        return said.reshape(shape)


class StackedModules(Block):
    """Modules that are alike, run as one: the first axis of every tensor is the learner."""

    def _take_tensors(self) -> None:
        try:
            self.parameters, self.buffers = torch_module().func.stack_module_state(self.modules)
        except RuntimeError as error:
            raise ValueError(f"the modules of factory are not alike ({error}). Use mode='list'.") from error
        del self.modules[1:]  # the pattern is enough

    def _run(self, x: Tensor, buffers: Tensors, *, train: bool) -> Tensor:
        torch, kind = torch_module(), type(self.modules[0]).__name__
        self.modules[0].train(train)
        try:
            run = torch.vmap(lambda tensors: self._call(0, tensors, x, f"the module ({kind})"))
            said = run({**self.parameters, **buffers})  # (k, n, m)
        except RuntimeError as error:
            told = f"the modules ({kind}) do not run as one on rows of shape {tuple(x.shape)}: {error}."
            way_out = "Check their first layer, or use mode='list', which takes any module."
            raise ValueError(f"{told} {way_out}") from error
        if any(not torch.equal(buffer, self.buffers[name]) for name, buffer in buffers.items()):
            told = f"the module ({kind}) changes its buffers while it runs, as batch normalisation does."
            raise TypeError(f"{told} Use mode='list'.")
        return said.movedim(0, 1)

    def _gradients_of(self, i: int, gradients: Tensors) -> list[Tensor]:
        return [gradient[i] for gradient in gradients.values()]


class ListedModules(Block):
    """Modules of any kind, run one after the other: the names of tensors start with the number of the module."""

    def _take_tensors(self) -> None:
        self.parameters = {f"{i}.{k}": p for i, module in enumerate(self.modules) for k, p in module.named_parameters()}
        self.buffers = {f"{i}.{k}": b for i, module in enumerate(self.modules) for k, b in module.named_buffers()}

    def _run(self, x: Tensor, buffers: Tensors, *, train: bool) -> Tensor:
        said = []
        others = {**self.parameters, **buffers} if self.is_average or buffers else None  # which takes longer
        for i, module in enumerate(self.modules):
            module.train(train)
            try:
                said.append(self._call(i, others and self._own(i, others), x, self.who(i)))
            except RuntimeError as error:
                told = f"{self.who(i)} does not run on rows of shape {tuple(x.shape)}: {error}."
                raise ValueError(f"{told} Check its first layer.") from error
        return torch_module().stack(said, dim=1)

    @staticmethod
    def _own(i: int, tensors: Tensors) -> Tensors:
        """The tensors of module i, by the names it gives them."""
        return {name.removeprefix(f"{i}."): value for name, value in tensors.items() if name.startswith(f"{i}.")}

    def _gradients_of(self, i: int, gradients: Tensors) -> list[Tensor]:
        return list(self._own(i, gradients).values())


def torch_module() -> Any:
    """PyTorch, or what to install."""
    return require("torch", extra="torch", by="TorchStack")


@contextmanager
def drawing_from(state: Tensor) -> Iterator[None]:
    """Draw PyTorch's random numbers from this state, and leave its own generator as it was."""
    torch = torch_module()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(state)
        yield
