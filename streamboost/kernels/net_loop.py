"""The loop of networks: what ``Booster.forward``, the hedge and ``Booster.update`` do for steps of so many rows.

As in :mod:`streamboost.kernels.tree_loop` everybody predicts before anything learns. The hidden layer a prediction
needed is kept for the step that follows it, so that rows go forward once.
"""

from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.bases import STILL, Line, Slopes, learn_base, learn_inputs, set_base, standardize_row
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.edges import Meters, count_edges
from streamboost.kernels.hedge import READ_HEDGE, Hedging, learn_hedge, read_out, recall
from streamboost.kernels.losses import Rule, set_targets
from streamboost.kernels.nets.layout import AVERAGED, BLOCK, LEARNERS, OUTPUTS, UNIT, Array, Ints, Nets
from streamboost.kernels.nets.outputs import follow_targets, in_units, set_errors
from streamboost.kernels.nets.stacks import backward, forward, make_room
from streamboost.kernels.nets.steps import take_step

NOT_FINITE, LOST = range(2)  # why a step was not taken


class Inputs(NamedTuple):
    """The moments of what the networks see, (d,) each; of no length if they see it as it is."""

    counts: FloatArray
    mean: FloatArray
    m2: FloatArray


@compiled
def learn_nets(
    X: FloatArray, y: FloatArray, weight: FloatArray, size: int, is_mean: bool, scores: FloatArray, rule: Rule,
    readout: int, base: int, rates: FloatArray, cat_at: IntArray, eta: FloatArray, hedge: Hedging,
    paired_test: FloatArray, early: FloatArray, signature: float, meters: Meters, line: Line, slopes: Slopes,
    inputs: Inputs, nets: Nets, trouble: Ints,
) -> int:  # fmt: skip
    """Predict and learn rows in steps of ``size``; return how many were learned: all, or those before ``trouble``."""
    plan, parameters, scale = nets.plan, nets.parameters, nets.scale
    N, m, d = plan[LEARNERS], plan[OUTPUTS], X.shape[1]
    size = max(min(size, X.shape[0]), 1)
    Z, z = np.empty((size, d + 1), parameters.dtype), np.empty((size, d + 1))
    patches, hidden, delta, out, error = make_room(plan, size, parameters)
    gradient = np.empty_like(parameters)
    h, targets, walk, read = np.empty((size, N, m)), np.empty((size, N, m)), np.empty((N + 1, m)), np.empty((N + 1, m))
    expert_scores, prediction = np.empty((size, hedge.experts.shape[0], m)), np.empty(m)
    origin, early_scores = np.zeros(1, np.int64), np.empty((hedge.experts.shape[0], m))
    for start in range(0, X.shape[0], size):
        n = min(size, X.shape[0] - start)
        x, wanted, w = X[start : start + n], y[start : start + n], weight[start : start + n]
        set_inputs(x, inputs, cat_at, z, Z)
        if plan[AVERAGED]:  # first, as what the present ones say is needed longer
            forward(Z[:n], patches[:n], plan, nets.average, hidden[:n], out[:n])
            in_units(out[:n], scale, targets)
            for s in range(n):
                set_walk(x[s], line, cat_at, z[s], eta, targets[s], read)
                read_out(readout, rule.kind, hedge, read, origin, N, expert_scores[s], prediction, scores[start + s])
        forward(Z[:n], patches[:n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, h)
        is_finite = True
        for s in range(n):
            set_walk(x[s], line, cat_at, z[s], eta, h[s], walk)
            is_finite &= set_targets(rule, wanted[s], h[s], walk, targets[s])
            if not plan[AVERAGED]:
                read_out(readout, rule.kind, hedge, walk, origin, N, expert_scores[s], prediction, scores[start + s])
        if not is_finite:
            trouble[0] = NOT_FINITE
            return start
        total = 0.0
        for s in range(n):
            total += w[s]
        if total > 0.0:
            bad = follow_targets(targets[:n], w, nets)
            if bad < 0:
                out_of_units(h, scale, out[:n])  # exact: units are powers of two
                set_errors(out[:n], targets[:n], w, total if is_mean else 1.0, scale, error[:n])
                gradient[:] = 0
                backward(Z[:n], patches[:n], hidden[:n], error[:n], plan, parameters, delta, gradient)
                bad = take_step(nets, gradient)
            if bad >= 0:
                trouble[0], trouble[1] = LOST, bad
                return start
        count_edges(targets[:n], h[:n], w, meters)
        if readout >= READ_HEDGE:
            for s in range(n):
                if w[s] > 0.0:
                    recall(early[start + s], signature, expert_scores[s], early_scores)
                    learn_hedge(rule, expert_scores[s], early_scores, wanted[s], w[s], hedge, paired_test)
        if inputs.counts.shape[0] > 0:
            for s in range(n):
                if w[s] > 0.0:
                    learn_inputs(x[s], w[s], cat_at, inputs.counts, inputs.mean, inputs.m2)
        if base != STILL and total > 0.0:
            learn_base(rule, base, x, wanted, w, rates, cat_at, z[:n], line, slopes)
    return len(X)


@compiled
def score_nets(
    X: FloatArray, scores: FloatArray, rule: Rule, readout: int, cat_at: IntArray, eta: FloatArray, hedge: Hedging,
    line: Line, inputs: Inputs, nets: Nets, said: FloatArray,
) -> None:  # fmt: skip
    """The score (n, m) of every row, and what experts say, (n, E, m), if there is room for it; nothing changes."""
    plan, scale = nets.plan, nets.scale
    parameters = nets.average if plan[AVERAGED] else nets.parameters
    N, m, d = plan[LEARNERS], plan[OUTPUTS], X.shape[1]
    size = max(min(BLOCK, X.shape[0]), 1)
    Z, z = np.empty((size, d + 1), parameters.dtype), np.empty((size, d + 1))
    patches, hidden, _, out, _ = make_room(plan, size, parameters)
    h, walk = np.empty((size, N, m)), np.empty((N + 1, m))
    expert_scores, prediction, origin = np.empty((hedge.experts.shape[0], m)), np.empty(m), np.zeros(1, np.int64)
    for start in range(0, X.shape[0], size):
        n = min(size, X.shape[0] - start)
        x = X[start : start + n]
        set_inputs(x, inputs, cat_at, z, Z)
        forward(Z[:n], patches[:n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, h)
        for s in range(n):
            set_walk(x[s], line, cat_at, z[s], eta, h[s], walk)
            read_out(readout, rule.kind, hedge, walk, origin, N, expert_scores, prediction, scores[start + s])
            if said.shape[1] > 0:
                said[start + s] = expert_scores


@compiled_inside
def set_inputs(X: FloatArray, inputs: Inputs, cat_at: IntArray, z: FloatArray, Z: Array) -> None:
    """What the networks see of rows: (n, d + 1), the last a 1; levels are left to the base."""
    n, d = X.shape
    for s in range(n):
        if inputs.counts.shape[0] > 0:
            standardize_row(X[s], inputs.counts, inputs.mean, inputs.m2, z[s])
            for j in range(d):
                Z[s, j] = z[s, j]
        else:
            for j in range(d):
                Z[s, j] = X[s, j] if X[s, j] == X[s, j] else 0.0
        Z[s, d] = 1.0
    for j in range(d):
        if cat_at[j] >= 0:
            for s in range(n):
                Z[s, j] = 0.0


@compiled_inside
def out_of_units(h: FloatArray, scale: FloatArray, out: Array) -> None:
    """The opposite of ``in_units``, in units that may have changed."""
    for s in range(out.shape[0]):
        for i in range(out.shape[1]):
            for k in range(out.shape[2]):
                out[s, i, k] = h[s, i, k] / scale[UNIT, i]


@compiled_inside
def set_walk(
    x: FloatArray, line: Line, cat_at: IntArray, z: FloatArray, eta: FloatArray, h: FloatArray, walk: FloatArray
) -> None:
    """The partial sums of one row, (N + 1, m)."""
    set_base(x, line, cat_at, z, walk[0])
    for i in range(h.shape[0]):
        for k in range(h.shape[1]):
            walk[i + 1, k] = walk[i, k] - eta[i] * h[i, k]
