"""From the words of an estimator's parameters to the parts of a committee.

The ladder of memories is here: how many learners a booster with so long a memory has, how deep they are, how far they
step and how fast its base and its leaves forget. ``benchmarks/bench_ablation.py`` tells what each choice is worth.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamboost import losses
from streamboost.arrays import FloatArray
from streamboost.bases import Base, Constant, Frozen, Linear
from streamboost.boosting import Booster
from streamboost.committee import STEPS, Committee
from streamboost.descents import Descent, GradientDescent, ResidualProjection
from streamboost.losses import Loss, Softmax
from streamboost.replay import Replay
from streamboost.stacks.base import Stack
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.neural import TwoLayerStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import wrap

ONE_VERSUS_REST = ("logistic", "hinge")


class Rung(NamedTuple):
    """What sets a booster of the ladder apart from the first, which has the longest memory."""

    learners: float  # of n_estimators
    depth: int  # less than max_depth
    steps: float  # of the first one's steps
    forget: float | None  # rows after which a leaf begins to fade


RUNGS = (
    Rung(learners=1.0, depth=0, steps=1.0, forget=None),
    Rung(learners=2 / 3, depth=0, steps=2.0, forget=20.0),
    Rung(learners=1 / 3, depth=1, steps=2.5, forget=50.0),
    Rung(learners=1 / 6, depth=2, steps=2.5, forget=50.0),
)
LONG = 8192  # a memory of so many rows has a base that never forgets
REFITS = 16  # of one learner each, while the window is replaced once; at least SPARING rows apart
SPARING = 32
EAGER = 4  # while windows fill, refits are cheap: as often as every so many rows
SHARE, LOG_SHARE = 0.12, 0.48  # of the natural step: for real targets, and for log losses, whose steps are cautious
NETS, NET_RATE = 1 / 6, 0.01  # networks do more each: fewer of them; how far they step
MOST_STEPS = 32  # of up to so many learners, no trees, every partial sum is an expert: who harms is left out


class Options(NamedTuple):
    """The parameters of an estimator that shape its committee, by their public names."""

    n_estimators: int
    learning_rate: Any
    max_depth: int
    min_samples_leaf: int
    l2: float
    max_features: Any
    monotonic_cst: Any
    learner: Any
    base: Any
    descent: Any
    memory: Any
    budget: float
    readout: Any
    iterate: Any
    semantics: Any
    memory_limit_mb: float | None
    n_jobs: int | None


def make_regression_loss(loss: str | Loss, n_outputs: int) -> Loss:
    """A loss by name for targets of ``n_outputs`` columns, or the one given."""
    if isinstance(loss, Loss):
        return loss
    name = "squared_error" if loss == "auto" else loss
    if name not in losses.NAMES or name in ("log_loss", *ONE_VERSUS_REST):
        names = [name for name in losses.NAMES if name not in ("log_loss", *ONE_VERSUS_REST)]
        raise ValueError(
            f"loss is {loss!r}, expected one of {', '.join(map(repr, names))}, or a Loss. "
            "For classes use SGBClassifier."
        )
    return losses.by_name(name, n_outputs=n_outputs)


def make_classification_loss(loss: str | Loss, n_classes: int) -> Loss:
    """Softmax over all classes, or a margin loss: on one score for two classes, one a class for more."""
    name = loss.name if isinstance(loss, Loss) else "log_loss" if loss == "auto" else loss
    l2 = loss.l2 if isinstance(loss, Loss) else 0.0
    if name == "log_loss":
        return Softmax(n_classes=n_classes, l2=l2)
    if name in ONE_VERSUS_REST:
        return losses.by_name(name, n_outputs=1 if n_classes <= 2 else n_classes, l2=l2)
    raise ValueError(
        f"loss is {loss!r}, expected 'log_loss', 'logistic', 'hinge', or the loss object of one of these. "
        "For real-valued targets use SGBRegressor."
    )


def is_one_versus_rest(loss: str | Loss) -> bool:
    """Whether a classifier's loss has one score a class and a fixed number of them."""
    return (loss.name if isinstance(loss, Loss) else loss) in ONE_VERSUS_REST


