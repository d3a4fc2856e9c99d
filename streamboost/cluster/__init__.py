"""Beyond one process: a model per key, on workers in this process or on a Ray cluster, which may die.

::

    KeyedBooster     one model per key, a million keys over K workers
         │
       Crew          workers, operations, cuts, recovery: LocalCrew here, RayCrew on Ray

Only the file that runs workers on Ray imports it, when it is used; everything else works without.
"""

from streamboost.cluster.crew import Crew, Cut, LocalCrew, Ticket, WorkerLost, WrongState, make_crew
from streamboost.cluster.key_models import small_classifier, small_regressor
from streamboost.cluster.keyed import KeyedBooster
from streamboost.cluster.ray_crew import RayCrew

__all__ = ["Crew", "Cut", "KeyedBooster", "LocalCrew", "RayCrew", "Ticket", "WorkerLost", "WrongState", "make_crew",
           "small_classifier", "small_regressor"]  # fmt: skip
