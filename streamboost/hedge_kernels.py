"""The hedge in compiled loops: :mod:`streamboost.hedge` for one row, and how a score is read out of a walk."""

from __future__ import annotations

import math

import numpy as np

from streamboost.arrays import FloatArray, IntArray
from streamboost.compiled import compiled_inside
from streamboost.loss_kernels import HINGE, LOGISTIC, SMALLEST, SOFTMAX, Rule, to_prediction, to_score, value

# experts, decays, tempering, seen, losses, trust, voices
Hedging = tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]

READ_LAST, READ_MEAN, READ_HEDGE, READ_HEDGE_OF_MEANS = range(4)  # experts are partial sums, or means of them
TIE = 1e-9
LOG_SHARE, WRONG_SHARE, SURPRISE, FAR_OFF = 0.1, 0.5, 9.210340371976182, 2.0  # see streamboost.hedge


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
