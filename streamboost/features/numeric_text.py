"""Columns of text that look like numbers: mostly a table that was read as text by mistake.

The rule: a column is suspected when its 32nd level appears, if nine in ten of its levels can be read as numbers and
none of those has a leading zero. Days, months and other codes of few levels are left alone, so are zip codes such as
``"01234"``, which conversion would spoil, and columns whose container calls them categories.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Hashable, Sequence

MANY_LEVELS = 32
LEADING_ZERO = re.compile(r"\s*[+-]?0\d")


def looks_numeric(levels: Collection[str]) -> bool:
    """Whether so many and such levels are probably numbers written as text."""
    numbers = [level for level in levels if _is_number(level)]
    return (
        len(levels) >= MANY_LEVELS
        and 10 * len(numbers) >= 9 * len(levels)
        and not any(map(LEADING_ZERO.match, numbers))
    )


class NumericText(UserWarning):
    """Says which columns hold numbers as text, and what to do."""

    def __init__(self, columns: Sequence[Hashable]) -> None:
        shown = ", ".join(map(repr, columns[:10])) + (", ..." if len(columns) > 10 else "")
        what = f"column {shown} holds" if len(columns) == 1 else f"columns {shown} hold"
        as_number, as_text = (f"--type {shlex.quote(f'{columns[0]}={kind}')}" for kind in ("float64", "string"))
        super().__init__(
            f"{what} numbers as text, and text is learned as categories. Convert to numbers first: X.astype(float) "
            f"({as_number}). If these are codes, all is well; a categorical type says so: X.astype('category') "
            f"({as_text})."
        )
        self.columns = list(columns)


def _is_number(level: str) -> bool:
    try:
        float(level)
    except ValueError:
        return False
    return True
