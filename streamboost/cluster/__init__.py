"""Beyond one process: models whose parts live on workers, in this process or on a Ray cluster, and survive them.

::

    KeyedBooster     one model per key, a million keys over K workers
         │
       Crew          workers, operations, cuts, recovery: LocalCrew here, RayCrew on Ray

Only the file that runs workers on Ray imports it; everything else works without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamboost.cluster.crew import Crew, Cut, LocalCrew, SnapshotWorker, Ticket, WorkerLost, WrongState, make_crew

if TYPE_CHECKING:
    from streamboost.cluster.key_models import small_classifier, small_regressor
    from streamboost.cluster.keyed import KeyedBooster
    from streamboost.cluster.ray_crew import RayCrew

__all__ = [
    "Crew",
    "Cut",
    "KeyedBooster",
    "LocalCrew",
    "RayCrew",
    "SnapshotWorker",
    "Ticket",
    "WorkerLost",
    "WrongState",
    "make_crew",
    "small_classifier",
    "small_regressor",
]

HOMES = {
    "KeyedBooster": "keyed",
    "RayCrew": "ray_crew",
    "small_classifier": "key_models",
    "small_regressor": "key_models",
}


def __getattr__(name: str) -> Any:
    """Import a shape when it is asked for: a crew needs none of them."""
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
