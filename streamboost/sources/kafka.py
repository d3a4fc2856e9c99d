"""Rows from a Kafka topic, with confluent-kafka.

The reader takes the partitions itself (``assign``) and starts at the offsets of the position, so that no rebalance can
move rows between two runs unseen. The group is told what was learned, for those who watch its lag, and never asked.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from streamboost.errors import require
from streamboost.sources.base import Position
from streamboost.sources.kafka_client import AT_ONCE, Link
from streamboost.sources.message_source import COMMON_OPTIONS, POLL, MessageSource, refuse, split_address
from streamboost.sources.messages import MessageBatch
from streamboost.sources.partition_merge import Message, Turns, position_after

LOOK_FOR_PARTITIONS = 30.0  # seconds


@dataclass(eq=False, repr=False)
class KafkaSource(MessageSource):
    """The messages of a topic, each a JSON object.

    Partitions take turns, one message each, in the order of their numbers; one that has no more is passed over. Over
    messages that are there already, rows therefore come in the same order in every run, resumed or not.

    Parameters
    ----------
    servers : str
        Where the brokers are, such as ``"localhost:9092,other:9092"``.
    topic : str
    partitions : sequence of int, optional
        Those to read; else all, and with ``follow`` also those that are added.
    settings : dict, optional
        For librdkafka, such as ``{"security.protocol": "SASL_SSL", "sasl.username": "me"}``. Its ``group.id``
        (``"streamboost"``) is told of what was learned: its committed offsets are those of the last snapshot.
    types : dict, optional
        Arrow types by column. These columns are there from the start, even if no message has them yet.
    columns : sequence of str, optional
        The keys to read; else all.
    start : {"earliest", "latest"}
        Where to start from position None: at the first message kept, or after the last message.
    follow : bool
        Wait for more messages at the end. Else the end is where it was at the start.
    stop : callable, optional
        Asked while waiting whether to stop.
    timeout : float
        Seconds to wait for brokers that do not answer.
    on_bad : {"raise", "skip"} or callable
        What to do with a message that is no row, as in :class:`~streamboost.sources.FileSource`.
    on_lost : {"raise", "skip"}
        What to do if the broker no longer has the messages that come next.

    Examples
    --------
    >>> source = KafkaSource("localhost:9092", "clicks", follow=True)  # doctest: +SKIP
    >>> for batch in source.read(position):  # doctest: +SKIP
    ...     model.learn(batch.table.select(["x"]), batch.table["y"].to_numpy())
    """

    kind = "topic"
    keys = frozenset({"offsets"})
    servers: str
    topic: str
    _: KW_ONLY
    partitions: Sequence[int] | None = None
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        self._kafka = require("confluent_kafka", extra="kafka", by="KafkaSource")
        super().__post_init__()
        if not isinstance(self.servers, str) or not self.servers:
            raise ValueError(f"servers is {self.servers!r}, expected addresses such as 'localhost:9092'.")
        wanted = self.partitions
        if wanted is not None and not (wanted and all(isinstance(p, int) and p >= 0 for p in wanted)):
            raise ValueError(f"partitions is {wanted!r}, expected numbers such as [0, 2]. For all, leave it out.")
        self.partitions = None if wanted is None else sorted(set(wanted))
        self._link: Link | None = None  # while reading goes on

    def acknowledge(self, position: Position) -> None:
        """Commit the offsets of a position for the group."""
        self._check_position(position)
        if self._link is not None:
            self._link.commit(position["offsets"])
            return
        with self._connect() as link:
            link.commit(position["offsets"])

    def _progress(self, position: Position) -> float | None:
        return float(sum(position["offsets"].values()))

    def _connect(self) -> Link:
        return Link(self, self._kafka, self.servers, self.partitions, self.settings or {})

    def _messages(self, position: Position) -> Generator[MessageBatch | None, None, None]:
        with self._connect() as self._link:
            try:
                yield from self._in_turns(self._link, position)
            finally:
                self._link = None

    def _in_turns(self, link: Link, position: Position) -> Generator[MessageBatch | None, None, None]:
        marks = {p: link.watermarks(p) for p in link.partitions()}
        turns = Turns(link.starts(marks, position), None if position is None else position.get("turn"))
        if not self.follow:
            turns.ends = {p: mark.high for p, mark in marks.items()}
            self._extent = sum(mark.low for mark in marks.values()), sum(turns.ends.values())
        link.assign(turns.offsets)
        looked = time.monotonic()
        while True:
            if messages := turns.take(AT_ONCE):
                yield self._batch(turns, messages)
            elif turns.is_finished():
                return
            elif not link.poll(POLL, turns):
                if self.is_stopped():
                    return
                if self.follow:
                    yield None
                if self.follow and self.partitions is None and time.monotonic() - looked > LOOK_FOR_PARTITIONS:
                    looked = time.monotonic()
                    turns.include(link.add_partitions(turns.offsets))

    def _batch(self, turns: Turns, messages: list[Message]) -> MessageBatch:
        return MessageBatch(
            [message.value for message in messages],
            partial(position_after, self.name, turns.start_of_take, turns.order, messages),
            lambda i: f"topic {self.name}, partition {messages[i].partition}, offset {messages[i].offset}",
        )


def open_kafka(address: str, options: Mapping[str, Any]) -> KafkaSource:
    """The source at ``kafka://host:port,host:port/topic?partitions=0,2``; what else is in the query is librdkafka's."""
    servers, topic, found, settings = split_address(address, {**COMMON_OPTIONS, "partitions": _numbers})
    if not servers or not topic or "/" in topic or "@" in servers:
        refuse(address, "kafka://host:port/topic?group.id=... (a user name goes into sasl.username=...)")
    settings = {**settings, **options.get("settings", {})}
    return KafkaSource(servers, topic, **found, **{**options, "settings": settings})


def _numbers(text: str) -> list[Any]:
    """Numbers between commas; what is none is left for the source to refuse."""
    return [int(part) if part.isdecimal() else part for part in text.split(",")]
