"""Who learns what: the rows of a chunk, divided among shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamboost.arrays import IntArray
from streamboost.cluster.hashing import workers_of
from streamboost.cluster.key_rows import split as split_by_key

HASH = "hash:"


def check_split(split: str) -> None:
    """Refuse what is no way to divide rows."""
    if split not in ("turns", "chunks") and not (isinstance(split, str) and split.startswith(HASH)):
        raise ValueError(f"split is {split!r}, expected 'turns', 'chunks' or 'hash:COLUMN'. If unsure, leave it out.")


def divide(split: str, X: Any, n: int, k: int, *, n_rows: int, n_chunks: int) -> list[IntArray]:
    """The rows of a chunk that each of k shards learns, after so many rows and chunks before it.

    Examples
    --------
    >>> [rows.tolist() for rows in divide("turns", None, 4, 3, n_rows=1, n_chunks=1)]
    [[2], [0, 3], [1]]
    >>> [rows.tolist() for rows in divide("chunks", None, 4, 3, n_rows=1, n_chunks=1)]
    [[], [0, 1, 2, 3], []]
    """
    whose: IntArray
    if split == "turns":
        whose = (n_rows + np.arange(n)) % k
    elif split == "chunks":
        whose = np.full(n, n_chunks % k)
    else:
        _, tokens, codes = split_by_key(X, split.removeprefix(HASH))
        whose = workers_of(tokens, k)[codes]
    return [np.flatnonzero(whose == shard) for shard in range(k)]
