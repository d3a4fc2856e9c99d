"""The measured regret of a run beside the bounds of :mod:`streamboost.theory.bounds`, and advice from its edges.

An edge measured as :class:`~streamboost.boosting.edges.EdgeMeter` does makes Definition 1 an equality with R(T) = 0.
The theorems, which speak of T → ∞, then hold on the very rows that were measured.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.boosting import Booster
from streamboost.descents import Descent, GradientDescent, ResidualProjection
from streamboost.features.chunk import check_chunk
from streamboost.losses import Loss
from streamboost.losses.links import Log, Logit, Margin
from streamboost.theory.bounds import nonsmooth_bound, smooth_bound

MARK_GROWTH = 1.05  # the curve over rows has a point at every 5 % more of them: 200 for 20,000 rows
ENOUGH_ROWS = 100  # before that, edges tell more of the start than of the learners
FAINT = 0.01  # an edge below this explains nothing worth a learner
HARM = -0.05  # one below this is more than the noise of measuring 0


class Curve(NamedTuple):
    """Averages over the first rows of a stream, for more and more ``rows``; one, or a column for each 0, 1, … N."""

    rows: IntArray  # (K,)
    averages: FloatArray  # (K,) or (K, N + 1)


class RegretMeter:
    """The average loss of a booster cut off after 0, 1, … N learners, all from one run.

    No learner depends on those after it, so the first k of a run are what a booster of k learners would have been
    (as long as the refits of one do not wait for those of another: no replay, or one that takes all learners).
    Averages are kept for more and more rows, each time 5 % more: memory grows with the logarithm of the stream.

    Attributes
    ----------
    loss_bound, gradient_bound, radius : float
        The largest loss, the longest gradient and the longest score met: B and G of the theorems, on this run.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost.losses import Squared
    >>> meter = RegretMeter(Squared(), GradientDescent())
    >>> meter.add(walk=np.array([[[0.0], [2.0], [3.0]]]), y=np.array([[3.0]]))
    >>> meter.losses.averages  # of y⁰, y¹ and y²
    array([[4.5, 0.5, 0. ]])
    >>> meter.against(np.array([[2.5]]), X=np.zeros((1, 1)), y=np.array([[3.0]])).averages
    array([[ 4.375, 0.375, -0.125]])
    """

    def __init__(self, loss: Loss, descent: Descent) -> None:
        self.loss = loss
        self.descent = descent
        self.n_rows = 0
        self.total: Any = 0.0  # Σ w ℓ for each number of learners, (N + 1,), and Σ w behind them
        self.kept: list[tuple[int, FloatArray]] = []  # that total after so many rows
        self.loss_bound = self.gradient_bound = self.radius = 0.0

    def add(self, walk: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> None:
        """Count rows: their partial sums (n, N + 1, m) before they were learned, targets, weights (n,)."""
        if not len(walk):
            return
        y, weight = _columns(y), np.ones(len(walk)) if weight is None else weight
        values = self.loss.value(prefix_scores(self.descent, walk), y[:, None])  # (n, N + 1)
        gradients = self.loss.gradient(self.descent.points(walk)[:, :-1], y[:, None])  # (n, N, m)
        self.loss_bound = max(self.loss_bound, _largest(values))
        self.gradient_bound = max(self.gradient_bound, _largest(np.linalg.norm(gradients, axis=2)))
        self.radius = max(self.radius, _largest(np.linalg.norm(walk, axis=2)))
        totals = self.total + np.cumsum(np.column_stack([values * weight[:, None], weight]), axis=0)  # (n, N + 2)
        for row, total in enumerate(totals, start=self.n_rows + 1):
            if not self.kept or row >= self.kept[-1][0] * MARK_GROWTH:
                self.kept.append((row, total.copy()))
        self.n_rows += len(values)
        self.total = totals[-1].copy()

    @property
    def losses(self) -> Curve:
        """The average loss for every number of learners, (K, N + 1); the last of the K is over all rows."""
        if not self.n_rows:
            raise ValueError("the meter has seen no row yet. Call add(walk, y) first.")
        marks = self.kept if self.kept[-1][0] == self.n_rows else [*self.kept, (self.n_rows, self.total)]
        totals = np.array([total for _, total in marks])  # (K, N + 2)
        return Curve(np.array([row for row, _ in marks]), _ratio(totals[:, :-1], totals[:, -1:]))

    def against(self, comparator: Any, X: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> Curve:
        """The average regret for every number of learners, (K, N + 1): losses less the comparator's on the same rows.

        The comparator is one of :func:`comparator_scores`; X, y and weight are the rows that were added, in that order.
        """
        if len(y) != self.n_rows:
            raise ValueError(f"y has {len(y)} rows, expected the {self.n_rows} that were added, in the same order.")
        y, weight = _columns(y), np.ones(len(y)) if weight is None else weight
        values = self.loss.value(comparator_scores(comparator, X, self.loss), y)  # (n,)
        rows, averages = self.losses
        best = _ratio(np.cumsum(weight * values)[rows - 1], np.cumsum(weight)[rows - 1])  # (K,)
        return Curve(rows, averages - best[:, None])


def prefix_scores(descent: Descent, walk: FloatArray) -> FloatArray:
    """What the descent reads out of a walk cut off after 0, 1, … N learners, (n, N + 1, m)."""
    if descent.readout == "last":
        return walk
    scores = walk.copy()
    scores[:, 1:] = np.cumsum(walk[:, 1:], axis=1) / np.arange(1, walk.shape[1])[:, None]
    return scores


def comparator_scores(comparator: Any, X: FloatArray, loss: Loss) -> FloatArray:
    """The scores (n, m) of whoever the booster is compared with.

    Parameters
    ----------
    comparator : array, callable or fitted scikit-learn model
        Scores (n, m), or (n,) for one output; a function that gives such scores for X; or a model. A regressor
        speaks through ``predict``, which is the score, or its exponential behind a logarithmic link. A classifier
        speaks through ``predict_proba`` (log-odds for one output, log-probabilities for several), for a margin
        loss rather through ``decision_function``. A probability of 0 or 1 makes a score of some hundreds, which
        a ridge punishes: then better pass a function.
    X : array of shape (n, d)
    loss : Loss
    """
    scores = _columns(np.asarray(_ask(comparator, X, loss), dtype=float))
    if scores.shape != (shape := (len(X), loss.n_outputs)):
        way_out = "Pass a function that returns one row of scores for each row of X."
        raise ValueError(f"the comparator gives scores of shape {scores.shape}, expected {shape}. {way_out}")
    return scores


def _ask(comparator: Any, X: FloatArray, loss: Loss) -> Any:
    is_margin, has_shares = isinstance(loss.link, Margin), hasattr(comparator, "predict_proba")
    if hasattr(comparator, "decision_function") and (is_margin or not has_shares):
        return comparator.decision_function(X)
    if has_shares:
        link = Logit() if is_margin else loss.link
        shares = comparator.predict_proba(X)
        return link.score(shares[:, 1:] if loss.n_outputs == 1 else shares)
    if hasattr(comparator, "predict"):
        said = comparator.predict(X)
        return loss.link.score(said) if isinstance(loss.link, Log) else said
    return comparator(X) if callable(comparator) else comparator


class Regret(NamedTuple):
    """What :func:`measure_regret` found: the two curves of the paper's first figure, and the bound beside them."""

    by_learners: FloatArray
    """The average regret of the booster cut off after 0, 1, … N learners, (N + 1,)."""
    over_rows: Curve
    """The average regret of all N learners over the first rows of the stream."""
    comparator_loss: float
    """The comparator's average loss."""
    edges: FloatArray
    """The measured edge γ of every learner on these rows, (N,)."""
    bound: FloatArray
    """What the theorem for this descent says of ``by_learners``, (N + 1,), at the weakest edge among the learners
    counted: Theorem 1 for :class:`~streamboost.descents.GradientDescent`, Theorem 2 for
    :class:`~streamboost.descents.ResidualProjection`. Infinite where neither speaks, as from the first learner on whose
    edge is not above 0. Both are promises for the theorem's own step sizes; others usually keep them too."""
    loss_bound: float
    """B, the largest loss met on these rows."""
    gradient_bound: float
    """G, the longest gradient met on these rows."""


