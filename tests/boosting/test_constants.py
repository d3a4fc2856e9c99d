"""What constants are for: streams, or cases of a few numbers, in which another value is measurably worse."""

import math

import numpy as np
import pytest
from taught_hedges import opened

from streamboost import SGBRegressor
from streamboost.bases import Linear
from streamboost.boosting import Booster
from streamboost.boosting.booster import AVERAGING_POWERS
from streamboost.boosting.committee import Committee
from streamboost.boosting.drift_replacement import PATIENCE, PROOF_ROWS, REVIEW_EVERY, WAIT
from streamboost.kernels.hedge import LOST, NEW, OLD, ROWS, SQUARES, TOTAL
from streamboost.losses import Huber, Logistic, Scale, Softmax, Squared
from streamboost.replay import Replay
from streamboost.stacks import TreeStack, TwoLayerStack

# The hedge


def test_the_vote_listens_to_several_experts_that_err_apart_from_each_other():
    """The vote of eight: at temperature 1 it would trust one alone, and be a quarter worse."""
    rng, hedge, n = np.random.default_rng(0), opened(Squared(), n_experts=8), 3000
    y = rng.normal(size=(n, 1))
    said = y[:, None] + rng.normal(size=(n, 8, 1))
    lost = np.empty(n)
    for t in range(n):
        lost[t] = (hedge.mix(said[t], Squared())[0] - y[t, 0]) ** 2
        hedge.learn(said[t], y[t], Squared())
    assert math.sqrt(lost[500:].mean()) < 0.50  # the mean of all: 0.35; each: 1


