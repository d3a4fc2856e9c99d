"""What the comparison over long streams rests on: the same rows however they are cut, and who stands beside whom."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import bench_scale, scale_peers, scale_streams
from benchmarks.scale_streams import BLOCK, as_categories, as_numbers


@pytest.fixture
def covtype(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = {f"x{j}": rng.normal(size=1200) for j in range(4)} | {"target": rng.integers(1, 8, 1200)}
    pq.write_table(pa.table(table), tmp_path / "covtype.parquet")
    monkeypatch.setenv("STREAMBOOST_DATA", str(tmp_path))


def joined(source, *cuts):
    parts = [part for start, stop in pairwise(cuts) for part in source.rows(start, stop)]
    return np.concatenate([as_numbers(X) for X, _ in parts]), np.concatenate([y for _, y in parts])


@pytest.mark.parametrize("name", scale_streams.GENERATED)
def test_rows_are_the_same_however_they_are_cut_and_the_test_is_not_among_them(name):
    source, again, other = (scale_streams.load(name, seed) for seed in (1, 1, 2))
    X, y = joined(source, 0, BLOCK + 700)
    for cuts in ((0, 300, BLOCK - 1, BLOCK + 1, BLOCK + 700), (0, BLOCK, BLOCK + 700)):
        assert all(map(np.array_equal, joined(again, *cuts), (X, y)))
    late, late_y = joined(again, BLOCK - 5, BLOCK + 700)  # from the middle, without those before
    assert np.array_equal(late, X[BLOCK - 5 :])
    assert np.array_equal(late_y, y[BLOCK - 5 :])
    assert source.digest == again.digest != other.digest
    assert not np.isin(as_numbers(source.test(0).X)[:, -1], X[:, -1]).any()


@pytest.mark.parametrize("name", scale_streams.GENERATED)
def test_targets_are_the_truth_of_their_moment_and_noise(name):
    source = scale_streams.load(name, 1)
    make, noise = scale_streams.GENERATED[name]
    X, truth = make(np.random.default_rng([1, 3]), 2 * BLOCK + np.arange(BLOCK))
    [rows] = source.rows(2 * BLOCK, 3 * BLOCK)
    assert np.array_equal(as_numbers(rows.X), as_numbers(X))
    assert np.std(rows.y - truth) == pytest.approx(noise, rel=0.05)
    soon, late = source.test(1000).y, source.test(1_000_000).y
    moved = np.sqrt(np.mean((soon - late) ** 2)) / np.std(soon)
    assert (moved > 0.5) == (name == "drift")
    assert np.sqrt(np.mean((source.test(0).y - soon) ** 2)) < 0.02 * np.std(soon)  # slowly


def test_a_file_is_shuffled_and_every_row_is_learned_or_tested_once(covtype):
    source = scale_streams.load("covtype", 1)
    X, y = joined(source, 0, source.n_rows)
    test = source.test(0)
    whole = scale_streams.streams.load("covtype", 10**9, 0)
    assert (len(y), len(test.y), source.n_classes) == (960, 240, 7)
    assert not np.array_equal(y, whole.y[: len(y)])
    assert np.array_equal(np.sort(np.concatenate([X, test.X])[:, 0]), np.sort(whole.X[:, 0]))


def test_strings_are_the_same_categories_in_every_block_and_numbers_by_the_alphabet():
    source = scale_streams.load("strings", 1)
    few = as_categories(next(source.rows(0, 3)).X)
    for name, n_levels in scale_streams.LEVELS.items():
        assert len(few[name].cat.categories) == n_levels
    X = source.block(0).X
    order = np.argsort(as_numbers(X)[:, 0], kind="stable")
    assert X["shop"].iloc[order].is_monotonic_increasing


def test_level_is_the_cheapest_that_is_hardly_worse_or_else_the_nearest():
    theirs = {
        "200": {"error": 1.03, "cpu": 1.0},
        "500": {"error": 1.02, "cpu": 2.0},
        "2000": {"error": 0.9, "cpu": 9.0},
    }
    assert bench_scale.level_with(1.0, theirs) == "500"
    assert bench_scale.level_with(0.89, theirs) == "2000"
    assert bench_scale.level_with(0.8, theirs) == "2000"  # ahead of all
    assert bench_scale.level_with(2.0, theirs) == "200"
    found = bench_scale.compared({"error": 1.0, "cpu": 4.0}, theirs)
    assert found["beside_better"] == pytest.approx(1 / 1.02)
    assert found["beside_most"] == pytest.approx(1 / 0.9)
    assert found["cpu_ratio"] == pytest.approx(2.0)


def test_a_peer_is_tested_at_its_marks_and_stops_when_its_time_is_up(monkeypatch):
    from river import linear_model, preprocessing

    job = {"stream": "friedman", "peer": "river_linear", "marks": [200, 300], "seconds": 60.0, "seed": 1}
    first, second = scale_peers.learn(job, lambda n: None)
    assert (first["rows"], second["rows"], second["stopped"]) == (200, 300, None)
    source, model = (
        scale_streams.load("friedman", 1),
        preprocessing.StandardScaler() | linear_model.LinearRegression(),
    )
    for X, y in source.rows(0, 300):
        for x, target in zip(X.tolist(), y.tolist(), strict=True):
            model.learn_one({f"x{j}": v for j, v in enumerate(x)}, target)
    X, y = source.test(300)
    said = [model.predict_one({f"x{j}": v for j, v in enumerate(x)}) for x in X.tolist()]
    assert second["error"] == pytest.approx(np.sqrt(np.mean((np.array(said) - y) ** 2)))
    [stop] = scale_peers.learn(job | {"seconds": 0.0}, lambda n: None)
    assert (stop["rows"], stop["stopped"]) == (50, "time limit")


class NoProgress:
    def add_task(self, *_, **__):
        return 0

    def remove_task(self, *_):
        pass


def test_what_a_peer_has_come_to_is_kept_and_not_run_again(tmp_path, monkeypatch):
    runs = []

    def pretend(job, tell):
        runs.append(job)
        yield {"rows": 200, "error": 1.0, "cpu": 1.0, "stopped": None}
        yield {"rows": 250, "error": 0.5, "cpu": 2.0, "stopped": "time limit"}

    monkeypatch.setattr(scale_peers, "in_a_process", pretend)
    source, job = scale_streams.load("friedman", 1), {"marks": [200, 300], "seconds": 5.0, "seed": 1}

    def ask(cache, **changes):
        return scale_peers.run_peer(cache, source, "river_linear", job | changes, NoProgress())

    file = tmp_path / "scale.jsonl"
    first = ask(scale_peers.Cache(file))
    assert ask(scale_peers.Cache(file)) == first
    assert [record["rows"] for record in first] == [200, 250]
    assert [record["rows"] for record in ask(scale_peers.Cache(file), marks=[200])] == [200]
    assert len(runs) == 1
    ask(scale_peers.Cache(file), seconds=9.0)  # more time: it may get further
    ask(scale_peers.Cache(file, is_fresh=True))
    assert len(runs) == 3
    assert len(file.read_text().splitlines()) == 6
    assert all(json.loads(line)["key"].startswith("friedman ") for line in file.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["throughput", "latency", "memory"])
def test_each_cost_is_measured_and_kept_by_itself(part, tmp_path, capsys):
    assert bench_scale.main(["--quick", f"--{part}", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("| ")
    assert [file.name for file in tmp_path.iterdir()] == [f"scale_{part}.json"]
    figures = json.loads((tmp_path / f"scale_{part}.json").read_text())["figures"]
    if part == "latency":
        found = figures["grows"]["learn_one"]
        assert 0 < found["p50"] <= found["p99"] <= found["p99.9"] <= found["max"]


@pytest.mark.slow
def test_our_error_at_a_mark_is_that_of_a_model_that_learned_the_rows_before_it(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lightgbm")
    quick = ["--quick", "--streams", "friedman", "--tables", "--results", str(tmp_path)]
    assert bench_scale.main(quick) == 0
    found = json.loads((tmp_path / "scale.json").read_text())["figures"]
    source, model = scale_streams.load("friedman", 1), bench_scale.make(0)
    for X, y in source.rows(0, 2000):
        model.learn(X, y)
    test = source.test(2000)
    ours = np.sqrt(np.mean((model.predict(test.X) - test.y) ** 2))
    assert found["streams"][-1]["error"] == pytest.approx(ours, rel=1e-4)
    assert (tmp_path / "scale.png").stat().st_size > 5000
    trained = len((tmp_path / "scale.jsonl").read_text().splitlines())
    monkeypatch.setattr(scale_peers, "in_a_process", lambda *_: pytest.fail("a peer ran again"))
    assert bench_scale.main(quick) == 0
    assert len((tmp_path / "scale.jsonl").read_text().splitlines()) == trained
