"""A worker that holds one of several models of the same stream; its driver is in :mod:`streamboost.cluster.sharded`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from streamboost import recipes
from streamboost.arrays import FloatArray
from streamboost.cluster.keeping import KeepingWorker
from streamboost.cluster.workers import HalfLearned
from streamboost.contenders import task_of
from streamboost.estimator_base import StreamEstimator
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.guards import Guard
from streamboost.labels import Labels
from streamboost.losses import Loss
from streamboost.sources import Batch, Source, open_source

HALF_LIFE = 2000.0  # rows after which what a shard lost counts half


class Said(NamedTuple):
    """The scores of rows (n, m), and whose they are: the classes, or None where targets are numbers."""

    scores: FloatArray
    classes: list[Any] | None


class Tally(NamedTuple):
    """What one shard has learned, and lost lately: sums that fade."""

    rows: int
    lost: float
    seen: float


class Place(NamedTuple):
    """How far a source was read."""

    position: Any = None
    rows: int = 0  # read
    bad: int = 0  # of these, not learned
    reason: str = ""  # why the last of the bad ones was not
    is_over: bool = False


class Progress(NamedTuple):
    """How far a shard is in its source."""

    place: Place
    tally: Tally
    classes: list[Any] | None


@dataclass
class Shard:
    """The state of a shard."""

    model: StreamEstimator
    rows: int = 0
    lost: float = 0.0
    seen: float = 0.0
    expected: list[Any] = field(default_factory=list)  # classes that other shards have seen
    places: dict[str, Place] = field(default_factory=dict)  # of sources, by what they are called
    guard: Guard = field(default_factory=Guard)


class ShardWorker(KeepingWorker):
    """One model of several that share a stream.

    Parameters
    ----------
    model : SGBRegressor or SGBClassifier
        Not fitted yet.
    """

    state: Shard

    def __init__(self, model: StreamEstimator) -> None:
        self.state = Shard(model)
        self._reading: tuple[str, Any, int, Iterator[Batch]] | None = None  # a source, where it is, what comes next
        self._source: tuple[str, Source] | None = None
        self._saved: dict[int, Any] = {}  # where the source was at cuts that may be loaded again

    @property
    def n_rows(self) -> int:
        """Rows learned."""
        return self.state.rows

    def load(self, directory: str, number: int) -> None:
        """Go back to a cut; a source is then read from where that was."""
        super().load(directory, number)
        self._reading = self._source = None
        self._saved.clear()

    def save(self, directory: str, number: int) -> None:
        """Make the state of a cut durable."""
        super().save(directory, number)
        if self._source is not None:
            self._saved[number] = self.place(self._source[0]).position

    def drop(self, directory: str, kept: list[int]) -> None:
        """Tell the source that nothing before the oldest cut will be asked for again."""
        self._saved = {number: position for number, position in self._saved.items() if number in kept}
        oldest = self._saved.get(min(kept, default=0))
        if self._source is not None and oldest is not None:
            self._source[1].acknowledge(oldest)

    # Questions.

    def say(self, X: Any) -> Said | None:
        """The scores of rows; None before the first row."""
        model = self.state.model
        return self._said(model._scores(X)) if hasattr(model, "committee_") else None

    def consider(self, X: Any, y: Any, weight: FloatArray) -> Said | None:
        """The same of rows that are to be learned, by this shard or another: refuses those it could not learn."""
        model = self.state.model
        is_fitted = hasattr(model, "committee_")
        encoded = model._encode(X, "array", learning=True)
        targets = model._encode_targets(y)
        committee = model.committee_ if is_fitted else model._make_committee(targets, encoded)
        model._check_targets(targets, committee.loss)
        committee.check_weight(weight)
        if is_fitted:
            model._check_signs(encoded, committee)
        if not is_fitted or encoded.changes is not None:
            return self.say(X)
        return self._said(model._class_scores(committee.score_checked(encoded.X)))

    def tally(self) -> Tally:
        """What was learned and lost."""
        return Tally(self.state.rows, self.state.lost, self.state.seen)

    def place(self, where: str) -> Place:
        """How far a source was read."""
        return self.state.places.get(where, Place())

    def fetch(self) -> StreamEstimator:
        """The model itself."""
        return self.state.model

    def _said(self, scores: FloatArray) -> Said:
        model = self.state.model
        return Said(scores, list(model.labels_.numbers) if isinstance(model, SGBClassifier) else None)

    # Operations.

    def learn(self, X: Any, y: Any, weight: FloatArray | None, classes: list[Any] | None) -> Said:
        """Learn rows; return the scores made just before each of them was."""
        said = self._said(self.state.model._learn(X, y, weight, classes=classes or None))
        self.state.rows += len(said.scores)
        return said

    def expect(self, classes: list[Any]) -> None:
        """Hear of classes that other shards have seen."""
        self.state.expected = classes

    def read_on(
        self, where: str, source: tuple[Any, ...], target: str, goal: int, limit: int | None, chunk: int
    ) -> Progress:
        """Learn from a source until ``goal`` of its rows have been read, or a few more, never above the limit."""
        state = self.state
        place = self.place(where)
        while not place.is_over and place.rows < goal:
            size = chunk if limit is None else min(chunk, limit - place.rows)
            batch = self._next_batch(where, source, place, size)
            if batch is None:
                place = place._replace(is_over=True)
            else:
                place = self._take_in(batch, target, place)
            state.places[where] = place
        classes = list(state.model.labels_.numbers) if hasattr(state.model, "labels_") else None
        return Progress(place, self.tally(), classes)

    def _next_batch(self, where: str, source: tuple[Any, ...], place: Place, size: int) -> Batch | None:
        if self._reading is None or self._reading[:3] != (where, place.position, size):
            positional, options = source
            self._source = where, open_source(*positional, **options)
            self._reading = where, place.position, size, self._source[1].read(place.position, size)
        batches, self._reading = self._reading[3], None  # should this fail, the source is opened anew
        batch = next(batches, None)
        if batch is not None:
            self._reading = where, batch.position, size, batches
        return batch

    def _take_in(self, batch: Batch, target: str, place: Place) -> Place:
        """Learn a batch; rows without a target, and those that make no sense, are left out and counted."""
        state, model = self.state, self.state.model
        task = task_of(model, np.zeros(0))
        sifted = state.guard.sift(batch.table, target, task, model)
        if len(sifted.y):
            said = self._learn_sifted(sifted.X, sifted.y)
            state.guard.learned(sifted.y)
            self._count(said, sifted.y)
        reasons = list(sifted.reasons.values())
        return Place(
            batch.position,
            place.rows + batch.table.num_rows,
            place.bad + len(reasons),
            reasons[-1] if reasons else place.reason,
        )

    def _learn_sifted(self, X: Any, y: Any) -> Said:
        try:
            return self.learn(X, y, None, self.state.expected)
        except (TypeError, ValueError, MemoryError):  # nothing has changed, or whoever made the worker knows what to do
            raise
        except Exception as error:
            raise HalfLearned(
                f"a shard failed in the middle of rows of its source: {type(error).__name__}: {error}"
            ) from error

    def _count(self, said: Said, y: Any) -> None:
        model = self.state.model
        labels = model.labels_ if isinstance(model, SGBClassifier) else None
        loss = loss_for(model, said.scores.shape[1] if labels is None else len(labels))
        with np.errstate(invalid="ignore"):  # before any class was known
            lost = loss.value(said.scores, coded(model, y, labels))
        self.state.lost, self.state.seen = faded(self.state.lost, self.state.seen, lost, np.ones(len(lost)))


# What shards and their driver agree on.


def check_template(model: Any) -> Any:
    """What every shard begins as, with a random state that it would begin with again."""
    model = SGBRegressor() if model is None else model
    if not isinstance(model, StreamEstimator) or isinstance(model, type):
        raise TypeError(f"model is {model!r}, expected an SGBRegressor or an SGBClassifier.")
    if hasattr(model, "committee_"):
        raise ValueError("model has learned rows already, expected one that has not: every shard begins as it.")
    options = model.get_params(deep=False)
    if not isinstance(model.random_state, (int, np.integer)):
        options["random_state"] = int(check_random_state(model.random_state).randint(2**31 - 1))
    return type(model)(**options)


def loss_for(model: StreamEstimator, n: int) -> Loss:
    """The loss of a model with so many targets or classes."""
    if isinstance(model, SGBClassifier):
        return recipes.make_classification_loss(model.loss, max(n, 1))
    return recipes.make_regression_loss(model.loss, n)


def coded(model: StreamEstimator, y: Any, labels: Labels | None) -> FloatArray:
    """Targets (n, k) as that loss has them; labels are all known."""
    if labels is None:
        return model._encode_targets(y).values
    codes = labels.encode(y)[0]
    if recipes.is_one_versus_rest(model.loss):
        return recipes.margins(codes, loss_for(model, len(labels)).n_outputs)
    return codes[:, None]


def faded(lost: float, seen: float, losses: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Sums of losses and of weights, the older the less, with more rows; of a class not known yet no row counts."""
    counts = np.isfinite(losses) & (weight > 0)
    losses, weight = losses[counts], weight[counts]
    keep = 0.5 ** (np.arange(len(losses), dtype=float)[::-1] / HALF_LIFE)
    fade = 0.5 ** (len(losses) / HALF_LIFE)
    return fade * lost + float(keep @ (weight * losses)), fade * seen + float(keep @ weight)


def take(X: Any, rows: Sequence[int] | Any) -> Any:
    """Some of the rows, of the same kind."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, (list, tuple)):
        return [X[row] for row in rows]
    return X.take(rows) if hasattr(X, "num_rows") else X[rows]
