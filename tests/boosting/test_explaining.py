"""Contributions: against Shapley's own formula, and as sums that are exact whatever a model is made of."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.boosting.explaining import explain_booster
from streamboost.features.binning import Bins
from streamboost.losses import Poisson
from streamboost.stacks.tree import TreeStack


def grown_stack(*, n_learners=3, max_depth=5, d=4, m=1, n=400, seed=0, categorical=(), sparse_leaves=False):
    """Trees grown from random rows, missing values among them, of which only some go on to teach leaves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).round(1)
    for j in categorical:
        X[:, j] = rng.integers(0, 6, size=n)
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    stack, bins = TreeStack(n_learners, max_depth=max_depth, min_samples_leaf=2), Bins(64)
    stack.open(n_features=d, n_outputs=m)
    bins.add_features(d)
    if categorical:
        stack.set_categorical(categorical, 8)
        bins.set_categorical(np.array(categorical), 8)
    bins.fit(X)
    window = SimpleNamespace(X=X, codes=bins.encode(X), bins=bins)
    for i in range(n_learners):
        stack.refit(i, window, rng.normal(size=(n, m)) + np.nan_to_num(X[:, :1] * X[:, 1:2]), rng.uniform(0.5, 2.0, n))
    if sparse_leaves:
        stack.stats[:, ::3] = 0.0
    return stack, X


def known_says(stack, i, x, known, owners):
    """What tree i says of a row of which only some columns are known: the definition, by recursion."""
    n_leaves = 2**stack.max_depth
    values, weight = stack.leaf_values(i), stack.stats[i, :, -1]

    def leaves_below(p):
        while p < n_leaves - 1:
            return leaves_below(2 * p + 1) + leaves_below(2 * p + 2)
        return [p - (n_leaves - 1)]

    def say(p):
        if p >= n_leaves - 1:
            return values[p - (n_leaves - 1)]
        j = stack.feature[i, p]
        if j < 0:
            return say(2 * p + 1)
        if owners[j] in known:
            v, cut = x[j], stack.threshold[i, p]
            if math.isnan(v):
                left = bool(stack.missing_left[i, p])
            elif math.isnan(cut):
                left = bool(stack.subset[i, p] >> stack.level_bins[i, stack.cat_at[j], int(v)] & np.uint64(1))
            else:
                left = v <= cut
            return say(2 * p + 1 if left else 2 * p + 2)
        a, b = (weight[leaves_below(child)].sum() for child in (2 * p + 1, 2 * p + 2))
        share = a / (a + b) if a + b > 0 else 0.5
        return share * say(2 * p + 1) + (1 - share) * say(2 * p + 2)

    return say(0)


def shapley(stack, x, eta, owners):
    """Shapley values by their definition, over all sets of columns, (c, m)."""
    c = max(owners) + 1
    worth = {
        known: -sum(step * known_says(stack, i, x, known, owners) for i, step in enumerate(eta))
        for size in range(c + 1)
        for known in map(frozenset, itertools.combinations(range(c), size))
    }
    values = []
    for j in range(c):
        others = [known for known in worth if j not in known]
        ways = [math.factorial(len(known)) * math.factorial(c - len(known) - 1) for known in others]
        more = [worth[known | {j}] - worth[known] for known in others]
        values.append(sum(w * gain for w, gain in zip(ways, more, strict=True)) / math.factorial(c))
    return np.array(values), worth[frozenset()]


@pytest.mark.parametrize(
    ("options", "owners"),
    [
        ({}, [0, 1, 2, 3]),
        ({"m": 3, "max_depth": 4}, [0, 1, 2, 3]),
        ({"max_depth": 7, "n_learners": 1}, [0, 1, 2, 3]),
        ({"categorical": (1, 2)}, [0, 1, 2, 3]),
        ({"sparse_leaves": True}, [0, 1, 2, 3]),
        ({"d": 6}, [0, 1, 1, 2, 1, 3]),  # the parts of a date are one column
    ],
)
def test_trees_contribute_shapley_values(options, owners):
    stack, X = grown_stack(**options)
    eta = np.linspace(0.3, 1.0, stack.n_learners)
    rows, c, m = np.concatenate([X[:9], np.full((1, X.shape[1]), np.nan)]), max(owners) + 1, stack.n_outputs
    said, expected = np.zeros((len(rows), c, m)), np.zeros(m)
    stack.add_contributions(rows, slice(0, stack.n_learners), eta, np.array(owners), said, expected)
    for x, own in zip(rows, said, strict=True):
        values, nothing = shapley(stack, x, eta, owners)
        np.testing.assert_allclose(own, values, atol=1e-12)
        np.testing.assert_allclose(expected, nothing, atol=1e-12)


