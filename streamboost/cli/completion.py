"""What TAB offers for a value; where nothing is offered, the shell offers files."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

KINDS = ("string", "float64", "int64", "bool", "timestamp[us]", "date32")  # for --type; Arrow knows more
TEXT = {".csv": ",;|\t", ".tsv": "\t", ".jsonl": "", ".ndjson": ""}  # files that name their columns, and delimiters
LONGEST = 100_000  # bytes of a first line
SPLIT_BY_BASH = re.compile(r"--type\s\S+\s=\s?(\S*)$")  # which takes COL=TYPE for three words


def one_of(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a completion to one of these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def complete_nothing(incomplete: str) -> list[str]:
    """Leave it to the shell, which knows files better."""
    return []


def complete_kinds(incomplete: str) -> list[str]:
    """Complete COL=TYPE to the usual types."""
    column, _, kind = incomplete.partition("=")
    return [f"{column}={known}" for known in KINDS if known.startswith(kind)] if column else []


def complete_columns(incomplete: str) -> list[str]:
    """Complete to the columns of the first file of text on the command line."""
    try:
        files = [path for word in shlex.split(_typed()) if (path := Path(word)).suffix in TEXT and path.is_file()]
        names = _columns(files[0]) if files else []
    except (OSError, ValueError, csv.Error):
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable() and " " not in name]


def _typed() -> str:
    """Return the command line as the shell hands it over: Bash, then the others."""
    return os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""


def _columns(path: Path) -> list[str]:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = file.readline(LONGEST)
    delimiters = TEXT[path.suffix]
    if not delimiters:
        return list(json.loads(first))
    return next(csv.reader([first], delimiter=max(delimiters, key=first.count)), [])


def complete_sources(incomplete: str) -> list[str]:
    """Leave sources to the shell; the type that Bash has torn from its column is completed here."""
    torn = SPLIT_BY_BASH.search(_typed())
    return [] if torn is None else [kind for kind in KINDS if kind.startswith(torn[1])]


def complete_models(incomplete: str) -> list[str]:
    """Complete to directories of checkpoints and to saved models; the shell finds the way there."""
    where, name = os.path.split(incomplete)
    try:
        found = [path for path in Path(where or ".").iterdir() if path.name.startswith(name) and holds_model(path)]
    except OSError:
        return []
    return sorted(os.path.join(where, path.name) for path in found)


def holds_model(path: Path) -> bool:
    """Return whether a path looks like a saved model, or like a directory of them that a run or a server left."""
    if path.name.startswith("."):
        return False
    if not path.is_dir():
        return path.suffix == ".safetensors"
    return any(any(folder.glob("checkpoint-*.safetensors")) for folder in (path, path / "live"))
