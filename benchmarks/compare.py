"""Who is ahead: runs put side by side over the same rows.

A run that was stopped is compared over the blocks it finished, with what the other had reached by then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from benchmarks.scores import BLOCK, cumulative

Record = dict[str, Any]
OURS = "streamboost"
BATCH = "lightgbm"
TIE = 0.005


def current(records: Iterable[Record], rows: int, seed: int) -> tuple[dict[str, dict[str, Record]], list[Record]]:
    """Give the latest record of every model on every stream, and those left out since they saw other rows.

    The rows of a stream are those its latest record saw.
    """
    latest: dict[str, dict[str, Record]] = {}
    digests: dict[str, str] = {}
    for record in records:
        if (record["rows"], record["seed"]) == (rows, seed) and record["done"] > 0:
            latest.setdefault(record["stream"], {})[record["model"]] = record
            digests[record["stream"]] = record["digest"]
    stale = [r for runs in latest.values() for r in runs.values() if r["digest"] != digests[r["stream"]]]
    for record in stale:
        del latest[record["stream"]][record["model"]]
    return latest, stale


def measure(record: Record) -> str:
    """Name the score that decides: ``rmse`` or ``accuracy``."""
    return "rmse" if record["task"] == "regression" else "accuracy"


def score(record: Record, rows: int | None = None) -> float:
    """Give the score over the first rows, which must end a block or be all of the run's."""
    name = measure(record)
    course = cumulative(name, record["blocks"][name], record["done"])
    return course[-1 if rows in (None, record["done"]) else rows // BLOCK - 1]


def error(record: Record, rows: int | None = None) -> float:
    """Give what is to be small: RMSE, or the share of rows that were wrong."""
    value = score(record, rows)
    return value if measure(record) == "rmse" else 1 - value


def shared_rows(one: Record, other: Record) -> int:
    """Count the rows over which both have a score."""
    if one["done"] == other["done"]:
        return int(one["done"])
    return int(min(one["done"], other["done"])) // BLOCK * BLOCK


def lead(one: Record, other: Record) -> float:
    """Tell by what share of the other's score one's is better, over the same rows; negative if it is worse."""
    rows = shared_rows(one, other)
    a, b = score(one, rows), score(other, rows)
    gain = b - a if measure(one) == "rmse" else a - b
    return gain / b if b else math.copysign(math.inf, gain) if gain else 0.0


def verdict(value: float) -> str:
    """Put a lead in a word; half a percent is a tie."""
    if abs(value) <= TIE:
        return "tie"
    return "ahead" if value > 0 else "behind"


def is_streaming_peer(record: Record) -> bool:
    """Whether it learns row by row and is not streamboost in some guise."""
    return record["package"] not in (OURS, "lightgbm")


def ranked_peers(runs: dict[str, Record]) -> list[Record]:
    """Give the streaming peers, best first, by their lead over streamboost over shared rows.

    Who did not get through half of the rows is not ranked: the first rows decide little. Where streamboost has not
    run, whoever got furthest stands in for it.
    """
    if not runs:
        return []
    reference = runs.get(OURS) or max(runs.values(), key=lambda record: record["done"])
    able = [r for r in runs.values() if is_streaming_peer(r) and 2 * shared_rows(reference, r) >= r["n"]]
    return sorted(able, key=lambda record: lead(reference, record))
