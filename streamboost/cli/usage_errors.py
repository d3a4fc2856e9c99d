"""What was asked wrongly, told apart from what went wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamboost.sources import BadRow


class Refused(Exception):
    """The command cannot be carried out as given: exit code 2."""


@contextmanager
def asked() -> Iterator[None]:
    """Errors in here come from what the command was given."""
    try:
        yield
    except (BadRow, ConnectionError):  # of the rows or of a broker, not of what was asked
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise Refused(sentence_of(error)) from error


def sentence_of(error: BaseException) -> str:
    """What an error says, without numbers and brackets."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + "." if error.filename is None else f"{error.filename}: {error.strerror}."
    return str(error) or type(error).__name__


def check_column(name: str, columns: Sequence[str], option: str) -> None:
    """Refuse a column that is not there, and say which was likely meant."""
    if name in columns:
        return
    near = difflib.get_close_matches(name, columns, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise Refused(f"{option} is {name!r}, expected one of the columns {list(columns)}.{meant}")
