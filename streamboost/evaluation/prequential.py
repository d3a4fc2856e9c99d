"""The prequential loop, test then train: every row is predicted before it is learned, and the predictions counted.

As no row was known when it was predicted, all rows are test rows, and the newest tell how the model does now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamboost._types import Task
from streamboost.errors import refused
from streamboost.evaluation.adapters import ModelAdapter, adapter_for, gives_probabilities, task_of
from streamboost.evaluation.chunking import LabelledRows, Target, rechunk, slice_rows, split_targets
from streamboost.evaluation.predictions import Predictions, concatenate
from streamboost.evaluation.reports import History, Report
from streamboost.evaluation.scorebook import MetricKind, ScoreBook, Scored, choose_metrics, metric_kind
from streamboost.features.reading import PANDAS_MISSING
from streamboost.kernels.progress import clock

__all__ = ["History", "Report", "prequential", "run"]

CHUNK = 256  # rows a call, where it makes no difference to what is predicted


def prequential(
    model: Any,
    rows: Any,
    target: Target = None,
    *,
    chunk: int | None = None,
    delay: int = 0,
    every: int = 1000,
    window: int = 1000,
    metrics: Sequence[MetricKind] | None = None,
    task: Task | Literal["auto"] = "auto",
    classes: Sequence[Any] | None = None,
) -> Iterator[Report]:
    """Predict each row, then learn it, and report every so often.

    Parameters
    ----------
    model : object
        Anything with ``learn`` and ``predict`` (streamboost), ``partial_fit`` and ``predict`` (scikit-learn), or
        ``learn_one`` and ``predict_one`` (River).
    rows : (X, y), frame, Arrow table, source, or iterable
        A source is one of :mod:`streamboost.sources`. An iterable brings (dict, y) pairs, dicts that hold the target,
        frames or Arrow tables that do, or (X, y) pairs of arrays. Both are read a chunk at a time.
    target : str or sequence of str, optional
        The column or columns to predict, where rows hold them; None by default.
    chunk : int, optional
        How many rows the model is handed at once. Models with ``partial_fit`` predict a chunk before they learn any of
        it, and get single rows unless told otherwise; for others it changes nothing but speed (256).
    delay : int
        After how many rows a label comes, 0 by default. Row t is learned just before row t + delay is predicted, so 0
        and 1 are the same; what is left is learned in the end. Rows then go one by one.
    every : int
        Rows between reports, 1,000 by default; the last report comes with the last row.
    window : int
        Over how many of the latest rows the windowed metrics look; 1,000 by default.
    metrics : sequence of str or Metric classes, optional
        Of ``"rmse"``, ``"mae"``, ``"r2"``, ``"accuracy"``, ``"kappa"``, ``"log_loss"``, ``"auc"``. Left out, the first
        three for numbers and the next three for classes, without ``"log_loss"`` if the model gives no probabilities.
    task : {"auto", "regression", "classification"}
        By default ("auto") what the model or the first targets tell.
    classes : sequence, optional
        All classes, for models that must be told before the first row; known without it if all rows are there.

    Yields
    ------
    Report

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from streamboost import SGBRegressor
    >>> rows = make_friedman1(2000, noise=1.0, random_state=0)
    >>> for report in prequential(SGBRegressor(random_state=0), rows, metrics=["rmse"]):
    ...     print(f"{report.rows} rows, RMSE {report.running['rmse']:.1f}, lately {report.windowed['rmse']:.1f}")
    1000 rows, RMSE 1.9, lately 1.9
    2000 rows, RMSE 1.5, lately 1.1
    """
    for name, value, least in (("every", every, 1), ("window", window, 1), ("delay", delay, 0), ("chunk", chunk, 1)):
        is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least
        if not is_whole and (name, value) != ("chunk", None):
            raise ValueError(f"{name} is {value!r}, expected a whole number of at least {least}.")
    if task not in ("auto", "regression", "classification"):
        raise refused("task", task, "'regression', 'classification' or 'auto'.")
    kinds = None if metrics is None else [metric_kind(metric) for metric in metrics]
    if kinds is not None and len({kind.name for kind in kinds}) < max(len(kinds), 1):
        raise ValueError(f"metrics is {metrics!r}, expected one or more, each once. If unsure, leave it out.")
    adapter = adapter_for(model)  # a model that lacks everything is refused at once
    chunks = rechunk(rows, target, chunk or (1 if adapter.predicts_whole_chunks and not delay else CHUNK))

    def loop() -> Iterator[Report]:
        first = next((chunk for chunk in chunks if len(chunk.y)), None)
        if first is None:
            raise ValueError("rows is empty, expected at least one row. Is the source at its end already?")
        kind = task_of(model, first.y) if task == "auto" else task
        whole = split_targets(rows, target) if classes is None and kind == "classification" else None
        told = classes if whole is None else sorted(set(whole.y.tolist()))
        has_probabilities = kind == "classification" and gives_probabilities(model)
        chosen = choose_metrics(model, kind, kinds, has_probabilities)
        adapted = adapter(model, kind, any(metric.need == "probability" for metric in chosen), told)
        book = ScoreBook(chosen, every=every, window=window, model=model)
        checked = _checked(chain([first], chunks), kind)
        for scored in _delayed(adapted, checked, delay) if delay else _in_turn(adapted, checked):
            yield from book.add(scored, model)
        yield from book.close(model)

    return loop()


def run(model: Any, rows: Any, target: Target = None, **options: Any) -> History:
    """Go through all rows and keep the reports; arguments as in :func:`prequential`.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.datasets import make_classification
    >>> history = run(GaussianNB(), make_classification(400, random_state=0), chunk=20, every=200)
    >>> [report.rows for report in history], history.last.running["accuracy"] > 0.8
    ([200, 400], True)
    """
    return History(prequential(model, rows, target, **options))


def _in_turn(model: ModelAdapter, chunks: Iterator[LabelledRows]) -> Iterator[Scored]:
    """Predict each chunk, then learn it."""
    for X, y in chunks:
        ready = model.convert(X)
        started = clock.working_time()
        predicted = model.predict_then_learn(ready, y)
        yield Scored(y, predicted, clock.working_time() - started)


def _delayed(model: ModelAdapter, chunks: Iterator[LabelledRows], delay: int) -> Iterator[Scored]:
    """Predict each row as it comes, and learn it when its label does."""
    waiting: deque[tuple[Any, NDArray[Any], Predictions]] = deque()
    for X, y in chunks:
        ready, due, started = model.convert(X), [], clock.working_time()
        for t in range(len(y)):
            if len(waiting) == delay:
                due.append(waiting.popleft())
                model.learn(*due[-1][:2])
            x = slice_rows(ready, t, t + 1)
            waiting.append((x, y[t : t + 1], model.predict(x)))
        if due:
            yield _scored(due, clock.working_time() - started)
    started = clock.working_time()
    for x, y, _ in waiting:
        model.learn(x, y)
    yield _scored(list(waiting), clock.working_time() - started)


def _scored(due: list[tuple[Any, NDArray[Any], Predictions]], seconds: float) -> Scored:
    return Scored(np.concatenate([y for _, y, _ in due]), concatenate([predicted for *_, predicted in due]), seconds)


def _checked(chunks: Iterator[LabelledRows], task: Task) -> Iterator[LabelledRows]:
    """Refuse chunks that lack a target; make numbers floats."""
    start = 0
    for X, y in chunks:
        if y.dtype.kind == "O":
            is_missing = np.array([_is_missing(value) for value in y.ravel()], dtype=bool)
        else:
            is_missing = ~np.isfinite(y).ravel() if y.dtype.kind == "f" else np.zeros(0, dtype=bool)
        if is_missing.any():
            place = int(is_missing.argmax())
            row = start + place // (y.shape[1] if y.ndim == 2 else 1)
            way_out = "Its chunk was not learned. Drop rows without a label before the loop."
            raise ValueError(f"the target of row {row} is {y.ravel()[place]}, expected a value in every row. {way_out}")
        start += len(y)
        try:
            numbers = y.astype(float) if task == "regression" else y
        except (TypeError, ValueError) as error:
            fault = f"the targets hold something that is not a number ({error}), but the task is regression"
            raise ValueError(f"{fault}. For classes use a classifier, or task='classification'.") from None
        yield LabelledRows(X, numbers)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in PANDAS_MISSING or bool(value != value)
