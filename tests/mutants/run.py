"""Apply one mutant after the other to a copy of the checkout, and see whether the tests notice.

    python tests/mutants/run.py [NAME ...] [--jobs 2] [--save FILE]

NAME is a mutant of ``catalogue.py`` or the beginning of some; without any, all are run, two at a time. First the tests
are run as they are: what fails then would kill every mutant. The exit code is 0 if all mutants were killed. A mutated
kernel is compiled anew, with everything beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue

from catalogue import MUTANTS, Mutant
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "cache", "dist", "site")
PATIENCE = 20.0, 600.0  # tests hang after so many times what they take without a mutant, and so many seconds more
KILLED, SURVIVED, HUNG, FAILED = "killed", "survived", "killed (hung)", "failed without a mutant"


class Copy:
    """A copy of the checkout, with kernels compiled, that takes one mutant at a time."""

    def __init__(self, place: Path) -> None:
        self.place = place / "checkout"
        shutil.copytree(ROOT, self.place, ignore=LEFT_OUT)
        self.run_python("-m", "streamboost", "warmup", "--networks")

    def run_python(
        self, *words: str, cache: str | None = None, within: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy; kernels are compiled into ``cache``, or into what the copy keeps."""
        env = os.environ | {
            "PYTHONPATH": str(self.place),
            "NUMBA_CACHE_DIR": cache or str(self.place.parent / "numba"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [sys.executable, *words], cwd=self.place, env=env, capture_output=True, text=True, timeout=within
        )

    def run_tests(self, tests: str, cache: str | None = None, within: float | None = None) -> tuple[str, str]:
        """Run tests up to the first that fails; return what that means, and which it was."""
        command = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
        try:
            done = self.run_python(*command, cache=cache, within=within)
        except subprocess.TimeoutExpired:
            return HUNG, ""
        told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if done.returncode not in (0, 1, 2):
            raise RuntimeError(f"pytest could not run {tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return (KILLED if done.returncode else SURVIVED), (told or [""])[0]

    def try_mutant(self, mutant: Mutant, within: float) -> tuple[str, str]:
        """Return whether the tests notice a mutant, and which did."""
        file = self.place / mutant.path
        source = file.read_bytes()
        stat = file.stat()
        with tempfile.TemporaryDirectory() as fresh:
            file.write_text(mutated(source.decode(), mutant), encoding="utf-8")
            try:
                return self.run_tests(mutant.tests, fresh if "/kernels/" in mutant.path else None, within)
            finally:
                file.write_bytes(source)
                os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # so that what is compiled counts again


def mutated(source: str, mutant: Mutant) -> str:
    """Return the source with the mutant in it."""
    if source.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} occurs {source.count(mutant.old)} times in {mutant.path}.")
    return source.replace(mutant.old, mutant.new)


def main() -> int:
    parser = argparse.ArgumentParser(description="See which mutants the tests kill.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants, or what their names begin with; all if none")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the results as JSON, too")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.names or any(m.name.startswith(name) for name in options.names)]
    if not chosen:
        parser.error(f"no mutant is called {options.names}")
    console = Console()
    results: dict[str, tuple[str, str]] = {}
    seconds: dict[str, float] = {}
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with tempfile.TemporaryDirectory() as place, Progress(*columns, console=console) as progress:
        task = progress.add_task("copying, compiling", total=options.jobs)
        copies: Queue[Copy] = Queue()
        with ThreadPoolExecutor(options.jobs) as pool:
            for copy in as_completed([pool.submit(Copy, Path(place, str(k))) for k in range(options.jobs)]):
                copies.put(copy.result())
                progress.advance(task)

            def unchanged(tests: str) -> tuple[str, tuple[str, str]]:
                copy, start = copies.get(), time.monotonic()
                try:
                    return tests, copy.run_tests(tests)
                finally:
                    seconds[tests] = time.monotonic() - start
                    copies.put(copy)

            def changed(mutant: Mutant) -> tuple[str, tuple[str, str]]:
                copy, usual = copies.get(), sum(seconds[path] for path in mutant.tests.split())
                try:
                    return mutant.name, copy.try_mutant(mutant, PATIENCE[0] * usual + PATIENCE[1])
                finally:
                    copies.put(copy)

            tests = sorted({path for mutant in chosen for path in mutant.tests.split()})
            task = progress.add_task("tests as they are", total=len(tests))
            for done in as_completed([pool.submit(unchanged, path) for path in tests]):
                path, (result, told) = done.result()
                if result != SURVIVED:
                    results[path] = FAILED, told
                progress.advance(task)
            if not results:
                task = progress.add_task("mutants", total=len(chosen))
                for done in as_completed([pool.submit(changed, mutant) for mutant in chosen]):
                    name, (result, told) = done.result()
                    results[name] = result, told
                    progress.console.print(f"{name}: {result}")
                    progress.advance(task)
    table = Table("mutant", "what it breaks", "result", "by")
    breaks = {mutant.name: mutant.breaks for mutant in chosen}
    order = [name for name in (*breaks, *results) if name in results]
    for name in dict.fromkeys(order):
        result, told = results[name]
        style = "green" if result in (KILLED, HUNG) else "red"
        table.add_row(name, breaks.get(name, ""), f"[{style}]{result}[/{style}]", told.split("::")[-1].split(" - ")[0])
    console.print(table)
    n_killed = sum(result in (KILLED, HUNG) for result, _ in results.values())
    console.print(f"{n_killed} of {len(chosen)} killed")
    if options.save:
        options.save.write_text(json.dumps({name: results[name][0] for name in dict.fromkeys(order)}, indent=1))
    return 0 if n_killed == len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
