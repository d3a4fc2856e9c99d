"""Runs that read a hundred rows at a time where they would read a thousand, so that checkpoints can come as often."""

from functools import partialmethod

from streamboost.cli.rows import PeekableSource

ROWS = 100


def shrink(set_attribute=setattr):
    """Let the command line read a source in small chunks: all are as long as the one it peeks at."""
    set_attribute(PeekableSource, "first", partialmethod(PeekableSource.first, n_rows=ROWS))
