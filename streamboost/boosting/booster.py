"""The booster: base, stack, descent and loss put together. Here Algorithms 1, 2 and 3 of the paper come to life.

======================================  =============================================================
Algorithm 1 and 2, line                 here
======================================  =============================================================
4   receive x, y⁰ = y₀                  ``y0 = base.predict(X)``
6   yⁱ = Π(yⁱ⁻¹ − ηᵢ hᵢ(x))             ``walk = descent.walk(y0, h, eta)``
8   predict yᴺ, or the mean of the yⁱ   ``descent.score(walk)``
11  ∇ᵢ = ∇ℓ(yⁱ⁻¹)                       ``targets = descent.targets(walk, h, loss, y)``
12  feed ‖∇ᵢ − hᵢ(x)‖² to learner i     ``stack.learn(X, targets, weight)``
16  h̄ᵢ = (1/T) Σ_t hᵢᵗ; Algorithm 3     ``iterate="average"``
======================================  =============================================================
"""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from streamboost._types import FloatArray, IntArray
from streamboost.bases import OPENING_ROWS, Base, Linear
from streamboost.boosting.cost import CostMeter
from streamboost.boosting.edges import EdgeMeter
from streamboost.boosting.hedge import NO_HEDGE
from streamboost.boosting.loops import choose
from streamboost.boosting.model import BoostedModel
from streamboost.boosting.reservoir import Reservoir
from streamboost.boosting.sliced_refit import SlicedRefit, carry_on
from streamboost.descents import Descent, GradientDescent, ResidualProjection
from streamboost.errors import frozen
from streamboost.kernels.layout import SAMPLED, WAITED
from streamboost.kernels.losses import LEAST_CURVATURE
from streamboost.kernels.progress import Progress
from streamboost.losses import Loss, Scale
from streamboost.persistence.array_specs import ArraySpec
from streamboost.persistence.tiles import is_cut
from streamboost.replay import NEVER, Replay
from streamboost.stacks.base import Stack
from streamboost.stacks.tree import TreeStack

AVERAGING_POWERS = {"uniform": 0.0, "polynomial": 8.0}  # see Stack.keep_average
PASTS = 16  # sums carried are written once in so many parts of a sweep; from these the present ones follow
Iterate = Literal["last", "average", "uniform", "polynomial"]
UpdateMode = Literal["sequential", "minibatch"] | int


class Hypothesis(NamedTuple):
    """All that a prediction depends on: y⁰ and h₁ … h_N at one moment, and the steps between them."""

    base: Base
    stack: Stack
    eta: FloatArray

    def walk(self, X: FloatArray, descent: Descent) -> FloatArray:
        """The partial sums y⁰ … yᴺ, (n, N + 1, m)."""
        return descent.walk(self.base.predict(X), self.stack.predict(X), self.eta)

    def for_prediction(self) -> Hypothesis:
        """The same without what only learning needs."""
        return Hypothesis(self.base.for_prediction(), self.stack.for_prediction(), self.eta)


class Answer(NamedTuple):
    """What N learners say of rows (n, N, m), the walk to be read out (n, N + 1, m), what they should say (n, N, m)."""

    h: FloatArray
    walk: FloatArray
    targets: FloatArray
    curvature: FloatArray | None = None  # (n, N), where steps are Newton's


