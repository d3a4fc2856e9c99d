"""The experiments at sizes of seconds: what falls with what, and that every number in the page comes from a record."""

import html
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from examples.counter_example import SLOPES, START
from experiments import counter_example, figure_1, growing, page, records, registry, relatives, runner, streams
from experiments.records import Progress

SIZES = {
    "figure_1": {"rows": 1000, "learners": 10, "depths": [1, 3], "refit_every": 200, "chunk": 40},
    "relatives": {"rows": 600, "held_out": 300, "learners": 8, "depth": 3, "refits": 2, "steps": [0.3, 1.0]},
    "growing": {"rows": 900, "fixed": [2, 16], "most": 16, "look_every": 100, "depth": 3, "blocks": 4},
    "counter_example": {"learners": 30, "step": 0.1, "radius": 2.0, "stream_rows": 60, "stream_learners": 30},
}
MODULES = {module.__name__.split(".")[-1]: module for module in (figure_1, relatives, growing, counter_example)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of finished runs, made without any data but what travels with the package."""
    place = tmp_path_factory.mktemp("experiments")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STREAMBOOST_DATA", raising=False)
        patch.setattr(runner, "CACHE", place / "cache")
        streams._scaled.cache_clear()
        for name, module in MODULES.items():
            patch.setattr(module, "QUICK", SIZES[name])
            runner.run(name, "quick", folder=place / "results")
        streams._scaled.cache_clear()
    return place / "results"


def record(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def lines(folder, setting, targets="fresh"):
    panel = next(panel for panel in record(folder, "figure_1")["panels"] if panel["setting"] == setting)
    return [line for line in panel["lines"] if line["targets"] == targets]


# Figure 1.


@pytest.mark.parametrize("setting", ["logistic", "squared"])
def test_under_algorithm_1_regret_falls_with_learners_depth_and_rows(folder, setting):
    shallow, deep = lines(folder, setting)
    for line in (shallow, deep):
        assert (np.diff(line["by_learners"]["mean"]) < 0).all()
        assert line["over_rows"]["mean"][-1] < 0.95 * line["over_rows"]["mean"][0]
    assert deep["by_learners"]["mean"][-1] < shallow["by_learners"]["mean"][-1]
    assert deep["fit"]["slope"] < shallow["fit"]["slope"] < 0
    assert np.mean(deep["edges"]["mean"]) > np.mean(shallow["edges"]["mean"])


@pytest.mark.parametrize("setting", ["logistic", "squared"])
def test_its_first_part_is_a_line_on_a_log_axis_below_the_bound(folder, setting):
    for line in lines(folder, setting):
        assert line["fit"]["r2"] > 0.95
        bound = np.array([math.inf if value is None else value for value in line["bound"]])
        assert (np.array(line["by_learners"]["mean"]) <= bound).all()
        assert np.isfinite(bound[:4]).all()


def test_a_bound_is_on_record_only_where_every_edge_so_far_is_above_0(folder):
    for panel in record(folder, "figure_1")["panels"]:
        for line in panel["lines"]:
            for k, value in enumerate(line["bound"]):
                promised = all(edge is None or edge > 0 for edge in line["edges"]["mean"][:k])
                if k or panel["setting"] in ("logistic", "squared"):  # Theorem 2 starts at one learner
                    assert (value is not None) == promised


@pytest.mark.parametrize("setting", ["hinge", "absolute"])
def test_under_algorithm_2_regret_falls_and_needs_fresh_targets(folder, setting):
    fresh = lines(folder, setting)
    assert min(fresh[0]["by_learners"]["mean"]) < fresh[0]["by_learners"]["mean"][0]
    recorded = lines(folder, setting, "recorded")[0]
    twin = next(line for line in fresh if line["depth"] == recorded["depth"])
    assert min(twin["edges"]["mean"]) > min(recorded["edges"]["mean"])
    assert min(twin["by_learners"]["mean"]) < min(recorded["by_learners"]["mean"])


def test_slice_is_never_replaced_under_its_name(folder):
    found = record(folder, "figure_1")
    assert {panel["set"] for panel in found["panels"]} == {"A9A", "ABALONE"}
    assert found["not_run"][0]["what"] == "SLICE"
    assert "53,500 rows of 386 columns" in found["not_run"][0]["why"]


def test_a_geometric_fall_is_fitted_exactly_above_its_floor():
    fit = figure_1.geometric_part(0.8 * 0.9 ** np.arange(20.0))
    assert fit["slope"] == pytest.approx(math.log(0.9), rel=1e-4)
    assert fit["r2"] == pytest.approx(1)
    floored = figure_1.geometric_part(np.maximum(0.8 * 0.5 ** np.arange(30.0), 0.8 * 0.5**10))
    assert floored["last"] == 5  # half the way to the floor
    assert figure_1.geometric_part(np.array([1.0, 2.0, 3.0]))["slope"] is None


def test_a_harmonic_fall_is_fitted_exactly_down_to_its_least_point():
    N = np.arange(1, 31)
    regret = np.concatenate([[9.0], 0.2 + 1.5 * (1 + np.log(N)) / N])
    fit = figure_1.harmonic_part(np.concatenate([regret, [1.0, 2.0]]))
    assert (fit["slope"], fit["start"], fit["r2"]) == pytest.approx((1.5, 0.2, 1.0), rel=1e-4)
    assert fit["last"] == fit["least_at"] == 30
    assert figure_1.harmonic_part(np.array([5.0, 4.0, 3.0, 2.0, 5.0]))["slope"] is None


# The others.


def test_every_relative_learns_and_algorithm_1_is_near_the_best_where_the_loss_is_smooth(folder):
    for panel in record(folder, "relatives")["panels"]:
        ends = {line["who"]: line["loss"]["mean"] for line in panel["lines"]}
        assert len(ends) == 5
        for line in panel["lines"]:
            assert line["loss"]["mean"] < line["by_learners"]["mean"][0]
        if panel["smooth"]:
            assert ends["Algorithm 1"] < 1.1 * min(ends.values())


def test_the_step_is_chosen_by_other_rows_than_it_is_judged_by(monkeypatch):
    sizes = {**SIZES["relatives"], "rows": 200, "held_out": 100, "learners": 3, "steps": [0.01, 1.0]}
    asked = []
    losses = relatives._losses
    monkeypatch.setattr(relatives, "_losses", lambda booster, X, y: asked.append(X) or losses(booster, X, y))
    found = relatives.measure("Algorithm 1", "squared", "ABALONE", 0, sizes)
    assert found["step"] == 1.0  # three learners with steps of 0.01 hardly move
    X, _ = streams.draw_rows("ABALONE", 400, 0)
    np.testing.assert_array_equal(asked[0], X[200:300])
    np.testing.assert_array_equal(asked[1], X[300:])


def test_growing_and_voting_beat_the_worst_guess_of_n(folder):
    for panel in record(folder, "growing")["panels"]:
        found = {line["who"]: line for line in panel["lines"]}
        worst = max(found[f"N = {N}"]["loss"]["mean"] for N in (2, 16))
        assert found["growing"]["loss"]["mean"] < worst
        assert found["voting"]["loss"]["mean"] < worst
        assert found["growing"]["learners"]["mean"] > 2
        assert found["growing"]["units"]["mean"] < found["N = 16"]["units"]["mean"]


def test_only_algorithm_2_gets_out_of_the_counter_example(folder):
    found = record(folder, "counter_example")
    assert {y[1] for y in found["paths"]["1"]} == {1.0}
    assert min(found["losses"]["1"]) >= 1.0
    assert found["losses"]["2"][-1] < 0.25
    assert found["losses"]["2"][0] == found["losses"]["1"][0]


def test_with_recorded_gradients_the_counter_example_is_none(folder):
    found = record(folder, "counter_example")["streams"]
    b = START[1]
    assert found["fresh"]["second"] == [b, b]
    assert found["fresh"]["average"] > b
    assert found["recorded"]["second"][0] < 0  # y₂ moves, beyond 0 even
    assert found["recorded"]["average"] < 0.9 * b
    # the gap in the argument, by hand: [2, 1] and [-2, 1] are both on record, and [0, 1] is nearer than any [α, 0]
    gradients = np.array([[2.0, 1.0], [-2.0, 1.0]])
    along_first = min(((gradients - [alpha, 0]) ** 2).sum() for alpha in np.linspace(-2, 2, 401))
    assert ((gradients - [0, 1]) ** 2).sum() < along_first


def test_recorded_gradients_are_those_of_the_appendix():
    # follow the leader by hand: each learner keeps the gradients it was given, and answers with the best of its kind
    N, T, step = 4, 15, 0.1
    kept, losses = [[] for _ in range(N)], []
    for _ in range(T):
        y, given = START.copy(), []
        for past in kept:
            given.append(np.sign(y) * SLOPES)
            if past:
                mean = np.mean(past, axis=0)
                axis = int(abs(mean[1]) > abs(mean[0]))
                y[axis] -= step * mean[axis]
        losses.append(np.abs(y) @ SLOPES)
        for past, gradient in zip(kept, given, strict=True):
            past.append(gradient)
    found = counter_example.stream("recorded", T, N, step)
    np.testing.assert_allclose(found["averages"], np.cumsum(losses) / np.arange(1, T + 1), rtol=1e-3)


@pytest.mark.parametrize(
    ("gap", "spread", "n_seeds", "words"),
    [
        (-0.05, 0.01, 3, "Growing is ahead of every fixed N (-5.0 % ± 1.0)"),
        (-0.05, 0.06, 3, "Growing is as good as the best guess (-5.0 % ± 6.0)"),
        (-0.02, 0.0, 1, "Growing is as good as the best guess (-2.0 %)"),
        (0.02, 0.001, 3, "Growing is as good as the best guess (+2.0 % ± 0.1)"),
        (0.08, 0.1, 3, "Growing is as good as the best guess (+8.0 % ± 10.0)"),
        (0.08, 0.01, 3, "Growing lies between the best and the worst guess (+8.0 % ± 1.0 against the best)"),
        (0.90, 0.01, 3, "Growing is behind every fixed N (+90.0 % ± 1.0 against the best)"),
    ],
)
def test_ahead_and_behind_are_measured_by_the_best_loss_and_by_the_seeds(gap, spread, n_seeds, words):
    gaps = {who: {"mean": gap, "spread": spread} for who in ("growing", "voting")}
    by_name = {who: {"loss": {"mean": 1.0 + gap}} for who in gaps}
    assert growing._verdict(gaps, 1.5, by_name, n_seeds).startswith(words)


def test_gaps_are_taken_stream_by_stream_from_the_fixed_number_that_is_best_on_average():
    losses = {"N = 2": [1.0, 3.0], "N = 4": [1.2, 2.0], "growing": [1.2, 2.2], "voting": [0.6, 1.0]}
    found = growing.gaps(losses)
    assert found["growing"] == records.summary([0.0, 0.1])
    assert found["voting"]["mean"] == -0.5


# Records, pictures, page.


def numbers_in(value):
    """All numbers of a record, however deep."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers_in(item)]
    if isinstance(value, list):
        return [
            *([float(len(value)), float(len(value) - 1)]),
            *(number for item in value for number in numbers_in(item)),
        ]
    return [float(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", MODULES)
def test_every_number_of_ours_is_in_the_record(folder, name):
    found = record(folder, name)
    known = np.array(numbers_in(found))
    rows = MODULES[name].compare(found)
    assert rows
    for row in rows:
        for text in re.findall(r"(?<![\w²₁₂])-?\d[\d,]*(?:\.\d+)?", row.ours):
            value, digits = float(text.replace(",", "")), len(text.partition(".")[2])
            assert (np.abs(known - value) <= 0.51 * 10.0**-digits).any(), f"{text} in {row.ours!r}"


def test_a_changed_record_changes_the_page(folder, tmp_path):
    found = record(folder, "counter_example")
    found["losses"]["2"][-1] = 0.7654
    records.save(found, tmp_path / "counter_example.json")
    text = page.write(tmp_path).read_text()
    assert "with loss 0.7654" in text
    assert "with loss 0.7654" not in page.write(folder).read_text()


def test_the_page_is_one_file_that_says_what_was_not_run(folder):
    text = page.write(folder).read_text()
    assert "src=" not in text
    assert "<link" not in text
    assert {link for link in re.findall(r"<a href='([^']*)'", text)} == {f"{name}.json" for name in MODULES}
    assert "<b>SLICE</b>: not run. slice_localization_data.csv" in text
    assert "Quick runs" in text
    assert "prefers-color-scheme: dark" in text
    for name, module in MODULES.items():
        assert html.escape(module.TITLE) in text
        for picture, _ in page.pictures(name, record(folder, name), folder):
            assert (folder / f"{picture}.png").stat().st_size > 2000
            assert (folder / f"{picture}.svg").read_text() in text


def test_pictures_are_drawn_again_only_if_something_has_changed(folder, monkeypatch, tmp_path):
    found, drawn = record(folder, "counter_example"), []
    draw = counter_example.draw
    monkeypatch.setattr(counter_example, "draw", lambda *given: drawn.append(1) or draw(*given))
    page.pictures("counter_example", found, folder)
    assert not drawn
    (folder / "counter_example_paths.png").unlink()
    page.pictures("counter_example", found, folder)
    page.pictures("counter_example", {**found, "date": "another"}, folder)
    page.pictures("counter_example", found, folder)
    assert len(drawn) == 3
    other = tmp_path / "axes.py"
    other.write_text("")
    monkeypatch.setattr(page, "DRAWS", (other,))  # another way of drawing axes
    page.pictures("counter_example", found, folder)
    assert len(drawn) == 4


def test_an_experiment_without_a_module_is_told_as_not_run(folder, monkeypatch):
    monkeypatch.setattr(registry, "NAMES", [*registry.NAMES, "figure_9"])
    assert "figure_9" not in registry.available()
    assert "<b>figure_9</b>: not run yet." in page.write(folder).read_text()
    with pytest.raises(ValueError, match="there is no experiment 'figure_9'"):
        registry.load("figure_9")


def test_the_page_says_when_the_source_has_changed_since(folder, tmp_path):
    found = record(folder, "counter_example")
    assert "source has changed" not in page.write(folder).read_text()
    found["source"]["experiment"] = "000000000000"
    records.save(found, tmp_path / "counter_example.json")
    assert "source has changed" in page.write(tmp_path).read_text()


def test_a_record_is_of_all_the_modules_that_its_experiment_imports():
    def imported(name):
        return {
            file.relative_to(records.HERE.parent).as_posix() for file in records.modules(records.HERE / f"{name}.py")
        }

    assert {"experiments/figure_2.py", "experiments/table_1.py", "experiments/nets.py"} <= imported("figure_2")
    assert "experiments/streams.py" in imported("growing")
    assert "examples/counter_example.py" in imported("counter_example")
    assert "experiments/runner.py" not in imported("figure_2")  # it is only what starts it


def test_a_change_to_what_an_experiment_imports_makes_its_records_stale(tmp_path, monkeypatch):
    place = tmp_path / "experiments"
    place.mkdir()
    for name in ("figure_2", "table_1", "nets", "records", "charts", "growing", "streams"):
        (place / f"{name}.py").write_text((records.HERE / f"{name}.py").read_text())
    monkeypatch.setattr(records, "HERE", place)
    before = {name: records.source(name)["experiment"] for name in ("figure_2", "table_1", "growing")}
    with (place / "nets.py").open("a") as file:
        file.write("# changed")
    after = {name: records.source(name)["experiment"] for name in before}
    assert {name for name in before if before[name] != after[name]} == {"figure_2", "table_1"}


def test_a_record_tells_how_to_get_it_again(folder):
    found = record(folder, "figure_1")
    assert found["sizes"] == SIZES["figure_1"]
    assert found["seeds"] == [0]
    assert set(found["versions"]) == {"numpy", "numba", "scikit-learn", "streamboost"}
    assert found["source"] == records.source("figure_1") or len(found["source"]["experiment"]) == 12
    assert found["mode"] == "quick"


# Running.


def test_a_finished_experiment_is_not_run_again_unless_asked(folder, monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("ran")

    monkeypatch.setattr(counter_example, "run", refuse)
    monkeypatch.setattr(runner, "CACHE", tmp_path)
    runner.run("counter_example", "quick", folder=folder)
    with pytest.raises(AssertionError, match="ran"):
        runner.run("counter_example", "quick", folder=folder, again=True)


def test_an_old_record_is_told_as_one(folder, capsys):
    runner.run("counter_example", "quick", folder=folder)
    told = capsys.readouterr().err
    assert f"counter_example: read from {folder / 'counter_example.json'}, a run of 20" in told
    assert "not run again. For that give --again" in told
    runner.run("counter_example", "quick", folder=folder, fresh={"counter_example"})
    assert capsys.readouterr().err == ""


def test_a_record_is_not_finished_once_a_set_that_was_missing_is_there(folder, monkeypatch, tmp_path, capsys):
    found = record(folder, "figure_1")
    records.save(found, tmp_path / "figure_1.json")
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    ran = []
    monkeypatch.setattr(figure_1, "run", lambda *_: ran.append(1) or {**found, "not_run": []})
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)
    runner.run("figure_1", "quick", folder=tmp_path)
    assert not ran
    there = runner.nets.SETS["ABALONE"]
    monkeypatch.setitem(runner.nets.SETS, "SLICE", there)
    runner.run("figure_1", "quick", folder=tmp_path)
    assert len(ran) == 1
    assert f"figure_1: SLICE, missing on {found['date']}, is there now: it is run again" in capsys.readouterr().err
    runner.run("figure_1", "quick", folder=tmp_path)
    assert len(ran) == 1


def test_damaged_data_ends_the_command_with_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cpu_act.parquet").write_bytes(b"PAR1 and no more")
    monkeypatch.setenv("STREAMBOOST_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    streams._scaled.cache_clear()
    with pytest.raises(
        SystemExit, match=r"figure_1: cpu_act.parquet has 16 bytes .* expected 8,192 rows, 320,979 bytes"
    ):
        runner.main(["--quick", "--output", str(tmp_path / "out")], only="figure_1")
    assert not (tmp_path / "out").exists()
    streams._scaled.cache_clear()


def test_a_folder_that_is_a_file_and_a_record_that_is_none_are_refused_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        runner.main(["--quick", "--output", str(tmp_path / "file")], only="counter_example")
    assert "file is a file, expected a folder" in capsys.readouterr().err
    (tmp_path / "counter_example.json").write_text('{"half": ')
    with pytest.raises(SystemExit, match=r"counter_example.json cannot be read .* Delete it, or run it --again"):
        runner.main(["--quick", "--output", str(tmp_path)], only="counter_example")


def test_an_interrupted_command_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(counter_example, "run", interrupt)
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    with pytest.raises(SystemExit) as ended:
        runner.main(["--quick", "--output", str(tmp_path)], only="counter_example")
    assert ended.value.code == 130
    assert "What is finished is kept" in capsys.readouterr().err


def test_a_broken_run_is_taken_up_where_it_broke(tmp_path):
    calls = []

    def work(name):
        calls.append(name)
        if name == "b" and calls.count("b") == 1:
            raise KeyboardInterrupt
        return {"value": np.float64(len(name)), "list": np.arange(2)}

    def go():
        progress = Progress(tmp_path)
        progress.expect(2)
        return [progress.part(name, lambda name=name: work(name)) for name in "ab"]

    with pytest.raises(KeyboardInterrupt):
        go()
    assert go() == [{"value": 1.0, "list": [0, 1]}] * 2
    assert calls == ["a", "b", "b"]


def test_progress_tells_how_far_it_is():
    told = []
    progress = Progress(tell=lambda *state: told.append(state))
    progress.expect(2)
    progress.part("first", lambda: 1)
    assert told == [(0, 2, "first"), (1, 2, "first")]


def test_the_command_line_runs_one_and_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(counter_example, "QUICK", SIZES["counter_example"])
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    runner.main(["--quick", "--only", "counter_example", "--output", str(tmp_path / "out")])
    told = capsys.readouterr().out
    assert (
        "counter_example: Algorithm 1, recorded gradients, to the letter of the appendix: 30 learners, 60 rows" in told
    )
    assert (tmp_path / "out" / "report.html").exists()
    runner.main(["--quick", "--output", str(tmp_path / "out")], only="counter_example")
    assert "counter_example: Algorithm 2" in capsys.readouterr().out
    assert not list((tmp_path / "cache").rglob("*.json"))  # finished parts are cleared away


def test_numbers_that_are_not_finite_do_not_get_into_a_record(tmp_path):
    assert records.rounded(np.array([1.23456789, np.inf, np.nan])) == [1.23457, None, None]
    with pytest.raises(ValueError, match="JSON"):
        records.save({"value": math.nan}, tmp_path / "x.json")
    with pytest.raises(TypeError, match="a record holds a SimpleNamespace"):
        records.save({"value": SimpleNamespace()}, tmp_path / "x.json")
    assert records.load(tmp_path / "x.json") is None


def test_a_summary_is_mean_and_standard_deviation_over_seeds():
    assert records.summary([[1.0, 2.0], [3.0, 2.0]]) == {"mean": [2.0, 2.0], "spread": [1.41421, 0.0]}
    assert records.summary([[1.0]]) == {"mean": [1.0], "spread": [0.0]}


def test_rows_are_scaled_and_drawn_by_seed():
    X, y = streams.draw_rows("ABALONE", 10_000, 0)
    assert len(X) == 4177
    assert (y.mean(), y.std()) == pytest.approx((0, 1), abs=1e-9)
    np.testing.assert_array_equal(streams.draw_rows("ABALONE", 50, 0).X, X[:50])
    assert not np.array_equal(streams.draw_rows("ABALONE", 50, 1).X, X[:50])
    assert set(streams.draw_rows("A9A", 100, 0).y) == {-1.0, 1.0}
