"""Rows from a Redis stream, with redis-py.

Two ways to read. A source without a ``consumer`` is the only reader: it asks for entries by their ids, from those of
the position on, and the group is but told how far it is. With a ``consumer`` the group deals entries out among several
readers, and remembers until they are acknowledged which of them has which: :mod:`streamboost.sources.redis_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from streamboost.errors import require
from streamboost.sources.base import BadRow, Position
from streamboost.sources.brokers import COMMON_OPTIONS, MessageSource, Patience, options_from_address, refuse
from streamboost.sources.messages import Parcel, RowReader, field_values, json_field_values
from streamboost.sources.redis_groups import GroupReader
from streamboost.sources.redis_link import ZERO, Entry, Id, RedisLink, StreamInfo, entries_parcel, parse_id, show_id


class RedisSource(MessageSource):
    """The entries of a stream: their fields are the columns, or one field holds a JSON object.

    Parameters
    ----------
    address : str
        Such as ``"redis://localhost:6379/0"``, or ``"rediss://user:password@host:6380/0"`` for TLS; the last part is
        the database. Redis 7 or newer.
    stream : str
    group : str
        Told of what was learned: it is where the last snapshot is.
    consumer : str, optional
        The name of this reader among several that share the group, each of which gets other entries. Without it this
        source is the only one, reads all, and can go back to any position.
    reclaim_after : float, optional
        Seconds after which entries that another consumer got but never acknowledged are taken over from it. Make it
        longer than the time between two snapshots of the slowest consumer.
    field : str, optional
        The field that holds a JSON object; else every field is a column, and values that look like numbers are.
    start : {"earliest", "committed", "latest"}
        Where to start from position None: at the first entry, where the group is, or after the last entry. A group of
        consumers that exists goes on where it is.
    types, columns, follow, stop, idle, idle_timeout, timeout, on_bad, on_lost
        As in :class:`~streamboost.sources.KafkaSource`.
    client : dict, optional
        For redis-py, such as ``{"ssl_ca_certs": "ca.pem"}``.

    Examples
    --------
    >>> source = RedisSource("redis://localhost:6379/0", "clicks", follow=True)  # doctest: +SKIP
    >>> for batch in source.read(position):  # doctest: +SKIP
    ...     model.learn(batch.table.select(["x"]), batch.table["y"].to_numpy())
    """

    kind = "stream"

    def __init__(
        self,
        address: str,
        stream: str,
        *,
        group: str = "streamboost",
        consumer: str | None = None,
        reclaim_after: float | None = None,
        field: str | None = None,
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
        client: Mapping[str, Any] | None = None,
    ) -> None:
        self._redis = require("redis", extra="redis", by="RedisSource")
        super().__init__(
            stream,
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
        if not isinstance(address, str) or not address.startswith(("redis://", "rediss://")):
            raise ValueError(f"address is {address!r}, expected one such as 'redis://localhost:6379/0'.")
        if consumer == "":
            raise ValueError("consumer is '', expected a name. For the only reader, leave it out.")
        if reclaim_after is not None and (consumer is None or not reclaim_after > 0):
            raise ValueError(
                f"reclaim_after is {reclaim_after!r} with consumer {consumer!r}, expected seconds above 0, and a "
                "consumer to take entries over. Without other consumers, leave it out."
            )
        self.address, self.consumer, self.reclaim_after, self.field = address, consumer, reclaim_after, field
        self.client = dict(client or {})
        self._group_reader: GroupReader | None = None

    def _tell_group(self, position: Position) -> None:
        """Move the group on, or acknowledge entries one by one (XACK)."""
        if self._group_reader is not None:
            self._group_reader.acknowledge(position)
            return
        with self._connect() as link:
            if self.consumer is None:
                _move_group(link, position)
            else:
                GroupReader(link, self.consumer, self.reclaim_after).acknowledge(position)

    def _progress(self, position: Position) -> float | None:
        read: int | None = position.get("read")
        return read

    def _connect(self) -> RedisLink:
        return RedisLink(self, self._redis, self.address, self.client)

    def _reader(self, schema: Any) -> RowReader:
        if self.field is None:
            return RowReader(self.types, self.columns, schema, decode=field_values, is_text=True)
        return RowReader(self.types, self.columns, schema, decode=partial(json_field_values, self.field))

    def _check_position(self, position: Position) -> None:
        super()._check_position(position)
        if ("learned" in position) != (self.consumer is not None):
            taken_by = "a consumer of a group" if self.consumer is None else "the only reader"
            way_out = "Pass consumer=..." if self.consumer is None else "Leave consumer out"
            raise ValueError(f"the position was taken by {taken_by} of this stream. {way_out}, or start from None.")

    def _parcels(self, position: Position) -> Generator[Parcel | None, None, None]:
        with self._connect() as link:
            if self.consumer is None:
                info = link.info()
                self._extent = None if info is None else (info.added - info.length, info.added)
                yield from _OnlyReader(link).parcels(position)
                return
            self._group_reader = GroupReader(link, self.consumer, self.reclaim_after)
            try:
                yield from self._group_reader.parcels(position)
            finally:
                self._group_reader = None


class _Place(NamedTuple):
    """How far a stream was read."""

    last: Id
    read: int | None  # entries up to it, of all there ever were; None while that is not known
    deleted: Id  # the newest deleted entry that was put up with

    def as_position(self, stream: str) -> dict[str, Any]:
        return {"stream": stream, "last": show_id(self.last), "read": self.read, "deleted": show_id(self.deleted)}

    def after(self, entries: Sequence[Entry]) -> _Place:
        if not entries:
            return self
        return self._replace(last=entries[-1].id, read=None if self.read is None else self.read + len(entries))


def _beginning(info: StreamInfo | None) -> _Place:
    """Before the oldest entry there is."""
    return _Place(ZERO, 0, ZERO) if info is None else _Place(ZERO, info.added - info.length, info.deleted)


class _OnlyReader:
    """All entries of a stream, by their ids."""

    def __init__(self, link: RedisLink) -> None:
        self.link, self.source = link, link.source

    def parcels(self, position: Position) -> Generator[Parcel | None, None, None]:
        info, group = self.link.info(), self.link.group()
        if group is not None:
            self._check_group_is_ours()
        if position is None:
            self.link.check_exists(info)
            place = self._first_place(info, group)
        else:
            place = _Place(parse_id(position["last"]), position["read"], parse_id(position["deleted"]))
        is_unread = place.last == ZERO
        end = None if self.source.follow else (info.last if info else ZERO)
        patience = Patience(self.source)
        while True:
            info, entries = self.link.look(place.last, end)
            checked = _beginning(info) if is_unread else self._checked(place, info)
            if checked.last != place.last:  # another stream, of which to read all
                place = checked
                continue
            place = checked
            if entries:
                yield entries_parcel(self.source.name, entries, partial(self._position, place, entries))
                place, is_unread = place.after(entries), False
                patience.reset()
                continue
            if end is not None:
                return
            if patience.is_time_to_give():
                yield None
            if patience.is_over():
                return
            self.link.wait(place.last, patience.poll())

    def _position(self, place: _Place, entries: Sequence[Entry], i: int) -> dict[str, Any]:
        return place.after(entries[:i]).as_position(self.source.name)

    def _first_place(self, info: StreamInfo | None, group: Mapping[str, Any] | None) -> _Place:
        beginning = _beginning(info)
        if info is not None and self.source.start == "latest":
            return beginning._replace(last=info.last, read=info.added)
        if group is not None and self.source.start == "committed":
            return beginning._replace(last=parse_id(group["last-delivered-id"]), read=group["entries-read"])
        return beginning

    def _check_group_is_ours(self) -> None:
        consumers = self.link.ask(lambda: self.link.client.xinfo_consumers(self.source.name, self.source.group))
        if consumers:
            names = ", ".join(repr(consumer["name"].decode(errors="replace")) for consumer in consumers[:3])
            raise ValueError(
                f"group {self.source.group!r} has consumers ({names}) that a reader of its own would disturb. "
                "Pass another group=..., or a consumer=... to be one of them."
            )

    def _checked(self, place: _Place, info: StreamInfo | None) -> _Place:
        """The place, if everything after it is still there."""
        keep = "Trim the stream later"
        if info is None:
            if place.last != ZERO:
                self.link.lose("is gone, with all that was not read", "Put it back, or start from None")
            return _beginning(None)
        lost = info.lost_after(place.last, place.read)
        if lost < 0:
            self.link.lose("was deleted and made anew; what was not read is lost", "Start from None to read it")
            return _beginning(info)
        if info.deleted > max(place.last, place.deleted):
            self.link.lose(f"lost entries before they were read: {show_id(info.deleted)} was deleted", keep)
            return place._replace(read=None, deleted=info.deleted)
        if lost > 0:
            self.link.lose(f"was trimmed: {lost} entries after {show_id(place.last)} were lost unread", keep)
            return place._replace(read=info.added - info.length)
        if place.read is None and place.last == info.last:
            return place._replace(read=info.added)
        return place


def _move_group(link: RedisLink, position: Mapping[str, Any]) -> None:
    """Let the group stand where the position is, so that others can see its lag."""
    stream, group, last = link.stream, link.source.group, position["last"]
    if link.info() is None:
        return  # nothing is left that could lag
    read = {} if position["read"] is None else {"entries_read": position["read"]}

    def move() -> None:  # may be done again, if the answer is lost
        try:
            link.client.xgroup_setid(stream, group, last, **read)
        except link.redis.exceptions.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            link.client.xgroup_create(stream, group, id=last, **read)

    link.ask(move)


def open_redis(address: str, options: Mapping[str, Any]) -> RedisSource:
    """The source at ``redis://host:port/database/stream?group=g``; options ``client.*`` are redis-py's."""
    known: dict[str, Callable[[str], Any]] = {**COMMON_OPTIONS, "consumer": str, "reclaim_after": float, "field": str}
    server, path, found, client = options_from_address(address, known, "client.", options)
    database, _, stream = path.partition("/")
    if not server or not database.isdecimal() or not stream:
        refuse(address, "redis://host:port/0/stream?group=..., where 0 is the database")
    found["client"] = {**client, **(found.get("client") or {})}
    return RedisSource(f"{address.partition('://')[0]}://{server}/{database}", stream, **found)
