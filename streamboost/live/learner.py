"""A model and its journal: what is written down is learned, and learned again after a crash."""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray
from sklearn.base import is_classifier

from streamboost._types import Task
from streamboost.errors import SnapshotError
from streamboost.evaluation.predictions import concatenate, learn_prepared, no_predictions
from streamboost.live.journal import Entry, Journal, Transaction
from streamboost.live.request_checks import REFUSALS, Bounds, split
from streamboost.live.results import LearnedBatch, decode_predictions, revert
from streamboost.live.steady_clock import SteadyClock
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore
from streamboost.runs.guard import Guard
from streamboost.runs.quarantine import Quarantine

BEGIN_ANEW = "begin in a new directory with the model of that checkpoint."
Refusal: TypeAlias = tuple[Entry, dict[int, str]]  # why the model did not take rows of an entry
logger = logging.getLogger(__name__)


class PutAside(Exception):
    """Some rows of an entry were put aside before: the others are learned one by one, as they were then."""


class Learner:
    """A model that learns what its journal holds, and is saved with its place in it.

    A request prepares rows, writes them down in one transaction, and has them learned by ``_learn_written``. The
    journal is read back only by ``_catch_up``: when the directory is opened, and when a request broke off.
    """

    max_columns: int | None = None
    max_classes: int | None = None
    max_column_classes: int | None = None
    correct_within: float  # seconds in which labels may be corrected, or wait for their rows
    clock: Callable[[], float]
    given_clock: Callable[[], float] | None
    on_replay: Callable[[int, int], None] | None = None

    def __init__(
        self,
        directory: Path,
        model: Any,
        target: str | None,
        on_learned: Callable[[dict[str, Any], LearnedBatch], None] | None,
        **journal: Any,
    ) -> None:
        self.directory, self.on_learned = directory, on_learned
        self.last_checkpoint_error: str | None = None
        self._quarantine = Quarantine(directory / "quarantine.jsonl")
        self._store = CheckpointStore(directory)
        try:
            checkpoint, path = self._store.latest(), directory / "journal.db"
            if checkpoint is None and model is None:
                raise FileNotFoundError(f"{str(directory)!r} holds no model yet. Pass one to begin with.")
            if checkpoint is not None and "live" in checkpoint.state and not path.exists():
                found = f"{str(path)!r} is missing, and what was learned after the last checkpoint with it"
                raise SnapshotError(f"{found}. Bring it back from a copy. Without one, {BEGIN_ANEW}")
            self._journal = Journal(path, **journal)
            self.clock = self.given_clock or SteadyClock(self._journal.latest_time)
            self._open(checkpoint, model, target)
        except BaseException:
            self._let_go()
            raise

    def _open(self, checkpoint: Checkpoint | None, model: Any, target: str | None) -> None:
        if checkpoint is None:
            if not self._journal.is_new:
                way_out = "Bring the checkpoints back from a copy, or begin in a new directory."
                raise SnapshotError(f"{str(self.directory)!r} holds a journal but no checkpoint. {way_out}")
            if getattr(model, "is_frozen", False):
                raise ValueError("model is frozen, expected one that learns. Pass the one it was made of.")
            model = copy.deepcopy(model)
            if not hasattr(model, "committee_") and model.get_params(deep=False).get("random_state", 0) is None:
                model.set_params(random_state=secrets.randbelow(2**31))  # the same after a crash
            checkpoint = Checkpoint(model, rows=int(getattr(getattr(model, "committee_", None), "n_rows", 0)))
        if "live" not in checkpoint.state and self._journal.is_new:  # the model is new, or has learned otherwise so far
            self._journal.begin(checkpoint.rows, target or "target")
            live = {"journal": self._journal.name, "guard": Guard(), "target": self._journal.target}
            checkpoint = Checkpoint(checkpoint.model, 0, checkpoint.rows, {**checkpoint.state, "live": live})
            self._store.save(checkpoint)
        for damage in self._store.damaged:
            logger.warning("%s The checkpoint before it is taken, and the journal makes up for it.", damage)
        self._restore(checkpoint)
        if target not in (None, self.target):
            found = f"target is {target!r}, but the model in {str(self.directory)!r} learns {self.target!r}"
            raise ValueError(f"{found}. Leave it out, or name another directory.")
        self._catch_up(is_replay=True)

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Take model, state and position from a checkpoint."""
        state = dict(checkpoint.state)
        journal, position, live = self._journal, checkpoint.position, state.pop("live", None)
        if live is None and journal.rows_before == checkpoint.rows:  # the one that the journal began with
            live, position = {"journal": journal.name, "guard": Guard(), "target": journal.target}, 0
        if live is None or live["journal"] != journal.name:
            found = f"{str(journal.path)!r} and the newest checkpoint beside it do not belong together"
            raise SnapshotError(f"{found}. Bring back the journal that was written with it, or {BEGIN_ANEW}")
        if not journal.first_number - 1 <= position <= journal.last_number:
            found = f"{str(journal.path)!r} holds entries {journal.first_number} to {journal.last_number}"
            told = f"the checkpoint that can be loaded is at {position}, expected all entries after it"
            way_out = f"Bring back the journal that was written with it, or {BEGIN_ANEW}"
            raise SnapshotError(f"{found}, and {told}. {way_out}")
        self.model, self.rows, self.state = checkpoint.model, checkpoint.rows, state
        self.target: str = live["target"]
        self.guard: Guard = live["guard"]
        self.task: Task = "classification" if is_classifier(self.model) else "regression"
        self._position = position  # the last entry that was learned
        self._positions = [position]  # of the checkpoints that are kept
        self._rows_tried = self.rows  # when a checkpoint was last tried
        self._n_since = self._bytes_since = 0  # entries learned since, and their bytes
        self._written: list[tuple[Entry, NDArray[Any], Any]] = []  # with targets and prepared rows, to be learned
        self._is_inconsistent = False  # whether learning broke off midway

    @property
    def is_inconsistent(self) -> bool:
        """Whether learning broke off midway, and the model is behind its journal; for the thread that writes."""
        return self._is_inconsistent

    @property
    def bounds(self) -> Bounds:
        """How large the model may grow."""
        if self.task == "regression":
            return Bounds(self.max_columns, None)
        return Bounds(self.max_columns, self.max_classes, self.max_column_classes)

    # Learning.

    def _learn_written(self) -> tuple[list[LearnedBatch], list[Refusal]]:
        """Learn what was written down last; rows that the model does not take come back with their reasons."""
        batches: list[LearnedBatch] = []
        for entry, y, prepared in self._written:
            batch, refused = self._learn_entry(entry, y, prepared)
            batches += [batch] if batch is not None else []
            if refused:  # entries after it were prepared as if all of it had been learned
                more, others = self._catch_up()
                self._written.clear()
                return batches + more, [(entry, refused), *others]
        self._written.clear()
        return batches, []

    def _learn_entry(
        self, entry: Entry, y: NDArray[Any], prepared: Any = None, is_replay: bool = False
    ) -> tuple[LearnedBatch | None, dict[int, str]]:
        """Learn an entry; return the rows learned, and why the model did not take the others.

        Whatever goes wrong with a row, the model is then what it was before, and the same would go wrong again: the
        row is put aside, and those beside it are learned one by one.
        """
        self._is_inconsistent = True
        known: Any = entry.refused or {}  # in a replay
        refused: dict[int, str] = {}
        kept = list(range(len(y)))
        try:
            if known:
                raise PutAside
            if prepared is None:
                prepared = self.model.prepare(*split(entry.table))
            predictions = learn_prepared(self.model, prepared)
        except Exception as error:
            if not isinstance(error, (*REFUSALS, PutAside)):
                logger.exception("entry %d of the journal could not be learned as a whole", entry.number)
            parts = []
            for row in [row for row in kept if row not in known]:
                try:
                    one = self.model.prepare(*split(entry.table.slice(row, 1)))
                    parts.append(learn_prepared(self.model, one))
                except Exception as reason:
                    refused[row] = _told(reason)
            kept = [row for row in kept if row not in refused and row not in known]
            predictions = concatenate(parts) if parts else no_predictions(0)
        if refused:
            self._refuse(entry, refused)
        self.guard.observe(y[kept])
        self.rows += len(kept)
        self._position, self._is_inconsistent = entry.number, False
        self._n_since, self._bytes_since = self._n_since + 1, self._bytes_since + entry.table.nbytes
        if not kept:
            return None, refused
        first = no_predictions(len(y)) if entry.first is None else decode_predictions(entry.first, self.task)
        batch = LearnedBatch(entry.kind, y[kept], predictions, first if len(kept) == len(y) else first.rows(kept))
        batch = batch._replace(is_replay=is_replay)
        if self.on_learned is not None:
            self.on_learned(self.state, batch)
        return batch, refused

    def _refuse(self, entry: Entry, reasons: dict[int, str]) -> None:
        """Never try rows again that the model did not take, and revert what was written down with them."""
        rows = ((row, reason, entry.number, entry.table.slice(row, 1)) for row, reason in reasons.items())
        is_whole, different = len(reasons) == entry.table.num_rows, {*reasons.values()}
        with self._journal.transaction() as changes:
            changes.refuse(entry.number, different.pop() if is_whole and len(different) == 1 else reasons)
            self._quarantine_rows(changes, rows)
            revert(changes, entry, reasons)

    def _quarantine_rows(self, changes: Transaction, rows: Iterable[tuple[int, str, Any, Any]]) -> None:
        """Put rows into the quarantine: the place, the reason, the position and a table of the row itself of each."""
        for row, reason, position, table in rows:
            self._quarantine.add(reason, values=table.to_pylist()[0], position=position, row=row)
            changes.count(quarantined=1)

    # Recovering.

    def _recover(self) -> None:
        """If a request broke off, go back to what is certain, and learn whatever the journal has besides."""
        if not self._is_inconsistent and not self._written:
            return
        is_replay = self._is_inconsistent
        if is_replay:
            checkpoint = self._store.latest()
            if checkpoint is None:
                raise SnapshotError(f"the checkpoints in {str(self.directory)!r} are gone. Bring them back.")
            self._restore(checkpoint)
        self._catch_up(is_replay=is_replay)
        self._written.clear()

    def _catch_up(self, *, is_replay: bool = False) -> tuple[list[LearnedBatch], list[Refusal]]:
        """Learn what the journal has and the model has not; return it, and what the model does not take."""
        batches: list[LearnedBatch] = []
        refusals: list[Refusal] = []
        began, last = self._position, self._journal.last_number
        for entry in self._journal.entries(began):
            if is_replay and self.on_replay is not None:
                self.on_replay(entry.number - began - 1, last - began)
            if isinstance(entry.refused, str):
                self._position = entry.number
                continue
            batch, refused = self._learn_entry(entry, split(entry.table)[1], is_replay=is_replay)
            if refused:
                refusals.append((entry, refused))
            if batch is not None:
                batches.append(batch)
        return batches, refusals

    # Saving.

    def _save(self) -> Path:
        """Save the model, and delete the entries that no checkpoint needs."""
        paths = self._store.paths()
        is_saved = self._position == self._positions[-1] and bool(paths)
        if is_saved and self.last_checkpoint_error is None:
            return paths[-1]
        self._rows_tried = self.rows
        self._n_since = self._bytes_since = 0
        live = {"journal": self._journal.name, "guard": self.guard, "target": self.target}
        try:
            if is_saved:  # what failed came after it
                path = paths[-1]
            else:
                path = self._store.save(Checkpoint(self.model, self._position, self.rows, {**self.state, "live": live}))
                self._positions = [*self._positions, self._position][-self._store.keep :]
            with self._journal.transaction() as changes:
                changes.trim(self._positions[0])  # what the older checkpoint would need stays
                changes.forget(self.clock() - self.correct_within)
        except (OSError, SnapshotError) as error:
            self.last_checkpoint_error = str(error)
            raise
        self.last_checkpoint_error = None
        return path

    def _let_go(self) -> None:
        """Let another process have the directory."""
        if hasattr(self, "_journal"):
            self._journal.close()
        self._store.close()


def _told(error: Exception) -> str:
    """Return why a row was not learned, as it is kept with it."""
    if isinstance(error, REFUSALS):
        return str(error)
    return f"learning it failed ({type(error).__name__}: {error}), and the model is what it was before."
