"""Checks of ``--resume``: which options a run that is resumed can be given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from streamboost.cli.usage_errors import UsageError
from streamboost.cluster.crew import Cut
from streamboost.evaluation.scorebook import ScoreBook
from streamboost.persistence.checkpoints import Checkpoint, checkpoint_paths, read_latest

ELSE = "Leave it out, or begin in another directory."


def read_before(directory: Path | None) -> Checkpoint | None:
    """Return the newest checkpoint of a run; None if there is none, or it has read nothing."""
    if directory is None:
        raise UsageError("--resume is given without --model DIR, which says what to go on with. Add it.")
    if not directory.is_dir() or not checkpoint_paths(directory):
        return None
    found = read_latest(directory)
    holds_something = found.state.get("rows_read") or (isinstance(found.model, Cut) and found.model.number)
    return found if holds_something else None


def check_resumed(before: Checkpoint, parameters: dict[str, Any], *, is_keyed: bool) -> None:
    """Refuse parameters that a resumed model does not have, and workers that come or go."""
    model, on_workers = before.model, isinstance(before.model, Cut)
    if on_workers != is_keyed:
        lives = f"lives on {model.n_workers} workers ({model.kind})" if on_workers else "does not live on workers"
        raise UsageError(f"the model to be resumed {lives}. Say --key as when it was begun, or leave it out as then.")
    for name, value in parameters.items() if not on_workers else ():
        if (has := getattr(model, name)) != value:
            raise UsageError(f"{name}={value!r} is given, but the model to be resumed has {has!r}. {ELSE}")


def check_same_scores(before: Checkpoint, metrics: Sequence[str] | None, window: int | None) -> None:
    """Refuse metrics that were not kept from the first row on."""
    book = before.state.get("book")
    if not isinstance(book, ScoreBook):
        return
    kept = [metric.name for metric in book.running]
    if metrics is not None and set(metrics) != set(kept):
        given, does = f"--metric is {', '.join(metrics)}", f"keeps score by {', '.join(kept)}"
    elif window not in (None, book.window):
        given, does = f"--window is {window}", f"looks at the latest {book.window} rows"
    else:
        return
    raise UsageError(f"{given}, but the run to be resumed {does}, and cannot change that on the way. {ELSE}")


def same_ignored(before: Checkpoint, ignore: Sequence[str] | None, console: Console) -> list[str]:
    """Return the columns that a resumed run leaves out: those it has left out so far."""
    known = before.state.get("given", {}).get("ignore", [])
    if ignore is not None and set(ignore) != set(known):
        so_far = f"has left out {', '.join(known)}" if known else "has left out no column"
        raise UsageError(f"--ignore is {', '.join(ignore)}, but the run to be resumed {so_far}. {ELSE}")
    if ignore is None and known:
        console.print(f"Ignored as before: {', '.join(known)}.")
    return list(known)


def check_same_predictions(before: Checkpoint, predictions: Path | None, console: Console) -> None:
    """Refuse a resumed run that would leave a gap in the predictions of the run before."""
    state = before.state
    if state.get("predictions") is None:
        if predictions is not None:
            console.print(f"Predictions begin with row {state['rows_read']:,}: of those before none were written.")
        return
    if predictions is not None:
        return
    name = state.get("given", {}).get("predictions")
    if name is None or Path(name).exists():
        raise UsageError(
            f"the run to be resumed writes predictions to {name}, and without --predictions they would have a gap. "
            "Name that directory, or move it away to write no more of them."
        )
    console.print(f"No predictions are written from here on: {name} was moved away.")
