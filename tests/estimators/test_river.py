"""River's own check suite, and River's pipelines and metrics."""

import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing, tree

from streamboost import estimators
from streamboost.river_models import SGBClassifier, SGBRegressor

MODELS = [SGBRegressor(), SGBClassifier()]


def all_checks():
    for model in MODELS:
        for number, check in enumerate(checks.yield_checks(model)):
            yield pytest.param(model, check, id=f"{type(model).__name__}-{number}-{check.__name__}")


@pytest.mark.parametrize(("model", "check"), list(all_checks()))
def test_rivers_checks_pass(model, check):
    check(model.clone())


def test_no_check_of_rivers_is_declined():
    assert [model._unit_test_skips() for model in MODELS] == [set(), set()]


def test_the_classes_are_the_estimators_themselves():
    assert issubclass(SGBRegressor, estimators.SGBRegressor)
    assert issubclass(SGBClassifier, estimators.SGBClassifier)


def test_it_beats_a_hoeffding_tree_in_a_river_pipeline():
    def accuracy(model):
        return evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get()

    ours = accuracy(compose.Pipeline(preprocessing.StandardScaler(), SGBClassifier()))
    theirs = accuracy(compose.Pipeline(preprocessing.StandardScaler(), tree.HoeffdingTreeClassifier()))
    assert ours > theirs
