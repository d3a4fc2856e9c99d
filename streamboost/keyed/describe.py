"""What a model for each key is, in plain values."""

from __future__ import annotations

from typing import Any

from streamboost.estimators.classifier import SGBClassifier
from streamboost.estimators.describe import describe, plain
from streamboost.keyed.model import KeyedModel


def describe_keyed(model: KeyedModel) -> dict[str, Any]:
    """All that JSON can hold of it: as of an estimator what there is of that, and ``key``, ``keys`` and ``hot``.

    Examples
    --------
    >>> model = KeyedModel(key="store").partial_fit([{"store": "Bonn", "x": 1.0}, {"store": "Graz", "x": 2.0}], [1, 2])
    >>> about = describe_keyed(model)
    >>> about["kind"], about["key"], about["keys"], about["rows"], about["columns"][0]
    ('KeyedModel', 'store', 2, 2, {'name': 'x', 'kind': 'number'})
    """
    about = describe(model.template)
    kinds = {} if not model.n_keys else dict(zip(model.encoder_.names, model.encoder_.kinds, strict=True))
    about |= {
        "kind": type(model).__name__,
        "rows": model.n_samples_seen_,
        "key": model.key,
        "keys": model.n_keys,
        "hot": model.hot,
        "bytes": model.n_bytes,
        "columns": [{"name": name, "kind": kind} for name, kind in kinds.items() if name != model.key],
        "prior": None if model.prior is None else type(model.prior).__name__,
    }
    if isinstance(model.template, SGBClassifier) and model.n_keys:
        about["classes"] = [plain(label) for label in model.classes_.tolist()]
    return about
