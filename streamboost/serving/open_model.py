"""The live model of a directory: opened, or begun from a run, from a saved model, or anew.

Its files are kept in ``DIR/live/``. The checkpoints that ``streamboost run`` left in ``DIR`` are only ever read, so the
run can go on later as if nobody had served its model; what the server learned is not in them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any

from streamboost._types import Task
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.estimators.base import StreamEstimator
from streamboost.features.labels import LabelKind, kind_of
from streamboost.live import FrozenModel, LiveModel
from streamboost.persistence.checkpoints import checkpoint_paths, read_latest
from streamboost.persistence.snapshots import load
from streamboost.serving.monitoring import ScoreKeeper

WHOLE = re.compile(r"([+-]?[0-9]+)(\.0*)?")


class Unusable(ValueError):
    """What was asked for makes no sense: exit code 2."""


class ServedModel(LiveModel):
    """A live model whose default may be text, as a command line has it: it is read whenever it is needed.

    It is read as what the model's classes are: texts, numbers, or booleans (``true``, ``false``); before any is known
    as whatever it looks like. In double quotes it is text in any case.
    """

    @property
    def default(self) -> Any:
        """What rows are learned with that waited too long; None if they are dropped."""
        text, kind = self._default, self.label_kind
        if not isinstance(text, str):
            return text
        with contextlib.suppress(ValueError):
            if self.task == "regression":
                return float(text)
            if len(text) > 1 and text[0] == text[-1] == '"':
                return json.loads(text)
        if self.task == "regression":
            return text
        if kind in ("boolean", None) and text.lower() in ("true", "false"):
            return text.lower() == "true"
        found = WHOLE.fullmatch(text) if kind in ("number", None) else None
        return text if found is None else int(found[1])

    @default.setter
    def default(self, default: Any) -> None:
        self._default = default

    @property
    def label_kind(self) -> LabelKind | None:
        """Of what kind the model's classes are; None if it has none, or none yet."""
        return getattr(getattr(self.model, "labels_", None), "kind", None)


def open_live(
    directory: str | Path,
    *,
    task: Task | None = None,
    target: str | None = None,
    model: Any = None,
    window: int = 1000,
    default: Any = None,
    **options: Any,
) -> ServedModel | FrozenModel:
    """Open the live model of a directory, or begin one; its score is kept. A frozen one is left where it is.

    Parameters
    ----------
    directory, task, target, model, window, **options
        As in :func:`serve`.
    default : label, optional
        As in :class:`~streamboost.live.LiveModel`; text is read as what the model's classes are when it is needed, see
        :class:`~streamboost.serving.open_model.ServedModel`.

    Examples
    --------
    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp(), "prices")
    >>> with open_live(directory, task="regression", target="price") as live:
    ...     live.directory.name, live.target
    ('live', 'price')
    """
    folder = Path(directory)
    home = Path(f"{folder}.live") if folder.is_file() else folder / "live"
    if not home.is_dir() or not checkpoint_paths(home):
        model, target = _first_model(folder, task, target, model)
        if folder.exists() and getattr(model, "is_frozen", False):
            return _open_frozen(folder, model, task, target, default, options.get("expire_after"))
    live = ServedModel(home, model, target=target, default=default, on_learned=ScoreKeeper(window), **options)
    try:
        _check_task(task, live)
        given, kind = live.default, live.label_kind
        if given is not None and live.task == "regression" and (isinstance(given, str) or not math.isfinite(given)):
            raise Unusable(f"default is {given!r}, expected a number, as the model learns numbers.")
        if given is not None and kind is not None and kind_of(given) != kind:
            known = next(iter(live.model.labels_.numbers))
            raise Unusable(f"default is {given!r}, expected a class like those of the model, such as {known!r}.")
    except BaseException:
        live.close()
        raise
    return live


def _open_frozen(
    path: Path, model: Any, task: Task | None, target: str | None, default: Any, expire_after: float | None
) -> FrozenModel:
    """Open a frozen model: nothing is written, so that the next start takes whatever model is there then."""
    if default is not None or expire_after is not None:
        found = f"{str(path)!r} is frozen: no row waits for a label"
        raise Unusable(f"{found}. Leave out --expire-after and --default, or serve the model it was made of.")
    live = FrozenModel(path, model, target)
    _check_task(task, live)
    return live


def _check_task(task: Task | None, live: LiveModel | FrozenModel) -> None:
    if task is not None and task != live.task:
        raise Unusable(f"task is {task!r}, but the model is one for {live.task}. Leave it out, or begin elsewhere.")


def _first_model(folder: Path, task: Task | None, target: str | None, model: Any) -> tuple[Any, str | None]:
    """Return what a directory begins with that was not served before, and the target's name if it is known."""
    if folder.is_file():
        return _whole_model(load(folder), folder), target
    if folder.is_dir() and checkpoint_paths(folder):
        checkpoint = read_latest(folder)
        if "live" in checkpoint.state:
            way_out = f"Say --model {folder.parent}" if folder.name == "live" else f"Move them to {folder / 'live'}"
            found = "the live files of a model, and what it learned last may be in their journal only"
            raise Unusable(f"{str(folder)!r} holds {found}, expected the directory above them. {way_out}.")
        known = checkpoint.state.get("target")
        if known is not None and target not in (None, known):
            found = f"target is {target!r}, but the model in {str(folder)!r} learned {known!r}"
            raise Unusable(f"{found}. Leave it out, or name another directory.")
        return _whole_model(checkpoint.model, folder), target or known
    if model is not None:
        return model, target
    kinds = {"regression": SGBRegressor, "classification": SGBClassifier}
    if task is None:
        way_out = "say --task regression or --task classification; else name the directory that a run was given with"
        raise Unusable(f"{str(folder)!r} holds no model. To begin a new one there, {way_out} --model.")
    if task not in kinds:
        raise Unusable(f"task is {task!r}, expected 'regression' or 'classification'.")
    return kinds[task](new_columns="grow"), target


def _whole_model(model: Any, path: Path) -> Any:
    """Return a model that can be served, or raise an error that says why it cannot."""
    if not isinstance(model, StreamEstimator):
        raise Unusable(f"{str(path)!r} holds a {type(model).__name__}, expected an SGBRegressor or SGBClassifier.")
    return model
