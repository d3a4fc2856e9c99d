"""Contributions of columns, in the words of the estimators: by name, by class, and between two moments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.boosting.explaining import explain_scores
from streamboost.errors import require

if TYPE_CHECKING:
    from streamboost.estimators.base import StreamEstimator

Values = float | dict[Any, float]  # of one score, or of one a class or output


class Contributions(NamedTuple):
    """What each column contributes to the score of a row, by name, and what none does; they add up to the score.

    Of several classes or outputs each is a dict, by label or number.
    """

    columns: dict[Hashable, Values]
    rest: Values


class Change(NamedTuple):
    """What changed scores from then to now, (n, c + 1) each: what the rows did, and what the model learned.

    Their sum over columns, and over both, is the difference of the scores.
    """

    input: FloatArray
    model: FloatArray


def explain(model: StreamEstimator, X: Any) -> FloatArray:
    """Return the contributions (n, c + 1) of columns, the rest last, or (n, c + 1, m) of several scores a row."""
    committee, rows = model.committee_, model.encode([X] if isinstance(X, Mapping) else X)
    try:
        explained = explain_scores(committee, rows, model.encoder_.owners)
    except TypeError as error:
        told = f"{error}, but the learner is {model.learner!r} and iterate={model.iterate!r}"
        raise TypeError(f"{told}. Make a model with learner='tree' and iterate='last'.") from None
    if explained.shape[2] == 2 and hasattr(model, "classes_"):
        return explained[..., 1] - explained[..., 0]
    return explained[..., 0] if explained.shape[2] == 1 else explained


def explain_one(model: StreamEstimator, x: Mapping[Hashable, Any]) -> Contributions:
    """Return the contributions to the score of one row, the largest first."""
    explained = explain(model, x)[0]
    labels = getattr(model, "classes_", np.arange(explained.shape[-1])).tolist()

    def plain(values: Any) -> Values:
        return dict(zip(labels, values.tolist(), strict=True)) if values.ndim else float(values)

    size = np.abs(explained[:-1]).reshape(len(explained) - 1, -1).max(axis=1, initial=0.0)
    names = column_names(model)
    columns = {names[j]: plain(explained[j]) for j in np.argsort(-size, kind="stable")}
    return Contributions(columns, plain(explained[-1]))


def explain_change(x_then: Any, x_now: Any, model_then: StreamEstimator, model_now: StreamEstimator) -> Change:
    """Return why the scores of ``model_now`` for ``x_now`` are not those of ``model_then`` for ``x_then``.

    What the rows did is the mean of what they do under either model, and what the model learned the mean of what that
    changes for either rows: neither comes first (the Shapley value of both).
    """
    names = column_names(model_now)
    then = [_by_name(explain(model_then, X), column_names(model_then), names) for X in (x_then, x_now)]
    now = [explain(model_now, X) for X in (x_then, x_now)]
    if len({each.shape for each in (*then, *now)}) > 1:
        shapes = f"scores of shape {then[0].shape} then, and {now[1].shape} now"
        raise ValueError(f"{shapes}, expected the same rows, and the same classes or outputs. Explain each by itself.")
    return Change((then[1] - then[0] + now[1] - now[0]) / 2.0, (now[0] - then[0] + now[1] - then[1]) / 2.0)


def shap_explanation(model: StreamEstimator, X: Any) -> Any:
    """Return the contributions as a ``shap.Explanation``, for the plots of shap (which is to be installed)."""
    shap = require("shap", extra="shap", by="shap_explanation")
    explained = explain(model, X)
    names, rows = column_names(model), X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    return shap.Explanation(
        values=explained[:, :-1], base_values=explained[:, -1], data=rows, feature_names=list(map(str, names))
    )


def column_names(model: StreamEstimator) -> list[Hashable]:
    """The names of columns, their numbers where they have none."""
    encoder = model.encoder_
    return list(encoder.names) if encoder.names is not None else list(range(encoder.n_features))


def _by_name(explained: FloatArray, names: list[Hashable], wanted: list[Hashable]) -> FloatArray:
    """Contributions (n, c + 1, ...) in another order of columns; those that are not there contribute nothing."""
    ordered = np.zeros((len(explained), len(wanted) + 1, *explained.shape[2:]))
    ordered[:, -1] = explained[:, -1]
    for j, name in enumerate(names):
        ordered[:, wanted.index(name) if name in wanted else -1] += explained[:, j]
    return ordered
