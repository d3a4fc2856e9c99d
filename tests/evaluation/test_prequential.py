"""The loop against loops written by hand, and against River's."""

import math
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import base, evaluate, linear_model, naive_bayes, preprocessing, stream, tree
from river import metrics as river_metrics
from sklearn import metrics as reference
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB

from streamboost import SGBClassifier, SGBRegressor
from streamboost.metrics import MAE, Accuracy, MeanMetric
from streamboost.persistence.object_graph import same_state
from streamboost.prequential import History, Report, prequential, run
from streamboost.sources import MemorySource

SMALL = {"n_estimators": 5, "max_depth": 3, "memory": (64, 256), "random_state": 0}
NAMES = list("abcd")


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    return X, X[:, 0] * X[:, 1] + 2 * X[:, 2] + 0.1 * rng.normal(size=700)


@pytest.fixture(scope="module")
def labels(numbers):
    X, y = numbers
    return X, np.array(["low", "mid", "high"])[np.digitize(y, [-1, 1])]


def rmse(y, said):
    return reference.root_mean_squared_error(y, said)


class Echo:
    """The last target again; it says nothing of itself."""

    last = 0

    def learn(self, X, y):
        said = np.concatenate([[self.last], y[:-1]])
        self.last = y[-1]
        return said

    def predict(self, X):
        return np.full(len(X), self.last)


# The same as by hand


def test_our_regressor_gets_the_scores_of_the_bare_loop(numbers):
    X, y = numbers
    said = SGBRegressor(**SMALL).learn(X, y)
    history = run(SGBRegressor(**SMALL), (X, y), every=200, window=150)
    assert [report.rows for report in history] == [200, 400, 600, 700]
    for report in history:
        seen, latest = slice(0, report.rows), slice(max(report.rows - 150, 0), report.rows)
        assert report.running["rmse"] == pytest.approx(rmse(y[seen], said[seen]))
        assert report.windowed["rmse"] == pytest.approx(rmse(y[latest], said[latest]))
        assert report.windowed["mae"] == pytest.approx(reference.mean_absolute_error(y[latest], said[latest]))
        assert report.windowed["r2"] == pytest.approx(reference.r2_score(y[latest], said[latest]))


def test_our_classifier_gets_the_scores_of_the_bare_loop(labels):
    X, y = labels
    model = SGBClassifier(**SMALL)
    p = model.learn(X, y, method="predict_proba")
    known = p.sum(axis=1) > 0
    classes = model.classes_
    last = run(SGBClassifier(**SMALL), (X, y), chunk=64).last
    assert last.unanswered == (~known).sum() == 1
    y, p = y[known], p[known]
    order = np.argsort(classes)
    chosen = np.clip(p[np.arange(len(y)), order[np.searchsorted(classes[order], y)]], np.finfo(float).eps, 1)
    assert last.running["accuracy"] == pytest.approx((classes[p.argmax(axis=1)] == y).mean())
    assert last.running["kappa"] == pytest.approx(reference.cohen_kappa_score(y, classes[p.argmax(axis=1)]))
    assert last.running["log_loss"] == pytest.approx(-np.log(chosen).mean())


def test_the_model_ends_as_if_it_had_learned_without_the_loop(numbers):
    X, y = numbers
    alone, looped = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    alone.partial_fit(X, y)
    run(looped, (X, y), chunk=33, every=100)
    assert same_state(alone, looped)


@pytest.mark.parametrize("chunk", [1, 7, 256, 5000])
def test_chunks_change_nothing_for_our_models(labels, chunk):
    whole, cut = (
        run(SGBClassifier(**SMALL), labels, every=250, chunk=size, metrics=["accuracy", "log_loss"])
        for size in (700, chunk)
    )
    for one, other in zip(whole, cut, strict=True):
        assert one.running == pytest.approx(other.running, rel=1e-9)
        assert one.windowed == pytest.approx(other.windowed, rel=1e-9)
        assert (one.rows, one.unanswered) == (other.rows, other.unanswered)


