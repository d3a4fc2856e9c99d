"""Intervals and sets: they cover what they say on any stream, and are as wide as the noise of the row."""

from __future__ import annotations

import itertools
from statistics import NormalDist

import numpy as np
import pytest

import streamboost
from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.boosting.intervals import Intervals
from streamboost.losses import Squared


def follow(X, predictions, y, coverage=0.9, weight=None):
    """Ask for the interval of each row, then learn it."""
    intervals, ends = Intervals(Squared(), X.shape[1]), np.empty((len(y), 2))
    weight = np.ones(len(y)) if weight is None else weight
    for s in range(len(y)):
        row = slice(s, s + 1)
        ends[s] = intervals.predict(X[row], predictions[row, None], coverage)[0, 0]
        intervals.learn(X[row], predictions[row, None], y[row, None], weight[row])
    return intervals, ends


def noisy(n, scale, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.zeros(n), scale(X, np.arange(n)) * rng.normal(size=n)


@pytest.mark.parametrize("coverage", [0.6, 0.9, 0.97])
def test_of_normal_errors_the_ends_are_those_of_the_normal_distribution(coverage):
    _, ends = follow(*noisy(20_000, lambda X, t: 3.0 + 0.0 * t), coverage)
    expected = 3.0 * NormalDist().inv_cdf((1 + coverage) / 2)
    np.testing.assert_allclose(np.abs(ends[5000:]).mean(axis=0), expected, rtol=0.07)


STREAMS = {
    "the same all the time": lambda X, t: 1.0 + 0.0 * t,
    "ten times as noisy at once": lambda X, t: np.where(t < 3000, 1.0, 10.0),
    "a tenth as noisy at once": lambda X, t: np.where(t < 3000, 10.0, 1.0),
    "in waves": lambda X, t: 1.0 + 0.9 * np.sin(t / 200.0),
    "by the row": lambda X, t: 0.2 + 3.0 * X[:, 0],
}


@pytest.mark.parametrize("stream", STREAMS)
def test_every_window_is_covered(stream):
    X, predictions, y = noisy(8000, STREAMS[stream])
    _, ends = follow(X, predictions, y)
    covered = (ends[:, 0] <= y) & (y <= ends[:, 1])
    windows = np.convolve(covered[100:], np.ones(1000) / 1000, "valid")
    assert windows.min() > 0.85
    assert windows.max() < 0.95
    assert abs(covered[100:].mean() - 0.9) < 0.005


def test_wrong_predictions_are_covered_in_the_long_run():
    """Whatever predictions are: here they lag behind, so that errors come in runs of one sign."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.normal(size=12_000))
    X = rng.uniform(size=(len(y), 2))
    _, ends = follow(X, np.concatenate([np.zeros(10), y[:-10]]), y)
    assert abs(((ends[:, 0] <= y) & (y <= ends[:, 1]))[100:].mean() - 0.9) < 0.02


def test_the_width_follows_the_noise_of_the_row():
    X, predictions, y = noisy(20_000, STREAMS["by the row"])
    _, ends = follow(X, predictions, y)
    widths = (ends[:, 1] - ends[:, 0])[10_000:]
    fitted = np.polyfit(0.2 + 3.0 * X[10_000:, 0], widths, 1)
    assert np.corrcoef(0.2 + 3.0 * X[10_000:, 0], widths)[0, 1] > 0.95
    assert fitted[0] == pytest.approx(2 * 1.645, rel=0.15)


def test_units_do_not_matter():
    X, predictions, y = noisy(2000, STREAMS["in waves"])
    _, ends = follow(X, predictions, y)
    _, larger = follow(X, predictions, 2.0**20 * y)
    np.testing.assert_allclose(larger[50:], 2.0**20 * ends[50:], rtol=1e-6)


def test_a_row_of_weight_0_leaves_no_trace():
    X, predictions, y = noisy(500, STREAMS["in waves"])
    counts = np.random.default_rng(1).uniform(size=500) < 0.7
    with_all, _ = follow(X, predictions, np.where(counts, y, 1e9), weight=counts.astype(float))
    without, _ = follow(X[counts], predictions[counts], y[counts])
    rows = slice(0, 20)
    np.testing.assert_array_equal(
        *(each.predict(X[rows], predictions[rows, None], 0.9) for each in (with_all, without))
    )


def test_coverages_are_nested():
    X, predictions, y = noisy(3000, STREAMS["by the row"])
    intervals, _ = follow(X, predictions, y)
    ends = [intervals.predict(X[:50], predictions[:50, None], c)[:, 0] for c in (0.5, 0.63, 0.9, 0.93, 0.99)]
    for inner, outer in itertools.pairwise(ends):
        assert (outer[:, 0] <= inner[:, 0]).all()
        assert (inner[:, 1] <= outer[:, 1]).all()


def test_extreme_errors_stay_finite():
    X, predictions, y = noisy(300, STREAMS["in waves"])
    X[100, 0], X[101, 0], y[150], y[200:] = 1e300, -1e300, 1e100, 0.0
    intervals, ends = follow(X, predictions, y)
    assert np.isfinite(ends[20:]).all()
    assert np.isfinite(intervals.predict(np.array([[np.nan, 1e308, 0.0]]), np.array([[5.0]]), 0.9)).all()


def friedman(n, *, n_targets=1):
    X, y, *_ = datasets.friedman(n, noise=1.0, seed=0)
    return X, y if n_targets == 1 else np.stack([y, -3.0 * y], axis=1)


def test_a_regressor_learns_them_as_it_goes(tmp_path):
    X, y = friedman(3000)
    model, by_row = SGBRegressor(random_state=0), SGBRegressor(random_state=0)
    model.learn(X[:600], y[:600])
    for x, target in zip(X[:600], y[:600], strict=True):
        by_row.learn_one(dict(enumerate(x)), target)
    ends = model.predict_interval(X[600:700])
    np.testing.assert_array_equal(by_row.predict_interval(X[600:700]), ends)
    model.save(tmp_path / "model.safetensors")
    for other in (streamboost.load(tmp_path / "model.safetensors"), model.freeze()):
        np.testing.assert_array_equal(other.predict_interval(X[600:700]), ends)
    assert model.predict_interval_one(dict(enumerate(X[600]))) == ends[0].tolist()
    predictions = model.predict(X[600:700])
    assert (ends[:, 0] < predictions).all()
    assert (predictions < ends[:, 1]).all()


def test_intervals_of_several_targets_and_of_counts():
    X, y = friedman(1500, n_targets=2)
    model = SGBRegressor(random_state=0).partial_fit(X[:1000], y[:1000])
    ends = model.predict_interval(X[1000:])
    assert ends.shape == (500, 2, 2)
    covered = (ends[..., 0] <= y[1000:]) & (y[1000:] <= ends[..., 1])
    assert (covered.mean(axis=0) > 0.84).all()
    counts = np.random.default_rng(0).poisson(np.exp(y[:, 0] / 8))
    model = SGBRegressor(loss="poisson", random_state=0).partial_fit(X[:1000], counts[:1000])
    low, high = model.predict_interval(X[1000:]).T
    assert 0.85 < ((low <= counts[1000:]) & (counts[1000:] <= high)).mean() < 0.96


def test_columns_may_come_later():
    model, rng = SGBRegressor(random_state=0), np.random.default_rng(0)
    for t in range(400):
        x = {"a": rng.uniform()} | ({"b": rng.uniform()} if t > 200 else {})
        model.learn_one(x, x["a"] + rng.normal())
    low, high = model.predict_interval_one({"a": 0.5, "b": 0.5})
    assert 2.0 < high - low < 5.0  # 3.29 is that of the noise


def test_before_anything_is_known_an_interval_is_everything():
    assert SGBRegressor().predict_interval_one({"a": 1.0}) == [-np.inf, np.inf]
    model = SGBRegressor(random_state=0).partial_fit([[1.0], [2.0]], [1.0, 2.0])
    assert model.predict_interval([[1.0]]).tolist() == [[-np.inf, np.inf]]


@pytest.mark.parametrize("coverage", [0.4, 1.0, 90, "0.9", np.nan])
def test_a_coverage_is_a_share(coverage):
    X, y = friedman(50)
    model = SGBRegressor(random_state=0).partial_fit(X, y)
    with pytest.raises(ValueError, match=r"coverage is .*, expected a number from 0.5 to 0.99"):
        model.predict_interval(X, coverage)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_sets_cover_and_are_no_larger_than_needed(n_classes):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(6000, 4))
    labels = np.array(list("abcde"))[(X[:, 0] * n_classes).astype(int)]
    wrong = rng.uniform(size=6000) < 0.25  # of labels, by chance: no model is right more often
    labels[wrong] = rng.choice(list("abcde")[:n_classes], wrong.sum())
    model, found = SGBClassifier(random_state=0), []
    for start in range(0, 6000, 50):
        rows = slice(start, start + 50)
        if start:
            found += model.predict_set(X[rows], 0.9)
        model.partial_fit(X[rows], labels[rows])
    covered = np.array([label in own for label, own in zip(labels[50:], found, strict=True)])
    assert 0.88 < covered[1000:].mean() < 0.925
    assert min(map(len, found)) >= 1
    assert [own[0] for own in model.predict_set(X[:50])] == model.predict(X[:50]).tolist()
    assert sum(map(len, model.predict_set(X, 0.6))) == len(X)  # the model is right more often than that


def test_a_hinge_tells_no_probabilities():
    X, y = friedman(50)
    model = SGBClassifier(loss="hinge", random_state=0).partial_fit(X, y > 14)
    assert not hasattr(model, "predict_set")
