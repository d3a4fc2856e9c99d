"""What scripts outside the project rely on."""

import inspect

import streamboost
from streamboost import SGBClassifier, SGBRegressor, stacks

SCIKIT_LEARN = ["fit", "partial_fit", "predict", "staged_predict", "score", "get_params", "set_params"]
RIVER = ["learn_one", "predict_one", "learn_many", "predict_many"]
CLASSIFIER = [
    "predict_proba", "predict_log_proba", "decision_function", "staged_predict_proba", "predict_proba_one",
    "predict_proba_many",
]  # fmt: skip


def test_the_package_shows_these_names_and_no_others():
    assert streamboost.__all__ == sorted(streamboost.__all__)
    names = ["Booster", "KeyedModel", "SGBClassifier", "SGBRegressor", "load", "skops_trusted_types"]
    assert streamboost.__all__ == names
    assert all(hasattr(streamboost, name) for name in streamboost.__all__)
    assert stacks.__all__ == sorted(stacks.__all__)


def test_estimators_have_every_verb_of_both_dialects():
    for verb in [*SCIKIT_LEARN, *RIVER, "learn", "save"]:
        assert callable(getattr(SGBRegressor(), verb))
        assert callable(getattr(SGBClassifier(), verb))
    for verb in CLASSIFIER:
        assert callable(getattr(SGBClassifier(), verb))
        assert not hasattr(SGBRegressor(), verb)


def test_only_the_loss_may_be_given_by_position():
    for estimator in (SGBRegressor, SGBClassifier):
        kinds = {name: p.kind for name, p in inspect.signature(estimator).parameters.items()}
        assert kinds.pop("loss") is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}
        assert {"n_estimators", "learning_rate", "max_depth", "random_state"} <= set(kinds)


def test_partial_fit_and_learn_one_have_the_arguments_of_their_dialects():
    assert list(inspect.signature(SGBRegressor().partial_fit).parameters) == ["X", "y", "sample_weight"]
    assert list(inspect.signature(SGBClassifier().partial_fit).parameters) == ["X", "y", "sample_weight", "classes"]
    w = inspect.signature(SGBRegressor().learn_one).parameters["w"]
    assert (w.kind, w.default) == (inspect.Parameter.KEYWORD_ONLY, 1.0)
