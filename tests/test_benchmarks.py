import argparse
import datetime
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.image import imread
from rich.console import Console

from benchmarks import compare, peers, pictures, prequential, report, run, scores, streams
from benchmarks.peers import Peer
from benchmarks.prequential import Job
from benchmarks.scores import BLOCK
from streamboost import SGBClassifier, SGBRegressor, datasets


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)


# Streams.


@pytest.mark.parametrize("name", streams.GENERATED)
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name, tmp_path):
    first = streams.load(name, 60, 1, tmp_path / "a")
    again = streams.load(name, 60, 1, tmp_path / "b")
    kept = streams.load(name, 60, 1, tmp_path / "a")
    other = streams.load(name, 60, 2, tmp_path / "a")
    assert np.array_equal(first.X, again.X)
    assert np.array_equal(first.y, again.y)
    assert first.digest == again.digest == kept.digest != other.digest
    assert first.X.shape[0] == len(first.y) == 60
    assert (first.n_classes > 1) == (first.task == "classification")


def test_a_kept_stream_is_read_and_not_made_again(tmp_path, monkeypatch):
    made = streams.load("nl50", 40, 1, tmp_path)
    monkeypatch.setitem(streams.GENERATED, "nl50", ("regression", None))
    assert streams.load("nl50", 40, 1, tmp_path).digest == made.digest


def test_the_columns_of_friedman_change_their_parts_in_the_middle(tmp_path):
    stream = streams.load("friedman_drift", 4000, 1, tmp_path)

    def noise(x, y):
        return y - (10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4])

    assert noise(stream.X[:2000].T, stream.y[:2000]).std() == pytest.approx(1, abs=0.1)
    assert noise(stream.X[2000:, ::-1].T, stream.y[2000:]).std() == pytest.approx(1, abs=0.1)
    assert noise(stream.X[2000:].T, stream.y[2000:]).std() > 4


