"""What sources of messages share: their options, how long they wait for a broker, and addresses as text."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from streamboost.features.reading import Kind
from streamboost.sources.base import (
    Batch,
    ForeignPosition,
    OnBad,
    Piece,
    Position,
    Source,
    bad_position,
    check_on_bad,
    rebatch,
)
from streamboost.sources.messages import MessageBatch, RowReader
from streamboost.sources.schemas import checked_types, from_text

STARTS = ("earliest", "latest")
POLL = 0.5  # seconds to wait for a message before a batch that is not full is yielded
PAUSE = 0.1  # seconds between two attempts to reach a broker
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The user asked to stop, while a broker was awaited."""


class BrokerUnavailable(Exception):
    """A broker does not respond; it is asked again."""


class LostRows(ValueError):
    """The broker no longer has rows that come next."""


@dataclass(kw_only=True, eq=False, repr=False)
class MessageSource(Source):
    """Rows from the messages of a broker; :class:`~streamboost.sources.KafkaSource` describes the options."""

    kind: ClassVar[str]  # of position: the attribute and key that names the topic or stream
    keys: ClassVar[frozenset[str]]  # what else a position holds
    types: Mapping[str, Any] | None = None
    kinds: Mapping[str, Kind] | None = None
    columns: Sequence[str] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    follow: bool = False
    stop: Callable[[], bool] | None = None
    timeout: float = 30.0
    on_bad: OnBad = "raise"
    on_lost: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        """Check the options."""
        self.name: str = getattr(self, self.kind)
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"{self.kind} is {self.name!r}, expected a name.")
        if self.start not in STARTS:
            raise ValueError(f"start is {self.start!r}, expected one of {list(STARTS)}. If unsure, leave it out.")
        check_on_bad(self.on_bad)
        if self.on_lost not in ("raise", "skip"):
            raise ValueError(f"on_lost is {self.on_lost!r}, expected 'raise' or 'skip'.")
        if not (isinstance(self.timeout, (int, float)) and self.timeout > 0):
            raise ValueError(f"timeout is {self.timeout!r}, expected seconds above 0. If unsure, leave it out.")
        if isinstance(self.columns, str):
            raise ValueError(f"columns is {self.columns!r}, expected a list of names, such as [{self.columns!r}].")
        self.types = checked_types(self.types)
        self._schema: Any = None
        self._extent: tuple[float, float] | None = None  # the first and the last of what is to be read, as a progress

    @property
    def schema(self) -> Any:
        """Return names and types of the columns so far; None until rows were read, for only reading on can tell."""
        return self._schema

    def progress(self, position: Position) -> float | None:
        """Return the share before ``position`` of what there was when reading began; None if there is no end."""
        if position is None or self._extent is None or self.follow:
            return None
        (first, last), now = self._extent, self._as_number(position)
        return None if now is None else min(1.0, max(0.0, (now - first) / max(last - first, 1.0)))

    @abstractmethod
    def _as_number(self, position: Position) -> float | None:
        """Return a position as a number that grows."""

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Yield the rows after ``position``, whatever the broker thinks was read. A new column begins a new batch."""
        if position is not None:
            self._check_position(position)
        pieces = self._pieces(position)
        return self._until_stopped(pieces, rebatch(pieces, n_rows))

    @staticmethod
    def _until_stopped(pieces: Generator[Piece | None, None, None], batches: Iterator[Batch]) -> Iterator[Batch]:
        with closing(pieces), suppress(Stopped):
            yield from batches

    def _pieces(self, position: Position) -> Generator[Piece | None, None, None]:
        reader = self._reader(None if position is None else from_text(position["schema"]))
        with closing(self._messages(position)) as batches:
            for batch in batches:
                if batch is None:
                    yield None
                    continue
                for piece in reader.pieces(batch, lambda bad: bad.handle(self.on_bad)):
                    self._schema = reader.schema
                    yield piece

    def _reader(self, schema: Any) -> RowReader:
        return RowReader(self.types or {}, self.columns, schema, kinds=self.kinds)

    @abstractmethod
    def _messages(self, position: Position) -> Generator[MessageBatch | None, None, None]:
        """Yield messages after a position, and None when no more are coming soon."""

    def _check_position(self, position: Position) -> None:
        if not isinstance(position, Mapping) or not {self.kind, "schema"} | self.keys <= position.keys():
            raise bad_position(position)
        if (found := position[self.kind]) != self.name:
            told = f"the position is of {self.kind} {found!r}, but this source reads {self.name!r}"
            raise ForeignPosition(told, f"Read {found!r} to go on, or start from None.")

    def is_stopped(self) -> bool:
        """Return True if the user asked to stop."""
        return self.stop is not None and self.stop()

    def retry(self, broker: str, request: Callable[[], T]) -> T:
        """Repeat a request until the broker responds; ``ConnectionError`` after ``timeout`` seconds."""
        began, is_told = time.monotonic(), False
        while True:
            try:
                return request()
            except BrokerUnavailable as error:
                if self.is_stopped():
                    raise Stopped from error
                if time.monotonic() - began >= self.timeout:
                    way_out = "Start it, or look at the address and its settings; then resume: nothing is lost."
                    found = f"{broker} did not answer for {self.timeout:g} s ({error})"
                    raise ConnectionError(f"{found}. {way_out}") from error
                if not is_told:
                    logger.warning(f"{broker} does not answer ({error}). Trying again for {self.timeout:g} s.")
                    is_told = True
                time.sleep(PAUSE)

    def report_lost(self, said: str) -> None:
        """Raise :class:`LostRows`, or log a warning if ``on_lost`` is "skip"."""
        said = f"{self.kind} {self.name!r}{said}; to go on with what there is, pass on_lost='skip'."
        if self.on_lost == "raise":
            raise LostRows(said)
        logger.warning(said)


# Addresses

COMMON_OPTIONS: dict[str, Callable[[str], Any]] = {"start": str, "columns": lambda x: x.split(","), "on_lost": str}


def split_address(
    address: str, options: Mapping[str, Callable[[str], Any]]
) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """Split ``scheme://place/path?query`` into place, path, the options among the query, and the rest of it."""
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    found = {name: convert(query.pop(name)) for name, convert in options.items() if name in query}
    return parts.netloc, unquote(parts.path.removeprefix("/")), found, query


def refuse_address(address: str, form: str) -> NoReturn:
    """Raise an error that says how an address is written, without showing its password."""
    parts = urlsplit(address)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    raise ValueError(f"{shown!r} is not an address that can be read, expected {form}.")
