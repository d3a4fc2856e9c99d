"""What a request is refused with, and how much a request may bring."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException

RETRY = {"Retry-After": "1"}


class Refused(HTTPException):
    """A request answered with a status and a sentence: what was wrong, what was expected, what to do.

    Nothing was changed.
    """


@dataclass(frozen=True)
class Limits:
    """How much the server takes on.

    Parameters
    ----------
    body_bytes : int
        The largest body of a request.
    held_bytes : int
        Bodies of all requests that wait for their answer, together.
    rows : int
        Rows of one request.
    columns : int
        Columns of one request, and of the model.
    cells : int
        Rows of one request times columns: rows need not all have the same.
    classes : int
        Classes of the model: each more makes learning slower.
    name_length, key_length, id_length : int
        Letters of a column's name, of a row's key, of a request's id.
    body_seconds : float
        In which a body must have come.
    header_seconds : float
        In which the head of a request must have come.
    header_bytes : int
        Of such a head.
    waiting : int
        Requests to learn that wait for the writer.
    connections : int
        Open at a time.

    Examples
    --------
    >>> Limits(rows=100).rows, Limits().body_bytes
    (100, 16000000)
    """

    body_bytes: int = 16_000_000
    held_bytes: int = 256_000_000
    rows: int = 10_000
    columns: int = 1_000
    cells: int = 5_000_000
    classes: int = 256
    name_length: int = 256
    key_length: int = 256
    id_length: int = 256
    body_seconds: float = 30.0
    header_seconds: float = 10.0
    header_bytes: int = 65_536
    waiting: int = 256
    connections: int = 1_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} is {value!r}, expected a number above 0. If unsure, leave it out.")
