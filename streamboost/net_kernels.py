"""The native loop of networks: what ``Booster.ask``, the hedge and ``Booster.tell`` do for steps of so many rows.

As in :mod:`streamboost.row_kernels` everybody predicts before anything learns. The hidden layer a prediction needed is
kept for the step that follows it, so that rows go forward once.
"""

from __future__ import annotations

import math

import numpy as np

from streamboost import base_kernels, hedge_kernels, linear_kernels, loss_kernels, row_plan
from streamboost.arrays import FloatArray, IntArray
from streamboost.base_kernels import (
    LEAST_SQUARES,
    STILL,
    Line,
    Slopes,
    add_effects,
    apply_row,
    learn_base_row,
    learn_moments_row,
    standardize_row,
)
from streamboost.compiled import compiled_inside
from streamboost.hedge_kernels import (
    READ_HEDGE,
    READ_HEDGE_OF_MEANS,
    READ_MEAN,
    Hedging,
    learn_hedge,
    mix,
    read_experts,
    read_walk,
)
from streamboost.kernel_files import compiled_with
from streamboost.linear_kernels import least_squares_row
from streamboost.loss_kernels import Rule, add_gradient, set_targets
from streamboost.row_plan import KEEP, RATE, SPREAD, Meters
from streamboost.stacks import neural_kernels
from streamboost.stacks.conv_kernels import conv_backward, conv_forward, cut_patches
from streamboost.stacks.dense_kernels import dense_backward, dense_forward
from streamboost.stacks.output_kernels import follow_targets, in_units, set_errors
from streamboost.stacks.plan_kernels import (
    AVERAGED,
    BLOCK,
    INPUTS,
    KERNEL,
    LEARNERS,
    OUTPUTS,
    POSITIONS,
    UNIT,
    UNITS,
    Array,
    Ints,
)
from streamboost.stacks.step_kernels import take_step

Inputs = tuple[FloatArray, FloatArray, FloatArray]  # count, mean and m2 of what the networks see; of no length if raw
# plan and numbers; parameters, first, second and average; steps and scale: see streamboost.stacks.neural_kernels
Nets = tuple[Ints, FloatArray, Array, Array, Array, Array, Ints, FloatArray]
NOT_FINITE, LOST = range(2)  # why a step was not taken

ROOMS = (base_kernels, hedge_kernels, linear_kernels, loss_kernels, row_plan, neural_kernels, *neural_kernels.ROOMS)


