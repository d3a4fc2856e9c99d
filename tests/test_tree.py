from types import SimpleNamespace

import naive_tree
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from streamboost.binning import Bins
from streamboost.stacks.tree import TreeStack

STATE = ("feature", "threshold", "missing_left", "gain", "stats")


def window_of(X, n_bins=64):
    bins = Bins(n_bins)
    bins.fit(X)
    return SimpleNamespace(X=X, codes=bins.encode(X), bins=bins)


def opened(d, m=1, n_learners=1, **options):
    stack = TreeStack(n_learners, **options)
    stack.open(d, m)
    return stack


def refitted(X, target, weight=None, **options):
    """A stack of one tree, refitted to these rows; and their leaves."""
    stack = opened(X.shape[1], target.shape[1], **options)
    weight = np.ones(len(X)) if weight is None else weight
    return stack, stack.refit(0, window_of(X, stack.n_bins), target, weight)


def some_rows(n, d, m=1, *, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    target = np.stack([np.sin(X[:, 0] * (k + 1)) + X[:, 1] * X[:, -1] for k in range(m)], axis=1)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, target + 0.3 * rng.normal(size=target.shape)


def some_stack(*, n_learners=3, d=3, m=2, **options):
    """A stack whose trees, all but the last, have been refitted and have learned on."""
    stack = opened(d, m, n_learners, max_depth=3, n_bins=16, **options)
    for i in range(n_learners - 1):
        X, target = some_rows(60, d, m, missing=0.1, seed=i)
        stack.refit(i, window_of(X, stack.n_bins), target, np.ones(60))
    rng = np.random.default_rng(9)
    stack.learn(X, rng.normal(size=(60, n_learners, m)), rng.uniform(0, 2, size=60))
    return stack, X


def state_of(stack):
    return {name: getattr(stack, name).copy() for name in STATE}


def same_state(stack, before):
    return all(np.array_equal(getattr(stack, name), before[name]) for name in STATE)


# Growing, against a slow twin and against other people's trees


@st.composite
def awkward_problems(draw):
    """Few rows on a coarse grid: ties, constant and equal columns, missing values, weights of 0."""
    n, d, m = draw(st.integers(1, 14)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    X = draw(arrays(float, (n, d), elements=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan])))
    if draw(st.booleans()):
        X[:, -1] = X[:, 0]
    target = draw(arrays(float, (n, m), elements=st.integers(-3, 3).map(float)))
    weights = draw(st.sampled_from([[1.0], [0.0, 1.0], [0.0, 0.3, 1.0, 2.0], [0.0]]))
    weight = draw(arrays(float, n, elements=st.sampled_from(weights)))
    depth, leaf = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return (
        X,
        target,
        weight,
        {"max_depth": depth, "min_samples_leaf": leaf, "l2": draw(st.sampled_from([0.0, 0.1, 1.0]))},
    )


