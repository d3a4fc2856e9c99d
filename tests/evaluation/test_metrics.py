"""Metrics against scikit-learn's, over all rows and over the latest, whatever the chunks."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from streamboost.evaluation.reports import Report
from streamboost.metrics import (
    AUC,
    BY_NAME,
    ECE,
    F1,
    MAE,
    PRAUC,
    R2,
    RMSE,
    Accuracy,
    BalancedAccuracy,
    Brier,
    Kappa,
    LogLoss,
    Pinball,
    Probabilities,
)
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import same_state

NAMES = np.array(["ant", "bee", "cow"])
SEEDS = st.integers(0, 2**32 - 1)


def in_chunks(metric, y, prediction, weight, rng):
    """Tell a metric the rows, cut at random."""
    cuts = [0, *np.sort(rng.integers(0, len(y) + 1, 4)), len(y)]
    for start, stop in itertools.pairwise(cuts):
        rows = slice(start, stop)
        if isinstance(prediction, Probabilities):
            said = Probabilities(prediction.classes, prediction.values[rows])
        else:
            said = prediction[rows]
        metric.add(y[rows], said, weight[rows])
    return metric


def balanced_accuracy(y, said, *, sample_weight):
    """That of scikit-learn, which warns of labels that never came."""
    with warnings.catch_warnings(action="ignore"):
        return reference.balanced_accuracy_score(y, said, sample_weight=sample_weight)


def f1(y, said, *, sample_weight):
    """That of scikit-learn: of two classes that of the rarer one, else the mean."""
    counts = sample_weight > 0
    some = np.union1d(y[counts], said[counts])
    each = reference.f1_score(y, said, sample_weight=sample_weight, labels=some, average=None, zero_division=0.0)
    came = [sample_weight[y == label].sum() for label in some]
    return each[int(np.argmin(came))] if len(some) == 2 else each.mean()


def stream(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 80))
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    weight[-2:] = 1.0  # whatever the window, something counts
    return rng, n, weight, [None, int(rng.integers(2, 100))]


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([None, 1, 3]))
def test_regression_metrics_are_those_of_scikit_learn(seed, n_outputs):
    rng, n, weight, windows = stream(seed)
    shape = n if n_outputs is None else (n, n_outputs)
    y = 1e3 + rng.normal(size=shape)
    said = y + rng.normal(size=shape)
    for window in windows:
        last = slice(None) if window is None else slice(-window, None)
        for metric, twin in [
            (RMSE, reference.root_mean_squared_error),
            (MAE, reference.mean_absolute_error),
            (R2, reference.r2_score),
            (Pinball, reference.mean_pinball_loss),
        ]:
            ours = in_chunks(metric(window), y, said, weight, rng).value
            assert ours == pytest.approx(twin(y[last], said[last], sample_weight=weight[last]), rel=1e-7)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_label_metrics_are_those_of_scikit_learn(seed):
    rng, n, weight, windows = stream(seed)
    y, said = NAMES[rng.integers(0, 3, n)], NAMES[rng.integers(0, 3, n)]
    y[-2:] = NAMES[:2]  # two classes in every window
    for window in windows:
        last = slice(None) if window is None else slice(-window, None)
        for metric, twin in [
            (Accuracy, reference.accuracy_score),
            (Kappa, reference.cohen_kappa_score),
            (BalancedAccuracy, balanced_accuracy),
            (F1, f1),
        ]:
            ours = in_chunks(metric(window), y, said, weight, rng).value
            assert ours == pytest.approx(twin(y[last], said[last], sample_weight=weight[last]), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_log_loss_is_that_of_scikit_learn(seed):
    rng, n, weight, windows = stream(seed)
    y, p = NAMES[rng.integers(0, 3, n)], rng.dirichlet([0.3, 0.3, 0.3], n)
    for window in windows:
        last = slice(None) if window is None else slice(-window, None)
        ours = in_chunks(LogLoss(window), y, Probabilities(list(NAMES), p), weight, rng).value
        twin = reference.log_loss(y[last], p[last], labels=list(NAMES), sample_weight=weight[last])
        assert ours == pytest.approx(twin, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_the_windowed_auc_is_that_of_scikit_learn_and_the_running_one_within_its_bound(seed, ties):
    rng, n, weight, windows = stream(seed)
    y, p = rng.integers(0, 2, n), rng.random(n)
    y[-2:] = [0, 1]
    p = np.round(p, 1) if ties else p
    for window in windows:
        last = slice(None) if window is None else slice(-window, None)
        metric = in_chunks(AUC(window), y, p, weight, rng)
        exact = reference.roc_auc_score(y[last], p[last], sample_weight=weight[last])
        assert abs(metric.value - exact) <= metric.error_bound + 1e-12
        assert window is None or metric.error_bound == 0.0


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_the_average_precision_is_that_of_scikit_learn(seed, ties):
    rng, n, weight, windows = stream(seed)
    y, p = rng.integers(0, 2, n), rng.random(n)
    y[-2:] = [0, 1]
    p = np.round(p, 1) if ties else p
    for window in windows[1:]:
        last = slice(-window, None)
        came = [weight[last][y[last] == label].sum() for label in (0, 1)]
        if came[0] == came[1]:  # then none is the rarer one
            continue
        rare = int(np.argmin(came))
        metric = in_chunks(PRAUC(window), y, p, weight, rng)
        exact = reference.average_precision_score(
            y[last] == rare, p[last] if rare else -p[last], sample_weight=weight[last]
        )
        assert metric.value == pytest.approx(exact, abs=1e-9)


def test_the_running_average_precision_of_many_rows_is_close():
    rng = np.random.default_rng(0)
    y = rng.random(50_000) < 0.01
    p = 1 / (1 + np.exp(-(rng.normal(size=len(y)) + 2.0 * y - 3.0)))
    metric = PRAUC()
    metric.add(y, p)
    assert metric.value == pytest.approx(reference.average_precision_score(y, p), rel=0.01)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([2, 3]))
def test_the_brier_score_is_that_of_scikit_learn(seed, n_classes):
    rng, n, weight, windows = stream(seed)
    names = list(NAMES[:n_classes])
    y, p = NAMES[rng.integers(0, n_classes, n)], rng.dirichlet([0.3] * n_classes, n)
    for window in windows:
        last = slice(None) if window is None else slice(-window, None)
        ours = in_chunks(Brier(window), y, Probabilities(names, p), weight, rng).value
        came = (y[last, None] == NAMES[:n_classes]).astype(float)
        each = ((p[last] - came) ** 2).sum(axis=1) / (2 if n_classes == 2 else 1)
        assert ours == pytest.approx(np.average(each, weights=weight[last]), rel=1e-9)
        if n_classes == 2:
            twin = reference.brier_score_loss(y[last], p[last, 1], pos_label="bee", sample_weight=weight[last])
            assert ours == pytest.approx(twin, rel=1e-9)


def test_the_calibration_error_is_what_probabilities_were_twisted_by():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200_000)
    y = rng.uniform(size=len(p)) < p
    honest, bold = ECE(), ECE()
    honest.add(y, p)
    bold.add(y, np.where(p > 0.5, 1.0, 0.0))
    assert honest.value < 0.006
    assert bold.value == pytest.approx(0.25, abs=0.005)  # 1 is said where 3/4 are right


def test_the_running_auc_of_many_rows_is_close():
    rng = np.random.default_rng(0)
    y = rng.random(50_000) < 0.3
    p = 1 / (1 + np.exp(-(rng.normal(size=len(y)) + 2.0 * y - 3.0)))
    metric = AUC()
    metric.add(y, p)
    assert metric.error_bound < 1e-3
    assert abs(metric.value - reference.roc_auc_score(y, p)) < 1e-5


def test_the_auc_is_the_same_whichever_class_is_looked_at():
    rng = np.random.default_rng(1)
    y, p = NAMES[rng.integers(0, 2, 50)], rng.random(50)
    one, other = AUC(window=50), AUC(window=50)
    one.add(y, Probabilities(["ant", "bee"], np.stack([p, 1 - p], axis=1)))
    other.add(y, Probabilities(["bee", "ant"], np.stack([1 - p, p], axis=1)))
    assert one.value == pytest.approx(other.value)
    assert one.value == pytest.approx(reference.roc_auc_score(y == "bee", 1 - p))


@pytest.mark.parametrize("window", [None, 10])
def test_without_rows_every_metric_is_nan(window):
    for metric in BY_NAME.values():
        assert math.isnan(metric(window).value)


@pytest.mark.parametrize("window", [None, 10])
def test_where_a_metric_has_no_meaning_it_is_nan(window):
    constant, one_class, one_label, three = R2(window), AUC(window), Kappa(window), AUC(window)
    constant.add([0.1] * 7, np.arange(7.0))  # 0.1 seven times has a mean that is not quite 0.1
    one_class.add([1, 1], [0.2, 0.4])
    one_label.add(["a", "a"], ["a", "a"])
    three.add(NAMES, Probabilities(list(NAMES), np.eye(3)))
    assert all(math.isnan(metric.value) for metric in (constant, one_class, one_label, three))


def test_targets_far_from_zero_cost_no_digits():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=10_000)
    far, near = R2(), R2()
    for start in range(0, len(noise), 100):
        part = noise[start : start + 100]
        near.add(part, part * 0.5)
        far.add(part + 2.0**30, part * 0.5 + 2.0**30)
    assert far.value == pytest.approx(near.value, rel=1e-5)


def test_a_row_of_weight_zero_takes_its_place_in_a_window():
    metric = MAE(window=2)
    metric.add([1.0, 5.0], [0.0, 0.0], [1, 1])
    metric.add([9.0], [0.0], [0])
    assert metric.value == 5.0


def test_a_class_without_a_column_has_probability_zero():
    metric = LogLoss()
    metric.add(["cow"], Probabilities(["ant", "bee"], np.array([[0.5, 0.5]])))
    assert metric.value == pytest.approx(-math.log(np.finfo(float).eps))


def test_single_targets_are_rows_too():
    number, label = RMSE(), Accuracy()
    number.add(1.0, 3.0)
    label.add("ant", "ant")
    assert (number.value, label.value) == (2.0, 1.0)


@pytest.mark.parametrize("window", [None, 5])
def test_a_snapshot_holds_a_metric_and_continues(tmp_path, window):
    y, p = np.array([0, 1, 1, 0, 1, 0]), np.array([0.2, 0.7, 0.4, 0.5, 0.9, 0.1])
    for metric in BY_NAME.values():
        said = p if metric.need != "label" else p > 0.5
        before = metric(window)
        before.add(y[:4], said[:4])
        snapshots.save(before, tmp_path / "metric.safetensors")
        after = snapshots.load(tmp_path / "metric.safetensors")
        for each in (before, after):
            each.add(y[4:], said[4:])
        assert same_state(before, after)
        assert before.value == after.value


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"y has shape \(2,\) and prediction \(2, 1\)"):
        RMSE().add([1.0, 2.0], [[1.0], [2.0]])
    with pytest.raises(ValueError, match="y has 2 labels and prediction 1"):
        Accuracy().add(["a", "b"], ["a"])
    with pytest.raises(ValueError, match=r"probabilities have shape \(1, 2\), expected \(1, 3\)"):
        LogLoss().add(["ant"], Probabilities(list(NAMES), np.ones((1, 2))))
    with pytest.raises(ValueError, match="y holds 'ant', expected 0 or 1"):
        AUC().add(["ant"], [0.5])
    with pytest.raises(ValueError, match=r"weight in row 0 is -1\.0, expected a finite number of at least 0"):
        MAE().add([1.0], [1.0], [-1.0])
    with pytest.raises(ValueError, match="window is 0, expected a whole number above 0"):
        MAE(window=0)


def test_only_a_metric_that_can_have_no_meaning_any_more_is_inapplicable():
    metric = AUC()
    for classes in (["a"], ["a", "b"]):
        metric.add(classes, Probabilities(["a", "b"], np.full((len(classes), 2), 0.5)))
        assert metric.inapplicable == ""
    metric.add(["c"], Probabilities(["a", "b", "c"], np.full((1, 3), 1 / 3)))
    assert "there are 3" in metric.inapplicable
    assert math.isnan(metric.value)
    assert RMSE().inapplicable == ""


def test_a_report_says_no_metric_that_has_no_value():
    report = Report(9, {"accuracy": 0.5, "auc": math.nan}, {"accuracy": math.nan, "auc": math.nan}, 3, 0.1, 90.0)
    assert str(report) == "9 rows: accuracy 0.5 (latest 3: -), 90 rows/s"
    assert str(Report(1, {"r2": math.nan}, {"r2": math.nan}, 3, 0.1, 10.0)) == "1 rows: 10 rows/s"
