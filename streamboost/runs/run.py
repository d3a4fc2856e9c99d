"""A run: a source learned to its end, each row once, whatever happens on the way.

The order of events for every chunk of rows::

    read ─▶ validate ─▶ predict, then learn ─▶ keep predictions ─▶ score ─▶ report
                                                                  │ now and then
                a part of predictions and quarantine to disk ─▶ checkpoint ─▶ acknowledge to the source

A checkpoint holds the model, the position in the source, the scores and how much was written. Resuming removes what was
written after it, so a run that was killed and resumed is the same as one that never stopped.

A history (:mod:`streamboost.runs.history`) comes before all this: it is read, fitted as one table, and a checkpoint
follows. Until then there is nothing to go back to: a run that was killed before reads and fits it again.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost._types import Task
from streamboost.errors import LeaseLost, writing
from streamboost.evaluation.adapters import known_kinds
from streamboost.evaluation.class_metrics import AUC
from streamboost.evaluation.predictions import (
    Predictions,
    concatenate,
    no_predictions,
    predict_then_fit,
    predict_then_learn,
)
from streamboost.evaluation.reports import Report
from streamboost.evaluation.scorebook import MetricKind, ScoreBook, Scored, choose_metrics
from streamboost.kernels.progress import WorkMeter, clock
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore
from streamboost.runs.guard import Guard, ValidatedRows
from streamboost.runs.history import MOST_MB, NewestRows, Rows, check_history, find_refused
from streamboost.runs.prediction_files import PredictionParts, check_directory, prediction_schema, prediction_table
from streamboost.runs.quarantine import BadRows
from streamboost.sources import BadRow, Batch, Source

logger = logging.getLogger(__name__)
HISTORY_REPORTS = 50  # of a history, beside those with events: all come at once, and a page may be drawn for each


class Interrupted(Exception):
    """Raised by a signal handler while a run waits for rows: the run ends as after :meth:`Run.stop`."""


NOT_OF_ROWS = (OSError, MemoryError, Interrupted)  # errors that tell of the machine, not of rows the model refuses


@dataclass(frozen=True)
class Options:
    """What a run learns, reports and writes.

    Parameters
    ----------
    target : str
        The column to predict.
    task : {"regression", "classification"}
    chunk : int
        Rows read at a time; 1,000 by default.
    every, window : int
        Rows between reports, and how far back windowed metrics look; 1,000 by default.
    metrics : sequence of str or Metric classes, optional
        By default as in :func:`streamboost.prequential.prequential`, and the area under the ROC curve of two classes.
    checkpoint_rows, checkpoint_seconds : int, float, optional
        A checkpoint after so many rows (by default any number) or seconds (30), whichever is first, and at the end.
    predictions : path, optional
        A new directory for what was predicted of every row before it was learned: Parquet parts, or CSV if its name
        ends in ``.csv``; see :mod:`streamboost.runs.prediction_files`. None by default.
    strict : bool
        End at the first bad row, instead of putting it into quarantine; False by default.
    max_bad : int or float, optional
        End when there are more bad rows than this, or if it is a float such as 0.05 more than this share of all rows;
        never by default. What was learned is kept, and the run can be resumed.
    ignore : sequence of str
        Columns to leave out; none by default.
    kinds : dict
        The ``kinds`` that the source was opened with, none by default; checkpoints keep them for a resumed run. After
        a history they are what the model then knows of columns, and the source is told.
    """

    target: str
    task: Task
    chunk: int = 1000
    every: int = 1000
    window: int = 1000
    metrics: Sequence[MetricKind] | None = None
    checkpoint_rows: int | None = None
    checkpoint_seconds: float | None = 30.0
    predictions: str | os.PathLike[str] | None = None
    strict: bool = False
    max_bad: float | None = None
    ignore: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


class Run:
    """A model that learns a source.

    Parameters
    ----------
    source : Source
        Until the run is closed, its ``on_bad`` is taken over if that is "raise": bad rows go into quarantine; and its
        ``stop`` if that is None: it does not wait for a broker or a file when the run is to end.
    model : estimator
        Only for a new run; a resumed one has its own.
    options : Options
    directory : path, optional
        For checkpoints and quarantine; without it, the default, nothing survives the process.
    resume : bool
        Go on from the newest checkpoint of the directory if there is one; False by default.
    new_source : bool
        Go on from there with another source than before, which is read from its beginning; False by default. Model,
        scores, row numbers and outputs go on; if stopped on the way, resume without this.
    history : Source, optional
        Rows to be fitted first, as ``model.fit`` does: one pass, whose predictions are scored and kept as ever, then
        sweeps over the rows. It has to end, and the newest 1,048,576 rows count, or 1,024 MB (``memory_limit_mb``) of
        them. None by default; if the run to be resumed has fitted its history, this is passed over.
    wait : float
        How many seconds to wait for another run to leave the directory; 0 by default.

    Attributes
    ----------
    history_state : dict or None
        Whether the history ``is_fitted``; then also its ``rows`` learned, ``n_dropped``, the number of older ones for
        which there was no room, and the ``position`` at its end. None if there was no history.

    Examples
    --------
    >>> import tempfile
    >>> from streamboost import SGBRegressor
    >>> from streamboost.sources import open_source
    >>> source, options = open_source("synthetic:friedman", total_rows=3000), Options("y", "regression")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with Run(source, SGBRegressor(random_state=0), options, directory) as run:
    ...         for report in run.reports():
    ...             print(f"{report.rows} rows, RMSE {report.windowed['rmse']:.1f}")
    ...             run.stop()  # as a Ctrl-C would
    ...     with Run(source, None, options, directory, resume=True) as run:
    ...         print([report.rows for report in run.reports()])
    1000 rows, RMSE 1.8
    [2000, 3000]
    """

    def __init__(
        self,
        source: Source,
        model: Any,
        options: Options,
        directory: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        new_source: bool = False,
        history: Source | None = None,
        wait: float = 0.0,
    ) -> None:
        if getattr(model, "is_frozen", False):
            raise ValueError("model is frozen, expected one that learns. Pass the one it was made of.")
        if history is not None:
            check_history(history, model)
        self.history = history  # None once it is fitted
        self.history_state: dict[str, Any] | None = None if history is None else {"is_fitted": False}
        self.kinds: Mapping[str, str] = dict(options.kinds)
        self.source, self.model, self.options = source, model, options
        self._has_new_source = new_source
        self.rows = self.rows_read = self._rows_before = 0
        self.position: Any = None  # in the source
        self._position_before: Any = None  # what a checkpoint keeps as long as nothing of a new source was learned
        self.guard = Guard()
        self.book: ScoreBook | None = None
        self.predictions: PredictionParts | None = None
        self.checkpoint_error: str | None = None
        self._is_whole = True  # model, position and outputs belong together: not so in the middle of a chunk
        self._is_begun = self._is_resumed = False
        self._stopping = self.is_waiting = False
        self._borrowed: list[tuple[Source, str, Any]] = []  # attributes of sources that this run has replaced
        self._n_waiting = 0  # good rows of a history that is not fitted yet
        self._saved = (0, time.monotonic())
        self._way_out = "begin anew" if directory is None else "resume: no row is lost"  # where there is no room
        self.store = None if directory is None else CheckpointStore(directory, wait=wait)
        path = None if directory is None else Path(directory) / "quarantine.jsonl"
        self.bad = BadRows(path, strict=options.strict, limit=options.max_bad)
        try:
            if options.predictions is not None:
                check_directory(options.predictions)
            found = None if self.store is None else self.store.latest()
            if found is not None:
                self._resume(found, resume, str(Path(directory or "")))
            else:
                self.bad.truncate(0, 0)
        except BaseException:
            self.close()
            raise
        for reader in (self.history, source):
            if not options.strict and getattr(reader, "on_bad", None) == "raise":
                self._borrow(reader, "on_bad", self._hold_bad)
            if getattr(reader, "stop", self) is None:  # so that it waits for nothing when the run is to end
                self._borrow(reader, "stop", self._is_to_end)

    def _borrow(self, reader: Any, name: str, value: Any) -> None:
        """Replace an attribute of a source until the run is closed."""
        self._borrowed.append((reader, name, getattr(reader, name)))
        setattr(reader, name, value)

    def _resume(self, found: Checkpoint, resume: bool, directory: str) -> None:
        """Restore a checkpoint; refuse one that does not belong to this run."""
        state = found.state
        kept = state.get("history")
        if resume and kept is not None and not kept["is_fitted"] and self.history is None:
            told = "which has to be learned first. Name it again (HISTORY --then SOURCE), or another directory."
            raise ValueError(f"the run in {directory!r} was stopped while it learned its history, {told}")
        n_rows = state["rows_read"] if resume else found.rows  # without resume, all may have been bad
        if not n_rows and (self.model is not None or not resume):  # it ended before it had learned anything
            if resume:  # its parts are removed
                self._resume_predictions(state)
                self.predictions = None
            self.bad.truncate(0, 0)
            return
        if not resume:
            way_out = (
                "Add --resume (resume=True) to go on where it stopped, --continue (new_source=True) to go "
                "on with new rows, or name another directory."
            )
            raise FileExistsError(f"{directory!r} holds a model of {found.rows:,} rows already. {way_out}")
        for name in ("target", "task"):
            if (known := state.get(name)) != (given := getattr(self.options, name)):
                told = f"but the model in {directory!r} was made for {known!r}"
                raise ValueError(f"{name} is {given!r}, {told}. Say so, or name another directory.")
        if kept is None and self.history is not None:
            told = "was begun without a history, which comes first. Leave it out, or name another directory."
            raise ValueError(f"a history is given, but the run in {directory!r} {told}")
        if kept is not None:
            self.history, self.history_state = None if kept["is_fitted"] else self.history, kept
            if kept["is_fitted"] and not self._has_new_source:
                self._set_kinds(state["given"]["kinds"])
        self._resume_predictions(state)
        self.model = found.model
        self._position_before, self.rows = found.position, found.rows
        self.position = None if self._has_new_source else found.position
        self._rows_before = found.rows
        self.rows_read, self.guard, self.book = state["rows_read"], state["guard"], state["book"]
        places = () if self._has_new_source else state["bad_places"]
        self.bad.resume(state["quarantine"], places, state.get("bad_reasons", {}))
        self._is_resumed = True
        self._saved = (self.rows_read, time.monotonic())
        if self.book is not None:
            self.book.every = self.options.every

    def _resume_predictions(self, state: dict[str, Any]) -> None:
        """Go on with the parts of a run; refuse another directory, where they would have gaps."""
        given, known = self.options.predictions, state["predictions"]
        if given is None or not isinstance(known, dict):  # a list is of a version that wrote files, which are left be
            return
        before = Path(state["given"]["predictions"])
        if Path(given).name != before.name:
            told = f"but this run has written them to a directory called {before.name!r} so far. Name that one."
            raise ValueError(f"predictions is {os.fspath(given)!r}, {told}")
        if known["last"] is not None or Path(given).resolve() == before:  # else they may be of another run
            self.predictions = PredictionParts.resumed(given, known, state["rows_read"])

    def reports(self) -> Iterator[Report]:
        """Learn the source; yield a report every so many rows, and one at the end."""
        try:
            if self.history is not None:
                yield from self._fit_history(self.history)
            for batch in self._batches(self.source, self.position):
                yield from self._learn_batch(batch)
                if self._is_checkpoint_due():
                    self.checkpoint()
            self._is_whole = False
            self.bad.quarantine_unread()
            self._is_whole = True
            if self.book is not None:
                yield from self.book.close(self.model)
            self.bad.check(self._n_good, is_end=not self._stopping)
        finally:  # also where the source fails: what was learned is kept, but not half of a chunk
            if self.book is not None and (self._is_whole or self.store is None):
                self.checkpoint()

    def stop(self) -> None:
        """End after the chunk at hand; may be called from a signal handler."""
        self._stopping = True

    def _is_to_end(self) -> bool:
        """Tell a source that waits for rows whether the run is to end; meanwhile, a checkpoint may be due."""
        if self.is_waiting and not self._stopping and self.rows_read > self._saved[0] and self._is_checkpoint_due():
            self.is_waiting = False  # a signal ends the run after the checkpoint, not in the middle of it
            try:
                self.checkpoint()
            finally:
                self.is_waiting = True
        return self._stopping

    def _hold_bad(self, bad: BadRow) -> None:
        """Keep a row that the source cannot read; one too many ends the run, though no good row may come any more."""
        self.bad.hold(bad)
        at_most = self._n_good + self.options.chunk  # a chunk may be on its way
        self.bad.check(at_most, is_end=False)

    @property
    def _n_good(self) -> int:
        """Good rows since the run began or was resumed."""
        return self.rows - self._rows_before + self._n_waiting

    def progress(self) -> float | None:
        """Return the share of the source at hand that is done, from 0 to 1; None if it has no end."""
        return self.source.progress(self.position) if self.history is None else 0.0

    def _batches(self, source: Source, position: Any) -> Iterator[Batch]:
        """Read a source; while it waits, :class:`Interrupted` may be raised."""
        batches = iter(source.read(position, self.options.chunk))
        while not self._stopping:
            try:
                self.is_waiting = True
                batch = next(batches, None)
            except Interrupted:
                return
            finally:
                self.is_waiting = False
            if batch is None:
                return
            yield batch

    def _fit_history(self, history: Source) -> Iterator[Report]:
        """Read the history and fit it; a checkpoint follows."""
        self._is_whole = False  # until the end: there is nothing to keep on the way
        read = self._read_history(history)
        if read is None:
            return
        held, position, n_read = read
        try:
            self.is_waiting = True  # a signal ends it: a model is fitted or it is not
            started = clock.working_time()
            rows, predicted = self._fit(held.rows())
            seconds = clock.working_time() - started
        except Interrupted:
            return
        finally:
            self.is_waiting = False
        assert self.book is not None
        self.rows, self.rows_read, self._n_waiting = len(rows.y), n_read, 0
        if self.predictions is not None:
            with writing(self.predictions.directory, self._way_out):
                self.predictions.add(prediction_table(self.predictions.schema, rows.numbers, rows.y, predicted))
        reports = [*self.book.add(Scored(rows.y, predicted, seconds), self.model), *self.book.close(self.model)]
        fitted = {"is_fitted": True, "rows": self.rows, "n_dropped": held.n_dropped, "position": position}
        self.history, self.history_state = None, fitted
        self._set_kinds(known_kinds(self.model, self.options.target))
        self._is_whole = True
        self.checkpoint()
        last, step = len(reports) - 1, -(-len(reports) // HISTORY_REPORTS)
        yield from (one for i, one in enumerate(reports) if one.events or i == last or i % step == step - 1)

    def _set_kinds(self, kinds: Mapping[str, str]) -> None:
        """Have the source read as the history has told."""
        self.kinds = kinds
        if hasattr(self.source, "kinds"):
            self.source.kinds = kinds

    def _read_history(self, history: Source) -> tuple[NewestRows, Any, int] | None:
        """Return the good rows of a history, the position at its end and the number of its rows; None if stopped."""
        held, position, n_read = NewestRows(most_mb=getattr(self.model, "memory_limit_mb", None) or MOST_MB), None, 0
        with WorkMeter() as meter:
            meter.begin("reading the history", 1.0, lambda: history.progress(position) or 0.0)
            for batch in self._batches(history, None):
                table, checked = self._validate(batch, n_read)
                held.add(Rows(checked.X, checked.y, n_read + np.flatnonzero(checked.good)))
                self.guard.observe(checked.y)
                self._n_waiting += len(checked.y)
                position, n_read = batch.position, n_read + table.num_rows
                self.bad.check(self._n_good, is_end=False)
        if self._stopping:
            return None
        self.bad.quarantine_unread()
        self.bad.check(self._n_good)
        if not len(held):
            bad = f"all {self.bad.n:,} are bad, such as: {self.bad.most_frequent(1)[0]['reason']}" if self.bad.n else ""
            raise ValueError(f"the history has no row to learn{bad and ': '}{bad or '. Name one that has some.'}")
        return held, position, n_read

    def _fit(self, rows: Rows) -> tuple[Rows, Predictions]:
        """Fit rows; quarantine those that the model refuses."""
        try:
            return rows, predict_then_fit(self.model, rows.X, rows.y)
        except (TypeError, ValueError):
            reasons = {} if self.options.strict else find_refused(self.model, rows, self.options.chunk)
            if len(reasons) in (0, len(rows.y)):  # it is not about one row
                raise
        self._quarantine_refused(rows.X, rows.y, rows.numbers, reasons)
        rows = rows.where(~np.isin(np.arange(len(rows.y)), list(reasons)))
        return rows, predict_then_fit(self.model, rows.X, rows.y)

    def _validate(self, batch: Batch, first_row: int) -> tuple[Any, ValidatedRows]:
        """Return the table of a batch, and its good rows; the bad ones are in quarantine then."""
        table = batch.table.drop_columns([name for name in self.options.ignore if name in batch.table.column_names])
        if not self._is_begun:
            self._begin(table)
        checked = self.guard.validate(table, self.options.target, self.options.task, self.model)
        if self.history is None:
            self._is_whole = self.options.strict  # then a bad row ends the run before anything has changed
        self.bad.quarantine_unread()
        for row, reason in checked.reasons.items():
            self.bad.quarantine(reason, row=first_row + row, values=table.slice(row, 1).to_pylist()[0])
        return table, checked

    def _check_lease(self) -> None:
        """Write nothing where another process has taken the directory meanwhile."""
        if self.store is not None:
            try:
                self.store.check_lease()
            except LeaseLost:
                self._is_whole = False  # there is nothing to save at the end
                raise

    def _learn_batch(self, batch: Batch) -> Iterator[Report]:
        self._check_lease()
        table, checked = self._validate(batch, self.rows_read)
        assert self.book is not None
        self._is_whole = False
        reports: list[Report] = []
        if len(checked.y):
            started = clock.working_time()
            numbers = self.rows_read + np.flatnonzero(checked.good)
            y, predicted, numbers = self._learn(checked.X, checked.y, numbers)
            seconds = clock.working_time() - started
            self.guard.observe(y)
            self.rows += len(y)
            if self.predictions is not None:
                with writing(self.predictions.directory, self._way_out):
                    self.predictions.add(prediction_table(self.predictions.schema, numbers, y, predicted))
            reports = list(self.book.add(Scored(y, predicted, seconds), self.model))
        self.rows_read += table.num_rows
        self.position = batch.position
        self._is_whole = True
        self.bad.check(self._n_good, is_end=False)
        yield from reports  # last: whoever stops listening here stops between two chunks

    def _begin(self, table: Any) -> None:
        """Make the score book and the prediction files, now that the columns are known."""
        options = self.options
        if options.target not in table.column_names:
            raise ValueError(f"there is no target column {options.target!r}, expected one of {table.column_names}.")
        has_probabilities = hasattr(self.model, "predict_proba")
        if self.book is None:
            chosen = choose_metrics(self.model, options.task, options.metrics, has_probabilities)
            if has_probabilities and options.metrics is None:
                chosen.append(AUC)
            self.book = ScoreBook(chosen, every=options.every, window=options.window, model=self.model)
        if options.predictions is not None and self.predictions is None:
            kind = table.schema.field(options.target).type
            parts = PredictionParts(options.predictions, prediction_schema(options.task, kind, has_probabilities))
            parts.begin()
            self.predictions = parts
        self._is_begun = True
        if not self._is_resumed:  # so that a run killed before its first rows are safe can be resumed, too
            self.checkpoint()

    def _learn(self, X: Any, y: NDArray[Any], numbers: NDArray[Any]) -> tuple[NDArray[Any], Predictions, NDArray[Any]]:
        """Predict and learn rows; quarantine those that the model refuses, each by itself."""
        try:
            return y, predict_then_learn(self.model, X, y), numbers
        except Exception as error:
            if self.options.strict or isinstance(error, NOT_OF_ROWS):
                raise
            refusal = error
        kept, predicted, refused = [], [], {}
        for row in range(len(y)):
            try:
                predicted.append(predict_then_learn(self.model, X.slice(row, 1), y[row : row + 1]))
                kept.append(row)
            except Exception as error:
                if isinstance(error, NOT_OF_ROWS):
                    raise
                refused[row] = str(error)
        if not kept and not self.rows:  # nothing fits so far: it is not about one row
            raise refusal
        self._quarantine_refused(X, y, numbers, refused)
        return y[kept], concatenate(predicted) if predicted else no_predictions(0), numbers[kept]

    def _quarantine_refused(self, X: Any, y: NDArray[Any], numbers: NDArray[Any], reasons: Mapping[int, str]) -> None:
        """Quarantine rows that the model refuses, each asked by itself."""
        whole = X.append_column(self.options.target, pa.array(y.tolist()))
        for row, reason in reasons.items():
            told = re.sub(r"\brow 0\b", f"row {numbers[row]}", reason)
            self.bad.quarantine(told, row=int(numbers[row]), values=whole.slice(row, 1).to_pylist()[0])

    def _is_checkpoint_due(self) -> bool:
        rows, moment = self._saved
        every, seconds = self.options.checkpoint_rows, self.options.checkpoint_seconds
        is_far = every is not None and self.rows_read - rows >= every
        return is_far or (seconds is not None and time.monotonic() - moment >= seconds)

    def checkpoint(self) -> None:
        """Save model, position, scores and outputs; acknowledge the position when they are durable."""
        self._check_lease()
        self._saved = (self.rows_read, time.monotonic())
        parts = self.predictions
        if self.store is None:
            if parts is not None:
                with writing(parts.directory, self._way_out):
                    parts.write()
            return
        try:
            if parts is not None:  # before the checkpoint: were it after, a kill between the two would leave a gap
                parts.write()
            self.bad.flush()
            position = self._position_before if self.position is None else self.position
            self.store.save(Checkpoint(self.model, position, self.rows, self._state()))
        except OSError as error:
            told = "the one before it is still good. Is the disk full?"
            self.checkpoint_error = f"no checkpoint could be written at row {self.rows_read:,} ({error}); {told}"
            logger.warning(self.checkpoint_error)
            return
        self.checkpoint_error = None
        if self.position is not None:  # before the first row there is nothing that could be forgotten
            self.source.acknowledge(self.position)

    def _state(self) -> dict[str, Any]:
        given = None if self.options.predictions is None else str(Path(self.options.predictions).resolve())
        return {
            "target": self.options.target,
            "task": self.options.task,
            "rows_read": self.rows_read,
            "guard": self.guard,
            "book": self.book,
            "n_bad": self.bad.n,
            "bad_places": self.bad.places,
            "bad_reasons": self.bad.reasons,
            "predictions": None if self.predictions is None else self.predictions.state(),
            "given": {"ignore": list(self.options.ignore), "predictions": given, "kinds": self.kinds},
            "history": self.history_state,
            "quarantine": [self.bad.n, self.bad.length],
        }

    def close(self) -> None:
        """Let another process use the directory, and another run the source."""
        if self.store is not None:
            self.store.close()
        while self._borrowed:
            setattr(*self._borrowed.pop())

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
