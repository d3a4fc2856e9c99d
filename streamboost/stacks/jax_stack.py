"""N copies of anyone's JAX model, mapped over the learners and compiled: raw functions, Equinox or Flax.

Each learner has its own parameters and its own optimiser state, so any optimiser of Optax does what it would do for
one model alone, norms and clipping included. Rows that follow one another are learned in one compiled loop.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streamboost.errors import require
from streamboost.stacks.modules import TRIAL_ROWS, Block, Fault, Float32Array, ModuleStack, Place, check_said

Array: TypeAlias = Any  # JAX is not there when this is read
Tree: TypeAlias = Any
Init: TypeAlias = Callable[[Array, int, int], Tree]
Apply: TypeAlias = Callable[[Tree, Array], Array]

RATE = 3e-3  # of Adam, unless another optimiser is given
LOOPS = (1, 16, 256)  # rows in a compiled loop: fewer are padded with rows that are skipped
LARGEST = 4096  # rows in a compiled call
FAULTS = ("", "has a loss", "has a gradient")


class JaxStack(ModuleStack):
    """N JAX models as weak learners.

    Learner i takes one step on ½|target − h|², summed over outputs: for each row, or on the weighted mean over a
    batch of rows. Rows are padded to a few fixed numbers, so that little is compiled: ``apply`` must answer each row
    by itself. Columns that come up later are seen by models made later; outputs that come up later get models of
    their own. A model with such learners is pickled, not saved: a snapshot holds no code.

    Parameters
    ----------
    init : callable
        ``init(key, n_features, n_outputs) -> parameters``, any tree of float arrays.
    apply : callable
        ``apply(parameters, x)``, from float32 rows (n, d) to (n, m), or (n,) for a single output.
    n_learners : int
    optimizer : optax.GradientTransformation or callable, optional
        Or a function without arguments that returns one, which is easier to pickle. Left out: Adam with a learning
        rate of 0.003.
    standardize : bool
        Bring the inputs to running mean 0 and standard deviation 1 first.

    Examples
    --------
    >>> import jax  # doctest: +SKIP
    >>> import numpy as np  # doctest: +SKIP
    >>> from streamboost import Booster  # doctest: +SKIP
    >>> from streamboost.bases import Constant  # doctest: +SKIP
    >>> from streamboost.descents import GradientDescent  # doctest: +SKIP
    >>> from streamboost.losses import Squared  # doctest: +SKIP
    >>> def init(key, n_features, n_outputs):  # doctest: +SKIP
    ...     first, second = jax.random.split(key)
    ...     inner = jax.random.normal(first, (n_features, 16))
    ...     return {"inner": inner, "outer": 0.1 * jax.random.normal(second, (16, n_outputs))}
    >>> def apply(parameters, x):  # doctest: +SKIP
    ...     return jax.numpy.tanh(x @ parameters["inner"]) @ parameters["outer"]
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))  # doctest: +SKIP
    >>> y = np.sin(2 * X[:, 0])  # doctest: +SKIP
    >>> stack = JaxStack(init, apply, n_learners=5)  # doctest: +SKIP
    >>> booster = Booster(Squared(), GradientDescent(0.5), stack, base=Constant(0), semantics=2)  # doctest: +SKIP
    >>> before = booster.learn(X, y)  # doctest: +SKIP
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(1))  # doctest: +SKIP
    0.2
    """

    rows_at_once = LOOPS[-1]

    def __init__(
        self,
        init: Init,
        apply: Apply,
        n_learners: int = 10,
        *,
        optimizer: Any = None,
        standardize: bool = True,
    ) -> None:
        super().__init__(n_learners, standardize)
        _jax()
        require("optax", extra="jax", by="JaxStack")
        for name, function in (("init", init), ("apply", apply)):
            if not callable(function):
                raise TypeError(f"{name} is {function!r}, expected a function. See the example of JaxStack.")
        self.recipe = Recipe(init, apply, optimizer)

    @classmethod
    def equinox(
        cls,
        make: Callable[[Array, int, int], Any],
        n_learners: int = 10,
        *,
        optimizer: Any = None,
        standardize: bool = True,
    ) -> JaxStack:
        """N Equinox modules.

        Parameters
        ----------
        make : callable
            ``make(key, n_features, n_outputs)`` returns an ``equinox.Module`` that takes a single row (d,) to (m,),
            or to a scalar for a single output. Its float arrays are learned; the rest is the same for all learners.
        n_learners, optimizer, standardize
            As for the class.
        """
        require("equinox", extra="jax", by="JaxStack.equinox")
        parts = EquinoxParts(make)
        return cls(parts.init, parts, n_learners, optimizer=optimizer, standardize=standardize)

    @classmethod
    def flax(cls, module: Any, n_learners: int = 10, *, optimizer: Any = None, standardize: bool = True) -> JaxStack:
        """N Flax (linen) modules.

        Parameters
        ----------
        module : flax.linen.Module or callable
            The module, with as many outputs as there are; or ``module(n_features, n_outputs)`` that returns one,
            so that outputs can be added. It may have parameters but no other variables, as batch statistics are.
        n_learners, optimizer, standardize
            As for the class.
        """
        require("flax", extra="jax", by="JaxStack.flax")
        parts = FlaxParts(module)
        return cls(parts.init, parts, n_learners, optimizer=optimizer, standardize=standardize)

    @property
    def fixed_width(self) -> str:
        """Why there is no room for more outputs, if there is none."""
        apply = self.recipe.apply
        return apply.fixed_width if isinstance(apply, Parts) else ""

    def _block(self, place: Place, seeds: Sequence[int]) -> JaxBlock:
        return JaxBlock(place, self.recipe, seeds)

    def _rows(self, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        size = next(size for size in LOOPS if len(Z) <= size)
        first = self._try("loop", _pad(Z, size), _pad(targets, size), _pad(weight, size, with_zeros=True))
        if first is not None and first.row:  # all that was computed since is forgotten
            rows = slice(0, first.row)
            self._rows(Z[rows], targets[rows], weight[rows])
        return first

    def _batch(self, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        size = _power_of_two(len(Z))
        return self._try("step", _pad(Z, size), _pad(targets, size), _pad(weight, size, with_zeros=True))

    def _try(self, program: str, Z: Float32Array, targets: Float32Array, weight: Float32Array) -> Fault | None:
        """Compute the next state of every block, and take it if all is well; otherwise name the first fault."""
        states, faults = [], []
        for block in self._blocks:
            learners, outputs, n_features = block.place
            run = getattr(block.programs, program)
            state, marks = run(block.state, Z[:, :n_features], targets[:, learners, outputs], weight)
            states.append(state)
            marks = np.atleast_2d(marks)  # rows, learners
            for t, i in np.argwhere(marks)[:1].tolist():
                faults.append(Fault(learners.start + i, FAULTS[marks[t, i]], t))
        if faults:
            return min(faults, key=lambda fault: fault.row)
        for block, state in zip(self._blocks, states, strict=True):
            block.state, block.taught = state, True
        return None


class State(NamedTuple):
    """What a block is at a moment: trees of arrays whose first axis is the learner."""

    parameters: Tree
    optimizer: Tree
    average: Tree  # None if none is kept
    steps: Array  # that are in the average
    bend: Array


class JaxBlock(Block):
    """Models with the same shapes, mapped over the learners."""

    def __init__(self, place: Place, recipe: Recipe, seeds: Sequence[int]) -> None:
        super().__init__(place)
        jax = _jax()
        self.recipe = recipe
        trees = [recipe.init(jax.random.key(seed), place.n_features, place.n_outputs) for seed in seeds]
        parameters = _stacked(trees)
        self._rehearse(trees[0])
        zero = jax.numpy.zeros((), np.float32)
        self.state = State(parameters, jax.vmap(recipe.optax.init)(parameters), None, zero, zero)

    @property
    def programs(self) -> Programs:
        """What is compiled for these shapes."""
        return self.recipe.programs(self.place.n_features, self.place.n_outputs)

    def _rehearse(self, tree: Tree) -> None:
        """Trace the model on a few rows, to hear of a bad one before anything is learned."""
        jax = _jax()
        shape = (TRIAL_ROWS, self.place.n_features)
        apply = self.recipe.apply_for(self.place.n_features, self.place.n_outputs)
        try:
            said = jax.eval_shape(apply, tree, jax.ShapeDtypeStruct(shape, np.float32))
        except Exception as error:  # a model fails in as many ways as there are models
            raise ValueError(f"the model does not run on rows of shape {shape}: {error}") from error
        if not hasattr(said, "shape"):
            raise ValueError(f"the model said a {type(said).__name__}, expected one array of shape (n, m).")
        check_said(tuple(said.shape), TRIAL_ROWS, self.place.n_outputs, "the model")

    def say(self, Z: Float32Array) -> Float32Array:
        """What the models say, (n, k, m)."""
        parts = []
        for start in range(0, len(Z), LARGEST):
            part = Z[start : start + LARGEST]
            said = self.programs.say(self.state.parameters, _pad(part, _power_of_two(len(part))))
            parts.append(np.asarray(said)[:, : len(part)])
        return np.concatenate(parts, axis=1).swapaxes(0, 1)

    def keep_average(self, bend: float) -> None:
        """Average the parameters from now on."""
        zero = np.float32(0)
        self.state = self.state._replace(average=self.state.parameters, steps=zero, bend=np.float32(bend))

    def averaged(self) -> JaxBlock:
        """A copy with the mean of the parameters, which is what they are before the first step."""
        twin = copy.copy(self)
        twin.state = self.state._replace(parameters=self.state.average)
        return twin


class Programs(NamedTuple):
    """What is compiled for a model of given shapes."""

    say: Callable[[Tree, Float32Array], Array]
    step: Callable[[State, Float32Array, Float32Array, Float32Array], tuple[State, Array]]
    loop: Callable[[State, Float32Array, Float32Array, Float32Array], tuple[State, Array]]


class Recipe:
    """How models are made, asked and taught; shared by all copies of a stack, with all that is compiled."""

    def __init__(self, init: Init, apply: Apply | Parts, optimizer: Any) -> None:
        self.init = init
        self.apply = apply
        self.optimizer = optimizer
        self._compiled: dict[tuple[int, int], Programs] = {}

    @property
    def optax(self) -> Any:
        """The optimiser."""
        optax = require("optax", extra="jax", by="JaxStack")
        if self.optimizer is None:
            return optax.adam(RATE)
        made = self.optimizer
        if callable(made) and not hasattr(made, "update"):
            made = made()
        if not (hasattr(made, "init") and hasattr(made, "update")):
            raise TypeError(f"optimizer is {made!r}, expected one of Optax. Write optimizer=optax.adam(0.003).")
        return made

    def apply_for(self, n_features: int, n_outputs: int) -> Apply:
        """The function to be applied."""
        return self.apply.at(n_features, n_outputs) if isinstance(self.apply, Parts) else self.apply

    def programs(self, n_features: int, n_outputs: int) -> Programs:
        """What is compiled for these shapes: the same for all copies of a stack."""
        key = n_features, n_outputs
        if key not in self._compiled:
            self._compiled[key] = compile_programs(self.apply_for(*key), self.optax)
        return self._compiled[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        return self  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_compiled": {}}


def compile_programs(apply: Apply, optimizer: Any) -> Programs:
    """Compile what a model says, a step on rows that share it, and a loop of one step per row."""
    jax = _jax()
    optax = require("optax", extra="jax", by="JaxStack")
    jnp, tree = jax.numpy, jax.tree

    def say(parameters: Tree, x: Array) -> Array:
        said = apply(parameters, x)
        return said[:, None] if said.ndim == 1 else said  # (n, m)

    def step_of_one(parameters: Tree, state: Tree, x: Array, target: Array, weight: Array) -> tuple[Tree, Tree, Array]:
        def loss(parameters: Tree) -> Array:
            return 0.5 * jnp.sum(weight[:, None] * (target - say(parameters, x)) ** 2)

        value, gradient = jax.value_and_grad(loss)(parameters)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in tree.leaves(gradient)]).all()
        fault = jnp.where(jnp.isfinite(value), jnp.where(finite, 0, 2), 1)  # which of FAULTS
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state, fault

    def step(state: State, x: Array, target: Array, weight: Array) -> tuple[State, Array]:
        each = jax.vmap(step_of_one, in_axes=(0, 0, None, 1, None))
        parameters, inner, faults = each(state.parameters, state.optimizer, x, target, weight)
        state = state._replace(parameters=parameters, optimizer=inner)
        if state.average is not None:
            share = (state.bend + 1) / (state.steps + 1 + state.bend)
            mean = tree.map(lambda a, p: a + (p - a) * share.astype(p.dtype), state.average, parameters)
            state = state._replace(average=mean, steps=state.steps + 1)
        return state, faults

    def loop(state: State, x: Array, target: Array, weight: Array) -> tuple[State, Array]:
        def row(state: State, parts: tuple[Array, Array, Array]) -> tuple[State, Array]:
            x, target, weight = (part[None] for part in parts)
            nothing = jnp.zeros(target.shape[1], int)
            after: tuple[State, Array] = jax.lax.cond(
                weight[0] > 0, lambda: step(state, x, target, weight), lambda: (state, nothing)
            )
            return after

        end: tuple[State, Array] = jax.lax.scan(row, state, (x, target, weight))
        return end

    return Programs(jax.jit(jax.vmap(say, in_axes=(0, None))), jax.jit(step), jax.jit(loop))


# Modules of others, as parameters and a function.


class Parts:
    """A library's modules: how to make the parameters of one, and how to apply them."""

    fixed_width = ""

    def __call__(self, parameters: Tree, x: Array) -> Array:
        """Parts stand where a function is expected, but which function depends on the shapes."""
        raise TypeError("the function depends on the shapes: ask at(n_features, n_outputs).")

    def init(self, key: Array, n_features: int, n_outputs: int) -> Tree:
        """The parameters of a fresh module."""
        raise NotImplementedError

    def at(self, n_features: int, n_outputs: int) -> Apply:
        """The function to be applied to parameters of these shapes."""
        raise NotImplementedError


