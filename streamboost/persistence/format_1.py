"""What names of format 1 are called now: it told classes by ``module:Class``, and some attributes by other words."""

from __future__ import annotations

from typing import Any

CLASSES = {  # those whose name now is not their name then
    "river_models:SGBClassifier": "river.SGBClassifier",
    "river_models:SGBRegressor": "river.SGBRegressor",
    "stacks.update_rules:AdaGrad": "AdaGradRule",
    "succession:Succession": "DriftReplacement",
}
ESTIMATOR = {"semantics": "update_mode", "silent_": "unseen_columns_"}
ATTRIBUTES: dict[str, dict[str, str]] = {  # of classes by their name now: what an attribute is called now
    "Booster": {"semantics": "update_mode"},
    "Committee": {"succession": "drift_replacement"},
    "DriftReplacement": {"duel": "paired_test"},
    "EdgeMeter": {"missed": "residual_ss", "size": "target_ss", "recall": "decay"},
    "Hedge": {"tempering": "temperature_scale", "trust": "posterior", "voices": "weights"},
    "Replay": {"_marks": "_leaf_ids"},
    "TorchStack": {"_bend": "_averaging_power"},
    **{key: {"bend": "averaging_power"} for key in ("ConvStack", "ListedModules", "StackedModules", "TwoLayerStack")},
    **dict.fromkeys(("SGBClassifier", "SGBRegressor", "river.SGBClassifier", "river.SGBRegressor"), ESTIMATOR),
}


def modernize(kind: str, keys: list[Any]) -> tuple[str, list[Any]]:
    """Return the kind and the keys of a node of format 1, ``streamboost.losses:Squared``, as format 2 has them."""
    package, _, place = kind.partition(".")
    if package != "streamboost" or ":" not in place:
        return kind, keys
    name = CLASSES.get(place, place.partition(":")[2])
    renamed = ATTRIBUTES.get(name, {})
    return name, [renamed.get(key, key) for key in keys] if renamed else keys
