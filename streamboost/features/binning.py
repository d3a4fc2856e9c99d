"""From numbers to bin codes: what lets a tree be grown from histograms.

Into :class:`Bins` flow float rows (n, d), with NaN for a missing value; out of it flow cut points, and the
rows as small integers (d, n), one column after the other. Trees remember the cut points, not the codes:
the bins may follow the window of recent rows without any tree noticing. A column of categories, that is of levels
0, 1, 2, ..., has bins of levels instead of cut points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.errors import refused
from streamboost.kernels.binning import encode, place_edges
from streamboost.persistence.array_specs import ArraySpec

SAMPLE = 32  # rows for each bin that place the edges, of 64 bins or more
LEVEL_BINS = 64  # of a categorical column at most: a set of them is the bits of one number


class Bins:
    """The cut points of each column.

    A column of at most ``n_bins`` different values is cut between all of them; any other into bins of about
    equally many rows, where equal values are never parted. In a categorical column the most frequent levels
    have a bin each and the others share one. There are 2 to 254 bins, 64 by default; code ``n_bins`` stands for a
    missing value.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.1], [2.0, np.nan], [4.0, 0.1]])
    >>> bins = Bins(n_bins=8)
    >>> bins.fit(X)
    >>> bins.edges[0, :2]
    array([1.5, 3. ])
    >>> bins.encode(X)
    array([[0, 1, 2],
           [0, 8, 0]], dtype=uint8)

    Three bins for the levels of the first column: one each for the two frequent ones, and one for the rest.

    >>> levels = np.array([[4.0], [2.0], [9.0], [4.0], [7.0], [9.0], [np.nan]])
    >>> bins = Bins(n_bins=3)
    >>> bins.set_categorical([0], n_levels=10)
    >>> bins.fit(levels)
    >>> bins.encode(levels)
    array([[0, 2, 1, 0, 2, 1, 3]], dtype=uint8)
    """

    def __init__(self, n_bins: int = 64) -> None:
        if not isinstance(n_bins, (int, np.integer)) or not 2 <= n_bins <= 254:
            expected = "a whole number from 2 to 254: codes are single bytes"
            raise refused("n_bins", n_bins, f"{expected}. If unsure, leave it out: the default is 64.")
        self.n_bins = int(n_bins)
        self.n_features = 0
        self.edges: FloatArray = np.full((0, self.n_bins - 1), np.inf)  # (d, n_bins - 1), ascending, inf after the last
        self.n_edges: IntArray = np.zeros(0, np.int64)  # (d,), how many of them are cut points
        self.categorical: IntArray = np.zeros(0, np.int32)  # (n_cat,), the columns that hold levels
        self.cat_at: IntArray = np.zeros(0, np.int32)  # (d,), the position of each column among these, or -1
        self.level_bins: NDArray[np.uint8] = np.zeros((0, 0), np.uint8)  # (n_cat, n_levels); others are in other_bin

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be."""
        d, n_cat = self.n_features, len(self.categorical)
        return {
            "edges": ArraySpec("f8", (d, self.n_bins - 1)),
            "n_edges": ArraySpec("i8", (d,), 0, self.n_bins),
            "categorical": ArraySpec("i4", (None,), 0, d),
            "cat_at": ArraySpec("i4", (d,), -1, n_cat),
            "level_bins": ArraySpec("u1", (n_cat, None), 0, self.n_bins),
        }

    @property
    def other_bin(self) -> int:
        """The bin of all levels that have none of their own: the last, or the 64th if there are more."""
        return min(self.n_bins, LEVEL_BINS) - 1

    def set_categorical(self, columns: Sequence[int] | IntArray, n_levels: int) -> None:
        """Let columns hold levels 0, 1, 2, ..., of which the first ``n_levels`` can have a bin of their own.

        Others that were categorical before stay so. Until the next :meth:`fit` the first levels of the new ones
        have the bins. Codes made before hold only where the column was missing.
        """
        joined = joined_columns(self.categorical, columns, n_levels)
        more = len(joined) - len(self.categorical), max(n_levels - self.level_bins.shape[1], 0)
        if more == (0, 0) or len(joined) == 0:
            return
        level_bins = np.pad(self.level_bins, ((0, 0), (0, more[1])), constant_values=self.other_bin)
        first_levels = np.minimum(np.arange(level_bins.shape[1]), self.other_bin).astype(np.uint8)
        self.level_bins = np.vstack([level_bins, np.tile(first_levels, (more[0], 1))])
        self.categorical = joined
        self.cat_at = cat_positions(self.categorical, self.n_features)
        here = self.cat_at >= 0
        self.edges[here], self.n_edges[here] = np.inf, 0

    def fit(self, X: FloatArray) -> None:
        """Place the cut points where the rows ``X`` are; of many rows, an evenly spaced sample decides.

        Levels are counted in all of them.
        """
        if len(self.categorical) and self.categorical.max() >= X.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} columns, expected more than {self.categorical.max()}: that column is categorical. "
                "Pass rows with all columns that set_categorical was told of."
            )
        self._bin_levels(X)
        n, self.n_features = X.shape
        if n > (most := SAMPLE * max(self.n_bins, 64)):
            X = X[np.arange(most) * n // most]
        columns = np.sort(X.T, axis=1)  # (d, n), NaN last
        n_numbers = len(X) - np.isnan(columns).sum(axis=1)
        n_numbers[self.categorical] = 0
        if self.edges.shape[0] != self.n_features:
            self.edges = np.empty((self.n_features, self.n_bins - 1))
            self.n_edges = np.empty(self.n_features, np.int64)
            self.cat_at = cat_positions(self.categorical, self.n_features)
        self.edges[:] = np.inf  # in place: others may be looking on
        place_edges(columns, n_numbers, self.edges, self.n_edges)

    def _bin_levels(self, X: FloatArray) -> None:
        """Give the most frequent levels a bin each, in their order; of equally frequent ones the lower come first."""
        n_levels = self.level_bins.shape[1]
        for j, level_bins in zip(self.categorical, self.level_bins, strict=True):
            levels = X[:, j]
            levels = levels[(levels >= 0) & (levels < n_levels)]
            counts = np.bincount(levels.astype(np.int64))
            frequent = np.argsort(-counts, kind="stable")[: self.other_bin]
            frequent = np.sort(frequent[counts[frequent] > 0])
            level_bins[:] = self.other_bin
            level_bins[frequent] = np.arange(len(frequent))

    def encode(self, X: FloatArray) -> NDArray[np.uint8]:
        """Return the bin codes (d, n) of the rows ``X`` (n, d): code <= b exactly where x <= edges[b].

        Of a categorical column they are the bins of its levels.
        """
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} columns, expected {self.n_features}, as many as these bins have. "
                "Call fit on rows of the new width, or add_features."
            )
        return encode(X, self.edges, self.n_edges, self.cat_at, self.level_bins, self.other_bin)

    def add_features(self, k: int) -> None:
        """Append k columns without cut points: every number there falls into bin 0."""
        self.n_features += k
        self.edges = np.vstack([self.edges, np.full((k, self.n_bins - 1), np.inf)])
        self.n_edges = np.append(self.n_edges, np.zeros(k, np.int64))
        self.cat_at = cat_positions(self.categorical, self.n_features)


def joined_columns(categorical: IntArray, columns: Sequence[int] | IntArray, n_levels: int) -> IntArray:
    """Return the categorical columns with further ones behind them, in the order given."""
    given = np.asarray(columns, dtype=None if len(columns) else np.int32)
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise ValueError(f"columns is {columns!r}, expected the numbers of columns, counted from 0: [0, 3], say.")
    if not isinstance(n_levels, (int, np.integer)) or n_levels < 1:
        expected = "a whole number of at least 1: how many levels to tell apart"
        raise refused("n_levels", n_levels, f"{expected}. For the codes of an Encoder pass its max_categories + 1.")
    return np.array(list(dict.fromkeys([*categorical.tolist(), *given.tolist()])), np.int32)


def cat_positions(categorical: IntArray, n_features: int) -> IntArray:
    """Return the position of each column among the categorical ones, or -1, (d,)."""
    cat_at = np.full(n_features, -1, np.int32)
    known = categorical < n_features
    cat_at[categorical[known]] = np.flatnonzero(known)
    return cat_at
