"""The classes that files may hold, each under a short name that outlives any layout of the package.

A file calls a class by its name here, never by its module: a class may move, its name stays. Only what stands here is
saved, and nothing else is ever made of a file. To save a new class, add it to the line of its module.
"""

from __future__ import annotations

import importlib
from functools import cache

from streamboost.errors import SnapshotError

PACKAGE = __name__.partition(".")[0]

MODULES = {
    "streamboost.bases": "Constant Frozen Linear",
    "streamboost.features.binning": "Bins",
    "streamboost.boosting.booster": "Booster Hypothesis",
    "streamboost.persistence.checkpoints": "Checkpoint",
    "streamboost.boosting.combining": "Combination",
    "streamboost.boosting.committee": "Committee",
    "streamboost.boosting.cost": "CostMeter",
    "streamboost.descents": "AdaGrad Ball Box FrankWolfe GradientDescent Nesterov ResidualProjection",
    "streamboost.boosting.edges": "EdgeMeter",
    "streamboost.boosting.growth": "Growth",
    "streamboost.boosting.sliced_refit": "SlicedRefit",
    "streamboost.features.encoder": "Encoder",
    "streamboost.estimators.classifier": "SGBClassifier",
    "streamboost.estimators.regressor": "SGBRegressor",
    "streamboost.runs.guard": "Guard",
    "streamboost.boosting.hedge": "Hedge",
    "streamboost.boosting.intervals": "Intervals",
    "streamboost.boosting.reservoir": "Reservoir",
    "streamboost.features.labels": "Labels",
    "streamboost.losses.base": "Scale",
    "streamboost.losses.builtin": "Absolute FunctionLoss Huber Poisson Quantile Squared",
    "streamboost.losses.classes": "Hinge Logistic Softmax",
    "streamboost.evaluation.class_metrics": "AUC Accuracy BalancedAccuracy Brier Counts ECE F1 Kappa LogLoss PRAUC",
    "streamboost.evaluation.metric_base": "Mean Ring",
    "streamboost.evaluation.metrics": "MAE Pinball R2 RMSE Spread",
    "streamboost.replay": "PastSums Replay",
    "streamboost.evaluation.scorebook": "ScoreBook",
    "streamboost.stacks.conv": "ConvStack",
    "streamboost.stacks.linear": "LinearStack",
    "streamboost.stacks.neural": "TwoLayerStack",
    "streamboost.stacks.refitted": "BatchStack Fitted FunctionStack Habits",
    "streamboost.stacks.torch_blocks": "ListedModules StackedModules",
    "streamboost.stacks.torch_stack": "TorchStack",
    "streamboost.stacks.tree": "TreeStack",
    "streamboost.stacks.update_rules": "Adam AdaGradRule=AdaGrad Momentum SGD",
    "streamboost.stacks.wrapped": "Copy PartialFitStack RiverStack",
    "streamboost.features.standardizer": "Raw Standardizer",
    "streamboost.boosting.drift_replacement": "DriftReplacement Event",
    "streamboost.estimators.river": "river.SGBClassifier=SGBClassifier river.SGBRegressor=SGBRegressor",
    "streamboost.keyed.model": "KeyedState",
    "streamboost.keyed.prior": "KeyModel PriorLine",
}
FORMER = ("Cut", "Manifest")  # classes of files that are read no more
PLACES: dict[str, tuple[str, str]] = {}  # module and class, by the name in files
for _module, _names in MODULES.items():
    for _entry in _names.split():
        _name, _, _class = _entry.partition("=")
        PLACES[_name] = _module, _class or _name
NAMES = {place: name for name, place in PLACES.items()}


def name_of(cls: type) -> str | None:
    """Return the name of a class in files; None if its objects are not saved."""
    return NAMES.get((cls.__module__, cls.__qualname__))


def skops_trusted_types() -> list[str]:
    """Return the classes that models are made of, by their full names: those that skops has to be told to trust.

    Parts that are not streamboost's own, such as a wrapped learner or a frozen model, come beside them.

    Examples
    --------
    >>> import streamboost
    >>> trusted = streamboost.skops_trusted_types()  # for skops.io.load(path, trusted=trusted)
    >>> "streamboost.boosting.committee.Committee" in trusted
    True
    """
    return [f"{module}.{qualname}" for module, qualname in PLACES.values()]


@cache
def find_class(name: str) -> type:
    """Return the class of a name in files, importing its module if need be."""
    if name in FORMER:
        raise SnapshotError(
            "it is of a model for each key as earlier versions kept them, in a folder 'cluster' beside it, which this "
            "one does not read. Learn its rows again with streamboost run --key, or go on with the version it is of."
        )
    if name not in PLACES:
        raise SnapshotError(
            f"it holds a {name!r}, which is no class that this {PACKAGE} saves. "
            f"Use the version of {PACKAGE} that saved it."
        )
    module, qualname = PLACES[name]
    found: type = getattr(importlib.import_module(module), qualname)
    return found
