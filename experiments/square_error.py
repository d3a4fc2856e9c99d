"""Which square error does Table 1 print? Half the mean square error, the whole of it, or its root.

    python -m experiments.square_error [--quick]

The paper says "square error" and no more. Two printed numbers of a set tell more: Base, if it is the first partial sum
y¹ = −η h₁ from y⁰ = 0, tells η; and η and N tell what of the target's mean SGB leaves over. Nothing is trained here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import nets
from experiments.big_datasets import SLICE_TARGETS
from experiments.records import Mode, Progress, Record, Row, rounded
from streamboost import datasets

TITLE = "Table 1: which square error is printed?"
INTRODUCTION = (
    "The paper says “square error” and no more, and prints a Base far above what one network can do. Half the mean "
    "square error with y⁰ = 0, unscaled targets (SLICE in hundredths) and Base as the first partial sum y¹ = −η h₁ "
    "explains that; here it stands beside the two other readings. Base tells η: the least if h₁ is the target itself, "
    "the most if it is the target's mean. After N learners (1 − η)ᴺ of that mean is left over, of which the least is "
    "counted. Where a set was run, our own SGB tells which reading fits, by what it would have been printed as; where "
    "it was not, there is only the share of the target's variance that the printed SGB would explain."
)
NEEDS = ("table_1",)
FULL: dict[str, Any] = {}
QUICK: dict[str, Any] = {}


class Reading(NamedTuple):
    """What a printed number may be: a function of the mean square error, and its inverse."""

    printed: Callable[[float], float]
    meant: Callable[[float], float]


READINGS = {
    "half the mean square error": Reading(lambda error: error / 2, lambda number: 2 * number),
    "the mean square error": Reading(lambda error: error, lambda number: number),
    "its root": Reading(math.sqrt, lambda number: number**2),
}
YEAR_TARGETS = (1998.4, 10.93)  # mean and spread of the published set
SLICE_SPREAD = 22.35  # of the published set, in the units of SLICE_TARGETS
FITS = 0.05  # as near as that


def run(mode: Mode, seeds: Sequence[int], progress: Progress, table_1: Record) -> dict[str, Any]:
    """Read the printed numbers of every regression set in every way."""
    ours = {name: one["last"]["SGB"]["mean"] for name, one in table_1["sets"].items()}  # halves
    progress.expect(1)
    return progress.part("arithmetic", lambda: {"sets": {name: _read(name, ours.get(name)) for name in _targets()}})


def _targets() -> dict[str, tuple[float, float]]:
    """The mean and spread of targets, in the units of the printed numbers."""
    y = datasets.load_abalone().y
    return {
        "ABALONE": (float(y.mean()), float(y.std())),
        "YEAR": YEAR_TARGETS,
        "SLICE": (SLICE_TARGETS[2] / 100, SLICE_SPREAD / 100),
    }


def _read(name: str, half: float | None) -> dict[str, Any]:
    one, (mean, spread) = nets.SETS[name], _targets()[name]
    printed = one.paper
    assert printed is not None
    own_left = (1 - one.choices[0].eta) ** one.learners * mean
    ours = None if half is None else 2 * half - own_left**2
    found = {
        kind: read(reading, printed[0], printed[2], mean, spread, one.learners, ours)
        for kind, reading in READINGS.items()
    }
    return {"base": printed[0], "printed": printed[2], "mean": rounded(mean), "spread": rounded(spread), "as": found}


def read(
    reading: Reading, base: float, streaming: float, mean: float, spread: float, n_learners: int, ours: float | None
) -> dict[str, Any]:
    """What follows from Base and SGB if they are printed in one way; ``ours`` is our mean square error, if any.

    Returns
    -------
    dict
        The least and the largest η (below 0 if Base loses more than y = 0 would), what is left of the mean, the root
        mean square error and the share of the variance that SGB would explain, and what ours would be printed as.
    """
    first, last = reading.meant(base), reading.meant(streaming)
    least = 1 - math.sqrt(first / (mean**2 + spread**2))
    most = 1 - math.sqrt(max(first - spread**2, 0.0)) / mean
    left = (1 - most) ** n_learners * mean if least >= 0 else math.nan
    would_be = math.nan if ours is None or least < 0 else reading.printed(ours + left**2)
    return {
        "eta": rounded([least, most]),
        "left": rounded(left),
        "root": rounded(math.sqrt(last)),
        "explained": rounded(1 - last / spread**2),
        "ours": rounded(would_be),
        "gap": rounded(would_be / streaming - 1),
    }


def draw(record: Record, folder: Path) -> list[tuple[str, str]]:
    """Nothing: it is arithmetic."""
    return []


def compare(record: Record) -> list[Row]:
    """A line for each set and reading."""
    return [
        Row(f"{name} as {kind}", f"Base {one['base']:g}, SGB {one['printed']:g}", _told(found), _verdict(found))
        for name, one in record["sets"].items()
        for kind, found in one["as"].items()
    ]


def _told(found: dict[str, Any]) -> str:
    if found["eta"][0] < 0:
        return "no η above 0 gives this Base"
    text = f"η from {found['eta'][0]:.2f} to {found['eta'][1]:.2f}, {found['left']:.2g} of the mean left over; "
    if found["ours"] is not None:
        return text + f"our SGB would be printed as {found['ours']:.4g}"
    return text + f"SGB has a root mean square error of {found['root']:.3g}, {100 * found['explained']:.5g} % explained"


def _verdict(found: dict[str, Any]) -> str:
    if found["eta"][0] < 0:
        return "does not fit: a score of 0 loses less"
    if found["gap"] is None:
        return "cannot be told from the print alone: the set is not run here"
    return f"{'fits' if abs(found['gap']) <= FITS else 'does not fit'} ({100 * found['gap']:+.1f} %)"


if __name__ == "__main__":
    from experiments.runner import main

    main(only="square_error")