def test_scikit_learns_regressor_goes_row_by_row(numbers):
    X, y = numbers[0][:200], numbers[1][:200]
    model, said = SGDRegressor(random_state=0), []
    model.partial_fit(X[:1], y[:1])
    for t in range(1, len(y)):
        said.append(model.predict(X[t : t + 1])[0])
        model.partial_fit(X[t : t + 1], y[t : t + 1])
    last = run(SGDRegressor(random_state=0), (X, y)).last
    assert last.running["rmse"] == pytest.approx(rmse(y[1:], said))
    assert last.unanswered == 1


def test_scikit_learns_classifier_goes_chunk_by_chunk_if_told(labels):
    X, y = labels
    model, said = GaussianNB(), []
    model.partial_fit(X[:50], y[:50], classes=np.unique(y))
    for start in range(50, len(y), 50):
        rows = slice(start, start + 50)
        said.extend(model.predict(X[rows]))
        model.partial_fit(X[rows], y[rows])
    last = run(GaussianNB(), (X, y), chunk=50, every=70).last
    assert last.running["accuracy"] == pytest.approx(np.mean(y[50:] == said))
    assert last.unanswered == 50


# The same as River's


@pytest.mark.parametrize("delay", [0, 1, 2, 30, 1000])
def test_labels_at_once_and_late_give_rivers_score(numbers, delay):
    def make():
        return preprocessing.StandardScaler() | linear_model.LinearRegression()

    score = evaluate.progressive_val_score(
        stream.iter_array(*numbers), make(), river_metrics.MAE(), delay=delay or None
    )
    last = run(make(), numbers, delay=delay, metrics=[MAE]).last
    assert (last.rows, last.running["mae"]) == (700, pytest.approx(score.get()))


def test_late_labels_of_classes_give_rivers_score_and_rows_without_an_answer_do_not_count(labels):
    pairs = list(stream.iter_array(labels[0], labels[1].tolist()))
    score = evaluate.progressive_val_score(pairs, naive_bayes.GaussianNB(), river_metrics.Accuracy(), delay=30)
    last = run(naive_bayes.GaussianNB(), labels, delay=30).last
    assert (last.rows, last.unanswered) == (700, 30)
    assert last.running["accuracy"] == pytest.approx(score.get())
    never = run(naive_bayes.GaussianNB(), labels, delay=1000).last
    assert (never.unanswered, math.isnan(never.running["log_loss"])) == (700, True)


