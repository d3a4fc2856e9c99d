"""Stacks: N weak learners of one kind, held together."""

from streamboost.stacks.base import Stack, Window
from streamboost.stacks.chain import ChainStack
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack, wrap

__all__ = [
    "BatchStack",
    "ChainStack",
    "FunctionStack",
    "LinearStack",
    "PartialFitStack",
    "RiverStack",
    "Stack",
    "TreeStack",
    "Window",
    "wrap",
]