class EquinoxParts(Parts):
    """The float arrays of an Equinox module, and the rest of it."""

    def __init__(self, make: Callable[[Array, int, int], Any]) -> None:
        if not callable(make):
            raise TypeError(f"make is {make!r}, expected a function make(key, n_features, n_outputs).")
        self.make = make

    def init(self, key: Array, n_features: int, n_outputs: int) -> Tree:
        """The float arrays of a fresh module."""
        eqx = require("equinox", extra="jax", by="JaxStack.equinox")
        return eqx.filter(self.make(key, n_features, n_outputs), eqx.is_inexact_array)

    def at(self, n_features: int, n_outputs: int) -> Apply:
        """The rest of a module, with room for the float arrays, mapped over rows."""
        eqx = require("equinox", extra="jax", by="JaxStack.equinox")
        rest = eqx.filter(self.make(_jax().random.key(0), n_features, n_outputs), eqx.is_inexact_array, inverse=True)
        return lambda parameters, x: _jax().vmap(eqx.combine(parameters, rest))(x)


class FlaxParts(Parts):
    """The variables of a Flax module, and its method apply."""

    def __init__(self, module: Any) -> None:
        self.module = module
        linen = require("flax.linen", extra="jax", by="JaxStack.flax")
        if isinstance(module, linen.Module):
            self.fixed_width = (
                f"the Flax module ({type(module).__name__}) has as many as it was written for. "
                "Give a function of (n_features, n_outputs) that returns a module."
            )
        elif not callable(module):
            raise TypeError(f"module is {module!r}, expected a flax.linen.Module, or a function that returns one.")

    def _made(self, n_features: int, n_outputs: int) -> Any:
        return self.module if self.fixed_width else self.module(n_features, n_outputs)

    def init(self, key: Array, n_features: int, n_outputs: int) -> Tree:
        """The parameters of a fresh module."""
        made = self._made(n_features, n_outputs)
        variables = made.init(key, np.zeros((1, n_features), np.float32))
        if others := sorted(set(variables) - {"params"}):
            raise TypeError(
                f"the Flax module ({type(made).__name__}) has variables beside its parameters: {', '.join(others)}. "
                "They would never change: leave out layers that keep statistics."
            )
        return variables

    def at(self, n_features: int, n_outputs: int) -> Apply:
        """The method apply."""
        apply: Apply = self._made(n_features, n_outputs).apply
        return apply


def _jax() -> Any:
    return require("jax", extra="jax", by="JaxStack")


def _stacked(trees: Sequence[Tree]) -> Tree:
    """Trees of arrays as one tree whose arrays have the learner as first axis."""
    jax = _jax()
    leaves = jax.tree.leaves(trees[0])
    if not leaves or not all(jax.numpy.issubdtype(jax.numpy.result_type(leaf), np.floating) for leaf in leaves):
        raise TypeError("init returned parameters that are no tree of float arrays. Keep other things in apply.")
    try:
        return jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *trees)
    except ValueError as error:
        raise ValueError(
            f"init returned parameters of other shapes for other keys ({error}). Let the key change numbers only."
        ) from error


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _pad(array: Float32Array, size: int, *, with_zeros: bool = False) -> Float32Array:
    """The array with rows added up to ``size``: the last one again, on which a model can do nothing new, or zeros."""
    width = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, width) if with_zeros else np.pad(array, width, mode="edge")
