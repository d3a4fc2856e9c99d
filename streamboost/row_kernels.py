"""The native row loop: what ``Booster.ask``, the hedge and ``Booster.tell`` do for a row, for all boosters at once.

The arrays of all boosters lie end to end (see :mod:`streamboost.native`); ``plan`` (R, :data:`PLAN`) and ``rates``
(R, :data:`RATES`) tell where those of each booster begin and what it was told to do. A row is first walked
through every booster, then the hedge mixes what their partial sums say, and only then anything learns.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import BoolArray, FloatArray, IntArray
from streamboost.compiled import compiled, compiled_inside

Leaves = NDArray[np.uint16]
Codes = NDArray[np.uint8]
LevelBins = NDArray[np.uint8]
Signs = NDArray[np.int8]
Rule = tuple[int, float, float, int]  # the loss: its number, its option, its ridge; and the descent
# of the inputs: count, mean, m2 and the signs their weights must have; weights; what each level of a category adds
Line = tuple[FloatArray, FloatArray, FloatArray, Signs, FloatArray, FloatArray]
# eta; feature, threshold, missing_left and subset of the nodes; stats and bounds of the leaves; level_bins, cat_at
Trees = tuple[
    FloatArray, IntArray, FloatArray, BoolArray, NDArray[np.uint64], FloatArray, FloatArray, LevelBins, IntArray
]
Meters = tuple[float, FloatArray, FloatArray, FloatArray]  # recall; missed, size and recent of the edges
Slopes = tuple[FloatArray, FloatArray, FloatArray]  # what bases know beside that: squares, covariance, effect_sizes
# experts, decays, tempering, seen, losses, trust, voices
Hedging = tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
# edges, n_edges and level_bins; X, y, weight, marks and codes of the rows held
Windows = tuple[FloatArray, IntArray, LevelBins, FloatArray, FloatArray, FloatArray, Leaves, Codes]

# What a plan tells of a booster; what its replay counts; its rates. Kernels are compiled with these numbers in them.
N_TREES, TREE, NODE, LEAF, DEPTH, ROW, ROOM, MARK, CODE, EVERY, SOONEST, WARMUP, BASE, OTHER = range(14)
PLAN = 14
FILL, AT, WAITED, SEEN, WARM, DUE = range(6)
L2, FORGET, KEEP, RATE, SPREAD = range(5)
RATES = 5

SQUARED, ABSOLUTE, QUANTILE, HUBER, POISSON, LOGISTIC, HINGE, SOFTMAX = range(8)
STILL, LEAST_SQUARES, ADAGRAD = range(3)  # how a base learns
DESCENT, RESIDUAL = range(2)
READ_LAST, READ_MEAN, READ_HEDGE, READ_HEDGE_OF_MEANS = range(4)  # experts are partial sums, or means of them
LARGEST_EXPONENT = 300.0
SMALLEST, LARGEST = 2.2250738585072014e-308, 1.7976931348623157e308
CLIP = 5.0
TIE = 1e-9
SHRINK = 2.0  # rows of 0 that the mean of a level begins with
LOG_SHARE, WRONG_SHARE, SURPRISE, FAR_OFF = 0.1, 0.5, 9.210340371976182, 2.0  # see streamboost.hedge


# Losses: the formulas of streamboost.losses for one row.


@compiled_inside
def to_prediction(kind: int, score: FloatArray, out: FloatArray) -> None:
    """Where experts are mixed: probabilities and means for log losses, else the scores themselves."""
    m = score.shape[0]
    if kind == SOFTMAX:
        top = score[0]
        for k in range(1, m):
            top = max(top, score[k])
        total = 0.0
        for k in range(m):
            out[k] = math.exp(score[k] - top)
            total += out[k]
        for k in range(m):
            out[k] /= total
    elif kind == LOGISTIC:
        for k in range(m):
            small = math.exp(-abs(score[k]))
            out[k] = (1.0 if score[k] >= 0.0 else small) / (1.0 + small)
    elif kind == POISSON:
        for k in range(m):
            out[k] = math.exp(min(max(score[k], -LARGEST_EXPONENT), LARGEST_EXPONENT))
    else:
        for k in range(m):
            out[k] = score[k]


@compiled_inside
def to_score(kind: int, out: FloatArray) -> None:
    """Back from there, in place."""
    m = out.shape[0]
    if kind == SOFTMAX:
        mean = 0.0
        for k in range(m):
            out[k] = math.log(max(out[k], SMALLEST))
            mean += out[k] / m
        for k in range(m):
            out[k] -= mean
    elif kind == LOGISTIC:
        for k in range(m):
            p = min(max(out[k], SMALLEST), 1.0 - 1.1102230246251565e-16)
            out[k] = math.log(p) - math.log1p(-p)
    elif kind == POISSON:
        for k in range(m):
            out[k] = math.log(max(out[k], math.exp(-LARGEST_EXPONENT)))


@compiled_inside
def add_gradient(kind: int, option: float, ridge: float, score: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """Add the gradient of the loss at ``score`` (m,) to ``out``."""
    m = score.shape[0]
    if kind == SOFTMAX:
        probability = np.empty(m)
        to_prediction(kind, score, probability)
        for k in range(m):
            out[k] += probability[k]
        out[int(y[0])] -= 1.0
    else:
        for k in range(m):
            out[k] += slope(kind, option, score[k], y[k])
    if ridge != 0.0:
        for k in range(m):
            out[k] += 2.0 * ridge * score[k]


@compiled_inside
def slope(kind: int, option: float, s: float, y: float) -> float:
    """The derivative of a loss that is a sum over outputs."""
    if kind == SQUARED:
        return s - y
    if kind == LOGISTIC:
        small = math.exp(-abs(s))
        return -y * ((small if y * s >= 0.0 else 1.0) / (1.0 + small))
    if kind == ABSOLUTE:
        return 1.0 if s > y else (-1.0 if s < y else 0.0)
    if kind == QUANTILE:
        return 1.0 - option if s > y else (-option if s < y else 0.0)
    if kind == HUBER:
        return min(max(s - y, -option), option)
    if kind == POISSON:
        return math.exp(min(s, LARGEST_EXPONENT)) - y
    return -y if y * s < 1.0 else 0.0  # the hinge


@compiled_inside
def value(kind: int, option: float, ridge: float, score: FloatArray, y: FloatArray) -> float:
    """The loss of ``score`` (m,)."""
    m = score.shape[0]
    total = 0.0
    if kind == SOFTMAX:
        top = score[0]
        for k in range(1, m):
            top = max(top, score[k])
        for k in range(m):
            total += math.exp(score[k] - top)
        total = math.log(total) - (score[int(y[0])] - top)
    for k in range(m):
        s = score[k]
        if ridge != 0.0:
            total += ridge * s * s
        if kind == SQUARED:
            total += 0.5 * (s - y[k]) * (s - y[k])
        elif kind == LOGISTIC:
            total += max(0.0, -y[k] * s) + math.log1p(math.exp(-abs(s)))
        elif kind == ABSOLUTE:
            total += abs(s - y[k])
        elif kind == QUANTILE:
            total += max(option * (y[k] - s), (option - 1.0) * (y[k] - s))
        elif kind == HUBER:
            error = abs(s - y[k])
            curved = min(error, option)
            total += curved * (error - 0.5 * curved)
        elif kind == POISSON:
            exponent = min(s, LARGEST_EXPONENT)
            total += math.exp(exponent) * (1.0 + (s - exponent)) - y[k] * s
        elif kind == HINGE:
            total += max(0.0, 1.0 - y[k] * s)
    return total


# One row through one booster.


@compiled_inside
def standardize_row(x: FloatArray, count: FloatArray, mean: FloatArray, m2: FloatArray, z: FloatArray) -> None:
    """Write (x - mean) / sd, clipped, and a last 1; missing values and constant columns become 0."""
    d = x.shape[0]
    for j in range(d):
        variance = m2[j] / count[j] if count[j] > 0.0 else 0.0
        inverse = 1.0 / math.sqrt(variance) if variance > 1e-20 * mean[j] * mean[j] else 0.0
        z[j] = min(max((x[j] - mean[j]) * inverse, -CLIP), CLIP) if x[j] == x[j] else 0.0
    z[d] = 1.0


@compiled_inside
def learn_moments_row(
    x: FloatArray, w: float, cat_at: IntArray, count: FloatArray, mean: FloatArray, m2: FloatArray
) -> None:
    """Take a row into the running moments; levels have none, and so are all 0 to a line."""
    for j in range(x.shape[0]):
        if x[j] == x[j] and cat_at[j] < 0:
            count[j] += w
            away = x[j] - mean[j]
            mean[j] += away * (w / count[j])
            m2[j] += w * away * (x[j] - mean[j])


@compiled_inside
def apply_row(z: FloatArray, W: FloatArray, signs: Signs, out: FloatArray) -> None:
    """y⁰ = Wᵀ z, where a weight of the wrong sign counts as 0."""
    for k in range(out.shape[0]):
        out[k] = 0.0
    for a in range(z.shape[0]):
        for k in range(out.shape[0]):
            if signs.shape[0] == 0 or a == signs.shape[0] or signs[a] * W[a, k] >= 0.0:
                out[k] += z[a] * W[a, k]


@compiled_inside
def level_of(x: float, n_levels: int) -> int:
    """The level a value stands for; all beyond the last one known share it."""
    return int(x) if 0.0 <= x < n_levels else n_levels - 1


@compiled_inside
def add_effects(x: FloatArray, cat_at: IntArray, effects: FloatArray, out: FloatArray) -> None:
    """Add what the levels of a row add to y⁰."""
    if effects.shape[0] == 0:
        return
    for j in range(x.shape[0]):
        if cat_at[j] >= 0 and x[j] == x[j]:
            level = level_of(x[j], effects.shape[1])
            for k in range(out.shape[0]):
                out[k] += effects[cat_at[j], level, k]


@compiled_inside
def walk_row(
    x: FloatArray, plan: IntArray, rates: FloatArray, trees: Trees, leaf: Leaves, h: FloatArray, walk: FloatArray
) -> None:
    """Walk a row through one booster: its leaf in each tree, what they say, and the partial sums from y⁰ = walk[0]."""
    eta, feature, threshold, missing_left, subset, stats, bounds, level_bins, cat_at = trees
    n_trees, depth, tree = plan[N_TREES], plan[DEPTH], plan[TREE]
    n_nodes, n_leaves = (1 << depth) - 1, 1 << depth
    m = walk.shape[1]
    has_levels, has_bounds = level_bins.shape[1] > 0, bounds.shape[0] > 0
    for i in range(n_trees):
        leaf[i] = 0
    for level in range(depth):
        first = plan[NODE] + (1 << level) - 1
        for i in range(n_trees):  # all trees a level down: steps that neither wait for one another nor branch
            p = first + i * n_nodes + int(leaf[i])
            v, cut = x[max(feature[p], 0)], threshold[p]
            goes_left = (v <= cut) | (missing_left[p] & (v != v))
            if has_levels and cut != cut and v == v:  # a cut of NaN parts levels
                bins = level_bins[tree + i, cat_at[feature[p]]]
                bin_ = np.uint64(bins[int(v)] if 0.0 <= v < bins.shape[0] else plan[OTHER])
                goes_left = (subset[p] >> bin_) & np.uint64(1) != 0
            leaf[i] = 2 * int(leaf[i]) + 1 - int(goes_left)
    l2 = rates[L2]
    for i in range(n_trees):
        q = plan[LEAF] + i * n_leaves + int(leaf[i])
        weight = stats[q, m] + l2
        scale = 1.0 / weight if weight > 0.0 else 0.0
        step = eta[tree + i]
        for k in range(m):
            said = stats[q, k] * scale
            if has_bounds:
                said = min(max(said, bounds[q, 0]), bounds[q, 1])
            h[i, k] = said
            walk[i + 1, k] = walk[i, k] - step * said


@compiled_inside
def set_targets(rule: Rule, y: FloatArray, h: FloatArray, walk: FloatArray, targets: FloatArray) -> bool:
    """What each learner should have said: ∇ᵢ, or Δᵢ₋₁ + ∇ᵢ; return whether all of it is finite."""
    kind, option, ridge, descent = rule
    n_trees, m = h.shape
    if kind == SOFTMAX:
        for i in range(n_trees):
            set_softmax_gradient(walk, targets, i, int(y[0]))
    else:
        for k in range(m):
            goal = y[k]
            if kind == SQUARED:
                for i in range(n_trees):
                    targets[i, k] = walk[i, k] - goal
            elif kind == LOGISTIC:
                for i in range(n_trees):
                    targets[i, k] = slope(LOGISTIC, option, walk[i, k], goal)
            else:
                for i in range(n_trees):
                    targets[i, k] = slope(kind, option, walk[i, k], goal)
    if ridge != 0.0:
        for i in range(n_trees):
            for k in range(m):
                targets[i, k] += 2.0 * ridge * walk[i, k]
    if descent == RESIDUAL:
        for k in range(m):
            carried = 0.0
            for i in range(n_trees):
                targets[i, k] += carried
                carried = targets[i, k] - h[i, k]
    is_finite = True
    for i in range(n_trees):
        for k in range(m):
            is_finite &= abs(targets[i, k]) <= LARGEST
    return is_finite


@compiled_inside
def set_softmax_gradient(walk: FloatArray, targets: FloatArray, i: int, label: int) -> None:
    """The probabilities at one partial sum, minus 1 at the label."""
    m = walk.shape[1]
    top = walk[i, 0]
    for k in range(1, m):
        top = max(top, walk[i, k])
    total = 0.0
    for k in range(m):
        targets[i, k] = math.exp(walk[i, k] - top)
        total += targets[i, k]
    inverse = 1.0 / total
    for k in range(m):
        targets[i, k] *= inverse
    targets[i, label] -= 1.0


@compiled_inside
def learn_leaves(
    plan: IntArray, rates: FloatArray, stats: FloatArray, leaf: Leaves, targets: FloatArray, w: float
) -> None:
    """Add a row's targets to its leaves; a leaf that weighs ``forget`` fades first."""
    n_leaves = 1 << plan[DEPTH]
    n_trees, m = targets.shape
    forget = rates[FORGET]
    q = plan[LEAF]
    for i in range(n_trees):
        at = q + int(leaf[i])
        weight = stats[at, m]
        fade = (forget - 1.0) / weight if weight >= forget else 1.0
        for k in range(m):
            stats[at, k] = stats[at, k] * fade + w * targets[i, k]
        stats[at, m] = weight * fade + w
        q += n_leaves


