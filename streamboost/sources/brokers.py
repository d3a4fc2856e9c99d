"""What sources of messages have in common: their options, when they wait and when they end, and addresses as text."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, ClassVar, Literal, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from streamboost.sources.base import BadRow, Batch, Piece, Position, Source, check_n_rows, in_batches
from streamboost.sources.messages import Parcel, RowReader
from streamboost.sources.schemas import checked_types, from_text

STARTS = ("earliest", "committed", "latest")
POLL = 0.2  # seconds at most between two looks at whether to stop


class Stopped(Exception):
    """The user asked to stop, while a broker was awaited."""


class LostRows(ValueError):
    """The broker no longer has rows that come next."""


class MessageSource(Source):
    """Rows from the messages of a broker. The options are described where they are used."""

    kind: ClassVar[str]  # of position: the key that names the topic or stream

    def __init__(
        self,
        name: str,
        *,
        group: str,
        start: Literal["earliest", "committed", "latest"],
        types: Mapping[str, Any] | None,
        columns: Sequence[str] | None,
        follow: bool,
        stop: Callable[[], bool] | None,
        idle: float,
        idle_timeout: float | None,
        timeout: float,
        on_bad: Literal["raise", "skip"] | Callable[[BadRow], object],
        on_lost: Literal["raise", "skip"],
    ) -> None:
        for what, text in ((self.kind, name), ("group", group)):
            if not isinstance(text, str) or not text:
                raise ValueError(f"{what} is {text!r}, expected a name.")
        if start not in STARTS:
            raise ValueError(f"start is {start!r}, expected one of {list(STARTS)}. If unsure, leave it out.")
        if on_bad not in ("raise", "skip") and not callable(on_bad):
            raise ValueError(f"on_bad is {on_bad!r}, expected 'raise', 'skip' or a function of the bad row.")
        if on_lost not in ("raise", "skip"):
            raise ValueError(f"on_lost is {on_lost!r}, expected 'raise' or 'skip'.")
        for what, seconds in (("idle", idle), ("timeout", timeout), ("idle_timeout", idle_timeout)):
            if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
                raise ValueError(f"{what} is {seconds!r}, expected seconds above 0. If unsure, leave it out.")
        if isinstance(columns, str):
            raise ValueError(f"columns is {columns!r}, expected a list of names, such as [{columns!r}].")
        self.name, self.group, self.start = name, group, start
        self.types, self.columns = checked_types(types), columns
        self.follow, self.stop, self.idle, self.idle_timeout = follow, stop, idle, idle_timeout
        self.timeout, self.on_bad, self.on_lost = timeout, on_bad, on_lost
        self._schema: Any = None
        self._extent: tuple[float, float] | None = None  # the first and the last of what is to be read, as a progress

    @property
    def schema(self) -> Any:
        """Names and types of the columns so far; None until rows were read, for only reading on can tell."""
        return self._schema

    def share(self, position: Position) -> float | None:
        """How much of what there was when reading began lies before ``position``; None if there is no end."""
        if position is None or self._extent is None or self.follow:
            return None
        (first, last), now = self._extent, self._progress(position)
        return None if now is None else min(1.0, max(0.0, (now - first) / max(last - first, 1.0)))

    def _progress(self, position: Position) -> float | None:
        """A position as a number that grows."""
        return None

    def acknowledge(self, position: Position) -> None:
        """Tell the group what was learned, unless the user gives up while the broker is awaited: it hears next time."""
        if position is None:
            return
        self._check_position(position)
        with suppress(Stopped):
            self._tell_group(position)

    @abstractmethod
    def _tell_group(self, position: Position) -> None:
        """Note a position with the broker."""

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """The rows after ``position``, whatever the broker thinks was read. A new column begins a new batch."""
        check_n_rows(n_rows)
        if position is not None:
            self._check_position(position)
        return self._batches(position, n_rows)

    def _batches(self, position: Position, n_rows: int) -> Iterator[Batch]:
        with closing(self._pieces(position)) as pieces:
            try:
                yield from in_batches(pieces, n_rows)
            except Stopped:
                return

    def _pieces(self, position: Position) -> Generator[Piece | None, None, None]:
        reader = self._reader(None if position is None else from_text(position["schema"]))
        with closing(self._parcels(position)) as parcels:
            for parcel in parcels:
                if parcel is None:
                    yield None
                    continue
                for piece in reader.pieces(parcel, self._bad):
                    self._schema = reader.schema
                    yield piece

    def _reader(self, schema: Any) -> RowReader:
        return RowReader(self.types, self.columns, schema)

    @abstractmethod
    def _parcels(self, position: Position) -> Generator[Parcel | None, None, None]:
        """Messages after a position; None when no more are coming soon."""

    def _check_position(self, position: Position) -> None:
        found = position.get(self.kind) if isinstance(position, Mapping) else None
        if found is None or "schema" not in position:
            raise ValueError(
                f"position is {position!r}, expected one of a batch of this source. To start anew pass None."
            )
        if found != self.name:
            raise ValueError(
                f"the position is of {self.kind} {found!r}, but this source reads {self.name!r}. "
                f"Read {found!r} to go on, or start from None."
            )

    def _bad(self, bad: BadRow) -> None:
        if self.on_bad == "raise":
            raise bad
        if callable(self.on_bad):
            self.on_bad(bad)

    def _is_stopped(self) -> bool:
        return self.stop is not None and self.stop()


class Patience:
    """How long nothing came: when to give what there is, and when to end."""

    def __init__(self, source: MessageSource) -> None:
        self.source = source
        self.reset()

    def reset(self) -> None:
        """Something came."""
        self._since = time.monotonic()
        self._has_given = False

    def is_time_to_give(self) -> bool:
        """Whether a batch should no longer be waited for; said once. What ends gives full batches until then."""
        if not self.source.follow or self._has_given or time.monotonic() - self._since < self.source.idle:
            return False
        self._has_given = True
        return True

    def is_over(self) -> bool:
        """Whether to stop waiting altogether."""
        limit = self.source.idle_timeout
        return self.source._is_stopped() or (limit is not None and time.monotonic() - self._since >= limit)

    def poll(self) -> float:
        """Seconds to wait for a message."""
        return min(POLL, self.source.idle)


class Trial:
    """Attempts to reach a broker, for a while."""

    def __init__(self, source: MessageSource, what: str, say: Callable[[str], None]) -> None:
        self.source, self.what, self.say = source, what, say
        self._since: float | None = None

    def worked(self) -> None:
        """It answered."""
        self._since = None

    def failed(self, reason: object) -> None:
        """It did not answer: say so, once; raise an error if that went on for too long, or the user gave up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self.say(f"{self.what} does not answer ({reason}). Trying again for {self.source.timeout:g} s.")
        if self.source._is_stopped():
            raise Stopped
        if now - self._since >= self.source.timeout:
            raise ConnectionError(
                f"{self.what} did not answer for {self.source.timeout:g} s ({reason}). Start it, or look at the "
                "address; then resume: nothing is lost."
            )


