"""Runs experiments: those not finished yet, with a bar for each, and the page after them.

Finished is an experiment with a record of all the sets there are: where a file was missing that is there now, it is run
anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Container, Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from experiments import nets, page, records, registry
from experiments.big_datasets import DamagedData, MissingData
from experiments.records import CACHE, Mode, Record

SEEDS = {"quick": (0,), "full": (0, 1, 2)}


def run(
    name: str,
    mode: Mode,
    *,
    again: bool = False,
    seeds: Sequence[int] | None = None,
    folder: Path | None = None,
    fresh: Container[str] = (),
) -> Record:
    """Run an experiment and draw it, or read what an earlier run found.

    Parameters
    ----------
    name : str
        See :mod:`experiments.registry`.
    mode : {"quick", "full"}
    again : bool
        Run it though it is finished, and with it those whose records it needs.
    seeds : sequence of int, optional
        Left out: one for a quick run, three for a full one.
    folder : Path, optional
        Where to keep the record and the pictures; the records it needs are in the same place.
    fresh : names
        Those that were run just now, and need no other run for ``again``.
    """
    module, folder = registry.load(name), records.folder(mode) if folder is None else folder
    seeds = SEEDS[mode] if seeds is None else seeds
    file = folder / f"{name}.json"
    record = None if again and name not in fresh else _finished(file, mode)
    if record is not None and name not in fresh:
        record = _still_whole(name, record, file)
    if record is None:
        needed = {
            other: run(other, mode, again=again, seeds=seeds, folder=folder, fresh=fresh)
            for other in getattr(module, "NEEDS", ())
        }
        record = _run_now(name, module, mode, seeds, again, needed)
        records.save(record, file)
        record = records.load(file)  # what is drawn is what was written
        assert record is not None
    page.pictures(name, record, folder)
    return record


def _finished(file: Path, mode: Mode) -> Record | None:
    try:
        record = records.load(file)
    except json.JSONDecodeError as error:
        raise SystemExit(
            f"{file} cannot be read ({error}), expected the record of a run. Delete it, or run it --again."
        ) from error
    if record is not None and record["mode"] != mode:
        raise SystemExit(
            f"{file} is the record of a {record['mode']} run, expected none or one of a {mode} run: quick and full "
            "runs do not mix. Give another folder with --output, or run it --again."
        )
    return record


def _still_whole(name: str, record: Record, file: Path) -> Record | None:
    """The record, and a word that it is an old one; None if a set that was missing then is there now."""
    come = [absent["what"] for absent in record.get("not_run", []) if _is_there(absent["what"])]
    if come:
        _say(f"{name}: {' and '.join(come)}, missing on {record['date']}, is there now: it is run again.")
        return None
    _say(f"{name}: read from {file}, a run of {record['date']}, and not run again. For that give --again.")
    return record


def _is_there(name: str) -> bool:
    try:
        nets.SETS[name].split(0)
    except MissingData:
        return False
    return True


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _run_now(
    name: str, module: ModuleType, mode: Mode, seeds: Sequence[int], again: bool, needed: dict[str, Record]
) -> Record:
    source = records.source(name)  # as it is now: it may be edited while this runs
    took = {other: records.fingerprint(record) for other, record in needed.items()}
    key = "-".join([name, mode, source["experiment"], source["library"], *took.values()])
    parts = CACHE / "parts" / key
    if again:
        shutil.rmtree(parts, ignore_errors=True)
    columns = (TextColumn("{task.fields[name]}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    with Progress(
        *columns, TimeElapsedColumn(), TextColumn("{task.description}"), console=Console(stderr=True)
    ) as bars:
        task = bars.add_task("", total=1, name=name)

        def tell(done: int, total: int, text: str) -> None:
            bars.update(task, completed=done, total=total, description=text)

        started = time.perf_counter()
        found = module.run(mode, seeds, records.Progress(parts, tell), **needed)
        seconds = round(time.perf_counter() - started, 1)
    sizes = module.QUICK if mode == "quick" else module.FULL
    circumstances = {"source": source, "took": took, "seconds": seconds}
    record = records.make(name, mode, seeds, sizes, {**circumstances, **found})
    shutil.rmtree(parts, ignore_errors=True)
    return record


def main(arguments: Sequence[str] | None = None, *, only: str | None = None) -> None:
    """Parse the command line, run, write the page."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments{'' if only is None else '.' + only}",
        description="Reproduce the paper's experiments. Results are JSON files, pictures, and one page.",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and one seed, in a minute or so each")
    parser.add_argument("--again", action="store_true", help="run finished experiments again")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to keep results")
    if only is None:
        parser.add_argument("--only", nargs="+", metavar="NAME", choices=registry.available(), help="these alone")
    options = parser.parse_args(arguments)
    if options.output is not None and options.output.exists() and not options.output.is_dir():
        parser.error(f"--output {options.output} is a file, expected a folder")
    chosen = [only] if only is not None else options.only or registry.available()
    try:
        _run_all(chosen, "quick" if options.quick else "full", options.again, options.output)
    except (MissingData, DamagedData) as error:  # what was expected, and where to get it
        raise SystemExit(f"{parser.prog}: {error}") from error
    except KeyboardInterrupt:
        _say(f"{parser.prog}: interrupted. What is finished is kept: the same command, without --again, goes on there.")
        raise SystemExit(130) from None


def _run_all(chosen: Sequence[str], mode: Mode, again: bool, output: Path | None) -> None:
    folder = records.folder(mode) if output is None else output
    fresh: set[str] = set()
    for name in chosen:
        record = run(name, mode, again=again, folder=folder, fresh=fresh)
        fresh |= {name, *getattr(registry.load(name), "NEEDS", ())}
        for row in registry.load(name).compare(record):
            print(f"{name}: {row.what}: {row.ours}")
        for absent in record.get("not_run", []):
            _say(f"{name}: {absent['what']} was not run: {absent['why']}")
    print(f"page: {page.write(folder)}")
