"""The live model: what each request changes, and in which order."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost import answers
from streamboost.answers import joined, no_answers
from streamboost.errors import SnapshotError
from streamboost.guards import Quarantine, Sifted
from streamboost.journal import Entry, Journal, Transaction
from streamboost.live.answers import Answer, packed, take_back, unpacked, without_labels
from streamboost.live.bounds import Bounds, known_classes, known_columns
from streamboost.live.figures import Figures
from streamboost.live.first_answers import write_first
from streamboost.live.foresight import check
from streamboost.live.intake import (
    as_table,
    check_keys,
    check_labels,
    pack_rows,
    plain,
)
from streamboost.live.learner import REFUSALS, Learner, Lesson, split
from streamboost.live.outcomes import Labelled, Learned, NotTogether, Share, learned_of, refused_of, shares_of
from streamboost.live.waiting import Rules, Waiting, put_aside

CHUNK = 1000  # rows that are settled in one transaction, where nobody asked for more
logger = logging.getLogger(__name__)


class LiveModel(Figures):
    """A model that learns from requests. Every change is durable in a journal before it is made; one thread writes.

    ``remember`` may be called from any thread, and figures may be looked at from any. Everything else is for one
    thread at a time; a second one is refused.

    Parameters
    ----------
    directory : path
        Holds the checkpoints, the journal and the quarantine. What is there goes on.
    model : SGBRegressor or SGBClassifier, optional
        For a new directory, best with ``new_columns="grow"``; a copy of it is used. Ignored where there is a model.
    target : str, optional
        The name of the column with targets; left out, the one the directory knows, or ``"target"``.
    checkpoint_every : int
        Rows learned between checkpoints.
    expire_after : float, optional
        Seconds a row waits for its label; left out, for as long as there is room.
    default : label, optional
        What rows are learned with that waited too long, such as 0 for "not clicked"; left out, they are dropped.
    pending_limit : int
        How many rows may wait; beyond, those that waited longest are expired. As many learned rows are kept for
        corrections, and as many early labels.
    correct_within : float
        Seconds for which the label of a learned row can be corrected, and a label waits for its row.
    remember_ids : int
        How many ids of requests are remembered.
    max_columns, max_classes : int, optional
        How many columns and classes the model may come to know; left out, any number. A table that would bring more is
        refused; of rows and labels that waited, those that would are put into the quarantine. Both may be set later.
    durable : bool
        Whether requests survive a power cut; the crash of the process they survive always.
    clock : callable
        Seconds.
    on_learned : callable, optional
        Called with a dict and a :class:`Lesson` after rows were learned, again in a replay. The dict is ``state``:
        what is kept there, such as metrics, is as exact as the model.

    Attributes
    ----------
    model : SGBRegressor or SGBClassifier
    rows : int
        Rows learned, corrections included.
    state : dict
        Whatever else is to be saved with the model.
    n_pending, n_early : int
        Rows that wait for labels, and labels that wait for rows.
    n_corrected, n_expired, n_crowded, n_dropped, n_quarantined : int
        Rows learned again; rows that waited too long, or made room; those of them that made room; those that left
        without being learned; rows and labels that could not be learned.
    journal_length : int
        Entries in the journal: those since the last checkpoint but one.
    last_checkpoint_error : str or None
        Why the last checkpoint could not be written; nothing is lost, as the journal is kept.

    Examples
    --------
    >>> import tempfile
    >>> from streamboost import SGBClassifier
    >>> rows = pa.table({"hour": [9, 23], "place": ["top", "side"]})
    >>> with LiveModel(tempfile.mkdtemp(), SGBClassifier(new_columns="grow"), target="clicked") as live:
    ...     before = live.predict(rows, keys=["view-1", "view-2"])
    ...     labelled = live.label(["view-2", "view-1"], [0, 1])
    ...     corrected = live.label(["view-2"], [1])
    >>> labelled.learned, corrected.corrected, live.rows, live.n_pending
    (2, 1, 3, 0)
    """

    def __init__(
        self,
        directory: str | PathLike[str],
        model: Any = None,
        *,
        target: str | None = None,
        checkpoint_every: int = 50_000,
        expire_after: float | None = None,
        default: Any = None,
        pending_limit: int = 1_000_000,
        correct_within: float = 86_400.0,
        remember_ids: int = 100_000,
        max_columns: int | None = None,
        max_classes: int | None = None,
        durable: bool = True,
        clock: Callable[[], float] = time.time,
        on_learned: Callable[[dict[str, Any], Lesson], None] | None = None,
    ) -> None:
        _check_positive(
            checkpoint_every=checkpoint_every,
            expire_after=1 if expire_after is None else expire_after,
            pending_limit=pending_limit,
            correct_within=correct_within,
            remember_ids=remember_ids,
            max_columns=1 if max_columns is None else max_columns,
            max_classes=1 if max_classes is None else max_classes,
        )
        self.directory = Path(directory)
        self.checkpoint_every = checkpoint_every
        self.expire_after, self.default = expire_after, default
        self.pending_limit, self.correct_within = pending_limit, correct_within
        self.max_columns, self.max_classes = max_columns, max_classes
        self.clock = clock
        self.on_learned = on_learned
        self._writing = threading.Lock()
        self._is_closed = False
        self._refused: list[tuple[Entry, str]] = []  # of the latest entries, those that the model did not take
        self._quarantine = Quarantine(self.directory / "quarantine.jsonl")
        self._learner = Learner(
            self.directory,
            model,
            target,
            lambda path: Journal(path, durable=durable, limit=int(pending_limit), ids=int(remember_ids)),
            self._tell,
            self._refuse,
        )
        self._journal = self._learner.journal
        self._waiting = Waiting(self._learner, self._quarantine)
        self._checkpoint_if_due()

    # Requests.

    def predict(self, table: Any, keys: Sequence[str] | None = None, *, id: str | None = None) -> NDArray[Any]:
        """Predict rows, and remember them if they have keys, as :meth:`remember` does.

        Before anything was learned, a number is 0 and a class None.
        """
        with self._writer():
            table = as_table(table)
            said = answers.predict(self._learner.model, table)
            if keys is not None:
                self.remember(keys, table, said.probabilities or said.values, id=id)
                self._tidy()
        is_unknown_number = self.task == "regression" and not said.known.any()
        return np.zeros(len(said.known)) if is_unknown_number else said.values

    def remember(self, keys: Sequence[str], table: Any, predictions: Any = None, *, id: str | None = None) -> None:
        """Let rows wait for their labels, in place of earlier ones of the same keys; from any thread.

        The rows are durable when this returns. Labels that were there before them are learned with the writer's next
        request.

        Parameters
        ----------
        keys : sequence of str, of length n
            A key names one prediction, such as a view or an order: it is what the label will come with.
        table : pyarrow.Table of n rows
            Without the target.
        predictions : array of shape (n,) or Probabilities, optional
            What was said of the rows; it comes back with the label, to be scored.
        id : str, optional
            Of the request: one with the same id does nothing. Without it, rows that are sent again wait again, even if
            they have been learned meanwhile.
        """
        table = as_table(table)
        keys = check_keys(keys)
        if len(keys) != table.num_rows:
            raise ValueError(f"there are {len(keys)} keys and {table.num_rows} rows, expected a key for each row.")
        if self.target in table.column_names:
            raise ValueError(
                f"the rows hold the column {self.target!r}, which is what is to be predicted. Leave it out, or learn "
                "the rows if it is known."
            )
        first = None if predictions is None else write_first(predictions, len(keys))
        if keys and self._answered(id, "remember") is None:
            too_wide = self._bounds.why_not_columns(known_columns(self.model), table.column_names)
            if too_wide is not None:
                raise ValueError(too_wide)
            self._journal.put(pack_rows(keys, plain(table), self.clock(), first), id)

    def learn(self, table: Any, *, id: str | None = None) -> Learned:
        """Predict rows, then learn them.

        Parameters
        ----------
        table : pyarrow.Table
            With the target. Rows that cannot be learned go to the quarantine.
        id : str, optional
            Of the request: one with the same id is not learned again.
        """
        with self._writer() as learner:
            answered = self._answered(id, "learn")
            if answered is not None:
                self._tidy()  # a crash may have come before
                return Learned(**answered, repeated=True, y=np.zeros(0), answers=no_answers(0), good=np.ones(0, bool))
            return self._learn(self._write_rows(self._sift(learner, as_table(table)), [table.num_rows], [id]))[0]

    def learn_together(self, tables: Sequence[Any], ids: Sequence[str | None]) -> list[Learned]:
        """The same as :meth:`learn` of each table in turn, at less cost: they are written down and learned as one.

        Parameters
        ----------
        tables : sequence of pyarrow.Table
            Of the same columns and types.
        ids : sequence of str or None
            Of the requests, one for each table.

        Raises
        ------
        NotTogether
            If they cannot be learned as one; nothing was changed. Learn each by itself.
        """
        with self._writer() as learner:
            try:
                known = [id for id in ids if id is not None]
                if len(set(known)) < len(known) or any(self._answered(id, "learn") is not None for id in known):
                    raise NotTogether("a request was answered before, expected new ones. Learn each by itself.")
                sifted = self._sift(learner, pa.concat_tables(map(as_table, tables)))
                shares = self._write_rows(sifted, [table.num_rows for table in tables], ids)
            except REFUSALS as error:  # of one of them, perhaps: who is meant shows when each is alone
                raise NotTogether(str(error)) from error
            return self._learn(shares)

    def _sift(self, learner: Learner, table: Any) -> tuple[Any, Sifted, Any]:
        """Sort out bad rows, and see that the model would take the others: the table, what is in it, what to learn."""
        sifted = learner.guard.sift(table, self.target, self.task, self.model)
        entry = None
        if len(sifted.y):
            bounds, model = self._bounds, self.model
            too_wide = bounds.why_not_columns(known_columns(model), sifted.X.column_names)
            too_many = bounds.why_not_classes(known_classes(model), sifted.y.tolist())
            if too_wide is not None or too_many is not None:
                raise ValueError(too_wide or too_many)
            entry = plain(sifted.X).append_column(self.target, pa.array(sifted.y))
            check(model, *split(entry))
        return table, sifted, entry

    def _write_rows(
        self, found: tuple[Any, Sifted, Any], sizes: Sequence[int], ids: Sequence[str | None]
    ) -> list[Share]:
        """Write rows down, for requests of so many rows each."""
        table, sifted, entry = found
        shares = shares_of(sifted, sizes)
        with self._journal.transaction() as changes:
            if entry is not None:
                changes.add_entry("learn", entry, origin={"ids": [id for id in ids if id is not None]})
            for share, id in zip(shares, ids, strict=True):
                rows = ((row, why, id, table.slice(share.start + row, 1)) for row, why in share.reasons.items())
                put_aside(self._quarantine, changes, rows)
                figures = {"rows": share.n_good, "quarantined": len(share.reasons), "reasons": share.reasons}
                self._answer(changes, id, "learn", figures)
        return shares

    def _learn(self, shares: Sequence[Share]) -> list[Learned]:
        """Learn rows that were written down."""
        lessons, refused = self._catch_up()
        self._tidy()
        return learned_of(shares, lessons[0]) if lessons else refused_of(shares, refused[0][1] if refused else "")

    def label(self, keys: Sequence[str], targets: Any, *, id: str | None = None) -> Labelled:
        """Learn rows whose labels have come.

        A label for a row that was learned with another one is learned too, within ``correct_within`` seconds; the
        earlier label cannot be unlearned. One for a row that has not come yet waits for it.

        Parameters
        ----------
        keys : sequence of str, of length n
        targets : array of shape (n,)
        id : str, optional
            Of the request: one with the same id is not learned again.
        """
        with self._writer():
            answered = self._answered(id, "label")
            nothing = no_answers(0)
            if answered is not None:
                self._tidy()  # a crash may have come before
                return Labelled(**answered, repeated=True, y=np.zeros(0), answers=nothing, first=nothing)
            keys = check_keys(keys)
            labels = check_labels(targets, len(keys))
            with self._journal.transaction() as changes:
                figures = self._waiting.take_labels(changes, keys, labels, id, self._rules(self.clock()))
                self._answer(changes, id, "label", figures)
            lessons, refused = self._catch_up()
            self._tidy()
        for entry, reason in refused:
            figures = without_labels(figures, entry.kind, entry.origin["places"], reason)
        lessons = [lesson for lesson in lessons if lesson.kind == "label"]
        if not lessons:
            return Labelled(**figures, repeated=False, y=np.zeros(0), answers=nothing, first=nothing)
        y = np.concatenate([lesson.y for lesson in lessons])
        answers, first = (joined([getattr(lesson, name) for lesson in lessons]) for name in ("answers", "first"))
        return Labelled(**figures, repeated=False, y=y, answers=answers, first=first)

    def expire(self, now: float | None = None, *, limit: int | None = None) -> int:
        """Learn or drop rows that have waited too long; return how many. To be called now and then.

        Rows whose label came before them are learned with it first, and are none of these.

        Parameters
        ----------
        now : float, optional
            Left out, what the clock says.
        limit : int, optional
            How many rows at most, so that other requests need not wait long.
        """
        with self._writer():
            now = self.clock() if now is None else now
            self._settle_due()
            n_expired, left = 0, math.inf if limit is None else limit
            if self.expire_after is not None:
                while n := self._expire_some(int(min(CHUNK, left)), now, until=now - self.expire_after):
                    n_expired, left = n_expired + n, left - n
            with self._journal.transaction() as changes:
                changes.forget(now - self.correct_within)
            self._tidy()
        return n_expired

    def checkpoint(self) -> Path:
        """Save the model, and shorten the journal. If there is an ``OSError``, nothing is lost."""
        with self._writer() as learner:
            return learner.checkpoint(self.clock() - self.correct_within)

    def close(self) -> None:
        """Save the model, if that is possible, and let another process have the directory."""
        with self._writing:
            if self._is_closed:
                return
            try:
                self._learner.heal()
                self._try_checkpoint()
            finally:
                self._is_closed = True
                self._learner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _writer(self) -> Iterator[Learner]:
        """Be alone, with a model that has learned all there is in the journal."""
        if not self._writing.acquire(blocking=False):
            raise RuntimeError(
                "two threads use a live model at once, expected one: only remember is for any thread. Send all "
                "requests through one thread."
            )
        try:
            if self._is_closed:
                raise ValueError(f"the live model in {str(self.directory)!r} is closed. Open it again.")
            self._learner.heal()
            yield self._learner
        finally:
            self._writing.release()

    # What was answered, what was learned, what could not be.

    def _answered(self, id: str | None, verb: str) -> Answer | None:
        """What was answered to a request with this id."""
        if id is None:
            return None
        check_keys([id], "id")
        found = self._journal.find_id(id)
        if found is None:
            return None
        if found[0] != verb:
            raise ValueError(f"id {id!r} is that of an earlier request to {found[0]}. Give each request its own.")
        return unpacked(found[1])

    def _answer(self, changes: Transaction, id: str | None, verb: str, answer: Mapping[str, Any]) -> None:
        if id is not None:
            changes.add_id(id, verb, packed(answer))

    def _tell(self, learner: Learner, lesson: Lesson) -> None:
        if self.on_learned is not None:
            self.on_learned(learner.state, lesson)

    def _catch_up(self) -> tuple[list[Lesson], list[tuple[Entry, str]]]:
        """Learn what was just written down; what the model does not take in spite of all checks comes back apart."""
        self._refused = []
        return self._learner.catch_up(), self._refused

    def _refuse(self, learner: Learner, entry: Entry, reason: str) -> None:
        """Never try an entry again that the model did not take, and take back what was promised with it."""
        rows = ((row, reason, entry.number, entry.table.slice(row, 1)) for row in range(entry.table.num_rows))
        with learner.journal.transaction() as changes:
            changes.refuse(entry.number, reason)
            put_aside(self._quarantine, changes, rows)
            take_back(changes, entry, reason)
        self._refused.append((entry, reason))

    # Between requests.

    @property
    def _bounds(self) -> Bounds:
        return Bounds(self.max_columns, self.max_classes if self.task == "classification" else None)

    def _rules(self, now: float) -> Rules:
        return Rules(now, self.correct_within, self.default, self._bounds)

    def _tidy(self) -> None:
        """After a request: early labels whose rows have come, rows in excess, and a checkpoint if one is due.

        The request itself is written down, and its answer must say so: what fails here comes again with the next one.
        """
        try:
            self._settle_due()
            while (surplus := self.n_pending - self.pending_limit) > 0:
                self._expire_some(min(surplus, CHUNK), self.clock())
                self._settle_due()  # of rows that came meanwhile
        except (OSError, SnapshotError) as error:
            logger.error("rows that are due in %s could not be learned yet (%s).", self.directory, error)
        self._checkpoint_if_due()

    def _settle_due(self) -> None:
        """Learn rows whose labels came before them."""
        while self._journal.counts["due"]:
            with self._journal.transaction() as changes:
                self._waiting.join_early(changes, CHUNK, self._rules(self.clock()))
            self._catch_up()

    def _expire_some(self, n: int, now: float, until: float | None = None) -> int:
        """Learn or drop up to n of the rows that have waited longest; return how many there were."""
        with self._journal.transaction() as changes:
            n_expired = self._waiting.expire(changes, n, until, self._rules(now))
        self._catch_up()
        return n_expired

    def _checkpoint_if_due(self) -> None:
        if self.rows - self._learner.rows_tried >= self.checkpoint_every:
            self._try_checkpoint()

    def _try_checkpoint(self) -> None:
        try:
            self._learner.checkpoint(self.clock() - self.correct_within)
        except (OSError, SnapshotError) as error:
            logger.error(
                "no checkpoint could be written to %s (%s). Nothing is lost: the journal is kept, and the next try "
                "comes after %d more rows.",
                self.directory,
                error,
                self.checkpoint_every,
            )


def _check_positive(**options: Any) -> None:
    for name, value in options.items():
        if not isinstance(value, (int, float, np.number)) or not value > 0:
            raise ValueError(f"{name} is {value!r}, expected a number above 0. If unsure, leave it out.")
