"""Contributions of trees beside those of shap's own TreeExplainer, on the same trees."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor

from streamboost import SGBRegressor, datasets
from streamboost.stacks.tree import TreeStack

shap = pytest.importorskip("shap")


def as_shap_trees(stack, eta):
    """The trees of a stack in the words of shap: children and thresholds by node, what leaves add to a score."""
    return {"trees": [as_shap_tree(stack, i, step) for i, step in enumerate(eta)]}


def as_shap_tree(stack, i, step):
    names = ("children_left", "children_right", "children_default", "features", "thresholds", "values")
    tree = {name: [] for name in (*names, "node_sample_weight")}
    n_leaves, leaf_values = 2**stack.max_depth, -step * stack.leaf_values(i)[:, 0]

    def add(p):
        node, is_split = len(tree["values"]), p < n_leaves - 1 and stack.feature[i, p] >= 0
        for name, value in zip(tree, (-1, -1, -1, -2, 0.0, [0.0], 0.0), strict=True):
            tree[name].append(value)
        if is_split:
            left, right = add(2 * p + 1), add(2 * p + 2)
            tree["children_left"][node], tree["children_right"][node] = left, right
            tree["children_default"][node] = left if stack.missing_left[i, p] else right
            tree["features"][node], tree["thresholds"][node] = stack.feature[i, p], stack.threshold[i, p]
            tree["node_sample_weight"][node] = sum(tree["node_sample_weight"][child] for child in (left, right))
        else:
            while p < n_leaves - 1:
                p = 2 * p + 1
            tree["values"][node] = [leaf_values[p - (n_leaves - 1)]]
            tree["node_sample_weight"][node] = stack.stats[i, p - (n_leaves - 1), -1]
        return node

    add(0)
    return {name: np.array(values) for name, values in tree.items()}


def test_trees_of_ours_by_shap():
    X, y, *_ = datasets.friedman(3000, noise=1.0, seed=0)
    model = SGBRegressor(memory=3000, base="constant", readout="last", random_state=0).partial_fit(X, y)
    booster = model.booster_
    explainer = shap.TreeExplainer(
        as_shap_trees(booster.stack, booster.eta), feature_perturbation="tree_path_dependent"
    )
    rows = X[:50]
    np.testing.assert_allclose(model.explain(rows)[:, :-1], explainer.shap_values(rows), atol=1e-6)


def test_trees_of_scikit_learn_in_ours():
    X, y, *_ = datasets.friedman(2000, noise=1.0, seed=0)
    theirs = GradientBoostingRegressor(n_estimators=10, max_depth=4, random_state=0).fit(X.astype(np.float32), y)
    stack = TreeStack(10, max_depth=4, l2=0.0)
    stack.open(n_features=X.shape[1], n_outputs=1)
    for i, tree in enumerate(estimator.tree_ for estimator in theirs.estimators_[:, 0]):
        places = [(0, 0)]
        while places:
            node, p = places.pop()
            if tree.children_left[node] < 0:
                while p < 15:
                    p = 2 * p + 1
                weight = tree.weighted_n_node_samples[node]
                stack.stats[i, p - 15] = -theirs.learning_rate * tree.value[node, 0, 0] * weight, weight
            else:
                stack.feature[i, p], stack.threshold[i, p] = tree.feature[node], tree.threshold[node]
                places += [(tree.children_left[node], 2 * p + 1), (tree.children_right[node], 2 * p + 2)]
    rows = X[:50].astype(np.float32).astype(float)
    said, expected = np.zeros((50, X.shape[1], 1)), np.zeros(1)
    stack.add_contributions(rows, slice(0, 10), np.ones(10), np.arange(X.shape[1]), said, expected)
    np.testing.assert_allclose(said[..., 0], shap.TreeExplainer(theirs).shap_values(rows), atol=1e-6)


def test_an_explanation_for_the_plots_of_shap():
    X, y, *_ = datasets.friedman(500, seed=0)
    model = SGBRegressor(random_state=0).partial_fit(X, y)
    explanation = model.shap_explanation(X[:20])
    np.testing.assert_allclose(
        explanation.values.sum(axis=1) + explanation.base_values, model.predict(X[:20]), atol=1e-9
    )
    assert explanation.feature_names == [str(j) for j in range(X.shape[1])]
