"""A tail of other classes is told of by fit, and by nothing else."""

import copy

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.utils import shuffle

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.estimators.prepared import Targets
from streamboost.estimators.row_order import warn_of_tail
from streamboost.features.labels import Labels
from streamboost.persistence.object_graph import same_state

SMALL = {"n_estimators": 2, "max_depth": 2, "memory": 64, "random_state": 0}


def look_at(y):
    """Look at labels as fit does."""
    codes, new = Labels().encode(y)
    warn_of_tail(Targets(codes[:, None], Labels(new), len(new)))


@pytest.fixture
def oversampled():
    """Rows of which one in fifteen is positive, and copies of these at the end until there are as many."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 2)), np.repeat([True, False], [40, 560])[rng.permutation(600)]
    copies = rng.choice(np.flatnonzero(y), 520)
    return np.concatenate([X, X[copies]]), np.concatenate([y, y[copies]])


def test_fit_tells_of_copies_at_the_end_and_what_to_do(oversampled):
    words = (
        r"class True is 100.0% of the last tenth of the rows and 44.4% of those before.*sklearn.utils.shuffle\(X, y\)"
    )
    with pytest.warns(UserWarning, match=words) as told:
        SGBClassifier(**SMALL).fit(*oversampled)
    assert len(told) == 1
    assert told[0].filename == __file__
    for X, y in (shuffle(*oversampled, random_state=0), [part[:600] for part in oversampled]):
        SGBClassifier(**SMALL).fit(X, y)  # warnings are errors here


def test_streams_are_learned_in_whatever_order_they_come(oversampled):
    model = SGBClassifier(**SMALL).partial_fit(*oversampled)
    model.learn(*oversampled)
    SGBRegressor(**SMALL).fit(np.arange(600.0)[:, None], np.arange(600.0))


def test_a_warning_made_an_error_leaves_the_model_as_it_was(oversampled):
    model = SGBClassifier(**SMALL).partial_fit(*oversampled)
    before = copy.deepcopy(model)
    with pytest.raises(UserWarning, match="the last tenth"):
        model.fit(*oversampled)
    assert same_state(model, before)


@pytest.mark.parametrize(
    "counts", [[50, 50, 50], [40, 40, 40], [100, 100], [900, 100], [300] * 10, [800, 100, 100]], ids=str
)
def test_a_sorted_table_is_told_of(counts):
    with pytest.warns(UserWarning, match=f"class {len(counts) - 1} is 100.0% of the last tenth"):
        look_at(np.repeat(np.arange(len(counts)), counts))


def test_folds_of_a_table_sorted_by_class_are_told_of():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match="class 2 is 100.0% of the last tenth") as told:
        cross_val_score(SGBClassifier(**SMALL), X, y)
    assert len(told) == 5


def test_of_few_rows_nothing_is_told():
    look_at(np.repeat([0, 1], [80, 19]))


@pytest.mark.parametrize("name", ["a9a", "electricity"])
def test_shipped_streams_are_silent_wherever_they_are_cut(name):
    y = getattr(datasets, f"load_{name}")().y
    for n in range(100, len(y), 250):
        look_at(y[:n].astype(int))


def test_rows_in_random_order_are_silent():
    rng = np.random.default_rng(0)
    for n_classes in (2, 3, 20, 100):
        for _ in range(300):
            shares = rng.dirichlet(np.full(n_classes, 0.3))
            look_at(rng.choice(n_classes, p=shares, size=int(rng.integers(100, 1000))))
