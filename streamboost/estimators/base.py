"""What both estimators share: parameters, rows to arrays, one road for a row.

``prepare`` checks and encodes rows of any kind and changes nothing; ``learn_prepared`` hands them to the
:class:`~streamboost.boosting.committee.Committee`. Every verb that learns is one after the other.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from os import PathLike
from types import SimpleNamespace
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streamboost._types import FloatArray
from streamboost.boosting import critical_section
from streamboost.boosting.booster import Booster, Iterate, UpdateMode
from streamboost.boosting.committee import Committee
from streamboost.boosting.drift_replacement import Event
from streamboost.boosting.growth import WAIT, Growth, can_grow, make_booster, n_trees
from streamboost.boosting.hedge import not_kept
from streamboost.boosting.undo import is_needed
from streamboost.errors import frozen, refused, require
from streamboost.estimators import defaults, explaining, freezing
from streamboost.estimators.parameters import no_parameter, refuse_unknown
from streamboost.estimators.prepared import Prepared, Targets, check_expert_scores
from streamboost.estimators.row_order import warn_of_tail
from streamboost.estimators.undo import Undo
from streamboost.features.chunk import Chunk, check_weight
from streamboost.features.encoder import Encoded, Encoder
from streamboost.features.labels import Labels
from streamboost.features.reading import Dialect, select_rows
from streamboost.features.sparse_rows import SparseRows
from streamboost.kernels.progress import Progress, WorkMeter
from streamboost.losses import Loss
from streamboost.persistence import snapshots
from streamboost.replay import NEVER

Row = Mapping[Hashable, Any]
FEW_LEVELS = 1024  # of a column of categories, that there is room for at first
ASKS_BY_PROTOCOL = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9)  # for the names of a polars frame


def _most_levels(encoder: Encoder) -> int:
    """Return how many levels the column has that has most of them."""
    return max(map(len, encoder.categories.values()), default=0)


def _room_for_levels(encoder: Encoder, n_known: int = 0) -> int:
    """Return for how many codes to make room: few levels at first, all there may be if more are known; the others."""
    return (encoder.max_categories if n_known > FEW_LEVELS else min(encoder.max_categories, FEW_LEVELS)) + 1


def _most_rows(committee: Committee, rows: Chunk) -> int:
    """How many rows such as these a booster that holds all rows may hold."""
    if not can_grow(committee):
        return len(rows.X)
    booster = make_booster(committee, Chunk(*(each[:1] for each in rows)), n_trees(committee.loss, len(rows.X)))
    return 0 if booster is None or booster.replay is None else booster.replay.window or 0


class _FrameNames:
    """The names of a polars frame by a protocol that scikit-learn before 1.9 asks for, and polars 2 has no more."""

    def __init__(self, frame: Any) -> None:
        self.shape, self.column_names = frame.shape, lambda: frame.columns

    def __dataframe__(self) -> Self:
        return self


class StreamEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The part of an estimator that does not depend on what its targets are."""

    # estimators of older files have none of their own
    semantics: UpdateMode | None = None  # the former name of update_mode
    date_parts: bool = False
    max_columns: int = defaults.MOST_COLUMNS
    max_classes: int = defaults.MOST_CLASSES

    @refuse_unknown
    def __init__(
        self,
        loss: Any = "auto",
        *,
        n_estimators: int = 60,
        learning_rate: float | Literal["theory"] | None = None,
        max_depth: int = 7,
        min_samples_leaf: int = 5,
        l2: float = 1.0,
        max_features: float | str | None = None,
        monotonic_cst: Any = None,
        learner: Any = "tree",
        base: Any = "linear",
        descent: Any = None,
        memory: int | Sequence[int] | Literal["grow"] | None = "grow",
        budget: float = 1.0,
        readout: Literal["hedge", "last", "mean"] = "hedge",
        iterate: Iterate = "last",
        update_mode: UpdateMode = "sequential",
        new_columns: Literal["error", "grow"] = "error",
        date_parts: bool = True,
        memory_limit_mb: float | None = None,
        max_columns: int = defaults.MOST_COLUMNS,
        max_classes: int = defaults.MOST_CLASSES,
        n_jobs: int | None = None,
        random_state: Any = None,
        semantics: UpdateMode | None = None,
    ) -> None:
        self.loss, self.n_estimators, self.learning_rate = loss, n_estimators, learning_rate
        self.max_depth, self.min_samples_leaf, self.l2 = max_depth, min_samples_leaf, l2
        self.max_features, self.monotonic_cst = max_features, monotonic_cst
        self.learner, self.base, self.descent = learner, base, descent
        self.memory, self.budget = memory, budget
        self.readout, self.iterate = readout, iterate
        self.update_mode, self.new_columns, self.memory_limit_mb = update_mode, new_columns, memory_limit_mb
        self.n_jobs, self.random_state, self.semantics = n_jobs, random_state, semantics
        self.date_parts, self.max_columns, self.max_classes = date_parts, max_columns, max_classes

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; an unknown one is refused with the one that was probably meant."""
        known = self._get_param_names()
        for unknown in [name for name in params if name.partition("__")[0] not in known]:
            raise ValueError(no_parameter(type(self).__name__, unknown, known))
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "committee_")

    # Learning: first everything is checked, then everything is changed.

    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, *, classes: Any = None, after: Prepared | None = None,
        expert_scores: Any = None,
    ) -> Prepared:  # fmt: skip
        """Check and encode rows for :meth:`learn_prepared`, which then takes them; change nothing.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`; X may also be rows that the model's ``encoder_`` has encoded.
        classes : array, default=None
            Of a classifier: classes to expect, as in its ``partial_fit``.
        after : Prepared, default=None
            Rows that are prepared and not learned yet: these are checked as if those had been learned.
        expert_scores : array (n, k), or sequence of n rows (k,) or None, default=None
            What :meth:`expert_scores` gave when the rows were predicted, if their labels come late.

        Examples
        --------
        >>> from streamboost import SGBRegressor
        >>> model = SGBRegressor()
        >>> first = model.prepare([{"a": 1.0}], [2.0])
        >>> second = model.prepare([{"a": 3.0, "b": "new"}], [4.0], after=first)
        >>> [model.learn_prepared(prepared).tolist() for prepared in (first, second)]
        [[0.0], [2.0]]
        """
        return self._prepare(X, y, sample_weight, classes=classes, after=after, expert_scores=expert_scores)

    def learn_prepared(self, prepared: Prepared, *, undo: Undo | None = None) -> NDArray[Any]:
        """Predict each prepared row, then learn it; return the predictions made before learning.

        A ``ValueError`` says so if the model has met other columns or classes since the rows were prepared. Whatever is
        raised, but for an interrupt, the model is then what it was before. ``undo``, None by default, is what
        :meth:`undo` returned of these rows.
        """
        return self.predict_from_scores(self._learn_prepared(prepared, undo))

    def undo(self, prepared: Prepared) -> Undo:
        """Return what takes prepared rows back once they are learned: its ``restore()``."""
        own, (encoder, labels) = self.__dict__, prepared.against
        is_known = prepared.encoder is encoder and prepared.targets.labels is labels and not own["unseen_columns_"]
        return Undo(self, prepared.committee, len(prepared.weight), is_known=is_known)

    def check_rows(self, X: Any, *, after: Prepared | None = None) -> None:
        """Refuse rows that :meth:`prepare` would refuse whatever their targets are; change nothing."""
        encoder, _, committee = self._known(after)
        encoded = self._encode(X, "array", encoder, known_only=False)
        if committee is not None and encoded.encoder is not encoder:
            self._check_size(encoded.encoder, None)
            self._check_schema(encoded.encoder, committee, committee.loss.n_outputs)

    def _known(self, after: Prepared | None) -> tuple[Encoder, Labels | None, Committee | None]:
        """Return what rows are checked against."""
        if after is not None:
            return after.encoder, after.targets.labels, after.committee
        own = self.__dict__
        if "committee_" in own:
            if self.is_frozen:
                raise frozen("model")
            return own["encoder_"], own.get("labels_"), own["committee_"]
        return self._new_encoder(), None, None

    def _new_encoder(self) -> Encoder:
        return Encoder(new_columns=self.new_columns, date_parts=self.date_parts)

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any, classes: Any = None, after: Prepared | None = None,
        dialect: Dialect | Literal["one"] = "array", expert_scores: Any = None,
    ) -> Prepared:  # fmt: skip
        """Prepare rows in one of the dialects, or one dict."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        prepared = None
        if sample_weight is not None and not np.all(weight := np.asarray(sample_weight, dtype=float)):
            if dialect == "one":
                prepared = self._prepare_some([X], y, weight, classes, after, "dict")
            else:
                prepared = self._prepare_some(X, y, weight, classes, after, dialect)
        if prepared is None:
            prepared = self._prepare_rows(X, y, sample_weight, classes, after, dialect)
        if expert_scores is None:
            return prepared
        return prepared._replace(early=check_expert_scores(expert_scores, len(prepared.weight)))

    def _prepare_rows(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        classes: Any,
        after: Prepared | None,
        dialect: Dialect | Literal["one"],
    ) -> Prepared:
        """Prepare rows that all count."""
        encoder, labels, committee = self._known(after)
        if dialect == "one":
            rows, grown = encoder.encode_one(X)
        else:
            rows, grown = X if isinstance(X, Encoded) else self._encode(X, dialect, encoder, known_only=False)
        n, width = rows.shape
        weight = np.ones(n) if sample_weight is None else check_weight(sample_weight, n, name="sample_weight")
        plain = None if committee is None or classes is not None else self._plain_targets(y, labels, committee.loss)
        targets = plain or self._encode_targets(y, classes, labels, committee)
        if (k := len(targets.y)) != n:
            raise ValueError(f"y has {k} rows and X has {n}: inconsistent numbers of samples. Pass one target a row.")
        is_first = committee is None
        if committee is None:
            committee = self._make_committee(targets, grown)
        if plain is None:
            self._check_targets(targets.y, committee.loss)
        if sample_weight is not None:
            committee.check_weight(weight)
        if is_first:
            self._refuse_text_in_monotone_columns(grown, committee)
            first = np.asarray(rows[:1])
            if categories := [j for j in grown.categorical if not np.isnan(first[0, j])]:
                committee.set_categorical(categories, _room_for_levels(grown))
            committee.allocate(width, committee.loss.n_targets)  # which may tell that options do not fit these rows
        if grown is not encoder or targets.labels is not labels:
            if not is_first:
                self._check_size(grown, targets.labels)
            self._check_schema(grown, committee, self._n_outputs(targets, committee.loss))
        prepared = Prepared(rows, targets, weight, committee, grown, (None, None) if is_first else (encoder, labels))
        if is_first:
            self._try_parts(prepared)
        return prepared

    def _prepare_some(
        self, X: Any, y: Any, weight: FloatArray, classes: Any, after: Prepared | None, dialect: Dialect
    ) -> Prepared | None:
        """Prepare rows some of which weigh 0: these bring no column, category or class, and need no target.

        None if they have to be taken as they are: where nothing counts and nothing is known, or to be refused.
        """
        if not hasattr(X, "__len__") and not hasattr(X, "shape"):  # a stream, which can be read once only
            X = pa.table(X)
        counts = weight > 0
        n = len(X) if isinstance(X, Sequence) else (X.X if isinstance(X, Encoded) else X).shape[0]
        encoder, labels, committee = self._known(after)
        if weight.shape != (n,) or not np.isfinite(weight).all() or (weight < 0).any() or len(y) != n:
            return None
        if counts.any():
            some = X._replace(X=np.asarray(X.X)[counts]) if isinstance(X, Encoded) else select_rows(X, counts)
            prepared = self._prepare_rows(some, select_rows(y, counts), weight[counts], classes, after, dialect)
        elif committee is not None:
            targets = Targets(np.zeros((0, committee.loss.n_targets)), labels, 0 if labels is None else len(labels))
            prepared = Prepared(np.zeros((0, 0)), targets, weight, committee, encoder, (encoder, labels))
        else:
            return None
        rows = X.X if isinstance(X, Encoded) else self._encode(X, dialect, prepared.encoder, known_only=True).X
        all_targets = np.full((n, prepared.targets.y.shape[1]), np.nan)
        all_targets[counts] = prepared.targets.y
        return prepared._replace(X=rows, targets=prepared.targets._replace(y=all_targets), weight=weight)

    def _learn_prepared(self, prepared: Prepared, undo: Undo | None = None) -> FloatArray:
        """Learn prepared rows; return the raw scores made before, (n, m)."""
        own, (encoder, labels), section = self.__dict__, prepared.against, object()
        if self.is_frozen:
            raise frozen("model")
        try:
            critical_section.enter(self, section)
            is_taken = encoder is None and prepared.committee.n_rows  # by another model that these were first rows of
            if encoder is not own.get("encoder_") or labels is not own.get("labels_") or is_taken:
                other = "a model that knew other columns or classes than this one does now"
                raise ValueError(f"the rows were prepared for {other}. Call prepare again.")
            n, committee = len(prepared.weight), prepared.committee
            is_known = prepared.encoder is encoder and prepared.targets.labels is labels and not own["unseen_columns_"]
            if undo is None and (not is_known or is_needed(committee, n)):
                undo = self.undo(prepared)
            try:
                if prepared.encoder is not encoder:
                    self._commit_schema(prepared)
                early = not_kept(n) if prepared.early is None else prepared.early
                if prepared.targets.labels is None:
                    return self._learn_rows(prepared.X, prepared.targets.y, prepared.weight, early)
                return self._learn_classes(prepared.X, prepared.targets, prepared.weight, early)
            except Exception:  # an interrupt comes between whole rows, which stay learned
                if undo is not None:
                    undo.restore()
                raise
        finally:
            critical_section.leave(self, section)

    def _restart(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> FloatArray:
        """Forget everything and learn the rows; if they are refused, nothing is forgotten.

        Return the raw scores made before each row was learned, (n, m).
        """
        if sample_weight is not None and not np.asarray(sample_weight, dtype=float).any():
            raise ValueError("sample_weight is zero in every row, expected one above 0: there is nothing to learn.")
        fresh = type(self)(**self.get_params(deep=False))
        prepared = fresh._prepare(X, y, sample_weight, classes=classes)
        warn_of_tail(prepared.targets._replace(y=prepared.targets.y[prepared.weight > 0]))
        growth = prepared.committee.growth if isinstance(prepared.X, np.ndarray) else None
        if growth is not None:
            growth.rest_until = NEVER  # the whole table comes at once, after it was learned row by row
        with WorkMeter() as meter:
            n = len(prepared.weight)
            meter.begin(f"learning {n:,} rows", n, lambda: prepared.committee.n_rows)
            scores = fresh._learn_prepared(prepared)
            if growth is not None:
                meter.begin(f"sweeping over {n:,} rows")
                growth.rest_until = WAIT * fresh.committee_.n_rows
                fresh._study(growth, prepared, scores, meter.count)
        kept = {name: value for name, value in self.__dict__.items() if not name.endswith("_")}
        self.__dict__ = kept | fresh.__dict__  # in one step: an interrupt finds the old model or the new one
        return scores

    def _study(self, growth: Growth, prepared: Prepared, scores: FloatArray, progress: Progress) -> None:
        """Sweep over prepared rows that were learned; ``scores`` are those of the vote before."""
        committee, counts = self.committee_, prepared.weight > 0
        y, said = self._coded(prepared.targets.y[counts], scores[counts])
        if committee.origin is not None:
            y, said = y - committee.origin, said - committee.origin
        X: Any = prepared.X
        rows = Chunk(np.ascontiguousarray(X[counts]), y, prepared.weight[counts] / committee.mean_weight)
        n_held = _most_rows(committee, rows)
        if n_held < len(y):  # the newest are worth most
            rows, said = Chunk(*(each[len(y) - n_held :] for each in rows)), said[len(y) - n_held :]
        growth.study(committee, rows, said, progress)

    def _coded(self, y: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return targets and scores as the loss has them, once all rows are known."""
        return y, scores

    def _encode(self, X: Any, dialect: Dialect, encoder: Encoder, *, known_only: bool) -> Encoded:
        """Encode rows of any kind; change nothing."""
        encoded = encoder.encode(X, dialect=dialect, known_only=known_only, owner=type(self).__name__)
        if dialect == "array" and self.new_columns == "error":
            is_known = encoder is self.__dict__.get("encoder_")
            if not is_known or encoder.names is not None or not isinstance(X, np.ndarray):
                self._compare_names(X, is_known)
        if len(encoded.X) == 0:
            found = f"Found array with 0 sample(s) (shape={encoded.X.shape}) while a minimum of 1 is required"
            is_reader = hasattr(X, "read_next_batch")
            way_out = "A reader gives its rows once: make a new one" if is_reader else "Skip empty chunks"
            raise ValueError(f"X is empty: {found}. {way_out}.")
        return encoded

    def _compare_names(self, X: Any, is_known: bool) -> None:
        """Let scikit-learn say in its own words how names differ, if it looks for any in rows of this kind."""
        library = type(X).__module__.partition(".")[0]
        is_frame = library in ("pandas", "polars")
        speaks_arrow = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
        if is_frame or not (speaks_arrow or isinstance(X, list) or getattr(getattr(X, "dtype", None), "names", None)):
            named = _FrameNames(X) if ASKS_BY_PROTOCOL and library == "polars" else X
            validate_data(self if is_known else BaseEstimator(), named, reset=not is_known, skip_check_array=True)

    def _check_size(self, encoder: Encoder, labels: Labels | None) -> None:
        """Refuse to grow without end: names or labels that are data would make every row slower than the one before."""
        defaults.check_limits(self)
        n_classes = 0 if labels is None else len(labels)
        for what, n, most in (
            ("columns", encoder.n_features, self.max_columns),
            ("classes", n_classes, self.max_classes),
        ):
            if n > most:
                told = f"the model would have {n:,} {what}, expected at most {most:,}"
                way_out = f"Are their names data? If all are meant, set max_{what} of the model."
                raise ValueError(f"{told} beyond those of its first rows. {way_out}")

    def _check_schema(self, encoder: Encoder, committee: Committee, n_outputs: int) -> None:
        """Refuse columns, categories and classes that the committee cannot grow by."""
        self._refuse_text_in_monotone_columns(encoder, committee)
        n_levels = _room_for_levels(encoder, _most_levels(encoder))
        committee.check_growth(encoder.width, n_outputs, len(encoder.categorical), n_levels)

    def _refuse_text_in_monotone_columns(self, encoder: Encoder, committee: Committee) -> None:
        signs = getattr(committee.boosters[0].stack, "monotone", ())
        for j in [j for j in encoder.categorical if j < len(signs) and signs[j]]:
            column = f"column {encoder.name_at(j)!r} holds text"
            expected = "numbers: levels have no order in which to rise or fall. Leave it out there."
            raise ValueError(f"{column}, but monotonic_cst gives it a sign, expected {expected}")

    def _try_parts(self, first: Prepared) -> None:
        """Let a copy learn the first row where a user's own parts are to learn: only trying tells what they refuse."""
        if any(not isinstance(part, (str, int, float, type(None))) for part in (self.loss, self.learner, self.base)):
            trial = copy.deepcopy(self)
            one = first._replace(X=first.X[:1], targets=first.targets._replace(y=first.targets.y[:1]))
            trial._learn_prepared(one._replace(weight=first.weight[:1], committee=copy.deepcopy(first.committee)))

    def _commit_schema(self, prepared: Prepared) -> None:
        """Make the columns and categories of prepared rows known."""
        encoder, committee = prepared.encoder, prepared.committee
        if "committee_" not in self.__dict__:
            self._draw_seed()  # as prepare did, from a copy
            self.committee_, self.encoder_ = committee, self._new_encoder()
            self.unseen_columns_: list[int] = []
        known, n_features = self.encoder_.n_features, encoder.n_features
        more = encoder.width - (committee.n_features or 0)  # rows before the first column had one, always missing
        if more > 0:
            committee.add_features(more)
        self.encoder_ = encoder
        self.unseen_columns_ = [*self.unseen_columns_, *range(known, n_features)]
        if n_features > known:
            self.n_features_in_ = n_features
            if encoder.names is not None and all(isinstance(name, str) for name in encoder.names):
                self.feature_names_in_ = np.array(encoder.names, dtype=object)

    def _learn_rows(
        self, X: FloatArray | SparseRows, y: FloatArray, weight: FloatArray, early: FloatArray
    ) -> FloatArray:
        """Learn checked rows; a column counts from the row that first has a value there, in a chunk as one by one.

        So does room for many levels, from the row that first needs it.
        """
        committee = self.committee_
        if isinstance(X, SparseRows):
            blocks = X.blocks(committee.boosters[0].step_rows(len(X)))
            parts = [self._learn_rows(block, y[rows], weight[rows], early[rows]) for rows, block in blocks]
            return np.concatenate(parts)
        n_known = _most_levels(self.encoder_)
        room = _room_for_levels(self.encoder_, n_known)
        is_crowded = n_known > 0 and room > committee.n_levels
        if not self.unseen_columns_ and not is_crowded:
            return committee.learn_checked(X, y, weight, early)
        places = self.encoder_.places
        present = {j: np.flatnonzero(~np.isnan(X[:, places[j]]) & (weight > 0)) for j in self.unseen_columns_}
        begins = sorted((int(rows[0]), j) for j, rows in present.items() if len(rows))
        crowded = self._crowded_rows(X, weight) if is_crowded else []
        stops = [*sorted({row for row in (*(row for row, _ in begins), *crowded) if row > 0}), len(X)]
        parts, start = [], 0
        for stop in stops:
            self._announce([j for row, j in begins if row == start])
            if start in crowded:
                committee.set_categorical(committee.categorical, room)
            rows = slice(start, stop)
            parts.append(committee.learn_checked(X[rows], y[rows], weight[rows], early[rows]))
            start = stop
        return np.concatenate(parts)

    def _crowded_rows(self, X: FloatArray, weight: FloatArray) -> list[int]:
        """Return the first row that has a level beyond those there is room for, if any."""
        places = list(self.encoder_.categorical)
        n_levels = self.committee_.n_levels or _room_for_levels(self.encoder_)
        return [int(row) for row in np.flatnonzero((X[:, places] >= n_levels - 1).any(axis=1) & (weight > 0))[:1]]

    def _announce(self, columns: Sequence[int]) -> None:
        """Say that columns have their first values, and which of them hold categories."""
        committee, encoder = self.committee_, self.encoder_
        self.unseen_columns_ = [j for j in self.unseen_columns_ if j not in columns]
        for name in [encoder.names[j] if encoder.names else j for j in columns] if committee.n_rows else ():
            committee.events.append(Event(committee.n_rows, "new column", str(name)))
        places = encoder.places[[j for j in columns if encoder.kinds[j] == "category"]].tolist() if columns else []
        categories = [place for place in places if place not in committee.categorical]
        if categories:
            n_levels = max(committee.n_levels, _room_for_levels(encoder))
            committee.set_categorical([*committee.categorical, *categories], n_levels)

    def _make_committee(self, targets: Targets, encoder: Encoder) -> Committee:
        """Make the committee of first rows, with a seed that is drawn again when they are learned."""
        return defaults.make_committee(self._options(encoder), self._make_loss(targets), self._draw_seed(is_trial=True))

    def _draw_seed(self, *, is_trial: bool = False) -> int:
        """Draw from the random state; for a trial, from a copy of it."""
        try:
            random = check_random_state(self.random_state)
        except (ValueError, TypeError):  # of a tuple, scikit-learn before 1.9 fails to say what it is
            expected = "a whole number from 0 to 2 ** 32 - 1, a RandomState, or None for a different run each time."
            raise refused("random_state", self.random_state, expected) from None
        return int((copy.deepcopy(random) if is_trial else random).randint(2**31 - len(defaults.LEVELS)))

    def _options(self, encoder: Encoder) -> SimpleNamespace:
        """The parameters, with columns by where they stand in encoded rows."""
        signs = defaults.number_columns(self.monotonic_cst, encoder.names, encoder.places if encoder.dates else None)
        mode = self.update_mode if self.semantics is None else self.semantics
        return SimpleNamespace(**{**self.get_params(deep=False), "monotonic_cst": signs, "update_mode": mode})

    @abstractmethod
    def _encode_targets(self, y: Any, classes: Any, labels: Labels | None, committee: Committee | None) -> Targets:
        """Return targets as floats, and the labels that know them; change nothing."""

    @abstractmethod
    def _plain_targets(self, y: Any, labels: Labels | None, loss: Loss) -> Targets | None:
        """Return targets that are as plain as most are, checked; None if they have to be looked at."""

    def _check_targets(self, y: FloatArray, loss: Loss) -> None:
        """Refuse targets the loss cannot learn from."""

    def _n_outputs(self, targets: Targets, loss: Loss) -> int:
        """Return how many outputs there will be once these targets are learned."""
        return loss.n_outputs

    @abstractmethod
    def _make_loss(self, targets: Targets) -> Loss:
        """Make the loss for targets such as these."""

    def _learn_classes(
        self, X: FloatArray | SparseRows, targets: Targets, weight: FloatArray, early: FloatArray
    ) -> FloatArray:
        """Learn checked rows of classes; return the raw scores made before."""
        raise NotImplementedError

    # Predicting never changes anything.

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the target of every row, (n,) or (n, m), or its class."""
        return self.predict_from_scores(self.raw_scores(X))

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """Predict with the first learner, the first two, and so on."""
        return map(self.predict_from_scores, self._staged_scores(X))

    def predict_many(self, X: Any) -> Any:
        """Predict a frame of rows; a pandas Series with the frame's index."""
        pandas = require("pandas", extra="river", by="predict_many")
        return pandas.Series(self.predict_from_scores(self._scores_of_frame(X)), index=getattr(X, "index", None))

    def encode(self, X: Any) -> FloatArray:
        """Return rows as the model sees them when it predicts: what it does not know is missing.

        Each row has one number for every column, and with ``date_parts`` those of its dates, (n, encoder_.width).
        """
        return np.asarray(self._known_rows(X))

    def raw_scores(self, X: Any) -> FloatArray:
        """Return the raw score of every row, (n, m); X may also be rows that ``encoder_`` has encoded."""
        rows, committee = self._known_rows(X), self.committee_
        if isinstance(rows, SparseRows):
            return self._class_scores(np.concatenate([committee.score_checked(block) for _, block in rows.blocks()]))
        return self._class_scores(committee.score_checked(rows))

    def expert_scores(self, X: Any) -> FloatArray:
        """Return what each expert says of every row, (n, k): to be kept, and handed back when the labels come late.

        ``learn``, ``learn_one`` and :meth:`prepare` take it as ``expert_scores=``. How experts are best combined, and
        how sure to be, is then learned from what they said while the label was not there, as for the rows to come.

        Examples
        --------
        >>> from streamboost import SGBRegressor, datasets
        >>> X, y, *_ = datasets.friedman(2000, seed=0)
        >>> model = SGBRegressor(random_state=0).partial_fit(X[:1000], y[:1000])
        >>> kept = model.expert_scores(X[1000:1002])  # two rows are predicted
        >>> model = model.partial_fit(X[1002:], y[1002:])  # others come
        >>> later = model.learn(X[1000:1002], y[1000:1002], expert_scores=kept)  # their labels
        """
        return self.raw_and_expert_scores(X)[1]

    def raw_and_expert_scores(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return :meth:`raw_scores` and :meth:`expert_scores` of every row, at the cost of one."""
        rows, committee = self._known_rows(X), self.committee_
        blocks = [block for _, block in rows.blocks()] if isinstance(rows, SparseRows) else [rows]
        scores, told = zip(*map(committee.score_experts, blocks), strict=True)
        return self._class_scores(np.concatenate(scores)), np.concatenate(told)

    def _known_rows(self, X: Any) -> FloatArray | SparseRows:
        """Return rows as the model sees them when it predicts, (n, d)."""
        check_is_fitted(self)
        return X.X if isinstance(X, Encoded) else self._encode(X, "array", self.encoder_, known_only=True).X

    @abstractmethod
    def predict_from_scores(self, scores: FloatArray) -> NDArray[Any]:
        """Return what raw scores (n, m) mean: a target or a label for every row."""

    def _class_scores(self, scores: FloatArray) -> FloatArray:
        """Return scores as predictions are read from them."""
        return scores

    def _scores_of_frame(self, X: Any) -> FloatArray:
        """Return the raw scores of a frame in River's dialect, (n, m)."""
        check_is_fitted(self)
        return self.raw_scores(self._encode(X, "dict", self.encoder_, known_only=True))

    def _score_one(self, x: Row) -> FloatArray:
        """Return the raw score of one dict row, (1, m)."""
        rows: Any = self.encoder_.encode_one(x, known_only=True).X
        return self._class_scores(self.committee_.score_checked(rows))

    def _staged_scores(self, X: Any) -> Iterator[FloatArray]:
        """Return the raw scores after the first learner, the first two, and so on."""
        rows = self.encode(X)
        return map(self._class_scores, self.committee_.staged_scores(rows))

    # Why it predicts what it does.

    def explain(self, X: Any) -> FloatArray:
        """Return what each column contributes to the score of every row, and last what none does, (n, d + 1).

        They add up to the score: of a regressor what :meth:`predict` returns (under losses for counts its logarithm),
        of a classifier what ``decision_function`` returns; of several classes or outputs, (n, d + 1, m). Trees count by
        path-dependent Shapley values, the base by its terms, both as the hedge listens to them; the last number is
        what is said of no row in particular, nearly the same for all rows. A frozen base, which says nothing of
        columns, is in it, too. See ``docs/explain.md``.

        Examples
        --------
        >>> from streamboost import SGBRegressor, datasets
        >>> X, y, *_ = datasets.friedman(2000, seed=0)
        >>> model = SGBRegressor(random_state=0).fit(X, y)
        >>> contributions = model.explain(X[:5])
        >>> contributions.shape, bool(abs(contributions.sum(axis=1) - model.predict(X[:5])).max() < 1e-9)
        ((5, 11), True)
        """
        return explaining.explain(self, X)

    def explain_one(self, x: Row) -> explaining.Contributions:
        """Return what each column contributes to the score of one dict row, by name, the largest first, and the rest.

        Of several classes or outputs each is a dict, by label or number.
        """
        return explaining.explain_one(self, x)

    @staticmethod
    def explain_change(
        x_then: Any, x_now: Any, model_then: StreamEstimator, model_now: StreamEstimator
    ) -> explaining.Change:
        """Return why scores changed, (n, d + 1) each: ``input``, what the rows did, and ``model``, what it learned.

        For ``model_then`` keep a ``freeze()`` of the model. Both together add up to the difference of the scores.

        Examples
        --------
        >>> from streamboost import SGBRegressor, datasets
        >>> X, y, *_ = datasets.friedman(2000, seed=0)
        >>> model = SGBRegressor(random_state=0).partial_fit(X[:1000], y[:1000])
        >>> then = model.freeze()
        >>> model = model.partial_fit(X[1000:], y[1000:])
        >>> change = model.explain_change(X[:1], X[1:2], then, model)
        >>> difference = model.predict(X[1:2]) - then.predict(X[:1])
        >>> bool(abs((change.input + change.model).sum(axis=1) - difference).max() < 1e-9)
        True
        """
        return explaining.explain_change(x_then, x_now, model_then, model_now)

    def shap_explanation(self, X: Any) -> Any:
        """Return :meth:`explain` as a ``shap.Explanation``, for the plots of shap, if that is installed."""
        return explaining.shap_explanation(self, X)

    # What the model says of itself.

    @property
    def n_samples_seen_(self) -> int:
        """Rows learned so far: after a Ctrl-C that came while rows were being learned, these are the whole ones."""
        check_is_fitted(self)
        return self.committee_.n_rows

    @property
    def booster_(self) -> Booster:
        """The booster with the longest memory of the ladder; one that holds all rows is ``committee_.boosters[0]``."""
        check_is_fitted(self)
        boosters = self.committee_.boosters
        return boosters[int(boosters[0].rests)]

    @property
    def edges_(self) -> FloatArray:
        """The edge of each learner, the share of its targets explained on the latest rows; longest memory first."""
        check_is_fitted(self)
        return np.concatenate([booster.edges.recent for booster in self.committee_.boosters])

    @property
    def weights_(self) -> dict[tuple[int | None, int], float]:
        """Whom the hedge trusts: the weight of each expert, by its memory and how many of its learners it adds up."""
        check_is_fitted(self)
        return self.committee_.weights()

    @property
    def coefficients_(self) -> dict[tuple[int | None, int] | str, float]:
        """How far the prediction goes beyond the vote towards each expert, by memory and number of learners.

        For classes also how far the vote's own score is stretched, ``"slope"``, and its choice preferred, ``"step"``.
        """
        check_is_fitted(self)
        return self.committee_.coefficients()

    @property
    def events_(self) -> list[Event]:
        """What happened so far: memory dropped, new classes, new columns, each with its row."""
        check_is_fitted(self)
        return list(self.committee_.events)

    @property
    def feature_importances_(self) -> FloatArray:
        """Each column's share in how far predictions move with it, as the model stands now, (d,).

        Rows that the longest memory holds take the value another row has in the column, and the squares of how far
        their predictions move (probabilities, for classes) are added up: base and trees together, as the hedge listens
        to them. The shares sum to 1. A frozen base is not asked: then they speak of the trees alone.
        """
        check_is_fitted(self)
        shares = self.committee_.feature_importances(self.encoder_.owners)
        if shares is None:
            raise AttributeError(f"feature_importances_ needs trees, but the learner is {self.learner!r}.")
        return shares

    @property
    def is_frozen(self) -> bool:
        """Whether the model predicts only: see :meth:`freeze`."""
        return "committee_" in self.__dict__ and self.committee_.is_frozen

    def freeze(self) -> Self:
        """Return a model that predicts as this one does now, bit for bit, and learns no more.

        It is small, as it holds none of the rows in memory, and shares nothing with this model, which goes on learning.
        Verbs that predict and everything the model says of itself are as before, ``feature_importances_`` as of now;
        verbs that learn are refused, except ``fit``, which starts anew as ever.

        Examples
        --------
        >>> from streamboost import SGBRegressor, datasets
        >>> X, y, *_ = datasets.friedman(2000, seed=0)
        >>> model = SGBRegressor(random_state=0).fit(X, y)
        >>> frozen = model.freeze()
        >>> bool((frozen.predict(X) == model.predict(X)).all())
        True
        >>> frozen.learn_one({0: 0.5}, 14.0)
        Traceback (most recent call last):
            ...
        RuntimeError: the model is frozen: it predicts, and learns no more. Learn with the model it was made of...
        """
        return freezing.freeze(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file that :func:`streamboost.load` reads; no pickle."""
        snapshots.save(self, path)

    # River's dialect: what both estimators share.

    def learn_one(self, x: Row, y: Any, *, w: float = 1.0, expert_scores: Any = None) -> None:
        """Learn one row, a dict of column name to value, and its target; its weight ``w`` is 1 by default.

        An absent name is a missing value, a new one a new column. ``expert_scores`` are those of the one row, if its
        label comes late: see :meth:`expert_scores`.
        """
        weight, early = None if w == 1.0 else [w], None if expert_scores is None else [np.ravel(expert_scores)]
        self._learn_prepared(self._prepare(x, [y], weight, dialect="one", expert_scores=early))

    def learn_many(self, X: Any, y: Any, *, w: Any = None) -> None:
        """Learn a frame of rows; columns are matched by name, and new ones may come."""
        self._learn_prepared(self._prepare(X, y, w, dialect="dict"))
