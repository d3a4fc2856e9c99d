"""What every base promises, held for each of ours."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression, LogisticRegression

from streamboost.bases import Constant, Frozen, Linear
from streamboost.losses import Absolute, Logistic, Scale, Softmax, Squared
from streamboost.testing.loss_checks import targets_for

D = 3
PROBES = np.random.default_rng(2).normal(size=(7, D))


def fitted(model, classes=0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, D))
    return model.fit(X, rng.integers(classes, size=60) if classes else X @ [1.0, 2.0, 0.0])


def first_column(X):
    return X[:, 0]


BASES = {
    "constant": (Constant, Squared()),
    "median": (Constant, Absolute(n_outputs=2)),
    "fixed constant": (lambda: Constant(0.7), Logistic()),
    "linear": (Linear, Squared(n_outputs=2)),
    "linear, adagrad": (lambda: Linear(forget=0.99), Softmax(n_classes=3)),
    "frozen regressor": (lambda: Frozen(fitted(LinearRegression())), Squared()),
    "frozen classifier": (lambda: Frozen(fitted(LogisticRegression(), 2)), Logistic()),
    "frozen classifier of three": (lambda: Frozen(fitted(LogisticRegression(), 3)), Softmax(n_classes=3)),
    "frozen function": (lambda: Frozen(first_column), Squared()),
}


@pytest.fixture(params=BASES)
def kind(request):
    return request.param


def opened(kind):
    make, loss = BASES[kind]
    base = make()
    base.open(D, loss.n_outputs)
    return base


def teach(kind, base, salt, columns=0, n=30):
    """Let it learn some rows; another ``salt``, other rows."""
    loss = BASES[kind][1]
    X, y = np.random.default_rng((2, salt)).normal(size=(n, D + columns)), targets_for(loss)[:n]
    base.learn(X, y, np.ones(n), loss, Scale(1.0, 1.0))


@pytest.fixture
def base(kind):
    """A base in the middle of its stream."""
    base = opened(kind)
    teach(kind, base, 1)
    return base


def test_answers_are_finite_float64_of_the_right_shape_for_no_rows_too(kind, base):
    for one in (opened(kind), base):
        for n in (0, 1, 7):
            said = one.predict(PROBES[:n])
            assert said.shape == (n, BASES[kind][1].n_outputs)
            assert said.dtype == np.float64
            assert np.isfinite(said).all()


def test_predicting_changes_nothing_and_what_it_returned_belongs_to_the_caller(kind, base):
    silent = copy.deepcopy(base)
    said = base.predict(PROBES)
    kept = said.copy()
    said[:] = 1e6
    assert_array_equal(base.predict(PROBES), kept)
    for one in (base, silent):
        teach(kind, one, 2)
    assert_array_equal(base.predict(PROBES), silent.predict(PROBES))


def test_learning_no_rows_changes_nothing(kind, base):
    before = base.predict(PROBES)
    teach(kind, base, 2, n=0)
    assert_array_equal(base.predict(PROBES), before)


def test_more_columns_and_outputs_leave_old_answers_and_new_outputs_stand_at_the_score_given(kind, base):
    before = base.predict(PROBES)
    base.add_features(2)
    wide = np.pad(PROBES, ((0, 0), (0, 2)), constant_values=np.nan)
    assert_allclose(base.predict(wide), before, rtol=1e-9, atol=1e-12)
    teach(kind, base, 2, columns=2)
    before = base.predict(wide)
    base.add_outputs(2, -0.5)
    after = base.predict(wide)
    assert_allclose(after[:, :-2], before, rtol=1e-9, atol=1e-12)
    assert_allclose(after[:, -2:], -0.5, rtol=1e-9)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda base: pickle.loads(pickle.dumps(base))])
def test_a_copy_shares_nothing_with_its_original_and_goes_on_as_it_would(kind, base, copied):
    twin = copied(base)
    before = base.predict(PROBES)
    teach(kind, twin, 2)
    assert_array_equal(base.predict(PROBES), before)
    teach(kind, base, 2)
    assert_array_equal(twin.predict(PROBES), base.predict(PROBES))
