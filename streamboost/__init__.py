"""Gradient boosting that learns from a stream: one pass, bounded memory, ready to predict at every row."""

from streamboost.boosting import Booster
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.snapshots import load

__version__ = "0.1.0"

__all__ = ["Booster", "SGBClassifier", "SGBRegressor", "load"]