@compiled_inside
def least_squares_row(
    z: FloatArray,
    y: FloatArray,
    known: FloatArray,
    w: float,
    forget: float,
    count: FloatArray,
    W: FloatArray,
    P: FloatArray,
) -> None:
    """One step of recursive least squares towards y, less what is known of it."""
    p, m = W.shape
    Pz = np.empty(p)
    if forget < 1.0:
        trace, n_seen = 0.0, 0
        for a in range(p):
            if a == p - 1 or count[a] > 0.0:
                trace += P[a, a]
                n_seen += 1
        if trace < 10.0 * n_seen:  # directions no row excites would otherwise grow without bound
            grown = 1.0 / forget
            for a in range(p):
                if a == p - 1 or count[a] > 0.0:
                    for b in range(p):
                        P[a, b] *= grown
    zPz = 0.0
    for a in range(p):
        total = 0.0
        for b in range(p):
            total += P[a, b] * z[b]
        Pz[a] = total
        zPz += total * z[a]
    gain = w / (1.0 + w * max(zPz, 0.0))
    for k in range(m):
        error = y[k] - known[k]
        for a in range(p):
            error -= z[a] * W[a, k]
        for a in range(p):
            W[a, k] += gain * error * Pz[a]
    for a in range(p):
        for b in range(a + 1):
            P[a, b] -= gain * Pz[a] * Pz[b]
            P[b, a] = P[a, b]


