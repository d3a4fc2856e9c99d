"""The steps of ``streamboost run``: can what is asked for be done, is it the run that was begun, and the run itself."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from streamboost._types import Task
from streamboost.cli.arguments import TASKS, UsageError, check_column, check_word
from streamboost.cli.display import sentence_of
from streamboost.cli.rows import NOT_FILES, PeekableSource, open_rows
from streamboost.cli.wording import in_options
from streamboost.errors import did_you_mean
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.estimators.describe import plain_metrics
from streamboost.evaluation.adapters import known_kinds, task_of
from streamboost.evaluation.class_metrics import AUC
from streamboost.evaluation.metric_base import Metric
from streamboost.evaluation.reports import Report
from streamboost.evaluation.scorebook import ScoreBook
from streamboost.features.reading import Kind
from streamboost.kernels.progress import clock
from streamboost.keyed import KeyedModel, small_classifier, small_regressor
from streamboost.persistence.checkpoints import Checkpoint, checkpoint_paths, read_latest
from streamboost.runs.guard import Guard, label_kind
from streamboost.runs.quarantine import TooManyBadRows
from streamboost.runs.run import Interrupted, Run
from streamboost.sources import FileSource, ForeignPosition
from streamboost.sources.input_files import STDIN

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
ESTIMATORS: dict[str, Any] = {"regression": SGBRegressor, "classification": SGBClassifier}
ELSE = "Leave it out, or begin in another directory."
ROWS_TRIED = 20  # to tell parameters that are wrong from rows that are


def is_heard(number: int) -> bool:
    """Return whether a signal is not ignored, as ``nohup`` has it."""
    return signal.getsignal(number) is not signal.SIG_IGN or number != getattr(signal, "SIGHUP", None)


def execute(one: Run, watchers: Sequence[Callable[[Report], None]]) -> dict[str, Any]:
    """Run to the end, or until a Ctrl-C, SIGTERM or SIGHUP (the terminal is gone); return the summary."""
    resumed_at, latest = one.rows, None
    began, compiled = time.perf_counter(), clock.seconds
    signals: list[int] = []

    def stop(number: int, frame: object) -> None:  # after the chunk at hand; at a second Ctrl-C at once
        signals.append(number)
        if len(signals) > 1 and number == signal.SIGINT:
            raise KeyboardInterrupt
        one.stop()
        if one.is_waiting:
            raise Interrupted

    before = {number: signal.signal(number, stop) for number in ENDING if is_heard(number)}
    failure: str | None = None
    try:
        for latest in one.reports():
            for see in watchers:
                see(latest)
    except TooManyBadRows as error:
        failure = str(error)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    seconds, compiled = time.perf_counter() - began, clock.seconds - compiled
    if latest is None and one.book is not None:  # no row came, but there were some before
        latest = one.book.report()
    reasons = [found | {"reason": in_options(found["reason"])} for found in one.bad.most_frequent()]
    if failure is None and one.bad.n_new and one.rows == resumed_at and not signals:
        failure = f"no row was learned: all {one.bad.n_new:,} are bad, such as: {reasons[0]['reason']}"
    if failure is not None and not one.rows:
        failure += _other_task(one.options.task, reasons[0]["reason"])
    failed = {} if failure is None else {"error": in_options(failure), "code": 1}
    return {
        "rows": one.rows,
        "rows_of_this_run": one.rows - resumed_at,
        "resumed_at": resumed_at,
        "bad_rows": one.bad.n,
        "bad_reasons": reasons,
        "quarantine": str(one.bad.path) if one.bad.n and one.bad.path is not None else None,
        "stopped": bool(signals),
        "seconds": round(seconds, 3),
        "compile_seconds": round(compiled, 3),  # of those; at the first use only
        "rows_per_second": round((one.rows - resumed_at) / max(seconds - compiled, 1e-9), 1),
        "task": one.options.task,
        "target": one.options.target,
        "metrics": {} if latest is None else plain_metrics(latest),
        "history": one.history_state and {key: has for key, has in one.history_state.items() if key != "position"},
        "events": [event._asdict() for event in getattr(one.model, "events_", ())] if one.rows else [],
        **failed,
    }


def _other_task(task: Task, reason: str) -> str:
    """Return the end of a sentence that names the other task, if all rows may be bad for want of it."""
    for other, expected, found in (("classification", "a number", "classes"), ("regression", "a class", "numbers")):
        if task != other and re.match(f"the target .* is (?!missing).*, expected {expected}", reason):
            return f" If the targets are {found}: --task {other}."
    return ""


def check_report(path: Path | None) -> None:
    """Refuse a page that could not be written in the end."""
    if path is not None and path.is_dir():
        raise UsageError(f"--report is {str(path)!r}, which is a directory, expected a file. Name one in it.")
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--report is {str(path)!r}, but {str(path.parent)!r} is no directory. Make it.")


def check_columns(table: Any, target: str, key: str | None, ignored: Sequence[str], *, is_new: bool) -> None:
    """Refuse columns that the first rows do not have; a resumed run has met those it ignores."""
    for name, column in (("--target", target), ("--key", key)):
        if column is not None and column in ignored:
            raise UsageError(f"--ignore is {column!r}, which {name} names, too. Drop one of them.")
        if column is not None and table is not None:
            check_column(column, table.column_names, name)
    if key == target:
        raise UsageError(f"--key is {key!r}, which --target names, too. Name the column that tells whose row it is.")
    for name in ignored if is_new and table is not None else ():
        check_column(name, table.column_names, "--ignore")


def choose_task(task: str, before: Any, start: Any, table: Any, target: str, console: Console) -> Task:
    """Return the task that was given, else that of the run before, of the first model, or of the first targets."""
    check_word(task, TASKS, "--task")
    of_start = None if start is None else task_of(start)
    if task != "auto":
        if of_start not in (None, task):
            told = f"but the model of --start-from is one for {of_start}. Drop one of them."
            raise UsageError(f"--task is {task}, {told}")
        return task  # type: ignore[return-value]
    if before is not None:
        return before.state["task"]  # type: ignore[no-any-return]
    if of_start is not None:
        return of_start
    if table is None:
        raise UsageError("the source has no rows yet, so --task auto cannot tell. Pass --task regression, for example.")
    kind, reason = label_kind(table[target])
    console.print(f"Task: {kind} ({reason}; --task says otherwise).")
    return kind


def check_applicable(kinds: Sequence[type[Metric[Any]]], table: Any, target: str) -> None:
    """Refuse metrics that have no meaning for as many classes as the first targets have."""
    n = 0 if table is None else len(table[target].drop_null().unique())
    if AUC in kinds and n > 2:
        raise UsageError(f"--metric is auc, which is for two classes, but {target!r} has {n}. Use log_loss or kappa.")


def check_parameters(
    task: Task, parameters: dict[str, Any], table: Any, target: str, without: Sequence[str | None]
) -> None:
    """Refuse parameters with which not one of the first good rows can be learned, if without them one can."""
    if not parameters or table is None:
        return
    rows = table.select([name for name in table.column_names if name not in without])
    found = Guard().validate(rows, target, task)
    X, y = found.X.slice(0, ROWS_TRIED), found.y[:ROWS_TRIED]
    refusal = first_refusal(ESTIMATORS[task](**parameters), X, y)
    if refusal is not None and first_refusal(ESTIMATORS[task](), X, y) is None:
        given = ", ".join(f"{name}={json.dumps(value)}" for name, value in parameters.items())
        raise UsageError(f"a model cannot learn with --option {given}: {sentence_of(refusal)}") from refusal


def first_refusal(model: Any, X: Any, y: Any) -> Exception | None:
    """Return why a model refuses the first row if it refuses all of them, else None."""
    refusal: Exception | None = None
    for row in range(len(y)):
        try:
            model.prepare(X.slice(row, 1), y[row : row + 1])
        except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
            refusal = refusal or error
        else:
            return None
    return refusal


def make_keyed(key: str, task: str, prior: Any, parameters: dict[str, Any]) -> KeyedModel:
    """Make a small model for each key; ``prior`` is the model they begin with."""
    small = small_classifier if task == "classification" else small_regressor
    return KeyedModel(small(**parameters), key=key, prior=prior)


def same_key(before: Checkpoint | None, key: str | None) -> str | None:
    """Return the column with the key that was given, else that of the run before; refuse another one."""
    if before is None:
        return key
    known = getattr(before.model, "key", None) if isinstance(before.model, KeyedModel) else None
    if key not in (None, known):
        told = "has one model for all rows" if known is None else f"has a model for each {known!r}"
        raise UsageError(f"--key is {key!r}, but the run to be resumed {told}. {ELSE}")
    return known


def parse_options(task: str, words: Sequence[str]) -> dict[str, Any]:
    """Parse parameters of the model; values as in JSON, or text."""
    known, parameters = ESTIMATORS[task]().get_params(deep=False), {}
    for word in words:
        name, _, value = word.partition("=")
        if not value or name not in known:
            meant = "" if name in known else did_you_mean(name, known)
            raise UsageError(f"--option is {word!r}, expected NAME=VALUE with a name among {sorted(known)}.{meant}")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def parse_max_bad(text: str) -> float:
    """Parse how many rows may be bad: a whole number of them, or a share such as 5% or 0.05, which is a float."""
    with suppress(ValueError):
        if text.isdecimal():
            return int(text)
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if 0 <= share <= 1:
            return share
    raise UsageError(f"--max-bad is {text!r}, expected a number of rows such as 100, or a share such as 5% or 0.05.")


def parse_interval(text: str) -> dict[str, Any]:
    """Parse the options of :class:`~streamboost.runs.run.Options` for an interval in rows or in time, such as 1.5m."""
    with suppress(ValueError):
        seconds = float(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else None
        rows = int(text) if seconds is None else None
        if (rows or seconds or 0) > 0:
            return {"checkpoint_rows": rows, "checkpoint_seconds": seconds}
    raise UsageError(f"--checkpoint-every is {text!r}, expected rows such as 10000, or a time such as 30s or 5m.")


# A history


def check_then(history: Sequence[str], words: Sequence[str] | None, others: dict[str, Any]) -> None:
    """Refuse options that contradict --then, and sources after it, where a shell has unfolded a glob."""
    for name, value in others.items():
        if value:
            why = {"--continue": "goes on with a model", "--start-from": "begins with one"}.get(name, "makes many")
            told = f"but {name} {why}, and a history is fitted to a new one. Leave one of them out."
            raise UsageError(f"--then is given, {told}")
    known = list(words or ())
    begins = next((i for i, word in enumerate(known) if word.partition("=")[0] == "--then"), len(known))
    for late in [part for part in history if part in known[begins:] and part not in known[:begins]]:
        told = "which counts as history there. Put the history first, and quote a glob: --then 'days/*.csv'."
        raise UsageError(f"{late!r} comes after --then LIVE, {told}")


def split_options(given: dict[str, Any], live: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that say how rows are written, for a history and for the source after it."""
    of_text = dict.fromkeys(("format", "delimiter", "decimal", "encoding", "names"))
    is_files = not any(part.startswith(NOT_FILES) for part in live)
    only_history = not is_files and given.get("then")
    return given | ({"format": None} if STDIN in live else {}), given | (of_text if only_history else {})


