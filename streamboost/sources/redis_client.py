"""A connection to Redis: requests that are repeated until it responds, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from streamboost.sources.message_source import BrokerUnavailable, MessageSource

Id: TypeAlias = tuple[int, int]
T = TypeVar("T")
FETCH = 1000  # entries
ATTEMPT_SECONDS = 5.0  # seconds for one attempt


class Entry(NamedTuple):
    """An entry of a stream."""

    id: Id
    fields: Mapping[bytes, bytes]


class StreamInfo(NamedTuple):
    """What Redis says of a stream."""

    length: int
    first: Id | None  # the oldest entry there is
    last: Id  # the newest there ever was
    added: int  # entries there ever were
    deleted: Id  # the newest that was deleted

    def lost_after(self, last: Id, read: int | None) -> int:
        """Count the entries trimmed after ``last``, up to which there were ``read``; below 0 in a new stream."""
        if self.last < last or (read is not None and self.added < read):
            return -1
        if read is None or (self.first is not None and self.first <= last):
            return 0  # trimming starts with the oldest, which is still there
        return self.added - read - self.length


def parse_id(text: bytes | str) -> Id:
    """Return an id as numbers that compare.

    Examples
    --------
    >>> parse_id("1700000000000-2")
    (1700000000000, 2)
    """
    milliseconds, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(milliseconds), int(number or 0)


def show_id(id: Id) -> str:
    """Return an id as Redis writes it."""
    return f"{id[0]}-{id[1]}"


class RedisClient:
    """A reader of one stream."""

    def __init__(self, source: MessageSource, redis: ModuleType, address: str) -> None:
        parts = urlsplit(address)
        self.source, self.errors, self.stream = source, redis.exceptions, source.name
        self.server = f"Redis at {parts.hostname}:{parts.port or 6379}"
        self.client = redis.Redis.from_url(
            address,
            socket_timeout=ATTEMPT_SECONDS,
            socket_connect_timeout=ATTEMPT_SECONDS,
            protocol=2,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),  # it is asked again here, unless the user gives up
        )
        try:
            self.client.connection_pool.make_connection()
        except TypeError as error:
            raise ValueError(f"redis-py refuses the options of the address: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _request(self, request: Callable[[], T]) -> T:
        """Repeat a request until there is a response, or ``timeout`` is over."""
        return self.source.retry(self.server, lambda: self._attempt(request))

    def _attempt(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except self.errors.AuthenticationError as error:
            raise ConnectionError(f"{self.server} refuses to talk: {error}. Look at user and password.") from error
        except (self.errors.ConnectionError, self.errors.TimeoutError) as error:
            raise BrokerUnavailable(error) from error
        except self.errors.NoPermissionError as error:
            raise PermissionError(f"{self.server} does not allow this: {error}") from error
        except self.errors.ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                told = "is not a stream. Look for a typo, also in the database."
                raise ValueError(f"{self.stream!r} at {self.server} {told}") from error
            raise ValueError(f"{self.server} cannot do this: {error}. Redis 7 or newer is expected.") from error

    def fetch(self, after: Id, until: Id | None) -> tuple[StreamInfo | None, list[Entry]]:
        """Return the stream's info, None if there is no stream, and its next entries, in one transaction."""
        start, end = f"({show_id(after)}", "+" if until is None else show_id(until)
        info, found = self._request(lambda: self._fetch_once(start, end))
        if info is None:
            return None, []
        if "entries-added" not in info:
            raise ValueError(f"{self.server} is too old to say what was trimmed, expected Redis 7 or newer.")
        first = info["first-entry"]
        oldest = None if first is None else parse_id(first[0])
        newest, deleted = parse_id(info["last-generated-id"]), parse_id(info["max-deleted-entry-id"])
        stream = StreamInfo(info["length"], oldest, newest, info["entries-added"], deleted)
        return stream, [Entry(parse_id(id), fields) for id, fields in found]

    def _fetch_once(self, first: str, last: str) -> tuple[Any, Any]:
        with self.client.pipeline(transaction=True) as pipe:
            pipe.xinfo_stream(self.stream)
            pipe.xrange(self.stream, first, last, count=FETCH)
            info, found = pipe.execute(raise_on_error=False)
        for answer in (info, found):
            if isinstance(answer, Exception) and "no such key" not in str(answer):
                raise answer
        return (None, []) if isinstance(info, Exception) else (info, found)

    def wait(self, after: Id, seconds: float) -> bool:
        """Wait for an entry after ``after``; return True if there is one in time."""
        streams, milliseconds = {self.stream: show_id(after)}, int(seconds * 1000)
        return bool(self._request(lambda: self.client.xread(streams, count=1, block=milliseconds)))