def test_probabilities_a_little_better_do_not_make_up_for_more_wrong_labels():
    """One expert errs in 10 rows of 100, the other in 14, with a log loss that is less by 0.15."""
    loss, hedge, rng, wrong = Logistic(), opened(Logistic(), n_experts=2), np.random.default_rng(0), 0
    n = 4000
    errs = np.column_stack([np.arange(n) % 50 < 5, np.arange(n) % 50 < 7])
    errs = errs[rng.permutation(n)]
    margins = [scores_of(0.10, 0.55), scores_of(0.14, 0.40)]
    for t in range(n):
        y = np.array([rng.choice([-1.0, 1.0])])
        said = np.array([[(low if err else high) * y[0]] for (low, high), err in zip(margins, errs[t], strict=True)])
        wrong += t >= n // 2 and hedge.mix(said, loss)[0] * y[0] < 0
        hedge.learn(said, y, loss)
    assert wrong / (n - n // 2) < 0.12


def scores_of(error, log_loss):
    """Scores of wrong and of right rows, of an expert that errs so often and has such a mean log loss."""
    wrong = -0.3
    right = (log_loss - error * math.log1p(math.exp(-wrong))) / (1.0 - error)
    return wrong, -math.log(math.expm1(right))


def test_a_row_of_weight_0_is_no_row_of_a_paired_test():
    hedge, paired = opened(Squared(), n_experts=2), np.array([0.0, 1.0, 5.0, 1.0, 1.0, 5.0])
    assert hedge.learn(np.zeros((2, 1)), np.ones(1), Squared(), 0.0, paired) is None
    assert paired[ROWS] == 5.0


def test_classes_that_rounding_tells_apart_are_level():
    """Two classes with the same score but for rounding: one of them is chosen, so that half of it is wrong."""
    scores, loss = np.array([[0.1 + 0.2, 0.3, -1.0]]), Softmax(n_classes=3)
    assert scores[0, 0] != scores[0, 1]
    assert [loss.wrong(scores, np.array([[label]]))[0] for label in (0.0, 1.0)] == [0.5, 0.5]


# Memory that is dropped


def ladder(windows=(1024, 64), n=2000, categorical=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    boosters = [Booster(Squared(), stack=TreeStack(2, max_depth=2), replay=Replay(window)) for window in windows]
    made = Committee(boosters, steps=())
    if categorical:
        X[:, 1] = rng.integers(3, size=n)
        made.learn(X[:1], X[:1, 0])
        made.set_categorical([1], 8)
    made.learn(X, X[:, 0])
    assert not made.events
    return made


def challenged(rows, mean, variance, lost):
    """A committee in the middle of a paired test with these sums."""
    made = ladder()
    made.drift_replacement._challenge(made)
    sums = made.drift_replacement.paired_test
    sums[ROWS], sums[TOTAL], sums[SQUARES], sums[LOST] = rows, rows * mean, rows * (variance + mean**2), lost
    made.drift_replacement.review(made)
    return made


def test_what_is_certain_and_too_little_is_no_reason_to_drop_memory():
    made = challenged(2000, mean=0.02, variance=1e-6, lost=2000.0)  # better by 2 % of the loss
    assert made.events == []
    assert made.drift_replacement.is_on
    made = challenged(2000, mean=0.04, variance=1e-6, lost=2000.0)
    assert [event.kind for event in made.events] == ["memory dropped"]


def test_errors_of_the_sum_of_differences_are_about_their_mean():
    """Differences of 1 on average, with a variance of 20: 5.06 standard errors over 512 rows, and 4.94 about 0."""
    made = challenged(PROOF_ROWS, mean=1.0, variance=20.0, lost=PROOF_ROWS)
    assert [event.kind for event in made.events] == ["memory dropped"]
    assert challenged(PROOF_ROWS, mean=1.0, variance=21.0, lost=PROOF_ROWS).events == []


def test_a_challenger_that_has_certainly_lost_leaves_before_patience_ends():
    made = challenged(PROOF_ROWS, mean=-1.0, variance=1.0, lost=PROOF_ROWS)
    assert not made.drift_replacement.is_on
    assert len(made.boosters) == 2
    assert PROOF_ROWS < PATIENCE


def test_after_memory_was_dropped_the_wait_is_short_again():
    made = ladder()
    made.drift_replacement.wait = 16 * WAIT
    made.drift_replacement._challenge(made)
    made.drift_replacement.paired_test[ROWS:] = PROOF_ROWS, PROOF_ROWS, PROOF_ROWS + 1.0, PROOF_ROWS
    made.drift_replacement.review(made)
    assert made.events
    assert (made.drift_replacement.wait, made.drift_replacement.rest_until) == (WAIT, made.n_rows + WAIT)


def test_a_memory_that_holds_little_more_than_a_challenger_begins_with_has_none():
    """After a change: a challenger of 512 rows is what the longest memory will be a little later by itself."""
    for windows, comes in (((500, 64), False), ((1024, 64), True)):
        made = ladder(windows)
        made.hedge.losses[:, :2] = 1.0, 0.1  # the shorter memory is far better
        assert made.n_rows >= made.drift_replacement.rest_until
        made.drift_replacement.review(made)
        assert made.drift_replacement.is_on is comes


def test_a_challenger_knows_which_columns_hold_levels():
    made = ladder(categorical=True)
    made.drift_replacement._challenge(made)
    assert made.boosters[-1].stack.categorical.tolist() == [1]
    assert REVIEW_EVERY < PROOF_ROWS
    assert made.drift_replacement.paired_test[[OLD, NEW]].min() >= 0


# Bases


def level_errors(base, n_levels=300, n=1500, noise=2.0, seed=0):
    """The mean square error, beyond the noise, of a base on levels that are seen a few times each."""
    rng = np.random.default_rng(seed)
    levels, effects = rng.integers(n_levels, size=(n, 1)).astype(float), rng.normal(size=n_levels)
    truth = effects[levels[:, 0].astype(int)][:, None]
    y = truth + math.sqrt(noise) * rng.normal(size=(n, 1))
    base.open(1, 1)
    base.set_categorical(np.array([0], np.int32), n_levels + 1)
    errors = np.empty(n)
    for t in range(n):
        errors[t] = (base.predict(levels[t : t + 1])[0, 0] - truth[t, 0]) ** 2
        base.learn(levels[t : t + 1], y[t : t + 1], np.ones(1), Squared(), Scale(1.0, 1.0))
    return errors.mean()


def test_what_levels_add_is_pulled_to_0_as_far_as_noise_asks_for():
    """Effects of variance 1 under noise of variance 2: the best pull is two rows of 0, and half a row costs a tenth."""
    found = np.mean([level_errors(Linear(), seed=seed) for seed in range(3)])
    # by Bayes' rule, for a level seen k times before: 2 / (k + 2); k is Poisson, with a mean that rises to 5
    rate = (np.arange(1500) / 300)[:, None]
    k = np.arange(40)
    chance = np.exp(k * np.log(np.maximum(rate, 1e-12)) - rate - np.array([math.lgamma(j + 1.0) for j in k]))
    best = (chance * 2.0 / (k + 2.0)).sum(axis=1).mean()
    assert found < 1.1 * best


def test_means_of_levels_count_weights():
    """One level; rows 0 and 4, the latter with weight 3, after two rows of 0: what the line leaves of each, weighed."""
    base = Linear()
    base.open(1, 1)
    base.set_categorical(np.array([0], np.int32), 3)
    X, y = np.zeros((2, 1)), np.array([[0.0], [4.0]])
    base.learn(X, y, np.array([1.0, 3.0]), Squared(), Scale(1.0, 1.0))
    effect = base.effects[0, 0, 0]
    line = base.predict(X)[0, 0] - effect
    assert effect == pytest.approx((0.0 - line) / (1 + 2) + 3 * (4.0 - line) / (1 + 3 + 2))


def test_a_line_of_some_dozen_columns_is_found_by_least_squares():
    """60 columns that move together: after 600 rows adaptive steps are twice as far off."""
    rng, n, d = np.random.default_rng(0), 600, 60
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(n, 1))
    y = X @ rng.normal(size=(d, 1))
    base = Linear()
    base.open(d, 1)
    for t in range(0, n, 20):
        rows = slice(t, t + 20)
        last = base.predict(X[rows]) - y[rows]
        base.learn(X[rows], y[rows], np.ones(20), Squared(), Scale(1.0, float(y.std())))
    assert np.sqrt((last**2).mean()) < 0.55 * y.std()


def test_signs_are_those_of_columns_and_an_intercept_may_have_any():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 1))
    y = X - 10.0
    base = Linear(monotonic_cst={0: 1})
    base.open(1, 1)
    base.learn(X, y, np.ones(400), Squared(), Scale(1.0, 1.0))
    assert np.abs(base.predict(X) - y).max() < 0.5