def open_history(
    where: Sequence[str], given: dict[str, Any], strict: bool, before: Checkpoint | None, console: Console
) -> PeekableSource | None:
    """Open a history; None if the run to be resumed has learned it already."""
    kept = None if before is None else before.state.get("history")
    if before is not None and kept is None:
        told = "but the run to be resumed was begun without a history, which comes first"
        raise UsageError(f"--then is given, {told}. Leave out HISTORY --then, or begin in another directory.")
    if STDIN in where:
        told = "but a history is read again if the run was killed, and standard input cannot be. Write it to a file"
        raise UsageError(f"the history is '-', {told}.")
    if any(part.startswith(NOT_FILES) for part in where):
        told = "may have no end, and a history has to. Name files, or leave out --then to learn it row by row."
        raise UsageError(f"the history {' '.join(where)} {told}")
    try:
        opened = open_rows(where, given, strict=strict)
        if kept is None:
            return opened
        if opened.first(kept["position"]) is not None:
            console.print("The history has more rows than were learned of it; to learn them, see --continue.")
    except FileNotFoundError:
        if kept is None:
            raise
    except ForeignPosition as error:
        told = "Name that one, or leave it out: streamboost run LIVE --model DIR --resume"
        raise UsageError(f"the run to be resumed has learned another history: {error.found}. {told}") from error
    return None


