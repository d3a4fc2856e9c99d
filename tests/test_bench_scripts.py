import json
import os
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread

from benchmarks import (
    bench_ablation,
    bench_accuracy,
    bench_covtype,
    bench_drift,
    bench_first_use,
    bench_flat,
    bench_net_readout,
    bench_neural,
    bench_throughput,
    bench_tree_kernels,
    prequential,
    streams,
)
from streamboost import SGBClassifier, SGBRegressor, datasets, recipes


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)


@pytest.fixture
def call(tmp_path, capsys):
    """Run a script in its quick form; give its table, line by line, and the figures it kept."""

    def run_quickly(script, *arguments):
        assert script.main(["--quick", "--results", str(tmp_path), *arguments]) == 0
        said = capsys.readouterr()
        lines = [line[2:-2].split(" | ") for line in said.out.splitlines() if line.startswith("|")]
        file = tmp_path / f"{script.__name__.split('bench_')[1]}.json"
        record = json.loads(file.read_text())
        assert record["versions"]["numpy"] == np.__version__
        assert record["versions"]["source"] == prequential.source_digest()
        return SimpleNamespace(head=lines[0], rows=lines[2:], figures=record["figures"], progress=said.err)

    return run_quickly


def rmse(said, y):
    return np.sqrt(np.mean((said - y) ** 2))


# What they share.


