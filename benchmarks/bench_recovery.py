"""How long a killed worker on Ray is away: from SIGKILL to the next answer, all that came after the last cut repeated.

    python -m benchmarks.bench_recovery [--quick]

Two workers with next to no state on a Ray of this machine; what is measured is what recovery itself costs: to notice,
to start a process, to load the cut, and to repeat operations that do nearly nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost.cluster import RayCrew


class Sum:
    """Adds numbers, and saves the sum under the number of each cut."""

    def __init__(self) -> None:
        self.state = 0

    def settle(self, directory: str) -> None:
        """Hear where to save."""
        self.directory = Path(directory)

    def save(self, number: int) -> None:
        """Save the sum."""
        Path(self.directory, str(number)).write_text(str(self.state))

    def load(self, number: int) -> None:
        """Go back to a sum."""
        self.state = int(Path(self.directory, str(number)).read_text())

    def drop(self, kept: list[int]) -> None:
        """Keep all."""

    def add(self, number: int) -> int:
        """Add one more."""
        self.state += number
        return int(self.state)


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_recovery", __doc__).parse_args(arguments)
    taken = {n: recoveries(n, 1 if options.quick else 7) for n in ([0] if options.quick else [0, 1000])}
    rows = [[f"{n:,}", f"{min(s):.1f}, {median(s):.1f}, {max(s):.1f}"] for n, s in taken.items()]
    print(table(["operations to repeat", "seconds: least, median, most"], rows))
    keep(options, "recovery", {"seconds": {str(n): seconds for n, seconds in taken.items()}})
    return 0


def recoveries(n_operations: int, n_kills: int) -> list[float]:
    """Seconds from a kill to the next answer, each with so many operations after the last cut."""
    seconds, total = [], 0
    with RayCrew(Sum, {}, 2, cut_every=10_000) as crew:
        for _ in range(n_kills):
            crew.results(crew.call(0, "add", 1) for _ in range(n_operations))
            started = time.perf_counter()
            os.kill(crew.metrics()[0]["pid"], signal.SIGKILL)
            total += n_operations + 1
            if crew.result(crew.call(0, "add", 1)) != total:
                raise RuntimeError("an operation was lost or repeated")
            seconds.append(time.perf_counter() - started)
            crew.cut()
    return seconds


if __name__ == "__main__":
    sys.exit(main())
