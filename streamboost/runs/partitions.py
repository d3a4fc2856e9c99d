"""The partitions of a stream: each file, Kafka partition or Redis stream, by a name for its directory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from streamboost.sources import FileSource, open_source
from streamboost.sources.kafka import KafkaSource

UNUSUAL = re.compile(r"[^\w.=+-]")
GENERATED = ("synthetic:", "shipped:")


class Partition(NamedTuple):
    """One part of a stream, as a run takes it."""

    name: str
    source: str


def list_partitions(where: Sequence[str], *, follow: bool = False, is_absolute: bool = False) -> list[Partition]:
    """List the partitions there are, in the order of their sources.

    Parameters
    ----------
    where : sequence of str
        Files, directories and globs, and addresses of Kafka topics or Redis streams. A topic is taken apart.
    follow : bool, default=False
        Whether files that match may come later.
    is_absolute : bool, default=False
        Whether files are told by their absolute paths, for processes elsewhere.

    Examples
    --------
    >>> list_partitions(["redis://host/0/clicks", "redis://host/0/views"])[1]
    Partition(name='views', source='redis://host/0/views')
    """
    found: list[Partition] = []
    for place in where:
        if place == "-" or place.startswith(GENERATED):
            raise ValueError(f"{place!r} cannot be divided, expected files, or streams of Kafka or Redis.")
        if place.startswith("kafka:"):
            found += _of_topic(place)
        elif "://" in place:
            found.append(Partition(_named(urlsplit(place).path.rpartition("/")[2]), place))
        else:
            files = FileSource(place, follow=follow).files()
            found += [
                Partition(_named(Path(path).name), os.path.abspath(path) if is_absolute else path) for path in files
            ]
    names = [partition.name for partition in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        own = " and ".join(partition.source for partition in found if partition.name == twice)
        raise ValueError(f"{own} would both be kept as {twice!r}, expected another name for each. Rename one.")
    return found


def _of_topic(address: str) -> list[Partition]:
    source = open_source(address)
    assert isinstance(source, KafkaSource)
    parts = urlsplit(address)
    query = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key != "partitions"]
    return [
        Partition(
            _named(f"{source.name}-{number}"),
            urlunsplit(parts._replace(query=urlencode([*query, ("partitions", str(number))]))),
        )
        for number in source.list_partitions()
    ]


def _named(text: str) -> str:
    """A name as a directory may have it."""
    name = UNUSUAL.sub("_", text)
    return f"_{name}" if name.startswith(".") or not name else name
