"""Columns of text that look like numbers: mostly a table that was read as text by mistake.

The rule: a column is suspected when its 32nd level appears, if nine in ten of its levels can be read as numbers and
none of those has a leading zero. Days, months and other codes of few levels are left alone, so are zip codes such as
``"01234"``, which conversion would spoil, and columns whose container calls them categories.
"""

from __future__ import annotations

import re
import warnings
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


def warn_of_numeric_text(columns: Sequence[Hashable]) -> None:
    """Tell a user which columns hold numbers as text, and what to do."""
    shown = ", ".join(map(repr, columns[:10])) + (", ..." if len(columns) > 10 else "")
    what = f"column {shown} holds" if len(columns) == 1 else f"columns {shown} hold"
    warnings.warn(
        f"{what} numbers as text, and text is learned as categories. Convert to numbers first: X.astype(float), or "
        f"--type {columns[0]}=float64 on the command line. If these are codes, all is well; a categorical type, as by "
        "X.astype('category'), says so.",
        stacklevel=2,
    )


def _is_number(level: str) -> bool:
    try:
        float(level)
    except ValueError:
        return False
    return True