@compiled_with(*ROOMS)
def learn_nets(
    X: FloatArray, y: FloatArray, weight: FloatArray, size: int, is_mean: bool, scores: FloatArray,
    rule: Rule, readout: int, base: int, rates: FloatArray, cat_at: IntArray, eta: FloatArray,
    hedge: Hedging, duel: FloatArray, meters: Meters, line: Line, slopes: Slopes,
    inputs: Inputs, learners: Nets, trouble: Ints,
) -> int:  # fmt: skip
    """Predict and learn rows in steps of ``size``; return how many were learned: all, or those before ``trouble``."""
    plan, numbers, parameters, first, second, average, steps, scale = learners
    N, m, d = plan[LEARNERS], plan[OUTPUTS], X.shape[1]
    size = max(min(size, X.shape[0]), 1)
    width = N * plan[UNITS] * plan[POSITIONS]
    Z, z = np.empty((size, d + 1), parameters.dtype), np.empty((size, d + 1))
    patches = np.empty((size, (plan[INPUTS] - 1) * plan[POSITIONS] if plan[KERNEL] > 0 else 0), parameters.dtype)
    hidden, delta = np.empty((size, width), parameters.dtype), np.empty((size, width), parameters.dtype)
    out, error = np.empty((size, N, m), parameters.dtype), np.empty((size, N, m), parameters.dtype)
    gradient = np.empty_like(parameters)
    h, targets, walk, read = np.empty((size, N, m)), np.empty((size, N, m)), np.empty((N + 1, m)), np.empty((N + 1, m))
    said, prediction = np.empty((size, hedge[0].shape[0], m)), np.empty(m)
    origin = np.zeros(1, np.int64)
    for start in range(0, X.shape[0], size):
        n = min(size, X.shape[0] - start)
        x, wanted, w = X[start : start + n], y[start : start + n], weight[start : start + n]
        set_inputs(x, inputs, cat_at, z, Z)
        if plan[KERNEL] > 0:
            cut_patches(Z[:n], plan, patches[:n])
        if plan[AVERAGED]:  # first, as what the present ones say is needed longer
            forward(Z[:n], patches[:n], plan, average, hidden[:n], out[:n])
            in_units(out[:n], scale, targets)
            for s in range(n):
                set_walk(x[s], base, line, cat_at, z[s], eta, targets[s], read)
                read_out(readout, rule[0], hedge, read, origin, said[s], prediction, scores[start + s])
        forward(Z[:n], patches[:n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, h)
        is_finite = True
        for s in range(n):
            set_walk(x[s], base, line, cat_at, z[s], eta, h[s], walk)
            is_finite &= set_targets(rule, wanted[s], h[s], walk, targets[s])
            if not plan[AVERAGED]:
                read_out(readout, rule[0], hedge, walk, origin, said[s], prediction, scores[start + s])
        if not is_finite:
            trouble[0] = NOT_FINITE
            return start
        total = 0.0
        for s in range(n):
            total += w[s]
        if total > 0.0:
            bad = follow_targets(targets[:n], w, plan, parameters, first, second, average, steps, scale)
            if bad < 0:
                out_of_units(h, scale, out[:n])  # exact: units are powers of two
                set_errors(out[:n], targets[:n], w, total if is_mean else 1.0, scale, error[:n])
                if plan[KERNEL] > 0:
                    room = delta.reshape(delta.size)[: plan[UNITS] * plan[POSITIONS]]
                    conv_backward(patches[:n], hidden[:n], error[:n], plan, parameters, room, gradient)
                else:
                    dense_backward(Z[:n], hidden[:n], error[:n], plan, parameters, delta[:n], gradient)
                bad = take_step(plan, numbers, parameters, gradient, first, second, average, steps)
            if bad >= 0:
                trouble[0], trouble[1] = LOST, bad
                return start
        count_edges(targets[:n], h, w, meters)
        if readout >= READ_HEDGE:
            for s in range(n):
                if w[s] > 0.0:
                    learn_hedge(rule, said[s], wanted[s], w[s], hedge, duel)
        if inputs[0].shape[0] > 0:
            for s in range(n):
                if w[s] > 0.0:
                    learn_moments_row(x[s], w[s], cat_at, inputs[0], inputs[1], inputs[2])
        if base != STILL and total > 0.0:
            learn_base(rule, base, is_mean, x, wanted, w, total, rates, cat_at, z, line, slopes)
    return len(X)


@compiled_with(*ROOMS)
def score_nets(
    X: FloatArray, scores: FloatArray, rule: Rule, readout: int, base: int, cat_at: IntArray, eta: FloatArray,
    hedge: Hedging, line: Line, inputs: Inputs, learners: Nets,
) -> None:  # fmt: skip
    """The score (n, m) of every row; nothing changes."""
    plan, parameters, scale = learners[0], learners[5] if learners[0][AVERAGED] else learners[2], learners[7]
    N, m, d = plan[LEARNERS], plan[OUTPUTS], X.shape[1]
    size = max(min(BLOCK, X.shape[0]), 1)
    Z, z = np.empty((size, d + 1), parameters.dtype), np.empty((size, d + 1))
    patches = np.empty((size, (plan[INPUTS] - 1) * plan[POSITIONS] if plan[KERNEL] > 0 else 0), parameters.dtype)
    hidden = np.empty((size, N * plan[UNITS] * plan[POSITIONS]), parameters.dtype)
    out, h, walk = np.empty((size, N, m), parameters.dtype), np.empty((size, N, m)), np.empty((N + 1, m))
    said, prediction, origin = np.empty((hedge[0].shape[0], m)), np.empty(m), np.zeros(1, np.int64)
    for start in range(0, X.shape[0], size):
        n = min(size, X.shape[0] - start)
        x = X[start : start + n]
        set_inputs(x, inputs, cat_at, z, Z)
        if plan[KERNEL] > 0:
            cut_patches(Z[:n], plan, patches[:n])
        forward(Z[:n], patches[:n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, h)
        for s in range(n):
            set_walk(x[s], base, line, cat_at, z[s], eta, h[s], walk)
            read_out(readout, rule[0], hedge, walk, origin, said, prediction, scores[start + s])


@compiled_inside
def set_inputs(X: FloatArray, inputs: Inputs, cat_at: IntArray, z: FloatArray, Z: Array) -> None:
    """What the networks see of rows: (n, d + 1), the last a 1; levels are left to the base."""
    count, mean, m2 = inputs
    n, d = X.shape
    for s in range(n):
        if count.shape[0] > 0:
            standardize_row(X[s], count, mean, m2, z[s])
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
def forward(Z: Array, patches: Array, plan: Ints, parameters: Array, hidden: Array, out: Array) -> None:
    """Both layers, of either kind of network."""
    if plan[KERNEL] > 0:
        conv_forward(patches, plan, parameters, hidden, out)
    else:
        dense_forward(Z, plan, parameters, hidden, out)


@compiled_inside
def out_of_units(h: FloatArray, scale: FloatArray, out: Array) -> None:
    """The opposite of ``in_units``, in units that may have changed."""
    for s in range(out.shape[0]):
        for i in range(out.shape[1]):
            for k in range(out.shape[2]):
                out[s, i, k] = h[s, i, k] / scale[UNIT, i]


@compiled_inside
def set_walk(
    x: FloatArray, base: int, line: Line, cat_at: IntArray, z: FloatArray, eta: FloatArray, h: FloatArray,
    walk: FloatArray,
) -> None:  # fmt: skip
    """The partial sums of one row, (N + 1, m)."""
    count, mean, m2, signs, W, effects = line
    if base == STILL:  # a constant: the intercept alone
        for k in range(h.shape[1]):
            walk[0, k] = W[x.shape[0], k]
    else:
        standardize_row(x, count, mean, m2, z)
        apply_row(z, W, signs, walk[0])
        add_effects(x, cat_at, effects, walk[0])
    for i in range(h.shape[0]):
        for k in range(h.shape[1]):
            walk[i + 1, k] = walk[i, k] - eta[i] * h[i, k]


@compiled_inside
def read_out(
    readout: int, kind: int, hedge: Hedging, walk: FloatArray, origin: IntArray, said: FloatArray,
    prediction: FloatArray, score: FloatArray,
) -> None:  # fmt: skip
    """The score (m,) of one row; under a hedge also what every expert says, (E, m)."""
    if readout < READ_HEDGE:
        read_walk(walk, walk.shape[0] - 1, readout == READ_MEAN, score)
    else:
        read_experts(readout == READ_HEDGE_OF_MEANS, hedge[0], walk, origin, said)
        mix(kind, hedge[6], said, score, prediction)


@compiled_inside
def count_edges(targets: FloatArray, h: FloatArray, weight: FloatArray, meters: Meters) -> None:
    """What ``EdgeMeter.add`` does: a step fades what is recent once."""
    recall, missed, size, recent = meters
    for i in range(targets.shape[1]):
        lack, whole = 0.0, 0.0
        for s in range(targets.shape[0]):
            for k in range(targets.shape[2]):
                target, gap = targets[s, i, k], targets[s, i, k] - h[s, i, k]
                lack += weight[s] * gap * gap
                whole += weight[s] * target * target
        missed[i] += lack
        size[i] += whole
        recent[i, 0] = recall * recent[i, 0] + lack
        recent[i, 1] = recall * recent[i, 1] + whole


@compiled_inside
def learn_base(
    rule: Rule, base: int, is_batch: bool, X: FloatArray, y: FloatArray, weight: FloatArray, total: float,
    rates: FloatArray, cat_at: IntArray, z: FloatArray, line: Line, slopes: Slopes,
) -> None:  # fmt: skip
    """Let a linear base learn: row by row, or as one chunk, which has no levels then."""
    (count, mean, m2, signs, W, effects), (G, P, sizes) = line, slopes
    n, m = y.shape[0], W.shape[1]
    if not is_batch:
        for s in range(n):
            if weight[s] > 0.0:
                learn_base_row(
                    rule, base, X[s], y[s], weight[s], rates, cat_at, z[s], count, mean, m2, signs, W, effects, G, P,
                    sizes,
                )  # fmt: skip
        return
    for s in range(n):
        if weight[s] > 0.0:
            learn_moments_row(X[s], weight[s], cat_at, count, mean, m2)
    score, gradient, slope = np.empty(m), np.empty(m), np.zeros(W.shape)
    for s in range(n):
        standardize_row(X[s], count, mean, m2, z[s])
        if base == LEAST_SQUARES:
            if weight[s] > 0.0:
                least_squares_row(z[s], y[s], weight[s], rates[KEEP], count, W, P)
            continue
        apply_row(z[s], W, signs, score)
        gradient[:] = 0.0
        add_gradient(rule[0], rule[1], rule[2], score, y[s], gradient)
        for a in range(W.shape[0]):
            for k in range(m):
                slope[a, k] += z[s, a] * gradient[k] * (weight[s] / total)
    if base == LEAST_SQUARES:
        return
    kept, step = rates[KEEP] ** n, rates[RATE] * rates[SPREAD]
    for a in range(W.shape[0]):
        for k in range(m):
            G[a, k] = kept * G[a, k] + slope[a, k] * slope[a, k]
            if G[a, k] > 0.0:
                W[a, k] -= step * slope[a, k] / math.sqrt(G[a, k])
