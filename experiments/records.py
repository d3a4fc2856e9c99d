"""What an experiment found, as a JSON file: the numbers, and all it takes to get them again."""

from __future__ import annotations

import ast
import datetime
import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import streamboost

Mode = Literal["quick", "full"]
Record = dict[str, Any]

HERE = Path(__file__).parent
RESULTS = HERE / "results"  # of full runs
CACHE = HERE / "cache"  # of quick runs, and of parts of runs that are not finished
BESIDE = ("experiments", "examples")  # packages beside the library
PACKAGES = ("numpy", "numba", "scikit-learn", "streamboost")


class Row(NamedTuple):
    """A line of the page: what was looked at, what the paper says, what we found, and why they differ."""

    what: str
    paper: str
    ours: str
    why: str = ""


def folder(mode: Mode) -> Path:
    """Where records of a mode are kept."""
    return RESULTS if mode == "full" else CACHE / "quick"


def digest(*files: Path) -> str:
    """A fingerprint of source files."""
    content = b"".join(file.read_bytes() for file in sorted(files))
    return hashlib.sha256(content).hexdigest()[:12]


def source(name: str) -> dict[str, str]:
    """The fingerprints of an experiment (its module and those beside the library that it imports) and the library."""
    library = Path(streamboost.__file__).parent.rglob("*.py")
    return {"experiment": digest(*modules(HERE / f"{name}.py")), "library": digest(*library)}


def modules(file: Path) -> set[Path]:
    """A module's file and those of all it imports, directly or not, from this package and from the examples."""
    found, left = set(), [file]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += _imported(one)
    return found


def _imported(file: Path) -> list[Path]:
    """What a module imports when it is itself imported; what it imports later belongs to the machinery."""
    names = []
    for line in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom) and line.module is not None and line.module.split(".")[0] in BESIDE:
            names += [line.module, *(f"{line.module}.{alias.name}" for alias in line.names)]
        elif isinstance(line, ast.Import):
            names += [alias.name for alias in line.names if alias.name.split(".")[0] in BESIDE]
    places = [HERE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return [place for place in places if place.exists()]


def fingerprint(record: Record) -> str:
    """What tells a record from any other."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, default=plain).encode()).hexdigest()[:12]


def make(name: str, mode: Mode, seeds: Sequence[int], sizes: dict[str, Any], found: dict[str, Any]) -> Record:
    """Put what was found together with the circumstances."""
    return {
        "experiment": name,
        "mode": mode,
        "seeds": list(seeds),
        "sizes": sizes,
        "versions": {package: version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **found,
    }


def save(record: Record, file: Path) -> None:
    """Write a record; there is never a half-written file under the final name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(record, indent=1, default=plain, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(file)


def load(file: Path) -> Record | None:
    """Read a record; None if there is none yet."""
    if not file.exists():
        return None
    record: Record = json.loads(file.read_text(encoding="utf-8"))
    return record


def plain(value: Any) -> Any:
    """Arrays and NumPy numbers as JSON knows them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a record holds a {type(value).__name__}, expected numbers, strings, lists and dictionaries.")


def rounded(values: Any, digits: int = 6) -> Any:
    """An array as a list of so many significant digits, None where a number is not finite."""
    if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim):
        return [rounded(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None


def summary(values: Any) -> dict[str, Any]:
    """Mean and spread (the standard deviation; 0 for one) over the first axis, which is that of the seeds."""
    values = np.asarray(values, dtype=float)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(values[0])
    return {"mean": rounded(values.mean(axis=0)), "spread": rounded(spread)}


class Progress:
    """Tells how far a run is, and keeps its finished parts so that a broken run can be taken up again.

    Parameters
    ----------
    folder : Path, optional
        Where parts are kept; nowhere if left out.
    tell : callable, optional
        Called with the number of parts done, of all parts, and what comes next.
    """

    def __init__(self, folder: Path | None = None, tell: Callable[[int, int, str], None] | None = None) -> None:
        self.folder = folder
        self.tell = tell or (lambda done, total, text: None)
        self.done = self.total = 0

    def expect(self, n_parts: int) -> None:
        """Say how many parts there will be."""
        self.done, self.total = 0, n_parts

    def part(self, key: str, make: Callable[[], Any]) -> Any:
        """What ``make()`` gives, or gave in an earlier run of the same source; of plain values only."""
        self.tell(self.done, self.total, key)
        file = None if self.folder is None else self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        kept = None if file is None else load(file)
        if kept is None:
            kept = {"key": key, "value": json.loads(json.dumps(make(), default=plain, allow_nan=False))}
            if file is not None:
                save(kept, file)
        self.done += 1
        self.tell(self.done, self.total, key)
        return kept["value"]