@compiled_inside
def adagrad_row(
    rule: Rule,
    z: FloatArray,
    y: FloatArray,
    known: FloatArray,
    forget: float,
    rate: float,
    signs: Signs,
    W: FloatArray,
    G: FloatArray,
    gradient: FloatArray,
) -> None:
    """One adaptive step on the loss itself, whose gradient is left in ``gradient``."""
    kind, option, ridge, _ = rule
    p, m = W.shape
    score = np.empty(m)
    apply_row(z, W, signs, score)
    for k in range(m):
        score[k] += known[k]
        gradient[k] = 0.0
    add_gradient(kind, option, ridge, score, y, gradient)
    for a in range(p):
        for k in range(m):
            g = z[a] * gradient[k]
            G[a, k] = forget * G[a, k] + g * g
            if G[a, k] > 0.0:
                W[a, k] -= rate * g / math.sqrt(G[a, k])


@compiled_inside
def learn_base_row(
    rule: Rule, base: int, x: FloatArray, y: FloatArray, w: float, rates: FloatArray, cat_at: IntArray, z: FloatArray,
    count: FloatArray, mean: FloatArray, m2: FloatArray, signs: Signs, W: FloatArray, effects: FloatArray,
    G: FloatArray, P: FloatArray, sizes: FloatArray,
) -> None:  # fmt: skip
    """Let a linear base learn a row: its inputs' moments, its weights, and what levels add."""
    m = W.shape[1]
    known, gradient = np.zeros(m), np.empty(m)
    learn_moments_row(x, w, cat_at, count, mean, m2)
    standardize_row(x, count, mean, m2, z)
    add_effects(x, cat_at, effects, known)
    rate = rates[RATE] * rates[SPREAD]
    if base == LEAST_SQUARES:
        least_squares_row(z, y, known, w, rates[KEEP], count, W, P)
    else:
        adagrad_row(rule, z, y, known, rates[KEEP], rate, signs, W, G, gradient)
    if effects.shape[0] == 0:
        return
    if base == LEAST_SQUARES:
        apply_row(z, W, signs, gradient)
        for k in range(m):
            gradient[k] += known[k] - y[k]
    for j in range(x.shape[0]):
        if cat_at[j] >= 0 and x[j] == x[j]:
            c, level = cat_at[j], level_of(x[j], effects.shape[1])
            for k in range(m):
                g = gradient[k]
                if base == LEAST_SQUARES:  # a mean of what is left, pulled towards 0
                    sizes[c, level, k] = rates[KEEP] * sizes[c, level, k] + w
                    effects[c, level, k] -= w * g / (sizes[c, level, k] + SHRINK)
                else:
                    sizes[c, level, k] = rates[KEEP] * sizes[c, level, k] + g * g
                    if sizes[c, level, k] > 0.0:
                        effects[c, level, k] -= rate * g / math.sqrt(sizes[c, level, k])


