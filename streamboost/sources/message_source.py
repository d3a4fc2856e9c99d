"""What sources of messages have in common: their options, how long they wait for a broker, and addresses as text."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from streamboost.sources.base import BadRow, Batch, Piece, Position, Source, check_n_rows, in_batches
from streamboost.sources.messages import MessageBatch, RowReader
from streamboost.sources.schemas import checked_types, from_text

STARTS = ("earliest", "latest")
POLL = 0.5  # seconds to wait for a message, before a batch that is not full is given and a wish to stop is heard
PAUSE = 0.1  # seconds between two attempts to reach a broker
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The user asked to stop, while a broker was awaited."""


class Away(Exception):
    """A broker does not answer."""


class LostRows(ValueError):
    """The broker no longer has rows that come next."""


@dataclass(kw_only=True, eq=False, repr=False)
class MessageSource(Source):
    """Rows from the messages of a broker. The options are described where they are used."""

    kind: ClassVar[str]  # of position: the attribute and key that names the topic or stream
    keys: ClassVar[frozenset[str]]  # what else a position holds
    types: Mapping[str, Any] | None = None
    columns: Sequence[str] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    follow: bool = False
    stop: Callable[[], bool] | None = None
    timeout: float = 30.0
    on_bad: Literal["raise", "skip"] | Callable[[BadRow], object] = "raise"
    on_lost: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        self.name: str = getattr(self, self.kind)
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"{self.kind} is {self.name!r}, expected a name.")
        if self.start not in STARTS:
            raise ValueError(f"start is {self.start!r}, expected one of {list(STARTS)}. If unsure, leave it out.")
        if self.on_bad not in ("raise", "skip") and not callable(self.on_bad):
            raise ValueError(f"on_bad is {self.on_bad!r}, expected 'raise', 'skip' or a function of the bad row.")
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
        """Names and types of the columns so far; None until rows were read, for only reading on can tell."""
        return self._schema

    def share(self, position: Position) -> float | None:
        """How much of what there was when reading began lies before ``position``; None if there is no end."""
        if position is None or self._extent is None or self.follow:
            return None
        (first, last), now = self._extent, self._progress(position)
        return None if now is None else min(1.0, max(0.0, (now - first) / max(last - first, 1.0)))

    @abstractmethod
    def _progress(self, position: Position) -> float | None:
        """A position as a number that grows."""

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """The rows after ``position``, whatever the broker thinks was read. A new column begins a new batch."""
        check_n_rows(n_rows)
        if position is not None:
            self._check_position(position)
        return self._batches(position, n_rows)

    def _batches(self, position: Position, n_rows: int) -> Iterator[Batch]:
        with closing(self._pieces(position)) as pieces, suppress(Stopped):
            yield from in_batches(pieces, n_rows)

    def _pieces(self, position: Position) -> Generator[Piece | None, None, None]:
        reader = self._reader(None if position is None else from_text(position["schema"]))
        with closing(self._messages(position)) as batches:
            for batch in batches:
                if batch is None:
                    yield None
                    continue
                for piece in reader.pieces(batch, self._bad):
                    self._schema = reader.schema
                    yield piece

    def _reader(self, schema: Any) -> RowReader:
        return RowReader(self.types or {}, self.columns, schema)

    @abstractmethod
    def _messages(self, position: Position) -> Generator[MessageBatch | None, None, None]:
        """Messages after a position; None when no more are coming soon."""

    def _check_position(self, position: Position) -> None:
        if not isinstance(position, Mapping) or not {self.kind, "schema"} | self.keys <= position.keys():
            raise ValueError(
                f"position is {position!r}, expected one of a batch of this source. To start anew pass None."
            )
        if (found := position[self.kind]) != self.name:
            raise ValueError(
                f"the position is of {self.kind} {found!r}, but this source reads {self.name!r}. "
                f"Read {found!r} to go on, or start from None."
            )

    def _bad(self, bad: BadRow) -> None:
        if self.on_bad == "raise":
            raise bad
        if callable(self.on_bad):
            self.on_bad(bad)

    def is_stopped(self) -> bool:
        """Whether the user asked to stop."""
        return self.stop is not None and self.stop()

    def ask(self, broker: str, question: Callable[[], T]) -> T:
        """Ask a broker until it answers.

        Raises
        ------
        ConnectionError
            If it is :class:`Away` for ``timeout`` seconds.
        Stopped
            If the user gives up before.
        """
        began, is_told = time.monotonic(), False
        while True:
            try:
                return question()
            except Away as error:
                if self.is_stopped():
                    raise Stopped from error
                if time.monotonic() - began >= self.timeout:
                    raise ConnectionError(
                        f"{broker} did not answer for {self.timeout:g} s ({error}). Start it, or look at the address "
                        "and its settings; then resume: nothing is lost."
                    ) from error
                if not is_told:
                    logger.warning(f"{broker} does not answer ({error}). Trying again for {self.timeout:g} s.")
                    is_told = True
                time.sleep(PAUSE)

    def lose(self, said: str) -> None:
        """Raise an error about lost rows, or go on with a warning."""
        said = f"{self.kind} {self.name!r}{said}; to go on with what there is, pass on_lost='skip'."
        if self.on_lost == "raise":
            raise LostRows(said)
        logger.warning(said)


# Addresses


def split_address(
    address: str, options: Mapping[str, Callable[[str], Any]]
) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """The parts of ``scheme://place/path?query``: place, path, the options among the query, and the rest of it.

    Examples
    --------
    >>> split_address("kafka://a:9092,b/clicks?columns=x,y&security.protocol=SSL", {"columns": words})
    ('a:9092,b', 'clicks', {'columns': ['x', 'y']}, {'security.protocol': 'SSL'})
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    found = {name: convert(query.pop(name)) for name, convert in options.items() if name in query}
    return parts.netloc, unquote(parts.path.removeprefix("/")), found, query


def words(text: str) -> list[str]:
    """Names between commas."""
    return text.split(",")


COMMON_OPTIONS: dict[str, Callable[[str], Any]] = {"start": str, "columns": words, "on_lost": str}


def refuse(address: str, form: str) -> NoReturn:
    """Say how an address is written, without its password."""
    parts = urlsplit(address)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    raise ValueError(f"{shown!r} is not an address that can be read, expected {form}.")
