"""A connection to Kafka: questions that are asked until there is an answer, and errors that say what to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from streamboost.sources.base import Position
from streamboost.sources.brokers import LostRows, MessageSource, Trial
from streamboost.sources.kafka_turns import Message, Turns

AHEAD = 10_000  # messages of a partition to hold while others are awaited
AT_ONCE = 1000  # messages
GRACE = 1.0  # seconds for one attempt

logger = logging.getLogger(__name__)
client_logger = logging.getLogger(f"{__name__}.librdkafka")
client_logger.addHandler(logging.NullHandler())  # heard only by those who listen


class Watermarks(NamedTuple):
    """The first offset kept, and the next to be written."""

    low: int
    high: int


class Link:
    """A connection to the brokers, and the errors it can have."""

    def __init__(
        self,
        source: MessageSource,
        kafka: ModuleType,
        servers: str,
        wanted: Sequence[int] | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.source, self.kafka, self.topic, self.wanted = source, kafka, source.name, wanted
        self.trial = Trial(source, f"Kafka at {servers}", logger.warning)
        self.trouble: Any = None  # the last thing that librdkafka complained of
        self.held: set[int] = set()
        self.is_owed_answer = False
        self.answers: list[Any] = []  # to commits: errors, or None
        self.heard = time.monotonic()
        self.probed = self.heard
        settings = {
            "bootstrap.servers": servers,
            "group.id": source.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            **settings,
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
        self.close()

    def close(self) -> None:
        """Let go of the brokers; if one owes the answer to a commit, that takes long, and nobody needs to wait."""
        if self.is_owed_answer:
            threading.Thread(target=self.consumer.close, daemon=True).start()
        else:
            self.consumer.close()

    def _complain(self, error: Any) -> None:
        self.trouble = error

    # Questions

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask until there is an answer, or ``timeout`` is over."""
        while True:
            began = time.monotonic()
            try:
                answer = question()
            except self.kafka.KafkaException as error:
                self._check_refusal()
                self._check_refusal(error.args[0])
                self.trial.failed(error.args[0].str())
                time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))
                continue
            self.trial.worked()
            return answer

    def _check_refusal(self, error: Any = None) -> None:
        """Give up at once where trying again is of no use."""
        kinds = self.kafka.KafkaError
        error = self.trouble if error is None else error
        if error is None:
            return
        code, said = error.code(), error.str()
        if code in (kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED, kinds._SSL):
            raise ConnectionError(f"{self.trial.what} refuses to talk: {said}. Look at the sasl.* and ssl.* settings.")
        if code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED):
            raise PermissionError(
                f"{self.trial.what} does not allow this: {said}. Ask for the right to read topic {self.topic!r} and "
                f"to use group {self.source.group!r}."
            )
        if code in (kinds.UNKNOWN_MEMBER_ID, kinds.ILLEGAL_GENERATION, kinds.REBALANCE_IN_PROGRESS):
            raise ValueError(
                f"group {self.source.group!r} is used by consumers that subscribe ({said}), so its offsets cannot be "
                "set from here. Pass a group=... of its own."
            )

    def partitions(self) -> list[int]:
        """The partitions to read. All topics are listed, for to ask for one would make some brokers create it."""
        topics = self._ask(lambda: self.consumer.list_topics(timeout=GRACE)).topics
        if self.topic not in topics or not topics[self.topic].partitions:
            raise ValueError(
                f"{self.trial.what} has no topic {self.topic!r} that can be read from here. "
                "Create it, or look for a typo."
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
        known: dict[int, int] = {}
        if position is not None:
            known = {int(p): offset for p, offset in position["offsets"].items()}
            if gone := sorted(set(known) - set(marks)):
                raise ValueError(
                    f"the position has offsets of partition {gone[0]}, which is not among those read, {list(marks)}. "
                    "Read the same partitions again, or start from None."
                )
        elif self.source.start == "committed":
            wanted = [self.kafka.TopicPartition(self.topic, p) for p in marks]
            found = self._ask(lambda: self.consumer.committed(wanted, timeout=GRACE))
            known = {part.partition: part.offset for part in found if part.offset >= 0}
        starts = {}
        for p, mark in marks.items():
            if p in known:
                starts[p] = self._checked(p, known[p], mark)
            else:
                is_latest = position is None and self.source.start == "latest"
                starts[p] = mark.high if is_latest else mark.low
        return starts

    def _checked(self, p: int, offset: int, marks: Watermarks) -> int:
        """An offset, if the broker still has it."""
        if marks.low <= offset <= marks.high:
            return offset
        if offset < marks.low:
            said = (
                f"goes on at offset {offset}, but the broker has deleted what was before {marks.low}: "
                f"{marks.low - offset} messages were lost unread. Keep messages longer (retention.ms)"
            )
        else:
            said = (
                f"goes on at offset {offset}, but the broker has messages only up to {marks.high}: the topic was made "
                "anew, or the broker lost messages. Start from None to read it from the beginning"
            )
        said = f"topic {self.topic!r}, partition {p} {said}; to go on with what there is, pass on_lost='skip'."
        if self.source.on_lost == "raise":
            raise LostRows(said)
        logger.warning(said)
        return marks.low

    # Reading

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on."""
        self.consumer.assign([self.kafka.TopicPartition(self.topic, p, offset) for p, offset in offsets.items()])
        self.listen()

    def listen(self) -> None:
        """From now on it counts how long nothing comes."""
        self.heard = time.monotonic()

    def add_partitions(self, known: Mapping[int, int]) -> dict[int, int]:
        """Read partitions that were added meanwhile from their beginning."""
        new = {p: self.watermarks(p).low for p in self.partitions() if p not in known}
        if new:
            parts = [self.kafka.TopicPartition(self.topic, p, offset) for p, offset in new.items()]
            self.consumer.incremental_assign(parts)
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
            self.trial.worked()
        else:
            self._check_health(turns.is_waiting())
        return bool(messages)

    def _skip_lost(self, p: int, turns: Turns) -> None:
        """The broker deleted messages before they could be read: raise an error, or go on where it can."""
        turns.offsets[p] = self._checked(p, turns.offsets[p], self.watermarks(p))
        self.consumer.incremental_unassign([self.kafka.TopicPartition(self.topic, p)])
        self.consumer.incremental_assign([self.kafka.TopicPartition(self.topic, p, turns.offsets[p])])

    def _check_health(self, is_waiting: bool) -> None:
        """Nothing came: if that is not for want of messages, see whether the brokers answer."""
        now = time.monotonic()
        has_stalled = is_waiting and now - self.heard > GRACE
        if (self.trouble is None and not has_stalled) or now - self.probed < GRACE:
            return
        self._check_refusal()
        self.probed = now
        where = self.kafka.TopicPartition(self.topic, next(iter(self.consumer.assignment())).partition)
        try:
            self.consumer.get_watermark_offsets(where, timeout=GRACE)
        except self.kafka.KafkaException as error:
            self.trial.failed(error.args[0].str())
            return
        if not has_stalled:
            self.trouble = None
            self.trial.worked()
        elif now - self.heard > self.source.timeout:
            raise ConnectionError(
                f"{self.trial.what} answers, but gave no message of topic {self.topic!r} for {self.source.timeout:g} s "
                "though there are more. Look whether its partitions have leaders; then resume: nothing is lost."
            )

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
        """Tell the group what was learned. Not while partitions are assigned: their messages would come between."""
        parts = [self.kafka.TopicPartition(self.topic, int(p), offset) for p, offset in offsets.items()]
        while True:
            self.answers.clear()
            self.consumer.commit(offsets=parts, asynchronous=True)  # else it cannot be given up after a time
            began = time.monotonic()
            while not self.answers and time.monotonic() - began < GRACE:
                self.consumer.poll(0.02)
            self.is_owed_answer = not self.answers
            error = self.answers[-1] if self.answers else "no answer"
            if error is None:
                self.trial.worked()
                return
            if self.answers:
                self._check_refusal(error)
                time.sleep(0.1)
            self.trial.failed(error)

    def _hear_of_commit(self, error: Any, parts: Sequence[Any]) -> None:
        errors = [error, *(part.error for part in parts or ())]
        self.answers.append(next((error for error in errors if error is not None), None))