@compiled_inside
def interval(fill: int, room: int, every: int, soonest: int) -> int:
    """Rows between two refits, as full as the window is now."""
    share = fill / room
    return max(soonest, int(every * share * math.sqrt(share)))


@compiled_inside
def remember_row(
    x: FloatArray,
    y: FloatArray,
    w: float,
    plan: IntArray,
    counts: IntArray,
    leaf: Leaves,
    cat_at: IntArray,
    r: int,
    windows: Windows,
) -> bool:
    """Write the row over the oldest in the window; return whether a refit is due."""
    all_edges, all_n_edges, all_level_bins, X, Y, W, marks, codes = windows
    d, edges, n_edges, level_bins = x.shape[0], all_edges[r], all_n_edges[r], all_level_bins[r]
    n_trees, at = plan[N_TREES], counts[AT]
    row = plan[ROW] + at
    for j in range(d):
        X[row, j] = x[j]
    for k in range(y.shape[0]):
        Y[row, k] = y[k]
    W[row] = w
    mark = plan[MARK] + at * n_trees
    for i in range(n_trees):
        marks[mark + i] = leaf[i]
    if counts[WARM]:
        missing = edges.shape[1] + 1
        for j in range(d):
            below = 0
            for b in range(n_edges[j]):  # all of them: vectorised, faster than halving
                below += edges[j, b] < x[j]
            if cat_at[j] >= 0:
                below = int(level_bins[cat_at[j], int(x[j])]) if 0.0 <= x[j] < level_bins.shape[1] else plan[OTHER]
            codes[plan[CODE] + j * plan[ROOM] + at] = missing if x[j] != x[j] else below
    counts[AT] = (at + 1) % plan[ROOM]
    counts[FILL] = min(counts[FILL] + 1, plan[ROOM])
    counts[WAITED] += 1
    counts[SEEN] += 1
    if counts[WARM]:
        counts[DUE] = counts[WAITED] >= interval(counts[FILL], plan[ROOM], plan[EVERY], plan[SOONEST])
    else:
        counts[DUE] = counts[FILL] >= plan[WARMUP]
    return bool(counts[DUE] != 0)