def test_an_error_is_rmse_of_numbers_and_a_share_of_wrong_classes():
    assert bench_accuracy.error(np.array([1.0, 5.0]), np.array([1.0, 2.0])) == pytest.approx(np.sqrt(4.5))
    assert bench_accuracy.error(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1])) == 1 / 3


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_quick_run_leaves_the_kept_results_alone(tmp_path, monkeypatch, is_quick):
    monkeypatch.setattr(streams, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(bench_accuracy, "RESULTS", tmp_path / "results" / "peers.jsonl")
    options = bench_accuracy.parser_of("bench_x", "What it does.").parse_args(["--quick"] * is_quick)
    folder = bench_accuracy.keep(options, "x", {"figure": 1.23456789})
    assert folder == tmp_path / ("cache/quick" if is_quick else "results")
    kept = json.loads((folder / "x.json").read_text())
    assert kept["figures"] == {"figure": 1.2346}
    assert kept["asked"] == {"quick": is_quick, "seed": 1}
    assert kept["cpu"]


# Throughput.


def test_throughput_is_told_beside_a_hoeffding_tree_on_the_same_stream(call):
    pytest.importorskip("river")
    found = call(bench_throughput, "--models", "river_ht")
    [[title, theirs, ours, rate, times, goal, reached]], figures = found.rows, found.figures
    assert (title, ours, goal) == ("River Hoeffding tree", "streamboost, one by one", "1")
    rates = figures["rates"]
    assert set(rates) == {"river_ht", ours}
    assert figures["ratios"]["river_ht"] == pytest.approx(rates[ours] / rates["river_ht"], rel=1e-3)
    assert float(times) == pytest.approx(figures["ratios"]["river_ht"], rel=0.06)
    assert [float(cell.replace(",", "")) for cell in (theirs, rate)] == pytest.approx(
        [rates["river_ht"], rates[ours]], rel=0.01
    )
    assert reached == ("yes" if rates[ours] >= rates["river_ht"] else "no")
    errors = {name: runs[0]["error"] for name, runs in figures["runs"].items()}
    assert 1.0 < errors[ours] < errors["river_ht"] < 6.0  # both did learn: the noise is 1, the spread of the target 5


def test_the_warm_up_is_learned_and_not_timed(monkeypatch):
    clock, seen = [0.0], []

    class Sluggish:
        chunk = 30

        def learn(self, X, y):
            slow = len(seen) < 200  # while it warms up
            seen.extend(X.tolist())
            clock[0] += len(y) * (10.0 if slow else 0.5)
            return y + 3.0

    monkeypatch.delattr(os, "sched_setaffinity", raising=False)  # this process is to keep its cores
    monkeypatch.setattr(prequential, "cpu_seconds", lambda: clock[0])
    course = bench_throughput.Course("regression", 200, 100, lambda stream, seed: Sluggish())
    found = bench_throughput.measure(course, SimpleNamespace(quick=False, seed=4))
    assert found == {"rate": pytest.approx(2.0), "error": pytest.approx(3.0)}
    assert np.array_equal(seen, datasets.friedman(300, seed=4).X)  # every row once, in order


def test_peers_that_are_not_installed_are_left_out_with_a_word(call, monkeypatch):
    peer = bench_throughput.PEERS["river_ht"]
    absent = type(peer)("Nobody's SGBR", "nobodys_package", ("regression",), peer.make)
    present = type(peer)("Somebody's ARF", "numpy", ("regression",), peer.make)
    monkeypatch.setattr(bench_throughput, "PEERS", {"capymoa_sgbr": absent, "river_arf": present})
    rates = {"streamboost": 660.0, "river_arf": 6.0}
    monkeypatch.setattr(bench_throughput, "in_a_process", lambda name, options: {"rate": rates[name], "error": 1.0})
    found = call(bench_throughput, "--models", "capymoa_sgbr", "river_arf")
    assert found.rows == [["Somebody's ARF", "6", "streamboost", "660", "110", "100", "yes"]]
    assert "left out: Nobody's SGBR needs nobodys_package" in found.progress


# Trees.


def test_tree_growth_is_told_beside_lightgbm_for_three_sizes(call):
    pytest.importorskip("lightgbm")
    found = call(bench_tree_kernels)
    sizes = ["2,048 x 10, depth 5", "4,096 x 20, depth 6", "1,024 x 100, depth 6"]
    assert [row[0] for row in found.rows] == sizes
    for size, ours, theirs, ratio, goal, reached in found.rows:
        figures = found.figures[size]
        assert figures["ratio"] == pytest.approx(figures["streamboost_ms"] / figures["lightgbm_ms"], rel=1e-3)
        assert [float(ours), float(theirs), float(ratio)] == pytest.approx(
            [figures["streamboost_ms"], figures["lightgbm_ms"], figures["ratio"]], abs=0.0051
        )
        assert 0 < figures["lightgbm_ms"] < 1000
        assert reached == ("yes" if figures["ratio"] <= float(goal) else "no")


# A long stream.


def test_flat_compares_the_last_tenth_with_the_second_and_draws_both(call, tmp_path):
    found = call(bench_flat, "--rows", "200000")
    figures = found.figures
    assert figures["block"] == 40  # a hundred blocks of a fiftieth of the rows
    seconds, memory = figures["seconds"], figures["memory_mb"]
    assert len(seconds) == len(memory) == len(figures["rmse"]) == 100
    assert figures["ratio"] == pytest.approx(sum(seconds[10:20]) / sum(seconds[90:]), rel=1e-2)
    assert figures["growth_mb"] == pytest.approx(memory[99] - memory[19], abs=0.1)
    assert np.mean(figures["rmse"][-10:]) < 0.5 * np.mean(figures["rmse"][:3])  # it is one model that learned them all
    assert imread(tmp_path / "flat.png").shape == (600, 1050, 4)


# The first use.


def test_first_use_times_the_import_and_every_kind_of_model(call):
    found = call(bench_first_use)
    told = {row[0]: [float(cell) for cell in row[1:3]] for row in found.rows}
    kinds = [f"{kind}, all compiled before" for kind in bench_first_use.KINDS]
    imports = ["import streamboost", "then SGBRegressor from it", "scikit-learn's base alone, which that needs"]
    assert list(told) == [*imports, *kinds, "all three, all compiled before"]
    assert told[imports[1]][0] > 0.1  # numba and scikit-learn come along
    whole = np.sum([told[kind] for kind in kinds], axis=0)
    assert told["all three, all compiled before"] == pytest.approx(whole, abs=0.025)


def test_nothing_is_compiled_at_first_and_everything_after(monkeypatch, tmp_path, capsys):
    caches = []

    def in_a_process(code, cache):
        caches.append(cache)
        is_cold = not os.listdir(cache)
        open(os.path.join(cache, "kernel"), "w").close()
        imports = {what: [1.0, 1.0] for what in ("import", "names", "base")}
        return imports | {kind: [9.0 if is_cold else 0.5, 8.0] for kind in bench_first_use.KINDS}

    monkeypatch.setattr(bench_first_use, "in_a_process", in_a_process)
    assert bench_first_use.main(["--results", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "| all three, nothing compiled | 27.00 | 24.00 | below 30 | yes |" in told
    assert "| all three, all compiled before | 1.50 | 24.00 |  |  |" in told
    assert len(set(caches)) == 1
    assert not os.path.exists(caches[0])


def test_a_fresh_process_compiles_into_the_folder_it_is_given(tmp_path):
    code = "import json, os; print(json.dumps([os.environ['NUMBA_CACHE_DIR'], 1.0, 2.0]))"
    assert bench_first_use.in_a_process(code, str(tmp_path)) == {str(tmp_path): [1.0, 2.0]}


# Drift.


def test_drift_is_measured_against_a_model_without_a_past(call):
    found = call(bench_drift)
    [calm], [abrupt] = found.figures["stationary"], found.figures["abrupt"]
    assert calm["dropped"] == 0
    X, y, *_ = datasets.friedman(4000, drift=2000, seed=1)
    young = SGBRegressor(random_state=1).learn(X[2000:], y[2000:])
    assert abrupt["from the change on"] == pytest.approx(rmse(young[1000:], y[3000:]), rel=1e-4)
    whole = SGBRegressor(random_state=1).learn(X, y)
    assert abrupt["with succession"] == pytest.approx(rmse(whole[3000:], y[3000:]), rel=1e-4)
    assert 1 < abrupt["with succession"] <= 1.02 * abrupt["without succession"] < 3
    ratio = abrupt["with succession"] / abrupt["from the change on"]
    assert float(found.rows[2][1].split()[0]) == pytest.approx(ratio, abs=1e-3)
    assert found.rows[2][3] == ("yes" if ratio <= 1.15 else "no")


def test_a_model_without_succession_never_drops_its_memory():
    X, y, *_ = datasets.friedman(4000, drift=2000, seed=1)
    bound, usual = SGBRegressor(random_state=1), SGBRegressor(random_state=1)
    said = bench_drift.learn_without_succession(bound, X, y)
    assert len(said) == 4000
    assert np.array_equal(said[:1500], usual.learn(X, y)[:1500])  # until the change there is nothing to succeed to
    assert bench_drift.n_dropped(bound) == 0
    assert bench_drift.n_dropped(usual) > 0


def test_every_challenger_is_counted_once(monkeypatch):
    is_on = iter([False, True, True, True, False, False, True, False, True, True])

    class Scripted:
        events_ = ()

        def __init__(self, random_state):
            self.committee_ = SimpleNamespace(succession=SimpleNamespace(is_on=False))

        def learn(self, X, y):
            self.committee_.succession.is_on = next(is_on)
            return y

    monkeypatch.setattr(bench_drift, "SGBRegressor", Scripted)
    found = bench_drift.stationary(10 * bench_drift.LOOK_EVERY, seed=1)
    assert (found["challengers"], found["dropped"], found["rmse"]) == (3, 0, 0.0)


# Ablation.


def test_an_ablation_is_the_error_of_the_changed_model_over_that_of_the_default(call):
    make = recipes.make_committee
    names = ["one memory", "no succession", "recorded targets", "chunks of 16"]
    found = call(bench_ablation, "--variants", *names)
    assert recipes.make_committee is make
    assert found.head == ["stream", "error of the default", *names]
    assert [row[0] for row in found.rows] == ["friedman", "electricity", "geometric mean", "CPU time"]
    stream = streams.load("friedman", 500, 1)
    default = rmse(SGBRegressor(random_state=1).learn(stream.X, stream.y), stream.y)
    single = rmse(SGBRegressor(memory=16384, random_state=1).learn(stream.X, stream.y), stream.y)
    chunks = SGBRegressor(semantics="minibatch", random_state=1)
    said = np.concatenate([chunks.learn(stream.X[s : s + 16], stream.y[s : s + 16]) for s in range(0, 500, 16)])
    told = [float(cell) for cell in found.rows[0][1:]]
    assert told[0] == pytest.approx(default, rel=1e-3)
    assert [told[1], told[4]] == pytest.approx([single / default, rmse(said, stream.y) / default], abs=6e-4)
    assert told[2] == 1.0  # nobody challenges in so few rows
    assert told[3] != 1.0
    ratios = np.array([[float(cell) for cell in row[2:]] for row in found.rows[:2]])
    assert [float(cell) for cell in found.rows[2][2:]] == pytest.approx(np.sqrt(ratios[0] * ratios[1]), abs=2e-3)


@pytest.mark.parametrize("memory", [256, 1024, 4096, 16384])
def test_a_booster_is_left_out_and_the_others_stay_what_they_are(memory):
    X, y, *_ = datasets.friedman(100)
    whole = SGBRegressor(random_state=0)
    whole.learn(X, y)
    part = SGBRegressor(random_state=0)
    with bench_ablation.changed(bench_ablation.without(memory)):
        part.learn(X, y)

    def makes(model):
        return {b.replay.window: (b.stack.n_learners, b.stack.max_depth) for b in model.committee_.boosters}

    assert makes(part) == {window: make for window, make in makes(whole).items() if window != memory}
    assert len(makes(part)) == 3


@pytest.mark.parametrize("name", bench_ablation.VARIANTS)
def test_every_variant_differs_from_the_default_in_what_it_is_named_for(name):
    settings, change, chunk = bench_ablation.VARIANTS[name]
    X, y, *_ = datasets.friedman(64)
    with bench_ablation.changed(change):
        model = SGBRegressor(random_state=0, **(settings or {}))
        model.learn(X, y)

    def make(model):
        committee = model.committee_
        boosters = [(repr(b.replay), b.stack.max_features, type(b.base), b.semantics) for b in committee.boosters]
        return boosters, committee.steps, committee.half_lives, committee.readout, committee.succession is None

    default = SGBRegressor(random_state=0)
    default.learn(X, y)
    assert (make(model) != make(default)) == (name != bench_ablation.DEFAULT)
    assert chunk == (16 if model.semantics == "minibatch" else 500)


# Covtype.


def test_covtype_goes_through_in_one_pass(call, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2200, 54))
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-1.5, -0.8, -0.3, 0.3, 0.8, 1.5]) + 1  # seven classes, from 1 on
    columns = {f"x{j}": X[:, j] for j in range(54)}
    pq.write_table(pa.table(columns | {"target": y}), tmp_path / "covtype.parquet")
    monkeypatch.setenv("STREAMBOOST_DATA", str(tmp_path))
    found = call(bench_covtype)
    X, y = X[:2000], y[:2000] - 1
    told = dict(found.rows)
    assert told["rows"] == "2,000"
    accuracy = np.mean(SGBClassifier(random_state=1).learn(X, y) == y)
    assert float(told["accuracy"]) == pytest.approx(accuracy, abs=1e-4)
    assert np.mean(found.figures["blocks"]) == pytest.approx(accuracy, abs=1e-4)
    assert float(told["accuracy of the class of the row before"]) == pytest.approx(np.mean(y[1:] == y[:-1]), abs=1e-4)
    assert len(found.figures["rss_mb"]) == 3
    assert imread(tmp_path / "covtype.png").shape == (450, 1050, 4)


