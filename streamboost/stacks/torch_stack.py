"""N copies of anyone's PyTorch module, taught together: one backward pass and one optimiser for all of them.

Into a :class:`TorchStack` flow float64 rows; the modules see standardised float32 rows with 0 for a missing value,
and what they say comes back as float64. The modules lie in blocks: rectangles of learners and outputs that were made
at the same time, each with an optimiser of its own. Opening makes the first block, growing and adding outputs each
append one, so that what has learned stays as it is, state of the optimiser included.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.errors import refused
from streamboost.features.standardizer import Raw, Standardizer
from streamboost.stacks.base import Stack
from streamboost.stacks.torch_blocks import Block, ListedModules, Place, StackedModules, drawing_from, torch_module

TRIAL_ROWS = 3  # of the call that shows, before anything is learned, what a module makes of rows


class TorchStack(Stack):
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
    >>> from streamboost import Booster, bases, descents, losses  # doctest: +SKIP
    >>> def net(n_features, n_outputs):  # doctest: +SKIP
    ...     hidden = torch.nn.Linear(n_features, 16)
    ...     return torch.nn.Sequential(hidden, torch.nn.Tanh(), torch.nn.Linear(16, n_outputs))
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))  # doctest: +SKIP
    >>> y = np.sin(2 * X[:, 0])  # doctest: +SKIP
    >>> stack = TorchStack(net, n_learners=5)  # doctest: +SKIP
    >>> options = {"base": bases.Constant(0), "update_mode": 8}  # doctest: +SKIP
    >>> booster = Booster(losses.Squared(), descents.GradientDescent(0.5), stack, **options)  # doctest: +SKIP
    >>> before = booster.learn(X, y)  # doctest: +SKIP
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(1))  # doctest: +SKIP
    0.2
    """

    averages = True
    step_share = 0.5
    _blocks: list[Block]
    _is_average = False

    def __init__(
        self,
        factory: Callable[..., Any],
        n_learners: int = 10,
        *,
        optimizer: Callable[[list[Any]], Any] | None = None,
        mode: Literal["vmap", "list"] = "vmap",
        standardize: bool = True,
    ) -> None:
        super().__init__(n_learners)
        if mode not in ("vmap", "list"):
            raise refused("mode", mode, "'vmap' or 'list'. If unsure, take 'list': it runs any module.")
        if isinstance(factory, torch_module().nn.Module):
            told = f"factory is a module ({type(factory).__name__}), expected a function that returns a fresh one"
            raise TypeError(f"{told} at every call. Write lambda: ... around what makes it.")
        self.factory, self.takes_shapes = factory, _takes_shapes(factory)
        self.optimizer, self.mode, self.standardize = optimizer, mode, standardize

    def _open(self, seed: int) -> None:
        self._seed = seed
        self._dice = torch_module().Generator().manual_seed(seed).get_state()  # of modules that are random when taught
        self._averaging_power: float | None = None
        self._width = self.n_features
        self.inputs = Standardizer(self.n_features) if self.standardize else Raw(self.n_features)
        self._blocks = []
        self._append(slice(0, self.n_learners), slice(0, self.n_outputs))

    def _append(self, learners: slice, outputs: slice) -> None:
        """Make a block of fresh modules, each with a seed of its own, and try them."""
        place = Place(learners, outputs, self.n_features if self.takes_shapes else self._width)
        shapes = (place.n_features, place.n_outputs) if self.takes_shapes else ()
        modules = []
        for i in range(place.n_learners):
            seed = np.random.SeedSequence((self._seed, len(self._blocks), i)).generate_state(1)[0]
            with drawing_from(torch_module().Generator().manual_seed(int(seed)).get_state()):
                module = self.factory(*shapes)
            if not isinstance(module, torch_module().nn.Module):
                who = f"learner {learners.start + i}"
                raise TypeError(f"factory returned {module!r} for {who}, expected a torch.nn.Module.")
            modules.append(module)
        if len({id(module) for module in modules}) < len(modules):
            raise ValueError("factory returned the same module twice, expected a fresh one at every call.")
        block = (StackedModules if self.mode == "vmap" else ListedModules)(place, modules, self.optimizer)
        with drawing_from(self._dice):
            block.say(np.zeros((TRIAL_ROWS, place.n_features), np.float32))
        if self._averaging_power is not None:
            block.keep_average(self._averaging_power)
        self._blocks.append(block)

    def _seen(self, X: FloatArray) -> NDArray[np.float32]:
        """The rows as modules see them, without the column of ones: modules have biases of their own."""
        return self.inputs.transform(X)[:, :-1].astype(np.float32)

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m): 0 before its first row."""
        said = np.zeros((len(X), self.n_learners, self.n_outputs))
        if not len(X):
            return said
        Z = self._seen(X)
        with drawing_from(self._dice):
            for block in self._blocks:
                if block.taught:
                    answers = block.say(Z[:, : block.place.n_features])
                    if not np.isfinite(answers).all():
                        row, i, output = np.argwhere(~np.isfinite(answers))[0]
                        told = f"{block.who(i)} said {answers[row, i, output]} of row {row}, expected a finite number."
                        way_out = "It may have diverged: use a smaller learning rate, or standardize=True."
                        raise FloatingPointError(f"{told} {way_out}")
                    said[:, block.place.learners, block.place.outputs] = answers
        return said

    def for_prediction(self) -> TorchStack:
        """Leave out the optimisers, and what they remember of gradients."""
        twin = copy.copy(self)
        twin._blocks = [block.for_prediction() for block in self._blocks]
        return twin

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step of the optimisers for each row, in order; a weight multiplies the gradient of its row.

        Each row is standardised by the rows before it, as when it was predicted, so that it does not matter how a
        stream is cut into chunks.
        """
        for t in np.flatnonzero(weight > 0):
            row = slice(t, t + 1)
            self._step(X[row], targets[row], weight[row], weight[row])

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One step of the optimisers on the weighted mean of the rows' gradients."""
        kept = weight > 0
        if kept.any():
            self._step(X[kept], targets[kept], weight[kept], weight[kept] / weight[kept].sum())

    def _step(self, X: FloatArray, targets: FloatArray, weight: FloatArray, share: FloatArray) -> None:
        """One step on the sum over the rows, each times its share; if it is not finite, nothing changes."""
        if self._is_average:
            raise TypeError("these learners are the averages of others: they can be asked, not taught. Teach those.")
        torch = torch_module()
        arrays = (self._seen(X), targets.astype(np.float32), share.astype(np.float32))
        x, goal, factor = map(torch.from_numpy, arrays)
        works = []
        with drawing_from(self._dice), torch.enable_grad():
            for block in self._blocks:
                place = block.place
                works.append(block.work_out(x[:, : place.n_features], goal[:, place.learners, place.outputs], factor))
            dice = torch.default_generator.get_state()
        self._dice = dice
        for block, work in zip(self._blocks, works, strict=True):
            block.take(*work)
        self.inputs.learn(X, weight)

    def grow(self, k: int) -> None:
        """Append k learners that say 0 until they learn."""
        self._append(slice(self.n_learners, self.n_learners + k), slice(0, self.n_outputs))
        self.n_learners += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns: modules see those they were made with, so these are for modules made later."""
        self.inputs.add_features(k)
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Append k outputs, for which every learner gets one module more."""
        if not self.takes_shapes:
            told = f"{k} outputs cannot be added: factory() takes no shapes."
            raise TypeError(f"{told} Write factory(n_features, n_outputs).")
        self._append(slice(0, self.n_learners), slice(self.n_outputs, self.n_outputs + k))
        self.n_outputs += k

    def keep_average(self, averaging_power: float) -> None:
        """Keep the mean of the parameters over the steps from now on."""
        self._averaging_power = averaging_power
        for block in self._blocks:
            block.keep_average(averaging_power)

    def averaged(self) -> TorchStack:
        """The same learners with the mean of their parameters: to be asked, not to be taught."""
        if self._averaging_power is None:
            raise TypeError("no average has been kept: call keep_average before the rows to be averaged over.")
        twin = copy.copy(self)
        twin._is_average = True
        twin.inputs = copy.deepcopy(self.inputs)
        twin._blocks = [block.averaged() for block in self._blocks]
        return twin


def _takes_shapes(factory: Callable[..., Any]) -> bool:
    """Whether it is to be called with (n_features, n_outputs), or with nothing; refuse any other."""
    if not callable(factory):
        raise refused("factory", factory, "a function that returns a fresh module at every call.", TypeError)
    try:
        signature = inspect.signature(factory)
    except ValueError:  # of something compiled
        return True
    for n_arguments in (0, 2):
        try:
            signature.bind(*range(n_arguments))
        except TypeError:
            continue
        return n_arguments == 2
    told = f"factory takes {signature}, expected no argument or (n_features, n_outputs)."
    raise TypeError(f"{told} Write a lambda around it.")