# The hedge: streamboost.hedge for one row.


@compiled_inside
def read_walk(walk: FloatArray, step: int, averages: bool, out: FloatArray) -> None:
    """The score of the first ``step`` learners: their last partial sum, or the mean of all."""
    for k in range(out.shape[0]):
        if averages and step > 0:
            total = 0.0
            for i in range(1, step + 1):
                total += walk[i, k]
            out[k] = total / step
        else:
            out[k] = walk[step, k]


@compiled_inside
def read_experts(averages: bool, experts: IntArray, walks: FloatArray, first: IntArray, said: FloatArray) -> None:
    """What every expert says, (E, m)."""
    for e in range(experts.shape[0]):
        read_walk(walks[first[experts[e, 0]] :], experts[e, 1], averages, said[e])


@compiled_inside
def mix(kind: int, voices: FloatArray, said: FloatArray, out: FloatArray, prediction: FloatArray) -> None:
    """The experts' vote, (m,)."""
    for k in range(out.shape[0]):
        out[k] = 0.0
    for e in range(voices.shape[0]):
        to_prediction(kind, said[e], prediction)
        for k in range(out.shape[0]):
            out[k] += voices[e] * prediction[k]
    to_score(kind, out)


@compiled_inside
def stake(kind: int, option: float, ridge: float, score: FloatArray, y: FloatArray) -> float:
    """What an expert loses on a row: for classes a little of the loss, and more if the class is wrong."""
    lost: float = value(kind, option, ridge, score, y)
    if kind == SOFTMAX:
        wrong = 0.0
        label = int(y[0])
        for k in range(score.shape[0]):
            if score[k] > score[label] + TIE:
                wrong = 1.0
        return LOG_SHARE * min(lost, SURPRISE) + WRONG_SHARE * wrong
    if kind in (LOGISTIC, HINGE):
        wrong = 0.0
        for k in range(score.shape[0]):
            wrong += 1.0 if y[k] * score[k] <= TIE else 0.0
        most: float = (SURPRISE if kind == LOGISTIC else FAR_OFF) * score.shape[0]
        return LOG_SHARE * min(lost, most) + WRONG_SHARE * wrong
    return lost