def test_the_concepts_of_led_drift_differ_from_quarter_to_quarter(tmp_path):
    stream = streams.load("led_drift", 4000, 1, tmp_path)
    knows = []  # which columns have to do with the class, by quarter
    for X, y in zip(np.split(stream.X, 4), np.split(stream.y, 4), strict=True):
        spread = np.array([[X[y == k, j].mean() for k in range(10)] for j in range(24)]).std(axis=1)
        knows.append(tuple(np.sort(np.argsort(spread)[-7:])))
    assert len(set(knows)) == 4


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Files with a few rows of every kind of column."""
    n = 20
    count = np.arange(n)
    bike = {"hr": count % 24, "casual": count, "registered": 2 * count, "target": 3 * count}
    metro = {
        "weather": [["Rain", "Clear", "Snow"][i % 3] for i in range(n)],
        "when": [datetime.datetime(1970, 1, 2) + datetime.timedelta(hours=i) for i in range(n)],
        "target": count * 1.5,
    }
    covtype = {"a": count * 0.5, "target": 2 + 3 * (count % 3)}
    for name, columns in {"bike_sharing_hourly": bike, "metro_traffic": metro, "covtype": covtype}.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=7)
    monkeypatch.setenv("STREAMBOOST_DATA", str(tmp_path))
    return tmp_path


def test_bike_sharing_comes_without_the_columns_that_add_up_to_its_target(data_folder):
    stream = streams.load("bike_sharing", 10, 1)
    assert stream.X.shape == (10, 1)
    assert np.array_equal(stream.X[:, 0], np.arange(10))
    assert np.array_equal(stream.y, 3.0 * np.arange(10))
    names = pq.read_schema(data_folder / "bike_sharing_hourly.parquet").names
    assert {"casual", "registered"} < set(names)  # the file does have them


def test_text_becomes_codes_of_the_alphabet_and_dates_become_seconds(data_folder):
    stream = streams.load("metro_traffic", 10_000, 1)
    assert len(stream.y) == 20  # fewer than asked for: all there are
    assert stream.X[:4, 0].tolist() == [1, 0, 2, 1]  # Clear, Rain, Snow
    assert stream.X[:3, 1].tolist() == [86_400, 90_000, 93_600]


def test_classes_become_codes_from_zero_on(data_folder):
    stream = streams.load("covtype", 5, 1)
    assert (stream.task, stream.n_classes, stream.y.tolist()) == ("classification", 3, [0, 1, 2, 0, 1])


def test_electricity_and_abalone_need_no_folder():
    for name, data in {"electricity": datasets.load_electricity(), "abalone": datasets.load_abalone()}.items():
        stream = streams.load(name, 1000, 1)
        assert np.array_equal(stream.X, data.X[:1000])
        assert np.array_equal(stream.y, data.y[:1000])


def test_a_stream_without_its_file_says_what_to_do():
    with pytest.raises(streams.MissingData, match=r"needs covtype.parquet, but STREAMBOOST_DATA is not set. Set"):
        streams.load("covtype", 10, 1)
    with pytest.raises(ValueError, match="no stream 'friedmann', expected one of friedman"):
        streams.load("friedmann", 10, 1)


# Scores.


@given(
    arrays(float, st.integers(1, 2300), elements=st.floats(-100, 100, width=16)),
    st.integers(0, 2**32 - 1),
)
def test_scores_up_to_the_end_of_each_block_follow_from_the_blocks(y, seed):
    answers = np.random.default_rng(seed).normal(0, 50, len(y))
    course = scores.cumulative("rmse", scores.block_scores("regression", y, answers)["rmse"], len(y))
    ends = [*range(BLOCK, len(y), BLOCK), len(y)]
    assert course == pytest.approx([np.sqrt(np.mean((answers - y)[:end] ** 2)) for end in ends])

    labels = (y > 0).astype(int)
    weights = np.abs(np.column_stack([answers, answers[::-1]])) + 0.01
    weights /= weights.sum(axis=1, keepdims=True)
    blocks = scores.block_scores("classification", labels, weights)
    is_right = weights.argmax(axis=1) == labels
    surprise = -np.log(weights[np.arange(len(y)), labels])
    for name, values in {"accuracy": is_right, "log_loss": surprise}.items():
        assert scores.cumulative(name, blocks[name], len(y)) == pytest.approx([values[:end].mean() for end in ends])


def test_no_answer_is_zero_and_no_opinion_is_every_class_alike():
    numbers, n_bad = scores.tidy(np.array([1.0, np.nan, np.inf]))
    assert numbers.tolist() == [1, 0, 0]
    assert n_bad == 2
    weights, n_bad = scores.tidy(np.array([[3.0, 1.0], [0.0, 0.0], [np.nan, 2.0]]))
    assert weights.tolist() == [[0.75, 0.25], [0.5, 0.5], [0, 1]]
    assert n_bad == 1


# Learners.


def test_streamboost_in_chunks_says_what_it_says_in_one_call(tmp_path):
    stream = streams.load("friedman", 1200, 1, tmp_path)
    learner = peers.PEERS["streamboost"].make(stream, 1)
    chunks = [learner.learn(stream.X[s : s + 500], stream.y[s : s + 500]) for s in range(0, 1200, 500)]
    assert np.array_equal(np.concatenate(chunks), SGBRegressor(random_state=1).learn(stream.X, stream.y))


def test_streamboost_classes_keep_their_places_when_they_come_late():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = (X[:, 0] > 0).astype(int) + 1
    y[600:] = np.where(X[600:, 1] > 1, 0, y[600:])  # class 0 is met last
    learner = peers.PEERS["streamboost"].make(streams.Stream("late", X, y, "classification"), 1)
    answers = np.concatenate([learner.learn(X[s : s + 500], y[s : s + 500]) for s in (0, 500)])
    one_by_one = SGBClassifier(random_state=1)
    newcomers = set(np.unique(y, return_index=True)[1].tolist())  # rows on which nothing is asked: they bring a class
    for i, (x, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        expected = one_by_one.predict_proba_one(dict(enumerate(x)))
        if i not in newcomers:
            assert answers[i] == pytest.approx([expected.get(k, 0.0) for k in range(3)], abs=1e-9)
        one_by_one.learn_one(dict(enumerate(x)), label)


def test_a_river_model_scores_as_in_rivers_own_evaluation(tmp_path):
    river = pytest.importorskip("river")
    from river import evaluate, linear_model, metrics, preprocessing, tree

    job = Job("friedman", "river_ht", 700, 1, cache=str(tmp_path))
    stream = streams.load("friedman", 700, 1, tmp_path)
    rows = [({f"x{j}": v for j, v in enumerate(x)}, y) for x, y in zip(stream.X.tolist(), stream.y, strict=True)]
    theirs = evaluate.progressive_val_score(rows, tree.HoeffdingTreeRegressor(), metrics.RMSE()).get()
    record = prequential.run(job)
    assert record["score"]["rmse"] == pytest.approx(theirs, rel=1e-4)
    assert (record["package"], record["version"]) == ("river", river.__version__)

    stream = streams.load("electricity", 700, 1)
    rows = [({f"x{j}": v for j, v in enumerate(x)}, bool(y)) for x, y in zip(stream.X.tolist(), stream.y, strict=True)]
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    theirs = evaluate.progressive_val_score(rows, model, metrics.LogLoss()).get()
    record = prequential.run(Job("electricity", "river_linear", 700, 1))
    assert record["score"]["log_loss"] == pytest.approx(theirs, rel=1e-3)


def test_lightgbm_answers_with_what_it_learned_at_its_last_training(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    stream = streams.load("friedman", 450, 1, tmp_path)
    learner = peers.PEERS["lightgbm"].make(stream, 1)
    answers = np.concatenate([learner.learn(stream.X[s : s + 50], stream.y[s : s + 50]) for s in range(0, 450, 50)])
    assert answers[:3].tolist() == pytest.approx([0, stream.y[0], stream.y[:2].mean()])
    for start, end in ((100, 200), (200, 400), (400, 450)):
        model = lightgbm.LGBMRegressor(n_estimators=100, n_jobs=1, random_state=1, verbose=-1)
        model.fit(stream.X[:start], stream.y[:start])
        assert np.array_equal(answers[start:end], model.predict(stream.X[start:end]))


class Toy:
    """Says 0, remembers what it was shown, and fails at a row if told to."""

    chunk = 50

    def __init__(self, stream, seed, fails_at=np.inf):
        self.shown, self.fails_at = [], fails_at

    def learn(self, X, y):
        if sum(map(len, self.shown)) >= self.fails_at:
            raise ZeroDivisionError("a leaf without rows")
        self.shown.append(X)
        return np.zeros(len(y))


@pytest.fixture
def toys(monkeypatch):
    """Two learners that keep what they were shown."""
    made = {}

    def maker(name, **options):
        def make(stream, seed):
            made[name] = Toy(stream, seed, **options)
            return made[name]

        return make

    for name, options in {"toy": {}, "fragile": {"fails_at": 600}}.items():
        monkeypatch.setitem(peers.PEERS, name, Peer(name, "numpy", peers.BOTH, maker(name, **options)))
    return made


# Runs.


def test_everyone_sees_the_same_rows(toys, tmp_path):
    first = prequential.run(Job("nl50", "toy", 700, 1, cache=str(tmp_path)))
    stream = streams.load("nl50", 700, 1, tmp_path)
    assert np.array_equal(np.concatenate(toys["toy"].shown), stream.X)
    second = prequential.run(Job("nl50", "river_linear", 700, 1, cache=str(tmp_path)))
    assert first["digest"] == second["digest"] == stream.digest
    assert first["score"]["rmse"] == pytest.approx(np.sqrt(np.mean(stream.y**2)), rel=1e-4)


def test_a_run_at_its_time_limit_records_how_far_it_got(toys, tmp_path):
    record = prequential.run(Job("nl50", "toy", 700, 1, time_limit=0, cache=str(tmp_path)))
    assert (record["done"], record["n"], record["stopped"]) == (50, 700, "time limit")
    y = streams.load("nl50", 700, 1, tmp_path).y[:50]
    assert record["score"]["rmse"] == pytest.approx(np.sqrt(np.mean(y**2)), rel=1e-4)


def test_a_learner_that_fails_keeps_its_score_until_then(toys, tmp_path):
    record = prequential.run(Job("nl50", "fragile", 700, 1, cache=str(tmp_path)))
    assert (record["done"], record["stopped"]) == (600, "ZeroDivisionError: a leaf without rows")
    assert len(record["blocks"]["rmse"]) == 2


def quick(tmp_path, *more):
    return ["--quick", "--results", str(tmp_path / "r.jsonl"), "--cache", str(tmp_path / "cache"), *more]


def planned(arguments):
    said = Console(record=True, file=io.StringIO(), width=500)
    jobs = list(run.plan(run.parse(arguments), said))
    return jobs, said.export_text()


def test_a_finished_run_is_not_run_again_unless_the_package_changed(tmp_path, monkeypatch):
    assert run.main(quick(tmp_path)) == 0
    (record,) = run.read_results(tmp_path / "r.jsonl")
    assert (record["stream"], record["model"], record["done"], record["stopped"]) == (
        "friedman",
        "streamboost",
        1000,
        None,
    )
    X, y, *_ = datasets.friedman(1000, noise=1.0, seed=1)
    error = SGBRegressor(random_state=1).learn(X, y) - y
    assert record["score"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert record["cpu_s"] > 0

    assert run.main(quick(tmp_path)) == 0
    assert len(run.read_results(tmp_path / "r.jsonl")) == 1
    assert len(planned(quick(tmp_path, "--seed", "2"))[0]) == 1
    monkeypatch.setattr(prequential, "source_digest", lambda: "changed")
    assert len(planned(quick(tmp_path))[0]) == 1


def test_variants_are_runs_of_their_own(tmp_path):
    arguments = ["--models", "few", "--variant", 'few={"n_estimators": 3}', "--streams", "friedman", "--rows", "300"]
    arguments += ["--results", str(tmp_path / "r.jsonl"), "--cache", str(tmp_path)]
    ((job,), _) = planned(arguments)
    record = prequential.run(job)
    assert (record["model"], record["settings"]) == ("few", {"n_estimators": 3})
    run.append(tmp_path / "r.jsonl", record)
    assert planned(arguments)[0] == []
    arguments[3] = 'few={"n_estimators": 4}'
    assert len(planned(arguments)[0]) == 1
    with pytest.raises(argparse.ArgumentTypeError, match="expected a new name and a JSON object"):
        run.variant("few=3")


def test_a_run_that_dies_is_told_and_not_recorded(tmp_path, capsys):
    arguments = ["--models", "odd", "--variant", 'odd={"oddness": [1]}', "--streams", "abalone", "--rows", "50"]
    assert run.main([*arguments, "--results", str(tmp_path / "r.jsonl"), "--cache", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "abalone · odd ended without a result" in said
    assert "oddness" in said
    assert not (tmp_path / "r.jsonl").exists()


def test_what_is_not_there_is_skipped_with_a_word(tmp_path, monkeypatch):
    monkeypatch.setitem(peers.PEERS, "absent", Peer("Absent", "no_such_package", peers.BOTH, Toy))
    arguments = ["--models", "absent", "river_linear", "--streams", "covtype", "abalone", "--rows", "50"]
    jobs, said = planned([*arguments, "--results", str(tmp_path / "r.jsonl"), "--cache", str(tmp_path)])
    assert [(job.stream, job.model) for job in jobs] == [("abalone", "river_linear")]
    assert "skipped: stream covtype needs covtype.parquet, but STREAMBOOST_DATA is not set." in said
    assert "skipped: Absent needs no_such_package, which is not installed." in said


def test_a_model_nobody_knows_is_refused(capsys):
    with pytest.raises(SystemExit):
        run.parse(["--models", "river_htt"])
    assert "there is no model 'river_htt', expected one of streamboost, river_ht" in capsys.readouterr().err


def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path):
    file = tmp_path / "r.jsonl"
    run.append(file, {"a": 1})
    with file.open("a") as results:
        results.write('{"a": 2, "b')
    run.append(file, {"a": 3})
    assert run.read_results(file) == [{"a": 1}, {"a": 3}]


# The report.


def made_up(stream, model, blocks, done=None, n=2000, digest="same", cpu=1.0):
    """A record with a score a block."""
    is_regression = streams.GENERATED[stream][0] == "regression"
    kind = "rmse" if is_regression else "accuracy"
    done = done or BLOCK * len(blocks)
    package = {"streamboost": "streamboost", "lightgbm": "lightgbm"}.get(model, "river")
    return {
        "stream": stream,
        "model": model,
        "task": "regression" if is_regression else "classification",
        "rows": 2000,
        "seed": 1,
        "digest": digest,
        "n": n,
        "done": done,
        "stopped": None if done == n else "time limit",
        "score": {kind: 0.0},  # what counts are the blocks
        "blocks": {kind: blocks},
        "cpu_s": cpu,
        "wall_s": cpu,
        "rss_growth_mb": 1.0,
        "package": package,
        "version": "1.0",
        "python": "3.11",
        "cpu": "a processor",
    }


def test_a_stopped_run_is_compared_over_the_rows_both_have():
    ours = made_up("friedman", "streamboost", [4.0, 2.0, 1.0, 1.0])
    theirs = made_up("friedman", "river_arf", [3.0, 2.0, 9.0], done=1250)
    assert compare.shared_rows(ours, theirs) == 1000
    naive = 1 - np.sqrt((4.0**2 + 2.0**2) / 2) / np.sqrt((3.0**2 + 2.0**2) / 2)
    assert compare.lead(ours, theirs) == pytest.approx(naive)
    assert report.against(ours, theirs) == "**behind** by 24.0 % over the first 1,000 rows"
    finished = made_up("friedman", "river_arf", [3.0, 2.0, 9.0, 9.0])
    assert report.against(ours, finished).startswith("**ahead**")


def test_whoever_got_through_less_than_half_is_not_ranked():
    runs = {
        "streamboost": made_up("rbf", "streamboost", [0.5, 0.5, 0.5, 0.5]),
        "river_srp": made_up("rbf", "river_srp", [0.9], done=700),
        "river_arf": made_up("rbf", "river_arf", [0.6, 0.6], done=1000),
        "river_ht": made_up("rbf", "river_ht", [0.55, 0.55, 0.55, 0.55]),
        "lightgbm": made_up("rbf", "lightgbm", [0.99] * 4),
    }
    assert [record["model"] for record in compare.ranked_peers(runs)] == ["river_arf", "river_ht"]


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [(1.0, 1.004, "tie"), (1.004, 1.0, "tie"), (1.0, 1.006, "ahead"), (1.006, 1.0, "behind"), (2.0, 2.0, "tie")],
)
def test_half_a_percent_is_a_tie(ours, theirs, word):
    one, other = made_up("friedman", "streamboost", [ours] * 4), made_up("friedman", "river_ht", [theirs] * 4)
    assert compare.verdict(compare.lead(one, other)) == word
    # of accuracies the larger one is better
    one, other = made_up("rbf", "streamboost", [theirs / 3] * 4), made_up("rbf", "river_ht", [ours / 3] * 4)
    assert compare.verdict(compare.lead(one, other)) == word


@pytest.fixture
def results(tmp_path):
    """Three streams: ahead, a tie, behind; an old run, and one that saw other rows."""
    records = [
        made_up("friedman", "streamboost", [9.0] * 4),  # of an older source: the last one counts
        made_up("friedman", "streamboost", [1.0] * 4, cpu=2.0),
        made_up("friedman", "river_ht", [2.0] * 4, cpu=1.0),
        made_up("friedman", "river_arf", [1.25] * 4, cpu=8.0),
        made_up("friedman", "lightgbm", [0.5] * 4),
        made_up("rbf", "streamboost", [0.8] * 4, cpu=2.0),
        made_up("rbf", "river_ht", [0.801] * 4, cpu=4.0),
        made_up("sea_drift", "river_srp", [0.99] * 4, digest="other"),
        made_up("sea_drift", "streamboost", [0.8] * 4, cpu=2.0),
        made_up("sea_drift", "river_ht", [0.9] * 4, cpu=1.0),
    ]
    file = tmp_path / "r.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_the_report_says_who_is_ahead_and_at_what_cost(results, tmp_path, capsys):
    report.main([str(results), "--rows", "2000", "--output", str(tmp_path / "out")])
    printed = capsys.readouterr()
    page = (tmp_path / "out" / "report.md").read_text()
    assert printed.out.strip() in page
    lines = page.splitlines()
    assert (
        "| friedman | RMSE | 1.000 | 1.250 | River ARF(10) | 0.5000 | **ahead** by 20.0 % | **behind** by 100.0 % |"
        in lines
    )
    assert "| rbf | accuracy | 0.8000 | 0.8010 | River Hoeffding tree | – | **tie** | – |" in lines
    assert "| sea_drift | accuracy | 0.8000 | 0.9000 | River Hoeffding tree | – | **behind** by 11.1 % | – |" in lines
    assert "ahead on 1, tie on 1, behind on 1 of 3 streams" in page
    assert "| River Hoeffding tree | 500 | 0.5 | 0.5 to 2 | 1 | 0 |" in lines  # CPU of 1/2000 s a row; over 2, 2, 2
    assert "left out: river_srp saw other rows of sea_drift." in printed.err
    assert "SRP" not in page


def test_the_report_draws_both_pictures(results, tmp_path):
    report.main([str(results), "--rows", "2000", "--output", str(tmp_path / "out")])
    for name in ("error_over_rows.png", "error_against_cost.png"):
        picture = imread(tmp_path / "out" / name)
        assert min(picture.shape[:2]) > 300
        assert picture[..., :3].std() > 0.01  # not blank


def test_a_point_of_the_picture_is_the_error_of_the_last_blocks():
    rows, errors = pictures.recent_error(made_up("friedman", "streamboost", [4.0, 3.0, 2.0, 1.0], done=1700))
    assert rows.tolist() == [500, 1000, 1500, 1700]
    naive = np.sqrt((500 * 9 + 500 * 4 + 200 * 1) / 1200)
    assert errors[-1] == pytest.approx(naive)


def test_a_report_without_runs_says_what_to_do(tmp_path, capsys):
    with pytest.raises(SystemExit):
        report.main([str(tmp_path / "none.jsonl")])
    assert "no runs of 10000 rows and seed 1 found. Run: python -m benchmarks.run" in capsys.readouterr().err
