"""Stacks: N weak learners of one kind, held together."""

from streamboost.stacks.base import Stack, Window
from streamboost.stacks.conv import ConvStack
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.neural import TwoLayerStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.torch_stack import TorchStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack, wrap

__all__ = [
    "BatchStack", "ConvStack", "FunctionStack", "LinearStack", "PartialFitStack", "RiverStack", "Stack", "TorchStack",
    "TreeStack", "TwoLayerStack", "Window", "wrap",
]  # fmt: skip
