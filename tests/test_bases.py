"""y⁰: constants, lines and frozen models. The promises all bases share are in test_contracts.py."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from streamboost.bases import OPENING_ROWS, Constant, Frozen, Linear
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Scale, Softmax, Squared

ONE = Scale(1.0, 1.0)


def opened(base, d=3, m=1):
    base.open(d, m)
    return base


def rows(n=100, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1.0, d + 1)[:, None] + 5.0 + 0.1 * rng.normal(size=(n, 1))


def one_by_one(base, X, y, loss, weight=None, scale=ONE):
    weight = np.ones(len(X)) if weight is None else weight
    for t in range(len(X)):
        base.learn(X[t : t + 1], y[t : t + 1], weight[t : t + 1], loss, scale)
    return base


# Constant


@pytest.mark.parametrize("value", [0.0, -2.5, np.array([1.0, 2.0])])
def test_a_constant_that_is_given_never_moves(value):
    base = opened(Constant(value), m=2)
    X, y = rows()
    one_by_one(base, X, np.tile(y, 2), Squared(n_outputs=2))
    assert_array_equal(base.predict(X[:3]), np.broadcast_to(value, (3, 2)))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (Squared(), np.mean),
        (Absolute(), np.median),
        (Quantile(tau=0.25), lambda y: np.quantile(y, 0.25, method="averaged_inverted_cdf")),
        (Poisson(), lambda y: math.log(np.mean(y))),
        (Huber(delta=1e6), np.mean),
    ],
    ids=lambda part: type(part).__name__,
)
@pytest.mark.parametrize("n", [1, 2, 9, 63])
def test_a_constant_left_out_is_the_loss_own_start_so_far(loss, expected, n):
    y = np.random.default_rng(0).gamma(2.0, size=(n, 1))
    base = one_by_one(opened(Constant()), np.zeros((n, 3)), y, loss)
    assert_allclose(base.predict(np.zeros((1, 3))), [[expected(y)]], rtol=1e-6)


def test_it_is_found_from_the_first_64_rows_and_then_fixed():
    y = np.random.default_rng(0).normal(size=(200, 1))
    base = one_by_one(opened(Constant()), np.zeros((200, 3)), y, Squared())
    assert_allclose(base.predict(np.zeros((1, 3))), [[y[:OPENING_ROWS].mean()]])


@given(st.lists(st.integers(0, 100), max_size=4))
@settings(deadline=None)
def test_how_rows_come_in_chunks_does_not_matter_to_a_constant(cuts):
    y = np.random.default_rng(0).normal(size=(100, 1))
    base = opened(Constant())
    for part in np.split(y, sorted(cuts)):
        base.learn(np.zeros((len(part), 3)), part, np.ones(len(part)), Absolute(), ONE)
    assert_allclose(base.predict(np.zeros((1, 3))), [[np.median(y[:OPENING_ROWS])]])


def test_weights_count_and_rows_of_weight_zero_do_not():
    y, weight = np.array([[1.0], [100.0], [3.0]]), np.array([1.0, 0.0, 3.0])
    base = one_by_one(opened(Constant()), np.zeros((3, 3)), y, Squared(), weight)
    assert_allclose(base.predict(np.zeros((1, 3))), [[2.5]])
    empty = one_by_one(opened(Constant()), np.zeros((3, 3)), y, Squared(), np.zeros(3))
    assert_array_equal(empty.predict(np.zeros((1, 3))), [[0.0]])


def test_a_constant_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="value is nan, expected finite numbers"):
        Constant(math.nan)


# Linear


class Coordinates:
    """The coordinates of a line, in slow motion: the moments so far; of least squares, later, in steps of a tenth.

    ``change`` is told of every such move: column j is then a z + b, where it was z.
    """

    def __init__(self, d, change=None):
        self.rows, self.change, self.center, self.inverse = [], change, np.zeros(d), np.zeros(d)

    def __call__(self, x):
        """Take in a row; return where it stands, and a 1."""
        self.rows.append(x)
        mean, deviation = np.mean(self.rows, axis=0), np.std(self.rows, axis=0)
        for j in range(len(x)):
            is_young = self.change is None or len(self.rows) < 256 or self.inverse[j] == 0
            ratio, moved = deviation[j] * self.inverse[j], (mean[j] - self.center[j]) * self.inverse[j]
            if not is_young and 0.9 < ratio < 1.1 and abs(moved) < 0.1:
                continue
            new = 1 / deviation[j] if deviation[j] > 0 else 0.0
            if not is_young:
                self.change(j, new / self.inverse[j], (self.center[j] - mean[j]) * new)
            self.center[j], self.inverse[j] = mean[j], new
        return self.place(x)

    def place(self, X):
        Z = np.clip((X - self.center) * self.inverse, -5, 5)
        return np.concatenate([Z, np.ones((*Z.shape[:-1], 1))], axis=-1)


def test_for_the_square_loss_it_is_ridge_regression_on_standardised_rows():
    X, y = rows(400)
    X[300:, 1] += 3.0  # a column that moves
    base = one_by_one(opened(Linear()), X, y, Squared())
    A, b, changes = np.diag([3.0, 3.0, 3.0, 1e-3]), np.zeros((4, 1)), []

    def change(j, scale, shift):  # what was summed up of z is now to be summed up of z' = T z
        nonlocal A, b
        T = np.eye(4)
        T[j, j], T[j, 3] = scale, shift
        A, b = T @ A @ T.T, T @ b
        changes.append(j)

    coordinates = Coordinates(3, change)
    for x, target in zip(X, y, strict=True):
        z = coordinates(x)[:, None]
        A, b = A + z @ z.T, b + z * target
    assert 1 in changes
    assert_allclose(base.predict(X), coordinates.place(X) @ np.linalg.solve(A, b), rtol=1e-8)


def test_a_weight_begins_with_as_many_rows_of_ridge_as_columns_have_had_values():
    X, y = rows(120)
    X[:40, 1] = np.nan  # the second column has its first value after the others
    weight = np.ones(120)
    weight[20] = 0.0
    X[20, 1] = 7.0  # in a row that is none
    base = one_by_one(opened(Linear()), X, y, Squared(), weight)
    kept = weight > 0
    Z, inverse = (
        np.zeros((120, 4)),
        np.diag([1 / 2, 1 / 3, 1 / 2, 1e3]),
    )  # of what was known at the first row, and at 40
    again = opened(Linear())
    for t in np.flatnonzero(kept):
        one = slice(t, t + 1)
        again.learn(X[one], y[one], np.ones(1), Squared(), ONE)
        Z[t] = np.append(np.nan_to_num((X[t] - again.center) * again.inverse), 1.0)
    A = np.linalg.inv(inverse) + Z[kept].T @ Z[kept]
    assert_allclose(base.weights, np.linalg.solve(A, Z[kept].T @ y[kept]), rtol=1e-8)


def test_columns_that_are_still_to_come_change_no_weight_before():
    X, y = rows(80)
    X[:50, 2] = np.nan
    wide, grown = opened(Linear()), opened(Linear(), d=2)
    for rows_now in (slice(30), slice(30, 50)):
        wide.learn(X[rows_now], y[rows_now], np.ones(len(y[rows_now])), Squared(), ONE)
        grown.learn(X[rows_now, :2], y[rows_now], np.ones(len(y[rows_now])), Squared(), ONE)
    assert_array_equal(wide.predict(X[:50]), grown.predict(X[:50, :2]))
    grown.add_features(1)
    for base in (wide, grown):
        base.learn(X[50:], y[50:], np.ones(30), Squared(), ONE)
    assert_array_equal(wide.predict(X), grown.predict(X))


def test_a_line_says_the_same_when_its_coordinates_change():
    X, y = rows(800)
    X[:, 0] += 0.05 * np.arange(800)  # a column that never comes to rest
    base = opened(Linear())
    said, n_changes = [], 0
    for t in range(800):
        before = base.predict(X[:t])
        center = base.center.copy()
        z = np.append((X[t] - center) * base.inverse, 1.0)  # not held to the range, which is about to grow
        base.learn(X[t : t + 1], (z @ base.weights)[None], np.ones(1), Squared(), ONE)  # what it says already
        if t >= 256:
            n_changes += (center != base.center).any()
            said.append(np.abs(base.predict(X[:t]) - before).max())
        base.learn(X[t : t + 1], y[t : t + 1], np.ones(1), Squared(), ONE)
    assert n_changes > 5
    assert max(said) < 1e-9


def test_it_comes_close_to_what_scikit_learn_fits():
    X, y = rows(2000)
    base = one_by_one(opened(Linear()), X, y, Squared())
    theirs = Ridge().fit(X, y).predict(X)
    # not the same: early rows were standardised by moments that were still settling
    assert np.abs(base.predict(X) - theirs.reshape(-1, 1)).max() < 0.05 * y.std()


@pytest.mark.parametrize(
    ("loss", "coded"),
    [
        (Absolute(), lambda y: y),
        (Huber(), lambda y: y),
        (Quantile(tau=0.3), lambda y: y),
        (Squared(l2=0.1), lambda y: y),
        (Logistic(), lambda y: np.where(y > 5, 1.0, -1.0)),
        (Hinge(), lambda y: np.where(y > 5, 1.0, -1.0)),
        (Poisson(), lambda y: np.floor(np.abs(y))),
        (Softmax(n_classes=3), lambda y: np.digitize(y, [3.0, 7.0]).astype(float)),
    ],
    ids=lambda value: repr(value) if hasattr(value, "link") else "",
)
@pytest.mark.parametrize("forget", [1.0, 0.95])
def test_for_other_losses_it_is_an_adagrad_loop(loss, coded, forget):
    X, y = rows(60)
    y = coded(y)
    scale = Scale(step=1.0, spread=0.7)
    base = one_by_one(opened(Linear(forget=forget, rate=0.3), m=loss.n_outputs), X, y, loss, scale=scale)
    W, G = np.zeros((4, loss.n_outputs)), np.zeros((4, loss.n_outputs))
    coordinates = Coordinates(3)
    for x, target in zip(X, y, strict=True):
        z = coordinates(x)
        gradient = loss.gradient((z @ W)[None], target[None])[0]
        for j in range(4):
            for k in range(loss.n_outputs):
                slope = z[j] * gradient[k]
                G[j, k] = forget * G[j, k] + slope**2
                if G[j, k] > 0:
                    W[j, k] -= 0.3 * 0.7 * slope / math.sqrt(G[j, k])
    assert_allclose(base.predict(X), coordinates.place(X) @ W, rtol=1e-9, atol=1e-9)


def test_a_chunk_is_one_step_along_the_mean_slope():
    X, y = rows(20)
    weight = np.random.default_rng(1).uniform(size=20)
    base = opened(Linear(rate=0.3))
    base.learn(X, y, weight, Absolute(), ONE)
    Z = base.inputs.transform(X)
    slope = Z.T @ (weight[:, None] * np.sign(0.0 - y)) / weight.sum()
    assert_allclose(base.weights, -0.3 * np.sign(slope))  # the first step has the same size in every direction


def test_steps_are_as_large_as_the_targets_spread():
    X, y = rows(60)
    small = one_by_one(opened(Linear()), X, y, Absolute(), scale=Scale(1.0, 1.0))
    large = one_by_one(opened(Linear()), X, 1000.0 * y, Absolute(), scale=Scale(1.0, 1000.0))
    assert_allclose(large.predict(X), 1000.0 * small.predict(X), rtol=1e-9)


def test_wide_rows_are_learned_by_adagrad_unless_told_otherwise():
    X, y = rows(5, d=201)
    wide = one_by_one(opened(Linear(), d=201), X, y, Squared())
    assert wide.covariance is None
    told = one_by_one(opened(Linear(update="rls"), d=201), X, y, Squared())
    assert told.covariance is not None
    assert told.covariance.shape == (202, 202)
    assert one_by_one(opened(Linear(update="adagrad")), *rows(5), Squared()).covariance is None
    assert one_by_one(opened(Linear()), *rows(5), Squared()).covariance is not None


def test_a_line_that_forgets_follows_a_change():
    X, y = rows(600)
    y[300:] -= 40.0
    slow, fast = (one_by_one(opened(Linear(forget=f)), X, y, Squared()) for f in (1.0, 0.95))
    errors = [np.abs(base.predict(X[-50:]) - y[-50:]).mean() for base in (slow, fast)]
    assert errors[1] < 0.1 * errors[0]


def test_missing_values_are_no_obstacle():
    X, y = rows(300)
    X[::7, 0] = np.nan
    base = one_by_one(opened(Linear()), X, y, Squared())
    whole = ~np.isnan(X).any(axis=1)
    assert np.abs(base.predict(X[whole]) - y[whole]).mean() < 0.5


def test_new_columns_and_outputs_join_a_line_that_goes_on():
    X, y = rows(200, d=4)
    base = one_by_one(opened(Linear()), X[:50, :3], y[:50], Squared())
    base.add_features(1)
    one_by_one(base, X[50:], y[50:], Squared())
    assert np.abs(base.predict(X[-50:]) - y[-50:]).mean() < 0.2 * y.std()  # without the new column it would be 0.6
    base.add_outputs(1, 7.0)
    assert_array_equal(base.predict(X)[:, 1], 7.0)
    before = np.abs(base.predict(X)[:, 1] + y[:, 0]).mean()
    one_by_one(base, X, np.column_stack([y, -y]), Squared(n_outputs=2))
    # slowly: it shares the certainty that the other output has earned
    assert np.abs(base.predict(X)[:, 1] + y[:, 0]).mean() < 0.6 * before


@pytest.mark.parametrize("loss", [Squared(), Absolute()], ids=repr)
def test_what_levels_add_is_a_shrunken_mean_or_follows_its_own_gradients(loss):
    rng = np.random.default_rng(0)
    levels, y, weight = rng.integers(0, 5, 60), rng.normal(size=60), rng.choice([0.0, 1.0, 2.5], 60)
    X = levels[:, None].astype(float)
    X[::9] = np.nan
    base = opened(Linear(rate=0.3), d=1)
    base.set_categorical(np.array([0]), 4)  # level 4 has no place of its own: it shares the last
    intercept, variance, squares, effects, sizes = 0.0, 1e3, 0.0, np.zeros(4), np.zeros(4)
    for start in range(0, 60, 3):
        rows = range(start, start + 3)
        chunk = slice(start, start + 3)
        base.learn(X[chunk], y[chunk, None], weight[chunk], loss, ONE)
        at = {s: min(levels[s], 3) for s in rows if not np.isnan(X[s, 0])}
        known = {s: effects[at[s]] if s in at else 0.0 for s in rows}
        if isinstance(loss, Squared):
            for s in rows:  # recursive least squares in one number
                gain = weight[s] * variance / (1 + weight[s] * variance)
                intercept += gain * (y[s] - known[s] - intercept)
                variance -= gain * variance
            slopes = {s: intercept + known[s] - y[s] for s in rows}
        else:
            slopes = {s: np.sign(intercept + known[s] - y[s]) for s in rows}
            if weight[chunk].sum() > 0:
                mean = np.average([slopes[s] for s in rows], weights=weight[chunk])
                squares += mean**2
                intercept -= 0.3 * mean / math.sqrt(squares) if squares > 0 else 0.0
        for s in at:
            if weight[s] > 0 and isinstance(loss, Squared):
                sizes[at[s]] += weight[s]
                effects[at[s]] -= weight[s] * slopes[s] / (sizes[at[s]] + 2.0)
            elif weight[s] > 0:
                sizes[at[s]] += slopes[s] ** 2
                effects[at[s]] -= 0.3 * slopes[s] / math.sqrt(sizes[at[s]]) if sizes[at[s]] > 0 else 0.0
    assert_allclose(base.effects[0, :, 0], effects, rtol=1e-9)
    answers = base.predict(np.array([[0.0], [3.0], [4.0], [99.0], [np.nan]]))
    assert_allclose(answers[:, 0], intercept + np.array([*effects[[0, 3, 3, 3]], 0.0]), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"update": "newton"}, "update is 'newton'"),
        ({"forget": 1.5}, "forget is 1.5"),
        ({"rate": 0.0}, "rate is 0.0"),
    ],
)
def test_options_that_cannot_work_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Linear(**options)


@pytest.mark.parametrize("loss", [Squared(n_outputs=2), Softmax(n_classes=2)], ids=["rls", "adagrad"])
def test_what_columns_add_and_the_intercept_are_what_a_line_says(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = X[:, [0]] * [[1.0, -2.0]] if loss.n_targets == 2 else (X[:, [0]] > 0).astype(float)
    X[:, 1] = rng.integers(6, size=200)  # levels 4 and 5 have no place of their own
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    base = opened(Linear(monotonic_cst={0: 1}), 4, 2)
    base.set_categorical(np.array([1]), 4)
    one_by_one(base, X, y, loss)
    X[:3, 0] = 100.0, -100.0, np.nan
    terms = base.terms(X)
    assert terms.shape == (200, 4, 2)
    assert_allclose(terms.sum(axis=1) + base.weights[-1], base.predict(X), atol=1e-12)
    assert_array_equal(terms[2, 0], 0.0)


def test_of_constants_and_frozen_models_it_is_not_known_what_columns_add():
    assert opened(Constant(1.0)).terms(np.zeros((2, 3))) is None
    assert opened(Frozen(lambda X: X[:, 0])).terms(np.zeros((2, 3))) is None


# Frozen


def test_a_frozen_regressor_says_what_it_says_and_never_changes():
    X, y = rows()
    model = RandomForestRegressor(5, random_state=0).fit(X, y[:, 0])
    base = opened(Frozen(model))
    one_by_one(base, X[:20], 100 * y[:20], Squared())
    assert_array_equal(base.predict(X)[:, 0], model.predict(X))


def test_a_frozen_regressor_may_have_several_outputs():
    X, y = rows()
    model = LinearRegression().fit(X, np.column_stack([y, -y]))
    assert_array_equal(opened(Frozen(model), m=2).predict(X), model.predict(X))


def test_a_frozen_classifier_of_two_speaks_in_log_odds():
    X, y = rows()
    model = LogisticRegression().fit(X, y[:, 0] > 5)
    assert_allclose(opened(Frozen(model)).predict(X)[:, 0], model.decision_function(X), rtol=1e-6)
    assert_allclose(Logistic().predict(opened(Frozen(model)).predict(X))[:, 0], model.predict_proba(X)[:, 1])


def test_a_frozen_classifier_of_several_speaks_in_log_probabilities():
    X, y = rows()
    model = LogisticRegression().fit(X, np.digitize(y[:, 0], [3, 7]))
    scores = opened(Frozen(model), m=3).predict(X)
    assert_allclose(Softmax(n_classes=3).predict(scores), model.predict_proba(X))


def test_a_classifier_that_is_certain_gives_finite_scores():
    X, y = rows()
    model = DecisionTreeClassifier(random_state=0).fit(X, y[:, 0] > 5)
    scores = opened(Frozen(model)).predict(X)
    assert np.isfinite(scores).all()
    assert_array_equal(scores[:, 0] > 0, y[:, 0] > 5)


def test_a_frozen_function_is_asked_for_rows():
    base = opened(Frozen(lambda X: X[:, 1] ** 2))
    X = rows()[0]
    assert_array_equal(base.predict(X)[:, 0], X[:, 1] ** 2)


def test_no_rows_are_no_question_for_a_frozen_model():
    X, y = rows()
    assert opened(Frozen(LinearRegression().fit(X, y))).predict(X[:0]).shape == (0, 1)


def test_a_frozen_model_never_sees_new_columns_and_knows_no_new_outputs():
    X, y = rows(d=3)
    base = opened(Frozen(LinearRegression().fit(X, y)))
    before = base.predict(X)
    base.add_features(2)
    base.add_outputs(1, -3.0)
    wide = np.column_stack([X, np.full((len(X), 2), 1e9)])
    assert_array_equal(base.predict(wide), np.column_stack([before, np.full(len(X), -3.0)]))


def test_a_frozen_classifier_of_two_takes_a_new_output():
    X, y = rows()
    base = opened(Frozen(LogisticRegression().fit(X, y[:, 0] > 5)))
    before = base.predict(X)
    base.add_outputs(1, -1.0)
    assert_array_equal(base.predict(X)[:, :1], before)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_a_frozen_model_with_other_outputs_than_expected_is_refused(outputs):
    X, y = rows()
    model = LogisticRegression().fit(X, np.digitize(y[:, 0], [3, 7]))
    with pytest.raises(ValueError, match=f"gives 3 scores a row, expected {outputs}"):
        opened(Frozen(model), m=outputs).predict(X)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"model is 3, expected a fitted estimator .* For a fixed number use Constant"):
        Frozen(3)


@pytest.mark.parametrize("d", [300, 1000])
def test_a_wide_line_is_no_worse_than_a_constant_from_the_first_rows_on_and_learns_where_it_stands(d):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, d)), 1.0 + rng.normal(size=(400, 1))  # nothing to be learned but the mean
    base, errors = opened(Linear(), d), []
    for t in range(400):
        errors.append((base.predict(X[t : t + 1]) - y[t])[0, 0])
        base.learn(X[t : t + 1], y[t : t + 1], np.ones(1), Squared(), ONE)
    errors = np.array(errors)
    assert np.sqrt(np.mean(errors[:100] ** 2)) < 2.0
    assert abs(np.mean(errors[200:])) < 0.3


def test_a_wide_line_still_learns_the_line():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 300))
    y = X @ rng.normal(size=(300, 1)) / math.sqrt(300.0)
    base = one_by_one(opened(Linear(), 300), X, y, Squared())
    assert np.mean((base.predict(X[-500:]) - y[-500:]) ** 2) < 0.2 * np.var(y)
