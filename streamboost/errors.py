"""Our few exceptions, and how an optional dependency explains its absence.

::

    Exception
    ├── ImportError
    │   └── MissingDependency   an extra is not installed
    └── ValueError
        └── SnapshotError       a saved model is damaged or foreign
            └── NewerFormat     it is whole, but only a later version can read it

Everything else is a plain ``ValueError`` or ``TypeError`` that names the argument, shows the value
and gives one way out.
"""

import importlib
from types import ModuleType


class MissingDependency(ImportError):
    """An optional package is needed and not installed."""


class SnapshotError(ValueError):
    """A saved model cannot be loaded."""


class NewerFormat(SnapshotError):
    """A saved model is of a format that only a later version reads."""


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
