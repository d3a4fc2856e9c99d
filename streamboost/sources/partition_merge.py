"""Merge the messages of several partitions in an order that a later run reproduces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Message(NamedTuple):
    """A message, or with ``is_end`` the end of its partition."""

    partition: int
    offset: int
    value: bytes | None
    is_end: bool = False


class PartitionMerge:
    """Merges partitions round-robin, in an order that depends on the messages alone, not on when they came.

    Examples
    --------
    >>> merge = PartitionMerge({0: 0, 1: 0})
    >>> merge.add([Message(0, 0, b"a"), Message(0, 1, b"b"), Message(0, 2, b"c")])
    >>> [message.value for message in merge.take(10)]  # then the message of partition 1 is awaited
    [b'a']
    >>> merge.add([Message(1, 0, b"z"), Message(1, 1, None, is_end=True)])
    >>> [message.value for message in merge.take(10)]
    [b'z', b'b', b'c']
    """

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
