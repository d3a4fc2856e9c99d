"""The native path beside the plain one: boosters of trees under built-in losses, learned in one compiled loop.

A booster keeps its own arrays, under its own names; :class:`SharedBuffers` lays those of several boosters end to
end and leaves each with views of its part, so that the loop of :mod:`streamboost.kernels.tree_loop` takes a few dozen
arrays however many boosters there are. Once a booster has replaced an array (it grew), they are laid out anew.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamboost import losses
from streamboost._types import FloatArray
from streamboost.bases import Constant, Linear
from streamboost.boosting.hedge import NO_PAIRED_TEST, Hedge
from streamboost.descents import Descent, GradientDescent, ResidualProjection
from streamboost.features.chunk import Chunk
from streamboost.kernels import bases as base_kernels
from streamboost.kernels import edges as edge_kernels
from streamboost.kernels import hedge as hedge_kernels
from streamboost.kernels import layout as row_plan
from streamboost.kernels import linear as linear_kernels
from streamboost.kernels import losses as loss_kernels
from streamboost.kernels import replay as replay_kernels
from streamboost.kernels import tree_loop as row_kernels
from streamboost.kernels import tree_rows as walk_kernels
from streamboost.losses import Loss, Scale
from streamboost.stacks.base import Stack
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting import Booster

LOSSES: dict[type[Loss], int] = {
    losses.Squared: loss_kernels.SQUARED,
    losses.Absolute: loss_kernels.ABSOLUTE,
    losses.Quantile: loss_kernels.QUANTILE,
    losses.Huber: loss_kernels.HUBER,
    losses.Poisson: loss_kernels.POISSON,
    losses.Logistic: loss_kernels.LOGISTIC,
    losses.Hinge: loss_kernels.HINGE,
    losses.Softmax: loss_kernels.SOFTMAX,
}
NO_HEDGE = Hedge([]).arrays
READOUTS = {"last": hedge_kernels.READ_LAST, "mean": hedge_kernels.READ_MEAN, "hedge": hedge_kernels.READ_HEDGE}


def suits(booster: Booster) -> bool:
    """Whether the compiled loop knows everything this booster is made of."""
    replay = booster.replay
    return (
        type(booster.stack) is TreeStack
        and type(booster.loss) in LOSSES
        and knows_descent(booster.descent)
        and type(booster.base) in (Linear, Constant)
        and replay is not None
        and replay.window is not None
        and (replay.targets, replay.learners) == ("fresh", "next")
        and booster.iterate == "last"
        and booster.update_mode == "sequential"
    )


def suit(boosters: Sequence[Booster]) -> bool:
    """Whether the compiled loop knows all of them, and can take them together."""
    first = boosters[0]
    return all(
        suits(booster)
        and type(booster.descent) is type(first.descent)
        and booster.descent.readout == first.descent.readout
        and booster.stack.n_bins == first.stack.n_bins
        and booster.n_rows == first.n_rows
        for booster in boosters
    )


def knows_descent(descent: Descent) -> bool:
    """Whether the compiled loops know it."""
    if type(descent) is GradientDescent:
        return not descent.adaptive
    return type(descent) is ResidualProjection and descent.domain is None


def rule(booster: Booster) -> loss_kernels.Rule:
    """Loss and descent as the kernels know them: the loss's number, its one option, its ridge; the descent's number."""
    loss = booster.loss
    option = getattr(loss, "tau", getattr(loss, "delta", 0.0))
    descent = loss_kernels.DESCENT if isinstance(booster.descent, GradientDescent) else loss_kernels.RESIDUAL
    return LOSSES[type(loss)], float(option), loss.l2, descent


def fresh_target(booster: Booster, i: int) -> FloatArray:
    """What learner i should say of the remembered rows, (n, m): ``Booster._fresh_target`` in one loop."""
    replay, base, stack = booster.replay, booster.base, booster.stack
    assert replay is not None
    assert replay.leaf_ids is not None
    assert isinstance(stack, TreeStack)
    target = np.empty((replay.fill, stack.n_outputs))
    replay_kernels.fresh_target(
        rule(booster),
        replay.X,
        replay.y,
        line(base, stack),
        stack.cat_at,
        booster.eta,
        stack.stats,
        stack.bounds,
        stack.l2,
        replay.leaf_ids,
        i,
        target,
    )
    return target


def line(base: Any, stack: Stack) -> base_kernels.Line:
    """A base as a line: the moments of its inputs, and its weights."""
    if isinstance(base, Linear):
        return base.line
    nothing = np.zeros(stack.n_features)
    weights = np.zeros((stack.n_features + 1, stack.n_outputs))
    weights[-1] = base.y0
    return nothing, nothing, nothing, np.zeros(0, np.int8), weights, np.zeros((0, 0, stack.n_outputs))


class SharedBuffers:
    """The arrays of several boosters, end to end.

    Parameters
    ----------
    boosters : sequence of Booster
        Open, over the same columns, under the same loss. Each notes the buffers it is attached to, and
        detaches itself (:meth:`Booster.detach`) before it replaces an array.
    n_jobs : int, optional
        How many of them may be refitted at the same time.
    """

    def __init__(self, boosters: Sequence[Booster], n_jobs: int | None = None) -> None:
        self.boosters = tuple(boosters)
        self.members = list(boosters)  # those still attached
        self.n_jobs = n_jobs
        self.is_scale_known = False
        first = self.boosters[0]
        self.rule = rule(first)
        d, m = first.stack.n_features, first.stack.n_outputs
        stacks = [booster.stack for booster in boosters if isinstance(booster.stack, TreeStack)]
        replays = [booster.replay for booster in boosters]
        meters = [booster.edges for booster in boosters]
        bins = [replay.bins for replay in replays if replay is not None]
        self.plan = np.zeros((len(self.boosters), row_plan.PLAN), np.int64)
        self.rates = np.zeros((len(self.boosters), row_plan.RATES))
        self._lay_plan()
        self.counts = _stack(replays, "counts")
        self.each_counts = list(self.counts)
        self.books = [(booster, booster.cost, booster.stack.n_learners) for booster in boosters]
        self.trees: walk_kernels.Trees = (
            _join(boosters, "eta", (-1,)),
            _join(stacks, "feature", (-1,)),
            _join(stacks, "threshold", (-1,)),
            _join(stacks, "missing_left", (-1,)),
            _join(stacks, "subset", (-1,)),
            _join(stacks, "stats", (-1, m + 1)),
            _join(stacks, "bounds", (-1, 2)),
            _join(stacks, "level_bins", None),
            stacks[0].cat_at,
        )
        self.meters: edge_kernels.Meters = (
            first.edges.decay,
            _join(meters, "residual_ss", (-1,)),
            _join(meters, "target_ss", (-1,)),
            _join(meters, "recent_sums", (-1, 2)),
        )
        levels = (*stacks[0].level_bins.shape[1:], m)
        self.lines: base_kernels.Line = (
            self._stack_base("count", (d,)),
            self._stack_base("mean", (d,)),
            self._stack_base("m2", (d,)),
            self._signs(),
            self._stack_base("weights", (d + 1, m)),
            self._stack_base("effects", levels),
        )
        self.slopes: base_kernels.Slopes = (
            self._stack_base("squares", (d + 1, m)),
            self._stack_base("covariance", (d + 1, d + 1)),
            self._stack_base("effect_sizes", levels),
        )
        self.windows: replay_kernels.Windows = (
            _stack(bins, "edges"),
            _stack(bins, "n_edges"),
            _stack(bins, "level_bins"),
            _join(replays, "_X", (-1, d)),
            _join(replays, "_y", None),
            _join(replays, "_weight", (-1,)),
            _join(replays, "_leaf_ids", (-1,)),
            _join(replays, "_codes", (-1,)),
        )
        for booster in boosters:
            booster.attach(self)

    def owns(self, boosters: Sequence[Booster]) -> bool:
        """Whether these boosters, and no others, are laid out here, and none has detached itself."""
        return self.members == list(boosters) == list(self.boosters)

    def _stack_base(self, name: str, shape: tuple[int, ...]) -> FloatArray:
        """The bases' arrays; those of a constant, and those a rule does without, stay unused zeros."""
        owners = [
            getattr(booster.base, "inputs", None) if len(shape) == 1 else booster.base for booster in self.boosters
        ]
        held = [getattr(owner, name, None) for owner in owners]
        if name in ("squares", "covariance") and all(array is None for array in held):
            shape = (1, 1)
        whole = _whole(held, (len(owners), *shape))
        if whole is not None:
            return whole
        stacked = np.zeros((len(owners), *shape))
        for owner, array, view in zip(owners, held, stacked, strict=True):
            if array is not None:
                view[:] = array
                setattr(owner, name, view)
        return stacked

    def _signs(self) -> linear_kernels.Signs:
        """The signs of the bases' weights, of no width where none has any."""
        signs = [getattr(booster.base, "signs", np.zeros(0, np.int8)) for booster in self.boosters]
        width = max(map(len, signs))
        return np.stack([own if len(own) else np.zeros(width, np.int8) for own in signs])

    def _lay_plan(self) -> None:
        at = dict.fromkeys(("tree", "node", "leaf", "row", "mark", "code"), 0)
        for row, numbers, booster in zip(self.plan, self.rates, self.boosters, strict=True):
            stack, replay = booster.stack, booster.replay
            assert isinstance(stack, TreeStack)
            assert replay is not None
            assert replay.window is not None
            n_leaves = 2**stack.max_depth
            row[row_plan.N_TREES], row[row_plan.DEPTH] = stack.n_learners, stack.max_depth
            row[row_plan.TREE], row[row_plan.NODE], row[row_plan.LEAF] = at["tree"], at["node"], at["leaf"]
            row[row_plan.ROW], row[row_plan.MARK], row[row_plan.CODE] = at["row"], at["mark"], at["code"]
            row[row_plan.ROOM], row[row_plan.EVERY] = replay.window, replay.refit_every
            row[row_plan.SOONEST], row[row_plan.WARMUP] = replay.soonest, replay.warmup
            row[row_plan.BASE], row[row_plan.OTHER] = base_rule(booster), stack.other_bin
            at["tree"] += stack.n_learners
            at["node"] += stack.n_learners * (n_leaves - 1)
            at["leaf"] += stack.n_learners * n_leaves
            at["row"] += replay.window
            at["mark"] += replay.window * stack.n_learners
            at["code"] += replay.window * stack.n_features
            numbers[:] = rates(booster)
            numbers[row_plan.L2] = stack.l2
            numbers[row_plan.FORGET] = math.inf if stack.forget is None else stack.forget

    def load(self, scales: Sequence[Scale] = ()) -> None:
        """Bring over what the first rows may change: the scales at which bases learn, and where constants stand."""
        for r, booster in enumerate(self.boosters):
            self.rates[r, row_plan.SPREAD] = (scales[r] if scales else booster.scale).spread
            if isinstance(booster.base, Constant):
                self.lines[4][r, -1] = booster.base.y0


