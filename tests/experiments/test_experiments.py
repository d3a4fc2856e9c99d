"""The experiments at sizes of seconds: what falls with what, and that every number in the page comes from a record."""

import html
import math
import re

import numpy as np
import pytest

from examples.counter_example import SLOPES, START
from experiments import (
    counter_example,
    figure_1,
    figure_2,
    nets,
    page,
    records,
    registry,
    relatives,
    runner,
    square_error,
    streams,
    table_1,
)
from experiments.records import Progress, rounded
from streamboost.losses import Logistic, Softmax, Squared

NETS = {"train": 1500, "test": 400, "shown": 6000, "tried": 0.5, "passes": 2, "tried_passes": 1}
SIZES = {
    "figure_1": {"rows": 1000, "learners": 10, "depths": [1, 3], "refit_every": 200, "chunk": 40},
    "table_1": NETS,
    "figure_2": {**NETS, "numbers": [2]},
    "square_error": {},
    "relatives": {"rows": 600, "held_out": 300, "learners": 8, "depth": 3, "refits": 2, "steps": [0.3, 1.0]},
    "growing": {"rows": 900, "fixed": [2, 16], "most": 16, "look_every": 100, "depth": 3, "blocks": 4},
    "counter_example": {"learners": 30, "step": 0.1, "radius": 2.0, "stream_rows": 60, "stream_learners": 30},
}
PUBLISHED = records.folder("full")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """All experiments run, without any data but what travels with the package; their records, and their folder."""
    folder = tmp_path_factory.mktemp("experiments")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STREAMBOOST_DATA", raising=False)
        patch.setattr(runner, "CACHE", folder / "cache")
        patch.setattr(table_1, "QUICK_SETS", ("ABALONE",))
        streams._scaled.cache_clear()
        for name, sizes in SIZES.items():
            patch.setattr(registry.load(name), "QUICK", sizes)
        runner.main(["--quick", "--output", str(folder)])
        streams._scaled.cache_clear()
    return {name: records.load(folder / f"{name}.json") for name in SIZES} | {"folder": folder}


