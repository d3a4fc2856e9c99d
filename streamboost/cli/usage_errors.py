"""Errors in how a command was called, told apart from what went wrong while it ran."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamboost.sources import BadRow


class UsageError(Exception):
    """The command cannot be carried out as given: exit code 2."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors in here into :class:`UsageError`."""
    try:
        yield
    except (BadRow, ConnectionError):  # of the rows or of a broker, not of the call
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise UsageError(sentence_of(error)) from error


def sentence_of(error: BaseException) -> str:
    """Return the message of an error, of the system's without number and brackets."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + "." if error.filename is None else f"{error.filename}: {error.strerror}."
    return str(error) or type(error).__name__


def check_column(name: str, columns: Sequence[str], option: str) -> None:
    """Refuse a column that is not there, and suggest the nearest name."""
    if name in columns:
        return
    near = difflib.get_close_matches(name, columns, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"{option} is {name!r}, expected one of the columns {list(columns)}.{meant}")
