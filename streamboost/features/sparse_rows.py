"""Rows of a sparse matrix, made dense a block at a time: learners and memories hold dense rows.

Absent entries are zeros, as everywhere in SciPy; a missing value is a NaN that is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamboost._types import FloatArray

BLOCK_BYTES = 2**26  # of dense rows at a time
WIDEST = 4096  # columns: memories of the default lengths then take about two gigabytes


def is_sparse(X: Any) -> bool:
    """Whether rows are a sparse matrix or array, of SciPy or alike."""
    return hasattr(X, "tocsr")


class SparseRows:
    """Checked rows of a sparse matrix, (n, d); a slice that fits in a block comes as an array."""

    def __init__(self, X: Any, *, copy: bool = False) -> None:
        if len(X.shape) != 2:
            raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead: reshape X to (rows, columns).")
        if X.shape[1] > WIDEST:
            raise ValueError(
                f"X is sparse and has {X.shape[1]} columns, expected at most {WIDEST}: a model keeps its rows dense. "
                "Make fewer columns (max_categories of a OneHotEncoder, max_features of a vectorizer, a TruncatedSVD), "
                "leave text columns to the model, or, if there is memory, pass dense rows (sparse_output=False)."
            )
        if X.dtype.kind == "c":
            raise ValueError("Complex data not supported: X is complex. Pass its real and imaginary parts as columns.")
        self._matrix = X.tocsr(copy=copy).astype(np.float64, copy=False)
        if copy:
            self._matrix.sum_duplicates()
        self.shape: tuple[int, int] = X.shape

    @property
    def infinite(self) -> tuple[int, int, float] | None:
        """The row, the column and the sign of the first infinite value, as ±inf; None if there is none."""
        matrix = self._matrix
        places = np.flatnonzero(np.isinf(matrix.data))
        if not len(places):
            return None
        row = np.searchsorted(matrix.indptr, places[0], side="right") - 1
        return int(row), int(matrix.indices[places[0]]), float(matrix.data[places[0]])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> FloatArray | SparseRows:
        found = self._matrix[rows]
        return found.toarray() if found.shape[0] <= self.block_rows() else SparseRows(found)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        return np.asarray(self._matrix.toarray(), dtype)

    def reordered(self, columns: Any) -> SparseRows:
        """The same rows with their columns in this order."""
        return SparseRows(self._matrix[:, columns])

    def block_rows(self, step: int = 1) -> int:
        """How many rows make a block, a multiple of ``step``."""
        fit = BLOCK_BYTES // (8 * max(self.shape[1], 1))
        return max(fit // step, 1) * step

    def blocks(self, step: int = 1) -> Iterator[tuple[slice, FloatArray]]:
        """Yield places and dense rows of one block after another; of no rows, one empty block."""
        size = self.block_rows(step)
        for start in range(0, max(len(self), 1), size):
            rows = slice(start, start + size)
            yield rows, self._matrix[rows].toarray()
