"""What TAB offers for a value; where nothing is offered, the shell offers files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

KINDS = ("string", "float64", "int64", "bool", "timestamp[us]", "date32")  # for --type; Arrow knows more
SPLIT_BY_BASH = re.compile(r"--type \S+ = ?(\S*)$")  # which takes COL=TYPE for three words


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


def complete_sources(incomplete: str) -> list[str]:
    """Leave sources to the shell; the type that Bash has torn from its column is completed here."""
    torn = SPLIT_BY_BASH.search(os.environ.get("COMP_WORDS", ""))
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
