"""Long arrays cut into tiles, so that a small change of an array changes a few tiles of it.

The windows of a long memory are rings: between two checkpoints some rows are written over, in all columns; and when a
learner is refitted, one column of its leaves is written anew, in all rows. So an array is cut along its longest axis
every 4,096 positions, and across every 8 bytes: a tile is 32 kB, or less at the edges. The trees of a long memory are
hundreds of items of some kB each, of which a few are refitted between two checkpoints: of such an array, a tile is as
many whole items as make 32 kB. Nothing here knows what an array is for: how it is cut decides how much is written,
never what is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

ROWS = 4096  # of a tile
WIDTH = 8  # bytes in each of its rows; an item that is wider stays whole
FEWEST_ROWS = 8 * ROWS  # of an array that is cut; of fewer, most are new at most checkpoints
FEWEST_BYTES = 1 << 18
FEWEST_ITEMS = 256  # of a shorter array that is cut into whole items ...
FEWEST_ITEM_BYTES = 512  # ... of so many bytes, at least: no window of few columns


class TileShape(NamedTuple):
    """How many positions of the longest axis a tile takes, and how many of those across."""

    rows: int
    columns: int


def is_long(array: NDArray[Any]) -> bool:
    """Return whether an array is a long one, along its first or its last axis."""
    return (
        array.nbytes >= FEWEST_BYTES
        and max(array.shape) >= FEWEST_ROWS
        and max(array.shape) in (array.shape[0], array.shape[-1])
    )


def is_cut(array: NDArray[Any]) -> bool:
    """Return whether an array is worth being cut: a long one, or many large items."""
    return is_long(array) or (
        array.nbytes >= FEWEST_BYTES
        and len(array) >= FEWEST_ITEMS
        and array.nbytes // len(array) >= FEWEST_ITEM_BYTES
        and max(array.shape) < FEWEST_ROWS
    )


def tile_shape(array: NDArray[Any]) -> TileShape:
    """Return how an array is cut that is saved now."""
    if is_long(array):
        return TileShape(ROWS, max(1, WIDTH // array.itemsize))
    n_items = max(1, ROWS * WIDTH * len(array) // array.nbytes)
    if array.shape[0] == max(array.shape):
        return TileShape(n_items, array.size // len(array))
    return TileShape(array.shape[-1], n_items * (array.size // len(array) // array.shape[-1]))


def tiles(array: NDArray[Any], shape: TileShape) -> Iterator[NDArray[Any]]:
    """Yield the tiles of a contiguous array one by one, as views (columns, rows) to read from or write to.

    Examples
    --------
    >>> import numpy as np
    >>> [tile.tolist() for tile in tiles(np.arange(6).reshape(3, 2), TileShape(rows=2, columns=1))]
    [[[0, 2]], [[1, 3]], [[4]], [[5]]]
    >>> [tile.tolist() for tile in tiles(np.arange(6).reshape(2, 3), TileShape(rows=2, columns=2))]
    [[[0, 1], [3, 4]], [[2], [5]]]
    """
    if min(shape) < 1:
        raise ValueError(f"shape is {shape}, expected whole numbers above 0.")
    is_upright = array.shape[0] == max(array.shape)
    columns = array.reshape(len(array), -1).T if is_upright else array.reshape(-1, array.shape[-1])
    for row in range(0, columns.shape[1], shape.rows):
        for column in range(0, columns.shape[0], shape.columns):
            yield columns[column : column + shape.columns, row : row + shape.rows]
