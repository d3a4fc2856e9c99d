"""How well the defaults do on streams whose difficulty is known."""

import numpy as np
import pytest

from streamboost import SGBClassifier, SGBRegressor, datasets


def rmse(prediction, y):
    return float(np.sqrt(np.mean((prediction - y) ** 2)))


@pytest.mark.slow
def test_friedman_comes_down_to_its_noise():
    rng = np.random.default_rng(7)
    X = rng.uniform(size=(20_000, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    y += rng.normal(size=len(y))
    before = SGBRegressor().learn(X, y)
    assert rmse(before, y) < 1.5  # the noise alone is 1
    assert rmse(before[-5000:], y[-5000:]) < 1.15


@pytest.mark.slow
def test_abalone_in_one_pass():
    data = datasets.load_abalone()
    errors = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(data.y))
        train, test = np.split(order, [int(0.9 * len(order))])
        model = SGBRegressor().fit(data.X[train], data.y[train])
        errors.append(rmse(model.predict(data.X[test]), data.y[test]))
    assert np.mean(errors) < 2.25


def test_electricity_beats_both_the_majority_and_the_last_label():
    data = datasets.load_electricity()
    X, y = data.X[:4000], data.y[:4000]
    before = SGBClassifier().learn(X, y)
    last = np.mean(y[1:] == y[:-1])
    assert np.mean(before == y) > max(last, np.mean(y == 0), np.mean(y == 1))