def test_steps_that_several_rows_share_fade_once_for_each_row():
    """Squares of slopes are sums that fade by a row: after a chunk of 50 as much is left as after 50 rows."""
    base = Linear(update="adagrad", forget=0.9)
    base.open(1, 1)
    X, y = np.array([[-1.0], [1.0]] * 25), np.ones((50, 1))
    base.learn(X, 0.0 * y + 5.0, np.ones(50), Squared(), Scale(1.0, 1.0))
    before = base.squares.copy()
    said = base.predict(X)  # rows on which it errs no more bring no slope
    base.learn(X, said, np.ones(50), Squared(), Scale(1.0, 1.0))
    assert before.max() > 0
    assert base.squares.max() < 0.9**40 * before.max()


# Averages


def test_a_polynomial_average_is_mostly_of_the_last_tenth():
    stack = TwoLayerStack(1, update="sgd", rate=1e-300)
    stack.open(2, 1)
    stack.keep_average(AVERAGING_POWERS["polynomial"])
    X, target = np.ones((900, 2)), np.zeros((900, 1, 1))
    stack.parameters[:] = 0.0
    stack.learn(X, target, np.ones(900))
    stack.parameters[:] = 1.0
    stack.learn(X[:100], target[:100], np.ones(100))
    assert 0.5 < stack.averaged().parameters.mean() < 0.75


# Units


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_steps_under_hubers_loss_do_not_depend_on_the_unit(unit):
    """Targets and δ in other units: the step, a number without one, is the same."""
    y = np.random.default_rng(0).standard_t(2, size=(500, 1)) * 20.0
    one, other = Huber(delta=1.0).scale(y), Huber(delta=unit).scale(unit * y)
    assert other.step == pytest.approx(one.step)
    assert other.spread == pytest.approx(unit * one.spread)


def test_the_median_is_learned_as_fast_as_from_absolute_errors():
    """The loss of the median is half the absolute error, and so are its gradients: steps make up for it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 2))
    y = X[:, 0] + rng.standard_t(2, size=700)
    options = {"n_estimators": 6, "memory": 128, "random_state": 0, "base": "constant"}
    said = [SGBRegressor(loss, **options).learn(X, y) for loss in ("quantile", "absolute_error")]
    np.testing.assert_allclose(*said, atol=1e-9)
