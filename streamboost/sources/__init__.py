"""Sources: where rows come from, each with a position to resume at."""

from streamboost.sources.base import BadRow, Batch, ForeignPosition, Position, Source
from streamboost.sources.files import FileSource
from streamboost.sources.kafka import KafkaSource
from streamboost.sources.memory import MemorySource
from streamboost.sources.message_source import LostRows
from streamboost.sources.open_source import open_source
from streamboost.sources.redis import RedisSource
from streamboost.sources.synthetic import FriedmanSource

__all__ = ["BadRow", "Batch", "FileSource", "ForeignPosition", "FriedmanSource", "KafkaSource", "LostRows",
           "MemorySource", "Position", "RedisSource", "Source", "open_source"]  # fmt: skip
