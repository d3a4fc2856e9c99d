"""The weights of the hedge (:mod:`streamboost.boosting.hedge`), and how a score is read out of a walk."""

import math
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.combining import Combining, combine, hold, learn_combining
from streamboost.kernels.compiling import compiled, compiled_inline, compiled_inside
from streamboost.kernels.losses import HINGE, LOGISTIC, SMALLEST, SOFTMAX, TIE, Rule, to_prediction, to_score, value

READ_LAST, READ_MEAN, READ_HEDGE, READ_HEDGE_OF_MEANS = range(4)  # experts are partial sums, or means of them
# What an expert on classes loses: a tenth of the log loss, of which no row counts for more than a probability of
# 0.0001 does, and half a point if its class is wrong.
LOG_SHARE, WRONG_SHARE, SURPRISE = 0.1, 0.5, -math.log(1e-4)
FULL = 0.5  # bits in the class of a row (one in nine): with fewer, half-lives are longer in proportion
FAR_OFF = 2.0  # the same for the hinge, which is no likelihood
# Two experts on the same rows: incumbent, challenger, n, Σd, Σd², Σ incumbent loss; d is the difference of losses
OLD, NEW, ROWS, TOTAL, SQUARES, LOST = range(6)


class Hedging(NamedTuple):
    """The state of a hedge over E experts, with V voters and a meta voter, whose rows are the last."""

    experts: IntArray  # (E, 2), booster and step
    decays: FloatArray  # (V + 1,)
    temperature_scale: FloatArray  # (2,), of the voters and of the meta voter
    seen: FloatArray  # (V + 1,), the discounted number of rows
    losses: FloatArray  # (V + 1, E or more), discounted
    posterior: FloatArray  # (V + 1, E or more)
    weights: FloatArray  # (E,)
    class_counts: FloatArray  # (n_classes,), of rows, discounted; empty if targets are no classes
    combining: Combining


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
def mix(kind: int, weights: FloatArray, expert_scores: FloatArray, out: FloatArray, prediction: FloatArray) -> None:
    """The experts' vote, (m,)."""
    for k in range(out.shape[0]):
        out[k] = 0.0
    for e in range(weights.shape[0]):
        to_prediction(kind, expert_scores[e], prediction)
        for k in range(out.shape[0]):
            out[k] += weights[e] * prediction[k]
    to_score(kind, out)