def measure_regret(
    booster: Booster, X: FloatArray, y: FloatArray, comparator: Any, *, weight: FloatArray | None = None, chunk: int = 1
) -> Regret:
    """Let a booster learn a stream, each row predicted before it is learned, and compare it with ``comparator``.

    After Hu et al., Theorems 1 and 2, and the figure on average regret.

    Parameters
    ----------
    booster : Booster
        It may have learned rows before; only those given here are measured.
    X, y : arrays of shape (n, d) and (n,) or (n, k)
    comparator : callable, fitted scikit-learn model, or array of scores
        f* in the paper: see :func:`comparator_scores`.
    weight : array of shape (n,), optional
    chunk : int
        How many rows are predicted before they are learned; 1 is the paper's protocol.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost import Booster
    >>> from streamboost.bases import Constant
    >>> from streamboost.losses import Squared
    >>> from streamboost.stacks import LinearStack
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> booster = Booster(Squared(), GradientDescent(0.1), LinearStack(10), base=Constant(0))
    >>> regret = measure_regret(booster, X, y, comparator=lambda X: X @ [1.0, -2.0, 0.5])
    >>> regret.by_learners[[0, 5, 10]].tolist()  # of 0, 5 and 10 learners
    [2.42, 0.89, 0.33]
    """
    X, y, weight = check_chunk(X, y, weight, booster.loss, booster.stack.n_features if booster.is_open else None)
    if not len(X):
        raise ValueError("X has no rows, expected at least one to measure.")
    if chunk < 1:
        raise ValueError(f"chunk is {chunk!r}, expected a whole number of at least 1. For row by row leave it out.")
    scores = comparator_scores(comparator, X, booster.loss)  # asked first: learning rows cannot be undone
    if not booster.is_open:
        booster.allocate(X.shape[1], y.shape[1])
    meter = RegretMeter(booster.loss, booster.descent)
    missed, size = booster.edges.residual_ss.copy(), booster.edges.target_ss.copy()
    for start in range(0, len(X), chunk):
        rows = slice(start, start + chunk)
        meter.add(booster.walk(X[rows]), y[rows], weight[rows])
        booster.learn(X[rows], y[rows], weight[rows])
    edges = 1.0 - _ratio(booster.edges.residual_ss - missed, booster.edges.target_ss - size)
    meter.loss_bound = max(meter.loss_bound, _largest(booster.loss.value(scores, y)))
    meter.radius = max(meter.radius, _largest(np.linalg.norm(scores, axis=1)))
    regret = meter.against(scores, X, y, weight)
    return Regret(
        by_learners=regret.averages[-1], over_rows=Curve(regret.rows, regret.averages[:, -1]),
        comparator_loss=booster.loss.mean(scores, y, weight), edges=edges, bound=_theorem_bound(meter, edges),
        loss_bound=meter.loss_bound, gradient_bound=meter.gradient_bound,
    )  # fmt: skip