@compiled_inside
def weigh(losses: FloatArray, temperature: float, trust: FloatArray) -> None:
    """Exponential weights of discounted losses."""
    best = losses[0]
    for e in range(1, losses.shape[0]):
        best = min(best, losses[e])
    total = 0.0
    for e in range(losses.shape[0]):
        trust[e] = math.exp(-(losses[e] - best) / temperature)
        total += trust[e]
    for e in range(losses.shape[0]):
        trust[e] /= total


@compiled_inside
def learn_hedge(rule: Rule, said: FloatArray, y: FloatArray, w: float, hedge: Hedging, duel: FloatArray) -> None:
    """Let every voter weigh the experts anew, and the chair weigh the voters.

    ``losses`` and ``trust`` (V + 1, E or more) hold a row for each voter and, last, one for the chair.
    """
    kind, option, ridge, _ = rule
    _, decays, tempering, seen, losses, trust, voices = hedge
    (E, m), V = said.shape, decays.shape[0] - 1
    predictions, lost, vote = np.empty((E, m)), np.empty(E), np.empty(m)
    for e in range(E):
        to_prediction(kind, said[e], predictions[e])
        lost[e] = stake(kind, option, ridge, said[e], y)
    if duel[0] >= 0.0:  # see streamboost.succession
        old = lost[int(duel[0])]
        more = w * (old - lost[int(duel[1])])
        duel[2] += 1.0
        duel[3] += more
        duel[4] += more * more
        duel[5] += w * old
    for v in range(V + 1):
        fade = decays[v] if w == 1.0 else decays[v] ** w
        seen[v] = fade * seen[v] + w
        n = E if v < V else V
        for e in range(n):
            losses[v, e] *= fade
    for v in range(V):  # what each voter would have said, and lost
        for k in range(m):
            vote[k] = 0.0
            for e in range(E):
                vote[k] += trust[v, e] * predictions[e, k]
        to_score(kind, vote)
        losses[V, v] += w * stake(kind, option, ridge, vote, y)
    for v in range(V):
        best = math.inf
        for e in range(E):
            losses[v, e] += w * lost[e]
            best = min(best, losses[v, e])
        weigh(losses[v, :E], max(tempering[0] * best / seen[v], SMALLEST) if tempering[0] > 0.0 else 1.0, trust[v, :E])
    best = math.inf
    for v in range(V):
        best = min(best, losses[V, v])
    weigh(losses[V, :V], max(tempering[1] * best / seen[V], SMALLEST) if tempering[1] > 0.0 else 1.0, trust[V, :V])
    for e in range(E):
        voices[e] = 0.0
        for v in range(V):
            voices[e] += trust[V, v] * trust[v, e]