def numbers_in(value):
    """All numbers of a record, however deep, and how many there are in each list."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers_in(item)]
    if isinstance(value, list):
        return [len(value), len(value) - 1, *(number for item in value for number in numbers_in(item))]
    return [float(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_experiment_runs_and_keeps_a_record_like_the_published_one(small, name):
    found, published = small[name], records.load(PUBLISHED / f"{name}.json")
    assert found.keys() == published.keys()
    assert (found["mode"], found["seeds"], found["sizes"]) == ("quick", [0], SIZES[name])
    text = (small["folder"] / "report.html").read_text()
    assert html.escape(registry.load(name).TITLE) in text
    for picture, _ in page.pictures(name, found, small["folder"]):
        assert (small["folder"] / f"{picture}.png").stat().st_size > 2000
        assert (small["folder"] / f"{picture}.svg").read_text() in text


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_published_number_is_in_the_record_and_the_page_says_what_the_record_says(small, name):
    for found, folder in ((small[name], small["folder"]), (records.load(PUBLISHED / f"{name}.json"), PUBLISHED)):
        text, rows = (folder / "report.html").read_text(), registry.load(name).compare(found)
        assert rows
        assert all(html.escape(row.ours) in text for row in rows)
        if name in ("figure_1", "relatives", "growing", "counter_example"):  # the others tell ratios, too
            known = np.array(numbers_in(found))
            for number in re.findall(r"(?<![\w²₁₂])-?\d[\d,]*(?:\.\d+)?", " ".join(row.ours for row in rows)):
                value, digits = float(number.replace(",", "")), len(number.partition(".")[2])
                assert (np.abs(known - value) <= 0.51 * 10.0**-digits).any(), number


def test_what_is_published_of_curves_follows_from_the_published_curves():
    published = {name: records.load(PUBLISHED / f"{name}.json") for name in registry.NAMES}
    sets = published["table_1"]["sets"]
    assert (
        square_error.run("full", (0, 1, 2), Progress(), published["table_1"])["sets"]
        == published["square_error"]["sets"]
    )
    for name, kinds in published["figure_2"]["crossings"].items():
        assert {kind: figure_2.crossings(sets[name]["runs"], kind) for kind in kinds} == kinds
    for panel in published["figure_1"]["panels"]:
        fit = figure_1.geometric_part if panel["setting"] in ("logistic", "squared") else figure_1.harmonic_part
        for line in panel["lines"]:
            found = fit(np.array(line["by_learners"]["mean"]))
            assert [found[key] or 0 for key in line["fit"]] == pytest.approx(
                [x or 0 for x in line["fit"].values()], 1e-4
            )


def test_the_page_is_one_file_that_says_what_was_not_run(small):
    text = page.write(small["folder"]).read_text()
    assert "src=" not in text
    assert "<link" not in text
    assert "<b>SLICE</b>: not run. slice_localization_data.csv" in text
    assert "Quick runs" in text
    assert {panel["set"] for panel in small["figure_1"]["panels"]} == {"A9A", "ABALONE"}  # nothing stands in for it


# Figure 1, and the claims beside it


def lines(small, setting, targets="fresh"):
    panel = next(panel for panel in small["figure_1"]["panels"] if panel["setting"] == setting)
    return [line for line in panel["lines"] if line["targets"] == targets]


@pytest.mark.parametrize("setting", ["logistic", "squared"])
def test_under_algorithm_1_regret_falls_with_learners_depth_and_rows_below_the_bound(small, setting):
    shallow, deep = lines(small, setting)
    for line in (shallow, deep):
        assert (np.diff(line["by_learners"]["mean"]) < 0).all()
        assert line["over_rows"]["mean"][-1] < 0.95 * line["over_rows"]["mean"][0]
        assert line["fit"]["r2"] > 0.95
        bound = np.array([math.inf if value is None else value for value in line["bound"]])
        assert (np.array(line["by_learners"]["mean"]) <= bound).all()
        assert np.isfinite(bound[:4]).all()
    assert deep["by_learners"]["mean"][-1] < shallow["by_learners"]["mean"][-1]
    assert deep["fit"]["slope"] < shallow["fit"]["slope"] < 0
    assert np.mean(deep["edges"]["mean"]) > np.mean(shallow["edges"]["mean"])


@pytest.mark.parametrize("setting", ["hinge", "absolute"])
def test_under_algorithm_2_regret_falls_and_needs_fresh_targets(small, setting):
    fresh, [recorded] = lines(small, setting), lines(small, setting, "recorded")
    assert min(fresh[0]["by_learners"]["mean"]) < fresh[0]["by_learners"]["mean"][0]
    twin = next(line for line in fresh if line["depth"] == recorded["depth"])
    assert min(twin["edges"]["mean"]) > min(recorded["edges"]["mean"])
    assert min(twin["by_learners"]["mean"]) < min(recorded["by_learners"]["mean"])


def test_a_bound_is_on_record_only_where_every_edge_so_far_is_above_0(small):
    for panel in small["figure_1"]["panels"]:
        for line in panel["lines"]:
            for k, value in enumerate(line["bound"]):
                promised = all(edge is None or edge > 0 for edge in line["edges"]["mean"][:k])
                if k or panel["setting"] in ("logistic", "squared"):  # Theorem 2 starts at one learner
                    assert (value is not None) == promised


def test_a_geometric_and_a_harmonic_fall_are_fitted_exactly_down_to_their_floor():
    fit = figure_1.geometric_part(0.8 * 0.9 ** np.arange(20.0))
    assert (fit["slope"], fit["r2"]) == (pytest.approx(math.log(0.9), rel=1e-4), pytest.approx(1))
    floored = figure_1.geometric_part(np.maximum(0.8 * 0.5 ** np.arange(30.0), 0.8 * 0.5**10))
    assert floored["last"] == 5  # half the way to the floor
    assert figure_1.geometric_part(np.array([1.0, 2.0, 3.0]))["slope"] is None
    N = np.arange(1, 31)
    fit = figure_1.harmonic_part(np.concatenate([[9.0], 0.2 + 1.5 * (1 + np.log(N)) / N, [1.0, 2.0]]))
    assert (fit["slope"], fit["start"], fit["r2"]) == pytest.approx((1.5, 0.2, 1.0), rel=1e-4)
    assert fit["last"] == fit["least_at"] == 30


def test_algorithm_1_is_near_the_best_where_the_loss_is_smooth_and_growing_beats_the_worst_guess(small):
    for panel in small["relatives"]["panels"]:
        ends = {line["who"]: line["loss"]["mean"] for line in panel["lines"]}
        assert len(ends) == 5
        assert all(line["loss"]["mean"] < line["by_learners"]["mean"][0] for line in panel["lines"])
        assert ends["Algorithm 1"] < 1.1 * min(ends.values()) or not panel["smooth"]
    for panel in small["growing"]["panels"]:
        found = {line["who"]: line for line in panel["lines"]}
        worst = max(found[f"N = {N}"]["loss"]["mean"] for N in (2, 16))
        assert max(found[who]["loss"]["mean"] for who in ("growing", "voting")) < worst
        assert found["growing"]["units"]["mean"] < found["N = 16"]["units"]["mean"]


def test_the_step_is_chosen_by_other_rows_than_it_is_judged_by(monkeypatch):
    sizes = {**SIZES["relatives"], "rows": 200, "held_out": 100, "learners": 3, "steps": [0.01, 1.0]}
    asked, losses = [], relatives._losses
    monkeypatch.setattr(relatives, "_losses", lambda booster, X, y: asked.append(X) or losses(booster, X, y))
    found = relatives.measure("Algorithm 1", "squared", "ABALONE", 0, sizes)
    assert found["step"] == 1.0  # three learners with steps of 0.01 hardly move
    X, _ = streams.draw_rows("ABALONE", 400, 0)
    np.testing.assert_array_equal(asked[0], X[200:300])
    np.testing.assert_array_equal(asked[1], X[300:])


def test_only_algorithm_2_gets_out_of_the_counter_example_unless_gradients_are_recorded(small):
    found = small["counter_example"]
    assert {y[1] for y in found["paths"]["1"]} == {1.0}
    assert min(found["losses"]["1"]) >= 1.0
    assert found["losses"]["2"][-1] < 0.25
    fresh, recorded = found["streams"]["fresh"], found["streams"]["recorded"]
    assert fresh["second"] == [START[1], START[1]]
    assert recorded["second"][0] < 0  # y₂ moves, beyond 0 even
    assert recorded["average"] < 0.9 * START[1] < fresh["average"]


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


# Table 1 and Figure 2


def test_errors_are_half_the_mean_square_and_the_share_of_wrong_classes():
    assert nets.error(Squared(), np.array([[1.0], [4.0]]), np.array([1.0, 2.0])) == 1.0
    assert nets.error(Logistic(), np.array([[2.0], [-1.0]]), np.array([1.0, 1.0])) == 0.5
    assert nets.error(Softmax(n_classes=3), np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]), np.array([1.0, 2.0])) == 0.5


def test_table_1_chooses_by_rows_kept_from_training_and_tells_the_cost_of_the_paper(small):
    [run] = small["table_1"]["sets"]["ABALONE"]["runs"]
    # y¹ = −η h₁ with η = ⅔ leaves a third of a target whose mean is 10: half of (10 / 3)² is 5.6 and more
    assert 5.0 < run["base"] < 14.0
    assert run["runs"]["SGB"]["last"] < 0.5 * run["base"]
    for kind in ("SGB", "GB"):
        tried = {(one["eta"], one["rate"]): one["validation"] for one in run["chosen"][kind]["tried"]}
        assert set(tried) == set(nets.SETS["ABALONE"].choices)
        assert (run["chosen"][kind]["eta"], run["chosen"][kind]["rate"]) == min(tried, key=tried.get)
    assert run["runs"]["SGB"]["curve"][-1][0] == 3 * 8 * 6000  # 3 T N
    costs = [units for units, _ in run["runs"]["GB"]["curve"]]
    assert costs[-1] == sum((i + 2) * 2 * 1500 for i in range(1, 9))  # i predictions and an update, two passes
    told = {row.what: row for row in table_1.compare(small["table_1"])}
    assert "8 of 8 networks did not converge in 2 passes" in told["ABALONE, training"].ours
    figure = small["figure_2"]
    assert figure["took"] == {"table_1": records.fingerprint(small["table_1"])}
    assert figure["same_cost"]["ABALONE"]["rows"]["mean"] == round(costs[-1] / 24)  # of 3N units each


def test_no_test_row_is_seen_before_the_end():
    one, sizes = nets.SETS["ABALONE"], {**NETS, "shown": 2000}
    training, test = one.split(3)
    assert len(training.X) + len(test.X) == 4177
    seen = {row.tobytes() for row in np.column_stack(training)}
    assert not any(row.tobytes() in seen for row in np.column_stack(test))
    mixed = nets.Rows(test.X, np.random.default_rng(0).permutation(test.y))
    blind = nets.Set(**{**vars(one), "split": lambda seed: (training, mixed)})
    assert nets.train(blind, 3, sizes)["chosen"] == nets.train(one, 3, sizes)["chosen"]


def test_the_first_calls_are_small_and_all_rows_are_shown_at_a_rate_that_falls_linearly(monkeypatch):
    rows = list(nets.calls(3759, 30_000, 32, 0))
    assert [len(call) for call in rows][:7] == [64, 128, 256, 512, 1024, 3759 - 1984, 3759]
    assert sum(map(len, rows)) == 30_000
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)[:3759]), np.arange(3759))
    told, set_rate = [], nets.NeuralStack.set_rate
    monkeypatch.setattr(nets.NeuralStack, "set_rate", lambda stack, rate: told.append(rate) or set_rate(stack, rate))
    one = nets.SETS["ABALONE"]
    training, test = one.split(0)
    nets.stream(one, 2, nets.Choice(0.5, 0.02), training, test, 0, 20_000, marks=False)
    shown = np.cumsum([0, *(len(rows) for rows in nets.calls(len(training.X), 20_000, one.batch, 0))])
    np.testing.assert_allclose(told, 0.02 * (1 - shown[:-1] / 20_000))


def test_crossings_compare_the_first_cost_at_which_streaming_is_as_good_and_where_both_stay_near():
    batch = [[10, 2.01], [20, 3.0], [60, 2.015], [100, 2.0]]
    wavering = [[10, 4.0], [40, 2.0], [60, 2.5], [80, 1.0]]
    assert figure_2.crossing(wavering, batch) == {"batch": 100, "batch_near": 60, "as_good": 40, "near": 80}
    runs = [{"runs": {"SGB": {"curve": curve}, "GB": {"curve": batch}}} for curve in (wavering, [[10, 4.0]])]
    found = figure_2.crossings(runs, "SGB")
    assert (found["share"], found["near_share"]) == (0.4, rounded(80 / 60))
    curves = [[[10, 5.0], [20, 1.0]], [[10, 4.0], [20, 9.0]], [[10, 6.0], [20, 2.0]]]
    assert figure_2.middle(curves).tolist() == [[10, 5.0], [20, 2.0]]


@pytest.mark.parametrize("kind", square_error.READINGS)
@pytest.mark.parametrize("knows_all", [True, False])
def test_a_print_is_read_back_by_the_reading_it_was_printed_in(kind, knows_all):
    # targets of mean 10 and spread 3; the first learner says them, or only their mean; η = 0.4, N = 5, error 2 at last
    mean, spread, eta, n_learners, last = 10.0, 3.0, 0.4, 5, 2.0
    first = (1 - eta) ** 2 * (mean**2 + spread**2) if knows_all else ((1 - eta) * mean) ** 2 + spread**2
    left = (1 - eta) ** n_learners * mean
    reading = square_error.READINGS[kind]
    base, streaming = reading.printed(first), reading.printed(last + left**2)
    found = square_error.read(reading, base, streaming, mean, spread, n_learners, ours=last)
    least, most = found["eta"]
    assert (least if knows_all else most) == pytest.approx(eta, rel=1e-4)
    assert found["explained"] == pytest.approx(1 - (last + left**2) / 9, rel=1e-4)


# Running


def test_a_finished_experiment_is_read_and_not_run_again_unless_asked_or_a_missing_set_has_come(
    small, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(page, "pictures", lambda *_: [])
    found, ran = small["figure_1"], []
    records.save(found, tmp_path / "figure_1.json")
    monkeypatch.setattr(figure_1, "run", lambda *_: ran.append(1) or {"panels": found["panels"], "not_run": []})
    runner.run("figure_1", "quick", folder=tmp_path)
    assert "not run again. For that give --again" in capsys.readouterr().err
    assert not ran
    monkeypatch.setitem(nets.SETS, "SLICE", nets.SETS["ABALONE"])
    runner.run("figure_1", "quick", folder=tmp_path)
    assert f"figure_1: SLICE, missing on {found['date']}, is there now: it is run again" in capsys.readouterr().err
    runner.run("figure_1", "quick", folder=tmp_path)
    assert len(ran) == 1
    runner.run("figure_1", "quick", folder=tmp_path, again=True)
    assert len(ran) == 2
    with pytest.raises(SystemExit, match="is the record of a quick run, expected none or one of a full run"):
        runner.run("figure_1", "full", folder=tmp_path)


def test_a_broken_run_is_taken_up_where_it_broke(tmp_path):
    broken, again = Progress(tmp_path), Progress(tmp_path)
    assert broken.part("a", lambda: {"list": np.arange(2)}) == {"list": [0, 1]}
    with pytest.raises(ZeroDivisionError):
        broken.part("b", lambda: 1 / 0)
    assert again.part("a", lambda: 1 / 0) == {"list": [0, 1]}
    assert again.part("b", lambda: 2.0) == 2.0


def test_a_change_to_what_an_experiment_imports_makes_its_records_stale(small, tmp_path, monkeypatch):
    place = tmp_path / "experiments"
    place.mkdir()
    for file in records.HERE.glob("*.py"):
        (place / file.name).write_text(file.read_text())
    monkeypatch.setattr(records, "HERE", place)
    before = {name: records.source(name)["experiment"] for name in ("figure_2", "table_1", "growing")}
    with (place / "nets.py").open("a") as file:
        file.write("# changed")
    after = {name: records.source(name)["experiment"] for name in before}
    assert {name for name in before if before[name] != after[name]} == {"figure_2", "table_1"}
    records.save(small["table_1"], tmp_path / "table_1.json")
    assert "source has changed" in page.write(tmp_path).read_text()


def test_numbers_that_are_not_finite_do_not_get_into_a_record(tmp_path):
    assert records.rounded(np.array([1.23456789, np.inf, np.nan])) == [1.23457, None, None]
    with pytest.raises(ValueError, match="JSON"):
        records.save({"value": math.nan}, tmp_path / "x.json")
    assert records.load(tmp_path / "x.json") is None
    assert records.summary([[1.0, 2.0], [3.0, 2.0]]) == {"mean": [2.0, 2.0], "spread": [1.41421, 0.0]}