def test_covtype_without_its_file_says_what_to_do(capsys):
    assert bench_covtype.main(["--quick"]) == 1
    assert "Set STREAMBOOST_DATA to a folder that holds it" in capsys.readouterr().err


# Accuracy.


def test_accuracy_is_told_for_every_stream(call):
    pytest.importorskip("river")
    found = call(bench_accuracy)
    told = {(what, who): float(value) for what, who, value in found.rows}
    friedman = {who: value for (what, who), value in told.items() if what.startswith("Friedman, RMSE")}
    X, y, *_ = datasets.friedman(1000, seed=1)
    assert friedman["streamboost"] == pytest.approx(rmse(SGBRegressor(random_state=1).learn(X, y), y), abs=1e-4)
    assert friedman["streamboost"] < friedman["River linear, scaled"]
    labels = datasets.load_electricity().y[:2265]
    assert told["electricity, accuracy", "the label of the row before"] == pytest.approx(
        np.mean(labels[1:] == labels[:-1]), abs=1e-4
    )
    assert 1.5 < told["abalone 90/10, test RMSE", "streamboost"] < 2.8  # rings, whose spread is 3.2
    assert len({who for what, who in told if what == "Friedman, mean absolute error"}) == 3


# Networks.


def test_a_vote_over_all_partial_sums_bears_more_networks_than_the_last_sum_does(call):
    found = call(bench_net_readout)
    errors = {(stream, n, way): error for stream, n, way, error in found.figures["errors"]}
    assert len(errors) == len(found.rows) * 4 == 36
    for stream in bench_net_readout.STREAMS:
        assert errors[stream, 32, "vote"] <= errors[stream, 32, "yᴺ"]
    assert float(found.rows[0][1]) == pytest.approx(errors["friedman, RMSE", 8, "yᴺ"], rel=1e-3)


def test_networks_are_timed_beside_whoever_is_installed(call, monkeypatch):
    monkeypatch.setattr(bench_neural, "find_spec", lambda name: None)
    found = call(bench_neural)
    assert "left out: torch is not installed" in found.progress
    assert [row[:2] for row in found.rows] == [
        ["streamboost", "1"],
        ["streamboost", "32"],
        ["streamboost", "256"],
        ["streamboost, conv", "32"],
    ]
    steps = [float(row[2].replace(",", "")) for row in found.rows]
    rates = [float(row[3].replace(",", "")) for row in found.rows]
    assert [1e6 * batch / step for batch, step in zip((1, 32, 256, 32), steps, strict=True)] == pytest.approx(
        rates, rel=0.1
    )
