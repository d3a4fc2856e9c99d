"""The loops behind :class:`streamboost.features.binning.Bins`: Numba functions on plain arrays."""

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.compiling import compiled, compiled_inside


@compiled_inside
def midpoint(low: float, high: float) -> float:
    """Return a number t with low <= t < high, halfway where the floats allow it."""
    middle = 0.5 * low + 0.5 * high  # halved first: the sum of two huge numbers would overflow
    if low <= middle < high:
        return middle
    return low


@compiled
def place_edges(columns: FloatArray, n_numbers: IntArray, edges: FloatArray, n_edges: IntArray) -> None:
    """Write the cut points of sorted ``columns`` (d, n), of which the first ``n_numbers`` are numbers.

    A column of few values is cut between all of them. Otherwise each bin takes the whole runs of equal
    values that bring it nearest to its share of the rows still to be placed, so that one frequent value
    costs one bin and leaves the others to the rest.
    """
    n_bins = edges.shape[1] + 1
    for j in range(columns.shape[0]):
        column = columns[j]
        n = n_numbers[j]
        n_values = 1
        for s in range(1, n):
            n_values += column[s - 1] < column[s]
        cut_everywhere = n_values <= n_bins
        n_rest, n_inside, n_cuts = n, 0, 0
        for s in range(1, n):
            n_inside += 1
            if column[s - 1] == column[s] or n_cuts == n_bins - 1:
                continue
            n_free = n_bins - n_cuts
            if cut_everywhere or (2 * n_inside + 1) * n_free > 2 * n_rest:
                edges[j, n_cuts] = midpoint(column[s - 1], column[s])
                n_cuts += 1
                n_rest -= n_inside
                n_inside = 0
        n_edges[j] = n_cuts


@compiled
def encode(
    X: FloatArray, edges: FloatArray, n_edges: IntArray, cat_at: IntArray, level_bins: NDArray[np.uint8], other: int
) -> NDArray[np.uint8]:
    """Count, for each number of ``X`` (n, d), the edges of its column strictly below it; look up levels; (d, n)."""
    n, d = X.shape
    missing, n_levels = edges.shape[1] + 1, level_bins.shape[1]
    codes = np.empty((d, n), np.uint8)
    for s in range(n):
        for j in range(d):
            x = X[s, j]
            below = 0
            for b in range(n_edges[j]):  # all of them: vectorised, five times as fast as halving at 64 bins
                below += edges[j, b] < x
            if cat_at[j] >= 0:
                below = level_bins[cat_at[j], int(x)] if 0.0 <= x < n_levels else other
            codes[j, s] = missing if x != x else below
    return codes
