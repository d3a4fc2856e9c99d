"""The loop of trees: :mod:`streamboost.kernels.tree_loop` on the arrays of all boosters of a model.

:class:`SharedBuffers` lays the arrays of several boosters end to end and leaves each with views of its part, so that
the kernel takes a few dozen arrays however many boosters there are. When an array is replaced they are laid out anew.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.bases import Constant
from streamboost.boosting.drift_replacement import REVIEW_EVERY
from streamboost.boosting.hedge import NO_PAIRED_TEST
from streamboost.boosting.loops import compiled
from streamboost.boosting.loops.plain import NOBODY, PlainLoop
from streamboost.features.chunk import Chunk
from streamboost.kernels import bases, carrying, edges, layout, replay, tree_loop, tree_rows
from streamboost.kernels.linear import Signs
from streamboost.losses import Scale
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.boosting.model import BoostedModel

NO_STEPS: IntArray = np.zeros(0, np.int64)


class TreeLoop(PlainLoop):
    """The compiled loop of boosters of trees that learn row by row."""

    def suits(self, model: BoostedModel) -> bool:
        """Return whether it knows everything the boosters are made of, and can take them together."""
        buffers: SharedBuffers | None = getattr(model, "_buffers", None)
        if buffers is not None and buffers.owns(model.boosters):
            return True
        first = model.boosters[0]
        return all(
            _knows(booster)
            and type(booster.descent) is type(first.descent)
            and booster.descent.readout == first.descent.readout
            and (booster.rests or booster.stack.n_bins == model.boosters[-1].stack.n_bins)
            and booster.n_rows == first.n_rows
            for booster in model.boosters
        )

    def learn(self, model: BoostedModel, chunk: Chunk, early: FloatArray, scores: FloatArray, start: int) -> int:
        """Predict and learn rows in order from ``start`` on, until a refit or a review is due."""
        boosters, (X, y, weight) = model.boosters, chunk
        first, stop, estimates = boosters[0], len(X), []
        held = first.replay if first.rests else None
        buffers: SharedBuffers | None = getattr(model, "_buffers", None)
        if buffers is None or not buffers.owns(boosters):
            buffers = SharedBuffers(boosters)
            buffers.attach(model)
        paired_test = NO_PAIRED_TEST
        if model.drift_replacement is not None:
            paired_test = model.drift_replacement.paired_test
            stop = min(stop, start + REVIEW_EVERY - first.n_rows % REVIEW_EVERY)
        if held is not None:
            buffers.plan[0, [layout.TURN, layout.SEEN_BEFORE]] = held.turn, held.seen
            stop = min(stop, start + first.rows_to_next_turn)
        if not buffers.is_scale_known:
            buffers.is_scale_known = all(booster.is_scale_known for booster in boosters)
            if not buffers.is_scale_known:  # every one of the first rows may change the steps
                stop = start + 1
                estimates = [booster.estimate_scale(y[start:stop], weight[start:stop]) for booster in boosters]
            buffers.load(boosters, [scale for _, scale in estimates])
        steps, ahead = NO_STEPS, np.empty((0, 0, scores.shape[1]))
        if held is not None:
            steps, ahead = buffers.walk_ahead(model, chunk, start, stop)
        carried = np.empty((stop - start if held is not None else 0, scores.shape[1]))
        reached: int = tree_loop.learn_rows(
            X, y, weight, start, stop, scores, buffers.rule, compiled.READOUTS[model.readout, first.descent.readout],
            buffers.plan, buffers.counts, buffers.rates, model.hedge.arrays, paired_test,
            early, model.signature if early.shape[1] else 0.0, buffers.trees, buffers.meters, buffers.lines,
            buffers.slopes, buffers.windows, steps, ahead, carried,
        )  # fmt: skip
        stop = reached if reached >= 0 else -1 - reached
        for booster in boosters:  # what Booster.count does, without a call for each
            units = (stop - start) * booster.stack.n_learners
            booster.n_rows += stop - start
            booster.cost.predictions += units
            booster.cost.updates += units
        if reached < 0:
            raise first.not_finite()
        for booster, estimate in zip(boosters, estimates, strict=False):
            booster.apply_scale(*estimate)
            if isinstance(booster.base, Constant):
                booster.base.learn(X[start:stop], y[start:stop], weight[start:stop], booster.loss, booster.scale)
        if held is not None:
            held.append(X[start:stop], y[start:stop], weight[start:stop], None, carried[: stop - start])
            first.refit_due()
        for counts in buffers.each_counts:
            if counts[layout.DUE]:
                _refit(model, buffers)
                break
        return stop

    def score(self, model: BoostedModel, X: FloatArray, said: FloatArray = NOBODY) -> FloatArray:
        """Return the score of checked rows, (n, m); write what experts say to ``said`` (n, E, m), if it is given."""
        boosters, first = model.boosters, model.boosters[0]
        if not first.n_rows:
            return super().score(model, X, said)
        buffers: SharedBuffers | None = getattr(model, "_buffers", None)
        if buffers is None or not buffers.owns(boosters):
            is_member = buffers is not None and len(boosters) == 1  # of a committee, whose arrays stay where they are
            buffers = SharedBuffers(boosters)
            if not is_member:
                buffers.attach(model)
        if not buffers.is_scale_known:
            buffers.load(boosters)
        scores = np.empty((len(X), first.loss.n_outputs))
        tree_loop.score_rows(
            X, scores, buffers.rule, compiled.READOUTS[model.readout, first.descent.readout], buffers.plan,
            buffers.rates, model.hedge.arrays, buffers.trees, buffers.lines,
            buffers.steps(model) if first.rests else NO_STEPS, said,
        )  # fmt: skip
        return scores

    def fresh_target(self, booster: Booster, i: int) -> tuple[FloatArray, FloatArray]:
        """Return what learner i should say of the rows held, (n, m), and their curvatures, (n,)."""
        held, stack = booster.replay, booster.stack
        assert held is not None
        assert held.leaf_ids is not None
        assert isinstance(stack, TreeStack)
        target, curvature = np.empty((held.fill, stack.n_outputs)), np.ones(held.fill)
        replay.fresh_target(
            compiled.rule(booster), held.X, held.y, compiled.line(booster.base, stack), stack.cat_at, booster.eta,
            stack.stats, stack.bounds, stack.l2, held.leaf_ids, i, compiled.newton(booster), target, curvature,
        )  # fmt: skip
        return target, curvature

    def slopes(self, booster: Booster, rows: slice | NDArray[np.uint32]) -> tuple[FloatArray, FloatArray]:
        """Return gradient and curvature (n, m) of the loss at the partial sums carried of some rows."""
        held = booster.replay
        assert held is not None
        scores, y = held.carried[rows], held.y[rows]
        gradient, curvature = np.empty_like(scores), np.empty_like(scores)
        carrying.set_slopes(compiled.rule(booster), scores, y, gradient, curvature)
        return gradient, curvature


def _knows(booster: Booster) -> bool:
    """Return whether the kernels know everything this booster is made of."""
    held = booster.replay
    return (
        type(booster.stack) is TreeStack
        and compiled.knows_parts(booster)
        and held is not None
        and held.window is not None
        and (held.targets, held.learners) in (("fresh", "next"), ("carried", "next"))
        and booster.iterate == "last"
        and booster.update_mode == "sequential"
    )


def _refit(model: BoostedModel, buffers: SharedBuffers) -> None:
    """Refit the learners whose turn it is: those of several boosters at the same time, if so asked."""
    due = [booster for booster, counts in zip(model.boosters, buffers.counts, strict=True) if counts[layout.DUE]]
    buffers.counts[:, layout.DUE] = 0
    if len(due) > 1 and model.n_jobs not in (None, 1):
        list(_threads(model.n_jobs).map(lambda booster: booster.refit_due(), due))
    else:
        for booster in due:
            booster.refit_due()


@functools.cache
def _threads(n_jobs: int) -> ThreadPoolExecutor:
    """Threads for refits, whose kernels run without the lock of the interpreter."""
    return ThreadPoolExecutor(n_jobs if n_jobs > 0 else os.cpu_count(), thread_name_prefix="streamboost-refit")


class Ahead(NamedTuple):
    """Partial sums of rows that are to come, of a booster whose trees rest until then."""

    chunk: Chunk
    start: int
    stop: int
    steps: IntArray  # after how many trees
    sums: FloatArray  # (rows, steps, m)


class SharedBuffers:
    """The arrays of several boosters, end to end; of one booster, views of its own.

    Boosters that are attached detach themselves (:meth:`Booster.detach`) before they replace an array.
    """

    def __init__(self, boosters: Sequence[Booster]) -> None:
        first = boosters[0]
        self.rule = compiled.rule(first)
        R, d, m = len(boosters), first.stack.n_features, first.stack.n_outputs
        stacks = [booster.stack for booster in boosters if isinstance(booster.stack, TreeStack)]
        windows, meters = _windows(boosters), [booster.edges for booster in boosters]
        bins = [window.bins for window in windows]
        self.plan, self.rates = _plan(boosters)
        self.counts = _tile(windows, "counts", (R, *windows[0].counts.shape))
        self.each_counts = list(self.counts)
        n_levels = stacks[0].level_bins.shape[1:]  # columns of categories, and levels of them
        self.trees = tree_rows.Trees(
            _tile(boosters, "eta", (-1,)), _tile(stacks, "feature", (-1,)), _tile(stacks, "threshold", (-1,)),
            _tile(stacks, "missing_left", (-1,)), _tile(stacks, "subset", (-1,)),
            _tile(stacks, "stats", (-1, m + 1)), _tile(stacks, "bounds", (-1, 2)),
            _tile(stacks, "level_bins", (sum(stack.n_learners for stack in stacks), *n_levels)), stacks[0].cat_at,
        )  # fmt: skip
        self.meters = edges.Meters(
            first.edges.decay, _tile(meters, "residual_ss", (-1,)), _tile(meters, "target_ss", (-1,)),
            _tile(meters, "recent_sums", (-1, 2)),
        )  # fmt: skip
        self.lines = bases.Line(
            _tile_bases(boosters, "count", (d,)), _tile_bases(boosters, "mean", (d,)),
            _tile_bases(boosters, "m2", (d,)), _tile_bases(boosters, "center", (d,)),
            _tile_bases(boosters, "inverse", (d,)), _tile_bases(boosters, "low", (d,)),
            _tile_bases(boosters, "high", (d,)), _signs(boosters),
            _tile_bases(boosters, "weights", (d + 1, m)), _tile_bases(boosters, "effects", (*n_levels, m)),
        )  # fmt: skip
        self.slopes = bases.Slopes(
            _tile_bases(boosters, "squares", (d + 1, m)), _tile_bases(boosters, "covariance", (d + 1, d + 1)),
            _tile_bases(boosters, "effect_sizes", (*n_levels, m)),
        )  # fmt: skip
        self.windows = replay.Windows(
            _tile(bins, "edges", (R, *bins[0].edges.shape)), _tile(bins, "n_edges", (R, *bins[0].n_edges.shape)),
            _tile(bins, "level_bins", (R, *bins[0].level_bins.shape)),
            _tile(windows, "_X", (-1, d)), _tile(windows, "_y", (-1, first.loss.n_targets)),
            _tile(windows, "_weight", (-1,)), _tile(windows, "_leaf_ids", (-1,)), _tile(windows, "_codes", (-1,)),
        )  # fmt: skip
        self.is_scale_known = all(booster.is_scale_known for booster in boosters)
        self.load(boosters)
        self.ahead: Ahead | None = None
        self._steps = NO_STEPS, NO_STEPS, -1  # what steps returned last, and the experts and the turn that it was for
        self.members: tuple[int, ...] = ()  # the ids of those attached; no references, which would make a cycle

    def attach(self, model: BoostedModel) -> None:
        """Let a model and its boosters know where their arrays lie."""
        self.members = tuple(map(id, model.boosters))
        for holder in (model, *model.boosters):
            holder._buffers = self

    def owns(self, boosters: Sequence[Booster]) -> bool:
        """Return whether these boosters, and no others, are attached in this order."""
        if len(boosters) != len(self.members):
            return False
        for booster, member in zip(boosters, self.members, strict=True):
            if id(booster) != member or getattr(booster, "_buffers", None) is not self:
                return False
        return True

    def steps(self, model: BoostedModel) -> IntArray:
        """The partial sums of a first booster that rests which are asked for: those of experts, of its turn, and all.

        Numbers of trees do not change before arrays are laid out anew.
        """
        (steps, known, turn), first, experts = self._steps, model.boosters[0], model.hedge.experts
        assert first.replay is not None
        if experts is not known or first.replay.turn != turn:
            turn = first.replay.turn
            steps = np.unique([*experts[experts[:, 0] == 0, 1].tolist(), turn, first.stack.n_learners])
            self._steps = steps, experts, turn
        return steps

    def walk_ahead(self, model: BoostedModel, chunk: Chunk, start: int, stop: int) -> tuple[IntArray, FloatArray]:
        """Return partial sums (n, steps, m) of a first booster that rests, of rows of a chunk from ``start`` on.

        Until ``stop`` neither its trees nor the experts change. What was walked is kept for calls with later rows.
        """
        if self.ahead is None or self.ahead.chunk is not chunk or not self.ahead.start <= start < self.ahead.stop:
            steps = self.steps(model)
            sums = np.empty((stop - start, len(steps), model.boosters[0].loss.n_outputs))
            tree_loop.walk_ahead(chunk.X, start, stop, self.plan, self.rates, self.trees, self.lines, steps, sums)
            self.ahead = Ahead(chunk, start, stop, steps, sums)
        ahead = self.ahead
        sums = ahead.sums[start - ahead.start :]
        if ahead.stop <= start + 1:
            self.ahead = None
        return ahead.steps, sums

    def load(self, boosters: Sequence[Booster], scales: Sequence[Scale] = ()) -> None:
        """Bring over what the first rows may change: the scales at which bases learn, and where constants stand."""
        for r, booster in enumerate(boosters):
            self.rates[r, layout.SPREAD] = (scales[r] if scales else booster.scale).spread
            self.rates[r, layout.NEWTON] = compiled.newton(booster)
            if isinstance(booster.base, Constant):
                self.lines.weights[r, -1] = booster.base.y0


def _windows(boosters: Sequence[Booster]) -> list[Any]:
    """The windows that the kernel writes to; of boosters whose trees rest, which are handed their rows, nothing."""
    held = [booster.replay for booster in boosters if booster.replay is not None]
    shared = [window.bins for window in held if not window.is_carried] or [held[0].bins]
    none = SimpleNamespace(
        counts=np.zeros(6, np.int64), _X=np.zeros((0, boosters[0].stack.n_features)), _weight=np.zeros(0),
        _y=np.zeros((0, boosters[0].loss.n_targets)), _leaf_ids=np.zeros(0, np.uint16), _codes=np.zeros(0, np.uint8),
    )  # fmt: skip
    windows: list[Any] = []
    for window in held:
        if window.is_carried:
            bins = {name: np.zeros_like(getattr(shared[0], name)) for name in ("edges", "n_edges", "level_bins")}
            windows.append(SimpleNamespace(**vars(none), bins=SimpleNamespace(**bins)))
        else:
            windows.append(window)
    return windows


def _plan(boosters: Sequence[Booster]) -> tuple[NDArray[np.int64], FloatArray]:
    """Return where the arrays of each booster begin and what it was told to do, and its rates."""
    plan, rates = np.zeros((len(boosters), layout.PLAN), np.int64), np.zeros((len(boosters), layout.RATES))
    at = np.zeros(6, np.int64)  # where trees, nodes, leaves, rows, leaf ids and codes begin
    for row, numbers, booster in zip(plan, rates, boosters, strict=True):
        stack, held = booster.stack, booster.replay
        assert isinstance(stack, TreeStack)
        assert held is not None
        assert held.window is not None
        N, n_leaves = stack.n_learners, 2**stack.max_depth
        row[[layout.TREE, layout.NODE, layout.LEAF, layout.ROW, layout.LEAF_ID, layout.CODE]] = at
        row[[layout.N_TREES, layout.DEPTH, layout.OTHER]] = N, stack.max_depth, stack.other_bin
        row[layout.BASE], row[layout.ROOM] = compiled.base_rule(booster), held.window
        row[[layout.EVERY, layout.SOONEST, layout.WARMUP]] = held.refit_every, held.soonest, held.warmup
        row[layout.RESTS], room = booster.rests, 0 if booster.rests else held.window
        at += (N, N * (n_leaves - 1), N * n_leaves, room, room * N, room * stack.n_features)
        numbers[:] = compiled.rates(booster)
        numbers[layout.L2], numbers[layout.FORGET] = stack.l2, math.inf if stack.forget is None else stack.forget
    return plan, rates


def _tile_bases(boosters: Sequence[Booster], name: str, shape: tuple[int, ...]) -> FloatArray:
    """The bases' arrays; those of a constant, and those a rule does without, stay unused zeros."""
    is_moment = name in ("count", "mean", "m2")
    owners = [getattr(booster.base, "inputs", None) if is_moment else booster.base for booster in boosters]
    held = [getattr(owner, name, None) for owner in owners]
    if all(array is not None for array in held):
        return _tile(owners, name, (len(owners), *shape))
    if name in ("squares", "covariance") and all(array is None for array in held):
        shape = (1, 1)
    tiled = np.zeros((len(owners), *shape))
    for owner, array, view in zip(owners, held, tiled, strict=True):
        if array is not None:
            view[:] = array
            setattr(owner, name, view)
    return tiled


