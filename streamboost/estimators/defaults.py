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
from streamboost._types import FloatArray, IntArray
from streamboost.bases import Base, Constant, Frozen, Linear
from streamboost.boosting import Booster
from streamboost.boosting.committee import STEPS, Committee
from streamboost.descents import Descent, GradientDescent, ResidualProjection
from streamboost.errors import refused
from streamboost.losses import Absolute, Logistic, Loss, Quantile, Softmax
from streamboost.replay import Replay
from streamboost.stacks.base import Stack
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.neural import TwoLayerStack
from streamboost.stacks.refitted import has, refuse_class
from streamboost.stacks.tree import TreeStack, signs_of
from streamboost.stacks.wrapped import wrap

UNSURE = "If unsure, leave it out."
ONE_VERSUS_REST = ("logistic", "hinge")
MODELS = (("learn_one", "predict_one", "clone"), ("partial_fit", "predict"), ("fit", "predict"))  # that can be wrapped


class Level(NamedTuple):
    """What sets a booster of the ladder apart from the first, which has the longest memory."""

    learners: float  # of n_estimators
    depth: int  # less than max_depth
    steps: float  # of the first one's steps
    forget: float | None  # rows after which a leaf begins to fade


LEVELS = (
    Level(learners=1.0, depth=0, steps=1.0, forget=None),
    Level(learners=2 / 3, depth=0, steps=2.0, forget=20.0),
    Level(learners=1 / 3, depth=1, steps=2.5, forget=50.0),
    Level(learners=1 / 6, depth=2, steps=2.5, forget=50.0),
)
MOST_COLUMNS, MOST_CLASSES = 10_000, 1_000  # that a model may come to know beyond those of its first rows
LADDER = (256, 1024, 4096, 16384)  # memories that a model begins with
LONG = 8192  # a memory of so many rows has a base that never forgets
REFITS = 16  # of one learner each, while the window is replaced once; at least SPARING rows apart
SPARING = 32
EAGER = 4  # while windows fill, refits are cheap: as often as every so many rows
SHARE, LOG_SHARE = 0.12, 0.48  # of the natural step: for real targets, and for log losses, whose steps are cautious
NEWTON_SHARE = 0.06  # of the natural step, where leaves are those of Newton's method
KINK_SHARE = 0.03  # of the spread of the targets: for gradients of one size, however small the error
NETS, NET_RATE = 1 / 6, 0.01  # networks do more each: fewer of them; how far they step
MOST_STEPS = 32  # of up to so many learners, no trees, every partial sum is an expert: who harms is left out


def make_regression_loss(loss: str | Loss, n_outputs: int) -> Loss:
    """A loss by name for targets of ``n_outputs`` columns, or the one given."""
    if isinstance(loss, Loss):
        return loss
    name = "squared_error" if loss == "auto" else loss
    if not isinstance(name, str) or name not in losses.NAMES or name in ("log_loss", *ONE_VERSUS_REST):
        names = [name for name in losses.NAMES if name not in ("log_loss", *ONE_VERSUS_REST)]
        expected = f"one of {', '.join(map(repr, names))}, or a Loss. For classes use SGBClassifier."
        raise refused("loss", loss, expected)
    return losses.by_name(name, n_outputs=n_outputs)


def make_classification_loss(loss: str | Loss, n_classes: int) -> Loss:
    """Softmax over all classes, or a margin loss: on one score for two classes, one a class for more."""
    name = loss.name if isinstance(loss, Loss) else "log_loss" if loss == "auto" else loss
    l2 = loss.l2 if isinstance(loss, Loss) else 0.0
    if name == "log_loss":
        return Softmax(n_classes=n_classes, l2=l2)
    if name in ONE_VERSUS_REST:
        return losses.by_name(name, n_outputs=1 if n_classes <= 2 else n_classes, l2=l2)
    names = "'log_loss', 'logistic', 'hinge', or the loss object of one of these"
    raise refused("loss", loss, f"{names}. For real-valued targets use SGBRegressor.")


