"""One model per key, in one process: those used lately in memory, all others in a store on disk.

A chunk of rows flows in; each row goes to the model of its key; what the models said comes back in the order of the
rows. Rows are checked by the models they are meant for before any of them is learned, and if one model fails on the
way, those that have learned are put back: a chunk is learned by all its keys, or by none.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from streamboost import SGBClassifier, SGBRegressor
from streamboost._types import FloatArray, IntArray
from streamboost.boosting import critical_section
from streamboost.estimators.base import StreamEstimator
from streamboost.estimators.prepared import Prepared
from streamboost.estimators.regressor import encode_numbers
from streamboost.estimators.undo import Undo
from streamboost.evaluation.chunking import as_targets
from streamboost.features.chunk import check_weight
from streamboost.features.labels import Labels
from streamboost.features.reading import Kind
from streamboost.keyed.answers import Answers, Method, predict
from streamboost.keyed.keys import Key, checked_token, key_of
from streamboost.keyed.prior import KeyModel, Prior, check_template
from streamboost.keyed.rows import Batch, Split, split, take
from streamboost.keyed.store import KeyStore, Packed, from_bytes, to_bytes
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import count_bytes

KINDS: dict[bytes, Kind] = {b"s": "category", b"i": "number"}  # of the column with the key, by what tokens begin with


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Held:
    """A key's model in memory."""

    model: StreamEstimator
    n_rows: int
    is_changed: bool


class _Part(NamedTuple):
    """The rows of one key as its model will learn them."""

    token: bytes
    held: _Held
    places: IntArray  # of the rows in their chunk
    prepared: Prepared


@dataclass(slots=True, eq=False)
class KeyedRows:
    """Rows of several keys, checked and encoded: what :meth:`KeyedModel.prepare` returns."""

    parts: list[_Part]
    n: int
    width: int | None  # how many numbers a row has, of regressors
    labels: tuple[Labels, Labels]  # that the model has to know by then, and will know
    latest: dict[bytes, _Part]  # of each key, those of rows before included that are not learned yet


@dataclass
class KeyedState:
    """A :class:`KeyedModel` as files hold it."""

    key: str | None
    hot: int
    template: StreamEstimator
    prior: StreamEstimator | None
    labels: Labels
    width: int | None
    n_rows: int
    kinds: dict[str, Kind | None]
    files: list[str]
    tokens: NDArray[Any]
    places: NDArray[Any]
    states: NDArray[Any] | None = None  # in a file by itself

    def from_saved(self, directory: Path) -> KeyedModel:
        """Return the model."""
        model = KeyedModel(self.template, key=self.key, prior=self.prior, hot=self.hot)
        if self.states is None:
            model._store = KeyStore.opened(directory, self.files, self.tokens, self.places)
        else:
            model._store = KeyStore.scattered(self.tokens, self.places, self.states)
        model._labels, model._width, model.n_samples_seen_ = self.labels, self.width, self.n_rows
        model._kinds = dict(self.kinds)
        return model


def _has_probabilities(model: Any) -> bool:
    return hasattr(model.template, "predict_proba")


