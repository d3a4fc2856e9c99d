"""Gradient boosting that learns from a stream: one pass, bounded memory, ready to predict at every row."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamboost.boosting import Booster
    from streamboost.estimators import SGBClassifier, SGBRegressor
    from streamboost.keyed import KeyedModel
    from streamboost.persistence.registry import skops_trusted_types
    from streamboost.persistence.snapshots import load

__version__ = "0.1.0"

__all__ = ["Booster", "KeyedModel", "SGBClassifier", "SGBRegressor", "load", "skops_trusted_types"]

_HOMES = {
    "Booster": "boosting",
    "KeyedModel": "keyed",
    "SGBClassifier": "estimators",
    "SGBRegressor": "estimators",
    "load": "persistence.snapshots",
    "skops_trusted_types": "persistence.registry",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: scikit-learn alone takes seconds, and not all need it."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
