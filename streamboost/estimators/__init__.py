"""What users make: the two estimators, for scikit-learn's and River's dialects alike."""

from streamboost.estimators.classifier import SGBClassifier
from streamboost.estimators.regressor import SGBRegressor

__all__ = ["SGBClassifier", "SGBRegressor"]
