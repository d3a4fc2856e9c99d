"""What columns of text hold, as their first values tell: numbers, dates, or text; a few slips make bad rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamboost.features.dates import DATE, ZONE

NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
NANOSECONDS = ("1678", "2261")  # the years that can be told to the nanosecond
SLIPS = 0.01  # of a column's first values: so many that are no numbers, or dates, make bad rows, not a column of text


def is_nearly_numbers(column: Any, decimal: str) -> bool:
    """Return True if at most one in a hundred values of a text column is no number."""
    return _is_nearly(column, NUMBER.replace(r"\.", decimal if decimal == "," else r"\."))


def _is_nearly(column: Any, pattern: str) -> bool:
    values = column.drop_null()
    n_slips = len(values) - (pc.sum(pc.match_substring_regex(values, pattern)).as_py() or 0)
    return bool(n_slips <= SLIPS * len(values)) and len(values) > 0


def with_dates(table: Any) -> Any:
    """Return the schema of first rows, with columns of text that are nearly all dates as timestamps.

    A later one may have a fraction of a second, so they are kept to the nanosecond if all of their years can be.
    """
    columns = zip(table.column_names, table.columns, strict=True)
    return pa.schema([(name, _date_type(column) or column.type) for name, column in columns])


def _date_type(column: Any) -> Any:
    kind = column.type
    if pa.types.is_string(kind) and _is_nearly(column, DATE):
        dates = pc.utf8_trim_whitespace(column.filter(pc.match_substring_regex(column, DATE)))
        years = pc.utf8_slice_codeunits(dates, 0, 4)
        zone = "UTC" if pc.any(pc.match_substring_regex(dates, ZONE)).as_py() else None
    elif pa.types.is_timestamp(kind) and kind.unit == "s" and column.null_count < len(column):
        years, zone = pc.utf8_slice_codeunits(column.cast(pa.timestamp("s")).cast(pa.string()), 0, 4), kind.tz
    else:
        return None
    found = pc.min_max(years)
    is_near = NANOSECONDS[0] <= found["min"].as_py() and found["max"].as_py() <= NANOSECONDS[1]
    return pa.timestamp("ns" if is_near else "us", zone)
