"""Sources: where rows come from, each with a position to resume at."""

from streamboost.sources.base import BadRow, Batch, Position, Source
from streamboost.sources.files import FileSource
from streamboost.sources.memory import MemorySource
from streamboost.sources.opening import open_source
from streamboost.sources.synthetic import FriedmanSource, HyperplaneSource

__all__ = [
    "BadRow",
    "Batch",
    "FileSource",
    "FriedmanSource",
    "HyperplaneSource",
    "MemorySource",
    "Position",
    "Source",
    "open_source",
]