def test_some_trees_add_up():
    stack, X = grown_stack()
    owners, eta = np.arange(4), np.array([0.5, 0.25, 1.0])
    whole, parts = (np.zeros((len(X), 4, 1)), np.zeros(1)), (np.zeros((len(X), 4, 1)), np.zeros(1))
    stack.add_contributions(X, slice(0, 3), eta, owners, *whole)
    stack.add_contributions(X, slice(0, 1), eta[:1], owners, *parts)
    stack.add_contributions(X, slice(1, 3), eta[1:], owners, *parts)
    np.testing.assert_allclose(whole[0], parts[0], atol=1e-12)
    np.testing.assert_allclose(whole[1], parts[1], atol=1e-12)


def friedman(n=3000, seed=0):
    X, y, *_ = datasets.friedman(n, noise=1.0, seed=seed)
    return X, y


def expert_sums(committee, X, owners):
    for b, booster in enumerate(committee.boosters):
        steps = [step for owner, step in committee.hedge.experts.tolist() if owner == b]
        parts, start = explain_booster(booster, X, owners, int(owners.max()) + 1, steps, "last")
        walk = booster.walk_checked(X)
        for e, step in enumerate(steps):
            yield (start + parts.sum(axis=2))[:, e], walk[:, step]


@pytest.mark.parametrize("fitted", [False, True])
def test_parts_of_every_expert_add_up_to_what_it_says(fitted):
    """Nothing is left over to be hidden in what no column contributes."""
    X, y = friedman()
    model = SGBRegressor(random_state=0)
    model = model.fit(X, y) if fitted else model.partial_fit(X, y)
    for added, said in expert_sums(model.committee_, X[:50], model.encoder_.owners):
        np.testing.assert_allclose(added, said, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"base": "constant"}, {"memory": 512}, {"memory": 512, "readout": "mean"},
        {"memory": 512, "readout": "last"}, {"loss": "huber"}, {"loss": "absolute_error"}, {"monotonic_cst": {3: 1}},
    ],
)  # fmt: skip
def test_contributions_of_a_regressor_add_up_to_its_prediction(options):
    X, y = friedman(1500)
    model = SGBRegressor(random_state=0, **options).partial_fit(X, y)
    contributions = model.explain(X[:200])
    np.testing.assert_allclose(contributions.sum(axis=1), model.predict(X[:200]), atol=1e-9, rtol=0)
    rest = contributions[:, -1]  # nearly the same for all rows: nothing of theirs is hidden there
    assert rest.std() < 0.02 * y.std()
    relevant, noise = np.abs(contributions[:, :5]).mean(axis=0), np.abs(contributions[:, 5:10]).mean(axis=0)
    assert relevant.min() > noise.max()


def test_a_line_contributes_its_terms():
    X, y = friedman(500)
    y = 3.0 * X[:, 0] - 2.0 * X[:, 1]
    model = SGBRegressor(memory=64, readout="last", n_estimators=1, learning_rate=1e-9, random_state=0).partial_fit(
        X, y
    )
    slopes = [np.polyfit(X[:, j], model.explain(X)[:, j], 1)[0] for j in range(3)]
    np.testing.assert_allclose(slopes, [3.0, -2.0, 0.0], atol=0.05)