class Booster(BoostedModel):
    """Streaming gradient boosting.

    Parameters
    ----------
    loss : Loss
    descent : Descent, optional
        Left out, the loss picks it: :class:`~streamboost.descents.GradientDescent` if it is smooth,
        :class:`~streamboost.descents.ResidualProjection` if not.
    stack : Stack, optional
        The weak learners. Left out: 60 trees of depth 7.
    base : Base, optional
        y⁰. Left out: an online linear model. ``Constant(0)`` is the paper's.
    replay : Replay or None, optional
        The memory that learners are refitted to. Left out: 16,384 rows if the stack can be refitted.
    iterate : {"last", "average", "uniform", "polynomial"}
        Predict with the present hypothesis, or with the average over past ones, as Algorithm 3 does. The other two
        average parameters instead, which costs next to nothing, where learners have some that can be averaged
        (networks): all alike, or the later the more.
    snapshots : int
        How many past hypotheses ``"average"`` keeps; exact if there are at least as many as rows.
    update_mode : {"sequential", "minibatch"} or int
        Whether :meth:`learn` takes a chunk row by row, as if called once for each, or in one step; or in steps of so
        many rows.
    seed : int
    semantics
        The former name of ``update_mode``.

    Attributes
    ----------
    edges : EdgeMeter
        The measured edge of every learner.
    cost : CostMeter
        Weak-learner predictions and updates so far.
    n_rows : int
        Rows learned so far.

    Examples
    --------
    The paper's Algorithm 1, on ridge learners:

    >>> import numpy as np
    >>> from streamboost import Booster
    >>> from streamboost.bases import Constant
    >>> from streamboost.descents import GradientDescent
    >>> from streamboost.losses import Squared
    >>> from streamboost.stacks import LinearStack
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5))
    >>> y = X @ [1.0, 2.0, 0.0, 0.0, -1.0] + 3.0
    >>> booster = Booster(Squared(), GradientDescent(0.5), LinearStack(8), base=Constant(0))
    >>> before = booster.learn(X, y)  # the score each row had just before it was learned
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(2))
    0.02
    """

    noun = "booster"
    hedge = NO_HEDGE
    readout = "descent"  # by itself it is a committee of one, read out as its descent says

    def __init__(
        self,
        loss: Loss,
        descent: Descent | None = None,
        stack: Stack | None = None,
        *,
        base: Base | None = None,
        replay: Replay | Literal["auto"] | None = "auto",
        iterate: Iterate = "last",
        snapshots: int = 64,
        update_mode: UpdateMode = "sequential",
        seed: int = 0,
        semantics: UpdateMode | None = None,
    ) -> None:
        given = "update_mode" if semantics is None else "semantics"
        update_mode = update_mode if semantics is None else semantics
        if iterate not in ("last", "average", *AVERAGING_POWERS):
            expected = "'last', 'average', 'uniform' or 'polynomial'"
            raise ValueError(f"iterate is {iterate!r}, expected {expected}. If unsure, leave it out.")
        is_size = isinstance(update_mode, (int, np.integer)) and not isinstance(update_mode, bool) and update_mode >= 1
        if not is_size and update_mode not in ("sequential", "minibatch"):
            expected = "'sequential', 'minibatch' or a number of rows above 0"
            raise ValueError(f"{given} is {update_mode!r}, expected {expected}. If unsure, leave it out.")
        self.loss = loss
        self.descent = descent or (GradientDescent() if loss.smooth else ResidualProjection())  # Algorithm 1 or 2
        self.stack = TreeStack() if stack is None else stack
        self.base = Linear() if base is None else base
        kind, can_refit = type(self.stack).__name__, len(self.stack.refittable) > 0
        if replay == "auto":
            replay = Replay() if can_refit else None
        if replay is not None and not can_refit:
            raise ValueError(f"replay is {replay!r}, but a {kind} cannot be refitted. Leave replay out.")
        if replay is None and self.stack.needs_replay:
            raise ValueError(f"replay is None, but {kind} learns from refits alone. Leave replay out.")
        if iterate in AVERAGING_POWERS and not self.stack.averages:
            way_out = "Use 'average', which averages what is said, or leave it out."
            raise ValueError(f"iterate is {iterate!r}, but a {kind} has no parameters to average. {way_out}")
        if self.descent.newton and not (
            loss.curves and isinstance(self.stack, TreeStack) and (replay is None or replay.targets != "recorded")
        ):
            needs = "a loss that tells its curvature, a TreeStack, and targets that are not recorded"
            raise ValueError(
                f"descent is {self.descent!r}, expected {needs}. For plain gradient steps leave newton out."
            )
        self.replay = replay
        self.iterate, self.update_mode, self.seed = iterate, update_mode, seed
        self.past: Reservoir[Hypothesis] | None = Reservoir(snapshots, seed) if iterate == "average" else None
        self.edges, self.cost = EdgeMeter(self.stack.n_learners), CostMeter()
        self.n_rows, self.is_open = 0, False

    refit: SlicedRefit | None = None  # of a learner that rests, begun and not yet in effect

    @property
    def rests(self) -> bool:
        """Whether its learners rest between refits, which come in sweeps over sums that are carried."""
        return self.replay is not None and self.replay.is_carried

    @property
    def boosters(self) -> tuple[Booster]:  # type: ignore[override]
        """Itself: a committee of one."""
        return (self,)

    def allocate(self, n_features: int, n_targets: int) -> None:
        """Make room for rows of ``n_features`` columns and ``n_targets`` target columns; :meth:`learn` does it."""
        self.detach()
        self.stack.open(n_features, self.loss.n_outputs, self.seed)
        if self.iterate in AVERAGING_POWERS:
            self.stack.keep_average(AVERAGING_POWERS[self.iterate])
        self.base.open(n_features, self.loss.n_outputs)
        if self.replay is not None:
            self.replay.open(self.stack, n_targets)
        self.opening = np.empty((0, n_targets + 1))  # targets and weight of the first rows
        self.scale = Scale(step=1.0, spread=0.0)
        self.eta = self._schedule()
        self.is_open = True

    # Predicting: Alg. 1 and 2, lines 4 to 8; Alg. 3.

    @property
    def present(self) -> Hypothesis:
        """The hypothesis as it stands now."""
        return Hypothesis(self.base, self.stack, self.eta)

    def walk(self, X: FloatArray) -> FloatArray:
        """The partial sums y⁰ … yᴺ of every row, (n, N + 1, m); the mean over past ones if so asked."""
        walk = self.walk_checked(self._rows(X))
        return walk if self.origin is None else walk + self.origin

    def walk_checked(self, X: FloatArray) -> FloatArray:
        """Return the partial sums of rows (n, d) that were checked already, measured from the origin."""
        if self.iterate in AVERAGING_POWERS:
            return self.present._replace(stack=self.stack.averaged()).walk(X, self.descent)
        if self.past is None or not self.past.kept:
            return self.present.walk(X, self.descent)
        walk = self.past.kept[0].walk(X, self.descent)
        for hypothesis in self.past.kept[1:]:
            walk += hypothesis.walk(X, self.descent)
        walk /= len(self.past.kept)
        return walk

    def for_prediction(self) -> Booster:
        """Return a frozen booster: it says the same of rows and of itself, and holds nothing that only learning needs.

        The arrays that it holds are this booster's own: copy it before this one learns on.
        """
        twin = self._twin()
        twin.is_frozen, twin.refit = True, None
        twin.base, twin.stack, _ = self.present.for_prediction()
        if self.replay is not None:
            twin.replay = self.replay.without_rows()
        if self.past is not None:
            twin.past = copy.copy(self.past)
            light = {id(past.stack): past.for_prediction() for past in self.past.kept}
            twin.past.kept = [light[id(past.stack)]._replace(eta=past.eta) for past in self.past.kept]
        twin.opening = np.zeros_like(self.opening)  # the scale is known; what told it is forgotten
        return twin

    def for_segments(self) -> Booster:
        """Return what a checkpoint holds of it: sums carried of before, if there are many, in place of those of now."""
        replay, N = self.replay, self.stack.n_learners
        if replay is None or replay._carried is None or not is_cut(replay._carried):
            return self
        past = replay.past
        if past is None or PASTS * (replay.turn - past.turn) >= N:
            past = replay.keep_past()
        twin = self._twin()
        twin.replay = copy.copy(replay)
        twin.replay._carried, twin.replay._past_sums = None, past
        return twin

    def after_loading(self) -> None:
        """Work out the sums carried now, where a checkpoint holds those of before."""
        replay = self.replay
        if replay is not None and (past := replay._past_sums) is not None:
            replay._carried, replay._past = carry_on(self, past), past
            del replay._past_sums

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays of its parts have to be to fit each other."""
        options = {"replay": self.replay, "iterate": self.iterate, "update_mode": self.update_mode}
        Booster(self.loss, self.descent, self.stack, **options)  # type: ignore[arg-type]  # checks them again
        if type(self.n_rows) is not int or type(self.is_open) is not bool:
            raise ValueError(f"n_rows is {self.n_rows!r} and is_open {self.is_open!r}, expected a number, and a truth")
        if not self.is_open:
            return {}
        N, d, m, k = self.stack.n_learners, self.stack.n_features, self.loss.n_outputs, self.loss.n_targets
        if self.stack.n_outputs != m:
            raise ValueError(f"the stack has {self.stack.n_outputs} outputs and the loss {m}")
        if type(self.edges.decay) is not float or not 0.0 <= self.edges.decay <= 1.0:
            raise ValueError(f"edges.decay is {self.edges.decay!r}, expected a number from 0 to 1")
        if not self.loss.takes_any_number:  # of classes, kernels find their places by them
            opening = [] if self.is_frozen is True else [self.opening[:, :k]]  # which a frozen one has forgotten
            for y in (*opening, *([] if self.replay is None else [self.replay.y])):
                self.loss.check_targets(y)
        learners = dict.fromkeys(("eta", "edges.residual_ss", "edges.target_ss"), ArraySpec("f8", (N,)))
        specs = {
            **learners,
            "edges.recent_sums": ArraySpec("f8", (N, 2)),
            "opening": ArraySpec("f8", (None, k + 1)),
            "origin": ArraySpec("f8", (k,)),
            "base.weights": ArraySpec("f8", (d + 1, m)),
            "base.y0": ArraySpec("f8", (m,)),
        }
        if self.replay is None:
            return specs
        room, n_leaves = len(self.replay._weight), 2 ** getattr(self.stack, "max_depth", 16)
        if not room and self.is_frozen is not True:
            raise ValueError("there is no room for rows, but it is not frozen")
        past = self.replay._past_sums
        if self.replay.turn > N or (self.rests and room and self.replay._carried is None and past is None):
            raise ValueError(f"the turn of learner {self.replay.turn} of {N} is next")
        if (self.replay._bins is None) != (self.stack.n_bins == 0):
            raise ValueError("the stack has bins where the memory has none, or the other way about")
        if past is not None and not (
            self.rests and isinstance(self.stack, TreeStack) and 0 <= past.turn <= self.replay.turn
        ):
            raise ValueError(f"sums of turn {past.turn} are held, and that of learner {self.replay.turn} is next")
        refit = self.refit
        if refit is not None and not (
            0 <= refit.learner < N and 0 <= refit.done <= refit.n_rows <= self.replay.fill and refit.interval > 0
            and 0 <= refit.gone <= room and 0 <= refit.n_gone <= room
            and (refit.gone + refit.n_gone <= refit.n_rows or refit.n_rows == self.replay.window)
            and 2**refit.tree.max_depth == n_leaves
            and (refit.tree.n_learners, refit.tree.n_features, refit.tree.n_outputs) == (1, d, m)
        ):  # fmt: skip
            raise ValueError("the refit at hand is of other learners or other rows")
        return specs | {
            "replay._X": ArraySpec("f8", (room, d)),
            "replay._y": ArraySpec("f8", (room, k)),
            "replay._carried": ArraySpec("f8", (room, m)),
            "replay._past_sums.sums": ArraySpec("f8", (room, m)),
            "replay._past_sums.since": ArraySpec("i4", (room,), 0, self.replay.turn + 1),
            "replay._recorded": ArraySpec("f8", (room, N, m)),
            "replay._leaf_ids": ArraySpec("u2", (room, N), 0, n_leaves),
            "replay._codes": ArraySpec("u1", (d, room)),
            "replay._bins.edges": ArraySpec("f8", (0 if self.is_frozen else d, self.stack.n_bins - 1)),
            "refit.sums": ArraySpec("f8", (n_leaves, 2 * m + 1)),
            "refit.cut": ArraySpec("u1", (n_leaves - 1,)),
        }

    # Learning: Alg. 1, lines 9 to 14; Alg. 2, lines 9 to 16.

    def step_rows(self, n: int) -> int:
        """How many rows of a chunk of n share a step."""
        if isinstance(self.update_mode, str):
            return 1 if self.update_mode == "sequential" else max(n, 1)
        return int(self.update_mode)

    def forward(self, X: FloatArray, y: FloatArray) -> Answer:
        """What the present hypotheses say of rows, and what they should have said; nothing changes."""
        h = self.stack.predict(X)  # (n, N, m)
        walk = self.descent.walk(self.base.predict(X), h, self.eta)  # (n, N + 1, m)
        targets = self.descent.targets(walk, h, self.loss, y)  # (n, N, m)
        if not np.isfinite(targets).all():
            raise self.not_finite()
        curvature = self.curvature(walk[:, :-1], y[:, None]) if self.descent.newton else None
        return Answer(h, walk if self.iterate == "last" else self.walk_checked(X), targets, curvature)

    def curvature(self, scores: FloatArray, y: FloatArray) -> FloatArray:
        """How much the loss curves at scores (..., m), the mean over outputs (...), in units of its natural step."""
        curvature = self.loss.step_curvature(scores, y)
        assert curvature is not None
        mean: FloatArray = np.maximum(curvature.mean(axis=-1) * self.scale.step, LEAST_CURVATURE)
        return mean

    def update(self, X: FloatArray, y: FloatArray, weight: FloatArray, answer: Answer) -> None:
        """One step of Algorithm 1 or 2 for rows that share the present hypotheses."""
        self.detach()
        if self.past is not None:  # offer the hypothesis that predicted these rows, once for each of them
            make = functools.cache(lambda: copy.deepcopy(self.present))
            for _ in range(len(X)):
                self.past.offer(make)
        if self.replay is not None and self.rests and self.replay.seen % SAMPLED:
            nothing = np.zeros_like(answer.h)
            self.edges.add(nothing, nothing, weight)
        else:
            says = answer.h if answer.curvature is None else answer.h * answer.curvature[..., None]  # of the gradient
            self.edges.add(answer.targets, says, weight)
        # until the first refit there is nothing the base does not learn faster, except for learners no refit takes
        has_begun = self.replay is None or self.replay.warm or len(self.stack.refittable) < self.stack.n_learners
        if has_begun and not self.rests:
            if answer.curvature is not None:
                assert isinstance(self.stack, TreeStack)
                self.stack.learn(X, answer.targets, weight, answer.curvature)
            else:
                learn = self.stack.learn if self.update_mode == "sequential" else self.stack.learn_batch
                learn(X, answer.targets, weight)
        self.count(len(X))
        self.apply_scale(*self.estimate_scale(y, weight))
        self.base.learn(X, y, weight, self.loss, self.scale)
        if self.replay is not None and self.rests:
            self.replay.append(X, y, weight, None, answer.walk[:, self.replay.turn])
            self.refit_due()
        elif self.replay is not None:
            self.replay.append(X, y, weight, self.stack.leaf_ids(X), answer.targets)
            self.refit_due()

    def not_finite(self) -> FloatingPointError:
        """What to say when a row cannot be learned."""
        return FloatingPointError(
            f"the gradient of {self.loss!r} is not finite at row {self.n_rows}, so these rows were not learned. "
            "Use a smaller step size, or a projection (ResidualProjection with a domain)."
        )

    def detach(self) -> None:
        """Leave the buffers shared with others: an array is about to be replaced, which a frozen booster refuses."""
        if self.is_frozen:
            raise frozen(self.noun)
        self._buffers = None

    def count(self, n: int) -> None:
        """Keep the books: rows and unit cost."""
        self.n_rows += n
        self.cost.add(n, self.stack.n_learners, self.stack.n_learners)

    @property
    def is_scale_known(self) -> bool:
        """Whether the first rows have told the scale, and the steps stay as they are."""
        return len(self.opening) >= OPENING_ROWS and not self.descent.adaptive

    def estimate_scale(self, y: FloatArray, weight: FloatArray) -> tuple[FloatArray, Scale]:
        """The targets and weights of the first rows, and their scale, once these rows are counted in."""
        opening, scale, room = self.opening, self.scale, OPENING_ROWS - len(self.opening)
        if room <= 0:
            return opening, scale
        opening = np.concatenate([opening, np.concatenate([y, weight[:, None]], axis=1)[:room]])
        if opening[:, -1].sum() > 0:
            scale = self.loss.scale(opening[:, :-1], opening[:, -1])
        if len(opening) < 2:  # one row tells no spread, and a wrong one would be felt for long
            scale = scale._replace(spread=0.0)
        if len(opening) == OPENING_ROWS and (opening[:, :-1] == opening[0, :-1]).all():
            opening = opening[-1:]  # targets that are all the same have told no scale yet: go on looking
        return opening, scale

    def apply_scale(self, opening: FloatArray, scale: Scale) -> None:
        """Take steps of the size the first rows and the edges tell."""
        changed = opening is not self.opening
        self.opening, self.scale = opening, scale
        if changed or self.descent.adaptive:
            self.eta[:] = self._schedule()
            if self.replay is not None:
                self.replay.forget_past()

    def _schedule(self) -> FloatArray:
        return self.descent.schedule(self.stack.n_learners, self.loss, self.scale, self.edges.running)

    # Lazy FTRL.

    def refit_due(self) -> None:
        """Fit the learners whose turn it is afresh to the remembered rows."""
        replay = self.replay
        assert replay is not None
        if replay.is_carried:
            self._refit_in_slices(replay)
            return
        binned = replay.binned
        for i in replay.turns(self.stack):
            if replay.binned != binned:  # the window has moved on
                binned = replay.binned
                self.base.hold_range(replay.X)
            weight = replay.weight
            if replay.targets == "recorded":
                target, asked = replay.recorded[:, i], 0
            else:
                (target, curvature), asked = choose(self).fresh_target(self, i), i  # learners before this one
                weight = weight * curvature if self.descent.newton else weight
            self.cost.add(replay.fill, asked, 1)
            replay.remember(i, self.stack.refit(i, replay, target, weight))

    def _refit_in_slices(self, replay: Replay) -> None:
        """Go on with the refit at hand as far as is due, and begin the next one when it takes effect."""
        if replay.sleeps:
            return
        if self.refit is None:
            replay.counts[WAITED] = 0
            self.refit = self._begin_refit(replay)
        waited = int(replay.counts[WAITED])
        if waited >= self.refit.interval:
            self.refit.finish(self, self.next_step)
            replay.counts[WAITED] = waited = waited - self.refit.interval
            replay.end_turn(self.stack)
            self.refit = self._begin_refit(replay)
        self.refit.work(self, waited)

    @property
    def sleeps(self) -> bool:
        """Whether it only takes in rows: it has no trees, and nobody's turn comes."""
        return self.replay is not None and self.replay.sleeps

    def fall_asleep(self) -> None:
        """Let all trees go, which rest; rows go on coming in."""
        assert isinstance(self.stack, TreeStack)
        assert self.replay is not None
        if self.stack.n_learners > 1:
            self.drop_last(self.stack.n_learners - 1)
        self.stack.take_tree(0, self.stack.one_alike())  # one that says nothing
        self.replay.turn = self.replay.sweeps = 0
        self.replay.forget_past()
        self.refit, self.replay.sleeps = None, True

    def wake(self, n_trees: int, descent: GradientDescent) -> None:
        """Go on with so many new trees, which are fitted in turn to all rows held."""
        assert self.replay is not None
        self.descent, self.replay.sleeps = descent, False
        self.grow(n_trees - 1)
        self.replay.counts[WAITED] = 0

    def _begin_refit(self, replay: Replay) -> SlicedRefit:
        learner = replay.begin_turn()
        if learner == 0:
            replay.carried[:] = self.base.predict(replay.X)
        return SlicedRefit(self, learner, replay.rows_a_turn(self.stack))

    @property
    def rows_to_next_turn(self) -> int:
        """Rows that come before the refit at hand takes effect, where learners rest."""
        assert self.replay is not None
        if self.replay.sleeps:
            return NEVER
        return 1 if self.refit is None else self.refit.interval - int(self.replay.counts[WAITED])

    @property
    def next_step(self) -> float:
        """The step of a learner that takes its place now, where learners rest."""
        return float(self._schedule()[0])

    def sweep(self, progress: Progress | None = None) -> None:
        """Refit all learners in turn, from the first on; ``progress`` is told how many of how many are done."""
        replay, N = self.replay, self.stack.n_learners
        assert replay is not None
        self.detach()
        self.refit, replay.turn = None, 0
        for i in range(N):
            self._begin_refit(replay).finish(self, self.next_step)
            replay.end_turn(self.stack)
            if progress is not None:
                progress(i + 1, N)
        replay.counts[WAITED] = 0

    # Growing.

    def grow(self, k: int) -> None:
        """Add k learners at the end of the stack, mid-stream.

        They say 0 at first: the last step of a walk changes only as they learn, a mean over steps at once.
        """
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ValueError(f"k is {k!r}, expected a whole number of at least 1.")
        if not self.is_open:
            raise ValueError("the booster has seen no row yet: make the stack larger instead of growing it.")
        turn = len(self.stack.refittable)  # of the new ones, which are fitted next
        for hypothesis in self._to_change():
            hypothesis.stack.grow(k)
        self.edges.grow(k)
        if self.rests:
            self.eta = np.append(self.eta, np.full(k, self.next_step))
            return  # they are fitted when it is their turn
        if self.replay is not None:
            self.replay.grow(k)
            self.replay.turn = turn
        self.eta = self._schedule()
        if self.past is not None:
            self.past.kept = [past._replace(eta=np.pad(past.eta, (0, k))) for past in self.past.kept]

    def drop_last(self, k: int) -> None:
        """Let the last k trees go, which rest."""
        assert isinstance(self.stack, TreeStack)
        assert self.replay is not None
        self.detach()
        self.stack.drop_last(k)
        self.edges.drop_last(k)
        self.eta = self.eta[:-k].copy()
        if self.replay.turn >= self.stack.n_learners:
            self.replay.turn, self.refit = 0, None
            self.replay.forget_past()

    def add_features(self, k: int) -> None:
        """Make room for k more columns; rows seen so far had nothing there."""
        for hypothesis in self._to_change():
            hypothesis.stack.add_features(k)
            hypothesis.base.add_features(k)
        if self.refit is not None:
            self.refit.add_features(k)
        if self.replay is not None:
            self.replay.add_features(k)

    def set_categorical(self, columns: IntArray, n_levels: int) -> None:
        """Learn that columns hold the numbers of levels, of which ``n_levels`` are to be told apart."""
        for hypothesis in self._to_change():
            hypothesis.stack.set_categorical(columns, n_levels)
            known = hypothesis.stack.categorical  # in the order they became known
            hypothesis.base.set_categorical(known if len(known) else columns, n_levels)
        self.refit = None
        if self.replay is not None:
            self.replay.set_categorical(self.stack.categorical, n_levels)

    def add_outputs(self, loss: Loss, score: float) -> None:
        """Go on with a loss of more outputs, whose y⁰ starts at ``score``: what a new class needs."""
        k, self.refit = loss.n_outputs - self.loss.n_outputs, None
        for hypothesis in self._to_change():
            hypothesis.stack.add_outputs(k)
            hypothesis.base.add_outputs(k, score)
        if self.replay is not None:
            self.replay.add_outputs(k)
            if self.replay.is_carried:
                self.replay.carried[:, -k:] = score
        self.loss = loss
        if not self.rests:
            self.eta = self._schedule()

    def split_output(self, loss: Loss) -> None:
        """Go on with a score a class (``loss``) instead of one score for two: predictions stay what they were.

        The steps are halved, as two scores move apart at twice the pace.
        """
        assert isinstance(self.descent, GradientDescent)
        for hypothesis in self._to_change():
            hypothesis.stack.split_output()
            hypothesis.base.split_output()
        if self.replay is not None:
            self.replay.recode(lambda y: (y + 1.0) / 2.0)
        self.opening[:, 0] = (self.opening[:, 0] + 1.0) / 2.0
        self.loss, self.refit = loss, None
        if self.rests:  # whose steps are Newton's: what leaves say is halved instead
            assert isinstance(self.stack, TreeStack)
            self.stack.stats[..., :-1] /= 2.0
            return
        if self.descent.step_size is not None and self.descent.step_size != "theory":
            self.descent = replace(self.descent, step_size=self.descent.step_size / 2.0)
        self.scale = self.scale._replace(step=self.scale.step / 2.0)
        self.eta = self.eta / 2.0
        if self.past is not None:
            self.past.kept = [past._replace(eta=past.eta / 2.0) for past in self.past.kept]

    def _to_change(self) -> list[Hypothesis]:
        """Leave the shared buffers; return the present hypothesis and the past ones kept."""
        self.detach()
        kept = self.past.kept if self.past is not None else []  # one may have predicted several rows
        return list({id(past.stack): past for past in (self.present, *kept)}.values())