def is_one_versus_rest(loss: str | Loss) -> bool:
    """Whether a classifier's loss has one score a class and a fixed number of them."""
    return (loss.name if isinstance(loss, Loss) else loss) in ONE_VERSUS_REST


def margins(codes: FloatArray, n_outputs: int) -> FloatArray:
    """Class numbers (n,) as the ±1 targets of a margin loss, (n, m)."""
    positive = codes[:, None] == (np.array([1.0]) if n_outputs == 1 else np.arange(n_outputs))
    return np.where(positive, 1.0, -1.0)


def make_committee(options: Any, loss: Loss, seed: int, *, one_score: bool = False) -> Committee:
    """The committee that ``options``, the parameters of an estimator by their public names, ask for.

    ``one_score`` says that two classes share a score: then each step counts twice, as two scores would move apart.
    """
    memories = check_memory(options.memory)
    if not (isinstance(options.budget, (int, float)) and options.budget > 0):
        raise refused("budget", options.budget, "a number above 0: 1 is the usual work per row, 2 twice as much.")
    check_limits(options)
    limit = options.memory_limit_mb
    if limit is not None and not (_is_number(limit) and limit > 0):
        raise refused("memory_limit_mb", limit, "a number above 0. For no limit, leave it out.")
    is_tree = isinstance(options.learner, str) and options.learner == "tree"
    if options.monotonic_cst is not None and not (is_tree and isinstance(options.base, (str, int, float))):
        beside = f"learner={options.learner!r} and base={options.base!r}"
        expected = "trees on a line or a constant: of others it cannot be promised. Leave it out, or leave those out."
        raise ValueError(f"monotonic_cst is given beside {beside}, expected {expected}")
    if options.readout != "hedge" or not is_tree:
        memories = memories[:1]  # only trees are cheap enough to be kept several times, and only a hedge listens to all
    boosters = [
        Booster(
            loss, make_descent(options, loss, level.steps, stack.step_share, one_score=one_score, trees=is_tree), stack,
            base=make_base(options.base, memory, options.monotonic_cst),
            replay=make_replay(memory, options.budget, stack),
            iterate=options.iterate, update_mode=options.update_mode, seed=seed + r,
        )
        for r, memory in enumerate(memories)
        for level in [LEVELS[min(r, len(LEVELS) - 1)]]
        for stack in [make_stack(options, level)]
    ]  # fmt: skip
    n_learners = boosters[0].stack.n_learners
    steps = STEPS if is_tree or n_learners > MOST_STEPS else range(n_learners)
    return Committee(
        boosters, readout=options.readout, steps=steps, memory_limit_mb=limit, n_jobs=options.n_jobs,
        grows=isinstance(options.memory, str),
    )  # fmt: skip


def check_limits(options: Any) -> None:
    """Refuse numbers of columns or classes, beyond which a model does not grow, that are none."""
    for name, usual in (("max_columns", MOST_COLUMNS), ("max_classes", MOST_CLASSES)):
        most = getattr(options, name)
        if not isinstance(most, (int, np.integer)) or isinstance(most, bool) or most < 1:
            way_out = f"If unsure, leave it out: the default is {usual:,}."
            raise refused(name, most, f"a whole number of at least 1. {way_out}")