class KeyedModel:
    """One model for each key: for each store, sensor or customer.

    Every row has its key, in a column that no model sees or beside the row, ``key=``. Models learn their own rows in
    the order they come, and each is, bit for bit, what it would be alone.

    Parameters
    ----------
    model : SGBRegressor or SGBClassifier, default=None
        What every key's model begins as, with the same random state. Left out, a small one, some tens of kilobytes:
        :func:`streamboost.keyed.small_regressor`, or ``small_classifier`` beside a prior that is a classifier.
    key : str, default=None
        The column with the key: text, whole numbers or booleans. 7 and "7" are different keys. Left out, every verb
        has to be given the keys, ``key=``.
    prior : fitted SGBRegressor or SGBClassifier, default=None
        A model of all keys together, on the same columns without the key. New keys start from it and learn what it
        gets wrong for them; it takes the place of ``base``, is never changed, and is kept once.
    hot : int, default=10_000
        How many models are kept in memory, beside those of the chunk at hand; those not used for longest go to a file.
        Results are the same.

    Attributes
    ----------
    classes_ : array
        Of classifiers: all classes of all keys, those of the prior first, then in the order they came.
    n_keys, n_samples_seen_ : int
        How many keys there are, and rows learned, of all together.

    Notes
    -----
    If a row is refused, the error names it and nothing has changed. Predicting changes nothing and makes no model. A
    key that is not known gets the prior's answer; without a prior it gets 0, or None as its label and 0 as the
    probability of every class.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> x, store = rng.uniform(size=2000), rng.choice(["Bonn", "Graz"], 2000)
    >>> y = np.where(store == "Bonn", 10 * x, 5 - 5 * x)
    >>> model = KeyedModel(key="store")
    >>> before = model.learn(pa.table({"store": store, "x": x}), y)
    >>> said = model.predict([{"store": "Bonn", "x": 0.5}, {"store": "Rome", "x": 0.5}])
    >>> sorted(model.keys()), model.rows("Bonn") + model.rows("Graz"), said.round()
    (['Bonn', 'Graz'], 2000, array([5., 0.]))
    """

    is_frozen = False

    def __init__(
        self,
        model: SGBRegressor | SGBClassifier | None = None,
        *,
        key: str | None = None,
        prior: SGBRegressor | SGBClassifier | None = None,
        hot: int = 10_000,
    ) -> None:
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key is {key!r}, expected the name of a column.")
        if not isinstance(hot, int) or isinstance(hot, bool) or hot < 1:
            raise ValueError(f"hot is {hot!r}, expected a whole number of at least 1. If unsure, leave it out.")
        self.key, self.prior, self.hot = key, prior, hot
        self.template = check_template(model, prior)
        self._prior = None if prior is None else Prior(prior, self.template)
        self._labels = Labels(prior.labels_.numbers if isinstance(prior, SGBClassifier) else ())
        self._width = prior.committee_.loss.n_outputs if isinstance(prior, SGBRegressor) else None
        self._kinds: dict[str, Kind | None] = {}  # of columns, that with the key among them
        self._store = KeyStore()
        self._hot: OrderedDict[bytes, _Held] = OrderedDict()  # the least recently used first
        self._alive: weakref.WeakValueDictionary[bytes, _Held] = weakref.WeakValueDictionary()  # prepared ones, too
        self._lock = threading.RLock()  # whoever predicts meets whole chunks
        self._saved_files: list[str] = []
        self.n_samples_seen_ = 0

    def __sklearn_tags__(self) -> Any:
        return self.template.__sklearn_tags__()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn asks for them."""
        return {"model": self.template, "key": self.key, "prior": self.prior, "hot": self.hot}

    # Learning: first everything is checked, then everything is changed.

    def prepare(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        key: Any = None,
        classes: Any = None,
        after: KeyedRows | None = None,
    ) -> KeyedRows:
        """Check and encode rows for :meth:`learn_prepared`, which then takes them; change nothing.

        Parameters
        ----------
        X : table, frame, list of dicts, or array with ``key``
        y : array of shape (n,) or, for several numbers a row, (n, m)
        sample_weight : array of shape (n,), default=None
        key : array of shape (n,), default=None
            The keys, if X has no column with them.
        classes : array, default=None
            Of classifiers: classes to expect.
        after : KeyedRows, default=None
            Rows that are prepared and not learned yet: these are checked as if those had been learned.
        """
        with self._lock:
            self._spill()  # while nothing has changed, a full disk can be told
            chunk = split(X, self.key, key)
            n = len(chunk.order)
            width = self._width if after is None else after.width
            y = self._check_targets(y, n, width)
            weight = None if sample_weight is None else check_weight(sample_weight, n, name="sample_weight")
            before = labels = self._labels if after is None else after.labels[1]
            if self._is_classifier:
                if classes is not None:
                    labels = labels.with_new(labels.encode(np.asarray(classes))[1])
                labels = labels.with_new(labels.encode(y)[1])
            elif n:
                width = 1 if y.ndim == 1 else y.shape[1]
            latest = {} if after is None else after.latest
            parts = self._prepare_parts(chunk, y, weight, latest)
            return KeyedRows(parts, n, width, (before, labels), {**latest, **{part.token: part for part in parts}})

    def learn_prepared(self, prepared: KeyedRows, *, method: Method = "predict") -> NDArray[Any]:
        """Predict each prepared row, then learn it; return the predictions made before learning.

        Whatever is raised, the models are then what they were before. A ``ValueError`` says so if they have met other
        columns or classes since the rows were prepared. Ctrl-C waits for the end of the chunk.
        """
        self._check_method(method)
        section = object()
        with self._lock:
            try:
                critical_section.enter(self, section)
                return self._learn_prepared(prepared, method)
            finally:
                critical_section.leave(self, section)

    def learn(self, X: Any, y: Any, sample_weight: Any = None, *, key: Any = None, method: Method = "predict") -> Any:
        """Let every key's model predict its rows, then learn them; return what was predicted before.

        Arguments as in :meth:`prepare`; ``method``, ``"predict"`` by default, says what to return of classifiers. A
        class that a key's model did not know has probability 0.
        """
        self._check_method(method)
        return self.learn_prepared(self.prepare(X, y, sample_weight, key=key), method=method)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, key: Any = None, classes: Any = None) -> Self:
        """Learn rows after all those learned before; arguments as in :meth:`prepare`."""
        self.learn_prepared(self.prepare(X, y, sample_weight, key=key, classes=classes))
        return self

    def learn_one(self, x: Mapping[Any, Any], y: Any, *, w: float = 1.0, key: Any = None) -> None:
        """Learn one row, a dict of column name to value, and its target."""
        self.learn_prepared(self.prepare(x, [y], None if w == 1.0 else [w], key=key))

    def check_rows(self, X: Any, *, after: KeyedRows | None = None) -> None:
        """Refuse rows that :meth:`prepare` would refuse whatever their targets are; change nothing."""
        with self._lock:
            chunk, latest = split(X, self.key), {} if after is None else after.latest
            batch = self._batch(chunk)
            for i, token in enumerate(chunk.tokens):
                with self._naming(chunk, i):
                    known = latest.get(token)
                    held = self._find(token) if known is None else known.held
                    if held is not None:
                        held.model.check_rows(batch.part(i), after=None if known is None else known.prepared)

    def _learn_prepared(self, prepared: KeyedRows, method: Method) -> NDArray[Any]:
        parts, (before, labels) = prepared.parts, prepared.labels
        is_stale = any(self._alive.get(part.token) is not part.held for part in parts)
        if is_stale or (labels is not before and before is not self._labels):
            other = "models that knew other classes than these do now, or that were forgotten"
            raise ValueError(f"the rows were prepared for {other}. Call prepare again.")
        undone: list[tuple[_Part, Undo | None]] = []
        learned: list[NDArray[Any]] = []
        try:
            for part in parts:
                model = part.held.model
                undo = model.undo(part.prepared) if len(parts) > 1 and part.held.n_rows else None
                undone.append((part, undo))
                more: dict[str, Any] = {"method": method} if self._is_classifier else {}
                learned.append(model.learn_prepared(part.prepared, undo=undo, **more))
        except BaseException:
            for part, undo in reversed(undone):
                if undo is not None:
                    undo.restore()
                elif not part.held.n_rows:  # its first rows: as if it had never been
                    self._alive.pop(part.token, None)
            raise
        known = labels if self._is_classifier and len(labels) >= len(self._labels) else self._labels
        answers = Answers(prepared.n, prepared.width or 1, known if self._is_classifier else None, method)
        for part, said in zip(parts, learned, strict=True):
            answers.add(part.places, part.held.model, said)
            self._note(part)
        self._labels, self._width = known, prepared.width if self._width is None else self._width
        with contextlib.suppress(OSError):  # a disk that is full: the next chunk says so, and nothing is lost
            self._spill()
        return answers.all()

    def _note(self, part: _Part) -> None:
        """Keep a key whose model has learned."""
        held, encoder = part.held, part.prepared.encoder
        if encoder is not part.prepared.against[0] or not self._kinds:
            said = () if self._prior is None else self._prior.names
            for name, kind in zip(encoder.names or (), encoder.kinds, strict=False):
                if kind is not None and name not in said:
                    self._kinds.setdefault(str(name), kind)
            if self.key is not None:
                self._kinds.setdefault(self.key, KINDS.get(part.token[:1]))
        held.n_rows += len(part.places)
        held.is_changed = True
        self.n_samples_seen_ += len(part.places)
        self._hot[part.token] = held
        self._hot.move_to_end(part.token)

    def _prepare_parts(self, chunk: Split, y: Any, weight: Any, latest: Mapping[bytes, _Part]) -> list[_Part]:
        batch, parts, refused = self._batch(chunk), [], []
        stops = np.cumsum(chunk.sizes)
        for i, (token, stop, size) in enumerate(zip(chunk.tokens, stops, chunk.sizes, strict=True)):
            places = chunk.order[stop - size : stop]
            own = y[places], None if weight is None else weight[places], latest.get(token)
            try:
                parts.append(_Part(token, *self._prepare_key(batch, i, token, places, *own)))
            except (TypeError, ValueError) as error:
                refused.append(self._refusal(chunk, i, y, weight, latest.get(token), error))
        if refused:
            row, reason, cause = min(refused, key=lambda one: one[0])
            raise ValueError(f"row {row}: {reason} Nothing was changed.") from cause
        return parts

    def _prepare_key(
        self, batch: Batch, i: int, token: bytes, places: IntArray, y: Any, weight: Any, known: _Part | None
    ) -> tuple[_Held, IntArray, Prepared]:
        """All that can be done for a key's rows without changing anything."""
        held, classes = self._find(token) if known is None else known.held, None
        if held is None:
            model = copy.deepcopy(self.template)
            if self._prior is not None:
                model.base, classes = self._prior.base(batch.part(i)), self._prior.classes
            held = _Held(model, 0, True)
        encoder = getattr(held.model, "encoder_", None) if known is None else known.prepared.encoder
        encoded = None if encoder is None else batch.encode(i, encoder, known_only=False)
        rows = batch.part(i) if encoded is None else encoded
        after = None if known is None else known.prepared
        prepared = held.model.prepare(rows, y, weight, classes=classes, after=after)
        self._alive[token] = held
        return held, places, prepared

    def _batch(self, chunk: Split) -> Batch:
        """The rows of a chunk with what the prior says of them, each column read once."""
        try:
            return Batch(
                chunk.rows if self._prior is None or not chunk.tokens else self._prior.widen(chunk.rows), chunk.sizes
            )
        except (TypeError, ValueError) as error:  # the prior's, or of a column of an unknown type
            n = len(chunk.order)
            for row in np.argsort(chunk.order).tolist() if n > 1 else ():
                single = Split(take(chunk.rows, np.array([row])), [b""], np.ones(1, int), chunk.order[[row]])
                self._batch(single)
            raise ValueError(f"row {chunk.order[0]}: {error} Nothing was changed.") from error

    def _refusal(
        self, chunk: Split, i: int, y: Any, weight: Any, known: _Part | None, error: Exception
    ) -> tuple[int, str, Exception]:
        """Find the first row of a key that is refused by itself; all together may be worse than each."""
        token, stop = chunk.tokens[i], int(chunk.sizes[: i + 1].sum())
        rows = range(stop - int(chunk.sizes[i]), stop)
        found = int(chunk.order[rows[0]])
        for row in rows if len(rows) > 1 else ():
            place = chunk.order[[row]]
            single = self._batch(Split(take(chunk.rows, np.array([row])), [token], np.ones(1, int), place))
            own = None if y is None else y[place], None if weight is None else weight[place], known
            try:
                if y is None:
                    held = self._find(token)
                    assert held is not None
                    held.model.encode(single.part(0))
                else:
                    self._prepare_key(single, 0, token, place, *own)
            except (TypeError, ValueError) as single_error:
                found, error = int(place[0]), single_error
                break
        return found, f"the model of key {key_of(token)!r} refuses it: {error}", error

    @contextlib.contextmanager
    def _naming(self, chunk: Split, i: int) -> Iterator[None]:
        """Name the row and the key in what a model says of rows that it cannot read."""
        try:
            yield
        except NotFittedError:
            raise
        except (TypeError, ValueError) as error:
            row, reason, cause = self._refusal(chunk, i, None, None, None, error)
            raise ValueError(f"row {row}: {reason}") from cause

    # Predicting never changes anything.

    def predict(self, X: Any, *, key: Any = None) -> NDArray[Any]:
        """What the model of each row's key says; of a key that is not known the prior, or else 0 or None."""
        return self._predict(X, key, "predict")

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, key: Any = None) -> FloatArray:
        """The probability of every class, (n, K), in the order of ``classes_``; all 0 where nobody knows."""
        self.classes_  # noqa: B018 - there must be some
        return self._predict(X, key, "predict_proba")

    def predict_one(self, x: Mapping[Any, Any], *, key: Any = None) -> Any:
        """Predict one row."""
        return self._predict(x, key, "predict").tolist()[0]

    def predict_proba_one(self, x: Mapping[Any, Any], *, key: Any = None) -> dict[Any, float]:
        """Predict the probability of every class known so far."""
        self._check_method("predict_proba")
        if not len(self._labels):
            return {}
        return dict(zip(self._labels.numbers, self._predict(x, key, "predict_proba")[0].tolist(), strict=True))

    def _predict(self, X: Any, key: Any, method: Method) -> NDArray[Any]:
        with self._lock:
            chunk = split(X, self.key, key)
            batch = self._batch(chunk)
            answers = Answers(len(chunk.order), self._width or 1, self._labels if self._is_classifier else None, method)
            unknown: list[IntArray] = []
            stops = np.cumsum(chunk.sizes)
            for i, (token, stop, size) in enumerate(zip(chunk.tokens, stops, chunk.sizes, strict=True)):
                inside = np.arange(stop - size, stop)
                held = self._find(token)
                if held is None or not held.n_rows:
                    unknown.append(inside)
                    continue
                with self._naming(chunk, i):
                    encoded = batch.encode(i, held.model.encoder_, known_only=True)
                    said = predict(held.model, batch.part(i) if encoded is None else encoded, method)
                answers.add(chunk.order[inside], held.model, said)
            if unknown and self.prior is not None:
                places = np.concatenate(unknown)
                said = predict(self.prior, take(chunk.rows, places), method)
                answers.add(chunk.order[places], self.prior, said)
            self._spill()
            return answers.all()

    # One key, and all of them.

    def model(self, key: Key) -> Any:
        """A copy of a key's model, as a :class:`KeyModel` beside a prior; a KeyError if the key is not known."""
        with self._lock:
            token = checked_token(key)
            if token not in self._hot and token not in self._store:
                raise KeyError(f"there is no model for the key {key!r}: no row of it was learned.")
            held = self._hot.get(token)
            model = from_bytes(self._state(token) if held is None else to_bytes(held.model))
            return model if self.prior is None else KeyModel(model, self.prior)

    def rows(self, key: Key) -> int:
        """How many rows a key's model has learned; 0 if there is none."""
        with self._lock:
            held = self._hot.get(token := checked_token(key))
            return self._store.rows_of(token) if held is None else held.n_rows

    def forget(self, key: Key) -> bool:
        """Be as if no row of a key had come; say whether there was one."""
        with self._lock:
            n_rows, token = self.rows(key), checked_token(key)
            self._hot.pop(token, None)
            self._alive.pop(token, None)
            self._store.remove(token)
            self.n_samples_seen_ -= n_rows
            return n_rows > 0

    def keys(self) -> list[Key]:
        """The keys that have a model."""
        with self._lock:
            return [key_of(token) for token in sorted({*self._store.tokens(), *self._hot})]

    @property
    def n_keys(self) -> int:
        """How many keys have a model."""
        with self._lock:
            return len(self._store) + sum(token not in self._store for token in self._hot)

    @property
    def n_bytes(self) -> int:
        """About how many bytes the models take: those in memory there, the others on disk."""
        with self._lock:
            return sum(count_bytes(held.model) for held in self._hot.values()) + self._store.n_bytes({*self._hot})

    @property
    def n_hot(self) -> int:
        """How many models are in memory."""
        return len(self._hot)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of all keys so far."""
        if not self._is_classifier:
            raise AttributeError("there are no classes: the models predict numbers.")
        if not len(self._labels):
            raise NotFittedError(f"this {type(self).__name__} has seen no class yet. Call learn(X, y) first.")
        return self._labels.classes  # type: ignore[no-any-return]

    @property
    def labels_(self) -> Labels:
        """The classes of all keys by their numbers."""
        if not self._is_classifier:
            raise AttributeError("there are no labels: the models predict numbers.")
        return self._labels

    @property
    def encoder_(self) -> Any:
        """What is known of columns: their ``names`` and ``kinds``, as the first key to have one learned it."""
        if not self._kinds:
            raise AttributeError("nothing is known of columns, as no row was learned.")
        return SimpleNamespace(names=list(self._kinds), kinds=list(self._kinds.values()), n_features=len(self._kinds))

    # Files.

    def save(self, path: str | PathLike[str]) -> None:
        """Write all models to one file that :func:`streamboost.load` reads; no pickle."""
        snapshots.save(self, path)

    def to_saved(self, directory: Path | None) -> KeyedState:
        """Return what a file holds: with a directory of checkpoints, the states of keys go there, if they changed."""
        with self._lock:
            if directory is not None:
                self._store.move_to(directory)
            changed = [(token, held) for token, held in self._hot.items() if held.is_changed]
            self._write(changed)
            if directory is None:
                files: list[str] = []
                tokens, places, states = self._store.gathered()
            else:
                (files, tokens, places), states = self._store.save_in(directory), None
                self._saved_files = files
            about = self.key, self.hot, self.template, self.prior, self._labels, self._width, self.n_samples_seen_
            return KeyedState(*about, dict(self._kinds), files, tokens, places, states)

    def confirm_saved(self) -> None:
        """Hear that a checkpoint is on disk that holds what :meth:`to_saved` returned last."""
        with self._lock:
            self._store.confirm(self._saved_files)

    def __reduce__(self) -> Any:
        return _restored, (self.to_saved(None),)

    # In memory or on disk.

    def _find(self, token: bytes) -> _Held | None:
        """A key's model, brought to memory if need be."""
        held = self._hot.get(token)
        if held is not None:
            self._hot.move_to_end(token)
            return held
        held = self._alive.get(token)
        if held is None:
            found = self._store.get(token)
            if found is None:
                return None
            held = self._alive[token] = _Held(from_bytes(found.state), found.n_rows, False)
        if held.n_rows:
            self._hot[token] = held
            self._spill()
        return held

    def _state(self, token: bytes) -> bytes:
        found = self._store.get(token)
        assert found is not None
        return found.state

    def _spill(self) -> None:
        """Make room in memory."""
        if len(self._hot) <= self.hot:
            return
        cold = list(islice(self._hot.items(), len(self._hot) - self.hot))
        self._write([(token, held) for token, held in cold if held.is_changed])
        for token, _ in cold:  # only now: if the disk is full, nothing is lost
            del self._hot[token]

    def _write(self, changed: list[tuple[bytes, _Held]]) -> None:
        for token, held in changed:
            self._store.put([Packed(token, held.n_rows, to_bytes(held.model))])
            held.is_changed = False

    # What is checked first.

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

    def _check_targets(self, y: Any, n: int, width: int | None) -> NDArray[Any]:
        targets = as_targets(y)
        if len(targets) != n:
            raise ValueError(f"y has {len(targets)} rows and X has {n}. Pass one target a row.")
        if self._is_classifier:
            return targets
        encode_numbers(targets)  # refuses what is no number
        found = 1 if targets.ndim == 1 else targets.shape[1]
        if n and width is not None and found != width:
            raise ValueError(
                f"y has {found} numbers a row, expected {width}, as the rows before it had, or the "
                "prior: all keys have as many. Nothing was changed."
            )
        return targets.astype(float, order="C")


def _restored(state: KeyedState) -> KeyedModel:
    return state.from_saved(Path())
