"""From the journal to the model: entries are learned in their order, and again after a crash."""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import is_classifier

from streamboost import answers
from streamboost.answers import Answers, joined
from streamboost.checkpoints import Checkpoint, CheckpointStore
from streamboost.errors import SnapshotError
from streamboost.guards import Guard, Task
from streamboost.journal import Entry, Journal
from streamboost.live.first_answers import read_first

LessonKind: TypeAlias = Literal["learn", "label", "correct", "expire"]

REFUSALS = (TypeError, ValueError, pa.ArrowException)
logger = logging.getLogger(__name__)


class Lesson(NamedTuple):
    """Rows that were learned together."""

    kind: LessonKind
    y: NDArray[Any]
    answers: Answers  # what the model said of them just before
    first: Answers  # what was said of them when they were first asked about, as far as that is known
    is_replay: bool = False  # whether they had been learned before, by a process that crashed

    def honest(self) -> Answers:
        """What was said first, where that is known, and else just before learning: what is to be scored."""
        if self.first.known.all() or not self.first.known.any():
            return self.first if self.first.known.any() else self.answers
        each = [self.first if known else self.answers for known in self.first.known]
        return joined([said.rows(slice(i, i + 1)) for i, said in enumerate(each)])


class Learner:
    """A model that learns what a journal holds, and is saved with its place in it.

    Parameters
    ----------
    directory : path
    model : estimator or None
        For a directory without one.
    target : str or None
    make_journal : callable
        Opens the journal.
    tell : callable
        Called with this and every :class:`Lesson`.
    refuse : callable
        Called with an :class:`Entry` that the model did not take, and the reason.
    """

    def __init__(
        self,
        directory: Path,
        model: Any,
        target: str | None,
        make_journal: Callable[[Path], Journal],
        tell: Callable[[Learner, Lesson], None],
        refuse: Callable[[Learner, Entry, str], None],
    ) -> None:
        self.directory = directory
        self.tell, self.refuse = tell, refuse
        self.checkpoint_error: str | None = None
        self.store = CheckpointStore(directory)
        try:
            checkpoint = self.store.latest()
            self._check_complete(checkpoint, model)
            self.journal = make_journal(self._journal_path)
            self._open(checkpoint, model, target)
        except BaseException:
            self.close()
            raise

    @property
    def _journal_path(self) -> Path:
        return self.directory / "journal.db"

    def _check_complete(self, checkpoint: Checkpoint | None, model: Any) -> None:
        if checkpoint is None and model is None:
            raise FileNotFoundError(f"{str(self.directory)!r} holds no model yet. Pass one to begin with.")
        if checkpoint is not None and "live" in checkpoint.state and not self._journal_path.exists():
            raise SnapshotError(
                f"{str(self._journal_path)!r} is missing, and what was learned after the last checkpoint with it. "
                "Bring it back from a copy. Without one, begin in a new directory with the model of that checkpoint."
            )

    def _open(self, checkpoint: Checkpoint | None, model: Any, target: str | None) -> None:
        if checkpoint is None:
            if not self.journal.is_new:
                raise SnapshotError(
                    f"{str(self.directory)!r} holds a journal but no checkpoint. Bring the checkpoints back from a "
                    "copy, or begin in a new directory."
                )
            model = _seeded(model)
            checkpoint = Checkpoint(model, rows=int(getattr(getattr(model, "committee_", None), "n_rows", 0)))
        if "live" not in checkpoint.state and self.journal.is_new:
            checkpoint = self._begin(checkpoint, target or "target")
        for damage in self.store.damaged:
            logger.warning("%s The checkpoint before it is taken, and the journal makes up for it.", damage)
        self._take_up(checkpoint)
        if target not in (None, self.target):
            raise ValueError(
                f"target is {target!r}, but the model in {str(self.directory)!r} learns {self.target!r}. Leave it out, "
                "or name another directory."
            )
        self.catch_up(is_replay=True)

    def _begin(self, checkpoint: Checkpoint, target: str) -> Checkpoint:
        """Begin a journal, for a model that is new or has learned otherwise so far."""
        self.journal.begin(checkpoint.rows, target)
        live = {"journal": self.journal.name, "guard": Guard(), "target": target}
        begun = Checkpoint(checkpoint.model, 0, checkpoint.rows, {**checkpoint.state, "live": live})
        self.store.save(begun)
        return begun

    def _take_up(self, checkpoint: Checkpoint) -> None:
        """Be as a checkpoint has it."""
        state = dict(checkpoint.state)
        journal, position, live = self.journal, checkpoint.position, state.pop("live", None)
        if live is None and journal.rows_before == checkpoint.rows:  # the one that the journal began with
            live, position = {"journal": journal.name, "guard": Guard(), "target": journal.target}, 0
        if live is None or live["journal"] != journal.name:
            raise SnapshotError(
                f"{str(journal.path)!r} and the newest checkpoint beside it do not belong together. Bring back the "
                "journal that was written with it, or begin in a new directory with the model of that checkpoint."
            )
        if not journal.first_number - 1 <= position <= journal.last_number:
            raise SnapshotError(
                f"{str(journal.path)!r} holds entries {journal.first_number} to {journal.last_number}, and the "
                f"checkpoint that can be loaded is at {position}, expected all entries after it. Bring back the "
                "journal that was written with it, or begin in a new directory with the model of that checkpoint."
            )
        self.model, self.rows, self.state = checkpoint.model, checkpoint.rows, state
        self.target: str = live["target"]
        self.guard: Guard = live["guard"]
        self.task: Task = "classification" if is_classifier(self.model) else "regression"
        self.position = position  # the last entry that was learned
        self.positions = [position]  # of the checkpoints that are kept
        self.rows_tried = self.rows  # when a checkpoint was last tried
        self._is_torn = False  # whether learning broke off midway

    # Learning.

    def heal(self) -> None:
        """If learning was interrupted, go back to what is certain; then learn whatever the journal has besides."""
        if self._is_torn:
            checkpoint = self.store.latest()
            if checkpoint is None:
                raise SnapshotError(f"the checkpoints in {str(self.directory)!r} are gone. Bring them back.")
            self._take_up(checkpoint)
            self.catch_up(is_replay=True)
        self.catch_up()

    def catch_up(self, *, is_replay: bool = False) -> list[Lesson]:
        """Learn what the journal has and the model has not."""
        lessons = []
        for entry in self.journal.entries(self.position):
            lesson = None if entry.refused is not None else self._learn(entry, is_replay)
            self.position = entry.number
            if lesson is not None:
                lessons.append(lesson)
                self.tell(self, lesson)
        return lessons

    def _learn(self, entry: Entry, is_replay: bool) -> Lesson | None:
        X, y = split(entry.table)
        self._is_torn = True
        try:
            said = answers.learn(self.model, X, y)
        except REFUSALS as error:  # the same rows would always meet it: they are not tried again
            self.refuse(self, entry, str(error))
            self._is_torn = False
            return None
        self.guard.learned(y)
        self.rows += len(y)
        self._is_torn = False
        kind: Any = entry.kind
        first = read_first(entry.first or [None] * len(y), self.task)
        return Lesson(kind, y, said, first, is_replay)

    # Saving.

    def checkpoint(self, forget_before: float) -> Path:
        """Save the model, and delete the entries that no checkpoint needs."""
        paths = self.store.paths()
        is_saved = self.position == self.positions[-1] and bool(paths)
        if is_saved and self.checkpoint_error is None:
            return paths[-1]
        self.rows_tried = self.rows
        live = {"journal": self.journal.name, "guard": self.guard, "target": self.target}
        try:
            if is_saved:  # what failed came after it
                path = paths[-1]
            else:
                path = self.store.save(Checkpoint(self.model, self.position, self.rows, {**self.state, "live": live}))
                self.positions = [*self.positions, self.position][-self.store.keep :]
            with self.journal.transaction() as changes:
                changes.trim(self.positions[0])  # what the older checkpoint would need stays
                changes.forget(forget_before)
        except (OSError, SnapshotError) as error:
            self.checkpoint_error = str(error)
            raise
        self.checkpoint_error = None
        return path

    def close(self) -> None:
        """Let another process have the directory."""
        if hasattr(self, "journal"):
            self.journal.close()
        self.store.close()


def split(table: Any) -> tuple[Any, NDArray[Any]]:
    """The columns and the targets of an entry, as the model is given them: the same now and in a replay."""
    width = table.num_columns - 1
    column = table.column(width).combine_chunks()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return table.remove_column(width), column.to_numpy(zero_copy_only=False)
    labels = np.empty(len(column), dtype=object)
    labels[:] = column.to_pylist()
    return table.remove_column(width), labels


def _seeded(model: Any) -> Any:
    """A copy whose randomness is the same after a crash."""
    model = copy.deepcopy(model)
    if not hasattr(model, "committee_") and model.get_params(deep=False).get("random_state", 0) is None:
        model.set_params(random_state=secrets.randbelow(2**31))
    return model
