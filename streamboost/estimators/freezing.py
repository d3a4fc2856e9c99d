"""A model without its memories: what predictions need, and what the model says of itself.

In goes a fitted estimator; out comes one of the same class that shares nothing with it that ever changes, holds none of
the rows it learned, and predicts by the same code, bit for bit the same.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sklearn.utils.validation import check_is_fitted

from streamboost.bases import Frozen, Linear
from streamboost.boosting.importances import sample_rows
from streamboost.stacks.tree import TreeStack

if TYPE_CHECKING:
    from streamboost.boosting.committee import Committee
    from streamboost.estimators.base import StreamEstimator
    from streamboost.features.encoder import Encoder

Estimator = TypeVar("Estimator", bound="StreamEstimator")


def freeze(model: Estimator, *, importances: Literal["now", "later"] = "now") -> Estimator:
    """Return a model that predicts as this one does now, and learns no more.

    Parameters
    ----------
    model : fitted estimator
    importances : {"now", "later"}, default="now"
        Finding ``feature_importances_`` takes longer than all the rest. ``"later"`` they are found when they are asked
        for: until then the frozen model holds the few hundred rows that this takes.

    Examples
    --------
    >>> from streamboost import SGBRegressor, datasets
    >>> from streamboost.estimators.describe import size
    >>> X, y, *_ = datasets.friedman(2000, seed=0)
    >>> model = SGBRegressor(random_state=0).partial_fit(X, y)
    >>> frozen = freeze(model)
    >>> bool((frozen.predict(X) == model.predict(X)).all()), size(frozen) < size(model) / 10
    (True, True)
    """
    check_is_fitted(model)
    committee = model.committee_.for_prediction()
    _keep_known_levels(committee, model.encoder_)
    if importances == "now":
        committee.importances = model.committee_.feature_importances(model.encoder_.owners)
    elif not model.committee_.is_frozen and (held := model.committee_.boosters[0].replay) is not None:
        committee.importances = sample_rows(held)
    twin = object.__new__(type(model))
    twin.__dict__.update(model.__dict__, committee_=committee)
    return copy.deepcopy(twin, _known_copies(model, committee))


def _keep_known_levels(committee: Committee, encoder: Encoder) -> None:
    """Give up the room that columns of categories have for levels to come: those will be missing values."""
    n_known = max(map(len, encoder.categories.values()), default=0)
    if not committee.categorical or n_known >= encoder.max_categories:  # then all others share a code of their own
        return
    committee.n_levels = n_known
    for booster in committee.boosters:
        for hypothesis in (booster.present, *(booster.past.kept if booster.past is not None else ())):
            for part in (hypothesis.stack, hypothesis.base):
                if isinstance(part, (TreeStack, Linear)):
                    part.keep_levels(n_known)


def _known_copies(model: StreamEstimator, committee: Committee) -> dict[int, Any]:
    """Return what need not be copied, by its id: what never changes; and models that are the base, frozen as well."""
    known: dict[int, Any] = {id(part): part for part in (model.encoder_, getattr(model, "labels_", None))}
    for base in [booster.base for booster in committee.boosters]:
        if isinstance(base, Frozen) and hasattr(base.model, "committee_") and id(base.model) not in known:
            known[id(base.model)] = freeze(base.model)
    return known
