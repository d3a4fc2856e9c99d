"""The two estimators as River's own: subclasses of River's bases, for its pipelines, metrics and checks."""

from streamboost.estimators.river import SGBClassifier, SGBRegressor

__all__ = ["SGBClassifier", "SGBRegressor"]