# Addresses


def options_from_address(
    address: str, known: Mapping[str, Callable[[str], Any]], prefix: str, options: Mapping[str, Any]
) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """The parts of ``scheme://place/path?options``: place, path, options, and those for the client library.

    Examples
    --------
    >>> address = "kafka://a:9092,b/clicks?group=g&follow=true&security.protocol=SSL"
    >>> options_from_address(address, {"group": str, "follow": truth}, ".", {})
    ('a:9092,b', 'clicks', {'group': 'g', 'follow': True}, {'security.protocol': 'SSL'})
    """
    parts = urlsplit(address)
    found: dict[str, Any] = {}
    for_client: dict[str, str] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if prefix in name:
            for_client[name.removeprefix(prefix)] = text
            continue
        if name not in known:
            raise ValueError(f"{name!r} in {_shown(address)} is unknown, expected one of {sorted(known)}.")
        if name in options:
            raise ValueError(f"{name} is given twice, in {_shown(address)} and besides. Leave one out.")
        try:
            found[name] = known[name](text)
        except ValueError:
            raise ValueError(f"{name} is {text!r} in {_shown(address)}, expected {_expected(known[name])}.") from None
    return parts.netloc, unquote(parts.path.removeprefix("/")), {**found, **options}, for_client


def _shown(address: str) -> str:
    """An address without a password."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _expected(convert: Callable[[str], Any]) -> str:
    return {float: "a number", truth: "true or false", whole_numbers: "numbers such as 0,2"}.get(convert, "a text")


def truth(text: str) -> bool:
    """A claim in an address."""
    if text.lower() in ("true", "yes", "1", ""):
        return True
    if text.lower() in ("false", "no", "0"):
        return False
    raise ValueError(text)


def words(text: str) -> list[str]:
    """Names between commas."""
    return text.split(",")


def whole_numbers(text: str) -> list[int]:
    """Numbers between commas."""
    return [int(part) for part in text.split(",")]


COMMON_OPTIONS: dict[str, Callable[[str], Any]] = {
    "group": str,
    "start": str,
    "columns": words,
    "follow": truth,
    "idle": float,
    "idle_timeout": float,
    "timeout": float,
    "on_bad": str,
    "on_lost": str,
}


def refuse(address: str, form: str) -> NoReturn:
    """Say how an address is written."""
    raise ValueError(f"{_shown(address)!r} is not an address that can be read, expected {form}.")
