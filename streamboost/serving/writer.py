"""One thread that learns, and copies of the model for all who predict.

::

    requests to learn ──▶ bounded queue ──▶ Writer (one thread) ──▶ LiveModel: journal, then model
                                               └── now and then a copy ──▶ Writer.published ──▶ predictions

A copy is made between two requests and never changed, so whoever predicts waits for nobody. It is frozen: it holds what
predictions need and none of the rows in memory, so that making it costs the same however long that is. Requests that
wait may be learned together, which costs less: the longer the queue, the faster it goes.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from streamboost.estimators.describe import size
from streamboost.estimators.freezing import freeze
from streamboost.evaluation.adapters import column_kinds
from streamboost.live.request_checks import known_columns
from streamboost.serving.errors import RETRY, Refused

SHARE = 0.05  # of the writer's time that copying may take
STALEST = 1.0  # seconds, after which a copy is made whatever it costs
NICENESS = 10  # of the writer
PAUSE = 1.0  # seconds between two looks at what has expired
TOGETHER = 1000  # rows of requests that are learned as one, at most
EXPIRE_ROWS = 500  # dealt with at a look, so that requests need not wait long
RETRY_CHECKPOINT = 30.0  # seconds after which a disk that failed is tried again
BROKEN = "the server has failed and learns no more; its log says why. Try again when it is back."
Together = Callable[[Sequence[Any]], Sequence[Any]]
logger = logging.getLogger(__name__)


class ModelCopy:
    """A frozen copy of a model: how many rows it has learned, its number, and when it was made.

    ``about`` is what cannot be told by the copy: whether the model itself is frozen, and how many bytes it takes.
    """

    def __init__(self, model: Any, rows: int, number: int, time: float) -> None:
        self.rows, self.number, self.time = rows, number, time
        self.is_ready = hasattr(model, "committee_")  # whether it has learned anything
        self.n_classes = len(getattr(model, "labels_", ()))
        self.columns, self.kinds = known_columns(model), column_kinds(model)
        if not self.is_ready:
            self.model, self.about = copy.deepcopy(model), dict[str, Any]()
            return
        self.model, self.about = freeze(model, importances="later"), {"frozen": model.is_frozen, "bytes": size(model)}
        self.model.predict_one({})  # what is built at the first prediction is built now, by the writer


class _Job(NamedTuple):
    work: Callable[[], Any] | None  # None for rows that may be learned together with others
    done: Future[Any]
    request: Any = None
    n_rows: int = 0


class Writer:
    """The thread that alone changes a live model.

    ``together`` learns a list of requests in their order, and returns a result or an exception for each; up to
    ``waiting`` requests wait, more are refused. ``failures`` tells what fails at the moment, by what it is ("disk",
    "expiry", "copy"); any thread may change it. ``published`` is the newest copy.
    """

    def __init__(
        self, live: Any, together: Together, *, waiting: int = 256, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.live, self.together, self.clock = live, together, clock
        self.published = self._copy(0)
        self.failures: dict[str, str] = {}
        self._jobs: deque[_Job] = deque()
        self._waiting = waiting
        self._thread = threading.Thread(target=self._run, name="streamboost-writer", daemon=True)
        self._taking = threading.Condition()
        self._stopping = self._has_ended = False
        self._changed: float | None = None  # when the model first differed from the newest copy, or that last failed
        self._due = 0.0  # when copying is affordable again
        self._looked = self._tried = clock()  # when the disk was last looked after, and well or tried

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was taken, and end."""
        with self._taking:
            self._stopping = True
            self._taking.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, work: Callable[[], Any] | None, request: Any = None, n_rows: int = 0) -> Future[Any]:
        """Have work done by the writer; without any, have rows of a request learned, with others that wait."""
        job = _Job(work, Future(), request, n_rows)
        with self._taking:
            if self._stopping:
                raise Refused(503, "the server is shutting down and learns no more. Try again when it is back.", RETRY)
            if self._has_ended:
                raise Refused(503, BROKEN, RETRY)
            if len(self._jobs) >= self._waiting:
                told = f"{self._waiting} requests are waiting to be learned already. Try again later."
                raise Refused(503, told, RETRY)
            self._jobs.append(job)
            self._taking.notify()
        return job.done

    @property
    def has_ended(self) -> bool:
        """Whether nothing will be learned any more."""
        return self._has_ended or not self._thread.is_alive()

    @property
    def failure(self) -> str | None:
        """What is not well, if anything."""
        if self.has_ended:
            return "the writer has ended"
        if failures := list(self.failures.values()):
            return failures[0]
        checkpoint = self.live.last_checkpoint_error
        return None if checkpoint is None else f"the last checkpoint could not be written ({checkpoint})"

    @property
    def n_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._jobs)

    def _run(self) -> None:  # as all below, in the writer's thread
        if sys.platform == "linux":  # lower this thread's priority so predictions win the CPU
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            while (jobs := self._next()) is not None:
                if jobs:
                    self._do(jobs)
                if self.clock() - self._looked >= PAUSE:
                    self._look()
                if self._is_copy_due():
                    self._publish()
            self._publish()
        finally:  # refuse whatever waits and whatever would come: nobody is to wait for a thread that is gone
            with self._taking:
                self._has_ended = True
            for job in self._jobs:
                if job.done.set_running_or_notify_cancel():
                    job.done.set_exception(Refused(503, BROKEN, RETRY))
            self._jobs.clear()

    def _next(self) -> list[_Job] | None:
        """Wait for a job, and take those behind it that may be done with it; none after a pause, None at the end."""
        jobs: list[_Job] = []
        n_rows = 0
        with self._taking:
            if not self._jobs and not self._stopping:
                wake = min(self._looked + PAUSE, math.inf if self._changed is None else self._due)
                self._taking.wait(max(wake - self.clock(), 0.0))
            if not self._jobs and self._stopping:
                return None
            while self._jobs:
                job = self._jobs[0]
                n_rows += job.n_rows
                if jobs and (jobs[0].work is not None or job.work is not None or n_rows > TOGETHER):
                    break
                self._jobs.popleft()
                if job.done.set_running_or_notify_cancel():  # else nobody waits for it any more
                    jobs.append(job)
        return jobs

    def _do(self, jobs: list[_Job]) -> None:
        results: Sequence[Any]
        try:
            work = jobs[0].work
            results = self.together([job.request for job in jobs]) if work is None else [work()]
        except BaseException as error:
            results = [error] * len(jobs)
        if not all([isinstance(result, BaseException) for result in results]):
            self._note_change()
            if not self.published.is_ready and hasattr(self.live.model, "committee_"):
                self._publish()  # the first: whoever is told that rows are learned may ask next
        if self.live.is_inconsistent:  # it is mended before the next request, or stays as it is
            self.failures["model"] = "learning broke off, and the model is behind its journal"
        else:
            self.failures.pop("model", None)
        for job, result in zip(jobs, results, strict=True):
            (job.done.set_exception if isinstance(result, BaseException) else job.done.set_result)(result)

    def _look(self) -> None:
        """See to what nobody asks for: rows that have expired, and a disk that failed."""
        try:
            model, rows = self.live.model, self.live.rows
            n_expired = self.live.expire(limit=EXPIRE_ROWS)
            if self.live.rows != rows or self.live.model is not model:
                self._note_change()
            self.failures.pop("expiry", None)
            if n_expired >= EXPIRE_ROWS:
                return  # the next look comes after the next request, or at once if there is none
        except Exception as error:  # such as a full disk: nobody asked, so nobody is told but the log and /healthz
            self.failures["expiry"] = f"what has expired could not be dealt with ({error})"
            logger.exception("what has expired could not be dealt with")
        self._looked = self.clock()
        if "disk" not in self.failures and self.live.last_checkpoint_error is None:
            self._tried = self._looked
        elif self._looked - self._tried >= RETRY_CHECKPOINT:
            try:  # maybe no request comes that would tell that the disk is well again
                self.live.checkpoint()
                self.failures.pop("disk", None)
            except Exception:
                logger.exception("no checkpoint could be written")
            self._tried = self.clock()

    def _note_change(self) -> None:
        if self._changed is None:
            self._changed = self.clock()

    def _is_copy_due(self) -> bool:
        now = self.clock()
        return self._changed is not None and (now >= self._due or now - self._changed >= STALEST)

    def _publish(self) -> None:
        if self._changed is None:
            return
        started = self.clock()
        try:
            self.published = self._copy(self.published.number + 1)
        except Exception as error:  # such as too little memory: the older copy goes on predicting
            self.failures["copy"] = f"no copy of the model could be made ({type(error).__name__}: {error})"
            logger.exception("no copy of the model could be made; the older one is kept, and another try comes soon")
            self._changed = self.clock()
            self._due = self._changed + STALEST
            return
        self.failures.pop("copy", None)
        self._changed = None
        ended = self.clock()
        self._due = ended + (ended - started) * (1.0 / SHARE - 1.0)

    def _copy(self, number: int) -> ModelCopy:
        return ModelCopy(self.live.model, self.live.rows, number, self.clock())