def first_of_history(history: PeekableSource, where: Sequence[str]) -> Any:
    """Return the first rows of a history; refuse one without any."""
    first = history.first()
    if first is None:
        told = "Name one that has some, or leave out HISTORY --then to begin with nothing learned."
        raise UsageError(f"the history {' '.join(where)} has no rows. {told}")
    return first


def check_live(opened: PeekableSource, target: str) -> None:
    """Refuse files without the target before a history is learned; whatever has to be waited for is met later."""
    if opened.progress(None) is None or not isinstance(opened.source, FileSource):
        return
    first = opened.first()
    if first is not None:
        check_column(target, first.column_names, "in the rows of --then, --target")


# Resuming


def read_before(directory: Path | None, option: str) -> Checkpoint | None:
    """Return the newest checkpoint of a run; None if there is none, or it has read nothing."""
    if directory is None:
        raise UsageError(f"{option} is given without --model DIR, which says what to go on with. Add it.")
    if not directory.is_dir() or not checkpoint_paths(directory):
        return None
    found = read_latest(directory)
    return found if found.state.get("rows_read") else None


def same_target(before: Checkpoint | None, target: str | None, directory: Path | None, *, goes_on: bool) -> str:
    """Return the target that was given, else that of the run before."""
    if target is not None:
        return target
    if before is not None:
        return str(before.state["target"])
    if goes_on:
        found = f"{str(directory)!r} holds no model yet to go on with. Look for a typo"
        raise UsageError(f"{found}, or begin one there with --target COL, the column to predict.")
    if directory is not None and directory.is_dir() and checkpoint_paths(directory):
        found = f"{str(directory)!r} holds a model already, and --target is missing"
        raise UsageError(f"{found}. Add --continue to go on with new rows, or --resume to go on where it stopped.")
    raise UsageError("Missing option '--target': the column to predict. Try: streamboost run --help")


