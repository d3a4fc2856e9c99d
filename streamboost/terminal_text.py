"""Text from data on its way to a terminal or a log: what a terminal would obey is written out."""

from __future__ import annotations

import logging
import re

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    r"""Return text in which characters that move a cursor, or turn the writing round, are escapes; lines stay lines.

    Examples
    --------
    >>> print(escaped("a \x1b[2Jb"))
    a \x1b[2Jb
    """
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class EscapingFormatter(logging.Formatter):
    """Formats a record, with tracebacks, as text without escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return escaped(super().format(record))


def log_to_stderr() -> None:
    """Write warnings and errors to standard error, unless somebody has said where they go."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(EscapingFormatter("%(levelname)s %(name)s: %(message)s"))
        handler.setLevel(logging.WARNING)
        root.addHandler(handler)
