"""From numbers to bin codes: what lets a tree be grown from histograms.

Into :class:`Bins` flow float rows (n, d), with NaN for a missing value; out of it flow cut points, and the
rows as small integers (d, n), one column after the other. Trees remember the cut points, not the codes:
the bins may follow the window of recent rows without any tree noticing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import FloatArray, IntArray
from streamboost.binning_kernels import encode, place_edges

SAMPLE = 2048  # rows that place the edges: 32 for each of 64 bins


class Bins:
    """The cut points of each column.

    A column of at most ``n_bins`` different values is cut between all of them; any other into bins of about
    equally many rows, where equal values are never parted.

    Parameters
    ----------
    n_bins : int, default 64
        How many bins a column has at most, 2 to 254. Code ``n_bins`` stands for a missing value.

    Attributes
    ----------
    n_features : int
        d, the number of columns.
    edges : ndarray of shape (d, n_bins - 1)
        The cut points of each column in ascending order, filled up with infinity.
    n_edges : ndarray of shape (d,)
        How many of them are cut points.

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
    """

    def __init__(self, n_bins: int = 64) -> None:
        if not isinstance(n_bins, (int, np.integer)) or not 2 <= n_bins <= 254:
            raise ValueError(
                f"n_bins is {n_bins!r}, expected a whole number from 2 to 254: codes are single bytes. "
                "If unsure, leave it out: the default is 64."
            )
        self.n_bins = int(n_bins)
        self.n_features = 0
        self.edges: FloatArray = np.full((0, self.n_bins - 1), np.inf)  # (d, n_bins - 1)
        self.n_edges: IntArray = np.zeros(0, np.int64)  # (d,)

    def fit(self, X: FloatArray) -> None:
        """Place the cut points where the rows ``X`` are; of many rows, an evenly spaced sample decides."""
        n, self.n_features = X.shape
        if n > SAMPLE:
            X = X[np.arange(SAMPLE) * n // SAMPLE]
        columns = np.sort(X.T, axis=1)  # (d, n), NaN last
        n_numbers = len(X) - np.isnan(columns).sum(axis=1)
        self.edges = np.full((self.n_features, self.n_bins - 1), np.inf)
        self.n_edges = np.zeros(self.n_features, np.int64)
        place_edges(columns, n_numbers, self.edges, self.n_edges)

    def encode(self, X: FloatArray) -> NDArray[np.uint8]:
        """Return the bin codes (d, n) of the rows ``X`` (n, d): code <= b exactly where x <= edges[b]."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} columns, expected {self.n_features}, as many as these bins have. "
                "Call fit on rows of the new width, or add_features."
            )
        return encode(X, self.edges, self.n_edges)

    def add_features(self, k: int) -> None:
        """Append k columns without cut points: every number there falls into bin 0."""
        self.n_features += k
        self.edges = np.vstack([self.edges, np.full((k, self.n_bins - 1), np.inf)])
        self.n_edges = np.append(self.n_edges, np.zeros(k, np.int64))
