"""What commands are given: options, and errors in them. Imports nothing that takes its time, as nothing does that
``--help`` or a completion needs: a command imports what it works with when it is called.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from streamboost.cli.display import sentence_of


def option(help: str, metavar: str | None = None, **settings: Any) -> Any:
    """Describe an option of a command; limits such as ``min`` are among the settings."""
    return typer.Option(help=help, metavar=metavar, **settings)


def flag(help: str, *names: str, **settings: Any) -> Any:
    """Describe an option of a command that takes no value."""
    return typer.Option(*names, help=help, **settings)


Format = Annotated[str | None, option("csv, tsv, jsonl, parquet or arrow, if names do not tell.")]
Types = Annotated[list[str] | None, option("A column's type, such as zip=string; may be repeated.", "COL=TYPE")]
ModelPath = Annotated[Path, option("A run's directory, or a file that model.save wrote.", "MODEL")]
AsJson = Annotated[bool, flag("Print one JSON object.", "--json")]
METRICS = ("rmse", "mae", "r2", "accuracy", "kappa", "log_loss", "auc")  # of streamboost.metrics.BY_NAME


def parse_types(words: Sequence[str]) -> dict[str, str]:
    """Parse types by column; of ``a=b=float64`` the column is ``a=b``."""
    types: dict[str, str] = {}
    for word in words:
        name, _, kind = word.rpartition("=")
        if not name or not kind:
            raise UsageError(f"--type is {word!r}, expected COL=TYPE, such as zip=string or price=float64.")
        if types.get(name, kind) != kind:
            raise UsageError(f"--type gives column {name!r} two types, {types[name]} and {kind}. Drop one of them.")
        types[name] = kind
    return types


class UsageError(Exception):
    """The command cannot be carried out as given: exit code 2."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors in here into :class:`UsageError`."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        from streamboost.sources.base import BadRow

        if isinstance(error, (BadRow, ConnectionError)):  # of the rows or of a broker, not of the call
            raise
        raise UsageError(sentence_of(error)) from error


def check_column(name: str, columns: Sequence[str], option: str) -> None:
    """Refuse a column that is not there, and suggest the nearest name."""
    if name in columns:
        return
    near = difflib.get_close_matches(name, columns, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"{option} is {name!r}, expected one of the columns {list(columns)}.{meant}")
