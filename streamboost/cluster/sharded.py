"""One stream, K models: each worker learns a share of the rows, and all of them have a say in every prediction.

For every chunk: all shards are asked what they say of all its rows, the prediction is read out of that, and then each
shard learns its share. No prediction has seen a row of its own chunk; a single model, which learns row by row, has seen
those before. The mean of scores is never worse, for a convex loss, than the shards are on average (Jensen's
inequality), and mostly better than the best of them; the hedge leaves it where one shard does better than all.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from streamboost.arrays import FloatArray, IntArray
from streamboost.chunks import check_weight
from streamboost.cluster import beginnings
from streamboost.cluster.crew import Crew, Cut, Engine, Ticket, WorkerLost, make_crew
from streamboost.cluster.shard_sources import Plan, ShardReport, make_plan, read
from streamboost.cluster.shard_split import check_split, divide
from streamboost.cluster.shard_votes import Method, Readout, ShardVotes, check_method
from streamboost.cluster.shard_worker import Progress, Said, ShardWorker, Tally, check_template, take
from streamboost.cluster.workers import HalfLearned, check_whole
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.labels import Labels
from streamboost.row_chunks import as_targets

KIND = "sharded"
REMEMBERED = ("_rows", "_n_chunks", "_n_announced", "_is_fitted")


def _has_probabilities(booster: Any) -> bool:
    return hasattr(booster.template, "predict_proba")


def _is_classifier(booster: Any) -> bool:
    return isinstance(booster.template, SGBClassifier)


class ShardedBooster:
    """K models that each learn a share of one stream, and predict together.

    Parameters
    ----------
    model : SGBRegressor or SGBClassifier, optional
        What every shard begins as. Left out: ``SGBRegressor()``.
    workers : int
        K.
    split : {"turns", "chunks", "hash:COLUMN"}
        Who learns what: rows in turn, chunks in turn, or all rows with the same value in a column the same shard.
    readout : {"hedge", "mean"}
        A vote over the shards and the mean of their scores, weighed by what each lost on the latest rows; or that
        mean alone.
    engine : {"auto", "local", "ray"}
        "local" keeps all shards in this process; else they are on Ray.
    address, directory, resources, **named
        As for :func:`~streamboost.cluster.crew.make_crew`. With a directory the model can be checkpointed.

    Attributes
    ----------
    shard_losses_ : ndarray of shape (K,)
        What each shard lost on the latest rows, each row before it was learned; NaN while there are none.
    weights_ : ndarray of shape (K,)
        The say of each shard, by itself and in the mean.
    classes_ : ndarray
        Of classifiers: all classes seen. A shard that has not seen one gives it the probability 0; it hears of it with
        its next rows.
    n_rows : int
        Rows learned so far, by all shards.

    Notes
    -----
    A chunk that a shard refuses is learned by none. Learning goes on while :meth:`learn` has returned already: should
    it fail then (a gradient that is not finite), the next call says so, and every further one, until a checkpoint is
    attached: some shards have learned their share of that chunk, and others have not.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_friedman1
    >>> from streamboost import SGBRegressor
    >>> X, y = make_friedman1(4000, noise=1.0, random_state=0)
    >>> with ShardedBooster(SGBRegressor(random_state=0), workers=2, engine="local") as model:
    ...     before = np.concatenate([model.learn(X[a : a + 100], y[a : a + 100]) for a in range(0, 4000, 100)])
    ...     print(model.n_rows, model.shard_losses_.shape)
    4000 (2,)
    >>> bool(((before[2000:] - y[2000:]) ** 2).mean() < 0.15 * y.var())
    True
    """

    def __init__(
        self,
        model: Any = None,
        *,
        workers: int = 2,
        split: str = "turns",
        readout: Readout = "hedge",
        engine: Engine = "auto",
        address: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        resources: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        check_split(split)
        if readout not in ("hedge", "mean"):
            raise ValueError(f"readout is {readout!r}, expected 'hedge' or 'mean'. If unsure, leave it out.")
        self.template = check_template(model)
        self.split, self.readout = split, readout
        given = SGBRegressor() if model is None else model  # whose random state may be left open
        self._beginning = beginnings.describe(given, split=split, readout=readout)
        self._crew: Crew = make_crew(
            ShardWorker,
            {"model": self.template},
            workers=workers,
            engine=engine,
            address=address,
            directory=directory,
            resources=resources,
            **named,
        )
        self._forget()

    def _forget(self) -> None:
        """Be as before the first row, on this side."""
        k = self.n_shards
        self._votes = ShardVotes(self.template, k, self.readout)
        self._rows = [0] * k
        self._n_chunks = self._n_announced = 0
        self._is_fitted = [False] * k
        self._learning: list[Ticket] = []
        self._half: str | None = None  # why the state is not to be trusted

    @property
    def n_shards(self) -> int:
        """K."""
        return self._crew.n_workers

    @property
    def crew(self) -> Crew:
        """The workers."""
        return self._crew

    def __sklearn_tags__(self) -> Any:
        return self.template.__sklearn_tags__()

    # Learning.

    def learn(self, X: Any, y: Any, sample_weight: Any = None, *, method: Method = "predict") -> NDArray[Any]:
        """Predict all rows, then let each shard learn its share; return what was predicted.

        Before any shard has learned a row, a row is predicted by the shard that learns it, just before it does.

        Parameters
        ----------
        X : array, frame, Arrow table or list of dicts of shape (n, d)
        y : array of shape (n,), or (n, m) for several numbers
        sample_weight : array of shape (n,), optional
        method : {"predict", "predict_proba", "decision_function"}
            What to return; all but the first are for classifiers.
        """
        check_method(self.template, method)
        X = [X] if isinstance(X, Mapping) else X
        y = as_targets(y)
        weight = check_weight(sample_weight, len(y), name="sample_weight")
        length = int(X.shape[0]) if hasattr(X, "shape") else len(X)
        if length != len(y):
            raise ValueError(f"X has {length} rows and y has {len(y)}: inconsistent numbers of samples.")
        labels = self._votes.look(y)
        shares = divide(self.split, X, len(y), self.n_shards, n_rows=self.n_rows, n_chunks=self._n_chunks)
        self._wait()
        said = self._crew.results(self._crew.ask_all("consider", X, y, weight))
        tickets: dict[int, Ticket] = {}
        try:
            first = self._send(tickets, shares, X, y, weight, list(labels.numbers) or None)
            self._commit(y, labels, shares)
            votes = self._votes
            scores = votes.read_out(said) if any(said) else votes.own(first, shares, len(y))
            votes.count(said, y, weight)
        except BaseException as error:
            if any(not self._was_refused(shard, ticket) for shard, ticket in tickets.items()):
                self._tear(error)
            raise
        answers: NDArray[Any] = votes.answers(scores, method)
        return answers

    def _send(
        self,
        tickets: dict[int, Ticket],
        shares: Sequence[IntArray],
        X: Any,
        y: NDArray[Any],
        weight: FloatArray,
        classes: list[Any] | None,
    ) -> dict[int, Said]:
        """Send the shards their shares; wait for those that have never learned anything, whose options may not fit."""
        for shard, rows in enumerate(shares):
            if len(rows):
                own = take(X, rows), y[rows], weight[rows]
                tickets[shard] = self._crew.call(shard, "learn", *own, classes)
        fresh = {shard: ticket for shard, ticket in tickets.items() if not self._is_fitted[shard]}
        self._learning = [ticket for shard, ticket in tickets.items() if shard not in fresh]
        said = dict(zip(fresh, self._crew.results(fresh.values()), strict=True))
        for shard in fresh:
            self._is_fitted[shard] = True
        return said

    def _was_refused(self, shard: int, ticket: Ticket) -> bool:
        """Whether a shard is as it was: one without a row forgets first rows that its options do not fit."""
        answer = ticket.answer
        return not self._is_fitted[shard] and answer is not None and isinstance(answer.error, ValueError)

    def _commit(self, y: NDArray[Any], labels: Labels, shares: Sequence[IntArray]) -> None:
        self._votes.labels = labels
        self._rows = [before + len(share) for before, share in zip(self._rows, shares, strict=True)]
        self._n_chunks += 1
        self._votes.open(1 if y.ndim == 1 else y.shape[1])

    def _wait(self) -> None:
        """Wait until what was sent has been learned; raise what went wrong."""
        self._check_whole()
        try:
            self._crew.results(self._learning)
        except Exception as error:
            self._tear(error)
            raise
        self._learning = []

    def _tear(self, error: BaseException) -> None:
        """Note that some shards have learned their share of a chunk, and others have not; a lost crew says so."""
        if not isinstance(error, WorkerLost):
            self._half = f"{type(error).__name__}: {error}"

    def _check_whole(self) -> None:
        check_whole(self._half)

    # Predicting.

    def _scores(self, X: Any) -> FloatArray:
        self._wait()
        if not any(self._is_fitted):
            raise NotFittedError("This ShardedBooster instance is not fitted yet. Call learn(X, y) first.")
        said = self._crew.results(self._crew.ask_all("say", [X] if isinstance(X, Mapping) else X))
        for one in said:
            self._votes.know(one.classes if one is not None else None)
        return self._votes.read_out(said)

    def predict(self, X: Any) -> NDArray[Any]:
        """What all shards together say of rows: numbers, or labels."""
        answers: NDArray[Any] = self._votes.answers(self._scores(X), "predict")
        return answers

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of every class, (n, K), in the order of ``classes_``."""
        probabilities: FloatArray = self._votes.answers(self._scores(X), "predict_proba")
        return probabilities

    @available_if(_is_classifier)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> FloatArray:
        """The raw scores: (n,) for two classes, (n, K) for more."""
        scores: FloatArray = self._votes.answers(self._scores(X), "decision_function")
        return scores

    @property
    def classes_(self) -> NDArray[Any]:
        """All classes seen."""
        if not len(self._votes.labels):
            raise AttributeError("classes_ is not known yet, or the model is no classifier.")
        classes: NDArray[Any] = self._votes.labels.classes
        return classes

    @property
    def shard_losses_(self) -> FloatArray:
        """What each shard lost on the latest rows, (K,)."""
        return self._votes.losses

    @property
    def weights_(self) -> FloatArray:
        """The say of each shard, (K,)."""
        return self._votes.weights

    @property
    def n_rows(self) -> int:
        """Rows learned so far."""
        return sum(self._rows)

    def shard(self, k: int) -> Any:
        """A copy of the model of one shard."""
        self._wait()
        return self._crew.result(self._crew.ask(k, "fetch"))

    # Rows that never pass this process.

    def learn_from(
        self,
        sources: Sequence[Any],
        target: str,
        *,
        rows: int | None = None,
        every: int = 10_000,
        chunk: int = 1000,
        classes: Sequence[Any] | None = None,
    ) -> Iterator[ShardReport]:
        """Let each shard learn from a source of its own, such as some partitions of a topic, or some files.

        Where a shard is in its source is part of its state: after a crash, of a worker or of this process, it goes on
        from where its last cut was, and every row counts once. A shard measures what it loses on its own rows; as
        these are not the same for all, they do not change the weights of the hedge. Call :meth:`detach` between two
        reports to make a checkpoint, and :meth:`confirm` once it is on disk, by which the sources hear what will not
        be asked for again; the same call, after :meth:`attach`, goes on.

        Parameters
        ----------
        sources : sequence, one for each shard
            The arguments of :func:`streamboost.sources.open_source`: a text such as ``"kafka://host:9092/clicks"``, or
            a dict such as ``{"where": "kafka://host:9092/clicks", "partitions": [0, 1]}``; of plain values.
        target : str
            The column to predict.
        rows : int, optional
            How many rows to read from each source; without it to its end.
        every : int
            Rows of a shard between two of its reports.
        chunk : int
            How many rows a shard takes at once.
        classes : sequence, optional
            Classes to expect. The losses "logistic" and "hinge" need them; else shards tell each other.

        Yields
        ------
        ShardReport
        """
        plan = make_plan(self.n_shards, sources, target, rows=rows, every=every, chunk=chunk)
        self._wait()
        if classes is not None and _is_classifier(self):
            self._votes.know(self._votes.labels.encode(as_targets(classes))[1])
            self._announce()
        return self._follow(plan)

    def _follow(self, plan: Plan) -> Iterator[ShardReport]:
        try:
            for shard, progress in read(self._crew, plan):
                yield self._hear(shard, progress)
        except HalfLearned as error:
            self._tear(error)
            raise

    def _hear(self, shard: int, progress: Progress) -> ShardReport:
        """Take in what a shard reports; tell the others of classes they do not know."""
        place, tally, classes = progress
        self._note(shard, tally)
        self._votes.know(classes)
        self._announce()
        if tally.rows:
            self._votes.open(1)  # a source has one target
        loss = float(self.shard_losses_[shard])
        return ShardReport(shard, place.rows, place.bad, place.reason, loss, place.position, place.is_over)

    def _announce(self) -> None:
        """Tell all shards of classes that some have not seen."""
        classes = list(self._votes.labels.numbers)
        if len(classes) > self._n_announced:
            self._crew.results(self._crew.call_all("expect", classes))
            self._n_announced = len(classes)

    def _note(self, shard: int, tally: Tally) -> None:
        """Take in what a shard says of itself, which knows more than this side if it reads its own source."""
        if tally.rows < self._rows[shard]:  # an old report: a newer one was asked for meanwhile
            return
        self._is_fitted[shard], self._rows[shard] = tally.rows > 0, tally.rows
        if tally.seen:
            self._votes.lost[shard], self._votes.seen[shard] = tally.lost, tally.seen

    # Checkpoints.

    def detach(self) -> Cut:
        """What a checkpoint keeps: the number of a cut, and what is known on this side."""
        self._wait()
        for shard, tally in enumerate(self._crew.results(self._crew.ask_all("tally"))):
            self._note(shard, tally)
        memory = {name: copy.deepcopy(getattr(self, name)) for name in REMEMBERED}
        return self._crew.detach(KIND, {**memory, "votes": self._votes.remember(), "beginning": self._beginning})

    def confirm(self, cut: Cut) -> None:
        """Hear that what was detached is kept by a checkpoint on disk: of these cuts the last two stay."""
        self._crew.confirm(cut)

    def attach(self, cut: Cut) -> None:
        """Become what was detached.

        Raises
        ------
        ValueError
            If it is no cut of a ShardedBooster with this model, split and readout, for another number of workers or of
            another directory.
        """
        if isinstance(cut, Cut) and cut.kind == KIND:
            beginnings.check_same(cut.memory["beginning"], self._beginning)
        self._crew.attach(cut, KIND)
        self._forget()
        if cut.n_workers == self.n_shards:  # else nothing had been learned
            memory = copy.deepcopy(cut.memory)
            self._votes.__dict__.update(memory["votes"])
            self.__dict__.update({name: memory[name] for name in REMEMBERED})

    def begin_anew(self, before: Any) -> None:
        """Begin where a run ended before it had learned anything; ``before`` is what its checkpoint holds."""
        self._crew.begin_anew(before)

    def metrics(self) -> list[dict[str, Any]]:
        """How each worker is, with what its shard loses and how much it has to say."""
        extra = zip(self.shard_losses_.tolist(), self.weights_.tolist(), strict=True)
        return [
            {**one, "loss": loss, "weight": weight}
            for one, (loss, weight) in zip(self._crew.metrics(), extra, strict=True)
        ]

    def close(self) -> None:
        """End the workers."""
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