def first_rows(
    opened: PeekableSource, before: Checkpoint | None, target: str, go_on: bool, words: Sequence[str] | None
) -> tuple[Any, bool]:
    """Return the first rows after those that were read, and whether the source is another one than before.

    Another one is read as the model knows its columns.
    """
    if before is None:
        return opened.first(), False
    is_pipe = isinstance(before.position, dict) and before.position.get("file") == STDIN
    try:
        if not (go_on and is_pipe):  # a pipe is never the one before, and what comes through it is new
            return opened.first(before.position), False
    except ForeignPosition as error:
        if not go_on:
            raise _other_source(error, words) from error
    opened.kinds = known_kinds(before.model, target)
    return opened.first(), True


def _other_source(error: ForeignPosition, words: Sequence[str] | None) -> UsageError:
    command = ["--continue" if word == "--resume" else word for word in words or ["run", "...", "--continue"]]
    told = f"To go on with this model on these rows, as new ones: {shlex.join(['streamboost', *command])}"
    return UsageError(f"--resume goes on where a run stopped, but {error.found}. {told}")


def check_resumed(before: Checkpoint, parameters: dict[str, Any]) -> None:
    """Refuse parameters that a resumed model does not have."""
    model = before.model.template if isinstance(before.model, KeyedModel) else before.model
    for name, value in parameters.items():
        if (has := getattr(model, name)) != value:
            raise UsageError(f"{name}={value!r} is given, but the model to be resumed has {has!r}. {ELSE}")


def check_same_scores(before: Checkpoint, metrics: Sequence[str] | None, window: int | None) -> None:
    """Refuse metrics that were not kept from the first row on."""
    if not isinstance(book := before.state.get("book"), ScoreBook):
        return
    kept = [metric.name for metric in book.running]
    if metrics is not None and set(metrics) != set(kept):
        given, does = f"--metric is {', '.join(metrics)}", f"keeps score by {', '.join(kept)}"
    elif window not in (None, book.window):
        given, does = f"--window is {window}", f"looks at the latest {book.window} rows"
    else:
        return
    raise UsageError(f"{given}, but the run to be resumed {does}, and cannot change that on the way. {ELSE}")


def same_kinds(before: Checkpoint) -> dict[str, Kind]:
    """Return the kinds that a resumed run was begun with: what it learned since must not change how rows are read."""
    return dict(before.state.get("given", {}).get("kinds", {}))


def same_ignored(before: Checkpoint, ignore: Sequence[str] | None, console: Console) -> list[str]:
    """Return the columns that a resumed run leaves out: those it has left out so far."""
    known = before.state.get("given", {}).get("ignore", [])
    if ignore is not None and set(ignore) != set(known):
        so_far = f"has left out {', '.join(known)}" if known else "has left out no column"
        raise UsageError(f"--ignore is {', '.join(ignore)}, but the run to be resumed {so_far}. {ELSE}")
    if ignore is None and known:
        console.print(f"Ignored as before: {', '.join(known)}.")
    return list(known)


def same_predictions(before: Checkpoint, predictions: Path | None, console: Console) -> Path | None:
    """Return where a run that goes on writes predictions: where it was said, else where it has so far."""
    state = before.state
    if state.get("predictions") is None and predictions is not None:
        console.print(f"Predictions begin with row {state['rows_read']:,}: of those before none were written.")
    if state.get("predictions") is None or predictions is not None:
        return predictions
    name = state.get("given", {}).get("predictions")
    if name is None:  # as in checkpoints of an early form
        raise UsageError("the run to be resumed writes predictions, and without --predictions they would have a gap.")
    if not Path(name).exists():
        console.print(f"No predictions are written from here on: {name} was moved away.")
        return None
    console.print(f"Predictions as before: {name}.")
    return Path(name)
