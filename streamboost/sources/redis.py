"""Rows from a Redis stream, with redis-py: entries are read by their ids, from that of the position on."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from streamboost.errors import require
from streamboost.sources.base import Position
from streamboost.sources.message_source import COMMON_OPTIONS, POLL, MessageSource, refuse_address, split_address
from streamboost.sources.messages import MessageBatch, RowReader, field_values, json_field_values
from streamboost.sources.redis_client import Entry, Id, RedisClient, StreamInfo, parse_id, show_id

ZERO: Id = (0, 0)


@dataclass(eq=False, repr=False)
class RedisSource(MessageSource):
    """The entries of a stream: their fields are the columns, or one field holds a JSON object.

    Nothing is written to Redis: the position alone says what was read.

    Parameters
    ----------
    address : str
        As redis-py takes it, such as ``"redis://localhost:6379/0"``, or
        ``"rediss://user:password@host:6380/0?ssl_ca_certs=ca.pem"`` for TLS; the last part is the database. Redis 7 or
        newer.
    stream : str
    field : str, optional
        The field that holds a JSON object; by default every field is a column, and values that look like numbers are.
    types, kinds, columns, start, follow, stop, timeout, on_bad, on_lost
        As in :class:`~streamboost.sources.KafkaSource`.

    Examples
    --------
    >>> source = RedisSource("redis://localhost:6379/0", "clicks", follow=True)  # doctest: +SKIP
    >>> for batch in source.read(position):  # doctest: +SKIP
    ...     model.learn(batch.table.select(["x"]), batch.table["y"].to_numpy())
    """

    kind = "stream"
    keys = frozenset({"last", "read", "deleted"})
    address: str
    stream: str
    _: KW_ONLY
    field: str | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        self._redis = require("redis", extra="redis", by="RedisSource")
        super().__post_init__()

    def _as_number(self, position: Position) -> float | None:
        read: int | None = position.get("read")
        return read

    def _reader(self, schema: Any) -> RowReader:
        is_text = self.field is None
        decode = field_values if self.field is None else partial(json_field_values, self.field)
        types = self.types or {}
        return RowReader(types, self.columns, schema, decode=decode, is_text=is_text, kinds=self.kinds)

    def _messages(self, position: Position) -> Generator[MessageBatch | None, None, None]:
        with RedisClient(self, self._redis, self.address) as client:
            info, _ = client.fetch(ZERO, ZERO)
            self._extent = None if info is None else (info.added - info.length, info.added)
            end = None if self.follow else (info.last if info else ZERO)
            place = self._first_place(info, client.server) if position is None else _StreamPlace.at(position)
            while True:
                info, entries = client.fetch(place.last, end)
                checked = _beginning(info) if place.last == ZERO else self._available(place, info)
                if checked.last != place.last:  # another stream, of which to read all
                    place = checked
                    continue
                place = checked
                if entries:
                    yield self._batch(place, entries)
                    place = place.after(entries)
                elif end is not None or self.is_stopped():
                    return
                elif not client.wait(place.last, POLL):
                    yield None

    def _first_place(self, info: StreamInfo | None, server: str) -> _StreamPlace:
        if info is None and not self.follow:
            way_out = "Look for a typo, or pass follow=True (--follow) to wait for its first entry."
            raise ValueError(f"{server} has no stream {self.name!r} in this database. {way_out}")
        if info is not None and self.start == "latest":
            return _beginning(info)._replace(last=info.last, read=info.added)
        return _beginning(info)

    def _batch(self, place: _StreamPlace, entries: Sequence[Entry]) -> MessageBatch:
        return MessageBatch(
            [entry.fields for entry in entries],
            lambda i: place.after(entries[:i]).as_position(self.name),
            lambda i: f"stream {self.name}, entry {show_id(entries[i].id)}",
        )

    def _available(self, place: _StreamPlace, info: StreamInfo | None) -> _StreamPlace:
        """Return the place if everything after it is still there, else report the loss."""
        if info is None:
            if place.last != ZERO:
                self.report_lost(" is gone, with all that was not read. Put it back, or start from None")
            return _beginning(None)
        lost = info.lost_after(place.last, place.read)
        if lost < 0:
            self.report_lost(" was deleted and made anew; what was not read is lost. Start from None to read it")
            return _beginning(info)
        if info.deleted > max(place.last, place.deleted):
            deleted = show_id(info.deleted)
            self.report_lost(f" lost entries before they were read: {deleted} was deleted. Delete what was read")
            return place._replace(read=None, deleted=info.deleted)
        if lost > 0:
            after = show_id(place.last)
            self.report_lost(f" was trimmed: {lost} entries after {after} were lost unread. Trim the stream later")
            return place._replace(read=info.added - info.length)
        if place.read is None and place.last == info.last:
            return place._replace(read=info.added)
        return place


class _StreamPlace(NamedTuple):
    """How far a stream was read."""

    last: Id
    read: int | None  # entries up to it, of all there ever were; None while that is not known
    deleted: Id  # the newest deleted entry that was put up with

    @classmethod
    def at(cls, position: Mapping[str, Any]) -> _StreamPlace:
        return cls(parse_id(position["last"]), position["read"], parse_id(position["deleted"]))

    def as_position(self, stream: str) -> dict[str, Any]:
        return {"stream": stream, "last": show_id(self.last), "read": self.read, "deleted": show_id(self.deleted)}

    def after(self, entries: Sequence[Entry]) -> _StreamPlace:
        if not entries:
            return self
        return self._replace(last=entries[-1].id, read=None if self.read is None else self.read + len(entries))


def _beginning(info: StreamInfo | None) -> _StreamPlace:
    """Return the place before the oldest entry."""
    return _StreamPlace(ZERO, 0, ZERO) if info is None else _StreamPlace(ZERO, info.added - info.length, info.deleted)


def open_redis(address: str, options: Mapping[str, Any]) -> RedisSource:
    """Open ``redis://host:port/database/stream?field=json``; the rest of the query goes to redis-py."""
    server, path, found, for_client = split_address(address, {**COMMON_OPTIONS, "field": str})
    database, _, stream = path.partition("/")
    if not server or not database.isdecimal() or not stream:
        refuse_address(address, "redis://host:port/0/stream, where 0 is the database")
    query = f"?{urlencode(for_client)}" if for_client else ""
    return RedisSource(f"{address.partition('://')[0]}://{server}/{database}{query}", stream, **found, **options)
