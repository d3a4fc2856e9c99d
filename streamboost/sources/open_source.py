"""Open any source by its address."""

from __future__ import annotations

import os
from typing import Any

from streamboost.datasets import shipped_file
from streamboost.sources.base import Source
from streamboost.sources.files import FileSource
from streamboost.sources.kafka import open_kafka
from streamboost.sources.memory import MemorySource
from streamboost.sources.redis import open_redis
from streamboost.sources.synthetic import FriedmanSource

BROKERS = {"kafka": open_kafka, "redis": open_redis, "rediss": open_redis}
SHIPPED = "shipped:"
SYNTHETIC = "synthetic:friedman"


def open_source(*where: Any, **options: Any) -> Source:
    """Open files, a broker's messages, generated rows or rows in memory, as the arguments tell.

    Parameters
    ----------
    *where : str, path, array, frame or source
        Files, globs or ``"-"`` (:class:`FileSource`), ``"kafka://host:port/topic"`` (:class:`KafkaSource`),
        ``"redis://host:port/0/stream"`` (:class:`RedisSource`), ``"synthetic:friedman"``,
        ``"shipped:electricity"`` or another set that comes with the package, or rows (:class:`MemorySource`). A
        source is returned as it is.
    **options
        For the class of source it is.

    Examples
    --------
    >>> source = open_source("synthetic:friedman", total_rows=5000)
    >>> sum(batch.table.num_rows for batch in source.read())
    5000
    """
    only = where[0] if len(where) == 1 else None
    if isinstance(only, Source) and not options:
        return only
    if isinstance(only, str) and only.startswith("synthetic:"):
        if only != SYNTHETIC:
            raise ValueError(f"{only!r} is not a known stream, expected {SYNTHETIC!r}.")
        return FriedmanSource(**options)
    if isinstance(only, str) and only.startswith(SHIPPED):
        return FileSource(shipped_file(only.removeprefix(SHIPPED)), **options)
    for part in where:
        scheme = part.partition("://")[0] if isinstance(part, str) and "://" in part else ""
        if scheme in BROKERS:
            if len(where) > 1:
                raise ValueError(f"{len(where)} places are given, expected one if it is {scheme}://.... Pass it alone.")
            return BROKERS[scheme](part, options)
    if all(isinstance(part, (str, os.PathLike)) for part in where):
        return FileSource(*where, **options)
    return MemorySource(*where, **options)