def test_rivers_classifier_gets_rivers_scores(labels):
    X, y = labels
    pairs = [(dict(zip(NAMES, row, strict=True)), label) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    last = run(tree.HoeffdingTreeClassifier(), iter(pairs)).last
    for metric, name in [(river_metrics.Accuracy(), "accuracy"), (river_metrics.CohenKappa(), "kappa")]:
        score = evaluate.progressive_val_score(pairs, tree.HoeffdingTreeClassifier(), metric)
        assert last.running[name] == pytest.approx(score.get())


def test_rivers_log_loss_is_ours(numbers):
    X, y = numbers[0], numbers[1] > 0
    score = evaluate.progressive_val_score(
        stream.iter_array(X, y.tolist()), linear_model.LogisticRegression(), river_metrics.LogLoss(), delay=3
    )
    last = run(linear_model.LogisticRegression(), (X, y), delay=3, metrics=["log_loss", "auc"]).last
    assert last.running["log_loss"] == pytest.approx(score.get())
    assert last.running["auc"] > 0.9


class Majority(base.Classifier):
    """The most frequent label so far; no probabilities."""

    def __init__(self):
        self.counts = Counter()

    def learn_one(self, x, y):
        self.counts[y] += 1

    def predict_one(self, x):
        return max(self.counts, key=self.counts.get, default=None)


def test_a_river_model_without_probabilities_is_asked_for_labels(labels):
    last = run(preprocessing.StandardScaler() | Majority(), labels).last
    pairs = list(stream.iter_array(labels[0], labels[1].tolist()))
    score = evaluate.progressive_val_score(pairs, Majority(), river_metrics.Accuracy())
    assert list(last.running) == ["accuracy", "kappa"]
    assert (last.running["accuracy"], last.unanswered) == (pytest.approx(score.get()), 1)


# Late labels


@pytest.mark.parametrize("delay", [1, 5, 40])
def test_late_labels_are_learned_when_they_come(numbers, delay):
    X, y = numbers[0][:150], numbers[1][:150]
    model, said = SGBRegressor(**SMALL), []
    for t in range(len(y)):
        if t >= delay:
            model.partial_fit(X[t - delay : t - delay + 1], y[t - delay : t - delay + 1])
            said.append(model.predict(X[t : t + 1])[0])
    looped = SGBRegressor(**SMALL)
    last = run(looped, (X, y), delay=delay, chunk=11, every=40).last
    assert (last.rows, last.unanswered) == (150, delay)
    assert last.running["rmse"] == pytest.approx(rmse(y[delay:], said))
    model.partial_fit(X[-delay:], y[-delay:])
    assert same_state(model, looped)


def test_late_labels_of_our_classifier_have_probabilities(labels):
    now, late = (run(SGBClassifier(**SMALL), labels, delay=delay).last for delay in (0, 100))
    assert late.unanswered == 100
    assert 0.5 < late.running["accuracy"] < now.running["accuracy"] + 0.05
    assert math.isfinite(late.running["log_loss"])


# Rows of any kind


def kinds_of_rows(X, y):
    frame = pd.DataFrame(X, columns=NAMES).assign(y=y)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    records = frame.to_dict("records")
    pairs = [({name: row[name] for name in NAMES}, row["y"]) for row in records]
    return {
        "pandas": (frame, "y"),
        "polars": (pl.from_pandas(frame), "y"),
        "arrow": (table, "y"),
        "reader": (table.to_reader(max_chunksize=90), "y"),
        "tables": (iter(table.slice(start, 77) for start in range(0, len(table), 77)), "y"),
        "batches": (table.to_batches(max_chunksize=50), "y"),
        "frames": ([frame[:100], frame[100:]], "y"),
        "source": (MemorySource(table), "y"),
        "a source's batches": (MemorySource(table).read(n_rows=64), "y"),
        "pairs": (iter(pairs), None),
        "dicts": (iter(records), "y"),
        "frame and series": ((frame[NAMES], frame["y"]), None),
        "lists": ((X.tolist(), y.tolist()), None),
        "chunks": ([(X[:300], y[:300]), (X[300:], y[300:])], None),
    }


KINDS = list(kinds_of_rows(np.zeros((1, 4)), np.zeros(1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [lambda: SGBRegressor(**SMALL), lambda: SGDRegressor(random_state=0), linear_model.LinearRegression],
    ids=["ours", "scikit-learn", "river"],
)
def test_rows_of_every_kind_give_the_same_scores(numbers, kind, make):
    X, y = numbers[0][:350], numbers[1][:350]
    rows, target = kinds_of_rows(X, y)[kind]
    expected = run(make(), (X, y), metrics=["rmse"], every=100)
    found = run(make(), rows, target, metrics=["rmse"], every=100)
    for one, other in zip(expected, found, strict=True):
        assert one.running == pytest.approx(other.running)


def test_text_labels_come_from_every_kind_of_frame(labels):
    X, y = labels
    expected = run(SGBClassifier(**SMALL), (X, y)).last.running
    for kind in ("pandas", "polars", "arrow", "tables", "source", "dicts"):
        rows, target = kinds_of_rows(X, y)[kind]
        assert run(SGBClassifier(**SMALL), rows, target).last.running == pytest.approx(expected)


def test_several_targets_are_several_outputs(numbers):
    X, y = numbers
    both = np.stack([y, -2 * y], axis=1)
    frame = pd.DataFrame(X, columns=NAMES).assign(y=both[:, 0], z=both[:, 1])
    said = SGBRegressor(**SMALL).learn(X, both)
    last = run(SGBRegressor(**SMALL), frame, ["y", "z"]).last
    assert last.running["rmse"] == pytest.approx(rmse(both, said))


# Reports


def test_reports_come_while_the_stream_goes_on(numbers):
    def endless():
        while True:
            yield from ((dict(enumerate(x)), y) for x, y in zip(*numbers, strict=True))

    reports = prequential(SGBRegressor(**SMALL), endless(), chunk=10, every=50)
    assert [next(reports).rows for _ in range(3)] == [50, 100, 150]


def test_events_come_once_and_in_order(labels):
    X, y = labels
    y = np.where(np.arange(700) < 400, "low", y)
    model = SGBClassifier(**SMALL)
    history = run(model, (X, y), every=100, chunk=256)
    assert history.events == model.events_
    kinds = [event.kind for event in history[4].events]
    assert kinds.count("new class") == 2  # rows 400 to 499
    more = np.append(y, "new")
    again = run(model, (np.append(X, X[:1], axis=0), more), every=100)
    assert history.events + again.events == model.events_
    assert again.events[-1].kind == "new class"
    marks = again.plot().axes[0].collections
    assert 700 in [x for mark in marks for x, _ in mark.get_offsets()]  # counted from the start of this run


def test_time_counts_learning_only(numbers):
    history = run(SGBRegressor(**SMALL), numbers, every=300)
    seconds = [report.seconds for report in history]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    for before, after in zip([0.0, *seconds], history, strict=False):
        n = 300 if after.rows % 300 == 0 else after.rows % 300
        assert after.rows_per_second == pytest.approx(n / (after.seconds - before))


def test_a_table_has_a_line_a_report(numbers):
    history = History(prequential(SGBRegressor(**SMALL), numbers, every=300))
    table = history.table()
    assert table.num_rows == len(history) == 3
    assert table["rows"].to_pylist() == [300, 600, 700]
    assert table["rmse_windowed"].to_pylist() == [report.windowed["rmse"] for report in history]
    assert "rmse" in str(history[0])


def test_the_picture_has_two_lines_and_a_mark_for_every_kind_of_event(labels):
    X, y = labels
    y = np.where(np.arange(700) < 400, "low", y)
    history = run(SGBClassifier(**SMALL), (X, y), every=100)
    axes = history.plot("kappa").axes[0]
    assert len(axes.lines) == 2
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [report.windowed["kappa"] for report in history])
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), [report.running["kappa"] for report in history])
    kinds = {event.kind for event in history.events}
    assert len(axes.collections) == len(kinds) >= 1
    with pytest.raises(ValueError, match="metric is 'rmse', expected one of"):
        history.plot("rmse")


