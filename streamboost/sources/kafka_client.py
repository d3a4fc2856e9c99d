"""A connection to Kafka: requests that are repeated until a broker responds, and partitions merged in a fixed order."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Self, TypeAlias

from streamboost.sources.base import Position
from streamboost.sources.message_source import BrokerUnavailable, MessageSource

MOST_BUFFERED = 10_000  # messages of a partition to hold while others are awaited
FETCH = 1000  # messages
ATTEMPT_SECONDS = 1.0  # seconds for one attempt
QUIET_SECONDS = 5.0  # seconds without a message after which to see whether the brokers still answer
CLOSE_SECONDS = 2.0  # seconds for a last commit to be answered

FIXED_SETTINGS = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True,
                  "auto.offset.reset": "error"}  # fmt: skip
Settings: TypeAlias = Mapping[str, Any]

logger = logging.getLogger(__name__)
librdkafka_logger = logging.getLogger(f"{__name__}.librdkafka")
librdkafka_logger.addHandler(logging.NullHandler())  # silent unless somebody adds another


class Watermarks(NamedTuple):
    """The first offset kept, and the next to be written."""

    low: int
    high: int


class KafkaClient:
    """A consumer of one topic. librdkafka reconnects by itself."""

    def __init__(
        self, source: MessageSource, kafka: ModuleType, servers: str, wanted: Sequence[int] | None, settings: Settings
    ) -> None:
        self.source, self.kafka, self.topic, self.wanted = source, kafka, source.name, wanted
        self.broker = f"Kafka at {servers}"
        self.last_error: str | None = None  # of librdkafka
        self.paused: set[int] = set()  # partitions
        self.last_message_at = time.monotonic()
        given = {"bootstrap.servers": servers, "group.id": "streamboost", **settings}
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit}
        try:
            self.consumer = self.kafka.Consumer({**given, **FIXED_SETTINGS, **callbacks}, logger=librdkafka_logger)
        except self.kafka.KafkaException as error:
            raise ValueError(f"librdkafka refuses these settings: {error.args[0].str()}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close, once the brokers have confirmed the last commit; do not wait long if they are away."""
        closing = threading.Thread(target=self.consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _on_error(self, error: Any) -> None:
        self.last_error = error.str()

    def _request(self, request: Callable[[], Any]) -> Any:
        """Repeat a request until there is a response, or ``timeout`` is over."""

        def attempt() -> Any:
            try:
                return request()
            except self.kafka.KafkaException as error:
                raise BrokerUnavailable(self.last_error or error.args[0].str()) from error

        return self.source.retry(self.broker, attempt)

    def partitions(self) -> list[int]:
        """Return the partitions to read. All topics are listed: asking for one would make some brokers create it."""
        topics = self._request(lambda: self.consumer.list_topics(timeout=ATTEMPT_SECONDS)).topics
        if self.topic not in topics or not topics[self.topic].partitions:
            found = f"{self.broker} has no topic {self.topic!r} that can be read from here"
            raise ValueError(f"{found}. Create it, or look for a typo.")
        there = sorted(topics[self.topic].partitions)
        if self.wanted is None:
            return there
        if missing := [p for p in self.wanted if p not in there]:
            raise ValueError(f"topic {self.topic!r} has no partition {missing[0]}, expected some of {there}.")
        return list(self.wanted)

    def watermarks(self, p: int) -> Watermarks:
        """Return the first and the next offset of a partition."""
        where = self.kafka.TopicPartition(self.topic, p)
        return Watermarks(*self._request(lambda: self.consumer.get_watermark_offsets(where, timeout=ATTEMPT_SECONDS)))

    def starts(self, watermarks: Mapping[int, Watermarks], position: Position) -> dict[int, int]:
        """Return the offset to start from in each partition."""
        if position is None:
            return {p: each.high if self.source.start == "latest" else each.low for p, each in watermarks.items()}
        known = {int(p): offset for p, offset in position["offsets"].items()}
        if gone := sorted(set(known) - set(watermarks)):
            found = f"partition {gone[0]}, which is not among those read, {list(watermarks)}"
            way_out = "Read the same partitions again, or start from None."
            raise ValueError(f"the position has offsets of {found}. {way_out}")
        return {p: self._available(p, known[p], each) if p in known else each.low for p, each in watermarks.items()}

    def _available(self, p: int, offset: int, watermarks: Watermarks) -> int:
        """Return an offset if the broker still has it; else report the loss and return the first it has."""
        low, high = watermarks
        if low <= offset <= high:
            return offset
        if offset < low:
            reason = f"has deleted what was before {low}: {low - offset} messages were lost unread."
            advice = "Keep messages longer (retention.ms)"
        else:
            reason = f"has messages only up to {high}: the topic was made anew, or the broker lost messages."
            advice = "Start from None to read it from the beginning"
        self.source.report_lost(f", partition {p} goes on at offset {offset}, but the broker {reason} {advice}")
        return low

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions, too, from these offsets on."""
        parts = [self.kafka.TopicPartition(self.topic, p, offset) for p, offset in offsets.items()]
        self.consumer.incremental_assign(parts)

    def add_partitions(self, known: Mapping[int, int]) -> dict[int, int]:
        """Read partitions that were added meanwhile from their beginning."""
        new = {p: self.watermarks(p).low for p in self.partitions() if p not in known}
        if new:
            self.assign(new)
        return new

    def poll(self, seconds: float, merge: PartitionMerge) -> bool:
        """Fetch messages for up to some seconds; return True if there were any."""
        messages = []
        for message in self.consumer.consume(FETCH, timeout=seconds):
            error = message.error()
            if error is None:
                messages.append(Message(message.partition(), message.offset(), message.value()))
            elif error.code() == self.kafka.KafkaError._PARTITION_EOF:
                messages.append(Message(message.partition(), message.offset(), None, is_end=True))
            elif error.code() == self.kafka.KafkaError._AUTO_OFFSET_RESET:
                self._skip_lost(message.partition(), merge)
            else:
                self._on_error(error)
        merge.add(messages)
        self._pause_ahead(merge)
        if messages:
            self.last_message_at, self.last_error = time.monotonic(), None
        elif time.monotonic() - self.last_message_at > QUIET_SECONDS:
            for p in merge.order:  # their brokers have to respond
                self.watermarks(p)
            self.last_message_at = time.monotonic()
        return bool(messages)

    def _skip_lost(self, p: int, merge: PartitionMerge) -> None:
        """Go on after messages that the broker deleted unread, or raise an error."""
        merge.offsets[p] = self._available(p, merge.offsets[p], self.watermarks(p))
        self.consumer.incremental_unassign([self.kafka.TopicPartition(self.topic, p)])
        self.assign({p: merge.offsets[p]})

    def _pause_ahead(self, merge: PartitionMerge) -> None:
        """Pause partitions that are far ahead of others."""
        for p, buffer in merge.buffers.items():
            parts = [self.kafka.TopicPartition(self.topic, p)]
            if len(buffer) > MOST_BUFFERED and p not in self.paused:
                self.consumer.pause(parts)
                self.paused.add(p)
            elif len(buffer) <= MOST_BUFFERED // 2 and p in self.paused:
                self.consumer.resume(parts)
                self.paused.remove(p)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit offsets for the group without waiting for a response: nothing depends on it."""
        parts = [self.kafka.TopicPartition(self.topic, int(p), offset) for p, offset in offsets.items()]
        self.consumer.commit(offsets=parts, asynchronous=True)

    def _on_commit(self, error: Any, parts: Sequence[Any]) -> None:
        errors = [error, *(part.error for part in parts or ())]
        if refusal := next((error for error in errors if error is not None), None):
            logger.warning(f"{self.broker} did not note how far its group is ({refusal.str()}). Nothing is lost by it.")


class Message(NamedTuple):
    """A message, or with ``is_end`` the end of its partition."""

    partition: int
    offset: int
    value: bytes | None
    is_end: bool = False


class PartitionMerge:
    """Merges partitions round-robin, in an order that depends on the messages alone, not on when they came."""

    def __init__(self, offsets: Mapping[int, int], turn: int | None = None) -> None:
        self.offsets = dict(offsets)  # of the next message to come, by partition
        self.order = sorted(offsets)
        self.ends: dict[int, int] | None = None  # offsets to stop at
        self.start_of_take: dict[int, int] = {}
        self.buffers: dict[int, deque[Message]] = {p: deque() for p in self.order}
        self._given = dict(offsets)
        self._at_end: set[int] = set()
        later = [i for i, p in enumerate(self.order) if turn is not None and p >= turn]
        self._turn = later[0] if later else 0

    def include(self, offsets: Mapping[int, int]) -> None:
        """Add partitions."""
        turn = self.order[self._turn]
        for p, offset in offsets.items():
            self.offsets[p] = self._given[p] = offset
            self.buffers[p] = deque()
        self.order = sorted(self.offsets)
        self._turn = self.order.index(turn)

    def add(self, messages: Iterable[Message]) -> None:
        """Buffer messages as they arrive."""
        for message in messages:
            p, offset = message.partition, message.offset
            if message.is_end:
                self._at_end.add(p)
            elif offset >= self.offsets[p]:  # else it came again after a broker was away
                self.offsets[p] = offset + 1
                self._at_end.discard(p)
                if self.ends is None or offset < self.ends[p]:
                    self.buffers[p].append(message)

    def take(self, n: int) -> list[Message]:
        """Return up to n messages, in order."""
        self.start_of_take = dict(self._given)
        taken: list[Message] = []
        while len(taken) < n and (p := self._next()) is not None:
            message = self.buffers[p].popleft()
            self._given[p] = message.offset + 1
            taken.append(message)
        return taken

    def _next(self) -> int | None:
        for _ in self.order:
            p = self.order[self._turn]
            if not self.buffers[p] and not self._has_ended(p):
                return None  # its message is on the way
            self._turn = (self._turn + 1) % len(self.order)
            if self.buffers[p]:
                return p
        return None

    def _has_ended(self, p: int) -> bool:
        return p in self._at_end or (self.ends is not None and self.offsets[p] >= self.ends[p])

    def is_finished(self) -> bool:
        """Return True if all ends are reached and all was taken."""
        return self.ends is not None and all(map(self._has_ended, self.order)) and not any(self.buffers.values())


def position_after(
    topic: str, start: Mapping[int, int], order: Sequence[int], messages: Sequence[Message], i: int
) -> dict[str, Any]:
    """Return the position after the first i messages."""
    offsets = {**start, **{message.partition: message.offset + 1 for message in messages[:i]}}
    turn = messages[i].partition if i < len(messages) else None
    if i:
        turn = order[(order.index(messages[i - 1].partition) + 1) % len(order)]
    return {"topic": topic, "offsets": {str(p): offset for p, offset in sorted(offsets.items())}, "turn": turn}
