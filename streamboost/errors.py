"""Our few exceptions, and messages about absent dependencies and files that cannot be written.

::

    Exception
    ├── ImportError
    │   └── MissingDependency   an extra is not installed
    ├── RuntimeError
    │   └── LeaseLost           another process writes to this directory by now
    └── ValueError
        └── SnapshotError       a saved model is damaged or foreign
            └── NewerFormat     it is whole, but only a later version can read it

Everything else is a plain ``ValueError`` or ``TypeError`` that names the argument, shows the value
and gives one way out.
"""

import difflib
import importlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

SKIP = re.compile(r"(, |,? or )pass on_bad='skip'(, or )?")  # a way out of a bad row, among others


class MissingDependency(ImportError):
    """An optional package is needed and not installed."""


class LeaseLost(RuntimeError):
    """Another process has taken the directory meanwhile: nothing more is written."""


class SnapshotError(ValueError):
    """A saved model cannot be loaded."""


class NewerFormat(SnapshotError):
    """A saved model is of a format that only a later version reads."""


def refused(name: str, value: object, expected: str, kind: type[Exception] = ValueError) -> Exception:
    """Return an error that says what a parameter is, and what was expected, with the nearest of the words named there.

    Examples
    --------
    >>> refused("mode", "fats", "'fast' or 'slow'.")
    ValueError("mode is 'fats', expected 'fast' or 'slow'. Did you mean 'fast'?")
    """
    meant = did_you_mean(value, re.findall(r"'([^' ]+)'", expected)) if isinstance(value, str) else ""
    return kind(f"{name} is {value!r}, expected {expected}{meant}")


def frozen(noun: str) -> RuntimeError:
    """Return what to say where something frozen is to learn."""
    way_out = "Learn with the model it was made of: freeze leaves that as it is"
    return RuntimeError(f"the {noun} is frozen: it predicts, and learns no more. {way_out}.")


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the known word nearest to one that is not; empty if none is near.

    Examples
    --------
    >>> did_you_mean("rsme", ["rmse", "mae"]), did_you_mean("f1", ["rmse", "mae"])
    (" Did you mean 'rmse'?", '')
    """
    words = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word).lower(), words, n=1)
    return f" Did you mean {words[near[0]]!r}?" if near else ""


def require(package: str, *, extra: str, by: str) -> ModuleType:
    """Import ``package``, or say which extra brings it.

    Examples
    --------
    >>> require("no_such_package", extra="river", by="RiverStack")
    Traceback (most recent call last):
        ...
    streamboost.errors.MissingDependency: RiverStack needs no_such_package, which is not installed. Run: ...
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        message = f"{by} needs {package}, which is not installed. Run: pip install 'streamboost[{extra}]'"
        raise MissingDependency(message) from error


@contextmanager
def writing(path: str | os.PathLike[str], way_out: str) -> Iterator[None]:
    """Name the file in an error about writing it, and what to do when there is room.

    Examples
    --------
    >>> with writing("said.csv", "begin anew"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
        ...
    OSError: 'said.csv' could not be written (No space left on device). Make room there, and begin anew.
    """
    try:
        yield
    except OSError as error:
        told = f"{os.fspath(path)!r} could not be written ({error.strerror or error}). Make room there, and {way_out}."
        raise OSError(told) from error