class Bias(MeanMetric):
    name = "bias"
    need = "number"

    def _encode(self, y, prediction):
        return (prediction - y)[:, None]


def test_a_metric_of_ones_own_is_counted_too(numbers):
    X, y = numbers
    said = SGBRegressor(**SMALL).learn(X, y)
    last = run(SGBRegressor(**SMALL), (X, y), metrics=["mae", Bias], window=100).last
    assert last.running["bias"] == pytest.approx((said - y).mean())
    assert last.windowed["bias"] == pytest.approx((said - y)[-100:].mean())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_probabilities_that_are_nan_are_no_answer(labels):
    X, y = labels
    X, y = X[:100], y[:100]
    model, n_nan = GaussianNB(), 0
    for t in range(len(y)):
        n_nan += t > 0 and bool(np.isnan(model.predict_proba(X[t : t + 1])).any())
        model.partial_fit(X[t : t + 1], y[t : t + 1], classes=np.unique(y))
    last = run(GaussianNB(), (X, y)).last  # row by row
    assert n_nan > 0
    assert last.unanswered == n_nan + 1
    assert math.isfinite(last.running["log_loss"])


def test_a_number_that_is_nan_spoils_the_metric_and_leaves_the_window(numbers):
    class Broken(Echo):
        def learn(self, X, y):
            return np.where(X[:, 0] == 0.0, np.nan, y)

    X = np.arange(300.0)[:, None]
    history = run(Broken(), (X, X[:, 0]), task="regression", metrics=["mae"], every=100, window=100)
    assert all(math.isnan(report.running["mae"]) for report in history)
    assert [math.isnan(report.windowed["mae"]) for report in history] == [True, False, False]


# What is refused


def test_an_empty_stream_is_refused(numbers):
    for rows, target in [((numbers[0][:0], numbers[1][:0]), None), (iter([]), None)]:
        with pytest.raises(ValueError, match="rows is empty, expected at least one row"):
            run(SGBRegressor(), rows, target)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "tables", "dicts", "source"])
def test_a_target_that_is_not_there_is_named_with_those_there_are(numbers, kind):
    rows, _ = kinds_of_rows(*numbers)[kind]
    with pytest.raises(ValueError, match=r"target is 'price', .* \['a', 'b', 'c', 'd', 'y'\]"):
        run(SGBRegressor(), rows, "price")
    rows, _ = kinds_of_rows(*numbers)[kind]
    with pytest.raises(ValueError, match="target is None, expected the name of the column"):
        run(SGBRegressor(), rows)