@compiled_inline
def read_out(
    readout: int, kind: int, hedge: Hedging, walks: FloatArray, first: IntArray, n_steps: int,
    expert_scores: FloatArray, prediction: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write the score of a row, (m,); under a hedge also that of every expert, (E, m).

    The partial sums of booster r begin at row ``first[r]`` of ``walks``; without a hedge there is one booster, of
    ``n_steps`` learners.
    """
    if readout < READ_HEDGE:
        read_walk(walks, n_steps, readout == READ_MEAN, out)
        return
    experts, averages = hedge.experts, readout == READ_HEDGE_OF_MEANS
    for e in range(experts.shape[0]):
        read_walk(walks[first[experts[e, 0]] :], experts[e, 1], averages, expert_scores[e])
        hold(hedge.combining.target_range, expert_scores[e])
    mix(kind, hedge.weights, expert_scores, out, prediction)
    combine(kind, expert_scores, hedge.combining, out)


@compiled_inside
def recall(kept: FloatArray, signature: float, expert_scores: FloatArray, early_scores: FloatArray) -> None:
    """Write what experts said when a row was predicted, (E, m): what they say now if these were other experts.

    What was ``kept`` is their signature, then their scores; of no length where nobody kept them.
    """
    E, m = expert_scores.shape
    is_theirs = kept.shape[0] > E * m and kept[0] == signature
    for e in range(E):
        for k in range(m):
            early_scores[e, k] = kept[1 + e * m + k] if is_theirs else expert_scores[e, k]


@compiled_inside
def expert_loss(kind: int, option: float, ridge: float, score: FloatArray, y: FloatArray) -> float:
    """What an expert loses on a row: for classes a little of the loss, and more if the class is wrong."""
    lost: float = value(kind, option, ridge, score, y)
    wrong, most = 0.0, SURPRISE
    if kind == SOFTMAX:
        own, n_equal = score[int(y[0])], 0.0  # classes that share the highest score: one of them is chosen
        for k in range(score.shape[0]):
            if score[k] > own + TIE:
                wrong = 1.0
            n_equal += 1.0 if score[k] >= own - TIE else 0.0
        wrong = max(wrong, 1.0 - 1.0 / n_equal)
    elif kind in (LOGISTIC, HINGE):
        for k in range(score.shape[0]):
            wrong += 0.5 if abs(score[k]) <= TIE else 1.0 if y[k] * score[k] < 0.0 else 0.0
        most = (SURPRISE if kind == LOGISTIC else FAR_OFF) * score.shape[0]
    else:
        return lost
    return LOG_SHARE * min(lost, most) + WRONG_SHARE * wrong


@compiled
def information(class_counts: FloatArray) -> float:
    """How fast half-lives pass, 1 at most: the entropy of the classes over that at which rows count in full."""
    total, bits = 0.0, 0.0
    for count in class_counts:
        total += count
    for count in class_counts:
        if count > 0.0:
            bits -= count / total * math.log2(count / total)
    return min(bits / FULL, 1.0) if class_counts.shape[0] > 1 else 1.0


@compiled
def count_class(kind: int, y: FloatArray, w: float, hedge: Hedging) -> float:
    """Count the class of a row; return by how much of a row half-lives pass."""
    counts = hedge.class_counts
    if counts.shape[0] < 2:
        return w
    elapsed: float = w * information(counts)
    label = int(y[0]) if kind == SOFTMAX else int(y[0] > 0.0) if y.shape[0] == 1 else int(np.argmax(y))
    counts *= hedge.decays[hedge.decays.shape[0] - 2] ** elapsed
    counts[label] += w
    return elapsed


@compiled_inside
def weigh(losses: FloatArray, temperature_scale: float, seen: float, posterior: FloatArray) -> None:
    """Exponential weights of discounted losses, in units of what the best has lost on a row if they are scaled."""
    best = losses[0]
    for e in range(1, losses.shape[0]):
        best = min(best, losses[e])
    temperature = 1.0
    if temperature_scale > 0.0:
        temperature = max(temperature_scale * best / (seen if seen > 0.0 else 1.0), SMALLEST)
    total = 0.0
    for e in range(losses.shape[0]):
        posterior[e] = math.exp(-(losses[e] - best) / temperature)
        total += posterior[e]
    for e in range(losses.shape[0]):
        posterior[e] /= total


@compiled
def reweigh(hedge: Hedging) -> None:
    """Let every voter weigh the experts by what they have lost, and the meta voter weigh the voters.

    ``losses`` and ``posterior`` (V + 1, E or more) hold a row for each voter and, last, one for the meta voter.
    """
    scale, seen, losses, posterior = hedge.temperature_scale, hedge.seen, hedge.losses, hedge.posterior
    E, V = hedge.weights.shape[0], hedge.decays.shape[0] - 1
    for v in range(V):
        weigh(losses[v, :E], scale[0], seen[v], posterior[v, :E])
    weigh(losses[V, :V], scale[1], seen[V], posterior[V, :V])
    for e in range(E):
        hedge.weights[e] = 0.0
        for v in range(V):
            hedge.weights[e] += posterior[V, v] * posterior[v, e]


@compiled
def count_losses(lost: FloatArray, w: float, elapsed: float, hedge: Hedging, paired_test: FloatArray) -> None:
    """Take in what the experts and, after them, the voters lost on a row (E + V,), whatever the loss; weigh anew.

    ``elapsed`` is what the row counts for in half-lives: see :func:`count_class`.
    """
    decays, seen, losses = hedge.decays, hedge.seen, hedge.losses
    E, V = hedge.weights.shape[0], decays.shape[0] - 1
    if paired_test[OLD] >= 0.0:  # see streamboost.boosting.drift_replacement
        old = lost[int(paired_test[OLD])]
        more = w * (old - lost[int(paired_test[NEW])])
        paired_test[ROWS] += 1.0
        paired_test[TOTAL] += more
        paired_test[SQUARES] += more * more
        paired_test[LOST] += w * old
    for v in range(V + 1):
        fade = decays[v] if elapsed == 1.0 else decays[v] ** elapsed
        seen[v] = fade * seen[v] + w
        first, n = (0, E) if v < V else (E, V)
        for e in range(n):
            losses[v, e] = fade * losses[v, e] + w * lost[first + e]
    reweigh(hedge)


@compiled_inside
def learn_hedge(
    rule: Rule, expert_scores: FloatArray, early_scores: FloatArray, y: FloatArray, w: float, hedge: Hedging,
    paired_test: FloatArray,
) -> None:  # fmt: skip
    """Take in the scores of every expert for a row, (E, m), under a compiled loss: ``Hedge.learn`` in one call."""
    kind, option, ridge, posterior = rule.kind, rule.option, rule.ridge, hedge.posterior
    (E, m), V = expert_scores.shape, hedge.decays.shape[0] - 1
    predictions, lost, vote = np.empty((E, m)), np.empty(E + V), np.empty(m)
    for v in range(E + V):  # the losses of the experts, then those of the voters
        if v < E:
            to_prediction(kind, expert_scores[v], predictions[v])
        else:
            for k in range(m):
                vote[k] = 0.0
                for e in range(E):
                    vote[k] += posterior[v - E, e] * predictions[e, k]
            to_score(kind, vote)
        lost[v] = expert_loss(kind, option, ridge, expert_scores[v] if v < E else vote, y)
    mix(kind, hedge.weights, early_scores, vote, predictions[0])
    elapsed = count_class(kind, y, w, hedge)
    learn_combining(kind, early_scores, vote, y, w, elapsed, hedge.combining)
    count_losses(lost, w, elapsed, hedge, paired_test)
