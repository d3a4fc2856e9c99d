"""N copies of anyone's PyTorch module, taught together: one backward pass and one optimiser for all of them.

The parameters of learner i occur in the loss of learner i alone, so the gradient of the sum of the N losses holds all
N gradients, and an optimiser that works element by element (SGD, Adam, AdaGrad, RMSProp …) on all parameters does
what N of them would do.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from streamboost.errors import require
from streamboost.stacks.modules import (
    TRIAL_ROWS,
    Block,
    Fault,
    Float32Array,
    ModuleStack,
    Place,
    check_said,
    takes_shapes,
)

Tensor: TypeAlias = Any  # PyTorch is not there when this is read
Module: TypeAlias = Any
Tensors: TypeAlias = Mapping[str, Tensor]

RATE = 3e-3  # of Adam, unless another optimiser is given


class TorchStack(ModuleStack):
    """N PyTorch modules as weak learners.

    Learner i takes one step on ½|target − h|², summed over outputs: for each row, or on the weighted mean over a
    batch of rows. Modules live on the CPU; they are asked in ``eval`` mode and taught in ``train`` mode. Columns that
    come up later are seen by modules made later; outputs that come up later get modules of their own, if ``factory``
    takes shapes. A model with such learners is pickled, not saved: a snapshot holds no code.

    Parameters
    ----------
    factory : callable
        ``factory()`` or ``factory(n_features, n_outputs)``, which must return a fresh ``torch.nn.Module`` at every
        call, from float32 rows (n, d) to (n, m), or (n,) for a single output.
    n_learners : int
    optimizer : callable, optional
        ``optimizer(parameters)`` returns a ``torch.optim.Optimizer``. Left out: Adam with a learning rate of 0.003.
        With ``mode="vmap"`` it sees the parameters of all learners stacked, so it should work element by element;
        in both modes a norm taken over all parameters would mix the learners.
    mode : {"vmap", "list"}
        ``"vmap"`` runs all modules as one; they must be alike, without randomness and without state that changes
        while they are taught. ``"list"`` runs one after the other and takes any modules: of different architectures,
        with dropout, or with batch normalisation (which learns batches, not single rows).
    standardize : bool
        Bring the inputs to running mean 0 and standard deviation 1 first.

    Examples
    --------
    >>> import numpy as np  # doctest: +SKIP
    >>> import torch  # doctest: +SKIP
    >>> from streamboost import Booster  # doctest: +SKIP
    >>> from streamboost.bases import Constant  # doctest: +SKIP
    >>> from streamboost.descents import GradientDescent  # doctest: +SKIP
    >>> from streamboost.losses import Squared  # doctest: +SKIP
    >>> def net(n_features, n_outputs):  # doctest: +SKIP
    ...     hidden = torch.nn.Linear(n_features, 16)
    ...     return torch.nn.Sequential(hidden, torch.nn.Tanh(), torch.nn.Linear(16, n_outputs))
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))  # doctest: +SKIP
    >>> y = np.sin(2 * X[:, 0])  # doctest: +SKIP
    >>> stack = TorchStack(net, n_learners=5)  # doctest: +SKIP
    >>> booster = Booster(Squared(), GradientDescent(0.5), stack, base=Constant(0), semantics=8)  # doctest: +SKIP
    >>> before = booster.learn(X, y)  # doctest: +SKIP
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(1))  # doctest: +SKIP
    0.2
    """

    def __init__(
        self,
        factory: Callable[..., Module],
        n_learners: int = 10,
        *,
        optimizer: Callable[[list[Tensor]], Any] | None = None,
        mode: Literal["vmap", "list"] = "vmap",
        standardize: bool = True,
    ) -> None:
        super().__init__(n_learners, standardize)
        if mode not in ("vmap", "list"):
            raise ValueError(
                f"mode is {mode!r}, expected 'vmap' or 'list'. If unsure, take 'list': it runs any module."
            )
        if isinstance(factory, _torch().nn.Module):
            raise TypeError(
                f"factory is a module ({type(factory).__name__}), expected a function that returns a fresh one at "
                "every call. Write lambda: ... around what makes it."
            )
        self.factory = factory
        self.takes_shapes = takes_shapes("factory", factory)
        self.optimizer = optimizer
        self.mode = mode

    @property
    def fixed_width(self) -> str:
        """Why there is no room for more outputs, if there is none."""
        return "" if self.takes_shapes else "factory() takes no shapes. Write factory(n_features, n_outputs)."

    def _open(self, seed: int) -> None:
        torch = _torch()
        self._dice = torch.Generator().manual_seed(seed).get_state()  # of modules that are random when taught
        super()._open(seed)

    def _block(self, place: Place, seeds: Sequence[int]) -> TorchBlock:
        shapes = (place.n_features, place.n_outputs) if self.takes_shapes else ()
        modules = []
        for i, seed in enumerate(seeds):
            with _dice(_torch().Generator().manual_seed(seed).get_state()):
                modules.append(_checked_module(self.factory(*shapes), f"learner {place.learners.start + i}"))
        if len({id(module) for module in modules}) < len(modules):
            raise ValueError("factory returned the same module twice, expected a fresh one at every call.")
        self.kind = type(modules[0]).__name__
        kind = StackedModules if self.mode == "vmap" else ListedModules
        block = TorchBlock(place, kind(modules, place), self.optimizer or adam)
        with _dice(self._dice):
            block.modules.rehearse()
        return block

    def predict(self, X: Any) -> Any:
        """What each learner says, (n, N, m): 0 before its first row."""
        with _dice(self._dice):
            return super().predict(X)

    def _rows(self, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        return self._batch(Z, targets, weight)  # it is one row: see rows_at_once

    def _batch(self, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        torch = _torch()
        x, goal, factor = (torch.from_numpy(array) for array in (Z, targets, weight))
        works = []
        with _dice(self._dice), torch.enable_grad():
            for block in self._blocks:
                place = block.place
                work = block.work_out(x[:, : place.n_features], goal[:, place.learners, place.outputs], factor)
                if isinstance(work, Fault):
                    return work
                works.append(work)
            dice = torch.default_generator.get_state()
        self._dice = dice
        for block, work in zip(self._blocks, works, strict=True):
            block.take(work)
        return None


class Work(NamedTuple):
    """What a step is made of, worked out before anything changes."""

    gradients: Sequence[Tensor | None]
    buffers: Tensors


class TorchBlock(Block):
    """Modules with one optimiser for all their parameters, and the average of these if one is kept."""

    average: dict[str, Tensor] | None = None

    def __init__(self, place: Place, modules: Modules, optimizer: Callable[[list[Tensor]], Any]) -> None:
        super().__init__(place)
        self.modules = modules
        self.trained = [parameter for parameter in modules.parameters.values() if parameter.requires_grad]
        if not self.trained:
            raise ValueError("factory made a module without parameters to learn. Give it some that require gradients.")
        self.optimizer = optimizer(self.trained)
        if not hasattr(self.optimizer, "step"):
            raise TypeError(
                f"optimizer(parameters) returned {self.optimizer!r}, expected a torch.optim.Optimizer. "
                "Write lambda parameters: torch.optim.Adam(parameters, lr=0.003)."
            )

    def say(self, Z: Float32Array) -> Float32Array:
        """What the modules say, (n, k, m), in ``eval`` mode."""
        with _torch().no_grad():
            said: Float32Array = self.modules.say(_torch().from_numpy(Z), train=False)[0].numpy()
        return said

    def work_out(self, x: Tensor, target: Tensor, weight: Tensor) -> Work | Fault:
        """The gradients of the sum of all losses, or who is to blame that there are none."""
        torch = _torch()
        said, buffers = self.modules.say(x, train=True)
        losses = 0.5 * (weight[:, None, None] * (target - said) ** 2).sum(dim=(0, 2))  # (k,)
        if not bool(torch.isfinite(losses).all()):
            learner = int(torch.isfinite(losses).logical_not().nonzero()[0])
            return Fault(self.place.learners.start + learner, "has a loss")
        gradients = torch.autograd.grad(losses.sum(), self.trained, allow_unused=True)
        known = [gradient for gradient in gradients if gradient is not None]
        if not bool(torch.isfinite(torch.nn.utils.get_total_norm(known))):  # one number is soon looked at
            guilty = self.modules.blame(dict(zip(map(id, self.trained), gradients, strict=True)))
            if guilty is not None:
                return Fault(self.place.learners.start + guilty, "has a gradient")
        return Work(gradients, buffers)

    def take(self, work: Work) -> None:
        """Make the step."""
        torch = _torch()
        for parameter, gradient in zip(self.trained, work.gradients, strict=True):
            parameter.grad = _laid_out_like(parameter, gradient)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in work.buffers.items():
                self.modules.buffers[name].copy_(buffer)
            if self.average is not None:
                share = self.share()
                for name, mean in self.average.items():
                    mean.lerp_(self.modules.parameters[name], share)
        self.taught = True

    def keep_average(self, bend: float) -> None:
        """Average the parameters from now on."""
        self.bend, self.steps = bend, 0
        self.average = {name: p.detach().clone() for name, p in self.modules.parameters.items()}

    def averaged(self) -> TorchBlock:
        """A copy with the mean of the parameters, which is what they are before the first step."""
        twin = copy.copy(self)
        assert self.average is not None
        means = self.average if self.steps else self.modules.parameters
        twin.modules = self.modules.with_tensors(
            {name: mean.detach().clone() for name, mean in means.items()},
            {name: buffer.clone() for name, buffer in self.modules.buffers.items()},
        )
        return twin


class Modules(ABC):
    """The modules of a block and their tensors by name."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def run(self, x: Tensor, buffers: Tensors, *, train: bool) -> Tensor:
        """What the modules say, (n, k, m), writing into the buffers given."""

    @abstractmethod
    def blame(self, gradients: Mapping[int, Tensor | None]) -> int | None:
        """The first learner with a gradient, by the id of its parameter, that is not finite; None if there is none."""

    def say(self, x: Tensor, *, train: bool) -> tuple[Tensor, Tensors]:
        """What the modules say, (n, k, m), and what their buffers would be after it; nothing changes."""
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        return self.run(x, buffers, train=train), buffers

    def with_tensors(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Modules:
        """The same modules with other numbers, to be asked."""
        twin = copy.copy(self)
        twin.parameters, twin.buffers = parameters, buffers
        return twin

    def rehearse(self) -> None:
        """Ask about a few rows of zeros, to hear of a bad module before anything is learned."""
        torch = _torch()
        with torch.no_grad():
            self.say(torch.zeros(TRIAL_ROWS, self.place.n_features), train=False)


class StackedModules(Modules):
    """Modules that are alike, run as one."""

    def __init__(self, modules: Sequence[Module], place: Place) -> None:
        super().__init__(place)
        try:
            self.parameters, self.buffers = _torch().func.stack_module_state(list(modules))
        except RuntimeError as error:
            raise ValueError(f"the modules of factory are not alike ({error}). Use mode='list'.") from error
        self.pattern = modules[0]

    def run(self, x: Tensor, buffers: Tensors, *, train: bool) -> Tensor:
        """What the modules say, (n, k, m)."""
        torch = _torch()
        self.pattern.train(train)
        kind = type(self.pattern).__name__

        def one(parameters: Tensors, buffers: Tensors) -> Tensor:
            said = torch.func.functional_call(self.pattern, ({**parameters}, {**buffers}), (x,))
            return _column(said, x, self.place.n_outputs, f"the module ({kind})")

        version = x._version
        try:
            said = torch.vmap(one)(self.parameters, dict(buffers))  # (k, n, m)
        except RuntimeError as error:
            raise ValueError(
                f"the modules ({kind}) do not run as one on rows of shape {tuple(x.shape)}: {error}. Check their first "
                "layer, or use mode='list', which takes any module."
            ) from error
        _refuse_writing(x, version, f"the module ({kind})")
        if any(not torch.equal(buffer, self.buffers[name]) for name, buffer in buffers.items()):
            raise TypeError(
                f"the module ({kind}) changes its buffers while it runs, as batch normalisation does. Use mode='list'."
            )
        return said.movedim(0, 1)

    def blame(self, gradients: Mapping[int, Tensor | None]) -> int | None:
        """The first learner with a gradient that is not finite."""
        torch = _torch()
        bad = torch.zeros(self.place.n_learners, dtype=torch.bool)
        for gradient in gradients.values():
            if gradient is not None:
                bad |= ~torch.isfinite(gradient).flatten(1).all(dim=1)
        return int(bad.nonzero()[0]) if bool(bad.any()) else None


class ListedModules(Modules):
    """Modules of any kind, run one after the other."""

    is_own = True  # whether the parameters are those inside the modules

    def __init__(self, modules: Sequence[Module], place: Place) -> None:
        super().__init__(place)
        self.modules = list(modules)
        self.parameters = {f"{i}.{name}": p for i, m in enumerate(modules) for name, p in m.named_parameters()}
        self.buffers = {f"{i}.{name}": b for i, m in enumerate(modules) for name, b in m.named_buffers()}

    def with_tensors(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Modules:
        """The same modules with other numbers, to be asked."""
        twin = super().with_tensors(parameters, buffers)
        twin.is_own = False  # type: ignore[attr-defined]
        return twin

    def run(self, x: Tensor, buffers: Tensors, *, train: bool) -> Tensor:
        """What the modules say, (n, k, m)."""
        torch = _torch()
        said = []
        for i, module in enumerate(self.modules):
            who = f"learner {self.place.learners.start + i} ({type(module).__name__})"
            module.train(train)
            version = x._version
            try:
                answer = self._call(i, x, buffers)
            except RuntimeError as error:
                raise ValueError(
                    f"{who} does not run on rows of shape {tuple(x.shape)}: {error}. Check its first layer."
                ) from error
            _refuse_writing(x, version, who)
            said.append(_column(answer, x, self.place.n_outputs, who))
        return torch.stack(said, dim=1)

    def _call(self, i: int, x: Tensor, buffers: Tensors) -> Tensor:
        """Run a module on its own parameters and the buffers given."""
        module = self.modules[i]
        if self.is_own and not buffers:
            return module(x)
        names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
        tensors = {**self.parameters, **buffers}
        return _torch().func.functional_call(module, {name: tensors[f"{i}.{name}"] for name in names}, (x,))

    def blame(self, gradients: Mapping[int, Tensor | None]) -> int | None:
        """The first learner with a gradient that is not finite."""
        torch = _torch()
        for i, module in enumerate(self.modules):
            own = (gradients.get(id(parameter)) for parameter in module.parameters())
            if any(gradient is not None and not bool(torch.isfinite(gradient).all()) for gradient in own):
                return i
        return None


def adam(parameters: list[Tensor]) -> Any:
    """Adam with the default learning rate, in one pass over all parameters."""
    return _torch().optim.Adam(parameters, lr=RATE, fused=True)


def _torch() -> Any:
    return require("torch", extra="torch", by="TorchStack")


def _laid_out_like(parameter: Tensor, gradient: Tensor | None) -> Tensor | None:
    """The gradient in the memory layout of its parameter: fused optimisers walk through both in parallel."""
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return _torch().empty_like(parameter).copy_(gradient)


@contextmanager
def _dice(state: Tensor) -> Iterator[None]:
    """Draw PyTorch's random numbers from this state, and leave its own generator as it was."""
    torch = _torch()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(state)
        yield


def _checked_module(module: object, who: str) -> Module:
    if not isinstance(module, _torch().nn.Module):
        raise TypeError(f"factory returned {module!r} for {who}, expected a torch.nn.Module.")
    return module


def _column(said: object, x: Tensor, n_outputs: int, who: str) -> Tensor:
    """The answer as (n, m), or who said what instead."""
    if not isinstance(said, _torch().Tensor):
        raise ValueError(f"{who} said a {type(said).__name__}, expected a tensor of shape {(len(x), n_outputs)}.")
    answer: Tensor = said
    check_said(tuple(answer.shape), len(x), n_outputs, who)
    return answer.reshape(len(x), n_outputs)


def _refuse_writing(x: Tensor, version: int, who: str) -> None:
    """Every write into a tensor raises its version."""
    if x._version != version:
        raise ValueError(
            f"{who} wrote into the rows it was given, which are not its own. Use operations that are not in place: "
            "inplace=False, x = x * 2."
        )
