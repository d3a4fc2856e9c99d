"""The two estimators as River's own: subclasses of River's bases, for its pipelines, metrics and checks.

They are the same classes with the same state; importing this module needs River.

Examples
--------
>>> from river import datasets, evaluate, metrics
>>> from streamboost.river_models import SGBClassifier
>>> evaluate.progressive_val_score(datasets.Phishing(), SGBClassifier(), metrics.Accuracy()).get() > 0.85
True
"""

from __future__ import annotations

from streamboost import estimators
from streamboost.errors import require

require("river", extra="river", by="streamboost.river_models")

from river import base  # noqa: E402 (only once it is known to be there)


class SGBRegressor(estimators.SGBRegressor, base.MiniBatchRegressor):
    """:class:`streamboost.SGBRegressor`, as one of River's regressors."""


class SGBClassifier(estimators.SGBClassifier, base.MiniBatchClassifier):  # type: ignore[misc]
    """:class:`streamboost.SGBClassifier`, as one of River's classifiers."""

    @property
    def _multiclass(self) -> bool:
        return True