def _theorem_bound(meter: RegretMeter, edges: FloatArray) -> FloatArray:
    """The bound on the regret of the first 0, 1, … N learners, (N + 1,), given what was met on the way."""
    weakest = np.minimum.accumulate(np.nan_to_num(edges, nan=1.0))  # a learner with nothing to say cannot fail
    N, weakest = np.arange(1, len(edges) + 1)[weakest > 0], weakest[weakest > 0]
    strength, curvature = meter.loss.strong_convexity(meter.radius), meter.loss.smoothness(meter.radius)
    descent, bound = meter.descent, np.full(len(edges) + 1, math.inf)
    if strength <= 0:
        return bound
    if isinstance(descent, GradientDescent) and descent.readout == "last" and math.isfinite(curvature):
        bound[0] = 2.0 * meter.loss_bound
        bound[N] = smooth_bound(N, weakest, strength, curvature, meter.loss_bound)
    elif isinstance(descent, ResidualProjection) and descent.readout == "mean":
        bound[N] = nonsmooth_bound(N, weakest, strength, meter.gradient_bound)
    return bound


def diagnose(booster: Booster) -> str:
    """Say in plain words what the edges over the latest rows tell of N, the step size and the learners.

    Learners are numbered from 1, as in the paper. See Hu et al., Definition 1, and Proposition 1: without an edge no
    linear combination of learners can help.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost import SGBRegressor
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> print(diagnose(SGBRegressor().fit(X, np.sign(X[:, 0])).booster_))
    Learners 1 to 30 earn an edge (weakest 0.02). Learners 31 to 60 earn no edge: N is larger than this stream needs.
    """
    if booster.n_rows < ENOUGH_ROWS:
        return f"Too few rows yet ({booster.n_rows}) to judge the learners: look again after {ENOUGH_ROWS}."
    return judge(booster.edges.recent)


