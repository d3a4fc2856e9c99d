"""scikit-learn's own check suite, check by check."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from streamboost import SGBClassifier, SGBRegressor

EXPECTED_TO_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": (
        "an online learner takes rows in order: a row of weight 2 is not the same as meeting it twice, at another time "
        "(scikit-learn expects the same of SGDRegressor, SGDClassifier and Perceptron)"
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [SGBRegressor(), SGBClassifier(), SGBRegressor(learner="linear", n_estimators=3), SGBClassifier("logistic")],
    expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL,
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [SGBRegressor(), SGBClassifier()])
def test_no_more_than_the_one_named_check_is_declined(estimator):
    names = {check.func.__name__ for _, check in estimator_checks_generator(estimator)}
    assert set(EXPECTED_TO_FAIL) <= names
    assert len(names) > 40
