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
from streamboost.sources.kafka_client import FETCH, KafkaClient, Message, PartitionMerge, position_after
from streamboost.sources.message_source import COMMON_OPTIONS, POLL, MessageSource, refuse_address, split_address
from streamboost.sources.messages import MessageBatch

LOOK_FOR_PARTITIONS = 30.0  # seconds


@dataclass(eq=False, repr=False)
class KafkaSource(MessageSource):
    """The messages of a topic, each a JSON object.

    Partitions take merge, one message each, in the order of their numbers; one that has no more is passed over. Over
    messages that are there already, rows therefore come in the same order in every run, resumed or not.

    Parameters
    ----------
    servers : str
        Where the brokers are, such as ``"localhost:9092,other:9092"``.
    topic : str
    partitions : sequence of int, optional
        Those to read; by default all, and with ``follow`` also those that are added.
    settings : dict, optional
        For librdkafka, such as ``{"security.protocol": "SASL_SSL", "sasl.username": "me"}``; by default none. Its
        ``group.id`` (``"streamboost"``) is told of what was learned: its offsets are those of the last snapshot.
    types : dict, optional
        Arrow types by column; none by default. These columns are there from the start, even if no message has them yet.
    kinds : dict, optional
        What a model knows of columns, as in :class:`~streamboost.sources.FileSource`.
    columns : sequence of str, optional
        The keys to read; all by default.
    start : {"earliest", "latest"}
        Where to start from position None: by default at the first message kept, else after the last message.
    follow : bool
        Wait for more messages at the end. By default (False) the end is where it was at the start.
    stop : callable, optional
        Asked while waiting whether to stop; None by default.
    timeout : float
        Seconds to wait for brokers that do not answer; 30 by default.
    on_bad : {"raise", "skip"} or callable
        What to do with a message that is no row, "raise" by default; as in :class:`~streamboost.sources.FileSource`.
    on_lost : {"raise", "skip"}
        What to do if the broker no longer has the messages that come next; "raise" by default.

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
        """Check the options."""
        self._kafka = require("confluent_kafka", extra="kafka", by="KafkaSource")
        super().__post_init__()
        if not isinstance(self.servers, str) or not self.servers:
            raise ValueError(f"servers is {self.servers!r}, expected addresses such as 'localhost:9092'.")
        wanted = self.partitions
        if wanted is not None and not (wanted and all(isinstance(p, int) and p >= 0 for p in wanted)):
            raise ValueError(f"partitions is {wanted!r}, expected numbers such as [0, 2]. For all, leave it out.")
        self.partitions = None if wanted is None else sorted(set(wanted))
        self._client: KafkaClient | None = None  # while reading goes on

    def acknowledge(self, position: Position) -> None:
        """Commit the offsets of a position for the group."""
        self._check_position(position)
        if self._client is not None:
            self._client.commit(position["offsets"])
            return
        with self._connect() as client:
            client.commit(position["offsets"])

    def _as_number(self, position: Position) -> float | None:
        return float(sum(position["offsets"].values()))

    def list_partitions(self) -> list[int]:
        """Return the partitions that there are to read."""
        with self._connect() as client:
            return client.partitions()

    def _connect(self) -> KafkaClient:
        return KafkaClient(self, self._kafka, self.servers, self.partitions, self.settings or {})

    def _messages(self, position: Position) -> Generator[MessageBatch | None, None, None]:
        with self._connect() as self._client:
            try:
                yield from self._merged(self._client, position)
            finally:
                self._client = None

    def _merged(self, client: KafkaClient, position: Position) -> Generator[MessageBatch | None, None, None]:
        watermarks = {p: client.watermarks(p) for p in client.partitions()}
        merge = PartitionMerge(client.starts(watermarks, position), None if position is None else position.get("turn"))
        if not self.follow:
            merge.ends = {p: each.high for p, each in watermarks.items()}
            self._extent = sum(each.low for each in watermarks.values()), sum(merge.ends.values())
        client.assign(merge.offsets)
        looked = time.monotonic()
        while True:
            if messages := merge.take(FETCH):
                yield self._batch(merge, messages)
            elif merge.is_finished():
                return
            elif not client.poll(POLL, merge):
                if self.is_stopped():
                    return
                if self.follow:
                    yield None
                if self.follow and self.partitions is None and time.monotonic() - looked > LOOK_FOR_PARTITIONS:
                    looked = time.monotonic()
                    merge.include(client.add_partitions(merge.offsets))

    def _batch(self, merge: PartitionMerge, messages: list[Message]) -> MessageBatch:
        return MessageBatch(
            [message.value for message in messages],
            partial(position_after, self.name, merge.start_of_take, merge.order, messages),
            lambda i: f"topic {self.name}, partition {messages[i].partition}, offset {messages[i].offset}",
        )


def open_kafka(address: str, options: Mapping[str, Any]) -> KafkaSource:
    """Open ``kafka://host:port,host:port/topic?partitions=0,2``; the rest of the query goes to librdkafka."""
    servers, topic, found, settings = split_address(address, {**COMMON_OPTIONS, "partitions": _numbers})
    if not servers or not topic or "/" in topic or "@" in servers:
        refuse_address(address, "kafka://host:port/topic?group.id=... (a user name goes into sasl.username=...)")
    settings = {**settings, **options.get("settings", {})}
    return KafkaSource(servers, topic, **found, **{**options, "settings": settings})


def _numbers(text: str) -> list[Any]:
    """Split numbers at commas; what is none is left for the source to refuse."""
    return [int(part) if part.isdecimal() else part for part in text.split(",")]
