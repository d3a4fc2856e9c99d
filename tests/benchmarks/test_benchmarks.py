"""Every benchmark is run once, small; and what its published numbers rest on is held by equalities."""

import importlib
import importlib.util
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import benchmarks
import streamboost
from benchmarks import (
    bench_ablation,
    bench_drift,
    bench_neural,
    bench_partitions,
    bench_serve,
    bench_throughput,
    compare,
    peers,
    pictures,
    prequential,
    report,
    run,
    scores,
    streams,
)
from benchmarks.prequential import Job
from benchmarks.scores import BLOCK
from streamboost import SGBClassifier, SGBRegressor, datasets

FOLDER = Path(benchmarks.__file__).parent
SCRIPTS = sorted(file.stem for file in FOLDER.glob("bench_*.py"))
SMALLER = {  # than --quick alone
    "bench_ablation": ["--variants", "one memory", "chunks of 16"],
    "bench_flat": ["--rows", "100000"],
    "bench_run": ["--rows", "100000"],
    "bench_throughput": ["--models", "river_ht"],
}
NEEDS = {"bench_engines": "pyspark"} | dict.fromkeys(["bench_scale", "bench_tree_kernels", "bench_votes"], "lightgbm")
KEPT_AS = {"bench_run": "run_beside_bare"}


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Two real streams in small: covtype, and bike sharing with the columns that give its target away."""
    rng = np.random.default_rng(0)
    X, count = rng.normal(size=(1200, 54)), np.arange(20)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-1.5, -0.8, -0.3, 0.3, 0.8, 1.5]) + 1  # seven classes, from 1 on
    bike = {"hr": count % 24, "casual": count, "registered": 2 * count, "target": 3 * count}
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(54)} | {"target": y}), tmp_path / "covtype.parquet")
    pq.write_table(pa.table(bike), tmp_path / "bike_sharing_hourly.parquet", row_group_size=7)
    monkeypatch.setenv("STREAMBOOST_DATA", str(tmp_path))
    return X, y - 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_runs_and_keeps_figures_like_the_published_ones(
    name, tmp_path, monkeypatch, capsys, data_folder
):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setattr(bench_neural, "find_spec", lambda name: None)  # without torch: heavy tests have it
    main = importlib.import_module(f"benchmarks.{name}").main
    assert main(["--quick", "--results", str(tmp_path), *SMALLER.get(name, [])]) == 0
    assert capsys.readouterr().out.startswith("| ")  # a table
    file = KEPT_AS.get(name, name.removeprefix("bench_")) + ".json"
    record, published = json.loads((tmp_path / file).read_text()), FOLDER / "results" / file
    assert record["versions"]["source"] == prequential.source_digest()
    assert record["figures"]
    if published.exists():
        assert record["figures"].keys() <= json.loads(published.read_text())["figures"].keys()
    CHECKS.get(name, lambda figures: None)(record["figures"])


def check_accuracy(figures):
    X, y, *_ = datasets.friedman(1000, seed=1)
    ours = np.sqrt(np.mean((SGBRegressor(random_state=1).learn(X, y) - y) ** 2))
    found = {one["model"]: one["values"] for one in figures["figures"] if one["measure"].startswith("Friedman, RMSE")}
    assert found["streamboost"] == pytest.approx([ours], rel=1e-4)


def check_drift(figures):
    [abrupt] = figures["abrupt"]
    X, y, *_ = datasets.friedman(4000, drift=2000, seed=1)
    young = SGBRegressor(random_state=1).learn(X[2000:], y[2000:])
    assert abrupt["from the change on"] == pytest.approx(np.sqrt(np.mean((young[1000:] - y[3000:]) ** 2)), rel=1e-4)
    assert abrupt["with succession"] <= 1.02 * abrupt["without succession"]


def check_net_readout(figures):
    errors = {(stream, n, way): error for stream, n, way, error in figures["errors"]}
    for stream in {stream for stream, *_ in errors}:
        assert errors[stream, 32, "vote"] <= errors[stream, 32, "yᴺ"]


def check_serve(figures):
    assert figures["n_errors"] == 0
    assert bench_serve.percentiles((np.arange(1, 1001) / 1000).tolist())["p50"] == pytest.approx(500.5)
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"] <= figures["latency_ms"]["max"]


CHECKS = {
    "bench_accuracy": check_accuracy,
    "bench_drift": check_drift,
    "bench_net_readout": check_net_readout,
    "bench_serve": check_serve,
}


# Streams


@pytest.mark.parametrize("name", streams.GENERATED)
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name, tmp_path):
    first = streams.load(name, 60, 1, tmp_path / "a")
    again = streams.load(name, 60, 1, tmp_path / "b")
    kept = streams.load(name, 60, 1, tmp_path / "a")
    other = streams.load(name, 60, 2, tmp_path / "a")
    assert np.array_equal(first.X, again.X)
    assert first.digest == again.digest == kept.digest != other.digest
    assert (first.n_classes > 1) == (first.task == "classification")


def test_real_streams_come_without_what_adds_up_to_the_target_and_with_classes_from_zero_on(data_folder):
    bikes, (X, y) = streams.load("bike_sharing", 10, 1), data_folder
    assert np.array_equal(bikes.X, np.arange(10)[:, None])
    assert np.array_equal(bikes.y, 3.0 * np.arange(10))
    covtype = streams.load("covtype", 1000, 1)
    assert np.array_equal(covtype.X, X[:1000])
    assert np.array_equal(covtype.y, y[:1000])
    for name, data in {"electricity": datasets.load_electricity(), "abalone": datasets.load_abalone()}.items():
        assert np.array_equal(streams.load(name, 1000, 1).X, data.X[:1000])


def test_a_stream_without_its_file_says_what_to_do():
    with pytest.raises(streams.MissingData, match=r"needs covtype.parquet, but STREAMBOOST_DATA is not set. Set"):
        streams.load("covtype", 10, 1)


# Scores and learners


@given(arrays(float, st.integers(1, 2300), elements=st.floats(-100, 100, width=16)), st.integers(0, 2**32 - 1))
def test_scores_up_to_the_end_of_each_block_follow_from_the_blocks(y, seed):
    answers = np.random.default_rng(seed).normal(0, 50, len(y))
    course = scores.cumulative("rmse", scores.block_scores("regression", y, answers)["rmse"], len(y))
    ends = [*range(BLOCK, len(y), BLOCK), len(y)]
    assert course == pytest.approx([np.sqrt(np.mean((answers - y)[:end] ** 2)) for end in ends])
    labels = (y > 0).astype(int)
    weights = np.abs(np.column_stack([answers, answers[::-1]])) + 0.01
    weights /= weights.sum(axis=1, keepdims=True)
    blocks = scores.block_scores("classification", labels, weights)
    surprise = -np.log(weights[np.arange(len(y)), labels])
    for name, values in {"accuracy": weights.argmax(axis=1) == labels, "log_loss": surprise}.items():
        assert scores.cumulative(name, blocks[name], len(y)) == pytest.approx([values[:end].mean() for end in ends])


def test_the_calibration_error_is_what_was_promised_beyond_what_came_true():
    y, sure = np.repeat([0, 1], 500), np.tile([0.7, 0.3], (1000, 1))
    assert scores.calibration_error(sure, y) == pytest.approx(0.2)  # half of them were right
    assert scores.calibration_error(sure, np.repeat([0, 1], [700, 300])) == pytest.approx(0.0)
    mixed = np.where(y[:, None] == 0, sure, [0.1, 0.9])  # 0.7 was too low, and so was 0.9: parts do not make up for it
    assert scores.calibration_error(mixed, y) == pytest.approx((0.3 + 0.1) / 2)
    assert scores.calibration_error(mixed, 1 - y) == pytest.approx((0.7 + 0.9) / 2)


def test_no_answer_is_zero_and_no_opinion_is_every_class_alike():
    numbers, n_bad = scores.tidy(np.array([1.0, np.nan, np.inf]))
    assert (numbers.tolist(), n_bad) == ([1, 0, 0], 2)
    weights, n_bad = scores.tidy(np.array([[3.0, 1.0], [0.0, 0.0], [np.nan, 2.0]]))
    assert (weights.tolist(), n_bad) == ([[0.75, 0.25], [0.5, 0.5], [0, 1]], 1)


def test_streamboost_is_measured_as_it_is(tmp_path):
    stream = streams.load("friedman", 1200, 1, tmp_path)
    record = prequential.run(Job("friedman", "streamboost", 1200, 1, cache=str(tmp_path)))
    said = SGBRegressor(random_state=1).learn(stream.X, stream.y)
    assert record["score"]["rmse"] == pytest.approx(np.sqrt(np.mean((said - stream.y) ** 2)), rel=1e-4)
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int) + 1
    y[200:] = np.where(X[200:, 1] > 1, 0, y[200:])  # class 0 is met last, and keeps its place
    learner = peers.PEERS["streamboost"].make(streams.Stream("late", X, y, "classification"), 1)
    answers, one_by_one = learner.learn(X, y), SGBClassifier(random_state=1)
    newcomers = set(np.unique(y, return_index=True)[1].tolist())  # rows on which nothing is asked: they bring a class
    for i, (x, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        expected = one_by_one.predict_proba_one(dict(enumerate(x)))
        if i not in newcomers:
            assert answers[i] == pytest.approx([expected.get(k, 0.0) for k in range(3)], abs=1e-9)
        one_by_one.learn_one(dict(enumerate(x)), label)


def test_a_river_model_scores_as_in_rivers_own_evaluation(tmp_path):
    from river import evaluate, linear_model, metrics, preprocessing, tree

    models = {
        ("friedman", "river_ht", "rmse"): (tree.HoeffdingTreeRegressor(), metrics.RMSE(), float),
        ("electricity", "river_linear", "log_loss"): (
            preprocessing.StandardScaler() | linear_model.LogisticRegression(),
            metrics.LogLoss(),
            bool,
        ),
    }
    for (name, peer, score), (model, metric, kind) in models.items():
        stream = streams.load(name, 700, 1, tmp_path)
        rows = [
            ({f"x{j}": v for j, v in enumerate(x)}, kind(y)) for x, y in zip(stream.X.tolist(), stream.y, strict=True)
        ]
        theirs = evaluate.progressive_val_score(rows, model, metric).get()
        record = prequential.run(Job(name, peer, 700, 1, cache=str(tmp_path)))
        assert record["score"][score] == pytest.approx(theirs, rel=1e-3)
        assert record["digest"] == stream.digest


def test_the_warm_up_is_learned_and_not_timed(monkeypatch):
    clock, seen = [0.0], []

    def learn(X, y):
        slow = len(seen) < 200  # while it warms up
        seen.extend(X.tolist())
        clock[0] += len(y) * (10.0 if slow else 0.5)
        return y + 3.0

    monkeypatch.delattr(os, "sched_setaffinity", raising=False)  # this process is to keep its cores
    monkeypatch.setattr(prequential, "cpu_seconds", lambda: clock[0])
    course = bench_throughput.Course("regression", 200, 100, lambda *_: SimpleNamespace(chunk=30, learn=learn))
    found = bench_throughput.measure(course, SimpleNamespace(quick=False, seed=4))
    assert found == {"rate": pytest.approx(2.0), "error": pytest.approx(3.0)}
    assert np.array_equal(seen, datasets.friedman(300, seed=4).X)  # every row once, in order


def test_a_model_without_succession_never_drops_its_memory():
    X, y, *_ = datasets.friedman(4000, drift=2000, seed=1)
    bound, usual = SGBRegressor(random_state=1), SGBRegressor(random_state=1)
    said = bench_drift.learn_without_succession(bound, X, y)
    assert np.array_equal(said[:1500], usual.learn(X, y)[:1500])  # until the change there is nothing to succeed to
    assert bench_drift.n_dropped(bound) == 0 < bench_drift.n_dropped(usual)


@pytest.mark.parametrize("name", bench_ablation.VARIANTS)
def test_every_variant_differs_from_the_default_in_what_it_is_named_for(name):
    settings, change, chunk, edits = bench_ablation.VARIANTS[name]
    if edits:
        folder = bench_ablation.copy_with(name) / "streamboost"
        own = Path(streamboost.__file__).parent
        changed = [
            file for file in own.rglob("*.py") if file.read_text() != (folder / file.relative_to(own)).read_text()
        ]
        assert [str(file.relative_to(own)) for file in changed] == [edits[0].file]
        return
    X, y, *_ = datasets.friedman(64)
    usual = SGBRegressor(random_state=0)
    usual.learn(X, y)
    with bench_ablation.changed(change):
        model = SGBRegressor(random_state=0, **(settings or {}))
        model.learn(X, y)

    def make(model):
        committee = model.committee_
        boosters = [(repr(b.replay), b.stack.max_features, type(b.base), b.update_mode) for b in committee.boosters]
        combination = committee.hedge.combination.combines, committee.hedge.combination.holds
        makes = committee.steps, committee.half_lives, committee.readout, committee.drift_replacement is None
        return boosters, committee.growth is None, *makes, *combination

    assert (make(model) != make(usual)) == (name != bench_ablation.DEFAULT)
    assert chunk == (16 if model.update_mode == "minibatch" else 500)


def test_partitions_are_taken_by_whoever_is_free():
    """Of many small ones each worker has its share; one worker has them all, and each begins anew."""
    whole = bench_partitions.simulate(64, 1, 1000.0, 2.0, 100.0)
    assert whole == pytest.approx(64 * (2 + 10), rel=0.05)
    assert bench_partitions.simulate(64, 8, 1000.0, 2.0, 100.0) == pytest.approx(whole / 8, rel=0.1)
    assert bench_partitions.simulate(64, 64, 1000.0, 2.0, 100.0) == pytest.approx(2 + 11, rel=0.05)


# Runs and their report


def test_a_finished_run_is_not_run_again_and_one_that_dies_is_told(tmp_path, monkeypatch, capsys):
    arguments = ["--results", str(tmp_path / "r.jsonl"), "--cache", str(tmp_path / "cache")]
    assert run.main(["--quick", *arguments]) == 0
    assert run.main(["--quick", *arguments]) == 0
    [record] = run.read_results(tmp_path / "r.jsonl")
    assert (record["stream"], record["model"], record["done"]) == ("friedman", "streamboost", 1000)
    monkeypatch.setattr(prequential, "source_digest", lambda: "changed")
    assert len(list(run.plan(run.parse(["--quick", *arguments]), SimpleNamespace(print=print)))) == 1
    odd = ["--models", "odd", "--variant", 'odd={"oddness": [1]}', "--streams", "covtype", "abalone", "--rows", "50"]
    assert run.main([*odd, *arguments]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "skipped: stream covtype needs covtype.parquet" in told
    assert "abalone · odd ended without a result" in told
    assert len(run.read_results(tmp_path / "r.jsonl")) == 1


def made_up(stream, model, blocks, done=None, digest="same", cpu=1.0):
    """A record of 2,000 rows with a score a block."""
    is_regression = streams.GENERATED[stream][0] == "regression"
    kind, done = "rmse" if is_regression else "accuracy", done or BLOCK * len(blocks)
    seen = {"rows": 2000, "seed": 1, "digest": digest, "n": 2000, "done": done}
    cost = {"cpu_s": cpu, "wall_s": cpu, "rss_growth_mb": 1.0}
    made = {
        "package": {"river": "river"}.get(model[:5], model),
        "version": "1.0",
        "python": "3.11",
        "cpu": "a processor",
    }
    score = {"score": {kind: 0.0}, "blocks": {kind: blocks}, "stopped": None if done == 2000 else "time limit"}
    task = "regression" if is_regression else "classification"
    return {"stream": stream, "model": model, "task": task, **seen, **cost, **made, **score}


def test_a_stopped_run_is_compared_over_the_rows_both_have_and_ranked_if_it_has_half():
    ours = made_up("friedman", "streamboost", [4.0, 2.0, 1.0, 1.0])
    theirs = made_up("friedman", "river_arf", [3.0, 2.0, 9.0], done=1250)
    assert compare.shared_rows(ours, theirs) == 1000
    assert compare.lead(ours, theirs) == pytest.approx(1 - np.sqrt((4**2 + 2**2) / (3**2 + 2**2)))
    assert report.against(ours, theirs) == "**behind** by 24.0 % over the first 1,000 rows"
    assert [compare.verdict(lead) for lead in (0.004, -0.004, 0.006, -0.006)] == ["tie", "tie", "ahead", "behind"]
    few = made_up("friedman", "river_srp", [0.1], done=700)
    runs = {record["model"]: record for record in (ours, few, theirs, made_up("friedman", "lightgbm", [0.1] * 4))}
    assert [record["model"] for record in compare.ranked_peers(runs)] == ["river_arf"]
    rows, errors = pictures.recent_error(made_up("friedman", "streamboost", [4.0, 3.0, 2.0, 1.0], done=1700))
    assert rows.tolist() == [500, 1000, 1500, 1700]
    assert errors[-1] == pytest.approx(np.sqrt((500 * 9 + 500 * 4 + 200 * 1) / 1200))


def test_the_report_says_who_is_ahead_and_at_what_cost(tmp_path, capsys):
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
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    report.main([str(tmp_path / "r.jsonl"), "--rows", "2000", "--output", str(tmp_path)])
    printed, page = capsys.readouterr(), (tmp_path / "report.md").read_text()
    assert printed.out.strip() in page
    for line in (
        "| friedman | RMSE | 1.000 | 1.250 | River ARF(10) | 0.5000 | **ahead** by 20.0 % | **behind** by 100.0 % |",
        "| rbf | accuracy | 0.8000 | 0.8010 | River Hoeffding tree | – | **tie** | – |",
        "| sea_drift | accuracy | 0.8000 | 0.9000 | River Hoeffding tree | – | **behind** by 11.1 % | – |",
        "| River Hoeffding tree | 500 | 0.5 | 0.5 to 2 | 1 | 0 |",  # CPU of 1/2000 s a row; over 2, 2, 2
    ):
        assert line in page.splitlines()
    assert "ahead on 1, tie on 1, behind on 1 of 3 streams" in page
    assert "left out: river_srp saw other rows of sea_drift." in printed.err
    assert all((tmp_path / f"error_{name}.png").stat().st_size > 5000 for name in ("over_rows", "against_cost"))
