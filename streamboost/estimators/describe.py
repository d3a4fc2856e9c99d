"""What a model is, in plain values: for people at a terminal, for the server's answer, and for comparing two models."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from streamboost.estimators import SGBClassifier
from streamboost.estimators.base import StreamEstimator
from streamboost.persistence.object_graph import count_bytes


def describe(model: StreamEstimator) -> dict[str, Any]:
    """All that JSON can hold of what a model says of itself.

    That is ``kind``, ``task``, ``rows``, ``parameters`` (those that differ from the defaults), ``columns`` (name and
    kind), ``classes`` (None for numbers), ``frozen``, ``loss``, ``memories`` (each with its learners and their
    ``edges``), ``weights``, ``importances``, ``events``, ``bytes``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streamboost import SGBRegressor
    >>> model = SGBRegressor(memory=256)
    >>> _ = model.learn(pa.table({"x": [1.0, 2.0], "place": ["a", "b"]}), [3.0, 4.0])
    >>> about = describe(model)
    >>> about["rows"], about["parameters"], about["columns"]
    (2, {'memory': 256}, [{'name': 'x', 'kind': 'number'}, {'name': 'place', 'kind': 'category'}])
    """
    about: dict[str, Any] = {
        "kind": type(model).__name__,
        "task": "classification" if isinstance(model, SGBClassifier) else "regression",
        "rows": 0,
        "parameters": _changed_parameters(model),
        "columns": [],
        "classes": None,
        "frozen": model.is_frozen,
    }
    if not hasattr(model, "committee_"):
        return about
    committee, encoder = model.committee_, model.encoder_
    names = encoder.names if encoder.names is not None else range(encoder.n_features)
    about |= {
        "rows": committee.n_rows,
        "columns": [{"name": str(name), "kind": kind} for name, kind in zip(names, encoder.kinds, strict=True)],
        "loss": repr(committee.loss),
        "memories": [
            {
                "memory": None if booster.replay is None else booster.replay.window,
                "held": None if booster.replay is None else booster.replay.fill,
                "learner": type(booster.stack).__name__,
                "learners": booster.stack.n_learners,
                "edges": [plain(edge) for edge in booster.edges.recent.tolist()],
            }
            for booster in committee.boosters
        ],
        "weights": [{"memory": memory, "learners": n, "weight": w} for (memory, n), w in model.weights_.items()],
        "importances": importances(model),
        "events": [event._asdict() for event in model.events_],
        "bytes": size(model),
    }
    if isinstance(model, SGBClassifier):
        about["classes"] = [plain(label) for label in model.classes_.tolist()]
    return about


def importances(model: StreamEstimator) -> dict[str, float] | None:
    """``feature_importances_`` by the names of columns, the largest first; None where there are no trees."""
    try:
        shares = model.feature_importances_
    except AttributeError:
        return None
    names: Any = model.encoder_.names if model.encoder_.names is not None else range(len(shares))
    ordered = sorted(zip(names, shares.tolist(), strict=True), key=lambda item: -item[1])
    return {str(name): share for name, share in ordered}


def plain_metrics(report: Any) -> dict[str, dict[str, float | None]]:
    """The metrics of a report as JSON has them; null where one has no meaning."""
    return {
        name: {"running": plain(value), "windowed": plain(report.windowed[name])}
        for name, value in report.running.items()
    }


def size(model: object) -> int:
    """The bytes of all arrays of a model."""
    return count_bytes(model)


def plain(value: Hashable) -> Any:
    """A value as JSON has it; what it has not, as text or null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _changed_parameters(model: StreamEstimator) -> dict[str, Any]:
    """What was said when the model was made."""
    defaults = type(model)().get_params(deep=False)
    changed = {}
    for name, value in model.get_params(deep=False).items():
        if type(value) is not type(defaults[name]) or repr(value) != repr(defaults[name]):
            changed[name] = list(value) if isinstance(value, tuple) else plain(value)
    return changed
