"""A tree that is grown in slices: some nodes now, some later.

Where rows, codes and targets stay what they are, it comes out the same whenever the slices are worked on.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.features.binning import Bins
from streamboost.kernels import tree_growing
from streamboost.kernels.carrying import bin_levels, take_codes
from streamboost.stacks.tree import TreeStack


class GrowingTree:
    """The first tree of a copy of ``blank``, grown from some of the rows coded.

    ``codes`` (d, room) and ``X`` (room, d) are of all rows; ``target`` (rows, m) and ``weight`` (rows,) of those named.
    Where there are more levels than a set can tell apart, those that ask for like targets share a bin: so trees have
    bins of their own.
    """

    def __init__(
        self, blank: TreeStack, codes: NDArray[np.uint8], X: FloatArray, rows: NDArray[np.uint32],
        target: FloatArray, weight: FloatArray,
    ) -> None:  # fmt: skip
        self.stack = copy.deepcopy(blank)
        self.columns = self.stack.draw_columns()
        numbers = np.arange(self.stack.n_features)[self.columns]
        self.codes = take_codes(codes, numbers, rows)
        for at in np.flatnonzero(self.stack.cat_at[numbers] >= 0):
            level_bins = self.stack.level_bins[0, self.stack.cat_at[numbers[at]]]
            bin_levels(
                X[rows, numbers[at]], target, weight, self.stack.cat_l2, self.stack.n_bins, self.stack.other_bin,
                level_bins, self.codes[at],
            )  # fmt: skip
        self.cut, self.leaf = np.empty(self.stack.feature.shape[1], np.uint8), np.empty(len(rows), np.uint16)
        self.growth, self.is_level, self.signs = self.stack.how_to_grow(self.columns)
        self.growing = tree_growing.begin_growing(
            self.codes, np.ascontiguousarray(target), np.ascontiguousarray(weight), self.growth,
            self.stack.tree(0, self.cut),
        )  # fmt: skip

    def go_on(self, share: float) -> bool:
        """Go on until this share of the work is done, or all if 1; return whether the tree is grown."""
        until = int(share * len(self.leaf) * self.growth.depth) if share < 1.0 else tree_growing.NEVER
        is_grown: bool = tree_growing.go_on_growing(
            self.growing, self.codes, self.stack.n_outputs, self.growth, self.is_level, self.signs,
            self.stack.tree(0, self.cut), self.leaf, until,
        )  # fmt: skip
        return is_grown

    def finish(self, bins: Bins) -> tuple[TreeStack, NDArray[np.uint8]]:
        """Grow the rest; return the tree, its splits at the cut points of ``bins``, and the last bins to go left."""
        self.go_on(1.0)
        self.stack.keep_splits(0, self.cut, self.columns, bins)
        return self.stack, self.cut
