"""The loops over rows: the plain one, and compiled ones for the models they know. One place chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamboost.boosting.loops.nets import NetLoop
from streamboost.boosting.loops.plain import PlainLoop
from streamboost.boosting.loops.trees import TreeLoop

if TYPE_CHECKING:
    from streamboost.boosting.model import BoostedModel

PLAIN = PlainLoop()
COMPILED: tuple[PlainLoop, ...] = (TreeLoop(), NetLoop())


def choose(model: BoostedModel) -> PlainLoop:
    """Return the compiled loop that knows everything a model is made of, else the plain one."""
    for loop in COMPILED:
        if loop.suits(model):
            return loop
    return PLAIN
