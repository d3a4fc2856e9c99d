"""A connection to Kafka: questions that are asked until there is an answer, and errors that say what to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from streamboost.sources.base import Position
from streamboost.sources.message_source import Away, MessageSource
from streamboost.sources.partition_merge import Message, Turns

AHEAD = 10_000  # messages of a partition to hold while others are awaited
AT_ONCE = 1000  # messages
GRACE = 1.0  # seconds for one attempt
QUIET = 5.0  # seconds without a message after which to see whether the brokers still answer
CLOSING = 2.0  # seconds for a last commit to be answered

logger = logging.getLogger(__name__)
client_logger = logging.getLogger(f"{__name__}.librdkafka")
client_logger.addHandler(logging.NullHandler())  # heard only by those who listen


class Watermarks(NamedTuple):
    """The first offset kept, and the next to be written."""

    low: int
    high: int


class Link:
    """A connection to the brokers. When they go away librdkafka finds them again by itself."""

    def __init__(
        self,
        source: MessageSource,
        kafka: ModuleType,
        servers: str,
        wanted: Sequence[int] | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.source, self.kafka, self.topic, self.wanted = source, kafka, source.name, wanted
        self.what = f"Kafka at {servers}"
        self.trouble: str | None = None  # the last thing that librdkafka complained of
        self.held: set[int] = set()
        self.heard = time.monotonic()
        settings = {
            "bootstrap.servers": servers,
            "group.id": "streamboost",
            **settings,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self._complain,
            "on_commit": self._hear_of_commit,
        }
        try:
            self.consumer = self.kafka.Consumer(settings, logger=client_logger)
        except self.kafka.KafkaException as error:
            raise ValueError(f"librdkafka refuses these settings: {error.args[0].str()}.") from error

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the brokers, once they have answered the last commit; if they are away nobody needs to wait."""
        closing = threading.Thread(target=self.consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSING)

    def _complain(self, error: Any) -> None:
        self.trouble = error.str()

    # Questions

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask until there is an answer, or ``timeout`` is over."""

        def ask_once() -> Any:
            try:
                return question()
            except self.kafka.KafkaException as error:
                raise Away(self.trouble or error.args[0].str()) from error

        return self.source.ask(self.what, ask_once)

    def partitions(self) -> list[int]:
        """The partitions to read. All topics are listed, for to ask for one would make some brokers create it."""
        topics = self._ask(lambda: self.consumer.list_topics(timeout=GRACE)).topics
        if self.topic not in topics or not topics[self.topic].partitions:
            raise ValueError(
                f"{self.what} has no topic {self.topic!r} that can be read from here. Create it, or look for a typo."
            )
        there = sorted(topics[self.topic].partitions)
        if self.wanted is None:
            return there
        if missing := [p for p in self.wanted if p not in there]:
            raise ValueError(f"topic {self.topic!r} has no partition {missing[0]}, expected some of {there}.")
        return list(self.wanted)

    def watermarks(self, p: int) -> Watermarks:
        """What there is of a partition."""
        where = self.kafka.TopicPartition(self.topic, p)
        return Watermarks(*self._ask(lambda: self.consumer.get_watermark_offsets(where, timeout=GRACE)))

    def starts(self, marks: Mapping[int, Watermarks], position: Position) -> dict[int, int]:
        """The offset to start from in each partition."""
        if position is None:
            return {p: mark.high if self.source.start == "latest" else mark.low for p, mark in marks.items()}
        known = {int(p): offset for p, offset in position["offsets"].items()}
        if gone := sorted(set(known) - set(marks)):
            raise ValueError(
                f"the position has offsets of partition {gone[0]}, which is not among those read, {list(marks)}. "
                "Read the same partitions again, or start from None."
            )
        return {p: self._checked(p, known[p], mark) if p in known else mark.low for p, mark in marks.items()}

    def _checked(self, p: int, offset: int, marks: Watermarks) -> int:
        """An offset, if the broker still has it."""
        if marks.low <= offset <= marks.high:
            return offset
        if offset < marks.low:
            self.source.lose(
                f", partition {p} goes on at offset {offset}, but the broker has deleted what was before {marks.low}: "
                f"{marks.low - offset} messages were lost unread. Keep messages longer (retention.ms)"
            )
        else:
            self.source.lose(
                f", partition {p} goes on at offset {offset}, but the broker has messages only up to {marks.high}: the "
                "topic was made anew, or the broker lost messages. Start from None to read it from the beginning"
            )
        return marks.low

    # Reading

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

    def poll(self, seconds: float, turns: Turns) -> bool:
        """Take in what comes within some seconds; whether something came."""
        messages = []
        for message in self.consumer.consume(AT_ONCE, timeout=seconds):
            error = message.error()
            if error is None:
                messages.append(Message(message.partition(), message.offset(), message.value()))
            elif error.code() == self.kafka.KafkaError._PARTITION_EOF:
                messages.append(Message(message.partition(), message.offset(), None, is_end=True))
            elif error.code() == self.kafka.KafkaError._AUTO_OFFSET_RESET:
                self._skip_lost(message.partition(), turns)
            else:
                self._complain(error)
        turns.add(messages)
        self._hold_back(turns)
        if messages:
            self.heard, self.trouble = time.monotonic(), None
        elif time.monotonic() - self.heard > QUIET:
            for p in turns.order:  # their brokers have to answer
                self.watermarks(p)
            self.heard = time.monotonic()
        return bool(messages)

    def _skip_lost(self, p: int, turns: Turns) -> None:
        """The broker deleted messages before they could be read: raise an error, or go on where it can."""
        turns.offsets[p] = self._checked(p, turns.offsets[p], self.watermarks(p))
        self.consumer.incremental_unassign([self.kafka.TopicPartition(self.topic, p)])
        self.assign({p: turns.offsets[p]})

    def _hold_back(self, turns: Turns) -> None:
        """Fetch no more of partitions that are far ahead of others."""
        for p, buffer in turns.buffers.items():
            parts = [self.kafka.TopicPartition(self.topic, p)]
            if len(buffer) > AHEAD and p not in self.held:
                self.consumer.pause(parts)
                self.held.add(p)
            elif len(buffer) <= AHEAD // 2 and p in self.held:
                self.consumer.resume(parts)
                self.held.remove(p)

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Tell the group what was learned, without waiting for an answer: nothing depends on it."""
        parts = [self.kafka.TopicPartition(self.topic, int(p), offset) for p, offset in offsets.items()]
        self.consumer.commit(offsets=parts, asynchronous=True)

    def _hear_of_commit(self, error: Any, parts: Sequence[Any]) -> None:
        errors = [error, *(part.error for part in parts or ())]
        if refusal := next((error for error in errors if error is not None), None):
            logger.warning(f"{self.what} did not note how far its group is ({refusal.str()}). Nothing is lost by it.")