@given(awkward_problems())
@settings(deadline=None, max_examples=300)
def test_a_refitted_tree_is_the_naive_tree(problem):
    X, target, weight, options = problem
    stack, leaf = refitted(X, target, weight, n_bins=6, **options)
    say = naive_tree.fit(X, target, weight, **options)
    between = np.array([-3.0, -0.6, 0.2, 0.7, 1.4, 9.0, np.nan])[np.arange(14)[:, None] // [1, 2, 3] % 7]
    probes = np.concatenate([X, between[:, : X.shape[1]]])
    np.testing.assert_allclose(stack.predict(probes)[:, 0], say(probes), rtol=1e-9, atol=1e-12)
    assert np.array_equal(leaf, stack.marks(X)[:, 0])


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_refitted_tree_is_the_naive_tree_on_continuous_rows(missing, weighted):
    X, target = some_rows(120, 3, 2, missing=missing)
    weight = np.random.default_rng(1).uniform(0.1, 3, size=120) if weighted else np.ones(120)
    options = {"max_depth": 4, "min_samples_leaf": 3, "l2": 0.5}
    stack, _ = refitted(X, target, weight, n_bins=130, **options)
    probes, _ = some_rows(50, 3, missing=0.2, seed=5)
    expected = naive_tree.fit(X, target, weight, **options)(probes)
    np.testing.assert_allclose(stack.predict(probes)[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_the_training_error_is_that_of_a_scikit_learn_tree(seed, m, missing):
    X, target = some_rows(150, 4, m, missing=missing, seed=seed)
    stack, _ = refitted(X, target, max_depth=5, min_samples_leaf=4, l2=0, n_bins=160)
    theirs = DecisionTreeRegressor(max_depth=5, min_samples_leaf=4, random_state=0).fit(X, target)
    ours = np.sum((target - stack.predict(X)[:, 0]) ** 2)
    assert ours == pytest.approx(np.sum((target - theirs.predict(X).reshape(target.shape)) ** 2), rel=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_a_step_of_histogram_boosting_in_scikit_learn_says_the_same(seed):
    X, target = some_rows(200, 4, missing=0.1, seed=seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2, size=200)
    target -= np.average(target[:, 0], weights=weight)  # theirs starts from the mean
    stack, _ = refitted(X, target, weight, max_depth=4, min_samples_leaf=6, l2=2.0, n_bins=200)
    theirs = HistGradientBoostingRegressor(
        learning_rate=1, max_iter=1, max_depth=4, max_leaf_nodes=None, min_samples_leaf=6, l2_regularization=2.0
    ).fit(X, target[:, 0], sample_weight=weight)
    np.testing.assert_allclose(stack.predict(X)[:, 0, 0], theirs.predict(X), atol=1e-5)  # they add up float32


# Growing: promises one by one


def test_the_gains_add_up_to_the_loss_taken_off():
    X, target = some_rows(200, 3, 2, missing=0.1)
    stack, _ = refitted(X, target, max_depth=4, l2=0)
    error = target - stack.predict(X)[:, 0]
    taken_off = np.sum((target - target.mean(axis=0)) ** 2) - np.sum(error**2)
    assert stack.feature_gains().shape == (3,)
    assert stack.feature_gains().sum() == pytest.approx(taken_off)


def test_feature_gains_name_the_column_that_matters_and_follow_refits():
    X, _ = some_rows(100, 3)
    stack, _ = refitted(X, np.sign(X[:, 1:2]), max_depth=2)
    assert stack.feature_gains().argmax() == 1
    stack.refit(0, window_of(X), np.sign(X[:, 2:3]), np.ones(100))
    assert stack.feature_gains().argmax() == 2


def test_of_two_equal_columns_the_first_is_split_on():
    X, target = some_rows(200, 2)
    stack, _ = refitted(np.column_stack([X, X]), target, max_depth=4)
    assert set(stack.feature[stack.feature >= 0]) <= {0, 1}


def test_no_leaf_has_fewer_rows_than_asked_for():
    X, target = some_rows(150, 3, missing=0.1)
    _, leaf = refitted(X, target, max_depth=6, min_samples_leaf=11)
    counts = np.bincount(leaf)
    assert len(counts[counts > 0]) > 5
    assert counts[counts > 0].min() >= 11


@pytest.mark.parametrize("m", [1, 2])
def test_a_row_of_weight_two_counts_as_two_rows(m):
    X, target = some_rows(80, 3, m, missing=0.1)
    twice = np.arange(80) % 3 == 0
    options = {"max_depth": 4, "min_samples_leaf": 1, "n_bins": 128}
    weighted, _ = refitted(X, target, 1.0 + twice, **options)
    repeated, _ = refitted(np.r_[X, X[twice]], np.r_[target, target[twice]], **options)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)


def test_rows_of_weight_zero_change_nothing_and_still_get_their_leaf():
    X, target = some_rows(90, 3, missing=0.1)
    weight = np.ones(90)
    weight[::3] = 0
    target[::3] = 1e6
    with_them, leaf = refitted(X, target, weight, max_depth=4, n_bins=100)
    kept = weight > 0
    window = window_of(X, 100)
    window.codes = window.codes[:, kept]
    without = opened(3, max_depth=4, n_bins=100)
    without.refit(0, window, target[kept], weight[kept])
    assert np.array_equal(with_them.feature, without.feature)
    assert np.array_equal(with_them.threshold, without.threshold)
    np.testing.assert_allclose(with_them.stats, without.stats, rtol=1e-12)
    assert np.array_equal(leaf, with_them.marks(X)[:, 0])


def test_missing_values_are_told_apart_even_in_a_column_that_is_otherwise_constant():
    X = np.where(np.arange(40) % 2, np.nan, 3.0)[:, None]
    target = np.where(np.isnan(X), 1.0, -1.0)
    stack, _ = refitted(X, target, l2=0)
    assert stack.predict(np.array([[3.0], [1e9], [np.nan]]))[:, 0, 0].tolist() == [-1.0, -1.0, 1.0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_missing_values_go_with_the_greater_weight_where_none_was_seen(sign):
    X = sign * np.arange(10.0)[:, None]
    target = (np.arange(10.0) < 7)[:, None] * 1.0  # seven rows against three
    stack, _ = refitted(X, target, max_depth=1, min_samples_leaf=1, l2=0)
    assert stack.predict(np.array([[np.nan]]))[0, 0, 0] == 1.0


def test_a_target_far_from_zero_is_split_as_well():
    X, target = some_rows(200, 3)
    _, near = refitted(X, target, max_depth=3, l2=0)
    _, far = refitted(X, target + 1e4, max_depth=3, l2=0)
    assert len(set(near)) > 4
    assert np.array_equal(near, far)


@pytest.mark.parametrize("target", [np.zeros((30, 1)), np.full((30, 1), 0.1), np.full((30, 1), 1e-170)])
def test_a_constant_target_is_not_split(target):
    X, _ = some_rows(30, 3)
    stack, leaf = refitted(X, target, l2=0)
    assert (stack.feature == -1).all()
    assert (leaf == 0).all()
    np.testing.assert_allclose(stack.predict(X)[:, 0], target)


def test_the_deepest_tree_reaches_its_last_leaf():
    X = -np.eye(20)  # each split can take only a single row off, to the left
    stack, leaf = refitted(X, np.arange(20.0)[:, None], max_depth=15, min_samples_leaf=1, l2=0)
    assert leaf.max() == 2**15 - 1
    assert len(set(leaf)) == 16
    assert np.array_equal(leaf, stack.marks(X)[:, 0])


def test_a_slice_of_a_window_will_do():
    X, target = some_rows(50, 3)
    whole, leaf = refitted(X, target, n_bins=16)
    window = window_of(X, 16)
    room = np.zeros((3, 99), np.uint8)
    room[:, :50] = window.codes
    window.codes = room[:, :50]
    stack = opened(3, n_bins=16)
    assert np.array_equal(stack.refit(0, window, target, np.ones(50)), leaf)
    assert same_state(stack, state_of(whole))


# Learning between refits


def test_a_tree_never_refitted_is_one_leaf():
    stack = opened(2, n_learners=2, l2=1.0)
    X = np.zeros((3, 2))
    assert (stack.predict(X) == 0).all()
    stack.learn(X, np.array([[[1.0], [5.0]]] * 3), np.ones(3))
    assert stack.predict(X[:1])[0, :, 0] == pytest.approx([3 / 4, 15 / 4])


def test_the_leaves_keep_the_sums_of_what_they_were_told():
    stack, _ = some_stack()
    X, _ = some_rows(80, 3, missing=0.1, seed=4)
    rng = np.random.default_rng(0)
    targets, weight = rng.normal(size=(80, 3, 2)), rng.integers(0, 3, size=80) / 2
    expected, leaf = stack.stats.copy(), stack.marks(X)
    for i in range(3):
        np.add.at(expected[i], leaf[:, i], np.c_[weight[:, None] * targets[:, i], weight])
    stack.learn(X, targets, weight)
    assert np.array_equal(stack.stats, expected)
    s, i = 7, 1
    sums = expected[i, leaf[s, i]]
    np.testing.assert_allclose(stack.predict(X)[s, i], sums[:2] / (sums[2] + stack.l2))


@pytest.mark.parametrize("forget", [None, 6.5])
def test_a_chunk_is_learned_as_its_rows_one_by_one(forget):
    (whole, _), (by_row, _) = some_stack(forget=forget), some_stack(forget=forget)
    X, _ = some_rows(40, 3, missing=0.1, seed=4)
    rng = np.random.default_rng(0)
    targets, weight = rng.normal(size=(40, 3, 2)), rng.uniform(0, 2, size=40)
    whole.learn(X, targets, weight)
    for s in range(40):
        by_row.learn(X[s : s + 1], targets[s : s + 1], weight[s : s + 1])
    assert same_state(whole, state_of(by_row))


def test_a_refit_fills_the_leaves_as_learning_the_same_rows_would():
    X, target = some_rows(70, 3, 2, missing=0.1)
    weight = np.random.default_rng(0).uniform(size=70)
    stack, _ = refitted(X, target, weight, max_depth=3)
    before = stack.stats.copy()
    stack.stats[:] = 0
    stack.learn(X, target[:, None], weight)
    assert np.array_equal(stack.stats, before)


def test_a_leaf_that_forgets_closes_on_a_new_level_at_the_promised_pace():
    stack = opened(1, l2=0, forget=20)
    X, ones = np.zeros((1, 1)), np.ones(1)
    for _ in range(100):
        stack.learn(X, np.zeros((1, 1, 1)), ones)
    for t in range(1, 30):
        stack.learn(X, np.ones((1, 1, 1)), ones)
        assert stack.predict(X)[0, 0, 0] == pytest.approx(1 - (1 - 1 / 20) ** t)
    assert stack.stats[0, 0, 1] == pytest.approx(20)


def test_a_leaf_forgets_nothing_before_its_time_nor_for_a_row_of_weight_zero():
    never, soon = opened(1), opened(1, forget=10)
    X, targets = np.zeros((10, 1)), np.arange(10.0)[:, None, None]
    for stack in (never, soon):
        stack.learn(X, targets, np.ones(10))
        stack.learn(X, targets, np.zeros(10))
    assert np.array_equal(never.stats, soon.stats)


# The contract of every stack


def test_marks_and_recall_are_predict_in_two_steps_also_for_the_first_learners():
    stack, X = some_stack()
    marks = stack.marks(X)
    assert marks.shape == (60, 3)
    assert np.array_equal(stack.recall(marks), stack.predict(X))
    assert np.array_equal(stack.recall(marks[:, :2]), stack.predict(X)[:, :2])


def test_a_refit_touches_only_its_tree():
    stack, X = some_stack()
    before = stack.predict(X)
    stack.refit(1, window_of(X, stack.n_bins), before[:, 0], np.zeros(60))
    assert np.array_equal(stack.predict(X)[:, [0, 2]], before[:, [0, 2]])
    assert (stack.predict(X)[:, 1] == 0).all()  # fitted to rows that do not count
    assert list(stack.refittable) == [0, 1, 2]


def test_predict_leaves_the_stack_unchanged_and_gives_an_array_of_its_own():
    stack, X = some_stack()
    before = state_of(stack)
    stack.predict(X)[:] = 7.0
    stack.marks(X)[:] = 3
    assert same_state(stack, before)


def test_an_empty_chunk_is_a_no_op():
    stack, _ = some_stack()
    before = state_of(stack)
    stack.learn(np.empty((0, 3)), np.empty((0, 3, 2)), np.empty(0))
    assert stack.predict(np.empty((0, 3))).shape == (0, 3, 2)
    assert same_state(stack, before)


def test_rows_without_columns_fall_into_the_only_leaf():
    X = np.empty((6, 0))
    stack, leaf = refitted(X, np.full((6, 1), 2.0), l2=0)
    assert (leaf == 0).all()
    assert (stack.predict(X) == 2).all()


def test_appended_trees_say_nothing_and_the_others_what_they_said():
    stack, X = some_stack()
    before = stack.predict(X)
    stack.grow(2)
    assert np.array_equal(stack.predict(X)[:, :3], before)
    assert (stack.predict(X)[:, 3:] == 0).all()
    assert list(stack.refittable) == [0, 1, 2, 3, 4]
    stack.refit(4, window_of(X, stack.n_bins), before[:, 0], np.ones(60))
    assert (stack.predict(X)[:, 4] != 0).any()


def test_new_columns_leave_the_predictions_as_they_were_and_can_be_split_on():
    stack, X = some_stack()
    before = stack.predict(X)
    stack.add_features(1)
    wider = np.c_[X, np.arange(60.0)]
    assert np.array_equal(stack.predict(wider), before)
    stack.refit(2, window_of(wider, stack.n_bins), np.repeat(wider[:, 3:] > 30, 2, axis=1) * 1.0, np.ones(60))
    assert stack.feature[2, 0] == 3
    assert stack.feature_gains().shape == (4,)


def test_new_outputs_begin_at_zero_beside_the_old_ones():
    stack, X = some_stack()
    before = stack.predict(X)
    stack.add_outputs(2)
    assert stack.predict(X).shape == (60, 3, 4)
    assert np.array_equal(stack.predict(X)[..., :2], before)
    assert (stack.predict(X)[..., 2:] == 0).all()
    stack.learn(X, np.ones((60, 3, 4)), np.ones(60))
    assert (stack.predict(X)[..., 3] > 0).all()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_learners", 0),
        ("max_depth", 16),
        ("max_depth", 0),
        ("max_depth", 3.5),
        ("min_samples_leaf", 0),
        ("l2", -0.1),
        ("l2", np.inf),
        ("forget", 0.5),
        ("forget", np.nan),
        ("n_bins", 1),
        ("n_bins", 255),
    ],
)
def test_an_impossible_option_is_refused_by_name_and_value(option, value):
    with pytest.raises(ValueError, match=rf"{option} is {value}, expected"):
        TreeStack(**{option: value})


def test_arrays_of_the_wrong_shape_are_refused():
    stack, X = some_stack()
    with pytest.raises(ValueError, match=r"X has 2 columns, expected 3"):
        stack.predict(X[:, :2])
    with pytest.raises(ValueError, match=r"targets have shape \(60, 3\), expected \(60, 3, 2\)"):
        stack.learn(X, np.ones((60, 3)), np.ones(60))
    with pytest.raises(ValueError, match=r"target has shape \(60, 1\), expected \(60, 2\)"):
        stack.refit(0, window_of(X, stack.n_bins), np.ones((60, 1)), np.ones(60))
    with pytest.raises(ValueError, match=r"window has bins of n_bins=64, expected 16"):
        stack.refit(0, window_of(X, 64), np.ones((60, 2)), np.ones(60))
