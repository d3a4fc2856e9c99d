"""River's own check suite, and River's pipelines and metrics."""

import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing, time_series, tree

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


@pytest.mark.parametrize(("p", "d", "q"), [(0, 0, 0), (1, 0, 0), (2, 1, 2)])
def test_it_forecasts_inside_snarimax_that_begins_without_columns(p, d, q):
    model = time_series.SNARIMAX(p=p, d=d, q=q, regressor=SGBRegressor(random_state=0))
    for t in range(300):
        model.learn_one(10.0 + (-1) ** t)
    forecast = model.forecast(horizon=4)
    assert all(8 < value < 12 for value in forecast)
    if p:  # it knows what came before
        assert forecast[0] > forecast[1] < forecast[2] > forecast[3]