@compiled
def learn_rows(
    X: FloatArray, y: FloatArray, weight: FloatArray, start: int, stop: int, scores: FloatArray,
    rule: Rule, readout: int, plan: IntArray, counts: IntArray, rates: FloatArray, hedge: Hedging, duel: FloatArray,
    trees: Trees, meters: Meters, lines: Line, slopes: Slopes, windows: Windows,
) -> int:  # fmt: skip
    """Predict and learn rows from ``start`` to ``stop``, or until a refit is due; return the row after the last one.

    A row whose gradient is not finite is not learned: then the answer is -1 - row.
    """
    kind = rule[0]
    experts, voices = hedge[0], hedge[6]
    stats, (recall, missed, size, recent) = trees[5], meters
    (count, mean, m2, signs, W, effects), (G, P, sizes) = lines, slopes
    cat_at = trees[8]
    R, d, m = plan.shape[0], X.shape[1], scores.shape[1]
    T = missed.shape[0]
    first = np.empty(R, np.int64)
    for r in range(R):
        first[r] = plan[r, TREE] + r
    leaf, h, targets = np.empty(T, np.uint16), np.empty((T, m)), np.empty((T, m))
    walks = np.empty((T + R, m))
    z = np.empty((R, d + 1))
    said, prediction = np.empty((experts.shape[0], m)), np.empty(m)
    for s in range(start, stop):
        x, target, w = X[s], y[s], weight[s]
        is_finite = True
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            standardize_row(x, count[r], mean[r], m2[r], z[r])
            apply_row(z[r], W[r], signs[r], walk[0])
            add_effects(x, cat_at, effects[r], walk[0])
            walk_row(x, plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
            is_finite &= set_targets(rule, target, h[a:b], walk, targets[a:b])
        if not is_finite:
            return -1 - s
        if readout < READ_HEDGE:
            read_walk(walks, plan[0, N_TREES], readout == READ_MEAN, scores[s])
        else:
            read_experts(readout == READ_HEDGE_OF_MEANS, experts, walks, first, said)
            mix(kind, voices, said, scores[s], prediction)
            if w > 0.0:
                learn_hedge(rule, said, target, w, hedge, duel)
        is_due = False
        for r in range(R):
            a, b = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES]
            for i in range(a, b):
                lack, whole = 0.0, 0.0
                for k in range(m):
                    lack += (targets[i, k] - h[i, k]) * (targets[i, k] - h[i, k])
                    whole += targets[i, k] * targets[i, k]
                missed[i] += w * lack
                size[i] += w * whole
                recent[i, 0] = recall * recent[i, 0] + w * lack
                recent[i, 1] = recall * recent[i, 1] + w * whole
            if w > 0.0:
                if counts[r, WARM]:
                    learn_leaves(plan[r], rates[r], stats, leaf[a:b], targets[a:b], w)
                if plan[r, BASE] != STILL:
                    learn_base_row(
                        rule, plan[r, BASE], x, target, w, rates[r], cat_at, z[r], count[r], mean[r], m2[r], signs[r],
                        W[r], effects[r], G[r], P[r], sizes[r],
                    )  # fmt: skip
            is_due |= remember_row(x, target, w, plan[r], counts[r], leaf[a:b], cat_at, r, windows)
        if is_due:
            return s + 1
    return stop


@compiled
def score_rows(
    X: FloatArray, scores: FloatArray, rule: Rule, readout: int, plan: IntArray, rates: FloatArray,
    experts: IntArray, voices: FloatArray, trees: Trees, lines: Line,
) -> None:  # fmt: skip
    """The score (n, m) of every row; nothing changes."""
    kind = rule[0]
    count, mean, m2, signs, W, effects = lines
    R, (n, d), m = plan.shape[0], X.shape, scores.shape[1]
    T = trees[0].shape[0]
    first = np.empty(R, np.int64)
    for r in range(R):
        first[r] = plan[r, TREE] + r
    leaf, h, walks = np.empty(T, np.uint16), np.empty((T, m)), np.empty((T + R, m))
    z, said, prediction = np.empty(d + 1), np.empty((experts.shape[0], m)), np.empty(m)
    for s in range(n):
        for r in range(R):
            a, b, o = plan[r, TREE], plan[r, TREE] + plan[r, N_TREES], first[r]
            walk = walks[o : o + b - a + 1]
            standardize_row(X[s], count[r], mean[r], m2[r], z)
            apply_row(z, W[r], signs[r], walk[0])
            add_effects(X[s], trees[8], effects[r], walk[0])
            walk_row(X[s], plan[r], rates[r], trees, leaf[a:b], h[a:b], walk)
        if readout < READ_HEDGE:
            read_walk(walks, plan[0, N_TREES], readout == READ_MEAN, scores[s])
        else:
            read_experts(readout == READ_HEDGE_OF_MEANS, experts, walks, first, said)
            mix(kind, voices, said, scores[s], prediction)


