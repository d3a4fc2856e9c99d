"""Generated rows, as many as wanted or without end; row k is the same however one gets there."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamboost.datasets import friedman
from streamboost.sources.base import Batch, Piece, Position, Source, check_n_rows, check_row_number, in_batches

BLOCK = 4096  # rows made at a time: part of what a seed means


class SyntheticSource(Source):
    """Blocks of generated rows; a position is a row number. Beneath it a block says what its rows are."""

    def __init__(self, total_rows: int | None, seed: int) -> None:
        if total_rows is not None and (not isinstance(total_rows, int) or total_rows < 0):
            raise ValueError(
                f"total_rows is {total_rows!r}, expected a whole number of at least 0. For rows without end pass None."
            )
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"seed is {seed!r}, expected a whole number of at least 0. If unsure, leave it out.")
        self.total_rows = total_rows
        self.seed = seed

    def share(self, position: Position) -> float | None:
        """How many of the rows lie before ``position``; None of those without end."""
        return None if self.total_rows is None else (position or 0) / max(self.total_rows, 1)

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """The rows from number ``position`` on."""
        check_n_rows(n_rows)
        total = math.inf if self.total_rows is None else self.total_rows
        return in_batches(self._pieces(check_row_number(position, total, "the stream"), total), n_rows)

    @property
    def schema(self) -> Any:
        """Names and types of the columns."""
        return self._block(0).schema

    def _pieces(self, row: int, total: float) -> Iterator[Piece]:
        while row < total:
            block, skipped = divmod(row, BLOCK)
            table = self._block(block * BLOCK).slice(skipped, int(min(BLOCK - skipped, total - row)))
            yield Piece(table, row.__add__)
            row += table.num_rows

    @abstractmethod
    def _block(self, start: int) -> Any:
        """The table of the ``BLOCK`` rows from ``start`` on."""

    def _seed_of(self, start: int) -> int:
        return int(np.random.SeedSequence([self.seed, 1 + start // BLOCK]).generate_state(1, np.uint64)[0])


class FriedmanSource(SyntheticSource):
    """Friedman's function of ten uniform columns, see :func:`streamboost.datasets.friedman`; the target is ``y``.

    Parameters
    ----------
    total_rows : int, optional
        None for rows without end.
    noise : float
        The standard deviation of the noise.
    drift : int or sequence of int, optional
        Rows from which on the columns change their parts.
    seed : int

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
        super().__init__(total_rows, seed)
        friedman(0, noise=noise, drift=drift)  # refuses what it cannot use
        self.noise = noise
        self.drift = [] if drift is None else sorted(int(row) for row in np.atleast_1d(drift))

    def _block(self, start: int) -> Any:
        changes = [0] * sum(row <= start for row in self.drift) + [row - start for row in self.drift if row > start]
        made = friedman(BLOCK, noise=self.noise, drift=changes or None, seed=self._seed_of(start))
        return pa.table([*made.X.T, made.y], names=[*made.names, "y"])


class HyperplaneSource(SyntheticSource):
    """Uniform rows on two sides of a hyperplane through the middle of the cube; the target is ``y``, 0 or 1.

    The plane may turn at a pace that needs no last row.

    Parameters
    ----------
    total_rows : int, optional
        None for rows without end.
    n_features : int
        Columns, at least 2.
    rows_per_turn : int, optional
        After how many rows the plane has turned once around; half of them swap the classes. None: it stands still.
    noise : float
        The fraction of rows, in [0, 1], whose class is swapped.
    seed : int

    Examples
    --------
    >>> first = next(HyperplaneSource(5000, n_features=2).read(n_rows=1000))
    >>> print(f"{np.mean(first.table['y']):.1f} of the rows are of class 1")
    0.5 of the rows are of class 1
    """

    def __init__(
        self,
        total_rows: int | None = None,
        *,
        n_features: int = 10,
        rows_per_turn: int | None = None,
        noise: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(total_rows, seed)
        if not isinstance(n_features, int) or n_features < 2:
            raise ValueError(f"n_features is {n_features!r}, expected a whole number of at least 2.")
        if rows_per_turn is not None and (not isinstance(rows_per_turn, int) or rows_per_turn < 1):
            raise ValueError(
                f"rows_per_turn is {rows_per_turn!r}, expected a whole number of at least 1. "
                "For a plane that stands still pass None."
            )
        if not 0 <= noise <= 1:
            raise ValueError(f"noise is {noise!r}, expected a fraction in [0, 1]. For no noise pass 0.")
        self.n_features = n_features
        self.rows_per_turn = rows_per_turn
        self.noise = noise
        rng = np.random.default_rng([seed, 0])
        self._plane, _ = np.linalg.qr(rng.standard_normal((n_features, 2)))  # the normal turns within it, (d, 2)

    def _block(self, start: int) -> Any:
        rng = np.random.default_rng(self._seed_of(start))
        X = rng.uniform(size=(BLOCK, self.n_features))
        rows = np.arange(start, start + BLOCK)
        angle = np.zeros(BLOCK) if self.rows_per_turn is None else 2 * np.pi * (rows / self.rows_per_turn % 1)
        normal = np.column_stack([np.cos(angle), np.sin(angle)]) @ self._plane.T  # (n, d)
        is_above = np.einsum("nd,nd->n", X - 0.5, normal) > 0
        y = (is_above ^ (rng.uniform(size=BLOCK) < self.noise)).astype(int)
        return pa.table([*X.T, y], names=[*(f"x{j}" for j in range(self.n_features)), "y"])
