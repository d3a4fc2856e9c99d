"""Arrays of some hundred rows cut as those of some ten thousand are."""

from streamboost.persistence import segments, tiles

ROWS = 16  # of a tile


def shrink(set_attribute=setattr):
    """Cut short arrays, too, in small tiles, of which a few make a segment."""
    set_attribute(tiles, "ROWS", ROWS)
    set_attribute(tiles, "FEWEST_ROWS", 4 * ROWS)
    set_attribute(tiles, "FEWEST_BYTES", 256)
    set_attribute(segments, "SEGMENT_BYTES", 4096)