def test_a_model_that_cannot_learn_is_refused_at_once():
    with pytest.raises(TypeError, match="model is a dict, expected learn and predict"):
        prequential({}, ([], []))


@pytest.mark.parametrize("delay", [0, 3])
def test_a_missing_target_is_refused_before_its_chunk_is_learned(numbers, delay):
    X, y = numbers[0], numbers[1].copy()
    y[500] = np.nan
    looped, alone = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    with pytest.raises(ValueError, match="the target of row 500 is nan, expected a value in every row"):
        run(looped, (X, y), chunk=100, delay=delay)
    alone.partial_fit(X[: 500 - delay], y[: 500 - delay])
    assert same_state(looped, alone)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_label_is_refused(missing):
    rows = [({"a": 1.0}, "x"), ({"a": 2.0}, missing)]
    with pytest.raises(ValueError, match="the target of row 1 is"):
        run(SGBClassifier(), rows)


def test_classes_must_be_told_where_rows_are_streamed(labels):
    X, y = labels
    chunks = [(X[:350], y[:350]), (X[350:], y[350:])]
    with pytest.raises(ValueError, match=r"GaussianNB must be told all classes .* Pass classes="):
        run(GaussianNB(), chunks, chunk=50)
    told = run(GaussianNB(), chunks, chunk=50, classes=["high", "low", "mid"]).last
    assert told.running == pytest.approx(run(GaussianNB(), (X, y), chunk=50).last.running)


def test_anything_with_learn_and_predict_will_do():
    y = np.array([0, 0, 1, 1, 1, 0])
    with pytest.raises(ValueError, match="task is 'auto', but neither Echo nor targets such as"):
        run(Echo(), (np.zeros((6, 1)), y))
    last = run(Echo(), (np.zeros((6, 1)), y), task="classification", chunk=4).last
    assert last.running["accuracy"] == pytest.approx(4 / 6)
    assert run(Echo(), (np.zeros((6, 1)), y), task="regression", chunk=2).last.running["mae"] == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every is 0, expected a whole number of at least 1"),
        ({"delay": -1}, "delay is -1, expected a whole number of at least 0"),
        ({"chunk": 2.5}, "chunk is 2.5"),
        ({"task": "ranking"}, "task is 'ranking'"),
        ({"metrics": ["speed"]}, "metric 'speed' is unknown, expected one of"),
        ({"metrics": []}, "expected one or more, each once"),
        ({"metrics": ["mae", MAE]}, "expected one or more, each once"),
    ],
)
def test_options_are_checked_before_anything_runs(numbers, options, words):
    with pytest.raises(ValueError, match=words):
        prequential(SGBRegressor(), numbers, **options)


def test_metrics_must_fit_the_task_and_the_model(numbers, labels):
    with pytest.raises(ValueError, match="metric 'accuracy' is not one for regression"):
        run(SGBRegressor(), numbers, metrics=[Accuracy])
    with pytest.raises(ValueError, match="metric 'log_loss' needs probabilities, and SGDClassifier gives none"):
        run(SGDClassifier(), labels, metrics=["log_loss"])
    with pytest.raises(ValueError, match="is not a number"):
        run(SGBRegressor(), labels)


def test_rows_that_are_none_are_refused(numbers):
    X, y = numbers
    for rows in (X, "rows.csv", 7):
        with pytest.raises(TypeError, match=r"rows is a .*, expected"):
            run(SGBRegressor(), rows)
    with pytest.raises(TypeError, match="rows brings a int"):
        run(SGBRegressor(), [1, 2])
    with pytest.raises(ValueError, match="X has 700 rows and y has 699"):
        run(SGBRegressor(), (X, y[1:]))
    with pytest.raises(ValueError, match="target is 'y', but rows is"):
        run(SGBRegressor(), (X, y), "y")


def test_a_history_without_reports_has_no_last():
    with pytest.raises(ValueError, match="there is no report yet"):
        _ = History([]).last
    single = Report(1, {"mae": 1.0}, {"mae": 1.0}, 10, 0.1, 10.0)
    assert len(History([single]).plot().axes[0].lines) == 2
