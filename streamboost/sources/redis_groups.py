"""One reader among several that share a group of a Redis stream.

Redis deals out each entry once and keeps it as pending, with the name of the reader, until it is acknowledged. What a
reader got and learned but could not acknowledge comes to it again after a restart; the position tells what that is.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from streamboost.sources.base import Position
from streamboost.sources.brokers import Patience
from streamboost.sources.messages import Parcel
from streamboost.sources.redis_link import (
    AT_ONCE,
    ZERO,
    Disconnected,
    Entry,
    Id,
    RedisLink,
    entries_from,
    entries_parcel,
    parse_id,
    show_id,
)


class Ranges:
    """Ids from one to another, many times; entries between them that went to other readers are never asked for.

    Examples
    --------
    >>> learned = Ranges([((5, 0), (9, 0))]).joined([((1, 0), (2, 0))])
    >>> (2, 0) in learned, (3, 0) in learned, learned.as_text()
    (True, False, [['1-0', '2-0'], ['5-0', '9-0']])
    """

    def __init__(self, pairs: Iterable[tuple[Id, Id]] = ()) -> None:
        self.pairs = sorted(pairs)

    @classmethod
    def from_text(cls, pairs: Iterable[Sequence[str]]) -> Ranges:
        """From a position."""
        return cls((parse_id(first), parse_id(last)) for first, last in pairs)

    def as_text(self) -> list[list[str]]:
        """For a position."""
        return [[show_id(first), show_id(last)] for first, last in self.pairs]

    def __contains__(self, id: Id) -> bool:
        i = bisect_right(self.pairs, id, key=lambda pair: pair[0])
        return i > 0 and id <= self.pairs[i - 1][1]

    def joined(self, pairs: Iterable[tuple[Id, Id]]) -> Ranges:
        """These and others."""
        return Ranges([*self.pairs, *pairs])

    def without(self, others: Ranges) -> Ranges:
        """These but for others."""
        gone = set(others.pairs)
        return Ranges(pair for pair in self.pairs if pair not in gone)


class _Found(NamedTuple):
    """Entries that came."""

    entries: list[Entry]
    is_run: bool = False  # nothing between the first and the last of them went to others


class GroupReader:
    """The entries that a group gives to one consumer.

    A position holds the ids learned since the last acknowledgement but one (``learned``), the newest id, and how many
    entries this consumer ever took (``number``). The last is also kept in Redis when they are acknowledged, so that
    an older position, whose next entries nobody can give again, is known as such.
    """

    def __init__(self, link: RedisLink, consumer: str, reclaim_after: float | None) -> None:
        self.link, self.source, self.consumer, self.reclaim_after = link, link.source, consumer, reclaim_after
        self.memo = f"{{{link.stream}}}:streamboost:{link.source.group}"  # braces: on the same node as the stream
        self.taken = Ranges()  # given out, and not acknowledged for long
        self.durable = Ranges()  # of these, what is safe in a snapshot
        self.last, self.number, self.deleted = ZERO, 0, ZERO
        self._cursor: Id | None = ZERO  # among entries that were given to us before; None: all were looked at
        self._reclaimed = float("-inf")
        self._end: Id | None = None
        self._is_exhausted = False

    # Reading

    def parcels(self, position: Position) -> Generator[Parcel | None, None, None]:
        """The entries after a position, first those that were dealt out to us before."""
        self._begin(position)
        patience = Patience(self.source)
        while True:
            try:
                found = self._next()
            except Disconnected as error:  # an answer may be lost whose entries are pending now
                self._cursor = ZERO
                self.link.wait_for_server(error)
                continue
            if found.entries:
                yield self._parcel(found)
                patience.reset()
                continue
            if self._cursor is not None:
                continue
            if self._end is not None and self._is_exhausted:
                return
            if patience.is_time_to_give():
                yield None
            if patience.is_over():
                return
            if self._is_exhausted:
                info = self.link.info()
                self.link.wait(info.last if info else ZERO, patience.poll())

    def _parcel(self, found: _Found) -> Parcel:
        entries = found.entries
        before = partial(self._position, self.taken, self.last, self.number, found)
        self.taken = self.taken.joined(_pairs(found, len(entries)))
        self.last, self.number = max(self.last, entries[-1].id), self.number + len(entries)
        return entries_parcel(self.source.name, entries, before)

    def _position(self, taken: Ranges, last: Id, number: int, found: _Found, i: int) -> dict[str, Any]:
        return {
            "stream": self.source.name,
            "consumer": self.consumer,
            "learned": taken.joined(_pairs(found, i)).as_text(),
            "last": show_id(max([last, *(entry.id for entry in found.entries[:i])])),
            "number": number + i,
            "deleted": show_id(self.deleted),
        }

    def _next(self) -> _Found:
        if self._cursor is not None:
            return self._pending(self._cursor)
        if self.reclaim_after is not None and time.monotonic() - self._reclaimed >= self.reclaim_after:
            self._reclaimed = time.monotonic()
            if entries := self._claimed(self.reclaim_after):
                return _Found(entries)
        if self._end is not None and self.last >= self._end:
            self._is_exhausted = True
            return _Found([])
        return self._fresh()

    def _pending(self, cursor: Id) -> _Found:
        """Entries that were given to us before and are not acknowledged."""
        found = self._read_group(show_id(cursor))
        self._cursor = found[-1].id if found else None
        return _Found(self._sifted(found))

    def _claimed(self, seconds: float) -> list[Entry]:
        """Entries that other consumers got and do not acknowledge, and so are ours now."""
        entries: list[Entry] = []
        start: Any = b"0-0"
        while True:
            answer = self.link.ask_once(
                partial(
                    self.link.client.xautoclaim,
                    self.link.stream,
                    self.source.group,
                    self.consumer,
                    min_idle_time=int(seconds * 1000),
                    start_id=start,
                    count=AT_ONCE,
                )
            )
            start, found, deleted = answer
            entries += [*entries_from(found), *(Entry(parse_id(id), {}) for id in deleted)]
            if parse_id(start) == ZERO:
                return self._sifted(sorted(entries))

    def _fresh(self) -> _Found:
        """Entries that nobody has yet."""
        link = self.link

        def look(pipe: Any) -> None:
            pipe.xinfo_stream(link.stream)
            pipe.xinfo_groups(link.stream)

        def look_and_read(pipe: Any) -> None:
            look(pipe)
            pipe.xreadgroup(self.source.group, self.consumer, {link.stream: ">"}, count=AT_ONCE)

        self._check_lost(*link.ask(lambda: link.transaction(look)))  # before anything is dealt out, and then at once
        info, groups, answer = link.ask_once(lambda: link.transaction(look_and_read))
        self._check_lost(info, groups)
        found = entries_from(answer[0][1]) if answer else []
        entries = self._sifted(found)
        self._is_exhausted = not found
        return _Found(entries, is_run=len(entries) == len(found))

    def _read_group(self, after: str) -> list[Entry]:
        client, where = self.link.client, {self.link.stream: after}
        answer = self.link.ask_once(lambda: client.xreadgroup(self.source.group, self.consumer, where, count=AT_ONCE))
        return entries_from(answer[0][1]) if answer else []

    def _sifted(self, entries: list[Entry]) -> list[Entry]:
        """Those that are there and new to us; those that are safe in a snapshot are acknowledged again."""
        known = [entry.id for entry in entries if entry.id in self.durable]
        new = [entry for entry in entries if entry.id not in self.durable and entry.id not in self.taken]
        gone = [entry.id for entry in new if not entry.fields]
        if gone:
            self.link.lose(
                f"lost {len(gone)} entries, {show_id(gone[0])} first, that were dealt out but not learned yet",
                "Trim the stream later",
            )
        self._forget([show_id(id) for id in known + gone])
        return [entry for entry in new if entry.fields]

    # Beginnings

    def _begin(self, position: Position) -> None:
        info = self.link.info()
        if not self.source.follow:
            self._end = info.last if info else ZERO
        group = self.link.group()
        if position is None:
            self.link.check_exists(info)
            self.deleted = info.deleted if info else ZERO
            if group is None:
                self._create_group("$" if self.source.start == "latest" else "0")
            self.link.ask(lambda: self.link.client.hdel(self.memo, self.consumer))
            return
        self.taken = self.durable = Ranges.from_text(position["learned"])
        self.last, self.number, self.deleted = (
            parse_id(position["last"]),
            position["number"],
            parse_id(position["deleted"]),
        )
        if group is None:
            self.link.lose(
                f"has no group {self.source.group!r} any more, so nobody knows what was dealt out",
                f"Make it again (XGROUP CREATE, from {position['last']} if there was one reader only)",
            )
            self._create_group(position["last"])
        elif parse_id(group["last-delivered-id"]) < self.last:
            self.link.lose(
                f"has a group {self.source.group!r} that was set back to before {position['last']}, so that entries "
                "would be learned twice",
                f"Set it forward (XGROUP SETID ... {position['last']})",
            )
            client = self.link.client
            self.link.ask(lambda: client.xgroup_setid(self.link.stream, self.source.group, position["last"]))
        self._check_is_newest(position)

    def _create_group(self, id: str) -> None:
        client = self.link.client

        def create() -> None:
            try:
                client.xgroup_create(self.link.stream, self.source.group, id=id, mkstream=True)
            except self.link.redis.exceptions.ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):  # another reader was faster
                    raise

        self.link.ask(create)

    def _check_is_newest(self, position: Mapping[str, Any]) -> None:
        stored = self.link.ask(lambda: self.link.client.hget(self.memo, position["consumer"]))
        lost = int(stored or 0) - self.number
        if lost > 0:
            self.link.lose(
                f"gave {lost} entries to {position['consumer']!r} after this position that were acknowledged since, "
                "and a group gives nothing twice",
                "Resume from the newest snapshot",
            )

    def _check_lost(self, info_answer: Any, groups_answer: Any) -> None:
        """See that nothing was trimmed or deleted that nobody has got yet."""
        info, group = self.link.info_from(info_answer), self.link.group_from(groups_answer)
        if info is None or group is None:
            raise self.link.gone()
        delivered, read = parse_id(group["last-delivered-id"]), group["entries-read"]
        if info.deleted > max(delivered, self.deleted):
            self.deleted = info.deleted
            self.link.lose(f"lost entries before they were read: {show_id(info.deleted)} was deleted", "Delete none")
        elif delivered > ZERO and (lost := info.lost_after(delivered, read)) > 0:
            self.link.lose(
                f"was trimmed: {lost} entries after {show_id(delivered)} were lost unread", "Trim the stream later"
            )

    # Ends

    def acknowledge(self, position: Mapping[str, Any]) -> None:
        """Let Redis forget who has the entries that a position covers, for they are learned."""
        client = self.link.client
        if self.link.group() is None:
            return  # nothing is left to acknowledge
        # First the number: if this is cut short, entries are still pending that need not be; never the reverse.
        self.link.ask(lambda: client.hset(self.memo, self.consumer, position["number"]))
        learned = Ranges.from_text(position["learned"])
        self._forget([show_id(first) for first, last in learned.pairs if first == last])
        for first, last in learned.pairs:
            while first < last and (ids := self._pending_ids(first, last)):
                self._forget(ids)
        # One generation more is remembered: a server that lost its last writes would give these entries again.
        self.taken, self.durable = self.taken.without(self.durable), learned

    def _forget(self, ids: Sequence[str]) -> None:
        for i in range(0, len(ids), AT_ONCE):
            some = ids[i : i + AT_ONCE]
            self.link.ask(partial(self.link.client.xack, self.link.stream, self.source.group, *some))

    def _pending_ids(self, first: Id, last: Id) -> list[str]:
        found = self.link.ask(
            partial(
                self.link.client.xpending_range,
                self.link.stream,
                self.source.group,
                min=show_id(first),
                max=show_id(last),
                count=AT_ONCE,
                consumername=self.consumer,
            )
        )
        return [pending["message_id"].decode() for pending in found]


def _pairs(found: _Found, i: int) -> list[tuple[Id, Id]]:
    """The first i entries as ranges."""
    entries = found.entries[:i]
    if found.is_run and entries:
        return [(entries[0].id, entries[-1].id)]
    return [(entry.id, entry.id) for entry in entries]
