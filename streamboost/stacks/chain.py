"""Stacks of different kinds, one after another, as one stack."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from streamboost.arrays import FloatArray, IntArray
from streamboost.stacks.base import Marks, Stack, Window


class ChainStack(Stack):
    """Several stacks in one booster: the learners of the first come first, then those of the second, …

    Since each learner follows the gradient the ones before it left, the order matters: a chain of linear
    learners and trees lets the trees learn what no line explains.

    Each part keeps its nature: those that can be refitted are, the others learn row by row. New learners
    (:meth:`grow`) join the last part.

    Parameters
    ----------
    stacks : sequence of Stack
        The parts; a chain may be one of them.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost.bases import Constant
    >>> from streamboost.boosting import Booster
    >>> from streamboost.descents import GradientDescent
    >>> from streamboost.losses import Squared
    >>> from streamboost.stacks.linear import LinearStack
    >>> from streamboost.stacks.tree import TreeStack
    >>> X = np.random.default_rng(0).uniform(size=(1000, 2))
    >>> y = 5 * X[:, 0] + np.sin(6 * X[:, 1])
    >>> stack = ChainStack([LinearStack(5), TreeStack(5, max_depth=3)])
    >>> before = Booster(Squared(), GradientDescent(0.5), stack, base=Constant(0)).learn(X, y)
    >>> float(np.sqrt(np.mean((before[-500:, 0] - y[-500:]) ** 2)).round(1))
    0.1
    """

    _starts: tuple[int, ...] = ()  # of a part: the first learner of each stack of the whole chain,
    _number: int = 0  # and which of these stacks is the first here

    def __init__(self, stacks: Sequence[Stack]) -> None:
        self.stacks = list(stacks)
        if not self.stacks:
            raise ValueError("stacks is empty, expected at least one stack. Write ChainStack([TreeStack(10)]).")
        for stack in self.stacks:
            if not isinstance(stack, Stack):
                raise TypeError(f"stacks holds {stack!r}, expected stacks only. To make a stack of a model use wrap.")
        _refuse_twins(self)
        super().__init__(sum(stack.n_learners for stack in self.stacks))
        self.n_bins = _common_bins(self.stacks)
        self.averages = any(stack.averages for stack in self.stacks)

    def _open(self, seed: int) -> None:
        for number, stack in enumerate(self.stacks):
            stack.open(self.n_features, self.n_outputs, part_seed(seed, self._number + number))

    def parts(self) -> Iterator[tuple[Stack, slice]]:
        """Each stack, and which of the chain's learners are its own."""
        start = 0
        for stack in self.stacks:
            yield stack, slice(start, start + stack.n_learners)
            start += stack.n_learners

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m)."""
        return self.predict_first(X, self.n_learners)

    def predict_first(self, X: FloatArray, k: int) -> FloatArray:
        """What the first k learners say, (n, k, m); parts behind them are not asked."""
        said = np.empty((len(X), k, self.n_outputs))
        for stack, own in self.parts():
            if own.start >= k:
                break
            try:
                said[:, own] = stack.predict_first(X, min(own.stop, k) - own.start)
            except Exception as error:
                place = self.offset + own.start - stack.offset
                error.add_note(f"(in a chain: learner 0 of this {type(stack).__name__} is the chain's {place})")
                raise
        return said

    @property
    def needs_replay(self) -> bool:
        """If any part does."""
        return any(stack.needs_replay for stack in self.stacks)

    def check_weight(self, weight: FloatArray) -> None:
        """Every part has to make use of them."""
        for stack in self.stacks:
            stack.check_weight(weight)

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Let each part learn its share of the targets."""
        for stack, own in self.parts():
            # made whole: a kernel would be compiled once more for the layout of a slice
            stack.learn(X, np.ascontiguousarray(targets[:, own]), weight)

    def learn_batch(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Let each part learn its share of the targets of rows that share the present hypotheses."""
        for stack, own in self.parts():
            stack.learn_batch(X, np.ascontiguousarray(targets[:, own]), weight)

    def keep_average(self, bend: float) -> None:
        """Let the parts whose parameters can be averaged do so; the others go on saying the last."""
        for stack in self.stacks:
            if stack.averages:
                stack.keep_average(bend)

    def averaged(self) -> ChainStack:
        """The chain with the mean of their parameters in these parts."""
        twin = copy.copy(self)
        twin.stacks = [stack.averaged() if stack.averages else stack for stack in self.stacks]
        return twin

    def set_categorical(self, columns: Sequence[int] | IntArray, n_levels: int) -> None:
        """Tell every part; those that do not care take levels for numbers."""
        for stack in self.stacks:
            stack.set_categorical(columns, n_levels)
            if len(stack.categorical):
                self.categorical = stack.categorical

    def grow(self, k: int) -> None:
        """Append k fresh learners to the last part."""
        self.stacks[-1].grow(k)
        self.n_learners += k

    def add_features(self, k: int) -> None:
        """Make room for k more columns in every part."""
        for stack in self.stacks:
            stack.add_features(k)
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs in every part."""
        for stack in self.stacks:
            stack.add_outputs(k)
        self.n_outputs += k

    @property
    def refittable(self) -> Sequence[int]:
        """The learners that their part can refit, by their place in the chain."""
        return [own.start + i for stack, own in self.parts() for i in stack.refittable]

    def refit(self, i: int, window: Window, target: FloatArray, weight: FloatArray) -> Marks | None:
        """Let the part that learner i belongs to fit it afresh."""
        for stack, own in self.parts():
            if i < own.stop:
                return stack.refit(i - own.start, window, target, weight)
        raise IndexError(f"i is {i}, but the chain has {self.n_learners} learners, counted from 0.")

    def marks(self, X: FloatArray) -> Marks | None:
        """What to remember of each row, (n, N), if every part keeps marks."""
        kept = []
        for stack in self.stacks:
            marks = stack.marks(X)
            if marks is None:
                return None
            kept.append(marks)
        return np.concatenate(kept, axis=1)

    def recall(self, marks: Marks) -> FloatArray:
        """What the first learners say, (n, k, m), of rows remembered by their marks (n, k)."""
        said = np.empty((*marks.shape, self.n_outputs))
        for stack, own in self.parts():
            if own.start < marks.shape[1]:
                said[:, own] = stack.recall(marks[:, own])
        return said

    def part(self, start: int, stop: int) -> ChainStack:
        """Learners start, …, stop - 1 as a chain of their own, of the stacks they belong to, or of parts of these."""
        part = copy.copy(self)
        overlaps = [(max(start, own.start), min(stop, own.stop), own.start, stack) for stack, own in self.parts()]
        part.stacks = [stack.part(low - at, high - at) for low, high, at, stack in overlaps if low < high]
        part.n_learners = stop - start
        part.offset = self.offset + start
        part._starts = self._starts or tuple(own.start for _, own in self.parts())
        part._number = bisect_right(part._starts, part.offset) - 1
        part._count_parts()
        return part

    def join(self, parts: Sequence[Stack]) -> ChainStack:
        """The chain of the learners of this part and of the parts that come after it."""
        whole = copy.copy(self)
        whole.stacks = copy.deepcopy(self.stacks)
        for part in parts:
            assert isinstance(part, ChainStack)
            head, *rest = part.stacks
            if head.offset:  # the rest of a stack that was cut in two
                whole.stacks[-1] = whole.stacks[-1].join([head])
            else:
                rest = [head, *rest]
            whole.stacks += copy.deepcopy(rest)
        whole.n_learners = sum(stack.n_learners for stack in whole.stacks)
        whole._count_parts()
        if not whole.offset:
            for name in ("offset", "_starts", "_number"):
                whole.__dict__.pop(name, None)
        return whole

    def _count_parts(self) -> None:
        """Note what follows from the parts there are."""
        self.n_bins = _common_bins(self.stacks)
        self.averages = any(stack.averages for stack in self.stacks)
        self.__dict__.pop("categorical", None)
        for stack in self.stacks:
            if len(stack.categorical):
                self.categorical = stack.categorical

    @property
    def draws(self) -> bool:
        """If any part does."""
        return any(stack.draws for stack in self.stacks)

    def pass_over(self, i: int) -> None:
        """Tell the stack that learner i of the whole belongs to, if some of it is here."""
        number = bisect_right(self._starts, i) - 1
        if 0 <= number - self._number < len(self.stacks):
            self.stacks[number - self._number].pass_over(i - self._starts[number])


def part_seed(seed: int, number: int) -> int:
    """Return the seed of one part: parts of the same kind should not repeat each other."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])


def _leaves(stack: Stack) -> Iterator[Stack]:
    """The chain's stacks, those of chains within it too."""
    if isinstance(stack, ChainStack):
        for part in stack.stacks:
            yield from _leaves(part)
    else:
        yield stack


def _refuse_twins(chain: ChainStack) -> None:
    leaves = list(_leaves(chain))
    for place, stack in enumerate(leaves):
        if any(stack is other for other in leaves[:place]):
            raise ValueError(
                f"stacks holds the same {type(stack).__name__} twice, expected different ones: it would learn "
                "for two places at once. Make a second one, with copy.deepcopy for example."
            )


def _common_bins(stacks: Sequence[Stack]) -> int:
    """How many bin codes the parts that want any want."""
    wanted = {stack.n_bins for stack in stacks if stack.n_bins}
    if len(wanted) > 1:
        raise ValueError(
            f"stacks want {' and '.join(map(str, sorted(wanted)))} bins, expected one number: the rows are binned once "
            "for all. Give them the same n_bins."
        )
    return max(wanted, default=0)
