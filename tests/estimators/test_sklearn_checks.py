"""scikit-learn's own check suite, check by check."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from streamboost import SGBClassifier, SGBRegressor

EXPECTED_TO_FAIL = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "an online learner takes rows in order: a row of weight 2 is not the same as meeting it twice, at another time "
    "(scikit-learn expects the same of SGDRegressor, SGDClassifier and Perceptron)",
)


DEFAULTS = [SGBRegressor(), SGBClassifier()]
OTHERS = [SGBRegressor(learner="linear", n_estimators=3), SGBClassifier("logistic")]


def pytest_generate_tests(metafunc):
    """Let the defaults take every check, and the others every second one by turns; in the long form, all of them."""
    if "check" in metafunc.fixturenames:
        is_long, cases = metafunc.config.getoption("--long"), []
        for k, estimator in enumerate([*DEFAULTS, *OTHERS]):
            checks = list(estimator_checks_generator(estimator, expected_failed_checks=EXPECTED_TO_FAIL, mark="xfail"))
            cases += checks if is_long or estimator in DEFAULTS else checks[k % 2 :: 2]
        metafunc.parametrize(("estimator", "check"), cases, ids=name_of)


def name_of(value):
    """A check with its options, or an estimator."""
    if not hasattr(value, "func"):
        return " ".join(repr(value).split())
    return f"{value.func.__name__}({', '.join(f'{name}={option}' for name, option in value.keywords.items())})"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:class 2 is 100.0% of the last tenth:UserWarning")  # iris is sorted by class
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", DEFAULTS)
def test_the_checks_that_are_declined_are_there(estimator):
    names = {check.func.__name__ for _, check in estimator_checks_generator(estimator)}
    assert set(EXPECTED_TO_FAIL) <= names
    assert len(names) > 40