def test_poisson_in_the_units_of_the_logarithm():
    X, y = friedman(1500)
    counts = np.random.default_rng(0).poisson(np.exp(y / 8))
    model = SGBRegressor(loss=Poisson(), random_state=0).partial_fit(X, counts)
    contributions = model.explain(X[:100])
    np.testing.assert_allclose(contributions.sum(axis=1), np.log(model.predict(X[:100])), atol=1e-9)
    assert contributions[:, -1].std() < 0.1 * contributions.sum(axis=1).std()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_contributions_of_a_classifier_add_up_to_its_decision(n_classes):
    X, y = friedman(3000)
    labels = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_classes + 1)[1:-1]))
    model = SGBClassifier(random_state=0).partial_fit(X, labels)
    contributions, decision = model.explain(X[:300]), model.decision_function(X[:300])
    np.testing.assert_allclose(contributions.sum(axis=1), decision, atol=1e-9)
    assert contributions[:, -1].std(axis=0).max() < 0.1 * decision.std()  # the remainder of mixing is small


def test_a_frozen_model_and_categories_explain_alike():
    rng = np.random.default_rng(0)
    place, x = rng.choice(["a", "b", "c"], 2000), rng.uniform(size=2000)
    y = np.select([place == "a", place == "b"], [5.0, -5.0], 0.0) + x
    rows = [{"place": p, "x": v} for p, v in zip(place, x, strict=True)]
    model = SGBRegressor(random_state=0).partial_fit(rows, y)
    contributions = model.explain(rows[:100])
    np.testing.assert_array_equal(model.freeze().explain(rows[:100]), contributions)
    assert np.abs(contributions[:, 0]).mean() > 5 * np.abs(contributions[:, 1]).mean()
    x = {"x": 0.5, "place": "a"}
    one = model.explain_one(x)
    assert list(one.columns) == ["place", "x"]
    assert sum(one.columns.values()) + one.rest == pytest.approx(model.predict_one(x), abs=1e-9)


def test_explain_one_of_several_classes_tells_each_by_its_label():
    X, y = friedman(1000)
    labels = np.array(["low", "mid", "high"])[np.digitize(y, [11, 17])]
    model = SGBClassifier(random_state=0).partial_fit(X, labels)
    one = model.explain_one(dict(enumerate(X[0])))
    assert set(one.rest) == set(labels)
    scores = dict(zip(model.classes_, model.decision_function(X[:1])[0], strict=True))
    for label in one.rest:
        total = one.rest[label] + sum(each[label] for each in one.columns.values())
        assert total == pytest.approx(scores[label], abs=1e-9)


def test_a_change_is_split_into_what_rows_did_and_what_was_learned():
    X, y = friedman(2000)
    model = SGBRegressor(random_state=0).partial_fit(X[:1000], y[:1000])
    then = model.freeze()
    model.partial_fit(X[1000:], -y[1000:])
    change = model.explain_change(X[:20], X[20:40], then, model)
    difference = model.predict(X[20:40]) - then.predict(X[:20])
    np.testing.assert_allclose((change.input + change.model).sum(axis=1), difference, atol=1e-9)
    same_rows = model.explain_change(X[:20], X[:20], then, model)
    assert not same_rows.input.any()
    same_model = model.explain_change(X[:20], X[20:40], then, then)
    assert not same_model.model.any()


def test_a_change_across_new_columns_goes_by_their_names():
    model = SGBRegressor(random_state=0)
    rng = np.random.default_rng(0)
    for v in rng.uniform(size=300):
        model.learn_one({"b": v}, v)
    then = model.freeze()
    for v, w in rng.uniform(size=(300, 2)):
        model.learn_one({"a": w, "b": v}, v + 2 * w)
    x = {"a": 1.0, "b": 0.5}
    change = model.explain_change(x, x, then, model)
    total = change.model.sum() + change.input.sum()
    assert total == pytest.approx(model.predict_one(x) - then.predict_one(x), abs=1e-9)
    names = list(model.encoder_.names)
    assert abs(change.model[0, names.index("a")]) > abs(change.model[0, names.index("b")])


def test_what_cannot_be_explained_is_refused():
    X, y = friedman(200)
    model = SGBRegressor(learner="linear", random_state=0).partial_fit(X, y)
    with pytest.raises(TypeError, match="learner is 'linear'"):
        model.explain(X)
    two = SGBRegressor(random_state=0).partial_fit(X, np.c_[y, y])
    one = SGBRegressor(random_state=0).partial_fit(X, y)
    assert two.explain(X[:3]).shape == (3, X.shape[1] + 1, 2)
    with pytest.raises(ValueError, match="same classes or outputs"):
        two.explain_change(X[:1], X[:1], one, two)
