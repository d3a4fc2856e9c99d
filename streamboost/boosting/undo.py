"""What a call that learns has to undo if it fails: the model as it was, at the cost of what the call may change.

The rows in memory are most of a model, and a chunk is written over a few of them. So these arrays are not copied: of
each, the places that the coming rows will take are. Everything else is small beside them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamboost.boosting.loops import PLAIN, choose
from streamboost.kernels.layout import AT, FILL, WAITED, WARM
from streamboost.persistence.registry import name_of
from streamboost.replay import SOONEST_TURN, Replay
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.booster import Booster
    from streamboost.boosting.model import BoostedModel

ATOMS = {type(None), bool, int, float, str, bytes}
ROW_ARRAYS = ("_X", "_y", "_weight", "_recorded")  # of a replay, changed only where rows come in
REFITTED_ARRAYS = ("_leaf_ids", "_carried")  # changed by refits, too


class Undo:
    """A booster or a committee as it is now, for :meth:`restore`.

    Parameters
    ----------
    model : Booster or Committee
        That is about to learn.
    n_rows : int
        How many rows come.
    is_known : bool
        Whether they bring no new column, category or class, so that no array changes its shape.
    """

    def __init__(self, model: BoostedModel, n_rows: int, *, is_known: bool = True) -> None:
        self.model = model
        self.places: list[tuple[NDArray[Any], Any, NDArray[Any]]] = []  # arrays, where rows come, and what is there
        shared: dict[int, Any] = {}  # what stands for things in the copy, by their ids
        for booster in model.boosters if is_known else ():
            if not _may_wake(model, booster, n_rows):
                self._spare(booster, n_rows, shared)
        self.state = {name: _copied(value, shared) for name, value in model.__dict__.items()}

    def _spare(self, booster: Booster, n_rows: int, shared: dict[int, Any]) -> None:
        """Keep the places of a replay that rows will take, in place of whole arrays; and trees whose turn may come."""
        replay, stack = booster.replay, booster.stack
        if replay is None or not hasattr(replay, "counts") or n_rows >= len(replay._X):
            return
        where, turns = (int(replay.counts[AT]) + np.arange(n_rows)) % len(replay._X), n_turns(booster, replay, n_rows)
        names = [
            *ROW_ARRAYS,
            *(() if turns else REFITTED_ARRAYS),
            *(() if _may_encode(booster, turns) else ("_codes",)),
        ]
        for name in names:
            self._keep(getattr(replay, name), (slice(None), where) if name == "_codes" else where, shared)
        if booster.rests and isinstance(stack, TreeStack) and turns < stack.n_learners:
            learners = (replay.turn + np.arange(turns)) % stack.n_learners
            for name in stack.array_names:
                self._keep(getattr(stack, name), learners, shared)

    def _keep(self, array: NDArray[Any] | None, at: Any, shared: dict[int, Any]) -> None:
        if array is not None:
            self.places.append((array, at, array[at]))
            shared[id(array)] = array

    def restore(self) -> None:
        """Go back."""
        for array, where, before in self.places:
            array[where] = before
        self.model.__dict__.clear()
        self.model.__dict__.update(self.state)
        self.model._buffers = None


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """Return a deep copy, at a third of the cost of :func:`copy.deepcopy` for objects of ours."""
    cls = type(value)
    if cls in ATOMS:
        return value
    if id(value) in copies:
        return copies[id(value)]
    if cls is np.ndarray and not value.dtype.hasobject:
        twin: Any = value.copy()
    elif isinstance(value, tuple) and ATOMS.issuperset(map(type, value)):
        return value
    elif cls is list:
        twin = [_copied(item, copies) for item in value]
    elif cls is dict:
        twin = {key: _copied(item, copies) for key, item in value.items()}
    elif name_of(cls) is not None and cls.__bases__ != (tuple,):
        twin = object.__new__(cls)
        attributes = twin.__dict__
        attributes |= value.__dict__
        for name, item in attributes.items():
            if type(item) not in ATOMS:
                attributes[name] = _copied(item, copies)
    else:
        twin = copy.deepcopy(value, copies)
    copies[id(value)] = twin
    return twin


def is_needed(model: BoostedModel, n_rows: int) -> bool:
    """Return whether a failure could leave known rows half learned: a compiled loop refuses a single row as a whole."""
    return n_rows > 1 or not model.boosters[0].n_rows or choose(model) is PLAIN


def _may_wake(model: BoostedModel, booster: Booster, n_rows: int) -> bool:
    """Return whether a booster that sleeps may begin to be fitted before so many more rows have come."""
    growth = model.growth
    return booster.sleeps and (growth is None or growth.rest_until <= booster.n_rows + n_rows)


def n_turns(booster: Booster, replay: Replay, n_rows: int) -> int:
    """Return how many learners may be refitted, at most, before so many more rows have come; 0 if none."""
    waited = int(replay.counts[WAITED]) + n_rows
    if replay.sleeps:
        return 0
    if replay.is_carried:
        return waited // SOONEST_TURN if booster.refit is None else -(-waited // booster.refit.interval)
    if not replay.counts[WARM]:
        return booster.stack.n_learners if int(replay.counts[FILL]) + n_rows >= replay.warmup else 0
    return waited // replay.interval


def _may_encode(booster: Booster, turns: int) -> bool:
    """Return whether rows held may be coded anew within so many turns."""
    replay, refit = booster.replay, booster.refit
    assert replay is not None
    if not replay.is_carried:
        return turns > 0
    if replay.sleeps:
        return False
    return refit is None or refit.encodes or replay.turn + turns >= booster.stack.n_learners