def number_columns(monotonic_cst: Any, names: Sequence[Hashable] | None, places: IntArray | None = None) -> Any:
    """Constraints by name or number, or one a column, to constraints by number or one a column.

    ``places`` says where each column stands, if that is not where it is among the others.
    """
    if monotonic_cst is not None:
        signs_of(monotonic_cst)  # refused as they were given: later all are turned round
    signs = _by_number(monotonic_cst, names) if isinstance(monotonic_cst, Mapping) else monotonic_cst
    if places is None or signs is None:
        return signs
    if not isinstance(signs, Mapping):
        if np.shape(signs) != places.shape:
            found = f"monotonic_cst has shape {np.shape(signs)}, expected {places.shape}: one sign for each column"
            raise ValueError(f"{found}. To name only some columns pass a dict.")
        signs = dict(enumerate(signs))
    if beyond := [j for j in signs if j >= len(places)]:
        found = f"monotonic_cst names column {beyond[0]}, expected numbers below {len(places)}"
        raise ValueError(f"{found}: there are no more columns. Name columns that the first rows have.")
    return {int(places[j]): sign for j, sign in signs.items()}


def _by_number(monotonic_cst: Mapping[Hashable, int], names: Sequence[Hashable] | None) -> dict[Any, int]:
    numbers = {name: j for j, name in enumerate(names or ())}
    unknown = [name for name in monotonic_cst if name not in numbers and not isinstance(name, (int, np.integer))]
    if unknown:
        known = ", ".join(map(repr, numbers)) or "they have none, so use numbers"
        raise ValueError(f"monotonic_cst names the column {unknown[0]!r}, expected names the first rows have: {known}.")
    return {numbers.get(name, name): sign for name, sign in monotonic_cst.items()}


def check_memory(memory: Any) -> list[int | None]:
    """Memories, the longest first."""
    memory = LADDER if isinstance(memory, str) and memory == "grow" else memory
    given = list(memory) if isinstance(memory, Sequence | np.ndarray) and not isinstance(memory, str) else [memory]
    if not all(one is None or (isinstance(one, (int, np.integer)) and one >= 1) for one in given):
        raise refused("memory", memory, f"'grow', numbers of rows above 0, one or several, or None for all. {UNSURE}")
    if not given or len(set(given)) < len(given):
        raise refused("memory", memory, "one or several different numbers of rows.")
    return sorted((None if one is None else int(one) for one in given), key=lambda one: -(one or np.inf))


def make_stack(options: Any, level: Level = LEVELS[0]) -> Stack:
    """``"tree"``, ``"linear"``, ``"mlp"``, a stack, or anything :func:`streamboost.stacks.wrap` takes."""
    learner, n_learners = options.learner, options.n_estimators
    if isinstance(learner, Stack):
        return copy.deepcopy(learner)  # with as many learners as it has
    if not (isinstance(n_learners, (int, np.integer)) and n_learners >= 1):
        way_out = "If unsure, leave it out: the default is 60."
        raise refused("n_estimators", n_learners, f"a whole number of at least 1. {way_out}")
    n_learners = int(n_learners)
    if isinstance(learner, str):
        if learner == "tree":
            return make_trees(options, level)
        if learner == "linear":
            return LinearStack(n_learners)
        if learner == "mlp":
            return TwoLayerStack(max(1, round(n_learners * NETS)), rate=NET_RATE)
        raise refused("learner", learner, f"'tree', 'linear', 'mlp', a stack, or a model to wrap. {UNSURE}")
    refuse_class("learner", learner)
    if not (callable(learner) or any(has(learner, *names) for names in MODELS)):
        models = "a River or scikit-learn regressor, or a function fit(X, target, weight) that returns h(X)"
        raise refused("learner", learner, f"'tree', 'linear', 'mlp', a stack, {models}. {UNSURE}", TypeError)
    return wrap(copy.deepcopy(learner), n_learners)


def make_trees(options: Any, level: Level) -> TreeStack:
    """The trees of one booster of the ladder."""
    if not (_is_number(options.l2) and 0 <= options.l2 < np.inf):
        raise refused("l2", options.l2, "a finite number of at least 0. If unsure, leave it out: the default is 1.")
    depth = options.max_depth
    if isinstance(depth, (int, np.integer)) and depth > 0:
        depth = max(1, depth - level.depth)
    signs = options.monotonic_cst
    if signs is not None:  # a booster subtracts what its learners say
        signs = {j: -sign for j, sign in signs.items()} if isinstance(signs, Mapping) else -np.asarray(signs, np.int8)
    return TreeStack(
        max(1, round(options.n_estimators * level.learners)), max_depth=depth, l2=options.l2, forget=level.forget,
        min_samples_leaf=options.min_samples_leaf, max_features=options.max_features, monotonic_cst=signs,
    )  # fmt: skip


