"""Generated rows, as many as wanted or without end; row k is the same however one gets there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamboost.datasets import friedman
from streamboost.sources.base import Batch, Piece, Position, Source, check_row_number, rebatch

BLOCK = 4096  # rows made at a time: part of what a seed means


class FriedmanSource(Source):
    """Friedman's function of ten uniform columns, see :func:`streamboost.datasets.friedman`; the target is ``y``.

    A position is a row number.

    Parameters
    ----------
    total_rows : int, optional
        None, the default, for rows without end.
    noise : float
        The standard deviation of the noise; 1 by default.
    drift : int or sequence of int, optional
        Rows from which on the columns change their parts; None by default.
    seed : int
        0 by default.

    Examples
    --------
    >>> batch = next(FriedmanSource().read(position=10**9, n_rows=2))
    >>> batch.table.num_columns, batch.position
    (11, 1000000002)
    """

    def __init__(
        self,
        total_rows: int | None = None,
        *,
        noise: float = 1.0,
        drift: int | Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        if total_rows is not None and (not isinstance(total_rows, int) or total_rows < 0):
            way_out = "For rows without end pass None."
            raise ValueError(f"total_rows is {total_rows!r}, expected a whole number of at least 0. {way_out}")
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"seed is {seed!r}, expected a whole number of at least 0. If unsure, leave it out.")
        friedman(0, noise=noise, drift=drift)  # refuses what it cannot use
        self.total_rows, self.noise, self.seed = total_rows, noise, seed
        self.drift = [] if drift is None else sorted(int(row) for row in np.atleast_1d(drift))

    def progress(self, position: Position) -> float | None:
        """Return the share of rows before ``position``; None of rows without end."""
        return None if self.total_rows is None else (position or 0) / max(self.total_rows, 1)

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Yield the rows from number ``position`` on."""
        total = math.inf if self.total_rows is None else self.total_rows
        return rebatch(self._pieces(check_row_number(position, total, "the stream"), total), n_rows)

    @property
    def schema(self) -> Any:
        """Return names and types of the columns."""
        return self._block(0).schema

    def _pieces(self, row: int, total: float) -> Iterator[Piece]:
        while row < total:
            block, skipped = divmod(row, BLOCK)
            table = self._block(block * BLOCK).slice(skipped, int(min(BLOCK - skipped, total - row)))
            yield Piece(table, row.__add__)
            row += table.num_rows

    def _block(self, start: int) -> Any:
        """Return the ``BLOCK`` rows from ``start`` on."""
        changes = [0] * sum(row <= start for row in self.drift) + [row - start for row in self.drift if row > start]
        seed = int(np.random.SeedSequence([self.seed, 1 + start // BLOCK]).generate_state(1, np.uint64)[0])
        made = friedman(BLOCK, noise=self.noise, drift=changes or None, seed=seed)
        return pa.table([*made.X.T, made.y], names=[*made.names, "y"])
