"""One model per key, a million keys over any number of workers.

A chunk of rows flows in; each row goes to the worker its key hashes to, and there to the key's own model; what the
models said comes back in the order of the rows. The driver itself holds no model: it knows the classes and whose key is
where, and the latter follows from the key alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from streamboost import SGBClassifier, SGBRegressor
from streamboost._types import FloatArray
from streamboost.cluster import hashing, key_beginning, key_models, key_moves
from streamboost.cluster.crew import Crew, Cut, Engine, Ticket, make_crew
from streamboost.cluster.hashing import Key
from streamboost.cluster.key_models import Answer, Answers, KeyModel, Method
from streamboost.cluster.key_rows import Part, first_refusal, parts_of, split
from streamboost.cluster.key_shard import KeyShard, Refused
from streamboost.estimators.regressor import encode_numbers
from streamboost.evaluation.chunking import as_targets
from streamboost.features.labels import Labels
from streamboost.persistence import snapshots

__all__ = ["KeyedBooster"]

KIND = "keyed"


def _has_probabilities(booster: Any) -> bool:
    return hasattr(booster.template, "predict_proba")


class KeyedBooster:
    """One model for each key: for each store, sensor or customer.

    Every row holds its key, in a column of its own that no model sees. Models learn their own rows in the order they
    come. Whatever the number of workers, and wherever they are, every key's model is the same, bit for bit.

    Parameters
    ----------
    key : str
        The column with the key: text, whole numbers or booleans. 7 and "7" are different keys.
    model : SGBRegressor or SGBClassifier, optional
        What every key's model begins as, with the same random state. Left out, a small one, some tens of kilobytes:
        :func:`small_regressor`, or :func:`small_classifier` beside a prior that is a classifier.
    prior : fitted SGBRegressor or SGBClassifier, optional
        A model of all keys together, on the same columns without the key. New keys start from it and learn what it
        gets wrong for them; it takes the place of ``base``, is never changed, and kept once per worker.
    hot : int
        How many models each worker keeps in memory beside those of the chunk it learns; those not used for longest go
        to a file. Results are the same.
    workers, engine, address, directory, resources
        As in :func:`streamboost.cluster.make_crew`: without ``workers`` everything is in this process, with it on Ray.
        ``directory`` is for cold models and checkpoints; without it they are gone with this process.
    **named
        Further options of the crew.

    Attributes
    ----------
    classes_ : array
        Of classifiers: all classes of all keys, those of the prior first, then in the order they came.

    Notes
    -----
    A chunk is learned by all its keys, or by none: rows are checked by the models they are meant for, on all workers,
    before any of them is learned. If a row is refused, the error names it and nothing has changed.

    Predicting changes nothing and makes no model. A key that is not known gets the prior's answer; without a prior it
    gets 0, or None as its label and 0 as the probability of every class.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> x, store = rng.uniform(size=2000), rng.choice(["Bonn", "Graz"], 2000)
    >>> y = np.where(store == "Bonn", 10 * x, 5 - 5 * x)
    >>> with KeyedBooster("store") as booster:
    ...     before = booster.learn(pa.table({"store": store, "x": x}), y)
    ...     said = booster.predict([{"store": "Bonn", "x": 0.5}, {"store": "Rome", "x": 0.5}])
    ...     print(booster.n_keys, booster.key_rows("Bonn") + booster.key_rows("Graz"), said.round())
    2 2000 [5. 0.]
    """

    def __init__(
        self,
        key: str,
        model: Any = None,
        *,
        prior: Any = None,
        hot: int = 10_000,
        workers: int | None = None,
        engine: Engine = "auto",
        address: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        resources: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        if not isinstance(key, str):
            raise TypeError(f"key is {key!r}, expected the name of a column.")
        if not isinstance(hot, int) or isinstance(hot, bool) or hot < 1:
            raise ValueError(f"hot is {hot!r}, expected a whole number of at least 1. If unsure, leave it out.")
        self.key, self.prior, self.hot = key, prior, hot
        self.template = key_models.check_template(model, prior)
        self._beginning = key_beginning.describe(self.template, key, prior)
        self._labels = Labels()
        if isinstance(prior, SGBClassifier):
            self._labels = self._labels.with_new(list(prior.labels_.numbers))
        self._n_targets: int | None = None  # how many numbers a row; None: not known yet
        if isinstance(prior, SGBRegressor):
            self._n_targets = prior.committee_.loss.n_outputs
        self._n_chunks = 0
        self._half: str | None = None  # why the state is not to be trusted
        n_workers = 1 if workers is None else workers
        options = {"template": self.template, "prior": prior, "hot": hot, "n_workers": n_workers}
        named |= {"workers": workers, "engine": engine, "address": address, "directory": directory}
        self._crew: Crew = make_crew(KeyShard, options, resources=resources, **named)

    def __sklearn_tags__(self) -> Any:
        return self.template.__sklearn_tags__()

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of all keys so far."""
        if not len(self._labels):
            raise NotFittedError(f"this {type(self).__name__} has seen no class yet. Call learn(X, y) first.")
        return self._labels.classes  # type: ignore[no-any-return]

    # Learning and predicting.

    def learn(self, X: Any, y: Any, *, method: Method = "predict") -> NDArray[Any]:
        """Let every key's model predict its rows, then learn them; return what was predicted before.

        Parameters
        ----------
        X : pyarrow table, frame or list of dicts
            With the key in every row.
        y : array of shape (n,) or, for several numbers a row, (n, m)
        method : {"predict", "predict_proba"}
            What to return of classifiers. A class that a key's model did not know has probability 0.

        Raises
        ------
        ValueError
            If a row has no key, or the model of its key refuses it. Nothing has changed then.
        """
        self._check_method(method)
        self._check_whole()
        chunk = split(X, self.key)
        y = self._check_targets(y, len(chunk.codes))
        labels = self._labels
        if self._is_classifier:
            labels = labels.with_new(labels.encode(y)[1])
        parts = parts_of(chunk, self._crew.n_workers)
        self._n_chunks += 1
        if len(parts) > 1:
            self._check(parts, y)
        said = self._learn(parts, y, method)
        self._labels = labels
        if len(y):
            self._n_targets = _width(y)
        return self._assemble(parts, said, len(y), method)

    def predict(self, X: Any) -> NDArray[Any]:
        """What the model of each row's key says; of a key that is not known the prior, or else 0 or None."""
        return self._ask(X, "predict")

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of every class, (n, K), in the order of ``classes_``; all 0 where nobody knows."""
        if not len(self._labels):
            raise NotFittedError(f"this {type(self).__name__} has seen no class yet. Call learn(X, y) first.")
        return self._ask(X, "predict_proba")

    def _ask(self, X: Any, method: Method) -> NDArray[Any]:
        self._check_whole()
        chunk = split(X, self.key)
        parts = parts_of(chunk, self._crew.n_workers)
        tickets = [self._crew.ask(part.worker, "predict", part.rows, part.tokens, part.sizes, method) for part in parts]
        try:
            said = self._crew.results(tickets)
        except Refused:
            raise first_refusal(parts, [self._refusal_of(ticket) for ticket in tickets]) from None
        return self._assemble(parts, said, len(chunk.codes), method)

    def _refusal_of(self, ticket: Ticket) -> tuple[int, str] | None:
        try:
            self._crew.result(ticket)
        except Refused as refused:
            return refused.row, refused.reason
        return None

    def _check(self, parts: list[Part], y: NDArray[Any]) -> None:
        """Ask all workers whether anything stands against learning the rows."""
        tickets = [
            self._crew.ask(part.worker, "check", part.rows, part.tokens, part.sizes, y[part.places], self._n_chunks)
            for part in parts
        ]
        refusals = self._crew.results(tickets)
        if any(refusals):
            raise first_refusal(parts, refusals)

    def _learn(self, parts: list[Part], y: NDArray[Any], method: Method) -> list[Any]:
        tickets: list[Ticket] = []
        try:
            for part in parts:
                own = (part.rows, part.tokens, part.sizes, y[part.places], self._n_chunks, method)
                tickets.append(self._crew.call(part.worker, "learn", *own))
            return self._crew.results(tickets)
        except Refused as error:  # of the only worker: if there are several, all of them have been asked
            raise first_refusal(parts, [(error.row, error.reason)]) from None
        except BaseException as error:
            if tickets:  # else nothing was sent
                self._half = f"{type(error).__name__}: {error}"
            raise

    def _assemble(self, parts: list[Part], said: list[Any], n: int, method: Method) -> NDArray[Any]:
        """What all workers said, in the order of the rows."""
        answers = Answers(n, method)
        for part, (values, classes) in zip(parts, said, strict=True):
            if values is not None:
                answers.add(part.places, Answer(values, classes))
        if not self._is_classifier:
            return answers.numbers(self._n_targets or 1)
        return answers.probabilities(self._labels) if method == "predict_proba" else answers.labels()

    # What is checked before anything is sent.

    @property
    def _is_classifier(self) -> bool:
        return isinstance(self.template, SGBClassifier)

    def _check_method(self, method: str) -> None:
        if method not in ("predict", "predict_proba") or (
            method == "predict_proba" and not (self._is_classifier and _has_probabilities(self))
        ):
            raise ValueError(
                f"method is {method!r}, expected 'predict', or 'predict_proba' of classifiers that have probabilities. "
                "If unsure, leave it out."
            )

    def _check_targets(self, y: Any, n: int) -> NDArray[Any]:
        targets = as_targets(y)
        if len(targets) != n:
            raise ValueError(f"y has {len(targets)} rows and X has {n}. Pass one target a row.")
        if self._is_classifier:
            return targets
        encode_numbers(targets)  # refuses what is no number
        if n and self._n_targets is not None and _width(targets) != self._n_targets:
            raise ValueError(
                f"y has {_width(targets)} numbers a row, expected {self._n_targets}, as the rows before it had, or the "
                "prior: all keys have as many. Nothing was changed."
            )
        return targets.astype(float, order="C")  # as it is on every worker

    def _check_whole(self) -> None:
        """Refuse to go on where some keys have learned a chunk and others have not."""
        if self._half is not None:
            raise RuntimeError(
                f"a chunk was learned only in part, as something failed on the way ({self._half}). "
                "Attach the last checkpoint to go on from there (--resume on the command line)."
            )

    # One key.

    def worker_of(self, key: Key) -> int:
        """The worker that a key's model lives on, whether there is one already or not."""
        return hashing.worker_of(_checked_key(key), self._crew.n_workers)

    def key_rows(self, key: Key) -> int:
        """How many rows a key's model has learned; 0 if there is none."""
        return int(self._ask_one(key, "key_rows"))

    def model_of(self, key: Key) -> Any:
        """A copy of a key's model, as a :class:`KeyModel` beside a prior; a KeyError if the key is not known."""
        state = self._ask_one(key, "state_of")
        if state is None:
            raise KeyError(f"there is no model for the key {key!r}: no row of it was learned.")
        model = snapshots.unpack(state)
        return model if self.prior is None else KeyModel(model, self.prior)

    def forget(self, key: Key) -> bool:
        """Be as if no row of a key had come; say whether there was one."""
        self._check_whole()
        token = hashing.token_of(_checked_key(key))
        return bool(self._crew.result(self._crew.call(self.worker_of(key), "forget", token)))

    def _ask_one(self, key: Key, method: str) -> Any:
        self._check_whole()
        token = hashing.token_of(_checked_key(key))
        return self._crew.result(self._crew.ask(self.worker_of(key), method, token))

    # All keys.

    @property
    def n_keys(self) -> int:
        """How many keys have a model."""
        self._check_whole()
        return sum(size["keys"] for size in self._crew.results(self._crew.ask_all("sizes")))

    def keys(self) -> list[Key]:
        """The keys that have a model."""
        self._check_whole()
        tokens = (token for part in self._crew.results(self._crew.ask_all("keys")) for token in part)
        return [hashing.key_of(token) for token in sorted(tokens)]

    def metrics(self) -> list[dict[str, Any]]:
        """How each worker is, and how many keys it has, in memory and in all."""
        sizes = self._crew.results(self._crew.ask_all("sizes"))
        return [{**worker, **size} for worker, size in zip(self._crew.metrics(), sizes, strict=True)]

    # Checkpoints.

    def detach(self) -> Cut:
        """Bring everything to disk, and return what a checkpoint has to keep."""
        self._check_whole()
        memory = {"labels": self._labels, "n_targets": self._n_targets, "beginning": self._beginning}
        cut = self._crew.detach(KIND, memory)
        if cut.number:
            key_beginning.write(self._crew.directory, self.template, self.prior)
            key_moves.clean_up(self._crew)
        return cut

    def confirm(self, cut: Cut) -> None:
        """Hear that what was detached is kept by a checkpoint on disk: of these cuts the last two stay."""
        self._crew.confirm(cut)

    def attach(self, cut: Cut) -> None:
        """Become what was detached; if there are more or fewer workers now, keys move to where they belong.

        Raises
        ------
        ValueError
            If it is no cut of a KeyedBooster with this key, model and prior, or of another directory. That model and
            that prior are in its directory: ``streamboost.load("DIRECTORY/beginning.safetensors")``.
        """
        if isinstance(cut, Cut) and cut.kind == KIND:
            key_beginning.check_same(cut.memory["beginning"], self._beginning)
        if isinstance(cut, Cut) and cut.kind == KIND and cut.number and cut.n_workers != self._crew.n_workers:
            key_moves.check(cut, self._crew)
            self._half = f"cut {cut.number} was not attached to its end"
            key_moves.rehash(cut, self._crew)
        else:
            self._crew.attach(cut, KIND)
        self._labels, self._n_targets = cut.memory["labels"], cut.memory["n_targets"]
        self._half = None

    def begin_anew(self, before: Any) -> None:
        """Begin where a run ended before it had learned anything; ``before`` is what its checkpoint holds."""
        self._crew.begin_anew(before)

    def close(self) -> None:
        """End the workers; what was not detached is gone."""
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked_key(key: Any) -> Key:
    plain = hashing.plain_key(key)
    if plain is None:
        raise ValueError(f"key is {key!r}, which is missing, expected text, a whole number or a boolean.")
    return plain


def _width(y: NDArray[Any]) -> int:
    """How many numbers a row has."""
    return 1 if y.ndim == 1 else int(y.shape[1])
