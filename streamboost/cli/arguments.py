"""What commands are given: options, and errors in them.

Nothing is imported here that takes its time, as nothing may be that ``--help`` or a completion needs: a command imports
what it works with when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from streamboost.cli.completion import complete_kinds, complete_models, complete_nothing, one_of
from streamboost.cli.display import sentence_of
from streamboost.errors import did_you_mean

TASKS = ("auto", "regression", "classification")
METRICS = (  # of streamboost.metrics.BY_NAME
    "rmse", "mae", "r2", "pinball", "accuracy", "kappa", "log_loss", "auc", "f1", "balanced_accuracy", "pr_auc",
    "brier", "ece",
)  # fmt: skip
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow")
ENCODINGS = ("utf-8", "latin-1", "cp1252", "utf-16")


def option(
    help: str,
    metavar: str | None = None,
    *,
    panel: str | None = None,
    complete: Callable[[str], Iterable[str]] | None = None,
    **settings: Any,
) -> Any:
    """Describe an option of a command, the panel of its help, and values to complete; limits are among the settings."""
    return typer.Option(help=help, metavar=metavar, rich_help_panel=panel, autocompletion=complete, **settings)


def flag(help: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """Describe an option of a command that takes no value."""
    return typer.Option(*names, help=help, metavar="", rich_help_panel=panel, **settings)


def file_option(help: str, metavar: str = "FILE", panel: str | None = None) -> Any:
    """Describe an option that names a file or a directory; the shell completes it."""
    return option(help, metavar, panel=panel, complete=complete_nothing)


ROWS = "Rows"
Format = Annotated[
    str | None,
    option("csv, tsv, jsonl, parquet or arrow, if names do not tell.", "FORMAT", panel=ROWS, complete=one_of(FORMATS)),
]
Types = Annotated[
    list[str] | None,
    option("A column's type, such as zip=string; may be repeated.", "COL=TYPE", panel=ROWS, complete=complete_kinds),
]
Delimiter = Annotated[
    str | None,
    option("Between the values of a CSV, such as ';' or tab; found if left out.", "CHAR", panel=ROWS),
]
Decimal = Annotated[
    str | None,
    option("What begins a fraction in a CSV, '.' or ','; found if left out.", "CHAR", panel=ROWS),
]
Encoding = Annotated[
    str | None,
    option("Of text, such as latin-1 or utf-16; found if left out.", "NAME", panel=ROWS, complete=one_of(ENCODINGS)),
]
Names = Annotated[
    str | None, option("The columns of a CSV whose first line does not name them.", "A,B,...", panel=ROWS)
]
ModelPath = Annotated[
    Path, option("A run's directory, or a file that model.save wrote.", "MODEL", complete=complete_models)
]
AsJson = Annotated[bool, flag("Print one JSON object.", "--json")]


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, a line each."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


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


def check_word(word: str, known: Sequence[str], option: str) -> None:
    """Refuse a word that is none of those an option takes, and suggest the nearest."""
    if word not in known:
        expected = f"{', '.join(known[:-1])} or {known[-1]}.{did_you_mean(word, known)}"
        raise UsageError(f"{option} is {word!r}, expected {expected}")


def check_column(name: str, columns: Sequence[str], option: str) -> None:
    """Refuse a column that is not there, and suggest the nearest name."""
    if name not in columns:
        told = f"expected one of the columns {list(columns)}.{did_you_mean(name, columns)}"
        raise UsageError(f"{option} is {name!r}, {told}")
