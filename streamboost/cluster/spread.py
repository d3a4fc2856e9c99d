"""One big model: its weak learners spread over workers, a contiguous range on each.

The driver asks all workers what their learners say of a chunk, puts the answers together to h (n, N, m), lets the
booster walk the descent, and sends each worker the targets of its own learners. Given x, the answers of learners do
not depend on one another, so that the model is the one a single process would have, to the last bit; a chunk is one
exchange, and so is a refit. It is for models too big, or learners too costly, for one machine: small ones are faster
in one process.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from streamboost.arrays import FloatArray, IntArray
from streamboost.cluster import beginnings
from streamboost.cluster.crew import Cut, Engine, Ticket
from streamboost.cluster.spread_workers import SpreadWorkers
from streamboost.cluster.stack_worker import Facts, SentWindow
from streamboost.stacks.base import Marks, Stack, Window
from streamboost.stacks.chain import ChainStack
from streamboost.stacks.tree import TreeStack

KIND = "spread"
REMEMBERED = ("n_learners", "n_features", "n_outputs", "categorical", "_starts", "_refittable")


class SpreadStack(SpreadWorkers, Stack):
    """A stack whose learners live on workers.

    It is meant for ``semantics="minibatch"``, or a number of rows: row by row works and is slow. Workers start when
    the stack is opened, at the first row. Copying an open one (``copy.deepcopy``) brings a plain stack home.

    Parameters
    ----------
    stack : Stack
        The learners, not opened yet: trees, linear, networks, convolutions, wrapped models, a chain of these.
    workers : int
        Among how many they are divided; at most as many as there are learners.
    engine : {"auto", "local", "ray"}
        "local" keeps all workers in this process; else they are on Ray.
    address, directory, resources, **named
        As for :func:`~streamboost.cluster.crew.make_crew`. With a directory the model can be checkpointed.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost import Booster
    >>> from streamboost.losses import Squared
    >>> from streamboost.stacks import LinearStack
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> def learn(stack):
    ...     booster = Booster(Squared(), stack=stack, semantics="minibatch")
    ...     return np.concatenate([booster.learn(X[a : a + 100], y[a : a + 100]) for a in range(0, 2000, 100)])
    >>> with SpreadStack(LinearStack(10), workers=3, engine="local") as spread:
    ...     np.array_equal(learn(spread), learn(LinearStack(10)))
    True
    """

    _is_average = False

    def __init__(
        self,
        stack: Stack,
        workers: int = 2,
        *,
        engine: Engine = "auto",
        address: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        resources: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        if not isinstance(stack, Stack) or isinstance(stack, SpreadStack):
            raise TypeError(
                f"stack is {stack!r}, expected the stack to be divided, such as TreeStack(60). "
                "To make a stack of a model use streamboost.stacks.wrap."
            )
        if stack.n_features:
            raise ValueError("stack is open already, expected one that has seen nothing: it is opened on the workers.")
        if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= stack.n_learners:
            raise ValueError(
                f"workers is {workers!r}, expected a whole number from 1 to {stack.n_learners}: as many as there are "
                "learners at most."
            )
        Stack.__init__(self, stack.n_learners)
        stack.part(0, stack.n_learners)  # refuses what cannot be divided
        options = {"engine": engine, "address": address, "directory": directory, "resources": resources, **named}
        SpreadWorkers.__init__(self, stack, workers, options)
        self.n_bins, self.splits, self.averages = stack.n_bins, stack.splits, stack.averages
        self.step_share = stack.step_share
        self._refittable = list(stack.refittable)
        self._marked: tuple[FloatArray, Marks] | None = None  # the rows learned last, and their marks

    # The contract of a stack.

    def _change(self, send: Callable[[], Sequence[Ticket]], *, is_step: bool = False) -> list[Any]:
        self._marked = None
        return super()._change(send, is_step=is_step)

    def _tell(self, method: str, *args: Any) -> None:
        """Change all learners alike."""
        self._note(self._change(lambda: self.crew.call_all("tell", method, args)))

    def _note(self, facts: Sequence[Facts]) -> None:
        self._refittable = [start + i for start, fact in zip(self._starts, facts, strict=True) for i in fact.refittable]
        for fact in facts:
            if len(fact.categorical):
                self.categorical = fact.categorical

    def _open(self, seed: int) -> None:
        if self._torn:
            self.crew.load(0)
        self._torn = ""
        self.__dict__.pop("categorical", None)
        self._tell("open", self.n_features, self.n_outputs, seed)

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m)."""
        return self.predict_first(X, self.n_learners)

    def predict_first(self, X: FloatArray, k: int) -> FloatArray:
        """What the first k learners say, (n, k, m)."""
        self._check_whole()
        said = np.empty((len(X), k, self.n_outputs))
        parts = self.crew.results(self.crew.ask_all("said", X, k, self._is_average))
        for own, part in zip(self._ranges(), parts, strict=True):
            said[:, own.start : min(own.stop, k)] = part
        return said

    def averaged(self) -> Self:
        """The same learners with the mean of their parameters: to be asked, not to be taught."""
        twin = copy.copy(self)
        twin._is_average = True
        return twin

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Send every learner its targets; rows one after another."""
        self._learn("learn", X, targets, weight)

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Send every learner its targets; rows that share the present hypotheses."""
        self._learn("learn_batch", X, targets, weight)

    def _learn(self, method: str, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        self._check_whole()
        expected = (len(X), self.n_learners, self.n_outputs)
        if targets.shape != expected:
            raise ValueError(
                f"targets have shape {targets.shape}, expected {expected}: "
                "one for each row, learner and output. For a single output pass targets[..., None]."
            )
        marks = self._change(
            lambda: [
                self.crew.call(worker, "learn", method, X, np.ascontiguousarray(targets[:, own]), weight)
                for worker, own in enumerate(self._ranges())
            ],
            is_step=True,
        )
        if all(part is not None for part in marks):
            self._marked = X.copy(), np.concatenate(marks, axis=1)

    def marks(self, X: FloatArray) -> Marks | None:
        """What to remember of each row, (n, N), if all learners keep marks; of the rows just learned it is known."""
        self._check_whole()
        if self._marked is not None and np.array_equal(self._marked[0], X, equal_nan=True):
            return self._marked[1]
        parts = self.crew.results(self.crew.ask_all("marks", X))
        return np.concatenate(parts, axis=1) if all(part is not None for part in parts) else None

    def recall(self, marks: Marks) -> FloatArray:
        """What the first learners say, (n, k, m), of rows remembered by their marks (n, k)."""
        self._check_whole()
        said = np.empty((*marks.shape, self.n_outputs))
        asked = [(worker, own) for worker, own in enumerate(self._ranges()) if own.start < marks.shape[1]]
        tickets = [self.crew.ask(worker, "recall", np.ascontiguousarray(marks[:, own])) for worker, own in asked]
        for (_, own), part in zip(asked, self.crew.results(tickets), strict=True):
            said[:, own] = part
        return said

    def refit(self, i: int, window: Window, target: FloatArray, weight: FloatArray) -> Marks | None:
        """Send the rows of the window to the worker that holds learner i, which fits it afresh."""
        owner = int(np.searchsorted(self._starts, i, side="right")) - 1
        sent = SentWindow(
            np.ascontiguousarray(window.X) if _looks_at_rows(self.stack) else None,
            np.ascontiguousarray(window.codes) if self.n_bins else None,
            window.bins if self.n_bins else None,
        )

        def send() -> list[Ticket]:
            others = [worker for worker in range(self.workers) if worker != owner] if self.stack.draws else []
            passing = [self.crew.call(worker, "tell", "pass_over", [i]) for worker in others]
            return [*passing, self.crew.call(owner, "refit", i - self._starts[owner], sent, target, weight)]

        marks: Marks | None = self._change(send, is_step=True)[-1]
        return marks

    @property
    def refittable(self) -> Sequence[int]:
        """Those that can be refitted where they are."""
        return self._refittable

    @property
    def needs_replay(self) -> bool:
        """As the stack that was divided does."""
        return self.stack.needs_replay

    def check_weight(self, weight: FloatArray) -> None:
        """As the stack that was divided does."""
        self.stack.check_weight(weight)

    def grow(self, k: int) -> None:
        """Append k fresh learners, on the last worker."""
        last = self.workers - 1
        [facts] = self._change(lambda: [self.crew.call(last, "tell", "grow", [k])])
        before = [i for i in self._refittable if i < self._starts[-1]]
        self._refittable = [*before, *(self._starts[-1] + i for i in facts.refittable)]
        self.n_learners += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns."""
        self._tell("add_features", k)
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs."""
        self._tell("add_outputs", k)
        self.n_outputs += k

    def split_output(self) -> None:
        """Make two outputs of one."""
        self._tell("split_output")
        self.n_outputs = 2

    def keep_average(self, bend: float) -> None:
        """Keep the mean of the parameters from now on."""
        self._tell("keep_average", bend)

    def set_categorical(self, columns: Sequence[int] | IntArray, n_levels: int) -> None:
        """Let columns hold the numbers of levels."""
        self._tell("set_categorical", np.asarray(columns, np.int32), n_levels)

    @property
    def feature_gains(self) -> Any:
        """As trees have it: how much each column has taken off the square loss."""
        if not hasattr(self.stack, "feature_gains"):
            raise AttributeError(f"a {type(self.stack).__name__} has no feature_gains")
        return self.gather().feature_gains  # type: ignore[attr-defined]

    # Coming home.

    def gather(self) -> Stack:
        """The plain stack, with all learners as they are: what one process would have."""
        self._check_whole()
        first, *others = self.crew.results(self.crew.ask_all("fetch"))
        whole: Stack = first.join(others)
        return whole

    def detach(self) -> Cut:
        """What a checkpoint keeps: the number of a cut, and what is known here of the learners."""
        self._check_whole()
        if self._crew is None:
            return Cut(KIND, n_workers=self.workers)
        memory = {name: copy.deepcopy(getattr(self, name)) for name in REMEMBERED}
        return self._crew.detach(KIND, {**memory, "beginning": beginnings.describe(self.stack)})

    def confirm(self, cut: Cut) -> None:
        """Hear that what was detached is kept by a checkpoint on disk: of these cuts the last two stay."""
        if self._crew is not None:
            self._crew.confirm(cut)

    def attach(self, cut: Cut) -> None:
        """Become what was detached; workers are started if there are none.

        Raises
        ------
        ValueError
            If it is no cut of such a stack, of other learners, for another number of workers or of another directory.
        """
        if isinstance(cut, Cut) and cut.kind == KIND and cut.number == 0:  # it had not been opened yet
            self.close()
            self._crew, self._is_restarted, self.n_features = None, True, 0
        else:
            if isinstance(cut, Cut) and cut.kind == KIND:
                beginnings.check_same(cut.memory["beginning"], beginnings.describe(self.stack))
            crew = self._get_crew(is_new=False)
            crew.attach(cut, KIND)
            crew.lease = self._lease = object()
            self.__dict__.update({name: copy.deepcopy(cut.memory[name]) for name in REMEMBERED})
        self._torn, self._marked = "", None

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Stack:
        if self._crew is not None:
            return self.gather().averaged() if self._is_average else self.gather()
        twin = copy.copy(self)
        twin.stack = copy.deepcopy(self.stack, memo)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        if self._crew is not None:
            raise TypeError(
                "a SpreadStack whose workers run cannot be pickled: its learners are there. Use gather() for the plain "
                "stack, or detach() for a checkpoint."
            )
        return {**self.__dict__, "_started": []}


def _looks_at_rows(stack: Stack) -> bool:
    """Whether refits want the rows themselves: those of trees want their bin codes only."""
    if isinstance(stack, ChainStack):
        return any(_looks_at_rows(part) for part in stack.stacks)
    return bool(len(stack.refittable)) and type(stack) is not TreeStack
