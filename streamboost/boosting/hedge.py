"""The hedge: prediction with expert advice over the partial sums of several boosters.

Every booster offers experts: its base alone, its whole sum, partial sums in between. Which of them to believe is
learned from what each would have lost on the latest rows, by exponential weights of discounted losses. How fast to
forget is itself a matter of the stream, so there are several *voters*, each with a half-life of its own, and a *meta*
voter that weighs them in the same manner. Experts (E, m) flow in, one prediction (m,) flows out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.boosting.combining import NO_COMBINATION, Combination
from streamboost.kernels.combining import OWN
from streamboost.kernels.hedge import (
    FAR_OFF,
    LOG_SHARE,
    SURPRISE,
    WRONG_SHARE,
    Hedging,
    count_class,
    count_losses,
    information,
)
from streamboost.kernels.losses import HINGE, LOGISTIC, SOFTMAX
from streamboost.losses import Hinge, Logistic, Loss, Softmax
from streamboost.persistence.array_specs import ArraySpec

HALF_LIVES = (25.0, 100.0, 400.0, 2000.0)
META_HALF_LIFE = 200.0
CAUTION = 4.0  # voters listen to the likelihood of real targets at this temperature: at 1 they trust one alone
CLASSES: dict[type[Loss], int] = {Logistic: LOGISTIC, Hinge: HINGE, Softmax: SOFTMAX}  # whose targets are classes
BEGINNING = 10.0  # rows of each class are counted before there are any
NO_PAIRED_TEST = np.full(6, -1.0)


class Expert(NamedTuple):
    """A partial sum: after ``step`` learners of a booster."""

    booster: int
    step: int


class Hedge:
    """Exponential weights over experts, at several half-lives at once.

    For real targets a loss counts in units of what the best expert loses on a row: the weights are then those of Bayes'
    rule, tempered, under a normal distribution (square loss) or a Laplace distribution (absolute loss) as wide as the
    best expert's errors. For classes see :func:`expert_losses`. After so many rows as its half-life says a loss counts
    half, for each voter and for the meta voter; where a class is rare rows tell less, and half-lives are longer, see
    :attr:`pace`. ``weights`` (E,) of the experts sum to 1. ``combination`` goes on from their vote: see
    :mod:`streamboost.boosting.combining`.

    References
    ----------
    Freund and Schapire (1997), A decision-theoretic generalization of on-line learning; Herbster and Warmuth (1998),
    Tracking the best expert; van Erven et al. (2011), Adaptive hedge, on learning how fast to learn.
    """

    combination = NO_COMBINATION
    class_counts: FloatArray = np.zeros(0)  # of a hedge that was saved before classes were counted
    generation = 0  # how often experts have come or gone

    def __init__(
        self,
        experts: Sequence[tuple[int, int]],
        half_lives: Sequence[float] = HALF_LIVES,
        meta_half_life: float = META_HALF_LIFE,
    ) -> None:
        rates = np.array([*half_lives, meta_half_life], dtype=float)
        if len(rates) < 2 or not (rates > 0).all():
            way_out = "expected numbers of rows above 0, at least one of each. If unsure, leave them out."
            raise ValueError(f"half_lives is {half_lives!r} and meta_half_life {meta_half_life!r}, {way_out}")
        self.experts: IntArray = np.array(experts, dtype=np.int64).reshape(-1, 2)
        self.decays = 0.5 ** (1.0 / rates)  # (V + 1,), the meta voter's last
        n, width = len(self.experts), max(len(self.experts), len(half_lives))
        self.temperature_scale = np.zeros(2)  # of the voters and of the meta voter; 0: losses are taken as they are
        self.seen = np.zeros(len(rates))  # the discounted number of rows
        # what each expert has lost, for each voter; each voter, for the meta voter
        self.losses, self.posterior = np.zeros((len(rates), width)), np.zeros((len(rates), width))
        self.posterior[:-1, :n] = 1.0 / max(n, 1)
        self.posterior[-1, : len(half_lives)] = 1.0 / len(half_lives)
        self.weights = np.full(n, 1.0 / max(n, 1))
        self.class_counts = np.zeros(0)
        self.combination = Combination()
        self.generation = 0

    def open(self, loss: Loss) -> None:
        """Take the loss's own way of turning a loss into a likelihood."""
        self.combination.open(loss, len(self.experts))
        self.class_counts = np.full(n_classes(loss), BEGINNING)
        if loss.temperature_scale:
            self.temperature_scale[:] = np.array([CAUTION, 1.0]) * (loss.temperature_scale / loss.n_outputs)

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be."""
        E, V, m = len(self.experts), len(self.decays), len(self.combination.residual_ss) - 1
        n = len(self.combination.coefficients)
        if n not in (0, E + OWN):
            raise ValueError(f"there are {n} coefficients of {E} experts")
        table = ArraySpec("f8", (V, max(self.losses.shape[1], E, V - 1)))
        return {
            "experts": ArraySpec("i8", (E, 2), 0),
            "decays": ArraySpec("f8", (V,)),
            "temperature_scale": ArraySpec("f8", (2,)),
            "seen": ArraySpec("f8", (V,)),
            "losses": table,
            "posterior": table,
            "weights": ArraySpec("f8", (E,)),
            "class_counts": ArraySpec("f8", (None,), 0),
            "combination.coefficients": ArraySpec("f8", (n,)),
            "combination.pull": ArraySpec("f8", (n,)),
            "combination.curvature": ArraySpec("f8", (n, n)),
            "combination.residual_ss": ArraySpec("f8", (m + 1,)),
            "combination.target_range": ArraySpec("f8", (2, m if self.combination.target_range.size else 0)),
        }

    @property
    def arrays(self) -> Hedging:
        """What the kernels work on."""
        return Hedging(
            self.experts, self.decays, self.temperature_scale, self.seen, self.losses, self.posterior, self.weights,
            self.class_counts, self.combination.arrays,
        )  # fmt: skip

    @property
    def pace(self) -> float:
        """How fast half-lives pass: 1, or twice the entropy of the classes in bits if that is less."""
        return float(information(self.class_counts))

    def add_classes(self, loss: Loss) -> None:
        """Go on with a loss of more classes."""
        if len(self.class_counts):
            new = n_classes(loss) - len(self.class_counts)
            self.class_counts = np.pad(self.class_counts, (0, max(new, 0)), constant_values=BEGINNING)

    def join(self, experts: Sequence[Expert], twins: Sequence[int]) -> None:
        """Take in new experts, each trusted as its twin among those known is."""
        n, k = len(self.experts), len(experts)
        width = max(n + k, self.losses.shape[1])
        self.experts = np.concatenate([self.experts, np.array(experts, dtype=np.int64).reshape(-1, 2)])
        self.losses = np.pad(self.losses, ((0, 0), (0, width - self.losses.shape[1])))
        self.losses[:-1, n : n + k] = self.losses[:-1, list(twins)]
        self.combination.join(k)
        self.generation += 1
        self.reweigh()

    def leave(self, booster: int, successor: int | None = None) -> None:
        """Let the experts of a booster go; those of a successor, if any, take their places."""
        if successor is None:
            kept = [e for e, (b, _) in enumerate(self.experts) if b != booster]
        else:
            heirs = iter([e for e, (b, _) in enumerate(self.experts) if b == successor])
            kept = [next(heirs) if b == booster else e for e, (b, _) in enumerate(self.experts) if b != successor]
        self.losses[:-1, : len(kept)] = self.losses[:-1, kept]
        self.losses[:-1, len(kept) :] = 0.0
        self.experts = self.experts[kept]
        self.experts[self.experts[:, 0] == successor, 0] = booster
        self.combination.keep(kept)
        self.generation += 1
        self.reweigh()

    def reweigh(self) -> None:
        """Work out everybody's weight from what they have lost: the kernel of this name once more, as NumPy rounds."""
        # through the kernel, models whose boosters come and go would change in their last bits
        n_voters, n_experts = len(self.decays) - 1, len(self.experts)
        self.posterior = np.zeros_like(self.losses)
        for v in range(n_voters + 1):
            n, scale = (n_experts, self.temperature_scale[0]) if v < n_voters else (n_voters, self.temperature_scale[1])
            losses = self.losses[v, :n]
            best, seen = losses.min(initial=math.inf), self.seen[v] if self.seen[v] > 0 else 1.0
            temperature = max(scale * best / seen, np.finfo(float).tiny) if scale > 0 else 1.0
            with np.errstate(over="ignore"):  # beside a perfect expert the others' odds are 0
                odds = np.exp(-(losses - best) / temperature)
            self.posterior[v, :n] = odds / odds.sum()
        self.weights = self.posterior[-1, :n_voters] @ self.posterior[:-1, :n_experts]

    def mix(self, scores: FloatArray, loss: Loss) -> FloatArray:
        """The vote: scores (..., E, m) to one score (..., m), mixed as predictions."""
        return loss.link.score(np.einsum("e,...em->...m", self.weights, loss.link.predict(scores)))

    def score(self, scores: FloatArray, loss: Loss) -> FloatArray:
        """The combination: scores of experts (n, E, m), held to the range of targets, to one score a row, (n, m)."""
        return self.combination.score(scores, self.mix(scores, loss), loss)

    def influence(self) -> FloatArray:
        """How far the score moves with that of each expert, (E,): its weight in the vote, and its coefficient."""
        if not len(self.combination.coefficients):
            return self.weights
        slope, own = self.combination.coefficients[0], self.combination.coefficients[2:]
        return (1.0 + slope - own.sum()) * self.weights + own  # type: ignore[no-any-return]

    def learn(
        self,
        scores: FloatArray,
        y: FloatArray,
        loss: Loss,
        weight: float = 1.0,
        paired: FloatArray = NO_PAIRED_TEST,
        early: FloatArray | None = None,
    ) -> FloatArray | None:
        """Take in the experts' scores (E, m) for a row and its target (k,); return what each lost, if it counts.

        Whom to believe is learned from what they say now, so that who has just learned of a change is heard at once;
        the combination from what they said ``early``, when the row was predicted.
        """
        if weight <= 0:
            return None
        n = len(self.experts)
        votes = loss.link.score(self.posterior[:-1, :n] @ loss.link.predict(scores))  # (V, m)
        elapsed = count_class(CLASSES.get(type(loss), -1), y, float(weight), self.arrays)
        early = scores if early is None else early
        self.combination.learn(early, self.mix(early, loss), y, loss, float(weight), elapsed)
        lost = expert_losses(np.concatenate([scores, votes]), y, loss)  # (E + V,)
        count_losses(lost, float(weight), elapsed, self.arrays, paired)
        return lost[:n]


def expert_losses(scores: FloatArray, y: FloatArray, loss: Loss) -> FloatArray:
    """What experts (E, m) lose on a row (k,): the loss, and for classes a little of it and more if the class is wrong.

    Weights by log loss alone find the best probabilities, weights by errors the best labels; a little of the first
    settles what the second leaves open.
    """
    lost, wrong = loss.value(scores, y), loss.wrong(scores, y)
    if wrong is None:
        return lost
    most = SURPRISE if loss.temperature_scale == 0 else FAR_OFF
    return LOG_SHARE * np.minimum(lost, most * loss.n_targets) + WRONG_SHARE * wrong


def n_classes(loss: Loss) -> int:
    """Return how many classes there are under a loss; 0 if targets are no classes."""
    if type(loss) not in CLASSES:
        return 0
    return max(loss.n_outputs, 2)


def not_kept(n: int) -> FloatArray:
    """Return what experts said early of n rows of which nobody kept it, (n, 0)."""
    return np.empty((n, 0))


NO_HEDGE = Hedge([])  # of a booster by itself