def judge(edges: FloatArray) -> str:
    """Say in plain words what edges (N,) tell of N, the step size and the learners.

    The edge of a learner whose targets were all 0 is NaN.

    Examples
    --------
    >>> judge(np.array([0.4, 0.2, 0.003]))
    'Learners 1 and 2 earn an edge (weakest 0.20). Learner 3 earns no edge: N is larger than this stream needs.'
    """
    if np.isnan(edges).all():
        return "No learner had anything to explain: the base leaves nothing."
    is_tail = np.arange(len(edges)) >= _idle_tail(edges)
    earns, harms = (edges >= FAINT) & ~is_tail, (edges < HARM) & ~is_tail  # NaN is neither
    idles = ~(earns | harms | is_tail)
    if earns.all():
        words = [f"Every learner earns an edge (weakest {edges.min():.2f}): more learners may help."]
    elif earns.any():
        words = [f"{_learners(earns, 'earn')} an edge (weakest {edges[earns].min():.2f})."]
    else:
        words = ["No learner earns an edge: what the base leaves is noise, or out of these learners' reach."]
    if earns.any() and idles.any():
        words.append(f"{_learners(idles, 'earn')} no edge.")
    if earns.any() and is_tail.any():
        words.append(f"{_learners(is_tail, 'earn')} no edge: N is larger than this stream needs.")
    if harms.any():
        worst = f"{'edge' if harms.sum() == 1 else 'edges down to'} {edges[harms].min():.2f}"
        advice = "lower the learning rate, or make the learners simpler."
        words.append(f"{_learners(harms, 'do', 'does')} harm ({worst}): {advice}")
    return " ".join(words)


def _idle_tail(edges: FloatArray) -> int:
    """Where the learners begin that together earn nothing, though one or the other wavers around 0."""
    for first in range(len(edges)):
        rest = np.nan_to_num(edges[first:])
        wavers = rest.min() > 4 * HARM and rest.max() < 5 * FAINT
        if rest[0] < FAINT and wavers and HARM < rest.mean() < FAINT:
            return first
    return len(edges)


def _learners(chosen: BoolArray, many: str, one: str | None = None) -> str:
    """The chosen learners and their verb: "Learners 1 to 3 and 5 earn"."""
    places = np.flatnonzero(chosen) + 1
    if len(places) == 1:
        return f"Learner {places[0]} {one or many + 's'}"
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    spans = [span for run in runs for span in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    listed = spans[0] if len(spans) == 1 else f"{', '.join(spans[:-1])} and {spans[-1]}"
    return f"Learners {listed} {many}"


def _ratio(total: FloatArray, weight: FloatArray) -> FloatArray:
    """Averages; NaN where nothing weighs."""
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)


def _columns(numbers: FloatArray) -> FloatArray:
    return numbers[:, None] if numbers.ndim == 1 else numbers


def _largest(sizes: FloatArray) -> float:
    return float(np.abs(sizes).max(initial=0.0))
