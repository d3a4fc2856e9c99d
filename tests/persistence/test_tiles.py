"""Arrays cut into tiles: every item in one tile, and put together again what it was."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from streamboost.persistence import tiles
from streamboost.persistence.tiles import TileShape, is_cut, is_long, tile_shape

DTYPES = ["<f8", "<f4", "<u2", "|u1", "|b1", ">i4", "<c16", "<U3", "|S5", "<M8[s]"]


@given(
    shape=array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
    cut=st.builds(TileShape, st.integers(1, 6), st.integers(1, 6)),
    dtype=st.sampled_from(DTYPES),
)
def test_every_item_is_in_one_tile_and_comes_back_to_its_place(shape, cut, dtype):
    if len(shape) == 3 and max(shape) not in (shape[0], shape[2]):
        return  # is not cut
    items = np.arange(np.prod(shape)) % 100
    array = (items.astype("<i8") if dtype == "<M8[s]" else items).astype(dtype).reshape(shape)
    if array.size == 0:
        assert not is_long(array)
        return
    parts = [tile.tobytes() for tile in tiles.tiles(array, cut)]
    filled = np.empty_like(array)
    assert sum(map(len, parts)) == array.nbytes
    for tile, part in zip(tiles.tiles(filled, cut), parts, strict=True):
        assert tile.shape[0] <= cut.columns
        assert tile.shape[1] <= cut.rows
        tile[...] = np.frombuffer(part, array.dtype).reshape(tile.shape)
    assert filled.tobytes() == array.tobytes()


def test_rows_that_change_change_few_tiles_and_so_does_a_column():
    leaves = np.zeros((40_000, 60), np.uint16)
    cut = tile_shape(leaves)

    def changed(change):
        before = [tile.tobytes() for tile in tiles.tiles(leaves, cut)]
        change()
        return sum(tile.tobytes() != was for tile, was in zip(tiles.tiles(leaves, cut), before, strict=True))

    def write_rows():
        leaves[5000:6000] = 7

    def write_column():
        leaves[:, 30] = 8

    n_across, n_down = 60 * leaves.itemsize // tiles.WIDTH, -(-40_000 // tiles.ROWS)
    assert changed(write_rows) == n_across
    assert changed(write_column) == n_down


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((16_384, 20), False),  # the longest memory by default
        ((131_072, 20), True),
        ((131_072,), True),
        ((20, 131_072), True),
        ((3, 131_072, 2), False),
        ((), False),
        ((0, 131_072), False),
        ((131_072, 2, 3), True),
    ],
)
def test_only_long_arrays_are_cut(shape, expected):
    assert is_long(np.zeros(shape)) == expected


@pytest.mark.parametrize(
    ("shape", "dtype", "n_items"),
    [
        ((1000, 255), "<f8", 16),  # thresholds of trees of depth 8
        ((1000, 256, 2), "<f8", 8),  # their leaves
        ((256, 511), "<f8", 8),  # more nodes than trees
        ((300, 512, 2), "<f8", 4),
        ((300, 100_000 // 8), "<f8", 1),  # each larger than a tile
    ],
)
def test_of_many_large_items_some_whole_ones_are_a_tile(shape, dtype, n_items):
    array = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    cut = tile_shape(array)
    assert is_cut(array)
    assert not is_long(array)
    before = [tile.tobytes() for tile in tiles.tiles(array, cut)]
    assert len(before) == -(-shape[0] // n_items)
    array[n_items : 2 * n_items] = -1
    assert [i for i, tile in enumerate(tiles.tiles(array, cut)) if tile.tobytes() != before[i]] == [1]
    filled = np.empty_like(array)
    for tile, other in zip(tiles.tiles(filled, cut), tiles.tiles(array, cut), strict=True):
        tile[...] = other
    assert (filled == array).all()


@pytest.mark.parametrize("shape", [(60, 127), (60, 128, 11), (1000, 31), (16_384, 20), (1024, 20), (), (0, 255)])
def test_what_is_small_or_changes_at_every_row_is_not_cut(shape):
    assert not is_cut(np.zeros(shape))
