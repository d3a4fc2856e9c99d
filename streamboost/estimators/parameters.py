"""Parameters nobody knows are refused by the estimator's own name, with the one that was probably meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

Init = TypeVar("Init", bound=Callable[..., None])

# What scikit-learn, LightGBM, XGBoost, CatBoost and River call what has another name here.
ELSEWHERE = {
    **dict.fromkeys(
        ("n_trees", "num_trees", "iterations", "n_iter", "max_iter", "num_iterations", "num_boost_round", "n_models"),
        "n_estimators",
    ),
    **dict.fromkeys(("eta", "lr", "shrinkage", "shrinkage_rate", "step_size"), "learning_rate"),
    **dict.fromkeys(("depth", "tree_depth"), "max_depth"),
    **dict.fromkeys(("min_child_samples", "min_data_in_leaf"), "min_samples_leaf"),
    **dict.fromkeys(("reg_lambda", "lambda_l2", "l2_leaf_reg", "l2_regularization"), "l2"),
    **dict.fromkeys(("colsample_bynode", "colsample_bytree", "feature_fraction"), "max_features"),
    **dict.fromkeys(("monotone_constraints", "monotonic_constraints"), "monotonic_cst"),
    **dict.fromkeys(("objective", "criterion", "loss_function"), "loss"),
    **dict.fromkeys(("seed", "random_seed"), "random_state"),
    **dict.fromkeys(("nthread", "num_threads", "thread_count"), "n_jobs"),
    **dict.fromkeys(("window", "window_size"), "memory"),
    **dict.fromkeys(("estimator", "base_estimator", "base_model", "model"), "learner"),
    **dict.fromkeys(("init", "base_score", "init_model"), "base"),
}


def no_parameter(estimator: str, unknown: str, known: Sequence[str]) -> str:
    """Return what to say of a parameter that an estimator does not have."""
    meant = [ELSEWHERE[unknown]] if unknown in ELSEWHERE else get_close_matches(unknown, known, n=1)
    hint = f"Did you mean {meant[0]!r}?" if meant else f"There are {', '.join(known)}."
    return f"{estimator} has no parameter {unknown!r}. {hint}"


def refuse_unknown(init: Init) -> Init:
    """Make ``__init__`` refuse unknown parameters with a suggestion; its signature stays what it is."""
    known = list(inspect.signature(init).parameters)[1:]

    @wraps(init)
    def checked(self: Any, *args: Any, **params: Any) -> None:
        name = type(self).__name__
        for unknown in params.keys() - set(known):
            raise TypeError(no_parameter(name, unknown, known))
        if len(args) > 1:
            raise TypeError(f"{name} takes its loss alone without a name, as in {name}({args[0]!r}, n_estimators=60).")
        init(self, *args, **params)

    return cast(Init, checked)