@compiled_inside
def leaf_steps(stats: FloatArray, bounds: FloatArray, l2: float, eta: FloatArray, n: int) -> FloatArray:
    """How far each leaf of the first n trees moves a score, η h, (n, leaves, m)."""
    n_leaves, m = stats.shape[1], stats.shape[2] - 1
    steps = np.empty((n, n_leaves, m))
    for j in range(n):
        for q in range(n_leaves):
            weight = stats[j, q, m] + l2
            for k in range(m):
                said = stats[j, q, k] / weight if weight > 0.0 else 0.0
                if bounds.shape[1] > 0:
                    said = min(max(said, bounds[j, q, 0]), bounds[j, q, 1])
                steps[j, q, k] = eta[j] * said
    return steps


@compiled_inside
def base_scores(X: FloatArray, line: Line, cat_at: IntArray, scores: FloatArray) -> None:
    """y⁰ of remembered rows, (n, m)."""
    count, mean, m2, signs, given, effects = line
    n, d = X.shape
    m = scores.shape[1]
    W = given.copy()
    for j in range(signs.shape[0]):
        for k in range(m):
            if signs[j] * W[j, k] < 0.0:
                W[j, k] = 0.0
    inverse = np.empty(d)
    for j in range(d):
        variance = m2[j] / count[j] if count[j] > 0.0 else 0.0
        inverse[j] = 1.0 / math.sqrt(variance) if variance > 1e-20 * mean[j] * mean[j] else 0.0
    z = np.empty(d)
    for s in range(n):
        for j in range(d):
            x = X[s, j]
            there = (x - mean[j]) * inverse[j]
            there = CLIP if there > CLIP else there
            there = -CLIP if there < -CLIP else there
            z[j] = there if x == x else 0.0
        for k in range(m):
            total = W[d, k]
            for j in range(d):
                total += z[j] * W[j, k]
            scores[s, k] = total
        add_effects(X[s], cat_at, effects, scores[s])


@compiled
def fresh_target(
    rule: Rule, X: FloatArray, y: FloatArray, line: Line, cat_at: IntArray, eta: FloatArray, stats: FloatArray,
    bounds: FloatArray, l2: float, marks: Leaves, i: int, target: FloatArray,
) -> None:  # fmt: skip
    """What learner i should say of remembered rows, as the base and the learners before it stand now, into (n, m)."""
    kind, option, ridge, descent = rule
    n, m = target.shape
    steps = leaf_steps(stats, bounds, l2, eta, i)
    scores = np.empty((n, m))
    base_scores(X, line, cat_at, scores)
    if descent == RESIDUAL:
        for s in range(n):
            for k in range(m):
                target[s, k] = 0.0
            for j in range(i):
                add_gradient(kind, option, ridge, scores[s], y[s], target[s])
                for k in range(m):
                    moved = steps[j, marks[s, j], k]
                    target[s, k] -= moved / eta[j] if eta[j] > 0.0 else 0.0
                    scores[s, k] -= moved
            add_gradient(kind, option, ridge, scores[s], y[s], target[s])
        return
    whole = i - i % 4
    if m == 1:
        for s in range(n):
            a, b, c, e = 0.0, 0.0, 0.0, 0.0  # four sums at a time: one would wait for itself
            for j in range(0, whole, 4):
                a += steps[j, marks[s, j], 0]
                b += steps[j + 1, marks[s, j + 1], 0]
                c += steps[j + 2, marks[s, j + 2], 0]
                e += steps[j + 3, marks[s, j + 3], 0]
            for j in range(whole, i):
                a += steps[j, marks[s, j], 0]
            scores[s, 0] -= (a + b) + (c + e)
    else:
        for s in range(n):
            for j in range(i):
                for k in range(m):
                    scores[s, k] -= steps[j, marks[s, j], k]
    set_gradients(kind, option, ridge, scores, y, target)


@compiled_inside
def set_gradients(
    kind: int, option: float, ridge: float, scores: FloatArray, y: FloatArray, target: FloatArray
) -> None:
    """The gradient of the loss for every row, (n, m)."""
    n, m = target.shape
    if kind == SOFTMAX:
        for s in range(n):
            set_softmax_gradient(scores, target, s, int(y[s, 0]))
    elif kind == SQUARED:
        for s in range(n):
            for k in range(m):
                target[s, k] = scores[s, k] - y[s, k]
    else:
        for s in range(n):
            for k in range(m):
                target[s, k] = slope(kind, option, scores[s, k], y[s, k])
    if ridge != 0.0:
        for s in range(n):
            for k in range(m):
                target[s, k] += 2.0 * ridge * scores[s, k]