def make_base(base: Any, memory: int | None = None, monotonic_cst: Any = None) -> Base:
    """``"linear"``, ``"constant"``, a number, a base, or a fitted model to be frozen."""
    if isinstance(base, str):
        if base == "linear":
            forget = 1.0 if memory is None or memory >= LONG else max(0.5, 1.0 - 3.0 / memory)
            return Linear(forget=forget, monotonic_cst=monotonic_cst)
        if base == "constant":
            return Constant()
        raise refused("base", base, f"'linear', 'constant', a number, a base or a fitted model. {UNSURE}")
    if isinstance(base, Base):
        return copy.deepcopy(base)
    refuse_class("base", base)
    is_number = isinstance(base, (int, float))
    if (is_number and not np.isfinite(base)) or not (is_number or callable(base) or hasattr(base, "predict")):
        models = "a base, a fitted estimator with predict, or a function X -> scores"
        kind = ValueError if is_number else TypeError
        raise refused("base", base, f"'linear', 'constant', a finite number, {models}. {UNSURE}", kind)
    return Constant(base) if is_number else Frozen(base)


def takes_newton(loss: Loss) -> bool:
    """Return whether leaves are those of Newton's method: under every loss that curves here more and there less.

    Those of classes are left out: leaves that fade would forget sure rows, which weigh little, too slowly.
    """
    return loss.curves and loss.strong_convexity() < loss.smoothness() and not isinstance(loss, Logistic | Softmax)


def make_descent(
    options: Any, loss: Loss, steps: float = 1.0, share: float | None = None, *, one_score: bool = False,
    trees: bool = False,
) -> Descent:  # fmt: skip
    """The descent given, or the loss's own: ``steps`` times the learning rate, or a ``share`` of the natural step."""
    descent, rate = options.descent, options.learning_rate
    if descent is not None:
        if not isinstance(descent, Descent):
            expected = f"one of streamboost.descents, such as GradientDescent(0.1). {UNSURE}"
            raise refused("descent", descent, expected, TypeError)
        if rate is not None:
            raise ValueError(f"learning_rate is {rate!r} beside a descent, which has a step of its own. Leave one out.")
        return descent
    if isinstance(rate, str) and rate == "theory":
        return GradientDescent("theory") if loss.smooth else ResidualProjection()
    if rate is None:
        if share is None:
            if trees and takes_newton(loss):
                return GradientDescent(share=NEWTON_SHARE * steps, newton=True)
            if trees and isinstance(loss, Absolute | Quantile):  # whose gradients are 1, and ½ at the median
                return GradientDescent(share=KINK_SHARE * steps * (1.0 if isinstance(loss, Absolute) else 2.0))
            share = SHARE if loss.temperature_scale else LOG_SHARE
        return GradientDescent(share=share * steps) if loss.smooth else ResidualProjection()
    if not (_is_number(rate) and 0 < rate < np.inf):
        way_out = "If unsure, leave it out: the loss suggests one."
        raise refused("learning_rate", rate, f"a finite number above 0, or 'theory'. {way_out}")
    step_size = rate * steps * (2.0 if one_score else 1.0)
    return GradientDescent(step_size) if loss.smooth else ResidualProjection(step_size)


def make_replay(memory: int | None, budget: float, stack: Stack) -> Replay | None:
    """A memory, if the stack can make use of one."""
    if not len(stack.refittable):
        return None
    every = max(SPARING, (memory or 16384) // REFITS) / budget
    return Replay(memory, refit_every=max(1, round(every)), soonest=EAGER)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
