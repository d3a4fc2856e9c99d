"""Stacks one after another: the same numbers as each part by itself."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from river import linear_model
from sklearn.linear_model import SGDRegressor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from streamboost import SGBRegressor
from streamboost.bases import Constant
from streamboost.binning import Bins
from streamboost.boosting import Booster
from streamboost.descents import GradientDescent
from streamboost.losses import Squared
from streamboost.replay import Replay
from streamboost.stacks.chain import ChainStack, part_seed
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.tree import TreeStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack

D = 2


def trees(n_learners, n_bins=16):
    return TreeStack(n_learners, max_depth=3, n_bins=n_bins)


def different_kinds():
    """Nine learners of five kinds; those at 3, 4, 7 and 8 can be refitted."""
    return [
        LinearStack(2),
        RiverStack(linear_model.LinearRegression(), 1),
        trees(2),
        PartialFitStack(SGDRegressor(), 2),
        BatchStack(ExtraTreeRegressor(max_depth=3), 2),
    ]


def nested():
    one, two, three, four, five = different_kinds()
    return ChainStack([one, ChainStack([two, ChainStack([three, four])]), five])


def rows(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D))


def answers(X, n_learners=9, m=1):
    slopes = np.random.default_rng(7).normal(size=(X.shape[1], n_learners * m))
    return (np.nan_to_num(X) @ slopes).reshape(len(X), n_learners, m)


def window_of(X, n_bins=16):
    bins = Bins(n_bins)
    bins.fit(X)
    return SimpleNamespace(X=X, codes=bins.encode(X), bins=bins)


def train(stack, X, targets):
    stack.learn(X, targets, np.ones(len(X)))
    window = window_of(X)
    for i in stack.refittable:
        stack.refit(i, window, targets[:, i], np.ones(len(X)))
    return stack


def opened(stack, m=1, seed=0):
    stack.open(D, m, seed)
    return stack


@pytest.mark.parametrize("m", [1, 2])
def test_a_chain_equals_its_parts_run_alone(m):
    X, targets = rows(), answers(rows(), m=m)
    chain = train(opened(ChainStack(different_kinds()), m, seed=3), X, targets)
    start = 0
    for number, part in enumerate(different_kinds()):
        own = slice(start, start + part.n_learners)
        train(opened(part, m, part_seed(3, number)), X, targets[:, own])
        assert np.abs(part.predict(X)).min(axis=0).max() > 0
        assert_array_equal(chain.predict(X)[:, own], part.predict(X))
        start = own.stop
    assert start == chain.n_learners


@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_a_chain_of_one_kind_is_one_larger_stack(sizes):
    X, targets = rows(20), answers(rows(20), sum(sizes))
    chain = train(opened(ChainStack([trees(n) for n in sizes])), X, targets)
    whole = train(opened(trees(sum(sizes))), X, targets)
    assert_array_equal(chain.predict(X), whole.predict(X))
    assert_array_equal(chain.marks(X), whole.marks(X))


def test_a_nested_chain_is_the_flat_one_where_nothing_is_random():
    X, targets = rows(), answers(rows(), 6)

    def parts():
        return LinearStack(2), trees(3), LinearStack(1)

    one, two, three = parts()
    deep = train(opened(ChainStack([one, ChainStack([ChainStack([two]), three])])), X, targets)
    flat = train(opened(ChainStack(parts())), X, targets)
    assert_array_equal(deep.predict(X), flat.predict(X))
    assert list(deep.refittable) == list(flat.refittable) == [2, 3, 4]


def test_parts_of_one_kind_do_not_repeat_each_other():
    X = rows()
    same_for_all = np.repeat(answers(X, 1), 2, axis=1)
    chain = ChainStack([BatchStack(ExtraTreeRegressor(max_depth=3), 1) for _ in range(2)])
    said = train(opened(chain), X, same_for_all).predict(X)
    assert (said[:, 0] != said[:, 1]).any()


@pytest.mark.parametrize("make", [lambda: ChainStack(different_kinds()), nested])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(make):
    X = rows()
    one, two, other = (train(opened(make(), seed=seed), X, answers(X)) for seed in (5, 5, 6))
    assert_array_equal(one.predict(X), two.predict(X))
    assert not np.array_equal(one.predict(X), other.predict(X))


def test_refits_reach_the_learner_meant_and_no_other():
    X, other = rows(), rows(seed=1)
    chain = train(opened(nested()), X, answers(X))
    assert list(chain.refittable) == [3, 4, 7, 8]
    window = window_of(other)
    for i in chain.refittable:
        before = chain.predict(X)
        chain.refit(i, window, answers(other)[:, i] + 9.0, np.ones(len(other)))
        changed = (chain.predict(X) != before).any(axis=(0, 2))
        assert changed.nonzero()[0].tolist() == [i]
    with pytest.raises(TypeError, match="LinearStack cannot be refitted"):
        chain.refit(0, window, answers(other)[:, 0], np.ones(len(other)))
    with pytest.raises(IndexError, match="i is 9, but the chain has 9 learners"):
        chain.refit(9, window, answers(other)[:, 0], np.ones(len(other)))


def test_a_chain_keeps_marks_only_if_every_part_does():
    X = rows()
    mixed = train(opened(ChainStack(different_kinds())), X, answers(X))
    assert mixed.marks(X) is None
    for chain in (ChainStack([trees(2), trees(3)]), ChainStack([trees(2), ChainStack([trees(1), trees(2)])])):
        train(opened(chain), X, answers(X, 5))
        marks = chain.marks(X)
        assert marks.shape == (len(X), 5)
        for k in range(6):
            assert_array_equal(chain.recall(marks[:, :k]), chain.predict(X)[:, :k])


def test_a_refit_returns_the_marks_of_the_learner_refitted():
    X = rows()
    chain = train(opened(ChainStack([trees(2), trees(3)])), X, answers(X, 5))
    marks = chain.refit(3, window_of(X), answers(X, 5)[:, 0], np.ones(len(X)))
    assert_array_equal(marks, chain.marks(X)[:, 3])


def test_bins_are_those_of_the_parts_that_want_them():
    assert ChainStack([LinearStack(1), trees(1, n_bins=16)]).n_bins == 16
    assert ChainStack([LinearStack(1), BatchStack(DecisionTreeRegressor(), 1)]).n_bins == 0
    assert ChainStack([ChainStack([trees(1, n_bins=32)]), trees(1, n_bins=32)]).n_bins == 32
    with pytest.raises(ValueError, match="stacks want 16 and 32 bins, expected one number"):
        ChainStack([trees(1, n_bins=32), ChainStack([trees(1, n_bins=16)])])


@pytest.mark.parametrize("make", [lambda: ChainStack(different_kinds()), nested])
def test_grown_learners_join_the_last_part(make):
    X = rows()
    chain = train(opened(make()), X, answers(X))
    before = chain.predict(X)
    chain.grow(2)
    assert chain.n_learners == 11
    assert chain.stacks[-1].n_learners == 4
    assert list(chain.refittable) == [3, 4, 7, 8, 9, 10]
    assert_array_equal(chain.predict(X)[:, :9], before)
    assert_array_equal(chain.predict(X)[:, 9:], 0.0)


@pytest.mark.parametrize("make", [lambda: ChainStack(different_kinds()), nested])
def test_new_columns_and_outputs_leave_predictions_alone(make):
    X = rows()
    chain = train(opened(make()), X, answers(X))
    before = chain.predict(X)
    chain.add_features(1)
    chain.add_outputs(1)
    wide = np.column_stack([X, np.full(len(X), np.nan)])
    assert_allclose(chain.predict(wide)[:, :, :1], before, atol=1e-12)
    assert_array_equal(chain.predict(wide)[:, :, 1:], 0.0)
    more = np.column_stack([X, X[:, 0]])
    assert np.isfinite(train(chain, more, answers(more, m=2)).predict(more)).all()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda stack: pickle.loads(pickle.dumps(stack))])
def test_a_copy_is_equal_and_independent(duplicate):
    X, more = rows(), rows(seed=1)
    chain = train(opened(nested()), X, answers(X))
    before = chain.predict(X)
    twin = duplicate(chain)
    assert_array_equal(twin.predict(X), before)
    train(twin, more, 5.0 - answers(more))
    assert (twin.predict(X) != before).any(axis=(0, 2)).all()
    assert_array_equal(chain.predict(X), before)
    train(chain, more, 5.0 - answers(more))
    assert_array_equal(twin.predict(X), chain.predict(X))


def test_a_complaint_tells_where_in_the_chain_the_learner_stands():
    X = rows(5)
    chain = ChainStack([LinearStack(4), FunctionStack(lambda X, target, weight: lambda X: np.full(len(X), np.nan), 2)])
    train(opened(chain), X, answers(X, 6))
    with pytest.raises(ValueError, match=r"learner 0 \(<lambda>\) said nan of row 0") as caught:
        chain.predict(X)
    assert caught.value.__notes__ == ["(in a chain: learner 0 of this FunctionStack is the chain's 4)"]


def test_the_same_stack_twice_is_refused_however_deep():
    twice = LinearStack(2)
    for stacks in ([twice, twice], [twice, ChainStack([trees(1), twice])]):
        with pytest.raises(ValueError, match="stacks holds the same LinearStack twice"):
            ChainStack(stacks)
    inner = ChainStack([LinearStack(1)])
    with pytest.raises(ValueError, match="the same LinearStack twice"):
        ChainStack([inner, inner])


def test_an_empty_chain_and_what_is_no_stack_are_refused():
    with pytest.raises(ValueError, match="stacks is empty"):
        ChainStack([])
    with pytest.raises(TypeError, match=r"stacks holds SGDRegressor\(\), expected stacks only.* use wrap"):
        ChainStack([LinearStack(1), SGDRegressor()])


def test_trees_in_a_chain_split_levels():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 20, 2000)
    effect = rng.normal(size=20)  # in no order: cuts between numbers would take many splits
    rows = [{"level": f"level {name}", "x": x} for name, x in zip(level.tolist(), rng.normal(size=2000), strict=True)]
    model = SGBRegressor(learner=ChainStack([LinearStack(1), trees(3, n_bins=64)]), base="constant", learning_rate=0.9)
    for row, target in zip(rows, effect[level], strict=True):
        model.learn_one(row, target)
    chain = model.booster_.stack
    assert_array_equal(chain.stacks[1].categorical, [0])
    assert np.isnan(chain.stacks[1].threshold).any()  # the mark of a split by levels
    errors = [model.predict_one({"level": f"level {name}", "x": 0.0}) - effect[name] for name in range(20)]
    assert np.abs(errors).max() < 0.3 < effect.std()


def test_trees_after_lines_learn_what_no_line_explains():
    X = np.random.default_rng(0).uniform(-1, 1, size=(800, 2))
    y = 3 * X[:, 0] + np.sign(X[:, 1])

    def error(*stacks):
        replay = Replay(window=256, refit_every=16)
        booster = Booster(Squared(), GradientDescent(0.5), ChainStack(stacks), base=Constant(0), replay=replay)
        before = booster.learn(X, y)[:, 0]
        return np.mean((before[-300:] - y[-300:]) ** 2)

    mixed = error(LinearStack(6), trees(6))
    assert mixed < 0.4 * error(LinearStack(12), trees(1))
    assert mixed < 0.7 * error(trees(12))