def margins(codes: FloatArray, n_outputs: int) -> FloatArray:
    """Class numbers (n,) as the ±1 targets of a margin loss, (n, m)."""
    positive = codes[:, None] == (np.array([1.0]) if n_outputs == 1 else np.arange(n_outputs))
    return np.where(positive, 1.0, -1.0)


def make_committee(options: Options, loss: Loss, seed: int, *, one_score: bool = False) -> Committee:
    """The committee an estimator asks for.

    ``one_score`` says that two classes share a score: then each step counts twice, as two scores would move apart.
    """
    memories = check_memory(options.memory)
    if not (isinstance(options.budget, (int, float)) and options.budget > 0):
        raise ValueError(
            f"budget is {options.budget!r}, expected a number above 0: 1 is the usual work per row, 2 twice as much."
        )
    is_tree = isinstance(options.learner, str) and options.learner == "tree"
    if options.monotonic_cst is not None and not (is_tree and isinstance(options.base, (str, int, float))):
        raise ValueError(
            f"monotonic_cst is given beside learner={options.learner!r} and base={options.base!r}, expected trees on a "
            "line or a constant: of others it cannot be promised. Leave it out, or leave those out."
        )
    if options.readout != "hedge" or not is_tree:
        memories = memories[:1]  # only trees are cheap enough to be kept several times, and only a hedge listens to all
    boosters = [
        Booster(
            loss,
            make_descent(
                options.descent, options.learning_rate, loss, rung.steps, stack.step_share, one_score=one_score
            ),
            stack,
            base=make_base(options.base, memory, options.monotonic_cst),
            replay=make_replay(memory, options.budget, stack),
            iterate=options.iterate,
            semantics=options.semantics,
            seed=seed + r,
        )
        for r, memory in enumerate(memories)
        for rung in [RUNGS[min(r, len(RUNGS) - 1)]]
        for stack in [make_stack(options, rung)]
    ]
    n_learners = boosters[0].stack.n_learners
    steps = STEPS if is_tree or n_learners > MOST_STEPS else range(n_learners)
    return Committee(
        boosters,
        readout=options.readout,
        steps=steps,
        memory_limit_mb=options.memory_limit_mb,
        n_jobs=options.n_jobs,
    )


def number_columns(monotonic_cst: Any, names: Sequence[Hashable] | None) -> Any:
    """Constraints by name or number, or one a column, to constraints by number or one a column."""
    if not isinstance(monotonic_cst, Mapping):
        return monotonic_cst
    places = {name: j for j, name in enumerate(names or ())}
    unknown = [name for name in monotonic_cst if name not in places and not isinstance(name, (int, np.integer))]
    if unknown:
        raise ValueError(
            f"monotonic_cst names the column {unknown[0]!r}, expected names the first rows have: "
            f"{', '.join(map(repr, places)) or 'they have none, so use numbers'}."
        )
    return {places.get(name, name): sign for name, sign in monotonic_cst.items()}


def opposite(monotonic_cst: Any) -> Any:
    """What learners must do so that predictions do what was asked: a booster subtracts what they say."""
    if monotonic_cst is None or isinstance(monotonic_cst, Mapping):
        return None if monotonic_cst is None else {j: -sign for j, sign in monotonic_cst.items()}
    return -np.asarray(monotonic_cst)


def check_memory(memory: Any) -> list[int | None]:
    """Memories, the longest first."""
    given = list(memory) if isinstance(memory, Sequence | np.ndarray) and not isinstance(memory, str) else [memory]
    for one in given:
        if not (one is None or (isinstance(one, (int, np.integer)) and one >= 1)):
            raise ValueError(
                f"memory is {memory!r}, expected numbers of rows above 0, one or several, or None for all rows. "
                "If unsure, leave it out."
            )
    if not given or len(set(given)) < len(given):
        raise ValueError(f"memory is {memory!r}, expected one or several different numbers of rows.")
    return sorted((None if one is None else int(one) for one in given), key=lambda one: -(one or np.inf))


