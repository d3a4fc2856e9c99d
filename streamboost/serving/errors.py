"""Refusals of requests, and limits on what a request may bring."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException

RETRY = {"Retry-After": "1"}


class Refused(HTTPException):
    """A request refused with a status and a sentence: what was wrong, what was expected, what to do."""


@dataclass(frozen=True)
class Limits:
    """How much the server takes on.

    Parameters
    ----------
    body_bytes, held_bytes : int
        The largest body of a request (default 16 MB), and all bodies in memory together (256 MB).
    decoded_bytes : int
        What the columns of a body may become when each value is written out (48 MB).
    rows, columns, cells : int
        Rows of a request (10,000), columns of a request and of the model (1,000), rows times columns (4,000,000).
    values : int
        Of a body in JSON (1,000,000).
    classes, column_classes : int
        Classes of the model (256), and its columns times its classes (20,000): what a row costs to be learned.
    answer_cells : int
        Rows of a request to predict times the classes of the model (1,000,000).
    name_length, key_length, id_length : int
        Letters of a column's name, of a row's key, of a request's id (256 each).
    body_seconds, header_seconds, write_seconds : float
        In which a body (30) and the head of a request (10) must have come, and a client must have read something of a
        response (30).
    header_bytes : int
        Of such a head (65,536).
    waiting : int
        Requests to learn that wait for the writer (256).
    connections, event_streams : int
        Open at a time (1,000), half of them for known tokens alone; of them, pages that watch (100).

    Examples
    --------
    >>> Limits(rows=100).rows, Limits().body_bytes
    (100, 16000000)
    """

    body_bytes: int = 16_000_000
    held_bytes: int = 256_000_000
    decoded_bytes: int = 48_000_000
    rows: int = 10_000
    columns: int = 1_000
    cells: int = 4_000_000
    values: int = 1_000_000
    classes: int = 256
    column_classes: int = 20_000
    answer_cells: int = 1_000_000
    name_length: int = 256
    key_length: int = 256
    id_length: int = 256
    body_seconds: float = 30.0
    header_seconds: float = 10.0
    write_seconds: float = 30.0
    header_bytes: int = 65_536
    waiting: int = 256
    connections: int = 1_000
    event_streams: int = 100

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} is {value!r}, expected a number above 0. If unsure, leave it out.")
