"""The experiments by name, in the order of the page. One that is not written yet is passed over."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

NAMES = ["figure_1", "table_1", "square_error", "figure_2", "relatives", "growing", "counter_example"]


def available() -> list[str]:
    """The names of the experiments there is a module for."""
    return [name for name in NAMES if importlib.util.find_spec(f"experiments.{name}") is not None]


def load(name: str) -> ModuleType:
    """Import an experiment."""
    if name not in available():
        raise ValueError(f"there is no experiment {name!r}, expected one of {', '.join(available())}.")
    return importlib.import_module(f"experiments.{name}")