def make_stack(options: Options, rung: Rung = RUNGS[0]) -> Stack:
    """``"tree"``, ``"linear"``, ``"mlp"``, a stack, or anything :func:`streamboost.stacks.wrap` takes."""
    learner, n_learners = options.learner, options.n_estimators
    if isinstance(learner, str):
        if learner == "tree":
            if isinstance(n_learners, (int, np.integer)) and n_learners > 0:
                n_learners = max(1, round(n_learners * rung.learners))
            depth = options.max_depth
            if isinstance(depth, (int, np.integer)) and depth > 0:
                depth = max(1, depth - rung.depth)
            return TreeStack(
                n_learners,
                max_depth=depth,
                min_samples_leaf=options.min_samples_leaf,
                l2=options.l2,
                forget=rung.forget,
                max_features=options.max_features,
                monotonic_cst=opposite(options.monotonic_cst),
            )
        if learner == "linear":
            return LinearStack(n_learners)
        if learner == "mlp":
            if isinstance(n_learners, (int, np.integer)) and n_learners > 0:
                n_learners = max(1, round(n_learners * NETS))
            return TwoLayerStack(n_learners, rate=NET_RATE)
        raise ValueError(
            f"learner is {learner!r}, expected 'tree', 'linear', 'mlp', a stack, or a model to wrap. "
            "If unsure, leave it out."
        )
    return wrap(copy.deepcopy(learner), n_learners)


def make_base(base: Any, memory: int | None = None, monotonic_cst: Any = None) -> Base:
    """``"linear"``, ``"constant"``, a number, a base, or a fitted model to be frozen."""
    if isinstance(base, str):
        if base == "linear":
            forget = 1.0 if memory is None or memory >= LONG else max(0.5, 1.0 - 3.0 / memory)
            return Linear(forget=forget, monotonic_cst=monotonic_cst)
        if base == "constant":
            return Constant()
        raise ValueError(
            f"base is {base!r}, expected 'linear', 'constant', a number, a base or a fitted model. "
            "If unsure, leave it out."
        )
    if isinstance(base, Base):
        return copy.deepcopy(base)
    if isinstance(base, (int, float)):
        return Constant(base)
    return Frozen(base)


def make_descent(
    descent: Descent | None,
    learning_rate: Any,
    loss: Loss,
    steps: float = 1.0,
    share: float | None = None,
    *,
    one_score: bool = False,
) -> Descent:
    """The descent given, or the one the loss picks, at the given learning rate times ``steps``.

    Without a learning rate it is this ``share`` of the natural step, or what suits trees.
    """
    if descent is not None:
        if not isinstance(descent, Descent):
            raise TypeError(
                f"descent is {descent!r}, expected one of streamboost.descents, such as GradientDescent(0.1). "
                "If unsure, leave it out."
            )
        if learning_rate is not None:
            raise ValueError(
                f"learning_rate is {learning_rate!r} beside a descent, which has a step of its own. Leave one out."
            )
        return descent
    if learning_rate == "theory":
        return GradientDescent("theory") if loss.smooth else ResidualProjection()
    if learning_rate is None:
        if share is None:
            share = SHARE if loss.tempering else LOG_SHARE
        return GradientDescent(share=share * steps) if loss.smooth else ResidualProjection()
    if isinstance(learning_rate, (int, float)) and not isinstance(learning_rate, bool) and learning_rate > 0:
        learning_rate = learning_rate * steps * (2.0 if one_score else 1.0)
    return GradientDescent(learning_rate) if loss.smooth else ResidualProjection(learning_rate)


def make_replay(memory: int | None, budget: float, stack: Stack) -> Replay | None:
    """A memory, if the stack can make use of one."""
    if not len(stack.refittable):
        return None
    every = max(SPARING, (memory or 16384) // REFITS) / budget
    return Replay(memory, refit_every=max(1, round(every)), soonest=EAGER)
