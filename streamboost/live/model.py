"""The live model: what each request changes, and in which order."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.errors import SnapshotError
from streamboost.evaluation.predictions import concatenate, predict
from streamboost.live import request_checks, results
from streamboost.live.journal import table_bytes
from streamboost.live.pending import PendingRows
from streamboost.live.request_checks import REFUSALS, as_table, check_keys
from streamboost.live.results import Answer, Labelled, Learned, LearnedBatch, NotTogether

REPLAY_ENTRIES = 5_000  # after which a checkpoint is due, however few rows they have
REPLAY_BYTES = 256_000_000  # of tables, likewise
logger = logging.getLogger(__name__)


def _count(*names: str) -> property:
    return property(lambda self: sum([self._journal.counts[name] for name in names]))


class LiveModel(PendingRows):
    """A model that learns from requests. Every change is durable in a journal before it is made; one thread writes.

    ``remember`` may be called from any thread, and counts may be read from any. Everything else is for one thread at a
    time; a second one is refused.

    Parameters
    ----------
    directory : path
        Holds the checkpoints, the journal and the quarantine. What is there goes on.
    model : SGBRegressor or SGBClassifier, optional
        For a new directory, best with ``new_columns="grow"``; a copy of it is used. Ignored where there is a model.
    target : str, optional
        The name of the column with targets; left out, the one the directory knows, or ``"target"``.
    checkpoint_every : int, default=50_000
        Rows learned between checkpoints. One is also due after 5,000 requests or 256 MB of tables, so that no restart
        takes long.
    expire_after : float, optional
        Seconds a row waits for its label; left out, for as long as there is room.
    default : label, optional
        What rows are learned with that waited too long, such as 0 for "not clicked"; left out, they are dropped.
    pending_limit : int, default=1_000_000
        How many rows may wait; beyond, those that waited longest are expired. As many learned rows are kept for
        corrections, and as many early labels.
    correct_within : float, default=86_400
        Seconds for which the label of a learned row can be corrected, and a label waits for its row.
    remember_ids : int, default=100_000
        How many ids of requests are remembered.
    max_columns, max_classes : int, optional
        How many columns and classes the model may come to know; left out, any number. A table that would bring more is
        refused; of rows and labels that waited, those that would go to the quarantine. Both may be set later.
    durable : bool, default=True
        Whether requests survive a power cut; the crash of the process they survive always.
    clock : callable, optional
        Seconds. Left out, those of the machine's clock at the start, and then as they pass: if that clock is set, no
        row expires by it.
    on_replay : callable, optional
        Called with the number of entries learned again after a crash, and of those there are; what it raises breaks the
        opening off.
    on_learned : callable, optional
        Called with ``state`` and a :class:`LearnedBatch` after rows were learned, again in a replay.

    Attributes
    ----------
    model : SGBRegressor or SGBClassifier
        Only the writer may use it while there are requests to learn.
    target, task : str
        The name of the column with targets, and whether they are numbers ("regression") or classes.
    rows : int
        Rows learned, corrections included.
    state : dict
        Whatever else is to be saved with the model, such as metrics: as exact as the model.
    n_pending, n_early, n_corrected, n_expired, n_crowded, n_dropped, n_quarantined : int
        Rows that wait for labels; labels that wait for rows; rows learned again; rows that waited too long or made
        room; of these, those that made room, and those that were not learned; rows and labels in quarantine.
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

    n_pending, n_early, n_corrected = _count("waiting", "ripe"), _count("early"), _count("corrected")
    n_expired, n_crowded, n_dropped = _count("expired"), _count("crowded"), _count("dropped")
    n_quarantined, journal_length = _count("quarantined"), _count("entries")

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
        clock: Callable[[], float] | None = None,
        on_replay: Callable[[int, int], None] | None = None,
        on_learned: Callable[[dict[str, Any], LearnedBatch], None] | None = None,
    ) -> None:
        numbers = {"checkpoint_every": checkpoint_every, "pending_limit": pending_limit, "remember_ids": remember_ids}
        optional = {"expire_after": expire_after, "max_columns": max_columns, "max_classes": max_classes}
        given = {name: value for name, value in optional.items() if value is not None}
        for name, value in (numbers | {"correct_within": correct_within} | given).items():
            if not isinstance(value, (int, float, np.number)) or not value > 0:
                raise ValueError(f"{name} is {value!r}, expected a number above 0. If unsure, leave it out.")
        self.checkpoint_every, self.pending_limit, self.expire_after = checkpoint_every, pending_limit, expire_after
        self.default, self.correct_within, self.given_clock = default, correct_within, clock
        self.on_replay = on_replay
        self.max_columns, self.max_classes = max_columns, max_classes
        self._writing, self._is_closed = threading.Lock(), False
        journal = {"durable": durable, "limit": int(pending_limit), "ids": int(remember_ids)}
        super().__init__(Path(directory), model, target, on_learned, **journal)
        self._try_checkpoint(self.checkpoint_every)

    # Requests.

    def predict(self, table: Any, keys: Sequence[str] | None = None, *, id: str | None = None) -> NDArray[Any]:
        """Predict rows, and remember them if they have keys, as :meth:`remember` does.

        Before anything was learned, a number is 0 and a class None.
        """
        with self._writer():
            table = as_table(table)
            found = predict(self.model, table)
            if keys is not None:
                self.remember(keys, table, found.probabilities or found.values, id=id)
                self._tidy()
        is_unknown_number = self.task == "regression" and not found.known.any()
        return np.zeros(len(found.known)) if is_unknown_number else found.values

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
            What was predicted; it comes back with the label, to be scored.
        id : str, optional
            Of the request: one with the same id does nothing. Without it, rows that are sent again wait again, even if
            they have been learned meanwhile.
        """
        table = as_table(table)
        keys = check_keys(keys)
        if len(keys) != table.num_rows:
            raise ValueError(f"there are {len(keys)} keys and {table.num_rows} rows, expected a key for each row.")
        if self.target in table.column_names:
            found = f"the rows hold the column {self.target!r}, which is what is to be predicted"
            raise ValueError(f"{found}. Leave it out, or learn the rows if it is known.")
        first = None if predictions is None else results.encode_predictions(predictions, len(keys))
        fingerprint = None if id is None else _fingerprint(table, keys)
        if keys and (id is None or self._answered(id, "remember", fingerprint) is None):
            too_wide = self.bounds.why_not_columns(request_checks.known_columns(self.model), table.column_names)
            if too_wide is not None:
                raise ValueError(too_wide)
            rows = request_checks.pack_rows(keys, request_checks.plain(table), self.clock(), first)
            self._journal.put(rows, id, fingerprint, within=self.correct_within, expire_after=self.expire_after)

    def learn(self, table: Any, *, id: str | None = None) -> Learned:
        """Predict rows, then learn them.

        Parameters
        ----------
        table : pyarrow.Table
            With the target. Rows that cannot be learned go to the quarantine.
        id : str, optional
            Of the request: one with the same id is not learned again.
        """
        with self._writer():
            answered = None if id is None else self._answered(id, "learn", _fingerprint(as_table(table)))
            if answered is not None:
                self._tidy()  # a crash may have come before
                return Learned(**answered, repeated=True)
            return self._learn_rows(self._write_rows([as_table(table)], [id]))[0]

    def learn_together(self, tables: Sequence[Any], ids: Sequence[str | None]) -> list[Learned]:
        """Learn several tables as one: the same as :meth:`learn` of each in turn, at less cost.

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
        with self._writer():
            try:
                known = [id for id in ids if id is not None]
                if len(set(known)) < len(known) or any(self._answered(id, "learn") is not None for id in known):
                    raise NotTogether("a request was answered before, expected new ones. Learn each by itself.")
                promised = self._write_rows([as_table(table) for table in tables], ids)
            except REFUSALS as error:  # of one of them, perhaps: who is meant shows when each is alone
                raise NotTogether(str(error)) from error
            return self._learn_rows(promised)

    def _write_rows(self, tables: Sequence[Any], ids: Sequence[str | None]) -> list[Learned]:
        """Validate rows, prepare those that are good, and write all of them down."""
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
        valid = self.guard.validate(table, self.target, self.task, self.model)
        promised = results.split_results(valid, [table.num_rows for table in tables])
        if len(valid.y):
            bounds, model, names = self.bounds, self.model, valid.X.column_names
            columns, classes = request_checks.known_columns(model), request_checks.known_classes(model)
            too_many = bounds.why_not(columns, names, classes, valid.y.tolist())
            if too_many is not None:
                raise ValueError(too_many)
            rows = request_checks.plain(valid.X).append_column(self.target, pa.array(valid.y))
            X, y = request_checks.split(rows)
            prepared = model.prepare(X, y)
        with self._journal.transaction() as changes:
            if len(valid.y):
                requests = [[id, one.rows] for one, id in zip(promised, ids, strict=True) if one.rows]
                entry = changes.add_entry("learn", rows, origin={"requests": requests})
                self._written.append((entry, y, prepared))
            for one, table, id in zip(promised, tables, ids, strict=True):
                if one.reasons:
                    bad = ((row, reason, id, table.slice(row, 1)) for row, reason in one.reasons.items())
                    self._quarantine_rows(changes, bad)
                if id is not None:
                    counts = {"rows": one.rows, "quarantined": one.quarantined, "reasons": one.reasons}
                    counts["fingerprint"] = _fingerprint(table)
                    changes.add_id(id, "learn", results.pack_answer(counts))
        return promised

    def _learn_rows(self, promised: list[Learned]) -> list[Learned]:
        """Learn rows that were written down."""
        batches, refused = self._learn_written()
        self._tidy()
        return results.complete_results(promised, batches[0] if batches else None, refused[0][1] if refused else {})

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
            keys = check_keys(keys)
            labels = request_checks.check_labels(targets, len(keys))
            fingerprint = None if id is None else _fingerprint(repr(labels), keys)
            answered = None if id is None else self._answered(id, "label", fingerprint)
            if answered is not None:
                self._tidy()  # a crash may have come before
                return Labelled(**answered, repeated=True)
            counts: Answer | None = None
            while counts is None:
                self._settle(now := self.clock())
                with self._journal.transaction() as changes:
                    if changes.n("ripe"):  # a row came from another thread meanwhile, and met its label
                        continue
                    counts = self._take_labels(changes, keys, labels, id, now)
                    if id is not None:
                        changes.add_id(id, "label", results.pack_answer(counts | {"fingerprint": fingerprint}))
            batches, refused = self._learn_written()
            self._tidy()
        for entry, reasons in refused:
            counts = results.without_labels(counts, entry, reasons)
        batches = [batch for batch in batches if batch.kind == "label"]
        if not batches:
            return Labelled(**counts, repeated=False)
        y = np.concatenate([batch.y for batch in batches])
        answers, first = (concatenate([getattr(batch, name) for batch in batches]) for name in ("answers", "first"))
        return Labelled(**counts, repeated=False, y=y, answers=answers, first=first)

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
        with self._writer(settles=False):
            now = self.clock() if now is None else now
            n_expired = self._settle(now, math.inf if limit is None else limit)
            with self._journal.transaction() as changes:
                changes.forget(now - self.correct_within)
            self._try_checkpoint(self.checkpoint_every)
        return n_expired

    def checkpoint(self) -> Path:
        """Save the model, and shorten the journal. If there is an ``OSError``, nothing is lost."""
        with self._writer(settles=False):
            return self._save()

    def close(self) -> None:
        """Save the model, if that is possible, and let another process have the directory."""
        with self._writing:
            if self._is_closed:
                return
            try:
                self._recover()
                self._try_checkpoint(0)
            finally:
                self._is_closed = True
                self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _writer(self, *, settles: bool = True) -> Iterator[None]:
        """Lock out other writers, with a model that has learned all there is in the journal, and all that is ripe."""
        if not self._writing.acquire(blocking=False):
            found = "two threads use a live model at once, expected one: only remember is for any thread"
            raise RuntimeError(f"{found}. Send all requests through one thread.")
        try:
            if self._is_closed:
                raise ValueError(f"the live model in {str(self.directory)!r} is closed. Open it again.")
            self._recover()
            if settles:
                self._settle(self.clock())
            yield
        finally:
            self._writing.release()

    def _answered(self, id: str, verb: str, fingerprint: str | None = None) -> Answer | None:
        """Return what was answered to a request with this id, which must have brought the same."""
        found = self._journal.find_id(check_keys([id], "id")[0])
        if found is None:
            return None
        if found[0] != verb:
            raise ValueError(f"id {id!r} is that of an earlier request to {found[0]}. Give each request its own.")
        answer = results.unpack_answer(found[1])
        if (before := answer.pop("fingerprint", None)) is not None and fingerprint not in (None, before):
            raise results.IdTaken(f"id {id!r} is that of an earlier request with another body. Give each its own.")
        return answer

    # Between requests.

    def _tidy(self) -> None:
        """After a request: rows that are ripe, and a checkpoint if one is due.

        The request itself is written down, and its answer must say so: what fails here comes again with the next one.
        """
        try:
            self._settle(self.clock())
        except (OSError, SnapshotError) as error:
            logger.error("rows that are due in %s could not be learned yet (%s).", self.directory, error)
        self._try_checkpoint(self.checkpoint_every)

    def _try_checkpoint(self, after: int) -> None:
        """Save the model if so many rows came since this was tried last, or it takes long to learn them again."""
        is_long = self._n_since >= REPLAY_ENTRIES or self._bytes_since >= REPLAY_BYTES
        if self.rows - self._rows_tried < after and not is_long:
            return
        try:
            self._save()
        except (OSError, SnapshotError) as error:
            logger.error(
                "no checkpoint could be written to %s (%s). Nothing is lost: the journal is kept, and the next try "
                "comes after %d more rows or %d requests.",
                *(self.directory, error, self.checkpoint_every, REPLAY_ENTRIES),
            )


def _fingerprint(rows: Any, keys: Sequence[str] = ()) -> str:
    """Return a digest of what a request brought."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(rows.encode("utf-8", "surrogatepass") if isinstance(rows, str) else table_bytes(rows))
    digest.update(repr(list(keys)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
