"""A connection to Redis: questions that are asked until there is an answer, and errors that say what to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from streamboost.sources.brokers import LostRows, MessageSource, Trial
from streamboost.sources.messages import Parcel

Id: TypeAlias = tuple[int, int]
T = TypeVar("T")
AT_ONCE = 1000  # entries
PAUSE = 0.1  # seconds between two attempts
GRACE = 5.0  # seconds for one attempt
ZERO: Id = (0, 0)

logger = logging.getLogger(__name__)


class Disconnected(Exception):
    """The server went away during a question that must not simply be asked again."""


class Entry(NamedTuple):
    """An entry of a stream; it has no fields if it was deleted."""

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
        """How many of the entries after ``last`` were trimmed, if ``read`` is the number of those up to it.

        Below 0 if there are more than were ever added after it: then this is another stream of the same name.
        """
        if self.last < last or (read is not None and self.added < read):
            return -1
        if read is None or (self.first is not None and self.first <= last):
            return 0  # trimming starts with the oldest, which is still there
        return self.added - read - self.length


def parse_id(text: bytes | str) -> Id:
    """An id as numbers that compare.

    Examples
    --------
    >>> parse_id("1700000000000-2")
    (1700000000000, 2)
    """
    milliseconds, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(milliseconds), int(number or 0)


def show_id(id: Id) -> str:
    """An id as Redis writes it."""
    return f"{id[0]}-{id[1]}"


class RedisLink:
    """One stream on one server."""

    def __init__(
        self, source: MessageSource, redis: ModuleType, address: str, client_options: Mapping[str, Any]
    ) -> None:
        parts = urlsplit(address)
        self.source, self.redis, self.stream = source, redis, source.name
        self.what = f"Redis at {parts.hostname}:{parts.port or 6379}"
        self.trial = Trial(source, self.what, logger.warning)
        # redis-py must not ask again by itself: the entries of a lost answer would stay pending, unseen.
        never_again = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        options = {"socket_timeout": GRACE, "socket_connect_timeout": GRACE, **client_options}
        try:
            self.client = redis.Redis.from_url(
                address, **options, decode_responses=False, protocol=2, retry=never_again, retry_on_error=[]
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"redis-py refuses these options: {error}.") from error

    def __enter__(self) -> RedisLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def ask(self, question: Callable[[], T]) -> T:
        """Ask until there is an answer, or ``timeout`` is over."""
        while True:
            try:
                return self.ask_once(question)
            except Disconnected as error:
                self.wait_for_server(error)

    def ask_once(self, question: Callable[[], T]) -> T:
        """Ask, and raise :class:`Disconnected` if the server went away meanwhile."""
        errors = self.redis.exceptions
        try:
            answer = question()
        except errors.AuthenticationError as error:
            raise ConnectionError(f"{self.what} refuses to talk: {error}. Look at user and password.") from error
        except (errors.ConnectionError, errors.TimeoutError) as error:
            raise Disconnected(error) from error
        except errors.ResponseError as error:
            raise self._explained(error) from error
        self.trial.worked()
        return answer

    def wait_for_server(self, reason: object) -> None:
        """Before the next attempt; raises an error after the last."""
        self.trial.failed(reason)
        time.sleep(PAUSE)

    def _explained(self, error: Exception) -> Exception:
        said = str(error)
        if said.startswith("WRONGTYPE"):
            return ValueError(f"{self.stream!r} at {self.what} is not a stream. Look for a typo, also in the database.")
        if said.startswith(("NOPERM", "No permission")) or "no permission" in said.lower():
            return PermissionError(f"{self.what} does not allow this: {said}")
        if said.startswith("NOGROUP"):
            return self.gone()
        return ValueError(f"{self.what} cannot do this: {said}. Redis 7 or newer is expected.")

    def gone(self) -> LostRows:
        """The error that there is nothing to read from any more."""
        return LostRows(
            f"stream {self.stream!r} at {self.what}, or its group {self.source.group!r}, was deleted while it was "
            "read. Put it back, or start from None."
        )

    # Questions

    def transaction(self, fill: Callable[[Any], object]) -> list[Any]:
        """Answers to several commands that nothing came between; errors stand among them."""
        with self.client.pipeline(transaction=True) as pipe:
            fill(pipe)
            answers: list[Any] = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and "no such key" not in str(answer):
                raise answer
        return answers

    def look(self, after: Id, until: Id | None) -> tuple[StreamInfo | None, list[Entry]]:
        """What Redis says of the stream, and the entries that come next, at one moment."""

        def fill(pipe: Any) -> None:
            pipe.xinfo_stream(self.stream)
            pipe.xrange(self.stream, f"({show_id(after)}", "+" if until is None else show_id(until), count=AT_ONCE)

        info, found = self.ask(lambda: self.transaction(fill))
        return self.info_from(info), entries_from(found)

    def info(self) -> StreamInfo | None:
        """What Redis says of the stream, if there is one."""
        return self.info_from(self.ask(lambda: self.transaction(lambda pipe: pipe.xinfo_stream(self.stream)))[0])

    def info_from(self, answer: Any) -> StreamInfo | None:
        """The answer to XINFO STREAM, read."""
        if isinstance(answer, Exception):
            return None
        if "entries-added" not in answer:
            raise ValueError(f"{self.what} is too old to say what was trimmed, expected Redis 7 or newer.")
        first = answer["first-entry"]
        return StreamInfo(
            answer["length"],
            None if first is None else parse_id(first[0]),
            parse_id(answer["last-generated-id"]),
            answer["entries-added"],
            parse_id(answer["max-deleted-entry-id"]),
        )

    def group(self) -> Mapping[str, Any] | None:
        """What Redis says of the group, if there is one."""
        answers = self.ask(lambda: self.transaction(lambda pipe: pipe.xinfo_groups(self.stream)))[0]
        return self.group_from(answers)

    def group_from(self, answer: Any) -> Mapping[str, Any] | None:
        """The answer to XINFO GROUPS, read."""
        if isinstance(answer, Exception):
            return None
        found = [group for group in answer if group["name"] == self.source.group.encode()]
        return found[0] if found else None

    def wait(self, after: Id, seconds: float) -> None:
        """Until there is an entry after ``after``, or the time is over."""
        block = max(1, int(seconds * 1000))
        self.ask(lambda: self.client.xread({self.stream: show_id(after)}, count=1, block=block))

    def check_exists(self, info: StreamInfo | None) -> None:
        """Refuse a stream that is not there, unless it is worth waiting for."""
        if info is None and not self.source.follow:
            raise ValueError(
                f"{self.what} has no stream {self.stream!r} in this database. "
                "Look for a typo, or pass follow=True (--follow) to wait for its first entry."
            )

    def lose(self, said: str, way_out: str) -> None:
        """Raise an error about lost rows, or go on with a warning."""
        said = f"stream {self.stream!r} {said}. {way_out}, or pass on_lost='skip' to go on with what there is."
        if self.source.on_lost == "raise":
            raise LostRows(said)
        logger.warning(said)


def entries_from(found: Any) -> list[Entry]:
    """Entries as redis-py gives them."""
    if found is None or isinstance(found, Exception):
        return []
    return [Entry(parse_id(id), fields or {}) for id, fields in found]


def entries_parcel(stream: str, entries: Sequence[Entry], before: Callable[[int], dict[str, Any]]) -> Parcel:
    """Entries as messages."""
    return Parcel(
        [entry.fields for entry in entries], before, lambda i: f"stream {stream}, entry {show_id(entries[i].id)}"
    )