def _join(owners: Sequence[Any], name: str, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """Lay arrays end to end in one of this shape, and leave each owner a view of its part."""
    parts = [np.ascontiguousarray(getattr(owner, name)) for owner in owners]
    flat = [part if shape is None else part.reshape(shape) for part in parts]
    whole = _whole(parts, (sum(map(len, flat)), *flat[0].shape[1:]))
    if whole is not None:
        return whole
    joined = np.concatenate(flat)
    at = 0
    for owner, part, length in zip(owners, parts, map(len, flat), strict=True):
        setattr(owner, name, joined[at : at + length].reshape(part.shape))
        at += length
    return joined


def _stack(owners: Sequence[Any], name: str) -> NDArray[Any]:
    """The same for arrays of one shape, as a stack of them."""
    parts = [getattr(owner, name) for owner in owners]
    whole = _whole(parts, (len(parts), *parts[0].shape))
    if whole is not None:
        return whole
    stacked = np.stack(parts)
    for owner, view in zip(owners, stacked, strict=True):
        setattr(owner, name, view)
    return stacked


def _whole(parts: Sequence[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The parent array if these views already tile it contiguously, else None.

    What a new column leaves as it is need not be moved: windows of many rows are most of a model.
    """
    whole: Any = getattr(parts[0], "base", None)
    if not isinstance(whole, np.ndarray) or not whole.flags.owndata:
        return None
    if whole.shape != shape or whole.dtype != parts[0].dtype:
        return None
    at = whole.ctypes.data
    for part in parts:
        if part is None or part.base is not whole or part.ctypes.data != at or not part.flags.c_contiguous:
            return None
        at += part.nbytes
    return whole if at == whole.ctypes.data + whole.nbytes else None


def rates(booster: Booster) -> FloatArray:
    """The rates at which its base learns, where the kernels look for them."""
    rates = np.zeros(row_plan.RATES)
    rates[row_plan.SPREAD] = booster.scale.spread
    if isinstance(booster.base, Linear):
        rates[row_plan.KEEP], rates[row_plan.RATE] = booster.base.forget, booster.base.rate
    return rates


def base_rule(booster: Booster) -> int:
    """How its base learns, as the kernels know it."""
    base = booster.base
    if not isinstance(base, Linear):
        return base_kernels.STILL
    rule = base.rule(booster.loss)
    if rule != "adagrad" and base.covariance is None:
        base.covariance = linear_kernels.prior_covariance(len(base.weights) - 1, 1.0)
    return {"rls": base_kernels.LEAST_SQUARES, "adagrad": base_kernels.ADAGRAD}[rule]


def learn(
    buffers: SharedBuffers,
    hedge: Hedge | None,
    readout: str,
    chunk: Chunk,
    scores: FloatArray,
    row: int,
    end: int,
    paired_test: FloatArray = NO_PAIRED_TEST,
) -> None:
    """Predict and learn the rows from ``row`` to ``end`` of a chunk in order; write the scores made before, (n, m)."""
    boosters, (X, y, weight) = buffers.boosters, chunk
    while row < end:
        if not buffers.is_scale_known:
            buffers.is_scale_known = all(booster.is_scale_known for booster in boosters)
            buffers.load()
        # while the first rows tell the scale, every one of them may change the steps
        stop = end if buffers.is_scale_known else row + 1
        looks = (
            []
            if buffers.is_scale_known
            else [booster.estimate_scale(y[row:stop], weight[row:stop]) for booster in boosters]
        )
        if looks:
            buffers.load([look.scale for look in looks])
        reached: int = row_kernels.learn_rows(
            X, y, weight, row, stop, scores, buffers.rule, readout_number(buffers.boosters[0], readout),
            buffers.plan, buffers.counts, buffers.rates, NO_HEDGE if hedge is None else hedge.arrays, paired_test,
            buffers.trees, buffers.meters, buffers.lines, buffers.slopes, buffers.windows,
        )  # fmt: skip
        stop = reached if reached >= 0 else -1 - reached
        for booster, cost, n_learners in buffers.books:  # what Booster.count does, without a call for each
            units = (stop - row) * n_learners
            booster.n_rows += stop - row
            cost.predictions += units
            cost.updates += units
        if reached < 0:
            raise boosters[0].not_finite()
        for booster, look in zip(boosters, looks, strict=False):
            booster.apply_scale(look)
            if isinstance(booster.base, Constant):
                booster.base.learn(X[row:stop], y[row:stop], weight[row:stop], booster.loss, booster.scale)
        for counts in buffers.each_counts:
            if counts[row_plan.DUE]:
                refit(buffers)
                break
        row = stop


def readout_number(booster: Booster, readout: str) -> int:
    """How a score is read out of its walk, as the kernels know it."""
    if readout == "hedge" and booster.descent.readout == "mean":
        return hedge_kernels.READ_HEDGE_OF_MEANS
    return READOUTS[readout]


def refit(buffers: SharedBuffers) -> None:
    """Refit the learners whose turn it is: those of several boosters at the same time, if so asked."""
    due = [booster for booster, counts in zip(buffers.boosters, buffers.counts, strict=True) if counts[row_plan.DUE]]
    buffers.counts[:, row_plan.DUE] = 0
    if len(due) > 1 and buffers.n_jobs not in (None, 1):
        list(_threads(buffers.n_jobs).map(lambda booster: booster.refit_due(), due))
    else:
        for booster in due:
            booster.refit_due()


@functools.cache
def _threads(n_jobs: int) -> ThreadPoolExecutor:
    """Threads for refits, whose kernels run without the lock of the interpreter."""
    return ThreadPoolExecutor(n_jobs if n_jobs > 0 else os.cpu_count(), thread_name_prefix="streamboost-refit")


def score(buffers: SharedBuffers, hedge: Hedge | None, readout: str, X: FloatArray) -> FloatArray:
    """The score of checked rows, (n, m)."""
    scores = np.empty((len(X), buffers.boosters[0].loss.n_outputs))
    hedged = NO_HEDGE if hedge is None else hedge.arrays
    if not buffers.is_scale_known:
        buffers.load()
    row_kernels.score_rows(
        X,
        scores,
        buffers.rule,
        readout_number(buffers.boosters[0], readout),
        buffers.plan,
        buffers.rates,
        hedged[0],
        hedged[-1],
        buffers.trees,
        buffers.lines,
    )
    return scores
