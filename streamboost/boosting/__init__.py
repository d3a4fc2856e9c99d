"""Boosters and committees of them: the paper's algorithms, the hedge over memories, and the loops that run them."""

from streamboost.boosting.booster import Booster
from streamboost.boosting.committee import Committee

__all__ = ["Booster", "Committee"]
