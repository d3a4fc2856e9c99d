"""Dates as numbers: text to timestamps, seconds to what a calendar says of them, and where that stands in a row.

A date is its seconds since 1970 in UTC, whatever zone it was written in; one without a zone counts as UTC. Its parts
follow from the seconds alone, so the same moment is the same row in every unit, type and container.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamboost._types import FloatArray, IntArray

PARTS = ("hour", "weekday", "day of month", "day of year")  # after the seconds themselves
DAY = 86400.0  # seconds
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FARTHEST = 1e14  # seconds from 1970, some three million years: beyond there is no calendar
HOUR, MINUTE = r"([01]\d|2[0-3])", r"[0-5]\d"
CLOCK = rf"{HOUR}(:{MINUTE}(:{MINUTE}(\.\d{{1,9}})?)?)?(Z|[+-]{HOUR}(:?{MINUTE})?)?"
DATE = rf"^\s*\d{{4}}-(0\d|1[0-2])-([0-2]\d|3[01])([T ]{CLOCK})?\s*$"  # how one looks; not all that do are one
ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$"
WAYS = "2024-05-01, 2024-05-01T13:30:00 or 2024-05-01 13:30:00.5+02:00"  # in which a date is written


def is_date_value(value: object) -> bool:
    """Whether a Python object is a date or a timestamp; one that is missing may say so, too."""
    return isinstance(value, (date, np.datetime64))


def ticks_of_texts(column: Any, unit: str) -> Any:
    """Read an Arrow array of ISO 8601 texts, with a zone or without, as int64 since 1970; ArrowInvalid if one is bad.

    Examples
    --------
    >>> texts = pa.array(["1970-01-01T00:00:01Z", "1970-01-01 02:00:01.5+02:00", "1970-01-02", None])
    >>> ticks_of_texts(texts, "ms").to_pylist()
    [1000, 1500, 86400000, None]
    """
    texts = pc.utf8_trim_whitespace(column)
    is_zoned = pc.match_substring_regex(texts, ZONE)  # Arrow takes either all with a zone or all without
    zoned, plain = pc.if_else(is_zoned, texts, None), pc.if_else(is_zoned, None, texts)
    ticks = [zoned.cast(pa.timestamp(unit, "UTC")), plain.cast(pa.timestamp(unit))]
    return pc.coalesce(*(each.cast(pa.int64()) for each in ticks))


def seconds_of_texts(texts: Sequence[str]) -> FloatArray:
    """Read ISO 8601 texts as seconds since 1970; NaN where one is no date.

    Examples
    --------
    >>> seconds_of_texts(["1970-01-01T00:00:01.25Z", "soon"])
    array([1.25,  nan])
    """
    try:
        return _seconds(texts, "ns")
    except pa.ArrowInvalid:  # one is no date, or beyond the years 1677 to 2262
        return np.array([_seconds_of_text(text) for text in texts])


def _seconds_of_text(text: str) -> float:
    for unit in ("ns", "us"):
        try:
            return float(_seconds([text], unit)[0])
        except pa.ArrowInvalid:
            continue
    return math.nan


def _seconds(texts: Sequence[str], unit: str) -> FloatArray:
    ticks = ticks_of_texts(pa.array(texts, pa.string()), unit)
    return seconds_of(np.asarray(ticks.to_numpy(zero_copy_only=False)).astype(f"M8[{unit}]"))


def seconds_of(times: Any) -> FloatArray:
    """Datetimes (since 1970) or timedeltas of any shape and unit in seconds; NaT is NaN."""
    unit, step = np.datetime_data(times.dtype)
    if unit not in TICKS_PER_SECOND or step != 1:
        unit = "ns" if unit in ("ms", "us", "ns", "ps", "fs", "as") else "s"
    times, ticks = times.astype(f"{times.dtype.kind}8[{unit}]"), TICKS_PER_SECOND[unit]
    # whole seconds apart from the rest, so that the same instant is the same float in every unit
    whole, rest = np.divmod(times.astype(np.int64), ticks)
    return np.where(np.isnat(times), math.nan, whole + rest / ticks)


def calendar_parts(seconds: FloatArray) -> FloatArray:
    """What a calendar says of seconds since 1970 in UTC, (n, 4).

    That is the hour with its fraction, the weekday (Monday is 0), and the days of month and year (the first is 1).

    Examples
    --------
    >>> calendar_parts(seconds_of_texts(["2024-02-29T13:30:00Z", "soon"]))
    array([[13.5,  3. , 29. , 60. ],
           [ nan,  nan,  nan,  nan]])
    """
    is_known = np.abs(seconds) < FARTHEST
    seconds = np.where(is_known, seconds, 0.0)
    days, of_day = np.divmod(seconds, DAY)  # exact, as a quotient rounded to the next day would not be
    day = days.astype(np.int64).astype("M8[D]")
    parts = np.empty((len(seconds), len(PARTS)))
    parts[:, 0] = of_day / 3600.0
    parts[:, 1] = (days + 3.0) % 7.0  # 1970 began on a Thursday
    parts[:, 2] = (day - day.astype("M8[M]")).astype(np.int64) + 1
    parts[:, 3] = (day - day.astype("M8[Y]")).astype(np.int64) + 1
    parts[~is_known] = math.nan
    return parts


# Where columns and parts stand. ``dates`` says of each date column, by its number as text, where its parts begin.


def width_of(n_features: int, dates: Mapping[str, int]) -> int:
    """How many numbers a row of ``n_features`` columns has."""
    return n_features + len(PARTS) * len(dates)


def owners_of(n_features: int, dates: Mapping[str, int]) -> IntArray:
    """The column that each number of a row stands for, (width,).

    Examples
    --------
    >>> owners_of(3, {"1": 2})
    array([0, 1, 1, 1, 1, 1, 2])
    """
    owners = np.empty(width_of(n_features, dates), np.int64)
    owners[places_of(n_features, dates)] = np.arange(n_features)
    for column, start in dates.items():
        owners[start : start + len(PARTS)] = int(column)
    return owners


def places_of(n_features: int, dates: Mapping[str, int]) -> IntArray:
    """Where in a row each column stands, (n_features,); of a date, its seconds."""
    is_free = np.ones(width_of(n_features, dates), dtype=bool)
    for start in dates.values():
        is_free[start : start + len(PARTS)] = False
    return np.flatnonzero(is_free)


def spread(columns: FloatArray, dates: Mapping[str, int]) -> FloatArray:
    """Rows of one number a column (n, d) with the parts of their dates, (n, width)."""
    if not dates:
        return columns
    n, d = columns.shape
    rows = np.empty((n, width_of(d, dates)))
    rows[:, places_of(d, dates)] = columns
    for column, start in dates.items():
        rows[:, start : start + len(PARTS)] = calendar_parts(columns[:, int(column)])
    return rows
