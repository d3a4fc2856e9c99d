"""A worker that holds some learners of a stack; :class:`~streamboost.cluster.spread.SpreadStack` is its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import FloatArray, IntArray
from streamboost.binning import Bins
from streamboost.cluster.keeping import KeepingWorker
from streamboost.stacks.base import Marks, Stack


@dataclass
class SentWindow:
    """The rows of a refit on their way to a worker: those that its stack looks at."""

    X: FloatArray | None
    codes: NDArray[np.uint8] | None
    bins: Bins | None

    @property
    def nbytes(self) -> int:
        """About how much it takes."""
        return sum(array.nbytes for array in (self.X, self.codes) if array is not None)


class Facts(NamedTuple):
    """What the driver has to know of a part."""

    n_learners: int
    refittable: Sequence[int]
    categorical: IntArray


class Part(NamedTuple):
    """The state of a worker."""

    stack: Stack
    n_rows: int


class StackWorker(KeepingWorker):
    """Learners start, …, stop - 1 of a stack.

    Parameters
    ----------
    stack : Stack
        The part, not opened yet.
    """

    state: Part

    def __init__(self, stack: Stack) -> None:
        self.state = Part(stack, 0)

    @property
    def stack(self) -> Stack:
        """The learners."""
        return self.state.stack

    @property
    def n_rows(self) -> int:
        """Rows learned."""
        return self.state.n_rows

    # Operations.

    def tell(self, method: str, args: Sequence[Any]) -> Facts:
        """Whatever changes the learners without bringing rows."""
        getattr(self.stack, method)(*args)
        return Facts(self.stack.n_learners, list(self.stack.refittable), self.stack.categorical)

    def learn(self, method: str, X: FloatArray, targets: FloatArray, weight: FloatArray) -> Marks | None:
        """Learn rows; return what is to be remembered of them."""
        getattr(self.stack, method)(X, targets, weight)
        self.state = self.state._replace(n_rows=self.n_rows + len(X))
        return self.stack.marks(X)

    def refit(self, i: int, window: SentWindow, target: FloatArray, weight: FloatArray) -> Marks | None:
        """Fit learner i of this part afresh."""
        return self.stack.refit(i, window, target, weight)  # type: ignore[arg-type]

    # Questions.

    def said(self, X: FloatArray, k: int, is_average: bool) -> FloatArray:
        """What those of the first k learners of the whole say that are here."""
        stack = self.stack.averaged() if is_average else self.stack
        return stack.predict_first(X, min(max(k - self.stack.offset, 0), self.stack.n_learners))

    def marks(self, X: FloatArray) -> Marks | None:
        """What is to be remembered of rows."""
        return self.stack.marks(X)

    def recall(self, marks: Marks) -> FloatArray:
        """What the first learners of this part say of rows remembered by their marks."""
        return self.stack.recall(marks)

    def fetch(self) -> Stack:
        """The part itself."""
        return self.stack
