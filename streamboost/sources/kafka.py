"""Rows from a Kafka topic, with confluent-kafka.

The reader takes the partitions itself (``assign``) and starts at the offsets of the position, so that no rebalance can
move rows between two runs unseen. The group is told what was learned, for those who watch its lag, and is never asked,
save with ``start="committed"``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from streamboost.errors import require
from streamboost.sources.base import BadRow, Position
from streamboost.sources.brokers import (
    COMMON_OPTIONS,
    MessageSource,
    Patience,
    options_from_address,
    refuse,
    whole_numbers,
)
from streamboost.sources.kafka_link import AT_ONCE, Link
from streamboost.sources.kafka_turns import Message, Turns, position_after
from streamboost.sources.messages import Parcel

LOOK_FOR_PARTITIONS = 30.0  # seconds


class KafkaSource(MessageSource):
    """The messages of a topic, each a JSON object.

    Partitions take turns, one message each, in the order of their numbers; one that has no more is passed over. Over
    messages that are there already, rows therefore come in the same order in every run, resumed or not.

    Parameters
    ----------
    servers : str
        Where the brokers are, such as ``"localhost:9092,other:9092"``.
    topic : str
    group : str
        Told of what was learned: its committed offsets are those of the last snapshot.
    partitions : sequence of int, optional
        Those to read; else all, and with ``follow`` also those that are added.
    start : {"earliest", "committed", "latest"}
        Where to start from position None: at the first message kept, where the group is, or after the last message.
    types : dict, optional
        Arrow types by column. These columns are there from the start, even if no message has them yet.
    columns : sequence of str, optional
        The keys to read; else all.
    follow : bool
        Wait for more messages at the end. Else the end is where it was at the start.
    stop : callable, optional
        Asked while waiting whether to stop.
    idle : float
        With ``follow``: seconds without a message after which to give a batch that is not full.
    idle_timeout : float, optional
        Seconds without a message after which to stop.
    timeout : float
        Seconds to wait for brokers that do not answer.
    on_bad : {"raise", "skip"} or callable
        What to do with a message that is no row, as in :class:`~streamboost.sources.FileSource`.
    on_lost : {"raise", "skip"}
        What to do if the broker no longer has the messages that come next.
    settings : dict, optional
        For librdkafka, such as ``{"security.protocol": "SASL_SSL", "sasl.username": "me"}``.

    Examples
    --------
    >>> source = KafkaSource("localhost:9092", "clicks", follow=True)  # doctest: +SKIP
    >>> for batch in source.read(position):  # doctest: +SKIP
    ...     model.learn(batch.table.select(["x"]), batch.table["y"].to_numpy())
    """

    kind = "topic"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        group: str = "streamboost",
        partitions: Sequence[int] | None = None,
        start: Literal["earliest", "committed", "latest"] = "earliest",
        types: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        stop: Callable[[], bool] | None = None,
        idle: float = 0.5,
        idle_timeout: float | None = None,
        timeout: float = 30.0,
        on_bad: Literal["raise", "skip"] | Callable[[BadRow], object] = "raise",
        on_lost: Literal["raise", "skip"] = "raise",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._kafka = require("confluent_kafka", extra="kafka", by="KafkaSource")
        super().__init__(
            topic,
            group=group,
            start=start,
            types=types,
            columns=columns,
            follow=follow,
            stop=stop,
            idle=idle,
            idle_timeout=idle_timeout,
            timeout=timeout,
            on_bad=on_bad,
            on_lost=on_lost,
        )
        if not isinstance(servers, str) or not servers:
            raise ValueError(f"servers is {servers!r}, expected addresses such as 'localhost:9092'.")
        if partitions is not None and not (partitions and all(isinstance(p, int) and p >= 0 for p in partitions)):
            raise ValueError(f"partitions is {partitions!r}, expected numbers such as [0, 2]. For all, leave it out.")
        self.servers, self.settings = servers, dict(settings or {})
        self.partitions = None if partitions is None else sorted(set(partitions))
        self._is_reading = False
        self._committer: Link | None = None  # a connection of its own, while reading goes on

    def _tell_group(self, position: Position) -> None:
        """Commit the offsets of a position for the group."""
        if self._committer is not None:
            self._committer.commit(position["offsets"])
        elif self._is_reading:  # more of these will come
            self._committer = self._connect()
            self._committer.commit(position["offsets"])
        else:
            with self._connect() as link:
                link.commit(position["offsets"])

    def _progress(self, position: Position) -> float | None:
        return float(sum(position["offsets"].values()))

    def _connect(self) -> Link:
        return Link(self, self._kafka, self.servers, self.partitions, self.settings)

    def _check_position(self, position: Position) -> None:
        super()._check_position(position)
        offsets = position.get("offsets")
        if not isinstance(offsets, Mapping) or not all(
            p.isdecimal() and isinstance(o, int) for p, o in offsets.items()
        ):
            raise ValueError(
                f"position is {position!r}, expected one of a batch of this source. To start anew pass None."
            )

    def _parcels(self, position: Position) -> Generator[Parcel | None, None, None]:
        self._is_reading = True
        try:
            with self._connect() as link:
                yield from self._turns(link, position)
        finally:
            self._is_reading = False
            if self._committer is not None:
                self._committer.close()
                self._committer = None

    def _turns(self, link: Link, position: Position) -> Generator[Parcel | None, None, None]:
        marks = {p: link.watermarks(p) for p in link.partitions()}
        turns = Turns(link.starts(marks, position), None if position is None else position.get("turn"))
        if not self.follow:
            turns.ends = {p: mark.high for p, mark in marks.items()}
            self._extent = sum(mark.low for mark in marks.values()), sum(turns.ends.values())
        link.assign(turns.offsets)
        patience, looked = Patience(self), time.monotonic()
        while True:
            if messages := turns.take(AT_ONCE):
                yield self._parcel(turns, messages)
                patience.reset()
                link.listen()  # whatever the reader did meanwhile, and for however long
                continue
            if turns.is_finished():
                return
            if link.poll(patience.poll(), turns):
                continue
            if patience.is_time_to_give():
                yield None
            if patience.is_over():
                return
            if self.follow and self.partitions is None and time.monotonic() - looked > LOOK_FOR_PARTITIONS:
                looked = time.monotonic()
                turns.include(link.add_partitions(turns.offsets))

    def _parcel(self, turns: Turns, messages: list[Message]) -> Parcel:
        return Parcel(
            [message.value for message in messages],
            partial(position_after, self.name, turns.start_of_take, turns.order, messages),
            lambda i: f"topic {self.name}, partition {messages[i].partition}, offset {messages[i].offset}",
        )


def open_kafka(address: str, options: Mapping[str, Any]) -> KafkaSource:
    """The source at ``kafka://host:port,host:port/topic?group=g``; options with a dot are librdkafka's."""
    known = {**COMMON_OPTIONS, "partitions": whole_numbers}
    servers, topic, found, settings = options_from_address(address, known, ".", options)
    if not servers or not topic or "/" in topic or "@" in servers:
        refuse(address, "kafka://host:port/topic?group=... (a user name goes into sasl.username=...)")
    found["settings"] = {**settings, **(found.get("settings") or {})}
    return KafkaSource(servers, topic, **found)