def _signs(boosters: Sequence[Booster]) -> Signs:
    """The signs of the bases' weights, of no width where none has any."""
    signs = [getattr(booster.base, "signs", np.zeros(0, np.int8)) for booster in boosters]
    width = max(map(len, signs))
    return np.stack([own if len(own) else np.zeros(width, np.int8) for own in signs])


def _tile(owners: Sequence[Any], name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Lay the owners' arrays end to end in one of this shape, and leave each owner a view of its part."""
    parts = [getattr(owner, name) for owner in owners]
    parent = _parent(parts)
    if parent is None:
        parent, at = np.concatenate([part.reshape(-1) for part in parts]), 0
        for owner, part in zip(owners, parts, strict=True):
            setattr(owner, name, parent[at : at + part.size].reshape(part.shape))
            at += part.size
    return parent.reshape(shape)


def _parent(parts: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The array that these views already tile contiguously, else None: what a new column leaves as it is stays."""
    if not all(part.flags.c_contiguous for part in parts):
        return None
    if len(parts) == 1:
        return parts[0]
    parent = parts[0].base
    if not isinstance(parent, np.ndarray) or parent.dtype != parts[0].dtype or not parent.flags.c_contiguous:
        return None
    at = parent.ctypes.data
    for part in parts:
        if part.base is not parent or part.ctypes.data != at:
            return None
        at += part.nbytes
    return parent if at == parent.ctypes.data + parent.nbytes else None
